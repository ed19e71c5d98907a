//! Prints how long it takes to undo a removal of many files, in a log that grows.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "it is a program that prints")]

use cowork_api::files::{Caps, Choice, Selection, SetKind, Sets};
use cowork_journal::hand::{By, Folder, Hand, Opened, Spot};
use cowork_journal::model::Journal;
use cowork_journal::undo::{Manner, What, Wish, undo};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

const FOLDERS: u32 = 100;
const FILES: u32 = 100;

fn main() -> Result<(), Errno> {
    let mut words = std::env::args().skip(1);
    let base = words.next().unwrap_or_else(|| "/var/tmp".to_owned());
    let rounds: u32 = words.next().and_then(|word| word.parse().ok()).unwrap_or(5);
    let base = Path::new(&base).join(format!("cowork-undo-{}", std::process::id()));
    for part in ["grant", "trash", "store"] {
        cowork_sys::ignore(std::fs::create_dir_all(base.join(part)));
    }
    let room = Room { base: base.clone() };
    println!(
        "{:>10} {:>10} {:>10} {:>10} {:>10} {:>10}  ms",
        "records", "make", "remove", "read", "open", "undo"
    );
    for _ in 0..rounds {
        let make = room.work(Room::make)?;
        let remove = room.work(Room::remove)?;
        let began = Instant::now();
        let records = Journal::read(room.open("store")?.as_fd())?
            .sets()
            .iter()
            .map(|set| set.records)
            .sum::<u64>();
        let read = began.elapsed();
        let began = Instant::now();
        drop(Hand::open(Some(room.open("store")?))?);
        let open = began.elapsed();
        let wish = Wish {
            what: What::Changes(Selection { sets: Sets::Last, ..Selection::default() }),
            choice: Choice::Refuse,
            manner: Manner::Real,
        };
        let began = Instant::now();
        let done = undo(room.open("store")?, vec![room.folder()?], &wish)?;
        let took = began.elapsed();
        if done.done.is_empty() || !done.lost.is_empty() || !done.conflicts.is_empty() {
            return Err(Errno::IO);
        }
        println!(
            "{records:10} {make:10.1} {remove:10.1} {:10.1} {:10.1} {:10.1}",
            read.as_secs_f64() * 1e3,
            open.as_secs_f64() * 1e3,
            took.as_secs_f64() * 1e3
        );
        room.work(Room::remove)?;
    }
    cowork_sys::ignore(std::fs::remove_dir_all(&base));
    Ok(())
}

struct Room {
    base: PathBuf,
}

impl Room {
    fn open(&self, part: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, self.base.join(part), flags, Mode::empty())
    }

    fn folder(&self) -> Result<Folder, Errno> {
        let root = self.open("grant")?;
        let stat = rustix::fs::fstat(&root)?;
        Ok(Folder {
            name: "site".to_owned(),
            path: Vec::new(),
            device: stat.st_dev,
            inode: stat.st_ino,
            root,
            trash: Some(self.open("trash")?),
            caps: Caps::default(),
            owner: None,
        })
    }

    /// Does something in a set of its own; how many milliseconds that took.
    fn work(&self, work: fn(&Self, &mut Hand, By) -> Result<(), Errno>) -> Result<f64, Errno> {
        let mut hand = Hand::open(Some(self.open("store")?))?;
        hand.add_folder(self.folder()?)?;
        let set = hand.begin(SetKind::Command, 1, Vec::new())?;
        let began = Instant::now();
        work(self, &mut hand, By { set, process: 1 })?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        hand.close(set)?;
        Ok(took)
    }

    fn make(&self, hand: &mut Hand, by: By) -> Result<(), Errno> {
        for number in 0..FOLDERS {
            let folder = format!("folder{number}");
            self.at("", &folder, |spot| hand.make_folder(by, spot, Mode::from_raw_mode(0o755)))?;
            for number in 0..FILES {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
                let opened = self.at(&folder, &format!("file{number}"), |spot| {
                    hand.open_file(by, spot, flags, Mode::from_raw_mode(0o644))
                })?;
                if let Opened::File(file) = opened {
                    rustix::io::write(&file, &[b'x'; 1000])?;
                }
            }
        }
        Ok(())
    }

    fn remove(&self, hand: &mut Hand, by: By) -> Result<(), Errno> {
        for number in 0..FOLDERS {
            let folder = format!("folder{number}");
            for number in 0..FILES {
                self.at(&folder, &format!("file{number}"), |spot| hand.remove(by, spot))?;
            }
            self.at("", &folder, |spot| hand.remove_folder_entry(by, spot))?;
        }
        Ok(())
    }

    /// Does something with a name in a folder of the granted one.
    fn at<T>(
        &self,
        folder: &str,
        name: &str,
        work: impl FnOnce(Spot<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let parent = self.open(&format!("grant/{folder}"))?;
        let path = Path::new(folder).join(name);
        let name = CString::new(name).map_err(|_nul| Errno::INVAL)?;
        let path = path.as_os_str().as_encoded_bytes();
        work(Spot { folder: 1, parent: parent.as_fd(), name: &name, path })
    }
}
