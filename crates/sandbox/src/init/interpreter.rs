//! By what a file says that it is to be run: the path in the first line of a script, or in the header
//! of a program.
//!
//! The file is hostile, like all in a session: what it says is shown to a person and nothing else.

use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, Mode, OFlags};
use std::ffi::CString;

/// How much of a file is looked at.
const START: usize = 4096;
/// Longest path that is shown.
const LONGEST: usize = 256;

/// The interpreter that a file in this folder names, if it can be read and names one.
pub(super) fn of(folder: BorrowedFd<'_>, program: &CString) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, program.as_c_str(), flags, Mode::empty()).ok()?;
    let mode = rustix::fs::fstat(&file).ok()?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return None;
    }
    let mut start = [0; START];
    let length = rustix::io::pread(&file, &mut start, 0).ok()?;
    named(start.get(..length)?)
}

/// What the start of a file says.
fn named(start: &[u8]) -> Option<Vec<u8>> {
    let path = match start.strip_prefix(b"#!") {
        Some(line) => {
            let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii_start();
            line.split(u8::is_ascii_whitespace).next()?
        }
        None => loader(start)?,
    };
    let path = path.get(..path.len().min(LONGEST))?;
    (!path.is_empty()).then(|| path.to_vec())
}

/// The loader that a program for 64 bits names (`PT_INTERP`).
fn loader(start: &[u8]) -> Option<&[u8]> {
    const LOADER: u64 = 3;
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let field = start.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let place = |at: usize, bytes: usize| usize::try_from(number(at, bytes)?).ok();
    start.strip_prefix(b"\x7fELF\x02")?;
    let (table, size, count) = (place(32, 8)?, place(54, 2)?, place(56, 2)?);
    for entry in 0..count {
        let at = table.checked_add(entry.checked_mul(size)?)?;
        if number(at, 4)? == LOADER {
            let (path, length) = (place(at.checked_add(8)?, 8)?, place(at.checked_add(32)?, 8)?);
            return start.get(path..path.checked_add(length)?)?.split(|byte| *byte == 0).next();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, named};

    #[test]
    fn a_script_names_it_in_its_first_line() {
        for (start, expected) in [
            (&b"#!/no/such -x\nline\n"[..], Some(&b"/no/such"[..])),
            (b"#! \t/usr/bin/env python\n", Some(b"/usr/bin/env")),
            (b"#!/at/the/end", Some(b"/at/the/end")),
            (b"#!/windows\r\n", Some(b"/windows")),
            (b"#!\n/next", None),
            (b"#!", None),
            (b"text", None),
            (b"", None),
        ] {
            assert_eq!(named(start).as_deref(), expected, "{start:?}");
        }
        let long = [b"#!/".to_vec(), vec![b'x'; 1000]].concat();
        assert_eq!(named(&long).map(|path| path.len()), Some(LONGEST));
    }

    #[test]
    fn a_program_names_its_loader() {
        let shell = std::fs::read("/bin/sh").expect("every host has one");
        let start = &shell[..4096];
        let loader = named(start).expect("it is linked dynamically");
        assert!(
            loader.starts_with(b"/lib")
                && std::fs::metadata(std::str::from_utf8(&loader).expect("it is text")).is_ok()
        );
        // Wherever it is cut off, or whatever is changed in it, nothing breaks.
        for length in 0..start.len() {
            drop(named(&start[..length]));
        }
        for at in 0..1024 {
            let mut broken = start.to_vec();
            broken[at] = 0xff;
            drop(named(&broken));
        }
    }
}
