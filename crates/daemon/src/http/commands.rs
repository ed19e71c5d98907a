//! Commands of a session.

use super::extract::{Body, Named, Numbers, Part, Queried, count};
use super::stream::Streamed;
use super::websocket::{self, Handshake};
use crate::daemon::Daemon;
use crate::keyed::detached;
use crate::session::{Attachment, Role, Run, Session, grace, takes_input};
use crate::trouble::Trouble;
use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cowork_client::stream::PROTOCOL;
use cowork_client::types::{
    Cancel, Command, CommandState, NewCommand, Page, SignalCommand, Size, UsageOfCommand,
};
use cowork_session::life::{Misfit, State as Life};
use cowork_session::output::{Reader, Stream};
use hyper::body::Bytes;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::mpsc;

type Shared = State<Arc<Daemon>>;

/// Bytes of output that are read at a time.
const CHUNK: usize = 256 * 1024;

pub(super) async fn list(
    State(daemon): Shared,
    Named(id): Named<String>,
    Queried(part): Queried<Part>,
) -> Result<Json<Page<Command>>, Trouble> {
    let session = daemon.session(&id)?;
    let after = u32::try_from(part.after()?).unwrap_or(u32::MAX);
    let limit = part.limit()?;
    let found = daemon.book.catalogue.commands(&id, after, limit)?;
    let full = u32::try_from(found.len()).is_ok_and(|found| found >= limit);
    let next = found.last().filter(|_| full).map(|(number, _)| number.to_string());
    let items = found.iter().filter_map(|(number, _)| daemon.command(&session, *number).ok());
    Ok(Json(Page { items: items.collect(), next }))
}

/// Starts a command; with an upgrade of the connection, attached to it.
pub(super) async fn start(
    State(daemon): Shared,
    Named(id): Named<String>,
    mut request: Request,
) -> Result<Response, Trouble> {
    let wanted = wants_stream(request.headers());
    let upgrade = wanted.then(|| upgradable(&mut request)).transpose()?;
    let Body(new) = Body::<NewCommand>::from_request(request, &()).await?;
    let session = daemon.session(&id)?;
    let (work, within) = (Arc::clone(&daemon), Arc::clone(&session));
    let run = detached(async move { work.start_command(&within, new).await }).await?;
    match upgrade {
        None => Ok((StatusCode::CREATED, Json(run.command())).into_response()),
        Some(upgrade) => {
            let attachment = Attachment::new(daemon, session, run, Role::Owner);
            Ok(switch(upgrade, attachment))
        }
    }
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|upgrade| upgrade.to_str().ok());
    upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case(PROTOCOL))
}

/// Turns the connection into a stream of frames.
fn switch(upgrade: OnUpgrade, attachment: Attachment) -> Response {
    tokio::spawn(async move {
        match upgrade.await {
            Ok(stream) => attachment.serve(TokioIo::new(stream)).await,
            // It broke off before it began.
            Err(_) => attachment.serve(tokio::io::empty()).await,
        }
    });
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static(PROTOCOL)),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

/// The connection, once the answer is sent. Asked for before anybody is attached.
fn upgradable(request: &mut Request) -> Result<OnUpgrade, Trouble> {
    let upgrade = request.extensions_mut().remove();
    upgrade.ok_or_else(|| Trouble::malformed("the connection cannot be upgraded"))
}

/// A command that runs, or has ended in this daemon's time.
fn find(daemon: &Daemon, numbers: &Numbers) -> Result<(Arc<Session>, Arc<Run>), Trouble> {
    let session = daemon.session(&numbers.session)?;
    if let Some(run) = session.run(numbers.number) {
        return Ok((session, run));
    }
    daemon.command(&session, numbers.number)?;
    let sentence = format!("command {} has ended", numbers.number);
    Err(Trouble::conflict("command-ended", sentence).with_hint("its output can still be read"))
}

pub(super) async fn show(
    State(daemon): Shared,
    numbers: Numbers,
) -> Result<Json<Command>, Trouble> {
    let session = daemon.session(&numbers.session)?;
    daemon.command(&session, numbers.number).map(Json)
}

pub(super) async fn usage(
    State(daemon): Shared,
    numbers: Numbers,
) -> Result<Json<UsageOfCommand>, Trouble> {
    let session = daemon.session(&numbers.session)?;
    daemon.usage_of_command(&session, numbers.number).await.map(Json)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    from: Option<String>,
    stream: Option<Which>,
    follow: Option<bool>,
}

/// Where somebody who attaches starts.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    from: Option<String>,
}

/// Which stream is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Which {
    #[default]
    All,
    Stdout,
    Stderr,
    Terminal,
}

fn offset(from: Option<&String>, total: u64) -> Result<u64, Trouble> {
    match from.map(String::as_str) {
        None => Ok(0),
        Some("end") => Ok(total),
        Some(from) => count(from)
            .ok_or_else(|| Trouble::malformed("`from` must be a number of bytes or `end`")),
    }
}

pub(super) async fn attach(
    State(daemon): Shared,
    numbers: Numbers,
    Queried(wanted): Queried<Start>,
    mut request: Request,
) -> Result<Response, Trouble> {
    let (session, run) = find(&daemon, &numbers)?;
    let headers = request.headers();
    let handshake = websocket::is_wanted(headers).then(|| Handshake::read(headers)).transpose()?;
    if handshake.is_none() && !wants_stream(headers) {
        let hint =
            format!("send `Connection: Upgrade` and `Upgrade: {PROTOCOL}`, or open a WebSocket");
        return Err(Trouble::refused("no-upgrade", "attaching needs an upgrade of the connection")
            .with_status(StatusCode::UPGRADE_REQUIRED)
            .with_hint(hint));
    }
    let from = offset(wanted.from.as_ref(), run.log.progress().total)?;
    let upgrade = upgradable(&mut request)?;
    let attachment = Attachment::new(daemon, session, run, Role::Guest(from));
    Ok(match handshake {
        Some(handshake) => handshake.switch(upgrade, attachment),
        None => switch(upgrade, attachment),
    })
}

pub(super) async fn output(
    State(daemon): Shared,
    numbers: Numbers,
    Queried(wanted): Queried<Wanted>,
) -> Result<Response, Trouble> {
    let session = daemon.session(&numbers.session)?;
    daemon.command(&session, numbers.number)?;
    let run = session.run(numbers.number);
    let folder = daemon.output_folder(&session.id, numbers.number);
    // The folder of a session that is being removed is taken away under our eyes.
    let failed = |error: std::io::Error| match session.state() {
        Life::Ended => Trouble::from(Misfit::Ended),
        _ => Trouble::host("cannot read the output", error),
    };
    let mut reader = Reader::open(&folder).map_err(failed)?;
    let total = reader.total().map_err(failed)?;
    let from = offset(wanted.from.as_ref(), total)?;
    let which = wanted.stream.unwrap_or_default();
    let follow = wanted.follow.unwrap_or(false).then_some(run).flatten();
    let (sender, body) = Streamed::channel();
    tokio::spawn(copy(reader, from, which, follow, sender));
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    Ok((kind, body).into_response())
}

/// Copies output to a body: what there is, and what comes as long as the command runs if it is
/// followed.
async fn copy(
    mut reader: Reader,
    mut from: u64,
    which: Which,
    follow: Option<Arc<Run>>,
    sender: mpsc::Sender<Bytes>,
) {
    // The merged output is followed without a gap; of one stream alone, old bytes may be missed.
    let follows_all = follow.as_ref().filter(|_| which == Which::All);
    let consumer = follows_all.map(|run| run.log.consume(from));
    let mut progress = follow.as_ref().map(|run| run.progress.subscribe());
    loop {
        if let Some(progress) = &mut progress {
            progress.mark_unchanged();
        }
        let over = follow.as_ref().is_none_or(|run| !run.is_running());
        let bytes = match which {
            Which::All => reader.read(from, CHUNK).map(|pieces| {
                from = pieces.last().map_or(from, |p| p.offset + p.bytes.len() as u64);
                pieces.into_iter().flat_map(|piece| piece.bytes).collect()
            }),
            Which::Stdout => one_stream(&mut reader, Stream::Stdout, &mut from),
            Which::Stderr => one_stream(&mut reader, Stream::Stderr, &mut from),
            Which::Terminal => one_stream(&mut reader, Stream::Terminal, &mut from),
        };
        let Ok(bytes) = bytes else { return };
        if bytes.is_empty() {
            let Some(progress) = progress.as_mut().filter(|_| !over) else { return };
            tokio::select! {
                changed = progress.changed() => if changed.is_err() { return },
                () = sender.closed() => return,
            }
            continue;
        }
        if sender.send(bytes.into()).await.is_err() {
            return;
        }
        if let (Some(consumer), Which::All) = (&consumer, which) {
            consumer.at(from);
        }
    }
}

/// The next bytes of one stream.
fn one_stream(reader: &mut Reader, stream: Stream, from: &mut u64) -> std::io::Result<Vec<u8>> {
    let (at, bytes) = reader.read_stream(stream, *from, CHUNK)?;
    *from = at + bytes.len() as u64;
    Ok(bytes)
}

pub(super) async fn signal(
    State(daemon): Shared,
    numbers: Numbers,
    Body(signal): Body<SignalCommand>,
) -> Result<Json<Command>, Trouble> {
    let (session, run) = find(&daemon, &numbers)?;
    daemon.signal(&session, &run, &signal).await?;
    Ok(Json(run.command()))
}

pub(super) async fn cancel(
    State(daemon): Shared,
    numbers: Numbers,
    Body(cancel): Body<Cancel>,
) -> Result<Json<Command>, Trouble> {
    let grace = grace(&cancel)?;
    let (session, run) = find(&daemon, &numbers)?;
    detached(async move { daemon.cancel_command(&session, &run, grace).await }).await.map(Json)
}

pub(super) async fn pause(
    State(daemon): Shared,
    numbers: Numbers,
) -> Result<Json<Command>, Trouble> {
    let (session, run) = find(&daemon, &numbers)?;
    daemon.hold(&session, &run, CommandState::Paused).await.map(Json)
}

pub(super) async fn resume(
    State(daemon): Shared,
    numbers: Numbers,
) -> Result<Json<Command>, Trouble> {
    let (session, run) = find(&daemon, &numbers)?;
    daemon.hold(&session, &run, CommandState::Running).await.map(Json)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    close: Option<bool>,
}

pub(super) async fn stdin(
    State(daemon): Shared,
    numbers: Numbers,
    Queried(input): Queried<Input>,
    mut body: axum::body::Body,
) -> Result<StatusCode, Trouble> {
    let (session, run) = find(&daemon, &numbers)?;
    if !takes_input(run.command().streams) {
        return Err(Trouble::conflict("no-stdin", "the command was started without input")
            .with_hint("start it with `\"streams\": {\"stdin\": \"pipe\"}`"));
    }
    while let Some(piece) = super::files::piece(&mut body).await? {
        run.write_stdin(&piece).await?;
    }
    if input.close == Some(true) {
        daemon.end_input(&session, &run).await;
    }
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn resize(
    State(daemon): Shared,
    numbers: Numbers,
    Body(size): Body<Size>,
) -> Result<StatusCode, Trouble> {
    let (_, run) = find(&daemon, &numbers)?;
    run.resize(size)?;
    Ok(StatusCode::NO_CONTENT)
}
