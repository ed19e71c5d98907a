//! What the user, or another session, changes while a command runs is not the command's: its undo
//! says so, and overwrites nothing. What the command itself changes, in whatever way, is.

use crate::bench::{Room, Running, as_everybody, grant, grant_of, new_plan};
use crate::clerk::{Scene, kept};
use cowork_api::files::{Restored, Sets};
use cowork_api::plan::{Access, Door, Writing};
use std::time::Duration;

/// Longer than it takes until it is recorded what closed files are like.
const SETTLED: Duration = Duration::from_millis(1500);

/// A command that works in the folder, says so, and goes on when it is told to.
fn command(room: &mut Room, work: &str, then: &str) -> Running {
    let program = format!(
        "
import ctypes, mmap, os, subprocess, sys, time
os.chdir(sys.argv[1])
def put(path, text, way='w'):
    with open(path, way) as file: file.write(text)
{work}
print('worked', flush=True)
sys.stdin.readline()
{then}
print('end', flush=True)
"
    );
    let folder = room.granted("project");
    let mut running = room.python(&program, &[&folder]);
    running.expect("worked");
    std::thread::sleep(SETTLED);
    running
}

fn end(scene: &mut Scene, mut running: Running) {
    running.say("go on");
    drop(running.input.take());
    assert_eq!(running.rest(), "end\n");
    scene.settle();
}

fn contested(restored: &Restored) -> Vec<String> {
    let path = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let mut all: Vec<_> =
        restored.conflicts.iter().map(|conflict| path(&conflict.at.path)).collect();
    all.sort();
    all
}

/// How a user changes a file.
type Way = fn(&Scene, &str);

const IN_PLACE: Way = |scene, name| {
    std::fs::write(scene.project.path().join(name), "the user's\n").expect("it is ours");
};

/// As editors do.
const ANEW: Way = |scene, name| {
    let path = scene.project.path().join(name);
    let beside = scene.project.path().join(".beside");
    std::fs::write(&beside, "the user's\n").expect("it is ours");
    std::fs::rename(beside, path).expect("it is ours");
};

const REMOVED_FIRST: Way = |scene, name| {
    std::fs::remove_file(scene.project.path().join(name)).expect("it is ours");
    IN_PLACE(scene, name);
};

const WAYS: [(&str, Way); 3] =
    [("in place", IN_PLACE), ("anew", ANEW), ("after it was removed", REMOVED_FIRST)];

/// Undoes everything: what the user changed is named and stays.
#[track_caller]
fn stays(scene: &mut Scene, names: &[&str], what: &str) {
    let restored = scene.undo(Sets::All);
    assert_eq!(contested(&restored), names, "{what}");
    for name in names {
        assert_eq!(scene.project.read(name).as_deref(), Some("the user's\n"), "{name} {what}");
    }
}

const WORK: &str = "
put('edited', 'written\\n')
put('kept', 'appended\\n', 'a')
put('made', 'made\\n')
put('.new', 'replaced\\n'); os.rename('.new', 'removed')
os.rename('folder/inside', 'folder/moved'); put('folder/moved', 'written\\n')
";

/// All that the command has changed.
const NAMES: [&str; 5] = ["edited", "folder/moved", "kept", "made", "removed"];

#[test]
fn what_the_user_changes_while_a_command_runs_is_not_its_own() {
    as_everybody(|bench| {
        for (what, way) in WAYS {
            let mut scene = Scene::new(bench, Access::Write);
            let running = command(&mut scene.room, WORK, "");
            for name in NAMES {
                way(&scene, name);
            }
            end(&mut scene, running);
            stays(&mut scene, &NAMES, what);
        }
    });
}

#[test]
fn nor_is_it_when_the_command_changes_something_of_it_afterwards() {
    as_everybody(|bench| {
        for (what, way) in WAYS {
            let mut scene = Scene::new(bench, Access::Write);
            let then = "
os.rename('edited', 'renamed')
os.chmod('made', 0o600)
os.link('kept', 'linked')
put('folder/moved', 'written again\\n')
";
            let running = command(&mut scene.room, WORK, then);
            for name in ["edited", "made", "kept", "folder/moved"] {
                way(&scene, name);
            }
            end(&mut scene, running);
            let restored = scene.undo(Sets::All);
            assert_eq!(contested(&restored), ["folder/moved", "kept", "made", "renamed"], "{what}");
            for name in ["renamed", "made", "kept"] {
                assert_eq!(
                    scene.project.read(name).as_deref(),
                    Some("the user's\n"),
                    "{name} {what}"
                );
            }
        }
    });
}

#[test]
fn a_file_that_is_replaced_while_the_command_has_the_former_one_open_is_the_users() {
    as_everybody(|bench| {
        let mut scene = Scene::new(bench, Access::Write);
        let work = "log = open('edited', 'a', buffering=1); log.write('one\\n')";
        let running = command(&mut scene.room, work, "log.write('two\\n')");
        ANEW(&scene, "edited");
        end(&mut scene, running);
        stays(&mut scene, &["edited"], "replaced");

        let mut scene = Scene::new(bench, Access::Write);
        let then = "put('edited', 'three\\n')";
        let running = command(&mut scene.room, work, then);
        ANEW(&scene, "edited");
        end(&mut scene, running);
        assert_eq!(contested(&scene.undo(Sets::All)), ["edited"]);
        assert_eq!(scene.project.read("edited").as_deref(), Some("three\n"));
    });
}

#[test]
fn what_another_session_changes_is_not_its_own_either() {
    as_everybody(|bench| {
        let mut scene = Scene::new(bench, Access::Write);
        let store = bench.folder("other-store");
        let mut plan = new_plan();
        plan.door = Door::Writes;
        let mut other = Room::make(&mut scene.keeper, plan);
        let mut wanted = grant_of(scene.project.path(), "project", Access::Write);
        wanted.writing = Some(Writing { store: Some(kept(store.path())), ..Writing::default() });
        grant(&mut scene.keeper, &other, wanted).expect("it is granted");

        let work = "put('edited', 'one\\n'); put('kept', 'one\\n'); put('made', 'one\\n')";
        let running = command(&mut scene.room, work, "");
        let folder = other.granted("project");
        let script = format!("cd {folder} && echo two > edited && echo two >> made");
        assert_eq!(other.shell(&script), "");
        end(&mut scene, running);
        assert_eq!(contested(&scene.undo(Sets::All)), ["edited", "made"]);
        assert_eq!(scene.project.read("edited").as_deref(), Some("two\n"));
        assert_eq!(scene.project.read("made").as_deref(), Some("one\ntwo\n"));
    });
}

/// Each writes to a file in a way of its own, and goes on after it could have been settled.
const OWN: &str = "
libc = ctypes.CDLL(None)
def later(): time.sleep(0.7)
put('again', 'one\\n'); later(); put('again', 'two\\n', 'a'); later(); put('again', 'three\\n', 'a')
put('edited', 'one\\n'); later(); put('edited', 'two\\n', 'a'); later(); os.truncate('edited', 3)
put('mode', 'one\\n'); later(); os.chmod('mode', 0o711); later(); os.utime('mode', (5, 6))
put('moved-on', 'one\\n'); later(); os.rename('moved-on', 'moved'); later(); put('moved', 'x', 'a')
put('named', 'one\\n'); os.link('named', 'other-name'); later(); put('other-name', 'two\\n', 'a')
later(); put('named', 'three\\n', 'a')
os.mkdir('deep'); put('deep/file', 'one\\n'); later(); os.rename('deep', 'deeper')
put('deeper/file', 'two\\n', 'a'); later(); os.chmod('deeper', 0o700)
put('removed-again', 'one\\n'); later(); os.unlink('removed-again'); put('removed-again', 'two\\n')
put('one', 'one\\n'); put('two', 'two\\n'); later(); assert libc.renameat2(-100, b'one', -100, b'two', 2) == 0
put('one', 'more\\n', 'a')
# An open descriptor, a mapping, and a child that inherits what its parent closes.
log = open('log', 'w', buffering=1); log.write('one\\n'); later(); later(); log.write('two\\n')
with open('mapped', 'w+b') as file:
    file.truncate(4096); memory = mmap.mmap(file.fileno(), 4096)
later(); later(); memory[:3] = b'one'
with open('inherited', 'w') as file:
    child = subprocess.Popen(['sh', '-c', 'sleep 1.5; echo late'], stdout=file)
child.wait()
subprocess.run(['sh', '-c', 'exec 3> background; (sleep 1.5; echo late >&3) & exec 3>&-; wait'])
subprocess.run(['dd', 'if=/dev/zero', 'of=kept', 'bs=2', 'count=1', 'conv=notrunc', 'status=none'])
fd = os.open('.', os.O_TMPFILE | os.O_WRONLY); os.write(fd, b'one')
assert libc.linkat(-100, f'/proc/self/fd/{fd}'.encode(), -100, b'nameless', 0x400) == 0; later(); os.write(fd, b'two')
os.close(fd)
";

#[test]
fn whatever_the_command_does_itself_is_its_own() {
    as_everybody(|bench| {
        let mut scene = Scene::new(bench, Access::Write);
        let before = scene.tree();
        let running = command(&mut scene.room, OWN, "memory[4:7] = b'two'; log.write('three\\n')");
        end(&mut scene, running);
        let after = scene.tree();
        let restored = scene.undo(Sets::All);
        assert_eq!((&restored.conflicts, &restored.lost), (&vec![], &vec![]));
        assert_eq!(scene.tree(), before);
        let restored = scene.redo();
        assert_eq!((&restored.conflicts, &restored.lost), (&vec![], &vec![]));
        assert_eq!(scene.tree(), after);
    });
}
