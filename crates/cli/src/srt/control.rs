//! Settings that arrive while the command runs.

use super::reach::Reach;
use crate::daemon;
use crate::failure::{Failure, note};
use crate::verbs::target;
use cowork_client::http::{Client, Method};
use cowork_client::types::Network;
use cowork_srt::Settings;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{BufRead, BufReader};

/// A descriptor that settings arrive on, one document a line.
#[derive(Debug)]
pub(super) struct Control {
    number: i32,
    lines: File,
}

impl Control {
    /// Takes the descriptor from whoever started this program.
    pub(super) fn open(number: i32) -> Result<Self, Failure> {
        let refused = |why: String| {
            let sentence = format!("`--control-fd {number}` cannot be used");
            let hint = "nothing is run without the settings that would arrive there";
            Failure::input(sentence, hint).with_cause(why)
        };
        let lines = cowork_sys::identity::take_over(number.unsigned_abs())
            .map_err(|errno| refused(std::io::Error::from(errno).to_string()))?;
        let flags = rustix::fs::fcntl_getfl(&lines)
            .map_err(|errno| refused(std::io::Error::from(errno).to_string()))?;
        if flags.contains(OFlags::WRONLY) || flags.contains(OFlags::PATH) {
            return Err(refused("it cannot be read".to_owned()));
        }
        Ok(Self { number, lines: lines.into() })
    }

    /// Follows what arrives, as long as this program runs. Its end is no error.
    pub(super) fn follow(self, reach: Reach, session: &str) -> Result<(), Failure> {
        let mut client = daemon::connect()?;
        let path = target(session, "/network");
        let work = move || {
            let Self { number, lines } = self;
            let mut reach = reach;
            for line in BufReader::new(lines).split(b'\n') {
                let Ok(line) = line else { break };
                let Ok(text) = std::str::from_utf8(&line) else {
                    refuse(number, "it is no text");
                    continue;
                };
                if text.trim().is_empty() {
                    continue;
                }
                match turn(&mut client, &path, &reach, text) {
                    Ok(next) => reach = next,
                    Err(why) => refuse(number, &why),
                }
            }
        };
        let spawned = std::thread::Builder::new().name("control".to_owned()).spawn(work);
        spawned.map(drop).map_err(|error| {
            Failure::host("cannot follow the settings that arrive", Some(error.to_string()))
        })
    }
}

fn turn(client: &mut Client, path: &str, reach: &Reach, text: &str) -> Result<Reach, String> {
    let read = Settings::parse(text).map_err(|wrong| wrong.to_string())?;
    let (change, next) = reach.turn(&read.settings).map_err(|wrong| wrong.to_string())?;
    let changed = client.send::<Network>(Method::Patch, path, &change);
    changed.map(|_network| next).map_err(|error| error.to_string())
}

fn refuse(number: i32, why: &str) {
    note(&format!(
        "Invalid config on control fd {number}: ignored, previous config still in force ({why})"
    ));
}
