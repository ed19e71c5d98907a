//! What is said about changes.

use crate::bed::{Bed, Trash};
use crate::scenarios::furnish;
use cowork_api::files::{Caps, ChangeKind, Mark, Sets};
use std::fmt::Write;

/// All changes, one a line.
#[must_use]
fn list(bed: &Bed) -> String {
    let mut text = String::new();
    for change in bed.changes(Sets::All, &[]) {
        let kind = match change.kind {
            ChangeKind::Added => "added".to_owned(),
            ChangeKind::Modified => "modified".to_owned(),
            ChangeKind::Deleted => "deleted".to_owned(),
            ChangeKind::Renamed { from, modified } => {
                let from = String::from_utf8(from).unwrap();
                format!("renamed from {from}{}", if modified { " and modified" } else { "" })
            }
            ChangeKind::Attributes => "attributes".to_owned(),
        };
        let path = String::from_utf8(change.at.path).unwrap();
        write!(text, "{path}: {kind} {:?} {:?}", change.before, change.after).unwrap();
        for mark in change.marks {
            match mark {
                Mark::NotUndoable(why) => write!(text, " (lost: {why})").unwrap(),
                Mark::RunsHere(why) => write!(text, " (runs: {why})").unwrap(),
                Mark::Protected(why) => write!(text, " (protected: {why})").unwrap(),
                Mark::Conflict => text.push_str(" (conflict)"),
                Mark::RefusedType(why) => write!(text, " (refused: {why})").unwrap(),
            }
        }
        writeln!(text, " in {:?}", change.sets).unwrap();
    }
    text
}

#[test]
fn one_difference_between_before_and_now() {
    let bed = Bed::new("changes");
    furnish(&bed);
    bed.set(|command| {
        command.write("docs/1.txt", b"text 1\nand more\n").unwrap();
        command.append("docs/2.txt", b"").unwrap();
        command.write("docs/.3.swp", b"another text").unwrap();
        command.rename("docs/.3.swp", "docs/3.txt").unwrap();
        command.write("gone", b"made and removed").unwrap();
        command.unlink("gone").unwrap();
        command.unlink("large.bin").unwrap();
        command.mkdir("new").unwrap();
        command.write("new/script", b"#!/bin/sh\n").unwrap();
        command.write("new/program", b"\x7fELF").unwrap();
        command.chmod("new/program", 0o755).unwrap();
    });
    bed.set(|command| {
        command.rename("docs", "papers").unwrap();
        command.append("papers/1.txt", b"and more\n").unwrap();
        command.rename("papers/0.txt", "zero").unwrap();
        command.chmod("src/main.c", 0o600).unwrap();
        command.write("papers/4.txt", b"text 4\n").unwrap();
        command.utimes("papers/4.txt", 1_000).unwrap();
    });
    assert_eq!(
        list(&bed),
        "large.bin: deleted Some(300000) None in [1]\n\
         new: added None None in [1]\n\
         new/program: added None Some(4) (runs: it is executable) in [1]\n\
         new/script: added None Some(10) (runs: it is a script) in [1]\n\
         papers: renamed from docs None None in [2]\n\
         papers/1.txt: modified Some(7) Some(25) in [1, 2]\n\
         papers/3.txt: modified Some(7) Some(12) in [1]\n\
         papers/4.txt: attributes Some(7) Some(7) in [2]\n\
         src/main.c: attributes Some(29) Some(29) in [2]\n\
         zero: renamed from docs/0.txt Some(7) Some(7) in [2]\n"
    );
    let some: Vec<_> = bed
        .changes(Sets::Numbers(vec![2]), &["papers"])
        .into_iter()
        .map(|change| String::from_utf8(change.at.path).unwrap())
        .collect();
    assert_eq!(some, ["papers", "papers/1.txt", "papers/4.txt"]);
    bed.undo_all();
    assert_eq!(list(&bed), "");
}

#[test]
fn what_cannot_be_undone_is_marked() {
    let bed = Bed::with("marks", Trash::None, Caps { file: 1000, ..Caps::default() });
    furnish(&bed);
    bed.set(|command| {
        command.append("large.bin", b"more").unwrap();
        command.mkdir(".git").unwrap();
        command.mkdir(".git/hooks").unwrap();
        command.write(".git/hooks/pre-commit", b"echo").unwrap();
    });
    assert_eq!(
        list(&bed),
        ".git: added None None in [1]\n\
         .git/hooks: added None None in [1]\n\
         .git/hooks/pre-commit: added None Some(4) (runs: git runs it) in [1]\n\
         large.bin: modified Some(300000) Some(300004) (lost: it was too large to be kept) in [1]\n"
    );
}

#[test]
fn contents_are_shown() {
    let bed = Bed::new("diff");
    furnish(&bed);
    std::fs::write(bed.at("binary"), b"a\0b").unwrap();
    bed.set(|command| {
        command.write("docs/1.txt", b"text one\n").unwrap();
        command.write("new", b"line\n").unwrap();
        command.unlink("docs/2.txt").unwrap();
        command.append("binary", &vec![0; 2045]).unwrap();
        command.unlink("link").unwrap();
        command.symlink("link", "docs/0.txt").unwrap();
        command.rename("docs/4.txt", "four").unwrap();
        command.append("four", b"more\n").unwrap();
        command.write("large.bin", &vec![b'x'; 2 << 20]).unwrap();
    });
    let mut shown = String::new();
    for difference in bed.differences(1 << 20) {
        let path = String::from_utf8(difference.change.at.path).unwrap();
        writeln!(shown, "== {path}").unwrap();
        shown.push_str(&difference.text.unwrap_or_default());
        writeln!(shown, "{}", difference.note.unwrap_or_default()).unwrap();
    }
    assert_eq!(
        shown,
        "== binary\nbinary, 3 B → 2 KiB\n\
         == docs/1.txt\n--- a/docs/1.txt\n+++ b/docs/1.txt\n@@ -1 +1 @@\n-text 1\n+text one\n\n\
         == docs/2.txt\n--- a/docs/2.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-text 2\n\n\
         == four\n--- a/docs/4.txt\n+++ b/four\n@@ -1 +1,2 @@\n text 4\n+more\n\n\
         == large.bin\nlarge, 292 KiB → 2 MiB\n\
         == link\ndocs/1.txt → docs/0.txt\n\
         == new\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+line\n\n"
    );
    let short = bed.differences(60);
    let noted = short.iter().filter(|difference| {
        difference.note.as_deref() == Some("too long to be shown here; ask for it alone")
    });
    assert_eq!(noted.count(), 3);
}
