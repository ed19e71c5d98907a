//! What `cowork run` promises: which folders, which streams, which signals, which code, and that
//! nothing stays.

mod caller;
mod ends;
mod leaves;
mod session;
mod streams;
