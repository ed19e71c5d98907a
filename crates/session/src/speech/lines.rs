//! A stream of bytes, split into lines of bounded length.

/// Longest line, in bytes. What comes after that is counted, and not kept.
pub const MAX_LINE: usize = 4 * 1024 * 1024;
/// How much is kept of a line that is too long.
const START: usize = 256;

/// A line, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// All of it.
    Whole(Vec<u8>),
    /// It was too long.
    Long {
        /// Its beginning.
        start: Vec<u8>,
        /// How long it was.
        bytes: u64,
    },
}

/// The unfinished last line of a stream.
#[derive(Debug, Default)]
pub struct Lines {
    kept: Vec<u8>,
    /// Bytes of the unfinished line that are not kept.
    beyond: u64,
}

impl Lines {
    /// Takes bytes up to the first end of a line: that line, and how many bytes were taken. All of
    /// them are, and there is no line, if none of them ends one.
    pub fn take(&mut self, bytes: &[u8]) -> (Option<Line>, usize) {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.add(bytes);
            return (None, bytes.len());
        };
        self.add(bytes.get(..end).unwrap_or_default());
        (Some(self.finish()), end + 1)
    }

    /// The last line of a stream that has ended, if it had begun.
    pub fn rest(&mut self) -> Option<Line> {
        (!self.kept.is_empty() || self.beyond > 0).then(|| self.finish())
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.kept.len());
        let (kept, beyond) = bytes.split_at(room.min(bytes.len()));
        self.kept.extend_from_slice(kept);
        self.beyond = self.beyond.saturating_add(beyond.len() as u64);
    }

    fn finish(&mut self) -> Line {
        let beyond = std::mem::take(&mut self.beyond);
        let mut kept = std::mem::take(&mut self.kept);
        if beyond == 0 {
            return Line::Whole(kept);
        }
        let bytes = beyond.saturating_add(kept.len() as u64);
        kept.truncate(START);
        Line::Long { start: kept, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, Lines, MAX_LINE};

    fn all(pieces: &[&[u8]]) -> Vec<Line> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let (line, taken) = lines.take(rest);
                found.extend(line);
                rest = &rest[taken..];
            }
        }
        found.extend(lines.rest());
        found
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.as_bytes().to_vec())
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let expected = [whole("one"), whole(""), whole("three"), whole("rest")];
        assert_eq!(all(&[b"one\n\nthree\nrest"]), expected);
        assert_eq!(all(&[b"on", b"e\n", b"\nthr", b"ee", b"\n", b"re", b"st"]), expected);
        assert_eq!(all(&[b"", b"\n"]), [whole("")]);
        assert_eq!(all(&[]), []);
    }

    #[test]
    fn a_long_line_is_counted_and_not_kept() {
        let full = vec![b'a'; MAX_LINE];
        let found = all(&[&full, b"\n", &full, b"b\nnext\n"]);
        assert_eq!(found[0], Line::Whole(full));
        let Line::Long { start, bytes } = &found[1] else { panic!("it is too long") };
        assert_eq!((start.len(), *bytes), (256, MAX_LINE as u64 + 1));
        assert_eq!(found[2], whole("next"));
    }
}
