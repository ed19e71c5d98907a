//! Types of files that are refused: programs, installers and shortcuts of other systems.
//!
//! Names are judged by their ending, which is what such a system goes by; contents by how they
//! begin, where that tells a program from everything else, and by a place or two more where it does
//! not: a program for Java begins like any archive. The endings are data, in `blocked.toml`.
//!
//! Deliberately absent: programs for Linux, which builds make all day.

use super::pattern::{Folded, Pattern};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::LazyLock;

const DATA: &str = include_str!("blocked.toml");

/// How many of a file's first bytes are looked at to judge its contents.
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

/// Whether something below `from` may lie where no type is refused, and would not below `to`.
pub(super) fn may_let_out(from: &[u8], to: &[u8]) -> bool {
    let folder = Folded::new(from);
    // Where anything at all is excepted, everything below is.
    let anything = [to, b"/*"].concat();
    known().except.iter().any(|pattern| pattern.leads_through(&folder)) && !is_excepted(&anything)
}

/// What is looked at of a file to judge its contents.
pub struct Contents<'a> {
    start: &'a [u8],
    size: u64,
    more: &'a dyn Fn(u64, &mut [u8]) -> usize,
}

impl std::fmt::Debug for Contents<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Contents").field("size", &self.size).finish_non_exhaustive()
    }
}

impl<'a> Contents<'a> {
    /// The first [`MAGIC_BYTES`], or all if there are fewer; the size; and how some bytes from a
    /// place on are read, of which how many is said. At most two pieces are, of up to 16 bytes.
    pub fn new(start: &'a [u8], size: u64, more: &'a dyn Fn(u64, &mut [u8]) -> usize) -> Self {
        Self { start, size, more }
    }

    /// The bytes in a place, if there are so many.
    fn piece<const LENGTH: usize>(&self, at: u64) -> Option<[u8; LENGTH]> {
        let mut found = [0; LENGTH];
        ((self.more)(at, &mut found) == LENGTH).then_some(found)
    }
}

/// A type of files that is refused by contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Magic {
    /// What is said about it.
    pub reason: &'static str,
    /// If files that end in this are not refused, neither are these.
    pub ending: Option<&'static str>,
}

impl Magic {
    const fn always(reason: &'static str) -> Self {
        Self { reason, ending: None }
    }

    const fn with(ending: &'static str, reason: &'static str) -> Self {
        Self { reason, ending: Some(ending) }
    }
}

/// Why a file with these contents is refused: what program of another system it is.
pub fn blocked_magic(contents: &Contents<'_>) -> Option<Magic> {
    let start = contents.start;
    let magic = match start {
        [b'M', b'Z', ..] if is_windows_program(start) => {
            Magic::always("it begins like a program for Windows")
        }
        [0x4C, 0, 0, 0, 0x01, 0x14, 0x02, 0, 0, 0, 0, 0, 0xC0, 0, 0, 0, 0, 0, 0, 0x46, ..] => {
            Magic::always("it begins like a shortcut for Windows")
        }
        [0xCE | 0xCF, 0xFA, 0xED, 0xFE, ..] if little(start, 12, 4) == Some(MACH_EXECUTE) => {
            Magic::always("it begins like a program for macOS")
        }
        // A class of Java begins in the same way; its version, in the same place, is 45 or more.
        [0xCA, 0xFE, 0xBA, 0xBE | 0xBF, 0, 0, 0, 1..=44, ..] => {
            Magic::always("it begins like a program for macOS")
        }
        [b'x', b'a', b'r', b'!', ..] => Magic::always("it begins like an installer for macOS"),
        [b'P', b'K', 3, 4, ..] if is_java_archive(start) => {
            Magic::with("jar", "it begins like a program for Java")
        }
        [0xD0, 0xCF, 0x11, 0xE0, 0xA1, 0xB1, 0x1A, 0xE1, ..] if is_installer(contents) => {
            Magic::with("msi", "it is built like an installer for Windows")
        }
        _ if is_disk_image(contents) => Magic::with("dmg", "it ends like a disk image for macOS"),
        _ => return None,
    };
    Some(magic)
}

/// Whether the first entry of an archive is one that only programs for Java begin with, or bears
/// their mark. Other archives have these files too, but not in front.
fn is_java_archive(start: &[u8]) -> bool {
    const HEADER: usize = 30;
    const MARK: u32 = 0xCAFE;
    let length = |at| little(start, at, 2).and_then(|length| usize::try_from(length).ok());
    let (Some(name), Some(extra)) = (length(26), length(28)) else { return false };
    let extra_at = HEADER + name;
    let first = start.get(HEADER..extra_at);
    if first.is_some_and(|first| matches!(first, b"META-INF/" | b"META-INF/MANIFEST.MF")) {
        return true;
    }
    let end = extra_at + extra;
    let mut at = extra_at;
    while at + 4 <= end {
        if little(start, at, 2) == Some(MARK) {
            return true;
        }
        let Some(length) = length(at + 2) else { return false };
        at += 4 + length;
    }
    false
}

/// Whether a compound file is one of Windows Installer, which its root says. Old documents are
/// compound files as well.
///
/// Offsets are those of Microsoft's "Compound File Binary File Format".
fn is_installer(contents: &Contents<'_>) -> bool {
    /// `{000C1084-0000-0000-C000-000000000046}`, a package, and `…1086…`, a patch.
    const PACKAGE: [u8; 16] = [0x84, 0x10, 0x0C, 0, 0, 0, 0, 0, 0xC0, 0, 0, 0, 0, 0, 0, 0x46];
    const PATCH: [u8; 16] = [0x86, 0x10, 0x0C, 0, 0, 0, 0, 0, 0xC0, 0, 0, 0, 0, 0, 0, 0x46];
    const CLASS: u64 = 80;
    let start = contents.start;
    let shift = little(start, 30, 2).filter(|shift| (7..=16).contains(shift));
    let (Some(shift), Some(sector)) = (shift, little(start, 48, 4)) else { return false };
    let at = ((u64::from(sector) + 1) << shift) + CLASS;
    matches!(contents.piece(at), Some(PACKAGE | PATCH))
}

/// Whether a disk image's trailer is in its place, which is the end.
fn is_disk_image(contents: &Contents<'_>) -> bool {
    /// The signature, the version, and the trailer's own length.
    const TRAILER: [u8; 12] = *b"koly\0\0\0\x04\0\0\x02\0";
    // What is smaller than what was looked at has no place for anything before it.
    contents.start.len() >= MAGIC_BYTES
        && contents.size.checked_sub(512).and_then(|at| contents.piece(at)) == Some(TRAILER)
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
    use super::{Contents, DATA, Data, MAGIC_BYTES, Magic, ending, known};
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

    /// What a whole file is taken for.
    fn magic(file: &[u8]) -> Option<Magic> {
        let more = |at: u64, buffer: &mut [u8]| {
            let rest = usize::try_from(at).ok().and_then(|at| file.get(at..)).unwrap_or_default();
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            length
        };
        let start = &file[..file.len().min(MAGIC_BYTES)];
        super::blocked_magic(&Contents::new(start, file.len() as u64, &more))
    }

    fn blocked_magic(file: &[u8]) -> Option<&'static str> {
        magic(file).map(|magic| magic.reason)
    }

    /// The first entry of an archive.
    fn archive(name: &str, extra: &[u8]) -> Vec<u8> {
        let mut file = b"PK\x03\x04\x14\0\0\0\x08\0".to_vec();
        file.resize(26, 0);
        file.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        file.extend(u16::try_from(extra.len()).unwrap().to_le_bytes());
        file.extend(name.as_bytes());
        file.extend(extra);
        file.extend([7; 40]);
        file
    }

    /// A compound file whose folder is in a sector, with the class of its root.
    fn compound(shift: u16, sector: u32, class: [u8; 16]) -> Vec<u8> {
        let mut file = vec![0; (usize::try_from(sector).unwrap() + 2) << shift];
        file[..8].copy_from_slice(b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1");
        file[30..32].copy_from_slice(&shift.to_le_bytes());
        file[48..52].copy_from_slice(&sector.to_le_bytes());
        let at = ((usize::try_from(sector).unwrap() + 1) << shift) + 80;
        file[at..at + 16].copy_from_slice(&class);
        file
    }

    const PACKAGE: [u8; 16] = *b"\x84\x10\x0C\0\0\0\0\0\xC0\0\0\0\0\0\0\x46";

    #[test]
    fn what_begins_like_others_is_told_from_them() {
        let java = magic(&archive("META-INF/", &[]));
        assert_eq!(java.map(|java| java.ending), Some(Some("jar")));
        assert!(magic(&archive("META-INF/MANIFEST.MF", &[])).is_some());
        assert!(magic(&archive("a/b", &[1, 0, 2, 0, 9, 9, 0xFE, 0xCA, 0, 0])).is_some());
        for (name, extra) in [
            ("[Content_Types].xml", &[][..]),
            ("mimetype", &[]),
            ("META-INF/container.xml", &[]),
            ("pkg/__init__.py", &[1, 0, 4, 0, 0xFE, 0xCA, 0, 0]),
            ("pkg/cut", &[1, 0, 0xFF, 0xFF]),
        ] {
            assert_eq!(magic(&archive(name, extra)), None, "{name}");
        }
        assert_eq!(magic(&archive("META-INF/", &[])[..28]), None);
        let installer = Some("it is built like an installer for Windows");
        assert_eq!(blocked_magic(&compound(9, 0, PACKAGE)), installer);
        assert_eq!(blocked_magic(&compound(12, 40, PACKAGE)), installer);
        let document = *b"\x06\x09\x02\0\0\0\0\0\xC0\0\0\0\0\0\0\x46";
        assert_eq!(magic(&compound(9, 40, document)), None);
        assert_eq!(magic(&compound(9, 40, PACKAGE)[..20_000]), None, "it is cut");
        let mut endless = compound(9, 0, PACKAGE);
        endless[48..52].fill(0xFF);
        assert_eq!(magic(&endless), None);
        endless[30] = 200;
        assert_eq!(magic(&endless), None);
        let image = |at: usize| {
            let mut file = vec![0x78; 4096];
            file[at..at + 12].copy_from_slice(b"koly\0\0\0\x04\0\0\x02\0");
            magic(&file).map(|image| image.ending)
        };
        assert_eq!(image(4096 - 512), Some(Some("dmg")));
        assert_eq!((image(4096 - 511), image(0)), (None, None));
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
            ("an archive of something", archive("docs/readme.txt", &[])),
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
