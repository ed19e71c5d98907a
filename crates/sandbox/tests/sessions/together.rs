//! Sessions that have the same folder, or one inside another's: each change is judged and made while
//! nobody else changes anything in it. That they cannot get past a rule together is tried by attacks
//! (`escape`: `race.created-while-another-session-renames` and those after it).

use crate::bench::{Bench, Room, Running, as_root, grant, grant_of, new_plan};
use cowork_api::plan::Access;
use cowork_sandbox::client::Keeper;
use cowork_testbed::Folder;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than a change takes that nothing holds up.
const WHILE: Duration = Duration::from_millis(500);

/// Two sessions of one keeper, each with a folder.
struct Pair {
    keeper: Keeper,
    rooms: [Room; 2],
}

impl Pair {
    fn with(bench: &Bench, [first, second]: [&Path; 2]) -> Self {
        let (mut keeper, one) = bench.room();
        let other = Room::make(&mut keeper, new_plan());
        for (room, path) in [(&one, first), (&other, second)] {
            let wanted = grant_of(path, "project", Access::Write);
            grant(&mut keeper, room, wanted).expect("it can be granted");
        }
        Self { keeper, rooms: [one, other] }
    }

    /// What its sessions have in common with others, opened as one more broker would.
    fn common(&self) -> Vec<File> {
        let folder = format!("/proc/{}/fd", self.keeper.pid());
        let entries = std::fs::read_dir(folder).expect("the keeper lives").flatten();
        let is_common = |path: &PathBuf| {
            let link = std::fs::read_link(path).unwrap_or_default();
            link.to_string_lossy().contains("cowork-common")
        };
        let opened = entries.map(|entry| entry.path()).filter(is_common).map(|path| {
            let file = File::options().read(true).write(true).open(path).expect("it is there");
            (file.metadata().expect("it is open").ino(), file)
        });
        opened.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// Both make a folder, each by this name.
    fn make(&mut self, name: &str) -> [Running; 2] {
        self.rooms.each_mut().map(|room| {
            let (at, id) = (room.granted("project"), room.id());
            room.start(&["/bin/sh", "-c", &format!("mkdir {at}/{name}-{id}; echo done")])
        })
    }
}

fn made(folder: &Path, name: &str) -> usize {
    let entries = std::fs::read_dir(folder).expect("it is there").flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(name)).count()
}

/// As if another session's broker were in the middle of a change: nobody makes one until it is made.
fn wait(bench: &Bench, folders: [&Path; 2]) {
    let mut pair = Pair::with(bench, folders);
    let common = pair.common();
    for file in &common {
        flock(file, FlockOperation::LockExclusive).expect("it is free");
    }
    let mut makers = pair.make("late");
    std::thread::sleep(WHILE);
    assert!(folders.iter().all(|folder| made(folder, "late") == 0), "in the middle of a change");
    drop(common);
    for maker in &mut makers {
        maker.expect("done");
    }
    assert!(folders.iter().all(|folder| made(folder, "late") > 0));
}

#[test]
fn who_has_the_same_folder_waits() {
    as_root(|bench| {
        let folder = bench.folder("project");
        wait(bench, [folder.path(), folder.path()]);
    });
}

#[test]
fn who_has_a_folder_inside_or_around_it_waits_too() {
    as_root(|bench| {
        for order in ["outer-first", "inner-first"] {
            let folder = bench.folder(order);
            folder.write("inner/.keep", "");
            let (outer, inner) = (folder.path(), &*folder.path().join("inner"));
            wait(bench, if order == "outer-first" { [outer, inner] } else { [inner, outer] });
        }
    });
}

/// Folders that lie nowhere near each other: nobody takes a lock at all.
#[test]
fn who_is_alone_with_a_folder_waits_for_nobody() {
    as_root(|bench| {
        let folders = ["one", "other"].map(|name| bench.folder(name));
        let [one, other] = folders.each_ref().map(Folder::path);
        let mut pair = Pair::with(bench, [one, other]);
        let common = pair.common();
        assert_eq!(common.len(), 2);
        for file in &common {
            flock(file, FlockOperation::LockExclusive).expect("it is free");
        }
        for maker in &mut pair.make("made") {
            maker.expect("done");
        }
        assert_eq!((made(one, "made"), made(other, "made")), (1, 1));
    });
}

/// The third comes when the first is gone. It has nothing in common with anybody who is not there.
#[test]
fn who_comes_later_has_what_they_have_who_are_there() {
    as_root(|bench| {
        let folder = bench.folder("project");
        let mut pair = Pair::with(bench, [folder.path(), folder.path()]);
        assert_eq!(pair.common().len(), 1);
        crate::bench::revoke(&mut pair.keeper, &pair.rooms[0], "project");
        let wanted = grant_of(folder.path(), "project", Access::Write);
        grant(&mut pair.keeper, &pair.rooms[0], wanted).expect("it can be granted again");
        assert_eq!(pair.common().len(), 1);
        for maker in &mut pair.make("again") {
            maker.expect("done");
        }
        assert_eq!(made(folder.path(), "again"), 2);
    });
}
