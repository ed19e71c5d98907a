//! The processes that a command started, found from inside the session.
//!
//! They are its descendants, and whoever shares a process session with one of them: a process whose
//! parent has ended is a child of PID 1, and its session still tells where it came from. One that
//! has both lost its parents and made a session of its own cannot be followed.

use crate::kernel::told_of;
use rustix::process::{Pid, Signal, getsid, kill_process};
use std::collections::{HashMap, HashSet};

/// The first process of a command. It leads a process session of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// It was not reaped: its id is its own.
    Living(i32),
    /// It has ended; its id is not given to another process while its session has members.
    Buried(i32),
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    parent: i32,
    session: i32,
}

/// Rounds until a command that starts processes faster than they are found is given up on.
const ROUNDS: u32 = 100;

/// Sends a signal to every process of the tree.
///
/// Before a signal that kills, all of them are stopped, so that none can start another or lose the
/// parent by which it is found.
pub(crate) fn signal(root: Root, signal: Signal) {
    if signal != Signal::KILL && signal != Signal::STOP {
        for pid in members(root, &processes()) {
            send(pid, signal);
        }
        return;
    }
    let mut found = HashSet::new();
    for _ in 0..ROUNDS {
        let now = members(root, &processes());
        let new: Vec<i32> = now.into_iter().filter(|pid| found.insert(*pid)).collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            send(pid, Signal::STOP);
        }
    }
    if signal == Signal::KILL {
        for pid in found {
            send(pid, Signal::KILL);
        }
    }
}

/// A process that has ended meanwhile needs no signal.
fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 1) {
        cowork_sys::ignore(kill_process(pid, signal));
    }
}

/// Everybody who belongs to the tree.
fn members(root: Root, all: &HashMap<i32, Known>) -> HashSet<i32> {
    let mut found = HashSet::new();
    let mut sessions = HashSet::new();
    match root {
        Root::Living(pid) => {
            found.insert(pid);
            sessions.insert(pid);
        }
        // Somebody else has the id by now: nobody is left of the command's own session.
        Root::Buried(pid) if all.contains_key(&pid) => return found,
        Root::Buried(pid) => drop(sessions.insert(pid)),
    }
    loop {
        let before = found.len();
        for (pid, known) in all {
            if found.contains(&known.parent) || sessions.contains(&known.session) {
                found.insert(*pid);
                // Neither PID 1 nor what came from outside is anybody's session.
                if known.session > 1 {
                    sessions.insert(known.session);
                }
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// Every process of the session but PID 1, as far as it can be seen. One that cannot be inspected is
/// known from its parent's list of children.
fn processes() -> HashMap<i32, Known> {
    let mut all = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some((pid, known)) = pid.and_then(|pid| Some((pid, look_at(pid)?))) {
            all.insert(pid, known);
        }
    }
    let seen: Vec<i32> = all.keys().copied().chain([1]).collect();
    for parent in seen {
        for child in children_of(parent) {
            let session = Pid::from_raw(child).and_then(|pid| getsid(Some(pid)).ok());
            let session = session.map_or(0, |session| session.as_raw_nonzero().get());
            all.entry(child).or_insert(Known { parent, session });
        }
    }
    all.remove(&1);
    all
}

fn look_at(pid: i32) -> Option<Known> {
    let stat = told_of(pid, "stat")?;
    // The name is in parentheses and may contain anything; the fields after it are numbers.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let parent = fields.nth(1)?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Known { parent, session })
}

fn children_of(pid: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let numbers =
        |list: String| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>();
    lists.flat_map(numbers).collect()
}

#[cfg(test)]
mod tests {
    use super::{Known, Root, members};
    use std::collections::{HashMap, HashSet};

    fn everybody(list: &[(i32, i32, i32)]) -> HashMap<i32, Known> {
        list.iter()
            .map(|(pid, parent, session)| (*pid, Known { parent: *parent, session: *session }))
            .collect()
    }

    #[test]
    fn descendants_and_sharers_of_a_session_belong_to_the_tree() {
        // 10 started 11, which made a session of its own and started 12; 13 lost its parent and is
        // still in the session of 11; 20 is another command.
        let all = everybody(&[(10, 1, 10), (11, 10, 11), (12, 11, 11), (13, 1, 11), (20, 1, 20)]);
        assert_eq!(members(Root::Living(10), &all), HashSet::from([10, 11, 12, 13]));
        assert_eq!(members(Root::Living(20), &all), HashSet::from([20]));
    }

    #[test]
    fn what_a_buried_command_left_behind_is_found_by_its_session() {
        let all = everybody(&[(11, 1, 10), (12, 11, 12), (20, 1, 20)]);
        assert_eq!(members(Root::Buried(10), &all), HashSet::from([11, 12]));
        assert_eq!(members(Root::Buried(20), &all), HashSet::new());
    }

    #[test]
    fn processes_without_a_session_are_not_taken_together() {
        let all = everybody(&[(10, 1, 10), (11, 10, 0), (30, 1, 0)]);
        assert_eq!(members(Root::Living(10), &all), HashSet::from([10, 11]));
    }
}
