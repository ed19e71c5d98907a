//! How much of the host a session may use.
//!
//! What a person writes (`4G`, `1.5`, `90s`) becomes a type with its unit. [`Limits`] is what a
//! session gets: a default scaled to the host, or what was asked for, and which of the two it is.
//! A limit that was asked for and cannot hold is refused; it is never bent to one that can.
//!
//! Deliberately absent: measuring the host (the caller does, and passes a [`HostSize`]) and
//! putting a limit in force (`cowork-sandbox` does).

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes, written as a whole number with an optional K, M, G or T.
///
/// The suffixes are powers of 1024, in either case, and may be followed by `B` or `iB`: `512M`,
/// `512mb` and `512MiB` are the same. A bare number is bytes.
///
/// It is shown exactly, in the largest unit in which it is a whole number, so that what is shown
/// can be read back; `{:#}` rounds it to one decimal, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bytes(u64);

/// Why a text is not a number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BytesError {
    /// The text is no number with a unit.
    #[error(
        "`{}` is not a size: write a whole number and K, M, G or T, e.g. `512M`",
        .text.escape_debug()
    )]
    Malformed {
        /// The text as given.
        text: Box<str>,
    },
    /// The number has decimals.
    #[error("size `{text}` is not a whole number: write a smaller unit, e.g. `1536M` for 1.5G")]
    Fraction {
        /// The text as given.
        text: Box<str>,
    },
    /// The number is beyond what is counted here.
    #[error("size `{text}` is too large")]
    TooLarge {
        /// The text as given.
        text: Box<str>,
    },
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// The units of [`Bytes`], largest first.
const BYTE_UNITS: [(u64, &str); 5] = [(TIB, "T"), (GIB, "G"), (MIB, "M"), (KIB, "K"), (1, "")];

impl Bytes {
    /// So many bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for Bytes {
    type Err = BytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || BytesError::Malformed { text: text.into() };
        let (digits, unit) = split_number(text).ok_or_else(malformed)?;
        if unit.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        {
            return Err(BytesError::Fraction { text: text.into() });
        }
        let unit = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => KIB,
            "m" | "mb" | "mib" => MIB,
            "g" | "gb" | "gib" => GIB,
            "t" | "tb" | "tib" => TIB,
            _ => return Err(malformed()),
        };
        // The digits are digits, so the only way to fail is to be too many.
        let bytes = digits.parse().ok().and_then(|count: u64| count.checked_mul(unit));
        bytes.map(Self).ok_or_else(|| BytesError::TooLarge { text: text.into() })
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f.pad(&rounded(self.0));
        }
        f.pad(&in_largest_unit(self.0, &BYTE_UNITS))
    }
}

/// `bytes` in the largest unit of which there is one, with one decimal unless it is zero.
fn rounded(bytes: u64) -> String {
    let unit = BYTE_UNITS.into_iter().find(|&(size, _)| bytes >= size);
    let (size, suffix) = unit.unwrap_or((1, ""));
    let tenths = (u128::from(bytes) * 10 + u128::from(size) / 2) / u128::from(size);
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole}{suffix}"),
        (whole, tenth) => format!("{whole}.{tenth}{suffix}"),
    }
}

/// `count` in the largest of `units` in which it is a whole number; zero in the last.
fn in_largest_unit(count: u64, units: &[(u64, &str)]) -> String {
    let unit = units.iter().find(|&&(size, _)| count != 0 && count.is_multiple_of(size));
    let (size, suffix) = unit.or(units.last()).copied().unwrap_or((1, ""));
    format!("{}{suffix}", count / size)
}

/// Splits a text into the digits it starts with, of which there is at least one, and the rest.
fn split_number(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).filter(|(digits, _)| !digits.is_empty())
}

/// A share of the host's processors, written as `2`, `0.5` or `1.25`.
///
/// Invariant: more than nothing, in thousandths of one processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cpus(NonZeroU32);

/// Why a text is not a share of processors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpusError {
    /// The text is no decimal number.
    #[error("`{}` is not a number of CPUs: write e.g. `2` or `0.5`", .text.escape_debug())]
    Malformed {
        /// The text as given.
        text: Box<str>,
    },
    /// The number has more than three decimals.
    #[error("`{text}` CPUs is finer than a thousandth of a CPU")]
    TooFine {
        /// The text as given.
        text: Box<str>,
    },
    /// The number is beyond what is counted here.
    #[error("`{text}` CPUs is too large")]
    TooLarge {
        /// The text as given.
        text: Box<str>,
    },
    /// The number is zero.
    #[error("the number of CPUs is zero")]
    Zero,
}

impl Cpus {
    /// So many thousandths of a processor.
    pub fn from_millis(millis: u32) -> Result<Self, CpusError> {
        NonZeroU32::new(millis).map(Self).ok_or(CpusError::Zero)
    }

    /// All of so many processors; a host has one at least.
    fn whole(count: u32) -> Self {
        let count = NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        Self(count.saturating_mul(NonZeroU32::MIN.saturating_add(999)))
    }

    /// The thousandths of a processor.
    pub const fn millis(self) -> u32 {
        self.0.get()
    }
}

impl FromStr for Cpus {
    type Err = CpusError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) {
            return Err(CpusError::Malformed { text: text.into() });
        }
        let decimals = decimals.trim_end_matches('0');
        if decimals.len() > 3 {
            return Err(CpusError::TooFine { text: text.into() });
        }
        // Both parts are digits, so the only way to fail is to be too many.
        let millis = format!("{whole}{decimals:0<3}").parse();
        let Ok(millis) = millis else {
            return Err(CpusError::TooLarge { text: text.into() });
        };
        Self::from_millis(millis)
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, millis) = (self.millis() / 1000, self.millis() % 1000);
        let text = format!("{whole}.{millis:03}");
        f.pad(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// A span of time given by a person: `90s`, `5m`, `2h`, `1d`, `250ms`; a bare number is seconds.
///
/// Invariant: whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    millis: u64,
}

/// Why a text is not a span of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// The text is no whole number with a unit.
    #[error(
        "`{}` is not a span of time: write a whole number and ms, s, m, h or d, e.g. `90s`",
        .text.escape_debug()
    )]
    Malformed {
        /// The text as given.
        text: Box<str>,
    },
    /// The span is beyond what is counted here.
    #[error("span of time `{text}` is too long")]
    TooLong {
        /// The text as given.
        text: Box<str>,
    },
}

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The units of [`Span`] in milliseconds, largest first.
const SPAN_UNITS: [(u64, &str); 5] =
    [(DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s"), (1, "ms")];

impl Span {
    /// So many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self { millis }
    }

    /// The span as the clock counts it.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.millis)
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || SpanError::Malformed { text: text.into() };
        let (digits, unit) = split_number(text).ok_or_else(malformed)?;
        let unit = match unit {
            "ms" => 1,
            "" | "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            "d" => DAY,
            _ => return Err(malformed()),
        };
        // The digits are digits, so the only way to fail is to be too many.
        let millis = digits.parse().ok().and_then(|count: u64| count.checked_mul(unit));
        millis.map(Self::from_millis).ok_or_else(|| SpanError::TooLong { text: text.into() })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&in_largest_unit(self.millis, &SPAN_UNITS))
    }
}

/// Where the value of a limit comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Nobody asked: it was scaled to the host.
    #[default]
    Default,
    /// A person or a client asked for it.
    Asked,
}

/// A limit and where it comes from. What was asked for has to be put in force or refused; a
/// default that the host cannot enforce may be reported as absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit<T> {
    value: T,
    origin: Origin,
}

impl<T> Limit<T> {
    /// A limit that was asked for.
    pub const fn asked(value: T) -> Self {
        Self { value, origin: Origin::Asked }
    }

    /// A limit that nobody asked for.
    pub const fn default_of(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }

    /// Where the value comes from.
    pub const fn origin(&self) -> Origin {
        self.origin
    }
}

impl<T: Copy> Limit<T> {
    /// The value.
    pub const fn value(&self) -> T {
        self.value
    }
}

/// What the host has, or what this user may have of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSize {
    /// Processors that can be scheduled on.
    pub cpus: u32,
    /// Physical memory.
    pub memory: Bytes,
    /// Processes and threads the user may have.
    pub max_processes: u32,
    /// Files one process may have open.
    pub max_open_files: u32,
}

/// What one session may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Processes and threads alive at once, the session's init included.
    pub processes: Limit<u32>,
    /// Memory of all processes together, scratch files included.
    pub memory: Limit<Bytes>,
    /// Processor time per time.
    pub cpus: Limit<Cpus>,
    /// Files that one process may have open.
    pub open_files: Limit<u32>,
    /// Files in the session's own memory, such as `/tmp`.
    pub scratch: Limit<Bytes>,
    /// How long the session may run; without one it runs until it is ended.
    pub wall: Option<Span>,
}

/// Why limits cannot hold on a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitsError {
    /// The limit leaves nothing.
    #[error("limit `{limit}` is zero")]
    Zero {
        /// Which limit.
        limit: &'static str,
    },
    /// The limit leaves too little for any command to run.
    #[error("limit `{limit}` is {value}: {user} needs at least {least}")]
    TooSmall {
        /// Which limit.
        limit: &'static str,
        /// Its value.
        value: Box<str>,
        /// What would not run.
        user: &'static str,
        /// The smallest value that is accepted.
        least: Box<str>,
    },
    /// The limit is more than there is, and would limit nothing.
    #[error("limit `{limit}` is {value}: the host has {host}")]
    BeyondHost {
        /// Which limit.
        limit: &'static str,
        /// Its value.
        value: Box<str>,
        /// What the host has.
        host: Box<str>,
    },
}

/// The smallest useful value of a limit, and who needs it.
struct Floor<T> {
    limit: &'static str,
    least: T,
    user: &'static str,
}

/// A session's init and one command.
const PROCESSES: Floor<u32> =
    Floor { limit: "processes", least: 2, user: "a session with one command" };

/// The session's own processes, a shell and its libraries.
const MEMORY: Floor<Bytes> =
    Floor { limit: "memory", least: Bytes::new(16 * MIB), user: "a shell" };

/// A cgroup's quota is 1 ms or more (Linux, `kernel/sched/core.c`), of a period of 100 ms.
const CPUS: Floor<Cpus> = Floor {
    limit: "cpus",
    least: Cpus(NonZeroU32::MIN.saturating_add(9)),
    user: "the kernel's scheduler",
};

/// What POSIX promises to every process (`_POSIX_OPEN_MAX`).
const OPEN_FILES: Floor<u32> = Floor { limit: "open_files", least: 20, user: "a POSIX program" };

/// The files that every session has, and a page for each of its first folders.
const SCRATCH: Floor<Bytes> =
    Floor { limit: "scratch", least: Bytes(MIB), user: "a session's home and /tmp" };

impl<T: Copy + PartialOrd + fmt::Display> Floor<T> {
    fn check(&self, value: T) -> Result<(), LimitsError> {
        let Self { limit, least, user } = *self;
        if value >= least {
            return Ok(());
        }
        let (value, least) = (value.to_string().into(), least.to_string().into());
        Err(LimitsError::TooSmall { limit, value, user, least })
    }
}

fn at_most<T>(host: T, limit: &'static str, value: T) -> Result<(), LimitsError>
where
    T: Copy + PartialOrd + fmt::Display,
{
    if value <= host {
        return Ok(());
    }
    let (value, host) = (value.to_string().into(), host.to_string().into());
    Err(LimitsError::BeyondHost { limit, value, host })
}

impl Limits {
    /// The limits of a session for which nothing was asked.
    ///
    /// A session may use the host, and the host survives it:
    ///
    /// - `processes`: an eighth of what the user may have, so that a fork bomb leaves the user
    ///   able to log in and end it; at least 256, which a parallel build reaches; at most 4096,
    ///   beyond which there are only bombs; never more than the user has.
    /// - `memory`: three quarters of the host's, so that the session is killed for want of memory
    ///   before the desktop is.
    /// - `cpus`: all. The scheduler shares them by weight, so an idle processor is a wasted one.
    /// - `open_files`: as many as the user may have, up to 65536, beyond which programs that close
    ///   every descriptor before they start a child become slow.
    /// - `scratch`: a quarter of the session's memory, because scratch files are charged to it; at
    ///   least 256M, which package managers unpack; at most 16G; never more than half of the
    ///   host's memory, the kernel's own default for such a file system (tmpfs(5)).
    /// - `wall`: none. Work that is wanted takes as long as it takes.
    pub fn scaled_to(host: &HostSize) -> Self {
        let host_memory = host.memory.get();
        let memory = host_memory - host_memory.div_ceil(4);
        let processes = (host.max_processes / 8).clamp(256, 4096).min(host.max_processes);
        let scratch = (memory / 4).clamp(256 * MIB, 16 * GIB).min(host_memory / 2);
        Self {
            processes: Limit::default_of(processes),
            memory: Limit::default_of(Bytes(memory)),
            cpus: Limit::default_of(Cpus::whole(host.cpus)),
            open_files: Limit::default_of(host.max_open_files.min(65_536)),
            scratch: Limit::default_of(Bytes(scratch)),
            wall: None,
        }
    }

    /// Refuses limits under which no command would run, and limits that would limit nothing
    /// because the host has less. Values nobody asked for are held to the same: on a host that is
    /// too small, the sentence says so.
    pub fn check(&self, host: &HostSize) -> Result<(), LimitsError> {
        let Self { processes, memory, cpus, open_files, scratch, wall } = self;
        PROCESSES.check(processes.value)?;
        at_most(host.max_processes, PROCESSES.limit, processes.value)?;
        MEMORY.check(memory.value)?;
        at_most(host.memory, MEMORY.limit, memory.value)?;
        CPUS.check(cpus.value)?;
        at_most(Cpus::whole(host.cpus), CPUS.limit, cpus.value)?;
        OPEN_FILES.check(open_files.value)?;
        at_most(host.max_open_files, OPEN_FILES.limit, open_files.value)?;
        // A tmpfs of size zero has no limit at all (Linux, Documentation/filesystems/tmpfs.rst).
        if scratch.value == Bytes(0) {
            return Err(LimitsError::Zero { limit: "scratch" });
        }
        SCRATCH.check(scratch.value)?;
        at_most(host.memory, SCRATCH.limit, scratch.value)?;
        if *wall == Some(Span::from_millis(0)) {
            return Err(LimitsError::Zero { limit: "wall" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
