//! Searching files, in the session, which sees what it was given and nothing else.

use super::{About, Answer, Effect, Entry, World};
use crate::call::Call;
use crate::content::{refused, script};
use crate::inside::{Work, run};
use crate::refusal::Refusal;
use crate::spot::{self, Named, top};
use crate::text::{fit, line, shown};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// Most matches in one answer.
const MAX_MATCHES: usize = 500;
/// Matches without a number of one's own.
const DEFAULT_MATCHES: usize = 100;
/// Longest line of a match, in bytes.
const MAX_LINE: usize = 300;
/// Most bytes that are read of what was found.
const MAX_FOUND: usize = 1024 * 1024;
/// Time after which a search is ended.
const TIME: &str = "120s";

/// Searches; after the place and the number of matches come grep's own words.
const SEARCH: &str = r#"
place=$1 most=$2
shift 2
[ "$(realpath -e -- "$place" 2>/dev/null)" = "$place" ] ||
    { [ -e "$place" ] || [ -L "$place" ] || exit 40; exit 41; }
command -v grep >/dev/null || exit 47
{ grep "$@" -- "$place"; [ $? -lt 2 ] || echo failed >&2; } | head -n "$most"
"#;

pub(super) fn tools() -> Vec<Entry> {
    let search = About {
        name: "search_files",
        title: "Search files",
        description: "Searches the lines of text files in the session's folders, or below `path`, \
            for a text, or with `regex` for a regular expression (POSIX extended, as of `grep \
            -E`). Binary files, links and `.git` folders are left out. Lines are cut at 300 bytes; \
            at most `limit` (100) matches come back.",
        effect: Effect::Reads,
        world: World::Closed,
    };
    vec![Entry::new(&search, search_files)]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of JSON with its own meaning")]
struct Search {
    /// The id of the session; it may be left out if exactly one was made over this connection.
    #[serde(default)]
    session: Option<String>,
    /// What is looked for.
    #[schemars(length(min = 1, max = 1000))]
    query: String,
    /// Whether it is a regular expression.
    #[serde(default)]
    regex: bool,
    /// Whether small and capital letters are the same.
    #[serde(default)]
    ignore_case: bool,
    /// The folder or file to search, as commands in the session name it; all folders without it.
    #[serde(default)]
    #[schemars(length(min = 1, max = 4096))]
    path: Option<String>,
    /// Only files with such a name, e.g. `*.rs`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 255))]
    glob: Option<String>,
    /// Most matches.
    #[serde(default)]
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

/// A line that matches.
#[derive(Debug, Serialize, JsonSchema, PartialEq, Eq)]
struct Match {
    /// The file, as the session sees it.
    path: String,
    /// The number of the line.
    line: u64,
    /// The line.
    text: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Found {
    /// The matches.
    matches: Vec<Match>,
    /// Whether there are more than are listed.
    more: bool,
}

impl Answer for Found {
    fn text(&self) -> Option<String> {
        let mut text = String::new();
        for Match { path, line, text: found } in &self.matches {
            // Writing to a string succeeds.
            cowork_sys::ignore(writeln!(text, "{path}:{line}:{found}"));
        }
        if self.matches.is_empty() {
            text.push_str("nothing was found\n");
        }
        if self.more {
            text.push_str("[there are more matches: narrow the search]\n");
        }
        Some(text)
    }
}

fn search_files(call: &Call, wanted: &Search) -> Result<Found, Refusal> {
    let limit = wanted.limit.unwrap_or(DEFAULT_MATCHES);
    if wanted.query.is_empty() || limit == 0 || limit > MAX_MATCHES || wanted.query.contains('\0') {
        let sentence = format!("`query` must not be empty, and `limit` is 1 to {MAX_MATCHES}");
        return Err(Refusal::new("bad-arguments", sentence));
    }
    let mut client = call.client()?;
    let session = call.session(&mut client, wanted.session.as_deref())?;
    let place = match spot::find(&session, wanted.path.as_deref().unwrap_or("mnt"))? {
        Named::Top => top(&session),
        Named::Spot(spot) => spot.inside,
    };
    let most = (limit + 1).to_string();
    let kind = if wanted.regex { "-E" } else { "-F" };
    let case = if wanted.ignore_case { "-i" } else { "--no-ignore-case" };
    let glob = format!("--include={}", wanted.glob.as_deref().unwrap_or("*"));
    let mut words = vec!["search_files", &place, &most, "-rnIHZs", "-D", "skip", kind, case];
    words.extend(["--exclude-dir=.git", &glob, "-e", &wanted.query]);
    let mut command = script(SEARCH, words);
    command.timeout = Some(TIME.to_owned());
    let ran = run(call, &mut client, &session, Work { command, stdin: None, keep: MAX_FOUND })?;
    let said = ran.stderr.whole().unwrap_or_default();
    let (bytes, missing, _) = ran.stdout.parts();
    match ran.command.code {
        Some(47) => return Err(Refusal::new("no-grep", "the session has no program `grep`")),
        Some(0) => {}
        code => {
            let over = || Refusal::new("failed", "the search did not end in time");
            return Err(code.and_then(refused).unwrap_or_else(over));
        }
    }
    let mut matches = parse(&bytes);
    if matches.is_empty() && !said.is_empty() {
        let said = line(&shown(&said), 300);
        return Err(Refusal::new("bad-regex", format!("the search cannot be done: {said}")));
    }
    let more = matches.len() > limit || missing > 0;
    matches.truncate(limit);
    let (matches, cut) = fit(matches, |found| found.path.len() + found.text.len() + 50);
    Ok(Found { matches, more: more || cut })
}

/// What grep found: each name, NUL, the line's number, a colon, the line.
fn parse(bytes: &[u8]) -> Vec<Match> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some((name, behind)) = split(rest, 0) {
        let (record, next) = split(behind, b'\n').unwrap_or((behind, &[]));
        if let Some((number, text)) = split(record, b':') {
            let number = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
            if let Some(number) = number {
                let text = line(&String::from_utf8_lossy(text), MAX_LINE);
                found.push(Match { path: shown(name), line: number, text });
            }
        }
        rest = next;
    }
    found
}

fn split(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == at)?;
    Some((bytes.get(..end)?, bytes.get(end + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::{Match, parse};

    #[test]
    fn names_may_have_any_byte() {
        let found = parse(b"/a\nb:c\x0012:one: two\n/d\x003:\x1b[2J\n/cut\x0044");
        let expected = [("/a\nb:c", 12, "one: two"), ("/d", 3, "\\u{1b}[2J")]
            .map(|(path, line, text)| Match { path: path.into(), line, text: text.into() });
        assert_eq!(found, expected);
    }
}
