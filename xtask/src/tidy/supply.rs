//! What others' code may be linked: where it comes from, under which terms, and what of it not at all.

use super::Finding;
use crate::workspace::{Failure, cargo, text};
use serde_json::Value;
use std::path::Path;

/// What is built for.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Where packages come from, as cargo names it.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What can be shipped in a program under Apache-2.0 without further terms.
const LICENSES: [&str; 9] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages that nothing may be made of, each with what there is instead.
const BANNED: [(&str, &str); 4] = [
    ("openssl-sys", "there is one TLS, rustls"),
    ("native-tls", "there is one TLS, rustls"),
    ("async-std", "there is one async runtime, tokio"),
    ("smol", "there is one async runtime, tokio"),
];

/// Who may use the async runtime itself; everybody else waits.
const USE_TOKIO: [&str; 4] = ["cowork-daemon", "cowork-egress", "cowork-escape", "cowork-mcp"];

/// A package, as far as it is judged.
#[derive(Debug, Default)]
struct Package {
    name: String,
    /// `None` for one of the workspace.
    source: Option<String>,
    license: String,
    uses: Vec<String>,
}

/// Checks every package that is linked into something of the workspace.
pub(super) fn check() -> Result<Vec<Finding>, Failure> {
    let mut metadata = cargo(["metadata", "--format-version", "1", "--all-features"]);
    let metadata = text(metadata.args(["--filter-platform", TARGET]))?;
    let unreadable = |cause: &str| Failure::new(format!("cannot read `cargo metadata`: {cause}"));
    let metadata: Value =
        serde_json::from_str(&metadata).map_err(|error| unreadable(&error.to_string()))?;
    let packages = metadata.get("packages").and_then(Value::as_array);
    let packages = packages.ok_or_else(|| unreadable("it lists no packages"))?;
    let lock = Path::new("Cargo.lock");
    let objections = packages.iter().flat_map(|package| objections(&read(package)));
    Ok(objections.map(|sentence| Finding::file(lock, sentence)).collect())
}

fn read(package: &Value) -> Package {
    let field = |name: &str| package.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
    let dependencies = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
    let uses = dependencies.filter_map(|dependency| dependency.get("name")?.as_str());
    Package {
        name: field("name").unwrap_or_default(),
        source: field("source"),
        license: field("license").unwrap_or_default(),
        uses: uses.map(ToOwned::to_owned).collect(),
    }
}

fn objections(package: &Package) -> Vec<String> {
    let Package { name, source, license, uses } = package;
    let mut found = Vec::new();
    if let Some((_, instead)) = BANNED.iter().find(|(banned, _)| banned == name) {
        found.push(format!("`{name}` must not be linked: {instead}"));
    }
    match source.as_deref() {
        None if uses.iter().any(|used| used == "tokio") && !USE_TOKIO.contains(&name.as_str()) => {
            found.push(format!("`{name}` must not use `tokio`: its programs wait"));
        }
        None => return found,
        Some(REGISTRY) => {}
        Some(other) => found.push(format!("`{name}` comes from `{other}`")),
    }
    if source.is_some() && !is_allowed(license) {
        found.push(format!("`{name}` has terms that are not in the list: `{license}`"));
    }
    found
}

/// Whether an expression of SPDX can be met by terms that are in the list.
fn is_allowed(expression: &str) -> bool {
    // The old way to write OR.
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = expression.split_whitespace().collect();
    let mut rest = words.as_slice();
    alternatives(&mut rest) == Some(true) && rest.is_empty()
}

/// `a OR b`; `None` where it is no expression. OR binds less than AND.
fn alternatives(words: &mut &[&str]) -> Option<bool> {
    let mut allowed = together(words)?;
    while let Some((&"OR", rest)) = words.split_first() {
        *words = rest;
        allowed |= together(words)?;
    }
    Some(allowed)
}

/// `a AND b`.
fn together(words: &mut &[&str]) -> Option<bool> {
    let mut allowed = term(words)?;
    while let Some((&"AND", rest)) = words.split_first() {
        *words = rest;
        allowed &= term(words)?;
    }
    Some(allowed)
}

/// A license, one with an exception, or an expression in parentheses.
fn term(words: &mut &[&str]) -> Option<bool> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    if *first == "(" {
        let allowed = alternatives(words)?;
        let (close, rest) = words.split_first()?;
        *words = rest;
        return (*close == ")").then_some(allowed);
    }
    let mut license = (*first).to_owned();
    if let [with @ "WITH", exception, rest @ ..] = *words {
        license = format!("{license} {with} {exception}");
        *words = rest;
    }
    Some(LICENSES.contains(&license.as_str()))
}

#[cfg(test)]
mod tests {
    use super::{Package, REGISTRY, is_allowed, objections};

    #[test]
    fn terms_are_met_or_not() {
        for met in [
            "MIT",
            "MIT/GPL-3.0",
            "GPL-3.0 OR Apache-2.0 WITH LLVM-exception",
            "(GPL-3.0 OR MIT) AND Unicode-3.0",
            "GPL-3.0 AND ISC OR MIT",
        ] {
            assert!(is_allowed(met), "{met}");
        }
        for unmet in
            ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT GPL-3.0", "(MIT", "MIT OR", "Apache-2.0 WITH x"]
        {
            assert!(!is_allowed(unmet), "{unmet}");
        }
    }

    #[test]
    fn others_code_is_known_by_name_place_and_terms() {
        let package = |name: &str, source: Option<&str>, license: &str| Package {
            name: name.into(),
            source: source.map(Into::into),
            license: license.into(),
            uses: Vec::new(),
        };
        let found = |package: &Package| objections(package).len();
        assert_eq!(found(&package("serde", Some(REGISTRY), "MIT OR Apache-2.0")), 0);
        assert_eq!(found(&package("openssl-sys", Some(REGISTRY), "MIT")), 1);
        assert_eq!(found(&package("serde", Some("git+https://example.org/serde"), "MIT")), 1);
        assert_eq!(found(&package("serde", Some(REGISTRY), "")), 1);
        let own = |name: &str| Package { uses: vec!["tokio".into()], ..package(name, None, "") };
        assert_eq!(found(&own("cowork-egress")), 0);
        assert_eq!(found(&own("cowork-sandbox")), 1);
    }
}
