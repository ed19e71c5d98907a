//! The first message of TLS, as far as it names a host.

/// Longest first message that is read.
const MAX_HELLO: usize = 16 * 1024;
/// A record that no connection begins with.
const CHANGE_CIPHER: u8 = 20;
/// Another one.
const ALERT: u8 = 21;
/// A record of the handshake.
const HANDSHAKE: u8 = 22;
/// A record that the handshake is before.
const DATA: u8 = 23;
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
///
/// Servers do not look at the version of a record, so it does not matter here either.
pub fn look(bytes: &[u8]) -> Opening {
    match bytes {
        [] => Opening::Partial,
        [HANDSHAKE, rest @ ..] if rest.len() < 5 => Opening::Partial,
        [HANDSHAKE, _, _, _, _, CLIENT_HELLO, ..] => match message(bytes) {
            Some(Ok(message)) => read(&message).unwrap_or(Opening::Unreadable),
            Some(Err(Broken)) => Opening::Unreadable,
            None => Opening::Partial,
        },
        [HANDSHAKE | CHANGE_CIPHER | ALERT | DATA, ..] => Opening::Unreadable,
        // The hello of SSL 2: a length with its first bit set, and the kind of message.
        [0x80..=0xff, _, CLIENT_HELLO, ..] => Opening::Unreadable,
        [0x80..=0xff] | [0x80..=0xff, _] => Opening::Partial,
        _ => Opening::Other,
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
        for bytes in
            [&b"SSH-2.0-x\r\n"[..], b"GET / HTTP/1.1\r\n", b"\x10\x0c\x00\x04MQTT", b"\x80\x00\x02"]
        {
            assert_eq!(look(bytes), Opening::Other, "{bytes:?}");
        }
        assert_eq!(look(b""), Opening::Partial);
    }

    #[test]
    fn the_version_of_a_record_hides_no_name() {
        for version in [[3, 5], [3, 0xff], [0, 0], [2, 3], [0xff, 0xff]] {
            let mut bytes = hello("example.com");
            bytes[1..3].copy_from_slice(&version);
            assert_eq!(look(&bytes), Opening::Named("example.com".into()), "{version:?}");
            assert_eq!(look(&bytes[..5]), Opening::Partial, "{version:?}");
        }
    }

    #[test]
    fn what_a_server_of_tls_might_read_otherwise_is_unreadable() {
        let whole = hello("example.com");
        let behind = |front: &[u8]| [front, &whole].concat();
        let mut other_message = whole.clone();
        other_message[5] = 2;
        let table = [
            ("an empty record", behind(&[22, 3, 1, 0, 0])),
            ("a change of ciphers", behind(&[20, 3, 3, 0, 1, 1])),
            ("an alert", behind(&[21, 3, 3, 0, 2, 1, 0])),
            ("data", behind(&[23, 3, 3, 0, 1, 0])),
            ("another message", other_message),
            ("a handshake that is none", b"\x16\x00\x00\x03abc".to_vec()),
            ("SSL 2", vec![0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10]),
            ("long SSL 2", vec![0xff, 0xff, 1]),
        ];
        for (what, bytes) in table {
            assert_eq!(look(&bytes), Opening::Unreadable, "{what}");
        }
        for length in 1..3 {
            assert_eq!(look(&[0x80, 0x2e, 1][..length]), Opening::Partial, "{length}");
        }
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
