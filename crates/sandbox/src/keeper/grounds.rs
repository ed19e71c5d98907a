//! The keeper's mount namespaces, and moving between them.
//!
//! - the *host view*: what the keeper's user sees, as a slave of the host: mounts made on the host
//!   later appear, nothing made here leaks back. Granted folders are looked up here.
//! - the *hub*: nothing but one shared folder per session. What the keeper mounts there appears in
//!   the session, which has a slave of it; what it unmounts disappears.
//! - a *cradle* for each template: the root of sessions and nothing else. Sessions are cloned from
//!   there, so that making one costs the same however many mounts the host or other sessions have,
//!   there is no old root to let go of, and no mount of the host's own tree is ever in a session's
//!   namespace, not even while it is set up.
//!
//! No mount point is made on the host for any of this: each namespace has a root of its own.

use crate::broker::bound::BoundSockets;
use crate::channel::{Channel, Peer};
use crate::keeper::brokers::diagnostics_here;
use crate::keeper::commons::AllShared;
use crate::keeper::tree::MountList;
use crate::kernel::{Extent, Failed, Step, attach, copy_mount, new_file_system, open_folder};
use cowork_sys::Errno;
use cowork_sys::process::{Forked, Leave, Namespaces, SingleThreaded, fork, leave, unshare};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, mkdirat};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::path::Path;

/// One of the keeper's namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    HostView,
    Hub,
}

/// Who the keeper is on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// An ordinary user: sessions have the caller's own id.
    User { uid: u32, gid: u32 },
    /// Root: each session has an id of its own.
    Root,
}

#[derive(Debug)]
pub(crate) struct Grounds {
    host_view: OwnedFd,
    hub: OwnedFd,
    /// What is mounted in the host view.
    pub(crate) mounts: MountList,
    /// What sessions have in common whose folders overlap.
    pub(crate) shared: AllShared,
    at: Ground,
    mode: Standing,
    /// The UNIX sockets of the host's network.
    pub(crate) callers: BoundSockets,
}

impl Grounds {
    /// Makes the namespaces. Afterwards the keeper is in the hub.
    pub(crate) fn make(proof: &SingleThreaded) -> Result<Self, Failed> {
        // It will be in other networks.
        let callers = diagnostics_here().step(|| "list the sockets of the host".into())?;
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let mode = if uid == 0 { Standing::Root } else { Standing::User { uid, gid } };
        match mode {
            Standing::Root => unshare(proof, Leave::Mounts)
                .step(|| "make a mount namespace for the keeper".into())?,
            Standing::User { .. } => {
                unshare(proof, Leave::UserAndMounts)
                    .step(|| "make a user namespace for the keeper".into())?;
                map_self(uid, gid)?;
            }
        }
        mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
            .step(|| "separate the keeper's mounts from the host's".into())?;
        let host_view = own_mount_namespace()?;
        let mounts = MountList::open().step(|| "read the list of mounts".into())?;
        unshare(proof, Leave::Mounts).step(|| "make the hub of the keeper".into())?;
        let hub = settle(&["proc", "sessions", "nobody"])?;
        let processes = processes_of_nobody(proof)?;
        let place = open_folder(Path::new(NOBODY)).step(|| format!("open {NOBODY}"))?;
        attach(processes.as_fd(), place.as_fd()).step(|| format!("mount {NOBODY}"))?;
        let (shared, callers) = (AllShared::default(), BoundSockets::new(callers));
        Ok(Self { host_view, hub, mounts, shared, at: Ground::Hub, mode, callers })
    }

    /// Makes a cradle: `build` is called in a new namespace, which is a copy of the hub, and returns
    /// what becomes the root of it. The keeper comes back to where it was.
    pub(crate) fn cradle(
        &mut self,
        proof: &SingleThreaded,
        build: impl FnOnce() -> Result<OwnedFd, Failed>,
    ) -> Result<OwnedFd, Failed> {
        let back = self.at;
        self.enter(Ground::Hub)?;
        unshare(proof, Leave::Mounts).step(|| "make a cradle of sessions".into())?;
        // In what becomes its root, no process sees itself.
        let namespace = own_mount_namespace();
        // What is let go of here would otherwise go in the hub as well, and from there in every session
        // that has a folder.
        let made = mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .step(|| "separate a cradle's mounts from the hub's".into())
            .and_then(|()| build())
            .and_then(|root| become_root(&root));
        // Whatever came of it, it is not in the hub.
        self.go_to(Ground::Hub)?;
        self.enter(back)?;
        made.and(namespace)
    }

    pub(crate) fn mode(&self) -> Standing {
        self.mode
    }

    /// Moves the keeper to a namespace; its root and working directory become that one's.
    pub(crate) fn enter(&mut self, ground: Ground) -> Result<(), Failed> {
        if self.at == ground { Ok(()) } else { self.go_to(ground) }
    }

    fn go_to(&mut self, ground: Ground) -> Result<(), Failed> {
        let handle = match ground {
            Ground::HostView => &self.host_view,
            Ground::Hub => &self.hub,
        };
        move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Mount))
            .step(|| format!("enter the {ground:?} namespace"))?;
        self.at = ground;
        Ok(())
    }

    /// Does something in a namespace and comes back to where the keeper was.
    pub(crate) fn within<T>(
        &mut self,
        ground: Ground,
        work: impl FnOnce() -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        let back = self.at;
        self.enter(ground)?;
        let result = work();
        self.enter(back)?;
        result
    }
}

/// Maps the keeper's own ids to themselves in its new user namespace.
pub(super) fn map_self(uid: u32, gid: u32) -> Result<(), Failed> {
    let write = |name: &str, text: String| {
        std::fs::write(format!("/proc/self/{name}"), text)
            .step(|| format!("write the keeper's {name}"))
    };
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{uid} {uid} 1"))?;
    write("gid_map", format!("{gid} {gid} 1"))
}

/// Where the hub has a `/proc` without processes.
const NOBODY: &str = "/nobody";

/// A copy of the mount of a `/proc` in which there is no process and never will be one. In the hub.
///
/// The kernel lets a session mount a `/proc` of its own only from a namespace that already has one
/// with nothing hidden (`mount_too_revealing`). A cradle has this one, so that the host's is never in a
/// session's namespace.
pub(crate) fn nobodys_processes() -> Result<OwnedFd, Failed> {
    copy_mount(CWD, Path::new(NOBODY), Extent::One)
        .step(|| "copy the mount of a /proc without processes".into())
}

/// Has the first process of a new pid namespace mount its `/proc`, and end.
fn processes_of_nobody(proof: &SingleThreaded) -> Result<OwnedFd, Failed> {
    let named = || "make a /proc without processes".to_owned();
    let (ours, theirs) = Channel::pair().step(named)?;
    match fork(proof, Namespaces::Processes, None).step(named)? {
        Forked::Child => {
            let made = new_file_system("proc", &[], MountAttrFlags::empty());
            let sent = made.map(|mount| theirs.send(b"proc", &[mount.as_fd()]));
            leave(u8::from(!matches!(sent, Ok(Ok(())))))
        }
        Forked::Parent { handle, .. } => {
            drop(theirs);
            let packet = ours.receive(Peer::Trusted);
            waitid(WaitId::PidFd(handle.as_fd()), WaitIdOptions::EXITED).step(named)?;
            let packet = packet.step(named)?.ok_or(Errno::CHILD).step(named)?;
            packet.handles.into_iter().next().ok_or(Errno::BADMSG).step(named)
        }
    }
}

/// Replaces the root of the current (new) mount namespace by an empty file system that has these
/// folders and the host's `/proc`, and drops everything else.
fn settle(folders: &[&str]) -> Result<OwnedFd, Failed> {
    let proc = copy_mount(CWD, Path::new("/proc"), Extent::Tree)
        .step(|| "copy the mount of /proc".into())?;
    let root = new_file_system(
        "tmpfs",
        &[("mode", "0755"), ("size", "16M")],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )?;
    for folder in folders {
        mkdirat(&root, *folder, Mode::from_raw_mode(0o755))
            .step(|| format!("make the keeper's folder {folder}"))?;
    }
    // Any existing folder serves to attach the new root, which becomes the root at once.
    let anywhere = open_folder(Path::new("/proc")).step(|| "open /proc".into())?;
    attach(root.as_fd(), anywhere.as_fd()).step(|| "attach the keeper's root".into())?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let place = rustix::fs::openat(&root, "proc", flags, Mode::empty())
        .step(|| "open the keeper's /proc".into())?;
    attach(proc.as_fd(), place.as_fd()).step(|| "attach the keeper's /proc".into())?;
    become_root(&root)?;
    own_mount_namespace()
}

/// Makes the mount that `root` holds the root of this namespace, and lets go of the old one.
fn become_root(root: &OwnedFd) -> Result<(), Failed> {
    rustix::process::fchdir(root).step(|| "enter the new root".into())?;
    rustix::process::pivot_root(".", ".").step(|| "make the new root the root".into())?;
    unmount(".", UnmountFlags::DETACH).step(|| "let go of the old root".into())?;
    rustix::process::chdir("/").step(|| "enter the root".into())
}

fn own_mount_namespace() -> Result<OwnedFd, Failed> {
    rustix::fs::open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .step(|| "open the keeper's mount namespace".into())
}
