//! What the host is like, as far as a plan needs to know.

use cowork_policy::plan::{ETC, HostSystem, TOP, TopEntry};
use cowork_policy::view::{Entry, HostTop};
use cowork_policy::{Bytes, HostPath, HostSize};
use rustix::process::{Resource, getrlimit};
use std::os::unix::ffi::OsStrExt;

/// Looks at the names that a session's file system is made of.
pub fn system() -> HostSystem {
    let mut found = HostSystem::default();
    for name in TOP {
        let path = format!("/{name}");
        let entry = match std::fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => TopEntry::Folder,
            Ok(metadata) if metadata.is_symlink() => match std::fs::read_link(&path) {
                Ok(to) => TopEntry::Link(to.as_os_str().as_bytes().into()),
                Err(_) => continue,
            },
            Ok(_) | Err(_) => continue,
        };
        found.top.push((name, entry));
    }
    let names: Vec<String> = std::fs::read_dir("/etc")
        .map(|entries| {
            let names = entries.flatten().map(|entry| entry.file_name());
            names.filter_map(|name| name.into_string().ok()).collect()
        })
        .unwrap_or_default();
    for wanted in ETC {
        if let Some(start) = wanted.strip_suffix('*') {
            let matching = names.iter().filter(|name| name.starts_with(start));
            found.etc.extend(matching.cloned());
        } else if std::fs::metadata(format!("/etc/{wanted}")).is_ok() {
            found.etc.push(wanted.to_owned());
        }
    }
    found
}

/// Looks at the top of the host's tree of files, for a session that sees it.
pub fn top() -> HostTop {
    let entries = std::fs::read_dir("/").into_iter().flatten().flatten();
    let entries = entries.filter_map(|found| {
        let kind = found.file_type().ok()?;
        let entry = if kind.is_dir() {
            Entry::Folder
        } else if kind.is_file() {
            Entry::File
        } else if kind.is_symlink() {
            Entry::Link(std::fs::read_link(found.path()).ok()?.as_os_str().as_bytes().into())
        } else {
            return None;
        };
        Some((found.file_name().as_bytes().to_vec(), entry))
    });
    let mut entries: Vec<_> = entries.collect();
    // The same tree makes the same plan.
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    #[expect(clippy::disallowed_methods, reason = "files of the system, which nobody else changes")]
    let real = |path| std::fs::canonicalize(path).ok().and_then(|path| HostPath::new(path).ok());
    HostTop { entries, resolver: real("/etc/resolv.conf"), hosts: real("/etc/hosts") }
}

/// How large the host is, for the defaults of limits.
pub fn size() -> HostSize {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.lines().find_map(|line| {
        let kib = line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?;
        kib.parse::<u64>().ok()
    });
    let number = |path: &str| {
        std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok())
    };
    let threads = number("/proc/sys/kernel/threads-max").unwrap_or(32_768);
    let processes = getrlimit(Resource::Nproc).maximum.unwrap_or(u64::MAX).min(threads);
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    HostSize {
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        memory: Bytes::new(memory.unwrap_or(1 << 20).saturating_mul(1024)),
        max_processes: narrow(processes),
        max_open_files: narrow(files),
    }
}
