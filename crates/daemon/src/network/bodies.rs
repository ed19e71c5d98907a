//! Bodies that are kept of a session, where a rule says so: one file for each, in the session's own
//! folder, which goes with it.
//!
//! An egress process is not believed to keep to limits: what exceeds them is not kept, and the record of a
//! body says how much of it is. Values of secrets are in none: what arrives here is what the session sent or
//! got.

use crate::folders;
use crate::trouble::Trouble;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cowork_api::egress::{Bodied, MAX_CAPTURE, Piece, Record, Side, What};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Most bytes of all bodies of a session that are kept.
pub(crate) const MAX_KEPT: u64 = 16 * 1024 * 1024;
/// Most files.
const MAX_FILES: usize = 10_000;
/// The folder, in that of the session.
const FOLDER: &str = "bodies";

/// Where the bodies of a session are, by its folder.
pub(crate) fn folder(session: &Path) -> PathBuf {
    session.join(FOLDER)
}

/// A body: of which egress process, the connection, the request in it, and whose it is.
fn name(since: &str, (flow, request): (u64, u32), side: Side) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let side = match side {
        Side::Session => "sent",
        Side::Host => "received",
    };
    format!("{}.{flow}.{request}.{side}", since.chars().map(plain).collect::<String>())
}

/// Keeps what one egress process tells.
#[derive(Debug)]
pub(crate) struct Keeper {
    folder: PathBuf,
    since: String,
    /// How much is there, and in how many files; nothing before it was looked at.
    known: Option<(u64, usize)>,
}

impl Keeper {
    pub(crate) fn new(session: &Path, since: &str) -> Self {
        Self { folder: folder(session), since: since.to_owned(), known: None }
    }

    /// Keeps a part of a body. What cannot be kept is left out, and found missing by [`Self::settle`].
    pub(crate) fn keep(&mut self, piece: &Piece) {
        cowork_sys::ignore(self.append(piece));
    }

    fn append(&mut self, piece: &Piece) -> Result<(), Trouble> {
        let bytes = &piece.bytes.0;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let (all, files) = match self.known {
            Some(known) => known,
            None => measure(&self.folder),
        };
        self.known = Some((all, files));
        let path = self.folder.join(name(&self.since, (piece.flow, piece.request), piece.side));
        let before = size(&path);
        let fits = length > 0
            && all.saturating_add(length) <= MAX_KEPT
            && before.unwrap_or(0).saturating_add(length) <= MAX_CAPTURE
            && (before.is_some() || files < MAX_FILES);
        if !fits {
            return Ok(());
        }
        folders::make(&self.folder)?;
        let failed = |error| Trouble::of_disk("cannot keep a body", &error);
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
        self.known = Some((all + length, files + usize::from(before.is_none())));
        file.write_all(bytes).map_err(failed)
    }

    /// Has the record of a body say what is really kept of it.
    pub(crate) fn settle(&self, record: &mut Record) {
        let of = (record.flow, record.request);
        let What::Captured { sent, received, .. } = &mut record.what else { return };
        for (side, body) in [(Side::Session, sent), (Side::Host, received)] {
            let there = size(&self.folder.join(name(&self.since, of, side)));
            body.kept = there.unwrap_or(0).min(body.kept);
        }
    }
}

fn size(path: &Path) -> Option<u64> {
    std::fs::symlink_metadata(path).ok().map(|known| known.len())
}

/// How much is there, and in how many files.
fn measure(folder: &Path) -> (u64, usize) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| entry.metadata().ok()).map(|known| known.len());
    sizes.fold((0, 0), |(all, files), size| (all + size, files + 1))
}

/// What the audit has of a body.
pub(crate) fn told(body: &Bodied) -> Value {
    json!({ "size": body.size, "kept": body.kept, "sha256": super::records::hex(&body.sha256) })
}

/// A body as an archive has it, from its record; nothing where nothing is kept.
pub(crate) fn shown(folder: &Path, record: &Value, side: Side) -> Option<Value> {
    let number = |of: &Value, name: &str| of.get(name).and_then(Value::as_u64);
    let body = record.get(match side {
        Side::Session => "sent",
        Side::Host => "received",
    })?;
    let (size, kept) = (number(body, "size")?, number(body, "kept")?);
    if kept == 0 {
        return None;
    }
    let since = record.get("egress").and_then(Value::as_str)?;
    let request = u32::try_from(number(record, "request")?).ok()?;
    let path = folder.join(name(since, (number(record, "flow")?, request), side));
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(kept.min(MAX_CAPTURE)).read_to_end(&mut bytes).ok()?;
    let mut shown = json!({ "mimeType": "" });
    let fields = shown.as_object_mut()?;
    let cut = size.saturating_sub(kept);
    if let Some(text) = text(&bytes, cut) {
        fields.insert("text".into(), text.into());
    } else {
        fields.insert("encoding".into(), "base64".into());
        fields.insert("text".into(), STANDARD.encode(&bytes).into());
    }
    if cut > 0 {
        fields.insert("comment".into(), format!("the first {kept} of {size} bytes").into());
    }
    Some(shown)
}

/// Bytes as text, if they are some. Where more was `cut` off it may end in the middle of a character.
fn text(bytes: &[u8], cut: u64) -> Option<&str> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if cut > 0 && error.error_len().is_none() => {
            std::str::from_utf8(bytes.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    let plain = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    text.chars().all(plain).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::{Keeper, MAX_FILES, MAX_KEPT, folder, measure, shown};
    use cowork_api::egress::{Bodied, Hidden, MAX_CAPTURE, Piece, Record, Side, Target, What};
    use cowork_testbed::{Folder, Person};
    use serde_json::json;

    const SINCE: &str = "2026-01-02T03:04:05Z 77";

    fn piece(flow: u64, bytes: &[u8]) -> Piece {
        Piece { flow, request: 1, side: Side::Session, bytes: Hidden(bytes.to_vec()) }
    }

    fn kept(keeper: &Keeper, flow: u64) -> u64 {
        let sent = Bodied { size: u64::MAX, kept: u64::MAX, sha256: [0; 32] };
        let what = What::Captured { target: Target::default(), sent, received: sent };
        let mut record = Record { number: 1, at: 0, flow, request: 1, what };
        keeper.settle(&mut record);
        match record.what {
            What::Captured { sent, received, .. } => {
                assert_eq!(received.kept, 0);
                sent.kept
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_exceeds_a_limit_is_not_kept() {
        let session = Folder::new(Person::Root, "bodies");
        let mut keeper = Keeper::new(session.path(), SINCE);
        let part = vec![1; usize::try_from(MAX_CAPTURE).unwrap() / 4];
        for _ in 0..6 {
            keeper.keep(&piece(1, &part));
        }
        assert_eq!(kept(&keeper, 1), MAX_CAPTURE, "no body is longer, whatever is told");
        let mut flow = 1;
        while measure(&folder(session.path())).0 < MAX_KEPT {
            flow += 1;
            keeper.keep(&piece(flow, &part));
        }
        keeper.keep(&piece(flow + 1, b"x"));
        assert_eq!(kept(&keeper, flow + 1), 0);
        // The next one counts what is there.
        let mut next = Keeper::new(session.path(), "later");
        next.keep(&piece(1, b"x"));
        assert_eq!((kept(&next, 1), kept(&next, 2)), (0, 0));
        assert_eq!(kept(&keeper, 2), MAX_CAPTURE / 4);
    }

    #[test]
    fn there_are_so_many_files() {
        let session = Folder::new(Person::Root, "bodies");
        let mut keeper = Keeper::new(session.path(), SINCE);
        keeper.keep(&piece(1, b""));
        for flow in 0..=u64::try_from(MAX_FILES).unwrap() {
            keeper.keep(&piece(flow, b"x"));
        }
        assert_eq!(measure(&folder(session.path())).1, MAX_FILES);
        keeper.keep(&piece(0, b"y"));
        assert_eq!(kept(&keeper, 0), 2);
    }

    #[test]
    fn an_archive_has_text_and_the_rest_in_base64() {
        let session = Folder::new(Person::Root, "bodies");
        let mut keeper = Keeper::new(session.path(), SINCE);
        let cases: [(&[u8], u64, serde_json::Value); 4] = [
            (b"{\"a\": 1}\n", 9, json!({ "mimeType": "", "text": "{\"a\": 1}\n" })),
            (b"\xff\x00", 2, json!({ "mimeType": "", "encoding": "base64", "text": "/wA=" })),
            (b"\x1b]0;x", 5, json!({ "mimeType": "", "encoding": "base64", "text": "G10wO3g=" })),
            (
                "\u{e9}\u{e9}".as_bytes().split_last().unwrap().1,
                4,
                json!({
                    "mimeType": "", "text": "\u{e9}", "comment": "the first 3 of 4 bytes",
                }),
            ),
        ];
        for (flow, (bytes, size, expected)) in (1..).zip(cases) {
            keeper.keep(&piece(flow, bytes));
            let body = json!({ "size": size, "kept": bytes.len() });
            let record = json!({ "egress": SINCE, "flow": flow, "request": 1, "sent": body });
            let folder = folder(session.path());
            assert_eq!(shown(&folder, &record, Side::Session), Some(expected));
            assert_eq!(shown(&folder, &record, Side::Host), None);
        }
    }
}
