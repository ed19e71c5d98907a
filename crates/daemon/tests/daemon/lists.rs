//! Access control lists of files in granted folders: set in a session, kept, and brought back.

use crate::for_everyone;
use crate::room::{Room, typed};
use crate::site::Site;
use cowork_client::types::Restored;
use cowork_testbed::{Folder, Person};
use serde_json::json;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

for_everyone!(
    a_session_names_its_own_user_in_a_list,
    lists_that_name_others_survive_what_is_undone,
    what_cannot_be_said_of_a_list_keeps_nothing_else_from_coming_back,
);

/// What a program of the host says.
#[track_caller]
fn host(folder: &Folder, line: &str) -> String {
    let mut command = Command::new("sh");
    let output = command.current_dir(folder.path()).args(["-c", line]).output();
    let output = output.expect("there is a shell");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {err} (`apt-get install acl`)");
    String::from_utf8(output.stdout).expect("it is text")
}

/// All lists in a folder, with the numbers on disk.
fn lists(folder: &Folder) -> String {
    host(folder, "getfacl --numeric --recursive .")
}

fn work(person: Person) -> Folder {
    let work = Folder::new(person, "work");
    for name in ["own", "others", "plain", "folder/file"] {
        work.write(name, name);
    }
    host(&work, &format!("setfacl -m u:{}:r,g:{0}:r own", person.uid()));
    host(&work, "setfacl -m u:12345:r,g:23456:rw others");
    host(&work, "setfacl -d -m u:12345:rwx,g:23456:r folder; touch -d @1000000000 others");
    work
}

fn room<'s>(site: &'s Site, folder: &Folder) -> Room<'s> {
    let room = site.room(&json!({ "writes": { "guards": { "removals": 0, "share": 0 } } }));
    let grant = json!({ "path": folder.path(), "access": "rw", "name": "work" });
    site.post(room.at("/grants"), &grant);
    room
}

#[track_caller]
fn does(room: Room<'_>, line: &str) {
    let ran = room.run(&format!("cd mnt/work && {line}"));
    assert_eq!(ran.code, 0, "{line}: {}", ran.text());
}

fn undo(room: Room<'_>) -> Restored {
    typed(room.site.post(room.at("/undo"), &json!({ "all": true })))
}

fn a_session_names_its_own_user_in_a_list(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let before = lists(&work);
    let room = room(&site, &work);
    does(
        room,
        "setfacl -m u:1000:rw,g:1000:rw plain && setfacl -m u:1000:rwx own && \
         mkdir new && setfacl -d -m u:1000:rwx new && setfacl -d -m u:1000:rx . && \
         getfacl -n plain | grep -q user:1000:rw-",
    );
    let uid = person.uid();
    let said = host(&work, "getfacl -n plain own");
    for entry in [format!("user:{uid}:rw-"), format!("group:{uid}:rw-"), format!("user:{uid}:rwx")]
    {
        assert!(said.contains(&entry), "{entry}: {said}");
    }
    let inherited = host(&work, "getfacl -n new .");
    assert!(inherited.contains(&format!("default:user:{uid}:rwx")), "{inherited}");
    assert!(inherited.contains(&format!("default:user:{uid}:r-x")), "{inherited}");
    // Nobody else can be named there, as in any namespace of users.
    assert_ne!(room.run("setfacl -m u:1001:rw mnt/work/plain").code, 0);
    let done = undo(room);
    assert!(done.lost.is_empty(), "{done:?}");
    assert_eq!(lists(&work), before);
    site.verify();
}

fn lists_that_name_others_survive_what_is_undone(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let before = lists(&work);
    let room = room(&site, &work);
    for line in [
        "echo more >> others",
        "chmod 600 others; echo more > others",
        "rm others; echo new > others",
        "echo new > folder/new; chmod 500 folder/file; chmod 750 folder",
        "echo new > new; mv new others",
        "setfacl -k folder; setfacl -b own",
    ] {
        does(room, line);
        let done = undo(room);
        let is_lost = line.contains("-k folder");
        assert_eq!(done.lost.is_empty(), !is_lost, "{line}: {done:?}");
        if !is_lost {
            assert_eq!(lists(&work), before, "{line}");
            assert_eq!(work.read("others").as_deref(), Some("others"), "{line}");
        }
    }
    let own = host(&work, "getfacl -n own");
    assert!(own.contains(&format!("user:{}:r--", person.uid())), "{own}");
    site.verify();
}

fn what_cannot_be_said_of_a_list_keeps_nothing_else_from_coming_back(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let path = work.path().join("others");
    let look = || {
        let stat = std::fs::metadata(&path).expect("it is there");
        (stat.mode(), stat.mtime())
    };
    let before = look();
    let room = room(&site, &work);
    does(room, "setfacl -b others && chmod 600 others && echo more >> others");
    let done = undo(room);
    assert_eq!(done.lost.len(), 1, "{done:?}");
    assert!(done.lost[0].how.contains("access list"), "{done:?}");
    assert_eq!(look(), before);
    assert_eq!(work.read("others").as_deref(), Some("others"));
    site.verify();
}
