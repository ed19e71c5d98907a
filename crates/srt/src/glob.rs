//! Patterns of paths, as srt writes them.
//!
//! `*` stands for any characters but `/`, `?` for one of them, `**` for any characters, `**/` for
//! any folders or none, and `[a-z]` for one character of a range. There is no way to write "none
//! of"; a `[` without a `]` is itself.
//!
//! A pattern is followed name by name, so that a walk goes only where something could match.

/// The part of a pattern that is not plain.
///
/// Invariant: it is matched with paths below the folder that stands before it, without a slash at
/// either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    tokens: Vec<Token>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// This character.
    Plain(char),
    /// One character, no slash.
    One,
    /// One character of these ranges.
    Class(Vec<(char, char)>),
    /// Any characters, no slash.
    Any,
    /// Any characters.
    Deep,
    /// Any folders, or none. [`Token::Within`] follows it.
    Folders,
    /// Within a folder that [`Token::Folders`] stands for: only a slash leads out.
    Within,
}

/// How far a pattern was followed, to the end of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    at: Vec<usize>,
}

/// What a name does to a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The path up to here matches.
    Matches,
    /// Something below could match.
    Further(Followed),
    /// Nothing here and below matches.
    Nothing,
}

impl Glob {
    /// Reads a pattern, without a slash at either end.
    pub fn new(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (token, after) = next(first, rest);
            let within = (token == Token::Folders).then_some(Token::Within);
            tokens.push(token);
            tokens.extend(within);
            rest = after;
        }
        Self { tokens }
    }

    /// Before the first name.
    pub fn start(&self) -> Followed {
        Followed { at: self.closure(vec![0]) }
    }

    /// Goes on by a name.
    pub fn follow(&self, from: &Followed, name: &str) -> Step {
        let Some(at) = self.through(from.at.clone(), name.chars()) else { return Step::Nothing };
        if at.contains(&self.tokens.len()) {
            return Step::Matches;
        }
        match self.through(at, ['/']) {
            Some(at) => Step::Further(Followed { at }),
            None => Step::Nothing,
        }
    }

    /// What is left of the pattern, from each place where it can go on, as the rules about names
    /// write it. `None` where `**` stands beside other characters, which they cannot say.
    pub fn rest(&self, from: &Followed) -> Option<Vec<String>> {
        // What a star stands before is there with the star.
        let within = |at: usize| match self.tokens.get(at) {
            Some(Token::Any | Token::Deep | Token::Within) => at + 1..at + 2,
            Some(Token::Folders) => at + 1..at + 3,
            _ => at..at,
        };
        let told = |at: &&usize| {
            **at < self.tokens.len() && !from.at.iter().any(|other| within(*other).contains(at))
        };
        from.at.iter().filter(told).map(|at| written(self.tokens.get(*at..)?)).collect()
    }

    fn through(&self, at: Vec<usize>, text: impl IntoIterator<Item = char>) -> Option<Vec<usize>> {
        let mut at = at;
        for c in text {
            let next = at.iter().flat_map(|place| self.after(*place, c)).collect();
            at = self.closure(next);
        }
        (!at.is_empty()).then_some(at)
    }

    /// Where a character leads to from a place.
    fn after(&self, place: usize, c: char) -> Vec<usize> {
        let next = place + 1;
        let Some(token) = self.tokens.get(place) else { return Vec::new() };
        match token {
            Token::Plain(own) if *own == c => vec![next],
            Token::One if c != '/' => vec![next],
            Token::Class(ranges) if ranges.iter().any(|(a, b)| (*a..=*b).contains(&c)) => {
                vec![next]
            }
            Token::Any if c != '/' => vec![place],
            Token::Within if c == '/' => vec![place, next],
            Token::Deep | Token::Within => vec![place],
            Token::Plain(_) | Token::One | Token::Class(_) | Token::Any | Token::Folders => {
                Vec::new()
            }
        }
    }

    /// Adds the places that are reached without a character.
    fn closure(&self, places: Vec<usize>) -> Vec<usize> {
        let mut all: Vec<usize> = Vec::new();
        let mut todo = places;
        while let Some(place) = todo.pop() {
            if all.contains(&place) {
                continue;
            }
            all.push(place);
            match self.tokens.get(place) {
                Some(Token::Any | Token::Deep) => todo.push(place + 1),
                Some(Token::Folders) => todo.extend([place + 1, place + 2]),
                _ => {}
            }
        }
        all.sort_unstable();
        all
    }
}

fn next(first: char, rest: &str) -> (Token, &str) {
    let after = |count: usize| rest.get(count..).unwrap_or_default();
    if rest.starts_with("**/") {
        return (Token::Folders, after(3));
    }
    if rest.starts_with("**") {
        return (Token::Deep, after(2));
    }
    match first {
        '*' => (Token::Any, after(1)),
        '?' => (Token::One, after(1)),
        '[' => match after(1).split_once(']') {
            Some((inner, behind)) if !inner.is_empty() => (Token::Class(ranges(inner)), behind),
            _ => (Token::Plain('['), after(1)),
        },
        other => (Token::Plain(other), after(other.len_utf8())),
    }
}

fn ranges(inner: &str) -> Vec<(char, char)> {
    let mut ranges = Vec::new();
    let mut rest = inner.chars();
    while let Some(from) = rest.next() {
        let mut ahead = rest.clone();
        match (ahead.next(), ahead.next()) {
            (Some('-'), Some(to)) if from <= to => {
                ranges.push((from, to));
                rest = ahead;
            }
            _ => ranges.push((from, from)),
        }
    }
    ranges
}

/// As the rules about names write what is left, without a slash in front.
fn written(tokens: &[Token]) -> Option<String> {
    let mut text = String::new();
    let mut rest = tokens;
    while let Some((token, after)) = rest.split_first() {
        let begins = text.is_empty() || text.ends_with('/');
        rest = after;
        match token {
            Token::Plain('/') => text.push('/'),
            Token::Plain(c) => escape(*c, &mut text),
            Token::One => text.push('?'),
            Token::Any => text.push('*'),
            Token::Class(ranges) => {
                text.push('[');
                for (from, to) in ranges {
                    text.extend(['\\', *from]);
                    if from != to {
                        text.extend(['-', *to]);
                    }
                }
                text.push(']');
            }
            Token::Folders if begins => {
                text.push_str("**/");
                rest = after.get(1..).unwrap_or_default();
            }
            Token::Within if begins => text.push_str("**/"),
            Token::Deep if begins && matches!(after.first(), None | Some(Token::Plain('/'))) => {
                text.push_str("**");
            }
            Token::Folders | Token::Within | Token::Deep => return None,
        }
    }
    Some(text)
}

/// Writes a character so that rules about names take it for itself.
pub(crate) fn escape(c: char, text: &mut String) {
    if matches!(c, '*' | '?' | '[' | ']' | '\\' | '!') {
        text.push('\\');
    }
    text.push(c);
}

#[cfg(test)]
mod tests {
    use super::{Followed, Glob, Step};
    use cowork_api::files::{NamePolicy, NameRule, Rules};
    use cowork_policy::files::{Judge, Pattern};
    use proptest::prelude::*;

    /// Whether the path or something above it matches.
    fn covers(pattern: &str, path: &str) -> bool {
        let glob = Glob::new(pattern);
        let mut at = glob.start();
        for name in path.split('/') {
            match glob.follow(&at, name) {
                Step::Matches => return true,
                Step::Further(next) => at = next,
                Step::Nothing => return false,
            }
        }
        false
    }

    #[test]
    fn patterns_match_as_those_of_srt() {
        for (pattern, path, expected) in [
            ("*.env", "a.env", true),
            ("*.env", ".env", true),
            ("*.env", "a/b.env", false),
            ("*.env", "a.envx", false),
            ("**/*.env", "b.env", true),
            ("**/*.env", "a/b.env", true),
            ("**/*.env", "a/b/c.env", true),
            ("**/*.env", "a/b.env/c", true),
            ("**/.env", "x.env", false),
            ("**/secrets", "a/secrets/key", true),
            ("**/secrets", "a/xsecrets", false),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a/**/b", "a/xb", false),
            ("a/**", "a/x", true),
            ("a/**", "a", false),
            ("file?.txt", "file1.txt", true),
            ("file?.txt", "file10.txt", false),
            ("file[0-9].txt", "file3.txt", true),
            ("file[0-9].txt", "filex.txt", false),
            ("file[!a].txt", "file!.txt", true),
            ("file[!a].txt", "fileb.txt", false),
            ("a[b", "a[b", true),
            ("a]b", "a]b", true),
            ("*", "anything/below", true),
            ("?", "é", true),
            ("a**b", "ax/yb", true),
        ] {
            assert_eq!(covers(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_walk_goes_only_where_something_could_match() {
        let glob = Glob::new("src/*/keys/*.pem");
        let step = |at: &Followed, name| glob.follow(at, name);
        assert_eq!(step(&glob.start(), "docs"), Step::Nothing);
        let Step::Further(src) = step(&glob.start(), "src") else { panic!("it could match") };
        let Step::Further(any) = step(&src, "any") else { panic!("it could match") };
        assert_eq!(step(&any, "other"), Step::Nothing);
    }

    #[test]
    fn what_is_left_is_a_pattern_of_names() {
        let left = |pattern: &str, root: &str| {
            let glob = Glob::new(pattern);
            let mut at = glob.start();
            for name in root.split('/').filter(|name| !name.is_empty()) {
                match glob.follow(&at, name) {
                    Step::Further(next) => at = next,
                    Step::Matches | Step::Nothing => return Some(Vec::new()),
                }
            }
            glob.rest(&at)
        };
        for (pattern, root, expected) in [
            ("*.env", "", &["*.env"][..]),
            ("a/*.env", "a", &["*.env"]),
            ("a/*.env", "b", &[]),
            ("**/*.env", "a/b", &["**/*.env"]),
            ("a/**/b", "a", &["**/b"]),
            ("a/**", "a", &["**"]),
            ("x[a-c!]?", "", &["x[\\a-c\\!]?"]),
            ("a/b[c", "a", &["b\\[c"]),
        ] {
            let left = left(pattern, root).unwrap();
            assert_eq!(left, expected, "{pattern} at {root}");
            for text in left {
                assert!(format!("/{text}").parse::<Pattern>().is_ok(), "{text}");
            }
        }
        assert_eq!(left("a**b", ""), None);
    }

    /// The regular expression that a pattern stands for.
    fn expression(pattern: &str) -> regex::Regex {
        let mut text = String::from("^(?s:");
        let mut rest = pattern;
        while let Some(c) = rest.chars().next() {
            let class = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
            let (piece, after) = match class.filter(|(inner, _)| !inner.is_empty()) {
                _ if rest.starts_with("**/") => ("(?:.*/)?".to_owned(), rest.split_at(3).1),
                _ if rest.starts_with("**") => (".*".to_owned(), rest.split_at(2).1),
                Some((inner, after)) => {
                    let members = inner.chars().map(|c| format!("\\x{{{:x}}}", u32::from(c)));
                    (format!("[{}]", members.collect::<String>()), after)
                }
                None if c == '*' => ("[^/]*".to_owned(), rest.split_at(1).1),
                None if c == '?' => ("[^/]".to_owned(), rest.split_at(1).1),
                None => (regex::escape(&c.to_string()), rest.split_at(c.len_utf8()).1),
            };
            text.push_str(&piece);
            rest = after;
        }
        regex::Regex::new(&(text + ")$")).unwrap()
    }

    proptest! {
        /// Following a pattern name by name finds what its regular expression matches, and nothing
        /// else; a folder that is not entered has nothing below it that matches.
        #[test]
        fn a_pattern_is_its_regular_expression(
            pattern in "[ab*?\\[\\]]{1,4}(/[ab*?\\[\\]]{1,4}){0,3}",
            path in "[ab]{1,3}(/[ab]{1,3}){0,3}",
        ) {
            let expression = expression(&pattern);
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            let expected = ends.into_iter().any(|end| expression.is_match(path.split_at(end).0));
            prop_assert_eq!(covers(&pattern, &path), expected, "{}", expression);
        }

        /// What a pattern leaves of a folder is never less than what it matches there.
        #[test]
        fn what_is_left_covers_what_matches(
            pattern in "([ab*?]{1,3}|\\*\\*)(/([ab*?]{1,3}|\\*\\*)){0,3}",
            root in "[ab]{1,2}(/[ab]{1,2}){0,1}",
            path in "[ab]{1,3}(/[ab]{1,3}){0,2}",
        ) {
            let glob = Glob::new(&pattern);
            let mut at = glob.start();
            for name in root.split('/') {
                match glob.follow(&at, name) {
                    Step::Further(next) => at = next,
                    Step::Matches => return Ok(()),
                    Step::Nothing => {
                        let whole = format!("{root}/{path}");
                        prop_assert!(!covers(&pattern, &whole));
                        return Ok(());
                    }
                }
            }
            let Some(left) = glob.rest(&at) else { return Ok(()) };
            let names = left.iter().map(|text| NameRule {
                pattern: format!("/{text}"),
                policy: NamePolicy::Deny,
                reason: String::new(),
            });
            let rules = Rules { names: names.collect(), ..Rules::default() };
            let denied = Judge::new(&rules).name(path.as_bytes()).policy == NamePolicy::Deny;
            let matches = covers(&pattern, &format!("{root}/{path}"));
            prop_assert!(denied || !matches, "{:?}", left);
            let readable = left.iter().all(|text| format!("/{text}").parse::<Pattern>().is_ok());
            prop_assert!(readable, "{:?}", left);
        }
    }
}
