//! An append-only, hash-chained record in files.
//!
//! One process writes ([`Ledger`]); anybody who may read the folder can read ([`read`]), export
//! ([`export_jsonl`], [`export_csv`]) and prove it ([`verify`]), also while it is written.
//!
//! # Format
//!
//! A folder of files `00000001.jsonl`, each named by the number of its first record (at least
//! eight digits, filled up with zeros) and continuing where the one before it ends. A file is
//! UTF-8 text of lines, each ended by one line feed, each one record: a JSON object without white
//! space between its parts, with these members in this order:
//!
//! ```json
//! {"seq":1,"time":"2026-01-02T03:04:05.678Z","type":"grant.added","session":"busy-otter","data":{},"previous":"…","hash":"…"}
//! ```
//!
//! - `seq` counts from 1 without gaps, over all files.
//! - `session` is `null` if the record is about none.
//! - `previous` is the `hash` of the record before; for the first it is 64 zeros ([`GENESIS`]).
//! - `hash` is the SHA-256, in 64 lowercase hexadecimal digits, of the line as it stands in the
//!   file without its line feed and without the text `,"hash":"…"`, that is: from the opening brace
//!   to the closing quote of `previous`, and the closing brace.
//!
//! The bytes of the line are hashed, not what they mean, so no rule about white space, escapes or
//! the order of members inside `data` is needed to check one with standard tools:
//!
//! ```console
//! $ sed -n 1p 00000001.jsonl | sed 's/,"hash":"[0-9a-f]*"}$/}/' | tr -d '\n' | sha256sum
//! ```
//!
//! # What the chain proves
//!
//! A record that is changed, removed, inserted, doubled or moved no longer fits those around it.
//! Records missing at the very end, or a chain that was computed anew as a whole, can only be seen
//! by somebody who remembers a [`Head`] elsewhere and hands it to [`verify`] or [`Ledger::open`].
//!
//! Deliberately absent: a clock (the caller says what time it is), signatures (whoever can write
//! the folder could also use the key), deleting old records, and any judgement about what belongs
//! into `data`.

#![forbid(unsafe_code)]

mod error;
mod export;
mod folder;
mod ledger;
mod line;
mod read;
mod verify;

pub use error::LedgerError;
pub use export::{export_csv, export_jsonl};
pub use ledger::{FILE_BYTES, Ledger, MAX_RECORD, Opened};
pub use read::{Filter, read};
pub use verify::{Problem, Verification, verify};

use serde::{Deserialize, Serialize};

/// What the first record names as the one before it.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The end of a chain: all that has to be remembered to prove that nothing before it was altered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of the last record; 0 before the first.
    pub seq: u64,
    /// Its hash; [`GENESIS`] before the first.
    pub hash: String,
}

impl Default for Head {
    /// The head of a chain without records.
    fn default() -> Self {
        Self { seq: 0, hash: GENESIS.to_owned() }
    }
}

/// One record.
///
/// It is what a line says, not the line: numbers in `data` may be written differently when it is
/// serialised again, so the hash is checked on files and on [`export_jsonl`]'s lines only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its number in the chain, from 1.
    pub seq: u64,
    /// When it was written, as the writer said: RFC 3339, UTC.
    pub time: String,
    /// What it is about: words joined by dots, e.g. `grant.added`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The session it is about.
    pub session: Option<String>,
    /// Whatever belongs to it.
    pub data: serde_json::Value,
    /// The hash of the record before it.
    pub previous: String,
    /// Its own hash.
    pub hash: String,
}
