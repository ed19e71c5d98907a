//! Descriptors of commands that a client leaves with the keeper, in case it dies: the next client
//! gets them back, with what was not read from them.

use rustix::fd::OwnedFd;
use std::collections::HashMap;

/// Most descriptors of one command.
const MAX_PER_COMMAND: usize = 8;
/// Most commands of a session whose descriptors are kept.
const MAX_COMMANDS: usize = 1024;
/// Most descriptors of a session that are kept.
const MAX_ALL: usize = 4 * MAX_COMMANDS;

/// What is kept for the commands of one session.
#[derive(Debug, Default)]
pub(crate) struct Deposits {
    kept: HashMap<u32, Vec<OwnedFd>>,
    count: usize,
}

impl Deposits {
    /// Keeps the descriptors of a command, in place of those that were kept for it. What exceeds a
    /// bound is not kept.
    pub(crate) fn keep(&mut self, command: u32, handles: Vec<OwnedFd>) {
        self.release(command);
        let fits = handles.len() <= MAX_PER_COMMAND
            && self.kept.len() < MAX_COMMANDS
            && self.count + handles.len() <= MAX_ALL;
        if fits && !handles.is_empty() {
            self.count += handles.len();
            self.kept.insert(command, handles);
        }
    }

    /// The descriptors of a command; copies, which share everything with those that are kept.
    pub(crate) fn copies(&self, command: u32) -> Option<Vec<OwnedFd>> {
        self.kept.get(&command)?.iter().map(|handle| handle.try_clone().ok()).collect()
    }

    /// Lets go of the descriptors of a command.
    pub(crate) fn release(&mut self, command: u32) {
        if let Some(handles) = self.kept.remove(&command) {
            self.count -= handles.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Deposits, MAX_ALL, MAX_COMMANDS, MAX_PER_COMMAND};
    use rustix::fd::OwnedFd;

    fn handles(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| std::fs::File::open("/dev/null").unwrap().into()).collect()
    }

    #[test]
    fn what_is_kept_is_bounded_and_replaced() {
        let mut deposits = Deposits::default();
        deposits.keep(1, handles(MAX_PER_COMMAND + 1));
        assert!(deposits.copies(1).is_none());
        deposits.keep(1, handles(3));
        deposits.keep(1, handles(2));
        assert_eq!((deposits.copies(1).map(|copies| copies.len()), deposits.count), (Some(2), 2));
        deposits.release(1);
        assert_eq!((deposits.copies(1).is_none(), deposits.count), (true, 0));
        let soft = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let most = MAX_ALL.min(usize::try_from(soft.unwrap_or(u64::MAX)).unwrap() / 2);
        for command in 0..u32::try_from(MAX_COMMANDS).unwrap() {
            if deposits.count + 1 < most {
                deposits.keep(command, handles(1));
            }
        }
        assert!(deposits.kept.len() <= MAX_COMMANDS && deposits.count <= MAX_ALL);
    }
}
