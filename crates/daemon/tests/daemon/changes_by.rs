//! Who made the changes of granted folders: the command, its first process, and the program.

use crate::changes::{changes, room, spelled, work};
use crate::for_everyone;
use crate::look::until_some;
use crate::room::typed;
use crate::site::Site;
use cowork_client::types::{Change, Difference, Raw};
use cowork_testbed::Person;
use serde_json::{Value, json};

for_everyone!(each_change_names_the_program_that_made_it,);

/// The programs of a change, each with its last argument.
fn by(change: &Change) -> Vec<String> {
    let words = |argv: &[Raw]| {
        let words: Vec<String> = argv.iter().map(Raw::lossy).collect();
        format!("{} {}", name(&words[0]), words[words.len() - 1])
    };
    change.by.iter().map(|by| words(&by.argv)).collect()
}

/// The last name of a program's path.
fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn each_change_names_the_program_that_made_it(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let room = room(&site, &work, "rw");
    let line = "cd mnt/work; sh -c 'sed -i s/two/2/ old; rm gone; mv moved place'; true";
    let number = room.sh(line);
    assert_eq!(room.finish(number).code, 0);
    let pid = room.command(number).pid.and_then(|pid| u32::try_from(pid).ok());
    let told = changes(room);
    assert_eq!(told.sets.len(), 1, "{told:?}");
    assert!(pid.is_some() && told.sets[0].process == pid, "{pid:?}: {told:?}");
    let expected = [("gone", "rm gone"), ("old", "sed old"), ("place", "mv place")];
    for (path, program) in expected {
        let change = told.changes.iter().find(|change| change.path.lossy() == path);
        let change = change.unwrap_or_else(|| panic!("{path}: {told:?}"));
        assert_eq!(by(change), [program], "{path}");
        assert!(change.by.iter().all(|by| by.set == 1 && Some(by.process) != pid), "{told:?}");
    }
    let differ: Vec<Difference> = typed(site.get(room.at("/diff")));
    let old = differ.iter().find(|one| one.change.path.lossy() == "old").expect("it differs");
    assert_eq!(by(&old.change), ["sed old"]);
    let told = until_some("it is recorded", || {
        let told = spelled(&site, room.id());
        told.iter()
            .any(|change| change["operation"] == "rename" && is_of(change, "mv"))
            .then_some(told)
    });
    for (path, operation, program) in
        [("gone", "remove", "rm"), ("old", "remove", "sed"), ("moved", "rename", "mv")]
    {
        let path = work.path().join(path).display().to_string();
        let mut about = told.iter().filter(|change| change["path"] == path.as_str());
        let found = about.find(|change| change["operation"] == operation);
        let found = found.unwrap_or_else(|| panic!("{operation} {path}: {told:?}"));
        assert!(is_of(found, program), "{found:?}");
        assert_eq!(found["command"], number);
    }
    // What an undo did is no program's.
    site.post(room.at("/undo"), &json!({}));
    assert_eq!(changes(room).changes, []);
    let undone = until_some("it is recorded", || {
        let told = spelled(&site, room.id());
        told.into_iter().find(|change| change["set"] == 2)
    });
    assert_eq!((&undone["program"], &undone["command"]), (&Value::Null, &Value::Null));
    site.verify();
}

/// Whether a recorded change is of a program.
fn is_of(change: &Value, program: &str) -> bool {
    change["program"][0].as_str().is_some_and(|word| name(word) == program)
}
