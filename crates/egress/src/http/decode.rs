//! Decodes bodies that a host compressed, and those of requests that a secret may have to go into.
//!
//! Deliberately absent: `br` and `zstd`. Their windows take up to 16 MiB and more for each answer,
//! for as long as it flows, and who asks for them nicely gets `gzip`: requests whose answers are looked
//! into ask for nothing else, and an answer in another coding is refused.

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue};
use http::{StatusCode, response};
use std::io::{self, Write};

/// How much is decoded at a time: what comes out is at most about a thousand times as much.
pub(super) const PIECE: usize = 1024;
/// Most that may come out of what arrived at once.
const MOST: usize = 32 * 1024 * 1024;

/// Decodes a stream of bytes.
#[derive(Debug)]
pub(super) enum Decoder {
    /// Nothing came yet.
    Fresh(Format),
    /// `gzip`.
    Gzip(MultiGzDecoder<Vec<u8>>),
    /// `deflate`.
    Deflate(Inflate),
}

/// What is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// `gzip`.
    Gzip,
    /// `deflate`: the first byte tells whether it is sent as it is meant, or as some send it.
    Deflate,
}

/// Decodes `deflate`, and knows its end.
#[derive(Debug)]
pub(super) struct Inflate {
    state: Decompress,
    end: End,
}

/// Whether a stream has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// More must come.
    Ahead,
    /// It has.
    Reached,
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
        (b"gzip" | b"x-gzip", None) => known(Decoder::Fresh(Format::Gzip)),
        (b"deflate", None) => known(Decoder::Fresh(Format::Deflate)),
        _ => Coding::Other,
    }
}

/// How the body of an answer is encoded. A part of one that is compressed cannot be read.
pub(super) fn coding_of(answer: &response::Parts) -> Coding {
    match coding(&answer.headers) {
        Coding::Known(_) if answer.status == StatusCode::PARTIAL_CONTENT => Coding::Other,
        coding => coding,
    }
}

/// Codings that are known here.
const KNOWN: [&str; 4] = ["gzip", "x-gzip", "deflate", "identity"];

/// Asks for no coding that is not known here. A request that asks for none of those gets none.
pub(super) fn narrow(headers: &mut HeaderMap) {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let words: Vec<&str> = values
        .flat_map(|value| value.to_str().unwrap_or_default().split(','))
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect();
    let is_known = |word: &&&str| {
        let name = word.split(';').next().unwrap_or_default().trim();
        KNOWN.iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    let kept: Vec<&str> = words.iter().filter(is_known).copied().collect();
    if !kept.is_empty() && kept.len() == words.len() {
        return;
    }
    let asked = if kept.is_empty() { "identity".to_owned() } else { kept.join(", ") };
    if let Ok(asked) = HeaderValue::from_str(&asked) {
        headers.insert(ACCEPT_ENCODING, asked);
    }
}

impl Decoder {
    /// The next bytes; what they say comes out.
    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<Bytes> {
        let Some(first) = bytes.first() else { return Ok(Bytes::new()) };
        if let Self::Fresh(format) = self {
            *self = match format {
                Format::Gzip => Self::Gzip(MultiGzDecoder::new(Vec::new())),
                Format::Deflate => Self::Deflate(Inflate {
                    state: Decompress::new(first & 0x0f == 8),
                    end: End::Ahead,
                }),
            };
        }
        let mut out = Vec::new();
        for piece in bytes.chunks(PIECE) {
            match self {
                Self::Fresh(_) => {}
                Self::Gzip(decoder) => {
                    decoder.write_all(piece)?;
                    decoder.flush()?;
                    out.append(decoder.get_mut());
                }
                Self::Deflate(inflate) => inflate.run(piece, &mut out)?,
            }
            if out.len() > MOST {
                return Err(io::Error::other("the answer is compressed beyond measure"));
            }
        }
        Ok(out.into())
    }

    /// Decodes the whole of something; nothing if it cannot be, or if more than `most` bytes come out.
    pub(super) fn whole(mut self, bytes: &[u8], most: u64) -> Option<Bytes> {
        let mut out = Vec::new();
        let fits = |out: &Vec<u8>| u64::try_from(out.len()).is_ok_and(|length| length <= most);
        for piece in bytes.chunks(PIECE) {
            out.extend_from_slice(&self.push(piece).ok()?);
            if !fits(&out) {
                return None;
            }
        }
        out.extend_from_slice(&self.finish().ok()?);
        fits(&out).then(|| out.into())
    }

    /// There are no more bytes. What ends too early is an error.
    pub(super) fn finish(self) -> io::Result<Bytes> {
        match self {
            Self::Fresh(_) => Ok(Bytes::new()),
            Self::Gzip(decoder) => Ok(decoder.finish()?.into()),
            Self::Deflate(inflate) if inflate.end == End::Reached => Ok(Bytes::new()),
            Self::Deflate(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Inflate {
    fn run(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        loop {
            if self.end == End::Reached {
                let behind = io::Error::other("something follows the end of what is compressed");
                return if bytes.is_empty() { Ok(()) } else { Err(behind) };
            }
            out.reserve(PIECE * 16);
            let (read, written) = (self.state.total_in(), out.len());
            let status = self.state.decompress_vec(bytes, out, FlushDecompress::None)?;
            let read = usize::try_from(self.state.total_in() - read).unwrap_or(usize::MAX);
            bytes = bytes.get(read..).unwrap_or_default();
            if status == Status::StreamEnd {
                self.end = End::Reached;
            } else if read == 0 && out.len() == written {
                // It wants more.
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_is_asked_for() {
        for (asked, sent) in [
            ("gzip, deflate, br, zstd", "gzip, deflate"),
            ("br;q=1.0, gzip;q=0.8, *;q=0.1", "gzip;q=0.8"),
            ("GZIP , x-gzip;q=0", "GZIP , x-gzip;q=0"),
            ("zstd", "identity"),
            ("*", "identity"),
            ("", "identity"),
        ] {
            let mut headers = HeaderMap::new();
            if !asked.is_empty() {
                headers.insert(ACCEPT_ENCODING, asked.parse().unwrap());
            }
            narrow(&mut headers);
            assert_eq!(headers[ACCEPT_ENCODING], sent, "{asked}");
        }
        let two = [(ACCEPT_ENCODING, "gzip"), (ACCEPT_ENCODING, "br")];
        let mut headers = HeaderMap::new();
        for (name, value) in two {
            headers.append(name, value.parse().unwrap());
        }
        narrow(&mut headers);
        assert_eq!(headers.get_all(ACCEPT_ENCODING).iter().collect::<Vec<_>>(), ["gzip"]);
    }

    #[test]
    fn an_answer_that_ends_too_early_is_none() {
        let text = b"text that is there to its end";
        let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(text).unwrap();
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        raw.write_all(text).unwrap();
        let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        zipped.write_all(text).unwrap();
        let zipped = zipped.finish().unwrap();
        let table = [
            ("gzip", zipped.clone()),
            ("deflate", zlib.finish().unwrap()),
            ("deflate", raw.finish().unwrap()),
            ("gzip", gzip.to_vec()),
        ];
        for (name, bytes) in table {
            let headers = HeaderMap::from_iter([(CONTENT_ENCODING, name.parse().unwrap())]);
            let run = |bytes: &[u8]| {
                let Coding::Known(mut decoder) = coding(&headers) else { panic!("{name}") };
                let first = decoder.push(bytes)?;
                Ok::<_, io::Error>([first, decoder.finish()?].concat())
            };
            if bytes.len() > 10 {
                assert_eq!(run(&bytes).unwrap(), text, "{name}");
            }
            for length in 1..bytes.len() {
                let out = run(&bytes[..length]);
                assert!(out.is_err(), "{name} {length} of {}: {out:?}", bytes.len());
            }
        }
    }
}
