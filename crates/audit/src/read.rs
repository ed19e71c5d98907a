//! Reading the record: whoever asks says which records are wanted.
//!
//! Files that cannot hold a wanted record are not opened, and of unwanted records no more is
//! looked at than is needed to know it.
//!
//! Deliberately absent: checking hashes (`verify.rs`). A line that is no record at all is an error
//! here too, because silence about it would look like an answer.

use crate::folder::{Ending, Folder, Piece};
use crate::line::{self, Front};
use crate::{LedgerError, Record};
use std::ops::ControlFlow;
use std::path::Path;

/// Which records are wanted: those to which everything applies, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// About this session.
    pub session: Option<String>,
    /// Of this type, or of those that begin with it and a dot: `grant` is also `grant.added`.
    pub kind: Option<String>,
    /// Written at this time or later, compared as text.
    pub since: Option<String>,
    /// Written before or at this time, compared as text.
    pub until: Option<String>,
    /// With a higher number than this.
    pub after: u64,
    /// No more than so many.
    pub limit: usize,
}

impl Default for Filter {
    /// Every record.
    fn default() -> Self {
        Self { session: None, kind: None, since: None, until: None, after: 0, limit: usize::MAX }
    }
}

impl Filter {
    fn wants(&self, front: &Front<'_>) -> bool {
        let session = front.session.as_ref().map(|session| &*session.0);
        self.session.as_deref().is_none_or(|wanted| session == Some(wanted))
            && self.kind.as_deref().is_none_or(|wanted| is_kind(&front.kind, wanted))
            && self.since.as_deref().is_none_or(|since| &*front.time >= since)
            && self.until.as_deref().is_none_or(|until| &*front.time <= until)
            && front.seq > self.after
    }
}

fn is_kind(kind: &str, wanted: &str) -> bool {
    kind.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Reads the records that are wanted. A folder that does not exist has none.
pub fn read(folder: &Path, filter: &Filter) -> Result<Vec<Record>, LedgerError> {
    let mut records = Vec::new();
    scan(folder, filter, |line| {
        let record = line::record(line).ok_or(Refused::NoRecord)?;
        records.push(record);
        Ok(())
    })?;
    Ok(records)
}

/// Why the receiver of a line does not take it.
pub(crate) enum Refused {
    NoRecord,
    Because(LedgerError),
}

/// Hands the lines with wanted records to `take`, and says how many they were.
pub(crate) fn scan(
    folder: &Path,
    filter: &Filter,
    mut take: impl FnMut(&[u8]) -> Result<(), Refused>,
) -> Result<u64, LedgerError> {
    let Some(folder) = Folder::open(folder)? else { return Ok(0) };
    let listing = folder.list()?;
    // A file ends where the next one begins, so it is of no use if that is wanted at the earliest.
    let first = filter.after.saturating_add(1);
    let useless = listing.starts.iter().skip(1).take_while(|next| **next <= first).count();
    let mut scan = Scan { filter, taken: 0, take: &mut take };
    for (start, ending) in listing.files().skip(useless) {
        if scan.file(&folder, start, ending)?.is_break() {
            break;
        }
    }
    Ok(scan.taken)
}

struct Scan<'s, T> {
    filter: &'s Filter,
    taken: u64,
    take: &'s mut T,
}

impl<T: FnMut(&[u8]) -> Result<(), Refused>> Scan<'_, T> {
    fn file(
        &mut self,
        folder: &Folder,
        start: u64,
        ending: Ending,
    ) -> Result<ControlFlow<()>, LedgerError> {
        let mut lines = folder.read(start)?;
        loop {
            if usize::try_from(self.taken).is_ok_and(|taken| taken >= self.filter.limit) {
                return Ok(ControlFlow::Break(()));
            }
            let took = match lines.next()? {
                None => return Ok(ControlFlow::Continue(())),
                Some(Piece::Unfinished(_)) if ending == Ending::Growing => {
                    return Ok(ControlFlow::Continue(()));
                }
                Some(Piece::Unfinished(_) | Piece::TooLong) => Err(Refused::NoRecord),
                Some(Piece::Line(line)) => self.line(line),
            };
            match took {
                Ok(()) => {}
                Err(Refused::NoRecord) => return Err(lines.broken()),
                Err(Refused::Because(error)) => return Err(error),
            }
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Refused> {
        if line::seq(line).is_some_and(|seq| seq <= self.filter.after) {
            return Ok(());
        }
        let front = line::front(line).ok_or(Refused::NoRecord)?;
        if self.filter.wants(&front) {
            (self.take)(line)?;
            self.taken += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::is_kind;

    #[test]
    fn a_type_is_wanted_by_its_name_or_by_its_words_before_a_dot() {
        let kinds = ["grant", "grant.added", "grants.added", "session.grant", "gran"];
        let wanted: Vec<_> = kinds.into_iter().filter(|kind| is_kind(kind, "grant")).collect();
        assert_eq!(wanted, ["grant", "grant.added"]);
    }
}
