//! The tools of MCP, over the same listeners and for the same people as the rest of the API.
//!
//! Tools are a client like any other: they ask the daemon over its socket, on threads that wait, and
//! are granted nothing that the API does not grant.

use crate::daemon::Daemon;
use cowork_mcp::{Http, Link};

/// Where clients find it.
pub(super) const PATH: &str = "/mcp";

/// What answers there.
pub(super) fn service(daemon: &Daemon) -> Http {
    cowork_mcp::http(Link::Socket(daemon.folders.api()))
}
