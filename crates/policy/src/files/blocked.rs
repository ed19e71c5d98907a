//! Types of files that are refused: programs, installers and shortcuts of other systems.
//!
//! Names are judged by their ending, which is what such a system goes by; contents by how they
//! begin, where that tells a program from everything else. The endings are data, in
//! `blocked.toml`.
//!
//! Deliberately absent: programs for Linux, which builds make all day.

use super::pattern::{Folded, Pattern};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::LazyLock;

const DATA: &str = include_str!("blocked.toml");

/// How many of a file's first bytes are enough to judge its contents.
pub const MAGIC_BYTES: usize = 1024;

/// Longest ending in bytes.
const MAX_ENDING: usize = 32;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    ending: Vec<Endings>,
    except: Vec<Exceptions>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Endings {
    names: Vec<String>,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    patterns: Vec<String>,
}

struct Known {
    endings: Vec<(String, String)>,
    except: Vec<Pattern>,
}

impl Known {
    fn of(data: &Data) -> Self {
        let endings = data
            .ending
            .iter()
            .flat_map(|group| group.names.iter().map(|name| (name.clone(), group.reason.clone())));
        let patterns = data.except.iter().flat_map(|group| &group.patterns);
        Self {
            endings: endings.collect(),
            except: patterns.filter_map(|pattern| pattern.parse().ok()).collect(),
        }
    }
}

fn known() -> &'static Known {
    // A test reads the data; there is nothing to be done about it at run time.
    static KNOWN: LazyLock<Known> =
        LazyLock::new(|| Known::of(&toml::from_str(DATA).unwrap_or_default()));
    &KNOWN
}

/// Why a text is not the ending of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is no ending of names: write letters, digits, `-` and `_`, e.g. `exe`; at most \
     {MAX_ENDING} of them",
    .text.escape_debug()
)]
pub struct EndingError {
    text: Box<str>,
}

/// Reads an ending as a person writes it, with or without a dot, in any case.
pub fn ending(text: &str) -> Result<String, EndingError> {
    let plain = text.strip_prefix("*.").or_else(|| text.strip_prefix('.')).unwrap_or(text);
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if plain.is_empty() || plain.len() > MAX_ENDING || !plain.chars().all(fits) {
        return Err(EndingError { text: text.into() });
    }
    Ok(plain.to_ascii_lowercase())
}

/// The endings that are refused unless a user says otherwise.
pub(super) fn default_endings() -> Vec<String> {
    known().endings.iter().map(|(ending, _)| ending.clone()).collect()
}

/// What is said about each ending.
pub(super) fn reasons(endings: &[String]) -> HashMap<Box<[u8]>, Box<str>> {
    let reason = |ending: &String| {
        let found = known().endings.iter().find(|(known, _)| known == ending);
        match found {
            Some((_, why)) => format!("files that end in `.{ending}` are refused here: {why}"),
            None => format!("files that end in `.{ending}` are refused here"),
        }
    };
    let folded = |ending: &String| ending.to_ascii_lowercase().into_bytes().into();
    endings.iter().map(|ending| (folded(ending), reason(ending).into())).collect()
}

/// Whether a path lies where no type is refused.
pub(super) fn is_excepted(path: &[u8]) -> bool {
    let path = Folded::new(path);
    known().except.iter().any(|pattern| pattern.covers(&path))
}

/// Why a file that begins with these bytes is refused: what program of another system it is.
pub fn blocked_magic(start: &[u8]) -> Option<&'static str> {
    match start {
        [b'M', b'Z', ..] if is_windows_program(start) => {
            Some("it begins like a program for Windows")
        }
        [0x4C, 0, 0, 0, 0x01, 0x14, 0x02, 0, 0, 0, 0, 0, 0xC0, 0, 0, 0, 0, 0, 0, 0x46, ..] => {
            Some("it begins like a shortcut for Windows")
        }
        [0xCE | 0xCF, 0xFA, 0xED, 0xFE, ..] if little(start, 12, 4) == Some(MACH_EXECUTE) => {
            Some("it begins like a program for macOS")
        }
        // A class of Java begins in the same way; its version, in the same place, is 45 or more.
        [0xCA, 0xFE, 0xBA, 0xBE | 0xBF, 0, 0, 0, 1..=44, ..] => {
            Some("it begins like a program for macOS")
        }
        [b'x', b'a', b'r', b'!', ..] => Some("it begins like an installer for macOS"),
        _ => None,
    }
}

/// `MH_EXECUTE` of `mach-o/loader.h`: neither a library nor what a compiler leaves.
const MACH_EXECUTE: u32 = 2;

/// Whether what begins with `MZ` is a program rather than text, a library, a program of .NET (which
/// runs on every system) or one for the firmware (which kernels for Linux are).
///
/// Offsets are those of Microsoft's "PE Format".
fn is_windows_program(start: &[u8]) -> bool {
    const LIBRARY: u32 = 0x2000;
    const OF_FIRMWARE: std::ops::RangeInclusive<u32> = 10..=13;
    let Some(header) = start.get(..64) else { return false };
    if !header.iter().any(|byte| *byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r' | b'\x0C')) {
        return false;
    }
    let Some(at) = little(start, 0x3C, 4).and_then(|at| usize::try_from(at).ok()) else {
        return true;
    };
    let signature = at.checked_add(4).and_then(|end| start.get(at..end));
    if signature != Some(b"PE\0\0") {
        return true;
    }
    let is_library = little(start, at + 22, 2).is_some_and(|kind| kind & LIBRARY != 0);
    let is_firmware = little(start, at + 92, 2).is_some_and(|it| OF_FIRMWARE.contains(&it));
    let wide = little(start, at + 24, 2) == Some(0x20B);
    let runtime = at + 24 + if wide { 112 } else { 96 } + 14 * 8;
    let is_managed = little(start, runtime, 4).is_some_and(|address| address != 0);
    !(is_library || is_firmware || is_managed)
}

/// The number that lies in up to four bytes, the lowest first.
fn little(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(count)?)?;
    Some(field.iter().rev().fold(0, |number, byte| (number << 8) | u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::{DATA, Data, MAGIC_BYTES, blocked_magic, ending, known};
    use crate::files::Pattern;
    use std::collections::BTreeSet;

    #[test]
    fn the_data_is_whole() {
        let data: Data = toml::from_str(DATA).unwrap();
        let mut names = BTreeSet::new();
        for group in &data.ending {
            let reason = &group.reason;
            assert!(reason.starts_with("it is ") && !reason.ends_with('.'), "{reason}");
            for name in &group.names {
                assert_eq!(ending(name).as_ref(), Ok(name));
                assert!(names.insert(name), "{name} is there twice");
            }
        }
        for name in ["exe", "dmg", "jar", "msi", "app"] {
            assert!(names.contains(&name.to_owned()), "{name}");
        }
        let patterns = data.except.iter().flat_map(|group| &group.patterns);
        let patterns: Vec<Pattern> = patterns.map(|pattern| pattern.parse().unwrap()).collect();
        assert_eq!(patterns, known().except);
    }

    #[test]
    fn an_ending_is_read_as_people_write_it() {
        for text in ["exe", ".exe", "*.exe", "EXE"] {
            assert_eq!(ending(text).as_deref(), Ok("exe"));
        }
        for text in ["", ".", "*", "tar.gz", "a b", "é", "a/b", &"x".repeat(33)] {
            let sentence = ending(text).unwrap_err().to_string();
            assert!(sentence.starts_with(&format!("`{text}` is no ending of names")), "{sentence}");
        }
    }

    /// The start of a program for Windows, with what tells its kinds apart.
    fn windows(characteristics: u16, subsystem: u8, runtime: u32) -> Vec<u8> {
        let mut bytes = vec![0; MAGIC_BYTES];
        let mut put = |at: usize, text: &[u8]| bytes[at..at + text.len()].copy_from_slice(text);
        put(0, b"MZ\x90");
        put(0x3C, &[0x80]);
        put(0x80, b"PE\0\0");
        put(0x80 + 22, &characteristics.to_le_bytes());
        put(0x80 + 24, &[0x0B, 0x02]);
        put(0x80 + 92, &[subsystem]);
        put(0x80 + 24 + 112 + 14 * 8, &runtime.to_le_bytes());
        bytes
    }

    #[test]
    fn programs_of_other_systems_are_known_by_their_first_bytes() {
        let program = Some("it begins like a program for Windows");
        assert_eq!(blocked_magic(&windows(0x22, 3, 0)), program);
        assert_eq!(blocked_magic(&windows(0x22, 2, 0)), program);
        assert_eq!(blocked_magic(&windows(0x22, 3, 0)[..70]), program);
        let dos = [&b"MZ"[..], &[0; 80]].concat();
        assert_eq!(blocked_magic(&dos), program);
        let far = [&b"MZ"[..], &[0; 58], &[0xFF; 4]].concat();
        assert_eq!(blocked_magic(&far), program);
        let macos = Some("it begins like a program for macOS");
        let single =
            [&[0xCF, 0xFA, 0xED, 0xFE][..], &[7, 0, 0, 1, 3, 0, 0, 0, 2, 0, 0, 0]].concat();
        assert_eq!(blocked_magic(&single), macos);
        assert_eq!(blocked_magic(&[0xCA, 0xFE, 0xBA, 0xBE, 0, 0, 0, 2]), macos);
        assert_eq!(blocked_magic(b"xar!\0\x1C"), Some("it begins like an installer for macOS"));
    }

    #[test]
    fn what_linux_and_its_builds_have_is_not_taken_for_them() {
        let object =
            [&[0xCF, 0xFA, 0xED, 0xFE][..], &[7, 0, 0, 1, 3, 0, 0, 0, 1, 0, 0, 0]].concat();
        let poem = "MZ is a country code, and this is a text that is longer than a header is.\n";
        for (what, start) in [
            ("nothing", b"".to_vec()),
            ("a program for Linux", b"\x7fELF\x02\x01\x01".to_vec()),
            ("a class of Java", vec![0xCA, 0xFE, 0xBA, 0xBE, 0, 0, 0, 65]),
            ("an archive", b"PK\x03\x04".to_vec()),
            ("an old document", b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1".to_vec()),
            ("two letters", b"MZ".to_vec()),
            ("a text", poem.as_bytes().to_vec()),
            ("a library", windows(0x2022, 2, 0)),
            ("a program of .NET", windows(0x22, 3, 0x2008)),
            ("a kernel", windows(0x22, 10, 0)),
            ("what a compiler leaves", object),
        ] {
            assert_eq!(blocked_magic(&start), None, "{what}");
        }
    }
}
