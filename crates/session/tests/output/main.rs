//! Commands' output through real pipes and terminals into real files, with a pump that is killed,
//! a disk that is full, and an index that is torn.
//!
//! Every claim is judged by bytes that the writer is known to have written: each stream counts, so
//! that a byte that is missing, doubled or out of place is seen.

#![forbid(unsafe_code)]

#[cfg(test)]
mod damage;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod speed;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod support;
#[cfg(test)]
mod terminal;
