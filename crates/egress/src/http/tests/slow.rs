//! Ends that take their time, and rules that change meanwhile.

use super::*;
use crate::http::places::MAX_CONNECTIONS;
use http::Request;
use http_body_util::BodyExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::OwnedSemaphorePermit;

/// How many places are left for the slow, where a test does not want to have hundreds of them.
const LEFT: usize = 8;
/// More than the kernel keeps for a connection that nobody reads, on both sides of it.
const MUCH: u64 = 48 * 1024 * 1024;

/// Takes all places but a few.
async fn crowded(bench: &Bench) -> OwnedSemaphorePermit {
    let most = u32::try_from(MAX_CONNECTIONS - LEFT).unwrap();
    Arc::clone(&bench.house.interceptor.places.room).acquire_many_owned(most).await.unwrap()
}

fn free(bench: &Bench) -> usize {
    bench.house.interceptor.places.room.available_permits()
}

async fn until(what: &str, seconds: u64, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(seconds), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Connections that begin like this and then say a byte now and then.
async fn slow(bench: &Bench, first: &[u8], more: &'static [u8]) {
    for _ in 0..LEFT {
        let mut stream = TcpStream::connect(bench.entry).await.unwrap();
        stream.write_all(first).await.unwrap();
        tokio::spawn(async move {
            while stream.write_all(more).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
    }
    until("the slow have all places", 5, || free(bench) == 0).await;
}

#[tokio::test]
async fn who_says_nothing_takes_no_place() {
    let bench = Bench::new(Speaks::One, rule).await;
    let _crowd = crowded(&bench).await;
    let mut silent = Vec::new();
    for _ in 0..4 * LEFT {
        silent.push(TcpStream::connect(bench.entry).await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(free(&bench), LEFT);
    assert!(bench.get("/", "").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn slow_greetings_keep_others_out_for_a_moment_only() {
    let bench = Bench::new(Speaks::One, rule).await;
    let _crowd = crowded(&bench).await;
    // A record of 16 KiB, of which a byte comes now and then.
    slow(&bench, b"\x16\x03\x01\x40\x00", b"\x01").await;
    until("they are let go", 15, || free(&bench) == LEFT).await;
    assert!(bench.get("/", "").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn slow_heads_keep_others_out_for_a_moment_only() {
    let bench = Bench::new(Speaks::Plain, rule).await;
    let _crowd = crowded(&bench).await;
    slow(&bench, b"GET / HTTP/1.1\r\nHost: host.cowork.internal\r\nX: ", b"x").await;
    let request = "GET / HTTP/1.1\r\nHost: host.cowork.internal\r\nConnection: close\r\n\r\n";
    let answer = talk(TcpStream::connect(bench.entry).await.unwrap(), request).await;
    assert_eq!(code(&answer), "too-many-connections", "{answer}");
    until("they are let go", 40, || free(&bench) == LEFT).await;
    let answer = talk(TcpStream::connect(bench.entry).await.unwrap(), request).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_connection_of_two_without_requests_is_let_go_and_one_with_requests_is_not() {
    let bench = Bench::new(Speaks::Two, rule).await;
    let mut busy = bench.two().await;
    let request = Request::get(bench.url("/events")).body(Full::<Bytes>::default()).unwrap();
    let mut events = busy.send_request(request).await.unwrap().into_body();
    assert!(events.frame().await.unwrap().unwrap().data_ref().unwrap().starts_with(b"data: one"));
    // One that greets and stops, and one that stops in the middle of its first request.
    let mut silent = bench.tls("host.cowork.internal", &[b"h2"]).await.unwrap();
    let mut half = bench.tls("host.cowork.internal", &[b"h2"]).await.unwrap();
    half.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    half.write_all(b"\0\x10\0\x01\0\0\0\0\x01").await.unwrap();
    let taken = MAX_CONNECTIONS - free(&bench);
    assert_eq!(taken, 3);
    for stream in [&mut silent, &mut half] {
        let mut seen = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(45), stream.read_to_end(&mut seen));
        drop(ended.await.expect("it is let go"));
    }
    until("their places are free", 5, || free(&bench) == MAX_CONNECTIONS - 1).await;
    bench.server.release.notify_one();
    let last = events.frame().await.unwrap().unwrap();
    assert!(last.data_ref().unwrap().starts_with(b"data: two"), "{last:?}");
}

/// A bench whose limits are short.
async fn hurried(speaks: Speaks) -> Bench {
    let server = Server::start(speaks).await;
    let rules = Rules { generation: 1, rules: vec![rule(server.port)], ..Rules::default() };
    let roots = vec![server.root.clone()];
    let begin = Begin { session: "test".into(), rules, roots, ..Begin::default() };
    let hurry = |house: &mut House| {
        house.interceptor.time_for_body = Duration::from_secs(1);
        house.interceptor.places.still = Duration::from_secs(1);
    };
    Bench::changed(begin, server, hurry).await
}

#[tokio::test]
async fn a_body_that_stalls_is_told_so_and_let_go() {
    for speaks in [Speaks::One, Speaks::Two] {
        let bench = hurried(speaks).await;
        for framing in ["Content-Length: 9", "Transfer-Encoding: chunked"] {
            let mut stream = bench.tls("host.cowork.internal", &[]).await.unwrap();
            let head = format!(
                "POST /sink HTTP/1.1\r\nHost: host.cowork.internal\r\n{framing}\r\n\r\n3\r\nabc"
            );
            let answer = talk(&mut stream, &head).await;
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
            assert_eq!(code(&answer), "stalled");
            // It is still there, and has no place any more.
            until("its place is free", 5, || free(&bench) == MAX_CONNECTIONS).await;
        }
        // In HTTP/2 only the one request is.
        let stream = bench.tls("host.cowork.internal", &[b"h2", b"http/1.1"]).await.unwrap();
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            continue;
        }
        let io = TokioIo::new(stream);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let (pieces, body) = server::flowing(Some(9));
        let answer = sender.send_request(Request::post(bench.url("/sink")).body(body).unwrap());
        pieces.send(hyper::body::Frame::data(Bytes::from_static(b"abc"))).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(10), answer).await.expect("told");
        assert_eq!(answer.unwrap().status(), 408);
        let (end, body) = server::flowing(Some(0));
        drop(end);
        let next = sender.send_request(Request::get(bench.url("/")).body(body).unwrap());
        assert_eq!(next.await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_body_that_is_slow_but_comes_passes_and_so_does_a_stream_of_messages() {
    let bench = hurried(Speaks::One).await;
    for (kind, pauses) in [("text/plain", [600, 600, 600]), ("application/grpc", [2500, 1, 1])] {
        let mut stream = bench.tls("host.cowork.internal", &[]).await.unwrap();
        let head = format!(
            "POST /sink HTTP/1.1\r\nHost: host.cowork.internal\r\nContent-Type: {kind}\r\n\
             Connection: close\r\nContent-Length: 9\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        for pause in pauses {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            stream.write_all(b"abc").await.unwrap();
        }
        let answer = talk(&mut stream, "").await;
        assert!(answer.ends_with("9 bytes"), "{kind}: {answer}");
    }
}

#[tokio::test]
async fn a_silent_answer_is_kept_until_its_place_is_needed() {
    for speaks in [Speaks::One, Speaks::Two] {
        let bench = hurried(speaks).await;
        let get = |path: &str| {
            format!(
                "GET {path} HTTP/1.1\r\nHost: host.cowork.internal\r\nConnection: close\r\n\r\n"
            )
        };
        let mut streams = Vec::new();
        let protocols: &[&[u8]] = &[b"http/1.1"];
        for _ in 0..2 {
            let mut stream = bench.tls("host.cowork.internal", protocols).await.unwrap();
            stream.write_all(get("/events").as_bytes()).await.unwrap();
            let mut seen = String::new();
            while !seen.ends_with("data: one\n\n") {
                seen.push(char::from(stream.read_u8().await.unwrap()));
            }
            streams.push(stream);
        }
        // Much longer than what lets a place go where it is needed.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(free(&bench), MAX_CONNECTIONS - 2);
        let most = u32::try_from(free(&bench)).unwrap();
        let crowd = Arc::clone(&bench.house.interceptor.places.room).acquire_many_owned(most);
        let crowd = crowd.await.unwrap();
        let answer = bench.get("/", "").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let records = bench.records().await;
        let gave_way = |what: &&What| matches!(what, What::Ended { how, .. } if how == "gave way");
        assert_eq!(records.iter().filter(gave_way).count(), 2, "the request and its connection");
        let noticed =
            |what: &What| matches!(what, What::Noticed { code, .. } if code == "gave-way");
        assert!(records.iter().any(noticed), "{records:?}");
        drop(crowd);
        // The older one gave way; the other one goes on.
        let mut rest = String::new();
        let ended = streams[0].read_to_string(&mut rest).await;
        assert!(ended.is_err() || rest.is_empty(), "{rest}");
        bench.server.release.notify_waiters();
        streams[1].read_to_string(&mut rest).await.unwrap();
        assert!(rest.contains("data: two\n\n"), "{rest}");
    }
}

#[tokio::test]
async fn several_who_come_at_once_each_find_a_place() {
    let bench = hurried(Speaks::Plain).await;
    // One that stays, and the beginning of what it is told.
    let stays = async || {
        let mut stream = TcpStream::connect(bench.entry).await.unwrap();
        let get = "GET /events HTTP/1.1\r\nHost: host.cowork.internal\r\n\r\n";
        stream.write_all(get.as_bytes()).await.unwrap();
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).await.unwrap();
        (stream, String::from_utf8_lossy(&begin).into_owned())
    };
    let mut still = Vec::new();
    for _ in 0..4 {
        still.push(stays().await);
    }
    let most = u32::try_from(free(&bench)).unwrap();
    let room = Arc::clone(&bench.house.interceptor.places.room);
    let _crowd = room.acquire_many_owned(most).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let (one, two, three) = tokio::join!(stays(), stays(), stays());
    for (_, begin) in [&one, &two, &three] {
        assert_eq!(begin, "HTTP/1.1 200");
    }
}

#[tokio::test]
async fn a_silent_socket_gives_way_and_one_that_moves_does_not() {
    let bench = hurried(Speaks::One).await;
    let request = "GET /socket HTTP/1.1\r\nHost: host.cowork.internal\r\nConnection: Upgrade\r\n\
                   Upgrade: websocket\r\n\r\n";
    let mut sockets = Vec::new();
    for _ in 0..2 {
        let mut stream = bench.tls("host.cowork.internal", &[]).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        sockets.push(stream);
    }
    let most = u32::try_from(free(&bench)).unwrap();
    let room = Arc::clone(&bench.house.interceptor.places.room);
    let _crowd = room.acquire_many_owned(most).await.unwrap();
    let mut moving = sockets.remove(0);
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        moving.write_all(b"x").await.unwrap();
        assert_eq!(moving.read_u8().await.unwrap(), b'x');
    }
    assert!(bench.get("/", "").await.starts_with("HTTP/1.1 200 "));
    moving.write_all(b"y").await.unwrap();
    assert_eq!(moving.read_u8().await.unwrap(), b'y');
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(5), sockets[0].read_to_end(&mut rest));
    drop(ended.await.expect("it gave way"));
}

/// A host without TLS that reads a head and then does something.
async fn host<F>(then: impl Fn(TcpStream) -> F + Send + 'static) -> Bench
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut server = Server::start(Speaks::Plain).await;
    server.port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            tokio::spawn(then(stream));
        }
    });
    let rules = Rules { generation: 1, rules: vec![rule(server.port)], ..Rules::default() };
    let begin = Begin { session: "test".into(), rules, ..Begin::default() };
    Bench::with(begin, server).await
}

#[tokio::test]
async fn a_host_that_trickles_is_let_go_with_its_client() {
    let gone = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&gone);
    let bench = host(move |mut stream| {
        let told = Arc::clone(&told);
        async move {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").await.unwrap();
            while stream.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            told.store(true, Ordering::Relaxed);
        }
    })
    .await;
    let mut client = TcpStream::connect(bench.entry).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: host.cowork.internal\r\n\r\n").await.unwrap();
    let mut seen = String::new();
    while !seen.ends_with("xxxxx") {
        seen.push(char::from(client.read_u8().await.unwrap()));
    }
    assert!(!gone.load(Ordering::Relaxed));
    drop(client);
    until("the host is let go", 5, || gone.load(Ordering::Relaxed)).await;
    let ends =
        |what: &What| matches!(what, What::Ended { status: Some(200), how, .. } if how != "eof");
    assert!(bench.records().await.iter().any(ends));
}

#[tokio::test]
async fn what_one_side_does_not_take_the_other_cannot_send() {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    let bench = host(move |mut stream| {
        let counted = Arc::clone(&counted);
        async move {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n")
                .await
                .unwrap();
            let piece = vec![7; 65536];
            while stream.write_all(&piece).await.is_ok() {
                counted.fetch_add(65536, Ordering::Relaxed);
            }
        }
    })
    .await;
    let mut client = TcpStream::connect(bench.entry).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: host.cowork.internal\r\n\r\n").await.unwrap();
    let mut before = u64::MAX;
    until("the host is stopped", 20, || {
        let now = sent.load(Ordering::Relaxed);
        now > 0 && std::mem::replace(&mut before, now) == now
    })
    .await;
    assert!(sent.load(Ordering::Relaxed) < MUCH, "{}", sent.load(Ordering::Relaxed));

    // A host that reads nothing: its client cannot go on.
    let bench = host(|stream| async move {
        tokio::time::sleep(Duration::from_secs(20)).await;
        drop(stream);
    })
    .await;
    let mut client = TcpStream::connect(bench.entry).await.unwrap();
    let head = "PUT / HTTP/1.1\r\nHost: host.cowork.internal\r\nContent-Length: 9999999999\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let (mut taken, piece) = (0, vec![7; 65536]);
    while let Ok(written) = tokio::time::timeout(Duration::from_secs(1), client.write(&piece)).await
    {
        taken += u64::try_from(written.unwrap()).unwrap();
        assert!(taken < MUCH, "{taken}");
    }
}

/// The rules of a generation: every second one allows nothing.
fn generation(number: u64, port: u16) -> Rules {
    let rules = if number.is_multiple_of(2) { Vec::new() } else { vec![rule(port)] };
    Rules { generation: number, rules, ..Rules::default() }
}

#[tokio::test]
async fn a_request_ends_under_the_rules_that_it_began_under() {
    for speaks in [Speaks::One, Speaks::Two] {
        let bench = Bench::new(speaks, rule).await;
        let mut held = bench.tls("host.cowork.internal", &[]).await.unwrap();
        let mut other = bench.tls("host.cowork.internal", &[]).await.unwrap();
        let get = |path: &str| {
            format!(
                "GET {path} HTTP/1.1\r\nHost: host.cowork.internal\r\nConnection: close\r\n\r\n"
            )
        };
        held.write_all(get("/events").as_bytes()).await.unwrap();
        let mut seen = String::new();
        while !seen.ends_with("data: one\n\n") {
            seen.push(char::from(held.read_u8().await.unwrap()));
        }
        bench.house.office.set_rules(generation(2, bench.server.port));
        let refused = talk(&mut other, &get("/later")).await;
        assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
        bench.server.release.notify_one();
        held.read_to_string(&mut seen).await.unwrap();
        assert!(seen.contains("data: two\n\n"), "{seen}");
        let decided: Vec<(u64, bool)> =
            bench.records().await.iter().filter_map(of_request).collect();
        assert_eq!(decided, [(1, true), (2, false)]);
    }
}

/// The generation and the outcome of the decision about a request.
fn of_request(what: &What) -> Option<(u64, bool)> {
    match what {
        What::Decided { target, decision, .. } if target.method.is_some() => {
            Some((decision.generation, decision.allowed))
        }
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_that_change_under_load_allow_nothing_else() {
    const CHANGES: u64 = 200;
    let bench = Arc::new(Bench::new(Speaks::Two, rule).await);
    let working = Arc::new(AtomicBool::new(true));
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (bench, working) = (Arc::clone(&bench), Arc::clone(&working));
            tokio::spawn(async move {
                let mut answers = [0_u32; 2];
                let mut sender = bench.two().await;
                while working.load(Ordering::Relaxed) {
                    let request =
                        Request::post(bench.url("/load")).body(Full::from("body")).unwrap();
                    let answer = sender.send_request(request).await.unwrap();
                    let allowed = answer.status() == 200;
                    assert!(allowed || answer.status() == 403, "{}", answer.status());
                    let body = answer.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(allowed, body.ends_with(b"\n\nbody"), "{body:?}");
                    answers[usize::from(allowed)] += 1;
                }
                answers
            })
        })
        .collect();
    // Connections are decided under the first rules.
    until("all work", 20, || bench.server.requests() >= 8).await;
    let mut decided = Vec::new();
    for number in 2..CHANGES {
        bench.house.office.set_rules(generation(number, bench.server.port));
        tokio::time::sleep(Duration::from_millis(5)).await;
        while let Some(news) = bench.house.office.unsaid() {
            if let FromEgress::Record(record) = news {
                bench.house.office.acknowledge(record.number);
                decided.extend(of_request(&record.what));
            }
        }
    }
    working.store(false, Ordering::Relaxed);
    for worker in workers {
        let [refused, allowed] = worker.await.unwrap();
        assert!(refused > 0 && allowed > 0, "{refused} {allowed}");
    }
    assert!(decided.len() > 100, "{}", decided.len());
    for (generation, allowed) in decided {
        assert_eq!(allowed, !generation.is_multiple_of(2), "generation {generation}");
    }
}
