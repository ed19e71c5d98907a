//! Every operation is recorded before it is done, and done.

use crate::bed::{Bed, CREATE, MODE, REPLACE, WRITE, at, opened, saved};
use cowork_api::files::FileKind;
use cowork_journal::hand::{LinkSource, Opened};
use cowork_journal::record::{Record, Saved};
use rustix::fs::{
    FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags, getxattr, setxattr,
};
use rustix::io::Errno;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

fn create(path: &str, kind: FileKind) -> Record {
    Record::Create { at: at(path), kind, link_of: None }
}

#[test]
fn new_names_are_recorded_and_made() {
    let bed = Bed::new();
    let (mut hand, by) = bed.hand();
    let mut file = opened(hand.open_file(by, bed.name("a").spot(), CREATE, MODE));
    file.write_all(b"new").unwrap();
    hand.make_folder(by, bed.name("d").spot(), Mode::from_raw_mode(0o750)).unwrap();
    hand.make_node(by, bed.name("d/pipe").spot(), FileType::Fifo, MODE).unwrap();
    hand.make_node(by, bed.name("d/socket").spot(), FileType::Socket, MODE).unwrap();
    hand.make_node(by, bed.name("d/file").spot(), FileType::RegularFile, MODE).unwrap();
    hand.make_link(by, bed.name("d/link").spot(), c"../a").unwrap();
    hand.add_name(by, LinkSource::Name(bed.name("a").spot()), bed.name("d/b").spot()).unwrap();
    let expected = vec![
        create("a", FileKind::File),
        create("d", FileKind::Folder),
        create("d/pipe", FileKind::Other),
        create("d/socket", FileKind::Other),
        create("d/file", FileKind::File),
        create("d/link", FileKind::Link),
        Record::Create { at: at("d/b"), kind: FileKind::File, link_of: Some(at("a")) },
    ];
    assert_eq!(bed.changes(), expected);
    assert_eq!(bed.read("d/b").as_deref(), Some("new"));
    assert_eq!(std::fs::read_link(bed.file("d/link")).unwrap().to_str(), Some("../a"));
    assert!(std::fs::metadata(bed.file("d/pipe")).unwrap().file_type().is_fifo());
    assert!(std::fs::metadata(bed.file("d/socket")).unwrap().file_type().is_socket());
    assert_eq!(std::fs::metadata(bed.file("d")).unwrap().permissions().mode() & 0o777, 0o750);
    let tally = hand.tally(by.set);
    assert_eq!((tally.created, tally.removed, tally.copied), (7, 0, 0));
}

#[test]
fn what_is_written_to_is_saved_first() {
    let bed = Bed::new();
    bed.write("a", "before");
    setxattr(bed.file("a"), "user.mark", b"x", XattrFlags::empty()).unwrap();
    let look = std::fs::metadata(bed.file("a")).unwrap();
    let (mut hand, by) = bed.hand();
    let mut file = opened(hand.open_file(by, bed.name("a").spot(), REPLACE, MODE));
    assert_eq!(bed.read("a").as_deref(), Some(""));
    file.write_all(b"after").unwrap();
    let changes = bed.changes();
    let [Record::Write { at: written, before, saved }] = changes.as_slice() else {
        panic!("{changes:?}")
    };
    assert_eq!(*written, at("a"));
    assert_eq!(before.inode, look.ino());
    assert_eq!(before.mode, look.mode());
    assert_eq!((before.size, before.links), (6, 1));
    assert_eq!(before.mtime.0, look.mtime());
    assert_eq!(before.attributes, vec![(b"user.mark".to_vec(), b"x".to_vec())]);
    assert_eq!(bed.kept(saved).as_deref(), Some("before"));
    assert_eq!(hand.tally(by.set).removed, 1);
    assert_eq!(hand.tally(by.set).copied, 6);
}

#[test]
fn a_file_can_be_written_to_without_being_cut() {
    let bed = Bed::new();
    bed.write("a", "before");
    let (mut hand, by) = bed.hand();
    let flags = OFlags::RDWR | OFlags::APPEND;
    let mut file = opened(hand.open_file(by, bed.name("a").spot(), flags, MODE));
    file.write_all(b" and after").unwrap();
    assert_eq!(bed.read("a").as_deref(), Some("before and after"));
    let status = rustix::fs::fcntl_getfl(&file).unwrap();
    assert!(status.contains(flags) && !status.contains(OFlags::NONBLOCK));
    assert_eq!(bed.kept(saved(&bed.changes()[0])).as_deref(), Some("before"));
    assert_eq!(hand.tally(by.set).removed, 1);
    // It counts once, whatever becomes of it, and what is new does not.
    drop(opened(hand.open_file(by, bed.name("a").spot(), OFlags::WRONLY, MODE)));
    hand.truncate(by, bed.name("a").spot(), 3).unwrap();
    drop(opened(hand.open_file(by, bed.name("b").spot(), flags | OFlags::CREATE, MODE)));
    drop(opened(hand.open_file(by, bed.name("b").spot(), flags, MODE)));
    hand.remove(by, bed.name("a").spot()).unwrap();
    assert_eq!(hand.tally(by.set).removed, 1);
}

#[test]
fn cutting_and_reading_at_once_gives_a_reader() {
    let bed = Bed::new();
    bed.write("a", "before");
    let (mut hand, by) = bed.hand();
    let flags = OFlags::RDONLY | OFlags::TRUNC;
    let mut file = opened(hand.open_file(by, bed.name("a").spot(), flags, MODE));
    assert_eq!(file.read(&mut [0; 8]).unwrap(), 0);
    assert!(file.write_all(b"x").is_err());
    assert_eq!(bed.read("a").as_deref(), Some(""));
    assert_eq!(bed.kept(saved(&bed.changes()[0])).as_deref(), Some("before"));
}

#[test]
fn truncation_saves_the_whole() {
    let bed = Bed::new();
    bed.write("a", "0123456789");
    let (mut hand, by) = bed.hand();
    hand.truncate(by, bed.name("a").spot(), 4).unwrap();
    assert_eq!(bed.read("a").as_deref(), Some("0123"));
    assert_eq!(bed.kept(saved(&bed.changes()[0])).as_deref(), Some("0123456789"));
}

#[test]
fn what_is_removed_is_itself_in_the_trash() {
    let bed = Bed::new();
    bed.write("d/a", "before");
    let inode = std::fs::metadata(bed.file("d/a")).unwrap().ino();
    let (mut hand, by) = bed.hand();
    hand.remove(by, bed.name("d/a").spot()).unwrap();
    assert_eq!(bed.read("d/a"), None);
    let records = bed.records();
    let [Record::Inside { at: inside, .. }, Record::Remove { at: gone, before, saved }] =
        records.as_slice()
    else {
        panic!("{records:?}")
    };
    assert_eq!((inside, gone, before.inode), (&at("d"), &at("d/a"), inode));
    let Saved::Trash(seq) = saved else { panic!("{saved:?}") };
    assert_eq!(*seq, bed.entries().last().unwrap().seq);
    let kept = std::fs::metadata(bed.trash().join(format!("t{seq}"))).unwrap();
    assert_eq!(kept.ino(), inode);
    assert_eq!(bed.kept(saved).as_deref(), Some("before"));
    assert_eq!(hand.tally(by.set).removed, 1);
}

#[test]
fn a_link_a_pipe_and_a_folder_are_removed() {
    let bed = Bed::new();
    std::os::unix::fs::symlink("nowhere", bed.file("link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, bed.file("pipe"), MODE).unwrap();
    std::fs::create_dir(bed.file("d")).unwrap();
    let (mut hand, by) = bed.hand();
    hand.remove(by, bed.name("link").spot()).unwrap();
    hand.remove(by, bed.name("pipe").spot()).unwrap();
    hand.remove_folder_entry(by, bed.name("d").spot()).unwrap();
    let changes = bed.changes();
    assert_eq!(*saved(&changes[0]), Saved::Link(b"nowhere".to_vec()));
    assert!(matches!(saved(&changes[1]), Saved::Trash(_)));
    assert_eq!(bed.kept(saved(&changes[1])), None);
    assert!(matches!(&changes[2], Record::RemoveFolder { at: gone, .. } if *gone == at("d")));
    assert_eq!(std::fs::read_dir(bed.grant()).unwrap().count(), 0);
}

#[test]
fn renaming_keeps_what_it_replaces() {
    let bed = Bed::new();
    bed.write("a", "new");
    bed.write("b", "old");
    let (mut hand, by) = bed.hand();
    let none = RenameFlags::empty();
    hand.rename(by, bed.name("a").spot(), bed.name("b").spot(), none).unwrap();
    assert_eq!((bed.read("a"), bed.read("b").as_deref()), (None, Some("new")));
    let changes = bed.changes();
    let [removal @ Record::Remove { at: gone, .. }, renaming] = changes.as_slice() else {
        panic!("{changes:?}")
    };
    assert_eq!(*gone, at("b"));
    assert_eq!(bed.kept(saved(removal)).as_deref(), Some("old"));
    assert_eq!(*renaming, Record::Rename { from: at("a"), to: at("b"), kind: FileKind::File });
    assert_eq!(hand.tally(by.set).removed, 1);
}

#[test]
fn a_folder_replaces_an_empty_one() {
    let bed = Bed::new();
    bed.write("d/a", "x");
    std::fs::create_dir(bed.file("e")).unwrap();
    let (mut hand, by) = bed.hand();
    let none = RenameFlags::empty();
    hand.rename(by, bed.name("d").spot(), bed.name("e").spot(), none).unwrap();
    assert_eq!(bed.read("e/a").as_deref(), Some("x"));
    let changes = bed.changes();
    assert!(matches!(&changes[0], Record::RemoveFolder { at: gone, .. } if *gone == at("e")));
    let renaming = Record::Rename { from: at("d"), to: at("e"), kind: FileKind::Folder };
    assert_eq!(changes[1], renaming);
}

#[test]
fn exchange_is_one_record() {
    let bed = Bed::new();
    bed.write("a", "1");
    bed.write("d/b", "2");
    let inode = std::fs::metadata(bed.file("a")).unwrap().ino();
    let (mut hand, by) = bed.hand();
    let flags = RenameFlags::EXCHANGE;
    hand.rename(by, bed.name("a").spot(), bed.name("d/b").spot(), flags).unwrap();
    assert_eq!(bed.read("a").as_deref(), Some("2"));
    assert_eq!(bed.changes(), vec![Record::Exchange { one: at("a"), other: at("d/b"), inode }]);
    let insides = bed.records().len() - bed.changes().len();
    assert_eq!(insides, 2);
}

#[test]
fn two_names_of_one_file_are_not_renamed() {
    let bed = Bed::new();
    bed.write("a", "1");
    std::fs::hard_link(bed.file("a"), bed.file("b")).unwrap();
    let (mut hand, by) = bed.hand();
    let none = RenameFlags::empty();
    hand.rename(by, bed.name("a").spot(), bed.name("b").spot(), none).unwrap();
    assert!(bed.read("a").is_some() && bed.read("b").is_some());
    assert_eq!(bed.records(), vec![]);
}

#[test]
fn attributes_are_recorded_once_in_a_set() {
    let bed = Bed::new();
    bed.write("a", "1");
    std::os::unix::fs::symlink("a", bed.file("link")).unwrap();
    let before = std::fs::metadata(bed.file("a")).unwrap();
    let (mut hand, by) = bed.hand();
    let a = bed.name("a");
    hand.set_mode(by, a.spot(), Mode::from_raw_mode(0o4751)).unwrap();
    hand.set_owner(by, a.spot(), Some(12), Some(34)).unwrap();
    let time = Timespec { tv_sec: 1000, tv_nsec: 5 };
    let times = Timestamps { last_access: time, last_modification: time };
    hand.set_times(by, a.spot(), &times).unwrap();
    hand.set_attribute(by, a.spot(), c"user.x", b"value", XattrFlags::empty()).unwrap();
    let changes = bed.changes();
    let [Record::Attributes { at: changed, before: recorded }] = changes.as_slice() else {
        panic!("{changes:?}")
    };
    assert_eq!(*changed, at("a"));
    assert_eq!((recorded.mode, recorded.uid), (before.mode(), before.uid()));
    assert_eq!(recorded.mtime.0, before.mtime());
    let now = std::fs::metadata(bed.file("a")).unwrap();
    assert_eq!((now.uid(), now.gid(), now.mtime()), (12, 34, 1000));
    assert_eq!(now.mode() & 0o777, 0o751);
    let mut value = [0; 8];
    assert_eq!(getxattr(bed.file("a"), "user.x", &mut value), Ok(5));
    hand.remove_attribute(by, a.spot(), c"user.x").unwrap();
    assert_eq!(getxattr(bed.file("a"), "user.x", &mut value), Err(Errno::NODATA));

    let link = bed.name("link");
    hand.set_times(by, link.spot(), &times).unwrap();
    hand.set_owner(by, link.spot(), Some(12), None).unwrap();
    assert_eq!(hand.set_mode(by, link.spot(), MODE), Err(Errno::OPNOTSUPP));
    let link = std::fs::symlink_metadata(bed.file("link")).unwrap();
    assert_eq!((link.mtime(), link.uid()), (1000, 12));
    let root = bed.name("");
    hand.set_mode(by, root.spot(), Mode::from_raw_mode(0o711)).unwrap();
    let recorded = bed.changes();
    assert!(matches!(&recorded[2], Record::Attributes { at: root, .. } if *root == at("")));
    assert_eq!(recorded.len(), 3);
}

#[test]
fn a_file_without_a_name_gets_one() {
    let bed = Bed::new();
    let (mut hand, by) = bed.hand();
    let root = bed.name("");
    let file = hand.open_tmpfile(by, 1, root.spot().parent, OFlags::RDWR, MODE).unwrap();
    rustix::io::write(&file, b"text").unwrap();
    assert_eq!(bed.records(), vec![]);
    hand.add_name(by, LinkSource::File(file.as_fd()), bed.name("a").spot()).unwrap();
    assert_eq!(bed.read("a").as_deref(), Some("text"));
    assert_eq!(bed.changes(), vec![create("a", FileKind::File)]);
    hand.remove(by, bed.name("a").spot()).unwrap();
    assert_eq!(*saved(&bed.changes()[1]), Saved::Same);
}

#[test]
fn what_the_caller_makes_itself_is_announced() {
    let bed = Bed::new();
    let (mut hand, by) = bed.hand();
    let intent = hand.announce(by, bed.name("socket").spot(), FileKind::Other).unwrap();
    drop(std::os::unix::net::UnixListener::bind(bed.file("socket")).unwrap());
    drop(intent);
    let intent = hand.announce(by, bed.name("other").spot(), FileKind::Other).unwrap();
    hand.failed(intent).unwrap();
    let again = hand.announce(by, bed.name("socket").spot(), FileKind::Other);
    assert_eq!(again.unwrap_err(), Errno::EXIST);
    let last = bed.entries().last().unwrap().seq;
    let expected = vec![
        create("socket", FileKind::Other),
        create("other", FileKind::Other),
        Record::Failed { seq: last - 1 },
    ];
    assert_eq!(bed.changes(), expected);
    assert_eq!(hand.tally(by.set).created, 1);
}

#[test]
fn links_and_special_files_are_not_opened() {
    let bed = Bed::new();
    std::os::unix::fs::symlink("a", bed.file("link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, bed.file("pipe"), MODE).unwrap();
    let (mut hand, by) = bed.hand();
    let link = hand.open_file(by, bed.name("link").spot(), REPLACE, MODE);
    assert!(matches!(link, Ok(Opened::Link)));
    let pipe = hand.open_file(by, bed.name("pipe").spot(), WRITE, MODE);
    assert!(matches!(pipe, Ok(Opened::Special)));
    assert_eq!(bed.records(), vec![]);
}

#[test]
fn owners_are_recorded_as_on_disk() {
    let mut bed = Bed::new();
    bed.owner = Some((4711, 4712));
    bed.write("a", "1");
    bed.write("b", "1");
    std::os::unix::fs::chown(bed.file("b"), Some(5), Some(6)).unwrap();
    let (mut hand, by) = bed.hand();
    drop(opened(hand.open_file(by, bed.name("a").spot(), WRITE, MODE)));
    drop(opened(hand.open_file(by, bed.name("b").spot(), WRITE, MODE)));
    let owners = bed
        .changes()
        .iter()
        .map(|record| match record {
            Record::Write { before, .. } => (before.uid, before.gid),
            other => panic!("{other:?}"),
        })
        .collect::<Vec<_>>();
    assert_eq!(owners, vec![(4711, 4712), (5, 6)]);
}
