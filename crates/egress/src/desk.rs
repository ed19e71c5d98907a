//! Questions that wait for the user.
//!
//! A question is about a host and a port, and whoever wants something of it while it waits joins it:
//! there is one for each. Where rules tell requests from each other it is about a method and a path
//! instead, because there the user has said that they are not all the same.
//!
//! Whoever can wait no longer is told to try again; the answer that comes afterwards serves that very
//! try, for a while, and nothing else that was not asked.

use crate::ledger::MAX_PATH;
use cowork_api::egress::{Answer, Ask, Target};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long a question stands after whoever asked it was told to try again.
const STANDS: Duration = Duration::from_mins(10);
/// How long an answer serves the next try.
const SERVES: Duration = Duration::from_mins(2);
/// Most questions that wait at a time.
pub(crate) const MAX_ASKS: usize = 32;
/// Most tries that answers serve later.
const MAX_LATE: usize = 256;

/// What an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of the host and port that waits.
    Host,
    /// One method and path.
    Request,
}

/// The questions.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    last: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// Answers that came when nobody waited any more, for the next try.
    late: Vec<Late>,
}

/// A question, with everyone who waits for the answer.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// What was wanted first: the user sees it.
    pub(crate) target: Target,
    pub(crate) scope: Scope,
    askers: Vec<oneshot::Sender<Answer>>,
    /// What those wanted who were told to try again.
    later: Vec<Target>,
    /// Until when it stands although nobody waits.
    stands: Option<Instant>,
}

#[derive(Debug)]
struct Late {
    target: Target,
    answer: Answer,
    until: Instant,
}

/// What became of somebody who wants to know.
#[derive(Debug)]
pub(crate) enum Joined {
    /// A question that was there already has this number, and is answered later.
    Waits(u64),
    /// So is a new one, which made some others be withdrawn.
    Asks { number: u64, withdrawn: Vec<u64> },
    /// It was answered before it was asked again.
    Answered(Answer),
    /// Too many wait already.
    Full,
}

/// Whether two want the very same. What was cut is like nothing else.
fn same(one: &Target, other: &Target) -> bool {
    let cut = |target: &Target| target.path.as_ref().is_some_and(|path| path.len() >= MAX_PATH - 4);
    same_host(one, other) && one.method == other.method && one.path == other.path && !cut(one)
}

fn same_host(one: &Target, other: &Target) -> bool {
    one.host == other.host && one.port == other.port
}

impl Waiting {
    fn is_about(&self, target: &Target, scope: Scope) -> bool {
        self.scope == scope
            && match scope {
                Scope::Host => same_host(&self.target, target),
                Scope::Request => same(&self.target, target),
            }
    }

    fn is_idle(&self) -> bool {
        self.askers.is_empty()
    }
}

impl Desk {
    /// Joins those who wait for the same, or asks, or finds the answer.
    pub(crate) fn join(
        &mut self,
        target: &Target,
        scope: Scope,
        sender: oneshot::Sender<Answer>,
        now: Instant,
    ) -> Joined {
        self.late.retain(|late| late.until > now);
        if let Some(index) = self.late.iter().position(|late| same(&late.target, target)) {
            return Joined::Answered(self.late.swap_remove(index).answer);
        }
        let mut all = self.waiting.iter_mut();
        if let Some((number, waiting)) = all.find(|(_, known)| known.is_about(target, scope)) {
            waiting.later.retain(|known| !same(known, target));
            waiting.askers.push(sender);
            return Joined::Waits(*number);
        }
        let withdrawn = self.clear(now);
        if self.waiting.len() >= MAX_ASKS {
            return Joined::Full;
        }
        self.last += 1;
        let waiting = Waiting {
            target: target.clone(),
            scope,
            askers: vec![sender],
            later: Vec::new(),
            stands: None,
        };
        self.waiting.insert(self.last, waiting);
        Joined::Asks { number: self.last, withdrawn }
    }

    /// Questions that nobody waits for and that stand no longer, and the oldest of those that still
    /// stand if there is no room.
    fn clear(&mut self, now: Instant) -> Vec<u64> {
        let over = |waiting: &Waiting| waiting.stands.is_none_or(|until| until <= now);
        let mut gone = self.withdraw(|waiting| waiting.is_idle() && over(waiting));
        if self.waiting.len() >= MAX_ASKS {
            let mut idle = self.waiting.iter().filter(|(_, waiting)| waiting.is_idle());
            if let Some((number, _)) = idle.next() {
                gone.push(*number);
            }
        }
        for number in &gone {
            self.waiting.remove(number);
        }
        gone
    }

    /// Withdraws questions that nobody waits for and that `settled` says have been answered.
    pub(crate) fn withdraw_idle(&mut self, settled: impl Fn(&Waiting) -> bool) -> Vec<u64> {
        self.withdraw(|waiting| waiting.is_idle() && settled(waiting))
    }

    fn withdraw(&mut self, which: impl Fn(&Waiting) -> bool) -> Vec<u64> {
        let known = self.waiting.iter().filter(|(_, waiting)| which(waiting));
        let gone: Vec<u64> = known.map(|(number, _)| *number).collect();
        for number in &gone {
            self.waiting.remove(number);
        }
        gone
    }

    /// Somebody is told to try again: the question stands.
    pub(crate) fn put_off(&mut self, number: u64, target: &Target, now: Instant) {
        let Some(waiting) = self.waiting.get_mut(&number) else { return };
        waiting.stands = Some(now + STANDS);
        let known = waiting.later.iter().any(|known| same(known, target));
        if !known && waiting.later.len() < MAX_LATE {
            waiting.later.push(target.clone());
        }
    }

    /// Forgets those who have gone. Whether that withdraws the question.
    pub(crate) fn leave(&mut self, number: u64) -> bool {
        let Some(waiting) = self.waiting.get_mut(&number) else { return false };
        waiting.askers.retain(|asker| !asker.is_closed());
        let over = waiting.is_idle() && waiting.stands.is_none();
        if over {
            self.waiting.remove(&number);
        }
        over
    }

    /// The user has answered.
    pub(crate) fn answer(&mut self, number: u64, answer: &Answer, now: Instant) {
        let Some(waiting) = self.waiting.remove(&number) else { return };
        for target in waiting.later {
            if self.late.len() < MAX_LATE {
                self.late.push(Late { target, answer: answer.clone(), until: now + SERVES });
            }
        }
        for asker in waiting.askers {
            drop(asker.send(answer.clone()));
        }
    }

    /// All questions, for a daemon that has not heard them.
    pub(crate) fn asks(&self) -> impl Iterator<Item = Ask> {
        let ask = |(number, waiting): (&u64, &Waiting)| Ask {
            ask: *number,
            target: waiting.target.clone(),
        };
        self.waiting.iter().map(ask)
    }
}

#[cfg(test)]
mod tests {
    use super::{Desk, Joined, MAX_ASKS, SERVES, STANDS, Scope};
    use cowork_api::egress::{Answer, Target};
    use std::time::Instant;
    use tokio::sync::oneshot::{self, Receiver};

    fn target(host: &str, path: &str) -> Target {
        let (method, path) = (Some("GET".into()), Some(path.into()));
        Target { host: host.into(), port: 443, method, path, ..Target::default() }
    }

    fn join(desk: &mut Desk, wanted: &Target, scope: Scope) -> (Joined, Receiver<Answer>) {
        let (sender, answer) = oneshot::channel();
        (desk.join(wanted, scope, sender, Instant::now()), answer)
    }

    #[track_caller]
    fn waits(joined: (Joined, Receiver<Answer>)) -> (u64, bool, Receiver<Answer>) {
        match joined {
            (Joined::Waits(number), answer) => (number, false, answer),
            (Joined::Asks { number, .. }, answer) => (number, true, answer),
            (other, _) => panic!("{other:?}"),
        }
    }

    #[test]
    fn whoever_wants_something_of_the_same_host_joins() {
        let mut desk = Desk::default();
        let (one, is_new, mut first) = waits(join(&mut desk, &target("a", "/1"), Scope::Host));
        assert!(is_new);
        let (two, is_new, mut second) = waits(join(&mut desk, &target("a", "/2"), Scope::Host));
        assert!(one == two && !is_new);
        let elsewhere = Target { port: 80, ..target("a", "/1") };
        for other in [target("b", "/1"), elsewhere] {
            assert!(waits(join(&mut desk, &other, Scope::Host)).1, "{other:?}");
        }
        // The user sees the first.
        assert_eq!(desk.asks().next().unwrap().target.path.as_deref(), Some("/1"));
        desk.answer(one, &Answer::Allow, Instant::now());
        assert_eq!((first.try_recv(), second.try_recv()), (Ok(Answer::Allow), Ok(Answer::Allow)));
        // Once is once.
        assert!(waits(join(&mut desk, &target("a", "/1"), Scope::Host)).1);
    }

    #[test]
    fn where_requests_are_told_apart_they_are_asked_about_one_by_one() {
        let mut desk = Desk::default();
        let (one, _, _first) = waits(join(&mut desk, &target("a", "/1"), Scope::Request));
        assert!(waits(join(&mut desk, &target("a", "/2"), Scope::Request)).1);
        let (same, is_new, _) = waits(join(&mut desk, &target("a", "/1"), Scope::Request));
        assert!(same == one && !is_new);
        // Nor does it join a question about the whole host, or that one this.
        assert!(waits(join(&mut desk, &target("a", "/1"), Scope::Host)).1);
    }

    #[test]
    fn an_answer_that_comes_late_serves_those_tries_that_were_put_off() {
        let mut desk = Desk::default();
        let now = Instant::now();
        let (one, _, first) = waits(join(&mut desk, &target("a", "/1"), Scope::Host));
        let (_, _, second) = waits(join(&mut desk, &target("a", "/2"), Scope::Host));
        let (_, _, mut third) = waits(join(&mut desk, &target("a", "/3"), Scope::Host));
        for (path, answer) in [("/1", first), ("/2", second)] {
            desk.put_off(one, &target("a", path), now);
            drop(answer);
            assert!(!desk.leave(one));
        }
        // One of them comes back before the answer.
        let (_, is_new, mut again) = waits(join(&mut desk, &target("a", "/2"), Scope::Host));
        assert!(!is_new);
        desk.answer(one, &Answer::Allow, now);
        assert_eq!((third.try_recv(), again.try_recv()), (Ok(Answer::Allow), Ok(Answer::Allow)));
        // Nothing that was not asked, and nothing twice.
        assert!(waits(join(&mut desk, &target("a", "/2"), Scope::Host)).1);
        let (served, _) = join(&mut desk, &target("a", "/1"), Scope::Host);
        assert!(matches!(served, Joined::Answered(Answer::Allow)), "{served:?}");
        assert!(!waits(join(&mut desk, &target("a", "/1"), Scope::Host)).1);
    }

    #[test]
    fn what_serves_later_does_so_for_a_while() {
        let mut desk = Desk::default();
        let now = Instant::now();
        let (one, _, first) = waits(join(&mut desk, &target("a", "/1"), Scope::Host));
        desk.put_off(one, &target("a", "/1"), now);
        drop(first);
        assert!(!desk.leave(one));
        desk.answer(one, &Answer::Allow, now);
        let joined = desk.join(&target("a", "/1"), Scope::Host, oneshot::channel().0, now + SERVES);
        assert!(matches!(joined, Joined::Asks { .. }), "{joined:?}");
    }

    #[test]
    fn the_oldest_that_nobody_waits_for_makes_room() {
        let mut desk = Desk::default();
        let now = Instant::now();
        let mut answers = Vec::new();
        for number in 0..MAX_ASKS {
            let wanted = target(&format!("h{number}"), "/");
            let (number, _, answer) = waits(join(&mut desk, &wanted, Scope::Host));
            desk.put_off(number, &wanted, now);
            answers.push(answer);
        }
        assert!(matches!(join(&mut desk, &target("more", "/"), Scope::Host).0, Joined::Full));
        answers.drain(3..5);
        assert!(!desk.leave(4) && !desk.leave(5));
        let mut ask = |host: &str, now| match desk.join(
            &target(host, "/"),
            Scope::Host,
            oneshot::channel().0,
            now,
        ) {
            Joined::Asks { number, withdrawn } => (number, withdrawn),
            other => panic!("{other:?}"),
        };
        assert_eq!(ask("more", now), (33, vec![4]));
        assert_eq!(ask("and more", now + STANDS), (34, vec![5]));
        assert!(desk.leave(34), "nobody waits for it");
    }
}
