//! A policy file that says what other settings say.
//!
//! What is reached is said by rules. What a policy file cannot say is a comment in it, with what to
//! do instead: folders are granted on the command line, and secrets are kept by the daemon.

use crate::claude;
use crate::network;
use crate::read::Wrong;
use crate::settings::{Entry, Network, Read};
use cowork_api::egress::Tls;
use cowork_policy::egress::rule::{RuleParts, Verb};

/// A policy file, and what is to be told about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The text of the file.
    pub policy: String,
    /// Keys that nobody knows.
    pub unknown: Vec<String>,
}

/// Settings of srt as a policy file.
pub fn srt(read: Read) -> Result<Imported, Wrong> {
    let Read { settings, unknown } = read;
    let mut text = head("srt");
    let files = &settings.filesystem;
    folders(
        &mut text,
        &[
            ("filesystem.allowWrite", &texts(&files.allow_write)),
            ("filesystem.denyWrite", &texts(&files.deny_write)),
            ("filesystem.denyRead", &texts(&files.deny_read)),
            ("filesystem.allowRead", &texts(&files.allow_read)),
            ("credentials.files", &texts(&settings.credentials.files)),
        ],
    );
    let credentials = &settings.credentials;
    let masked = credentials.masked_variables.iter().map(|(name, _)| name.clone());
    comment(
        &mut text,
        "credentials.envVars",
        &credentials.denied.iter().cloned().chain(masked).collect::<Vec<_>>(),
        "A session gets no variable of yours but those of `--env`. Keep a secret with `cowork \
         secret set NAME --host HOST --env VARIABLE`, and use it with `--secret NAME`.",
    );
    let files: Vec<String> =
        credentials.masked_files.iter().map(|(entry, _)| entry.text.clone()).collect();
    comment(
        &mut text,
        "credentials.files",
        &files,
        "Keep what is in them with `cowork secret set NAME --host HOST`.",
    );
    if let Some(parent) = &settings.network.parent {
        comment(
            &mut text,
            "network.parentProxy",
            std::slice::from_ref(&parent.except),
            "Start the daemon with COWORK_PARENT_PROXY and COWORK_NO_PROXY.",
        );
    }
    rules(&mut text, &settings.network)?;
    Ok(Imported { policy: text, unknown })
}

/// Settings of Claude Code as a policy file.
pub fn claude(settings: claude::Settings) -> Result<Imported, Wrong> {
    let claude::Settings { allowed, denied, folders: named, others, unknown } = settings;
    let mut text = head("Claude Code");
    let named: Vec<(String, Vec<String>)> = named
        .into_iter()
        .map(|(key, texts)| (format!("sandbox.filesystem.{key}"), texts))
        .collect();
    let named: Vec<(&str, &[String])> =
        named.iter().map(|(key, texts)| (key.as_str(), texts.as_slice())).collect();
    folders(&mut text, &named);
    for (key, value) in others {
        comment(&mut text, &key, &[value], "It has no equivalent.");
    }
    rules(&mut text, &Network { allowed, denied, ..Network::default() })?;
    Ok(Imported { policy: text, unknown })
}

fn head(whose: &str) -> String {
    format!("# From settings of {whose}. Use it with `cowork run --policy FILE -- COMMAND`.\n")
}

fn texts(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.text.clone()).collect()
}

fn folders(text: &mut String, named: &[(&str, &[String])]) {
    for (key, paths) in named {
        let what = match key.rsplit('.').next() {
            Some("allowWrite") => {
                "A policy names no folders: grant them with `--grant PATH`, and those that are \
                 only read with `--grant PATH:ro`."
            }
            Some("denyWrite") => {
                "Deny names in a session with `cowork protect add SESSION PATTERN deny`."
            }
            _ => "A session sees the folders that it is granted, and nothing else: grant those.",
        };
        comment(text, key, paths, what);
    }
}

fn comment(text: &mut String, key: &str, values: &[String], what: &str) {
    if values.is_empty() {
        return;
    }
    let values: Vec<String> = values.iter().map(|value| value.escape_debug().to_string()).collect();
    text.push_str("\n# ");
    text.push_str(key);
    text.push_str(": ");
    text.push_str(&values.join(", "));
    text.push_str("\n#   ");
    text.push_str(what);
    text.push('\n');
}

fn rules(text: &mut String, network: &Network) -> Result<(), Wrong> {
    text.push_str("\n[egress]\ndefault = \"deny\"\n");
    for parts in network::rules(network)? {
        rule(text, &parts);
    }
    Ok(())
}

fn rule(text: &mut String, parts: &RuleParts) {
    let list = match parts.verb {
        Verb::Allow => "allow",
        Verb::Ask => "ask",
        Verb::Deny => "deny",
    };
    let mut line = |key: &str, value: String| {
        for part in [key, " = ", &value, "\n"] {
            text.push_str(part);
        }
    };
    let (host, every) = match parts.host.strip_suffix(":*") {
        Some(host) => (host, true),
        None => (parts.host.as_str(), false),
    };
    line(&format!("\n[[egress.{list}]]\nhost"), quoted(host));
    if every {
        line("ports", quoted("*"));
    }
    if parts.tls == Tls::Inspect {
        line("tls", quoted("inspect"));
    }
    if !parts.resolves_to.is_empty() {
        let ranges: Vec<String> = parts.resolves_to.iter().map(|range| quoted(range)).collect();
        line("resolves_to", format!("[{}]", ranges.join(", ")));
    }
    if let Some(reason) = &parts.reason {
        line("reason", quoted(reason));
    }
}

/// A text of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let number = format!("{:04X}", u32::from(c));
                quoted.push_str("\\u");
                quoted.push_str(&number);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::{claude, srt};
    use crate::Settings;
    use crate::claude::Settings as Claude;
    use crate::network::rules;
    use cowork_api::egress::Rule;
    use cowork_policy::egress::{file, rule};

    const SRT: &str = r#"{
        "network": {"allowedDomains": ["example.com", "*.example.org:443", "localhost:3000"],
            "deniedDomains": ["bad.example.org", "*:25"],
            "deniedDomainReasons": {"bad.example.org": "say \"please\""},
            "deniedResolvedAddresses": ["10.0.0.0/8", "fd00::1"],
            "tlsTerminate": {}},
        "filesystem": {"denyRead": ["~/.ssh"], "allowWrite": [".", "/x\n"], "denyWrite": ["*.lock"]},
        "credentials": {"envVars": [{"name": "TOKEN", "mode": "deny"}]}}"#;

    /// The policy has the very rules that `cowork srt` goes by.
    #[test]
    fn the_policy_says_what_the_settings_say() {
        let read = Settings::parse(SRT).unwrap();
        let expected: Vec<_> = rules(&read.settings.network)
            .unwrap()
            .iter()
            .map(|parts| rule::build(parts).unwrap())
            .collect();
        let imported = srt(read).unwrap().policy;
        let policy = file::parse(&imported).unwrap_or_else(|error| panic!("{error}\n{imported}"));
        let sorted = |mut rules: Vec<Rule>| {
            rules.sort_by(|a, b| a.name.cmp(&b.name));
            rules
        };
        assert_eq!(sorted(policy.rules), sorted(expected));
        for part in
            ["# filesystem.allowWrite: ., /x\\n\n", "# filesystem.denyRead: ~/.ssh", "TOKEN"]
        {
            assert!(imported.contains(part), "{part}\n{imported}");
        }
    }

    #[test]
    fn settings_of_claude_code_become_a_policy() {
        let text = r#"{"sandbox": {"enabled": true, "excludedCommands": ["docker"],
            "network": {"allowedDomains": ["github.com"], "deniedDomains": ["*.evil.com"]},
            "filesystem": {"allowWrite": ["~/out"]}}}"#;
        let imported = claude(Claude::parse(text).unwrap()).unwrap().policy;
        let policy = file::parse(&imported).unwrap();
        assert_eq!(policy.rules.len(), 2);
        for part in ["# sandbox.excludedCommands: ", "# sandbox.filesystem.allowWrite: ~/out"] {
            assert!(imported.contains(part), "{imported}");
        }
    }
}
