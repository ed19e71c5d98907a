//! What a session changed in the user's folders, and taking it back.

use super::{About, Answer, Effect, Entry, World};
use crate::call::{Call, target};
use crate::refusal::Refusal;
use crate::spot::{self, Named};
use crate::text::{fit, harmless, line, shown, start};
use cowork_client::http::{Client, Method, Request};
use cowork_client::types::{
    Change, ChangeKind, Changes, Difference, OnConflict, Raw, Restored, Session, SetKind, Undo,
};
use cowork_client::uri::Query;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// Most changes and sets in one answer.
const MAX_CHANGES: usize = 500;
/// Most bytes of differences in one answer.
const MAX_DIFF: usize = 64 * 1024;
/// Most names in the answer to an undo.
const MAX_NAMES: usize = 200;

pub(super) fn tools() -> Vec<Entry> {
    let list = About {
        name: "list_changes",
        title: "List changes",
        description: "Lists what the session changed in the user's folders (those with access \
            `rw` or `staged`) compared with what was there before, and the sets of changes: each \
            is what one command did, and can be undone with undo_changes. Set 0 is what is staged \
            and not applied.",
        effect: Effect::Reads,
        world: World::Closed,
    };
    let diff = About {
        name: "show_diff",
        title: "Show differences",
        description: "Shows in unified form how text files in the user's folders differ from what \
            was there before the session, or before a set. At most 64 KiB come back: name a \
            `path` to see one file or folder.",
        effect: Effect::Reads,
        world: World::Closed,
    };
    let undo = About {
        name: "undo_changes",
        title: "Undo changes",
        description: "Brings back what was in the user's `rw` folders: without arguments what the \
            last command changed; with `sets` what those sets changed; with `paths` these files as \
            they were before the session; with `all` everything. What the user has changed since \
            is never overwritten: then nothing at all is done, and the conflicts are listed. An \
            undo is a set of its own, and can be undone. With `dry_run` it only tells.",
        effect: Effect::Destroys,
        world: World::Closed,
    };
    vec![
        Entry::new(&list, list_changes),
        Entry::new(&diff, show_diff),
        Entry::new(&undo, undo_changes),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Which {
    /// The id of the session; it may be left out if exactly one was made over this connection.
    #[serde(default)]
    session: Option<String>,
    /// Only this file or folder, as commands in the session name it.
    #[serde(default)]
    #[schemars(length(min = 1, max = 4096))]
    path: Option<String>,
    /// Only this set.
    #[serde(default)]
    set: Option<u32>,
}

/// One name that is not as it was.
#[derive(Debug, Serialize, JsonSchema)]
struct Changed {
    /// The file, as the session sees it.
    path: String,
    /// What became of it: `added`, `modified`, `deleted`, `renamed` or `attributes`.
    change: ChangeKind,
    /// The path it had, if it was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    /// Its size before.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_before: Option<u64>,
    /// Its size now.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_now: Option<u64>,
    /// The sets it changed in.
    sets: Vec<u32>,
    /// What the user should know, e.g. `not-undoable` or `runs-here`.
    marks: Vec<String>,
}

/// What one command did.
#[derive(Debug, Serialize, JsonSchema)]
struct OneSet {
    /// Its number.
    set: u32,
    /// What it comes from: `command`, `undo` or `apply`.
    kind: SetKind,
    /// The number of the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<u32>,
    /// The set that undid it.
    #[serde(skip_serializing_if = "Option::is_none")]
    undone_by: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    /// What is not as it was.
    changes: Vec<Changed>,
    /// The sets, the newest last.
    sets: Vec<OneSet>,
    /// Whether there are more than are listed.
    more: bool,
}

impl Answer for Listed {}

/// Where a session sees something in one of its folders.
fn inside(session: &Session, grant: &str, path: &Raw) -> String {
    let path = path.bytes().unwrap_or_default();
    harmless(&format!("{}/{grant}/{}", spot::top(session), shown(&path)))
}

/// A path as the daemon takes it: as the session sees it.
fn named(session: &Session, path: &str) -> Result<String, Refusal> {
    match spot::find(session, path)? {
        Named::Spot(spot) => Ok(spot.inside),
        Named::Top => Ok(spot::top(session)),
    }
}

/// A question about changes.
fn query(session: &Session, what: &str, wanted: &Which) -> Result<Query, Refusal> {
    let path = wanted.path.as_deref().map(|path| named(session, path)).transpose()?;
    Ok(Query::new(target(&session.id, what))
        .with_some("path", path)
        .with_some("set", wanted.set.map(|set| set.to_string())))
}

fn list_changes(call: &Call, wanted: &Which) -> Result<Listed, Refusal> {
    let mut client = call.client()?;
    let session = call.session(&mut client, wanted.session.as_deref())?;
    let found: Changes = client.get(query(&session, "/changes", wanted)?)?;
    let more = found.changes.len() > MAX_CHANGES || found.sets.len() > MAX_CHANGES;
    let old = found.sets.len().saturating_sub(MAX_CHANGES);
    let sets = found.sets.iter().skip(old).map(|set| OneSet {
        set: set.set,
        kind: set.kind,
        command: set.command,
        undone_by: set.undone_by,
    });
    let changes = found.changes.iter().take(MAX_CHANGES);
    let changes = changes.map(|change| changed(&session, change)).collect();
    let (changes, cut) = fit(changes, |change: &Changed| change.path.len() * 2 + 300);
    Ok(Listed { changes, sets: sets.collect(), more: more || cut })
}

fn changed(session: &Session, change: &Change) -> Changed {
    let marks = change.marks.iter().map(|mark| {
        let kind = serde_json::to_value(mark.mark).unwrap_or_default();
        let kind = kind.as_str().unwrap_or_default().to_owned();
        match &mark.reason {
            Some(reason) => format!("{kind}: {}", line(reason, 200)),
            None => kind,
        }
    });
    Changed {
        path: inside(session, &change.grant, &change.path),
        change: change.kind,
        from: change.from.as_ref().map(|from| inside(session, &change.grant, from)),
        bytes_before: change.before,
        bytes_now: change.after,
        sets: change.sets.clone(),
        marks: marks.collect(),
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Differences {
    /// The differences.
    diff: String,
    /// How many files differ.
    files: usize,
    /// Whether something was left out.
    truncated: bool,
}

impl Answer for Differences {
    fn text(&self) -> Option<String> {
        let cut = "\n[there is more: name a `path`]";
        let none = if self.files == 0 { "nothing differs" } else { "" };
        Some(format!("{}{none}{}", self.diff, if self.truncated { cut } else { "" }))
    }
}

fn show_diff(call: &Call, wanted: &Which) -> Result<Differences, Refusal> {
    let mut client = call.client()?;
    let session = call.session(&mut client, wanted.session.as_deref())?;
    let found: Vec<Difference> = differences(&mut client, query(&session, "/diff", wanted)?)?;
    let mut text = String::new();
    for difference in &found {
        let path = inside(&session, &difference.change.grant, &difference.change.path);
        let kind = serde_json::to_value(difference.change.kind).unwrap_or_default();
        // Writing to a string succeeds.
        cowork_sys::ignore(writeln!(text, "{} {path}", kind.as_str().unwrap_or_default()));
        for part in [&difference.text, &difference.note].into_iter().flatten() {
            text.push_str(&harmless(part));
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
        if text.len() > MAX_DIFF {
            break;
        }
    }
    let truncated = text.len() > MAX_DIFF;
    Ok(Differences { diff: start(&text, MAX_DIFF).to_owned(), files: found.len(), truncated })
}

fn differences(client: &mut Client, query: Query) -> Result<Vec<Difference>, Refusal> {
    Ok(client.get(query)?)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of JSON with its own meaning")]
struct UndoChanges {
    /// The id of the session; it may be left out if exactly one was made over this connection.
    #[serde(default)]
    session: Option<String>,
    /// Only these files and folders, as commands in the session name them.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    paths: Vec<String>,
    /// Only what these sets changed.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    sets: Vec<u32>,
    /// Whether everything is brought back.
    #[serde(default)]
    all: bool,
    /// Whether it is only tried.
    #[serde(default)]
    dry_run: bool,
}

/// Something that the user has changed since.
#[derive(Debug, Serialize, JsonSchema)]
struct Conflict {
    /// The file.
    path: String,
    /// What is there now.
    now: String,
    /// What would be brought back.
    before: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Undone {
    /// The set that the undo made, by which it can be undone itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<u32>,
    /// How many names were brought back.
    names: u64,
    /// The first of them, and in which way.
    done: Vec<String>,
    /// What the user has changed since: if there is any, nothing was done.
    conflicts: Vec<Conflict>,
    /// What could not be brought back, and why.
    lost: Vec<String>,
}

impl Answer for Undone {}

fn undo_changes(call: &Call, wanted: &UndoChanges) -> Result<Undone, Refusal> {
    let mut client = call.client()?;
    let session = call.session(&mut client, wanted.session.as_deref())?;
    let paths = wanted.paths.iter().map(|path| named(&session, path).map(Raw::Text));
    let undo = Undo {
        paths: paths.collect::<Result<_, _>>()?,
        sets: wanted.sets.clone(),
        all: wanted.all,
        on_conflict: OnConflict::Refuse,
        dry_run: wanted.dry_run,
    };
    call.tell("undoing");
    let request = Request::new(Method::Post, target(&session.id, "/undo")).with_json(&undo);
    let done: Restored = client.json(&request)?;
    let shown = |host: &Raw| inside_of(&session, host);
    let names = |names: &[cowork_client::types::RestoredName]| {
        let names = names.iter().take(MAX_NAMES);
        names.map(|name| format!("{}: {}", shown(&name.host), line(&name.how, 200))).collect()
    };
    Ok(Undone {
        set: done.set,
        names: done.names,
        done: names(&done.done),
        conflicts: done
            .conflicts
            .iter()
            .take(MAX_NAMES)
            .map(|conflict| Conflict {
                path: shown(&conflict.host),
                now: line(&conflict.now, 200),
                before: line(&conflict.before, 200),
            })
            .collect(),
        lost: names(&done.lost),
    })
}

/// Where the session sees a path of the host, if it is in one of its folders; else only its name.
fn inside_of(session: &Session, host: &Raw) -> String {
    let host = host.bytes().unwrap_or_default();
    let found = session.grants.iter().find_map(|grant| {
        let folder = grant.path.bytes()?;
        let below = host.strip_prefix(folder.as_slice())?;
        (below.is_empty() || below.starts_with(b"/"))
            .then(|| format!("{}{}", grant.at, shown(below)))
    });
    let name = || shown(host.rsplit(|byte| *byte == b'/').next().unwrap_or_default());
    harmless(&found.unwrap_or_else(name))
}
