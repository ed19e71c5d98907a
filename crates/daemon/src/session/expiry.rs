//! Grants that end by themselves: at their moment they are revoked like any other, with whoever
//! holds on to the folder.
//!
//! The moment is kept with the grant. A daemon that was not there then revokes it when it starts.

use super::Session;
use super::doc::{Phase, Spec};
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_client::types::Grant;
use cowork_session::life::State;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Longest time between two looks at the clock, which can be set.
const LOOK: Duration = Duration::from_secs(30);
/// Time until a revocation that failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// A moment that is still to come, as it is written everywhere.
pub(crate) fn moment(text: &str) -> Result<String, Trouble> {
    let shown = text.escape_debug();
    let time = humantime::parse_rfc3339_weak(text).map_err(|error| {
        Trouble::refused("bad-time", format!("`{shown}` is not a time"))
            .with_cause(error)
            .with_hint("e.g. `2026-01-31T08:00:00Z`")
    })?;
    if time <= SystemTime::now() {
        let sentence = format!("`{shown}` is over, and a grant cannot end before it begins");
        return Err(Trouble::refused("bad-time", sentence));
    }
    Ok(crate::book::at(time))
}

/// Refuses a grant that ends in a session whose folders cannot be taken away one by one.
pub(super) fn refuse_in(spec: &Spec, grant: &Grant) -> Result<(), Trouble> {
    if spec.view.is_some() && grant.expires.is_some() {
        let sentence = "folders of a session with the host's view end with the session";
        return Err(Trouble::refused("folder-refused", sentence).with_hint("leave out `expires`"));
    }
    Ok(())
}

/// Revokes grants when their time has come.
pub(crate) async fn expire(daemon: Arc<Daemon>) {
    loop {
        let mut wait = LOOK;
        for session in daemon.all() {
            for (name, time) in moments(&session) {
                wait = wait.min(match time.duration_since(SystemTime::now()) {
                    Ok(left) if !left.is_zero() => left,
                    _ => {
                        let (daemon, session) = (Arc::clone(&daemon), Arc::clone(&session));
                        tokio::spawn(async move { daemon.end_grant(&session, &name).await });
                        AGAIN
                    }
                });
            }
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = daemon.expiring.notified() => {}
        }
    }
}

/// The grants of a session that end by themselves, and when.
fn moments(session: &Session) -> Vec<(String, SystemTime)> {
    let doc = session.doc();
    if matches!(doc.state, State::Ended | State::Creating) {
        return Vec::new();
    }
    let granted = doc.grants.into_iter().filter(|kept| kept.phase != Phase::Adding);
    let ending = granted.filter_map(|kept| {
        let time = humantime::parse_rfc3339(kept.grant.expires.as_deref()?).ok()?;
        Some((kept.grant.name, time))
    });
    ending.collect()
}

impl Daemon {
    /// Another moment for a granted folder, or none; the turn is held by the caller.
    pub(crate) fn set_expiry(
        &self,
        session: &Session,
        name: &str,
        expires: &str,
    ) -> Result<Option<String>, Trouble> {
        let expires = if expires == "never" { None } else { Some(moment(expires)?) };
        super::view::refuse_change(&session.doc())?;
        let data = json!({ "name": name, "expires": expires });
        self.book.record("grant.changed", Some(&session.id), &data)?;
        session.change(&self.book, |doc| {
            for kept in doc.grants.iter_mut().filter(|kept| kept.grant.name == name) {
                kept.grant.expires.clone_from(&expires);
            }
        })?;
        self.expiring.notify_one();
        Ok(expires)
    }

    /// The time of a grant has come.
    async fn end_grant(self: &Arc<Self>, session: &Arc<Session>, name: &str) {
        let _turn = session.turn.lock().await;
        // It may have been changed, or be gone, in the meantime.
        let due = moments(session).into_iter().find(|(known, _)| known == name);
        if due.is_none_or(|(_, time)| time > SystemTime::now()) {
            return;
        }
        let removing = |doc: &super::doc::Doc| {
            let mut kept = doc.grants.iter().filter(|kept| kept.grant.name == name);
            kept.any(|kept| kept.phase == Phase::Removing)
        };
        let data = json!({ "name": name });
        if !removing(&session.doc())
            && self.book.record("grant.expired", Some(&session.id), &data).is_err()
        {
            return;
        }
        // What fails is recorded, and tried again.
        drop(self.take(session, name).await);
    }
}
