//! Says that a command is held up by a question to the user, whom nobody else may have told.
//!
//! Short commands are not looked after: the first look comes late. A screen that a program draws as a
//! whole is left alone.

use crate::show::neutral;
use cowork_client::http::Client;
use cowork_client::places;
use cowork_client::types::{Request, RequestState};
use cowork_client::uri::Query;
use std::io::Write;
use std::time::{Duration, Instant};

/// When it is looked for the first time, and how often from then on.
const FIRST: Duration = Duration::from_millis(700);
const PAUSE: Duration = Duration::from_secs(2);
/// What switches to a screen of its own, and back.
const OWN_SCREEN: &[u8] = b"\x1b[?1049h";
const USUAL_SCREEN: &[u8] = b"\x1b[?1049l";

/// Where the caller reads what is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Surface {
    /// Lines.
    Lines,
    /// A terminal that does not turn the end of a line into the start of the next.
    Raw,
}

/// The questions of a session that the caller knows of.
pub(super) struct Questions {
    session: String,
    next: Option<Instant>,
    client: Option<Client>,
    known: Vec<u64>,
    screen: Screen,
}

impl Questions {
    pub(super) fn new(session: &str) -> Self {
        let next = Some(Instant::now() + FIRST);
        let screen = Screen::default();
        Self { session: session.to_owned(), next, client: None, known: Vec::new(), screen }
    }

    /// How long nothing is to be looked for.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.next.map(|next| next.saturating_duration_since(now))
    }

    /// Notes what the command writes to a terminal.
    pub(super) fn drawn(&mut self, bytes: &[u8]) {
        self.screen.drawn(bytes);
    }

    /// Says what is asked now, if it is time.
    pub(super) fn look(&mut self, now: Instant, surface: Surface) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        self.next = Some(now + PAUSE);
        if self.screen.is_own {
            return;
        }
        let Some(requests) = self.pending() else {
            // Nobody is there to ask: the conversation itself will notice.
            self.next = None;
            return;
        };
        for request in requests {
            if self.known.contains(&request.id) || request.state != RequestState::Pending {
                continue;
            }
            self.known.push(request.id);
            let text = said(&request);
            let text = match surface {
                Surface::Lines => text + "\n",
                Surface::Raw => format!("\r\n{}\r\n", text.replace('\n', "\r\n")),
            };
            // Whoever cannot be told finds it among the requests.
            cowork_sys::ignore(std::io::stderr().write_all(text.as_bytes()));
        }
    }

    fn pending(&mut self) -> Option<Vec<Request>> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(&places::socket_in(&places::runtime_folder().ok()?)).ok()?,
        };
        let query =
            Query::new("/v1/requests").with("state", "pending").with("session", &self.session);
        let requests = client.list(&query).ok()?;
        self.client = Some(client);
        Some(requests)
    }
}

fn said(request: &Request) -> String {
    let (id, kind) = (request.id, request.kind.as_str());
    let (wants, reason) = (neutral::text(&request.wanted), neutral::text(&request.reason));
    let how = if kind == "folder" { " --path FOLDER" } else { "" };
    format!(
        "cowork: request {id} waits for your answer ({kind}): {wants}\n  {reason}\n  \
         answer in another terminal: `cowork decide {id} allow{how}`, or `reject`"
    )
}

/// Whether a program draws on a screen of its own.
#[derive(Default)]
struct Screen {
    is_own: bool,
    /// The end of what was written, in which a switch may have begun.
    tail: Vec<u8>,
}

impl Screen {
    fn drawn(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        let last = |what: &[u8]| self.tail.windows(what.len()).rposition(|part| part == what);
        match (last(OWN_SCREEN), last(USUAL_SCREEN)) {
            (None, None) => {}
            (own, usual) => self.is_own = own > usual,
        }
        let keep = self.tail.len().saturating_sub(OWN_SCREEN.len() - 1);
        self.tail.drain(..keep);
    }
}

#[cfg(test)]
mod tests {
    use super::Screen;

    #[test]
    fn a_screen_of_its_own_is_noticed_also_in_pieces() {
        let mut screen = Screen::default();
        screen.drawn(b"hello \x1b[?1049");
        assert!(!screen.is_own);
        screen.drawn(b"h and more");
        assert!(screen.is_own);
        screen.drawn(b"text");
        assert!(screen.is_own);
        screen.drawn(b"\x1b[?1049l\x1b[?1049h\x1b[?1049l");
        assert!(!screen.is_own);
    }
}
