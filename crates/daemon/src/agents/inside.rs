//! Agents that are installed in a session: by npm, into a folder of the session's own home.

use crate::daemon::Daemon;
use crate::session::Session;
use crate::trouble::Trouble;
use cowork_agents::{Agent, Install, Words};
use cowork_client::types::{NewCommand, Raw};
use std::sync::Arc;

/// The preset of the registry that they come from.
pub(super) const REGISTRY: &str = "npm";

/// The folder that npm installs an agent in, as the session sees it.
fn prefix(agent: &Agent, words: &Words) -> String {
    format!("{}/.agents/{}", words.home, agent.name)
}

/// Where the program of an installed agent is, as the session sees it.
pub(super) fn program(agent: &Agent, install: &Install, words: &Words) -> String {
    let (prefix, package) = (prefix(agent, words), install.package(words));
    format!("{prefix}/node_modules/{package}/{}", words.put_into(&install.program))
}

/// The command that installs it. Scripts of packages do not run: none of it needs them.
pub(super) fn command(agent: &Agent, install: &Install, words: &Words) -> Vec<String> {
    let prefix = prefix(agent, words);
    let wanted = install.wanted(words);
    let words = ["npm", "install", "--prefix", &prefix, "--ignore-scripts", "--no-audit"];
    let more = ["--no-fund", "--no-update-notifier", "--loglevel=error", &wanted];
    words.into_iter().chain(more).map(ToOwned::to_owned).collect()
}

impl Daemon {
    /// Runs a short command in a session, whose home is nobody else's: whether it succeeded.
    pub(super) async fn succeeds(
        self: &Arc<Self>,
        session: &Arc<Session>,
        words: &[&str],
    ) -> Result<bool, Trouble> {
        let command = NewCommand {
            argv: words.iter().map(|word| Raw::Text((*word).to_owned())).collect(),
            timeout: Some("10s".to_owned()),
            ..NewCommand::default()
        };
        let run = self.start_command(session, command).await?;
        let mut progress = run.progress.subscribe();
        while run.is_running() {
            if progress.changed().await.is_err() {
                break;
            }
        }
        Ok(run.command().code == Some(0))
    }
}
