//! What the way costs: processor time and memory of processes.

use crate::memory::fields_of;

/// Processor time of this process so far, in ticks.
pub(super) fn own_ticks() -> u64 {
    ticks("/proc/self/stat").unwrap_or(0)
}

/// Processor time of processes and of their children that have ended, in ticks.
pub(super) fn ticks_of(processes: &[u32]) -> Option<u64> {
    processes.iter().map(|pid| ticks(&format!("/proc/{pid}/stat"))).sum()
}

/// In seconds.
pub(super) fn seconds(ticks: u64) -> f64 {
    let hertz = rustix::param::clock_ticks_per_second();
    crate::memory::to_f64(ticks) / crate::memory::to_f64(hertz)
}

fn ticks(path: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    // The name in parentheses may contain anything.
    let (_, fields) = text.rsplit_once(')')?;
    let numbers = fields.split_whitespace().skip(11).take(4);
    numbers.map(|number| number.parse::<u64>().ok()).sum()
}

/// Memory of a process in bytes, and what of it is counted: its share of what it shares with others
/// where the kernel shows that, else everything.
pub(crate) fn memory_of(pid: u32) -> Result<(u64, &'static str), String> {
    match fields_of(pid, "smaps_rollup", &["Pss:"]) {
        Ok(bytes) if bytes > 0 => Ok((bytes, "PSS")),
        Ok(_) | Err(_) => match fields_of(pid, "status", &["VmRSS:"]) {
            Ok(0) => Err(format!("process {pid} shows no memory")),
            other => other.map(|bytes| (bytes, "RSS")),
        },
    }
}
