//! How the time to make a session grows with the host's mounts and with the sessions that live.

use crate::book::Book;
use crate::engine::{self, Engine};
use crate::options::Options;
use crate::plain::{Plain, Which};
use crate::site::Site;
use crate::stopped::Stopped;
use cowork_policy::Access;
use cowork_sys::process::{Leave, SingleThreaded, unshare};
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Mounts that the host has in addition to its own.
const MOUNTS: [usize; 3] = [0, 100, 400];

/// Sessions that live while another one is made.
const LIVE: [usize; 4] = [1, 10, 100, 1000];

pub(crate) fn measure(site: &Site, options: &Options, book: &mut Book) -> Result<(), Stopped> {
    if let Err(stopped) = with_mounts(site, options, book) {
        book.absent("cold session with more mounts on the host", &stopped.to_string());
    }
    with_sessions(site, options, book)
}

fn with_sessions(site: &Site, options: &Options, book: &mut Book) -> Result<(), Stopped> {
    let mut engine = Engine::start(&site.programs)?;
    let mut plain = Plain::start(site)?;
    let project = engine::project(site)?;
    let grants = std::slice::from_ref(&project);
    let mut rooms = Vec::new();
    for live in LIVE.into_iter().filter(|live| *live <= options.live) {
        let name = format!("cold session, {live} live");
        while rooms.len() < live {
            match engine.create(grants) {
                Ok((room, _)) => rooms.push(room),
                Err(stopped) => {
                    let why = format!("{} live sessions, then {stopped}", rooms.len());
                    book.absent(&name, &why);
                    return Ok(());
                }
            }
        }
        for _ in 0..options.effort.pick(5, 50) {
            book.took(&format!("plain start of a no-op, {live} live"), plain.time(Which::Noop)?);
            let (room, took) = engine.create(grants)?;
            book.took(&name, took);
            engine.destroy(room)?;
        }
    }
    for room in rooms {
        engine.destroy(room)?;
    }
    Ok(())
}

fn with_mounts(site: &Site, options: &Options, book: &mut Book) -> Result<(), Stopped> {
    let servers: Result<Vec<_>, Stopped> =
        MOUNTS.iter().map(|mounts| Server::start(site, *mounts)).collect();
    let mut servers = servers?;
    for _ in 0..options.effort.pick(5, 50) {
        for server in &mut servers {
            let name = format!("cold session, {} more mounts on the host", server.mounts);
            book.took(&name, server.ask()?);
        }
    }
    Ok(())
}

/// This program again, in a mount namespace of its own with more mounts.
struct Server {
    mounts: usize,
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Server {
    fn start(site: &Site, mounts: usize) -> Result<Self, Stopped> {
        let failed = |error: std::io::Error| Stopped::at("cannot start in a namespace", error);
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("--mounts").arg(mounts.to_string()).arg("--programs").arg(&site.programs);
        command.current_dir(site.at("")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(ask), Some(answers)) => {
                Ok(Self { mounts, child, ask, answers: BufReader::new(answers) })
            }
            _ => Err(Stopped::new("a child has no streams")),
        }
    }

    fn ask(&mut self) -> Result<Duration, Stopped> {
        let failed = |error: std::io::Error| Stopped::at("the part with more mounts", error);
        self.ask.write_all(b"\n").map_err(failed)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(failed)?;
        let nanoseconds = line.trim().parse();
        nanoseconds
            .map(Duration::from_nanos)
            .map_err(|_other| Stopped::new("the part with more mounts gave up"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Makes the mounts, where nobody else sees them, and then a session for every line that is asked.
pub(crate) fn serve(options: &Options, mounts: usize) -> Result<(), Stopped> {
    enter_namespace()?;
    let other = Path::new("other");
    let place = format!("mounts-{mounts}");
    for number in 0..mounts {
        let point = Path::new(&place).join(number.to_string());
        std::fs::create_dir_all(&point).map_err(|error| Stopped::at(point.display(), error))?;
        mount_bind(other, &point).map_err(|errno| Stopped::at(point.display(), errno))?;
    }
    let programs = options.programs.clone().unwrap_or_default();
    let mut engine = Engine::start(&programs)?;
    let project = engine::grant_of(Path::new("project"), Access::Write)?;
    let (first, _) = engine.create(std::slice::from_ref(&project))?;
    engine.destroy(first)?;
    for line in std::io::stdin().lines() {
        line.map_err(|error| Stopped::at("read what is asked", error))?;
        let (room, took) = engine.create(std::slice::from_ref(&project))?;
        println!("{}", took.as_nanos());
        engine.destroy(room)?;
    }
    Ok(())
}

fn enter_namespace() -> Result<(), Stopped> {
    let failed = |error: &dyn std::fmt::Display| Stopped::at("make a mount namespace", error);
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let proof = SingleThreaded::observe().map_err(|error| failed(&error))?;
    let leave = if uid.is_root() { Leave::Mounts } else { Leave::UserAndMounts };
    unshare(&proof, leave).map_err(|errno| failed(&errno))?;
    if leave == Leave::UserAndMounts {
        let (uid, gid) = (uid.as_raw(), gid.as_raw());
        for (name, text) in [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("{uid} {uid} 1")),
            ("gid_map", format!("{gid} {gid} 1")),
        ] {
            let path = format!("/proc/self/{name}");
            std::fs::write(path, text).map_err(|error| failed(&error))?;
        }
    }
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(|errno| failed(&errno))
}
