//! Secrets reach the hosts of their rules, and nobody else.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cowork_api::egress::{Capture, NotRenewed, Side, Used, Via};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use server::{FRESH, flowing};
use std::collections::BTreeMap;

fn swap(port: u16) -> Rule {
    with_secret(port, CredentialMode::Swap, Carrier::Bearer)
}

fn pin(port: u16) -> Rule {
    with_secret(port, CredentialMode::Pin, Carrier::Header("x-api-key".into()))
}

#[tokio::test]
async fn a_placeholder_is_replaced_wherever_it_is() {
    let bench = Bench::new(Speaks::One, swap).await;
    // What comes back is scrubbed, so the host says whether it got the value.
    for headers in [
        format!("Authorization: Bearer {PLACEHOLDER}\r\n"),
        format!("Authorization: token {PLACEHOLDER}\r\n"),
        format!("X-Api-Key: {PLACEHOLDER}\r\n"),
        format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("me:{PLACEHOLDER}"))),
        format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("a:{PLACEHOLDER}"))),
        format!("Authorization: basic {}\r\n", STANDARD.encode(format!("{PLACEHOLDER}:x"))),
    ] {
        let answer = bench.get("/", &headers).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(!answer.contains(VALUE), "{answer}");
        assert_eq!(bench.noticed().await, ["secret-reflected"], "{answer}");
    }
    let answer = bench.get(&format!("/?a=1&token={PLACEHOLDER}"), "").await;
    assert_eq!(bench.noticed().await, ["secret-reflected"], "{answer}");
    let body = format!("{{\"key\":\"{PLACEHOLDER}\"}}");
    let request = format!(
        "POST / HTTP/1.1\r\nHost: host.cowork.internal\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = bench.say(&request).await;
    assert!(answer.ends_with(&body), "{answer}");
    assert_eq!(bench.noticed().await, ["secret-reflected"], "{answer}");
}

#[tokio::test]
async fn a_secret_comes_back_as_its_placeholder() {
    for speaks in [Speaks::One, Speaks::Two] {
        let bench = Bench::new(speaks, swap).await;
        let header = format!("Authorization: Bearer {PLACEHOLDER}\r\n");
        let answer = bench.get("/pieces", &header).await;
        assert!(!answer.contains(VALUE), "{answer}");
        assert!(answer.contains(&format!("x-said: {PLACEHOLDER}\r\n")), "{answer}");
        assert!(answer.contains(&format!("before {PLACEHOLDER} after")), "{answer}");
        let answer = bench.get("/gzip", &header).await;
        assert!(!answer.contains(VALUE), "{answer}");
        let encoded = STANDARD.encode(PLACEHOLDER);
        assert!(answer.contains(&format!("before {PLACEHOLDER} and {encoded} done")), "{answer}");
        assert_eq!(bench.noticed().await, ["secret-reflected", "secret-reflected"]);
        for coding in ["br", "zstd"] {
            let answer = bench.get(&format!("/gzip?{coding}"), &header).await;
            assert_eq!(code(&answer), "opaque-answer", "{answer}");
        }
    }
}

/// What is kept is what the session sent and got, however the host sees it and sends it.
#[tokio::test]
async fn a_body_that_is_kept_has_the_placeholder_in_it() {
    let bench = Bench::new(Speaks::One, swap).await;
    let rule = "allow host.cowork.internal".to_owned();
    bench.house.office.captures.set(vec![Capture { rule, bytes: 1000 }]);
    let sent = format!("{{\"key\":\"{PLACEHOLDER}\"}}");
    let request = format!(
        "POST / HTTP/1.1\r\nHost: host.cowork.internal\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{sent}",
        sent.len()
    );
    let answer = bench.say(&request).await;
    let (_, received) = answer.split_once("\r\n\r\n").unwrap();
    let header = format!("Authorization: Bearer {PLACEHOLDER}\r\n");
    let compressed = bench.get("/gzip", &header).await;
    let mut kept: BTreeMap<(u64, bool), Vec<u8>> = BTreeMap::new();
    let mut records = Vec::new();
    while let Ok(news) =
        tokio::time::timeout(Duration::from_millis(200), bench.house.office.news()).await
    {
        match news {
            FromEgress::Body(piece) => {
                let body = kept.entry((piece.flow, piece.side == Side::Session)).or_default();
                body.extend(piece.bytes.0);
            }
            FromEgress::Record(record) => records.push(record.what),
            _ => {}
        }
    }
    let all = kept.values().flatten().copied().collect::<Vec<_>>();
    assert!(!String::from_utf8_lossy(&all).contains(VALUE), "{kept:?}");
    let (first, second) = (kept.keys().next().unwrap().0, kept.keys().last().unwrap().0);
    assert_eq!(kept[&(first, true)], sent.as_bytes());
    assert_eq!(kept[&(first, false)], received.as_bytes());
    assert!(received.contains(PLACEHOLDER), "the host sends it back: {received}");
    let plain = String::from_utf8(kept[&(second, false)].clone()).unwrap();
    assert!(
        plain.contains(PLACEHOLDER) && compressed.contains(plain.get(..20).unwrap()),
        "{plain}"
    );
    let told = records.iter().filter_map(|what| match what {
        What::Captured { sent, received, .. } => Some((sent.size, received.size)),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>()[0], (sent.len() as u64, received.len() as u64));
}

#[tokio::test]
async fn lengths_may_differ() {
    let server = Server::start(Speaks::One).await;
    let rules = Rules { generation: 1, rules: vec![swap(server.port)], ..Rules::default() };
    let short = Secret { placeholder: "PLACEHOLDER".into(), ..secret() };
    let roots = vec![server.root.clone()];
    let begin = Begin { session: "test".into(), rules, secrets: vec![short], roots, parent: None };
    let bench = Bench::with(begin, server).await;
    let answer = bench.get("/pieces", "Authorization: Bearer PLACEHOLDER\r\n").await;
    assert!(answer.to_ascii_lowercase().contains("transfer-encoding: chunked\r\n"), "{answer}");
    assert!(answer.contains("x-said: PLACEHOLDER\r\n"), "{answer}");
    assert!(!answer.contains(VALUE) && !answer.contains("content-length"), "{answer}");
    let request = "POST / HTTP/1.1\r\nHost: host.cowork.internal\r\nContent-Length: 13\r\n\
                   Connection: close\r\n\r\n<PLACEHOLDER>";
    let answer = bench.say(request).await;
    assert!(answer.contains(&format!("content-length: {}\n", VALUE.len() + 2)), "{answer}");
}

#[tokio::test]
async fn every_request_gets_what_is_injected() {
    let carriers = [
        (Carrier::Bearer, format!("Bearer {VALUE}")),
        (Carrier::Basic { user: "me".into() }, STANDARD.encode(format!("me:{VALUE}"))),
        (Carrier::Header("X-Key".into()), VALUE.to_owned()),
        (Carrier::Query("k".into()), format!("/?a=1&k={VALUE}")),
    ];
    for (carrier, _) in carriers {
        let inject = |port| with_secret(port, CredentialMode::Inject, carrier.clone());
        let bench = Bench::new(Speaks::Two, inject).await;
        let answer =
            bench.get("/?a=1&k=mine", "Authorization: Bearer mine\r\nX-Key: mine\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let said = match &carrier {
            Carrier::Bearer => format!("authorization: Bearer {PLACEHOLDER}\n"),
            Carrier::Basic { .. } => {
                format!("authorization: Basic {}\n", STANDARD.encode(format!("me:{PLACEHOLDER}")))
            }
            Carrier::Header(_) => format!("x-key: {PLACEHOLDER}\n"),
            _ => format!("GET /?a=1&k={PLACEHOLDER} "),
        };
        assert!(answer.contains(&said), "{carrier:?}: {answer}");
        assert!(!answer.contains(VALUE));
        assert_eq!(bench.noticed().await, ["secret-reflected"]);
    }
}

#[tokio::test]
async fn a_pinned_host_takes_no_other_credential() {
    let bench = Bench::new(Speaks::One, pin).await;
    for headers in [
        String::new(),
        format!("X-Api-Key: {PLACEHOLDER}\r\n"),
        format!("Authorization: Bearer {PLACEHOLDER}\r\n"),
    ] {
        let answer = bench.get("/", &headers).await;
        assert!(answer.contains(&format!("x-api-key: {PLACEHOLDER}\n")), "{answer}");
        assert!(!answer.contains("authorization"), "{answer}");
    }
    let before = bench.server.requests();
    for headers in [
        "X-Api-Key: mine\r\n".to_owned(),
        "Authorization: Bearer mine\r\n".to_owned(),
        format!("Authorization: Bearer mine {PLACEHOLDER}\r\n"),
        format!("X-Api-Key: {PLACEHOLDER}\r\nX-Api-Key: mine\r\n"),
        "Cookie: session=mine\r\n".to_owned(),
        "X-Goog-Api-Key: mine\r\n".to_owned(),
        "Private-Token: mine\r\n".to_owned(),
        "DD-API-KEY: mine\r\n".to_owned(),
        "X_Api_Key: mine\r\n".to_owned(),
        "X_Goog_Api_Key: mine\r\n".to_owned(),
        "X-Shopify-Access-Token: mine\r\n".to_owned(),
        "X-Client-Secret: mine\r\n".to_owned(),
        "X-Auth: mine\r\n".to_owned(),
        "X-Hub-Signature: mine\r\n".to_owned(),
        "X-Password: mine\r\n".to_owned(),
        "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.mine\r\n".to_owned(),
        format!("Authorization: Basic {}\r\n", STANDARD.encode("me:mine")),
    ] {
        let answer = bench.get("/", &headers).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{headers}: {answer}");
        assert_eq!(code(&answer), "foreign-credential", "{headers}");
    }
    for path in [
        "/?access_token=mine",
        "/?a&%6bey=mine",
        "/?API_KEY=mine",
        "/?api-key=mine",
        "/?a=1;key=mine",
        "/?sig=mine",
        "/?X-Goog-Signature=mine",
        "/?AWSAccessKeyId=mine",
        "/?client_secret=mine",
    ] {
        assert_eq!(code(&bench.get(path, "").await), "foreign-credential", "{path}");
    }
    assert_eq!(bench.server.requests(), before);
    let harmless = "Idempotency-Key: 1\r\nX-CSRF-Token: 2\r\n";
    let answer = bench.get(&format!("/?a=1;b=2&key={PLACEHOLDER};c"), harmless).await;
    assert!(answer.contains("GET /?a=1;b=2&c HTTP/1.1\n"), "{answer}");
    assert!(answer.contains("idempotency-key: 1\n"), "{answer}");
    assert!(answer.contains("x-csrf-token: 2\n"), "{answer}");
}

#[tokio::test]
async fn a_pinned_host_gets_no_trailers() {
    for (rule, carried) in [(swap as fn(u16) -> Rule, true), (pin, false)] {
        let bench = Bench::new(Speaks::Two, rule).await;
        let stream = bench.tls("host.cowork.internal", &[b"h2"]).await.unwrap();
        let io = TokioIo::new(stream);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let (pieces, body) = flowing(None);
        let request = Request::post(bench.url("/")).body(body).unwrap();
        let answer = sender.send_request(request);
        pieces.send(Frame::data(Bytes::from_static(b"message"))).await.unwrap();
        let trailers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("mine"))]);
        pieces.send(Frame::trailers(trailers)).await.unwrap();
        drop(pieces);
        let body = answer.await.unwrap().into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body);
        assert!(body.contains("message"), "{body}");
        assert_eq!(body.contains("authorization: mine"), carried, "{body}");
    }
}

#[tokio::test]
async fn a_placeholder_does_not_go_elsewhere() {
    let bench = Bench::new(Speaks::One, rule).await;
    for headers in [
        format!("Authorization: Bearer {PLACEHOLDER}\r\n"),
        format!("X-Anything: {PLACEHOLDER}\r\n"),
        format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{PLACEHOLDER}:"))),
    ] {
        let answer = bench.get("/", &headers).await;
        assert_eq!(code(&answer), "placeholder-misdirected", "{answer}");
    }
    let answer = bench.get(&format!("/?q={PLACEHOLDER}"), "").await;
    assert_eq!(code(&answer), "placeholder-misdirected", "{answer}");
    assert_eq!(bench.noticed().await, ["placeholder-misdirected"; 4]);
    assert_eq!(bench.server.requests(), 0);
}

#[tokio::test]
async fn a_secret_is_not_sent_in_the_open() {
    for mode in [CredentialMode::Swap, CredentialMode::Inject, CredentialMode::Pin] {
        let bench =
            Bench::new(Speaks::Plain, |port| with_secret(port, mode, Carrier::Bearer)).await;
        let request = format!(
            "GET / HTTP/1.1\r\nHost: host.cowork.internal\r\nAuthorization: Bearer {PLACEHOLDER}\r\n\
             Connection: close\r\n\r\n"
        );
        let stream = TcpStream::connect(bench.entry).await.unwrap();
        let answer = talk(stream, &request).await;
        assert_eq!(code(&answer), "plaintext-credential", "{answer}");
        assert_eq!(bench.server.requests(), 0);
    }
}

#[tokio::test]
async fn nothing_is_signed_in_the_open() {
    let server = Server::start(Speaks::Plain).await;
    let rule = with_secret(server.port, CredentialMode::Swap, Carrier::AwsSignature);
    let rules = Rules { generation: 1, rules: vec![rule], ..Rules::default() };
    let key = Secret { placeholder: "AKIAPLACE:placeholder".into(), ..secret() };
    let begin = Begin { session: "test".into(), rules, secrets: vec![key], ..Begin::default() };
    let bench = Bench::with(begin, server).await;
    let request = "GET / HTTP/1.1\r\nHost: host.cowork.internal\r\nConnection: close\r\n\
                   X-Amz-Date: 20150830T123600Z\r\nAuthorization: AWS4-HMAC-SHA256 \
                   Credential=AKIAPLACE/20150830/us-east-1/service/aws4_request, \
                   SignedHeaders=x-amz-date, Signature=00\r\n\r\n";
    let answer = talk(TcpStream::connect(bench.entry).await.unwrap(), request).await;
    assert_eq!(code(&answer), "plaintext-credential", "{answer}");
    assert_eq!(bench.server.requests(), 0);
}

#[tokio::test]
async fn a_body_in_the_open_keeps_its_placeholder() {
    let bench = Bench::new(Speaks::Plain, swap).await;
    let request = format!(
        "POST / HTTP/1.1\r\nHost: host.cowork.internal\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{PLACEHOLDER}",
        PLACEHOLDER.len()
    );
    let stream = TcpStream::connect(bench.entry).await.unwrap();
    let answer = talk(stream, &request).await;
    assert!(answer.ends_with(PLACEHOLDER), "{answer}");
    // Had the host got the value, it would have come back.
    assert_eq!(bench.noticed().await, [""; 0]);
}

#[tokio::test]
async fn secrets_are_taken_out_of_the_answers_of_every_host() {
    for speaks in [Speaks::One, Speaks::Two] {
        let bench = Bench::new(speaks, rule).await;
        let answer = bench.get("/pieces", &format!("Authorization: Bearer {VALUE}\r\n")).await;
        assert!(!answer.contains(VALUE), "{answer}");
        assert!(answer.contains(&format!("before {PLACEHOLDER} after")), "{answer}");
        assert_eq!(bench.noticed().await, ["secret-reflected"]);
    }
}

#[tokio::test]
async fn what_a_host_compresses_that_got_no_secret_is_searched_and_left_as_it_is() {
    for speaks in [Speaks::One, Speaks::Two] {
        let bench = Bench::new(speaks, rule).await;
        let asked = bench.get("/", "Accept-Encoding: br, gzip;q=0.5, zstd\r\n").await;
        assert!(asked.contains("accept-encoding: gzip;q=0.5\n"), "{asked}");
        let answer = bench.get("/gzip", "").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.contains("content-encoding: gzip\r\n"), "{answer}");
        assert!(answer.contains("content-length: "), "{answer}");
        assert_eq!(bench.noticed().await, [""; 0]);
        // What cannot be read does not pass, and says why; nor does a secret.
        for coding in ["br", "zstd", "compress", "gzip,%20br"] {
            let answer = bench.get(&format!("/gzip?{coding}"), "").await;
            assert_eq!(code(&answer), "opaque-answer", "{coding}: {answer}");
            assert!(answer.contains("--tls tunnel"), "{answer}");
        }
        let answer = bench.get("/gzip", &format!("Authorization: Bearer {VALUE}\r\n")).await;
        assert!(answer.len() < 300, "it was cut: {answer}");
        assert_eq!(bench.noticed().await, ["secret-reflected"]);
        // Where there are no secrets there is nothing to look for.
        bench.house.office.set_secrets(Vec::new());
        let answer = bench.get("/gzip?br", "Accept-Encoding: br\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.contains("content-encoding: br\r\n"), "{answer}");
        let asked = bench.get("/", "Accept-Encoding: br\r\n").await;
        assert!(asked.contains("accept-encoding: br\n"), "{asked}");
    }
}

#[tokio::test]
async fn a_part_of_what_is_compressed_does_not_pass() {
    for rule in [rule as fn(u16) -> Rule, swap] {
        let bench = Bench::new(Speaks::One, rule).await;
        let answer = bench.get("/gzip?part", "").await;
        assert_eq!(code(&answer), "opaque-answer", "{answer}");
    }
}

#[tokio::test]
async fn a_socket_gives_no_secret_back() {
    let server = Server::start(Speaks::One).await;
    let rules = Rules { generation: 1, rules: vec![swap(server.port)], ..Rules::default() };
    let short = Secret { placeholder: "PLACEHOLDER".into(), ..secret() };
    let roots = vec![server.root.clone()];
    let begin = Begin { session: "test".into(), rules, secrets: vec![short], roots, parent: None };
    let bench = Bench::with(begin, server).await;
    let mut stream = bench.tls("host.cowork.internal", &[]).await.unwrap();
    let request = "GET /socket HTTP/1.1\r\nHost: host.cowork.internal\r\nConnection: Upgrade\r\n\
                   Upgrade: websocket\r\nAuthorization: Bearer PLACEHOLDER\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    stream.write_all(format!("<{VALUE}>").as_bytes()).await.unwrap();
    let mut back = vec![0; VALUE.len() + 2];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(String::from_utf8(back).unwrap(), "<PLACEHOLDER**********>");
}

#[tokio::test]
async fn messages_that_could_not_be_searched_are_not_agreed_on() {
    let offered = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    let bench = Bench::new(Speaks::One, swap).await;
    let answer = bench.get("/", offered).await;
    assert!(!answer.contains("permessage-deflate"), "{answer}");
    let bench = Bench::new(Speaks::One, rule).await;
    let answer = bench.get("/", offered).await;
    assert!(answer.contains("permessage-deflate"), "{answer}");
}

fn used(mode: CredentialMode, place: &str) -> Used {
    Used { secret: "key".into(), mode, place: place.into(), foreign_removed: false }
}

#[tokio::test]
async fn the_record_tells_whether_another_credential_was_replaced() {
    let query = "query k";
    for (carrier, place) in
        [(Carrier::Bearer, "header authorization"), (Carrier::Query("k".into()), query)]
    {
        for (mode, given, foreign_removed) in [
            (CredentialMode::Inject, "mine", true),
            (CredentialMode::Inject, PLACEHOLDER, false),
            (CredentialMode::Pin, PLACEHOLDER, false),
        ] {
            let rule = |port| with_secret(port, mode, carrier.clone());
            let bench = Bench::new(Speaks::One, rule).await;
            let (path, headers) = if place == query {
                (format!("/?a=1&k={given}"), String::new())
            } else {
                ("/".to_owned(), format!("Authorization: Bearer {given}\r\n"))
            };
            bench.get(&path, &headers).await;
            let records = bench.records().await;
            let expected = [Used { foreign_removed, ..used(mode, place) }];
            let told = records.iter().any(
                |what| matches!(what, What::Decided { credentials, .. } if *credentials == expected),
            );
            assert!(told, "{mode:?} {given}: {records:?}");
        }
    }
}

#[tokio::test]
async fn the_record_names_a_secret_in_a_body() {
    let bench = Bench::new(Speaks::One, swap).await;
    for (body, expected) in [(PLACEHOLDER, vec![used(CredentialMode::Swap, "body")]), ("x", vec![])]
    {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: host.cowork.internal\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        bench.say(&request).await;
        let records = bench.records().await;
        let named = records.iter().find_map(|what| match what {
            What::Decided { credentials, target, .. } if target.method.is_some() => {
                Some(credentials.clone())
            }
            _ => None,
        });
        assert_eq!(named, Some(expected), "{records:?}");
    }
}

#[tokio::test]
async fn the_record_names_the_secret_the_secret_and_not_its_value() {
    let bench = Bench::new(Speaks::One, swap).await;
    bench.get("/", &format!("Authorization: Bearer {PLACEHOLDER}\r\n")).await;
    let records = bench.records().await;
    let named = records.iter().any(|what| match what {
        What::Decided { credentials, target, .. } => {
            assert_eq!(target.via, Via::Capture);
            *credentials == [used(CredentialMode::Swap, "header authorization")]
        }
        _ => false,
    });
    assert!(named, "{records:?}");
    assert!(!format!("{records:?}").contains(VALUE));
}

/// A host that requests are signed anew for.
async fn aws(mode: CredentialMode) -> Bench {
    let server = Server::start(Speaks::Two).await;
    let rule = with_secret(server.port, mode, Carrier::AwsSignature);
    let rules = Rules { generation: 1, rules: vec![rule], ..Rules::default() };
    let key = Secret {
        name: "key".into(),
        placeholder: "AKIAPLACEHOLDER:placeholderplaceholder".into(),
        value: Hidden(b"AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_vec()),
        renewal: Renewal::Never,
    };
    let roots = vec![server.root.clone()];
    let begin = Begin { session: "test".into(), rules, secrets: vec![key], roots, parent: None };
    Bench::with(begin, server).await
}

fn signed(id: &str) -> String {
    format!(
        "X-Amz-Date: 20150830T123600Z\r\nAuthorization: AWS4-HMAC-SHA256 \
         Credential={id}/20150830/us-east-1/service/aws4_request, \
         SignedHeaders=x-amz-date, Signature=00\r\n"
    )
}

#[tokio::test]
async fn requests_to_aws_are_signed_anew() {
    let bench = aws(CredentialMode::Pin).await;
    let answer = bench.get("/", &signed("AKIAPLACEHOLDER")).await;
    assert!(answer.contains("Credential=AKIDEXAMPLE/20150830/us-east-1/service/"), "{answer}");
    assert!(!answer.contains("Signature=00\n"), "{answer}");
    assert_eq!(code(&bench.get("/", &signed("AKIAOTHER")).await), "foreign-credential");
    assert_eq!(code(&bench.get("/", "").await), "unsigned-request");
}

#[tokio::test]
async fn bodies_in_pieces_are_signed_anew_with_their_pieces() {
    let bench = aws(CredentialMode::Swap).await;
    let none = "0".repeat(64);
    let send = async |kind: &str, body: &str| {
        let head = format!(
            "PUT / HTTP/1.1\r\nHost: host.cowork.internal\r\nConnection: close\r\n{}\
             X-Amz-Content-Sha256: {kind}\r\nContent-Length: {}\r\n\r\n",
            signed("AKIAPLACEHOLDER"),
            body.len()
        );
        bench.say(&(head + body)).await
    };
    let body = format!("5;chunk-signature={none}\r\nhello\r\n0;chunk-signature={none}\r\n\r\n");
    let answer = send("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", &body).await;
    assert!(answer.contains("Credential=AKIDEXAMPLE/"), "{answer}");
    assert!(answer.contains("\r\nhello\r\n0;chunk-signature="), "{answer}");
    assert!(answer.contains(&format!("content-length: {}\n", body.len())), "{answer}");
    assert!(!answer.contains(&none), "{answer}");
    // Pieces that nobody signed are nobody's to sign.
    let answer = send("STREAMING-UNSIGNED-PAYLOAD-TRAILER", &body).await;
    assert!(answer.contains("Credential=AKIDEXAMPLE/") && answer.contains(&none), "{answer}");
    let before = bench.server.requests();
    for (kind, body) in [
        ("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", body.as_str()),
        ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "no pieces at all\r\n"),
    ] {
        let answer = send(kind, body).await;
        assert_eq!(code(&answer), "unsigned-request", "{kind}: {answer}");
    }
    assert!(bench.server.requests() <= before + 1, "one broke off");
}

#[tokio::test]
async fn a_signature_in_the_query_is_refused() {
    let query = |id: &str| {
        format!(
            "/?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={id}%2F20150830%2Fus-east-1%2Fs3\
             %2Faws4_request&X-Amz-Date=20150830T123600Z&X-Amz-Signature=00"
        )
    };
    for mode in [CredentialMode::Swap, CredentialMode::Inject] {
        let bench = aws(mode).await;
        let answer = bench.get(&query("AKIAPLACEHOLDER"), "").await;
        assert_eq!(code(&answer), "unsigned-request", "{answer}");
        assert!(answer.contains("in the query"), "{answer}");
    }
    // One that somebody else made is theirs, unless no other credential may pass.
    let bench = aws(CredentialMode::Swap).await;
    assert!(bench.get(&query("AKIAOTHER"), "").await.starts_with("HTTP/1.1 200"));
    let bench = aws(CredentialMode::Pin).await;
    assert_eq!(code(&bench.get(&query("AKIAOTHER"), "").await), "foreign-credential");
}

/// A token that is renewed, in its first version.
fn token(version: u64, value: &str, expires: Option<u64>) -> Secret {
    let renewal = Renewal::OnDemand { version, expires };
    Secret { value: Hidden(value.into()), renewal, ..secret() }
}

/// Answers the next wish for another value like the daemon does.
fn renewing(
    bench: &Bench,
    answer: Result<&'static str, NotRenewed>,
) -> tokio::task::JoinHandle<u32> {
    let house = Arc::clone(&bench.house);
    tokio::spawn(async move {
        let mut wishes = 0;
        loop {
            let news = tokio::time::timeout(Duration::from_secs(2), house.office.news());
            let Ok(news) = news.await else { return wishes };
            let FromEgress::Renew { secret, version } = news else { continue };
            wishes += 1;
            match &answer {
                Ok(value) => house.office.set_secrets(vec![token(version + 1, value, None)]),
                Err(why) => house.office.not_renewed(&secret, version, why),
            }
        }
    })
}

#[tokio::test]
async fn a_token_that_has_expired_is_renewed_before_it_is_sent() {
    let bench = Bench::new(Speaks::Two, swap).await;
    bench.house.office.set_secrets(vec![token(1, "old-token-0123456789", Some(1))]);
    let renewing = renewing(&bench, Ok(FRESH));
    let bearer = format!("Authorization: Bearer {PLACEHOLDER}\r\n");
    let (one, two) = tokio::join!(bench.get("/fresh", &bearer), bench.get("/fresh", &bearer));
    for answer in [one, two] {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(!answer.contains("token-0123456789"), "{answer}");
    }
    // Whoever brings no credential waits for none.
    assert!(bench.get("/", "").await.starts_with("HTTP/1.1 200"));
    assert_eq!(renewing.await.unwrap(), 1, "asked for once");
}

#[tokio::test]
async fn a_token_that_cannot_be_renewed_is_told() {
    let bench = Bench::new(Speaks::Two, swap).await;
    bench.house.office.set_secrets(vec![token(1, "old-token-0123456789", Some(1))]);
    let why = NotRenewed::Failed { sentence: "its issuer refuses".into() };
    let renewing = renewing(&bench, Err(why));
    let bearer = format!("Authorization: Bearer {PLACEHOLDER}\r\n");
    let answer = bench.get("/", &bearer).await;
    assert_eq!(code(&answer), "credential-expired", "{answer}");
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("its issuer refuses"),
        "{answer}"
    );
    assert_eq!(renewing.await.unwrap(), 1);
}

/// A request with a body to the host that takes only the fresh token.
async fn post(bench: &Bench, body: &str) -> String {
    let port = bench.server.port;
    let head = format!(
        "POST /fresh HTTP/1.1\r\nHost: host.cowork.internal:{port}\r\nConnection: close\r\n\
         Authorization: Bearer {PLACEHOLDER}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    bench.say(&format!("{head}{body}")).await
}

#[tokio::test]
async fn a_token_that_is_refused_is_renewed_and_the_request_sent_again() {
    let bench = Bench::new(Speaks::One, swap).await;
    bench.house.office.set_secrets(vec![token(1, "old-token-0123456789", None)]);
    let renewing = renewing(&bench, Ok(FRESH));
    let answer = post(&bench, "the body").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("the body") && !answer.contains(FRESH), "{answer}");
    assert_eq!(bench.server.requests(), 2);
    assert_eq!(renewing.await.unwrap(), 1);
    // From then on it is sent at once.
    assert!(post(&bench, "more").await.starts_with("HTTP/1.1 200"));
    assert_eq!(bench.server.requests(), 3);
}

#[tokio::test]
async fn a_new_token_that_is_refused_is_the_host_s_answer() {
    let bench = Bench::new(Speaks::One, swap).await;
    bench.house.office.set_secrets(vec![token(1, "old-token-0123456789", None)]);
    let renewing = renewing(&bench, Err(NotRenewed::IsNew));
    let answer = post(&bench, "the body").await;
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("expired"), "{answer}");
    assert_eq!(renewing.await.unwrap(), 1);
}

#[tokio::test]
async fn a_body_that_is_too_long_is_not_kept() {
    let bench = Bench::new(Speaks::One, swap).await;
    bench.house.office.set_secrets(vec![token(1, "old-token-0123456789", None)]);
    let renewing = renewing(&bench, Ok(FRESH));
    let answer = post(&bench, &"x".repeat(5 * 1024 * 1024)).await;
    assert!(answer.starts_with("HTTP/1.1 401"), "{}", answer.chars().take(200).collect::<String>());
    assert_eq!(renewing.await.unwrap(), 1, "the next one finds another value");
    assert!(post(&bench, "again").await.starts_with("HTTP/1.1 200"));
}
