//! Paths of the two sides of a session's wall, and the map between them.
//!
//! A [`HostPath`] is what the host calls a thing, a [`SessionPath`] is what the session calls it.
//! The two look alike, and taking one for the other is how a sandbox opens the wrong file, so they
//! do not convert; only a [`Translation`] leads from one to the other. Paths are bytes: nothing
//! here assumes UTF-8.
//!
//! Everything is lexical. A path that passes may still be a symbolic link, or become one: opening
//! happens elsewhere, beneath a directory handle, where the kernel resolves and checks in one
//! step.
//!
//! Deliberately absent: `AsRef<Path>` and `Deref`. With them a session's path would be accepted
//! wherever a path of the host is read, [`HostPath::new`] included.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Longest path in bytes; the kernel's `PATH_MAX` of 4096 counts the NUL that ends it
/// (`linux/limits.h`). A longer one is refused here rather than by a later system call.
const MAX_LENGTH: usize = 4095;

/// Why a text is not a path that a plan can hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// There is no text.
    #[error("the path is empty")]
    Empty,
    /// The path starts from the working directory, which a plan does not have.
    #[error("path `{}` is not absolute", .path.display())]
    NotAbsolute {
        /// The path as given.
        path: PathBuf,
    },
    /// The path starts from the root, and was to lie below a folder.
    #[error("path `{}` is not relative to a folder", .path.display())]
    NotRelative {
        /// The path as given.
        path: PathBuf,
    },
    /// The path has a `..`. It is refused even where it cancels out: what `a/..` means depends on
    /// whether `a` is a symbolic link.
    #[error("path `{}` contains `..`", .path.display())]
    Parent {
        /// The path as given.
        path: PathBuf,
    },
    /// The path has a NUL byte, where the kernel would cut it off.
    #[error("path {path:?} contains a NUL byte")]
    Nul {
        /// The path as given.
        path: PathBuf,
    },
    /// The path is longer than the kernel accepts.
    #[error("path is {bytes} bytes long: at most {MAX_LENGTH} can be opened")]
    TooLong {
        /// How long the normalised path is.
        bytes: usize,
    },
}

/// A folder of the user, or what is in it, as the host names it.
///
/// Invariant: absolute, no `.`, `..` or empty component, no slash at the end except for the root,
/// no NUL, at most 4095 bytes.
///
/// A session's path is no path of the host, however it is passed:
///
/// ```compile_fail
/// # use cowork_policy::{HostPath, SessionPath};
/// let session = SessionPath::new("/sessions/zealous-gauss/mnt/site").unwrap();
/// let host: HostPath = session.into();
/// ```
///
/// ```compile_fail
/// # use cowork_policy::{HostPath, SessionPath};
/// let session = SessionPath::new("/sessions/zealous-gauss/mnt/site").unwrap();
/// let host = HostPath::new(session);
/// ```
///
/// ```compile_fail
/// # use cowork_policy::{HostPath, SessionPath};
/// let session = SessionPath::new("/sessions/zealous-gauss/mnt/site").unwrap();
/// HostPath::new("/").unwrap().contains(&session);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPath(PathBuf);

/// A path as the session sees it, e.g. `/sessions/zealous-gauss/mnt/site/index.html`.
///
/// Invariant: absolute, no `.`, `..` or empty component, no slash at the end except for the root,
/// no NUL, at most 4095 bytes.
///
/// A path of the host is no session's path:
///
/// ```compile_fail
/// # use cowork_policy::{HostPath, SessionPath};
/// let host = HostPath::new("/home/ada/site").unwrap();
/// let session: SessionPath = host.into();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionPath(PathBuf);

/// A place below a folder, on whichever side the folder is; empty for the folder itself.
///
/// Invariant: no slash at either end, no `.`, `..` or empty component, no NUL, at most 4095 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelativePath(PathBuf);

/// Gives the two absolute paths the same methods, each for its own kind only.
macro_rules! absolute_path {
    ($Path:ident) => {
        impl $Path {
            /// Reads an absolute path. Repeated slashes, `.` and a slash at the end are dropped;
            /// `..` is refused.
            pub fn new(path: impl AsRef<Path>) -> Result<Self, PathError> {
                let path = path.as_ref();
                match (path.as_os_str().is_empty(), path.has_root()) {
                    (true, _) => Err(PathError::Empty),
                    (false, false) => Err(PathError::NotAbsolute { path: path.into() }),
                    (false, true) => normalised(Path::new("/"), path).map(Self),
                }
            }

            /// The path, to be shown or opened on its own side.
            pub fn as_path(&self) -> &Path {
                &self.0
            }

            /// The last component; `None` for the root.
            pub fn file_name(&self) -> Option<&OsStr> {
                self.0.file_name()
            }

            /// Whether `inner` is this path or lies below it. Components are compared, not text:
            /// `/a/b` does not contain `/a/bc`.
            pub fn contains(&self, inner: &Self) -> bool {
                inner.0.starts_with(&self.0)
            }

            /// The path of what lies at `below` in this folder. It fails only when the result is
            /// too long.
            pub fn join(&self, below: &RelativePath) -> Result<Self, PathError> {
                normalised(&self.0, &below.0).map(Self)
            }

            /// Where `inner` lies below this folder; `None` when it does not. The inverse of
            /// `join`.
            pub fn strip(&self, inner: &Self) -> Option<RelativePath> {
                inner.0.strip_prefix(&self.0).ok().map(|below| RelativePath(below.into()))
            }
        }
    };
}

absolute_path!(HostPath);
absolute_path!(SessionPath);

impl RelativePath {
    /// Reads a relative path. Repeated slashes, `.` and a slash at the end are dropped, so that
    /// `.` and the empty text are the folder itself; `..` is refused.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, PathError> {
        let path = path.as_ref();
        if path.has_root() {
            return Err(PathError::NotRelative { path: path.into() });
        }
        normalised(Path::new(""), path).map(Self)
    }

    /// The path; empty for the folder itself.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Whether this is the folder itself.
    pub fn is_empty(&self) -> bool {
        self.0.as_os_str().is_empty()
    }
}

/// Appends the components of `path` to `base`, which is normal already.
fn normalised(base: &Path, path: &Path) -> Result<PathBuf, PathError> {
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(PathError::Nul { path: path.into() });
    }
    let mut normal = base.to_path_buf();
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => return Err(PathError::Parent { path: path.into() }),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    match normal.as_os_str().len() {
        0..=MAX_LENGTH => Ok(normal),
        bytes => Err(PathError::TooLong { bytes }),
    }
}

/// The two-way map between the host's paths and one session's: each granted folder of the host
/// and the place where the session sees it.
///
/// Invariant: a place holds one folder, as a mount point does. A folder may be seen at several
/// places, and both folders and places may lie within each other.
///
/// What [`to_session`](Self::to_session) gives, [`to_host`](Self::to_host) gives back. The
/// converse holds for every path that has one name in the session only.
///
/// The map is lexical and proves nothing about a file. A link in a granted folder can lead out of
/// it, so whoever opens what `to_host` names does so beneath the handle of the grant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    grants: BTreeMap<SessionPath, HostPath>,
}

impl Translation {
    /// A map without grants: nothing translates.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shows the folder `host` at `session`, and returns the folder that was there before.
    pub fn insert(&mut self, host: HostPath, session: SessionPath) -> Option<HostPath> {
        self.grants.insert(session, host)
    }

    /// Takes away what is shown at `session`, and returns it.
    pub fn remove(&mut self, session: &SessionPath) -> Option<HostPath> {
        self.grants.remove(session)
    }

    /// The grants, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (&HostPath, &SessionPath)> {
        self.grants.iter().map(|(session, host)| (host, session))
    }

    /// What the session calls `path`; `None` when no grant shows it.
    ///
    /// The most specific grant wins; of two places of one folder, the first in path order. A place
    /// where another grant covers the path does not count, and neither does one where the name
    /// would be longer than a path can be.
    pub fn to_session(&self, path: &HostPath) -> Option<SessionPath> {
        let names = self.grants.iter().filter_map(|(session, host)| {
            let below = host.strip(path)?;
            let name = session.join(&below).ok()?;
            (self.to_host(&name).as_ref() == Some(path)).then_some((below, name))
        });
        names.min_by_key(|(below, _)| below.0.as_os_str().len()).map(|(_, name)| name)
    }

    /// What the host calls `path`; `None` when it lies in no grant, or when the name would be
    /// longer than a path can be.
    ///
    /// The most specific grant wins, as the innermost mount does.
    pub fn to_host(&self, path: &SessionPath) -> Option<HostPath> {
        let grants = self.grants.iter();
        let (below, host) = grants
            .filter_map(|(session, host)| session.strip(path).map(|below| (below, host)))
            .min_by_key(|(below, _)| below.0.as_os_str().len())?;
        host.join(&below).ok()
    }
}

impl FromIterator<(HostPath, SessionPath)> for Translation {
    fn from_iter<I: IntoIterator<Item = (HostPath, SessionPath)>>(grants: I) -> Self {
        let grants = grants.into_iter().map(|(host, session)| (session, host)).collect();
        Self { grants }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    fn host(path: impl AsRef<Path>) -> HostPath {
        HostPath::new(path).unwrap()
    }

    fn session(path: impl AsRef<Path>) -> SessionPath {
        SessionPath::new(path).unwrap()
    }

    fn relative(path: impl AsRef<Path>) -> RelativePath {
        RelativePath::new(path).unwrap()
    }

    /// Compares text, because `Path` itself takes `/a/` and `/a` for equal.
    #[track_caller]
    fn check(path: impl AsRef<OsStr>, expected: Result<&str, &str>) {
        let path = Path::new(path.as_ref());
        let text = |normal: &Path| normal.as_os_str().to_owned();
        let expected = expected.map(OsString::from).map_err(str::to_owned);
        let on_host = HostPath::new(path).map(|p| text(p.as_path())).map_err(|e| e.to_string());
        let in_session =
            SessionPath::new(path).map(|p| text(p.as_path())).map_err(|e| e.to_string());
        assert_eq!(on_host, expected, "{path:?}");
        assert_eq!(in_session, expected, "{path:?}");
    }

    #[track_caller]
    fn check_relative(path: &str, expected: Result<&str, &str>) {
        let read = RelativePath::new(path).map(|p| p.as_path().as_os_str().to_owned());
        let expected = expected.map(OsString::from).map_err(str::to_owned);
        assert_eq!(read.map_err(|e| e.to_string()), expected, "{path:?}");
    }

    #[test]
    fn spelling_is_normalised() {
        for (path, normal) in [
            ("/", "/"),
            ("///", "/"),
            ("/.", "/"),
            ("/a", "/a"),
            ("/a/", "/a"),
            ("/a//b", "/a/b"),
            ("//a/b", "/a/b"),
            ("/a/./b/.", "/a/b"),
            ("/a/.../b", "/a/.../b"),
            ("/a/..b/c..", "/a/..b/c.."),
            ("/~/$HOME/*", "/~/$HOME/*"),
        ] {
            check(path, Ok(normal));
        }
    }

    #[test]
    fn only_absolute_paths_are_absolute() {
        check("", Err("the path is empty"));
        for path in [".", "a/b", "./a", "~/a", " /a"] {
            check(path, Err(&format!("path `{path}` is not absolute")));
        }
    }

    #[test]
    fn parents_are_refused_even_when_they_cancel_out() {
        for path in ["/..", "/a/..", "/a/../a", "/a/b/../../a/b", "/../a", "/a/../"] {
            check(path, Err(&format!("path `{path}` contains `..`")));
        }
        for path in ["..", "a/..", "a/../a", "./.."] {
            check_relative(path, Err(&format!("path `{path}` contains `..`")));
        }
    }

    #[test]
    fn a_nul_byte_is_refused() {
        check("/a\0b", Err(r#"path "/a\0b" contains a NUL byte"#));
        check_relative("a\0", Err(r#"path "a\0" contains a NUL byte"#));
    }

    #[test]
    fn the_longest_path_is_as_long_as_the_kernel_opens() {
        let longest = format!("/{}", "a".repeat(4094));
        check(&longest, Ok(&longest));
        check(format!("{longest}///"), Ok(&longest));
        check(format!("{longest}a"), Err("path is 4096 bytes long: at most 4095 can be opened"));
        assert_eq!(host(&longest).join(&relative("b")), Err(PathError::TooLong { bytes: 4097 }));
    }

    #[test]
    fn relative_paths_are_below_a_folder_or_the_folder() {
        for (path, normal) in [("", ""), (".", ""), ("./", ""), ("a/", "a"), ("./a/.//b", "a/b")] {
            check_relative(path, Ok(normal));
            assert_eq!(relative(path).is_empty(), normal.is_empty());
        }
        for path in ["/", "/a", "//a"] {
            check_relative(path, Err(&format!("path `{path}` is not relative to a folder")));
        }
    }

    #[test]
    fn containment_compares_components() {
        for (outer, inner, below) in [
            ("/a/b", "/a/b", Some("")),
            ("/a/b", "/a/b/c", Some("c")),
            ("/", "/a/b", Some("a/b")),
            ("/", "/", Some("")),
            ("/a/b", "/a/bc", None),
            ("/a/b", "/a", None),
            ("/a/b", "/a/B", None),
            ("/a", "/b/a", None),
        ] {
            assert_eq!(host(outer).contains(&host(inner)), below.is_some(), "{outer} {inner}");
            assert_eq!(host(outer).strip(&host(inner)), below.map(relative), "{outer} {inner}");
            assert_eq!(session(outer).strip(&session(inner)), below.map(relative));
        }
    }

    #[test]
    fn the_last_component_names_a_path() {
        for (path, name) in [("/", None), ("/a", Some("a")), ("/a/b.c/", Some("b.c"))] {
            assert_eq!(host(path).file_name(), name.map(OsStr::new));
            assert_eq!(session(path).file_name(), name.map(OsStr::new));
        }
    }

    #[must_use]
    fn translation(grants: &[(&str, &str)]) -> Translation {
        grants.iter().map(|&(on_host, seen)| (host(on_host), session(seen))).collect()
    }

    #[track_caller]
    fn check_to_session(map: &Translation, path: &str, expected: Option<&str>) {
        assert_eq!(map.to_session(&host(path)), expected.map(session), "{path}");
    }

    #[track_caller]
    fn check_to_host(map: &Translation, path: &str, expected: Option<&str>) {
        assert_eq!(map.to_host(&session(path)), expected.map(host), "{path}");
    }

    #[test]
    fn a_grant_translates_itself_and_what_is_in_it() {
        let map = translation(&[("/home/ada/site", "/s/mnt/site"), ("/data", "/s/mnt/data")]);
        for (on_host, seen) in [
            ("/home/ada/site", "/s/mnt/site"),
            ("/home/ada/site/a/b", "/s/mnt/site/a/b"),
            ("/data/site", "/s/mnt/data/site"),
        ] {
            check_to_session(&map, on_host, Some(seen));
            check_to_host(&map, seen, Some(on_host));
        }
    }

    #[test]
    fn what_is_in_no_grant_does_not_translate() {
        let map = translation(&[("/a/b", "/s/mnt/b")]);
        for path in ["/", "/a", "/a/bc", "/a/b2/c", "/s/mnt/b"] {
            check_to_session(&map, path, None);
        }
        for path in ["/", "/s/mnt", "/s/mnt/bc", "/a/b"] {
            check_to_host(&map, path, None);
        }
        check_to_session(&Translation::new(), "/", None);
        check_to_host(&Translation::new(), "/", None);
    }

    #[test]
    fn the_most_specific_folder_wins_whatever_the_order() {
        let outer = ("/home/ada", "/s/mnt/ada");
        let inner = ("/home/ada/site", "/s/mnt/site");
        for grants in [[outer, inner], [inner, outer]] {
            let map = translation(&grants);
            check_to_session(&map, "/home/ada/site/x", Some("/s/mnt/site/x"));
            check_to_session(&map, "/home/ada/sites", Some("/s/mnt/ada/sites"));
            check_to_host(&map, "/s/mnt/ada/site/x", Some("/home/ada/site/x"));
        }
    }

    #[test]
    fn the_innermost_place_wins_and_hides_what_it_covers() {
        let map = translation(&[("/a", "/s/mnt/a"), ("/b", "/s/mnt/a/x")]);
        check_to_host(&map, "/s/mnt/a/x/f", Some("/b/f"));
        check_to_session(&map, "/b/f", Some("/s/mnt/a/x/f"));
        check_to_session(&map, "/a/x/f", None);
        check_to_session(&map, "/a/y", Some("/s/mnt/a/y"));
    }

    #[test]
    fn a_folder_seen_twice_is_called_by_its_first_place() {
        let map = translation(&[("/a", "/s/mnt/b"), ("/a", "/s/mnt/a")]);
        check_to_session(&map, "/a/f", Some("/s/mnt/a/f"));
        check_to_host(&map, "/s/mnt/b/f", Some("/a/f"));
    }

    #[test]
    fn a_name_that_would_be_too_long_does_not_translate() {
        let map = translation(&[("/a", "/s/mnt/a")]);
        let path = host(format!("/a/{}", "x".repeat(4090)));
        assert_eq!(map.to_session(&path), None);
    }

    #[test]
    fn a_place_holds_one_folder_until_it_is_removed() {
        let mut map = Translation::new();
        assert_eq!(map.insert(host("/a"), session("/s/mnt/x")), None);
        assert_eq!(map.insert(host("/b"), session("/s/mnt/x")), Some(host("/a")));
        let grants: Vec<_> = map.iter().collect();
        assert_eq!(grants, [(&host("/b"), &session("/s/mnt/x"))]);
        check_to_session(&map, "/a", None);
        assert_eq!(map.remove(&session("/s/mnt/x")), Some(host("/b")));
        assert_eq!(map.remove(&session("/s/mnt/x")), None);
        assert_eq!(map, Translation::new());
    }

    /// A file name of arbitrary bytes; few of them, so that names meet.
    fn name() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(b'a'), Just(b'.'), Just(0xFF), any::<u8>()];
        vec(byte, 1..4).prop_filter("a name", |name| {
            name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
        })
    }

    fn names(count: std::ops::Range<usize>) -> impl Strategy<Value = PathBuf> {
        vec(name(), count).prop_map(|names| PathBuf::from(OsString::from_vec(names.join(&b'/'))))
    }

    /// Folders of the host, each at a place of its own, as grants are made.
    fn grants() -> impl Strategy<Value = Translation> {
        vec(names(0..4), 0..5).prop_map(|folders| {
            let place = |n: usize| session(format!("/sessions/zealous-gauss/mnt/{n}"));
            let root = Path::new("/");
            folders.iter().enumerate().map(|(n, f)| (host(root.join(f)), place(n))).collect()
        })
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_normal_and_stays_as_it_is(bytes in vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(b'a'), any::<u8>()], 0..24,
        )) {
            let text = OsString::from_vec(bytes);
            for path in [text.clone(), OsString::from_iter([OsStr::new("/"), &text])] {
                let Ok(read) = HostPath::new(&path) else { continue };
                let bytes = read.as_path().as_os_str().as_bytes();
                prop_assert_eq!(bytes.first(), Some(&b'/'));
                for part in bytes[1..].split(|&b| b == b'/').filter(|_| bytes.len() > 1) {
                    prop_assert!(!matches!(part, b"" | b"." | b".."), "{:?}", read);
                }
                let again = HostPath::new(read.as_path()).unwrap();
                prop_assert_eq!(again.as_path().as_os_str(), read.as_path().as_os_str());
            }
        }

        #[test]
        fn a_parent_never_survives(before in names(0..3), after in names(0..3)) {
            let path = before.join("..").join(after);
            let refused = |path: &Path| PathError::Parent { path: path.into() };
            prop_assert_eq!(RelativePath::new(&path), Err(refused(&path)));
            let path = Path::new("/").join(path);
            prop_assert_eq!(HostPath::new(&path), Err(refused(&path)));
            prop_assert_eq!(SessionPath::new(&path), Err(refused(&path)));
        }

        #[test]
        fn join_and_strip_are_inverse(folder in names(0..4), below in names(0..4)) {
            let (folder, below) = (host(Path::new("/").join(folder)), relative(below));
            let inner = folder.join(&below).unwrap();
            prop_assert!(folder.contains(&inner));
            prop_assert_eq!(folder.strip(&inner), Some(below));
        }

        #[test]
        fn a_longer_name_is_not_inside(folder in names(1..4), more in name()) {
            let folder = host(Path::new("/").join(folder));
            let mut longer = folder.as_path().as_os_str().as_bytes().to_vec();
            longer.extend(more);
            prop_assert!(!folder.contains(&host(OsString::from_vec(longer))));
        }

        #[test]
        fn what_the_host_names_comes_back(
            map in grants(), path in names(0..5),
        ) {
            let path = host(Path::new("/").join(path));
            let seen = map.to_session(&path);
            prop_assert_eq!(seen.is_some(), map.iter().any(|(host, _)| host.contains(&path)));
            if let Some(seen) = seen {
                prop_assert!(map.iter().any(|(_, place)| place.contains(&seen)));
                prop_assert_eq!(map.to_host(&seen), Some(path));
            }
        }

        #[test]
        fn what_the_session_names_comes_back(folder in names(0..4), below in names(0..4)) {
            let place = session("/sessions/zealous-gauss/mnt/site");
            let map: Translation =
                [(host(Path::new("/").join(folder)), place.clone())].into_iter().collect();
            let seen = place.join(&relative(below)).unwrap();
            let named = map.to_host(&seen).unwrap();
            prop_assert_eq!(map.to_session(&named), Some(seen));
        }

        #[test]
        fn arbitrary_maps_are_true_in_both_directions(
            pairs in vec((names(0..3), names(0..3)), 0..5), path in names(0..4),
        ) {
            let root = Path::new("/");
            let map: Translation =
                pairs.iter().map(|(h, s)| (host(root.join(h)), session(root.join(s)))).collect();
            let (on_host, seen) = (host(root.join(&path)), session(root.join(&path)));
            match map.to_session(&on_host) {
                Some(seen) => prop_assert_eq!(map.to_host(&seen), Some(on_host)),
                // Every place of the path, if it has any, is covered by another grant.
                None => for (folder, place) in map.iter() {
                    let Some(below) = folder.strip(&on_host) else { continue };
                    let covering = map.to_host(&place.join(&below).unwrap());
                    prop_assert_ne!(covering.as_ref(), Some(&on_host));
                },
            }
            let inside = map.iter().any(|(_, place)| place.contains(&seen));
            prop_assert_eq!(map.to_host(&seen).is_some(), inside);
        }
    }
}
