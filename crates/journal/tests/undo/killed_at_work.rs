//! Whoever makes changes is killed before each of its system calls that leave something behind,
//! between what is kept, what is recorded and what is done: whoever opens the records next finds a state that can be undone.

use crate::bed::{Bed, Command, Trash, directory, granted, same, same_but_links, wish};
use crate::scenarios::furnish;
use cowork_api::files::{Caps, Choice, Sets};
use cowork_journal::undo::{Manner, What, Wish, undo};
use rustix::fs::OFlags;
use std::path::Path;

/// One kind of change.
type Act = fn(&mut Command);

const KINDS: [(&str, Act); 19] = [
    ("create", |command| command.write("new", b"new").unwrap()),
    ("overwrite", |command| command.write("docs/1.txt", b"other").unwrap()),
    ("overwrite-large", |command| command.write("large.bin", b"short").unwrap()),
    ("append", |command| command.append("src/main.c", b"more").unwrap()),
    ("open", |command| drop(command.open("docs/1.txt", OFlags::RDWR).unwrap())),
    ("truncate", |command| command.truncate("large.bin", 10).unwrap()),
    ("remove", |command| command.unlink("docs/2.txt").unwrap()),
    ("remove-one-name", |command| command.unlink("one").unwrap()),
    ("remove-link", |command| command.unlink("link").unwrap()),
    ("make-folder", |command| command.mkdir("made").unwrap()),
    ("remove-folder", |command| command.rmdir("empty").unwrap()),
    ("rename", |command| command.rename("docs", "papers").unwrap()),
    ("replace", |command| command.rename("docs/1.txt", "docs/3.txt").unwrap()),
    ("exchange", |command| command.exchange("docs/1.txt", "src").unwrap()),
    ("add-name", |command| command.link("docs/1.txt", "another").unwrap()),
    ("make-link", |command| command.symlink("soft", "anywhere").unwrap()),
    ("mode", |command| command.chmod("src/main.c", 0o600).unwrap()),
    ("owner", |command| command.chown("src/main.c", 1234, 1234).unwrap()),
    ("attribute", |command| command.attribute("docs/2.txt", "user.note", b"other").unwrap()),
];

/// What is asked of an undo.
type Ask = fn() -> Wish;

/// What takes changes back, and what does them again.
const BACK: [(&str, Ask); 2] = [("undo", || wish(Sets::All, &[], Choice::Refuse)), ("redo", again)];

fn again() -> Wish {
    Wish { what: What::LastUndo, choice: Choice::Refuse, manner: Manner::Real }
}

/// A little of everything that an undo has to bring back.
fn mixture(command: &mut Command) {
    command.write("docs/1.txt", b"other").unwrap();
    command.unlink("docs/2.txt").unwrap();
    command.unlink("one").unwrap();
    command.rename("src", "source").unwrap();
    command.mkdir("made").unwrap();
    command.write("made/new", b"new").unwrap();
    command.rename("made/new", "docs/3.txt").unwrap();
    command.chmod("large.bin", 0o600).unwrap();
}

const HOME: &str = "COWORK_TEST_BED";
const KIND: &str = "COWORK_TEST_KIND";
const KEPT: &str = "COWORK_TEST_TRASH";

#[test]
#[ignore = "the victim of the other test"]
fn victim() {
    let of = |name| std::env::var(name).unwrap();
    let kind = of(KIND);
    let trash = if of(KEPT) == "none" { Trash::None } else { Trash::Beside };
    if let Some((_, wish)) = BACK.into_iter().find(|(name, _)| *name == kind) {
        let home = of(HOME);
        let home = Path::new(&home);
        let (store, folder) =
            (directory(&home.join("store")), granted(home, trash, Caps::default()));
        std::thread::yield_now();
        undo(store, vec![folder], &wish()).unwrap();
        std::thread::yield_now();
        return;
    }
    let (_, act) = KINDS.iter().find(|(name, _)| *name == kind).unwrap();
    let mut command = Command::begin(Path::new(&of(HOME)), trash, Caps::default());
    // Whoever traces it counts from here, and to the second one.
    std::thread::yield_now();
    act(&mut command);
    std::thread::yield_now();
}

/// Whether the change was interrupted before its call with this number.
fn kill_before(bed: &Bed, (kind, trash): (&str, Trash), call: usize) -> bool {
    let trash = if trash == Trash::None { "none" } else { "beside" };
    let told = [(HOME, bed.home().as_os_str()), (KIND, kind.as_ref()), (KEPT, trash.as_ref())];
    cowork_testbed::kill_before("killed_at_work::victim", &told, call)
}

fn sweep(trash: Trash) {
    let mut kills = 0;
    for (kind, _) in KINDS {
        for call in 0.. {
            let bed = Bed::with("at-work", trash, Caps::default());
            furnish(&bed);
            let before = bed.snapshot();
            let killed = kill_before(&bed, (kind, trash), call);
            let what = format!("{kind} killed before call {call}, with {trash:?}");
            // The next command of the session works on what there is.
            let halfway = bed.snapshot();
            let set = bed.set(|command| command.write("next", b"next").unwrap());
            let restored = bed.undo(Sets::Numbers(vec![set]), &[], Choice::Refuse);
            assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{what}: next");
            same_but_links(&bed.snapshot(), &halfway, &format!("{what}: next"));
            let restored = bed.undo_all();
            assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{what}");
            same(&bed.snapshot(), &before, &what);
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    println!("{kills} kills");
    assert!(kills > 3 * KINDS.len(), "{kills} kills are too few to say anything");
}

/// Whoever takes changes back, or does them again, is killed: that is done by doing it once more.
fn sweep_back(trash: Trash) {
    let mut kills = 0;
    for (kind, _) in BACK {
        for call in 0.. {
            let bed = Bed::with("back", trash, Caps::default());
            furnish(&bed);
            let before = bed.snapshot();
            bed.set(mixture);
            let changed = bed.snapshot();
            if kind == "redo" {
                bed.undo_all();
            }
            let killed = kill_before(&bed, (kind, trash), call);
            let what = format!("{kind} killed before call {call}, with {trash:?}");
            if kind == "redo" && killed {
                let restored = bed.redo();
                assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{what}: again");
            }
            if kind == "redo" {
                same_but_links(&bed.snapshot(), &changed, &format!("{what}: done again"));
            }
            let restored = bed.undo_all();
            assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{what}");
            same(&bed.snapshot(), &before, &what);
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    println!("{kills} kills");
    assert!(kills > 40, "{kills} kills are too few to say anything");
}

#[test]
fn an_undo_before_each_call_with_a_trash() {
    sweep_back(Trash::Beside);
}

#[test]
fn an_undo_before_each_call_without_one() {
    sweep_back(Trash::None);
}

#[test]
fn before_each_call_with_a_trash() {
    sweep(Trash::Beside);
}

#[test]
fn before_each_call_without_one() {
    sweep(Trash::None);
}
