//! What tools do to a folder, undone and redone.

use crate::bed::{Bed, Command, Trash, same, same_but_links};
use cowork_api::files::{Caps, Choice, Sets};
use std::os::unix::fs::PermissionsExt;

/// Fills a folder with one of everything.
pub(crate) fn furnish(bed: &Bed) {
    let path = bed.path();
    for folder in ["docs/deep", "src", "empty"] {
        std::fs::create_dir_all(path.join(folder)).unwrap();
    }
    for number in 0..5 {
        let name = format!("docs/{number}.txt");
        std::fs::write(path.join(name), format!("text {number}\n")).unwrap();
    }
    std::fs::write(path.join("docs/deep/inner.txt"), "inner\n").unwrap();
    std::fs::write(path.join("src/main.c"), "int main(void) { return 0; }\n").unwrap();
    std::fs::write(path.join("large.bin"), vec![7_u8; 300_000]).unwrap();
    std::fs::write(path.join("one"), "two names\n").unwrap();
    std::fs::hard_link(path.join("one"), path.join("src/other")).unwrap();
    std::os::unix::fs::symlink("docs/1.txt", path.join("link")).unwrap();
    std::fs::set_permissions(path.join("src/main.c"), PermissionsExt::from_mode(0o640)).unwrap();
    let pipe = path.join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let empty = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path.join("docs/2.txt"), "user.note", b"kept", empty).unwrap();
    rustix::fs::setxattr(path.join("docs"), "user.folder", b"kept", empty).unwrap();
    std::os::unix::fs::chown(path.join("docs/3.txt"), Some(1234), Some(4321)).unwrap();
    std::os::unix::fs::chown(path.join("src"), Some(1234), Some(4321)).unwrap();
}

/// Does something, undoes it, redoes it and undoes it again.
#[track_caller]
fn check(name: &str, act: impl Fn(&mut Command)) {
    for trash in [Trash::Beside, Trash::None] {
        let bed = Bed::with(name, trash, Caps::default());
        furnish(&bed);
        let before = bed.snapshot();
        bed.set(&act);
        let after = bed.snapshot();
        assert_ne!(before, after, "nothing happened");
        let what = format!("{name} with {trash:?}");
        let restored = bed.undo_all();
        assert_eq!(restored.lost, [], "{what}");
        assert_eq!(restored.conflicts, [], "{what}");
        same(&bed.snapshot(), &before, &format!("{what}: undone"));
        let restored = bed.redo();
        assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{what}");
        same_but_links(&bed.snapshot(), &after, &format!("{what}: redone"));
        let restored = bed.undo_all();
        assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{what}");
        same(&bed.snapshot(), &before, &format!("{what}: undone again"));
        assert_eq!(bed.journal().selected(&Sets::All), Vec::<u32>::new());
        let nothing = bed.undo(Sets::Numbers(vec![1]), &[], Choice::Refuse);
        assert_eq!(nothing.set, None, "{what}: it is undone");
    }
}

#[test]
fn contents() {
    check("write", |command| command.write("docs/1.txt", b"other\n").unwrap());
    check("append", |command| command.append("docs/1.txt", b"more\n").unwrap());
    check("truncate", |command| command.truncate("large.bin", 100).unwrap());
    check("hard-link", |command| command.write("one", b"changed for both\n").unwrap());
    check("save", |command| {
        command.write("docs/.1.swp", b"saved\n").unwrap();
        command.rename("docs/.1.swp", "docs/1.txt").unwrap();
    });
}

#[test]
fn new_names() {
    check("new", |command| {
        command.mkdir("new").unwrap();
        command.mkdir("new/deep").unwrap();
        command.write("new/deep/file", b"contents").unwrap();
        command.symlink("new/link", "deep/file").unwrap();
        command.link("new/deep/file", "new/again").unwrap();
        command.mkfifo("new/pipe").unwrap();
        command.link("docs/1.txt", "another").unwrap();
        command.append("another", b"by its other name").unwrap();
    });
}

#[test]
fn removals() {
    check("remove", |command| {
        for number in 0..5 {
            command.unlink(&format!("docs/{number}.txt")).unwrap();
        }
        command.unlink("docs/deep/inner.txt").unwrap();
        command.rmdir("docs/deep").unwrap();
        command.rmdir("docs").unwrap();
        for name in ["one", "link", "pipe", "large.bin"] {
            command.unlink(name).unwrap();
        }
    });
    check("both-names", |command| {
        command.unlink("one").unwrap();
        command.unlink("src/other").unwrap();
    });
    check("written-and-removed", |command| {
        command.append("one", b"more").unwrap();
        command.unlink("src/other").unwrap();
        command.append("docs/1.txt", b"more").unwrap();
        command.unlink("docs/1.txt").unwrap();
        command.write("docs/1.txt", b"anew").unwrap();
    });
    check("folder-again", |command| {
        command.rmdir("empty").unwrap();
        command.mkdir("empty").unwrap();
        command.write("empty/file", b"new").unwrap();
        command.chmod("empty", 0o700).unwrap();
    });
}

#[test]
fn names_of_one_file() {
    check("removed-by-both-names", |command| {
        command.write("one", b"through\n").unwrap();
        command.unlink("one").unwrap();
        command.write("one", b"another file\n").unwrap();
        command.link("src/other", "third").unwrap();
        command.write("third", b"all\n").unwrap();
        command.unlink("src/other").unwrap();
    });
    check("links-come-and-go", |command| {
        command.link("one", "third").unwrap();
        command.link("link", "link2").unwrap();
        command.unlink("third").unwrap();
        command.link("docs/1.txt", "fourth").unwrap();
        command.unlink("docs/1.txt").unwrap();
        command.unlink("fourth").unwrap();
        command.unlink("link").unwrap();
        command.rename("link2", "link").unwrap();
        command.utimes("link", 1_000_000).unwrap();
    });
}

/// Names of one file are names of one file at every step, although on the way each was removed and
/// made again.
#[test]
fn names_of_one_file_set_by_set() {
    for trash in [Trash::Beside, Trash::None] {
        let bed = Bed::with("one-file", trash, Caps::default());
        furnish(&bed);
        let mut states = vec![bed.snapshot()];
        let steps: [&dyn Fn(&mut Command); 4] = [
            &|command| {
                command.write("new", b"new").unwrap();
                command.symlink("new-link", "new").unwrap();
                command.append("one", b"more").unwrap();
            },
            &|command| {
                command.link("new", "docs/again").unwrap();
                command.link("new-link", "src/again").unwrap();
            },
            &|command| command.unlink("one").unwrap(),
            &|command| {
                command.append("src/other", b"longer").unwrap();
                command.utimes("new", 1_000_000).unwrap();
            },
        ];
        for step in steps {
            bed.set(step);
            states.push(bed.snapshot());
        }
        for state in states.iter().rev().skip(1) {
            let restored = bed.undo(Sets::Last, &[], Choice::Refuse);
            assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{trash:?}");
            same_but_links(&bed.snapshot(), state, &format!("undone with {trash:?}"));
        }
        for state in &states[1..] {
            let restored = bed.redo();
            assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{trash:?}");
            same_but_links(&bed.snapshot(), state, &format!("redone with {trash:?}"));
        }
        bed.undo_all();
        same(&bed.snapshot(), &states[0], &format!("all at once with {trash:?}"));
    }
}

/// A name under which the user has put another file is not taken for the one that it was.
#[test]
fn a_name_of_another_file_is_not_linked() {
    let bed = Bed::with("another-file", Trash::None, Caps::default());
    furnish(&bed);
    bed.set(|command| command.append("one", b"more").unwrap());
    bed.undo_all();
    std::fs::write(bed.at("saved"), "the user's\n").unwrap();
    std::fs::rename(bed.at("saved"), bed.at("one")).unwrap();
    std::fs::hard_link(bed.at("src/other"), bed.at("src/third")).unwrap();
    bed.set(|command| command.append("one", b"more").unwrap());
    let before = bed.snapshot();
    let set = bed.set(|command| command.unlink("src/other").unwrap());
    let restored = bed.undo(Sets::Numbers(vec![set]), &[], Choice::Refuse);
    assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]));
    same(&bed.snapshot(), &before, "undone");
}

#[test]
fn renames() {
    check("swap", |command| {
        command.rename("docs/1.txt", "docs/t").unwrap();
        command.rename("docs/2.txt", "docs/1.txt").unwrap();
        command.rename("docs/t", "docs/2.txt").unwrap();
    });
    check("exchange", |command| command.exchange("docs", "src").unwrap());
    check("chain", |command| {
        command.unlink("docs/4.txt").unwrap();
        for number in (0..4).rev() {
            let (from, to) = (format!("docs/{number}.txt"), format!("docs/{}.txt", number + 1));
            command.rename(&from, &to).unwrap();
        }
    });
    check("inside-out", |command| {
        command.rename("docs/deep", "deep").unwrap();
        command.rename("docs", "deep/docs").unwrap();
        command.append("deep/docs/1.txt", b"changed").unwrap();
    });
    check("into-new", |command| {
        command.mkdir("new").unwrap();
        command.rename("docs", "new/docs").unwrap();
        command.unlink("new/docs/1.txt").unwrap();
        command.rename("new/docs/deep", "empty/deep").unwrap();
        command.rename("src", "docs").unwrap();
    });
    check("over-empty-folder", |command| command.rename("docs", "empty").unwrap());
}

#[test]
fn attributes() {
    check("attributes", |command| {
        command.chmod("docs/1.txt", 0o4711).unwrap();
        command.chown("docs/3.txt", 0, 77).unwrap();
        command.chown("link", 5, 5).unwrap();
        command.utimes("docs/0.txt", 1_000_000).unwrap();
        command.utimes("docs", 1_000_000).unwrap();
        command.utimes("link", 1_000_000).unwrap();
        command.attribute("docs/1.txt", "user.new", b"value").unwrap();
        command.attribute("docs/2.txt", "user.note", b"changed").unwrap();
        command.remove_attribute("docs", "user.folder").unwrap();
        command.chmod("src", 0o500).unwrap();
        command.chmod("one", 0o600).unwrap();
    });
}

#[test]
fn a_mixture() {
    check("mixture", |command| {
        command.rename("docs", "papers").unwrap();
        command.mkdir("docs").unwrap();
        command.write("docs/1.txt", b"another one").unwrap();
        command.append("papers/1.txt", b"longer").unwrap();
        command.unlink("link").unwrap();
        command.mkdir("link").unwrap();
        command.write("link/file", b"in a folder that was a link").unwrap();
        command.unlink("one").unwrap();
        command.symlink("one", "src/other").unwrap();
        command.rename("large.bin", "src/main.c").unwrap();
        command.append("src/main.c", b"and more").unwrap();
        command.chmod("papers", 0o750).unwrap();
    });
}

#[test]
fn set_by_set() {
    let bed = Bed::new("sets");
    furnish(&bed);
    let mut states = vec![bed.snapshot()];
    let steps: [&dyn Fn(&mut Command); 4] = [
        &|command| command.write("docs/1.txt", b"first").unwrap(),
        &|command| command.rename("docs", "papers").unwrap(),
        &|command| command.append("papers/1.txt", b" second").unwrap(),
        &|command| {
            command.unlink("papers/1.txt").unwrap();
            command.unlink("one").unwrap();
        },
    ];
    for step in steps {
        bed.set(step);
        states.push(bed.snapshot());
    }
    let last = states.pop().unwrap();
    for state in states.iter().rev() {
        bed.undo(Sets::Last, &[], Choice::Refuse);
        same_but_links(&bed.snapshot(), state, "undone");
    }
    for _ in &states {
        assert!(bed.redo().set.is_some());
    }
    same_but_links(&bed.snapshot(), &last, "redone");
    bed.undo_all();
    same(&bed.snapshot(), &states[0], "all at once");
}

#[test]
fn an_older_set_of_other_names() {
    let bed = Bed::new("older");
    furnish(&bed);
    let before = bed.snapshot();
    bed.set(|command| {
        command.write("docs/1.txt", b"first").unwrap();
        command.rename("src/main.c", "src/main.cc").unwrap();
    });
    bed.set(|command| {
        command.write("docs/deep/inner.txt", b"second").unwrap();
        command.mkdir("new").unwrap();
    });
    let restored = bed.undo(Sets::Numbers(vec![1]), &[], Choice::Refuse);
    assert_eq!(restored.conflicts, []);
    let now = bed.snapshot();
    for name in ["docs/1.txt", "src/main.c"] {
        assert_eq!(now.get(name), before.get(name));
    }
    assert_eq!(std::fs::read(bed.at("docs/deep/inner.txt")).unwrap(), b"second");
    assert!(now.contains_key("new"));
    bed.undo_all();
    assert!(!bed.snapshot().contains_key("new"));
    assert_eq!(bed.snapshot().get("docs/deep/inner.txt"), before.get("docs/deep/inner.txt"));
}

#[test]
fn some_names_only() {
    let bed = Bed::new("partial");
    furnish(&bed);
    let before = bed.snapshot();
    bed.set(|command| {
        command.rename("docs", "papers").unwrap();
        command.append("papers/1.txt", b"longer").unwrap();
        command.append("papers/2.txt", b"longer").unwrap();
        command.unlink("src/main.c").unwrap();
        command.unlink("src/other").unwrap();
        command.rmdir("src").unwrap();
    });
    let after = bed.snapshot();
    let restored = bed.undo(Sets::All, &["papers/1.txt", "src/main.c"], Choice::Refuse);
    assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]));
    let now = bed.snapshot();
    assert_eq!(now.get("docs/1.txt"), before.get("docs/1.txt"));
    assert_eq!(now.get("src/main.c"), before.get("src/main.c"));
    assert_eq!(now.get("src/other"), None);
    assert_eq!(now.get("papers/2.txt"), after.get("papers/2.txt"));
    assert_eq!(now.get("papers/1.txt"), None);
    bed.undo(Sets::All, &["docs/0.txt"], Choice::Refuse);
    assert_eq!(bed.snapshot().get("docs/0.txt"), before.get("docs/0.txt"));
    let restored = bed.undo_all();
    assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]));
    same(&bed.snapshot(), &before, "the rest");
    bed.redo();
    bed.redo();
    bed.redo();
    same_but_links(&bed.snapshot(), &after, "redone");
}

#[test]
fn what_was_not_kept_is_said() {
    let caps = Caps { file: 1000, ..Caps::default() };
    let bed = Bed::with("lost", Trash::None, caps);
    furnish(&bed);
    bed.set(|command| {
        command.append("large.bin", b"more").unwrap();
        command.append("docs/1.txt", b"more").unwrap();
    });
    let restored = bed.undo_all();
    let lost: Vec<_> = restored.lost.iter().map(|(place, _)| place.path.as_slice()).collect();
    assert_eq!(lost, [b"large.bin"]);
    assert_eq!(std::fs::read(bed.at("docs/1.txt")).unwrap(), b"text 1\n");
    assert_eq!(std::fs::metadata(bed.at("large.bin")).unwrap().len(), 300_004);
}

#[test]
fn new_names_of_a_file_of_several_come_again_with_its_contents() {
    for written in ["one", "two", "three", "four"] {
        for trash in [Trash::Beside, Trash::None] {
            let what = format!("written as `{written}`, with {trash:?}");
            let bed = Bed::with("names", trash, Caps::default());
            std::fs::write(bed.at("one"), "before").unwrap();
            std::fs::hard_link(bed.at("one"), bed.at("two")).unwrap();
            let before = bed.snapshot();
            bed.set(|command| {
                command.link("one", "three").unwrap();
                command.link("two", "four").unwrap();
                command.write(written, b"longer than before").unwrap();
            });
            let after = bed.snapshot();
            for _ in 0..2 {
                let undone = bed.undo_all();
                assert_eq!((undone.lost, undone.conflicts), (vec![], vec![]), "{what}");
                same(&bed.snapshot(), &before, &format!("{what}: undone"));
                let redone = bed.redo();
                assert_eq!((redone.lost, redone.conflicts), (vec![], vec![]), "{what}");
                same_but_links(&bed.snapshot(), &after, &format!("{what}: redone"));
            }
        }
    }
}

#[test]
fn names_that_go_alone_leave_the_contents_of_those_that_stay() {
    let bed = Bed::new("names");
    std::fs::write(bed.at("one"), "before").unwrap();
    std::fs::hard_link(bed.at("one"), bed.at("two")).unwrap();
    bed.set(|command| {
        command.link("one", "three").unwrap();
        command.link("two", "four").unwrap();
        command.write("one", b"longer than before").unwrap();
    });
    let undone = bed.undo(Sets::All, &["three", "four"], Choice::Refuse);
    assert_eq!((undone.lost, undone.conflicts), (vec![], vec![]));
    let names: Vec<String> = bed.snapshot().into_keys().collect();
    assert_eq!(names, ["", "one", "two"]);
    assert_eq!(std::fs::read(bed.at("one")).unwrap(), b"longer than before");
}

#[test]
fn a_folder_that_is_locked_stays_so_when_a_name_in_it_comes_back_alone() {
    for trash in [Trash::Beside, Trash::None] {
        let bed = Bed::with("locked", trash, Caps::default());
        std::fs::create_dir(bed.at("folder")).unwrap();
        std::fs::write(bed.at("folder/file"), "contents").unwrap();
        let before = bed.snapshot();
        bed.set(|command| {
            command.unlink("folder/file").unwrap();
            command.chmod("folder", 0o500).unwrap();
            command.chown("folder", 1234, 1234).unwrap();
        });
        let undone = bed.undo(Sets::All, &["folder/file"], Choice::Refuse);
        assert_eq!((undone.lost, undone.conflicts), (vec![], vec![]), "{trash:?}");
        let now = bed.snapshot();
        assert_eq!(now["folder/file"].contents, b"contents", "{trash:?}");
        let folder = &now["folder"];
        assert_eq!((folder.mode & 0o7777, folder.owner), (0o500, (1234, 1234)), "{trash:?}");
        bed.undo_all();
        same(&bed.snapshot(), &before, &format!("{trash:?}: all"));
    }
}

#[test]
fn a_file_that_gets_the_number_of_another_is_not_taken_for_it() {
    for trash in [Trash::Beside, Trash::None] {
        let bed = Bed::with("number", trash, Caps::default());
        std::fs::write(bed.at("old"), "what was there before").unwrap();
        let before = bed.snapshot();
        bed.set(|command| {
            command.write("old", b"written").unwrap();
            command.unlink("old").unwrap();
            command.write("one", b"new").unwrap();
            command.link("one", "two").unwrap();
        });
        bed.set(|command| {
            command.unlink("one").unwrap();
            command.append("two", b" and longer").unwrap();
        });
        // What is brought back gets the number that is free now, if the file system is like that.
        for name in ["two", "old"] {
            let undone = bed.undo(Sets::All, &[name], Choice::Refuse);
            assert_eq!((undone.lost, undone.conflicts), (vec![], vec![]), "{name}, {trash:?}");
        }
        let undone = bed.undo_all();
        assert_eq!((undone.lost, undone.conflicts), (vec![], vec![]), "{trash:?}");
        same(&bed.snapshot(), &before, &format!("{trash:?}"));
    }
}

#[test]
fn a_file_that_was_changed_by_one_name_comes_back_by_another() {
    let bed = Bed::new("names");
    std::fs::write(bed.at("one"), "before").unwrap();
    std::fs::hard_link(bed.at("one"), bed.at("two")).unwrap();
    std::fs::write(bed.at("other"), "other").unwrap();
    let before = bed.snapshot();
    bed.set(|command| {
        command.write("one", b"after").unwrap();
        command.utimes("one", 1_000).unwrap();
        command.write("other", b"changed").unwrap();
    });
    let undone = bed.undo(Sets::All, &["two"], Choice::Refuse);
    assert_eq!((undone.lost, undone.conflicts), (vec![], vec![]));
    let now = bed.snapshot();
    for name in ["one", "two"] {
        assert_eq!(now[name], before[name], "{name}");
    }
    assert_eq!(now["other"].contents, b"changed");
    bed.undo_all();
    same(&bed.snapshot(), &before, "all");
}
