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
mod faults;
mod files;
mod intercepted;
mod names;
mod noticed;
mod oauth;
mod own;
mod parents;
mod quotas;
mod records;
mod refusals;
mod registries;
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

/// Makes each function a test for both persons, and for worlds in which connections to every port
/// arrive and in which only those to named ports do.
macro_rules! for_every_site {
    ($($name:ident),+ $(,)?) => {
        $crate::for_every_site!(@ as_root, Root, EveryPort, $($name),+);
        $crate::for_every_site!(@ as_user, User, EveryPort, $($name),+);
        $crate::for_every_site!(@ as_root_by_ports, Root, NamedPorts, $($name),+);
        $crate::for_every_site!(@ as_user_by_ports, User, NamedPorts, $($name),+);
    };
    (@ $module:ident, $person:ident, $way:ident, $($name:ident),+) => {
        mod $module {
            use $crate::site::{Site, Way};
            $(#[test] fn $name() {
                super::$name(Site::by(cowork_testbed::Person::$person, Way::$way));
            })+
        }
    };
}
pub(crate) use for_every_site;
