//! How long it takes to start a program: plainly, in a session, and in what others offer.

use crate::book::Book;
use crate::engine::{self, Engine};
use crate::options::Options;
use crate::peers::{self, Container, Peer};
use crate::plain::{Plain, Which};
use crate::site::{Site, TRUE};
use crate::stopped::Stopped;
use std::process::Command;
use std::time::Duration;

/// What everything is compared with.
pub(crate) const UNIT: &str = "plain start of a no-op (the unit)";
pub(crate) const PLAIN_TRUE: &str = "plain start of true";
pub(crate) const WARM: &str = "warm exec of a no-op";
pub(crate) const WARM_TRUE: &str = "warm exec of true";
pub(crate) const COLD: &str = "cold session";
/// The peer that others are compared with.
pub(crate) const BWRAP: &str = "bwrap: no-op";
pub(crate) const BWRAP_TRUE: &str = "bwrap: true";

/// From how long on a contender gets fewer turns.
const SLOW: Duration = Duration::from_millis(50);

/// Somebody who takes turns with the others.
pub(crate) struct Contender<'a> {
    name: String,
    /// Takes part in every so manieth round.
    every: usize,
    /// Whether each turn begins with a run that does not count.
    warms: bool,
    run: Turn<'a>,
}

impl<'a> Contender<'a> {
    /// Takes part in every round, each time with a run before it that does not count.
    pub(crate) fn new(
        name: impl Into<String>,
        run: impl FnMut(&mut Book) -> Result<(), Stopped> + 'a,
    ) -> Self {
        Self { name: name.into(), every: 1, warms: true, run: Box::new(run) }
    }

    /// Runs a command to its end.
    pub(crate) fn of_command(name: impl Into<String>, mut command: Command) -> Self {
        let name = name.into();
        let noted = name.clone();
        Self::new(name, move |book| {
            book.took(&noted, peers::time(&mut command)?);
            Ok(())
        })
    }

    /// Every run counts.
    pub(crate) fn unwarmed(self) -> Self {
        Self { warms: false, ..self }
    }
}

type Turn<'a> = Box<dyn FnMut(&mut Book) -> Result<(), Stopped> + 'a>;

pub(crate) fn measure(site: &Site, options: &Options, book: &mut Book) -> Result<(), Stopped> {
    let mut contenders = vec![plain(site)?, warm(site)?, cold(site)?];
    for peer in Peer::ALL {
        contenders.extend(of_peer(site, options, peer, book)?);
        if !matches!(peer, Peer::Crun | Peer::Runc) {
            continue;
        }
        let Some(run) = contenders.last().filter(|last| last.name == noop_name(peer)) else {
            continue;
        };
        let (every, warms) = (run.every, run.warms);
        match inside_container(site, peer) {
            Ok(contender) => contenders.push(Contender { every, warms, ..contender }),
            Err(stopped) => book.absent(&exec_name(peer), &stopped.to_string()),
        }
    }
    take_turns(contenders, options.rounds, book);
    Ok(())
}

fn noop_name(peer: Peer) -> String {
    format!("{}: no-op", peer.title())
}

/// What a peer contributes; nothing where it is missing or does not work, which is noted.
pub(crate) fn of_peer<'a>(
    site: &'a Site,
    options: &Options,
    peer: Peer,
    book: &mut Book,
) -> Result<Vec<Contender<'a>>, Stopped> {
    let name = noop_name(peer);
    let Some(program) = peer.find(site) else {
        book.absent(&name, "missing");
        return Ok(Vec::new());
    };
    let took = match peers::prove(site, peer, &program) {
        Ok(took) => took,
        Err(stopped) => {
            book.absent(&name, &stopped.to_string());
            return Ok(Vec::new());
        }
    };
    let every = if took > SLOW { options.rounds.div_ceil(slow_turns(options)) } else { 1 };
    let mut jobs = vec![(name, site.noop_inside())];
    if !matches!(peer, Peer::Crun | Peer::Runc | Peer::Firejail) {
        jobs.push((format!("{}: true", peer.title()), TRUE));
    }
    let contenders = jobs.into_iter().map(|(name, job)| {
        let command = peer.command(site, &program, &[job])?;
        Ok(Contender { every, warms: every == 1, ..Contender::of_command(name, command) })
    });
    contenders.collect()
}

fn slow_turns(options: &Options) -> usize {
    options.effort.pick(3, 20)
}

/// Lets everybody have their turn, round after round. Who fails is out, and is said to be.
///
/// The quick ones run twice in a turn and only the second counts, because the first pays for the
/// caches that the one before has emptied; and each round begins with somebody else.
pub(crate) fn take_turns(mut contenders: Vec<Contender<'_>>, rounds: usize, book: &mut Book) {
    for round in 0..rounds {
        contenders.retain_mut(|contender| {
            if round % contender.every != 0 {
                return true;
            }
            let warmed =
                if contender.warms { (contender.run)(&mut Book::default()) } else { Ok(()) };
            match warmed.and_then(|()| (contender.run)(book)) {
                Ok(()) => true,
                Err(stopped) => {
                    let name = format!("{} (out in round {round})", contender.name);
                    book.absent(&name, &stopped.to_string());
                    false
                }
            }
        });
        if !contenders.is_empty() {
            contenders.rotate_left(1);
        }
    }
}

pub(crate) fn plain(site: &Site) -> Result<Contender<'static>, Stopped> {
    let mut plain = Plain::start(site)?;
    let run = move |book: &mut Book| {
        book.took(UNIT, plain.time(Which::Noop)?);
        book.took(PLAIN_TRUE, plain.time(Which::True)?);
        Ok(())
    };
    Ok(Contender::new(UNIT, run))
}

/// A command in a session that is there.
fn warm(site: &Site) -> Result<Contender<'_>, Stopped> {
    let mut engine = Engine::start(&site.programs)?;
    let (mut room, _) = engine.create(&[engine::project(site)?])?;
    room.run(&[site.noop_inside()])?;
    let run = move |book: &mut Book| {
        book.took(WARM, room.run(&[site.noop_inside()])?);
        book.took(WARM_TRUE, room.run(&[TRUE])?);
        // The session lives as long as its keeper.
        let _alive = &engine;
        Ok(())
    };
    Ok(Contender::new(WARM, run))
}

/// A session that is made for the purpose, up to where a command could be started.
fn cold(site: &Site) -> Result<Contender<'_>, Stopped> {
    let mut engine = Engine::start(&site.programs)?;
    let project = engine::project(site)?;
    // The first session of a keeper builds what all of them share.
    let (first, _) = engine.create(&[])?;
    engine.destroy(first)?;
    let run = move |book: &mut Book| {
        let (room, took) = engine.create(std::slice::from_ref(&project))?;
        book.took(COLD, took);
        book.took("end of an empty session", engine.destroy(room)?);
        let (room, took) = engine.create(&[])?;
        book.took("cold session without a grant", took);
        engine.destroy(room)?;
        // What the keeper has made ready while it had nothing to do is used up by now.
        let (room, _) = engine.create(std::slice::from_ref(&project))?;
        engine.destroy(room)?;
        let (room, took) = engine.create(std::slice::from_ref(&project))?;
        book.took("cold session, the fourth in a row", took);
        engine.destroy(room)?;
        Ok(())
    };
    // As it is for whoever wants one: with nobody right before.
    Ok(Contender::new(COLD, run).unwarmed())
}

fn exec_name(peer: Peer) -> String {
    format!("{} exec: no-op", peer.program())
}

/// A command in a container that is there.
fn inside_container(site: &Site, peer: Peer) -> Result<Contender<'_>, Stopped> {
    let program = peer.find(site).ok_or_else(|| Stopped::new("missing"))?;
    let container = Container::start(site, peer, &program)?;
    let name = exec_name(peer);
    let noted = name.clone();
    Ok(Contender::new(name, move |book| {
        book.took(&noted, peers::time(&mut container.command(&[site.noop_inside()]))?);
        Ok(())
    }))
}
