//! Tells the code of a Rust file from its comments and strings, line by line.
//!
//! This is no parser: it knows exactly as much of the language as is needed to say which bytes
//! are comment and which are inside quotes.

/// A file, twice: once with everything blank but its code, once with everything blank but its
/// comments. Both have the lines of the file.
#[derive(Debug)]
pub(super) struct Views {
    /// Comments, strings and characters are blank.
    pub(super) code: String,
    /// Everything but comments is blank.
    pub(super) comments: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Quoted,
}

impl Views {
    /// Takes a file apart.
    pub(super) fn of(source: &str) -> Self {
        let mut views = Self { code: String::new(), comments: String::new() };
        let mut rest = source;
        while !rest.is_empty() {
            let (kind, length) = next(rest);
            let (piece, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
            let blank = || piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' });
            match kind {
                Kind::Code => {
                    views.code.push_str(piece);
                    views.comments.extend(blank());
                }
                Kind::Comment => {
                    views.code.extend(blank());
                    views.comments.push_str(piece);
                }
                Kind::Quoted => {
                    views.code.extend(blank());
                    views.comments.extend(blank());
                }
            }
            rest = after;
        }
        views
    }

    /// Every line that belongs to an item which exists in tests only, counted from 0.
    pub(super) fn test_lines(&self) -> Vec<usize> {
        if self.code.contains("#![cfg(test)]") {
            return (0..self.code.lines().count()).collect();
        }
        let items = self.code.match_indices(TEST_ONLY).filter_map(|(start, _)| {
            let item = self.code.get(start..)?;
            let first = self.code.get(..start)?.matches('\n').count();
            Some(first..first + item.get(..item_end(item))?.lines().count())
        });
        // Lines of an item within another are counted once.
        let lines: std::collections::BTreeSet<usize> = items.flatten().collect();
        lines.into_iter().collect()
    }

    /// The modules that exist in tests only and are in files of their own.
    pub(super) fn test_modules(&self) -> Vec<&str> {
        let items = self.code.match_indices(TEST_ONLY);
        let items = items.filter_map(|(start, found)| self.code.get(start + found.len()..));
        items
            .filter_map(|item| {
                let name = item.trim_start().strip_prefix("mod ")?;
                let (name, rest) = name.split_at_checked(name.find([';', '{'])?)?;
                rest.starts_with(';').then_some(name.trim())
            })
            .collect()
    }
}

const TEST_ONLY: &str = "#[cfg(test)]";

/// Where an item ends: at its closing brace, or at a semicolon that comes before any brace.
fn item_end(item: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in item.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && matches!(c, ';' | '}') {
            return at + 1;
        }
    }
    item.len()
}

/// The words of a text that could be names or keywords.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_name(c)).filter(|word| !word.is_empty())
}

fn is_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The kind and length of the first piece of `rest`, which is not empty.
fn next(rest: &str) -> (Kind, usize) {
    if rest.starts_with("//") {
        return (Kind::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (Kind::Comment, block_comment(rest));
    }
    let word = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
    let (prefix, after) = rest.split_at_checked(word).unwrap_or((rest, ""));
    if matches!(prefix, "r" | "br" | "cr")
        && let Some(length) = raw_string(after)
    {
        return (Kind::Quoted, word + length);
    }
    if matches!(prefix, "" | "b" | "c") && after.starts_with('"') {
        return (Kind::Quoted, word + quoted(after, '"'));
    }
    if matches!(prefix, "" | "b") && is_character(after) {
        return (Kind::Quoted, word + quoted(after, '\''));
    }
    let single = rest.chars().next().map_or(1, char::len_utf8);
    (Kind::Code, word.max(single))
}

/// The length of a comment with comments inside it.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(here) = rest.get(at..).filter(|here| !here.is_empty()) {
        if here.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// The length of what follows the `r` of a raw string; `None` if this is a raw name instead.
fn raw_string(after: &str) -> Option<usize> {
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after.get(hashes..)?.strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(body.find(&end).map_or(after.len(), |at| hashes + 1 + at + end.len()))
}

/// The length of a string or character, up to the first quote without a backslash.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    rest.len()
}

/// Whether a quote begins a character and not a lifetime or label.
fn is_character(rest: &str) -> bool {
    let mut chars = rest.chars();
    chars.next() == Some('\'') && (chars.next() == Some('\\') || chars.next() == Some('\''))
}

#[cfg(test)]
mod tests {
    use super::{Views, words};

    #[track_caller]
    fn check(source: &str, code: &[&str], comments: &[&str]) {
        let views = Views::of(source);
        assert_eq!(words(&views.code).collect::<Vec<_>>(), code);
        assert_eq!(words(&views.comments).collect::<Vec<_>>(), comments);
        assert_eq!(views.code.lines().count(), source.lines().count());
        assert_eq!(views.comments.lines().count(), source.lines().count());
    }

    #[test]
    fn comments_are_no_code() {
        check("a // b\nc", &["a", "c"], &["b"]);
        check("/// b\na", &["a"], &["b"]);
        check("a /* b /* c */ d */ e", &["a", "e"], &["b", "c", "d"]);
        check("a /* b", &["a"], &["b"]);
    }

    #[test]
    fn strings_are_neither() {
        check(r#"a "b // c" d"#, &["a", "d"], &[]);
        check(r#"a "b \" c" d // e"#, &["a", "d"], &["e"]);
        check("a r#\"b \" // c\"# d", &["a", "d"], &[]);
        check("a br\"b\\\" c", &["a", "c"], &[]);
        check("a b\"b\" c\"c\" d", &["a", "d"], &[]);
        check("a \"b\nc\" d", &["a", "d"], &[]);
        check("a \"b", &["a"], &[]);
    }

    #[test]
    fn names_that_look_like_prefixes_are_names() {
        check("r#unsafe b", &["r", "unsafe", "b"], &[]);
        check("car\"x\" y", &["car", "y"], &[]);
        check("b c r br", &["b", "c", "r", "br"], &[]);
    }

    #[test]
    fn characters_are_told_from_lifetimes() {
        check("a '\"' b \"c\" d", &["a", "b", "d"], &[]);
        check("&'a str '\\'' b'x' c", &["a", "str", "c"], &[]);
        check("'ä' b", &["b"], &[]);
        check("<'a, 'b> '/' '/' c // d", &["a", "b", "c"], &["d"]);
    }

    #[test]
    fn test_items_are_found_whole() {
        let source =
            "a\n#[cfg(test)]\nmod tests {\n  fn b() { \"}\" }\n}\nc\n#[cfg(test)]\nuse d;\ne";
        assert_eq!(Views::of(source).test_lines(), [1, 2, 3, 4, 6, 7]);
        assert_eq!(Views::of("#![cfg(test)]\na").test_lines(), [0, 1]);
        assert_eq!(Views::of("// #[cfg(test)]\nmod a {}").test_lines(), [0_usize; 0]);
    }

    #[test]
    fn modules_of_tests_in_files_are_named() {
        let views = Views::of("#[cfg(test)]\nmod proof;\n#[cfg(test)]\nmod tests {}\nmod c;");
        assert_eq!(views.test_modules(), ["proof"]);
    }
}
