//! Several sessions and the user at work in one folder at the same time: everybody sees what the
//! others do, nobody waits for ever, and an undo of one leaves alone what the others made.

use crate::for_everyone;
use crate::room::{Room, typed};
use crate::site::Site;
use cowork_client::http::Method;
use cowork_client::types::Restored;
use cowork_testbed::{Folder, Person};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

for_everyone!(an_undo_of_one_leaves_what_the_others_made);

/// How much everybody does.
const ROUNDS: usize = 120;

/// Adds to a file that all share, and makes, renames and removes files in a folder of its own,
/// beginning when the user says so.
fn script(name: &str) -> String {
    format!(
        "cd mnt/work; until [ -e host/go ]; do sleep 0.01; done; i=0; \
         while [ $i -lt {ROUNDS} ]; do i=$((i + 1)); echo {name} $i >> shared/log; \
         echo {name} > {name}/$i; mv {name}/$i {name}/m$i; cat host/1 > /dev/null; \
         [ $((i % 3)) != 0 ] || rm {name}/m$i; done; echo over > {name}/over"
    )
}

/// The same, by the user.
fn work_as_host(folder: &Path) {
    let at = |name: &str| folder.join("host").join(name);
    std::fs::write(at("1"), "host").expect("ours");
    std::fs::write(at("go"), "").expect("ours");
    for round in 1..=ROUNDS {
        let mut log = File::options().append(true).open(folder.join("shared/log")).expect("ours");
        log.write_all(format!("host {round}\n").as_bytes()).expect("ours");
        std::fs::write(at("new"), format!("{round}")).expect("ours");
        std::fs::rename(at("new"), at(&format!("m{round}"))).expect("ours");
    }
}

fn contents(folder: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder).expect("it is there");
    let all = entries.map(|entry| entry.expect("ours").path());
    all.map(|path| {
        let text = std::fs::read_to_string(&path).expect("it is text");
        (path.file_name().expect("it has a name").to_string_lossy().into_owned(), text)
    })
    .collect()
}

/// How many lines of the shared file are of somebody.
fn lines_of(folder: &Folder, name: &str) -> usize {
    let log = folder.read("shared/log").expect("it is there");
    log.lines().filter(|line| line.split(' ').next() == Some(name)).count()
}

fn an_undo_of_one_leaves_what_the_others_made(person: Person) {
    let site = Site::new(person);
    let folder = Folder::new(person, "work");
    for name in ["one", "two", "host"] {
        folder.write(&format!("{name}/first"), "first\n");
    }
    folder.write("shared/log", "begin\n");
    let room = || -> Room<'_> {
        let room = site.room(&json!({ "writes": { "guards": { "removals": 0, "share": 0 } } }));
        let grant = json!({ "path": folder.path(), "access": "rw", "name": "work" });
        site.post(room.at("/grants"), &grant);
        room
    };
    let (one, two) = (room(), room());
    let commands = [(one, one.sh(&script("one"))), (two, two.sh(&script("two")))];
    // What the folder's owner does.
    let path = folder.path().to_path_buf();
    let host = std::thread::spawn(move || work_as_host(&path));
    for (room, number) in commands {
        let ran = room.finish(number);
        assert_eq!((ran.code, ran.text().as_str()), (0, ""), "{ran:?}");
    }
    host.join().expect("it could work");
    // Everybody has seen the others, and no line is lost.
    for name in ["one", "two", "host"] {
        assert_eq!(lines_of(&folder, name), ROUNDS, "{name}");
    }
    // To look at changes ends the sets of commands that are over.
    for room in [one, two] {
        site.get(room.at("/changes"));
    }
    // What the first one changed, the others change too.
    assert_eq!(two.run("cd mnt/work; echo two >> shared/log; echo two > one/m1").code, 0);
    folder.write("one/m2", "host\n");
    let (host_made, two_made) =
        (contents(&folder.path().join("host")), contents(&folder.path().join("two")));
    let log = folder.read("shared/log");

    // That is a conflict, and nothing is done.
    let refused = site.refused(Method::Post, one.at("/undo"), Some(&json!({ "all": true })));
    assert_eq!((refused.status, refused.code.as_str()), (409, "conflict"));
    let detail = refused.detail.expect("it says where");
    for name in ["shared/log", "one/m1", "one/m2"] {
        assert!(detail.contains(name), "{name} in {detail}");
    }
    assert!(folder.read("one/over").is_some());
    let all = json!({ "all": true, "on_conflict": "ours" });
    let undone: Restored = typed(site.post(one.at("/undo"), &all));
    assert_eq!(undone.conflicts.len(), 3, "{undone:?}");
    let named = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let first = BTreeMap::from([named("first", "first\n")]);
    let left = [named("first", "first\n"), named("m1", "two\n"), named("m2", "host\n")];
    assert_eq!(contents(&folder.path().join("one")), left.into());
    assert_eq!(contents(&folder.path().join("two")), two_made);
    assert_eq!(contents(&folder.path().join("host")), host_made);
    assert_eq!(folder.read("shared/log"), log);
    // The other session goes on, and is taken back as well.
    assert_eq!(two.run("echo later > mnt/work/two/later").code, 0);
    site.post(two.at("/undo"), &all);
    assert_eq!(contents(&folder.path().join("two")), first);
    assert_eq!(contents(&folder.path().join("host")), host_made);
    site.verify();
}
