//! Sessions through the real keeper program, as root and as an ordinary user.
//!
//! Every scenario runs in a process of its own with the id of the person it is about: that process
//! is the client, and starts the keeper as its child. A scenario passes when its process ends well
//! and has said that it came to its end.

#![forbid(unsafe_code)]

#[cfg(test)]
mod bench;
#[cfg(test)]
mod broker;
#[cfg(test)]
mod broker_killed;
#[cfg(test)]
mod clerk;
#[cfg(test)]
mod death;
#[cfg(test)]
mod freeze;
#[cfg(test)]
mod grants;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod malformed;
#[cfg(test)]
mod meanwhile;
#[cfg(test)]
mod measure;
#[cfg(test)]
mod network;
#[cfg(test)]
mod outside;
#[cfg(test)]
mod resident;
#[cfg(test)]
mod revocation;
#[cfg(test)]
mod root;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod tasks;
#[cfg(test)]
mod together;
#[cfg(test)]
mod trust;
#[cfg(test)]
mod view;
#[cfg(test)]
mod writes;
#[cfg(test)]
mod writes_paths;
#[cfg(test)]
mod writes_rules;
#[cfg(test)]
mod written_on;
