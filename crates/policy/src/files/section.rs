//! The part `[files]` of a policy file.
//!
//! ```toml
//! [files]
//! ask = [".github/workflows/**", { pattern = "*.kdbx", reason = "it holds passwords" }]
//! allow = [".envrc"]
//! block = ["zip"]
//! unblock = ["jar"]
//! contents = false
//! guards = { removals = 500, share = "off" }
//! caps = { file = "64M", session = "1G", beyond = "ask" }
//! quota = { bytes = "2G", files = 10000 }
//! ```

use super::ending;
use super::rules::{Setting, Settings, name_rule};
use crate::Bytes;
use cowork_api::files::{Beyond, NamePolicy};
use serde::Deserialize;
use toml::Spanned;

/// What is written there.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Section {
    allow: Vec<Spanned<Names>>,
    flag: Vec<Spanned<Names>>,
    ask: Vec<Spanned<Names>>,
    deny: Vec<Spanned<Names>>,
    block: Vec<Spanned<String>>,
    unblock: Vec<Spanned<String>>,
    contents: Option<bool>,
    guards: Guards,
    caps: Caps,
    quota: Quota,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "names are a pattern, or { pattern = \"…\", reason = \"…\" }")]
enum Names {
    Pattern(String),
    Reasoned(Reasoned),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reasoned {
    pattern: String,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Guards {
    removals: Option<Spanned<Count>>,
    share: Option<Spanned<Count>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Caps {
    file: Option<Spanned<String>>,
    session: Option<Spanned<String>>,
    beyond: Option<BeyondWord>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Quota {
    bytes: Option<Spanned<String>>,
    files: Option<Spanned<Count>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a limit is a number, or \"off\"")]
enum Count {
    Number(u64),
    Word(Off),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Off {
    Off,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BeyondWord {
    Mark,
    Ask,
}

/// What is wrong with a value.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// The byte that it starts at.
    pub(crate) at: usize,
    /// Its key.
    pub(crate) key: &'static str,
    /// What is wrong with it.
    pub(crate) sentence: String,
}

impl Section {
    /// What the user says.
    pub(crate) fn settings(self) -> Result<Settings, Wrong> {
        let Self { allow, flag, ask, deny, block, unblock, contents, guards, caps, quota } = self;
        let mut names = Vec::new();
        for (key, policy, list) in [
            ("allow", NamePolicy::Allow, allow),
            ("flag", NamePolicy::Flag, flag),
            ("ask", NamePolicy::Ask, ask),
            ("deny", NamePolicy::Deny, deny),
        ] {
            for entry in &list {
                let (pattern, reason) = match entry.get_ref() {
                    Names::Pattern(pattern) => (pattern, None),
                    Names::Reasoned(entry) => (&entry.pattern, entry.reason.as_deref()),
                };
                let rule = name_rule(pattern, policy, reason);
                names.push(rule.map_err(|error| wrong(entry, key, &error))?);
            }
        }
        Ok(Settings {
            names,
            block: endings(&block, "block")?,
            unblock: endings(&unblock, "unblock")?,
            contents,
            removals: count(guards.removals.as_ref(), "removals", u64::from(u32::MAX))?,
            share: count(guards.share.as_ref(), "share", 100)?,
            file_cap: caps.file.as_ref().map(|text| size(text, "file")).transpose()?,
            session_cap: caps.session.as_ref().map(|text| size(text, "session")).transpose()?,
            beyond: caps.beyond.map(|word| match word {
                BeyondWord::Mark => Beyond::Mark,
                BeyondWord::Ask => Beyond::Ask,
            }),
            bytes: match &quota.bytes {
                None => Setting::Unsaid,
                Some(text) if text.get_ref() == "off" => Setting::Off,
                Some(text) => Setting::To(size(text, "bytes")?),
            },
            files: count(quota.files.as_ref(), "files", u64::MAX)?,
        })
    }
}

fn wrong<T>(entry: &Spanned<T>, key: &'static str, error: &impl ToString) -> Wrong {
    Wrong { at: entry.span().start, key, sentence: error.to_string() }
}

fn endings(list: &[Spanned<String>], key: &'static str) -> Result<Vec<String>, Wrong> {
    let read =
        |text: &Spanned<String>| ending(text.get_ref()).map_err(|error| wrong(text, key, &error));
    list.iter().map(read).collect()
}

fn size(text: &Spanned<String>, key: &'static str) -> Result<u64, Wrong> {
    let bytes = text.get_ref().parse::<Bytes>();
    bytes.map(Bytes::get).map_err(|error| wrong(text, key, &error))
}

fn count<T: TryFrom<u64>>(
    entry: Option<&Spanned<Count>>,
    key: &'static str,
    most: u64,
) -> Result<Setting<T>, Wrong> {
    let Some(entry) = entry else { return Ok(Setting::Unsaid) };
    let number = match entry.get_ref() {
        Count::Word(Off::Off) => return Ok(Setting::Off),
        Count::Number(number) => *number,
    };
    let fits = (1..=most).contains(&number).then(|| T::try_from(number).ok()).flatten();
    let sentence = || format!("`{key}` is a number from 1 to {most}, or \"off\"");
    fits.map(Setting::To).ok_or_else(|| wrong(entry, key, &sentence()))
}

#[cfg(test)]
mod tests {
    use crate::egress::file::parse;
    use crate::files::{Setting, Settings, name_rule};
    use cowork_api::files::{Beyond, NamePolicy};

    const WHOLE: &str = r#"
[egress]
default = "ask"

[files]
ask = [".github/workflows/**", { pattern = "*.kdbx", reason = "it holds passwords" }]
allow = [".envrc"]
deny = ["/secret"]
block = [".Zip"]
unblock = ["jar"]
contents = false
guards = { removals = 500, share = "off" }
caps = { file = "64M", session = "1G", beyond = "ask" }
quota = { bytes = "2G", files = 10000 }
"#;

    #[test]
    fn a_whole_section_is_understood() {
        let rule = |pattern, policy, reason| name_rule(pattern, policy, reason).unwrap();
        let expected = Settings {
            names: vec![
                rule(".envrc", NamePolicy::Allow, None),
                rule(".github/workflows/**", NamePolicy::Ask, None),
                rule("*.kdbx", NamePolicy::Ask, Some("it holds passwords")),
                rule("/secret", NamePolicy::Deny, None),
            ],
            block: vec!["zip".to_owned()],
            unblock: vec!["jar".to_owned()],
            contents: Some(false),
            removals: Setting::To(500),
            share: Setting::Off,
            file_cap: Some(64 << 20),
            session_cap: Some(1 << 30),
            beyond: Some(Beyond::Ask),
            bytes: Setting::To(2 << 30),
            files: Setting::To(10000),
        };
        assert_eq!(parse(WHOLE).unwrap().files, expected);
        assert_eq!(parse("[egress]\n").unwrap().files, Settings::default());
        assert_eq!(parse("[files.quota]\nbytes = \"off\"").unwrap().files.bytes, Setting::Off);
    }

    #[test]
    fn what_is_wrong_is_shown_with_its_line() {
        for (text, expected) in [
            (
                "[files]\nask = [\n  \"a\",\n  \"a//b\",\n]",
                "line 4, `ask`: pattern `a//b` has nothing between two slashes",
            ),
            (
                "[files]\ndeny = [{ pattern = \"a\", reason = \"\" }]",
                "line 2, `deny`: the reason must be one line of at most 200 bytes",
            ),
            (
                "[files]\nask = [{ name = \"a\" }]",
                "line 2, `ask`: names are a pattern, or { pattern = \"…\", reason = \"…\" }",
            ),
            (
                "[files]\nblock = [\"a/b\"]",
                "line 2, `block`: `a/b` is no ending of names: write letters, digits, `-` and \
                 `_`, e.g. `exe`; at most 32 of them",
            ),
            (
                "[files.guards]\nshare = 101",
                "line 2, `share`: `share` is a number from 1 to 100, or \"off\"",
            ),
            (
                "[files.guards]\nremovals = 0",
                "line 2, `removals`: `removals` is a number from 1 to 4294967295, or \"off\"",
            ),
            (
                "[files.guards]\nremovals = \"never\"",
                "line 2, `removals`: a limit is a number, or \"off\"",
            ),
            (
                "[files.caps]\nfile = \"many\"",
                "line 2, `file`: `many` is not a size: write a whole number and K, M, G or T, \
                 e.g. `512M`",
            ),
        ] {
            let error = parse(text).map_err(|error| error.to_string());
            assert_eq!(error, Err(expected.to_owned()), "{text}");
        }
        assert!(parse("[files]\nprotect = []").unwrap_err().to_string().starts_with("line 2"));
    }
}
