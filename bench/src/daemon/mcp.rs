//! How long tools of MCP take: from the line of a call to the line of its answer, over standard
//! input and output, beside `cowork exec`.

use super::server::Server;
use crate::book::Book;
use crate::site::Site;
use crate::start::Contender;
use crate::stopped::Stopped;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// A call that runs a program which does nothing.
pub(crate) const RUN: &str = "MCP: run_command of a no-op";
/// A call that reads a small file.
pub(crate) const READ: &str = "MCP: read_file";

/// A server that was started for the measurement.
struct Talk {
    child: Child,
    ask: Option<ChildStdin>,
    answer: BufReader<ChildStdout>,
    number: u64,
}

impl Talk {
    fn start(site: &Site, server: &Server) -> Result<Self, Stopped> {
        let project = site.project().display().to_string();
        let mut command = server.cowork(site, &["mcp", "--grant", &project]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Stopped::at("cowork mcp", error))?;
        let (Some(ask), Some(answer)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Stopped::new("`cowork mcp` has no streams"));
        };
        let mut talk = Self { child, ask: Some(ask), answer: BufReader::new(answer), number: 0 };
        let about = json!({ "name": "bench", "version": "1" });
        let hello =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about });
        talk.call("initialize", &hello)?;
        talk.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        talk.tool("create_session", &json!({}))?;
        Ok(talk)
    }

    fn send(&mut self, message: &Value) -> Result<(), Stopped> {
        let ask = self.ask.as_mut().ok_or_else(|| Stopped::new("`cowork mcp` has ended"))?;
        writeln!(ask, "{message}").map_err(|error| Stopped::at("ask `cowork mcp`", error))
    }

    /// Asks, and waits for the answer.
    fn call(&mut self, method: &str, params: &Value) -> Result<Value, Stopped> {
        self.number += 1;
        let number = self.number;
        self.send(&json!({ "jsonrpc": "2.0", "id": number, "method": method, "params": params }))?;
        loop {
            let mut line = String::new();
            let read = self.answer.read_line(&mut line);
            let read = read.map_err(|error| Stopped::at("hear `cowork mcp`", error))?;
            if read == 0 {
                return Err(Stopped::new("`cowork mcp` has ended"));
            }
            let said: Value = serde_json::from_str(&line)
                .map_err(|error| Stopped::at("an answer of `cowork mcp`", error))?;
            if said.get("id") == Some(&json!(number)) {
                return Ok(said);
            }
        }
    }

    /// Calls a tool, which must do what it is asked; says how long that took.
    fn tool(&mut self, name: &str, arguments: &Value) -> Result<Duration, Stopped> {
        let begin = Instant::now();
        let said = self.call("tools/call", &json!({ "name": name, "arguments": arguments }))?;
        let took = begin.elapsed();
        let wrong = said.pointer("/result/isError") != Some(&json!(false));
        if wrong { Err(Stopped::at(name, said)) } else { Ok(took) }
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        drop(self.tool("end_session", &json!({})));
        // The end of its input is its own.
        drop(self.ask.take());
        drop(self.child.wait());
    }
}

/// Tools in a session that is there, over a connection that is there.
pub(super) fn tools<'a>(site: &'a Site, server: &Server) -> Result<Contender<'a>, Stopped> {
    let file = site.project().join("mcp.txt");
    std::fs::write(&file, "a small file\n").map_err(|error| Stopped::at(file.display(), error))?;
    let mut talk = Talk::start(site, server)?;
    let turns = move |book: &mut Book| {
        let noop = json!({ "argv": [site.noop_inside()], "cwd": "mnt/project" });
        book.took(RUN, talk.tool("run_command", &noop)?);
        book.took(READ, talk.tool("read_file", &json!({ "path": "mnt/project/mcp.txt" }))?);
        Ok(())
    };
    Ok(Contender::new(RUN, turns))
}
