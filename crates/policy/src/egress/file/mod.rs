//! Policy files.
//!
//! ```toml
//! [egress]
//! default = "ask"
//! presets = ["github:read"]
//!
//! [[egress.allow]]
//! host = "db.internal.example"
//! ports = [5432]
//! resolves_to = ["10.20.0.0/16"]
//!
//! [[egress.deny]]
//! host = "**.pastebin.example"
//! reason = "use outputs/ instead"
//! ```
//!
//! What it says about changes to granted folders, under `[files]`, is read by [`crate::files`].
//!
//! A file is understood as a whole or not at all: a key that is not known is an error, with the line
//! that it is in.
//!
//! Deliberately absent: reading files. Where a policy lies is for its user to say.

use super::presets;
use super::rule::{self, RuleError, RuleParts, SecretParts, Verb};
use crate::files;
use cowork_api::egress::{CredentialMode, Otherwise, Request, Rule, Tls};
use serde::Deserialize;
use std::ops::Range;
use toml::Spanned;

/// What a policy file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyFile {
    /// What becomes of what no rule is about, if the file says so.
    pub otherwise: Option<Otherwise>,
    /// The presets, by the names that it has for them; each is known.
    pub presets: Vec<String>,
    /// The rules as they are written.
    pub parts: Vec<RuleParts>,
    /// The same rules, made.
    pub rules: Vec<Rule>,
    /// What it says about changes to granted folders.
    pub files: files::Settings,
}

/// Why a file is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, `{key}`: {sentence}")]
pub struct FileError {
    /// The line, from 1.
    pub line: usize,
    /// The key that is wrong, or what stands in the line instead of one.
    pub key: String,
    /// What is wrong with it.
    pub sentence: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    egress: Section,
    files: files::Section,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Section {
    default: Option<DefaultWord>,
    private: Option<PrivateWord>,
    presets: Vec<Spanned<String>>,
    allow: Vec<Spanned<Entry>>,
    ask: Vec<Spanned<Entry>>,
    deny: Vec<Spanned<Entry>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum DefaultWord {
    Deny,
    Ask,
}

/// Private addresses are reached where a rule says so; there is no other way.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PrivateWord {
    Deny,
}

/// A rule, as it is written in a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    host: String,
    #[serde(default)]
    ports: Option<PortsEntry>,
    #[serde(default)]
    methods: Vec<String>,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    http: Vec<RequestEntry>,
    #[serde(default)]
    tls: TlsWord,
    #[serde(default)]
    resolves_to: Vec<String>,
    #[serde(default)]
    auth: Option<Auth>,
    #[serde(default)]
    limits: LimitsEntry,
    #[serde(default)]
    capture: Option<String>,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "ports are numbers and ranges, e.g. [443, \"8000-8100\"], or \"*\"")]
enum PortsEntry {
    One(PortWord),
    Several(Vec<PortWord>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a port is a number from 1 to 65535, or a range as \"8000-8100\"")]
enum PortWord {
    Number(i64),
    Text(String),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RequestEntry {
    methods: Vec<String>,
    paths: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TlsWord {
    #[default]
    Auto,
    Inspect,
    Tunnel,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Auth {
    secret: String,
    #[serde(default)]
    mode: Option<ModeWord>,
    #[serde(default)]
    carrier: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ModeWord {
    Swap,
    Inject,
    Pin,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsEntry {
    upload: Option<String>,
    requests: Option<String>,
    connections: Option<u32>,
}

impl PortWord {
    fn text(&self) -> String {
        match self {
            Self::Number(port) => port.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

impl Entry {
    /// The parts of the rule. Fails where a secret is put nowhere.
    pub(super) fn parts(&self, verb: Verb) -> Result<RuleParts, RuleError> {
        let ports = self.ports.as_ref().map(|ports| match ports {
            PortsEntry::One(port) => port.text(),
            PortsEntry::Several(ports) => {
                ports.iter().map(PortWord::text).collect::<Vec<_>>().join(",")
            }
        });
        let request = |RequestEntry { methods, paths }: &RequestEntry| Request {
            methods: methods.clone(),
            paths: paths.clone(),
        };
        Ok(RuleParts {
            preset: None,
            verb,
            host: self.host.clone(),
            ports,
            methods: self.methods.clone(),
            paths: self.paths.clone(),
            http: self.http.iter().map(request).collect(),
            tls: match self.tls {
                TlsWord::Auto => Tls::AsNeeded,
                TlsWord::Inspect => Tls::Inspect,
                TlsWord::Tunnel => Tls::Tunnel,
            },
            resolves_to: self.resolves_to.clone(),
            secret: self.auth.as_ref().map(secret).transpose()?,
            reason: self.reason.clone(),
            upload: self.limits.upload.clone(),
            requests: self.limits.requests.clone(),
            connections: self.limits.connections,
            capture: self.capture.clone(),
        })
    }
}

fn secret(auth: &Auth) -> Result<SecretParts, RuleError> {
    Ok(SecretParts {
        name: auth.secret.clone(),
        mode: auth.mode.map(|mode| match mode {
            ModeWord::Swap => CredentialMode::Swap,
            ModeWord::Inject => CredentialMode::Inject,
            ModeWord::Pin => CredentialMode::Pin,
        }),
        carrier: auth.carrier.as_deref().map(rule::carrier).transpose()?,
    })
}

/// Reads a policy file.
pub fn parse(text: &str) -> Result<PolicyFile, FileError> {
    let document: Document = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        FileError { line: line_of(text, at), key: key_at(text, at), sentence: one_line(&error) }
    })?;
    let files = document.files.settings().map_err(|wrong| FileError {
        line: line_of(text, wrong.at),
        key: wrong.key.to_owned(),
        sentence: wrong.sentence,
    })?;
    let Section { default, private: _deny_only, presets, allow, ask, deny } = document.egress;
    let mut file = PolicyFile {
        otherwise: default.map(|word| match word {
            DefaultWord::Deny => Otherwise::Deny,
            DefaultWord::Ask => Otherwise::Ask,
        }),
        files,
        ..PolicyFile::default()
    };
    for preset in presets {
        let at = preset.span().start;
        presets::rules(preset.get_ref()).map_err(|error| FileError {
            line: line_of(text, at),
            key: "presets".to_owned(),
            sentence: error.to_string(),
        })?;
        file.presets.push(preset.into_inner());
    }
    let lists = [(Verb::Allow, allow), (Verb::Ask, ask), (Verb::Deny, deny)];
    for (verb, entries) in lists {
        for entry in entries {
            let wrong = |error: RuleError| misplaced(text, &entry.span(), &error);
            let parts = entry.get_ref().parts(verb).map_err(wrong)?;
            file.rules.push(rule::build(&parts).map_err(wrong)?);
            file.parts.push(parts);
        }
    }
    Ok(file)
}

fn one_line(error: &toml::de::Error) -> String {
    let words: Vec<&str> = error.message().split_whitespace().collect();
    words.join(" ").replace(char::is_control, "?")
}

/// The line that a byte is in, from 1.
fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    before.filter(|byte| **byte == b'\n').count() + 1
}

/// What stands before `=` in the line that a byte is in, or the line.
fn key_at(text: &str, at: usize) -> String {
    let line = text.lines().nth(line_of(text, at) - 1).unwrap_or_default();
    let key = line.split_once('=').map_or(line, |(key, _)| key).trim();
    key.chars().filter(|c| !c.is_control()).take(60).collect()
}

/// An error of a rule, with the line of the key that it is about, or else of the rule.
fn misplaced(text: &str, entry: &Range<usize>, error: &RuleError) -> FileError {
    let first = line_of(text, entry.start);
    let is_key = |line: &str| {
        let word = |part: &str| part.trim().trim_start_matches('{').trim() == error.key();
        line.split(['=', ',', '{']).any(word)
    };
    let own = text.lines().enumerate().skip(first - 1).enumerate();
    let own = own.take_while(|(number, (_, line))| *number == 0 || !line.starts_with('['));
    let found = own.map(|(_, line)| line).find(|(_, line)| is_key(line));
    let line = found.map_or(first, |(number, _)| number + 1);
    FileError { line, key: error.key().to_owned(), sentence: error.to_string() }
}

#[cfg(test)]
mod tests;
