//! Files that are written to across the end of a set, through a descriptor or a mapping from before:
//! each set has its own part, and can be taken back alone.

use crate::bench::{Running, as_everybody, event};
use crate::broker::kill_broker;
use crate::clerk::Scene;
use cowork_api::files::{Caps, Mark, Rules, Sets};
use cowork_api::keeper::Message;
use cowork_api::plan::Access;

/// Opens a file in a way of its own, and writes each line that it hears to it.
fn writer(scene: &mut Scene, way: &str) -> Running {
    let program = format!(
        "
import ctypes, mmap, os, queue, sys, threading
os.chdir(sys.argv[1])
{way}
print('open', flush=True)
for line in sys.stdin:
    write(line.strip().encode())
    print('written', flush=True)
"
    );
    let folder = scene.room.granted("project");
    let mut running = scene.room.python(&program, &[&folder]);
    running.expect("open");
    running
}

fn write(writer: &mut Running, text: &str) {
    writer.say(text);
    writer.expect("written");
}

/// Has it end, and with it its last set.
fn end(scene: &mut Scene, mut writer: Running) {
    drop(writer.input.take());
    assert_eq!(writer.rest(), "");
    scene.settle();
}

const DESCRIPTOR: &str = "
fd = os.open('edited', os.O_WRONLY)
def write(text): os.pwrite(fd, text, 0)
";

/// The descriptor is closed: what writes is the mapping alone.
const MAPPING: &str = "
fd = os.open('edited', os.O_RDWR)
memory = mmap.mmap(fd, 6)
os.close(fd)
def write(text): memory[:] = text
";

/// The mapping can only be read when the set ends, and is made writable later.
const LATER: &str = "
fd = os.open('edited', os.O_RDWR)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
READ, WRITE, SHARED = 1, 2, 1
at = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(6), READ, SHARED, fd, ctypes.c_long(0)))
os.close(fd)
def write(text):
    assert libc.mprotect(at, ctypes.c_size_t(6), READ | WRITE) == 0
    ctypes.memmove(at, text, 6)
    assert libc.mprotect(at, ctypes.c_size_t(6), READ) == 0
";

/// A thread with descriptors of its own opens it, and nobody else has it.
const THREAD: &str = "
CLONE_FILES = 0x400
asked, told = queue.Queue(), queue.Queue()
def work():
    assert ctypes.CDLL(None).unshare(CLONE_FILES) == 0
    fd = os.open('edited', os.O_WRONLY)
    while True:
        told.put(None)
        os.pwrite(fd, asked.get(), 0)
threading.Thread(target=work, daemon=True).start()
told.get()
def write(text):
    asked.put(text)
    told.get()
";

/// What the file says at first, and what is written over it in each set.
const STATES: [&str; 4] = ["before", "first.", "second", "third."];

fn says(scene: &Scene) -> String {
    scene.project.read("edited").expect("it is there").trim_end().to_owned()
}

/// Takes the last three sets back, one by one.
#[track_caller]
fn take_back(scene: &mut Scene, way: &str) {
    for set in (1..=3).rev() {
        let undone = scene.undo(Sets::Numbers(vec![set]));
        assert_eq!((&undone.conflicts, &undone.lost), (&vec![], &vec![]), "{set} {way}");
        let then = STATES[usize::try_from(set).expect("it is small") - 1];
        assert_eq!(says(scene), then, "after the undo of set {set}, written by {way}");
    }
}

#[test]
fn a_set_is_taken_back_to_where_it_began() {
    as_everybody(|bench| {
        for way in [DESCRIPTOR, MAPPING, LATER, THREAD] {
            let mut scene = Scene::new(bench, Access::Write);
            let mut writer = writer(&mut scene, way);
            write(&mut writer, STATES[1]);
            for text in &STATES[2..] {
                scene.boundary();
                write(&mut writer, text);
                assert_eq!(says(&scene), *text, "{way}");
            }
            end(&mut scene, writer);
            take_back(&mut scene, way);
        }
    });
}

#[test]
fn a_broker_that_dies_ends_a_set_and_whoever_writes_goes_on_in_the_next() {
    as_everybody(|bench| {
        for way in [DESCRIPTOR, MAPPING] {
            let mut scene = Scene::new(bench, Access::Write);
            let mut writer = writer(&mut scene, way);
            let restarted = Message::BrokerRestarted { session: scene.room.id() };
            for text in &STATES[1..] {
                write(&mut writer, text);
                kill_broker(&scene.keeper);
                assert_eq!(event(&mut scene.keeper), restarted);
            }
            end(&mut scene, writer);
            let undone = scene.undo(Sets::All);
            assert_eq!((&undone.conflicts, &undone.lost), (&vec![], &vec![]), "{way}");
            assert_eq!(says(&scene), STATES[0], "{way}");
        }
    });
}

#[test]
fn what_cannot_be_kept_at_the_end_of_a_set_is_told() {
    as_everybody(|bench| {
        let mut scene = Scene::with_rules(bench, Access::Write, Rules::default());
        let mut writer = writer(&mut scene, DESCRIPTOR);
        write(&mut writer, STATES[1]);
        let caps = Caps { file: 0, ..Caps::default() };
        scene.set_rules(Rules { caps, ..Rules::default() });
        scene.boundary();
        write(&mut writer, STATES[2]);
        end(&mut scene, writer);
        let changes = scene.changes_of(Sets::Numbers(vec![2]));
        let [change] = changes.as_slice() else { panic!("{changes:?}") };
        assert!(change.marks.iter().any(|mark| matches!(mark, Mark::NotUndoable(_))), "{change:?}");
        let undone = scene.undo(Sets::Numbers(vec![2]));
        assert_eq!(undone.lost.len(), 1, "{undone:?}");
        assert_eq!(says(&scene), STATES[2]);
        // What was before the first set is kept.
        let undone = scene.undo(Sets::All);
        assert_eq!((&undone.conflicts, &undone.lost), (&vec![], &vec![]));
        assert_eq!(says(&scene), STATES[0]);
    });
}
