//! Sessions that show the host's files at their own paths.

use crate::for_everyone;
use crate::room::typed;
use crate::site::Site;
use cowork_client::http::Method;
use cowork_client::types::{Changes, Life, Restored, Session};
use cowork_testbed::{Folder, Person};
use serde_json::json;

for_everyone!(
    files_of_the_host_are_seen_and_changed_where_they_are,
    a_view_stays_the_same_when_the_sandbox_is_made_again,
    what_makes_no_view_is_refused,
);

/// A folder to work in, with something to hide.
fn work(person: Person) -> Folder {
    let work = Folder::new(person, "work");
    work.write("project/main", "old\n");
    work.write("project/.env", "the secret\n");
    work.write("keys/id", "the secret\n");
    work.write("log", "");
    work
}

fn files_of_the_host_are_seen_and_changed_where_they_are(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let at = |name: &str| work.path().join(name);
    let deny = |pattern: &str| json!({ "pattern": pattern, "policy": "deny" });
    let room = site.room(&json!({ "view": {
        "hidden": [at("keys"), at("project/.env"), at("missing")],
        "writable": [
            { "path": at("project"), "names": [deny(".bashrc"), deny(".git/hooks/**")] },
            { "path": at("log"), "access": "direct" },
        ],
        "scratch": ["/tmp"],
        "replaced": [{ "path": at("keys/id"), "contents": "made up\n" }],
    } }));
    let run = |line: &str| {
        let number = room.start(&json!({ "shell": line, "cwd": at("project") }));
        room.finish(number)
    };
    assert_eq!(run("pwd; cat main .env ../keys/id").text(), {
        let here = at("project");
        format!("{}\nold\nmade up\n", here.display())
    });
    let own = site.state().display();
    assert_eq!(run(&format!("ls -A '{own}'; ls -A '{}'", site.runtime().display())).text(), "");
    assert_eq!(run("echo new > main; echo more >> ../log; echo own > /tmp/own").text(), "");
    for refused in
        ["> ../new", "> .bashrc", "mkdir -p x/.git && mkdir x/.git/hooks && > x/.git/hooks/y"]
    {
        assert_ne!(run(refused).code, 0, "{refused}");
    }
    assert_eq!(work.read("project/main").as_deref(), Some("new\n"));
    assert_eq!(work.read("log").as_deref(), Some("more\n"));
    assert_eq!((work.read("project/.bashrc"), work.read("new")), (None, None));
    let told: Changes = typed(site.get(room.at("/changes")));
    assert!(told.changes.iter().any(|change| change.path.lossy() == "main"), "{told:?}");
    let undone: Restored = typed(site.post(room.at("/undo"), &json!({ "all": true })));
    assert!(undone.names > 0, "{undone:?}");
    assert_eq!(work.read("project/main").as_deref(), Some("old\n"));
    let more = json!({ "path": work.path(), "access": "ro" });
    let problem = site.refused(Method::Post, room.at("/grants"), Some(&more));
    assert_eq!((problem.status, problem.code.as_str()), (422, "folder-refused"));
    let problem = site.refused(Method::Delete, room.at("/grants/project"), None);
    assert_eq!((problem.status, problem.code.as_str()), (422, "folder-refused"));
    let shown = room.show();
    assert_eq!(shown.grants[0].at, at("project").display().to_string());
    site.verify();
}

fn a_view_stays_the_same_when_the_sandbox_is_made_again(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let at = |name: &str| work.path().join(name);
    let room = site.room(&json!({ "view": {
        "hidden": [at("keys")], "writable": [{ "path": at("project") }],
    } }));
    let look =
        format!("cd '{}' && cat main && ls -A ../keys && echo x > new", at("project").display());
    assert_eq!(room.run(&look).text(), "old\n");
    // The next daemon finds it as it is.
    site.kill();
    site.start();
    assert_eq!(room.run(&look).text(), "old\n");
    room.tell("stop");
    room.tell("start");
    assert_eq!(room.run(&look).text(), "old\n");
    assert_eq!(room.show().grants.len(), 1);
    // A session that lives once has a view as well.
    let once: Session = typed(site.post("/v1/sessions", &json!({ "view": {}, "life": "once" })));
    assert_eq!(once.life, Life::Once);
    site.verify();
}

fn what_makes_no_view_is_refused(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let at = |name: &str| work.path().join(name);
    let state = site.state();
    site.check_refusals(
        "/v1/sessions",
        &[
            (json!({ "view": { "shown": [at("missing")] } }), 422, "bad-path"),
            (json!({ "view": { "writable": [{ "path": at("log") }] } }), 422, "not-folder"),
            (json!({ "view": { "shown": [state] } }), 422, "folder-refused"),
            (json!({ "view": { "writable": [{ "path": "/etc" }] } }), 403, "sensitive"),
            (json!({ "view": {}, "profile": "nested" }), 422, "bad-path"),
            (json!({ "view": {}, "grants": [{ "path": at("project") }] }), 422, "bad-path"),
            (json!({ "view": { "hidden": [at("log")], "shown": [at("log")] } }), 422, "bad-path"),
            (
                json!({ "view": { "writable": [
                    { "path": at("project"), "names": [{ "pattern": "", "policy": "deny" }] },
                ] } }),
                422,
                "bad-rule",
            ),
            (json!({ "view": { "hidden": ["relative"] } }), 422, "bad-path"),
        ],
    );
    assert!(site.sessions().is_empty());
    site.verify();
}
