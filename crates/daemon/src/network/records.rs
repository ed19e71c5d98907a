//! What egress processes record, in the audit: every decision, every end, each once.
//!
//! The catalogue remembers the last number of each process together with the event; of a daemon
//! that was killed between the audit and the catalogue, the audit itself tells.

use super::bodies;
use super::tally::Tally;
use crate::daemon::Daemon;
use crate::session::Session;
use cowork_api::egress::{
    Connection, CredentialMode, Ended, Http, Record, SOMEBODY, Source, Target, Used, Via, What,
};
use cowork_audit::Filter;
use cowork_client::types::NetworkTarget;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// Most records that are read to tell what a session has reached before this daemon came.
const MAX_RECALLED: usize = 100_000;

/// Where the catalogue keeps the number of the last record of a session's process.
pub(crate) fn place(session: &str) -> String {
    format!("egress/{session}")
}

impl Daemon {
    /// The number of the last record that was taken from the process that was started `since`.
    pub(crate) fn last_taken(&self, session: &str, since: &str) -> u64 {
        let kept = self.book.catalogue.get(&place(session)).ok().flatten();
        let kept = kept.as_deref().and_then(|kept| kept.rsplit_once(' '));
        let known = kept.filter(|(of, _)| *of == since).and_then(|(_, number)| number.parse().ok());
        let ahead = self.book.ahead.iter().filter(|record| {
            record.session.as_deref() == Some(session)
                && record.data.get("egress").and_then(Value::as_str) == Some(since)
        });
        let ahead = ahead.filter_map(|record| record.data.get("number").and_then(Value::as_u64));
        ahead.chain(known).max().unwrap_or(0)
    }

    /// Writes records down, in one step. What cannot be written is written when it can.
    pub(crate) async fn take_records(&self, session: &Session, since: &str, records: &[Record]) {
        let Some(last) = records.last() else { return };
        let described: Vec<(&str, Value)> = records
            .iter()
            .map(|record| {
                let (kind, mut data) = describe(record);
                session.with_tally(|tally| {
                    if !tally.is_behind() {
                        tally.take(kind, &moment(record.at), &data);
                    }
                });
                if let Some(data) = data.as_object_mut() {
                    data.insert("egress".into(), since.into());
                    data.insert("number".into(), record.number.into());
                    data.insert("at".into(), moment(record.at).into());
                    data.insert("flow".into(), record.flow.into());
                    data.insert("request".into(), record.request.into());
                }
                (kind, data)
            })
            .collect();
        let entries: Vec<(&str, &Value)> =
            described.iter().map(|(kind, data)| (*kind, data)).collect();
        let (name, value) = (place(&session.id), format!("{since} {}", last.number));
        let write = || {
            let keep =
                |catalogue: &cowork_session::catalogue::Together<'_>| catalogue.set(&name, &value);
            self.book.record_all(Some(&session.id), &entries, keep)
        };
        while write().is_err() {
            if self.find(&session.id).is_none() || self.is_leaving() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Counts what a session has reached before this daemon came, if nobody has looked yet.
    pub(crate) fn recall_traffic(&self, session: &Session) {
        if !session.with_tally(|tally| tally.is_behind()) {
            return;
        }
        let filter = Filter {
            session: Some(session.id.clone()),
            kind: Some("network".into()),
            since: Some(session.doc().created),
            limit: MAX_RECALLED,
            ..Filter::default()
        };
        let Ok(found) = cowork_audit::read(self.book.audit_folder(), &filter) else { return };
        let mut tally = Tally::default();
        for record in found {
            let at = record.data.get("at").and_then(Value::as_str).unwrap_or(&record.time);
            tally.take(&record.kind, at, &record.data);
        }
        session.with_tally(|known| *known = tally);
    }
}

fn moment(millis: u64) -> String {
    /// The end of the year 9999: what an egress process says is not believed beyond it.
    const LAST: u64 = 253_402_300_799_999;
    crate::book::at(SystemTime::UNIX_EPOCH + Duration::from_millis(millis.min(LAST)))
}

/// A target, as the API shows it.
pub(crate) fn target(target: &Target) -> NetworkTarget {
    NetworkTarget {
        host: target.host.clone(),
        port: target.port,
        method: target.method.clone(),
        path: target.path.clone(),
        process: target
            .process
            .as_ref()
            .map(|process| format!("{} ({})", process.name, process.pid)),
        via: match target.via {
            Via::Capture => "capture",
            Via::Connect => "connect",
            Via::Forward => "forward",
            Via::Socks => "socks",
            Via::Dns => "dns",
            Via::Published => "published",
        }
        .into(),
    }
}

/// Who is behind something, and how that is known: the process had the socket of the connection open
/// when it was looked for.
fn client(about: &Target) -> Value {
    about.process.as_ref().map_or(
        Value::Null,
        |process| json!({ "pid": process.pid, "exe": process.name, "confidence": "sockdiag" }),
    )
}

/// Where something arrived, if it came by a connection.
fn listener(about: &Target) -> Option<u16> {
    Some(about.listener).filter(|port| *port != 0)
}

/// A secret that was put into a request.
fn credential(used: &Used) -> Value {
    let mode = match used.mode {
        CredentialMode::Swap => "swap",
        CredentialMode::Inject => "inject",
        CredentialMode::Pin => "pin",
    };
    json!({
        "secret": used.secret, "mode": mode, "where": used.place,
        "foreign_removed": used.foreign_removed,
    })
}

/// What a record says, by its kind in the audit.
fn describe(record: &Record) -> (&'static str, Value) {
    match &record.what {
        What::Decided { target: about, decision, credentials } => {
            let credentials: Vec<Value> = credentials.iter().map(credential).collect();
            let source = match decision.source {
                Source::Policy => "policy",
                Source::User => "user",
                Source::Guard => "guard",
            };
            let data = json!({
                "target": target(about), "listener": listener(about), "client": client(about),
                "query_keys": about.query, "allowed": decision.allowed, "code": decision.code,
                "rule": decision.rule, "generation": decision.generation, "source": source,
                "held_ms": decision.held, "credentials": credentials,
            });
            ("network.decided", data)
        }
        What::Ended { target: about, address, status, up, down, ms, how, spoken, timings } => {
            let tls = spoken.tls.map(|ended| match ended {
                Ended::Here => "inspect",
                Ended::There => "tunnel",
            });
            let connection = match timings.connection {
                Connection::None => None,
                Connection::New => Some("new"),
                Connection::Early => Some("early"),
                Connection::Kept => Some("kept"),
            };
            let timings = json!({
                "dns": timings.dns, "connect": timings.connect, "tls": timings.tls,
                "ttfb": timings.first,
            });
            let data = json!({
                "target": target(about), "listener": listener(about), "client": client(about),
                "query_keys": about.query, "address": address.map(|address| address.to_string()),
                "status": status, "up": up, "down": down, "ms": ms, "how": how, "tls": tls,
                "sni": spoken.sni, "alpn": spoken.alpn,
                "cert_sha256": spoken.certificate.map(|hash| hex(&hash)),
                "http": spoken.http.map(version), "encoding": spoken.encoding,
                "upgrade": spoken.upgrade, "connection": connection, "timings": timings,
            });
            ("network.ended", data)
        }
        What::Noticed { target: about, code, sentence } => {
            let sentence = naming(about, sentence);
            let data = json!({ "target": target(about), "code": code, "sentence": sentence });
            ("network.noticed", data)
        }
        What::Captured { target: about, sent, received } => {
            let (sent, received) = (bodies::told(sent), bodies::told(received));
            let data = json!({ "target": target(about), "sent": sent, "received": received });
            ("network.captured", data)
        }
        What::Lost { records } => ("network.unrecorded", json!({ "records": records })),
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).flatten().collect()
}

/// A version of HTTP, as the protocol writes it.
fn version(http: Http) -> &'static str {
    match http {
        Http::OneZero => "HTTP/1.0",
        Http::One => "HTTP/1.1",
        Http::Two => "HTTP/2",
    }
}

/// A sentence with the name of the program that it is about, where that is known.
fn naming(about: &Target, sentence: &str) -> String {
    match (&about.process, sentence.strip_prefix(SOMEBODY)) {
        (Some(process), Some(rest)) => format!("{}{rest}", process.name),
        _ => sentence.to_owned(),
    }
}
