//! A disk that is full, and has room again.

use crate::support::{Watched, counted, from, pieces, pipe, same, shell, stream};
use cowork_session::output::{Pump, Stream};
use cowork_testbed::{Folder, Person};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use std::path::Path;
use std::time::{Duration, Instant};

/// A disk in memory.
pub(crate) struct Disk(Folder);

impl Disk {
    #[must_use]
    pub(crate) fn new(options: &std::ffi::CStr) -> Self {
        let folder = Folder::new(Person::Root, "disk");
        mount("none", folder.path(), "tmpfs", MountFlags::empty(), options).expect("we are root");
        Self(folder)
    }

    fn resize(&self, options: &std::ffi::CStr) {
        mount_remount(self.path(), MountFlags::empty(), options).expect("we are root");
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(self.path(), UnmountFlags::DETACH).expect("it was mounted");
    }
}

const LAST: u32 = 400_000;

#[test]
fn a_full_disk_stops_a_command_and_loses_nothing() {
    let disk = Disk::new(c"size=4m");
    let ballast = disk.0.write("ballast", vec![1; 3 << 20]);
    let pump = Pump::start().expect("threads");
    let ((out, out_end), (err, err_end)) = (pipe(), pipe());
    let sources = vec![from(Stream::Stdout, &out), from(Stream::Stderr, &err)];
    let watched = Watched::add(&pump, disk.path(), sources);
    let line = format!("seq -f e%.0f {LAST} >&2 & seq {LAST}; wait");
    let mut child = shell(&line, out_end, err_end);
    watched.until(|log| log.error().is_some());
    let error = watched.log.error().expect("it was there");
    assert!(error.contains("No space left on device"), "{error}");
    let kept = watched.log.progress().total;
    assert!(kept > 0 && kept <= 1 << 20, "{kept}");
    // It is tried again in vain, and stays as it is.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(child.try_wait().expect("it was started"), None);
    assert!(watched.log.error().is_some());

    // The rest needs more room than the ballast had, so that it comes to a stop once more.
    std::fs::remove_file(&ballast).expect("it was written");
    let freed = Instant::now();
    watched.until(|log| log.error().is_none());
    assert!(freed.elapsed() < Duration::from_millis(1500), "{:?}", freed.elapsed());
    watched.until(|log| log.error().is_some());
    disk.resize(c"size=64m");
    watched.finished();
    assert_eq!(watched.log.error(), None);
    assert!(child.wait().expect("it was started").success());
    let pieces = pieces(disk.path(), 1 << 16);
    same(&stream(&pieces, Stream::Stdout), &counted("", LAST, "\n"));
    same(&stream(&pieces, Stream::Stderr), &counted("e", LAST, "\n"));
}

#[test]
fn another_pump_goes_on_when_the_disk_has_room_again() {
    let disk = Disk::new(c"size=1m");
    let (out, out_end) = pipe();
    let (err, err_end) = pipe();
    let mut child = shell(&format!("seq {LAST}"), out_end, err_end);
    drop(err);
    for size in [c"size=1m", c"size=2m", c"size=64m"] {
        disk.resize(size);
        let pump = Pump::start().expect("threads");
        let watched = Watched::add(&pump, disk.path(), vec![from(Stream::Stdout, &out)]);
        watched.until(|log| log.error().is_some() || log.progress().finished);
    }
    assert!(child.wait().expect("it was started").success());
    same(&stream(&pieces(disk.path(), 1 << 16), Stream::Stdout), &counted("", LAST, "\n"));
}

#[test]
fn one_full_disk_does_not_stop_the_others() {
    let disk = Disk::new(c"size=1m");
    let pump = Pump::start().expect("threads");
    let ((out, out_end), (err, err_end)) = (pipe(), pipe());
    let stuck = Watched::add(&pump, disk.path(), vec![from(Stream::Stdout, &out)]);
    let mut child = shell("exec yes", out_end, err_end);
    drop(err);
    stuck.until(|log| log.error().is_some());
    let folder = crate::support::folder();
    let (out, out_end) = pipe();
    let well = Watched::add(&pump, folder.path(), vec![from(Stream::Stdout, &out)]);
    for count in 1..=1000_u64 {
        crate::support::write(&out_end, b"x");
        well.total(count);
    }
    child.kill().expect("it is ours");
    child.wait().expect("it was started");
}
