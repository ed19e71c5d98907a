//! Daemons that find trouble: another daemon, a folder they cannot write, a damaged file, a full
//! disk. Each says so, and nothing is lost.

use crate::for_everyone;
use crate::look::{names, until};
use crate::room::{Room, name_of, typed};
use crate::site::Site;
use cowork_client::http::{HttpError, Method, Request, Upload};
use cowork_client::types::{CommandState, Session, State};
use cowork_testbed::{Folder, Person};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

for_everyone!(
    there_is_one_daemon_per_folder,
    what_a_killed_daemon_was_starting_is_waited_for,
    a_folder_that_cannot_be_written_is_told,
    a_folder_that_becomes_read_only_refuses_and_loses_nothing,
    a_damaged_catalogue_is_told_and_left_as_it_is,
    a_full_disk_refuses_and_loses_nothing,
    who_is_asked_politely_leaves_sessions_running,
    an_idle_daemon_leaves,
);

/// Starts a daemon that does not come up; what it says.
#[track_caller]
pub(crate) fn fails_to_start(site: &Site) -> String {
    let ended = site.command().output().expect("the program is there");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(125), "{said}");
    assert!(said.starts_with("coworkd: ") && said.lines().count() == 1, "{said}");
    said
}

fn there_is_one_daemon_per_folder(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    // The same folders; the same state by another runtime folder; the other way round.
    assert!(fails_to_start(&site).contains("another coworkd"));
    let other = Folder::new(person, "other");
    std::fs::set_permissions(other.path(), PermissionsExt::from_mode(0o700)).expect("it is ours");
    let ended = site.command().env("COWORK_RUNTIME_DIR", other.path()).output();
    let said = String::from_utf8_lossy(&ended.expect("it is there").stderr).into_owned();
    assert!(
        said.contains("another coworkd") && said.contains(&*site.state().to_string_lossy()),
        "{said}"
    );
    let mut command = site.command();
    let ended = command.env("COWORK_STATE_DIR", other.path()).output().expect("it is there");
    assert_eq!(ended.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("another coworkd"));
    // Several at once: one of them comes up.
    assert_eq!(room.run("echo undisturbed").text(), "undisturbed\n");
    site.kill();
    let mut all: Vec<_> = (0..4)
        .map(|_| {
            let mut command = site.command();
            command.stderr(std::process::Stdio::null()).spawn().expect("it is there")
        })
        .collect();
    until("three have given up", || {
        all.iter_mut().filter_map(|child| child.try_wait().expect("it is ours")).count() == 3
    });
    until("one answers", || site.info().is_ok());
    assert_eq!(room.run("echo alive").text(), "alive\n");
    for child in &mut all {
        drop(child.kill());
        drop(child.wait());
    }
    site.start();
    assert_eq!(room.run("echo alive").text(), "alive\n");
    site.verify();
}

/// A process that a daemon forked and that has not executed its program yet holds the daemon's locks
/// and its socket.
fn what_a_killed_daemon_was_starting_is_waited_for(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    site.kill();
    std::fs::symlink_metadata(site.socket()).expect("nobody was there to remove it");
    let lock = std::fs::File::open(site.runtime().join("coworkd.lock")).expect("it is there");
    lock.lock().expect("nobody holds it");
    site.spawn();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(site.try_end(), None, "{}", site.said());
    drop(lock);
    until("it answers", || site.info().is_ok());
    assert_eq!(room.run("echo alive").text(), "alive\n");
    site.verify();
}

/// A file system in memory for a state folder.
struct Disk {
    path: PathBuf,
    _folder: Folder,
}

impl Disk {
    fn new(person: Person, size: &str) -> Self {
        let folder = Folder::new(person, "disk");
        let path = folder.path().join(format!("{}-mount", name_of(folder.path())));
        std::fs::create_dir(&path).expect("the folder is ours");
        let uid = person.uid();
        let options = format!("size={size},mode=700,uid={uid},gid={uid}");
        let options = std::ffi::CString::new(options).expect("it has no NUL");
        rustix::mount::mount(
            "tmpfs",
            &path,
            "tmpfs",
            MountFlags::empty(),
            Some(options.as_c_str()),
        )
        .expect("tests run as root");
        Self { path, _folder: folder }
    }

    fn remount(&self, flags: MountFlags) {
        rustix::mount::mount_remount(&self.path, flags, "").expect("tests run as root");
    }

    /// Fills it to the last byte.
    fn fill(&self) {
        let mut file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.path.join("filler"))
            .expect("there is room for a name");
        for size in [64 * 1024, 4096, 1] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
    }

    /// Lets go of so many bytes of what fills it.
    fn free(&self, bytes: u64) {
        let path = self.path.join("filler");
        let file = std::fs::File::options().write(true).open(path).expect("it is full");
        let length = file.metadata().expect("it is open").len();
        file.set_len(length.saturating_sub(bytes)).expect("it is ours");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        cowork_sys::ignore(rustix::mount::unmount(&self.path, UnmountFlags::DETACH));
    }
}

fn a_folder_that_cannot_be_written_is_told(person: Person) {
    // One that is new.
    let state = Folder::new(person, "state");
    let path = state.path().to_path_buf();
    let site = Site::unstarted(person, &[], path.clone(), Some(state));
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o500)).expect("it is ours");
    let said = fails_to_start(&site);
    assert!(said.contains(&*path.to_string_lossy()), "{said}");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).expect("it is ours");
    site.start();
    drop(site);
    // One that was used before, and is read-only now.
    let disk = Disk::new(person, "32m");
    let site = Site::unstarted(person, &["--pool", "0"], disk.path.clone(), None);
    site.start();
    let room = site.plain_room();
    assert_eq!(room.run("echo kept > file").code, 0);
    site.leave();
    disk.remount(MountFlags::RDONLY);
    let said = fails_to_start(&site);
    assert!(said.contains(&*disk.path.to_string_lossy()), "{said}");
    assert!(said.to_lowercase().contains("read-only"), "{said}");
    disk.remount(MountFlags::empty());
    site.start();
    assert_eq!(room.tell("start").state, State::Ready);
    assert_eq!(room.run("cat file").text(), "kept\n");
    site.verify();
    drop(site);
}

/// A file system on a disk of its own, which becomes read-only at its first error, as most do.
struct Ailing {
    path: PathBuf,
    image: PathBuf,
    _folder: Folder,
}

impl Ailing {
    fn new(person: Person) -> Self {
        let folder = Folder::new(person, "ailing");
        let image = folder.path().join("image");
        let file = std::fs::File::create(&image).expect("the folder is ours");
        file.set_len(64 << 20).expect("there is room");
        let path = folder.path().join(format!("{}-mount", name_of(folder.path())));
        std::fs::create_dir(&path).expect("the folder is ours");
        let owner = format!("root_owner={0}:{0}", person.uid());
        let image_text = image.to_str().expect("it is text");
        host("mkfs.ext4", &["-q", "-E", &owner, image_text]);
        let disk = Self { path, image, _folder: folder };
        disk.mount();
        std::fs::set_permissions(&disk.path, PermissionsExt::from_mode(0o700)).expect("it is ours");
        disk
    }

    fn mount(&self) {
        let [image, path] = [&self.image, &self.path].map(|path| path.to_str().expect("text"));
        host("mount", &["-o", "loop", image, path]);
    }

    /// The disk fails: from here on the file system is read-only, whoever has files open.
    fn fail(&self) {
        let path = self.path.to_str().expect("it is text");
        host("sync", &["--file-system", path]);
        host("mount", &["-o", "remount,abort", path]);
    }

    /// Another disk in its place, with what it had.
    fn replace(&mut self) {
        // Namespaces of others may know of the old one for a while; it stays read-only for them.
        rustix::mount::unmount(&self.path, UnmountFlags::DETACH).expect("it is mounted");
        let copy = self.image.with_extension("copy");
        std::fs::copy(&self.image, &copy).expect("there is room");
        self.image = copy;
        self.mount();
    }
}

impl Drop for Ailing {
    fn drop(&mut self) {
        cowork_sys::ignore(rustix::mount::unmount(&self.path, UnmountFlags::DETACH));
    }
}

#[track_caller]
fn host(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).output();
    let done = done.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {arguments:?}: {said}");
}

fn a_folder_that_becomes_read_only_refuses_and_loses_nothing(person: Person) {
    let mut disk = Ailing::new(person);
    let site = Site::unstarted(person, &["--pool", "0"], disk.path.clone(), None);
    site.start();
    let room = site.plain_room();
    assert_eq!(room.run("echo kept > file").code, 0);
    let number = room.sh("echo on; sleep 1000");
    room.until_says(number, "on");
    let work = Folder::new(person, "work");
    let body = json!({ "path": work.path(), "name": "work" });
    disk.fail();
    // What cannot be recorded is not done, and what is there can be looked at.
    let problem = site.refused(Method::Post, room.at("/grants"), Some(&body));
    assert_eq!((problem.status, problem.code.as_str()), (507, "unrecorded"), "{problem:?}");
    let line = json!({ "shell": "touch mnt/outputs/x" });
    let problem = site.refused(Method::Post, room.at("/commands"), Some(&line));
    assert_eq!(problem.status, 507, "{problem:?}");
    let problem = site.refused(Method::Post, "/v1/sessions", Some(&json!({})));
    assert!(problem.status == 507 || problem.status == 503, "{problem:?}");
    assert!(room.grants().is_empty());
    let init = room.show().sandbox.expect("it runs").pid;
    let inside = format!("/proc/{init}/root/sessions/{}/mnt/", room.id());
    assert!(names(inside.as_ref()).contains("outputs"), "it is looked at in the right place");
    assert!(!names(inside.as_ref()).contains("work"));
    assert_eq!((room.state(), room.output(number, &[])), (State::Running, b"on\n".to_vec()));
    // Once it can be written again everything is as it was recorded.
    let keeper = site.keeper().expect("it runs");
    site.note_keeper();
    site.kill();
    keeper.signal(Signal::KILL);
    until("the keeper is gone", || !keeper.exists());
    disk.replace();
    site.start();
    assert_eq!(room.state(), State::Stopped);
    assert!(room.grants().is_empty());
    assert_eq!(room.tell("start").state, State::Ready);
    assert_eq!(room.run("cat file").text(), "kept\n");
    site.post(room.at("/grants"), &body);
    assert_eq!(room.run("ls -d mnt/work").code, 0);
    site.verify();
    drop(site);
}

fn a_damaged_catalogue_is_told_and_left_as_it_is(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let room = site.plain_room();
    assert_eq!(room.run("echo kept > file").code, 0);
    for _ in 0..30 {
        drop(room.run("true"));
    }
    site.leave();
    let path = site.state().join("state.db");
    let good = std::fs::read(&path).expect("it is there");
    let write = |bytes: &[u8]| {
        // In place, so that its owner and mode stay.
        let file = std::fs::File::options().write(true).truncate(true).open(&path);
        file.expect("it is there").write_all_at(bytes, 0).expect("tests are root");
    };
    let mut middle = good.clone();
    middle[5000..9000].fill(0xa5);
    let damages: [&[u8]; 4] =
        [b"this is no catalogue", &good[..good.len() / 2], &good[..100], &middle];
    for (index, damage) in damages.into_iter().enumerate() {
        write(damage);
        let said = fails_to_start(&site);
        assert!(said.contains("state.db") && said.contains("damaged"), "{index}: {said}");
        assert!(std::fs::read(&path).expect("it is there") == damage, "{index}: it was changed");
        let beside: Vec<String> = names(site.state())
            .into_iter()
            .filter(|name| name.starts_with("state.db") && name != "state.db.lock")
            .collect();
        assert_eq!(beside, ["state.db"], "{index}");
    }
    write(&good);
    site.start();
    assert_eq!(room.tell("start").state, State::Ready);
    assert_eq!(room.run("cat file").text(), "kept\n");
    site.verify();
}

/// A call that may be refused for want of room, and for nothing else; whether it was carried out.
#[track_caller]
fn unless_full(answer: Result<Value, HttpError>) -> bool {
    match answer {
        Ok(_) => true,
        Err(HttpError::Problem(problem)) => {
            assert_eq!(problem.status, 507, "{problem:?}");
            assert!(problem.hint.is_some() || problem.detail.is_some(), "{problem:?}");
            false
        }
        Err(error) => panic!("no answer: {error:?}"),
    }
}

fn a_full_disk_refuses_and_loses_nothing(person: Person) {
    let disk = Disk::new(person, "24m");
    let site = Site::unstarted(person, &["--pool", "0"], disk.path.clone(), None);
    site.start();
    let work = Folder::new(person, "work");
    let more = Folder::new(person, "more");
    let room = site.room(&json!({ "grants": [{ "path": work.path(), "name": "work" }] }));
    let lasting = room.sh("until [ -e mnt/work/go ]; do sleep 0.02; done; exit 7");
    let mut outcomes = Outcomes::default();
    for step in 0..10 {
        disk.fill();
        disk.free(step * step * 4096);
        full_step(room, &work, &more, step, &mut outcomes);
    }
    println!("{} done, {} refused", outcomes.done, outcomes.refused);
    assert!(outcomes.refused >= 10 && outcomes.done > 0, "the disk was not full, or only full");
    // A command that ends meanwhile is not lost.
    disk.fill();
    work.write("go", "");
    std::thread::sleep(Duration::from_millis(300));
    std::fs::remove_file(disk.path.join("filler")).expect("it is full");
    let ended = room.ended(lasting);
    assert_eq!((ended.state, ended.code), (CommandState::Exited, Some(7)));
    // With room again everything works, and the next daemon finds all of it.
    assert_eq!(room.run("echo works").text(), "works\n");
    let new = site.plain_room();
    assert_eq!(new.run("echo works").text(), "works\n");
    site.verify();
    let ids = || -> Vec<String> { site.sessions().into_iter().map(|one| one.id).collect() };
    let before = ids();
    site.kill();
    site.start();
    let (after, doomed) = (ids(), &outcomes.doomed);
    assert!(after.iter().all(|id| before.contains(id)), "{before:?} {after:?}");
    // A removal that was broken off is carried on with.
    let lost = before.iter().filter(|id| !after.contains(id) && !doomed.contains(id));
    assert_eq!(lost.count(), 0, "{before:?} {after:?} {doomed:?}");
    let ended = room.command(lasting);
    assert_eq!((ended.state, ended.code), (CommandState::Exited, Some(7)), "{ended:?}");
    assert_eq!(room.run("echo works").text(), "works\n");
    site.verify();
    drop(site);
}

/// What came of the calls.
#[derive(Default)]
struct Outcomes {
    done: u32,
    refused: u32,
    /// Sessions whose removal was refused.
    doomed: Vec<String>,
}

/// Tries everything that needs room; what is refused has not happened.
fn full_step(room: Room<'_>, work: &Folder, more: &Folder, step: u64, outcomes: &mut Outcomes) {
    let site = room.site;
    let (mut done, mut refused) = (0, 0);
    let mut note = |was_done: bool| {
        *(if was_done { &mut done } else { &mut refused }) += 1;
        was_done
    };
    let before = site.sessions().len();
    let made = site.ask(Method::Post, "/v1/sessions", Some(&json!({})));
    let id = made.as_ref().ok().map(|made| made["id"].as_str().expect("it has one").to_owned());
    let made = note(unless_full(made));
    assert_eq!(site.sessions().len(), before + usize::from(made));
    let line = format!("touch mnt/work/ran-{step}");
    let ran = note(unless_full(site.ask(
        Method::Post,
        room.at("/commands"),
        Some(&json!({ "shell": line })),
    )));
    if ran {
        until("it has run", || work.read(&format!("ran-{step}")).is_some());
    } else {
        assert!(work.read(&format!("ran-{step}")).is_none(), "it ran all the same");
    }
    let body = json!({ "path": more.path(), "name": "more" });
    let had = room.grants().contains(&"more".to_owned());
    if !had {
        let given = note(unless_full(site.ask(Method::Post, room.at("/grants"), Some(&body))));
        assert_eq!(room.grants().contains(&"more".to_owned()), given);
    }
    let target = room.at("/grants/more");
    if room.grants().contains(&"more".to_owned()) {
        let taken = note(unless_full(site.ask(Method::Delete, target, None)));
        assert_eq!(room.grants().contains(&"more".to_owned()), !taken);
    }
    let bytes = vec![7; 100_000];
    let upload = Upload { from: &mut &*bytes, length: Some(100_000) };
    let put = Request::new(Method::Put, room.at("/files/uploads/file"));
    let put = site.client().open(&put, Some(upload)).map(|_| Value::Null);
    note(unless_full(put));
    if let Some(id) = id {
        // Room is needed to remove one too.
        let gone = site.ask(Method::Delete, format!("/v1/sessions/{id}"), None);
        if !note(unless_full(gone)) {
            outcomes.doomed.push(id);
        }
    }
    outcomes.done += done;
    outcomes.refused += refused;
    let shown: Session = typed(site.get(room.at("")));
    assert_eq!(shown.state, State::Running, "looking is always possible");
}

fn who_is_asked_politely_leaves_sessions_running(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    let room = site.room(&json!({ "grants": [{ "path": work.path(), "name": "work" }] }));
    let number = room.sh("echo one; until [ -e mnt/work/go ]; do sleep 0.02; done; echo two");
    room.until_says(number, "one");
    let keeper = site.keeper();
    site.terminate();
    assert_eq!(site.wait_end(), Some(0));
    assert!(!names(site.runtime()).contains("api.sock"));
    work.write("go", "");
    site.start();
    assert_eq!(room.finish(number).text(), "one\ntwo\n");
    assert_eq!(site.keeper(), keeper, "the keeper stayed");
    assert_eq!(room.show().sandbox.map(|sandbox| sandbox.restarts), Some(0));
    site.verify();
}

fn an_idle_daemon_leaves(person: Person) {
    let site = Site::with(person, &["--idle", "1"]);
    let room = site.plain_room();
    std::thread::sleep(Duration::from_millis(2500));
    assert!(site.info().is_ok(), "a session that lives keeps it");
    room.tell("stop");
    site.note_keeper();
    assert_eq!(site.wait_end(), Some(0));
    let sockets = names(site.runtime());
    assert!(!sockets.iter().any(|name| name.contains(".sock")), "{sockets:?}");
    site.start();
    assert_eq!(room.tell("start").state, State::Ready);
    assert_eq!(room.run("echo again").text(), "again\n");
}
