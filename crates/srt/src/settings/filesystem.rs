//! The part `filesystem`.

use crate::read::{At, Need, Reader, Strange};
use serde_json::Value;

const KEYS: &[&str] =
    &["allowGitConfig", "allowRead", "allowWrite", "denyRead", "denyWrite", "disabled"];

/// What is read and written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filesystem {
    /// What is hidden.
    pub deny_read: Vec<Entry>,
    /// What is shown within what is hidden.
    pub allow_read: Vec<Entry>,
    /// What may be written.
    pub allow_write: Vec<Entry>,
    /// What may not be written within that.
    pub deny_write: Vec<Entry>,
    /// Whether configurations of Git may be written.
    pub git_config: GitConfig,
}

/// Whether configurations of Git may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GitConfig {
    /// Not those of repositories that are there.
    #[default]
    Kept,
    /// They may.
    Writable,
}

/// Some paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key of the entry, as `filesystem.denyRead.0`.
    pub key: String,
    /// As it is written.
    pub text: String,
    /// How it is meant.
    pub spelling: Spelling,
}

/// How an entry is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// `*`, `?` and `[` stand for other characters.
    Pattern,
    /// Every character is itself.
    Literal,
}

impl Entry {
    /// Whether some characters stand for others.
    pub fn is_pattern(&self) -> bool {
        self.spelling == Spelling::Pattern && self.text.contains(['*', '?', '[', ']'])
    }
}

pub(super) fn read(reader: &mut Reader, at: &At<'_>) -> Filesystem {
    reader.known(at, KEYS, Strange::Told);
    if reader.flag(at, "disabled") == Some(true) {
        reader.wrong(
            at.key("disabled"),
            "cowork cannot honour it: no session may write everywhere on this host; name what is \
             written in `allowWrite`",
        );
    }
    let deny_read = entries(reader, at, "denyRead", Need::Required);
    let deny_write = entries(reader, at, "denyWrite", Need::Required);
    for entry in deny_read.iter().chain(&deny_write) {
        check_denial(reader, entry);
    }
    Filesystem {
        allow_read: entries(reader, at, "allowRead", Need::Optional),
        allow_write: entries(reader, at, "allowWrite", Need::Required),
        deny_read,
        deny_write,
        git_config: match reader.flag(at, "allowGitConfig") {
            Some(true) => GitConfig::Writable,
            Some(false) | None => GitConfig::Kept,
        },
    }
}

/// Refuses a pattern that would deny nothing.
pub(super) fn check_denial(reader: &mut Reader, entry: &Entry) {
    let rooted = entry.text.starts_with(['/', '~']);
    if entry.is_pattern() && rooted && entry.text.ends_with('/') {
        let plain = entry.text.trim_end_matches('/');
        let sentence = format!("the pattern ends with `/` and matches no path: write `{plain}`");
        reader.wrong(entry.key.clone(), sentence);
    }
}

fn entries(reader: &mut Reader, at: &At<'_>, name: &str, need: Need) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (key, value) in reader.list(at, name, need) {
        if let Value::String(text) = value {
            if is_path(reader, &key, text) {
                entries.push(Entry { key, text: text.clone(), spelling: Spelling::Pattern });
            }
            continue;
        }
        let Some(object) = Reader::member(key.clone(), value) else {
            reader.wrong(key, "a path is expected, or { \"path\": \"…\", \"literal\": true }");
            continue;
        };
        reader.known(&object, &["literal", "path"], Strange::Refused);
        if reader.flag(&object, "literal") != Some(true) {
            reader.wrong(object.key("literal"), "true is expected");
        }
        match reader.text(&object, "path") {
            Some(text) if is_path(reader, &key, &text) => {
                entries.push(Entry { key, text, spelling: Spelling::Literal });
            }
            Some(_) => {}
            None if object.has("path") => {}
            None => reader.wrong(object.key("path"), "it is required"),
        }
    }
    entries
}

fn is_path(reader: &mut Reader, key: &str, text: &str) -> bool {
    let wrong = if text.is_empty() {
        "a path cannot be empty"
    } else if text.contains('\0') {
        "a path has no NUL"
    } else {
        return true;
    };
    reader.wrong(key, wrong);
    false
}
