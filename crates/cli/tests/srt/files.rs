//! What commands read and write.

use crate::desk::{Desk, files};
use crate::for_everyone;
use cowork_testbed::{Person, SECRET, Said};
use std::process::Stdio;

for_everyone!(
    without_settings_everything_is_read_and_nothing_written,
    what_is_denied_is_not_read,
    the_deeper_rule_counts,
    patterns_hide_what_they_match,
    only_what_is_allowed_is_written,
    denied_names_are_not_written_whether_they_are_there_or_not,
    a_link_leads_nowhere_that_was_not_meant,
    temporary_files_are_written,
    logs_of_npm_and_of_claude_code_are_written,
    credentials_are_hidden,
    what_is_hidden_in_a_writable_folder_stays_hidden,
    commands_work_in_one_folder_at_a_time,
    everything_can_be_hidden_but_what_is_named,
);

fn without_settings_everything_is_read_and_nothing_written(person: Person) {
    let desk = Desk::new(person, "plain");
    desk.folder.write("text", "hello");
    let before = desk.listing();
    let ran = desk.run(&["-c", "pwd; cat text ~/.ssh/id_secret; ls -d /usr/bin /etc"]);
    let expected = format!("{}\nhello{SECRET}/etc\n/usr/bin\n", desk.here().display());
    assert_eq!(ran.good(), expected);
    let script = "echo x > new; echo x >> text; rm -f text; mkdir folder; echo x > ~/new; \
                  echo x > /etc/new; echo x > /tmp/cowork-srt-new; touch /usr/bin/new; true";
    let ran = desk.run(&["-c", script]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(desk.listing(), before);
    assert_eq!(desk.folder.read("text").as_deref(), Some("hello"));
    for path in ["/etc/new", "/usr/bin/new", "/tmp/cowork-srt-new"] {
        assert!(std::fs::symlink_metadata(path).is_err(), "{path}");
    }
    assert!(std::fs::symlink_metadata(person.home().join("new")).is_err());
}

fn what_is_denied_is_not_read(person: Person) {
    let desk = Desk::new(person, "denied");
    desk.folder.write("secret/key", "KEY");
    desk.folder.write("file", "FILE");
    let settings = files(&["~/.ssh", "secret", "./file", "/no/such/path"], &[], &[]);
    let ran = desk.script(&settings, "cat ~/.ssh/id_secret; ls secret; cat secret/key; cat file");
    assert!(!ran.out.contains(SECRET) && !ran.out.contains("KEY"), "{ran:?}");
    assert!(!ran.out.contains("FILE") && !ran.out.contains("key"), "{ran:?}");
    // By other names of the same files as well.
    let script = format!(
        "cat /proc/self/root{0}/secret/key /proc/self/cwd/secret/key; cd /; cat {0}/../*/secret/key",
        desk.here().display()
    );
    let ran = desk.script(&settings, &script);
    assert!(!ran.out.contains("KEY"), "{ran:?}");
}

fn the_deeper_rule_counts(person: Person) {
    let desk = Desk::new(person, "deeper");
    desk.folder.write("a/x", "HIDDEN-X ");
    desk.folder.write("a/pub/y", "SHOWN-Y ");
    desk.folder.write("a/pub/deep/z", "HIDDEN-Z ");
    desk.folder.write("a/pub/deep/again/w", "SHOWN-W ");
    desk.folder.write(".env", "HIDDEN-ENV ");
    let mut settings = files(&["a", "a/pub/deep", ".env"], &["."], &[]);
    settings["filesystem"]["allowRead"] =
        serde_json::json!(["a/pub", "a/pub/deep/again", ".", "no-such"]);
    let script = "cat a/x a/pub/y a/pub/deep/z a/pub/deep/again/w .env 2>/dev/null; \
                  echo new > made && cat made";
    let ran = desk.script(&settings, script);
    assert_eq!(ran.out, "SHOWN-Y SHOWN-W new\n", "{ran:?}");
}

fn patterns_hide_what_they_match(person: Person) {
    let desk = Desk::new(person, "patterns");
    for name in ["a.env", "b/c.env", "b/d/e.env", "b/f.txt", "k1.pem", "kx.pem", "x[1].pem"] {
        desk.folder.write(name, format!("{name} "));
    }
    let mut settings = files(&["**/*.env", "k[0-9].pem"], &[], &[]);
    let script = "cat a.env b/c.env b/d/e.env b/f.txt k1.pem kx.pem x\\[1].pem 2>/dev/null";
    assert_eq!(desk.script(&settings, script).out, "b/f.txt kx.pem x[1].pem ");
    // Brackets are themselves where that is said.
    settings["filesystem"]["denyRead"] =
        serde_json::json!([{ "path": "x[1].pem", "literal": true }]);
    let ran = desk.script(&settings, script);
    assert_eq!(ran.out, "a.env b/c.env b/d/e.env b/f.txt k1.pem kx.pem ", "{ran:?}");
}

fn only_what_is_allowed_is_written(person: Person) {
    let desk = Desk::new(person, "written");
    desk.folder.write("out/old", "old");
    desk.folder.write("in/old", "old");
    desk.folder.write("one", "1");
    let settings = files(&[], &["out", "one", "no-such-folder", "/dev/null"], &[]);
    let script = "echo a > out/new; mkdir out/folder; mv out/old out/folder/; echo 2 > one; \
                  echo b > in/new; echo c > new; rm in/old; echo d > no-such-folder; ln -s /etc out/link; \
                  echo e > out/link/x; echo quiet > /dev/null; true";
    let ran = desk.script(&settings, script);
    assert_eq!(ran.code, 0, "{ran:?}");
    let listing: Vec<String> = desk.listing().into_iter().collect();
    let expected =
        ["in", "in/old", "one", "out", "out/folder", "out/folder/old", "out/link", "out/new"];
    assert_eq!(listing, expected, "{ran:?}");
    assert_eq!(desk.folder.read("one").as_deref(), Some("2\n"));
    assert!(std::fs::symlink_metadata("/etc/x").is_err());
}

fn denied_names_are_not_written_whether_they_are_there_or_not(person: Person) {
    let desk = Desk::new(person, "names");
    desk.folder.write("keep/old", "old");
    desk.folder.write("a/x.lock", "locked");
    let settings = files(&[], &["."], &["keep", "**/*.lock", "later/on"]);
    let script = "echo x > keep/new; rm keep/old; mv keep kept; echo x > a/x.lock; echo x > new.lock; \
                  mkdir -p later; mkdir later/on; echo x > later/on; echo x > b; mv b b.lock; \
                  ln b c.lock; echo fine > later/off; true";
    let before = desk.listing();
    let ran = desk.script(&settings, script);
    assert_eq!(ran.code, 0, "{ran:?}");
    let new: Vec<String> = desk.listing().difference(&before).cloned().collect();
    assert_eq!(new, ["b", "later", "later/off"], "{ran:?}");
    assert_eq!(desk.folder.read("a/x.lock").as_deref(), Some("locked"));
    assert_eq!(desk.folder.read("keep/old").as_deref(), Some("old"));
}

fn a_link_leads_nowhere_that_was_not_meant(person: Person) {
    let desk = Desk::new(person, "links");
    let outside = desk.elsewhere("outside/file", "old");
    let outside = std::path::Path::new(&outside).parent().expect("it lies in a folder");
    std::os::unix::fs::symlink(outside, desk.here().join("build")).expect("the folder is ours");
    let settings = files(&[], &[".", "build"], &[]);
    let ran = desk.script(&settings, "echo new > build/file; echo x > build/more; true");
    assert!(ran.err.contains("leads out of"), "{ran:?}");
    let names = std::fs::read_dir(outside).expect("it is there").count();
    let text = std::fs::read_to_string(outside.join("file")).expect("it is there");
    assert_eq!((names, text.as_str()), (1, "old"));
}

fn temporary_files_are_written(person: Person) {
    let desk = Desk::new(person, "temporary");
    let own = desk.elsewhere("tmp/.keep", "");
    let own = std::path::Path::new(&own).parent().expect("it lies in a folder");
    let mut command = desk.srt(&["-c", "f=$(mktemp) && echo text > $f && cat $f && dirname $f"]);
    let output = command.env("CLAUDE_CODE_TMPDIR", own).output().expect("it runs");
    let ran = Said::of(&output);
    assert_eq!(ran.good(), format!("text\n{}\n", own.display()));
    let ran = desk.run(&["-c", "mktemp >/dev/null && echo $TMPDIR"]);
    let folder = ran.good().trim().to_owned();
    assert!(["/tmp/claude", "/dev/shm"].contains(&folder.as_str()), "{folder}");
}

fn logs_of_npm_and_of_claude_code_are_written(person: Person) {
    let desk = Desk::new(person, "logs");
    let log = desk.elsewhere("home/.npm/_logs/old", "");
    desk.elsewhere("home/.claude/debug/old", "");
    let home = std::path::Path::new(&log).ancestors().nth(3).expect("it lies in the home");
    let script = "for name in .npm/_logs/new .claude/debug/new .npm/new .claude/new new; do \
                  (echo x > ~/$name) 2>/dev/null && echo $name; done; true";
    let run = |hidden: &[&str]| {
        let path = desk.settings(&files(hidden, &["."], &[]));
        let mut command = desk.srt(&["-s", &path, "-c", script]);
        Said::of(&command.env("HOME", home).output().expect("it runs")).good()
    };
    assert_eq!(run(&[]), ".npm/_logs/new\n.claude/debug/new\n");
    assert!(home.join(".npm/_logs/new").is_file() && home.join(".claude/debug/new").is_file());
    // What is hidden is not written, whoever would add it.
    assert_eq!(run(&["~/.npm"]), ".claude/debug/new\n");
}

fn credentials_are_hidden(person: Person) {
    let desk = Desk::new(person, "credentials");
    let mut settings = files(&[], &["."], &[]);
    settings["credentials"] = serde_json::json!({
        "files": [{ "path": "~/.ssh", "mode": "deny" }],
        "envVars": [{ "name": "TOKEN", "mode": "deny" }],
    });
    let path = desk.settings(&settings);
    let mut command =
        desk.srt(&["-s", &path, "-c", "cat ~/.ssh/*; echo \"[$TOKEN][$OTHER]\"; env"]);
    let output = command.env("TOKEN", "t0k3n").env("OTHER", "plain").output().expect("it runs");
    let ran = Said::of(&output);
    assert!(ran.out.contains("[][plain]"), "{ran:?}");
    assert!(!ran.out.contains("t0k3n") && !ran.out.contains(SECRET), "{ran:?}");
}

/// Renaming, linking and replacing uncovers nothing.
fn what_is_hidden_in_a_writable_folder_stays_hidden(person: Person) {
    let desk = Desk::new(person, "uncovered");
    for name in ["secret/key", "deep/er/key", "hid"] {
        desk.folder.write(name, "CANARY");
    }
    desk.folder.write("plain", "plain");
    let settings = files(&["secret", "deep/er", "hid"], &["."], &[]);
    let script = "mv secret a; mv deep b; mv deep/er c; mv hid d; ln hid e; ln -s secret f; cp hid g; \
                  mv plain hid; echo over > hid; rm -rf secret deep hid; \
                  cat secret/* a/* b/*/* c/* d e f/* g deep/er/* hid";
    let ran = desk.script(&settings, script);
    assert!(!ran.out.contains("CANARY"), "{ran:?}");
    for name in ["secret/key", "deep/er/key", "hid"] {
        assert_eq!(desk.folder.read(name).as_deref(), Some("CANARY"), "{name}: {ran:?}");
    }
}

fn commands_work_in_one_folder_at_a_time(person: Person) {
    let desk = Desk::new(person, "together");
    let path = desk.settings(&files(&[], &["."], &[]));
    let scripts: Vec<String> =
        (0..4).map(|number| format!("echo {number} > {number}; sleep 0.5; cat {number}")).collect();
    let children: Vec<_> = scripts
        .iter()
        .map(|script| {
            let mut command = desk.srt(&["-s", &path, "-c", script]);
            let pipes = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            pipes.spawn().expect("the program is there")
        })
        .collect();
    for (number, child) in children.into_iter().enumerate() {
        let ran = Said::of(&child.wait_with_output().expect("it ends"));
        assert_eq!(ran.good(), format!("{number}\n"));
    }
}

fn everything_can_be_hidden_but_what_is_named(person: Person) {
    let desk = Desk::new(person, "everything");
    desk.folder.write("text", "hello");
    let mut settings = files(&["/"], &["."], &[]);
    settings["filesystem"]["allowRead"] =
        serde_json::json!(["/usr", "/bin", "/lib", "/lib64", "/etc", "."]);
    let script = "cat text ~/.ssh/id_secret; ls /root /home /opt; echo x > new && cat new; \
                  mktemp > /dev/null && echo temporary; ls -A /var/tmp | wc -l";
    let ran = desk.script(&settings, script);
    assert_eq!(ran.out, "hello/home:\n\n/opt:\n\n/root:\nx\ntemporary\n1\n", "{ran:?}");
    assert_eq!(desk.folder.read("new").as_deref(), Some("x\n"));
}
