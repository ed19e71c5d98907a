//! What a person writes: what was understood keeps its invariant, and survives being written and
//! read again.

use crate::Reached;
use cowork_policy::seccomp::Profile;
use cowork_policy::{
    Access, Bytes, Cpus, GrantName, GrantSpec, HostPath, PathError, RelativePath, SessionId,
    SessionPath, Span, Translation,
};
use std::ffi::{OsStr, OsString};
use std::fmt::{Debug, Display};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};
use std::str::FromStr;

/// A grant as written on the command line.
pub fn grant(input: &[u8]) -> Reached {
    let spec = GrantSpec::parse(OsStr::from_bytes(input));
    if let Ok(spec) = &spec {
        assert!(!spec.path().as_os_str().is_empty());
        let mut text = spec.path().as_os_str().to_owned();
        text.push(format!(":{}", spec.access()));
        if let Some(name) = spec.name() {
            check_name(name);
            text.push(format!("={name}"));
        }
        assert_eq!(GrantSpec::parse(&text).as_ref(), Ok(spec), "{text:?}");
    }
    if let Err(error) = &spec {
        assert!(!error.to_string().is_empty());
    }
    Reached::by(&spec)
}

/// A name is one component of a path, and names one folder only.
fn check_name(name: &GrantName) {
    let text = name.as_str();
    let mut components = Path::new(text).components();
    assert!(matches!(components.next(), Some(Component::Normal(_))), "{text:?}");
    assert_eq!(components.next(), None, "{text:?}");
    assert!(text.len() <= 64 && !text.contains(['\0', '\n', ':', '/']), "{text:?}");
    assert!(!text.starts_with(['.', '-']), "{text:?}");
    assert_eq!(text.parse().as_ref(), Ok(name));
}

/// Two paths, divided by the first byte's number.
pub fn path(input: &[u8]) -> Reached {
    let [split, rest @ ..] = input else { return Reached::NOTHING };
    let (one, other) = rest.split_at(usize::from(*split).min(rest.len()));
    let (one, other) = (OsStr::from_bytes(one), OsStr::from_bytes(other));
    let host = HostPath::new(one);
    let session = SessionPath::new(one);
    let below = RelativePath::new(other);
    let same = match (&host, &session) {
        (Ok(host), Ok(session)) => host.as_path() == session.as_path(),
        (Err(host), Err(session)) => host == session,
        _ => false,
    };
    assert!(same, "the two sides read {one:?} differently");
    if let Ok(host) = &host {
        check_absolute(host.as_path());
        let again = HostPath::new(host.as_path());
        let again = again.expect("a path is a path").as_path().as_os_str().to_owned();
        assert_eq!(again, host.as_path().as_os_str());
        if let Ok(name) = GrantName::from_path(host) {
            check_name(&name);
        }
    }
    if let Ok(below) = &below {
        assert!(!below.as_path().has_root());
        let normal = below.as_path().components().all(|part| matches!(part, Component::Normal(_)));
        assert!(normal, "{below:?}");
    }
    if let (Ok(host), Ok(session), Ok(below)) = (&host, &session, &below) {
        check_translation(host, session, below);
    }
    Reached::by(&host).and(Reached::by(&below))
}

fn check_absolute(path: &Path) {
    let bytes = path.as_os_str().as_bytes();
    assert!(bytes.starts_with(b"/") && bytes.len() <= 4095 && !bytes.contains(&0), "{path:?}");
    let mut parts = bytes.split(|byte| *byte == b'/').skip(1);
    assert!(bytes == b"/" || parts.all(|part| !matches!(part, b"" | b"." | b"..")), "{path:?}");
}

/// What lies below a granted folder translates there and back, and nothing else translates.
fn check_translation(host: &HostPath, session: &SessionPath, below: &RelativePath) {
    let joined = host.join(below);
    let Ok(joined) = joined else {
        assert!(matches!(joined, Err(PathError::TooLong { .. })), "{joined:?}");
        return;
    };
    check_absolute(joined.as_path());
    assert!(host.contains(&joined));
    assert_eq!(host.strip(&joined).as_ref(), Some(below));
    let place = SessionPath::new("/sessions/zealous-gauss/mnt/site").expect("it is a path");
    let map: Translation = [(host.clone(), place.clone())].into_iter().collect();
    match map.to_session(&joined) {
        Some(inside) => {
            assert!(place.contains(&inside));
            assert_eq!(map.to_host(&inside).as_ref(), Some(&joined));
        }
        None => assert!(place.join(below).is_err(), "{joined:?} has no name in the session"),
    }
    let inside = place.contains(session);
    assert_eq!(map.to_host(session).is_some() || inside, inside, "{session:?} is not granted");
}

/// A value of an option.
pub fn word(input: &[u8]) -> Reached {
    let Ok(text) = str::from_utf8(input) else { return Reached::NOTHING };
    if let Ok(id) = text.parse::<SessionId>() {
        let belongs = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!((3..=63).contains(&text.len()) && text.chars().all(belongs), "{id}");
    }
    if let Ok(bytes) = text.parse::<Bytes>() {
        assert!(!format!("{bytes:#}").is_empty());
    }
    let sizes = value::<Bytes>(text).and(value::<Span>(text)).and(value::<Cpus>(text));
    let names = value::<SessionId>(text).and(value::<Profile>(text)).and(value::<Access>(text));
    sizes.and(names)
}

fn value<T>(text: &str) -> Reached
where
    T: FromStr<Err: Debug + Display + PartialEq> + Debug + Display + PartialEq,
{
    let value = text.parse::<T>();
    match &value {
        Ok(value) => assert_eq!(value.to_string().parse::<T>().as_ref(), Ok(value), "{text:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    Reached::by(&value)
}

pub(crate) fn grant_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "/home/ada/site",
        "/home/ada/site:ro",
        "site:rw=web",
        "/data/x=1/:ro",
        "a=b:ro",
        "x:",
        "x=",
        ":ro",
        "=name",
        "/a:xx",
        "~/notes:ro=Übersicht",
        "a=outputs",
        "a=.b",
        "a= b",
        "a=\u{202e}b",
    ];
    texts.map(Into::into).to_vec()
}

pub(crate) fn path_seeds() -> Vec<Vec<u8>> {
    let pairs = [
        ("/home/ada", "site/index.html"),
        ("/", ""),
        ("//a/./b/", "./c//d/"),
        ("/a/../b", ".."),
        ("relative", "/absolute"),
        ("/a\0b", "c\0"),
        ("", "x"),
        ("/sessions/zealous-gauss/mnt/site/a", "b"),
    ];
    let mut seeds: Vec<Vec<u8>> = pairs
        .map(|(one, other)| {
            let split = u8::try_from(one.len()).unwrap_or(u8::MAX);
            [&[split], one.as_bytes(), other.as_bytes()].concat()
        })
        .to_vec();
    let long: OsString = OsString::from_vec(vec![b'a'; 4093]);
    seeds.push([&[2][..], b"/b", long.as_bytes()].concat());
    seeds
}

pub(crate) fn word_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "512M",
        "4GiB",
        "0",
        "18446744073709551615",
        "16777216t",
        "1.5G",
        "90s",
        "5m",
        "250ms",
        "2",
        "0.5",
        "1.250",
        "4294967.295",
        "0.0001",
        "zealous-ramanujan",
        "a--b",
        "-a",
        "9a",
        "strict",
        "nested",
        "ro",
        "rw",
        "\u{661}M",
    ];
    texts.map(Into::into).to_vec()
}
