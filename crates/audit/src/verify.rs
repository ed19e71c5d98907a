//! Proves a record, or says everything that is wrong with it.
//!
//! Invariant: without a problem, every byte of every file is as it was written, from the first
//! record to the head. After a problem the rest is still checked: a record that fits behind any of
//! the last places where the chain was whole is taken to be in its place, so one act of tampering
//! is reported where it happened and not for every record behind it.
//!
//! Deliberately absent: repair. Nothing is written.

use crate::folder::{Ending, Folder, Lines, Piece, name};
use crate::line::{self, Front};
use crate::{GENESIS, Head, LedgerError};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// How many problems are listed; of the others only the number is said.
const MAX_PROBLEMS: usize = 10_000;

/// How many places are remembered at which the chain may go on.
const MAX_ENDS: usize = 4;

/// How often and how long a line is waited for that a living writer is about to finish.
const TRIES: u32 = 20;
const PATIENCE: Duration = Duration::from_millis(5);

/// What was found in a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// How many records there are.
    pub records: u64,
    /// How many files they are in.
    pub files: u64,
    /// Where the chain ends.
    pub head: Head,
    /// All that is wrong, in the order of the files.
    pub problems: Vec<Problem>,
}

/// Something that is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The name of the file in the folder.
    pub file: String,
    /// The line, from 1; what is missing is missing before it.
    pub line: u64,
    /// What is wrong with it.
    pub sentence: String,
    /// The number of the record that it is about: the one that stands there, or the one that should
    /// if what stands there does not say; none for what is wrong with the file as a whole.
    pub record: Option<u64>,
}

/// Checks every record in a folder against the chain, and against a head that is remembered
/// elsewhere. The error is for a folder that cannot be listed; everything else is a problem.
pub fn verify(folder: &Path, known: Option<&Head>) -> Result<Verification, LedgerError> {
    let known = known.filter(|known| known.seq > 0);
    let mut check = Check::new(known);
    let opened = Folder::open(folder)?;
    if let Some(folder) = &opened {
        let listing = folder.list()?;
        for (start, ending) in listing.files() {
            check.place = Place { start, line: 1 };
            if let Err(error) = check.file(folder, ending) {
                check.report(What::Unreadable(because(&error)));
            }
        }
        let strangers = listing.strangers.iter();
        check.strangers.extend(strangers.map(|name| name.to_string_lossy().into_owned()));
    }
    check.end();
    Ok(check.verdict())
}

fn because(error: &LedgerError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// Where something is.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: u64,
    line: u64,
}

/// What can be wrong with a line.
#[derive(Debug)]
enum What {
    /// The file cannot be read, or not further.
    Unreadable(String),
    /// A file without a line, before the last file.
    Empty,
    /// The name of the file says another first record.
    Misnamed { found: u64 },
    /// It has not the form of a record.
    NoRecord,
    /// It has no end.
    Unfinished,
    /// Its hash is not that of its content.
    Changed,
    /// Another number is expected here.
    Jump { expected: u64, found: u64 },
    /// The same number was there before.
    Again { found: u64 },
    /// The record before it is not the one that it was written after.
    Unlinked { found: u64 },
    /// It is not the record that is remembered.
    Replaced { found: u64 },
    /// The record ends too early.
    Cut { from: u64, to: u64 },
}

/// A place where the chain may go on.
#[derive(Debug)]
struct End {
    seq: u64,
    hash: Hash,
}

/// What the next record has to name as the one before it.
#[derive(Debug)]
enum Hash {
    Is(String),
    /// The record was changed: its hash, or the one of its content.
    Either(String, String),
    /// The record cannot be read.
    Unknown,
}

impl End {
    fn precedes(&self, front: &Front<'_>) -> bool {
        let linked = match &self.hash {
            Hash::Is(hash) => *hash == front.previous,
            Hash::Either(one, other) => *one == front.previous || *other == front.previous,
            Hash::Unknown => true,
        };
        linked && self.seq.checked_add(1) == Some(front.seq)
    }
}

struct Check<'k> {
    known: Option<&'k Head>,
    place: Place,
    records: u64,
    files: u64,
    head: Head,
    /// The likeliest first. Never empty.
    ends: VecDeque<End>,
    seen: Runs,
    problems: Vec<(Place, What, u64)>,
    unlisted: u64,
    strangers: Vec<String>,
}

impl<'k> Check<'k> {
    fn new(known: Option<&'k Head>) -> Self {
        let genesis = End { seq: 0, hash: Hash::Is(GENESIS.to_owned()) };
        Self {
            known,
            place: Place { start: 1, line: 1 },
            records: 0,
            files: 0,
            head: Head::default(),
            ends: VecDeque::from([genesis]),
            seen: Runs::default(),
            problems: Vec::new(),
            unlisted: 0,
            strangers: Vec::new(),
        }
    }

    fn report(&mut self, what: What) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push((self.place, what, self.expected()));
        } else {
            self.unlisted += 1;
        }
    }

    fn file(&mut self, folder: &Folder, ending: Ending) -> Result<(), LedgerError> {
        let start = self.place.start;
        self.files += 1;
        let mut lines = folder.read(start)?;
        let mut tries = 0;
        while let Some(piece) = lines.next()? {
            match piece {
                Piece::Unfinished(_) if ending == Ending::Growing && tries < TRIES => {
                    tries += 1;
                    wait_for_more(&mut lines)?;
                    continue;
                }
                Piece::Line(_) | Piece::TooLong | Piece::Unfinished(_) => {}
            }
            self.piece(&piece);
            tries = 0;
            self.place.line = lines.number() + 1;
        }
        // The writer makes a file before its first record, so the last one may have none.
        if lines.number() == 0 {
            let found = self.expected();
            match ending {
                Ending::Growing if found == start => {}
                Ending::Growing => self.report(What::Misnamed { found }),
                Ending::Whole => self.report(What::Empty),
            }
        }
        Ok(())
    }

    fn piece(&mut self, piece: &Piece<'_>) {
        match piece {
            Piece::Line(line) => self.line(line),
            Piece::TooLong => self.unreadable(What::NoRecord),
            Piece::Unfinished(_) => self.report(What::Unfinished),
        }
    }

    fn line(&mut self, line: &[u8]) {
        let Some((carried, own)) = line::hashes(line) else {
            return self.unreadable(What::NoRecord);
        };
        if carried != own {
            self.report(What::Changed);
            self.records += 1;
            let seq = self.expected();
            return self.add(End { seq, hash: Hash::Either(carried.to_owned(), own) });
        }
        let Some(front) = line::front(line) else {
            return self.unreadable(What::NoRecord);
        };
        self.records += 1;
        if self.place.line == 1 && front.seq != self.place.start {
            self.report(What::Misnamed { found: front.seq });
        }
        self.link(&front);
        if let Some(known) = self.known
            && known.seq == front.seq
            && known.hash != front.hash
        {
            self.report(What::Replaced { found: front.seq });
        }
        self.seen.insert(front.seq);
    }

    /// Puts a record, which is whole in itself, into the chain.
    fn link(&mut self, front: &Front<'_>) {
        let expected = self.expected();
        match self.ends.iter().position(|end| end.precedes(front)) {
            Some(place) => drop(self.ends.remove(place)),
            None if front.seq == expected => self.report(What::Unlinked { found: expected }),
            None if self.seen.has(front.seq) => self.report(What::Again { found: front.seq }),
            None => self.report(What::Jump { expected, found: front.seq }),
        }
        self.head = Head { seq: front.seq, hash: front.hash.clone().into_owned() };
        self.add(End { seq: front.seq, hash: Hash::Is(self.head.hash.clone()) });
    }

    /// Reports a line that says nothing; whatever its number was, the next one may follow it.
    fn unreadable(&mut self, what: What) {
        self.report(what);
        let seq = self.expected();
        self.add(End { seq, hash: Hash::Unknown });
    }

    fn add(&mut self, end: End) {
        self.ends.push_front(end);
        self.ends.truncate(MAX_ENDS);
    }

    fn expected(&self) -> u64 {
        self.ends.front().map_or(1, |end| end.seq.saturating_add(1))
    }

    fn end(&mut self) {
        let seq = self.expected().saturating_sub(1).max(self.seen.last());
        if let Some(known) = self.known
            && known.seq > seq
        {
            self.report(What::Cut { from: seq + 1, to: known.seq });
        }
    }

    fn verdict(self) -> Verification {
        let seen = self.seen;
        let problems = self.problems.into_iter().map(|(place, what, expected)| Problem {
            file: name(place.start),
            line: place.line,
            sentence: what.sentence(place.start, &seen),
            record: what.record(expected),
        });
        let strangers = self.strangers.into_iter().map(|file| Problem {
            file,
            line: 1,
            sentence: "the file does not belong to the record".to_owned(),
            record: None,
        });
        let unlisted = (self.unlisted > 0).then(|| Problem {
            file: name(self.place.start),
            line: self.place.line,
            sentence: format!("{} further problems are not listed", self.unlisted),
            record: None,
        });
        let problems = problems.chain(strangers).chain(unlisted).collect();
        Verification { records: self.records, files: self.files, head: self.head, problems }
    }
}

/// Gives a living writer the time to finish its line.
fn wait_for_more(lines: &mut Lines) -> Result<(), LedgerError> {
    sleep(PATIENCE);
    lines.back()
}

impl What {
    /// The number of the record that it is about, where `expected` belongs.
    fn record(&self, expected: u64) -> Option<u64> {
        match *self {
            Self::Unreadable(_) | Self::Empty => None,
            Self::NoRecord | Self::Unfinished | Self::Changed => Some(expected),
            Self::Jump { expected: record, .. }
            | Self::Misnamed { found: record }
            | Self::Again { found: record }
            | Self::Unlinked { found: record }
            | Self::Replaced { found: record }
            | Self::Cut { from: record, .. } => Some(record),
        }
    }

    /// What is said, once it is known which records are there at all.
    fn sentence(&self, start: u64, seen: &Runs) -> String {
        match self {
            Self::Unreadable(cause) => cause.clone(),
            Self::Empty => "the file is empty".to_owned(),
            Self::Misnamed { found } => {
                format!("the name of the file says record {start}, but record {found} belongs here")
            }
            Self::NoRecord => "the line is not a record".to_owned(),
            Self::Unfinished => "the line is unfinished".to_owned(),
            Self::Changed => {
                "the record was changed: its hash is not that of its content".to_owned()
            }
            Self::Jump { expected, found }
                if found > expected && !seen.any(*expected, found - 1) =>
            {
                match found - expected {
                    1 => format!("record {expected} is missing before record {found}"),
                    _ => format!(
                        "records {expected} to {} are missing before record {found}",
                        found - 1
                    ),
                }
            }
            Self::Jump { expected, found } => {
                format!("record {found} stands where record {expected} belongs")
            }
            Self::Again { found } => format!("record {found} stands here a second time"),
            Self::Unlinked { found } => format!(
                "record {found} does not continue the record before it: one of the two was replaced"
            ),
            Self::Replaced { found } => {
                format!("record {found} is not the one that was written")
            }
            Self::Cut { from, to } if from == to => {
                format!("record {from} is missing at the end")
            }
            Self::Cut { from, to } => format!("records {from} to {to} are missing at the end"),
        }
    }
}

/// A set of numbers, mostly consecutive: the last of every run by its first.
#[derive(Debug, Default)]
struct Runs(BTreeMap<u64, u64>);

impl Runs {
    fn insert(&mut self, number: u64) {
        if self.has(number) {
            return;
        }
        let before = self.0.range_mut(..number).next_back();
        match before {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => drop(self.0.insert(number, number)),
        }
    }

    fn has(&self, number: u64) -> bool {
        self.any(number, number)
    }

    /// Whether any number between two is in it, both included.
    fn any(&self, from: u64, to: u64) -> bool {
        self.0.range(..=to).next_back().is_some_and(|(_, last)| *last >= from)
    }

    fn last(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(_, last)| *last)
    }
}

#[cfg(test)]
mod tests {
    use super::Runs;

    #[test]
    fn runs_hold_what_was_put_into_them() {
        let mut runs = Runs::default();
        for number in [3, 4, 5, 9, 1, 10, 4] {
            runs.insert(number);
        }
        let held: Vec<u64> = (0..12).filter(|number| runs.has(*number)).collect();
        assert_eq!(held, [1, 3, 4, 5, 9, 10]);
        assert!(runs.any(6, 9) && !runs.any(6, 8) && !runs.any(2, 2) && !runs.any(11, 20));
        assert_eq!(runs.last(), 10);
    }
}
