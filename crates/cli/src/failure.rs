//! Errors become sentences here, and nowhere else: what went wrong, why, what to do, exit code.

use cowork_sandbox::client::ClientError;
use cowork_sys::Errno;
use std::process::ExitCode;

/// cowork itself failed, before or beside the command.
pub(crate) const OWN: u8 = 125;
/// The command's time was over, as `timeout` says it.
pub(crate) const TIME_OVER: u8 = 124;
/// The command cannot be executed, as shells say it.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such command, as shells say it.
pub(crate) const NOT_FOUND: u8 = 127;

/// Something that a person is told.
#[derive(Debug)]
pub(crate) struct Failure {
    sentence: String,
    cause: Option<String>,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    /// The user can mend this by asking for something else.
    pub(crate) fn input(sentence: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), cause: None, hint: Some(hint.into()), code: OWN }
    }

    /// Something on this host stands in the way.
    pub(crate) fn host(sentence: impl Into<String>, cause: Option<String>) -> Self {
        Self { sentence: sentence.into(), cause, hint: None, code: OWN }
    }

    pub(crate) fn with_cause(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// Writes it to standard error.
    #[expect(clippy::print_stderr, reason = "this is where a person is told")]
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("cowork: {}", plain(&self.sentence));
        if let Some(cause) = &self.cause {
            eprintln!("  because: {}", plain(cause));
        }
        if let Some(hint) = self.hint.as_ref().filter(|hint| !hint.is_empty()) {
            eprintln!("  hint: {}", plain(hint));
        }
        ExitCode::from(self.code)
    }
}

/// Tells the user something that is no failure.
#[expect(clippy::print_stderr, reason = "this is where a person is told")]
pub(crate) fn note(text: &str) {
    eprintln!("cowork: {}", plain(text));
}

/// Names of files and processes may contain escape sequences; none reaches the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escaped = c.is_control() && c != '\n';
            let (kept, escape) =
                if escaped { (None, Some(c.escape_default())) } else { (Some(c), None) };
            kept.into_iter().chain(escape.into_iter().flatten())
        })
        .collect()
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(failure) => {
                let cause = (failure.errno != 0).then(|| {
                    std::io::Error::from(Errno::from_raw_os_error(failure.errno)).to_string()
                });
                Self { sentence: failure.sentence, cause, hint: Some(failure.hint), code: OWN }
            }
            other => {
                let cause = std::error::Error::source(&other).map(ToString::to_string);
                Self {
                    sentence: other.to_string(),
                    cause,
                    hint: Some("run `cowork doctor`".into()),
                    code: OWN,
                }
            }
        }
    }
}

/// What clap has to say: help and version on standard output, anything else as a failure.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    drop(error.print());
    if error.use_stderr() { ExitCode::from(OWN) } else { ExitCode::SUCCESS }
}
