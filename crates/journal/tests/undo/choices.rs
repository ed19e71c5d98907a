//! What the user has changed since is shown, and treated as chosen.

use crate::bed::{Bed, Snapshot, same};
use crate::scenarios::furnish;
use cowork_api::files::{Choice, Restored, Sets};

/// A command changed these; the user then changed all of them, and something else.
fn contested() -> (Bed, Snapshot) {
    let bed = Bed::new("choices");
    furnish(&bed);
    let before = bed.snapshot();
    bed.set(|command| {
        command.write("docs/1.txt", b"the command's").unwrap();
        command.write("docs/2.txt", b"the command's, and only that").unwrap();
        command.unlink("docs/3.txt").unwrap();
        command.mkdir("new").unwrap();
        command.write("new/file", b"made").unwrap();
        command.write("made", b"made").unwrap();
        command.rename("src/main.c", "src/main.cc").unwrap();
    });
    std::fs::write(bed.at("docs/1.txt"), "the user's").unwrap();
    std::fs::write(bed.at("docs/3.txt"), "the user's").unwrap();
    std::fs::write(bed.at("new/notes"), "the user's").unwrap();
    std::fs::write(bed.at("made"), "the user's").unwrap();
    std::fs::write(bed.at("src/main.cc"), "the user's").unwrap();
    (bed, before)
}

fn conflicts(restored: &Restored) -> Vec<String> {
    let mut all: Vec<String> = restored
        .conflicts
        .iter()
        .map(|conflict| String::from_utf8(conflict.at.path.clone()).unwrap())
        .collect();
    all.sort();
    all
}

fn read(bed: &Bed, name: &str) -> Option<String> {
    std::fs::read_to_string(bed.at(name)).ok()
}

const CONTESTED: [&str; 5] = ["docs/1.txt", "docs/3.txt", "made", "new/notes", "src/main.cc"];

#[test]
fn refused_as_a_whole() {
    let (bed, _) = contested();
    let now = bed.snapshot();
    let restored = bed.undo_all();
    assert_eq!(conflicts(&restored), CONTESTED);
    assert_eq!((restored.set, restored.done.len()), (None, 0));
    same(&bed.snapshot(), &now, "nothing was done");
    let first = &restored.conflicts[0];
    assert!(first.now.starts_with("file, 10 B, changed "), "{first:?}");
    assert!(first.before.starts_with("file, 7 B, changed "), "{first:?}");
    let marked: Vec<_> = bed
        .changes(Sets::All, &[])
        .into_iter()
        .filter(|change| change.marks.contains(&cowork_api::files::Mark::Conflict))
        .map(|change| String::from_utf8(change.at.path).unwrap())
        .collect();
    assert_eq!(marked, ["docs/1.txt", "docs/3.txt", "made", "src/main.cc"]);
}

#[test]
fn what_was_overwritten_and_brought_back_is_the_users_still() {
    let (bed, _) = contested();
    let users = bed.snapshot();
    let restored = bed.undo(Sets::All, &["docs/1.txt"], Choice::Theirs);
    assert_eq!(conflicts(&restored), ["docs/1.txt"]);
    assert_ne!(read(&bed, "docs/1.txt").as_deref(), Some("the user's"));
    assert_eq!(bed.redo().conflicts, []);
    assert_eq!(read(&bed, "docs/1.txt").as_deref(), Some("the user's"));
    assert_eq!(conflicts(&bed.undo_all()), CONTESTED);
    assert_eq!(bed.snapshot().keys().collect::<Vec<_>>(), users.keys().collect::<Vec<_>>());
}

#[test]
fn left_to_the_user() {
    let (bed, before) = contested();
    let restored = bed.undo(Sets::All, &[], Choice::Ours);
    assert_eq!(conflicts(&restored), CONTESTED);
    for name in CONTESTED {
        assert_eq!(read(&bed, name).as_deref(), Some("the user's"), "{name}");
    }
    assert_eq!(bed.snapshot().get("docs/2.txt"), before.get("docs/2.txt"));
    assert_eq!(read(&bed, "new/file"), None);
}

#[test]
fn brought_back_all_the_same() {
    let (bed, before) = contested();
    let users = bed.snapshot();
    let restored = bed.undo(Sets::All, &[], Choice::Theirs);
    assert_eq!(conflicts(&restored), CONTESTED);
    let mut now = bed.snapshot();
    // It was moved, never written to: what is in it is the user's.
    assert_eq!(read(&bed, "src/main.c").as_deref(), Some("the user's"));
    let mut expected = before;
    for snapshot in [&mut now, &mut expected] {
        for name in ["src/main.c", "docs", "new", "src", ""] {
            snapshot.remove(name);
        }
    }
    same(&now, &expected, "brought back");
    let restored = bed.redo();
    assert_eq!((restored.conflicts, restored.lost), (vec![], vec![]));
    for name in CONTESTED {
        assert_eq!(read(&bed, name).as_deref(), Some("the user's"), "{name} of {users:?}");
    }
}

#[test]
fn both_are_kept() {
    let (bed, before) = contested();
    let restored = bed.undo(Sets::All, &[], Choice::Both);
    assert_eq!(conflicts(&restored), CONTESTED);
    assert_eq!(restored.lost, []);
    let now = bed.snapshot();
    for name in ["docs/1.txt", "docs/2.txt", "docs/3.txt"] {
        assert_eq!(now.get(name), before.get(name), "{name}");
    }
    for name in ["docs/1.txt.yours-1", "docs/3.txt.yours-1", "made.yours-1", "new/notes"] {
        assert_eq!(read(&bed, name).as_deref(), Some("the user's"), "{name}");
    }
    assert_eq!(read(&bed, "made"), None);
    assert_eq!(read(&bed, "src/main.c").as_deref(), Some("the user's"));
    let names = now.keys().filter(|name| name.contains("cowork-undo")).count();
    assert_eq!(names, 0, "nothing temporary is left");
}

#[test]
fn removed_by_the_user() {
    let bed = Bed::new("vanished");
    furnish(&bed);
    let before = bed.snapshot();
    bed.set(|command| {
        command.write("docs/deep/inner.txt", b"changed").unwrap();
        command.unlink("src/main.c").unwrap();
        command.write("made", b"made").unwrap();
    });
    for folder in ["docs", "src"] {
        std::fs::remove_dir_all(bed.at(folder)).unwrap();
    }
    std::fs::remove_file(bed.at("made")).unwrap();
    assert_eq!(conflicts(&bed.undo_all()), ["docs/deep/inner.txt", "src/main.c"]);
    let restored = bed.undo(Sets::All, &[], Choice::Theirs);
    assert_eq!(restored.lost, []);
    let now = bed.snapshot();
    for name in ["docs/deep/inner.txt", "src/main.c"] {
        let node = |snapshot: &Snapshot| snapshot.get(name).cloned();
        assert_eq!(node(&now), node(&before), "{name}");
    }
}

#[test]
fn changed_between_two_sets() {
    let bed = Bed::new("between");
    furnish(&bed);
    bed.set(|command| command.write("docs/1.txt", b"first").unwrap());
    std::fs::write(bed.at("docs/1.txt"), "the user's").unwrap();
    bed.set(|command| command.append("docs/1.txt", b" and more").unwrap());
    assert_eq!(conflicts(&bed.undo_all()), ["docs/1.txt"]);
    let restored = bed.undo(Sets::Last, &[], Choice::Refuse);
    assert_eq!(restored.conflicts, []);
    assert_eq!(read(&bed, "docs/1.txt").as_deref(), Some("the user's"));
}

#[test]
fn changed_by_a_later_set() {
    let bed = Bed::new("later");
    furnish(&bed);
    bed.set(|command| {
        command.write("docs/1.txt", b"first").unwrap();
        command.mkdir("new").unwrap();
        command.write("docs/2.txt", b"first").unwrap();
    });
    bed.set(|command| {
        command.append("docs/1.txt", b" second").unwrap();
        command.write("new/file", b"second").unwrap();
    });
    let restored = bed.undo(Sets::Numbers(vec![1]), &[], Choice::Refuse);
    assert_eq!(conflicts(&restored), ["docs/1.txt", "new/file"]);
    let restored = bed.undo(Sets::Numbers(vec![1]), &[], Choice::Ours);
    assert_eq!(conflicts(&restored), ["docs/1.txt", "new/file"]);
    assert_eq!(read(&bed, "docs/1.txt").as_deref(), Some("first second"));
    assert_eq!(read(&bed, "docs/2.txt").as_deref(), Some("text 2\n"));
    assert_eq!(read(&bed, "new/file").as_deref(), Some("second"));
}

/// A command put another file in the place of one, as editors do, and the user wrote to that.
#[test]
fn what_was_replaced_is_one_name() {
    let replaced = || {
        let bed = Bed::new("replaced");
        furnish(&bed);
        let before = bed.snapshot();
        bed.set(|command| {
            command.write("docs/new", b"the command's").unwrap();
            command.rename("docs/new", "docs/1.txt").unwrap();
        });
        (bed, before)
    };
    let told = |restored: &Restored| -> Vec<(String, String)> {
        let done = restored.done.iter().cloned();
        done.map(|(at, what)| (String::from_utf8(at.path).unwrap(), what)).collect()
    };
    let back = [("docs/1.txt".to_owned(), "brought back".to_owned())];
    let (bed, before) = replaced();
    assert_eq!(told(&bed.rehearse(Sets::All)), back);
    assert_eq!(told(&bed.undo_all()), back);
    same(&bed.snapshot(), &before, "undone");
    let contested = || {
        let (bed, before) = replaced();
        std::fs::write(bed.at("docs/1.txt"), "the user's").unwrap();
        (bed, before)
    };
    let (bed, _) = contested();
    let refused = bed.undo_all();
    assert_eq!(conflicts(&refused), ["docs/1.txt"]);
    let conflict = &refused.conflicts[0];
    assert!(conflict.now.starts_with("file, 10 B, changed "), "{conflict:?}");
    assert!(conflict.before.starts_with("file, 7 B, changed "), "{conflict:?}");
    let restored = bed.undo(Sets::All, &[], Choice::Ours);
    assert_eq!((told(&restored), restored.lost), (vec![], vec![]));
    assert_eq!(read(&bed, "docs/1.txt").as_deref(), Some("the user's"));
    let (bed, before) = contested();
    let restored = bed.undo(Sets::All, &[], Choice::Theirs);
    assert_eq!((told(&restored), restored.lost), (back.to_vec(), vec![]));
    same(&bed.snapshot(), &before, "brought back all the same");
    let (bed, before) = contested();
    let restored = bed.undo(Sets::All, &[], Choice::Both);
    assert_eq!(restored.lost, []);
    assert_eq!(bed.snapshot().get("docs/1.txt"), before.get("docs/1.txt"));
    assert_eq!(read(&bed, "docs/1.txt.yours-1").as_deref(), Some("the user's"));
}
