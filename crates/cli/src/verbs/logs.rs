//! `cowork logs`: what a command wrote, for people to read.

use super::{exec, named, target};
use crate::arguments::{Logs, StreamName};
use crate::daemon;
use crate::failure::{Failure, note};
use crate::show::{self, neutral::Neutralised};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use cowork_client::http::Request;
use cowork_client::types::Raw;
use cowork_client::uri::Query;
use serde_json::json;
use std::io::{Read, Write};
use std::process::ExitCode;

/// Writes the output of a command, and what is to come if asked.
pub(crate) fn logs(options: &Logs) -> Result<ExitCode, Failure> {
    let on_terminal = rustix::termios::isatty(rustix::stdio::stdout());
    if options.raw && on_terminal && !options.force {
        return Err(Failure::input(
            "the bytes of a command can make a terminal do things",
            "leave out `--raw`, write to a file, or mean it with `--force`",
        ));
    }
    let (session, number) = named(options.session.as_deref(), options.number);
    let mut client = daemon::connect()?;
    let command = exec::command(&mut client, &session, number)?;
    if options.from < command.dropped {
        note(&format!("the first {} bytes are no longer kept", command.dropped));
    }
    let stream = options.stream.to_possible_value();
    let path = target(&command.session, &format!("/commands/{}/output", command.number));
    let query = Query::new(path)
        .with("from", options.from.to_string())
        .with_some("stream", stream.as_ref().map(PossibleValue::get_name))
        .with("follow", options.follow.to_string());
    let mut response = client.open(&Request::get(query), None)?;
    let mut form = Form::new(options, command.dropped);
    let mut piece = vec![0; 64 * 1024];
    loop {
        let length = response.read(&mut piece).map_err(|error| {
            Failure::host("the daemon ended in the middle of the output", Some(error.to_string()))
                .with_hint("go on with `--from`")
        })?;
        let text = match length {
            0 => form.end(),
            length => form.piece(piece.get(..length).unwrap_or_default())?,
        };
        if write(&text)? == Reader::Gone || length == 0 {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Whether somebody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    There,
    Gone,
}

fn write(text: &[u8]) -> Result<Reader, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => {
            Err(Failure::host("cannot write to standard output", Some(error.to_string())))
        }
    }
}

/// How pieces are written.
enum Form {
    Bytes,
    Text(Neutralised),
    /// With the offset of the next piece, where there is one for all streams together.
    Lines(Option<u64>),
}

impl Form {
    fn new(options: &Logs, dropped: u64) -> Self {
        if options.output.json {
            let merged = options.stream == StreamName::All;
            return Self::Lines(merged.then_some(options.from.max(dropped)));
        }
        if options.raw { Self::Bytes } else { Self::Text(Neutralised::default()) }
    }

    fn piece(&mut self, piece: &[u8]) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Bytes => Ok(piece.to_vec()),
            Self::Text(neutral) => Ok(neutral.add(piece).into_bytes()),
            Self::Lines(offset) => {
                let data = Raw::new(piece);
                let line = match offset {
                    Some(offset) => json!({ "offset": *offset, "data": data }),
                    None => json!({ "data": data }),
                };
                if let Some(offset) = offset {
                    *offset += u64::try_from(piece.len()).unwrap_or(0);
                }
                show::json_line(&line).map(String::into_bytes)
            }
        }
    }

    fn end(&mut self) -> Vec<u8> {
        match self {
            Self::Bytes | Self::Lines(_) => Vec::new(),
            Self::Text(neutral) => neutral.end().into_bytes(),
        }
    }
}
