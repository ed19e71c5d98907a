//! Orders to clerks, and their reports.

use super::store::Store;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_api::files::{NameRule, Order, Report, SetInfo, Types, Work};
use cowork_api::keeper::{Reply, Request};
use cowork_client::types::{Command, Task};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::sync::Arc;
use std::time::Duration;

/// Longest report that is read; what is longer is refused.
const MAX_REPORT: u64 = 512 * 1024 * 1024;
/// A command is written down as started up to so long after its first change.
const SLACK: Duration = Duration::from_millis(5);

/// Whether the session of a store stands still meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meanwhile {
    /// It goes on: something is only looked at.
    GoesOn,
    /// It stands still: something is changed.
    StandsStill,
}

impl Daemon {
    /// Sends a clerk, and reads what it reports. That it could not do it is a trouble.
    pub(super) async fn clerk(
        self: &Arc<Self>,
        store: &Store,
        work: Work,
        meanwhile: Meanwhile,
    ) -> Result<Report, Trouble> {
        let live = store.live().filter(|_| meanwhile == Meanwhile::StandsStill);
        let session = live.map(|session| session.id.clone());
        let (names, types) = (self.names_of(store), self.types_of(store));
        let order = Box::new(Order { store: store.kept(), work, names, types });
        let (reply, handles) = self.engine.call(Request::Clerk { session, order }).await?;
        let (Reply::Reported, Some(report)) = (reply, handles.into_iter().next()) else {
            return Err(Trouble::host("the keeper gave no report", "too many open files?"));
        };
        // It may be long: it is read beside everything else.
        let read = tokio::task::spawn_blocking(move || read(report)).await;
        let report = read.map_err(|error| Trouble::host("a report could not be read", error))??;
        match report {
            Report::Failed { sentence, hint } => {
                Err(Trouble::refused("not-done", sentence).with_hint(hint))
            }
            report => Ok(report),
        }
    }

    /// The user's own rules about names in the session of a store, while it lives.
    fn names_of(&self, store: &Store) -> Vec<NameRule> {
        let Some(session) = store.live() else { return Vec::new() };
        let doc = session.doc();
        let usual = cowork_policy::files::default_rules().names;
        let all = doc.grants.iter().filter_map(|kept| self.rules_for(&doc, &kept.grant).ok());
        let mut names: Vec<NameRule> = all.flat_map(|rules| rules.names).collect();
        names.retain(|rule| !usual.contains(rule));
        names.dedup();
        names
    }

    /// Which types are refused in the folders of a session that lives, where those are others than
    /// usual.
    fn types_of(&self, store: &Store) -> Vec<Types> {
        let Some(session) = store.live() else { return Vec::new() };
        let doc = session.doc();
        let usual = cowork_policy::files::default_rules();
        let types = doc.grants.iter().filter_map(|kept| {
            let rules = self.rules_for(&doc, &kept.grant).ok()?;
            let (blocked, contents) = (rules.blocked, rules.blocked_contents);
            let differs = (&blocked, contents) != (&usual.blocked, usual.blocked_contents);
            differs.then(|| Types { grant: kept.grant.name.clone(), blocked, contents })
        });
        types.collect()
    }

    /// Every set of a store.
    pub(super) async fn sets(self: &Arc<Self>, store: &Store) -> Result<Vec<SetInfo>, Trouble> {
        match self.clerk(store, Work::Sets, Meanwhile::GoesOn).await? {
            Report::Sets(sets) => Ok(sets),
            _ => Err(misfit()),
        }
    }

    /// Which command and task each set of a store is of.
    pub(super) async fn origins_of_sets(
        self: &Arc<Self>,
        store: &Store,
    ) -> Result<Origins, Trouble> {
        if store.session.is_none() {
            return Ok(Origins::kept(store));
        }
        let sets = self.sets(store).await?;
        self.origins(store, &sets)
    }

    /// The command of each of these sets, by the process that it began with, and the task, by when it
    /// began.
    pub(super) fn origins(&self, store: &Store, sets: &[SetInfo]) -> Result<Origins, Trouble> {
        let Some(session) = &store.session else { return Ok(Origins::kept(store)) };
        let mut starts: Vec<Start> = Vec::new();
        let mut after = 0;
        loop {
            let page = self.book.catalogue.commands(&session.id, after, 1000)?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            let commands = page.iter().filter_map(|(_, text)| serde_json::from_str(text).ok());
            starts.extend(commands.filter_map(|command: Command| Start::of(&command)));
        }
        let commands: BTreeMap<u32, u32> =
            sets.iter().filter_map(|set| Some((set.set, command_of(&starts, set)?))).collect();
        let turns: Vec<Turn> =
            self.tasks(session, 0, u32::MAX)?.iter().filter_map(Turn::of).collect();
        let task = |set: &SetInfo| task_of(&turns, set, *commands.get(&set.set)?);
        let tasks = sets.iter().filter_map(|set| Some((set.set, task(set)?))).collect();
        Ok(Origins { commands, tasks })
    }
}

/// What sets are of.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// The command of each.
    pub(super) commands: BTreeMap<u32, u32>,
    /// The task that this command worked on as its agent.
    pub(super) tasks: BTreeMap<u32, u32>,
}

impl Origins {
    /// As it was written down when the session was removed.
    fn kept(store: &Store) -> Self {
        Self { commands: store.entry.commands.clone(), tasks: store.entry.tasks.clone() }
    }
}

/// When an agent worked on a task.
struct Turn {
    task: u32,
    command: u32,
    /// Since 1970.
    from: Duration,
    until: Duration,
}

impl Turn {
    fn of(task: &Task) -> Option<Self> {
        let moment = |text: &str| since_1970(text);
        Some(Self {
            task: task.number,
            command: task.command?,
            from: moment(task.started.as_deref()?)?,
            until: task.ended.as_deref().and_then(moment).unwrap_or(Duration::MAX),
        })
    }
}

/// The task that a command worked on when a set began.
fn task_of(turns: &[Turn], set: &SetInfo, command: u32) -> Option<u32> {
    let began = Duration::from_nanos(set.began);
    let fits = |turn: &&Turn| turn.command == command && turn.from <= began && began < turn.until;
    turns.iter().rev().find(fits).map(|turn| turn.task)
}

/// How long after 1970 a moment is.
fn since_1970(moment: &str) -> Option<Duration> {
    let at = humantime::parse_rfc3339(moment).ok()?;
    at.duration_since(std::time::UNIX_EPOCH).ok()
}

/// When a command was started, and as which process.
struct Start {
    number: u32,
    process: u32,
    /// Since 1970.
    at: Duration,
}

impl Start {
    fn of(command: &Command) -> Option<Self> {
        Some(Self {
            number: command.number,
            process: command.pid.and_then(|pid| u32::try_from(pid).ok())?,
            at: since_1970(&command.started)?,
        })
    }
}

/// The last command that had the set's first process when it began: ids of processes come again.
fn command_of(starts: &[Start], set: &SetInfo) -> Option<u32> {
    let began = Duration::from_nanos(set.began) + SLACK;
    let fits = |start: &&Start| start.process == set.root && start.at <= began;
    starts.iter().filter(fits).map(|start| start.number).max()
}

fn read(report: OwnedFd) -> Result<Report, Trouble> {
    let failed = |error: std::io::Error| Trouble::host("a report could not be read", error);
    let mut report = std::fs::File::from(report);
    report.rewind().map_err(failed)?;
    if report.metadata().map_err(failed)?.len() > MAX_REPORT {
        return Err(Trouble::refused("not-done", "there is more to tell than can be told at once")
            .with_hint("ask for a part: name a set or a path"));
    }
    let mut bytes = Vec::new();
    report.read_to_end(&mut bytes).map_err(failed)?;
    cowork_api::decode(&bytes)
        .map_err(|error| Trouble::host("a report cannot be understood", error))
}

/// The report is about something else.
pub(super) fn misfit() -> Trouble {
    Trouble::host("a clerk reported something that does not fit", "a bug")
}

#[cfg(test)]
mod tests {
    use super::{Duration, Start, Turn, command_of, task_of};
    use cowork_api::files::{SetInfo, SetKind};

    fn set(root: u32, began: u64) -> SetInfo {
        SetInfo {
            set: 1,
            kind: SetKind::Command,
            root,
            argv: Vec::new(),
            began: began * 1_000_000,
            last: 0,
            records: 1,
            undone_by: None,
            folders: Vec::new(),
        }
    }

    #[test]
    fn a_process_id_that_came_again_is_the_later_command() {
        let start = |number, process, at| Start { number, process, at: Duration::from_millis(at) };
        let starts = [start(1, 2, 100), start(2, 7, 200), start(3, 2, 1000)];
        assert_eq!(command_of(&starts, &set(2, 150)), Some(1));
        assert_eq!(command_of(&starts, &set(2, 999)), Some(3), "clocks differ by a little");
        assert_eq!(command_of(&starts, &set(7, 5000)), Some(2));
        assert_eq!(command_of(&starts, &set(9, 5000)), None);
        assert_eq!(command_of(&starts, &set(7, 100)), None);
    }

    #[test]
    fn a_set_is_of_the_task_in_which_it_began() {
        let turn = |task, command, from, until| Turn {
            task,
            command,
            from: Duration::from_millis(from),
            until: Duration::from_millis(until),
        };
        let turns = [turn(1, 4, 100, 200), turn(2, 4, 300, 400), turn(3, 4, 400, u64::MAX)];
        let task = |began| task_of(&turns, &set(2, began), 4);
        assert_eq!(
            [100, 150, 250, 300, 400, 9000].map(task),
            [Some(1), Some(1), None, Some(2), Some(3), Some(3)]
        );
        assert_eq!(task_of(&turns, &set(2, 150), 5), None, "a command beside it");
    }
}
