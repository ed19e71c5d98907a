//! File systems that share blocks: what is written to is kept without being copied, whatever its
//! size, and brought back in the same way.

use crate::bed::{Bed, Trash, same};
use cowork_api::files::Caps;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A disk in a file, with such a file system on it.
struct Disk {
    place: PathBuf,
}

impl Drop for Disk {
    fn drop(&mut self) {
        run("umount", &[self.place.as_os_str()]);
    }
}

fn run(program: &str, arguments: &[&OsStr]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

/// A file system that shares blocks.
struct Sharing {
    name: &'static str,
    make: &'static str,
    options: &'static [&'static str],
    package: &'static str,
}

const BTRFS: Sharing = Sharing {
    name: "btrfs",
    make: "/usr/sbin/mkfs.btrfs",
    options: &["-q"],
    package: "btrfs-progs",
};
const XFS: Sharing = Sharing {
    name: "xfs",
    make: "/usr/sbin/mkfs.xfs",
    options: &["-q", "-m", "reflink=1"],
    package: "xfsprogs",
};

/// How large a disk is: the least that XFS wants, and a little.
const SIZE: u64 = 320 << 20;

impl Sharing {
    /// Whether there is a kernel for it. Says aloud, past the capture of the test harness, that
    /// something did not run. The program is a package away: without it this fails.
    fn can_run(&self) -> bool {
        let Self { name, make, package, .. } = self;
        let found = std::fs::metadata(make).is_ok();
        assert!(found, "{make} is missing: `apt-get install {package}`");
        let known = std::fs::read_to_string("/proc/filesystems").unwrap();
        let kernel = known.lines().any(|line| line.trim() == *name);
        if !kernel {
            let why = format!("the kernel has no {name}");
            cowork_testbed::not_run("files that share their blocks", &why);
        }
        kernel
    }

    /// Mounts a new disk, whose image lies in another folder.
    fn mount_disk(&self, image: &Path, place: &Path) {
        std::fs::File::create(image).unwrap().set_len(SIZE).unwrap();
        let mut arguments: Vec<&OsStr> = self.options.iter().map(OsStr::new).collect();
        arguments.push(image.as_os_str());
        run(self.make, &arguments);
        run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), place.as_os_str()]);
    }
}

#[test]
fn a_file_beyond_every_cap_is_kept_and_brought_back() {
    a_large_file(&BTRFS);
}

#[test]
fn a_file_beyond_every_cap_is_kept_and_brought_back_on_xfs() {
    a_large_file(&XFS);
}

fn a_large_file(on: &Sharing) {
    if !on.can_run() {
        return;
    }
    for trash in [Trash::Beside, Trash::None] {
        let outer = cowork_testbed::Folder::new(cowork_testbed::Person::Root, "image");
        let image = outer.path().join("image");
        let caps = Caps { file: 1 << 20, session: 1 << 20, ..Caps::default() };
        let bed = Bed::prepared("shared", trash, caps, |home| on.mount_disk(&image, home));
        let _disk = Disk { place: bed.home().to_path_buf() };
        let large: Vec<u8> = (0..24_u32 << 20).map(|byte| (byte % 251).to_le_bytes()[0]).collect();
        std::fs::write(bed.at("large"), &large).unwrap();
        std::fs::write(bed.at("other"), &large).unwrap();
        let before = bed.snapshot();
        bed.set(|command| {
            command.write("large", b"short now").unwrap();
            command.append("other", b"longer now").unwrap();
            let tally = command.hand.tally(command.by.set);
            assert_eq!((tally.copied, tally.lost), (0, 0), "{}, {trash:?}", on.name);
        });
        let restored = bed.undo_all();
        assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{}, {trash:?}", on.name);
        same(&bed.snapshot(), &before, &format!("{}, {trash:?}", on.name));
        bed.redo();
        assert_eq!(std::fs::read(bed.at("large")).unwrap(), b"short now");
    }
}
