//! Operations on agents.

use super::operation::Operation;
use super::schemas::Schemas;
use cowork_client::types::{Agent, AgentOptions, PreparedAgent};

pub(super) fn operations(s: &mut Schemas) -> Vec<Operation> {
    let all = vec![
        Operation::new("GET /v1/agents", "listAgents", "Agents that can run in sessions")
            .about("Those that are built in, and those that files of the user's define.")
            .gives::<Vec<Agent>>(200, "Every agent", s)
            .refuses(&[&["host"]]),
        Operation::new(
            "POST /v1/sessions/{id}/agents/{name}",
            "prepareAgent",
            "Make a session ready for an agent",
        )
        .about(
            "Shows the session the agent's program, lets it reach the agent's hosts, and gives it \
             what stands for the agent's secret. What it has already stays as it is. The answer is \
             the command that starts the agent.",
        )
        .may_take::<AgentOptions>(s)
        .gives::<PreparedAgent>(200, "The command that starts it", s)
        .refuses(&[
            &["no-agent", "bad-agent", "no-program", "no-credential"],
            &["bad-path", "no-folder", "not-folder", "sensitive", "folder-refused", "bad-name"],
            &["folder-changed", "grant-exists", "too-many", "no-grant", "no-root", "refused"],
            &[
                "bad-rule",
                "no-preset",
                "no-secret",
                "no-rule",
                "no-egress",
                "network-unenforceable",
            ],
            &["not-live", "paused", "creating", "ended", "no-sandbox", "no-answer", "no-space"],
            &["not-found", "not-executable", "host-unable", "layer-missing", "socket-refused"],
            &["step-failed", "no-door", "link", "no-file", "failed"],
        ]),
    ];
    all.into_iter().map(|operation| operation.tag("agents")).collect()
}
