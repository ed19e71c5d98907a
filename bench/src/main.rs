//! Measures cowork and its peers side by side, in one run, and says which targets are met.
//!
//! Everything that starts a program takes turns with everything else, so that the noise of the
//! machine hits all alike. The unit of start times is vfork and exec of a static program that does
//! nothing, measured in the same turns. A missed target is printed; it does not fail the run.
//! What cannot be measured here is printed as such, with its reason.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its results")]

mod book;
mod bundle;
mod daemon;
mod engine;
mod files;
mod growth;
mod life;
mod memory;
mod network;
mod options;
mod peers;
mod plain;
mod report;
mod site;
mod start;
mod steady;
mod stopped;
mod user;

use book::Book;
use options::{Options, Part};
use site::Site;
use std::process::ExitCode;
use stopped::Stopped;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let text: Vec<_> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(done) = network::role(&text) {
        return ended(done);
    }
    let options = match Options::parse(words.into_iter()) {
        Ok(options) => options,
        Err(stopped) => {
            eprintln!("error: {stopped}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    let done = match options.mounts {
        Some(mounts) => growth::serve(&options, mounts),
        None if options.as_user => user::again(&options),
        None => measure(&options),
    };
    ended(done)
}

fn ended(done: Result<(), Stopped>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(stopped) => {
            eprintln!("error: {stopped}");
            ExitCode::FAILURE
        }
    }
}

/// Measures one part.
type Measure = fn(&Site, &Options, &mut Book) -> Result<(), Stopped>;

fn measure(options: &Options) -> Result<(), Stopped> {
    let site = Site::prepare(options)?;
    let mut book = Book::default();
    let parts: [(Part, &str, Measure); 8] = [
        (Part::Start, "starting a program", start::measure),
        (Part::Life, "changing a session", life::measure),
        (Part::Memory, "memory of idle sessions", memory::measure),
        (Part::Steady, "work inside a session", steady::measure),
        (Part::Growth, "growth of the time to make a session", growth::measure),
        (Part::Daemon, daemon::TITLE, daemon::measure),
        (Part::Network, network::TITLE, network::measure),
        (Part::Files, files::TITLE, files::measure),
    ];
    for (part, title, run) in parts {
        if !options.parts.contains(&part) {
            continue;
        }
        eprintln!("measuring: {title}");
        book.section(title);
        if let Err(stopped) = run(&site, options, &mut book) {
            book.absent(title, &stopped.to_string());
        }
    }
    print!("{}", report::text(&site, &book));
    if let Some(path) = &options.json {
        let json = format!("{:#}\n", report::json(&site, &book));
        std::fs::write(path, json).map_err(|error| Stopped::at(path.display(), error))?;
    }
    Ok(())
}
