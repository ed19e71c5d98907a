//! `cowork tasks` and `cowork task`: what agents were asked to do, and what came of it.

use super::{ask, on, target};
use crate::arguments::{TaskNamed, TaskOf, TaskSteer, TaskVerb, Tasks};
use crate::daemon;
use crate::failure::Failure;
use crate::show::table::{Cell, Colour, Table, Tone};
use crate::show::{self, neutral, progress, units};
use cowork_client::http::{Client, Method, Request};
use cowork_client::types::{
    ChangeKind, RequestState, Session, Steer, Task, TaskMessage, TaskState, TaskSummary,
};
use cowork_client::uri::Query;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

/// Most names that are listed of anything.
const LISTED: usize = 10;

/// `cowork tasks`.
pub(crate) fn list(options: &Tasks) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let sessions = if let Some(name) = &options.session {
        vec![super::id(&mut client, name)?]
    } else {
        let sessions: Vec<Session> = client.list(&Query::new("/v1/sessions"))?;
        sessions.into_iter().map(|session| session.id).collect()
    };
    let mut tasks: Vec<Task> = Vec::new();
    for session in sessions {
        tasks.extend(client.list(&Query::new(target(&session, "/tasks")))?);
    }
    if options.output.json {
        return show::json(&tasks);
    }
    let mut table = Table::new(["SESSION", "TASK", "AGENT", "STATE", "AGE", "PROMPT"]);
    for task in &tasks {
        let (state, tone) = state(task.state);
        table.row([
            (&task.session).into(),
            task.number.to_string().into(),
            neutral::line(&task.agent).into(),
            Cell::new(state, tone),
            units::age(&task.created).into(),
            start(&task.prompt).into(),
        ]);
    }
    show::print(table.render(Colour::of_stdout()))
}

fn start(prompt: &str) -> String {
    const SHOWN: usize = 60;
    let line = neutral::line(prompt.trim());
    let short: String = line.chars().take(SHOWN).collect();
    if short.len() < line.len() { format!("{short}…") } else { short }
}

fn state(state: TaskState) -> (&'static str, Tone) {
    match state {
        TaskState::Waiting => ("waiting", Tone::Plain),
        TaskState::Running => ("running", Tone::Good),
        TaskState::Paused => ("paused", Tone::Warning),
        TaskState::Asking => ("asking", Tone::Warning),
        TaskState::Done => ("done", Tone::Good),
        TaskState::Failed => ("failed", Tone::Bad),
        TaskState::Cancelled => ("cancelled", Tone::Plain),
        TaskState::Interrupted => ("interrupted", Tone::Bad),
    }
}

/// What `cowork ask` returns for a task that is over.
pub(crate) fn exit(state: TaskState) -> ExitCode {
    ExitCode::from(match state {
        TaskState::Done => 0,
        TaskState::Failed => 3,
        TaskState::Cancelled => 4,
        _ => 5,
    })
}

/// `cowork task`.
pub(crate) fn task(options: &TaskOf) -> Result<ExitCode, Failure> {
    match &options.verb {
        TaskVerb::Show(named) => show_one(named),
        TaskVerb::Steer(steer) => say(steer),
        TaskVerb::Pause(named) => order(named, "/pause", "pausing the task"),
        TaskVerb::Resume(named) => order(named, "/resume", "resuming the task"),
        TaskVerb::Cancel(named) => order(named, "/cancel", "cancelling the task"),
    }
}

/// The session and the task that are meant.
fn find(client: &mut Client, named: &TaskNamed) -> Result<(String, Task), Failure> {
    if let Some(number) = named.task {
        return on(client, &named.session, |client, id| {
            client.get(target(id, &format!("/tasks/{number}")))
        });
    }
    let (id, tasks) = on(client, &named.session, |client, id| {
        client.list::<Task>(&Query::new(target(id, "/tasks")))
    })?;
    let last = tasks.into_iter().next_back();
    let last = last.ok_or_else(|| {
        let sentence = format!("session `{id}` has no task");
        Failure::input(sentence, format!("give it one: `cowork ask --session {id} PROMPT`"))
    })?;
    Ok((id, last))
}

fn show_one(named: &TaskNamed) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let (id, task) = find(&mut client, named)?;
    let path = target(&id, &format!("/tasks/{}", task.number));
    let task: Task = client.get(Query::new(path).with("so_far", "true"))?;
    let path = target(&id, &format!("/tasks/{}/messages", task.number));
    let messages: Vec<TaskMessage> = client.list(&Query::new(path))?;
    if named.output.json {
        return show::json(&serde_json::json!({ "task": task, "messages": messages }));
    }
    let mut text: String = messages.iter().map(ask::message_text).collect();
    text.push_str(&ask::plan_text(&task.plan));
    text.push_str(&outcome(&task));
    show::print(text)
}

fn say(options: &TaskSteer) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let (id, task) = find(&mut client, &options.named)?;
    let path = target(&id, &format!("/tasks/{}/steer", task.number));
    let steer = Steer { prompt: ask::prompt(&options.say)? };
    let task: Task = client.send(Method::Post, path, &steer)?;
    done(&options.named, &task)
}

fn order(named: &TaskNamed, below: &str, what: &str) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let (id, task) = find(&mut client, named)?;
    let path = target(&id, &format!("/tasks/{}{below}", task.number));
    let request = Request::new(Method::Post, path);
    let task: Task = progress::during(what, || client.json(&request))?;
    done(named, &task)
}

fn done(named: &TaskNamed, task: &Task) -> Result<ExitCode, Failure> {
    if named.output.json { show::json(task) } else { Ok(ExitCode::SUCCESS) }
}

/// Where a task is, and what came of it.
pub(crate) fn outcome(task: &Task) -> String {
    let (state, _) = state(task.state);
    let mut text = format!("task {} of session {}: {state}", task.number, task.session);
    if let Some(reason) = &task.reason {
        cowork_sys::ignore(write!(text, ": {}", neutral::text(&reason.sentence)));
    }
    text.push('\n');
    if let Some(summary) = &task.summary {
        add_summary(&mut text, &task.session, summary);
    }
    text
}

fn add_summary(text: &mut String, session: &str, summary: &TaskSummary) {
    let mut line = |name: &str, what: String| {
        cowork_sys::ignore(writeln!(text, "  {name:<8} {what}"));
    };
    for change in summary.changes.iter().take(LISTED) {
        let kind = match change.kind {
            ChangeKind::Added => "added",
            ChangeKind::Modified => "changed",
            ChangeKind::Deleted => "deleted",
            ChangeKind::Renamed => "renamed",
            ChangeKind::Attributes => "mode",
        };
        line(kind, show::raw(&change.host));
    }
    let more = summary.changes.len().saturating_sub(LISTED) as u64 + summary.more_changes;
    if more > 0 {
        line("", format!("and {more} more: see `cowork changes {session}`"));
    }
    if !summary.sets.is_empty() {
        let sets: Vec<String> = summary.sets.iter().map(|set| format!("--set {set}")).collect();
        line("undo", format!("cowork undo {session} {}", sets.join(" ")));
    }
    for host in summary.reached.iter().take(LISTED) {
        let traffic = format!("{} up, {} down", units::bytes(host.up), units::bytes(host.down));
        line("reached", format!("{} ({traffic})", neutral::line(&host.host)));
    }
    for refused in summary.refused.iter().take(LISTED) {
        let host = neutral::line(&refused.target.host);
        line(
            "refused",
            format!("{host}:{} ({})", refused.target.port, neutral::line(&refused.code)),
        );
    }
    for refused in summary.refused_changes.iter().take(LISTED) {
        let (grant, path) = (neutral::line(&refused.grant), show::raw(&refused.path));
        line("refused", format!("{grant}/{path} ({})", neutral::line(&refused.reason)));
    }
    for request in summary.requests.iter().take(LISTED) {
        let state = match request.state {
            RequestState::Pending => "waits",
            RequestState::Allowed => "allowed",
            RequestState::Rejected => "rejected",
            RequestState::Expired => "expired",
        };
        line("asked", format!("{state}: {}", start(&request.wanted)));
    }
    line("used", used(summary));
    for unknown in &summary.unknown {
        line("unknown", neutral::line(unknown));
    }
}

fn used(summary: &TaskSummary) -> String {
    let usage = &summary.usage;
    let cached = usage.cache_read_tokens.saturating_add(usage.cache_written_tokens);
    let mut text = format!(
        "{}, {} tools, {} tokens in ({cached} cached), {} out",
        units::span(Duration::from_millis(summary.wall_ms)),
        summary.tools,
        usage.input_tokens.saturating_add(cached),
        usage.output_tokens
    );
    if let Some(cost) = usage.cost_usd {
        cowork_sys::ignore(write!(text, ", ${cost:.4}"));
    }
    text
}
