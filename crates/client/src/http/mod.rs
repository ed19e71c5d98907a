//! A client that waits: HTTP/1.1 over the daemon's UNIX socket.
//!
//! Every failure says who is to blame: nobody answers, the daemon says no, the connection broke, or
//! what came is not what was agreed on. Nothing here starts a daemon, and nothing is retried that
//! could have had an effect.

mod connection;
mod events;

#[cfg(test)]
mod tests;

use crate::stream::PROTOCOL;
use crate::types::{Page, Problem};
use crate::uri;
use connection::{Connection, Exchange};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

pub use connection::Response;
pub use events::Events;

/// Longest answer that is kept in memory as a whole.
const MAX_ANSWER: u64 = 256 * 1024 * 1024;
/// Longest description of a problem.
const MAX_PROBLEM: u64 = 1024 * 1024;

/// Why a request has no good answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Nobody listens at the socket.
    #[error("no daemon answers at `{}`", .socket.display())]
    NotRunning {
        /// Which socket.
        socket: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The daemon says no, with its reason.
    #[error("{}", .0.title)]
    Problem(Box<Problem>),
    /// The connection failed.
    #[error("cannot {attempt}")]
    Broken {
        /// What was attempted.
        attempt: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The daemon sent something that cannot be understood.
    #[error("the daemon cannot be understood: {0}")]
    Garbled(&'static str),
}

impl HttpError {
    /// What the daemon said, if it was the daemon who said no.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            Self::NotRunning { .. } | Self::Broken { .. } | Self::Garbled(_) => None,
        }
    }
}

/// What is asked of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Look.
    Get,
    /// Make or do.
    Post,
    /// Store.
    Put,
    /// Change.
    Patch,
    /// Take away.
    Delete,
}

impl Method {
    /// Whether asking twice is the same as asking once.
    fn is_idempotent(self) -> bool {
        match self {
            Self::Get | Self::Put | Self::Delete => true,
            Self::Post | Self::Patch => false,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        })
    }
}

/// A request without what is uploaded with it.
#[derive(Clone, Debug)]
pub struct Request {
    method: Method,
    target: String,
    headers: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
}

impl Request {
    /// A request for a target that is escaped already; see [`crate::uri`].
    pub fn new(method: Method, target: impl Into<String>) -> Self {
        let target = target.into();
        // A target that is no target would be two.
        let target = target.replace(|c: char| c.is_ascii_control() || c == ' ', "%20");
        Self { method, target, headers: Vec::new(), body: None }
    }

    /// A request to look at something.
    pub fn get(target: impl Into<String>) -> Self {
        Self::new(Method::Get, target)
    }

    /// Adds a header. Control characters in the value are left out.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.chars().filter(|c| !c.is_control()).collect()));
        self
    }

    /// Adds a body of JSON.
    #[must_use]
    pub fn with_json(self, body: &impl Serialize) -> Self {
        // What is sent are types of this crate, which are all JSON.
        let body = serde_json::to_vec(body).unwrap_or_default();
        let mut request = self.with("Content-Type", "application/json");
        request.body = Some(body);
        request
    }
}

/// A body that is sent as it is read.
pub struct Upload<'a> {
    /// Where it comes from.
    pub from: &'a mut dyn Read,
    /// Its length, if that is known.
    pub length: Option<u64>,
}

impl fmt::Debug for Upload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("length", &self.length).finish_non_exhaustive()
    }
}

/// A connection that speaks [`crate::stream`] from now on.
#[derive(Debug)]
pub struct Attached {
    /// The connection.
    pub stream: UnixStream,
    /// What was read from it already.
    pub read: Vec<u8>,
}

/// Asks one daemon, one request after the other, over a connection that is kept.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    idle: Option<Connection>,
}

impl Client {
    /// Connects to the daemon behind a socket.
    pub fn connect(socket: &Path) -> Result<Self, HttpError> {
        let idle = Some(Connection::open(socket)?);
        Ok(Self { socket: socket.into(), idle })
    }

    /// Asks, and reads the whole answer.
    pub fn call(&mut self, request: &Request) -> Result<Vec<u8>, HttpError> {
        let mut response = good(self.exchange(request)?)?;
        let body = whole(&mut response, MAX_ANSWER)?;
        self.idle = response.recover();
        Ok(body)
    }

    /// Asks, and reads the answer as JSON.
    pub fn json<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, HttpError> {
        let body = self.call(request)?;
        serde_json::from_slice(&body)
            .map_err(|_error| HttpError::Garbled("an answer is not what it should be"))
    }

    /// Looks at a resource.
    pub fn get<T: DeserializeOwned>(&mut self, target: impl Into<String>) -> Result<T, HttpError> {
        self.json(&Request::get(target))
    }

    /// Asks with a body of JSON.
    pub fn send<T: DeserializeOwned>(
        &mut self,
        method: Method,
        target: impl Into<String>,
        body: &impl Serialize,
    ) -> Result<T, HttpError> {
        self.json(&Request::new(method, target).with_json(body))
    }

    /// Everything in a list, part by part.
    pub fn list<T: DeserializeOwned>(&mut self, query: &uri::Query) -> Result<Vec<T>, HttpError> {
        let mut items = Vec::new();
        let mut cursor = None;
        loop {
            let page: Page<T> = self.get(query.clone().with_some("cursor", cursor.as_deref()))?;
            items.extend(page.items);
            match page.next {
                // A place that leads to itself would never end.
                Some(next) if cursor.as_ref() == Some(&next) => return Ok(items),
                Some(next) => cursor = Some(next),
                None => return Ok(items),
            }
        }
    }

    /// Asks over a connection of its own, and leaves the body of the answer to be read.
    pub fn open(
        &self,
        request: &Request,
        upload: Option<Upload<'_>>,
    ) -> Result<Response, HttpError> {
        let connection = Connection::open(&self.socket)?;
        good(exchange(connection, request, upload)?)
    }

    /// Asks for the connection to speak [`crate::stream`].
    pub fn upgrade(&mut self, request: Request) -> Result<Attached, HttpError> {
        let request = request.with("Connection", "Upgrade").with("Upgrade", PROTOCOL);
        let response = good(self.exchange(&request)?)?;
        if response.status() != 101 {
            return Err(HttpError::Garbled("it did not change the protocol"));
        }
        Ok(response.attach())
    }

    /// Events as they happen, after the one named, or those to come. `target` is that of the list
    /// of events.
    pub fn events(&self, target: impl Into<String>, after: Option<u64>) -> Events {
        Events::new(self.socket.clone(), target.into(), after)
    }

    /// Uses the connection that is kept. One that the daemon closed meanwhile is made again, if
    /// nothing can have come of the request.
    fn exchange(&mut self, request: &Request) -> Result<Response, HttpError> {
        if let Some(connection) = self.idle.take() {
            match exchange(connection, request, None) {
                Err(Exchange::Unanswered) if request.method.is_idempotent() => {}
                Err(Exchange::Unsent(_)) => {}
                other => return Ok(other?),
            }
        }
        Ok(exchange(Connection::open(&self.socket)?, request, None)?)
    }
}

fn exchange(
    connection: Connection,
    request: &Request,
    upload: Option<Upload<'_>>,
) -> Result<Response, Exchange> {
    if let Some(upload) = upload {
        return connection.exchange(request, Some(upload));
    }
    match &request.body {
        Some(body) => connection.exchange_whole(request, body),
        None if matches!(request.method, Method::Get | Method::Delete) => {
            connection.exchange(request, None)
        }
        None => connection.exchange_whole(request, &[]),
    }
}

/// The answer, unless it is a problem.
fn good(mut response: Response) -> Result<Response, HttpError> {
    let status = response.status();
    if status < 400 {
        return Ok(response);
    }
    let body = whole(&mut response, MAX_PROBLEM).unwrap_or_default();
    let problem = serde_json::from_slice(&body).unwrap_or_else(|_not_json| Problem {
        kind: "about:blank".to_owned(),
        code: "unknown".to_owned(),
        title: format!("the daemon answered with status {status}"),
        status,
        detail: Some(String::from_utf8_lossy(&body).trim().to_owned()).filter(|s| !s.is_empty()),
        hint: None,
    });
    Err(HttpError::Problem(Box::new(problem)))
}

fn whole(response: &mut Response, most: u64) -> Result<Vec<u8>, HttpError> {
    let mut body = Vec::new();
    response
        .take(most + 1)
        .read_to_end(&mut body)
        .map_err(|source| HttpError::Broken { attempt: "read the daemon's answer", source })?;
    if u64::try_from(body.len()).is_ok_and(|length| length > most) {
        return Err(HttpError::Garbled("an answer is too long"));
    }
    Ok(body)
}
