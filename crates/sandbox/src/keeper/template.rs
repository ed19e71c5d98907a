//! The part of a session's file system that all sessions of a keeper share.
//!
//! A template is built once, as the root of a namespace of its own, its cradle, and made read-only.
//! Sessions are cloned from there and have it for their root. Sources are copied from the host view, the
//! target is a file system of the keeper's own: no name of the host is ever written to.

use crate::keeper::grounds::{Ground, Grounds, nobodys_processes};
use crate::kernel::{
    Extent, Failed, Step, attach, below_root, copy_mount, locate, new_file_system, open_folder,
    path_of, restrict,
};
use cowork_api::plan::RootStep;
use cowork_sys::Errno;
use cowork_sys::mount::{Attributes, NODEV, NOEXEC, NOSUID, Propagation, RDONLY};
use cowork_sys::process::SingleThreaded;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, mkdirat, symlinkat};
use rustix::mount::{MountAttrFlags, MoveMountFlags, move_mount};
use std::path::Path;

/// Largest file of the host's system that is copied into a template; a larger one is bound.
const MAX_COPY: u64 = 256 * 1024;

/// The templates that a keeper has built.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    built: Vec<(Vec<RootStep>, OwnedFd)>,
}

/// A template's cradle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cradle<'a> {
    /// Which of the keeper's it is.
    pub(crate) number: usize,
    pub(crate) namespace: BorrowedFd<'a>,
}

/// What a step needs from the host view.
enum Source {
    /// Nothing.
    None,
    /// A copied mount of a folder.
    Folder(OwnedFd),
    /// A copied mount of a file or device.
    File(OwnedFd),
    /// The contents of a small file.
    Contents(Vec<u8>),
}

impl Templates {
    /// The number of the template made by these steps; it is built now if it is not there.
    pub(crate) fn prepare(
        &mut self,
        proof: &SingleThreaded,
        grounds: &mut Grounds,
        steps: &[RootStep],
    ) -> Result<usize, Failed> {
        if let Some(number) = self.built.iter().position(|(known, _)| known == steps) {
            return Ok(number);
        }
        let gather = || steps.iter().map(gather).collect::<Result<Vec<_>, _>>();
        let sources = grounds.within(Ground::HostView, gather)?;
        let namespace = grounds.cradle(proof, || build(steps, sources))?;
        self.built.push((steps.to_vec(), namespace));
        Ok(self.built.len() - 1)
    }

    /// The cradle of a template that was built.
    pub(crate) fn cradle(&self, number: usize) -> Option<Cradle<'_>> {
        let (_, namespace) = self.built.get(number)?;
        Some(Cradle { number, namespace: namespace.as_fd() })
    }
}

/// Takes from the host view what a step needs.
fn gather(step: &RootStep) -> Result<Source, Failed> {
    match step {
        RootStep::Folder { .. } | RootStep::Link { .. } | RootStep::File { .. } => Ok(Source::None),
        RootStep::System { from, .. } => {
            let from = path_of(from);
            let named = || format!("read {} of the host", from.display());
            let stat = rustix::fs::stat(from).step(named)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                let mount = bound(from, RDONLY | NOSUID | NODEV).step(named)?;
                return Ok(Source::Folder(mount));
            }
            if u64::try_from(stat.st_size).is_ok_and(|size| size <= MAX_COPY) {
                return std::fs::read(from).step(named).map(Source::Contents);
            }
            bound(from, RDONLY | NOSUID | NODEV).step(named).map(Source::File)
        }
        RootStep::Device { from, .. } => {
            let from = path_of(from);
            bound(from, NOSUID | NOEXEC)
                .step(|| format!("bind the device {}", from.display()))
                .map(Source::File)
        }
    }
}

fn bound(from: &Path, set: u64) -> Result<OwnedFd, Errno> {
    let mount = copy_mount(CWD, from, Extent::Tree)?;
    let propagation = Some(Propagation::Private);
    restrict(mount.as_fd(), &Attributes { set, propagation, idmap: None })?;
    Ok(mount)
}

/// Carries out the steps on a new file system, in a namespace of which it becomes the root.
fn build(steps: &[RootStep], sources: Vec<Source>) -> Result<OwnedFd, Failed> {
    let processes = nobodys_processes()?;
    let root = new_file_system(
        "tmpfs",
        &[("mode", "0755"), ("size", "32M")],
        MountAttrFlags::MOUNT_ATTR_NOSUID,
    )?;
    // Any folder serves to attach it, since it becomes the root at once.
    let target = open_folder(Path::new("/sessions")).step(|| "open /sessions".into())?;
    attach(root.as_fd(), target.as_fd()).step(|| "mount a template".into())?;
    for (step, source) in steps.iter().zip(sources) {
        place_step(&root, step, source)?;
    }
    let place = locate(root.as_fd(), Path::new("proc")).step(|| "find a place for /proc".into())?;
    attach(processes.as_fd(), place.as_fd()).step(|| "mount a /proc without processes".into())?;
    let read_only = Attributes { set: RDONLY, ..Attributes::default() };
    cowork_sys::mount::set_attributes(root.as_fd(), cowork_sys::mount::Depth::One, &read_only)
        .step(|| "make a template read-only".into())?;
    Ok(root)
}

fn place_step(root: &OwnedFd, step: &RootStep, source: Source) -> Result<(), Failed> {
    let (RootStep::Folder { at, .. }
    | RootStep::Link { at, .. }
    | RootStep::File { at, .. }
    | RootStep::System { at, .. }
    | RootStep::Device { at, .. }) = step;
    let at = below_root(at);
    let named = || format!("make /{} in the session's root", at.display());
    if let Some(parent) = at.parent() {
        make_folders(root, parent)?;
    }
    match (step, source) {
        (RootStep::Folder { mode, .. }, _) => {
            make_folders(root, &at)?;
            let folder = rustix::fs::openat(root, &at, OFlags::DIRECTORY, Mode::empty());
            rustix::fs::fchmod(folder.step(named)?, Mode::from_raw_mode(*mode)).step(named)
        }
        (RootStep::Link { to, .. }, _) => symlinkat(path_of(to), root, &at).step(named),
        (RootStep::File { contents, .. }, _) => write_new(root, &at, contents).step(named),
        (_, Source::Contents(contents)) => write_new(root, &at, &contents).step(named),
        (_, Source::Folder(mount)) => {
            make_folders(root, &at)?;
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            move_mount(&mount, "", root, &at, flags).step(named)
        }
        (_, Source::File(mount)) => {
            write_new(root, &at, b"").step(named)?;
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            move_mount(&mount, "", root, &at, flags).step(named)
        }
        (RootStep::System { .. } | RootStep::Device { .. }, Source::None) => {
            Err(Failed::new(named(), Errno::INVAL))
        }
    }
}

/// Makes every missing folder of `path`.
fn make_folders(root: &OwnedFd, path: &Path) -> Result<(), Failed> {
    let mut so_far = std::path::PathBuf::new();
    for part in path {
        so_far.push(part);
        match mkdirat(root, &so_far, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => {
                return Err(Failed::new(format!("make /{}", so_far.display()), errno));
            }
        }
    }
    Ok(())
}

fn write_new(root: &OwnedFd, at: &Path, contents: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, at, flags, Mode::from_raw_mode(0o644))?;
    let mut rest = contents;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(())
}
