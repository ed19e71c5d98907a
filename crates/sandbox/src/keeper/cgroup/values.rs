//! The files of a group: writing limits, reading what is used.

use super::Controller;
use crate::kernel::{read_at, write_at};
use cowork_api::keeper::Hits;
use cowork_api::plan::Limits;
use cowork_sys::Errno;
use rustix::fd::BorrowedFd;

/// Sets the limit of one controller in a v2 group.
pub(super) fn set_unified(
    group: BorrowedFd<'_>,
    controller: Controller,
    limits: &Limits,
) -> Result<(), Errno> {
    match controller {
        Controller::Memory => {
            write_at(group, "memory.max", &limits.memory.value.to_string())?;
            // Without this a session at its limit swaps the host to death instead.
            if_there(write_at(group, "memory.swap.max", "0"))
        }
        Controller::Pids => write_at(group, "pids.max", &limits.processes.value.to_string()),
        Controller::Cpu => {
            let (quota, period) = cpu_quota(limits);
            write_at(group, "cpu.max", &format!("{quota} {period}"))
        }
    }
}

/// Sets the limit of one controller in a v1 group.
pub(super) fn set_legacy(
    group: BorrowedFd<'_>,
    controller: Controller,
    limits: &Limits,
) -> Result<(), Errno> {
    match controller {
        Controller::Memory => {
            let bytes = limits.memory.value.to_string();
            // Memory and swap together, where the kernel accounts for swap. They may never be less
            // than memory alone: whichever of the two is in the way goes first.
            let both = || if_there(write_at(group, "memory.memsw.limit_in_bytes", &bytes));
            match write_at(group, "memory.limit_in_bytes", &bytes) {
                Ok(()) => both(),
                Err(Errno::INVAL) => {
                    both()?;
                    write_at(group, "memory.limit_in_bytes", &bytes)
                }
                Err(errno) => Err(errno),
            }
        }
        Controller::Pids => write_at(group, "pids.max", &limits.processes.value.to_string()),
        Controller::Cpu => {
            // The period is the kernel's own. Each write makes it look at every group of the host.
            write_at(group, "cpu.cfs_quota_us", &cpu_quota(limits).0.to_string())
        }
    }
}

/// A file that this kernel does not have needs not be written.
fn if_there(written: Result<(), Errno>) -> Result<(), Errno> {
    match written {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

/// Microseconds of CPU per period of 100 ms, which is what a new group has.
fn cpu_quota(limits: &Limits) -> (u64, u64) {
    const PERIOD: u64 = 100_000;
    (u64::from(limits.cpus.value).saturating_mul(PERIOD) / 1000, PERIOD)
}

/// What groups say is used; nothing where no group counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Microseconds of CPU since the group was made.
    pub(crate) cpu_us: Option<u64>,
    /// Bytes of memory now.
    pub(crate) memory: Option<u64>,
    /// Most bytes of memory at any moment.
    pub(crate) memory_peak: Option<u64>,
}

impl Usage {
    pub(super) fn add_unified(&mut self, group: BorrowedFd<'_>) {
        // The kernel counts this in every group, whatever controllers it has.
        let cpu = read_at(group, "cpu.stat").ok();
        let cpu = cpu.and_then(|text| {
            text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok())
        });
        self.cpu_us = cpu.or(self.cpu_us);
        self.memory = number(group, "memory.current").or(self.memory);
        self.memory_peak = number(group, "memory.peak").or(self.memory_peak);
    }

    pub(super) fn add_legacy(&mut self, group: BorrowedFd<'_>) {
        let cpu = || number(group, "cpuacct.usage").map(|nanoseconds| nanoseconds / 1000);
        self.cpu_us = self.cpu_us.or_else(cpu);
        self.memory = self.memory.or_else(|| number(group, "memory.usage_in_bytes"));
        let peak = || number(group, "memory.max_usage_in_bytes");
        self.memory_peak = self.memory_peak.or_else(peak);
    }
}

/// What a v2 group and the one inside it, with the processes, count. Memory is counted upwards; a
/// process that was not made is counted where it would have been, by kernels before 6.11, and where
/// the limit is, by later ones.
pub(super) fn add_unified_hits(
    hits: &mut Hits,
    outer: BorrowedFd<'_>,
    inner: Option<BorrowedFd<'_>>,
) {
    hits.memory += counted(outer, "memory.events", "oom_kill");
    let made = inner.map_or(0, |inner| counted(inner, "pids.events", "max"));
    hits.processes += counted(outer, "pids.events", "max").max(made);
}

/// What a v1 group counts.
pub(super) fn add_legacy_hits(hits: &mut Hits, controller: Controller, group: BorrowedFd<'_>) {
    match controller {
        Controller::Memory => hits.memory += counted(group, "memory.oom_control", "oom_kill"),
        Controller::Pids => hits.processes += counted(group, "pids.events", "max"),
        Controller::Cpu => {}
    }
}

/// A number beside its name, in a file with one of them on each line.
fn counted(group: BorrowedFd<'_>, file: &str, name: &str) -> u64 {
    let text = read_at(group, file).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let found = lines.find(|(known, _)| *known == name);
    found.and_then(|(_, number)| number.trim().parse().ok()).unwrap_or(0)
}

fn number(group: BorrowedFd<'_>, name: &str) -> Option<u64> {
    read_at(group, name).ok()?.trim().parse().ok()
}
