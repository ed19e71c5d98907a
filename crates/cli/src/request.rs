//! From options to the request for a session: folders are opened, names chosen, limits checked.

use crate::arguments::SessionOptions;
use crate::failure::Failure;
use cowork_policy::plan::{GrantRequest, Home, SessionRequest, Strictness};
use cowork_policy::seccomp::Debugging;
use cowork_policy::{Access, GrantName, GrantSpec, HostPath, Limit, Limits, SessionId};
use cowork_sandbox::folder::{Folder, FolderError};
use std::path::{Path, PathBuf};

/// Builds the request, or says what is wrong with the options.
pub(crate) fn build(options: &SessionOptions) -> Result<SessionRequest, Failure> {
    let places = Places::find();
    let mut grants = Vec::new();
    for spec in wanted(options)? {
        let grant = grant(&spec, &places)?;
        add(&mut grants, grant)?;
    }
    if let Some(outputs) = &options.outputs {
        let folder = open(outputs)?;
        places.check(&folder)?;
        let path = host_path(folder.path())?;
        let name = GrantName::outputs();
        grants.push(GrantRequest { path, folder: folder.identity(), access: Access::Write, name });
    }
    let size = cowork_sandbox::host::size();
    let limits = limits(options, Limits::scaled_to(&size));
    limits.check(&size).map_err(|error| {
        Failure::input(error.to_string(), "see `cowork run --help` for the limits")
    })?;
    Ok(SessionRequest {
        id: options.id.clone().map_or_else(new_id, Ok)?,
        profile: options.profile,
        debugging: if options.debugger { Debugging::Allowed } else { Debugging::Forbidden },
        grants,
        limits,
        strictness: if options.best_effort { Strictness::BestEffort } else { Strictness::Enforce },
        home: home(options)?,
    })
}

/// The grants that were named, or the current folder.
fn wanted(options: &SessionOptions) -> Result<Vec<GrantSpec>, Failure> {
    if !options.grants.is_empty() || options.no_grants {
        return Ok(options.grants.clone());
    }
    let here = GrantSpec::parse("./".as_ref()).map_err(|error| {
        Failure::host("cannot grant the current folder", Some(error.to_string()))
    })?;
    Ok(vec![here])
}

fn grant(spec: &GrantSpec, places: &Places) -> Result<GrantRequest, Failure> {
    let folder = open(&expand(spec.path(), places))?;
    places.check(&folder)?;
    let path = host_path(folder.path())?;
    let name = match spec.name() {
        Some(name) => name.clone(),
        None => GrantName::from_path(&path).map_err(|error| {
            let hint = format!("give it a name: `--grant {}=name`", path.as_path().display());
            Failure::input(format!("the folder cannot be named after itself: {error}"), hint)
        })?,
    };
    Ok(GrantRequest { path, folder: folder.identity(), access: spec.access(), name })
}

fn add(grants: &mut Vec<GrantRequest>, grant: GrantRequest) -> Result<(), Failure> {
    if let Some(other) = grants.iter().find(|other| other.name == grant.name) {
        let sentence = format!(
            "two folders would be named `{}`: `{}` and `{}`",
            grant.name,
            other.path.as_path().display(),
            grant.path.as_path().display()
        );
        let hint = format!("name one of them: `--grant {}=other`", grant.path.as_path().display());
        return Err(Failure::input(sentence, hint));
    }
    grants.push(grant);
    Ok(())
}

/// `~` at the start means the user's home, for shells that do not expand it inside a word.
fn expand(path: &Path, places: &Places) -> PathBuf {
    match (path.strip_prefix("~"), &places.home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_path_buf(),
    }
}

fn open(path: &Path) -> Result<Folder, Failure> {
    Folder::open(path).map_err(|error| match error {
        FolderError::Missing { .. } => {
            Failure::input(error.to_string(), "check the path, or make the folder first")
        }
        FolderError::NotFolder { .. } => {
            Failure::input(error.to_string(), "grant the folder that contains it")
        }
        FolderError::Kernel { ref source, .. } => {
            let cause = source.to_string();
            Failure::input(error.to_string(), "grant a folder that you can open").with_cause(cause)
        }
    })
}

fn host_path(path: &Path) -> Result<HostPath, Failure> {
    HostPath::new(path).map_err(|error| {
        Failure::input(format!("`{}` cannot be granted: {error}", path.display()), "")
    })
}

/// Places whose grant would give away more than a project.
struct Places {
    /// The user's home, as it is named.
    home: Option<PathBuf>,
    /// The same, as named and as it really lies.
    homes: Vec<PathBuf>,
    /// The folder that cowork keeps its own state in, likewise.
    states: Vec<PathBuf>,
}

impl Places {
    fn find() -> Self {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        let home = home.or_else(home_by_id);
        let state = std::env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty());
        let state = state.map(PathBuf::from);
        let state = state.or_else(|| home.as_ref().map(|home| home.join(".local/state")));
        let state = state.map(|state| state.join("cowork"));
        let both = |path: Option<&PathBuf>| {
            path.into_iter().flat_map(|path| [path.clone(), resolve(path)]).collect()
        };
        Self { homes: both(home.as_ref()), states: both(state.as_ref()), home }
    }

    fn check(&self, folder: &Folder) -> Result<(), Failure> {
        let path = folder.path();
        if is_interface(folder) {
            return Err(Failure::input(
                format!(
                    "`{}` is an interface of the kernel, not a folder of files",
                    path.display()
                ),
                "grant a folder of files",
            ));
        }
        if path == Path::new("/") {
            return Err(Failure::input(
                "the root folder cannot be granted: it is the whole machine",
                "grant the folders that the work needs",
            ));
        }
        let is_home = self
            .homes
            .iter()
            .any(|home| Folder::open(home).is_ok_and(|home| home.identity() == folder.identity()));
        if is_home {
            return Err(Failure::input(
                format!("`{}` is your home, with every key and password in it", path.display()),
                "go to a folder inside it, or grant one with `--grant FOLDER`",
            ));
        }
        if self.homes.iter().any(|home| home.starts_with(path)) {
            return Err(Failure::input(
                format!(
                    "`{}` contains your home, with every key and password in it",
                    path.display()
                ),
                "grant a folder inside it",
            ));
        }
        if self.states.iter().any(|state| state.starts_with(path) || path.starts_with(state)) {
            return Err(Failure::input(
                format!("`{}` holds cowork's own state", path.display()),
                "grant another folder: a session must not see or change the record of sessions",
            ));
        }
        Ok(())
    }
}

/// Whether a folder lies in a file system that controls the kernel instead of storing files.
fn is_interface(folder: &Folder) -> bool {
    /// `proc`, `sysfs`, `cgroup`, `cgroup2`, `devpts`, `debugfs`, `tracefs`, `securityfs`, `bpf`.
    const INTERFACES: [i64; 9] = [
        0x9fa0,
        0x6265_6572,
        0x0027_e0eb,
        0x6367_7270,
        0x1cd1,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
        0xcafe_4a11,
    ];
    rustix::fs::fstatfs(folder).is_ok_and(|stat| INTERFACES.contains(&stat.f_type))
}

/// The home of this process's user, for a caller without `HOME`.
fn home_by_id() -> Option<PathBuf> {
    let own = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut fields = users.lines().map(|line| line.split(':'));
    fields.find_map(|mut user| (user.nth(2)? == own).then(|| user.nth(2).map(PathBuf::from))?)
}

/// Where a path leads now, free of symbolic links; what does not exist stays as it is named.
fn resolve(path: &Path) -> PathBuf {
    match (Folder::open(path), path.parent(), path.file_name()) {
        (Ok(folder), ..) => folder.path().to_path_buf(),
        (Err(_), Some(parent), Some(name)) => resolve(parent).join(name),
        (Err(_), ..) => path.to_path_buf(),
    }
}

fn home(options: &SessionOptions) -> Result<Home, Failure> {
    let Some(path) = &options.home else { return Ok(Home::Memory) };
    match rustix::fs::mkdirat(rustix::fs::CWD, path, rustix::fs::Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => {
            let sentence = format!("cannot make the folder `{}` for the home", path.display());
            return Err(Failure::host(sentence, Some(std::io::Error::from(errno).to_string())));
        }
    }
    let folder = open(path)?;
    Places::find().check(&folder)?;
    host_path(folder.path()).map(Home::Folder)
}

fn limits(options: &SessionOptions, defaults: Limits) -> Limits {
    fn pick<T: Copy>(asked: Option<T>, default: Limit<T>) -> Limit<T> {
        asked.map_or(default, Limit::asked)
    }
    Limits {
        processes: pick(options.processes, defaults.processes),
        memory: pick(options.memory, defaults.memory),
        cpus: pick(options.cpus, defaults.cpus),
        open_files: pick(options.open_files, defaults.open_files),
        scratch: pick(options.scratch, defaults.scratch),
        wall: options.timeout,
    }
}

fn new_id() -> Result<SessionId, Failure> {
    let mut entropy = [0; 8];
    rustix::rand::getrandom(&mut entropy, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Failure::host("cannot make up an id", Some(errno.to_string())))?;
    Ok(SessionId::from_entropy(u64::from_ne_bytes(entropy)))
}
