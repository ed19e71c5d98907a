//! One session of a daemon, and what tests do with it.

use crate::look::until_some;
use crate::site::Site;
use cowork_client::http::{Method, Request};
use cowork_client::types::{Command, CommandState, Grant, Regranted, Revoked, Session, State};
use cowork_client::uri::{Query, segment};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

/// A session.
#[derive(Clone, Copy)]
pub(crate) struct Room<'s> {
    pub(crate) site: &'s Site,
    id: &'s str,
}

/// How a command ended and what it wrote.
#[derive(Debug)]
#[must_use]
pub(crate) struct Ran {
    pub(crate) code: u8,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    pub(crate) command: Command,
}

impl Ran {
    /// Standard output as text, of a command that succeeded.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        let (out, err) = (String::from_utf8_lossy(&self.out), String::from_utf8_lossy(&self.err));
        assert_eq!(self.code, 0, "out: {out}\nerr: {err}");
        out.into_owned()
    }
}

impl Site {
    /// Makes a session as `body` says.
    #[track_caller]
    pub(crate) fn room(&self, body: &Value) -> Room<'_> {
        let session: Session = typed(self.post("/v1/sessions", body));
        assert!(matches!(session.state, State::Ready), "{session:?}");
        // Few and short; a test ends soon.
        Room { site: self, id: String::leak(session.id) }
    }

    /// Makes a session without anything.
    #[track_caller]
    pub(crate) fn plain_room(&self) -> Room<'_> {
        self.room(&json!({}))
    }

    /// A session that is there already.
    pub(crate) fn known_room(&self, id: &str) -> Room<'_> {
        Room { site: self, id: String::leak(id.to_owned()) }
    }
}

impl Room<'_> {
    pub(crate) fn id(&self) -> &str {
        self.id
    }

    /// The target of something of this session.
    pub(crate) fn at(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{rest}", self.id)
    }

    /// The session as the daemon shows it.
    #[track_caller]
    pub(crate) fn show(&self) -> Session {
        typed(self.site.get(self.at("")))
    }

    #[track_caller]
    pub(crate) fn state(&self) -> State {
        self.show().state
    }

    /// Does something with the session as a whole: `pause`, `stop` and so on.
    #[track_caller]
    pub(crate) fn tell(&self, verb: &str) -> Session {
        typed(self.site.post(self.at(&format!("/{verb}")), &json!({})))
    }

    #[track_caller]
    pub(crate) fn remove(&self) {
        self.site.ask(Method::Delete, self.at(""), None).expect("it can be removed");
    }

    /// Starts a command; its number.
    #[track_caller]
    pub(crate) fn start(&self, command: &Value) -> u32 {
        let command: Command = typed(self.site.post(self.at("/commands"), command));
        command.number
    }

    /// Starts a line of the shell; its number.
    #[track_caller]
    pub(crate) fn sh(&self, line: &str) -> u32 {
        self.start(&json!({ "shell": line }))
    }

    /// Runs a line of the shell to its end.
    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> Ran {
        let number = self.sh(line);
        self.finish(number)
    }

    /// Waits for the end of a command, and reads what it wrote.
    #[track_caller]
    pub(crate) fn finish(&self, number: u32) -> Ran {
        let command = self.ended(number);
        let code = command.code.expect("it ran");
        let out = self.output(number, &[("stream", "stdout")]);
        let err = self.output(number, &[("stream", "stderr")]);
        Ran { code, out, err, command }
    }

    /// Waits for the end of a command.
    #[track_caller]
    pub(crate) fn ended(&self, number: u32) -> Command {
        drop(self.output(number, &[("follow", "true"), ("from", "end")]));
        until_some("the command has ended", || {
            let command = self.command(number);
            let over = !matches!(
                command.state,
                CommandState::Starting | CommandState::Running | CommandState::Paused
            );
            over.then_some(command)
        })
    }

    /// The command as the daemon shows it.
    #[track_caller]
    pub(crate) fn command(&self, number: u32) -> Command {
        typed(self.site.get(self.at(&format!("/commands/{number}"))))
    }

    /// What a command wrote.
    #[track_caller]
    pub(crate) fn output(&self, number: u32, options: &[(&str, &str)]) -> Vec<u8> {
        let query = Query::new(self.at(&format!("/commands/{number}/output")));
        let query = options.iter().fold(query, |query, (name, value)| query.with(name, value));
        let mut answer =
            self.site.client().open(&Request::get(query), None).expect("it has output");
        let mut bytes = Vec::new();
        answer.read_to_end(&mut bytes).expect("it can be read to its end");
        bytes
    }

    /// Waits until a command has written something.
    #[track_caller]
    pub(crate) fn until_says(&self, number: u32, text: &str) {
        until_some(&format!("the command says {text:?}"), || {
            let bytes = self.output(number, &[]);
            String::from_utf8_lossy(&bytes).contains(text).then_some(())
        });
    }

    /// Does something with a command: `pause`, `cancel` and so on.
    #[track_caller]
    pub(crate) fn tell_command(&self, number: u32, verb: &str, body: &Value) -> Command {
        typed(self.site.post(self.at(&format!("/commands/{number}/{verb}")), body))
    }

    /// Grants a folder.
    #[track_caller]
    pub(crate) fn grant(&self, path: &Path, access: &str) -> Grant {
        let body = json!({ "path": path, "access": access });
        typed(self.site.post(self.at("/grants"), &body))
    }

    #[track_caller]
    pub(crate) fn regrant(&self, name: &str, access: &str) -> Regranted {
        let body = json!({ "access": access });
        let target = self.at(&format!("/grants/{}", segment(name)));
        typed(self.site.ask(Method::Patch, target, Some(&body)).expect("it can be changed"))
    }

    #[track_caller]
    pub(crate) fn revoke(&self, name: &str) -> Revoked {
        let target = self.at(&format!("/grants/{}", segment(name)));
        typed(self.site.ask(Method::Delete, target, None).expect("it can be revoked"))
    }

    /// The names of its grants.
    #[track_caller]
    pub(crate) fn grants(&self) -> Vec<String> {
        self.show().grants.into_iter().map(|grant| grant.name).collect()
    }
}

/// An answer as what it is.
#[track_caller]
pub(crate) fn typed<T: DeserializeOwned>(answer: Value) -> T {
    let text = answer.to_string();
    serde_json::from_value(answer).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The last part of a path, as text.
#[must_use]
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
