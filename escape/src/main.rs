//! Attacks run against the built programs, as root and as an ordinary user, in every profile.
//!
//! Every attack runs twice with the same words: bare on the host, where it must win, and in a
//! session, where it must not. Winning is an effect that was observed: a canary read, a byte at a
//! listener of the host, a file outside, a signal received. An attack that does not win bare
//! proves nothing and counts as a failure; one that the kernel here cannot make is shown as not run.
//!
//! Without arguments, or with `--only SUBSTRING`, this is the harness; `--tries NUMBER` makes it try
//! each race of files so often, instead of for a short time, and `--control FOLDER` makes the races once
//! more with programs that lack one wall, see [`control`]. `attack NAME KEY=VALUE…`
//! makes one attack in this process and says on one line what it observed; `engine` makes those on
//! grants and revocations, see [`engine`].
//!
//! An attack that wins must not harm the host: calls that would are made with arguments that the
//! kernel refuses for another reason, and mounts are made in namespaces of their own.

#![expect(unsafe_code, reason = "attacks are raw system calls")]
#![expect(clippy::print_stdout, reason = "the table is the program's output")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "registers have no sign and descriptors fit"
)]

mod attack;
mod attacks;
mod control;
mod engine;
mod gullible;
mod raw;
mod report;
mod runner;
mod scene;
mod stage;
mod tongue;
mod town;
mod victim;
mod ways;

use attack::{Attack, Shown};
use cowork_testbed::Person;
use report::{PROFILES, Row, Totals, Verdict};
use runner::{Bare, Winner};
use scene::{Outcome, Scene};
use stage::Stage;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use ways::{Past, Staying, Way};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        None | Some("--only" | "--tries" | "--control" | control::WORD) => {
            harness_by(std::env::args().skip(1))
        }
        Some("attack") => {
            let name = words.next().unwrap_or_default();
            one(&name, words)
        }
        Some("engine") => {
            engine::main(&words.collect::<Vec<_>>());
            ExitCode::SUCCESS
        }
        Some("town") => match town::serve(words) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("{error}");
                ExitCode::FAILURE
            }
        },
        Some(other) => {
            println!(
                "`{other}` is not a word of this program: use `--only`, `--tries` or `attack`"
            );
            ExitCode::from(2)
        }
    }
}

/// Makes one attack in this process.
fn one(name: &str, words: impl Iterator<Item = String>) -> ExitCode {
    let outcome: Outcome = match (name, Attack::find(name)) {
        ("victim", _) => victim::be(&Scene::parse("", words)),
        ("who", _) => attacks::privileges::who(),
        (_, Some(attack)) => (attack.act)(&Scene::parse(attack.word, words)),
        (_, None) => Err(scene::Lost::new(format!("there is no attack `{name}`"))),
    };
    match outcome {
        Ok(seen) => println!("WON {seen}"),
        Err(lost) => println!("LOST {lost}"),
    }
    ExitCode::SUCCESS
}

/// What the harness is to do.
#[derive(Debug, Default)]
struct Wanted {
    only: String,
    tries: Option<u64>,
    /// A folder of programs without the wall, in which races are made as well.
    control: Option<PathBuf>,
    /// Whether this process has such programs.
    without_wall: bool,
}

/// The harness, as its options say.
fn harness_by(mut words: impl Iterator<Item = String>) -> ExitCode {
    let mut wanted = Wanted::default();
    while let Some(word) = words.next() {
        if word == control::WORD {
            wanted.without_wall = true;
            continue;
        }
        let value = words.next().unwrap_or_default();
        match (word.as_str(), value.parse::<u64>()) {
            ("--only", _) => wanted.only = value,
            ("--tries", Ok(number)) => wanted.tries = Some(number),
            ("--control", _) => wanted.control = Some(PathBuf::from(value)),
            _ => {
                println!(
                    "`{word} {value}` is not understood: use `--only TEXT`, `--tries NUMBER`, \
                     `--control FOLDER`"
                );
                return ExitCode::from(2);
            }
        }
    }
    if wanted.without_wall {
        return told_if_lost(control::serve(&wanted.only, wanted.tries));
    }
    harness(&wanted)
}

fn told_if_lost(result: Result<(), scene::Lost>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(lost) => {
            println!("{lost}");
            ExitCode::FAILURE
        }
    }
}

fn harness(wanted: &Wanted) -> ExitCode {
    let (only, tries) = (&*wanted.only, wanted.tries);
    let begin = Instant::now();
    let mut rows: Vec<Row> = std::thread::scope(|scope| {
        let threads = Person::ALL.map(|person| scope.spawn(move || rows_of(person, only, tries)));
        let join = |(thread, person): (ScopedJoinHandle<'_, Vec<Row>>, Person)| {
            thread.join().unwrap_or_else(|_panic| vec![broken(person, "the harness panicked")])
        };
        threads.into_iter().zip(Person::ALL).flat_map(join).collect()
    });
    let order: BTreeMap<&str, usize> =
        Attack::all().enumerate().map(|(place, attack)| (attack.name, place)).collect();
    rows.sort_by_key(|row| {
        let place = order.get(row.attack.as_str()).copied().unwrap_or(usize::MAX);
        let profile = PROFILES.iter().position(|profile| *profile == row.profile);
        // Of the same attack in the same profile, rows stay as they came.
        (place, row.person, profile)
    });
    for row in &rows {
        println!("{row}");
    }
    let totals = Totals::of(&rows);
    println!("\n{} attacks in {} seconds", order.len(), begin.elapsed().as_secs());
    println!("{totals}");
    let compared = match &wanted.control {
        Some(programs) => told_if_lost(control::compare(&rows, programs, (only, tries))),
        None => ExitCode::SUCCESS,
    };
    if totals.is_proof() { compared } else { ExitCode::FAILURE }
}

/// The row that stands for all the rows that are missing.
fn broken(person: Person, why: &str) -> Row {
    let verdict = Verdict::Vacuous(why.to_owned());
    let attack = "every-attack".to_owned();
    Row { class: "harness", attack, person, profile: "strict", way: "every", verdict }
}

/// Every attack on the sessions of one person.
fn rows_of(person: Person, only: &str, tries: Option<u64>) -> Vec<Row> {
    let stage = match Stage::new(person, tries) {
        Ok(stage) => stage,
        Err(lost) => return vec![broken(person, &format!("no host's side: {lost}"))],
    };
    let wanted = |attack: &&Attack| attack.name.contains(only) || attack.class.contains(only);
    let mut rows = Vec::new();
    let mut staying = Vec::new();
    for attack in Attack::all().filter(wanted) {
        let control = runner::control(&stage, attack);
        let judged = attack.refused.is_empty();
        for profile in PROFILES.into_iter().filter(|profile| judged || *profile == "strict") {
            rows.push(row(&stage, (attack, &control), (profile, Way::Daemon)));
            // What proves nothing is said once.
            if control.is_ok() && ways::is_made_alone(attack) {
                rows.push(row(&stage, (attack, &control), (profile, Way::Alone)));
            }
        }
        if control.is_ok() && ways::stays(attack) {
            staying.push((attack, control));
        }
    }
    for profile in PROFILES {
        rows.extend(rows_of_staying(&stage, &staying, profile));
    }
    if "grants engine".contains(only) {
        rows.extend(PROFILES.into_iter().flat_map(|profile| engine::rows(person, profile)));
    }
    stage.close_town();
    for profile in PROFILES {
        let (attack, verdict) = ("nothing-is-left".to_owned(), aftermath(&stage));
        rows.push(Row { class: "aftermath", attack, person, profile, way: "every", verdict });
    }
    rows
}

/// What came of an attack in one session, after what came of it bare.
fn row(
    stage: &Stage,
    (attack, control): (&Attack, &Result<Bare, Verdict>),
    (profile, way): (&'static str, Way<'_>),
) -> Row {
    let verdict = match control {
        Ok((winner, bare)) => {
            let verdict = runner::confined(stage, attack, (profile, way));
            told(*winner, verdict, (attack.control_shown == Shown::Yes).then_some(bare))
        }
        Err(verdict) => verdict.clone(),
    };
    let (class, name, person) = (attack.class, attack.name.to_owned(), stage.person);
    Row { class, attack: name, person, profile, way: way.name(), verdict }
}

/// Attacks in one session that stays, after each thing that happens to it.
fn rows_of_staying(
    stage: &Stage,
    attacks: &[(&Attack, Result<Bare, Verdict>)],
    profile: &'static str,
) -> Vec<Row> {
    if attacks.is_empty() {
        return Vec::new();
    }
    let broken = |lost| broken(stage.person, &format!("no {profile} session that stays: {lost}"));
    let staying = match Staying::new(stage, profile) {
        Ok(staying) => staying,
        Err(lost) => return vec![broken(lost)],
    };
    let mut rows = Vec::new();
    for past in Past::ALL {
        if let Err(lost) = staying.undergo(past) {
            rows.push(broken(lost));
            continue;
        }
        let way = Way::Staying(&staying, past);
        let made =
            attacks.iter().map(|(attack, control)| row(stage, (*attack, control), (profile, way)));
        rows.extend(made);
    }
    rows
}

/// Says where a row proves less: the person could not have won without a session either.
fn told(winner: Winner, verdict: Verdict, bare: Option<&String>) -> Verdict {
    match (winner, verdict) {
        (Winner::Person, Verdict::Contained(text)) => Verdict::Contained(match bare {
            Some(bare) => format!("{text}; bare: {bare}"),
            None => text,
        }),
        (Winner::OnlyRoot, Verdict::Contained(text)) => {
            Verdict::Contained(format!("{text}; bare, only root wins"))
        }
        (Winner::OnlyRoot | Winner::Person, verdict) => verdict,
    }
}

/// Looks for processes and mounts that outlived their sessions.
fn aftermath(stage: &Stage) -> Verdict {
    let stand = stage.path("").display().to_string();
    let begin = Instant::now();
    loop {
        let mut left: Vec<String> = victim::processes()
            .into_iter()
            .filter(|(_, line)| line.contains(&stand))
            .map(|(pid, line)| format!("process {pid} {line}"))
            .collect();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        left.extend(mounts.lines().filter(|line| line.contains(&stand)).map(str::to_owned));
        match left.first() {
            None => return Verdict::Contained("no process and no mount is left".into()),
            Some(first) if begin.elapsed() > Duration::from_secs(5) => {
                return Verdict::Escaped(format!("{} left over, e.g. {first}", left.len()));
            }
            Some(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
