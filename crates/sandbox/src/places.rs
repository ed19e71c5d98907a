//! Which folders of this host are sensitive.

use crate::folder::Folder;
use cowork_api::files::Rules;
use cowork_api::plan::Identity;
use cowork_policy::Access;
use cowork_policy::places::{
    KnownPlaces, NearPrograms, PROGRAMS, program_rules, programs_at_risk, sensitive,
};
use rustix::fs::FileType;
use std::path::{Path, PathBuf};

/// What a grant of a folder would give away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A folder like any other.
    Ordinary,
    /// More than a project; the sentence says what. The user may mean it.
    Sensitive(String),
    /// No folder of files at all.
    Refused(String),
}

/// The places of this process's user.
#[derive(Clone, Debug)]
pub struct Places {
    /// The user's home, as it is named.
    pub home: Option<PathBuf>,
    known: KnownPlaces,
    /// The folder that this program runs from, with the others beside it.
    programs: Option<PathBuf>,
    /// Folders in which the user finds a program of that folder by a link.
    links: Vec<PathBuf>,
}

impl Places {
    /// Finds the user's home, those of other people if this is root, and cowork's own programs.
    /// `state` is the folder that cowork keeps its own state in; in `runtimes` its socket is looked for.
    pub fn find(state: Option<&Path>, runtimes: &[PathBuf]) -> Self {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        let home = home.or_else(home_by_id);
        let both = |path: Option<&Path>| -> Vec<PathBuf> {
            path.into_iter().flat_map(|path| [path.to_path_buf(), resolve(path)]).collect()
        };
        let all = |paths: &[PathBuf]| paths.iter().flat_map(|path| both(Some(path))).collect();
        let homes: Vec<PathBuf> = both(home.as_deref());
        let mut others = homes_of_people();
        others.retain(|other| identity(other).is_some());
        let mut others: Vec<PathBuf> = all(&others);
        others.retain(|other| !homes.contains(other));
        let known = KnownPlaces { homes, others, states: both(state), runtimes: all(runtimes) };
        let own = std::env::current_exe().ok();
        let programs = own.and_then(|own| own.parent().map(resolve));
        let links = programs.as_deref().map(find_links).unwrap_or_default();
        Self { home, known, programs, links }
    }

    /// What a grant of `folder` with this access would give away.
    pub fn judge(&self, folder: &Folder, access: Access) -> Verdict {
        let path = folder.path();
        if is_interface(folder) {
            let sentence = format!(
                "`{}` is an interface of the kernel, not a folder of files",
                path.display()
            );
            return Verdict::Refused(sentence);
        }
        let same = |home: &PathBuf| identity(home) == Some(folder.identity());
        // A home by another path, such as a bind mount.
        let path = if self.known.homes.iter().any(same) {
            self.known.homes.first().map_or(path, |home| home.as_path())
        } else {
            path
        };
        let sentence = sensitive(path, &self.known);
        sentence
            .or_else(|| self.programs_at_risk(folder.path(), access))
            .map_or(Verdict::Ordinary, Verdict::Sensitive)
    }

    /// Why a session with this access to a folder could replace one of cowork's own programs.
    pub fn programs_at_risk(&self, folder: &Path, access: Access) -> Option<String> {
        self.near_programs(folder).iter().find_map(|near| programs_at_risk(folder, near, access))
    }

    /// Adds rules that refuse changes of cowork's own programs, if they lie in this folder. They
    /// hold whatever else is allowed: of several rules the strictest counts.
    pub fn protect_programs(&self, folder: &Path, rules: &mut Rules) {
        for near in self.near_programs(folder) {
            if let NearPrograms::Above(below) = near {
                rules.names.extend(program_rules(&below));
            }
        }
    }

    /// How a folder lies to cowork's own programs, by whichever path it is named.
    fn near_programs(&self, folder: &Path) -> Vec<NearPrograms> {
        let own = identity(folder);
        let is_folder =
            |path: &Path| path == folder || own.is_some_and(|own| identity(path) == Some(own));
        let below = |place: &PathBuf| {
            let above = place.ancestors().find(|above| is_folder(above))?;
            let below = place.strip_prefix(above).unwrap_or(Path::new(""));
            Some(NearPrograms::Above(below.to_path_buf()))
        };
        let mut near: Vec<_> = self.programs.iter().chain(&self.links).filter_map(below).collect();
        let mut above = folder.ancestors().skip(1);
        let inside = self.programs.as_deref().is_some_and(|programs| {
            let found = identity(programs);
            let is_programs = |above: &Path| {
                above == programs || found.is_some_and(|found| identity(above) == Some(found))
            };
            above.any(is_programs)
        });
        if inside {
            near.push(NearPrograms::Inside);
        }
        near
    }
}

/// Which folder a path leads to now. Looked at and not opened: many are, for every grant.
fn identity(path: &Path) -> Option<Identity> {
    let stat = rustix::fs::stat(path).ok()?;
    let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    is_folder.then_some(Identity { device: stat.st_dev, inode: stat.st_ino })
}

/// Folders in which one of the programs is found by another name: those that the user's commands are
/// looked for in, and the one where an installation puts its link.
fn find_links(programs: &Path) -> Vec<PathBuf> {
    let identity = |path: &Path| {
        let stat = rustix::fs::stat(path).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = programs.parent().and_then(Path::parent).map(|prefix| prefix.join("bin"));
    let mut found = Vec::new();
    for folder in std::env::split_paths(&path).chain(installed) {
        let is_other = |name: &str| {
            let own = identity(&programs.join(name));
            own.is_some() && identity(&folder.join(name)) == own
        };
        let folder_is = resolve(&folder);
        let known = folder_is == programs || found.contains(&folder_is);
        if folder.is_absolute() && !known && PROGRAMS.iter().any(|name| is_other(name)) {
            found.push(folder_is);
        }
    }
    found
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

/// The homes of all people, for root, who can open them; of nobody for anybody else.
fn homes_of_people() -> Vec<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let users = std::fs::read("/etc/passwd").unwrap_or_default();
    homes_in(&String::from_utf8_lossy(&users))
}

/// The homes of all people in a list of users: root, and ids that are no service's.
fn homes_in(users: &str) -> Vec<PathBuf> {
    /// The first id that is given to a person (login.defs).
    const FIRST: u32 = 1000;
    /// Nobody's, whose home is no folder of anybody.
    const NOBODY: u32 = 65_534;
    let home = |line: &str| {
        let mut fields = line.split(':');
        let user: u32 = fields.nth(2)?.parse().ok()?;
        let home = Path::new(fields.nth(2)?);
        let is_person = user == 0 || (user >= FIRST && user != NOBODY);
        (is_person && home.is_absolute() && home != Path::new("/")).then(|| home.to_path_buf())
    };
    users.lines().filter_map(home).collect()
}

/// Where a path leads now, free of symbolic links; what does not exist stays as it is named.
fn resolve(path: &Path) -> PathBuf {
    match (Folder::open(path), path.parent(), path.file_name()) {
        (Ok(folder), ..) => folder.path().to_path_buf(),
        (Err(_), Some(parent), Some(name)) => resolve(parent).join(name),
        (Err(_), ..) => path.to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use super::homes_in;
    use std::path::PathBuf;

    #[test]
    fn homes_are_those_of_people() {
        let users = "root:x:0:0:root:/root:/bin/bash\n\
                     daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n\
                     www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n\
                     nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n\
                     ada:x:1000:1000:Ada,,,:/home/ada:/bin/bash\n\
                     bob:x:70000:100::/srv/homes/bob:/bin/sh\n\
                     top:x:1001:1001::/:/bin/sh\n\
                     relative:x:1002:1002::home:/bin/sh\n\
                     none:x:1003:1003:::\n\
                     odd:x:many:1:::/home/odd:\n\
                     short:x:1004\n\n+::::::\n";
        let found = homes_in(users);
        assert_eq!(found, ["/root", "/home/ada", "/srv/homes/bob"].map(PathBuf::from));
    }
}
