//! What a client is told that does not get what it wants.
//!
//! The body is for programs: a stable word, what it was about, and what to do, so that a model stops
//! to try again what cannot pass.

use super::body::{Body, full};
use crate::office::Refusal;
use crate::proxy::BLOCKED;
use cowork_api::egress::Target;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderName, Response, StatusCode};
use hyper::ext::ReasonPhrase;

/// The header that has the word.
pub(super) const DENY: HeaderName = HeaderName::from_static("x-cowork-deny");

/// A header that programs know from another sandbox.
const PROXY_ERROR: HeaderName = HeaderName::from_static("x-proxy-error");

/// A refusal that no rule is behind.
pub(super) fn refusal(code: &'static str, sentence: impl Into<String>, hint: &str) -> Refusal {
    Refusal::new(code, sentence, hint)
}

/// The status that says what kind of refusal it is.
fn status(refusal: &Refusal) -> StatusCode {
    match refusal.code {
        "ambiguous-target" | "ambiguous-length" | "malformed" | "method-override" => {
            StatusCode::BAD_REQUEST
        }
        "stalled" => StatusCode::REQUEST_TIMEOUT,
        "method" => StatusCode::METHOD_NOT_ALLOWED,
        "host-mismatch" => StatusCode::MISDIRECTED_REQUEST,
        "upstream-certificate" | "upstream-tls" | "upstream" | "opaque-answer" => {
            StatusCode::BAD_GATEWAY
        }
        _ => StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::FORBIDDEN),
    }
}

/// The answer to a request that is refused.
pub(super) fn answer(refusal: &Refusal, target: &Target) -> Response<Body> {
    let mut response = Response::new(full(refusal.body(target)));
    *response.status_mut() = status(refusal);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(DENY, HeaderValue::from_static(refusal.code));
    if status(refusal) == StatusCode::FORBIDDEN {
        headers.insert(PROXY_ERROR, HeaderValue::from_static(BLOCKED));
    }
    if let Some(seconds) = refusal.again() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if status(refusal) == StatusCode::FORBIDDEN
        && let Ok(phrase) = ReasonPhrase::try_from(refusal.phrase())
    {
        response.extensions_mut().insert(phrase);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unanswered_question_says_when_to_ask_again() {
        let answer = answer(&Refusal::unanswered("example.com"), &Target::default());
        assert_eq!(answer.status(), StatusCode::FORBIDDEN);
        assert_eq!(answer.headers()[DENY], "unanswered");
        assert_eq!(answer.headers()[RETRY_AFTER], "15");
        assert_eq!(answer.headers()[PROXY_ERROR], BLOCKED);
        let phrase = answer.extensions().get::<ReasonPhrase>().unwrap();
        let said = "the user has not said whether example.com may be reached";
        assert_eq!(phrase.as_bytes(), said.as_bytes());
    }

    /// Whatever a reason says, it is no other header and no second answer.
    #[test]
    fn a_phrase_is_one_line() {
        let mut refusal = refusal("denied-by-rule", "a rule refuses it", "");
        assert_eq!(refusal.phrase(), "a rule refuses it");
        refusal.hint = format!("use the mirror\r\nx: y\u{e9}\t{}", "z".repeat(500));
        let phrase = refusal.phrase();
        assert!(phrase.starts_with("use the mirror??x: y??z"), "{phrase}");
        assert_eq!(phrase.len(), 200);
    }

    #[test]
    fn what_failed_and_was_not_forbidden_is_not_said_to_be_blocked() {
        let answer = answer(&refusal("upstream", "it does not answer", ""), &Target::default());
        assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
        assert!(!answer.headers().contains_key(PROXY_ERROR));
    }
}
