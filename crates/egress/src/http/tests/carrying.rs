//! What passes, passes as it was sent.

use super::*;
use base64::Engine as _;
use cowork_api::egress::Network;
use http::{Method, Request, Version};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use server::flowing;

#[tokio::test]
async fn a_request_passes_over_tls() {
    let bench = Bench::new(Speaks::One, rule).await;
    let answer = bench.get("/path?query=1", "X-Mine: yes\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("GET /path?query=1 HTTP/1.1\n"), "{answer}");
    assert!(answer.contains("x-mine: yes\n"), "{answer}");
    let records = bench.records().await;
    let ended = records.iter().find_map(|what| match what {
        What::Ended { target, status: status @ Some(_), up, down, address, how, .. } => {
            Some((target.clone(), *status, *up, *down, *address, how.clone()))
        }
        _ => None,
    });
    let (target, status, up, down, address, how) = ended.expect("the end of the request");
    assert_eq!((target.method.as_deref(), target.path.as_deref()), (Some("GET"), Some("/path")));
    assert_eq!((status, how.as_str()), (Some(200), "eof"));
    assert_eq!(address, Some([127, 0, 0, 1].into()));
    assert!(up > 0 && down > 50, "{up} {down}");
}

#[tokio::test]
async fn a_request_passes_without_tls() {
    let bench = Bench::new(Speaks::Plain, rule).await;
    let stream = TcpStream::connect(bench.entry).await.unwrap();
    let request = "GET /plain HTTP/1.1\r\nHost: host.cowork.internal\r\nConnection: close\r\n\r\n";
    let answer = talk(stream, request).await;
    assert!(answer.contains("GET /plain HTTP/1.1\n"), "{answer}");
}

#[tokio::test]
async fn the_proxy_carries_requests_with_a_host() {
    let bench = Bench::new(Speaks::Plain, rule).await;
    let port = bench.server.port;
    for _ in 0..2 {
        let stream = TcpStream::connect(bench.proxy).await.unwrap();
        let request = format!(
            "GET http://host.cowork.internal:{port}/a?b HTTP/1.1\r\nHost: host.cowork.internal:{port}\r\n\
             Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\n\
             Connection: close\r\n\r\n"
        );
        let answer = talk(stream, &request).await;
        assert!(answer.contains("GET /a?b HTTP/1.1\n"), "{answer}");
        assert!(!answer.contains("proxy-"), "{answer}");
    }
    assert_eq!(bench.server.connections(), 1);
    let stream = TcpStream::connect(bench.proxy).await.unwrap();
    let request =
        "GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n";
    let answer = talk(stream, request).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(code(&answer), "no-rule");
    assert!(answer.contains(r#""host":"other.test""#), "{answer}");
}

#[tokio::test]
async fn two_is_spoken_where_the_host_speaks_it() {
    let bench = Bench::new(Speaks::Two, rule).await;
    let mut sender = bench.two().await;
    let mut answers = Vec::new();
    for index in 0..8 {
        let request = Request::post(bench.url(&format!("/{index}"))).body("body".into()).unwrap();
        answers.push(sender.send_request(request));
    }
    for (index, answer) in answers.into_iter().enumerate() {
        let answer = answer.await.unwrap();
        assert_eq!(answer.version(), Version::HTTP_2);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body);
        assert!(
            body.starts_with(&format!("POST /{index} HTTP/2.0\n:authority: host.cowork.internal:"))
        );
        assert!(body.ends_with("\n\nbody"), "{body}");
    }
    assert_eq!(bench.server.connections(), 1);
}

#[tokio::test]
async fn one_is_offered_where_the_host_speaks_one() {
    let bench = Bench::new(Speaks::One, rule).await;
    let stream = bench.tls("host.cowork.internal", &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
}

#[tokio::test]
async fn two_without_tls_passes() {
    let bench = Bench::new(Speaks::Plain, rule).await;
    let stream = TcpStream::connect(bench.entry).await.unwrap();
    let builder = http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let url = format!("http://host.cowork.internal:{}/x", bench.server.port);
    let request = Request::get(url).body(Full::<Bytes>::default()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"GET /x HTTP/2.0"), "{body:?}");
}

#[tokio::test]
async fn events_are_not_gathered() {
    for speaks in [Speaks::One, Speaks::Two] {
        // Also where answers are searched for a secret.
        let with = |port| with_secret(port, CredentialMode::Swap, Carrier::Bearer);
        for bench in [Bench::new(speaks, rule).await, Bench::new(speaks, with).await] {
            let mut stream = bench.tls("host.cowork.internal", &[]).await.unwrap();
            let request =
                "GET /events HTTP/1.1\r\nHost: host.cowork.internal\r\nConnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut seen = String::new();
            while !seen.contains("data: one\n\n") {
                let mut buffer = [0; 1024];
                let reading = stream.read(&mut buffer);
                let count = tokio::time::timeout(Duration::from_secs(5), reading).await;
                let count = count.expect("the first event comes alone").unwrap();
                assert_ne!(count, 0, "{seen}");
                seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
            assert!(!seen.contains("two"));
            bench.server.release.notify_one();
            stream.read_to_string(&mut seen).await.unwrap();
            assert!(seen.contains("data: two\n\n"));
        }
    }
}

#[tokio::test]
async fn trailers_pass() {
    let bench = Bench::new(Speaks::Two, rule).await;
    let mut sender = bench.two().await;
    let request = Request::get(bench.url("/trailers")).header("te", "trailers");
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let body = answer.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(body.to_bytes(), "message");
    let bench = Bench::new(Speaks::One, rule).await;
    let answer = bench.get("/trailers", "TE: trailers\r\n").await;
    assert!(answer.ends_with("message\r\n0\r\ngrpc-status: 0\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn a_socket_passes_and_is_counted() {
    for speaks in [Speaks::One, Speaks::Two] {
        let bench = Bench::new(speaks, rule).await;
        let mut stream = bench.tls("host.cowork.internal", &[b"http/1.1"]).await.unwrap();
        let request = "GET /socket HTTP/1.1\r\nHost: host.cowork.internal\r\nConnection: Upgrade\r\n\
                       Upgrade: websocket\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        assert!(head.contains("upgrade: websocket\r\n"), "{head}");
        bench.records().await;
        for word in ["hello", "again"] {
            stream.write_all(word.as_bytes()).await.unwrap();
            let mut back = [0; 5];
            stream.read_exact(&mut back).await.unwrap();
            assert_eq!(back, word.as_bytes());
        }
        stream.shutdown().await.unwrap();
        drop(stream);
        let records = bench.records().await;
        let ended = records.iter().any(|what| {
            matches!(what, What::Ended { status: Some(101), up: 10.., down: 10.., .. })
        });
        assert!(ended, "{records:?}");
    }
}

#[tokio::test]
async fn another_http_is_not_gone_over_to() {
    let bench = Bench::new(Speaks::One, rule).await;
    let headers = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n";
    let answer = bench.get("/socket", headers).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.ends_with("no upgrade was asked for"), "{answer}");
}

#[tokio::test]
async fn headers_between_two_hops_stay_there() {
    let bench = Bench::new(Speaks::One, rule).await;
    let headers = "Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Authorization: x\r\n";
    let answer = bench.get("/", headers).await;
    assert!(!answer.contains("x-hop"), "{answer}");
    assert!(!answer.contains("keep-alive"), "{answer}");
    assert!(!answer.contains("proxy-"), "{answer}");
    let answer = bench.get("/hops", "").await;
    assert!(answer.contains("x-end: 1"), "{answer}");
    assert!(!answer.contains("x-hop: 1") && !answer.contains("proxy-authenticate"), "{answer}");
}

#[tokio::test]
async fn connections_are_used_again() {
    let bench = Bench::new(Speaks::One, rule).await;
    for _ in 0..5 {
        assert!(bench.get("/", "").await.starts_with("HTTP/1.1 200 "));
        // The connection is given back a moment after the answer.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((bench.server.connections(), bench.server.requests()), (1, 5));
    assert_eq!(bench.house.interceptor.pool.len(), 1);
}

#[tokio::test]
async fn a_client_may_wait_for_leave_to_send() {
    let bench = Bench::new(Speaks::One, rule).await;
    let mut stream = bench.tls("host.cowork.internal", &[]).await.unwrap();
    let head = "POST /sink HTTP/1.1\r\nHost: host.cowork.internal\r\nContent-Length: 4\r\n\
                Expect: 100-continue\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut go = [0; 25];
    stream.read_exact(&mut go).await.unwrap();
    assert_eq!(&go, b"HTTP/1.1 100 Continue\r\n\r\n");
    let answer = talk(stream, "body").await;
    assert!(answer.ends_with("4 bytes"), "{answer}");
}

/// Memory of this process, in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Sends and fetches a body, and tells how much more memory that took, in KiB.
async fn carry(bench: &Bench, speaks: Speaks, size: usize) -> usize {
    let before = resident();
    let protocols: &[&[u8]] = if speaks == Speaks::Two { &[b"h2"] } else { &[] };
    let io = TokioIo::new(bench.tls("host.cowork.internal", protocols).await.unwrap());
    let (pieces, body) = flowing(None);
    let head = |method, path: &str| {
        let request = Request::builder().method(method).uri(bench.url(path));
        request.header("host", "host.cowork.internal")
    };
    let post = head(Method::POST, "/sink").body(body).unwrap();
    let get = head(Method::GET, &format!("/zeros?{size}")).body(flowing(None).1).unwrap();
    tokio::spawn(async move {
        let piece = Bytes::from(vec![b'a'; 64 * 1024]);
        for _ in 0..size / piece.len() {
            pieces.send(Frame::data(piece.clone())).await.unwrap();
        }
    });
    let (up, down) = if speaks == Speaks::Two {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let up = sender.send_request(post).await.unwrap().into_body().collect().await;
        (up, sender.send_request(get).await)
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let up = sender.send_request(post).await.unwrap().into_body().collect().await;
        (up, sender.send_request(get).await)
    };
    assert_eq!(up.unwrap().to_bytes(), format!("{size} bytes"));
    let mut down = down.unwrap().into_body();
    let mut count = 0;
    while let Some(frame) = down.frame().await {
        count += frame.unwrap().data_ref().map_or(0, Bytes::len);
    }
    assert_eq!(count, size);
    resident().saturating_sub(before)
}

#[tokio::test]
async fn large_bodies_flow() {
    const MIB: usize = 1024 * 1024;
    let with = |port| with_secret(port, CredentialMode::Swap, Carrier::Bearer);
    let bench = Bench::new(Speaks::One, rule).await;
    let grown = carry(&bench, Speaks::One, 200 * MIB).await;
    assert!(grown < 64 * 1024, "{grown} KiB more");
    let bench = Bench::new(Speaks::Two, with).await;
    let grown = carry(&bench, Speaks::Two, 80 * MIB).await;
    assert!(grown < 40 * 1024, "{grown} KiB more");
}

/// Runs curl; nothing if there is none.
async fn curl(bench: &Bench, arguments: &[&str]) -> Option<std::process::Output> {
    let to = format!("::127.0.0.1:{}", bench.entry.port());
    let mut command = std::process::Command::new("curl");
    command.args(["--silent", "--show-error", "--noproxy", "*", "--connect-to", &to]);
    command.args(arguments).arg(bench.url("/curl"));
    let run = tokio::task::spawn_blocking(move || command.output());
    run.await.unwrap().ok()
}

#[tokio::test]
async fn curl_is_served_and_believes_the_authority() {
    for speaks in [Speaks::One, Speaks::Two] {
        let bench = Bench::new(speaks, rule).await;
        let folder = cowork_testbed::Folder::new(cowork_testbed::Person::Root, "authority");
        let encoded =
            base64::engine::general_purpose::STANDARD.encode(bench.house.interceptor.certificate());
        let pem = format!("-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n");
        let path = folder.write("authority.pem", pem);
        let path = path.to_str().unwrap();
        let Some(output) = curl(&bench, &["--cacert", path, "--data", "x=1"]).await else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        let version = if speaks == Speaks::Two { "HTTP/2.0" } else { "HTTP/1.1" };
        assert!(said.starts_with(&format!("POST /curl {version}\n")), "{output:?}");
        assert!(said.ends_with("\n\nx=1"), "{said}");
        bench.records().await;
        let output = curl(&bench, &["--cacert", "/etc/hostname"]).await.unwrap();
        assert!(!output.status.success());
        let output = curl(&bench, &[]).await.unwrap();
        assert_eq!(output.status.code(), Some(60), "{output:?}");
        assert_eq!(bench.noticed().await, ["untrusted-authority"]);
    }
}

#[tokio::test]
async fn an_address_needs_no_name() {
    let server = Server::start(Speaks::One).await;
    let network = Network { address: [127, 0, 0, 1].into(), bits: 32 };
    let rule = Rule { host: Host::Network(network), ..rule(server.port) };
    let rules = Rules { generation: 1, rules: vec![rule], ..Rules::default() };
    let roots = vec![server.root.clone()];
    let begin = Begin { session: "test".into(), rules, roots, ..Begin::default() };
    let bench = Bench::to(begin, server, "127.0.0.1").await;
    let stream = bench.tls("127.0.0.1", &[]).await.unwrap();
    let request = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    let answer = talk(stream, request).await;
    assert!(answer.contains("host: 127.0.0.1\n"), "{answer}");
    bench.tls("other.test", &[]).await.unwrap_err();
}

#[tokio::test]
async fn a_connection_that_the_host_has_closed_is_not_used() {
    let bench = Bench::new(Speaks::One, rule).await;
    for _ in 0..3 {
        assert!(bench.get("/last", "").await.starts_with("HTTP/1.1 200 "));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!((bench.server.connections(), bench.server.requests()), (3, 3));
}
