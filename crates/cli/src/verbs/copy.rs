//! `cowork cp`: files into a session's folders and out of them.
//!
//! Names that come out of a session are its own invention: only such as stay below the folder they
//! are copied to are used, and links are left where they are.

use super::{session, target};
use crate::arguments;
use crate::daemon;
use crate::failure::{Failure, note};
use crate::show::{self, progress::Counted};
use cowork_client::http::{Client, HttpError, Method, Request, Response, Upload};
use cowork_client::types::{FileEntry, Raw};
use cowork_client::uri::{self, Query};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Copies every source to the last path.
pub(crate) fn copy(options: &arguments::Copy) -> Result<ExitCode, Failure> {
    let places: Vec<Place> = options.paths.iter().map(|path| Place::parse(path)).collect();
    let Some((to, from)) = places.split_last() else { return Ok(ExitCode::SUCCESS) };
    let depth = if options.recursive { Depth::Everything } else { Depth::Files };
    let many = from.len() > 1;
    let mut job = Job { client: daemon::connect()?, depth, copied: Vec::new() };
    match to {
        Place::Inside { name, path } => {
            let to = job.remote(name, path, "uploads")?;
            let folder = to.path.is_empty() || path.ends_with(b"/") || job.is_folder(&to)?;
            if many && !folder {
                return Err(not_a_folder(&String::from_utf8_lossy(path)));
            }
            for from in from {
                job.send(from, &to, folder.then_some(()))?;
            }
        }
        Place::Host(_) | Place::Standard => {
            if many && !matches!(to, Place::Host(path) if path.is_dir()) {
                let to = options.paths.last().map(|path| path.to_string_lossy().into_owned());
                return Err(not_a_folder(&to.unwrap_or_default()));
            }
            for from in from {
                job.fetch(from, to)?;
            }
        }
    }
    if options.output.json {
        let copied = job
            .copied
            .iter()
            .map(|(from, to, bytes)| json!({ "from": from, "to": to, "bytes": bytes }));
        return show::json(&copied.collect::<Vec<_>>());
    }
    Ok(ExitCode::SUCCESS)
}

fn not_a_folder(path: &str) -> Failure {
    Failure::input(format!("`{path}` is not a folder"), "several files need a folder to go to")
}

/// One side of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Standard input or output.
    Standard,
    /// On this host.
    Host(PathBuf),
    /// In a session.
    Inside { name: String, path: Vec<u8> },
}

impl Place {
    /// `SESSION:PATH` is in a session; a path with a slash before its first colon never is.
    fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        if bytes == b"-" {
            return Self::Standard;
        }
        let colon = bytes.iter().position(|byte| *byte == b':');
        if let Some((name, rest)) = colon.and_then(|at| bytes.split_at_checked(at)) {
            let is_id = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
            if !name.is_empty() && name.iter().all(is_id) {
                let name = String::from_utf8_lossy(name).into_owned();
                return Self::Inside { name, path: rest.get(1..).unwrap_or_default().to_vec() };
            }
        }
        Self::Host(PathBuf::from(text))
    }
}

/// Whether folders are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Files,
    Everything,
}

/// A path below one of a session's folders.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Remote {
    id: String,
    root: String,
    path: Vec<u8>,
}

impl Remote {
    /// What a path in a session means, given the names of its folders.
    fn new(id: &str, path: &[u8], roots: &[String], other: &str) -> Self {
        let whole = format!("/sessions/{id}/mnt/");
        let path = path.strip_prefix(whole.as_bytes()).unwrap_or(path);
        let path = path.strip_prefix(b"mnt/").unwrap_or(path);
        let parts: Vec<&[u8]> =
            path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
        let named = parts.split_first().and_then(|(first, rest)| {
            let root = roots.iter().find(|root| root.as_bytes() == *first)?;
            Some((root.clone(), rest.join(&b'/')))
        });
        let (root, path) = named.unwrap_or_else(|| (other.to_owned(), parts.join(&b'/')));
        Self { id: id.to_owned(), root, path }
    }

    fn join(&self, name: &[u8]) -> Self {
        let path = [self.path.as_slice(), name];
        let path = path.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        Self { path: path.join(&b'/'), ..self.clone() }
    }

    fn target(&self) -> String {
        let below = match self.path.as_slice() {
            [] => String::new(),
            path => format!("/{}", uri::path(path)),
        };
        target(&self.id, &format!("/files/{}{below}", uri::segment(&self.root)))
    }

    /// Its last name.
    fn name(&self) -> OsString {
        let last = self.path.rsplit(|byte| *byte == b'/').next().filter(|last| !last.is_empty());
        OsString::from_vec(last.unwrap_or(self.root.as_bytes()).to_vec())
    }

    fn text(&self) -> String {
        format!("{}:{}/{}", self.id, self.root, String::from_utf8_lossy(&self.path))
    }
}

struct Job {
    client: Client,
    depth: Depth,
    /// From where to where, and how much.
    copied: Vec<(String, String, u64)>,
}

impl Job {
    /// A place in a session; a path that names none of its folders is taken from `other`.
    fn remote(&mut self, name: &str, path: &[u8], other: &str) -> Result<Remote, Failure> {
        let (id, session) = session(&mut self.client, name)?;
        let mut roots = vec!["outputs".to_owned(), "uploads".to_owned()];
        roots.extend(session.skills.map(|_| "skills".to_owned()));
        roots.extend(session.grants.into_iter().map(|grant| grant.name));
        Ok(Remote::new(&id, path, &roots, other))
    }

    fn list(&mut self, place: &Remote) -> Result<Vec<FileEntry>, HttpError> {
        self.client.list(&Query::new(place.target()).with("list", "true"))
    }

    fn is_folder(&mut self, place: &Remote) -> Result<bool, Failure> {
        let query = Query::new(place.target()).with("list", "true").with("limit", "1");
        match self.client.call(&Request::get(query)) {
            Ok(_) => Ok(true),
            Err(HttpError::Problem(problem)) if problem.status < 500 => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Copies something of the host into a session.
    fn send(&mut self, from: &Place, to: &Remote, folder: Option<()>) -> Result<(), Failure> {
        match from {
            Place::Inside { .. } => {
                Err(Failure::input("both sides are in a session", "copy to this host first"))
            }
            Place::Standard => {
                let length = None;
                self.put(&mut std::io::stdin().lock(), length, "standard input", to)
            }
            Place::Host(path) => {
                let name = path.file_name().map(ToOwned::to_owned).or_else(|| real_name(path));
                let to = match (folder, &name) {
                    (Some(()), Some(name)) => to.join(name.as_bytes()),
                    _ => to.clone(),
                };
                self.send_path(path, &to)
            }
        }
    }

    fn send_path(&mut self, path: &Path, to: &Remote) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            let sentence = format!("cannot read `{}`", path.display());
            Failure::input(sentence, "").with_cause(error.to_string())
        };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            if self.depth == Depth::Files {
                let sentence = format!("`{}` is a folder", path.display());
                return Err(Failure::input(sentence, "copy folders with `-r`"));
            }
            let mut names = Vec::new();
            for entry in std::fs::read_dir(path).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                if entry.file_type().map_err(failed)?.is_symlink() {
                    note(&format!("the link `{}` was left out", entry.path().display()));
                } else {
                    names.push(entry.file_name());
                }
            }
            if names.is_empty() && !to.path.is_empty() {
                return self.make(path, to);
            }
            names.sort();
            for name in names {
                self.send_path(&path.join(&name), &to.join(name.as_bytes()))?;
            }
            return Ok(());
        }
        let length = metadata.is_file().then_some(metadata.len());
        self.put(&mut &file, length, &path.display().to_string(), to)
    }

    /// Makes a folder that nothing lies in.
    fn make(&mut self, path: &Path, to: &Remote) -> Result<(), Failure> {
        let request = Request::new(Method::Put, Query::new(to.target()).with("folder", "true"));
        self.client.call(&request).map_err(|error| refused(error, &to.text()))?;
        self.copied.push((path.display().to_string(), to.text(), 0));
        Ok(())
    }

    fn put(
        &mut self,
        from: &mut dyn Read,
        length: Option<u64>,
        name: &str,
        to: &Remote,
    ) -> Result<(), Failure> {
        if to.path.is_empty() {
            return Err(Failure::input("the file has no name in the session", "write one"));
        }
        let mut counted = Counted::new(from, name, length);
        let request = Request::new(Method::Put, to.target());
        let upload = Upload { from: &mut counted, length };
        let sent = self.client.open(&request, Some(upload));
        drop(sent.map_err(|error| refused(error, &to.text()))?);
        let bytes = counted.passed();
        self.copied.push((name.to_owned(), to.text(), bytes));
        Ok(())
    }

    /// Copies something of a session to the host.
    fn fetch(&mut self, from: &Place, to: &Place) -> Result<(), Failure> {
        let Place::Inside { name, path } = from else {
            return Err(Failure::input(
                "no side is in a session",
                "write `SESSION:PATH` for one of them",
            ));
        };
        let from = self.remote(name, path, "outputs")?;
        let folder = from.path.is_empty() || self.is_folder(&from)?;
        match to {
            Place::Standard if folder => {
                Err(Failure::input("a folder cannot go to standard output", ""))
            }
            Place::Standard => {
                let response = self.open(&from)?;
                self.get(&from, response, &mut std::io::stdout().lock(), "standard output")
            }
            Place::Host(path) => {
                let path = if path.is_dir() { path.join(from.name()) } else { path.clone() };
                if folder { self.fetch_folder(&from, &path) } else { self.fetch_file(&from, &path) }
            }
            Place::Inside { .. } => Ok(()),
        }
    }

    fn fetch_folder(&mut self, from: &Remote, to: &Path) -> Result<(), Failure> {
        if self.depth == Depth::Files {
            let sentence = format!("`{}` is a folder", from.text());
            return Err(Failure::input(sentence, "copy folders with `-r`"));
        }
        match std::fs::create_dir(to) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(unwritable(to, &error));
            }
            _ => {}
        }
        for entry in self.list(from)? {
            let name = entry.name.bytes().filter(|name| is_one_name(name));
            match (name, entry.kind.as_str()) {
                (Some(name), "file") => {
                    self.fetch_file(&from.join(&name), &to.join(OsStr::from_bytes(&name)))?;
                }
                (Some(name), "folder") => {
                    self.fetch_folder(&from.join(&name), &to.join(OsStr::from_bytes(&name)))?;
                }
                _ => note(&format!("`{}` was left out: it is a {}", text(&entry.name), entry.kind)),
            }
        }
        Ok(())
    }

    fn fetch_file(&mut self, from: &Remote, to: &Path) -> Result<(), Failure> {
        // What cannot be read leaves nothing behind.
        let response = self.open(from)?;
        let mut file = File::create(to).map_err(|error| unwritable(to, &error))?;
        self.get(from, response, &mut file, &to.display().to_string())
    }

    fn open(&self, from: &Remote) -> Result<Response, Failure> {
        let request = Request::get(from.target());
        self.client.open(&request, None).map_err(|error| refused(error, &from.text()))
    }

    fn get(
        &mut self,
        from: &Remote,
        response: Response,
        to: &mut dyn Write,
        name: &str,
    ) -> Result<(), Failure> {
        let total = response.header("content-length").and_then(|length| length.parse().ok());
        let mut counted = Counted::new(response, &from.text(), total);
        match std::io::copy(&mut counted, to) {
            Ok(bytes) => {
                self.copied.push((from.text(), name.to_owned(), bytes));
                Ok(())
            }
            Err(error) => {
                let sentence = format!("cannot copy to `{name}`");
                Err(Failure::host(sentence, Some(error.to_string())))
            }
        }
    }
}

/// Says what could not be copied; the daemon says why.
fn refused(error: HttpError, what: &str) -> Failure {
    match error {
        HttpError::Problem(problem) if problem.status < 500 => {
            let hint = problem.hint.unwrap_or_default();
            Failure::input(format!("cannot copy `{what}`"), hint).with_cause(problem.title)
        }
        other => other.into(),
    }
}

fn text(name: &Raw) -> String {
    show::raw(name)
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    let sentence = format!("cannot write `{}`", path.display());
    Failure::input(sentence, "").with_cause(error.to_string())
}

/// Whether a name is that of something in a folder, and not a way out of it.
fn is_one_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

/// The name of a folder that is written as `.` or `..`.
fn real_name(path: &Path) -> Option<OsString> {
    let folder = cowork_sandbox::folder::Folder::open(path).ok()?;
    folder.path().file_name().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{Place, Remote, is_one_name};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn sides_are_told_apart() {
        let inside =
            |name: &str, path: &[u8]| Place::Inside { name: name.into(), path: path.into() };
        for (text, place) in [
            (&b"-"[..], Place::Standard),
            (b"able-bohr:", inside("able-bohr", b"")),
            (b"able-bohr:outputs/x", inside("able-bohr", b"outputs/x")),
            (b"a1:\xff", inside("a1", b"\xff")),
            (b"./a:b", Place::Host("./a:b".into())),
            (b"C:x", Place::Host("C:x".into())),
            (b":x", Place::Host(":x".into())),
            (b"plain", Place::Host("plain".into())),
        ] {
            assert_eq!(Place::parse(OsStr::from_bytes(text)), place);
        }
    }

    #[test]
    fn paths_are_taken_from_the_folder_they_name() {
        let roots = ["outputs", "uploads", "work"].map(str::to_owned);
        let check = |path: &str, root: &str, rest: &str| {
            let found = Remote::new("id", path.as_bytes(), &roots, "uploads");
            let expected = Remote { id: "id".into(), root: root.into(), path: rest.into() };
            assert_eq!(found, expected, "{path}");
        };
        check("", "uploads", "");
        check("outputs", "outputs", "");
        check("outputs/", "outputs", "");
        check("work//a/b/", "work", "a/b");
        check("mnt/work/a", "work", "a");
        check("/sessions/id/mnt/outputs/a", "outputs", "a");
        check("other/a", "uploads", "other/a");
        let place = Remote::new("id", b"work/a b", &roots, "uploads");
        assert_eq!(place.target(), "/v1/sessions/id/files/work/a%20b");
        assert_eq!(
            (place.name().as_bytes(), place.join(b"c").path),
            (&b"a b"[..], b"a b/c".into())
        );
    }

    #[test]
    fn names_that_lead_elsewhere_are_no_names() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0"] {
            assert!(!is_one_name(bad));
        }
        assert!(is_one_name(b"..a") && is_one_name(b"\xff"));
    }
}
