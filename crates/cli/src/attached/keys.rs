//! The keys that leave a command running: Ctrl-P, then Ctrl-Q.

use std::time::{Duration, Instant};

const FIRST: u8 = 0x10;
const SECOND: u8 = 0x11;

/// How long the first key is held back; shells and editors use it as well.
const PATIENCE: Duration = Duration::from_millis(300);

/// Watches what is typed.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// When the first key came, as long as it has not been passed on.
    held: Option<Instant>,
}

impl Keys {
    /// What of the typed bytes is passed on; `None` if the user wants to leave.
    pub(super) fn pass(&mut self, typed: &[u8], now: Instant) -> Option<Vec<u8>> {
        let mut passed = Vec::with_capacity(typed.len() + 1);
        for byte in typed {
            let after_first = self.held.take().is_some();
            if after_first && *byte == SECOND {
                return None;
            }
            if after_first {
                passed.push(FIRST);
            }
            if *byte == FIRST {
                self.held = Some(now);
            } else {
                passed.push(*byte);
            }
        }
        Some(passed)
    }

    /// How long the first key is still held back.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.held.map(|since| (since + PATIENCE).saturating_duration_since(now))
    }

    /// The first key, when it has been held back long enough.
    pub(super) fn expire(&mut self, now: Instant) -> Option<u8> {
        self.held.take_if(|since| now >= *since + PATIENCE).map(|_since| FIRST)
    }
}

#[cfg(test)]
mod tests {
    use super::{Keys, PATIENCE};
    use std::time::Instant;

    #[test]
    fn both_keys_leave_and_nothing_else_is_lost() {
        let now = Instant::now();
        let mut keys = Keys::default();
        assert_eq!(keys.pass(b"ls\r", now), Some(b"ls\r".to_vec()));
        assert_eq!(keys.pass(b"a\x10b\x11", now), Some(b"a\x10b\x11".to_vec()));
        assert_eq!(keys.pass(b"\x10\x10", now), Some(b"\x10".to_vec()));
        assert_eq!(keys.pass(b"\x11", now), None);
        assert_eq!(keys.pass(b"x\x10\x11y", now), None);
    }

    #[test]
    fn the_first_key_alone_is_passed_on_after_a_while() {
        let now = Instant::now();
        let mut keys = Keys::default();
        assert_eq!(keys.wait(now), None);
        assert_eq!(keys.pass(b"\x10", now), Some(Vec::new()));
        assert_eq!(keys.wait(now), Some(PATIENCE));
        assert_eq!(keys.expire(now), None);
        assert_eq!(keys.expire(now + PATIENCE), Some(0x10));
        assert_eq!((keys.expire(now + PATIENCE), keys.wait(now)), (None, None));
    }
}
