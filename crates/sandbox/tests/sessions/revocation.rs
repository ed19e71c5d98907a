//! Taking a folder away from a running session, whatever holds on to it.

use crate::bench::{
    Bench, Room, Running, as_everybody, as_everybody_apart, ask, descendants, event, eventually,
    grant, grant_of, lives, new_plan, revoke, state_of,
};
use cowork_api::guest::Ending;
use cowork_api::keeper::{Certainty, EndReason, FailureCode, Message, Request, Revoked};
use cowork_api::plan::Access;
use cowork_sandbox::client::Keeper;
use cowork_testbed::Folder;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

/// What the folder holds while it is granted.
const GRANTED: &str = "what may be read while it is granted";
/// What the host writes into it after it was taken away.
const FRESH: &str = "what was written after the folder was taken away";
/// A name that the host makes in it afterwards.
const FRESH_NAME: &str = "a-name-made-after-the-folder-was-taken-away";

/// Holds on to the folder by one means, says so, and tells on every line what it sees by it.
const HOLDER: &str = r"
import ctypes, os, select, socket, sys
kind, folder = sys.argv[1:]
secret = folder + '/secret'
libc = ctypes.CDLL(None, use_errno=True)

def open_secret(flags=os.O_RDONLY):
    return os.open(secret, flags)

def nothing():
    return lambda: open(secret).read()

def reading():
    fd = open_secret()
    return lambda: os.pread(fd, 4096, 0)

def writing():
    fd = open_secret(os.O_RDWR)
    return lambda: os.pwrite(fd, b'changed by the session', 0)

def place():
    os.chdir(folder)
    return lambda: (os.listdir('.'), open('secret').read())

def mapping():
    fd = open_secret()
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    address = libc.mmap(None, 4096, 1, 1, fd, 0)
    os.close(fd)
    return lambda: ctypes.string_at(address, 100)

def path():
    fd = open_secret(os.O_PATH)
    return lambda: open('/proc/self/fd/%d' % fd).read()

def directory():
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    def look():
        return os.listdir(fd), os.read(os.open('secret', os.O_RDONLY, dir_fd=fd), 4096)
    return look

def flight():
    fd = open_secret()
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b'x'], [fd])
    os.close(fd)
    return lambda: os.pread(socket.recv_fds(theirs, 1, 1)[1][0], 4096, 0)

def watch():
    fd = libc.inotify_init()
    assert libc.inotify_add_watch(fd, folder.encode(), 0x3c6) >= 0
    def look():
        heard = b''
        while select.select([fd], [], [], 2)[0]:
            heard += os.read(fd, 65536)
        return heard
    return look

def bound():
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(folder + '/listener')
    listener.listen()
    talks = []
    def serve():
        while True:
            talks.append(listener.accept()[0])
            talks[-1].send(b'x')
    import threading
    threading.Thread(target=serve, daemon=True).start()
    return lambda: listener.getsockname()

def bound_in_flight():
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(folder + '/listener')
    listener.listen()
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b'x'], [listener.fileno()])
    listener.close()
    return lambda: (ours, theirs)

look = globals()[kind]()
print('holds', flush=True)
for line in sys.stdin:
    try:
        print(look(), flush=True)
    except OSError as error:
        print('refused:', error, flush=True)
";

/// A folder of the host with something in it.
fn project(bench: &Bench) -> Folder {
    let folder = bench.folder("project");
    // Longer than what is written later, so that a length noted now covers it.
    folder.write("secret", format!("{GRANTED:<200}"));
    folder
}

/// A session with the folder granted, a holder of it, and somebody who is not involved.
struct Scene {
    keeper: Keeper,
    room: Room,
    folder: Folder,
    bystander: Running,
}

impl Scene {
    fn set(bench: &Bench) -> Self {
        let (keeper, room) = bench.room();
        Self::in_room(bench, keeper, room)
    }

    /// In a room where namespaces can be made, a folder is changed without a broker.
    fn in_nested_room(bench: &Bench, keeper: Keeper, room: Room) -> Self {
        Self::with(bench, keeper, room, Access::Direct)
    }

    fn in_room(bench: &Bench, keeper: Keeper, room: Room) -> Self {
        Self::with(bench, keeper, room, Access::Write)
    }

    fn with(bench: &Bench, mut keeper: Keeper, mut room: Room, access: Access) -> Self {
        let folder = project(bench);
        let wanted = grant_of(folder.path(), "project", access);
        grant(&mut keeper, &room, wanted).expect("it can be granted");
        let bystander = room.start(&["/bin/cat"]);
        Self { keeper, room, folder, bystander }
    }

    fn hold(&mut self, kind: &str) -> (Running, i32) {
        let at = self.room.granted("project");
        let mut holder = self.room.python(HOLDER, &[kind, &at]);
        holder.expect("holds");
        let pid = self.room.host_pid(holder.pid);
        (holder, pid)
    }

    fn revoke(&mut self) -> Revoked {
        let revoked = revoke(&mut self.keeper, &self.room, "project");
        // Written over what was there, as an editor of the host or a database would.
        let secret = self.folder.path().join("secret");
        let secret = File::options().write(true).open(secret).expect("the file is ours");
        secret.write_all_at(FRESH.as_bytes(), 0).expect("the file is ours");
        secret.set_len(FRESH.len() as u64).expect("the file is ours");
        self.folder.write(FRESH_NAME, "");
        revoked
    }

    /// The folder is gone, nobody else is harmed, and it can be granted again.
    fn check_aftermath(&mut self) {
        let at = self.room.granted("project");
        let seen = self.room.shell(&format!("cat {at}/secret 2>&1; ls -a {at} 2>&1"));
        assert!(!seen.contains(FRESH) && !seen.contains(GRANTED), "still there: {seen}");
        self.bystander.say("still here");
        self.bystander.expect("still here");
        let wanted = grant_of(self.folder.path(), "project", Access::Read);
        grant(&mut self.keeper, &self.room, wanted).expect("it can be granted again");
        assert_eq!(self.room.shell(&format!("cat {at}/secret")), FRESH.to_owned() + "\n");
    }
}

/// The holder by this means is killed, and named, and the kernel vouches for the rest.
fn holder_dies(bench: &Bench, kind: &str) {
    let mut scene = Scene::set(bench);
    let (mut holder, pid) = scene.hold(kind);
    let revoked = scene.revoke();
    assert_eq!(revoked.certainty, Certainty::Kernel, "{kind}");
    assert_eq!(revoked.killed, [(pid, "python3".to_owned())], "{kind}");
    assert_eq!(scene.room.ending(&holder), Ending::Signal(9), "{kind}");
    assert_eq!(holder.rest(), "", "{kind}");
    assert_eq!(scene.folder.read("secret").as_deref(), Some(FRESH), "{kind}");
    scene.check_aftermath();
}

#[test]
fn a_folder_that_nobody_holds_is_taken_away_and_nobody_dies() {
    as_everybody(|bench| {
        let mut scene = Scene::set(bench);
        let (mut holder, pid) = scene.hold("nothing");
        let revoked = scene.revoke();
        assert_eq!(revoked, Revoked { killed: Vec::new(), certainty: Certainty::Kernel });
        assert!(!matches!(state_of(pid), Some('T' | 't') | None), "stopped or dead");
        holder.say("look");
        let said = holder.line().expect("it lives");
        assert!(said.starts_with("refused:"), "{said}");
        scene.check_aftermath();
    });
}

#[test]
fn whoever_has_a_file_open_to_read_dies() {
    as_everybody(|bench| holder_dies(bench, "reading"));
}

#[test]
fn whoever_has_a_file_open_to_write_dies() {
    as_everybody(|bench| holder_dies(bench, "writing"));
}

#[test]
fn whoever_stands_in_the_folder_dies() {
    as_everybody(|bench| holder_dies(bench, "place"));
}

#[test]
fn whoever_only_maps_a_file_dies() {
    as_everybody(|bench| holder_dies(bench, "mapping"));
}

#[test]
fn whoever_has_a_path_handle_dies() {
    as_everybody(|bench| holder_dies(bench, "path"));
}

#[test]
fn whoever_has_the_directory_open_dies() {
    as_everybody(|bench| holder_dies(bench, "directory"));
}

#[test]
fn a_child_that_holds_dies_and_its_parent_lives() {
    const FAMILY: &str = "
import os, sys
if os.fork() == 0:
    fd = os.open(sys.argv[1] + '/secret', os.O_RDONLY)
    print('child', os.getpid(), flush=True)
    while True:
        os.pread(fd, 100, 0)
pid, status = os.wait()
print('parent saw', os.WTERMSIG(status), flush=True)
for line in sys.stdin:
    print('parent', line.strip(), flush=True)
";
    as_everybody(|bench| {
        let mut scene = Scene::set(bench);
        let at = scene.room.granted("project");
        let mut parent = scene.room.python(FAMILY, &[&at]);
        let said = parent.line().expect("the child speaks");
        let inside = said.strip_prefix("child ").expect("its id").parse().expect("a number");
        let child = scene.room.host_pid(inside);
        let revoked = scene.revoke();
        assert_eq!(revoked.certainty, Certainty::Kernel);
        assert_eq!(revoked.killed, [(child, "python3".to_owned())]);
        parent.expect("parent saw 9");
        parent.say("lives");
        parent.expect("parent lives");
        scene.check_aftermath();
    });
}

#[test]
fn a_program_that_runs_from_the_folder_dies() {
    as_everybody(|bench| {
        let mut scene = Scene::set(bench);
        let program = scene.folder.path().join("sleeper");
        std::fs::copy("/bin/sleep", &program).expect("the folder is ours");
        let at = scene.room.granted("project");
        let sleeper = scene.room.start(&[&format!("{at}/sleeper"), "1000"]);
        let pid = scene.room.host_pid(sleeper.pid);
        let revoked = scene.revoke();
        assert_eq!(revoked.certainty, Certainty::Kernel);
        assert_eq!(revoked.killed, [(pid, "sleeper".to_owned())]);
        assert_eq!(scene.room.ending(&sleeper), Ending::Signal(9));
        scene.check_aftermath();
    });
}

#[test]
fn whoever_is_in_the_middle_of_writing_dies_and_writes_no_more() {
    const WRITER: &str = "
import os, sys
fd = os.open(sys.argv[1] + '/log', os.O_RDWR | os.O_CREAT)
print('holds', flush=True)
while True:
    os.pwrite(fd, b'x' * 65536, 0)
    os.fsync(fd)
";
    as_everybody(|bench| {
        let mut scene = Scene::set(bench);
        let at = scene.room.granted("project");
        let mut writer = scene.room.python(WRITER, &[&at]);
        writer.expect("holds");
        let pid = scene.room.host_pid(writer.pid);
        let revoked = scene.revoke();
        assert_eq!(revoked.certainty, Certainty::Kernel);
        assert_eq!(revoked.killed, [(pid, "python3".to_owned())]);
        scene.folder.write("log", FRESH);
        assert_eq!(scene.room.ending(&writer), Ending::Signal(9));
        assert_eq!(scene.folder.read("log").as_deref(), Some(FRESH));
        scene.check_aftermath();
    });
}

#[test]
fn a_file_in_flight_ends_the_session() {
    as_everybody(|bench| {
        let mut scene = Scene::set(bench);
        let (mut holder, pid) = scene.hold("flight");
        let revoked = scene.revoke();
        assert_eq!(revoked.certainty, Certainty::SessionEnded);
        let session = scene.room.id();
        let reason = EndReason::Revocation;
        assert_eq!(event(&mut scene.keeper), Message::SessionEnded { session, reason });
        holder.say("look");
        assert_eq!(holder.rest(), "");
        assert!(eventually(|| state_of(pid).is_none()), "the holder is still there");
        assert!(eventually(|| state_of(scene.room.status.init).is_none()), "init is still there");
        let again = Request::Status { session: scene.room.id() };
        let refused = ask(&mut scene.keeper, again).expect_err("it is gone");
        assert_eq!(refused.code, FailureCode::NoSession);
        let next = Room::make(&mut scene.keeper, new_plan());
        let wanted = grant_of(scene.folder.path(), "project", Access::Read);
        grant(&mut scene.keeper, &next, wanted).expect("the keeper goes on");
    });
}

/// What keeps no reference to the mount must still show nothing that the host does later.
fn shows_nothing_fresh(bench: &Bench, kind: &str) {
    let mut scene = Scene::set(bench);
    let (mut holder, _) = scene.hold(kind);
    let revoked = scene.revoke();
    holder.say("look");
    holder.input = None;
    let said = holder.rest();
    let fresh = said.contains(FRESH) || said.contains(FRESH_NAME);
    assert!(!fresh, "after {revoked:?}, {kind} still shows: {said}");
}

#[test]
fn a_watch_on_the_folder_shows_nothing_that_happens_later() {
    as_everybody(|bench| shows_nothing_fresh(bench, "watch"));
}

/// What is heard at the listener's name, on the host.
fn heard(scene: &Scene) -> Option<(UnixStream, u8)> {
    let mut talk = UnixStream::connect(scene.folder.path().join("listener")).ok()?;
    let mut byte = [0];
    talk.read_exact(&mut byte).ok()?;
    Some((talk, byte[0]))
}

/// The broker bound it, on a mount that the session does not have: it holds nothing of the session's,
/// but whoever came to its name would go on speaking with the session.
#[test]
fn whoever_has_a_socket_bound_in_the_folder_dies() {
    as_everybody(|bench| {
        let mut scene = Scene::set(bench);
        let (holder, pid) = scene.hold("bound");
        let (mut talk, byte) = heard(&scene).expect("it answers");
        assert_eq!(byte, b'x');
        let revoked = scene.revoke();
        assert_eq!(revoked.killed, [(pid, "python3".to_owned())]);
        assert_eq!(revoked.certainty, Certainty::Kernel);
        assert_eq!(scene.room.ending(&holder), Ending::Signal(9));
        assert!(heard(&scene).is_none(), "somebody answers still");
        assert_eq!(talk.read(&mut [0]).unwrap_or(0), 0, "a conversation goes on");
        scene.check_aftermath();
    });
}

/// As long as the session has the folder, in whatever way, it is its own.
#[test]
fn a_socket_stays_while_the_folder_can_be_read_and_goes_with_it() {
    as_everybody(|bench| {
        let mut scene = Scene::set(bench);
        let (holder, pid) = scene.hold("bound");
        let wanted = grant_of(scene.folder.path(), "project", Access::Read);
        let session = scene.room.id();
        ask(&mut scene.keeper, Request::Regrant { session, grant: wanted })
            .expect("it can be read");
        assert_eq!(heard(&scene).expect("it answers").1, b'x');
        let revoked = scene.revoke();
        assert_eq!(revoked.killed, [(pid, "python3".to_owned())]);
        assert_eq!(scene.room.ending(&holder), Ending::Signal(9));
        assert!(heard(&scene).is_none(), "somebody answers still");
        scene.check_aftermath();
    });
}

/// Sockets of other folders, and of the session's own, are nobody's concern.
#[test]
fn a_socket_bound_elsewhere_stays() {
    as_everybody(|bench| {
        let mut scene = Scene::set(bench);
        let other = bench.folder("other");
        let wanted = grant_of(other.path(), "other", Access::Write);
        grant(&mut scene.keeper, &scene.room, wanted).expect("it can be granted");
        let at = scene.room.granted("other");
        let mut holder = scene.room.python(HOLDER, &["bound", &at]);
        holder.expect("holds");
        let revoked = scene.revoke();
        assert_eq!((revoked.killed, revoked.certainty), (Vec::new(), Certainty::Kernel));
        let mut byte = [0];
        let talk = UnixStream::connect(other.path().join("listener"));
        talk.and_then(|mut talk| talk.read_exact(&mut byte)).expect("it answers");
        assert_eq!(byte, *b"x");
        scene.check_aftermath();
    });
}

/// A descriptor of it that is on its way in a socket shows in no process.
#[test]
fn a_bound_socket_in_flight_ends_the_session() {
    as_everybody(|bench| {
        let mut scene = Scene::set(bench);
        let (mut holder, _) = scene.hold("bound_in_flight");
        let revoked = scene.revoke();
        assert_eq!(revoked.certainty, Certainty::SessionEnded);
        assert!(UnixStream::connect(scene.folder.path().join("listener")).is_err());
        holder.rest();
    });
}

/// Copies the mount to another place of a namespace of its own, and reads it there.
const REBINDER: &str = r#"
at=$1
exec unshare -Urm sh -c '
mkdir /tmp/elsewhere && mount --bind "$1" /tmp/elsewhere && echo holds
while read line; do cat /tmp/elsewhere/secret; ls /tmp/elsewhere; echo done; done
' sh "$at"
"#;

#[test]
fn a_copy_of_the_mount_in_a_nested_namespace_shows_nothing_any_more() {
    as_everybody(|bench| {
        let (keeper, room) = bench.nested_room();
        let mut scene = Scene::in_nested_room(bench, keeper, room);
        let at = scene.room.granted("project");
        let mut holder = scene.room.start(&["/bin/sh", "-c", REBINDER, "sh", &at]);
        holder.expect("holds");
        let revoked = scene.revoke();
        holder.say("look");
        holder.input = None;
        let said = holder.rest();
        let fresh = said.contains(FRESH) || said.contains(FRESH_NAME);
        assert!(!fresh, "after {revoked:?} the copy still shows: {said}");
    });
}

/// Leaves the tree that grants arrive in, with a descriptor from it.
const LEAVER: &str = r#"
at=$1
exec unshare -Urm sh -c '
exec 5<"$1"/secret 6<"$1"
mkdir /tmp/root && mount -t tmpfs none /tmp/root && cd /tmp/root
mkdir usr old && mount --rbind /usr usr && ln -s usr/bin usr/lib usr/lib64 .
pivot_root . old && cd / && exec usr/bin/python3 -c "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.umount2(b\"/old\", 2) == 0, os.strerror(ctypes.get_errno())
print(\"holds\", flush=True)
for line in sys.stdin:
    try:
        print(os.pread(5, 4096, 0), os.listdir(6), flush=True)
    except OSError as error:
        print(\"refused:\", error, flush=True)
"
' sh "$at"
"#;

#[test]
fn a_descriptor_from_a_tree_that_was_left_shows_nothing_any_more() {
    as_everybody(|bench| {
        let (keeper, room) = bench.nested_room();
        let mut scene = Scene::in_nested_room(bench, keeper, room);
        let at = scene.room.granted("project");
        let mut holder = scene.room.start(&["/bin/sh", "-c", LEAVER, "sh", &at]);
        holder.expect("holds");
        let revoked = scene.revoke();
        holder.say("look");
        holder.input = None;
        let said = holder.rest();
        let fresh = said.contains(FRESH) || said.contains(FRESH_NAME);
        assert!(!fresh, "after {revoked:?} the descriptor still shows: {said}");
    });
}

#[test]
fn whoever_holds_the_same_folder_under_another_name_lives() {
    as_everybody(|bench| {
        let mut scene = Scene::set(bench);
        let wanted = grant_of(scene.folder.path(), "other", Access::Read);
        grant(&mut scene.keeper, &scene.room, wanted).expect("it can be granted twice");
        let other = scene.room.granted("other");
        let mut keeps = scene.room.python(HOLDER, &["reading", &other]);
        keeps.expect("holds");
        let (holder, pid) = scene.hold("reading");
        let revoked = scene.revoke();
        assert_eq!(revoked.certainty, Certainty::Kernel);
        assert_eq!(revoked.killed, [(pid, "python3".to_owned())]);
        assert_eq!(scene.room.ending(&holder), Ending::Signal(9));
        keeps.say("look");
        let said = keeps.line().unwrap_or_default();
        assert!(said.contains(FRESH), "the other grant is still there: {said:?}");
    });
}

#[test]
fn a_frozen_session_stays_frozen() {
    as_everybody(|bench| {
        let mut scene = Scene::set(bench);
        let (holder, pid) = scene.hold("reading");
        let session = scene.room.id();
        ask(&mut scene.keeper, Request::Freeze { session: session.clone() }).expect("it freezes");
        let revoked = scene.revoke();
        assert_eq!(revoked.killed, [(pid, "python3".to_owned())]);
        scene.bystander.say("not yet");
        let said = scene.bystander.says_within(std::time::Duration::from_millis(500));
        assert_eq!(said, None, "a frozen process spoke");
        ask(&mut scene.keeper, Request::Thaw { session }).expect("it thaws");
        scene.bystander.expect("not yet");
        assert_eq!(scene.room.ending(&holder), Ending::Signal(9));
        scene.check_aftermath();
    });
}

#[test]
fn many_holders_die_and_all_are_named() {
    as_everybody(|bench| {
        let mut scene = Scene::set(bench);
        let at = scene.room.granted("project");
        let script = format!("exec 3<{at}/secret; for i in $(seq 40); do sleep 1000 & done; wait");
        let shell = scene.room.start(&["/bin/sh", "-c", &script]);
        let pid = scene.room.host_pid(shell.pid);
        assert!(eventually(|| descendants(pid).len() == 40), "not all started");
        let mut family = descendants(pid);
        family.push(pid);
        let revoked = scene.revoke();
        let mut killed: Vec<i32> = revoked.killed.iter().map(|(pid, _)| *pid).collect();
        killed.sort_unstable();
        family.sort_unstable();
        assert_eq!((killed, revoked.certainty), (family, Certainty::Kernel));
        scene.check_aftermath();
    });
}

#[test]
fn a_grant_that_is_not_there_cannot_be_revoked() {
    as_everybody(|bench| {
        let (mut keeper, room) = bench.room();
        let request = Request::Revoke { session: room.id(), name: "nothing".into() };
        let refused = ask(&mut keeper, request).expect_err("there is none");
        assert_eq!(refused.code, FailureCode::NoGrant);
        let request = Request::Revoke { session: "no-such".into(), name: "nothing".into() };
        let refused = ask(&mut keeper, request).expect_err("there is none");
        assert_eq!(refused.code, FailureCode::NoSession);
    });
}

#[test]
fn mounts_inside_the_folder_go_with_it() {
    as_everybody_apart(|bench| {
        let (mut keeper, mut room) = bench.room();
        let wanted = grant_of(bench.submounted(), "project", Access::Write);
        grant(&mut keeper, &room, wanted).expect("it can be granted");
        let deep = room.granted("project/inside");
        let bystander = room.start(&["/bin/cat"]);
        let mut holder = room.python(HOLDER, &["reading", &deep]);
        holder.expect("holds");
        let pid = room.host_pid(holder.pid);
        let revoked = revoke(&mut keeper, &room, "project");
        assert_eq!(revoked.killed, [(pid, "python3".to_owned())]);
        assert_eq!(room.ending(&holder), Ending::Signal(9));
        let seen = room.shell(&format!("cat {deep}/secret 2>&1"));
        assert!(!seen.contains("mounted inside"), "{seen}");
        assert!(lives(room.host_pid(bystander.pid)));
        let wanted = grant_of(bench.submounted(), "project", Access::Read);
        grant(&mut keeper, &room, wanted).expect("it can be granted again");
        assert_eq!(room.shell(&format!("cat {deep}/secret")), "mounted inside\n");
    });
}
