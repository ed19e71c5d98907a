//! What a user says about a folder's names, and what becomes of the rules by it.

use super::pattern::{Pattern, PatternError};
use super::{EndingError, Judge, ending};
use cowork_api::files::{Beyond, NamePolicy, NameRule, Rules};

/// Most rules about names that a folder has, with those that every folder starts with.
pub const MAX_RULES: usize = 1000;
/// Longest reason in bytes.
pub const MAX_REASON: usize = 200;

/// Why a rule cannot be made, or cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameRuleError {
    /// The names are not written as they should be.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The reason does not fit into a line.
    #[error("the reason must be one line of at most {MAX_REASON} bytes")]
    Reason,
    /// There are enough rules.
    #[error("the folder has {MAX_RULES} rules about names already: remove one first")]
    TooMany,
}

/// Why a word is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown policy `{}`: use `allow`, `flag` (allow and mark), `ask` or `deny`",
    .word.escape_debug()
)]
pub struct PolicyWordError {
    word: Box<str>,
}

/// Reads a policy.
pub fn policy(word: &str) -> Result<NamePolicy, PolicyWordError> {
    match word {
        "allow" => Ok(NamePolicy::Allow),
        "flag" => Ok(NamePolicy::Flag),
        "ask" => Ok(NamePolicy::Ask),
        "deny" => Ok(NamePolicy::Deny),
        other => Err(PolicyWordError { word: other.into() }),
    }
}

/// The word that [`policy`] reads.
pub fn word(policy: NamePolicy) -> &'static str {
    match policy {
        NamePolicy::Allow => "allow",
        NamePolicy::Flag => "flag",
        NamePolicy::Ask => "ask",
        NamePolicy::Deny => "deny",
    }
}

/// Makes a rule of what a user wrote.
pub fn name_rule(
    pattern: &str,
    policy: NamePolicy,
    reason: Option<&str>,
) -> Result<NameRule, NameRuleError> {
    let _checked: Pattern = pattern.parse()?;
    let reason = reason.unwrap_or("you made a rule for this name");
    if reason.is_empty() || reason.len() > MAX_REASON || reason.chars().any(char::is_control) {
        return Err(NameRuleError::Reason);
    }
    Ok(NameRule { pattern: pattern.to_owned(), policy, reason: reason.to_owned() })
}

/// Adds a rule. One with the same pattern is replaced, in its place; beside all others the new one
/// counts where it is the strictest.
pub fn add(rules: &mut Rules, rule: NameRule) -> Result<(), NameRuleError> {
    let pattern: Pattern = rule.pattern.parse()?;
    let is_same = |other: &NameRule| other.pattern.parse().as_ref() == Ok(&pattern);
    let full = rules.names.len() >= MAX_RULES;
    match rules.names.iter_mut().find(|other| is_same(other)) {
        Some(other) => *other = rule,
        None if full => return Err(NameRuleError::TooMany),
        None => rules.names.push(rule),
    }
    Ok(())
}

/// Removes the rule with the same pattern, and gives it back.
pub fn remove(rules: &mut Rules, pattern: &str) -> Result<Option<NameRule>, PatternError> {
    let pattern: Pattern = pattern.parse()?;
    let is_same = |other: &NameRule| other.pattern.parse().as_ref() == Ok(&pattern);
    let found = rules.names.iter().position(is_same);
    Ok(found.map(|at| rules.names.remove(at)))
}

/// The stricter rule that counts instead of `rule` for the plainest name that its pattern matches:
/// whoever adds `rule` should know that it changes nothing there.
pub fn overruled<'a>(rules: &'a Rules, rule: &NameRule) -> Option<&'a NameRule> {
    let pattern: Pattern = rule.pattern.parse().ok()?;
    let judge = Judge::new(rules);
    let verdict = judge.name(&pattern.example());
    rules.names.get(verdict.rule?).filter(|other| other.policy > rule.policy)
}

/// One thing that a user may have said something about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Setting<T> {
    /// Nothing: it stays as it is.
    #[default]
    Unsaid,
    /// There shall be no limit.
    Off,
    /// This shall be the limit.
    To(T),
}

impl<T> Setting<T> {
    /// The limit, if there shall be one.
    pub fn number(self) -> Option<T> {
        match self {
            Self::Unsaid | Self::Off => None,
            Self::To(number) => Some(number),
        }
    }

    fn over(self, old: Option<T>) -> Option<T> {
        match self {
            Self::Unsaid => old,
            Self::Off => None,
            Self::To(new) => Some(new),
        }
    }
}

/// What a user says about a folder, in a policy file or on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Rules about names.
    pub names: Vec<NameRule>,
    /// Endings that are refused too.
    pub block: Vec<String>,
    /// Endings that are not refused after all.
    pub unblock: Vec<String>,
    /// Whether contents are looked at.
    pub contents: Option<bool>,
    /// After how many removed or overwritten files it is asked.
    pub removals: Setting<u32>,
    /// After what part of the folder's files, in percent.
    pub share: Setting<u8>,
    /// Largest file that is copied, in bytes.
    pub file_cap: Option<u64>,
    /// Most bytes that are copied for a session.
    pub session_cap: Option<u64>,
    /// What happens beyond.
    pub beyond: Option<Beyond>,
    /// Bytes that a session may add.
    pub bytes: Setting<u64>,
    /// Files that a session may add.
    pub files: Setting<u64>,
}

/// Why settings make no rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub enum SettingsError {
    /// A rule about names is wrong.
    Rule(#[from] NameRuleError),
    /// An ending is wrong.
    Ending(#[from] EndingError),
}

/// The rules that are left when a user's settings are laid over others: a rule of the user replaces
/// the one with the same pattern, and is added otherwise; of all that are left the strictest counts.
pub fn merge(base: &Rules, user: &Settings) -> Result<Rules, SettingsError> {
    let mut rules = base.clone();
    for rule in &user.names {
        add(&mut rules, rule.clone())?;
    }
    for text in &user.block {
        let ending = ending(text)?;
        if !rules.blocked.contains(&ending) {
            rules.blocked.push(ending);
        }
    }
    for text in &user.unblock {
        let ending = ending(text)?;
        rules.blocked.retain(|blocked| *blocked != ending);
    }
    rules.blocked_contents = user.contents.unwrap_or(rules.blocked_contents);
    rules.guards.removals = user.removals.over(rules.guards.removals);
    rules.guards.share = user.share.over(rules.guards.share);
    rules.caps.file = user.file_cap.unwrap_or(rules.caps.file);
    rules.caps.session = user.session_cap.unwrap_or(rules.caps.session);
    rules.caps.beyond = user.beyond.unwrap_or(rules.caps.beyond);
    rules.quota.bytes = user.bytes.over(rules.quota.bytes);
    rules.quota.files = user.files.over(rules.quota.files);
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::default_rules;

    fn rule(pattern: &str, policy: NamePolicy) -> NameRule {
        name_rule(pattern, policy, None).unwrap()
    }

    #[test]
    fn a_policy_is_written_as_it_is_read() {
        for text in ["allow", "flag", "ask", "deny"] {
            assert_eq!(policy(text).map(word), Ok(text));
        }
        assert_eq!(
            policy("Ask").unwrap_err().to_string(),
            "unknown policy `Ask`: use `allow`, `flag` (allow and mark), `ask` or `deny`"
        );
    }

    #[test]
    fn a_rule_needs_a_pattern_and_a_reason_that_fits() {
        let made = name_rule("*.kdbx", NamePolicy::Deny, Some("it holds passwords")).unwrap();
        assert_eq!(made.reason, "it holds passwords");
        assert!(matches!(name_rule("", NamePolicy::Ask, None), Err(NameRuleError::Pattern(_))));
        for reason in ["", "a\nb", &"x".repeat(MAX_REASON + 1)] {
            let error = name_rule("a", NamePolicy::Ask, Some(reason)).unwrap_err();
            assert_eq!(error.to_string(), "the reason must be one line of at most 200 bytes");
        }
    }

    #[test]
    fn a_rule_of_the_user_replaces_the_one_with_its_pattern() {
        let base = default_rules();
        let settings = Settings {
            names: vec![
                rule(".ENVRC", NamePolicy::Allow),
                rule(".github/workflows/**", NamePolicy::Ask),
                rule("*.kdbx", NamePolicy::Deny),
            ],
            ..Settings::default()
        };
        let rules = merge(&base, &settings).unwrap();
        assert_eq!(rules.names.len(), base.names.len() + 1);
        let judge = Judge::new(&rules);
        for (path, policy) in [
            (".envrc", NamePolicy::Allow),
            (".github/workflows/ci.yml", NamePolicy::Ask),
            ("a/b.KDBX", NamePolicy::Deny),
            (".bashrc", NamePolicy::Ask),
        ] {
            assert_eq!(judge.name(path.as_bytes()).policy, policy, "{path}");
        }
        let position = |rules: &Rules| {
            rules.names.iter().position(|it| it.pattern.eq_ignore_ascii_case(".envrc"))
        };
        assert_eq!(position(&rules), position(&base));
    }

    #[test]
    fn a_rule_that_changes_nothing_is_told() {
        let rules = default_rules();
        let other = overruled(&rules, &rule(".git/hooks/pre-commit", NamePolicy::Allow)).unwrap();
        assert_eq!(other.pattern, "*.git/hooks/!*.sample");
        assert_eq!(overruled(&rules, &rule(".git/hooks/pre-commit", NamePolicy::Deny)), None);
        assert_eq!(overruled(&rules, &rule("docs/**", NamePolicy::Allow)), None);
    }

    #[test]
    fn a_rule_is_removed_by_its_pattern() {
        let mut rules = default_rules();
        let count = rules.names.len();
        assert_eq!(remove(&mut rules, "no-such"), Ok(None));
        assert_eq!(remove(&mut rules, ".ENVRC").unwrap().unwrap().pattern, ".envrc");
        assert_eq!(rules.names.len(), count - 1);
        assert!(remove(&mut rules, "").is_err());
    }

    #[test]
    fn there_is_an_end_of_rules() {
        let mut rules = Rules::default();
        let one = |number| rule(&format!("a{number}"), NamePolicy::Ask);
        rules.names = (0..MAX_RULES).map(one).collect();
        assert_eq!(add(&mut rules, rule("b", NamePolicy::Ask)), Err(NameRuleError::TooMany));
        assert_eq!(add(&mut rules, rule("a7", NamePolicy::Deny)), Ok(()));
    }

    #[test]
    fn limits_and_endings_are_laid_over() {
        let settings = Settings {
            block: vec![".Zip".to_owned(), "exe".to_owned()],
            unblock: vec!["jar".to_owned()],
            contents: Some(false),
            removals: Setting::Off,
            share: Setting::To(10),
            file_cap: Some(5),
            beyond: Some(Beyond::Ask),
            bytes: Setting::To(7),
            ..Settings::default()
        };
        let base = default_rules();
        let rules = merge(&base, &settings).unwrap();
        assert_eq!(rules.blocked.len(), base.blocked.len());
        assert!(rules.blocked.contains(&"zip".to_owned()));
        assert!(!rules.blocked.contains(&"jar".to_owned()) && !rules.blocked_contents);
        assert_eq!((rules.guards.removals, rules.guards.share), (None, Some(10)));
        assert_eq!((rules.caps.file, rules.caps.session), (5, base.caps.session));
        assert_eq!((rules.caps.beyond, rules.quota.bytes), (Beyond::Ask, Some(7)));
        assert_eq!(merge(&base, &Settings::default()), Ok(base.clone()));
        let wrong = Settings { block: vec!["a/b".to_owned()], ..Settings::default() };
        assert!(matches!(merge(&base, &wrong), Err(SettingsError::Ending(_))));
    }
}
