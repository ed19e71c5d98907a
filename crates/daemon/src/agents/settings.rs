//! Files of an agent's definition in a session: in the folder that tells it about itself, which it
//! cannot change, or in its home, where they are its own from then on.

use crate::daemon::Daemon;
use crate::session::Session;
use crate::trouble::Trouble;
use cowork_agents::{Agent, Place, Profile, SettingsFile, Words};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Where they are, below the folder that tells a session about itself.
pub(super) fn below(agent: &str) -> String {
    format!("agents/{agent}")
}

/// Tells that the files in the home were written once, below the same folder.
const SEEDED: &str = ".seeded";

/// Puts a file into the home, unless it is there: the session does it itself, by its own rights.
const SEED: &str =
    "test -e \"$1\" || { mkdir -p \"$(dirname \"$1\")\" && printf %s \"$2\" > \"$1\"; }";

impl Daemon {
    /// Gives a session the files of an agent.
    pub(super) async fn settle_agent(
        self: &Arc<Self>,
        session: &Arc<Session>,
        agent: &Agent,
        profile: Profile,
        words: &Words,
    ) -> Result<(), Trouble> {
        let folder = self.folders.session(&session.id).join("about").join(below(&agent.name));
        let unwritten =
            |error: io::Error| Trouble::of_disk("cannot write the agent's settings", &error);
        for file in of(agent, Place::Settings, profile) {
            put(&folder.join(&file.path), contents(file, words).as_bytes()).map_err(unwritten)?;
        }
        let seeded = folder.join(SEEDED);
        if std::fs::metadata(&seeded).is_ok() || of(agent, Place::Home, profile).next().is_none() {
            return Ok(());
        }
        for file in of(agent, Place::Home, profile) {
            let path = format!("{}/{}", words.home, file.path);
            let argv = ["/bin/sh", "-c", SEED, "sh", &path, &contents(file, words)];
            if !self.succeeds(session, &argv).await? {
                let sentence = format!("cannot write `{path}` in the session");
                return Err(Trouble::refused("failed", sentence)
                    .with_hint(format!("see `cowork logs {}`", session.id)));
            }
        }
        put(&seeded, b"").map_err(unwritten)
    }
}

/// The files of an agent in some place, for some walls.
fn of(agent: &Agent, place: Place, profile: Profile) -> impl Iterator<Item = &SettingsFile> {
    let files = agent.files.iter().filter(move |file| file.place == place);
    files.filter(move |file| file.profile.is_none_or(|only| only == profile))
}

fn contents(file: &SettingsFile, words: &Words) -> String {
    words.put_into(file.text.trim_start())
}

fn put(path: &Path, contents: &[u8]) -> io::Result<()> {
    if std::fs::read(path).is_ok_and(|there| there == contents) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    // Beside it: whoever reads it sees one of the two whole.
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    std::fs::write(&new, contents)?;
    std::fs::rename(&new, path)
}
