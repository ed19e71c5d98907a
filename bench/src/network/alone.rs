//! An egress process by itself, with a listener of this host's own network: what a session's way out
//! is, without a session, behind whatever others put before theirs.

use super::Place;
use super::line::Running;
use crate::stopped::Stopped;
use cowork_api::egress::{
    Action, Begin, FromEgress, Host, Otherwise, Ports, Quota, Rule, Rules, Socket, Tls, ToEgress,
};
use cowork_sandbox::channel::{Channel, Peer};
use rustix::fd::{AsFd, OwnedFd};
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;

/// How many records it may have told before it is heard that they are kept.
const MANY: u64 = 64;

/// Starts one that lets a port of the server pass, and the port of its proxy. It ends with the first.
pub(super) fn start(place: &Place<'_>, far: u16) -> Result<(Running, u16), Stopped> {
    let failed = |error: &dyn std::fmt::Display| Stopped::new(format!("cowork-egress: {error}"));
    let (ours, theirs) = Channel::pair().map_err(|error| failed(&error))?;
    let mut command = place.site.command(place.site.programs.join("cowork-egress"));
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
    let running = Running::start(&mut command)?;
    drop(command);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| failed(&error))?;
    let port = listener.local_addr().map_err(|error| failed(&error))?.port();
    let rule = Rule {
        name: "the server".into(),
        action: Action::Allow,
        host: Host::Loopback,
        ports: Ports::Some(vec![(far, far)]),
        http: Vec::new(),
        tls: Tls::AsNeeded,
        resolves_to: Vec::new(),
        credential: None,
        limits: Quota::default(),
    };
    let rules = Rules { generation: 1, otherwise: Otherwise::Deny, rules: vec![rule] };
    let begin = Begin { session: "alone".into(), rules, ..Begin::default() };
    let tell = |message: &ToEgress, beside: &[_]| {
        ours.send(&cowork_api::encode(message), beside).map_err(|error| failed(&error))
    };
    tell(&ToEgress::Begin(Box::new(begin)), &[])?;
    tell(&ToEgress::Sockets { sockets: vec![Socket::HttpProxy] }, &[listener.as_fd()])?;
    let packet = ours.receive(Peer::Trusted).map_err(|error| failed(&error))?;
    let said = packet.map(|packet| cowork_api::decode(&packet.bytes));
    match said {
        Some(Ok(FromEgress::Ready { .. })) => {}
        Some(Ok(FromEgress::Failed { sentence })) => return Err(failed(&sentence)),
        _ => return Err(failed(&"it said something else than that it is ready")),
    }
    std::thread::spawn(move || keep(&ours));
    Ok((running, port))
}

/// Hears it to its end, and says that its records are kept.
fn keep(line: &Channel) {
    let mut kept = 0;
    while let Ok(Some(packet)) = line.receive(Peer::Trusted) {
        let Ok(FromEgress::Record(record)) = cowork_api::decode(&packet.bytes) else { continue };
        if record.number >= kept + MANY {
            kept = record.number;
            let message = cowork_api::encode(&ToEgress::Acknowledge { upto: kept });
            if line.send(&message, &[]).is_err() {
                return;
            }
        }
    }
}
