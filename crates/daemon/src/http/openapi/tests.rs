//! The document says what the source says.

use super::problems::PROBLEMS;
use super::{Operation, Schemas, operations, text};
use crate::http::routes::routes;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn document() -> Value {
    serde_json::from_str(text()).unwrap()
}

#[test]
fn the_committed_document_is_the_served_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(committed == text(), "docs/openapi.json is old: run `cargo xtask generate`");
}

#[test]
fn every_route_is_an_operation_and_every_operation_a_route() {
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let documented: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods.map(|method| (method.to_uppercase(), path.clone()))
        })
        .collect();
    let routes = routes();
    // A template of OpenAPI has no name for what crosses slashes.
    let served = routes
        .iter()
        .map(|route| (route.method.to_owned(), route.path.replace("{*path}", "{path}")));
    let served: BTreeSet<(String, String)> = served.collect();
    assert_eq!(documented, served);
    assert_eq!(served.len(), routes.len(), "a route is there twice");
}

#[test]
fn every_reference_leads_somewhere() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|field| references(field, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let document = document();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 100, "{}", found.len());
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn every_link_leads_to_an_operation() {
    let document = document();
    let operations = document["paths"].as_object().unwrap().values();
    let operations: Vec<&Value> =
        operations.flat_map(|methods| methods.as_object().unwrap().values()).collect();
    let ids: BTreeSet<&str> =
        operations.iter().map(|operation| operation["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), operations.len(), "an operation's id is there twice");
    for operation in operations {
        let made = operation["responses"]["201"]["links"].as_object();
        for (name, link) in made.into_iter().flatten() {
            assert!(ids.contains(link["operationId"].as_str().unwrap()), "{name}");
        }
    }
}

/// Codes that are said before there is an API, and one that only the daemon hears.
const ELSEWHERE: [&str; 4] = ["bad-folder", "bad-token", "no-deposit", "running"];

#[test]
fn every_code_of_a_problem_is_documented() {
    let mut sources = Vec::new();
    rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut sources);
    let mut made: BTreeSet<String> = BTreeSet::new();
    for path in sources.iter().filter(|path| !path.ends_with("openapi/tests.rs")) {
        let source = std::fs::read_to_string(path).unwrap();
        for constructor in ["refused", "missing", "conflict", "forbidden"] {
            for (at, call) in source.match_indices(&format!("Trouble::{constructor}(")) {
                let rest = source.get(at + call.len()..).unwrap().trim_start();
                if let Some(code) = rest.strip_prefix('"').and_then(|rest| rest.split('"').next()) {
                    made.insert(code.to_owned());
                }
            }
        }
        // What the keeper says is given its status and its code together.
        for (at, _) in source.match_indices("(StatusCode::") {
            let pair = source.get(at..).unwrap().split(')').next().unwrap_or_default();
            made.extend(pair.split('"').nth(1).map(ToOwned::to_owned));
        }
    }
    assert!(made.len() > 50, "the source is read wrongly: {made:?}");
    let known: BTreeSet<&str> = PROBLEMS.iter().map(|(code, ..)| *code).collect();
    let unknown: Vec<&String> = made
        .iter()
        .filter(|code| !known.contains(code.as_str()) && !ELSEWHERE.contains(&code.as_str()))
        .collect();
    assert!(unknown.is_empty(), "not in the table of problems: {unknown:?}");
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn every_documented_code_belongs_to_an_operation() {
    let mut schemas = Schemas::new();
    let operations = operations(&mut schemas);
    let used: BTreeSet<&str> = operations.iter().flat_map(Operation::problems).copied().collect();
    let mut known: BTreeMap<&str, u16> = BTreeMap::new();
    for (code, status, _) in PROBLEMS {
        assert_eq!(known.insert(code, status), None, "{code} is there twice");
        // No method that is not there belongs to an operation.
        assert!(used.contains(code) || code == "no-method", "no operation says {code}");
    }
    for code in used {
        assert!(known.contains_key(code), "{code} is not in the table of problems");
    }
}
