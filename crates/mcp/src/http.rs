//! The server over HTTP ("streamable HTTP"): clients of the newest revision send every request on
//! its own; older ones open a session of the protocol first.

use crate::link::Link;
use crate::server::{MAX_CALLS, Server};
use cowork_client::types::NewSession;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Largest request.
const MAX_REQUEST: usize = 16 * 1024 * 1024;
/// Time after which a silent session of the protocol is forgotten. What is waited for is not
/// silent: it makes progress.
const KEEP: Duration = Duration::from_hours(1);

/// Answers requests to the path of the server.
pub type Http = StreamableHttpService<Server, LocalSessionManager>;

/// A service that reaches the daemon by `link`.
///
/// Who may connect is decided before: by the socket's peer, or by the token. The name that a client
/// gave to reach it therefore says nothing; but a browser, which names the page's origin, has no
/// business here.
pub fn http(link: Link) -> Http {
    let mut sessions = SessionConfig::default();
    sessions.keep_alive = Some(KEEP);
    let mut manager = LocalSessionManager::default();
    manager.session_config = sessions;
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .enforce_origin_validation()
        .with_max_request_body_bytes(MAX_REQUEST);
    // The threads are the daemon's, whoever calls.
    let places = Arc::new(Semaphore::new(MAX_CALLS));
    let server = move || {
        let server = Server::new(link.clone(), NewSession::default(), Vec::new());
        Ok(server.sharing(&places))
    };
    StreamableHttpService::new(server, Arc::new(manager), config)
}
