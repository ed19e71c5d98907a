//! What other settings say about names that may not be written, as the part `[files]` of a policy.
//!
//! A rule of a policy holds in every granted folder, counted from its root. So where settings let
//! several folders be written, a denial in one of them holds in all: more is denied, never less.

use super::{comment, quoted};
use crate::paths::{Places, meant};
use crate::settings::{Entry, GitConfig};
use crate::writes::{self, Left, Name};
use cowork_api::files::NamePolicy;
use cowork_policy::files::name_rule;
use std::path::{Path, PathBuf};

/// Told to whoever tries.
const DENIED: &str = "the imported settings deny writing it";

/// Writes the part `[files]`: what is denied, the names that are denied everywhere, and what is to be
/// said about the rest.
pub(super) fn write(
    text: &mut String,
    writable: &[Entry],
    denied: &[Entry],
    git_config: GitConfig,
    places: Places<'_>,
) {
    let plain = writable.iter().filter(|entry| !entry.is_pattern());
    let mut roots: Vec<PathBuf> = plain.map(|entry| meant(entry, places).path).collect();
    if roots.is_empty() {
        roots.push(places.here.to_path_buf());
    }
    let mut names = Vec::new();
    for entry in denied {
        for (at, root) in roots.iter().enumerate() {
            match denial(root, entry, places) {
                Ok(found) => names.extend(found),
                // Whatever the folder, it is the same that cannot be said.
                Err(Unsaid::Pattern(_)) if at > 0 => {}
                Err(unsaid) => {
                    comment(
                        text,
                        &entry.key,
                        std::slice::from_ref(&entry.text),
                        &unsaid.sentence(root),
                    );
                }
            }
        }
    }
    names.extend(writes::mandatory());
    let mut seen = Vec::new();
    text.push_str("\n[files]\ndeny = [\n");
    for Name { pattern, reason } in names {
        if !seen.contains(&pattern) {
            rule(text, &pattern, reason);
            seen.push(pattern);
        }
    }
    text.push_str("]\n");
    configurations(text, git_config);
}

/// Why a denial is no rule.
enum Unsaid {
    /// It is about the folder itself.
    Whole,
    /// No rule can be written so.
    Pattern(String),
}

impl Unsaid {
    fn sentence(&self, root: &Path) -> String {
        match self {
            Self::Whole => {
                let root = root.display().to_string().escape_debug().to_string();
                format!("Nothing of `{root}` may be written: grant it with `--grant PATH:ro`.")
            }
            Self::Pattern(why) => format!("It is no rule about names: {why}."),
        }
    }
}

/// The names below a folder that an entry denies.
fn denial(root: &Path, entry: &Entry, places: Places<'_>) -> Result<Vec<Name>, Unsaid> {
    let left = writes::denied(root, &entry.key, &meant(entry, places), None);
    let names = match left.map_err(|issue| Unsaid::Pattern(issue.sentence))? {
        Left::Nothing => return Err(Unsaid::Whole),
        Left::But(names) => names,
    };
    for Name { pattern, .. } in &names {
        let checked = name_rule(pattern, NamePolicy::Deny, Some(DENIED));
        checked.map_err(|error| Unsaid::Pattern(error.to_string()))?;
    }
    Ok(names.into_iter().map(|name| Name { reason: DENIED, ..name }).collect())
}

fn rule(text: &mut String, pattern: &str, reason: &str) {
    let (pattern, reason) = (quoted(pattern), quoted(reason));
    for part in ["    { pattern = ", &pattern, ", reason = ", &reason, " },\n"] {
        text.push_str(part);
    }
}

/// What is to be said about repositories: srt tells those that are there from new ones.
fn configurations(text: &mut String, git_config: GitConfig) {
    match git_config {
        GitConfig::Kept => {
            let Name { pattern, reason } = writes::every_configuration();
            text.push_str(
                "# A new repository has a configuration too, so this one is asked about.\n",
            );
            text.push_str("ask = [\n");
            rule(text, &pattern, reason);
            text.push_str("]\n");
        }
        GitConfig::Writable => comment(
            text,
            "filesystem.allowGitConfig",
            &["true".to_owned()],
            "Configurations of repositories can be changed, and `cowork changes` marks them.",
        ),
    }
    text.push_str(
        "# No rule is about a `.git` that is a file alone: changes of one are recorded, and can be \
         undone.\n",
    );
}
