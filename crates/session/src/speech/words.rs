//! Text of others, made harmless and short.

/// A text without control characters other than ends of lines and tabs, and without characters that
/// reorder what surrounds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// The text.
    pub text: String,
    /// Whether there was more of it.
    pub cut: bool,
}

impl Words {
    /// On one line.
    pub fn line(self) -> String {
        self.text.replace(['\n', '\t'], " ")
    }
}

/// A text of at most so many bytes.
pub fn clean(text: &str, most: usize) -> Words {
    let mut words = Words::default();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        // The end of a line as some systems write it.
        if character == '\r' && characters.peek() == Some(&'\n') {
            continue;
        }
        let shown = if acts(character) { char::REPLACEMENT_CHARACTER } else { character };
        if words.text.len() + shown.len_utf8() > most {
            words.cut = true;
            return words;
        }
        words.text.push(shown);
    }
    words
}

/// Whether a terminal, or whoever shows a text, would do something else than show it.
fn acts(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn what_acts_is_replaced_and_the_rest_is_as_it_was() {
        for (text, expected) in [
            ("plain", "plain"),
            ("two\r\nlines\tand a tab", "two\nlines\tand a tab"),
            ("\u{1b}[31mred\u{7}", "\u{fffd}[31mred\u{fffd}"),
            ("a\rb\u{202e}c\u{9b}d", "a\u{fffd}b\u{fffd}c\u{fffd}d"),
            ("né 🦀", "né 🦀"),
        ] {
            let words = clean(text, 100);
            assert_eq!((words.text.as_str(), words.cut), (expected, false), "{text:?}");
        }
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        for most in 0..8 {
            let words = clean("né🦀", most);
            assert!(words.text.len() <= most);
            assert_eq!(words.cut, most < 7, "{most}");
        }
    }
}
