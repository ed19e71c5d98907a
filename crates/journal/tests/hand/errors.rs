//! What cannot succeed has the kernel's own error and leaves no record.

use crate::bed::{Bed, CREATE, MODE, REPLACE, WRITE};
use cowork_journal::hand::{By, Hand, LinkSource, Opened};
use cowork_journal::record::Record;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The same tree twice: one for the hand, one for plain calls.
fn twins() -> (Bed, Bed) {
    let make = || {
        let bed = Bed::new();
        bed.write("file", "x");
        bed.write("full/inner/a", "x");
        std::fs::create_dir(bed.file("empty")).unwrap();
        std::os::unix::fs::symlink("file", bed.file("link")).unwrap();
        bed
    };
    (make(), make())
}

type Ours<'a> = &'a mut dyn FnMut(&mut Hand, By, &Bed) -> Result<(), Errno>;

/// Does something with the hand and without, and compares.
fn same(
    what: &str,
    ours: Ours<'_>,
    plain: impl FnOnce(&dyn Fn(&str) -> PathBuf) -> Result<(), Errno>,
) {
    let (bed, twin) = twins();
    let (mut hand, by) = bed.hand();
    let native = plain(&|name| twin.file(name));
    let outcome = ours(&mut hand, by, &bed);
    assert_eq!(outcome, native, "{what}");
    assert!(native.is_err(), "{what} is to fail");
    assert_eq!(bed.records(), vec![], "{what} leaves no record");
    assert!(bed.trashed().is_empty());
}

fn open(path: &Path, flags: OFlags) -> Result<(), Errno> {
    rustix::fs::open(path, flags, MODE).map(drop)
}

#[test]
fn opening_fails_like_the_kernel() {
    let cases = [
        ("missing", WRITE),
        ("file", CREATE | OFlags::EXCL),
        ("link", CREATE | OFlags::EXCL),
        ("empty", WRITE),
        ("empty", REPLACE),
        ("empty", OFlags::RDONLY | OFlags::CREATE),
        ("empty", CREATE | OFlags::EXCL),
        ("file", WRITE | OFlags::DIRECTORY),
        ("file", CREATE | OFlags::DIRECTORY),
    ];
    for (name, flags) in cases {
        let ours = &mut |hand: &mut Hand, by, bed: &Bed| {
            hand.open_file(by, bed.name(name).spot(), flags, MODE).map(drop)
        };
        same(&format!("open {name} {flags:?}"), ours, |file| open(&file(name), flags));
    }
}

#[test]
fn making_fails_like_the_kernel() {
    for name in ["file", "empty", "link"] {
        same(
            "mkdir",
            &mut |hand, by, bed| hand.make_folder(by, bed.name(name).spot(), MODE),
            |file| rustix::fs::mkdir(file(name), MODE),
        );
        same(
            "mknod",
            &mut |hand, by, bed| hand.make_node(by, bed.name(name).spot(), FileType::Fifo, MODE),
            |file| rustix::fs::mknodat(CWD, file(name), FileType::Fifo, MODE, 0),
        );
        same(
            "symlink",
            &mut |hand, by, bed| hand.make_link(by, bed.name(name).spot(), c"x"),
            |file| rustix::fs::symlink("x", file(name)),
        );
    }
    same(
        "empty target",
        &mut |hand, by, bed| hand.make_link(by, bed.name("n").spot(), c""),
        |file| rustix::fs::symlink("", file("n")),
    );
    for (from, to) in [("file", "link"), ("missing", "n"), ("empty", "n"), ("missing", "file")] {
        same(
            "link",
            &mut |hand, by, bed| {
                let source = bed.name(from);
                hand.add_name(by, LinkSource::Name(source.spot()), bed.name(to).spot())
            },
            |file| rustix::fs::linkat(CWD, file(from), CWD, file(to), AtFlags::empty()),
        );
    }
}

#[test]
fn removing_fails_like_the_kernel() {
    for name in ["missing", "empty", "full"] {
        same("unlink", &mut |hand, by, bed| hand.remove(by, bed.name(name).spot()), |file| {
            rustix::fs::unlink(file(name))
        });
    }
    for name in ["missing", "file", "link", "full"] {
        same(
            "rmdir",
            &mut |hand, by, bed| hand.remove_folder_entry(by, bed.name(name).spot()),
            |file| rustix::fs::rmdir(file(name)),
        );
    }
}

#[test]
fn renaming_fails_like_the_kernel() {
    let (none, keep, swap) = (RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE);
    let cases = [
        ("missing", "n", none),
        ("file", "empty", none),
        ("empty", "file", none),
        ("empty", "full", none),
        ("full", "full/inner/x", none),
        ("full", "full/inner", none),
        ("full/inner", "full", none),
        ("full/inner", "full", swap),
        ("file", "link", keep),
        ("file", "missing", swap),
        ("file", "link", keep | swap),
    ];
    for (from, to, flags) in cases {
        same(
            &format!("rename {from} {to} {flags:?}"),
            &mut |hand, by, bed| hand.rename(by, bed.name(from).spot(), bed.name(to).spot(), flags),
            |file| rustix::fs::renameat_with(CWD, file(from), CWD, file(to), flags),
        );
    }
}

#[test]
fn changing_attributes_fails_like_the_kernel() {
    same(
        "chmod",
        &mut |hand, by, bed| hand.set_mode(by, bed.name("missing").spot(), MODE),
        |file| rustix::fs::chmod(file("missing"), MODE),
    );
    same("truncate", &mut |hand, by, bed| hand.truncate(by, bed.name("empty").spot(), 0), |file| {
        open(&file("empty"), WRITE)
    });
    same(
        "new attribute",
        &mut |hand, by, bed| {
            let (spot, flags) = (bed.name("file"), XattrFlags::REPLACE);
            hand.set_attribute(by, spot.spot(), c"user.x", b"1", flags)
        },
        |file| rustix::fs::setxattr(file("file"), "user.x", b"1", XattrFlags::REPLACE),
    );
    same(
        "no attribute",
        &mut |hand, by, bed| hand.remove_attribute(by, bed.name("file").spot(), c"user.x"),
        |file| rustix::fs::removexattr(file("file"), "user.x"),
    );
}

#[test]
fn what_the_kernel_refuses_after_all_is_recorded_as_failed() {
    let bed = Bed::new();
    bed.write("d/a", "x");
    let (mut hand, by) = bed.hand();
    let (a, b) = (bed.name("d/a"), bed.name("d/b"));
    let long = "n".repeat(300);
    let name = bed.name(&long);
    assert_eq!(hand.make_folder(by, name.spot(), MODE), Err(Errno::NAMETOOLONG));
    assert_eq!(bed.records(), vec![]);
    rustix::fs::ioctl_setflags(
        std::fs::File::open(bed.file("d")).unwrap(),
        rustix::fs::IFlags::IMMUTABLE,
    )
    .unwrap();
    let removed = hand.remove(by, a.spot());
    let made = hand.make_folder(by, b.spot(), Mode::from_raw_mode(0o755));
    let renamed = hand.rename(by, a.spot(), b.spot(), RenameFlags::empty());
    let opened = hand.open_file(by, b.spot(), CREATE, MODE).map(drop);
    rustix::fs::ioctl_setflags(
        std::fs::File::open(bed.file("d")).unwrap(),
        rustix::fs::IFlags::empty(),
    )
    .unwrap();
    assert_eq!([removed, made, renamed, opened], [Err(Errno::PERM); 4].map(|error| error));
    let entries = bed.entries();
    let failed = entries
        .iter()
        .filter_map(|entry| match entry.record {
            Record::Failed { seq } => Some(seq),
            _ => None,
        })
        .collect::<Vec<_>>();
    let tried = entries
        .iter()
        .filter(|entry| {
            matches!(
                entry.record,
                Record::Remove { .. } | Record::Create { .. } | Record::Rename { .. }
            )
        })
        .map(|entry| entry.seq)
        .collect::<Vec<_>>();
    assert_eq!(failed, tried);
    assert_eq!(bed.read("d/a").as_deref(), Some("x"));
    assert!(bed.trashed().is_empty());
    let tally = hand.tally(by.set);
    assert_eq!((tally.removed, tally.created), (0, 0));
}

#[test]
fn a_closed_set_and_a_removed_folder_are_refused() {
    let bed = Bed::new();
    bed.write("a", "x");
    let (mut hand, by) = bed.hand();
    hand.close(by.set).unwrap();
    assert!(!hand.is_open(by.set));
    assert_eq!(hand.remove(by, bed.name("a").spot()), Err(Errno::STALE));
    let by = crate::bed::begin(&mut hand);
    hand.remove_folder(1);
    assert_eq!(hand.remove(by, bed.name("a").spot()), Err(Errno::ROFS));
    assert_eq!(bed.changes(), vec![Record::Closed]);
    let opened = hand.open_file(by, bed.name("a").spot(), WRITE, MODE);
    assert!(
        matches!(opened, Err(Errno::ROFS)),
        "{:?}",
        opened.map(|opened| matches!(opened, Opened::Link))
    );
}
