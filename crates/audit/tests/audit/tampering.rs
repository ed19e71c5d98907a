//! Every kind of alteration at any place is found, and said to be where it is.

use crate::bench::{Files, files, fill, lay, open, time, whole};
use cowork_audit::{GENESIS, Head, Ledger, Problem, verify};
use cowork_testbed::{Folder, Person};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;
use std::sync::OnceLock;

const RECORDS: u64 = 30;

/// A record of several files, as it was written.
struct Original {
    folder: Folder,
    files: Files,
    head: Head,
}

impl Original {
    fn new() -> Self {
        static WRITTEN: OnceLock<(Files, Head)> = OnceLock::new();
        let (files, head) = WRITTEN.get_or_init(|| {
            let folder = Folder::new(Person::Root, "audit");
            let head = fill(&mut open(folder.path()), RECORDS);
            (files(folder.path()), head)
        });
        assert!(files.len() > 4);
        let folder = Folder::new(Person::Root, "audit");
        lay(folder.path(), files);
        whole(folder.path(), Some(head));
        Self { folder, files: files.clone(), head: head.clone() }
    }

    /// What is found in altered files by somebody who knows the head.
    fn problems(&self, altered: &Files) -> Vec<Problem> {
        lay(self.folder.path(), altered);
        verify(self.folder.path(), Some(&self.head)).unwrap().problems
    }

    /// What is found in altered files by somebody who knows nothing.
    fn problems_unaided(&self, altered: &Files) -> Vec<Problem> {
        lay(self.folder.path(), altered);
        verify(self.folder.path(), None).unwrap().problems
    }
}

/// The lines of all files, each with its line feed and its file.
fn lines(files: &Files) -> Vec<(String, Vec<u8>)> {
    let lines = files.iter().flat_map(|(name, bytes)| {
        bytes.split_inclusive(|byte| *byte == b'\n').map(|line| (name.clone(), line.to_vec()))
    });
    lines.collect()
}

/// Puts lines into their files; files without a line are gone.
fn joined(lines: &[(String, Vec<u8>)]) -> Files {
    let mut files = Files::new();
    for (name, line) in lines {
        files.entry(name.clone()).or_default().extend_from_slice(line);
    }
    files
}

/// The line of its file at a place among all lines.
fn place(lines: &[(String, Vec<u8>)], index: usize) -> (String, u64) {
    let file = &lines[index].0;
    let before = lines[..index].iter().filter(|(name, _)| name == file).count();
    (file.clone(), u64::try_from(before).unwrap() + 1)
}

fn places(problems: &[Problem]) -> Vec<(String, u64)> {
    problems.iter().map(|problem| (problem.file.clone(), problem.line)).collect()
}

/// Every byte of every file, each changed once.
#[test]
fn every_byte_is_covered() {
    let folder = Folder::new(Person::Root, "audit");
    let head = fill(&mut open(folder.path()), 12);
    let files = files(folder.path());
    assert!(files.len() > 2);
    let mut bits = 1_u8;
    for (name, bytes) in &files {
        let mut line = 1;
        for (at, byte) in bytes.iter().enumerate() {
            bits = bits.rotate_left(1) ^ u8::try_from(at % 251).unwrap() | 1;
            let mut altered = bytes.clone();
            altered[at] ^= bits;
            folder.write(name, altered);
            let problems = verify(folder.path(), None).unwrap().problems;
            assert!(places(&problems).contains(&(name.clone(), line)), "byte {at} of {name}");
            line += u64::from(*byte == b'\n');
        }
        folder.write(name, bytes);
    }
    whole(folder.path(), Some(&head));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_byte_is_found(spots in prop::collection::vec((any::<Index>(), any::<Index>(), 1_u8..), 32)) {
        let original = Original::new();
        for (file, at, bits) in spots {
            let mut altered = original.files.clone();
            let name = file.get(&altered.keys().cloned().collect::<Vec<_>>()).clone();
            let bytes = altered.get_mut(&name).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
            let lines = original.files[&name][..at].split(|byte| *byte == b'\n').count();
            let line = u64::try_from(lines).unwrap();
            prop_assert!(places(&original.problems(&altered)).contains(&(name, line)));
        }
    }

    #[test]
    fn swapped_removed_and_doubled_records_are_found(picks in prop::collection::vec((any::<Index>(), any::<Index>()), 16)) {
        let original = Original::new();
        let all = lines(&original.files);
        for (one, other) in picks {
            let (one, other) = (one.index(all.len()), other.index(all.len()));
            if one != other {
                let mut swapped = all.clone();
                let line = swapped[one].1.clone();
                swapped[one].1 = std::mem::replace(&mut swapped[other].1, line);
                let first = place(&all, one.min(other));
                prop_assert!(places(&original.problems(&joined(&swapped))).contains(&first));
            }

            let mut removed = all.clone();
            removed.remove(one);
            let problems = original.problems(&joined(&removed));
            prop_assert!(problems.iter().any(|problem| problem.sentence.contains("missing")), "{:?}", problems);
            if one + 1 < all.len() {
                prop_assert!(!original.problems_unaided(&joined(&removed)).is_empty());
                prop_assert!(places(&problems).contains(&place(&removed, one)));
            }

            let mut doubled = all.clone();
            doubled.insert(other, (all[other].0.clone(), all[one].1.clone()));
            let problems = original.problems(&joined(&doubled));
            let at = if one < other { other } else { one + 1 };
            let (here, there) = (place(&doubled, other), place(&doubled, at));
            prop_assert!(places(&problems).iter().any(|place| *place == here || *place == there), "{:?}", problems);
        }
    }

    #[test]
    fn inserted_lines_are_found(picks in prop::collection::vec((any::<Index>(), 0..4_u8, "[ -~]{0,80}"), 16)) {
        let original = Original::new();
        let all = lines(&original.files);
        for (at, kind, text) in picks {
            let at = at.index(all.len());
            let line = match kind {
                0 => format!("{text}\n").into_bytes(),
                1 => forged(&all, at, &text),
                2 => b"\n".to_vec(),
                _ => all[at].1.to_ascii_uppercase(),
            };
            let mut inserted = all.clone();
            inserted.insert(at, (all[at].0.clone(), line));
            let problems = original.problems(&joined(&inserted));
            // A forged record fits the one before it, and the true one behind it does not.
            let places = places(&problems);
            let (here, next) = (place(&inserted, at), place(&inserted, at + 1));
            prop_assert!(places.contains(&here) || places.contains(&next), "{:?}", problems);
            prop_assert!(problems.len() <= 3, "{:?}", problems);
        }
    }

    #[test]
    fn a_rewritten_record_is_found_by_the_one_behind_it(at in any::<Index>(), text in "[ -~]{0,80}") {
        let original = Original::new();
        let all = lines(&original.files);
        let at = at.index(all.len());
        let mut rewritten = all.clone();
        rewritten[at].1 = forged(&all, at, &text);
        let problems = original.problems(&joined(&rewritten));
        let next = if at + 1 < all.len() { at + 1 } else { at };
        prop_assert!(places(&problems).contains(&place(&rewritten, next)), "{:?}", problems);
        prop_assert_eq!(problems.len(), 1);
    }

    #[test]
    fn a_cut_is_found(file in any::<Index>(), length in any::<Index>()) {
        let original = Original::new();
        let mut altered = original.files.clone();
        let name = file.get(&altered.keys().cloned().collect::<Vec<_>>()).clone();
        let bytes = altered.get_mut(&name).unwrap();
        bytes.truncate(length.index(bytes.len()));
        let last = Some(&name) == original.files.keys().next_back();
        prop_assert!(!original.problems(&altered).is_empty());
        let ends_with_line = altered[&name].last().is_none_or(|byte| *byte == b'\n');
        let unaided = original.problems_unaided(&altered);
        prop_assert_eq!(unaided.is_empty(), last && ends_with_line, "{:?}", unaided);
    }
}

/// A record that says something else in the place of one, with the hash that it has to have.
fn forged(all: &[(String, Vec<u8>)], at: usize, text: &str) -> Vec<u8> {
    let folder = Folder::new(Person::Root, "forged");
    let before: Vec<u8> = all[..at].iter().flat_map(|(_, line)| line.clone()).collect();
    let file = folder.write("00000001.jsonl", &before);
    let mut ledger = Ledger::open(folder.path(), None).unwrap().ledger;
    ledger.append(&time(0), "forged", None, &json!(text)).unwrap();
    std::fs::read(file).unwrap().split_off(before.len())
}

#[test]
fn removed_renamed_and_swapped_files_are_found() {
    let original = Original::new();
    let names: Vec<&String> = original.files.keys().collect();
    for (number, name) in names.iter().enumerate() {
        let mut removed = original.files.clone();
        let bytes = removed.remove(*name).unwrap();
        let problems = original.problems(&removed);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].sentence.contains("missing"), "{problems:?}");
        if let Some(next) = names.get(number + 1) {
            assert_eq!((&problems[0].file, problems[0].line), (*next, 1));
        }

        for other in ["00000099.jsonl", "00000002.jsonl", "00000001.jsonl.old"] {
            let mut renamed = removed.clone();
            renamed.insert(other.to_owned(), bytes.clone());
            let problems = original.problems(&renamed);
            assert!(problems.iter().any(|problem| problem.file == other), "{problems:?}");
        }

        let mut emptied = original.files.clone();
        emptied.insert((*name).clone(), Vec::new());
        assert!(!original.problems(&emptied).is_empty());

        let mut added = original.files.clone();
        added.insert("00000003.jsonl".to_owned(), Vec::new());
        let problems = original.problems(&added);
        assert_eq!(places(&problems), [("00000003.jsonl".to_owned(), 1)]);
        assert_eq!(problems[0].sentence, "the file is empty");

        for other in &names[number + 1..] {
            let mut swapped = original.files.clone();
            swapped.insert((*name).clone(), original.files[*other].clone());
            swapped.insert((*other).clone(), original.files[*name].clone());
            let found = places(&original.problems(&swapped));
            assert!(
                found.contains(&((*name).clone(), 1)) && found.contains(&((*other).clone(), 1))
            );
        }
    }
    lay(original.folder.path(), &original.files);
    whole(original.folder.path(), Some(&original.head));
}

#[test]
fn a_missing_tail_is_found_by_who_remembers_the_head() {
    let original = Original::new();
    let all = lines(&original.files);
    for kept in 0..all.len() {
        let altered = joined(&all[..kept]);
        let problems = original.problems(&altered);
        let (from, to) = (kept + 1, all.len());
        let sentence = match to - from {
            0 => format!("record {from} is missing at the end"),
            _ => format!("records {from} to {to} are missing at the end"),
        };
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].sentence, sentence);
        assert_eq!(original.problems_unaided(&altered), []);
    }
}

#[test]
fn a_chain_computed_anew_is_found_by_who_remembers_a_head() {
    let original = Original::new();
    let folder = Folder::new(Person::Root, "audit");
    let mut ledger = open(folder.path());
    for number in 1..=RECORDS + 5 {
        ledger.append(&time(number), "forged", None, &json!(number)).unwrap();
    }
    whole(folder.path(), None);
    let problems = verify(folder.path(), Some(&original.head)).unwrap().problems;
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].sentence, "record 30 is not the one that was written");
}

/// What a person reads, for one act of each kind.
#[test]
fn one_act_is_one_sentence_at_its_place() {
    let original = Original::new();
    let all = lines(&original.files);
    let check = |altered: &[(String, Vec<u8>)], expected: &[&str]| {
        let problems = original.problems(&joined(altered)).into_iter();
        let said: Vec<String> = problems
            .map(|Problem { file, line, sentence, record }| {
                assert!(record.is_some(), "{sentence}");
                format!("{file}:{line}: {sentence}")
            })
            .collect();
        assert_eq!(said, expected);
    };
    let (name, _) = &all[1];

    let mut changed = all.clone();
    changed[1].1[60] ^= 1;
    check(
        &changed,
        &[&format!("{name}:2: the record was changed: its hash is not that of its content")],
    );

    let mut swapped = all.clone();
    (swapped[1].1, swapped[2].1) = (all[2].1.clone(), all[1].1.clone());
    check(&swapped, &[&format!("{name}:2: record 3 stands where record 2 belongs")]);

    let mut removed = all.clone();
    removed.remove(1);
    check(&removed, &[&format!("{name}:2: record 2 is missing before record 3")]);

    let mut doubled = all.clone();
    doubled.insert(1, all[0].clone());
    check(&doubled, &[&format!("{name}:2: record 1 stands here a second time")]);

    let mut inserted = all.clone();
    inserted.insert(1, (name.clone(), b"garbage\n".to_vec()));
    check(&inserted, &[&format!("{name}:2: the line is not a record")]);

    let mut two = inserted;
    two.remove(20);
    two.last_mut().unwrap().1[60] ^= 1;
    let last = place(&two, two.len() - 1);
    let gap = place(&two, 20);
    check(
        &two,
        &[
            &format!("{name}:2: the line is not a record"),
            &format!("{}:{}: record 20 is missing before record 21", gap.0, gap.1),
            &format!(
                "{}:{}: the record was changed: its hash is not that of its content",
                last.0, last.1
            ),
        ],
    );
    check(&all, &[]);
    assert_eq!(GENESIS.len(), 64);
}
