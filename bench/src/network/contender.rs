//! Somebody who reaches the server in a way of their own, and takes turns with the others.

use super::cost;
use super::line::{Line, Running};
use super::server::LAST;
use super::{bulk, cold, crowd, crowded, crowded_memory, flows, kept, new};
use crate::book::Book;
use crate::memory::{MIB, to_f64};
use crate::options::Effort;
use crate::stopped::Stopped;
use serde_json::Value;
use std::time::Duration;

/// From how long on somebody gets fewer turns.
const SLOW: Duration = Duration::from_millis(250);
/// What is moved to see who is slow.
const PROBE: u64 = 8 << 20;
/// How long what has ended is given to be buried, so that its time is counted.
const BURIAL: Duration = Duration::from_millis(20);

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum Test {
    /// This many bytes over one connection.
    Bulk(u64),
    /// This many connections, one after the other, each with a request.
    New(u64),
    /// The same, to a server that ends every connection.
    Cold(u64),
    /// This many requests over one connection.
    Kept(u64),
    /// Connections, sixteen at a time, for so many milliseconds.
    Crowd(u64),
}

impl Test {
    /// All of them, in the order in which they are done.
    pub(super) fn all(effort: Effort) -> [Self; 5] {
        [
            Self::Bulk(bulk_bytes(effort)),
            Self::New(effort.pick(20, 200)),
            Self::Cold(effort.pick(20, 200)),
            Self::Kept(effort.pick(50, 500)),
            Self::Crowd(effort.pick(100, 500)),
        ]
    }
}

fn bulk_bytes(effort: Effort) -> u64 {
    effort.pick(16, 256) << 20
}

/// Whose processor time is counted beside the server's.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// Processes on the way.
    pub(super) processes: Vec<u32>,
    /// Whether the client is one of them.
    pub(super) client: Within,
}

impl Counted {
    /// Where the server itself cannot be seen: no process has this number, and none shows its time.
    pub(super) fn unseen() -> Self {
        Self { processes: vec![0], client: Within::No }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Within {
    /// It is counted beside them.
    #[default]
    No,
    Yes,
}

/// Somebody who takes turns with the others.
#[derive(Debug)]
pub(super) struct Contender {
    title: &'static str,
    // Ends before what it goes through.
    client: Line,
    counted: Counted,
    through: Vec<Running>,
    /// Takes part in every so manieth round.
    every: usize,
    moved: Moved,
}

/// What bulk transfers have cost so far.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    bytes: u64,
    client: u64,
    way: Option<u64>,
    server: Option<u64>,
}

impl Contender {
    /// Sees that the way works at all, and how fast.
    pub(super) fn prove(
        title: &'static str,
        mut client: Line,
        (counted, through): (Counted, Vec<Running>),
        effort: Effort,
    ) -> Result<Self, Stopped> {
        client.ask("new 3")?;
        let answer = client.ask(&format!("bulk {PROBE}"))?;
        let took = times(&answer).into_iter().max().unwrap_or_default();
        let whole = took.mul_f64(to_f64(bulk_bytes(effort)) / to_f64(PROBE));
        let every = if whole > SLOW * effort.pick(1, 10) { effort.pick(2, 4) } else { 1 };
        let moved = Moved { way: Some(0), server: Some(0), ..Moved::default() };
        Ok(Self { title, client, counted, through, every, moved })
    }

    pub(super) fn title(&self) -> &'static str {
        self.title
    }

    /// Does one test, and notes what it took. Whoever is slow waits in some rounds.
    pub(super) fn turn(
        &mut self,
        (round, test): (usize, Test),
        server: u32,
        book: &mut Book,
    ) -> Result<(), Stopped> {
        if !round.is_multiple_of(self.every) {
            return Ok(());
        }
        let title = self.title;
        match test {
            Test::Bulk(bytes) => {
                let took = self.bulk(bytes, server)?;
                book.took(&bulk(title), took);
            }
            Test::New(times) => self.note(&format!("new {times}"), &new(title), book)?,
            // Nobody else keeps connections to the server that clients have ended.
            Test::Cold(times) if title == super::TLS_INSPECTED => {
                self.note(&format!("new {times} {LAST}"), &cold(title), book)?;
            }
            Test::Cold(_) => {}
            Test::Kept(times) => self.note(&format!("kept {times}"), &kept(title), book)?,
            Test::Crowd(milliseconds) => {
                let answer = self.client.ask(&format!("rate {milliseconds}"))?;
                let took = times(&answer).into_iter().sum::<Duration>();
                let count = u32::try_from(count(&answer)).unwrap_or(u32::MAX);
                let none = || Stopped::new("not one connection was made");
                book.took(&crowd(title), took.checked_div(count).ok_or_else(none)?);
            }
        }
        Ok(())
    }

    fn note(&mut self, words: &str, row: &str, book: &mut Book) -> Result<(), Stopped> {
        let answer = self.client.ask(words)?;
        for took in times(&answer) {
            book.took(row, took);
        }
        Ok(())
    }

    /// Moves bytes, and counts what that costs.
    fn bulk(&mut self, bytes: u64, server: u32) -> Result<Duration, Stopped> {
        let look = |processes: &[u32]| cost::ticks_of(processes);
        let before = (look(&self.counted.processes), look(&[server]));
        let answer = self.client.ask(&format!("bulk {bytes}"))?;
        if !self.counted.processes.is_empty() {
            std::thread::sleep(BURIAL);
        }
        let after = (look(&self.counted.processes), look(&[server]));
        let more = |before: Option<u64>, after: Option<u64>, so_far: Option<u64>| {
            Some(after?.saturating_sub(before?) + so_far?)
        };
        let own = match self.counted.client {
            Within::No => answer.get("ticks").and_then(Value::as_u64).unwrap_or(0),
            Within::Yes => 0,
        };
        self.moved = Moved {
            bytes: self.moved.bytes + bytes,
            client: self.moved.client + own,
            way: more(before.0, after.0, self.moved.way),
            server: more(before.1, after.1, self.moved.server),
        };
        Ok(times(&answer).into_iter().sum())
    }

    /// Notes how fast many bytes went, for people.
    pub(super) fn speed(&self, effort: Effort, book: &mut Book) {
        if let Some(summary) = book.summary_in(super::TITLE, &bulk(self.title)) {
            let speed = |took: Duration| to_f64(bulk_bytes(effort)) / 1e6 / took.as_secs_f64();
            let how =
                format!("{} MiB, median; best {:.0}", bulk_bytes(effort) >> 20, speed(summary.min));
            let row = format!("throughput: {}", self.title);
            book.value(&row, speed(summary.median), "MB/s", &how);
        }
    }

    /// Notes how many connections were made in a second, for people.
    pub(super) fn rate(&self, _effort: Effort, book: &mut Book) {
        if let Some(summary) = book.summary_in(super::TITLE, &crowd(self.title)) {
            let rate = |took: Duration| 1.0 / took.as_secs_f64();
            let how = format!("16 at a time, median; best {:.0}", rate(summary.min));
            let row = format!("connections: {}", self.title);
            book.value(&row, rate(summary.median), "/s", &how);
        }
    }

    /// Notes what moving bytes has cost.
    pub(super) fn cost(&self, _effort: Effort, book: &mut Book) {
        let row = super::processor(self.title);
        let Moved { bytes, client, way: Some(way), server: Some(server) } = self.moved else {
            return book.absent(&row, "a process on the way does not show its time");
        };
        if bytes == 0 {
            return book.absent(&row, "nothing was moved");
        }
        let each = |ticks: u64| cost::seconds(ticks) / (to_f64(bytes) / 1e9);
        let (own, between, far) = (each(client), each(way), each(server));
        let how = match self.counted.client {
            Within::No => format!("client {own:.2}, between {between:.2}, server {far:.2}"),
            Within::Yes => format!("client and between {between:.2}, server {far:.2}"),
        };
        book.value(&row, own + between + far, "s/GB", &how);
    }

    /// Opens this many connections, and uses all of them; `meanwhile` is done while they are open.
    pub(super) fn flows(
        &mut self,
        wanted: u64,
        book: &mut Book,
        mut meanwhile: impl FnMut(&mut Book),
    ) -> Result<(), Stopped> {
        let opened = self.client.ask(&format!("hold {wanted}"))?;
        meanwhile(book);
        self.memory(wanted, book);
        let used = self.client.ask("again")?;
        self.client.ask("hold 0")?;
        let [opening, using] =
            [&opened, &used].map(|answer| times(answer).into_iter().sum::<Duration>().as_millis());
        let failed = [&opened, &used].into_iter().find_map(|answer| answer.get("failed")?.as_str());
        let failed = failed.map(|why| format!("; {why}")).unwrap_or_default();
        let how = format!("opened in {opening} ms, all used in {using} ms{failed}");
        book.value(&flows(wanted, self.title), to_f64(count(&used)), "flows", &how);
        let each = format!("{} connections, 16 at a time", count(&used));
        for (what, answer) in [("opened", &opened), ("used", &used)] {
            let took = times(answer).into_iter().sum::<Duration>().as_secs_f64() * 1e3;
            book.value(&crowded(wanted, what, self.title), took, "ms", &each);
        }
        Ok(())
    }

    /// Notes how much memory is on the way, with all that was started for it; for ours that of the
    /// egress process and of the daemon, which keeps its record.
    fn memory(&self, open: u64, book: &mut Book) {
        let roots = self.counted.processes.iter().copied().filter(|pid| *pid != 0);
        // What others are made of is started by them; what our daemon starts is more than the way.
        let others = !self.through.is_empty() || self.counted.client == Within::Yes;
        let of = |pid| if others { super::peers::tree(pid) } else { vec![pid] };
        let mut all: Vec<u32> = roots.flat_map(of).collect();
        all.sort_unstable();
        all.dedup();
        // One that has just ended has none.
        let seen: Vec<_> = all.iter().filter_map(|pid| cost::memory_of(*pid).ok()).collect();
        let Some((_, how)) = seen.first() else { return };
        let bytes = seen.iter().map(|(bytes, _)| bytes).sum::<u64>();
        let client = if self.counted.client == Within::Yes { ", with the client" } else { "" };
        let how = format!("{how} of {} processes{client}", seen.len());
        book.value(&crowded_memory(open, self.title), to_f64(bytes) / MIB, "MiB", &how);
    }

    /// Looks names up, and notes how long that takes.
    pub(super) fn names(&mut self, times: u64, row: &str, book: &mut Book) -> Result<(), Stopped> {
        self.note(&format!("names {times}"), row, book)
    }
}

fn times(answer: &Value) -> Vec<Duration> {
    let all = answer.get("ns").and_then(Value::as_array);
    let all = all.into_iter().flatten().filter_map(Value::as_u64);
    all.map(Duration::from_nanos).collect()
}

fn count(answer: &Value) -> u64 {
    answer.get("count").and_then(Value::as_u64).unwrap_or(0)
}
