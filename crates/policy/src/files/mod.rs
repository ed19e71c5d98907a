//! What a session may do to the names in a granted folder.
//!
//! Three questions, answered without looking at a disk: whether a name is protected
//! ([`Judge::name`]), whether files of its type are refused ([`Judge::is_blocked_name`] and
//! [`Judge::blocked_contents`]), and whether the user's machine may execute it ([`runs_here`]). The
//! names and endings that are known are data, with a reason each: `protected.toml`,
//! `blocked.toml`.
//!
//! Deliberately absent: asking, refusing and recording. The broker does, with what is answered here.

mod blocked;
mod fold;
mod judge;
pub mod pattern;
mod protected;
mod rules;
mod runs;
mod section;

pub use blocked::{Contents, EndingError, MAGIC_BYTES, Magic, blocked_magic, ending};
pub use judge::{Judge, Verdict};
pub use pattern::{Pattern, PatternError};
pub use protected::{Kind, Protected, default_rules, protected};
pub use rules::{
    MAX_REASON, MAX_RULES, NameRuleError, PolicyWordError, Setting, Settings, SettingsError, add,
    merge, name_rule, overruled, policy, remove, word,
};
pub use runs::runs_here;
pub(crate) use section::Section;
