//! Reading requests: whatever cannot be read is answered with a problem, never with silence.

use crate::trouble::Trouble;
use axum::RequestExt;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use cowork_client::types::Page;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Largest JSON body.
pub(crate) const MAX_JSON: usize = 4 * 1024 * 1024;

/// A JSON body.
pub(crate) struct Body<T>(pub(crate) T);

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Trouble;

    async fn from_request(request: Request, _: &S) -> Result<Self, Trouble> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let json = kind.is_none_or(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("application/json") || kind.ends_with("+json")
        });
        if !json {
            return Err(Trouble::refused("not-json", "the body is not JSON")
                .with_status(axum::http::StatusCode::UNSUPPORTED_MEDIA_TYPE)
                .with_hint("send `Content-Type: application/json`"));
        }
        let bytes =
            axum::body::to_bytes(request.into_limited_body(), MAX_JSON).await.map_err(|_long| {
                let sentence = format!("the body is longer than {MAX_JSON} bytes");
                Trouble::refused("too-large", sentence)
                    .with_status(axum::http::StatusCode::PAYLOAD_TOO_LARGE)
            })?;
        // An empty body is an empty object: every field may have a default.
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        // A list of values without their names would pass for an object.
        if !text.trim_ascii_start().starts_with(b"{") {
            return Err(Trouble::malformed("the body is not a JSON object"));
        }
        super::strict::from_slice(text)
            .map(Self)
            .map_err(|error| Trouble::malformed("the body cannot be understood").with_cause(error))
    }
}

/// The query of a request.
pub(crate) struct Queried<T>(pub(crate) T);

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Queried<T> {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Trouble> {
        let Query(query) = Query::try_from_uri(&parts.uri).map_err(|error| {
            Trouble::malformed("the query cannot be understood").with_cause(error)
        })?;
        Ok(Self(query))
    }
}

/// The parts of a path that a client chose.
pub(crate) struct Named<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Trouble> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(path)| Self(path))
            .map_err(|error| Trouble::malformed("the path cannot be understood").with_cause(error))
    }
}

/// The number of a command in the path.
pub(crate) struct Numbers {
    pub(crate) session: String,
    pub(crate) number: u32,
}

impl<S: Send + Sync> FromRequestParts<S> for Numbers {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Trouble> {
        let Named((session, number)): Named<(String, String)> =
            Named::from_request_parts(parts, state).await?;
        let number = number.parse().map_err(|_no_number| {
            let sentence = format!("there is no command `{}`", number.escape_debug());
            Trouble::missing("no-command", sentence)
        })?;
        Ok(Self { session, number })
    }
}

/// Which part of a list is wanted.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Part {
    pub(crate) cursor: Option<String>,
    pub(crate) limit: Option<u32>,
}

/// Most items of one part of a list.
pub(super) const MAX_PART: u32 = 1000;
/// Items of one part unless a client wants another number.
pub(super) const PART: u32 = 100;
/// Longest number in a query: what has more digits is beyond every number of ours.
const MAX_DIGITS: usize = 18;

/// A number in a query: digits and nothing else.
pub(super) fn count(text: &str) -> Option<u64> {
    let plain = text.len() <= MAX_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

impl Part {
    /// How many items, at most.
    pub(crate) fn limit(&self) -> Result<u32, Trouble> {
        match self.limit {
            None => Ok(PART),
            Some(limit) if (1..=MAX_PART).contains(&limit) => Ok(limit),
            Some(_) => Err(Trouble::malformed(format!("`limit` must be from 1 to {MAX_PART}"))),
        }
    }

    /// The part of a whole list that is wanted, in the order of the items' names.
    pub(crate) fn of<T>(
        &self,
        mut all: Vec<T>,
        name: impl Fn(&T) -> String,
    ) -> Result<Page<T>, Trouble> {
        let limit = usize::try_from(self.limit()?).unwrap_or(usize::MAX);
        all.sort_by_key(&name);
        if let Some(cursor) = &self.cursor {
            all.retain(|item| name(item) > *cursor);
        }
        let more = all.len() > limit;
        all.truncate(limit);
        let next = all.last().filter(|_| more).map(name);
        Ok(Page { items: all, next })
    }

    /// The number after which it starts.
    pub(crate) fn after(&self) -> Result<u64, Trouble> {
        let Some(cursor) = &self.cursor else { return Ok(0) };
        count(cursor).ok_or_else(|| Trouble::malformed("`cursor` is not one of ours"))
    }
}

#[cfg(test)]
mod tests {
    use super::Part;

    #[test]
    fn every_item_is_in_one_part_whatever_comes_and_goes_in_between() {
        let mut all: Vec<String> = ["e", "b", "d", "a", "c"].map(String::from).into();
        let part = |cursor: Option<&str>, all: &[String]| {
            let part = Part { cursor: cursor.map(String::from), limit: Some(2) };
            let page = part.of(all.to_vec(), Clone::clone).expect("it is one of ours");
            (page.items.concat(), page.next)
        };
        assert_eq!(part(None, &all), ("ab".into(), Some("b".into())));
        all.retain(|item| item != "b");
        assert_eq!(part(Some("b"), &all), ("cd".into(), Some("d".into())));
        assert_eq!(part(Some("d"), &all), ("e".into(), None));
        assert_eq!(part(Some("e"), &all), (String::new(), None));
        let none = Part { cursor: None, limit: Some(0) };
        assert!(none.of(all, Clone::clone).is_err());
    }
}
