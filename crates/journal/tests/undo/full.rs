//! An undo on a disk that is full: it says so, loses nothing of either version, and is finished by
//! undoing again when there is room.

use crate::bed::{Bed, Command, Trash, same, same_but_links, wish};
use crate::scenarios::furnish;
use cowork_api::files::{Caps, Choice, Sets};
use cowork_journal::undo::undo;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

/// Which folders of a bed lie on a small disk.
#[derive(Clone, Copy, Debug)]
enum Small {
    /// The granted folder with its trash and its store.
    All,
    /// The granted folder alone.
    Grant,
    /// The store alone.
    Store,
}

/// What takes the room of a disk. A process that another test has just forked may hold the file for a
/// moment longer than this one: so it is emptied.
struct Filler(File);

impl Drop for Filler {
    fn drop(&mut self) {
        self.0.set_len(0).unwrap();
    }
}

/// A bed with a small disk.
struct Tight {
    bed: Bed,
    disk: PathBuf,
}

impl Tight {
    fn new(small: Small, trash: Trash) -> Self {
        let name = match small {
            Small::All => "",
            Small::Grant => "grant",
            Small::Store => "store",
        };
        let place = |home: &std::path::Path| {
            let disk = home.join(name);
            std::fs::create_dir_all(&disk).unwrap();
            mount("tmpfs", &disk, "tmpfs", MountFlags::empty(), c"size=4m,mode=755").unwrap();
        };
        let bed = Bed::prepared("full", trash, Caps::default(), place);
        let disk = bed.home().join(name);
        Self { bed, disk }
    }

    /// Leaves no room but for so many bytes, which whole pages give, until what is returned is
    /// dropped. It has no name: the folder stays as it is.
    fn fill(&self, room: u64) -> Filler {
        let flags = OFlags::RDWR | OFlags::TMPFILE;
        let mode = Mode::from_raw_mode(0o600);
        let mut file = File::from(rustix::fs::open(&self.disk, flags, mode).unwrap());
        while file.write_all(&[1; 4096]).is_ok() {}
        let length = file.metadata().unwrap().len() & !4095;
        file.set_len(length.saturating_sub(room)).unwrap();
        Filler(file)
    }
}

impl Drop for Tight {
    fn drop(&mut self) {
        unmount(&self.disk, UnmountFlags::DETACH).unwrap();
    }
}

/// Changes whose undo needs room.
fn mischief(command: &mut Command) {
    command.write("docs/1.txt", &vec![b'n'; 70_000]).unwrap();
    command.write("large.bin", b"short now").unwrap();
    command.append("src/main.c", &[b'm'; 9_000]).unwrap();
    command.unlink("docs/2.txt").unwrap();
    command.write("docs/new", &vec![b'x'; 20_000]).unwrap();
    command.rename("docs/new", "docs/3.txt").unwrap();
}

/// Undoes with less and less room taken, until it succeeds at once.
fn sweep(small: Small, trash: Trash) {
    let mut failed = 0;
    for room in (0..).map(|pages: u64| pages * 12 * 1024) {
        let tight = Tight::new(small, trash);
        let bed = &tight.bed;
        furnish(bed);
        let before = bed.snapshot();
        bed.set(mischief);
        let after = bed.snapshot();
        let what = format!("{room} bytes of room, {small:?} on the disk, trash {trash:?}");
        let filler = tight.fill(room);
        let all = wish(Sets::All, &[], Choice::Refuse);
        let outcome = undo(bed.store(), vec![bed.granted()], &all);
        drop(filler);
        match &outcome {
            Ok(restored) => {
                assert_eq!((&restored.lost, &restored.conflicts), (&vec![], &vec![]), "{what}");
            }
            Err(error) => {
                assert_eq!(*error, Errno::NOSPC, "{what}");
                failed += 1;
                let restored = bed.undo_all();
                assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{what}");
            }
        }
        same(&bed.snapshot(), &before, &what);
        let restored = bed.redo();
        assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{what}: redone");
        same_but_links(&bed.snapshot(), &after, &format!("{what}: redone"));
        if outcome.is_ok() {
            break;
        }
    }
    assert!(failed > 0, "there was room enough at once: {small:?}, trash {trash:?}");
}

#[test]
fn with_everything_on_it() {
    sweep(Small::All, Trash::Beside);
    sweep(Small::All, Trash::None);
}

#[test]
fn with_the_folder_on_it() {
    sweep(Small::Grant, Trash::None);
}

#[test]
fn with_the_records_on_it() {
    sweep(Small::Store, Trash::None);
}
