//! What is sent is encoded as it always was in this generation.
//!
//! The encoding of a message is its fields in order, and the number of a variant. So the definitions of
//! every type that is sent are kept in `tests/generation-2.txt`: without comments, one line per field or
//! variant. A variant may be added at the end of an enum, and is then added there. Whatever else
//! differs needs a new `GENERATION`, and a file for that. The bytes of some messages pin the encoding
//! itself.

#![forbid(unsafe_code)]
#![expect(clippy::expect_used, reason = "a test that cannot go on fails")]
#![expect(clippy::tests_outside_test_module, reason = "this whole program is tests")]

use cowork_api::guest::{Ending, FromInit, ToInit, Usage, Whom};
use cowork_api::keeper::{Call, Request};
use cowork_api::{GENERATION, encode};
use std::collections::BTreeMap;
use std::path::Path;

const FILES: [&str; 8] = [
    "egress/mod.rs",
    "egress/record.rs",
    "files.rs",
    "guest.rs",
    "keeper.rs",
    "plan.rs",
    "seed.rs",
    "starter.rs",
];

/// The parts of a definition, by its first line.
type Definitions = BTreeMap<String, Vec<String>>;

/// The types that a source file defines. What of an attribute changes the encoding is a part.
fn definitions(file: &str, source: &str) -> Definitions {
    let mut found = Definitions::new();
    let mut open: Option<(String, Vec<String>, i32)> = None;
    for line in source.lines().map(str::trim) {
        let line = line.split("//").next().unwrap_or_default().trim();
        let defines = line.starts_with("pub struct ") || line.starts_with("pub enum ");
        if open.is_none() && defines {
            open = Some((format!("{file}: {line}"), Vec::new(), 0));
        } else if let Some((_, parts, _)) = &mut open
            && !line.is_empty()
            && (!line.starts_with("#[") || line.starts_with("#[serde"))
        {
            parts.push(line.to_owned());
        }
        let Some((_, _, depth)) = &mut open else { continue };
        for character in line.chars() {
            match character {
                '{' | '(' => *depth += 1,
                '}' | ')' => *depth -= 1,
                _ => {}
            }
        }
        if *depth == 0
            && let Some((name, parts, _)) = open.take()
        {
            found.insert(name, variants(parts));
        }
    }
    found
}

/// Joins the lines of a variant that has fields of its own.
fn variants(lines: Vec<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    let mut depth = 0;
    for line in lines {
        match joined.last_mut() {
            Some(last) if depth > 0 => *last = format!("{last} {line}"),
            _ => joined.push(line.clone()),
        }
        depth += line.matches(['{', '(']).count();
        depth = depth.saturating_sub(line.matches(['}', ')']).count());
    }
    joined.retain(|line| line != "}");
    joined
}

fn now() -> Definitions {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let read = |file: &&str| {
        definitions(file, &std::fs::read_to_string(source.join(file)).expect("it is a source file"))
    };
    FILES.iter().flat_map(read).collect()
}

fn kept() -> Definitions {
    let path = format!("{}/tests/generation-{GENERATION}.txt", env!("CARGO_MANIFEST_DIR"));
    parse(&std::fs::read_to_string(path).expect("there is a file for this generation"))
}

fn parse(text: &str) -> Definitions {
    let mut found = Definitions::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(part) = line.strip_prefix("    ") {
            found.entry(name.clone()).or_default().push(part.to_owned());
        } else {
            line.clone_into(&mut name);
            found.insert(name.clone(), Vec::new());
        }
    }
    found
}

fn written(definitions: &Definitions) -> String {
    let lines = definitions.iter().flat_map(|(name, parts)| {
        std::iter::once(name.clone()).chain(parts.iter().map(|part| format!("    {part}")))
    });
    lines.map(|line| line + "\n").collect()
}

/// What an older program of this generation would not understand.
fn broken(kept: &Definitions, now: &Definitions) -> Vec<String> {
    let differs = |(name, parts): (&String, &Vec<String>)| {
        let Some(found) = now.get(name) else { return Some(format!("`{name}` is gone")) };
        let same =
            if name.contains(": pub enum ") { found.starts_with(parts) } else { found == parts };
        (!same).then(|| format!("`{name}` was {parts:?} and is {found:?}"))
    };
    kept.iter().filter_map(differs).collect()
}

#[test]
fn no_message_is_encoded_otherwise() {
    let (kept, now) = (kept(), now());
    assert_eq!(broken(&kept, &now), Vec::<String>::new(), "this needs a new generation");
    // New types and variants are kept from now on.
    assert!(
        written(&now) == written(&kept),
        "tests/generation-{GENERATION}.txt is to be:\n{}",
        written(&now)
    );
}

#[test]
fn what_would_be_encoded_otherwise_is_noticed() {
    let before = "pub struct A {\n    /// First.\n    pub one: u32,\n    pub two: u8,\n}\n\
                  pub struct B(pub u32);\n\
                  pub enum C {\n    One,\n    Two {\n        /// A.\n        a: u8,\n    },\n}\n";
    let kept = definitions("x.rs", before);
    assert_eq!(kept.len(), 3);
    assert_eq!(kept["x.rs: pub enum C {"], ["One,", "Two { a: u8, },"]);
    assert_eq!(parse(&written(&kept)), kept);
    let broken_by = |from: &str, to: &str| {
        assert!(before.contains(from));
        broken(&kept, &definitions("x.rs", &before.replace(from, to))).len()
    };
    assert_eq!(broken_by("First", "Second"), 0);
    assert_eq!(broken_by("    },\n}\n", "    },\n    Three,\n}\n"), 0);
    assert_eq!(
        broken_by("    pub one: u32,\n    pub two: u8,\n", "    pub two: u8,\n    pub one: u32,\n"),
        1
    );
    assert_eq!(broken_by("pub two: u8", "pub two: u64"), 1);
    assert_eq!(broken_by("    pub two: u8,\n", "    pub two: u8,\n    pub three: u8,\n"), 1);
    assert_eq!(broken_by("    pub two", "    #[serde(skip)]\n    pub two"), 1);
    assert_eq!(broken_by("B(pub u32)", "B(pub u64)"), 1);
    assert_eq!(broken_by("    One,\n", "    Zero,\n    One,\n"), 1);
    assert_eq!(broken_by("a: u8", "a: u64"), 1);
}

#[test]
fn these_messages_are_these_bytes() {
    let usage = Usage { user_us: 300, system_us: 1, peak_kib: 128, read: 0, written: 4096 };
    let ended = FromInit::Ended { command: 1, ending: Ending::Signal(9), usage };
    let call = Call { number: 5, request: Request::Survey };
    for (name, bytes, expected) in [
        ("ping", encode(&ToInit::Ping { nonce: 300 }), "02 00 ac 02"),
        (
            "signal",
            encode(&ToInit::Signal { command: 2, signal: -1, whom: Whom::Group }),
            "02 02 02 01 01",
        ),
        ("ended", encode(&ended), "02 03 01 01 09 ac 02 01 80 01 00 80 20"),
        ("survey", encode(&call), "02 05 08"),
    ] {
        let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(bytes.join(" "), expected, "{name}");
    }
}
