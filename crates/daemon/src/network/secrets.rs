//! Secrets of the user's: kept on the host, used by egress processes, never known to a session.
//!
//! A secret belongs to the user, or to one session alone: that one hides the user's of the same name
//! in its session, and is forgotten with it.

use super::kept_secret::{Kept, Known, check, check_placeholder, token_place};
use super::placeholder::stand_in;
use super::vault::Vault;
use crate::daemon::Daemon;
use crate::session::{Doc, Session};
use crate::trouble::Trouble;
use cowork_api::egress::{Hidden, Secret as Used, ToEgress};
use cowork_client::types::{NewSecret, NewSession, Secret, SessionSecret, WantedNetwork};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Most secrets of the user's, and most of one session's.
const MAX_SECRETS: usize = 1000;
const MAX_OWN: usize = 64;
/// Stands between a session and the name of a secret of its own: no name has it.
const BETWEEN: char = '/';

/// Every secret.
#[derive(Debug)]
pub(crate) struct Secrets {
    vault: Vault,
    /// Read when they are first needed: names of the user's, and `SESSION/NAME`.
    known: Mutex<Option<Known>>,
    /// Renewals, one at a time for each secret.
    pub(super) turns: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Something changed that tells when the next renewal is due.
    pub(super) news: Notify,
    /// Whether somebody looks after renewals.
    pub(super) watched: AtomicBool,
}

/// What a secret is kept under.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(String);

impl Key {
    fn of_user(name: &str) -> Self {
        Self(name.to_owned())
    }

    fn of_session(session: &str, name: &str) -> Self {
        Self(format!("{session}{BETWEEN}{name}"))
    }

    fn parts(text: &str) -> (Option<&str>, &str) {
        text.split_once(BETWEEN).map_or((None, text), |(session, name)| (Some(session), name))
    }

    /// The session that it belongs to, if it is not the user's.
    pub(super) fn session(&self) -> Option<&str> {
        Self::parts(&self.0).0
    }

    /// The name of the secret.
    pub(super) fn name(&self) -> &str {
        Self::parts(&self.0).1
    }

    /// All of it.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl Secrets {
    /// The secrets in a state folder.
    pub(crate) fn new(state: &Path) -> Self {
        Self {
            vault: Vault::new(state),
            known: Mutex::default(),
            turns: Mutex::default(),
            news: Notify::new(),
            watched: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with all that are kept.
    fn with<R>(&self, look: impl FnOnce(&Known) -> R) -> Result<R, Trouble> {
        let mut known = self.lock();
        let known = self.read(&mut known)?;
        Ok(look(known))
    }

    fn read<'k>(&self, known: &'k mut Option<Known>) -> Result<&'k mut Known, Trouble> {
        let read = match known.take() {
            Some(read) => read,
            None => match self.vault.open()? {
                Some(text) => serde_json::from_slice(&text)
                    .map_err(|error| Trouble::host("the secrets cannot be understood", error))?,
                None => Known::new(),
            },
        };
        Ok(known.insert(read))
    }

    /// Changes what is kept. What cannot be kept is not changed.
    pub(super) fn change<R>(
        &self,
        change: impl FnOnce(&mut Known) -> Result<R, Trouble>,
    ) -> Result<R, Trouble> {
        let mut known = self.lock();
        let known = self.read(&mut known)?;
        let mut all = known.clone();
        let result = change(&mut all)?;
        let text = serde_json::to_vec(&all)
            .map_err(|error| Trouble::host("the secrets cannot be kept", error))?;
        self.vault.seal(&text)?;
        *known = all;
        drop(text);
        self.news.notify_one();
        Ok(result)
    }

    /// Those of the user's.
    pub(crate) fn all(&self) -> Result<Known, Trouble> {
        self.with(|known| {
            let of_user = known.iter().filter(|(key, _)| Key::parts(key).0.is_none());
            of_user.map(|(name, kept)| (name.clone(), kept.clone())).collect()
        })
    }

    /// Those that a session can use: its own, and those of the user's.
    pub(crate) fn known_to(&self, session: &str) -> Result<Known, Trouble> {
        self.with(|known| {
            let mut all = Known::new();
            for owner in [None, Some(session)] {
                let those = known.iter().map(|(key, kept)| (Key::parts(key), kept));
                let those = those.filter(|((of, _), _)| *of == owner);
                all.extend(those.map(|((_, name), kept)| (name.to_owned(), kept.clone())));
            }
            all
        })
    }

    /// What a secret that a session uses is kept under.
    pub(super) fn key_in(&self, session: &str, name: &str) -> Result<Key, Trouble> {
        let own = Key::of_session(session, name);
        let has = self.with(|known| known.contains_key(own.text()))?;
        Ok(if has { own } else { Key::of_user(name) })
    }

    /// The secret that is kept under a key.
    pub(super) fn get(&self, key: &Key) -> Result<Option<Kept>, Trouble> {
        self.with(|known| known.get(key.text()).cloned())
    }
}

/// The secrets that a session's network names.
pub(crate) fn named(doc: &Doc) -> BTreeSet<String> {
    doc.spec.network.as_ref().map(named_by).unwrap_or_default()
}

/// The secrets that a network names.
pub(crate) fn named_by(network: &WantedNetwork) -> BTreeSet<String> {
    let rules = network.rules.iter().filter_map(|rule| rule.secret.clone());
    network.secrets.iter().cloned().chain(rules).collect()
}

pub(super) fn missing(name: &str) -> Trouble {
    Trouble::missing("no-secret", format!("there is no secret `{}`", name.escape_debug()))
        .with_hint("set it with `cowork secret set`")
}

impl Daemon {
    /// Makes up what stands for each secret in a session, where that is not done yet.
    pub(crate) fn choose_placeholders(&self, session: &Session) -> Result<(), Trouble> {
        let doc = session.doc();
        let names = named(&doc);
        let is_new = |name: &&String| !doc.network.placeholders.contains_key(*name);
        if !names.iter().any(|name| is_new(&name)) {
            return Ok(());
        }
        let known = self.secrets.known_to(&session.id)?;
        let mut new = BTreeMap::new();
        for name in names.iter().filter(is_new) {
            if let Some(kept) = known.get(name) {
                let chosen = kept.placeholder.clone();
                new.insert(name.clone(), chosen.map_or_else(|| stand_in(&kept.value), Ok)?);
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        session.change(&self.book, |doc| doc.network.placeholders.extend(new))
    }

    /// The secrets that a session's egress process gets, and no others.
    pub(crate) fn secrets_of(&self, doc: &Doc) -> Result<Vec<Used>, Trouble> {
        let names = named(doc);
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let known = self.secrets.known_to(&doc.id)?;
        let used = names.iter().filter_map(|name| {
            let kept = known.get(name)?;
            let placeholder = doc.network.placeholders.get(name)?.clone();
            let value = Hidden(kept.value.clone().into());
            Some(Used { name: name.clone(), placeholder, value, renewal: kept.renewal() })
        });
        Ok(used.collect())
    }

    /// Every secret of the user's, without its value.
    pub(crate) fn list_secrets(&self) -> Result<Vec<Secret>, Trouble> {
        let all = self.secrets.all()?;
        Ok(all.iter().map(|(name, kept)| self.show_secret(name, kept)).collect())
    }

    fn show_secret(&self, name: &str, kept: &Kept) -> Secret {
        let store = self.secrets.vault.describe();
        let users = self.users_of(&Key::of_user(name));
        Secret {
            name: name.to_owned(),
            hosts: kept.hosts.clone(),
            mode: kept.mode,
            carrier: kept.carrier.clone(),
            variable: kept.variable.clone(),
            files: kept.files.iter().map(|file| file.name.clone()).collect(),
            set: kept.set.clone(),
            renewal: kept.renewal_state(),
            store: store.to_owned(),
            sessions: users.into_iter().map(|session| session.id.clone()).collect(),
        }
    }

    /// Sessions that use what is kept under a key.
    pub(super) fn users_of(&self, key: &Key) -> Vec<Arc<Session>> {
        let uses = |session: &Arc<Session>| {
            named(&session.doc()).contains(key.name())
                && self.secrets.key_in(&session.id, key.name()).is_ok_and(|used| used == *key)
        };
        self.all().into_iter().filter(uses).collect()
    }

    /// Keeps a secret, in place of an earlier one of its name. Sessions that use it use the new one
    /// from now on.
    pub(crate) async fn set_secret(
        self: &Arc<Self>,
        name: &str,
        new: NewSecret,
    ) -> Result<Secret, Trouble> {
        check(name, &new)?;
        let all = self.secrets.all()?;
        if all.len() >= MAX_SECRETS && !all.contains_key(name) {
            return Err(Trouble::conflict("too-many", format!("there are {MAX_SECRETS} secrets")));
        }
        self.book.record("secret.set", None, &told(name, &new))?;
        let kept = self.secrets.change(|all| {
            let kept = Kept::new(new, all.get(name));
            all.insert(name.to_owned(), kept.clone());
            Ok(kept)
        })?;
        self.tell_users(name).await;
        Ok(self.show_secret(name, &kept))
    }

    /// Forgets a secret. What sessions reached with it they reach no more.
    pub(crate) async fn remove_secret(self: &Arc<Self>, name: &str) -> Result<(), Trouble> {
        if !self.secrets.all()?.contains_key(name) {
            return Err(missing(name));
        }
        self.book.record("secret.removed", None, &json!({ "name": name }))?;
        self.secrets.change(|all| all.remove(name).map(drop).ok_or_else(|| missing(name)))?;
        self.tell_users(name).await;
        Ok(())
    }

    async fn tell_users(self: &Arc<Self>, name: &str) {
        for session in self.users_of(&Key::of_user(name)) {
            // One that dies is told when it is started again.
            drop(self.renew_rules(&session).await);
        }
    }

    /// Sends a session's egress process its secrets as they are now.
    pub(super) async fn tell_secrets(&self, session: &Session) -> Result<(), Trouble> {
        let _turn = session.turn.lock().await;
        let Some(line) = session.line() else { return Ok(()) };
        line.tell(&ToEgress::Secrets(self.secrets_of(&session.doc())?)).await
    }

    /// What a session that is not there yet can use.
    pub(crate) fn known_with(
        &self,
        own: &Known,
        network: Option<&WantedNetwork>,
    ) -> Result<Known, Trouble> {
        if network.is_none_or(|network| named_by(network).is_empty()) {
            return Ok(Known::new());
        }
        let mut known = self.secrets.all()?;
        known.extend(own.iter().map(|(name, kept)| (name.clone(), kept.clone())));
        Ok(known)
    }

    /// Keeps the secrets of a session's own, before it is made.
    pub(crate) fn keep_own(&self, session: &str, own: Known) -> Result<(), Trouble> {
        if own.is_empty() {
            return Ok(());
        }
        for (name, kept) in &own {
            let data = json!({
                "name": name, "hosts": kept.hosts, "mode": kept.mode, "carrier": kept.carrier,
                "variable": kept.variable,
            });
            self.book.record("secret.set", Some(session), &data)?;
        }
        self.secrets.change(|all| {
            let keyed = |(name, kept): (String, Kept)| (Key::of_session(session, &name).0, kept);
            all.extend(own.into_iter().map(keyed));
            Ok(())
        })
    }

    /// Forgets the secrets of a session's own.
    pub(crate) fn forget_own(&self, session: &str) {
        self.forget_those(|owner| owner == session);
    }

    /// Forgets the secrets of sessions that a daemon which died had not made yet.
    pub(crate) fn forget_orphans(&self) {
        self.forget_those(|owner| self.find(owner).is_none());
    }

    fn forget_those(&self, gone: impl Fn(&str) -> bool) {
        let is_gone = |key: &String| Key::parts(key).0.is_some_and(&gone);
        if self.secrets.with(|known| known.keys().any(is_gone)).unwrap_or_default() {
            let forgotten = self.secrets.change(|all| {
                all.retain(|key, _| !is_gone(key));
                Ok(())
            });
            // They are sealed, and nothing names them.
            drop(forgotten);
        }
    }
}

/// Takes the secrets of its own out of what a session is made from: they are in no record of it.
/// Its network names them.
pub(crate) fn take_own(new: &mut NewSession) -> Result<Known, Trouble> {
    let secrets = std::mem::take(&mut new.secrets);
    if secrets.len() > MAX_OWN {
        let sentence = format!("a session has at most {MAX_OWN} secrets of its own");
        return Err(Trouble::conflict("too-many", sentence));
    }
    let mut own = Known::new();
    for SessionSecret { name, placeholder, secret } in secrets {
        check(&name, &secret)?;
        if let Some(placeholder) = &placeholder {
            check_placeholder(placeholder, &secret.value)?;
        }
        let network = new.network.get_or_insert_default();
        if !network.secrets.contains(&name) {
            network.secrets.push(name.clone());
        }
        let kept = Kept { placeholder, ..Kept::new(secret, None) };
        if own.insert(name.clone(), kept).is_some() {
            let sentence = format!("the session has two secrets `{}`", name.escape_debug());
            return Err(Trouble::refused("bad-secret", sentence));
        }
    }
    Ok(own)
}

/// What is recorded of a secret that is set.
fn told(name: &str, new: &NewSecret) -> serde_json::Value {
    let carrier = new.carrier.as_deref().unwrap_or("bearer");
    let mut data = json!({
        "name": name, "hosts": new.hosts, "mode": new.mode, "carrier": carrier,
        "variable": new.variable,
    });
    let host = new.renewal.as_ref().and_then(|renewal| token_place(&renewal.token_url));
    if let (Some(place), Some(data)) = (host, data.as_object_mut()) {
        data.insert("renewed_by".to_owned(), json!(place.host));
    }
    data
}
