//! `cowork claude` and the like: agents in sessions; `cowork agents` lists them.

use super::{exec, session, target};
use crate::arguments::{AgentNamed, AgentRun, Agents, DEFAULT, Start};
use crate::attached::Form;
use crate::environment;
use crate::failure::{Failure, note};
use crate::request::{self, Consent};
use crate::show::table::{Cell, Colour, Table, Tone};
use crate::show::{self, neutral, progress};
use crate::streams::Streams;
use crate::{daemon, terminal};
use cowork_client::http::{Client, HttpError, Method, Request};
use cowork_client::types::{
    Access, Agent, AgentOptions, AgentSource, AgentStep, NewCommand, NewGrant, NewSession,
    PreparedAgent, Profile, Raw, Session, State, Translated, WantedWrites,
};
use cowork_client::uri::{self, Query};
use cowork_sandbox::folder::Folder;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The label of a session that was made for an agent.
const LABEL: &str = "agent";

/// `cowork agent NAME`.
pub(crate) fn named(options: &AgentNamed) -> Result<ExitCode, Failure> {
    run(&options.name, &options.run)
}

/// Runs an agent in a session, and returns its exit status.
pub(crate) fn run(name: &str, options: &AgentRun) -> Result<ExitCode, Failure> {
    let own = Streams::look()?;
    let mut client = daemon::connect()?;
    let agent = find(&mut client, name)?;
    let chosen = choose(&mut client, &agent, options)?;
    let prepared = match make_ready(&mut client, &agent, options, &chosen.id) {
        Ok(prepared) => prepared,
        Err(failure) => {
            if chosen.origin == Origin::Made {
                // Nobody has worked in it.
                drop(client.call(&Request::new(Method::Delete, target(&chosen.id, ""))));
            }
            return Err(failure);
        }
    };
    if chosen.origin == Origin::Made {
        note(&format!("session {}", chosen.id));
    }
    let mut argv = prepared.argv;
    argv.extend(exec::words(&options.arguments));
    let mut env = prepared.env;
    env.extend(environment::for_daemon(&options.environment)?);
    let command = NewCommand {
        argv,
        cwd: Some(prepared.cwd),
        env,
        streams: exec::streams(&own, Form::Bytes),
        size: terminal::size(),
        umask: Some(environment::umask()),
        ..NewCommand::default()
    };
    exec::start(&chosen.id, &command, &own, Form::Bytes)
}

/// The session that an agent has for the current folder, or a new one; with a name, that one.
pub(crate) fn session_for(
    client: &mut Client,
    name: &str,
    options: &AgentRun,
) -> Result<String, Failure> {
    let agent = find(client, name)?;
    let chosen = choose(client, &agent, options)?;
    if chosen.origin == Origin::Made {
        note(&format!("session {}", chosen.id));
    }
    Ok(chosen.id)
}

fn find(client: &mut Client, name: &str) -> Result<Agent, Failure> {
    let agents: Vec<Agent> = client.get("/v1/agents")?;
    let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
    let hint = format!("there are {}; see `cowork agents`", names.join(", "));
    let found = agents.iter().find(|agent| agent.name == name);
    let found = found.ok_or_else(|| Failure::input(format!("there is no agent `{name}`"), hint))?;
    match &found.problem {
        None => Ok(found.clone()),
        Some(problem) => {
            let file = found.file.as_ref().map(show::raw).unwrap_or_default();
            let sentence = format!("the definition of the agent `{name}` cannot be understood");
            let failure = Failure::input(sentence, format!("mend or remove `{file}`"));
            Err(failure.with_cause(problem.clone()))
        }
    }
}

/// Whether a session was there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Found,
    Made,
}

/// The session that an agent runs in.
struct Chosen {
    id: String,
    origin: Origin,
}

/// The session that the user names, or one for the current folder; it runs.
fn choose(client: &mut Client, agent: &Agent, options: &AgentRun) -> Result<Chosen, Failure> {
    let found = match &options.session {
        Some(name) => Some(session(client, name)?.1),
        None if options.new => None,
        None => suitable(client, agent, options)?,
    };
    let Some(found) = found else {
        let id = make(client, agent, options)?;
        return Ok(Chosen { id, origin: Origin::Made });
    };
    if matches!(found.state, State::Stopped | State::Failed) {
        let start = Request::new(Method::Post, target(&found.id, "/start"));
        progress::during("starting the session", || client.json::<Session>(&start))?;
    }
    if options.session.is_none() {
        note(&format!("session {}, as before; another one with `--new`", found.id));
    }
    Ok(Chosen { id: found.id, origin: Origin::Found })
}

fn profile(agent: &Agent, options: &AgentRun) -> Profile {
    if options.nested { Profile::Nested } else { agent.profile }
}

/// The session that the agent had for the current folder, or the default one if it has the folder.
fn suitable(
    client: &mut Client,
    agent: &Agent,
    options: &AgentRun,
) -> Result<Option<Session>, Failure> {
    let folder = current()?;
    let here = request::raw(&folder);
    let mut sessions: Vec<Session> = client.list(&Query::new("/v1/sessions"))?;
    sessions.retain(|session| {
        session.state != State::Ended && session.profile == profile(agent, options)
    });
    // The newest first.
    sessions.sort_by(|one, other| other.created.cmp(&one.created));
    let mine = |session: &&Session| {
        let first = session.grants.first();
        let staged = first.is_some_and(|grant| grant.access == Access::Staged);
        session.labels.get(LABEL) == Some(&agent.name)
            && first.is_some_and(|grant| grant.path == here)
            && (staged || !options.staged)
    };
    if let Some(found) = sessions.iter().find(mine) {
        return Ok(Some(found.clone()));
    }
    let home = cowork_client::places::home().and_then(|home| Folder::open(&home).ok());
    let home = home.as_ref().map(Folder::path);
    let fits = |session: &&Session| {
        let has = session.grants.iter().any(|grant| {
            let path = grant.path.bytes().map(std::ffi::OsString::from_vec).map(PathBuf::from);
            path.is_some_and(|path| folder.starts_with(path))
        });
        // Nobody means their whole home.
        session.id == DEFAULT && !options.staged && (has || home == Some(folder.as_path()))
    };
    Ok(sessions.iter().find(fits).cloned())
}

/// The folder that the caller is in.
pub(crate) fn current() -> Result<PathBuf, Failure> {
    let here = Folder::open(Path::new("."));
    let here =
        here.map_err(|error| Failure::host("there is no current folder", Some(error.to_string())))?;
    Ok(here.path().to_path_buf())
}

/// Makes a session for the current folder.
fn make(client: &mut Client, agent: &Agent, options: &AgentRun) -> Result<String, Failure> {
    let consent = if options.force { Consent::Forced } else { Consent::None };
    let profile = profile(agent, options);
    let access = match (profile, options.staged) {
        (_, true) => Access::Staged,
        (Profile::Strict, false) => Access::Write,
        // No broker can follow a program that mounts folders anew.
        (Profile::Nested, false) => Access::Direct,
    };
    let folder = request::folder(&current()?, access, consent)?;
    if profile == Profile::Nested {
        let changes = match access {
            Access::Staged => "changes of the folder wait until `cowork apply`",
            _ => "changes of the folder are not recorded and cannot be undone",
        };
        note(&format!("nested: {} may use its own sandbox, and {changes}", agent.name));
    }
    let wanted = NewSession {
        profile,
        grants: vec![NewGrant {
            path: request::raw(&folder),
            access,
            name: None,
            force: options.force,
            direct: Vec::new(),
            writes: WantedWrites::default(),
            expires: None,
        }],
        labels: [(LABEL.to_owned(), agent.name.clone())].into(),
        ..NewSession::default()
    };
    let session: Session = progress::during("making the session", || {
        client.send(Method::Post, "/v1/sessions", &wanted)
    })?;
    for submount in session.grants.iter().flat_map(|grant| &grant.submounts) {
        let submount = submount.lossy();
        note(&format!("`{submount}` is mounted inside the folder and comes along"));
    }
    Ok(session.id)
}

/// Makes a session ready for the agent, which is installed first if the user wants that.
fn make_ready(
    client: &mut Client,
    agent: &Agent,
    options: &AgentRun,
    id: &str,
) -> Result<PreparedAgent, Failure> {
    let path = format!("/agents/{}", uri::segment(&agent.name));
    let path = target(id, &path);
    let program = options.program.as_deref().map(absolute).transpose()?;
    let wanted = AgentOptions {
        program: program.as_deref().map(request::raw),
        path: std::env::var_os("PATH").map(|path| Raw::new(path.as_bytes())),
        from: if options.install { AgentSource::Session } else { AgentSource::Any },
        secret: options.secret.clone(),
        cwd: here(client, id)?,
        ..AgentOptions::default()
    };
    let ask = |wanted: &AgentOptions, client: &mut Client| {
        progress::during("making the session ready", || {
            client.send::<PreparedAgent>(Method::Post, &path, wanted)
        })
    };
    match ask(&wanted, client) {
        Err(HttpError::Problem(problem)) if options.install && problem.code == "no-program" => {}
        outcome => return Ok(outcome?),
    }
    let step = AgentOptions { step: AgentStep::Install, ..AgentOptions::default() };
    let install = ask(&step, client)?;
    let package = agent.install.as_deref().unwrap_or(&agent.name);
    note(&format!("installing {package} in the home of session {id}, from the npm registry"));
    let own = Streams::look()?;
    let command = NewCommand {
        argv: install.argv,
        cwd: Some(install.cwd),
        env: install.env,
        streams: exec::streams(&own, Form::Bytes),
        size: terminal::size(),
        ..NewCommand::default()
    };
    if exec::start(id, &command, &own, Form::Bytes)? != ExitCode::SUCCESS {
        let sentence = format!("{package} could not be installed");
        return Err(Failure::host(sentence, None)
            .with_hint("see what npm says above, and `cowork net` for what was refused"));
    }
    Ok(ask(&wanted, client)?)
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        let sentence = format!("`{}` is no path of a program", path.display());
        Failure::input(sentence, "").with_cause(error.to_string())
    })
}

/// The current folder as the session sees it, if it does.
pub(crate) fn here(client: &mut Client, id: &str) -> Result<Option<Raw>, Failure> {
    let Ok(folder) = current() else { return Ok(None) };
    let Some(folder) = folder.to_str() else { return Ok(None) };
    let query = Query::new(target(id, "/path")).with("host", folder);
    match client.json::<Translated>(&Request::get(query)) {
        Ok(translated) => Ok(Some(translated.session)),
        Err(HttpError::Problem(problem)) if problem.status == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Where a command of a session starts.
pub(crate) fn start_of(
    client: &mut Client,
    id: &str,
    start: &Start,
) -> Result<Option<Raw>, Failure> {
    match start {
        Start { here: true, .. } => here(client, id)?.map(Some).ok_or_else(not_here),
        Start { folder, .. } => Ok(folder.as_deref().map(request::raw)),
    }
}

/// Why a command cannot start in the current folder.
pub(crate) fn not_here() -> Failure {
    Failure::input("the session does not see the current folder", "grant it, or leave `--here` out")
}

/// `cowork agents`.
pub(crate) fn list(options: &Agents) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let agents: Vec<Agent> = client.get("/v1/agents")?;
    if options.output.json {
        return show::json(&agents);
    }
    let mut table = Table::new(["NAME", "PROGRAM", "CREDENTIAL", "WALLS", "ABOUT"]);
    for agent in &agents {
        if let Some(problem) = &agent.problem {
            let file = agent.file.as_ref().map(show::raw).unwrap_or_default();
            table.row([
                (&agent.name).into(),
                Cell::new("unusable", Tone::Bad),
                "".into(),
                "".into(),
                neutral::line(&format!("{file}: {problem}")).into(),
            ]);
            continue;
        }
        table.row([
            (&agent.name).into(),
            program(agent),
            credential(agent),
            match agent.profile {
                Profile::Strict => "strict",
                Profile::Nested => "nested",
            }
            .into(),
            neutral::line(&agent.about).into(),
        ]);
    }
    show::print(table.render(Colour::of_stdout()))
}

fn program(agent: &Agent) -> Cell {
    match (&agent.program, &agent.install) {
        (Some(program), _) => Cell::new(show::raw(program), Tone::Plain),
        (None, Some(_)) => Cell::new("not here: --install", Tone::Warning),
        (None, None) => Cell::new("not here", Tone::Warning),
    }
}

fn credential(agent: &Agent) -> Cell {
    let mut words = Vec::new();
    let mut tone = Tone::Plain;
    for credential in &agent.credentials {
        match credential.secrets.iter().find(|secret| secret.stored) {
            Some(secret) => words.push(secret.name.clone()),
            None if credential.optional => {}
            None => {
                tone = Tone::Warning;
                let names: Vec<&str> =
                    credential.secrets.iter().map(|secret| secret.name.as_str()).collect();
                words.push(format!("none: {}", names.join(" or ")));
            }
        }
    }
    Cell::new(words.join(", "), tone)
}
