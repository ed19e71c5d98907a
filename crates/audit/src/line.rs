//! One line of a file: how it is written, taken apart and hashed.
//!
//! Everything here is pure. The format is that of the crate's documentation; nobody else knows it.

use crate::{Head, Record};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// What stands between the content of a line and its hash.
const SEAL: &[u8] = b",\"hash\":\"";

/// What ends a line after its hash.
const END: &[u8] = b"\"}";

/// The length of a hash in hexadecimal digits.
const HASH_DIGITS: usize = 64;

/// A record before it is hashed. The order of the fields is that of the format.
#[derive(Serialize)]
pub(crate) struct Content<'c> {
    pub(crate) seq: u64,
    pub(crate) time: &'c str,
    #[serde(rename = "type")]
    pub(crate) kind: &'c str,
    pub(crate) session: Option<&'c str>,
    pub(crate) data: &'c serde_json::Value,
    pub(crate) previous: &'c str,
}

impl Content<'_> {
    /// Writes the line, with its line feed, into an empty buffer and says its hash.
    pub(crate) fn write(&self, line: &mut Vec<u8>) -> Result<Head, serde_json::Error> {
        serde_json::to_writer(&mut *line, self)?;
        let hash = hex(&Sha256::digest(&*line));
        // The closing brace comes again after the hash.
        line.pop();
        line.extend_from_slice(SEAL);
        line.extend_from_slice(hash.as_bytes());
        line.extend_from_slice(END);
        line.push(b'\n');
        Ok(Head { seq: self.seq, hash })
    }
}

/// What a line says, without `data`.
#[derive(Debug, Deserialize)]
pub(crate) struct Front<'l> {
    pub(crate) seq: u64,
    #[serde(borrow)]
    pub(crate) time: Cow<'l, str>,
    #[serde(rename = "type", borrow)]
    pub(crate) kind: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) session: Option<Text<'l>>,
    #[serde(rename = "data")]
    _data: IgnoredAny,
    #[serde(borrow)]
    pub(crate) previous: Cow<'l, str>,
    #[serde(borrow)]
    pub(crate) hash: Cow<'l, str>,
}

/// Text that is borrowed if it has no escapes; within an `Option`, a plain `Cow` never is.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'l>(#[serde(borrow)] pub(crate) Cow<'l, str>);

/// Takes a line apart.
pub(crate) fn front(line: &[u8]) -> Option<Front<'_>> {
    serde_json::from_slice(line).ok()
}

/// Takes a line apart, with everything in it.
pub(crate) fn record(line: &[u8]) -> Option<Record> {
    serde_json::from_slice(line).ok()
}

/// The number that a line starts with, found without taking it apart.
pub(crate) fn seq(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(b"{\"seq\":")?;
    let mut seq = 0_u64;
    for byte in digits {
        match byte {
            b'0'..=b'9' => seq = seq.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?,
            b',' => return Some(seq),
            _ => return None,
        }
    }
    None
}

/// The hash that a line carries and the hash that its content has, if it has the form of a line.
pub(crate) fn hashes(line: &[u8]) -> Option<(&str, String)> {
    let tail = SEAL.len() + HASH_DIGITS + END.len();
    let (content, seal) = line.split_at_checked(line.len().checked_sub(tail)?)?;
    let carried = seal.strip_prefix(SEAL)?.strip_suffix(END)?;
    let carried = std::str::from_utf8(carried).ok()?;
    let mut hash = Sha256::new();
    hash.update(content);
    hash.update(b"}");
    Some((carried, hex(&hash.finalize())))
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::{Content, front, hashes, record, seq};
    use crate::GENESIS;
    use serde_json::json;

    fn line() -> Vec<u8> {
        let content = Content {
            seq: 7,
            time: "2026-01-02T03:04:05Z",
            kind: "a.b",
            session: Some("quo\"te"),
            data: &json!({"n": [1, 2.5, null], "t": "é\n"}),
            previous: GENESIS,
        };
        let mut line = Vec::new();
        let head = content.write(&mut line).unwrap();
        assert_eq!(head.seq, 7);
        assert_eq!(line.pop(), Some(b'\n'));
        line
    }

    #[test]
    fn a_line_has_the_documented_form() {
        let expected = format!(
            "{{\"seq\":7,\"time\":\"2026-01-02T03:04:05Z\",\"type\":\"a.b\",\
             \"session\":\"quo\\\"te\",\"data\":{{\"n\":[1,2.5,null],\"t\":\"é\\n\"}},\
             \"previous\":\"{GENESIS}\",\
             \"hash\":\"HASH\"}}"
        );
        let line = String::from_utf8(line()).unwrap();
        let hash = record(line.as_bytes()).unwrap().hash;
        assert_eq!(line.replace(&hash, "HASH"), expected);
    }

    #[test]
    fn a_line_is_taken_apart_into_what_was_written() {
        let line = line();
        let (carried, computed) = hashes(&line).unwrap();
        assert_eq!(carried, computed);
        assert_eq!(seq(&line), Some(7));
        let front = front(&line).unwrap();
        assert_eq!((front.seq, &*front.kind, &*front.hash), (7, "a.b", carried));
        assert_eq!(front.session.unwrap().0, "quo\"te");
        assert_eq!(record(&line).unwrap().data, json!({"n": [1, 2.5, null], "t": "é\n"}));
    }

    #[test]
    fn what_is_no_line_has_no_hash_and_no_number() {
        for garbage in ["", "{}", "{\"seq\":", "{\"seq\":1", "{\"seq\":99999999999999999999,"] {
            assert!(hashes(garbage.as_bytes()).is_none(), "{garbage}");
            assert!(seq(garbage.as_bytes()).is_none(), "{garbage}");
        }
    }
}
