//! Names that a machine acts upon by itself.
//!
//! The list is data, in `protected.toml`: which names, what happens to a change of them unless a
//! user says otherwise, and why.

use super::blocked;
use cowork_api::files::{Caps, Guards, NamePolicy, NameRule, Quota, Rules};
use serde::Deserialize;
use std::sync::LazyLock;

const DATA: &str = include_str!("protected.toml");

/// Names that something is known about.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protected {
    kind: Kind,
    #[serde(with = "Word")]
    policy: NamePolicy,
    /// Whether the machine executes it, or what it names.
    runs: bool,
    reason: String,
    patterns: Vec<String>,
    /// Names that the patterns match, at least one for each.
    #[cfg_attr(not(test), expect(dead_code, reason = "they are there to be tested"))]
    hits: Vec<String>,
    /// Names that look alike and are free.
    #[cfg_attr(not(test), expect(dead_code, reason = "they are there to be tested"))]
    misses: Vec<String>,
}

/// What names have to do with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Git, and what it starts.
    Git,
    /// A shell, when it starts or enters a folder.
    Shell,
    /// Logging in, and what is started then.
    Login,
    /// Keys and who may use them.
    Keys,
    /// An editor.
    Editor,
    /// An agent or assistant.
    Agent,
    /// A service that builds and tests.
    Ci,
    /// A build, a package manager or a language's runtime.
    Build,
}

/// A policy, as the data has it.
#[derive(Deserialize)]
#[serde(remote = "NamePolicy", rename_all = "lowercase")]
enum Word {
    Allow,
    Flag,
    Ask,
    Deny,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    name: Vec<Protected>,
}

/// Every entry. Those that are allowed are known only because they run.
pub fn protected() -> &'static [Protected] {
    // A test reads the data; there is nothing to be done about it at run time.
    static ALL: LazyLock<Data> = LazyLock::new(|| toml::from_str(DATA).unwrap_or_default());
    &ALL.name
}

impl Protected {
    /// What it has to do with.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What happens to a change.
    pub fn policy(&self) -> NamePolicy {
        self.policy
    }

    /// Why, as the end of a sentence.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Which names.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(String::as_str)
    }

    pub(super) fn runs(&self) -> bool {
        self.runs
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = NameRule> {
        self.patterns().map(|pattern| NameRule {
            pattern: pattern.to_owned(),
            policy: self.policy,
            reason: self.reason.clone(),
        })
    }
}

/// The rules of a folder about which a user has said nothing.
pub fn default_rules() -> Rules {
    let strict = protected().iter().filter(|entry| entry.policy != NamePolicy::Allow);
    Rules {
        names: strict.flat_map(Protected::rules).collect(),
        blocked: blocked::default_endings(),
        blocked_contents: true,
        guards: Guards { removals: Some(1000), share: Some(50) },
        caps: Caps::default(),
        quota: Quota::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::{DATA, Data, Kind, default_rules, protected};
    use crate::files::{Judge, MAX_REASON, MAX_RULES, Pattern};
    use cowork_api::files::{NamePolicy, Rules};
    use std::collections::BTreeSet;

    #[test]
    fn the_data_is_whole() {
        let data: Data = toml::from_str(DATA).unwrap();
        assert_eq!(data.name.len(), protected().len());
        let mut seen: Vec<(Pattern, &str)> = Vec::new();
        for entry in &data.name {
            let reason = entry.reason();
            assert!((10..=MAX_REASON).contains(&reason.len()), "{reason}");
            assert!(!reason.ends_with('.') && !reason.contains('\n'), "{reason}");
            for text in entry.patterns() {
                let pattern: Pattern = text.parse().unwrap_or_else(|error| panic!("{error}"));
                let twice = seen.iter().find(|(other, _)| *other == pattern);
                assert_eq!(twice, None, "{text} is there twice");
                seen.push((pattern, text));
            }
        }
        let kinds: BTreeSet<Kind> = data.name.iter().map(super::Protected::kind).collect();
        assert_eq!(kinds.len(), 8);
    }

    #[test]
    fn every_pattern_has_an_example_and_every_example_its_pattern() {
        for entry in protected() {
            let patterns: Vec<(&str, Pattern)> =
                entry.patterns().map(|text| (text, text.parse().unwrap())).collect();
            let covers = |path: &String| {
                patterns.iter().any(|(_, pattern)| pattern.matches(path.as_bytes()))
            };
            for path in &entry.hits {
                assert!(covers(path), "{path} is covered by none of {patterns:?}");
            }
            for path in &entry.misses {
                assert!(!covers(path), "{path} is covered by one of {patterns:?}");
            }
            assert!(!entry.misses.is_empty(), "{} has no near miss", entry.reason());
            for (text, pattern) in &patterns {
                let hit = entry.hits.iter().any(|path| pattern.matches(path.as_bytes()));
                assert!(hit, "`{text}` has no example");
            }
        }
    }

    #[test]
    fn examples_get_the_verdict_of_their_entry_or_a_stricter_one() {
        let judge = Judge::new(&default_rules());
        for entry in protected() {
            for path in &entry.hits {
                let verdict = judge.name(path.as_bytes());
                assert!(verdict.policy >= entry.policy(), "{path}: {verdict:?}");
            }
        }
    }

    #[test]
    fn nothing_is_refused_by_default_and_what_is_common_is_free() {
        let rules = default_rules();
        assert!(rules.names.len() < MAX_RULES / 2, "{}", rules.names.len());
        let policies = rules.names.iter().map(|rule| rule.policy);
        assert!(policies.into_iter().all(|it| matches!(it, NamePolicy::Flag | NamePolicy::Ask)));
        assert_eq!(rules.guards.removals, Some(1000));
        assert_eq!((rules.guards.share, rules.quota.bytes), (Some(50), None));
        assert!(rules.blocked_contents && rules.blocked.contains(&"exe".to_owned()));
        assert_ne!(rules, Rules::default());
        let judge = Judge::new(&rules);
        for path in ["package.json", "Makefile", "src/build.rs", "README.md", "workspace/a/b"] {
            assert_eq!(judge.name(path.as_bytes()).policy, NamePolicy::Allow, "{path}");
        }
    }
}
