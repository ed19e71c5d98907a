//! The definitions that there are: those of the user's files, and the built-in ones that no file of
//! theirs replaces.
//!
//! They are read anew each time: a file that is written takes effect with the next agent.

use crate::trouble::Trouble;
use cowork_agents::{Agent, MAX_DEFINITION, built_in, parse};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most files that are looked at.
const MAX_FILES: usize = 256;

/// A definition, or what is wrong with it.
#[derive(Debug)]
pub(super) struct Known {
    /// The agent's name; of a file that cannot be understood, the file's.
    pub(super) name: String,
    /// The file of the user's that it comes from.
    pub(super) file: Option<PathBuf>,
    pub(super) agent: Result<Agent, String>,
}

/// Every agent, by name.
pub(super) fn all() -> Vec<Known> {
    with(folder().as_deref())
}

/// The agent of a name.
pub(super) fn named(name: &str) -> Result<Agent, Trouble> {
    let all = all();
    let names: Vec<&str> = all.iter().map(|known| known.name.as_str()).collect();
    let hint = format!("there are {}; see `cowork agents`", names.join(", "));
    let known = all.iter().find(|known| known.name == name).ok_or_else(|| {
        let sentence = format!("there is no agent `{}`", name.escape_debug());
        Trouble::missing("no-agent", sentence).with_hint(hint)
    })?;
    known.agent.clone().map_err(|problem| {
        let file = known.file.as_deref().unwrap_or(Path::new("")).display();
        let sentence = format!("the definition of the agent `{name}` cannot be understood");
        Trouble::refused("bad-agent", sentence)
            .with_cause(problem)
            .with_hint(format!("mend or remove `{file}`"))
    })
}

/// Where the user's definitions are.
fn folder() -> Option<PathBuf> {
    let set =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let settings = set("COWORK_CONFIG_DIR")
        .or_else(|| set("XDG_CONFIG_HOME").map(|folder| folder.join("cowork")))
        .or_else(|| cowork_client::places::home().map(|home| home.join(".config/cowork")));
    settings.filter(|folder| folder.is_absolute()).map(|folder| folder.join("agents"))
}

fn with(folder: Option<&Path>) -> Vec<Known> {
    let mut all: BTreeMap<String, Known> = built_in()
        .into_iter()
        .map(|agent| {
            (agent.name.clone(), Known { name: agent.name.clone(), file: None, agent: Ok(agent) })
        })
        .collect();
    let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
    let mut files: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .take(MAX_FILES)
        .collect();
    files.sort();
    for file in files {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let agent = read(&file);
        let name = agent.as_ref().map_or(stem, |agent| agent.name.clone());
        all.insert(name.clone(), Known { name, file: Some(file), agent });
    }
    all.into_values().collect()
}

fn read(path: &Path) -> Result<Agent, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err("it is not a regular file".to_owned());
    }
    let mut text = String::new();
    let most = u64::try_from(MAX_DEFINITION).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_string(&mut text).map_err(|error| error.to_string())?;
    parse(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::with;

    #[test]
    fn a_file_of_the_user_replaces_what_is_built_in() {
        let folder = std::env::temp_dir().join(format!("cowork-agents-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let text =
            |name: &str| format!("name = '{name}'\nabout = 'mine'\n[program]\nnames = ['x']\n");
        std::fs::write(folder.join("a.toml"), text("claude")).unwrap();
        std::fs::write(folder.join("b.toml"), text("other")).unwrap();
        std::fs::write(folder.join("c.toml"), "name = 'x").unwrap();
        std::fs::write(folder.join("d.txt"), "no definition").unwrap();
        let all = with(Some(&folder));
        std::fs::remove_dir_all(&folder).unwrap();
        let names: Vec<&str> = all.iter().map(|known| known.name.as_str()).collect();
        assert_eq!(names, ["c", "claude", "codex", "gemini", "opencode", "other"]);
        assert!(all[0].agent.is_err());
        assert_eq!(all[1].agent.as_ref().unwrap().about, "mine");
        assert!(all[2].file.is_none());
    }
}
