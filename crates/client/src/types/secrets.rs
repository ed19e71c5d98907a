//! Secrets that sessions use without knowing them.
//!
//! Invariant: what holds a value shows none when it is printed for debugging.

use super::ID;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of a secret.
const SECRET: &str = "^[A-Za-z0-9._-]+$";
/// A name in the home of a session.
const HOME_FILE: &str = r"^[A-Za-z0-9._-]+$";

/// How a secret is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SecretMode {
    /// The placeholder that the session knows is replaced where it appears.
    #[default]
    Swap,
    /// Every request to its hosts gets it.
    Inject,
    /// Every request to its hosts gets it, and one that brings another credential is refused.
    Pin,
}

/// A secret to keep.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSecret {
    /// The value; of tokens that are renewed, the access token. Never shown again.
    #[schemars(length(min = 1, max = 65536))]
    pub value: String,
    /// The hosts that may get it, as in a rule.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub hosts: Vec<String>,
    /// How it is used.
    #[serde(default)]
    pub mode: SecretMode,
    /// Where it is put: `bearer`, `basic:USER`, `header:NAME`, `query:NAME` or `aws`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrier: Option<String>,
    /// A variable of the session's commands that holds the placeholder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// Files in the home of the session that hold the placeholder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub files: Vec<SecretFile>,
    /// How the value is renewed, if it is a token that expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<Renewal>,
}

impl std::fmt::Debug for NewSecret {
    /// Without the value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { value: _, hosts, mode, carrier, variable, files, renewal } = self;
        f.debug_struct("NewSecret")
            .field("hosts", hosts)
            .field("mode", mode)
            .field("carrier", carrier)
            .field("variable", variable)
            .field("files", files)
            .field("renewal", renewal)
            .finish_non_exhaustive()
    }
}

/// A file in the home of a session, with what stands for a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretFile {
    /// Its name in the home of the session, e.g. `.netrc`. Secrets with files of one name share it.
    #[schemars(length(min = 1, max = 64), regex(pattern = HOME_FILE))]
    pub name: String,
    /// What is in it: `{secret}` stands for the placeholder, `{secret|url}` for the same as URLs
    /// write it.
    #[schemars(length(min = 1, max = 4096))]
    pub contents: String,
}

/// How a token is renewed before it expires: by `grant_type=refresh_token` of OAuth 2.0, from the
/// host. A session never has the refresh token.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Renewal {
    /// The refresh token. Never shown again.
    #[schemars(length(min = 1, max = 65536))]
    pub refresh_token: String,
    /// When the access token expires, in milliseconds since 1970; 0 if that is not known.
    #[serde(default)]
    pub expires_at: u64,
    /// Where it is renewed: a URL with `https`.
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^https://"))]
    pub token_url: String,
    /// The client that the tokens were issued to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub client_id: Option<String>,
    /// Its secret, if it has one. Never shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub client_secret: Option<String>,
    /// What the token is for, if that is to be said each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub scope: Option<String>,
    /// How the request is written.
    #[serde(default)]
    pub encoding: RenewalEncoding,
}

impl std::fmt::Debug for Renewal {
    /// Without the values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewal")
            .field("expires_at", &self.expires_at)
            .field("token_url", &self.token_url)
            .finish_non_exhaustive()
    }
}

/// How a request for another token is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RenewalEncoding {
    /// As a form: what OAuth 2.0 says.
    #[default]
    Form,
    /// As JSON.
    Json,
}

/// A secret of one session: kept as long as the session, and used by no other one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionSecret {
    /// Its name. In this session it hides a kept secret of the same name.
    #[schemars(length(min = 1, max = 64), regex(pattern = SECRET))]
    pub name: String,
    /// What stands for it in the session; made up without this. Whoever chooses it puts it where
    /// programs look for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 16, max = 65536))]
    pub placeholder: Option<String>,
    /// The secret.
    pub secret: NewSecret,
}

/// A secret, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Secret {
    /// Its name.
    pub name: String,
    /// The hosts that may get it.
    pub hosts: Vec<String>,
    /// How it is used.
    pub mode: SecretMode,
    /// Where it is put.
    pub carrier: String,
    /// A variable of the session's commands that holds the placeholder.
    pub variable: Option<String>,
    /// Files in the home of the session that hold the placeholder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// When it was last set.
    #[schemars(extend("format" = "date-time"))]
    pub set: String,
    /// How it is renewed, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<RenewalState>,
    /// Where its value is kept, and where the key to that is: `sealed file; key in the kernel's
    /// keyring and a 0600 file`.
    pub store: String,
    /// Sessions that use it.
    #[schemars(inner(regex(pattern = ID)))]
    pub sessions: Vec<String>,
}

/// How far a token that is renewed has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RenewalState {
    /// The host that renews it.
    pub host: String,
    /// When it expires, if that is known.
    #[schemars(extend("format" = "date-time"))]
    pub expires: Option<String>,
    /// When it was last renewed.
    #[schemars(extend("format" = "date-time"))]
    pub renewed: Option<String>,
    /// Why it cannot be renewed, since that was last tried.
    pub failed: Option<String>,
}
