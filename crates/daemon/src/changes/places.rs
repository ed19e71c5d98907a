//! Paths that a user names, of the host or of the session, as names below granted folders.

use super::kept::Entry;
use crate::session::doc;
use crate::trouble::Trouble;
use cowork_api::files::Place;
use cowork_client::types::{ChangedFolder, Raw};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

impl Entry {
    /// What is meant by some paths; each may stand for several granted folders below it.
    pub(super) fn places(&self, paths: &[Raw]) -> Result<Vec<Place>, Trouble> {
        let mut places = Vec::new();
        for path in paths {
            places.extend(self.places_at(&doc::path(path)?)?);
        }
        places.sort();
        places.dedup();
        Ok(places)
    }

    /// What is meant by one path.
    pub(super) fn places_at(&self, path: &Path) -> Result<Vec<Place>, Trouble> {
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !path.is_absolute() || !path.components().all(plain) {
            let sentence = format!("`{}` is no absolute path without `..`", path.display());
            return Err(Trouble::refused("bad-path", sentence));
        }
        let inside = PathBuf::from(format!("/sessions/{}/mnt", self.session));
        let found = match path.strip_prefix(&inside) {
            Ok(below) => self.inside(below),
            Err(_) => self.outside(path),
        };
        if found.is_empty() {
            let sentence = format!("nothing is recorded about `{}`", path.display());
            let folders: Vec<String> =
                self.grants.iter().map(|folder| folder.path.lossy()).collect();
            let hint = format!("recorded are: {}", folders.join(", "));
            return Err(Trouble::missing("no-changes", sentence).with_hint(hint));
        }
        Ok(found)
    }

    fn inside(&self, below: &Path) -> Vec<Place> {
        let mut parts = below.components();
        let Some(Component::Normal(name)) = parts.next() else { return self.all() };
        let known = self.grants.iter().any(|folder| folder.grant.as_bytes() == name.as_bytes());
        let place = known.then(|| Place {
            grant: name.to_string_lossy().into_owned(),
            path: parts.as_path().as_os_str().as_bytes().to_vec(),
        });
        place.into_iter().collect()
    }

    fn outside(&self, path: &Path) -> Vec<Place> {
        let mut above = Vec::new();
        let mut best: Option<(usize, Place)> = None;
        for folder in &self.grants {
            let Ok(root) = doc::path(&folder.path) else { continue };
            if let Ok(below) = path.strip_prefix(&root) {
                let depth = root.components().count();
                if best.as_ref().is_none_or(|(known, _)| depth > *known) {
                    let path = below.as_os_str().as_bytes().to_vec();
                    best = Some((depth, Place { grant: folder.grant.clone(), path }));
                }
            } else if root.starts_with(path) {
                above.push(whole(folder));
            }
        }
        best.map_or(above, |(_, place)| vec![place])
    }

    fn all(&self) -> Vec<Place> {
        self.grants.iter().map(whole).collect()
    }

    /// Where a name lies on the host.
    pub(super) fn host(&self, place: &Place) -> Raw {
        let root = self.grants.iter().find(|folder| folder.grant == place.grant);
        let mut path = root.and_then(|folder| folder.path.bytes()).unwrap_or_default();
        if !place.path.is_empty() {
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend(&place.path);
        }
        Raw::new(path)
    }
}

fn whole(folder: &ChangedFolder) -> Place {
    Place { grant: folder.grant.clone(), path: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Path, Place, Raw};
    use cowork_client::types::ChangedFolder;

    fn entry() -> Entry {
        let folder =
            |grant: &str, path: &str| ChangedFolder { grant: grant.into(), path: Raw::new(path) };
        Entry {
            session: "able-bohr".into(),
            created: String::new(),
            device: 0,
            inode: 0,
            grants: vec![folder("site", "/home/me/site"), folder("inner", "/home/me/site/inner")],
            staged: false,
            ended: None,
            removing: false,
            commands: std::collections::BTreeMap::new(),
            tasks: std::collections::BTreeMap::new(),
        }
    }

    fn found(path: &str) -> Option<Vec<(String, String)>> {
        let places = entry().places_at(Path::new(path)).ok()?;
        let shown = |place: Place| (place.grant, String::from_utf8(place.path).unwrap());
        Some(places.into_iter().map(shown).collect())
    }

    #[test]
    fn both_views_lead_to_the_same_name() {
        let one = |grant: &str, path: &str| Some(vec![(grant.to_owned(), path.to_owned())]);
        assert_eq!(found("/home/me/site/a/b"), one("site", "a/b"));
        assert_eq!(found("/sessions/able-bohr/mnt/site/a/b"), one("site", "a/b"));
        assert_eq!(found("/home/me/site"), one("site", ""));
        assert_eq!(found("/home/me/site/inner/c"), one("inner", "c"));
        assert_eq!(found("/home/me").map(|all| all.len()), Some(2));
        assert_eq!(found("/sessions/able-bohr/mnt").map(|all| all.len()), Some(2));
        for nothing in ["/home/other", "/home/me/sit", "/sessions/able-bohr/mnt/other", "a"] {
            assert_eq!(found(nothing), None, "{nothing}");
        }
        assert_eq!(found("/home/me/site/../x"), None);
    }

    #[test]
    fn a_name_is_shown_where_it_lies() {
        let place = Place { grant: "site".into(), path: b"a\xff".to_vec() };
        assert_eq!(entry().host(&place).bytes().unwrap(), b"/home/me/site/a\xff");
        let whole = Place { grant: "inner".into(), path: Vec::new() };
        assert_eq!(entry().host(&whole), Raw::new("/home/me/site/inner"));
    }
}
