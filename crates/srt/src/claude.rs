//! The part `sandbox` of Claude Code's settings, which is written nearly as srt's settings are.
//!
//! It is read to be imported. What is wrong is told; what is not there is as if it were empty, for
//! Claude Code fills it in from elsewhere.

use crate::domain::{Domain, Purpose};
use crate::read::{At, Need, Reader, Strange, Wrong};
use crate::settings::Denied;
use serde_json::Value;

const KEYS: &[&str] = &[
    "allowUnsandboxedCommands",
    "autoAllowBashIfSandboxed",
    "enableWeakerNestedSandbox",
    "enableWeakerNetworkIsolation",
    "enabled",
    "excludedCommands",
    "failIfUnavailable",
    "filesystem",
    "ignoreViolations",
    "network",
    "ripgrep",
];
const NETWORK: &[&str] = &[
    "allowAllUnixSockets",
    "allowLocalBinding",
    "allowManagedDomainsOnly",
    "allowUnixSockets",
    "allowedDomains",
    "deniedDomains",
    "httpProxyPort",
    "socksProxyPort",
];

/// What Claude Code's settings say about its sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What is allowed.
    pub allowed: Vec<Domain>,
    /// What is denied.
    pub denied: Vec<Denied>,
    /// Folders by the key that they are named with.
    pub folders: Vec<(&'static str, Vec<String>)>,
    /// Keys that are set and have no equivalent, with their values.
    pub others: Vec<(String, String)>,
    /// Keys that nobody knows.
    pub unknown: Vec<String>,
}

impl Settings {
    /// Reads a settings file of Claude Code. Only the part `sandbox` matters.
    pub fn parse(text: &str) -> Result<Self, Wrong> {
        let mut reader = Reader::default();
        let mut settings = Self::default();
        match serde_json::from_str::<Value>(text) {
            Ok(value) => {
                let whole = reader.whole(&value);
                let sandbox = whole.and_then(|at| {
                    if !at.has("sandbox") {
                        reader.wrong("sandbox", "the settings say nothing about the sandbox");
                    }
                    reader.object(&at, "sandbox")
                });
                if let Some(at) = sandbox {
                    settings = sandboxed(&mut reader, &at);
                }
            }
            Err(error) => reader.wrong("", format!("it is no JSON: {error}")),
        }
        let Reader { issues, unknown } = reader;
        if issues.is_empty() { Ok(Self { unknown, ..settings }) } else { Err(Wrong { issues }) }
    }
}

fn sandboxed(reader: &mut Reader, at: &At<'_>) -> Settings {
    reader.known(at, KEYS, Strange::Told);
    let mut settings = Settings::default();
    let plain: Vec<&str> =
        KEYS.iter().copied().filter(|key| !matches!(*key, "network" | "filesystem")).collect();
    settings.others.extend(at.written(&plain));
    if let Some(network) = reader.object(at, "network") {
        reader.known(&network, NETWORK, Strange::Told);
        for (key, text) in reader.texts(&network, "allowedDomains", Need::Optional) {
            match Domain::parse(&text, Purpose::Allow) {
                Ok(domain) => settings.allowed.push(domain),
                Err(error) => reader.wrong(key, error.to_string()),
            }
        }
        for (key, text) in reader.texts(&network, "deniedDomains", Need::Optional) {
            match Domain::parse(&text, Purpose::Deny) {
                Ok(domain) => settings.denied.push(Denied { text, domain, reason: None }),
                Err(error) => reader.wrong(key, error.to_string()),
            }
        }
        let others: Vec<&str> =
            NETWORK.iter().copied().filter(|key| !key.ends_with("edDomains")).collect();
        settings.others.extend(network.written(&others));
    }
    if let Some(files) = reader.object(at, "filesystem") {
        let keys = ["allowWrite", "denyWrite", "denyRead", "allowRead"];
        reader.known(&files, &keys, Strange::Told);
        for key in keys {
            let texts = reader.texts(&files, key, Need::Optional);
            let texts: Vec<String> = texts.into_iter().map(|(_, text)| text).collect();
            if !texts.is_empty() {
                settings.folders.push((key, texts));
            }
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn the_part_about_the_sandbox_is_read() {
        let text = r#"{"permissions": {"allow": ["x"]}, "sandbox": {"enabled": true,
            "excludedCommands": ["docker"],
            "network": {"allowedDomains": ["github.com", "*.npmjs.org"], "allowLocalBinding": true},
            "filesystem": {"allowWrite": ["~/x"], "denyRead": ["~/.aws"]}, "new": 1}}"#;
        let settings = Settings::parse(text).unwrap();
        assert_eq!(settings.allowed.len(), 2);
        let folders =
            vec![("allowWrite", vec!["~/x".to_owned()]), ("denyRead", vec!["~/.aws".to_owned()])];
        assert_eq!(settings.folders, folders);
        let others: Vec<&str> = settings.others.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(
            others,
            ["sandbox.enabled", "sandbox.excludedCommands", "sandbox.network.allowLocalBinding"]
        );
        assert_eq!(settings.unknown, ["sandbox.new"]);
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (text, part) in [
            ("{}", "sandbox: the settings say nothing"),
            ("{\"sandbox\": 1}", "sandbox: an object is expected"),
            ("{\"sandbox\": {\"network\": {\"allowedDomains\": [\"*\"]}}}", "allowedDomains.0"),
            ("x", "no JSON"),
        ] {
            assert!(Settings::parse(text).unwrap_err().to_string().contains(part), "{text}");
        }
    }
}
