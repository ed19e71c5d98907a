//! `cowork status`: a session at a glance.

use super::sessions::{labels, state, tone};
use super::target;
use crate::arguments::{DEFAULT, Glance, Target};
use crate::daemon;
use crate::failure::Failure;
use crate::network;
use crate::show::table::{Colour, Tone};
use crate::show::{self, neutral, progress, units};
use cowork_client::http::{Client, HttpError};
use cowork_client::types::{
    Info, Life, Network, Process, Processes, Profile, Session, State, Usage,
};
use cowork_client::uri::Query;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

/// What is done while somebody waits.
const LOOKING: &str = "looking at the session";

/// Shows the session that is named; without a name the default one, or the daemon if there is
/// none.
pub(crate) fn status(options: &Glance) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    if let Some(process) = &options.process {
        return running(&mut client, &options.target, process);
    }
    let options = &options.target;
    let session = match &options.session {
        Some(name) => super::session(&mut client, name)?.1,
        None => match client.get::<Session>(target(DEFAULT, "")) {
            Ok(session) => session,
            Err(HttpError::Problem(problem)) if problem.status == 404 => {
                return info(&mut client, options);
            }
            Err(error) => return Err(error.into()),
        },
    };
    if options.output.json {
        return show::json(&session);
    }
    // A session that does not run uses nothing that could be measured.
    let (usage, network) = progress::during(LOOKING, || {
        let usage = client.get::<Usage>(target(&session.id, "/usage")).ok();
        let network = match session.network {
            Some(_) => client.get::<Network>(target(&session.id, "/network")).ok(),
            None => None,
        };
        (usage, network)
    });
    show::print(text(&session, usage.as_ref(), network.as_ref()))
}

/// Whether a process runs in a session. What can be an id is one.
fn running(client: &mut Client, options: &Target, process: &str) -> Result<ExitCode, Failure> {
    let name = options.session.as_deref().unwrap_or(DEFAULT);
    let key = if process.parse::<i32>().is_ok_and(|pid| pid > 0) { "pid" } else { "name" };
    let (_, found) = progress::during(LOOKING, || {
        super::on(client, name, |client, id| {
            let query = Query::new(target(id, "/processes")).with(key, process);
            client.get::<Processes>(query.target())
        })
    })?;
    if options.output.json {
        show::json(&found)?;
    } else {
        let line = |one: &Process| {
            let inside = one.inside.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            let name = neutral::line(&one.name);
            format!("{name}: process {inside} in the session, {} on this host\n", one.pid)
        };
        show::print(found.processes.iter().map(line).collect::<String>())?;
    }
    Ok(if found.running { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn info(client: &mut Client, options: &Target) -> Result<ExitCode, Failure> {
    let info: Info = client.get("/v1/info")?;
    if options.output.json {
        return show::json(&info);
    }
    let mut lines = Lines::new("daemon", "running", Tone::Good);
    lines.add("version", &info.version);
    lines.add("process", &format!("{}, for {}", info.pid, units::age(&info.started)));
    if let Some(keeper) = info.keeper {
        lines.add("keeper", &keeper.to_string());
    }
    lines.add("state", &show::raw(&info.state));
    let live = usize::try_from(info.live).unwrap_or(usize::MAX);
    lines.add("sessions", &format!("{live} live, {} made in advance", info.pooled));
    lines.add("hint", "`cowork init` makes the default session, `cowork ls` lists all");
    show::print(lines.text)
}

/// Lines with a word on the left, under a title.
struct Lines {
    text: String,
}

impl Lines {
    fn new(title: &str, state: &str, tone: Tone) -> Self {
        let colour = Colour::of_stdout();
        let title = colour.paint(title, Tone::Strong);
        Self { text: format!("{title}  {}\n", colour.paint(state, tone)) }
    }

    fn add(&mut self, word: &str, value: &str) {
        for (index, line) in value.lines().enumerate() {
            let word = if index == 0 { word } else { "" };
            // Writing to a string cannot fail.
            cowork_sys::ignore(writeln!(self.text, "  {word:<11} {}", neutral::text(line)));
        }
    }
}

/// Everything worth knowing about a session.
pub(crate) fn text(session: &Session, usage: Option<&Usage>, network: Option<&Network>) -> String {
    let mut lines = Lines::new(&session.id, state(session.state), tone(session.state));
    if let Some(reason) = &session.reason {
        lines.add("reason", reason);
    }
    let life = match session.life {
        Life::Kept => "kept until removed",
        Life::Once => "for one command",
    };
    let profile = match session.profile {
        Profile::Strict => "strict",
        Profile::Nested => "nested",
    };
    lines.add("made", &format!("{} ago, {life}", units::age(&session.created)));
    lines.add("tier", &format!("{}, profile {profile}", session.tier));
    lines.add("protection", &protection(session));
    lines.add("limits", &limits(session));
    lines.add("folder", &session.folder);
    lines.add("grants", &grants(session));
    let own =
        [("outputs", &session.outputs), ("uploads", &session.uploads), ("skills", &session.skills)];
    for (word, place) in own {
        if let Some(place) = place {
            lines.add(word, &show::raw(place));
        }
    }
    lines.add("network", &self::network(session, network));
    lines.add("commands", &commands(session));
    lines.add("sandbox", &sandbox(session));
    if session.pending > 0 {
        let requests = usize::try_from(session.pending).unwrap_or(usize::MAX);
        let requests = units::count(requests, "request waits", "requests wait");
        lines.add("requests", &format!("{requests} for your answer: `cowork requests`"));
    }
    if let Some(usage) = usage {
        lines.add("usage", &used(usage));
    }
    if !session.labels.is_empty() {
        lines.add("labels", &labels(&session.labels));
    }
    lines.text
}

fn protection(session: &Session) -> String {
    if session.enforcement.is_empty() {
        return "nothing runs that would be protected".to_owned();
    }
    let in_force = session.enforcement.iter().filter(|layer| layer.state == "in force");
    let names: Vec<&str> = in_force.map(|layer| layer.layer.as_str()).collect();
    let (count, all) = (names.len(), session.enforcement.len());
    let mut lines = vec![format!("{count} of {all} layers in force: {}", names.join(", "))];
    let others = session.enforcement.iter().filter(|layer| layer.state != "in force");
    lines.extend(
        others.map(|layer| format!("{}: {} ({})", layer.state, layer.layer, layer.observed)),
    );
    lines.join("\n")
}

fn limits(session: &Session) -> String {
    let limits = session.limits.iter().map(|limit| {
        let kept = match limit.strength.as_str() {
            "none" => "NOT enforced".to_owned(),
            strength => format!("{strength}, {}", limit.means),
        };
        format!("{:<10} {:<8} {kept}", limit.limit, limit.value)
    });
    none_as_word(limits.collect::<Vec<_>>().join("\n"))
}

fn grants(session: &Session) -> String {
    let mut lines = Vec::new();
    for grant in &session.grants {
        let access = grant.access.as_str();
        lines.push(format!("{access} {} -> {}", show::raw(&grant.path), grant.at));
        let submounts = grant.submounts.iter();
        lines.extend(submounts.map(|at| format!("   with what is mounted at {}", show::raw(at))));
        let direct = grant.direct.iter().map(show::raw);
        lines.extend(direct.map(|below| format!("   {below} without a record")));
        lines.extend(grant.expires.as_ref().map(|when| format!("   until {when}")));
        lines.extend(grant.sensitive.as_ref().map(|why| format!("   sensitive: {why}")));
    }
    none_as_word(lines.join("\n"))
}

fn network(session: &Session, network: Option<&Network>) -> String {
    let mut lines = vec![network::summary(session.network.as_ref(), network)];
    lines.extend(network::published(network));
    lines.join("\n")
}

fn none_as_word(text: String) -> String {
    if text.is_empty() { "none".to_owned() } else { text }
}

fn commands(session: &Session) -> String {
    let count = format!("{} started, {} running", session.commands, session.running.len());
    let running = session.running.iter();
    let running =
        running.map(|command| format!("#{} {}", command.number, show::words(&command.argv)));
    std::iter::once(count).chain(running).collect::<Vec<_>>().join("\n")
}

fn sandbox(session: &Session) -> String {
    let Some(sandbox) = &session.sandbox else { return "none".to_owned() };
    let heart = match (session.state, sandbox.connected) {
        (State::Paused, _) => "stands still".to_owned(),
        (_, true) => "answers".to_owned(),
        (_, false) => format!("{} heartbeats missed", sandbox.missed),
    };
    let again = match usize::try_from(sandbox.restarts).unwrap_or(usize::MAX) {
        0 => String::new(),
        restarts => format!(", made again {}", units::count(restarts, "time", "times")),
    };
    format!("process {}, {heart}, for {}{again}", sandbox.pid, units::age(&sandbox.since))
}

/// What a session uses, on one line.
fn used(usage: &Usage) -> String {
    let processes = usize::try_from(usage.processes).unwrap_or(usize::MAX);
    format!(
        "cpu {}, memory {} (most {}), disk {}, {}",
        units::span(Duration::from_micros(usage.cpu_us)),
        units::bytes(usage.memory),
        units::bytes(usage.memory_peak),
        units::bytes(usage.disk),
        units::count(processes, "process", "processes"),
    )
}
