//! What is said when something was refused or failed: one type, from where it happens to the
//! answer of the API.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cowork_api::keeper::{Failure, FailureCode};
use cowork_audit::LedgerError;
use cowork_client::types::Problem;
use cowork_session::catalogue::CatalogueError;
use cowork_session::life::Misfit;
use std::error::Error;

/// Something that a client is told.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) status: StatusCode,
    /// Stable between versions.
    pub(crate) code: &'static str,
    pub(crate) sentence: String,
    pub(crate) cause: Option<String>,
    pub(crate) hint: Option<String>,
}

impl Trouble {
    fn new(status: StatusCode, code: &'static str, sentence: impl Into<String>) -> Self {
        Self { status, code, sentence: sentence.into(), cause: None, hint: None }
    }

    /// The request says something that cannot be.
    pub(crate) fn malformed(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", sentence)
    }

    /// The request can be understood and not be carried out.
    pub(crate) fn refused(code: &'static str, sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, sentence)
    }

    pub(crate) fn missing(code: &'static str, sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, sentence)
    }

    /// It contradicts what is.
    pub(crate) fn conflict(code: &'static str, sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, sentence)
    }

    pub(crate) fn forbidden(code: &'static str, sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, code, sentence)
    }

    /// Something on this host stands in the way.
    #[expect(clippy::needless_pass_by_value, reason = "a cause is given away")]
    pub(crate) fn host(sentence: impl Into<String>, cause: impl ToString) -> Self {
        let mut trouble = Self::new(StatusCode::SERVICE_UNAVAILABLE, "host", sentence);
        trouble.cause = Some(cause.to_string());
        trouble
    }

    /// The disk stands in the way: it is full, or something else is wrong with it.
    pub(crate) fn of_disk(sentence: impl Into<String>, error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "no-space", sentence)
                    .with_cause(error)
                    .with_hint("make room on the disk")
            }
            _ => Self::host(sentence, error),
        }
    }

    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    #[expect(clippy::needless_pass_by_value, reason = "a cause is given away")]
    pub(crate) fn with_cause(mut self, cause: impl ToString) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        self.hint = (!hint.is_empty()).then_some(hint);
        self
    }

    /// All of it in a line.
    pub(crate) fn line(&self) -> String {
        let cause = self.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
        let hint = self.hint.as_ref().map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
        format!("{}{cause}{hint}", self.sentence)
    }

    pub(crate) fn problem(&self) -> Problem {
        Problem {
            kind: format!("urn:cowork:problem:{}", self.code),
            code: self.code.to_owned(),
            title: self.sentence.clone(),
            status: self.status.as_u16(),
            detail: self.cause.clone(),
            hint: self.hint.clone(),
        }
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.problem()).unwrap_or_default();
        let kind = HeaderValue::from_static("application/problem+json");
        (self.status, [(header::CONTENT_TYPE, kind)], body).into_response()
    }
}

/// An error and what is behind it, in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        let (status, code) = match failure.code {
            FailureCode::Malformed => (StatusCode::BAD_REQUEST, "malformed"),
            FailureCode::NoSession => (StatusCode::CONFLICT, "no-sandbox"),
            FailureCode::SessionExists => (StatusCode::CONFLICT, "session-exists"),
            FailureCode::NoGrant => (StatusCode::NOT_FOUND, "no-grant"),
            FailureCode::GrantExists => (StatusCode::CONFLICT, "grant-exists"),
            FailureCode::FolderChanged => (StatusCode::CONFLICT, "folder-changed"),
            FailureCode::FolderRefused => (StatusCode::UNPROCESSABLE_ENTITY, "folder-refused"),
            FailureCode::LayerMissing => (StatusCode::SERVICE_UNAVAILABLE, "layer-missing"),
            FailureCode::LimitUnenforceable => {
                (StatusCode::UNPROCESSABLE_ENTITY, "limit-unenforceable")
            }
            FailureCode::HostUnable => (StatusCode::SERVICE_UNAVAILABLE, "host-unable"),
            FailureCode::StepFailed => (StatusCode::SERVICE_UNAVAILABLE, "step-failed"),
            FailureCode::SocketRefused => (StatusCode::SERVICE_UNAVAILABLE, "socket-refused"),
            FailureCode::NoDeposit => (StatusCode::CONFLICT, "no-deposit"),
            FailureCode::NoDoor => (StatusCode::UNPROCESSABLE_ENTITY, "no-door"),
        };
        let mut trouble = Self::new(status, code, failure.sentence).with_hint(failure.hint);
        if failure.errno != 0 {
            trouble.cause = Some(std::io::Error::from_raw_os_error(failure.errno).to_string());
        }
        trouble
    }
}

impl From<Misfit> for Trouble {
    fn from(misfit: Misfit) -> Self {
        let (code, hint) = match misfit {
            Misfit::NotLive(_) => ("not-live", "start it with `cowork start`"),
            Misfit::Live(_) => ("live", ""),
            Misfit::Paused => ("paused", "resume it with `cowork resume`"),
            Misfit::NotPaused => ("not-paused", ""),
            Misfit::Creating => ("creating", "wait a moment and try again"),
            Misfit::Ended => ("ended", "make a new one with `cowork new`"),
        };
        let sentence = match misfit {
            Misfit::NotLive(state) => format!("the session is {}", state.name()),
            Misfit::Live(state) => format!("the session is {} already", state.name()),
            other => other.to_string(),
        };
        Self::conflict(code, sentence).with_hint(hint)
    }
}

impl From<CatalogueError> for Trouble {
    fn from(error: CatalogueError) -> Self {
        unrecorded("the state cannot be written", &error)
    }
}

impl From<LedgerError> for Trouble {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Broken { .. }
            | LedgerError::Missing { .. }
            | LedgerError::Replaced { .. }
            | LedgerError::NotAFile { .. } => {
                let sentence = "the record of what happened is damaged, or was tampered with";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "tampered", sentence)
                    .with_cause(chain(&error))
                    .with_hint(
                        "see all that is wrong with `cowork audit verify`; nothing is started or \
                         recorded until its files are as they were: put them back from a copy, or \
                         begin anew with another folder in COWORK_STATE_DIR",
                    )
            }
            _ => unrecorded("what cannot be recorded is refused", &error),
        }
    }
}

fn unrecorded(sentence: &str, error: &dyn Error) -> Trouble {
    Trouble::new(StatusCode::INSUFFICIENT_STORAGE, "unrecorded", sentence)
        .with_cause(chain(error))
        .with_hint("make room in the state folder, or make it writable")
}
