//! Which sets there are, and which of them count.

use super::Journal;
use super::tree::kind;
use crate::frames::{Brief, Frame, Tag};
use crate::record::{At, Entry, Record, Saved};
use crate::undo::describe;
use cowork_api::Text;
use cowork_api::files::{FileKind, Mutation, Place, SetInfo, SetKind, Sets};
use std::collections::{BTreeMap, BTreeSet};

/// What the first argument of an undo's set is when it was asked for some names only, which follow.
pub(crate) const SOME: &[u8] = b"paths";

/// A set, and how it relates to others.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    info: Option<SetInfo>,
    complete: bool,
    extent: Extent,
    folders: BTreeSet<u32>,
}

/// How much of the sets an undo took back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Extent {
    #[default]
    All,
    SomeNames,
}

/// Which sets an undo is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// Those whose changes are taken back, with undos of them that were not finished.
    pub(crate) taken: BTreeSet<u32>,
    /// Those that have no effect, since one undid the other.
    pub(crate) void: BTreeSet<u32>,
    /// By which of them each was undone that is not an undo in force.
    pub(crate) undone: BTreeMap<u32, u32>,
    /// Those that are taken back, with all undos and redos of them.
    pub(crate) chain: BTreeSet<u32>,
}

impl Journal {
    /// All sets, the oldest first.
    pub fn sets(&self) -> Vec<SetInfo> {
        self.about().values().filter_map(|about| about.info.clone()).collect()
    }

    /// The numbers of the sets that a selection means: those that were not undone.
    pub fn selected(&self, sets: &Sets) -> Vec<u32> {
        let about = self.about();
        let alive = about
            .values()
            .filter_map(|about| about.info.as_ref())
            .filter(|info| info.undone_by.is_none() && !matches!(info.kind, SetKind::Undo(_)));
        match sets {
            Sets::All => {
                let again = about
                    .values()
                    .filter(|about| about.complete && about.extent == Extent::SomeNames)
                    .filter_map(|about| about.info.as_ref())
                    .filter(|info| info.undone_by.is_none() && is_redo(info.set, about));
                alive
                    .chain(again)
                    .map(|info| info.set)
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect()
            }
            Sets::Last => alive.map(|info| info.set).next_back().into_iter().collect(),
            Sets::Numbers(numbers) => self
                .sets()
                .iter()
                .filter(|info| numbers.contains(&info.set) && info.undone_by.is_none())
                .map(|info| info.set)
                .collect(),
        }
    }

    /// The last undo that is complete and was not undone itself: what a redo takes back.
    pub fn last_undo(&self) -> Option<u32> {
        self.about()
            .values()
            .filter(|about| about.complete)
            .filter_map(|about| about.info.as_ref())
            .filter(|info| info.undone_by.is_none() && is_undo_of_command(info, self))
            .map(|info| info.set)
            .next_back()
    }

    /// What is taken back with these sets, and what is left out.
    pub(crate) fn scope(&self, sets: &[u32]) -> Scope {
        let about = self.about();
        let mut taken: BTreeSet<u32> = sets.iter().copied().collect();
        let undos = |of: &About| match of.info.as_ref().map(|info| &info.kind) {
            Some(SetKind::Undo(of)) => of.clone(),
            _ => Vec::new(),
        };
        // An undo that goes on with an interrupted one begins where that one began.
        for set in sets {
            for earlier in about.get(set).map(undos).unwrap_or_default() {
                if about
                    .get(&earlier)
                    .is_some_and(|about| !about.complete && !undos(about).is_empty())
                {
                    taken.insert(earlier);
                }
            }
        }
        // An undo of a redo of such a set is one of the set.
        let mut covered = taken.clone();
        let mut undone_undos = BTreeSet::new();
        for (set, about) in about {
            let of = undos(about);
            let counts = about.info.as_ref().is_some_and(|info| info.undone_by.is_none());
            let all_of = |sets: &BTreeSet<u32>| of.iter().all(|set| sets.contains(set));
            if of.is_empty() {
                continue;
            }
            if !counts && of.iter().all(|of| covered.contains(of) || undone_undos.contains(of)) {
                undone_undos.insert(*set);
            } else if counts && all_of(&covered) {
                taken.insert(*set);
                covered.insert(*set);
            } else if counts && about.complete && all_of(&undone_undos) {
                covered.insert(*set);
            }
        }
        let mut void = BTreeSet::new();
        let mut undone = BTreeMap::new();
        for (set, about) in about {
            if let Some(by) = about.info.as_ref().and_then(|info| info.undone_by)
                && !taken.contains(set)
                && !taken.contains(&by)
            {
                void.extend([*set, by]);
                undone.insert(*set, by);
            }
        }
        let chain = covered.into_iter().chain(undone_undos).collect();
        Scope { taken, void, undone, chain }
    }

    /// What was done after a record, in order, and how much more there is.
    pub fn mutations(&self, after: u64, most: u32) -> (Vec<Mutation>, u64) {
        let names: BTreeMap<u32, String> =
            self.folders().into_iter().map(|folder| (folder.number, folder.name)).collect();
        let mut mutations = Vec::new();
        let mut left = 0;
        for frame in self.frames.since(after.saturating_add(1)) {
            if mutations.len() >= usize::try_from(most).unwrap_or(usize::MAX) {
                left += u64::from(frame.brief.tag.is_change());
                continue;
            }
            let Some(entry) = self.frames.entry(frame) else { continue };
            let Some((operation, at, to)) = operation(&entry.record) else { continue };
            mutations.push(Mutation {
                seq: entry.seq,
                time: entry.time,
                set: entry.set,
                process: entry.process,
                operation: operation.to_owned(),
                at: Place {
                    grant: names.get(&at.folder).cloned().unwrap_or_default(),
                    path: at.path.clone(),
                },
                to: to.cloned(),
                lost: lost(&entry.record).map(str::to_owned),
            });
        }
        (mutations, left)
    }

    /// What sets left that were closed after a record: each set, the folder's number, and the path of
    /// a file that has contents. And the last record that closed one; 0 if none did.
    pub fn left_since(&self, after: u64) -> (Vec<(u32, u32, Text)>, u64) {
        let since = self.frames.since(after.saturating_add(1)).iter().map(|frame| frame.brief);
        let closed: BTreeMap<u32, u64> = since
            .filter(|brief| brief.tag == Tag::Closed)
            .map(|brief| (brief.set, brief.seq))
            .collect();
        let last = closed.values().copied().max().unwrap_or_default();
        let mut left = BTreeMap::new();
        let told =
            |frame: &&Frame| frame.brief.tag == Tag::After && closed.contains_key(&frame.brief.set);
        for frame in self.frames.all().iter().filter(told) {
            if let Some(Entry { set, record, .. }) = self.frames.entry(frame)
                && let Record::After { at, state: Some(state) } = record
                && state.size > 0
                && kind(state.mode) == FileKind::File
            {
                left.insert((at.folder, at.path), set);
            }
        }
        let left = left.into_iter().map(|((folder, path), set)| (set, folder, path));
        (left.collect(), last)
    }

    fn about(&self) -> &BTreeMap<u32, About> {
        self.sets.get_or_init(|| self.read_sets())
    }

    fn read_sets(&self) -> BTreeMap<u32, About> {
        let mut all: BTreeMap<u32, About> = BTreeMap::new();
        for frame in self.frames.all().iter().filter(|frame| frame.brief.set != 0) {
            let Brief { set, process, time, tag, .. } = frame.brief;
            let about = all.entry(set).or_default();
            let info = about.info.get_or_insert_with(|| SetInfo {
                set,
                kind: SetKind::Command,
                root: process,
                argv: Vec::new(),
                began: time,
                last: time,
                records: 0,
                undone_by: None,
                folders: Vec::new(),
            });
            match tag {
                Tag::Set => {
                    let record = self.frames.entry(frame).map(|entry| entry.record);
                    let Some(Record::Set { kind, root, argv }) = record else { continue };
                    if matches!(kind, SetKind::Undo(_))
                        && argv.first().is_some_and(|first| first == SOME)
                    {
                        about.extent = Extent::SomeNames;
                    }
                    (info.kind, info.root, info.argv) = (kind, root, argv);
                }
                Tag::Complete => about.complete = true,
                _ => {
                    if let Some(folder) = self.frames.folder(frame) {
                        about.folders.insert(folder);
                        info.records += 1;
                        info.last = time;
                    }
                }
            }
        }
        let granted = self.folders();
        for about in all.values_mut() {
            let folders = granted
                .iter()
                .filter(|folder| about.folders.contains(&folder.number))
                .map(|folder| (folder.name.clone(), folder.path.clone()))
                .collect();
            if let Some(info) = &mut about.info {
                info.folders = folders;
            }
        }
        mark_undone(&mut all);
        all
    }
}

/// Goes from the newest undo to the oldest, so that it is known of each whether it still counts.
fn mark_undone(all: &mut BTreeMap<u32, About>) {
    let numbers: Vec<u32> = all.keys().rev().copied().collect();
    for number in numbers {
        let Some(about) = all.get(&number) else { continue };
        let Some(info) = &about.info else { continue };
        let SetKind::Undo(of) = &info.kind else { continue };
        if !about.complete || about.extent == Extent::SomeNames || info.undone_by.is_some() {
            continue;
        }
        for undone in of.clone() {
            if let Some(info) = all.get_mut(&undone).and_then(|about| about.info.as_mut())
                && info.undone_by.is_none()
            {
                info.undone_by = Some(number);
            }
        }
    }
}

/// Whether a set did again what sets had done that are undone: it took back undos of them.
fn is_redo(set: u32, all: &BTreeMap<u32, About>) -> bool {
    let mut depth = 0_u32;
    let mut set = set;
    while let Some(SetKind::Undo(of)) =
        all.get(&set).and_then(|about| about.info.as_ref()).map(|info| &info.kind)
    {
        depth += 1;
        // Each is an undo of earlier ones.
        match of.iter().copied().filter(|of| *of < set).min() {
            Some(of) => set = of,
            None => break,
        }
    }
    depth > 0 && depth.is_multiple_of(2)
}

/// Whether an undo took back a command, and not an undo.
fn is_undo_of_command(info: &SetInfo, journal: &Journal) -> bool {
    let SetKind::Undo(of) = &info.kind else { return false };
    let sets = journal.sets();
    of.iter().any(|number| {
        sets.iter().any(|set| set.set == *number && !matches!(set.kind, SetKind::Undo(_)))
    })
}

/// Why what a record says was lost cannot be brought back.
fn lost(record: &Record) -> Option<&'static str> {
    match record {
        Record::Write { saved: Saved::Lost(why), .. }
        | Record::Remove { saved: Saved::Lost(why), .. } => Some(describe::why(*why)),
        _ => None,
    }
}

/// What a record that is a change says: its name, to what, and the other name.
pub(crate) fn operation(record: &Record) -> Option<(&'static str, &At, Option<&Text>)> {
    match record {
        Record::Write { at, .. } => Some(("write", at, None)),
        Record::Remove { at, .. } => Some(("remove", at, None)),
        Record::RemoveFolder { at, .. } => Some(("remove folder", at, None)),
        Record::Create { at, link_of: None, .. } => Some(("create", at, None)),
        Record::Create { at, link_of: Some(of), .. } => Some(("link", at, Some(&of.path))),
        Record::Rename { from, to, .. } => Some(("rename", from, Some(&to.path))),
        Record::Exchange { one, other, .. } => Some(("exchange", one, Some(&other.path))),
        Record::Attributes { at, .. } => Some(("attributes", at, None)),
        Record::Folder { .. }
        | Record::Set { .. }
        | Record::Process { .. }
        | Record::Inside { .. }
        | Record::Failed { .. }
        | Record::After { .. }
        | Record::Closed
        | Record::Complete => None,
    }
}
