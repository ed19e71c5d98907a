//! The bytes of a file: from the host, through the daemon's handle of the granted folder; of staged
//! folders, whose changes only the session sees, through the session.

use crate::call::{Call, target};
use crate::inside::{Work, run};
use crate::refusal::Refusal;
use crate::spot::Spot;
use cowork_client::http::{Client, Request};
use cowork_client::types::{Access, NewCommand, Raw, Session};
use cowork_client::uri;
use std::io::Read;

/// Largest file that is read.
pub(crate) const MAX_FILE: usize = 16 * 1024 * 1024;

/// Checks in the session that a path is what it looks like, then shows the file.
const READ: &str = r#"
[ "$(realpath -e -- "$1" 2>/dev/null)" = "$1" ] || { [ -e "$1" ] || [ -L "$1" ] || exit 40; exit 41; }
[ ! -d "$1" ] || exit 42
[ -f "$1" ] || exit 43
exec cat -- "$1"
"#;

/// The refusal behind a status of [`READ`] and the like.
pub(crate) fn refused(code: u8) -> Option<Refusal> {
    Some(match code {
        40 => Refusal::new("no-file", "there is no such file"),
        41 => Refusal::new("link", "the path leads through a link, which is not followed"),
        42 => Refusal::new("is-folder", "it is a folder").with_hint("list it with list_files"),
        43 => Refusal::new("special-file", "it is not a regular file"),
        44 => Refusal::new("not-folder", "what is to be a folder is none"),
        _ => return None,
    })
}

/// The target of a place in the daemon's API.
pub(crate) fn files(session: &Session, spot: &Spot) -> String {
    let (root, below) = (uri::segment(&spot.root), uri::path(&spot.below));
    let separator = if below.is_empty() { "" } else { "/" };
    target(&session.id, &format!("/files/{root}{separator}{below}"))
}

/// The shell with a script of ours and its arguments, in the session's plain locale.
pub(crate) fn script<'a>(text: &'a str, words: impl IntoIterator<Item = &'a str>) -> NewCommand {
    let fixed = ["/bin/sh", "-c", text];
    let argv = fixed.into_iter().chain(words).map(|word| Raw::Text(word.to_owned())).collect();
    let env = [("LC_ALL".to_owned(), Raw::Text("C.UTF-8".to_owned()))];
    NewCommand { argv, env: env.into(), ..NewCommand::default() }
}

/// All bytes of a file.
pub(crate) fn bytes(
    call: &Call,
    client: &mut Client,
    session: &Session,
    spot: &Spot,
) -> Result<Vec<u8>, Refusal> {
    let too_large = || {
        let sentence = format!("the file has more than {} MiB", MAX_FILE / 1024 / 1024);
        Refusal::new("too-large", sentence)
            .with_hint("look at parts of it with run_command, e.g. `sed -n 1,100p` or `grep`")
    };
    if spot.access == Access::Staged {
        let command = script(READ, ["read_file", &spot.inside]);
        let ran = run(call, client, session, Work { command, stdin: None, keep: MAX_FILE })?;
        return match ran.command.code {
            Some(0) => ran.stdout.whole().ok_or_else(too_large),
            Some(code) => Err(refused(code).unwrap_or_else(|| unread(ran.stderr.whole()))),
            None => Err(unread(None)),
        };
    }
    let response = client.open(&Request::get(files(session, spot)), None)?;
    let size = response.header("content-length").and_then(|size| size.parse::<usize>().ok());
    if size.is_some_and(|size| size > MAX_FILE) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_FILE).unwrap_or(u64::MAX);
    response.take(most + 1).read_to_end(&mut bytes).map_err(|error| {
        Refusal::new("no-daemon", format!("cannot read the daemon's answer: {error}"))
    })?;
    if bytes.len() > MAX_FILE { Err(too_large()) } else { Ok(bytes) }
}

fn unread(said: Option<Vec<u8>>) -> Refusal {
    let said = crate::text::shown(&said.unwrap_or_default());
    Refusal::new("failed", format!("the file cannot be read: {}", crate::text::line(&said, 500)))
}

/// The text of a file.
pub(crate) fn text(bytes: Vec<u8>) -> Result<String, Refusal> {
    String::from_utf8(bytes).map_err(|error| {
        let size = error.as_bytes().len();
        Refusal::new("not-text", format!("the file is not UTF-8 text; it has {size} bytes"))
            .with_hint("use run_command, e.g. `file`, `xxd` or a program for this kind of file")
    })
}
