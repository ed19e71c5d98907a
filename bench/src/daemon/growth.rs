//! How the daemon fares with more sessions: the time of its acts, and its memory.

use super::server::{Server, command, create, remove, starting, to_the_end, wanted};
use crate::book::Book;
use crate::memory::{MIB, fields_of, to_f64};
use crate::options::Options;
use crate::plain::{Plain, Which};
use crate::site::Site;
use crate::stopped::Stopped;
use cowork_client::http::Client;
use cowork_client::types::Session;
use std::time::{Duration, Instant};

/// Sessions that live while something is measured.
const LIVE: [usize; 4] = [1, 10, 100, 1000];

pub(super) fn measure(
    site: &Site,
    server: &Server,
    options: &Options,
    book: &mut Book,
) -> Result<(), Stopped> {
    let mut client = server.client()?;
    let mut plain = Plain::start(site)?;
    // The first session builds what all of them share.
    let (first, _) = create(&mut client, &wanted(site, Some("bench-first".to_owned())))?;
    exec(site, server, &first)?;
    remove(&mut client, &first.id)?;
    let mut sessions = Vec::new();
    let before = Memory::look(server, &sessions);
    for live in LIVE.into_iter().filter(|live| *live <= options.live) {
        while sessions.len() < live {
            let id = format!("bench-live-{}", sessions.len());
            match create(&mut client, &wanted(site, Some(id))) {
                Ok((session, _)) => sessions.push(session),
                Err(stopped) => {
                    let why = format!("{} live sessions, then {stopped}", sessions.len());
                    book.absent(&format!("API: session past the pool, {live} live"), &why);
                    return Ok(());
                }
            }
        }
        memory(&before, &Memory::look(server, &sessions), live, book);
        for turn in 0..options.effort.pick(5, 50) {
            let unit = format!("plain start of a no-op, {live} live, with the daemon");
            book.took(&unit, plain.time(Which::Noop)?);
            let cold = wanted(site, Some(format!("bench-more-{live}-{turn}")));
            let (session, took) = create(&mut client, &cold)?;
            book.took(&format!("API: session past the pool, {live} live"), took);
            let took = exec(site, server, &session)?;
            book.took(&format!("API: exec of a no-op, {live} live"), took);
            let took = remove(&mut client, &session.id)?;
            book.took(&format!("API: end of an empty session, {live} live"), took);
        }
        idle(server, live, options, book)?;
    }
    end(&mut client, &sessions)
}

fn exec(site: &Site, server: &Server, session: &Session) -> Result<Duration, Stopped> {
    let mut client = server.client()?;
    let noop = starting(&session.id, &command(&[site.noop_inside()]));
    let begin = Instant::now();
    to_the_end(client.upgrade(noop)?)?;
    Ok(begin.elapsed())
}

fn end(client: &mut Client, sessions: &[Session]) -> Result<(), Stopped> {
    for session in sessions {
        remove(client, &session.id)?;
    }
    Ok(())
}

/// Bytes in use.
struct Memory {
    daemon: Result<u64, String>,
    keeper: Result<u64, String>,
    /// Of the first processes of all sessions.
    inits: Result<u64, String>,
    /// What of it is counted.
    how: &'static str,
}

impl Memory {
    /// Shares of what is shared are counted where the kernel shows them.
    fn look(server: &Server, sessions: &[Session]) -> Self {
        let processes = server.processes().map_err(|stopped| stopped.to_string());
        let shown = processes.as_ref().is_ok_and(|[_, keeper]| {
            fields_of(*keeper, "smaps_rollup", &["Pss:"]).is_ok_and(|bytes| bytes > 0)
        });
        let (file, field, how) =
            if shown { ("smaps_rollup", "Pss:", "PSS") } else { ("status", "VmRSS:", "RSS") };
        let of = |pid: u32| fields_of(pid, file, &[field]);
        let inits = sessions.iter().filter_map(|session| session.sandbox.as_ref());
        Self {
            daemon: processes.clone().and_then(|[daemon, _]| of(daemon)),
            keeper: processes.and_then(|[_, keeper]| of(keeper)),
            inits: inits.map(|sandbox| of(sandbox.pid.unsigned_abs())).sum(),
            how,
        }
    }
}

fn memory(before: &Memory, after: &Memory, live: usize, book: &mut Book) {
    let each = to_f64(u64::try_from(live).unwrap_or(1));
    let how = after.how;
    for (name, then, now) in [
        ("coworkd", &before.daemon, &after.daemon),
        ("cowork-keeper", &before.keeper, &after.keeper),
        ("first processes of sessions", &before.inits, &after.inits),
    ] {
        let name = format!("memory of {name}, {live} live");
        match (then, now) {
            (Ok(then), Ok(now)) => {
                let grown = to_f64(now.saturating_sub(*then)) / 1024.0 / each;
                let how = format!("{how}; {grown:.1} KiB more for each session");
                book.value(&name, to_f64(*now) / MIB, "MiB", &how);
            }
            (Err(why), _) | (_, Err(why)) => book.absent(&name, why),
        }
    }
}

/// What the daemon and its keeper do while nothing is asked of them.
fn idle(server: &Server, live: usize, options: &Options, book: &mut Book) -> Result<(), Stopped> {
    let span = Duration::from_secs(options.effort.pick(1, 10));
    let [daemon, keeper] = server.processes()?;
    let before = [ticks(daemon)?, ticks(keeper)?];
    std::thread::sleep(span);
    let after = [ticks(daemon)?, ticks(keeper)?];
    let hertz = to_f64(rustix::param::clock_ticks_per_second());
    for (name, (before, after)) in
        ["coworkd", "cowork-keeper"].into_iter().zip(before.into_iter().zip(after))
    {
        let busy = to_f64(after.saturating_sub(before)) / hertz / span.as_secs_f64() * 100.0;
        let how = format!("in {} s without a request", span.as_secs());
        book.value(&format!("idle {name}, {live} live"), busy, "% of a processor", &how);
    }
    Ok(())
}

/// Processor time of a process so far.
fn ticks(pid: u32) -> Result<u64, Stopped> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).map_err(|error| Stopped::at(&path, error))?;
    // The name in parentheses may contain anything.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let numbers = fields.split_whitespace().skip(11).take(2);
    let numbers: Result<Vec<u64>, _> = numbers.map(str::parse).collect();
    numbers.map(|numbers| numbers.iter().sum()).map_err(|error| Stopped::at(&path, error))
}
