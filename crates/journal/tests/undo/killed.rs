//! An undo that is interrupted anywhere is finished by undoing again.

use crate::bed::{Bed, Command, Trash, directory, granted, same, same_but_links, wish};
use crate::scenarios::furnish;
use cowork_api::files::{Caps, Choice, Sets};
use cowork_journal::undo::undo;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// A bit of everything that an undo has to do.
fn mischief(command: &mut Command) {
    command.rename("docs", "papers").unwrap();
    command.mkdir("docs").unwrap();
    command.write("docs/1.txt", b"another one").unwrap();
    command.append("papers/1.txt", b"longer").unwrap();
    command.exchange("papers/2.txt", "papers/3.txt").unwrap();
    command.append("papers/2.txt", b"longer").unwrap();
    command.write("papers/.new", b"saved").unwrap();
    command.rename("papers/.new", "papers/4.txt").unwrap();
    command.unlink("link").unwrap();
    command.mkdir("link").unwrap();
    command.write("link/file", b"in a folder that was a link").unwrap();
    command.append("one", b"both").unwrap();
    command.unlink("one").unwrap();
    command.unlink("pipe").unwrap();
    command.unlink("large.bin").unwrap();
    command.chmod("src", 0o700).unwrap();
    command.attribute("src/main.c", "user.one", b"1").unwrap();
    command.unlink("papers/deep/inner.txt").unwrap();
    command.rmdir("papers/deep").unwrap();
}

#[test]
fn after_each_change() {
    for trash in [Trash::Beside, Trash::None] {
        let mut changes = 0;
        loop {
            let bed = Bed::with("killed", trash, Caps::default());
            furnish(&bed);
            let before = bed.snapshot();
            bed.set(mischief);
            let after = bed.snapshot();
            let what = format!("after {changes} changes with {trash:?}");
            let whole = bed.interrupted(&wish(Sets::All, &[], Choice::Refuse), changes).is_ok();
            if !whole {
                assert_eq!(bed.journal().selected(&Sets::All), [1], "{what}: it is not undone");
                let restored = bed.undo_all();
                assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{what}");
            }
            same(&bed.snapshot(), &before, &what);
            let restored = bed.redo();
            assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{what}: redone");
            same_but_links(&bed.snapshot(), &after, &format!("{what}: redone"));
            if whole {
                break;
            }
            changes += 1;
        }
        assert!(changes > 25, "{changes} changes are too few to say anything");
    }
}

#[test]
fn twice_in_a_row() {
    for (first, second) in [(3, 2), (8, 5), (12, 9), (20, 1), (15, 20)] {
        let bed = Bed::new("twice");
        furnish(&bed);
        let before = bed.snapshot();
        bed.set(mischief);
        let after = bed.snapshot();
        let all = wish(Sets::All, &[], Choice::Refuse);
        assert!(bed.interrupted(&all, first).is_err());
        let finished = bed.interrupted(&all, second).is_ok();
        if !finished {
            bed.undo_all();
        }
        same(&bed.snapshot(), &before, &format!("{first} and {second}"));
        bed.redo();
        same_but_links(&bed.snapshot(), &after, &format!("{first} and {second}: redone"));
    }
}

#[test]
fn between_a_name_in_the_trash_and_its_record() {
    let bed = Bed::new("unrecorded");
    furnish(&bed);
    let before = bed.snapshot();
    bed.set(mischief);
    // Somebody was about to replace it, and died when it had its name in the trash.
    let last = cowork_journal::log::read(bed.store().as_fd()).unwrap().entries;
    let next = last.iter().map(|entry| entry.seq).max().unwrap() + 1;
    let trash = bed.home().join("trash").join(format!("t{next}"));
    std::fs::hard_link(bed.path().join("papers/2.txt"), &trash).unwrap();
    bed.undo_all();
    same(&bed.snapshot(), &before, "what was never recorded is taken away");
}

const BED: &str = "COWORK_TEST_BED";

#[test]
#[ignore = "the victim of `by_a_signal`"]
fn victim() {
    let home = std::env::var(BED).unwrap();
    let home = Path::new(&home);
    let folder = granted(home, Trash::Beside, Caps::default());
    undo(directory(&home.join("store")), vec![folder], &wish(Sets::All, &[], Choice::Refuse))
        .unwrap();
}

#[test]
fn by_a_signal() {
    let mut killed = 0;
    for attempt in 0..30_u64 {
        let bed = Bed::new("signal");
        furnish(&bed);
        let before = bed.snapshot();
        bed.set(mischief);
        let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "killed::victim"])
            .env(BED, bed.home())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(2_000 + attempt * 700));
        victim.kill().unwrap();
        victim.wait().unwrap();
        if bed.journal().selected(&Sets::All) == [1] {
            let begun = bed.journal().sets().len() > 1;
            killed += u32::from(begun);
            let restored = bed.undo_all();
            assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "attempt {attempt}");
        }
        same(&bed.snapshot(), &before, &format!("attempt {attempt}"));
    }
    assert!(killed > 0, "no undo was hit on its way");
}
