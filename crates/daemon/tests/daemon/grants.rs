//! Folders of the user in sessions: given, changed and taken away while commands run.

use crate::for_everyone;
use crate::look::until;
use crate::room::{Ran, Room, name_of, typed};
use crate::site::Site;
use cowork_client::http::Method;
use cowork_client::types::{Access, Grant, Raw, Record, State};
use cowork_testbed::{Folder, Person, SECRET};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

for_everyone!(
    a_folder_appears_in_a_running_command,
    what_may_be_done_with_a_folder_changes_while_it_is_held,
    a_revoked_folder_is_gone_for_whoever_held_it,
    two_sessions_share_a_folder,
    sensitive_places_need_to_be_meant,
    own_programs_stay_as_they_are,
    links_to_own_programs_stay_as_they_are,
    nothing_is_reachable_after_the_end,
    grants_outlive_the_sandbox,
    mounts_in_a_folder_come_along_and_are_told,
    a_folder_can_have_any_name,
    a_grant_ends_at_its_moment,
    a_grant_ends_though_no_daemon_was_there,
);

/// Waits in a session until a file can be read, and reads it.
const WAIT_AND_READ: &str = "until cat mnt/work/canary 2>/dev/null; do sleep 0.02; done";

fn work(person: Person) -> Folder {
    let work = Folder::new(person, "work");
    work.write("canary", "sings\n");
    work
}

fn grant(room: Room<'_>, folder: &Folder, access: &str) -> Grant {
    let body = json!({ "path": folder.path(), "access": access, "name": "work" });
    typed(room.site.post(room.at("/grants"), &body))
}

/// A line that fails in a session.
fn fails(ran: &Ran) -> bool {
    ran.code != 0
}

fn a_folder_appears_in_a_running_command(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let work = work(person);
    let number = room.sh(WAIT_AND_READ);
    assert!(fails(&room.run("ls mnt/work")));
    let given = grant(room, &work, "ro");
    assert_eq!(given.at, format!("/sessions/{}/mnt/work", room.id()));
    assert_eq!(given.access, Access::Read);
    assert_eq!(room.finish(number).text(), "sings\n");
    assert!(fails(&room.run("echo x > mnt/work/new")));
    assert!(fails(&room.run("rm mnt/work/canary")));
    let changed = room.regrant("work", "rw");
    assert_eq!(changed.grant.access, Access::Write);
    assert_eq!(
        room.run("echo x > mnt/work/new; mkdir mnt/work/sub; cat mnt/work/new").text(),
        "x\n"
    );
    assert_eq!(work.read("new").as_deref(), Some("x\n"));
    let made = std::fs::metadata(work.path().join("new")).expect("it is there");
    assert_eq!(made.uid(), person.uid(), "what a session makes belongs to the user");
    // What changes on the host changes inside.
    work.write("later", "live");
    assert_eq!(room.run("cat mnt/work/later").text(), "live");
    let twice = site.refused(
        Method::Post,
        room.at("/grants"),
        Some(&json!({ "path": work.path(), "name": "work" })),
    );
    assert_eq!((twice.status, twice.code.as_str()), (409, "grant-exists"));
    assert_eq!(room.regrant("work", "rw").revoked.certainty, "unchanged");
    for method in [Method::Delete, Method::Patch] {
        let body = json!({ "access": "ro" });
        let missing = site.refused(method, room.at("/grants/nothing"), Some(&body));
        assert_eq!((missing.status, missing.code.as_str()), (404, "no-grant"));
    }
    site.verify();
}

fn own_programs_stay_as_they_are(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let programs = cowork_testbed::programs();
    let before = std::fs::read(programs.join("cowork-mcp")).expect("it is there");
    let body = |path: &Path, access: &str| json!({ "path": path, "name": "own", "access": access });
    let refused = |body: &Value| {
        let refused = site.refused(Method::Post, room.at("/grants"), Some(body));
        assert_eq!((refused.status, refused.code.as_str()), (403, "sensitive"), "{refused:?}");
        refused.title
    };
    // Where changes are not judged, and beside the programs, it has to be meant.
    let said = refused(&body(programs, "direct"));
    assert!(said.contains("cowork's own programs"), "{said}");
    let inner = programs.join(format!("inner-{}", person.uid()));
    std::fs::create_dir_all(&inner).expect("tests run as root");
    refused(&body(&inner, "rw"));
    let mut with_inner = body(programs, "rw");
    with_inner["direct"] = json!([inner.file_name().and_then(|name| name.to_str())]);
    refused(&with_inner);
    std::fs::remove_dir(&inner).expect("it is empty");
    for folder in ["home", "outputs"] {
        let session = json!({ folder: programs });
        let refused = site.refused(Method::Post, "/v1/sessions", Some(&session));
        assert_eq!(refused.code, "sensitive", "{folder}");
    }
    // Where they are, the programs themselves are refused, whatever the user allows.
    site.post(room.at("/grants"), &body(programs, "rw"));
    let rule = json!({ "pattern": "/cowork-mcp", "policy": "allow", "grant": "own" });
    site.post(room.at("/protected"), &rule);
    for attempt in
        ["echo > mnt/own/cowork-mcp", "rm -f mnt/own/coworkd", "chmod 777 mnt/own/cowork"]
    {
        assert!(fails(&room.run(attempt)), "{attempt}");
    }
    let reasons = || {
        let records = site.records(&[("type", "files.refused"), ("session", room.id())]);
        let reason = |data: &Value| data["reason"].as_str().unwrap_or_default().to_owned();
        records.iter().map(|record| reason(&record.data)).collect::<Vec<_>>()
    };
    until("all are recorded", || reasons().len() == 3);
    assert!(reasons().iter().all(|why| why.contains("cowork's own programs")), "{:?}", reasons());
    let listed = site.get(room.at("/protected")).to_string();
    assert!(listed.contains("/cowork-keeper"), "{listed}");
    let change = json!({ "access": "direct" });
    let refused = site.refused(Method::Patch, room.at("/grants/own"), Some(&change));
    assert_eq!((refused.status, refused.code.as_str()), (403, "sensitive"), "{refused:?}");
    room.regrant("own", "ro");
    assert!(std::fs::read(programs.join("cowork-mcp")).is_ok_and(|now| now == before));
}

/// As after an installation: what the user starts is a link to the program.
fn links_to_own_programs_stay_as_they_are(person: Person) {
    let home = Folder::new(person, "someone");
    home.write("bin/other", "");
    let bin = home.path().join("bin");
    let program = cowork_testbed::programs().join("cowork");
    std::os::unix::fs::symlink(&program, bin.join("cowork")).expect("the folder is ours");
    let owner = Some(person.uid());
    std::os::unix::fs::lchown(bin.join("cowork"), owner, owner).expect("tests run as root");
    let site = Site::with_file(person, "PATH", bin.clone());
    let room = site.plain_room();
    for folder in [home.path(), &bin] {
        let body = json!({ "path": folder, "name": "own", "access": "direct" });
        let refused = site.refused(Method::Post, room.at("/grants"), Some(&body));
        assert_eq!((refused.status, refused.code.as_str()), (403, "sensitive"), "{refused:?}");
    }
    let body = json!({ "path": home.path(), "name": "own", "access": "rw" });
    site.post(room.at("/grants"), &body);
    for attempt in [
        "ln -sf /bin/true mnt/own/bin/cowork",
        "rm -f mnt/own/bin/cowork",
        "mv mnt/own/bin mnt/own/gone",
        "echo > mnt/own/bin/coworkd",
    ] {
        assert!(fails(&room.run(attempt)), "{attempt}");
    }
    assert_eq!(std::fs::read_link(bin.join("cowork")).ok(), Some(program));
    assert_eq!(room.run("echo x > mnt/own/bin/other; cat mnt/own/bin/other").text(), "x\n");
}

fn what_may_be_done_with_a_folder_changes_while_it_is_held(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let work = work(person);
    grant(room, &work, "rw");
    let holder = room.start(&json!({
        "argv": ["/usr/bin/python3", "-c",
                 "import time\nf = open('held', 'w')\nprint('open', flush=True)\ntime.sleep(1000)"],
        "cwd": "mnt/work",
    }));
    let bystander = room.sh("echo here; sleep 1000");
    room.until_says(holder, "open");
    let changed = room.regrant("work", "ro");
    assert_eq!(changed.grant.access, Access::Read);
    let killed: Vec<&str> = changed.revoked.killed.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(killed.len(), 1, "{changed:?}");
    assert!(killed[0].starts_with("python3"), "{changed:?}");
    assert_eq!(room.ended(holder).signal, Some(9));
    assert!(room.command(bystander).code.is_none(), "who does not hold on is left alone");
    assert!(fails(&room.run("echo x > mnt/work/new")));
    assert_eq!(room.run("cat mnt/work/canary").text(), "sings\n");
    assert_eq!(room.show().grants[0].access, Access::Read);
    site.verify();
}

fn a_revoked_folder_is_gone_for_whoever_held_it(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let work = work(person);
    grant(room, &work, "rw");
    // One holds a file, one stands in the folder, one has a file mapped.
    let holders = [
        "exec 9< mnt/work/canary; echo ready; read -u 9 line; \
         while sleep 0.02; do cat <&9 >/dev/null || exit; done",
        "cd mnt/work; echo ready; while :; do sleep 0.02; done",
        "exec /usr/bin/python3 -c 'import mmap, time\n\
         f = open(\"mnt/work/canary\", \"r+b\")\nm = mmap.mmap(f.fileno(), 0); f.close()\n\
         print(\"ready\", flush=True)\ntime.sleep(1000)'",
    ];
    let numbers: Vec<u32> = holders.iter().map(|line| room.sh(line)).collect();
    let bystander = room.sh("echo ready; while sleep 0.02; do :; done");
    for number in numbers.iter().chain([&bystander]) {
        room.until_says(*number, "ready");
    }
    let revoked = room.revoke("work");
    assert!(revoked.killed.len() >= 3, "{revoked:?}");
    assert!(revoked.killed.iter().all(|killed| killed.pid > 1 && !killed.name.is_empty()));
    assert!(["kernel", "scan"].contains(&revoked.certainty.as_str()), "{revoked:?}");
    for number in numbers {
        assert_eq!(room.ended(number).signal, Some(9), "command {number}");
    }
    assert!(room.command(bystander).code.is_none());
    assert!(fails(&room.run("cat mnt/work/canary")));
    assert!(fails(&room.run("ls -d mnt/work")));
    assert_eq!(room.grants(), Vec::<String>::new());
    assert_eq!(work.read("canary").as_deref(), Some("sings\n"));
    let record = site.records(&[("type", "grant.revoked")]).pop().expect("it was recorded");
    assert_eq!(record.data["killed"].as_array().map(Vec::len), Some(revoked.killed.len()));
    // The same folder can be given again.
    grant(room, &work, "ro");
    assert_eq!(room.run("cat mnt/work/canary").text(), "sings\n");
    site.verify();
}

fn two_sessions_share_a_folder(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let (one, two) = (site.plain_room(), site.plain_room());
    grant(one, &work, "rw");
    grant(two, &work, "ro");
    let waiting = two.sh("until cat mnt/work/message 2>/dev/null; do sleep 0.02; done");
    assert_eq!(one.run("echo hello > mnt/work/part; mv mnt/work/part mnt/work/message").code, 0);
    assert_eq!(two.finish(waiting).text(), "hello\n");
    assert!(fails(&two.run("echo x > mnt/work/message")));
    one.revoke("work");
    assert!(fails(&one.run("cat mnt/work/message")));
    assert_eq!(two.run("cat mnt/work/message").text(), "hello\n");
    one.remove();
    assert_eq!(two.run("cat mnt/work/message").text(), "hello\n");
}

fn sensitive_places_need_to_be_meant(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let home = person.home();
    let state = site.state().to_path_buf();
    let places = [
        home.clone(),
        "/".into(),
        home.join(".ssh"),
        state.clone(),
        state.join("sessions"),
        site.runtime().to_path_buf(),
        home.parent().expect("it has one").to_path_buf(),
    ];
    for place in &places {
        let body = json!({ "path": place, "access": "ro", "name": "place" });
        let problem = site.refused(Method::Post, room.at("/grants"), Some(&body));
        assert_eq!((problem.status, problem.code.as_str()), (403, "sensitive"), "{place:?}");
        assert!(problem.title.len() > 10, "{problem:?}");
        let body = json!({ "grants": [body] });
        let problem = site.refused(Method::Post, "/v1/sessions", Some(&body));
        assert_eq!((problem.status, problem.code.as_str()), (403, "sensitive"), "{place:?}");
    }
    // So do folders that are shown as skills.
    let body = json!({ "skills": { "path": home.join(".ssh") } });
    let problem = site.refused(Method::Post, "/v1/sessions", Some(&body));
    assert_eq!((problem.status, problem.code.as_str()), (403, "sensitive"));
    let body = json!({ "skills": { "path": home.join(".ssh"), "force": true } });
    let skilled = site.room(&body);
    assert_eq!(skilled.run("cat mnt/skills/id_secret").text(), SECRET);
    assert!(fails(&skilled.run("echo > mnt/skills/id_secret")));
    skilled.remove();
    // By another name it is the same place.
    let links = Folder::new(person, "links");
    let link = links.path().join("innocent");
    std::os::unix::fs::symlink(home.join(".ssh"), &link).expect("it is ours");
    let problem = site.refused(Method::Post, room.at("/grants"), Some(&json!({ "path": link })));
    assert_eq!(problem.code, "sensitive");
    for interface in ["/proc", "/sys"] {
        let body = json!({ "path": interface, "force": true });
        let problem = site.refused(Method::Post, room.at("/grants"), Some(&body));
        assert_eq!((problem.status, problem.code.as_str()), (422, "folder-refused"), "{interface}");
    }
    assert!(fails(&room.run("ls mnt/place")));
    // That they were asked for and not given is recorded: of the session, and of those to be made.
    let denied = |filter: &[(&str, &str)]| -> Vec<Record> {
        site.records(&[&[("type", "grant.denied")], filter].concat())
    };
    let of_session = denied(&[("session", room.id())]);
    assert_eq!(of_session.len(), places.len() + 3, "{of_session:?}");
    assert_eq!(denied(&[]).len(), 2 * places.len() + 4);
    for (record, place) in of_session.iter().zip(&places) {
        assert_eq!(record.data["path"], json!(place), "{record:?}");
        assert_eq!(record.data["access"], "ro", "{record:?}");
        assert_eq!(record.data["rule"], "sensitive", "{record:?}");
        assert!(record.data["reason"].as_str().is_some_and(|reason| reason.len() > 10));
    }
    let named = of_session.get(places.len()).expect("there are more");
    assert_eq!(named.data["path"], json!(home.join(".ssh")), "what it is, not what it is called");
    let meant =
        json!({ "path": home.join(".ssh"), "access": "ro", "name": "place", "force": true });
    let given: Grant = typed(site.post(room.at("/grants"), &meant));
    assert!(given.sensitive.is_some_and(|reason| reason.contains("SSH keys")));
    assert_eq!(room.run("cat mnt/place/id_secret").text(), SECRET);
    let record = site.records(&[("type", "grant.added")]).pop().expect("it was recorded");
    assert!(record.data["sensitive"].is_string(), "{record:?}");
    room.revoke("place");
    assert!(fails(&room.run("cat mnt/place/id_secret")));
}

fn nothing_is_reachable_after_the_end(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let work = Folder::new(person, "unique");
    work.write("canary", "sings\n");
    let body = json!({ "grants": [{ "path": work.path(), "name": "work" }] });
    let (stopped, removed) = (site.room(&body), site.room(&body));
    for room in [stopped, removed] {
        // Somebody inside holds on as well as it can.
        let line =
            "exec 9< mnt/work/canary; cd mnt/work; (setsid sleep 1000 &); echo held; sleep 1000";
        room.until_says(room.sh(line), "held");
    }
    let place = name_of(work.path());
    assert!(!crate::look::holders(&place).is_empty(), "it can be seen while it is granted");
    stopped.tell("stop");
    removed.remove();
    let left = crate::look::holders(&place);
    let left: Vec<_> = left.iter().filter(|one| one.name != "cowork-keeper").collect();
    assert!(left.is_empty(), "{left:?}");
    // The keeper's own view has nothing of it either: only the file system that it lies on.
    let keeper = site.keeper().expect("it runs").pid;
    let mounts = std::fs::read_to_string(format!("/proc/{keeper}/mountinfo")).expect("it runs");
    assert!(!mounts.contains(&place), "{mounts}");
    assert!(std::fs::remove_dir_all(work.path()).is_ok(), "nothing keeps the folder busy");
}

fn grants_outlive_the_sandbox(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let (work, other) = (work(person), Folder::new(person, "other"));
    let gone = Folder::new(person, "gone");
    let room = site.room(&json!({ "grants": [
        { "path": work.path(), "name": "work", "access": "ro" },
        { "path": gone.path(), "name": "gone" },
    ] }));
    room.tell("stop");
    // Changes of a stopped session are there when it is started.
    let body = json!({ "path": other.path(), "name": "other" });
    site.post(room.at("/grants"), &body);
    assert_eq!(room.regrant("work", "rw").revoked.certainty, "not running");
    assert_eq!(room.state(), State::Stopped);
    room.tell("start");
    assert_eq!(
        room.run("cat mnt/work/canary; echo x > mnt/work/new; ls mnt").text(),
        "sings\ngone\nother\noutputs\nskills\nuploads\nwork\n"
    );
    room.tell("stop");
    assert_eq!(room.revoke("other").certainty, "not running");
    // A folder that is no longer the one that was granted is left out, and that is told.
    std::fs::rename(gone.path(), other.path().join("moved")).expect("they are ours");
    std::fs::create_dir(gone.path()).expect("it is ours");
    room.tell("start");
    assert!(fails(&room.run("ls mnt/other")));
    assert!(fails(&room.run("ls mnt/gone")));
    assert_eq!(room.grants(), ["work"]);
    let lost = site.records(&[("type", "grant.lost")]).pop().expect("it is told");
    assert_eq!(lost.data["name"], "gone");
    until("the summary is written", || {
        let path = site.state().join("sessions").join(room.id()).join("session.json");
        std::fs::read_to_string(path).is_ok()
    });
}

/// A file system mounted in a folder of the test, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: PathBuf) -> Self {
        std::fs::create_dir(&at).expect("the folder is ours");
        let options = Some(c"size=1m,mode=755");
        rustix::mount::mount("tmpfs", &at, "tmpfs", rustix::mount::MountFlags::empty(), options)
            .expect("tests run as root");
        std::fs::write(at.join("file"), "below").expect("it is ours");
        Self(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        cowork_sys::ignore(rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH));
    }
}

fn mounts_in_a_folder_come_along_and_are_told(person: Person) {
    let folder = work(person);
    let mounted = Mounted::new(folder.path().join("below"));
    let site = Site::with(person, &["--pool", "0"]);
    let given = json!({ "path": folder.path(), "name": "work", "access": "ro" });
    let with_grant = site.room(&json!({ "grants": [given] }));
    let room = site.plain_room();
    let granted: Grant = typed(site.post(room.at("/grants"), &given));
    for (grant, room) in [(&granted, room), (&with_grant.show().grants[0], with_grant)] {
        let submounts: Vec<String> = grant.submounts.iter().map(Raw::lossy).collect();
        assert_eq!(submounts, [mounted.0.to_string_lossy()]);
        assert_eq!(room.run("cat mnt/work/below/file mnt/work/canary").text(), "belowsings\n");
        assert!(fails(&room.run("touch mnt/work/below/new")), "it is read only below as well");
        // With the folder goes what is mounted in it, whoever holds it.
        let number = room.sh("exec 9< mnt/work/below/file; echo held; sleep 1000");
        room.until_says(number, "held");
        assert!(!room.revoke("work").killed.is_empty());
        assert!(fails(&room.run("cat mnt/work/below/file")));
    }
}

fn a_folder_can_have_any_name(person: Person) {
    let site = Site::new(person);
    let parent = Folder::new(person, "parent");
    let file = parent.write("placeholder/file", "odd");
    let odd = parent.path().join(std::ffi::OsStr::from_bytes(b"\xff \n'\"$x"));
    std::fs::rename(file.parent().expect("it has one"), &odd).expect("it is ours");
    let path = Raw::new(odd.as_os_str().as_bytes());
    assert!(matches!(path, Raw::Coded { .. }));
    let room = site.plain_room();
    // Its name in the session is text that a terminal does not act on.
    let given: Grant = typed(site.post(room.at("/grants"), &json!({ "path": path })));
    assert!(!given.name.contains(char::is_control), "{given:?}");
    let at = room.at(&format!("/grants/{}", cowork_client::uri::segment(&given.name)));
    assert_eq!(typed::<Grant>(site.get(at.as_str())), given);
    room.revoke(&given.name);
    let problem = site.refused(Method::Get, at, None);
    assert_eq!((problem.status, problem.code.as_str()), (404, "no-grant"));
    let body = json!({ "path": path, "name": "odd" });
    let given: Grant = typed(site.post(room.at("/grants"), &body));
    assert_eq!(given.path, path);
    assert_eq!(room.run("cat mnt/odd/file").text(), "odd");
    site.kill();
    site.start();
    assert_eq!(room.show().grants[0].path, path);
    room.tell("stop");
    room.tell("start");
    assert_eq!(room.run("cat mnt/odd/file").text(), "odd");
    room.revoke("odd");
    site.verify();
}

/// A moment to come, as the API has it.
fn moment_in(seconds: u64) -> String {
    let moment = std::time::SystemTime::now() + std::time::Duration::from_secs(seconds);
    humantime::format_rfc3339_millis(moment).to_string()
}

fn a_grant_ends_at_its_moment(person: Person) {
    let site = Site::new(person);
    let (work, other) = (work(person), Folder::new(person, "other"));
    let later = moment_in(3000);
    let room = site.room(&json!({ "grants": [
        { "path": work.path(), "name": "work" },
        { "path": other.path(), "name": "other", "expires": later },
        { "path": other.path(), "name": "short", "expires": moment_in(5) },
    ] }));
    let change = |name: &str, expires: &str| {
        let body = json!({ "access": "rw", "expires": expires });
        let target = room.at(&format!("/grants/{name}"));
        site.ask(Method::Patch, target, Some(&body)).expect("it is changed")
    };
    let shown = room.show().grants;
    assert_eq!(shown[1].expires.as_deref(), Some(later.as_str()));
    // Whoever holds on to it is ended with it.
    let number = room.sh("exec 3< mnt/work/canary; echo held; sleep 600");
    room.until_says(number, "held");
    change("work", &moment_in(3));
    until("both have ended", || room.grants() == ["other"]);
    assert_eq!(room.ended(number).signal, Some(9));
    assert!(fails(&room.run("ls mnt/work")));
    let kinds: Vec<String> = site
        .records(&[("session", room.id()), ("type", "grant")])
        .into_iter()
        .filter(|record| record.data["name"] == "work")
        .map(|record| record.kind)
        .collect();
    assert_eq!(kinds, ["grant.changed", "grant.expired", "grant.revoking", "grant.revoked"]);
    // It is put off, given up, and set anew.
    let later = moment_in(6000);
    assert_eq!(change("other", &later)["grant"]["expires"], later);
    assert_eq!(change("other", "never")["grant"].get("expires"), None);
    assert_eq!(room.show().grants[0].expires, None);
    change("other", &moment_in(3));
    until("it has ended", || room.grants().is_empty());
    let table = ["2001-01-01T00:00:00Z", "tomorrow", "", "2h"]
        .map(|expires| (json!({ "path": other.path(), "expires": expires }), 422, "bad-time"));
    site.check_refusals(&room.at("/grants"), &table);
    assert!(room.grants().is_empty());
    site.verify();
}

fn a_grant_ends_though_no_daemon_was_there(person: Person) {
    let site = Site::new(person);
    let work = work(person);
    let room = site.plain_room();
    let stopped = site.plain_room();
    for room in [room, stopped] {
        let body = json!({ "path": work.path(), "name": "work", "expires": moment_in(3000) });
        site.post(room.at("/grants"), &body);
    }
    stopped.tell("stop");
    let number = room.sh("while cat mnt/work/canary; do sleep 0.1; done");
    room.until_says(number, "sings");
    let expires = moment_in(4);
    for room in [room, stopped] {
        let body = json!({ "access": "rw", "expires": expires });
        site.ask(Method::Patch, room.at("/grants/work"), Some(&body)).expect("it is changed");
    }
    site.kill();
    let over = humantime::parse_rfc3339(&expires).expect("it is a moment");
    until("its moment is over", || std::time::SystemTime::now() > over);
    site.start();
    until("it has ended", || room.grants().is_empty() && stopped.grants().is_empty());
    assert!(room.finish(number).out.starts_with(b"sings\n"));
    stopped.tell("start");
    assert!(fails(&stopped.run("ls mnt/work")) && fails(&room.run("ls mnt/work")));
    assert_eq!(site.records(&[("type", "grant.expired")]).len(), 2);
    site.verify();
}
