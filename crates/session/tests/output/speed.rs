//! How fast output gets into files, beside `cat` and a bare `read`. Measurements, not claims:
//! `cargo test --release -p cowork-session --test output -- --ignored --nocapture speed`.

use crate::disk::Disk;
use crate::support::{ROOM, Watched, duplicate, folder, from, pipe, shell};
use crate::terminal::{self, source, terminal};
use cowork_session::output::{Log, Pump, Source, Stream};
use cowork_sys::ignore;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const MIB: u64 = 2048;
const SAMPLES: u32 = 3000;

fn rate(name: &str, mib: u64, started: Instant) {
    let took = started.elapsed();
    let rate = mib * 1000 / u64::try_from(took.as_millis().max(1)).expect("it is small");
    println!("{name:42} {mib:5} MiB in {took:8.1?}: {rate:5} MiB/s");
}

/// Adds a log that wakes nobody before it has finished: two processors are for writer and pump.
fn until_the_end(pump: &Pump, folder: &Path, sources: Vec<Source>, cap: u64) -> Receiver<()> {
    let (sender, ended) = channel();
    let log = Arc::new(OnceLock::<Arc<Log>>::new());
    let seen = Arc::clone(&log);
    let wake = Box::new(move || {
        if seen.get().is_some_and(|log| log.progress().finished) {
            ignore(sender.send(()));
        }
    });
    ignore(log.set(pump.add(folder, sources, cap, wake).expect("the folder is ours")));
    ended
}

/// Moves what a shell line writes into a file system in memory, where only the way there counts.
fn flood(name: &str, cap: u64, line: &str, mib: u64) {
    let (disk, pump) = (Disk::new(c"size=4g"), Pump::start().expect("threads"));
    let ((out, out_end), (err, err_end)) = (pipe(), pipe());
    let sources = vec![from(Stream::Stdout, &out), from(Stream::Stderr, &err)];
    let started = Instant::now();
    let mut child = shell(line, out_end, err_end);
    let ended = until_the_end(&pump, disk.path(), sources, cap);
    ended.recv().expect("it ends");
    rate(name, mib, started);
    assert!(child.wait().expect("it was started").success());
}

#[test]
#[ignore = "a measurement"]
fn speed_of_a_flood() {
    for _ in 0..3 {
        let disk = Disk::new(c"size=4g");
        let started = Instant::now();
        let line = format!("head -c {MIB}M /dev/zero | cat > {}/cat", disk.path().display());
        let mut child = Command::new("sh").args(["-c", &line]).spawn().expect("there is a shell");
        assert!(child.wait().expect("it was started").success());
        rate("cat", MIB, started);
        drop(disk);
        let line = format!("head -c {MIB}M /dev/zero");
        flood("pump", ROOM, &line, MIB);
        flood("pump, beyond the cap", 1, &line, MIB);
        let half = MIB / 2;
        let line = format!("head -c {half}M /dev/zero & head -c {half}M /dev/zero >&2; wait");
        flood("pump, two streams", ROOM, &line, MIB);
        let ((controller, side), between) = (terminal(), pipe());
        let (disk, pump) = (Disk::new(c"size=1g"), Pump::start().expect("threads"));
        let started = Instant::now();
        let mut child = terminal::shell("head -c 64M /dev/zero", side);
        let sources = vec![source(&controller, &between)];
        until_the_end(&pump, disk.path(), sources, ROOM).recv().expect("it ends");
        rate("pump, a terminal", 64, started);
        assert!(child.wait().expect("it was started").success());
        let ((controller, side), disk) = (terminal(), Disk::new(c"size=1g"));
        let mut file = File::create(disk.path().join("copied")).expect("the disk is ours");
        let started = Instant::now();
        let mut child = terminal::shell("head -c 64M /dev/zero", side);
        std::io::copy(&mut File::from(controller), &mut file).expect_err("it is hung up");
        rate("read and write, a terminal", 64, started);
        assert!(child.wait().expect("it was started").success());
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("it is readable");
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default());
}

/// Writes a byte now and then, and prints how long it took until `heard` says so.
fn latency(name: &str, end: &OwnedFd, heard: &Receiver<Instant>) {
    let mut times: Vec<Duration> = (0..SAMPLES)
        .map(|_| {
            std::thread::sleep(Duration::from_micros(300));
            heard.try_iter().count();
            let started = Instant::now();
            rustix::io::write(end, b"x").expect("somebody reads");
            heard.recv().expect("it is heard").duration_since(started)
        })
        .collect();
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 1000];
    println!("{name:42} p50 {:?}, p99 {:?}, p99.9 {:?}", at(500), at(990), at(999));
}

/// A log that tells when it was woken.
fn timed(pump: &Pump) -> (cowork_testbed::Folder, OwnedFd, Receiver<Instant>) {
    let (folder, (out, out_end), (sender, heard)) = (folder(), pipe(), channel());
    let wake = Box::new(move || ignore(sender.send(Instant::now())));
    let sources = vec![from(Stream::Stdout, &out)];
    pump.add(folder.path(), sources, ROOM, wake).expect("the folder is ours");
    (folder, out_end, heard)
}

#[test]
#[ignore = "a measurement"]
fn speed_of_a_word() {
    let (out, out_end) = pipe();
    let (sender, heard) = channel();
    let mut file = File::from(duplicate(&out));
    let thread = std::thread::spawn(move || {
        let mut byte = [0];
        while file.read(&mut byte).is_ok_and(|length| length > 0) {
            ignore(sender.send(Instant::now()));
        }
    });
    latency("a bare read", &out_end, &heard);
    drop(out_end);
    thread.join().expect("it ends");

    let pump = Pump::start().expect("threads");
    let (_folder, end, heard) = timed(&pump);
    latency("pump", &end, &heard);
    for floods in [1, 4] {
        let flooded: Vec<_> = (0..floods)
            .map(|_| {
                let (folder, (out, out_end), (_, err_end)) = (folder(), pipe(), pipe());
                let sources = vec![from(Stream::Stdout, &out)];
                let watched = Watched::capped(&pump, folder.path(), sources, 1 << 32);
                (folder, watched, shell("exec yes", out_end, err_end))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(200));
        latency(&format!("pump, {floods} flooding beside it"), &end, &heard);
        for (_folder, _watched, mut child) in flooded {
            child.kill().expect("it is ours");
            child.wait().expect("it was started");
        }
    }
}
