//! The real program, with listeners of the tests' own in place of a session's.
//!
//! The tests hold what a daemon holds: the line, and the sockets that they hand over. Hosts are
//! servers of the tests on the loopback, reached by rules that name it.

#![forbid(unsafe_code)]

#[cfg(test)]
mod asks;
#[cfg(test)]
mod capture;
#[cfg(test)]
mod confinement;
#[cfg(test)]
mod crowds;
#[cfg(test)]
mod dns;
#[cfg(test)]
mod errands;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod load;
#[cfg(test)]
mod proxies;
#[cfg(test)]
mod published;
#[cfg(test)]
mod record;
#[cfg(test)]
mod session;
#[cfg(test)]
mod tls;

/// Makes each function a test for both persons: whose the process is that is under test.
#[cfg(test)]
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
#[cfg(test)]
pub(crate) use for_everyone;
