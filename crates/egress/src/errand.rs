//! A request that the host makes for itself: for the renewal of a secret.
//!
//! It is made by a process of its own, which is confined as every egress process is, serves no
//! session, and ends with the answer: a refresh token is never where something hostile is read. The
//! host is decided about by one rule, dialled and verified as for a session.
//!
//! Deliberately absent: what the request and its answer mean (the daemon knows), and redirections.

use crate::house::House;
use crate::http::post;
use cowork_api::egress::{
    Action, Begin, Errand, Host, Network, Otherwise, Ports, Quota, Returned, Rule, Rules, Target,
    Tls,
};
use cowork_policy::egress::Place;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// Longest that an errand takes.
const PATIENCE: Duration = Duration::from_secs(30);
/// What it is called where a session has a name.
const NAME: &str = "errand";

/// The house of an errand: one host may be reached, wherever its name leads to, but for the places
/// that no name may lead to.
pub(crate) fn prepare(errand: &Errand) -> Result<Arc<House>, String> {
    let everywhere = [IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv6Addr::UNSPECIFIED)];
    let rule = Rule {
        name: NAME.to_owned(),
        action: Action::Allow,
        host: Host::Name(errand.host.clone()),
        ports: Ports::Some(vec![(errand.port, errand.port)]),
        http: Vec::new(),
        tls: Tls::Inspect,
        resolves_to: everywhere.map(|address| Network { address, bits: 0 }).to_vec(),
        credential: None,
        limits: Quota::default(),
    };
    House::new(&Begin {
        session: NAME.to_owned(),
        rules: Rules { generation: 0, otherwise: Otherwise::Deny, rules: vec![rule] },
        secrets: Vec::new(),
        roots: errand.roots.clone(),
        parent: errand.parent.clone(),
    })
}

/// Makes the request.
pub(crate) async fn run(house: &Arc<House>, errand: Errand) -> Result<Returned, String> {
    let place: Place = errand.host.parse().map_err(|_none| "the host has no name".to_owned())?;
    if !matches!(place, Place::Name(_)) {
        return Err("the host has no name".to_owned());
    }
    let target = Target { host: place.to_string(), port: errand.port, ..Target::default() };
    let flow = house.office.arrive();
    let made = async {
        let allowed = house.office.connection(&flow, &target, &place).await;
        let allowed = allowed.map_err(|refusal| refusal.sentence)?;
        post(house, &allowed, &errand).await.map_err(|refusal| refusal.sentence)
    };
    match tokio::time::timeout(PATIENCE, made).await {
        Ok(made) => made,
        Err(_late) => Err(format!("{place} does not answer in time")),
    }
}
