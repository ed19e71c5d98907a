//! From the text of a definition to an agent.

use crate::check::{self, Wrong};
use crate::{
    Additions, Agent, Choice, Credential, Install, Need, Network, Place, Profile, Program,
    Protocol, SettingsFile, Task,
};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Longest definition, in bytes.
pub const MAX_DEFINITION: usize = 64 * 1024;
/// Most items of a list.
const MAX_ITEMS: usize = 64;

/// Why a text is no definition of an agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// It has too many bytes.
    #[error("a definition has at most {MAX_DEFINITION} bytes")]
    TooLong,
    /// It is not TOML, or has keys that no definition has.
    #[error("{0}")]
    Syntax(String),
    /// The value of a key is none.
    #[error("`{key}` {reason}")]
    Key {
        /// The key, with those above it.
        key: String,
        /// What it must be.
        reason: &'static str,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    about: String,
    #[serde(default)]
    profile: WrittenProfile,
    #[serde(default)]
    arguments: Vec<String>,
    program: WrittenProgram,
    install: Option<WrittenInstall>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    strict: WrittenAdditions,
    #[serde(default)]
    nested: WrittenAdditions,
    #[serde(default)]
    network: WrittenNetwork,
    #[serde(default)]
    credential: Vec<WrittenCredential>,
    #[serde(default)]
    file: Vec<WrittenFile>,
    task: Option<WrittenTask>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenProfile {
    #[default]
    Strict,
    Nested,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenProgram {
    names: Vec<String>,
    #[serde(default)]
    places: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenInstall {
    npm: String,
    version: String,
    platform: Option<String>,
    source: Option<String>,
    program: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenAdditions {
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenNetwork {
    presets: Vec<String>,
    hosts: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCredential {
    secret: String,
    about: String,
    variable: String,
    hosts: Vec<String>,
    #[serde(default)]
    optional: bool,
    #[serde(default, rename = "or")]
    others: Vec<WrittenChoice>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenChoice {
    secret: String,
    about: String,
    variable: String,
    hosts: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFile {
    #[serde(default)]
    place: WrittenPlace,
    path: String,
    text: String,
    profile: Option<WrittenProfile>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenPlace {
    #[default]
    Settings,
    Home,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTask {
    kind: WrittenProtocol,
    #[serde(default)]
    arguments: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WrittenProtocol {
    ClaudeStreamJson,
    CodexExecJson,
    Plain,
}

/// Reads a definition.
pub fn parse(text: &str) -> Result<Agent, AgentError> {
    if text.len() > MAX_DEFINITION {
        return Err(AgentError::TooLong);
    }
    let written: Written = toml::from_str(text).map_err(|error| {
        let line = error.span().and_then(|span| text.get(..span.start));
        let line = line.map_or(1, |before| before.matches('\n').count() + 1);
        AgentError::Syntax(format!("line {line}: {}", error.message().trim().replace('\n', ", ")))
    })?;
    check_all(&written)?;
    Ok(agent(written))
}

fn at(key: &str, checked: Wrong) -> Result<(), AgentError> {
    checked.map_err(|reason| AgentError::Key { key: key.to_owned(), reason })
}

fn each(key: &str, items: &[String], check: fn(&str) -> Wrong) -> Result<(), AgentError> {
    if items.len() > MAX_ITEMS {
        return at(key, Err("has more than 64 items"));
    }
    items.iter().try_for_each(|item| at(key, check(item)))
}

fn some(key: &str, items: &[String], check: fn(&str) -> Wrong) -> Result<(), AgentError> {
    if items.is_empty() {
        return at(key, Err("must have an item at least"));
    }
    each(key, items, check)
}

fn variables(key: &str, variables: &BTreeMap<String, String>) -> Result<(), AgentError> {
    if variables.len() > MAX_ITEMS {
        return at(key, Err("has more than 64 items"));
    }
    for (name, value) in variables {
        let key = format!("{key}.{name}");
        at(&key, check::variable(name))?;
        at(&key, check::value(value))?;
    }
    Ok(())
}

fn check_all(written: &Written) -> Result<(), AgentError> {
    at("name", check::name(&written.name))?;
    at("about", check::about(&written.about))?;
    each("arguments", &written.arguments, check::value)?;
    some("program.names", &written.program.names, check::program)?;
    each("program.places", &written.program.places, check::place)?;
    if let Some(install) = &written.install {
        check_install(install)?;
    }
    variables("environment", &written.environment)?;
    for (key, additions) in [("strict", &written.strict), ("nested", &written.nested)] {
        each(&format!("{key}.arguments"), &additions.arguments, check::value)?;
        variables(&format!("{key}.environment"), &additions.environment)?;
    }
    each("network.presets", &written.network.presets, check::host)?;
    each("network.hosts", &written.network.hosts, check::host)?;
    check_credentials(&written.credential)?;
    check_files(&written.file)?;
    match &written.task {
        Some(task) => each("task.arguments", &task.arguments, check::value),
        None => Ok(()),
    }
}

fn check_install(install: &WrittenInstall) -> Result<(), AgentError> {
    at("install.npm", check::package(&install.npm))?;
    at("install.version", check::version(&install.version))?;
    if let Some(platform) = &install.platform {
        at("install.platform", check::package(platform))?;
    }
    if let Some(source) = &install.source {
        at("install.source", check::source(source))?;
    }
    at("install.program", check::below(&install.program))
}

fn check_credentials(credentials: &[WrittenCredential]) -> Result<(), AgentError> {
    if credentials.len() > MAX_ITEMS {
        return at("credential", Err("is there more than 64 times"));
    }
    for credential in credentials {
        let WrittenCredential { secret, about, variable, hosts, others, .. } = credential;
        check_choice("credential", [secret, about, variable], hosts)?;
        for WrittenChoice { secret, about, variable, hosts } in others {
            check_choice("credential.or", [secret, about, variable], hosts)?;
        }
    }
    Ok(())
}

fn check_choice(key: &str, texts: [&str; 3], hosts: &[String]) -> Result<(), AgentError> {
    let [secret, about, variable] = texts;
    at(&format!("{key}.secret"), check::secret(secret))?;
    at(&format!("{key}.about"), check::about(about))?;
    at(&format!("{key}.variable"), check::variable(variable))?;
    some(&format!("{key}.hosts"), hosts, check::host)
}

fn check_files(files: &[WrittenFile]) -> Result<(), AgentError> {
    if files.len() > MAX_ITEMS {
        return at("file", Err("is there more than 64 times"));
    }
    let mut seen = BTreeSet::new();
    for file in files {
        at("file.path", check::below(&file.path))?;
        if !seen.insert((file.place, &file.path, file.profile)) {
            return at("file.path", Err("is there twice"));
        }
    }
    Ok(())
}

fn agent(written: Written) -> Agent {
    let additions = |written: WrittenAdditions| Additions {
        arguments: written.arguments,
        environment: written.environment,
    };
    Agent {
        name: written.name,
        about: written.about,
        program: Program { names: written.program.names, places: written.program.places },
        install: written.install.map(|install| Install {
            npm: install.npm,
            version: install.version,
            platform: install.platform,
            source: install.source,
            program: install.program,
        }),
        profile: written.profile.into(),
        arguments: written.arguments,
        environment: written.environment,
        strict: additions(written.strict),
        nested: additions(written.nested),
        network: Network { presets: written.network.presets, hosts: written.network.hosts },
        credentials: written.credential.into_iter().map(credential).collect(),
        files: written.file.into_iter().map(file).collect(),
        task: written.task.map(|task| Task {
            protocol: match task.kind {
                WrittenProtocol::ClaudeStreamJson => Protocol::ClaudeStreamJson,
                WrittenProtocol::CodexExecJson => Protocol::CodexExecJson,
                WrittenProtocol::Plain => Protocol::Plain,
            },
            arguments: task.arguments,
        }),
    }
}

fn credential(written: WrittenCredential) -> Credential {
    let WrittenCredential { secret, about, variable, hosts, optional, others } = written;
    let mut choices = vec![Choice { secret, about, variable, hosts }];
    choices.extend(others.into_iter().map(|other| Choice {
        secret: other.secret,
        about: other.about,
        variable: other.variable,
        hosts: other.hosts,
    }));
    Credential { need: if optional { Need::Optional } else { Need::Required }, choices }
}

fn file(written: WrittenFile) -> SettingsFile {
    let profile = written.profile.map(Profile::from);
    let place = match written.place {
        WrittenPlace::Settings => Place::Settings,
        WrittenPlace::Home => Place::Home,
    };
    SettingsFile { place, path: written.path, text: written.text, profile }
}

impl From<WrittenProfile> for Profile {
    fn from(written: WrittenProfile) -> Self {
        match written {
            WrittenProfile::Strict => Self::Strict,
            WrittenProfile::Nested => Self::Nested,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AgentError, MAX_DEFINITION, parse};
    use crate::{Need, Profile};

    const LEAST: &str = "name = 'mine'\nabout = 'An agent'\n[program]\nnames = ['mine']\n";

    #[test]
    fn little_is_needed_and_the_rest_is_strict() {
        let agent = parse(LEAST).unwrap();
        assert_eq!((agent.name.as_str(), agent.profile), ("mine", Profile::Strict));
        assert!(agent.network.hosts.is_empty() && agent.credentials.is_empty());
    }

    #[test]
    fn a_credential_is_required_unless_it_is_optional() {
        let credential = "[[credential]]\nsecret = 's'\nabout = 'a key'\nvariable = 'KEY'\n\
                          hosts = ['api.example']\n";
        let agent = parse(&format!("{LEAST}{credential}")).unwrap();
        assert_eq!(agent.credentials[0].need, Need::Required);
        let agent = parse(&format!("{LEAST}{credential}optional = true\n")).unwrap();
        assert_eq!(agent.credentials[0].need, Need::Optional);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_key() {
        let wrong = [
            ("[install]\nnpm = '-g'\nversion = '1'\nprogram = 'x'", "install.npm"),
            ("[install]\nnpm = 'a'\nversion = '--global'\nprogram = 'x'", "install.version"),
            ("[install]\nnpm = 'a'\nversion = '1'\nprogram = '../x'", "install.program"),
            ("[[file]]\npath = '/etc/x'\ntext = ''", "file.path"),
            ("[[file]]\npath = 'a'\ntext = ''\n[[file]]\npath = 'a'\ntext = ''", "file.path"),
            ("[environment]\n'A B' = 'x'", "environment.A B"),
            ("[network]\nhosts = ['a b']", "network.hosts"),
            ("[task]\nkind = 'plain'\narguments = [\"a\\u0000\"]", "task.arguments"),
            (
                "[[credential]]\nsecret = 's'\nabout = 'x'\nvariable = 'K'\nhosts = []",
                "credential.hosts",
            ),
        ];
        for (more, key) in wrong {
            let error = parse(&format!("{LEAST}{more}\n")).unwrap_err();
            assert!(error.to_string().starts_with(&format!("`{key}` ")), "{error}");
        }
        for name in ["", "Claude", "a--b", "-a", "a/b", "../a", "9a"] {
            let error = parse(&LEAST.replace("'mine'\nabout", &format!("'{name}'\nabout")));
            assert!(matches!(error, Err(AgentError::Key { key, .. }) if key == "name"), "{name}");
        }
    }

    #[test]
    fn a_key_that_is_not_known_is_refused_with_its_line() {
        let error = parse(&format!("{LEAST}[task]\nkind = 'plain'\nshell = 'sh'\n")).unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("line 7: ") && said.contains("`shell`"), "{said}");
        assert!(parse("name = 1").is_err());
    }

    #[test]
    fn a_definition_is_small() {
        assert_eq!(parse(&"#".repeat(MAX_DEFINITION + 1)), Err(AgentError::TooLong));
    }
}
