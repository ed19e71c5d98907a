//! Files of a session as the API reaches them: beneath the folder that was named, and nowhere else.

use super::Session;
use super::doc::{self, Phase};
use crate::book::at;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_client::types::{Access, FileEntry, Raw, Translated};
use cowork_policy::{HostPath, SessionPath, Translation};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Most entries of a folder that is listed.
const MAX_ENTRIES: usize = 100_000;

/// A folder, what may be done with it, and which folder it must be.
type Root = (PathBuf, Access, Option<(u64, u64)>);

/// A place in one of a session's folders.
#[derive(Debug)]
pub(crate) struct Place {
    folder: OwnedFd,
    path: PathBuf,
    access: Access,
}

impl Daemon {
    /// The host's folder behind a name of the API: `outputs`, `uploads`, `skills`, or a grant.
    /// With it, which folder it must be, unless it is the daemon's own.
    fn root_of(&self, session: &Session, root: &str) -> Result<Root, Trouble> {
        let doc = session.doc();
        let own = self.folders.session(&session.id);
        let kept = doc.grants.iter().find(|kept| kept.grant.name == root);
        if let Some(skills) = doc.spec.skills.filter(|_| root == "skills") {
            return Ok((doc::path(&skills.path)?, Access::Read, Some(skills.is)));
        }
        match (root, kept) {
            ("outputs", _) => match &doc.spec.outputs {
                Some(outputs) => Ok((
                    doc::path(outputs)?,
                    Access::Write,
                    Some(doc.spec.outputs_is.unwrap_or_default()),
                )),
                None => Ok((own.join("outputs"), Access::Write, None)),
            },
            // Read-only for the session, not for the user.
            ("uploads", _) => Ok((own.join("uploads"), Access::Write, None)),
            (_, Some(kept)) if kept.phase == Phase::Granted => {
                let is = Some((kept.device, kept.inode));
                Ok((doc::path(&kept.grant.path)?, kept.grant.access, is))
            }
            _ => Err(Trouble::missing(
                "no-root",
                format!("the session has no folder `{}`", root.escape_debug()),
            )
            .with_hint("`outputs`, `uploads`, `skills` if it has some, or the name of a grant")),
        }
    }

    /// A place below one of a session's folders.
    pub(crate) fn place(
        &self,
        session: &Session,
        root: &str,
        path: &[u8],
    ) -> Result<Place, Trouble> {
        if path.contains(&0) {
            return Err(Trouble::refused("bad-path", "a path contains a NUL"));
        }
        let path = Path::new(OsStr::from_bytes(path));
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain {
            return Err(Trouble::refused("bad-path", "a path below the folder is wanted")
                .with_hint("without `..` and without `/` at the start"));
        }
        let (folder, access, must_be) = self.root_of(session, root)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&folder, flags, Mode::empty())
            .map_err(|errno| explain(errno, "open the folder"))?;
        let stat = rustix::fs::fstat(&folder).map_err(|errno| explain(errno, "look at it"))?;
        if must_be.is_some_and(|is| is != (stat.st_dev, stat.st_ino)) {
            // A session that can write above it may have put a link in its place.
            return Err(Trouble::conflict("folder-changed", "it is no longer the folder granted"));
        }
        Ok(Place { folder, path: path.to_path_buf(), access })
    }

    /// A path of the host as the session sees it, and the other way round.
    pub(crate) fn translate(
        self: &Arc<Self>,
        session: &Session,
        host: Option<PathBuf>,
        inside: Option<PathBuf>,
    ) -> Result<Translated, Trouble> {
        let table = self.translation(session)?;
        match (host, inside) {
            (Some(host), None) => {
                let path = HostPath::new(&host)
                    .map_err(|error| Trouble::refused("bad-path", error.to_string()))?;
                let inside = table.to_session(&path).ok_or_else(|| {
                    let sentence = format!("the session does not see `{}`", host.display());
                    Trouble::missing("not-visible", sentence).with_hint("grant the folder it is in")
                })?;
                Ok(Translated { host: doc::raw(&host), session: doc::raw(inside.as_path()) })
            }
            (None, Some(inside)) => {
                let path = SessionPath::new(&inside)
                    .map_err(|error| Trouble::refused("bad-path", error.to_string()))?;
                let host = table.to_host(&path).ok_or_else(|| {
                    let sentence = format!("`{}` is not on the host", inside.display());
                    Trouble::missing("not-visible", sentence).with_hint(
                        "only granted folders, outputs, uploads, skills and the home are",
                    )
                })?;
                Ok(Translated { host: doc::raw(host.as_path()), session: doc::raw(&inside) })
            }
            _ => Err(Trouble::refused("bad-path", "either `host` or `session` is wanted")),
        }
    }

    fn translation(&self, session: &Session) -> Result<Translation, Trouble> {
        let doc = session.doc();
        let folder = self.folders.session(&session.id);
        let mut table = Translation::new();
        let mut add = |host: PathBuf, inside: String| {
            if let (Ok(host), Ok(inside)) = (HostPath::new(host), SessionPath::new(inside)) {
                table.insert(host, inside);
            }
        };
        if doc.spec.life == cowork_client::types::Life::Kept {
            let home = doc.spec.home.as_ref().map(doc::path).transpose()?;
            add(home.unwrap_or_else(|| folder.join("home")), doc.folder());
            add(folder.join("uploads"), format!("{}/mnt/uploads", doc.folder()));
            add(folder.join("outputs"), format!("{}/mnt/outputs", doc.folder()));
        }
        if let Some(outputs) = &doc.spec.outputs {
            add(doc::path(outputs)?, format!("{}/mnt/outputs", doc.folder()));
        }
        if let Some(skills) = &doc.spec.skills {
            add(doc::path(&skills.path)?, format!("{}/mnt/skills", doc.folder()));
        }
        for kept in &doc.grants {
            add(doc::path(&kept.grant.path)?, kept.grant.at.clone());
        }
        Ok(table)
    }
}

impl Place {
    fn open(&self, flags: OFlags, mode: u32) -> Result<OwnedFd, Errno> {
        let path = if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path };
        // A session may have planted links and special files: none is followed or waited for.
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let mut flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if !flags.contains(OFlags::PATH) {
            flags |= OFlags::NONBLOCK;
        }
        rustix::fs::openat2(&self.folder, path, flags, Mode::from_raw_mode(mode), resolve)
    }

    /// The folder at this place.
    pub(crate) fn folder(&self) -> Result<OwnedFd, Trouble> {
        self.open(OFlags::PATH | OFlags::DIRECTORY, 0)
            .map_err(|errno| explain(errno, "open it as a folder"))
    }

    /// Which folder is at this place: its device and number.
    pub(crate) fn identity(&self) -> Result<(u64, u64), Trouble> {
        let stat = rustix::fs::fstat(self.folder()?);
        let stat = stat.map_err(|errno| explain(errno, "look at it"))?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// A regular file to read, and its size.
    pub(crate) fn read(&self) -> Result<(std::fs::File, u64), Trouble> {
        let file = self.open(OFlags::RDONLY, 0).map_err(|errno| explain(errno, "open it"))?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| explain(errno, "look at it"))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => {
                return Err(Trouble::conflict("is-folder", "it is a folder")
                    .with_hint("list it with `?list=true`"));
            }
            _ => return Err(Trouble::refused("special-file", "it is not a regular file")),
        }
        Ok((std::fs::File::from(file), u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// Refuses what is no folder.
    pub(crate) fn must_be_folder(&self) -> Result<(), Trouble> {
        self.folder().map(drop)
    }

    fn parent(&self) -> Result<(Self, PathBuf), Trouble> {
        let name = self.path.file_name().map(PathBuf::from);
        let name = name.ok_or_else(|| Trouble::refused("bad-path", "a file must have a name"))?;
        let path = self.path.parent().map(Path::to_path_buf).unwrap_or_default();
        let folder = self
            .folder
            .try_clone()
            .map_err(|error| Trouble::host("cannot hold a folder", error))?;
        Ok((Self { folder, path, access: self.access }, name))
    }

    fn refuse_read_only(&self) -> Result<(), Trouble> {
        match self.access {
            Access::Write | Access::Direct | Access::Staged => Ok(()),
            Access::Read => Err(Trouble::forbidden("read-only", "the folder is granted read only")),
        }
    }

    /// A file to write beside the one that is meant; [`Writing::finish`] puts it in its place.
    pub(crate) fn write(&self) -> Result<Writing, Trouble> {
        self.refuse_read_only()?;
        let (parent, name) = self.parent()?;
        parent.make_folders()?;
        let folder = parent
            .open(OFlags::RDONLY | OFlags::DIRECTORY, 0)
            .map_err(|errno| explain(errno, "open its folder"))?;
        let mut entropy = [0; 8];
        rustix::rand::getrandom(&mut entropy, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| Trouble::host("cannot make up a name", errno))?;
        let new = PathBuf::from(format!(".cowork-{:016x}", u64::from_ne_bytes(entropy)));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&folder, &new, flags, Mode::from_raw_mode(0o644))
            .map_err(|errno| explain(errno, "make it"))?;
        Ok(Writing { folder, new, name, file: std::fs::File::from(file), done: false })
    }

    /// Makes it a folder, if it is none yet.
    pub(crate) fn make_folder(&self) -> Result<(), Trouble> {
        self.refuse_read_only()?;
        self.parent()?;
        self.make_folders()?;
        self.open(OFlags::PATH | OFlags::DIRECTORY, 0)
            .map(drop)
            .map_err(|errno| explain(errno, "make the folder"))
    }

    /// Makes the folders of its path that are missing.
    fn make_folders(&self) -> Result<(), Trouble> {
        let mut path = PathBuf::new();
        for part in self.path.components() {
            let above = Self {
                folder: self
                    .folder
                    .try_clone()
                    .map_err(|error| Trouble::host("cannot hold a folder", error))?,
                path: path.clone(),
                access: self.access,
            };
            let folder = above
                .open(OFlags::PATH | OFlags::DIRECTORY, 0)
                .map_err(|errno| explain(errno, "open its folder"))?;
            match rustix::fs::mkdirat(&folder, part.as_os_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(explain(errno, "make its folder")),
            }
            path.push(part);
        }
        Ok(())
    }

    /// Removes a file, or an empty folder.
    pub(crate) fn remove(&self) -> Result<(), Trouble> {
        self.refuse_read_only()?;
        let (parent, name) = self.parent()?;
        let folder = parent
            .open(OFlags::PATH | OFlags::DIRECTORY, 0)
            .map_err(|errno| explain(errno, "open its folder"))?;
        match rustix::fs::unlinkat(&folder, &name, AtFlags::empty()) {
            Err(Errno::ISDIR) => rustix::fs::unlinkat(&folder, &name, AtFlags::REMOVEDIR),
            result => result,
        }
        .map_err(|errno| explain(errno, "remove it"))
    }

    /// What is in a folder, sorted by name.
    pub(crate) fn list(&self) -> Result<Vec<FileEntry>, Trouble> {
        let folder = self
            .open(OFlags::RDONLY | OFlags::DIRECTORY, 0)
            .map_err(|errno| explain(errno, "open the folder"))?;
        let entries = rustix::fs::Dir::read_from(&folder)
            .map_err(|errno| explain(errno, "list the folder"))?;
        let mut list = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|errno| explain(errno, "list the folder"))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if list.len() == MAX_ENTRIES {
                let sentence = format!("the folder has more than {MAX_ENTRIES} entries");
                return Err(Trouble::refused("too-many-entries", sentence)
                    .with_hint("list it with a command in the session"));
            }
            let Ok(stat) = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => "file",
                FileType::Directory => "folder",
                FileType::Symlink => "link",
                _ => "other",
            };
            let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
            list.push(FileEntry {
                name: Raw::new(name.to_bytes()),
                kind: kind.into(),
                size: u64::try_from(stat.st_size).unwrap_or(0),
                modified: at(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)),
            });
        }
        list.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(list)
    }
}

/// A file that is being written. What is not finished is removed.
#[derive(Debug)]
pub(crate) struct Writing {
    folder: OwnedFd,
    new: PathBuf,
    name: PathBuf,
    pub(crate) file: std::fs::File,
    done: bool,
}

impl Writing {
    /// Puts the file in its place, in one step.
    pub(crate) fn finish(mut self) -> Result<(), Trouble> {
        self.file.sync_data().map_err(|error| Trouble::host("cannot write the file", error))?;
        rustix::fs::renameat(&self.folder, &self.new, &self.folder, &self.name)
            .map_err(|errno| explain(errno, "put it in its place"))?;
        self.done = true;
        Ok(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.done {
            cowork_sys::ignore(rustix::fs::unlinkat(&self.folder, &self.new, AtFlags::empty()));
        }
    }
}

fn explain(errno: Errno, step: &str) -> Trouble {
    let cause = std::io::Error::from(errno);
    match errno {
        Errno::NOENT => Trouble::missing("no-file", "there is no such file"),
        Errno::LOOP | Errno::XDEV => {
            Trouble::forbidden("link", "the path leads through a link, which is not followed")
        }
        Errno::NOTDIR => Trouble::refused("not-folder", "a part of the path is not a folder"),
        Errno::ISDIR | Errno::EXIST => Trouble::conflict("is-folder", "it is a folder"),
        Errno::NOTEMPTY => Trouble::conflict("not-empty", "the folder is not empty"),
        Errno::NAMETOOLONG | Errno::INVAL => {
            Trouble::refused("bad-path", format!("cannot {step}")).with_cause(cause)
        }
        Errno::NOSPC | Errno::DQUOT => Trouble::refused("no-space", format!("cannot {step}"))
            .with_cause(cause)
            .with_status(axum::http::StatusCode::INSUFFICIENT_STORAGE),
        Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NXIO | Errno::TXTBSY => {
            Trouble::forbidden("refused", format!("cannot {step}")).with_cause(cause)
        }
        _ => Trouble::host(format!("cannot {step}"), cause),
    }
}
