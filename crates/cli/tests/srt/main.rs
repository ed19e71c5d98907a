//! `cowork srt` and `cowork policy import`, through the program: what commands read, write, reach and
//! return.

#![forbid(unsafe_code)]
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]
#![expect(clippy::tests_outside_test_module, reason = "this whole program is tests")]

mod desk;
mod files;
mod import;
mod line;
mod names;
mod network;
#[expect(dead_code, reason = "it is the world of other tests too, which need more of it")]
#[path = "../world/site.rs"]
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
