//! Variables that tell programs of the way out, and hold what stands for secrets.

use super::trust::BUNDLE;
use crate::daemon::Daemon;
use crate::session::Session;
use crate::trouble::Trouble;
use cowork_api::egress::HTTP_PROXY_PORT;
use cowork_policy::plan::ABOUT;

/// Hosts that are reached without the proxy: those in the session itself.
const INSIDE: &str = "localhost,127.0.0.1,::1,.localhost";
/// Variables by which programs find the proxy, in both cases.
const PROXIES: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
/// Variables by which programs that do not look at the system's certificates find them.
const BUNDLES: [&str; 12] = [
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "DENO_CERT",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "NIX_SSL_CERT_FILE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
];

/// How git is told to look into its file of credentials, and to change nothing in it.
const GIT_HELPER: [(&str, &str); 3] = [
    ("GIT_CONFIG_COUNT", "1"),
    ("GIT_CONFIG_KEY_0", "credential.helper"),
    (
        "GIT_CONFIG_VALUE_0",
        "!f() { test \"$1\" = get && git credential-store --file ~/.git-credentials get; }; f",
    ),
];

/// Variables of a command: names and values.
pub(crate) type Variables = Vec<(Vec<u8>, Vec<u8>)>;

impl Daemon {
    /// Variables of a command in a session, by what it may reach. None without a network.
    pub(crate) fn network_variables(&self, session: &Session) -> Result<Variables, Trouble> {
        if !session.has_network() {
            return Ok(Vec::new());
        }
        let doc = session.doc();
        let proxy = format!("http://127.0.0.1:{HTTP_PROXY_PORT}");
        let mut variables: Vec<(String, String)> = Vec::new();
        variables.extend(PROXIES.iter().map(|name| ((*name).to_owned(), proxy.clone())));
        for name in ["NO_PROXY", "no_proxy"] {
            variables.push((name.to_owned(), INSIDE.to_owned()));
        }
        if cowork_policy::egress::inspects(&self.rules_of(&doc)?) {
            // What the host trusts stays as it is where the host's files are shown.
            let bundle = match doc.spec.view {
                None => BUNDLE.to_owned(),
                Some(_) => format!("{}/mnt/{ABOUT}/certs/ca-certificates.crt", doc.folder()),
            };
            variables.extend(BUNDLES.iter().map(|name| ((*name).to_owned(), bundle.clone())));
        }
        if !doc.network.placeholders.is_empty() {
            let secrets = self.secrets.known_to(&doc.id)?;
            for (name, placeholder) in &doc.network.placeholders {
                if let Some(variable) = secrets.get(name).and_then(|kept| kept.variable.clone()) {
                    variables.push((variable, placeholder.clone()));
                }
            }
            if self.file_names(&doc)?.contains(super::files::GIT) {
                let settings = GIT_HELPER.map(|(name, value)| (name.to_owned(), value.to_owned()));
                variables.extend(settings);
            }
        }
        Ok(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}
