//! One part of a pattern.

use super::{Key, PatternError};
use crate::files::fold::{fold_char, is_short_of};

/// What a component is compared with. Everything in it is folded.
///
/// Invariant: `Ending` holds what follows the `*`, and is not empty; `Tokens` has no two
/// neighbours that are texts or stars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Glob {
    /// Every component.
    Any,
    /// This one.
    Literal(Box<[u8]>),
    /// Those that end with this.
    Ending(Box<[u8]>),
    /// Those that these tokens describe.
    Tokens(Vec<Token>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Text(Box<[u8]>),
    One,
    Many,
    Range { negated: bool, ranges: Vec<(char, char)> },
}

impl Glob {
    /// Reads a part of the pattern `whole`.
    pub(super) fn parse(word: &str, whole: &str) -> Result<Self, PatternError> {
        let tokens = tokens(word, whole)?;
        let never = || PatternError::Never { pattern: whole.into(), part: word.into() };
        match tokens.last() {
            // Folding drops dots and blanks at the end of every name.
            Some(Token::Text(text)) if matches!(text.last(), Some(b'.' | b' ')) => {
                return Err(never());
            }
            None => return Err(never()),
            Some(_) => {}
        }
        Ok(match tokens.as_slice() {
            [Token::Many] => Self::Any,
            [Token::Text(text)] => Self::Literal(text.clone()),
            [Token::Many, Token::Text(text)] => Self::Ending(text.clone()),
            _ => Self::Tokens(tokens),
        })
    }

    /// Whether a folded component matches.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Literal(text) => **text == *name || is_short_of(name, text),
            Self::Ending(text) => name.ends_with(text) || is_short_of(name, text),
            Self::Tokens(tokens) => all_match(tokens, name),
        }
    }

    /// What is in every component that matches. Second names aside.
    pub(super) fn key(&self) -> Key<'_> {
        match self {
            Self::Any => Key::None,
            Self::Literal(text) => Key::Name(text),
            Self::Ending(text) => {
                let dot = text.iter().rposition(|byte| *byte == b'.');
                dot.and_then(|at| text.get(at + 1..)).map_or(Key::None, Key::Ending)
            }
            Self::Tokens(tokens) => match tokens.first() {
                Some(Token::Text(text)) => Key::Start(text),
                _ => Key::None,
            },
        }
    }

    /// A component that matches.
    pub(super) fn example(&self) -> Vec<u8> {
        match self {
            Self::Any => b"x".to_vec(),
            Self::Literal(text) => text.to_vec(),
            Self::Ending(text) => [b"x", &**text].concat(),
            Self::Tokens(tokens) => {
                let of = |token: &Token| match token {
                    Token::Text(text) => text.to_vec(),
                    Token::One | Token::Range { negated: true, .. } => b"x".to_vec(),
                    Token::Many => Vec::new(),
                    Token::Range { ranges, .. } => {
                        let first = ranges.first().map_or('x', |(first, _)| *first);
                        first.to_string().into_bytes()
                    }
                };
                tokens.iter().flat_map(of).collect()
            }
        }
    }
}

fn tokens(word: &str, whole: &str) -> Result<Vec<Token>, PatternError> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut text = Vec::new();
    let mut rest = word.chars();
    while let Some(c) = rest.next() {
        let token = match c {
            '*' if tokens.last() == Some(&Token::Many) && text.is_empty() => {
                return Err(PatternError::Stars { pattern: whole.into() });
            }
            '*' => Token::Many,
            '?' => Token::One,
            '[' => range(&mut rest).ok_or_else(|| PatternError::Range { pattern: whole.into() })?,
            '\\' => {
                let escaped = rest.next();
                let c = escaped.ok_or_else(|| PatternError::Escape { pattern: whole.into() })?;
                fold_char(c, &mut text);
                continue;
            }
            c => {
                fold_char(c, &mut text);
                continue;
            }
        };
        if !text.is_empty() {
            tokens.push(Token::Text(std::mem::take(&mut text).into()));
        }
        tokens.push(token);
    }
    if !text.is_empty() {
        tokens.push(Token::Text(text.into()));
    }
    Ok(tokens)
}

/// Reads what follows a `[`.
fn range(rest: &mut std::str::Chars<'_>) -> Option<Token> {
    let mut ahead = rest.clone();
    let negated = ahead.next() == Some('!');
    if negated {
        rest.next();
    }
    let mut ranges = Vec::new();
    loop {
        let first = match rest.next()? {
            ']' => break,
            '\\' => rest.next()?,
            c => c,
        };
        let mut ahead = rest.clone();
        let last = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) if last != ']' => {
                *rest = ahead;
                if last == '\\' { rest.next()? } else { last }
            }
            (_, _) => first,
        };
        if first > last {
            return None;
        }
        ranges.push((first, last));
    }
    (!ranges.is_empty()).then_some(Token::Range { negated, ranges })
}

/// Compares with the last star as the only one that gives way; earlier ones never need to.
fn all_match(tokens: &[Token], name: &[u8]) -> bool {
    let (mut at, mut rest) = (0, name);
    let mut star: Option<(usize, &[u8])> = None;
    loop {
        let step = match tokens.get(at) {
            Some(Token::Many) => {
                star = Some((at + 1, rest));
                at += 1;
                continue;
            }
            Some(token) => after(token, rest),
            None if rest.is_empty() => return true,
            None => None,
        };
        if let Some(left) = step {
            (at, rest) = (at + 1, left);
            continue;
        }
        let Some((again, from)) = star else { return false };
        let Some((_, left)) = first(from) else { return false };
        star = Some((again, left));
        (at, rest) = (again, left);
    }
}

/// What is left of a name after a token, if it matches.
fn after<'a>(token: &Token, name: &'a [u8]) -> Option<&'a [u8]> {
    match token {
        Token::Text(text) => name.strip_prefix(&**text),
        Token::One => first(name).map(|(_, rest)| rest),
        Token::Many => None,
        Token::Range { negated, ranges } => {
            let (c, rest) = first(name)?;
            let within = |c: char| ranges.iter().any(|(first, last)| (*first..=*last).contains(&c));
            let found = c.is_some_and(|c| within(c) || within(c.to_ascii_uppercase()));
            (found != *negated).then_some(rest)
        }
    }
}

/// The first character and what follows. Bytes that are no text count one by one.
fn first(name: &[u8]) -> Option<(Option<char>, &[u8])> {
    let (byte, rest) = name.split_first()?;
    if byte.is_ascii() {
        return Some((Some(char::from(*byte)), rest));
    }
    let longest = name.len().min(4);
    let found = (2..=longest).find_map(|length| {
        let (start, rest) = name.split_at_checked(length)?;
        let c = str::from_utf8(start).ok()?.chars().next()?;
        Some((Some(c), rest))
    });
    Some(found.unwrap_or((None, rest)))
}
