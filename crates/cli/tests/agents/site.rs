//! A world of two networks: one with the daemon, one with the models, and a wire between them.
//!
//! The names of the models' hosts are in a `hosts` file that only the daemon and what it starts see,
//! and the authority that speaks for them is one that only this daemon trusts.

use crate::model::{Model, Seen};
pub(crate) use cowork_testbed::Said;
use cowork_testbed::{Folder, Person};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

const THERE: &str = "11.22.34.7";
const HERE: &str = "11.22.34.1";
/// The registry that agents are installed from.
pub(crate) const REGISTRY: &str = "registry.npmjs.org";
/// Hosts that the models answer for.
const NAMES: [&str; 4] = ["api.anthropic.com", "platform.claude.com", "api.openai.com", REGISTRY];

/// The world of one person.
pub(crate) struct Site {
    person: Person,
    pub(crate) folder: Folder,
    model: Model,
    daemon: Option<(Child, ChildStdin)>,
}

impl Drop for Site {
    fn drop(&mut self) {
        let desk = self.folder.path().to_path_buf();
        let listed = self.say(&desk, &["ls", "--json"]).out;
        let all: Value = serde_json::from_str(&listed).unwrap_or_default();
        for id in all.as_array().into_iter().flatten().filter_map(|one| one["id"].as_str()) {
            self.say(&desk, &["rm", id]);
        }
        if let Some((mut daemon, held)) = self.daemon.take() {
            drop(held);
            drop(daemon.wait());
        }
    }
}

impl Site {
    /// The one world of a person, for the tests that run at the moment.
    pub(crate) fn of(person: Person) -> Arc<Self> {
        static SITES: [Mutex<Weak<Site>>; 2] = [const { Mutex::new(Weak::new()) }; 2];
        let slot = usize::from(person == Person::User);
        let slot = SITES.get(slot).expect("one world per person");
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        slot.upgrade().unwrap_or_else(|| {
            let site = Arc::new(Self::new(person));
            *slot = Arc::downgrade(&site);
            site
        })
    }

    /// A world for one test alone: secrets are everybody's in one, and a model hears them all.
    pub(crate) fn alone(person: Person) -> Self {
        Self::new(person)
    }

    fn new(person: Person) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let folder = Folder::new(person, "agents");
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let [here, there] =
            ["a", "b"].map(|end| format!("agents-{}-{number}{end}", std::process::id()));
        wire(&here, &there);
        let mut hosts: Vec<String> = NAMES.map(|name| format!("{THERE} {name}")).into();
        hosts.push("127.0.0.1 localhost".to_owned());
        folder.write("hosts", hosts.join("\n") + "\n");
        for name in ["run", "state"] {
            let kept = folder.write(&format!("{name}/.keep"), "");
            private(kept.parent().expect("it lies in a folder"));
        }
        folder.write("definitions/agents/.keep", "");
        folder.write("bin/.keep", "");
        let (certificate, key) = certificates(&folder);
        let listener = listen(&there);
        let model = Model::serve(listener, certificate, key);
        let daemon = daemon(person, &here, &folder);
        let begin = Instant::now();
        while std::fs::metadata(folder.path().join("run/api.sock")).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(20), "the daemon did not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        // The networks live as long as the sockets and processes in them.
        for name in [&here, &there] {
            run("ip", &["netns", "delete", name]);
        }
        Self { person, folder, model, daemon: Some(daemon) }
    }

    /// A folder for one test, with a file in it.
    pub(crate) fn desk(&self, name: &str, file: &str, contents: &str) -> PathBuf {
        self.folder.write(&format!("{name}/{file}"), contents);
        self.folder.path().join(name)
    }

    /// A program that this world's person starts in a folder.
    pub(crate) fn command(&self, desk: &Path, program: &Path) -> Command {
        let mut command = self.person.command(program);
        command.envs(variables(self.person, &self.folder)).current_dir(desk);
        command
    }

    /// `cowork`, as this world's person, in a folder.
    pub(crate) fn cowork(&self, desk: &Path, words: &[&str]) -> Command {
        let mut command = self.command(desk, &cowork_testbed::programs().join("cowork"));
        command.args(words);
        command
    }

    /// What came of `cowork` with these words.
    #[track_caller]
    pub(crate) fn say(&self, desk: &Path, words: &[&str]) -> Said {
        let output = self.cowork(desk, words).stdin(Stdio::null()).output();
        Said::of(&output.expect("the program is there"))
    }

    /// The same with something on its standard input.
    #[track_caller]
    pub(crate) fn tell(&self, desk: &Path, words: &[&str], input: &str) -> Said {
        let mut command = self.cowork(desk, words);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().expect("the program is there");
        child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
        Said::of(&child.wait_with_output().expect("it ends"))
    }

    /// The one session that an agent has in a folder.
    #[track_caller]
    pub(crate) fn session_in(&self, desk: &Path) -> Value {
        let said = self.say(desk, &["ls", "--json"]).good();
        let all: Value = serde_json::from_str(&said).expect("it is JSON");
        let here = desk.to_str().expect("it is UTF-8");
        let mut found: Vec<&Value> = all.as_array().expect("a list").iter().collect();
        found.retain(|session| session["grants"][0]["path"] == here);
        assert_eq!(found.len(), 1, "{said}");
        found[0].clone()
    }

    /// Offers a package with one file in the registry.
    pub(crate) fn publish(&self, name: &str, file: &str, text: &str) {
        let about = json!({ "name": name, "version": "1.0.0" });
        self.folder.write(&format!("published/{name}/package/package.json"), about.to_string());
        let program = self.folder.write(&format!("published/{name}/package/{file}"), text);
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("it is ours");
        let at = self.folder.path().join("published").join(name);
        let archive = at.join("package.tgz");
        let (at, to) = (at.to_str().expect("UTF-8"), archive.to_str().expect("UTF-8"));
        run("tar", &["-czf", to, "-C", at, "package"]);
        let path = format!("/{name}/-/{name}-1.0.0.tgz");
        let version = json!({
            "name": name, "version": "1.0.0",
            "dist": { "tarball": format!("https://{REGISTRY}{path}") },
        });
        let listed = json!({
            "name": name, "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": version },
        });
        self.model.offer(&format!("/{name}"), listed.to_string().into_bytes());
        self.model.offer(&path, std::fs::read(&archive).expect("tar made it"));
    }

    /// Answers whoever asks for a path with these bytes.
    pub(crate) fn offer(&self, path: &str, bytes: Vec<u8>) {
        self.model.offer(path, bytes);
    }

    /// Requests that arrived at the models.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.model.seen()
    }

    /// A program of an agent from the registry, reached by a link in a folder of programs.
    pub(crate) fn install(&self, package: &str, program: &str, name: &str) {
        /// Whose turn it is to copy: each is copied once, for all worlds.
        static TURN: Mutex<()> = Mutex::new(());
        let from =
            std::env::var_os("COWORK_AGENTS").expect("`cargo xtask test` sets COWORK_AGENTS");
        let from = Path::new(&from).join("node_modules").join(package);
        let to = packages().join(package);
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        if std::fs::metadata(&to).is_err() {
            std::fs::create_dir_all(to.parent().expect("it is in a folder")).expect("it is ours");
            let (from, to) = (from.to_str().expect("UTF-8"), to.to_str().expect("UTF-8"));
            run("cp", &["-r", "--reflink=auto", from, to]);
            run("chmod", &["-R", "a+rX", to]);
        }
        drop(turn);
        let link = self.folder.path().join("bin").join(name);
        link_to(&to.join(program), &link);
    }

    /// Where a package was put.
    pub(crate) fn package(package: &str) -> String {
        packages().join(package).to_str().expect("UTF-8").to_owned()
    }

    /// Asserts that nothing that a session can read or has written holds a value.
    #[track_caller]
    pub(crate) fn nowhere(&self, desk: &Path, session: &str, value: &str) {
        let script = "env; cat /proc/[0-9]*/environ 2>/dev/null; \
                      find \"$HOME\" /tmp /run -type f -not -path '*/agent-*' -exec cat {} + 2>/dev/null";
        let said = self.say(desk, &["exec", session, "--", "sh", "-c", script]).good();
        assert!(said.contains("COWORK_SESSION"), "{said}");
        assert!(!said.contains(value), "the session holds the value");
        let mut folders = vec![self.folder.path().join("state"), desk.to_path_buf()];
        let mut looked = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let kind = entry.file_type().expect("it has a kind");
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() {
                    looked += 1;
                    let bytes = std::fs::read(entry.path()).unwrap_or_default();
                    let found = bytes.windows(value.len()).any(|part| part == value.as_bytes());
                    assert!(!found, "{} holds the value", entry.path().display());
                }
            }
        }
        assert!(looked > 10, "the files were looked at");
    }
}

fn variables(person: Person, folder: &Folder) -> Vec<(String, String)> {
    let at = |name: &str| folder.path().join(name).display().to_string();
    [
        ("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", at("bin"))),
        ("HOME", person.home().display().to_string()),
        ("LANG", "C.UTF-8".to_owned()),
        ("COWORK_RUNTIME_DIR", at("run")),
        ("COWORK_STATE_DIR", at("state")),
        ("COWORK_CONFIG_DIR", at("definitions")),
        ("COWORK_EXTRA_ROOTS", at("ca.pem")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The folder that packages of agents are copied to.
fn packages() -> PathBuf {
    cowork_testbed::programs().join("lib/node_modules")
}

fn daemon(person: Person, network: &str, folder: &Folder) -> (Child, ChildStdin) {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{network}"));
    command.args(["unshare", "--mount", "--propagation", "private", "sh", "-c"]);
    command.arg("mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"").arg("sh");
    command.arg(folder.path().join("hosts"));
    if person == Person::User {
        let uid = person.uid();
        command.arg("setpriv").args([format!("--reuid={uid}"), format!("--regid={uid}")]);
        command.arg("--clear-groups");
    }
    // It ends with this process, which holds its standard input.
    let script = "\"$1\" --stay >/dev/null 2>\"$2\" & server=$!; echo ready; cat >/dev/null; \
                  kill $server; wait";
    command.args(["bash", "-c", script, "bash"]);
    command.arg(cowork_testbed::programs().join("coworkd")).arg(folder.write("daemon.log", ""));
    command.env_clear().envs(variables(person, folder));
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = pipes.spawn().expect("it is installed");
    let mut said = String::new();
    let output = child.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut said).expect("it says something");
    assert_eq!(said, "ready\n");
    let stdin = child.stdin.take().expect("it is piped");
    (child, stdin)
}

/// A socket at the other end of the wire: made by a thread that has gone there.
fn listen(network: &str) -> TcpListener {
    let namespace = std::fs::File::open(format!("/run/netns/{network}")).expect("it was made");
    let bound = std::thread::spawn(move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("tests run as root");
        TcpListener::bind((THERE, 443)).expect("the address is there")
    });
    bound.join().expect("it ends")
}

/// Makes both networks and the wire between them.
fn wire(here: &str, there: &str) {
    for name in [here, there] {
        run("ip", &["netns", "add", name]);
        run("ip", &["-n", name, "link", "set", "lo", "up"]);
    }
    let veth = ["-n", here, "link", "add", "w0", "type", "veth", "peer", "name", "w1", "netns"];
    run("ip", &[&veth[..], &[there]].concat());
    for (name, device, address) in [(here, "w0", HERE), (there, "w1", THERE)] {
        run("ip", &["-n", name, "address", "add", &format!("{address}/24"), "dev", device]);
        run("ip", &["-n", name, "link", "set", device, "up"]);
    }
    run("ip", &["-n", here, "route", "add", "default", "via", THERE]);
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("it is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}

/// An authority that only this world's daemon trusts, and a certificate with its key for the names.
fn certificates(folder: &Folder) -> (Vec<u8>, Vec<u8>) {
    let key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "the models' authority");
    let certificate = authority.self_signed(&key).expect("a certificate");
    folder.write("ca.pem", certificate.pem());
    let issuer = Issuer::new(authority, key);
    let mut server =
        CertificateParams::new(NAMES.map(ToOwned::to_owned).to_vec()).expect("they are names");
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().expect("a key");
    let certificate = server.signed_by(&key, &issuer).expect("a certificate");
    (certificate.der().to_vec(), key.serialize_der())
}

fn private(folder: &Path) {
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700)).expect("it is ours");
}

fn link_to(to: &Path, link: &Path) {
    drop(std::fs::remove_file(link));
    std::os::unix::fs::symlink(to, link).expect("the folder is ours");
}
