//! What sessions use: asked for, sampled, and compared with the limit on disk.

use super::Session;
use super::commands::is_running;
use super::doc::{self, Doc};
use crate::book::{millis_since, now};
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_api::keeper::{Hits, Measured, Reply, Request};
use cowork_client::types::{Command, Life, Process, Usage, UsageOfCommand};
use cowork_session::catalogue::EventRow;
use cowork_session::life::State;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Time between two samples.
const SAMPLE: Duration = Duration::from_secs(10);
/// Samples that are held of each session: an hour.
const HELD: usize = 360;
/// The event of a sample.
const SAMPLED: &str = "usage.sample";
/// Most commands of a session that are measured for a sample: the last ones.
const MOST_COMMANDS: usize = 64;
/// Most files that are looked at to weigh a folder.
const MAX_FILES: u64 = 2_000_000;

/// Samples until the daemon ends.
pub(crate) async fn sample(daemon: Arc<Daemon>) {
    let mut ticks = tokio::time::interval(SAMPLE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for session in daemon.all() {
            if !is_live(session.state()) {
                continue;
            }
            daemon.note_hits(&session, None).await;
            let Ok(measured) = daemon.measure(&session, Keep::More).await else { continue };
            if is_still(&session, &measured) {
                continue;
            }
            let usage = daemon.keep_usage(&session, measured).await;
            let commands = daemon.sample_commands(&session).await;
            let data = json!({ "usage": usage, "commands": commands });
            daemon.book.note(SAMPLED, Some(&session.id), &data);
            daemon.keep_within_disk(&session, &usage).await;
        }
        daemon.empty_trash().await;
        drop(daemon.book.sync());
    }
}

/// What of a measurement is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// It, if more was used than time.
    More,
    /// It, always: somebody is told of it, or nobody looks again.
    All,
}

fn is_live(state: State) -> bool {
    matches!(state, State::Ready | State::Running | State::Paused)
}

/// Whether nothing has happened in a session since it was sampled: no process is there, none was,
/// and no command was started.
fn is_still(session: &Session, measured: &Measured) -> bool {
    let (state, commands) = (session.state(), session.doc().commands);
    let mut live = session.live();
    let sampled = live.sampled.replace(commands);
    let slept = live.usage.back().is_some_and(|last| last.processes == 0);
    state == State::Ready && measured.processes == 0 && slept && sampled == Some(commands)
}

impl Daemon {
    /// What a session uses now.
    pub(crate) async fn usage(self: &Arc<Self>, session: &Arc<Session>) -> Result<Usage, Trouble> {
        let measured = if is_live(session.state()) {
            self.measure(session, Keep::All).await?
        } else {
            Measured::default()
        };
        Ok(self.keep_usage(session, measured).await)
    }

    /// What a command uses, or has used.
    pub(crate) async fn usage_of_command(
        &self,
        session: &Session,
        number: u32,
    ) -> Result<UsageOfCommand, Trouble> {
        let of = |command: Command| {
            let used = command.usage.unwrap_or_default();
            UsageOfCommand {
                time: now(),
                cpu_us: used.user_us.saturating_add(used.system_us),
                memory_peak: used.peak_kib.saturating_mul(1024),
                read: used.read,
                written: used.written,
                wall_ms: command.usage.map_or(0, |used| used.wall_ms),
                most_processes: used.processes,
                ..UsageOfCommand::default()
            }
        };
        let command = self.command(session, number)?;
        let Some(pid) = command.pid.filter(|_| is_running(command.state)) else {
            return Ok(of(command));
        };
        let request = Request::MeasureCommand { session: session.id.clone(), pid };
        let (Reply::Measured(measured), _) = self.engine.call(request).await? else {
            return Ok(of(command));
        };
        if measured.processes == 0 {
            // It has ended meanwhile, and that is told in a moment.
            return self.command(session, number).map(of);
        }
        let most_processes = session.see_processes(number, measured.processes);
        Ok(UsageOfCommand {
            time: now(),
            cpu_us: measured.cpu_us,
            memory: measured.memory,
            memory_peak: measured.memory_peak,
            read: measured.read,
            written: measured.written,
            processes: measured.processes,
            listed: measured.listed.into_iter().map(shown).collect(),
            wall_ms: millis_since(&command.started),
            most_processes,
        })
    }

    /// What the commands of a session use that run. Their processes are listed with the session's.
    async fn sample_commands(&self, session: &Session) -> Vec<SampleOfCommand> {
        let mut running = session.runs();
        running.retain(|run| run.is_running());
        let mut samples = Vec::new();
        for run in running.iter().rev().take(MOST_COMMANDS).rev() {
            let Ok(mut usage) = self.usage_of_command(session, run.number).await else { continue };
            if usage.processes > 0 {
                usage.listed.clear();
                samples.push(SampleOfCommand { command: run.number, usage });
            }
        }
        samples
    }

    /// Looks at a sandbox for the last time. What lives once is gone with it, and not looked at.
    pub(super) async fn take_stock(&self, session: &Session) {
        let doc = session.doc();
        if doc.sandbox.is_some() && doc.spec.life != Life::Once {
            drop(self.measure(session, Keep::All).await);
        }
    }

    /// Measures a session, and keeps what it has used in all: a total that was told does not fall,
    /// whoever dies.
    async fn measure(&self, session: &Session, keep: Keep) -> Result<Measured, Trouble> {
        let of = session.doc().sandbox;
        let request = Request::Measure { session: session.id.clone() };
        let (Reply::Measured(measured), _) = self.engine.call(request).await? else {
            return Ok(Measured::default());
        };
        let seen = |doc: &Doc| {
            // Of another one that was made meanwhile it says nothing.
            let sandbox =
                doc.sandbox.as_ref().filter(|now| of.as_ref().is_some_and(|of| now.is(of)))?;
            let mut used = doc.used.clone();
            used.see(sandbox, &measured);
            let more = match keep {
                Keep::More => used.is_more_than(&doc.used),
                Keep::All => used != doc.used,
            };
            more.then_some(used)
        };
        if seen(&session.doc()).is_some() {
            session.settle(&self.book, |doc| {
                if let Some(used) = seen(doc) {
                    doc.used = used;
                }
            });
        }
        Ok(measured)
    }

    /// Processes of a session with this name and this id.
    pub(crate) async fn processes(
        &self,
        session: &Session,
        name: Option<String>,
        pid: Option<i32>,
    ) -> Result<Vec<Process>, Trouble> {
        if !is_live(session.state()) {
            return Ok(Vec::new());
        }
        let request = Request::Find { session: session.id.clone(), name, pid };
        match self.engine.call(request).await? {
            (Reply::Found(found), _) => Ok(found.into_iter().map(shown).collect()),
            _ => Ok(Vec::new()),
        }
    }

    /// Records that a session met its limits since that was last recorded; whether it was short of
    /// memory. `killed` is the command that was, if one was killed.
    pub(crate) async fn note_hits(&self, session: &Session, killed: Option<u32>) -> bool {
        let mut short = false;
        let request = Request::Hits { session: session.id.clone() };
        let Ok((Reply::Hits(now), _)) = self.engine.call(request).await else { return short };
        for limit in ["memory", "processes"] {
            let is_more = session.doc().sandbox.is_some_and(|mut sandbox| {
                let (now, known) = of_limit(limit, now, &mut sandbox.hits);
                now > *known
            });
            if !is_more {
                continue;
            }
            let is_memory = limit == "memory";
            short |= is_memory;
            let command = killed.filter(|_| is_memory);
            let note = |doc: &mut Doc| {
                let sandbox = doc.sandbox.as_mut().ok_or_else(noted)?;
                let (now, known) = of_limit(limit, now, &mut sandbox.hits);
                let times = now.checked_sub(*known).filter(|times| *times > 0);
                *known = now;
                if is_memory {
                    // Whose end is told later may be the one that was killed.
                    sandbox.short_of_memory = command.is_none().then(crate::book::now);
                }
                Ok(json!({
                    "limit": limit, "times": times.ok_or_else(noted)?, "command": command,
                }))
            };
            // It was met, whether that can be recorded now or with the next sample.
            drop(session.record(&self.book, "limit.hit", note, |_| Ok(())));
        }
        short
    }

    /// Whether a command that was killed met the limit on memory: that is found out now, or was since
    /// the command began and is of no other one.
    pub(super) async fn note_end_by_memory(&self, session: &Session, command: &Command) -> bool {
        if self.note_hits(session, Some(command.number)).await {
            return true;
        }
        let is_of_it = |doc: &Doc| {
            let met = doc.sandbox.as_ref().and_then(|sandbox| sandbox.short_of_memory.as_ref());
            met.is_some_and(|met| *met >= command.started)
        };
        is_of_it(&session.doc())
            && session.settle(&self.book, |doc| {
                let is_of_it = is_of_it(doc);
                if is_of_it && let Some(sandbox) = &mut doc.sandbox {
                    sandbox.short_of_memory = None;
                }
                is_of_it
            })
    }

    /// Puts what was measured beside what is on disk, and keeps it.
    async fn keep_usage(self: &Arc<Self>, session: &Arc<Session>, measured: Measured) -> Usage {
        let doc = session.doc();
        let disk = self.weigh(session).await;
        let total = doc.used.total();
        let peak = session.live().usage.back().map_or(0, |last| last.memory_peak);
        let listed = measured.listed.into_iter();
        let usage = Usage {
            time: now(),
            cpu_us: total.cpu_us,
            memory: measured.memory,
            memory_peak: total.memory_peak.max(peak),
            read: total.read,
            written: total.written,
            scratch: measured.scratch,
            disk,
            processes: measured.processes,
            listed: listed.map(shown).collect(),
            wall_ms: total.wall_ms,
        };
        let mut live = session.live();
        if live.usage.len() >= HELD {
            live.usage.pop_front();
        }
        live.usage.push_back(usage.clone());
        usage
    }

    /// Takes over the samples that earlier daemons told of.
    pub(super) fn recall_usage(&self, session: &Session) -> Result<(), Trouble> {
        let most = u32::try_from(HELD).unwrap_or(u32::MAX);
        let told = self.book.catalogue.last_events(&session.id, SAMPLED, most)?;
        let mut most_processes = BTreeMap::<u32, u32>::new();
        let sample = |event: EventRow| {
            let mut data: Value = serde_json::from_str(&event.data).ok()?;
            let usage = serde_json::from_value::<Usage>(data.get_mut("usage")?.take()).ok()?;
            // An earlier session of the same name is another one.
            if usage.time < session.doc().created {
                return None;
            }
            let of_commands = data.get_mut("commands").map(Value::take).unwrap_or_default();
            let of_commands = serde_json::from_value::<Vec<SampleOfCommand>>(of_commands);
            for SampleOfCommand { command, usage } in of_commands.unwrap_or_default() {
                let most = most_processes.entry(command).or_default();
                *most = usage.most_processes.max(*most);
            }
            Some(usage)
        };
        let samples = told.into_iter().filter_map(sample).collect();
        session.live().usage = samples;
        for (number, most) in most_processes {
            if self.command(session, number).is_ok_and(|command| is_running(command.state)) {
                session.see_processes(number, most);
            }
        }
        Ok(())
    }

    /// Samples of the past.
    pub(crate) fn usage_history(session: &Session) -> Vec<Usage> {
        session.live().usage.iter().cloned().collect()
    }

    /// Bytes of a session's home and outputs.
    async fn weigh(self: &Arc<Self>, session: &Session) -> u64 {
        let doc = session.doc();
        if doc.spec.life == Life::Once {
            return 0;
        }
        let folder = self.folders.session(&session.id);
        let request = Request::Weigh {
            folders: [folder.join("home"), folder.join("outputs")]
                .iter()
                .map(|path| {
                    use std::os::unix::ffi::OsStrExt;
                    path.as_os_str().as_bytes().to_vec()
                })
                .collect(),
            most: MAX_FILES,
        };
        match self.engine.call(request).await {
            Ok((Reply::Weighed(bytes), _)) => bytes,
            _ => 0,
        }
    }

    /// Pauses a session that is over its limit on disk.
    async fn keep_within_disk(self: &Arc<Self>, session: &Arc<Session>, usage: &Usage) {
        let limit = doc::disk_limit(&session.doc().spec.limits).ok().flatten();
        let Some(limit) = limit.filter(|limit| usage.disk > *limit) else { return };
        if std::mem::replace(&mut session.live().over_disk, true) {
            return;
        }
        let data = json!({ "limit": "disk", "value": limit, "used": usage.disk });
        drop(self.book.record("limit.hit", Some(&session.id), &data));
        let _turn = session.turn.lock().await;
        let why = "it is over its limit on disk: raise it with `cowork set --disk`, then resume";
        drop(self.freeze(session, Some(why)).await);
    }
}

/// What a command uses, as it is told with a sample of its session.
#[derive(Debug, Serialize, Deserialize)]
struct SampleOfCommand {
    command: u32,
    usage: UsageOfCommand,
}

impl Session {
    /// A command was seen to have so many processes: the most that it was ever seen to have.
    fn see_processes(&self, command: u32, count: u32) -> u32 {
        let mut live = self.live();
        let most = live.most_processes.entry(command).or_default();
        *most = count.max(*most);
        *most
    }
}

/// How often one limit was met by now, and how often that is known.
fn of_limit<'a>(limit: &str, now: Hits, known: &'a mut Hits) -> (u64, &'a mut u64) {
    match limit {
        "memory" => (now.memory, &mut known.memory),
        _ => (now.processes, &mut known.processes),
    }
}

/// Somebody else recorded it meanwhile, or the sandbox is gone.
fn noted() -> Trouble {
    Trouble::conflict("no-sandbox", "there is nothing more to record of its limits")
}

fn shown(process: cowork_api::keeper::Process) -> Process {
    Process {
        pid: process.pid,
        inside: (process.inside > 0).then_some(process.inside),
        name: process.name,
    }
}
