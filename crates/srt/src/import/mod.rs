//! A policy file that says what other settings say.
//!
//! What is reached is said by rules, and so are names that may not be written. What a policy file
//! cannot say is a comment in it, with what to do instead: folders are granted on the command line,
//! and secrets are kept by the daemon.

mod names;

use crate::claude;
use crate::network;
use crate::paths::Places;
use crate::read::Wrong;
use crate::settings::{Entry, GitConfig, Network, Read, Spelling};
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

/// Settings of srt as a policy file, for a command that is started in the current folder.
pub fn srt(read: Read, places: Places<'_>) -> Result<Imported, Wrong> {
    let Read { settings, unknown } = read;
    let mut text = head("srt");
    let files = &settings.filesystem;
    folders(
        &mut text,
        &[
            ("filesystem.allowWrite", &texts(&files.allow_write)),
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
            std::slice::from_ref(&parent.url),
            "Start the daemon with it in COWORK_PARENT_PROXY, and with what is reached without it \
             in COWORK_NO_PROXY.",
        );
        let except = Some(parent.except.clone()).filter(|except| !except.is_empty());
        let what = "This is for COWORK_NO_PROXY.";
        comment(&mut text, "network.parentProxy.noProxy", except.as_slice(), what);
    }
    comment(
        &mut text,
        "git.safeDirectories",
        &settings.safe_directories,
        "Tell git with `--env GIT_CONFIG_COUNT=1 --env GIT_CONFIG_KEY_0=safe.directory --env \
         GIT_CONFIG_VALUE_0=FOLDER`, with the folder's path in the session.",
    );
    let files = &settings.filesystem;
    names::write(&mut text, &files.allow_write, &files.deny_write, files.git_config, places);
    rules(&mut text, &settings.network)?;
    Ok(Imported { policy: text, unknown })
}

/// Settings of Claude Code as a policy file, for a command that is started in the current folder.
pub fn claude(settings: claude::Settings, places: Places<'_>) -> Result<Imported, Wrong> {
    let claude::Settings { allowed, denied, folders: named, others, unknown } = settings;
    let mut text = head("Claude Code");
    let entries = |wanted: &str| {
        let found = named.iter().filter(|(key, _)| *key == wanted);
        let texts = found.flat_map(|(key, texts)| texts.iter().map(move |text| (key, text)));
        let entry = |(key, text): (&&str, &String)| Entry {
            key: format!("sandbox.filesystem.{key}"),
            text: text.clone(),
            spelling: Spelling::Pattern,
        };
        texts.map(entry).collect::<Vec<_>>()
    };
    let (writable, unwritable) = (entries("allowWrite"), entries("denyWrite"));
    let named: Vec<(String, Vec<String>)> = named
        .into_iter()
        .filter(|(key, _)| *key != "denyWrite")
        .map(|(key, texts)| (format!("sandbox.filesystem.{key}"), texts))
        .collect();
    let named: Vec<(&str, &[String])> =
        named.iter().map(|(key, texts)| (key.as_str(), texts.as_slice())).collect();
    folders(&mut text, &named);
    for (key, value) in others {
        comment(&mut text, &key, &[value], "It has no equivalent.");
    }
    names::write(&mut text, &writable, &unwritable, GitConfig::Kept, places);
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
    use crate::paths::Places;
    use cowork_api::egress::Rule;
    use cowork_api::files::{NamePolicy, Rules};
    use cowork_policy::egress::{file, rule};
    use cowork_policy::files::Judge;
    use std::path::Path;

    fn places() -> Places<'static> {
        Places { home: Path::new("/home/ada"), here: Path::new("/home/ada/project") }
    }

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
        let imported = srt(read, places()).unwrap().policy;
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
            "filesystem": {"allowWrite": ["~/out"], "denyWrite": ["~/out/kept"]}}}"#;
        let imported = claude(Claude::parse(text).unwrap(), places()).unwrap().policy;
        let policy = file::parse(&imported).unwrap();
        assert_eq!(policy.rules.len(), 2);
        for part in ["# sandbox.excludedCommands: ", "# sandbox.filesystem.allowWrite: ~/out"] {
            assert!(imported.contains(part), "{imported}");
        }
        assert!(denies(&imported, "kept/x") && denies(&imported, "a/.mcp.json"), "{imported}");
        assert!(!denies(&imported, "a/kept"), "{imported}");
    }

    /// Whether a policy denies a name in a granted folder.
    fn denies(policy: &str, path: &str) -> bool {
        let files = file::parse(policy).unwrap_or_else(|error| panic!("{error}\n{policy}")).files;
        let rules = Rules { names: files.names, ..Rules::default() };
        Judge::new(&rules).name(path.as_bytes()).policy == NamePolicy::Deny
    }

    fn settings(files: &str, more: &str) -> String {
        let text = format!(
            r#"{{"network": {{"allowedDomains": [], "deniedDomains": []{more}}},
                "filesystem": {{"denyRead": [], {files}}},
                "git": {{"safeDirectories": ["/srv/\u0007repo"]}}}}"#
        );
        srt(Settings::parse(&text).unwrap(), places()).unwrap().policy
    }

    #[test]
    fn names_that_are_denied_are_rules() {
        let policy = settings(
            r#""allowWrite": [".", "~/out"],
               "denyWrite": ["*.lock", "./kept", "**/*.key", "~/out/sum", "/elsewhere", "~/out",
                   {"path": "a*b", "literal": true}, "a**b"]"#,
            "",
        );
        for (path, denied) in [
            ("x.lock", true),
            ("a/x.lock", false),
            ("kept/deep", true),
            ("a/b/x.key", true),
            ("sum", true),
            ("a*b", true),
            ("axb", false),
            ("elsewhere", false),
            ("src/main.rs", false),
            ("a/.bashrc", true),
            (".vscode/tasks.json", true),
            (".git/hooks/pre-commit", true),
            (".git/hooks/pre-commit.sample", false),
            (".git/config", false),
        ] {
            assert_eq!(denies(&policy, path), denied, "{path}\n{policy}");
        }
        for part in [
            "# filesystem.denyWrite.5: ~/out\n#   Nothing of `/home/ada/out` may be written",
            "# filesystem.denyWrite.7: a**b\n#   It is no rule about names",
            "ask = [\n    { pattern = \".git/config\"",
            "# git.safeDirectories: /srv/\\u{7}repo\n",
        ] {
            assert!(policy.contains(part), "{part}\n{policy}");
        }
        assert_eq!(policy.matches("a**b").count(), 1, "it is told once: {policy}");
    }

    #[test]
    fn what_has_no_rule_is_named() {
        let more = r#", "parentProxy": {"http": "http://proxy.example:3128", "noProxy": "a,b"}"#;
        let files = r#""allowWrite": [], "denyWrite": [], "allowGitConfig": true"#;
        let policy = settings(files, more);
        for part in [
            "# network.parentProxy: http://proxy.example:3128\n",
            "# network.parentProxy.noProxy: a,b\n",
            "# filesystem.allowGitConfig: true\n",
        ] {
            assert!(policy.contains(part), "{part}\n{policy}");
        }
        let asks = file::parse(&policy).unwrap().files.names;
        assert!(asks.iter().all(|rule| rule.policy == NamePolicy::Deny), "{policy}");
    }
}
