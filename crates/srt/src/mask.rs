//! Texts whose secret parts commands do not know.

use crate::settings::Masked;
use regex::Regex;
use std::ops::Range;

/// Refuses what is no regular expression with a group.
pub(crate) fn check(extract: &str) -> Result<(), String> {
    match Regex::new(extract) {
        Ok(regex) if regex.captures_len() > 1 => Ok(()),
        Ok(_) => {
            Err("it has no group: the first one is what is masked, as in `token: (.+)`".into())
        }
        Err(error) => {
            let error = error.to_string();
            let last = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Err(format!("it is no regular expression that cowork understands: {last}"))
        }
    }
}

/// The parts of a text that are secret, in their order; none where nothing matches.
pub fn secrets(text: &str, masked: &Masked) -> Vec<Range<usize>> {
    let Some(extract) = masked.extract.as_deref().and_then(|extract| Regex::new(extract).ok())
    else {
        let whole = 0..text.trim_end_matches(['\n', '\r']).len();
        return if whole.is_empty() { Vec::new() } else { vec![whole] };
    };
    let groups = extract.captures_iter(text).filter_map(|found| found.get(1));
    let mut parts: Vec<Range<usize>> =
        groups.map(|group| group.range()).filter(|range| !range.is_empty()).collect();
    if masked.everywhere {
        let values: Vec<&str> = parts.iter().filter_map(|part| text.get(part.clone())).collect();
        let more = values.iter().flat_map(|value| text.match_indices(value));
        parts.extend(more.map(|(at, value)| at..at + value.len()));
    }
    parts.sort_by_key(|part| (part.start, std::cmp::Reverse(part.end)));
    let mut end = 0;
    parts.retain(|part| {
        let apart = part.start >= end;
        end = end.max(part.end);
        apart
    });
    parts
}

/// The text with something else in place of its secret parts.
pub fn replaced<'a>(
    text: &str,
    parts: &[Range<usize>],
    mut instead: impl FnMut(&str) -> &'a str,
) -> String {
    let mut new = String::new();
    let mut from = 0;
    for part in parts {
        new.push_str(text.get(from..part.start).unwrap_or_default());
        new.push_str(instead(text.get(part.clone()).unwrap_or_default()));
        from = part.end;
    }
    new.push_str(text.get(from..).unwrap_or_default());
    new
}

#[cfg(test)]
mod tests {
    use super::{check, replaced, secrets};
    use crate::settings::Masked;

    fn masked(text: &str, how: &Masked) -> String {
        replaced(text, &secrets(text, how), |_| "XX")
    }

    #[test]
    fn the_whole_or_what_is_extracted_is_masked() {
        let whole = Masked::default();
        assert_eq!(masked("token\n", &whole), "XX\n");
        assert_eq!(masked("", &whole), "");
        let netrc = "machine a login me password p1\nmachine b password p2 # p1\n";
        let extract = Some(r"password (\S+)".to_owned());
        let once = Masked { extract, ..Masked::default() };
        assert_eq!(
            masked(netrc, &once),
            "machine a login me password XX\nmachine b password XX # p1\n"
        );
        let everywhere = Masked { everywhere: true, ..once };
        assert_eq!(
            masked(netrc, &everywhere),
            "machine a login me password XX\nmachine b password XX # XX\n"
        );
        assert_eq!(masked("nothing", &everywhere), "nothing");
    }

    #[test]
    fn an_expression_has_a_group() {
        assert_eq!(check(r"token:\s*(\S+)"), Ok(()));
        assert!(check("token").unwrap_err().contains("no group"));
        assert!(check("(?:token)").unwrap_err().contains("no group"));
        assert!(check("(").unwrap_err().contains("no regular expression"));
        assert!(check("(?=a)(b)").unwrap_err().contains("look-around"));
    }
}
