//! Compiles what the user asked for, and what the host is like, into the plan of a session.
//!
//! The plan names every folder, file and device that will exist in the session. Nothing of the
//! host appears that is not on a list here or granted: the lists are the policy.

use crate::seccomp::{Debugging, Profile};
use crate::{Access, GrantName, HostPath, Limit, Limits, Origin, SessionId};
use cowork_api::Text;
use cowork_api::plan as wire;
use std::os::unix::ffi::OsStrExt;

/// A file at the root of every session that everybody may read and only Landlock forbids: PID 1
/// tries it to see whether the wall stands.
pub const CANARY: &[u8] = b"/.sealed";

/// The folder that sessions are in, in their own view.
pub const SESSIONS: &str = "/sessions";

/// Where commands are looked for in a session.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What the top of the host's file system is like, as far as programs need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSystem {
    /// Those of [`TOP`] that exist.
    pub top: Vec<(&'static str, TopEntry)>,
    /// Those of [`ETC`] that exist, by their path below `/etc`.
    pub etc: Vec<String>,
}

/// What a name at the top of the host's file system is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopEntry {
    /// A folder with the system's own files.
    Folder,
    /// A link to its place below `/usr`.
    Link(Text),
}

/// Names at the top of the file system that programs are started through. All but `usr` are links
/// where `/usr` is merged.
pub const TOP: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// What of the host's `/etc` a session sees: settings of the system's programs that hold no
/// secrets. A `*` stands for any rest of the name. Everything else of `/etc` does not exist, above
/// all: `passwd` and `shadow`, `ssh`, `ssl/private`, `gitconfig`, `pip.conf`, `npmrc`, `environment`,
/// which hold names, keys or tokens on some hosts.
pub const ETC: [&str; 20] = [
    "alternatives",
    "bash.bashrc",
    "chromium.d",
    "crypto-policies",
    "fonts",
    "inputrc",
    "java-*",
    "ld.so.cache",
    "localtime",
    "lsb-release",
    "mime.types",
    "os-release",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
    "vim",
];

/// Devices of a session. None of them stores anything or reaches hardware.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Variables of the caller that say how output should look, and nothing about the caller.
const ENVIRONMENT: [&str; 24] = [
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LC_ADDRESS",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
    "NO_COLOR",
    "TERM",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "TZ",
];

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct SessionRequest {
    /// Its id.
    pub id: SessionId,
    /// Its profile.
    pub profile: Profile,
    /// Whether debuggers work in it.
    pub debugging: Debugging,
    /// Folders to grant.
    pub grants: Vec<GrantRequest>,
    /// What it may use.
    pub limits: Limits,
    /// Whether limits that the host can only approximate are good enough.
    pub strictness: Strictness,
    /// Where its home is kept.
    pub home: Home,
}

/// How limits are meant that the user named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// The session does not start if one cannot be enforced.
    #[default]
    Enforce,
    /// The best that the host can do is good enough.
    BestEffort,
}

/// Where a session's home is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Home {
    /// In memory; it ends with the session.
    #[default]
    Memory,
    /// In a folder of the host.
    Folder(HostPath),
}

/// A folder to grant, as it was when the user named it.
#[derive(Clone, Debug)]
pub struct GrantRequest {
    /// Where it lies.
    pub path: HostPath,
    /// Which folder that was.
    pub folder: wire::Identity,
    /// What the session may do with it.
    pub access: Access,
    /// Its name in the session.
    pub name: GrantName,
    /// How its changes are recorded, if they are to be.
    pub writing: wire::Writing,
}

/// Compiles the plan of a session.
pub fn compile(request: &SessionRequest, host: &HostSystem) -> wire::SessionPlan {
    wire::SessionPlan {
        id: request.id.as_str().to_owned(),
        profile: match request.profile {
            Profile::Strict => wire::Profile::Strict,
            Profile::Nested => wire::Profile::Nested,
        },
        debugging: match request.debugging {
            Debugging::Forbidden => wire::Debugging::Forbidden,
            Debugging::Allowed => wire::Debugging::Allowed,
        },
        root: root(host),
        own: own(request),
        grants: request.grants.iter().map(grant).collect(),
        walls: match request.profile {
            Profile::Strict => walls(host),
            Profile::Nested => Vec::new(),
        },
        limits: limits(request),
        floor: floor(request.profile),
        door: door(request),
        view: wire::View::Own,
    }
}

/// A program that brings its own sandbox mounts folders anew inside, where no broker can follow. A
/// session whose folders are all direct has none to decide about, and pays nothing for it. Any other
/// folder may be made `rw` while the session runs.
fn door(request: &SessionRequest) -> wire::Door {
    let mut named = request.grants.iter().filter(|grant| !grant.name.is_reserved()).peekable();
    let native = named.peek().is_some() && named.all(|grant| grant.access == Access::Direct);
    match request.profile {
        Profile::Strict if !native => wire::Door::Writes,
        Profile::Strict | Profile::Nested => wire::Door::Connections,
    }
}

/// The session's folder, in its own view: its home and the folder its commands start in.
pub fn home_of(id: &SessionId) -> String {
    format!("{SESSIONS}/{id}")
}

/// The environment of a session's commands: what the session itself sets, then what of the
/// caller's is on the list, then what the user named. Later ones win.
pub fn environment(
    id: &SessionId,
    caller: impl IntoIterator<Item = (Text, Text)>,
    named: impl IntoIterator<Item = (Text, Text)>,
) -> Vec<Text> {
    let home = home_of(id);
    let own = [
        ("PATH", PATH.to_owned()),
        ("HOME", home.clone()),
        ("PWD", home.clone()),
        ("USER", "cowork".to_owned()),
        ("LOGNAME", "cowork".to_owned()),
        ("SHELL", "/bin/bash".to_owned()),
        ("TMPDIR", "/tmp".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("COWORK_SESSION", id.as_str().to_owned()),
        ("COWORK_HOME", home.clone()),
        ("COWORK_SCRATCH", "/tmp".to_owned()),
        ("COWORK_MNT", format!("{home}/mnt")),
        ("COWORK_OUTPUTS", format!("{home}/mnt/outputs")),
        ("COWORK_UPLOADS", format!("{home}/mnt/uploads")),
        ("COWORK_SKILLS", format!("{home}/mnt/skills")),
    ];
    let mut variables: Vec<(Text, Text)> =
        own.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    for (name, value) in passed_on(caller).chain(named) {
        variables.retain(|(known, _)| *known != name);
        variables.push((name, value));
    }
    variables.into_iter().map(|(name, value)| [name, value].join(&b'=')).collect()
}

/// Where a session asks for what it was not given.
pub const REQUESTS: &str = "/run/cowork.sock";

/// The name, below the folder of grants, of the folder that tells a session about itself.
pub const ABOUT: &str = ".cowork";

/// Gives a session a name at the top of its file system for one of its granted folders.
pub fn add_workspace(plan: &mut wire::SessionPlan, top: &GrantName, grant: &GrantName) {
    let to = format!("{SESSIONS}/{}/mnt/{grant}", plan.id).into();
    plan.root.push(wire::RootStep::Link { at: format!("/{top}").into(), to });
}

/// Shows a session the folder that tells it about itself, and links the text in it from its home.
/// What the session trusts is then `certs` in that folder, which whoever owns it can change while the
/// session runs.
pub fn add_about(plan: &mut wire::SessionPlan, path: &HostPath, folder: wire::Identity) {
    for step in &mut plan.own {
        if let wire::OwnStep::Link { at, to } = step
            && *at == TRUST.as_bytes()
        {
            *to = format!("{SESSIONS}/{}/mnt/{ABOUT}/certs", plan.id).into();
        }
    }
    let at = format!("{SESSIONS}/{}/COWORK.md", plan.id).into();
    let to = format!("mnt/{ABOUT}/COWORK.md").into();
    plan.own.push(wire::OwnStep::Link { at, to });
    plan.grants.push(wire::Grant {
        name: ABOUT.to_owned(),
        path: path.as_path().as_os_str().as_bytes().into(),
        folder,
        access: wire::Access::Read,
        writing: None,
    });
}

/// Those of the caller's variables that a session may see.
pub fn passed_on(
    caller: impl IntoIterator<Item = (Text, Text)>,
) -> impl Iterator<Item = (Text, Text)> {
    caller.into_iter().filter(|(name, _)| is_passed(name))
}

fn is_passed(name: &[u8]) -> bool {
    ENVIRONMENT.iter().any(|known| known.as_bytes() == name)
}

/// The part of the file system that every session shares.
fn root(host: &HostSystem) -> Vec<wire::RootStep> {
    let folder = |at: &str, mode| wire::RootStep::Folder { at: at.into(), mode };
    let file = |at: &str, text: &str| wire::RootStep::File { at: at.into(), contents: text.into() };
    let link = |at: &str, to: &str| wire::RootStep::Link { at: at.into(), to: to.into() };
    let mut steps = Vec::new();
    for (name, entry) in &host.top {
        let at: Text = format!("/{name}").into();
        steps.push(match entry {
            TopEntry::Folder => wire::RootStep::System { from: at.clone(), at },
            TopEntry::Link(to) => wire::RootStep::Link { at, to: to.clone() },
        });
    }
    for name in host.etc.iter().filter(|name| !CERTIFICATES.contains(&name.as_str())) {
        let at: Text = format!("/etc/{name}").into();
        steps.push(wire::RootStep::System { from: at.clone(), at });
    }
    steps.extend(trust(host));
    for (name, text) in ETC_FILES {
        steps.push(file(&format!("/etc/{name}"), text));
    }
    steps.push(folder(NOTES, 0o755));
    for name in ["passwd", "hosts", "hostname"] {
        steps.push(link(&format!("/etc/{name}"), &format!("session/{name}")));
    }
    steps.push(link("/etc/mtab", "/proc/self/mounts"));
    for name in DEVICES {
        let at: Text = format!("/dev/{name}").into();
        steps.push(wire::RootStep::Device { from: at.clone(), at });
    }
    steps.extend([
        link("/dev/fd", "/proc/self/fd"),
        link("/dev/stdin", "/proc/self/fd/0"),
        link("/dev/stdout", "/proc/self/fd/1"),
        link("/dev/stderr", "/proc/self/fd/2"),
        link("/dev/ptmx", "pts/ptmx"),
        folder("/dev/pts", 0o755),
        folder("/dev/shm", 0o755),
        folder("/proc", 0o755),
        folder("/tmp", 0o755),
        folder("/run", 0o755),
        folder("/var", 0o755),
        link("/var/tmp", "../tmp"),
        folder(SESSIONS, 0o755),
        wire::RootStep::File { at: CANARY.into(), contents: b"Landlock forbids this.\n".into() },
    ]);
    steps
}

/// Names of `/etc` below which programs look for the authorities that they trust, in the order in
/// which the host's own are taken from them. In a session they are links to one place.
pub const CERTIFICATES: [&str; 2] = ["ssl/certs", "pki/tls/certs"];

/// Where the host's certificates are.
const HOST_CERTIFICATES: &str = "/etc/ssl/certs.host";

/// The certificates of the host, and links to what is trusted in the session: a link of the
/// session's own. What is below `pki/ca-trust/extracted` is the host's alone.
fn trust(host: &HostSystem) -> Vec<wire::RootStep> {
    let link = |at: &str, to: &str| wire::RootStep::Link { at: at.into(), to: to.into() };
    let has = |name: &str| host.etc.iter().any(|known| known == name);
    let at: Text = HOST_CERTIFICATES.into();
    let source = CERTIFICATES.into_iter().find(|name| has(name));
    let mut steps = vec![match source {
        Some(name) => wire::RootStep::System { from: format!("/etc/{name}").into(), at },
        None => wire::RootStep::Folder { at, mode: 0o755 },
    }];
    steps.push(link("/etc/ssl/certs", "../session/certs"));
    // Browsers that bring their own authorities take further ones from a policy, kept beside.
    for browser in ["chromium", "opt/chrome"] {
        steps.push(link(&format!("/etc/{browser}/policies"), "/etc/ssl/certs/policies"));
    }
    if has("pki/tls/certs") {
        steps.push(link("/etc/pki/tls/certs", "../../session/certs"));
        // The file that OpenSSL reads where it is configured for these names.
        steps.push(link("/etc/pki/tls/cert.pem", "certs/ca-bundle.crt"));
    }
    steps
}

/// Where the files of `/etc` are that name the session; `/etc` links to them.
const NOTES: &str = "/etc/session";

/// The session's own link to what it trusts.
const TRUST: &str = "/etc/session/certs";

/// Files of `/etc` that are the same in every session.
const ETC_FILES: [(&str, &str); 5] = [
    ("group", "root:x:0:\ntty:x:5:\ncowork:x:1000:\nnogroup:x:65534:\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n"),
    // In a session without a network nothing listens there: a lookup fails at once.
    ("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"),
    ("profile", "# A session has no system-wide profile.\n"),
    ("shells", "/bin/sh\n/bin/bash\n"),
];

/// The part of the file system that is the session's own.
fn own(request: &SessionRequest) -> Vec<wire::OwnStep> {
    let home = home_of(&request.id);
    let mnt = format!("{home}/mnt");
    let scratch = |at: &str, mode, access| wire::OwnStep::Scratch { at: at.into(), mode, access };
    let reserved = [GrantName::outputs(), GrantName::uploads(), GrantName::skills()];
    let granted = |name: &GrantName| request.grants.iter().any(|grant| grant.name == *name);
    let folders: Vec<String> =
        reserved.iter().filter(|name| !granted(name)).map(|name| name.as_str().into()).collect();
    let mut steps = vec![
        wire::OwnStep::Processes { at: "/proc".into() },
        wire::OwnStep::Terminals { at: "/dev/pts".into() },
        scratch("/dev/shm", 0o1777, wire::Access::Write),
        scratch("/tmp", 0o1777, wire::Access::Write),
        scratch("/run", 0o755, wire::Access::Write),
        scratch(SESSIONS, 0o755, wire::Access::Read),
    ];
    if request.profile == Profile::Strict {
        // It lists the keys of whoever has the same user id. In `nested` nothing may cover a part of
        // `/proc`: the kernel would then refuse one of its own to a sandbox inside.
        steps.push(wire::OwnStep::Blank { at: "/proc/keys".into() });
    }
    // Up to here all sessions are alike.
    steps.extend([
        wire::OwnStep::Notes {
            at: NOTES.into(),
            files: vec![
                ("passwd".into(), passwd(&home).into()),
                ("hosts".into(), hosts(&request.id).into()),
                ("hostname".into(), format!("{}\n", request.id).into()),
            ],
        },
        wire::OwnStep::Link { at: TRUST.into(), to: HOST_CERTIFICATES.into() },
    ]);
    steps.push(match &request.home {
        Home::Memory => scratch(&home, 0o700, wire::Access::Write),
        Home::Folder(path) => wire::OwnStep::Home {
            from: path.as_path().as_os_str().as_bytes().into(),
            at: home.clone().into(),
        },
    });
    steps.push(wire::OwnStep::Grants { at: mnt.clone().into(), folders: folders.clone() });
    // Deliverables can be written. What is handed to the session cannot be changed by it: those
    // folders are part of the read-only folder of grants.
    if folders.iter().any(|name| name == GrantName::outputs().as_str()) {
        let outputs = GrantName::outputs();
        steps.push(scratch(&format!("{mnt}/{outputs}"), 0o755, wire::Access::Write));
    }
    steps
}

fn passwd(home: &str) -> String {
    format!(
        "root:x:0:0:root:/root:/usr/sbin/nologin\n\
         cowork:x:1000:1000:cowork:{home}:/bin/bash\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    )
}

fn hosts(id: &SessionId) -> String {
    format!("127.0.0.1 localhost {id}\n::1 localhost ip6-localhost\n")
}

/// A folder to grant, as the engine is told it.
pub fn grant(request: &GrantRequest) -> wire::Grant {
    wire::Grant {
        name: request.name.as_str().to_owned(),
        path: request.path.as_path().as_os_str().as_bytes().into(),
        folder: request.folder,
        access: match request.access {
            Access::Read => wire::Access::Read,
            Access::Write => wire::Access::Write,
            Access::Direct => wire::Access::Direct,
            Access::Staged => wire::Access::Staged,
        },
        writing: match request.access {
            Access::Read | Access::Direct => None,
            Access::Write | Access::Staged => Some(request.writing.clone()),
        },
    }
}

/// What Landlock allows. The mounts already leave nothing else; this is the second wall.
fn walls(host: &HostSystem) -> Vec<wire::Wall> {
    let wall = |beneath: &str, right| wire::Wall { beneath: beneath.into(), right };
    let mut walls = vec![wall("/", wire::Right::List), wall("/etc", wire::Right::Read)];
    for (name, entry) in &host.top {
        if *entry == TopEntry::Folder {
            walls.push(wall(&format!("/{name}"), wire::Right::Read));
        }
    }
    for path in ["/dev", "/proc", "/tmp", "/run", SESSIONS] {
        walls.push(wall(path, wire::Right::Everything));
    }
    walls
}

fn limits(request: &SessionRequest) -> wire::Limits {
    fn limit<T: Copy, U>(
        limit: &Limit<T>,
        strictness: Strictness,
        value: impl Fn(T) -> U,
    ) -> wire::Limit<U> {
        let demand = match (limit.origin(), strictness) {
            (Origin::Asked, Strictness::Enforce) => wire::Demand::Enforced,
            (Origin::Asked, Strictness::BestEffort) | (Origin::Default, _) => {
                wire::Demand::BestEffort
            }
        };
        wire::Limit { value: value(limit.value()), demand }
    }
    let asked = &request.limits;
    let strictness = request.strictness;
    wire::Limits {
        processes: limit(&asked.processes, strictness, |value| value),
        memory: limit(&asked.memory, strictness, super::limits::Bytes::get),
        cpus: limit(&asked.cpus, strictness, super::limits::Cpus::millis),
        open_files: limit(&asked.open_files, strictness, |value| value),
        scratch: limit(&asked.scratch, strictness, super::limits::Bytes::get),
        wall: asked.wall.map(|span| u64::try_from(span.duration().as_millis()).unwrap_or(u64::MAX)),
    }
}

/// A layer's name, for people.
pub fn layer_name(layer: wire::Layer) -> &'static str {
    match layer {
        wire::Layer::UserNamespace => "user namespace",
        wire::Layer::MountNamespace => "mount namespace",
        wire::Layer::PidNamespace => "pid namespace",
        wire::Layer::NetworkNamespace => "network namespace",
        wire::Layer::IpcNamespace => "ipc namespace",
        wire::Layer::UtsNamespace => "host name namespace",
        wire::Layer::CgroupNamespace => "cgroup namespace",
        wire::Layer::NoCapabilities => "no capabilities",
        wire::Layer::NoNewPrivileges => "no new privileges",
        wire::Layer::SystemCalls => "filter of system calls",
        wire::Layer::ConnectBroker => "broker for sockets in folders",
        wire::Layer::LandlockFiles => "Landlock: files",
        wire::Layer::LandlockScopes => "Landlock: signals, abstract sockets",
        wire::Layer::SealedInit => "PID 1 sealed",
        wire::Layer::OwnUser => "user id of its own",
    }
}

/// How to get a layer that is not in force, for people.
pub fn layer_fix(layer: wire::Layer) -> &'static str {
    match layer {
        wire::Layer::UserNamespace => {
            "let programs make user namespaces: `cowork doctor` names the setting that forbids it"
        }
        wire::Layer::MountNamespace => {
            "use a kernel with mount namespaces, and a container that lets programs make them"
        }
        wire::Layer::PidNamespace => "use a kernel with CONFIG_PID_NS",
        wire::Layer::NetworkNamespace => "use a kernel with CONFIG_NET_NS",
        wire::Layer::IpcNamespace => "use a kernel with CONFIG_IPC_NS",
        wire::Layer::UtsNamespace => "use a kernel with CONFIG_UTS_NS",
        wire::Layer::CgroupNamespace => "use a kernel with CONFIG_CGROUPS",
        wire::Layer::NoCapabilities | wire::Layer::NoNewPrivileges | wire::Layer::SealedInit => {
            "every kernel has it: this is a fault of cowork's, see SECURITY.md for how to report it"
        }
        wire::Layer::SystemCalls | wire::Layer::ConnectBroker => {
            "use a kernel with CONFIG_SECCOMP_FILTER, and a container that lets programs install \
             filters with a listener"
        }
        wire::Layer::LandlockFiles => {
            "use a kernel with CONFIG_SECURITY_LANDLOCK, and name `landlock` in `lsm=` on its \
             command line"
        }
        wire::Layer::LandlockScopes => "use Linux 6.12 or newer, with Landlock",
        wire::Layer::OwnUser => {
            "run cowork as root: only root gives sessions user ids of their own"
        }
    }
}

/// What to do about a command that the kernel does not execute.
pub fn not_executable(errno: i32) -> &'static str {
    const TOO_LONG: i32 = 7;
    const DENIED: i32 = 13;
    match errno {
        DENIED => "make it executable (`chmod +x`), or name the program that runs it: `sh FILE`",
        TOO_LONG => "its arguments and variables are too long together: give them in a file",
        _ => "it is no program for this host: build it here, or name the program that runs it",
    }
}

/// What to do about a file that is run by something that is not in the session.
pub const OTHER_INTERPRETER: &str =
    "programs of a session are those of the host's /usr: name one to run it, e.g. `sh FILE`";

/// The layers without which a session does not start.
fn floor(profile: Profile) -> Vec<wire::Layer> {
    let mut floor = vec![
        wire::Layer::UserNamespace,
        wire::Layer::MountNamespace,
        wire::Layer::PidNamespace,
        wire::Layer::NetworkNamespace,
        wire::Layer::IpcNamespace,
        wire::Layer::UtsNamespace,
        wire::Layer::CgroupNamespace,
        wire::Layer::NoCapabilities,
        wire::Layer::NoNewPrivileges,
        wire::Layer::SystemCalls,
        wire::Layer::ConnectBroker,
        wire::Layer::SealedInit,
    ];
    match profile {
        Profile::Strict => floor.push(wire::Layer::LandlockFiles),
        Profile::Nested => {}
    }
    floor
}

#[cfg(test)]
mod tests {
    use super::{HostSystem, SessionRequest, Strictness, add_about, compile};
    use crate::seccomp::{Debugging, Profile};
    use crate::{Bytes, HostPath, HostSize, Limits, SessionId};
    use cowork_api::plan::{Identity, OwnStep, RootStep, SessionPlan};

    fn plan(etc: &[&str]) -> SessionPlan {
        let size = HostSize {
            cpus: 2,
            memory: Bytes::new(1 << 32),
            max_processes: 1000,
            max_open_files: 1000,
        };
        let request = SessionRequest {
            id: SessionId::from_entropy(1),
            profile: Profile::Strict,
            debugging: Debugging::Forbidden,
            grants: Vec::new(),
            limits: Limits::scaled_to(&size),
            strictness: Strictness::Enforce,
            home: super::Home::Memory,
        };
        let etc = etc.iter().map(|name| (*name).to_owned()).collect();
        compile(&request, &HostSystem { top: Vec::new(), etc })
    }

    /// Everything of the shared part whose name has `certs` or `cert.pem` in it, as text.
    fn certificates(plan: &SessionPlan) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let steps = plan.root.iter().map(|step| match step {
            RootStep::System { from, at } => format!("{} is {}", text(at), text(from)),
            RootStep::Link { at, to } => format!("{} leads to {}", text(at), text(to)),
            RootStep::Folder { at, .. } => format!("{} is empty", text(at)),
            RootStep::File { at, .. } | RootStep::Device { at, .. } => text(at),
        });
        // What browsers are told lies beside them.
        steps.filter(|step| step.contains("certs") && !step.contains("policies")).collect()
    }

    /// Where the session's own link leads.
    fn trusted(plan: &SessionPlan) -> Vec<String> {
        let links = plan.own.iter().filter_map(|step| match step {
            OwnStep::Link { at, to } if *at == *b"/etc/session/certs" => Some(to),
            _ => None,
        });
        links.map(|to| String::from_utf8_lossy(to).into_owned()).collect()
    }

    #[test]
    fn the_names_that_programs_know_lead_to_the_sessions_own_link() {
        let debian =
            ["/etc/ssl/certs.host is /etc/ssl/certs", "/etc/ssl/certs leads to ../session/certs"];
        assert_eq!(certificates(&plan(&["ssl/certs"])), debian);
        let pki = [
            "/etc/pki/tls/certs leads to ../../session/certs",
            "/etc/pki/tls/cert.pem leads to certs/ca-bundle.crt",
        ];
        let both = ["pki/tls/certs", "ssl/certs"];
        assert_eq!(certificates(&plan(&both)), [debian, pki].concat());
        let only = ["/etc/ssl/certs.host is /etc/pki/tls/certs", debian[1]];
        assert_eq!(certificates(&plan(&["pki/tls/certs"])), [only, pki].concat());
        assert_eq!(certificates(&plan(&[])), ["/etc/ssl/certs.host is empty", debian[1]]);
    }

    #[test]
    fn the_sessions_own_link_leads_to_the_host_or_to_what_it_is_told() {
        let mut plan = plan(&["ssl/certs"]);
        assert_eq!(trusted(&plan), ["/etc/ssl/certs.host"]);
        let path = HostPath::new("/about").expect("it is absolute");
        add_about(&mut plan, &path, Identity { device: 1, inode: 2 });
        assert_eq!(trusted(&plan), [format!("/sessions/{}/mnt/.cowork/certs", plan.id)]);
    }
}
