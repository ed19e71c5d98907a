//! Patterns of paths: `*` stands for anything within one part, `**` for anything.
//!
//! A pattern is matched in time proportional to its length times the path's, whatever both are:
//! the places that the path can have reached after each piece of the pattern are kept as a set.

use super::super::target;
use std::borrow::Cow;

/// A pattern, ready to be matched with decoded paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    /// What every path begins with.
    prefix: Box<[u8]>,
    /// The rest: empty, or it begins with a star.
    rest: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<[u8]>),
    /// Anything without `/`.
    Within,
    /// Anything.
    All,
}

impl Pattern {
    /// Reads a pattern. Escapes in it stand for bytes; what is no escape stands for itself.
    pub(super) fn new(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (front, after) = rest.split_at(rest.find('*').unwrap_or(rest.len()));
            if !front.is_empty() {
                let decoded = target::decode(front).unwrap_or(Cow::Borrowed(front.as_bytes()));
                pieces.push(Piece::Text(decoded.into()));
            }
            rest = after.trim_start_matches('*');
            match after.len() - rest.len() {
                0 => {}
                1 => pieces.push(Piece::Within),
                _ => pieces.push(Piece::All),
            }
        }
        let prefix = match pieces.first() {
            Some(Piece::Text(text)) => text.clone(),
            _ => Box::default(),
        };
        let rest = pieces.into_iter().skip(usize::from(!prefix.is_empty())).collect();
        Self { prefix, rest }
    }

    /// What every path begins with that it stands for.
    pub(super) fn beginning(&self) -> &[u8] {
        &self.prefix
    }

    /// Whether a decoded path is one of those that the pattern stands for.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        let Some(path) = path.strip_prefix(&*self.prefix) else { return false };
        match self.rest.as_slice() {
            [] => path.is_empty(),
            [Piece::All] => true,
            [Piece::Within] => !path.contains(&b'/'),
            pieces => slowly(pieces, path),
        }
    }
}

/// Follows all ways through a path at once.
fn slowly(pieces: &[Piece], path: &[u8]) -> bool {
    let mut reached = vec![false; path.len() + 1];
    if let Some(first) = reached.first_mut() {
        *first = true;
    }
    for piece in pieces {
        match piece {
            Piece::Text(text) => {
                let mut next = vec![false; path.len() + 1];
                let there = |at: &usize| path.get(*at..).is_some_and(|rest| rest.starts_with(text));
                let from = reached.iter().enumerate().filter(|(_, reached)| **reached);
                for at in from.map(|(at, _)| at).filter(there) {
                    if let Some(next) = next.get_mut(at + text.len()) {
                        *next = true;
                    }
                }
                reached = next;
            }
            Piece::Within => spread(&mut reached, path, |byte| byte != b'/'),
            Piece::All => spread(&mut reached, path, |_| true),
        }
        if !reached.contains(&true) {
            return false;
        }
    }
    reached.last() == Some(&true)
}

/// From every place that is reached, those behind it are, as long as bytes pass.
fn spread(reached: &mut [bool], path: &[u8], passes: impl Fn(u8) -> bool) {
    let mut before = reached.first().copied().unwrap_or(false);
    for (place, byte) in reached.iter_mut().skip(1).zip(path) {
        *place |= before && passes(*byte);
        before = *place;
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;
    use proptest::prelude::*;

    /// What a pattern means, by its definition.
    fn naive(pattern: &[u8], path: &[u8]) -> bool {
        match pattern {
            [] => path.is_empty(),
            [b'*', b'*', rest @ ..] => (0..=path.len()).any(|at| naive(rest, &path[at..])),
            [b'*', rest @ ..] => {
                let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
                (0..=end).any(|at| naive(rest, &path[at..]))
            }
            [byte, rest @ ..] => path.first() == Some(byte) && naive(rest, &path[1..]),
        }
    }

    #[test]
    fn stars_stand_for_what_they_say() {
        let table = [
            ("/v1/messages", "/v1/messages", true),
            ("/v1/messages", "/v1/messages/", false),
            ("/v1/*", "/v1/messages", true),
            ("/v1/*", "/v1/", true),
            ("/v1/*", "/v1/a/b", false),
            ("/v1/**", "/v1/a/b", true),
            ("/v1/**", "/v1/", true),
            ("/v1/**", "/v1", false),
            ("/v1/**", "/v10/a", false),
            ("/o/r.git/git-*-pack", "/o/r.git/git-upload-pack", true),
            ("/o/r.git/git-*-pack", "/o/r.git/git-a/b-pack", false),
            ("/*/*.git/info/refs", "/o/r.git/info/refs", true),
            ("/*/*.git/info/refs", "/o/x/r.git/info/refs", false),
            ("/**/git-upload-pack", "/o/r.git/git-upload-pack", true),
            ("/**/git-upload-pack", "/o/r.git/git-receive-pack", false),
            ("**", "/", true),
            ("/**", "/", true),
            ("/%61/**", "/a/b", true),
            ("/caf%C3%A9", "/café", true),
        ];
        for (pattern, path, expected) in table {
            let matches = Pattern::new(pattern).matches(path.as_bytes());
            assert_eq!(matches, expected, "{pattern} {path}");
        }
    }

    #[test]
    fn many_stars_take_little_time() {
        let pattern = Pattern::new(&"/**a*".repeat(100));
        let path = "/a".repeat(4000);
        let start = std::time::Instant::now();
        assert!(!pattern.matches(format!("{path}b/c").as_bytes()));
        assert!(start.elapsed() < std::time::Duration::from_secs(2));
    }

    proptest! {
        #[test]
        fn the_fast_way_is_the_slow_way(pattern in "[/ab*]{0,10}", path in "[/ab]{0,10}") {
            // Three stars are two.
            let mut pattern = pattern;
            while pattern.contains("***") {
                pattern = pattern.replace("***", "**");
            }
            let expected = naive(pattern.as_bytes(), path.as_bytes());
            prop_assert_eq!(Pattern::new(&pattern).matches(path.as_bytes()), expected);
        }
    }
}
