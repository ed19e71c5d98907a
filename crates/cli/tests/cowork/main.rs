//! The real command line, started as root and as an ordinary user: real programs in sessions, what
//! `run` promises, what bad input is told, and what cowork says about itself.
//!
//! Every claim is judged from outside the session: by the command's output, by the granted folder
//! on the host, by the host's processes. What cannot run here fails, or says aloud that it did not
//! run.

#![forbid(unsafe_code)]

#[cfg(test)]
mod docs;
#[cfg(test)]
mod input;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod run;
#[cfg(test)]
mod support;
#[cfg(test)]
mod verbs;
