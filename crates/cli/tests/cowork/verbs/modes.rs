//! Ways to grant a folder: what is recorded in each, what the border between two does, and how one is
//! switched for another while the session runs.

use super::{Desk, id, text};
use crate::support::{for_everyone, need, until};
use cowork_testbed::Person;
use serde_json::Value;

for_everyone!(
    a_direct_folder_in_a_recorded_one_is_native,
    a_folder_is_switched_to_staged_and_back,
    one_older_set_is_undone,
    what_is_too_large_to_be_kept_is_asked_about_first,
);

/// Tells what calls across the border of a direct folder say.
const BORDER: &str = "
import errno, os, sys
os.chdir('mnt/work')
def says(call, *arguments):
    try:
        call(*arguments)
        return 'ok'
    except OSError as error:
        return errno.errorcode[error.errno]
print('in', says(os.rename, 'src/a', 'deps/a'), says(os.link, 'src/a', 'deps/a'))
print('out', says(os.rename, 'deps/old', 'src/old'), says(os.link, 'deps/old', 'src/old'))
print('itself', says(os.rename, 'deps', 'other'), says(os.rmdir, 'deps'))
print('above', says(os.rename, 'up', 'down'))
print('inside', says(os.rename, 'deps/old', 'deps/older'), says(os.rename, 'deps/older', 'deps/old'))
";

fn a_direct_folder_in_a_recorded_one_is_native(person: Person) {
    need("python3", "python3");
    let desk = Desk::new(person);
    let id = &id("direct", person);
    desk.work.write("deps/old", "old\n");
    desk.work.write("up/deps/old", "old\n");
    desk.work.write("src/a", "a\n");
    desk.make(id, &["--guard", "off", "--direct", "deps", "--direct", "up/deps"]);
    // That cannot be changed later, and nothing is dropped in silence.
    let again = format!("{}:rw=work", desk.path());
    let same = desk.say(&["grant", id, &again, "--direct", "deps"]);
    assert_eq!(same.code, 0, "{}", same.err);
    let refused = desk.say(&["grant", id, &again, "--direct", "deps", "--direct", "src"]);
    assert_eq!((refused.code, refused.text()), (1, ""), "{}", refused.err);
    assert!(refused.err.contains("is granted already, without `--direct src`"), "{}", refused.err);
    assert!(refused.err.contains(&format!("`cowork revoke {id} work` first")), "{}", refused.err);
    let script = "cd mnt/work; for place in deps up/deps src up; do echo new > $place/new; done; \
                  echo changed > deps/old; echo changed > src/a";
    desk.sh(id, script).good();
    let document = desk.json(&["changes", "--json", id]);
    let mut changed: Vec<_> = document["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|change| text(&change["path"]))
        .collect();
    changed.sort();
    assert_eq!(changed, ["src/a", "src/new", "up/new"]);
    let said = desk.good(&["exec", id, "--", "python3", "-c", BORDER]);
    let expected =
        "in EXDEV EXDEV\nout EXDEV EXDEV\nitself EXDEV EROFS\nabove EBUSY\ninside ok ok\n";
    assert_eq!(said, expected);
    // A tool copies where it cannot rename: one side is recorded.
    desk.sh(id, "cd mnt/work; mv src/new deps/moved; mv deps/new src/moved").good();
    desk.good(&["undo", "--all", id]);
    let read = |name: &str| desk.work.read(name);
    assert_eq!(read("src/a").as_deref(), Some("a\n"));
    assert_eq!((read("src/new"), read("src/moved"), read("up/new")), (None, None, None));
    assert_eq!(read("deps/old").as_deref(), Some("changed\n"), "nothing brings it back");
    assert_eq!(read("deps/moved").as_deref(), Some("new\n"));
    assert_eq!((read("deps/new"), read("up/deps/new").as_deref()), (None, Some("new\n")));
}

fn a_folder_is_switched_to_staged_and_back(person: Person) {
    let desk = Desk::new(person);
    let id = &id("switch", person);
    desk.work.write("file", "first\n");
    let ro = cowork_testbed::Folder::new(person, "material");
    ro.write("file", "material\n");
    let material = ro.path().to_str().expect("test folders are text");
    desk.make(id, &["--guard", "off", "--grant", &format!("{material}:ro=material")]);
    let number = desk.start(id, "while [ ! -e mnt/work/stop ]; do sleep 0.1; done; echo stopped");
    desk.sh(id, "echo recorded > mnt/work/file").good();
    desk.good(&["grant", id, &format!("{}:staged=work", desk.path())]);
    desk.sh(id, "echo staged > mnt/work/file; cat mnt/work/file").good();
    assert_eq!(desk.work.read("file").as_deref(), Some("recorded\n"), "it waits");
    assert_eq!(desk.sh(id, "cat mnt/work/file").good(), "staged\n");
    // What is staged stays so when the folder is switched, and is applied or not.
    desk.good(&["grant", id, &format!("{}:rw=work", desk.path())]);
    assert_eq!(desk.sh(id, "cat mnt/work/file").good(), "recorded\n");
    desk.sh(id, "echo more > mnt/work/more").good();
    assert_eq!(desk.work.read("more").as_deref(), Some("more\n"));
    desk.good(&["apply", id]);
    assert_eq!(desk.work.read("file").as_deref(), Some("staged\n"));
    // From reading alone.
    assert_ne!(desk.sh(id, "echo no > mnt/material/file").code, 0);
    desk.good(&["grant", id, &format!("{material}:staged=material")]);
    desk.sh(id, "echo yes > mnt/material/file").good();
    assert_eq!(ro.read("file").as_deref(), Some("material\n"));
    desk.good(&["discard", id]);
    assert_eq!(desk.sh(id, "cat mnt/material/file").good(), "material\n");
    // The session is the same all the time, and everything is taken back.
    desk.sh(id, "touch mnt/work/stop").good();
    assert_eq!(desk.good(&["logs", "--follow", id, &number]), "stopped\n");
    desk.good(&["undo", "--all", id]);
    assert_eq!(
        (desk.work.read("file").as_deref(), desk.work.read("more")),
        (Some("first\n"), None)
    );
}

fn one_older_set_is_undone(person: Person) {
    let desk = Desk::new(person);
    let id = &id("older", person);
    desk.work.write("a", "a\n");
    desk.work.write("b", "b\n");
    desk.make(id, &["--guard", "off"]);
    for line in ["echo 1 > mnt/work/a", "echo 2 > mnt/work/b", "echo 3 >> mnt/work/b"] {
        desk.sh(id, line).good();
    }
    let read = || (desk.work.read("a"), desk.work.read("b"));
    let is = |a: &str, b: &str| (Some(a.to_owned()), Some(b.to_owned()));
    let said = desk.good(&["undo", "--set", "1", id]);
    assert!(said.ends_with("1 name brought back, as set 4\n"), "{said}");
    assert_eq!(read(), is("a\n", "2\n3\n"));
    // A later one touched the same file.
    let refused = desk.say(&["undo", "--set", "2", id]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.text().contains("changed by set 3"), "{refused:?}");
    assert_eq!(read(), is("a\n", "2\n3\n"));
    desk.good(&["undo", "--set", "2", "--set", "3", id]);
    assert_eq!(read(), is("a\n", "b\n"));
    assert_ne!(desk.say(&["undo", "--set", "9", id]).code, 0);
}

/// The number of the request that waits, and why.
#[track_caller]
fn asked(desk: &Desk, id: &str) -> (String, String) {
    let mut found = Value::Null;
    until("it asks", || {
        found = desk.json(&["requests", "--json", id]);
        found.as_array().is_some_and(|found| !found.is_empty())
    });
    (found[0]["id"].to_string(), text(&found[0]["reason"]))
}

fn what_is_too_large_to_be_kept_is_asked_about_first(person: Person) {
    let desk = Desk::new(person);
    let id = &id("large", person);
    let beside = cowork_testbed::Folder::new(person, "beside");
    let policy = "[files]\ncaps = { file = \"64K\", beyond = \"ask\" }\n";
    let policy = beside.write("policy.toml", policy).display().to_string();
    let large = "x".repeat(200_000);
    desk.work.write("large", &large);
    desk.make(id, &["--policy", &policy]);
    let write = "(echo changed > mnt/work/large) 2> /dev/null && echo written || echo refused";
    let number = desk.start(id, write);
    let (request, why) = asked(&desk, id);
    assert!(why.contains("it could not be undone"), "{why}");
    assert_eq!(desk.work.read("large").as_deref(), Some(large.as_str()), "it waits");
    desk.good(&["decide", &request, "reject"]);
    assert_eq!(desk.good(&["logs", "--follow", id, &number]), "refused\n");
    assert_eq!(desk.work.read("large").as_deref(), Some(large.as_str()));
    let number = desk.start(id, write);
    let (request, _) = asked(&desk, id);
    desk.good(&["decide", &request, "allow"]);
    assert_eq!(desk.good(&["logs", "--follow", id, &number]), "written\n");
    assert_eq!(desk.work.read("large").as_deref(), Some("changed\n"));
    let said = desk.good(&["changes", id]);
    assert!(said.contains("cannot be undone"), "{said}");
    // The audit says it by itself.
    let mut recorded = Value::Null;
    until("it is in the audit", || {
        recorded = desk.json(&["audit", "--json", id, "--type", "files.changed"]);
        recorded.to_string().contains("it was too large to be kept")
    });
    assert!(said.contains("it was too large to be kept"), "{said}");
    // What is removed goes into the trash whole, if there is one, and is not asked about.
    desk.work.write("small", "small\n");
    desk.sh(id, "echo 1 > mnt/work/small").good();
    desk.good(&["undo", id]);
    assert_eq!(desk.work.read("small").as_deref(), Some("small\n"));
}
