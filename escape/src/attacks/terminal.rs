//! The caller's terminal: nothing inside can type into it.

use crate::attack::{Attack, Launch, layer};
use crate::raw::{at, call, into};
use crate::runner::CURSOR;
use crate::scene::{Outcome, Scene};
use crate::stage::{Shot, Stage};
use rustix::fd::AsRawFd;
use std::fs::OpenOptions;
use std::io::Write;

const CLASS: &str = "terminal";
const REFUSED: &[(&str, &str)] = &[("EPERM", layer::FILTER)];
const ANSWERED: &[(&str, &str)] = &[("asked", layer::REPLIES)];
const TIOCSTI: usize = 0x5412;
const TIOCSETD: usize = 0x5423;

pub(crate) const TABLE: &[Attack] = &[
    Attack::new(CLASS, "terminal.type", |scene| push(scene, 0, TIOCSTI), REFUSED)
        .launched(Launch::Terminal)
        .judged(typed),
    Attack::new(
        CLASS,
        "terminal.type-high-half",
        |scene| push(scene, 0, 1 << 32 | TIOCSTI),
        REFUSED,
    )
    .launched(Launch::Terminal)
    .judged(typed),
    Attack::new(CLASS, "terminal.type-through-dev-tty", through_name, REFUSED)
        .launched(Launch::Terminal)
        .judged(typed),
    Attack::new(CLASS, "terminal.console", console, REFUSED)
        .as_root()
        .launched(Launch::Terminal)
        .on_some_hosts("the host has no console"),
    Attack::new(CLASS, "terminal.answer", ask, ANSWERED)
        .launched(Launch::Terminal)
        .judged(answered),
    Attack::new(CLASS, "terminal.line-discipline", discipline, REFUSED).launched(Launch::Terminal),
];

fn push(scene: &Scene, terminal: usize, request: usize) -> Outcome {
    for byte in scene.token()?.bytes().chain(*b"\n") {
        call(libc::SYS_ioctl, &[terminal, request, at(&byte)])?;
    }
    Ok("typed".into())
}

fn through_name(scene: &Scene) -> Outcome {
    let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
    push(scene, terminal.as_raw_fd() as usize, TIOCSTI)
}

fn discipline(_: &Scene) -> Outcome {
    call(libc::SYS_ioctl, &[0, TIOCSETD, at(&0i32)])?;
    Ok("set".into())
}

/// What consoles can be told beyond typing, above all to paste. Here it is only asked which keys are
/// held down.
fn console(_: &Scene) -> Outcome {
    const TIOCLINUX: usize = 0x541c;
    let mut held = [6u8];
    let console = OpenOptions::new().read(true).write(true).open("/dev/tty1");
    let terminal = console.as_ref().map_or(0, |console| console.as_raw_fd() as usize);
    call(libc::SYS_ioctl, &[terminal, TIOCLINUX, into(&mut held)])?;
    Ok("the console answered".into())
}

/// Asks the terminal where its cursor is, and leaves the answer to whoever comes next.
fn ask(_: &Scene) -> Outcome {
    let mut screen = std::io::stdout();
    screen.write_all(b"\x1b[6n")?;
    screen.flush()?;
    Ok("asked".into())
}

fn answered(_: &Stage, shot: &Shot) -> Option<String> {
    shot.typed.contains(CURSOR).then(|| "the terminal has its answer as input".into())
}

/// What the next program on the terminal would read.
fn typed(_: &Stage, shot: &Shot) -> Option<String> {
    shot.typed.contains(&shot.token).then(|| "the terminal has it as input".into())
}
