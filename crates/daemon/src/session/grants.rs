//! Folders of the user in a session: given, changed and taken away while it runs.
//!
//! Each step is written down before it is taken: a grant that was on its way when the daemon died
//! is finished or taken back by the next one.

use super::doc::{self, Doc, KeptGrant, Phase};
use super::{Session, about, view};
use crate::book::now;
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_api::keeper::{Certainty, Reply, Request};
use cowork_client::types::{self, Grant, GrantChange, NewGrant, Process, Raw, Regranted, Revoked};
use cowork_policy::{Access, GrantName, HostPath, plan};
use cowork_sandbox::folder::{Folder, FolderError};
use cowork_sandbox::places::Verdict;
use cowork_session::life::{Event, State};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Whether the user means a sensitive place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meant {
    /// Nobody said so.
    No,
    /// The user said so.
    Yes,
}

impl From<bool> for Meant {
    fn from(force: bool) -> Self {
        if force { Self::Yes } else { Self::No }
    }
}

/// Most folders granted to one session.
const MAX_GRANTS: usize = 256;

impl Daemon {
    /// Opens a folder that a client named.
    pub(crate) fn open_folder(path: &Path) -> Result<Folder, Trouble> {
        if !path.is_absolute() {
            let sentence = format!("`{}` is not an absolute path", path.display());
            return Err(Trouble::refused("bad-path", sentence).with_hint("start it with `/`"));
        }
        Folder::open(path).map_err(|error| {
            let (code, hint) = match &error {
                FolderError::Missing { .. } => {
                    ("no-folder", "check the path, or make the folder first")
                }
                FolderError::NotFolder { .. } => {
                    ("not-folder", "grant the folder that contains it")
                }
                FolderError::Kernel { .. } => ("bad-path", "grant a folder that you can open"),
            };
            let trouble = Trouble::refused(code, error.to_string()).with_hint(hint);
            match error {
                FolderError::Kernel { source, .. } => trouble.with_cause(source),
                FolderError::Missing { .. } | FolderError::NotFolder { .. } => trouble,
            }
        })
    }

    /// Refuses a sensitive place unless it is meant, and records that; the reason, if it is.
    pub(crate) fn refuse_sensitive(
        &self,
        session: Option<&str>,
        folder: &Folder,
        (access, meant): (Access, Meant),
    ) -> Result<Option<String>, Trouble> {
        let trouble = match self.places.judge(folder, access) {
            Verdict::Ordinary => return Ok(None),
            Verdict::Refused(sentence) => {
                Trouble::refused("folder-refused", sentence).with_hint("grant a folder of files")
            }
            Verdict::Sensitive(reason) if meant == Meant::Yes => return Ok(Some(reason)),
            Verdict::Sensitive(reason) => not_meant(reason),
        };
        Err(self.denied(session, folder.path(), access, trouble))
    }

    /// The same for folders below a granted one whose changes are not recorded.
    fn refuse_direct(
        &self,
        session: Option<&str>,
        path: &Path,
        new: &NewGrant,
    ) -> Result<Option<String>, Trouble> {
        let mut found = None;
        for below in &new.direct {
            let folder = path.join(doc::path(below)?);
            let reason = self.places.programs_at_risk(&folder, Access::Direct);
            match reason {
                Some(reason) if !new.force => {
                    return Err(self.denied(session, &folder, Access::Direct, not_meant(reason)));
                }
                reason => found = found.or(reason),
            }
        }
        Ok(found)
    }

    /// Refuses another access to a folder that is not like any other with it.
    fn refuse_regrant(
        &self,
        session: &Session,
        grant: &Grant,
        access: types::Access,
    ) -> Result<(), Trouble> {
        let (path, access) = (doc::path(&grant.path)?, doc::access(access));
        let reason = self.places.programs_at_risk(&path, access);
        match reason {
            Some(reason) if grant.sensitive.is_none() => {
                let trouble = Trouble::forbidden("sensitive", reason).with_hint(
                    "if you mean it, revoke the folder and grant it again with `--force`",
                );
                Err(self.denied(Some(&session.id), &path, access, trouble))
            }
            _ => Ok(()),
        }
    }

    /// Records that a folder is not given, and why; of a session that is to be made nothing else is
    /// known yet. The answer is why, or that it cannot be recorded.
    fn denied(
        &self,
        session: Option<&str>,
        path: &Path,
        access: Access,
        trouble: Trouble,
    ) -> Trouble {
        let data = json!({
            "path": doc::raw(path), "access": access.to_string(), "rule": trouble.code,
            "reason": trouble.sentence,
        });
        match self.book.record("grant.denied", session, &data) {
            Ok(()) => trouble,
            Err(unrecorded) => unrecorded,
        }
    }

    /// Opens a folder to grant, and finds its name.
    pub(crate) fn judge(
        &self,
        session: Option<&Session>,
        new: &NewGrant,
    ) -> Result<KeptGrant, Trouble> {
        crate::changes::check_writes(&new.writes)?;
        crate::changes::check_direct(&new.direct)?;
        let folder = Self::open_folder(&doc::path(&new.path)?)?;
        let id = session.map(|session| session.id.as_str());
        let wanted = (doc::access(new.access), Meant::from(new.force));
        let sensitive = self.refuse_sensitive(id, &folder, wanted)?;
        let direct = self.refuse_direct(id, folder.path(), new)?;
        let sensitive = sensitive.or(direct);
        let path = HostPath::new(folder.path()).map_err(|error| {
            let sentence = format!("`{}` cannot be granted: {error}", folder.path().display());
            Trouble::refused("bad-path", sentence)
        })?;
        let name = match &new.name {
            Some(name) => name.parse::<GrantName>(),
            None => GrantName::from_path(&path),
        };
        let name = name.map_err(|error| {
            Trouble::refused("bad-name", error.to_string()).with_hint("give it a name: `PATH=name`")
        })?;
        let at =
            session.map_or_else(String::new, |session| about::place(&session.id, name.as_str()));
        let identity = folder.identity();
        Ok(KeptGrant {
            grant: Grant {
                name: name.as_str().to_owned(),
                path: doc::raw(path.as_path()),
                at,
                access: new.access,
                granted: now(),
                submounts: Vec::new(),
                request: None,
                sensitive,
                direct: new.direct.clone(),
                writes: new.writes.clone(),
                expires: new.expires.as_deref().map(super::expiry::moment).transpose()?,
            },
            device: identity.device,
            inode: identity.inode,
            phase: Phase::Adding,
        })
    }

    /// Grants a folder to a session; if it runs, the folder appears in it.
    pub(crate) async fn grant(
        self: &Arc<Self>,
        session: &Arc<Session>,
        new: &NewGrant,
        request: Option<u64>,
    ) -> Result<Grant, Trouble> {
        let _turn = session.turn.lock().await;
        view::refuse_change(&session.doc())?;
        let mut kept = self.judge(Some(session), new)?;
        kept.grant.request = request;
        self.give(session, kept).await
    }

    /// The turn is held by the caller.
    pub(crate) async fn give(
        self: &Arc<Self>,
        session: &Arc<Session>,
        kept: KeptGrant,
    ) -> Result<Grant, Trouble> {
        let doc = session.doc();
        refuse_ended(doc.state)?;
        if doc.grants.len() >= MAX_GRANTS {
            let sentence = format!("a session has at most {MAX_GRANTS} granted folders");
            return Err(Trouble::conflict("too-many", sentence));
        }
        about::check_name(&doc.grants, &kept)?;
        let name = kept.grant.name.clone();
        let add = |doc: &mut Doc| {
            doc.grants.push(kept.clone());
            Ok(about::describe(&kept))
        };
        session.record(&self.book, "grant.added", add, |_| Ok(()))?;
        let failed = |trouble: &Trouble| {
            let data = || json!({ "name": name, "reason": trouble.line() });
            session.drop_grant(&self.book, "grant.failed", &name, data)
        };
        let wire = self.ensure_store(session, &[&kept.grant]);
        let wire = match wire.and_then(|()| self.grant_request(&session.doc(), &kept)) {
            Ok(request) => plan::grant(&request),
            Err(trouble) => {
                failed(&trouble)?;
                return Err(trouble);
            }
        };
        let mut submounts = Vec::new();
        if has_sandbox(doc.state) {
            let request = Request::Grant { session: session.id.clone(), grant: wire };
            match self.engine.call(request).await {
                Ok((Reply::Granted { submounts: found }, _)) => submounts = found,
                Ok(_) => {}
                Err(trouble) => {
                    // It may have been attached although the answer did not arrive.
                    let revoke =
                        Request::Revoke { session: session.id.clone(), name: name.clone() };
                    drop(self.engine.call(revoke).await);
                    failed(&trouble)?;
                    return Err(trouble);
                }
            }
        }
        let submounts: Vec<Raw> = submounts.into_iter().map(Raw::new).collect();
        let grant = session.settle(&self.book, |doc| {
            let kept = doc.grants.iter_mut().find(|kept| kept.grant.name == name)?;
            kept.phase = Phase::Granted;
            kept.grant.submounts = submounts;
            Some(kept.grant.clone())
        });
        about::refresh(self, &session.doc());
        self.expiring.notify_one();
        grant.ok_or_else(no_grant)
    }

    /// Gives a granted folder another access.
    pub(crate) async fn regrant(
        self: &Arc<Self>,
        session: &Arc<Session>,
        name: &str,
        change: &GrantChange,
    ) -> Result<Regranted, Trouble> {
        let _turn = session.turn.lock().await;
        let doc = session.doc();
        refuse_ended(doc.state)?;
        let mut kept = find(&doc.grants, name)?.clone();
        if let Some(expires) = &change.expires {
            kept.grant.expires = self.set_expiry(session, name, expires)?;
        }
        if let Some(writes) = &change.writes {
            crate::changes::check_writes(writes)?;
            kept.grant.writes = writes.clone();
        }
        if kept.grant.access == change.access {
            self.rewrite(session, &kept).await?;
            let revoked = Revoked {
                name: name.to_owned(),
                killed: Vec::new(),
                certainty: "unchanged".into(),
            };
            return Ok(Regranted { grant: kept.grant, revoked });
        }
        view::refuse_change(&doc)?;
        self.refuse_regrant(session, &kept.grant, change.access)?;
        let before = std::mem::replace(&mut kept.grant.access, change.access);
        let data = json!({ "name": name, "access": change.access, "writes": change.writes });
        self.book.record("grant.changed", Some(&session.id), &data)?;
        self.ensure_store(session, &[&kept.grant])?;
        let note = |access, phase| {
            session.change(&self.book, |doc| {
                let kept = doc.grants.iter_mut().find(|kept| kept.grant.name == name)?;
                kept.grant.access = access;
                if let Some(writes) = &change.writes {
                    kept.grant.writes = writes.clone();
                }
                kept.phase = phase;
                Some(kept.grant.clone())
            })
        };
        note(change.access, Phase::Changing)?;
        let mut revoked =
            Revoked { name: name.to_owned(), killed: Vec::new(), certainty: "not running".into() };
        let mut ended = false;
        if has_sandbox(doc.state) {
            let grant = plan::grant(&self.grant_request(&session.doc(), &kept)?);
            let request = Request::Regrant { session: session.id.clone(), grant };
            match self.engine.call(request).await {
                Ok((Reply::Regranted { revoked: done, .. }, _)) => {
                    ended = done.certainty == Certainty::SessionEnded;
                    revoked = shown(name, done);
                }
                Ok(_) => {}
                Err(trouble) => {
                    note(before, Phase::Granted)?;
                    return Err(trouble);
                }
            }
        }
        let grant = session.settle(&self.book, |doc| {
            let kept = doc.grants.iter_mut().find(|kept| kept.grant.name == name)?;
            kept.phase = Phase::Granted;
            Some(kept.grant.clone())
        });
        about::refresh(self, &session.doc());
        if ended {
            self.revoked_hard(session).await?;
        }
        Ok(Regranted { grant: grant.ok_or_else(no_grant)?, revoked })
    }

    /// What is allowed in a folder is as it is said now, and its access stays.
    async fn rewrite(
        self: &Arc<Self>,
        session: &Arc<Session>,
        changed: &KeptGrant,
    ) -> Result<(), Trouble> {
        let (name, writes) = (&changed.grant.name, &changed.grant.writes);
        if session.doc().grants.iter().any(|kept| kept.grant == changed.grant) {
            return Ok(());
        }
        let data = json!({ "name": name, "writes": writes });
        self.book.record("grant.changed", Some(&session.id), &data)?;
        session.change(&self.book, |doc| {
            for kept in doc.grants.iter_mut().filter(|kept| kept.grant.name == *name) {
                kept.grant.writes = writes.clone();
            }
        })?;
        self.renew_writes(session, Some(name)).await
    }

    /// Takes a folder away, with whoever holds on to it.
    pub(crate) async fn revoke(
        self: &Arc<Self>,
        session: &Arc<Session>,
        name: &str,
    ) -> Result<Revoked, Trouble> {
        let _turn = session.turn.lock().await;
        self.take(session, name).await
    }

    /// The turn is held by the caller.
    pub(crate) async fn take(
        self: &Arc<Self>,
        session: &Arc<Session>,
        name: &str,
    ) -> Result<Revoked, Trouble> {
        let doc = session.doc();
        view::refuse_change(&doc)?;
        // Whoever goes on with a revocation does not record it again.
        if find(&doc.grants, name)?.phase != Phase::Removing {
            let removing = |doc: &mut Doc| {
                for kept in doc.grants.iter_mut().filter(|kept| kept.grant.name == name) {
                    kept.phase = Phase::Removing;
                }
                Ok(json!({ "name": name }))
            };
            session.record(&self.book, "grant.revoking", removing, |_| Ok(()))?;
        }
        let mut revoked =
            Revoked { name: name.to_owned(), killed: Vec::new(), certainty: "not running".into() };
        let mut ended = false;
        if has_sandbox(doc.state) {
            let request = Request::Revoke { session: session.id.clone(), name: name.to_owned() };
            match self.engine.call(request).await {
                Ok((Reply::Revoked(done), _)) => {
                    ended = done.certainty == Certainty::SessionEnded;
                    revoked = shown(name, done);
                }
                Ok(_) => {}
                // Gone is what was wanted.
                Err(trouble) if ["no-grant", "no-sandbox"].contains(&trouble.code) => {}
                Err(trouble) => {
                    let data = json!({ "name": name, "reason": trouble.line() });
                    self.book.record("grant.stuck", Some(&session.id), &data)?;
                    return Err(trouble);
                }
            }
        }
        let data =
            || json!({ "name": name, "killed": revoked.killed, "certainty": revoked.certainty });
        if session.drop_grant(&self.book, "grant.revoked", name, data).is_err() {
            // It is done, and that it was to be done is recorded.
            session.settle(&self.book, |doc| doc.grants.retain(|kept| kept.grant.name != name));
        }
        about::refresh(self, &session.doc());
        if ended {
            self.revoked_hard(session).await?;
        }
        Ok(revoked)
    }

    /// A revocation that had to end the sandbox: it is made again without the folder.
    async fn revoked_hard(self: &Arc<Self>, session: &Arc<Session>) -> Result<(), Trouble> {
        self.interrupt(session, "revoked", "its sandbox was ended to take a folder away");
        session.happen(&self.book, Event::Lost, Some("a folder was taken away"))?;
        self.make_again(session).await
    }
}

/// Whether there is a sandbox whose folders must be changed.
pub(crate) fn has_sandbox(state: State) -> bool {
    matches!(state, State::Ready | State::Running | State::Paused)
}

fn refuse_ended(state: State) -> Result<(), Trouble> {
    match state {
        State::Ended => Err(cowork_session::life::Misfit::Ended.into()),
        State::Creating => Err(cowork_session::life::Misfit::Creating.into()),
        _ => Ok(()),
    }
}

/// The grant with a name.
pub(crate) fn find<'a>(grants: &'a [KeptGrant], name: &str) -> Result<&'a KeptGrant, Trouble> {
    grants.iter().find(|kept| kept.grant.name == name).ok_or_else(|| {
        let names: Vec<_> = grants.iter().map(|kept| kept.grant.name.as_str()).collect();
        let hint = match names.as_slice() {
            [] => "it has none".to_owned(),
            names => format!("it has: {}", names.join(", ")),
        };
        let sentence = format!("the session has no granted folder `{}`", name.escape_debug());
        Trouble::missing("no-grant", sentence).with_hint(hint)
    })
}

fn not_meant(reason: String) -> Trouble {
    Trouble::forbidden("sensitive", reason)
        .with_hint("grant a folder inside it; if you mean it, add `--force`")
}

fn no_grant() -> Trouble {
    Trouble::missing("no-grant", "the grant is gone")
}

fn shown(name: &str, revoked: cowork_api::keeper::Revoked) -> Revoked {
    let killed = revoked.killed.into_iter();
    Revoked {
        name: name.to_owned(),
        killed: killed.map(|(pid, name)| Process { pid, inside: None, name }).collect(),
        certainty: match revoked.certainty {
            Certainty::Kernel => "kernel",
            Certainty::Scan => "scan",
            Certainty::SessionEnded => "session ended",
        }
        .into(),
    }
}
