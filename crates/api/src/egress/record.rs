//! What an egress process records of every decision and every end.
//!
//! Deliberately absent: anything that was said. No body, no value of a query, no value of a header is
//! here, but for words that name a protocol or a coding. Of a body that is kept elsewhere there are its
//! size and its hash.

use super::{CredentialMode, Target};
use serde::{Deserialize, Serialize};

/// Something that was decided, or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Counts up by one.
    pub number: u64,
    /// Milliseconds since 1970.
    pub at: u64,
    /// The connection that it belongs to; 0 for none.
    pub flow: u64,
    /// The request within it, from 1; 0 for the connection itself.
    pub request: u32,
    /// What happened.
    pub what: What,
}

/// What is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// A decision.
    Decided {
        /// About what.
        target: Target,
        /// What was decided.
        decision: Decision,
        /// Secrets that were put in.
        credentials: Vec<Used>,
    },
    /// A connection or request came to its end.
    Ended {
        /// What it was.
        target: Target,
        /// The address that was reached, if one was.
        address: Option<std::net::IpAddr>,
        /// The status of an HTTP answer.
        status: Option<u16>,
        /// Bytes from the session.
        up: u64,
        /// Bytes to the session.
        down: u64,
        /// Milliseconds from its beginning.
        ms: u64,
        /// How: `eof`, `reset`, `error: …`.
        how: String,
        /// What was spoken.
        spoken: Box<Spoken>,
        /// What took how long.
        timings: Timings,
    },
    /// Something that a person should know: a client that does not trust the session's authority,
    /// a secret that came back in an answer.
    Noticed {
        /// About what.
        target: Target,
        /// A stable word for it.
        code: String,
        /// The sentence, with what to do about it.
        sentence: String,
    },
    /// Records were left out: more came than could be kept until a daemon took them.
    Lost {
        /// How many.
        records: u64,
    },
    /// Bodies of a request and of its answer were kept.
    Captured {
        /// What it was.
        target: Target,
        /// The body of the request.
        sent: Bodied,
        /// The body of the answer.
        received: Bodied,
    },
}

/// A body that was kept, or a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bodied {
    /// Its bytes, as the session sent or got them.
    pub size: u64,
    /// How many of them are kept, from its beginning.
    pub kept: u64,
    /// The SHA-256 of all of them.
    pub sha256: [u8; 32],
}

/// A secret that was put into a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Its name.
    pub secret: String,
    /// What was done.
    pub mode: CredentialMode,
    /// Where: `header authorization`, `query key`, `body`, `signature`.
    pub place: String,
    /// Whether it took the place of another credential that the program had put there.
    pub foreign_removed: bool,
}

/// What was spoken in a connection or a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spoken {
    /// Who ended TLS, if it was inside TLS.
    pub tls: Option<Ended>,
    /// The host that the program named in TLS.
    pub sni: Option<String>,
    /// The version of HTTP that the program spoke, of a request.
    pub http: Option<Http>,
    /// The protocol that was agreed on with the host in TLS (ALPN).
    pub alpn: Option<String>,
    /// The SHA-256 of the certificate that the host proved its name with.
    pub certificate: Option<[u8; 32]>,
    /// How the body of the request was encoded.
    pub encoding: Option<String>,
    /// The protocol that both sides went over to.
    pub upgrade: Option<String>,
}

/// Who ended TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// The egress process, which looked inside.
    Here,
    /// The host: it passed as it was.
    There,
}

/// What took how long, in milliseconds; nothing for what did not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timings {
    /// The connection to the host that was used.
    pub connection: Connection,
    /// Looking its name up.
    pub dns: Option<u32>,
    /// Connecting to it.
    pub connect: Option<u32>,
    /// Agreeing on TLS with it.
    pub tls: Option<u32>,
    /// Until the first of its answer came, from the beginning.
    pub first: Option<u32>,
}

/// The connection to a host that served for something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Connection {
    /// There was none.
    #[default]
    None,
    /// One was made for it.
    New,
    /// One was made for it before it began.
    Early,
    /// One that had served before, or served others meanwhile.
    Kept,
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Http {
    /// HTTP/1.0.
    OneZero,
    /// HTTP/1.1.
    One,
    /// HTTP/2.
    Two,
}

/// What was decided, and by what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Whether it passes.
    pub allowed: bool,
    /// A stable word: `allowed`, `denied-by-rule`, `no-rule`, `private-address`, ….
    pub code: String,
    /// The rule's name, or nothing.
    pub rule: Option<String>,
    /// The generation of the rules.
    pub generation: u64,
    /// Who decided.
    pub source: Source,
    /// Milliseconds that it waited for the user; 0 for none.
    pub held: u64,
}

/// Who decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// The rules, also where nobody answered what they ask.
    #[default]
    Policy,
    /// The user, who was asked.
    User,
    /// What is looked at beside the rules: how a request is written, where a name leads, quotas,
    /// credentials.
    Guard,
}
