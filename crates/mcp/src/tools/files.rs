//! Reading files.

use super::{About, Answer, Effect, Entry, World};
use crate::call::Call;
use crate::content;
use crate::refusal::Refusal;
use crate::spot;
use crate::text::{harmless, start};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// Most bytes of a file in one answer.
const MAX_READ: usize = 64 * 1024;

pub(super) fn tools() -> Vec<Entry> {
    let read = About {
        name: "read_file",
        title: "Read a file",
        description: "Reads a text file (UTF-8, up to 16 MiB) of a granted folder, outputs or \
            uploads. The path is the one that commands in the session use, e.g. \
            `mnt/NAME/src/main.rs`. At most 64 KiB come back at a time, in whole lines where \
            possible: `next_line` says where to go on. Characters that would act on a terminal are \
            written out, e.g. as `\\u{1b}`, and `exact` is false then. Links are not followed.",
        effect: Effect::Reads,
        world: World::Closed,
    };
    vec![Entry::new(&read, read_file)]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadFile {
    /// The id of the session; it may be left out if exactly one was made over this connection.
    #[serde(default)]
    session: Option<String>,
    /// The file, as commands in the session name it.
    #[schemars(length(min = 1, max = 4096))]
    path: String,
    /// The first line, counted from 1.
    #[serde(default)]
    #[schemars(range(min = 1))]
    line: Option<usize>,
    /// How many lines at most.
    #[serde(default)]
    #[schemars(range(min = 1))]
    lines: Option<usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Contents {
    /// The file, as the session sees it.
    path: String,
    /// The text.
    text: String,
    /// The number of its first line.
    line: usize,
    /// How many lines the file has.
    total_lines: usize,
    /// How many bytes the file has.
    bytes: usize,
    /// Where to go on; none at the end of the file.
    next_line: Option<usize>,
    /// Whether the text is exactly that of the file.
    exact: bool,
}

impl Answer for Contents {
    fn text(&self) -> Option<String> {
        let mut text = self.text.clone();
        if let Some(next) = self.next_line {
            let total = self.total_lines;
            cowork_sys::ignore(write!(text, "\n[there is more: line {next} of {total}]"));
        }
        Some(text)
    }
}

fn read_file(call: &Call, wanted: &ReadFile) -> Result<Contents, Refusal> {
    if wanted.line == Some(0) || wanted.lines == Some(0) {
        return Err(Refusal::new("bad-arguments", "lines are counted from 1"));
    }
    let mut client = call.client()?;
    let session = call.session(&mut client, wanted.session.as_deref())?;
    let spot = spot::file(&session, &wanted.path)?;
    let text = content::text(content::bytes(call, &mut client, &session, &spot)?)?;
    part(&spot.inside, &text, wanted.line.unwrap_or(1), wanted.lines)
}

/// The part of a text that is wanted and fits.
fn part(path: &str, text: &str, line: usize, lines: Option<usize>) -> Result<Contents, Refusal> {
    let total_lines = text.split_inclusive('\n').count();
    if line > total_lines.max(1) {
        let sentence = format!("the file has {total_lines} lines");
        return Err(Refusal::new("bad-range", sentence));
    }
    let mut out = String::new();
    let mut next = line;
    for piece in text.split_inclusive('\n').skip(line - 1).take(lines.unwrap_or(usize::MAX)) {
        if !out.is_empty() && out.len() + piece.len() > MAX_READ {
            break;
        }
        out.push_str(piece);
        next += 1;
    }
    // A single line can be longer than all that fits.
    let fits = start(&out, MAX_READ);
    let shown = harmless(fits);
    let exact = shown == out;
    Ok(Contents {
        path: harmless(path),
        text: shown,
        line,
        total_lines,
        bytes: text.len(),
        next_line: (next <= total_lines).then_some(next),
        exact,
    })
}

#[cfg(test)]
mod tests {
    use super::{MAX_READ, part};

    #[test]
    fn parts_are_whole_lines_and_lead_on() {
        let text = "one\ntwo\r\nthree";
        let first = part("", text, 1, Some(2)).expect("it has these");
        assert_eq!((first.text.as_str(), first.next_line), ("one\ntwo\r\n", Some(3)));
        assert!(first.exact);
        let last = part("", text, 3, None).expect("it has this");
        assert_eq!((last.text.as_str(), last.next_line, last.total_lines), ("three", None, 3));
        assert_eq!(part("", text, 4, None).expect_err("no such line").code, "bad-range");
        let empty = part("", "", 1, None).expect("an empty file can be read");
        assert_eq!((empty.text.as_str(), empty.next_line), ("", None));
    }

    #[test]
    fn what_is_too_long_is_cut_and_said() {
        let text = "x".repeat(MAX_READ + 5);
        let cut = part("", &text, 1, None).expect("it has a line");
        assert_eq!(cut.text.len(), MAX_READ);
        assert!(!cut.exact);
        let lines = "0123456789\n".repeat(10_000);
        let first = part("", &lines, 1, None).expect("it has lines");
        assert!(first.text.len() <= MAX_READ && first.text.ends_with('\n'));
        assert_eq!(first.next_line, Some(first.text.lines().count() + 1));
    }
}
