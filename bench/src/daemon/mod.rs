//! What the daemon adds: the same work through its API and through the command line client, with
//! everything that it records.
//!
//! The daemon has folders of its own in the folder of the run. It is asked to leave at the end.

mod growth;
mod server;
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
    let server = Server::start(site)?;
    let kinds: [(&str, Measure); 4] = [
        ("starts", starts::measure),
        ("events", streams::events),
        ("output", streams::output),
        ("growth", growth::measure),
    ];
    for (name, run) in kinds {
        if let Err(stopped) = run(site, &server, options, book) {
            book.absent(&format!("{name} through the daemon"), &stopped.to_string());
        }
    }
    server.leave()
}
