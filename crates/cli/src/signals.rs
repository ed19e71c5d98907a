//! Signals for this process that are meant for a command.

use crate::failure::Failure;
use cowork_sys::signal::Signals;
use rustix::process::Signal;

/// Signals that are passed on to the command.
const PASSED_ON: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// Collects what is passed on, and changes of the window's size.
pub(crate) fn collect() -> Result<Signals, Failure> {
    let mut numbers: Vec<i32> = PASSED_ON.iter().map(|signal| signal.as_raw()).collect();
    numbers.push(Signal::WINCH.as_raw());
    Signals::collect(&numbers)
        .map_err(|errno| Failure::host("cannot collect signals", Some(errno.to_string())))
}

/// Whether a signal says that the window has another size.
pub(crate) fn is_resize(signal: i32) -> bool {
    signal == Signal::WINCH.as_raw()
}

/// Whether a signal asks for the end.
pub(crate) fn is_final(signal: i32) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].iter().any(|s| s.as_raw() == signal)
}

/// Counts how often the end was asked for.
#[derive(Debug, Default)]
pub(crate) struct Insistence(u32);

impl Insistence {
    /// Whether the user asks for the end again and again: the command may be past answering.
    pub(crate) fn hears(&mut self, signal: i32) -> bool {
        /// How often a final signal is passed on before the command is ended.
        const PATIENCE: u32 = 3;
        if is_final(signal) {
            self.0 += 1;
        }
        self.0 >= PATIENCE
    }
}

/// What is said of a command that was ended because the user insisted.
pub(crate) fn insisted(signal: i32) -> Failure {
    let code = 128u8.saturating_add(u8::try_from(signal).unwrap_or(0));
    Failure::host("the command did not end when asked to, and was ended", None).with_code(code)
}
