//! The SOCKS proxy of the session: version 5, without a password. Only connections.

use crate::arrival::{Arrival, say_last};
use crate::capture::{Visitor, place_of};
use bytes::Bytes;
use cowork_api::egress::{Target, Via};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest that somebody may take to say where to.
const TIME_TO_ASK: Duration = Duration::from_secs(10);
/// The command that makes a connection.
const CONNECT: u8 = 1;
/// "Command not supported."
const NO_SUCH_COMMAND: u8 = 7;
/// "Address type not supported."
const NO_SUCH_ADDRESS: u8 = 8;
/// "No acceptable methods."
const NO_METHOD: u8 = 0xff;

/// What somebody wants.
struct Wanted {
    host: String,
    port: u16,
}

/// Why it is not even decided.
enum Unserved {
    /// They are told this.
    Told(Vec<u8>),
    /// The connection broke.
    Broken,
}

impl From<io::Error> for Unserved {
    fn from(_broken: io::Error) -> Self {
        Self::Broken
    }
}

/// Serves one connection to the SOCKS proxy.
pub(crate) async fn serve(visitor: Visitor) {
    let Visitor { house, flow, mut stream } = visitor;
    let Wanted { host, port } = match timeout(TIME_TO_ASK, hear(&mut stream)).await {
        Ok(Ok(wanted)) => wanted,
        Ok(Err(Unserved::Told(words))) => return say_last(stream, &words).await,
        Ok(Err(Unserved::Broken)) | Err(_) => return,
    };
    let target = Target { host, port, via: Via::Socks, ..flow.unsaid() };
    match place_of(&house, &target.host) {
        Ok(place) => {
            let target = Target { host: place.to_string(), ..target };
            let first = Bytes::new();
            Arrival { house, flow, stream, first, target, place }.serve().await;
        }
        Err(refusal) => {
            house.office.refuse(&flow, 0, &target, &refusal);
            say_last(stream, &refused(refusal.socks())).await;
        }
    }
}

/// The answer to version 5 that says that the connection is made.
pub(crate) fn granted() -> [u8; 10] {
    refused(0)
}

/// The answer to version 5 that says why the connection is not made.
pub(crate) fn refused(code: u8) -> [u8; 10] {
    [5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// Hears where somebody wants to go.
async fn hear(stream: &mut TcpStream) -> Result<Wanted, Unserved> {
    if stream.read_u8().await? != 5 {
        return Err(Unserved::Broken);
    }
    let methods = stream.read_u8().await?;
    let mut offered = vec![0; methods.into()];
    stream.read_exact(&mut offered).await?;
    if !offered.contains(&0) {
        return Err(Unserved::Told(vec![5, NO_METHOD]));
    }
    stream.write_all(&[5, 0]).await?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [version, command, _, kind] = head;
    if version != 5 {
        return Err(Unserved::Broken);
    }
    let host = match kind {
        1 => Ipv4Addr::from(array::<4>(stream).await?).to_string(),
        3 => {
            let length = stream.read_u8().await?;
            let mut name = vec![0; length.into()];
            stream.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
        4 => Ipv6Addr::from(array::<16>(stream).await?).to_string(),
        _ => return Err(Unserved::Told(refused(NO_SUCH_ADDRESS).to_vec())),
    };
    let port = stream.read_u16().await?;
    if command != CONNECT {
        return Err(Unserved::Told(refused(NO_SUCH_COMMAND).to_vec()));
    }
    Ok(Wanted { host, port })
}

async fn array<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}
