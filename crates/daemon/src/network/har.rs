//! What a session reached, as a file that other tools read: HAR 1.2, of what is recorded. There are
//! no values of queries and of headers in it, and bodies only where a rule has them kept. A connection in which requests were looked
//! into is not there beside them.

use super::bodies;
use crate::trouble::{Trouble, chain};
use cowork_api::egress::Side;
use cowork_audit::Filter;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;

/// Most requests in a file, the newest.
const MAX_ENTRIES: usize = 10_000;

/// The file about a session that was made at `created`, with the bodies in this folder.
pub(crate) fn har(
    audit: &Path,
    (session, created): (&str, &str),
    folder: &Path,
) -> Result<Value, Trouble> {
    let read = |kind: &str| {
        let filter = Filter {
            session: Some(session.to_owned()),
            kind: Some(kind.into()),
            since: Some(created.to_owned()),
            ..Filter::default()
        };
        cowork_audit::read(audit, &filter)
            .map_err(|error| Trouble::host("the audit could not be read", chain(&error)))
    };
    let found = read("network.ended")?;
    let captured = read("network.captured")?;
    let captured: HashMap<_, _> =
        captured.iter().map(|record| (request(&record.data), &record.data)).collect();
    let carriers: HashSet<_> = found
        .iter()
        .filter(|record| is_request(&record.data))
        .map(|record| flow(&record.data))
        .collect();
    let mut entries = VecDeque::new();
    for record in &found {
        if !is_request(&record.data) && carriers.contains(&flow(&record.data)) {
            continue;
        }
        if let Some(mut entry) = entry(&record.time, &record.data) {
            if let Some(captured) = captured.get(&request(&record.data)) {
                add_bodies(&mut entry, folder, captured);
            }
            if entries.len() >= MAX_ENTRIES {
                entries.pop_front();
            }
            entries.push_back(entry);
        }
    }
    let creator = json!({ "name": "cowork", "version": env!("CARGO_PKG_VERSION") });
    Ok(json!({ "log": { "version": "1.2", "creator": creator, "entries": entries } }))
}

/// Whether a record is about a request, and not the connection that it came in.
fn is_request(data: &Value) -> bool {
    data.get("request").and_then(Value::as_u64).is_some_and(|number| number > 0)
}

/// Which connection a record belongs to: of which egress process, and its number there.
fn flow(data: &Value) -> (Option<&str>, Option<u64>) {
    (data.get("egress").and_then(Value::as_str), data.get("flow").and_then(Value::as_u64))
}

/// Which request a record is about.
fn request(data: &Value) -> ((Option<&str>, Option<u64>), Option<u64>) {
    (flow(data), data.get("request").and_then(Value::as_u64))
}

/// Adds the bodies that are kept of a request.
fn add_bodies(entry: &mut Value, folder: &Path, captured: &Value) {
    if let Some(body) = bodies::shown(folder, captured, Side::Session)
        && let Some(request) = entry.get_mut("request").and_then(Value::as_object_mut)
    {
        request.insert("postData".into(), body);
    }
    if let Some(Value::Object(body)) = bodies::shown(folder, captured, Side::Host)
        && let Some(content) = entry.pointer_mut("/response/content").and_then(Value::as_object_mut)
    {
        content.extend(body);
    }
}

/// A request or connection that has ended.
fn entry(recorded: &str, data: &Value) -> Option<Value> {
    let target = data.get("target")?;
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let number = |name: &str| data.get(name).and_then(Value::as_u64).unwrap_or(0);
    let host = text(target, "host")?;
    let port = target.get("port").and_then(Value::as_u64).unwrap_or(0);
    let method = text(target, "method");
    let path = text(target, "path").unwrap_or_default();
    // A tunnel is known by what was begun in it; of one without TLS nothing is known.
    let tls = data.get("tls").is_some_and(|tls| tls.is_string() || *tls == Value::Bool(true));
    let scheme = match (tls, &method) {
        (true, _) => "https",
        (false, Some(_)) => "http",
        (false, None) => "tcp",
    };
    let method = method.unwrap_or_else(|| "CONNECT".into());
    let version = text(data, "http").unwrap_or_default();
    let ms = number("ms");
    let ended = text(data, "at").unwrap_or_else(|| recorded.to_owned());
    let ended = humantime::parse_rfc3339(&ended).ok()?;
    let since = ended.checked_sub(std::time::Duration::from_millis(ms));
    let since = since.filter(|since| *since >= std::time::UNIX_EPOCH)?;
    let size = |bytes: u64| i64::try_from(bytes).unwrap_or(-1);
    let none = json!([]);
    let names = data.get("query_keys").and_then(Value::as_array).into_iter().flatten();
    let query: Vec<Value> = names.map(|name| json!({ "name": name, "value": "" })).collect();
    Some(json!({
        "startedDateTime": crate::book::at(since),
        "time": ms,
        "request": {
            "method": method, "url": format!("{scheme}://{host}:{port}{path}"),
            "httpVersion": version, "cookies": none, "headers": none, "queryString": query,
            "headersSize": -1, "bodySize": size(number("up")),
        },
        "response": {
            "status": number("status"), "statusText": "", "httpVersion": version, "cookies": none,
            "headers": none, "redirectURL": "", "headersSize": -1,
            "bodySize": size(number("down")),
            "content": { "size": size(number("down")), "mimeType": "" },
        },
        "cache": {},
        "timings": timings(data, ms),
        "serverIPAddress": text(data, "address").unwrap_or_default(),
        "connection": number("flow").to_string(),
        "comment": text(data, "how").unwrap_or_default(),
    }))
}

/// What took how long. Together it is the whole time: a connection that was made before counts for
/// nothing, and what did not happen is -1.
fn timings(data: &Value, ms: u64) -> Value {
    let part = |name: &str| data.get("timings")?.get(name)?.as_u64();
    let made = data.get("connection").and_then(Value::as_str) == Some("new");
    let made = |name: &str| part(name).filter(|_| made);
    let (dns, connect, tls) = (made("dns"), made("connect"), made("tls"));
    let before: u64 = [dns, connect, tls].into_iter().flatten().sum();
    let first = part("ttfb").unwrap_or(ms).clamp(before.min(ms), ms.max(before));
    let shown = |part: Option<u64>| part.map_or(json!(-1), |part| json!(part));
    // What the format calls connecting has TLS in it.
    let connect = connect.map(|connect| connect + tls.unwrap_or(0));
    json!({
        "blocked": -1, "dns": shown(dns), "connect": shown(connect), "ssl": shown(tls), "send": 0,
        "wait": first - before.min(first), "receive": ms.saturating_sub(first),
    })
}

#[cfg(test)]
mod tests {
    use super::timings;
    use serde_json::{Value, json};

    /// The sum, as the format wants it: TLS is in what connecting took.
    fn sum(timings: &Value) -> i64 {
        let parts = ["blocked", "dns", "connect", "send", "wait", "receive"];
        parts.iter().map(|part| timings[part].as_i64().unwrap().max(0)).sum()
    }

    #[test]
    fn parts_make_the_whole() {
        let parts = json!({ "dns": 2, "connect": 11, "tls": 18, "ttfb": 240 });
        let made = |how: &str| timings(&json!({ "connection": how, "timings": parts }), 1930);
        let new = made("new");
        assert_eq!(
            new,
            json!({ "blocked": -1, "dns": 2, "connect": 29, "ssl": 18, "send": 0, "wait": 209, "receive": 1690 })
        );
        assert_eq!(sum(&new), 1930);
        for kept in [made("kept"), made("early")] {
            assert_eq!((kept["dns"].as_i64(), kept["wait"].as_i64()), (Some(-1), Some(240)));
            assert_eq!(sum(&kept), 1930);
        }
        // Of something that never was answered, and of a record without them.
        let none =
            json!({ "connection": "new", "timings": { "dns": 1, "connect": 3, "ttfb": null } });
        assert_eq!(sum(&timings(&none, 10)), 10);
        assert_eq!(sum(&timings(&json!({}), 10)), 10);
    }
}
