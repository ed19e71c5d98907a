//! Reading a command's output, while it grows and afterwards.
//!
//! A reader shares nothing with the pump but the files. What the index does not cover yet belongs
//! to one stream; a reader that finds the index unchanged after it has measured the streams knows
//! which. Memory is bounded by what the caller asks for: places are found by bisection in the
//! index, and nothing is cached.
//!
//! Deliberately absent: waiting for more.

use super::index::{self, Kept, Record, UNIT};
use super::{Ends, PerStream, Stream};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// How often a reader looks again when the index grows while it looks. Beyond that it sees what the
/// index covers, which is complete up to a point, and is woken for the rest.
const LOOKS: usize = 8;

/// Records that are read at once: one page.
const BATCH: usize = 4096 / UNIT;

/// Most pieces that one call returns, so that an output of many tiny ones costs no more memory than
/// any other. Who wants more asks again where the last one ends.
const MAX_PIECES: usize = 4096;

/// A part of the merged output that is of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The stream.
    pub stream: Stream,
    /// Where in the merged output it starts.
    pub offset: u64,
    /// When it had arrived, in milliseconds since 1970. Bytes that come within a second without
    /// the other stream between them share one time, that of the last of them.
    pub time_ms: u64,
    /// The bytes, at least one.
    pub bytes: Vec<u8>,
}

/// A command's output, open for reading.
#[derive(Debug)]
pub struct Reader {
    index: File,
    files: PerStream<Option<File>>,
}

/// What there is to read.
#[derive(Debug)]
struct View {
    /// Records in the index.
    records: u64,
    /// What they cover.
    covered: Ends,
    /// Records that are not in the index yet. Only a crash of the host leaves more than one.
    owed: Vec<Record>,
}

impl Reader {
    /// Opens the output in a command's folder, which has an index since the output was first added
    /// to a pump.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        let open = |name: &str| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            rustix::fs::openat(&folder, name, flags, Mode::empty()).map(File::from)
        };
        let index = open(index::NAME)?;
        index::read_header(&index)?;
        let mut files = PerStream::default();
        for stream in Stream::ALL {
            *files.get_mut(stream) = match open(stream.name()) {
                Err(cowork_sys::Errno::NOENT) => None,
                outcome => Some(outcome?),
            };
        }
        Ok(Self { index, files })
    }

    /// Where the merged output ends at this moment.
    pub fn total(&mut self) -> io::Result<u64> {
        Ok(self.view()?.total())
    }

    /// Reads the merged output from `offset` on, or from where the bytes begin that are still kept:
    /// at most `max` bytes in all, and fewer if they are of very many pieces. Nothing is returned
    /// only at the end.
    pub fn read(&mut self, offset: u64, max: usize) -> io::Result<Vec<Piece>> {
        loop {
            let kept = self.kept()?;
            let pieces = self.read_kept(kept, offset.max(kept.from), max);
            // What was let go of meanwhile reads as nonsense.
            if self.kept()? == kept {
                return pieces;
            }
        }
    }

    fn kept(&self) -> io::Result<Kept> {
        Ok(index::read_header(&self.index)?.unwrap_or_default())
    }

    fn read_kept(&self, kept: Kept, offset: u64, max: usize) -> io::Result<Vec<Piece>> {
        let view = self.view()?;
        let mut next = index::find(&self.index, kept.record, view.records, offset)?;
        let mut before = index::before(&self.index, next)?;
        let (mut pieces, mut at, mut room) = (Vec::new(), offset, max);
        loop {
            let batch = self.batch(&view, next)?;
            if batch.is_empty() {
                return Ok(pieces);
            }
            for record in batch {
                if room == 0 || pieces.len() >= MAX_PIECES {
                    return Ok(pieces);
                }
                let piece = self.part(&record, &before, at, room)?;
                let piece = piece.ok_or_else(|| index::damaged(next))?;
                next += 1;
                before = record.ends;
                // A record that ends before `offset` is one that is owed.
                if !piece.bytes.is_empty() {
                    at += piece.bytes.len() as u64;
                    room -= piece.bytes.len();
                    pieces.push(piece);
                }
            }
        }
    }

    /// Reads at most `max` bytes of one stream alone, from its own `offset` on or from where its
    /// bytes begin that are still kept. Returns where in the stream they begin, too.
    pub fn read_stream(
        &mut self,
        stream: Stream,
        offset: u64,
        max: usize,
    ) -> io::Result<(u64, Vec<u8>)> {
        let Some(file) = self.files.get(stream) else { return Ok((offset, Vec::new())) };
        loop {
            let kept = self.kept()?;
            let read = index::starts(&self.index, kept).and_then(|starts| {
                let offset = offset.max(*starts.get(stream));
                Ok((offset, read_at(file, offset, file.metadata()?.len(), max)?))
            });
            if self.kept()? == kept {
                return read;
            }
        }
    }

    /// The records from `next` on, a page of them at most, and then those that are owed.
    fn batch(&self, view: &View, next: u64) -> io::Result<Vec<Record>> {
        let rest = view.records.saturating_sub(next);
        if rest == 0 {
            let owed = usize::try_from(next - view.records).unwrap_or(usize::MAX);
            return Ok(view.owed.get(owed..).unwrap_or_default().to_vec());
        }
        let mut page = [[0; UNIT]; BATCH];
        let length = usize::try_from(rest).unwrap_or(BATCH).min(BATCH);
        index::read_records(&self.index, next, page.get_mut(..length).unwrap_or_default())
    }

    /// The bytes of a record from `offset` of the merged output on, at most `max` of them; none if
    /// the record contradicts the one `before` it.
    fn part(
        &self,
        record: &Record,
        before: &Ends,
        offset: u64,
        max: usize,
    ) -> io::Result<Option<Piece>> {
        let Record { stream, time_ms, ends } = *record;
        let (start, end) = (*before.get(stream), *ends.get(stream));
        let grown = ends.total().checked_sub(before.total());
        let (Some(skip), true) =
            (offset.checked_sub(before.total()), grown == end.checked_sub(start))
        else {
            return Ok(None);
        };
        let bytes = match self.files.get(stream) {
            Some(file) => read_at(file, start.saturating_add(skip), end, max)?,
            None => return Ok(None),
        };
        Ok(Some(Piece { stream, offset, time_ms, bytes }))
    }

    fn view(&self) -> io::Result<View> {
        let mut length = self.index.metadata()?.len();
        let mut looks = 1;
        loop {
            let records = index::records(length);
            let covered = match records.checked_sub(1) {
                Some(last) => index::record(&self.index, last)?.ends,
                None => Ends::default(),
            };
            let owed = self.owed(covered)?;
            let now = self.index.metadata()?.len();
            if now == length {
                return Ok(View { records, covered, owed });
            }
            if looks == LOOKS {
                return Ok(View { records, covered, owed: Vec::new() });
            }
            length = now;
            looks += 1;
        }
    }

    /// The records of what the streams have beyond `covered`.
    fn owed(&self, covered: Ends) -> io::Result<Vec<Record>> {
        let (mut owed, mut ends) = (Vec::new(), covered);
        for stream in Stream::ALL {
            let Some(file) = self.files.get(stream) else { continue };
            let file = file.metadata()?;
            if file.len() > *ends.get(stream) {
                *ends.get_mut(stream) = file.len();
                owed.push(Record { stream, time_ms: index::written_ms(&file), ends });
            }
        }
        Ok(owed)
    }
}

impl View {
    fn total(&self) -> u64 {
        self.owed.last().map_or(self.covered, |record| record.ends).total()
    }
}

/// Reads at most `max` bytes from `start` to `end`, which the file has.
fn read_at(file: &File, start: u64, end: u64, max: usize) -> io::Result<Vec<u8>> {
    let length = usize::try_from(end.saturating_sub(start)).unwrap_or(max).min(max);
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}
