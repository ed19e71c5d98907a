//! What belongs to a set: what it saves once, and what it says at its end.

use crate::bed::{Bed, CREATE, MODE, REPLACE, WRITE, at, begin, opened, saved};
use cowork_api::files::SetKind;
use cowork_journal::hand::{By, Hand, LinkSource};
use cowork_journal::record::{Record, Saved, State};
use rustix::fs::{Mode, OFlags, RenameFlags};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn write(hand: &mut Hand, by: By, bed: &Bed, name: &str, text: &str) {
    let mut file = opened(hand.open_file(by, bed.name(name).spot(), REPLACE, MODE));
    file.write_all(text.as_bytes()).unwrap();
}

fn count(bed: &Bed, wanted: fn(&Record) -> bool) -> usize {
    bed.records().iter().filter(|record| wanted(record)).count()
}

/// What the last set says that its names are like.
fn after(bed: &Bed) -> Vec<(String, Option<State>)> {
    let says = |record| match record {
        Record::After { at, state } => Some((String::from_utf8(at.path).unwrap(), state)),
        _ => None,
    };
    bed.records().into_iter().filter_map(says).collect()
}

#[test]
fn a_set_saves_a_file_once_and_the_next_again() {
    let bed = Bed::new();
    bed.write("a", "0");
    let (mut hand, by) = bed.hand();
    write(&mut hand, by, &bed, "a", "1");
    write(&mut hand, by, &bed, "a", "2");
    hand.set_mode(by, bed.name("a").spot(), Mode::from_raw_mode(0o600)).unwrap();
    assert_eq!(bed.changes().len(), 1);
    assert_eq!(hand.tally(by.set).removed, 1);
    let next = begin(&mut hand);
    write(&mut hand, next, &bed, "a", "3");
    let changes = bed.changes();
    assert_eq!(changes.len(), 2);
    assert_eq!(bed.kept(saved(&changes[1])).as_deref(), Some("2"));
    write(&mut hand, by, &bed, "a", "4");
    write(&mut hand, by, &bed, "a", "5");
    let changes = bed.changes();
    assert_eq!(changes.len(), 3, "for the first set it is a file that somebody else wrote to");
    assert_eq!(bed.kept(saved(&changes[2])).as_deref(), Some("3"));
    let sets = bed.entries().iter().rev().map(|entry| entry.set).take(3).collect::<Vec<_>>();
    assert_eq!(sets, vec![1, 2, 2]);
}

#[test]
fn what_is_made_in_a_set_is_saved_nowhere() {
    let bed = Bed::new();
    let (mut hand, by) = bed.hand();
    write(&mut hand, by, &bed, "a", "1");
    write(&mut hand, by, &bed, "a", "2");
    hand.make_folder(by, bed.name("d").spot(), Mode::from_raw_mode(0o755)).unwrap();
    write(&mut hand, by, &bed, "d/b", "3");
    let none = RenameFlags::empty();
    hand.rename(by, bed.name("a").spot(), bed.name("d/b").spot(), none).unwrap();
    hand.remove(by, bed.name("d/b").spot()).unwrap();
    hand.remove_folder_entry(by, bed.name("d").spot()).unwrap();
    let kept = bed.changes().into_iter().filter_map(|record| match record {
        Record::Remove { saved, .. } | Record::Write { saved, .. } => Some(saved),
        _ => None,
    });
    assert_eq!(kept.collect::<Vec<_>>(), vec![Saved::Same, Saved::Same]);
    assert!(bed.trashed().is_empty());
    assert_eq!(std::fs::metadata(bed.store().join("pack")).unwrap().len(), 0);
    let tally = hand.tally(by.set);
    assert_eq!((tally.removed, tally.copied, tally.created), (0, 0, 3));
    assert_eq!(count(&bed, |record| matches!(record, Record::Inside { .. })), 1);
}

#[test]
fn what_was_saved_in_a_set_is_removed_for_good() {
    let bed = Bed::new();
    bed.write("a", "0");
    let (mut hand, by) = bed.hand();
    write(&mut hand, by, &bed, "a", "1");
    hand.remove(by, bed.name("a").spot()).unwrap();
    assert_eq!(*saved(&bed.changes()[1]), Saved::Same);
    assert!(bed.trashed().is_empty());
    assert_eq!(hand.tally(by.set).removed, 1);
    write(&mut hand, by, &bed, "a", "2");
    assert!(matches!(bed.changes()[2], Record::Create { .. }));
}

#[test]
fn the_other_names_of_a_file_stay_its_names() {
    let bed = Bed::new();
    bed.write("a", "0");
    std::fs::hard_link(bed.file("a"), bed.file("b")).unwrap();
    let inode = std::fs::metadata(bed.file("a")).unwrap().ino();
    let (mut hand, by) = bed.hand();
    write(&mut hand, by, &bed, "a", "1");
    write(&mut hand, by, &bed, "b", "2");
    hand.remove(by, bed.name("a").spot()).unwrap();
    write(&mut hand, by, &bed, "b", "3");
    let changes = bed.changes();
    let [first, second, third] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!(bed.kept(saved(first)).as_deref(), Some("0"));
    assert!(matches!(second, Record::Write { at: other, saved: Saved::Same, before }
        if *other == at("b") && before.inode == inode));
    let Saved::Trash(seq) = saved(third) else { panic!("{third:?}") };
    let kept = std::fs::metadata(bed.trash().join(format!("t{seq}"))).unwrap();
    assert_eq!(kept.ino(), inode);
}

#[test]
fn a_new_name_of_an_old_file_does_not_make_it_new() {
    let bed = Bed::new();
    bed.write("a", "0");
    let (mut hand, by) = bed.hand();
    hand.add_name(by, LinkSource::Name(bed.name("a").spot()), bed.name("b").spot()).unwrap();
    write(&mut hand, by, &bed, "b", "1");
    let changes = bed.changes();
    assert_eq!(bed.kept(saved(&changes[1])).as_deref(), Some("0"));
}

#[test]
fn a_folder_is_recorded_once_before_its_names_change() {
    let bed = Bed::new();
    bed.write("d/a", "0");
    let before = std::fs::metadata(bed.file("d")).unwrap();
    let (mut hand, by) = bed.hand();
    for name in ["d/x", "d/y"] {
        write(&mut hand, by, &bed, name, "1");
    }
    hand.remove(by, bed.name("d/a").spot()).unwrap();
    let records = bed.records();
    let [Record::Inside { at: folder, before: recorded }, rest @ ..] = records.as_slice() else {
        panic!("{records:?}")
    };
    assert_eq!((folder, rest.len()), (&at("d"), 3));
    assert_eq!((recorded.inode, recorded.mtime.0), (before.ino(), before.mtime()));
    assert_eq!(i64::from(recorded.mtime.1), before.mtime_nsec());
    let next = begin(&mut hand);
    hand.remove(next, bed.name("d/x").spot()).unwrap();
    assert_eq!(count(&bed, |record| matches!(record, Record::Inside { .. })), 2);
}

#[test]
fn a_set_ends_with_what_its_names_are_like() {
    let bed = Bed::new();
    bed.write("d/old", "0");
    bed.write("d/gone", "0");
    bed.write("untouched", "0");
    let (mut hand, by) = bed.hand();
    write(&mut hand, by, &bed, "d/new", "12345");
    hand.remove(by, bed.name("d/gone").spot()).unwrap();
    hand.set_mode(by, bed.name("d/old").spot(), Mode::from_raw_mode(0o600)).unwrap();
    let none = RenameFlags::empty();
    hand.rename(by, bed.name("d").spot(), bed.name("e").spot(), none).unwrap();
    hand.close(by.set).unwrap();
    let names = after(&bed);
    let paths = names.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>();
    assert_eq!(paths, ["", "d", "e", "e/gone", "e/new", "e/old"]);
    let state = |wanted: &str| names.iter().find(|(path, _)| path == wanted).unwrap().1;
    assert_eq!((state("d"), state("e/gone")), (None, None));
    let new = state("e/new").unwrap();
    let look = std::fs::metadata(bed.file("e/new")).unwrap();
    assert_eq!((new.inode, new.size, new.mode), (look.ino(), 5, look.mode()));
    assert_eq!((new.mtime.0, new.ctime.0), (look.mtime(), look.ctime()));
    assert_eq!(state("e").unwrap().size, 0);
    assert_eq!(state("e/old").unwrap().mode & 0o777, 0o600);
    assert_eq!(bed.records().last(), Some(&Record::Closed));
    assert_eq!(bed.entries().last().unwrap().set, by.set);
}

#[test]
fn exchanged_folders_exchange_their_names() {
    let bed = Bed::new();
    std::fs::create_dir(bed.file("d")).unwrap();
    std::fs::create_dir(bed.file("e")).unwrap();
    let (mut hand, by) = bed.hand();
    write(&mut hand, by, &bed, "d/a", "1");
    write(&mut hand, by, &bed, "e/b", "2");
    let flags = RenameFlags::EXCHANGE;
    hand.rename(by, bed.name("d").spot(), bed.name("e").spot(), flags).unwrap();
    hand.close(by.set).unwrap();
    let there = after(&bed).into_iter().filter(|(_, state)| state.is_some());
    let paths = there.map(|(path, _)| path).collect::<Vec<_>>();
    assert_eq!(paths, ["", "d", "d/b", "e", "e/a"]);
}

#[test]
fn a_boundary_closes_all_sets() {
    let bed = Bed::new();
    bed.write("a", "0");
    let (mut hand, one) = bed.hand();
    let other = begin(&mut hand);
    write(&mut hand, one, &bed, "a", "1");
    hand.boundary().unwrap();
    assert!(!hand.is_open(one.set) && !hand.is_open(other.set));
    assert_eq!(count(&bed, |record| *record == Record::Closed), 2);
    let next = begin(&mut hand);
    assert_eq!(next.set, 3);
    write(&mut hand, next, &bed, "a", "2");
    let written = bed.changes().into_iter().rfind(|record| matches!(record, Record::Write { .. }));
    assert_eq!(bed.kept(saved(&written.unwrap())).as_deref(), Some("1"));
}

#[test]
fn a_folder_that_is_taken_away_is_described_first() {
    let bed = Bed::new();
    let (mut hand, by) = bed.hand();
    write(&mut hand, by, &bed, "a", "1");
    hand.remove_folder(1);
    assert_eq!(after(&bed).len(), 2);
    hand.close(by.set).unwrap();
    assert_eq!(after(&bed).len(), 2);
}

#[test]
fn processes_sets_and_completion_are_recorded() {
    let bed = Bed::new();
    let mut hand = bed.reopen();
    let kind = SetKind::Undo(vec![4, 5]);
    let set = hand.begin(kind.clone(), 0, Vec::new()).unwrap();
    hand.process(By { set, process: 9 }, vec![b"cp".to_vec()]).unwrap();
    hand.complete(set).unwrap();
    hand.close(set).unwrap();
    let entries = bed.entries();
    let records = entries.iter().map(|entry| entry.record.clone()).collect::<Vec<_>>();
    assert!(matches!(&records[0], Record::Folder { folder: 1, name, .. } if name == "site"));
    assert_eq!(records[1], Record::Set { kind, root: 0, argv: Vec::new() });
    assert_eq!(records[2], Record::Process { argv: vec![b"cp".to_vec()] });
    assert_eq!((entries[2].set, entries[2].process), (set, 9));
    assert_eq!(records[3..], [Record::Complete, Record::Closed]);
    let seqs = entries.iter().map(|entry| entry.seq).collect::<Vec<_>>();
    assert_eq!(seqs, (1..=5).collect::<Vec<_>>());
    assert!(entries.is_sorted_by_key(|entry| entry.time) && entries[0].time > 0);
}

#[test]
fn numbers_go_on_in_a_log_that_is_opened_again() {
    let bed = Bed::new();
    let (mut hand, by) = bed.hand();
    write(&mut hand, by, &bed, "a", "1");
    hand.close(by.set).unwrap();
    drop(hand);
    let (mut hand, next) = bed.hand();
    assert_eq!(next.set, by.set + 1);
    let mut second = bed.granted();
    second.name = "other".to_owned();
    assert_eq!(hand.add_folder(second), Ok(2));
    let folders = count_folders(&bed);
    assert_eq!(folders, 2);
    let seqs = bed.entries().iter().map(|entry| entry.seq).collect::<Vec<_>>();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
}

fn count_folders(bed: &Bed) -> usize {
    let is_folder = |record: &Record| matches!(record, Record::Folder { .. });
    bed.entries().iter().filter(|entry| is_folder(&entry.record)).count()
}

#[test]
fn without_a_store_changes_are_made_and_counted() {
    let bed = Bed::new();
    bed.write("old", "0");
    bed.write("d/x", "0");
    let mut hand = Hand::open(None).unwrap();
    assert_eq!(hand.add_folder(bed.granted()), Ok(1));
    let by = begin(&mut hand);
    write(&mut hand, by, &bed, "new", "1");
    write(&mut hand, by, &bed, "old", "1");
    hand.remove(by, bed.name("old").spot()).unwrap();
    hand.rename(by, bed.name("new").spot(), bed.name("d/x").spot(), RenameFlags::empty()).unwrap();
    hand.set_mode(by, bed.name("d").spot(), Mode::from_raw_mode(0o700)).unwrap();
    hand.truncate(by, bed.name("d/x").spot(), 0).unwrap();
    hand.make_link(by, bed.name("link").spot(), c"x").unwrap();
    let tally = hand.tally(by.set);
    assert_eq!((tally.removed, tally.created), (2, 2));
    hand.close(by.set).unwrap();
    assert_eq!(bed.read("d/x").as_deref(), Some(""));
    assert_eq!(std::fs::read_dir(bed.store()).unwrap().count(), 0);
    assert!(bed.trashed().is_empty());
}

#[test]
fn the_mask_of_a_thread_counts_and_the_store_stays_readable() {
    let bed = Bed::new();
    bed.write("large", vec![b'x'; 100_000]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cowork_sys::process::own_mask_and_folder().unwrap();
            rustix::process::umask(Mode::from_raw_mode(0o077));
            let (mut hand, by) = bed.hand();
            let mode = Mode::from_raw_mode(0o666);
            drop(opened(hand.open_file(by, bed.name("new").spot(), CREATE, mode)));
            drop(opened(hand.open_file(by, bed.name("large").spot(), WRITE, mode)));
        });
    });
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(bed.file("new")), 0o600);
    for entry in std::fs::read_dir(bed.store()).unwrap() {
        assert_eq!(mode(entry.unwrap().path()), 0o644);
    }
    assert_eq!(std::fs::read_dir(bed.store()).unwrap().count(), 3);
}

#[test]
fn an_old_reader_does_not_disturb() {
    let bed = Bed::new();
    bed.write("a", "0");
    let (mut hand, by) = bed.hand();
    let flags = OFlags::RDONLY | OFlags::CREATE;
    drop(opened(hand.open_file(by, bed.name("a").spot(), flags, MODE)));
    assert_eq!(bed.records(), vec![]);
}
