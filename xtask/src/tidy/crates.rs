//! Which crate may depend on which, and on what none of them may.

use super::Finding;
use crate::workspace::{Failure, cargo, root, text};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The shipped crates, and which of the workspace each may use.
const ALLOWED: [(&str, &[&str]); 14] = [
    ("cowork-agents", &[]),
    ("cowork-api", &[]),
    ("cowork-sys", &[]),
    ("cowork-policy", &["cowork-api"]),
    ("cowork-journal", &["cowork-api", "cowork-sys"]),
    ("cowork-sandbox", &["cowork-journal", "cowork-policy", "cowork-sys", "cowork-api"]),
    ("cowork-audit", &[]),
    ("cowork-client", &[]),
    ("cowork-mcp", &["cowork-client", "cowork-sys"]),
    ("cowork-session", &["cowork-sys"]),
    ("cowork-srt", &["cowork-api", "cowork-policy"]),
    ("cowork-egress", &["cowork-policy", "cowork-sandbox", "cowork-sys", "cowork-api"]),
    (
        "cowork-daemon",
        &[
            "cowork-agents",
            "cowork-api",
            "cowork-audit",
            "cowork-client",
            "cowork-mcp",
            "cowork-policy",
            "cowork-sandbox",
            "cowork-session",
            "cowork-sys",
        ],
    ),
    (
        "cowork",
        &[
            "cowork-api",
            "cowork-client",
            "cowork-policy",
            "cowork-sandbox",
            "cowork-srt",
            "cowork-sys",
        ],
    ),
];

/// Crates that nothing shipped is made of. Only their tests may use the test bed.
const NEVER_SHIPPED: [&str; 4] = ["cowork-testbed", "cowork-escape", "cowork-bench", "xtask"];

/// Crates that turn waiting into scheduling. Keeper and init have one thread each.
const ASYNC_RUNTIMES: [&str; 5] = ["tokio", "async-std", "smol", "async-executor", "glommio"];

/// One crate of the workspace that uses another one of it.
#[derive(Debug)]
struct Edge {
    from: String,
    to: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// For the crate itself, or for building it.
    Shipped,
    /// For its tests.
    Dev,
}

/// Checks the dependencies between the crates of the workspace.
pub(super) fn edges() -> Result<Vec<Finding>, Failure> {
    let metadata = text(&mut cargo(["metadata", "--format-version", "1", "--no-deps"]))?;
    let unreadable = |cause: &str| Failure::new(format!("cannot read `cargo metadata`: {cause}"));
    let metadata: Value =
        serde_json::from_str(&metadata).map_err(|error| unreadable(&error.to_string()))?;
    let packages = metadata.get("packages").and_then(Value::as_array);
    let packages = packages.ok_or_else(|| unreadable("it lists no packages"))?;
    let named = |value: &Value| value.get("name").and_then(Value::as_str).map(ToOwned::to_owned);
    let names: Vec<String> = packages.iter().filter_map(named).collect();
    let mut findings = Vec::new();
    for package in packages {
        let manifest = package.get("manifest_path").and_then(Value::as_str);
        let manifest = Path::new(manifest.ok_or_else(|| unreadable("a package has no file"))?);
        let from = named(package).ok_or_else(|| unreadable("a package has no name"))?;
        let dependencies = package.get("dependencies").and_then(Value::as_array);
        for dependency in dependencies.into_iter().flatten() {
            let to = named(dependency).ok_or_else(|| unreadable("a dependency has no name"))?;
            if !names.contains(&to) {
                continue;
            }
            let dev = dependency.get("kind").and_then(Value::as_str) == Some("dev");
            let edge =
                Edge { from: from.clone(), to, kind: if dev { Kind::Dev } else { Kind::Shipped } };
            findings.extend(objection(&edge).map(|sentence| place(manifest, &edge, sentence)));
        }
        let manifest_text = std::fs::read_to_string(manifest).unwrap_or_default();
        findings.extend(weakened(&from, &relative(manifest), &manifest_text));
        let known = ALLOWED.iter().map(|(name, _)| *name).chain(NEVER_SHIPPED);
        if !known.into_iter().any(|name| name == from) {
            let sentence = format!("`{from}` is not in the list of crates in xtask/src/tidy");
            findings.push(Finding::file(&relative(manifest), sentence));
        }
    }
    Ok(findings)
}

/// A feature that takes a wall away, for the control of attacks. Nothing turns it on but whoever builds
/// that control; without debug assertions it does not compile.
const WEAKER: &str = "no-wall-for-control";

/// The places of a manifest that name the feature, but for the one that defines it.
fn weakened(package: &str, path: &Path, manifest: &str) -> Vec<Finding> {
    let definition = format!("{WEAKER} = []");
    let is_named = |line: &str| {
        let line = line.split('#').next().unwrap_or_default().trim();
        line.contains(WEAKER) && (package != "cowork-sandbox" || line != definition)
    };
    let lines = manifest.lines().enumerate().filter(|(_, line)| is_named(line));
    let sentence = || format!("`{WEAKER}` is turned on, which is for the control of attacks alone");
    lines.map(|(number, _)| Finding::line(path, number, sentence())).collect()
}

/// What speaks against an edge.
fn objection(edge: &Edge) -> Option<String> {
    let Edge { from, to, kind } = edge;
    if NEVER_SHIPPED.contains(&from.as_str()) {
        return (to == "xtask").then(|| format!("`{from}` must not depend on `xtask`"));
    }
    if *kind == Kind::Dev {
        let refused = NEVER_SHIPPED.contains(&to.as_str()) && to != "cowork-testbed";
        return refused.then(|| format!("tests of `{from}` must not depend on `{to}`"));
    }
    if NEVER_SHIPPED.contains(&to.as_str()) {
        return Some(format!("`{from}` is shipped and must not depend on `{to}`, which is not"));
    }
    let (_, allowed) = ALLOWED.iter().find(|(name, _)| name == from)?;
    let refused = !allowed.contains(&to.as_str());
    refused.then(|| format!("`{from}` must not depend on `{to}`: that is no edge of the design"))
}

/// Finds the line of a manifest that makes an edge.
fn place(manifest: &Path, edge: &Edge, sentence: String) -> Finding {
    let path = relative(manifest);
    let text = std::fs::read_to_string(manifest).unwrap_or_default();
    let is_edge = |line: &str| {
        let rest = line.strip_prefix(edge.to.as_str());
        rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    };
    match text.lines().position(is_edge) {
        Some(line) => Finding::line(&path, line, sentence),
        None => Finding::file(&path, sentence),
    }
}

fn relative(path: &Path) -> PathBuf {
    path.strip_prefix(root()).unwrap_or(path).into()
}

/// Checks that no async runtime is linked into the programs of a session.
pub(super) fn no_async_runtime() -> Result<Vec<Finding>, Failure> {
    let mut tree = cargo(["tree", "--package", "cowork-sandbox", "--edges", "normal"]);
    let tree = text(tree.args(["--prefix", "none", "--format", "{p}"]))?;
    let manifest = Path::new("crates/sandbox/Cargo.toml");
    let runtimes = ASYNC_RUNTIMES.iter().filter(|runtime| is_in(&tree, runtime));
    let sentence = |runtime| format!("links the async runtime `{runtime}`; its programs wait");
    Ok(runtimes.map(|runtime| Finding::file(manifest, sentence(runtime))).collect())
}

/// Whether a list of `name version` has a name.
fn is_in(tree: &str, name: &str) -> bool {
    tree.lines().any(|line| line.split(' ').next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::{Edge, Kind, is_in, objection, weakened};
    use std::path::Path;

    fn refused(edges: &[(&str, &str, Kind)]) -> Vec<usize> {
        let edges = edges.iter().map(|(from, to, kind)| {
            objection(&Edge { from: (*from).into(), to: (*to).into(), kind: *kind })
        });
        edges.enumerate().filter_map(|(number, objection)| objection.and(Some(number))).collect()
    }

    #[test]
    fn no_manifest_turns_on_what_takes_a_wall_away() {
        let of = |package, manifest| weakened(package, Path::new("Cargo.toml"), manifest).len();
        assert_eq!(
            of("cowork-sandbox", "[features]\n# no-wall-for-control\nno-wall-for-control = []"),
            0
        );
        assert_eq!(of("cowork-sandbox", "default = [\"no-wall-for-control\"]"), 1);
        let edge = "cowork-sandbox = { workspace = true, features = [\"no-wall-for-control\"] }";
        assert_eq!(of("cowork-daemon", edge), 1);
        assert_eq!(of("cowork-daemon", "no-wall-for-control = []"), 1);
    }

    #[test]
    fn edges_of_the_design_are_allowed_and_no_other() {
        let edges = [
            ("cowork-policy", "cowork-api", Kind::Shipped),
            ("cowork", "cowork-sandbox", Kind::Shipped),
            ("cowork-policy", "cowork-sys", Kind::Shipped),
            ("cowork-sys", "cowork-api", Kind::Shipped),
            ("cowork-api", "cowork-policy", Kind::Shipped),
            ("cowork-sandbox", "cowork", Kind::Shipped),
        ];
        assert_eq!(refused(&edges), [2, 3, 4, 5]);
    }

    #[test]
    fn the_test_bed_is_for_tests() {
        let edges = [
            ("cowork", "cowork-testbed", Kind::Dev),
            ("cowork-escape", "cowork-testbed", Kind::Shipped),
            ("cowork", "cowork-testbed", Kind::Shipped),
            ("cowork", "cowork-escape", Kind::Dev),
            ("cowork-bench", "xtask", Kind::Shipped),
        ];
        assert_eq!(refused(&edges), [2, 3, 4]);
    }

    #[test]
    fn a_crate_is_named_by_its_whole_name() {
        assert!(is_in("rustix v1.1.6\nsmol v2.0.0", "smol"));
        assert!(!is_in("smol_str v0.3.0", "smol"));
    }
}
