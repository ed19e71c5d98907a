//! Credentials that commands use without knowing them: secrets of the session's own.

use super::ground::{Ground, Kind, real};
use super::wrong;
use crate::failure::{Failure, note};
use cowork_client::types::{NewSecret, Raw, ReplacedFile, SessionSecret};
use cowork_policy::egress::rule::RuleParts;
use cowork_srt::domain::Domain;
use cowork_srt::settings::{Masked, Network, Unmatched};
use cowork_srt::{Issue, Settings, Wrong, mask, network, paths};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest file that is masked.
const MAX_FILE: u64 = 1024 * 1024;

/// What is masked, and what commands see instead.
#[derive(Clone, Debug, Default)]
pub(super) struct Masks {
    secrets: Vec<Secret>,
    /// Variables with what stands for their values; `None` for those that commands do not have.
    pub(super) variables: BTreeMap<String, Option<String>>,
    /// Files with what commands read in them.
    files: Vec<(PathBuf, String)>,
    /// Files that commands do not see after all.
    pub(super) hidden: Vec<PathBuf>,
}

#[derive(Clone)]
struct Secret {
    name: String,
    value: String,
    placeholder: String,
    /// The key of the setting.
    key: String,
    hosts: Option<Vec<Domain>>,
}

impl std::fmt::Debug for Secret {
    /// Without the value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Finds out what is masked.
pub(super) fn masks(settings: &Settings, ground: &Ground) -> Result<Masks, Failure> {
    let mut masks = Masks::default();
    for (name, masked) in &settings.credentials.masked_variables {
        // There is nothing to protect in a variable that is not there.
        let Ok(value) = std::env::var(name) else { continue };
        let shown = masks.mask(&value, masked, &format!("the variable `{name}`"))?;
        masks.variables.insert(name.clone(), shown);
    }
    for (entry, masked) in &settings.credentials.masked_files {
        let path = paths::meant(entry, ground.places()).path;
        let Some(found) = real(&path) else { continue };
        if found.kind == Kind::Folder {
            let sentence = "it is a folder: one file is masked; use the mode \"deny\"";
            return Err(issue(&masked.key, sentence));
        }
        let text = contents(&found.path)
            .map_err(|why| issue(&masked.key, &format!("`{}` {why}", found.path.display())))?;
        let what = format!("the file `{}`", found.path.display());
        match masks.mask(&text, masked, &what)? {
            Some(shown) if shown == text => {}
            Some(shown) => masks.files.push((found.path, shown)),
            None => masks.hidden.push(found.path),
        }
    }
    Ok(masks)
}

fn issue(key: &str, sentence: &str) -> Failure {
    wrong(&at(key, sentence))
}

fn at(key: &str, sentence: &str) -> Wrong {
    Wrong { issues: vec![Issue { key: key.to_owned(), sentence: sentence.to_owned() }] }
}

fn contents(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
    match read {
        Ok(length) if u64::try_from(length).is_ok_and(|length| length > MAX_FILE) => {
            Err("is larger than 1 MiB: use the mode \"deny\"".to_owned())
        }
        Ok(_) => Ok(text),
        Err(error) => Err(format!("cannot be masked: {error}")),
    }
}

impl Masks {
    /// What commands see of a text; `None` if they do not get it.
    fn mask(&mut self, text: &str, masked: &Masked, what: &str) -> Result<Option<String>, Failure> {
        let parts = mask::secrets(text, masked);
        if parts.is_empty() && masked.extract.is_some() {
            let sentence = format!("`extract` finds nothing in {what}");
            return match masked.unmatched {
                Unmatched::Warn => {
                    note(&format!("{}: {sentence}: it is not masked", masked.key));
                    Ok(Some(text.to_owned()))
                }
                Unmatched::Deny => Ok(None),
                Unmatched::Error => Err(issue(&masked.key, &sentence)),
            };
        }
        let mut placeholders: BTreeMap<&str, String> = BTreeMap::new();
        for part in &parts {
            let value = text.get(part.clone()).unwrap_or_default();
            if placeholders.contains_key(value) {
                continue;
            }
            if value.chars().any(char::is_control) {
                let sentence = format!(
                    "cowork cannot honour it: {what} is no single line; use `extract`, or the \
                     mode \"deny\""
                );
                return Err(issue(&masked.key, &sentence));
            }
            let placeholder = placeholder()?;
            self.secrets.push(Secret {
                name: format!("srt-{}", self.secrets.len() + 1),
                value: value.to_owned(),
                placeholder: placeholder.clone(),
                key: masked.key.clone(),
                hosts: masked.hosts.clone(),
            });
            placeholders.insert(value, placeholder);
        }
        let instead = |value: &str| placeholders.get(value).map_or("", String::as_str);
        Ok(Some(mask::replaced(text, &parts, instead)))
    }

    /// The secrets of the session.
    pub(super) fn secrets(&self) -> Vec<SessionSecret> {
        let secret = |secret: &Secret| SessionSecret {
            name: secret.name.clone(),
            placeholder: Some(secret.placeholder.clone()),
            secret: NewSecret { value: secret.value.clone(), ..NewSecret::default() },
        };
        self.secrets.iter().map(secret).collect()
    }

    /// Files with other contents.
    pub(super) fn replaced(&self) -> Vec<ReplacedFile> {
        let file = |(path, text): &(PathBuf, String)| ReplacedFile {
            path: crate::request::raw(path),
            contents: Raw::Text(text.clone()),
        };
        self.files.iter().map(file).collect()
    }

    /// The rules by which hosts get the secrets. A host gets one of them.
    pub(super) fn rules(&self, settings: &Network) -> Result<Vec<RuleParts>, Wrong> {
        let mut rules: Vec<RuleParts> = Vec::new();
        for secret in &self.secrets {
            let own = network::with_secret(settings, secret.hosts.as_deref(), &secret.name)
                .map_err(|sentence| at(&secret.key, &sentence))?;
            if let Some(twice) = own.iter().find(|own| rules.iter().any(|it| it.host == own.host)) {
                let sentence = format!(
                    "cowork cannot honour it: `{}` would get two masked values, and one is put \
                     into a request; divide the hosts with `injectHosts`",
                    twice.host.trim_end_matches(":*")
                );
                return Err(at(&secret.key, &sentence));
            }
            rules.extend(own);
        }
        Ok(rules)
    }
}

/// Stands for a value: it looks like srt's, and is worth nothing.
fn placeholder() -> Result<String, Failure> {
    let mut bytes = [0_u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Failure::host("cannot make up a placeholder", Some(errno.to_string())))?;
    let number = u128::from_ne_bytes(bytes);
    Ok(format!("fake_value_{number:032x}"))
}
