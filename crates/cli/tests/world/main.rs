//! Sessions that may reach something, in a world of their own: real programs, real servers.

#![forbid(unsafe_code)]
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]
#![expect(clippy::tests_outside_test_module, reason = "this whole program is tests")]

mod clients;
mod refusals;
mod secrets;
mod site;

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
