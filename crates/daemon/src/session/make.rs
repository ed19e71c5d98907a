//! Making a session: its folders, its plan, its sandbox.

use super::doc::{self, Doc, KeptGrant, KeptSandbox, KeptSkills, Phase, Spec};
use super::grants::Meant;
use super::{Session, about, expiry, view};
use crate::book::now;
use crate::daemon::Daemon;
use crate::folders;
use crate::guest::{End, Guest};
use crate::network::{Known, take_own};
use crate::trouble::Trouble;
use cowork_api::keeper::{Reply, Request, Status};
use cowork_api::plan::{Identity, SessionPlan, Writing};
use cowork_client::types::{Life, NewSession, Raw, WantedSkills};
use cowork_policy::plan::{GrantRequest, Home};
use cowork_policy::{Access, GrantName, HostPath, SessionId, plan};
use cowork_sandbox::folder::Folder;
use cowork_session::life::{Event, State};
use rustix::fd::OwnedFd;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Most sessions that are not removed.
const MAX_SESSIONS: usize = 10_000;
/// Most labels of a session, and the longest of their names and values in bytes.
const MAX_LABELS: usize = 64;
const MAX_LABEL: usize = 256;

/// The kind of the record that a session was asked for.
const CREATED: &str = "session.created";

/// A sandbox that was made, and the sockets of its init.
pub(crate) struct Made {
    pub(crate) status: Status,
    pub(crate) sockets: Vec<OwnedFd>,
}

impl Daemon {
    /// Makes a session, from the pool where one fits.
    pub(crate) async fn create(
        self: &Arc<Self>,
        mut new: NewSession,
    ) -> Result<Arc<Session>, Trouble> {
        let own = take_own(&mut new)?;
        let wanted = new.grants.clone();
        let id = new.id.clone();
        let rules = crate::changes::wanted_rules(&new.protect)?;
        let (view, mut grants) = self.judge_view(&new)?;
        let known = self.known_with(&own, new.network.as_ref())?;
        let spec = Spec { view, ..self.spec(new, &known)? };
        for grant in &wanted {
            let kept = self.judge(None, grant)?;
            expiry::refuse_in(&spec, &kept.grant)?;
            about::check_name(&grants, &kept)?;
            grants.push(kept);
        }
        if spec.workspace.is_some() && grants.is_empty() {
            return Err(Trouble::refused("no-workspace", "a workspace needs a granted folder"));
        }
        if let Some(id) = &id {
            self.wait_for_removal(id).await;
        }
        // Links in its home are made with a sandbox.
        let linked = crate::network::has_files(spec.network.as_ref(), &known);
        let pooled = match &id {
            None if !linked => self.take_pooled(&spec),
            None | Some(_) => None,
        };
        let (mut doc, made) = match pooled {
            Some(pooled) => (Doc { spec, grants, created: now(), ..pooled.doc }, Some(pooled.made)),
            None => (self.new_doc(id.as_deref(), spec, grants)?, None),
        };
        doc.changes.rules = rules;
        let id = doc.id.clone();
        if let Err(trouble) = self.keep_own(&id, own) {
            if made.is_some() {
                self.discard(&id).await;
            }
            return Err(trouble);
        }
        let brought = self.bring_up(doc, made).await;
        if brought.is_err() {
            self.forget_own(&id);
        }
        let session = brought?;
        self.expiring.notify_one();
        if session.is_once() {
            tokio::spawn(abandon(Arc::clone(self), Arc::clone(&session)));
        }
        Ok(session)
    }

    /// Waits for a session that is on its way out to make room for another one of its name.
    async fn wait_for_removal(&self, id: &str) {
        const PAUSE: Duration = Duration::from_millis(2);
        const PATIENCE: Duration = Duration::from_secs(5);
        let deadline = Instant::now() + PATIENCE;
        let leaving = |session: Arc<Session>| {
            let doc = session.doc();
            doc.removing.is_some() || session.is_once() && doc.state == State::Ended
        };
        while Instant::now() < deadline && self.find(id).is_some_and(leaving) {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Checks what was asked for, apart from grants.
    fn spec(&self, new: NewSession, known: &Known) -> Result<Spec, Trouble> {
        if self.count() >= MAX_SESSIONS {
            let sentence = format!("there are {MAX_SESSIONS} sessions already");
            return Err(Trouble::conflict("too-many", sentence)
                .with_hint("remove old ones with `cowork rm`"));
        }
        check_labels(&new.labels)?;
        doc::limits(&new.limits)?;
        crate::changes::check_writes(&new.writes)?;
        if let Some(network) = &new.network {
            self.check_network(network, known)?;
        }
        if let Some(workspace) = &new.workspace {
            about::check_workspace(workspace)?;
        }
        let home = new.home.as_ref().map(|home| self.pin(home)).transpose()?;
        let outputs = new.outputs.as_ref().map(|outputs| self.pin(outputs)).transpose()?;
        let skills = new.skills.as_ref().map(|skills| self.judge_skills(skills)).transpose()?;
        Ok(Spec {
            profile: new.profile,
            debugger: new.debugger,
            limits: new.limits,
            best_effort: new.best_effort,
            labels: new.labels,
            life: new.life,
            home_is: home.as_ref().map(|(_, identity)| *identity),
            outputs_is: outputs.as_ref().map(|(_, identity)| *identity),
            home: home.map(|(path, _)| path),
            outputs: outputs.map(|(path, _)| path),
            workspace: new.workspace,
            network: new.network,
            writes: new.writes,
            headless: new.headless,
            view: None,
            skills,
        })
    }

    /// Where a folder really lies that the user named, and which folder that is: later it must still
    /// be that one.
    fn pin(&self, folder: &Raw) -> Result<(Raw, (u64, u64)), Trouble> {
        let opened = Self::open_folder(&doc::path(folder)?)?;
        self.refuse_sensitive(None, &opened, (Access::Direct, Meant::No))?;
        let identity = opened.identity();
        Ok((doc::raw(opened.path()), (identity.device, identity.inode)))
    }

    /// The folder that a session is to see as its skills; a sensitive one must be meant.
    fn judge_skills(&self, wanted: &WantedSkills) -> Result<KeptSkills, Trouble> {
        let opened = Self::open_folder(&doc::path(&wanted.path)?)?;
        let meant = (Access::Read, Meant::from(wanted.force));
        let sensitive = self.refuse_sensitive(None, &opened, meant)?;
        let identity = opened.identity();
        let is = (identity.device, identity.inode);
        Ok(KeptSkills { path: doc::raw(opened.path()), is, sensitive })
    }

    /// A session that is not there yet.
    pub(crate) fn new_doc(
        &self,
        id: Option<&str>,
        spec: Spec,
        grants: Vec<KeptGrant>,
    ) -> Result<Doc, Trouble> {
        let id = match id {
            Some(id) => {
                let id = doc::session_id(id)?;
                if self.is_taken(id.as_str()) {
                    let sentence = format!("there is a session `{id}` already");
                    return Err(Trouble::conflict("session-exists", sentence)
                        .with_hint("choose another id, or remove that one"));
                }
                id
            }
            None => self.new_id()?,
        };
        let now = now();
        Ok(Doc {
            id: id.as_str().to_owned(),
            state: State::Creating,
            reason: None,
            created: now.clone(),
            changed: now,
            spec,
            grants,
            sandbox: None,
            restarts: 0,
            enforcement: Vec::new(),
            limits: Vec::new(),
            commands: 0,
            made: None,
            removing: None,
            network: crate::network::KeptNetwork::default(),
            changes: crate::changes::KeptChanges::default(),
            used: super::used::Used::default(),
        })
    }

    fn new_id(&self) -> Result<SessionId, Trouble> {
        let mut entropy = [0; 8];
        rustix::rand::getrandom(&mut entropy, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| Trouble::host("cannot make up an id", errno))?;
        let taken = |id: &SessionId| self.is_taken(id.as_str());
        SessionId::unused(u64::from_ne_bytes(entropy), taken)
            .ok_or_else(|| Trouble::conflict("too-many", "every made-up id is in use"))
    }

    /// Records the session, then makes it or finishes the one from the pool. If that fails nothing
    /// is left but the record.
    async fn bring_up(
        self: &Arc<Self>,
        mut doc: Doc,
        made: Option<Made>,
    ) -> Result<Arc<Session>, Trouble> {
        let id = doc.id.clone();
        if doc.spec.view.is_none() {
            for kept in &mut doc.grants {
                kept.grant.at = about::place(&id, &kept.grant.name);
            }
        }
        let made = match made {
            Some(made) if doc.grants.is_empty() && doc.spec.network.is_none() => {
                return self.claim(doc, made).await;
            }
            made => made,
        };
        let from_pool = made.is_some();
        if let Err(trouble) = self.enter(&doc) {
            if from_pool {
                self.discard(&id).await;
            }
            return Err(trouble);
        }
        let session = Session::new(doc);
        let turn = session.turn.lock().await;
        self.insert(&session);
        // Beside the making of the sandbox.
        self.prepare_network(&session).await;
        let made = match made {
            Some(made) => self.finish_pooled(&session, made).await,
            None => self.make_sandbox(&session).await,
        };
        let made = match made {
            Ok(made) => self.open_network(&session).await.map(|()| made),
            Err(trouble) => Err(trouble),
        };
        let done = match made {
            Ok(made) => self.settle_in(&session, made, None),
            Err(trouble) => Err(trouble),
        };
        if let Err(trouble) = done {
            drop(self.note_never_made(&session, &trouble.line()));
            self.forget(&id);
            self.close_network(&session).await;
            self.end_store(&session).await;
            self.discard(&id).await;
            return Err(trouble);
        }
        self.fill_pool();
        drop(turn);
        Ok(session)
    }

    /// Makes a session of one from the pool that needs nothing more: it is written down that it was
    /// asked for and that it is there, in one step.
    async fn claim(self: &Arc<Self>, doc: Doc, made: Made) -> Result<Arc<Session>, Trouble> {
        let asked = asked_for(&doc);
        let session = Session::new(doc);
        let turn = session.turn.lock().await;
        self.insert(&session);
        if let Err(trouble) = self.settle_in(&session, made, Some(&asked)) {
            drop(self.note_never_made(&session, &trouble.line()));
            self.forget(&session.id);
            self.discard(&session.id).await;
            return Err(trouble);
        }
        self.unmark(&session.id);
        self.fill_pool();
        drop(turn);
        Ok(session)
    }

    /// Takes away what says that a session is in the pool.
    fn unmark(&self, id: &str) {
        let mark = self.folders.session(id).join(super::pool::MARK);
        cowork_sys::ignore(rustix::fs::unlink(mark));
    }

    /// Writes down that a session is about to be.
    fn enter(&self, doc: &Doc) -> Result<(), Trouble> {
        let text = super::text_of(doc)?;
        self.book.record_with(CREATED, Some(&doc.id), &asked_for(doc), |catalogue| {
            catalogue.put_session(&doc.id, &text)
        })
    }

    /// Gives a session from the pool its grants.
    async fn finish_pooled(
        self: &Arc<Self>,
        session: &Arc<Session>,
        mut made: Made,
    ) -> Result<Made, Trouble> {
        self.ensure_store(session, &[])?;
        let doc = session.doc();
        self.unmark(&session.id);
        for kept in &doc.grants {
            let grant = plan::grant(&self.grant_request(&doc, kept)?);
            let request = Request::Grant { session: session.id.clone(), grant };
            let (reply, _) = self.engine.call(request).await?;
            if let Reply::Granted { submounts } = reply {
                made.status.submounts.extend(submounts);
            }
        }
        if !doc.grants.is_empty() {
            // It tells of none so far.
            about::write(self, &doc)?;
        }
        Ok(made)
    }

    /// Makes the sandbox of a session: its folders, its plan, and the keeper's part.
    pub(crate) async fn make_sandbox(
        self: &Arc<Self>,
        session: &Arc<Session>,
    ) -> Result<Made, Trouble> {
        self.ensure_store(session, &[])?;
        let doc = session.doc();
        let plan = self.plan(&doc)?;
        self.build(plan).await
    }

    pub(crate) async fn build(self: &Arc<Self>, plan: SessionPlan) -> Result<Made, Trouble> {
        let (reply, sockets) = self.engine.call(Request::Create(Box::new(plan))).await?;
        match reply {
            Reply::Session(status) => Ok(Made { status, sockets }),
            _ => Err(Trouble::host("the keeper gave an answer that does not fit", "a bug")),
        }
    }

    /// Makes the folders of a session and compiles its plan.
    pub(crate) fn plan(&self, doc: &Doc) -> Result<SessionPlan, Trouble> {
        let folder = self.folders.session(&doc.id);
        folders::make(&folder)?;
        for name in ["about", "commands"] {
            folders::make(&folder.join(name))?;
        }
        crate::network::trust_host(&folder.join("about"))
            .map_err(|error| Trouble::of_disk("cannot write the session's certificates", &error))?;
        about::write(self, doc)?;
        let mut own = Vec::new();
        let home = match (doc.spec.life, &doc.spec.home) {
            (_, Some(home)) => {
                let path = doc::path(home)?;
                let found = Folder::open(&path).map_err(|error| unusable(&error))?;
                let identity = found.identity();
                let same = doc.spec.home_is == Some((identity.device, identity.inode));
                if !same || found.path() != path {
                    return Err(changed(&path));
                }
                Home::Folder(doc::host_path(home)?)
            }
            (Life::Once, None) => Home::Memory,
            (Life::Kept, None) => {
                folders::make(&folder.join("home"))?;
                Home::Folder(real_path(&folder.join("home"))?)
            }
        };
        if doc.spec.life == Life::Kept {
            folders::make(&folder.join("uploads"))?;
            own.push(own_grant(&folder.join("uploads"), GrantName::uploads(), Access::Read)?);
        }
        match &doc.spec.outputs {
            Some(outputs) => {
                // The keeper refuses another folder than the one that was named.
                let (device, inode) = doc.spec.outputs_is.unwrap_or_default();
                own.push(GrantRequest {
                    path: doc::host_path(outputs)?,
                    folder: Identity { device, inode },
                    access: Access::Direct,
                    name: GrantName::outputs(),
                    writing: Writing::default(),
                });
            }
            None if doc.spec.life == Life::Kept => {
                folders::make(&folder.join("outputs"))?;
                let outputs = folder.join("outputs");
                own.push(own_grant(&outputs, GrantName::outputs(), Access::Direct)?);
            }
            None => {}
        }
        if let Some(skills) = &doc.spec.skills {
            let (device, inode) = skills.is;
            own.push(GrantRequest {
                path: doc::host_path(&skills.path)?,
                folder: Identity { device, inode },
                access: Access::Read,
                name: GrantName::skills(),
                writing: Writing::default(),
            });
        }
        let granted = doc.grants.iter().filter(|_| doc.spec.view.is_none());
        for kept in granted.filter(|kept| kept.phase != Phase::Removing) {
            own.push(self.grant_request(doc, kept)?);
        }
        let request = doc.request(own, home)?;
        let mut plan = plan::compile(&request, &cowork_sandbox::host::system());
        let about = Folder::open(&folder.join("about")).map_err(|error| unusable(&error))?;
        let about_path = real_path(&folder.join("about"))?;
        plan::add_about(&mut plan, &about_path, about.identity());
        self.link_files(&mut plan, doc)?;
        let first = doc.grants.first();
        if let (Some(workspace), Some(first)) = (&doc.spec.workspace, first) {
            let name = |text: &str| {
                text.parse::<GrantName>().map_err(|error| Trouble::malformed(error.to_string()))
            };
            plan::add_workspace(&mut plan, &name(workspace)?, &name(&first.grant.name)?);
        }
        self.show_host(&mut plan, doc)?;
        Ok(plan)
    }

    /// Takes over a sandbox that was just made: from here on commands can be started. `asked` is
    /// what was asked for, where that is not recorded yet.
    pub(crate) fn settle_in(
        self: &Arc<Self>,
        session: &Arc<Session>,
        made: Made,
        asked: Option<&Value>,
    ) -> Result<(), Trouble> {
        let status = made.status;
        self.listen(session, made.sockets)?;
        let running = session.running();
        let before = session.state();
        let after = before.after(Event::Made { running })?;
        let time = now();
        let told = json!({ "from": before.name(), "to": after.name(), "reason": null }).to_string();
        // What is not written down as made is taken back by whoever finds it.
        let ready = |doc: &mut Doc| {
            doc.observe(&status);
            doc.sandbox = Some(KeptSandbox::new(status.init, now()));
            doc.made.get_or_insert_with(now);
            doc.state = after;
            doc.reason = None;
            doc.changed = now();
            for kept in &mut doc.grants {
                kept.phase = Phase::Granted;
                let path = doc::path(&kept.grant.path).unwrap_or_default();
                let inside = |mount: &&Vec<u8>| {
                    use std::os::unix::ffi::OsStrExt;
                    Path::new(std::ffi::OsStr::from_bytes(mount)).starts_with(&path)
                };
                let inside = status.submounts.iter().filter(inside);
                kept.grant.submounts = inside.map(|mount| Raw::new(mount.clone())).collect();
            }
            Ok(json!({
                "sandbox": status.init,
                "enforcement": doc.enforcement,
                "limits": doc.limits,
            }))
        };
        let before = asked.map(|asked| (CREATED, asked));
        session.record_after(&self.book, (before, "session.ready"), ready, |catalogue| {
            catalogue.add_event(&time, "session.state", Some(&session.id), &told).map(drop)
        })
    }

    /// Speaks to the init of a session, and hears what is asked for inside.
    pub(crate) fn listen(
        self: &Arc<Self>,
        session: &Arc<Session>,
        sockets: Vec<OwnedFd>,
    ) -> Result<(), Trouble> {
        let mut sockets = sockets.into_iter();
        let commands = sockets.next().ok_or_else(|| {
            Trouble::host("the keeper gave no socket of the session", "too many open files?")
        })?;
        let (sender, ends) = mpsc::unbounded_channel();
        let guest = Guest::new(commands, sender)
            .map_err(|error| Trouble::host("cannot speak to the session's PID 1", error))?;
        tokio::spawn(hear_ends(Arc::clone(self), Arc::clone(session), ends));
        let asks = sockets.next().and_then(|asks| self.hear_asks(session, asks));
        let mut live = session.live();
        live.guest = Some(guest);
        live.missed = 0;
        live.ping = None;
        live.well_since = Some(Instant::now());
        if let Some(old) = std::mem::replace(&mut live.asks, asks) {
            old.abort();
        }
        Ok(())
    }
}

/// What was asked for, as it is recorded.
fn asked_for(doc: &Doc) -> Value {
    let grants: Vec<_> = doc.grants.iter().map(about::describe).collect();
    json!({
        "profile": doc.spec.profile,
        "life": doc.spec.life,
        "debugger": doc.spec.debugger,
        "labels": doc.spec.labels,
        "limits": doc.spec.limits,
        "grants": grants,
        "network": doc.spec.network,
        "writes": doc.spec.writes,
        "protected": doc.changes.rules,
        "view": doc.spec.view.as_ref().map(view::describe),
        "skills": doc.spec.skills.as_ref().map(|skills| json!({
            "path": skills.path, "access": "ro", "sensitive": skills.sensitive,
        })),
    })
}

/// A session that lives once and gets no command has lost its client.
async fn abandon(daemon: Arc<Daemon>, session: Arc<Session>) {
    /// Longest time until the command comes.
    const PATIENCE: Duration = Duration::from_secs(30);
    tokio::time::sleep(PATIENCE).await;
    if session.doc().commands == 0 {
        drop(daemon.remove(&session, super::Leave::Nothing).await);
    }
}

async fn hear_ends(
    daemon: Arc<Daemon>,
    session: Arc<Session>,
    mut ends: mpsc::UnboundedReceiver<End>,
) {
    while let Some(end) = ends.recv().await {
        daemon.command_ended(&session, end);
    }
}

pub(crate) fn check_labels(labels: &cowork_client::types::Labels) -> Result<(), Trouble> {
    if labels.len() > MAX_LABELS {
        let sentence = format!("a session has at most {MAX_LABELS} labels");
        return Err(Trouble::refused("bad-label", sentence));
    }
    for (name, value) in labels {
        let long = name.len() > MAX_LABEL || value.len() > MAX_LABEL;
        if name.is_empty() || long || name.chars().chain(value.chars()).any(char::is_control) {
            let sentence = format!(
                "label `{}` must have a name, at most {MAX_LABEL} bytes in each part, and no \
                 control characters",
                name.escape_debug()
            );
            return Err(Trouble::refused("bad-label", sentence));
        }
    }
    Ok(())
}

pub(crate) fn own_grant(
    path: &Path,
    name: GrantName,
    access: Access,
) -> Result<GrantRequest, Trouble> {
    let folder = Folder::open(path).map_err(|error| unusable(&error))?;
    Ok(GrantRequest {
        path: real_path(path)?,
        folder: folder.identity(),
        access,
        name,
        writing: Writing::default(),
    })
}

/// Where a folder really lies, as the keeper must be told it.
fn real_path(path: &Path) -> Result<HostPath, Trouble> {
    let folder = Folder::open(path).map_err(|error| unusable(&error))?;
    HostPath::new(folder.path()).map_err(|error| Trouble::host(error.to_string(), "state folder"))
}

fn changed(path: &Path) -> Trouble {
    let sentence = format!("`{}` is no longer the folder that was named", path.display());
    Trouble::conflict("folder-changed", sentence)
        .with_hint("look at what it is now, and make a new session")
}

fn unusable(error: &cowork_sandbox::folder::FolderError) -> Trouble {
    Trouble::host("a folder of the session cannot be used", crate::trouble::chain(error))
}
