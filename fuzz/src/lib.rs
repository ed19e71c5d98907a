//! What every decoder and parser promises about every input.
//!
//! A target takes any bytes. It panics where a promise is broken, and otherwise says what the
//! input reached, so that a fuzzer without coverage can tell new inputs from old ones. The same
//! functions run under libFuzzer (`fuzz_targets/`) and under a loop of random changes (`main.rs`).
//!
//! Deliberately absent: the kernel. Only the `channel` target makes system calls, because packets
//! and descriptors are what it reads.

#![forbid(unsafe_code)]

mod channel;
mod decoders;
mod egress;
mod files;
mod frames;
mod parsers;
mod seccomp;
mod speech;

pub use channel::channel;
pub use decoders::{broker, guest, keeper, seed};
pub use egress::egress;
pub use files::files;
pub use frames::frames;
pub use parsers::{grant, path, word};
pub use seccomp::seccomp;
pub use speech::speech;

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hasher};

/// A function that takes any bytes, and inputs to start from.
#[derive(Debug)]
pub struct Target {
    /// Its name, also for libFuzzer.
    pub name: &'static str,
    /// Panics where a promise is broken.
    pub run: fn(&[u8]) -> Reached,
    /// Inputs that reach far.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// How much of the time it gets, beside the others: more where messages have many forms, and where
    /// somebody hostile chooses the bytes.
    pub share: u32,
}

/// Every target.
pub const TARGETS: [Target; 13] = [
    Target { name: "guest", run: guest, seeds: decoders::guest_seeds, share: 3 },
    Target { name: "keeper", run: keeper, seeds: decoders::keeper_seeds, share: 3 },
    Target { name: "channel", run: channel, seeds: channel::seeds, share: 3 },
    Target { name: "broker", run: broker, seeds: decoders::broker_seeds, share: 2 },
    Target { name: "seed", run: seed, seeds: decoders::seed_seeds, share: 1 },
    Target { name: "frames", run: frames, seeds: frames::seeds, share: 1 },
    Target { name: "grant", run: grant, seeds: parsers::grant_seeds, share: 1 },
    Target { name: "path", run: path, seeds: parsers::path_seeds, share: 1 },
    Target { name: "word", run: word, seeds: parsers::word_seeds, share: 1 },
    Target { name: "egress", run: egress, seeds: egress::seeds, share: 1 },
    Target { name: "files", run: files, seeds: files::seeds, share: 1 },
    Target { name: "seccomp", run: seccomp, seeds: seccomp::seeds, share: 1 },
    Target { name: "speech", run: speech, seeds: speech::seeds, share: 1 },
];

/// What an input reached, as a number: the same number, the same way through the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reached(u64);

impl Reached {
    /// The input is too short to be anything.
    const NOTHING: Self = Self(0);

    /// The names in what came out, without numbers and texts, which differ for every input.
    fn by(outcome: &impl Debug) -> Self {
        let mut hasher = DefaultHasher::new();
        let text = format!("{outcome:?}").replace("\\\\", "").replace("\\\"", "");
        for unquoted in text.split('"').step_by(2) {
            let mut last = "";
            for word in unquoted.split(|c: char| !c.is_ascii_alphabetic()) {
                // A list of one kind reaches what its first entry reaches.
                if word != last && !word.is_empty() {
                    hasher.write(word.as_bytes());
                    last = word;
                }
            }
        }
        Self(hasher.finish())
    }

    /// Both.
    fn and(self, other: Self) -> Self {
        Self(self.0.rotate_left(1) ^ other.0)
    }
}
