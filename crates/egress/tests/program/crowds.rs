//! Many at once who want nothing, or take their time; rules that change among them; a parent that
//! speaks TLS.

use crate::capture::Network;
use crate::dns::address;
use crate::for_everyone;
use crate::session::{
    LOOPBACK, PATIENCE, Session, allow_loopback, echo, expect_echo, head, reach, rules,
};
use crate::tls::Authority;
use cowork_api::egress::{Begin, FromEgress, Hidden, Parent, Record, Rules, ToEgress, What};
use cowork_testbed::Person;
use hickory_proto::rr::RecordType;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

for_everyone!(
    ten_thousand_idle_connections_cost_little_and_leave_nothing,
    ten_thousand_idle_captured_connections_cost_little_and_leave_nothing,
    many_who_take_their_time_keep_nobody_else_out,
    rules_that_change_under_load_allow_nothing_else,
    a_parent_proxy_is_spoken_to_over_tls_and_must_prove_its_name,
);

/// A server in a process of its own, with files of its own, that sends back what it gets.
struct Echo {
    child: Child,
    port: u16,
}

impl Echo {
    fn start() -> Self {
        let program = "import asyncio\n\
            async def serve(reader, writer):\n\
            \twhile data := await reader.read(4096):\n\
            \t\twriter.write(data); await writer.drain()\n\
            \twriter.close()\n\
            async def main():\n\
            \tserver = await asyncio.start_server(serve, '127.0.0.1', 0, backlog=4096)\n\
            \tprint(server.sockets[0].getsockname()[1], flush=True)\n\
            \tawait server.serve_forever()\n\
            asyncio.run(main())";
        let mut command = Command::new("python3");
        let mut child = command.args(["-c", program]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap();
        Self { child, port }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Held by whoever has ten thousand files open: this process has no room for several such crowds.
static CROWD: Mutex<()> = Mutex::new(());

/// How many connections an egress process takes here: ten thousand, where the limit of open files is
/// 21,053 or more. Each connection has two descriptors in it, one for each side, and a twentieth of the
/// limit is for everything else: with a hard limit of 20,000, which only a privileged process of the
/// host could raise, there is room for 9,500, and that many are made. This process and the server have
/// one descriptor for each.
fn most() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // A process with the right to do so makes itself room.
    let more = Rlimit { current: Some(32_768), maximum: Some(32_768) };
    let limit = match limit.maximum {
        Some(..32_768) if setrlimit(Resource::Nofile, more).is_ok() => more,
        _ => limit,
    };
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let files = limit.maximum.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap());
    ((files - files / 20) / 2).min(10_000)
}

fn ten_thousand_idle_connections_cost_little_and_leave_nothing(person: Person) {
    let _alone = CROWD.lock().unwrap_or_else(PoisonError::into_inner);
    let count = most() - 1;
    let server = Echo::start();
    let session = Session::start_as(person, rules([allow_loopback(server.port)]));
    expect_echo(&mut session.connect(LOOPBACK, server.port), b"first");
    let (descriptors, memory) = (session.descriptors(), session.memory());
    let mut streams: Vec<TcpStream> =
        (0..count).map(|_| session.connect(LOOPBACK, server.port)).collect();
    let grown = session.memory().saturating_sub(memory);
    println!(
        "{count} idle connections, of 10,000: {} bytes each",
        grown / u64::try_from(count).unwrap()
    );
    assert!(grown < u64::try_from(count).unwrap() * 20 * 1024, "{grown}");
    // Each of them still works, and so does another one.
    for stream in streams.iter_mut().step_by(500) {
        expect_echo(stream, b"hello");
    }
    streams.push(session.connect(LOOPBACK, server.port));
    if count < 9_999 {
        // There is no room for another one: it hears so at once.
        let began = Instant::now();
        let mut turned_away = reach(session.http);
        drop(turned_away.write_all(b"CONNECT "));
        assert!(!matches!(turned_away.read(&mut [0; 1]), Ok(1..)));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    drop(streams);
    let deadline = Instant::now() + Duration::from_mins(1);
    while session.descriptors() > descriptors + 2 {
        assert!(Instant::now() < deadline, "{}", session.descriptors());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The same for connections to addresses that stand for names, which say nothing of where they go.
fn ten_thousand_idle_captured_connections_cost_little_and_leave_nothing(person: Person) {
    let _alone = CROWD.lock().unwrap_or_else(PoisonError::into_inner);
    let count = most() - 1;
    let server = Echo::start();
    let session = Session::start_as(person, rules([allow_loopback(server.port)]));
    let network = Network::new();
    network.listen(&session, server.port);
    let address = address(&session, &format!("{LOOPBACK}."), RecordType::A).unwrap();
    let place = (address, server.port);
    let connect = || {
        let stream = TcpStream::connect(place).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    };
    expect_echo(&mut network.within(connect), b"first");
    let (descriptors, memory) = (session.descriptors(), session.memory());
    // Each is there to its end, and then says nothing.
    let open = || {
        let greeted = |_| {
            let mut stream = connect();
            expect_echo(&mut stream, b"x");
            stream
        };
        (0..count).map(greeted).collect::<Vec<TcpStream>>()
    };
    let mut streams = network.within(open);
    let grown = session.memory().saturating_sub(memory);
    println!(
        "{count} idle captured connections: {} bytes each",
        grown / u64::try_from(count).unwrap()
    );
    assert!(grown < u64::try_from(count).unwrap() * 20 * 1024, "{grown}");
    for stream in streams.iter_mut().step_by(500) {
        expect_echo(stream, b"hello");
    }
    drop(streams);
    let deadline = Instant::now() + Duration::from_mins(1);
    while session.descriptors() > descriptors + 2 {
        assert!(Instant::now() < deadline, "{}", session.descriptors());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn many_who_take_their_time_keep_nobody_else_out(person: Person) {
    let port = echo();
    let session = Session::start_as(person, rules([allow_loopback(port)]));
    let before = session.memory();
    let slow: Vec<TcpStream> = (0..2000).map(|_| reach(session.http)).collect();
    let talking = Arc::new(AtomicBool::new(true));
    let goes_on = Arc::clone(&talking);
    // A byte now and then, and never the end of the head.
    let talker = std::thread::spawn(move || {
        while goes_on.load(Ordering::Relaxed) {
            for mut stream in &slow {
                drop(stream.write(b"G"));
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    });
    std::thread::sleep(Duration::from_secs(1));
    let began = Instant::now();
    expect_echo(&mut session.connect(LOOPBACK, port), b"hello");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let grown = session.memory().saturating_sub(before);
    assert!(grown < 64 * 1024 * 1024, "{grown}");
    talking.store(false, Ordering::Relaxed);
    talker.join().unwrap();
}

/// Every second generation of the rules allows the second port.
fn generation(number: u64, ports: [u16; 2]) -> Rules {
    let second = number.is_multiple_of(2).then(|| allow_loopback(ports[1]));
    let all = [Some(allow_loopback(ports[0])), second].into_iter().flatten();
    Rules { generation: number, ..rules(all) }
}

fn rules_that_change_under_load_allow_nothing_else(person: Person) {
    const CHANGES: u64 = 300;
    let ports = [echo(), echo()];
    let session = Arc::new(Session::start_as(person, generation(1, ports)));
    session.connect(LOOPBACK, ports[0]);
    let (descriptors, memory) = (session.descriptors(), session.memory());
    let working = Arc::new(AtomicBool::new(true));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (session, working) = (Arc::clone(&session), Arc::clone(&working));
            std::thread::spawn(move || {
                let mut answers = [0_u32; 2];
                while working.load(Ordering::Relaxed) {
                    let port = ports[worker % 2];
                    let mut stream = reach(session.http);
                    write!(stream, "CONNECT {LOOPBACK}:{port} HTTP/1.1\r\n\r\n").unwrap();
                    let allowed = head(&mut stream).starts_with("HTTP/1.1 200 ");
                    answers[usize::from(allowed)] += 1;
                }
                answers
            })
        })
        .collect();
    for number in 2..CHANGES {
        session.send(&ToEgress::Rules(Box::new(generation(number, ports))));
        // What was recorded is taken, as a daemon does.
        let upto = session.records().last().map_or(0, |record| record.number);
        session.send(&ToEgress::Acknowledge { upto });
        let grown = session.memory().saturating_sub(memory);
        assert!(grown < 16 * 1024 * 1024, "{grown} bytes more after {number} changes");
        std::thread::sleep(Duration::from_millis(5));
    }
    working.store(false, Ordering::Relaxed);
    for (worker, answers) in workers.into_iter().enumerate() {
        let [refused, allowed] = answers.join().unwrap();
        assert!(allowed > 0, "worker {worker}");
        assert_eq!(refused > 0, worker % 2 == 1, "worker {worker}: {refused} were refused");
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while session.descriptors() > descriptors + 2 {
        assert!(Instant::now() < deadline, "{} descriptors", session.descriptors());
        std::thread::sleep(Duration::from_millis(20));
    }
    let decided = |record: Record| match record.what {
        What::Decided { target, decision, .. } => Some((target.port, decision)),
        _ => None,
    };
    let decisions: Vec<_> = session.records().into_iter().filter_map(decided).collect();
    assert!(decisions.len() > 100, "{}", decisions.len());
    for (port, decision) in decisions {
        let may = port == ports[0] || decision.generation.is_multiple_of(2);
        assert_eq!(decision.allowed, may, "{port} by {decision:?}");
    }
    assert_eq!(session.count(|message| matches!(message, FromEgress::Failed { .. })), 0);
}

fn a_parent_proxy_is_spoken_to_over_tls_and_must_prove_its_name(person: Person) {
    let authority = Authority::new();
    let port = echo();
    // It answers every CONNECT, and leads it to the same server.
    let proxy = authority.serve(move |head| {
        assert!(head.starts_with("CONNECT "), "{head}");
        (b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), Some(port))
    });
    let parent = |host: &str| Parent {
        host: host.into(),
        port: proxy.port,
        tls: true,
        authorization: Some(Hidden(b"Basic abc".to_vec())),
        except: Vec::new(),
        socks: None,
    };
    let begin = |host: &str, roots| Begin {
        rules: rules([crate::session::allow_name("example.com")]),
        parent: Some(parent(host)),
        roots,
        ..Begin::default()
    };
    let roots = vec![authority.root()];
    let session = Session::start_by(person, begin("localhost", roots.clone()));
    let mut stream = session.connect("example.com", 443);
    expect_echo(&mut stream, b"hello");
    expect_echo(&mut stream, &vec![7; 300_000]);
    let asked = proxy.heads.recv_timeout(PATIENCE).unwrap();
    assert!(asked.starts_with("CONNECT example.com:443 HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("Proxy-Authorization: Basic abc\r\n"), "{asked}");
    // Nobody vouches for it, or it has another name.
    for (host, roots) in [("localhost", Vec::new()), ("127.0.0.1", roots)] {
        let session = Session::start_by(person, begin(host, roots));
        let mut stream = reach(session.http);
        write!(stream, "CONNECT example.com:443 HTTP/1.1\r\n\r\n").unwrap();
        let head = head(&mut stream);
        assert!(!head.starts_with("HTTP/1.1 200 "), "{host}: {head}");
        assert!(proxy.heads.try_recv().is_err(), "{host}: it was told something");
    }
}
