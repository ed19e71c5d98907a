//! The names of sessions.
//!
//! A session is called by a person, so its id is two words that can be said and remembered. The
//! same id is a path component, a host name label and a cgroup name, so its alphabet is the
//! smallest of the three.
//!
//! Deliberately absent: the source of randomness and the list of ids in use. The caller passes
//! both in, and the same entropy always gives the same id.

mod words;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use words::{ADJECTIVES, SURNAMES};

/// Names one session, e.g. `zealous-ramanujan`.
///
/// Invariant: words of lower-case ASCII letters and digits, joined by single `-`, 3 to 63 bytes,
/// starting with a letter. It is therefore a path component, a host name label and a cgroup name
/// without escaping.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(Box<str>);

/// Why a text is not a session id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionIdError {
    /// The text is shorter or longer than an id may be.
    #[error("session id is {bytes} bytes long: it has {} to {}", LENGTH.start(), LENGTH.end())]
    Length {
        /// How long the text is.
        bytes: usize,
    },
    /// The text holds a character that an id cannot hold.
    #[error(
        "session id `{}` contains `{}`: it is made of lower-case letters, digits and `-`",
        .id.escape_debug(),
        .character.escape_debug()
    )]
    Character {
        /// The text as given.
        id: Box<str>,
        /// The first character that does not belong.
        character: char,
    },
    /// The first character is a digit or a `-`.
    #[error("session id `{id}` does not start with a letter")]
    Start {
        /// The text as given.
        id: Box<str>,
    },
    /// A `-` has no word after it.
    #[error("session id `{id}` has a `-` that does not join two words")]
    Dash {
        /// The text as given.
        id: Box<str>,
    },
}

/// How many bytes an id has. A host name label ends at 63 (RFC 1035, section 2.3.4).
const LENGTH: RangeInclusive<usize> = 3..=63;

/// The step between the ids of two successive entropies.
///
/// It is coprime with [`SessionId::COMBINATIONS`], so that successive steps visit every id before
/// they repeat one, and far from small, so that neighbours share neither word and two sessions of
/// one minute cannot be mistaken for each other.
const STRIDE: u64 = 179_424_673;

impl SessionId {
    /// How many ids [`SessionId::from_entropy`] can choose from.
    pub const COMBINATIONS: u64 = ADJECTIVES.len() as u64 * SURNAMES.len() as u64;

    /// Chooses an id: the same number always gives the same one, and any
    /// [`SessionId::COMBINATIONS`] successive numbers give each id once.
    pub fn from_entropy(entropy: u64) -> Self {
        let index = (entropy % Self::COMBINATIONS) * STRIDE % Self::COMBINATIONS;
        let adjective = nth(&ADJECTIVES, index % ADJECTIVES.len() as u64);
        let surname = nth(&SURNAMES, index / ADJECTIVES.len() as u64);
        Self(format!("{adjective}-{surname}").into())
    }

    /// Chooses an id that is not taken, starting where `entropy` points; `None` when every id is
    /// taken.
    pub fn unused(entropy: u64, taken: impl Fn(&Self) -> bool) -> Option<Self> {
        let start = entropy % Self::COMBINATIONS;
        (start..start + Self::COMBINATIONS).map(Self::from_entropy).find(|id| !taken(id))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SessionId {
    type Err = SessionIdError;

    fn from_str(id: &str) -> Result<Self, Self::Err> {
        if !LENGTH.contains(&id.len()) {
            return Err(SessionIdError::Length { bytes: id.len() });
        }
        let belongs = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if let Some(character) = id.chars().find(|&c| !belongs(c)) {
            return Err(SessionIdError::Character { id: id.into(), character });
        }
        if !id.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err(SessionIdError::Start { id: id.into() });
        }
        if id.split('-').any(str::is_empty) {
            return Err(SessionIdError::Dash { id: id.into() });
        }
        Ok(Self(id.into()))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The word at `index`. Beyond the end it would be `nameless`, but the only caller reduces every
/// index to the length of its list.
fn nth(words: &'static [&'static str], index: u64) -> &'static str {
    usize::try_from(index).ok().and_then(|index| words.get(index)).copied().unwrap_or("nameless")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::HashSet;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        let parsed = text.parse::<SessionId>().map_err(|error| error.to_string());
        let expected = expected.map(|id| SessionId(id.into())).map_err(str::to_owned);
        assert_eq!(parsed, expected, "{text:?}");
    }

    #[test]
    fn words_of_letters_and_digits_are_ids() {
        let longest = "a".repeat(63);
        for id in ["zealous-ramanujan", "abc", "a-b", "a1-2", "one-two-three", longest.as_str()] {
            check(id, Ok(id));
        }
    }

    #[test]
    fn lengths_outside_three_to_sixty_three_bytes_are_refused() {
        check("", Err("session id is 0 bytes long: it has 3 to 63"));
        check("ab", Err("session id is 2 bytes long: it has 3 to 63"));
        check(&"a".repeat(64), Err("session id is 64 bytes long: it has 3 to 63"));
    }

    #[test]
    fn characters_that_need_escaping_somewhere_are_refused() {
        for (text, shown) in [
            ("Zealous-gauss", "`Zealous-gauss` contains `Z`"),
            ("zealous_gauss", "`zealous_gauss` contains `_`"),
            ("zealous gauss", "`zealous gauss` contains ` `"),
            ("../../etc", "`../../etc` contains `.`"),
            ("café-gauss", "`café-gauss` contains `é`"),
            ("abc\n", "`abc\\n` contains `\\n`"),
            ("abc\0", "`abc\\0` contains `\\0`"),
        ] {
            let sentence =
                format!("session id {shown}: it is made of lower-case letters, digits and `-`");
            check(text, Err(&sentence));
        }
    }

    #[test]
    fn an_id_starts_with_a_letter() {
        check("1st-gauss", Err("session id `1st-gauss` does not start with a letter"));
        check("-gauss", Err("session id `-gauss` does not start with a letter"));
    }

    #[test]
    fn every_dash_joins_two_words() {
        for text in ["zealous--gauss", "gauss-", "a--"] {
            let sentence = format!("session id `{text}` has a `-` that does not join two words");
            check(text, Err(&sentence));
        }
    }

    #[test]
    fn words_are_sorted_unique_and_lower_case_letters() {
        for words in [ADJECTIVES.as_slice(), SURNAMES.as_slice()] {
            for pair in words.windows(2) {
                assert!(pair[0] < pair[1], "{pair:?}");
            }
            for word in words {
                assert!(word.bytes().all(|b| b.is_ascii_lowercase()) && word.len() > 1, "{word}");
            }
        }
        let adjectives = HashSet::from(ADJECTIVES);
        let both: Vec<_> = SURNAMES.iter().filter(|word| adjectives.contains(*word)).collect();
        assert!(both.is_empty(), "{both:?}");
    }

    #[test]
    fn there_are_at_least_three_hundred_thousand_ids() {
        assert_eq!(SessionId::COMBINATIONS, (ADJECTIVES.len() * SURNAMES.len()) as u64);
        let enough = SessionId::COMBINATIONS >= 300_000;
        assert!(enough, "{}", SessionId::COMBINATIONS);
    }

    #[test]
    fn successive_entropies_give_every_id_once_and_every_id_parses() {
        let ids: HashSet<_> = (0..SessionId::COMBINATIONS).map(SessionId::from_entropy).collect();
        assert_eq!(ids.len() as u64, SessionId::COMBINATIONS);
        for id in &ids {
            assert_eq!(id.as_str().parse().as_ref(), Ok(id));
        }
        for (adjective, surname) in [
            (ADJECTIVES[0], SURNAMES[0]),
            (ADJECTIVES[0], SURNAMES[SURNAMES.len() - 1]),
            (ADJECTIVES[ADJECTIVES.len() - 1], SURNAMES[SURNAMES.len() - 1]),
            ("zealous", "ramanujan"),
        ] {
            let id = SessionId(format!("{adjective}-{surname}").into());
            assert!(ids.contains(&id), "{id}");
        }
    }

    #[test]
    fn a_taken_id_is_passed_over() {
        let first = SessionId::from_entropy(7);
        assert_eq!(SessionId::unused(7, |_| false), Some(first.clone()));
        assert_eq!(SessionId::unused(7, |id| *id == first), Some(SessionId::from_entropy(8)));
    }

    #[test]
    fn the_last_free_id_is_found_from_anywhere() {
        let free = SessionId::from_entropy(3);
        for entropy in [3, 4, u64::MAX] {
            assert_eq!(SessionId::unused(entropy, |id| *id != free).as_ref(), Some(&free));
        }
    }

    #[test]
    fn when_all_ids_are_taken_there_is_none_and_each_was_asked_for_once() {
        let asked = Cell::new(0);
        let none = SessionId::unused(u64::MAX, |_| {
            asked.set(asked.get() + 1);
            true
        });
        assert_eq!((none, asked.get()), (None, SessionId::COMBINATIONS));
    }

    proptest! {
        #[test]
        fn neighbours_share_no_word(entropy in 0..u64::MAX) {
            let ids = [entropy, entropy + 1].map(SessionId::from_entropy);
            let words: HashSet<_> = ids.iter().flat_map(|id| id.as_str().split('-')).collect();
            prop_assert_eq!(words.len(), 4, "{:?}", ids);
        }

        #[test]
        fn whatever_parses_keeps_the_invariant(text in "[a-z0-9-]{0,70}") {
            if let Ok(id) = text.parse::<SessionId>() {
                prop_assert_eq!(id.as_str(), &text);
                prop_assert!((3..=63).contains(&text.len()));
                prop_assert!(!text.contains("--") && !text.ends_with('-'));
                prop_assert!(text.starts_with(|c: char| c.is_ascii_lowercase()));
            }
        }
    }
}
