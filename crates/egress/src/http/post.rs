//! One request of the host's own, without a client.

use super::body::full;
use super::credentials::Channel;
use super::refuse::refusal;
use super::upstream::{Key, Offer, Unsent, broken, connect};
use crate::house::House;
use crate::office::{Allowed, Refusal};
use cowork_api::egress::{Errand, Hidden, Returned};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Limited};
use std::sync::Arc;

/// Most bytes of an answer.
const MAX_ANSWER: usize = 256 * 1024;

/// Sends the body of an errand to a host that was allowed and proves its name, and reads the answer.
pub(crate) async fn post(
    house: &Arc<House>,
    allowed: &Allowed,
    errand: &Errand,
) -> Result<Returned, Refusal> {
    let place = allowed.place();
    let authority = match allowed.port() {
        443 => place.to_string(),
        port => format!("{place}:{port}"),
    };
    let Hidden(body) = &errand.body;
    let request = Request::builder()
        .method(Method::POST)
        .uri(errand.path.as_str())
        .header(HOST, authority)
        .header(ACCEPT, "application/json")
        .header(ACCEPT_ENCODING, "identity")
        .header(CONTENT_TYPE, errand.content_type.as_str())
        .header(CONTENT_LENGTH, body.len())
        .header(USER_AGENT, concat!("cowork/", env!("CARGO_PKG_VERSION")))
        .body(full(body.clone()))
        .map_err(|_cause| refusal("malformed", "the request cannot be written", ""))?;
    let mut upstream =
        connect(house, allowed, &Key::new(allowed, Channel::Verified, Offer::One)).await?;
    let response = upstream.send(request).await.map_err(|unsent| match unsent {
        Unsent::Again(_) => refusal("upstream", format!("{place} broke off"), "try again later"),
        Unsent::Stale(error) | Unsent::Failed(error) => broken(place, &error),
    })?;
    let status = response.status().as_u16();
    let read = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
    let read = read.map_err(|error| {
        refusal("upstream", format!("the answer of {place} cannot be read: {error}"), "")
    })?;
    Ok(Returned { status, body: Hidden(read.to_bytes().to_vec()) })
}
