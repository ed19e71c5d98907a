//! Why the catalogue could not be opened, read or written.

use rusqlite::{ErrorCode, ffi};
use std::path::{Path, PathBuf};

/// Why the catalogue could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The disk, or the user's share of it, is full.
    #[error("there is no space left for the catalogue `{}`", .file.display())]
    Full {
        /// The catalogue.
        file: PathBuf,
    },
    /// The file or its folder is read-only, or belongs to somebody else.
    #[error("the catalogue `{}` cannot be written: it is read-only", .file.display())]
    ReadOnly {
        /// The catalogue.
        file: PathBuf,
    },
    /// The file is damaged, or is something else. It was left as it is.
    #[error(
        "the catalogue `{}` is damaged ({reason}); nothing was changed. Move it and the files \
         beside it whose names begin with `{}` to another place to start with an empty one: the \
         folders of sessions and the audit record are not affected",
        .file.display(), name(.file)
    )]
    Corrupt {
        /// The catalogue.
        file: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The file was written by a later version of the program.
    #[error(
        "the catalogue `{}` has version {found}, and this program knows versions up to {known}: it \
         was written by a later one",
        .file.display()
    )]
    Newer {
        /// The catalogue.
        file: PathBuf,
        /// The version of its schema.
        found: i64,
        /// The last version that is known here.
        known: i64,
    },
    /// Somebody else has it open.
    #[error("the catalogue `{}` is in use by another process", .file.display())]
    Locked {
        /// The catalogue.
        file: PathBuf,
    },
    /// A command or a request of a session that is not in the catalogue.
    #[error("cannot {attempted}: its session is not in the catalogue")]
    NoSession {
        /// What was attempted, as a verb and its object.
        attempted: &'static str,
    },
    /// A request that is not in the catalogue, or was decided.
    #[error("no request {id} waits for an answer in the catalogue")]
    NoRequest {
        /// Its number.
        id: u64,
    },
    /// An earlier failure has undone everything that was to be written together with this.
    #[error("cannot {attempted}: what belongs to it could not be written")]
    Undone {
        /// What was attempted, as a verb and its object.
        attempted: &'static str,
    },
    /// A file beside the catalogue could not be used.
    #[error("cannot {attempted} `{}`", .path.display())]
    Io {
        /// What was attempted, as a verb.
        attempted: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Anything else that `SQLite` refused.
    #[error("cannot {attempted} in the catalogue")]
    Other {
        /// What was attempted, as a verb and its object.
        attempted: &'static str,
        /// The cause.
        source: rusqlite::Error,
    },
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What is attempted, for the errors of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt<'a> {
    pub(super) attempted: &'static str,
    pub(super) file: &'a Path,
}

impl Attempt<'_> {
    /// What it means that `SQLite` failed.
    pub(super) fn failed(self, source: rusqlite::Error) -> CatalogueError {
        let Self { attempted, file } = self;
        let file = file.to_path_buf();
        let Some(code) = source.sqlite_error().copied() else {
            return CatalogueError::Other { attempted, source };
        };
        match code.code {
            ErrorCode::DiskFull => CatalogueError::Full { file },
            ErrorCode::ReadOnly => CatalogueError::ReadOnly { file },
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => CatalogueError::Locked { file },
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
                CatalogueError::Corrupt { file, reason: source.to_string() }
            }
            ErrorCode::ConstraintViolation
                if code.extended_code == ffi::SQLITE_CONSTRAINT_FOREIGNKEY =>
            {
                CatalogueError::NoSession { attempted }
            }
            _ => CatalogueError::Other { attempted, source },
        }
    }

    /// What it means that the kernel refused something beside the catalogue.
    pub(super) fn refused(self, path: &Path, source: std::io::Error) -> CatalogueError {
        use rustix::io::Errno;
        let Self { attempted, file } = self;
        let file = file.to_path_buf();
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::DQUOT) => CatalogueError::Full { file },
            Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => CatalogueError::ReadOnly { file },
            _ => CatalogueError::Io { attempted, path: path.to_path_buf(), source },
        }
    }

    /// Says that the transaction around it is gone.
    pub(super) fn undone(self) -> CatalogueError {
        CatalogueError::Undone { attempted: self.attempted }
    }

    /// Says that the file is damaged.
    pub(super) fn corrupt(self, reason: impl Into<String>) -> CatalogueError {
        CatalogueError::Corrupt { file: self.file.to_path_buf(), reason: reason.into() }
    }
}
