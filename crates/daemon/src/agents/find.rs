//! Where the program of an agent lies on this host, and which folder a session must see to run it.
//!
//! The folder is the smallest that does: that of the program itself, or of the package it is in. Links
//! are followed to their end, so what is shown is what is run.

use cowork_agents::{Agent, Words};
use rustix::fs::{Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// What every session sees of the host.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Where a session looks for the interpreter of a script.
const NODES: [&str; 2] = ["/usr/bin/node", "/usr/local/bin/node"];

/// Where to look.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    /// Folders of `PATH`.
    pub(super) path: Vec<PathBuf>,
    /// The user's home.
    pub(super) home: Option<PathBuf>,
}

impl Search {
    /// Where the daemon's own user has programs.
    pub(super) fn of_daemon() -> Self {
        Self::along(std::env::var_os("PATH").as_deref())
    }

    /// Along a `PATH`.
    pub(super) fn along(path: Option<&OsStr>) -> Self {
        let folders = path.map(|path| std::env::split_paths(path).collect::<Vec<_>>());
        let mut path = folders.unwrap_or_default();
        path.retain(|folder| folder.is_absolute());
        Self { path, home: cowork_client::places::home() }
    }
}

/// A program, and what must be seen of the host to run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Where it really lies.
    pub(super) program: PathBuf,
    /// The folder that a session must be shown; what lies in `/usr` it sees already.
    pub(super) shown: Option<PathBuf>,
    /// A folder below that one, or that one, with programs that it starts.
    pub(super) helpers: Option<PathBuf>,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotFound {
    /// None of the names is anywhere.
    Nowhere,
    /// What the user named is not a program.
    NoProgram(PathBuf),
    /// It is a script for node, which no session would see.
    NoNode(PathBuf),
}

/// Looks for an agent's program.
pub(super) fn on_host(agent: &Agent, search: &Search) -> Result<Found, NotFound> {
    let places = agent.program.places.iter().filter_map(|place| match place.strip_prefix("~/") {
        Some(below) => search.home.as_ref().map(|home| home.join(below)),
        None => Some(PathBuf::from(place)),
    });
    let folders: Vec<PathBuf> = search.path.iter().cloned().chain(places).collect();
    let candidates =
        folders.iter().flat_map(|folder| agent.program.names.iter().map(|name| folder.join(name)));
    let mut failure = NotFound::Nowhere;
    for candidate in candidates.filter(|candidate| is_program(candidate)) {
        match at(agent, &candidate) {
            Ok(found) => return Ok(found),
            Err(why) => failure = why,
        }
    }
    Err(failure)
}

/// The program that the user named.
pub(super) fn named(agent: &Agent, path: &Path) -> Result<Found, NotFound> {
    if !path.is_absolute() || !is_program(path) {
        return Err(NotFound::NoProgram(path.to_path_buf()));
    }
    at(agent, path)
}

/// Where a path leads, free of links: the kernel's own name of what was opened.
fn real_path(path: &Path) -> Option<PathBuf> {
    let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let named = rustix::fs::readlink(link, Vec::new()).ok()?;
    Some(PathBuf::from(OsString::from_vec(named.into_bytes())))
}

fn is_program(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn at(agent: &Agent, path: &Path) -> Result<Found, NotFound> {
    let nothing = || NotFound::NoProgram(path.to_path_buf());
    let real = real_path(path).ok_or_else(nothing)?;
    if let Some(native) = platform(agent, &real) {
        return Ok(native);
    }
    if SYSTEM.iter().any(|top| real.starts_with(top)) {
        return Ok(Found { program: real, shown: None, helpers: None });
    }
    let package = Package::of(&real);
    if !is_script_for_node(&real) {
        let parent = real.parent().map(Path::to_path_buf);
        let shown = package.map(|package| package.folder).or(parent).ok_or_else(nothing)?;
        return Ok(Found { program: real, shown: Some(shown), helpers: None });
    }
    let package = package.ok_or_else(|| NotFound::NoNode(real.clone()))?;
    // A version of node in a folder of its own, with what was installed for it.
    let prefix = package.modules.parent().and_then(Path::parent);
    if let Some(prefix) = prefix.filter(|prefix| is_program(&prefix.join("bin/node"))) {
        let (shown, helpers) = (Some(prefix.to_path_buf()), Some(prefix.join("bin")));
        return Ok(Found { program: real, shown, helpers });
    }
    if !NODES.iter().any(|node| is_program(Path::new(node))) {
        return Err(NotFound::NoNode(real));
    }
    // What it needs is in its own folder, or beside it.
    let own = package.folder.join("node_modules").is_dir();
    let shown = if own { package.folder } else { package.modules };
    Ok(Found { program: real, shown: Some(shown), helpers: None })
}

/// The package of npm's that a program is in.
struct Package {
    /// The folder of all packages.
    modules: PathBuf,
    /// The folder of this one.
    folder: PathBuf,
}

impl Package {
    fn of(real: &Path) -> Option<Self> {
        let parts: Vec<Component<'_>> = real.components().collect();
        let at = parts.iter().rposition(|part| part.as_os_str() == "node_modules")?;
        let first = parts.get(at + 1)?;
        let scoped = first.as_os_str().as_encoded_bytes().starts_with(b"@");
        let end = at + if scoped { 3 } else { 2 };
        // The program itself is no package.
        if end >= parts.len() {
            return None;
        }
        let modules = parts.get(..=at)?.iter().collect();
        Some(Self { modules, folder: parts.get(..end)?.iter().collect() })
    }
}

/// The program for this machine that belongs to a package, which needs nothing else.
fn platform(agent: &Agent, real: &Path) -> Option<Found> {
    let install = agent.install.as_ref()?;
    let words = Words::of_machine();
    let name = words.put_into(install.platform.as_ref()?);
    let package = Package::of(real)?;
    let folders = [package.folder.join("node_modules").join(&name), package.modules.join(&name)];
    let folder = folders.iter().find_map(|folder| real_path(folder))?;
    let program = real_path(&folder.join(words.put_into(&install.program)))?;
    let inside = program.starts_with(&folder) && is_program(&program);
    let seen = SYSTEM.iter().any(|top| folder.starts_with(top));
    inside.then_some(Found { program, shown: (!seen).then_some(folder), helpers: None })
}

fn is_script_for_node(path: &Path) -> bool {
    let mut start = [0; 64];
    let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut start));
    let start = read.ok().and_then(|read| start.get(..read)).unwrap_or_default();
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.starts_with(b"#!") && line.windows(4).any(|window| window == b"node")
}

#[cfg(test)]
mod tests {
    use super::{Found, NotFound, Search, named, on_host};
    use cowork_agents::{Agent, built_in};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::{Path, PathBuf};

    /// A folder with programs, removed at the end.
    struct Host(PathBuf);

    impl Host {
        fn new(name: &str) -> Self {
            let name = format!("cowork-find-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn program(&self, at: &str, text: &str) -> PathBuf {
            let path = self.0.join(at);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        }

        fn link(&self, to: &Path, at: &str) {
            let path = self.0.join(at);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(to, path).unwrap();
        }

        fn search(&self) -> Search {
            Search { path: vec![self.0.join("path")], home: Some(self.0.join("home")) }
        }
    }

    impl Drop for Host {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn agent(name: &str) -> Agent {
        built_in().into_iter().find(|agent| agent.name == name).unwrap()
    }

    fn found(program: PathBuf, shown: PathBuf) -> Found {
        Found { program, shown: Some(shown), helpers: None }
    }

    #[test]
    fn a_link_leads_to_the_folder_of_versions() {
        let host = Host::new("versions");
        let version = host.program("home/.local/share/claude/versions/2.1.325", "\u{7f}ELF");
        host.link(&version, "home/.local/bin/claude");
        let folder = host.0.join("home/.local/share/claude/versions");
        assert_eq!(on_host(&agent("claude"), &host.search()), Ok(found(version, folder)));
    }

    #[test]
    fn of_a_package_the_program_for_this_machine_is_shown() {
        for below in ["lib/node_modules/@anthropic-ai/claude-code/node_modules", "lib/node_modules"]
        {
            let host = Host::new("package");
            let arch = cowork_agents::Words::of_machine().arch;
            let folder = format!("{below}/@anthropic-ai/claude-code-linux-{arch}");
            let native = host.program(&format!("{folder}/claude"), "\u{7f}ELF");
            let script = "lib/node_modules/@anthropic-ai/claude-code/cli.js";
            let script = host.program(script, "#!/usr/bin/env node\n");
            host.link(&script, "path/claude");
            let folder = host.0.join(folder);
            assert_eq!(on_host(&agent("claude"), &host.search()), Ok(found(native, folder)));
        }
    }

    #[test]
    fn a_script_for_node_brings_the_node_beside_it() {
        let host = Host::new("node");
        let script = "versions/v22/lib/node_modules/@google/gemini-cli/bundle/gemini.js";
        let script = host.program(script, "#!/usr/bin/env -S node --no-warnings\n");
        host.program("versions/v22/bin/node", "\u{7f}ELF");
        host.link(&script, "versions/v22/bin/gemini");
        let search = Search { path: vec![host.0.join("versions/v22/bin")], home: None };
        let found = on_host(&agent("gemini"), &search).unwrap();
        assert_eq!(found.shown, Some(host.0.join("versions/v22")));
        assert_eq!(found.helpers, Some(host.0.join("versions/v22/bin")));
    }

    #[test]
    fn what_lies_in_usr_is_seen_already() {
        let found = named(&agent("codex"), Path::new("/usr/bin/env")).unwrap();
        assert_eq!(found.shown, None);
    }

    #[test]
    fn what_is_no_program_is_not_found() {
        let host = Host::new("nothing");
        std::fs::create_dir_all(host.0.join("path/claude")).unwrap();
        assert_eq!(on_host(&agent("claude"), &host.search()), Err(NotFound::Nowhere));
        let text = host.0.join("text");
        std::fs::write(&text, "").unwrap();
        for path in [text, PathBuf::from("relative")] {
            assert_eq!(named(&agent("claude"), &path), Err(NotFound::NoProgram(path)));
        }
    }
}
