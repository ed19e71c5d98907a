//! Text that somebody else wrote, on its way to a person: whatever a terminal would act on is
//! shown instead of sent.
//!
//! Invariant: what comes out contains no control character but line ends and tabs, no character
//! that changes the direction or the visibility of others, and no bytes that are not UTF-8.

use std::fmt::Write as _;

/// Whether a character does something where it should be read.
fn acts(c: char) -> bool {
    let hidden = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    hidden || (c.is_control() && c != '\n' && c != '\t')
}

/// A sentence, a name or a word.
pub(crate) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    add(&mut out, text);
    out
}

/// The same, on one line.
pub(crate) fn line(text: &str) -> String {
    self::text(text).replace('\n', "\\n").replace('\t', "\\t")
}

fn add(out: &mut String, text: &str) {
    for c in text.chars() {
        if acts(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
}

/// Output of a command, piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Neutralised {
    /// The start of a character, or a carriage return, whose rest is in the next piece.
    held: Vec<u8>,
}

impl Neutralised {
    /// What can be shown after another piece.
    pub(crate) fn add(&mut self, piece: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend(piece);
        let mut out = String::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        // A terminal ends its lines with a carriage return before the line feed.
        if let Some(before) = rest.strip_suffix(b"\r") {
            self.held = b"\r".to_vec();
            rest = before;
        }
        while !rest.is_empty() {
            let (good, bad) = match std::str::from_utf8(rest) {
                Ok(text) => (text, None),
                Err(error) => {
                    let (good, _) = rest.split_at(error.valid_up_to());
                    let good = std::str::from_utf8(good).unwrap_or_default();
                    (good, Some(error.error_len()))
                }
            };
            add(&mut out, &good.replace("\r\n", "\n"));
            rest = rest.get(good.len()..).unwrap_or_default();
            match bad {
                None => {}
                Some(Some(length)) => {
                    let (wrong, after) = rest.split_at(length.min(rest.len()));
                    escape(&mut out, wrong);
                    rest = after;
                }
                Some(None) => {
                    // What is held is no more than one character.
                    self.held.splice(0..0, rest.iter().copied());
                    rest = &[];
                }
            }
        }
        out
    }

    /// What is left when no more comes.
    pub(crate) fn end(&mut self) -> String {
        let mut out = String::new();
        escape(&mut out, &std::mem::take(&mut self.held));
        out
    }
}

fn escape(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'\r' => out.push_str("\\r"),
            // Writing to a string cannot fail.
            byte => cowork_sys::ignore(write!(out, "\\x{byte:02x}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Neutralised, line, text};

    #[test]
    fn what_acts_is_shown() {
        assert_eq!(text("a\u{1b}[31mred\u{7}\tb\n"), "a\\u{1b}[31mred\\u{7}\tb\n");
        assert_eq!(text("\u{9b}2J \u{202e}evil\u{feff}"), "\\u{9b}2J \\u{202e}evil\\u{feff}");
        assert_eq!(text("Grüße, 世界 🦀"), "Grüße, 世界 🦀");
        assert_eq!(line("one\ntwo\r"), "one\\ntwo\\r");
    }

    fn shown(pieces: &[&[u8]]) -> String {
        let mut neutral = Neutralised::default();
        let mut out: String = pieces.iter().map(|piece| neutral.add(piece)).collect();
        out.push_str(&neutral.end());
        out
    }

    #[test]
    fn pieces_are_as_good_as_the_whole() {
        let bytes = "x\r\ny\rz\u{1b}]0;t\u{7} 世\u{9b}\r\n".as_bytes();
        let mut bytes = bytes.to_vec();
        bytes.extend([0xff, b'a', 0xc3, 0x28, 0xe4, 0xb8]);
        let whole = "x\ny\\rz\\u{1b}]0;t\\u{7} 世\\u{9b}\n\\xffa\\xc3(\\xe4\\xb8";
        assert_eq!(shown(&[&bytes]), whole);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(shown(&single), whole);
        for at in 0..bytes.len() {
            let (first, second) = bytes.split_at(at);
            assert_eq!(shown(&[first, second]), whole, "split at {at}");
        }
    }

    #[test]
    fn a_lone_return_at_the_end_is_shown() {
        assert_eq!(shown(&[b"10%\r"]), "10%\\r");
        assert_eq!(shown(&[b"a\r", b"\n"]), "a\n");
        assert_eq!(shown(&[b"\xe4\xb8\r"]), "\\xe4\\xb8\\r");
    }
}
