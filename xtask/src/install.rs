//! `cargo xtask install`: the programs and what belongs to them, below a prefix.
//!
//! The programs lie beside each other, because each finds the next beside itself;
//! `bin/cowork` is a link there. See `packaging/README.md`.

use crate::run;
use crate::workspace::{Failure, PROGRAMS, Profile, built, root};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// The programs' folder below the prefix.
const LIBEXEC: &str = "libexec/cowork";

/// What else is installed: from where in the workspace, to where below the prefix.
const FILES: [(&str, &str); 5] = [
    ("docs/man/cowork.1", "share/man/man1/cowork.1"),
    ("completions/cowork.bash", "share/bash-completion/completions/cowork"),
    ("completions/cowork.zsh", "share/zsh/site-functions/_cowork"),
    ("completions/cowork.fish", "share/fish/vendor_completions.d/cowork.fish"),
    ("packaging/apparmor/cowork-keeper", "share/cowork/apparmor/cowork-keeper"),
];

/// Units for systemd, likewise; they name the programs where they are installed.
const UNITS: [(&str, &str); 2] = [
    ("packaging/systemd/cowork.service", "lib/systemd/user/cowork.service"),
    ("packaging/systemd/cowork-system.service", "lib/systemd/system/cowork-system.service"),
];

/// Builds the programs and installs everything.
pub(crate) fn install(prefix: &Path) -> Result<(), Failure> {
    run::build()?;
    place(&built(Profile::Release)?, root(), prefix)
}

/// Copies the programs from `programs` and the other files from `workspace`.
fn place(programs: &Path, workspace: &Path, prefix: &Path) -> Result<(), Failure> {
    for name in PROGRAMS {
        copy(&programs.join(name), &prefix.join(LIBEXEC).join(name), 0o755)?;
    }
    for (from, to) in FILES {
        copy(&workspace.join(from), &prefix.join(to), 0o644)?;
    }
    for (from, to) in UNITS {
        let path = workspace.join(from);
        let text =
            std::fs::read_to_string(&path).map_err(|error| Failure::at("read", &path, error))?;
        let absolute =
            std::path::absolute(prefix).map_err(|error| Failure::at("find", prefix, error))?;
        let shown = |below: &str| absolute.join(below).display().to_string();
        let text = text.replace("@LIBEXEC@", &shown(LIBEXEC)).replace("@BIN@", &shown("bin"));
        write(&prefix.join(to), text.as_bytes(), 0o644)?;
    }
    let link = prefix.join("bin/cowork");
    // The link leads from one folder of the prefix to another, so that the whole can be moved.
    replace(&link, |new| symlink(Path::new("..").join(LIBEXEC).join("cowork"), new))
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), Failure> {
    let contents = std::fs::read(from).map_err(|error| Failure::at("read", from, error))?;
    write(to, &contents, mode)
}

fn write(to: &Path, contents: &[u8], mode: u32) -> Result<(), Failure> {
    replace(to, |new| {
        std::fs::write(new, contents)?;
        std::fs::set_permissions(new, Permissions::from_mode(mode))
    })
}

/// Makes a file under another name and moves it to its own: a program that runs cannot be written
/// to, and a half-written one must not be started.
fn replace(to: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), Failure> {
    let folder = to.parent().unwrap_or(to);
    std::fs::create_dir_all(folder)
        .map_err(|error| Failure::at("make the folder", folder, error))?;
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = folder.join(name);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::at("remove", &new, error));
        }
        _ => {}
    }
    make(&new)
        .and_then(|()| std::fs::rename(&new, to))
        .map_err(|error| Failure::at("install", to, error))?;
    println!("{}", to.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{FILES, PROGRAMS, UNITS, place, root};
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    /// A folder that is removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("cowork-install-{}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn write(&self, name: &str, contents: &str) {
            let path = self.0.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, contents).unwrap();
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn everything_is_below_the_prefix_and_can_be_installed_again() {
        let scratch = Scratch::new();
        let prefix = scratch.0.join("prefix");
        for round in ["first", "second"] {
            for program in PROGRAMS {
                scratch.write(&format!("built/{program}"), round);
            }
            for (from, _) in FILES {
                scratch.write(&format!("tree/{from}"), from);
            }
            for (from, _) in UNITS {
                scratch.write(&format!("tree/{from}"), "ExecStart=@LIBEXEC@/coworkd\n");
            }
            place(&scratch.0.join("built"), &scratch.0.join("tree"), &prefix).unwrap();
            for (_, to) in UNITS {
                let program = prefix.join("libexec/cowork/coworkd");
                let line = format!("ExecStart={}\n", program.display());
                assert_eq!(std::fs::read_to_string(prefix.join(to)).unwrap(), line);
            }
            for program in PROGRAMS {
                let installed = prefix.join("libexec/cowork").join(program);
                assert_eq!(std::fs::read_to_string(&installed).unwrap(), round);
                assert_eq!(mode(&installed), 0o755);
            }
            for (from, to) in FILES {
                assert_eq!(std::fs::read_to_string(prefix.join(to)).unwrap(), from);
                assert_eq!(mode(&prefix.join(to)), 0o644);
            }
            assert_eq!(std::fs::read_to_string(prefix.join("bin/cowork")).unwrap(), round);
        }
        let moved = scratch.0.join("moved");
        std::fs::rename(&prefix, &moved).unwrap();
        assert_eq!(std::fs::read_to_string(moved.join("bin/cowork")).unwrap(), "second");
    }

    #[test]
    fn systemd_finds_nothing_wrong_with_the_units() {
        let folder = std::env::temp_dir().join(format!("cowork-units-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let scratch = Scratch(folder);
        for (from, to) in UNITS {
            let text = std::fs::read_to_string(root().join(from)).unwrap();
            // Programs that are there, whatever was built.
            let text = text.replace("@LIBEXEC@/coworkd", "/bin/true");
            let name = Path::new(to).file_name().unwrap().to_str().unwrap();
            scratch.write(name, &text.replace("@BIN@/cowork", "/bin/true"));
            let manager = if to.contains("/user/") { "--user" } else { "--system" };
            let said = std::process::Command::new("systemd-analyze")
                .args([manager, "--man=no", "verify"])
                .arg(scratch.0.join(name))
                .env("XDG_RUNTIME_DIR", &scratch.0)
                .output()
                .unwrap();
            assert!(said.status.success(), "{said:?}");
            // Older ones say that they do not know it, and go on.
            let told = String::from_utf8_lossy(&said.stderr).into_owned();
            let mut told = told.lines().filter(|line| !line.contains("'DelegateSubgroup'"));
            assert!(said.stdout.is_empty() && told.next().is_none(), "{said:?}");
        }
    }
}
