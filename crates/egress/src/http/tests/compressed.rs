//! Secrets in bodies of requests that clients compress.

use super::*;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::Request;
use http::header::CONTENT_ENCODING;
use http_body_util::BodyExt as _;
use std::io::Write as _;

fn swap(port: u16) -> Rule {
    with_secret(port, CredentialMode::Swap, Carrier::Bearer)
}

fn zipped(text: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text).unwrap();
    gzip.finish().unwrap()
}

/// What the host says that it got.
async fn sent(bench: &Bench, coding: &str, body: Vec<u8>) -> String {
    let request = Request::post(bench.url("/"))
        .header(CONTENT_ENCODING, coding)
        .body(Full::<Bytes>::from(body))
        .unwrap();
    let answer = bench.two().await.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    String::from_utf8_lossy(&answer.collect().await.unwrap().to_bytes()).into_owned()
}

/// Whether a secret was put into a body since the last time, by the record, and whether its value came
/// back: then the host had it.
async fn arrived(bench: &Bench) -> (bool, bool) {
    let records = bench.records().await;
    let put = |what: &What| match what {
        What::Decided { credentials, .. } => credentials.iter().any(|used| used.place == "body"),
        _ => false,
    };
    let back =
        |what: &What| matches!(what, What::Noticed { code, .. } if code == "secret-reflected");
    (records.iter().any(put), records.iter().any(back))
}

#[tokio::test]
async fn a_placeholder_in_a_compressed_body_is_replaced() {
    let bench = Bench::new(Speaks::Two, swap).await;
    let text = format!("{{\"key\":\"{PLACEHOLDER}\"}}");
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
    zlib.write_all(text.as_bytes()).unwrap();
    let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
    raw.write_all(text.as_bytes()).unwrap();
    for (coding, body) in [
        ("gzip", zipped(text.as_bytes())),
        ("deflate", zlib.finish().unwrap()),
        ("deflate", raw.finish().unwrap()),
    ] {
        let said = sent(&bench, coding, body).await;
        // As it was written, and not compressed; what comes back is scrubbed.
        assert!(said.ends_with(&text), "{coding}: {said}");
        assert!(!said.contains("content-encoding"), "{coding}: {said}");
        assert!(said.contains(&format!("content-length: {}", text.len())), "{coding}: {said}");
        assert_eq!(arrived(&bench).await, (true, true), "{coding}");
    }
}

#[tokio::test]
async fn a_compressed_body_without_a_placeholder_is_left_as_it_is() {
    let bench = Bench::new(Speaks::Two, swap).await;
    let bomb = [PLACEHOLDER.as_bytes(), &vec![b' '; 2 << 20]].concat();
    let half = zipped(PLACEHOLDER.as_bytes())[..20].to_vec();
    for (coding, body) in [
        ("gzip", zipped(b"nothing of the kind")),
        // Too long once it is decoded, broken off, and none that is known: the placeholder stays.
        ("gzip", zipped(&bomb)),
        ("gzip", half),
        ("br", PLACEHOLDER.into()),
        ("gzip, br", zipped(PLACEHOLDER.as_bytes())),
    ] {
        let length = body.len();
        let said = sent(&bench, coding, body).await;
        assert!(said.contains(&format!("content-encoding: {coding}")), "{coding}: {said}");
        assert!(said.contains(&format!("content-length: {length}")), "{coding}: {said}");
        assert_eq!(arrived(&bench).await, (false, false), "{coding}");
    }
}

#[tokio::test]
async fn a_placeholder_in_a_compressed_body_is_worth_nothing_elsewhere() {
    let bench = Bench::new(Speaks::Two, rule).await;
    let said = sent(&bench, "gzip", zipped(PLACEHOLDER.as_bytes())).await;
    assert!(said.contains("content-encoding: gzip"), "{said}");
    assert_eq!(arrived(&bench).await, (false, false));
}
