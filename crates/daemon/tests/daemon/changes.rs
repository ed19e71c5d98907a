//! Changes of granted folders: told, attributed, taken back, asked about, and kept for a while.

use crate::for_everyone;
use crate::look::until_some;
use crate::room::{Room, typed};
use crate::site::Site;
use cowork_client::http::Method;
use cowork_client::types::{
    ChangeKind, Changes, Difference, History, MarkKind, NamePolicy, ProtectedName, Raw, Record,
    Request, RequestState, Restored, RuleOrigin, SetKind,
};
use cowork_client::uri::Query;
use cowork_testbed::{Folder, Person};
use serde_json::{Value, json};
use std::path::PathBuf;

for_everyone!(
    what_a_command_did_is_told_and_taken_back,
    what_the_user_changed_since_is_not_overwritten,
    two_sessions_change_one_folder,
    changes_outlive_their_session,
    what_is_too_old_is_forgotten,
    what_is_too_much_is_forgotten_the_oldest_first,
    a_session_that_changed_nothing_leaves_nothing,
    staged_changes_wait_for_the_user,
    protected_names_are_asked_about,
    rules_for_names_are_in_force_at_once,
    every_refusal_is_told_or_counted,
    every_change_is_in_the_audit,
    what_cannot_be_undone_is_in_the_audit,
    a_file_of_a_refused_type_is_told_when_its_command_has_ended,
    many_changes_of_one_command_leave_room_for_others,
    a_folder_without_a_record_has_none,
);

pub(crate) fn work(person: Person) -> Folder {
    let work = Folder::new(person, "work");
    work.write("old", "one\ntwo\nthree\n");
    work.write("gone", "still here\n");
    work.write("moved", "me\n");
    work
}

/// A session with the folder as `mnt/work`, which may be emptied without a question.
pub(crate) fn room<'s>(site: &'s Site, folder: &Folder, access: &str) -> Room<'s> {
    let room = site.room(&json!({ "writes": { "guards": { "removals": 0, "share": 0 } } }));
    let grant = json!({ "path": folder.path(), "access": access, "name": "work" });
    site.post(room.at("/grants"), &grant);
    room
}

pub(crate) fn changes(room: Room<'_>) -> Changes {
    typed(room.site.get(room.at("/changes")))
}

fn undo(room: Room<'_>, body: &Value) -> Restored {
    typed(room.site.post(room.at("/undo"), body))
}

fn history(site: &Site, folder: &Folder) -> History {
    use std::os::unix::ffi::OsStrExt;
    let path = folder.path().as_os_str().as_bytes();
    typed(site.get(Query::new("/v1/history").with("path", path)))
}

/// What the changes say of each path, in order.
fn said(changes: &Changes) -> Vec<(String, ChangeKind)> {
    let mut said: Vec<_> =
        changes.changes.iter().map(|change| (change.path.lossy(), change.kind)).collect();
    said.sort_by(|one, other| one.0.cmp(&other.0));
    said
}

const WORK: &str = "cd mnt/work; sed -i s/two/2/ old; rm gone; mv moved place; mkdir -p a/b; \
                    echo new > a/b/new";

#[track_caller]
fn is_as_before(work: &Folder) {
    assert_eq!(work.read("old").as_deref(), Some("one\ntwo\nthree\n"));
    assert_eq!(work.read("gone").as_deref(), Some("still here\n"));
    assert_eq!(work.read("moved").as_deref(), Some("me\n"));
    assert_eq!((work.read("place"), work.read("a/b/new")), (None, None));
}

#[track_caller]
fn is_as_after(work: &Folder) {
    assert_eq!(work.read("old").as_deref(), Some("one\n2\nthree\n"));
    assert_eq!((work.read("gone"), work.read("moved")), (None, None));
    assert_eq!(work.read("place").as_deref(), Some("me\n"));
    assert_eq!(work.read("a/b/new").as_deref(), Some("new\n"));
}

fn what_a_command_did_is_told_and_taken_back(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let room = room(&site, &work, "rw");
    assert_eq!(room.run("true").code, 0);
    let number = room.sh(WORK);
    assert_eq!(room.finish(number).text(), "");
    is_as_after(&work);
    let told = changes(room);
    let expected = [
        ("a", ChangeKind::Added),
        ("a/b", ChangeKind::Added),
        ("a/b/new", ChangeKind::Added),
        ("gone", ChangeKind::Deleted),
        ("old", ChangeKind::Modified),
        ("place", ChangeKind::Renamed),
    ];
    assert_eq!(said(&told), expected.map(|(path, kind)| (path.to_owned(), kind)));
    assert_eq!(told.sets.len(), 1, "{told:?}");
    assert_eq!((told.sets[0].kind, told.sets[0].command), (SetKind::Command, Some(number)));
    let place = told.changes.iter().find(|change| change.path.lossy() == "place").expect("told");
    assert_eq!(place.from.as_ref().map(Raw::lossy).as_deref(), Some("moved"));
    assert_eq!(place.host.lossy(), work.path().join("place").display().to_string());
    let inside = format!("/sessions/{}/mnt/work/old", room.id());
    let differ: Vec<Difference> =
        typed(site.get(Query::new(room.at("/diff")).with("path", &inside)));
    assert_eq!(differ.len(), 1, "{differ:?}");
    let text = differ[0].text.clone().expect("it is text");
    assert!(text.contains("\n-two\n+2\n"), "{text}");
    // What is only tried changes nothing.
    let tried = undo(room, &json!({ "dry_run": true }));
    assert!(tried.set.is_none() && tried.names >= 5, "{tried:?}");
    is_as_after(&work);
    let undone = undo(room, &json!({}));
    assert!(undone.set.is_some() && undone.lost.is_empty(), "{undone:?}");
    is_as_before(&work);
    assert_eq!(said(&changes(room)), Vec::new());
    let nothing = site.refused(Method::Post, room.at("/undo"), Some(&json!({})));
    assert_eq!((nothing.status, nothing.code.as_str()), (409, "nothing-to-undo"));
    let redone: Restored = typed(site.post(room.at("/redo"), &json!({})));
    assert!(redone.set.is_some(), "{redone:?}");
    is_as_after(&work);
    // The session goes on, and what it does next is another set.
    assert_eq!(room.run("echo more >> mnt/work/old").code, 0);
    undo(room, &json!({}));
    is_as_after(&work);
    undo(room, &json!({ "all": true }));
    is_as_before(&work);
    site.verify();
}

fn what_the_user_changed_since_is_not_overwritten(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let room = room(&site, &work, "rw");
    assert_eq!(room.run("cd mnt/work; echo theirs > old; echo x > other; rm gone").code, 0);
    work.write("old", "mine\n");
    let problem = site.refused(Method::Post, room.at("/undo"), Some(&json!({})));
    assert_eq!((problem.status, problem.code.as_str()), (409, "conflict"), "{problem:?}");
    assert!(problem.detail.expect("it says where").contains("old"));
    assert_eq!(work.read("old").as_deref(), Some("mine\n"));
    assert_eq!((work.read("other").as_deref(), work.read("gone")), (Some("x\n"), None));
    let tried = undo(room, &json!({ "dry_run": true }));
    assert_eq!(tried.conflicts.len(), 1, "{tried:?}");
    let ours = undo(room, &json!({ "on_conflict": "ours" }));
    assert_eq!(ours.conflicts.len(), 1);
    assert_eq!(work.read("old").as_deref(), Some("mine\n"));
    assert_eq!((work.read("other"), work.read("gone").as_deref()), (None, Some("still here\n")));
    // The other way.
    assert_eq!(room.run("cd mnt/work; echo again > old").code, 0);
    work.write("old", "mine again\n");
    undo(room, &json!({ "on_conflict": "theirs" }));
    assert_eq!(work.read("old").as_deref(), Some("mine\n"));
    site.verify();
}

fn two_sessions_change_one_folder(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let (one, two) = (room(&site, &work, "rw"), room(&site, &work, "rw"));
    assert_eq!(one.run("cd mnt/work; echo one > old; echo one > new; rm gone").code, 0);
    assert_eq!(two.run("cd mnt/work; cat old; echo two > old; mv moved away").text(), "one\n");
    assert_eq!(one.run("cat mnt/work/old mnt/work/away").text(), "two\nme\n");
    let names = |room| said(&changes(room)).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(
        (names(one), names(two)),
        (
            vec!["gone".to_owned(), "new".to_owned(), "old".to_owned()],
            vec!["away".to_owned(), "old".to_owned()],
        )
    );
    // What the other session changed since is somebody else's.
    let problem = site.refused(Method::Post, one.at("/undo"), Some(&json!({})));
    assert_eq!((problem.status, problem.code.as_str()), (409, "conflict"), "{problem:?}");
    assert_eq!((work.read("old").as_deref(), work.read("gone")), (Some("two\n"), None));
    undo(two, &json!({}));
    assert_eq!(
        (work.read("old").as_deref(), work.read("moved").as_deref()),
        (Some("one\n"), Some("me\n"))
    );
    assert_eq!(work.read("new").as_deref(), Some("one\n"), "the other's is there");
    undo(one, &json!({ "on_conflict": "theirs" }));
    is_as_before(&work);
    site.verify();
}

fn changes_outlive_their_session(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let other = Folder::new(person, "other");
    let room = room(&site, &work, "rw");
    let number = room.sh(WORK);
    assert_eq!(room.finish(number).code, 0);
    room.remove();
    site.leave();
    site.start();
    let told = changes(room);
    assert_eq!(told.sets[0].command, Some(number));
    let kept = history(&site, &work);
    assert_eq!((kept.kept.days, kept.sessions.len()), (14, 1));
    assert_eq!(kept.sessions[0].session, room.id());
    assert!(kept.sessions[0].ended.is_some());
    assert!(history(&site, &other).sessions.is_empty());
    let one = undo(room, &json!({ "paths": [work.path().join("gone")] }));
    assert_eq!(one.names, 1, "{one:?}");
    assert_eq!(work.read("gone").as_deref(), Some("still here\n"));
    undo(room, &json!({ "all": true }));
    is_as_before(&work);
    let nowhere = json!({ "paths": [other.path()] });
    let problem = site.refused(Method::Post, room.at("/undo"), Some(&nowhere));
    assert_eq!((problem.status, problem.code.as_str()), (404, "no-changes"));
    site.verify();
}

fn what_is_too_old_is_forgotten(person: Person) {
    let site = Site::with_file(person, "COWORK_CHANGES_DAYS", PathBuf::from("0"));
    let work = work(person);
    let (gone, kept) = (room(&site, &work, "rw"), room(&site, &work, "rw"));
    assert_eq!(gone.run("echo x > mnt/work/x").code, 0);
    assert_eq!(kept.run("echo y > mnt/work/y").code, 0);
    gone.remove();
    assert_eq!(history(&site, &work).sessions.len(), 2);
    site.leave();
    site.start();
    until_some("it is forgotten", || {
        let left = history(&site, &work).sessions;
        (left.len() == 1).then_some(left)
    });
    let forgotten = site.records(&[("type", "changes.forgotten")]);
    assert_eq!(forgotten.len(), 1);
    assert_eq!(forgotten[0].session.as_deref(), Some(gone.id()));
    let problem = site.refused(Method::Get, gone.at("/changes"), None);
    assert_eq!((problem.status, problem.code.as_str()), (404, "no-session"));
    assert_eq!(said(&changes(kept)), [("y".to_owned(), ChangeKind::Added)]);
}

fn what_is_too_much_is_forgotten_the_oldest_first(person: Person) {
    let site = Site::with_file(person, "COWORK_CHANGES_BYTES", PathBuf::from("1M"));
    let work = work(person);
    work.write("large", "x".repeat(700_000));
    let rooms = [(); 3].map(|()| room(&site, &work, "rw"));
    for (number, room) in rooms.iter().enumerate() {
        assert_eq!(room.run(&format!("echo {number} >> mnt/work/large")).code, 0);
    }
    let [first, second, alive] = rooms;
    // What is still there is never forgotten, however old it is.
    second.remove();
    // Ends are told by the second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    first.remove();
    let known = |site: &Site| {
        let sessions = history(site, &work).sessions;
        let mut ids: Vec<String> = sessions.into_iter().map(|kept| kept.session).collect();
        ids.sort();
        ids
    };
    assert_eq!(known(&site).len(), 3);
    site.leave();
    site.start();
    until_some("enough is forgotten", || (known(&site).len() == 1).then_some(()));
    assert_eq!(known(&site), [alive.id()]);
    let forgotten = site.records(&[("type", "changes.forgotten")]);
    let told: Vec<_> = forgotten
        .iter()
        .map(|record| (record.session.as_deref(), record.data["reason"].as_str()))
        .collect();
    let reason = Some("too much");
    assert_eq!(told, [(Some(second.id()), reason), (Some(first.id()), reason)]);
    undo(alive, &json!({}));
    assert_eq!(work.read("large").map(|text| text.len()), Some(700_004));
    site.verify();
}

fn a_session_that_changed_nothing_leaves_nothing(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let room = room(&site, &work, "rw");
    assert_eq!(room.run("cat mnt/work/old").code, 0);
    assert!(said(&changes(room)).is_empty());
    room.remove();
    let stores = std::fs::read_dir(site.state().join("changes")).expect("there is a folder");
    assert_eq!(stores.count(), 0);
    let plain = site.plain_room();
    let problem = site.refused(Method::Get, plain.at("/changes"), None);
    assert_eq!((problem.status, problem.code.as_str()), (404, "no-store"));
}

fn staged_changes_wait_for_the_user(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let room = room(&site, &work, "staged");
    assert_eq!(room.run(WORK).code, 0);
    is_as_before(&work);
    assert_eq!(room.run("cat mnt/work/a/b/new").text(), "new\n");
    assert!(!said(&changes(room)).is_empty());
    let applied: Restored = typed(site.post(room.at("/apply"), &json!({})));
    assert!(applied.names > 0, "{applied:?}");
    assert_eq!(work.read("a/b/new").as_deref(), Some("new\n"));
    assert_eq!((work.read("gone"), work.read("old").as_deref()), (None, Some("one\n2\nthree\n")));
    undo(room, &json!({}));
    assert_eq!(work.read("gone").as_deref(), Some("still here\n"));
    assert_eq!(room.run("echo junk > mnt/work/junk").code, 0);
    site.post(room.at("/discard"), &json!({}));
    assert_ne!(room.run("cat mnt/work/junk").code, 0);
    assert_eq!(work.read("junk"), None);
    let plain = self::room(&site, &work, "rw");
    let problem = site.refused(Method::Post, plain.at("/apply"), Some(&json!({})));
    assert_eq!((problem.status, problem.code.as_str()), (409, "not-staged"));
    site.verify();
}

#[track_caller]
fn one_pending(room: Room<'_>) -> Request {
    until_some("it asks", || {
        let page = room.site.get(format!("/v1/requests?state=pending&session={}", room.id()));
        typed::<Vec<Request>>(page["items"].clone()).pop()
    })
}

fn decide(site: &Site, id: u64, decision: &str) -> Request {
    typed(site.post(format!("/v1/requests/{id}/decide"), &json!({ "decision": decision })))
}

fn protected_names_are_asked_about(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let room = room(&site, &work, "rw");
    let rule = json!({ "pattern": "/secret/**", "policy": "ask", "reason": "it is mine" });
    site.post(room.at("/protected"), &rule);
    assert_eq!(room.run("mkdir mnt/work/secret").code, 0);
    let number = room.sh("echo 1 > mnt/work/secret/a");
    let request = one_pending(room);
    assert_eq!(request.kind, "file");
    assert_eq!(request.wanted, work.path().join("secret/a").display().to_string());
    assert!(request.reason.contains("it is mine"), "{request:?}");
    assert_eq!(work.read("secret/a"), None, "it waits");
    assert_eq!(decide(&site, request.id, "reject_once").state, RequestState::Rejected);
    assert_ne!(room.finish(number).code, 0);
    assert_eq!(work.read("secret/a"), None);
    let number = room.sh("echo 2 > mnt/work/secret/a");
    decide(&site, one_pending(room).id, "allow_session");
    assert_eq!(room.finish(number).code, 0);
    assert_eq!(work.read("secret/a").as_deref(), Some("2\n"));
    // It was said for the session.
    assert_eq!(room.run("echo 3 > mnt/work/secret/b").code, 0);
    // Who waits no more is not asked for.
    site.post(room.at("/protected"), &json!({ "pattern": "/other", "policy": "ask" }));
    let number = room.sh("echo 4 > mnt/work/other");
    let request = one_pending(room);
    room.tell_command(number, "cancel", &json!({ "grace": "1s" }));
    until_some("it is withdrawn", || {
        let now: Request = typed(site.get(format!("/v1/requests/{}", request.id)));
        (now.state == RequestState::Expired).then_some(())
    });
    assert_eq!(work.read("other"), None);
    site.verify();
}

fn rules_for_names_are_in_force_at_once(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let room = room(&site, &work, "rw");
    let list = || typed::<Vec<ProtectedName>>(site.get(room.at("/protected")));
    assert!(
        list().iter().any(|rule| rule.origin == RuleOrigin::Default && !rule.reason.is_empty())
    );
    let rule = json!({ "pattern": "*.lock", "policy": "deny", "reason": "made by tools" });
    let made: ProtectedName = typed(site.post(room.at("/protected"), &rule));
    assert_eq!((made.policy, made.origin), (NamePolicy::Deny, RuleOrigin::Session));
    assert_eq!(list()[0], made);
    assert_ne!(room.run("echo x > mnt/work/a.lock").code, 0);
    assert_eq!(work.read("a.lock"), None);
    // It outlives the sandbox.
    room.tell("stop");
    room.tell("start");
    assert_ne!(room.run("echo x > mnt/work/a.lock").code, 0);
    let target = String::from(Query::new(room.at("/protected")).with("pattern", "*.lock"));
    site.ask(Method::Delete, target.clone(), None).expect("it can be removed");
    assert_eq!(room.run("echo x > mnt/work/a.lock").code, 0);
    let gone = site.refused(Method::Delete, target, None);
    assert_eq!((gone.status, gone.code.as_str()), (404, "no-rule"));
    for (bad, code) in [
        (json!({ "pattern": "a//b", "policy": "ask" }), "bad-rule"),
        (json!({ "pattern": "a", "policy": "ask", "grant": "nothing" }), "no-grant"),
        (json!({ "pattern": "a", "policy": "maybe" }), "malformed"),
    ] {
        let problem = site.refused(Method::Post, room.at("/protected"), Some(&bad));
        assert_eq!(problem.code, code, "{bad}");
    }
    site.verify();
}

fn every_refusal_is_told_or_counted(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let room = room(&site, &work, "rw");
    site.post(room.at("/protected"), &json!({ "pattern": "*.lock", "policy": "deny" }));
    let line = "for i in $(seq 120); do : > mnt/work/$i.lock; done 2> /dev/null; true";
    assert_eq!(room.run(line).code, 0);
    let told = |kind: &str| site.records(&[("type", kind), ("session", room.id())]);
    let counted = || -> u64 {
        let more = told("files.refused-more");
        more.iter().filter_map(|record| record.data["count"].as_u64()).sum()
    };
    until_some("the rest is counted", || (counted() == 70).then_some(()));
    assert_eq!(told("files.refused").len(), 50);
    site.verify();
}

/// What the audit has spelled out of a session.
pub(crate) fn spelled(site: &Site, id: &str) -> Vec<Value> {
    let records: Vec<Record> = site.records(&[("type", "files.changed"), ("session", id)]);
    let lists = records.iter().filter_map(|record| record.data["changes"].as_array());
    lists.flatten().cloned().collect()
}

fn every_change_is_in_the_audit(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let room = room(&site, &work, "rw");
    let number = room.sh(WORK);
    assert_eq!(room.finish(number).code, 0);
    let told = until_some("it is recorded", || {
        let told = spelled(&site, room.id());
        let last = work.path().join("a/b/new").display().to_string();
        told.iter().any(|change| change["path"] == last.as_str()).then_some(told)
    });
    assert!(told.iter().all(|change| change["command"] == number), "{told:?}");
    let gone = work.path().join("gone").display().to_string();
    let gone: Vec<_> = told.iter().filter(|change| change["path"] == gone.as_str()).collect();
    assert_eq!(gone.len(), 1, "{told:?}");
    assert_eq!(gone[0]["operation"], "remove");
    // Each is told once, also at the end.
    let before = told.len();
    assert_eq!(room.run("echo last > mnt/work/last").code, 0);
    room.remove();
    let told = spelled(&site, room.id());
    let last = work.path().join("last").display().to_string();
    assert!(told.iter().any(|change| change["path"] == last.as_str()), "{told:?}");
    assert!(told.len() > before && told.len() <= before + 4, "{told:?}");
    site.verify();
}

fn what_cannot_be_undone_is_in_the_audit(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    work.write("large", "x".repeat(100_000));
    let room = site.room(&json!({ "writes": { "caps": { "file": "64K" } } }));
    let grant = json!({ "path": work.path(), "access": "rw", "name": "work" });
    site.post(room.at("/grants"), &grant);
    assert_eq!(room.run("cd mnt/work; echo 1 > large; echo 2 > old").code, 0);
    let told = until_some("it is recorded", || {
        let told = spelled(&site, room.id());
        (told.len() >= 2).then_some(told)
    });
    let of = |name: &str| {
        let path = work.path().join(name).display().to_string();
        told.iter().find(|change| change["path"] == path.as_str()).expect("it is there")
    };
    assert_eq!(of("large")["lost"], "it was too large to be kept");
    assert_eq!(of("old")["lost"], Value::Null);
    // What one command did is told by itself.
    let of_command = |number: u32| -> Changes {
        let query = Query::new(room.at("/changes")).with("command", number.to_string());
        typed(site.get(query))
    };
    assert_eq!(said(&of_command(1)).len(), 2);
    assert_eq!(room.run("echo 3 > mnt/work/three").code, 0);
    assert_eq!(said(&of_command(2)), [("three".to_owned(), ChangeKind::Added)]);
    assert!(of_command(7).changes.is_empty());
    site.verify();
}

/// Leaves a program for Windows under a name that says nothing.
const EVIL: &str = "(cd /tmp; printf MZ > e; head -c 58 /dev/zero >> e; \
                    printf '\\100\\0\\0\\0PE\\0\\0' >> e; head -c 200 /dev/zero >> e); \
                    cp /tmp/e mnt/work/x.txt; echo text > mnt/work/y.txt";

fn a_file_of_a_refused_type_is_told_when_its_command_has_ended(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let room = room(&site, &work, "rw");
    assert_eq!(room.run(EVIL).code, 0);
    let reason = "it begins like a program for Windows";
    let marked = || -> Vec<(String, Option<String>)> {
        let changes = changes(room).changes;
        let marks = changes.into_iter().flat_map(|change| {
            let marks = change.marks.into_iter();
            let marks = marks.filter(|mark| mark.mark == MarkKind::RefusedType);
            marks.map(move |mark| (change.path.lossy(), mark.reason)).collect::<Vec<_>>()
        });
        marks.collect()
    };
    assert_eq!(marked(), [("x.txt".to_owned(), Some(reason.to_owned()))]);
    let flagged = || -> Vec<Value> {
        let records = site.records(&[("type", "files.flagged"), ("session", room.id())]);
        let lists = records.iter().filter_map(|record| record.data["files"].as_array());
        lists.flatten().cloned().collect()
    };
    until_some("it is recorded", || (!flagged().is_empty()).then_some(()));
    assert!(std::fs::metadata(work.path().join("x.txt")).is_ok(), "it stays");
    // It is told once.
    assert_eq!(room.run("echo more > mnt/work/z.txt").code, 0);
    let z = work.path().join("z.txt").display().to_string();
    until_some("the next is recorded", || {
        spelled(&site, room.id()).iter().any(|change| change["path"] == z.as_str()).then_some(())
    });
    let told = flagged();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["path"], work.path().join("x.txt").display().to_string().as_str());
    assert_eq!((&told[0]["reason"], &told[0]["command"]), (&json!(reason), &json!(1)));
    // Where such files are wanted nothing is said.
    let room = site.room(&json!({ "writes": { "contents": false } }));
    let grant = json!({ "path": work.path(), "access": "rw", "name": "work" });
    site.post(room.at("/grants"), &grant);
    assert_eq!(room.run("cp mnt/work/x.txt mnt/work/copy.txt").code, 0);
    let changes = changes(room).changes;
    assert!(changes.iter().all(|change| change.marks.is_empty()), "{changes:?}");
    site.verify();
}

fn many_changes_of_one_command_leave_room_for_others(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let room = room(&site, &work, "rw");
    let many = "cd mnt/work; mkdir m; cd m; seq 10100 | xargs touch";
    assert_eq!(room.run(many).code, 0);
    assert_eq!(room.run("echo last > mnt/work/last").code, 0);
    let last = work.path().join("last").display().to_string();
    let told = until_some("the other command is spelled out", || {
        let told = spelled(&site, room.id());
        told.iter().any(|change| change["path"] == last.as_str()).then_some(told)
    });
    assert_eq!(told.iter().filter(|change| change["command"] == 1).count(), 10_000);
    let one = told.iter().find(|change| change["path"] == last.as_str()).expect("it is there");
    assert_eq!(one["command"], 2);
    let counted = || -> u64 {
        let records = site.records(&[("type", "files.changed"), ("session", room.id())]);
        let counted = records.iter().filter_map(|record| record.data["sets"]["1"].as_object());
        counted.flat_map(|of| of.values()).filter_map(Value::as_u64).sum()
    };
    until_some("the rest is counted", || (counted() == 101).then_some(()));
    site.verify();
}

fn a_folder_without_a_record_has_none(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let room = room(&site, &work, "direct");
    assert_eq!(room.run(WORK).code, 0);
    is_as_after(&work);
    let problem = site.refused(Method::Post, room.at("/undo"), Some(&json!({})));
    assert_eq!((problem.status, problem.code.as_str()), (404, "no-store"));
    // It is recorded from when that is asked for.
    room.regrant("work", "rw");
    assert_eq!(room.run("echo x > mnt/work/x").code, 0);
    assert_eq!(said(&changes(room)), [("x".to_owned(), ChangeKind::Added)]);
    undo(room, &json!({}));
    is_as_after(&work);
    assert_eq!(work.read("x"), None);
}
