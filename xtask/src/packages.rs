//! The packages of the system that the tests need, installed where they are missing.
//!
//! The tests run real programs in sessions, and a session sees the host's `/usr`: a program in
//! `/usr/bin` that came from elsewhere is as good as Debian's, one in a home folder is not.

use crate::workspace::{Failure, line, succeed};
use std::path::Path;
use std::process::Command;

/// A Debian package, and a program of it that may also have come from elsewhere.
struct Need {
    package: &'static str,
    program: Option<&'static str>,
}

const fn program(package: &'static str, program: &'static str) -> Need {
    Need { package, program: Some(program) }
}

const NEEDS: [Need; 37] = [
    // Access control lists, in sessions and on the host.
    program("acl", "setfacl"),
    program("git", "git"),
    // The linker of every build, and the compiler that is run in sessions.
    program("gcc", "gcc"),
    program("make", "make"),
    program("python3", "python3"),
    Need { package: "python3-venv", program: None },
    program("nodejs", "node"),
    program("npm", "npm"),
    program("vim", "vim"),
    program("groff-base", "groff"),
    program("less", "less"),
    program("tar", "tar"),
    program("rsync", "rsync"),
    program("patch", "patch"),
    program("perl", "perl"),
    // `unshare`, `nsenter` and `script`; and the peer that `bench` measures.
    program("util-linux", "unshare"),
    program("bsdutils", "script"),
    program("procps", "ps"),
    // File systems that share blocks.
    Need { package: "btrfs-progs", program: None },
    Need { package: "xfsprogs", program: None },
    // A machine with another kernel, and everything in it but cowork.
    program("qemu-system-x86", "qemu-system-x86_64"),
    Need { package: "busybox-static", program: None },
    // Looks at the units that are installed.
    program("systemd", "systemd-analyze"),
    program("bubblewrap", "bwrap"),
    program("chromium", "chromium"),
    // The world of two networks, its servers, and their clients.
    program("iproute2", "ip"),
    program("curl", "curl"),
    program("wget", "wget"),
    program("openssl", "openssl"),
    Need { package: "ca-certificates", program: None },
    Need { package: "python3-requests", program: None },
    Need { package: "python3-httpx", program: None },
    program("openjdk-17-jdk-headless", "javac"),
    program("golang-go", "go"),
    Need { package: "node-ws", program: None },
    Need { package: "openssh-server", program: None },
    Need { package: "postgresql-15", program: None },
];

/// Installs what is missing. Does nothing, and needs no network, when nothing is.
pub(crate) fn install() -> Result<(), Failure> {
    let missing: Vec<&str> =
        NEEDS.iter().filter(|need| !is_there(need)).map(|need| need.package).collect();
    if missing.is_empty() {
        println!("all {} are there", NEEDS.len());
        return Ok(());
    }
    println!("missing: {}", missing.join(" "));
    if !is_program("apt-get") {
        return Err(Failure::new(format!(
            "there is no `apt-get` on this system: install what is in Debian's packages {}",
            missing.join(" ")
        )));
    }
    apt(&["update", "--quiet"])?;
    let install = ["install", "--quiet", "--yes", "--no-install-recommends"];
    apt(&[&install[..], &missing].concat())
}

fn apt(arguments: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    println!("$ {}", line(&command));
    succeed(&mut command)
}

fn is_there(need: &Need) -> bool {
    match need.program {
        Some(program) => is_program(program),
        None => is_installed(need.package),
    }
}

fn is_program(name: &str) -> bool {
    std::fs::metadata(Path::new("/usr/bin").join(name)).is_ok_and(|found| found.is_file())
}

/// What `dpkg` says of a package; a system without it has no packages.
fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat", "${db:Status-Status}", package]);
    query.output().is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}
