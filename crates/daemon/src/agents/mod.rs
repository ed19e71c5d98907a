//! Agents in sessions: which there are, where their programs lie, and what a session is given to run
//! one.
//!
//! A session gets exactly what the agent's definition says: the folder of the program, read only; the
//! hosts; what stands for a secret; a folder of settings that it cannot change. Each of it by the same
//! way as if the user had asked for it, so each is recorded and can be taken back.
//!
//! Deliberately absent: starting the agent. Whoever asked for the preparation does, as with any command.

mod find;
mod inside;
mod known;
mod needs;
mod prepare;
mod settings;

use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_agents::{Need, Protocol};
use cowork_client::types::{Agent, AgentCredential, AgentSecret, Profile, Raw, TaskProtocol};
use known::Known;
use std::os::unix::ffi::OsStrExt;

/// What folders of agents' programs are called in a session, before the agent's name.
pub(crate) const SHOWN_AS: &str = "agent-";

impl Daemon {
    /// Every agent that there is, with its program as far as it is found on this host.
    pub(crate) fn agents(&self) -> Result<Vec<Agent>, Trouble> {
        let secrets = self.secrets.all()?;
        let stored = |name: &str| secrets.contains_key(name);
        Ok(known::all().iter().map(|known| show(known, &stored)).collect())
    }
}

fn show(known: &Known, stored: &dyn Fn(&str) -> bool) -> Agent {
    let file = known.file.as_ref().map(|file| Raw::new(file.as_os_str().as_bytes()));
    let agent = match &known.agent {
        Ok(agent) => agent,
        Err(problem) => {
            return Agent {
                name: known.name.clone(),
                about: String::new(),
                file,
                problem: Some(problem.clone()),
                program: None,
                install: None,
                profile: Profile::Strict,
                presets: Vec::new(),
                hosts: Vec::new(),
                credentials: Vec::new(),
                task: None,
            };
        }
    };
    let words = cowork_agents::Words::of_machine();
    let found = find::on_host(agent, &find::Search::of_daemon()).ok();
    let credentials = agent.credentials.iter().map(|credential| AgentCredential {
        optional: credential.need == Need::Optional,
        secrets: credential
            .choices
            .iter()
            .map(|choice| AgentSecret {
                name: choice.secret.clone(),
                about: choice.about.clone(),
                variable: choice.variable.clone(),
                hosts: choice.hosts.clone(),
                stored: stored(&choice.secret),
            })
            .collect(),
    });
    Agent {
        name: agent.name.clone(),
        about: agent.about.clone(),
        file,
        problem: None,
        program: found.map(|found| Raw::new(found.program.as_os_str().as_bytes())),
        install: agent.install.as_ref().map(|install| install.wanted(&words)),
        profile: match agent.profile {
            cowork_agents::Profile::Strict => Profile::Strict,
            cowork_agents::Profile::Nested => Profile::Nested,
        },
        presets: agent.network.presets.clone(),
        hosts: agent.network.hosts.clone(),
        credentials: credentials.collect(),
        task: agent.task.as_ref().map(|task| protocol(task.protocol)),
    }
}

fn protocol(protocol: Protocol) -> TaskProtocol {
    match protocol {
        Protocol::ClaudeStreamJson => TaskProtocol::ClaudeStreamJson,
        Protocol::CodexExecJson => TaskProtocol::CodexExecJson,
        Protocol::Plain => TaskProtocol::Plain,
    }
}
