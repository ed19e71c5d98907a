//! What an attack is told, and what it says.
//!
//! An attack runs in a process of its own, bare or in a session, with the same words: the folders
//! it knows by relative paths are the same in both, and everything of the host that it aims at is
//! given as `key=value`. What it says is one line: `WON` and what it observed, or `LOST` and how.

use crate::raw::errno_name;
use std::collections::BTreeMap;
use std::fmt;
use std::io;

/// The writable granted folder.
pub(crate) const YARD: &str = "mnt/yard";
/// The read-only granted folder.
pub(crate) const LOCKED: &str = "mnt/locked";
/// What every canary says.
pub(crate) const CANARY: &str = "canary-of-the-bare-host";

/// What an attack is told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    /// The attack's own word, from the table.
    pub word: &'static str,
    values: BTreeMap<String, String>,
}

/// What an attack observed: its effect, or how it was refused.
pub(crate) type Outcome = Result<String, Lost>;

/// How an attack lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost(String);

impl Lost {
    /// In words of the attack.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().map_or_else(|| error.to_string(), errno_name))
    }
}

impl From<rustix::io::Errno> for Lost {
    fn from(errno: rustix::io::Errno) -> Self {
        Self(errno_name(errno.raw_os_error()))
    }
}

impl From<std::num::ParseIntError> for Lost {
    fn from(error: std::num::ParseIntError) -> Self {
        Self(error.to_string())
    }
}

impl Scene {
    /// Reads `key=value` words.
    pub(crate) fn parse(word: &'static str, words: impl Iterator<Item = String>) -> Self {
        let pair = |word: String| {
            word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()))
        };
        Self { word, values: words.filter_map(pair).collect() }
    }

    /// A value of the host.
    pub(crate) fn get(&self, key: &str) -> Result<&str, Lost> {
        let value = self.values.get(key).map(String::as_str);
        value.ok_or_else(|| Lost::new(format!("the harness gave no `{key}`")))
    }

    /// A number of the host.
    pub(crate) fn number(&self, key: &str) -> Result<usize, Lost> {
        Ok(self.get(key)?.parse()?)
    }

    /// A word that no other run has.
    pub(crate) fn token(&self) -> Result<&str, Lost> {
        self.get("token")
    }

    /// Whether this runs in a session.
    pub(crate) fn inside(&self) -> bool {
        self.values.contains_key("inside")
    }

    /// A path in the writable granted folder that no other run has.
    pub(crate) fn in_yard(&self, name: &str) -> Result<String, Lost> {
        Ok(format!("{YARD}/{name}-{}", self.token()?))
    }

    /// A path on the host that is not granted.
    pub(crate) fn outside(&self, name: &str) -> Result<String, Lost> {
        Ok(format!("{}/{name}", self.get("outside")?))
    }
}

/// Reads the canary in a file, or says what was there instead.
pub(crate) fn read_canary(path: &str) -> Outcome {
    canary_in(&std::fs::read(path)?)
}

/// Finds the canary in bytes.
pub(crate) fn canary_in(bytes: &[u8]) -> Outcome {
    if bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()) {
        Ok("the canary was read".to_owned())
    } else {
        Err(Lost::new("something else than the canary"))
    }
}
