//! A file system that shares blocks: what is written to is kept without being copied, whatever its
//! size, and brought back in the same way.

use crate::bed::{Bed, Trash, same};
use cowork_api::files::Caps;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A disk in a file, with btrfs on it.
struct Disk {
    place: PathBuf,
}

impl Drop for Disk {
    fn drop(&mut self) {
        run("umount", &[self.place.as_os_str()]);
    }
}

fn run(program: &str, arguments: &[&std::ffi::OsStr]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

const MAKE: &str = "/usr/sbin/mkfs.btrfs";

/// Whether there is a kernel for it. Says aloud, past the capture of the test harness, that something
/// did not run. The program is a package away: without it this fails.
fn can_run() -> bool {
    let found = std::fs::metadata(MAKE).is_ok();
    assert!(found, "{MAKE} is missing: `apt-get install btrfs-progs`");
    let known = std::fs::read_to_string("/proc/filesystems").unwrap();
    let kernel = known.lines().any(|line| line.trim() == "btrfs");
    if !kernel {
        cowork_testbed::not_run("files that share their blocks", "the kernel has no btrfs");
    }
    kernel
}

/// Mounts a new disk, whose image lies in another folder.
fn mount_disk(image: &Path, place: &Path) {
    std::fs::File::create(image).unwrap().set_len(256 << 20).unwrap();
    run(MAKE, &["-q".as_ref(), image.as_os_str()]);
    run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), place.as_os_str()]);
}

#[test]
fn a_file_beyond_every_cap_is_kept_and_brought_back() {
    if !can_run() {
        return;
    }
    for trash in [Trash::Beside, Trash::None] {
        let outer = cowork_testbed::Folder::new(cowork_testbed::Person::Root, "image");
        let image = outer.path().join("image");
        let caps = Caps { file: 1 << 20, session: 1 << 20, ..Caps::default() };
        let bed = Bed::prepared("shared", trash, caps, |home| mount_disk(&image, home));
        let _disk = Disk { place: bed.home().to_path_buf() };
        let large: Vec<u8> = (0..24_u32 << 20).map(|byte| (byte % 251).to_le_bytes()[0]).collect();
        std::fs::write(bed.at("large"), &large).unwrap();
        std::fs::write(bed.at("other"), &large).unwrap();
        let before = bed.snapshot();
        bed.set(|command| {
            command.write("large", b"short now").unwrap();
            command.append("other", b"longer now").unwrap();
            let tally = command.hand.tally(command.by.set);
            assert_eq!((tally.copied, tally.lost), (0, 0), "{trash:?}");
        });
        let restored = bed.undo_all();
        assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{trash:?}");
        same(&bed.snapshot(), &before, &format!("{trash:?}"));
        bed.redo();
        assert_eq!(std::fs::read(bed.at("large")).unwrap(), b"short now");
    }
}
