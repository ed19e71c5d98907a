//! First processes that wait to be told which session they are.
//!
//! Nothing that makes one depends on the session: its namespaces, its user id, its cgroups. So the
//! keeper has one made while nobody waits, and the next session that fits finds it there. It knows
//! nothing, holds nothing but its ends of two sockets, and ends with the keeper like any other.

use crate::keeper::cgroup::Group;
use crate::keeper::ids::{Maps, PoolId};
use crate::keeper::nursery::{Born, Lines};
use cowork_api::plan::Limits;
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
    /// Sets other limits on its groups, if they are others.
    pub(crate) fn limit(&mut self, limits: &Limits) -> Result<(), Errno> {
        if self.limits != *limits {
            self.group.set_limits(limits).map_err(|(_, errno)| errno)?;
            self.limits = *limits;
        }
        Ok(())
    }
}
