//! What a session may take up, and what it may not be taken for.

use super::*;
use cowork_api::egress::Request as Wish;

#[tokio::test]
async fn a_head_has_a_size() {
    let bench = Bench::new(Speaks::One, rule).await;
    let header = |size: usize| format!("X-Large: {}\r\n", "a".repeat(size));
    let answer = bench.get("/", &header(32 * 1024)).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = bench.get("/", &header(70 * 1024)).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn what_waits_in_two_has_a_size() {
    let bench = Bench::new(Speaks::Plain, rule).await;
    let mut stream = TcpStream::connect(bench.entry).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
    assert_eq!((head[0], head[3]), (0, 4), "settings come first");
    let mut settings = vec![0; length];
    stream.read_exact(&mut settings).await.unwrap();
    let setting = |wanted: u8| {
        let found = settings.chunks(6).find(|setting| setting[..2] == [0, wanted]).unwrap();
        u32::from_be_bytes(found[2..].try_into().unwrap())
    };
    assert_eq!((setting(3), setting(4)), (32, 256 * 1024));
}

#[tokio::test]
async fn connections_have_a_number() {
    let bench = Bench::new(Speaks::Plain, rule).await;
    let room = Arc::clone(&bench.house.interceptor.places.room);
    let all = u32::try_from(crate::http::places::MAX_CONNECTIONS).unwrap();
    let taken = room.clone().acquire_many_owned(all).await.unwrap();
    let request = "GET / HTTP/1.1\r\nHost: host.cowork.internal\r\nConnection: close\r\n\r\n";
    for entry in [bench.entry, bench.proxy] {
        let answer = talk(TcpStream::connect(entry).await.unwrap(), request).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert_eq!(code(&answer), "too-many-connections");
        assert!(answer.contains(r#""code":"too-many-connections""#), "{answer}");
        assert!(answer.contains("retry-after: 15\r\n"), "{answer}");
    }
    assert_eq!(bench.refused().await, ["too-many-connections"; 2]);
    drop(taken);
    let mut stream = TcpStream::connect(bench.entry).await.unwrap();
    let request = "GET /socket HTTP/1.1\r\nHost: host.cowork.internal\r\nConnection: Upgrade\r\n\
                   Upgrade: websocket\r\n\r\nhello";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"hello") {
        seen.push(stream.read_u8().await.unwrap());
    }
    let most = crate::http::places::MAX_CONNECTIONS;
    assert_eq!(room.available_permits(), most - 1, "a socket counts");
    drop(stream);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(room.available_permits(), most);
}

/// A host that says nothing.
async fn silent() -> (TcpListener, Bench) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut server = Server::start(Speaks::One).await;
    server.port = listener.local_addr().unwrap().port();
    let rules = Rules { generation: 1, rules: vec![rule(server.port)], ..Rules::default() };
    let begin = Begin { session: "test".into(), rules, ..Begin::default() };
    (listener, Bench::with(begin, server).await)
}

/// Whether a connection ends within a second.
async fn ends(stream: &mut TcpStream) -> bool {
    let mut seen = Vec::new();
    let reading = stream.read_to_end(&mut seen);
    tokio::time::timeout(Duration::from_secs(1), reading).await.is_ok()
}

#[tokio::test]
async fn a_connection_begun_early_ends_with_its_client() {
    let (listener, bench) = silent().await;
    // The greeting does not wait for a silent host for ever.
    let client = bench.tls("host.cowork.internal", &[]).await.unwrap();
    let (mut host, _) = listener.accept().await.unwrap();
    assert!(!ends(&mut host).await);
    drop(client);
    assert!(ends(&mut host).await);
}

#[tokio::test]
async fn a_connection_begun_early_serves_its_rules_only() {
    let (listener, bench) = silent().await;
    let mut client = bench.tls("host.cowork.internal", &[]).await.unwrap();
    let (mut early, _) = listener.accept().await.unwrap();
    let rules = vec![rule(bench.server.port)];
    bench.house.office.set_rules(Rules { generation: 2, rules, ..Rules::default() });
    let request = "GET / HTTP/1.1\r\nHost: host.cowork.internal\r\n\r\n";
    client.write_all(request.as_bytes()).await.unwrap();
    let another = tokio::time::timeout(Duration::from_secs(2), listener.accept()).await;
    another.expect("another connection").unwrap();
    assert!(ends(&mut early).await);
}

#[tokio::test]
async fn a_request_is_not_taken_for_another() {
    let only_read = |port| {
        let http = vec![Wish { methods: vec!["GET".into()], paths: vec!["/open/**".into()] }];
        Rule { http, ..rule(port) }
    };
    let names = [
        "X-HTTP-Method-Override",
        "X-HTTP-Method",
        "X-Method-Override",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X_HTTP_Method_Override",
    ];
    let bench = Bench::new(Speaks::One, only_read).await;
    for name in names {
        let answer = bench.get("/open/a", &format!("{name}: DELETE\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{name}: {answer}");
        assert_eq!(code(&answer), "method-override");
    }
    assert_eq!(bench.server.requests(), 0);
    // Where every request passes, this one does as well.
    let bench = Bench::new(Speaks::One, rule).await;
    let answer = bench.get("/open/a", "X-HTTP-Method-Override: DELETE\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
