//! Records as they are in a log: of each only the beginning is read, until somebody asks for more.
//!
//! A log says far more than any question about it needs. Who undoes the last command wants to know of
//! a hundred thousand records whose they are, and of a few thousand what they say. So what is kept of
//! a record is its bytes, and what they begin with; most of the rest is found by walking over the
//! fields before it.
//!
//! Invariant: what is told of a record without reading all of it is what reading it says.

use crate::record::Entry;

/// What kind of record one is: [`crate::record::Record`] without what it says, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Folder,
    Set,
    Process,
    Write,
    Remove,
    RemoveFolder,
    Create,
    Rename,
    Exchange,
    Attributes,
    Inside,
    Failed,
    After,
    Closed,
    Complete,
}

const TAGS: [Tag; 15] = [
    Tag::Folder,
    Tag::Set,
    Tag::Process,
    Tag::Write,
    Tag::Remove,
    Tag::RemoveFolder,
    Tag::Create,
    Tag::Rename,
    Tag::Exchange,
    Tag::Attributes,
    Tag::Inside,
    Tag::Failed,
    Tag::After,
    Tag::Closed,
    Tag::Complete,
];

impl Tag {
    /// Whether it is a change of a name, or of what has a name.
    pub(crate) fn is_change(self) -> bool {
        matches!(
            self,
            Self::Write
                | Self::Remove
                | Self::RemoveFolder
                | Self::Create
                | Self::Rename
                | Self::Exchange
                | Self::Attributes
        )
    }
}

/// What a record begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Brief {
    pub(crate) seq: u64,
    pub(crate) time: u64,
    pub(crate) set: u32,
    pub(crate) process: u32,
    pub(crate) tag: Tag,
}

impl Brief {
    /// Reads the beginning of a record; nothing if it is none of this version's.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        Self::read(&mut Walk(bytes))
    }

    fn read(walk: &mut Walk<'_>) -> Option<Self> {
        let (seq, time) = (walk.number()?, walk.number()?);
        let (set, process) = (walk.short()?, walk.short()?);
        let tag = *TAGS.get(usize::try_from(walk.number()?).ok()?)?;
        Some(Self { seq, time, set, process, tag })
    }
}

/// What a record says of a name as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) folder: u32,
    pub(crate) inode: u64,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) size: u64,
    pub(crate) kept: Kept,
}

/// Where contents are kept, as far as that is a file with a name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// In a copy.
    Copy,
    /// In the trash, under this number.
    Trash(u64),
    /// In none.
    Elsewhere,
}

/// A record among others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) brief: Brief,
    start: usize,
    length: usize,
}

/// Records, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    all: Vec<Frame>,
}

impl Frames {
    /// Adds a record.
    pub(crate) fn push(&mut self, brief: Brief, bytes: &[u8]) {
        self.all.push(Frame { brief, start: self.bytes.len(), length: bytes.len() });
        self.bytes.extend_from_slice(bytes);
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Frame] {
        &self.all
    }

    /// Those from a number on.
    pub(crate) fn since(&self, seq: u64) -> &[Frame] {
        let first = self.all.partition_point(|frame| frame.brief.seq < seq);
        self.all.get(first..).unwrap_or_default()
    }

    /// Takes out the record with a number, if there is one.
    pub(crate) fn remove(&mut self, seq: u64) {
        if let Ok(place) = self.all.binary_search_by_key(&seq, |frame| frame.brief.seq) {
            self.all.remove(place);
        }
    }

    /// Takes out all.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.all.clear();
    }

    /// Reads one as a whole. What has its checksum is whole.
    pub(crate) fn entry(&self, frame: &Frame) -> Option<Entry> {
        postcard::from_bytes(self.bytes_of(frame)).ok()
    }

    /// Reads all as a whole.
    pub(crate) fn entries(&self) -> impl DoubleEndedIterator<Item = Entry> {
        self.all.iter().filter_map(|frame| self.entry(frame))
    }

    /// The folder that a change is in: of a name that is changed to another one, or exchanged with
    /// one, the first.
    pub(crate) fn folder(&self, frame: &Frame) -> Option<u32> {
        let mut walk = self.walk(frame)?;
        frame.brief.tag.is_change().then(|| walk.short())?
    }

    /// What a record says of a name as it was before, if it does.
    pub(crate) fn past(&self, frame: &Frame) -> Option<Past> {
        let keeps = match frame.brief.tag {
            Tag::Write | Tag::Remove => true,
            Tag::RemoveFolder | Tag::Attributes | Tag::Inside => false,
            _ => return None,
        };
        let mut walk = self.walk(frame)?;
        let folder = walk.short()?;
        walk.text()?;
        let (inode, mode) = (walk.number()?, walk.short()?);
        walk.skip(2)?;
        let (links, size) = (walk.short()?, walk.number()?);
        let mut kept = Kept::Elsewhere;
        if keeps {
            // Three times, each of two numbers.
            walk.skip(6)?;
            for _ in 0..walk.number()? {
                walk.text()?;
                walk.text()?;
            }
            kept = match walk.number()? {
                2 => Kept::Copy,
                3 => Kept::Trash(walk.number()?),
                _ => Kept::Elsewhere,
            };
        }
        Some(Past { folder, inode, mode, links, size, kept })
    }

    fn bytes_of(&self, frame: &Frame) -> &[u8] {
        self.bytes.get(frame.start..frame.start + frame.length).unwrap_or_default()
    }

    /// Stands behind the beginning of a record.
    fn walk(&self, frame: &Frame) -> Option<Walk<'_>> {
        let mut walk = Walk(self.bytes_of(frame));
        Brief::read(&mut walk)?;
        Some(walk)
    }
}

/// Walks over the fields of a record, as `postcard` writes them.
struct Walk<'a>(&'a [u8]);

impl<'a> Walk<'a> {
    /// A number of any size: seven bits in each byte, the lowest first.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn short(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn skip(&mut self, numbers: usize) -> Option<()> {
        for _ in 0..numbers {
            self.number()?;
        }
        Some(())
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Brief, Frames, Kept, Past, TAGS};
    use crate::record::{At, Entry, Meta, Record, Saved, State, Why};
    use cowork_api::files::{FileKind, SetKind};
    use proptest::prelude::*;

    fn meta() -> impl Strategy<Value = Meta> {
        let numbers = any::<(u64, u32, u32, u32, u32, u64)>();
        let times = any::<[(i64, u32); 3]>();
        let attributes = any::<Vec<(Vec<u8>, Vec<u8>)>>();
        (numbers, times, attributes).prop_map(|(numbers, [mtime, atime, ctime], attributes)| {
            let (inode, mode, uid, gid, links, size) = numbers;
            Meta { inode, mode, uid, gid, links, size, mtime, atime, ctime, attributes }
        })
    }

    fn at() -> impl Strategy<Value = At> {
        any::<(u32, Vec<u8>)>().prop_map(|(folder, path)| At { folder, path })
    }

    fn saved() -> impl Strategy<Value = Saved> {
        prop_oneof![
            Just(Saved::Same),
            any::<(u64, u64)>().prop_map(|(offset, length)| Saved::Pack { offset, length }),
            any::<u64>().prop_map(Saved::Copy),
            any::<u64>().prop_map(Saved::Trash),
            any::<Vec<u8>>().prop_map(Saved::Link),
            Just(Saved::Empty),
            Just(Saved::Lost(Why::NoSpace)),
        ]
    }

    /// One of each kind, in the order of [`TAGS`].
    fn records() -> impl Strategy<Value = Vec<Record>> {
        (at(), at(), meta(), saved(), any::<(u64, Vec<Vec<u8>>)>()).prop_map(
            |(at, to, before, saved, (inode, argv))| {
                let kind = FileKind::File;
                let state = State {
                    inode,
                    mode: before.mode,
                    size: before.size,
                    mtime: before.mtime,
                    ctime: before.ctime,
                };
                vec![
                    Record::Folder {
                        folder: at.folder,
                        name: "name".to_owned(),
                        path: at.path.clone(),
                        device: before.size,
                        inode,
                    },
                    Record::Set { kind: SetKind::Undo(vec![1]), root: 2, argv: argv.clone() },
                    Record::Process { argv },
                    Record::Write { at: at.clone(), before: before.clone(), saved: saved.clone() },
                    Record::Remove { at: at.clone(), before: before.clone(), saved },
                    Record::RemoveFolder { at: at.clone(), before: before.clone() },
                    Record::Create { at: at.clone(), kind, link_of: Some(to.clone()) },
                    Record::Rename { from: at.clone(), to: to.clone(), kind },
                    Record::Exchange { one: at.clone(), other: to, inode },
                    Record::Attributes { at: at.clone(), before: before.clone() },
                    Record::Inside { at: at.clone(), before },
                    Record::Failed { seq: inode },
                    Record::After { at, state: Some(state) },
                    Record::Closed,
                    Record::Complete,
                ]
            },
        )
    }

    /// What reading a record as a whole says.
    fn whole(record: &Record) -> (Option<u32>, Option<Past>) {
        let (change, at, before, saved) = match record {
            Record::Write { at, before, saved } | Record::Remove { at, before, saved } => {
                (true, at, Some(before), Some(saved))
            }
            Record::RemoveFolder { at, before } | Record::Attributes { at, before } => {
                (true, at, Some(before), None)
            }
            Record::Inside { at, before } => (false, at, Some(before), None),
            Record::Create { at, .. }
            | Record::Rename { from: at, .. }
            | Record::Exchange { one: at, .. } => (true, at, None, None),
            _ => return (None, None),
        };
        let kept = match saved {
            Some(Saved::Copy(_)) => Kept::Copy,
            Some(Saved::Trash(number)) => Kept::Trash(*number),
            _ => Kept::Elsewhere,
        };
        let folder = at.folder;
        let past = before.map(|Meta { inode, mode, links, size, .. }| Past {
            folder,
            inode: *inode,
            mode: *mode,
            links: *links,
            size: *size,
            kept,
        });
        (change.then_some(folder), past)
    }

    proptest! {
        #[test]
        fn what_is_told_of_a_record_is_what_it_says(
            records in records(),
            (seq, time, set, process) in any::<(u64, u64, u32, u32)>(),
        ) {
            prop_assert_eq!(records.len(), TAGS.len());
            for (record, tag) in records.into_iter().zip(TAGS) {
                let entry = Entry { seq, time, set, process, record };
                let bytes = postcard::to_stdvec(&entry).unwrap();
                let brief = Brief::of(&bytes).expect("it is whole");
                prop_assert_eq!(brief, Brief { seq, time, set, process, tag });
                let mut frames = Frames::default();
                frames.push(brief, &bytes);
                let frame = frames.all()[0];
                let told = (frames.folder(&frame), frames.past(&frame));
                prop_assert_eq!(told, whole(&entry.record));
                prop_assert_eq!(frames.entry(&frame), Some(entry));
            }
        }

        #[test]
        fn no_bytes_are_walked_out_of(bytes in any::<Vec<u8>>()) {
            if let Some(brief) = Brief::of(&bytes) {
                let mut frames = Frames::default();
                frames.push(brief, &bytes);
                let frame = frames.all()[0];
                let told = (frames.folder(&frame), frames.past(&frame));
                if let Some(entry) = frames.entry(&frame) {
                    prop_assert_eq!(told, whole(&entry.record));
                }
            }
        }
    }
}
