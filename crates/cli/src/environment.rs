//! What of the caller's surroundings a command gets: variables and the mask of new files.

use crate::failure::Failure;
use cowork_client::types::Raw;
use cowork_policy::{SessionId, plan};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Names and values of variables.
pub(crate) type Variables = Vec<(Vec<u8>, Vec<u8>)>;

/// The variables that the user named, from the option's values.
pub(crate) fn named(values: &[OsString]) -> Result<Variables, Failure> {
    let mut named = Vec::new();
    for value in values {
        let bytes = value.as_bytes();
        let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) => {
                let (name, value) = bytes.split_at(at);
                (name.to_vec(), value.get(1..).unwrap_or_default().to_vec())
            }
            None => match std::env::var_os(value) {
                Some(found) => (bytes.to_vec(), found.into_vec()),
                None => {
                    return Err(Failure::input(
                        format!("there is no variable `{}` to pass", value.to_string_lossy()),
                        "set it first, or give its value: `--env NAME=VALUE`",
                    ));
                }
            },
        };
        if name.is_empty() {
            let sentence = "a variable needs a name before the `=`";
            return Err(Failure::input(sentence, "write `--env NAME=VALUE`"));
        }
        named.push((name, value));
    }
    Ok(named)
}

/// The same with those of the caller's that say how output should look, for the daemon.
pub(crate) fn for_daemon(values: &[OsString]) -> Result<BTreeMap<String, Raw>, Failure> {
    let mut variables = BTreeMap::new();
    for (name, value) in passed().into_iter().chain(named(values)?) {
        let name = String::from_utf8(name).map_err(|error| {
            let name = String::from_utf8_lossy(error.as_bytes()).into_owned();
            Failure::input(format!("the name of the variable `{name}` is not UTF-8"), "")
        })?;
        variables.insert(name, Raw::new(value));
    }
    Ok(variables)
}

/// What the caller's variables change about the environment of a session.
fn passed() -> Variables {
    let any = SessionId::from_entropy(0);
    let caller = std::env::vars_os().map(|(name, value)| (name.into_vec(), value.into_vec()));
    let usual = plan::environment(&any, [], []);
    let with_caller = plan::environment(&any, caller, []);
    let changed = with_caller.into_iter().filter(|variable| !usual.contains(variable));
    changed
        .filter_map(|variable| {
            let at = variable.iter().position(|byte| *byte == b'=')?;
            Some((variable.get(..at)?.to_vec(), variable.get(at + 1..)?.to_vec()))
        })
        .collect()
}

/// This process's mask, which can only be read by setting it.
pub(crate) fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.bits()
}
