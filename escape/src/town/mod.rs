//! A small internet for one person's sessions: hosts with names, a name server, and a daemon beside it.
//!
//! Two networks with a wire between them. *There* is everybody else: a name server that knows every
//! name, one address that all allowed hosts share, as at a content network, one that everything else
//! has, and addresses that no name may lead to. *Here* is the computer that is defended: the daemon,
//! a proxy that believes everything, and something that listens on every address of its own. Attacks
//! made bare run here, so nothing leaves the machine, and whatever arrives is heard by an ear.

mod frames;
mod front;
mod house;
mod names;

use crate::scene::Lost;
use crate::stage::KIT;
use cowork_testbed::{Folder, Person};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The name server, and every host that rules allow.
pub(crate) const SHARED: Ipv4Addr = Ipv4Addr::new(11, 22, 33, 7);
/// Everybody else.
pub(crate) const OTHER: Ipv4Addr = Ipv4Addr::new(11, 22, 33, 8);
/// The same by the newer protocol.
pub(crate) const OTHER_6: Ipv6Addr = Ipv6Addr::new(0x2a00, 0x1122, 0x3344, 0, 0, 0, 0, 8);
/// The defended computer itself, by that protocol.
const HERE_6: Ipv6Addr = Ipv6Addr::new(0x2a00, 0x1122, 0x3344, 0, 0, 0, 0, 1);
/// The defended computer itself.
pub(crate) const HERE: Ipv4Addr = Ipv4Addr::new(11, 22, 33, 1);
/// A host of a private network.
pub(crate) const PRIVATE: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);
/// Where clouds tell a computer its credentials.
pub(crate) const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// What sessions may reach.
const POLICY: &str = include_str!("policy.toml");
/// The names that certificates are for.
const NAMES: [&str; 15] = [
    "open.example",
    "paths.example",
    "sync.example",
    "post.example",
    "looked.example",
    "quota.example",
    "api.example",
    "pin.example",
    "git.example",
    "renewed.example",
    "asked.example",
    "fleeting.example",
    "tardy.example",
    "denied.example",
    "*.wild.example",
];

/// A real credential. Sessions know a placeholder.
pub(crate) const VALUE: &str = "sk-test-4f6b2a9c7d1e8f3059ab";
/// The variable that holds one or the other.
pub(crate) const VARIABLE: &str = "API_KEY";
/// Secrets of the sessions, where each belongs, and what it is.
const SECRETS: [(&str, &[&str], &str); 4] = [
    ("swapped", &["--host", "api.example", "--mode", "swap", "--env", VARIABLE], VALUE),
    ("pinned", &["--host", "pin.example", "--mode", "pin", "--as", "bearer"], VALUE),
    ("git", &["--host", "git.example", "--mode", "swap", "--for", "git", "--user", "me"], VALUE),
    ("renewed", &["--host", "renewed.example", "--env", "RENEWED", "--oauth"], TOKENS),
];
/// Tokens that are renewed at a host that sessions may speak to.
const TOKENS: &str = "{\"access_token\":\"sk-test-access-1c0ffee5a7\",\
    \"refresh_token\":\"sk-test-refresh-77b1\",\"expires_at\":4102444800000,\
    \"token_url\":\"https://looked.example/oauth/token\"}";
/// What git on the bare host knows, as people keep it.
const GIT: &str = "git-credentials";

/// What arrived where, since it was last forgotten.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ears(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl Ears {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often an ear heard a text.
    pub(crate) fn count(&self, ear: &str, text: &str) -> usize {
        let all = self.all();
        let heard = all.get(ear).map(Vec::as_slice).unwrap_or_default();
        let windows = heard.windows(text.len().max(1));
        windows.filter(|window| window.eq_ignore_ascii_case(text.as_bytes())).count()
    }

    fn forget(&self) {
        self.all().clear();
    }

    /// Hears what a server tells: on each line an ear, and bytes in hexadecimal.
    fn follow(&self, output: impl BufRead + Send + 'static) {
        let ears = self.clone();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Some((ear, text)) = line.split_once(' ') else { continue };
                let digits = text.as_bytes().chunks_exact(2);
                let bytes = digits.filter_map(|pair| {
                    u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()
                });
                ears.all().entry(ear.to_owned()).or_default().extend(bytes);
            }
        });
    }
}

/// The small internet.
#[derive(Debug)]
pub(crate) struct Town {
    person: Person,
    folder: Folder,
    pub(crate) ears: Ears,
    proxy: String,
    /// Who is here; everything else ends with its standard input.
    house: u32,
    servers: Vec<(Child, ChildStdin)>,
    /// One session for each profile.
    sessions: Mutex<BTreeMap<&'static str, String>>,
}

impl Drop for Town {
    /// The daemon first: it finds its folder.
    fn drop(&mut self) {
        self.close();
        while let Some((mut server, stdin)) = self.servers.pop() {
            drop(stdin);
            cowork_sys::ignore(server.wait());
        }
    }
}

impl Town {
    pub(crate) fn new(person: Person) -> Result<Self, Lost> {
        let folder = Folder::new(person, "town");
        let ends = ["h", "t"].map(|end| {
            let who = if person == Person::Root { "r" } else { "u" };
            format!("cowork-{}-{who}{end}", std::process::id())
        });
        let [here, there] = &ends;
        wire(here, there)?;
        certify(&folder)?;
        folder.write("hosts", "127.0.0.1 localhost\n");
        folder.write("resolv.conf", format!("nameserver {SHARED}\noptions timeout:5 attempts:1\n"));
        folder.write("policy.toml", POLICY);
        folder.write(GIT, format!("https://me:{VALUE}@git.example\n"));
        for name in ["run", "state"] {
            use std::os::unix::fs::PermissionsExt;
            let path = folder.write(&format!("{name}/.keep"), "");
            let private = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(path.parent().unwrap_or(&path), private)?;
        }
        let own = std::env::current_exe()?;
        let (mut servers, ears) = (Vec::new(), Ears::default());
        let mut proxy = String::new();
        for (place, network) in [("there", there), ("here", here)] {
            let mut command = within(network, &folder);
            command.arg(&own).args(["town", place]).arg(folder.path());
            let (server, stdin, output, said) = start(&mut command)?;
            ears.follow(output);
            servers.push((server, stdin));
            proxy = said;
        }
        let house = servers.last().map_or(0, |(house, _)| house.id());
        let (server, stdin, _, _) = start(&mut daemon(person, &folder, here))?;
        servers.push((server, stdin));
        let sessions = Mutex::default();
        let town = Self { person, folder, ears, proxy, house, servers, sessions };
        // The networks live as long as the processes in them.
        for name in &ends {
            run("ip", &["netns", "delete", name])?;
        }
        town.wait_for_daemon()?;
        for (name, words, value) in SECRETS {
            town.tell(&[&["secret", "set", name], words].concat(), value)?;
        }
        Ok(town)
    }

    fn wait_for_daemon(&self) -> Result<(), Lost> {
        let begin = Instant::now();
        let socket = self.folder.path().join("run/api.sock");
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            if begin.elapsed() > Duration::from_secs(30) {
                return Err(Lost::new("the daemon did not start"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Forgets what was heard.
    pub(crate) fn hush(&self) {
        self.ears.forget();
    }

    /// What an attack is told beside the usual.
    pub(crate) fn words(&self) -> Vec<String> {
        vec![format!("proxy={}", self.proxy)]
    }

    /// The attacks' program, bare: the real credential is at hand, as it would be.
    pub(crate) fn bare(&self, who: Person, stand: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command.env(VARIABLE, VALUE).env("HOME", self.person.home());
        let known = self.folder.path().join(GIT).display().to_string();
        command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "credential.helper");
        command.env("GIT_CONFIG_VALUE_0", format!("store --file={known}"));
        command.arg(format!("--target={}", self.house)).args(["--net", "--mount"]);
        if who == Person::User {
            let id = who.uid();
            command.args(["setpriv", &format!("--reuid={id}"), &format!("--regid={id}")]);
            command.arg("--clear-groups");
        }
        command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(stand).arg(KIT);
        command
    }

    /// The same in the session of a profile, which has these folders.
    pub(crate) fn exec(&self, profile: &'static str, grants: &[String]) -> Result<Command, Lost> {
        let id = self.session(profile, grants)?;
        let mut command = self.cowork();
        command.args(["exec", "--no-stdin", &id, "--", KIT]);
        Ok(command)
    }

    /// The session of a profile, made with these folders if there is none.
    pub(crate) fn session(&self, profile: &'static str, grants: &[String]) -> Result<String, Lost> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = sessions.get(profile) {
            return Ok(id.clone());
        }
        let policy = self.folder.path().join("policy.toml").display().to_string();
        let mut words = vec!["new", "--profile", profile, "--guard", "off", "--policy", &policy];
        for (name, ..) in SECRETS {
            words.extend(["--secret", name]);
        }
        if self.person == Person::User {
            words.push("--best-effort");
        }
        words.extend(grants.iter().map(String::as_str));
        let id = self.tell(&words, "")?.trim().to_owned();
        sessions.insert(profile, id.clone());
        Ok(id)
    }

    /// Removes its sessions.
    pub(crate) fn close(&self) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        for id in std::mem::take(&mut *sessions).into_values() {
            cowork_sys::ignore(self.tell(&["rm", &id], ""));
        }
    }

    /// The sessions that there are.
    pub(crate) fn ids(&self) -> Vec<String> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.values().cloned().collect()
    }

    /// What is in the daemon's files, as text.
    pub(crate) fn kept(&self) -> String {
        let (mut folders, mut all) = (vec![self.folder.path().join("state")], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                    Ok(kind) if kind.is_file() => {
                        all.extend(std::fs::read(entry.path()).unwrap_or_default());
                    }
                    _ => {}
                }
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    /// `cowork` for this town's daemon.
    pub(crate) fn cowork(&self) -> Command {
        let mut command = self.person.cowork();
        command.envs(variables(&self.folder));
        command
    }

    /// What `cowork` says, which must succeed.
    pub(crate) fn tell(&self, words: &[&str], input: &str) -> Result<String, Lost> {
        let mut command = self.cowork();
        tell(command.args(words), input)
    }
}

/// What a command says that must succeed.
fn tell(command: &mut Command, input: &str) -> Result<String, Lost> {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read has its reasons, and says them.
        cowork_sys::ignore(stdin.write_all(input.as_bytes()));
    }
    let output = child.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(Lost::new(format!("{command:?}: {}", text(&output.stderr).replace('\n', " "))))
}

/// The servers of one of the networks, in a process of their own.
pub(crate) fn serve(mut words: impl Iterator<Item = String>) -> std::io::Result<()> {
    let place = words.next().unwrap_or_default();
    let folder = words.next().unwrap_or_default();
    if place == "here" {
        house::open()?;
    } else {
        front::open(Path::new(&folder))?;
    }
    // They end with their standard input.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).map(drop)
}

/// Tells the harness what an ear heard.
fn hear(ear: &str, bytes: &[u8]) {
    let digits = bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let mut output = std::io::stdout().lock();
    cowork_sys::ignore(writeln!(output, "{ear} {digits}").and_then(|()| output.flush()));
}

fn variables(folder: &Folder) -> [(&'static str, String); 4] {
    let at = |name: &str| folder.path().join(name).display().to_string();
    [
        ("COWORK_RUNTIME_DIR", at("run")),
        ("COWORK_STATE_DIR", at("state")),
        ("COWORK_EXTRA_ROOTS", at("ca.pem")),
        ("COWORK_IDLE", "600".to_owned()),
    ]
}

/// The daemon: it stays until its standard input ends.
fn daemon(person: Person, folder: &Folder, network: &str) -> Command {
    let mut command = within(network, folder);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    command.env("HOME", person.home()).env("LANG", "C.UTF-8").envs(variables(folder));
    if person == Person::User {
        let id = person.uid();
        command.args(["setpriv", &format!("--reuid={id}"), &format!("--regid={id}")]);
        command.arg("--clear-groups");
    }
    let script = "\"$0\" --stay >/dev/null 2>>\"$1\" & server=$!; echo ready; cat >/dev/null; \
                  kill $server; wait";
    command.args(["bash", "-c", script]).arg(cowork_testbed::programs().join("coworkd"));
    command.arg(folder.write("daemon.log", ""));
    command
}

type Started = (Child, ChildStdin, BufReader<std::process::ChildStdout>, String);

/// Starts something that says `ready` and perhaps one thing more.
fn start(command: &mut Command) -> Result<Started, Lost> {
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(stdin), Some(output)) = (server.stdin.take(), server.stdout.take()) else {
        return Err(Lost::new("a server has no streams"));
    };
    let (mut output, mut said) = (BufReader::new(output), String::new());
    output.read_line(&mut said)?;
    match said.trim().strip_prefix("ready") {
        Some(rest) => Ok((server, stdin, output, rest.trim().to_owned())),
        None => Err(Lost::new(format!("{command:?} did not start: {said}"))),
    }
}

/// A command in one of the networks, with the town's names.
fn within(network: &str, folder: &Folder) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{network}"));
    command.args(["unshare", "--mount", "--propagation", "private", "sh", "-c"]);
    let names = "mount --bind \"$1/hosts\" /etc/hosts && \
                 mount --bind \"$1/resolv.conf\" /etc/resolv.conf && shift && exec \"$@\"";
    command.arg(names).arg("sh").arg(folder.path());
    command
}

/// Makes both networks and the wire between them.
fn wire(here: &str, there: &str) -> Result<(), Lost> {
    for name in [here, there] {
        run("ip", &["netns", "add", name])?;
        run("ip", &["-n", name, "link", "set", "lo", "up"])?;
    }
    let words = ["-n", here, "link", "add", "w0", "type", "veth", "peer", "name", "w1", "netns"];
    run("ip", &[&words[..], &[there]].concat())?;
    let addresses = [
        (here, "w0", HERE, 24),
        (there, "w1", SHARED, 24),
        (there, "w1", OTHER, 24),
        (there, "lo", PRIVATE, 32),
        (there, "lo", METADATA, 32),
    ];
    for (name, device, address, length) in addresses {
        let address = format!("{address}/{length}");
        run("ip", &["-n", name, "address", "add", &address, "dev", device])?;
    }
    for (name, device, address) in [(here, "w0", HERE_6), (there, "w1", OTHER_6)] {
        // Nobody else has it, so that it need not be asked who does.
        let address = format!("{address}/64");
        run("ip", &["-n", name, "address", "add", &address, "dev", device, "nodad"])?;
    }
    for (name, device) in [(here, "w0"), (there, "w1")] {
        run("ip", &["-n", name, "link", "set", device, "up"])?;
    }
    run("ip", &["-n", here, "route", "add", "default", "via", &SHARED.to_string()])
}

fn run(program: &str, arguments: &[&str]) -> Result<(), Lost> {
    tell(Command::new(program).args(arguments), "").map(drop)
}

/// An authority that only this town's daemon trusts, and a certificate for the names.
fn certify(folder: &Folder) -> Result<(), Lost> {
    let failed = |error: rcgen::Error| Lost::new(format!("no certificate: {error}"));
    let key = KeyPair::generate().map_err(failed)?;
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "the town");
    folder.write("ca.pem", authority.self_signed(&key).map_err(failed)?.pem());
    let issuer = Issuer::new(authority, key);
    let names = NAMES.map(ToOwned::to_owned).to_vec();
    let server = CertificateParams::new(names).map_err(failed)?;
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = server.signed_by(&key, &issuer).map_err(failed)?;
    folder.write("server.der", certificate.der());
    folder.write("server.key", key.serialize_der());
    Ok(())
}
