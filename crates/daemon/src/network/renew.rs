//! Tokens that expire get their successors here: from the host, once for all sessions.
//!
//! Who is asked is the place that the user named with the token, by a process of its own which
//! serves no session (`cowork-egress`, an errand). A refresh token is in the sealed file, in the
//! daemon and in that process, and nowhere else.
//!
//! A token is renewed before it expires while a session uses it, and when a host refuses it. What is
//! refused by the place that renews it stays refused until the user sets the secret anew.

use super::kept_secret::{Kept, KeptRenewal, is_value, moment};
use super::line::{Line, Started, launch};
use super::secrets::Key;
use crate::daemon::Daemon;
use crate::engine::Engine;
use crate::session::Session;
use crate::trouble::Trouble;
use cowork_api::egress::{Errand, FromEgress, Hidden, NotRenewed, Returned, ToEgress};
use cowork_client::types::{Renewal, RenewalEncoding};
use serde::Deserialize;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Longest that an errand takes, with the start of its process.
const PATIENCE: Duration = Duration::from_secs(35);
/// Time after a renewal in which a host that refuses the token has another reason.
const NEW: u64 = 60_000;
/// Time after which a place that could not be reached is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// What the place that renews a token answers (RFC 6749 §5.1, §5.2).
#[derive(Deserialize)]
struct Tokens {
    access_token: Option<String>,
    refresh_token: Option<String>,
    expires_in: Option<f64>,
}

#[derive(Deserialize)]
struct Problem {
    error: serde_json::Value,
}

/// Why there are no other tokens.
enum Failure {
    /// There never will be.
    Refused(String),
    /// There may be later.
    Later(String),
}

impl Daemon {
    /// An egress process wants another value of a secret.
    pub(super) fn renewal_wanted(
        self: &Arc<Self>,
        session: &Arc<Session>,
        line: &Arc<Line>,
        (secret, version): (String, u64),
    ) {
        let (daemon, session, line) = (Arc::clone(self), Arc::clone(session), Arc::clone(line));
        tokio::spawn(async move {
            let key = daemon.secrets.key_in(&session.id, &secret);
            let renewed = match key {
                Ok(key) => daemon.renew_secret(&key, version).await,
                Err(trouble) => Err(NotRenewed::Failed { sentence: trouble.line() }),
            };
            match renewed {
                // Others may have got it before this one asked.
                Ok(()) => drop(daemon.tell_secrets(&session).await),
                Err(why) => {
                    drop(line.tell(&ToEgress::NotRenewed { secret, version, why }).await);
                }
            }
            line.end_renewing();
        });
    }

    /// Gets another value of a secret in place of the one with this number. Whoever comes while it is
    /// under way waits, and finds it done.
    async fn renew_secret(self: &Arc<Self>, key: &Key, version: u64) -> Result<(), NotRenewed> {
        let failed = |sentence: String| NotRenewed::Failed { sentence };
        let turn = {
            let mut turns = self.secrets.turns.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(turns.entry(key.text().to_owned()).or_default())
        };
        let _turn = turn.lock().await;
        let kept = self.secrets.get(key).map_err(|trouble| failed(trouble.line()))?;
        let kept = kept.ok_or_else(|| failed("the secret is gone".to_owned()))?;
        let renewal = kept.renewal.as_ref().ok_or(NotRenewed::IsNew)?;
        if renewal.version > version {
            return Ok(());
        }
        if let Some(sentence) = &renewal.failed {
            return Err(failed(sentence.clone()));
        }
        let now = moment();
        let is_new = renewal.renewed.is_some_and(|at| now < at.saturating_add(NEW));
        if is_new && renewal.due().is_none_or(|due| now < due) {
            return Err(NotRenewed::IsNew);
        }
        let outcome = self.fetch(key, renewal).await;
        let kept = outcome.and_then(|tokens| self.keep_tokens(key, &kept, tokens));
        match kept {
            Ok(()) => {
                for session in self.users_of(key) {
                    // One that dies is told when it is started again.
                    drop(self.tell_secrets(&session).await);
                }
                Ok(())
            }
            Err(failure) => Err(failed(self.note_failure(key, failure))),
        }
    }

    /// Asks for other tokens.
    async fn fetch(&self, key: &Key, renewal: &KeptRenewal) -> Result<Tokens, Failure> {
        let place = renewal.place().ok_or_else(|| Failure::Refused("it has no place".into()))?;
        let data = json!({ "name": key.name(), "host": place.host });
        let noted = self.book.record("secret.renewing", key.session(), &data);
        noted.map_err(|trouble| Failure::Later(trouble.line()))?;
        let host = place.host.clone();
        let (content_type, body) = request(&renewal.how);
        let errand = Errand {
            host: place.host,
            port: place.port,
            path: place.path,
            content_type: content_type.to_owned(),
            body: Hidden(body.into()),
            roots: self.settings.roots.clone(),
            parent: self.settings.parent.clone(),
        };
        let returned = run(&self.engine, errand).await.map_err(Failure::Later)?;
        understand(&host, &returned)
    }

    /// Keeps other tokens in place of those that were there, unless the user was faster.
    fn keep_tokens(&self, key: &Key, old: &Kept, tokens: Tokens) -> Result<(), Failure> {
        let value = tokens.access_token.filter(|value| is_value(value));
        let value =
            value.ok_or_else(|| Failure::Later("there is no token in the answer".into()))?;
        let rotated = tokens.refresh_token.filter(|token| is_value(token));
        let now = moment();
        let expires_at = tokens.expires_in.and_then(|seconds| {
            let life = Duration::try_from_secs_f64(seconds).ok()?;
            now.checked_add(u64::try_from(life.as_millis()).ok()?)
        });
        let before = old.renewal.as_ref().map(|renewal| renewal.version);
        let data = json!({
            "name": key.name(), "rotated": rotated.is_some(),
            "seconds": tokens.expires_in,
        });
        let changed = self.secrets.change(|all| {
            let current = all.get_mut(key.text());
            let Some(current) = current else { return Ok(false) };
            let Some(renewal) = &mut current.renewal else { return Ok(false) };
            if Some(renewal.version) != before {
                return Ok(false);
            }
            current.value = value;
            if let Some(rotated) = rotated {
                renewal.how.refresh_token = rotated;
            }
            renewal.how.expires_at = expires_at.unwrap_or_default();
            renewal.version = now.max(renewal.version + 1);
            renewal.renewed = Some(now);
            Ok(true)
        });
        match changed {
            Ok(true) => {
                // It is in force; that it cannot be told changes nothing.
                drop(self.book.record("secret.renewed", key.session(), &data));
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(trouble) => Err(Failure::Later(trouble.line())),
        }
    }

    /// Records why there is no other token; the sentence.
    fn note_failure(&self, key: &Key, failure: Failure) -> String {
        let (sentence, forever) = match failure {
            Failure::Refused(sentence) => (sentence, true),
            Failure::Later(sentence) => (sentence, false),
        };
        let data = json!({ "name": key.name(), "reason": sentence, "again": !forever });
        drop(self.book.record("secret.unrenewed", key.session(), &data));
        if forever {
            drop(self.secrets.change(|all| {
                if let Some(renewal) = all.get_mut(key.text()).and_then(|it| it.renewal.as_mut()) {
                    renewal.failed = Some(sentence.clone());
                }
                Ok(())
            }));
        }
        sentence
    }

    /// Looks after tokens that sessions use, from now on, if somebody does not yet.
    pub(super) fn watch_tokens(self: &Arc<Self>) {
        self.secrets.news.notify_one();
        if self.next_due().is_none() || self.secrets.watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let daemon = Arc::clone(self);
        tokio::spawn(async move {
            while !daemon.is_leaving() {
                let Some((key, version, at)) = daemon.next_due() else {
                    daemon.secrets.news.notified().await;
                    continue;
                };
                let wait = Duration::from_millis(at.saturating_sub(moment()));
                if !wait.is_zero() {
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = daemon.secrets.news.notified() => {}
                    }
                    continue;
                }
                if daemon.renew_secret(&key, version).await.is_err() {
                    tokio::time::sleep(AGAIN).await;
                }
            }
        });
    }

    /// The token in use that is due first: its key, the number of its value, and when.
    fn next_due(&self) -> Option<(Key, u64, u64)> {
        let lines = self.all().into_iter().filter(|session| session.line().is_some());
        let used = lines.flat_map(|session| {
            let doc = session.doc();
            let keys = super::secrets::named(&doc).into_iter();
            keys.filter_map(|name| self.secrets.key_in(&doc.id, &name).ok()).collect::<Vec<_>>()
        });
        let due = used.filter_map(|key| {
            let renewal = self.secrets.get(&key).ok()??.renewal?;
            Some((key, renewal.version, renewal.due()?))
        });
        due.min_by_key(|(_, _, at)| *at)
    }
}

/// Has a request made by a process of its own.
async fn run(engine: &Arc<Engine>, errand: Errand) -> Result<Returned, String> {
    let sentence = |trouble: Trouble| trouble.line();
    let starting = launch(engine, None).await.map_err(sentence)?;
    let Started { pid, end, process } = starting.started().await.map_err(sentence)?;
    let line = Arc::new(Line::new(end, pid, Some(process)).map_err(sentence)?);
    let made = async {
        line.tell(&ToEgress::Errand(Box::new(errand))).await.map_err(sentence)?;
        match line.hear().await {
            Some(FromEgress::Returned(returned)) => returned,
            Some(_) | None => Err("the process that was to renew it failed".to_owned()),
        }
    };
    let made = tokio::time::timeout(PATIENCE, made).await;
    tokio::spawn(Arc::clone(&line).bury(Arc::clone(engine)));
    made.unwrap_or_else(|_late| Err("it takes too long".to_owned()))
}

/// The request for other tokens: what it is, and its body.
fn request(how: &Renewal) -> (&'static str, String) {
    let mut fields =
        vec![("grant_type", "refresh_token"), ("refresh_token", how.refresh_token.as_str())];
    let more = [
        ("client_id", &how.client_id),
        ("client_secret", &how.client_secret),
        ("scope", &how.scope),
    ];
    fields.extend(more.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))));
    match how.encoding {
        RenewalEncoding::Json => {
            let object: serde_json::Map<String, serde_json::Value> =
                fields.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
            ("application/json", serde_json::Value::Object(object).to_string())
        }
        RenewalEncoding::Form => {
            let pairs = fields.iter().map(|(name, value)| format!("{name}={}", escaped(value)));
            ("application/x-www-form-urlencoded", pairs.collect::<Vec<_>>().join("&"))
        }
    }
}

/// A text as URLs and forms write it.
pub(super) fn escaped(text: &str) -> String {
    let mut written = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            written.push(char::from(byte));
        } else {
            cowork_sys::ignore(std::fmt::Write::write_fmt(
                &mut written,
                format_args!("%{byte:02X}"),
            ));
        }
    }
    written
}

/// Reads what came back. Of a refusal only its code is told: its words may repeat what was sent.
fn understand(host: &str, returned: &Returned) -> Result<Tokens, Failure> {
    let Hidden(body) = &returned.body;
    match returned.status {
        200..=299 => serde_json::from_slice(body)
            .map_err(|_cause| Failure::Later(format!("the answer of {host} has no tokens"))),
        status @ (400 | 401 | 403) => {
            let problem: Option<Problem> = serde_json::from_slice(body).ok();
            let code = problem.and_then(|problem| match problem.error {
                serde_json::Value::String(code) => Some(code),
                serde_json::Value::Object(inner) => Some(inner.get("type")?.as_str()?.to_owned()),
                _ => None,
            });
            let word = |code: &String| {
                code.len() <= 40
                    && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            };
            let code = code.filter(word).map(|code| format!(", {code}")).unwrap_or_default();
            Err(Failure::Refused(format!("{host} refuses to renew it ({status}{code})")))
        }
        status => Err(Failure::Later(format!("{host} answers {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn how(encoding: RenewalEncoding) -> Renewal {
        Renewal {
            refresh_token: "a b&c".into(),
            client_id: Some("me".into()),
            encoding,
            ..Renewal::default()
        }
    }

    #[test]
    fn requests_are_written_as_forms_and_as_json() {
        let (kind, body) = request(&how(RenewalEncoding::Form));
        assert_eq!(kind, "application/x-www-form-urlencoded");
        assert_eq!(body, "grant_type=refresh_token&refresh_token=a%20b%26c&client_id=me");
        let (kind, body) = request(&how(RenewalEncoding::Json));
        assert_eq!(kind, "application/json");
        let object: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            object,
            json!({ "grant_type": "refresh_token", "refresh_token": "a b&c", "client_id": "me" })
        );
    }

    #[test]
    fn a_refusal_is_told_by_its_code_alone() {
        let answer = |status, body: &str| {
            let returned = Returned { status, body: Hidden(body.into()) };
            match understand("host", &returned) {
                Ok(tokens) => format!("ok {:?}", tokens.access_token),
                Err(Failure::Refused(sentence)) => format!("refused {sentence}"),
                Err(Failure::Later(sentence)) => format!("later {sentence}"),
            }
        };
        let said = answer(400, r#"{"error":"invalid_grant","error_description":"of a b&c"}"#);
        assert_eq!(said, "refused host refuses to renew it (400, invalid_grant)");
        let said = answer(401, r#"{"error":{"type":"expired","message":"of a b&c"}}"#);
        assert_eq!(said, "refused host refuses to renew it (401, expired)");
        assert_eq!(answer(403, "a b&c"), "refused host refuses to renew it (403)");
        assert_eq!(
            answer(400, r#"{"error":"A-SECRET"}"#),
            "refused host refuses to renew it (400)"
        );
        assert_eq!(answer(503, ""), "later host answers 503");
        assert_eq!(answer(200, "what"), "later the answer of host has no tokens");
        assert_eq!(answer(200, r#"{"access_token":"x"}"#), r#"ok Some("x")"#);
    }
}
