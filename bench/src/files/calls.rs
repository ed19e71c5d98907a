//! Single calls, many at once, and the process that answers them.

use super::ground::{Ground, Way, nanoseconds};
use super::{Field, row};
use crate::book::Book;
use crate::memory::{MIB, to_f64};
use crate::network::cost;
use crate::options::Effort;
use crate::stopped::Stopped;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The unit: a call that another process answers with nothing.
pub(super) const UNIT: &str = "call answered by another process (unit)";
/// Calls that wait when they begin to be answered.
pub(super) const PENDING: &str = "10000 calls that wait, until all are answered";
/// How many of them failed.
pub(super) const REFUSED: &str = "10000 calls that wait, refused";
/// Four processes that create files.
pub(super) const WRITERS: &str = "creates by 4 processes";
/// When memory is looked at for the last time.
pub(super) const AFTER: &str = "after all that";
/// Beyond what is promised for a broker that has recorded as much.
pub(super) const MEMORY: &str = "memory of the broker, of what its records allow";

/// Calls by the small program's words, and by what they are to people.
pub(super) const CALLS: [(&str, &str); 12] = [
    ("open-read", "open read-only"),
    ("stat", "stat"),
    ("create", "create"),
    ("open-write", "open for writing"),
    ("chmod", "chmod"),
    ("access", "access W_OK"),
    ("rename", "rename"),
    ("unlink", "unlink"),
    ("mkdir", "mkdir"),
    ("rmdir", "rmdir"),
    ("dev-null", "outside: open /dev/null"),
    ("tmp", "outside: open in /tmp"),
];

/// A call when whoever makes it and whoever answers share one CPU.
pub(super) fn on_one_cpu(call: &str) -> String {
    format!("{call}, on one CPU")
}

/// What has ratios to a plain mount.
pub(super) fn titles() -> impl Iterator<Item = String> {
    CALLS.iter().map(|(_, title)| format!("call: {title}"))
}

/// All of that, in turns.
pub(super) fn measure(field: &mut Field<'_>, effort: Effort) {
    let number: u32 = effort.pick(300, 2000);
    for _ in 0..effort.pick(1, 5) {
        unit(field, number);
        for ground in &field.grounds {
            let words = ["calls", &number.to_string()];
            let said = ground.ask(&field.place, &words);
            note(said, ground.way, str::to_owned, field.book);
        }
        pinned(field, number);
        writers(field, effort.pick(200, 2000));
    }
    for way in Way::ALL {
        rate(way, effort.pick(200, 2000), field.book);
    }
    if effort == Effort::Full {
        let done = crowd(field, 10_000);
        if let Err(stopped) = done {
            field.book.absent(PENDING, &stopped.to_string());
        }
    }
}

fn unit(field: &mut Field<'_>, number: u32) {
    let Some(outside) = field.ground(Way::Outside) else { return };
    let said = outside.ask(&field.place, &["unit", &number.to_string()]);
    match said.and_then(|said| nanoseconds(&said)) {
        Ok(took) => field.book.took(UNIT, took),
        Err(stopped) => field.book.absent(UNIT, &stopped.to_string()),
    }
}

/// Notes what was said of every call.
fn note(said: Result<String, Stopped>, way: Way, name: impl Fn(&str) -> String, book: &mut Book) {
    let said = match said {
        Ok(said) => said,
        Err(stopped) => return book.absent(&row("call", way), &stopped.to_string()),
    };
    for line in said.lines() {
        let Some((word, time)) = line.split_once(' ') else { continue };
        let Some((_, title)) = CALLS.iter().find(|(known, _)| *known == word) else { continue };
        let row = row(&format!("call: {}", name(title)), way);
        match nanoseconds(time) {
            Ok(took) => book.took(&row, took),
            Err(stopped) => book.absent(&row, &stopped.to_string()),
        }
    }
}

/// The same calls, where the broker has only the CPU of who calls.
fn pinned(field: &mut Field<'_>, number: u32) {
    let Some(ground) = field.ground(Way::Recorded) else { return };
    let mut first = CpuSet::new();
    first.set(0);
    let every = rustix::thread::sched_getaffinity(None);
    let done = ground.broker(field.place.server).and_then(|broker| {
        keep_on(broker, &first)?;
        let said = ground.ask(&field.place, &["calls", &number.to_string(), "0"]);
        if let Ok(every) = every {
            keep_on(broker, &every)?;
        }
        said
    });
    note(done, Way::Recorded, on_one_cpu, field.book);
}

/// Lets all threads of a process run on some CPUs only.
fn keep_on(process: u32, cpus: &CpuSet) -> Result<(), Stopped> {
    let failed = |error: &dyn std::fmt::Display| Stopped::at("the broker's threads", error);
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    for thread in threads.map_err(|error| failed(&error))?.flatten() {
        let thread = thread.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        sched_setaffinity(thread, cpus).map_err(|errno| failed(&errno))?;
    }
    Ok(())
}

/// Several processes create files at the same time.
fn writers(field: &mut Field<'_>, each: u32) {
    for ground in &field.grounds {
        let name = row(WRITERS, ground.way);
        let said = ground.ask(&field.place, &["writers", "4", &each.to_string()]);
        match said.and_then(|said| nanoseconds(&said)) {
            Ok(took) => field.book.took(&name, took),
            Err(stopped) => field.book.absent(&name, &stopped.to_string()),
        }
    }
}

/// How many are created in a second.
pub(super) fn creates(way: Way) -> String {
    format!("creates per second: {}", way.title())
}

fn rate(way: Way, each: u32, book: &mut Book) {
    if let Some(summary) = book.summary(&row(WRITERS, way)) {
        let rate = f64::from(4 * each) / summary.median.as_secs_f64();
        book.value(&creates(way), rate, "/s", "4 processes, median");
    }
}

/// Lets so many threads wait for the broker, which stands still meanwhile, and sees how long it
/// takes to answer all.
fn crowd(field: &mut Field<'_>, number: u32) -> Result<(), Stopped> {
    let none = || Stopped::new("there is no session");
    let ground = field.ground(Way::Recorded).ok_or_else(none)?;
    let broker = i32::try_from(ground.broker(field.place.server)?).ok().and_then(Pid::from_raw);
    let broker = broker.ok_or_else(none)?;
    let send = |signal| {
        kill_process(broker, signal).map_err(|errno| Stopped::at("stop the broker", errno))
    };
    let mut line = ground.line(&field.place, &["crowd", &number.to_string()])?;
    line.hear()?;
    send(Signal::STOP)?;
    let waiting = line.ask("go");
    let begin = Instant::now();
    send(Signal::CONT)?;
    waiting?;
    let last = line.hear()?;
    let took = begin.elapsed();
    let answer: Value = serde_json::from_str(&last).unwrap_or_default();
    let refused = answer.get("refused").and_then(Value::as_u64);
    let refused = refused.ok_or_else(|| Stopped::at("the crowd said", last.trim()))?;
    settle(ground, field)?;
    field.book.took(PENDING, took);
    field.book.value(REFUSED, to_f64(refused), "calls", "the broker stood still until all waited");
    Ok(())
}

/// The folder that a crowd leaves is removed after it has spoken.
fn settle(ground: &Ground, field: &Field<'_>) -> Result<(), Stopped> {
    let end = Instant::now() + Duration::from_secs(20);
    while std::fs::read_dir(ground.folder.join("crowd")).is_ok() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    ground.time(&field.place, "true", "").map(drop)
}

/// Notes the memory of the recorded folder's broker, and what it promises for its records.
pub(super) fn broker_memory(field: &mut Field<'_>, when: &str) {
    let name = format!("memory of the broker, {when}");
    let Some(ground) = field.ground(Way::Recorded) else { return };
    // One that was not needed yet is not there.
    let server = field.place.server;
    let ready = ground.time(&field.place, "echo x > begun && rm begun", "");
    let seen = ready
        .and_then(|_| ground.broker(server))
        .and_then(|broker| cost::memory_of(broker).map_err(Stopped::new));
    let records = server.client().and_then(|mut client| ground.records(&mut client));
    match (seen, records) {
        (Ok((bytes, how)), Ok((records, took))) => {
            let allowed = 4.0 * MIB + 150.0 * to_f64(records);
            let how = format!("{how}; {records} records, listed in {} ms", took.as_millis());
            field.book.value(&name, to_f64(bytes) / MIB, "MiB", &how);
            field.book.value(MEMORY, to_f64(bytes) / allowed, "×", "4 MiB and 150 B per record");
        }
        (Err(stopped), _) | (_, Err(stopped)) => field.book.absent(&name, &stopped.to_string()),
    }
}
