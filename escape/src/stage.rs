//! The host's side: folders, canaries, and listeners that hear every byte that gets out.
//!
//! Everything belongs to the person whose session is attacked, so that nothing but the session's
//! walls stands between an attack and its aim.

use crate::raw::{self, at, flags, into, of, open_by, signed};
use crate::scene::{CANARY, Lost};
use crate::town::Town;
use cowork_testbed::{Folder, Person};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::Mode;
use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The program's name in the granted folder.
pub(crate) const KIT: &str = "mnt/kit/cowork-escape";
/// Whom the planted set-user-ID program belongs to: neither person.
pub(crate) const STRANGER: u32 = 54_399;

/// One run of an attack, as the host saw it.
#[derive(Debug, Default)]
pub(crate) struct Shot {
    pub token: String,
    /// Whether the attack believes that it won.
    pub claimed: bool,
    /// What the attack said of itself.
    pub said: String,
    /// What the process that was aimed at said.
    pub victim: String,
    /// What arrived as input of the terminal.
    pub typed: String,
    /// What the host saw afterwards in what it did with the session; nothing on the bare host.
    pub afterwards: Option<Vec<String>>,
    /// Most processes of the attack at once, where they are counted.
    pub most: usize,
}

/// The host's side of one person's sessions.
#[derive(Debug)]
pub(crate) struct Stage {
    pub person: Person,
    folder: Folder,
    heard: Heard,
    objects: Objects,
    abstract_name: String,
    tcp: u16,
    tcp6: u16,
    udp: u16,
    /// Where something listens beside the network, and the number of this computer there: nothing
    /// where the kernel has none of that.
    vsock: [u32; 2],
    /// The port that sessions may reach whose attack is made online.
    pub allowed: u16,
    /// A proxy that believes everything.
    proxy: u16,
    /// What must stay open while an attack runs.
    pub kept: Mutex<Vec<OwnedFd>>,
    scratch: [PathBuf; 2],
    /// The small internet, from the first attack in it on.
    town: OnceLock<Result<Town, Lost>>,
    /// How often each race is tried; as often as a short time allows without it.
    pub tries: Option<u64>,
}

/// Bytes that arrived at any listener of the host.
#[derive(Clone, Debug, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl Heard {
    fn add(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
    }

    fn includes(&self, token: &str) -> bool {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.windows(token.len()).any(|window| window == token.as_bytes())
    }

    /// Hears whatever each connection says, one after the other, so that what was said first is
    /// heard first. A connection that says nothing for a while is left.
    fn listen<C: Read + AsFd>(
        &self,
        mut accept: impl FnMut() -> std::io::Result<C> + Send + 'static,
    ) {
        const SILENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
        let heard = self.clone();
        std::thread::spawn(move || {
            loop {
                // A connection that failed before it was accepted is not the listener's end.
                let Ok(mut connection) = accept() else { continue };
                let mut buffer = [0; 256];
                loop {
                    let mut wait = [PollFd::new(&connection, PollFlags::IN)];
                    if !matches!(poll(&mut wait, Some(&SILENCE)), Ok(1..)) {
                        break;
                    }
                    let Ok(length @ 1..) = connection.read(&mut buffer) else { break };
                    heard.add(buffer.get(..length).unwrap_or_default());
                }
            }
        });
    }
}

impl Stage {
    /// Sets up everything for one person.
    pub(crate) fn new(person: Person, tries: Option<u64>) -> Result<Self, Lost> {
        let folder = Folder::new(person, "stand");
        folder.write("mnt/locked/canary", CANARY);
        folder.write("mnt/locked/movable", CANARY);
        folder.write("outside/canary", CANARY);
        folder.write("outside/made/.keep", "");
        folder.write("outside/stdin", CANARY);
        folder.write("outside/victim-program", "");
        let unique = format!("cowork-escape-{}-{}", std::process::id(), person.uid());
        let heard = Heard::default();
        let stage = Self {
            person,
            tries,
            objects: Objects::new(person)?,
            abstract_name: unique.clone(),
            tcp: listen_tcp(&heard, SocketAddr::from(([0, 0, 0, 0], 0)))?,
            tcp6: listen_tcp(&heard, SocketAddr::from((Ipv6Addr::LOCALHOST, 0)))?,
            udp: listen_udp(&heard)?,
            vsock: listen_vsock(&heard).unwrap_or_default(),
            allowed: listen_tcp(&heard, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?,
            proxy: crate::gullible::open(|_| {})?,
            kept: Mutex::default(),
            town: OnceLock::new(),
            scratch: [Path::new("/dev/shm").join(&unique), Path::new("/tmp").join(&unique)],
            heard,
            folder,
        };
        stage.install_programs()?;
        stage.plant_links()?;
        stage.listen_unix()?;
        for path in &stage.scratch {
            std::fs::write(path, CANARY)?;
        }
        Ok(stage)
    }

    /// A path of the stand, on the host.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The small internet.
    pub(crate) fn town(&self) -> Result<&Town, Lost> {
        self.town.get_or_init(|| Town::new(self.person)).as_ref().map_err(Clone::clone)
    }

    /// Removes the sessions of the small internet, if there is one.
    pub(crate) fn close_town(&self) {
        if let Some(Ok(town)) = self.town.get() {
            town.close();
        }
    }

    /// Whether one of these ears of the small internet heard a text. What an attack believes to have
    /// sent may still be on its way.
    pub(crate) fn ears(&self, shot: &Shot, which: &[&str], text: &str) -> Option<String> {
        let ears = &self.town().ok()?.ears;
        let patience = Duration::from_millis(if shot.claimed { 300 } else { 100 });
        let begin = Instant::now();
        while begin.elapsed() < patience {
            if let Some(ear) = which.iter().find(|ear| ears.count(ear, text) > 0) {
                return Some(format!("the ear `{ear}` heard it"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// Whether a listener of the host heard the token. What an attack believes to have sent may
    /// still be on its way.
    pub(crate) fn heard(&self, shot: &Shot) -> Option<String> {
        let patience = Duration::from_millis(if shot.claimed { 1000 } else { 30 });
        let begin = Instant::now();
        while begin.elapsed() < patience {
            if self.heard.includes(&shot.token) {
                return Some("a listener of the host heard it".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// What an attack is told about the host.
    pub(crate) fn words(&self, token: &str) -> Vec<String> {
        let [shm, tmp] = &self.scratch;
        let values = [
            ("token", token.to_owned()),
            ("outside", self.path("outside").display().to_string()),
            ("home", self.person.home().display().to_string()),
            ("abstract", self.abstract_name.clone()),
            ("tcp", self.tcp.to_string()),
            ("tcp6", self.tcp6.to_string()),
            ("udp", self.udp.to_string()),
            ("vsock", self.vsock[0].to_string()),
            ("vsock-own", self.vsock[1].to_string()),
            ("allowed", self.allowed.to_string()),
            ("proxy", self.proxy.to_string()),
            ("address", own_address().unwrap_or_default()),
            ("key", self.objects.key.to_string()),
            ("queue", self.objects.queue.clone()),
            ("shm", shm.display().to_string()),
            ("tmp", tmp.display().to_string()),
            ("oom-score", oom_score().unwrap_or_default()),
            ("tries", self.tries.unwrap_or_default().to_string()),
            ("handle", handle_of(&self.path("outside/canary")).unwrap_or_default()),
        ];
        values.into_iter().map(|(key, value)| format!("{key}={value}")).collect()
    }

    fn install_programs(&self) -> Result<(), Lost> {
        let own = std::env::current_exe()?;
        let mut places = vec![(KIT, 0o755), ("outside/victim-program", 0o755)];
        places.extend([("mnt/yard/set-uid", 0o4755), ("mnt/yard/file-capability", 0o755)]);
        for (name, mode) in places {
            let path = self.path(name);
            std::fs::create_dir_all(path.parent().unwrap_or(&path))?;
            std::fs::copy(&own, &path)?;
            let owner = if mode == 0o4755 { STRANGER } else { self.person.uid() };
            self.own_parents(&path)?;
            chown(&path, Some(owner), Some(owner))?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
        }
        let capable = raw::text(&self.path("mnt/yard/file-capability").display().to_string())?;
        let value = file_capability();
        let registers =
            [of(&capable), of(c"security.capability"), at(value.as_slice()), value.len(), 0];
        raw::call(libc::SYS_setxattr, &registers)?;
        Ok(())
    }

    /// Gives a path and its folders up to the stand to the person.
    pub(crate) fn own_parents(&self, path: &Path) -> Result<(), Lost> {
        let mut part = path.to_path_buf();
        while part != self.folder.path() {
            std::os::unix::fs::lchown(&part, Some(self.person.uid()), Some(self.person.uid()))?;
            part.pop();
        }
        Ok(())
    }

    /// Links that lead out of the granted folder, and names that the engine uses itself.
    fn plant_links(&self) -> Result<(), Lost> {
        let outside = self.path("outside").display().to_string();
        let links = [
            ("absolute", format!("{outside}/canary")),
            ("upwards", "../../../outside/canary".to_owned()),
            ("far-upwards", format!("../../../../../../../../../..{outside}/canary")),
            ("proc-root", format!("/proc/self/root{outside}/canary")),
            ("proc-cwd", "/proc/self/cwd/outside/canary".to_owned()),
            ("first-root", format!("/proc/1/root{outside}/canary")),
            ("mnt", format!("{outside}/made")),
            ("outputs", format!("{outside}/made")),
            ("sessions", format!("{outside}/made")),
            ("proc", format!("{outside}/made")),
        ];
        for (name, to) in links {
            let path = self.path("mnt/yard/planted").join(name);
            std::fs::create_dir_all(self.path("mnt/yard/planted"))?;
            symlink(to, &path)?;
            self.own_parents(&path)?;
        }
        // Homes that a session before this one has prepared.
        for (home, name) in [("home-mnt", "mnt"), ("home-up", "mnt")] {
            self.folder.write(&format!("{home}/.keep"), "");
            let to = if home == "home-up" { "../outside/made" } else { &*outside };
            symlink(to, self.path(home).join(name))?;
            self.own_parents(&self.path(home).join(name))?;
            if self.person == Person::Root {
                // As root, a kept home is stored as nobody.
                const NOBODY: u32 = 65_534;
                for path in [self.path(home), self.path(home).join(name)] {
                    std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY))?;
                }
            }
        }
        self.folder.write("outside/prelinked", CANARY);
        std::fs::hard_link(self.path("outside/prelinked"), self.path("mnt/yard/prelinked"))?;
        Ok(())
    }

    /// Sockets of the host in the granted folders, and one without a file.
    fn listen_unix(&self) -> Result<(), Lost> {
        for name in ["mnt/yard/host.sock", "mnt/locked/host.sock"] {
            let listener = UnixListener::bind(self.path(name))?;
            self.heard.listen(move || listener.accept().map(|(connection, _)| connection));
        }
        let address = UnixAddress::from_abstract_name(&self.abstract_name)?;
        let listener = UnixListener::bind_addr(&address)?;
        self.heard.listen(move || listener.accept().map(|(connection, _)| connection));
        let heard = self.heard.clone();
        let datagrams = UnixDatagram::bind(self.path("mnt/yard/host.dgram"))?;
        std::thread::spawn(move || {
            let mut buffer = [0; 256];
            while let Ok(length) = datagrams.recv(&mut buffer) {
                heard.add(buffer.get(..length).unwrap_or_default());
            }
        });
        self.listen_seqpacket()?;
        symlink("host.sock", self.path("mnt/yard/link.sock"))?;
        std::fs::hard_link(self.path("mnt/yard/host.sock"), self.path("mnt/yard/hard.sock"))?;
        for name in ["yard/host.sock", "yard/host.seq", "yard/host.dgram", "locked/host.sock"] {
            let path = self.path("mnt").join(name);
            chown(&path, Some(self.person.uid()), Some(self.person.uid()))?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))?;
        }
        Ok(())
    }

    fn listen_seqpacket(&self) -> Result<(), Lost> {
        use rustix::net::{
            AddressFamily, SocketAddrUnix, SocketType, accept, bind, listen, socket,
        };
        let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
        bind(&listener, &SocketAddrUnix::new(self.path("mnt/yard/host.seq"))?)?;
        listen(&listener, 16)?;
        self.heard.listen(move || Ok(std::fs::File::from(accept(&listener)?)));
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for path in &self.scratch {
            drop(std::fs::remove_file(path));
        }
        // What attacks left that were killed in the middle.
        let own = format!("token{}x", std::process::id());
        for folder in ["/tmp", "/dev/shm"] {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().contains(&own) {
                    cowork_sys::ignore(std::fs::remove_file(entry.path()));
                    cowork_sys::ignore(std::fs::remove_dir_all(entry.path()));
                }
            }
        }
    }
}

/// How readily the kernel would end this process, which is as it is for the person's others.
fn oom_score() -> Option<String> {
    let score = std::fs::read_to_string("/proc/self/oom_score_adj").ok()?;
    Some(score.trim().to_owned())
}

/// `vfs_cap_data` of revision 2: `CAP_NET_RAW`, permitted and effective.
pub(crate) fn file_capability() -> Vec<u8> {
    let words = [0x0200_0001u32, 1 << 13, 0, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn listen_tcp(heard: &Heard, address: SocketAddr) -> Result<u16, Lost> {
    let listener = TcpListener::bind(address)?;
    let port = listener.local_addr()?.port();
    heard.listen(move || listener.accept().map(|(connection, _)| connection));
    Ok(port)
}

fn listen_udp(heard: &Heard) -> Result<u16, Lost> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let port = socket.local_addr()?.port();
    let heard = heard.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok(length) = socket.recv(&mut buffer) {
            heard.add(buffer.get(..length).unwrap_or_default());
        }
    });
    Ok(port)
}

/// An address beside the network, as the kernel takes it.
pub(crate) fn vsock_address(port: u32, computer: u32) -> Vec<u8> {
    let family = (libc::AF_VSOCK as u16).to_ne_bytes();
    let numbers = [port.to_ne_bytes(), computer.to_ne_bytes(), [0; 4]].concat();
    [&family[..], &[0, 0], &numbers].concat()
}

/// Listens beside the network, on any port; says which, and this computer's number.
fn listen_vsock(heard: &Heard) -> Result<[u32; 2], Lost> {
    const OWN_NUMBER: usize = 0x7b9;
    let kind = [flags(libc::AF_VSOCK), flags(libc::SOCK_STREAM), 0];
    let listener = open_by(libc::SYS_socket, &kind)?;
    let number = signed(listener.as_raw_fd());
    let any = vsock_address(u32::MAX, u32::MAX);
    raw::call(libc::SYS_bind, &[number, at(any.as_slice()), any.len()])?;
    raw::call(libc::SYS_listen, &[number, 8])?;
    let (mut bound, mut length) = ([0u8; 16], 16u32);
    raw::call(libc::SYS_getsockname, &[number, into(&mut bound), into(&mut length)])?;
    let port = bound[4..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    let mut own = 1u32;
    if let Ok(device) = std::fs::File::open("/dev/vsock") {
        let registers = [signed(device.as_raw_fd()), OWN_NUMBER, into(&mut own)];
        cowork_sys::ignore(raw::call(libc::SYS_ioctl, &registers));
    }
    heard.listen(move || {
        let number = signed(listener.as_raw_fd());
        Ok(std::fs::File::from(open_by(libc::SYS_accept, &[number, 0, 0])?))
    });
    Ok([port, own])
}

/// An address of this host that is not its loopback's. Nothing is sent to find it.
fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}

/// The number by which the kernel finds a file without any path.
fn handle_of(path: &Path) -> Option<String> {
    let name = raw::text(&path.display().to_string()).ok()?;
    let mut handle = [0u8; 8 + 128];
    handle.first_chunk_mut::<4>()?.copy_from_slice(&128u32.to_ne_bytes());
    let mut mount = 0i32;
    let registers = [signed(libc::AT_FDCWD), of(&name), into(&mut handle), into(&mut mount), 0];
    raw::call(libc::SYS_name_to_handle_at, &registers).ok()?;
    let length = 8 + u32::from_ne_bytes(*handle.first_chunk()?) as usize;
    let bytes = handle.get(..length)?;
    Some(bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")))
}

/// Objects of the host that have names of their own: removed at the end.
#[derive(Debug)]
struct Objects {
    key: usize,
    shared: usize,
    semaphores: usize,
    messages: usize,
    queue: String,
    opened: OwnedFd,
}

impl Objects {
    fn new(person: Person) -> Result<Self, Lost> {
        let key = 0x00c0_0000 + (std::process::id() as usize) * 2 + usize::from(person.uid() != 0);
        let create = flags(libc::IPC_CREAT | 0o666);
        let shared = raw::call(libc::SYS_shmget, &[key, 4096, create])?;
        let address = raw::call(libc::SYS_shmat, &[shared, 0, 0])?;
        let place = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the kernel has just mapped a page of 4096 bytes there.
        unsafe { std::ptr::copy_nonoverlapping(CANARY.as_ptr(), place, CANARY.len()) };
        raw::call(libc::SYS_shmdt, &[address])?;
        let semaphores = raw::call(libc::SYS_semget, &[key, 1, create])?;
        let messages = raw::call(libc::SYS_msgget, &[key, create])?;
        let queue = format!("cowork-escape-{key}");
        let name = raw::text(&queue)?;
        let open = flags(libc::O_CREAT | libc::O_RDWR);
        let handle = open_by(libc::SYS_mq_open, &[of(&name), open, 0o666, 0])?;
        rustix::fs::fchmod(&handle, Mode::from_raw_mode(0o666))?;
        let objects = Self { key, shared, semaphores, messages, queue, opened: handle };
        objects.fill()?;
        Ok(objects)
    }

    /// Puts the canary into the queues, many times: each bare control takes one out.
    fn fill(&self) -> Result<(), Lost> {
        let mut message = 1u64.to_ne_bytes().to_vec();
        message.extend_from_slice(CANARY.as_bytes());
        for _ in 0..8 {
            let registers = [self.messages, at(message.as_slice()), CANARY.len(), 0];
            raw::call(libc::SYS_msgsnd, &registers)?;
            let queue = signed(self.opened.as_raw_fd());
            let registers = [queue, at(CANARY), CANARY.len(), 0, 0];
            raw::call(libc::SYS_mq_timedsend, &registers)?;
        }
        Ok(())
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        let remove = flags(libc::IPC_RMID);
        cowork_sys::ignore(raw::call(libc::SYS_shmctl, &[self.shared, remove, 0]));
        cowork_sys::ignore(raw::call(libc::SYS_semctl, &[self.semaphores, 0, remove, 0]));
        cowork_sys::ignore(raw::call(libc::SYS_msgctl, &[self.messages, remove, 0]));
        if let Ok(name) = raw::text(&self.queue) {
            cowork_sys::ignore(raw::call(libc::SYS_mq_unlink, &[of(&name)]));
        }
    }
}
