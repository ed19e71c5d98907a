//! What is kept of a session's network, beside what the user asked for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cowork_api::egress::{Rules, Spent, Window};
use cowork_client::types::PublishedPort;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most rules whose use is kept: a session has fewer, with those that stand for every session.
const MAX_RULES: usize = 4096;

/// The network of a session, as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeptNetwork {
    /// Counts changes of the rules.
    pub(crate) generation: u64,
    /// What stands for each secret in this session, by the secret's name.
    pub(crate) placeholders: BTreeMap<String, String>,
    /// The process that is the way out, as it was last seen.
    pub(crate) egress: Option<KeptEgress>,
    /// How often it was started again.
    pub(crate) restarts: u32,
    /// Ports that the host's loopback reaches.
    pub(crate) published: Vec<PublishedPort>,
    /// What was used of what rules limit, by the rule's name.
    pub(crate) spent: BTreeMap<String, KeptSpent>,
}

/// What was used of what a rule limits: when a window began, in milliseconds since 1970, and how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeptSpent {
    upload: Option<(u64, u64)>,
    requests: Option<(u64, u64)>,
}

impl KeptNetwork {
    /// Notes what was used. An egress process is not believed to have more rules than there can be.
    pub(crate) fn note_spent(&mut self, spent: Vec<Spent>) {
        let kept = |window: Window| (window.since, window.used);
        for Spent { rule, upload, requests } in spent {
            if self.spent.len() < MAX_RULES || self.spent.contains_key(&rule) {
                let spent = KeptSpent { upload: upload.map(kept), requests: requests.map(kept) };
                self.spent.insert(rule, spent);
            }
        }
    }

    /// What was used of what these rules limit, for a process that begins. What others limited is
    /// forgotten.
    pub(crate) fn spent_by(&mut self, rules: &Rules) -> Vec<Spent> {
        let names: BTreeSet<&str> = rules.rules.iter().map(|rule| rule.name.as_str()).collect();
        self.spent.retain(|rule, _| names.contains(rule.as_str()));
        let window = |(since, used)| Window { since, used };
        let told = |(rule, spent): (&String, &KeptSpent)| Spent {
            rule: rule.clone(),
            upload: spent.upload.map(window),
            requests: spent.requests.map(window),
        };
        self.spent.iter().map(told).collect()
    }
}

/// An egress process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of JSON with its own meaning")]
pub(crate) struct KeptEgress {
    pub(crate) pid: i32,
    /// When it was started: tells its records from those of another one.
    pub(crate) since: String,
    pub(crate) confinement: Vec<String>,
    /// Whether every port arrives at it.
    pub(crate) all_ports: bool,
    /// Whether it was told of bodies to keep: then it understands that.
    #[serde(default)]
    pub(crate) captures: bool,
    /// The certificate of the session's authority, in base64 of DER.
    #[serde(default)]
    pub(crate) authority: String,
}

impl KeptEgress {
    /// The certificate of the session's authority, in DER.
    pub(crate) fn authority(&self) -> Option<Vec<u8>> {
        let der = STANDARD.decode(&self.authority).ok()?;
        (!der.is_empty()).then_some(der)
    }

    /// Keeps the certificate of the session's authority.
    pub(crate) fn set_authority(&mut self, der: &[u8]) {
        self.authority = STANDARD.encode(der);
    }
}
