//! Which programs made the changes: the processes of a set, and the words of each.
//!
//! A process is a program from the record that says so until the next one that does: it may execute
//! another. What an undo or an apply did is no program's.

use super::Journal;
use super::changes::is_below;
use super::names::{Names, ThingId};
use crate::frames::{Brief, Frame, Tag};
use crate::record::{Entry, Record};
use cowork_api::Text;
use cowork_api::files::{Place, Program, Selection};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Longest words of all programs together, in bytes; of those that were seen before, only the processes
/// are told.
const MAX_WORDS: usize = 16 << 20;

impl Journal {
    /// The programs that made changes after a record, in the order in which they were seen.
    pub fn programs(&self, after: u64) -> Vec<Program> {
        let mut now: HashMap<(u32, u32), &Frame> = HashMap::new();
        let mut made: BTreeMap<u64, &Frame> = BTreeMap::new();
        for frame in self.frames.all() {
            let Brief { set, process, seq, tag, .. } = frame.brief;
            if tag == Tag::Process {
                now.insert((set, process), frame);
            } else if seq > after
                && tag.is_change()
                && let Some(program) = now.get(&(set, process))
            {
                made.insert(program.brief.seq, program);
            }
        }
        let mut length = 0;
        let mut programs: Vec<Program> = made
            .into_values()
            .rev()
            .filter_map(|frame| {
                let Entry { set, process, seq, record, .. } = self.frames.entry(frame)?;
                let Record::Process { argv } = record else { return None };
                length += argv.iter().map(Vec::len).sum::<usize>();
                let argv = if length <= MAX_WORDS { argv } else { Vec::new() };
                Some(Program { set, process, since: seq, argv })
            })
            .collect();
        programs.reverse();
        programs
    }

    /// Names that the selected sets changed, and by which of these programs, in the order in which they
    /// did. A name counts as it is now, or as it was last.
    pub fn changed_by(
        &self,
        programs: &[Program],
        selection: &Selection,
    ) -> Vec<(Place, Vec<u32>)> {
        let authors = self.authors(programs);
        let names = Names::replay(self, &self.scope(&self.selected(&selection.sets)));
        let grants: HashMap<u32, String> =
            self.folders().into_iter().map(|folder| (folder.number, folder.name)).collect();
        let mut changed: BTreeMap<Place, BTreeSet<u64>> = BTreeMap::new();
        for id in 0..names.things.len() {
            let Some((folder, path, records)) = names.records(id) else { continue };
            let Some(grant) = grants.get(&folder) else { continue };
            let is_meant = |place: &Place| place.grant == *grant && is_below(&path, &place.path);
            if selection.paths.is_empty() || selection.paths.iter().any(is_meant) {
                let place = Place { grant: grant.clone(), path };
                changed.entry(place).or_default().extend(records);
            }
        }
        let named = |(place, records): (Place, BTreeSet<u64>)| {
            let mut by: Vec<u32> = Vec::new();
            for author in records.iter().filter_map(|record| authors.get(record)) {
                if !by.contains(author) {
                    by.push(*author);
                }
            }
            (!by.is_empty()).then_some((place, by))
        };
        changed.into_iter().filter_map(named).collect()
    }

    /// The program of every record, by its place among these.
    fn authors(&self, programs: &[Program]) -> HashMap<u64, u32> {
        let mut now: HashMap<(u32, u32), u32> = HashMap::new();
        let mut next = (0_u32..).zip(programs).peekable();
        let mut authors = HashMap::new();
        for brief in self.frames.all().iter().map(|frame| frame.brief) {
            let is_due = |(_, program): &(u32, &Program)| program.since <= brief.seq;
            while let Some((place, program)) = next.next_if(is_due) {
                now.insert((program.set, program.process), place);
            }
            if let Some(author) = now.get(&(brief.set, brief.process)) {
                authors.insert(brief.seq, *author);
            }
        }
        authors
    }
}

impl Names {
    /// The granted folder of a thing, where it is or was last, and the records that changed it; nothing
    /// if none of a set that is taken back did.
    fn records(&self, id: ThingId) -> Option<(u32, Text, Vec<u64>)> {
        let (thing, body) = self.thing(id).zip(self.body(id))?;
        let records: Vec<u64> = thing.records.iter().chain(&body.records).copied().collect();
        if records.is_empty() {
            return None;
        }
        let path = self.path(id).or_else(|| self.home_path(id))?;
        Some((thing.folder, path, records))
    }
}
