//! What a person writes to grant a folder: where it is, what may be done with it, and what it is
//! called in the session.
//!
//! A [`GrantSpec`] is what was typed. Its path may be relative, start with `~` or not exist; the
//! caller, who knows the working directory and the home, makes a [`HostPath`] of it. A
//! [`GrantName`] is one component below `mnt/`, safe to join and to show.
//!
//! Deliberately absent: expanding `~`, looking at the folder, and choosing between two grants of
//! one name.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::path::HostPath;

/// What the agent may do with a granted folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Files can be listed and read.
    #[default]
    Read,
    /// Files can also be created, changed and deleted; every change is recorded and can be undone.
    Write,
    /// Files can also be created, changed and deleted, and nothing is recorded.
    Direct,
    /// Changes stay beside the folder until the user applies them.
    Staged,
}

/// The modes, for people.
pub const MODES: &str = "`ro` (read only), `rw` (read and write), `direct` (write without undo) or \
                     `staged` (changes wait until they are applied)";

/// Why a text is not an access mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown access mode `{}`: use {MODES}", .mode.escape_debug())]
pub struct AccessError {
    mode: Box<str>,
}

impl AccessError {
    /// What was written for a mode.
    pub fn mode(&self) -> &str {
        &self.mode
    }
}

impl FromStr for Access {
    type Err = AccessError;

    fn from_str(mode: &str) -> Result<Self, Self::Err> {
        match mode {
            "ro" => Ok(Self::Read),
            "rw" => Ok(Self::Write),
            "direct" => Ok(Self::Direct),
            "staged" => Ok(Self::Staged),
            other => Err(AccessError { mode: other.into() }),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Read => "ro",
            Self::Write => "rw",
            Self::Direct => "direct",
            Self::Staged => "staged",
        })
    }
}

/// What a granted folder is called in the session: the last component of
/// `/sessions/<id>/mnt/<name>`.
///
/// Invariant: 1 to 64 bytes of UTF-8; no `/`, no `:` (it would split `PATH` and its kin), no
/// control character and none that reorders text on a screen; no blank at either end; no `.` or
/// `-` at the start, so that it is neither hidden, nor a way out, nor an option. The session's own
/// folders are made by [`outputs`](Self::outputs), [`uploads`](Self::uploads) and
/// [`skills`](Self::skills) and by nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantName(Box<str>);

/// Why a text or a folder gives no grant name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantNameError {
    /// There is no text.
    #[error("the grant name is empty")]
    Empty,
    /// The text is longer than a name may be.
    #[error("the grant name is {bytes} bytes long: at most {MAX_NAME} are allowed")]
    TooLong {
        /// How long the text is.
        bytes: usize,
    },
    /// The text starts with `.` or `-`.
    #[error("grant name `{}` starts with `{start}`", .name.escape_debug())]
    Start {
        /// The text as given.
        name: Box<str>,
        /// What it starts with.
        start: char,
    },
    /// The text starts or ends with a blank, which nobody would see.
    #[error("grant name `{}` has a blank at its start or end", .name.escape_debug())]
    Blank {
        /// The text as given.
        name: Box<str>,
    },
    /// The text holds a character that a name cannot hold.
    #[error("grant name `{}` contains `{}`", .name.escape_debug(), .character.escape_debug())]
    Character {
        /// The text as given.
        name: Box<str>,
        /// The first character that does not belong.
        character: char,
    },
    /// The name is that of a folder which every session has.
    #[error("grant name `{name}` is taken by the session's own folder")]
    Reserved {
        /// The name.
        name: Box<str>,
    },
    /// The folder's own name has nothing that a grant name could be made of.
    #[error("folder `{}` gives no grant name: choose one with `=name`", .path.display())]
    Nameless {
        /// The folder.
        path: PathBuf,
    },
}

/// Longest grant name in bytes; a longer one is refused when typed and cut when it is the name of
/// a folder.
const MAX_NAME: usize = 64;

const OUTPUTS: &str = "outputs";
const UPLOADS: &str = "uploads";
const SKILLS: &str = "skills";

impl GrantName {
    /// The session's deliverables: always writable, kept after the session.
    pub fn outputs() -> Self {
        Self(OUTPUTS.into())
    }

    /// The files the user gave to the session: read only.
    pub fn uploads() -> Self {
        Self(UPLOADS.into())
    }

    /// The skills the agent can use: read only.
    pub fn skills() -> Self {
        Self(SKILLS.into())
    }

    /// Names a folder after its last component: what a name cannot hold becomes `-`, dots, dashes
    /// and blanks at the start are dropped, and what is too long is cut.
    pub fn from_path(path: &HostPath) -> Result<Self, GrantNameError> {
        let nameless = || GrantNameError::Nameless { path: path.as_path().into() };
        // Bytes that are no UTF-8 arrive as the replacement character and go the same way as
        // every other character that does not belong.
        let folder = path.file_name().ok_or_else(nameless)?.to_string_lossy();
        let name: String = folder
            .chars()
            .map(|c| if belongs(c) && c != char::REPLACEMENT_CHARACTER { c } else { '-' })
            .collect();
        let name = name.trim_start_matches(|c: char| c == '.' || c == '-' || c.is_whitespace());
        let name = cut(name).trim_end();
        if name.is_empty() { Err(nameless()) } else { name.parse() }
    }

    /// Whether this is one of the session's own folders.
    pub fn is_reserved(&self) -> bool {
        is_reserved(&self.0)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GrantName {
    type Err = GrantNameError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let Some(start) = name.chars().next() else {
            return Err(GrantNameError::Empty);
        };
        if name.len() > MAX_NAME {
            return Err(GrantNameError::TooLong { bytes: name.len() });
        }
        if let Some(character) = name.chars().find(|&c| !belongs(c)) {
            return Err(GrantNameError::Character { name: name.into(), character });
        }
        if matches!(start, '.' | '-') {
            return Err(GrantNameError::Start { name: name.into(), start });
        }
        if name.trim() != name {
            return Err(GrantNameError::Blank { name: name.into() });
        }
        if is_reserved(name) {
            return Err(GrantNameError::Reserved { name: name.into() });
        }
        Ok(Self(name.into()))
    }
}

impl fmt::Display for GrantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

fn is_reserved(name: &str) -> bool {
    [OUTPUTS, UPLOADS, SKILLS].contains(&name)
}

/// Whether a grant name may hold `c`.
///
/// Names are shown where a person decides, so line breaks and the characters that reorder what
/// surrounds them (Unicode, UAX #9, section 2) are refused beside `/`, `:` and the control
/// characters. The joiners that some scripts need are not.
fn belongs(c: char) -> bool {
    let reorders = matches!(
        c,
        '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
    );
    let breaks = matches!(c, '\u{2028}' | '\u{2029}');
    !(c.is_control() || reorders || breaks || matches!(c, '/' | ':'))
}

/// The longest start of `name` that is short enough and ends between two characters.
fn cut(name: &str) -> &str {
    name.get(..name.floor_char_boundary(MAX_NAME)).unwrap_or(name)
}

/// A grant as a person writes it: `PATH[:MODE][=name]`, where the mode is `ro`, `rw`, `direct` or
/// `staged`.
///
/// The name is what follows the last `=`, the mode what follows the last `:` before it, each only
/// if no `/` comes after. A folder whose own name holds a `=` or `:` is therefore written with a
/// slash at its end: `/data/x=1/`, `/data/x=1/:ro`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantSpec {
    path: PathBuf,
    access: Access,
    name: Option<GrantName>,
}

/// Why a text is not a grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantSpecError {
    /// No folder is named.
    #[error("grant `{}` names no folder: write `PATH[:ro|rw|direct|staged][=name]`", .spec.display())]
    NoPath {
        /// The grant as given.
        spec: PathBuf,
    },
    /// Nothing follows the `:`.
    #[error(
        "grant `{}` has no access mode after `:`: use {MODES}, or end the folder with `/` if the \
         `:` is part of its name",
        .spec.display()
    )]
    NoAccess {
        /// The grant as given.
        spec: PathBuf,
    },
    /// What follows the `:` is no access mode.
    #[error(
        "{error}, or end the folder in grant `{}` with `/` if the `:` is part of its name",
        .spec.display()
    )]
    UnknownAccess {
        /// The grant as given.
        spec: PathBuf,
        /// What was written for a mode.
        error: AccessError,
    },
    /// Nothing follows the `=`.
    #[error(
        "grant `{}` has no name after `=`: give one, or end the folder with `/` if the `=` is \
         part of its name",
        .spec.display()
    )]
    NoName {
        /// The grant as given.
        spec: PathBuf,
    },
    /// The mode follows the name. Read as part of the name it would be lost, and with it a wish
    /// for less access than the default.
    #[error(
        "grant `{}` has its access mode after the name: write `PATH:{access}=name`, or end the \
         folder with `/` if the `=` is part of its name",
        .spec.display()
    )]
    AccessAfterName {
        /// The grant as given.
        spec: PathBuf,
        /// The mode that was found.
        access: Access,
    },
    /// The bytes after the `=` are no UTF-8.
    #[error("the name in grant `{}` is not UTF-8", .spec.display())]
    NameEncoding {
        /// The grant as given.
        spec: PathBuf,
    },
    /// What follows the `=` is no grant name.
    #[error("grant `{}` has a name that cannot be used", .spec.display())]
    Name {
        /// The grant as given.
        spec: PathBuf,
        /// What is wrong with the name.
        source: GrantNameError,
    },
}

impl GrantSpec {
    /// What a grant allows when it does not say.
    ///
    /// A person who names a folder wants work done in it. Reading alone is asked for with `:ro`.
    pub const DEFAULT_ACCESS: Access = Access::Write;

    /// A grant of `path`; without a name, the folder's own is taken later.
    pub fn new(path: impl Into<PathBuf>, access: Access, name: Option<GrantName>) -> Self {
        Self { path: path.into(), access, name }
    }

    /// Reads `PATH[:MODE][=name]`. The path need not be UTF-8.
    pub fn parse(spec: &OsStr) -> Result<Self, GrantSpecError> {
        let (rest, name) = split_suffix(spec.as_bytes(), b'=');
        let (path, mode) = split_suffix(rest, b':');
        if path.is_empty() {
            return Err(GrantSpecError::NoPath { spec: spec.into() });
        }
        Ok(Self {
            path: OsStr::from_bytes(path).into(),
            access: mode.map_or(Ok(Self::DEFAULT_ACCESS), |mode| parse_access(mode, spec))?,
            name: name.map(|name| parse_name(name, spec)).transpose()?,
        })
    }

    /// The folder as it was typed: it may be relative or start with `~`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the session may do with it.
    pub fn access(&self) -> Access {
        self.access
    }

    /// What it is to be called, if that was said.
    pub fn name(&self) -> Option<&GrantName> {
        self.name.as_ref()
    }
}

impl FromStr for GrantSpec {
    type Err = GrantSpecError;

    fn from_str(spec: &str) -> Result<Self, Self::Err> {
        Self::parse(OsStr::new(spec))
    }
}

/// Splits at the last `mark` that no `/` follows.
fn split_suffix(text: &[u8], mark: u8) -> (&[u8], Option<&[u8]>) {
    let mut parts = text.rsplitn(2, |&byte| byte == mark);
    match (parts.next(), parts.next()) {
        (Some(suffix), Some(rest)) if !suffix.contains(&b'/') => (rest, Some(suffix)),
        (_, _) => (text, None),
    }
}

fn parse_access(mode: &[u8], spec: &OsStr) -> Result<Access, GrantSpecError> {
    if mode.is_empty() {
        return Err(GrantSpecError::NoAccess { spec: spec.into() });
    }
    let mode = String::from_utf8_lossy(mode);
    mode.parse().map_err(|error| GrantSpecError::UnknownAccess { spec: spec.into(), error })
}

fn parse_name(name: &[u8], spec: &OsStr) -> Result<GrantName, GrantSpecError> {
    if name.is_empty() {
        return Err(GrantSpecError::NoName { spec: spec.into() });
    }
    let Ok(name) = str::from_utf8(name) else {
        return Err(GrantSpecError::NameEncoding { spec: spec.into() });
    };
    if let Some((_, Ok(access))) = name.rsplit_once(':').map(|(name, mode)| (name, mode.parse())) {
        return Err(GrantSpecError::AccessAfterName { spec: spec.into(), access });
    }
    name.parse().map_err(|source| GrantSpecError::Name { spec: spec.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::error::Error;

    #[test]
    fn access_is_written_as_it_is_read() {
        for (text, access) in [
            ("ro", Access::Read),
            ("rw", Access::Write),
            ("direct", Access::Direct),
            ("staged", Access::Staged),
        ] {
            assert_eq!(text.parse(), Ok(access));
            assert_eq!(access.to_string(), text);
        }
        assert_eq!(Access::default(), Access::Read);
    }

    #[test]
    fn other_access_modes_are_refused() {
        for mode in ["", "r", "w", "RO", "read", "ro ", "rwx", "Direct", "stage"] {
            assert_eq!(
                mode.parse::<Access>().map_err(|error| error.to_string()),
                Err(format!(
                    "unknown access mode `{mode}`: use `ro` (read only), `rw` (read and write), \
                     `direct` (write without undo) or `staged` (changes wait until they are \
                     applied)"
                ))
            );
        }
    }

    #[track_caller]
    fn check_name(text: &str, expected: Result<&str, &str>) {
        let parsed = text.parse::<GrantName>().map_err(|error| error.to_string());
        let expected = expected.map(|name| GrantName(name.into())).map_err(str::to_owned);
        assert_eq!(parsed, expected, "{text:?}");
    }

    #[test]
    fn a_name_is_one_plain_component() {
        let longest = "n".repeat(64);
        for name in ["site", "My Documents", "notes.v2", "x=1", "日本語"] {
            check_name(name, Ok(name));
        }
        check_name(&longest, Ok(&longest));
    }

    #[test]
    fn names_that_mean_something_else_are_refused() {
        for (text, sentence) in [
            ("", "the grant name is empty"),
            (".", "grant name `.` starts with `.`"),
            ("..", "grant name `..` starts with `.`"),
            (".git", "grant name `.git` starts with `.`"),
            ("-rf", "grant name `-rf` starts with `-`"),
            ("a/b", "grant name `a/b` contains `/`"),
            ("/", "grant name `/` contains `/`"),
            ("a:b", "grant name `a:b` contains `:`"),
            ("a\nb", r"grant name `a\nb` contains `\n`"),
            ("a\0", r"grant name `a\0` contains `\0`"),
            ("a\u{1b}[2J", r"grant name `a\u{1b}[2J` contains `\u{1b}`"),
            ("a\u{202e}gpj", r"grant name `a\u{202e}gpj` contains `\u{202e}`"),
            (" ", "grant name ` ` has a blank at its start or end"),
            ("a ", "grant name `a ` has a blank at its start or end"),
            ("outputs", "grant name `outputs` is taken by the session's own folder"),
            ("uploads", "grant name `uploads` is taken by the session's own folder"),
            ("skills", "grant name `skills` is taken by the session's own folder"),
        ] {
            check_name(text, Err(sentence));
        }
        check_name(&"n".repeat(65), Err("the grant name is 65 bytes long: at most 64 are allowed"));
    }

    #[test]
    fn the_sessions_own_folders_are_reserved_and_others_are_not() {
        for (name, text) in [
            (GrantName::outputs(), "outputs"),
            (GrantName::uploads(), "uploads"),
            (GrantName::skills(), "skills"),
        ] {
            assert_eq!((name.as_str(), name.is_reserved()), (text, true));
        }
        for text in ["Outputs", "output", "outputs2"] {
            assert!(!text.parse::<GrantName>().unwrap().is_reserved(), "{text}");
        }
    }

    #[track_caller]
    fn check_from_path(path: &[u8], expected: Result<&str, &str>) {
        let path = HostPath::new(OsStr::from_bytes(path)).unwrap();
        let name = GrantName::from_path(&path).map_err(|error| error.to_string());
        let expected = expected.map(|name| GrantName(name.into())).map_err(str::to_owned);
        assert_eq!(name, expected, "{path:?}");
    }

    #[test]
    fn a_folder_lends_its_name() {
        let long = format!("/{}日本", "n".repeat(62));
        let cut = "n".repeat(62);
        let cases: [(&[u8], &str); 12] = [
            (b"/home/ada/site", "site"),
            (b"/home/ada/My Documents/", "My Documents"),
            (b"/home/ada/.config", "config"),
            (b"/home/ada/..x", "x"),
            (b"/home/ada/--x", "x"),
            (b"/tmp/a:b", "a-b"),
            (b"/tmp/a\nb", "a-b"),
            (b"/tmp/\x1b[1m", "[1m"),
            (b"/tmp/caf\xE9", "caf-"),
            (b"/tmp/ x ", "x"),
            ("/tmp/日本語".as_bytes(), "日本語"),
            (long.as_bytes(), &cut),
        ];
        for (path, name) in cases {
            check_from_path(path, Ok(name));
        }
    }

    #[test]
    fn a_folder_without_a_usable_name_needs_one() {
        for path in ["/", "/a/...", "/a/---", "/a/ ", "/a/:"] {
            let path = HostPath::new(path).unwrap();
            let sentence = format!(
                "folder `{}` gives no grant name: choose one with `=name`",
                path.as_path().display()
            );
            check_from_path(path.as_path().as_os_str().as_bytes(), Err(&sentence));
        }
        check_from_path(
            b"/home/ada/outputs",
            Err("grant name `outputs` is taken by the session's own folder"),
        );
    }

    #[track_caller]
    fn check(spec: impl AsRef<OsStr>, path: impl AsRef<OsStr>, access: Access, name: Option<&str>) {
        let expected =
            GrantSpec::new(path.as_ref(), access, name.map(|name| name.parse().unwrap()));
        assert_eq!(GrantSpec::parse(spec.as_ref()), Ok(expected), "{:?}", spec.as_ref());
    }

    /// The sentence and its causes, as a terminal shows them.
    #[track_caller]
    fn check_refused(spec: impl AsRef<OsStr>, sentences: &[&str]) {
        let error = GrantSpec::parse(spec.as_ref()).unwrap_err();
        let causes = std::iter::successors(Some(&error as &dyn Error), |&error| error.source());
        let causes: Vec<_> = causes.map(ToString::to_string).collect();
        assert_eq!(causes, sentences, "{:?}", spec.as_ref());
    }

    #[test]
    fn mode_and_name_are_optional() {
        use Access::{Direct, Read, Staged, Write};
        for (spec, path, access, name) in [
            (".", ".", Write, None),
            ("/", "/", Write, None),
            ("/a", "/a", Write, None),
            ("/a:ro", "/a", Read, None),
            ("/a:rw", "/a", Write, None),
            ("/a:direct", "/a", Direct, None),
            ("/a:staged=b", "/a", Staged, Some("b")),
            ("/a=b", "/a", Write, Some("b")),
            ("/a:ro=b", "/a", Read, Some("b")),
            (".:rw=project", ".", Write, Some("project")),
            ("~/notes:ro", "~/notes", Read, None),
            ("../x:ro", "../x", Read, None),
            ("/a b:ro=c d", "/a b", Read, Some("c d")),
        ] {
            check(spec, path, access, name);
            assert_eq!(spec.parse::<GrantSpec>(), GrantSpec::parse(OsStr::new(spec)));
        }
    }

    #[test]
    fn marks_before_a_slash_belong_to_the_path() {
        use Access::{Read, Write};
        for (spec, path, access, name) in [
            ("/a:b/c", "/a:b/c", Write, None),
            ("/a=b/c", "/a=b/c", Write, None),
            ("/data/x=1/", "/data/x=1/", Write, None),
            ("/data/x=1/:ro", "/data/x=1/", Read, None),
            ("/data/x:1/", "/data/x:1/", Write, None),
            ("/data/x:1/:ro=y", "/data/x:1/", Read, Some("y")),
            ("/a=b=c", "/a=b", Write, Some("c")),
            ("/a:b:ro", "/a:b", Read, None),
        ] {
            check(spec, path, access, name);
        }
    }

    #[test]
    fn paths_are_bytes() {
        let bytes = OsStr::from_bytes;
        check(bytes(b"/caf\xE9"), bytes(b"/caf\xE9"), Access::Write, None);
        check(bytes(b"/caf\xE9:ro=x"), bytes(b"/caf\xE9"), Access::Read, Some("x"));
        check_refused(bytes(b"/x=caf\xE9"), &["the name in grant `/x=caf\u{FFFD}` is not UTF-8"]);
        check_refused(
            bytes(b"/x:\xE9"),
            &["unknown access mode `\u{FFFD}`: use `ro` (read only), `rw` (read and write), \
               `direct` (write without undo) or `staged` (changes wait until they are applied), \
               or end the folder in grant `/x:\u{FFFD}` with `/` if the `:` is part of its name"],
        );
    }

    #[test]
    fn a_grant_names_a_folder() {
        for spec in ["", ":ro", "=n", ":ro=n", ":", "="] {
            let sentence = format!(
                "grant `{spec}` names no folder: write `PATH[:ro|rw|direct|staged][=name]`"
            );
            check_refused(spec, &[&sentence]);
        }
    }

    #[test]
    fn an_unknown_mode_is_refused_with_a_way_out() {
        check_refused(
            "/x:rx",
            &["unknown access mode `rx`: use `ro` (read only), `rw` (read and write), `direct` \
               (write without undo) or `staged` (changes wait until they are applied), or end \
               the folder in grant `/x:rx` with `/` if the `:` is part of its name"],
        );
        check_refused(
            "x:=n",
            &["grant `x:=n` has no access mode after `:`: use `ro` (read only), `rw` (read and \
               write), `direct` (write without undo) or `staged` (changes wait until they are \
               applied), or end the folder with `/` if the `:` is part of its name"],
        );
    }

    #[test]
    fn an_unusable_name_is_refused() {
        check_refused(
            "x=",
            &["grant `x=` has no name after `=`: give one, or end the folder with `/` if the `=` \
               is part of its name"],
        );
        check_refused(
            "x=outputs",
            &[
                "grant `x=outputs` has a name that cannot be used",
                "grant name `outputs` is taken by the session's own folder",
            ],
        );
        check_refused(
            "x=..",
            &["grant `x=..` has a name that cannot be used", "grant name `..` starts with `.`"],
        );
    }

    #[test]
    fn a_mode_after_the_name_is_not_lost() {
        for (spec, access) in [
            ("/x=notes:ro", "ro"),
            ("/x=1:rw", "rw"),
            ("/x:rw=n:ro", "ro"),
            ("/x=n:staged", "staged"),
        ] {
            let sentence = format!(
                "grant `{spec}` has its access mode after the name: write `PATH:{access}=name`, \
                 or end the folder with `/` if the `=` is part of its name"
            );
            check_refused(spec, &[&sentence]);
        }
    }

    proptest! {
        #[test]
        fn a_folder_that_ends_in_a_slash_can_hold_anything(
            folder in proptest::collection::vec(any::<u8>(), 0..12),
            mode in prop_oneof![
                Just(""), Just(":ro"), Just(":rw"), Just(":direct"), Just(":staged")
            ],
            name in prop_oneof![Just(""), Just("=n")],
        ) {
            let path = [&folder, b"/".as_slice()].concat();
            let spec = [&path, mode.as_bytes(), name.as_bytes()].concat();
            let access = match mode {
                ":ro" => Access::Read,
                ":direct" => Access::Direct,
                ":staged" => Access::Staged,
                _ => Access::Write,
            };
            let name = name.strip_prefix('=').map(|name| name.parse().unwrap());
            let expected = GrantSpec::new(OsStr::from_bytes(&path), access, name);
            prop_assert_eq!(GrantSpec::parse(OsStr::from_bytes(&spec)), Ok(expected));
        }

        #[test]
        fn a_name_made_of_a_folder_is_a_name(folder in "[^/\0]{1,80}") {
            let Ok(path) = HostPath::new(format!("/{folder}")) else { return Ok(()) };
            if let Ok(name) = GrantName::from_path(&path) {
                prop_assert_eq!(name.as_str().parse(), Ok(name.clone()));
            }
        }
    }
}
