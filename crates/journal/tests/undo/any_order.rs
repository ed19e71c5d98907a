//! Random sets in one folder, undone and redone in any order, whole and in part.
//!
//! What is expected follows from the folder as it was around each set, not from the records: a set
//! whose names no later set in force has touched comes undone without a conflict, and every one of
//! its names is as it was before it; nothing else changes. What somebody has touched since may be
//! refused, and then nothing changes at all. Nothing is ever lost.

use crate::bed::{Bed, Node, Snapshot, Trash, same};
use crate::random::{Dice, change, seeds};
use cowork_api::files::{Caps, Choice, Sets};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;

/// What a set has to do with: names, and files and folders whatever their name.
#[derive(Clone, Debug, Default)]
struct Footprint {
    paths: BTreeSet<String>,
    files: BTreeSet<u64>,
}

/// The folder at one moment.
#[derive(Clone, Debug)]
struct Moment {
    nodes: Snapshot,
    files: BTreeMap<String, u64>,
}

/// A set, or the undo of one, or the undo of that.
#[derive(Clone, Debug)]
struct Turn {
    set: u32,
    before: Moment,
    footprint: Footprint,
    /// What was undone of it in part, each with its set.
    parts: Vec<(u32, Footprint)>,
}

struct Story {
    bed: Bed,
    dice: Dice,
    what: String,
    /// Sets, each with what was undone and redone of it since.
    chains: Vec<Vec<Turn>>,
    /// What was undone although something later had touched it: of that nothing is expected.
    muddy: Footprint,
    first: Snapshot,
    /// How often a set was undone or redone as expected, and how often before a later one.
    checked: (usize, usize),
}

/// What is compared: of folders not their times, and of no file how often the trash holds it.
fn plain(node: &Node) -> Node {
    let mut node = node.clone();
    node.links = 0;
    if node.mode & 0o170_000 == 0o040_000 {
        node.mtime = (0, 0);
    }
    node
}

/// What a name is whatever other names its file has: those may be in other sets.
pub(crate) fn alone(node: &Node) -> Node {
    Node { first_name: String::new(), ..plain(node) }
}

fn is_below(path: &str, top: &str) -> bool {
    top.is_empty() || path.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
}

fn plain_all(snapshot: &Snapshot) -> Snapshot {
    snapshot.iter().map(|(name, node)| (name.clone(), plain(node))).collect()
}

impl Footprint {
    fn between(before: &Moment, after: &Moment) -> Self {
        let mut found = Self::default();
        for name in before.nodes.keys().chain(after.nodes.keys()) {
            let node = |moment: &Moment| moment.nodes.get(name).map(plain);
            if node(before) != node(after) || before.files.get(name) != after.files.get(name) {
                found.paths.insert(name.clone());
                for moment in [before, after] {
                    found.files.extend(moment.files.get(name));
                }
            }
        }
        found
    }

    fn meets(&self, other: &Self) -> bool {
        let related =
            |one: &String, two: &String| one == two || is_below(one, two) || is_below(two, one);
        !self.files.is_disjoint(&other.files)
            || self.paths.iter().any(|one| other.paths.iter().any(|two| related(one, two)))
    }

    fn add(&mut self, other: &Self) {
        self.paths.extend(other.paths.iter().cloned());
        self.files.extend(&other.files);
    }
}

/// The names that an undo of one may change: all names of the same files, before the set and around
/// its undo, and of those that make place for them, and what is in these.
fn concerned(path: &str, [first, before, after]: [&Moment; 3]) -> BTreeSet<String> {
    let mut found = BTreeSet::from([path.to_owned()]);
    loop {
        let count = found.len();
        let inodes = |name: &String| [first, before, after].map(|moment| moment.files.get(name));
        let files: BTreeSet<u64> = found.iter().flat_map(inodes).flatten().copied().collect();
        for name in before.files.keys().chain(after.files.keys()) {
            let replaced = before.files.get(name) != after.files.get(name);
            if inodes(name).into_iter().flatten().any(|inode| files.contains(inode))
                || found.iter().any(|top| is_below(name, top))
                || (replaced && found.iter().any(|inner| is_below(inner, name)))
            {
                found.insert(name.clone());
            }
        }
        if found.len() == count {
            return found;
        }
    }
}

impl Story {
    fn begin(seed: u64, trash: Trash) -> Self {
        let bed = Bed::with("any-order", trash, Caps::default());
        let mut dice = Dice(seed);
        bed.set(|command| {
            for _ in 0..60 {
                let present: Vec<String> = bed.snapshot().into_keys().collect();
                change(command, &mut dice, &present);
            }
        });
        // What was recorded until here is forgotten: the folder is an old one.
        bed.forget();
        let first = bed.snapshot();
        let what = format!("seed {seed} with {trash:?}");
        let muddy = Footprint::default();
        Self { bed, dice, what, chains: Vec::new(), muddy, first, checked: (0, 0) }
    }

    fn moment(&self) -> Moment {
        let nodes = self.bed.snapshot();
        let inode = |name: &String| {
            (name.clone(), std::fs::symlink_metadata(self.bed.at(name)).unwrap().ino())
        };
        let files = nodes.keys().map(inode).collect();
        Moment { nodes, files }
    }

    /// A command makes some changes.
    fn command(&mut self) {
        let before = self.moment();
        let present: Vec<String> = before.nodes.keys().cloned().collect();
        let count = 1 + self.dice.below(4);
        let dice = &mut self.dice;
        let mut named = BTreeSet::new();
        let set = self.bed.set(|command| {
            for _ in 0..count {
                named.extend(change(command, dice, &present).into_iter().flatten());
            }
        });
        let mut footprint = Footprint::between(&before, &self.moment());
        // A change that changes nothing is one, too.
        footprint.paths.extend(named);
        self.chains.push(vec![Turn { set, before, footprint, parts: Vec::new() }]);
    }

    /// Whether no set in force has touched, since, what the last turn of a chain did.
    fn is_clear(&self, chain: usize) -> bool {
        let turn = self.chains[chain].last().unwrap();
        let untouched = self.chains.iter().enumerate().all(|(number, other)| {
            let later: Vec<&Turn> = other.iter().filter(|later| later.set > turn.set).collect();
            let undone = later.len().is_multiple_of(2)
                || later.iter().all(|later| !later.footprint.meets(&turn.footprint));
            // What was undone in part is whole again when the rest is undone.
            let whole = other.last().is_none_or(|last| {
                let mut later = last.parts.iter().filter(|(set, _)| *set > turn.set);
                later.all(|(_, part)| !part.meets(&turn.footprint))
            });
            number == chain || (undone && whole)
        });
        untouched && !self.muddy.meets(&turn.footprint)
    }

    /// Undoes the last turn of a chain: a set, or an undo of it.
    fn toggle(&mut self, chain: usize) {
        let turn = self.chains[chain].last().unwrap().clone();
        let clear = self.is_clear(chain);
        let before = self.moment();
        let restored = self.bed.undo(Sets::Numbers(vec![turn.set]), &[], Choice::Refuse);
        let after = self.moment();
        let what = format!("{}: set {} of chain {chain}, clear: {clear}", self.what, turn.set);
        assert_eq!(restored.lost, vec![], "{what}");
        if clear {
            assert_eq!(restored.conflicts, vec![], "{what}");
            let mut expected = before.nodes.clone();
            for name in &turn.footprint.paths {
                match turn.before.nodes.get(name) {
                    Some(node) => expected.insert(name.clone(), node.clone()),
                    None => expected.remove(name),
                };
            }
            same(&plain_all(&after.nodes), &plain_all(&expected), &what);
            self.checked.0 += 1;
            let is_early = |turns: &Vec<Turn>| turns.last().is_some_and(|last| last.set > turn.set);
            self.checked.1 += usize::from(self.chains.iter().any(is_early));
        }
        if !restored.conflicts.is_empty() {
            same(&after.nodes, &before.nodes, &format!("{what}: refused"));
            return;
        }
        let mut footprint = Footprint::between(&before, &after);
        // Some of it may have been undone in part before.
        footprint.add(&turn.footprint);
        if !clear {
            self.muddy.add(&footprint);
        }
        let set = restored.set.unwrap();
        self.chains[chain].push(Turn { set, before, footprint, parts: Vec::new() });
    }

    /// Undoes one name of the last turn of a chain.
    fn part(&mut self, chain: usize) {
        let turn = self.chains[chain].last().unwrap().clone();
        let paths: Vec<String> = turn.footprint.paths.iter().cloned().collect();
        if paths.is_empty() {
            return;
        }
        let path = self.dice.of(&paths).clone();
        let clear = self.is_clear(chain);
        let before = self.moment();
        let sets = Sets::Numbers(vec![turn.set]);
        let restored = self.bed.undo(sets, &[&path], Choice::Refuse);
        let after = self.moment();
        let what =
            format!("{}: `{path}` of set {} of chain {chain}, clear: {clear}", self.what, turn.set);
        assert_eq!(restored.lost, vec![], "{what}");
        if clear {
            assert_eq!(restored.conflicts, vec![], "{what}");
            let node = |nodes: &Snapshot| nodes.get(&path).map(alone);
            assert_eq!(node(&after.nodes), node(&turn.before.nodes), "{what}");
        }
        let concerned = concerned(&path, [&turn.before, &before, &after]);
        let is_above = |name: &String| concerned.iter().any(|inner| is_below(inner, name));
        for name in before.nodes.keys().chain(after.nodes.keys()) {
            let node = |moment: &Moment| {
                let node = moment.nodes.get(name)?;
                // In a folder above something was done.
                Some(if is_above(name) { plain(node) } else { Node { links: 0, ..node.clone() } })
            };
            if !concerned.contains(name) {
                assert_eq!(node(&after), node(&before), "{what}: `{name}` is none of its business");
            }
        }
        if !restored.conflicts.is_empty() {
            same(&after.nodes, &before.nodes, &format!("{what}: refused"));
        }
        let footprint = Footprint::between(&before, &after);
        if !clear {
            self.muddy.add(&footprint);
            self.muddy.add(&turn.footprint);
        }
        let last = self.chains[chain].last_mut().unwrap();
        last.footprint.add(&footprint);
        last.parts.extend(restored.set.map(|set| (set, footprint)));
    }

    fn end(self) -> (usize, usize) {
        let restored = self.bed.undo_all();
        let what = format!("{}: all that is left", self.what);
        assert_eq!(restored.lost, vec![], "{what}");
        if self.muddy.paths.is_empty() {
            assert_eq!(restored.conflicts, vec![], "{what}");
            same(&plain_all(&self.bed.snapshot()), &plain_all(&self.first), &what);
        }
        self.checked
    }
}

fn stories(from: u64, act: impl Fn(&mut Story)) {
    let mut checked = (0, 0);
    let count = seeds().div_ceil(2);
    for seed in from..from + count {
        for trash in [Trash::Beside, Trash::None] {
            let mut story = Story::begin(seed, trash);
            for _ in 0..30 {
                act(&mut story);
            }
            let (all, early) = story.end();
            checked = (checked.0 + all, checked.1 + early);
        }
    }
    println!("{} undone or redone, {} of them before a later one", checked.0, checked.1);
    assert!(checked.1 as u64 > count, "{checked:?} are too few to say anything");
}

#[test]
fn sets_are_undone_and_redone_in_any_order() {
    stories(5_000, |story| {
        if story.chains.len() < 3 || story.dice.below(3) == 0 {
            story.command();
        } else {
            let chain = story.dice.below(story.chains.len());
            story.toggle(chain);
        }
    });
}

#[test]
fn parts_of_sets_are_undone_in_any_order() {
    stories(6_000, |story| {
        let chain = story.dice.below(story.chains.len().max(1));
        match story.dice.below(6) {
            _ if story.chains.len() < 3 => story.command(),
            0 | 1 => story.command(),
            2 | 3 => story.part(chain),
            _ => story.toggle(chain),
        }
    });
}

/// Undoes one set, and gives back what conflicts.
fn undo(bed: &Bed, set: u32) -> Vec<String> {
    let restored = bed.undo(Sets::Numbers(vec![set]), &[], Choice::Refuse);
    assert_eq!(restored.lost, vec![]);
    restored.conflicts.into_iter().map(|conflict| conflict.now).collect()
}

#[test]
fn what_was_written_in_a_folder_that_has_its_former_name_again_is_found() {
    let bed = Bed::new("renamed");
    std::fs::create_dir(bed.at("before")).unwrap();
    std::fs::write(bed.at("before/file"), "first").unwrap();
    let renamed = bed.set(|command| command.rename("before", "after").unwrap());
    let written = bed.set(|command| command.write("after/file", b"second").unwrap());
    assert_eq!(undo(&bed, renamed), [""; 0]);
    assert_eq!(std::fs::read(bed.at("before/file")).unwrap(), b"second");
    assert_eq!(undo(&bed, written), [""; 0]);
    assert_eq!(std::fs::read(bed.at("before/file")).unwrap(), b"first");
}

#[test]
fn what_a_later_set_removed_is_its_affair() {
    for how in ["written", "replaced"] {
        let bed = Bed::new("removed");
        std::fs::write(bed.at("file"), "first").unwrap();
        let changed = bed.set(|command| {
            if how == "replaced" {
                command.unlink("file").unwrap();
            }
            command.write("file", b"second").unwrap();
        });
        let removed = bed.set(|command| command.unlink("file").unwrap());
        assert_eq!(undo(&bed, changed), [format!("nothing, removed by set {removed}")], "{how}");
        std::fs::metadata(bed.at("file")).expect_err(how);
        assert_eq!(undo(&bed, removed), [""; 0], "{how}");
        assert_eq!(std::fs::read(bed.at("file")).unwrap(), b"second", "{how}");
        assert_eq!(undo(&bed, changed), [""; 0], "{how}");
        assert_eq!(std::fs::read(bed.at("file")).unwrap(), b"first", "{how}");
    }
}

#[test]
fn what_another_set_needs_from_the_trash_stays_there() {
    let bed = Bed::new("two-names");
    std::fs::write(bed.at("one"), "contents").unwrap();
    std::fs::hard_link(bed.at("one"), bed.at("two")).unwrap();
    let first = bed.set(|command| command.unlink("one").unwrap());
    let second = bed.set(|command| command.unlink("two").unwrap());
    assert_eq!(undo(&bed, first), [""; 0]);
    assert_eq!(undo(&bed, second), [""; 0]);
    for name in ["one", "two"] {
        assert_eq!(std::fs::read(bed.at(name)).unwrap(), b"contents", "{name}");
    }
}
