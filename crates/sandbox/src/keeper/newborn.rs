//! First processes that wait to be told which session they are.
//!
//! Nothing that makes one depends on the session: its namespaces, its user id, its cgroups. So the
//! keeper has one made while nobody waits, and the next session that fits finds it there. It has
//! carried out what that session has in common with the last one: the first steps of the part of the
//! file system that is its own, and rules of Landlock that hold nobody yet. It knows nothing of any
//! session, and ends with the keeper like any other.
//!
//! Invariant: nothing that was done in advance is taken for done. What is in force is observed in the
//! session, when it is finished.

use crate::keeper::cgroup::Group;
use crate::keeper::ids::{Maps, PoolId};
use crate::keeper::nursery::{Born, Lines};
use cowork_api::Text;
use cowork_api::plan::{Limits, OwnStep, SessionPlan, Wall};
use cowork_api::seed::{Groundwork, Outlook};
use cowork_sys::Errno;

/// One of them, and what it was given.
#[derive(Debug)]
pub(crate) struct Newborn {
    /// Nothing as long as it is not there yet. The rest drops after it.
    pub(crate) born: Option<Born>,
    pub(crate) lines: Lines,
    pub(crate) kind: Kind,
    /// Its id of the pool, in root mode.
    pub(crate) pool: Option<PoolId>,
    pub(crate) maps: Maps,
    pub(crate) group: Group,
    /// What is set on its groups.
    pub(crate) limits: Limits,
    /// What it has carried out.
    pub(crate) groundwork: Groundwork,
}

/// A session as far as another one can be like it.
#[derive(Clone, Debug)]
pub(crate) struct Usual {
    pub(crate) kind: Kind,
    pub(crate) limits: Limits,
    pub(crate) groundwork: Groundwork,
}

/// What can be carried out for a session before it is known.
pub(crate) fn groundwork(plan: &SessionPlan, outlook: Option<&Outlook>) -> Groundwork {
    let names = |step: &OwnStep| {
        matches!(
            step,
            OwnStep::Processes { .. } | OwnStep::Terminals { .. } | OwnStep::Blank { .. }
        ) || matches!(step, OwnStep::Scratch { .. })
    };
    let common = plan.own.iter().take_while(|step| names(step)).count();
    let (common, rest) = plan.own.split_at(common);
    // A rule is about what lies at its path now.
    let stays = |wall: &Wall| !rest.iter().any(|step| place_of(step) == Some(&wall.beneath));
    let walls = if outlook.is_none() && plan.walls.iter().all(stays) {
        plan.walls.clone()
    } else {
        Vec::new()
    };
    Groundwork { own: common.to_vec(), scratch: plan.limits.scratch.value, walls }
}

/// Where a step puts a mount.
fn place_of(step: &OwnStep) -> Option<&Text> {
    match step {
        OwnStep::Processes { at }
        | OwnStep::Terminals { at }
        | OwnStep::Scratch { at, .. }
        | OwnStep::Notes { at, .. }
        | OwnStep::Home { at, .. }
        | OwnStep::Grants { at, .. }
        | OwnStep::Blank { at } => Some(at),
        OwnStep::Link { .. } => None,
    }
}

/// What sessions must have in common for one of them to take what was made for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The number of the template whose cradle it is born in.
    pub(crate) template: usize,
    /// The user and the group that it sees itself as.
    pub(crate) inside: (u32, u32),
}

impl Newborn {
    /// Whether it can become a session like this.
    pub(crate) fn fits(&self, usual: &Usual) -> bool {
        self.kind == usual.kind && self.groundwork == usual.groundwork
    }

    /// Sets other limits on its groups, if they are others.
    pub(crate) fn limit(&mut self, limits: &Limits) -> Result<(), Errno> {
        if self.limits != *limits {
            self.group.set_limits(limits).map_err(|(_, errno)| errno)?;
            self.limits = *limits;
        }
        Ok(())
    }
}
