//! The hand on real files: what it records, what it keeps, and what a crash leaves.

#![forbid(unsafe_code)]

#[cfg(test)]
mod bed;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod full;
#[cfg(test)]
mod keeping;
#[cfg(test)]
mod log;
#[cfg(test)]
mod records;
#[cfg(test)]
mod sets;
