//! A session whose way out is measured.

use super::contender::{Counted, Within};
use super::line::Line;
use super::server::{CERTIFICATE, NAME};
use super::{Place, ports};
use crate::daemon::server::{Server, create, remove, session};
use crate::stopped::Stopped;
use cowork_api::egress::{HTTP_PROXY_PORT, SOCKS_PORT};
use cowork_client::types::{
    Access, Network, NetworkRule, NewGrant, NewSession, Raw, TlsTreatment, WantedNetwork,
};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

/// A session with a network, and its daemon.
#[derive(Debug)]
pub(super) struct Ours {
    server: Server,
    id: String,
    /// The process that is the session's way out.
    pub(super) egress: u32,
    daemon: u32,
}

/// How a client in the session reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// There is a server in the session itself, and no way out is taken.
    Within,
    /// By its name, looked up for every connection, knowing nothing of a proxy.
    Name,
    /// By the address that stands for the name, looked up once.
    Address,
    Connect,
    Socks,
    /// A proxy is sent whole addresses.
    Forward,
}

impl Ours {
    pub(super) fn start(place: &Place<'_>) -> Result<Self, Stopped> {
        let roots = place.folder.join(CERTIFICATE);
        let variables = [("COWORK_EXTRA_ROOTS", roots.as_path())];
        let server = Server::start_with(place.site, "network", &variables)?;
        let mut client = server.client()?;
        let path = Raw::new(place.folder.as_os_str().as_bytes());
        let (direct, writes) = (Vec::new(), cowork_client::types::WantedWrites::default());
        let grant = NewGrant {
            path,
            access: Access::Read,
            name: None,
            force: false,
            direct,
            writes,
            expires: None,
        };
        let rule = |port: u16, tls: TlsTreatment| NetworkRule {
            host: format!("host:{port}"),
            tls,
            ..NetworkRule::default()
        };
        let [plain, tunnelled, inspected] = place.far.ports;
        let network = WantedNetwork {
            rules: vec![
                rule(plain, TlsTreatment::Auto),
                rule(tunnelled, TlsTreatment::Tunnel),
                rule(inspected, TlsTreatment::Inspect),
            ],
            ..WantedNetwork::default()
        };
        let network = Some(network);
        let wanted = NewSession { grants: vec![grant], network, ..NewSession::default() };
        let id = create(&mut client, &wanted)?.0.id;
        let network: Network = client.get(session(&id, "/network"))?;
        let egress = network.egress.ok_or_else(|| Stopped::new("the session has no way out"))?;
        let [daemon, _] = server.processes()?;
        Ok(Self { server, id, egress: egress.pid.unsigned_abs(), daemon })
    }

    /// A client in the session that reaches a port of the server.
    pub(super) fn client(&self, place: &Place<'_>, by: By, port: u16) -> Command {
        let kind = match by {
            By::Name => "name".to_owned(),
            By::Within | By::Address => "known".to_owned(),
            By::Connect => format!("connect=127.0.0.1:{HTTP_PROXY_PORT}"),
            By::Socks => format!("socks=127.0.0.1:{SOCKS_PORT}"),
            By::Forward => format!("forward=127.0.0.1:{HTTP_PROXY_PORT}"),
        };
        let host = if by == By::Within { "127.0.0.1" } else { NAME };
        let port_word = port.to_string();
        let mut words = vec!["exec", "--cd", "mnt/net", &self.id, "--", "./client", "net-client"];
        words.extend([kind.as_str(), host, &port_word]);
        words.extend(place.far.speaks_tls(port).then_some(CERTIFICATE));
        self.server.cowork(place.site, &words)
    }

    /// A server in the session itself, and its port for plain connections.
    pub(super) fn inner_server(&self, place: &Place<'_>) -> Result<(Line, u16), Stopped> {
        let words = ["exec", "--cd", "mnt/net", &self.id, "--", "./client", "net-server", "/tmp"];
        let mut line = Line::start(&mut self.server.cowork(place.site, &words))?;
        let [port, ..] = ports(&line.hear()?)?;
        Ok((line, port))
    }

    /// Its process, and the daemon, which keeps a record of what it does.
    pub(super) fn counted(&self) -> Counted {
        Counted { processes: vec![self.egress, self.daemon], client: Within::No }
    }

    pub(super) fn end(self) -> Result<(), Stopped> {
        remove(&mut self.server.client()?, &self.id)?;
        self.server.leave()
    }
}
