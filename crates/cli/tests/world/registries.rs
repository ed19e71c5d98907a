//! npm, pip and cargo against the registries that this host is set up for, by their ordinary means.
//!
//! Which those are is asked of the programs; where they are is asked of the host. A registry that
//! cannot be reached from the host itself is reported as not run.

use crate::for_everyone;
use cowork_testbed::{Folder, Person, not_run};
use std::collections::BTreeSet;
use std::net::{IpAddr, ToSocketAddrs};
use std::process::{Command, Stdio};

for_everyone!(npm, pip, cargo);

/// What a program of this host says, if it says something.
fn asked(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !said.is_empty() && said != "undefined").then_some(said)
}

fn host_of(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    Some(rest.split(['/', ':']).next()?.rsplit('@').next()?.to_owned())
}

/// Whether the host itself gets an answer there.
fn answers(url: &str) -> bool {
    let status = asked("curl", &["-sSL", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", url]);
    status.is_some_and(|status| status.starts_with('2'))
}

/// The addresses that a name leads to here: a registry of this host's own may be at a private one.
fn places(host: &str) -> BTreeSet<IpAddr> {
    let found = (host, 443).to_socket_addrs().into_iter().flatten();
    found.map(|address| address.ip()).collect()
}

/// A session of a person's own daemon, in this host's own network.
struct Session {
    person: Person,
    id: String,
    _folder: Folder,
}

impl Session {
    fn new(person: Person, hosts: &BTreeSet<String>, grants: &[String]) -> Self {
        let folder = Folder::new(person, "registry");
        let grants = grants.iter().flat_map(|grant| ["--grant", grant.as_str()]);
        let words: Vec<&str> = ["new"].into_iter().chain(grants).collect();
        let (good, id) = said(person, &words);
        assert!(good, "{id}");
        let session = Self { person, id: id.trim().to_owned(), _folder: folder };
        for host in hosts {
            let mut words = vec!["allow".to_owned(), session.id.clone(), host.clone()];
            for place in places(host) {
                let bits = if place.is_ipv4() { 32 } else { 128 };
                words.extend(["--resolves-to".to_owned(), format!("{place}/{bits}")]);
            }
            let (good, said) = said(person, &words);
            assert!(good, "{said}");
        }
        session
    }

    fn run(&self, script: &str) -> (bool, String) {
        said(self.person, &["exec", &self.id, "--", "bash", "-c", script])
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        said(self.person, &["rm", &self.id]);
    }
}

/// Whether `cowork` succeeds with these words, and what it says.
fn said<S: AsRef<std::ffi::OsStr>>(person: Person, words: &[S]) -> (bool, String) {
    let output = person.cowork().args(words).current_dir("/").stdin(Stdio::null()).output();
    let output = output.expect("the program is there");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

fn npm(person: Person) {
    let Some(registry) = asked("npm", &["config", "get", "registry"]) else {
        return not_run("npm", "it names no registry");
    };
    if !answers(&format!("{}/is-odd", registry.trim_end_matches('/'))) {
        return not_run("npm", "this host does not reach its registry");
    }
    let hosts = host_of(&registry).into_iter().collect();
    let script = format!(
        "npm config set registry {registry} && mkdir p && cd p && npm install --no-audit --no-fund --fetch-retries=0 is-odd \
         && node -p 'require(\"is-odd\")(3)'"
    );
    let (good, said) = Session::new(person, &hosts, &[]).run(&script);
    assert!(good && said.contains("true"), "{said}");
    let (good, said) = Session::new(person, &BTreeSet::new(), &[]).run(&script);
    assert!(!good, "without a rule there is no way: {said}");
}

fn pip(person: Person) {
    let index = asked("pip", &["config", "get", "global.index-url"]);
    let index = index.unwrap_or_else(|| "https://pypi.org/simple".to_owned());
    let page = format!("{}/six/", index.trim_end_matches('/'));
    let Some(page) = asked("curl", &["-sSL", "-m", "20", &page]) else {
        return not_run("pip", "this host does not reach its index");
    };
    let mut hosts: BTreeSet<String> = host_of(&index).into_iter().collect();
    // An index may lead elsewhere for the files.
    hosts.extend(page.split("href=\"").skip(1).filter_map(|link| host_of(link.split('"').next()?)));
    let script = format!(
        "python3 -m venv v && v/bin/pip install -q --index-url {index} six && v/bin/python -c 'import six; print(six.PY3)'"
    );
    let (good, said) = Session::new(person, &hosts, &[]).run(&script);
    assert!(good && said.contains("True"), "{said}");
    let (good, said) = Session::new(person, &BTreeSet::new(), &[]).run(&script);
    assert!(!good && !said.contains("True"), "without a rule there is no way: {said}");
}

fn cargo(person: Person) {
    const INDEX: &str = "https://index.crates.io/config.json";
    let Some(config) = asked("curl", &["-sSL", "-m", "20", INDEX]) else {
        return not_run("cargo", "this host does not reach its index");
    };
    let Some(toolchain) = asked("rustc", &["--print", "sysroot"]) else {
        return not_run("cargo", "there is no toolchain");
    };
    let mut hosts: BTreeSet<String> = host_of(INDEX).into_iter().collect();
    hosts.extend(config.split('"').filter_map(host_of));
    // What cargo needs of the toolchain, by another name that everybody can reach.
    let folder = Folder::new(person, "toolchain");
    let at = folder.path().join("t");
    let script = "mkdir -p $2/lib && cp -rl $1/bin $2/ && cp -l $1/lib/*.so* $2/lib/ && chmod a+rx $2 $2/bin $2/lib";
    let arguments = ["-c", script, "bash", &toolchain, &at.display().to_string()];
    if asked("bash", &arguments).is_some() || std::fs::metadata(at.join("bin/cargo")).is_err() {
        return not_run("cargo", "the toolchain cannot be linked");
    }
    let grant = format!("{}:ro=t", at.display());
    let script = "export PATH=$PWD/mnt/t/bin:$PATH CARGO_HOME=$PWD/c; cargo new -q p 2>&1 && cd p && \
                  cargo add -q itoa 2>&1 && cargo fetch 2>&1 && ls $CARGO_HOME/registry/cache/*/itoa-*";
    let grant = [grant];
    let (good, said) = Session::new(person, &hosts, &grant).run(script);
    assert!(good && said.contains("/itoa-"), "{said}");
    let (good, said) = Session::new(person, &BTreeSet::new(), &grant).run(script);
    assert!(!good && !said.contains("/itoa-"), "without a rule there is no way: {said}");
}
