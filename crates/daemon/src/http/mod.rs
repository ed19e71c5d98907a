//! The HTTP API: who may speak, what is heard, and how answers are written.

mod agents;
mod audit;
mod changes;
mod commands;
mod events;
mod extract;
mod files;
mod grants;
mod guard;
mod idempotency;
mod mcp;
mod network;
mod openapi;
mod records;
mod requests;
mod routes;
mod secrets;
mod sessions;
mod stream;
mod strict;
mod tasks;
mod watch;
mod websocket;
mod wire;

pub(crate) use extract::{Body, Named};
pub(crate) use openapi::text as openapi;
pub(crate) use records::answer as answer_from_records;

use crate::daemon::Daemon;
use crate::folders::Folders;
use crate::settings::Settings;
use crate::trouble::Trouble;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use guard::Allowed;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tower_service::Service;
use wire::{Door, Wire};

/// Longest wait for the head of a request.
const HEAD: Duration = Duration::from_secs(30);

/// What the daemon listens on.
pub(crate) struct Listeners {
    socket: Door,
    address: Option<(TcpListener, Arc<str>)>,
}

impl Listeners {
    /// Binds the socket, which is this user's alone, and the address if one is asked for.
    pub(crate) fn bind(settings: &Settings, folders: &Folders) -> Result<Self, Trouble> {
        let path = folders.api();
        let failed = |error: std::io::Error| {
            Trouble::host(format!("cannot listen on `{}`", path.display()), error)
        };
        let address = match (&settings.listen, &settings.token) {
            (Some(address), Some(file)) => {
                let token = read_token(file)?;
                let listener = std::net::TcpListener::bind(address).map_err(|error| {
                    Trouble::host(format!("cannot listen on `{address}`"), error)
                })?;
                listener.set_nonblocking(true).map_err(failed)?;
                Some((TcpListener::from_std(listener).map_err(failed)?, token))
            }
            _ => None,
        };
        // The lock is ours, so what lies there is of a daemon that is gone.
        cowork_sys::ignore(rustix::fs::unlink(&path));
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let bound = std::os::unix::net::UnixListener::bind(&path);
        rustix::process::umask(before);
        let socket = Door::new(bound.map_err(failed)?).map_err(failed)?;
        Ok(Self { socket, address })
    }
}

/// Shortest token that is accepted.
const MIN_TOKEN: usize = 16;

fn read_token(file: &std::path::Path) -> Result<Arc<str>, Trouble> {
    use std::os::unix::fs::MetadataExt;
    let failed = |error: std::io::Error| {
        Trouble::host(format!("cannot read the token in `{}`", file.display()), error)
    };
    let metadata = std::fs::metadata(file).map_err(failed)?;
    if metadata.mode() & 0o077 != 0 {
        let sentence = format!("others may read the token in `{}`", file.display());
        return Err(Trouble::refused("bad-token", sentence).with_hint("chmod 600 it"));
    }
    let token = std::fs::read_to_string(file).map_err(failed)?;
    let token = token.trim();
    if token.len() < MIN_TOKEN {
        let sentence = format!("a token has at least {MIN_TOKEN} characters");
        return Err(Trouble::refused("bad-token", sentence)
            .with_hint("e.g. `head -c 24 /dev/urandom | base64`"));
    }
    Ok(token.into())
}

/// Serves until the daemon ends.
pub(crate) fn serve(daemon: &Arc<Daemon>, listeners: Listeners) {
    let allowed = Allowed::new(&daemon.settings);
    let pages = allowed.clone();
    let keep_out =
        from_fn(move |request, next| guard::keep_pages_out(pages.clone(), request, next));
    let router = routes::router(daemon).layer(keep_out);
    let own = rustix::process::getuid().as_raw();
    let (socket, local) = (listeners.socket, router.clone());
    let counted = Arc::clone(daemon);
    tokio::spawn(async move {
        loop {
            let Ok(stream) = socket.accept().await else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let peer = rustix::net::sockopt::socket_peercred(&stream);
            if !peer.is_ok_and(|peer| [own, 0].contains(&peer.uid.as_raw())) {
                continue;
            }
            let Ok(stream) = Wire::new(stream) else { continue };
            // One that is about to leave makes no promises: whoever comes now starts the next one.
            if let Some(client) = Client::welcome(&counted) {
                tokio::spawn(count(client, serve_one(stream, local.clone())));
            }
        }
    });
    if let Some((listener, token)) = listeners.address {
        let guarded = router.layer(from_fn(move |request: Request, next: Next| {
            let (allowed, token) = (allowed.clone(), Arc::clone(&token));
            async move { guard::check(allowed, &token, request, next).await }
        }));
        let counted = Arc::clone(daemon);
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                if let Some(client) = Client::welcome(&counted) {
                    tokio::spawn(count(client, serve_one(stream, guarded.clone())));
                }
            }
        });
    }
}

/// Somebody who is connected: as long as there is one the daemon does not leave by itself.
struct Client(Arc<Daemon>);

impl Client {
    /// Counts somebody who has just come, unless the daemon is leaving.
    fn welcome(daemon: &Arc<Daemon>) -> Option<Self> {
        if daemon.is_departing() {
            return None;
        }
        daemon.clients.fetch_add(1, Ordering::Relaxed);
        daemon.arrivals.fetch_add(1, Ordering::Relaxed);
        Some(Self(Arc::clone(daemon)))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn count(client: Client, served: impl Future<Output = ()>) {
    served.await;
    drop(client);
}

/// Serves one connection to its end.
pub(crate) async fn serve_one(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
) {
    let service = hyper::service::service_fn(move |request: hyper::Request<_>| {
        let mut router = router.clone();
        async move { router.call(request.map(axum::body::Body::new)).await }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(64 * 1024);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    // A client that breaks off is no failure of ours.
    drop(connection.with_upgrades().await);
}
