//! Which system calls a session's programs may make, and the filters that make the kernel agree.
//!
//! The rules are data: a table of calls, each with a decision and a sentence that says why
//! ([`Rule`]). Two readers take the same table. [`Policy::decide`] says what it means;
//! [`Policy::assemble`] turns it into classic BPF, as `seccomp(2)` takes it. Tests run the code in
//! [`simulate()`] and compare both for every number and for every value a rule looks at, on both
//! architectures, so the code cannot mean something else than the table.
//!
//! Two filters are in force at once, and the kernel takes the stricter answer. The *guard*
//! ([`Policy::guard`]) refuses: it is a deny list over known numbers, and whatever has no number
//! in the table does not exist. The *door* ([`Policy::door`]) asks: the calls it names wait for
//! the process that holds its listener.
//!
//! Every program uses only the instructions that the kernel can follow without running them
//! (`seccomp_is_const_allow` in `kernel/seccomp.c`): a call that is always allowed then costs one
//! bit test instead of a walk through the filter.
//!
//! Deliberately absent: loading a filter and answering a listener (`cowork-sandbox` does, through
//! `cowork-sys`), and an allow list (a session runs arbitrary tools, and the walls around it are
//! namespaces and Landlock; the filter narrows what of the kernel can be attacked behind them).

mod assemble;
mod calls;
mod decision;
#[cfg(test)]
mod proof;
mod simulate;
mod table;

use std::fmt;
use std::str::FromStr;

pub use cowork_api::plan::Door;

pub use assemble::{AssembleError, Instruction, Program};
pub use calls::NEWEST_CALL;
pub use decision::{Arg, Errno, Node, Rule, Test, Verdict};
pub use simulate::{SimulateError, simulate};

/// An architecture for which there is a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// 64-bit x86, without x32 and without the 32-bit entry points.
    X86_64,
    /// 64-bit ARM, without the 32-bit entry points.
    Aarch64,
}

/// The first number of x32, a second set of calls on `x86_64` that few filters remember
/// (`__X32_SYSCALL_BIT` in `asm/unistd.h`).
const X32: u32 = 0x4000_0000;

impl Arch {
    /// Every architecture.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The architecture this program was built for, or `None` if there is no filter for it.
    pub const fn native() -> Option<Self> {
        if cfg!(target_arch = "x86_64") {
            Some(Self::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Self::Aarch64)
        } else {
            None
        }
    }

    /// The value by which the kernel names the architecture to a filter (`AUDIT_ARCH_*` of
    /// `linux/audit.h`).
    pub const fn audit(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
            Self::Aarch64 => 0xc000_00b7,
        }
    }

    /// The number of a call, or `None` if the architecture does not have it.
    pub fn number_of(self, call: &str) -> Option<u32> {
        calls::number(self, call)
    }

    /// The call behind a number, or `None` if the number is not assigned.
    pub fn name_of(self, number: u32) -> Option<&'static str> {
        calls::name(self, number)
    }

    /// The number from which on no call is ever real, if the architecture has such numbers.
    const fn foreign_from(self) -> Option<u32> {
        match self {
            Self::X86_64 => Some(X32),
            Self::Aarch64 => None,
        }
    }
}

/// How much of the kernel's own sandboxing a session's programs may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// No new namespaces and no mounts.
    #[default]
    Strict,
    /// Namespaces and mounts are allowed, for programs that bring their own sandbox.
    Nested,
}

impl Profile {
    /// Every profile, the strictest first.
    pub const ALL: [Self; 2] = [Self::Strict, Self::Nested];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Nested => "nested",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|profile| profile.as_str() == text)
            .ok_or_else(|| ProfileError::Unknown { text: text.into() })
    }
}

/// Why a text does not name a [`Profile`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// There is no profile of that name.
    #[error("`{text}` is not a profile; the profiles are `strict` and `nested`")]
    Unknown {
        /// What was given.
        text: Box<str>,
    },
}

/// Whether a session's programs may look into each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Debugging {
    /// No program can stop, read or change another.
    #[default]
    Forbidden,
    /// Debuggers and tracers work within the session.
    Allowed,
}

impl Debugging {
    /// Both answers, the strictest first.
    pub const ALL: [Self; 2] = [Self::Forbidden, Self::Allowed];
}

/// What a filter sees of a system call; mirrors `struct seccomp_data` of `linux/seccomp.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeccompData {
    /// The number of the call, as the filter reads it: unsigned.
    pub nr: u32,
    /// By which set of numbers the call was made (`AUDIT_ARCH_*`).
    pub arch: u32,
    /// Where in the program the call was made.
    pub instruction_pointer: u64,
    /// The six argument registers, also those that the call does not use.
    pub args: [u64; 6],
}

impl SeccompData {
    /// A call made in the architecture's own way.
    pub const fn new(arch: Arch, nr: u32, args: [u64; 6]) -> Self {
        Self { nr, arch: arch.audit(), instruction_pointer: 0, args }
    }

    /// The low 32 bits of an argument; see [`Test`] for why only these.
    pub const fn low(&self, arg: Arg) -> u32 {
        (self.register(arg) & 0xffff_ffff) as u32
    }

    /// The high 32 bits of an argument.
    pub const fn high(&self, arg: Arg) -> u32 {
        (self.register(arg) >> 32) as u32
    }

    const fn register(&self, arg: Arg) -> u64 {
        let [a0, a1, a2, a3, a4, a5] = self.args;
        match arg {
            Arg::A0 => a0,
            Arg::A1 => a1,
            Arg::A2 => a2,
            Arg::A3 => a3,
            Arg::A4 => a4,
            Arg::A5 => a5,
        }
    }
}

/// The rules of one filter.
///
/// Invariant: no call has two rules, so the order of the rules has no meaning.
#[derive(Clone, Debug)]
pub struct Policy {
    name: &'static str,
    /// What happens to a number that no call has.
    unassigned: Verdict,
    tables: Vec<&'static [Rule]>,
}

impl Policy {
    /// The first filter: refuses what a session has no need for.
    pub fn guard(profile: Profile, debugging: Debugging) -> Self {
        let mut tables = vec![table::ALWAYS, table::FILES, table::SOCKETS];
        match profile {
            Profile::Strict => tables.push(table::STRICT),
            Profile::Nested => {}
        }
        match debugging {
            Debugging::Forbidden => tables.push(table::INSPECTION),
            Debugging::Allowed => {}
        }
        // A call that is newer than the table was never judged, and every program has to cope
        // with a kernel that lacks it.
        Self { name: "guard", unassigned: table::MISSING, tables }
    }

    /// The second filter: asks the holder of its listener about the calls it names.
    pub fn door(door: Door) -> Self {
        let tables = match door {
            Door::Connections => vec![table::CONNECTIONS],
            Door::Writes => vec![table::CONNECTIONS, table::WRITES],
        };
        // The guard has already refused what nobody judged; here silence means "do not ask".
        Self { name: "door", unassigned: Verdict::Allow, tables }
    }

    /// The name of the filter, for people.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Every rule, in the order in which it is explained.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.tables.iter().copied().flatten()
    }

    /// The rule about a call, or `None` if the call is simply allowed.
    pub fn rule(&self, call: &str) -> Option<&Rule> {
        self.rules().find(|rule| rule.call == call)
    }

    /// What the rules mean for one call. Reads the table, not the code made from it.
    pub fn decide(&self, arch: Arch, data: &SeccompData) -> Verdict {
        if data.arch != arch.audit() {
            return table::FOREIGN;
        }
        if arch.foreign_from().is_some_and(|first| data.nr >= first) {
            return table::MISSING;
        }
        match arch.name_of(data.nr) {
            None => self.unassigned,
            Some(call) => self.rule(call).map_or(Verdict::Allow, |rule| rule.node.decide(data)),
        }
    }

    /// Turns the rules into a filter for one architecture.
    pub fn assemble(&self, arch: Arch) -> Result<Program, AssembleError> {
        assemble::assemble(self, arch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_read_as_it_is_written() {
        for profile in Profile::ALL {
            assert_eq!(profile.to_string().parse(), Ok(profile));
        }
    }

    #[test]
    fn an_unknown_profile_is_refused() {
        for text in ["", "Strict", "strict ", "none"] {
            let error = text.parse::<Profile>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("`{text}` is not a profile; the profiles are `strict` and `nested`")
            );
        }
    }

    #[test]
    fn defaults_are_the_strictest() {
        assert_eq!(Profile::default(), Profile::Strict);
        assert_eq!(Debugging::default(), Debugging::Forbidden);
    }
}
