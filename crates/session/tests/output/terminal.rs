//! Terminals: through a real one, and through something that cannot be spliced from.

use crate::support::{
    PATIENCE, Watched, counted, duplicate, folder, pieces, pipe, same, stream, told,
};
use cowork_session::output::{Pump, Source, Stream};
use cowork_sys::ignore;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::inotify;
use rustix::pipe::fcntl_setpipe_size;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc::channel;

/// Both sides of a new terminal: the controlling one, and the command's.
#[must_use]
pub(crate) fn terminal() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let controller = openpt(flags).expect("terminals can be made");
    grantpt(&controller).expect("it is ours");
    unlockpt(&controller).expect("it is ours");
    let side = ioctl_tiocgptpeer(&controller, flags).expect("it is unlocked");
    (controller, side)
}

/// Starts a shell whose three streams are the terminal.
#[must_use]
pub(crate) fn shell(line: &str, side: OwnedFd) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(duplicate(&side)).stdout(duplicate(&side)).stderr(side);
    command.spawn().expect("there is a shell")
}

/// The source that a terminal is.
#[must_use]
pub(crate) fn source(controller: &OwnedFd, (read, write): &(OwnedFd, OwnedFd)) -> Source {
    let pipe = (duplicate(read), duplicate(write));
    Source::Terminal { controller: duplicate(controller), pipe }
}

#[test]
fn what_a_terminal_shows_ends_when_nobody_has_it_open() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let ((controller, side), between) = (terminal(), pipe());
    let watched = Watched::add(&pump, folder.path(), vec![source(&controller, &between)]);
    let mut child = shell("echo out; echo err >&2; test -t 1 && echo terminal", side);
    watched.finished();
    assert!(child.wait().expect("it was started").success());
    assert_eq!(told(folder.path()), "terminal:out\r\nerr\r\nterminal\r\n");
}

#[test]
fn a_flood_through_a_terminal_arrives_whole() {
    const LAST: u32 = 300_000;
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let ((controller, side), between) = (terminal(), pipe());
    let watched = Watched::add(&pump, folder.path(), vec![source(&controller, &between)]);
    let mut child = shell(&format!("seq {LAST}"), side);
    watched.finished();
    assert!(child.wait().expect("it was started").success());
    same(&stream(&pieces(folder.path(), 65536), Stream::Terminal), &counted("", LAST, "\r\n"));
}

#[test]
fn what_waits_between_terminal_and_file_comes_first() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let ((controller, side), between) = (terminal(), pipe());
    crate::support::write(&between.1, b"first ");
    crate::support::write(&side, b"second");
    let watched = Watched::add(&pump, folder.path(), vec![source(&controller, &between)]);
    watched.total(12);
    assert_eq!(told(folder.path()), "terminal:first second");
}

#[test]
fn a_terminal_is_settled_although_it_is_open() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let ((controller, side), between) = (terminal(), pipe());
    let watched = Watched::add(&pump, folder.path(), vec![source(&controller, &between)]);
    for round in 1..=200_u64 {
        crate::support::write(&side, b"0123456789");
        let (sender, settled) = channel();
        let log = std::sync::Arc::clone(&watched.log);
        watched.log.settle(Box::new(move || ignore(sender.send(log.progress()))));
        let progress = settled.recv_timeout(PATIENCE).expect("it settles");
        assert_eq!((progress.total, progress.finished), (round * 10, false));
    }
}

#[test]
fn what_cannot_be_spliced_from_is_copied() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let counter = eventfd(0, EventfdFlags::CLOEXEC).expect("it can be made");
    let between = pipe();
    let watched = Watched::add(&pump, folder.path(), vec![source(&counter, &between)]);
    let mut expected = Vec::new();
    for number in 1..100_u64 {
        crate::support::write(&counter, &number.to_ne_bytes());
        expected.extend(number.to_ne_bytes());
        watched.total(expected.len() as u64);
    }
    same(&stream(&pieces(folder.path(), 1000), Stream::Terminal), &expected);
}

#[test]
fn what_is_copied_is_copied_until_nothing_is_left() {
    const FILES: u64 = 2000;
    let (pump, folder, seen) = (Pump::start().expect("threads"), folder(), folder());
    let notices = inotify::init(inotify::CreateFlags::CLOEXEC).expect("it can be made");
    inotify::add_watch(&notices, seen.path(), inotify::WatchFlags::CREATE).expect("it is there");
    for number in 0..FILES {
        seen.write(&format!("{number}"), "");
    }
    let between = pipe();
    let watched = Watched::add(&pump, folder.path(), vec![source(&notices, &between)]);
    // A notice has 16 bytes and a name, which is filled up to 16.
    watched.total(FILES * 32);
}

#[test]
fn a_pipe_that_holds_one_page_is_enough() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let ((controller, side), between) = (terminal(), pipe());
    fcntl_setpipe_size(&between.0, 4096).expect("it is smaller");
    let all = counted("", 3000, "\r\n");
    let mut child = shell("seq 3000", duplicate(&side));
    let watched = Watched::add(&pump, folder.path(), vec![source(&controller, &between)]);
    watched.total(all.len() as u64);
    assert!(child.wait().expect("it was started").success());
    same(&stream(&pieces(folder.path(), 1000), Stream::Terminal), &all);
}
