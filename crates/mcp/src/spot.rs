//! Paths that a model names, parsed once: a place below one of the folders that a session was
//! given, named as commands in the session name it.
//!
//! Invariant: `below` has neither `..` nor an empty component, so it stays below its root whatever
//! it is joined to. What lies on the way (links, special files) is judged where it is opened.

use crate::refusal::Refusal;
use crate::text::line;
use cowork_client::types::{Access, Session};

/// Longest path, in bytes.
const MAX_PATH: usize = 4096;

/// A place below one of a session's folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The folder: `outputs`, `uploads`, or the name of a grant.
    pub(crate) root: String,
    /// The path below it; empty for the folder itself.
    pub(crate) below: String,
    /// What the session may do there.
    pub(crate) access: Access,
    /// The same place as the session sees it.
    pub(crate) inside: String,
}

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// The folder of all folders.
    Top,
    /// A place below one of them.
    Spot(Spot),
}

/// The folder of all of a session's folders, as it sees it.
pub(crate) fn top(session: &Session) -> String {
    format!("{}/mnt", session.folder)
}

/// Finds what a path names.
pub(crate) fn find(session: &Session, path: &str) -> Result<Named, Refusal> {
    let bad = |sentence: &str| Refusal::new("bad-path", sentence.to_owned());
    if path.is_empty() || path.len() > MAX_PATH || path.contains('\0') {
        return Err(bad(&format!("a path has 1 to {MAX_PATH} bytes, none of them NUL")));
    }
    let top = top(session);
    let outside = || {
        let sentence = format!("`{}` is not in a folder of the session's", line(path, 200));
        Refusal::new("outside", sentence).with_hint(format!(
            "file tools reach {top}/NAME for granted folders, outputs and uploads; other files of \
             the session are reached with run_command"
        ))
    };
    let rest = if path.starts_with('/') {
        let rest = path.strip_prefix(&top).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        rest.ok_or_else(outside)?
    } else {
        let rest = path.strip_prefix("./").unwrap_or(path);
        let rest = rest.strip_prefix("mnt");
        rest.filter(|rest| rest.is_empty() || rest.starts_with('/')).ok_or_else(outside)?
    };
    let parts = rest.split('/').filter(|part| !matches!(*part, "" | "."));
    let parts: Vec<&str> = parts.collect();
    if parts.contains(&"..") {
        return Err(bad("a path must not contain `..`").with_hint("name the place itself"));
    }
    let Some((root, below)) = parts.split_first() else { return Ok(Named::Top) };
    let access = access(session, root).ok_or_else(|| {
        let sentence = format!("the session has no folder `{}`", line(root, 200));
        Refusal::new("no-root", sentence).with_hint(
            "list_files without a path lists them; request_cowork_directory asks for one",
        )
    })?;
    let below = below.join("/");
    let inside =
        if below.is_empty() { format!("{top}/{root}") } else { format!("{top}/{root}/{below}") };
    Ok(Named::Spot(Spot { root: (*root).to_owned(), below, access, inside }))
}

/// What a session may do with one of its folders.
fn access(session: &Session, root: &str) -> Option<Access> {
    match root {
        "outputs" => Some(Access::Direct),
        "uploads" => Some(Access::Read),
        name => session.grants.iter().find(|grant| grant.name == name).map(|grant| grant.access),
    }
}

/// A file, or something below a folder: never a folder of the session itself.
pub(crate) fn file(session: &Session, path: &str) -> Result<Spot, Refusal> {
    match find(session, path)? {
        Named::Spot(spot) if !spot.below.is_empty() => Ok(spot),
        Named::Top | Named::Spot(_) => {
            Err(Refusal::new("is-folder", "it is a folder").with_hint("list it with list_files"))
        }
    }
}

impl Spot {
    /// Refuses what the session may only read.
    pub(crate) fn writable(&self) -> Result<(), Refusal> {
        match self.access {
            Access::Write | Access::Direct | Access::Staged => Ok(()),
            Access::Read => {
                let sentence = format!("the folder `{}` can only be read", self.root);
                Err(Refusal::new("read-only", sentence).with_hint(
                    "write to mnt/outputs, or ask for the folder with request_cowork_directory \
                     and access `rw`",
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Named, file, find};
    use cowork_client::types::Session;
    use serde_json::json;

    fn session() -> Session {
        let grant = |name: &str, access: &str| {
            json!({ "name": name, "path": "/home/me/x", "at": "", "access": access, "granted": "",
                    "submounts": [], "request": null, "sensitive": null })
        };
        serde_json::from_value(json!({
            "id": "able-bohr", "state": "ready", "reason": null, "tier": "native",
            "profile": "strict", "life": "kept", "created": "", "changed": "", "labels": {},
            "folder": "/sessions/able-bohr", "outputs": null, "uploads": null,
            "grants": [grant("site", "rw"), grant("old", "ro")], "limits": [], "enforcement": [],
            "sandbox": null, "running": [], "commands": 0, "pending": 0,
        }))
        .expect("it is a session")
    }

    #[test]
    fn a_path_is_named_as_in_the_session() {
        let table = [
            ("mnt/site/a/b.txt", "site", "a/b.txt"),
            ("./mnt/site//a/./b.txt", "site", "a/b.txt"),
            ("/sessions/able-bohr/mnt/old/x", "old", "x"),
            ("mnt/outputs/", "outputs", ""),
        ];
        for (path, root, below) in table {
            let Ok(Named::Spot(spot)) = find(&session(), path) else { panic!("{path}") };
            assert_eq!((spot.root.as_str(), spot.below.as_str()), (root, below), "{path}");
            assert!(spot.inside.starts_with("/sessions/able-bohr/mnt/"));
        }
        assert_eq!(find(&session(), "mnt"), Ok(Named::Top));
        assert_eq!(find(&session(), "/sessions/able-bohr/mnt/"), Ok(Named::Top));
    }

    #[test]
    fn what_leads_elsewhere_is_refused() {
        let table = [
            ("", "bad-path"),
            ("mnt/site/../../etc/passwd", "bad-path"),
            ("mnt/site/a\0b", "bad-path"),
            ("/etc/passwd", "outside"),
            ("/proc/self/environ", "outside"),
            ("/sessions/able-bohr/mntx/a", "outside"),
            ("/sessions/other/mnt/site/a", "outside"),
            ("notes.txt", "outside"),
            ("mntx/site", "outside"),
            ("mnt/none/a", "no-root"),
            ("mnt/../etc", "bad-path"),
        ];
        for (path, code) in table {
            let refused = find(&session(), path).expect_err(path);
            assert_eq!(refused.code, code, "{path}");
        }
        assert_eq!(file(&session(), "mnt/site").expect_err("a folder").code, "is-folder");
        let old = file(&session(), "mnt/old/a").expect("it is named");
        assert_eq!(old.writable().expect_err("read-only").code, "read-only");
    }
}
