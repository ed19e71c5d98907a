//! Options of `cowork mcp`.

use super::SessionOptions;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "Speaks MCP on standard input and output, for a client to start it: see \
                        docs/mcp.md. Sessions that the client makes get the folders, hosts and \
                        limits named here and no others; for more, you are asked: `cowork \
                        requests`. Besides those it reaches sessions that are named with \
                        --session or have the label `mcp`. When the client leaves, the sessions it \
                        made are stopped; their files stay.")]
pub(crate) struct Mcp {
    #[command(flatten)]
    pub(crate) session: SessionOptions,

    /// A session of yours that the client may use
    #[arg(long = "session", value_name = "SESSION")]
    pub(crate) sessions: Vec<String>,
}
