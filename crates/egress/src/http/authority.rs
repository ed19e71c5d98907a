//! The session's authority: certificates for the hosts that connections were allowed to.
//!
//! The key is made here and stays in memory. The authority signs leaves only, no other authorities;
//! all leaves share one key, and are kept as long as there is room.

use super::upstream::Version;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{NoServerSessionStorage, ProducesTickets, ServerConfig};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How long certificates hold.
const VALIDITY: Duration = Duration::from_hours(30 * 24);
/// Clocks of sandboxes run with the host's, but certificates with a beginning of now are refused by
/// programs that compare seconds.
const SLACK: Duration = Duration::from_hours(1);
/// Most leaves that are kept, each with how it is used.
const MAX_LEAVES: usize = 1024;

/// Signs certificates that the session trusts.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    leaf: KeyPair,
    leaves: Mutex<HashMap<(String, Version), Arc<ServerConfig>>>,
    tickets: Arc<dyn ProducesTickets>,
    random: SystemRandom,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes one for a session.
    pub(super) fn new(session: &str) -> Result<Self, String> {
        let told = |error: rcgen::Error| format!("the session's authority cannot be made: {error}");
        let random = SystemRandom::new();
        let key = KeyPair::generate().map_err(told)?;
        let mut params = params(&random)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, format!("cowork session {session}"));
        let certificate = params.self_signed(&key).map_err(told)?.der().clone();
        Ok(Self {
            issuer: Issuer::new(params, key),
            certificate,
            leaf: KeyPair::generate().map_err(told)?,
            leaves: Mutex::default(),
            tickets: rustls::crypto::ring::Ticketer::new()
                .map_err(|error| format!("no tickets: {error}"))?,
            random,
        })
    }

    /// Its certificate.
    pub(super) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// How TLS is spoken in the place of a name or an address whose host speaks `version`.
    pub(super) fn server(&self, host: &str, version: Version) -> Result<Arc<ServerConfig>, String> {
        let leaves = || self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (host.to_owned(), version);
        if let Some(known) = leaves().get(&key) {
            return Ok(Arc::clone(known));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("no TLS: {error}"))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(self.sign(host)?)));
        config.alpn_protocols = match version {
            Version::One => vec![b"http/1.1".to_vec()],
            Version::Two => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::clone(&self.tickets);
        let config = Arc::new(config);
        let mut leaves = leaves();
        if leaves.len() >= MAX_LEAVES {
            leaves.clear();
        }
        leaves.insert(key, Arc::clone(&config));
        Ok(config)
    }

    fn sign(&self, host: &str) -> Result<CertifiedKey, String> {
        let told = |error: rcgen::Error| format!("no certificate can be made for {host}: {error}");
        let mut params = params(&self.random)?;
        let name = match host.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.try_into().map_err(told)?),
        };
        params.subject_alt_names = vec![name];
        // A common name has at most 64 characters; programs go by the alternative name.
        let common = if host.len() <= 64 { host } else { "a host with a long name" };
        params.distinguished_name.push(DnType::CommonName, common);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&self.leaf, &self.issuer).map_err(told)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.leaf.serialize_der()));
        let key = rustls::crypto::ring::sign::any_ecdsa_type(&key)
            .map_err(|error| format!("the key of leaves cannot be used: {error}"))?;
        Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
    }
}

/// What all certificates have in common.
fn params(random: &SystemRandom) -> Result<CertificateParams, String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let now = SystemTime::now();
    params.not_before = (now - SLACK).into();
    params.not_after = (now + VALIDITY).into();
    let mut serial = [0_u8; 16];
    random.fill(&mut serial).map_err(|error| format!("no random bytes: {error}"))?;
    // A positive number: the first bit is its sign.
    if let Some(first) = serial.first_mut() {
        *first = (*first & 0x7f) | 0x01;
    }
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}
