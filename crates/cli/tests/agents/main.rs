//! Agents in sessions: the real Claude Code and the real Codex, with a model of ours at the other end.
//!
//! They come from the npm registry, into the folder that `COWORK_AGENTS` names: `cargo xtask test`
//! fills it. Their hosts exist in a world of the test's own; nothing leaves the machine.

#![forbid(unsafe_code)]
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]
#![expect(clippy::tests_outside_test_module, reason = "this whole program is tests")]

mod ask;
mod claude;
mod codex;
mod definitions;
mod imported;
mod model;
mod site;

/// Makes each function a test for both persons.
macro_rules! for_everyone {
    ($($(#[$attribute:meta])* $name:ident),+ $(,)?) => {
        mod as_root {
            $(#[test] $(#[$attribute])* fn $name() { super::$name(cowork_testbed::Person::Root); })+
        }
        mod as_user {
            $(#[test] $(#[$attribute])* fn $name() { super::$name(cowork_testbed::Person::User); })+
        }
    };
}
pub(crate) use for_everyone;
