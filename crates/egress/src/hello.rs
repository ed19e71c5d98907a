//! The first message of TLS, as far as it names a host.

/// Longest first message that is read.
const MAX_HELLO: usize = 16 * 1024;
/// A record of the handshake.
const HANDSHAKE: u8 = 22;
/// The handshake's first message.
const CLIENT_HELLO: u8 = 1;
/// The extension that names the host.
const SERVER_NAME: u16 = 0;

/// What the first bytes of a connection are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Not TLS.
    Other,
    /// They may be TLS; more of them are needed.
    Partial,
    /// TLS that names no host.
    Nameless,
    /// TLS that names this host, in lower case.
    Named(String),
    /// TLS whose first message cannot be read, or could be read in two ways.
    Unreadable,
}

/// Looks at the first bytes of a connection.
pub fn look(bytes: &[u8]) -> Opening {
    // Record type, major version, minor version, two of length, message type.
    let marks =
        [(0, HANDSHAKE..=HANDSHAKE), (1, 3..=3), (2, 0..=4), (5, CLIENT_HELLO..=CLIENT_HELLO)];
    for (at, range) in marks {
        match bytes.get(at) {
            Some(byte) if !range.contains(byte) => return Opening::Other,
            Some(_) => {}
            None => return Opening::Partial,
        }
    }
    match message(bytes) {
        Some(Ok(message)) => read(&message).unwrap_or(Opening::Unreadable),
        Some(Err(Broken)) => Opening::Unreadable,
        None => Opening::Partial,
    }
}

/// The bytes are not what they should be.
struct Broken;

/// The first message, put together out of its records; `None` if it is not there to its end.
fn message(mut bytes: &[u8]) -> Option<Result<Vec<u8>, Broken>> {
    let mut message = Vec::new();
    loop {
        if let [_, a, b, c, rest @ ..] = message.as_slice() {
            let length = usize::try_from(u32::from_be_bytes([0, *a, *b, *c])).unwrap_or(MAX_HELLO);
            if length >= MAX_HELLO {
                return Some(Err(Broken));
            }
            if let Some(body) = rest.get(..length) {
                return Some(Ok(body.to_vec()));
            }
        }
        let (head, rest) = bytes.split_at_checked(5)?;
        let [kind, _, _, high, low] = *head else { return None };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind != HANDSHAKE || length == 0 {
            return Some(Err(Broken));
        }
        // The beginning of a record tells enough if the message ends in it.
        let record = rest.get(..length.min(rest.len()))?;
        message.extend_from_slice(record);
        bytes = rest.get(record.len()..)?;
    }
}

/// Reads a part that is preceded by its length in `bytes` bytes, and the rest.
fn part(from: &[u8], bytes: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = from.split_at_checked(bytes)?;
    let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    rest.split_at_checked(length)
}

fn number(from: &[u8]) -> Option<(u16, &[u8])> {
    let ([high, low], rest) = from.split_first_chunk::<2>()?;
    Some((u16::from_be_bytes([*high, *low]), rest))
}

fn read(message: &[u8]) -> Option<Opening> {
    // The version and a random number.
    let (_, rest) = message.split_at_checked(34)?;
    let (_session, rest) = part(rest, 1)?;
    let (_ciphers, rest) = part(rest, 2)?;
    let (_compressions, rest) = part(rest, 1)?;
    if rest.is_empty() {
        return Some(Opening::Nameless);
    }
    let (mut extensions, []) = part(rest, 2)? else { return None };
    let mut name = None;
    while !extensions.is_empty() {
        let (kind, rest) = number(extensions)?;
        let (body, rest) = part(rest, 2)?;
        extensions = rest;
        if kind == SERVER_NAME {
            let (list, []) = part(body, 2)? else { return None };
            let (0, entry) = list.split_first()? else { return None };
            let (host, []) = part(entry, 2)? else { return None };
            let host = std::str::from_utf8(host).ok().filter(|host| host.is_ascii())?;
            if name.replace(host.to_ascii_lowercase()).is_some() {
                return None;
            }
        }
    }
    Some(name.map_or(Opening::Nameless, Opening::Named))
}

#[cfg(test)]
mod tests {
    use super::{Opening, look};
    use proptest::prelude::*;
    use rustls::pki_types::ServerName;
    use std::sync::Arc;

    fn hello(name: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    /// The same message in records of one byte each.
    fn crumbled(hello: &[u8]) -> Vec<u8> {
        hello[5..].iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect()
    }

    #[test]
    fn a_name_is_found_however_the_message_is_cut() {
        let whole = hello("Example.COM");
        assert_eq!(look(&whole), Opening::Named("example.com".into()));
        for length in 0..whole.len() {
            assert_eq!(look(&whole[..length]), Opening::Partial, "{length}");
        }
        let crumbs = crumbled(&whole);
        assert_eq!(look(&crumbs), Opening::Named("example.com".into()));
        assert_eq!(look(&crumbs[..crumbs.len() - 1]), Opening::Partial);
    }

    #[test]
    fn an_address_is_no_name() {
        assert_eq!(look(&hello("192.0.2.1")), Opening::Nameless);
    }

    #[test]
    fn what_is_not_tls_is_let_alone() {
        for bytes in [&b"SSH-2.0-x\r\n"[..], b"GET / HTTP/1.1\r\n", b"\x16\x00\x00\x03abc"] {
            assert_eq!(look(bytes), Opening::Other);
        }
        assert_eq!(look(b""), Opening::Partial);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(mut bytes: Vec<u8>, tls: bool) {
            if tls {
                bytes.splice(0..0, [22, 3, 1, 0, 200, 1, 0, 0, 60]);
            }
            look(&bytes);
        }

        #[test]
        fn a_changed_byte_never_makes_two_names(at in 0_usize..200, byte: u8) {
            let mut bytes = hello("example.com");
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            look(&bytes);
        }
    }
}
