//! What a session is told about itself, what people read of it on the host, and names.

use super::doc::{Doc, KeptGrant, Phase};
use crate::agents::SHOWN_AS;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_client::types::Access;
use cowork_policy::GrantName;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;

/// Where a grant appears in a session.
pub(crate) fn place(session: &str, grant: &str) -> String {
    format!("/sessions/{session}/mnt/{grant}")
}

/// A grant for the audit.
pub(crate) fn describe(kept: &KeptGrant) -> serde_json::Value {
    let grant = &kept.grant;
    json!({
        "name": grant.name,
        "path": grant.path,
        "access": grant.access,
        "sensitive": grant.sensitive,
        "request": grant.request,
        "direct": grant.direct,
        "writes": grant.writes,
        "expires": grant.expires,
    })
}

/// Refuses a name that a session has already.
pub(crate) fn check_name(grants: &[KeptGrant], new: &KeptGrant) -> Result<(), Trouble> {
    let other = grants.iter().find(|kept| kept.grant.name == new.grant.name);
    let Some(other) = other else { return Ok(()) };
    let sentence = format!(
        "two folders would be named `{}`: `{}` and `{}`",
        new.grant.name,
        other.grant.path.lossy(),
        new.grant.path.lossy()
    );
    let hint = format!("name one of them: `{}=other`", new.grant.path.lossy());
    Err(Trouble::conflict("grant-exists", sentence).with_hint(hint))
}

/// Checks a name at the top of a session's file system.
pub(crate) fn check_workspace(name: &str) -> Result<(), Trouble> {
    /// What every session has there.
    const TAKEN: [&str; 17] = [
        "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "proc", "root",
        "run", "sbin", "sessions", "tmp", "usr", "var",
    ];
    let parsed: Result<GrantName, _> = name.parse();
    match parsed {
        Err(error) => Err(Trouble::refused("bad-workspace", error.to_string())),
        Ok(_) if TAKEN.contains(&name) || name == "sys" => {
            let sentence = format!("`/{name}` is a folder of the session's system");
            Err(Trouble::refused("bad-workspace", sentence).with_hint("e.g. `workspace`"))
        }
        Ok(_) => Ok(()),
    }
}

/// Writes `COWORK.md` for the session.
pub(crate) fn write(daemon: &Daemon, doc: &Doc) -> Result<(), Trouble> {
    let folder = daemon.folders.session(&doc.id).join("about");
    let text = text(doc, &daemon.network_text(doc));
    replace(&folder.join("COWORK.md"), text.as_bytes())
        .map_err(|error| Trouble::of_disk("cannot write what the session is told", &error))
}

/// Writes `COWORK.md` anew after something was done, which a full disk does not undo.
pub(crate) fn refresh(daemon: &Daemon, doc: &Doc) {
    if let Err(trouble) = write(daemon, doc) {
        let data = json!({ "reason": trouble.line() });
        daemon.book.note("session.untold", Some(&doc.id), &data);
    }
}

/// What `session.json` says of a session, for people.
pub(crate) fn summary(doc: &Doc) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(doc).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Writes `session.json`.
pub(crate) fn write_summary(daemon: &Daemon, id: &str, summary: &[u8]) -> std::io::Result<()> {
    replace(&daemon.folders.session(id).join("session.json"), summary)
}

/// Replaces a file whole. The two change places, and the old one is removed: a file that is put in the
/// place of another one is written to the disk at once by some file systems, which takes longer than
/// all the rest. What is written here can be made again.
fn replace(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    std::fs::write(&new, contents)?;
    match renameat_with(CWD, &new, CWD, path, RenameFlags::EXCHANGE) {
        Ok(()) => std::fs::remove_file(&new),
        // It is the first one, or the file system cannot do that.
        Err(_) => std::fs::rename(&new, path),
    }
}

fn text(doc: &Doc, network: &str) -> String {
    let home = doc.folder();
    let mut text = format!(
        "# Where you are\n\n\
         You work in a session of your own, `{id}`: a computer inside the user's computer. {seen}\n\n\
         | place | what it is for | variable |\n|---|---|---|\n\
         | `{home}` | your home and scratch space; private | `COWORK_HOME` |\n\
         | `/tmp` | scratch space in memory; private | `COWORK_SCRATCH` |\n\
         | `{home}/mnt/outputs` | deliverables: put what the user shall get here | \
         `COWORK_OUTPUTS` |\n\
         | `{home}/mnt/uploads` | files the user gave you; read only | `COWORK_UPLOADS` |\n\
         | `{home}/mnt/skills` | skills; read only | `COWORK_SKILLS` |\n",
        id = doc.id,
        seen = match doc.spec.view {
            None => "You see the folders below and nothing else of it.",
            Some(_) => "You see its files at their own paths, and can change the folders below.",
        },
    );
    let granted: Vec<_> = doc.grants.iter().filter(|kept| kept.phase != Phase::Removing).collect();
    text.push_str("\n# Folders of the user\n\n");
    if granted.is_empty() {
        text.push_str("None at the moment.\n");
    }
    let workspace = workspace(doc);
    for kept in granted {
        let access = match kept.grant.access {
            Access::Read => "read only",
            Access::Write => "you may change it",
            Access::Direct => "you may change it, and nothing of that can be undone",
            Access::Staged => "you may change it; the user decides later what becomes of that",
        };
        let at = &kept.grant.at;
        let is_workspace = workspace.as_ref() == Some(at);
        let role = if is_workspace { ", your workspace (`COWORK_WORKSPACE`)" } else { "" };
        cowork_sys::ignore(writeln!(text, "- `{at}`: {access}{role}"));
    }
    text.push_str(network);
    let ask = "\n# Asking for a folder\n\n\
               Describe what you need and why; the user chooses and answers. The call waits for \
               the answer, up to the seconds you give:\n\n\
               ```sh\n\
               curl --unix-socket /run/cowork.sock http://cowork/v1/ask --json \\\n  \
               '{\"wanted\": \"the folder with the invoices\", \"reason\": \"to add them up\", \
               \"access\": \"ro\", \"wait\": 300}'\n\
               ```\n\n\
               `GET /v1/ask/NUMBER` tells what became of it, `GET /v1/folders` what you have now. \
               This file is kept up to date.\n";
    text.push_str(ask);
    text
}

/// The folder that a session's work is in: not the one that an agent's program is in.
pub(crate) fn workspace(doc: &Doc) -> Option<String> {
    let is_program = |kept: &KeptGrant| {
        kept.grant.access == Access::Read && kept.grant.name.starts_with(SHOWN_AS)
    };
    let mut there = doc.grants.iter().filter(|kept| kept.phase != Phase::Removing);
    let first = there.find(|kept| !is_program(kept))?;
    Some(first.grant.at.clone())
}
