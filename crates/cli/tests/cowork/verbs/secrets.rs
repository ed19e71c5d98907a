//! `secret`, `--secret`: values that are used, and never shown.

use super::{Desk, id, text};
use crate::programs::tty::Tty;
use crate::support::{Ran, finish, for_everyone};
use cowork_testbed::{Folder, Person};
use serde_json::Value;
use std::path::Path;

for_everyone!(
    a_value_is_never_shown,
    a_value_is_not_an_argument,
    a_value_is_typed_without_echo,
    what_is_no_secret,
);

/// A value that is found wherever it is shown.
const VALUE: &str = "cw-canary-8Hq2ZkV0tR5mX1nB7sLd";

/// Keeps a secret with this on standard input.
#[track_caller]
fn set(desk: &Desk, arguments: &[&str], input: &[u8]) -> Ran {
    let command = desk.command(&[&["secret", "set"], arguments].concat());
    finish(command, input.to_vec())
}

/// Whether there is a secret of a name.
#[track_caller]
fn is_kept(desk: &Desk, name: &str) -> bool {
    let secrets = desk.json(&["secret", "ls", "--json"]);
    secrets.as_array().expect("it is a list").iter().any(|secret| secret["name"] == name)
}

/// Every file below a folder that has the value in it as it is.
fn files_with_value(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(path),
                Ok(kind) if kind.is_file() => {
                    let bytes = std::fs::read(&path).unwrap_or_default();
                    if bytes.windows(VALUE.len()).any(|part| part == VALUE.as_bytes()) {
                        found.push(path.display().to_string());
                    }
                }
                _ => {}
            }
        }
    }
    found
}

fn a_value_is_never_shown(person: Person) {
    let desk = Desk::apart(person);
    let id = &id("trusted", person);
    let arguments =
        ["token", "--host", "api.example.com", "--as", "header:X-Key", "--env", "TOKEN"];
    let said = set(&desk, &arguments, format!("{VALUE}\n").as_bytes());
    assert!(said.good().starts_with("token is kept ("), "{}", said.text());
    assert!(said.text().contains("for api.example.com"), "{}", said.text());
    // It is said where values are, and where the key to them is.
    let listed = desk.good(&["secret", "ls"]);
    let store = listed.lines().last().unwrap_or_default();
    assert!(store.starts_with("values: sealed file; key in "), "{listed}");
    assert!(store.ends_with("a 0600 file"), "{listed}");
    desk.make(id, &["--secret", "token"]);
    let inside = desk.sh(id, "echo \"$TOKEN\"; env; cat /proc/*/environ 2>/dev/null; grep -r cw-canary / \
                              2>/dev/null --exclude-dir=proc --exclude-dir=usr --exclude-dir=sys | head");
    let placeholder = inside.text().lines().next().unwrap_or_default().to_owned();
    assert!(!placeholder.is_empty() && placeholder.len() == VALUE.len(), "{placeholder}");
    let mut shown = vec![inside.text().to_owned(), inside.err.clone()];
    for arguments in [
        &["secret", "ls"][..],
        &["secret", "ls", "--json"],
        &["status", id],
        &["status", "--json", id],
        &["net", id],
        &["net", "rules", id],
        &["net", "rules", "--json", id],
        &["net", "har", id],
        &["audit", "--json"],
        &["events", "--no-follow", "--json"],
    ] {
        shown.push(desk.good(arguments));
    }
    for text in &shown {
        assert!(!text.contains(VALUE), "{text}");
    }
    assert_eq!(files_with_value(desk.daemon()), Vec::<String>::new());
    let secrets = desk.json(&["secret", "ls", "--json"]);
    let secret = &secrets[0];
    assert_eq!(
        (text(&secret["name"]), text(&secret["carrier"]), text(&secret["variable"])),
        ("token".into(), "header:X-Key".into(), "TOKEN".into())
    );
    assert_eq!((&secret["mode"], &secret["sessions"]), (&"swap".into(), &vec![id.as_str()].into()));
    let table = desk.good(&["secret", "ls"]);
    assert!(table.lines().nth(1).is_some_and(|line| line.starts_with("token ")), "{table}");
    desk.good(&["rm", id]);
    assert_eq!(desk.good(&["secret", "rm", "token"]), "");
    assert_eq!(desk.json(&["secret", "ls", "--json"]), Value::Array(Vec::new()));
    let gone = desk.say(&["secret", "rm", "token"]);
    assert_eq!((gone.code, gone.text()), (1, ""), "{}", gone.err);
    assert!(gone.err.contains("`token`"), "{}", gone.err);
}

fn a_value_is_not_an_argument(person: Person) {
    let desk = Desk::new(person);
    let sentence = "cowork: a secret is never an argument: every program on this machine can read \
                    arguments, and shells keep them\n  hint: run `cowork secret set argued` \
                    without it, and give the value on standard input or when asked\n";
    let named = format!("argued={VALUE}");
    for arguments in [
        &["secret", "set", "argued", VALUE, "--host", "a.example"][..],
        &["secret", "set", "--host", "a.example", "argued", VALUE, "more"],
        &["secret", "set", "--host", "a.example", &named],
    ] {
        desk.refused(arguments, 2, sentence);
    }
    assert!(!is_kept(&desk, "argued"));
}

fn a_value_is_typed_without_echo(person: Person) {
    let desk = Desk::new(person);
    // The daemon is there, so that nothing else is said.
    desk.good(&["ls"]);
    let work = Folder::new(person, "work");
    let arguments = ["secret", "set", "typed", "--host", "a.example"];
    let mut tty = Tty::start(person, work.path(), &arguments);
    tty.see("the secret typed (it is not shown): ");
    let before = tty.settings();
    tty.press(&format!("wrong\u{15}{VALUE}x\u{7f}\r"));
    tty.see("typed is kept (");
    assert_eq!(tty.end(), 0, "{}", tty.seen());
    assert!(!tty.seen().contains(VALUE) && !tty.seen().contains("wrong"), "{:?}", tty.seen());
    let after = tty.settings();
    assert_ne!(before, after);
    assert!(is_kept(&desk, "typed"));
    desk.good(&["secret", "rm", "typed"]);
    // Whoever changes their mind has kept nothing, and has their terminal as it was.
    let mut tty = Tty::start(person, work.path(), &arguments);
    tty.see("(it is not shown): ");
    tty.press("half\u{3}");
    assert_eq!(tty.end(), 130, "{}", tty.seen());
    assert_eq!(tty.settings(), after);
    assert!(!is_kept(&desk, "typed"));
}

fn what_is_no_secret(person: Person) {
    let desk = Desk::new(person);
    let long = vec![b'x'; 65_537];
    for (arguments, input, code, wrong) in [
        (&["empty", "--host", "a.example"][..], &b"\n"[..], 1, "the secret has no value"),
        (&["bytes", "--host", "a.example"], b"\xff\xfe", 1, "the value is not text in UTF-8"),
        (&["long", "--host", "a.example"], &long, 1, "the value is longer than 64K"),
        (&["homeless"], b"x", 2, "required arguments were not provided"),
        (&["misplaced", "--host", "a.example", "--as", "cookie:x"], b"x", 2, "write `bearer`"),
        (&["Bad/name", "--host", "a.example"], b"x", 1, ""),
        (&["astray", "--host", "a..example"], b"x", 1, "a..example"),
        (&["unnamed", "--host", "a.example", "--env", "1=2"], b"x", 1, ""),
    ] {
        let ran = set(&desk, arguments, input);
        assert_eq!((ran.code, ran.text()), (code, ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(wrong) && ran.err.len() > 10, "{arguments:?}: {}", ran.err);
    }
    let ran = desk.say(&["new", "--secret", "no-such-secret"]);
    assert_eq!((ran.code, ran.text()), (1, ""), "{}", ran.err);
    assert!(ran.err.contains("no-such-secret"), "{}", ran.err);
}
