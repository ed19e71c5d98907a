//! Why the record could not be written or read.

use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Why the record could not be opened, written, read or exported.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The disk, or the user's share of it, is full.
    #[error("there is no space left for the audit record in `{}`", .path.display())]
    NoSpace {
        /// The file or folder that cannot grow.
        path: PathBuf,
    },
    /// The folder or file is read-only, or belongs to somebody else.
    #[error("the audit record in `{}` cannot be written: it is read-only", .path.display())]
    ReadOnly {
        /// The file or folder that cannot be written.
        path: PathBuf,
    },
    /// Another process writes this record, or this one does already.
    #[error("the audit record in `{}` is being written by another process", .folder.display())]
    Locked {
        /// The folder of the record.
        folder: PathBuf,
    },
    /// A line is no record, or was changed.
    #[error("line {line} of the audit record `{}` is damaged", .file.display())]
    Broken {
        /// The file with the line.
        file: PathBuf,
        /// The line, from 1.
        line: u64,
    },
    /// The record ends before the last record that is known to have been written.
    #[error("records {from} to {to} are missing from the audit record, at the end of `{}`", .file.display())]
    Missing {
        /// The file that they should be in.
        file: PathBuf,
        /// The first one that is missing.
        from: u64,
        /// The last one that is missing.
        to: u64,
    },
    /// A record is there, but it is not the one that is known to have been written.
    #[error("record {seq} in the audit record `{}` is not the one that was written", .file.display())]
    Replaced {
        /// The file with the record.
        file: PathBuf,
        /// The number of the record.
        seq: u64,
    },
    /// There is a link, a folder or a device where a file of the record belongs.
    #[error("`{}` is not a regular file, so it is not used as the audit record", .path.display())]
    NotAFile {
        /// What is in the way.
        path: PathBuf,
    },
    /// The record to append is longer than [`crate::MAX_RECORD`].
    #[error("a record of {bytes} bytes is too large for the audit record")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
    /// What was exported could not be passed on.
    #[error("cannot write the exported audit record")]
    Output {
        /// The cause.
        source: io::Error,
    },
    /// Anything else that the kernel refused.
    #[error("cannot {attempted} `{}`", .path.display())]
    Io {
        /// What was attempted, as a verb.
        attempted: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl LedgerError {
    /// What it means that the kernel refused to read something.
    pub(crate) fn reading(
        attempted: &'static str,
        path: &Path,
        source: impl Into<io::Error>,
    ) -> Self {
        let (path, source) = (path.to_path_buf(), source.into());
        match Errno::from_io_error(&source) {
            Some(Errno::LOOP) => Self::NotAFile { path },
            _ => Self::Io { attempted, path, source },
        }
    }

    /// What it means that the kernel refused to write something.
    pub(crate) fn writing(
        attempted: &'static str,
        path: &Path,
        source: impl Into<io::Error>,
    ) -> Self {
        let (path, source) = (path.to_path_buf(), source.into());
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => Self::NoSpace { path },
            Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => Self::ReadOnly { path },
            Some(Errno::LOOP) => Self::NotAFile { path },
            _ => Self::Io { attempted, path, source },
        }
    }
}
