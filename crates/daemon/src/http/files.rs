//! Files of a session's folders, and paths in both views.

use super::extract::{Named, Part, Queried};
use super::stream::Streamed;
use crate::daemon::Daemon;
use crate::session::files::Place;
use crate::trouble::Trouble;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use cowork_client::types::{FileEntry, Page, Raw, Translated};
use hyper::body::{Body as _, Bytes};
use serde::Deserialize;
use serde_json::json;
use std::ffi::OsString;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

type Shared = State<Arc<Daemon>>;

/// Bytes that are read or written at a time.
const CHUNK: usize = 256 * 1024;
/// Largest file that can be sent here.
const MAX_FILE: u64 = 64 * 1024 * 1024 * 1024;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listing {
    list: Option<bool>,
    cursor: Option<String>,
    limit: Option<u32>,
}

impl Listing {
    /// How many entries are left out, and how many come.
    fn part(&self) -> Result<(usize, usize), Trouble> {
        let part = Part { cursor: self.cursor.clone(), limit: self.limit };
        let skip = usize::try_from(part.after()?).unwrap_or(usize::MAX);
        let limit = usize::try_from(part.limit()?).unwrap_or(usize::MAX);
        Ok((skip, limit))
    }
}

/// The bytes of a path in a URL: what was percent-encoded need not be UTF-8.
fn decoded(text: &str) -> Result<Vec<u8>, Trouble> {
    let malformed = || Trouble::malformed("the path has a broken percent-encoding");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let (high, low) = (digit(rest.next()), digit(rest.next()));
        let (high, low) = high.zip(low).ok_or_else(malformed)?;
        bytes.push(u8::try_from(high * 16 + low).map_err(|_large| malformed())?);
    }
    Ok(bytes)
}

/// What a URL names: `/v1/sessions/ID/files/ROOT/PATH`.
struct Target {
    id: String,
    root: String,
    /// Not UTF-8 for every file.
    path: Vec<u8>,
}

impl Target {
    fn new(uri: &Uri) -> Result<Self, Trouble> {
        let mut parts = uri.path().splitn(7, '/').skip(3);
        let (id, root) = (parts.next().unwrap_or_default(), parts.nth(1).unwrap_or_default());
        let path = parts.next().unwrap_or_default();
        let text = |part: &str| {
            String::from_utf8(decoded(part)?)
                .map_err(|_bytes| Trouble::malformed("the path cannot be understood"))
        };
        let path = decoded(path.trim_end_matches('/'))?;
        Ok(Self { id: text(id)?, root: text(root)?, path })
    }

    fn place(&self, daemon: &Daemon) -> Result<Place, Trouble> {
        daemon.place(&*daemon.session(&self.id)?, &self.root, &self.path)
    }

    /// The path, as the audit has it.
    fn raw(&self) -> Raw {
        Raw::new(self.path.clone())
    }
}

pub(super) async fn list_root(
    State(daemon): Shared,
    Queried(listing): Queried<Listing>,
    uri: Uri,
) -> Result<Response, Trouble> {
    let place = Target::new(&uri)?.place(&daemon)?;
    entries(&place, listing.part()?).map(|page| Json(page).into_response())
}

/// A part of a folder's entries.
fn entries(place: &Place, (skip, limit): (usize, usize)) -> Result<Page<FileEntry>, Trouble> {
    let all = place.list()?;
    let more = all.len() > skip.saturating_add(limit);
    let items = all.into_iter().skip(skip).take(limit).collect();
    Ok(Page { items, next: more.then(|| (skip + limit).to_string()) })
}

/// The part of a file that is wanted: `bytes=FROM-` or `bytes=FROM-TO`.
fn range(headers: &HeaderMap, size: u64) -> Result<Option<(u64, u64)>, Trouble> {
    let Some(range) = headers.get(header::RANGE).and_then(|range| range.to_str().ok()) else {
        return Ok(None);
    };
    let outside = || {
        Trouble::refused("bad-range", "the file has no such part")
            .with_status(StatusCode::RANGE_NOT_SATISFIABLE)
    };
    let Some((from, to)) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-'))
    else {
        return Ok(None);
    };
    let from: u64 = from.parse().map_err(|_no_number| outside())?;
    let last = size.checked_sub(1).ok_or_else(outside)?;
    let to: u64 = match to {
        "" => last,
        to => to.parse::<u64>().map_err(|_no_number| outside())?.min(last),
    };
    if from > to {
        return Err(outside());
    }
    Ok(Some((from, to)))
}

pub(super) async fn read(
    State(daemon): Shared,
    Queried(listing): Queried<Listing>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Trouble> {
    let place = Target::new(&uri)?.place(&daemon)?;
    let entries_wanted = listing.part()?;
    if listing.list == Some(true) {
        return entries(&place, entries_wanted).map(|page| Json(page).into_response());
    }
    let (mut file, size) = place.read()?;
    let part = range(&headers, size)?;
    let (from, to) = part.unwrap_or((0, size.saturating_sub(1)));
    let length = if size == 0 { 0 } else { to - from + 1 };
    file.seek(SeekFrom::Start(from))
        .map_err(|error| Trouble::host("cannot read the file", error))?;
    let (sender, body) = Streamed::channel();
    tokio::task::spawn_blocking(move || {
        let mut rest = length;
        while rest > 0 {
            let want = usize::try_from(rest).unwrap_or(CHUNK).min(CHUNK);
            let mut piece = vec![0; want];
            match file.read(&mut piece) {
                Ok(0) | Err(_) => return,
                Ok(read) => {
                    piece.truncate(read);
                    rest -= read as u64;
                    if sender.blocking_send(piece.into()).is_err() {
                        return;
                    }
                }
            }
        }
    });
    let mut response = body.into_response();
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    out.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if part.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        if let Ok(value) = HeaderValue::from_str(&format!("bytes {from}-{to}/{size}")) {
            response.headers_mut().insert(header::CONTENT_RANGE, value);
        }
    }
    Ok(response)
}

/// The next piece of a body.
pub(super) async fn piece(body: &mut Body) -> Result<Option<Bytes>, Trouble> {
    loop {
        let frame = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
        match frame {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Some(Err(error)) => {
                return Err(Trouble::malformed("the body broke off").with_cause(error));
            }
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Making {
    folder: Option<bool>,
}

pub(super) async fn write(
    State(daemon): Shared,
    Queried(making): Queried<Making>,
    uri: Uri,
    mut body: Body,
) -> Result<StatusCode, Trouble> {
    let target = Target::new(&uri)?;
    if making.folder == Some(true) {
        let place = target.place(&daemon)?;
        let data = json!({ "root": target.root, "path": target.raw() });
        daemon.book.record("folder.made", Some(&target.id), &data)?;
        place.make_folder()?;
        return Ok(StatusCode::NO_CONTENT);
    }
    let mut writing = target.place(&daemon)?.write()?;
    let mut size = 0u64;
    while let Some(piece) = piece(&mut body).await? {
        size += piece.len() as u64;
        if size > MAX_FILE {
            return Err(Trouble::refused("too-large", "the file is too large")
                .with_status(StatusCode::PAYLOAD_TOO_LARGE));
        }
        writing.file.write_all(&piece).map_err(|error| {
            Trouble::refused("no-space", "cannot write the file")
                .with_cause(error)
                .with_status(StatusCode::INSUFFICIENT_STORAGE)
        })?;
    }
    let data = json!({ "root": target.root, "path": target.raw(), "bytes": size });
    daemon.book.record("file.written", Some(&target.id), &data)?;
    tokio::task::spawn_blocking(move || writing.finish())
        .await
        .map_err(|error| Trouble::host("the work broke off", error))??;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn remove(State(daemon): Shared, uri: Uri) -> Result<StatusCode, Trouble> {
    let target = Target::new(&uri)?;
    let place = target.place(&daemon)?;
    let data = json!({ "root": target.root, "path": target.raw() });
    daemon.book.record("file.removed", Some(&target.id), &data)?;
    place.remove()?;
    Ok(StatusCode::NO_CONTENT)
}

/// The value of a query's parameter, as bytes. As in every query, `+` is a blank.
pub(super) fn parameter(uri: &Uri, name: &str) -> Result<Option<PathBuf>, Trouble> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let value = pairs.filter_map(|pair| pair.split_once('=')).find(|(known, _)| *known == name);
    let value = value.map(|(_, value)| decoded(&value.replace('+', " "))).transpose()?;
    Ok(value.map(|bytes| PathBuf::from(OsString::from_vec(bytes))))
}

pub(super) async fn translate(
    State(daemon): Shared,
    Named(id): Named<String>,
    uri: Uri,
) -> Result<Json<Translated>, Trouble> {
    let session = daemon.session(&id)?;
    let (host, inside) = (parameter(&uri, "host")?, parameter(&uri, "session")?);
    daemon.translate(&session, host, inside).map(Json)
}

#[cfg(test)]
mod tests {
    use super::decoded;

    #[test]
    fn a_path_is_bytes() {
        assert_eq!(decoded("a%2Fb%ff%20").unwrap(), b"a/b\xff ");
        assert!(decoded("%").is_err());
        assert!(decoded("%g0").is_err());
    }
}
