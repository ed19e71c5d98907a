//! A secret, as it is kept, and what may be one.

use super::rules::{carrier, check_host};
use crate::book::now;
use crate::trouble::Trouble;
use cowork_api::egress::{self as wire, Credential, CredentialMode};
use cowork_client::types::{NewSecret, Renewal, RenewalState, SecretFile, SecretMode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Secrets by their names.
pub(crate) type Known = BTreeMap<String, Kept>;

/// Longest name and value, in bytes, and most hosts and files.
const MAX_NAME: usize = 64;
const MAX_VALUE: usize = 65_536;
const MAX_HOSTS: usize = 64;
const MAX_FILES: usize = 8;
const MAX_CONTENTS: usize = 4096;
/// Shortest placeholder that somebody may choose: no text has it by chance.
const LEAST_PLACEHOLDER: usize = 16;
/// Names in a session's home that are ours.
const TAKEN: [&str; 4] = [".", "..", "mnt", "COWORK.md"];
/// A token is renewed this long before it expires, or after three quarters of a shorter life.
const MARGIN: u64 = 5 * 60 * 1000;
/// Shortest time between two renewals, in milliseconds.
const SHORTEST: u64 = 10_000;

/// A secret, as it is kept.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(super) value: String,
    pub(crate) hosts: Vec<String>,
    pub(super) mode: SecretMode,
    pub(super) carrier: String,
    pub(crate) variable: Option<String>,
    pub(super) set: String,
    /// Files in the home of a session with its placeholder.
    #[serde(default)]
    pub(super) files: Vec<SecretFile>,
    /// What stands for it, if that was chosen.
    #[serde(default)]
    pub(super) placeholder: Option<String>,
    /// How it gets another value.
    #[serde(default)]
    pub(super) renewal: Option<KeptRenewal>,
}

/// How a secret gets another value, as it is kept.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct KeptRenewal {
    pub(super) how: Renewal,
    /// Counts values: larger than that of any earlier one.
    pub(super) version: u64,
    /// When it got this one, in milliseconds since 1970; nothing if it was set.
    pub(super) renewed: Option<u64>,
    /// Why it gets no other one any more, until it is set anew.
    pub(super) failed: Option<String>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// Milliseconds since 1970.
pub(super) fn moment() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn written(moment: u64) -> Option<String> {
    UNIX_EPOCH.checked_add(Duration::from_millis(moment)).map(crate::book::at)
}

impl Kept {
    /// A secret that is set now, in place of an earlier one.
    pub(super) fn new(new: NewSecret, earlier: Option<&Self>) -> Self {
        let last = earlier.and_then(|earlier| earlier.renewal.as_ref()).map_or(0, |it| it.version);
        let renewal = new.renewal.map(|how| KeptRenewal {
            how,
            version: moment().max(last + 1),
            renewed: None,
            failed: None,
        });
        Self {
            value: new.value,
            hosts: new.hosts,
            mode: new.mode,
            carrier: new.carrier.unwrap_or_else(|| "bearer".to_owned()),
            variable: new.variable,
            set: now(),
            files: new.files,
            placeholder: None,
            renewal,
        }
    }

    /// How it is put into requests.
    pub(crate) fn credential(&self, name: &str) -> Result<Credential, Trouble> {
        let mode = match self.mode {
            SecretMode::Swap => CredentialMode::Swap,
            SecretMode::Inject => CredentialMode::Inject,
            SecretMode::Pin => CredentialMode::Pin,
        };
        Ok(Credential { secret: name.to_owned(), mode, carrier: carrier(&self.carrier)? })
    }

    /// Whether an egress process may ask for another value.
    pub(super) fn renewal(&self) -> wire::Renewal {
        match &self.renewal {
            None => wire::Renewal::Never,
            Some(KeptRenewal { how, version, .. }) => wire::Renewal::OnDemand {
                version: *version,
                expires: Some(how.expires_at).filter(|at| *at > 0),
            },
        }
    }

    /// What is told of its renewal.
    pub(super) fn renewal_state(&self) -> Option<RenewalState> {
        let renewal = self.renewal.as_ref()?;
        Some(RenewalState {
            host: renewal.place().map(|place| place.host).unwrap_or_default(),
            expires: Some(renewal.how.expires_at).filter(|at| *at > 0).and_then(written),
            renewed: renewal.renewed.and_then(written),
            failed: renewal.failed.clone(),
        })
    }
}

/// Where a token is renewed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TokenPlace {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) path: String,
}

impl KeptRenewal {
    /// Where it is renewed.
    pub(super) fn place(&self) -> Option<TokenPlace> {
        token_place(&self.how.token_url)
    }

    /// When it is to be renewed, in milliseconds since 1970; nothing if only its host can tell.
    pub(super) fn due(&self) -> Option<u64> {
        if self.how.expires_at == 0 || self.failed.is_some() {
            return None;
        }
        let life = self.renewed.map(|from| self.how.expires_at.saturating_sub(from));
        let margin = life.map_or(MARGIN, |life| MARGIN.min(life / 4));
        let earliest = self.renewed.map_or(0, |from| from + SHORTEST);
        Some(self.how.expires_at.saturating_sub(margin).max(earliest))
    }
}

/// Where a URL leads that tokens are renewed at.
pub(super) fn token_place(url: &str) -> Option<TokenPlace> {
    let rest = url.strip_prefix("https://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)?),
        None => (authority, 443),
    };
    let host: cowork_policy::egress::HostName = host.parse().ok()?;
    let plain = path.bytes().all(|byte| byte.is_ascii_graphic()) && !path.contains('#');
    let path = match path {
        "" => "/".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("/{path}"),
    };
    plain.then(|| TokenPlace { host: host.as_str().to_owned(), port, path })
}

fn refused(sentence: impl Into<String>) -> Trouble {
    Trouble::refused("bad-secret", sentence)
}

/// Whether a text can be a value.
pub(super) fn is_value(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_VALUE && !text.chars().any(char::is_control)
}

/// Refuses what cannot be a secret.
pub(super) fn check(name: &str, new: &NewSecret) -> Result<(), Trouble> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
        return Err(refused(format!(
            "the name of a secret has at most {MAX_NAME} letters, digits, dots, hyphens and \
             underscores"
        )));
    }
    if !is_value(&new.value) {
        return Err(refused(format!(
            "a secret is one line of at most {MAX_VALUE} bytes, without control characters"
        )));
    }
    if new.hosts.len() > MAX_HOSTS {
        return Err(refused(format!("a secret has at most {MAX_HOSTS} hosts")));
    }
    for host in &new.hosts {
        check_host(host)?;
    }
    if let Some(variable) = &new.variable {
        let starts = variable.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts || !variable.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(refused(format!("`{}` is no name of a variable", variable.escape_debug())));
        }
    }
    if new.files.len() > MAX_FILES {
        return Err(refused(format!("a secret has at most {MAX_FILES} files")));
    }
    for SecretFile { name, contents } in &new.files {
        let named = !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(plain);
        if !named || TAKEN.contains(&name.as_str()) {
            return Err(refused(format!("`{}` is no name of a file", name.escape_debug())));
        }
        if contents.is_empty() || contents.len() > MAX_CONTENTS || contents.contains('\0') {
            let sentence = format!("a file of a secret has from 1 to {MAX_CONTENTS} bytes of text");
            return Err(refused(sentence));
        }
    }
    if let Some(renewal) = &new.renewal {
        check_renewal(renewal)?;
    }
    carrier(new.carrier.as_deref().unwrap_or("bearer")).map(drop)
}

fn check_renewal(renewal: &Renewal) -> Result<(), Trouble> {
    if token_place(&renewal.token_url).is_none() {
        let sentence = "a token is renewed at a URL with `https` and the name of a host";
        return Err(refused(sentence));
    }
    let texts = [
        Some(&renewal.refresh_token),
        renewal.client_id.as_ref(),
        renewal.client_secret.as_ref(),
        renewal.scope.as_ref(),
    ];
    if !texts.into_iter().flatten().all(|text| is_value(text)) {
        let sentence = "what renews a token is one line each, without control characters";
        return Err(refused(sentence));
    }
    Ok(())
}

/// Refuses a placeholder that texts could have by chance.
pub(super) fn check_placeholder(placeholder: &str, value: &str) -> Result<(), Trouble> {
    let graphic = placeholder.bytes().all(|byte| byte.is_ascii_graphic());
    if placeholder.len() < LEAST_PLACEHOLDER || placeholder.len() > MAX_VALUE || !graphic {
        return Err(refused(format!(
            "a placeholder has at least {LEAST_PLACEHOLDER} letters, digits and signs, and no blanks"
        )));
    }
    if placeholder.contains(value) || value.contains(placeholder) {
        return Err(refused("a placeholder tells nothing of its secret"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_at_a_place_with_a_name() {
        let place = |host: &str, port, path: &str| {
            Some(TokenPlace { host: host.into(), port, path: path.into() })
        };
        assert_eq!(token_place("https://a.example/v1/token"), place("a.example", 443, "/v1/token"));
        assert_eq!(token_place("https://a.example:8443"), place("a.example", 8443, "/"));
        assert_eq!(token_place("https://a.example?x=1"), place("a.example", 443, "/?x=1"));
        for wrong in [
            "http://a.example/",
            "https://",
            "https://a.example:0/",
            "https://me@a.example/",
            "https://a.example/a b",
            "https://a.example/\r\nx: y",
            "a.example",
        ] {
            assert_eq!(token_place(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn it_is_due_before_it_expires_and_not_all_the_time() {
        let mut renewal = KeptRenewal {
            how: Renewal { expires_at: 10_000_000, ..Renewal::default() },
            version: 1,
            renewed: None,
            failed: None,
        };
        assert_eq!(renewal.due(), Some(10_000_000 - MARGIN));
        renewal.renewed = Some(10_000_000 - 400_000);
        assert_eq!(renewal.due(), Some(10_000_000 - 100_000), "three quarters of a short life");
        renewal.renewed = Some(10_000_000 - 4);
        assert_eq!(renewal.due(), Some(10_000_000 - 4 + SHORTEST));
        renewal.failed = Some("refused".into());
        assert_eq!(renewal.due(), None);
    }

    #[test]
    fn placeholders_tell_nothing() {
        assert!(check_placeholder("fake_value_0123456789", "a-real-value").is_ok());
        for wrong in ["short", "has blanks in it, many", "x-a-real-value-0123456"] {
            assert!(check_placeholder(wrong, "a-real-value").is_err(), "{wrong}");
        }
    }
}
