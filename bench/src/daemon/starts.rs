//! How long it takes to start a program through the daemon, in turns with plain starts and peers.

use super::server::{
    Server, await_pool, command, create, remove, session, starting, to_the_end, wanted,
};
use crate::book::Book;
use crate::options::Options;
use crate::peers::{self, Peer};
use crate::site::{Site, TRUE};
use crate::start::{self, Contender};
use crate::stopped::Stopped;
use cowork_client::http::{Client, Method, Request};
use cowork_client::types::Command as Ran;
use std::time::Instant;

/// The command line client alone.
pub(crate) const CLIENT: &str = "cowork --version";
pub(crate) const EXEC: &str = "cowork exec: no-op";
pub(crate) const EXEC_TRUE: &str = "cowork exec: true";
/// A session that was made in advance, right after another one.
pub(crate) const POOLED: &str = "API: session from the pool";
pub(crate) const SRT: &str = "srt: no-op";

/// Sessions of each kind that the daemon makes in advance.
const POOL: u32 = 2;

pub(super) fn measure(
    site: &Site,
    server: &Server,
    options: &Options,
    book: &mut Book,
) -> Result<(), Stopped> {
    let mut client = server.client()?;
    let id = create(&mut client, &wanted(site, None))?.0.id;
    // Both kinds of sessions are in the pool from now on, and each waits for both.
    peers::time(&mut run(site, server))?;
    let mut contenders = vec![
        start::plain(site)?,
        Contender::of_command(CLIENT, server.cowork(site, &["--version"])),
        exec(site, server, &id, EXEC, site.noop_inside()),
        exec(site, server, &id, EXEC_TRUE, TRUE),
        runs(site, server)?,
        srt(site, server, "cowork srt: no-op", site.noop_inside())?,
        srt(site, server, "cowork srt: true", TRUE)?,
        api_exec(site, server, &id)?,
        api_sessions(site, server)?,
    ];
    match super::mcp::tools(site, server) {
        Ok(tools) => contenders.push(tools),
        Err(stopped) => book.absent(super::mcp::RUN, &stopped.to_string()),
    }
    for peer in Peer::ALL {
        contenders.extend(start::of_peer(site, options, peer, book)?);
    }
    start::take_turns(contenders, options.rounds.div_ceil(2), book);
    remove(&mut client, &id)?;
    Ok(())
}

fn exec(
    site: &Site,
    server: &Server,
    id: &str,
    name: &'static str,
    job: &str,
) -> Contender<'static> {
    let command = server.cowork(site, &["exec", "--cd", "mnt/project", id, "--", job]);
    Contender::of_command(name, command)
}

fn run(site: &Site, server: &Server) -> std::process::Command {
    server.cowork(site, &["run", "--cd", "mnt/project", "--", TRUE])
}

/// What takes the place of srt, with the same settings.
fn srt(
    site: &Site,
    server: &Server,
    name: &'static str,
    job: &str,
) -> Result<Contender<'static>, Stopped> {
    let settings = peers::srt_settings(site)?;
    let mut command = server.cowork(site, &["srt", "-s"]);
    command.arg(settings).args(["--", job]);
    Ok(Contender::of_command(name, command))
}

/// `cowork run` when the pool is full: the first one, and one right after it.
fn runs<'a>(site: &Site, server: &'a Server) -> Result<Contender<'a>, Stopped> {
    let mut client = server.client()?;
    let mut command = run(site, server);
    let name = "cowork run, from the pool: true";
    let turns = move |book: &mut Book| {
        await_pool(&mut client, 2 * POOL)?;
        book.took("cowork run, from the pool, after a pause: true", peers::time(&mut command)?);
        book.took(name, peers::time(&mut command)?);
        Ok(())
    };
    Ok(Contender::new(name, turns).unwarmed())
}

/// Commands in a session that is there, over a connection that is there.
fn api_exec<'a>(site: &'a Site, server: &'a Server, id: &str) -> Result<Contender<'a>, Stopped> {
    let mut kept = server.client()?;
    let noop = starting(id, &command(&[site.noop_inside()]));
    let id = id.to_owned();
    let name = "API: exec of a no-op, to its end";
    let turns = move |book: &mut Book| {
        // An attached connection serves no other request.
        let mut once = server.client()?;
        let begin = Instant::now();
        to_the_end(once.upgrade(noop.clone())?)?;
        book.took(name, begin.elapsed());
        let begin = Instant::now();
        let started: Ran = kept.json(&noop)?;
        book.took("API: exec of a no-op, until it is started", begin.elapsed());
        await_end(&mut kept, &id, &started)
    };
    Ok(Contender::new(name, turns))
}

/// Waits until a command has ended, by its output.
fn await_end(client: &mut Client, id: &str, started: &Ran) -> Result<(), Stopped> {
    let target = session(id, &format!("/commands/{}/output?follow=true", started.number));
    client.call(&Request::new(Method::Get, target))?;
    Ok(())
}

/// Sessions over a connection that is there: when the pool is full, and past the pool.
fn api_sessions<'a>(site: &'a Site, server: &'a Server) -> Result<Contender<'a>, Stopped> {
    let mut client = server.client()?;
    let mut number = 0;
    let turns = move |book: &mut Book| {
        let any = wanted(site, None);
        await_pool(&mut client, 2 * POOL)?;
        let (first, took) = create(&mut client, &any)?;
        book.took("API: session from the pool, after a pause", took);
        let (second, took) = create(&mut client, &any)?;
        book.took(POOLED, took);
        for made in [first, second] {
            book.took("API: end of an empty session", remove(&mut client, &made.id)?);
        }
        for _ in 0..2 {
            number += 1;
            // A session with an id of the caller's is not one that was made in advance.
            let named = wanted(site, Some(format!("bench-cold-{number}")));
            let (made, took) = create(&mut client, &named)?;
            // The first one makes up for the caches that others have emptied.
            if number % 2 == 0 {
                book.took("API: session past the pool", took);
            }
            remove(&mut client, &made.id)?;
        }
        Ok(())
    };
    Ok(Contender::new(POOLED, turns).unwarmed())
}
