//! The OpenAPI document: what every operation takes, gives and refuses.
//!
//! It is made once from the types of the API and from tables beside the handlers; the tests compare
//! it with the routes, with the codes of problems in the source, and with the committed file. What
//! the handlers really do is compared with it by requests that are made up from it.

mod agents;
mod audit;
mod changes;
mod commands;
mod files;
mod network;
mod operation;
mod problems;
mod schemas;
mod sessions;
mod tasks;

#[cfg(test)]
mod tests;

use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use operation::Operation;
use schemas::Schemas;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What the API as a whole is, for people.
const ABOUT: &str = "Sessions are isolated computers on the host's own kernel. The daemon keeps \
    those of one user and serves them over HTTP on a UNIX socket, `api.sock` in its runtime folder, \
    which is that user's alone. With `--listen` it also listens on TCP, where every request needs \
    the bearer token and names the host by an IP address, `localhost`, or a name given with \
    `--allow-host`. Pages of a browser are refused, wherever they ask: a request with an `Origin` \
    that was not given with `--allow-origin`.\n\n\
    Whatever is refused or fails is answered with a problem (RFC 9457) whose `code` is stable. 400 \
    means that the request does not fit this document, 422 that it does and cannot be carried out, \
    409 that it contradicts what is, 503 that the host stands in the way, and 507 that it could not \
    be recorded and was therefore not done.\n\n\
    Lists come in parts: `next` of one part is the `cursor` of the next. A `POST` with an \
    `Idempotency-Key` is carried out once: the same key with the same request gets the same answer \
    for a day, also if the daemon was killed meanwhile: sessions, commands and tasks that were made \
    are answered with as they are, and where it is not known how far the call came the problem is \
    `outcome-unknown`. Bytes that are not UTF-8 are written as `{\"base64\": \"…\"}` wherever a path, a \
    word or a value is expected. Times are RFC 3339 in UTC.\n\n\
    Attached to a command, a connection speaks `cowork-stream/1` after an upgrade (`Connection: \
    Upgrade`, `Upgrade: cowork-stream/1`, answered with 101): frames of one byte that names a \
    channel (0 input, 1 output, 2 errors, 3 terminal, 4 control), four bytes with the length of \
    what follows (big-endian, at most 1 MiB), and that. Control frames are JSON: \
    `{\"started\": Command}` first and `{\"ended\": Command}` last from the daemon, \
    `{\"signal\": SignalCommand}`, `{\"resize\": Size}` or `\"detach\"` to it. An empty frame of \
    input is its end.\n\n\
    Where there is nothing but WebSockets, `attach` is one (RFC 6455, version 13; offered protocols \
    should include `cowork-stream.v1`). A message is binary and is a frame without its length: a \
    byte that names the channel, and at most 1 MiB. It is closed with 1000 when everything is said, \
    1002 for frames that are none, 1003 for text, 1008 for a message that means nothing, and 1009 \
    for one that is too long. On TCP a browser, which can send no other header, shows the token as \
    one more protocol: `cowork-token.` and the token in base64url without padding. Whoever comes \
    back asks with `from` for the output after the bytes it has; `dropped` of the command says \
    where what is kept begins.";

/// The text of the document.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let mut document = document();
    document.sort_all_objects();
    format!("{document:#}\n")
});

/// The document, as it is served and committed.
pub(crate) fn text() -> &'static str {
    DOCUMENT.as_str()
}

/// Serves the document.
pub(super) async fn serve() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text())
}

/// Every operation of the API.
fn operations(schemas: &mut Schemas) -> Vec<Operation> {
    let mut all = sessions::operations(schemas);
    all.extend(commands::operations(schemas));
    all.extend(files::operations(schemas));
    all.extend(changes::operations(schemas));
    all.extend(network::operations(schemas));
    all.extend(agents::operations(schemas));
    all.extend(tasks::operations(schemas));
    all.extend(audit::operations(schemas));
    all
}

fn document() -> Value {
    let mut schemas = Schemas::new();
    schemas.got::<cowork_client::types::Problem>();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations(&mut schemas) {
        let (path, method) = (operation.path, operation.method.to_ascii_lowercase());
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        if let Some(methods) = methods.as_object_mut() {
            methods.insert(method, operation.into_value());
        }
    }
    let responses = share(&mut paths);
    let mut paths = Value::from(paths);
    let schemas = schemas.finish(&mut paths);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "cowork",
            "version": "v1",
            "summary": "Sessions of one user",
            "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "tags": tags(),
        "servers": [{ "url": "/", "description": "The socket, or the listener on TCP" }],
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": responses,
            "parameters": { "IdempotencyKey": idempotency_key() },
            "securitySchemes": {
                "token": {
                    "type": "http", "scheme": "bearer",
                    "description": "Needed on TCP; on the socket the kernel says who asks",
                },
            },
        },
    })
}

/// Moves problems that several operations answer with to a place that they share.
fn share(paths: &mut Map<String, Value>) -> Map<String, Value> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for response in responses(paths) {
        *seen.entry(response.to_string()).or_default() += 1;
    }
    let mut shared = Map::new();
    for response in responses(paths) {
        let often = seen.get(&response.to_string()).is_some_and(|times| *times > 1);
        if let Some(name) = problems::name(response).filter(|_| often) {
            let place = json!({ "$ref": format!("#/components/responses/{name}") });
            shared.insert(name, std::mem::replace(response, place));
        }
    }
    shared
}

/// Every response of every operation.
fn responses(paths: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    let operations = paths.values_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut);
    let responses = operations.filter_map(|operation| operation.get_mut("responses"));
    responses.filter_map(Value::as_object_mut).flat_map(Map::values_mut)
}

fn tags() -> Value {
    let tags = [
        ("daemon", "The daemon itself"),
        ("sessions", "Isolated computers, and their life"),
        ("grants", "Folders of the user in a session"),
        ("commands", "What runs in a session"),
        ("files", "What lies in a session's folders"),
        ("changes", "What sessions did to folders, and how it is taken back"),
        ("network", "What sessions reach"),
        ("secrets", "What sessions use without knowing it"),
        ("agents", "Programs that work in sessions by themselves"),
        ("tasks", "What agents are asked to do, what they say meanwhile, and what came of it"),
        ("requests", "What sessions ask for and the user answers"),
        ("audit", "The record that nothing can be taken out of"),
        ("events", "What happens, as it happens"),
    ];
    tags.iter().map(|(name, about)| json!({ "name": name, "description": about })).collect()
}

fn idempotency_key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "description": "Carries the request out once, however often it is sent. Request and answer \
                        may have at most 256 KiB then.",
        "schema": {
            "type": "string", "minLength": 1, "maxLength": super::idempotency::MAX_KEY,
            "pattern": "^[!-~]([ -~]*[!-~])?$",
        },
    })
}
