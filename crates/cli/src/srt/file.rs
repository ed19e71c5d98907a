//! The settings file.

use super::ground::Ground;
use super::{Debug, tell_unknown};
use crate::arguments::Srt;
use crate::failure::Failure;
use cowork_srt::Settings;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest settings file.
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// What running without a file that is there would lose.
const LOST: &str = "this file's rules (its denyRead, allowRead and credential entries included)";

/// What a settings file is.
pub(crate) enum Found {
    /// Text.
    Text(String),
    /// There is none.
    Missing,
    /// There is nothing in it.
    Empty,
}

/// Where settings are if nobody says otherwise.
pub(crate) fn default_file(home: &Path) -> PathBuf {
    home.join(".srt-settings.json")
}

/// Reads a settings file.
pub(crate) fn read(path: &Path) -> Result<Found, std::io::Error> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Found::Missing),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if u64::try_from(text.len()).is_ok_and(|length| length > MAX_FILE) {
        return Err(std::io::Error::other("it is larger than 4 MiB"));
    }
    Ok(if text.trim().is_empty() { Found::Empty } else { Found::Text(text) })
}

/// The settings that are to be in force. No file stands in for another: without the one that was
/// named nothing runs.
pub(super) fn settings(options: &Srt, ground: &Ground, debug: Debug) -> Result<Settings, Failure> {
    let path = options.settings.clone().unwrap_or_else(|| default_file(&ground.home));
    let shown = path.display();
    let refused = |what: String, lost: &str| {
        let sentence =
            format!("{what}. Refusing to run with the built-in defaults, which would drop {lost}");
        Failure::input(sentence, "")
    };
    let found = read(&path).map_err(|error| {
        refused(format!("`{shown}` cannot be read"), LOST).with_cause(error.to_string())
    })?;
    match found {
        Found::Text(text) => {
            debug.say(|| format!("Settings: {shown}"));
            let read = Settings::parse(&text).map_err(|wrong| {
                refused(format!("`{shown}` cannot be in force"), LOST)
                    .with_cause(wrong.to_string())
                    .with_hint("see docs/srt.md")
            })?;
            Ok(tell_unknown(&path, read))
        }
        Found::Missing if options.settings.is_some() => {
            let what = format!("`{shown}` does not exist");
            Err(refused(what, "the rules `--settings` asks for"))
        }
        Found::Missing => {
            debug.say(|| format!("There is no `{shown}`: nothing is written, nothing reached"));
            Ok(Settings::default())
        }
        Found::Empty => {
            let what = format!("`{shown}` is empty: remove it, or write settings into it");
            Err(refused(what, LOST))
        }
    }
}
