//! Writing and editing files, in the session: so the walls of the session hold, changes of the
//! user's folders pass its door, where names are judged and everything is recorded, and an undo
//! brings back what was.
//!
//! A file is written beside its place and then moved there: whoever reads it sees the old contents
//! or the new ones.

use super::{About, Answer, Effect, Entry, World};
use crate::call::Call;
use crate::content::{self, refused, script};
use crate::inside::{Ran, Work, run};
use crate::refusal::Refusal;
use crate::spot::{self, Spot};
use crate::text::{harmless, line, shown};
use cowork_client::http::Client;
use cowork_client::types::{Event, Page, Session};
use cowork_client::uri::Query;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::time::Duration;

/// Longest text that is written, in bytes.
const MAX_WRITE: usize = 8 * 1024 * 1024;
/// Most bytes of what goes wrong in the session.
const MAX_ERRORS: usize = 4096;
/// How often it is looked for the reason of a refusal, which comes by another way.
const TRIES: u32 = 10;
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(30);

/// Writes its input to a file. The second word is what must be there before: `any`, `none`, or the
/// SHA-256 of the contents.
const WRITE: &str = r#"
parent=${1%/*}
[ "$(realpath -m -- "$parent")" = "$parent" ] && [ ! -L "$1" ] || exit 41
[ ! -e "$parent" ] || [ -d "$parent" ] || exit 44
[ ! -d "$1" ] || exit 42
[ ! -e "$1" ] || [ -f "$1" ] || exit 43
case $2 in
any) ;;
none) [ ! -e "$1" ] || exit 45 ;;
*) [ "$(sha256sum <"$1")" = "$2  -" ] || exit 46 ;;
esac
umask 022
mkdir -p -- "$parent" || exit 1
new=$parent/.cowork-$$-$3
trap 'rm -f -- "$new"' EXIT
cat >"$new" || exit 1
[ ! -e "$1" ] || chmod --reference="$1" -- "$new" || exit 1
mv -fT -- "$new" "$1" || exit 1
trap - EXIT
"#;

pub(super) fn tools() -> Vec<Entry> {
    let write = About {
        name: "write_file",
        title: "Write a file",
        description: "Writes a text file to a granted folder or outputs, and makes the folders \
            above it; what is there is replaced, unless `create_only` is true. In `rw` folders the \
            change is recorded and can be undone. A name that the user has protected is refused, \
            or the user is asked first and this call waits.",
        effect: Effect::Replaces,
        world: World::Closed,
    };
    let edit = About {
        name: "edit_file",
        title: "Edit a file",
        description: "Replaces a piece of a text file by another one. `old_text` must be exactly \
            what the file has, with every blank and line end, and occur once; otherwise nothing is \
            done. Give more of what surrounds it, or set `replace_all` to replace every \
            occurrence. Nothing is done either if the file changes meanwhile.",
        effect: Effect::Destroys,
        world: World::Closed,
    };
    vec![Entry::new(&write, write_file), Entry::new(&edit, edit_file)]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteFile {
    /// The id of the session; it may be left out if exactly one was made over this connection.
    #[serde(default)]
    session: Option<String>,
    /// The file, as commands in the session name it, e.g. `mnt/outputs/report.md`.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// All of the new contents; at most 8 MiB.
    text: String,
    /// Whether to refuse if there is a file already.
    #[serde(default)]
    create_only: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EditFile {
    /// The id of the session; it may be left out if exactly one was made over this connection.
    #[serde(default)]
    session: Option<String>,
    /// The file, as commands in the session name it.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// What is there now.
    #[schemars(length(min = 1))]
    old_text: String,
    /// What is to be there.
    new_text: String,
    /// Whether every occurrence is replaced.
    #[serde(default)]
    replace_all: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Written {
    /// The file, as the session sees it.
    path: String,
    /// How many bytes it has now.
    bytes: usize,
    /// How many pieces were replaced, of an edit.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<usize>,
    /// The number of the command that wrote it: its changes are a set that can be undone.
    command: u32,
}

impl Answer for Written {}

fn write_file(call: &Call, wanted: &WriteFile) -> Result<Written, Refusal> {
    let mut client = call.client()?;
    let session = call.session(&mut client, wanted.session.as_deref())?;
    let spot = spot::file(&session, &wanted.path)?;
    spot.writable()?;
    let before = if wanted.create_only { "none" } else { "any" };
    let to = Writing { session: &session, spot: &spot, before };
    to.put(call, &mut client, wanted.text.clone().into_bytes())
}

fn edit_file(call: &Call, wanted: &EditFile) -> Result<Written, Refusal> {
    if wanted.old_text.is_empty() {
        return Err(Refusal::new("bad-arguments", "`old_text` is empty")
            .with_hint("write a new file with write_file"));
    }
    let mut client = call.client()?;
    let session = call.session(&mut client, wanted.session.as_deref())?;
    let spot = spot::file(&session, &wanted.path)?;
    spot.writable()?;
    let text = content::text(content::bytes(call, &mut client, &session, &spot)?)?;
    let (new, count) = edited(&text, wanted)?;
    let before = hash(text.as_bytes());
    let to = Writing { session: &session, spot: &spot, before: &before };
    let written = to.put(call, &mut client, new.into_bytes())?;
    Ok(Written { replaced: Some(count), ..written })
}

/// The text after an edit, and how many pieces were replaced.
fn edited(text: &str, wanted: &EditFile) -> Result<(String, usize), Refusal> {
    let count = text.matches(&wanted.old_text).count();
    match count {
        0 => Err(Refusal::new("not-found", "the file does not have this text")
            .with_hint("it must be exact, with every blank and line end: see read_file")),
        1 => Ok((text.replacen(&wanted.old_text, &wanted.new_text, 1), 1)),
        count if wanted.replace_all => {
            Ok((text.replace(&wanted.old_text, &wanted.new_text), count))
        }
        count => {
            let sentence = format!("the file has this text {count} times");
            Err(Refusal::new("not-unique", sentence)
                .with_hint("give more of what surrounds it, or set `replace_all`"))
        }
    }
}

fn hash(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        // Writing to a string succeeds.
        cowork_sys::ignore(write!(text, "{byte:02x}"));
    }
    text
}

/// A file that is to be written.
struct Writing<'a> {
    session: &'a Session,
    spot: &'a Spot,
    /// What must be there before.
    before: &'a str,
}

impl Writing<'_> {
    fn put(&self, call: &Call, client: &mut Client, text: Vec<u8>) -> Result<Written, Refusal> {
        if text.len() > MAX_WRITE {
            let sentence = format!("a file that is written has at most {MAX_WRITE} bytes");
            return Err(Refusal::new("too-large", sentence));
        }
        let bytes = text.len();
        // A name that no other writer makes up at the same time.
        let unique =
            hash(format!("{:?}{}", std::time::SystemTime::now(), self.spot.inside).as_bytes());
        let words = ["write_file", &self.spot.inside, self.before, unique.get(..8).unwrap_or("x")];
        let command = script(WRITE, words);
        let after: Page<Event> = client.get("/v1/events?after=end&limit=1")?;
        let work = Work { command, stdin: Some(text), keep: MAX_ERRORS };
        let ran = run(call, client, self.session, work)?;
        if ran.command.code == Some(0) {
            let path = harmless(&self.spot.inside);
            return Ok(Written { path, bytes, replaced: None, command: ran.command.number });
        }
        Err(self.refused(client, ran, after.next.as_deref()))
    }

    /// Why nothing was written.
    fn refused(&self, client: &mut Client, ran: Ran, after: Option<&str>) -> Refusal {
        let said = shown(&ran.stderr.whole().unwrap_or_default());
        match ran.command.code {
            Some(45) => {
                return Refusal::new("exists", "there is a file already")
                    .with_hint("leave `create_only` out to replace it");
            }
            Some(46) => {
                return Refusal::new("changed", "the file has changed meanwhile")
                    .with_hint("read it again");
            }
            Some(code) => {
                if let Some(refusal) = refused(code) {
                    return refusal;
                }
            }
            None => return Refusal::new("failed", "the command that writes was interrupted"),
        }
        let table = [
            ("Disk quota exceeded", "quota", "the session may not add more to this folder"),
            ("No space left", "no-space", "the disk is full"),
            ("Read-only file system", "read-only", "the folder can only be read"),
            ("File name too long", "bad-path", "a name in the path is too long"),
            ("Not a directory", "not-folder", "a part of the path is not a folder"),
        ];
        for (error, code, sentence) in table {
            if said.contains(error) {
                return Refusal::new(code, sentence);
            }
        }
        if said.contains("Permission denied") {
            return self.judged(client, after);
        }
        Refusal::new("failed", format!("the file cannot be written: {}", line(&said, 500)))
    }

    /// The reason that the folder's door had, if it was the door.
    fn judged(&self, client: &mut Client, after: Option<&str>) -> Refusal {
        let query = Query::new("/v1/events")
            .with("session", &self.session.id)
            .with("type", "files.refused")
            .with_some("after", after);
        for _ in 0..TRIES {
            let page: Result<Page<Event>, _> = client.get(query.clone());
            let events = page.map(|page| page.items).unwrap_or_default();
            let text = |event: &Event, name: &str| {
                event.data.get(name).and_then(|value| value.as_str()).map(ToOwned::to_owned)
            };
            let ours = |event: &&Event| text(event, "grant").as_ref() == Some(&self.spot.root);
            let reason = events.iter().rev().find(ours).and_then(|event| text(event, "reason"));
            if let Some(reason) = reason {
                let sentence = format!("the change is refused: {}", line(&reason, 500));
                return Refusal::new("refused", sentence)
                    .with_hint("the user decides about this name: leave it, or tell the user");
            }
            std::thread::sleep(PAUSE);
        }
        Refusal::new("denied", "the change is not permitted")
            .with_hint("the user has said no, the name is protected, or it belongs to someone else")
    }
}

#[cfg(test)]
mod tests {
    use super::{EditFile, edited, hash};

    fn once(old: &str) -> EditFile {
        let (session, path) = (None, String::new());
        EditFile { session, path, old_text: old.into(), new_text: "X".into(), replace_all: false }
    }

    #[test]
    fn an_edit_is_exact_and_unique() {
        let text = "a b\na b\nc";
        assert_eq!(edited(text, &once("c")), Ok(("a b\na b\nX".into(), 1)));
        assert_eq!(
            edited(text, &EditFile { replace_all: true, ..once("a b") }),
            Ok(("X\nX\nc".into(), 2))
        );
        assert_eq!(edited(text, &once("a b")).expect_err("twice").code, "not-unique");
        assert_eq!(edited(text, &once("a  b")).expect_err("nowhere").code, "not-found");
    }

    #[test]
    fn a_hash_is_as_the_shell_writes_it() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hash(b""), empty);
    }
}
