//! Files of a session's folders through the daemon, and paths in both views.

use crate::for_everyone;
use crate::look::names;
use crate::room::{Room, typed};
use crate::site::Site;
use cowork_client::http::{HttpError, Method, Request, Upload};
use cowork_client::types::{FileEntry, Page, Problem, Raw, Translated};
use cowork_client::uri::{Query, path as escaped};
use cowork_testbed::{Folder, Person};
use serde_json::json;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

for_everyone!(
    files_come_and_go,
    parts_of_a_file_can_be_read,
    nothing_outside_a_folder_is_reached,
    nothing_outside_is_reached_while_links_are_swapped,
    folders_are_listed_in_parts,
    paths_are_translated_both_ways,
);

fn put(room: Room<'_>, place: &str, bytes: &[u8]) -> Result<u16, HttpError> {
    let request = Request::new(Method::Put, room.at(&format!("/files/{place}")));
    let upload = Upload { from: &mut &*bytes, length: u64::try_from(bytes.len()).ok() };
    room.site.client().open(&request, Some(upload)).map(|answer| answer.status())
}

fn get(room: Room<'_>, place: &str) -> Result<Vec<u8>, HttpError> {
    room.site.client().call(&Request::get(room.at(&format!("/files/{place}"))))
}

#[track_caller]
fn problem<T: std::fmt::Debug>(answer: Result<T, HttpError>) -> Problem {
    match answer {
        Err(HttpError::Problem(problem)) => *problem,
        other => panic!("it was not refused: {other:.300?}"),
    }
}

fn files_come_and_go(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    let room = site.room(&json!({ "grants": [
        { "path": work.path(), "name": "write" }, { "path": work.path(), "name": "read", "access": "ro" },
    ] }));
    let big: Vec<u8> = (0..5_000_000u32)
        .map(|index| index.to_le_bytes()[usize::try_from(index % 3).expect("small")])
        .collect();
    assert_eq!(put(room, "uploads/folder/sub/big", &big).expect("it is stored"), 204);
    assert_eq!(get(room, "uploads/folder/sub/big").expect("it is there"), big);
    // The session reads it and cannot change it.
    let line =
        "stat -c %s mnt/uploads/folder/sub/big; cmp mnt/uploads/folder/sub/big - && echo same";
    let number = room.start(&json!({ "shell": line, "streams": { "stdin": "pipe" } }));
    let target = room.at(&format!("/commands/{number}/stdin?close=true"));
    let upload = Upload { from: &mut &*big, length: None };
    site.client().open(&Request::new(Method::Post, target), Some(upload)).expect("it reads");
    assert_eq!(room.finish(number).text(), "5000000\nsame\n");
    assert_ne!(room.run("echo x > mnt/uploads/folder/sub/big").code, 0);
    // What the session delivers can be fetched, and removed.
    assert_eq!(room.run("printf result > mnt/outputs/result; mkdir mnt/outputs/empty").code, 0);
    assert_eq!(get(room, "outputs/result").expect("it is there"), b"result");
    for place in ["outputs/result", "outputs/empty", "uploads/folder/sub/big"] {
        site.ask(Method::Delete, room.at(&format!("/files/{place}")), None).expect("it is removed");
    }
    assert_eq!(room.run("ls mnt/outputs mnt/uploads/folder/sub | grep -c result").code, 1);
    // A file is replaced as a whole, by a name of any bytes, and nothing is left beside it.
    let odd = escaped(b"write/\xff \xc3\xa9 ?#%");
    for contents in [&b"first"[..], b"", b"second"] {
        put(room, &odd, contents).expect("it is stored");
        assert_eq!(get(room, &odd).expect("it is there"), contents);
    }
    assert_eq!(names(work.path()).len(), 1);
    let found = std::ffi::OsStr::from_bytes(b"\xff \xc3\xa9 ?#%");
    assert_eq!(std::fs::read(work.path().join(found)).expect("it is there"), b"second");
    // One that breaks off leaves what was there.
    let request = Request::new(Method::Put, room.at(&format!("/files/{odd}")));
    let mut short = &b"short"[..];
    let broken =
        site.client().open(&request, Some(Upload { from: &mut short, length: Some(1000) }));
    assert!(broken.is_err());
    crate::look::until("it is cleaned up", || names(work.path()).len() == 1);
    assert_eq!(get(room, &odd).expect("it is there"), b"second");
    // A folder is made with those on its way, and stays what it is.
    let folder = |place: &str| room.at(&format!("/files/{place}?folder=true"));
    for _ in 0..2 {
        site.ask(Method::Put, folder("write/new/empty"), None).expect("it is made");
    }
    assert_eq!(room.run("ls -A mnt/write/new").text(), "empty\n");
    let of_file = site.refused(Method::Put, folder(&odd), None);
    assert_eq!((of_file.status, of_file.code.as_str()), (422, "not-folder"));
    let of_root = site.refused(Method::Put, folder("write/."), None);
    assert_eq!((of_root.status, of_root.code.as_str()), (422, "bad-path"));
    let read_only = site.refused(Method::Put, folder("read/new"), None);
    assert_eq!((read_only.status, read_only.code.as_str()), (403, "read-only"));
    // Read only is read only.
    assert_eq!(get(room, &odd.replace("write/", "read/")).expect("it is there"), b"second");
    let refused = problem(put(room, "read/new", b"x"));
    assert_eq!((refused.status, refused.code.as_str()), (403, "read-only"));
    let refused = site.refused(
        Method::Delete,
        room.at(&format!("/files/{}", odd.replace("write/", "read/"))),
        None,
    );
    assert_eq!((refused.status, refused.code.as_str()), (403, "read-only"));
    // The record has names and sizes, and no contents.
    let records = site.records(&[("type", "file.written")]);
    assert!(records.iter().any(|record| record.data["bytes"] == 5_000_000), "{records:?}");
    // Also of a session that is stopped.
    room.tell("stop");
    put(room, "uploads/late", b"late").expect("it is stored");
    room.tell("start");
    assert_eq!(room.run("cat mnt/uploads/late").text(), "late");
    site.verify();
}

/// A session swaps a folder and a link to another one as fast as it can.
fn nothing_outside_is_reached_while_links_are_swapped(person: Person) {
    const SWAP: &str = "import ctypes, os\n\
        os.makedirs('real', exist_ok=True); open('real/file', 'w').write('inside')\n\
        os.path.lexists('link') or os.symlink(os.environ['BESIDE'], 'link')\n\
        c = ctypes.CDLL(None); print('swaps', flush=True)\n\
        while True: c.renameat2(-100, b'real', -100, b'link', 2)";
    let site = Site::new(person);
    let (work, beside) = (Folder::new(person, "work"), Folder::new(person, "beside"));
    beside.write("file", "canary");
    let room = site.room(&json!({ "grants": [
        { "path": work.path(), "name": "work", "access": "direct" },
    ] }));
    let number = room.start(&json!({
        "argv": ["/usr/bin/python3", "-c", SWAP], "cwd": "mnt/work",
        "env": { "BESIDE": beside.path() },
    }));
    room.until_says(number, "swaps");
    let (mut inside, mut refused) = (0, 0);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(4);
    while std::time::Instant::now() < end {
        match get(room, "work/real/file") {
            Ok(bytes) => {
                assert_ne!(bytes, b"canary", "it was read");
                inside += 1;
            }
            Err(_) => refused += 1,
        }
        drop(put(room, "work/real/file", b"inside"));
        drop(site.ask(Method::Delete, room.at("/files/work/real/other"), None));
        drop(put(room, "work/real/other", b"inside"));
    }
    // Both happened, so there was something to win.
    assert!(inside > 10 && refused > 10, "{inside} {refused}");
    assert_eq!(names(beside.path()), ["file".to_owned()].into());
    assert_eq!(beside.read("file").as_deref(), Some("canary"));
}

fn parts_of_a_file_can_be_read(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    put(room, "uploads/file", b"0123456789").expect("it is stored");
    put(room, "uploads/empty", b"").expect("it is stored");
    let part = |place: &str, range: &str| {
        let request = Request::get(room.at(&format!("/files/{place}"))).with("Range", range);
        let mut answer = site.client().open(&request, None)?;
        let (status, range) = (answer.status(), answer.header("content-range"));
        let mut bytes = Vec::new();
        answer.read_to_end(&mut bytes).expect("it is whole");
        Ok((status, range, String::from_utf8(bytes).expect("it is text")))
    };
    for (range, expected, told) in [
        ("bytes=0-3", "0123", "bytes 0-3/10"),
        ("bytes=4-", "456789", "bytes 4-9/10"),
        ("bytes=9-9", "9", "bytes 9-9/10"),
        ("bytes=8-100", "89", "bytes 8-9/10"),
    ] {
        let answer = part("uploads/file", range).expect("it has such a part");
        assert_eq!(answer, (206, Some(told.to_owned()), expected.to_owned()), "{range}");
    }
    for (place, range) in [
        ("uploads/file", "bytes=10-"),
        ("uploads/file", "bytes=5-4"),
        ("uploads/empty", "bytes=0-"),
    ] {
        let refused = problem(part(place, range));
        assert_eq!((refused.status, refused.code.as_str()), (416, "bad-range"), "{range}");
    }
    let answer = part("uploads/file", "lines=1-2").expect("what is not known is ignored");
    assert_eq!((answer.0, answer.2.as_str()), (200, "0123456789"));
    assert_eq!(get(room, "uploads/empty").expect("it is there"), b"");
}

fn nothing_outside_a_folder_is_reached(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    let beside = Folder::new(person, "beside");
    beside.write("canary", "sings");
    let room = site.room(&json!({ "grants": [{ "path": work.path(), "name": "work" }] }));
    let planted = format!(
        "cd mnt/work; ln -s /etc/passwd file; ln -s / root; ln -s . here; mkfifo fifo; \
         ln -s {} beside; mkdir sub; ln -s ../.. sub/up; ln -s /proc/self/root magic; echo x > plain; \
         ln -s plain inner",
        beside.path().display()
    );
    assert_eq!(room.run(&planted).code, 0);
    assert_eq!(room.run("ln -s /etc/passwd mnt/outputs/file; mkfifo mnt/outputs/fifo").code, 0);
    for place in [
        "work/file",
        "outputs/file",
        "work/root/etc/passwd",
        "work/here/plain",
        "work/inner",
        "work/beside/canary",
        "work/sub/up/etc/passwd",
        "work/magic/etc/passwd",
    ] {
        let refused = problem(get(room, place));
        assert_eq!((refused.status, refused.code.as_str()), (403, "link"), "{place}");
    }
    for place in ["work/fifo", "outputs/fifo"] {
        let refused = problem(get(room, place));
        assert_eq!((refused.status, refused.code.as_str()), (422, "special-file"), "{place}");
    }
    for place in [
        "work/%2e%2e/beside/canary",
        "work/..%2fbeside%2fcanary",
        "work/sub/%2E%2E/%2E%2E/x",
        "work//etc/passwd",
        "work/%2fetc%2fpasswd",
        "work/a%00b",
    ] {
        let refused = problem(get(room, place));
        assert!((400..500).contains(&refused.status), "{place}: {refused:?}");
        let refused = problem(put(room, place, b"x"));
        assert!((400..500).contains(&refused.status), "{place}: {refused:?}");
    }
    for place in ["nothing/x", "home/x", ".cowork/COWORK.md", "..%2fhome/x"] {
        let refused = problem(get(room, place));
        assert!((400..500).contains(&refused.status), "{place}: {refused:?}");
    }
    // Writing goes through no link either: one that is named itself is replaced.
    for place in ["work/root/tmp/x", "work/beside/new", "work/sub/up/new"] {
        let refused = problem(put(room, place, b"x"));
        assert!(["link", "not-folder"].contains(&refused.code.as_str()), "{place}: {refused:?}");
        let target = room.at(&format!("/files/{place}"));
        let refused = site.refused(Method::Delete, target, None);
        assert!(["link", "not-folder"].contains(&refused.code.as_str()), "{place}: {refused:?}");
    }
    put(room, "work/beside", b"mine").expect("the link is replaced");
    assert_eq!(names(beside.path()), ["canary".to_owned()].into());
    assert_eq!(work.read("beside").as_deref(), Some("mine"));
    let refused = problem(get(room, "work/sub"));
    assert_eq!((refused.status, refused.code.as_str()), (409, "is-folder"));
    assert_eq!(problem(get(room, "work/none")).status, 404);
    assert_eq!(problem(get(room, "work/plain/x")).status, 422);
    let target = room.at("/files/work/sub");
    let refused = site.refused(Method::Delete, target, None);
    assert_eq!((refused.status, refused.code.as_str()), (409, "not-empty"));
    let refused = problem(put(room, "work/sub", b"x"));
    assert_eq!((refused.status, refused.code.as_str()), (409, "is-folder"));
    assert!(names(work.path()).iter().all(|name| !name.starts_with(".cowork")), "nothing is left");
    // With the grant the way in is gone.
    room.revoke("work");
    assert_eq!(problem(get(room, "work/plain")).status, 404);
}

fn folders_are_listed_in_parts(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let line = "cd mnt/outputs; touch $(seq 100 124); mkdir sub; mkfifo sub/fifo; ln -s x sub/link; \
                printf 12345 > sub/file";
    assert_eq!(room.run(line).code, 0);
    let target = room.at("/files/outputs/sub?list=true");
    let page: Page<FileEntry> = typed(site.get(target));
    let kinds: Vec<(String, &str, u64)> = page
        .items
        .iter()
        .map(|entry| (entry.name.lossy(), entry.kind.as_str(), entry.size))
        .map(|(name, kind, size)| (name, kind, if kind == "file" { size } else { 0 }))
        .collect();
    let expected = [("fifo", "other", 0), ("file", "file", 5), ("link", "link", 0)];
    assert_eq!(kinds, expected.map(|(name, kind, size)| (name.to_owned(), kind, size)));
    let all: Vec<FileEntry> = site
        .client()
        .list(&Query::new(room.at("/files/outputs")).with("limit", "7"))
        .expect("it is a list");
    let found: Vec<String> = all.iter().map(|entry| entry.name.lossy()).collect();
    let mut expected: Vec<String> = (100..=124).map(|number| number.to_string()).collect();
    expected.push("sub".to_owned());
    assert_eq!(found, expected);
    assert_eq!(site.refused(Method::Get, room.at("/files/nothing"), None).status, 404);
}

fn paths_are_translated_both_ways(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    let room = site.room(&json!({ "grants": [{ "path": work.path(), "name": "project" }] }));
    let shown = room.show();
    let own = site.state().join("sessions").join(room.id());
    let home = shown.folder.clone();
    let pairs = [
        (work.path().join("a/b"), format!("{home}/mnt/project/a/b")),
        (work.path().to_path_buf(), format!("{home}/mnt/project")),
        (own.join("outputs/x"), format!("{home}/mnt/outputs/x")),
        (own.join("uploads"), format!("{home}/mnt/uploads")),
        (own.join("home/file"), format!("{home}/file")),
    ];
    let ask = |name: &str, path: &Path| -> Translated {
        let query = Query::new(room.at("/path")).with(name, path.as_os_str().as_bytes());
        typed(site.get(query))
    };
    for (host, inside) in &pairs {
        let expected = Translated {
            host: Raw::new(host.as_os_str().as_bytes()),
            session: Raw::new(inside.as_bytes()),
        };
        assert_eq!(ask("host", host), expected);
        assert_eq!(ask("session", Path::new(inside)), expected);
    }
    // They really are the same.
    assert_eq!(room.run("echo seen > mnt/project/file").code, 0);
    let there = ask("session", Path::new(&format!("{home}/mnt/project/file")));
    let there = there.host.bytes().expect("it is bytes");
    let there = Path::new(std::ffi::OsStr::from_bytes(&there)).to_path_buf();
    assert_eq!(std::fs::read_to_string(there).expect("it is there"), "seen\n");
    for (name, path) in
        [("host", "/etc/passwd"), ("session", "/tmp/x"), ("session", "/usr/bin/true")]
    {
        let query = Query::new(room.at("/path")).with(name, path);
        let refused = site.refused(Method::Get, query, None);
        assert_eq!((refused.status, refused.code.as_str()), (404, "not-visible"), "{path}");
    }
    for query in ["", "?host=relative", "?host=/a&session=/b", "?host=%zz"] {
        let refused = site.refused(Method::Get, room.at(&format!("/path{query}")), None);
        assert!([400, 422].contains(&refused.status), "{query}: {refused:?}");
    }
}
