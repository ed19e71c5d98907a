//! File systems to work in.

use crate::stopped::Stopped;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where files in memory are.
const SHARED: &str = "/dev/shm";

/// The folder that jobs are done in: a file system of its own, if one can be made.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    /// The file that it is in; gone as soon as it is mounted.
    mounted: Result<(), String>,
}

impl Disk {
    /// Makes the folder.
    pub(super) fn mount(folder: PathBuf) -> Result<Self, Stopped> {
        std::fs::create_dir(&folder).map_err(|error| Stopped::at(folder.display(), error))?;
        let image = PathBuf::from(format!("{SHARED}/cowork-bench-{}.ext4", std::process::id()));
        let mounted = make(&image, &folder);
        // A mount keeps it for as long as it is needed.
        drop(std::fs::remove_file(&image));
        Ok(Self { folder, mounted: mounted.map_err(|stopped| stopped.to_string()) })
    }

    /// What it is, for people.
    pub(super) fn what(&self) -> String {
        match &self.mounted {
            Ok(()) => "ext4 with a journal, new, in memory".into(),
            Err(why) => format!("that of {}, because {why}", self.folder.display()),
        }
    }

    /// Removes it again.
    pub(super) fn unmount(mut self) -> Result<(), Stopped> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Stopped> {
        if self.mounted.is_err() {
            return Ok(());
        }
        if run(Command::new("umount").arg(&self.folder)).is_err() {
            // Something is still at work there: it disappears with that.
            run(Command::new("umount").arg("--lazy").arg(&self.folder))?;
        }
        self.mounted = Err("it was unmounted".into());
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What cannot be unmounted stays, and is seen.
        drop(self.end());
    }
}

fn make(image: &Path, folder: &Path) -> Result<(), Stopped> {
    let file = std::fs::File::create_new(image);
    let sized = file.and_then(|file| file.set_len(6 << 30));
    sized.map_err(|error| Stopped::at(image.display(), error))?;
    // Everything is laid out at once: the kernel would do it meanwhile.
    let options = "lazy_itable_init=0,lazy_journal_init=0";
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-i", "8192", "-E", options]).arg(image))?;
    run(Command::new("mount").args(["-o", "loop"]).arg(image).arg(folder))
}

/// Runs a command to its end, which must be a good one.
pub(super) fn run(command: &mut Command) -> Result<(), Stopped> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output();
    let done = done.map_err(|error| Stopped::at(&name, error))?;
    if done.status.success() {
        return Ok(());
    }
    Err(Stopped::at(name, String::from_utf8_lossy(&done.stderr).trim()))
}

/// A folder in memory, removed at the end.
#[derive(Debug)]
pub(super) struct Memory(PathBuf);

impl Memory {
    pub(super) fn make() -> Result<Self, Stopped> {
        let folder = PathBuf::from(format!("{SHARED}/cowork-bench-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|error| Stopped::at(folder.display(), error))?;
        Ok(Self(folder))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
