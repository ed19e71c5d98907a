//! A world of two networks: one with the daemon, one with everything else, and a wire between them.
//!
//! The names of the world are in a `hosts` file that only the daemon and what it starts see. Nothing
//! leaves the machine, nothing on it is changed, and everything ends with the test.

pub(crate) use cowork_testbed::Said;
use cowork_testbed::{Folder, Person};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The address of the other network's servers.
const THERE: &str = "11.22.33.7";
const HERE: &str = "11.22.33.1";
const THERE_6: &str = "2a00:1450:7::7";
const HERE_6: &str = "2a00:1450:7::1";

/// Names that the other network's servers have.
pub(crate) const NAMES: [&str; 8] = [
    "web.example",
    "api.example",
    "sub.web.example",
    "denied.example",
    "git.example",
    "ssh.example",
    "db.example",
    "proxy.example",
];

/// What a world's daemon is told beside the usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Nothing: connections to every port arrive.
    EveryPort,
    /// Connections to ports that rules name arrive, as where the kernel lacks the rest.
    NamedPorts,
    /// It is behind a proxy that looks into TLS; it trusts the authority of that, and not the one of
    /// the servers.
    BehindProxy,
    /// The same over TLS.
    BehindTlsProxy,
    /// It is behind a proxy that leads everywhere, and to which one speaks SOCKS 5.
    BehindSocks,
    /// Its `/etc` is a folder of the world's: files in it can be replaced.
    OwnFiles,
}

/// The world of one person.
pub(crate) struct Site {
    person: Person,
    way: Way,
    pub(crate) folder: Folder,
    /// Their standard inputs end with this, and the servers with that.
    servers: Vec<(Child, ChildStdin)>,
}

impl Drop for Site {
    /// The daemon first: it finds its folder.
    fn drop(&mut self) {
        while let Some((mut server, stdin)) = self.servers.pop() {
            drop(stdin);
            drop(server.wait());
        }
    }
}

impl Site {
    /// The one world of a person in this process.
    pub(crate) fn of(person: Person) -> &'static Self {
        Self::by(person, Way::EveryPort)
    }

    /// The one world of a person and a way in this process.
    pub(crate) fn by(person: Person, way: Way) -> &'static Self {
        static SITES: [OnceLock<Site>; 4] = [const { OnceLock::new() }; 4];
        let slot = usize::from(person == Person::User) + 2 * usize::from(way == Way::NamedPorts);
        SITES.get(slot).expect("one world each").get_or_init(|| Self::new(person, way))
    }

    /// A world that no other test uses: its daemon may be killed.
    pub(crate) fn alone(person: Person) -> Self {
        Self::new(person, Way::EveryPort)
    }

    /// A world that no other test uses, whose daemon is told something.
    pub(crate) fn alone_by(way: Way, person: Person) -> Self {
        Self::new(person, way)
    }

    fn new(person: Person, way: Way) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let folder = Folder::new(person, "world");
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let [here, there] =
            ["a", "b"].map(|end| format!("cowork-{}-{number}{end}", std::process::id()));
        wire(&here, &there);
        write_certificates(&folder);
        let mut hosts: Vec<String> = NAMES.map(|name| format!("{THERE} {name}")).into();
        hosts.extend([
            "127.0.0.1 localhost inward.example".to_owned(),
            "::1 localhost".to_owned(),
            "10.1.2.3 private.example".to_owned(),
            "169.254.169.254 metadata.example".to_owned(),
            format!("{THERE_6} six.example"),
            format!("{HERE} own.example"),
        ]);
        folder.write("hosts", hosts.join("\n") + "\n");
        folder.write("resolv.conf", format!("nameserver {THERE}\noptions timeout:1 attempts:1\n"));
        let script = folder.write("server.js", include_str!("server.js"));
        let mut node = within(&there, &folder);
        node.args(["node".as_ref(), script.as_os_str(), folder.path().as_os_str()]);
        let servers = vec![
            start(&mut node),
            start(&mut ssh(&there, &folder)),
            start(&mut database(&there, &folder)),
        ];
        let mut command = match way {
            Way::OwnFiles => within_own_files(&here, &folder),
            _ => within(&here, &folder),
        };
        let (uid, programs) = (person.uid(), cowork_testbed::programs());
        if person == Person::User {
            command.arg("setpriv").args([format!("--reuid={uid}"), format!("--regid={uid}")]);
            command.arg("--clear-groups");
        }
        // It stays, whether or not it has something to do, until this process ends, and its sessions with
        // it; one that is killed is followed by another.
        let script = "while :; do \"$1\" --stay >/dev/null 2>>\"$2\" & echo $! >\"$3\"; wait $!; done \
                      & server=$!; echo ready; cat >/dev/null; kill $server; \
                      \"${1%d}\" daemon --stop 2>/dev/null || kill $(cat \"$3\"); wait";
        command.args(["bash", "-c", script, "bash"]);
        command.arg(programs.join("coworkd")).arg(folder.write("daemon.log", ""));
        command.arg(folder.write("run/daemon.pid", ""));
        let mut servers = servers;
        servers.push(start(command.env_clear().envs(variables(person, way, &folder))));
        let site = Self { person, way, folder, servers };
        site.wait_for_daemon();
        // The networks live as long as the processes in them.
        for name in [&here, &there] {
            run("ip", &["netns", "delete", name]);
        }
        site
    }

    /// Whether connections to every port arrive at the way out of its sessions.
    pub(crate) fn every_port_arrives(&self) -> bool {
        self.way != Way::NamedPorts
    }

    /// The process id of the world's web servers, in whose network everything else is.
    pub(crate) fn there(&self) -> u32 {
        self.servers.first().expect("they were started").0.id()
    }

    /// The process id of the daemon.
    pub(crate) fn daemon(&self) -> String {
        let pid = whole(&self.folder.path().join("run/daemon.pid"));
        String::from_utf8(pid).expect("it is a number").trim().to_owned()
    }

    fn wait_for_daemon(&self) {
        let begin = Instant::now();
        let socket = self.folder.path().join("run/api.sock");
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(begin.elapsed() < Duration::from_mins(1), "the daemon did not start");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the daemon, and waits for the next one.
    pub(crate) fn kill_daemon(&self) {
        let read = || whole(&self.folder.path().join("run/daemon.pid"));
        let before = read();
        let pid = String::from_utf8(before.clone()).expect("it is a number");
        run("kill", &["-KILL", pid.trim()]);
        let begin = Instant::now();
        while read() == before || read().is_empty() {
            assert!(begin.elapsed() < Duration::from_mins(1), "no other daemon came");
            std::thread::sleep(Duration::from_millis(10));
        }
        self.wait_for_daemon();
    }

    /// Sends a document to the daemon, as this world's person: the status, and what it answers.
    pub(crate) fn post(&self, target: &str, document: &Value) -> (String, Value) {
        let socket = self.folder.path().join("run/api.sock");
        let mut command = self.person.command("curl");
        command.args(["-sS", "-w", "\n%{http_code}", "-H", "content-type: application/json"]);
        command.arg("--unix-socket").arg(socket).args(["-d", &document.to_string()]);
        let said = command.arg(format!("http://cowork{target}")).output().expect("curl is there");
        let said = Said::of(&said).good();
        let (body, status) = said.rsplit_once('\n').expect("a status");
        (status.to_owned(), serde_json::from_str(body).unwrap_or_default())
    }

    /// `cowork`, as this world's person.
    pub(crate) fn cowork(&self, arguments: &[&str]) -> Command {
        let mut command = self.person.cowork();
        command.envs(variables(self.person, self.way, &self.folder)).args(arguments);
        command.current_dir(self.folder.path().join("desk"));
        command
    }

    /// What came of `cowork` with these words.
    #[track_caller]
    pub(crate) fn say(&self, arguments: &[&str]) -> Said {
        let output = self.cowork(arguments).stdin(Stdio::null()).output();
        Said::of(&output.expect("the program is there"))
    }

    /// The same with something on its standard input.
    #[track_caller]
    pub(crate) fn tell(&self, arguments: &[&str], input: &str) -> Said {
        let mut command = self.cowork(arguments);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().expect("the program is there");
        child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
        Said::of(&child.wait_with_output().expect("it ends"))
    }

    /// A shell script in a session that may reach something.
    #[track_caller]
    pub(crate) fn script(&self, options: &[&str], script: &str) -> Said {
        let mut arguments = vec!["run"];
        arguments.extend(options);
        arguments.extend(["--", "bash", "-c", script]);
        self.say(&arguments)
    }

    /// Requests that arrived at the servers and whose URL has a word, oldest first.
    pub(crate) fn arrived(&self, word: &str) -> Vec<Value> {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records
            .filter(|record| record["url"].as_str().is_some_and(|url| url.contains(word)))
            .collect()
    }

    /// A file that sessions of this world can use, in the folder that they are given.
    pub(crate) fn place(&self, name: &str, contents: &str) -> PathBuf {
        self.folder.write(&format!("desk/{name}"), contents)
    }
}

fn variables(person: Person, way: Way, folder: &Folder) -> Vec<(String, String)> {
    let at = |name: &str| folder.path().join(name).display().to_string();
    let home = person.home().display().to_string();
    let (parent, except) = match way {
        Way::BehindProxy => ("http://me:secret@proxy.example:3128", "api.example:8443"),
        Way::BehindTlsProxy => ("https://me:p%40ss%2f@proxy.example:3129", ""),
        Way::BehindSocks => ("socks5h://me:p%40ss%2F@proxy.example:1080", ""),
        Way::EveryPort | Way::NamedPorts | Way::OwnFiles => ("", ""),
    };
    let corporate = matches!(way, Way::BehindProxy | Way::BehindTlsProxy);
    let roots = if corporate { "corporate.pem" } else { "ca.pem" };
    let file = folder.write("parent-proxy", format!("{parent}\n"));
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("it is ours");
    let file = file.display().to_string();
    [
        ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".to_owned()),
        ("HOME", home),
        ("LANG", "C.UTF-8".to_owned()),
        ("COWORK_RUNTIME_DIR", at("run")),
        ("COWORK_STATE_DIR", at("state")),
        ("COWORK_EXTRA_ROOTS", at(roots)),
        // In a file, or in the variable itself.
        ("COWORK_PARENT_PROXY_FILE", if way == Way::BehindSocks { file } else { String::new() }),
        ("COWORK_PARENT_PROXY", if way == Way::BehindSocks { "" } else { parent }.to_owned()),
        ("COWORK_NO_PROXY", except.to_owned()),
        ("COWORK_CAPTURE", if way == Way::NamedPorts { "ports" } else { "all" }.to_owned()),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// Starts servers that say when they are ready, and end with their standard input.
fn start(command: &mut Command) -> (Child, ChildStdin) {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = pipes.spawn().expect("it is installed");
    let output = server.stdout.take().expect("it is piped");
    let mut output = BufReader::new(output);
    let mut said = String::new();
    while !said.ends_with("ready\n") {
        let more = output.read_line(&mut said).expect("the server says something");
        assert!(more > 0, "a server of the world did not start: {command:?}: {said}");
    }
    let stdin = server.stdin.take().expect("it is piped");
    (server, stdin)
}

/// Ends a server, which runs in the background of a script, when its standard input ends.
const UNTIL_EOF: &str = "echo ready; cat >/dev/null; kill $server; wait";

/// A real `sshd` with a repository, which one key opens.
fn ssh(network: &str, folder: &Folder) -> Command {
    let at = folder.path().display();
    let settings = format!(
        "Port 22\nHostKey {at}/host-key\nPermitRootLogin yes\nPasswordAuthentication no\n\
         AuthorizedKeysFile {at}/desk/key.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
    );
    folder.write("sshd.conf", settings);
    let script = format!(
        "set -e; cd {at}; mount -t tmpfs none /run; mkdir -m 755 /run/sshd; \
         for key in host-key desk/key; do ssh-keygen -q -t ed25519 -N '' -f $key; done; \
         chown {owner}:{owner} desk/key desk/key.pub; \
         git init -q --bare repository.git; git init -q copy; cd copy; echo text > file; git add file; \
         git -c user.name=me -c user.email=me@example commit -q -m first; \
         git push -q ../repository.git HEAD:refs/heads/main; cd ..; \
         git -C repository.git symbolic-ref HEAD refs/heads/main; \
         /usr/sbin/sshd -D -e -f sshd.conf 2>sshd.log & server=$!; sleep 0.3; {UNTIL_EOF}",
        owner = folder.owner().uid()
    );
    let mut command = within(network, folder);
    command.args(["bash", "-c", &script]);
    command
}

/// A real `postgres`, which believes whoever comes.
fn database(network: &str, folder: &Folder) -> Command {
    let at = folder.path().display();
    let script = format!(
        "set -e; bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1); mkdir -m 700 {at}/database; \
         chown 65534:65534 {at}/database; as='setpriv --reuid=65534 --regid=65534 --clear-groups'; \
         cd /; $as $bin/initdb -D {at}/database -U test -A trust -N >/dev/null; \
         echo 'host all all all trust' >> {at}/database/pg_hba.conf; \
         $as $bin/postgres -D {at}/database -h 0.0.0.0 -k '' >/dev/null 2>&1 & server=$!; \
         until $bin/pg_isready -q -h 127.0.0.1 -U test; do sleep 0.1; done; {UNTIL_EOF}"
    );
    let mut command = within(network, folder);
    command.args(["bash", "-c", &script]);
    command
}

/// A command in one of the networks, with the world's names.
fn within(network: &str, folder: &Folder) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{network}"));
    command.args(["unshare", "--mount", "--propagation", "private", "sh", "-c"]);
    let names = "mount --bind \"$1/hosts\" /etc/hosts && \
                 mount --bind \"$1/resolv.conf\" /etc/resolv.conf && shift && exec \"$@\"";
    command.arg(names).arg("sh").arg(folder.path());
    command
}

/// The same where the names are in files that can be replaced.
fn within_own_files(network: &str, folder: &Folder) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{network}"));
    command.args(["unshare", "--mount", "--propagation", "private", "sh", "-c"]);
    let names = "cp -a /etc \"$1/etc\" && rm \"$1/etc/hosts\" \"$1/etc/resolv.conf\" && \
                 cp \"$1/hosts\" \"$1/resolv.conf\" \"$1/etc\" && \
                 mount --bind \"$1/etc\" /etc && shift && exec \"$@\"";
    command.arg(names).arg("sh").arg(folder.path());
    command
}

/// Makes both networks and the wire between them.
fn wire(here: &str, there: &str) {
    for name in [here, there] {
        run("ip", &["netns", "add", name]);
        run("ip", &["-n", name, "link", "set", "lo", "up"]);
    }
    run(
        "ip",
        &["-n", here, "link", "add", "w0", "type", "veth", "peer", "name", "w1", "netns", there],
    );
    for (name, device, four, six) in [(here, "w0", HERE, HERE_6), (there, "w1", THERE, THERE_6)] {
        run("ip", &["-n", name, "address", "add", &format!("{four}/24"), "dev", device]);
        let six = format!("{six}/64");
        run("ip", &["-n", name, "-6", "address", "add", &six, "dev", device, "nodad"]);
        run("ip", &["-n", name, "link", "set", device, "up"]);
    }
    run("ip", &["-n", here, "route", "add", "default", "via", THERE]);
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().expect("it is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
}

/// Authorities that only this world's daemon trusts, and certificates for the names: one of the
/// servers, and one of the proxy.
fn write_certificates(folder: &Folder) {
    write_certificate(folder, "ca.pem", "server.pem", "server.key");
    write_certificate(folder, "corporate.pem", "corporate-server.pem", "corporate.key");
    folder.write("desk/.keep", "");
    for name in ["run", "state"] {
        let path = folder.write(&format!("{name}/.keep"), "");
        let parent = path.parent().expect("it lies in a folder");
        private(parent);
    }
}

fn write_certificate(folder: &Folder, root: &str, leaf: &str, leaf_key: &str) {
    let key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, format!("the test world {root}"));
    let certificate = authority.self_signed(&key).expect("a certificate");
    folder.write(root, certificate.pem());
    let issuer = Issuer::new(authority, key);
    let mut names: Vec<String> = NAMES.map(ToOwned::to_owned).into();
    names.extend(["six.example".to_owned(), THERE.to_owned()]);
    let mut server = CertificateParams::new(names).expect("they are names");
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().expect("a key");
    let certificate = server.signed_by(&key, &issuer).expect("a certificate");
    folder.write(leaf, certificate.pem());
    folder.write(leaf_key, key.serialize_pem());
}

fn private(folder: &Path) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).expect("it is ours");
}

/// Reads everything there is, for tests that look at a process's files.
pub(crate) fn whole(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(mut file) = std::fs::File::open(path) {
        drop(file.read_to_end(&mut bytes));
    }
    bytes
}
