//! The near end: makes connections and requests as it is told, and says how long they took.
//!
//! It is this program again, started outside and inside of sessions. It is told by lines on standard
//! input, and answers each with a line of JSON, so that many of them can take turns without being
//! started anew.

use super::cost;
use super::server::{BYTES, TINY};
use super::way::{Connection, PATIENCE, Way};
use crate::stopped::Stopped;
use serde_json::{Value, json};
use std::io::Result;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How many connections are opened at a time, where many are.
const WORKERS: u64 = 16;
/// Bytes that are read at once.
const ROOM: usize = 256 * 1024;

/// Does what the lines of standard input say, until they end.
pub(super) fn serve(words: &[String]) -> std::result::Result<(), Stopped> {
    super::many_files();
    let way = Way::parse(words)?;
    let mut held = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| Stopped::at("read what to do", error))?;
        let answer = obey(&way, &mut held, &line);
        println!("{}", answer.unwrap_or_else(|error| json!({"error": sentence(&error)})));
    }
    Ok(())
}

fn obey(way: &Way, held: &mut Vec<Connection>, line: &str) -> Result<Value> {
    let mut words = line.split(' ');
    let (what, number) = (words.next(), words.next().and_then(|number| number.parse().ok()));
    match (what, number) {
        (Some("bulk"), Some(bytes)) => bulk(way, bytes),
        (Some("new"), Some(times)) => new(way, times, words.next().unwrap_or(TINY)),
        (Some("kept"), Some(times)) => kept(way, times),
        (Some("names"), Some(times)) => names(way, times),
        (Some("rate"), Some(milliseconds)) => rate(way, Duration::from_millis(milliseconds)),
        (Some("hold"), Some(count)) => hold(way, held, count),
        (Some("again"), _) => Ok(again(held)),
        _ => Err(std::io::Error::other(format!("`{line}` is not known"))),
    }
}

/// One connection with many bytes.
fn bulk(way: &Way, bytes: u64) -> Result<Value> {
    let mut room = vec![0; ROOM];
    let ticks = cost::own_ticks();
    let begin = Instant::now();
    way.connect()?.get(&format!("{BYTES}{bytes}"), &mut room)?;
    let took = begin.elapsed();
    Ok(json!({"ns": [nanoseconds(took)], "ticks": cost::own_ticks().saturating_sub(ticks)}))
}

/// Connections with one small request each, one after the other.
fn new(way: &Way, times: u64, path: &str) -> Result<Value> {
    each(times, |room| way.connect()?.get(path, room).map(drop))
}

/// Small requests over one connection.
fn kept(way: &Way, times: u64) -> Result<Value> {
    let mut connection = way.connect()?;
    connection.get(TINY, &mut [0; 64])?;
    each(times, |room| connection.get(TINY, room).map(drop))
}

/// Names that are looked up, without anything else.
fn names(way: &Way, times: u64) -> Result<Value> {
    each(times, |_| way.look_up().map(drop))
}

fn each(times: u64, mut act: impl FnMut(&mut [u8]) -> Result<()>) -> Result<Value> {
    let mut room = [0; 4096];
    let mut took = Vec::new();
    for _ in 0..times {
        let begin = Instant::now();
        act(&mut room)?;
        took.push(nanoseconds(begin.elapsed()));
    }
    Ok(json!({"ns": took}))
}

/// Connections with one small request each, as many as can be had in a time.
fn rate(way: &Way, span: Duration) -> Result<Value> {
    let done = AtomicU64::new(0);
    let begin = Instant::now();
    let work = || -> Result<()> {
        while begin.elapsed() < span {
            way.connect()?.get(TINY, &mut [0; 64])?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(joined)
    })?;
    Ok(json!({"ns": [nanoseconds(begin.elapsed())], "count": done.into_inner()}))
}

/// Opens connections, asks something small on each, and leaves them open; those that were open
/// before are closed.
fn hold(way: &Way, held: &mut Vec<Connection>, count: u64) -> Result<Value> {
    held.clear();
    let started = AtomicU64::new(0);
    let begin = Instant::now();
    let work = || -> (Vec<Connection>, Option<String>) {
        let (mut open, mut error) = (Vec::new(), None);
        while started.fetch_add(1, Ordering::Relaxed) < count {
            let made = way.connect().and_then(|mut connection| {
                connection.get(TINY, &mut [0; 64])?;
                Ok(connection)
            });
            match made {
                Ok(connection) => open.push(connection),
                Err(failed) => error = Some(sentence(&failed)),
            }
        }
        (open, error)
    };
    let made = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS.min(count)).map(|_| scope.spawn(|| Ok(work()))).collect();
        workers.into_iter().map(joined).collect::<Result<Vec<_>>>()
    })?;
    let took = begin.elapsed();
    let mut error = None;
    for (open, failed) in made {
        held.extend(open);
        error = failed.or(error);
    }
    Ok(json!({"ns": [nanoseconds(took)], "count": held.len(), "failed": error}))
}

/// Asks something small on every connection that is open.
fn again(held: &mut [Connection]) -> Value {
    let begin = Instant::now();
    let mut good = 0_usize;
    let mut error = None;
    for connection in held {
        match connection.get(TINY, &mut [0; 64]) {
            Ok(_) => good += 1,
            Err(failed) => error = Some(sentence(&failed)),
        }
    }
    json!({"ns": [nanoseconds(begin.elapsed())], "count": good, "failed": error})
}

fn joined<T>(worker: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    worker.join().unwrap_or_else(|_panic| Err(std::io::Error::other("a worker gave up")))
}

/// What went wrong. A time-out of a socket is told by an errno that says something else.
fn sentence(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::WouldBlock => format!("silence for {} s", PATIENCE.as_secs()),
        _ => error.to_string(),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::obey;
    use crate::network::server;
    use crate::network::way::Way;
    use serde_json::Value;

    /// What a client answers to each line, the times left out.
    fn answers(words: &[&str], lines: &[&str]) -> Vec<(Option<usize>, Option<u64>)> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let way = Way::parse(&words).unwrap();
        let mut held = Vec::new();
        let answers = lines.iter().map(|line| obey(&way, &mut held, line).unwrap_or_default());
        let times = |answer: &Value| answer.get("ns")?.as_array().map(Vec::len);
        let count = |answer: &Value| answer.get("count")?.as_u64();
        answers.map(|answer| (times(&answer), count(&answer))).collect()
    }

    #[test]
    fn client_and_server_agree_plainly_and_over_tls() {
        let (folder, [plain, tls, _]) = server::tests::start();
        let authority = folder.path().join(server::CERTIFICATE);
        let authority = authority.to_str().unwrap();
        let (plain, tls) = (plain.to_string(), tls.to_string());
        let lines =
            ["bulk 3000000", "new 3", "new 2 /last", "kept 4", "hold 20", "again", "hold 0"];
        let expected = [
            (Some(1), None),
            (Some(3), None),
            (Some(2), None),
            (Some(4), None),
            (Some(1), Some(20)),
            (Some(1), Some(20)),
            (Some(1), Some(0)),
        ];
        assert_eq!(answers(&["known", "127.0.0.1", &plain], &lines), expected);
        assert_eq!(answers(&["name", "localhost", &tls, authority], &lines), expected);
    }

    #[test]
    fn what_is_not_served_is_not_taken_for_an_answer() {
        let (_folder, [plain, tls, _]) = server::tests::start();
        let (plain, tls) = (plain.to_string(), tls.to_string());
        let nothing = (None, None);
        assert_eq!(answers(&["known", "127.0.0.1", &plain], &["new 1 /other"]), [nothing]);
        assert_eq!(answers(&["known", "127.0.0.1", &tls], &["new 1"]), [nothing]);
        let proxy = format!("connect=127.0.0.1:{plain}");
        assert_eq!(answers(&[&proxy, "127.0.0.1", &plain], &["new 1"]), [nothing]);
    }
}
