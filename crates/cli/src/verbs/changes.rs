//! `cowork changes` and `cowork diff`: what a session did to folders.

use super::{on, target};
use crate::arguments::{ChangesOf, Diff};
use crate::daemon;
use crate::failure::{Failure, note};
use crate::request;
use crate::show::table::{Cell, Colour, Table, Tone};
use crate::show::{self, neutral, progress, units};
use cowork_client::http::Client;
use cowork_client::types::{
    Change, ChangeKind, ChangeMark, ChangeSet, ChangedFile, Changes, Command, Difference, MarkKind,
    Raw, SetKind,
};
use cowork_client::uri::Query;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A path that the user names, for the daemon: from the root, and without links on the way.
pub(super) fn meant(path: &Path) -> Result<PathBuf, Failure> {
    let home = cowork_client::places::home();
    let path = request::expand(path, home.as_deref());
    if path.starts_with(cowork_policy::plan::SESSIONS) {
        return Ok(path);
    }
    let absolute = std::path::absolute(&path).map_err(|error| {
        let sentence = format!("`{}` is no path", path.display());
        Failure::input(sentence, "").with_cause(error.to_string())
    })?;
    let mut plain = PathBuf::new();
    for part in absolute.components() {
        match part {
            std::path::Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    // The name itself may be a link or gone; what is above it may be gone as well.
    let mut above = plain.parent();
    while let Some(folder) = above {
        if let Ok(real) = cowork_sandbox::folder::Folder::open(folder) {
            let below = plain.strip_prefix(folder).unwrap_or(Path::new(""));
            return Ok(real.path().join(below));
        }
        above = folder.parent();
    }
    Ok(plain)
}

/// The same for a body of JSON.
pub(super) fn meant_all(paths: &[PathBuf]) -> Result<Vec<Raw>, Failure> {
    paths.iter().map(|path| meant(path).map(|path| request::raw(&path))).collect()
}

fn query(id: &str, below: &str, set: Option<u32>, path: Option<&Path>) -> Query {
    Query::new(target(id, below))
        .with_some("set", set.map(|set| set.to_string()))
        .with_some("path", path.map(|path| path.as_os_str().as_bytes()))
}

/// `cowork changes`.
pub(crate) fn changes(options: &ChangesOf) -> Result<ExitCode, Failure> {
    let path = options.path.as_deref().map(meant).transpose()?;
    let mut client = daemon::connect()?;
    let (_, changes) = progress::during("reading the changes", || {
        on(&mut client, &options.session, |client, id| {
            client.get::<Changes>(query(id, "/changes", options.set, path.as_deref()))
        })
    })?;
    if options.output.json {
        return show::json(&changes);
    }
    let detail = if options.verbose { Detail::Programs } else { Detail::Names };
    show::print(text(&changes, detail, Colour::of_stdout()))
}

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    /// What became of each name.
    Names,
    /// Also which programs did it.
    Programs,
}

fn text(changes: &Changes, detail: Detail, colour: Colour) -> String {
    if changes.changes.is_empty() {
        let undone = changes.sets.iter().any(|set| set.undone_by.is_some());
        return if undone { "everything is undone\n" } else { "nothing is changed\n" }.to_owned();
    }
    let mut out = marks(&changes.changes, colour);
    let mut table = Table::new(["CHANGE", "PATH", "SIZE", "SETS"]);
    let mut programs = Table::new(["PATH", "SET", "PROCESS", "PROGRAM"]);
    for kind in [
        ChangeKind::Added,
        ChangeKind::Modified,
        ChangeKind::Deleted,
        ChangeKind::Renamed,
        ChangeKind::Attributes,
    ] {
        for change in changes.changes.iter().filter(|change| change.kind == kind) {
            let (word, tone) = said(change);
            table.row([
                Cell::new(word, tone),
                shown_path(change).into(),
                size(change).into(),
                numbers(&change.sets).into(),
            ]);
            for by in &change.by {
                programs.row([
                    show::raw(&change.host).into(),
                    by.set.to_string().into(),
                    by.process.to_string().into(),
                    show::words(&by.argv).into(),
                ]);
            }
        }
    }
    out.push_str(&table.render(colour));
    out.push('\n');
    if detail == Detail::Programs {
        out.push_str(&programs.render(colour));
        out.push('\n');
    }
    out.push_str(&sets(&changes.sets, colour));
    out
}

/// What a person should know, before anything else.
fn marks(changes: &[Change], colour: Colour) -> String {
    let mut out = String::new();
    for (kind, title, tone) in [
        (MarkKind::NotUndoable, "cannot be undone", Tone::Bad),
        (MarkKind::RunsHere, "runs on your machine", Tone::Warning),
        (MarkKind::RefusedType, "is of a refused type", Tone::Warning),
        (MarkKind::Protected, "has a protected name", Tone::Warning),
        (MarkKind::Conflict, "changed by you since", Tone::Warning),
    ] {
        for change in changes {
            for mark in change.marks.iter().filter(|mark| mark.mark == kind) {
                let reason = mark.reason.as_deref().map(|reason| format!(": {reason}"));
                let reason = neutral::line(&reason.unwrap_or_default());
                let title = colour.paint(title, tone);
                // Writing to a string cannot fail.
                cowork_sys::ignore(writeln!(out, "{title}  {}{reason}", show::raw(&change.host)));
            }
        }
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// What became of a name, in a word.
fn said(change: &Change) -> (&'static str, Tone) {
    match (change.kind, change.modified) {
        (ChangeKind::Added, _) => ("added", Tone::Good),
        (ChangeKind::Modified, _) => ("modified", Tone::Warning),
        (ChangeKind::Deleted, _) => ("deleted", Tone::Bad),
        (ChangeKind::Renamed, false) => ("renamed", Tone::Plain),
        (ChangeKind::Renamed, true) => ("renamed, modified", Tone::Warning),
        (ChangeKind::Attributes, _) => ("attributes", Tone::Plain),
    }
}

fn shown_path(change: &Change) -> String {
    let slash = if change.file == ChangedFile::Folder { "/" } else { "" };
    let path = format!("{}{slash}", change.host.lossy());
    match &change.from {
        Some(from) => format!("{path} (was {})", from.lossy()),
        None => path,
    }
}

fn size(change: &Change) -> String {
    match (change.before, change.after) {
        (Some(before), Some(after)) if before != after => {
            format!("{} -> {}", units::bytes(before), units::bytes(after))
        }
        (_, Some(size)) | (Some(size), None) => units::bytes(size),
        (None, None) => String::new(),
    }
}

fn numbers(sets: &[u32]) -> String {
    sets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Sets under titles.
pub(super) fn sets(sets: &[ChangeSet], colour: Colour) -> String {
    let mut table = Table::new(["SET", "WHEN", "BY", "COMMAND", "STATE"]);
    for set in sets {
        table.row([
            set.set.to_string().into(),
            units::moment(&set.began).into(),
            by(set).into(),
            show::words(&set.argv).into(),
            state(set),
        ]);
    }
    table.render(colour)
}

fn by(set: &ChangeSet) -> String {
    match (set.kind, set.command) {
        (SetKind::Command, Some(number)) => match set.task {
            Some(task) => format!("task {task}, command {number}"),
            None => format!("command {number}"),
        },
        (SetKind::Command, None) => "a command".to_owned(),
        (SetKind::Undo, _) => format!("undo of {}", numbers(&set.undoes)),
        (SetKind::Apply, _) => "apply".to_owned(),
    }
}

fn state(set: &ChangeSet) -> Cell {
    match set.undone_by {
        Some(number) => Cell::new(format!("undone by {number}"), Tone::Plain),
        None => Cell::new("", Tone::Plain),
    }
}

/// `cowork diff`.
pub(crate) fn diff(options: &Diff) -> Result<ExitCode, Failure> {
    let paths = options.paths.iter().map(|path| meant(path)).collect::<Result<Vec<_>, _>>()?;
    let mut client = daemon::connect()?;
    let mut all: Vec<Difference> = Vec::new();
    let mut asked: Vec<Option<&Path>> = paths.iter().map(|path| Some(path.as_path())).collect();
    if asked.is_empty() {
        asked.push(None);
    }
    for path in asked {
        let (_, found) = progress::during("comparing files", || {
            on(&mut client, &options.session, |client, id| {
                client.get::<Vec<Difference>>(query(id, "/diff", options.set, path))
            })
        })?;
        let new = found.into_iter().filter(|one| !all.contains(one)).collect::<Vec<_>>();
        all.extend(new);
    }
    if options.output.json {
        return show::json(&all);
    }
    let colour = Colour::of_stdout();
    show::print(all.iter().map(|one| difference(one, colour)).collect::<String>())
}

/// Most lines that are shown of the difference of two versions.
const MAX_LINES: usize = 40;

/// What the user's version of a name differs in from the one that an undo would bring back, if it
/// can be told. `set` is the only one that is undone.
pub(super) fn versions(
    client: &mut Client,
    session: &str,
    set: Option<u32>,
    host: &Raw,
) -> Option<String> {
    let path = PathBuf::from(OsString::from_vec(host.bytes()?));
    let ask = |client: &mut Client, id: &str| {
        client.get::<Vec<Difference>>(query(id, "/diff", set, Some(&path)))
    };
    let (_, found) = on(client, session, ask).ok()?;
    let found = found.into_iter().find(|found| found.change.host == *host)?;
    let colour = Colour::of_stdout();
    let title = format!("{}: before (-) and now (+)", host.lossy());
    let mut out = colour.paint(&neutral::line(&title), Tone::Warning);
    out.push('\n');
    let count = found.text.as_ref().map_or(0, |text| text.lines().count());
    contents(&found, MAX_LINES, colour, &mut out);
    if count > MAX_LINES {
        let more = format!("… {} more lines: see `cowork diff`\n", count - MAX_LINES);
        out.push_str(&more);
    }
    (found.text.is_some() || found.note.is_some()).then_some(out)
}

fn difference(difference: &Difference, colour: Colour) -> String {
    let change = &difference.change;
    let (word, tone) = said(change);
    let title = neutral::line(&format!("{word} {}", shown_path(change)));
    let mut out = colour.paint(&title, if tone == Tone::Plain { Tone::Strong } else { tone });
    out.push('\n');
    contents(difference, usize::MAX, colour, &mut out);
    out
}

/// What is different, in at most so many lines.
fn contents(difference: &Difference, most: usize, colour: Colour, out: &mut String) {
    if let Some(note) = &difference.note {
        out.push_str(&neutral::text(note));
        out.push('\n');
    }
    for line in difference.text.iter().flat_map(|text| text.lines()).take(most) {
        let tone = match line.as_bytes().first() {
            Some(b'+') => Tone::Good,
            Some(b'-') => Tone::Bad,
            Some(b'@') => Tone::Strong,
            _ => Tone::Plain,
        };
        out.push_str(&colour.paint(&neutral::text(line), tone));
        out.push('\n');
    }
}

/// The last set of a session that is not undone: the one that an undo means without saying which.
pub(super) fn last_set(client: &mut Client, session: &str) -> Option<u32> {
    let ask =
        |client: &mut Client, id: &str| client.get::<Changes>(query(id, "/changes", None, None));
    let (_, changes) = on(client, session, ask).ok()?;
    let counts = |set: &&ChangeSet| set.undone_by.is_none() && set.kind != SetKind::Undo;
    changes.sets.iter().rev().find(counts).map(|set| set.set)
}

/// How many names a session changed, in one line, if it changed any.
pub(crate) fn summary(changes: &Changes) -> Option<String> {
    let files = changes.changes.iter().filter(|change| change.file != ChangedFile::Folder);
    let count = match files.count() {
        0 => changes.changes.len(),
        files => files,
    };
    let id = &changes.session;
    let many = units::count(count, "file", "files");
    let (lost, them) = match losses(changes) {
        Some(Losses { count, reasons }) => {
            (format!("{count} of them cannot be brought back{reasons}; "), "the others")
        }
        None => (String::new(), "them"),
    };
    let line = format!(
        "{many} changed; {lost}see `cowork changes {id}`, take {them} back with `cowork undo {id}`"
    );
    (count > 0).then_some(line)
}

/// How many names cannot be brought back, in one line, if there are any.
pub(crate) fn loss(changes: &Changes) -> Option<String> {
    let id = &changes.session;
    let all = changes.changes.len();
    losses(changes).map(|Losses { count, reasons }| {
        format!("{count} of {all} changes cannot be taken back{reasons}; see `cowork changes {id}`")
    })
}

/// What cannot be brought back.
struct Losses {
    count: usize,
    /// Why, as the end of a sentence.
    reasons: String,
}

fn losses(changes: &Changes) -> Option<Losses> {
    let lost = |change: &'_ Change| {
        let mut marks = change.marks.iter();
        marks.find(|mark| mark.mark == MarkKind::NotUndoable).cloned()
    };
    let lost: Vec<ChangeMark> = changes.changes.iter().filter_map(lost).collect();
    let reasons: BTreeSet<&str> = lost.iter().filter_map(|mark| mark.reason.as_deref()).collect();
    let reasons: Vec<String> = reasons.into_iter().map(neutral::line).collect();
    let colon = if reasons.is_empty() { "" } else { ": " };
    let reasons = format!("{colon}{}", reasons.join(", or "));
    (!lost.is_empty()).then_some(Losses { count: lost.len(), reasons })
}

/// What a command did that cannot be brought back is said when it has ended, if a person looks.
pub(crate) fn tell_loss(command: &Command) {
    if !rustix::termios::isatty(rustix::stdio::stderr()) {
        return;
    }
    // What cannot be looked at now is seen in `cowork changes`.
    let Ok(Some(mut client)) = daemon::connect_running() else { return };
    let target = Query::new(target(&command.session, "/changes"))
        .with("command", command.number.to_string());
    // A session without records has nothing to tell.
    let changes = client.get::<Changes>(target);
    if let Some(line) = changes.ok().as_ref().and_then(loss) {
        note(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::{Colour, Detail, difference, loss, summary, text};
    use cowork_client::types::{
        Change, ChangeKind, ChangeMark, ChangeSet, ChangedBy, ChangedFile, Changes, Difference,
        MarkKind, Raw, SetKind,
    };

    fn change(kind: ChangeKind, path: &str) -> Change {
        Change {
            grant: "site".into(),
            path: Raw::new(path),
            host: Raw::new(format!("/home/me/site/{path}")),
            kind,
            from: None,
            modified: false,
            file: ChangedFile::File,
            before: None,
            after: Some(2048),
            sets: vec![1],
            by: Vec::new(),
            marks: Vec::new(),
        }
    }

    fn changes() -> Changes {
        let mark = ChangeMark { mark: MarkKind::NotUndoable, reason: Some("too large".into()) };
        let gone = Change {
            before: Some(10),
            after: None,
            marks: vec![mark],
            ..change(ChangeKind::Deleted, "big\u{1b}[2J")
        };
        let set = ChangeSet {
            set: 1,
            kind: SetKind::Command,
            undoes: Vec::new(),
            command: Some(3),
            process: Some(7),
            task: None,
            argv: vec![Raw::new("make"), Raw::new("all it")],
            began: "2026-01-02T03:04:05.678Z".into(),
            last: "2026-01-02T03:04:05.678Z".into(),
            records: 2,
            undone_by: None,
            folders: Vec::new(),
        };
        Changes {
            session: "able-bohr".into(),
            sets: vec![set],
            changes: vec![gone, change(ChangeKind::Added, "new")],
        }
    }

    #[test]
    fn what_cannot_be_undone_comes_first() {
        let text = text(&changes(), Detail::Names, Colour::Off);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "cannot be undone  /home/me/site/big\\u{1b}[2J: too large");
        assert_eq!(lines[1], "");
        assert_eq!(lines[2], "CHANGE   PATH                        SIZE  SETS");
        assert_eq!(lines[3], "added    /home/me/site/new           2K    1");
        assert_eq!(lines[4], "deleted  /home/me/site/big\\u{1b}[2J  10    1");
        assert!(text.ends_with("1    2026-01-02T03:04:05Z  command 3  make 'all it'\n"), "{text}");
    }

    #[test]
    fn the_program_that_made_a_change_is_shown_on_request() {
        let mut changes = changes();
        let argv = vec![Raw::new("rm"), Raw::new("a b\u{1b}[2J")];
        changes.changes[0].by = vec![ChangedBy { set: 1, process: 9, argv }];
        let text = text(&changes, Detail::Programs, Colour::Off);
        let lines: Vec<&str> = text.lines().skip(6).collect();
        assert_eq!(lines[0], "PATH                        SET  PROCESS  PROGRAM");
        assert_eq!(lines[1], "/home/me/site/big\\u{1b}[2J  1    9        rm 'a b\\u{1b}[2J'");
        assert_eq!(lines[2], "");
    }

    #[test]
    fn a_set_of_a_task_says_so() {
        let mut changes = changes();
        changes.sets[0].task = Some(2);
        let text = text(&changes, Detail::Names, Colour::Off);
        assert!(text.ends_with("  task 2, command 3  make 'all it'\n"), "{text}");
    }

    #[test]
    fn nothing_of_a_difference_acts_on_a_terminal() {
        let one = Difference {
            change: change(ChangeKind::Modified, "a\nb"),
            text: Some("@@ -1 +1 @@\n-old\n+new\u{1b}]0;x\u{7}\n".into()),
            note: None,
        };
        let text = difference(&one, Colour::Off);
        assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{text:?}");
        assert!(text.starts_with("modified /home/me/site/a\\nb\n@@"), "{text:?}");
        assert!(difference(&one, Colour::On).contains("\u{1b}[31m-old\u{1b}[0m"));
    }

    #[test]
    fn a_summary_names_the_session_twice() {
        let line = summary(&changes()).unwrap();
        assert_eq!(
            line,
            "2 files changed; 1 of them cannot be brought back: too large; see `cowork changes \
             able-bohr`, take the others back with `cowork undo able-bohr`"
        );
        let whole = Changes { changes: vec![change(ChangeKind::Added, "new")], ..changes() };
        assert_eq!(
            summary(&whole).unwrap(),
            "1 file changed; see `cowork changes able-bohr`, take them back with `cowork undo \
             able-bohr`"
        );
        assert_eq!(
            loss(&changes()).unwrap(),
            "1 of 2 changes cannot be taken back: too large; see `cowork changes able-bohr`"
        );
        assert_eq!(loss(&whole), None);
        let nothing = Changes { changes: Vec::new(), ..changes() };
        assert_eq!(summary(&nothing), None);
        assert_eq!(loss(&nothing), None);
    }
}
