//! Prints how long the changes of a folder take: by plain calls, by the hand, and with a store.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "it is a program that prints")]

use cowork_api::files::{Caps, SetKind};
use cowork_journal::hand::{By, Folder, Hand, Spot};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

const FILES: u32 = 5000;
const MODE: Mode = Mode::from_raw_mode(0o644);

fn main() -> Result<(), Errno> {
    let base = std::env::args().nth(1).unwrap_or_else(|| "/var/tmp".to_owned());
    let base = Path::new(&base).join(format!("cowork-speed-{}", std::process::id()));
    println!("{:10} {:>8} {:>8} {:>8} {:>8}  µs each", "", "create", "write", "rename", "unlink");
    for how in ["plain", "hand", "recorded"] {
        let mut room = Room::new(&base, how)?;
        let names = (0..FILES).filter_map(|number| CString::new(format!("file{number}")).ok());
        let names = names.collect::<Vec<_>>();
        let others = (0..FILES).filter_map(|number| CString::new(format!("other{number}")).ok());
        let others = others.collect::<Vec<_>>();
        let create = room.timed(&names, |room, name| room.open(name, OFlags::CREATE))?;
        room.boundary()?;
        let write = room.timed(&names, |room, name| room.open(name, OFlags::empty()))?;
        room.boundary()?;
        let mut next = others.iter();
        let rename = room.timed(&names, |room, name| {
            next.next().map_or(Ok(()), |other| room.rename(name, other))
        })?;
        let unlink = room.timed(&others, Room::unlink)?;
        println!("{how:10} {create:8.2} {write:8.2} {rename:8.2} {unlink:8.2}");
    }
    cowork_sys::ignore(std::fs::remove_dir_all(&base));
    Ok(())
}

struct Room {
    root: OwnedFd,
    hand: Option<Hand>,
    by: By,
}

impl Room {
    fn new(base: &Path, how: &str) -> Result<Self, Errno> {
        let made = ["grant", "trash", "store"].map(|name| {
            let path = base.join(how).join(name);
            cowork_sys::ignore(std::fs::create_dir_all(&path));
            rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        });
        let [root, trash, store] = made;
        let (root, trash, store) = (root?, trash?, store?);
        let mut room = Self { root, hand: None, by: By { set: 0, process: 1 } };
        if how != "plain" {
            let mut hand = Hand::open((how == "recorded").then_some(store))?;
            hand.add_folder(Folder {
                name: "site".to_owned(),
                path: Vec::new(),
                device: 1,
                inode: 1,
                root: rustix::io::dup(&room.root)?,
                trash: Some(trash),
                caps: Caps::default(),
                owner: None,
            })?;
            room.hand = Some(hand);
        }
        room.boundary()?;
        Ok(room)
    }

    fn boundary(&mut self) -> Result<(), Errno> {
        if let Some(hand) = &mut self.hand {
            hand.boundary()?;
            self.by.set = hand.begin(SetKind::Command, 1, Vec::new())?;
        }
        Ok(())
    }

    fn timed(
        &mut self,
        names: &[CString],
        mut act: impl FnMut(&mut Self, &CString) -> Result<(), Errno>,
    ) -> Result<f64, Errno> {
        let began = Instant::now();
        for name in names {
            act(self, name)?;
        }
        Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(FILES))
    }

    fn open(&mut self, name: &CString, flags: OFlags) -> Result<(), Errno> {
        let flags = flags | OFlags::WRONLY | OFlags::CLOEXEC;
        let Some(hand) = &mut self.hand else {
            return rustix::fs::openat(&self.root, name, flags, MODE).map(drop);
        };
        let spot = Spot { folder: 1, parent: self.root.as_fd(), name, path: name.as_bytes() };
        hand.open_file(self.by, spot, flags, MODE).map(drop)
    }

    fn rename(&mut self, from: &CString, to: &CString) -> Result<(), Errno> {
        let root = self.root.as_fd();
        let Some(hand) = &mut self.hand else {
            return rustix::fs::renameat(root, from, root, to);
        };
        let from = Spot { folder: 1, parent: root, name: from, path: from.as_bytes() };
        let to = Spot { folder: 1, parent: root, name: to, path: to.as_bytes() };
        hand.rename(self.by, from, to, RenameFlags::empty())
    }

    fn unlink(&mut self, name: &CString) -> Result<(), Errno> {
        let Some(hand) = &mut self.hand else {
            return rustix::fs::unlinkat(&self.root, name, AtFlags::empty());
        };
        let spot = Spot { folder: 1, parent: self.root.as_fd(), name, path: name.as_bytes() };
        hand.remove(self.by, spot)
    }
}
