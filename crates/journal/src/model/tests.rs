//! The model told from records that were written by hand.

use super::Journal;
use super::names::{Names, Slot, ThingId, Trace};
use super::sets::{SOME, Scope};
use crate::frames::Brief;
use crate::record::{At, Entry, Meta, Record, Saved, State};
use cowork_api::files::{FileKind, Place, Selection, SetKind, Sets};
use std::collections::{BTreeMap, BTreeSet};

fn at(path: &str) -> At {
    At { folder: 1, path: path.as_bytes().to_vec() }
}

fn meta(inode: u64, links: u32) -> Meta {
    Meta {
        inode,
        mode: 0o100_644,
        uid: 0,
        gid: 0,
        links,
        size: 10,
        mtime: (5, 0),
        atime: (5, 0),
        ctime: (5, 0),
        attributes: Vec::new(),
    }
}

fn write(path: &str, inode: u64) -> Record {
    Record::Write { at: at(path), before: meta(inode, 1), saved: Saved::Copy(inode) }
}

fn rename(from: &str, to: &str) -> Record {
    Record::Rename { from: at(from), to: at(to), kind: FileKind::File }
}

fn create(path: &str) -> Record {
    Record::Create { at: at(path), kind: FileKind::File, link_of: None }
}

fn remove(path: &str, inode: u64) -> Record {
    Record::Remove { at: at(path), before: meta(inode, 1), saved: Saved::Trash(inode) }
}

fn undo(sets: &[u32]) -> Record {
    Record::Set { kind: SetKind::Undo(sets.to_vec()), root: 0, argv: Vec::new() }
}

fn journal(records: Vec<(u32, Record)>) -> Journal {
    let folder = Record::Folder {
        folder: 1,
        name: "grant".to_owned(),
        path: b"/home/grant".to_vec(),
        device: 1,
        inode: 1,
    };
    let all = std::iter::once((0, folder)).chain(records);
    let entries = (1..).zip(all).map(|(seq, (set, record))| Entry {
        seq,
        time: seq,
        set,
        process: 7,
        record,
    });
    told(entries.collect())
}

fn told(entries: Vec<Entry>) -> Journal {
    let mut journal = Journal::default();
    for entry in entries {
        let bytes = postcard::to_stdvec(&entry).unwrap();
        journal.add(Brief::of(&bytes).unwrap(), &bytes);
    }
    journal
}

/// Replays with these sets taken back.
fn replay(journal: &Journal, sets: &[u32]) -> Names {
    Names::replay(journal, &journal.scope(sets))
}

fn text(path: Option<Vec<u8>>) -> String {
    path.map_or_else(|| "-".to_owned(), |path| String::from_utf8(path).unwrap())
}

/// Where each thing was and is, without those that stayed where they are.
fn moves(names: &Names) -> Vec<String> {
    let moved = |id: &ThingId| names.things[*id].home != names.things[*id].now;
    (0..names.things.len())
        .filter(moved)
        .map(|id| format!("{} > {}", text(names.home_path(id)), text(names.path(id))))
        .collect()
}

#[test]
fn a_renamed_folder_is_one_thing() {
    let journal = journal(vec![
        (1, rename("a", "b")),
        (1, write("b/deep/file", 20)),
        (1, rename("b/deep/file", "b/deep/other")),
    ]);
    let names = replay(&journal, &[1]);
    assert_eq!(moves(&names), ["a > b", "a/deep/file > b/deep/other"]);
    let file = names.find(1, b"b/deep/other").unwrap();
    assert_eq!(names.body(file).unwrap().contents, Some(Saved::Copy(20)));
}

#[test]
fn what_comes_and_goes_leaves_nothing() {
    let journal = journal(vec![
        (1, create("new")),
        (1, rename("new", "newer")),
        (1, remove("newer", 30)),
        (1, rename("x", "y")),
        (1, rename("y", "x")),
    ]);
    assert_eq!(moves(&replay(&journal, &[1])), Vec::<String>::new());
}

#[test]
fn swapped_and_replaced() {
    let journal = journal(vec![
        (1, Record::Exchange { one: at("a"), other: at("b"), inode: 5 }),
        (1, remove("c", 31)),
        (1, rename("d", "c")),
    ]);
    assert_eq!(moves(&replay(&journal, &[1])), ["a > b", "b > a", "c > -", "d > c"]);
}

#[test]
fn what_failed_did_not_happen() {
    let journal = journal(vec![(1, rename("a", "b")), (1, Record::Failed { seq: 2 })]);
    assert_eq!(journal.entries().count(), 1);
    assert_eq!(moves(&replay(&journal, &[1])), Vec::<String>::new());
}

#[test]
fn only_the_first_state_counts() {
    let journal = journal(vec![(1, write("f", 1)), (2, write("f", 1)), (3, write("f", 1))]);
    let contents = |sets: &[u32]| {
        let names = replay(&journal, sets);
        let body = names.body(names.find(1, b"f").unwrap()).unwrap().clone();
        (body.sets, body.foreign)
    };
    assert_eq!(contents(&[1, 2, 3]), (BTreeSet::from([1, 2, 3]), None));
    assert_eq!(contents(&[2]), (BTreeSet::from([2]), Some(3)));
    assert_eq!(contents(&[3]), (BTreeSet::from([3]), None));
}

#[test]
fn names_of_one_file_share_a_body() {
    let several = |path: &str, saved| Record::Write { at: at(path), before: meta(9, 2), saved };
    let journal = journal(vec![
        (1, several("f", Saved::Copy(1))),
        (1, several("g", Saved::Same)),
        (1, Record::Create { at: at("h"), kind: FileKind::File, link_of: Some(at("g")) }),
        (1, write("alone", 10)),
    ]);
    let names = replay(&journal, &[1]);
    let body = |path: &str| names.thing(names.find(1, path.as_bytes()).unwrap()).unwrap().body;
    assert_eq!(body("f"), body("g"));
    assert_eq!(body("f"), body("h"));
    assert_ne!(body("f"), body("alone"));
    let new = names.find(1, b"h").unwrap();
    assert_eq!(names.thing(new).unwrap().home, Slot::Gone);
    assert!(!names.is_new(names.body(new).unwrap()));
}

#[test]
fn other_sets_move_things_without_claiming_them() {
    let journal = journal(vec![
        (1, write("a/f", 1)),
        (2, rename("a", "b")),
        (2, create("c")),
        (3, write("b/g", 2)),
    ]);
    let names = replay(&journal, &[1, 3]);
    assert_eq!(moves(&names), Vec::<String>::new());
    let file = names.find(1, b"b/f").unwrap();
    assert!(names.body(file).unwrap().was(Trace::Written));
    assert_eq!(text(names.home_path(file)), "b/f");
}

#[test]
fn a_change_between_two_sets_is_seen() {
    let end = |size| State { inode: 1, mode: 0o100_644, size, mtime: (5, 0), ctime: (5, 0) };
    for (size, seen) in [(10, false), (11, true)] {
        let after = Record::After { at: at("f"), state: Some(end(size)) };
        let journal = journal(vec![(1, write("f", 1)), (1, after), (2, write("f", 1))]);
        let names = replay(&journal, &[1, 2]);
        let body = names.body(names.find(1, b"f").unwrap()).unwrap().clone();
        assert_eq!(body.was(Trace::Between), seen);
        assert_eq!(names.ends.of(1, b"f"), None, "the last set is open");
    }
}

#[test]
fn undo_and_redo_of_sets() {
    let journal = journal(vec![
        (1, write("f", 1)),
        (2, write("g", 2)),
        (3, undo(&[1, 2])),
        (3, write("f", 1)),
        (3, Record::Complete),
        (4, undo(&[3])),
        (4, write("f", 1)),
        (4, Record::Complete),
        (5, undo(&[2])),
        (5, write("g", 2)),
        (5, Record::Complete),
    ]);
    let undone: Vec<Option<u32>> = journal.sets().iter().map(|set| set.undone_by).collect();
    assert_eq!(undone, [None, Some(5), Some(4), None, None]);
    assert_eq!(journal.selected(&Sets::All), [1]);
    assert_eq!(journal.selected(&Sets::Last), [1]);
    assert_eq!(journal.selected(&Sets::Numbers(vec![1, 2])), [1]);
    assert_eq!(journal.last_undo(), Some(5));
    let scope = Scope {
        taken: BTreeSet::from([1]),
        void: BTreeSet::from([2, 3, 4, 5]),
        undone: BTreeMap::from([(2, 5), (3, 4)]),
        chain: BTreeSet::from([1]),
    };
    assert_eq!(journal.scope(&[1]), scope);
}

#[test]
fn an_undo_counts_when_it_is_complete_and_whole() {
    let partial = Record::Set { kind: SetKind::Undo(vec![1]), root: 0, argv: vec![SOME.to_vec()] };
    let journal = journal(vec![
        (1, write("f", 1)),
        (2, undo(&[1])),
        (2, write("f", 1)),
        (3, partial),
        (3, write("f", 1)),
        (3, Record::Complete),
    ]);
    assert_eq!(journal.selected(&Sets::All), [1]);
    let scope = Scope {
        taken: BTreeSet::from([1, 2, 3]),
        chain: BTreeSet::from([1, 2, 3]),
        ..Scope::default()
    };
    assert_eq!(journal.scope(&[1]), scope);
}

#[test]
fn what_was_done_is_listed() {
    let journal = journal(vec![(1, create("a")), (1, rename("a", "b")), (2, remove("b", 1))]);
    let (first, left) = journal.mutations(0, 2);
    let told: Vec<_> =
        first.iter().map(|done| (done.operation.as_str(), done.at.path.as_slice())).collect();
    assert_eq!(told, [("create", b"a".as_slice()), ("rename", b"a")]);
    assert_eq!(left, 1);
    let (rest, left) = journal.mutations(3, 2);
    assert_eq!((rest.len(), rest[0].operation.as_str(), left), (1, "remove", 0));
}

#[test]
fn each_change_has_the_program_that_made_it() {
    let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let process = |text| Record::Process { argv: words(text) };
    let entry = |seq, process, record| Entry { seq, time: seq, set: 1, process, record };
    let folder = Record::Folder {
        folder: 1,
        name: "grant".to_owned(),
        path: b"/home/grant".to_vec(),
        device: 1,
        inode: 1,
    };
    let set = Record::Set { kind: SetKind::Command, root: 7, argv: words("make all") };
    let closed = Record::Closed;
    let journal = told(vec![
        Entry { seq: 1, time: 1, set: 0, process: 0, record: folder },
        entry(2, 7, set),
        entry(3, 8, process("sed -i notes")),
        entry(4, 8, create("sedX")),
        entry(5, 9, process("sh -c rm")),
        entry(6, 9, write("log", 4)),
        entry(7, 8, rename("sedX", "notes")),
        entry(8, 9, process("rm other")),
        entry(9, 9, remove("other", 5)),
        entry(10, 8, remove("sub", 6)),
        entry(11, 0, closed),
    ]);
    let programs = journal.programs(0);
    let told: Vec<_> = programs
        .iter()
        .map(|one| (one.process, one.since, String::from_utf8(one.argv.join(&b' ')).unwrap()))
        .collect();
    assert_eq!(
        told,
        [
            (8, 3, "sed -i notes".to_owned()),
            (9, 5, "sh -c rm".to_owned()),
            (9, 8, "rm other".to_owned()),
        ]
    );
    assert_eq!(journal.programs(8), [programs[0].clone(), programs[2].clone()]);
    assert_eq!(journal.programs(10), []);
    let changed = |selection: &Selection| -> Vec<(String, Vec<u32>)> {
        let name = |place: Place| String::from_utf8(place.path).unwrap();
        let changed = journal.changed_by(&programs, selection).into_iter();
        changed.map(|(place, by)| (name(place), by)).collect()
    };
    let all = [("log", vec![1]), ("notes", vec![0]), ("other", vec![2]), ("sub", vec![0])];
    let all = all.map(|(name, by)| (name.to_owned(), by));
    assert_eq!(changed(&Selection::default()), all);
    let place = Place { grant: "grant".to_owned(), path: b"other".to_vec() };
    let some = Selection { paths: vec![place], ..Selection::default() };
    assert_eq!(changed(&some), all[2..3]);
    let none = Selection { sets: Sets::Numbers(vec![2]), ..Selection::default() };
    assert_eq!(changed(&none), []);
}
