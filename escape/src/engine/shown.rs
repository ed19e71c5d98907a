//! Getting at what is hidden, and changing what is not to be changed, in a session that sees the
//! host's files at their own paths.
//!
//! The same program makes the attack bare and in the session, on a tree that is the same in both.
//! It says `WON` when it has read the canary, or made the change.

use crate::engine::room::{Attacked, Room};
use crate::engine::{Came, Ground};
use crate::report::Verdict;
use cowork_api::files::{NamePolicy, NameRule, Rules};
use cowork_api::plan::Identity;
use cowork_policy::view::{ViewRequest, WritableRequest};
use cowork_policy::{GrantNameError, HostPath};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

/// What is hidden.
const CANARY: &str = "the-canary-of-a-hidden-file";

/// What the program says where it has read a cover: an empty file.
const EMPTY: &str = "nothing was there: ''";

/// Attacks: a name, lines of Python, and the error that they must end with. After the lines `seen` is
/// what was read, or `CANARY` for a change. `direct` can be written to, `brokered` by rules; `a/.env` is
/// hidden in both, and `home/.ssh` and `home/.netrc` are hidden.
const ATTACKS: [(&str, &str, &str); 24] = [
    ("read-hidden-folder", "seen = get('home/.ssh/id')", "ENOENT"),
    ("read-hidden-file", "seen = get('home/.netrc')", EMPTY),
    ("read-hidden-by-link", "seen = get('home/link/id')", "ENOENT"),
    ("read-hidden-by-root", "seen = get('/proc/self/root' + os.getcwd() + '/home/.netrc')", EMPTY),
    ("read-hidden-by-place", "os.chdir('home/.ssh'); seen = get('/proc/self/cwd/id')", "ENOENT"),
    (
        "read-hidden-from-a-handle",
        "fd = os.open('home/other', os.O_PATH); \
         seen = get('../.ssh/id', os.open('home/sub', os.O_RDONLY))",
        "ENOENT",
    ),
    ("read-hidden-in-direct", "seen = get('direct/a/.env')", EMPTY),
    (
        "rename-above-hidden",
        "os.rename('direct/a', 'direct/b'); seen = get('direct/b/.env')",
        EMPTY,
    ),
    ("rename-hidden", "os.rename('direct/a/.env', 'direct/x'); seen = get('direct/x')", "EBUSY"),
    ("link-hidden", "os.link('direct/a/.env', 'direct/x'); seen = get('direct/x')", "EXDEV"),
    ("remove-hidden", "os.unlink('direct/a/.env'); seen = CANARY", "EBUSY"),
    (
        "exchange-hidden",
        "exchange('direct/plain', 'direct/a/.env'); seen = get('direct/plain')",
        "EBUSY",
    ),
    (
        "rename-above-hidden-brokered",
        "os.rename('brokered/a', 'brokered/b'); seen = get('brokered/b/.env')",
        "EBUSY",
    ),
    (
        "rename-hidden-brokered",
        "os.rename('brokered/a/.env', 'brokered/x'); seen = get('brokered/x')",
        "EXDEV",
    ),
    (
        "link-hidden-brokered",
        "os.link('brokered/a/.env', 'brokered/x'); seen = get('brokered/x')",
        "EXDEV",
    ),
    ("remove-hidden-brokered", "os.unlink('brokered/a/.env'); seen = CANARY", "EROFS"),
    (
        "exchange-hidden-brokered",
        "exchange('brokered/plain', 'brokered/a/.env'); seen = get('brokered/plain')",
        "EXDEV",
    ),
    (
        "exchange-above-hidden-brokered",
        "os.mkdir('brokered/c'); exchange('brokered/c', 'brokered/a'); \
         seen = get('brokered/c/.env')",
        "EBUSY",
    ),
    ("write-protected", "put('brokered/.git/hooks/pre-commit'); seen = CANARY", "EACCES"),
    (
        "write-protected-in-a-new-place",
        "os.makedirs('brokered/z/hooks'); put('brokered/z/hooks/post-merge'); \
         os.rename('brokered/z', 'brokered/.git2'); os.mkdir('brokered/n'); \
         os.rename('brokered/.git2', 'brokered/n/.git'); seen = CANARY",
        "EACCES",
    ),
    ("write-beside", "put('home/new'); seen = CANARY", "EROFS"),
    ("write-to-a-pipe", "os.open('home/pipe', os.O_RDWR | os.O_NONBLOCK); seen = CANARY", "EACCES"),
    (
        "connect-to-a-socket",
        "import socket; socket.socket(socket.AF_UNIX).connect('home/socket'); seen = CANARY",
        "EACCES",
    ),
    (
        "look-at-a-process",
        "seen = CANARY if 'cowork-escape' in get(f'/proc/{sys.argv[2]}/status') else ''",
        "ENOENT",
    ),
];

const PROGRAM: &str = r"
import ctypes, errno, os, sys
CANARY = 'the-canary-of-a-hidden-file'
libc = ctypes.CDLL(None, use_errno=True)
def get(path, folder=None):
    fd = os.open(path, os.O_RDONLY, dir_fd=folder)
    return os.read(fd, 4096).decode()
def put(path):
    os.write(os.open(path, os.O_WRONLY | os.O_CREAT, 0o755), b'x')
def exchange(one, other):
    if libc.renameat2(-100, one.encode(), -100, other.encode(), 2) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
try:
    os.chdir(sys.argv[1])
    exec(sys.argv[3])
    print('WON' if CANARY in seen else f'nothing was there: {seen!r}')
except OSError as error:
    print(f'refused: {errno.errorcode[error.errno]}')
";

/// The tree that is attacked, with what lives in it.
struct Tree {
    ground: Ground,
    _listener: UnixListener,
}

fn tree(name: &str) -> Result<Tree, String> {
    let ground = Ground::new(&format!("shown-{name}"))?;
    for hidden in ["home/.ssh/id", "home/.netrc", "direct/a/.env", "brokered/a/.env"] {
        ground.write(hidden, CANARY)?;
    }
    for plain in ["home/other", "home/sub/file", "direct/plain", "brokered/plain"] {
        ground.write(plain, "")?;
    }
    ground.write("brokered/.git/hooks/old.sample", "")?;
    let at = |name: &str| ground.0.join(name);
    let failed = |error: &dyn std::fmt::Display| format!("cannot make the tree: {error}");
    std::os::unix::fs::symlink(".ssh", at("home/link")).map_err(|error| failed(&error))?;
    rustix::fs::mkfifoat(rustix::fs::CWD, at("home/pipe"), rustix::fs::Mode::RWXU)
        .map_err(|error| failed(&error))?;
    let listener = UnixListener::bind(at("home/socket")).map_err(|error| failed(&error))?;
    Ok(Tree { ground, _listener: listener })
}

/// How a session sees the tree.
fn view(tree: &Path) -> Result<ViewRequest, String> {
    let host = |name: &str| HostPath::new(tree.join(name)).map_err(|error| error.to_string());
    let identity = |name: &str| {
        let seen = std::fs::symlink_metadata(tree.join(name)).map_err(|error| error.to_string())?;
        Ok::<_, String>(Identity { device: seen.dev(), inode: seen.ino() })
    };
    let hidden = ["home/.ssh", "home/.netrc", "direct/a/.env", "brokered/a/.env"];
    let rule = NameRule {
        pattern: ".git/hooks/**".into(),
        policy: NamePolicy::Deny,
        reason: "others run it".into(),
    };
    Ok(ViewRequest {
        hidden: hidden.into_iter().map(host).collect::<Result<_, _>>()?,
        writable: vec![
            WritableRequest::Direct { path: host("direct")?, file: identity("direct")? },
            WritableRequest::Write {
                path: host("brokered")?,
                folder: identity("brokered")?,
                name: "brokered".parse().map_err(|error: GrantNameError| error.to_string())?,
                store: None,
                rules: Rules { names: vec![rule], ..Rules::default() },
            },
        ],
        ..ViewRequest::default()
    })
}

/// Makes every attack. Only sessions of profile `strict` see the host's files.
pub(super) fn attacks(scene: &Attacked) -> Vec<Came> {
    if scene.profile != "strict" {
        return Vec::new();
    }
    ATTACKS
        .into_iter()
        .map(|(name, lines, refusal)| {
            let verdict = bare(name, lines).and_then(|()| confined(scene, name, lines, refusal));
            (format!("view-{name}"), verdict.unwrap_or_else(Verdict::Vacuous))
        })
        .collect()
}

fn arguments(tree: &Path, lines: &str) -> [String; 7] {
    let tree = tree.to_string_lossy().into_owned();
    let python = "/usr/bin/python3".to_owned();
    let own = std::process::id().to_string();
    [python, "-u".into(), "-c".into(), PROGRAM.into(), tree, own, lines.into()]
}

fn bare(name: &str, lines: &str) -> Result<(), String> {
    let tree = tree(&format!("bare-{name}"))?;
    let [python, rest @ ..] = arguments(&tree.ground.0, lines);
    let output = Command::new(python)
        .args(rest)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("no attacker on the host: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if said.trim_end() == "WON" {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("does not win on the bare host: {said} {complaint}"))
}

fn confined(scene: &Attacked, name: &str, lines: &str, refusal: &str) -> Result<Verdict, String> {
    let tree = tree(name)?;
    let mut room: Room = scene.viewing(&view(&tree.ground.0)?)?;
    let words = arguments(&tree.ground.0, lines);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = room.start(&words)?.finish("");
    match said.trim_end() {
        "WON" => Ok(Verdict::Escaped("the canary was read, or the change made".into())),
        "" => Err("the session's attacker said nothing".into()),
        other => {
            let last = other.lines().last().unwrap_or_default().to_owned();
            let expected = last == refusal || last.strip_prefix("refused: ") == Some(refusal);
            Ok(if expected { Verdict::Contained(last) } else { Verdict::Unexpected(last) })
        }
    }
}
