//! Changes in one of a session's folders, as the kernel tells them (inotify).
//!
//! Every folder below the one that is named is watched by its handle: a link that a session plants
//! is told of, and not followed. What is not seen is said: folders beyond [`MAX_FOLDERS`] or that
//! the kernel refuses, and changes that came faster than they were taken.
//!
//! Deliberately absent: writes through a mapping, which the kernel does not tell; and a memory:
//! whoever comes back lists.

use super::files::Place;
use crate::trouble::Trouble;
use cowork_client::types::{FileChange, FileChangeKind as Kind, Raw};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, inotify};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Most folders that one stream watches.
const MAX_FOLDERS: usize = 4096;
/// Most entries of a new folder that are told one by one.
const MAX_FOUND: usize = 10_000;
/// Bytes of changes that are taken at a time.
const BUFFER: usize = 64 * 1024;

/// What was moved: the number that both halves of it have, where it was, whether it is a folder.
type Move = (u32, PathBuf, bool);

/// What the kernel tells: of which folder, what, with which number, of which name in it.
type Happened = (i32, inotify::ReadFlags, u32, Option<PathBuf>);

/// Something that a stream tells.
#[derive(Debug)]
pub(crate) enum News {
    /// Something changed.
    Change(FileChange),
    /// A folder is not watched, and why.
    Unwatched(PathBuf, &'static str),
    /// Changes were lost; everything is watched anew.
    Overflow,
    /// The folder itself is gone, or elsewhere.
    Gone,
}

/// A folder that is watched with everything below it.
pub(crate) struct Tree {
    root: OwnedFd,
    inotify: OwnedFd,
    /// Where each watched folder is, below the root.
    folders: HashMap<i32, PathBuf>,
    /// Kinds of folders that are not watched and were told of: once is enough.
    told: Vec<&'static str>,
}

impl Tree {
    /// Watches a place, and says what of it is not watched.
    pub(crate) fn new(place: &Place) -> Result<(Self, Vec<News>), Trouble> {
        let root = place.folder()?;
        let mut tree = Self { root, inotify: fresh()?, folders: HashMap::new(), told: Vec::new() };
        let mut news = Vec::new();
        tree.add(Path::new(""), 0, &mut news);
        if tree.folders.is_empty() {
            let sentence = "the kernel does not let this folder be watched";
            return Err(Trouble::forbidden("refused", sentence));
        }
        Ok((tree, news))
    }

    /// How many folders are watched.
    pub(crate) fn len(&self) -> usize {
        self.folders.len()
    }

    /// What is readable when something happened.
    pub(crate) fn handle(&self) -> std::io::Result<OwnedFd> {
        self.inotify.try_clone()
    }

    /// Watches a folder and those below it; the first so many things in them are told as new,
    /// because they came before they were watched.
    fn add(&mut self, path: &Path, mut untold: usize, news: &mut Vec<News>) {
        let mut open = vec![path.to_path_buf()];
        while let Some(path) = open.pop() {
            if self.folders.len() >= MAX_FOLDERS {
                self.skip(path, "limit", news);
                return;
            }
            let folder = match beneath(self.root.as_fd(), &path) {
                Ok(folder) => folder,
                // It is gone again, or is no folder any more.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(_) => {
                    self.skip(path, "refused", news);
                    continue;
                }
            };
            match watch(self.inotify.as_fd(), folder.as_fd()) {
                Ok(number) => drop(self.folders.insert(number, path.clone())),
                Err(Errno::NOSPC) => {
                    self.skip(path, "limit", news);
                    return;
                }
                Err(_) => {
                    self.skip(path, "refused", news);
                    continue;
                }
            }
            // Looked at after it is watched: nothing falls between the two.
            let Ok(entries) = rustix::fs::Dir::read_from(&folder) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                let path = path.join(OsStr::from_bytes(name));
                let is_folder = entry.file_type() == FileType::Directory;
                if untold > 0 {
                    untold -= 1;
                    news.push(change(Kind::Created, &path, is_folder));
                }
                if is_folder {
                    open.push(path);
                }
            }
        }
    }

    fn skip(&mut self, path: PathBuf, why: &'static str, news: &mut Vec<News>) {
        if !self.told.contains(&why) {
            self.told.push(why);
            news.push(News::Unwatched(path, why));
        }
    }

    /// Watches no folder at or below a path any more.
    fn forget(&mut self, path: &Path) {
        let inotify = self.inotify.as_fd();
        self.folders.retain(|number, known| {
            let stays = !known.starts_with(path);
            if !stays {
                // One that is gone is no longer watched anyway.
                cowork_sys::ignore(inotify::remove_watch(inotify, *number));
            }
            stays
        });
    }

    /// Takes some of what has happened; nothing if there is no more.
    pub(crate) fn take(&mut self) -> Result<Option<Vec<News>>, Trouble> {
        let happened = self.read()?;
        if happened.is_empty() {
            return Ok(None);
        }
        let mut news = Vec::new();
        // What was moved out of a folder, until it is known where to.
        let mut moved: Option<Move> = None;
        for (number, flags, cookie, name) in happened {
            use inotify::ReadFlags as F;
            if flags.contains(F::QUEUE_OVERFLOW) {
                // What is still told of the old watches means nothing any more.
                self.forget(Path::new(""));
                self.add(Path::new(""), 0, &mut news);
                news.push(News::Overflow);
                return Ok(Some(news));
            }
            let Some(folder) = self.folders.get(&number).cloned() else { continue };
            if folder.as_os_str().is_empty() && flags.intersects(F::DELETE_SELF | F::MOVE_SELF) {
                news.push(News::Gone);
                return Ok(Some(news));
            }
            if flags.contains(F::IGNORED) {
                self.folders.remove(&number);
            }
            let Some(name) = name else { continue };
            let (path, is_folder) = (folder.join(name), flags.contains(F::ISDIR));
            let came = moved.take_if(|(known, ..)| flags.contains(F::MOVED_TO) && *known == cookie);
            if let Some(left) = moved.take() {
                news.push(self.leave(left));
            }
            if flags.contains(F::MOVED_FROM) {
                moved = Some((cookie, path, is_folder));
            } else if let Some((_, from, _)) = came {
                self.relocate(&from, &path);
                news.push(News::Change(FileChange {
                    kind: Kind::Moved,
                    path: raw(&path),
                    from: Some(raw(&from)),
                    folder: is_folder,
                }));
            } else if flags.intersects(F::CREATE | F::MOVED_TO) {
                news.push(change(Kind::Created, &path, is_folder));
                if is_folder {
                    self.add(&path, MAX_FOUND, &mut news);
                }
            } else if flags.contains(F::DELETE) {
                news.push(self.leave((cookie, path, is_folder)));
            } else if flags.contains(F::CLOSE_WRITE) {
                news.push(change(Kind::Written, &path, is_folder));
            } else if flags.contains(F::MODIFY) {
                news.push(change(Kind::Changed, &path, is_folder));
            }
        }
        if let Some(left) = moved {
            news.push(self.leave(left));
        }
        news.dedup_by(|one, other| match (one, other) {
            (News::Change(one), News::Change(other)) => one == other,
            _ => false,
        });
        Ok(Some(news))
    }

    /// Reads what the kernel has to tell.
    fn read(&self) -> Result<Vec<Happened>, Trouble> {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut happened = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    let name = name.map(PathBuf::from);
                    happened.push((event.wd(), event.events(), event.cookie(), name));
                }
                Err(Errno::AGAIN) => return Ok(happened),
                Err(errno) => return Err(Trouble::host("cannot watch", errno)),
            }
            if reader.is_buffer_empty() {
                return Ok(happened);
            }
        }
    }

    /// Something is there no more.
    fn leave(&mut self, (_, path, is_folder): Move) -> News {
        if is_folder {
            self.forget(&path);
        }
        change(Kind::Removed, &path, is_folder)
    }

    /// A folder is elsewhere, with those below it; they are watched as before.
    fn relocate(&mut self, from: &Path, to: &Path) {
        for known in self.folders.values_mut() {
            if let Ok(rest) = known.strip_prefix(from) {
                // Joined with nothing it would end in a slash.
                *known = to.components().chain(rest.components()).collect();
            }
        }
    }
}

fn fresh() -> Result<OwnedFd, Trouble> {
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    inotify::init(flags).map_err(|errno| match errno {
        Errno::MFILE | Errno::NFILE => {
            Trouble::conflict("too-many", "this host lets you watch no more folders")
                .with_hint("raise `fs.inotify.max_user_instances`, or end another stream")
        }
        errno => Trouble::host("cannot watch", errno),
    })
}

/// A folder below another, whatever a session puts in its way.
fn beneath(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)
}

/// Watches the folder behind a handle.
fn watch(inotify: BorrowedFd<'_>, folder: BorrowedFd<'_>) -> Result<i32, Errno> {
    use inotify::WatchFlags as F;
    let wanted = F::CREATE | F::DELETE | F::MOVED_FROM | F::MOVED_TO | F::MODIFY | F::CLOSE_WRITE;
    let own = F::DELETE_SELF | F::MOVE_SELF | F::ONLYDIR | F::EXCL_UNLINK;
    inotify::add_watch(inotify, format!("/proc/self/fd/{}", folder.as_raw_fd()), wanted | own)
}

fn raw(path: &Path) -> Raw {
    Raw::new(path.as_os_str().as_bytes())
}

#[expect(clippy::fn_params_excessive_bools, reason = "it is a field of what is told")]
fn change(kind: Kind, path: &Path, folder: bool) -> News {
    News::Change(FileChange { kind, path: raw(path), from: None, folder })
}
