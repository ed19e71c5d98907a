//! Searches an answer that is compressed, and passes it on as it came.
//!
//! For hosts that got no secret: their answers may be files that are stored compressed, which nobody
//! may change. One in which a secret is found after all is cut before it. What could be most of a
//! secret is held until it is known whether it is.

use super::decode::{Decoder, PIECE};
use super::scrub::{SHORTEST, Scrub};
use bytes::{Bytes, BytesMut};
use std::io;

/// Most bytes that are held: what is compressed well is little, and what says nothing is none.
const MAX_HELD: usize = 64 * 1024;

/// What watches an answer.
#[derive(Debug)]
pub(super) struct Watch {
    decoder: Option<Box<Decoder>>,
    pub(super) scrub: Scrub,
    held: BytesMut,
    finding: Finding,
}

/// What was found in the text of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nothing.
    Clean,
    /// A secret.
    Secret,
}

impl Watch {
    /// Watches an answer that `decoder` can read.
    pub(super) fn new(decoder: Box<Decoder>, scrub: Scrub) -> Self {
        let (held, finding) = (BytesMut::new(), Finding::Clean);
        Self { decoder: Some(decoder), scrub, held, finding }
    }

    /// What was found.
    pub(super) fn finding(&self) -> Finding {
        self.finding
    }

    /// The next bytes; those that may pass come out.
    pub(super) fn push(&mut self, bytes: Bytes) -> io::Result<Bytes> {
        for piece in bytes.chunks(PIECE) {
            let Some(decoder) = &mut self.decoder else { break };
            let text = decoder.push(piece)?;
            self.look(text)?;
        }
        if self.scrub.held() < SHORTEST && self.held.is_empty() {
            return Ok(bytes);
        }
        self.held.extend_from_slice(&bytes);
        if self.scrub.held() < SHORTEST {
            return Ok(self.held.split().freeze());
        }
        if self.held.len() > MAX_HELD {
            return Err(io::Error::other("what may be a secret does not come to an end"));
        }
        Ok(Bytes::new())
    }

    /// There are no more bytes: what was held comes out. One that ends too early is the client's to
    /// find out, as it would be without us.
    pub(super) fn finish(&mut self) -> io::Result<Bytes> {
        if let Some(Ok(text)) = self.decoder.take().map(|decoder| decoder.finish()) {
            self.look(text)?;
        }
        Ok(self.held.split().freeze())
    }

    fn look(&mut self, text: Bytes) -> io::Result<()> {
        let before = self.scrub.hits();
        drop(self.scrub.push(text));
        if self.scrub.hits() == before {
            return Ok(());
        }
        self.finding = Finding::Secret;
        Err(io::Error::other("the answer has a secret in it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::decode::{Coding, coding};
    use crate::http::scrub::Needle;
    use http::HeaderMap;
    use http::header::CONTENT_ENCODING;
    use proptest::prelude::*;
    use std::io::Write as _;

    const SECRET: &str = "real-0123456789abcdef";

    fn watch(name: &'static str) -> Watch {
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, name.parse().unwrap())]);
        let Coding::Known(decoder) = coding(&headers) else { panic!("{name} is known") };
        let needle = Needle { name: "key".into(), find: SECRET.into(), put: b"fake".to_vec() };
        Watch::new(decoder, Scrub::new(vec![needle]))
    }

    fn zipped(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    /// What passes of an answer in parts, and whether all of it did.
    fn pass(watch: &mut Watch, parts: impl Iterator<Item = Bytes>) -> (Vec<u8>, io::Result<()>) {
        let mut out = Vec::new();
        for part in parts {
            match watch.push(part) {
                Ok(bytes) => out.extend_from_slice(&bytes),
                Err(error) => return (out, Err(error)),
            }
        }
        let last = watch.finish().map(|bytes| out.extend_from_slice(&bytes));
        (out, last)
    }

    fn parts(bytes: &[u8], size: usize) -> impl Iterator<Item = Bytes> {
        bytes.chunks(size).map(Bytes::copy_from_slice)
    }

    #[test]
    fn several_members_and_an_early_end_pass_as_they_came() {
        let two = [zipped(b"one"), zipped(b"two")].concat();
        for bytes in [&two[..], &two[..two.len() - 3], b""] {
            let (out, all) = pass(&mut watch("gzip"), parts(bytes, 5));
            assert!(all.is_ok() && out == bytes, "{all:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_does_not_pass() {
        let whole = zipped(SECRET.as_bytes());
        // A secret behind the end, and an answer that is not what it says.
        let behind = [zipped(b"text").as_slice(), SECRET.as_bytes()].concat();
        for (bytes, name) in
            [(behind.as_slice(), "gzip"), (b"no gzip at all", "gzip"), (&whole, "deflate")]
        {
            let (out, all) = pass(&mut watch(name), parts(bytes, 64 * 1024));
            assert!(all.is_err() && out.is_empty(), "{name}: {out:?}");
        }
    }

    #[test]
    fn nothing_is_held_without_bound() {
        // Most of the secret, and then pieces that say nothing.
        let mut encoder =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::none());
        encoder.write_all(&SECRET.as_bytes()[..20]).unwrap();
        encoder.flush().unwrap();
        let mut watch = watch("deflate");
        assert_eq!(watch.push(encoder.get_ref().clone().into()).unwrap(), Bytes::new());
        let empty = Bytes::from_static(&[0, 0, 0, 0xff, 0xff]);
        let refused = (0..2 * MAX_HELD / empty.len()).any(|_| watch.push(empty.clone()).is_err());
        assert!(refused);
    }

    #[test]
    fn much_out_of_little_takes_little() {
        let bomb = zipped(&vec![0; 64 * 1024 * 1024]);
        let (out, all) = pass(&mut watch("gzip"), parts(&bomb, usize::MAX));
        assert!(all.is_ok() && out == bomb);
    }

    proptest! {
        #[test]
        fn no_secret_comes_through(before in "[a-z]{0,200}", size in 1_usize..50) {
            let text = format!("{before}{SECRET} and more");
            let bytes = zipped(text.as_bytes());
            let mut watch = watch("gzip");
            let (out, all) = pass(&mut watch, parts(&bytes, size));
            prop_assert!(all.is_err());
            prop_assert_eq!(watch.finding(), Finding::Secret);
            let mut decoder = flate2::write::GzDecoder::new(Vec::new());
            drop(decoder.write_all(&out));
            drop(decoder.flush());
            let seen = String::from_utf8_lossy(decoder.get_ref()).into_owned();
            let most: String = SECRET.chars().take(SHORTEST).collect();
            prop_assert!(!seen.contains(&most), "{}", seen);
        }

        #[test]
        fn what_has_none_passes_as_it_came(text: Vec<u8>, size in 1_usize..50) {
            let bytes = zipped(&text);
            let (out, all) = pass(&mut watch("gzip"), parts(&bytes, size));
            prop_assert!(all.is_ok());
            prop_assert_eq!(out, bytes);
        }
    }
}
