//! The catalogue through its own file: written, read, damaged, killed, starved.

#![forbid(unsafe_code)]

#[cfg(test)]
mod documents;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod file;
#[cfg(test)]
mod support;
