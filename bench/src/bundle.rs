//! Bundles for OCI runtimes that do the same job as a session.

use crate::site::Site;
use crate::stopped::Stopped;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Where the project folder is in a container.
const PROJECT: &str = "/project";

/// Writes a bundle that runs `arguments` in the project folder, and returns its folder.
pub(crate) fn write(site: &Site, name: &str, arguments: &[&str]) -> Result<PathBuf, Stopped> {
    let folder = site.at(&format!("bundle-{name}"));
    let failed = |error: std::io::Error| Stopped::at(folder.display(), error);
    let root = folder.join("rootfs");
    std::fs::create_dir_all(&root).map_err(failed)?;
    for link in ["bin", "sbin", "lib", "lib32", "lib64"] {
        if let Ok(to) = std::fs::read_link(format!("/{link}")) {
            match std::os::unix::fs::symlink(to, root.join(link)) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(failed(error));
                }
                _ => {}
            }
        }
    }
    let config = format!("{:#}", config(site, arguments));
    std::fs::write(folder.join("config.json"), config).map_err(failed)?;
    Ok(folder)
}

fn config(site: &Site, arguments: &[&str]) -> Value {
    let bind = |source: PathBuf, at: &str, access: &str| json!({"destination": at, "type": "bind", "source": source, "options": ["rbind", access]});
    let new = |kind: &str, at: &str, options: &[&str]| json!({"destination": at, "type": kind, "source": kind, "options": options});
    let mapping = |id: u32| json!([{"containerID": 0, "hostID": id, "size": 1}]);
    let spaces = ["user", "mount", "pid", "network", "ipc", "uts", "cgroup"];
    let spaces: Vec<_> = spaces.iter().map(|space| json!({"type": space})).collect();
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": arguments,
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": PROJECT,
            "noNewPrivileges": true,
            "capabilities": {},
        },
        "root": {"path": "rootfs"},
        "hostname": "bench",
        "mounts": [
            bind("/usr".into(), "/usr", "ro"),
            bind("/etc".into(), "/etc", "ro"),
            new("proc", "/proc", &[]),
            new("tmpfs", "/dev", &["nosuid", "mode=755"]),
            new("devpts", "/dev/pts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666"]),
            new("tmpfs", "/tmp", &["nosuid", "nodev"]),
            bind(site.project(), PROJECT, "rw"),
        ],
        "linux": {
            "uidMappings": mapping(rustix::process::geteuid().as_raw()),
            "gidMappings": mapping(rustix::process::getegid().as_raw()),
            "namespaces": spaces,
        },
    })
}
