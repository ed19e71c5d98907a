//! One client: it asks, and counts what it is answered.

use crate::look::PATIENCE;
use crate::world::World;
use cowork_client::http::{Client, HttpError, Method, Request};
use cowork_client::types::Problem;
use serde_json::Value;
use std::io::Read;
use std::time::{Duration, Instant};

/// Longest time that any request may take, however busy the machine is and whoever was killed.
const LONGEST: Duration = Duration::from_mins(1);

/// What came of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Done(Value),
    Refused(Box<Problem>),
    /// The daemon died meanwhile: whether it was done is not known.
    Lost,
}

/// A client with a connection of its own.
pub(crate) struct Caller<'w> {
    pub(crate) world: &'w World,
    connection: Option<Client>,
}

impl<'w> Caller<'w> {
    pub(crate) fn new(world: &'w World) -> Self {
        Self { world, connection: None }
    }

    /// Asks; `what` names the kind of request.
    pub(crate) fn ask(
        &mut self,
        what: &str,
        method: Method,
        target: impl Into<String>,
        body: Option<&Value>,
    ) -> Answer {
        let mut request = Request::new(method, target);
        if let Some(body) = body {
            request = request.with_json(body);
        }
        let answer = self.bytes(what, &request);
        match answer {
            Ok(bytes) => {
                self.world.count(what, None);
                Answer::Done(serde_json::from_slice(&bytes).unwrap_or_default())
            }
            Err(Some(problem)) => {
                self.world.count(what, Some(&problem));
                Answer::Refused(problem)
            }
            Err(None) => Answer::Lost,
        }
    }

    pub(crate) fn get(&mut self, what: &str, target: impl Into<String>) -> Answer {
        self.ask(what, Method::Get, target, None)
    }

    pub(crate) fn post(&mut self, what: &str, target: impl Into<String>, body: &Value) -> Answer {
        self.ask(what, Method::Post, target, Some(body))
    }

    /// The bytes of an answer; the problem, or nothing if the connection was lost.
    pub(crate) fn bytes(
        &mut self,
        what: &str,
        request: &Request,
    ) -> Result<Vec<u8>, Option<Box<Problem>>> {
        let begun = Instant::now();
        let end = begun + PATIENCE;
        loop {
            let answer = self.exchange(request);
            if begun.elapsed() > LONGEST {
                let seconds = begun.elapsed().as_secs();
                self.world.complain(format!("{what}: {request:?} took {seconds} seconds"));
            }
            match answer {
                Ok(bytes) => return Ok(bytes),
                Err(HttpError::Problem(problem)) => return Err(Some(problem)),
                Err(HttpError::NotRunning { .. }) if self.world.faulty && Instant::now() < end => {
                    self.connection = None;
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(HttpError::Broken { .. }) if self.world.faulty => {
                    self.connection = None;
                    self.world.tell(&format!("{what}: connection lost"));
                    return Err(None);
                }
                Err(error) => {
                    self.connection = None;
                    self.world.complain(format!("{what} has no answer: {error:?}"));
                    return Err(None);
                }
            }
        }
    }

    fn exchange(&mut self, request: &Request) -> Result<Vec<u8>, HttpError> {
        let socket = self.world.site.socket();
        let client = match &mut self.connection {
            Some(client) => client,
            none => none.insert(Client::connect(&socket)?),
        };
        client.call(request)
    }

    /// All that a command wrote to one stream; nothing if the connection was lost.
    pub(crate) fn output(&mut self, target: &str, stream: &str) -> Option<Vec<u8>> {
        let request = Request::get(format!("{target}/output?stream={stream}"));
        let answer = Client::connect(&self.world.site.socket())
            .and_then(|client| client.open(&request, None));
        let mut bytes = Vec::new();
        let read = answer.map(|mut answer| answer.read_to_end(&mut bytes));
        match read {
            Ok(Ok(_)) => Some(bytes),
            Ok(Err(error)) => {
                self.world.tell(&format!("output: {error}"));
                None
            }
            Err(HttpError::Problem(problem)) => {
                self.world.count("output", Some(&problem));
                None
            }
            Err(error) => {
                self.world.tell(&format!("output: {error}"));
                None
            }
        }
    }
}
