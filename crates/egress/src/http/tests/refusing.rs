//! What does not pass says why.

use super::*;
use cowork_api::egress::{Answer, Request as Wish};
use http::Request;
use http_body_util::BodyExt as _;
use std::collections::BTreeSet;

fn only_read(port: u16) -> Rule {
    let http = vec![Wish { methods: vec!["GET".into()], paths: vec!["/open/**".into()] }];
    Rule { http, ..rule(port) }
}

#[tokio::test]
async fn a_request_that_no_rule_allows_is_told_why() {
    let bench = Bench::new(Speaks::One, only_read).await;
    assert!(bench.get("/open/x", "").await.starts_with("HTTP/1.1 200 "));
    let before = bench.server.requests();
    let answer = bench.get("/closed?secret=1", "").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(code(&answer), "request");
    assert!(answer.contains("content-type: application/json\r\n"), "{answer}");
    let body: serde_json::Value =
        serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let error = &body["error"];
    assert_eq!(error["code"], "request");
    assert_eq!(error["host"], "host.cowork.internal");
    assert_eq!(error["port"], bench.server.port);
    assert_eq!(error["method"], "GET");
    assert_eq!(error["path"], "/closed");
    let names: BTreeSet<&str> = error.as_object().unwrap().keys().map(String::as_str).collect();
    for name in ["rule", "sentence", "hint"] {
        assert!(names.contains(name), "{name}");
    }
    assert_eq!(bench.server.requests(), before);
}

#[tokio::test]
async fn a_refusal_does_not_end_the_connection() {
    let bench = Bench::new(Speaks::Two, only_read).await;
    let mut sender = bench.two().await;
    for (path, status) in [("/closed", 403), ("/open/a", 200), ("/closed", 403)] {
        let request = Request::get(bench.url(path)).body(Full::<Bytes>::default()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), status);
        answer.into_body().collect().await.unwrap();
    }
}

#[tokio::test]
async fn another_name_in_tls_is_refused() {
    let bench = Bench::new(Speaks::One, rule).await;
    let error = bench.tls("other.test", &[]).await.unwrap_err();
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    assert_eq!(bench.refused().await, ["sni-mismatch"]);
    // Without a name: clients leave it out where they name an address.
    bench.tls("127.0.0.1", &[]).await.unwrap_err();
    assert_eq!(bench.refused().await, ["sni-mismatch"]);
    // What begins as TLS does, and is none.
    let mut stream = TcpStream::connect(bench.entry).await.unwrap();
    stream.write_all(b"\x16\x03\x01\0\x05hello").await.unwrap();
    drop(stream.read_to_end(&mut Vec::new()).await);
    assert_eq!(bench.refused().await, ["malformed-tls"]);
    assert_eq!(bench.server.connections(), 0);
}

#[tokio::test]
async fn another_host_in_a_request_is_refused() {
    let bench = Bench::new(Speaks::One, rule).await;
    let port = bench.server.port;
    for host in [
        "Host: other.test".to_owned(),
        "Host: host.cowork.internal:1".to_owned(),
        format!("Host: host.cowork.internal:+{port}"),
        format!("Host: host.cowork.internal:0{port}"),
        format!("Host: user@host.cowork.internal:{port}"),
        "Host: host.cowork.internal.other.test".to_owned(),
    ] {
        let request = format!("GET / HTTP/1.1\r\n{host}\r\nConnection: close\r\n\r\n");
        let answer = bench.say(&request).await;
        assert!(answer.starts_with("HTTP/1.1 421 "), "{host}: {answer}");
        assert_eq!(code(&answer), "host-mismatch");
    }
    let twice = "GET / HTTP/1.1\r\nHost: host.cowork.internal\r\nHost: other.test\r\nConnection: close\r\n\r\n";
    assert!(bench.say(twice).await.starts_with("HTTP/1.1 400 "));
    let none = "GET / HTTP/1.1\r\nConnection: close\r\n\r\n";
    assert!(bench.say(none).await.starts_with("HTTP/1.1 400 "));
    let absolute = "GET https://other.test/ HTTP/1.1\r\nHost: host.cowork.internal\r\nConnection: close\r\n\r\n";
    assert!(bench.say(absolute).await.starts_with("HTTP/1.1 421 "));
    assert_eq!(bench.server.requests(), 0);
}

#[tokio::test]
async fn two_cannot_be_used_for_another_host() {
    let bench = Bench::new(Speaks::Two, rule).await;
    let mut sender = bench.two().await;
    let request = Request::get("https://other.test/").body(Full::<Bytes>::default()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()["x-cowork-deny"]),
        (421.try_into().unwrap(), &"host-mismatch".parse().unwrap())
    );
    let request = Request::get(bench.url("/")).header("host", "other.test");
    let answer = sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await;
    assert_eq!(answer.unwrap().status(), 421);
    let request =
        Request::connect("host.cowork.internal:22").body(Full::<Bytes>::default()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 405);
    assert_eq!(bench.server.requests(), 0);
}

#[tokio::test]
async fn targets_with_two_readings_are_refused() {
    let bench = Bench::new(Speaks::One, only_read).await;
    for path in [
        "/open/../closed",
        "/open/%2e%2e/closed",
        "/open/..%2fclosed",
        "/open/.\\closed",
        "/open/%5c",
        "/open/%zz",
        "/open/a%00",
        "/open/%2e",
        "*",
    ] {
        let answer = bench.get(path, "").await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{path}: {answer}");
    }
    for path in ["/open/@scope%2fname", "/open//x", "/open/a;b"] {
        let answer = bench.get(path, "").await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{path}: {answer}");
        assert!(answer.contains("some servers"), "{path}: {answer}");
    }
    for method in ["TRACE", "CONNECT"] {
        let target = if method == "TRACE" { "/" } else { "host.cowork.internal:22" };
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: host.cowork.internal\r\nConnection: close\r\n\r\n"
        );
        let answer = bench.say(&request).await;
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    }
    assert_eq!(bench.server.requests(), 0);
    // Where rules are about no paths it does not matter how a host reads one.
    let bench = Bench::new(Speaks::One, rule).await;
    let answer = bench.get("/@scope%2fname", "").await;
    assert!(answer.contains("GET /@scope%2fname HTTP/1.1\n"), "{answer}");
}

#[tokio::test]
async fn a_request_cannot_hide_another() {
    let bench = Bench::new(Speaks::One, rule).await;
    for headers in [
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: 4, 5\r\n",
        "Content-Length: +4\r\n",
        "Content-Length: -1\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "X: a\rTransfer-Encoding: chunked\r\n",
        " Folded: 1\r\n",
    ] {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: host.cowork.internal\r\n{headers}\r\n0\r\n\r\n\
             GET /hidden HTTP/1.1\r\nHost: host.cowork.internal\r\n\r\n"
        );
        let answer = bench.say(&request).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{headers}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{headers}: {answer}");
    }
    assert_eq!(bench.server.requests(), 0);
    assert_eq!(bench.refused().await, ["malformed-request"; 9]);
}

#[tokio::test]
async fn a_request_with_two_lengths_is_refused_and_nothing_after_it_is_read() {
    let bench = Bench::new(Speaks::One, rule).await;
    let (length, chunked) = ("Content-Length: 30\r\n", "Transfer-Encoding: chunked\r\n");
    let fine = "POST /fine HTTP/1.1\r\nHost: host.cowork.internal\r\nTransfer-Encoding: chunked\r\n\r\n\
                3\r\nabc\r\n0\r\n\r\n";
    for (before, headers) in
        [("", [length, chunked]), ("", [chunked, length]), (fine, [length, chunked])]
    {
        let served = bench.server.requests();
        let request = format!(
            "{before}POST /both HTTP/1.1\r\nHost: host.cowork.internal\r\n{}\r\n0\r\n\r\n\
             GET /next HTTP/1.1\r\nHost: host.cowork.internal\r\n\r\n",
            headers.concat()
        );
        let answer = bench.say(&request).await;
        let answers: Vec<&str> = answer.matches("HTTP/1.1 ").collect();
        let refused = answer.split_once("HTTP/1.1 400 ").expect(&answer).1;
        assert_eq!(code(refused), "ambiguous-length", "{answer}");
        assert!(refused.contains("\"code\":\"ambiguous-length\""), "{answer}");
        let fine = usize::from(!before.is_empty());
        assert_eq!(answers.len(), 1 + fine, "{answer}");
        assert_eq!(bench.server.requests(), served + fine);
    }
    let refused = bench.records().await.into_iter().filter(|what| {
        matches!(what, What::Decided { decision, .. } if decision.code == "ambiguous-length")
    });
    assert_eq!(refused.count(), 3);
}

#[tokio::test]
async fn a_chunk_that_is_none_ends_the_request() {
    let bench = Bench::new(Speaks::One, rule).await;
    for chunks in ["zz\r\n", "-1\r\nx", "3\r\nabcd\r\n", "3;a\nabc\r\n", "fffffffffffffffff\r\n"] {
        let request = format!(
            "POST /chunks HTTP/1.1\r\nHost: host.cowork.internal\r\nTransfer-Encoding: chunked\r\n\r\n\
             {chunks}0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: host.cowork.internal\r\n\r\n"
        );
        let answer = bench.say(&request).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{chunks:?}: {answer}");
        assert_eq!(code(&answer), "malformed", "{chunks:?}: {answer}");
        assert!(!answer.contains("/hidden"), "{chunks:?}: {answer}");
    }
}

#[tokio::test]
async fn a_host_that_proves_nothing_is_not_spoken_to() {
    let server = Server::start(Speaks::Two).await;
    let rules = Rules { generation: 1, rules: vec![rule(server.port)], ..Rules::default() };
    let begin = Begin { session: "test".into(), rules, ..Begin::default() };
    let bench = Bench::with(begin, server).await;
    for _ in 0..2 {
        let answer = bench.get("/", "").await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        assert_eq!(code(&answer), "upstream-certificate");
    }
    assert_eq!(bench.server.requests(), 0);
}

#[tokio::test]
async fn a_host_that_is_not_there_is_told() {
    let bench = Bench::new(Speaks::Plain, rule).await;
    // It speaks no TLS.
    let answer = bench.get("/", "").await;
    assert_eq!(code(&answer), "upstream-tls", "{answer}");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn a_client_that_does_not_trust_is_reported() {
    let bench = Bench::new(Speaks::One, rule).await;
    let stream = TcpStream::connect(bench.entry).await.unwrap();
    let connector = connector(rustls::RootCertStore::empty(), &[]);
    let name = ServerName::try_from("host.cowork.internal").unwrap();
    connector.connect(name, stream).await.unwrap_err();
    assert_eq!(bench.noticed().await, ["untrusted-authority"]);
}

#[tokio::test]
async fn requests_are_counted_for_their_rule() {
    let limited = |port| {
        let limits = Quota { requests: Some((2, 60)), ..Quota::default() };
        Rule { limits, ..rule(port) }
    };
    let bench = Bench::new(Speaks::One, limited).await;
    for _ in 0..2 {
        assert!(bench.get("/", "").await.starts_with("HTTP/1.1 200 "));
    }
    let answer = bench.get("/", "").await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    let wait = answer.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
    assert!((1..=61).contains(&wait.parse::<u64>().unwrap()), "{wait}");
}

#[tokio::test]
async fn bytes_are_counted_for_their_rule() {
    let limited = |port| {
        let limits = Quota { upload: Some((10_000, 60)), ..Quota::default() };
        Rule { limits, ..rule(port) }
    };
    let bench = Bench::new(Speaks::One, limited).await;
    let body = "x".repeat(20_000);
    let request = format!(
        "POST /sink HTTP/1.1\r\nHost: host.cowork.internal\r\nContent-Length: 20000\r\nConnection: close\r\n\r\n{body}"
    );
    let answer = bench.say(&request).await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
}

#[tokio::test]
async fn a_rejected_request_hears_the_reason() {
    let asking = |port| Rule { action: Action::Ask, ..rule(port) };
    let bench = Bench::new(Speaks::Plain, asking).await;
    let house = Arc::clone(&bench.house);
    let port = bench.server.port;
    let deny = tokio::spawn(async move {
        loop {
            if let FromEgress::Ask(ask) = house.office.news().await {
                let reason = "not today".to_owned();
                let answer = Answer::Deny { reason };
                house.office.answer(ask.ask, &answer);
                return ask.target;
            }
        }
    });
    let stream = TcpStream::connect(bench.proxy).await.unwrap();
    let request = format!(
        "PUT http://host.cowork.internal:{port}/x HTTP/1.1\r\nHost: host.cowork.internal:{port}\r\nConnection: close\r\n\r\n"
    );
    let answer = talk(stream, &request).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(code(&answer), "rejected");
    assert!(answer.contains("not today"), "{answer}");
    let target = deny.await.unwrap();
    assert_eq!((target.method.as_deref(), target.path.as_deref()), (Some("PUT"), Some("/x")));
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_question_with_it() {
    let asking = |port| Rule { action: Action::Ask, ..rule(port) };
    let bench = Bench::new(Speaks::Plain, asking).await;
    let port = bench.server.port;
    let mut stream = TcpStream::connect(bench.proxy).await.unwrap();
    let host = format!("host.cowork.internal:{port}");
    let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let news = || tokio::time::timeout(Duration::from_secs(5), bench.house.office.news());
    let FromEgress::Ask(ask) = news().await.unwrap() else { panic!("no question") };
    drop(stream);
    assert_eq!(news().await.unwrap(), FromEgress::Withdraw { ask: ask.ask });
}

#[tokio::test]
async fn the_request_waits_for_the_user_and_not_the_greeting() {
    for speaks in [Speaks::One, Speaks::Two] {
        let bench = Bench::new(speaks, |port| Rule { action: Action::Ask, ..rule(port) }).await;
        for allow in [true, false] {
            let mut sender = bench.two().await;
            let before = bench.server.requests();
            let request = Request::get(bench.url("/held")).body(Full::<Bytes>::default()).unwrap();
            let answer = tokio::spawn(sender.send_request(request));
            let ask = loop {
                let news = bench.house.office.news();
                let news = tokio::time::timeout(Duration::from_secs(5), news).await;
                if let FromEgress::Ask(ask) = news.expect("a question") {
                    break ask;
                }
            };
            assert_eq!(ask.target.path.as_deref(), Some("/held"));
            assert_eq!(bench.server.requests(), before);
            let said = if allow { Answer::Allow } else { Answer::Deny { reason: "no".into() } };
            bench.house.office.answer(ask.ask, &said);
            let answer = answer.await.unwrap().unwrap();
            assert_eq!(answer.status(), if allow { 200 } else { 403 });
            assert_eq!(bench.server.requests(), before + usize::from(allow));
        }
    }
}

#[tokio::test]
async fn a_refused_body_does_not_hide_the_refusal() {
    let bench = Bench::new(Speaks::One, only_read).await;
    for path in ["/closed", "/open/a/../b"] {
        let size = 4 * 1024 * 1024;
        let half = "x".repeat(size / 2);
        let request = format!(
            "PUT {path} HTTP/1.1\r\nHost: host.cowork.internal\r\nContent-Length: {size}\r\n\
             Connection: close\r\n\r\n{half}"
        );
        let mut stream = bench.tls("host.cowork.internal", &[]).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        let answer = talk(stream, &half).await;
        assert!(answer.starts_with("HTTP/1.1 40"), "{path}: {answer}");
    }
    assert_eq!(bench.server.requests(), 0);
}
