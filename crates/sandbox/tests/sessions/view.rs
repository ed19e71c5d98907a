//! Sessions that see the host's tree of files at its own paths.

use crate::bench::{
    Bench, Room, as_everybody, as_everybody_apart, ask, eventually, grant, grant_of, new_plan,
};
use crate::writes::check_in;
use cowork_api::files::{NamePolicy, NameRule, Rules};
use cowork_api::keeper::{FailureCode, LayerState, Request};
use cowork_api::plan::{Access, Identity, SessionPlan};
use cowork_policy::HostPath;
use cowork_policy::view::{ViewRequest, WritableRequest, show_host};
use cowork_sandbox::client::{ClientError, Keeper};
use cowork_testbed::Folder;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

fn host(path: impl AsRef<Path>) -> HostPath {
    HostPath::new(path).expect("it is absolute")
}

fn identity(path: impl AsRef<Path>) -> Identity {
    let metadata = std::fs::symlink_metadata(path).expect("it is there");
    Identity { device: metadata.dev(), inode: metadata.ino() }
}

fn direct(path: impl AsRef<Path>) -> WritableRequest {
    WritableRequest::Direct { path: host(&path), file: identity(path) }
}

fn shown(path: impl AsRef<Path>) -> (HostPath, Identity) {
    (host(&path), identity(path))
}

/// A folder that is changed by way of the broker, in which these names cannot be changed.
fn recorded(path: impl AsRef<Path>, denied: &[&str]) -> WritableRequest {
    let names = denied.iter().map(|pattern| NameRule {
        pattern: (*pattern).to_owned(),
        policy: NamePolicy::Deny,
        reason: "others run it".to_owned(),
    });
    WritableRequest::Write {
        path: host(&path),
        folder: identity(path),
        name: "project".parse().expect("it is a name"),
        store: None,
        rules: Rules { names: names.collect(), ..Rules::default() },
    }
}

fn plan(view: &ViewRequest) -> SessionPlan {
    let mut plan = new_plan();
    show_host(&mut plan, view, &cowork_sandbox::host::top()).expect("it can be shown");
    plan
}

fn room(bench: &Bench, view: &ViewRequest) -> (Keeper, Room) {
    let mut keeper = bench.keeper();
    let room = Room::make(&mut keeper, plan(view));
    (keeper, room)
}

/// Runs a program in a folder of the host; it says what is not as it should be.
#[track_caller]
fn check(room: &mut Room, folder: &Path, program: &str) {
    check_in(room, program, &[folder.to_str().expect("it is text")]);
}

/// Every name in a folder, with what it is and when that last changed.
fn listing(folder: &Path) -> BTreeMap<PathBuf, (u32, u64, i64, i64)> {
    let mut all = BTreeMap::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(path) = left.pop() {
        let seen = std::fs::symlink_metadata(&path).expect("it is there");
        if seen.is_dir() {
            let entries = std::fs::read_dir(&path).expect("it is readable").flatten();
            left.extend(entries.map(|entry| entry.path()));
        }
        all.insert(path, (seen.mode(), seen.ino(), seen.ctime(), seen.ctime_nsec()));
    }
    all
}

#[test]
fn the_hosts_files_are_read_at_their_own_paths_and_not_written() {
    as_everybody(|bench| {
        let folder = bench.folder("project");
        folder.write("sub/file", "of the host\n");
        let before = listing(folder.path());
        let (_keeper, mut room) = room(bench, &ViewRequest::default());
        check(
            &mut room,
            &folder.path().join("sub"),
            "
check('folder', os.getcwd(), sys.argv[1])
check('file', get('file'), 'of the host\\n')
check('absolute', get(sys.argv[1] + '/file'), 'of the host\\n')
check('system', os.path.exists('/etc/passwd') and os.path.exists('/usr/bin/env'), True)
check('write', says(os.open, 'file', os.O_WRONLY), 'EROFS')
check('make', says(os.open, 'new', os.O_WRONLY | os.O_CREAT), 'EROFS')
check('remove', says(os.unlink, 'file'), 'EROFS')
check('mode', says(os.chmod, 'file', 0o777), 'EROFS')
check('link', says(os.symlink, 'a', 'b'), 'EROFS')
check('tmp', says(os.mkdir, '/tmp/new-folder'), 'EROFS')
check('top', says(os.mkdir, '/new-folder'), 'EROFS')
check('processes', [name for name in os.listdir('/proc') if name.isdigit() and int(name) > 50], [])
check('sys', os.listdir('/sys'), [])
check('run', os.listdir('/run'), [n for n in os.listdir('/run') if n in ('cowork.sock', 'systemd')])
check('dev', sorted(os.listdir('/dev')), ['fd', 'full', 'null', 'ptmx', 'pts', 'random', 'shm',
      'stderr', 'stdin', 'stdout', 'tty', 'urandom', 'zero'])
put('/dev/shm/own', 'x'); put('/dev/null', 'x'); put(os.environ['HOME'] + '/own', 'x')
",
        );
        assert_eq!(listing(folder.path()), before);
    });
}

#[test]
fn a_session_has_the_users_own_number_and_every_layer_in_force() {
    as_everybody(|bench| {
        let (_keeper, mut room) = room(bench, &ViewRequest::default());
        let absent: Vec<_> = room
            .status
            .enforcement
            .iter()
            .filter(|layer| layer.state == LayerState::Absent)
            .collect();
        assert!(absent.is_empty(), "{absent:?}");
        let own = if bench.person.uid() == 0 { 1000 } else { bench.person.uid() };
        assert_eq!(room.shell("id -u; id -g"), format!("{own}\n{own}\n"));
        assert_eq!(room.shell("grep -c ^CapEff:.0000000000000000$ /proc/self/status"), "1\n");
    });
}

/// A folder with a secret and everything that could lead to it.
fn secrets(bench: &Bench) -> Folder {
    let folder = bench.folder("secrets");
    folder.write("home/.ssh/id", "the secret\n");
    folder.write("home/.netrc", "the secret\n");
    folder.write("home/other", "no secret\n");
    std::os::unix::fs::symlink(folder.path().join("home/.ssh"), folder.path().join("soft"))
        .expect("the folder is ours");
    std::os::unix::fs::symlink("home/.netrc", folder.path().join("file"))
        .expect("the folder is ours");
    folder
}

#[test]
fn what_is_hidden_cannot_be_read_by_any_route() {
    as_everybody(|bench| {
        let folder = secrets(bench);
        let home = folder.path().join("home");
        let before = listing(folder.path());
        let view = ViewRequest {
            hidden: vec![
                host(home.join(".ssh")),
                host(home.join(".netrc")),
                host(home.join("missing")),
                host(home.join("other/below-a-file")),
            ],
            ..ViewRequest::default()
        };
        let (_keeper, mut room) = room(bench, &view);
        check(
            &mut room,
            &home,
            "
here = os.getcwd()
def empty(what, path):
    check(what, os.listdir(path), [])
    check(what, says(get, path + '/id'), 'ENOENT')
empty('relative', '.ssh')
empty('absolute', here + '/.ssh')
empty('dots', '../home/./.ssh/../.ssh')
empty('soft', '../soft')
empty('self root', '/proc/self/root' + here + '/.ssh')
empty('self folder', '/proc/self/cwd/.ssh')
check('root of init', says(os.listdir, '/proc/1/root' + here) in ('EACCES', 'ENOENT'), True)
check('file', get('.netrc'), '')
check('by link', get('../file'), '')
check('hard link', says(os.link, '.netrc', 'x') in ('EXDEV', 'EROFS'), True)
check('other', get('other'), 'no secret\\n')
check('missing', says(os.stat, 'missing'), 'ENOENT')
folder = os.open('.ssh', os.O_RDONLY)
check('from inside', says(os.stat, '../.ssh/id', dir_fd=folder), 'ENOENT')
check('write', says(os.open, '.ssh/new', os.O_WRONLY | os.O_CREAT), 'EROFS')
check('write', says(os.open, '.netrc', os.O_WRONLY) in ('EROFS', 'EACCES'), True)
check('unmount', raw('umount2', b'.ssh', 2), 'EPERM')
for kind in ('user', 'mnt'):
    check('namespace', raw('unshare', {'user': 0x10000000, 'mnt': 0x20000}[kind]), 'EPERM')
",
        );
        assert_eq!(listing(folder.path()), before);
    });
}

#[test]
fn what_is_hidden_is_hidden_at_other_mounts_of_it_too() {
    as_everybody_apart(|bench| {
        let point = bench.submounted().join("inside");
        let stored = std::fs::read_dir("/var/tmp")
            .expect("it is readable")
            .flatten()
            .map(|entry| entry.path())
            .find(|path| identity(path) == identity(&point))
            .expect("the folder is mounted from somewhere");
        for (hidden, other) in [(&point, &stored), (&stored, &point)] {
            let secret = other.join("secret");
            assert!(std::fs::metadata(secret).is_ok(), "it is there on the host");
            let view = ViewRequest { hidden: vec![host(hidden)], ..ViewRequest::default() };
            let (_keeper, mut room) = room(bench, &view);
            check(&mut room, other, "check('other', os.listdir('.'), [])");
            check(&mut room, hidden, "check('itself', os.listdir('.'), [])");
        }
        // A file in it, which the other mount shows by another path.
        let view =
            ViewRequest { hidden: vec![host(stored.join("secret"))], ..ViewRequest::default() };
        let (_keeper, mut room) = room(bench, &view);
        check(&mut room, &point, "check('file', get('secret'), '')");
    });
}

#[test]
fn what_lies_deepest_counts() {
    as_everybody(|bench| {
        let folder = secrets(bench);
        folder.write("home/project/src/main", "fine\n");
        folder.write("home/project/.env", "the secret\n");
        folder.write("home/tool", "fine\n");
        folder.write("home/project/vendor/lib", "fine\n");
        let home = folder.path().join("home");
        let project = home.join("project");
        let view = ViewRequest {
            hidden: vec![host(&home), host(project.join(".env"))],
            shown: vec![shown(home.join("tool")), shown(project.join("vendor"))],
            writable: vec![direct(&project)],
            scratch: vec![host(project.join("src"))],
            replaced: vec![(host(home.join("tool-rc")), b"made up\n".to_vec())],
        };
        let (_keeper, mut room) = room(bench, &view);
        check(
            &mut room,
            &project,
            "
check('home', sorted(os.listdir('..')), ['project', 'tool', 'tool-rc'])
check('tool', get('../tool'), 'fine\\n')
check('replaced', get('../tool-rc'), 'made up\\n')
check('env', get('.env'), '')
check('vendor', get('vendor/lib'), 'fine\\n')
check('vendor', says(os.open, 'vendor/lib', os.O_WRONLY), 'EROFS')
check('scratch', os.listdir('src'), [])
put('src/main', 'mine')
put('new', 'made')
check('away', says(os.rename, '.env', 'x'), 'EBUSY')
check('over', says(os.rename, 'new', '.env') in ('EBUSY', 'EXDEV'), True)
check('link', says(os.link, '.env', 'x'), 'EXDEV')
",
        );
        assert_eq!(folder.read("home/project/new").as_deref(), Some("made"));
        assert_eq!(folder.read("home/project/src/main").as_deref(), Some("fine\n"));
        assert_eq!(folder.read("home/project/.env").as_deref(), Some("the secret\n"));
        assert!(std::fs::metadata(home.join("tool-rc")).is_err());
    });
}

#[test]
fn everything_can_be_hidden_but_for_what_is_shown() {
    as_everybody(|bench| {
        let folder = bench.folder("project");
        folder.write("file", "fine\n");
        let view = ViewRequest {
            hidden: vec![host("/")],
            shown: vec![shown("/usr"), shown(folder.path())],
            ..ViewRequest::default()
        };
        let (_keeper, mut room) = room(bench, &view);
        check(
            &mut room,
            folder.path(),
            "
check('file', get('file'), 'fine\\n')
check('beside', os.listdir('..'), [os.path.basename(os.getcwd())])
check('settings', [name for name in os.listdir('/etc') if name not in ('hosts', 'resolv.conf')], [])
check('homes', os.listdir('/home'), [])
check('write', says(os.open, 'file', os.O_WRONLY), 'EROFS')
check('write', says(os.mkdir, '/home/new'), 'EROFS')
",
        );
    });
}

#[test]
fn files_and_folders_are_written_where_that_is_meant() {
    as_everybody(|bench| {
        let folder = bench.folder("project");
        folder.write("log", "old");
        folder.write("other", "old");
        folder.write("out/old", "old");
        let view = ViewRequest {
            writable: vec![direct(folder.path().join("log")), direct(folder.path().join("out"))],
            ..ViewRequest::default()
        };
        let (_keeper, mut room) = room(bench, &view);
        check(
            &mut room,
            folder.path(),
            "
put('log', 'new', os.O_TRUNC)
put('out/new', 'new'); os.rename('out/old', 'out/older'); os.mkdir('out/sub')
os.rename('out/older', 'out/sub/older')
check('other', says(os.open, 'other', os.O_WRONLY), 'EROFS')
check('beside', says(os.open, 'new', os.O_WRONLY | os.O_CREAT), 'EROFS')
check('out of it', says(os.rename, 'out/new', 'new'), 'EXDEV')
",
        );
        assert_eq!(folder.read("log").as_deref(), Some("new"));
        assert_eq!(folder.read("out/new").as_deref(), Some("new"));
        assert_eq!(folder.read("out/sub/older").as_deref(), Some("old"));
        let owner = folder.path().join("out/new").metadata().expect("it is there").uid();
        assert_eq!(owner, bench.person.uid());
    });
}

#[test]
fn rules_hold_where_changes_go_by_way_of_the_broker() {
    as_everybody(|bench| {
        let folder = bench.folder("project");
        folder.write(".git/hooks/old", "old");
        folder.write(".git/config", "old");
        folder.write(".env", "the secret\n");
        folder.write("src/main", "old");
        let before = listing(folder.path());
        let denied = [".git/hooks/**", ".git/config", ".bashrc", "/src/locked"];
        let view = ViewRequest {
            hidden: vec![host(folder.path().join(".env"))],
            writable: vec![recorded(folder.path(), &denied)],
            ..ViewRequest::default()
        };
        let (_keeper, mut room) = room(bench, &view);
        check(&mut room, folder.path(), "check('names', get('src/main'), 'old')");
        assert_eq!(listing(folder.path()), before, "nothing is made for it");
        check(
            &mut room,
            folder.path(),
            "
W, C = os.O_WRONLY, os.O_CREAT
here = os.getcwd()
check('here', here, sys.argv[1])
put('new', 'one'); put(here + '/absolute', 'two'); put('src/main', 'changed', os.O_TRUNC)
os.rename('new', 'src/newer'); os.mkdir('sub'); put('sub/../sub/file', 'x')
fd = os.open('src', os.O_RDONLY | os.O_DIRECTORY)
os.close(os.open('beside', W | C, dir_fd=fd))
def refused(what, answer): check(what, answer, 'EACCES')
refused('existing', says(os.open, '.git/config', W))
refused('removed', says(os.unlink, '.git/hooks/old'))
refused('new', says(os.open, '.bashrc', W | C))
refused('new', says(os.open, here + '/.git/hooks/new', W | C))
refused('one', says(os.open, 'src/locked', W | C))
os.makedirs('a/b/c/.git')
refused('made later', says(os.mkdir, 'a/b/c/.git/hooks/x') if os.path.exists('a/b/c/.git/hooks')
        else says(os.open, 'a/b/c/.git/config', W | C))
refused('deep', says(os.open, 'a/b/.bashrc', W | C))
refused('renamed', says(os.rename, 'sub/file', '.bashrc'))
check('hidden', get('.env'), '')
check('hidden link', says(os.link, '.env', 'x') in ('EXDEV', 'EROFS', 'EACCES'), True)
check('hidden move', says(os.rename, '.env', 'x') in ('EXDEV', 'EROFS', 'EBUSY'), True)
check('hidden over', says(os.rename, 'absolute', '.env') in ('EXDEV', 'EROFS', 'EBUSY'), True)
check('hidden removed', says(os.unlink, '.env') in ('EROFS', 'EBUSY'), True)
check('hidden written', says(os.open, '.env', W) in ('EROFS', 'EACCES'), True)
check('outside', says(os.open, '../x', W | C), 'EROFS')
uid = os.getuid(); check('owner', says(os.chown, 'absolute', uid, uid), 'ok')
",
        );
        assert_eq!(folder.read("src/main").as_deref(), Some("changed"));
        assert_eq!(folder.read("src/newer").as_deref(), Some("one"));
        assert_eq!(folder.read("absolute").as_deref(), Some("two"));
        assert_eq!(folder.read(".git/config").as_deref(), Some("old"));
        assert_eq!(folder.read(".env").as_deref(), Some("the secret\n"));
        assert!(folder.read(".bashrc").is_none());
        let owner = folder.path().join("absolute").metadata().expect("it is there").uid();
        assert_eq!(owner, bench.person.uid());
    });
}

#[test]
fn something_else_than_what_was_meant_is_refused() {
    as_everybody(|bench| {
        let folder = bench.folder("project");
        folder.write("one/file", "");
        folder.write("two/file", "");
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let view = ViewRequest { writable: vec![direct(&one)], ..ViewRequest::default() };
        let swapped = plan(&view);
        std::fs::rename(&one, folder.path().join("gone")).expect("ours");
        std::fs::rename(&two, &one).expect("ours");
        let linked = {
            let link = folder.path().join("link");
            std::os::unix::fs::symlink("gone", &link).expect("ours");
            plan(&ViewRequest { hidden: vec![host(link)], ..ViewRequest::default() })
        };
        let mut keeper = bench.keeper();
        for plan in [swapped, linked] {
            match keeper.create(plan) {
                Err(ClientError::Refused(failure)) => {
                    assert_eq!(failure.code, FailureCode::FolderChanged, "{failure:?}");
                }
                other => panic!("it was not refused: {other:?}"),
            }
        }
        let left = ask(&mut keeper, Request::Sessions).expect("the keeper is there");
        assert_eq!(format!("{left:?}"), "Sessions([])");
    });
}

#[test]
fn folders_are_fixed_while_it_runs_and_nothing_is_left_of_it() {
    as_everybody(|bench| {
        let folder = bench.folder("project");
        let view =
            ViewRequest { writable: vec![recorded(folder.path(), &[])], ..ViewRequest::default() };
        let (mut keeper, mut room) = room(bench, &view);
        let more = bench.folder("more");
        let refused = grant(&mut keeper, &room, grant_of(more.path(), "more", Access::Read));
        let failure = refused.expect_err("it is refused");
        assert_eq!(failure.code, FailureCode::FolderRefused, "{failure:?}");
        assert!(failure.sentence.contains("host's files"), "{failure:?}");
        check(&mut room, folder.path(), "put('file', 'x')");
        let init = room.status.init;
        ask(&mut keeper, Request::Destroy { session: room.id() }).expect("it is ended");
        assert!(eventually(|| std::fs::metadata(format!("/proc/{init}")).is_err()));
        drop(keeper);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("it is readable");
        assert!(!mounts.contains(folder.path().to_str().expect("it is text")), "{mounts}");
    });
}
