//! `cowork ask`: a task for an agent, followed until it is over.

use super::{agents, target, tasks};
use crate::arguments::Ask;
use crate::daemon;
use crate::failure::{Failure, note};
use crate::request;
use crate::show::{self, neutral};
use cowork_client::http::{Client, HttpError, Method};
use cowork_client::types::{
    AgentOptions, Approvals, Decide, Decision, Event, NewTask, Page, PlanState, PlanStep, Raw,
    Request, Task, TaskMessage, TaskMessageKind,
};
use cowork_client::uri::Query;
use rustix::termios::isatty;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufRead, Read};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// Longest prompt that is read from standard input.
const MAX_PROMPT: u64 = 128 * 1024;
/// Lines of a result that are shown.
const SHOWN_LINES: usize = 8;
/// The kinds of requests that are answered with yes or no.
const PLAIN: [&str; 3] = ["tool", "host", "file"];

/// `cowork ask`.
pub(crate) fn ask(options: &Ask) -> Result<ExitCode, Failure> {
    let prompt = prompt(&options.prompt)?;
    let mut client = daemon::connect()?;
    let id = agents::session_for(&mut client, &options.agent, &options.run())?;
    let program = options.program.as_deref().map(std::path::absolute).transpose();
    let program = program.map_err(|error| {
        Failure::input("`--program` is no path", "").with_cause(error.to_string())
    })?;
    let new = NewTask {
        prompt,
        agent: Some(options.agent.clone()),
        model: options.model.clone(),
        approvals: match (options.yes, options.no) {
            (true, _) => Approvals::Auto,
            (false, true) => Approvals::Deny,
            (false, false) => Approvals::Ask,
        },
        attachments: Vec::new(),
        launch: AgentOptions {
            program: program.as_deref().map(request::raw),
            path: std::env::var_os("PATH").map(|path| Raw::new(path.as_bytes())),
            secret: options.secret.clone(),
            cwd: agents::here(&mut client, &id)?,
            ..AgentOptions::default()
        },
    };
    let newest: Page<Event> = client.get(Query::new("/v1/events").with("after", "end"))?;
    let after = newest.next.and_then(|next| next.parse().ok()).unwrap_or(0);
    let task: Task = client.send(Method::Post, target(&id, "/tasks"), &new)?;
    if !options.output.json {
        note(&format!("task {} of session {id}", task.number));
    }
    let mut view = View::new(&id, task.number, options);
    view.follow(&mut client, after)?;
    let task: Task = client.get(target(&id, &format!("/tasks/{}", task.number)))?;
    if options.output.json {
        show::print(show::json_line(&task)?)?;
    } else {
        view.finish(&task)?;
    }
    Ok(tasks::exit(task.state))
}

/// What was written, or what is on standard input.
pub(crate) fn prompt(written: &str) -> Result<String, Failure> {
    if written != "-" {
        return Ok(written.to_owned());
    }
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MAX_PROMPT + 1).read_to_string(&mut text);
    read.map_err(|error| Failure::host("cannot read standard input", Some(error.to_string())))?;
    Ok(text)
}

/// A task as it is shown while it is done.
struct View<'a> {
    session: &'a str,
    task: u32,
    options: &'a Ask,
    /// What the agent last said: if it is the answer, it is said once.
    held: Option<String>,
    /// Whether somebody can be asked.
    person: bool,
}

#[derive(Deserialize)]
struct Said {
    message: TaskMessage,
}

#[derive(Deserialize)]
struct Planned {
    plan: Vec<PlanStep>,
}

#[derive(Deserialize)]
struct Asked {
    request: Request,
}

#[derive(Deserialize)]
struct Changed {
    to: cowork_client::types::TaskState,
}

impl<'a> View<'a> {
    fn new(session: &'a str, task: u32, options: &'a Ask) -> Self {
        let person = isatty(rustix::stdio::stdin())
            && isatty(rustix::stdio::stderr())
            && options.prompt != "-"
            && !options.output.json;
        Self { session, task, options, held: None, person }
    }

    /// Shows what happens until the task is over.
    fn follow(&mut self, client: &mut Client, after: u64) -> Result<(), Failure> {
        let query = Query::new("/v1/events").with("session", self.session);
        for event in client.events(query, Some(after)) {
            let event = event?;
            let mine = event.data.get("task").and_then(Value::as_u64) == Some(self.task.into());
            let asks = event.kind == "request.pending";
            if !mine && !asks {
                continue;
            }
            if self.options.output.json {
                show::print(show::json_line(&event)?)?;
            }
            if self.show(client, &event)? == Step::Over {
                return Ok(());
            }
        }
        Ok(())
    }

    fn show(&mut self, client: &mut Client, event: &Event) -> Result<Step, Failure> {
        match event.kind.as_str() {
            "task.state" => {
                let changed: Option<Changed> = data(event);
                if changed.is_some_and(|changed| changed.to.is_over()) {
                    return Ok(Step::Over);
                }
            }
            "request.pending" => {
                if let Some(Asked { request }) = data(event) {
                    self.release();
                    self.answer(client, &request)?;
                }
            }
            _ if self.options.output.json => {}
            "task.message" | "task.tool" => {
                if let Some(Said { message }) = data(event) {
                    self.say(client, message)?;
                }
            }
            "task.plan" => {
                if let Some(Planned { plan }) = data(event) {
                    self.release();
                    tell(&plan_text(&plan));
                }
            }
            _ => {}
        }
        Ok(Step::GoOn)
    }

    fn say(&mut self, client: &mut Client, mut message: TaskMessage) -> Result<(), Failure> {
        self.release();
        if message.cut && message.kind == TaskMessageKind::Text {
            message = self.whole(client, message)?;
        }
        match message.kind {
            // The user knows what they asked.
            TaskMessageKind::User if message.number == 1 => {}
            TaskMessageKind::Text => self.held = Some(message.text),
            _ => tell(&message_text(&message)),
        }
        Ok(())
    }

    /// All of a message that was cut in the event.
    fn whole(&self, client: &mut Client, message: TaskMessage) -> Result<TaskMessage, HttpError> {
        let path = target(self.session, &format!("/tasks/{}/messages", self.task));
        let after = message.number.saturating_sub(1).to_string();
        let page: Page<TaskMessage> =
            client.get(Query::new(path).with("after", after).with("limit", "1"))?;
        Ok(page.items.into_iter().next().unwrap_or(message))
    }

    /// Shows what is held back.
    fn release(&mut self) {
        if let Some(text) = self.held.take() {
            tell(&(neutral::text(&text) + "\n"));
        }
    }

    /// A question to the user.
    fn answer(&self, client: &mut Client, request: &Request) -> Result<(), Failure> {
        let kind = request.kind.as_str();
        let wants = neutral::text(&request.wanted);
        if !self.person || !PLAIN.contains(&kind) {
            let how = if kind == "folder" { " --path FOLDER" } else { "" };
            note(&format!(
                "request {} waits for your answer ({kind}): {wants}\n  \
                 answer with `cowork decide {} allow{how}`, or `reject`",
                request.id, request.id
            ));
            return Ok(());
        }
        tell(&format!("? {kind}: {wants}\n  {}\n", neutral::text(&request.reason)));
        let decision = loop {
            tell("  [y]es, yes for this [s]ession, [n]o: ");
            let mut line = String::new();
            let read = std::io::stdin().lock().read_line(&mut line);
            match (read, line.trim()) {
                (Ok(0) | Err(_), _) | (_, "n" | "no") => break Decision::RejectOnce,
                (_, "y" | "yes") => break Decision::AllowOnce,
                (_, "s" | "session") => break Decision::AllowSession,
                _ => {}
            }
        };
        decide(client, request.id, decision)
    }

    /// Shows the answer, and what came of the task.
    fn finish(&mut self, task: &Task) -> Result<(), Failure> {
        let answer = task.answer.as_deref().map(str::trim_end).unwrap_or_default();
        if self.held.as_deref().map(str::trim_end) != Some(answer) {
            self.release();
        }
        let good = task.state == cowork_client::types::TaskState::Done;
        if good && !answer.is_empty() {
            show::print(neutral::text(answer) + "\n")?;
        }
        tell(&tasks::outcome(task));
        Ok(())
    }
}

/// Whether there is more to come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    GoOn,
    Over,
}

fn data<T: DeserializeOwned>(event: &Event) -> Option<T> {
    T::deserialize(&event.data).ok()
}

fn decide(client: &mut Client, request: u64, decision: Decision) -> Result<(), Failure> {
    let decide =
        Decide { decision, path: None, name: None, access: None, force: false, note: None };
    let path = format!("/v1/requests/{request}/decide");
    match client.send::<Request>(Method::Post, path, &decide) {
        Ok(_) => Ok(()),
        Err(HttpError::Problem(problem)) if problem.status < 500 => {
            // Somebody else was faster.
            note(&problem.title);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Tells what happens.
#[expect(clippy::print_stderr, reason = "standard output is for the answer")]
fn tell(text: &str) {
    eprint!("{text}");
}

/// A message, for people.
pub(crate) fn message_text(message: &TaskMessage) -> String {
    let tool = neutral::line(message.tool.as_deref().unwrap_or("a tool"));
    let text = neutral::text(message.text.trim_end());
    let first = text.lines().next().unwrap_or_default();
    match message.kind {
        TaskMessageKind::Text => format!("{text}\n"),
        TaskMessageKind::User => indented("< ", &text),
        TaskMessageKind::Thought => indented("  … ", &text),
        TaskMessageKind::Note => indented("  ! ", &text),
        TaskMessageKind::Tool => {
            let more = if text.lines().count() > 1 { " …" } else { "" };
            format!("> {tool}: {first}{more}\n")
        }
        TaskMessageKind::Result if message.failed && text.is_empty() => {
            format!("  {tool} failed\n")
        }
        TaskMessageKind::Result if message.failed => indented(&format!("  {tool} failed: "), &text),
        TaskMessageKind::Result => indented("  ", &text),
    }
}

/// The first lines of a text.
fn indented(start: &str, text: &str) -> String {
    let mut out = String::new();
    let lines = text.lines().count();
    for (index, line) in text.lines().take(SHOWN_LINES).enumerate() {
        out.push_str(if index == 0 { start } else { "  " });
        out.push_str(line);
        out.push('\n');
    }
    if lines > SHOWN_LINES {
        cowork_sys::ignore(writeln!(out, "  ({} more lines)", lines - SHOWN_LINES));
    }
    out
}

/// A plan, for people.
pub(crate) fn plan_text(plan: &[PlanStep]) -> String {
    let line = |step: &PlanStep| {
        let mark = match step.state {
            PlanState::Pending => "[ ]",
            PlanState::Active => "[>]",
            PlanState::Done => "[x]",
        };
        format!("  {mark} {}\n", neutral::line(&step.text))
    };
    plan.iter().map(line).collect()
}
