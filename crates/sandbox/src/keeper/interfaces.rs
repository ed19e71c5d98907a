//! Interfaces of the kernel that the host has mounted inside a folder: a tree for an image or a
//! changed root has its own `/proc`, `/sys` and `/dev`. They are the host's, wherever they are mounted.
//!
//! They are known by the kernel's own list of mounts, which names each with its file system: nothing
//! of them is opened, no path is followed, and nothing is mounted by having been looked at.

use crate::keeper::grant::failure;
use crate::keeper::tree::{Mount, MountList};
use cowork_api::keeper::{Failure, FailureCode};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, StatxFlags, statx};
use std::path::Path;

/// File systems that show what runs on the host, or control it.
pub(crate) const INTERFACES: [&str; 22] = [
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "mqueue",
    "nfsd",
    "nsfs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "sysfs",
    "tracefs",
];

/// Has a process of the host mount something wherever somebody looks.
const ON_DEMAND: &str = "autofs";

/// Which mounts a copy of a folder shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The one that the folder is on.
    Itself,
    /// Those inside of it too.
    Inside,
}

/// Refuses the folder at `path` of the host view if such an interface would be shown with it. Asked
/// when the copy is made: what was mounted at that moment is in the list.
pub(crate) fn refuse(
    mounts: &mut MountList,
    folder: BorrowedFd<'_>,
    path: &Path,
    shown: Shown,
) -> Result<(), Failure> {
    let stat = statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    let top = stat.ok().map(|stat| stat.stx_mnt_id);
    let Some(mount) = find(mounts.list(), top, path, shown) else { return Ok(()) };
    let (point, kind) = (mount.point.display(), &mount.kind);
    let place = if top == Some(mount.id) {
        format!("`{}` lies in `{point}`, which", path.display())
    } else {
        format!("`{point}`, which is mounted inside `{}`,", path.display())
    };
    Err(failure(
        FailureCode::FolderRefused,
        format!("{place} is an interface of the kernel ({kind}), not a folder of files"),
        "unmount it, or grant a folder that it is not in",
    ))
}

/// The first such mount of a folder on the mount `top`. Without that number, whatever is mounted
/// below the path counts.
fn find<'a>(mounts: &'a [Mount], top: Option<u64>, path: &Path, shown: Shown) -> Option<&'a Mount> {
    let is_interface =
        |mount: &&Mount| mount.kind == ON_DEMAND || INTERFACES.contains(&&*mount.kind);
    let is_shown = |mount: &&Mount| match shown {
        _ if top == Some(mount.id) => true,
        Shown::Itself => false,
        Shown::Inside => mount.point.starts_with(path) && is_above(mounts, top, mount),
    };
    mounts.iter().filter(is_interface).find(is_shown)
}

/// Whether `mount` is mounted on the mount `top`, or on one that is. What lies below a path on another
/// mount, which `top` covers, is not in a copy of it.
fn is_above(mounts: &[Mount], top: Option<u64>, mount: &Mount) -> bool {
    let Some(top) = top else { return true };
    let mut at = mount.parent;
    // No way up is longer than the list.
    for _ in mounts {
        if at == top {
            return true;
        }
        let Some(parent) = mounts.iter().find(|mount| mount.id == at) else { return false };
        at = parent.parent;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{Shown, find};
    use crate::keeper::tree::Mount;
    use std::path::Path;

    fn mounts() -> Vec<Mount> {
        let lines = [
            "20 1 8:1 / / rw - ext4 /dev/sda rw",
            "21 20 0:5 / /proc rw - proc proc rw",
            "22 20 8:2 / /home rw - ext4 /dev/sdb rw",
            "23 22 0:6 / /home/ada/image/proc rw - proc proc rw",
            "24 22 0:7 / /home/ada/disk rw - ext4 /dev/sdc rw",
            "25 24 0:8 / /home/ada/disk/far rw - autofs systemd-1 rw",
            "26 25 0:9 / /home/ada/disk/far rw - nfs far:/ rw",
            "27 22 0:10 / /home/ada/old rw - tmpfs tmpfs rw",
            "28 27 0:11 / /home/ada/old/sys rw - sysfs sysfs rw",
            "29 22 0:12 / /home/ada/old rw - tmpfs tmpfs rw",
        ];
        lines.iter().filter_map(|line| Mount::parse(line)).collect()
    }

    fn found(top: Option<u64>, path: &str, shown: Shown) -> Option<u64> {
        find(&mounts(), top, Path::new(path), shown).map(|mount| mount.id)
    }

    #[test]
    fn an_interface_is_found_however_deep() {
        assert_eq!(found(Some(22), "/home/ada", Shown::Inside), Some(23));
        assert_eq!(found(Some(22), "/home/ada/image", Shown::Inside), Some(23));
        assert_eq!(found(Some(22), "/home/ada/imag", Shown::Inside), None);
        assert_eq!(found(Some(22), "/home/ada/image", Shown::Itself), None);
        assert_eq!(found(Some(21), "/proc/sys", Shown::Itself), Some(21));
        assert_eq!(found(None, "/home/ada/image", Shown::Inside), Some(23));
    }

    /// What was mounted by it lies on top.
    #[test]
    fn what_mounts_on_demand_is_found_below_what_it_mounted() {
        assert_eq!(found(Some(24), "/home/ada/disk", Shown::Inside), Some(25));
        assert_eq!(found(Some(26), "/home/ada/disk/far", Shown::Inside), None);
    }

    #[test]
    fn what_is_covered_by_the_folders_own_mount_is_not_in_it() {
        assert_eq!(found(Some(29), "/home/ada/old", Shown::Inside), None);
        assert_eq!(found(Some(27), "/home/ada/old", Shown::Inside), Some(28));
    }
}
