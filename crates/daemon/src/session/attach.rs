//! Somebody attached to a command: frames of output one way, input and signals the other.

use super::wiring;
use super::{Run, Session};
use crate::daemon::Daemon;
use crate::trouble::Trouble;
use cowork_api::keeper::Request;
use cowork_client::stream::{ChannelId, FromDaemon, HEADER, ToDaemon, header, parse};
use cowork_session::life::State;
use cowork_session::output::{Reader, Stream};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Most bytes of output in one turn.
const CHUNK: usize = 256 * 1024;

/// Time after which a silent command's client is sent an empty frame.
const ALIVE: Duration = Duration::from_secs(2);

/// An attachment that was agreed on.
pub(crate) struct Attachment {
    daemon: Arc<Daemon>,
    session: Arc<Session>,
    run: Arc<Run>,
    role: Role,
}

/// Who attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Whoever started the command: a session that lives once ends with it.
    Owner,
    /// Somebody else, who wants the output from an offset on.
    Guest(u64),
}

/// How an attachment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Everything was said.
    Done,
    /// The client is gone, or wants to be.
    Client,
}

impl Attachment {
    /// Attaches to a command; its session, if it lives once, waits for this to be served.
    pub(crate) fn new(
        daemon: Arc<Daemon>,
        session: Arc<Session>,
        run: Arc<Run>,
        role: Role,
    ) -> Self {
        run.attach();
        Self { daemon, session, run, role }
    }

    /// Serves it until the command has ended or the client is gone.
    pub(crate) async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let (mut from, mut to) = tokio::io::split(stream);
        let left = tokio::select! {
            sent = self.send(&mut to) => match sent {
                Ok(()) => Left::Done,
                Err(_) => Left::Client,
            },
            () = self.hear(&mut from) => Left::Client,
        };
        drop((from, to));
        self.run.detach();
        let once = self.session.is_once();
        if left == Left::Client && self.role == Role::Owner && once {
            let (daemon, session) = (Arc::clone(&self.daemon), Arc::clone(&self.session));
            drop(self);
            drop(daemon.remove(&session, super::remove::Leave::Nothing).await);
            daemon.fill_pool();
        }
    }

    async fn send(&self, to: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
        let run = &self.run;
        let mut progress = run.progress.subscribe();
        let mut reader = Reader::open(&run.folder)?;
        let mut offset = match self.role {
            Role::Owner => 0,
            Role::Guest(from) => from,
        };
        let consumer = run.log.consume(offset);
        control(to, &FromDaemon::Started(Box::new(run.command()))).await?;
        loop {
            progress.mark_unchanged();
            // Looked at before the output is: what is written between the two is sent next time.
            let over = self.is_over();
            let come = run.log.progress();
            if over && come.finished && offset >= come.total {
                break;
            }
            if output(to, &mut reader, &mut offset).await? {
                consumer.at(offset);
                continue;
            }
            if !over {
                match tokio::time::timeout(ALIVE, progress.changed()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => break,
                    // Whether the client is there is not heard while its input waits.
                    Err(_silent) => {
                        to.write_all(&header(ChannelId::Stdout, 0)).await?;
                        to.flush().await?;
                    }
                }
                continue;
            }
            // What waited for this reader, in a pipe, is still to come.
            consumer.at(offset);
            run.settled().await;
            if output(to, &mut reader, &mut offset).await? {
                continue;
            }
            if !run.log.is_held() {
                break;
            }
            // It waits for another reader.
            drop(tokio::time::timeout(ALIVE, progress.changed()).await);
        }
        drop(consumer);
        control(to, &FromDaemon::Ended(Box::new(run.command()))).await?;
        to.flush().await?;
        to.shutdown().await
    }

    /// Whether no more output belongs to the command: it has ended, and a session that ends with it
    /// has no process left and no stream open.
    fn is_over(&self) -> bool {
        let once = self.session.is_once();
        let all = || self.session.state() == State::Ended && self.run.log.progress().finished;
        !self.run.is_running() && (!once || all())
    }

    /// Hears the client until it leaves.
    async fn hear(&self, from: &mut (impl AsyncRead + Unpin)) {
        let mut buffer = Vec::new();
        loop {
            let mut head = [0; HEADER];
            if from.read_exact(&mut head).await.is_err() {
                return;
            }
            let Some((channel, length)) = parse(head) else { return };
            buffer.resize(length, 0);
            if from.read_exact(&mut buffer).await.is_err() {
                return;
            }
            match channel {
                ChannelId::Stdin => {
                    if buffer.is_empty() {
                        self.daemon.end_input(&self.session, &self.run).await;
                    } else {
                        // A command that does not read its input is none of the client's business.
                        drop(self.run.write_stdin(&buffer).await);
                    }
                }
                ChannelId::Control => match serde_json::from_slice::<ToDaemon>(&buffer) {
                    Ok(ToDaemon::Signal(signal)) => {
                        drop(self.daemon.signal(&self.session, &self.run, &signal).await);
                    }
                    Ok(ToDaemon::Resize(size)) => drop(self.run.resize(size)),
                    Ok(ToDaemon::Detach) | Err(_) => return,
                },
                ChannelId::Stdout | ChannelId::Stderr | ChannelId::Terminal => return,
            }
        }
    }
}

impl Daemon {
    /// A command's input ends, when the last one who holds our end lets go of it.
    pub(crate) async fn end_input(self: &Arc<Self>, session: &Session, run: &Run) {
        *run.stdin.lock().await = None;
        let command = wiring::input_of(run.number);
        let release = Request::Release { session: session.id.clone(), command };
        drop(self.engine.post(release, &[]).await);
    }
}

impl Run {
    /// Writes to the command's input, waiting until it reads.
    pub(crate) async fn write_stdin(&self, bytes: &[u8]) -> Result<(), Trouble> {
        let closed = || Trouble::conflict("no-stdin", "the command's input is closed");
        if let (Some(terminal), cowork_client::types::StreamKind::Terminal) =
            (&self.terminal, self.command().streams.stdin)
        {
            let terminal = terminal.try_clone().map_err(|_full| closed())?;
            let terminal = crate::watched::watched(terminal).map_err(|_full| closed())?;
            return write_all(&terminal, bytes).await.map_err(|error| closed().with_cause(error));
        }
        let mut stdin = self.stdin.lock().await;
        let Some(pipe) = stdin.as_ref() else { return Err(closed()) };
        let written = write_all(pipe, bytes).await;
        if let Err(error) = written {
            *stdin = None;
            return Err(closed().with_cause(error));
        }
        Ok(())
    }

    /// The command's terminal has another size.
    pub(crate) fn resize(&self, size: cowork_client::types::Size) -> Result<(), Trouble> {
        let terminal = self.terminal.as_ref();
        let terminal = terminal
            .ok_or_else(|| Trouble::conflict("no-terminal", "the command has no terminal"))?;
        wiring::resize(terminal.as_fd(), size)
            .map_err(|errno| Trouble::host("cannot resize the terminal", errno))
    }
}

async fn write_all(pipe: &AsyncFd<OwnedFd>, bytes: &[u8]) -> std::io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let write = |pipe: &OwnedFd| rustix::io::write(pipe, rest).map_err(Into::into);
        let written = pipe.async_io(tokio::io::Interest::WRITABLE, write).await?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(())
}

async fn control(to: &mut (impl AsyncWrite + Unpin), message: &FromDaemon) -> std::io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let mut frame = header(ChannelId::Control, text.len()).to_vec();
    frame.extend(text);
    to.write_all(&frame).await?;
    to.flush().await
}

/// Sends what there is from `offset` on; whether there was anything.
async fn output(
    to: &mut (impl AsyncWrite + Unpin),
    reader: &mut Reader,
    offset: &mut u64,
) -> std::io::Result<bool> {
    let pieces = reader.read(*offset, CHUNK)?;
    for piece in &pieces {
        let channel = match piece.stream {
            Stream::Stdout => ChannelId::Stdout,
            Stream::Stderr => ChannelId::Stderr,
            Stream::Terminal => ChannelId::Terminal,
        };
        to.write_all(&header(channel, piece.bytes.len())).await?;
        to.write_all(&piece.bytes).await?;
        *offset = piece.offset + piece.bytes.len() as u64;
    }
    if !pieces.is_empty() {
        to.flush().await?;
    }
    Ok(!pieces.is_empty())
}
