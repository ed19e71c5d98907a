//! How much goes through the daemon: events, and what commands write.

use super::server::{Server, command, create, remove, session, starting, to_the_end, wanted};
use crate::book::Book;
use crate::memory::{MIB, to_f64};
use crate::options::Options;
use crate::peers;
use crate::site::Site;
use crate::stopped::Stopped;
use cowork_client::http::{HttpError, Method, Request, Upload};
use cowork_client::types::{
    Command as Ran, Event, NewCommand, Page, Session, SessionChange, StreamKind, Streams,
};
use cowork_client::uri::Query;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long the last event may take after the last change.
const PATIENCE: Duration = Duration::from_secs(30);

/// Changes labels one after the other while somebody listens, then reads the same events again.
pub(super) fn events(
    site: &Site,
    server: &Server,
    options: &Options,
    book: &mut Book,
) -> Result<(), Stopped> {
    let changes: usize = options.effort.pick(200, 5000);
    let mut client = server.client()?;
    let id = create(&mut client, &wanted(site, None))?.0.id;
    let last: Page<Event> = client.get(Query::new("/v1/events").with("after", "end"))?;
    let last = last.next.and_then(|last| last.parse().ok());
    let target = Query::new("/v1/events").with("session", &id).with("type", "session.labels");
    let listen = || client.events(target.target(), last).take(changes);
    let (say, heard) = mpsc::channel();
    let events = listen();
    let begin = Instant::now();
    // A listener that waits for what does not come is left behind.
    std::thread::spawn(move || drop(say.send(hear(events))));
    change_labels(server, &id, changes)?;
    let end = heard.recv_timeout(PATIENCE);
    let end = end.map_err(|_none| Stopped::new("not every event came"))??;
    let count = to_f64(u64::try_from(changes).unwrap_or(0));
    let rate = |took: Duration| count / took.as_secs_f64();
    let how = format!("{changes} label changes over one connection, each heard by a listener");
    book.value("events, from change to listener", rate(end - begin), "events/s", &how);
    let begin = Instant::now();
    let end = hear(listen())?;
    book.value(
        "events that are kept, read again",
        rate(end - begin),
        "events/s",
        "by one listener",
    );
    remove(&mut client, &id)?;
    Ok(())
}

/// Hears events to their end; says when that was.
fn hear(events: impl Iterator<Item = Result<Event, HttpError>>) -> Result<Instant, Stopped> {
    for event in events {
        event?;
    }
    Ok(Instant::now())
}

fn change_labels(server: &Server, id: &str, changes: usize) -> Result<(), Stopped> {
    let mut client = server.client()?;
    for number in 0..changes {
        let labels = [("number".to_owned(), number.to_string())].into();
        let change = SessionChange { labels: Some(labels), ..SessionChange::default() };
        let _changed: Session = client.send(Method::Patch, session(id, ""), &change)?;
    }
    Ok(())
}

/// Lets a command write as fast as it can, read in three ways that take turns.
pub(super) fn output(
    site: &Site,
    server: &Server,
    options: &Options,
    book: &mut Book,
) -> Result<(), Stopped> {
    let mib: u64 = options.effort.pick(32, 512);
    let bytes = mib * 1024 * 1024;
    let mut client = server.client()?;
    let id = create(&mut client, &wanted(site, None))?.0.id;
    let stream = Stream { server, id: &id, bytes };
    let names = ["plain pipe", "API: attached", "API: output followed"]
        .map(|name| format!("{mib} MiB of output, {name}"));
    let [pipe, attached, followed] = &names;
    for _ in 0..options.effort.pick(2, 5) {
        let line = format!("head -c {bytes} /dev/zero | cat > /dev/null");
        let mut plain = site.command("/bin/sh");
        book.took(pipe, peers::time(plain.args(["-c", &line]))?);
        book.took(attached, stream.attached()?);
        book.took(followed, stream.followed()?);
    }
    let plain = book.median_us(pipe);
    for (name, ratio) in [(attached, ATTACHED), (followed, FOLLOWED)] {
        if let (Some(plain), Some(own)) = (plain, book.median_us(name)) {
            let rate = to_f64(bytes) / MIB / (own / 1e6);
            book.value(ratio, plain / own, "of a plain pipe", &format!("{rate:.0} MiB/s"));
        }
    }
    remove(&mut client, &id)?;
    Ok(())
}

const ATTACHED: &str = "throughput of output, attached";
const FOLLOWED: &str = "throughput of output, followed";

/// A command that writes, in a session.
struct Stream<'a> {
    server: &'a Server,
    id: &'a str,
    bytes: u64,
}

impl Stream<'_> {
    /// By frames, from the request to start it until its end is told.
    fn attached(&self) -> Result<Duration, Stopped> {
        let bytes = self.bytes.to_string();
        let start = starting(self.id, &command(&["head", "-c", &bytes, "/dev/zero"]));
        let mut client = self.server.client()?;
        let begin = Instant::now();
        let written = to_the_end(client.upgrade(start)?)?;
        self.check(written)?;
        Ok(begin.elapsed())
    }

    /// By a body, from the moment the command is let loose.
    fn followed(&self) -> Result<Duration, Stopped> {
        let line = format!("read go; exec head -c {} /dev/zero", self.bytes);
        let streams = Streams { stdin: StreamKind::Pipe, ..Streams::default() };
        let waiting = NewCommand { streams, ..command(&["/bin/sh", "-c", &line]) };
        let mut client = self.server.client()?;
        let started: Ran = client.json(&starting(self.id, &waiting))?;
        let part = |rest: &str| session(self.id, &format!("/commands/{}/{rest}", started.number));
        let mut body = client.open(&Request::get(part("output?follow=true")), None)?;
        let begin = Instant::now();
        let go = Upload { from: &mut &b"go\n"[..], length: Some(3) };
        drop(client.open(&Request::new(Method::Post, part("stdin")), Some(go))?);
        let written = std::io::copy(&mut body, &mut std::io::sink());
        let written = written.map_err(|error| Stopped::at("read what is followed", error))?;
        self.check(written)?;
        Ok(begin.elapsed())
    }

    fn check(&self, written: u64) -> Result<(), Stopped> {
        if written == self.bytes {
            return Ok(());
        }
        Err(Stopped::new(format!("{written} of {} bytes came", self.bytes)))
    }
}
