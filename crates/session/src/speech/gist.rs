//! What the use of a tool is about, in few words.

use super::words::{Words, clean};
use super::{MAX_NAME, MAX_TEXT};
use serde_json::Value;

/// Longest description of everything that a tool would be given.
const MAX_WHOLE: usize = 1600;
/// Longest description of what it is about.
const MAX_GIST: usize = 2000;

/// Fields that say what a use is about, the most telling first.
const TELLING: [&str; 9] = [
    "command",
    "file_path",
    "path",
    "notebook_path",
    "url",
    "query",
    "pattern",
    "skill",
    "description",
];

/// What a use of a tool is about.
pub fn gist(input: &Value) -> Words {
    match telling(input) {
        Some((_, text)) => clean(text, MAX_GIST),
        None => clean(&rest(input, None), MAX_GIST),
    }
}

/// Everything that a tool would be given: what it is about first, then the rest.
pub fn whole(input: &Value) -> Words {
    let Some((field, text)) = telling(input) else { return clean(&rest(input, None), MAX_WHOLE) };
    let rest = rest(input, Some(field));
    if rest.is_empty() {
        clean(text, MAX_WHOLE)
    } else {
        clean(&format!("{text}\n{rest}"), MAX_WHOLE)
    }
}

fn telling(input: &Value) -> Option<(&'static str, &str)> {
    TELLING.iter().find_map(|field| Some((*field, input.get(*field)?.as_str()?)))
}

/// The other fields, as far as they can be of interest.
fn rest(input: &Value, but: Option<&str>) -> String {
    let Some(fields) = input.as_object() else { return input.to_string() };
    let mut text = String::new();
    for (name, value) in fields.iter().filter(|(name, _)| Some(name.as_str()) != but) {
        if text.len() > MAX_TEXT {
            break;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        let name = clean(name, MAX_NAME).line();
        text.push_str(&name);
        text.push_str(": ");
        match value.as_str() {
            Some(value) => text.push_str(value),
            None => text.push_str(&value.to_string()),
        }
    }
    text
}
