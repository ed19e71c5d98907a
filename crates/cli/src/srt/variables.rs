//! The variables of a command: the caller's, but for what is kept from it.

use super::ground::Ground;
use super::masks::Masks;
use cowork_client::types::{Raw, WantedNetwork};
use cowork_srt::{Settings, paths};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Variables about proxies of the caller's: a session has its own way out.
const PROXIES: [&str; 12] = [
    "ALL_PROXY",
    "CLOUDSDK_PROXY_ADDRESS",
    "CLOUDSDK_PROXY_PORT",
    "DOCKER_HTTPS_PROXY",
    "DOCKER_HTTP_PROXY",
    "FTP_PROXY",
    "GRPC_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "RSYNC_PROXY",
    "SOCKS_PROXY",
];
/// Variables about certificates: where TLS is looked into, the session's own count.
const BUNDLES: [&str; 12] = [
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "CURL_CA_BUNDLE",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
];
/// Where temporary files go if srt's folder is not the caller's: memory of the session's own.
const MEMORY: &str = "/dev/shm";

/// What variables are made from.
pub(super) struct Given<'a> {
    pub(super) settings: &'a Settings,
    pub(super) ground: &'a Ground,
    pub(super) masks: &'a Masks,
}

impl Given<'_> {
    /// The variables of the command. `temporary` is the folder for temporary files.
    pub(super) fn variables(
        &self,
        temporary: Option<&Path>,
        network: Option<&WantedNetwork>,
    ) -> BTreeMap<String, Raw> {
        let Self { settings, ground, masks } = self;
        let mut variables: BTreeMap<String, Raw> = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            // A name that is no text cannot be written down for the daemon.
            let Ok(name) = name.into_string() else { continue };
            variables.insert(name, Raw::new(value.into_vec()));
        }
        let upper = |name: &str| name.to_ascii_uppercase();
        variables.retain(|name, _| !PROXIES.contains(&upper(name).as_str()));
        if network.is_some() && settings.network.tls.is_some() {
            variables.retain(|name, _| !BUNDLES.contains(&name.as_str()));
        }
        for name in &settings.credentials.denied {
            variables.remove(name);
        }
        for (name, shown) in &masks.variables {
            match shown {
                Some(shown) => variables.insert(name.clone(), Raw::Text(shown.clone())),
                None => variables.remove(name),
            };
        }
        let temporary = temporary.unwrap_or_else(|| Path::new(MEMORY));
        variables.insert("TMPDIR".to_owned(), crate::request::raw(temporary));
        variables.insert("SANDBOX_RUNTIME".to_owned(), Raw::Text("1".to_owned()));
        variables.insert("PWD".to_owned(), crate::request::raw(&ground.here));
        variables.remove("OLDPWD");
        self.trust_repositories(&mut variables);
        variables
    }

    /// Tells Git which repositories it may use although their owner is another user.
    fn trust_repositories(&self, variables: &mut BTreeMap<String, Raw>) {
        let text = |variables: &BTreeMap<String, Raw>, name: &str| {
            variables.get(name).map(Raw::lossy).unwrap_or_default()
        };
        let count = text(variables, "GIT_CONFIG_COUNT");
        if self.settings.safe_directories.is_empty() || count == "0" {
            return;
        }
        let mut count: usize = count.parse().unwrap_or(0);
        for folder in &self.settings.safe_directories {
            let folder = self.folder(folder);
            for value in [folder.clone(), folder.join("*")] {
                let key = Raw::Text("safe.directory".to_owned());
                variables.insert(format!("GIT_CONFIG_KEY_{count}"), key);
                variables.insert(format!("GIT_CONFIG_VALUE_{count}"), crate::request::raw(&value));
                count += 1;
            }
        }
        variables.insert("GIT_CONFIG_COUNT".to_owned(), Raw::Text(count.to_string()));
    }

    fn folder(&self, text: &str) -> PathBuf {
        paths::place(text, self.ground.places())
    }
}
