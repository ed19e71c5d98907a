//! Runs every target with random changes of known inputs. Needs nothing but a Rust compiler.
//!
//! `cowork-fuzz SECONDS` runs all of them for so long together, each for its share; `cowork-fuzz TARGET FILE` runs
//! one on one input, to see a failure again. Chance is a fixed sequence: two runs of the same
//! length on the same machine try nearly the same inputs.

#![forbid(unsafe_code)]

use cowork_fuzz::{Reached, TARGETS, Target};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Longest input that is made; a packet is at most that long.
const MAX_INPUT: usize = 64 * 1024;

/// Most inputs that are kept to be changed further.
const MAX_CORPUS: usize = 4096;

/// A single input may take that long. A thousandth would be normal.
const MAX_TIME: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        [seconds] => match seconds.parse() {
            Ok(seconds) => all(Duration::from_secs(seconds)),
            Err(_) => Err("usage: cowork-fuzz SECONDS | cowork-fuzz TARGET FILE".to_owned()),
        },
        [name, file] => again(name, Path::new(file)),
        _ => Err("usage: cowork-fuzz SECONDS | cowork-fuzz TARGET FILE".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("error: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn again(name: &str, file: &Path) -> Result<(), String> {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.ok_or_else(|| format!("there is no target `{name}`"))?;
    let input = std::fs::read(file)
        .map_err(|error| format!("cannot read `{}`: {error}", file.display()))?;
    println!("{:?}", (target.run)(&input));
    Ok(())
}

fn all(time: Duration) -> Result<(), String> {
    let shares: u32 = TARGETS.iter().map(|target| target.share).sum();
    let tried = TARGETS.iter().map(|target| fuzz(target, time * target.share / shares));
    let failures: Vec<String> = tried.filter_map(Result::err).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn fuzz(target: &Target, time: Duration) -> Result<(), String> {
    let end = Instant::now() + time;
    let mut chance = Chance(0x00c0_0bbb_5eed);
    let mut corpus = (target.seeds)();
    let mut reached = BTreeSet::new();
    for seed in &corpus {
        reached.insert(run(target, seed)?);
    }
    let mut inputs = corpus.len();
    while Instant::now() < end {
        let input = chance.change(&corpus);
        inputs += 1;
        if reached.insert(run(target, &input)?) && corpus.len() < MAX_CORPUS {
            corpus.push(input);
        }
    }
    println!("{:<8} {inputs:>9} inputs reached {:>5} outcomes", target.name, reached.len());
    Ok(())
}

/// Runs a target on one input. Beyond a panic, taking long is a failure.
fn run(target: &Target, input: &[u8]) -> Result<Reached, String> {
    let start = Instant::now();
    let outcome = std::panic::catch_unwind(|| (target.run)(input));
    let slow = start.elapsed() > MAX_TIME;
    match outcome {
        Ok(reached) if !slow => Ok(reached),
        outcome => {
            let what = if outcome.is_err() { "breaks a promise" } else { "takes too long" };
            Err(format!("`{}` {what}; {}", target.name, keep(target, input)))
        }
    }
}

/// Writes an input where libFuzzer would, and says how to run it again.
fn keep(target: &Target, input: &[u8]) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts").join(target.name);
    let file: PathBuf = folder.join("random");
    match std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, input)) {
        Ok(()) => format!(
            "see it again with `cargo run --manifest-path fuzz/Cargo.toml -- {} {}`",
            target.name,
            file.display()
        ),
        Err(error) => format!("the input {input:?} cannot be written: {error}"),
    }
}

/// A fixed sequence of numbers without a pattern (SplitMix64, Steele et al. 2014).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, or 0.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        const EDGES: [u8; 12] = [0, 1, 2, 7, 8, 0x7f, 0x80, 0xfe, 0xff, b'/', b'.', b'='];
        let any = self.next().to_le_bytes()[0];
        if self.below(2) == 0 { EDGES[self.below(EDGES.len())] } else { any }
    }

    /// One of the inputs, with a few changes.
    fn change(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(6) {
            let at = self.below(input.len() + 1);
            let to = at + self.below((input.len() - at).min(16) + 1);
            match self.below(8) {
                0 => input.insert(at, self.byte()),
                1 => drop(input.drain(at..to)),
                2 => input.truncate(at),
                3 => {
                    let piece = input[at..to].to_vec();
                    for _ in 0..=self.below(8) {
                        input.splice(at..at, piece.iter().copied());
                    }
                }
                4 => {
                    let other = &corpus[self.below(corpus.len())];
                    let from = self.below(other.len() + 1);
                    input.truncate(at);
                    input.extend_from_slice(&other[from..]);
                }
                5 => {
                    let flip = 1 << self.below(8);
                    if let Some(byte) = input.get_mut(at) {
                        *byte ^= flip;
                    }
                }
                _ => {
                    let byte = self.byte();
                    if let Some(old) = input.get_mut(at) {
                        *old = byte;
                    }
                }
            }
        }
        input.truncate(MAX_INPUT);
        input
    }
}
