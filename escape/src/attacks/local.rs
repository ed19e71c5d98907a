//! Sockets of the host that lie in a granted folder, and sockets of the session's own.

use crate::attack::{Attack, Permitted, layer};
use crate::attacks::burrow::own_user_namespace;
use crate::raw::{at, call, flags, in_fork, into, of, open_by, signed, text};
use crate::scene::{CANARY, LOCKED, Lost, Outcome, Scene, YARD, canary_in};
use crate::stage::{Shot, Stage};
use rustix::fd::{AsRawFd, OwnedFd};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};

const CLASS: &str = "host sockets";
const BROKER: &[(&str, &str)] = &[
    ("EACCES", layer::BROKER),
    ("ELOOP", layer::BROKER),
    ("ECONNREFUSED", layer::NETWORK),
    ("EPERM", layer::LANDLOCK),
    ("ENOENT", layer::BROKER),
    ("swapped", layer::BROKER),
];
const NO_DATAGRAMS: &[(&str, &str)] = &[("EPERM", layer::FILTER)];

const fn reach(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new(CLASS, name, act, BROKER).judged(heard)
}

const fn own(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new("own sockets", name, act, &[]).permitted(Permitted::Required)
}

pub(crate) const TABLE: &[Attack] = &[
    reach("reach.stream", |scene| say(scene, libc::SOCK_STREAM, &path("host.sock"))),
    reach("reach.seqpacket", |scene| say(scene, libc::SOCK_SEQPACKET, &path("host.seq"))),
    reach("reach.in-read-only-folder", |scene| {
        say(scene, libc::SOCK_STREAM, &Address::path(&format!("{LOCKED}/host.sock")))
    }),
    reach("reach.by-symbolic-link", |scene| say(scene, libc::SOCK_STREAM, &path("link.sock"))),
    reach("reach.by-hard-link", |scene| say(scene, libc::SOCK_STREAM, &path("hard.sock"))),
    reach("reach.by-own-link", by_own_link),
    reach("reach.by-proc-cwd", |scene| {
        let address = Address::path(&format!("/proc/self/cwd/{YARD}/host.sock"));
        say(scene, libc::SOCK_STREAM, &address)
    }),
    reach("reach.by-proc-root", |scene| {
        let path = std::env::current_dir()?.join(YARD).join("host.sock");
        let address = Address::path(&format!("/proc/self/root{}", path.display()));
        say(scene, libc::SOCK_STREAM, &address)
    }),
    reach("reach.by-descriptor", by_descriptor),
    reach("reach.by-folder-descriptor", by_folder_descriptor),
    reach("reach.relative", relative),
    reach("reach.dots", |scene| {
        say(scene, libc::SOCK_STREAM, &path("../yard/./../yard/host.sock"))
    }),
    reach("reach.nul-padded", nul_padded),
    reach("reach.no-nul", no_nul),
    reach("reach.renamed", renamed),
    reach("reach.race", race),
    reach("reach.abstract", |scene| {
        say(scene, libc::SOCK_STREAM, &Address::without_file(scene.get("abstract")?))
    }),
    reach("reach.with-credentials", |scene| with_credentials(scene, &path("host.sock"))),
    reach("reach.abstract-with-credentials", |scene| {
        with_credentials(scene, &Address::without_file(scene.get("abstract")?))
    }),
    reach("reach.through-own-bind-mount", through_bind),
    reach("reach.through-own-root", through_root),
    Attack::new(CLASS, "reach.datagram", datagram, NO_DATAGRAMS).judged(heard),
    Attack::new(CLASS, "reach.raw-datagram", raw_datagram, NO_DATAGRAMS).judged(heard),
    Attack::new(CLASS, "reach.datagram-pair", pair_datagram, NO_DATAGRAMS).judged(heard),
    own("own.tmp", |scene| echo(&format!("/tmp/own-{}", scene.token()?))),
    own("own.home", |scene| echo(&format!("own-{}", scene.token()?))),
    own("own.folder", |scene| echo(&scene.in_yard("own")?)),
    own("own.abstract", own_abstract),
    own("own.tcp", own_tcp),
    own("own.pair", own_pair),
];

/// An address as the kernel takes it, with the length that is passed.
pub(crate) struct Address(Vec<u8>);

impl Address {
    /// A socket with a file.
    pub(crate) fn path(path: &str) -> Self {
        Self::bytes(&[path.as_bytes(), b"\0"].concat())
    }

    /// A socket without a file.
    pub(crate) fn without_file(name: &str) -> Self {
        Self::bytes(&[b"\0", name.as_bytes()].concat())
    }

    fn bytes(name: &[u8]) -> Self {
        let family = (libc::AF_UNIX as u16).to_ne_bytes();
        Self([&family, name].concat())
    }
}

fn path(name: &str) -> Address {
    Address::path(&format!("{YARD}/{name}"))
}

fn heard(stage: &Stage, shot: &Shot) -> Option<String> {
    stage.heard(shot)
}

fn connect(kind: i32, address: &Address) -> Result<OwnedFd, Lost> {
    let socket = open_by(libc::SYS_socket, &[flags(libc::AF_UNIX), flags(kind), 0])?;
    let Address(bytes) = address;
    let registers = [signed(socket.as_raw_fd()), at(bytes.as_slice()), bytes.len()];
    call(libc::SYS_connect, &registers)?;
    Ok(socket)
}

/// A socket that wants credentials is given a name of the kernel's choice when it connects.
fn with_credentials(scene: &Scene, address: &Address) -> Outcome {
    let kind = flags(libc::SOCK_STREAM);
    let socket = open_by(libc::SYS_socket, &[flags(libc::AF_UNIX), kind, 0])?;
    rustix::net::sockopt::set_socket_passcred(&socket, true)?;
    let Address(bytes) = address;
    let registers = [signed(socket.as_raw_fd()), at(bytes.as_slice()), bytes.len()];
    call(libc::SYS_connect, &registers)?;
    rustix::io::write(&socket, scene.token()?.as_bytes())?;
    Ok("said".into())
}

fn say(scene: &Scene, kind: i32, address: &Address) -> Outcome {
    let socket = connect(kind, address)?;
    rustix::io::write(&socket, scene.token()?.as_bytes())?;
    Ok("said".into())
}

/// Connects and reads what the other side has to say.
pub(crate) fn connect_and_read(address: &Address) -> Outcome {
    let socket = connect(libc::SOCK_STREAM, address)?;
    let mut bytes = [0; 64];
    let length = rustix::io::read(&socket, &mut bytes)?;
    canary_in(bytes.get(..length).unwrap_or_default())
}

fn by_own_link(scene: &Scene) -> Outcome {
    let link = format!("/tmp/link-{}", scene.token()?);
    let to = std::env::current_dir()?.join(YARD).join("host.sock");
    std::os::unix::fs::symlink(to, &link)?;
    let said = say(scene, libc::SOCK_STREAM, &Address::path(&link));
    std::fs::remove_file(link)?;
    said
}

fn by_descriptor(scene: &Scene) -> Outcome {
    let file = text(&format!("{YARD}/host.sock"))?;
    let registers = [signed(libc::AT_FDCWD), of(&file), flags(libc::O_PATH), 0];
    let handle = open_by(libc::SYS_openat, &registers)?;
    let address = Address::path(&format!("/proc/self/fd/{}", handle.as_raw_fd()));
    say(scene, libc::SOCK_STREAM, &address)
}

fn by_folder_descriptor(scene: &Scene) -> Outcome {
    let folder = std::fs::File::open(YARD)?;
    let address = Address::path(&format!("/proc/self/fd/{}/host.sock", folder.as_raw_fd()));
    say(scene, libc::SOCK_STREAM, &address)
}

fn relative(scene: &Scene) -> Outcome {
    let yard = text(YARD)?;
    call(libc::SYS_chdir, &[of(&yard)])?;
    say(scene, libc::SOCK_STREAM, &Address::path("host.sock"))
}

fn nul_padded(scene: &Scene) -> Outcome {
    let mut name = format!("{YARD}/host.sock").into_bytes();
    name.resize(108, 0);
    say(scene, libc::SOCK_STREAM, &Address::bytes(&name))
}

/// A name that fills its place to the last byte.
fn no_nul(scene: &Scene) -> Outcome {
    let end = format!("{YARD}/host.sock");
    let mut name = "./".repeat(54).into_bytes();
    name.truncate(108 - end.len());
    if name.ends_with(b".") {
        name.pop();
        name.push(b'/');
    }
    name.extend_from_slice(end.as_bytes());
    say(scene, libc::SOCK_STREAM, &Address::bytes(&name))
}

/// Puts the host's socket where a socket of the session's own was.
fn renamed(scene: &Scene) -> Outcome {
    let mine = scene.in_yard("mine")?;
    let listener = UnixListener::bind(&mine)?;
    std::fs::remove_file(&mine)?;
    std::fs::hard_link(format!("{YARD}/host.sock"), &mine)?;
    let said = say(scene, libc::SOCK_STREAM, &Address::path(&mine));
    std::fs::remove_file(&mine)?;
    drop(listener);
    said
}

/// Swaps the address between a socket of the session's own and the host's while connecting.
fn race(scene: &Scene) -> Outcome {
    const TRIES: u32 = 3000;
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(8);
    let mine = scene.in_yard("mine")?;
    let listener = UnixListener::bind(&mine)?;
    std::thread::spawn(move || while listener.accept().is_ok() {});
    let Address(mut own) = Address::path(&mine);
    let Address(mut host) = path("host.sock");
    let length = own.len().max(host.len());
    own.resize(length, 0);
    host.resize(length, 0);
    let shared = own.clone();
    let place = at(shared.as_slice());
    let done = AtomicBool::new(false);
    let (mut own_times, mut refused_times) = (0, 0);
    let begin = std::time::Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let target = std::ptr::with_exposed_provenance_mut::<u8>(place);
            while !done.load(Ordering::Relaxed) {
                for source in [&host, &own] {
                    // SAFETY: both are `length` bytes; only the kernel reads them meanwhile.
                    unsafe { std::ptr::copy(source.as_ptr(), target, length) };
                }
            }
        });
        let mut tries = 0;
        // Both addresses must have been seen, else nothing raced.
        while tries < TRIES || (own_times.min(refused_times) < 50 && begin.elapsed() < PATIENCE) {
            tries += 1;
            let attempt = (|| {
                let kind = flags(libc::SOCK_STREAM);
                let socket = open_by(libc::SYS_socket, &[flags(libc::AF_UNIX), kind, 0])?;
                call(libc::SYS_connect, &[signed(socket.as_raw_fd()), place, length])?;
                Ok::<_, std::io::Error>(socket)
            })();
            match attempt {
                Ok(socket) => {
                    own_times += 1;
                    let token = scene.token().unwrap_or_default();
                    cowork_sys::ignore(rustix::io::write(&socket, token.as_bytes()));
                }
                Err(_) => refused_times += 1,
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    std::fs::remove_file(&mine)?;
    let swapped = if own_times.min(refused_times) == 0 { "never" } else { "swapped" };
    Err(Lost::new(format!("{swapped}: {own_times} to its own, {refused_times} refused")))
}

/// Through a mount of the attack's own making, where it can make one.
fn through_bind(scene: &Scene) -> Outcome {
    in_fork(|| {
        own_user_namespace()?;
        let place = format!("/tmp/bound-{}", scene.token()?);
        std::fs::create_dir(&place)?;
        let (from, to) = (text(YARD)?, text(&place)?);
        let how = (libc::MS_BIND | libc::MS_REC) as usize;
        let bound = call(libc::SYS_mount, &[of(&from), of(&to), 0, how, 0]);
        let folder = if bound.is_ok() { &place } else { YARD };
        let address = Address::path(&format!("{folder}/host.sock"));
        let said = say(scene, libc::SOCK_STREAM, &address);
        if bound.is_ok() {
            call(libc::SYS_umount2, &[of(&to), flags(libc::MNT_DETACH)])?;
        }
        std::fs::remove_dir(&place)?;
        said
    })
}

/// With the granted folder as its root, where it can change that.
fn through_root(scene: &Scene) -> Outcome {
    in_fork(|| {
        own_user_namespace()?;
        let yard = text(YARD)?;
        let address = match call(libc::SYS_chroot, &[of(&yard)]) {
            Ok(_) => Address::path("/host.sock"),
            Err(_) => path("host.sock"),
        };
        say(scene, libc::SOCK_STREAM, &address)
    })
}

fn send_to(scene: &Scene, socket: i32) -> Outcome {
    let token = scene.token()?;
    let Address(address) = path("host.dgram");
    let message =
        [signed(socket), at(token), token.len(), 0, at(address.as_slice()), address.len()];
    call(libc::SYS_sendto, &message)?;
    Ok("sent".into())
}

fn datagram(scene: &Scene) -> Outcome {
    let registers = [flags(libc::AF_UNIX), flags(libc::SOCK_DGRAM), 0];
    send_to(scene, open_by(libc::SYS_socket, &registers)?.as_raw_fd())
}

fn raw_datagram(scene: &Scene) -> Outcome {
    let registers = [flags(libc::AF_UNIX), flags(libc::SOCK_RAW), 0];
    send_to(scene, open_by(libc::SYS_socket, &registers)?.as_raw_fd())
}

fn pair_datagram(scene: &Scene) -> Outcome {
    let mut pair = [0i32; 2];
    let kind = flags(libc::SOCK_DGRAM);
    call(libc::SYS_socketpair, &[flags(libc::AF_UNIX), kind, 0, into(&mut pair)])?;
    let [first, _] = pair;
    send_to(scene, first)
}

/// Serves one connection with the canary.
fn serve<C: Write>(accept: impl FnOnce() -> std::io::Result<C> + Send + 'static) {
    std::thread::spawn(move || accept().and_then(|mut peer| peer.write_all(CANARY.as_bytes())));
}

fn hear(mut connection: impl Read) -> Outcome {
    let mut bytes = Vec::new();
    connection.read_to_end(&mut bytes)?;
    canary_in(&bytes).map(|_| "bytes arrived".into())
}

fn echo(path: &str) -> Outcome {
    let listener = UnixListener::bind(path)?;
    serve(move || listener.accept().map(|(peer, _)| peer));
    let heard = UnixStream::connect(path).map_err(Lost::from).and_then(hear);
    std::fs::remove_file(path)?;
    heard
}

fn own_abstract(scene: &Scene) -> Outcome {
    let address = SocketAddr::from_abstract_name(format!("own-{}", scene.token()?))?;
    let listener = UnixListener::bind_addr(&address)?;
    serve(move || listener.accept().map(|(peer, _)| peer));
    hear(UnixStream::connect_addr(&address)?)
}

fn own_tcp(_: &Scene) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    serve(move || listener.accept().map(|(peer, _)| peer));
    hear(TcpStream::connect(address)?)
}

fn own_pair(_: &Scene) -> Outcome {
    let (mut near, far) = UnixStream::pair()?;
    near.write_all(CANARY.as_bytes())?;
    drop(near);
    hear(far)
}
