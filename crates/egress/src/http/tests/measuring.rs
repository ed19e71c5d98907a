//! What interception costs, beside the same without it.

use super::*;
use std::time::Instant;

const ROUNDS: usize = 200;
const SIZE: usize = 512 * 1024 * 1024;

/// Where a connection goes, and whom its client trusts.
struct Way {
    name: &'static str,
    entry: SocketAddr,
    connector: TlsConnector,
}

impl Way {
    async fn open(&self) -> tokio_rustls::client::TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.entry).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::try_from(self.name).unwrap();
        self.connector.connect(name, stream).await.unwrap()
    }

    async fn fetch(&self, path: &str) -> usize {
        let mut stream = self.open().await;
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.name);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut buffer = vec![0; 256 * 1024];
        let mut count = 0;
        while let Ok(more @ 1..) = stream.read(&mut buffer).await {
            count += more;
        }
        count
    }

    /// The middle time of a new connection with one request.
    async fn new_connection(&self) -> Duration {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let began = Instant::now();
            assert!(self.fetch("/").await > 0);
            times.push(began.elapsed());
        }
        times.sort_unstable();
        times[ROUNDS / 2]
    }

    /// The middle time of one more request in a connection.
    async fn next_request(&self) -> Duration {
        let mut stream = self.open().await;
        let head = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", self.name);
        let mut buffer = vec![0; 64 * 1024];
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let began = Instant::now();
            stream.write_all(head.as_bytes()).await.unwrap();
            assert!(stream.read(&mut buffer).await.unwrap() > 0);
            times.push(began.elapsed());
        }
        times.sort_unstable();
        times[ROUNDS / 2]
    }

    /// Bytes in a second.
    async fn bulk(&self) -> f64 {
        let began = Instant::now();
        assert!(self.fetch(&format!("/zeros?{SIZE}")).await >= SIZE);
        u32::try_from(SIZE).map(f64::from).unwrap() / began.elapsed().as_secs_f64()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures; says something only when optimised"]
async fn what_interception_costs() {
    let bench = Bench::new(Speaks::One, rule).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(bench.server.root.clone().into()).unwrap();
    let direct = Way {
        name: "localhost",
        entry: ([127, 0, 0, 1], bench.server.port).into(),
        connector: connector(roots, &[]),
    };
    let ours =
        Way { name: "host.cowork.internal", entry: bench.entry, connector: bench.trusting(&[]) };
    for _ in 0..3 {
        let (one, two) = (direct.new_connection().await, ours.new_connection().await);
        println!("new connection: {one:?} direct, {two:?}: {:.2}", two.div_duration_f64(one));
        let (one, two) = (direct.next_request().await, ours.next_request().await);
        println!("next request: {one:?} direct, {two:?}: {:.2}", two.div_duration_f64(one));
        let (one, two) = (direct.bulk().await, ours.bulk().await);
        println!("bulk: {:.0} MB/s direct, {:.0}: {:.2}", one / 1e6, two / 1e6, two / one);
    }
}
