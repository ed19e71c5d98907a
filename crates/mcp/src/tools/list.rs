//! Listing folders, and what a session has for the user.

use super::{About, Answer, Effect, Entry, World};
use crate::call::Call;
use crate::content::{files, refused, script};
use crate::inside::{Work, run};
use crate::refusal::Refusal;
use crate::spot::{self, Named, Spot, top};
use crate::text::{fit, shown};
use cowork_client::http::Client;
use cowork_client::types::{Access, FileEntry, Page, Raw, Session};
use cowork_client::uri::Query;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most entries in one answer.
const MAX_ENTRIES: usize = 1000;
/// Most bytes of a listing that is made in the session.
const MAX_LISTING: usize = 512 * 1024;
/// Most deliverables in one answer.
const MAX_PRESENTED: usize = 200;
/// Most folders that are looked into for deliverables.
const MAX_FOLDERS: usize = 200;

/// Lists a folder in the session: kind, size, time of change and name, each entry ended by NUL.
const LIST: &str = r#"
[ "$(realpath -e -- "$1" 2>/dev/null)" = "$1" ] || { [ -e "$1" ] || [ -L "$1" ] || exit 40; exit 41; }
[ -d "$1" ] || exit 44
exec find "$1" -mindepth 1 -maxdepth 1 -printf '%y %s %TY-%Tm-%TdT%TH:%TM:%.2TSZ %f\0'
"#;

pub(super) fn tools() -> Vec<Entry> {
    let list = About {
        name: "list_files",
        title: "List a folder",
        description: "Lists what is in a granted folder, outputs or uploads, or in a folder below \
            one, e.g. `mnt/NAME/src`: names, kinds, sizes. Without a path it lists the session's \
            folders. At most 1000 entries come back; `from` leaves out the first ones.",
        effect: Effect::Reads,
        world: World::Closed,
    };
    let present = About {
        name: "present_files",
        title: "Present deliverables",
        description: "Tells where on the user's machine the deliverables are that the session \
            wrote to mnt/outputs, with their sizes and kinds, so that the user can be told. \
            Without `paths` all of them.",
        effect: Effect::Reads,
        world: World::Closed,
    };
    vec![Entry::new(&list, list_files), Entry::new(&present, present_files)]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListFiles {
    /// The id of the session; it may be left out if exactly one was made over this connection.
    #[serde(default)]
    session: Option<String>,
    /// The folder, as commands in the session name it; `mnt` without it.
    #[serde(default)]
    #[schemars(length(min = 1, max = 4096))]
    path: Option<String>,
    /// How many entries are left out.
    #[serde(default)]
    from: usize,
}

/// Something in a folder.
#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    /// Its name.
    name: String,
    /// `file`, `folder`, `link` or `other`.
    kind: String,
    /// How many bytes it has, of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// When it was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
    /// What may be done with it, of the session's folders.
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<Access>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listing {
    /// The folder, as the session sees it.
    path: String,
    /// What is in it, by name.
    entries: Vec<Listed>,
    /// Where to go on; none if this was all there is.
    next: Option<usize>,
}

impl Answer for Listing {}

fn list_files(call: &Call, wanted: &ListFiles) -> Result<Listing, Refusal> {
    let mut client = call.client()?;
    let session = call.session(&mut client, wanted.session.as_deref())?;
    let spot = match spot::find(&session, wanted.path.as_deref().unwrap_or("mnt"))? {
        Named::Top => return Ok(roots(&session)),
        Named::Spot(spot) => spot,
    };
    let (entries, more) = entries(call, &mut client, &session, (&spot, wanted.from))?;
    let entries = entries.into_iter().map(Listed::from).collect();
    let (entries, cut) = fit(entries, |entry: &Listed| entry.name.len() + 100);
    let next = (more || cut).then(|| wanted.from + entries.len());
    Ok(Listing { path: crate::text::harmless(&spot.inside), entries, next })
}

impl From<FileEntry> for Listed {
    fn from(entry: FileEntry) -> Self {
        let name = entry.name.bytes().unwrap_or_default();
        Self {
            name: shown(&name),
            bytes: (entry.kind == "file").then_some(entry.size),
            kind: entry.kind,
            modified: Some(entry.modified),
            access: None,
        }
    }
}

/// The session's folders.
fn roots(session: &Session) -> Listing {
    let own = [("outputs", Access::Direct), ("uploads", Access::Read)];
    let granted = session.grants.iter().map(|grant| (grant.name.as_str(), grant.access));
    let entries = granted.chain(own).map(|(name, access)| Listed {
        name: crate::text::harmless(name),
        kind: "folder".to_owned(),
        bytes: None,
        modified: None,
        access: Some(access),
    });
    Listing { path: top(session), entries: entries.collect(), next: None }
}

/// Entries of a folder from a number on, and whether there are more.
fn entries(
    call: &Call,
    client: &mut Client,
    session: &Session,
    (spot, from): (&Spot, usize),
) -> Result<(Vec<FileEntry>, bool), Refusal> {
    if spot.access == Access::Staged {
        let mut all = inside(call, client, session, spot)?;
        let more = all.len() > from.saturating_add(MAX_ENTRIES);
        all = all.into_iter().skip(from).take(MAX_ENTRIES).collect();
        return Ok((all, more));
    }
    let query = Query::new(files(session, spot))
        .with("limit", MAX_ENTRIES.to_string())
        .with("cursor", from.to_string());
    let page: Page<FileEntry> = client.get(query.with("list", "true"))?;
    Ok((page.items, page.next.is_some()))
}

/// The entries of a folder as only the session sees it.
fn inside(
    call: &Call,
    client: &mut Client,
    session: &Session,
    spot: &Spot,
) -> Result<Vec<FileEntry>, Refusal> {
    let command = script(LIST, ["list_files", &spot.inside]);
    let ran = run(call, client, session, Work { command, stdin: None, keep: MAX_LISTING })?;
    match ran.command.code {
        Some(0) => {}
        code => {
            let unread = || Refusal::new("failed", "the folder cannot be listed");
            return Err(code.and_then(refused).unwrap_or_else(unread));
        }
    }
    let bytes = ran.stdout.whole().ok_or_else(|| {
        Refusal::new("too-large", "the folder has too many entries").with_hint("use run_command")
    })?;
    let mut entries: Vec<FileEntry> = bytes.split(|byte| *byte == 0).filter_map(entry).collect();
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

fn entry(record: &[u8]) -> Option<FileEntry> {
    let mut parts = record.splitn(4, |byte| *byte == b' ');
    let mut text = || parts.next().and_then(|part| std::str::from_utf8(part).ok());
    let kind = match text()? {
        "f" => "file",
        "d" => "folder",
        "l" => "link",
        _ => "other",
    };
    let (size, modified) = (text()?.parse().ok()?, text()?.to_owned());
    Some(FileEntry { name: Raw::new(parts.next()?), kind: kind.into(), size, modified })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Present {
    /// The id of the session; it may be left out if exactly one was made over this connection.
    #[serde(default)]
    session: Option<String>,
    /// Files or folders in mnt/outputs, as commands in the session name them.
    #[serde(default)]
    #[schemars(length(min = 1, max = 100))]
    paths: Option<Vec<String>>,
}

/// A deliverable.
#[derive(Debug, Serialize, JsonSchema)]
struct Deliverable {
    /// The file, as the session sees it.
    path: String,
    /// The file on the user's machine.
    host_path: String,
    /// How many bytes it has.
    bytes: u64,
    /// What it seems to be, by its name, e.g. `text/csv`.
    kind: &'static str,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Presented {
    /// The files.
    files: Vec<Deliverable>,
    /// Whether there are more than are listed.
    more: bool,
}

impl Answer for Presented {}

fn present_files(call: &Call, wanted: &Present) -> Result<Presented, Refusal> {
    let mut client = call.client()?;
    let session = call.session(&mut client, wanted.session.as_deref())?;
    let host =
        session.outputs.as_ref().map(Raw::lossy).ok_or_else(|| {
            Refusal::new("no-outputs", "the session has no deliverables that stay")
        })?;
    let paths = wanted.paths.clone().unwrap_or_else(|| vec!["mnt/outputs".to_owned()]);
    let mut found = Presented { files: Vec::new(), more: false };
    for path in &paths {
        let Named::Spot(spot) = spot::find(&session, path)? else {
            return Err(not_output());
        };
        if spot.root != "outputs" {
            return Err(not_output());
        }
        gather(call, &mut client, &session, (&spot, &host), &mut found)?;
    }
    let (files, cut) = fit(found.files, |file| file.path.len() + file.host_path.len() + 100);
    Ok(Presented { files, more: found.more || cut })
}

fn not_output() -> Refusal {
    Refusal::new("not-output", "only files in mnt/outputs are presented")
        .with_hint("copy it there with run_command first")
}

/// Finds the files at and below a place.
fn gather(
    call: &Call,
    client: &mut Client,
    session: &Session,
    (spot, host): (&Spot, &str),
    found: &mut Presented,
) -> Result<(), Refusal> {
    let mut folders = vec![spot.clone()];
    let mut looked = 0;
    while let Some(folder) = folders.pop() {
        looked += 1;
        if looked > MAX_FOLDERS {
            found.more = true;
            return Ok(());
        }
        let (entries, more) = match entries(call, client, session, (&folder, 0)) {
            Ok(found) => found,
            // The place itself may be a file.
            Err(refusal) if looked == 1 && refusal.code == "not-folder" => {
                (vec![one(client, session, spot)?], false)
            }
            Err(refusal) => return Err(refusal),
        };
        found.more |= more;
        let is_file = |entry: &FileEntry| entry.name == Raw::Text(String::new());
        for entry in entries {
            let below = if is_file(&entry) { folder.clone() } else { child(&folder, &entry) };
            match entry.kind.as_str() {
                "folder" => folders.push(below),
                "file" if found.files.len() < MAX_PRESENTED => found.files.push(Deliverable {
                    host_path: crate::text::harmless(&format!("{host}/{}", below.below)),
                    path: crate::text::harmless(&below.inside),
                    bytes: entry.size,
                    kind: kind(&below.below),
                }),
                "file" => found.more = true,
                _ => {}
            }
        }
    }
    Ok(())
}

/// A place that is a file, without a name below itself.
fn one(client: &mut Client, session: &Session, spot: &Spot) -> Result<FileEntry, Refusal> {
    let request = cowork_client::http::Request::get(files(session, spot));
    let response = client.open(&request, None)?;
    let size = response.header("content-length").and_then(|size| size.parse().ok()).unwrap_or(0);
    let (name, modified) = (Raw::Text(String::new()), String::new());
    Ok(FileEntry { name, kind: "file".into(), size, modified })
}

fn child(folder: &Spot, entry: &FileEntry) -> Spot {
    let name = entry.name.lossy();
    let below =
        if folder.below.is_empty() { name.clone() } else { format!("{}/{name}", folder.below) };
    Spot { below, inside: format!("{}/{name}", folder.inside), ..folder.clone() }
}

/// What a file seems to be, by its name.
fn kind(path: &str) -> &'static str {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    match ending.as_deref().unwrap_or_default() {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "json" => "application/json",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "svg" => "image/svg+xml",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "mp3" => "audio/mpeg",
        "mp4" => "video/mp4",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::{entry, kind};

    #[test]
    fn a_record_is_an_entry() {
        let entry = entry(b"f 12 2026-11-16T09:00:00Z a name").expect("it is one");
        assert_eq!((entry.name.lossy().as_str(), entry.size), ("a name", 12));
        assert!(super::entry(b"").is_none());
    }

    #[test]
    fn a_kind_is_told_by_the_name() {
        assert_eq!(kind("a/b.CSV"), "text/csv");
        assert_eq!(kind("a.d/b"), "application/octet-stream");
    }
}
