//! What sessions have in common whose folders overlap: a lock, and how much was changed.
//!
//! Each session's broker judges a name and then changes it. Between the two nothing may change that
//! the judgement is about, so that brokers with the same folder, or with one inside another's, make
//! their changes one at a time, and each learns from a counter that another one has made some: then
//! it looks again, as it does after changes of its own session. The lock is the kernel's (`flock` on a
//! file in memory that no session sees), which lets go of it when a broker dies.
//!
//! A session that is alone with its folder makes no system call for this: it says that it is inside,
//! and looks whether it is alone still. Whoever comes is counted by the keeper first, takes the lock,
//! and waits until the other one is out.

use cowork_sys::Errno;
use cowork_sys::memory::Numbers;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, flock};
use std::time::Duration;

/// How many sessions have it.
const USERS: usize = 0;
/// The number of the first process of the session that is inside without the lock; 0 if none is.
const INSIDE: usize = 1;
/// Twice the number of changes; one more while a change is made.
const CHANGES: usize = 2;
/// How often a folder was moved.
const MOVES: usize = 3;
/// How many numbers there are.
const COUNT: usize = 4;
/// Bytes of the file that they are in.
pub(crate) const BYTES: u64 = (COUNT * size_of::<u64>()) as u64;

/// What the sessions of one folder have in common.
#[derive(Debug)]
pub(crate) struct Common {
    lock: OwnedFd,
    numbers: Numbers,
}

impl Common {
    /// From its file, opened for this process alone: the lock is that of the opened file.
    pub(crate) fn new(lock: OwnedFd) -> Result<Self, Errno> {
        let numbers = Numbers::map(lock.as_fd(), COUNT)?;
        Ok(Self { lock, numbers })
    }

    /// How many sessions have it.
    pub(crate) fn users(&self) -> u64 {
        self.numbers.get(USERS)
    }

    /// One more session has it, or one less. The keeper alone says so, of a session whose broker has
    /// not heard of it yet, or is gone.
    pub(crate) fn set_users(&self, users: u64) {
        self.numbers.set(USERS, users);
    }

    /// The broker of this session is gone: it is not inside.
    pub(crate) fn is_left_by(&self, init: u64) {
        if self.numbers.get(INSIDE) == init {
            self.numbers.set(INSIDE, 0);
        }
    }

    /// How many changes were made. One that is being made is not among them.
    fn changes(&self) -> u64 {
        self.numbers.get(CHANGES) >> 1
    }

    fn moves(&self) -> u64 {
        self.numbers.get(MOVES)
    }

    fn add(&self, place: usize) {
        self.numbers.set(place, self.numbers.get(place).wrapping_add(1));
    }

    fn enter(&self, init: u64) -> Result<Entered, Errno> {
        /// Between two looks whether who was alone is out.
        const PAUSE: Duration = Duration::from_micros(20);
        if self.users() <= 1 {
            self.numbers.set(INSIDE, init);
            if self.users() <= 1 {
                self.mend();
                return Ok(Entered::Alone);
            }
            self.numbers.set(INSIDE, 0);
        }
        loop {
            match flock(&self.lock, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                result => break result?,
            }
        }
        // Nobody goes in without the lock any more. Of a broker that died the keeper says so.
        while self.numbers.get(INSIDE) != 0 {
            std::thread::sleep(PAUSE);
        }
        self.mend();
        Ok(Entered::Locked)
    }

    /// Who died in the middle of a change may have made it.
    fn mend(&self) {
        if self.numbers.get(CHANGES) & 1 == 1 {
            self.add(MOVES);
            self.add(CHANGES);
        }
    }

    fn leave(&self, entered: Entered) {
        match entered {
            Entered::Alone => self.numbers.set(INSIDE, 0),
            // It fails for no file that was locked.
            Entered::Locked => cowork_sys::ignore(flock(&self.lock, FlockOperation::Unlock)),
        }
    }
}

/// How somebody is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entered {
    Alone,
    Locked,
}

/// All that a folder of one session has in common with others, in an order that is everybody's.
#[derive(Debug)]
pub(crate) struct Commons {
    all: Vec<Common>,
    /// The number of this session's first process.
    init: u64,
}

impl Commons {
    pub(crate) fn new(files: impl Iterator<Item = OwnedFd>, init: u32) -> Result<Self, Errno> {
        Ok(Self { all: files.map(Common::new).collect::<Result<_, _>>()?, init: u64::from(init) })
    }

    /// How many changes all of them have seen: another number after each.
    pub(crate) fn changes(&self) -> u64 {
        self.all.iter().fold(0, |sum, common| sum.wrapping_add(common.changes()))
    }

    /// How many moves of folders all of them have seen.
    pub(crate) fn moves(&self) -> u64 {
        self.all.iter().fold(0, |sum, common| sum.wrapping_add(common.moves()))
    }

    /// Keeps everybody else from changing anything, until what is returned is dropped. One thread at
    /// a time calls it.
    pub(crate) fn enter(&self) -> Result<Inside<'_>, Errno> {
        let mut inside = Inside { commons: self, entered: Vec::new(), changing: false };
        for common in &self.all {
            let entered = common.enter(self.init)?;
            inside.entered.push(entered);
        }
        Ok(inside)
    }

    /// A folder was moved, by who is inside.
    pub(crate) fn note_move(&self) {
        self.all.iter().for_each(|common| common.add(MOVES));
    }
}

/// Nobody else changes anything until this is dropped.
#[derive(Debug)]
pub(crate) struct Inside<'a> {
    commons: &'a Commons,
    entered: Vec<Entered>,
    changing: bool,
}

impl Inside<'_> {
    /// From here on something is changed.
    pub(crate) fn begin(&mut self) {
        self.changing = true;
        self.commons.all.iter().for_each(|common| common.add(CHANGES));
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        for (common, entered) in self.commons.all.iter().zip(&self.entered).rev() {
            if self.changing {
                common.add(CHANGES);
            }
            common.leave(*entered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES, Common, Commons};
    use rustix::fd::{AsRawFd, OwnedFd};
    use rustix::fs::{MemfdFlags, Mode, OFlags, ftruncate, memfd_create, open};
    use std::sync::atomic::{AtomicU64, Ordering};

    fn file() -> OwnedFd {
        let file = memfd_create(c"common", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, BYTES).unwrap();
        file
    }

    fn again(file: &OwnedFd) -> OwnedFd {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    fn of(file: &OwnedFd, init: u32) -> Commons {
        Commons::new(std::iter::once(again(file)), init).unwrap()
    }

    /// Both count with a load and a store: what is not done one at a time is lost. The second one comes
    /// while the first is alone.
    #[test]
    fn one_at_a_time_also_when_another_comes() {
        const EACH: u64 = 20_000;
        let file = file();
        let keeper = Common::new(again(&file)).unwrap();
        keeper.set_users(1);
        let counted = AtomicU64::new(0);
        let count = |commons: &Commons| {
            let _inside = commons.enter().unwrap();
            let now = counted.load(Ordering::Relaxed);
            std::hint::spin_loop();
            counted.store(now + 1, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let first = of(&file, 1);
                (0..EACH).for_each(|_| count(&first));
            });
            while counted.load(Ordering::Relaxed) < EACH / 10 {
                std::thread::yield_now();
            }
            keeper.set_users(2);
            let second = of(&file, 2);
            (0..EACH).for_each(|_| count(&second));
        });
        assert_eq!(counted.into_inner(), 2 * EACH);
    }

    #[test]
    fn a_change_is_seen_by_the_other_and_one_that_was_broken_off_too() {
        let file = file();
        let (one, other) = (of(&file, 1), of(&file, 2));
        one.all[0].set_users(2);
        let seen = other.changes();
        let mut inside = one.enter().unwrap();
        inside.begin();
        assert_eq!(other.changes(), seen, "it is not made yet");
        one.note_move();
        drop(inside);
        assert_ne!(other.changes(), seen);
        assert_eq!(other.moves(), 1);
        let (seen, moved) = (other.changes(), other.moves());
        // As by a broker that is killed: nothing is said, and the kernel lets go of the lock.
        let mut inside = one.enter().unwrap();
        inside.begin();
        std::mem::forget(inside);
        drop(one);
        let inside = other.enter().unwrap();
        assert_ne!(other.changes(), seen);
        assert_ne!(other.moves(), moved);
        drop(inside);
    }

    #[test]
    fn who_was_alone_and_died_inside_holds_nobody_up() {
        let file = file();
        let keeper = Common::new(again(&file)).unwrap();
        keeper.set_users(1);
        let one = of(&file, 1);
        std::mem::forget(one.enter().unwrap());
        drop(one);
        keeper.set_users(2);
        keeper.is_left_by(7);
        keeper.is_left_by(1);
        drop(of(&file, 2).enter().unwrap());
    }
}
