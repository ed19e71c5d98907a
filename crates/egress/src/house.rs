//! Everything that a connection of the session needs on its way, in one place.

use crate::dial::Dialer;
use crate::http::Interceptor;
use crate::names::Names;
use crate::office::Office;
use crate::quota::Quotas;
use crate::whose::Registrar;
use cowork_api::egress::Begin;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Most connections at a time whose first words are gathered: the others are not read.
const MAX_HEARD: usize = 1024;

/// What all connections of a session share.
#[derive(Debug)]
pub struct House {
    /// Decides and records.
    pub office: Arc<Office>,
    /// Reaches hosts.
    pub dialer: Dialer,
    /// Looks into HTTP and TLS.
    pub interceptor: Interceptor,
    /// Addresses that stand for names.
    pub names: Names,
    /// Counts what rules limit.
    pub quotas: Quotas,
    /// Tells which sockets connections come from.
    pub(crate) registrar: Registrar,
    /// Room for those who have not said yet what they want.
    pub(crate) hearing: Semaphore,
}

impl House {
    /// A house for a session that begins. Reads what it needs from the file system: afterwards the
    /// process may lose sight of it.
    pub fn new(begin: &Begin) -> Result<Arc<Self>, String> {
        let interceptor = Interceptor::new(begin)?;
        let dialer = Dialer::new(begin)?;
        let office = Office::new(&begin.session, begin.rules.clone(), begin.secrets.clone());
        let (names, quotas) = (Names::default(), Quotas::default());
        let (registrar, hearing) = (Registrar::default(), Semaphore::new(MAX_HEARD));
        Ok(Arc::new(Self { office, dialer, interceptor, names, quotas, registrar, hearing }))
    }
}
