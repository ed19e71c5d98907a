//! Rules, ready to be asked about names.

mod index;

use super::blocked::{self, Contents};
use super::fold::is_short;
use super::pattern::{Folded, Key, Pattern};
use cowork_api::files::{NamePolicy, Rules};
use index::{Index, ending_of};
use std::collections::HashMap;

/// The rules of a folder, compiled.
///
/// Paths are bytes below the folder, free of symbolic links, with or without a slash at the start.
#[derive(Clone, Debug)]
pub struct Judge {
    rules: Vec<Compiled>,
    /// By what is in every path that a rule covers.
    covering: Index,
    /// By what is in every path that leads to one.
    leading: Index,
    blocked: HashMap<Box<[u8]>, Box<str>>,
    blocked_contents: bool,
}

#[derive(Clone, Debug)]
struct Compiled {
    /// Without one the rule is about every name: a rule that cannot be read must not be lost.
    pattern: Option<Pattern>,
    policy: NamePolicy,
    reason: Box<str>,
}

/// What happens to a change of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a verdict that is not enforced is a hole"]
pub struct Verdict<'a> {
    /// What happens.
    pub policy: NamePolicy,
    /// Why, if a rule says so.
    pub reason: Option<&'a str>,
    /// The number of that rule among the names of [`Rules`].
    pub rule: Option<usize>,
}

impl Verdict<'_> {
    /// No rule is about it.
    pub const FREE: Self = Self { policy: NamePolicy::Allow, reason: None, rule: None };
}

impl Judge {
    /// Compiles the rules. A pattern that cannot be read covers every name.
    pub fn new(rules: &Rules) -> Self {
        let compiled = rules.names.iter().map(|rule| Compiled {
            pattern: rule.pattern.parse().ok(),
            policy: rule.policy,
            reason: rule.reason.as_str().into(),
        });
        let mut judge = Self {
            rules: compiled.collect(),
            covering: Index::default(),
            leading: Index::default(),
            blocked: blocked::reasons(&rules.blocked),
            blocked_contents: rules.blocked_contents,
        };
        for (number, rule) in judge.rules.iter().enumerate() {
            let pattern = rule.pattern.as_ref();
            judge.covering.insert(pattern.map_or(Key::None, Pattern::key), number);
            judge.leading.insert(pattern.map_or(Key::None, Pattern::first_key), number);
        }
        judge
    }

    /// What happens when the file at `path` is made, changed, removed or renamed, or another is
    /// renamed to it. Of several rules the strictest counts, of equally strict ones the first.
    pub fn name(&self, path: &[u8]) -> Verdict<'_> {
        let path = Folded::new(path);
        self.strictest(&self.covering, &path, |pattern| pattern.covers(&path))
    }

    /// What happens when a symbolic link is made at `path`, or something is renamed to it of which
    /// it is not known what lies below: beside [`name`](Self::name), the rules about what could be
    /// found through it count.
    pub fn link(&self, path: &[u8]) -> Verdict<'_> {
        let path = Folded::new(path);
        self.strictest(&self.leading, &path, |pattern| pattern.leads_through(&path))
    }

    /// Whether a rule that asks or refuses could be about something below the folder at `path`
    /// because of what the folder is called. A folder that is renamed from and to names without
    /// that has below it what it had before, protected or not.
    pub fn may_cover(&self, path: &[u8]) -> bool {
        self.link(path).policy >= NamePolicy::Ask
    }

    /// Why files of this name are refused, if they are.
    pub fn is_blocked_name(&self, path: &[u8]) -> Option<&str> {
        let name = Folded::new(path.rsplit(|byte| *byte == b'/').next()?);
        let ending = name.components().next().and_then(ending_of)?;
        let reason = self.blocked.get(ending)?;
        (!blocked::is_excepted(path)).then_some(reason)
    }

    /// Why a file with these contents is refused at `path`, if it is.
    pub fn blocked_contents(&self, path: &[u8], contents: &Contents<'_>) -> Option<&'static str> {
        if !self.blocked_contents {
            return None;
        }
        let magic = blocked::blocked_magic(contents)?;
        let refused = |ending: &str| self.blocked.contains_key(ending.as_bytes());
        let counts = magic.ending.is_none_or(refused) && !blocked::is_excepted(path);
        counts.then_some(magic.reason)
    }

    /// Whether no type is refused at `path`, because of where it lies.
    pub fn is_excepted(&self, path: &[u8]) -> bool {
        blocked::is_excepted(path)
    }

    /// Whether there could be something below a folder that was let in because of what the folder is
    /// called, and would not be if it were called otherwise.
    pub fn may_let_out(&self, from: &[u8], to: &[u8]) -> bool {
        let judges = self.blocked_contents || !self.blocked.is_empty();
        judges && blocked::may_let_out(from, to)
    }

    /// Whether contents matter at all, so that they must be read.
    pub fn looks_at_contents(&self) -> bool {
        self.blocked_contents
    }

    fn strictest(
        &self,
        index: &Index,
        path: &Folded,
        is_about: impl Fn(&Pattern) -> bool,
    ) -> Verdict<'_> {
        let mut best = Verdict::FREE;
        let mut consider = |number: usize| {
            let Some(rule) = self.rules.get(number) else { return };
            let improves = improves(rule.policy, number, &best);
            if improves && rule.pattern.as_ref().is_none_or(&is_about) {
                best = rule.verdict(number);
            }
        };
        // The second name of a file is in no index.
        if path.components().any(is_short) {
            (0..self.rules.len()).for_each(consider);
        } else {
            index.candidates(path, &mut consider);
        }
        best
    }
}

impl Compiled {
    fn verdict(&self, number: usize) -> Verdict<'_> {
        Verdict { policy: self.policy, reason: Some(&self.reason), rule: Some(number) }
    }
}

/// Whether a rule counts before the one that was found.
fn improves(policy: NamePolicy, number: usize, best: &Verdict<'_>) -> bool {
    match best.rule {
        None => true,
        Some(rule) => policy > best.policy || (policy == best.policy && number < rule),
    }
}

#[cfg(test)]
mod tests;
