//! Stores: made when a session first may write, found by the session's id as long as they are kept.

use super::clerk::Origins;
use super::kept::Entry;
use crate::book::now;
use crate::daemon::Daemon;
use crate::folders;
use crate::session::{Session, has_sandbox};
use crate::trouble::Trouble;
use cowork_api::files::{Away, Kept};
use cowork_api::keeper::Request;
use cowork_api::plan::Identity;
use cowork_client::types::{Access, ChangedFolder, Grant};
use cowork_sandbox::away;
use cowork_sandbox::folder::Folder;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A store, and the session that it is of while that is there.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) entry: Entry,
    pub(crate) session: Option<Arc<Session>>,
}

impl Store {
    /// As the keeper is told of it.
    pub(crate) fn kept(&self) -> Kept {
        let folder = Identity { device: self.entry.device, inode: self.entry.inode };
        Kept { path: self.path.as_os_str().as_bytes().to_vec(), folder }
    }

    /// The session, while there is a sandbox that could write.
    pub(crate) fn live(&self) -> Option<&Arc<Session>> {
        self.session.as_ref().filter(|session| has_sandbox(session.state()))
    }
}

/// Whether changes of a folder are recorded or kept beside it.
pub(crate) fn is_recorded(access: Access) -> bool {
    match access {
        Access::Write | Access::Staged => true,
        Access::Read | Access::Direct => false,
    }
}

/// The name under which the catalogue keeps a store.
fn key(name: &str) -> String {
    format!("changes/{name}")
}

impl Daemon {
    /// The folder that stores are in.
    pub(super) fn stores_folder(&self) -> PathBuf {
        self.folders.state.join("changes")
    }

    /// Sees to it that a session has a store if it may write, and that the store knows which
    /// folders are meant. Grants that are about to be given come beside those that the session has.
    pub(crate) fn ensure_store(&self, session: &Session, about: &[&Grant]) -> Result<(), Trouble> {
        let doc = session.doc();
        let granted = doc.grants.iter().map(|kept| &kept.grant).chain(about.iter().copied());
        let granted: Vec<&Grant> = granted.filter(|grant| is_recorded(grant.access)).collect();
        if granted.is_empty() {
            return Ok(());
        }
        let digits: String = doc.created.chars().filter(char::is_ascii_digit).collect();
        let name = doc.changes.store.clone().unwrap_or_else(|| format!("{}-{digits}", doc.id));
        let path = self.stores_folder().join(&name);
        folders::make(&self.stores_folder())?;
        folders::make(&path)?;
        let folder = Folder::open(&path)
            .map_err(|error| Trouble::host("the store of changes cannot be used", error))?;
        let identity = folder.identity();
        let known = self.entry(&name)?;
        let mut entry = known.clone().unwrap_or_else(|| Entry {
            session: doc.id.clone(),
            created: doc.created.clone(),
            device: 0,
            inode: 0,
            grants: Vec::new(),
            staged: false,
            ended: None,
            removing: false,
            commands: std::collections::BTreeMap::new(),
            tasks: std::collections::BTreeMap::new(),
        });
        (entry.device, entry.inode) = (identity.device, identity.inode);
        for grant in granted {
            entry.staged |= grant.access == Access::Staged;
            let folder = ChangedFolder { grant: grant.name.clone(), path: grant.path.clone() };
            if !entry.grants.contains(&folder) {
                entry.grants.push(folder);
            }
        }
        if known.as_ref() != Some(&entry) {
            self.put_entry(&name, &entry)?;
        }
        if doc.changes.store.is_none() {
            session.change(&self.book, |doc| doc.changes.store = Some(name))?;
        }
        Ok(())
    }

    /// What the catalogue knows of a store.
    fn entry(&self, name: &str) -> Result<Option<Entry>, Trouble> {
        let text = self.book.catalogue.get(&key(name))?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    fn put_entry(&self, name: &str, entry: &Entry) -> Result<(), Trouble> {
        let text = serde_json::to_string(entry)
            .map_err(|error| Trouble::host("cannot write down a store of changes", error))?;
        Ok(self.book.catalogue.set(&key(name), &text)?)
    }

    fn store_named(&self, name: String, entry: Entry) -> Store {
        let session = self.find(&entry.session);
        let session = session.filter(|session| session.doc().changes.store.as_ref() == Some(&name));
        // The keeper is told where it really lies.
        let path = self.stores_folder().join(&name);
        let path = Folder::open(&path).map_or(path, |folder| folder.path().to_path_buf());
        Store { name, path, entry, session }
    }

    /// A store as the keeper is told of it.
    pub(super) fn kept_store(&self, name: &str) -> Result<Option<Kept>, Trouble> {
        let entry = self.entry(name)?;
        Ok(entry.map(|entry| self.store_named(name.to_owned(), entry).kept()))
    }

    /// The store of a session, if it has one.
    pub(super) fn store_of(&self, session: &Session) -> Result<Option<Store>, Trouble> {
        let Some(name) = session.doc().changes.store else { return Ok(None) };
        Ok(self.entry(&name)?.map(|entry| self.store_named(name, entry)))
    }

    /// Every store, the newest session first.
    pub(super) fn stores(&self) -> Result<Vec<Store>, Trouble> {
        let mut stores = self.stores_on_disk()?;
        stores.retain(|store| !store.entry.removing);
        Ok(stores)
    }

    /// The same, with those that are being removed.
    pub(super) fn stores_on_disk(&self) -> Result<Vec<Store>, Trouble> {
        let mut stores = Vec::new();
        for found in std::fs::read_dir(self.stores_folder()).into_iter().flatten().flatten() {
            let Ok(name) = found.file_name().into_string() else { continue };
            if let Some(entry) = self.entry(&name)? {
                stores.push(self.store_named(name, entry));
            }
        }
        stores.sort_by(|one, other| other.entry.created.cmp(&one.entry.created));
        Ok(stores)
    }

    /// The store of a session that is there, or of the last one of that id.
    pub(crate) fn store(&self, id: &str) -> Result<Store, Trouble> {
        if let Some(session) = self.find(id) {
            return self.store_of(&session)?.ok_or_else(|| {
                let sentence = format!("nothing that session `{id}` does is recorded");
                Trouble::missing("no-store", sentence)
                    .with_hint("it has no folder that is granted `rw` or `staged`")
            });
        }
        let mut stores = self.stores()?.into_iter();
        stores.find(|store| store.entry.session == id).ok_or_else(|| {
            let sentence = format!("there is no session `{}`", id.escape_debug());
            Trouble::missing("no-session", sentence)
                .with_hint("see `cowork ls`, and `cowork history` for those that are gone")
        })
    }

    /// The session of a store is being removed: what it changed is kept for a while, if it changed
    /// something.
    pub(crate) async fn end_store(self: &Arc<Self>, session: &Session) {
        let Ok(Some(mut store)) = self.store_of(session) else { return };
        let audited = session.doc().changes.audited;
        // What could not be looked at is kept.
        let nothing = audited.seq == 0 && audited.length == super::audit::length(&store.path);
        if nothing && !store.entry.staged && self.remove_store(&store).await.is_ok() {
            return;
        }
        let Origins { commands, tasks } = self.origins_of_sets(&store).await.unwrap_or_default();
        (store.entry.commands, store.entry.tasks) = (commands, tasks);
        store.entry.ended = Some(now());
        drop(self.put_entry(&store.name, &store.entry));
    }

    /// Removes a store with everything in it.
    pub(super) async fn remove_store(self: &Arc<Self>, store: &Store) -> Result<(), Trouble> {
        // Nobody looks into one that is only partly there.
        self.put_entry(&store.name, &Entry { removing: true, ..store.entry.clone() })?;
        for away in away::all_in(&store.path) {
            if !self.clear_away(&away).await {
                // Its disk is not there, or says no: another day.
                cowork_sys::ignore(away::remember(&self.folders.state, &away));
            }
        }
        // An empty one needs no help.
        if rustix::fs::rmdir(&store.path).is_err() {
            let Kept { path, folder } = store.kept();
            let request = Request::RemoveHome { path, folder };
            self.engine.call(request).await?;
        }
        self.book.catalogue.unset(&key(&store.name))?;
        Ok(())
    }

    /// Removes the trash that a store has on another mount. Whether it is gone.
    async fn clear_away(self: &Arc<Self>, away: &Away) -> bool {
        match away::look(away) {
            away::State::Absent => return false,
            away::State::Gone => {}
            away::State::There(folder) => {
                let path = away::path(away).as_os_str().as_bytes().to_vec();
                let removed = self.engine.call(Request::RemoveHome { path, folder }).await;
                // The keeper may not see what was mounted after it started.
                if removed.is_err() || away::look(away) != away::State::Gone {
                    return false;
                }
            }
        }
        away::remove_around(away);
        true
    }

    /// Removes trashes of stores that are gone, where that was not possible when these were removed.
    pub(super) async fn clear_left_away(self: &Arc<Self>) {
        for away in away::all_in(&self.folders.state) {
            if self.clear_away(&away).await {
                cowork_sys::ignore(away::forget(&self.folders.state, &away));
            }
        }
    }

    /// A store whose session went without a word has ended.
    pub(super) fn end_lost_stores(&self) -> Result<(), Trouble> {
        for store in self.stores()? {
            if store.session.is_none() && store.entry.ended.is_none() {
                let entry = Entry { ended: Some(now()), ..store.entry };
                self.put_entry(&store.name, &entry)?;
            }
        }
        Ok(())
    }
}
