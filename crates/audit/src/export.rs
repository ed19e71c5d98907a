//! The record for other programs, in constant memory.

use crate::read::{Refused, scan};
use crate::{Filter, LedgerError, Record, line};
use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;

/// What the columns of a table are called.
const COLUMNS: [&str; 7] = ["seq", "time", "type", "session", "data", "previous", "hash"];

/// Writes the wanted records as they stand in the files, one line each, and says how many.
pub fn export_jsonl(
    folder: &Path,
    filter: &Filter,
    out: &mut dyn Write,
) -> Result<u64, LedgerError> {
    let written = scan(folder, filter, |line| {
        out.write_all(line).and_then(|()| out.write_all(b"\n")).map_err(refused)
    })?;
    out.flush().map_err(|source| LedgerError::Output { source })?;
    Ok(written)
}

/// Writes the wanted records as a table by RFC 4180 with a line of headings, `data` as JSON, and
/// says how many.
///
/// A cell that a spreadsheet would take for a formula starts with an apostrophe, so that what a
/// session says is never computed.
pub fn export_csv(folder: &Path, filter: &Filter, out: &mut dyn Write) -> Result<u64, LedgerError> {
    let heading = COLUMNS.map(Cow::Borrowed);
    row(out, &heading).map_err(|source| LedgerError::Output { source })?;
    let written = scan(folder, filter, |line| {
        let record = line::record(line).ok_or(Refused::NoRecord)?;
        row(out, &cells(&record)).map_err(refused)
    })?;
    out.flush().map_err(|source| LedgerError::Output { source })?;
    Ok(written)
}

fn refused(source: io::Error) -> Refused {
    Refused::Because(LedgerError::Output { source })
}

fn cells(record: &Record) -> [Cow<'_, str>; COLUMNS.len()] {
    [
        record.seq.to_string().into(),
        record.time.as_str().into(),
        record.kind.as_str().into(),
        record.session.as_deref().unwrap_or_default().into(),
        record.data.to_string().into(),
        record.previous.as_str().into(),
        record.hash.as_str().into(),
    ]
}

fn row(out: &mut dyn Write, cells: &[Cow<'_, str>]) -> io::Result<()> {
    let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
    write!(out, "{}\r\n", cells.join(","))
}

fn cell(text: &str) -> String {
    // White space at the beginning does not stop a spreadsheet from seeing a formula behind it.
    let formula = text.trim_start().starts_with(['=', '+', '-', '@']);
    let text = if formula { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) };
    if text.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::cell;

    #[test]
    fn cells_are_quoted_when_needed() {
        let cells = [
            ("", ""),
            ("plain text", "plain text"),
            ("a,b", "\"a,b\""),
            ("say \"no\"", "\"say \"\"no\"\"\""),
            ("two\r\nlines", "\"two\r\nlines\""),
            ("{\"a\":1}", "\"{\"\"a\"\":1}\""),
        ];
        assert_eq!(cells.map(|(text, _)| cell(text)), cells.map(|(_, cell)| cell));
    }

    #[test]
    fn formulas_are_text() {
        let formulas = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "=HYPERLINK(\"x\",\"y\")"];
        for formula in formulas {
            assert!(cell(formula).trim_start_matches('"').starts_with('\''), "{formula}");
        }
        assert_eq!(cell("=A1,B1"), "\"'=A1,B1\"");
        assert_eq!(cell("a=1"), "a=1");
    }
}
