//! What programs in a session trust: the host's authorities and, where something is looked into,
//! the session's own.
//!
//! `/etc/ssl/certs` of a session leads to `certs` in the folder it is told about itself in. That is
//! a link to the host's certificates, or a folder in its place with the same and the session's own
//! authority: as one file, by both names that such files have, by its hash for OpenSSL, as a key store
//! for Java, and as a policy for Chromium. It is made aside and changed places with, so that a program
//! finds the one or the other whole.

use super::subject::hash_of;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cowork_policy::plan::CERTIFICATES;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// Where a session sees the host's own certificates.
const OF_HOST: &str = "/etc/ssl/certs.host";
/// The file with all authorities, within the folder.
pub(crate) const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// What that file is called: by Debian and its likes, and by Fedora and its likes.
const ALL: [&str; 2] = ["ca-certificates.crt", "ca-bundle.crt"];
/// What else of the folder is made for a session, and not taken from the host.
const MADE: [&str; 3] = ["java", "cowork.pem", "policies"];
/// Where hosts keep that file.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// What Java expects a key store that anybody may read to be sealed with.
const JAVA_SEAL: &str = "changeit";

/// The authorities of the host.
struct Host {
    pem: Vec<u8>,
    der: Vec<Vec<u8>>,
    /// What else is in its folder of certificates.
    names: Vec<OsString>,
}

/// Read once: a host that changes its authorities restarts its daemon.
fn host() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(|| {
        let pem = BUNDLES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
        let der = certificates(&pem);
        Host { pem, der, names: taken(Path::new("/etc")) }
    })
}

/// What a session takes from the host's folder of certificates: the one that it sees itself.
fn taken(etc: &Path) -> Vec<OsString> {
    let mut folders = CERTIFICATES.iter().map(|name| std::fs::read_dir(etc.join(name)));
    let entries = folders.find_map(Result::ok).into_iter().flatten().flatten();
    let made = |name: &OsString| ALL.iter().chain(&MADE).any(|made| name == made);
    entries.map(|entry| entry.file_name()).filter(|name| !made(name)).collect()
}

/// The certificates in a text, in DER. What is none is left out.
pub(crate) fn certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let text = String::from_utf8_lossy(pem);
    let parts = text.split(BEGIN).skip(1).filter_map(|part| part.split(END).next());
    let coded = parts.map(|part| part.split_whitespace().collect::<String>());
    coded.filter_map(|part| STANDARD.decode(part).ok()).collect()
}

/// Lets a session trust what the host trusts.
pub(crate) fn remove(about: &Path) {
    cowork_sys::ignore(lay(about));
}

/// Puts the link to the host's certificates in place of whatever is there.
pub(crate) fn lay(about: &Path) -> io::Result<()> {
    let there = about.join("certs");
    if std::os::unix::fs::symlink(OF_HOST, &there).is_ok() {
        return Ok(());
    }
    if std::fs::read_link(&there).is_ok_and(|to| to == Path::new(OF_HOST)) {
        return Ok(());
    }
    let new = about.join("certs.new");
    clear(&new)?;
    std::os::unix::fs::symlink(OF_HOST, &new)?;
    swap(&new, &there)
}

/// Lets a session trust its own authority as well.
pub(crate) fn install(about: &Path, authority: &[u8]) -> io::Result<()> {
    let host = host();
    let new = about.join("certs.new");
    clear(&new)?;
    std::fs::create_dir(&new)?;
    let own = armoured(authority);
    let mut all = host.pem.clone();
    if !all.is_empty() && !all.ends_with(b"\n") {
        all.push(b'\n');
    }
    all.extend_from_slice(own.as_bytes());
    for name in ALL {
        std::fs::write(new.join(name), &all)?;
    }
    std::fs::write(new.join("cowork.pem"), own)?;
    let hash = hash_of(authority);
    for name in &host.names {
        std::os::unix::fs::symlink(Path::new(OF_HOST).join(name), new.join(name))?;
    }
    if let Some(hash) = hash {
        // Another authority of the same hash has the first number.
        let number = (0..10).find(|number| {
            std::os::unix::fs::symlink("cowork.pem", new.join(format!("{hash:08x}.{number}")))
                .is_ok()
        });
        if number.is_none() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
    }
    let policies = new.join("policies/managed");
    std::fs::create_dir_all(&policies)?;
    let policy = serde_json::json!({ "CACertificates": [STANDARD.encode(authority)] });
    std::fs::write(policies.join("cowork.json"), policy.to_string())?;
    std::fs::create_dir(new.join("java"))?;
    let every = host.der.iter().map(Vec::as_slice).chain([authority]);
    std::fs::write(new.join("java/cacerts"), java(every))?;
    swap(&new, &about.join("certs"))
}

/// Puts what was made in its place, in one step, and removes what was there.
fn swap(new: &Path, there: &Path) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, there, RenameFlags::EXCHANGE) {
        Ok(()) => clear(new),
        Err(rustix::io::Errno::NOENT) => std::fs::rename(new, there),
        Err(errno) => Err(errno.into()),
    }
}

fn clear(path: &Path) -> io::Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A certificate as a text.
fn armoured(der: &[u8]) -> String {
    let coded = STANDARD.encode(der);
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = coded.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at_checked(64).unwrap_or((rest, ""));
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

/// A key store of Java's with certificates that are trusted.
fn java<'c>(certificates: impl Iterator<Item = &'c [u8]>) -> Vec<u8> {
    const MAGIC: u32 = 0xfeed_feed;
    const VERSION: u32 = 2;
    const TRUSTED: u32 = 2;
    let certificates: Vec<&[u8]> = certificates.collect();
    let mut store = Vec::new();
    let short = |text: &str| u16::try_from(text.len()).unwrap_or(0).to_be_bytes();
    let long = |length: usize| u32::try_from(length).unwrap_or(0).to_be_bytes();
    store.extend(MAGIC.to_be_bytes());
    store.extend(VERSION.to_be_bytes());
    store.extend(long(certificates.len()));
    for (index, certificate) in certificates.iter().enumerate() {
        let alias = format!("authority-{index}");
        store.extend(TRUSTED.to_be_bytes());
        store.extend(short(&alias));
        store.extend(alias.as_bytes());
        store.extend(0u64.to_be_bytes());
        store.extend(short("X.509"));
        store.extend(b"X.509");
        store.extend(long(certificate.len()));
        store.extend(*certificate);
    }
    let mut seal = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    for unit in JAVA_SEAL.encode_utf16() {
        seal.update(&unit.to_be_bytes());
    }
    seal.update(b"Mighty Aphrodite");
    seal.update(&store);
    store.extend(seal.finish().as_ref());
    store
}

#[cfg(test)]
mod tests {
    use super::{armoured, certificates, install, lay, taken};
    use std::path::Path;

    #[test]
    fn a_certificate_is_the_same_as_text() {
        let der: Vec<u8> = (0..=255).collect();
        let text = format!("# a comment\n{}\n{}", armoured(&der), armoured(b"other"));
        assert_eq!(certificates(text.as_bytes()), [der, b"other".to_vec()]);
    }

    #[test]
    fn what_is_made_for_a_session_is_not_taken_from_the_host() {
        let etc = cowork_testbed::Folder::new(cowork_testbed::Person::Root, "trust");
        for name in ["ca-bundle.crt", "ca-bundle.trust.crt", "java", "cowork.pem"] {
            etc.write(&format!("pki/tls/certs/{name}"), "");
        }
        assert_eq!(taken(etc.path()), ["ca-bundle.trust.crt"]);
        // Where there are both, a session sees this one.
        etc.write("ssl/certs/a.0", "");
        etc.write("ssl/certs/ca-certificates.crt", "");
        assert_eq!(taken(etc.path()), ["a.0"]);
    }

    #[test]
    fn link_and_folder_change_places() {
        let folder = cowork_testbed::Folder::new(cowork_testbed::Person::Root, "trust");
        let certs = folder.path().join("certs");
        lay(folder.path()).unwrap();
        assert_eq!(std::fs::read_link(&certs).unwrap(), Path::new(super::OF_HOST));
        for _ in 0..2 {
            install(folder.path(), b"no certificate").unwrap();
            assert!(std::fs::read(certs.join("java/cacerts")).unwrap().starts_with(b"\xfe\xed"));
            // Whichever file a host's programs read.
            for name in ["ca-certificates.crt", "ca-bundle.crt"] {
                let all = certificates(&std::fs::read(certs.join(name)).unwrap());
                assert_eq!(all.last().map(Vec::as_slice), Some(&b"no certificate"[..]), "{name}");
            }
        }
        lay(folder.path()).unwrap();
        assert!(std::fs::read_link(&certs).is_ok());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
