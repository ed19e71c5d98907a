//! Looking at what was changed.

use super::authors::Authors;
use super::clerk::{Meanwhile, misfit};
use super::show;
use super::store::Store;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_api::files::{Change, Mutation, Place, Report, Selection, SetInfo, Sets, Work};
use cowork_api::keeper::{Reply, Request};
use cowork_client::types::{ChangeSet, Changes, Difference, History, SessionHistory};
use cowork_sandbox::away;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest differences that are shown at once, in bytes.
const MAX_DIFFERENCES: u64 = 32 * 1024 * 1024;
/// Most sessions that a history tells of, the newest first.
const MAX_SESSIONS: usize = 200;
/// Most changes of a session that are looked through for a path.
const MAX_MUTATIONS: u32 = 1_000_000;
/// Most files that are looked at to say how much disk is taken.
const MAX_FILES: u64 = 1_000_000;

/// What somebody wants to look at.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) set: Option<u32>,
    pub(crate) path: Option<PathBuf>,
    /// Only what one command did.
    pub(crate) command: Option<u32>,
}

impl Wanted {
    fn selection(&self, store: &Store) -> Result<Selection, Trouble> {
        let paths = self.path.as_deref().map(|path| store.entry.places_at(path)).transpose()?;
        let sets = self.set.map_or(Sets::All, |set| Sets::Numbers(vec![set]));
        Ok(Selection { sets, paths: paths.unwrap_or_default() })
    }
}

impl Daemon {
    /// What changed in a session's folders.
    pub(crate) async fn changes(
        self: &Arc<Self>,
        id: &str,
        wanted: &Wanted,
    ) -> Result<Changes, Trouble> {
        let store = self.store(id)?;
        let mut selection = wanted.selection(&store)?;
        if let Some(command) = wanted.command {
            let sets = self.sets(&store).await?;
            let commands = self.origins(&store, &sets)?.commands;
            let numbers: Vec<u32> = sets
                .iter()
                .map(|set| set.set)
                .filter(|set| wanted.set.is_none_or(|wanted| wanted == *set))
                .filter(|set| commands.get(set) == Some(&command))
                .collect();
            if numbers.is_empty() {
                let session = store.entry.session.clone();
                return Ok(Changes { session, sets: Vec::new(), changes: Vec::new() });
            }
            selection.sets = Sets::Numbers(numbers);
        }
        let (sets, changes, authors) = self.found(&store, selection).await?;
        if wanted.set.is_some_and(|wanted| !sets.iter().any(|known| known.set == wanted)) {
            return Err(no_set(wanted));
        }
        self.told(&store, sets, changes, authors)
    }

    /// What changed, and who changed it.
    async fn found(
        self: &Arc<Self>,
        store: &Store,
        selection: Selection,
    ) -> Result<(Vec<SetInfo>, Vec<Change>, Authors), Trouble> {
        let authors = self.authors(store, 0, Some(selection.clone()));
        let report = self.clerk(store, Work::Changes(selection), Meanwhile::GoesOn);
        let (report, authors) = tokio::join!(report, authors);
        let Report::Changes { sets, changes } = report? else { return Err(misfit()) };
        Ok((sets, changes, authors))
    }

    /// What commands changed since a moment.
    pub(crate) async fn changes_since(
        self: &Arc<Self>,
        id: &str,
        since: &str,
    ) -> Result<Changes, Trouble> {
        let store = self.store(id)?;
        let mut sets = self.sets(&store).await?;
        sets.retain(|set| {
            set.kind == cowork_api::files::SetKind::Command
                && show::moment(set.began).as_str() >= since
        });
        let session = store.entry.session.clone();
        if sets.is_empty() {
            return Ok(Changes { session, sets: Vec::new(), changes: Vec::new() });
        }
        let numbers = Sets::Numbers(sets.iter().map(|set| set.set).collect());
        let selection = Selection { sets: numbers, paths: Vec::new() };
        let (sets, changes, authors) = self.found(&store, selection).await?;
        self.told(&store, sets, changes, authors)
    }

    /// What a clerk found, as the API says it.
    fn told(
        &self,
        store: &Store,
        sets: Vec<SetInfo>,
        changes: Vec<Change>,
        mut authors: Authors,
    ) -> Result<Changes, Trouble> {
        let origins = self.origins(store, &sets)?;
        let shown = |change| show::change(&store.entry, change, &mut authors);
        let changes = changes.into_iter().map(shown);
        Ok(Changes {
            session: store.entry.session.clone(),
            changes: changes.collect(),
            sets: sets.into_iter().map(|set| show::set(set, &origins)).collect(),
        })
    }

    /// How contents differ from before.
    pub(crate) async fn differences(
        self: &Arc<Self>,
        id: &str,
        wanted: &Wanted,
    ) -> Result<Vec<Difference>, Trouble> {
        let store = self.store(id)?;
        let selection = wanted.selection(&store)?;
        let authors = self.authors(&store, 0, Some(selection.clone()));
        let work = Work::Differences { selection, most: MAX_DIFFERENCES };
        let report = self.clerk(&store, work, Meanwhile::GoesOn);
        let (report, mut authors) = tokio::join!(report, authors);
        let Report::Differences(differences) = report? else { return Err(misfit()) };
        let shown = |one| show::difference(&store.entry, one, &mut authors);
        Ok(differences.into_iter().map(shown).collect())
    }

    /// Which sessions changed something, at a path or anywhere.
    pub(crate) async fn history(self: &Arc<Self>, path: Option<&Path>) -> Result<History, Trouble> {
        if let Some(path) = path.filter(|path| !path.is_absolute()) {
            let sentence = format!("`{}` is not an absolute path", path.display());
            return Err(Trouble::refused("bad-path", sentence));
        }
        let stores = self.stores()?;
        let bytes = self.weigh_stores(&stores).await;
        let mut sessions = Vec::new();
        for store in &stores {
            if sessions.len() >= MAX_SESSIONS {
                break;
            }
            // What one session left does not hide what the others did.
            let sets = self.sets_at(store, path).await.unwrap_or_default();
            if !sets.is_empty() {
                sessions.push(SessionHistory {
                    session: store.entry.session.clone(),
                    created: store.entry.created.clone(),
                    ended: store.entry.ended.clone(),
                    sets,
                });
            }
        }
        Ok(History { kept: self.settings.changes, bytes, sessions })
    }

    /// The sets of a store that are about a path of the host.
    async fn sets_at(
        self: &Arc<Self>,
        store: &Store,
        path: Option<&Path>,
    ) -> Result<Vec<ChangeSet>, Trouble> {
        let places = match path {
            Some(path) => Some(store.entry.places_at(path)?),
            None => None,
        };
        let mut sets = self.sets(store).await?;
        let origins = self.origins(store, &sets)?;
        if let (Some(path), Some(places)) = (path, places) {
            if places.iter().all(|place| place.path.is_empty()) {
                let below = |folder: &(String, Vec<u8>)| {
                    Path::new(OsStr::from_bytes(&folder.1)).starts_with(path)
                };
                sets.retain(|set| set.folders.iter().any(below));
            } else {
                let work = Work::Mutations { after: 0, most: MAX_MUTATIONS, looked: u64::MAX };
                let report = self.clerk(store, work, Meanwhile::GoesOn).await?;
                let Report::Mutations { mutations, .. } = report else { return Err(misfit()) };
                let about = mutations.iter().filter(|one| is_about(one, &places));
                let about: BTreeSet<u32> = about.map(|one| one.set).collect();
                sets.retain(|set| about.contains(&set.set));
            }
        }
        Ok(sets.into_iter().map(|set| show::set(set, &origins)).collect())
    }

    /// How many bytes of disk some stores take.
    pub(super) async fn weigh_stores(self: &Arc<Self>, stores: &[Store]) -> u64 {
        if stores.is_empty() {
            return 0;
        }
        let away = stores.iter().flat_map(|store| away::all_in(&store.path));
        let away = away.map(|away| away::path(&away).as_os_str().as_bytes().to_vec());
        let folders = stores.iter().map(|store| store.kept().path).chain(away).collect();
        match self.engine.call(Request::Weigh { folders, most: MAX_FILES }).await {
            Ok((Reply::Weighed(bytes), _)) => bytes,
            _ => 0,
        }
    }
}

/// Whether a change was made to one of these names, or below one.
fn is_about(mutation: &Mutation, places: &[Place]) -> bool {
    let below = |path: &[u8], place: &Place| {
        let (path, place) = (OsStr::from_bytes(path), OsStr::from_bytes(&place.path));
        Path::new(path).starts_with(place)
    };
    let grant = &mutation.at.grant;
    places.iter().filter(|place| place.grant == *grant).any(|place| {
        below(&mutation.at.path, place) || mutation.to.as_ref().is_some_and(|to| below(to, place))
    })
}

fn no_set(wanted: &Wanted) -> Trouble {
    let number = wanted.set.unwrap_or_default();
    Trouble::missing("no-changes", format!("there is no set {number}, or it changed nothing there"))
        .with_hint("see `cowork changes` without `--set`")
}

#[cfg(test)]
mod tests {
    use super::{Mutation, Place, is_about};

    #[test]
    fn both_names_of_a_rename_count() {
        let place = |path: &str| Place { grant: "work".into(), path: path.into() };
        let mutation = Mutation {
            seq: 1,
            time: 0,
            set: 1,
            process: 2,
            operation: "rename".into(),
            at: place("a/old"),
            to: Some(b"b/new".to_vec()),
            lost: None,
        };
        for path in ["a", "a/old", "b", "b/new", ""] {
            assert!(is_about(&mutation, &[place(path)]), "{path}");
        }
        for path in ["a/ol", "b/new/x", "c"] {
            assert!(!is_about(&mutation, &[place(path)]), "{path}");
        }
        let elsewhere = Place { grant: "other".into(), path: Vec::new() };
        assert!(!is_about(&mutation, &[elsewhere]));
    }
}
