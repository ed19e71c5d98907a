//! Hosts that belong together, by name.
//!
//! The lists are data, in `presets.toml`. A preset is asked for by its name, as `github`, or as
//! `github:read` for what only reads.

use super::file::Entry;
use super::rule::{self, RuleParts, Verb};
use cowork_api::egress::Rule;
use serde::Deserialize;
use std::sync::LazyLock;

const DATA: &str = include_str!("presets.toml");

/// Hosts that belong together.
#[derive(Clone, Debug)]
pub struct Preset {
    name: String,
    description: String,
    allow: Vec<Entry>,
    read: Vec<Entry>,
}

/// Why there are no rules for a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PresetError {
    /// There is none of that name.
    #[error("there is no preset `{}`: there are {known}", .text.escape_debug())]
    Unknown {
        /// The text as given.
        text: Box<str>,
        /// Those that there are.
        known: String,
    },
    /// What follows the colon is not known.
    #[error("`{}` is not known: write `{name}`, or `{name}:read` for what only reads", .text.escape_debug())]
    Suffix {
        /// The text as given.
        text: Box<str>,
        /// The preset.
        name: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    preset: Vec<Item>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    name: String,
    description: String,
    allow: Vec<Entry>,
    #[serde(default)]
    read: Vec<Entry>,
}

fn parse(text: &str) -> Result<Vec<Preset>, toml::de::Error> {
    let data: Data = toml::from_str(text)?;
    let preset =
        |Item { name, description, allow, read }| Preset { name, description, allow, read };
    Ok(data.preset.into_iter().map(preset).collect())
}

/// Every preset.
pub fn all() -> &'static [Preset] {
    // A test reads the data; there is nothing to be done about it at run time.
    static ALL: LazyLock<Vec<Preset>> = LazyLock::new(|| parse(DATA).unwrap_or_default());
    &ALL
}

/// The rules of a preset, by its name, or its name and `:read`.
pub fn rules(text: &str) -> Result<Vec<Rule>, PresetError> {
    let (name, suffix) = match text.split_once(':') {
        Some((name, suffix)) => (name, Some(suffix)),
        None => (text, None),
    };
    let Some(preset) = all().iter().find(|preset| preset.name == name) else {
        let names: Vec<&str> = all().iter().map(Preset::name).collect();
        return Err(PresetError::Unknown { text: text.into(), known: names.join(", ") });
    };
    match suffix {
        None => Ok(preset.rules()),
        Some("read") => Ok(preset.reading_rules()),
        Some(_) => Err(PresetError::Suffix { text: text.into(), name: name.to_owned() }),
    }
}

impl Preset {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is for, in one line.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Its rules.
    pub fn rules(&self) -> Vec<Rule> {
        made(&self.name, &self.allow)
    }

    /// Its rules for what only reads. Where it never writes, those are all.
    pub fn reading_rules(&self) -> Vec<Rule> {
        let list = if self.read.is_empty() { &self.allow } else { &self.read };
        made(&format!("{}:read", self.name), list)
    }
}

fn made(name: &str, list: &[Entry]) -> Vec<Rule> {
    let parts = list.iter().filter_map(|entry| entry.parts(Verb::Allow).ok());
    let named = parts.map(|parts| RuleParts { preset: Some(name.to_owned()), ..parts });
    named.filter_map(|parts| rule::build(&parts).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::{DATA, PresetError, all, parse, rules};
    use crate::egress::rule::{self, Verb};
    use crate::egress::{Matcher, Outcome, Treatment};
    use cowork_api::egress::{Host, Ports, Rules};
    use std::collections::BTreeSet;

    #[test]
    fn every_entry_is_a_rule() {
        for preset in parse(DATA).unwrap() {
            for entry in preset.allow.iter().chain(&preset.read) {
                let parts = entry.parts(Verb::Allow).unwrap();
                let rule = rule::build(&parts).unwrap_or_else(|error| {
                    panic!("{} {}: {error}", preset.name, parts.host);
                });
                rule::fits_listeners(&rule).unwrap();
                let named = matches!(rule.host, Host::Name(_) | Host::Below(_) | Host::Domain(_));
                assert!(named && rule.ports != Ports::All, "{}", rule.name);
                assert!(rule.resolves_to.is_empty() && rule.credential.is_none(), "{}", rule.name);
            }
            assert_eq!(preset.rules().len(), preset.allow.len());
        }
    }

    #[test]
    fn names_are_short_and_each_is_there_once() {
        let mut names = BTreeSet::new();
        for preset in all() {
            assert!(names.insert(preset.name()), "{} is there twice", preset.name());
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(!preset.name().is_empty() && preset.name().chars().all(fits));
            let description = preset.description();
            assert!((10..=100).contains(&description.len()), "{description}");
            assert!(!description.contains('\n') && !description.ends_with('.'), "{description}");
            for list in [preset.rules(), preset.reading_rules()] {
                let rules: BTreeSet<&str> = list.iter().map(|rule| rule.name.as_str()).collect();
                assert_eq!(rules.len(), list.len(), "{} says something twice", preset.name());
                assert!(!list.is_empty());
            }
        }
        for name in ["claude", "openai", "github", "npm", "pypi", "crates", "go", "maven", "debian"]
        {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn what_only_reads_does_not_write() {
        for preset in all() {
            let rules = preset.reading_rules();
            let reads_only = rules.iter().all(|rule| !rule.http.is_empty());
            if preset.name() == "claude" || preset.name() == "openai" {
                continue;
            }
            assert!(reads_only, "{} has a rule for every method", preset.name());
            let matcher = Matcher::new(Rules { rules: rules.clone(), ..Rules::default() });
            for rule in &rules {
                let (Host::Name(name) | Host::Below(name) | Host::Domain(name)) = &rule.host else {
                    panic!("{}", rule.name);
                };
                let place = format!("a.{name}").parse().unwrap();
                let exact = name.parse().unwrap();
                for place in [place, exact] {
                    for method in ["PUT", "PATCH", "DELETE", "get"] {
                        let outcome = matcher.request(&place, 443, method, "/a/b").outcome;
                        assert!(!matches!(outcome, Outcome::Allow), "{} {method}", rule.name);
                    }
                    let push = matcher.request(&place, 443, "POST", "/a/b/git-receive-pack");
                    assert_ne!(push.outcome, Outcome::Allow, "{}", rule.name);
                }
            }
        }
    }

    #[test]
    fn a_preset_is_found_by_its_name() {
        let matcher =
            Matcher::new(Rules { rules: rules("github:read").unwrap(), ..Rules::default() });
        let place = "github.com".parse().unwrap();
        let asked = |method, path| matcher.request(&place, 443, method, path).outcome;
        assert_eq!(asked("GET", "/o/r.git/info/refs"), Outcome::Allow);
        assert_eq!(asked("POST", "/o/r.git/git-upload-pack"), Outcome::Allow);
        assert_eq!(asked("POST", "/o/r.git/git-receive-pack"), Outcome::OtherRequest);
        assert_eq!(matcher.treatment(&place, 443), Treatment::Inspect);
        let names: Vec<String> =
            rules("github").unwrap().into_iter().map(|rule| rule.name).collect();
        assert!(names.contains(&"preset github: api.github.com".to_owned()), "{names:?}");
        assert!(matches!(rules("nothing"), Err(PresetError::Unknown { .. })));
        assert!(matches!(rules("npm:write"), Err(PresetError::Suffix { .. })));
        assert!(rules("npm:write").unwrap_err().to_string().contains("`npm:read`"));
    }

    #[test]
    fn a_scoped_package_is_found() {
        let matcher = Matcher::new(Rules { rules: rules("npm").unwrap(), ..Rules::default() });
        let place = "registry.npmjs.org".parse().unwrap();
        let outcome = matcher.request(&place, 443, "GET", "/@types%2fnode").outcome;
        assert_eq!(outcome, Outcome::Allow);
    }
}
