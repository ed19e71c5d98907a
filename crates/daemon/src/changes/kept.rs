//! What is kept about changes: beside the session while it is there, and by itself afterwards.

use cowork_client::types::{ChangedFolder, NamePolicy, Raw};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The changes of a session, as they are kept with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeptChanges {
    /// The name of its store, if it has one.
    pub(crate) store: Option<String>,
    /// Rules about names that the user made.
    pub(crate) rules: Vec<KeptRule>,
    /// Questions of its broker that wait for the user, and the requests that stand for them.
    pub(crate) asks: BTreeMap<u64, u64>,
    /// How far the audit has come.
    pub(crate) audited: Audited,
}

/// A rule about names that the user made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptRule {
    pub(crate) pattern: String,
    pub(crate) policy: NamePolicy,
    pub(crate) reason: String,
    /// The grant it is about; all if there is none.
    pub(crate) grant: Option<String>,
}

/// A rule about names that stands for a folder of the host, in every session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StandingRule {
    /// The granted folder.
    pub(crate) folder: Raw,
    pub(crate) pattern: String,
    pub(crate) policy: NamePolicy,
    pub(crate) reason: String,
}

/// How far the audit of a session's changes has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Audited {
    /// The last record that was looked at.
    pub(crate) seq: u64,
    /// How long the log was then.
    pub(crate) length: u64,
    /// How many changes may still be spelled out.
    pub(crate) budget: Budget,
    /// Those beyond, by set and operation, that no record tells of yet.
    pub(crate) beyond: BTreeMap<u32, BTreeMap<String, u64>>,
    /// The last record that closed a set whose files were looked at.
    pub(crate) looked: u64,
}

/// How many changes were spelled out: of each of the last sets, and in this hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Budget {
    sets: BTreeMap<u32, u64>,
    hour: u64,
    in_hour: u64,
}

impl Budget {
    /// Most changes of one set.
    const OF_SET: u64 = 10_000;
    /// Most changes of a session in an hour.
    const IN_HOUR: u64 = 50_000;
    /// So many sets are remembered, the newest.
    const SETS: usize = 64;

    /// Takes one for a change of a set, if there is one left in this hour since 1970.
    pub(crate) fn take(&mut self, set: u32, hour: u64) -> bool {
        if hour != self.hour {
            (self.hour, self.in_hour) = (hour, 0);
        }
        if !self.sets.contains_key(&set) && self.sets.len() >= Self::SETS {
            self.sets.pop_first();
        }
        let of_set = self.sets.entry(set).or_default();
        if *of_set >= Self::OF_SET || self.in_hour >= Self::IN_HOUR {
            return false;
        }
        *of_set += 1;
        self.in_hour += 1;
        true
    }
}

/// A store, as the catalogue knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Entry {
    pub(crate) session: String,
    /// When the session was made: another one of the same id is another one.
    pub(crate) created: String,
    /// Which folder it is.
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// Every folder of the host that may have been changed.
    pub(crate) grants: Vec<ChangedFolder>,
    /// Whether changes of one of them were ever kept beside it.
    pub(crate) staged: bool,
    /// When the session was removed.
    pub(crate) ended: Option<String>,
    /// Whether it is being removed: whoever finds it goes on with that.
    #[serde(default)]
    pub(crate) removing: bool,
    /// Which command each set is of; filled in at the end.
    pub(crate) commands: BTreeMap<u32, u32>,
    /// Which task of an agent; filled in at the end.
    #[serde(default)]
    pub(crate) tasks: BTreeMap<u32, u32>,
}

#[cfg(test)]
mod tests {
    use super::Budget;

    #[test]
    fn every_set_has_a_budget_of_its_own_and_every_hour() {
        let mut budget = Budget::default();
        let taken = |budget: &mut Budget, set, hour, tries: u64| {
            (0..tries).filter(|_| budget.take(set, hour)).count()
        };
        assert_eq!(taken(&mut budget, 1, 7, 12_000), 10_000);
        assert_eq!(taken(&mut budget, 2, 7, 12_000), 10_000);
        assert_eq!(taken(&mut budget, 1, 8, 5), 0, "an hour gives a set nothing new");
        for set in 3..6 {
            taken(&mut budget, set, 8, 12_000);
        }
        assert_eq!(taken(&mut budget, 6, 8, 20_000), 10_000);
        assert_eq!(taken(&mut budget, 7, 8, 20_000), 10_000);
        assert_eq!(taken(&mut budget, 8, 8, 5), 0, "the hour has no more");
        assert_eq!(taken(&mut budget, 8, 9, 5), 5);
        // Many sets are no reason to forget what this one had.
        for set in 10..200 {
            assert!(budget.take(set, 10));
        }
        assert!(budget.sets.len() <= Budget::SETS);
    }
}
