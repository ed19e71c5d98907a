//! `cowork undo`, `redo`, `apply` and `discard`: what becomes of changes.

use super::changes::{last_set, meant_all, versions};
use super::{on, target};
use crate::arguments::{Apply, Choice, Discard, Output, Redo, Undo};
use crate::daemon;
use crate::failure::Failure;
use crate::show::table::{Cell, Colour, Table, Tone};
use crate::show::{self, neutral, progress, units};
use cowork_client::http::{Client, HttpError, Method};
use cowork_client::types::{self, ChangeConflict, Discarded, OnConflict, Restored};
use serde::Serialize;
use std::fmt::Write as _;
use std::process::ExitCode;

/// Most names that are listed of what was brought back.
const MAX_LISTED: usize = 20;
/// Something stands in the way.
const REFUSED: u8 = 1;

/// What is asked of the daemon.
struct Task<'a, B> {
    session: &'a str,
    below: &'static str,
    body: B,
    choice: Choice,
    output: &'a Output,
    /// What was done to names, in a word.
    done: &'static str,
    /// What the versions of a name that was changed since differ in.
    compare: Compare<'a>,
}

/// Whether two versions of a name are compared, and in which sets.
#[derive(Clone, Copy)]
enum Compare<'a> {
    Not,
    For(&'a Undo),
}

/// Most names of which both versions are compared.
const MAX_COMPARED: usize = 5;

/// `cowork undo`.
pub(crate) fn undo(options: &Undo) -> Result<ExitCode, Failure> {
    let body = types::Undo {
        paths: meant_all(&options.paths)?,
        sets: options.sets.clone(),
        all: options.all,
        on_conflict: on_conflict(options.choice),
        dry_run: options.choice.dry_run,
    };
    let rehearsal = types::Undo { dry_run: true, ..body.clone() };
    let task = Task {
        session: &options.session,
        below: "/undo",
        body,
        choice: options.choice,
        output: &options.output,
        done: "brought back",
        compare: Compare::For(options),
    };
    carry_out(&task, &rehearsal)
}

/// `cowork redo`.
pub(crate) fn redo(options: &Redo) -> Result<ExitCode, Failure> {
    let on_conflict = on_conflict(options.choice);
    let body = types::Redo { on_conflict, dry_run: options.choice.dry_run };
    let rehearsal = types::Redo { dry_run: true, ..body.clone() };
    let task = Task {
        session: &options.session,
        below: "/redo",
        body,
        choice: options.choice,
        output: &options.output,
        done: "done again",
        compare: Compare::Not,
    };
    carry_out(&task, &rehearsal)
}

/// `cowork apply`.
pub(crate) fn apply(options: &Apply) -> Result<ExitCode, Failure> {
    let body = types::Apply {
        paths: meant_all(&options.paths)?,
        on_conflict: on_conflict(options.choice),
        dry_run: options.choice.dry_run,
    };
    let rehearsal = types::Apply { dry_run: true, ..body.clone() };
    let task = Task {
        session: &options.session,
        below: "/apply",
        body,
        choice: options.choice,
        output: &options.output,
        done: "applied",
        compare: Compare::Not,
    };
    carry_out(&task, &rehearsal)
}

fn on_conflict(choice: Choice) -> OnConflict {
    match (choice.ours, choice.theirs, choice.both) {
        (true, ..) => OnConflict::Ours,
        (false, true, _) => OnConflict::Theirs,
        (false, false, true) => OnConflict::Both,
        (false, false, false) => OnConflict::Refuse,
    }
}

/// Asks for it. A conflict is shown with both versions, which a rehearsal tells.
fn carry_out<B: Serialize>(task: &Task<'_, B>, rehearsal: &B) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let ask = |client: &mut Client, body: &B| {
        progress::during("changing files", || {
            on(client, task.session, |client, id| {
                match client.send::<Restored>(Method::Post, target(id, task.below), body) {
                    Err(HttpError::Problem(problem)) if problem.code == "conflict" => {
                        Ok(Err(*problem))
                    }
                    other => other.map(Ok),
                }
            })
        })
    };
    match ask(&mut client, &task.body)?.1 {
        Ok(restored) if task.output.json => show::json(&restored),
        Ok(restored) => {
            let would = if task.choice.dry_run { "would be " } else { "" };
            let text = report(&restored, &format!("{would}{}", task.done));
            show::print(text)?;
            if task.choice.dry_run {
                show::print(compared(&mut client, task, &restored.conflicts))?;
            }
            let stuck = task.choice.dry_run
                && on_conflict(task.choice) == OnConflict::Refuse
                && !restored.conflicts.is_empty();
            Ok(if stuck { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS })
        }
        Err(problem) => {
            if let (false, Ok((_, Ok(told)))) = (task.output.json, ask(&mut client, rehearsal)) {
                show::print(conflicts(&told.conflicts))?;
                show::print(compared(&mut client, task, &told.conflicts))?;
            }
            let hint = "leave what is there with `--ours`, bring back what was with `--theirs`, or \
                        have both with `--both`";
            Err(Failure::from(problem).with_hint(hint))
        }
    }
}

/// What the user's versions differ in from those that would be brought back.
fn compared<B>(client: &mut Client, task: &Task<'_, B>, conflicts: &[ChangeConflict]) -> String {
    let Compare::For(options) = task.compare else { return String::new() };
    if conflicts.is_empty() {
        return String::new();
    }
    let set = match options.sets.as_slice() {
        [set] => Some(*set),
        [] if !options.all && options.paths.is_empty() => last_set(client, task.session),
        _ => None,
    };
    let shown = conflicts.iter().take(MAX_COMPARED);
    shown.filter_map(|conflict| versions(client, task.session, set, &conflict.host)).collect()
}

fn report(restored: &Restored, done: &str) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let mut line = |text: String| cowork_sys::ignore(writeln!(out, "{}", neutral::line(&text)));
    for name in &restored.lost {
        line(format!("cannot be brought back  {}: {}", name.host.lossy(), name.how));
    }
    for name in restored.done.iter().take(MAX_LISTED) {
        line(format!("{}  {}", name.how, name.host.lossy()));
    }
    let count = usize::try_from(restored.names).unwrap_or(usize::MAX);
    if count > MAX_LISTED {
        line(format!("and {} more", count - MAX_LISTED));
    }
    let names = units::count(count, "name", "names");
    let set = restored.set.map(|set| format!(", as set {set}")).unwrap_or_default();
    line(format!("{names} {done}{set}"));
    out.push_str(&conflicts(&restored.conflicts));
    out
}

/// Both versions of what was changed since.
fn conflicts(conflicts: &[ChangeConflict]) -> String {
    if conflicts.is_empty() {
        return String::new();
    }
    let mut table = Table::new(["CHANGED SINCE", "NOW", "BEFORE", "OUTCOME"]);
    for conflict in conflicts {
        table.row([
            Cell::new(conflict.host.lossy(), Tone::Warning),
            (&conflict.now).into(),
            (&conflict.before).into(),
            (&conflict.outcome).into(),
        ]);
    }
    table.render(Colour::of_stdout())
}

/// `cowork discard`.
pub(crate) fn discard(options: &Discard) -> Result<ExitCode, Failure> {
    let body = types::Discard { paths: meant_all(&options.folders)? };
    let mut client = daemon::connect()?;
    let (_, discarded) = progress::during("discarding staged changes", || {
        on(&mut client, &options.session, |client, id| {
            client.send::<Discarded>(Method::Post, target(id, "/discard"), &body)
        })
    })?;
    if options.output.json {
        return show::json(&discarded);
    }
    let lines = discarded.folders.iter();
    let lines = lines.map(|folder| format!("nothing is staged of {}\n", show::raw(&folder.path)));
    show::print(lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::{Restored, report};
    use cowork_client::types::{ChangeConflict, Raw, RestoredName};

    #[test]
    fn what_cannot_be_brought_back_comes_first() {
        let name = |host: &str, how: &str| RestoredName { host: Raw::new(host), how: how.into() };
        let restored = Restored {
            set: Some(4),
            names: 1,
            done: vec![name("/a", "restored")],
            conflicts: vec![ChangeConflict {
                host: Raw::new("/c"),
                now: "4 bytes".into(),
                before: "5 bytes".into(),
                outcome: "left".into(),
            }],
            lost: vec![name("/b", "it was too large")],
        };
        assert_eq!(
            report(&restored, "brought back"),
            "cannot be brought back  /b: it was too large\nrestored  /a\n\
             1 name brought back, as set 4\n\
             CHANGED SINCE  NOW      BEFORE   OUTCOME\n/c             4 bytes  5 bytes  left\n"
        );
        let tried = Restored { set: None, ..restored };
        assert!(report(&tried, "would be brought back").contains("1 name would be brought back\n"));
    }
}
