//! What is kept of a session's network, beside what the user asked for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cowork_client::types::PublishedPort;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
}

/// An egress process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptEgress {
    pub(crate) pid: i32,
    /// When it was started: tells its records from those of another one.
    pub(crate) since: String,
    pub(crate) confinement: Vec<String>,
    /// Whether every port arrives at it.
    pub(crate) all_ports: bool,
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
