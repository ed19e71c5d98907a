//! Which names no command may change in a folder that it may write to.
//!
//! The rules are about names, wherever they are and whether they are there or not, so a file that is
//! made later is protected as well.

use crate::glob::{Step, escape};
use crate::paths::{Below, Meant, names};
use crate::read::Issue;
use cowork_api::files::{NamePolicy, NameRule, Rules};
use cowork_policy::files::Judge;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names of files that programs of the user act upon, at any depth.
pub const FILES: [&str; 9] = [
    ".gitconfig",
    ".gitmodules",
    ".bashrc",
    ".bash_profile",
    ".zshrc",
    ".zprofile",
    ".profile",
    ".ripgreprc",
    ".mcp.json",
];
/// The same for folders, with everything in them.
pub const FOLDERS: [&str; 4] = [".vscode", ".idea", ".claude/commands", ".claude/agents"];
/// What Git starts by itself. Examples are not started, and every new repository has them.
pub const HOOKS: [&str; 2] = [".git/hooks/!*.sample", ".git/modules/**/hooks/!*.sample"];

/// Told to whoever tries.
const MANDATORY: &str = "programs outside of the sandbox act upon this name";
/// Told to whoever tries.
const WRITTEN: &str = "the settings of srt deny writing it";

/// A name that may not be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Which names, as the rules about names write it.
    pub pattern: String,
    /// Why.
    pub reason: &'static str,
}

/// What a denial leaves of a folder that can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// All but these names.
    But(Vec<Name>),
    /// Nothing.
    Nothing,
}

/// Names that are denied in every folder.
pub fn mandatory() -> Vec<Name> {
    let patterns = FILES.iter().chain(&FOLDERS).chain(&HOOKS);
    patterns.map(|pattern| Name { pattern: (*pattern).to_owned(), reason: MANDATORY }).collect()
}

/// The configurations of all repositories, also of those that are made later.
pub fn every_configuration() -> Name {
    Name { pattern: ".git/config".to_owned(), reason: MANDATORY }
}

/// Whether a path below a folder has a name that is denied in every folder, or is the configuration
/// of a repository.
pub fn is_mandatory(below: &Path) -> bool {
    let names = mandatory().into_iter().chain([every_configuration()]).map(|name| NameRule {
        pattern: name.pattern,
        policy: NamePolicy::Deny,
        reason: name.reason.to_owned(),
    });
    let rules = Rules { names: names.collect(), ..Rules::default() };
    Judge::new(&rules).name(below.as_os_str().as_bytes()).policy == NamePolicy::Deny
}

/// One path below a folder that is denied, as `.git/config` of a repository that is there. `None`
/// if it is not below it, or has a name that is no text.
pub fn one(folder: &Path, path: &Path) -> Option<Name> {
    let pattern = anchored(path.strip_prefix(folder).ok()?)?;
    Some(Name { pattern, reason: MANDATORY })
}

/// What an entry of `denyWrite` leaves of a folder. It is told in the entry's name if it cannot be
/// said. `real` is the path it is with links followed, if it is there.
pub fn denied(folder: &Path, key: &str, meant: &Meant, real: Option<&Path>) -> Result<Left, Issue> {
    let mut names = Vec::new();
    for path in [Some(meant.path.as_path()), real].into_iter().flatten() {
        if folder.starts_with(path) {
            return Ok(Left::Nothing);
        }
        let Ok(below) = path.strip_prefix(folder) else { continue };
        let pattern = anchored(below).ok_or_else(|| {
            let sentence = "the path has names that are no text".to_owned();
            Issue { key: key.to_owned(), sentence }
        })?;
        names.push(Name { pattern, reason: WRITTEN });
    }
    if let Some(pattern) = &meant.pattern {
        match matched(folder, key, pattern)? {
            Left::Nothing => return Ok(Left::Nothing),
            Left::But(more) => names.extend(more),
        }
    }
    names.dedup();
    Ok(Left::But(names))
}

fn matched(folder: &Path, key: &str, below: &Below) -> Result<Left, Issue> {
    let wrong = |sentence: &str| Issue { key: key.to_owned(), sentence: sentence.to_owned() };
    let mut at = below.glob.start();
    let prefix = match (below.folder.strip_prefix(folder), folder.strip_prefix(&below.folder)) {
        (Ok(prefix), _) => prefix,
        (_, Ok(between)) => {
            let between =
                names(between).ok_or_else(|| wrong("a folder has a name that is no text"));
            for name in between? {
                match below.glob.follow(&at, name) {
                    Step::Matches => return Ok(Left::Nothing),
                    Step::Further(next) => at = next,
                    Step::Nothing => return Ok(Left::But(Vec::new())),
                }
            }
            Path::new("")
        }
        _ => return Ok(Left::But(Vec::new())),
    };
    let rest = below.glob.rest(&at);
    let rest = rest.ok_or_else(|| wrong("`**` stands between slashes, or at the end, alone"))?;
    let prefix = anchored(prefix).unwrap_or_default();
    let name = |text: String| Name { pattern: format!("{prefix}/{text}"), reason: WRITTEN };
    Ok(Left::But(rest.into_iter().map(name).collect()))
}

/// A path below a folder as the rules about names write it; nothing for the folder itself.
fn anchored(path: &Path) -> Option<String> {
    let mut text = String::new();
    for name in path.iter().filter(|name| *name != OsStr::new("/")) {
        text.push('/');
        name.to_str()?.chars().for_each(|c| escape(c, &mut text));
    }
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{Left, denied, mandatory, one};
    use crate::paths::{Places, meant};
    use crate::settings::{Entry, Spelling};
    use cowork_api::files::{NamePolicy, NameRule, Rules};
    use cowork_policy::files::Judge;
    use std::path::Path;

    fn here() -> Places<'static> {
        Places { home: Path::new("/home/ada"), here: Path::new("/home/ada/project") }
    }

    fn rules(names: Vec<super::Name>) -> Rules {
        let names = names.into_iter().map(|name| NameRule {
            pattern: name.pattern,
            policy: NamePolicy::Deny,
            reason: name.reason.to_owned(),
        });
        Rules { names: names.collect(), ..Rules::default() }
    }

    fn left(root: &str, text: &str) -> Left {
        let entry = Entry { key: "k".into(), text: text.into(), spelling: Spelling::Pattern };
        denied(Path::new(root), "k", &meant(&entry, here()), None).unwrap()
    }

    #[test]
    fn names_that_programs_act_upon_are_denied_at_any_depth() {
        let judge = rules(mandatory());
        let judge = Judge::new(&judge);
        for (path, is_denied) in [
            (".bashrc", true),
            ("a/b/c/d/e/f/.bashrc", true),
            (".BashRC", true),
            (".gitmodules", true),
            ("sub/.mcp.json", true),
            (".vscode/settings.json", true),
            ("a/.idea", true),
            (".claude/commands/x.md", true),
            (".claude/agents", true),
            (".claude/settings.json", false),
            (".git/hooks/pre-commit", true),
            ("a/b/.git/hooks/pre-commit", true),
            (".git/hooks/pre-commit.sample", false),
            (".git/hooks", false),
            (".git/config", false),
            (".git/modules/x/hooks/pre-commit", true),
            ("bashrc", false),
            ("src/main.rs", false),
        ] {
            let denied = judge.name(path.as_bytes()).policy == NamePolicy::Deny;
            assert_eq!(denied, is_denied, "{path}");
        }
    }

    #[test]
    fn a_denial_is_about_what_is_below_the_folder() {
        for (root, text, path, is_denied) in [
            ("/home/ada/project", "secret", "secret", true),
            ("/home/ada/project", "secret", "secret/deep", true),
            ("/home/ada/project", "secret", "other/secret", false),
            ("/home/ada/project", "/home/ada/other", "other", false),
            ("/home/ada", "secret", "project/secret", true),
            ("/home/ada", "secret", "secret", false),
            ("/home/ada/project", "*.lock", "x.lock", true),
            ("/home/ada/project", "*.lock", "a/x.lock", false),
            ("/home/ada/project", "**/*.lock", "a/b/x.lock", true),
            ("/home/ada/project", "~/**/*.lock", "a/x.lock", true),
            ("/home/ada/project", "~/*/*.lock", "x.lock", true),
            ("/home/ada/project", "~/*/*.lock", "a/x.lock", false),
            ("/home/ada/project", "~/other/*.lock", "x.lock", false),
            ("/home/ada", "*.lock", "project/x.lock", true),
            ("/home/ada", "*.lock", "x.lock", false),
            ("/home/ada/project", "a[b", "a[b", true),
        ] {
            let Left::But(names) = left(root, text) else { panic!("{root} {text}: nothing left") };
            let rules = rules(names);
            let denied = Judge::new(&rules).name(path.as_bytes()).policy == NamePolicy::Deny;
            assert_eq!(denied, is_denied, "{root} {text} {path}");
        }
    }

    #[test]
    fn a_denial_of_what_is_above_leaves_nothing() {
        for text in [".", "~", "/", "/home/**", "~/proj*", "/**/project", "/**"] {
            assert_eq!(left("/home/ada/project", text), Left::Nothing, "{text}");
        }
        let entry = Entry { key: "k".into(), text: "a**b".into(), spelling: Spelling::Pattern };
        let error = denied(here().here, "k", &meant(&entry, here()), None).unwrap_err();
        assert_eq!(error.to_string(), "k: `**` stands between slashes, or at the end, alone");
    }

    #[test]
    fn files_that_are_named_have_mandatory_names_too() {
        for (path, is_one) in [
            (".bashrc", true),
            ("a/.git/config", true),
            (".vscode/tasks.json", true),
            ("bashrc", false),
        ] {
            assert_eq!(super::is_mandatory(Path::new(path)), is_one, "{path}");
        }
    }

    #[test]
    fn single_paths_are_escaped() {
        let name = one(Path::new("/a"), Path::new("/a/b*c/.git/config")).unwrap();
        assert_eq!(name.pattern, "/b\\*c/.git/config");
        assert_eq!(one(Path::new("/a"), Path::new("/b")), None);
    }
}
