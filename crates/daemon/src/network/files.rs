//! Files in the home of a session that hold what stands for secrets: `.netrc` and the like.
//!
//! They lie in the folder that tells a session about itself, which it can only read, and are linked
//! from its home when its sandbox is made. What they say follows the session's secrets at once.

use super::kept_secret::Known;
use super::renew::escaped;
use super::secrets::{named, named_by};
use crate::daemon::Daemon;
use crate::session::Doc;
use crate::trouble::Trouble;
use cowork_api::plan::{OwnStep, SessionPlan};
use cowork_client::types::WantedNetwork;
use cowork_policy::plan::ABOUT;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The folder with the files, in the folder that tells a session about itself.
const FOLDER: &str = "credentials";
/// The file of git's own that has credentials.
pub(super) const GIT: &str = ".git-credentials";

/// Whether the home of a session with this network gets files.
pub(crate) fn has_files(network: Option<&WantedNetwork>, known: &Known) -> bool {
    network.is_some_and(|network| {
        named_by(network)
            .iter()
            .filter_map(|name| known.get(name))
            .any(|kept| !kept.files.is_empty())
    })
}

impl Daemon {
    /// Names of the files in the home of a session.
    pub(super) fn file_names(&self, doc: &Doc) -> Result<BTreeSet<String>, Trouble> {
        let names = named(doc);
        if names.is_empty() {
            return Ok(BTreeSet::new());
        }
        let known = self.secrets.known_to(&doc.id)?;
        let files = names.iter().filter_map(|name| known.get(name)).flat_map(|kept| &kept.files);
        Ok(files.map(|file| file.name.clone()).collect())
    }

    /// Links the files from the home of a session that is about to be made.
    pub(crate) fn link_files(&self, plan: &mut SessionPlan, doc: &Doc) -> Result<(), Trouble> {
        for name in self.file_names(doc)? {
            let at = format!("{}/{name}", doc.folder()).into();
            let to = format!("mnt/{ABOUT}/{FOLDER}/{name}").into();
            plan.own.push(OwnStep::Link { at, to });
        }
        Ok(())
    }

    /// Writes the files of a session, with what stands for its secrets, and removes what is not one
    /// any more.
    pub(super) fn write_files(&self, doc: &Doc) -> Result<(), Trouble> {
        let known = self.secrets.known_to(&doc.id)?;
        let mut files: BTreeMap<&str, String> = BTreeMap::new();
        for (name, placeholder) in &doc.network.placeholders {
            for file in known.get(name).map(|kept| kept.files.as_slice()).unwrap_or_default() {
                let text = files.entry(&file.name).or_default();
                let contents = file.contents.replace("{secret|url}", &escaped(placeholder));
                text.push_str(&contents.replace("{secret}", placeholder));
                if !text.ends_with('\n') {
                    text.push('\n');
                }
            }
        }
        let folder = self.folders.session(&doc.id).join("about").join(FOLDER);
        write(&folder, &files)
            .map_err(|error| Trouble::of_disk("cannot write the session's credentials", &error))
    }
}

fn write(folder: &Path, files: &BTreeMap<&str, String>) -> io::Result<()> {
    let there = match std::fs::read_dir(folder) {
        Ok(there) => there.flatten().map(|entry| entry.file_name()).collect(),
        Err(_) if files.is_empty() => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir(folder)?;
            Vec::new()
        }
        Err(error) => return Err(error),
    };
    for name in there {
        if name.to_str().is_none_or(|name| !files.contains_key(name)) {
            std::fs::remove_file(folder.join(name))?;
        }
    }
    for (name, text) in files {
        // Not a name that a file of a session can have.
        let new = folder.join("~new");
        cowork_sys::ignore(rustix::fs::unlink(&new));
        // Programs refuse such files if others than their user can read them.
        let options = &mut std::fs::File::options();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        std::fs::rename(&new, folder.join(name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::write;
    use cowork_testbed::{Folder, Person};
    use std::collections::BTreeMap;

    #[test]
    fn files_are_replaced_and_go_away() {
        let folder = Folder::new(Person::Root, "files");
        let at = folder.path().join("credentials");
        write(&at, &BTreeMap::new()).unwrap();
        assert!(std::fs::symlink_metadata(&at).is_err());
        write(&at, &BTreeMap::from([(".netrc", "one\n".into()), (".npmrc", "x\n".into())]))
            .unwrap();
        write(&at, &BTreeMap::from([(".netrc", "two\n".into())])).unwrap();
        assert_eq!(std::fs::read_to_string(at.join(".netrc")).unwrap(), "two\n");
        assert_eq!(std::fs::read_dir(&at).unwrap().count(), 1);
        write(&at, &BTreeMap::new()).unwrap();
        assert_eq!(std::fs::read_dir(&at).unwrap().count(), 0);
    }
}
