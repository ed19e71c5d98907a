//! How each limit of a session is kept on this host.

use crate::keeper::cgroup::{Controller, Group};
use cowork_api::keeper::{Failure, FailureCode, LimitKind, LimitState, Strength};
use cowork_api::plan::{Demand, Limits, Profile};
use cowork_policy::{Bytes, Cpus, Span};

/// The state of every limit, given the groups that were made.
pub(crate) fn states(profile: Profile, limits: &Limits, group: &Group) -> Vec<LimitState> {
    let mut states = Vec::new();
    let mut note = |limit, value: String, strength, means: &str| {
        states.push(LimitState { limit, strength, value, means: means.to_owned() });
    };
    let processes = limits.processes.value.to_string();
    match group.limits(Controller::Pids) {
        Some(means) => note(LimitKind::Processes, processes, Strength::Enforced, means),
        // The kernel counts processes per user namespace from 5.14 on, and a session has its own.
        None => note(
            LimitKind::Processes,
            processes,
            Strength::Enforced,
            "RLIMIT_NPROC, counted in the session's user namespace",
        ),
    }
    let memory = format!("{:#}", Bytes::new(limits.memory.value));
    match group.limits(Controller::Memory) {
        Some(means) => note(LimitKind::Memory, memory, Strength::Enforced, means),
        None => {
            note(LimitKind::Memory, memory, Strength::BestEffort, "RLIMIT_DATA of each process");
        }
    }
    let cpus = Cpus::from_millis(limits.cpus.value).map_or("?".into(), |cpus| cpus.to_string());
    match group.limits(Controller::Cpu) {
        Some(means) => note(LimitKind::Cpus, cpus, Strength::Enforced, means),
        None => note(LimitKind::Cpus, cpus, Strength::None, "no cgroup controller for CPU"),
    }
    note(
        LimitKind::OpenFiles,
        limits.open_files.value.to_string(),
        Strength::Enforced,
        "RLIMIT_NOFILE of each process",
    );
    let scratch = format!("{:#}", Bytes::new(limits.scratch.value));
    // In `nested` a session can mount further file systems in memory; only a limit on memory
    // bounds those.
    if profile == Profile::Nested && group.limits(Controller::Memory).is_none() {
        let means = "size of the session's file system in memory, but it can mount others";
        note(LimitKind::Scratch, scratch, Strength::BestEffort, means);
    } else {
        let means = "size of the session's file system in memory";
        note(LimitKind::Scratch, scratch, Strength::Enforced, means);
    }
    if let Some(wall) = limits.wall {
        let wall = Span::from_millis(wall).to_string();
        note(LimitKind::Wall, wall, Strength::Enforced, "the keeper ends the session");
    }
    states
}

/// Refuses a limit that the user named and that this host cannot keep.
pub(crate) fn check(limits: &Limits, states: &[LimitState]) -> Result<(), Failure> {
    for state in states {
        let demand = match state.limit {
            LimitKind::Processes => limits.processes.demand,
            LimitKind::Memory => limits.memory.demand,
            LimitKind::Cpus => limits.cpus.demand,
            LimitKind::OpenFiles => limits.open_files.demand,
            LimitKind::Scratch => limits.scratch.demand,
            LimitKind::Wall => Demand::Enforced,
        };
        if demand == Demand::Enforced && state.strength != Strength::Enforced {
            return Err(Failure {
                code: FailureCode::LimitUnenforceable,
                sentence: format!(
                    "the limit on {} cannot be enforced here ({})",
                    name(state.limit),
                    state.means
                ),
                errno: 0,
                hint: "accept what the host can do with `--best-effort`, or run where cgroups are \
                       delegated (see `cowork doctor`)"
                    .into(),
            });
        }
    }
    Ok(())
}

/// A limit's name in a sentence.
pub(crate) fn name(limit: LimitKind) -> &'static str {
    match limit {
        LimitKind::Processes => "processes",
        LimitKind::Memory => "memory",
        LimitKind::Cpus => "CPU",
        LimitKind::OpenFiles => "open files",
        LimitKind::Scratch => "scratch space",
        LimitKind::Wall => "time",
    }
}
