//! Secrets of the user's: kept on the host, used by egress processes, never known to a session.

use super::placeholder::stand_in;
use super::rules::carrier;
use super::vault::Vault;
use crate::book::now;
use crate::daemon::Daemon;
use crate::session::{Doc, Session};
use crate::trouble::Trouble;
use cowork_api::egress::{Credential, CredentialMode, Hidden, Secret as Used};
use cowork_client::types::{NewSecret, Secret, SecretMode, WantedNetwork};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most secrets.
const MAX_SECRETS: usize = 1000;
/// Longest name and value, in bytes, and most hosts.
const MAX_NAME: usize = 64;
const MAX_VALUE: usize = 65_536;
const MAX_HOSTS: usize = 64;

/// Every secret.
#[derive(Debug)]
pub(crate) struct Secrets {
    vault: Vault,
    /// Read when they are first needed.
    known: Mutex<Option<BTreeMap<String, Kept>>>,
}

/// A secret, as it is kept.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    value: String,
    pub(crate) hosts: Vec<String>,
    mode: SecretMode,
    carrier: String,
    pub(crate) variable: Option<String>,
    set: String,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Kept {
    /// How it is put into requests.
    pub(crate) fn credential(&self, name: &str) -> Result<Credential, Trouble> {
        let mode = match self.mode {
            SecretMode::Swap => CredentialMode::Swap,
            SecretMode::Inject => CredentialMode::Inject,
            SecretMode::Pin => CredentialMode::Pin,
        };
        Ok(Credential { secret: name.to_owned(), mode, carrier: carrier(&self.carrier)? })
    }
}

impl Secrets {
    /// The secrets in a state folder.
    pub(crate) fn new(state: &Path) -> Self {
        Self { vault: Vault::new(state), known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<BTreeMap<String, Kept>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Result<BTreeMap<String, Kept>, Trouble> {
        let mut known = self.lock();
        if let Some(known) = &*known {
            return Ok(known.clone());
        }
        let read = match self.vault.open()? {
            Some(text) => serde_json::from_slice(&text)
                .map_err(|error| Trouble::host("the secrets cannot be understood", error))?,
            None => BTreeMap::new(),
        };
        *known = Some(read.clone());
        Ok(read)
    }

    fn replace(&self, all: BTreeMap<String, Kept>) -> Result<(), Trouble> {
        let text = serde_json::to_vec(&all)
            .map_err(|error| Trouble::host("the secrets cannot be kept", error))?;
        self.vault.seal(&text)?;
        *self.lock() = Some(all);
        Ok(())
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

fn missing(name: &str) -> Trouble {
    Trouble::missing("no-secret", format!("there is no secret `{}`", name.escape_debug()))
        .with_hint("set it with `cowork secret set`")
}

impl Daemon {
    /// A secret by its name.
    pub(crate) fn secret(&self, name: &str) -> Result<Kept, Trouble> {
        self.secrets.all()?.remove(name).ok_or_else(|| missing(name))
    }

    /// Makes up what stands for each secret in a session, where that is not done yet.
    pub(crate) fn choose_placeholders(&self, session: &Session) -> Result<(), Trouble> {
        let doc = session.doc();
        let mut new = BTreeMap::new();
        for name in named(&doc) {
            if !doc.network.placeholders.contains_key(&name)
                && let Some(kept) = self.secrets.all()?.get(&name)
            {
                new.insert(name, stand_in(&kept.value)?);
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
        let all = self.secrets.all()?;
        let used = names.iter().filter_map(|name| {
            let kept = all.get(name)?;
            let placeholder = doc.network.placeholders.get(name)?.clone();
            let value = Hidden(kept.value.clone().into());
            Some(Used { name: name.clone(), placeholder, value })
        });
        Ok(used.collect())
    }

    /// Every secret, without its value.
    pub(crate) fn list_secrets(&self) -> Result<Vec<Secret>, Trouble> {
        let all = self.secrets.all()?;
        Ok(all.iter().map(|(name, kept)| self.show_secret(name, kept)).collect())
    }

    fn show_secret(&self, name: &str, kept: &Kept) -> Secret {
        let store = if self.secrets.vault.has_keyring() { "keyring" } else { "file" };
        Secret {
            name: name.to_owned(),
            hosts: kept.hosts.clone(),
            mode: kept.mode,
            carrier: kept.carrier.clone(),
            variable: kept.variable.clone(),
            set: kept.set.clone(),
            store: store.to_owned(),
            sessions: self.users_of(name).into_iter().map(|session| session.id.clone()).collect(),
        }
    }

    fn users_of(&self, name: &str) -> Vec<Arc<Session>> {
        let uses = |session: &Arc<Session>| named(&session.doc()).contains(name);
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
        let mut all = self.secrets.all()?;
        if all.len() >= MAX_SECRETS && !all.contains_key(name) {
            return Err(Trouble::conflict("too-many", format!("there are {MAX_SECRETS} secrets")));
        }
        let carrier = new.carrier.unwrap_or_else(|| "bearer".to_owned());
        let data = json!({
            "name": name, "hosts": new.hosts, "mode": new.mode, "carrier": carrier,
            "variable": new.variable,
        });
        self.book.record("secret.set", None, &data)?;
        let kept = Kept {
            value: new.value,
            hosts: new.hosts,
            mode: new.mode,
            carrier,
            variable: new.variable,
            set: now(),
        };
        all.insert(name.to_owned(), kept.clone());
        self.secrets.replace(all)?;
        self.tell_users(name).await;
        Ok(self.show_secret(name, &kept))
    }

    /// Forgets a secret. What sessions reached with it they reach no more.
    pub(crate) async fn remove_secret(self: &Arc<Self>, name: &str) -> Result<(), Trouble> {
        let mut all = self.secrets.all()?;
        if all.remove(name).is_none() {
            return Err(missing(name));
        }
        self.book.record("secret.removed", None, &json!({ "name": name }))?;
        self.secrets.replace(all)?;
        self.tell_users(name).await;
        Ok(())
    }

    async fn tell_users(self: &Arc<Self>, name: &str) {
        for session in self.users_of(name) {
            // One that dies is told when it is started again.
            drop(self.renew_rules(&session).await);
        }
    }
}

fn check(name: &str, new: &NewSecret) -> Result<(), Trouble> {
    let refused = |sentence: String| Err(Trouble::refused("bad-secret", sentence));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
        return refused(format!(
            "the name of a secret has at most {MAX_NAME} letters, digits, dots, hyphens and \
             underscores"
        ));
    }
    let value = &new.value;
    if value.is_empty() || value.len() > MAX_VALUE || value.chars().any(char::is_control) {
        return refused(format!(
            "a secret is one line of at most {MAX_VALUE} bytes, without control characters"
        ));
    }
    if new.hosts.len() > MAX_HOSTS {
        return refused(format!("a secret has at most {MAX_HOSTS} hosts"));
    }
    for host in &new.hosts {
        super::rules::check_host(host)?;
    }
    if let Some(variable) = &new.variable {
        let starts = variable.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts || !variable.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return refused(format!("`{}` is no name of a variable", variable.escape_debug()));
        }
    }
    carrier(new.carrier.as_deref().unwrap_or("bearer")).map(drop)
}
