//! From options to the request for a session: folders are opened, names chosen, limits checked.
//!
//! The daemon checks all of it again. It is checked here first, where folders can be named as the
//! user typed them.

use crate::arguments::{Guard, Headless, Limits as LimitOptions, SessionOptions, WriteOptions};
use crate::failure::{Failure, note};
use crate::network;
use cowork_api::files::{Beyond, NamePolicy, Rules};
use cowork_api::plan::Writing;
use cowork_client::types::{
    self, NewGrant, NewSession, PlaceName, Raw, WantedCaps, WantedGuards, WantedLimits,
    WantedQuota, WantedSkills, WantedWrites,
};
use cowork_policy::files::{self, Setting, Settings};
use cowork_policy::plan::{GrantRequest, Home, SessionRequest, Strictness};
use cowork_policy::seccomp::{Debugging, Profile};
use cowork_policy::{
    Access, Bytes, GrantName, GrantSpec, HostPath, Limit, Limits, RelativePath, SessionId,
};
use cowork_sandbox::folder::{Folder, FolderError};
use cowork_sandbox::places::{Places, Verdict};
use rustix::process::{Resource, getrlimit};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Open files that no system gives its users fewer of by itself.
const USUAL_FILES: u64 = 4096;

/// What is granted when no folder is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// The current folder.
    Here,
    /// Nothing.
    Nothing,
}

/// Who says how changes of a folder are treated.
#[derive(Clone, Copy, Debug)]
enum RulesOf<'a> {
    /// This program, with what a policy says: there is no daemon.
    Plan(&'a Settings),
    /// The daemon, which knows the rules itself.
    Daemon,
}

/// The folders of a session.
struct Folders {
    grants: Vec<GrantRequest>,
    home: Home,
}

/// Builds the request, or says what is wrong with the options.
pub(crate) fn build(
    options: &SessionOptions,
    unnamed: Unnamed,
    said: &Settings,
) -> Result<SessionRequest, Failure> {
    let Folders { grants, home } = folders(options, unnamed, RulesOf::Plan(said))?;
    Ok(SessionRequest {
        id: options.id.clone().map_or_else(new_id, Ok)?,
        profile: options.profile,
        debugging: if options.debugger { Debugging::Allowed } else { Debugging::Forbidden },
        grants,
        limits: checked_limits(&options.limits)?,
        strictness: if options.best_effort { Strictness::BestEffort } else { Strictness::Enforce },
        home,
    })
}

fn folders(
    options: &SessionOptions,
    unnamed: Unnamed,
    rules: RulesOf<'_>,
) -> Result<Folders, Failure> {
    let judge = Judge::new(if options.force { Consent::Forced } else { Consent::None });
    let mut grants = Vec::new();
    for spec in wanted(options, unnamed)? {
        let access = if options.grants.is_empty() && options.profile == Profile::Nested {
            // No broker can follow a program that mounts folders anew.
            Access::Direct
        } else {
            spec.access()
        };
        let mut grant = grant(&spec, access, &judge)?;
        grant.writing = writing(&grant, &options.writes, rules)?;
        judge.check_direct(&grant)?;
        if matches!(rules, RulesOf::Plan(_)) && access == Access::Write {
            judge.places.protect_programs(grant.path.as_path(), &mut grant.writing.rules);
        }
        add(&mut grants, grant)?;
    }
    if !options.writes.direct.is_empty() {
        need_recorded(grants.iter().map(|grant| grant.access))?;
    }
    if let Some(outputs) = &options.outputs {
        let folder = open(outputs)?;
        judge.check(&folder, Access::Direct)?;
        let path = host_path(folder.path())?;
        let name = GrantName::outputs();
        grants.push(GrantRequest {
            path,
            folder: folder.identity(),
            access: Access::Direct,
            name,
            writing: Writing::default(),
        });
    }
    if let Some(skills) = &options.skills {
        let folder = open(&expand(skills, judge.places.home.as_deref()))?;
        judge.check(&folder, Access::Read)?;
        grants.push(GrantRequest {
            path: host_path(folder.path())?,
            folder: folder.identity(),
            access: Access::Read,
            name: GrantName::skills(),
            writing: Writing::default(),
        });
    }
    Ok(Folders { grants, home: home(options, &judge)? })
}

/// The limits of a session, if the host has room for them.
fn checked_limits(options: &LimitOptions) -> Result<Limits, Failure> {
    let size = cowork_sandbox::host::size();
    let limits = limits(options, Limits::scaled_to(&size));
    limits.check(&size).map_err(|error| {
        Failure::input(error.to_string(), "see `cowork run --help` for the limits")
    })?;
    Ok(limits)
}

/// The same for the daemon.
pub(crate) fn for_daemon(
    options: &SessionOptions,
    unnamed: Unnamed,
) -> Result<NewSession, Failure> {
    let policy = network::policy(&options.network)?;
    let Folders { grants, home } = folders(options, unnamed, RulesOf::Daemon)?;
    let own = |name: GrantName| {
        let own = grants.iter().find(|grant| grant.name == name);
        own.map(|grant| raw(grant.path.as_path()))
    };
    let (outputs, skills) = (own(GrantName::outputs()), own(GrantName::skills()));
    let grants = grants.iter().filter(|grant| !grant.name.is_reserved());
    let grants = grants.map(|grant| NewGrant {
        path: raw(grant.path.as_path()),
        access: access(grant.access),
        name: Some(grant.name.as_str().to_owned()),
        force: options.force,
        direct: grant.writing.direct.iter().map(|path| Raw::new(path.clone())).collect(),
        writes: WantedWrites::default(),
        expires: None,
    });
    let mut limits = wanted_limits(&options.limits);
    if limits != WantedLimits::default() {
        checked_limits(&options.limits)?;
    }
    // The daemon was not started under the caller's own limit, which holds all the same if it was
    // set on purpose.
    let files = getrlimit(Resource::Nofile).maximum;
    if let Some(files) = files.filter(|files| *files < USUAL_FILES) {
        let files = u32::try_from(files).unwrap_or(u32::MAX);
        limits.open_files = Some(limits.open_files.map_or(files, |asked| asked.min(files)));
    }
    Ok(NewSession {
        id: options.id.as_ref().map(|id| id.as_str().to_owned()),
        profile: match options.profile {
            Profile::Strict => types::Profile::Strict,
            Profile::Nested => types::Profile::Nested,
        },
        debugger: options.debugger,
        grants: grants.collect(),
        limits,
        best_effort: options.best_effort,
        home: match &home {
            Home::Memory => None,
            Home::Folder(path) => Some(raw(path.as_path())),
        },
        outputs,
        skills: skills.map(|path| WantedSkills { path, force: options.force }),
        network: network::wanted(&options.network, &policy)?,
        writes: writes(&options.writes, &policy.files),
        protect: protected(&policy.files),
        headless: options.network.headless == Headless::Always,
        ..NewSession::default()
    })
}

/// What is allowed where changes are recorded, as the daemon reads it: what the options say, and of
/// the rest what a policy says.
pub(crate) fn writes(options: &WriteOptions, said: &Settings) -> WantedWrites {
    let guards = match options.guard {
        None => WantedGuards { removals: limit(said.removals), share: limit(said.share) },
        Some(Guard::Off) => WantedGuards { removals: Some(0), share: Some(0) },
        Some(Guard::After(number)) => WantedGuards { removals: Some(number), share: Some(0) },
    };
    let text = |bytes: u64| Bytes::new(bytes).to_string();
    let caps = WantedCaps {
        file: said.file_cap.map(text),
        session: said.session_cap.map(text),
        ask: said.beyond.map(|beyond| beyond == Beyond::Ask),
    };
    // Nobody has a quota without asking for one.
    let quota = WantedQuota {
        bytes: options.quota.map(Bytes::get).or(said.bytes.number()).map(text),
        files: options.quota_files.or(said.files.number()),
    };
    let (block, unblock) = endings(options, said);
    WantedWrites { guards, caps, quota, blocked: None, block, unblock, contents: said.contents }
}

/// Endings that are refused too, and those that are not after all. What the options say counts.
fn endings(options: &WriteOptions, said: &Settings) -> (Vec<String>, Vec<String>) {
    let kept = |said: &[String], other: &[String], own: &[String]| {
        let said = said.iter().filter(|ending| !other.contains(ending));
        said.chain(own).cloned().collect()
    };
    (
        kept(&said.block, &options.unblock, &options.block),
        kept(&said.unblock, &options.block, &options.unblock),
    )
}

/// A guard's limit, as the daemon reads it.
fn limit<T: Copy + Default>(setting: Setting<T>) -> Option<T> {
    match setting {
        Setting::Unsaid => None,
        Setting::Off => Some(T::default()),
        Setting::To(number) => Some(number),
    }
}

/// What a policy says about names, as the daemon reads it.
pub(crate) fn protected(said: &Settings) -> Vec<PlaceName> {
    let names = said.names.iter().map(|rule| PlaceName {
        pattern: rule.pattern.clone(),
        policy: match rule.policy {
            NamePolicy::Allow => types::NamePolicy::Allow,
            NamePolicy::Flag => types::NamePolicy::Flag,
            NamePolicy::Ask => types::NamePolicy::Ask,
            NamePolicy::Deny => types::NamePolicy::Deny,
        },
        reason: Some(rule.reason.clone()),
    });
    names.collect()
}

/// Folders below a granted one, for the daemon.
pub(crate) fn direct(options: &WriteOptions) -> Vec<Raw> {
    options.direct.iter().map(|path| raw(path)).collect()
}

/// Refuses folders without a record where nothing is recorded.
pub(crate) fn need_recorded(mut granted: impl Iterator<Item = Access>) -> Result<(), Failure> {
    if granted.any(|access| access == Access::Write) {
        return Ok(());
    }
    let sentence = "`--direct` is for folders below one that is granted `rw`";
    Err(Failure::input(sentence, "grant the whole folder with `PATH:direct`"))
}

/// How changes of a folder are treated: by a session without the daemon by rules, and without a
/// record.
fn writing(
    grant: &GrantRequest,
    options: &WriteOptions,
    rules: RulesOf<'_>,
) -> Result<Writing, Failure> {
    if matches!(grant.access, Access::Read | Access::Direct) {
        return Ok(Writing::default());
    }
    let below = |path: &PathBuf| {
        let relative = RelativePath::new(path).ok().filter(|relative| !relative.is_empty());
        let relative = relative.ok_or_else(|| {
            let sentence = format!("`{}` is no folder below a granted one", path.display());
            Failure::input(sentence, "write it as `--direct node_modules`")
        })?;
        Ok(relative.as_path().as_os_str().as_bytes().to_vec())
    };
    let direct = match grant.access {
        Access::Write => options.direct.iter().map(below).collect::<Result<_, Failure>>()?,
        Access::Read | Access::Direct | Access::Staged => Vec::new(),
    };
    let rules = match rules {
        RulesOf::Plan(said) => own_rules(options, said)?,
        RulesOf::Daemon => Rules::default(),
    };
    Ok(Writing { store: None, rules, direct })
}

fn own_rules(options: &WriteOptions, said: &Settings) -> Result<Rules, Failure> {
    let (block, unblock) = endings(options, said);
    let said = Settings { block, unblock, ..said.clone() };
    let mut rules = files::merge(&files::default_rules(), &said)
        .map_err(|error| Failure::input(error.to_string(), ""))?;
    match options.guard {
        None => {}
        Some(Guard::Off) => rules.guards = cowork_api::files::Guards::default(),
        Some(Guard::After(number)) => {
            rules.guards = cowork_api::files::Guards { removals: Some(number), share: None };
        }
    }
    rules.quota.bytes = options.quota.map(Bytes::get).or(rules.quota.bytes);
    rules.quota.files = options.quota_files.or(rules.quota.files);
    Ok(rules)
}

/// Limits as the daemon reads them.
pub(crate) fn wanted_limits(options: &LimitOptions) -> WantedLimits {
    WantedLimits {
        processes: options.processes,
        memory: options.memory.map(|bytes| bytes.to_string()),
        cpus: options.cpus.map(|cpus| cpus.to_string()),
        open_files: options.open_files,
        scratch: options.scratch.map(|bytes| bytes.to_string()),
        disk: None,
        wall: options.timeout.map(|span| span.to_string()),
    }
}

/// A path for the daemon.
pub(crate) fn raw(path: &Path) -> Raw {
    Raw::new(path.as_os_str().as_bytes())
}

/// What a session may do with a folder, for the daemon.
pub(crate) fn access(access: Access) -> types::Access {
    match access {
        Access::Read => types::Access::Read,
        Access::Write => types::Access::Write,
        Access::Direct => types::Access::Direct,
        Access::Staged => types::Access::Staged,
    }
}

/// A folder that a user named, for the daemon: opened, judged, and by its real path.
pub(crate) fn folder(
    path: &Path,
    access: types::Access,
    consent: Consent,
) -> Result<PathBuf, Failure> {
    let access = match access {
        types::Access::Read => Access::Read,
        types::Access::Write => Access::Write,
        types::Access::Direct => Access::Direct,
        types::Access::Staged => Access::Staged,
    };
    let judge = Judge::new(consent);
    let folder = open(&expand(path, judge.places.home.as_deref()))?;
    judge.check(&folder, access)?;
    Ok(folder.path().to_path_buf())
}

/// `~` at the start means the user's home, for shells that do not expand it inside a word.
pub(crate) fn expand(path: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_path_buf(),
    }
}

/// The grants that were named, or what is granted without any.
fn wanted(options: &SessionOptions, unnamed: Unnamed) -> Result<Vec<GrantSpec>, Failure> {
    if !options.grants.is_empty() || options.no_grants || unnamed == Unnamed::Nothing {
        return Ok(options.grants.clone());
    }
    let here = GrantSpec::parse("./".as_ref()).map_err(|error| {
        Failure::host("cannot grant the current folder", Some(error.to_string()))
    })?;
    Ok(vec![here])
}

fn grant(spec: &GrantSpec, access: Access, judge: &Judge) -> Result<GrantRequest, Failure> {
    let folder = open(&expand(spec.path(), judge.places.home.as_deref()))?;
    judge.check(&folder, access)?;
    let path = host_path(folder.path())?;
    let name = match spec.name() {
        Some(name) => name.clone(),
        None => GrantName::from_path(&path).map_err(|error| {
            let hint = format!("give it a name: `--grant {}=name`", path.as_path().display());
            Failure::input(format!("the folder cannot be named after itself: {error}"), hint)
        })?,
    };
    Ok(GrantRequest { path, folder: folder.identity(), access, name, writing: Writing::default() })
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

/// Whether the user means it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    /// Nothing was said.
    None,
    /// Sensitive places are meant.
    Forced,
}

/// Tells folders whose grant would give away more than a project.
struct Judge {
    places: Places,
    consent: Consent,
}

impl Judge {
    fn new(consent: Consent) -> Self {
        let state = cowork_client::places::state_folder().ok();
        let runtimes = cowork_client::places::runtime_folders();
        Self { places: Places::find(state.as_deref(), &runtimes), consent }
    }

    fn check(&self, folder: &Folder, access: Access) -> Result<(), Failure> {
        match self.places.judge(folder, access) {
            Verdict::Ordinary => Ok(()),
            Verdict::Refused(sentence) => Err(Failure::input(sentence, "grant a folder of files")),
            Verdict::Sensitive(sentence) => self.need_consent(sentence),
        }
    }

    /// The same for folders without a record below a granted one.
    fn check_direct(&self, grant: &GrantRequest) -> Result<(), Failure> {
        for below in &grant.writing.direct {
            let folder = grant.path.as_path().join(OsStr::from_bytes(below));
            if let Some(sentence) = self.places.programs_at_risk(&folder, Access::Direct) {
                self.need_consent(sentence)?;
            }
        }
        Ok(())
    }

    fn need_consent(&self, sentence: String) -> Result<(), Failure> {
        match self.consent {
            Consent::Forced => {
                note(&sentence);
                Ok(())
            }
            Consent::None => {
                Err(Failure::input(sentence, "grant a folder inside it, or mean it with `--force`"))
            }
        }
    }
}

fn home(options: &SessionOptions, judge: &Judge) -> Result<Home, Failure> {
    let Some(path) = &options.home else { return Ok(Home::Memory) };
    match rustix::fs::mkdirat(rustix::fs::CWD, path, rustix::fs::Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => {
            let sentence = format!("cannot make the folder `{}` for the home", path.display());
            return Err(Failure::host(sentence, Some(std::io::Error::from(errno).to_string())));
        }
    }
    let folder = open(path)?;
    judge.check(&folder, Access::Direct)?;
    host_path(folder.path()).map(Home::Folder)
}

fn limits(options: &LimitOptions, defaults: Limits) -> Limits {
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
