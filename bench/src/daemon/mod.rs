//! What the daemon adds: the same work through its API and through the command line client, with
//! everything that it records.
//!
//! The daemons that are measured have folders of their own in the folder of the run, and are asked
//! to leave at the end. How they grow is measured with one that has done nothing else.

mod growth;
mod mcp;
pub(crate) mod server;
mod starts;
mod streams;

use crate::book::Book;
use crate::options::Options;
use crate::site::Site;
use crate::stopped::Stopped;
use server::Server;

/// The section of the results.
pub(crate) const TITLE: &str = "through the daemon";

pub(crate) use starts::{CLIENT, EXEC, EXEC_TRUE, POOLED, SRT};

/// One kind of measurement with a daemon.
type Measure = fn(&Site, &Server, &Options, &mut Book) -> Result<(), Stopped>;

pub(crate) fn measure(site: &Site, options: &Options, book: &mut Book) -> Result<(), Stopped> {
    let kinds: [(&str, Measure); 3] =
        [("starts", starts::measure), ("events", streams::events), ("output", streams::output)];
    let server = Server::start(site, "daemon")?;
    for kind in kinds {
        attempt(site, &server, options, kind, book);
    }
    server.leave()?;
    let server = Server::start(site, "growing")?;
    attempt(site, &server, options, ("growth", growth::measure), book);
    server.leave()
}

/// What stops one kind of measurement does not stop the others.
fn attempt(
    site: &Site,
    server: &Server,
    options: &Options,
    (name, run): (&str, Measure),
    book: &mut Book,
) {
    if let Err(stopped) = run(site, server, options, book) {
        book.absent(&format!("{name} through the daemon"), &stopped.to_string());
    }
}
