//! The life of a session, as a pure fold over what happens to it.
//!
//! Nothing here acts: the daemon does what a state asks for, and tells what came of it. What does
//! not fit a state is refused with a sentence, or ignored where it only comes too late.

use serde::{Deserialize, Serialize};

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its sandbox is being made.
    Creating,
    /// It waits for commands.
    Ready,
    /// Commands run in it.
    Running,
    /// Its processes stand still.
    Paused,
    /// It has no sandbox; its home is kept and it can be started.
    Stopped,
    /// Its sandbox could not be made or kept.
    Failed,
    /// It is over.
    Ended,
}

/// Something that happens to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The user wants its sandbox made.
    Start,
    /// The sandbox is there, with so many commands running in it.
    Made {
        /// How many.
        running: usize,
    },
    /// The sandbox could not be made, and is not tried again.
    GaveUp,
    /// The number of running commands changed.
    Commands {
        /// How many there are now.
        running: usize,
    },
    /// The user stops every process where it is.
    Pause,
    /// The user lets them go on.
    Resume {
        /// How many commands run.
        running: usize,
    },
    /// The sandbox is gone, or no longer answers, and is made again.
    Lost,
    /// The user, or a limit, takes the sandbox away.
    Stop,
    /// It is over, whatever it was.
    End,
}

/// Why something cannot happen to a session now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// There is no sandbox.
    #[error("the session is {0:?}: start it first")]
    NotLive(State),
    /// There is a sandbox already.
    #[error("the session is {0:?} already")]
    Live(State),
    /// Its processes stand still.
    #[error("the session is paused: resume it first")]
    Paused,
    /// It does not stand still.
    #[error("the session is not paused")]
    NotPaused,
    /// It is being made.
    #[error("the session is being made")]
    Creating,
    /// It is over.
    #[error("the session has ended")]
    Ended,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Creating,
        Self::Ready,
        Self::Running,
        Self::Paused,
        Self::Stopped,
        Self::Failed,
        Self::Ended,
    ];

    /// The state after an event, or why the event cannot be.
    pub fn after(self, event: Event) -> Result<Self, Misfit> {
        use Event as E;
        match (self, event) {
            (Self::Ended, E::End) => Ok(Self::Ended),
            (Self::Ended, _) => Err(Misfit::Ended),
            (_, E::End) => Ok(Self::Ended),
            (Self::Stopped | Self::Failed, E::Start) => Ok(Self::Creating),
            (Self::Creating | Self::Ready | Self::Running | Self::Paused, E::Start) => {
                Err(Misfit::Live(self))
            }
            (Self::Creating, E::Made { running }) => Ok(Self::busy(running)),
            (_, E::Made { .. }) => Err(Misfit::Live(self)),
            (Self::Creating, E::GaveUp) => Ok(Self::Failed),
            (_, E::GaveUp) => Err(Misfit::Live(self)),
            (Self::Ready | Self::Running, E::Commands { running }) => Ok(Self::busy(running)),
            (Self::Paused, E::Commands { .. }) => Ok(Self::Paused),
            (Self::Creating | Self::Stopped | Self::Failed, E::Commands { .. }) => Ok(self),
            (Self::Ready | Self::Running, E::Pause) => Ok(Self::Paused),
            (Self::Paused, E::Pause) => Ok(Self::Paused),
            (Self::Paused, E::Resume { running }) => Ok(Self::busy(running)),
            (Self::Ready | Self::Running, E::Resume { .. }) => Err(Misfit::NotPaused),
            (Self::Creating, E::Pause | E::Resume { .. }) => Err(Misfit::Creating),
            (Self::Stopped | Self::Failed, E::Pause | E::Resume { .. }) => {
                Err(Misfit::NotLive(self))
            }
            (Self::Creating | Self::Ready | Self::Running | Self::Paused, E::Lost) => {
                Ok(Self::Creating)
            }
            (Self::Stopped | Self::Failed, E::Lost) => Ok(self),
            (Self::Creating | Self::Ready | Self::Running | Self::Paused, E::Stop) => {
                Ok(Self::Stopped)
            }
            (Self::Stopped | Self::Failed, E::Stop) => Ok(Self::Stopped),
        }
    }

    fn busy(running: usize) -> Self {
        if running == 0 { Self::Ready } else { Self::Running }
    }

    /// Whether there is, or should be, a sandbox.
    pub fn is_live(self) -> bool {
        match self {
            Self::Creating | Self::Ready | Self::Running | Self::Paused => true,
            Self::Stopped | Self::Failed | Self::Ended => false,
        }
    }

    /// Whether a command can be started in it, or why not.
    pub fn accepts_commands(self) -> Result<(), Misfit> {
        match self {
            Self::Ready | Self::Running => Ok(()),
            Self::Paused => Err(Misfit::Paused),
            Self::Creating => Err(Misfit::Creating),
            Self::Stopped | Self::Failed => Err(Misfit::NotLive(self)),
            Self::Ended => Err(Misfit::Ended),
        }
    }

    /// Its name, as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Ended => "ended",
        }
    }
}

/// When a sandbox that failed is made again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

/// Failures in a row after which a sandbox is not made again.
pub const MAX_FAILURES: u32 = 6;

impl Backoff {
    /// Another failure: how long to wait in seconds before the next try, or `None` to give up. The
    /// first try is made at once.
    pub fn fail(&mut self) -> Option<u64> {
        self.failures += 1;
        match self.failures {
            1 => Some(0),
            n if n < MAX_FAILURES => Some(1 << (n - 2)),
            _ => None,
        }
    }

    /// It has been well for long enough.
    pub fn recover(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Event, MAX_FAILURES, Misfit, State};

    const EVENTS: [Event; 11] = [
        Event::Start,
        Event::Made { running: 0 },
        Event::Made { running: 2 },
        Event::GaveUp,
        Event::Commands { running: 0 },
        Event::Commands { running: 1 },
        Event::Pause,
        Event::Resume { running: 1 },
        Event::Lost,
        Event::Stop,
        Event::End,
    ];

    #[test]
    fn what_has_ended_stays_ended() {
        for event in EVENTS {
            let after = State::Ended.after(event);
            assert!(matches!(after, Ok(State::Ended) | Err(Misfit::Ended)), "{event:?}");
        }
    }

    #[test]
    fn everything_can_be_ended_and_everything_that_lives_can_be_stopped() {
        for state in State::ALL {
            assert_eq!(state.after(Event::End), Ok(State::Ended));
            if state != State::Ended {
                assert_eq!(state.after(Event::Stop), Ok(State::Stopped));
            }
        }
    }

    #[test]
    fn only_a_start_brings_back_what_has_no_sandbox() {
        for state in [State::Stopped, State::Failed] {
            for event in EVENTS {
                let live = state.after(event).is_ok_and(State::is_live);
                assert_eq!(live, event == Event::Start, "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn commands_do_not_thaw_a_paused_session() {
        assert_eq!(State::Paused.after(Event::Commands { running: 0 }), Ok(State::Paused));
        assert_eq!(State::Paused.accepts_commands(), Err(Misfit::Paused));
        assert_eq!(State::Paused.after(Event::Resume { running: 1 }), Ok(State::Running));
    }

    #[test]
    fn a_lost_sandbox_is_made_again_and_given_up_after_a_while() {
        assert_eq!(State::Running.after(Event::Lost), Ok(State::Creating));
        assert_eq!(State::Creating.after(Event::GaveUp), Ok(State::Failed));
        let mut backoff = Backoff::default();
        let waits: Vec<_> = std::iter::from_fn(|| backoff.fail()).collect();
        assert_eq!(waits, [0, 1, 2, 4, 8]);
        assert_eq!(waits.len() + 1, MAX_FAILURES as usize);
        backoff.recover();
        assert_eq!(backoff.fail(), Some(0));
    }
}
