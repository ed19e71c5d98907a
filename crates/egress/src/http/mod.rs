//! Interception: what is inside HTTP and TLS.
//!
//! A connection whose host was allowed is ended here; every request in it is decided before
//! anything of it is sent on, over a connection of our own to the very host that was allowed. What
//! a client names (in TLS, in the request line, in `Host`) must be that host: it never leads
//! elsewhere.
//!
//! The session's authority vouches for hosts towards the session; hosts prove themselves to us by
//! the authorities that the host trusts. Both versions of HTTP are spoken on both sides; what the
//! host speaks is what the client is offered.
//!
//! Deliberately absent: HTTP/3 (nothing but DNS passes over UDP), web sockets over HTTP/2 (clients
//! open them over HTTP/1.1, where they pass), and gathering of bodies: they flow.

mod account;
mod authority;
mod body;
mod credentials;
mod decode;
mod draft;
mod exchange;
mod forms;
mod framing;
mod headers;
mod pieces;
mod places;
mod post;
mod refuse;
mod resend;
mod scrub;
mod serve;
mod sigv4;
mod target;
#[cfg(test)]
mod tests;
mod tunnel;
mod upstream;
mod watch;

use crate::flow::Flow;
use crate::house::House;
use crate::office::Allowed;
use crate::prefixed::Prefixed;
use authority::Authority;
use cowork_api::egress::{Begin, Target, Via};
use cowork_policy::egress::Place;
use places::Places;
use rustls::{ClientConfig, RootCertStore};
use serve::Line;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use upstream::{Offer, Pool};

pub(crate) use post::post;

/// What interception keeps for a session.
#[derive(Debug)]
pub struct Interceptor {
    authority: Authority,
    one: Arc<ClientConfig>,
    two: Arc<ClientConfig>,
    pool: Pool,
    /// For connections of the session, at a time.
    places: Places,
    /// How long a client may send nothing in the middle of a body.
    time_for_body: Duration,
    /// For bodies that are kept to be sent once more, in KiB.
    spare: Arc<Semaphore>,
}

impl Interceptor {
    /// Makes the session's authority, and reads the authorities that the host trusts.
    pub fn new(begin: &Begin) -> Result<Self, String> {
        let authority = Authority::new(&begin.session)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        for root in &begin.roots {
            let added = roots.add(root.clone().into());
            added.map_err(|error| format!("a given authority cannot be read: {error}"))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("no TLS: {error}"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let offering = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Ok(Self {
            authority,
            one: offering(&[b"http/1.1"]),
            two: offering(&[b"h2", b"http/1.1"]),
            pool: Pool::default(),
            places: Places::default(),
            time_for_body: body::TIME_FOR_BODY,
            spare: Arc::new(Semaphore::new(resend::MAX_SPARE)),
        })
    }

    /// The certificate of the session's authority, in DER.
    pub fn certificate(&self) -> Vec<u8> {
        self.authority.certificate().to_vec()
    }

    fn client_config(&self, offer: Offer) -> Arc<ClientConfig> {
        Arc::clone(match offer {
            Offer::One => &self.one,
            Offer::Two => &self.two,
        })
    }
}

/// Carries a connection that was allowed to `target`, and decides about every request in it.
pub async fn inspect(
    house: Arc<House>,
    flow: Arc<Flow>,
    stream: Prefixed<TcpStream>,
    target: Target,
    allowed: Allowed,
) {
    let place = allowed.place();
    let line = Line::new(house, flow, target, Some(place.clone()));
    serve::inspect(line, stream, place, Some(&allowed)).await;
}

/// Carries a connection that nothing was decided about, or that was refused: its requests are
/// decided one by one, and nothing is reached before one is allowed. A client is greeted at once,
/// and waits for the user, or hears why not, in the answer to its request.
pub async fn undecided(
    house: Arc<House>,
    flow: Arc<Flow>,
    stream: Prefixed<TcpStream>,
    target: Target,
    place: Place,
) {
    let line = Line::new(house, flow, target, Some(place.clone()));
    serve::inspect(line, stream, &place, None).await;
}

/// Carries requests to the HTTP proxy that name their host (`GET http://host/ HTTP/1.1`).
pub async fn forward(house: Arc<House>, flow: Arc<Flow>, stream: Prefixed<TcpStream>) {
    let base = Target { via: Via::Forward, ..flow.unsaid() };
    serve::forward(Line::new(house, flow, base, None), stream).await;
}

/// Writes a text with escapes (`%2F`) for all but letters, digits and what is to be kept.
fn escape(text: &str, keep: &[u8]) -> String {
    let digit =
        |half: u8| char::from_digit(half.into(), 16).map(|digit| digit.to_ascii_uppercase());
    let written = |byte: u8| {
        let plain = byte.is_ascii_alphanumeric() || keep.contains(&byte);
        if plain {
            [Some(char::from(byte)), None, None]
        } else {
            [Some('%'), digit(byte >> 4), digit(byte & 15)]
        }
    };
    text.bytes().flat_map(written).flatten().collect()
}
