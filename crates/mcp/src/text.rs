//! Text for a model: bounded, and without what would act on whatever shows it.

use std::fmt::Write as _;

/// Whether a character acts on a terminal, or lets a text say one thing and show another.
fn acts(c: char) -> bool {
    let reorders = matches!(
        c,
        '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    // Tags are invisible and spell whole sentences.
    let hides = matches!(c, '\u{e0000}'..='\u{e007f}');
    reorders || hides || (c.is_control() && !matches!(c, '\n' | '\t'))
}

/// The text with every character that acts written out, e.g. as `\u{1b}`. Ends of lines stay as
/// they are, those of other systems too.
pub(crate) fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let line_end = c == '\r' && rest.peek() == Some(&'\n');
        if acts(c) && !line_end {
            // Writing to a string succeeds.
            cowork_sys::ignore(write!(out, "{}", c.escape_unicode()));
        } else {
            out.push(c);
        }
    }
    out
}

/// Bytes of any kind as harmless text.
pub(crate) fn shown(bytes: &[u8]) -> String {
    harmless(&String::from_utf8_lossy(bytes))
}

/// At most so many bytes from the start of a text, in whole characters.
pub(crate) fn start(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// Most bytes of a list in one answer.
const MAX_LIST: usize = 100 * 1024;

/// As many items from the start of a list as fit into an answer, and whether there were more.
pub(crate) fn fit<T>(mut items: Vec<T>, size: impl Fn(&T) -> usize) -> (Vec<T>, bool) {
    let mut total = 0_usize;
    let fits = items.iter().take_while(|item| {
        total = total.saturating_add(size(item));
        total <= MAX_LIST
    });
    let fits = fits.count();
    let more = fits < items.len();
    items.truncate(fits);
    (items, more)
}

/// One short line: what of a longer text tells how things are going.
pub(crate) fn line(text: &str, most: usize) -> String {
    let text = harmless(text.trim()).replace(['\n', '\t', '\r'], " ");
    if text.len() <= most { text } else { format!("{}…", start(&text, most)) }
}

#[cfg(test)]
mod tests {
    use super::{fit, harmless, line, shown, start};

    #[test]
    fn what_acts_is_written_out() {
        let table = [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("windows\r\nline", "windows\r\nline"),
            ("over\rwritten", "over\\u{d}written"),
            ("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}"),
            ("tag\u{e0041}", "tag\\u{e0041}"),
            ("nul\0", "nul\\u{0}"),
            ("ümläut 漢字 🙂", "ümläut 漢字 🙂"),
        ];
        for (text, expected) in table {
            assert_eq!(harmless(text), expected);
        }
        assert_eq!(shown(b"\xff\x07"), "\u{fffd}\\u{7}");
    }

    #[test]
    fn a_list_is_cut_where_it_no_longer_fits() {
        let item = "x".repeat(30 * 1024);
        let (items, more) = fit(vec![item.clone(), item.clone(), item.clone()], String::len);
        assert_eq!((items.len(), more), (3, false));
        let (items, more) = fit(vec![item; 9], String::len);
        assert_eq!((items.len(), more), (3, true));
    }

    #[test]
    fn a_cut_leaves_whole_characters() {
        assert_eq!(start("漢字", 4), "漢");
        assert_eq!(start("ab", 9), "ab");
        assert_eq!(line("a\nb\u{1b}c", 80), "a b\\u{1b}c");
        assert_eq!(line("abcdef", 3), "abc…");
    }
}
