//! One call of a session: its arguments, read once, and who made it.

use super::folders::{Folders, Start};
use super::paths::PATH_MAX;
use super::who::Caller;
use super::{Begun, Files, HERE};
use crate::broker::{Broker, low_half};
use cowork_journal::hand::By;
use cowork_sys::Errno;
use cowork_sys::memory::read_process;
use cowork_sys::seccomp::{Notification, still_waits};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

/// Most symbolic links that are followed for one path, as in the kernel.
const MAX_LINKS: u32 = 40;
/// The smallest page: a read that ends with one never touches a page that the string does not.
const PAGE: u64 = 4096;

/// A call that waits, with what was learnt about it.
pub(super) struct Call<'a> {
    pub(super) broker: &'a Broker,
    pub(super) files: &'a Files,
    pub(super) note: &'a Notification,
    /// The folders that were known when the call was received.
    pub(super) folders: Folders,
    /// How often a folder had been moved then, and how often anything had been changed.
    pub(super) moves: u64,
    pub(super) changes: u64,
    /// The folders that relative paths were found to start from, by descriptor.
    pub(super) starts: RefCell<Vec<(i32, Start)>>,
    /// The folder that was last gone down to, and from where.
    pub(super) descended: RefCell<Option<(Start, Vec<u8>, Start)>>,
    links: Cell<u32>,
    caller: OnceCell<Arc<Caller>>,
    by: Cell<Option<By>>,
    /// What it has begun to change.
    pub(super) begun: Cell<Option<Begun>>,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        broker: &'a Broker,
        files: &'a Files,
        note: &'a Notification,
        folders: Folders,
    ) -> Self {
        let (moves, changes) = (files.moves(&folders), files.names(&folders));
        Self {
            broker,
            files,
            note,
            folders,
            moves,
            changes,
            starts: RefCell::default(),
            descended: RefCell::default(),
            links: Cell::new(0),
            caller: OnceCell::new(),
            by: Cell::new(None),
            begun: Cell::new(None),
        }
    }

    /// An argument that is a pointer or a size.
    pub(super) fn long(&self, argument: usize) -> u64 {
        self.note.arguments.get(argument).copied().unwrap_or_default()
    }

    /// An argument that is an unsigned `int`.
    pub(super) fn number(&self, argument: usize) -> u32 {
        low_half(self.long(argument))
    }

    /// An argument that is a descriptor.
    pub(super) fn descriptor(&self, argument: usize) -> i32 {
        self.number(argument).cast_signed()
    }

    /// An argument that is permission bits.
    pub(super) fn mode(&self, argument: usize) -> Mode {
        Mode::from_raw_mode(self.number(argument) & 0o7777)
    }

    /// The path that an argument points to, which may be empty.
    pub(super) fn path(&self, argument: usize) -> Result<Vec<u8>, Errno> {
        self.string(self.long(argument), PATH_MAX, Errno::NAMETOOLONG)
    }

    /// The string at `address`, which with its NUL is at most `most` bytes long.
    pub(super) fn string(
        &self,
        address: u64,
        most: usize,
        too_long: Errno,
    ) -> Result<Vec<u8>, Errno> {
        /// How much is read first: most paths are shorter.
        const FIRST: usize = 256;
        let mut text: Vec<u8> = Vec::new();
        let mut chunk = [0; PATH_MAX];
        let mut want = FIRST;
        while text.len() < most {
            let at = address.checked_add(text.len() as u64).ok_or(Errno::FAULT)?;
            let in_page = usize::try_from(PAGE - at % PAGE).unwrap_or(1);
            let length = want.min(in_page).min(most - text.len());
            let buffer = chunk.get_mut(..length).unwrap_or_default();
            let read = read_process(self.note.thread, at, buffer)?;
            let part = buffer.get(..read).unwrap_or_default();
            if let Some(end) = part.iter().position(|byte| *byte == 0) {
                text.extend_from_slice(part.get(..end).unwrap_or_default());
                return Ok(text);
            }
            if read < length {
                return Err(Errno::FAULT);
            }
            text.extend_from_slice(part);
            want = PATH_MAX;
        }
        Err(too_long)
    }

    /// Exactly the bytes at `address`.
    pub(super) fn bytes(&self, address: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        if buffer.is_empty() {
            return Ok(());
        }
        let read = read_process(self.note.thread, address, buffer)?;
        if read == buffer.len() { Ok(()) } else { Err(Errno::FAULT) }
    }

    /// Says `ESRCH` when the caller is gone, and whatever was read by its number may be another's.
    pub(super) fn still_waits(&self) -> Result<(), Errno> {
        let waits = still_waits(self.broker.listener.as_fd(), self.note.id);
        if waits { Ok(()) } else { Err(Errno::SRCH) }
    }

    /// Who makes the call. Found by a number: whoever acts on it sees first whether the caller
    /// still waits.
    fn caller(&self) -> Result<&Caller, Errno> {
        if self.caller.get().is_none() {
            let caller = self.files.ledger.caller(self.note.thread)?;
            // Nobody else sets it: a call is one thread's.
            cowork_sys::ignore(self.caller.set(caller));
        }
        self.caller.get().map(Arc::as_ref).ok_or(Errno::SRCH)
    }

    /// A number that names the caller's thread and never another one.
    pub(super) fn key(&self) -> Result<u64, Errno> {
        Ok(self.caller()?.key)
    }

    /// The set and the process that this call's changes belong to.
    pub(super) fn by(&self) -> Result<By, Errno> {
        if let Some(by) = self.by.get() {
            return Ok(by);
        }
        let by = self.files.ledger.identify(self)?;
        self.by.set(Some(by));
        Ok(by)
    }

    /// What a relative path starts from: the working directory, or a descriptor. Found by a number,
    /// like the caller.
    pub(super) fn base(&self, descriptor: i32) -> Result<OwnedFd, Errno> {
        if descriptor != HERE {
            return self.file(descriptor);
        }
        let path = format!("{}/cwd", self.note.thread);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.files.processes, path, flags, Mode::empty())
    }

    /// The caller's open file with this number.
    pub(super) fn file(&self, descriptor: i32) -> Result<OwnedFd, Errno> {
        if descriptor < 0 {
            return Err(Errno::BADF);
        }
        pidfd_getfd(self.caller()?.handle.as_fd(), descriptor, PidfdGetfdFlags::empty())
    }

    /// Counts a symbolic link that is followed.
    pub(super) fn count_link(&self) -> Result<(), Errno> {
        let links = self.links.get() + 1;
        self.links.set(links);
        if links > MAX_LINKS { Err(Errno::LOOP) } else { Ok(()) }
    }
}
