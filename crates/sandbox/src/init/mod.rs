//! PID 1 of a session: locks itself down, then starts commands and buries the dead.
//!
//! It is what the first process of a session becomes when its place is furnished. It has two sockets
//! and the null device, and nothing else, and closes the keeper's when it is ready. What it locks down
//! is inherited by every command for free. It is as confined as they are: taking it over gains nothing but the
//! right to start commands.

mod commands;
mod interpreter;
mod lockdown;
mod outbox;
mod tree;

use crate::channel::{Channel, Peer};
use commands::Commands;
use cowork_api::guest::{Began, Begin};
use cowork_sys::signal::Signals;
pub(crate) use lockdown::Walls;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

/// Runs until the keeper or the kernel ends the session. On `control` the keeper tells how to lock
/// down; on `commands` clients start commands. `walls` were made for it in advance.
pub(crate) fn run(
    control: Channel,
    commands: Channel,
    walls: Option<Walls>,
) -> Result<(), rustix::io::Errno> {
    // The keeper of an ordinary user could not open this any more once the process is sealed.
    let storage =
        rustix::fs::open("/proc/self/io", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let signals = Signals::collect(&[Signal::CHILD.as_raw()])?;

    let Some(packet) = control.receive(Peer::Trusted)? else { return Ok(()) };
    let begin = cowork_api::decode::<Begin>(&packet.bytes)
        .map_err(|_malformed| rustix::io::Errno::BADMSG)?;
    match lockdown::lock_down(&begin, walls) {
        Ok(locked) => {
            let message = cowork_api::encode(&locked.began);
            let handles = [Some(&locked.listener), storage.as_ref().ok()];
            let handles: Vec<_> = handles.into_iter().flatten().map(AsFd::as_fd).collect();
            control.send(&message, &handles)?;
        }
        Err(failed) => {
            let errno = failed.errno.raw_os_error();
            let message = Began::Failed { step: failed.step, errno };
            control.send(&cowork_api::encode(&message), &[])?;
            return Err(failed.errno);
        }
    }
    // Not needed any more, and the largest thing this process holds.
    drop((begin, storage));
    // From here on this process ends with the keeper by signal. Had the keeper ended before that was
    // asked for, what was just sent could not have been sent.
    drop(control);
    serve(&signals, Commands::new(commands)?)
}

fn serve(signals: &Signals, mut commands: Commands) -> Result<(), rustix::io::Errno> {
    loop {
        let wanted =
            if commands.has_unsent() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut watched =
            [PollFd::new(signals, PollFlags::IN), PollFd::new(commands.channel(), wanted)];
        match poll(&mut watched, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        }
        let [died, socket] = watched.map(|fd| fd.revents());
        if !died.is_empty() {
            while signals.next()?.is_some() {}
            commands.bury()?;
        }
        if socket.contains(PollFlags::OUT) {
            commands.send_waiting();
        }
        let asked = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        if socket.intersects(asked) && !commands.hear()? {
            return Ok(());
        }
    }
}
