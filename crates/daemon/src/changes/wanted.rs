//! What a user asks for where changes are recorded, as rules.

use crate::session::doc;
use crate::trouble::Trouble;
use cowork_api::Text;
use cowork_api::files::{Beyond, Rules};
use cowork_client::types::{Raw, WantedWrites};
use cowork_policy::files::{self, Setting, Settings};
use cowork_policy::{Bytes, RelativePath};
use std::os::unix::ffi::OsStrExt;

/// Most endings of names that are refused.
const MAX_BLOCKED: usize = 1000;
/// Most folders of a grant that are writable without a record.
const MAX_DIRECT: usize = 64;

/// Refuses what makes no sense.
pub(crate) fn check(writes: &WantedWrites) -> Result<(), Trouble> {
    apply(&mut Rules::default(), writes)
}

/// Puts what was asked for in place of what is usual.
pub(super) fn apply(rules: &mut Rules, writes: &WantedWrites) -> Result<(), Trouble> {
    if writes.guards.share.is_some_and(|share| share > 100) {
        return Err(bad("a share of the folder has at most 100 percent"));
    }
    for endings in [writes.blocked.as_ref(), Some(&writes.block), Some(&writes.unblock)] {
        if endings.is_some_and(|endings| endings.len() > MAX_BLOCKED) {
            return Err(bad(format!("at most {MAX_BLOCKED} endings of names can be refused")));
        }
    }
    if let Some(blocked) = &writes.blocked {
        let endings = blocked.iter().map(|text| files::ending(text));
        let endings: Result<_, _> = endings.collect();
        rules.blocked = endings.map_err(|error| bad(error.to_string()))?;
        // Who wants no names refused wants no contents refused either.
        rules.blocked_contents &= !rules.blocked.is_empty();
    }
    *rules = files::merge(rules, &settings(writes)?).map_err(|error| bad(error.to_string()))?;
    Ok(())
}

/// What is laid over the rules, apart from a list of endings that replaces the usual one.
fn settings(writes: &WantedWrites) -> Result<Settings, Trouble> {
    let WantedWrites { guards, caps, quota, blocked: _, block, unblock, contents } = writes;
    let cap = |text: &Option<String>| text.as_deref().map(bytes).transpose();
    Ok(Settings {
        names: Vec::new(),
        block: block.clone(),
        unblock: unblock.clone(),
        contents: *contents,
        removals: limit(guards.removals),
        share: limit(guards.share),
        file_cap: cap(&caps.file)?,
        session_cap: cap(&caps.session)?,
        beyond: caps.ask.map(|ask| if ask { Beyond::Ask } else { Beyond::Mark }),
        bytes: cap(&quota.bytes)?.map_or(Setting::Unsaid, Setting::To),
        files: quota.files.map_or(Setting::Unsaid, Setting::To),
    })
}

/// A guard's limit, of which 0 means that there is none.
fn limit<T: Default + PartialEq>(number: Option<T>) -> Setting<T> {
    match number {
        None => Setting::Unsaid,
        Some(number) if number == T::default() => Setting::Off,
        Some(number) => Setting::To(number),
    }
}

/// Folders below a granted one, checked.
pub(crate) fn subfolders(direct: &[Raw]) -> Result<Vec<Text>, Trouble> {
    if direct.len() > MAX_DIRECT {
        let sentence = format!("a grant has at most {MAX_DIRECT} folders without a record");
        return Err(Trouble::refused("bad-path", sentence));
    }
    let below = |raw: &Raw| {
        let path = doc::path(raw)?;
        let relative = RelativePath::new(&path).ok().filter(|relative| !relative.is_empty());
        let relative = relative.ok_or_else(|| {
            let sentence = format!("`{}` is no folder below the granted one", path.display());
            Trouble::refused("bad-path", sentence).with_hint("write it as `node_modules`")
        })?;
        Ok(relative.as_path().as_os_str().as_bytes().to_vec())
    };
    direct.iter().map(below).collect()
}

fn bytes(text: &str) -> Result<u64, Trouble> {
    let bytes: Result<Bytes, _> = text.parse();
    bytes.map(Bytes::get).map_err(|error| bad(error.to_string()))
}

fn bad(sentence: impl Into<String>) -> Trouble {
    Trouble::refused("bad-limit", sentence)
}

#[cfg(test)]
mod tests {
    use super::{apply, check, subfolders};
    use cowork_api::files::{Beyond, Rules};
    use cowork_client::types::{Raw, WantedWrites};

    fn wanted(text: &str) -> WantedWrites {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_is_named_is_put_in_place() {
        let mut rules = Rules::default();
        rules.guards.removals = Some(50);
        rules.guards.share = Some(50);
        rules.blocked = vec!["exe".into()];
        let text = r#"{"guards":{"removals":0},"caps":{"file":"1M","ask":true},
                       "quota":{"bytes":"2G","files":7},"blocked":["MSI"]}"#;
        apply(&mut rules, &wanted(text)).unwrap();
        assert_eq!((rules.guards.removals, rules.guards.share), (None, Some(50)));
        assert_eq!((rules.caps.file, rules.caps.beyond), (1 << 20, Beyond::Ask));
        assert_eq!((rules.quota.bytes, rules.quota.files), (Some(2 << 30), Some(7)));
        assert_eq!(rules.blocked, ["msi"]);
        rules.blocked_contents = true;
        let text = r#"{"block":["zip",".JAR"],"unblock":["msi"],"contents":false}"#;
        apply(&mut rules, &wanted(text)).unwrap();
        assert_eq!(
            (rules.blocked, rules.blocked_contents),
            (vec!["zip".into(), "jar".into()], false)
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            r#"{"caps":{"file":"much"}}"#,
            r#"{"quota":{"bytes":"-1"}}"#,
            r#"{"guards":{"share":101}}"#,
            r#"{"blocked":["a/b"]}"#,
            r#"{"block":["a/b"]}"#,
            r#"{"unblock":[""]}"#,
        ] {
            assert!(check(&wanted(text)).is_err(), "{text}");
        }
        for path in ["/etc", "..", "a/../..", ""] {
            assert!(subfolders(&[Raw::new(path)]).is_err(), "{path}");
        }
        assert_eq!(subfolders(&[Raw::new("a/node_modules")]).unwrap(), [b"a/node_modules"]);
    }
}
