//! `cowork init` and `cowork delete`: the session named `default`.

use super::sessions::{Keep, remove_one};
use super::{status, target};
use crate::arguments::{DEFAULT, Delete, Init, WriteOptions};
use crate::daemon;
use crate::failure::{Failure, note};
use crate::network;
use crate::request::{self, Consent};
use crate::show::{self, progress};
use cowork_client::http::{Client, HttpError, Method, Request};
use cowork_client::types::{
    Access, NewGrant, NewSession, Session, State, WantedLimits, WantedSkills, WantedWrites,
};
use cowork_policy::{Bytes, Cpus};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// What the session calls the folder to work in, below `mnt` and at the top.
const WORKSPACE: &str = "workspace";

/// `cowork init`.
pub(crate) fn init(options: &Init) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let session = match client.get::<Session>(target(DEFAULT, "")) {
        Ok(session) => again(&mut client, options, session)?,
        Err(HttpError::Problem(problem)) if problem.status == 404 => make(&mut client, options)?,
        Err(error) => return Err(error.into()),
    };
    if options.output.json {
        show::json(&session)
    } else {
        show::print(status::text(&session, None, None))
    }
}

/// There is one already: it is started if it does not run.
fn again(client: &mut Client, options: &Init, session: Session) -> Result<Session, Failure> {
    let asked = options.cpus.is_some() || options.memory.is_some() || options.disk.is_some();
    if asked {
        note("the session `default` exists already: change its limits with `cowork set default`");
    }
    if options.workspace.is_some() {
        note("the session `default` exists already: grant folders with `cowork grant default`");
    }
    if options.skills.is_some() {
        note("the session `default` exists already: what it sees as skills is fixed");
    }
    if options.network.asked().is_some() {
        note(
            "the session `default` exists already: change its network with `cowork allow default`",
        );
    }
    match session.state {
        State::Stopped | State::Failed => {
            let start = Request::new(Method::Post, target(DEFAULT, "/start"));
            Ok(progress::during("starting the session", || client.json(&start))?)
        }
        State::Creating | State::Ready | State::Running | State::Paused | State::Ended => {
            Ok(session)
        }
    }
}

fn make(client: &mut Client, options: &Init) -> Result<Session, Failure> {
    let workspace = workspace(options)?;
    let policy = network::policy(&options.network)?;
    let consent = if options.force { Consent::Forced } else { Consent::None };
    let skills = options.skills.as_deref().map(|skills| -> Result<WantedSkills, Failure> {
        let path = request::folder(skills, Access::Read, consent)?;
        Ok(WantedSkills { path: request::raw(&path), force: options.force })
    });
    let wanted = NewSession {
        id: Some(DEFAULT.to_owned()),
        grants: vec![NewGrant {
            path: request::raw(&workspace),
            access: Access::Write,
            name: Some(WORKSPACE.to_owned()),
            force: false,
            direct: Vec::new(),
            writes: WantedWrites::default(),
            expires: None,
        }],
        limits: limits(options),
        best_effort: true,
        workspace: Some(WORKSPACE.to_owned()),
        network: network::wanted(&options.network, &policy)?,
        writes: request::writes(&WriteOptions::default(), &policy.files),
        protect: request::protected(&policy.files),
        skills: skills.transpose()?,
        ..NewSession::default()
    };
    Ok(progress::during("making the session", || {
        client.send(Method::Post, "/v1/sessions", &wanted)
    })?)
}

/// What was asked for, or the usual as far as the host has it.
fn limits(options: &Init) -> WantedLimits {
    let host = cowork_sandbox::host::size();
    let cpus = || Cpus::from_millis(host.cpus.min(4).saturating_mul(1000)).ok();
    let memory = || Bytes::new(4 << 30).min(host.memory);
    let disk = || Bytes::new(10 << 30);
    WantedLimits {
        cpus: options.cpus.or_else(cpus).map(|cpus| cpus.to_string()),
        memory: Some(options.memory.unwrap_or_else(memory).to_string()),
        disk: Some(options.disk.unwrap_or_else(disk).to_string()),
        ..WantedLimits::default()
    }
}

/// The folder to work in, made if it is missing.
fn workspace(options: &Init) -> Result<PathBuf, Failure> {
    let home = cowork_client::places::home();
    let path = match (&options.workspace, &home) {
        (Some(path), home) => request::expand(path, home.as_deref()),
        (None, Some(home)) => home.join("cowork-workspace"),
        (None, None) => {
            let hint = "name a folder with `--workspace`";
            return Err(Failure::input("this user has no home for a workspace", hint));
        }
    };
    std::fs::create_dir_all(&path).map_err(|error| {
        let sentence = format!("cannot make the workspace `{}`", path.display());
        Failure::host(sentence, Some(error.to_string()))
    })?;
    request::folder(&path, Access::Write, Consent::None)
}

/// `cowork delete`.
pub(crate) fn delete(options: &Delete) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    super::session(&mut client, DEFAULT)?;
    remove_one(&mut client, DEFAULT, Keep::from(options.keep_outputs))?;
    if options.output.json {
        return show::json(&json!({ "removed": [DEFAULT] }));
    }
    Ok(ExitCode::SUCCESS)
}
