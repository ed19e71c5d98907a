//! What a session uses, read from outside: from its cgroups where they count it, else from what the
//! kernel tells of each of its processes.
//!
//! What a process that has ended used is counted by whoever waited for it, and in the end by PID 1,
//! so that nothing is missing from the sum. Only memory is what it is at this moment.

use crate::keeper::{Session, tree};
use crate::kernel::{read_all, told_of};
use cowork_api::keeper::{MAX_LISTED, Measured, Process};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::BTreeSet;

/// Looks at a session, and remembers the most memory that was seen.
pub(crate) fn measure(session: &mut Session) -> Measured {
    let init = session.init_pid();
    let mut pids = tree::descendants(init);
    let processes = u32::try_from(pids.len()).unwrap_or(u32::MAX);
    pids.sort_unstable();
    let listed = pids.iter().take(MAX_LISTED).filter_map(|pid| process(*pid)).collect();
    pids.push(init);
    let group = session.group.usage();
    let mut sum = Sum::default();
    for pid in pids {
        if group.cpu_us.is_none() {
            sum.cpu_ticks += ticks(pid).unwrap_or(0);
        }
        if group.memory.is_none() {
            sum.pages += pages(pid).unwrap_or(0);
        }
        let held = session.storage.as_ref().filter(|_| pid == init);
        let io = held.map_or_else(|| told_of(pid, "io"), |file| read_all(file.as_fd()).ok());
        let (read, written) = io.and_then(|io| storage(&io)).unwrap_or((0, 0));
        sum.read += read;
        sum.written += written;
    }
    let memory = group.memory.unwrap_or_else(|| sum.pages.saturating_mul(page_size()));
    session.peak = session.peak.max(memory);
    Measured {
        cpu_us: group.cpu_us.unwrap_or_else(|| sum.cpu_ticks.saturating_mul(tick_us())),
        memory,
        memory_peak: group.memory_peak.unwrap_or(session.peak).max(memory),
        read: sum.read,
        written: sum.written,
        scratch: session.scratch.as_ref().and_then(scratch_used).unwrap_or(0),
        processes,
        listed,
    }
}

/// Looks at the processes of a command: its first one, what descends from it, and what it left
/// behind in its session of processes. What those used that have ended is counted where somebody in
/// the command waited for them.
pub(crate) fn measure_command(session: &Session, pid: i32) -> Measured {
    let all = tree::descendants(session.init_pid());
    let first = all.iter().copied().find(|known| process(*known).is_some_and(|p| p.inside == pid));
    let Some(first) = first else { return Measured::default() };
    let mut pids: BTreeSet<i32> = tree::descendants(first).into_iter().collect();
    pids.insert(first);
    pids.extend(all.into_iter().filter(|known| leader(*known) == Some(first)));
    let mut sum = Sum::default();
    let mut peak = 0;
    for pid in &pids {
        sum.cpu_ticks += ticks(*pid).unwrap_or(0);
        sum.pages += pages(*pid).unwrap_or(0);
        peak = peak.max(most_memory(*pid).unwrap_or(0));
        let (read, written) = told_of(*pid, "io").and_then(|io| storage(&io)).unwrap_or((0, 0));
        sum.read += read;
        sum.written += written;
    }
    Measured {
        cpu_us: sum.cpu_ticks.saturating_mul(tick_us()),
        memory: sum.pages.saturating_mul(page_size()),
        memory_peak: peak,
        read: sum.read,
        written: sum.written,
        scratch: 0,
        processes: u32::try_from(pids.len()).unwrap_or(u32::MAX),
        listed: pids.into_iter().take(MAX_LISTED).filter_map(process).collect(),
    }
}

/// Processes of a session with this name and this id, in the session or on the host; its PID 1 is
/// none of them. The kernel keeps only the start of a name.
pub(crate) fn find(session: &Session, name: Option<&str>, pid: Option<i32>) -> Vec<Process> {
    /// Longest name in bytes that the kernel keeps.
    const LONGEST: usize = 15;
    let name = name.map(|name| name.get(..name.floor_char_boundary(LONGEST)).unwrap_or(name));
    let mut pids = tree::descendants(session.init_pid());
    pids.sort_unstable();
    let all = pids.into_iter().filter_map(process);
    let meant = all.filter(|process| {
        name.is_none_or(|name| process.name == name)
            && pid.is_none_or(|pid| process.inside == pid || process.pid == pid)
    });
    meant.take(MAX_LISTED).collect()
}

/// The process of a session that has a socket open, by the kernel's number of the socket.
pub(crate) fn owner(session: &Session, socket: u64) -> Option<Process> {
    /// Most open files that are looked at: a session can have many.
    const MOST: usize = 2048;
    let wanted = format!("socket:[{socket}]");
    let mut looked = 0;
    for pid in tree::descendants(session.init_pid()) {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        for file in open.map(|entry| entry.path()) {
            looked += 1;
            if std::fs::read_link(file).is_ok_and(|to| to.as_os_str() == wanted.as_str()) {
                return process(pid);
            }
            if looked >= MOST {
                return None;
            }
        }
    }
    None
}

#[derive(Default)]
struct Sum {
    cpu_ticks: u64,
    pages: u64,
    read: u64,
    written: u64,
}

/// How many bytes of a file system in memory are taken.
pub(crate) fn scratch_used(scratch: &OwnedFd) -> Option<u64> {
    let stat = rustix::fs::fstatvfs(scratch).ok()?;
    Some(stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize))
}

fn process(pid: i32) -> Option<Process> {
    let status = told_of(pid, "status")?;
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    // The ids in each namespace, from this one inward; the second is the session's own.
    let inside = field("NSpid").and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok());
    let name = tree::plain(field("Name").unwrap_or_default());
    Some(Process { pid, inside: inside.unwrap_or(0), name })
}

/// CPU time of a process and of the children that it waited for, in ticks of the kernel's clock.
fn ticks(pid: i32) -> Option<u64> {
    let stat = told_of(pid, "stat")?;
    // The name is in parentheses and may contain anything; the fields after it are numbers.
    let fields = stat.rsplit_once(") ")?.1.split(' ').skip(11).take(4);
    Some(fields.filter_map(|field| field.parse::<u64>().ok()).sum())
}

/// The process that began the session of processes in which another one is.
fn leader(pid: i32) -> Option<i32> {
    told_of(pid, "stat")?.rsplit_once(") ")?.1.split(' ').nth(3)?.parse().ok()
}

/// Most bytes of memory that a process has had.
fn most_memory(pid: i32) -> Option<u64> {
    let status = told_of(pid, "status")?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    most.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Pages of a process that are in memory.
fn pages(pid: i32) -> Option<u64> {
    told_of(pid, "statm")?.split(' ').nth(1)?.parse().ok()
}

/// Bytes that a process and the children that it waited for read from storage and wrote to it.
fn storage(io: &str) -> Option<(u64, u64)> {
    let field = |name: &str| {
        io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok())
    };
    Some((field("read_bytes")?, field("write_bytes")?))
}

fn page_size() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}

/// Microseconds of one tick.
fn tick_us() -> u64 {
    1_000_000 / rustix::param::clock_ticks_per_second().max(1)
}
