//! A clerk is killed before each of its system calls that leave something behind, while it applies
//! what is staged: whoever works with the records next takes back what was begun.

use super::carry_out;
use super::tests::{Scene, kept, tree, wait_a_moment, write};
use cowork_api::files::{Choice, Order, Report, Restored, Work};
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// What there is to be seen of the folder.
type Seen = BTreeMap<PathBuf, String>;

const STORE: &str = "COWORK_TEST_STORE";

#[test]
#[ignore = "the victim of the other tests"]
fn victim() {
    let store = std::env::var_os(STORE).unwrap();
    let work = Work::Apply { paths: Vec::new(), choice: Choice::Refuse, rehearsal: false };
    let store = kept(Path::new(&store));
    let order = Order { store, work, names: Vec::new(), types: Vec::new() };
    // Whoever traces it counts from here, and to the second one.
    std::thread::yield_now();
    let report = carry_out(&order).unwrap();
    std::thread::yield_now();
    assert!(matches!(report, Report::Restored(_)), "{report:?}");
}

/// A folder, and a little of everything staged above it; what is below, and what the session sees.
fn scene() -> (Scene, Seen, Seen) {
    let scene = Scene::new("killed");
    for name in ["edited", "removed", "altered", "tree/deep/file", "turned/in"] {
        write(&scene.project(name), &format!("{name} before"));
    }
    symlink("edited", scene.project("link")).unwrap();
    write(&scene.project("one"), "names");
    std::fs::hard_link(scene.project("one"), scene.project("two")).unwrap();
    std::fs::create_dir_all(scene.path("store/trash/project")).unwrap();
    let before = tree(&scene.path("project"));
    wait_a_moment();
    let staged = scene.stage(|seen| {
        write(&seen.join("edited"), "after");
        std::fs::remove_file(seen.join("removed")).unwrap();
        std::fs::set_permissions(seen.join("altered"), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::remove_dir_all(seen.join("tree")).unwrap();
        std::fs::remove_dir_all(seen.join("turned")).unwrap();
        write(&seen.join("turned"), "now a file");
        std::fs::remove_file(seen.join("link")).unwrap();
        symlink("one", seen.join("link")).unwrap();
        write(&seen.join("made/file"), "new");
        std::fs::hard_link(seen.join("made/file"), seen.join("made/again")).unwrap();
    });
    (scene, before, staged)
}

/// Kills a clerk before each call, and has somebody go on, who leaves the folder as it was before.
fn sweep(go_on: impl Fn(&Scene, (&Seen, &Seen), &str)) {
    let mut kills = 0;
    for call in 0.. {
        let (scene, before, staged) = scene();
        let store = scene.path("store");
        let killed =
            cowork_testbed::kill_before("clerk::killed::victim", &[(STORE, store.as_ref())], call);
        let what = format!("killed before call {call}");
        go_on(&scene, (&before, &staged), &what);
        assert_eq!(tree(&scene.path("project")), before, "{what}");
        if !killed {
            break;
        }
        kills += 1;
    }
    println!("{kills} kills");
    assert!(kills > 40, "{kills} kills are too few to say anything");
}

#[track_caller]
fn is_whole(restored: &Restored, what: &str) {
    assert_eq!((&restored.conflicts, &restored.lost), (&Vec::new(), &Vec::new()), "{what}");
}

#[test]
fn what_was_half_applied_is_applied_again() {
    sweep(|scene, (before, staged), what| {
        let mut restored = scene.apply(Choice::Refuse, &[]);
        // What was being kept at that very moment has another time of change: it may be the user's.
        if restored.conflicts.len() == 1 {
            assert_eq!(tree(&scene.path("project")), *before, "{what}: refused");
            restored = scene.apply(Choice::Theirs, &[]);
            restored.conflicts.clear();
        }
        is_whole(&restored, what);
        assert_eq!(tree(&scene.path("project")), *staged, "{what}: applied again");
        is_whole(&scene.undo(), what);
    });
}

#[test]
fn what_was_half_applied_is_taken_back() {
    sweep(|scene, _, what| is_whole(&scene.undo(), what));
}
