//! How long it takes to start a program: plainly, in a session, and in what others offer.

use crate::book::Book;
use crate::engine::{self, Engine};
use crate::options::Options;
use crate::peers::{self, Container, Peer};
use crate::plain::{Plain, Which};
use crate::site::{Site, TRUE};
use crate::stopped::Stopped;
use std::time::Duration;

/// What everything is compared with.
pub(crate) const UNIT: &str = "plain start of a no-op (the unit)";
pub(crate) const PLAIN_TRUE: &str = "plain start of true";
pub(crate) const WARM: &str = "warm exec of a no-op";
pub(crate) const WARM_TRUE: &str = "warm exec of true";
pub(crate) const COLD: &str = "cold session";
/// The peer that others are compared with.
pub(crate) const BWRAP: &str = "bwrap: no-op";

/// From how long on a contender gets fewer turns.
const SLOW: Duration = Duration::from_millis(50);

/// Somebody who takes turns with the others.
struct Contender<'a> {
    name: String,
    /// Takes part in every so manieth round.
    every: usize,
    run: Turn<'a>,
}

type Turn<'a> = Box<dyn FnMut(&mut Book) -> Result<(), Stopped> + 'a>;

pub(crate) fn measure(site: &Site, options: &Options, book: &mut Book) -> Result<(), Stopped> {
    let mut contenders = vec![plain(site)?, warm(site)?, cold(site)?];
    for peer in Peer::ALL {
        let name = format!("{}: no-op", peer.title());
        let Some(program) = peer.find(site) else {
            book.absent(&name, "missing");
            continue;
        };
        let took = match peers::prove(site, peer, &program) {
            Ok(took) => took,
            Err(stopped) => {
                book.absent(&name, &stopped.to_string());
                continue;
            }
        };
        let every = if took > SLOW { options.rounds.div_ceil(slow_turns(options)) } else { 1 };
        let mut jobs = vec![(name, site.noop_inside())];
        if matches!(peer, Peer::Cowork | Peer::Bubblewrap) {
            jobs.push((format!("{}: true", peer.title()), TRUE));
        }
        for (name, job) in jobs {
            let mut command = peer.command(site, &program, &[job])?;
            let noted = name.clone();
            let run = move |book: &mut Book| {
                book.took(&noted, peers::time(&mut command)?);
                Ok(())
            };
            contenders.push(Contender { name, every, run: Box::new(run) });
        }
        if matches!(peer, Peer::Crun | Peer::Runc) {
            match inside_container(site, peer, &program) {
                Ok(contender) => contenders.push(Contender { every, ..contender }),
                Err(stopped) => book.absent(&exec_name(peer), &stopped.to_string()),
            }
        }
    }
    take_turns(contenders, options.rounds, book);
    Ok(())
}

fn slow_turns(options: &Options) -> usize {
    options.effort.pick(3, 20)
}

/// Lets everybody have their turn, round after round. Who fails is out, and is said to be.
///
/// The quick ones run twice in a turn and only the second counts, because the first pays for the
/// caches that the one before has emptied; and each round begins with somebody else.
fn take_turns(mut contenders: Vec<Contender<'_>>, rounds: usize, book: &mut Book) {
    for round in 0..rounds {
        contenders.retain_mut(|contender| {
            if round % contender.every != 0 {
                return true;
            }
            let warmed = match contender.every {
                1 => (contender.run)(&mut Book::default()),
                _ => Ok(()),
            };
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

fn plain(site: &Site) -> Result<Contender<'static>, Stopped> {
    let mut plain = Plain::start(site)?;
    let run = move |book: &mut Book| {
        book.took(UNIT, plain.time(Which::Noop)?);
        book.took(PLAIN_TRUE, plain.time(Which::True)?);
        Ok(())
    };
    Ok(Contender { name: UNIT.into(), every: 1, run: Box::new(run) })
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
    Ok(Contender { name: WARM.into(), every: 1, run: Box::new(run) })
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
        Ok(())
    };
    Ok(Contender { name: COLD.into(), every: 1, run: Box::new(run) })
}

fn exec_name(peer: Peer) -> String {
    format!("{} exec: no-op", peer.program())
}

/// A command in a container that is there.
fn inside_container<'a>(
    site: &'a Site,
    peer: Peer,
    program: &std::path::Path,
) -> Result<Contender<'a>, Stopped> {
    let container = Container::start(site, peer, program)?;
    let name = exec_name(peer);
    let noted = name.clone();
    let run = move |book: &mut Book| {
        book.took(&noted, peers::time(&mut container.command(&[site.noop_inside()]))?);
        Ok(())
    };
    Ok(Contender { name, every: 1, run: Box::new(run) })
}
