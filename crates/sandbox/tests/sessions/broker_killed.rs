//! A broker that is killed again and again while a session changes files: callers are answered, the
//! next broker goes on, and what was done can be taken back to the last byte.

use crate::bench::{Bench, as_everybody, event, eventually};
use crate::broker::{brokers, kill_broker};
use crate::clerk::Scene;
use cowork_api::files::Sets;
use cowork_api::keeper::Message;
use cowork_api::plan::Access;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// How often the broker is killed; fewer times than a keeper starts one.
const KILLS: u64 = 60;

/// Changes files until its input ends, in a folder of its own and in one that all share. `EINTR` says
/// that a call may have been carried out or not, so that the next may find what it made; `ELOOP` that
/// the link that says `0` was given that very name. Whatever else a call says is told, and so is a
/// call that does not return.
const WORKER: &str = "
import errno, os, random, select, signal, sys, threading, time
os.chdir(sys.argv[1])
STORMY = {errno.EINTR, errno.EEXIST, errno.ENOENT, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR, errno.EPERM, errno.ELOOP}
children = []
for number in range(4):
    pid = os.fork()
    if pid: children.append(pid); continue
    random.seed(number)
    processors = os.sched_getaffinity(0)
    interrupted = done = 0
    def name():
        folder = random.choice([f'own{number}', 'shared', 'furniture'])
        return f'{folder}/{random.randrange(12)}'
    def write(flags):
        fd = os.open(name(), os.O_WRONLY | os.O_CREAT | flags, random.choice([0o600, 0o644, 0o755]))
        try: os.write(fd, b'x' * random.randrange(200))
        finally: os.close(fd)
    acts = [
        lambda: write(os.O_TRUNC), lambda: write(os.O_APPEND), lambda: write(os.O_EXCL),
        lambda: os.rename(name(), name()), lambda: os.unlink(name()), lambda: os.unlink(name()),
        lambda: os.mkdir(name()), lambda: os.rmdir(name()), lambda: os.link(name(), name()),
        lambda: os.symlink('anywhere', name()), lambda: os.truncate(name(), 5),
        lambda: os.chmod(name(), random.choice([0o600, 0o640])),
        lambda: os.utime(name(), ns=(1, random.randrange(1 << 40))),
    ]
    since = [time.monotonic()]
    def watch():
        while True:
            time.sleep(1)
            if time.monotonic() - since[0] > 30:
                os.write(1, b'a call does not return\\n')
                os._exit(1)
    threading.Thread(target=watch, daemon=True).start()
    while not select.select([0], [], [], 0)[0]:
        since[0] = time.monotonic()
        try:
            random.choice(acts)()
            done += 1
        except OSError as error:
            if error.errno not in STORMY:
                os.write(1, f'{errno.errorcode[error.errno]}\\n'.encode())
            interrupted += error.errno == errno.EINTR
    if os.sched_getaffinity(0) != processors:
        os.write(1, b'it may not run where it might\\n')
    os._exit(0 if done > 100 else 3)
print('begins', flush=True)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
print('ends', codes, flush=True)
";

/// A folder with something of everything.
fn scene(bench: &Bench) -> Scene {
    let scene = Scene::new(bench, Access::Write);
    for folder in ["own0", "own1", "own2", "own3", "shared", "furniture"] {
        for number in 0..6 {
            scene.project.write(&format!("{folder}/{number}"), format!("{folder} {number}\n"));
        }
        let at = |name: &str| scene.project.path().join(folder).join(name);
        std::fs::hard_link(at("0"), at("6")).expect("ours");
        std::os::unix::fs::symlink("0", at("7")).expect("ours");
        std::fs::create_dir(at("8")).expect("ours");
    }
    scene
}

/// Everything below a folder, with what its names have in common: mode, owner, time, contents, what
/// a link says, and which names are one file.
fn everything(root: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![root.to_path_buf()];
    let mut first: BTreeMap<u64, String> = BTreeMap::new();
    while let Some(folder) = waiting.pop() {
        let mut entries: Vec<_> =
            std::fs::read_dir(&folder).expect("ours").map(|entry| entry.expect("ours")).collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let stat = std::fs::symlink_metadata(&path).expect("ours");
            let name = path.strip_prefix(root).expect("below").display().to_string();
            let same = first.entry(stat.ino()).or_insert_with(|| name.clone()).clone();
            let contents = if stat.is_dir() {
                waiting.push(path);
                Vec::new()
            } else if stat.is_symlink() {
                std::fs::read_link(&path).expect("ours").into_os_string().into_encoded_bytes()
            } else {
                std::fs::read(&path).expect("ours")
            };
            let time = (stat.mtime(), stat.mtime_nsec());
            let owner = (stat.uid(), stat.gid());
            let (mode, links) = (stat.mode(), stat.nlink());
            let text = format!("{mode:o} {owner:?} {time:?} {links} {same} {contents:?}");
            all.insert(name, text);
        }
    }
    all
}

#[track_caller]
fn same(found: &BTreeMap<String, String>, expected: &BTreeMap<String, String>) {
    let names = found.keys().chain(expected.keys().filter(|name| !found.contains_key(*name)));
    let differ: Vec<_> = names
        .filter(|name| found.get(*name) != expected.get(*name))
        .map(|name| format!("{name}\n  now {:?}\n then {:?}", found.get(name), expected.get(name)))
        .collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// Kills the broker, and waits until it is told that another one was started.
fn strike(scene: &mut Scene) {
    assert!(eventually(|| brokers(&scene.keeper).len() == 1), "there is no broker");
    kill_broker(&scene.keeper);
    let restarted = Message::BrokerRestarted { session: scene.room.id() };
    assert_eq!(event(&mut scene.keeper), restarted);
}

#[test]
fn changes_under_a_broker_that_is_killed_are_whole_and_can_be_undone() {
    as_everybody(|bench| {
        let mut scene = scene(bench);
        let before = everything(scene.project.path());
        let folder = scene.room.granted("project");
        let mut worker = scene.room.python(WORKER, &[&folder]);
        worker.expect("begins");
        for kill in 0..KILLS {
            std::thread::sleep(Duration::from_millis(10 + kill * 7 % 60));
            strike(&mut scene);
        }
        worker.input = None;
        worker.expect("ends [0, 0, 0, 0]");
        assert_eq!(worker.rest(), "");
        scene.settle();
        assert_ne!(everything(scene.project.path()), before);
        let undone = scene.undo(Sets::All);
        assert_eq!((&undone.conflicts, &undone.lost), (&vec![], &vec![]));
        same(&everything(scene.project.path()), &before);
    });
}
