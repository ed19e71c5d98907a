//! `cowork policy import`: the settings of other sandboxes as a policy file.

use crate::arguments::{ImportFrom, Policy, PolicyImport, PolicyVerb};
use crate::failure::{Failure, note};
use crate::show;
use crate::srt::{Found, default_file, read_settings};
use cowork_srt::import::Imported;
use cowork_srt::paths::Places;
use cowork_srt::{Settings, claude, import};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `cowork policy`.
pub(crate) fn policy(options: &Policy) -> Result<ExitCode, Failure> {
    match &options.verb {
        PolicyVerb::Import(options) => import(options),
    }
}

fn import(options: &PolicyImport) -> Result<ExitCode, Failure> {
    let home = cowork_client::places::home().unwrap_or_else(|| PathBuf::from("/"));
    let usual = match options.from {
        ImportFrom::Srt => default_file(&home),
        ImportFrom::ClaudeCode => home.join(".claude/settings.json"),
    };
    let path = options.file.clone().unwrap_or(usual);
    let text = text(&path)?;
    let wrong = |wrong: cowork_srt::Wrong| {
        let sentence = format!("the settings in `{}` cannot be understood", path.display());
        Failure::input(sentence, "").with_cause(wrong.to_string())
    };
    let here = std::env::current_dir()
        .map_err(|error| Failure::host("there is no current folder", Some(error.to_string())))?;
    let places = Places { home: &home, here: &here };
    let imported = match options.from {
        ImportFrom::Srt => Settings::parse(&text).and_then(|read| import::srt(read, places)),
        ImportFrom::ClaudeCode => {
            claude::Settings::parse(&text).and_then(|settings| import::claude(settings, places))
        }
    };
    let Imported { policy, unknown } = imported.map_err(wrong)?;
    for key in unknown {
        note(&format!("`{key}` in `{}` is not known, and left out", path.display()));
    }
    show::print(policy)
}

fn text(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    match read_settings(path) {
        Ok(Found::Text(text)) => Ok(text),
        Ok(Found::Missing) => {
            Err(Failure::input(format!("`{shown}` does not exist"), "name the file to import"))
        }
        Ok(Found::Empty) => Err(Failure::input(format!("`{shown}` is empty"), "")),
        Err(error) => {
            let failure = Failure::input(format!("`{shown}` cannot be read"), "");
            Err(failure.with_cause(error.to_string()))
        }
    }
}
