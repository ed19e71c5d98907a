//! Places on the host whose grant gives away more than a project.
//!
//! A verdict is a sentence for the user, who may mean it all the same. Pure: the caller says where
//! the user's home and cowork's state lie, by every name they have.

use std::path::{Path, PathBuf};

/// What is known about the host's folders.
#[derive(Clone, Debug, Default)]
pub struct KnownPlaces {
    /// The user's home, as it is named and as it really lies.
    pub homes: Vec<PathBuf>,
    /// The folder that cowork keeps its own state in, likewise.
    pub states: Vec<PathBuf>,
}

/// Folders below a home that hold keys, tokens or passwords, and whose they are.
const STORES: [(&str, &str); 27] = [
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
    (".mozilla", "a browser's passwords and cookies"),
    (".thunderbird", "mail and its passwords"),
    (".pki", "private keys"),
    (".cargo", "tokens of package registries"),
    (".terraform.d", "tokens of Terraform"),
    (".claude", "an agent's tokens"),
    (".codex", "an agent's tokens"),
    (".gemini", "an agent's tokens"),
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
    if known.states.iter().any(|state| state.starts_with(path) || path.starts_with(state)) {
        return Some(format!("`{shown}` holds cowork's own state: the record of all sessions"));
    }
    for home in &known.homes {
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

#[cfg(test)]
mod tests {
    use super::{KnownPlaces, sensitive};
    use std::path::Path;

    fn verdict(path: &str) -> Option<String> {
        let known = KnownPlaces {
            homes: vec!["/home/ada".into(), "/srv/homes/ada".into()],
            states: vec!["/home/ada/.local/state/cowork".into()],
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
            "/home/ada/.local",
            "/home/ada/.local/state/cowork/sessions",
            "/etc",
            "/etc/ssl",
            "/var",
            "/run/user/1000",
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
            "/home/ada/.local/state/coworker",
            "/srv/www",
            "/tmp/x",
            "/opt/data",
            "/home/bob/work",
        ];
        for place in places {
            assert_eq!(verdict(place), None, "{place}");
        }
    }
}
