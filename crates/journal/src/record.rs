//! What is recorded: one record for each change, written before the change is made.
//!
//! A record says what is about to be lost. Together with the state of the folder, the records of a
//! session say what the folder was like before any of them.

use cowork_api::Text;
use cowork_api::files::{FileKind, SetKind};
use serde::{Deserialize, Serialize};

/// A record with its place in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number, from 1, without gaps in a log.
    pub seq: u64,
    /// When it was written, in nanoseconds since 1970.
    pub time: u64,
    /// The set it belongs to; 0 for what belongs to none.
    pub set: u32,
    /// The process whose call it is, by its id in the session; 0 if there is none.
    pub process: u32,
    /// What it says.
    pub record: Record,
}

/// A name in a granted folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct At {
    /// The number that [`Record::Folder`] gives the folder.
    pub folder: u32,
    /// The path below it, free of links and of `.` and `..`; empty for the folder itself.
    #[serde(with = "bytes")]
    pub path: Text,
}

/// Bytes, written at once and not one by one; what is in the log is the same.
mod bytes {
    use serde::de::{Deserializer, Error, Visitor};
    use serde::ser::Serializer;
    use std::fmt::Formatter;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        from.deserialize_bytes(Bytes)
    }

    struct Bytes;

    impl Visitor<'_> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
            to.write_str("bytes")
        }

        fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
            Ok(bytes.to_vec())
        }
    }
}

/// What is about to happen, or has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// A folder that later records are about. The same folder has the same number in a whole log.
    Folder {
        /// Its number, from 1.
        folder: u32,
        /// The grant's name.
        name: String,
        /// Where it lies on the host.
        path: Text,
        /// Which folder it is.
        device: u64,
        /// Which folder it is.
        inode: u64,
    },
    /// A set begins.
    Set {
        /// What it comes from.
        kind: SetKind,
        /// The first process of the command, by its id in the session.
        root: u32,
        /// Its arguments, as far as they are kept.
        argv: Vec<Text>,
    },
    /// The process of the records that follow with its id, when it is first seen.
    Process {
        /// Its arguments, as far as they are kept.
        argv: Vec<Text>,
    },
    /// A file is about to be opened for writing, for the first time in its set, or cut to a length.
    Write {
        /// Which.
        at: At,
        /// As it is before.
        before: Meta,
        /// Where its contents are kept.
        saved: Saved,
    },
    /// A name that is no folder is about to be removed.
    Remove {
        /// Which.
        at: At,
        /// As it is before.
        before: Meta,
        /// Where it is kept.
        saved: Saved,
    },
    /// An empty folder is about to be removed.
    RemoveFolder {
        /// Which.
        at: At,
        /// As it is before.
        before: Meta,
    },
    /// A new name is about to be made; there is nothing under it.
    Create {
        /// Which.
        at: At,
        /// What.
        kind: FileKind,
        /// The file that it is another name of, of a hard link.
        link_of: Option<At>,
    },
    /// A name is about to be changed. What is under the new one was removed by a record before, if
    /// something was.
    Rename {
        /// From this one.
        from: At,
        /// To this one.
        to: At,
        /// What.
        kind: FileKind,
    },
    /// Two names are about to be exchanged.
    Exchange {
        /// This one.
        one: At,
        /// And this one.
        other: At,
        /// Which inode `one` names before.
        inode: u64,
    },
    /// Mode, owner, times or attributes are about to be changed, for the first time in its set.
    Attributes {
        /// Of which name.
        at: At,
        /// As they are before.
        before: Meta,
    },
    /// Names in a folder are about to change, for the first time in its set: its times will.
    Inside {
        /// Which folder.
        at: At,
        /// As it is before.
        before: Meta,
    },
    /// What a record said was about to happen did not happen.
    Failed {
        /// The number of that record.
        seq: u64,
    },
    /// What a name was like when nobody could write to it any more who belonged to the session, or when
    /// its set was closed. A later one of the same set counts if it was touched in between.
    After {
        /// Which name.
        at: At,
        /// What is there; nothing if it is gone.
        state: Option<State>,
    },
    /// A set is closed: no record of it follows.
    Closed,
    /// An undo, redo or apply is complete.
    Complete,
}

/// What a file was like, as far as it can be brought back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Which inode of its file system.
    pub inode: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// The owner on disk.
    pub uid: u32,
    /// The group on disk.
    pub gid: u32,
    /// How many names it has.
    pub links: u32,
    /// In bytes.
    pub size: u64,
    /// When its contents were last changed: seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// When it was last read.
    pub atime: (i64, u32),
    /// When anything of it was last changed.
    pub ctime: (i64, u32),
    /// Extended attributes.
    pub attributes: Vec<(Text, Vec<u8>)>,
}

/// What is there at the end of a set, to see later whether somebody else changed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Which inode.
    pub inode: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// In bytes; 0 for folders.
    pub size: u64,
    /// When its contents were last changed.
    pub mtime: (i64, u32),
    /// When anything of it was last changed.
    pub ctime: (i64, u32),
}

/// Where something is kept that is about to be lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Saved {
    /// Nowhere, because it was made, or saved, in the same set.
    Same,
    /// In the pack, from this byte on.
    Pack {
        /// The first byte.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// In a file of its own in the store, named `b` and this number.
    Copy(u64),
    /// It is itself in the trash of its folder, named `t` and this number.
    Trash(u64),
    /// What a symbolic link says.
    Link(Text),
    /// It has no contents: a pipe, a socket.
    Empty,
    /// Nowhere; why.
    Lost(Why),
}

/// Why something is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// It is larger than what is copied.
    Large,
    /// The session has copied all that it may.
    Full,
    /// It may be written but not read.
    Unreadable,
    /// The disk that it would be kept on is full.
    NoSpace,
}
