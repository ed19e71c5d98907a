//! Sockets in the network of a session: who can connect to them, and from where.

use crate::bench::{A_WHILE, Bench, Room, as_everybody, ask, eventually, is_ready, new_plan};
use cowork_api::egress::Socket;
use cowork_api::guest::Ending;
use cowork_api::keeper::{Failure, FailureCode, Grade, Reply, Request};
use cowork_sandbox::client::{ClientError, Keeper};
use rustix::fd::OwnedFd;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

/// Connects to an address for every line it hears, says `hello`, and tells what it heard or why it
/// could not.
const CLIENT: &str = "
import errno, socket, sys, time
for line in sys.stdin:
    kind, host, port = line.split()
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    peer = socket.socket(family, socket.SOCK_DGRAM if kind == 'udp' else socket.SOCK_STREAM)
    peer.settimeout(30)
    began = time.monotonic()
    try:
        peer.connect((host, int(port)))
        peer.send(b'hello')
        said = peer.recv(100).decode()
    except OSError as error:
        said = errno.errorcode.get(error.errno, str(error))
    print(said if time.monotonic() - began < 5 else 'late ' + said, flush=True)
    peer.close()
";

/// Two synthetic addresses.
const V4: &str = "198.18.3.7";
const V6: &str = "fd63:6f77:6f72:6b00::1234";

fn listen(keeper: &mut Keeper, room: &Room, sockets: &[Socket]) -> Result<Vec<OwnedFd>, Failure> {
    let request = Request::Listen { session: room.id(), sockets: sockets.to_vec() };
    match keeper.call(request) {
        Ok((Reply::Listening(named), handles)) => {
            assert_eq!((named.as_slice(), handles.len()), (sockets, sockets.len()));
            Ok(handles)
        }
        Err(ClientError::Refused(failure)) => Err(failure),
        other => panic!("{other:?}"),
    }
}

fn one(keeper: &mut Keeper, room: &Room, socket: Socket) -> OwnedFd {
    let made = listen(keeper, room, &[socket]).unwrap_or_else(|failure| panic!("{failure:?}"));
    made.into_iter().next().expect("as many as were asked for")
}

/// Accepts one connection, hears `hello`, answers, and returns which address it was made to.
#[track_caller]
fn serve(listener: &TcpListener, answer: &str) -> SocketAddr {
    assert!(is_ready(listener, A_WHILE), "nobody comes");
    let (mut peer, _) = listener.accept().expect("somebody came");
    peer.set_nonblocking(false).expect("it is a socket");
    let mut heard = [0; 5];
    peer.read_exact(&mut heard).expect("it speaks");
    assert_eq!(&heard, b"hello");
    peer.write_all(answer.as_bytes()).expect("it listens");
    let at = peer.local_addr().expect("it has one");
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

fn address(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse().expect("an address"), port)
}

/// The scenario in a session of each profile.
pub(crate) fn in_each(bench: &Bench, scenario: impl Fn(&mut Keeper, &mut Room)) {
    for (mut keeper, mut room) in [bench.room(), bench.nested_room()] {
        scenario(&mut keeper, &mut room);
    }
}

#[test]
fn a_session_without_sockets_reaches_nothing_and_is_told_at_once() {
    as_everybody(|bench| {
        in_each(bench, |_, room| {
            let mut client = room.python(CLIENT, &[]);
            for host in [V4, "1.1.1.1", "169.254.169.254", "10.0.0.1"] {
                client.say(&format!("tcp {host} 443"));
                client.expect("ENETUNREACH");
                client.say(&format!("udp {host} 443"));
                client.expect("ENETUNREACH");
            }
            for host in [V6, "2606:4700::1111"] {
                client.say(&format!("tcp {host} 443"));
                client.expect("ENETUNREACH");
            }
            for port in [53, 1080, 3128, 443] {
                client.say(&format!("tcp 127.0.0.1 {port}"));
                client.expect("ECONNREFUSED");
            }
        });
    });
}

#[test]
fn connections_to_a_port_arrive_with_the_address_they_were_made_to() {
    as_everybody(|bench| {
        in_each(bench, |keeper, room| {
            let listener = TcpListener::from(one(keeper, room, Socket::Port(443)));
            let mut client = room.python(CLIENT, &[]);
            for host in [V4, "198.18.0.0", "198.19.255.255", V6] {
                client.say(&format!("tcp {host} 443"));
                assert_eq!(serve(&listener, host), address(host, 443));
                client.expect(host);
            }
            // Other ports, other addresses and other protocols are refused without a wait.
            client.say(&format!("tcp {V4} 444"));
            client.expect("ECONNREFUSED");
            client.say(&format!("udp {V4} 443"));
            client.expect("ECONNREFUSED");
            client.say(&format!("udp {V6} 443"));
            client.expect("ECONNREFUSED");
            for host in ["1.1.1.1", "198.20.0.1", "198.17.255.255", "fd63:6f77:6f72:6b01::1"] {
                client.say(&format!("tcp {host} 443"));
                client.expect("ENETUNREACH");
            }
        });
    });
}

#[test]
fn proxies_and_names_are_at_the_loopback() {
    as_everybody(|bench| {
        in_each(bench, |keeper, room| {
            let wanted = [Socket::HttpProxy, Socket::Socks, Socket::DnsUdp, Socket::DnsTcp];
            let made = listen(keeper, room, &wanted).expect("they are made");
            let [http, socks, udp, tcp] = made.try_into().expect("four");
            let mut client = room.python(CLIENT, &[]);
            for (listener, port) in [(http, 3128), (socks, 1080), (tcp, 53)] {
                client.say(&format!("tcp 127.0.0.1 {port}"));
                let listener = TcpListener::from(listener);
                assert_eq!(serve(&listener, "welcome"), address("127.0.0.1", port));
                client.expect("welcome");
            }
            let socket = UdpSocket::from(udp);
            client.say("udp 127.0.0.1 53");
            assert!(is_ready(&socket, A_WHILE), "no question comes");
            let mut heard = [0; 100];
            let (length, from) = socket.recv_from(&mut heard).expect("one came");
            assert_eq!(&heard[..length], b"hello");
            socket.send_to(b"named", from).expect("it listens");
            client.expect("named");
        });
    });
}

#[test]
fn programs_that_ask_for_one_family_of_addresses_find_it_there() {
    as_everybody(|bench| {
        in_each(bench, |keeper, room| {
            let look = format!(
                "
import socket
for family, host in ((0, '{V4}'), (socket.AF_INET, '{V4}'), (socket.AF_INET6, '{V6}')):
    try:
        print(socket.getaddrinfo(host, 443, family, flags=socket.AI_ADDRCONFIG)[0][4][0])
    except OSError as error:
        print(error)
"
            );
            let unknown = "[Errno -2] Name or service not known";
            let before = room.run(&["/usr/bin/python3", "-c", &look]).1;
            assert_eq!(before, format!("{V4}\n{unknown}\n{unknown}\n"));
            one(keeper, room, Socket::Port(443));
            let after = room.run(&["/usr/bin/python3", "-c", &look]).1;
            assert_eq!(after, format!("{V4}\n{V4}\n{V6}\n"));
        });
    });
}

#[test]
fn the_survey_tells_whether_all_ports_are_captured() {
    as_everybody(|bench| {
        let (mut keeper, room) = bench.room();
        let Ok(Reply::Surveyed(facts)) = ask(&mut keeper, Request::Survey) else {
            panic!("no survey");
        };
        let fact = facts.iter().find(|fact| fact.name == "capture of all ports").expect("a fact");
        let captured = listen(&mut keeper, &room, &[Socket::AllPorts]);
        let grade = if captured.is_ok() { Grade::Good } else { Grade::Reduced };
        assert_eq!(fact.grade, grade, "{fact:?} {captured:?}");
    });
}

/// A server of the session's own, at the address and port it is told.
const SERVER: &str = "
import socket, sys
listener = socket.socket(socket.AF_INET)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    listener.bind((sys.argv[1], int(sys.argv[2])))
    listener.listen(64)
except OSError as error:
    import errno
    print(errno.errorcode[error.errno], flush=True)
    sys.exit()
print('listens', flush=True)
while True:
    peer = listener.accept()[0]
    peer.recv(100)
    peer.sendall(b'own')
    peer.close()
";

#[test]
fn all_ports_are_captured_and_servers_of_the_session_go_on() {
    as_everybody(|bench| {
        in_each(bench, |keeper, room| {
            let mut before = room.python(SERVER, &["0.0.0.0", "8080"]);
            before.expect("listens");
            let listener = TcpListener::from(one(keeper, room, Socket::AllPorts));
            let mut after = room.python(SERVER, &["127.0.0.1", "8081"]);
            after.expect("listens");
            let mut client = room.python(CLIENT, &[]);
            for host in [V4, "198.19.255.255", V6] {
                for port in [1, 22, 443, 1023, 3128, 8080, 8081, 65535] {
                    client.say(&format!("tcp {host} {port}"));
                    assert_eq!(serve(&listener, "out"), address(host, port));
                    client.expect("out");
                }
            }
            for port in [8080, 8081] {
                client.say(&format!("tcp 127.0.0.1 {port}"));
                client.expect("own");
            }
            client.say(&format!("udp {V4} 8080"));
            client.expect("ECONNREFUSED");
            client.say("tcp 1.1.1.1 8080");
            client.expect("ENETUNREACH");
            client.say("tcp 127.0.0.1 8082");
            client.expect("ECONNREFUSED");
        });
    });
}

#[test]
fn a_large_transfer_through_a_captured_port_arrives_whole_both_ways() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let listener = TcpListener::from(one(&mut keeper, &room, Socket::AllPorts));
        let echo = format!(
            "
import socket, threading
peer = socket.create_connection(('{V4}', 9000))
data = bytes(range(256)) * 65536
threading.Thread(target=lambda: (peer.sendall(data), peer.shutdown(socket.SHUT_WR))).start()
back = bytearray()
while part := peer.recv(65536):
    back += part
print(back == data)
"
        );
        let mut client = room.python(&echo, &[]);
        assert!(is_ready(&listener, A_WHILE), "nobody comes");
        let (peer, _) = listener.accept().expect("somebody came");
        peer.set_nonblocking(false).expect("it is a socket");
        std::io::copy(&mut &peer, &mut &peer).expect("it goes on");
        drop(peer);
        client.expect("True");
    });
}

#[test]
fn what_a_program_bound_first_is_not_taken_and_the_request_fails() {
    as_everybody(|bench| {
        in_each(bench, |keeper, room| {
            for (socket, port) in
                [(Socket::HttpProxy, 3128), (Socket::Socks, 1080), (Socket::Port(8080), 8080)]
            {
                let mut server = room.python(SERVER, &["127.0.0.1", &port.to_string()]);
                server.expect("listens");
                let refused = listen(keeper, room, &[Socket::DnsUdp, socket]).expect_err("taken");
                assert_eq!(refused.code, FailureCode::SocketRefused);
                let expected = format!("port {port}, for");
                assert!(refused.sentence.starts_with(&expected), "{refused:?}");
                assert!(refused.sentence.contains("in use by a program of the session"));
                room.send(
                    &cowork_api::guest::ToInit::Signal {
                        command: server.number,
                        signal: 9,
                        whom: cowork_api::guest::Whom::Leader,
                    },
                    &[],
                );
                assert_eq!(room.ending(&server), Ending::Signal(9));
                // Nothing of the request that failed is left, and once the port is free it works.
                let kept = ask(keeper, Request::Sockets { session: room.id() });
                assert!(matches!(&kept, Ok(Reply::Listening(named)) if !named.contains(&socket)));
                listen(keeper, room, &[socket]).expect("it is free");
                let mut late = room.python(SERVER, &["127.0.0.1", &port.to_string()]);
                late.expect("EADDRINUSE");
            }
        });
    });
}

#[test]
fn a_capture_that_was_made_in_vain_is_made_again() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let mut server = room.python(SERVER, &["127.0.0.1", "3128"]);
        server.expect("listens");
        let both = [Socket::AllPorts, Socket::HttpProxy];
        let refused = listen(&mut keeper, &room, &both).expect_err("one is taken");
        assert_eq!(refused.code, FailureCode::SocketRefused);
        let mut client = room.python(CLIENT, &[]);
        client.say(&format!("tcp {V4} 8443"));
        client.expect("ECONNREFUSED");
        let listener = TcpListener::from(one(&mut keeper, &room, Socket::AllPorts));
        for host in [V4, V6] {
            client.say(&format!("tcp {host} 8443"));
            assert_eq!(serve(&listener, "out"), address(host, 8443));
            client.expect("out");
        }
    });
}

#[test]
fn programs_cannot_take_the_ports_that_names_and_captures_need() {
    as_everybody(|bench| {
        in_each(bench, |keeper, room| {
            for port in ["53", "80", "443", "1023"] {
                for host in ["127.0.0.1", "0.0.0.0"] {
                    let mut server = room.python(SERVER, &[host, port]);
                    server.expect("EACCES");
                }
            }
            // The same with a socket that shares its port with whoever has the same id.
            one(keeper, room, Socket::Port(8080));
            let share = "
import socket, errno
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    s.bind(('198.18.0.1', 8080)); s.listen(); print('shares')
except OSError as error:
    print(errno.errorcode[error.errno])
";
            let mut sharer = room.python(share, &[]);
            sharer.expect("EADDRINUSE");
        });
    });
}

/// Tries by messages to the kernel what the keeper did: routes, rules, devices, and raw sockets.
const UNDO: &str = "
import errno, socket, struct
def attempt(name, work):
    try:
        print(name, work())
    except OSError as error:
        print(name, errno.errorcode[error.errno])
def netlink(protocol, kind, flags, body):
    def work():
        s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        s.send(struct.pack('=IHHII', 16 + len(body), kind, flags | 5, 1, 0) + body)
        code = struct.unpack('=i', s.recv(4096)[16:20])[0]
        return errno.errorcode[-code] if code else 'done'
    return work
prefix = struct.pack('=HH4B', 8, 1, 198, 18, 0, 0)
route = struct.pack('=8BI', 2, 15, 0, 0, 255, 4, 254, 2, 0) + prefix
attempt('route', netlink(0, 25, 0, route))
default = struct.pack('=8BI', 2, 0, 0, 0, 255, 4, 254, 2, 0) + struct.pack('=HHI', 8, 4, 1)
attempt('default', netlink(0, 24, 0x400, default))
attempt('down', netlink(0, 16, 0, struct.pack('=BBHiII', 0, 0, 0, 1, 0, 1)))
attempt('rules', netlink(12, 0xa02, 0, b'\\x01\\0\\0\\0' + struct.pack('=HH8s', 11, 1, b'cowork\\0')))
attempt('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 6))
attempt('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
attempt('vsock', lambda: socket.socket(40, socket.SOCK_STREAM, 0))
attempt('transparent', lambda: socket.socket().setsockopt(0, 19, 1))
";

#[test]
fn a_session_cannot_undo_its_routes_and_captures() {
    as_everybody(|bench| {
        in_each(bench, |keeper, room| {
            let listener = TcpListener::from(one(keeper, room, Socket::AllPorts));
            let said = room.run(&["/usr/bin/python3", "-c", UNDO]).1;
            assert_eq!(said.lines().count(), 8, "{said}");
            for line in said.lines() {
                let refused = ["EPERM", "EACCES", "EAFNOSUPPORT", "EPROTONOSUPPORT"];
                assert!(refused.iter().any(|errno| line.ends_with(errno)), "{said}");
            }
            let mut client = room.python(CLIENT, &[]);
            client.say(&format!("tcp {V4} 8443"));
            assert_eq!(serve(&listener, "out"), address(V4, 8443));
            client.expect("out");
        });
    });
}

#[test]
fn what_is_there_is_not_made_twice_and_comes_again_when_a_client_is_gone() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let wanted = [Socket::HttpProxy, Socket::Port(443), Socket::AllPorts, Socket::DnsUdp];
        drop(listen(&mut keeper, &room, &wanted).expect("they are made"));
        // Nobody has them but the keeper, and a connection waits in the queue.
        let mut client = room.python(CLIENT, &[]);
        client.say(&format!("tcp {V4} 443"));
        let (reply, handles) =
            keeper.call(Request::Sockets { session: room.id() }).expect("the keeper has them");
        assert_eq!(reply, Reply::Listening(wanted.to_vec()));
        assert_eq!(handles.len(), wanted.len());
        let all = handles.into_iter().nth(2).map(TcpListener::from).expect("four");
        assert_eq!(serve(&all, "later"), address(V4, 443));
        client.expect("later");
        drop(all);
        let again = listen(&mut keeper, &room, &[Socket::AllPorts, Socket::Port(22)]);
        let all = again.expect("one is kept, one is new").into_iter().next().map(TcpListener::from);
        client.say(&format!("tcp {V6} 22"));
        assert_eq!(serve(&all.expect("two"), "again"), address(V6, 22));
        client.expect("again");
    });
}

#[test]
fn a_socket_that_leads_inwards_reaches_a_server_of_the_session() {
    as_everybody(|bench| {
        in_each(bench, |keeper, room| {
            let mut server = room.python(SERVER, &["127.0.0.1", "8080"]);
            server.expect("listens");
            let two = listen(keeper, room, &[Socket::Inward, Socket::Inward]).expect("made");
            for socket in two {
                rustix::io::ioctl_fionbio(&socket, false).expect("it is a socket");
                rustix::net::connect(&socket, &address("127.0.0.1", 8080)).expect("it listens");
                let mut stream = TcpStream::from(socket);
                stream.write_all(b"hello").expect("it hears");
                let mut said = String::new();
                stream.read_to_string(&mut said).expect("it speaks");
                assert_eq!(said, "own");
            }
            let kept = ask(keeper, Request::Sockets { session: room.id() });
            assert_eq!(kept, Ok(Reply::Listening(Vec::new())));
            // A session that only publishes a port has no way out.
            let mut client = room.python(CLIENT, &[]);
            client.say(&format!("tcp {V4} 443"));
            client.expect("ENETUNREACH");
        });
    });
}

#[test]
fn sockets_of_one_session_are_not_those_of_another() {
    as_everybody(|bench| {
        let (mut keeper, mut room) = bench.room();
        let mut other = Room::make(&mut keeper, new_plan());
        let first = TcpListener::from(one(&mut keeper, &room, Socket::AllPorts));
        let mut stranger = other.python(CLIENT, &[]);
        stranger.say(&format!("tcp {V4} 443"));
        stranger.expect("ENETUNREACH");
        stranger.say("tcp 127.0.0.1 1023");
        stranger.expect("ECONNREFUSED");
        let second = TcpListener::from(one(&mut keeper, &other, Socket::AllPorts));
        let mut client = room.python(CLIENT, &[]);
        for (who, listener, answer) in
            [(&mut client, &first, "first"), (&mut stranger, &second, "second")]
        {
            who.say(&format!("tcp {V4} 443"));
            assert_eq!(serve(listener, answer), address(V4, 443));
            who.expect(answer);
        }
    });
}

#[test]
fn more_sockets_than_fit_are_refused_and_as_many_as_fit_are_made() {
    as_everybody(|bench| {
        let (mut keeper, room) = bench.room();
        let ports = |count: u16| (0..count).map(|n| Socket::Port(2000 + n)).collect::<Vec<_>>();
        let refused = listen(&mut keeper, &room, &ports(121)).expect_err("too many");
        assert_eq!(refused.code, FailureCode::SocketRefused);
        let all = listen(&mut keeper, &room, &ports(120)).expect("they fit");
        for (index, socket) in all.into_iter().enumerate() {
            let at = TcpListener::from(socket).local_addr().expect("it is bound");
            assert_eq!(usize::from(at.port()), 2000 + index);
        }
        let refused = listen(&mut keeper, &room, &[Socket::Socks]).expect_err("too many");
        assert_eq!(refused.code, FailureCode::SocketRefused);
    });
}

/// What a process holds or is in, as the kernel names it.
fn held_by(pid: &str) -> Vec<String> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let paths = files.map(|file| file.path()).chain([format!("/proc/{pid}/ns/net").into()]);
    let links = paths.filter_map(|path| std::fs::read_link(path).ok());
    links.map(|link| link.to_string_lossy().into_owned()).collect()
}

/// Whether a process holds one of these or is in it.
fn is_held(names: &[String]) -> bool {
    let entries = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut pids = pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    pids.any(|pid| held_by(&pid).iter().any(|held| names.contains(held)))
}

#[test]
fn a_session_that_ends_leaves_neither_sockets_nor_a_network() {
    as_everybody(|bench| {
        let (mut keeper, _first) = bench.room();
        // From the second session on the keeper leaves the network for that of the next one.
        let room = Room::make(&mut keeper, new_plan());
        let network = std::fs::read_link(format!("/proc/{}/ns/net", room.status.init));
        let network = network.expect("PID 1 is visible").to_string_lossy().into_owned();
        let wanted = [Socket::HttpProxy, Socket::DnsUdp, Socket::AllPorts, Socket::Diagnostics];
        let handles = listen(&mut keeper, &room, &wanted).expect("they are made");
        let inode = |handle| rustix::fs::fstat(handle).expect("it is open").st_ino;
        let mut names: Vec<String> =
            handles.iter().map(|handle| format!("socket:[{}]", inode(handle))).collect();
        names.push(network);
        drop(handles);
        for name in &names {
            assert!(is_held(std::slice::from_ref(name)), "{name} is not seen while it is there");
        }
        ask(&mut keeper, Request::Destroy { session: room.id() }).expect("it ends");
        let gone = ask(&mut keeper, Request::Sockets { session: room.id() });
        assert_eq!(gone.expect_err("it is gone").code, FailureCode::NoSession);
        assert!(eventually(|| !is_held(&names)), "{names:?}");
    });
}
