//! A user changes files while a set is open, and between sets: whatever is done to them afterwards,
//! nothing that the user wrote is lost by an undo.
//!
//! Deliberately absent from the random stories: further names of a file. One that the user replaces
//! is taken for a name of the same file still.

use crate::bed::{Bed, Trash};
use crate::random::{Dice, change, paths, seeds};
use cowork_api::files::{Caps, Choice, Restored, Sets};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

fn conflicts(restored: &Restored) -> Vec<String> {
    let path = |path: &[u8]| String::from_utf8(path.to_vec()).unwrap();
    restored.conflicts.iter().map(|conflict| path(&conflict.at.path)).collect()
}

fn replace(bed: &Bed, name: &str, contents: &str) {
    let beside = bed.home().join("beside");
    std::fs::write(&beside, contents).unwrap();
    std::fs::rename(beside, bed.at(name)).unwrap();
}

#[test]
fn what_is_recorded_early_is_not_recorded_again() {
    let bed = Bed::new("early");
    std::fs::write(bed.at("file"), "before").unwrap();
    let before = bed.snapshot();
    bed.set(|command| {
        command.write("file", b"one").unwrap();
        command.settle();
        let settled = bed.journal().entries().count();
        command.settle();
        assert_eq!(bed.journal().entries().count(), settled);
        // The folder's times go on changing.
        command.write("new", b"new").unwrap();
        command.settle();
        command.append("file", b"two").unwrap();
    });
    let restored = bed.undo_all();
    assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]));
    assert_eq!(bed.snapshot(), before);
}

#[test]
fn a_folder_whose_mode_the_user_changed_keeps_it() {
    let bed = Bed::new("mode");
    std::fs::create_dir(bed.at("folder")).unwrap();
    bed.set(|command| {
        command.chmod("folder", 0o700).unwrap();
        command.write("folder/new", b"new").unwrap();
        std::fs::set_permissions(bed.at("folder"), PermissionsExt::from_mode(0o711)).unwrap();
    });
    assert_eq!(conflicts(&bed.undo_all()), ["folder"]);
    assert_eq!(bed.snapshot()["folder"].mode & 0o7777, 0o711);
}

#[test]
fn what_the_user_replaced_is_told_before_it_is_recorded() {
    let bed = Bed::new("replaced");
    for name in ["file", "other"] {
        std::fs::write(bed.at(name), "before").unwrap();
    }
    bed.set(|command| {
        let open = command.open("file", rustix::fs::OFlags::WRONLY).unwrap();
        command.write("other", b"written").unwrap();
        replace(&bed, "file", "the user's");
        replace(&bed, "other", "the user's");
        command.append("other", b", and more").unwrap();
        drop(open);
    });
    assert_eq!(conflicts(&bed.undo_all()), ["file", "other"]);
}

#[test]
fn what_the_user_wrote_is_kept_when_the_command_removes_it() {
    for trash in [Trash::Beside, Trash::None] {
        let bed = Bed::with("kept", trash, Caps::default());
        bed.set(|command| {
            command.write("made", b"made").unwrap();
            command.settle();
            std::fs::write(bed.at("made"), "the user's").unwrap();
            command.unlink("made").unwrap();
        });
        let restored = bed.undo_all();
        assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]));
        let kept = if trash == Trash::Beside { "trash" } else { "store" };
        let holds = |path: std::path::PathBuf| {
            std::fs::read(path)
                .is_ok_and(|bytes| bytes.windows(10).any(|window| window == b"the user's"))
        };
        let mut files = std::fs::read_dir(bed.home().join(kept)).unwrap();
        assert!(files.any(|file| holds(file.unwrap().path())), "{trash:?}");
    }
}

/// What a user wrote into a file: words that are nowhere else.
fn words(number: usize) -> String {
    format!("<the user's, {number}>")
}

/// Which of the user's words are somewhere.
fn present(bed: &Bed, count: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for node in bed.snapshot().values() {
        let text = String::from_utf8_lossy(&node.contents).into_owned();
        found.extend((0..count).filter(|number| text.contains(&words(*number))));
    }
    found
}

/// A user changes one file.
fn edit(bed: &Bed, dice: &mut Dice, number: usize) {
    let all = paths(bed);
    let name = dice.of(&all).clone();
    let Ok(stat) = std::fs::symlink_metadata(bed.at(&name)) else { return };
    let text = words(number);
    match dice.below(4) {
        _ if stat.is_dir() => {
            let new = bed.at(&name).join(format!("users-{number}"));
            std::fs::write(new, text).unwrap();
        }
        _ if !stat.is_file() => {}
        0 => replace(bed, &name, &text),
        1 => {
            std::fs::remove_file(bed.at(&name)).unwrap();
            std::fs::write(bed.at(&name), text).unwrap();
        }
        2 => std::fs::write(bed.at(&name), text).unwrap(),
        _ => {
            let mut contents = std::fs::read(bed.at(&name)).unwrap();
            contents.extend_from_slice(text.as_bytes());
            std::fs::write(bed.at(&name), contents).unwrap();
        }
    }
}

#[test]
fn nothing_that_a_user_wrote_is_lost() {
    let (mut kept, mut asked) = (0, 0);
    let one = std::env::var("COWORK_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in one.map_or(7_000..7_000 + seeds(), |one: u64| one..one + 1) {
        for trash in [Trash::Beside, Trash::None] {
            let what = format!("seed {seed} with {trash:?}");
            let bed = Bed::with("meanwhile", trash, Caps::default());
            let mut dice = Dice(seed);
            bed.set(|command| {
                command.links = false;
                for _ in 0..30 {
                    change(command, &mut dice, &paths(&bed));
                }
            });
            bed.forget();
            let mut edits = 0;
            for _ in 0..=dice.below(3) {
                let count = 1 + dice.below(30);
                bed.set(|command| {
                    command.links = false;
                    for _ in 0..count {
                        if dice.below(4) == 0 {
                            command.settle();
                            edit(&bed, &mut dice, edits);
                            edits += 1;
                        }
                        change(command, &mut dice, &paths(&bed));
                    }
                });
            }
            let before = present(&bed, edits);
            let whole = bed.snapshot();
            let restored = bed.undo_all();
            if !restored.conflicts.is_empty() {
                asked += 1;
                assert_eq!(bed.snapshot(), whole, "{what}: it was refused");
                bed.undo(Sets::All, &[], Choice::Ours);
            }
            let after = present(&bed, edits);
            let lost: Vec<_> = before.difference(&after).collect();
            assert!(lost.is_empty(), "{what}: {lost:?} of {edits} are lost");
            kept += before.len();
        }
    }
    println!("{kept} kept, asked in {asked} stories");
    assert!(kept as u64 > seeds() / 2 && asked > 0, "{kept} and {asked} are too few");
}
