//! Names, as a rule writes them.
//!
//! A pattern has parts divided by `/`. In a part `*` stands for any characters, `?` for one, `[a-z]`
//! and `[!a-z]` for one of a range or none of it, and `\` takes the meaning from what follows. A
//! part that starts with `!` matches every name that the rest of it does not. `**` stands for any
//! number of parts; at the end, for at least one. A pattern is looked for at any depth unless it
//! starts with `/`, and covers what it matches and everything below.
//!
//! Names are compared after folding (`files/fold.rs`), so a pattern matches whatever a file system
//! could take for one of its names.
//!
//! Deliberately absent: a pattern that excepts whole paths. Of several rules the strictest counts.

mod glob;

use super::fold::fold;
use glob::Glob;
use std::str::FromStr;

/// Longest pattern in bytes.
pub const MAX_PATTERN: usize = 512;
/// Most parts that a pattern has.
pub const MAX_PARTS: usize = 32;

/// Names below a folder.
///
/// Invariant: at most [`MAX_PARTS`] parts, the last of which is a name, and no two neighbours of
/// which are `**`. Equal patterns match the same names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Where the pattern is looked for at any depth, the first one is [`Part::Deep`].
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Any number of components.
    Deep,
    /// A component that the pattern matches.
    Is(Glob),
    /// A component that the pattern does not match.
    IsNot(Glob),
}

impl Part {
    fn key(&self) -> Key<'_> {
        match self {
            Self::Is(glob) => glob.key(),
            Self::Deep | Self::IsNot(_) => Key::None,
        }
    }
}

/// Why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// There is no text, or nothing but slashes.
    #[error("the pattern is empty")]
    Empty,
    /// The text is longer than a pattern may be.
    #[error("the pattern is {bytes} bytes long: at most {MAX_PATTERN} are allowed")]
    TooLong {
        /// How long the text is.
        bytes: usize,
    },
    /// The text has more parts than a pattern may have.
    #[error("the pattern has {parts} parts: at most {MAX_PARTS} are allowed")]
    TooDeep {
        /// How many parts there are.
        parts: usize,
    },
    /// Two slashes follow one another.
    #[error("pattern `{}` has nothing between two slashes", .pattern.escape_debug())]
    EmptyPart {
        /// The text as given.
        pattern: Box<str>,
    },
    /// A part is `.` or `..`.
    #[error("pattern `{}` contains `{part}`, which is no name", .pattern.escape_debug())]
    Dots {
        /// The text as given.
        pattern: Box<str>,
        /// The part.
        part: Box<str>,
    },
    /// A character that no name should have.
    #[error("pattern `{}` contains `{}`", .pattern.escape_debug(), .character.escape_debug())]
    Character {
        /// The text as given.
        pattern: Box<str>,
        /// The character.
        character: char,
    },
    /// `**` beside other characters.
    #[error(
        "pattern `{}` has `**` beside other characters: write `*` within a name, or `**` alone \
         between slashes",
        .pattern.escape_debug()
    )]
    Stars {
        /// The text as given.
        pattern: Box<str>,
    },
    /// A range that is not closed, is empty or runs backwards.
    #[error(
        "pattern `{}` has a `[` that starts no range: write `[a-z]`, or `\\[` for the character",
        .pattern.escape_debug()
    )]
    Range {
        /// The text as given.
        pattern: Box<str>,
    },
    /// Nothing follows the last `\`.
    #[error("pattern `{}` ends with `\\`: write `\\\\` for the character", .pattern.escape_debug())]
    Escape {
        /// The text as given.
        pattern: Box<str>,
    },
    /// The first part starts with `!`.
    #[error(
        "pattern `{}` starts with `!`: it would match nearly everything; write a rule with `allow` \
         for what is not protected, or `\\!` for the character",
        .pattern.escape_debug()
    )]
    Negation {
        /// The text as given.
        pattern: Box<str>,
    },
    /// A part matches nothing, whatever the name.
    #[error(
        "pattern `{}` has the part `{}`, which no name matches",
        .pattern.escape_debug(), .part.escape_debug()
    )]
    Never {
        /// The text as given.
        pattern: Box<str>,
        /// The part.
        part: Box<str>,
    },
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_PATTERN {
            return Err(PatternError::TooLong { bytes: text.len() });
        }
        if let Some(character) = text.chars().find(|c| c.is_control()) {
            return Err(PatternError::Character { pattern: text.into(), character });
        }
        let (anchored, rest) = match text.strip_prefix('/') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() {
            return Err(PatternError::Empty);
        }
        if rest.starts_with('!') {
            return Err(PatternError::Negation { pattern: text.into() });
        }
        let count = rest.split('/').count();
        if count > MAX_PARTS {
            return Err(PatternError::TooDeep { parts: count });
        }
        let mut parts = Vec::with_capacity(count + 2);
        if !anchored {
            parts.push(Part::Deep);
        }
        for word in rest.split('/') {
            let part = part(word, text)?;
            if part != Part::Deep || parts.last() != Some(&Part::Deep) {
                parts.push(part);
            }
        }
        if parts.last() == Some(&Part::Deep) {
            parts.push(Part::Is(Glob::Any));
        }
        Ok(Self { parts })
    }
}

/// Reads one part of the pattern `whole`.
fn part(word: &str, whole: &str) -> Result<Part, PatternError> {
    let (word, negated) = match word.strip_prefix('!') {
        Some(rest) => (rest, true),
        None => (word, false),
    };
    match word {
        "" => Err(PatternError::EmptyPart { pattern: whole.into() }),
        "." | ".." => Err(PatternError::Dots { pattern: whole.into(), part: word.into() }),
        "**" if !negated => Ok(Part::Deep),
        word => {
            let glob = Glob::parse(word, whole)?;
            if negated && glob == Glob::Any {
                return Err(PatternError::Never { pattern: whole.into(), part: "!*".into() });
            }
            Ok(if negated { Part::IsNot(glob) } else { Part::Is(glob) })
        }
    }
}

/// A path below a folder, ready to be compared.
///
/// Invariant: no component is empty in the path that it was made of, nor `.`.
#[derive(Clone, Debug)]
pub(super) struct Folded {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Folded {
    /// Folds every component.
    pub(super) fn new(path: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(path.len());
        let mut ends = Vec::with_capacity(16);
        for name in path.split(|byte| *byte == b'/') {
            if !matches!(name, b"" | b".") {
                fold(name, &mut bytes);
                ends.push(bytes.len());
            }
        }
        Self { bytes, ends }
    }

    /// The components in order. One that consists of what a file system drops is empty.
    pub(super) fn components(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let name = self.bytes.get(start..*end).unwrap_or_default();
            start = *end;
            name
        })
    }
}

/// What of a pattern can follow after some components: bit `n` stands for part `n`.
type States = u64;

impl Pattern {
    /// Whether the pattern covers a path below the folder.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.covers(&Folded::new(path))
    }

    /// Whether the pattern matches a path or a folder above it.
    pub(super) fn covers(&self, path: &Folded) -> bool {
        let end = bit(self.parts.len());
        let mut states = self.start();
        path.components().any(|name| {
            states = self.after(states, name);
            states & end != 0
        })
    }

    /// Whether the last component of a path, or one above, is the start of what the pattern is
    /// about: what lies below it can match because of how it is called, not on its own.
    pub(super) fn leads_through(&self, path: &Folded) -> bool {
        let (start, end) = (self.start(), bit(self.parts.len()));
        let mut states = start;
        for name in path.components() {
            states = self.after(states, name);
            if states & end != 0 {
                return true;
            }
        }
        states & !start != 0
    }

    fn start(&self) -> States {
        self.closed(bit(0))
    }

    /// `**` may stand for nothing.
    fn closed(&self, states: States) -> States {
        let mut closed = states;
        for (number, part) in self.parts.iter().enumerate() {
            if closed & bit(number) != 0 && *part == Part::Deep {
                closed |= bit(number + 1);
            }
        }
        closed
    }

    fn after(&self, states: States, name: &[u8]) -> States {
        let mut next = 0;
        for (number, part) in self.parts.iter().enumerate() {
            if states & bit(number) == 0 {
                continue;
            }
            next |= match part {
                Part::Deep => bit(number),
                Part::Is(glob) if glob.matches(name) => bit(number + 1),
                Part::IsNot(glob) if !glob.matches(name) => bit(number + 1),
                Part::Is(_) | Part::IsNot(_) => 0,
            };
        }
        self.closed(next)
    }

    /// What is in every path that the pattern covers, the rarest that is known.
    pub(super) fn key(&self) -> Key<'_> {
        let keys = || self.parts.iter().rev().map(Part::key);
        let is_name = |key: &Key<'_>| matches!(key, Key::Name(_));
        let is_known = |key: &Key<'_>| *key != Key::None;
        keys().find(is_name).or_else(|| keys().find(is_known)).unwrap_or(Key::None)
    }

    /// What is in every path through which the pattern leads.
    pub(super) fn first_key(&self) -> Key<'_> {
        self.parts.iter().find(|part| **part != Part::Deep).map_or(Key::None, Part::key)
    }

    /// The plainest path that the pattern matches, as far as one is plain.
    pub(super) fn example(&self) -> Vec<u8> {
        let names = self.parts.iter().filter_map(|part| match part {
            Part::Deep => None,
            Part::Is(glob) => Some(glob.example()),
            Part::IsNot(_) => Some(b"x".to_vec()),
        });
        names.collect::<Vec<_>>().join(&b'/')
    }
}

/// A condition on a path that is cheap to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key<'a> {
    /// A component is called so.
    Name(&'a [u8]),
    /// A component has this after its last dot.
    Ending(&'a [u8]),
    /// A component starts with this.
    Start(&'a [u8]),
    /// Nothing of the kind is known.
    None,
}

fn bit(number: usize) -> States {
    u32::try_from(number).ok().and_then(|number| 1u64.checked_shl(number)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
