//! Thousands of random changes in several sets, undone in every way that does not conflict.

use crate::any_order::alone;
use crate::bed::{Bed, Command, Snapshot, Trash, same, same_but_links};
use cowork_api::files::{Caps, Choice, Sets};
use std::time::{Duration, Instant};

/// A generator of numbers that says the same for the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.throw() % u64::try_from(limit).unwrap()).unwrap()
    }

    pub(crate) fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Some name that is there, or could be. The first that is there is the folder that all are in.
fn some_path(dice: &mut Dice, present: &[String]) -> String {
    let below = |folder: &str, name: &str| {
        if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
    };
    if present.len() > 1 && dice.below(5) < 3 {
        return present[1 + dice.below(present.len() - 1)].clone();
    }
    let folder = dice.of(present).clone();
    let name = *dice.of(&NAMES);
    if folder.split('/').count() > 4 { below(&present[0], name) } else { below(&folder, name) }
}

/// Makes one change; the names that it is about. It may be impossible; then nothing happens.
pub(crate) fn change(
    command: &mut Command,
    dice: &mut Dice,
    present: &[String],
) -> Option<[String; 2]> {
    let path = some_path(dice, present);
    let other = some_path(dice, present);
    let length = if dice.below(20) == 0 { 100_000 } else { dice.below(60) };
    let contents: Vec<u8> =
        (0..length).map(|_| b'a' + u8::try_from(dice.below(26)).unwrap()).collect();
    let seconds = i64::try_from(1_000 + dice.below(1_000_000)).unwrap();
    let mode = *dice.of(&[0o644, 0o600, 0o755, 0o400, 0o4711]);
    let owner = *dice.of(&[0, 1234]);
    let attribute = *dice.of(&["user.one", "user.two"]);
    let outcome = match dice.below(20) {
        0..3 => command.write(&path, &contents),
        3 => command.append(&path, &contents),
        4 => command.truncate(&path, u64::try_from(length / 2).unwrap()),
        5..7 => command.unlink(&path),
        7..9 => command.mkdir(&path),
        9 => command.rmdir(&path),
        10..13 => command.rename(&path, &other),
        13 => command.exchange(&path, &other),
        14 => command.link(&path, &other),
        15 => command.symlink(&path, &other),
        16 => command.chmod(&path, mode),
        17 => command.utimes(&path, seconds),
        18 => match dice.below(3) {
            0 => command.remove_attribute(&path, attribute),
            1 => command.mkfifo(&path),
            _ => command.chown(&path, owner, owner),
        },
        _ => command.attribute(&path, attribute, &contents[..contents.len().min(20)]),
    };
    outcome.ok().map(|()| [path, other])
}

pub(crate) fn paths(bed: &Bed) -> Vec<String> {
    bed.snapshot().into_keys().collect()
}

/// Makes a set of so many changes.
fn changes(bed: &Bed, dice: &mut Dice, count: usize) {
    bed.set(|command| {
        for _ in 0..count {
            let present = paths(bed);
            change(command, dice, &present);
        }
    });
}

struct Story {
    bed: Bed,
    dice: Dice,
    /// Before each set, and after the last.
    states: Vec<Snapshot>,
    what: String,
}

fn story(seed: u64, trash: Trash) -> Story {
    let bed = Bed::with("random", trash, Caps::default());
    let mut dice = Dice(seed);
    changes(&bed, &mut dice, 40);
    // What was recorded until here is forgotten: the folder is an old one.
    bed.forget();
    let mut states = vec![bed.snapshot()];
    for _ in 0..=dice.below(4) {
        let count = 1 + dice.below(30);
        changes(&bed, &mut dice, count);
        states.push(bed.snapshot());
    }
    Story { bed, dice, states, what: format!("seed {seed} with {trash:?}") }
}

impl Story {
    fn first(&self) -> &Snapshot {
        &self.states[0]
    }

    fn last(&self) -> &Snapshot {
        &self.states[self.states.len() - 1]
    }

    fn undo(&self, sets: Sets, how: &str) {
        let restored = self.bed.undo(sets, &[], Choice::Refuse);
        let what = format!("{}: {how}", self.what);
        assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{what}");
    }
}

/// How many stories are told.
pub(crate) fn seeds() -> u64 {
    std::env::var("COWORK_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(40)
}

fn each(from: u64, check: impl Fn(Story)) {
    let one = std::env::var("COWORK_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in one.map_or(from..from + seeds(), |one: u64| one..one + 1) {
        check(story(seed, Trash::Beside));
        check(story(seed, Trash::None));
    }
}

#[test]
fn all_at_once() {
    each(1_000, |story| {
        story.undo(Sets::All, "undone");
        same(&story.bed.snapshot(), story.first(), &format!("{}: undone", story.what));
        let restored = story.bed.redo();
        assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{}", story.what);
        same_but_links(&story.bed.snapshot(), story.last(), &format!("{}: redone", story.what));
        story.undo(Sets::All, "undone again");
        same(&story.bed.snapshot(), story.first(), &format!("{}: undone again", story.what));
    });
}

#[test]
fn set_by_set() {
    each(2_000, |story| {
        let before = &story.states[..story.states.len() - 1];
        for state in before.iter().rev() {
            story.undo(Sets::Last, "the last one undone");
            let what = format!("{}: the last one undone", story.what);
            same_but_links(&story.bed.snapshot(), state, &what);
        }
        same(&story.bed.snapshot(), story.first(), &story.what);
        for state in &story.states[1..] {
            let restored = story.bed.redo();
            assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{}", story.what);
            same_but_links(&story.bed.snapshot(), state, &format!("{}: redone", story.what));
        }
        story.undo(Sets::All, "undone again");
        same(&story.bed.snapshot(), story.first(), &format!("{}: undone again", story.what));
    });
}

#[test]
fn some_names_then_the_rest() {
    each(3_000, |mut story| {
        let names: Vec<String> = story
            .first()
            .keys()
            .chain(story.last().keys())
            .filter(|name| !name.is_empty())
            .cloned()
            .collect();
        if names.is_empty() {
            return;
        }
        for _ in 0..2 {
            let name = story.dice.of(&names).clone();
            let restored = story.bed.undo(Sets::All, &[&name], Choice::Refuse);
            let what = format!("{}: only `{name}`", story.what);
            assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{what}");
            let now = story.bed.snapshot();
            let node = |snapshot: &Snapshot| snapshot.get(&name).map(alone);
            assert_eq!(node(&now), node(story.first()), "{what}");
        }
        story.undo(Sets::All, "the rest");
        same(&story.bed.snapshot(), story.first(), &format!("{}: the rest", story.what));
    });
}

/// How long the long story may go on, and how many changes it has at least and at most.
const LONGEST: Duration = Duration::from_secs(5);
const STEPS: std::ops::Range<usize> = 2_000..6_000;

/// Folders that have nothing to do with each other.
const PLACES: usize = 12;

#[test]
fn a_long_story_in_any_order_that_does_not_conflict() {
    let bed = Bed::with("long", Trash::Beside, Caps::default());
    let mut dice = Dice(4_000);
    for place in 0..PLACES {
        std::fs::create_dir(bed.at(&format!("place{place:02}"))).unwrap();
    }
    let inside = |place: usize| {
        let here = format!("place{place:02}");
        paths(&bed).into_iter().filter(|path| path.starts_with(&here)).collect::<Vec<_>>()
    };
    let set_in = |place: usize, dice: &mut Dice, count: usize| {
        bed.set(|command| {
            let mut present = Vec::new();
            for step in 0..count {
                if step % 10 == 0 {
                    present = inside(place);
                }
                change(command, dice, &present);
            }
        })
    };
    for place in 0..PLACES {
        set_in(place, &mut dice, 20);
    }
    // What was recorded until here is forgotten: the folder is an old one.
    bed.forget();
    let first = bed.snapshot();
    let until = Instant::now() + LONGEST;
    let mut steps = 0;
    let mut alive = vec![Vec::new(); PLACES];
    while steps < STEPS.start || (steps < STEPS.end && Instant::now() < until) {
        let (place, count) = (dice.below(PLACES), 1 + dice.below(60));
        alive[place].push(set_in(place, &mut dice, count));
        steps += count;
    }
    // The last one of each folder is in nobody's way, whatever was done elsewhere since.
    let mut early = 0;
    while alive.iter().any(|sets| !sets.is_empty()) {
        let place = dice.below(PLACES);
        let Some(set) = alive[place].pop() else { continue };
        early += usize::from(alive.iter().flatten().any(|later| *later > set));
        let restored = bed.undo(Sets::Numbers(vec![set]), &[], Choice::Refuse);
        let what = format!("set {set} of {steps} steps");
        assert_eq!((restored.lost, restored.conflicts), (vec![], vec![]), "{what}");
    }
    println!("{steps} steps, {early} sets undone before later ones");
    assert!(early > 10, "{early} sets before later ones are too few to say anything");
    same(&bed.snapshot(), &first, "everything is undone");
}
