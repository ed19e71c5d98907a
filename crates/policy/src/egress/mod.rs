//! What a session may reach: names, addresses, rules, and the decision about each connection and
//! request.
//!
//! A denial wins over an allowance, an allowance over an ask, an ask over what becomes of the rest.
//! A connection is decided first, by host and port; where something inside it matters, every
//! request is decided again. Which address a name leads to is decided last, by [`address`]: the
//! address that was judged is the one that is dialled.
//!
//! Deliberately absent: looking names up, and the clock. Quotas are counted by whoever carries out.

pub mod address;
mod except;
pub mod file;
mod matcher;
mod name;
pub mod presets;
pub mod rule;
pub mod target;

pub use except::{Exception, ExceptionError};
pub use matcher::{Explanation, MAX_RANGE, Matcher, Outcome, Treatment, Verdict, inspects};
pub use name::{HostName, HostNameError, Place};
