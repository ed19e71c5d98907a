//! What reaches from a session to the outside and back: its requests, its folders with another
//! access, and the home that is left of it.

use crate::bench::{
    A_WHILE, Bench, Room, Running, as_everybody, ask, event, grant, grant_of, is_ready, lives,
    new_plan, new_request, plan_of, revoke, state_of,
};
use crate::resident::Resident;
use cowork_api::guest::Ending;
use cowork_api::keeper::{
    Certainty, EndReason, Failure, FailureCode, Message, Reply, Request, Revoked,
};
use cowork_api::plan::{Access, Identity, SessionPlan, Writing};
use cowork_policy::HostPath;
use cowork_policy::plan::{GrantRequest, Home, SessionRequest};
use cowork_policy::seccomp::Profile;
use cowork_sandbox::client::Keeper;
use cowork_testbed::Folder;
use rustix::fd::OwnedFd;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Asks something over the socket of requests, and says what was answered.
const ASKER: &str = "
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect('/run/cowork.sock')
s.sendall(b'may I? ' + sys.argv[1].encode() + b'\\n')
print(s.makefile().readline().strip(), flush=True)
";

fn listener(sockets: Vec<OwnedFd>) -> UnixListener {
    let [_commands, requests]: [OwnedFd; 2] = sockets.try_into().expect("both sockets");
    UnixListener::from(requests)
}

#[track_caller]
fn answer_one(listener: &UnixListener, expected: &str) {
    assert!(is_ready(listener, A_WHILE), "nobody asks");
    let (mut stream, _) = listener.accept().expect("somebody asks");
    stream.set_nonblocking(false).expect("it is a socket");
    let mut asked = vec![0; expected.len()];
    stream.read_exact(&mut asked).expect("it asks");
    assert_eq!(String::from_utf8_lossy(&asked), expected);
    stream.write_all(b"yes\n").expect("it listens");
}

#[test]
fn requests_from_inside_reach_whoever_holds_the_socket_outside() {
    as_everybody(|bench| {
        for profile in [Profile::Strict, Profile::Nested] {
            let mut keeper = bench.keeper();
            let plan = plan_of(&SessionRequest { profile, ..new_request() });
            let mut room = Room::make(&mut keeper, plan);
            let attach = Request::Attach { session: room.id() };
            let (_, sockets) = keeper.call(attach.clone()).expect("it is there");
            let first = listener(sockets);
            let mut asker = room.python(ASKER, &["one"]);
            answer_one(&first, "may I? one\n");
            asker.expect("yes");
            assert_eq!(room.ending(&asker), Ending::Status(0));
            // Whoever comes next gets the same one, with those who wait.
            let mut waits = room.python(ASKER, &["two"]);
            assert!(is_ready(&first, A_WHILE));
            drop(first);
            let (_, sockets) = keeper.call(attach).expect("it is there");
            let second = listener(sockets);
            answer_one(&second, "may I? two\n");
            waits.expect("yes");
            assert_eq!(room.shell("stat -c '%a %F' /run/cowork.sock"), "666 socket\n");
        }
    });
}

#[test]
fn a_session_that_replaces_its_socket_of_requests_harms_itself_alone() {
    as_everybody(|bench| {
        let resident = Resident::start(bench);
        let mut client = resident.client();
        let plan = new_plan();
        let id = plan.id.clone();
        let made = client.call(&Request::Create(Box::new(plan))).expect("it is made");
        let (Reply::Session(status), mut sockets) = made else { panic!("no session") };
        let requests = UnixListener::from(sockets.pop().expect("the socket of requests"));
        let commands = sockets.pop().expect("the socket of commands");
        let mut room = Room::of(status, commands.into());
        let mut other = client.create(new_plan());
        let own = "
import os, socket, threading
os.unlink('/run/cowork.sock')
s = socket.socket(socket.AF_UNIX)
s.bind('/run/cowork.sock')
s.listen()
c = socket.socket(socket.AF_UNIX)
c.connect('/run/cowork.sock')
s.accept()
print('own', flush=True)
";
        assert_eq!(room.run(&["/usr/bin/python3", "-c", own]).1, "own\n");
        assert!(!is_ready(&requests, std::time::Duration::from_millis(300)), "somebody asks");
        let (_, sockets) =
            client.call(&Request::Attach { session: other.id() }).expect("it is there");
        let theirs = listener(sockets);
        let mut asker = other.python(ASKER, &["three"]);
        answer_one(&theirs, "may I? three\n");
        asker.expect("yes");
        client.call(&Request::Destroy { session: id }).expect("it ends");
    });
}

#[test]
fn more_askers_than_wait_in_line_are_all_answered() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let (_, sockets) =
            keeper.call(Request::Attach { session: room.id() }).expect("it is there");
        let requests = listener(sockets);
        let mut askers: Vec<Running> = (0..40).map(|_| room.python(ASKER, &["many"])).collect();
        assert!(room.ping());
        for _ in 0..askers.len() {
            answer_one(&requests, "may I? many\n");
        }
        for asker in &mut askers {
            asker.expect("yes");
        }
    });
}

fn regrant(
    keeper: &mut Keeper,
    room: &Room,
    folder: &Path,
    access: Access,
) -> Result<Revoked, Failure> {
    let grant = grant_of(folder, "project", access);
    match ask(keeper, Request::Regrant { session: room.id(), grant })? {
        Reply::Regranted { revoked, .. } => Ok(revoked),
        other => panic!("not granted again: {other:?}"),
    }
}

#[test]
fn a_granted_folder_gets_another_access_while_the_session_runs() {
    as_everybody(|bench| {
        let folder = bench.folder("project");
        folder.write("file", "as it was\n");
        let (mut keeper, mut room) = bench.room();
        let wanted = grant_of(folder.path(), "project", Access::Read);
        grant(&mut keeper, &room, wanted).expect("it can be granted");
        let at = room.granted("project");
        let write = format!("cat {at}/file; echo new > {at}/new && echo written || echo refused");
        let bystander = room.start(&["/bin/cat"]);
        assert!(room.shell(&format!("{write} 2>/dev/null")).ends_with("refused\n"));
        let revoked = regrant(&mut keeper, &room, folder.path(), Access::Write).expect("it can");
        assert_eq!(revoked, Revoked { killed: Vec::new(), certainty: Certainty::Kernel });
        assert_eq!(room.shell(&write), "as it was\nwritten\n");
        // Whoever could write goes when it may only be read again.
        let mut holder =
            room.start(&["/bin/sh", "-c", &format!("exec 3>>{at}/new; echo holds; read x")]);
        holder.expect("holds");
        let pid = room.host_pid(holder.pid);
        let revoked = regrant(&mut keeper, &room, folder.path(), Access::Read).expect("it can");
        assert_eq!(
            revoked,
            Revoked { killed: vec![(pid, "sh".into())], certainty: Certainty::Kernel }
        );
        assert_eq!(room.ending(&holder), Ending::Signal(9));
        assert_eq!(
            room.shell(&format!("cat {at}/new; rm {at}/new 2>/dev/null || echo refused")),
            "new\nrefused\n"
        );
        assert!(lives(room.host_pid(bystander.pid)));
        let (reply, _) = keeper.call(Request::Status { session: room.id() }).expect("it is there");
        assert!(matches!(reply, Reply::Session(status) if status.grants == ["project"]));
        revoke(&mut keeper, &room, "project");
    });
}

#[test]
fn whatever_is_not_all_direct_can_be_made_writable_later() {
    as_everybody(|bench| {
        let folder = bench.folder("project");
        let scratch = bench.folder("scratch");
        let asked = |folder: &Folder, name: &str, access| GrantRequest {
            path: HostPath::new(folder.path()).expect("it is a path"),
            folder: cowork_sandbox::folder::Folder::open(folder.path())
                .expect("it is there")
                .identity(),
            access,
            name: name.parse().expect("it is a name"),
            writing: Writing::default(),
        };
        let mut keeper = bench.keeper();
        let direct = || asked(&scratch, "scratch", cowork_policy::Access::Direct);
        let grants = vec![asked(&folder, "project", cowork_policy::Access::Read), direct()];
        let mut room =
            Room::make(&mut keeper, plan_of(&SessionRequest { grants, ..new_request() }));
        let at = room.granted("project");
        let write = format!("echo new > {at}/new && echo written || echo refused");
        assert!(room.shell(&format!("{write} 2>/dev/null")).ends_with("refused\n"));
        regrant(&mut keeper, &room, folder.path(), Access::Write).expect("it can");
        assert_eq!(room.shell(&write), "written\n");
        assert_eq!(folder.read("new").as_deref(), Some("new\n"));

        let grants = vec![direct()];
        let room = Room::make(&mut keeper, plan_of(&SessionRequest { grants, ..new_request() }));
        let wanted = grant_of(folder.path(), "project", Access::Write);
        let refused = grant(&mut keeper, &room, wanted).expect_err("it has no door");
        assert_eq!(refused.code, FailureCode::NoDoor);
    });
}

#[test]
fn nothing_happens_to_a_grant_whose_folder_has_changed() {
    as_everybody(|bench| {
        let folder = bench.folder("project");
        folder.write("project/file", "as it was\n");
        let path = folder.path().join("project");
        let (mut keeper, mut room) = bench.room();
        let wanted = grant_of(&path, "project", Access::Read);
        let other = grant_of(folder.path(), "project", Access::Write);
        grant(&mut keeper, &room, wanted.clone()).expect("it can be granted");
        std::fs::rename(&path, folder.path().join("moved")).expect("it is ours");
        std::fs::create_dir(&path).expect("it is ours");
        let again = cowork_api::plan::Grant { access: Access::Write, ..wanted };
        let refused = ask(&mut keeper, Request::Regrant { session: room.id(), grant: again })
            .expect_err("it is another folder");
        assert_eq!(refused.code, FailureCode::FolderChanged);
        let at = room.granted("project");
        assert_eq!(
            room.shell(&format!("cat {at}/file; touch {at}/x 2>/dev/null || echo refused")),
            "as it was\nrefused\n"
        );
        let grant = cowork_api::plan::Grant { name: "nothing".into(), ..other };
        let refused = ask(&mut keeper, Request::Regrant { session: room.id(), grant })
            .expect_err("there is no such grant");
        assert_eq!(refused.code, FailureCode::NoGrant);
    });
}

#[test]
fn a_nested_session_ends_when_a_folder_gets_another_access() {
    as_everybody(|bench| {
        let folder = bench.folder("project");
        let (mut keeper, room) = bench.nested_room();
        let wanted = grant_of(folder.path(), "project", Access::Direct);
        grant(&mut keeper, &room, wanted).expect("it can be granted");
        let revoked = regrant(&mut keeper, &room, folder.path(), Access::Read).expect("it is done");
        assert_eq!(revoked.certainty, Certainty::SessionEnded);
        let (session, reason) = (room.id(), EndReason::Revocation);
        assert_eq!(event(&mut keeper), Message::SessionEnded { session, reason });
        assert_eq!(state_of(room.status.init), None);
    });
}

/// A plan whose home is this folder.
fn plan_with_home(home: &Path) -> SessionPlan {
    let home = HostPath::new(home).expect("a path");
    plan_of(&SessionRequest { home: Home::Folder(home), ..new_request() })
}

fn removal(path: &Path) -> Request {
    let stat = std::fs::symlink_metadata(path).expect("it is there");
    let folder = Identity { device: stat.dev(), inode: stat.ino() };
    Request::RemoveHome { path: path.as_os_str().as_bytes().to_vec(), folder }
}

struct Kept {
    _around: Folder,
    home: std::path::PathBuf,
    canary: std::path::PathBuf,
}

fn kept(bench: &Bench) -> Kept {
    let around = bench.folder("homes");
    around.write("canary/file", "alive");
    around.write("home/.keep", "");
    let home = around.path().join("home");
    std::fs::remove_file(home.join(".keep")).expect("it is ours");
    let canary = around.path().join("canary");
    Kept { _around: around, home, canary }
}

#[test]
fn the_home_of_a_session_that_is_gone_is_removed_and_nothing_else() {
    as_everybody(|bench| {
        let kept = kept(bench);
        let mut keeper = bench.keeper();
        let mut room = Room::make(&mut keeper, plan_with_home(&kept.home));
        let script = format!(
            "ln -s {canary} ~/link; ln -s {canary}/file ~/file; mkdir -p ~/a/b/c; \
             seq 3000 | sed 's|^|a/b/|' | xargs touch; echo x > a/b/c/deep; mkfifo ~/pipe; \
             mkdir ~/locked; touch ~/locked/in; chmod 0 ~/locked; chmod 0 ~/a/b; \
             touch \"$(printf 'odd\\nname')\"; echo made",
            canary = kept.canary.display()
        );
        assert_eq!(room.shell(&script), "made\n");
        let refused = ask(&mut keeper, removal(&kept.home)).expect_err("it is in use");
        assert_eq!(refused.code, FailureCode::FolderRefused);
        ask(&mut keeper, Request::Destroy { session: room.id() }).expect("it ends");
        // Another folder in its place is not removed.
        let elsewhere = kept.home.with_file_name("elsewhere");
        let request = removal(&kept.home);
        std::fs::rename(&kept.home, &elsewhere).expect("it is ours");
        std::fs::create_dir(&kept.home).expect("it is ours");
        let refused = ask(&mut keeper, request).expect_err("it is another one");
        assert_eq!(refused.code, FailureCode::FolderChanged);
        std::fs::remove_dir(&kept.home).expect("it is ours");
        symlink(&elsewhere, &kept.home).expect("it is ours");
        let Request::RemoveHome { folder, .. } = removal(&elsewhere) else { panic!("a removal") };
        let path = kept.home.as_os_str().as_bytes().to_vec();
        let refused = ask(&mut keeper, Request::RemoveHome { path, folder }).expect_err("a link");
        assert_eq!(refused.code, FailureCode::FolderRefused);
        let weighed = weigh(&mut keeper, &elsewhere);
        assert!(weighed > 4096, "{weighed}");
        assert_eq!(ask(&mut keeper, removal(&elsewhere)), Ok(Reply::Done));
        assert!(std::fs::symlink_metadata(&elsewhere).is_err(), "it is still there");
        let alive = std::fs::read_to_string(kept.canary.join("file"));
        assert_eq!(alive.expect("it is there"), "alive");
        assert_eq!(weigh(&mut keeper, &elsewhere), 0);
    });
}

fn weigh(keeper: &mut Keeper, folder: &Path) -> u64 {
    let folders = vec![folder.as_os_str().as_bytes().to_vec()];
    match ask(keeper, Request::Weigh { folders, most: 100_000 }) {
        Ok(Reply::Weighed(bytes)) => bytes,
        other => panic!("not weighed: {other:?}"),
    }
}

#[test]
fn the_keeper_goes_on_while_homes_are_removed() {
    as_everybody(|bench| {
        let around = bench.folder("homes");
        let resident = Resident::start(bench);
        let mut client = resident.client();
        let mut wanted = Vec::new();
        for number in 0..6 {
            let home = around.path().join(format!("home-{number}"));
            for name in 0..2000 {
                let folder = home.join(format!("{}", name % 50));
                std::fs::create_dir_all(&folder).expect("it is ours");
                std::fs::write(folder.join(format!("{name}")), "").expect("it is ours");
            }
            wanted.push(removal(&home));
        }
        let answers = client.call_all(&wanted, &Request::Sessions);
        assert!(answers.iter().all(|answer| *answer == Ok(Reply::Done)), "{answers:?}");
        let left = std::fs::read_dir(around.path()).expect("it is there").count();
        assert_eq!(left, 0);
    });
}
