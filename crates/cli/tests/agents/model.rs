//! A model of ours behind the hosts of two vendors: it speaks as much of their APIs as their agents
//! need for a turn, and notes what arrives.
//!
//! It asks the agent to read a file, to write one and to run a command, one after the other, and then
//! says what it got, together with the key that it was shown: what a session sees of that must be
//! something else.

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) host: String,
    pub(crate) path: String,
    /// The credential that it carried, without a scheme.
    pub(crate) key: String,
    pub(crate) body: Value,
}

/// The server, which ends with the process.
pub(crate) struct Model {
    seen: Arc<Mutex<Vec<Seen>>>,
    files: Arc<Mutex<Files>>,
}

/// What is answered to whoever asks for a path: what a registry of packages does.
type Files = HashMap<String, Vec<u8>>;

impl Model {
    pub(crate) fn serve(listener: TcpListener, certificate: Vec<u8>, key: Vec<u8>) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("there are versions")
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(certificate)], key)
            .expect("they belong together");
        let (config, seen) = (Arc::new(config), Arc::new(Mutex::default()));
        let files = Arc::new(Mutex::default());
        let model = Self { seen: Arc::clone(&seen), files: Arc::clone(&files) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, seen) = (Arc::clone(&config), Arc::clone(&seen));
                let files = Arc::clone(&files);
                // A client that breaks off is its own affair.
                std::thread::spawn(move || drop(converse(stream, config, &seen, &files)));
            }
        });
        model
    }

    /// Answers whoever asks for a path with these bytes.
    pub(crate) fn offer(&self, path: &str, bytes: Vec<u8>) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), bytes);
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

type Secured = BufReader<StreamOwned<ServerConnection, TcpStream>>;

fn converse(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    seen: &Mutex<Vec<Seen>>,
    files: &Mutex<Files>,
) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    while let Some(request) = read(&mut stream)? {
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let file = files.lock().unwrap_or_else(PoisonError::into_inner).get(&request.path).cloned();
        if let Some(file) = file {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", file.len());
            stream.get_mut().write_all(&[head.as_bytes(), &file].concat())?;
            stream.get_mut().flush()?;
            continue;
        }
        let events = match request.path.split('?').next() {
            Some("/v1/messages") => messages(&request),
            Some("/v1/responses") => Some(responses(&request)),
            _ => None,
        };
        let answer = match events {
            Some(events) => format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{events}",
                events.len()
            ),
            None => "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}".to_owned(),
        };
        stream.get_mut().write_all(answer.as_bytes())?;
        stream.get_mut().flush()?;
    }
    Ok(())
}

fn read(stream: &mut Secured) -> std::io::Result<Option<Seen>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut host, mut key) = (String::new(), String::new());
    let (mut length, mut chunked) = (0, false);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "host" => value.clone_into(&mut host),
            "x-api-key" => value.clone_into(&mut key),
            "authorization" => {
                value.strip_prefix("Bearer ").unwrap_or(value).clone_into(&mut key);
            }
            "content-length" => length = value.parse().unwrap_or_default(),
            "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
            _ => {}
        }
    }
    let body = if chunked { chunks(stream)? } else { exactly(stream, length)? };
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok(Some(Seen { host, path, key, body }))
}

fn exactly(stream: &mut Secured, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn chunks(stream: &mut Secured) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim(), 16).map_err(std::io::Error::other)?;
        let chunk = exactly(stream, length)?;
        stream.read_line(&mut String::new())?;
        if chunk.is_empty() {
            return Ok(all);
        }
        all.extend(chunk);
    }
}

fn events(events: &[Value]) -> String {
    let event = |event: &Value| {
        let kind = event["type"].as_str().unwrap_or_default();
        format!("event: {kind}\ndata: {event}\n\n")
    };
    events.iter().map(event).collect()
}

/// The folder that the agent works in, as the session sees it: the agent says it somewhere, and the
/// prompt says its name, as `<name>`.
fn folder(body: &Value) -> String {
    let text = body.to_string();
    let name = text.split("desk <").nth(1).and_then(|rest| rest.split('>').next());
    let end = format!("/mnt/{}", name.unwrap_or_default());
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    let mut paths = text.match_indices("/sessions/").filter_map(|(at, _)| {
        let path = text.get(at..)?.split(|c| !plain(c)).next()?;
        path.get(..path.find(&end)? + end.len())
    });
    paths.next().unwrap_or("/nowhere").to_owned()
}

/// What Claude's API answers to a turn.
fn messages(request: &Seen) -> Option<String> {
    let body = &request.body;
    let tools: Vec<&str> =
        body["tools"].as_array()?.iter().filter_map(|tool| tool["name"].as_str()).collect();
    let results = results(body);
    let folder = folder(body);
    let uses = [
        ("Read", json!({ "file_path": format!("{folder}/input.txt") })),
        (
            "Write",
            json!({ "file_path": format!("{folder}/written.txt"), "content": "by the model\n" }),
        ),
        (
            "Bash",
            json!({
                "command": format!("cat {folder}/written.txt; echo $((6*7)); pwd; echo ran > {folder}/ran.txt"),
                "description": "Looks at the file",
            }),
        ),
    ];
    let next = uses.get(results.len()).filter(|(name, _)| tools.contains(name));
    let said = format!("the model got {} results, and the key {}.", results.len(), request.key);
    let (block, delta, reason) = match next {
        Some((name, input)) => (
            json!({ "type": "tool_use", "id": format!("toolu_{}", results.len()), "name": name, "input": {} }),
            json!({ "type": "input_json_delta", "partial_json": input.to_string() }),
            "tool_use",
        ),
        None => (
            json!({ "type": "text", "text": "" }),
            json!({ "type": "text_delta", "text": said }),
            "end_turn",
        ),
    };
    let usage = json!({ "input_tokens": 10, "output_tokens": 10 });
    Some(events(&[
        json!({ "type": "message_start", "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "content": [],
            "model": body["model"], "stop_reason": null, "stop_sequence": null, "usage": usage,
        } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({
            "type": "message_delta", "usage": usage,
            "delta": { "stop_reason": reason, "stop_sequence": null },
        }),
        json!({ "type": "message_stop" }),
    ]))
}

/// What tools answered so far, as texts.
pub(crate) fn results(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().into_iter().flatten();
    let blocks = messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
    blocks
        .filter(|block| block["type"] == "tool_result")
        .map(|block| block["content"].to_string())
        .collect()
}

/// What the API of `OpenAI` answers to a turn. Models that Codex knows are given its tools inside of
/// another one, which runs a program of theirs; others are given them as they are.
fn responses(request: &Seen) -> String {
    let body = &request.body;
    let outputs = outputs(body);
    let folder = folder(body);
    let line = format!(
        "cat {folder}/input.txt; echo by the model > {folder}/written.txt; echo $((6*7)); pwd"
    );
    let item = if !outputs.is_empty() {
        let said = format!("the model got {} results, and the key {}.", outputs.len(), request.key);
        json!({
            "type": "message", "id": "msg_1", "role": "assistant",
            "content": [{ "type": "output_text", "text": said }],
        })
    } else if body["tools"].is_array() {
        json!({
            "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "exec_command",
            "arguments": json!({ "cmd": line }).to_string(),
        })
    } else {
        let program = format!("text(await tools.exec_command({}))", json!({ "cmd": line }));
        json!({
            "type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "exec",
            "input": program,
        })
    };
    let usage = json!({
        "input_tokens": 10, "input_tokens_details": null, "output_tokens": 10,
        "output_tokens_details": null, "total_tokens": 20,
    });
    events(&[
        json!({ "type": "response.created", "response": { "id": "resp_1" } }),
        json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
        json!({ "type": "response.completed", "response": { "id": "resp_1", "usage": usage } }),
    ])
}

/// What commands answered so far, as texts.
pub(crate) fn outputs(body: &Value) -> Vec<String> {
    let items = body["input"].as_array().into_iter().flatten();
    items
        .filter(|item| {
            let kind = item["type"].as_str().unwrap_or_default();
            matches!(kind, "function_call_output" | "custom_tool_call_output")
        })
        .map(|item| item["output"].to_string())
        .collect()
}
