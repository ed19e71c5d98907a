//! The life of sessions: made, stopped, started, removed.

use crate::for_everyone;
use crate::look::{names, until};
use crate::room::{Room, typed};
use crate::site::Site;
use cowork_client::http::Method;
use cowork_client::types::{Profile, Session, State};
use cowork_testbed::{Folder, Person};
use serde_json::{Value, json};

for_everyone!(
    a_session_is_made_as_it_was_asked_for,
    bad_requests_are_refused_and_leave_nothing,
    a_home_outlives_its_sandbox,
    removal_leaves_nothing_but_what_was_asked_to_stay,
    what_a_session_is_told_follows_its_grants,
    what_people_read_of_a_session_follows_every_change,
    the_pool_is_used_and_filled_again,
    labels_are_changed_and_found,
);

fn a_session_is_made_as_it_was_asked_for(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    work.write("file", "granted");
    let room = site.room(&json!({
        "id": "explicit-one",
        "profile": "strict",
        "grants": [{ "path": work.path(), "access": "ro", "name": "project" }],
        "limits": { "open_files": 64 },
        "labels": { "team": "blue", "ticket": "17" },
    }));
    assert_eq!(room.id(), "explicit-one");
    let shown = room.show();
    assert_eq!(shown.profile, Profile::Strict);
    assert_eq!(shown.labels.get("team").map(String::as_str), Some("blue"));
    assert_eq!(room.grants(), ["project"]);
    assert!(shown.enforcement.iter().all(|layer| layer.state != "absent"), "{shown:?}");
    let files = shown.limits.iter().find(|limit| limit.limit == "open files");
    assert_eq!(files.map(|limit| limit.value.as_str()), Some("64"));
    assert_eq!(
        room.run("ulimit -n; cat mnt/project/file; hostname").text(),
        "64\ngrantedexplicit-one\n"
    );
    let pid = shown.sandbox.expect("it has one").pid;
    assert_eq!(crate::look::Process::look(pid).expect("it runs").name, "cowork-init");
    site.verify();
}

fn bad_requests_are_refused_and_leave_nothing(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let work = Folder::new(person, "work");
    let file = work.write("file", "");
    site.room(&json!({ "id": "taken-already" }));
    let grant = |value: Value| json!({ "grants": [value] });
    let table: Vec<(Value, u16, &str)> = vec![
        (json!({ "id": "taken-already" }), 409, "session-exists"),
        (json!({ "id": "Has Spaces" }), 400, "malformed"),
        (json!({ "id": "../up" }), 400, "malformed"),
        (json!({ "id": "x" }), 400, "malformed"),
        (json!({ "id": "" }), 400, "malformed"),
        (json!({ "id": "a".repeat(64) }), 400, "malformed"),
        (json!({ "idd": "misspelt" }), 400, "malformed"),
        (json!({ "limits": { "memroy": "1G" } }), 400, "malformed"),
        (json!({ "profile": "lax" }), 400, "malformed"),
        (json!([]), 400, "malformed"),
        (json!({ "limits": { "memory": "much" } }), 422, "bad-limit"),
        (json!({ "limits": { "cpus": "-1" } }), 422, "bad-limit"),
        (json!({ "limits": { "wall": "soon" } }), 422, "bad-limit"),
        (json!({ "limits": { "disk": "a lot" } }), 422, "bad-limit"),
        (json!({ "labels": { "": "x" } }), 422, "bad-label"),
        (json!({ "labels": { "a": "\u{1b}[31m" } }), 422, "bad-label"),
        (json!({ "workspace": "workspace" }), 422, "no-workspace"),
        (json!({ "workspace": "etc" }), 422, "bad-workspace"),
        (grant(json!({ "path": "relative" })), 422, "bad-path"),
        (grant(json!({ "path": "/nowhere/at/all" })), 422, "no-folder"),
        (grant(json!({ "path": file })), 422, "not-folder"),
        (grant(json!({ "path": work.path(), "name": "a/b" })), 422, "bad-name"),
        (grant(json!({ "path": work.path(), "name": "outputs" })), 422, "bad-name"),
        (grant(json!({ "path": work.path(), "acces": "ro" })), 400, "malformed"),
        (
            json!({ "grants": [{ "path": work.path() }, { "path": work.path() }] }),
            409,
            "grant-exists",
        ),
        (json!({ "home": "/nowhere" }), 422, "no-folder"),
    ];
    site.check_refusals("/v1/sessions", &table);
    let missing = site.refused(Method::Get, "/v1/sessions/no-such-one", None);
    assert_eq!((missing.status, missing.code.as_str()), (404, "no-session"));
    let nothing = site.refused(Method::Get, "/v1/nothing", None);
    assert_eq!((nothing.status, nothing.code.as_str()), (404, "no-route"));
    let wrong = site.refused(Method::Put, "/v1/sessions", None);
    assert_eq!(wrong.status, 405);
    assert_eq!(site.sessions().len(), 1);
    assert_eq!(names(&site.state().join("sessions")).len(), 1);
    site.verify();
}

fn a_home_outlives_its_sandbox(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    let room = site.room(&json!({ "grants": [{ "path": work.path(), "name": "work" }] }));
    let first = room.show().sandbox.expect("it has one").pid;
    assert_eq!(room.run("echo kept > file; echo lost > /tmp/file").code, 0);
    let number = room.sh("sleep 1000");
    assert_eq!(room.state(), State::Running);
    assert_eq!(room.tell("stop").state, State::Stopped);
    assert!(room.show().sandbox.is_none());
    let interrupted = room.command(number);
    assert_eq!(interrupted.reason.map(|reason| reason.code).as_deref(), Some("stopped"));
    assert!(crate::look::Process::look(first).is_none_or(|process| process.name != "cowork-init"));
    for (verb, code) in [("pause", "not-live"), ("resume", "not-live"), ("cancel", "not-live")] {
        let problem = site.refused(Method::Post, room.at(&format!("/{verb}")), Some(&json!({})));
        assert_eq!((problem.status, problem.code.as_str()), (409, code), "{verb}");
    }
    let body = json!({ "shell": "true" });
    let problem = site.refused(Method::Post, room.at("/commands"), Some(&body));
    assert_eq!((problem.status, problem.code.as_str()), (409, "not-live"));
    assert_eq!(room.tell("stop").state, State::Stopped, "stopping again is no failure");
    assert_eq!(room.tell("start").state, State::Ready);
    let problem = site.refused(Method::Post, room.at("/start"), Some(&json!({})));
    assert_eq!((problem.status, problem.code.as_str()), (409, "live"));
    assert_eq!(room.run("cat file; ls /tmp; ls -d mnt/work").text(), "kept\nmnt/work\n");
    assert_ne!(room.show().sandbox.expect("it has one").pid, first);
    site.verify();
}

fn removal_leaves_nothing_but_what_was_asked_to_stay(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let keep = site.plain_room();
    let drop = site.plain_room();
    for room in [&keep, &drop] {
        // Also what its owner could not remove.
        let line = "echo made > mnt/outputs/result; mkdir -p a/b; touch a/b/c; chmod 0 a/b a";
        assert_eq!(room.run(line).code, 0);
        room.sh("sleep 1000");
    }
    let pids = [&keep, &drop].map(|room| room.show().sandbox.expect("it has one").pid);
    site.ask(Method::Delete, keep.at("?outputs=keep"), None).expect("it can be removed");
    drop.remove();
    for pid in pids {
        assert!(crate::look::Process::look(pid).is_none_or(|left| left.name != "cowork-init"));
    }
    let sessions = site.state().join("sessions");
    assert_eq!(names(&sessions), [keep.id().to_owned()].into());
    let kept = sessions.join(keep.id());
    assert_eq!(names(&kept), ["outputs".to_owned(), "session.json".to_owned()].into());
    let result = std::fs::read_to_string(kept.join("outputs/result")).expect("it stayed");
    assert_eq!(result, "made\n");
    for room in [&keep, &drop] {
        let problem = site.refused(Method::Get, room.at(""), None);
        assert_eq!(problem.status, 404);
    }
    let problem = site.refused(Method::Delete, drop.at(""), None);
    assert_eq!(problem.status, 404);
    let bad = site.refused(Method::Delete, drop.at("?outputs=maybe"), None);
    assert_eq!(bad.status, 400);
    assert_eq!(site.records(&[("type", "session.removed")]).len(), 2);
    site.verify();
}

fn what_a_session_is_told_follows_its_grants(person: Person) {
    let site = Site::new(person);
    let (one, two) = (Folder::new(person, "one"), Folder::new(person, "two"));
    let room = site.room(&json!({ "grants": [{ "path": one.path(), "name": "first" }] }));
    let folder = room.show().folder;
    let about =
        room.run("cat COWORK.md; echo $COWORK_WORKSPACE; cat $COWORK_HOME/COWORK.md").text();
    assert!(about.contains(&format!("{folder}/mnt/first`: you may change it")), "{about}");
    assert!(about.contains(&format!("\n{folder}/mnt/first\n")), "{about}");
    assert!(about.contains(&format!("{folder}/mnt/outputs")), "{about}");
    // A command that runs sees the new text, and cannot change it.
    let number = room.sh("until grep -q mnt/second COWORK.md; do sleep 0.05; done; cat COWORK.md");
    let body = json!({ "path": two.path(), "access": "ro", "name": "second" });
    site.post(room.at("/grants"), &body);
    let about = room.finish(number).text();
    assert!(about.contains(&format!("{folder}/mnt/second`: read only")), "{about}");
    room.regrant("second", "rw");
    let about = room.run("cat COWORK.md").text();
    assert!(about.contains(&format!("{folder}/mnt/second`: you may change it")), "{about}");
    room.revoke("first");
    room.revoke("second");
    let about = room.run("cat COWORK.md; echo [$COWORK_WORKSPACE]").text();
    assert!(!about.contains("mnt/first") && about.contains("None at the moment"), "{about}");
    assert!(about.contains("[]"), "{about}");
    let tampered = room.run("echo x > mnt/.cowork/COWORK.md");
    assert_ne!(tampered.code, 0);
    // What people read on the host says the same.
    until_summary(room, |summary| {
        summary["id"] == room.id() && summary["grants"] == json!([]) && summary["commands"] == 5
    });
}

/// Waits until what people read of a session on the host is as it should be.
fn until_summary(room: Room<'_>, is_so: impl Fn(&Value) -> bool) {
    let path = room.site.state().join("sessions").join(room.id()).join("session.json");
    until("the summary is up to date", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        is_so(&serde_json::from_str(&text).unwrap_or_default())
    });
}

fn what_people_read_of_a_session_follows_every_change(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    let grants = json!([{ "path": work.path(), "name": "work", "access": "ro" }]);
    let room = site.room(&json!({ "grants": grants, "network": {} }));
    until_summary(room, |summary| summary["grants"][0]["grant"]["access"] == "ro");
    room.regrant("work", "rw");
    until_summary(room, |summary| summary["grants"][0]["grant"]["access"] == "rw");
    let change = |body: &Value| {
        site.ask(Method::Patch, room.at(""), Some(body)).expect("it can be changed");
    };
    change(&json!({ "labels": { "colour": "green" } }));
    until_summary(room, |summary| summary["spec"]["labels"]["colour"] == "green");
    change(&json!({ "limits": { "disk": "5g" } }));
    until_summary(room, |summary| summary["spec"]["limits"]["disk"] == "5g");
    let network = json!({ "otherwise": "ask" });
    site.ask(Method::Patch, room.at("/network"), Some(&network)).expect("it can be changed");
    until_summary(room, |summary| summary["spec"]["network"]["otherwise"] == "ask");
}

fn the_pool_is_used_and_filled_again(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    work.write("file", "granted");
    let pooled = || site.info().expect("it answers").pooled;
    assert_eq!(pooled(), 0, "nothing is made before it is known what is wanted");
    site.plain_room();
    until("the pool is full", || pooled() == 2);
    let waiting = names(&site.state().join("sessions"));
    assert_eq!(site.sessions().len(), 1, "sessions in the pool are nobody's");
    let body =
        json!({ "grants": [{ "path": work.path(), "name": "work" }], "labels": { "a": "b" } });
    let room = site.room(&body);
    assert!(waiting.contains(room.id()), "it comes from the pool");
    assert_eq!(room.run("cat mnt/work/file; hostname").text(), format!("granted{}\n", room.id()));
    assert_eq!(room.show().labels.get("a").map(String::as_str), Some("b"));
    until("the pool is full again", || pooled() == 2);
    // One in the pool that dies is not handed out.
    let ids: Vec<String> = names(&site.state().join("sessions"))
        .into_iter()
        .filter(|id| !site.sessions().iter().any(|session| session.id == *id))
        .collect();
    for id in &ids {
        let place = format!("/{}/sessions/{id}/", crate::room::name_of(site.state()));
        for process in crate::look::holders(&place) {
            if process.name == "cowork-init" {
                process.signal(rustix::process::Signal::KILL);
            }
        }
    }
    until("the dead are known", || pooled() == 0);
    let room = site.plain_room();
    assert_eq!(room.run("echo alive").text(), "alive\n");
}

fn labels_are_changed_and_found(person: Person) {
    let site = Site::new(person);
    let one = site.room(&json!({ "labels": { "colour": "red", "old": "1" } }));
    let two = site.room(&json!({ "labels": { "colour": "blue" } }));
    let body = json!({ "labels": { "colour": "green" } });
    let changed: Session =
        typed(site.ask(Method::Patch, one.at(""), Some(&body)).expect("labels can be changed"));
    assert_eq!(json!(changed.labels), json!({ "colour": "green" }));
    let told = site.records(&[("type", "session.labels"), ("session", one.id())]);
    let told: Vec<_> = told.iter().map(|record| &record.data["labels"]).collect();
    assert_eq!(told, [&json!({ "colour": "green" })]);
    let found = |query: &str| -> Vec<String> {
        let page = site.get(format!("/v1/sessions?{query}"));
        let items = page["items"].as_array().expect("it is a list").clone();
        items.iter().map(|item| item["id"].as_str().expect("it has one").to_owned()).collect()
    };
    assert_eq!(found("label=colour%3Dgreen"), [one.id()]);
    assert_eq!(found("label=colour%3Dblue"), [two.id()]);
    assert_eq!(found("label=old"), Vec::<String>::new());
    assert_eq!(found("label=colour").len(), 2);
    two.tell("stop");
    assert_eq!(found("state=stopped"), [two.id()]);
    let bad = site.refused(Method::Patch, one.at(""), Some(&json!({ "labels": { "a": "\n" } })));
    assert_eq!(bad.code, "bad-label");
    let bad = site.refused(Method::Patch, one.at(""), Some(&json!({ "id": "other" })));
    assert_eq!(bad.status, 400);
    assert_eq!(site.records(&[("type", "session.labels")]).len(), 1);
}
