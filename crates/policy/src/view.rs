//! The host's own tree of files, seen by a session read-only at its own paths.
//!
//! What is asked for becomes one ordered list of places, in which each path is there once and comes
//! after those it lies below: what counts for a file is the deepest place above it. Folders of the
//! host that are interfaces, `/dev`, `/proc`, `/run` and `/sys`, are the session's own, as in every
//! session; its own folder, `/sessions`, takes the place of one of the host's by that name.

use crate::plan::{CANARY, SESSIONS};
use crate::{GrantName, HostPath};
use cowork_api::Text;
use cowork_api::files::{Kept, Rules};
use cowork_api::plan as wire;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most places of a view.
pub const MAX_PLACES: usize = 8192;
/// Most places of a view that are a mount of the host's.
pub const MAX_MOUNTS: usize = 400;

/// Names at the top that are the session's own, whatever the host has there.
const OWN: [&str; 5] = ["dev", "proc", "run", "sessions", "sys"];

/// Of those, the ones in which nothing of the host's can be shown. In `/run` some of it can.
const CLOSED: [&str; 4] = ["/dev", "/proc", "/sessions", "/sys"];

/// What the top of the host's tree is like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostTop {
    /// Its names.
    pub entries: Vec<(Text, Entry)>,
    /// Where the file really lies that names the servers for names, if there is one.
    pub resolver: Option<HostPath>,
    /// The same of the file with names of hosts.
    pub hosts: Option<HostPath>,
}

/// What a name at the top of the host's tree is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A folder.
    Folder,
    /// A file.
    File,
    /// A link.
    Link(Text),
}

/// What the user asked for. A path counts with everything below it.
#[derive(Clone, Debug, Default)]
pub struct ViewRequest {
    /// Of these nothing is seen.
    pub hidden: Vec<HostPath>,
    /// These are seen read-only all the same.
    pub shown: Vec<(HostPath, wire::Identity)>,
    /// These can be changed.
    pub writable: Vec<WritableRequest>,
    /// These are private folders in memory.
    pub scratch: Vec<HostPath>,
    /// These files have other contents.
    pub replaced: Vec<(HostPath, Vec<u8>)>,
}

/// A place that can be changed, as it was when the user named it.
#[derive(Clone, Debug)]
pub enum WritableRequest {
    /// A file or folder, without a record.
    Direct {
        /// Where.
        path: HostPath,
        /// Which.
        file: wire::Identity,
    },
    /// A folder, by way of the broker.
    Write {
        /// Where.
        path: HostPath,
        /// Which.
        folder: wire::Identity,
        /// Its name among the session's folders.
        name: GrantName,
        /// Where its changes are recorded, if they are to be.
        store: Option<Kept>,
        /// What is allowed.
        rules: Rules,
    },
}

impl WritableRequest {
    fn path(&self) -> &HostPath {
        match self {
            Self::Direct { path, .. } | Self::Write { path, .. } => path,
        }
    }
}

/// Why a view cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// It would need walls that a nested session does not have.
    #[error("a session that shows the host's files has profile `strict`")]
    Nested,
    /// A path is named for two things.
    #[error("`{}` is named twice in the view", .0.display())]
    Twice(std::path::PathBuf),
    /// The whole tree cannot be changed or replaced.
    #[error("the host's tree as a whole can be hidden, and nothing else")]
    Whole,
    /// It lies where everything is the session's own.
    #[error("`{}` is the session's own, and nothing of the host's can be there", .0.display())]
    Closed(std::path::PathBuf),
    /// It lies in another one whose changes are recorded too.
    #[error(
        "`{}` lies in `{}`, whose changes are recorded already",
        .inner.display(), .outer.display()
    )]
    Inside {
        /// The one below.
        inner: std::path::PathBuf,
        /// The one above.
        outer: std::path::PathBuf,
    },
    /// There are too many places.
    #[error("a view has at most {MAX_PLACES} places, and {MAX_MOUNTS} that are shown or writable")]
    TooMany,
}

/// Shows a session the host's tree. Its plan is one that [`crate::plan::compile`] made.
pub fn show_host(
    plan: &mut wire::SessionPlan,
    view: &ViewRequest,
    host: &HostTop,
) -> Result<(), ViewError> {
    if plan.profile != wire::Profile::Strict {
        return Err(ViewError::Nested);
    }
    let entries: Vec<_> = host.entries.iter().filter(|(name, _)| !is_own(name)).collect();
    let trees: Vec<Text> = entries
        .iter()
        .filter(|(_, entry)| !matches!(entry, Entry::Link(_)))
        .map(|(name, _)| at_top(name))
        .collect();
    let places = places(view, host, &trees)?;
    plan.root = root(std::mem::take(&mut plan.root), &entries);
    plan.own.retain(is_needed);
    plan.walls = walls(&trees, &places);
    plan.door = door(&places, &plan.grants);
    plan.view = wire::View::Host(wire::HostView { trees, places });
    Ok(())
}

fn is_own(name: &[u8]) -> bool {
    OWN.iter().any(|own| own.as_bytes() == name)
        || CANARY.strip_prefix(b"/").is_some_and(|canary| canary == name)
}

fn at_top(name: &[u8]) -> Text {
    [b"/", name].concat()
}

/// The shared part of the root: the session's own folders, and mount points for the host's.
fn root(own: Vec<wire::RootStep>, entries: &[&(Text, Entry)]) -> Vec<wire::RootStep> {
    let mut steps: Vec<_> = own
        .into_iter()
        .filter(|step| {
            let (wire::RootStep::Folder { at, .. }
            | wire::RootStep::Link { at, .. }
            | wire::RootStep::File { at, .. }
            | wire::RootStep::System { at, .. }
            | wire::RootStep::Device { at, .. }) = step;
            let top = at.split(|byte| *byte == b'/').nth(1).unwrap_or_default();
            is_own(top)
        })
        .collect();
    steps.push(wire::RootStep::Folder { at: "/sys".into(), mode: 0o555 });
    steps.extend(entries.iter().map(|(name, entry)| {
        let at = at_top(name);
        match entry {
            Entry::Folder => wire::RootStep::Folder { at, mode: 0o755 },
            Entry::File => wire::RootStep::File { at, contents: Vec::new() },
            Entry::Link(to) => wire::RootStep::Link { at, to: to.clone() },
        }
    }));
    steps
}

/// Whether a step of the session's own part lies in a folder that is its own here too.
fn is_needed(step: &wire::OwnStep) -> bool {
    let (wire::OwnStep::Processes { at }
    | wire::OwnStep::Terminals { at }
    | wire::OwnStep::Scratch { at, .. }
    | wire::OwnStep::Notes { at, .. }
    | wire::OwnStep::Home { at, .. }
    | wire::OwnStep::Grants { at, .. }
    | wire::OwnStep::Blank { at }
    | wire::OwnStep::Link { at, .. }) = step;
    is_own(at.split(|byte| *byte == b'/').nth(1).unwrap_or_default())
}

/// What resolves names in a session: what listens there, if it has a network.
const RESOLVER: &[u8] = b"nameserver 127.0.0.1\noptions timeout:1 attempts:1\n";
const HOSTS: &[u8] = b"127.0.0.1 localhost\n::1 localhost ip6-localhost\n";

/// Everything that is different from the host's tree, in order.
fn places(
    view: &ViewRequest,
    host: &HostTop,
    trees: &[Text],
) -> Result<Vec<wire::Place>, ViewError> {
    let mut places = Places::default();
    for (path, contents) in &view.replaced {
        places.add(path, wire::Shows::Contents(contents.clone()))?;
    }
    for path in &view.scratch {
        places.add(path, wire::Shows::Scratch)?;
    }
    for (path, file) in &view.shown {
        if !is_whole(path) {
            places.add(path, wire::Shows::Read(*file))?;
        }
    }
    for wanted in &view.writable {
        let shows = match wanted {
            WritableRequest::Direct { file, .. } => wire::Shows::Direct(*file),
            WritableRequest::Write { folder, name, store, rules, .. } => {
                wire::Shows::Write(Box::new(wire::Writable {
                    name: name.as_str().to_owned(),
                    folder: *folder,
                    store: store.clone(),
                    rules: rules.clone(),
                }))
            }
        };
        places.add(wanted.path(), shows)?;
    }
    let hidden = view.hidden.iter().filter(|path| !is_closed(path.as_path()));
    for path in hidden {
        if is_whole(path) {
            for tree in trees {
                places.0.entry(tree.clone()).or_insert(wire::Shows::Nothing);
            }
        } else {
            places.add(path, wire::Shows::Nothing)?;
        }
    }
    for (path, contents) in [(&host.resolver, RESOLVER), (&host.hosts, HOSTS)] {
        if let Some(path) = path.as_ref().filter(|path| !is_closed(path.as_path())) {
            let shows = wire::Shows::Contents(contents.to_vec());
            places.0.entry(bytes(path)).or_insert(shows);
        }
    }
    places.finish()
}

fn bytes(path: &HostPath) -> Text {
    path.as_path().as_os_str().as_bytes().into()
}

fn is_whole(path: &HostPath) -> bool {
    path.as_path() == Path::new("/")
}

fn is_closed(path: &Path) -> bool {
    path == Path::new("/run") || CLOSED.iter().any(|closed| path.starts_with(closed))
}

/// Places by their path; those below others come after them.
#[derive(Default)]
struct Places(BTreeMap<Text, wire::Shows>);

impl Places {
    fn add(&mut self, path: &HostPath, shows: wire::Shows) -> Result<(), ViewError> {
        if is_whole(path) {
            return Err(ViewError::Whole);
        }
        if is_closed(path.as_path()) {
            return Err(ViewError::Closed(path.as_path().to_path_buf()));
        }
        let nothing = shows == wire::Shows::Nothing;
        match self.0.insert(bytes(path), shows) {
            None => Ok(()),
            Some(wire::Shows::Nothing) if nothing => Ok(()),
            Some(_) => Err(ViewError::Twice(path.as_path().to_path_buf())),
        }
    }

    fn finish(self) -> Result<Vec<wire::Place>, ViewError> {
        let of_host = |shows: &&wire::Shows| {
            matches!(shows, wire::Shows::Read(_) | wire::Shows::Direct(_) | wire::Shows::Write(_))
        };
        if self.0.len() > MAX_PLACES || self.0.values().filter(of_host).count() > MAX_MOUNTS {
            return Err(ViewError::TooMany);
        }
        let recorded = self.0.iter().filter(|(_, shows)| matches!(shows, wire::Shows::Write(_)));
        let recorded: Vec<_> = recorded.map(|(path, _)| as_path(path)).collect();
        for (index, inner) in recorded.iter().enumerate() {
            let above = recorded.iter().take(index).find(|outer| inner.starts_with(outer));
            if let Some(outer) = above {
                let (inner, outer) = (inner.to_path_buf(), outer.to_path_buf());
                return Err(ViewError::Inside { inner, outer });
            }
        }
        Ok(self.0.into_iter().map(|(path, shows)| wire::Place { path, shows }).collect())
    }
}

fn as_path(path: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(path))
}

/// What Landlock allows: reading, and writing where a mount can be written to. What goes by way of
/// the broker needs no right.
fn walls(trees: &[Text], places: &[wire::Place]) -> Vec<wire::Wall> {
    let wall = |beneath: &[u8], right| wire::Wall { beneath: beneath.into(), right };
    let mut walls = vec![wall(b"/", wire::Right::List)];
    walls.extend(trees.iter().map(|tree| wall(tree, wire::Right::Read)));
    for path in ["/dev", "/proc", "/run", SESSIONS] {
        walls.push(wall(path.as_bytes(), wire::Right::Everything));
    }
    for place in places {
        match &place.shows {
            wire::Shows::Direct(_) | wire::Shows::Scratch => {
                walls.push(wall(&place.path, wire::Right::Everything));
            }
            wire::Shows::Nothing
            | wire::Shows::Contents(_)
            | wire::Shows::Read(_)
            | wire::Shows::Write(_) => {}
        }
    }
    walls
}

/// A session that changes nothing by way of its broker pays nothing for it.
fn door(places: &[wire::Place], grants: &[wire::Grant]) -> wire::Door {
    let brokered = places.iter().any(|place| matches!(place.shows, wire::Shows::Write(_)))
        || grants.iter().any(|grant| grant.access == wire::Access::Write);
    if brokered { wire::Door::Writes } else { wire::Door::Connections }
}

#[cfg(test)]
mod tests {
    use super::{Entry, HostTop, ViewError, ViewRequest, WritableRequest, show_host};
    use crate::plan::{HostSystem, SessionRequest, Strictness, compile};
    use crate::seccomp::{Debugging, Profile};
    use crate::{Bytes, GrantName, HostPath, HostSize, Limits, SessionId};
    use cowork_api::files::Rules;
    use cowork_api::plan::{Door, HostView, Identity, RootStep, SessionPlan, Shows, View};

    const FILE: Identity = Identity { device: 1, inode: 2 };

    fn path(text: &str) -> HostPath {
        HostPath::new(text).unwrap()
    }

    fn plan(profile: Profile) -> SessionPlan {
        let size = HostSize {
            cpus: 2,
            memory: Bytes::new(1 << 32),
            max_processes: 1000,
            max_open_files: 1000,
        };
        let request = SessionRequest {
            id: SessionId::from_entropy(1),
            profile,
            debugging: Debugging::Forbidden,
            grants: Vec::new(),
            limits: Limits::scaled_to(&size),
            strictness: Strictness::Enforce,
            home: crate::plan::Home::Memory,
        };
        compile(&request, &HostSystem::default())
    }

    fn top() -> HostTop {
        let folder = |name: &str| (name.into(), Entry::Folder);
        HostTop {
            entries: vec![
                folder("home"),
                folder("proc"),
                folder("run"),
                folder("usr"),
                ("bin".into(), Entry::Link("usr/bin".into())),
                ("swap".into(), Entry::File),
            ],
            resolver: Some(path("/run/resolve/stub.conf")),
            hosts: None,
        }
    }

    fn seen(view: &ViewRequest) -> (SessionPlan, HostView) {
        let mut plan = plan(Profile::Strict);
        show_host(&mut plan, view, &top()).unwrap();
        let View::Host(seen) = plan.view.clone() else { panic!("it shows the host") };
        (plan, seen)
    }

    fn refused(view: &ViewRequest) -> ViewError {
        show_host(&mut plan(Profile::Strict), view, &top()).unwrap_err()
    }

    fn write(at: &str) -> WritableRequest {
        let name: GrantName = "project".parse().unwrap();
        let rules = Rules::default();
        WritableRequest::Write { path: path(at), folder: FILE, name, store: None, rules }
    }

    #[test]
    fn interfaces_of_the_host_are_no_trees() {
        let (plan, seen) = seen(&ViewRequest::default());
        assert_eq!(seen.trees, [b"/home".to_vec(), b"/usr".to_vec(), b"/swap".to_vec()]);
        let systems = plan.root.iter().filter(|step| matches!(step, RootStep::System { .. }));
        assert_eq!(systems.count(), 0);
        let link = RootStep::Link { at: "/bin".into(), to: "usr/bin".into() };
        assert!(plan.root.contains(&link), "{:?}", plan.root);
        assert_eq!(plan.door, Door::Connections);
        let [resolver] = seen.places.as_slice() else { panic!("{:?}", seen.places) };
        assert_eq!(resolver.path, b"/run/resolve/stub.conf");
    }

    #[test]
    fn places_come_after_those_that_they_lie_below() {
        let view = ViewRequest {
            hidden: vec![path("/home/ada/site/.env"), path("/home/ada"), path("/proc/1")],
            writable: vec![write("/home/ada/site")],
            scratch: vec![path("/usr/a-b"), path("/usr/a")],
            ..ViewRequest::default()
        };
        let (plan, seen) = seen(&view);
        let paths: Vec<_> =
            seen.places.iter().map(|place| str::from_utf8(&place.path).unwrap()).collect();
        assert_eq!(
            paths,
            [
                "/home/ada",
                "/home/ada/site",
                "/home/ada/site/.env",
                "/run/resolve/stub.conf",
                "/usr/a",
                "/usr/a-b",
            ]
        );
        assert_eq!(plan.door, Door::Writes);
    }

    #[test]
    fn the_whole_tree_is_hidden_but_for_what_is_shown() {
        let view = ViewRequest {
            hidden: vec![path("/")],
            shown: vec![(path("/usr"), FILE)],
            ..ViewRequest::default()
        };
        let (_, seen) = seen(&view);
        let shows =
            |at: &[u8]| seen.places.iter().find(|place| place.path == at).map(|place| &place.shows);
        assert_eq!(shows(b"/usr"), Some(&Shows::Read(FILE)));
        assert_eq!(shows(b"/home"), Some(&Shows::Nothing));
        assert_eq!(shows(b"/swap"), Some(&Shows::Nothing));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let direct = |at: &str| WritableRequest::Direct { path: path(at), file: FILE };
        let twice = ViewRequest {
            hidden: vec![path("/home/ada")],
            writable: vec![direct("/home/ada")],
            ..ViewRequest::default()
        };
        assert_eq!(refused(&twice), ViewError::Twice("/home/ada".into()));
        let inside = ViewRequest {
            writable: vec![write("/home/ada/site/b"), write("/home/ada/site")],
            ..ViewRequest::default()
        };
        let inner = "/home/ada/site/b".into();
        let outer = "/home/ada/site".into();
        assert_eq!(refused(&inside), ViewError::Inside { inner, outer });
        let whole = ViewRequest { writable: vec![direct("/")], ..ViewRequest::default() };
        assert_eq!(refused(&whole), ViewError::Whole);
        let closed = ViewRequest { writable: vec![direct("/dev/null")], ..ViewRequest::default() };
        assert_eq!(refused(&closed), ViewError::Closed("/dev/null".into()));
        let nested = show_host(&mut plan(Profile::Nested), &ViewRequest::default(), &top());
        assert_eq!(nested, Err(ViewError::Nested));
    }
}
