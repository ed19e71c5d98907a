//! What there is at the top of a session's file system: these names and these mounts, and nothing
//! else of the host's.

use crate::bench::{Room, as_everybody, new_plan};
use cowork_api::plan::{OwnStep, RootStep, SessionPlan};
use std::collections::BTreeSet;
use std::path::Path;

/// Everything at the top, on a host where `/usr` is merged or not.
const TOP: [&str; 15] = [
    ".sealed", "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin",
    "sessions", "tmp", "usr", "var",
];
/// Those that every session has.
const ALWAYS: [&str; 9] = [".sealed", "dev", "etc", "proc", "run", "sessions", "tmp", "usr", "var"];
const DEVICES: [&str; 13] = [
    "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
    "urandom", "zero",
];
/// Everything that `/etc` may have. `java-*` is left out by the script.
const ETC: [&str; 29] = [
    "alternatives",
    "bash.bashrc",
    "chromium",
    "chromium.d",
    "crypto-policies",
    "fonts",
    "group",
    "hostname",
    "hosts",
    "inputrc",
    "ld.so.cache",
    "localtime",
    "lsb-release",
    "mime.types",
    "mtab",
    "nsswitch.conf",
    "opt",
    "os-release",
    "passwd",
    "pki",
    "profile",
    "protocols",
    "resolv.conf",
    "services",
    "session",
    "shells",
    "ssl",
    "timezone",
    "vim",
];

fn names(text: &str) -> BTreeSet<&str> {
    text.lines().collect()
}

#[test]
fn the_top_has_these_names_and_no_others() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let top = room.shell("ls -A /");
        let known = BTreeSet::from(TOP);
        assert!(names(&top).is_subset(&known), "{:?}", names(&top).difference(&known));
        assert!(names(&top).is_superset(&BTreeSet::from(ALWAYS)), "{top}");
        assert_eq!(names(&room.shell("ls -A /dev")), BTreeSet::from(DEVICES));
        let etc = room.shell("ls -A /etc | grep -v ^java-");
        let known = BTreeSet::from(ETC);
        assert!(names(&etc).is_subset(&known), "{:?}", names(&etc).difference(&known));
        assert_eq!(room.shell("ls -A /etc/session"), "certs\nhostname\nhosts\npasswd\n");
        assert_eq!(
            room.shell("ls -A /var; ls -A /tmp /run /dev/shm | grep -v :"),
            "tmp\n\ncowork.sock\n\n"
        );
        let own = format!("{}\nmnt\noutputs\nskills\nuploads\n", room.id());
        assert_eq!(room.shell("ls -A /sessions; ls -A ~; ls -A ~/mnt"), own);
    });
}

#[test]
fn what_programs_of_the_system_look_up_there_is_the_hosts() {
    as_everybody(|bench| {
        let (_keeper, mut room) = bench.room();
        let libraries = std::fs::read("/etc/ld.so.cache").expect("the host has one");
        assert_eq!(room.shell("wc -c < /etc/ld.so.cache").trim(), libraries.len().to_string());
        let known = room.shell("/sbin/ldconfig -p | grep -c 'libc.so.6 '");
        assert_ne!(known.trim(), "0", "the loader's list can be read");
        // A program whose name leads through `/etc/alternatives`.
        assert_eq!(room.shell("readlink /usr/bin/awk"), "/etc/alternatives/awk\n");
        assert_eq!(room.shell("awk 'BEGIN { print 6 * 7 }'"), "42\n");
        let zone = std::process::Command::new("date").arg("+%Z %z").env_remove("TZ").output();
        let zone = String::from_utf8(zone.expect("the host has it").stdout).expect("it is text");
        assert_eq!(room.shell("unset TZ; date '+%Z %z'"), zone);
        assert_eq!(room.shell("TZ=Asia/Tokyo date '+%Z %z'"), "JST +0900\n");
    });
}

/// A line of `mountinfo`.
#[derive(Debug)]
struct Mount<'a> {
    device: &'a str,
    root: &'a str,
    place: &'a str,
    options: &'a str,
    kind: &'a str,
}

fn mounts(text: &str) -> Vec<Mount<'_>> {
    text.lines().map(|line| mount(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

fn mount(line: &str) -> Option<Mount<'_>> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(2);
    let (device, root) = (fields.next()?, fields.next()?);
    let (place, options) = (fields.next()?, fields.next()?);
    Some(Mount { device, root, place, options, kind: file_system.split(' ').next()? })
}

/// Where a plan mounts something of the host's.
fn of_the_host(plan: &SessionPlan) -> Vec<String> {
    let steps = plan.root.iter().filter_map(|step| match step {
        // A file is copied.
        RootStep::System { from, at } => {
            let from = String::from_utf8_lossy(from).into_owned();
            Path::new(&from).is_dir().then(|| String::from_utf8_lossy(at).into_owned())
        }
        RootStep::Device { at, .. } => Some(String::from_utf8_lossy(at).into_owned()),
        RootStep::Link { .. } | RootStep::Folder { .. } | RootStep::File { .. } => None,
    });
    steps.collect()
}

/// Where a plan mounts something of the session's own.
fn of_its_own(plan: &SessionPlan) -> Vec<String> {
    let steps = plan.own.iter().filter_map(|step| match step {
        OwnStep::Processes { at }
        | OwnStep::Terminals { at }
        | OwnStep::Scratch { at, .. }
        | OwnStep::Blank { at }
        | OwnStep::Home { at, .. }
        | OwnStep::Grants { at, .. }
        | OwnStep::Notes { at, .. } => Some(String::from_utf8_lossy(at).into_owned()),
        OwnStep::Link { .. } => None,
    });
    let steps = steps.collect::<Vec<_>>();
    // The root, and what lies beneath two of them: an empty `/proc`, and all that is not kept.
    [vec!["/".into(), "/proc".into(), "/run".into()], steps].concat()
}

#[test]
fn the_mounts_are_those_of_the_plan_and_no_others_of_the_host() {
    as_everybody(|bench| {
        let plan = new_plan();
        let (host, own) = (of_the_host(&plan), of_its_own(&plan));
        let mut keeper = bench.keeper();
        let mut room = Room::make(&mut keeper, plan);
        let seen = room.shell("cat /proc/self/mountinfo");
        let seen = mounts(&seen);
        let mut places: Vec<&str> = seen.iter().map(|mount| mount.place).collect();
        let mut expected: Vec<&str> = host.iter().chain(&own).map(String::as_str).collect();
        places.sort_unstable();
        expected.sort_unstable();
        assert_eq!(places, expected);
        let all = std::fs::read_to_string("/proc/self/mountinfo").expect("it is ours");
        let hosts: BTreeSet<&str> = mounts(&all).iter().map(|mount| mount.device).collect();
        for mount in &seen {
            if host.iter().any(|place| place == mount.place) {
                let device = mount.place.starts_with("/dev/");
                let at_its_own = mount.place.strip_suffix(".host").unwrap_or(mount.place);
                let below = at_its_own.strip_prefix("/dev").filter(|_| device);
                let root = below.unwrap_or(at_its_own);
                assert!(mount.root.ends_with(root), "{mount:?}");
                assert_eq!(mount.options.starts_with("ro,nosuid"), !device, "{mount:?}");
            } else {
                assert!(!hosts.contains(mount.device), "it is the host's: {mount:?}");
                assert!(["tmpfs", "proc", "devpts"].contains(&mount.kind), "{mount:?}");
            }
        }
    });
}
