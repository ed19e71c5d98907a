//! Secrets reach the hosts of their rules, and nobody else.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cowork_api::egress::Via;

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
        format!("Authorization: basic {}\r\n", STANDARD.encode(format!("{PLACEHOLDER}:x"))),
    ] {
        let answer = bench.get("/", &headers).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(!answer.contains(VALUE), "{answer}");
        let basic = STANDARD.encode(format!("me:{VALUE}"));
        let other = STANDARD.encode(format!("{VALUE}:x"));
        let noticed = bench.noticed().await;
        let came_back = noticed == ["secret-reflected"];
        assert!(came_back || answer.contains(&basic) || answer.contains(&other), "{answer}");
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
        let answer = bench.get("/gzip?br", &header).await;
        assert_eq!(code(&answer), "opaque-answer", "{answer}");
    }
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
        "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.mine\r\n".to_owned(),
        format!("Authorization: Basic {}\r\n", STANDARD.encode("me:mine")),
    ] {
        let answer = bench.get("/", &headers).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{headers}: {answer}");
        assert_eq!(code(&answer), "foreign-credential", "{headers}");
    }
    for path in ["/?access_token=mine", "/?a&%6bey=mine", "/?API_KEY=mine"] {
        assert_eq!(code(&bench.get(path, "").await), "foreign-credential", "{path}");
    }
    assert_eq!(bench.server.requests(), before);
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
async fn the_record_names_the_secret_and_not_its_value() {
    let bench = Bench::new(Speaks::One, swap).await;
    bench.get("/", &format!("Authorization: Bearer {PLACEHOLDER}\r\n")).await;
    let records = bench.records().await;
    let named = records.iter().any(|what| match what {
        What::Decided { credentials, target, .. } => {
            assert_eq!(target.via, Via::Capture);
            *credentials == [("key".to_owned(), "header authorization".to_owned())]
        }
        _ => false,
    });
    assert!(named, "{records:?}");
    assert!(!format!("{records:?}").contains(VALUE));
}

#[tokio::test]
async fn requests_to_aws_are_signed_anew() {
    let server = Server::start(Speaks::Two).await;
    let rule = with_secret(server.port, CredentialMode::Pin, Carrier::AwsSignature);
    let rules = Rules { generation: 1, rules: vec![rule], ..Rules::default() };
    let key = Secret {
        name: "key".into(),
        placeholder: "AKIAPLACEHOLDER:placeholderplaceholder".into(),
        value: Hidden(b"AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_vec()),
    };
    let roots = vec![server.root.clone()];
    let begin = Begin { session: "test".into(), rules, secrets: vec![key], roots, parent: None };
    let bench = Bench::with(begin, server).await;
    let signed = |id: &str| {
        format!(
            "X-Amz-Date: 20150830T123600Z\r\nAuthorization: AWS4-HMAC-SHA256 \
             Credential={id}/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=x-amz-date, Signature=00\r\n"
        )
    };
    let answer = bench.get("/", &signed("AKIAPLACEHOLDER")).await;
    assert!(answer.contains("Credential=AKIDEXAMPLE/20150830/us-east-1/service/"), "{answer}");
    assert!(!answer.contains("Signature=00\n"), "{answer}");
    assert_eq!(code(&bench.get("/", &signed("AKIAOTHER")).await), "foreign-credential");
    assert_eq!(code(&bench.get("/", "").await), "unsigned-request");
}
