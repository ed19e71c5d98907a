//! Clients that end their side with their last request.

use super::*;
use cowork_api::egress::{Answer, Otherwise};

/// Asks for something of which the second half comes when it is let go, ends its side, and reads all.
async fn ends_its_side(bench: &Bench, stream: impl AsyncRead + AsyncWrite + Unpin, url: &str) {
    let mut stream = stream;
    let host = format!("host.cowork.internal:{}", bench.server.port);
    let request = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    // The end of its side is there before the second half is.
    tokio::time::sleep(Duration::from_millis(300)).await;
    bench.server.release.notify_one();
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    drop(tokio::time::timeout(Duration::from_secs(20), reading).await.expect("an answer"));
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.contains("data: one") && answer.contains("data: two"), "{url}: {answer}");
}

#[tokio::test]
async fn a_client_that_ends_its_side_has_its_answer() {
    let bench = Bench::new(Speaks::Plain, rule).await;
    ends_its_side(&bench, TcpStream::connect(bench.entry).await.unwrap(), "/events").await;
    let whole = format!("http://host.cowork.internal:{}/events", bench.server.port);
    ends_its_side(&bench, TcpStream::connect(bench.proxy).await.unwrap(), &whole).await;
}

#[tokio::test]
async fn so_has_one_over_tls() {
    let bench = Bench::new(Speaks::One, rule).await;
    let stream = bench.tls("host.cowork.internal", &[]).await.unwrap();
    ends_its_side(&bench, stream, "/events").await;
}

#[tokio::test]
async fn whoever_ends_its_side_is_not_asked_for() {
    let server = Server::start(Speaks::Plain).await;
    let rules = Rules { generation: 1, otherwise: Otherwise::Ask, ..Rules::default() };
    let begin = Begin { session: "test".into(), rules, ..Begin::default() };
    let bench = Bench::with(begin, server).await;
    let mut stream = TcpStream::connect(bench.proxy).await.unwrap();
    stream.write_all(b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n").await.unwrap();
    let news = || tokio::time::timeout(Duration::from_secs(5), bench.house.office.news());
    let ask = loop {
        if let FromEgress::Ask(ask) = news().await.expect("a question") {
            break ask.ask;
        }
    };
    stream.shutdown().await.unwrap();
    while news().await.expect("it is withdrawn") != (FromEgress::Withdraw { ask }) {}
}

/// It is looked from time to time whether a client is there; it may leave in between.
#[tokio::test]
async fn an_answer_that_comes_just_after_it_has_left_is_not_for_it() {
    let bench = Bench::new(Speaks::Plain, |port| Rule { action: Action::Ask, ..rule(port) }).await;
    let host = format!("host.cowork.internal:{}", bench.server.port);
    for (leaves, arrived) in [(true, 0), (false, 1)] {
        let mut stream = TcpStream::connect(bench.proxy).await.unwrap();
        let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let news = || tokio::time::timeout(Duration::from_secs(5), bench.house.office.news());
        let ask = loop {
            if let FromEgress::Ask(ask) = news().await.expect("a question") {
                break ask.ask;
            }
        };
        let stays = (!leaves).then_some(stream);
        bench.house.office.answer(ask, &Answer::Allow);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(bench.server.requests(), arrived);
        drop(stays);
    }
}
