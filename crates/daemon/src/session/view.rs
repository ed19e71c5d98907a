//! The host's files as a session sees them that was made so: looked at once, when it is made, and
//! shown the same whenever its sandbox is made again.
//!
//! Folders of the view whose changes are recorded are grants of the session, at their own paths;
//! they are neither given nor taken while it lives.

use super::doc::{self, Doc, KeptGrant, Phase};
use super::grants::Meant;
use crate::book::now;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_api::plan::{Identity, SessionPlan};
use cowork_client::types::{
    Access, Grant, NewSession, PlaceName, Raw, ReplacedFile, WritableAs, WritablePlace,
};
use cowork_policy::view::{ViewRequest, WritableRequest, show_host};
use cowork_policy::{GrantName, HostPath};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A view, as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptView {
    hidden: Vec<Raw>,
    shown: Vec<Pinned>,
    direct: Vec<Pinned>,
    scratch: Vec<Raw>,
    replaced: Vec<ReplacedFile>,
    /// Rules about names in place of the usual ones, by the name of the grant.
    names: BTreeMap<String, Vec<PlaceName>>,
}

/// A file or folder, as it was when the user named it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pinned {
    path: Raw,
    device: u64,
    inode: u64,
}

impl Pinned {
    fn request(&self) -> Result<(HostPath, Identity), Trouble> {
        let identity = Identity { device: self.device, inode: self.inode };
        Ok((doc::host_path(&self.path)?, identity))
    }
}

impl KeptView {
    /// Rules about names that a folder has in place of the usual ones.
    pub(crate) fn names(&self, grant: &str) -> Option<&[PlaceName]> {
        self.names.get(grant).map(Vec::as_slice)
    }
}

/// Refuses what changes the folders of a session that shows the host's files.
pub(crate) fn refuse_change(doc: &Doc) -> Result<(), Trouble> {
    if doc.spec.view.is_none() {
        return Ok(());
    }
    let sentence = "the folders of a session that shows the host's files are fixed when it is made";
    Err(Trouble::refused("folder-refused", sentence)
        .with_hint("make another session with other folders"))
}

impl Daemon {
    /// Checks the view of a session to make, and finds the folders in it whose changes are
    /// recorded.
    pub(super) fn judge_view(
        &self,
        new: &NewSession,
    ) -> Result<(Option<KeptView>, Vec<KeptGrant>), Trouble> {
        let Some(wanted) = &new.view else { return Ok((None, Vec::new())) };
        if !new.grants.is_empty() || new.workspace.is_some() {
            let sentence = "a session that shows the host's files has no other folders";
            return Err(Trouble::refused("bad-path", sentence)
                .with_hint("name the folders that it may change in the view"));
        }
        let mut kept = KeptView {
            hidden: wanted.hidden.iter().map(real).collect::<Result<_, _>>()?,
            scratch: wanted.scratch.iter().map(real).collect::<Result<_, _>>()?,
            ..KeptView::default()
        };
        for replaced in &wanted.replaced {
            let contents = replaced.contents.clone();
            kept.replaced.push(ReplacedFile { path: real(&replaced.path)?, contents });
        }
        for path in &wanted.shown {
            kept.shown.push(pin(path)?);
        }
        let mut grants: Vec<KeptGrant> = Vec::new();
        for place in &wanted.writable {
            let (pinned, sensitive) = self.judge_place(place)?;
            match place.access {
                WritableAs::Direct => kept.direct.push(pinned),
                WritableAs::Write => {
                    let mut grant = recorded(place, pinned, &grants)?;
                    grant.grant.sensitive = sensitive;
                    if let Some(names) = &place.names {
                        check_names(names)?;
                        kept.names.insert(grant.grant.name.clone(), names.clone());
                    }
                    grants.push(grant);
                }
            }
        }
        self.refuse_own_folders(&kept, &grants)?;
        Ok((Some(kept), grants))
    }

    /// Opens a place that the session is to change; a sensitive one must be meant.
    fn judge_place(&self, place: &WritablePlace) -> Result<(Pinned, Option<String>), Trouble> {
        crate::changes::check_writes(&place.writes)?;
        let pinned = pin(&place.path)?;
        let path = doc::path(&pinned.path)?;
        let is_folder = std::fs::metadata(&path).is_ok_and(|metadata| metadata.is_dir());
        if is_folder {
            let folder = Self::open_folder(&path)?;
            let access = match place.access {
                WritableAs::Write => cowork_policy::Access::Write,
                WritableAs::Direct => cowork_policy::Access::Direct,
            };
            let sensitive =
                self.refuse_sensitive(None, &folder, (access, Meant::from(place.force)))?;
            return Ok((pinned, sensitive));
        }
        if place.access == WritableAs::Write {
            let sentence = format!("`{}` is not a folder", path.display());
            return Err(Trouble::refused("not-folder", sentence)
                .with_hint("changes of a single file are not recorded: make it `direct`"));
        }
        Ok((pinned, None))
    }

    /// Where the daemon's own folders really are.
    fn own_folders(&self) -> Vec<PathBuf> {
        let own = [&self.folders.state, &self.folders.runtime];
        own.into_iter().map(|folder| resolve(folder)).collect()
    }

    /// Refuses to show anything of the daemon's own folders.
    fn refuse_own_folders(&self, view: &KeptView, grants: &[KeptGrant]) -> Result<(), Trouble> {
        let own = self.own_folders();
        let pinned = view.shown.iter().chain(&view.direct).map(|pinned| &pinned.path);
        let replaced = view.replaced.iter().map(|replaced| &replaced.path);
        let granted = grants.iter().map(|kept| &kept.grant.path);
        for path in pinned.chain(&view.scratch).chain(replaced).chain(granted) {
            let path = doc::path(path)?;
            if own.iter().any(|own| path.starts_with(own)) {
                let sentence = format!("`{}` is part of cowork's own state", path.display());
                return Err(Trouble::refused("folder-refused", sentence)
                    .with_hint("no session gets anything of it"));
            }
        }
        Ok(())
    }

    /// Shows a session the host's files, if it was made so. Its plan is otherwise whole.
    pub(super) fn show_host(&self, plan: &mut SessionPlan, doc: &Doc) -> Result<(), Trouble> {
        let Some(view) = &doc.spec.view else { return Ok(()) };
        let refused =
            |error: &dyn std::fmt::Display| Trouble::refused("bad-path", error.to_string());
        let mut hidden: Vec<HostPath> =
            view.hidden.iter().map(doc::host_path).collect::<Result<_, _>>()?;
        for own in self.own_folders() {
            hidden.push(HostPath::new(own).map_err(|error| refused(&error))?);
        }
        let mut writable = Vec::new();
        for pinned in &view.direct {
            let (path, file) = pinned.request()?;
            writable.push(WritableRequest::Direct { path, file });
        }
        for kept in doc.grants.iter().filter(|kept| kept.phase != Phase::Removing) {
            let request = self.grant_request(doc, kept)?;
            writable.push(WritableRequest::Write {
                path: request.path,
                folder: request.folder,
                name: request.name,
                store: request.writing.store,
                rules: request.writing.rules,
            });
        }
        let shown = view.shown.iter().map(Pinned::request).collect::<Result<_, _>>()?;
        let mut replaced = Vec::new();
        for file in &view.replaced {
            let contents = file.contents.bytes();
            let contents =
                contents.ok_or_else(|| Trouble::malformed("contents are not valid base64"))?;
            replaced.push((doc::host_path(&file.path)?, contents));
        }
        let scratch = view.scratch.iter().map(doc::host_path).collect::<Result<_, _>>()?;
        let request = ViewRequest { hidden, shown, writable, scratch, replaced };
        show_host(plan, &request, &cowork_sandbox::host::top()).map_err(|error| refused(&error))
    }
}

/// Where a path really leads; what does not exist stays as it is named.
fn real(raw: &Raw) -> Result<Raw, Trouble> {
    let path = doc::host_path(raw)?;
    Ok(doc::raw(&resolve(path.as_path())))
}

#[expect(clippy::disallowed_methods, reason = "what is meant; the keeper looks by handle again")]
fn resolve(path: &Path) -> PathBuf {
    match (std::fs::canonicalize(path), path.parent(), path.file_name()) {
        (Ok(real), ..) => real,
        (Err(_), Some(parent), Some(name)) => resolve(parent).join(name),
        (Err(_), ..) => path.to_path_buf(),
    }
}

/// Where a file or folder really lies that the user named, and which it is.
#[expect(clippy::disallowed_methods, reason = "what is meant; the keeper looks by handle again")]
fn pin(raw: &Raw) -> Result<Pinned, Trouble> {
    let path = doc::host_path(raw)?;
    let found = std::fs::canonicalize(path.as_path())
        .and_then(|real| std::fs::symlink_metadata(&real).map(|metadata| (real, metadata)));
    let (real, metadata) = found.map_err(|error| {
        let sentence = format!("cannot look at `{}`", path.as_path().display());
        Trouble::refused("bad-path", sentence).with_cause(error)
    })?;
    Ok(Pinned { path: doc::raw(&real), device: metadata.dev(), inode: metadata.ino() })
}

/// A folder of the view as a grant, under a name that no other has.
fn recorded(
    place: &WritablePlace,
    pinned: Pinned,
    others: &[KeptGrant],
) -> Result<KeptGrant, Trouble> {
    let path = doc::host_path(&pinned.path)?;
    let is_free = |name: &GrantName| {
        !name.is_reserved() && !others.iter().any(|kept| kept.grant.name == name.as_str())
    };
    let numbered = || {
        let numbers = 1..=others.len().saturating_add(1);
        numbers.filter_map(|number| format!("folder-{number}").parse().ok()).find(is_free)
    };
    let name = GrantName::from_path(&path).ok().filter(is_free).or_else(numbered);
    let name = name.ok_or_else(|| Trouble::refused("bad-name", "a folder has no name"))?;
    Ok(KeptGrant {
        grant: Grant {
            name: name.as_str().to_owned(),
            at: path.as_path().to_string_lossy().into_owned(),
            path: pinned.path,
            access: Access::Write,
            granted: now(),
            submounts: Vec::new(),
            request: None,
            sensitive: None,
            direct: Vec::new(),
            writes: place.writes.clone(),
            expires: None,
        },
        device: pinned.device,
        inode: pinned.inode,
        phase: Phase::Adding,
    })
}

fn check_names(names: &[PlaceName]) -> Result<(), Trouble> {
    for name in names {
        crate::changes::check_name(name)?;
    }
    Ok(())
}

/// What a view is, for the record; of replaced files only where they are.
pub(super) fn describe(view: &KeptView) -> serde_json::Value {
    let paths = |pinned: &[Pinned]| pinned.iter().map(|it| it.path.clone()).collect::<Vec<_>>();
    serde_json::json!({
        "hidden": view.hidden,
        "shown": paths(&view.shown),
        "direct": paths(&view.direct),
        "scratch": view.scratch,
        "replaced": view.replaced.iter().map(|file| &file.path).collect::<Vec<_>>(),
    })
}
