//! What a command sees of this host's files, and what it may change.
//!
//! Of two paths the deeper one counts, whatever it says; at the same path what is shown counts
//! before what is hidden, and what is hidden before what is written.

use super::ground::{Ground, Kind, Real, TooMuch, Walk, real};
use super::masks::Masks;
use super::wrong;
use crate::failure::{Failure, note};
use crate::request::raw;
use cowork_client::types::{
    NamePolicy, PlaceName, WantedCaps, WantedGuards, WantedView, WantedWrites, WritableAs,
    WritablePlace,
};
use cowork_srt::paths::{Meant, meant};
use cowork_srt::settings::{Entry, GitConfig};
use cowork_srt::writes::{self, Left, Name};
use cowork_srt::{Issue, Settings, Wrong};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Folders in the home that srt lets commands write to, if they are there.
const CONVENIENT: [&str; 2] = [".npm/_logs", ".claude/debug"];
/// Most rules about names of one folder that a view has.
const MAX_NAMES: usize = 200;
/// In these everything is the session's own.
const OWN: [&str; 4] = ["/dev", "/proc", "/sessions", "/sys"];

/// The view that settings describe.
pub(super) fn view(
    settings: &Settings,
    ground: &Ground,
    masks: &Masks,
    temporary: Option<&Path>,
) -> Result<WantedView, Failure> {
    let mut builder = Builder { settings, ground, walk: Walk::new() };
    let mut hidden = builder.all(&settings.filesystem.deny_read)?;
    hidden.extend(builder.all(&settings.credentials.files)?);
    let shown = builder.all(&settings.filesystem.allow_read)?;
    hidden.retain(|path, _| !shown.contains_key(path));
    let writable = builder.writable(&hidden, &shown, temporary)?;
    let mut places = Vec::new();
    for (path, found) in &writable {
        places.extend(builder.place(path, *found)?);
    }
    let secret = masks.replaced();
    let replaced: BTreeSet<_> = secret.iter().map(|file| file.path.clone()).collect();
    let written: BTreeSet<&PathBuf> = writable.keys().collect();
    let is_above = |path: &Path, above: &Path| path != above && path.starts_with(above);
    // What is shown matters where it would be hidden.
    let shown = shown.keys().filter(|path| {
        let hides = hidden.keys().filter(|hidden| is_above(path, hidden)).max();
        let writes = written.iter().filter(|written| is_above(path, written)).max();
        hides.is_some_and(|hides| writes.is_none_or(|writes| **writes < *hides))
            && !written.contains(path)
    });
    Ok(WantedView {
        shown: shown.map(|path| raw(path)).collect(),
        hidden: hidden
            .keys()
            .chain(&masks.hidden)
            .map(|path| raw(path))
            .filter(|path| !replaced.contains(path))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        writable: places,
        scratch: Vec::new(),
        replaced: secret,
    })
}

struct Builder<'a> {
    settings: &'a Settings,
    ground: &'a Ground,
    walk: Walk,
}

impl Builder<'_> {
    /// Everything that entries mean and that is there, with links followed.
    fn all(&mut self, entries: &[Entry]) -> Result<BTreeMap<PathBuf, Kind>, Failure> {
        let mut all = BTreeMap::new();
        for entry in entries {
            for found in self.found(entry)? {
                all.insert(found.path, found.kind);
            }
        }
        Ok(all)
    }

    fn found(&mut self, entry: &Entry) -> Result<Vec<Real>, Failure> {
        let Meant { path, pattern } = meant(entry, self.ground.places());
        let mut paths = vec![path];
        if let Some(pattern) = pattern {
            let matches = self.walk.matches(&pattern).map_err(|TooMuch| {
                let sentence = format!(
                    "there is too much below `{}` to find out what it matches",
                    pattern.folder.display()
                );
                wrong(&Wrong { issues: vec![Issue { key: entry.key.clone(), sentence }] })
            })?;
            paths.extend(matches);
        }
        Ok(paths.iter().filter_map(|path| real(path)).collect())
    }

    /// What may be written: what is named, what is matched, and what srt adds.
    fn writable(
        &mut self,
        hidden: &BTreeMap<PathBuf, Kind>,
        shown: &BTreeMap<PathBuf, Kind>,
        temporary: Option<&Path>,
    ) -> Result<BTreeMap<PathBuf, Writable>, Failure> {
        let mut writable: BTreeMap<PathBuf, Writable> = BTreeMap::new();
        let mut roots = Vec::new();
        for entry in &self.settings.filesystem.allow_write {
            let lexical = meant(entry, self.ground.places()).path;
            for found in self.found(entry)? {
                roots.push((lexical.clone(), found));
            }
        }
        for (lexical, found) in &roots {
            if let Some(root) = led_out(lexical, found, &roots, &self.ground.here) {
                note(&format!(
                    "`{}` leads out of `{}` by a link, and is not writable",
                    lexical.display(),
                    root.display()
                ));
                continue;
            }
            writable.insert(found.path.clone(), Writable { kind: found.kind, own: Own::Named });
        }
        let home = CONVENIENT.iter().map(|path| self.ground.home.join(path));
        for path in home.filter_map(|path| real(&path)) {
            let deepest = |all: &BTreeMap<PathBuf, Kind>| {
                let above = all.keys().filter(|above| path.path.starts_with(above));
                above.max().cloned()
            };
            // An explicit denial counts before what nobody asked for.
            if deepest(hidden) <= deepest(shown) {
                let own = Writable { kind: path.kind, own: Own::Added };
                writable.entry(path.path).or_insert(own);
            }
        }
        if let Some(path) = temporary {
            let own = Writable { kind: Kind::Folder, own: Own::Added };
            writable.entry(path.to_path_buf()).or_insert(own);
        }
        let is_own = |path: &Path| OWN.iter().any(|own| path.starts_with(own));
        writable.retain(|path, _| !hidden.contains_key(path) && !is_own(path));
        Ok(without_inner(&writable, hidden))
    }

    /// How a path is written; nothing if it is denied.
    fn place(&mut self, path: &Path, found: Writable) -> Result<Option<WritablePlace>, Failure> {
        let Some(mut names) = self.denied(path)? else { return Ok(None) };
        let direct = match (found.kind, found.own) {
            (Kind::File, _) => true,
            // Nobody undoes what is written there.
            (Kind::Folder, Own::Added) => names.is_empty(),
            (Kind::Folder, Own::Named) => false,
        };
        if direct {
            let below = path.strip_prefix(&self.ground.here);
            let is_mandatory = below.is_ok_and(writes::is_mandatory);
            let place = WritablePlace {
                path: raw(path),
                access: WritableAs::Direct,
                force: true,
                names: None,
                writes: WantedWrites::default(),
            };
            return Ok((!is_mandatory).then_some(place));
        }
        names.extend(writes::mandatory());
        names.extend(self.configurations(path, MAX_NAMES.saturating_sub(names.len()))?);
        if names.len() > MAX_NAMES {
            let sentence = format!(
                "there are {} denials for `{}`, and at most {MAX_NAMES} are possible",
                names.len(),
                path.display()
            );
            return Err(Failure::input(sentence, "deny the folder that they have in common"));
        }
        let names = names.into_iter().map(|Name { pattern, reason }| PlaceName {
            pattern,
            policy: NamePolicy::Deny,
            reason: Some(reason.to_owned()),
        });
        Ok(Some(WritablePlace {
            path: raw(path),
            access: WritableAs::Write,
            force: true,
            names: Some(names.collect()),
            // Nobody is asked: what is not denied is allowed.
            writes: WantedWrites {
                guards: WantedGuards { removals: Some(0), share: Some(0) },
                caps: WantedCaps { ask: Some(false), ..WantedCaps::default() },
                blocked: Some(Vec::new()),
                ..WantedWrites::default()
            },
        }))
    }

    /// The names below a path that `denyWrite` is about; nothing if it is about the path itself.
    fn denied(&self, path: &Path) -> Result<Option<Vec<Name>>, Failure> {
        let mut names = Vec::new();
        for entry in &self.settings.filesystem.deny_write {
            let meant = meant(entry, self.ground.places());
            let real = real(&meant.path).map(|real| real.path);
            let left = writes::denied(path, &entry.key, &meant, real.as_deref());
            match left.map_err(|issue| wrong(&Wrong { issues: vec![issue] }))? {
                Left::But(more) => names.extend(more),
                Left::Nothing => return Ok(None),
            }
        }
        Ok(Some(names))
    }

    /// The configurations of repositories that are there, unless they may be written, and each `.git`
    /// that is a file: it says which repository this is. Those of new ones can be written, or no
    /// repository could be made.
    fn configurations(&mut self, path: &Path, most: usize) -> Result<Vec<Name>, Failure> {
        let git_config = self.settings.filesystem.git_config;
        let repositories = self.walk.repositories(path);
        let names = repositories.map(|found| {
            let name = |found: Real| match (found.kind, git_config) {
                (Kind::Folder, GitConfig::Kept) => writes::one(path, &found.path.join("config")),
                (Kind::Folder, GitConfig::Writable) => None,
                (Kind::File, _) => writes::one(path, &found.path),
            };
            found.into_iter().filter_map(name).collect::<Vec<_>>()
        });
        match (names, git_config) {
            (Ok(names), _) if names.len() <= most => Ok(names),
            (_, GitConfig::Writable) => {
                let sentence = format!(
                    "`{}` has too many files or repositories to find each `.git` that is a file",
                    path.display()
                );
                Err(Failure::input(sentence, "leave out `allowGitConfig`, or allow less"))
            }
            (_, GitConfig::Kept) => {
                note(&format!(
                    "`{}` has too many files or repositories to tell new ones apart: no `.git` \
                     has its configuration changed there, and `git init` and `git clone` fail",
                    path.display()
                ));
                Ok(vec![writes::every_configuration()])
            }
        }
    }
}

/// Something that may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Writable {
    kind: Kind,
    own: Own,
}

/// Why something may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// The settings name it.
    Named,
    /// srt adds it.
    Added,
}

/// Drops what is writable already because of what it lies in.
fn without_inner(
    all: &BTreeMap<PathBuf, Writable>,
    hidden: &BTreeMap<PathBuf, Kind>,
) -> BTreeMap<PathBuf, Writable> {
    let is_inner = |path: &Path| {
        let above = |other: &Path| path != other && path.starts_with(other);
        let folder = all
            .iter()
            .filter(|(other, found)| above(other) && found.kind == Kind::Folder)
            .map(|(other, _)| other)
            .max();
        let hides = hidden.keys().filter(|hidden| above(hidden)).max();
        folder.is_some_and(|folder| hides.is_none_or(|hides| hides < folder))
    };
    let kept = all.iter().filter(|(path, _)| !is_inner(path));
    kept.map(|(path, found)| (path.clone(), *found)).collect()
}

/// The folder that something leads out of by a link: what is written to earlier could have made it.
fn led_out<'a>(
    lexical: &Path,
    found: &Real,
    roots: &'a [(PathBuf, Real)],
    here: &'a Path,
) -> Option<&'a Path> {
    let roots = roots.iter().map(|(_, root)| root.path.as_path()).chain([here]);
    let mut inside = roots.filter(|root| lexical != *root && lexical.starts_with(root));
    inside.find(|root| !found.path.starts_with(root))
}
