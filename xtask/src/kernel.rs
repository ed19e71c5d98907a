//! A kernel of Debian's, for an emulated machine: taken from its package, not installed.

use crate::workspace::{Failure, Profile, built, line, succeed, text};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Depends on the package of the newest one of its kind. Those for clouds are without x32.
const NEWEST: &str = "linux-image-amd64";

/// The file of the kernel; unpacked first where it is missing.
pub(crate) fn kernel() -> Result<PathBuf, Failure> {
    let programs = built(Profile::Dev)?;
    let folder = programs.parent().unwrap_or(&programs).join("linux");
    if let Some(kernel) = unpacked(&folder) {
        println!("kernel: {}", kernel.file_name().unwrap_or_default().to_string_lossy());
        return Ok(kernel);
    }
    std::fs::create_dir_all(&folder).map_err(|error| Failure::at("make", &folder, error))?;
    let package = package()?;
    let mut download = Command::new("apt-get");
    download.args(["download", "--quiet", &package]).current_dir(&folder);
    println!("$ {}", line(&download));
    succeed(&mut download)?;
    let file = entries(&folder).into_iter().find(|path| is_named(path, &package));
    let file = file.ok_or_else(|| Failure::new(format!("`{package}` is not where it was put")))?;
    // Only what is complete is found again.
    let partly = folder.join("partly");
    succeed(Command::new("dpkg-deb").arg("--extract").arg(&file).arg(&partly))?;
    let whole = folder.join("whole");
    std::fs::rename(&partly, &whole).map_err(|error| Failure::at("rename", &partly, error))?;
    unpacked(&folder).ok_or_else(|| Failure::new(format!("`{package}` holds no kernel")))
}

/// The kernel that was unpacked.
fn unpacked(folder: &Path) -> Option<PathBuf> {
    entries(&folder.join("whole/boot")).into_iter().find(|path| is_named(path, "vmlinuz-"))
}

fn is_named(path: &Path, start: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The package with the kernel itself.
fn package() -> Result<String, Failure> {
    let said = text(Command::new("apt-cache").args(["depends", NEWEST]))?;
    let found = said.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    found
        .map(|rest| format!("linux-image-{rest}"))
        .ok_or_else(|| Failure::new(format!("the system's packages have no `{NEWEST}`")))
}
