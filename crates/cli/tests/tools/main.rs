//! Real tools in a folder whose changes go through the broker, beside the same tools in a plain one.
//!
//! Each scenario runs twice in sessions of the same name: with the folder granted `direct`, which is
//! a plain mount, and granted `rw`. Exit status, output and the resulting trees must be the same.
//! Then everything is undone, and the tree must be what it was before, to the last attribute; redone,
//! and it must be what it was after the run; and undone again.

#![forbid(unsafe_code)]
#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]
#![expect(clippy::tests_outside_test_module, reason = "this whole program is tests")]

mod calls;
mod databases;
mod editors;
mod files;
mod languages;
mod repositories;
mod scenario;
mod tree;

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
