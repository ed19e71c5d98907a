//! Frames of an attachment on one side, messages of a WebSocket on the other.
//!
//! Neither side is read faster than the other one takes: what a command does not read of its input
//! stays with the client, and what a client does not read stays in the store of output.

use super::frame::{Close, Ears, Heard, Mouth};
use cowork_client::stream::{ChannelId, HEADER, MAX_FRAME, ToDaemon, header, parse};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Notify;

/// Bytes between an attachment and the bridge.
pub(super) const BUFFER: usize = 64 * 1024;

/// Longest wait for a client to say that it has understood the end.
const PARTING: Duration = Duration::from_secs(5);

/// What the ears tell the mouth.
#[derive(Default)]
struct Told {
    news: Mutex<News>,
    changed: Notify,
}

#[derive(Default)]
struct News {
    /// The last question whether we are there.
    ping: Option<Vec<u8>>,
    /// Nothing more is heard.
    over: Option<Close>,
}

impl Told {
    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: impl FnOnce(&mut News)) {
        change(&mut self.news());
        self.changed.notify_one();
    }
}

/// Carries both ways until one side has ended.
pub(super) async fn bridge(
    client: impl AsyncRead + AsyncWrite,
    attachment: impl AsyncRead + AsyncWrite,
) {
    let (from, to) = tokio::io::split(client);
    let (output, input) = tokio::io::split(attachment);
    let mut from = pin!(BufReader::with_capacity(BUFFER, from));
    let (told, mut mouth) = (Told::default(), Mouth(to));
    let why = {
        let mut inward = pin!(inward(from.as_mut(), input, &told));
        let mut outward = pin!(outward(output, &mut mouth, &told));
        tokio::select! {
            why = &mut inward => {
                told.tell(|news| news.over = Some(why));
                drop(tokio::time::timeout(PARTING, outward).await);
                why
            }
            () = &mut outward => {
                tokio::time::timeout(PARTING, inward).await.unwrap_or(Close::Gone)
            }
        }
    };
    mouth.shut().await;
    if !matches!(why, Close::Normal | Close::Gone) {
        // What is thrown away unread would take our last words with it.
        let mut rest = tokio::io::sink();
        drop(tokio::time::timeout(PARTING, tokio::io::copy(&mut from, &mut rest)).await);
    }
}

/// Passes messages on until the client has closed or done something wrong.
async fn inward(from: impl AsyncRead + Unpin, input: impl AsyncWrite, told: &Told) -> Close {
    let mut input = pin!(input);
    let mut ears = Ears::new(from, MAX_FRAME + 1);
    loop {
        let message = match ears.hear().await {
            Ok(Heard::Message(message)) => message,
            Ok(Heard::Ping(contents)) => {
                told.tell(|news| news.ping = Some(contents));
                continue;
            }
            Err(why) => return why,
        };
        let Some((channel, contents)) = meant(&message) else { return Close::Meaningless };
        let mut frame = header(channel, contents.len()).to_vec();
        frame.extend(contents);
        // An attachment that has ended hears nothing; its client is still waited for.
        drop(input.write_all(&frame).await);
    }
}

/// What a message says, if it is one that a client may send.
fn meant(message: &[u8]) -> Option<(ChannelId, &[u8])> {
    let (channel, contents) = message.split_first()?;
    let channel = ChannelId::from_byte(*channel)?;
    let fits = match channel {
        ChannelId::Stdin => true,
        ChannelId::Control => serde_json::from_slice::<ToDaemon>(contents).is_ok(),
        ChannelId::Stdout | ChannelId::Stderr | ChannelId::Terminal => false,
    };
    fits.then_some((channel, contents))
}

/// Passes frames on until there are no more, or nothing more is heard.
async fn outward(output: impl AsyncRead, mouth: &mut Mouth<impl AsyncWrite + Unpin>, told: &Told) {
    let output = pin!(output);
    let mut output = BufReader::with_capacity(BUFFER, output);
    loop {
        let (ping, over) = {
            let mut news = told.news();
            (news.ping.take(), news.over)
        };
        if let Some(contents) = ping
            && (mouth.pong(&contents).await.is_err() || mouth.flush().await.is_err())
        {
            return;
        }
        if let Some(why) = over {
            drop(mouth.close(why).await);
            return;
        }
        let more = tokio::select! {
            () = told.changed.notified() => continue,
            more = output.fill_buf() => more.is_ok_and(|more| !more.is_empty()),
        };
        if !more {
            drop(mouth.close(Close::Normal).await);
            return;
        }
        if pass(&mut output, mouth).await.is_none() {
            return;
        }
    }
}

/// Passes one frame on, if both sides are well.
async fn pass(
    output: &mut (impl AsyncRead + Unpin),
    mouth: &mut Mouth<impl AsyncWrite + Unpin>,
) -> Option<()> {
    let mut head = [0; HEADER];
    output.read_exact(&mut head).await.ok()?;
    let (channel, length) = parse(head)?;
    let mut contents = vec![0; length];
    output.read_exact(&mut contents).await.ok()?;
    // What says to others that a silent command's connection is alive has a name of its own here.
    if contents.is_empty() && channel != ChannelId::Control {
        mouth.ping().await.ok()?;
    } else {
        mouth.message(channel.byte(), &contents).await.ok()?;
    }
    mouth.flush().await.ok()
}
