//! Holding on to a folder that is taken away.
//!
//! The same program holds on by the same means bare, in a namespace of its own whose mount is
//! merely detached, and in a session. There and here the host then writes a canary into the
//! folder, and the holder is asked what it sees.

use crate::engine::room::{Attacked, Talk, grant_of};
use crate::engine::{Came, Ground};
use crate::report::Verdict;
use cowork_api::keeper::Certainty;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Means of holding on, with whether they need a mount namespace of the holder's own.
const MEANS: [(&str, Needs); 23] = [
    ("reading", Needs::Nothing),
    ("writing", Needs::Nothing),
    ("place", Needs::Nothing),
    ("mapping", Needs::Nothing),
    ("path", Needs::Nothing),
    ("directory", Needs::Nothing),
    ("flight", Needs::Nothing),
    ("reopened", Needs::Way),
    ("reopened_path", Needs::Nothing),
    ("reopened_name", Needs::Nothing),
    ("writable_mapping", Needs::Nothing),
    ("writable_flight", Needs::Nothing),
    ("handed_over", Needs::Nothing),
    ("watch", Needs::Nothing),
    ("pages", Needs::Nothing),
    ("program", Needs::Nothing),
    ("middle", Needs::Nothing),
    ("door", Needs::Nothing),
    ("door_in_flight", Needs::Nothing),
    ("door_handed_over", Needs::Nothing),
    ("conversation", Needs::Nothing),
    ("copy", Needs::Namespace),
    ("leave", Needs::Namespace),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// A way from a descriptor that it was given to the file, which may be refused.
    Way,
    Namespace,
}

/// What is written after the folder was taken away, and the name of a file made then.
const CANARY: &str = "the-canary-of-a-revoked-folder";

/// What is written without end by who was in the middle of it when the folder was taken away.
const MIDDLE: &str = "written-in-the-middle";

/// Holds on by one means and tells on every line what it sees; bare, it first binds the folder
/// where the session would have it, and detaches it when it is told to.
const HOLDER: &str = r"
import ctypes, os, select, socket, sys
kind, folder = sys.argv[1:3]
libc = ctypes.CDLL(None, use_errno=True)

def check(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result

bare = len(sys.argv) > 3
if bare:
    check(libc.mount(sys.argv[3].encode(), folder.encode(), None, 4096, None))
secret = folder + '/secret'

def open_secret(flags=os.O_RDONLY):
    return os.open(secret, flags)

def reading():
    fd = open_secret()
    return lambda: os.pread(fd, 4096, 0)

def writing():
    fd = open_secret(os.O_RDWR)
    def look():
        os.pwrite(fd, b'written by the holder', 100)
        return os.pread(fd, 4096, 0)
    return look

def place():
    os.chdir(folder)
    return lambda: open('secret').read()

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
    return lambda: os.read(os.open('secret', os.O_RDONLY, dir_fd=fd), 4096)

def flight():
    fd = open_secret()
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b'x'], [fd])
    os.close(fd)
    return lambda: (ours, os.pread(socket.recv_fds(theirs, 1, 1)[1][0], 4096, 0))

def reopened():
    given = open_secret(os.O_RDWR)
    fd = os.open('/proc/self/fd/%d' % given, os.O_RDONLY)
    os.close(given)
    return lambda: os.pread(fd, 4096, 0)

def reopened_path():
    given = open_secret(os.O_RDWR)
    fd = os.open('/proc/self/fd/%d' % given, os.O_PATH)
    os.close(given)
    return lambda: open('/proc/self/fd/%d' % fd).read()

def reopened_name():
    given = os.open(folder + '/named', os.O_RDWR)
    fd = os.open('/proc/self/fd/%d' % given, os.O_PATH)
    os.close(given)
    return lambda: (os.readlink('/proc/self/fd/%d' % fd), os.fstat(fd))

def writable_mapping():
    fd = open_secret(os.O_RDWR)
    import mmap
    memory = mmap.mmap(fd, 200)
    os.close(fd)
    def look():
        memory[100:121] = b'written by the holder'
        return bytes(memory)
    return look

def writable_flight():
    fd = open_secret(os.O_RDWR)
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b'x'], [fd])
    os.close(fd)
    return lambda: (ours, os.pread(socket.recv_fds(theirs, 1, 1)[1][0], 4096, 0))

def handed_over():
    fd = open_secret(os.O_RDWR)
    ask, asked = socket.socketpair()
    if os.fork() == 0:
        os.setsid()
        os.close(0)
        ask.close()
        while asked.recv(1):
            asked.send(os.pread(fd, 4096, 0))
        os._exit(0)
    asked.close()
    os.close(fd)
    def look():
        ask.send(b'x')
        return ask.recv(4096)
    return look

def watch():
    fd = check(libc.inotify_init())
    check(libc.inotify_add_watch(fd, folder.encode(), 0x3c6))
    def look():
        heard = b''
        while select.select([fd], [], [], 1)[0]:
            heard += os.read(fd, 65536)
        return heard
    return look

def pages():
    fd = open_secret()
    out, into = os.pipe()
    os.splice(fd, into, 4096)
    os.close(fd)
    return lambda: os.read(out, 4096)

def program():
    arguments = sys.orig_argv[:6]
    arguments[4] = 'running'
    os.execv(folder + '/named', arguments)

def running():
    return lambda: os.readlink('/proc/self/exe')

def middle():
    fd = open_secret(os.O_RDWR)
    if os.fork() == 0:
        libc.prctl(1, 9)
        os.closerange(0, 3)
        while True:
            os.pwrite(fd, b'written-in-the-middle', 100)
    os.close(fd)
    return lambda: ''

def door():
    door = socket.socket(socket.AF_UNIX)
    door.bind(folder + '/door')
    door.listen()
    door.settimeout(1)
    return lambda: door.accept()[0].recv(100)

def door_in_flight():
    door = socket.socket(socket.AF_UNIX)
    door.bind(folder + '/door')
    door.listen()
    ours, theirs = socket.socketpair()
    socket.send_fds(ours, [b'x'], [door.fileno()])
    door.close()
    def look():
        door = socket.socket(fileno=socket.recv_fds(theirs, 1, 1)[1][0])
        door.settimeout(1)
        return ours, door.accept()[0].recv(100)
    return look

def door_handed_over():
    door = socket.socket(socket.AF_UNIX)
    door.bind(folder + '/door')
    door.listen()
    ask, asked = socket.socketpair()
    if os.fork() == 0:
        os.setsid()
        os.close(0)
        ask.close()
        door.settimeout(1)
        while asked.recv(1):
            asked.send(door.accept()[0].recv(100))
        os._exit(0)
    asked.close()
    door.close()
    def look():
        ask.send(b'x')
        return ask.recv(4096)
    return look

def conversation():
    door = socket.socket(socket.AF_UNIX)
    door.bind(folder + '/door')
    door.listen()
    print('called', flush=True)
    talk = door.accept()[0]
    door.close()
    os.unlink(folder + '/door')
    talk.settimeout(1)
    return lambda: talk.recv(100)

def copy():
    elsewhere = '/tmp/elsewhere-%d' % os.getpid()
    os.mkdir(elsewhere)
    check(libc.mount(folder.encode(), elsewhere.encode(), None, 4096, None))
    return lambda: open(elsewhere + '/secret').read()

def leave():
    fd = open_secret()
    root = '/tmp/root-%d' % os.getpid()
    os.mkdir(root)
    check(libc.mount(b'none', root.encode(), b'tmpfs', 0, None))
    os.mkdir(root + '/old')
    os.chdir(root)
    check(libc.pivot_root(b'.', b'old'))
    os.chdir('/')
    check(libc.umount2(b'/old', 2))
    return lambda: os.pread(fd, 4096, 0)

look = globals()[kind]()
print('holds', flush=True)
for line in sys.stdin:
    try:
        if line == 'detach\n' and kind != 'leave':
            check(libc.umount2(folder.encode(), 2))
        print('sees', look() if line == 'look\n' else '', flush=True)
    except OSError as error:
        print('refused:', error, flush=True)
";

/// A folder with a file whose length is noted before the canary is written over it, and a program.
fn project(name: &str) -> Result<Ground, String> {
    let ground = Ground::new(name)?;
    ground.write("project/secret", &" ".repeat(200))?;
    let named = ground.write("project/named", "")?;
    std::fs::copy("/usr/bin/python3", named).map_err(|error| format!("no program: {error}"))?;
    ground.write("mount/.keep", "")?;
    Ok(ground)
}

/// Writes the canary over what is there, as an editor or a database of the host would, makes a file
/// of that name, and says it at the door if there is one.
fn plant(ground: &Ground, caller: Option<UnixStream>) -> Result<(), String> {
    let secret = File::options().write(true).open(ground.0.join("project/secret"));
    let written = secret.and_then(|file| {
        file.write_all_at(&[b' '; 200], 0)?;
        file.write_all_at(CANARY.as_bytes(), 0)
    });
    written.map_err(|error| format!("cannot write the canary: {error}"))?;
    let project = ground.0.join("project");
    std::fs::rename(project.join("named"), project.join(format!("named-{CANARY}")))
        .map_err(|error| format!("cannot rename: {error}"))?;
    // Nobody may be there any longer.
    let door = caller.map_or_else(|| UnixStream::connect(project.join("door")), Ok);
    cowork_sys::ignore(door.and_then(|mut door| door.write_all(CANARY.as_bytes())));
    ground.write(&format!("project/{CANARY}"), "").map(|_| ())
}

/// Calls at the door of a holder that wants to be called before it holds on.
fn call(kind: &str, ground: &Ground, holder: &mut Talk) -> Result<Option<UnixStream>, String> {
    if kind != "conversation" {
        return Ok(None);
    }
    match holder.line() {
        Some(line) if line == "called" => {}
        line => return Err(format!("the holder does not want to be called: {line:?}")),
    }
    let caller = UnixStream::connect(ground.0.join("project/door"));
    caller.map(Some).map_err(|error| format!("cannot call: {error}"))
}

/// Whether somebody writes now.
fn is_written(ground: &Ground) -> Result<bool, String> {
    std::thread::sleep(Duration::from_millis(50));
    let now = std::fs::read_to_string(ground.0.join("project/secret"));
    Ok(now.map_err(|error| format!("cannot look: {error}"))?.contains(MIDDLE))
}

pub(super) fn attacks(scene: &Attacked) -> Vec<Came> {
    MEANS
        .into_iter()
        .map(|(kind, needs)| {
            let verdict = bare(kind).and_then(|()| confined(scene, kind, needs));
            (format!("revoked-folder-held-by-{kind}"), verdict.unwrap_or_else(Verdict::Vacuous))
        })
        .collect()
}

/// The mount is detached and nothing more is done: the holder must still see the canary.
fn bare(kind: &str) -> Result<(), String> {
    let ground = project(&format!("bare-{kind}"))?;
    let (mount, folder) = (ground.0.join("mount"), ground.0.join("project"));
    let mut process = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--propagation", "private"])
        .args(["/usr/bin/python3", "-u", "-c", HOLDER, kind])
        .args([&mount, &folder])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("no holder on the host: {error}"))?;
    let mut talk = Talk::with(&mut process).ok_or("no pipes to the holder")?;
    let caller = call(kind, &ground, &mut talk)?;
    let held = talk.line();
    talk.say("detach");
    let detached = talk.line();
    plant(&ground, caller)?;
    let written = kind == "middle" && is_written(&ground)?;
    let seen = talk.finish("look");
    process.wait().map_err(|error| format!("the holder is lost: {error}"))?;
    // What a holder left in its own place of the host's temporary folder.
    for start in ["elsewhere", "root"] {
        cowork_sys::ignore(std::fs::remove_dir(format!("/tmp/{start}-{}", process.id())));
    }
    if written || seen.contains(CANARY) {
        return Ok(());
    }
    Err(format!("bare, the holder saw nothing either: {held:?} {detached:?} {seen}"))
}

fn confined(scene: &Attacked, kind: &str, needs: Needs) -> Result<Verdict, String> {
    let ground = project(kind)?;
    let mut room = scene.room()?;
    let granted = room.grant(grant_of(&ground.0.join("project"))?)?;
    granted.map_err(|failure| format!("not granted: {}", failure.sentence))?;
    let at = format!("{}/project", room.grants());
    let python = ["/usr/bin/python3", "-u", "-c", HOLDER, kind, &at];
    let mut arguments = match needs {
        Needs::Nothing | Needs::Way => Vec::new(),
        Needs::Namespace => vec!["unshare", "--user", "--map-root-user", "--mount"],
    };
    arguments.extend(python);
    let mut holder = room.start(&arguments)?;
    let caller = call(kind, &ground, &mut holder)?;
    let held = holder.line().unwrap_or_default();
    if held != "holds" {
        // The means itself is refused there.
        return match needs {
            Needs::Namespace => Ok(Verdict::Contained(held)),
            Needs::Way => Ok(Verdict::Contained("the way to the file is refused".into())),
            Needs::Nothing => Err(format!("the session's holder cannot hold: {held}")),
        };
    }
    let revoked = room.revoke("project")?;
    plant(&ground, caller)?;
    if kind == "middle" && is_written(&ground)? {
        return Ok(Verdict::Escaped(format!("the folder was written to after {revoked:?}")));
    }
    let seen = holder.finish("look");
    if seen.contains(CANARY) && kind == "pages" {
        // Documented in the threat model: pages of a file that a session moved into a pipe while it
        // had the folder are shared with the file until they are read.
        return Ok(Verdict::ByDesign("pages already in a pipe stay shared with the file".into()));
    }
    if seen.contains(CANARY) {
        return Ok(Verdict::Escaped(format!("the canary was seen after {revoked:?}")));
    }
    Ok(Verdict::Contained(match revoked.certainty {
        Certainty::SessionEnded => "the session was ended".into(),
        Certainty::Kernel | Certainty::Scan if !revoked.killed.is_empty() => {
            "the holder was killed".into()
        }
        Certainty::Kernel | Certainty::Scan => format!("it sees nothing: {}", seen.trim_end()),
    }))
}
