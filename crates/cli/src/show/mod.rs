//! What verbs print: JSON as the API has it, or text for people.

pub(crate) mod neutral;
pub(crate) mod progress;
pub(crate) mod table;
pub(crate) mod units;

use crate::failure::Failure;
use cowork_client::types::Raw;
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;

/// Writes to standard output. A reader that has seen enough is no failure.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<ExitCode, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => {
            Err(Failure::host("cannot write to standard output", Some(error.to_string())))
        }
    }
}

/// Writes one document of JSON.
pub(crate) fn json(document: &impl Serialize) -> Result<ExitCode, Failure> {
    print(self::document(document)?)
}

/// One document of JSON, on many lines.
pub(crate) fn document(document: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::host("cannot write JSON", Some(error.to_string())))?;
    Ok(text + "\n")
}

/// One line of JSON.
pub(crate) fn json_line(item: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(item)
        .map_err(|error| Failure::host("cannot write JSON", Some(error.to_string())))?;
    Ok(text + "\n")
}

/// A path or a word of a user, for people.
pub(crate) fn raw(raw: &Raw) -> String {
    neutral::line(&raw.lossy())
}

/// The words of a command on one line, each quoted as a shell would need it.
pub(crate) fn words(argv: &[Raw]) -> String {
    let quoted = |word: &Raw| {
        let word = raw(word);
        let plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    argv.iter().map(quoted).collect::<Vec<_>>().join(" ")
}
