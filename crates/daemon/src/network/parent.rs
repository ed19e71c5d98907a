//! The proxy between the host and the world that one session goes through.
//!
//! Invariant: it is written down with the session, so it has no password. One with a password is the
//! daemon's own, and known to nobody else.

use crate::proxy;
use crate::session::Doc;
use crate::trouble::Trouble;
use cowork_api::egress::Parent;
use cowork_client::types::WantedNetwork;

/// The proxy of a session's own, if it has one.
pub(super) fn of(doc: &Doc) -> Result<Option<Parent>, Trouble> {
    doc.spec.network.as_ref().map_or(Ok(None), wanted)
}

/// The proxy that a network asks for, or what is wrong with it.
pub(super) fn wanted(network: &WantedNetwork) -> Result<Option<Parent>, Trouble> {
    let Some(parent) = &network.parent else { return Ok(None) };
    if parent.url.contains('@') {
        let sentence = "the parent proxy of a session has no password";
        return Err(Trouble::refused("bad-rule", sentence)
            .with_hint("start the daemon with COWORK_PARENT_PROXY for one that needs it"));
    }
    let parsed = proxy::parent(&parent.url, &parent.except);
    parsed.map(Some).map_err(|sentence| Trouble::refused("bad-rule", sentence))
}
