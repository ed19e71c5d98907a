//! What each name was like when the last set that touched it had done with it.
//!
//! Told from all records, also those of sets that are not taken back: it is what the user has found.

use crate::record::{At, Entry, Record, State};
use cowork_api::Text;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// The last that is known of names, and of files whatever their name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    names: BTreeMap<(u32, Text), End>,
    files: HashMap<(u32, u64), End>,
}

/// What was recorded last, and when. Nothing while a set that touched it may not have done with it.
type End = (u64, Option<State>);

impl Ends {
    /// What is expected under a name; nothing if that cannot be known.
    pub(crate) fn of(&self, folder: u32, path: &[u8]) -> Option<State> {
        let (seq, state) = self.names.get(&(folder, path.to_vec()))?;
        let state = (*state)?;
        match self.files.get(&(folder, state.inode)) {
            // It was changed by another of its names since.
            Some((later, other)) if later > seq => *other,
            _ => Some(state),
        }
    }

    /// Takes the next record.
    pub(crate) fn apply(&mut self, entry: &Entry) {
        let seq = entry.seq;
        match &entry.record {
            Record::Write { at, before, .. } | Record::Attributes { at, before } => {
                self.names.insert(key(at), (seq, None));
                self.files.insert((at.folder, before.inode), (seq, None));
            }
            Record::Inside { at, .. } | Record::Create { at, .. } => {
                self.names.insert(key(at), (seq, None));
            }
            Record::Remove { at, .. } | Record::RemoveFolder { at, .. } => {
                self.take(at);
            }
            Record::Rename { from, to, .. } => {
                let moved = self.take(from);
                self.take(to);
                self.put(to, moved);
            }
            Record::Exchange { one, other, .. } => {
                let first = self.take(one);
                let second = self.take(other);
                self.put(other, first);
                self.put(one, second);
            }
            Record::After { at, state: Some(state) } => {
                self.names.insert(key(at), (seq, Some(*state)));
                self.files.insert((at.folder, state.inode), (seq, Some(*state)));
            }
            Record::After { at, state: None } => {
                self.take(at);
            }
            Record::Folder { .. }
            | Record::Set { .. }
            | Record::Process { .. }
            | Record::Failed { .. }
            | Record::Closed
            | Record::Complete => {}
        }
    }

    /// Takes out a name and all below it; their ends, by what follows the name in their path.
    fn take(&mut self, at: &At) -> Vec<(Text, End)> {
        let mut taken = Vec::new();
        if let Some(end) = self.names.remove(&key(at)) {
            taken.push((Text::new(), end));
        }
        let below = [at.path.as_slice(), b"/"].concat();
        let from = Bound::Included((at.folder, below.clone()));
        let keys: Vec<(u32, Text)> = self
            .names
            .range((from, Bound::Unbounded))
            .take_while(|((folder, path), _)| *folder == at.folder && path.starts_with(&below))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            if let Some(end) = self.names.remove(&key) {
                taken.push((key.1.get(at.path.len()..).unwrap_or_default().to_vec(), end));
            }
        }
        taken
    }

    fn put(&mut self, at: &At, ends: Vec<(Text, End)>) {
        for (rest, end) in ends {
            self.names.insert((at.folder, [at.path.as_slice(), &rest].concat()), end);
        }
    }
}

fn key(at: &At) -> (u32, Text) {
    (at.folder, at.path.clone())
}
