//! `cp` and `path`: files into a session and out of it, and what they are called on both sides.

use super::{Desk, id, is_there};
use crate::support::{finish, for_everyone, listing};
use cowork_testbed::{Folder, Person};
use std::collections::BTreeSet;

for_everyone!(
    files_go_in_and_come_out,
    folders_go_in_and_come_out,
    what_cannot_be_copied_leaves_nothing,
    paths_are_translated_both_ways,
);

fn files_go_in_and_come_out(person: Person) {
    let desk = Desk::new(person);
    let id = &id("copied", person);
    desk.make(id, &[]);
    let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let data = desk.work.write("data.bin", &bytes);
    assert_eq!(desk.good(&["cp", "data.bin", &format!("{id}:")]), "");
    let there = desk.say(&["exec", id, "--", "cat", "mnt/uploads/data.bin"]);
    assert!(there.code == 0 && there.out == bytes, "it is in the uploads, whole");
    assert_eq!(desk.good(&["cp", "data.bin", &format!("{id}:outputs/other")]), "");
    assert_eq!(desk.good(&["cp", &format!("{id}:outputs/other"), "back"]), "");
    let back = std::fs::read(desk.work.path().join("back")).expect("it came out");
    assert!(back == bytes, "it is the same");
    assert_eq!(crate::support::owner(&desk.work.path().join("back")).0, person.uid());
    let out = desk.say(&["cp", &format!("{id}:mnt/outputs/other"), "-"]);
    assert!(out.code == 0 && out.out == bytes, "to standard output");
    let input = desk.command(&["cp", "-", &format!("{id}:work/typed")]);
    finish(input, b"typed\n".to_vec()).good();
    assert_eq!(desk.work.read("typed").as_deref(), Some("typed\n"), "into a granted folder");
    let whole = format!("{id}:/sessions/{id}/mnt/work/typed");
    assert_eq!(desk.good(&["cp", &whole, "-"]), "typed\n");
    let told = desk.json(&["cp", "--json", "typed", &format!("{id}:uploads/renamed")]);
    assert_eq!(told[0]["bytes"], 6, "{told}");
    assert_eq!(desk.sh(id, "cat mnt/uploads/renamed").good(), "typed\n");
    assert!(is_there(&data));
}

fn folders_go_in_and_come_out(person: Person) {
    let desk = Desk::new(person);
    let id = &id("copytree", person);
    desk.make(id, &[]);
    desk.work.write("tree/one", "1");
    desk.work.write("tree/deep/two", "2");
    std::fs::create_dir_all(desk.work.path().join("tree/empty/er")).expect("the folder is ours");
    std::os::unix::fs::symlink("/etc/passwd", desk.work.path().join("tree/link"))
        .expect("the folder is ours");
    let plain = "cowork: `tree` is a folder\n  hint: copy folders with `-r`\n";
    desk.refused(&["cp", "tree", &format!("{id}:")], 1, plain);
    let sent = desk.say(&["cp", "-r", "tree", &format!("{id}:outputs")]);
    assert_eq!(sent.done(), "");
    assert_eq!(sent.err, "cowork: the link `tree/link` was left out\n");
    desk.sh(id, "ln -s /etc/hostname mnt/outputs/tree/own; mkfifo mnt/outputs/tree/pipe").good();
    let to = Folder::new(person, "to");
    let fetched = desk.say(&["cp", "-r", &format!("{id}:outputs"), &show(&to)]);
    fetched.done();
    assert_eq!(fetched.err.lines().count(), 2, "{}", fetched.err);
    let expected = [
        "outputs",
        "outputs/tree",
        "outputs/tree/deep",
        "outputs/tree/deep/two",
        "outputs/tree/empty",
        "outputs/tree/empty/er",
        "outputs/tree/one",
    ];
    assert_eq!(listing(to.path()), expected.map(str::to_owned).into());
    assert_eq!(to.read("outputs/tree/deep/two").as_deref(), Some("2"));
}

fn show(folder: &Folder) -> String {
    folder.path().to_str().expect("test folders are text").to_owned()
}

fn what_cannot_be_copied_leaves_nothing(person: Person) {
    let desk = Desk::new(person);
    let id = &id("uncopied", person);
    desk.make(id, &[]);
    desk.sh(id, "ln -s /etc/hostname mnt/outputs/link; ln -s / mnt/outputs/root").good();
    desk.refused(
        &["cp", "here", "there"],
        1,
        "cowork: no side is in a session\n  hint: write `SESSION:PATH` for one of them\n",
    );
    let missing =
        format!("cowork: cannot copy `{id}:outputs/none`\n  because: there is no such file\n");
    desk.refused(&["cp", &format!("{id}:outputs/none"), "copy"], 1, &missing);
    for path in [
        "../session.json",
        "outputs/../../session.json",
        "outputs/link",
        "outputs/root/etc/hostname",
    ] {
        let refused = desk.say(&["cp", &format!("{id}:{path}"), "copy"]);
        assert_eq!((refused.code, refused.text()), (1, ""), "{path}: {}", refused.err);
        assert!(refused.err.starts_with("cowork: cannot copy `"), "{}", refused.err);
    }
    desk.work.write("file", "x");
    let refused = desk.say(&["cp", "file", &format!("{id}:outputs/root/tmp/escaped-{id}")]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(!is_there(format!("/tmp/escaped-{id}")));
    let both = "cowork: both sides are in a session\n  hint: copy to this host first\n";
    desk.refused(&["cp", &format!("{id}:outputs/a"), &format!("{id}:outputs/b")], 1, both);
    assert_eq!(listing(desk.work.path()), BTreeSet::from(["file".to_owned()]));
}

fn paths_are_translated_both_ways(person: Person) {
    let desk = Desk::new(person);
    let id = &id("pathway", person);
    desk.make(id, &[]);
    desk.work.write("a/file", "x");
    let host = format!("{}/a/file", desk.path());
    let session = format!("/sessions/{id}/mnt/work/a/file");
    assert_eq!(desk.good(&["path", id, "a/file"]), format!("{session}\n"));
    assert_eq!(desk.good(&["path", id, &host]), format!("{session}\n"));
    assert_eq!(desk.good(&["path", id, &session]), format!("{host}\n"));
    assert_eq!(desk.sh(id, &format!("cat {session}")).good(), "x", "it is that file");
    let inside = format!("/sessions/{id}/mnt/outputs/y");
    desk.sh(id, &format!("echo y > {inside}")).good();
    let outside = desk.good(&["path", id, &inside]);
    assert_eq!(std::fs::read_to_string(outside.trim_end()).ok().as_deref(), Some("y\n"));
    assert_eq!(desk.good(&["path", id, outside.trim_end()]), format!("{inside}\n"));
    desk.refused(
        &["path", id, "/etc/passwd"],
        1,
        "cowork: the session does not see `/etc/passwd`\n  hint: grant the folder it is in\n",
    );
    desk.refused(
        &["path", "--inside", id, "/tmp/x"],
        1,
        "cowork: `/tmp/x` is not on the host\n  hint: only granted folders, outputs, uploads, \
         skills and the home are\n",
    );
}
