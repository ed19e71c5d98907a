//! What sessions ask for and the user answers.

use super::Session;
use super::doc::{KeptGrant, Phase};
use crate::book::now;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_client::types::{
    Ask, Asked, Decide, Decision, Grant, NewGrant, NewRequest, Raw, Request, RequestState,
    WantedWrites,
};
use cowork_session::catalogue::{CatalogueError, Requests, Standing as Waits, Together};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Most requests of one session that wait for an answer.
const MAX_PENDING: u32 = 16;
/// Most requests of one session in its life with this daemon.
const MAX_ASKS: u32 = 1000;
/// Longest text of a request, in bytes.
const MAX_TEXT: usize = 2000;

impl Daemon {
    /// Somebody asks for a folder on behalf of a session, and may say where it probably lies.
    /// Nothing is looked up: who asks learns nothing about the place from the answer.
    pub(crate) async fn ask_for(
        self: &Arc<Self>,
        session: &Arc<Session>,
        new: NewRequest,
    ) -> Result<Request, Trouble> {
        let NewRequest { wanted, reason, access, path, wait } = new;
        check_text("wanted", &wanted)?;
        let Some(path) = path else {
            return self.ask(session, &Ask { wanted, reason, access, wait }, None).await;
        };
        let place = super::doc::path(&path)?;
        let plain = place.components().all(|part| {
            matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_))
        });
        if !plain || !place.is_absolute() || place.as_os_str().len() > MAX_TEXT {
            return Err(Trouble::refused("bad-path", "an absolute path is wanted")
                .with_hint("without `..`"));
        }
        // The place comes first: no words can pass for another one.
        let wanted = format!("{}: {wanted}", path.lossy());
        self.asked(session, &Ask { wanted, reason, access, wait }, None, Some(&path)).await
    }

    /// A session asks for a folder, on a connection of which this is the number of our socket. What
    /// the user has said before about the same is said again.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        session: &Arc<Session>,
        ask: &Ask,
        line: Option<u64>,
    ) -> Result<Request, Trouble> {
        check_text("wanted", &ask.wanted)?;
        self.asked(session, ask, line, None).await
    }

    async fn asked(
        self: &Arc<Self>,
        session: &Arc<Session>,
        ask: &Ask,
        line: Option<u64>,
        suggested: Option<&Raw>,
    ) -> Result<Request, Trouble> {
        check_text("reason", &ask.reason)?;
        if session.count_ask() > MAX_ASKS {
            let sentence = format!("a session asks at most {MAX_ASKS} times");
            return Err(Trouble::conflict("too-many", sentence));
        }
        let asker = match line {
            Some(socket) => self.asker(session, socket).await,
            None => None,
        };
        if self.book.catalogue.count_pending(&session.id)? >= MAX_PENDING {
            let sentence = format!("{MAX_PENDING} requests wait for an answer already");
            return Err(Trouble::conflict("too-many", sentence)
                .with_hint("wait until the user has answered"));
        }
        let request = Request {
            id: self.book.catalogue.number_request()?,
            session: session.id.clone(),
            asker,
            kind: "folder".into(),
            wanted: plain(&ask.wanted),
            reason: plain(&ask.reason),
            access: ask.access,
            state: RequestState::Pending,
            created: now(),
            decided: None,
            decision: None,
            note: None,
            grant: None,
        };
        let data = json!({
            "request": request.id, "kind": "folder", "wanted": request.wanted,
            "reason": request.reason, "access": request.access, "asker": request.asker,
        });
        let path = suggested
            .map(serde_json::to_string)
            .transpose()
            .map_err(|error| Trouble::host("cannot write down a path", error))?;
        self.put_question(&request, &data, |catalogue| match &path {
            Some(path) => catalogue.set(&suggestion_key(request.id), path),
            None => Ok(()),
        })?;
        match self.standing_answer(&request)? {
            // If it cannot be carried out as it stands, the user is asked.
            Some(decide) => Ok(self.decide(request.id, &decide).await.unwrap_or(request)),
            None => Ok(request),
        }
    }

    /// Puts a question to the user: recorded, kept and told in one step, so that whatever is recorded
    /// as asked can be answered.
    pub(crate) fn put_question(
        &self,
        request: &Request,
        data: &Value,
        belongs: impl FnOnce(&Together<'_>) -> Result<(), CatalogueError>,
    ) -> Result<(), Trouble> {
        let session = request.session.as_str();
        let (text, told) = (document(request)?, json!({ "request": request }));
        let told = Some(("request.pending", &told));
        self.book.record_told(session, ("request.created", data), told, |catalogue| {
            catalogue.add_request(request.id, session, &text)?;
            belongs(catalogue)
        })
    }

    /// A request by its number.
    pub(crate) fn request(&self, id: u64) -> Result<Request, Trouble> {
        let text = self.book.catalogue.request(id)?;
        let text = text.ok_or_else(|| {
            Trouble::missing("no-request", format!("there is no request {id}"))
                .with_hint("see `cowork requests`")
        })?;
        serde_json::from_str(&text)
            .map_err(|error| Trouble::host("a request in the catalogue cannot be read", error))
    }

    /// Where the folder of a request probably lies, if whoever asked has said so.
    fn suggested(&self, id: u64) -> Result<Option<Raw>, Trouble> {
        let text = self.book.catalogue.get(&suggestion_key(id))?;
        let path = text.map(|text| serde_json::from_str(&text)).transpose();
        path.map_err(|error| Trouble::host("a path in the catalogue cannot be read", error))
    }

    /// Waits until a request is answered, or the time is over.
    pub(crate) async fn await_answer(
        &self,
        mut request: Request,
        wait: Duration,
    ) -> Result<Request, Trouble> {
        let deadline = tokio::time::Instant::now() + wait;
        let mut latest = self.book.latest();
        while request.state == RequestState::Pending {
            request = self.request(request.id)?;
            if request.state != RequestState::Pending
                || tokio::time::timeout_at(deadline, latest.changed()).await.is_err()
            {
                break;
            }
        }
        Ok(request)
    }

    /// Requests that wait for an answer.
    pub(crate) fn pending_requests(&self, session: Option<&str>) -> Result<Vec<Request>, Trouble> {
        let found = self.book.catalogue.requests(Requests::Pending, session, 0, u32::MAX)?;
        Ok(found.iter().filter_map(|(_, text)| serde_json::from_str(text).ok()).collect())
    }

    /// The user answers. Of several answers at a time one is carried out, and the others find it
    /// answered; if it cannot be carried out, the next one is tried.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        id: u64,
        decide: &Decide,
    ) -> Result<Request, Trouble> {
        let _claim = self.claims.claim(id).await;
        let asked = self.request(id)?;
        let mut request = asked.clone();
        if request.state != RequestState::Pending {
            return Err(answered(id));
        }
        let session = self.find(&request.session).ok_or_else(|| {
            Trouble::missing("no-session", format!("session `{}` is gone", request.session))
        })?;
        if decide.note.as_ref().is_some_and(|note| note.len() > MAX_TEXT) {
            let sentence = format!("a note has at most {MAX_TEXT} bytes");
            return Err(Trouble::refused("bad-request", sentence));
        }
        if request.kind == crate::network::ASK {
            return self.decide_host(&session, request, decide).await;
        }
        if request.kind == crate::changes::ASK {
            return self.decide_file(&session, request, decide).await;
        }
        if request.kind == crate::tasks::ASK {
            return self.decide_tool(&session, request, decide);
        }
        let allowed = is_allowed(decide.decision);
        let named = match &decide.path {
            None if allowed => self.suggested(id)?,
            path => path.clone(),
        };
        let decide = &Decide { path: named, ..decide.clone() };
        if allowed {
            let path = decide.path.clone().ok_or_else(|| {
                Trouble::refused("no-path", "which folder is meant?")
                    .with_hint("name it: `cowork decide ID allow --path FOLDER`")
            })?;
            let new = NewGrant {
                path,
                access: decide.access.unwrap_or(request.access),
                name: decide.name.clone(),
                force: decide.force,
                direct: Vec::new(),
                writes: WantedWrites::default(),
                expires: None,
            };
            let grant = match Self::already_granted(&session, &new)? {
                Some(grant) => grant,
                None => self.grant(&session, &new, Some(id)).await?,
            };
            request.access = grant.access;
            request.grant = Some(grant.name);
        }
        request.decision = Some(decide.decision);
        request.note = decide.note.as_deref().map(plain);
        self.remember_answer(&asked, decide)?;
        let state = if allowed { RequestState::Allowed } else { RequestState::Rejected };
        self.close_request(request, state)
    }

    /// The grant of the same folder with the same access, if the session has one.
    fn already_granted(session: &Session, new: &NewGrant) -> Result<Option<Grant>, Trouble> {
        let folder = Self::open_folder(&super::doc::path(&new.path)?)?;
        let same = |kept: &KeptGrant| {
            kept.identity() == folder.identity() && kept.grant.access == new.access
        };
        Ok(session.doc().grants.into_iter().find(same).map(|kept| kept.grant))
    }

    /// Writes down what became of a request, and tells. What became of it is said once.
    pub(crate) fn close_request(
        &self,
        mut request: Request,
        state: RequestState,
    ) -> Result<Request, Trouble> {
        let _closing = self.claims.closing();
        if self.request(request.id)?.state != RequestState::Pending {
            return Err(answered(request.id));
        }
        request.state = state;
        request.decided = Some(now());
        let data = json!({
            "request": request.id, "state": request.state, "decision": request.decision,
            "grant": request.grant,
        });
        let text = document(&request)?;
        self.book.record_with("request.decided", Some(&request.session), &data, |catalogue| {
            catalogue.put_request(request.id, Waits::Decided, &text)
        })?;
        cowork_sys::ignore(self.book.catalogue.unset(&suggestion_key(request.id)));
        Ok(request)
    }

    /// The last daemon may have ended when a folder was granted and its request not closed: it was
    /// allowed.
    pub(crate) fn close_granted(&self, session: &Session) -> Result<(), Trouble> {
        for kept in session.doc().grants.iter().filter(|kept| kept.phase != Phase::Removing) {
            let Some(id) = kept.grant.request else { continue };
            let request = self.request(id)?;
            if request.state == RequestState::Pending {
                let note = Some("the daemon ended while it was answered".into());
                let grant = Some(kept.grant.name.clone());
                let access = kept.grant.access;
                let request = Request { access, grant, note, ..request };
                self.close_request(request, RequestState::Allowed)?;
            }
        }
        Ok(())
    }

    /// What the user said for good about the same wish, in the same words, if the folder is still
    /// the one that was meant.
    fn standing_answer(&self, request: &Request) -> Result<Option<Decide>, Trouble> {
        for scope in [self.scope(&request.session), None] {
            let Some(text) = self.book.catalogue.get(&standing_key(scope.as_deref(), request))?
            else {
                continue;
            };
            let Ok(standing) = serde_json::from_str::<Standing>(&text) else { return Ok(None) };
            let Some(path) = &standing.decide.path else { return Ok(Some(standing.decide)) };
            let path = super::doc::path(path)?;
            let same = Self::open_folder(&path).is_ok_and(|folder| {
                let identity = folder.identity();
                folder.path() == path && standing.folder == Some((identity.device, identity.inode))
            });
            return Ok(same.then_some(standing.decide));
        }
        Ok(None)
    }

    /// A session by its name and its birth: another one of the same name is another one.
    fn scope(&self, session: &str) -> Option<String> {
        let session = self.find(session)?;
        Some(format!("{}@{}", session.id, session.doc().created))
    }

    fn remember_answer(&self, request: &Request, decide: &Decide) -> Result<(), Trouble> {
        let scope = match decide.decision {
            Decision::AllowOnce | Decision::RejectOnce => return Ok(()),
            Decision::AllowSession => self.scope(&request.session),
            Decision::AllowAlways | Decision::RejectAlways => None,
        };
        let folder = match &decide.path {
            Some(path) => Some(Self::open_folder(&super::doc::path(path)?)?),
            None => None,
        };
        let identity = folder.as_ref().map(cowork_sandbox::folder::Folder::identity);
        // What is said again is said once, of that folder, and not of a sensitive place.
        let again = Decide {
            decision: if is_allowed(decide.decision) {
                Decision::AllowOnce
            } else {
                Decision::RejectOnce
            },
            path: folder.as_ref().map(|folder| super::doc::raw(folder.path())),
            force: false,
            ..decide.clone()
        };
        let folder = identity.map(|identity| (identity.device, identity.inode));
        let text = serde_json::to_string(&Standing { decide: again, folder })
            .map_err(|error| Trouble::host("cannot write down an answer", error))?;
        Ok(self.book.catalogue.set(&standing_key(scope.as_deref(), request), &text)?)
    }
}

/// A request as the catalogue keeps it.
pub(crate) fn document(request: &Request) -> Result<String, Trouble> {
    serde_json::to_string(request)
        .map_err(|error| Trouble::host("cannot write down a request", error))
}

/// A request waits no more.
fn answered(id: u64) -> Trouble {
    Trouble::conflict("answered", format!("request {id} was answered already"))
}

/// Refuses a text that says nothing, or too much.
fn check_text(name: &str, text: &str) -> Result<(), Trouble> {
    if text.trim().is_empty() || text.len() > MAX_TEXT {
        let sentence = format!("`{name}` must be a text of at most {MAX_TEXT} bytes");
        return Err(Trouble::refused("bad-request", sentence));
    }
    Ok(())
}

/// What whoever asked is shown of a request: where it is in its life, and what came of it inside.
pub(crate) fn shown(session: &Session, request: &Request) -> Asked {
    let allowed = request.state == RequestState::Allowed;
    let at = request.grant.as_ref().filter(|_| allowed);
    Asked {
        id: request.id,
        state: request.state,
        at: at.map(|grant| super::about::place(&session.id, grant)),
        access: allowed.then_some(request.access),
        note: request.note.clone(),
    }
}

/// Where the catalogue keeps the place that a request is probably about, as long as it waits.
fn suggestion_key(id: u64) -> String {
    format!("suggested/{id}")
}

/// An answer that stands, and which folder it is about.
#[derive(Debug, Serialize, Deserialize)]
struct Standing {
    decide: Decide,
    folder: Option<(u64, u64)>,
}

/// The name under which a standing answer is kept.
fn standing_key(scope: Option<&str>, request: &Request) -> String {
    let access = request.access.as_str();
    format!("answer/{}/{access}/{}", scope.unwrap_or("*"), request.wanted)
}

fn is_allowed(decision: Decision) -> bool {
    match decision {
        Decision::AllowOnce | Decision::AllowSession | Decision::AllowAlways => true,
        Decision::RejectOnce | Decision::RejectAlways => false,
    }
}

/// A hostile text without what a terminal would act on.
pub(crate) fn plain(text: &str) -> String {
    // What changes the order of the text would let it say one thing and show another.
    let acts =
        |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if acts(c) { ' ' } else { c }).collect()
}
