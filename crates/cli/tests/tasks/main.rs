//! Tasks of agents, from `cowork ask` to the agent and back, as root and as an ordinary user.
//!
//! The agent is a small program of the tests' own (`agent.py`) that does what its prompt says, and
//! speaks as Claude Code does. It is defined by a file, like any agent of a user's.

#![forbid(unsafe_code)]
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]
#![expect(clippy::tests_outside_test_module, reason = "this whole program is tests")]

mod asking;
mod control;
mod garbage;
mod killed;
mod kinds;
mod order;
mod site;
mod telling;

/// Makes each function a test for both persons.
macro_rules! for_everyone {
    ($($name:ident),+ $(,)?) => {
        mod as_root {
            $(#[test] fn $name() { super::$name(cowork_testbed::Person::Root); })+
        }
        mod as_user {
            $(#[test] fn $name() { super::$name(cowork_testbed::Person::User); })+
        }
    };
}
pub(crate) use for_everyone;
