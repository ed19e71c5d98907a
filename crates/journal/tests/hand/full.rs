//! A store whose disk is full: what cannot be kept is said, what cannot be recorded is not done.

use crate::bed::{Bed, CREATE, MODE, REPLACE, WRITE, opened, saved};
use cowork_journal::record::{Record, Saved, Why};
use rustix::fs::RenameFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

/// A store on a small disk of its own.
struct Small {
    bed: Bed,
}

impl Small {
    fn new() -> Self {
        let bed = Bed::new();
        let options = c"size=256k,mode=755";
        mount("tmpfs", bed.store(), "tmpfs", MountFlags::empty(), options).unwrap();
        Self { bed }
    }

    fn filler(&self) -> PathBuf {
        self.bed.store().join("filler")
    }

    /// Leaves no room but for so many bytes, which whole pages give.
    fn fill(&self, room: u64) {
        let mut file = File::options().append(true).create(true).open(self.filler()).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        let length = file.metadata().unwrap().len() & !4095;
        file.set_len(length.saturating_sub(room)).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        unmount(self.bed.store(), UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn contents_that_do_not_fit_are_lost_and_said_so() {
    let small = Small::new();
    let bed = &small.bed;
    bed.write("little", vec![b'x'; 60_000]);
    bed.write("large", vec![b'x'; 300_000]);
    bed.write("after", "short");
    let (mut hand, by) = bed.hand();
    small.fill(16 << 10);
    for name in ["little", "large"] {
        drop(opened(hand.open_file(by, bed.name(name).spot(), REPLACE, MODE)));
        let last = bed.changes().pop().unwrap();
        assert_eq!(*saved(&last), Saved::Lost(Why::NoSpace), "{name}");
        assert_eq!(bed.read(name).as_deref(), Some(""));
    }
    assert_eq!(hand.tally(by.set).lost, 2);
    std::fs::remove_file(small.filler()).unwrap();
    drop(opened(hand.open_file(by, bed.name("after").spot(), WRITE, MODE)));
    let last = bed.changes().pop().unwrap();
    assert_eq!(bed.kept(saved(&last)).as_deref(), Some("short"));
    let copies = std::fs::read_dir(bed.store()).unwrap().count();
    assert_eq!(copies, 2, "log and pack");
}

#[test]
fn what_cannot_be_recorded_is_not_done() {
    let small = Small::new();
    let bed = &small.bed;
    bed.write("a", "text");
    bed.write("b", "text");
    let (mut hand, by) = bed.hand();
    small.fill(0);
    // The last page of the log takes some more.
    let mut made = 0;
    let error = loop {
        let name = format!("new{made}");
        match hand.open_file(by, bed.name(&name).spot(), CREATE, MODE) {
            Ok(_) => made += 1,
            Err(error) => {
                assert_eq!(bed.read(&name), None);
                break error;
            }
        }
        assert!(made < 1000);
    };
    assert_eq!(error, Errno::NOSPC);
    let (a, b) = (bed.name("a"), bed.name("b"));
    let count = bed.entries().len();
    assert_eq!(hand.remove(by, a.spot()), Err(Errno::NOSPC));
    assert_eq!(hand.truncate(by, a.spot(), 0), Err(Errno::NOSPC));
    assert_eq!(hand.set_mode(by, a.spot(), MODE), Err(Errno::NOSPC));
    assert_eq!(hand.rename(by, a.spot(), b.spot(), RenameFlags::empty()), Err(Errno::NOSPC));
    assert_eq!(hand.rename(by, a.spot(), b.spot(), RenameFlags::EXCHANGE), Err(Errno::NOSPC));
    assert_eq!((bed.read("a").as_deref(), bed.read("b").as_deref()), (Some("text"), Some("text")));
    assert!(bed.trashed().is_empty());
    assert_eq!(bed.entries().len(), count);
    assert_eq!(hand.close(by.set), Err(Errno::NOSPC));

    std::fs::remove_file(small.filler()).unwrap();
    let by = crate::bed::begin(&mut hand);
    hand.remove(by, a.spot()).unwrap();
    let entries = bed.entries();
    assert!(matches!(entries.last().unwrap().record, Record::Remove { .. }));
    assert!(entries.windows(2).all(|two| two[0].seq + 1 == two[1].seq));
}
