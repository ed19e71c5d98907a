//! Asking a parent of SOCKS 5 for a connection (RFC 1928), with a user and a password where it wants
//! them (RFC 1929). Names are the parent's to look up.

use cowork_api::egress::{Hidden, Socks};
use cowork_policy::egress::Place;
use std::io;
use std::net::IpAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const VERSION: u8 = 5;
/// The command that makes a connection.
const CONNECT: u8 = 1;
/// Methods of saying who comes: none, user and password.
const NOBODY: u8 = 0;
const PASSWORD: u8 = 2;
/// What the host's own loopback is to whoever stands elsewhere.
const LOOPBACK: &str = "localhost";

/// Asks for a connection. Inside is why the parent does not make it.
pub(super) async fn ask(
    stream: &mut TcpStream,
    socks: &Socks,
    place: &Place,
    port: u16,
) -> io::Result<Result<(), String>> {
    let Socks { user: Hidden(user), password: Hidden(password) } = socks;
    // Whoever has a password shows it to those who want it, and only to them.
    let methods: &[u8] = if user.is_empty() { &[NOBODY] } else { &[NOBODY, PASSWORD] };
    let mut greeting = vec![VERSION, short(methods)?];
    greeting.extend_from_slice(methods);
    stream.write_all(&greeting).await?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await?;
    match chosen {
        [VERSION, NOBODY] => {}
        [VERSION, PASSWORD] if !user.is_empty() => {
            let mut login = vec![1, short(user)?];
            login.extend_from_slice(user);
            login.push(short(password)?);
            login.extend_from_slice(password);
            stream.write_all(&login).await?;
            let mut taken = [0; 2];
            stream.read_exact(&mut taken).await?;
            if taken != [1, 0] {
                return Ok(Err("it does not take this user and password".to_owned()));
            }
        }
        [VERSION, _] => return Ok(Err("it wants a user and a password".to_owned())),
        _ => return Err(io::Error::other("it does not answer in SOCKS 5")),
    }
    let mut wanted = vec![VERSION, CONNECT, 0];
    match place {
        Place::Address(IpAddr::V4(address)) => {
            wanted.push(1);
            wanted.extend_from_slice(&address.octets());
        }
        Place::Address(IpAddr::V6(address)) => {
            wanted.push(4);
            wanted.extend_from_slice(&address.octets());
        }
        Place::Name(name) => named(&mut wanted, name.as_str())?,
        Place::HostLoopback => named(&mut wanted, LOOPBACK)?,
    }
    wanted.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&wanted).await?;
    answer(stream).await
}

fn named(wanted: &mut Vec<u8>, name: &str) -> io::Result<()> {
    wanted.extend_from_slice(&[3, short(name.as_bytes())?]);
    wanted.extend_from_slice(name.as_bytes());
    Ok(())
}

/// The length of what has to be short.
fn short(bytes: &[u8]) -> io::Result<u8> {
    let long = |_cause| io::Error::other("a name, a user or a password is too long for SOCKS 5");
    u8::try_from(bytes.len()).map_err(long)
}

/// Reads an answer to its end, and not a byte more: what follows belongs to the connection.
async fn answer(stream: &mut TcpStream) -> io::Result<Result<(), String>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [VERSION, code, _, kind] = head else {
        return Err(io::Error::other("it does not answer in SOCKS 5"));
    };
    if code != 0 {
        return Ok(Err(match code {
            1 => "it failed".to_owned(),
            2 => "its own rules do not allow this".to_owned(),
            3 => "the network cannot be reached from there".to_owned(),
            4 => "the host cannot be reached from there".to_owned(),
            5 => "nothing listens on this port there".to_owned(),
            6 => "the host does not answer in time".to_owned(),
            other => format!("it answers {other}"),
        }));
    }
    let address = match kind {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await?),
        _ => return Err(io::Error::other("it does not answer in SOCKS 5")),
    };
    let mut bound = vec![0; address + 2];
    stream.read_exact(&mut bound).await?;
    Ok(Ok(()))
}
