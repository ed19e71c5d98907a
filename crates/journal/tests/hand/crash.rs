//! A record that nobody acted upon is found out when its folder is added again.

use crate::bed::{Bed, CREATE, MODE, at, begin, folder, opened, saved};
use cowork_api::files::FileKind;
use cowork_journal::hand::Hand;
use cowork_journal::record::{Meta, Record, Saved};
use rustix::fs::{Mode, RenameFlags};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// What is recorded of a name.
fn meta(bed: &Bed, name: &str) -> Meta {
    let look = std::fs::symlink_metadata(bed.file(name)).unwrap();
    let time = |seconds, nanoseconds| (seconds, u32::try_from(nanoseconds).unwrap());
    Meta {
        inode: look.ino(),
        mode: look.mode(),
        uid: look.uid(),
        gid: look.gid(),
        links: u32::try_from(look.nlink()).unwrap(),
        size: look.size(),
        mtime: time(look.mtime(), look.mtime_nsec()),
        atime: time(look.atime(), look.atime_nsec()),
        ctime: time(look.ctime(), look.ctime_nsec()),
        attributes: Vec::new(),
    }
}

/// A folder with a set that is not closed.
fn crashed() -> Bed {
    let bed = Bed::new();
    bed.write("a", "0");
    bed.write("b", "1");
    bed.write("full/x", "2");
    std::fs::create_dir(bed.file("empty")).unwrap();
    drop(bed.hand());
    bed
}

/// Which records were found out not to have happened.
fn failed(bed: &Bed) -> Vec<u64> {
    let mut hand = bed.reopen();
    begin(&mut hand);
    let failed = |record| match record {
        Record::Failed { seq } => Some(seq),
        _ => None,
    };
    bed.records().into_iter().filter_map(failed).collect()
}

fn removal(bed: &Bed, name: &str, saved: Saved) -> Record {
    Record::Remove { at: at(name), before: meta(bed, name), saved }
}

fn renaming(from: &str, to: &str) -> Record {
    Record::Rename { from: at(from), to: at(to), kind: FileKind::File }
}

#[test]
fn a_name_that_was_not_made() {
    let bed = crashed();
    let record = Record::Create { at: at("new"), kind: FileKind::File, link_of: None };
    let seq = bed.append(1, record.clone());
    assert_eq!(failed(&bed), [seq]);
    let bed = crashed();
    bed.append(1, record);
    bed.write("new", "");
    assert!(failed(&bed).is_empty());
}

#[test]
fn a_name_that_was_not_removed() {
    let bed = crashed();
    let seq = bed.entries().len() as u64 + 1;
    std::fs::hard_link(bed.file("a"), bed.trash().join(format!("t{seq}"))).unwrap();
    bed.append(1, removal(&bed, "a", Saved::Trash(seq)));
    assert_eq!(failed(&bed), [seq]);
    assert!(bed.trashed().is_empty());

    let bed = crashed();
    let seq = bed.entries().len() as u64 + 1;
    std::fs::hard_link(bed.file("a"), bed.trash().join(format!("t{seq}"))).unwrap();
    bed.append(1, removal(&bed, "a", Saved::Trash(seq)));
    std::fs::remove_file(bed.file("a")).unwrap();
    assert!(failed(&bed).is_empty());
    assert_eq!(bed.trashed().len(), 1);
}

#[test]
fn a_name_that_was_moved_into_the_trash() {
    let bed = crashed();
    let seq = bed.entries().len() as u64 + 1;
    bed.append(1, removal(&bed, "a", Saved::Trash(seq)));
    std::fs::rename(bed.file("a"), bed.trash().join(format!("t{seq}"))).unwrap();
    assert!(failed(&bed).is_empty());
    assert_eq!(bed.kept(&Saved::Trash(seq)).as_deref(), Some("0"));
}

#[test]
fn a_folder_that_was_not_removed() {
    let bed = crashed();
    let record = Record::RemoveFolder { at: at("empty"), before: meta(&bed, "empty") };
    let seq = bed.append(1, record.clone());
    assert_eq!(failed(&bed), [seq]);
    let bed = crashed();
    let record = Record::RemoveFolder { at: at("empty"), before: meta(&bed, "empty") };
    bed.append(1, record);
    std::fs::remove_dir(bed.file("empty")).unwrap();
    assert!(failed(&bed).is_empty());
}

#[test]
fn a_name_that_was_not_changed() {
    let bed = crashed();
    let seq = bed.append(1, renaming("a", "new"));
    assert_eq!(failed(&bed), [seq]);
    let bed = crashed();
    bed.append(1, renaming("a", "new"));
    std::fs::rename(bed.file("a"), bed.file("new")).unwrap();
    assert!(failed(&bed).is_empty());
}

#[test]
fn a_name_that_did_not_replace_another() {
    let bed = crashed();
    let first = bed.append(1, removal(&bed, "b", Saved::Same));
    let second = bed.append(1, renaming("a", "b"));
    let mut found = failed(&bed);
    found.sort_unstable();
    assert_eq!(found, [first, second]);

    let bed = crashed();
    let first = bed.append(1, removal(&bed, "b", Saved::Same));
    assert_eq!(failed(&bed), [first], "the second record was not even written");

    let bed = crashed();
    bed.append(1, removal(&bed, "b", Saved::Same));
    bed.append(1, renaming("a", "b"));
    std::fs::rename(bed.file("a"), bed.file("b")).unwrap();
    assert!(failed(&bed).is_empty());
}

#[test]
fn a_removal_before_is_not_part_of_a_renaming() {
    let bed = crashed();
    bed.append(1, removal(&bed, "b", Saved::Same));
    std::fs::remove_file(bed.file("b")).unwrap();
    let second = bed.append(1, renaming("a", "b"));
    assert_eq!(failed(&bed), [second]);
}

#[test]
fn a_failure_that_was_recorded_is_not_recorded_again() {
    let bed = crashed();
    let first = bed.append(1, removal(&bed, "b", Saved::Same));
    let second = bed.append(1, renaming("a", "b"));
    bed.append(1, Record::Failed { seq: second });
    assert_eq!(failed(&bed), [second, first]);
    let count = bed.entries().len();
    drop(bed.reopen());
    assert!(
        bed.entries()[count..].iter().all(|entry| !matches!(entry.record, Record::Failed { .. }))
    );
}

#[test]
fn names_that_were_not_exchanged() {
    let exchange =
        |bed: &Bed| Record::Exchange { one: at("a"), other: at("b"), inode: meta(bed, "a").inode };
    let bed = crashed();
    let seq = bed.append(1, exchange(&bed));
    assert_eq!(failed(&bed), [seq]);
    let bed = crashed();
    bed.append(1, exchange(&bed));
    let (here, flags) = (rustix::fs::CWD, RenameFlags::EXCHANGE);
    rustix::fs::renameat_with(here, bed.file("a"), here, bed.file("b"), flags).unwrap();
    assert!(failed(&bed).is_empty());
}

#[test]
fn attributes_that_were_not_changed() {
    let bed = crashed();
    let seq = bed.append(1, Record::Attributes { at: at("a"), before: meta(&bed, "a") });
    assert_eq!(failed(&bed), [seq]);
    let bed = crashed();
    bed.append(1, Record::Attributes { at: at("a"), before: meta(&bed, "a") });
    std::fs::set_permissions(bed.file("a"), std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(failed(&bed).is_empty());
}

#[test]
fn a_file_that_may_still_be_written_to() {
    let bed = crashed();
    let before = meta(&bed, "a");
    bed.append(
        1,
        Record::Write { at: at("a"), before, saved: Saved::Pack { offset: 0, length: 0 } },
    );
    assert!(failed(&bed).is_empty());
}

#[test]
fn only_the_last_record_is_in_doubt() {
    let bed = crashed();
    let missing = Record::Create { at: at("missing"), kind: FileKind::File, link_of: None };
    bed.append(1, missing);
    bed.append(1, removal(&bed, "a", Saved::Same));
    std::fs::remove_file(bed.file("a")).unwrap();
    assert!(failed(&bed).is_empty());
}

#[test]
fn a_change_in_another_folder_waits_for_it() {
    let bed = crashed();
    let seq = bed.append(1, Record::Create { at: at("new"), kind: FileKind::File, link_of: None });
    let mut hand = Hand::open(Some(folder(&bed.store()))).unwrap();
    let mut other = bed.granted();
    other.name = "other".to_owned();
    assert_eq!(hand.add_folder(other), Ok(2));
    assert!(!bed.records().contains(&Record::Failed { seq }));
    assert_eq!(hand.add_folder(bed.granted()), Ok(1));
    assert!(bed.records().contains(&Record::Failed { seq }));
}

#[test]
fn open_sets_are_closed_with_what_their_names_are_like() {
    let bed = Bed::new();
    bed.write("d/old", "0");
    let (mut hand, by) = bed.hand();
    drop(opened(hand.open_file(by, bed.name("d/new").spot(), CREATE, MODE)));
    hand.remove(by, bed.name("d/old").spot()).unwrap();
    let none = RenameFlags::empty();
    hand.rename(by, bed.name("d").spot(), bed.name("e").spot(), none).unwrap();
    drop(hand);
    bed.append(1, Record::Rename { from: at("e"), to: at("f"), kind: FileKind::Folder });
    let mut hand = bed.reopen();
    let after = bed.records().into_iter().filter_map(|record| match record {
        Record::After { at, state } => Some((String::from_utf8(at.path).unwrap(), state.is_some())),
        _ => None,
    });
    let after = after.collect::<Vec<_>>();
    let expected =
        [("", true), ("d", false), ("e", true), ("e/new", true), ("e/old", false), ("f", false)];
    assert_eq!(after, expected.map(|(name, there)| (name.to_owned(), there)));
    let next = begin(&mut hand);
    let entries = bed.entries();
    let closed = entries.iter().find(|entry| entry.record == Record::Closed).unwrap();
    assert_eq!((closed.set, next.set), (1, 2));
    drop(hand);
    drop(bed.hand());
    let closed = |set| {
        let entries = bed.entries();
        entries.iter().filter(|e| e.set == set && e.record == Record::Closed).count()
    };
    assert_eq!((closed(1), closed(2), closed(3)), (1, 1, 0));
}

#[test]
fn a_set_after_a_crash_saves_anew() {
    let bed = crashed();
    let (mut hand, by) = bed.hand();
    hand.set_mode(by, bed.name("a").spot(), Mode::from_raw_mode(0o600)).unwrap();
    hand.truncate(by, bed.name("a").spot(), 0).unwrap();
    let last = bed.changes().pop().unwrap();
    assert_eq!(bed.kept(saved(&last)).as_deref(), Some("0"));
}
