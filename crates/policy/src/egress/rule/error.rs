//! Why a rule cannot be made of what was written.

use super::super::name::HostNameError;
use super::super::target::AmbiguousTarget;

/// Why a rule cannot be made of what was written. Each sentence says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// There is no host.
    #[error("a rule names a host, e.g. `example.com`")]
    NoHost,
    /// What was written is no rule.
    #[error(
        "`{}` is not a rule: write a host as `example.com` or `example.com:8443`, or an address as \
         `https://example.com/path/**`, each with methods in front if need be, as `GET,HEAD`",
        .text.escape_debug()
    )]
    Malformed {
        /// The text as given.
        text: Box<str>,
    },
    /// The host is no name.
    #[error("`{}` is not a host: {cause}", .text.escape_debug())]
    Host {
        /// The text as given.
        text: Box<str>,
        /// What is wrong with it.
        cause: HostNameError,
    },
    /// There is a star where none can be.
    #[error(
        "`{}` has a `*` in a wrong place: write `*.example.com` for every name below \
         `example.com`, or `**.example.com` for that name as well",
        .text.escape_debug()
    )]
    Wildcard {
        /// The text as given.
        text: Box<str>,
    },
    /// Everything below a name that everybody shares.
    #[error(
        "`{}` would allow every name that ends in `.{last}`: name a domain in it, e.g. \
         `*.example.{last}`",
        .text.escape_debug()
    )]
    TooWide {
        /// The text as given.
        text: Box<str>,
        /// Its last part.
        last: Box<str>,
    },
    /// Everything.
    #[error(
        "`{}` would allow everything: name the hosts, or let the user be asked",
        .text.escape_debug()
    )]
    Everything {
        /// The text as given.
        text: Box<str>,
    },
    /// The session's own loopback.
    #[error(
        "`localhost` in a session is the session itself: write `host:PORT` for a port of the \
         host's own loopback, e.g. `host:5432`"
    )]
    Localhost,
    /// The host's loopback without a port.
    #[error("`host` is the host's own loopback: name the port as well, e.g. `host:5432`")]
    NoPort,
    /// What follows the colon is no port.
    #[error(
        "`{}` is not a port: write a number from 1 to 65535, a range as `8000-8100`, several as \
         `80,443`, or `*` for all",
        .text.escape_debug()
    )]
    Port {
        /// The text as given.
        text: Box<str>,
    },
    /// More ports than can be listened on.
    #[error(
        "`{rule}` names more than {} ports in a row, which needs a kernel that can hand over all \
         ports (TPROXY): name fewer, or reach them through the proxy of the session",
        super::super::MAX_RANGE
    )]
    TooManyPorts {
        /// The rule's name.
        rule: Box<str>,
    },
    /// What looks like an address is none.
    #[error(
        "`{}` is not a range of addresses: write e.g. `10.0.0.0/8` or `[2001:db8::1]:443`",
        .text.escape_debug()
    )]
    Address {
        /// The text as given.
        text: Box<str>,
    },
    /// A range that does not begin at its first address, or an IPv4 address in disguise.
    #[error("`{}` is written as `{write}`", .text.escape_debug())]
    Spelling {
        /// The text as given.
        text: Box<str>,
        /// What is meant.
        write: Box<str>,
    },
    /// Another scheme.
    #[error("`{}` is not understood: rules are about `https://…` and `http://…`", .text.escape_debug())]
    Scheme {
        /// The text as given.
        text: Box<str>,
    },
    /// A user name or password.
    #[error(
        "a rule has no user name or password: leave out what is before `@`, and keep it as a secret"
    )]
    UserInfo,
    /// A query or fragment.
    #[error("a rule is about paths: leave out `?` or `#` and what follows")]
    Query,
    /// A path after a bare host.
    #[error("`{0}` has a path: write `https://{0}`", .text.escape_debug())]
    NoScheme {
        /// The text as given.
        text: Box<str>,
    },
    /// No method.
    #[error("`{}` is not a method: write e.g. `GET`", .text.escape_debug())]
    Method {
        /// The text as given.
        text: Box<str>,
    },
    /// No path.
    #[error("`{}` is not a path: {cause}", .text.escape_debug())]
    Path {
        /// The text as given.
        text: Box<str>,
        /// What is wrong with it.
        cause: AmbiguousTarget,
    },
    /// Something is there twice.
    #[error("`{key}` is there twice, once beside the host and once on its own: leave out one")]
    Twice {
        /// What.
        key: &'static str,
    },
    /// Something is too much.
    #[error("`{key}` has more than {most}: make several rules")]
    TooMany {
        /// What.
        key: &'static str,
        /// The most that there can be.
        most: usize,
    },
    /// A name can never lead there.
    #[error(
        "no name leads to `{}`, whatever a rule says: write a rule for the address itself, or \
         `host:PORT` for the host's own loopback",
        .text.escape_debug()
    )]
    NeverReached {
        /// The text as given.
        text: Box<str>,
    },
    /// No amount per time.
    #[error("`{}` is not an amount per time: write e.g. `{example}`", .text.escape_debug())]
    Quota {
        /// Which amount.
        key: &'static str,
        /// The text as given.
        text: Box<str>,
        /// What it looks like.
        example: &'static str,
    },
    /// A number that would let nothing through.
    #[error("`{key}` of nothing lets nothing through: write a rule that denies")]
    Zero {
        /// Which amount.
        key: &'static str,
    },
    /// A secret that cannot have that name.
    #[error(
        "`{}` is not the name of a secret: it has 1 to 64 letters, digits, `-`, `_` and `.`",
        .text.escape_debug()
    )]
    Secret {
        /// The text as given.
        text: Box<str>,
    },
    /// No place in a request.
    #[error(
        "`{}` is no place for a secret: write `bearer`, `basic:USER`, `header:NAME`, `query:NAME` \
         or `aws`",
        .text.escape_debug()
    )]
    Carrier {
        /// The text as given.
        text: Box<str>,
    },
    /// No amount of a body.
    #[error("`{}` is not how much of a body is kept: write a size of at most 1MB, e.g. `64KB`", .text.escape_debug())]
    Capture {
        /// The text as given.
        text: Box<str>,
    },
    /// A reason that cannot be shown.
    #[error("a reason has at most 500 characters in one line")]
    Reason,
    /// Parts that do not go together.
    #[error("{sentence}")]
    Contradiction {
        /// The part that does not go with the others.
        key: &'static str,
        /// Why not.
        sentence: &'static str,
    },
}

impl RuleError {
    /// The part of the rule that is wrong, by the name it has in a policy file.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Port { .. } | Self::TooManyPorts { .. } | Self::NoPort => "ports",
            Self::Method { .. } => "methods",
            Self::Path { .. } => "paths",
            Self::NeverReached { .. } => "resolves_to",
            Self::Secret { .. } | Self::Carrier { .. } => "auth",
            Self::Reason => "reason",
            Self::Capture { .. } => "capture",
            Self::Twice { key }
            | Self::TooMany { key, .. }
            | Self::Quota { key, .. }
            | Self::Zero { key }
            | Self::Contradiction { key, .. } => key,
            Self::NoHost
            | Self::Malformed { .. }
            | Self::Host { .. }
            | Self::Wildcard { .. }
            | Self::TooWide { .. }
            | Self::Everything { .. }
            | Self::Localhost
            | Self::Address { .. }
            | Self::Spelling { .. }
            | Self::Scheme { .. }
            | Self::UserInfo
            | Self::Query
            | Self::NoScheme { .. } => "host",
        }
    }
}
