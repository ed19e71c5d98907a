//! Decodes bodies that a host compressed although it was asked not to.

use bytes::Bytes;
use flate2::write::{DeflateDecoder, GzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, HeaderMap};
use std::io::{self, Write};

/// How much is decoded at a time: what comes out is at most about a thousand times as much.
const PIECE: usize = 1024;
/// Most that may come out of what arrived at once.
const MOST: usize = 32 * 1024 * 1024;

/// Decodes a stream of bytes.
#[derive(Debug)]
pub(super) enum Decoder {
    /// `gzip`.
    Gzip(GzDecoder<Vec<u8>>),
    /// `deflate`, before its first byte tells which of the two that is.
    Deflate,
    /// `deflate`, as it is meant.
    Zlib(ZlibDecoder<Vec<u8>>),
    /// `deflate`, as some send it.
    Raw(DeflateDecoder<Vec<u8>>),
}

/// How a body is encoded.
#[derive(Debug)]
pub(super) enum Coding {
    /// It is not.
    Identity,
    /// In a way that is known here.
    Known(Box<Decoder>),
    /// In another way.
    Other,
}

/// How the body that these headers are about is encoded.
pub(super) fn coding(headers: &HeaderMap) -> Coding {
    let mut words = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|word| word.trim_ascii().to_ascii_lowercase())
        .filter(|word| word != b"identity" && !word.is_empty());
    let known = |decoder| Coding::Known(Box::new(decoder));
    let Some(word) = words.next() else { return Coding::Identity };
    match (word.as_slice(), words.next()) {
        (b"gzip" | b"x-gzip", None) => known(Decoder::Gzip(GzDecoder::new(Vec::new()))),
        (b"deflate", None) => known(Decoder::Deflate),
        _ => Coding::Other,
    }
}

impl Decoder {
    /// The next bytes; what they say comes out.
    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<Bytes> {
        let Some(first) = bytes.first() else { return Ok(Bytes::new()) };
        if matches!(self, Self::Deflate) {
            let zlib = first & 0x0f == 8;
            *self = if zlib {
                Self::Zlib(ZlibDecoder::new(Vec::new()))
            } else {
                Self::Raw(DeflateDecoder::new(Vec::new()))
            };
        }
        match self {
            Self::Gzip(decoder) => run(decoder, bytes, GzDecoder::get_mut),
            Self::Zlib(decoder) => run(decoder, bytes, ZlibDecoder::get_mut),
            Self::Raw(decoder) => run(decoder, bytes, DeflateDecoder::get_mut),
            Self::Deflate => Ok(Bytes::new()),
        }
    }

    /// There are no more bytes.
    pub(super) fn finish(self) -> io::Result<Bytes> {
        Ok(match self {
            Self::Gzip(decoder) => decoder.finish()?,
            Self::Zlib(decoder) => decoder.finish()?,
            Self::Raw(decoder) => decoder.finish()?,
            Self::Deflate => Vec::new(),
        }
        .into())
    }
}

fn run<D: Write>(
    decoder: &mut D,
    bytes: &[u8],
    ready: fn(&mut D) -> &mut Vec<u8>,
) -> io::Result<Bytes> {
    let mut out = Vec::new();
    for piece in bytes.chunks(PIECE) {
        decoder.write_all(piece)?;
        decoder.flush()?;
        out.append(ready(decoder));
        if out.len() > MOST {
            return Err(io::Error::other("the answer is compressed beyond measure"));
        }
    }
    Ok(out.into())
}
