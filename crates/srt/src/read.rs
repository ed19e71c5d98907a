//! Reading JSON with the key in hand: what is wrong is told by the key it is at, all of it at once.

use serde_json::{Map, Value};
use std::fmt;
use std::ops::RangeInclusive;

/// One thing that is wrong with settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The key, as `network.allowedDomains.0`.
    pub key: String,
    /// What is wrong with it.
    pub sentence: String,
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            return f.write_str(&self.sentence);
        }
        write!(f, "{}: {}", self.key, self.sentence)
    }
}

/// Why settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .issues.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Wrong {
    /// Everything that is wrong with them; never nothing.
    pub issues: Vec<Issue>,
}

/// Whether keys that are not known are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strange {
    /// They are told.
    Told,
    /// They are refused.
    Refused,
}

/// An object, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct At<'a> {
    key: String,
    map: &'a Map<String, Value>,
}

impl At<'_> {
    /// The key of something in it.
    pub(crate) fn key(&self, name: &str) -> String {
        if self.key.is_empty() { name.to_owned() } else { format!("{}.{name}", self.key) }
    }

    /// Those of some keys that are in it, in full, with what is written there.
    pub(crate) fn written(&self, names: &[&str]) -> Vec<(String, String)> {
        let there = names.iter().filter_map(|name| Some((name, self.map.get(*name)?)));
        there.map(|(name, value)| (self.key(name), value.to_string())).collect()
    }

    /// Whether something is in it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }
}

/// What was found on the way.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub(crate) issues: Vec<Issue>,
    pub(crate) unknown: Vec<String>,
}

impl Reader {
    /// Something is wrong.
    pub(crate) fn wrong(&mut self, key: impl Into<String>, sentence: impl Into<String>) {
        self.issues.push(Issue { key: key.into(), sentence: sentence.into() });
    }

    /// The whole of the settings.
    pub(crate) fn whole<'a>(&mut self, value: &'a Value) -> Option<At<'a>> {
        let Value::Object(map) = value else {
            self.wrong("", "settings are a JSON object");
            return None;
        };
        Some(At { key: String::new(), map })
    }

    /// Tells or refuses the keys that are not known.
    pub(crate) fn known(&mut self, at: &At<'_>, known: &[&str], strange: Strange) {
        for name in at.map.keys().filter(|name| !known.contains(&name.as_str())) {
            match strange {
                Strange::Told => self.unknown.push(at.key(name)),
                Strange::Refused => self.wrong(at.key(name), "there is no such key"),
            }
        }
    }

    /// An object.
    pub(crate) fn object<'a>(&mut self, at: &At<'a>, name: &str) -> Option<At<'a>> {
        match at.map.get(name)? {
            Value::Object(map) => Some(At { key: at.key(name), map }),
            _ => self.expected(at.key(name), "an object"),
        }
    }

    /// An object that must be there.
    pub(crate) fn required<'a>(&mut self, at: &At<'a>, name: &str) -> Option<At<'a>> {
        if !at.has(name) {
            self.wrong(at.key(name), "it is required");
        }
        self.object(at, name)
    }

    /// Yes or no.
    pub(crate) fn flag(&mut self, at: &At<'_>, name: &str) -> Option<bool> {
        match at.map.get(name)? {
            Value::Bool(flag) => Some(*flag),
            _ => self.expected(at.key(name), "true or false"),
        }
    }

    /// A whole number of a range.
    pub(crate) fn number(
        &mut self,
        at: &At<'_>,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let number = at.map.get(name)?.as_u64().filter(|number| range.contains(number));
        let (from, to) = (range.start(), range.end());
        number.or_else(|| self.expected(at.key(name), &format!("a number from {from} to {to}")))
    }

    /// A text that is not empty.
    pub(crate) fn text(&mut self, at: &At<'_>, name: &str) -> Option<String> {
        match at.map.get(name)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            _ => self.expected(at.key(name), "a text that is not empty"),
        }
    }

    /// One of some words.
    pub(crate) fn word(&mut self, at: &At<'_>, name: &str, words: &[&str]) -> Option<String> {
        let value = at.map.get(name)?;
        let word = value.as_str().filter(|word| words.contains(word));
        let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        word.map(ToOwned::to_owned).or_else(|| self.expected(at.key(name), &quoted.join(" or ")))
    }

    /// The members of a list, each with its key. A list that must be there and is not is wrong.
    pub(crate) fn list<'a>(
        &mut self,
        at: &At<'a>,
        name: &str,
        need: Need,
    ) -> Vec<(String, &'a Value)> {
        match (at.map.get(name), need) {
            (Some(Value::Array(list)), _) => {
                let key = |number: usize| format!("{}.{number}", at.key(name));
                list.iter().enumerate().map(|(number, value)| (key(number), value)).collect()
            }
            (None, Need::Optional) => Vec::new(),
            (None, Need::Required) => {
                self.wrong(at.key(name), "it is required");
                Vec::new()
            }
            (Some(_), _) => {
                self.wrong(at.key(name), "a list is expected");
                Vec::new()
            }
        }
    }

    /// The members of a list of texts, each with its key.
    pub(crate) fn texts(&mut self, at: &At<'_>, name: &str, need: Need) -> Vec<(String, String)> {
        let mut texts = Vec::new();
        for (key, value) in self.list(at, name, need) {
            match value {
                Value::String(text) if !text.is_empty() => texts.push((key, text.clone())),
                _ => self.wrong(key, "a text that is not empty is expected"),
            }
        }
        texts
    }

    /// The members of a list of objects.
    pub(crate) fn objects<'a>(&mut self, at: &At<'a>, name: &str) -> Vec<At<'a>> {
        let mut objects = Vec::new();
        for (key, value) in self.list(at, name, Need::Optional) {
            match value {
                Value::Object(map) => objects.push(At { key, map }),
                _ => self.wrong(key, "an object is expected"),
            }
        }
        objects
    }

    /// An object of texts: names and values.
    pub(crate) fn pairs(&mut self, at: &At<'_>, name: &str) -> Vec<(String, String)> {
        let Some(object) = self.object(at, name) else { return Vec::new() };
        let mut pairs = Vec::new();
        for (name, value) in object.map {
            match value {
                Value::String(text) if !text.is_empty() => pairs.push((name.clone(), text.clone())),
                _ => self.wrong(object.key(name), "a text that is not empty is expected"),
            }
        }
        pairs
    }

    /// An object that is a member of a list.
    pub(crate) fn member(key: String, value: &Value) -> Option<At<'_>> {
        match value {
            Value::Object(map) => Some(At { key, map }),
            _ => None,
        }
    }

    fn expected<T>(&mut self, key: String, what: &str) -> Option<T> {
        self.wrong(key, format!("{what} is expected"));
        None
    }
}

/// Whether something must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It must.
    Required,
    /// It may be left out.
    Optional,
}
