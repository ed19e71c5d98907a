//! Where the hierarchies of cgroups are mounted, and where in them this process is.

use std::path::{Path, PathBuf};

/// A line of `mountinfo` that mounts a cgroup hierarchy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CgroupMount {
    pub(super) kind: String,
    root: PathBuf,
    pub(super) point: PathBuf,
    pub(super) options: String,
}

impl CgroupMount {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let kind = right.next().filter(|kind| *kind == "cgroup" || *kind == "cgroup2")?;
        let options = right.nth(1).unwrap_or_default();
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, left.next()?);
        Some(Self {
            kind: kind.to_owned(),
            root: root.into(),
            point: point.into(),
            options: options.to_owned(),
        })
    }

    /// The folder of a group, given its path as `/proc/self/cgroup` says it.
    pub(super) fn folder_of(&self, path: &str) -> PathBuf {
        let path = Path::new(path);
        let below = path.strip_prefix(&self.root).or_else(|_| path.strip_prefix("/"));
        self.point.join(below.unwrap_or(Path::new("")))
    }
}

/// The path of this process in the hierarchy with this v1 controller, or in v2 for an empty name.
pub(super) fn own_path<'a>(own: &'a str, controller: &str) -> &'a str {
    own.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?, parts.next()?))
        })
        .find(|(controllers, _)| controllers.split(',').any(|known| known == controller))
        .map_or("/", |(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::{CgroupMount, own_path};
    use std::path::PathBuf;

    #[test]
    fn lines_of_mountinfo_are_understood() {
        let line = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw";
        let mount = CgroupMount::parse(line).unwrap();
        assert_eq!(
            mount.folder_of("/user.slice/x"),
            PathBuf::from("/sys/fs/cgroup/unified/user.slice/x")
        );
        assert_eq!(CgroupMount::parse("1 2 0:1 / /proc rw - proc proc rw"), None);
    }

    #[test]
    fn a_mount_of_a_part_of_the_hierarchy_is_relative_to_that_part() {
        let line = "41 31 0:38 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        let mount = CgroupMount::parse(line).unwrap();
        assert_eq!(mount.folder_of("/docker/abc/x"), PathBuf::from("/sys/fs/cgroup/x"));
    }

    #[test]
    fn own_paths_are_found_by_controller() {
        let own = "4:memory:/a b:c\n1:cpu,cpuacct:/d\n0::/e\n";
        assert_eq!(own_path(own, "memory"), "/a b:c");
        assert_eq!(own_path(own, "cpu"), "/d");
        assert_eq!(own_path(own, ""), "/e");
        assert_eq!(own_path(own, "pids"), "/");
    }
}
