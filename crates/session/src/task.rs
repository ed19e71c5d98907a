//! The life of a task, as a pure fold over what happens to it.
//!
//! Nothing here acts: the daemon does what a state asks for, and tells what came of it. What is over
//! stays as it is.

use serde::{Deserialize, Serialize};

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Tasks before it are not over, or its session is not ready.
    Waiting,
    /// Its agent works.
    Running,
    /// The user has stopped it for a while.
    Paused,
    /// Its agent waits for an answer of the user's.
    Asking,
    /// Its agent has answered.
    Done,
    /// It could not be done.
    Failed,
    /// The user has called it off.
    Cancelled,
    /// Its agent was lost in the middle.
    Interrupted,
}

/// Something that happens to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Its agent begins.
    Begin,
    /// The number of its agent's questions that wait for an answer changed.
    Questions {
        /// How many there are now.
        waiting: usize,
    },
    /// The user stops it for a while.
    Pause,
    /// The user lets it go on.
    Resume {
        /// How many questions wait for an answer.
        waiting: usize,
    },
    /// Its agent has answered.
    Finish,
    /// It cannot be done.
    Fail,
    /// The user calls it off.
    Cancel,
    /// Its agent is gone, and nobody knows what it would have answered.
    Lose,
}

/// Why something cannot happen to a task now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// It has not begun.
    #[error("the task has not begun")]
    NotBegun,
    /// It has begun.
    #[error("the task has begun already")]
    Begun,
    /// It does not stand still.
    #[error("the task is not paused")]
    NotPaused,
    /// It is over.
    #[error("the task is over: it is {}", .0.name())]
    Over(State),
}

impl State {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Waiting,
        Self::Running,
        Self::Paused,
        Self::Asking,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
        Self::Interrupted,
    ];

    /// The state after an event, or why the event cannot be.
    pub fn after(self, event: Event) -> Result<Self, Misfit> {
        use Event as E;
        match (self, event) {
            (Self::Done | Self::Failed | Self::Cancelled | Self::Interrupted, _) => {
                Err(Misfit::Over(self))
            }
            (_, E::Cancel) => Ok(Self::Cancelled),
            (_, E::Fail) => Ok(Self::Failed),
            (Self::Waiting, E::Begin) => Ok(Self::Running),
            // What has not begun has lost nothing.
            (Self::Waiting, E::Lose) => Ok(Self::Waiting),
            (Self::Waiting, E::Questions { .. } | E::Pause | E::Resume { .. } | E::Finish) => {
                Err(Misfit::NotBegun)
            }
            (Self::Running | Self::Paused | Self::Asking, E::Begin) => Err(Misfit::Begun),
            (Self::Running | Self::Paused | Self::Asking, E::Lose) => Ok(Self::Interrupted),
            (Self::Running | Self::Paused | Self::Asking, E::Finish) => Ok(Self::Done),
            (Self::Running | Self::Asking, E::Questions { waiting }) => Ok(Self::busy(waiting)),
            (Self::Paused, E::Questions { .. }) => Ok(Self::Paused),
            (Self::Running | Self::Paused | Self::Asking, E::Pause) => Ok(Self::Paused),
            (Self::Paused, E::Resume { waiting }) => Ok(Self::busy(waiting)),
            (Self::Running | Self::Asking, E::Resume { .. }) => Err(Misfit::NotPaused),
        }
    }

    fn busy(waiting: usize) -> Self {
        if waiting == 0 { Self::Running } else { Self::Asking }
    }

    /// Whether nothing more comes of it.
    pub fn is_over(self) -> bool {
        match self {
            Self::Waiting | Self::Running | Self::Paused | Self::Asking => false,
            Self::Done | Self::Failed | Self::Cancelled | Self::Interrupted => true,
        }
    }

    /// Whether its agent has begun and has not come to an end.
    pub fn is_begun(self) -> bool {
        match self {
            Self::Running | Self::Paused | Self::Asking => true,
            Self::Waiting | Self::Done | Self::Failed | Self::Cancelled | Self::Interrupted => {
                false
            }
        }
    }

    /// Its name, as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Asking => "asking",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, Misfit, State};

    const EVENTS: [Event; 10] = [
        Event::Begin,
        Event::Questions { waiting: 0 },
        Event::Questions { waiting: 2 },
        Event::Pause,
        Event::Resume { waiting: 0 },
        Event::Resume { waiting: 1 },
        Event::Finish,
        Event::Fail,
        Event::Cancel,
        Event::Lose,
    ];

    #[test]
    fn what_is_over_stays_as_it_is() {
        for state in State::ALL.into_iter().filter(|state| state.is_over()) {
            for event in EVENTS {
                assert_eq!(state.after(event), Err(Misfit::Over(state)), "{event:?}");
            }
        }
    }

    #[test]
    fn whatever_is_not_over_can_be_cancelled_and_can_fail() {
        for state in State::ALL.into_iter().filter(|state| !state.is_over()) {
            assert_eq!(state.after(Event::Cancel), Ok(State::Cancelled), "{state:?}");
            assert_eq!(state.after(Event::Fail), Ok(State::Failed), "{state:?}");
        }
    }

    #[test]
    fn only_a_beginning_ends_the_waiting() {
        for event in EVENTS {
            let begun = State::Waiting.after(event).is_ok_and(State::is_begun);
            assert_eq!(begun, event == Event::Begin, "{event:?}");
        }
        assert_eq!(State::Waiting.after(Event::Lose), Ok(State::Waiting));
    }

    #[test]
    fn a_lost_agent_interrupts_what_has_begun() {
        for state in State::ALL.into_iter().filter(|state| state.is_begun()) {
            assert_eq!(state.after(Event::Lose), Ok(State::Interrupted), "{state:?}");
            assert_eq!(state.after(Event::Begin), Err(Misfit::Begun), "{state:?}");
        }
    }

    #[test]
    fn questions_do_not_end_a_pause_and_are_asked_after_it() {
        let asked = State::Running.after(Event::Questions { waiting: 1 });
        assert_eq!(asked, Ok(State::Asking));
        assert_eq!(State::Asking.after(Event::Pause), Ok(State::Paused));
        assert_eq!(State::Paused.after(Event::Questions { waiting: 2 }), Ok(State::Paused));
        assert_eq!(State::Paused.after(Event::Resume { waiting: 2 }), Ok(State::Asking));
        assert_eq!(State::Asking.after(Event::Questions { waiting: 0 }), Ok(State::Running));
        assert_eq!(State::Running.after(Event::Resume { waiting: 0 }), Err(Misfit::NotPaused));
    }
}
