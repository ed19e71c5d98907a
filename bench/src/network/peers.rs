//! What others put in the way: two relays with a UNIX socket between them, which is how the network
//! reaches a sandbox that has none of its own; proxies; and a whole sandbox of that kind.

use super::Place;
use super::contender::{Counted, Within};
use super::line::{Line, Running, free_port};
use super::server::{CERTIFICATE, NAME};
use crate::peers::Peer;
use crate::site::Site;
use crate::stopped::Stopped;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a sandbox may take until its relays serve.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a client goes through, and what ends with it.
type Through = (Counted, Vec<Running>);

/// A proxy that somebody may have installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proxy {
    Tinyproxy,
    Squid,
    Mitmproxy,
    /// It looks into TLS.
    MitmproxyInspecting,
}

impl Proxy {
    pub(super) const PLAIN: [Self; 3] = [Self::Tinyproxy, Self::Squid, Self::Mitmproxy];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Tinyproxy => "tinyproxy, CONNECT",
            Self::Squid => "squid, CONNECT",
            Self::Mitmproxy => "mitmproxy, CONNECT",
            Self::MitmproxyInspecting => super::TLS_MITMPROXY,
        }
    }

    fn program(self) -> &'static str {
        match self {
            Self::Tinyproxy => "tinyproxy",
            Self::Squid => "squid",
            Self::Mitmproxy | Self::MitmproxyInspecting => "mitmdump",
        }
    }

    /// Starts it, and a client outside of any sandbox that goes through it.
    pub(super) fn start(self, place: &Place<'_>) -> Result<(Line, Through), Stopped> {
        let program = find(place.site, self.program())?;
        let port = free_port()?;
        let mut command = place.site.command(program);
        let folder = place.site.at(&format!("{self:?}"));
        std::fs::create_dir(&folder).map_err(|error| Stopped::at(folder.display(), error))?;
        let settings = folder.join("settings");
        let write = |text: String| {
            std::fs::write(&settings, text).map_err(|e| Stopped::at(settings.display(), e))
        };
        match self {
            Self::Tinyproxy => {
                write(format!(
                    "Port {port}\nListen 127.0.0.1\nAllow 127.0.0.1\nMaxClients 2000\n\
                     Timeout 600\nLogLevel Critical\n"
                ))?;
                command.arg("-d").arg("-c").arg(&settings);
            }
            Self::Squid => {
                write(format!(
                    "http_port 127.0.0.1:{port}\nhttp_access allow all\ncache deny all\n\
                     access_log none\ncache_log /dev/null\npid_filename none\n\
                     shutdown_lifetime 0 seconds\n"
                ))?;
                command.arg("-N").arg("-f").arg(&settings);
            }
            Self::Mitmproxy | Self::MitmproxyInspecting => {
                command.args(["-q", "--listen-host", "127.0.0.1", "--listen-port"]);
                command.arg(port.to_string());
                command.arg("--set").arg(format!("confdir={}", folder.display()));
                let roots = place.folder.join(CERTIFICATE);
                let roots = format!("ssl_verify_upstream_trusted_ca={}", roots.display());
                match self {
                    Self::Mitmproxy => command.args(["--ignore-hosts", ".*"]),
                    _ => command.args(["--set", &roots]),
                };
            }
        }
        let mut running = Running::start(&mut command)?;
        running.await_port(port)?;
        let kind = format!("connect=127.0.0.1:{port}");
        let client = if self == Self::MitmproxyInspecting {
            let trusted = folder.join("mitmproxy-ca-cert.pem");
            let mut client = place.client(&kind, "127.0.0.1", place.far.ports[1]);
            client.arg(trusted);
            client
        } else {
            place.client(&kind, "127.0.0.1", place.far.ports[0])
        };
        through(client, vec![running])
    }
}

/// A process in between that decides nothing.
pub(super) fn bare_relay(place: &Place<'_>) -> Result<(Line, Through), Stopped> {
    place.site.need_built()?;
    let port = free_port()?;
    let mut command = place.site.command("./relay");
    command.arg(port.to_string()).arg(place.far.ports[0].to_string());
    let mut relay = Running::start(&mut command)?;
    relay.await_port(port)?;
    through(place.client("known", "127.0.0.1", port), vec![relay])
}

/// A client that goes through two relays, as into a sandbox without a network of its own.
pub(super) fn two_socats(place: &Place<'_>) -> Result<(Line, Through), Stopped> {
    let (port, running) = relays(place, "socat", place.far.ports[0])?;
    // The relays are where the server is, for the client.
    let client = place.client("known", "127.0.0.1", port);
    through(client, running)
}

/// The same to the proxy of an egress process.
pub(super) fn two_socats_to_ours(place: &Place<'_>) -> Result<(Line, Through), Stopped> {
    let far = place.far.ports[0];
    let (egress, proxy) = super::alone::start(place, far)?;
    let (port, mut running) = relays(place, "socat-to-ours", proxy)?;
    running.push(egress);
    let client = place.client(&format!("connect=127.0.0.1:{port}"), NAME, far);
    through(client, running)
}

/// Two relays to a port of this host's, and the port that leads there.
fn relays(place: &Place<'_>, name: &str, far: u16) -> Result<(u16, Vec<Running>), Stopped> {
    let socat = find(place.site, "socat")?;
    let socket = place.site.at(name);
    let port = free_port()?;
    let between = socket.display();
    let mut outer = place.site.command(&socat);
    outer.arg(format!("UNIX-LISTEN:{between},fork")).arg(format!("TCP:127.0.0.1:{far}"));
    let mut inner = place.site.command(&socat);
    inner.arg(format!("TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr"));
    inner.arg(format!("UNIX-CONNECT:{between}"));
    let mut outer = Running::start(&mut outer)?;
    outer.until(|| std::fs::symlink_metadata(&socket).is_ok())?;
    let mut inner = Running::start(&mut inner)?;
    inner.await_port(port)?;
    Ok((port, vec![outer, inner]))
}

/// A client in a sandbox of `srt`, with its relays and its proxy.
pub(super) fn srt(place: &Place<'_>) -> Result<(Line, Through), Stopped> {
    let site = place.site;
    let srt = Peer::Srt.find(site).ok_or_else(|| Stopped::new("missing"))?;
    let settings = site.at("srt-network.json");
    let text = r#"{"network":{"allowedDomains":["localhost"],"deniedDomains":[]},
        "filesystem":{"denyRead":[],"allowWrite":["."],"denyWrite":[]}}"#;
    std::fs::write(&settings, text).map_err(|error| Stopped::at(settings.display(), error))?;
    let mut command = site.command(srt);
    command.arg("-s").arg(settings).arg("--").arg(place.folder.join("client"));
    command.args(["net-client", "connect=env", "localhost"]).arg(place.far.ports[0].to_string());
    let mut line = Line::start(&mut command)?;
    // Its relays may come after what they are for.
    let end = Instant::now() + PATIENCE;
    while let Err(stopped) = line.ask("new 1") {
        if Instant::now() > end {
            return Err(stopped);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // What served that one connection has ended by then, and is counted with what started it.
    std::thread::sleep(Duration::from_millis(100));
    let counted = Counted { processes: tree(line.pid()), client: Within::Yes };
    Ok((line, (counted, Vec::new())))
}

fn through(mut client: Command, running: Vec<Running>) -> Result<(Line, Through), Stopped> {
    let processes = running.iter().map(Running::pid).collect();
    Ok((Line::start(&mut client)?, (Counted { processes, client: Within::No }, running)))
}

fn find(site: &Site, program: &str) -> Result<PathBuf, Stopped> {
    site.find(program).ok_or_else(|| Stopped::new("missing"))
}

/// A process and all that descend from it.
pub(super) fn tree(root: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let parent = std::fs::read_to_string(entry.path().join("stat")).ok().and_then(|text| {
            let (_, fields) = text.rsplit_once(')')?;
            fields.split_whitespace().nth(1)?.parse::<u32>().ok()
        });
        parents.extend(pid.zip(parent));
    }
    let mut found = vec![root];
    let mut seen = 0;
    while let Some(parent) = found.get(seen).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        seen += 1;
    }
    found
}
