//! Files that are open for writing when a set ends: what is written to them later belongs to the next
//! one, so they are saved for it as they are now. The session stands still.

use super::Files;
use super::folders::Folder;
use cowork_journal::hand::Spot;
use cowork_sys::Errno;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use std::ffi::CString;
use std::sync::Arc;

impl Files {
    /// Saves every file of a folder that somebody has open for writing.
    pub(super) fn save_open_files(&self) {
        let folders = self.folders();
        for process in self.ledger.processes() {
            for folder in folders.iter() {
                let Some(mount) = number_of(folder) else { continue };
                for descriptor in written(process, mount) {
                    // One that cannot be saved is lost to an undo of the next set, not of this one.
                    cowork_sys::ignore(self.save_open(process, folder, &descriptor));
                }
            }
        }
    }

    fn save_open(&self, process: u32, folder: &Arc<Folder>, descriptor: &str) -> Result<(), Errno> {
        let path = format!("/proc/{process}/fd/{descriptor}");
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let held: OwnedFd = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let Some((start, name)) = folder.place_of(held.as_fd())? else { return Ok(()) };
        let by = self.ledger.identify_still(self, process)?;
        let path = super::paths::join(&start.path, &name);
        let name = CString::new(name).map_err(|_nul| Errno::INVAL)?;
        let spot =
            Spot { folder: folder.number, parent: start.handle.as_fd(), name: &name, path: &path };
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.hand()?.open_file(by, spot, flags, Mode::empty()).map(drop)
    }
}

/// The number of a folder's writable mount as the kernel tells it of descriptors.
fn number_of(folder: &Folder) -> Option<u64> {
    let stat = rustix::fs::statx(&*folder.root, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    stat.ok().map(|stat| stat.stx_mnt_id)
}

/// The descriptors of a process that are open for writing on a mount.
fn written(process: u32, mount: u64) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{process}/fdinfo")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim).map(ToOwned::to_owned)
        };
        let on_mount = field("mnt_id:").and_then(|id| id.parse().ok()) == Some(mount);
        let flags = field("flags:").and_then(|flags| u32::from_str_radix(&flags, 8).ok());
        let flags = OFlags::from_bits_retain(flags.unwrap_or_default());
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        if on_mount && writes && !flags.contains(OFlags::PATH) {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found
}
