//! Changes in a session's folders, as the daemon streams them.

use crate::for_everyone;
use crate::look::until;
use crate::room::Room;
use crate::site::Site;
use cowork_client::http::{Client, Method, Request, Response};
use cowork_testbed::{Folder, Person};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};

for_everyone!(
    changes_are_told_as_they_happen,
    a_stream_ends_with_what_it_watches,
    no_link_leads_out_of_a_folder,
    what_is_not_seen_is_said,
);

/// A stream of changes.
struct Stream(BufReader<Response>);

impl Stream {
    /// Opens one, and waits until nothing is missed.
    #[track_caller]
    fn open(room: Room<'_>, place: &str) -> Self {
        let client = Client::connect(&room.site.socket()).expect("the daemon listens");
        let request = Request::get(room.at(&format!("/watch/{place}")));
        let mut stream = Self(BufReader::new(client.open(&request, None).expect("it is watched")));
        let (name, data) = stream.next().expect("it begins");
        assert_eq!(name, "ready");
        assert!(data["folders"].as_u64() > Some(0), "{data}");
        stream
    }

    /// The next event; nothing at the end.
    fn next(&mut self) -> Option<(String, Value)> {
        let (mut name, mut data) = (String::new(), Value::Null);
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("it goes on") == 0 {
                return None;
            }
            let line = line.trim_end_matches('\n');
            if let Some(text) = line.strip_prefix("event: ") {
                text.clone_into(&mut name);
            } else if let Some(text) = line.strip_prefix("data: ") {
                data = serde_json::from_str(text).expect("it is JSON");
            } else if line.is_empty() && !name.is_empty() {
                return Some((name, data));
            }
        }
    }

    /// What is told until a change of a kind at a path is.
    #[track_caller]
    fn until(&mut self, kind: &str, path: &str) -> Vec<(String, String)> {
        let mut seen = Vec::new();
        loop {
            let (name, data) = self.next().unwrap_or_else(|| panic!("it ended after {seen:?}"));
            assert_eq!(name, "change", "{data} after {seen:?}");
            let text = |field: &str| data[field].as_str().unwrap_or_default().to_owned();
            seen.push((text("kind"), text("path")));
            if text("kind") == kind && text("path") == path {
                return seen;
            }
        }
    }

    /// The reason why it ends, whatever is told before.
    #[track_caller]
    fn end(&mut self) -> String {
        let mut last = None;
        while let Some(event) = self.next() {
            last = Some(event);
        }
        let (name, data) = last.expect("it says why");
        assert_eq!(name, "end", "{data}");
        data["reason"].as_str().expect("there is a reason").to_owned()
    }
}

fn told(seen: &[(String, String)], kind: &str, path: &str) -> bool {
    seen.iter().any(|(k, p)| k == kind && p == path)
}

fn changes_are_told_as_they_happen(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    work.write("old/deep/file", "x");
    let room = site.room(&json!({ "grants": [{ "path": work.path(), "name": "work" }] }));
    // What the session delivers.
    let mut outputs = Stream::open(room, "outputs");
    assert_eq!(room.run("echo x > mnt/outputs/report").code, 0);
    let seen = outputs.until("written", "report");
    assert!(told(&seen, "created", "report"), "{seen:?}");
    // A folder with what is in it, however fast that came.
    assert_eq!(room.run("mkdir -p mnt/outputs/a/b/c; echo x > mnt/outputs/a/b/c/d").code, 0);
    let mut seen = outputs.until("created", "a/b/c/d");
    assert!(told(&seen, "created", "a"), "{seen:?}");
    assert_eq!(room.run("echo y >> mnt/outputs/a/b/c/d").code, 0);
    seen = outputs.until("changed", "a/b/c/d");
    drop(seen);
    // What is moved is watched where it is, and not where it was.
    assert_eq!(room.run("mv mnt/outputs/a/b mnt/outputs/e; echo z > mnt/outputs/e/c/f").code, 0);
    seen = outputs.until("created", "e/c/f");
    let moved = told(&seen, "moved", "e");
    assert!(moved || told(&seen, "removed", "a/b") && told(&seen, "created", "e"), "{seen:?}");
    assert_eq!(room.run("rm -r mnt/outputs/e").code, 0);
    seen = outputs.until("removed", "e");
    assert!(told(&seen, "removed", "e/c/f"), "{seen:?}");
    // What the user sends, by the API.
    let mut uploads = Stream::open(room, "uploads");
    let put = Request::new(Method::Put, room.at("/files/uploads/sent"));
    site.client().call(&put).expect("it is stored");
    uploads.until("moved", "sent");
    // What either of them does in a granted folder, or in one below it.
    let mut all = Stream::open(room, "work");
    let mut deep = Stream::open(room, "work?path=old/deep");
    assert_eq!(room.run("echo y > mnt/work/old/deep/file").code, 0);
    all.until("written", "old/deep/file");
    deep.until("written", "file");
    work.write("old/deep/mine", "x");
    all.until("written", "old/deep/mine");
    deep.until("written", "mine");
    std::fs::remove_file(work.path().join("old/deep/mine")).expect("it is ours");
    deep.until("removed", "mine");
    // One that is not to last ends, and says so.
    let mut short = Stream::open(room, "work?wait=0");
    assert_eq!(short.end(), "time");
    // What is no folder, or not the session's.
    for (place, code) in [
        ("work?path=old/deep/file", "not-folder"),
        ("work?path=missing", "no-file"),
        ("work?path=../x", "bad-path"),
        ("nothing", "no-root"),
        ("work?wait=-1", "malformed"),
        ("work?wait=601", "malformed"),
        ("work?colour=red", "malformed"),
    ] {
        let problem = site.refused(Method::Get, room.at(&format!("/watch/{place}")), None);
        assert_eq!(problem.code, code, "{place}");
    }
}

fn a_stream_ends_with_what_it_watches(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    work.write("below/file", "x");
    let room = site.room(&json!({ "grants": [{ "path": work.path(), "name": "work" }] }));
    let mut below = Stream::open(room, "work?path=below");
    let mut all = Stream::open(room, "work");
    std::fs::rename(work.path().join("below"), work.path().join("beside")).expect("it is ours");
    assert_eq!(below.end(), "gone");
    all.until("moved", "beside");
    room.revoke("work");
    assert_eq!(all.end(), "revoked");
    // A session that stops keeps its outputs; one that is removed does not.
    let mut outputs = Stream::open(room, "outputs");
    room.tell("stop");
    let put = Request::new(Method::Put, room.at("/files/outputs/late"));
    site.client().call(&put).expect("it is stored");
    outputs.until("moved", "late");
    room.remove();
    assert!(["ended", "gone"].contains(&outputs.end().as_str()));
}

fn no_link_leads_out_of_a_folder(person: Person) {
    let site = Site::new(person);
    let (work, outside) = (Folder::new(person, "work"), Folder::new(person, "outside"));
    outside.write("secret/file", "x");
    let room = site.room(&json!({ "grants": [{ "path": work.path(), "name": "work" }] }));
    let mut stream = Stream::open(room, "work");
    let link = format!("ln -s {} mnt/work/link", outside.path().display());
    assert_eq!(room.run(&link).code, 0);
    stream.until("created", "link");
    // A folder that becomes a link to one while it is looked at; as often as the kernel keeps count.
    let (swapped, secret) = (work.path().join("d"), outside.path().join("secret"));
    for _ in 0..3000 {
        std::fs::create_dir(&swapped).expect("it is ours");
        std::fs::remove_dir(&swapped).expect("it is ours");
        std::os::unix::fs::symlink(&secret, &swapped).expect("it is ours");
        std::fs::remove_file(&swapped).expect("it is ours");
    }
    std::os::unix::fs::symlink(&secret, &swapped).expect("it is ours");
    outside.write("secret/file", "changed");
    outside.write("new", "x");
    assert_eq!(room.run("echo > mnt/work/last").code, 0);
    let seen = stream.until("written", "last");
    let strange = |path: &String| path.starts_with("link/") || path.starts_with("d/");
    assert!(!seen.iter().any(|(_, path)| strange(path)), "{seen:?}");
    for place in ["work?path=link", "work?path=link/secret", "work?path=d"] {
        let problem = site.refused(Method::Get, room.at(&format!("/watch/{place}")), None);
        assert!(["link", "not-folder"].contains(&problem.code.as_str()), "{place}: {problem:?}");
    }
}

fn what_is_not_seen_is_said(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    let room = site.room(&json!({ "grants": [{ "path": work.path(), "name": "work" }] }));
    // More than is taken while nobody reads.
    let mut stream = Stream::open(room, "work");
    let file = work.path().join("file");
    for _ in 0..60_000 {
        std::fs::File::create(&file).expect("it is ours");
        std::fs::remove_file(&file).expect("it is ours");
    }
    let lost = std::iter::from_fn(|| stream.next()).find(|(name, _)| name == "overflow");
    assert!(lost.is_some());
    // And goes on after it.
    std::fs::create_dir(work.path().join("folder")).expect("it is ours");
    std::fs::write(work.path().join("folder/after"), "x").expect("it is ours");
    let after =
        std::iter::from_fn(|| stream.next()).find(|(_, data)| data["path"] == "folder/after");
    assert!(after.is_some());
    // More folders than are watched.
    for number in 0..4100 {
        std::fs::create_dir(work.path().join(format!("folder/{number}"))).expect("it is ours");
    }
    let unwatched = std::iter::from_fn(|| stream.next()).find(|(name, _)| name == "unwatched");
    assert_eq!(unwatched.expect("it is said").1["reason"], "limit");
    let client = Client::connect(&site.socket()).expect("the daemon listens");
    let request = Request::get(room.at("/watch/work"));
    let again = client.open(&request, None).expect("it is watched");
    let mut again = Stream(BufReader::new(again));
    assert_eq!(again.next(), Some(("ready".to_owned(), json!({ "folders": 4096 }))));
    assert_eq!(again.next().map(|(name, _)| name).as_deref(), Some("unwatched"));
    // As many streams as there can be.
    let mut streams = vec![stream, again];
    while streams.len() < 32 {
        streams.push(Stream::open(room, "outputs"));
    }
    let problem = site.refused(Method::Get, room.at("/watch/outputs?wait=0"), None);
    assert_eq!((problem.status, problem.code.as_str()), (409, "too-many"));
    drop(streams);
    until("there is room again", || {
        let client = Client::connect(&site.socket()).expect("the daemon listens");
        client.open(&Request::get(room.at("/watch/outputs?wait=0")), None).is_ok()
    });
}
