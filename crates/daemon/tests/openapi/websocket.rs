//! Clients of others' making, attached by WebSocket.

use crate::site::{Site, TOKEN};
use cowork_testbed::Person;
use std::path::{Path, PathBuf};
use std::process::Command;

fn a_client_of_python_attaches(person: Person) {
    let site = Site::new(person);
    let program = std::env::var_os("COWORK_SCHEMATHESIS").map(PathBuf::from);
    let program = program.expect("COWORK_SCHEMATHESIS says where schemathesis is");
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openapi");
    let done = Command::new(program.with_file_name("python"))
        .arg(here.join("websocket.py"))
        .arg(site.socket())
        .args([&site.address, TOKEN])
        .env_clear()
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python is there");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}\n{}", site.said());
}

#[test]
#[ignore = "needs a client; `cargo xtask test` installs it and runs this"]
fn a_client_of_python_attaches_as_root() {
    a_client_of_python_attaches(Person::Root);
}

#[test]
#[ignore = "needs a client; `cargo xtask test` installs it and runs this"]
fn a_client_of_python_attaches_as_user() {
    a_client_of_python_attaches(Person::User);
}
