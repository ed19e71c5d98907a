//! What the way out of a session costs, in turns with a connection that has no way to go, and with
//! what others put in the way.
//!
//! Everything happens at the loopback of this host: the server, the clients, and what is between
//! them. Clients inside and outside of sessions are the same program. What cannot be had here is
//! printed as missing.

mod alone;
mod client;
mod contender;
pub(crate) mod cost;
pub(crate) mod decisions;
pub(crate) mod line;
mod ours;
mod peers;
mod server;
mod way;

use crate::book::Book;
use crate::memory::{MIB, to_f64};
use crate::options::{Effort, Options};
use crate::site::Site;
use crate::stopped::Stopped;
use contender::{Contender, Counted, Test};
use line::{Line, Running};
use ours::{By, Ours};
use peers::Proxy;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

/// The section of the results.
pub(crate) const TITLE: &str = "the way out of a session";

pub(crate) const DIRECT: &str = "direct";
/// What a session costs without a way out.
const WITHIN: &str = "within a session";
/// What any process in between costs here.
const RELAY: &str = "a relay that decides nothing";
pub(crate) const SOCATS: &str = "two socats";
/// The same process behind what others put before theirs.
pub(crate) const SOCATS_OURS: &str = "two socats to cowork-egress, CONNECT";
pub(crate) const BY_NAME: &str = "cowork, by name";
pub(crate) const BY_ADDRESS: &str = "cowork, address known";
pub(crate) const CONNECT: &str = "cowork, CONNECT";
pub(crate) const SRT: &str = "srt";
pub(crate) const TLS_DIRECT: &str = "TLS, direct";
pub(crate) const TLS_INSPECTED: &str = "TLS, cowork, inspected";
pub(crate) const TLS_MITMPROXY: &str = "TLS, mitmproxy";
/// Memory of the process that is a session's way out.
pub(crate) const IDLE: &str = "memory of cowork-egress, idle";

/// Many bytes over one connection.
pub(crate) fn bulk(who: &str) -> String {
    format!("bulk transfer: {who}")
}

/// A connection with one request.
pub(crate) fn new(who: &str) -> String {
    format!("new connection: {who}")
}

/// The same where whoever is between has no connection to the server yet.
pub(crate) fn cold(who: &str) -> String {
    format!("cold connection: {who}")
}

/// A request over a connection that is there.
pub(crate) fn kept(who: &str) -> String {
    format!("kept connection: {who}")
}

/// A connection with one request, by the time in which many are made at once.
pub(crate) fn crowd(who: &str) -> String {
    format!("connection, 16 at a time: {who}")
}

/// Processor time.
pub(crate) fn processor(who: &str) -> String {
    format!("processor time: {who}")
}

fn flows(number: u64, who: &str) -> String {
    format!("concurrent, {number}: {who}")
}

/// The time in which many connections were opened, or used once more.
fn crowded(number: u64, what: &str, who: &str) -> String {
    format!("concurrent, {number}, {what}: {who}")
}

/// Memory of whatever is on the way, while many connections are open.
fn crowded_memory(number: u64, who: &str) -> String {
    format!("memory on the way, {number} open: {who}")
}

/// What this program is when it is started for a part of the work; nothing for the whole.
pub(crate) fn role(words: &[String]) -> Option<Result<(), Stopped>> {
    match words {
        [role, rest @ ..] if role == "net-client" => Some(client::serve(rest)),
        [role, folder] if role == "net-server" => Some(server::serve(folder.as_ref())),
        _ => None,
    }
}

/// Lets this process have as many files open as it may.
fn many_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where that is not allowed, fewer connections are made, and that is seen.
    cowork_sys::ignore(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }));
}

/// The server, and the clients' program.
struct Place<'a> {
    site: &'a Site,
    /// Has the clients' program and the certificate of the server's authority.
    folder: PathBuf,
    far: Far,
}

/// The server.
struct Far {
    line: Line,
    /// For plain connections, and for TLS that is tunnelled and inspected on the way.
    ports: [u16; 3],
}

impl Far {
    fn speaks_tls(&self, port: u16) -> bool {
        self.ports.iter().skip(1).any(|tls| *tls == port)
    }
}

impl<'a> Place<'a> {
    fn prepare(site: &'a Site) -> Result<Self, Stopped> {
        let folder = site.at("net");
        let program = folder.join("client");
        let failed = |error: std::io::Error| Stopped::at(program.display(), error);
        std::fs::create_dir(&folder).map_err(failed)?;
        std::fs::copy(std::env::current_exe().map_err(failed)?, &program).map_err(failed)?;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, mode).map_err(failed)?;
        let mut command = site.command(&program);
        let mut line = Line::start(command.arg("net-server").arg(&folder))?;
        let ports = ports(&line.hear()?)?;
        Ok(Self { site, folder, far: Far { line, ports } })
    }

    /// A client outside of any session.
    fn client(&self, kind: &str, host: &str, port: u16) -> Command {
        let mut command = self.site.command(self.folder.join("client"));
        command.current_dir(&self.folder).args(["net-client", kind, host]).arg(port.to_string());
        command.args(self.far.speaks_tls(port).then_some(server::CERTIFICATE));
        command
    }
}

/// The ports that a server has printed.
fn ports(said: &str) -> Result<[u16; 3], Stopped> {
    let ports: Result<Vec<u16>, _> = said.split_whitespace().map(str::parse).collect();
    let ports = ports.map_err(|error| Stopped::at("the server's ports", error))?;
    ports.try_into().map_err(|_other| Stopped::new("the server has no ports"))
}

/// Those who take turns.
struct Field<'a> {
    effort: Effort,
    /// By titles, in the order in which they came.
    order: Vec<&'static str>,
    contenders: Vec<Contender>,
    book: &'a mut Book,
}

impl Field<'_> {
    /// Adds somebody, or says why not.
    fn add(
        &mut self,
        title: &'static str,
        started: Result<(Line, (Counted, Vec<Running>)), Stopped>,
    ) {
        self.order.push(title);
        let proved = started
            .and_then(|(client, through)| Contender::prove(title, client, through, self.effort));
        match proved {
            Ok(contender) => self.contenders.push(contender),
            Err(stopped) => self.book.absent(&bulk(title), &stopped.to_string()),
        }
    }

    /// Puts everybody where they were at first.
    fn in_order(&mut self) {
        let place = |who: &Contender| self.order.iter().position(|title| *title == who.title());
        self.contenders.sort_by_key(place);
    }

    /// Lets everybody do something; who fails is out, and is said to be.
    fn all(&mut self, mut act: impl FnMut(&mut Contender, &mut Book) -> Result<(), Stopped>) {
        self.contenders.retain_mut(|contender| match act(contender, self.book) {
            Ok(()) => true,
            Err(stopped) => {
                let name = format!("{} (out)", contender.title());
                self.book.absent(&name, &stopped.to_string());
                false
            }
        });
    }
}

pub(crate) fn measure(site: &Site, options: &Options, book: &mut Book) -> Result<(), Stopped> {
    let place = Place::prepare(site)?;
    let effort = options.effort;
    decisions::measure(effort, book)?;
    let mut field = Field { effort, order: Vec::new(), contenders: Vec::new(), book };
    let direct = |port: u16| {
        let line = Line::start(&mut place.client("known", "127.0.0.1", port))?;
        Ok((line, (Counted::default(), Vec::new())))
    };
    let [plain, tls, _] = place.far.ports;
    field.add(DIRECT, direct(plain));
    let ours = match Ours::start(&place) {
        Ok(ours) => Some(ours),
        Err(stopped) => {
            field.book.absent("a session with a network", &stopped.to_string());
            None
        }
    };
    let inner = ours.as_ref().map(|ours| ours.inner_server(&place));
    if let Some(ours) = &ours {
        memory(IDLE, ours, field.book);
        match &inner {
            Some(Ok((_, port))) => {
                let line = Line::start(&mut ours.client(&place, By::Within, *port));
                field.add(WITHIN, line.map(|line| (line, (Counted::unseen(), Vec::new()))));
            }
            Some(Err(stopped)) => field.book.absent(&bulk(WITHIN), &stopped.to_string()),
            None => {}
        }
        enter(&place, ours, &mut field);
    }
    field.add(RELAY, peers::bare_relay(&place));
    field.add(SOCATS, peers::two_socats(&place));
    field.add(SOCATS_OURS, peers::two_socats_to_ours(&place));
    field.add(SRT, peers::srt(&place));
    for proxy in Proxy::PLAIN {
        field.add(proxy.title(), proxy.start(&place));
    }
    field.add(TLS_DIRECT, direct(tls));
    if let Some(ours) = &ours {
        enter_tls(&place, ours, &mut field);
    }
    field.add(TLS_MITMPROXY, Proxy::MitmproxyInspecting.start(&place));
    run(&place, ours.as_ref(), &mut field);
    drop((field, inner));
    ours.map_or(Ok(()), Ours::end)
}

/// Clients in the session whose connections are not looked into.
fn enter(place: &Place<'_>, ours: &Ours, field: &mut Field<'_>) {
    let [plain, ..] = place.far.ports;
    for (title, by) in [
        (BY_NAME, By::Name),
        (BY_ADDRESS, By::Address),
        (CONNECT, By::Connect),
        ("cowork, SOCKS", By::Socks),
        ("cowork, absolute form", By::Forward),
    ] {
        let line = Line::start(&mut ours.client(place, by, plain));
        field.add(title, line.map(|line| (line, (ours.counted(), Vec::new()))));
    }
}

/// Clients in the session that speak TLS.
fn enter_tls(place: &Place<'_>, ours: &Ours, field: &mut Field<'_>) {
    let [_, tunnelled, inspected] = place.far.ports;
    for (title, port) in [("TLS, cowork, tunnelled", tunnelled), (TLS_INSPECTED, inspected)] {
        let line = Line::start(&mut ours.client(place, By::Address, port));
        field.add(title, line.map(|line| (line, (ours.counted(), Vec::new()))));
    }
}

/// All turns of everybody.
fn run(place: &Place<'_>, ours: Option<&Ours>, field: &mut Field<'_>) {
    let effort = field.effort;
    let server = place.far.line.pid();
    for round in 0..effort.pick(2, 12) {
        for test in Test::all(effort) {
            field.all(|contender, book| contender.turn((round, test), server, book));
        }
        field.all(|contender, book| match contender.title() {
            BY_NAME => contender.names(effort.pick(20, 100), "look-up of a name: cowork", book),
            _ => Ok(()),
        });
        if !field.contenders.is_empty() {
            field.contenders.rotate_left(1);
        }
    }
    field.in_order();
    for note in [Contender::speed, Contender::rate, Contender::cost] {
        field.all(|contender, book| {
            note(contender, effort, book);
            Ok(())
        });
    }
    for number in &[1, 10, 100, 1000] {
        field.all(|contender, book| {
            let ours = ours.filter(|_| contender.title() == BY_ADDRESS);
            contender.flows(*number, book, |book| {
                if let Some(ours) = ours {
                    memory(&format!("memory of cowork-egress, {number} open"), ours, book);
                }
            })
        });
    }
    if let Some(ours) = ours {
        memory("memory of cowork-egress, after all that", ours, field.book);
    }
}

fn memory(row: &str, ours: &Ours, book: &mut Book) {
    match cost::memory_of(ours.egress) {
        Ok((bytes, how)) => book.value(row, to_f64(bytes) / MIB, "MiB", how),
        Err(why) => book.absent(row, &why),
    }
}
