//! Undo, redo, and what becomes of staged changes.
//!
//! One at a time: a log has one writer. A session stands still while its folders are changed.

use super::audit::Occasion;
use super::clerk::{Meanwhile, misfit};
use super::show;
use super::store::Store;
use crate::daemon::Daemon;
use crate::session::{Session, has_sandbox};
use crate::trouble::Trouble;
use cowork_api::files::{Report, Selection, Sets, Work};
use cowork_api::keeper::Request;
use cowork_client::types::{
    Access, Apply, ChangedFolder, Discard, Discarded, OnConflict, Redo, Restored, Undo,
};
use cowork_sandbox::folder::Folder;
use cowork_session::life::Misfit;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Held by whoever changes folders by way of a store.
static AT_WORK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
/// The folder of a store that staged changes are in, by the grant's name.
const STAGED: &str = "staged";
/// Most conflicts that a problem names.
const MAX_NAMED: usize = 20;

/// Something to be carried out.
struct Task {
    /// Its name in the record.
    kind: &'static str,
    work: Work,
    on_conflict: OnConflict,
    dry_run: bool,
    asked: Value,
    /// What is said if there is nothing to do.
    nothing: Trouble,
}

impl Daemon {
    /// Brings back what was before.
    pub(crate) async fn undo(self: &Arc<Self>, id: &str, undo: Undo) -> Result<Restored, Trouble> {
        let store = self.store(id)?;
        if undo.all && !undo.sets.is_empty() {
            return Err(Trouble::refused("bad-sets", "either all sets are meant, or some"));
        }
        let paths = store.entry.places(&undo.paths)?;
        let sets = match (undo.sets.is_empty(), undo.all, paths.is_empty()) {
            (false, ..) => Sets::Numbers(undo.sets.clone()),
            (true, false, true) => Sets::Last,
            (true, true, _) | (true, false, false) => Sets::All,
        };
        let work = Work::Undo {
            selection: Selection { sets, paths },
            choice: show::choice(undo.on_conflict),
            rehearsal: undo.dry_run,
        };
        let asked = json!({
            "paths": undo.paths, "sets": undo.sets, "all": undo.all,
            "on_conflict": undo.on_conflict,
        });
        let nothing = Trouble::conflict("nothing-to-undo", "there is nothing to undo there")
            .with_hint("see `cowork changes`");
        let (on_conflict, dry_run) = (undo.on_conflict, undo.dry_run);
        let kind = "changes.undone";
        self.restore(&store, Task { kind, work, on_conflict, dry_run, asked, nothing }).await
    }

    /// Undoes the last undo.
    pub(crate) async fn redo(self: &Arc<Self>, id: &str, redo: &Redo) -> Result<Restored, Trouble> {
        let store = self.store(id)?;
        let (on_conflict, dry_run) = (redo.on_conflict, redo.dry_run);
        let work = Work::Redo { choice: show::choice(on_conflict), rehearsal: dry_run };
        let asked = json!({ "on_conflict": on_conflict });
        let nothing = Trouble::conflict("nothing-to-redo", "there is no undo that is not redone")
            .with_hint("see `cowork changes`");
        let kind = "changes.redone";
        self.restore(&store, Task { kind, work, on_conflict, dry_run, asked, nothing }).await
    }

    /// Carries staged changes over into their folders.
    pub(crate) async fn apply(
        self: &Arc<Self>,
        id: &str,
        apply: Apply,
    ) -> Result<Restored, Trouble> {
        let store = self.store(id)?;
        refuse_unstaged(&store)?;
        let paths = store.entry.places(&apply.paths)?;
        let (on_conflict, dry_run) = (apply.on_conflict, apply.dry_run);
        let work = Work::Apply { paths, choice: show::choice(on_conflict), rehearsal: dry_run };
        let asked = json!({ "paths": apply.paths, "on_conflict": on_conflict });
        let nothing = Trouble::conflict("nothing-to-apply", "nothing is staged there")
            .with_hint("see `cowork changes`");
        let kind = "changes.applied";
        self.restore(&store, Task { kind, work, on_conflict, dry_run, asked, nothing }).await
    }

    /// Recorded before and after: what cannot be recorded is not done.
    async fn restore(self: &Arc<Self>, store: &Store, task: Task) -> Result<Restored, Trouble> {
        let Task { kind, work, on_conflict, dry_run, asked, nothing } = task;
        let _turn = match &store.session {
            Some(session) if !dry_run => Some(session.turn.lock().await),
            _ => None,
        };
        let _work = AT_WORK.lock().await;
        let id = Some(store.entry.session.as_str());
        if !dry_run {
            let data = json!({ "store": store.name, "what": kind, "asked": asked });
            self.book.record("changes.asked", id, &data)?;
        }
        let meanwhile = if dry_run { Meanwhile::GoesOn } else { Meanwhile::StandsStill };
        let report = self.clerk(store, work, meanwhile).await?;
        let Report::Restored(report) = report else { return Err(misfit()) };
        let restored = show::restored(&store.entry, report);
        if restored.names == 0 && restored.conflicts.is_empty() && restored.lost.is_empty() {
            return Err(nothing);
        }
        if dry_run {
            return Ok(restored);
        }
        let conflicts = on_conflict == OnConflict::Refuse && !restored.conflicts.is_empty();
        if conflicts && restored.set.is_none() {
            return Err(conflict(&restored));
        }
        let data = json!({
            "store": store.name, "set": restored.set, "names": restored.names,
            "conflicts": restored.conflicts.len(), "lost": restored.lost.len(),
        });
        // It is done, and that it was asked for is recorded.
        drop(self.book.record(kind, id, &data));
        if let Some(session) = &store.session {
            let (daemon, session) = (Arc::clone(self), Arc::clone(session));
            tokio::spawn(async move { daemon.audit_changes(&session, Occasion::End).await });
        }
        Ok(restored)
    }

    /// Throws staged changes away, of whole folders.
    pub(crate) async fn discard_staged(
        self: &Arc<Self>,
        id: &str,
        discard: &Discard,
    ) -> Result<Discarded, Trouble> {
        let store = self.store(id)?;
        refuse_unstaged(&store)?;
        let places = store.entry.places(&discard.paths)?;
        if let Some(place) = places.iter().find(|place| !place.path.is_empty()) {
            let sentence = format!("`{}` is a part of a folder", store.entry.host(place).lossy());
            return Err(Trouble::refused("bad-path", sentence)
                .with_hint("staged changes are discarded folder by folder"));
        }
        let meant = |folder: &&ChangedFolder| {
            places.is_empty() || places.iter().any(|place| place.grant == folder.grant)
        };
        let _turn = match &store.session {
            Some(session) => Some(session.turn.lock().await),
            None => None,
        };
        let _work = AT_WORK.lock().await;
        let mut folders = Vec::new();
        for folder in store.entry.grants.iter().filter(meant) {
            if self.discard_folder(&store, folder).await? {
                folders.push(folder.clone());
            }
        }
        if folders.is_empty() {
            return Err(Trouble::conflict("nothing-to-apply", "nothing is staged there")
                .with_hint("see `cowork changes`"));
        }
        Ok(Discarded { folders })
    }

    /// Throws the staged changes of one folder away; whether there can have been any.
    async fn discard_folder(
        self: &Arc<Self>,
        store: &Store,
        folder: &ChangedFolder,
    ) -> Result<bool, Trouble> {
        let id = Some(store.entry.session.as_str());
        let data = json!({ "store": store.name, "name": folder.grant, "path": folder.path });
        let session = store.live();
        let kept = session.and_then(|session| {
            let doc = session.doc();
            let granted = doc.grants.iter().find(|kept| kept.grant.name == folder.grant);
            let staged = granted.filter(|kept| kept.grant.access == Access::Staged)?;
            Some((doc.clone(), staged.clone()))
        });
        if let (Some(session), Some((doc, kept))) = (session, kept) {
            self.book.record("changes.discarded", id, &data)?;
            let grant = cowork_policy::plan::grant(&self.grant_request(&doc, &kept)?);
            // A staged folder that is granted anew is as its folder is.
            let request = Request::Regrant { session: session.id.clone(), grant };
            self.engine.call(request).await?;
            return Ok(true);
        }
        let Ok(staged) = Folder::open(&store.path.join(STAGED).join(&folder.grant)) else {
            return Ok(false);
        };
        self.book.record("changes.discarded", id, &data)?;
        let path = staged.path().as_os_str().as_bytes().to_vec();
        self.engine.call(Request::RemoveHome { path, folder: staged.identity() }).await?;
        Ok(true)
    }

    /// From now on changes in a session belong to new sets.
    pub(crate) async fn boundary(self: &Arc<Self>, session: &Session) -> Result<(), Trouble> {
        if !has_sandbox(session.state()) {
            return Err(Misfit::NotLive(session.state()).into());
        }
        self.engine.call(Request::Boundary { session: session.id.clone() }).await.map(drop)
    }

    /// Nobody restores anything meanwhile.
    pub(super) async fn stores_at_rest(&self) -> tokio::sync::MutexGuard<'static, ()> {
        AT_WORK.lock().await
    }
}

fn refuse_unstaged(store: &Store) -> Result<(), Trouble> {
    if store.entry.staged {
        return Ok(());
    }
    let sentence = format!("session `{}` has no staged folder", store.entry.session);
    Err(Trouble::conflict("not-staged", sentence)
        .with_hint("changes of `rw` folders are made at once: see `cowork undo`"))
}

fn conflict(restored: &Restored) -> Trouble {
    let count = restored.conflicts.len();
    let sentence = match count {
        1 => "nothing was done: one name was changed since".to_owned(),
        many => format!("nothing was done: {many} names were changed since"),
    };
    let named = restored.conflicts.iter().take(MAX_NAMED);
    let named = named.map(|conflict| {
        format!("{}: now {}, before {}", conflict.host.lossy(), conflict.now, conflict.before)
    });
    let mut named: Vec<String> = named.collect();
    if count > MAX_NAMED {
        named.push(format!("and {} more", count - MAX_NAMED));
    }
    Trouble::conflict("conflict", sentence)
        .with_cause(named.join("; "))
        .with_hint("choose: `ours` leaves what is there now, `theirs` brings back what was, `both`")
}
