//! What follows when both sides went over to another protocol: bytes, counted.

use super::account::Account;
use super::body::{HIDDEN, reflected};
use super::scrub::Scrub;
use bytes::{Bytes, BytesMut};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Bytes that are carried at a time.
const PIECE: usize = 16 * 1024;

/// Carries bytes between a client and a host until both have ended. Secrets are taken out of what
/// comes back, and leave as many bytes: messages have their lengths in front.
pub(super) async fn carry(
    account: Arc<Account>,
    client: OnUpgrade,
    host: OnUpgrade,
    scrub: Option<Scrub>,
) {
    let how = match tokio::try_join!(client, host) {
        Ok((client, host)) => {
            let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
            let (from_host, to_host) = tokio::io::split(TokioIo::new(host));
            let mut scrub = scrub.map(Scrub::fitted);
            let up = up(&account, from_client, to_host);
            let down = down(&account, from_host, to_client, scrub.as_mut());
            let result = tokio::try_join!(up, down);
            if let Some(scrub) = &scrub {
                reflected(&account, scrub, HIDDEN);
            }
            result.map(|_| ()).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    account.ended(how.map_or_else(|error| format!("error: {error}"), |()| "eof".to_owned()));
}

async fn up(
    account: &Account,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut buffer = BytesMut::with_capacity(PIECE);
    loop {
        let count = from.read_buf(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        let bytes = u64::try_from(count).unwrap_or(u64::MAX);
        account.sent(bytes).map_err(|refusal| io::Error::other(refusal.sentence))?;
        to.write_all(&buffer).await?;
        to.flush().await?;
        buffer.clear();
        buffer.reserve(PIECE);
    }
}

async fn down(
    account: &Account,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut scrub: Option<&mut Scrub>,
) -> io::Result<()> {
    let mut buffer = BytesMut::with_capacity(PIECE);
    loop {
        let count = from.read_buf(&mut buffer).await?;
        let bytes = buffer.split().freeze();
        let bytes = match &mut scrub {
            Some(scrub) if count == 0 => scrub.finish(),
            Some(scrub) => scrub.push(bytes),
            None => bytes,
        };
        send(account, &mut to, &bytes).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        buffer.reserve(PIECE);
    }
}

async fn send(
    account: &Account,
    to: &mut (impl AsyncWrite + Unpin),
    bytes: &Bytes,
) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    account.received(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    to.write_all(bytes).await?;
    to.flush().await
}
