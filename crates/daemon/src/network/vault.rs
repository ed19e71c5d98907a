//! The file with the values of secrets: sealed, so that a copy of it alone tells nothing.
//!
//! The key lies in the kernel's keyring of the user and, so that it outlives a restart of the host,
//! in a file of its own that only the user can read. This protects a copy of the sealed file that comes
//! without the key, not one of the whole folder. It does not protect from a process of the same user, nor from
//! root: either can ask for what the daemon can.

use crate::trouble::Trouble;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::ffi::CString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What the file begins with.
const MAGIC: &[u8] = b"cowork secrets 1\n";

/// Where sealed values are.
#[derive(Debug)]
pub(crate) struct Vault {
    file: PathBuf,
    key_file: PathBuf,
    /// What the key is called in the keyring.
    name: CString,
}

/// A key, and where it is kept.
struct Key {
    bytes: [u8; 32],
    in_keyring: bool,
}

impl Vault {
    /// The vault in a state folder.
    pub(crate) fn new(state: &Path) -> Self {
        let name = [b"cowork: ", state.as_os_str().as_bytes()].concat();
        Self {
            file: state.join("secrets"),
            key_file: state.join("secrets.key"),
            name: CString::new(name).unwrap_or_default(),
        }
    }

    /// What is kept; nothing if there never was anything.
    pub(crate) fn open(&self) -> Result<Option<Vec<u8>>, Trouble> {
        let sealed = match std::fs::read(&self.file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| Trouble::host("the secrets cannot be read", error))?,
        };
        let rest =
            sealed.strip_prefix(MAGIC).and_then(|rest| rest.split_first_chunk::<NONCE_LEN>());
        let (nonce, text) = rest.ok_or_else(|| damaged("it does not begin as it should"))?;
        for key in [self.key_in_keyring(), self.key_in_file()].into_iter().flatten() {
            let mut text = text.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            if let Some(key) = cipher(&key)
                && let Ok(opened) = key.open_in_place(nonce, Aad::from(MAGIC), &mut text)
            {
                return Ok(Some(opened.to_vec()));
            }
        }
        Err(damaged("no key fits it"))
    }

    /// Keeps `text` in place of what was kept; whether the key is in the keyring.
    pub(crate) fn seal(&self, text: &[u8]) -> Result<bool, Trouble> {
        let failed = |error: std::io::Error| Trouble::of_disk("the secrets cannot be kept", &error);
        let key = self.key()?;
        let mut nonce = [0; NONCE_LEN];
        random(&mut nonce)?;
        let mut sealed = text.to_vec();
        let cipher = cipher(&key.bytes).ok_or_else(|| damaged("the key does not fit"))?;
        cipher
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(MAGIC),
                &mut sealed,
            )
            .map_err(|error| Trouble::host("the secrets cannot be sealed", error))?;
        let all = [MAGIC, &nonce, &sealed].concat();
        write_private(&self.file, &all).map_err(failed)?;
        Ok(key.in_keyring)
    }

    /// Where values are, and where the key is, in words.
    pub(crate) fn describe(&self) -> &'static str {
        match (self.key_in_keyring().is_some(), self.key_in_file().is_some()) {
            (true, true) => "sealed file; key in the kernel's keyring and a 0600 file",
            (true, false) => "sealed file; key in the kernel's keyring",
            (false, true) => "sealed file; key in a 0600 file",
            (false, false) => "sealed file; its key is missing",
        }
    }

    fn key_in_keyring(&self) -> Option<[u8; 32]> {
        cowork_sys::keyring::kept(&self.name).ok()
    }

    fn key_in_file(&self) -> Option<[u8; 32]> {
        std::fs::read(&self.key_file).ok()?.try_into().ok()
    }

    /// The key; made if there is none. The file and the keyring have the same one afterwards.
    fn key(&self) -> Result<Key, Trouble> {
        let known = self.key_in_file().or_else(|| self.key_in_keyring());
        let mut bytes = known.unwrap_or_default();
        if known.is_none() {
            random(&mut bytes)?;
        }
        if self.key_in_file().is_none() {
            write_private(&self.key_file, &bytes).map_err(|error| {
                Trouble::of_disk("the key of the secrets cannot be kept", &error)
            })?;
        }
        let in_keyring = cowork_sys::keyring::keep(&self.name, &bytes).is_ok();
        Ok(Key { bytes, in_keyring })
    }
}

fn cipher(key: &[u8; 32]) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new)
}

fn damaged(why: &str) -> Trouble {
    Trouble::host("the file with the secrets cannot be opened", why)
        .with_hint("remove `secrets` from the state folder, and set them again")
}

/// Fills bytes with what nobody can guess.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), Trouble> {
    let got = rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty());
    got.map(drop).map_err(|errno| Trouble::host("the kernel gives no random bytes", errno))
}

/// Replaces a file whole, for this user alone.
fn write_private(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    cowork_sys::ignore(rustix::fs::unlink(&new));
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(contents)?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::Vault;
    use cowork_testbed::{Folder, Person};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_sealed_is_opened_and_not_readable_otherwise() {
        let folder = Folder::new(Person::Root, "vault");
        let vault = Vault::new(folder.path());
        assert!(vault.open().unwrap().is_none());
        assert_eq!(vault.describe(), "sealed file; its key is missing");
        for text in ["a secret value", "another value"] {
            vault.seal(text.as_bytes()).unwrap();
            assert_eq!(vault.open().unwrap().unwrap(), text.as_bytes());
        }
        for name in ["secrets", "secrets.key"] {
            let path = folder.path().join(name);
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
            let bytes = std::fs::read(path).unwrap();
            assert!(!bytes.windows(5).any(|part| part == b"value"), "{name}");
        }
        let both = vault.describe();
        assert!(
            both.starts_with("sealed file; key in ") && both.ends_with("a 0600 file"),
            "{both}"
        );
        std::fs::remove_file(folder.path().join("secrets.key")).unwrap();
        let without = vault.describe();
        assert_eq!(without.contains("keyring"), both.contains("keyring"), "{without}");
        assert!(!without.contains("0600"), "{without}");
    }

    #[test]
    fn what_was_changed_is_refused() {
        let folder = Folder::new(Person::Root, "vault");
        let vault = Vault::new(folder.path());
        vault.seal(b"a secret value").unwrap();
        let path = folder.path().join("secrets");
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert!(vault.open().is_err());
    }
}
