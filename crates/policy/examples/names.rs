//! Measures how long a judgement of a name takes; prints the median in nanoseconds.
//!
//! `cargo run --release -p cowork-policy --example names`

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a measurement prints its results")]

use cowork_policy::files::{Judge, default_rules, runs_here};
use std::hint::black_box;
use std::time::Instant;

/// Rounds that the median is taken of, and judgements in each.
const ROUNDS: usize = 201;
const JUDGEMENTS: u32 = 1000;

const PATHS: [&str; 8] = [
    "src/main.rs",
    "crates/policy/src/files/judge/mod.rs",
    "node_modules/@scope/package/dist/cjs/internal/index.js",
    ".git/objects/3f/9a1c0e7b5d2f4a6c8e0b1d3f5a7c9e1b3d5f7a",
    ".git/hooks/pre-commit",
    "web/.config/systemd/user/x.service",
    "docs/\u{dc}bersicht/bericht.md",
    "backup/GIT~1/config",
];

fn median(mut judge: impl FnMut()) -> u128 {
    let round = |_| {
        let start = Instant::now();
        for _ in 0..JUDGEMENTS {
            judge();
        }
        start.elapsed().as_nanos() / u128::from(JUDGEMENTS)
    };
    let mut times: Vec<u128> = (0..ROUNDS).map(round).collect();
    times.sort_unstable();
    times.get(ROUNDS / 2).copied().unwrap_or_default()
}

fn main() {
    let rules = default_rules();
    let judge = Judge::new(&rules);
    println!("{} rules about names, ns", rules.names.len());
    println!("{:>8} {:>8} {:>8} {:>8}  path", "name", "link", "blocked", "runs");
    for path in PATHS {
        let bytes = path.as_bytes();
        let name = median(|| {
            let _verdict = black_box(judge.name(black_box(bytes)));
        });
        let link = median(|| {
            let _verdict = black_box(judge.link(black_box(bytes)));
        });
        let blocked = median(|| {
            black_box(judge.is_blocked_name(black_box(bytes)));
        });
        let runs = median(|| {
            black_box(runs_here(black_box(bytes), 0o644, b""));
        });
        println!("{name:>8} {link:>8} {blocked:>8} {runs:>8}  {path}");
    }
    let compile = median(|| {
        black_box(Judge::new(black_box(&rules)));
    });
    println!("{compile} ns to compile the rules");
}
