//! What work inside a session costs, compared with the same work outside.

use crate::book::{Book, micros};
use crate::engine::{self, Engine, Room};
use crate::options::Options;
use crate::site::Site;
use crate::stopped::Stopped;
use std::process::Stdio;
use std::time::Duration;

/// How much of the native speed is left for reads in a granted folder.
pub(crate) const READS: &str = "reads in a grant, share of the native speed";

/// Operations of the small program, each with its repetitions.
const OPERATIONS: [(&str, u32); 5] = [
    ("getppid", 1_000_000),
    ("open+close", 100_000),
    ("stat", 200_000),
    ("ioctl", 1_000_000),
    ("connect", 2_000),
];

pub(crate) fn measure(site: &Site, options: &Options, book: &mut Book) -> Result<(), Stopped> {
    site.need_built()?;
    let data = site.project().join("data");
    let bytes = options.effort.pick(32, 256) << 20;
    std::fs::write(&data, vec![1; bytes]).map_err(|error| Stopped::at(data.display(), error))?;
    let mut engine = Engine::start(&site.programs)?;
    let (mut room, _) = engine.create(&[engine::project(site)?])?;
    let divide = options.effort.pick(20, 1);
    let operations = OPERATIONS.iter().map(|(name, count)| (*name, (count / divide).max(1)));
    // The first round of reads fills the cache and is not counted.
    outside(site, "read", 1)?;
    for _ in 0..options.effort.pick(2, 9) {
        for (name, count) in operations.clone().chain([("read", 1)]) {
            book.took(&format!("{name}, outside"), outside(site, name, count)?);
            book.took(&format!("{name}, inside"), inside(&mut room, name, count)?);
        }
    }
    engine.destroy(room)?;
    let ratio = |book: &Book, name: &str| {
        let outside = book.summary(&format!("{name}, outside"))?;
        let inside = book.summary(&format!("{name}, inside"))?;
        Some(micros(inside.median) / micros(outside.median))
    };
    for (name, _) in operations {
        if let Some(ratio) = ratio(book, name) {
            book.value(&format!("{name}, inside ÷ outside"), ratio, "×", "medians");
        }
    }
    if let Some(ratio) = ratio(book, "read") {
        let how = format!("{} MiB, cached, medians", bytes >> 20);
        book.value(READS, 1.0 / ratio, "", &how);
    }
    Ok(())
}

fn outside(site: &Site, operation: &str, count: u32) -> Result<Duration, Stopped> {
    let mut command = site.command(site.project().join("steady"));
    command.args([operation, "data"]).arg(site.at("home")).arg(count.to_string());
    let done = command.stdout(Stdio::piped()).output();
    let done = done.map_err(|error| Stopped::at("the small program of operations", error))?;
    time(operation, &String::from_utf8_lossy(&done.stdout))
}

fn inside(room: &mut Room, operation: &str, count: u32) -> Result<Duration, Stopped> {
    let count = count.to_string();
    time(operation, &room.output(&["./steady", operation, "data", "/tmp", &count])?)
}

fn time(operation: &str, printed: &str) -> Result<Duration, Stopped> {
    let nanoseconds = printed.trim().parse();
    nanoseconds
        .map(Duration::from_nanos)
        .map_err(|error| Stopped::at(format!("{operation} printed `{}`", printed.trim()), error))
}
