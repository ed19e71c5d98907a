//! The end of sessions, and of what they leave.

use super::Session;
use super::doc::Doc;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_api::keeper::Request;
use cowork_client::types::{Life, RequestState};
use cowork_sandbox::folder::Folder;
use cowork_session::life::{Event, State};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Longest time that the end of a command waits for whoever is attached to it.
const FAREWELL: Duration = Duration::from_secs(10);

/// What stays when a session is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Leave {
    /// Nothing but the record.
    Nothing,
    /// Its deliverables, in their folder.
    Outputs,
}

impl Daemon {
    /// Ends a session and removes what is kept of it, but for the audit.
    pub(crate) async fn remove(
        self: &Arc<Self>,
        session: &Arc<Session>,
        leave: Leave,
    ) -> Result<(), Trouble> {
        let _turn = session.turn.lock().await;
        if self.find(&session.id).is_none() {
            return Ok(());
        }
        let left = match leave {
            Leave::Nothing => json!([]),
            Leave::Outputs => json!(["outputs"]),
        };
        // Whoever goes on with a removal does not record it again.
        if session.doc().removing != Some(leave) {
            let removing = |doc: &mut Doc| {
                doc.removing = Some(leave);
                Ok(json!({ "left": left }))
            };
            session.record(&self.book, "session.removed", removing, |_| Ok(()))?;
        }
        self.dismantle(session).await;
        self.interrupt(session, "stopped", "the session was removed");
        if session.state() != State::Ended {
            // From here on it is removed; a full disk has more room afterwards.
            drop(session.happen(&self.book, Event::End, Some("removed")));
        }
        for run in session.runs() {
            run.log.close();
        }
        drop(self.expire_requests(&session.id));
        self.end_store(session).await;
        self.clear(&session.doc(), leave).await?;
        if session.doc().made.is_none() {
            // Whoever asks for it again with the same key gets another one.
            self.book.catalogue.drop_attempts_of(&session.id)?;
        }
        self.book.catalogue.remove_session(&session.id)?;
        self.forget(&session.id);
        self.forget_own(&session.id);
        Ok(())
    }

    /// Removes the folder of a session.
    pub(crate) async fn clear(self: &Arc<Self>, doc: &Doc, leave: Leave) -> Result<(), Trouble> {
        let folder = self.folders.session(&doc.id);
        match leave {
            // Nothing in it was written by the session itself.
            Leave::Nothing if doc.spec.life == Life::Once => {
                remove_tree(&folder).map_err(|error| cannot_remove(&folder, error))
            }
            Leave::Nothing => self.throw_away(&folder).await,
            Leave::Outputs => {
                for name in ["home", "about", "commands", "uploads"] {
                    self.remove_folder(&folder.join(name)).await?;
                }
                // Whether or not there was one.
                cowork_sys::ignore(rustix::fs::unlink(folder.join("egress.log")));
                let summary = super::about::summary(doc);
                super::about::write_summary(self, &doc.id, &summary).map_err(|error| {
                    Trouble::host("cannot write the summary of the session", error)
                })
            }
        }
    }

    /// Removes a folder that a session could write in: what it made of it may be out of this
    /// process's reach, not of the keeper's.
    async fn remove_folder(self: &Arc<Self>, path: &Path) -> Result<(), Trouble> {
        let Ok(folder) = Folder::open(path) else { return Ok(()) };
        let path = folder.path().as_os_str().as_bytes().to_vec();
        let request = Request::RemoveHome { path, folder: folder.identity() };
        self.engine.call(request).await.map(drop)
    }

    /// Moves the folder of a session out of the way, in one step, and removes it. What cannot be
    /// removed now is removed later.
    async fn throw_away(self: &Arc<Self>, folder: &Path) -> Result<(), Trouble> {
        let mut entropy = [0; 8];
        rustix::rand::getrandom(&mut entropy, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| cannot_remove(folder, errno.into()))?;
        let name = format!("{:016x}", u64::from_ne_bytes(entropy));
        let thrown = self.folders.trash().join(name);
        match std::fs::rename(folder, &thrown) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            outcome => outcome.map_err(|error| cannot_remove(folder, error))?,
        }
        drop(self.remove_folder(&thrown).await);
        Ok(())
    }

    /// Removes what was thrown away and is still there.
    pub(crate) async fn empty_trash(self: &Arc<Self>) {
        for entry in std::fs::read_dir(self.folders.trash()).into_iter().flatten().flatten() {
            drop(self.remove_folder(&entry.path()).await);
        }
    }

    /// Removes what is left of a session that never came to be, or of one from the pool.
    pub(crate) async fn discard(self: &Arc<Self>, id: &str) {
        drop(self.engine.call(Request::Destroy { session: id.to_owned() }).await);
        drop(self.throw_away(&self.folders.session(id)).await);
        cowork_sys::ignore(self.book.catalogue.drop_attempts_of(id));
        // Last, so that whoever is interrupted finds what is left.
        cowork_sys::ignore(self.book.catalogue.remove_session(id));
    }

    /// A session that lives once has had its command.
    pub(crate) async fn end_once(self: &Arc<Self>, session: &Arc<Session>, run: &super::Run) {
        // Everything in it ends now, so that every stream ends.
        self.dismantle(session).await;
        if session.state() != State::Ended {
            drop(session.happen(&self.book, Event::End, None));
        }
        run.wake();
        // What was on its way in a pipe is still read.
        let mut progress = run.progress.subscribe();
        while !run.log.progress().finished {
            let changed = tokio::time::timeout(FAREWELL, progress.changed()).await;
            if !matches!(changed, Ok(Ok(()))) {
                break;
            }
        }
        self.end_after_clients(session).await;
    }

    /// A session that lives once is over before its command has ended by itself.
    pub(crate) async fn end_now(self: &Arc<Self>, session: &Arc<Session>, why: &str) {
        if session.state() != State::Ended {
            drop(session.happen(&self.book, Event::End, Some(why)));
        }
        for run in session.runs() {
            run.wake();
        }
        self.end_after_clients(session).await;
    }

    /// Removes an ended session when nobody is attached to it any more.
    pub(crate) async fn end_after_clients(self: &Arc<Self>, session: &Arc<Session>) {
        let deadline = tokio::time::Instant::now() + FAREWELL;
        for run in session.runs() {
            let mut progress = run.progress.subscribe();
            while run.is_attached() {
                let changed = tokio::time::timeout_at(deadline, progress.changed()).await;
                if !matches!(changed, Ok(Ok(()))) {
                    break;
                }
            }
        }
        drop(self.remove(session, Leave::Nothing).await);
        self.fill_pool();
    }

    /// Nobody can answer for a session that is gone.
    fn expire_requests(&self, id: &str) -> Result<(), Trouble> {
        for request in self.pending_requests(Some(id))? {
            match self.close_request(request, RequestState::Expired) {
                // The user was quicker.
                Err(trouble) if trouble.code == "answered" => {}
                done => drop(done?),
            }
        }
        Ok(())
    }
}

fn cannot_remove(folder: &Path, error: std::io::Error) -> Trouble {
    Trouble::host(format!("cannot remove the folder `{}`", folder.display()), error)
}

/// Removes a folder with everything in it; fine if it is not there.
pub(crate) fn remove_tree(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
