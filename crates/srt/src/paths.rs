//! Which paths an entry means.

use crate::glob::Glob;
use crate::settings::Entry;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// Where paths are taken from.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// The user's home.
    pub home: &'a Path,
    /// The current folder.
    pub here: &'a Path,
}

/// Which paths an entry means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meant {
    /// The path that it is, taken for a name. Links are not followed.
    pub path: PathBuf,
    /// What it matches, if it is a pattern.
    pub pattern: Option<Below>,
}

/// What a pattern matches below a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Below {
    /// The folder.
    pub folder: PathBuf,
    /// The pattern.
    pub glob: Glob,
}

/// Finds out which paths an entry means. `/**` at the end stands for the folder with everything in
/// it, which is what the folder alone stands for.
pub fn meant(entry: &Entry, places: Places<'_>) -> Meant {
    let text = match entry.text.strip_suffix("/**") {
        Some("") => "/",
        Some(rest) if entry.is_pattern() => rest,
        _ => &entry.text,
    };
    let path = place(text, places);
    let is_pattern = entry.is_pattern() && is_pattern(text);
    Meant { pattern: is_pattern.then(|| below(text, places)), path }
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', ']'])
}

/// A path in full. `~` is the home; `.` and empty names count for nothing, and `..` leads back.
pub fn place(text: &str, places: Places<'_>) -> PathBuf {
    let whole = match text.strip_prefix('~') {
        Some("") => places.home.to_path_buf(),
        Some(rest) if rest.starts_with('/') => places.home.join(rest.trim_start_matches('/')),
        _ => places.here.join(text),
    };
    plain(&whole)
}

fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

fn below(text: &str, places: Places<'_>) -> Below {
    let special = text.find(['*', '?', '[', ']']).unwrap_or(text.len());
    let before = text.get(..special).unwrap_or_default();
    let divided = before.rfind('/').map_or(0, |at| at + 1);
    let (folder, pattern) = text.split_at(divided);
    let folder = match folder {
        "" => plain(places.here),
        folder => place(folder, places),
    };
    let names = pattern.split('/').filter(|name| !matches!(*name, "" | "."));
    let pattern = names.collect::<Vec<_>>().join("/");
    Below { folder, glob: Glob::new(&pattern) }
}

/// Whether a path is another or lies below it.
pub fn is_within(path: &Path, folder: &Path) -> bool {
    path.starts_with(folder)
}

/// The names between a folder and a path below it, as text.
pub(crate) fn names(path: &Path) -> Option<Vec<&str>> {
    path.iter().filter(|name| *name != OsStr::new("/")).map(OsStr::to_str).collect()
}

#[cfg(test)]
mod tests {
    use super::{Places, meant};
    use crate::glob::Glob;
    use crate::settings::{Entry, Spelling};
    use std::path::Path;

    fn entry(text: &str, spelling: Spelling) -> Entry {
        Entry { key: "k".into(), text: text.into(), spelling }
    }

    #[test]
    fn entries_are_paths() {
        let places = Places { home: Path::new("/home/ada"), here: Path::new("/home/ada/[p]") };
        for (text, path) in [
            (".", "/home/ada/[p]"),
            ("./src", "/home/ada/[p]/src"),
            ("src/", "/home/ada/[p]/src"),
            ("../other", "/home/ada/other"),
            ("~", "/home/ada"),
            ("~/.ssh", "/home/ada/.ssh"),
            ("~/.aws//x", "/home/ada/.aws/x"),
            ("~other", "/home/ada/[p]/~other"),
            ("/", "/"),
            ("/**", "/"),
            ("/etc/./passwd", "/etc/passwd"),
            ("src/**", "/home/ada/[p]/src"),
        ] {
            let meant = meant(&entry(text, Spelling::Pattern), places);
            assert_eq!((meant.path.as_path(), meant.pattern), (Path::new(path), None), "{text}");
        }
    }

    #[test]
    fn patterns_begin_behind_the_last_plain_folder() {
        let places = Places { home: Path::new("/home/ada"), here: Path::new("/home/ada/[p]") };
        for (text, folder, glob) in [
            ("*.env", "/home/ada/[p]", "*.env"),
            ("./a/*.env", "/home/ada/[p]/a", "*.env"),
            ("~/keys/**/*.pem", "/home/ada/keys", "**/*.pem"),
            ("/**/x", "/", "**/x"),
            ("/etc/a*//b/./c", "/etc", "a*/b/c"),
            ("**/secrets/**", "/home/ada/[p]", "**/secrets"),
            ("~/a[bc]/d", "/home/ada", "a[bc]/d"),
        ] {
            let pattern = meant(&entry(text, Spelling::Pattern), places).pattern.unwrap();
            assert_eq!(pattern.folder, Path::new(folder), "{text}");
            assert_eq!(pattern.glob, Glob::new(glob), "{text}");
        }
        let literal = meant(&entry("a[b]*", Spelling::Literal), places);
        assert_eq!((literal.path.to_str(), literal.pattern), (Some("/home/ada/[p]/a[b]*"), None));
    }
}
