//! The index: which stream's piece comes after which, as a file of fixed-size records.
//!
//! Every number is little-endian. The header has 32 bytes: the eight of [`MAGIC`], the version,
//! seven zeros, where in the merged output the bytes begin that are kept, and the number of the
//! first record that covers any of them. Earlier records may be gone. A record has 32 bytes as well,
//! so that none crosses a page: its stream's code, a zero, six bytes for the time at which its last
//! byte arrived (milliseconds since 1970), and where each of the three streams ends after it. Since
//! a record states ends and not lengths, the last one alone is the whole state, and a place in the
//! merged output is found by bisection in the file.
//!
//! Deliberately absent: writing (`store` does), and bytes that no record covers yet.

use super::{Ends, Stream};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::UNIX_EPOCH;

/// The name of the index in a command's folder.
pub(super) const NAME: &str = "index";

/// Length of the header, and of every record.
pub(super) const UNIT: usize = 32;

const MAGIC: [u8; 8] = *b"cwoutput";
const VERSION: u64 = 1;

/// One piece of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The stream it is of.
    pub(super) stream: Stream,
    /// When its last byte arrived, in milliseconds since 1970.
    pub(super) time_ms: u64,
    /// Where the streams end after it.
    pub(super) ends: Ends,
}

impl Record {
    pub(super) fn encode(&self) -> [u8; UNIT] {
        let Ends { stdout, stderr, terminal } = self.ends;
        pack([u64::from(self.stream.code()) | self.time_ms << 16, stdout, stderr, terminal])
    }

    fn decode(bytes: [u8; UNIT]) -> Option<Self> {
        let [head, stdout, stderr, terminal] = unpack(bytes);
        let stream = Stream::from_code(u8::try_from(head & 0xFFFF).ok()?)?;
        Some(Self { stream, time_ms: head >> 16, ends: Ends { stdout, stderr, terminal } })
    }
}

/// What is kept of an output: its oldest bytes go first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// Where in the merged output it begins.
    pub(super) from: u64,
    /// The first record that covers any of it.
    pub(super) record: u64,
}

/// The header of an index.
pub(super) fn header(kept: Kept) -> [u8; UNIT] {
    pack([u64::from_le_bytes(MAGIC), VERSION, kept.from, kept.record])
}

/// Reads the header: what is kept, or nothing if it was never written whole.
pub(super) fn read_header(index: &File) -> io::Result<Option<Kept>> {
    let mut bytes = [0; UNIT];
    match index.read_exact_at(&mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        outcome => outcome?,
    }
    match unpack(bytes) {
        [magic, VERSION, from, record] if magic.to_le_bytes() == MAGIC => {
            Ok(Some(Kept { from, record }))
        }
        [magic, version, ..] if magic.to_le_bytes() == MAGIC => {
            Err(invalid(format!("the index of this output has the unknown version {version}")))
        }
        _ => Err(invalid("this is no index of a command's output".into())),
    }
}

/// How many whole records an index of `length` bytes has.
pub(super) fn records(length: u64) -> u64 {
    (length / UNIT as u64).saturating_sub(1)
}

/// Where a record starts; after the last one: how long the index is.
pub(super) fn place(record: u64) -> u64 {
    record.saturating_add(1).saturating_mul(UNIT as u64)
}

/// Reads one record. What is none is [`io::ErrorKind::InvalidData`].
pub(super) fn record(index: &File, number: u64) -> io::Result<Record> {
    let mut bytes = [0; UNIT];
    index.read_exact_at(&mut bytes, place(number))?;
    Record::decode(bytes).ok_or_else(|| damaged(number))
}

/// Reads records from `number` on, until `buffer` is full.
pub(super) fn read_records(
    index: &File,
    number: u64,
    buffer: &mut [[u8; UNIT]],
) -> io::Result<Vec<Record>> {
    index.read_exact_at(buffer.as_flattened_mut(), place(number))?;
    let numbered = buffer.iter().zip(number..);
    let decoded = numbered.map(|(bytes, at)| Record::decode(*bytes).ok_or_else(|| damaged(at)));
    decoded.collect()
}

/// Where the streams end before a record.
pub(super) fn before(index: &File, number: u64) -> io::Result<Ends> {
    match number.checked_sub(1) {
        Some(previous) => Ok(record(index, previous)?.ends),
        None => Ok(Ends::default()),
    }
}

/// Where each stream begins, given what is kept of the merged output.
pub(super) fn starts(index: &File, kept: Kept) -> io::Result<Ends> {
    if kept.from == 0 {
        return Ok(Ends::default());
    }
    let mut starts = before(index, kept.record)?;
    let first = record(index, kept.record)?;
    let into = kept.from.saturating_sub(starts.total());
    *starts.get_mut(first.stream) += into;
    Ok(starts)
}

/// The first of the records from `low` to `count` that ends after `offset` of the merged output.
pub(super) fn find(index: &File, low: u64, count: u64, offset: u64) -> io::Result<u64> {
    let (mut low, mut high) = (low, count);
    while low < high {
        let middle = low.midpoint(high);
        if record(index, middle)?.ends.total() > offset {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}

/// When a file was last written, in milliseconds since 1970.
pub(super) fn written_ms(file: &Metadata) -> u64 {
    let since = file.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| u64::try_from(since.as_millis()).ok()).unwrap_or_default()
}

/// The error for a record that contradicts itself or its neighbours.
pub(super) fn damaged(number: u64) -> io::Error {
    invalid(format!("record {number} of the index of this output is damaged"))
}

fn invalid(sentence: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, sentence)
}

fn pack(words: [u64; 4]) -> [u8; UNIT] {
    let mut bytes = [0; UNIT];
    let (chunks, _) = bytes.as_chunks_mut::<8>();
    for (chunk, word) in chunks.iter_mut().zip(words) {
        *chunk = word.to_le_bytes();
    }
    bytes
}

fn unpack(bytes: [u8; UNIT]) -> [u64; 4] {
    let mut words = [0; 4];
    let (chunks, _) = bytes.as_chunks::<8>();
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_le_bytes(*chunk);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{Kept, Record, header, pack};
    use crate::output::{Ends, Stream};

    const RECORD: Record = Record {
        stream: Stream::Stderr,
        time_ms: 0x0102_0304_0506,
        ends: Ends { stdout: 7, stderr: 0x0809, terminal: 0 },
    };

    #[test]
    fn the_layout_on_disk_is_what_the_module_says() {
        let mut expected = [0; 32];
        expected[..8].copy_from_slice(&[2, 0, 6, 5, 4, 3, 2, 1]);
        expected[8] = 7;
        expected[16..18].copy_from_slice(&[9, 8]);
        assert_eq!(RECORD.encode(), expected);
        let mut expected = [0; 32];
        expected[..9].copy_from_slice(b"cwoutput\x01");
        expected[16] = 5;
        expected[24] = 3;
        assert_eq!(header(Kept { from: 5, record: 3 }), expected);
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        assert_eq!(Record::decode(RECORD.encode()), Some(RECORD));
    }

    #[test]
    fn zeros_and_unknown_codes_are_no_records() {
        for head in [0, 4, 0x0101] {
            assert_eq!(Record::decode(pack([head, 1, 1, 1])), None, "{head:#x}");
        }
    }
}
