//! What a user asks for where changes are recorded, as rules.

use crate::session::doc;
use crate::trouble::Trouble;
use cowork_api::Text;
use cowork_api::files::{Beyond, Rules};
use cowork_client::types::{Raw, WantedWrites};
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
    if let Some(removals) = writes.guards.removals {
        rules.guards.removals = Some(removals).filter(|removals| *removals > 0);
    }
    if let Some(share) = writes.guards.share {
        if share > 100 {
            return Err(bad("a share of the folder has at most 100 percent"));
        }
        rules.guards.share = Some(share).filter(|share| *share > 0);
    }
    if let Some(file) = &writes.caps.file {
        rules.caps.file = bytes(file)?;
    }
    if let Some(session) = &writes.caps.session {
        rules.caps.session = bytes(session)?;
    }
    if let Some(ask) = writes.caps.ask {
        rules.caps.beyond = if ask { Beyond::Ask } else { Beyond::Mark };
    }
    if let Some(quota) = &writes.quota.bytes {
        rules.quota.bytes = Some(bytes(quota)?);
    }
    if let Some(files) = writes.quota.files {
        rules.quota.files = Some(files);
    }
    if let Some(blocked) = &writes.blocked {
        if blocked.len() > MAX_BLOCKED {
            return Err(bad(format!("at most {MAX_BLOCKED} endings of names can be refused")));
        }
        let endings = blocked.iter().map(|text| ending(text));
        rules.blocked = endings.collect::<Result<_, _>>()?;
        // Who wants no names refused wants no contents refused either.
        rules.blocked_contents &= !rules.blocked.is_empty();
    }
    Ok(())
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

fn ending(text: &str) -> Result<String, Trouble> {
    cowork_policy::files::ending(text).map_err(|error| bad(error.to_string()))
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
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            r#"{"caps":{"file":"much"}}"#,
            r#"{"quota":{"bytes":"-1"}}"#,
            r#"{"guards":{"share":101}}"#,
            r#"{"blocked":["a/b"]}"#,
        ] {
            assert!(check(&wanted(text)).is_err(), "{text}");
        }
        for path in ["/etc", "..", "a/../..", ""] {
            assert!(subfolders(&[Raw::new(path)]).is_err(), "{path}");
        }
        assert_eq!(subfolders(&[Raw::new("a/node_modules")]).unwrap(), [b"a/node_modules"]);
    }
}
