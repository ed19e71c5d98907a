//! Which programs made changes, as clerks report them.

use super::clerk::Meanwhile;
use super::store::Store;
use crate::daemon::Daemon;
use cowork_api::files::{Mutation, Place, Program, Report, Selection, Work};
use cowork_client::types::{ChangedBy, Raw};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Most programs that are named of one change: the last ones.
const MAX_NAMED: usize = 16;
/// Longest words in one answer, in bytes; beyond, only the processes are named.
const MAX_WORDS: usize = 32 << 20;
/// Longest words of a program in a record, in bytes.
const MAX_RECORDED: usize = 512;

/// Which programs made the changes of a session.
#[derive(Default)]
pub(super) struct Authors {
    programs: Vec<Program>,
    changed: BTreeMap<Place, Vec<u32>>,
    /// Where each process of a set is among the programs, as it was one after the other.
    processes: HashMap<(u32, u32), Vec<usize>>,
    /// How long the words are that were told.
    told: usize,
}

impl Daemon {
    /// The programs that made changes after a record, and which of them made those of a selection. A
    /// keeper that does not know the question leaves it open.
    pub(super) async fn authors(
        self: &Arc<Self>,
        store: &Store,
        after: u64,
        selection: Option<Selection>,
    ) -> Authors {
        let work = Work::Programs { after, selection };
        match self.clerk(store, work, Meanwhile::GoesOn).await {
            Ok(Report::Programs { programs, changed }) => Authors::new(programs, changed),
            _ => Authors::default(),
        }
    }
}

impl Authors {
    fn new(programs: Vec<Program>, changed: Vec<(Place, Vec<u32>)>) -> Self {
        let mut processes: HashMap<(u32, u32), Vec<usize>> = HashMap::new();
        for (place, program) in programs.iter().enumerate() {
            processes.entry((program.set, program.process)).or_default().push(place);
        }
        Self { programs, changed: changed.into_iter().collect(), processes, told: 0 }
    }

    /// The programs that changed a name, in the order in which they did.
    pub(super) fn of_name(&mut self, at: &Place) -> Vec<ChangedBy> {
        let by = self.changed.get(at).map(Vec::as_slice).unwrap_or_default();
        let by = by.get(by.len().saturating_sub(MAX_NAMED)..).unwrap_or_default();
        let mut named = Vec::new();
        for place in by {
            let place = usize::try_from(*place).unwrap_or(usize::MAX);
            let Some(program) = self.programs.get(place) else { continue };
            self.told += program.argv.iter().map(Vec::len).sum::<usize>();
            let argv = program.argv.iter().filter(|_| self.told <= MAX_WORDS);
            named.push(ChangedBy {
                set: program.set,
                process: program.process,
                argv: argv.cloned().map(Raw::new).collect(),
            });
        }
        named
    }

    /// The words of the program that made a change, for the record.
    pub(super) fn of_mutation(&self, mutation: &Mutation) -> Option<Vec<Raw>> {
        let places = self.processes.get(&(mutation.set, mutation.process))?.iter();
        let mut programs = places.rev().filter_map(|place| self.programs.get(*place));
        let program = programs.find(|program| program.since <= mutation.seq)?;
        let mut length = 0;
        let fits = |word: &&Vec<u8>| {
            length += word.len();
            length <= MAX_RECORDED
        };
        Some(program.argv.iter().take_while(fits).cloned().map(Raw::new).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{Authors, MAX_NAMED, MAX_RECORDED, Mutation, Place, Program};

    fn program(process: u32, since: u64, words: &str) -> Program {
        let argv = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        Program { set: 1, process, since, argv }
    }

    fn place(path: &str) -> Place {
        Place { grant: "work".into(), path: path.into() }
    }

    fn mutation(process: u32, seq: u64) -> Mutation {
        Mutation {
            seq,
            time: 0,
            set: 1,
            process,
            operation: "remove".into(),
            at: place("other"),
            to: None,
            lost: None,
        }
    }

    fn words(authors: &Authors, process: u32, seq: u64) -> Option<String> {
        let words = authors.of_mutation(&mutation(process, seq))?;
        Some(words.iter().map(super::Raw::lossy).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn a_process_is_what_it_was_when_it_made_the_change() {
        let programs =
            vec![program(7, 2, "sh -c all"), program(8, 3, "sed"), program(7, 5, "rm x")];
        let authors = Authors::new(programs, Vec::new());
        assert_eq!(words(&authors, 7, 4).as_deref(), Some("sh -c all"));
        assert_eq!(words(&authors, 7, 6).as_deref(), Some("rm x"));
        assert_eq!(words(&authors, 8, 6).as_deref(), Some("sed"));
        assert_eq!((words(&authors, 8, 2), words(&authors, 9, 6)), (None, None));
    }

    #[test]
    fn what_is_told_is_bounded() {
        let long = format!("cc {}", "x".repeat(MAX_RECORDED));
        let programs: Vec<Program> = (0..40).map(|number| program(number, 1, &long)).collect();
        let mut authors = Authors::new(programs, vec![(place("a"), (0..40).collect())]);
        let by: Vec<u32> = authors.of_name(&place("a")).iter().map(|by| by.process).collect();
        assert_eq!((by.len(), by.first(), by.last()), (MAX_NAMED, Some(&24), Some(&39)));
        assert_eq!(words(&authors, 3, 1).as_deref(), Some("cc"));
        authors.told = super::MAX_WORDS;
        let by = authors.of_name(&place("a"));
        assert!(by.iter().all(|by| by.argv.is_empty()), "{by:?}");
        assert_eq!(authors.of_name(&place("b")), []);
    }
}
