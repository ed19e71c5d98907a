//! The real daemon through its real socket, as root and as an ordinary user.
//!
//! Every test has a daemon with folders of its own, judges by what sessions and the host can see,
//! and ends with a check that nothing is left: no process, mount, control group or socket.

#![forbid(unsafe_code)]

#[cfg(test)]
mod access;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod changes_by;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod control;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod events;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod files;
#[cfg(test)]
mod flooded;
#[cfg(test)]
mod grants;
#[cfg(test)]
mod heart;
#[cfg(test)]
mod inside;
#[cfg(test)]
mod isolation;
#[cfg(test)]
mod life;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod line;
#[cfg(test)]
mod lists;
#[cfg(test)]
mod look;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod network;
#[cfg(test)]
mod once;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod room;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod server;
#[cfg(test)]
mod site;
#[cfg(test)]
mod stream;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod together;
#[cfg(test)]
mod trash;
#[cfg(test)]
mod trouble;
#[cfg(test)]
mod usage;
#[cfg(test)]
mod view;
#[cfg(test)]
mod watched;
#[cfg(test)]
mod websocket;

/// Makes a test of each function for each person.
macro_rules! for_everyone {
    ($($name:ident),+ $(,)?) => {
        #[cfg(test)]
        mod as_root {
            $(#[test] fn $name() { super::$name(cowork_testbed::Person::Root) })+
        }
        #[cfg(test)]
        mod as_user {
            $(#[test] fn $name() { super::$name(cowork_testbed::Person::User) })+
        }
    };
}
pub(crate) use for_everyone;
