//! Signs bodies to AWS anew that are signed piece by piece.
//!
//! Each piece has its length and its signature in front of it (`aws-chunked`), which depends on the
//! one before it; the first one on the signature of the request. Every signature is as long as the
//! one that it replaces, and nothing else is touched: the length of the body stays what it was.
//!
//! Invariant: nothing of a piece is sent before all of it is there, because its signature stands
//! before it. A piece, and what follows the last one, have a size.

use super::sigv4::{hex, hmac_key};
use bytes::{Bytes, BytesMut};
use ring::{digest, hmac};

/// Most bytes of a piece, of the line before it, and of all that follows the last one.
const MAX_PIECE: usize = 1024 * 1024;
const MAX_LINE: usize = 128;
const MAX_TRAILERS: usize = 8 * 1024;
/// What stands between the length of a piece and its signature.
const MARK: &str = ";chunk-signature=";
/// What the signature of the trailers is called.
const TRAILER_MARK: &str = "x-amz-trailer-signature";
/// The length of a signature.
const SIGNATURE: usize = 64;

/// What follows the last piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Nothing.
    Nothing,
    /// Trailers, with a signature of their own.
    Trailers,
}

/// Signs the pieces of a body.
pub(super) struct Pieces {
    key: hmac::Key,
    /// The date and the scope, as they stand in what is signed.
    when: String,
    /// The signature before the next one.
    previous: String,
    tail: Tail,
    state: State,
    waiting: BytesMut,
    /// Trailers as they are signed, and the bytes of them that were read.
    trailers: Vec<(String, String)>,
    read: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The line before a piece comes next.
    Head,
    /// A piece of this length comes next, whose length was written in so many digits.
    Piece { length: usize, digits: usize },
    /// Trailers come next.
    Trailers,
    /// After the signature of the trailers, an empty line comes next.
    Last,
    /// Nothing more comes.
    Done,
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Pieces {
    /// Signs pieces with a signing key; `seed` is the signature of the request.
    pub(super) fn new(key: &hmac::Tag, when: String, seed: String, tail: Tail) -> Self {
        Self {
            key: hmac_key(key.as_ref()),
            when,
            previous: seed,
            tail,
            state: State::Head,
            waiting: BytesMut::new(),
            trailers: Vec::new(),
            read: 0,
        }
    }

    /// The next bytes; what is complete of them comes out, signed anew.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Bytes, &'static str> {
        self.waiting.extend_from_slice(bytes);
        let mut out = BytesMut::new();
        while self.step(&mut out)? {}
        Ok(out.freeze())
    }

    /// There are no more bytes.
    pub(super) fn finish(&self) -> Result<(), &'static str> {
        match self.state {
            State::Done => Ok(()),
            _ => Err("the last piece of its body is missing"),
        }
    }

    /// Takes the next part, if it is there.
    fn step(&mut self, out: &mut BytesMut) -> Result<bool, &'static str> {
        match self.state {
            State::Head => self.head(),
            State::Piece { length, digits } => self.piece(length, digits, out),
            State::Trailers => self.trailer(out),
            State::Last => self.last(out),
            State::Done if self.waiting.is_empty() => Ok(false),
            State::Done => Err("something follows the last piece of its body"),
        }
    }

    /// The line before a piece; it is kept until the piece is there.
    fn head(&mut self) -> Result<bool, &'static str> {
        const NONE: &str = "a piece of its body does not begin like one";
        let looked = self.waiting.get(..MAX_LINE.min(self.waiting.len())).unwrap_or_default();
        let Some(end) = looked.windows(2).position(|pair| pair == b"\r\n") else {
            return if self.waiting.len() < MAX_LINE { Ok(false) } else { Err(NONE) };
        };
        let line = looked.get(..end).and_then(|line| std::str::from_utf8(line).ok()).ok_or(NONE)?;
        let (length, signature) = line.split_once(MARK).ok_or(NONE)?;
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let digits = length.len();
        if !(1..=8).contains(&digits) || !is_hex(length) || !is_signature(signature) {
            return Err(NONE);
        }
        let length = usize::from_str_radix(length, 16).map_err(|_cause| NONE)?;
        if length > MAX_PIECE {
            return Err("a piece of its body is longer than 1 MiB");
        }
        self.state = State::Piece { length, digits };
        Ok(true)
    }

    /// A piece, behind its line.
    fn piece(
        &mut self,
        length: usize,
        digits: usize,
        out: &mut BytesMut,
    ) -> Result<bool, &'static str> {
        let front = digits + MARK.len() + SIGNATURE + 2;
        // Before trailers the last piece has no end of its own.
        let last = length == 0;
        let behind = if last && self.tail == Tail::Trailers { 0 } else { 2 };
        let Some(whole) = self.waiting.get(..front + length + behind) else { return Ok(false) };
        let data = whole.get(front..front + length).unwrap_or_default();
        if whole.get(front + length..) != Some(b"\r\n".get(..behind).unwrap_or_default()) {
            return Err("a piece of its body does not end where it should");
        }
        let empty = hex(digest::digest(&digest::SHA256, b"").as_ref());
        let hash = hex(digest::digest(&digest::SHA256, data).as_ref());
        let signature = self.sign("AWS4-HMAC-SHA256-PAYLOAD", &format!("{empty}\n{hash}"));
        let whole = self.waiting.split_to(front + length + behind);
        out.extend_from_slice(whole.get(..digits + MARK.len()).unwrap_or_default());
        out.extend_from_slice(signature.as_bytes());
        out.extend_from_slice(whole.get(front - 2..).unwrap_or_default());
        self.state = match (last, self.tail) {
            (false, _) => State::Head,
            (true, Tail::Nothing) => State::Done,
            (true, Tail::Trailers) => State::Trailers,
        };
        Ok(true)
    }

    /// A trailer, or the signature of all.
    fn trailer(&mut self, out: &mut BytesMut) -> Result<bool, &'static str> {
        const NONE: &str = "what follows its body are no trailers";
        let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') else {
            let all = self.read + self.waiting.len();
            return if all < MAX_TRAILERS { Ok(false) } else { Err(NONE) };
        };
        let line = self.waiting.split_to(end + 1);
        self.read += line.len();
        if self.read > MAX_TRAILERS {
            return Err(NONE);
        }
        let text = std::str::from_utf8(&line).map_err(|_cause| NONE)?;
        let plain = text.trim_end_matches(['\r', '\n']);
        if plain.is_empty() {
            // Some end each trailer with one more line.
            out.extend_from_slice(&line);
            return Ok(true);
        }
        let (name, value) = plain.split_once(':').ok_or(NONE)?;
        if !name.eq_ignore_ascii_case(TRAILER_MARK) {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            if name.is_empty() || !name.bytes().all(is_name) {
                return Err(NONE);
            }
            self.trailers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            out.extend_from_slice(&line);
            return Ok(true);
        }
        if !is_signature(value.trim()) {
            return Err(NONE);
        }
        self.trailers.sort();
        let each = |(name, value): &(String, String)| format!("{name}:{value}\n");
        let canonical: String = self.trailers.iter().map(each).collect();
        let hash = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
        let signature = self.sign("AWS4-HMAC-SHA256-TRAILER", &hash);
        out.extend_from_slice(text.replace(value.trim(), &signature).as_bytes());
        self.state = State::Last;
        Ok(true)
    }

    /// The empty line at the end.
    fn last(&mut self, out: &mut BytesMut) -> Result<bool, &'static str> {
        if self.waiting.len() < 2 {
            return Ok(false);
        }
        let line = self.waiting.split_to(2);
        out.extend_from_slice(&line);
        self.state = State::Done;
        if line == b"\r\n"[..] { Ok(true) } else { Err("its trailers do not end") }
    }

    /// The next signature.
    fn sign(&mut self, algorithm: &str, what: &str) -> String {
        let text = format!("{algorithm}\n{}\n{}\n{what}", self.when, self.previous);
        let signature = hex(hmac::sign(&self.key, text.as_bytes()).as_ref());
        self.previous.clone_from(&signature);
        signature
    }
}

fn is_signature(text: &str) -> bool {
    text.len() == SIGNATURE && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::sigv4::{Key, Signature, Signed};
    use http::HeaderMap;
    use http::header::{AUTHORIZATION, HeaderName};
    use proptest::prelude::*;

    const KEY: &str = "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    /// The request of the examples that AWS has published, with another signature, and what signs its
    /// pieces.
    fn request(kind: &str, more: &[(&str, &str)]) -> (String, Pieces) {
        let mut headers = HeaderMap::new();
        let mut pairs = vec![
            ("host", "s3.amazonaws.com"),
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ("x-amz-content-sha256", kind),
            ("content-encoding", "aws-chunked"),
            ("x-amz-decoded-content-length", "66560"),
        ];
        pairs.extend(more);
        for (name, value) in &pairs {
            headers.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let mut names: Vec<&str> = pairs.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=PLACEHOLDER/20130524/us-east-1/s3/aws4_request, \
             SignedHeaders={}, Signature=00",
            names.join(";")
        );
        headers.insert(AUTHORIZATION, authorization.parse().unwrap());
        let signed =
            Signed { method: "PUT", path: "/examplebucket/chunkObject.txt", query: "", body: None };
        let signature = Signature::of(&headers).unwrap();
        let pieces = signature.renew(&mut headers, signed, Key::parse(KEY).unwrap()).unwrap();
        let text = headers[AUTHORIZATION].to_str().unwrap();
        (text.rsplit_once('=').unwrap().1.to_owned(), pieces.unwrap())
    }

    fn body(trailers: &str) -> Vec<u8> {
        let none = "0".repeat(64);
        let piece = |length: usize| format!("{length:x}{MARK}{none}\r\n{}\r\n", "a".repeat(length));
        let end = if trailers.is_empty() { "\r\n" } else { trailers };
        format!("{}{}0{MARK}{none}\r\n{end}", piece(65536), piece(1024)).into_bytes()
    }

    fn signatures(out: &[u8]) -> Vec<String> {
        let text = String::from_utf8(out.to_vec()).unwrap();
        let behind = text.split("signature").skip(1);
        behind.map(|rest| rest.chars().skip(1).take(SIGNATURE).collect()).collect()
    }

    fn run(pieces: &mut Pieces, bytes: &[u8], size: usize) -> Result<Vec<u8>, &'static str> {
        let mut out = Vec::new();
        for part in bytes.chunks(size) {
            out.extend_from_slice(&pieces.push(part)?);
        }
        pieces.finish()?;
        Ok(out)
    }

    #[test]
    fn the_published_example() {
        let more = [("content-length", "66824")];
        let (seed, mut pieces) = request("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", &more);
        assert_eq!(seed, "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9");
        let body = body("");
        let out = run(&mut pieces, &body, 1000).unwrap();
        assert_eq!((out.len(), body.len()), (66824, 66824));
        assert_eq!(
            signatures(&out),
            [
                "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
                "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
                "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
            ]
        );
    }

    #[test]
    fn the_published_example_with_a_trailer() {
        let more = [("x-amz-trailer", "x-amz-checksum-crc32c")];
        let kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
        let none = "0".repeat(64);
        for end in ["\r\n", "\n\r\n"] {
            let (seed, mut pieces) = request(kind, &more);
            assert_eq!(seed, "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e");
            let trailer =
                format!("x-amz-checksum-crc32c:sOO8/Q=={end}{TRAILER_MARK}:{none}\r\n\r\n");
            let body = body(&trailer);
            let out = run(&mut pieces, &body, 77).unwrap();
            assert_eq!(out.len(), body.len());
            assert_eq!(
                signatures(&out),
                [
                    "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
                    "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
                    "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
                    "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435",
                ]
            );
        }
    }

    #[test]
    fn what_are_no_pieces_is_refused() {
        let none = "0".repeat(64);
        let large = format!("100001{MARK}{none}\r\n");
        for text in [
            "",
            "no pieces\r\n",
            &format!("3{MARK}{none}\r\nabcd\r\n"),
            &format!("3{MARK}{none}\r\nabc\r\n"),
            &format!("0{MARK}{none}\r\n"),
            &format!("0{MARK}{none}\r\nxx"),
            &format!("0{MARK}{none}\r\n\r\nmore"),
            &format!("0{MARK}{none};more=1\r\n\r\n"),
            &format!("-1{MARK}{none}\r\n\r\n"),
            &format!("0{MARK}{}\r\n\r\n", "0".repeat(SIGNATURE - 1)),
            &format!("fffffffff{MARK}{none}\r\n"),
            &large,
            &"a".repeat(MAX_LINE),
        ] {
            let (_, mut pieces) = request("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", &[]);
            assert!(run(&mut pieces, text.as_bytes(), 7).is_err(), "{text}");
        }
        let (_, mut pieces) = request("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", &[]);
        let endless = format!("0{MARK}{none}\r\nx:{}", "a".repeat(2 * MAX_TRAILERS));
        assert!(run(&mut pieces, endless.as_bytes(), 1000).is_err());
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(size in 1_usize..3000) {
            let (_, mut whole) = request("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", &[]);
            let (_, mut cut) = request("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", &[]);
            let body = body("");
            prop_assert_eq!(run(&mut cut, &body, size), run(&mut whole, &body, usize::MAX));
        }

        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>, front in 0_usize..3) {
            let front = [String::new(), format!("4{MARK}{}\r\n", "0".repeat(64)), format!("0{MARK}{}\r\n", "0".repeat(64))][front].clone();
            for kind in ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"] {
                let (_, mut pieces) = request(kind, &[]);
                drop(run(&mut pieces, &[front.as_bytes(), &bytes].concat(), 5));
            }
        }
    }
}
