//! What the caller asked for.

use crate::stopped::Stopped;
use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
usage: cowork-bench [OPTIONS]
  --quick            few repetitions, to see that everything works
  --as-user          measure as an ordinary user (to be started as root)
  --json FILE        write the results there as well
  --only PART,…      of start, life, memory, steady, growth, daemon, network, files
  --rounds N         turns that every quick contender gets
  --idle N           sessions whose memory is measured
  --live N           largest number of live sessions
  --programs FOLDER  where the programs are that are shipped
                     (else $COWORK_PROGRAMS, else beside this program)
  --srt FILE         the `srt` to compare with
Peers are looked for on $PATH and in $COWORK_BENCH_PEERS.";

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Start,
    Life,
    Memory,
    Steady,
    Growth,
    Daemon,
    Network,
    Files,
}

const PARTS: [(Part, &str); 8] = [
    (Part::Start, "start"),
    (Part::Life, "life"),
    (Part::Memory, "memory"),
    (Part::Steady, "steady"),
    (Part::Growth, "growth"),
    (Part::Daemon, "daemon"),
    (Part::Network, "network"),
    (Part::Files, "files"),
];

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Enough to see that everything works.
    Quick,
    /// Enough for numbers.
    Full,
}

impl Effort {
    /// One of two numbers.
    pub(crate) fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) effort: Effort,
    pub(crate) as_user: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) parts: Vec<Part>,
    pub(crate) rounds: usize,
    pub(crate) idle: usize,
    pub(crate) live: usize,
    pub(crate) programs: Option<PathBuf>,
    pub(crate) srt: Option<PathBuf>,
    /// Set by this program for itself: be the part that makes so many mounts and serves requests.
    pub(crate) mounts: Option<usize>,
}

impl Options {
    pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Self, Stopped> {
        let mut options = Self {
            effort: Effort::Full,
            as_user: false,
            json: None,
            parts: PARTS.iter().map(|(part, _)| *part).collect(),
            rounds: 0,
            idle: 0,
            live: 0,
            programs: None,
            srt: None,
            mounts: None,
        };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let name = argument.to_string_lossy().into_owned();
            let mut value =
                || arguments.next().ok_or_else(|| Stopped::new(format!("`{name}` needs a value")));
            match name.as_str() {
                "--quick" => options.effort = Effort::Quick,
                "--as-user" => options.as_user = true,
                "--json" => options.json = Some(value()?.into()),
                "--only" => options.parts = parts(&value()?.to_string_lossy())?,
                "--rounds" => options.rounds = number(&value()?)?,
                "--idle" => options.idle = number(&value()?)?,
                "--live" => options.live = number(&value()?)?,
                "--programs" => options.programs = Some(value()?.into()),
                "--srt" => options.srt = Some(value()?.into()),
                "--mounts" => options.mounts = Some(number(&value()?)?),
                _ => return Err(Stopped::new(format!("there is no option `{name}`"))),
            }
        }
        let or = |asked: usize, default: usize| if asked == 0 { default } else { asked };
        options.rounds = or(options.rounds, options.effort.pick(10, 300));
        options.idle = or(options.idle, options.effort.pick(10, 100));
        options.live = or(options.live, options.effort.pick(10, 1000));
        Ok(options)
    }
}

fn number(value: &OsString) -> Result<usize, Stopped> {
    let text = value.to_string_lossy();
    text.parse().map_err(|error| Stopped::at(format!("`{text}` is not a number"), error))
}

fn parts(list: &str) -> Result<Vec<Part>, Stopped> {
    list.split(',')
        .map(|wanted| {
            let known = PARTS.iter().find(|(_, name)| *name == wanted);
            known
                .map(|(part, _)| *part)
                .ok_or_else(|| Stopped::new(format!("there is no part `{wanted}`")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Effort, Options, Part};

    fn parse(line: &str) -> Result<Options, String> {
        let words = line.split_whitespace().map(Into::into);
        Options::parse(words).map_err(|stopped| stopped.to_string())
    }

    #[test]
    fn a_number_that_was_named_wins_over_the_effort() {
        let options = parse("--rounds 7 --quick --only life,growth").unwrap();
        assert_eq!((options.effort, options.rounds, options.live), (Effort::Quick, 7, 10));
        assert_eq!(options.parts, [Part::Life, Part::Growth]);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert_eq!(parse("--fast").unwrap_err(), "there is no option `--fast`");
        assert_eq!(parse("--only speed").unwrap_err(), "there is no part `speed`");
        assert_eq!(parse("--json").unwrap_err(), "`--json` needs a value");
    }
}
