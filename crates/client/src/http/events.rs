//! Events as they happen. A connection that breaks is made again where it broke, so that none is
//! lost and none comes twice.

use super::connection::Connection;
use super::{HttpError, Request, Response};
use crate::types::Event;
use serde::Deserialize;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

/// Longest event.
const MAX_EVENT: usize = 4 * 1024 * 1024;
/// How often a broken connection is made again before it is given up.
const TRIES: u32 = 20;
/// The time between two tries.
const PAUSE: Duration = Duration::from_millis(250);

/// Events, one after the other, for as long as somebody wants them.
#[derive(Debug)]
pub struct Events {
    socket: PathBuf,
    target: String,
    /// The last event that was passed on.
    last: Option<u64>,
    response: Option<Response>,
    lines: Lines,
    tries: u32,
}

impl Events {
    pub(super) fn new(socket: PathBuf, target: String, after: Option<u64>) -> Self {
        let lines = Lines::default();
        Self { socket, target, last: after, response: None, lines, tries: 0 }
    }

    fn connect(&mut self) -> Result<(), HttpError> {
        let mut request = Request::get(self.target.as_str()).with("Accept", "text/event-stream");
        if let Some(last) = self.last {
            request = request.with("Last-Event-ID", &last.to_string());
        }
        let response = Connection::open(&self.socket)?.exchange(&request, None)?;
        let response = super::good(response)?;
        self.lines = Lines::default();
        self.response = Some(response);
        Ok(())
    }

    /// The next event of this connection.
    fn event(&mut self) -> Result<Option<Event>, HttpError> {
        loop {
            while let Some(found) = self.lines.next() {
                let event = found.event()?;
                if self.last.is_none_or(|last| event.id > last) {
                    self.last = Some(event.id);
                    return Ok(Some(event));
                }
            }
            let Some(response) = &mut self.response else { return Ok(None) };
            let mut piece = [0; 16 * 1024];
            match response.read(&mut piece) {
                Ok(0) | Err(_) => {
                    self.response = None;
                    return Ok(None);
                }
                Ok(length) => self.lines.add(piece.get(..length).unwrap_or_default())?,
            }
        }
    }
}

impl Iterator for Events {
    type Item = Result<Event, HttpError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.response.is_none() {
                match self.connect() {
                    Ok(()) => {}
                    Err(error @ (HttpError::NotRunning { .. } | HttpError::Broken { .. }))
                        if self.tries > 0 && self.tries < TRIES =>
                    {
                        drop(error);
                        self.tries += 1;
                        std::thread::sleep(PAUSE);
                        continue;
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
            match self.event() {
                Ok(Some(event)) => {
                    self.tries = 0;
                    return Some(Ok(event));
                }
                Ok(None) => {
                    self.tries += 1;
                    if self.tries > 1 {
                        std::thread::sleep(PAUSE);
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Finds the data of events in the lines of a stream (HTML Standard, "Server-sent events").
#[derive(Debug, Default)]
struct Lines {
    read: Vec<u8>,
    used: usize,
    name: Vec<u8>,
    data: Vec<u8>,
    /// Whether any line of data has come for the present event.
    any: bool,
}

/// An event as it was sent.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    name: Vec<u8>,
    data: Vec<u8>,
}

/// Events that are no longer kept.
#[derive(Deserialize)]
struct Gap {
    from: u64,
    to: u64,
}

impl Found {
    /// The event. Where events are no longer kept, one named `gap` says which.
    fn event(&self) -> Result<Event, HttpError> {
        let garbled = |_error| HttpError::Garbled("an event is not what it should be");
        if self.name != b"gap" {
            return serde_json::from_slice(&self.data).map_err(garbled);
        }
        let Gap { from, to } = serde_json::from_slice(&self.data).map_err(garbled)?;
        let data = serde_json::json!({ "from": from, "to": to });
        Ok(Event { id: to, time: String::new(), kind: "gap".to_owned(), session: None, data })
    }
}

impl Lines {
    fn add(&mut self, bytes: &[u8]) -> Result<(), HttpError> {
        drop(self.read.drain(..self.used));
        self.used = 0;
        self.read.extend(bytes);
        if self.read.len() + self.data.len() > MAX_EVENT {
            return Err(HttpError::Garbled("an event is too long"));
        }
        Ok(())
    }

    /// The next whole event.
    fn next(&mut self) -> Option<Found> {
        loop {
            let rest = self.read.get(self.used..)?;
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            let line = rest.get(..end)?;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if let Some(data) = line.strip_prefix(b"data:") {
                if self.any {
                    self.data.push(b'\n');
                }
                self.data.extend(data.strip_prefix(b" ").unwrap_or(data));
                self.any = true;
            }
            if let Some(name) = line.strip_prefix(b"event:") {
                self.name = name.strip_prefix(b" ").unwrap_or(name).to_vec();
            }
            let ends = line.is_empty();
            self.used += end + 1;
            if ends {
                let name = std::mem::take(&mut self.name);
                if std::mem::take(&mut self.any) {
                    return Some(Found { name, data: std::mem::take(&mut self.data) });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    fn events(pieces: &[&str]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for piece in pieces {
            lines.add(piece.as_bytes()).expect("it is short");
            while let Some(event) = lines.next() {
                found.push(String::from_utf8(event.data).expect("it is text"));
            }
        }
        found
    }

    #[test]
    fn data_is_found_however_it_arrives() {
        let stream =
            ": hello\n\nid: 1\nevent: x\ndata: {\"a\":\ndata: 1}\n\nid: 2\r\ndata:b\r\n\r\n";
        assert_eq!(events(&[stream]), ["{\"a\":\n1}", "b"]);
        let bytes: Vec<String> = stream.chars().map(String::from).collect();
        let bytes: Vec<&str> = bytes.iter().map(String::as_str).collect();
        assert_eq!(events(&bytes), ["{\"a\":\n1}", "b"]);
    }

    #[test]
    fn events_that_are_no_longer_kept_are_told() {
        let mut lines = Lines::default();
        lines.add(b"event: gap\ndata: {\"from\":3,\"to\":7}\n\n").expect("it is short");
        let event = lines.next().expect("it is whole").event().expect("it is a gap");
        assert_eq!((event.id, event.kind.as_str()), (7, "gap"));
    }

    #[test]
    fn an_event_is_passed_on_only_when_it_is_whole() {
        assert_eq!(events(&["data: half\n"]), Vec::<String>::new());
    }
}
