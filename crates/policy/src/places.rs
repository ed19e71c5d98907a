//! Places on the host whose grant gives away more than a project.
//!
//! A verdict is a sentence for the user, who may mean it all the same. Pure: the caller says where
//! homes and cowork's own folders lie, by every name they have.
//!
//! A folder with cowork's own programs is like any other as long as nobody can change them: they run
//! outside of every session. Where changes are judged one by one, rules refuse those of the programs
//! ([`program_rules`]); elsewhere the whole folder is sensitive ([`programs_at_risk`]).

use crate::Access;
use crate::files::Pattern;
use cowork_api::files::{NamePolicy, NameRule};
use std::path::{Path, PathBuf};

/// What is known about the host's folders.
#[derive(Clone, Debug, Default)]
pub struct KnownPlaces {
    /// The user's home, as it is named and as it really lies.
    pub homes: Vec<PathBuf>,
    /// Homes of other people, if this user can open them.
    pub others: Vec<PathBuf>,
    /// The folder that cowork keeps its own state in, likewise.
    pub states: Vec<PathBuf>,
    /// Folders in which the user's programs look for the socket of cowork's daemon, likewise.
    pub runtimes: Vec<PathBuf>,
}

/// Folders below a home that hold keys, tokens or passwords, and whose they are.
const STORES: [(&str, &str); 51] = [
    (".ssh", "SSH keys"),
    (".gnupg", "GnuPG keys"),
    (".aws", "keys of Amazon Web Services"),
    (".azure", "tokens of Azure"),
    (".config/gcloud", "tokens of Google Cloud"),
    (".kube", "keys of Kubernetes clusters"),
    (".docker", "passwords of container registries"),
    (".config/containers", "passwords of container registries"),
    (".password-store", "passwords"),
    (".local/share/keyrings", "the desktop's keyring"),
    (".local/share/kwalletd", "the desktop's keyring"),
    (".config/op", "tokens of 1Password"),
    (".config/Bitwarden", "passwords"),
    (".config/gh", "tokens of GitHub"),
    (".config/hub", "tokens of GitHub"),
    (".config/google-chrome", "a browser's passwords and cookies"),
    (".config/chromium", "a browser's passwords and cookies"),
    (".config/BraveSoftware", "a browser's passwords and cookies"),
    (".config/microsoft-edge", "a browser's passwords and cookies"),
    (".config/vivaldi", "a browser's passwords and cookies"),
    (".config/opera", "a browser's passwords and cookies"),
    (".config/mozilla", "a browser's passwords and cookies"),
    (".mozilla", "a browser's passwords and cookies"),
    (".librewolf", "a browser's passwords and cookies"),
    (".thunderbird", "mail and its passwords"),
    (".config/evolution", "mail and its passwords"),
    (".local/share/evolution", "mail and its passwords"),
    // Programs that are installed in a box of their own keep what they know there.
    (".var/app", "the data of Flatpak programs: passwords, cookies, tokens"),
    ("snap", "the data of snaps: passwords, cookies, tokens"),
    (".config/keepassxc", "the settings of a password manager"),
    (".config/Signal", "messages and their keys"),
    (".config/Slack", "tokens of Slack"),
    (".config/discord", "tokens of Discord"),
    (".config/rclone", "passwords of cloud storage"),
    (".config/doctl", "tokens of DigitalOcean"),
    (".config/hcloud", "tokens of Hetzner Cloud"),
    (".config/glab-cli", "tokens of GitLab"),
    (".config/sops", "private keys"),
    (".config/age", "private keys"),
    (".pki", "private keys"),
    (".cargo", "tokens of package registries"),
    (".terraform.d", "tokens of Terraform"),
    (".claude", "an agent's tokens"),
    (".codex", "an agent's tokens"),
    (".gemini", "an agent's tokens"),
    (".config/opencode", "an agent's tokens"),
    (".local/share/opencode", "an agent's tokens"),
    (".config/github-copilot", "an agent's tokens"),
    (".copilot", "an agent's tokens"),
    (".cursor", "an agent's tokens"),
    (".vault-token", "a token of Vault"),
];

/// Folders of the system that hold secrets, or that the host runs things from.
const SYSTEM: [(&str, &str); 7] = [
    ("/etc", "the system's settings and password hashes"),
    ("/root", "the home of the system's administrator"),
    ("/boot", "what the machine starts from"),
    ("/var/lib", "the state of the system's services"),
    ("/var/log", "the system's logs"),
    ("/var/spool", "mail, and tasks that the system runs"),
    ("/run", "sockets of the system's services"),
];

/// Why a folder is sensitive, as a sentence; `None` for an ordinary one. `path` is free of links.
pub fn sensitive(path: &Path, known: &KnownPlaces) -> Option<String> {
    let shown = path.display();
    if path == Path::new("/") {
        return Some("`/` is the whole machine".to_owned());
    }
    if known.homes.iter().any(|home| home == path) {
        return Some(format!("`{shown}` is your home, with every key and password in it"));
    }
    if known.homes.iter().any(|home| home.starts_with(path)) {
        return Some(format!("`{shown}` contains your home, with every key and password in it"));
    }
    if known.others.iter().any(|home| home == path) {
        return Some(format!("`{shown}` is somebody's home, with every key and password in it"));
    }
    if let Some(home) = known.others.iter().find(|home| home.starts_with(path)) {
        let home = home.display();
        return Some(format!("`{shown}` contains `{home}`, somebody's home with every key in it"));
    }
    if path == Path::new("/home") {
        return Some(
            "`/home` is where people's homes are, with their keys and passwords".to_owned(),
        );
    }
    if known.states.iter().any(|state| state.starts_with(path) || path.starts_with(state)) {
        return Some(format!("`{shown}` holds cowork's own state: the record of all sessions"));
    }
    // Whoever can put a socket there is spoken to in the daemon's place, secrets included.
    let leads_to = |place: &&PathBuf| place.starts_with(path) || path.starts_with(place);
    if let Some(runtime) = known.runtimes.iter().find(leads_to) {
        let place = runtime.display();
        return Some(format!("`{shown}` gives access to `{place}`: the socket of cowork's daemon"));
    }
    for home in known.homes.iter().chain(&known.others) {
        for (store, what) in STORES {
            let store = home.join(store);
            if store.starts_with(path) || path.starts_with(&store) {
                let place = store.display();
                return Some(format!("`{shown}` gives access to `{place}`: {what}"));
            }
        }
    }
    let in_home = known.homes.iter().any(|home| path.starts_with(home));
    for (place, what) in SYSTEM {
        if !in_home && (path.starts_with(place) || Path::new(place).starts_with(path)) {
            return Some(format!("`{shown}` gives access to `{place}`: {what}"));
        }
    }
    None
}

/// The programs that cowork is made of. They lie in one folder.
pub const PROGRAMS: [&str; 6] =
    ["cowork", "coworkd", "cowork-egress", "cowork-init", "cowork-keeper", "cowork-mcp"];

/// How a folder lies to the one that cowork's programs are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NearPrograms {
    /// The programs are at this path below it; an empty one if they are in the folder itself.
    Above(PathBuf),
    /// It lies in the folder with the programs.
    Inside,
}

/// Why a session with this access to a folder near cowork's programs could replace one of them.
pub fn programs_at_risk(path: &Path, near: &NearPrograms, access: Access) -> Option<String> {
    let shown = path.display();
    match (near, access) {
        // Staged changes are the user's to apply, who sees which of them are about programs.
        (_, Access::Read | Access::Staged) | (NearPrograms::Above(_), Access::Write) => None,
        (NearPrograms::Above(_), Access::Direct) => Some(format!(
            "`{shown}` holds cowork's own programs, which run outside of sessions, and changes of \
             a `direct` folder are not judged"
        )),
        // Files there may be other names of the programs.
        (NearPrograms::Inside, Access::Write | Access::Direct) => Some(format!(
            "`{shown}` lies among cowork's own programs, which run outside of sessions"
        )),
    }
}

/// Rules that refuse every change of cowork's programs, which are at `below` in a folder.
pub fn program_rules(below: &Path) -> Vec<NameRule> {
    let folder: Option<Vec<String>> = below.iter().map(|part| part.to_str().map(plain)).collect();
    let rule = |program: &&str| {
        let parts = folder.iter().flatten().map(String::as_str).chain([*program]);
        let exact = format!("/{}", parts.collect::<Vec<_>>().join("/"));
        // A path that no pattern can say is protected wherever a program of that name could be.
        let is_said = folder.is_some() && exact.parse::<Pattern>().is_ok();
        NameRule {
            pattern: if is_said { exact } else { (*program).to_owned() },
            policy: NamePolicy::Deny,
            reason: "it is one of cowork's own programs, which run outside of sessions".to_owned(),
        }
    };
    PROGRAMS.iter().map(rule).collect()
}

/// A name as a pattern that means nothing but it.
fn plain(name: &str) -> String {
    let special = |c: char| matches!(c, '*' | '?' | '[' | ']' | '!' | '\\');
    name.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::{KnownPlaces, NearPrograms, PROGRAMS, program_rules, programs_at_risk, sensitive};
    use crate::Access;
    use crate::files::Judge;
    use cowork_api::files::{NamePolicy, Rules};
    use std::path::Path;

    fn verdict(path: &str) -> Option<String> {
        let known = KnownPlaces {
            homes: vec!["/home/ada".into(), "/srv/homes/ada".into()],
            others: vec!["/srv/people/bob".into(), "/var/lib/carol".into()],
            states: vec!["/home/ada/.local/state/cowork".into()],
            runtimes: vec!["/run/user/1000/cowork".into(), "/tmp/cowork-1000".into()],
        };
        sensitive(Path::new(path), &known)
    }

    #[test]
    fn places_with_secrets_are_known_from_above_and_from_inside() {
        let places = [
            "/",
            "/home",
            "/home/ada",
            "/srv/homes/ada",
            "/srv",
            "/home/ada/.ssh",
            "/home/ada/.ssh/keys",
            "/srv/homes/ada/.gnupg",
            "/home/ada/.config",
            "/home/ada/.config/gcloud",
            "/home/ada/.config/microsoft-edge/Default",
            "/home/ada/.config/rclone",
            "/home/ada/.config/opencode",
            "/home/ada/.local/share/opencode",
            "/home/ada/.cursor",
            "/home/ada/snap",
            "/home/ada/snap/firefox/common/.mozilla",
            "/home/ada/.var",
            "/home/ada/.var/app/org.mozilla.firefox",
            "/home/ada/.local",
            "/home/ada/.local/state/cowork/sessions",
            "/etc",
            "/etc/ssl",
            "/var",
            "/run/user/1000",
            "/run/user/1000/cowork",
            "/tmp",
            "/tmp/cowork-1000",
            "/tmp/cowork-1000/deeper",
            "/srv/people",
            "/srv/people/bob",
            "/srv/people/bob/.ssh",
            "/srv/people/bob/.config",
            "/var/lib/carol",
            "/var/lib/carol/work",
        ];
        for place in places {
            assert!(verdict(place).is_some(), "{place}");
        }
    }

    #[test]
    fn projects_are_ordinary() {
        let places = [
            "/home/ada/site",
            "/home/ada/.sshx",
            "/home/ada/.config/nvim",
            "/home/ada/.config/rclones",
            "/home/ada/snaps",
            "/home/ada/.var/other",
            "/home/ada/.local/share/applications",
            "/home/ada/.local/state/coworker",
            "/srv/www",
            "/tmp/x",
            "/tmp/cowork-10000",
            "/srv/people/bob/work",
            "/srv/people/bobby",
            "/opt/data",
            "/home/bob/work",
        ];
        for place in places {
            assert_eq!(verdict(place), None, "{place}");
        }
    }

    #[test]
    fn programs_are_at_risk_where_changes_of_them_are_not_judged() {
        let above = NearPrograms::Above("target/release".into());
        for (near, access, at_risk) in [
            (&above, Access::Read, false),
            (&above, Access::Write, false),
            (&above, Access::Staged, false),
            (&above, Access::Direct, true),
            (&NearPrograms::Inside, Access::Read, false),
            (&NearPrograms::Inside, Access::Write, true),
            (&NearPrograms::Inside, Access::Staged, false),
            (&NearPrograms::Inside, Access::Direct, true),
        ] {
            let verdict = programs_at_risk(Path::new("/x"), near, access);
            assert_eq!(verdict.is_some(), at_risk, "{near:?} {access}");
        }
    }

    #[test]
    fn programs_cannot_be_changed_wherever_they_are_in_a_folder() {
        let deep = "d/".repeat(40);
        for below in ["", "target/release", "odd [1]*?!\\", "!x", &deep] {
            let rules = Rules { names: program_rules(Path::new(below)), ..Rules::default() };
            let judge = Judge::new(&rules);
            for program in PROGRAMS {
                let path = Path::new(below).join(program);
                let path = path.to_str().unwrap().as_bytes();
                assert_eq!(judge.name(path).policy, NamePolicy::Deny, "{below} {program}");
            }
            let other = Path::new(below).join("cowork.d");
            let other = judge.name(other.to_str().unwrap().as_bytes());
            assert_eq!(other.policy, NamePolicy::Allow, "{below}");
        }
        let rules = program_rules(Path::new("target/release"));
        let rules = Rules { names: rules, ..Rules::default() };
        let judge = Judge::new(&rules);
        assert_eq!(judge.name(b"src/cowork").policy, NamePolicy::Allow);
        assert!(judge.may_cover(b"target"));
    }
}
