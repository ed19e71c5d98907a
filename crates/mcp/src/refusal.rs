//! Why a tool did not do what it was asked: a stable code for programs, a sentence for the model,
//! and what to do about it.
//!
//! A refusal is a result of the tool and no error of the protocol: clients show the former to the
//! model, and the latter often not. The structured content of a result has to follow the tool's
//! schema, so the code goes into the text and into the result's metadata.

use crate::text::harmless;
use cowork_client::http::HttpError;
use cowork_client::types::Problem;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::json;
use std::borrow::Cow;

/// Where the result's metadata has the code.
const KEY: &str = "cowork/error";

/// Why a tool did nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Stable between versions.
    pub(crate) code: Cow<'static, str>,
    sentence: String,
    hint: Option<String>,
}

impl Refusal {
    pub(crate) fn new(code: &'static str, sentence: impl Into<String>) -> Self {
        Self { code: code.into(), sentence: sentence.into(), hint: None }
    }

    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// As the result of a tool.
    pub(crate) fn into_result(self) -> CallToolResult {
        let (sentence, hint) = (harmless(&self.sentence), self.hint.as_deref().map(harmless));
        let mut text = format!("{}: {sentence}", self.code);
        if let Some(hint) = &hint {
            text.push_str("\nhint: ");
            text.push_str(hint);
        }
        let error = json!({ "code": self.code, "sentence": sentence, "hint": hint });
        let mut meta = MetaObject::new();
        meta.0.insert(KEY.to_owned(), error);
        CallToolResult::error(vec![ContentBlock::text(text)]).with_meta(Some(meta))
    }
}

impl From<HttpError> for Refusal {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Problem(problem) => {
                let Problem { code, title, detail, hint, .. } = *problem;
                let sentence = match detail {
                    Some(detail) => format!("{title}: {detail}"),
                    None => title,
                };
                Self { code: code.into(), sentence, hint }
            }
            HttpError::NotRunning { .. } | HttpError::Broken { .. } | HttpError::Garbled(_) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let sentence = match cause {
                    Some(cause) => format!("{error}: {cause}"),
                    None => error.to_string(),
                };
                Self::new("no-daemon", sentence).with_hint("try again")
            }
        }
    }
}
