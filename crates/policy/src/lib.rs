//! Decides what a session may touch.
//!
//! Every function here is pure: no clock, environment, file system or network. The same policy
//! and the same question always give the same answer, so every rule is testable as data.
//!
//! Deliberately absent: opening a path (`cowork-sandbox` does, beneath a directory handle) and
//! asking the host what it can do (the caller does, and passes the facts in). Until the kernel
//! enforces it, a plan is advice.

#![forbid(unsafe_code)]

pub mod egress;
pub mod files;
mod grant;
mod limits;
mod name;
mod path;
pub mod places;
pub mod plan;
pub mod seccomp;
pub mod view;

pub use grant::{Access, AccessError, GrantName, GrantNameError, GrantSpec, GrantSpecError, MODES};
pub use limits::{
    Bytes, BytesError, Cpus, CpusError, HostSize, Limit, Limits, LimitsError, Origin, Span,
    SpanError,
};
pub use name::{SessionId, SessionIdError};
pub use path::{HostPath, PathError, RelativePath, SessionPath, Translation};
