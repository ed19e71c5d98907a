//! The record through its own files: written, altered, killed, starved, read.

#![forbid(unsafe_code)]

#[cfg(test)]
mod bench;
#[cfg(test)]
mod chain;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod tampering;
