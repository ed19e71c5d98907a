//! The programs on another kernel than this host's, with cgroup v2 and all of its controllers as
//! systemd gives them: sessions, limits, live folders, undo, the daemon. As root and as an ordinary
//! user.
//!
//! The kernel is Debian's own, in an emulated machine whose whole file system is one archive: the
//! programs, busybox, and `guest.sh`, which tries things and says how each went. `cargo xtask test`
//! gets the kernel; `COWORK_KERNEL` names it, and `COWORK_ESCAPE` the program with the attacks, of which
//! some need this kernel. Without them these tests are ignored, and counted as such.

#![forbid(unsafe_code)]
#![expect(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]
#![expect(clippy::tests_outside_test_module, reason = "this whole program is tests")]

mod archive;

use archive::Archive;
use cowork_testbed::{Folder, Person, programs};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest that the machine may take, emulated and on a busy host.
const DEADLINE: Duration = Duration::from_mins(6);
/// What it says when it has come to its end.
const END: &str = "all of it was tried";

/// Unpacks itself into a file system that sessions can be made on: the first one cannot be left.
const FIRST: &str = "#!/bin/sh
export PATH=/usr/bin
mkdir /new && mount -t tmpfs new /new && cp -a /usr /bin /sbin /lib /lib64 /etc /opt /guest.sh /new/
for place in proc sys dev tmp run root home var; do mkdir /new/$place; done
exec switch_root /new /guest.sh
";

/// The file system of the machine.
fn file_system() -> Vec<u8> {
    let mut archive = Archive::default();
    for folder in ["usr", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "opt", "opt/cowork"]
    {
        archive.folder(folder);
    }
    for (name, to) in
        [("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")]
    {
        archive.link(name, to);
    }
    let busybox = Path::new("/bin/busybox");
    archive.copy("usr/bin/busybox", busybox);
    let applets = Command::new(busybox).arg("--list").output().expect("busybox is installed");
    let applets = String::from_utf8(applets.stdout).expect("names are text");
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        archive.link(&format!("usr/bin/{applet}"), "busybox");
    }
    for entry in std::fs::read_dir(programs()).expect("programs are there").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        archive.copy(&format!("opt/cowork/{name}"), &entry.path());
    }
    let escape = std::env::var_os("COWORK_ESCAPE")
        .expect("`COWORK_ESCAPE` names the program with the attacks: see `cargo xtask test`");
    // Sessions see it there too.
    archive.copy("usr/bin/cowork-escape", Path::new(&escape));
    let passwd = "root:x:0:0:root:/root:/bin/sh\nuser:x:1001:1001:user:/home/user:/bin/sh\n";
    archive.text("etc/passwd", passwd, 0o644);
    archive.text("etc/group", "root:x:0:\nuser:x:1001:\n", 0o644);
    archive.text("etc/shadow", "user::::::::\n", 0o600);
    archive.text("init", FIRST, 0o755);
    archive.text("guest.sh", include_str!("guest.sh"), 0o755);
    archive.finish()
}

/// How many things are tried: those in functions once for each person.
fn to_be_tried() -> usize {
    let tries = |line: &&str| line.starts_with("says ") || line.starts_with("has ");
    let all = include_str!("guest.sh").lines();
    let alone = all.clone().filter(tries).count();
    let in_functions = all.filter_map(|line| line.strip_prefix("    ")).filter(tries).count();
    alone + in_functions * Person::ALL.len()
}

/// The machine, until this is dropped.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have turned itself off.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
#[ignore = "needs a kernel and an emulator, which `cargo xtask test` installs"]
fn an_older_kernel_with_cgroup_v2() {
    let kernel = std::env::var_os("COWORK_KERNEL")
        .expect("`COWORK_KERNEL` names the file of a kernel: see `cargo xtask test`");
    let folder = Folder::new(Person::Root, "machine");
    let files = folder.write("files", file_system());
    let mut machine = Command::new("qemu-system-x86_64");
    machine.args(["-accel", "tcg", "-m", "2G", "-smp", "2", "-nic", "none", "-nographic"]);
    // Debian's kernel has the calls of x32, and answers them when it is told to.
    let line = "console=ttyS0 loglevel=1 panic=1 lsm=landlock syscall.x32=y";
    machine.args(["-no-reboot", "-append", line]);
    machine.arg("-kernel").arg(kernel).arg("-initrd").arg(files);
    machine.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut machine = Machine(machine.spawn().expect("the emulator is installed"));
    let output = machine.0.stdout.take().expect("it is a pipe");
    let (tell, told) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if tell.send(String::from_utf8_lossy(&line).trim().to_owned()).is_err() {
                return;
            }
        }
    });
    let end = Instant::now() + DEADLINE;
    let mut lines = Vec::new();
    // Without an end, or late, what it said until then tells how far it came.
    while let Ok(line) = told.recv_timeout(end.saturating_duration_since(Instant::now())) {
        println!("{line}");
        lines.push(line);
    }
    drop(machine);
    reader.join().expect("it ends with its pipe");
    let failed: Vec<_> = lines.iter().filter(|line| line.starts_with("FAILED ")).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(lines.iter().any(|line| line == END), "it did not come to its end");
    let good = lines.iter().filter(|line| line.starts_with("ok ")).count();
    assert_eq!(good, to_be_tried(), "{lines:#?}");
}
