//! The archive that a kernel unpacks as its first file system (`newc` of cpio).

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Kinds of a file, as in `stat`.
const FILE: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;

/// An archive that is being written.
#[derive(Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    pub(crate) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER | 0o755, &[]);
    }

    pub(crate) fn link(&mut self, name: &str, to: &str) {
        self.entry(name, LINK | 0o777, to.as_bytes());
    }

    pub(crate) fn text(&mut self, name: &str, text: &str, mode: u32) {
        self.entry(name, FILE | mode, text.as_bytes());
    }

    /// A copy of a file of this host.
    pub(crate) fn copy(&mut self, name: &str, from: &Path) {
        let read = std::fs::read(from).and_then(|contents| Ok((contents, from.metadata()?)));
        let (contents, metadata) =
            read.unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        self.entry(name, FILE | (metadata.permissions().mode() & 0o777), &contents);
    }

    /// All of it, with its end.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entries += 1;
        let length = |count: usize| u32::try_from(count).expect("it is small");
        // Number, mode, owner, group, links, time, size, two devices of two numbers, name, check.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            length(contents.len()),
            0,
            0,
            0,
            0,
            length(name.len() + 1),
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").into_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}
