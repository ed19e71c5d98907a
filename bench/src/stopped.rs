//! Why something could not be measured.

use std::fmt;

/// What stopped a measurement, as a sentence: it is printed in place of the numbers.
#[derive(Debug)]
pub(crate) struct Stopped(String);

impl Stopped {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }

    /// What was being done, and what came in the way.
    pub(crate) fn at(doing: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self(format!("{doing}: {cause}"))
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<cowork_sandbox::client::ClientError> for Stopped {
    fn from(error: cowork_sandbox::client::ClientError) -> Self {
        Self(format!("the engine refused: {error}"))
    }
}

impl From<cowork_client::http::HttpError> for Stopped {
    fn from(error: cowork_client::http::HttpError) -> Self {
        let detail = error.problem().and_then(|problem| problem.detail.clone());
        let detail = detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
        Self(format!("the daemon: {error}{detail}"))
    }
}
