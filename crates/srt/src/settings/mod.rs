//! What a settings file says.
//!
//! The whole file is understood, or nothing of it: what is wrong is told at once, each with its key.
//! A key is one of three kinds. It is honoured; or it has no meaning for a command on Linux, and is
//! only checked, as srt does; or it asks for what cannot be given, and then the file is refused.
//!
//! Deliberately absent: defaults that weaken. Without a file nothing is reached and nothing written.

mod credentials;
mod filesystem;
mod network;

pub use credentials::{Credentials, Masked, Unmatched};
pub use filesystem::{Entry, Filesystem, GitConfig, Spelling};
pub use network::{Denied, Network, ParentProxy, Termination};

use crate::read::{At, Need, Reader, Strange, Wrong};
use serde_json::Value;

/// Keys at the top.
const KEYS: &[&str] = &[
    "allowAppleEvents",
    "allowNestedUserNamespaces",
    "allowPty",
    "bwrapPath",
    "credentials",
    "enableWeakerNestedSandbox",
    "enableWeakerNetworkIsolation",
    "filesystem",
    "git",
    "ignoreViolations",
    "javaAgentJarPath",
    "mandatoryDenySearchDepth",
    "network",
    "ripgrep",
    "seccomp",
    "socatPath",
    "windows",
];

/// What a settings file says. Without one, [`Settings::default`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What is reached.
    pub network: Network,
    /// What is read and written.
    pub filesystem: Filesystem,
    /// What is kept from commands.
    pub credentials: Credentials,
    /// Folders whose repositories Git trusts, whoever owns them.
    pub safe_directories: Vec<String>,
}

/// Settings, and what is to be told about them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The settings.
    pub settings: Settings,
    /// Keys that nobody knows.
    pub unknown: Vec<String>,
}

impl Settings {
    /// Reads a settings file.
    pub fn parse(text: &str) -> Result<Read, Wrong> {
        let mut reader = Reader::default();
        let settings = match serde_json::from_str::<Value>(text) {
            Ok(value) => whole(&mut reader, &value).unwrap_or_default(),
            Err(error) => {
                reader.wrong("", format!("it is no JSON: {error}"));
                Self::default()
            }
        };
        let Reader { issues, unknown } = reader;
        if issues.is_empty() { Ok(Read { settings, unknown }) } else { Err(Wrong { issues }) }
    }
}

fn whole(reader: &mut Reader, value: &Value) -> Option<Settings> {
    let at = reader.whole(value)?;
    reader.known(&at, KEYS, Strange::Told);
    let network = reader.required(&at, "network").map(|at| network::read(reader, &at));
    let filesystem = reader.required(&at, "filesystem").map(|at| filesystem::read(reader, &at));
    let credentials = reader.object(&at, "credentials");
    let credentials = credentials.map(|at| credentials::read(reader, &at, network.as_ref()));
    needless(reader, &at);
    if reader.flag(&at, "allowNestedUserNamespaces") == Some(true) {
        reader.wrong(
            at.key("allowNestedUserNamespaces"),
            "cowork cannot honour it: programs that make namespaces of their own get round the \
             rules about names; use `cowork run --profile nested` for them",
        );
    }
    let git = reader.object(&at, "git");
    let safe = git.map(|git| {
        reader.known(&git, &["safeDirectories"], Strange::Told);
        reader.texts(&git, "safeDirectories", Need::Optional)
    });
    Some(Settings {
        network: network.unwrap_or_default(),
        filesystem: filesystem.unwrap_or_default(),
        credentials: credentials.unwrap_or_default(),
        safe_directories: safe.into_iter().flatten().map(|(_, text)| text).collect(),
    })
}

/// Checks what has no meaning here: for other systems, for srt's own helpers, for walks that cowork
/// does not need, and for reports that srt's command line does not make either.
fn needless(reader: &mut Reader, at: &At<'_>) {
    for name in [
        "allowAppleEvents",
        "allowPty",
        "enableWeakerNestedSandbox",
        "enableWeakerNetworkIsolation",
    ] {
        reader.flag(at, name);
    }
    reader.number(at, "mandatoryDenySearchDepth", 1..=10);
    for name in ["bwrapPath", "socatPath", "javaAgentJarPath"] {
        if reader.text(at, name).is_some_and(|path| !path.starts_with('/')) {
            reader.wrong(at.key(name), "an absolute path is expected");
        }
    }
    if let Some(ripgrep) = reader.object(at, "ripgrep") {
        reader.text(&ripgrep, "command");
        reader.texts(&ripgrep, "args", Need::Optional);
        reader.text(&ripgrep, "argv0");
    }
    if let Some(seccomp) = reader.object(at, "seccomp") {
        reader.text(&seccomp, "applyPath");
        reader.text(&seccomp, "argv0");
    }
    reader.object(at, "ignoreViolations");
    reader.object(at, "windows");
}

#[cfg(test)]
mod tests;
