//! Undo against real folders: what was before comes back exactly.

#![forbid(unsafe_code)]

#[cfg(test)]
mod any_order;
#[cfg(test)]
mod bed;
#[cfg(test)]
mod choices;
#[cfg(test)]
mod differences;
#[cfg(test)]
mod full;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod killed_at_work;
#[cfg(test)]
mod meanwhile;
#[cfg(test)]
mod random;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod shared;
