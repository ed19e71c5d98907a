//! Takes secrets out of what comes back from a host.
//!
//! Works on a stream: what could be the beginning of a secret is held until it is known whether it
//! is, and nothing else is held. An event stream is therefore not delayed by it.

use bytes::{Bytes, BytesMut};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Values shorter than this occur by chance, and are left alone.
pub(super) const SHORTEST: usize = 8;

/// A text to look for, and what takes its place.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Needle {
    /// Whose it is, by name.
    pub(super) name: Arc<str>,
    /// The secret, in one of the forms that it is sent in.
    pub(super) find: Vec<u8>,
    /// What the session knows instead.
    pub(super) put: Vec<u8>,
}

impl Needle {
    /// The same, with a replacement of its length.
    pub(super) fn fitted(mut self) -> Self {
        self.put.resize(self.find.len(), b'*');
        self
    }
}

impl std::fmt::Debug for Needle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

/// What needles begin with: most places in a text are ruled out by a look or two.
#[derive(Clone)]
struct Starts {
    /// First bytes.
    bytes: [bool; 256],
    /// First two bytes, a bit for each pair.
    pairs: Vec<u64>,
}

impl Starts {
    fn of(needles: &[Needle]) -> Self {
        let mut starts = Self { bytes: [false; 256], pairs: vec![0; 1024] };
        for needle in needles {
            match needle.find.as_slice() {
                [] => {}
                [only] => (0..=u8::MAX).for_each(|second| starts.add(*only, second)),
                [first, second, ..] => starts.add(*first, *second),
            }
        }
        starts
    }

    fn add(&mut self, first: u8, second: u8) {
        let pair = u16::from_be_bytes([first, second]);
        if let Some(word) = self.pairs.get_mut(usize::from(pair / 64)) {
            *word |= 1 << (pair % 64);
        }
        if let Some(begins) = self.bytes.get_mut(usize::from(first)) {
            *begins = true;
        }
    }

    fn has_byte(&self, first: u8) -> bool {
        self.bytes.get(usize::from(first)).is_some_and(|begins| *begins)
    }

    /// Whether a needle may be where this text begins, or the text be the beginning of one.
    fn has(&self, text: &[u8]) -> bool {
        match text {
            [] => false,
            [only] => self.has_byte(*only),
            [first, second, ..] => {
                let pair = u16::from_be_bytes([*first, *second]);
                let word = self.pairs.get(usize::from(pair / 64));
                word.is_some_and(|word| word >> (pair % 64) & 1 == 1)
            }
        }
    }
}

/// Replaces needles in a stream of bytes.
#[derive(Clone)]
pub(super) struct Scrub {
    /// The longest ones first.
    needles: Vec<Needle>,
    starts: Starts,
    held: Vec<u8>,
    found: BTreeSet<Arc<str>>,
    hits: u64,
}

impl std::fmt::Debug for Scrub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Scrub {
    /// Looks for these. Empty ones are left out.
    pub(super) fn new(mut needles: Vec<Needle>) -> Self {
        needles.retain(|needle| !needle.find.is_empty());
        // Where one begins with another, the longer one is the one that is meant.
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.find.len()));
        let starts = Starts::of(&needles);
        Self { needles, starts, held: Vec::new(), found: BTreeSet::new(), hits: 0 }
    }

    /// The same, with replacements that do not change the length of anything.
    pub(super) fn fitted(self) -> Self {
        let needles = self.needles.into_iter().map(Needle::fitted).collect();
        Self { needles, ..self }
    }

    /// Whose were found, by name.
    pub(super) fn found(&self) -> impl Iterator<Item = &str> {
        self.found.iter().map(AsRef::as_ref)
    }

    /// How often something was replaced.
    pub(super) fn hits(&self) -> u64 {
        self.hits
    }

    /// How many bytes are held.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether nothing is held.
    pub(super) fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether every replacement is as long as what it replaces.
    pub(super) fn keeps_length(&self) -> bool {
        self.needles.iter().all(|needle| needle.find.len() == needle.put.len())
    }

    /// The next bytes; what is certain of them comes out.
    pub(super) fn push(&mut self, bytes: Bytes) -> Bytes {
        if self.held.is_empty() && !self.touches(&bytes) {
            return bytes;
        }
        self.held.extend_from_slice(&bytes);
        let held = std::mem::take(&mut self.held);
        let keep = self.unfinished(&held);
        let (certain, rest) = held.split_at_checked(held.len() - keep).unwrap_or((&held, &[]));
        let (out, used) = self.replace(certain, &held);
        self.held = held.get(used..).unwrap_or(rest).to_vec();
        out
    }

    /// There are no more bytes: what was held comes out.
    pub(super) fn finish(&mut self) -> Bytes {
        let held = std::mem::take(&mut self.held);
        self.replace(&held, &held).0
    }

    /// Replaces in a whole text; nothing if there is nothing to replace.
    pub(super) fn whole(&mut self, text: &[u8]) -> Option<Bytes> {
        self.next(text)?;
        Some(self.replace(text, text).0)
    }

    /// Whether bytes have a needle, or end with the beginning of one.
    fn touches(&self, bytes: &[u8]) -> bool {
        self.next(bytes).is_some() || self.unfinished(bytes) > 0
    }

    /// How many of the last bytes could be the beginning of a needle.
    fn unfinished(&self, bytes: &[u8]) -> usize {
        let longest = self.needles.first().map_or(0, |needle| needle.find.len() - 1);
        let begins = |length: &usize| {
            let Some(tail) = bytes.get(bytes.len() - length..) else { return false };
            let begun =
                |needle: &Needle| needle.find.len() > tail.len() && needle.find.starts_with(tail);
            self.starts.has(tail) && self.needles.iter().any(begun)
        };
        (1..=longest.min(bytes.len())).rev().find(begins).unwrap_or(0)
    }

    /// The first needle: where, and which. The longest one where several begin.
    fn next(&self, bytes: &[u8]) -> Option<(usize, &Needle)> {
        let mut at = 0;
        loop {
            at += bytes.get(at..)?.iter().position(|byte| self.starts.has_byte(*byte))?;
            let rest = bytes.get(at..)?;
            if self.starts.has(rest) {
                let found = self.needles.iter().find(|needle| rest.starts_with(&needle.find));
                if let Some(needle) = found {
                    return Some((at, needle));
                }
            }
            at += 1;
        }
    }

    /// Replaces every needle that begins within `certain`, the first part of `all`. Says how many
    /// bytes of `all` it used.
    fn replace(&mut self, certain: &[u8], all: &[u8]) -> (Bytes, usize) {
        let mut out = BytesMut::with_capacity(all.len());
        let mut from = 0;
        let (mut found, mut hits) = (BTreeSet::new(), 0);
        while let Some((at, needle)) = all.get(from..).and_then(|rest| self.next(rest)) {
            if from + at >= certain.len() {
                break;
            }
            out.extend_from_slice(all.get(from..from + at).unwrap_or_default());
            out.extend_from_slice(&needle.put);
            from += at + needle.find.len();
            found.insert(Arc::clone(&needle.name));
            hits += 1;
        }
        self.found.append(&mut found);
        self.hits += hits;
        let end = certain.len().max(from);
        out.extend_from_slice(all.get(from..end).unwrap_or_default());
        (out.freeze(), end)
    }
}

/// Where `needle` is in `bytes`.
pub(super) fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    let (first, rest) = needle.split_first()?;
    let mut from = 0;
    loop {
        let at = from + bytes.get(from..)?.iter().position(|byte| byte == first)?;
        if bytes.get(at + 1..)?.starts_with(rest) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scrub(needles: &[(&str, &str)]) -> Scrub {
        let needle = |(find, put): &(&str, &str)| Needle {
            name: "key".into(),
            find: find.as_bytes().to_vec(),
            put: put.as_bytes().to_vec(),
        };
        Scrub::new(needles.iter().map(needle).collect())
    }

    fn run(scrub: &mut Scrub, parts: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for part in parts {
            out.extend_from_slice(&scrub.push(Bytes::copy_from_slice(part)));
        }
        out.extend_from_slice(&scrub.finish());
        out
    }

    #[test]
    fn a_secret_is_found_across_parts() {
        let mut scrub = scrub(&[("secret-value", "PLACE")]);
        let out = run(&mut scrub, &[b"a secre", b"t-val", b"ue and sec", b"rets"]);
        assert_eq!(out, b"a PLACE and secrets");
        assert_eq!(scrub.found().collect::<Vec<_>>(), ["key"]);
    }

    #[test]
    fn what_cannot_be_a_secret_is_not_held() {
        let mut scrub = scrub(&[("secret-value", "PLACE")]);
        assert_eq!(scrub.push(Bytes::from_static(b"data: one\n\n")).as_ref(), b"data: one\n\n");
    }

    #[test]
    fn the_longer_of_two_wins() {
        let mut scrub = scrub(&[("token", "A"), ("token-long", "B")]);
        assert_eq!(run(&mut scrub, &[b"token-lo", b"ng token-l"]), b"B A-l");
    }

    proptest! {
        #[test]
        fn parts_do_not_matter(text in "[ab]{0,60}", cuts in prop::collection::vec(0_usize..60, 0..6)) {
            let needles = [("abab", "X"), ("bba", "YYYY")];
            let whole = text;
            let mut at_once = scrub(&needles);
            let expected = run(&mut at_once, &[whole.as_bytes()]);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
            cuts.sort_unstable();
            let mut parts = Vec::new();
            let mut from = 0;
            for cut in cuts {
                parts.push(&whole.as_bytes()[from..cut]);
                from = cut;
            }
            parts.push(&whole.as_bytes()[from..]);
            let mut in_parts = scrub(&needles);
            prop_assert_eq!(run(&mut in_parts, &parts), expected);
        }
    }
}
