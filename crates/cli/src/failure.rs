//! Errors become sentences here, and nowhere else: what went wrong, why, what to do, exit code.

use crate::show::neutral;
use clap::error::{ContextKind, ContextValue};
use cowork_client::http::HttpError;
use cowork_client::places::PlaceError;
use cowork_client::types::Problem;
use cowork_sandbox::client::ClientError;
use cowork_sys::Errno;
use std::process::ExitCode;

/// What was asked for cannot be had; asking otherwise can.
const ASKED: u8 = 1;
/// The command line itself is wrong.
pub(crate) const USAGE: u8 = 2;
/// The command's time was over, as `timeout` says it.
pub(crate) const TIME_OVER: u8 = 124;
/// cowork itself failed, before or beside the command.
pub(crate) const OWN: u8 = 125;
/// The command cannot be executed, as shells say it.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command, as shells say it.
pub(crate) const NOT_FOUND: u8 = 127;

/// What the exit code of a verb stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returns {
    /// A command's status: whatever goes wrong beside it has one code.
    Command,
    /// A command's status, as srt returns it: whatever goes wrong beside it is 1.
    Srt,
    /// How the verb itself went.
    Outcome,
}

/// Who can mend it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The user, by asking for something else.
    User,
    /// Whoever looks after this host.
    Host,
}

/// Something that a person is told.
#[derive(Debug)]
pub(crate) struct Failure {
    sentence: String,
    cause: Option<String>,
    hint: Option<String>,
    fault: Fault,
    code: Option<u8>,
}

impl Failure {
    /// The user can mend this by asking for something else.
    pub(crate) fn input(sentence: impl Into<String>, hint: impl Into<String>) -> Self {
        let hint = Some(hint.into());
        Self { sentence: sentence.into(), cause: None, hint, fault: Fault::User, code: None }
    }

    /// Something on this host stands in the way.
    pub(crate) fn host(sentence: impl Into<String>, cause: Option<String>) -> Self {
        Self { sentence: sentence.into(), cause, hint: None, fault: Fault::Host, code: None }
    }

    pub(crate) fn with_cause(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = Some(code);
        self
    }

    /// What went wrong and why, in a line.
    pub(crate) fn line(&self) -> String {
        let cause = self.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{}{cause}", self.sentence)
    }

    /// Writes it to standard error.
    #[expect(clippy::print_stderr, reason = "this is where a person is told")]
    pub(crate) fn report(&self, returns: Returns) -> ExitCode {
        eprintln!("cowork: {}", neutral::text(&self.sentence));
        if let Some(cause) = &self.cause {
            eprintln!("  because: {}", neutral::text(cause));
        }
        if let Some(hint) = self.hint.as_ref().filter(|hint| !hint.is_empty()) {
            eprintln!("  hint: {}", neutral::text(hint));
        }
        ExitCode::from(match (self.code, returns, self.fault) {
            (Some(code), ..) => code,
            (None, Returns::Outcome, Fault::User) | (None, Returns::Srt, _) => ASKED,
            (None, Returns::Command, _) | (None, _, Fault::Host) => OWN,
        })
    }
}

/// Tells the user something that is no failure.
#[expect(clippy::print_stderr, reason = "this is where a person is told")]
pub(crate) fn note(text: &str) {
    eprintln!("cowork: {}", neutral::text(text));
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(failure) => {
                let refused = Self::host(failure.sentence, None).with_hint(failure.hint);
                match failure.errno {
                    0 => refused,
                    errno => {
                        let cause = std::io::Error::from(Errno::from_raw_os_error(errno));
                        refused.with_cause(cause.to_string())
                    }
                }
            }
            other => {
                let cause = std::error::Error::source(&other).map(ToString::to_string);
                Self::host(other.to_string(), cause).with_hint("run `cowork doctor`")
            }
        }
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        match error {
            HttpError::Problem(problem) => (*problem).into(),
            HttpError::NotRunning { .. } => Self::host(error.to_string(), cause),
            HttpError::Broken { .. } => Self::host(error.to_string(), cause)
                .with_hint("see what the daemon says with `cowork status`"),
            HttpError::Garbled(_) => Self::host(error.to_string(), cause).with_hint(
                "it may be of another version than this program: stop it with \
                 `cowork daemon --stop`",
            ),
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let fault = if problem.status < 500 { Fault::User } else { Fault::Host };
        let Problem { title, detail, hint, .. } = problem;
        Self { sentence: title, cause: detail, hint, fault, code: None }
    }
}

impl From<PlaceError> for Failure {
    fn from(error: PlaceError) -> Self {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let hint = match &error {
            PlaceError::Untrusted { .. } | PlaceError::Kernel { .. } => {
                "set `COWORK_RUNTIME_DIR` to a folder of your own with permissions 0700"
            }
            PlaceError::TooLong { .. } => "set `COWORK_RUNTIME_DIR` to a folder with a short path",
            PlaceError::Relative { .. } => "write it from the root",
            PlaceError::NoHome => "set `COWORK_STATE_DIR`",
        };
        Self::host(error.to_string(), cause).with_hint(hint)
    }
}

/// What clap has to say: help and version on standard output, anything else as a failure.
pub(crate) fn usage(error: &clap::Error, returns: Returns) -> ExitCode {
    if let Some(ContextValue::Strings(said)) = error.get(ContextKind::Custom)
        && let [sentence, hint] = said.as_slice()
    {
        let failure = Failure::input(sentence.as_str(), hint.as_str());
        return match returns {
            Returns::Outcome => failure.with_code(USAGE).report(returns),
            Returns::Command | Returns::Srt => failure.report(returns),
        };
    }
    drop(error.print());
    match (error.use_stderr(), returns) {
        (false, _) => ExitCode::SUCCESS,
        (true, Returns::Command) => ExitCode::from(OWN),
        (true, Returns::Srt) => ExitCode::from(ASKED),
        (true, Returns::Outcome) => ExitCode::from(USAGE),
    }
}
