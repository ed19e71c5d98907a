//! Putting the host's tree together in the session's root, in the session's first process.

use super::{MOUNTS, mounts_of};
use crate::channel::{Channel, Peer};
use crate::keeper::stage::Builder;
use crate::kernel::{
    Extent, Failed, Step, attach, below_root, copy_mount, locate, path_of, restrict,
};
use cowork_api::plan::{Access, Place, Shows};
use cowork_api::seed::Outlook;
use cowork_sys::Errno;
use cowork_sys::mount::{Attributes, NODEV, NOSUID, RDONLY};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, mkdirat, openat};
use std::path::Path;

/// Takes over the copies of the host's mounts that the keeper sends.
pub(crate) fn receive(control: &Channel, outlook: &Outlook) -> Result<Vec<OwnedFd>, Failed> {
    let named = || "get the host's files from the keeper".to_owned();
    let mut mounts = Vec::new();
    while mounts.len() < mounts_of(outlook) {
        let packet = control.receive(Peer::Trusted).step(named)?;
        let packet = packet.filter(|packet| packet.bytes == MOUNTS && !packet.handles.is_empty());
        mounts.extend(packet.ok_or(Errno::BADMSG).step(named)?.handles);
    }
    Ok(mounts)
}

/// The mount of a file or folder with nothing in it, to cover others by copies of it.
#[derive(Default)]
struct Covers {
    folder: Option<String>,
    file: Option<String>,
}

impl Builder {
    /// Puts the host's tree into the session's root, and at each place what is to be seen there.
    pub(crate) fn show_host(
        &mut self,
        outlook: &Outlook,
        mounts: Vec<OwnedFd>,
    ) -> Result<(), Failed> {
        let mut mounts = mounts.into_iter();
        let mut next = || mounts.next().ok_or(Errno::BADMSG).step(|| "find a mount".into());
        for tree in &outlook.trees {
            let at = tree.as_slice();
            self.place(next()?.as_fd(), at)?;
            self.folders.push((below_root(at), None));
        }
        let mut covers = Covers::default();
        let mut places = outlook.places.as_slice();
        while let Some((place, rest)) = places.split_first() {
            places = rest;
            let at = place.path.as_slice();
            match &place.shows {
                Shows::Nothing => self.cover(&mut covers, at, inside(at, rest))?,
                Shows::Contents(contents) => self.replace(at, contents)?,
                Shows::Scratch => self.place_scratch(at, 0o1777, Access::Write)?,
                Shows::Read(_) | Shows::Direct(_) | Shows::Write(_) => {
                    self.place_of_host(&next()?, at)?;
                }
            }
        }
        Ok(())
    }

    fn place_of_host(&mut self, mount: &OwnedFd, at: &[u8]) -> Result<(), Failed> {
        let named = || format!("mount {}", String::from_utf8_lossy(at));
        let stat = rustix::fs::fstat(mount).step(named)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.make_place(at)?;
        } else if let Some((folder, below)) = self.own_folder(at) {
            make_file(folder, &below, b"").step(named)?;
        }
        self.place(mount.as_fd(), at)?;
        self.folders.push((below_root(at), None));
        Ok(())
    }

    /// Covers what is at a path, if something is: by a folder of its own if more is to be placed
    /// in it. Of what the session cannot reach, the folder is covered that it cannot look into.
    fn cover(&mut self, covers: &mut Covers, at: &[u8], inside: Inside) -> Result<(), Failed> {
        let named = || format!("hide {}", String::from_utf8_lossy(at));
        if let Some((folder, below)) = self.own_folder(at) {
            // The session's own folders have nothing of the host in them.
            return match inside {
                Inside::Nothing => Ok(()),
                Inside::More => make_folders(folder, &below).step(named),
            };
        }
        let mut path = below_root(at);
        let target = loop {
            match locate(self.root.as_fd(), &path) {
                Ok(target) => break target,
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
                Err(Errno::ACCESS) if path.pop() && !path.as_os_str().is_empty() => {}
                Err(errno) => return Err(Failed::new(named(), errno)),
            }
        };
        let stat = rustix::fs::fstat(&target).step(named)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_folder = kind == FileType::Directory;
        if is_folder && inside == Inside::More && path == below_root(at) {
            return self.place_scratch(at, 0o755, Access::Read);
        }
        let name = if is_folder { &mut covers.folder } else { &mut covers.file };
        let name = match name {
            Some(name) => name.clone(),
            None => name.insert(self.make_cover(kind).step(named)?).clone(),
        };
        let mount = copy_mount(self.scratch.as_fd(), Path::new(&name), Extent::One).step(named)?;
        restrict(mount.as_fd(), &READ_ONLY).step(named)?;
        attach(mount.as_fd(), target.as_fd()).step(named)
    }

    fn make_cover(&mut self, kind: FileType) -> Result<String, Errno> {
        let name = self.next_name();
        if kind == FileType::Directory {
            mkdirat(&self.scratch, &*name, Mode::from_raw_mode(0o755))?;
        } else {
            make_file(&self.scratch, Path::new(&name), b"")?;
        }
        Ok(name)
    }

    /// Shows other contents at a path, if a file is there, or the folder is the session's own.
    fn replace(&mut self, at: &[u8], contents: &[u8]) -> Result<(), Failed> {
        let named = || format!("replace {}", String::from_utf8_lossy(at));
        if let Some((folder, below)) = self.own_folder(at) {
            return make_file(folder, &below, contents).step(named);
        }
        let target = match locate(self.root.as_fd(), &below_root(at)) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
            target => target.step(named)?,
        };
        let name = self.next_name();
        make_file(&self.scratch, Path::new(&name), contents).step(named)?;
        let mount = copy_mount(self.scratch.as_fd(), Path::new(&name), Extent::One).step(named)?;
        restrict(mount.as_fd(), &READ_ONLY).step(named)?;
        attach(mount.as_fd(), target.as_fd()).step(named)
    }
}

const READ_ONLY: Attributes<'_> =
    Attributes { set: RDONLY | NOSUID | NODEV, propagation: None, idmap: None };

/// Whether something is to be placed in what is covered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Nothing,
    More,
}

/// Whether one of the places that follow lies below a path. They are in order.
fn inside(at: &[u8], rest: &[Place]) -> Inside {
    let mut near = rest.iter().take_while(|place| place.path.starts_with(at));
    if near.any(|place| path_of(&place.path).starts_with(path_of(at))) {
        Inside::More
    } else {
        Inside::Nothing
    }
}

/// Makes a file, with the folders above it that are missing.
fn make_file(folder: &OwnedFd, below: &Path, contents: &[u8]) -> Result<(), Errno> {
    if let Some(parent) = below.parent() {
        make_folders(folder, parent)?;
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(folder, below, flags, Mode::from_raw_mode(0o444))?;
    let mut rest = contents;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Makes every missing folder of `path`, all in a folder of the session's own.
pub(crate) fn make_folders(folder: &OwnedFd, path: &Path) -> Result<(), Errno> {
    let mut so_far = std::path::PathBuf::new();
    for part in path {
        so_far.push(part);
        match mkdirat(folder, &so_far, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
