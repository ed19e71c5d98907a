//! How a command ends: its own way, by a signal, by the clock.

use crate::support::{cowork, finish, for_everyone, run, send, until, wait};
use cowork_testbed::{Folder, Person};
use rustix::process::Signal;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

for_everyone!(
    its_status_is_returned,
    a_signal_that_ended_it_is_returned,
    signals_are_passed_on,
    what_its_starter_ignores_is_heeded,
    signals_reach_the_whole_group,
    signals_that_it_does_not_heed_end_it,
    time_can_be_over,
    what_it_left_running_ends,
);

fn its_status_is_returned(person: Person) {
    let work = Folder::new(person, "work");
    for code in [0, 1, 7, 124, 125, 126, 127, 128, 255] {
        let said = run(person, work.path(), &["run", "--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!((said.code, said.text(), said.err.as_str()), (code, "", ""));
    }
}

fn a_signal_that_ended_it_is_returned(person: Person) {
    let work = Folder::new(person, "work");
    for signal in [Signal::HUP, Signal::INT, Signal::KILL, Signal::SEGV, Signal::TERM, Signal::SYS]
    {
        let number = signal.as_raw();
        let inside = format!("ulimit -c 0; kill -{number} $$; sleep 100");
        let said = run(person, work.path(), &["run", "--", "sh", "-c", &inside]);
        assert_eq!((said.code, said.text(), said.err.as_str()), (128 + number, "", ""));
    }
}

fn signals_are_passed_on(person: Person) {
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        let work = Folder::new(person, "work");
        let inside = format!(
            "cd mnt/*work; trap 'echo {name} > heard; exit 3' {name}; echo > ready; \
             while :; do sleep 0.05; done"
        );
        let mut command = cowork(person, work.path(), &["run", "--", "bash", "-c", &inside]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program is there");
        until("it is ready", || work.read("ready").is_some());
        send(&child, signal);
        assert_eq!(wait(&mut child), 3, "{name}");
        assert_eq!(work.read("heard"), Some(format!("{name}\n")));
    }
}

fn what_its_starter_ignores_is_heeded(person: Person) {
    // A shell starts what it puts into the background like this.
    let ignoring = "trap '' INT QUIT HUP USR1; exec \"$@\"";
    let program = cowork_testbed::programs().join("cowork");
    let look = "grep ^SigIgn: /proc/self/status";
    for way in [&["run", "--no-daemon"][..], &["run"]] {
        let work = Folder::new(person, "work");
        let mut command = person.command("sh");
        command.current_dir(work.path()).args(["-c", ignoring, "sh"]).arg(&program).args(way);
        let said = finish(
            {
                command.args(["--", "sh", "-c", look]);
                command
            },
            Vec::new(),
        );
        let ignored = said.text().trim_start_matches("SigIgn:").trim().to_owned();
        // Above them are those that the C library keeps for itself.
        let ignored = u64::from_str_radix(&ignored, 16).expect("a mask") & 0x7fff_ffff;
        assert_eq!((said.code, ignored), (0, 0), "{way:?}");
    }
}

fn signals_reach_the_whole_group(person: Person) {
    let work = Folder::new(person, "work");
    let inside = "cd mnt/*work; trap 'wait; exit 4' INT; \
                  for n in 1 2 3; do python3 -c 'import signal, sys, time\n\
def heard(*_): open(\"heard\" + sys.argv[1], \"w\").close(); sys.exit()\n\
signal.signal(signal.SIGINT, heard)\n\
open(\"ready\" + sys.argv[1], \"w\").close()\n\
time.sleep(100)' $n & done; wait; exit 5";
    let mut command = cowork(person, work.path(), &["run", "--", "bash", "-c", inside]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program is there");
    let all = |what: &str| (1..=3).all(|n| work.read(&format!("{what}{n}")).is_some());
    until("they are ready", || all("ready"));
    send(&child, Signal::INT);
    assert_eq!(wait(&mut child), 4);
    assert!(all("heard"), "every process of the group hears it");
}

fn signals_that_it_does_not_heed_end_it(person: Person) {
    let work = Folder::new(person, "work");
    for signal in [Signal::TERM, Signal::INT, Signal::USR1] {
        let mut command =
            cowork(person, work.path(), &["run", "--", "sh", "-c", "echo ready; exec sleep 100"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program is there");
        let mut ready = [0; 6];
        child.stdout.as_mut().expect("it is a pipe").read_exact(&mut ready).expect("it says so");
        send(&child, signal);
        assert_eq!(wait(&mut child), 128 + signal.as_raw());
        let mut err = String::new();
        child.stderr.as_mut().expect("it is a pipe").read_to_string(&mut err).expect("text");
        assert_eq!(err, "");
    }
}

fn time_can_be_over(person: Person) {
    let work = Folder::new(person, "work");
    let begun = Instant::now();
    let inside = "trap '' TERM INT HUP; echo begun; sleep 100";
    let arguments = ["run", "--timeout", "1s", "--", "sh", "-c", inside];
    let said = run(person, work.path(), &arguments);
    let expected = "cowork: the session's time was over\n  hint: give it more with `--timeout`\n";
    assert_eq!((said.code, said.text(), said.err.as_str()), (124, "begun\n", expected));
    assert!(begun.elapsed() > Duration::from_secs(1) && begun.elapsed() < Duration::from_secs(20));
    let said = run(person, work.path(), &["run", "--timeout", "5m", "--", "echo", "in time"]);
    assert_eq!(said.good(), "in time\n");
    // Also into a file, where somebody has to carry the bytes.
    let mut command = person.command("/bin/sh");
    let cowork = cowork_testbed::programs().join("cowork");
    let outer = format!(
        "{} run --timeout 1s -- sh -c '{}' > said",
        cowork.display(),
        "echo begun; sleep 100"
    );
    command.current_dir(work.path()).args(["-c", &outer]);
    let said = finish(command, Vec::new());
    assert_eq!((said.code, work.read("said").as_deref()), (124, Some("begun\n")));
}

fn what_it_left_running_ends(person: Person) {
    let work = Folder::new(person, "work");
    let begun = Instant::now();
    let inside = "cd mnt/*work; trap '' TERM HUP; \
                  setsid sh -c 'while :; do date +%s%N > beat; sleep 0.02; done' & \
                  sleep 1000 & nohup sleep 1000 > /dev/null 2>&1 & \
                  while [ ! -s beat ]; do sleep 0.01; done; echo done; exit 2";
    let said = run(person, work.path(), &["run", "--", "sh", "-c", inside]);
    assert_eq!((said.code, said.text(), said.err.as_str()), (2, "done\n", ""));
    assert!(begun.elapsed() < Duration::from_mins(1), "nobody waits for it");
    let beat = work.read("beat");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(work.read("beat"), beat, "the heart has stopped");
}
