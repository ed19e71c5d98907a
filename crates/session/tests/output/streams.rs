//! Pipes of real programs: order, the cap, commands that leave something behind.

use crate::support::{
    PATIENCE, Watched, counted, duplicate, folder, from, pieces, pipe, same, shell, stream, told,
    write,
};
use cowork_session::output::{Progress, Pump, Stream};
use cowork_sys::ignore;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// A command's two pipes, and its log.
fn run(pump: &Pump, folder: &std::path::Path, line: &str) -> (Watched, std::process::Child) {
    let ((out, out_end), (err, err_end)) = (pipe(), pipe());
    let sources = vec![from(Stream::Stdout, &out), from(Stream::Stderr, &err)];
    let watched = Watched::add(pump, folder, sources);
    (watched, shell(line, out_end, err_end))
}

#[test]
fn pieces_of_two_streams_keep_their_order() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let pause = "sleep 0.02";
    let line = format!("echo a; {pause}; echo b >&2; {pause}; echo c; echo d; {pause}; echo e >&2");
    let (watched, mut child) = run(&pump, folder.path(), &line);
    let progress = watched.finished();
    assert!(child.wait().expect("it was started").success());
    assert_eq!(progress, Progress { total: 10, dropped: 0, finished: true });
    assert_eq!(told(folder.path()), "stdout:a\nstderr:b\nstdout:c\nd\nstderr:e\n");
    assert_eq!(watched.log.error(), None);
}

#[test]
fn two_floods_arrive_whole() {
    const LAST: u32 = 3_000_000;
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let line = format!("seq -f e%.0f {LAST} >&2 & seq {LAST}; wait");
    let (watched, mut child) = run(&pump, folder.path(), &line);
    watched.finished();
    assert!(child.wait().expect("it was started").success());
    let pieces = pieces(folder.path(), 1 << 20);
    same(&stream(&pieces, Stream::Stdout), &counted("", LAST, "\n"));
    same(&stream(&pieces, Stream::Stderr), &counted("e", LAST, "\n"));
    let files = ["index", "stdout", "stderr"];
    for file in files {
        let file = std::fs::metadata(folder.path().join(file)).expect("it was made");
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is ours").count(), files.len());
}

#[test]
fn what_is_alone_needs_hardly_an_index() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let (watched, mut child) = run(&pump, folder.path(), "seq 2000000");
    watched.finished();
    assert!(child.wait().expect("it was started").success());
    let length = std::fs::metadata(folder.path().join("index")).expect("it was made").len();
    assert!(length < 64 * 32, "{length}");
}

#[test]
fn beyond_the_cap_the_oldest_bytes_go_and_the_writer_goes_on() {
    use std::os::unix::fs::MetadataExt;
    const CAP: u64 = 1_000_000;
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let (out, out_end) = pipe();
    let watched = Watched::capped(&pump, folder.path(), vec![from(Stream::Stdout, &out)], CAP);
    let (err, err_end) = pipe();
    let mut child = shell("seq 1000000", out_end, err_end);
    let progress = watched.finished();
    assert!(child.wait().expect("it was started").success());
    drop(err);
    let all = counted("", 1_000_000, "\n");
    let kept = progress.total - progress.dropped;
    assert_eq!(progress.total, all.len() as u64);
    assert!((CAP..=CAP + (3 << 20)).contains(&kept), "{progress:?}");
    let dropped = usize::try_from(progress.dropped).expect("it is small");
    same(&stream(&pieces(folder.path(), 4096), Stream::Stdout), &all[dropped..]);
    let file = std::fs::metadata(folder.path().join("stdout")).expect("it was made");
    assert!(file.blocks() * 512 <= kept + (1 << 20), "{} blocks", file.blocks());
    let repaired = cowork_session::output::repair(folder.path()).expect("nothing to repair");
    assert_eq!(repaired, progress);
}

#[test]
fn a_cap_of_nothing_stops_nobody() {
    for cap in [0, 1] {
        let (pump, folder) = (Pump::start().expect("threads"), folder());
        let ((out, out_end), (err, err_end)) = (pipe(), pipe());
        let watched = Watched::capped(&pump, folder.path(), vec![from(Stream::Stdout, &out)], cap);
        let mut child = shell("seq 1000000", out_end, err_end);
        let progress = watched.finished();
        assert!(child.wait().expect("it was started").success());
        drop(err);
        assert_eq!(progress.total, counted("", 1_000_000, "\n").len() as u64);
        assert!(progress.total - progress.dropped < 2 << 20, "{progress:?}");

        let ((out, out_end), folder) = (pipe(), crate::support::folder());
        let watched = Watched::capped(&pump, folder.path(), vec![from(Stream::Stdout, &out)], cap);
        let consumer = watched.log.consume(0);
        write(&out_end, b"abc");
        watched.total(3);
        consumer.at(3);
    }
}

#[test]
fn an_index_of_tiny_pieces_is_bounded_too() {
    use std::os::unix::fs::MetadataExt;
    const CAP: u64 = 10_000;
    const ROUNDS: u64 = 40_000;
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let ((out, out_end), (err, err_end)) = (pipe(), pipe());
    let sources = vec![from(Stream::Stdout, &out), from(Stream::Stderr, &err)];
    let watched = Watched::capped(&pump, folder.path(), sources, CAP);
    for _ in 0..ROUNDS {
        for end in [&out_end, &err_end] {
            let before = watched.log.progress();
            write(end, b"x");
            watched.until(|log| log.progress() != before);
        }
    }
    drop((out_end, err_end));
    let progress = watched.finished();
    let index = std::fs::metadata(folder.path().join("index")).expect("it was made");
    assert!(index.blocks() * 512 <= CAP + (2 << 20), "{} blocks", index.blocks());
    assert_eq!(progress.total, 2 * ROUNDS);
    assert!(progress.dropped > 0, "{progress:?}");
    let kept = pieces(folder.path(), 4096);
    assert_eq!(kept.len() as u64, progress.total - progress.dropped);
}

#[test]
fn a_reader_that_must_not_miss_anything_holds_the_writer_up() {
    const CAP: u64 = 200_000;
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let (out, out_end) = pipe();
    let watched = Watched::capped(&pump, folder.path(), vec![from(Stream::Stdout, &out)], CAP);
    let consumer = watched.log.consume(0);
    let (err, err_end) = pipe();
    let mut child = shell("seq 1000000", out_end, err_end);
    while !watched.log.is_held() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(watched.log.progress().total, CAP);
    let mut reader = watched.log.reader().expect("it is there");
    let (mut read, mut at) = (Vec::new(), 0);
    loop {
        let pieces = reader.read(at, 30_000).expect("it can be read");
        for piece in &pieces {
            assert_eq!(piece.offset, at);
            at += piece.bytes.len() as u64;
            read.extend(&piece.bytes);
        }
        consumer.at(at);
        let over = watched.log.progress();
        if pieces.is_empty() && over.finished && over.total == at {
            break;
        }
    }
    assert!(child.wait().expect("it was started").success());
    drop((err, consumer));
    same(&read, &counted("", 1_000_000, "\n"));
    assert!(watched.finished().dropped > 0);
}

#[test]
fn settled_although_something_keeps_the_pipe() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let (watched, mut child) = run(&pump, folder.path(), "sleep 1000 & echo $!");
    assert!(child.wait().expect("it was started").success());
    let (sender, settled) = channel();
    let log = Arc::clone(&watched.log);
    watched.log.settle(Box::new(move || ignore(sender.send(log.progress()))));
    let progress = settled.recv_timeout(PATIENCE).expect("it settles");
    assert!(progress.total > 1 && !progress.finished, "{progress:?}");
    let mut reader = watched.log.reader().expect("it has a folder");
    let said = reader.read_stream(Stream::Stdout, 0, 100).expect("it was written").1;
    let said = String::from_utf8(said).expect("a number");
    let left = said.trim().parse().ok().and_then(Pid::from_raw).expect("a number");
    kill_process(left, Signal::KILL).expect("it is ours");
    assert_eq!(watched.finished().total, said.len() as u64);
}

#[test]
fn settled_although_something_floods_the_pipe() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let (watched, mut child) = run(&pump, folder.path(), "exec yes");
    watched.until(|log| log.progress().total > 10_000_000);
    for _ in 0..20 {
        let (sender, settled) = channel();
        watched.log.settle(Box::new(move || ignore(sender.send(()))));
        settled.recv_timeout(Duration::from_secs(5)).expect("it settles");
    }
    child.kill().expect("it is ours");
    child.wait().expect("it was started");
    let total = watched.finished().total;
    let (sender, settled) = channel();
    watched.log.settle(Box::new(move || ignore(sender.send(()))));
    settled.recv_timeout(PATIENCE).expect("what has finished is settled");
    assert_eq!(watched.log.progress().total, total);
}

#[test]
fn what_is_closed_is_let_go_of() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let (watched, mut child) = run(&pump, folder.path(), "exec yes");
    watched.until(|log| log.progress().total > 1_000_000);
    watched.log.close();
    watched.finished();
    let ended = child.wait().expect("it was started");
    assert_eq!(ended.signal(), Some(Signal::PIPE.as_raw()), "nobody reads");
}

#[test]
fn what_others_hold_is_not_watched_after_it_was_closed() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let (out, out_end) = pipe();
    let watched = Watched::add(&pump, folder.path(), vec![from(Stream::Stdout, &out)]);
    write(&out_end, b"one");
    watched.total(3);
    watched.log.close();
    watched.finished();
    watched.calls();
    write(&out_end, b"two");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(watched.calls(), 0);
    let again = Watched::add(&pump, folder.path(), vec![from(Stream::Stdout, &out)]);
    again.total(6);
    assert_eq!(told(folder.path()), "stdout:onetwo");
}

#[test]
fn a_pump_that_is_dropped_leaves_the_rest_in_the_pipe() {
    let folder = folder();
    let (out, out_end) = pipe();
    let pump = Pump::start().expect("threads");
    let watched = Watched::add(&pump, folder.path(), vec![from(Stream::Stdout, &out)]);
    write(&out_end, b"kept");
    watched.total(4);
    drop(pump);
    write(&out_end, b"left");
    let (sender, settled) = channel();
    watched.log.settle(Box::new(move || ignore(sender.send(()))));
    settled.recv_timeout(PATIENCE).expect("it is called all the same");
    assert_eq!(told(folder.path()), "stdout:kept");
    let mut left = [0; 10];
    let length = std::fs::File::from(duplicate(&out)).read(&mut left).expect("it is a pipe");
    assert_eq!(&left[..length], b"left");
}

#[test]
fn one_folder_has_one_writer() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let (out, _out_end) = pipe();
    let _watched = Watched::add(&pump, folder.path(), vec![from(Stream::Stdout, &out)]);
    let other = Pump::start().expect("threads");
    let refused = other.add(folder.path(), vec![from(Stream::Stdout, &out)], 1, Box::new(|| {}));
    assert_eq!(refused.expect_err("busy").kind(), std::io::ErrorKind::ResourceBusy);
}

#[test]
fn one_stream_has_one_source() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let (out, _out_end) = pipe();
    let sources = vec![from(Stream::Stdout, &out), from(Stream::Stdout, &out)];
    let refused = pump.add(folder.path(), sources, 1, Box::new(|| {}));
    assert_eq!(refused.expect_err("twice").kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn a_command_without_output_has_finished() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let watched = Watched::add(&pump, folder.path(), Vec::new());
    assert_eq!(watched.finished(), Progress { total: 0, dropped: 0, finished: true });
}

#[test]
fn a_log_is_handed_to_the_busy_thread_and_back() {
    let (pump, folder) = (Pump::start().expect("threads"), folder());
    let (out, out_end) = pipe();
    let watched = Watched::add(&pump, folder.path(), vec![from(Stream::Stdout, &out)]);
    let mut expected = Vec::new();
    for round in 0..3 {
        for part in 0..200 {
            let flood = counted(&format!("{round} {part} "), 1000, "\n");
            write(&out_end, &flood);
            expected.extend(flood);
            let (sender, settled) = channel();
            let (log, total) = (Arc::clone(&watched.log), expected.len() as u64);
            let then = move || ignore(sender.send(log.progress().total == total));
            watched.log.settle(Box::new(then));
            assert_eq!(settled.recv_timeout(PATIENCE), Ok(true));
        }
        // After a second without a flood the first word takes it back, and the next one is said
        // there.
        for word in ["", "a", "b"] {
            std::thread::sleep(Duration::from_millis(600));
            write(&out_end, word.as_bytes());
            expected.extend(word.as_bytes());
            watched.total(expected.len() as u64);
        }
    }
    drop(out_end);
    watched.finished();
    same(&stream(&pieces(folder.path(), 1 << 20), Stream::Stdout), &expected);
}

#[test]
fn a_pump_is_shared_by_threads() {
    let pump = Pump::start().expect("threads");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let pump = &pump;
            scope.spawn(move || {
                for number in 0..50 {
                    let (folder, (out, out_end)) = (folder(), pipe());
                    let sources = vec![from(Stream::Stdout, &out)];
                    let watched = Watched::add(pump, folder.path(), sources);
                    write(&out_end, format!("{thread} {number}").as_bytes());
                    drop(out_end);
                    watched.finished();
                    assert_eq!(told(folder.path()), format!("stdout:{thread} {number}"));
                }
            });
        }
    });
}

#[test]
fn a_thousand_commands_at_once_and_a_flood_among_them() {
    const COMMANDS: usize = 1000;
    const ROUNDS: usize = 20;
    let (pump, flooded) = (Pump::start().expect("threads"), folder());
    let (flood, mut child) = run(&pump, flooded.path(), "exec yes");
    let all: Vec<_> = (0..COMMANDS)
        .map(|_| {
            let (folder, (read, end)) = (folder(), pipe());
            let watched = Watched::add(&pump, folder.path(), vec![from(Stream::Stdout, &read)]);
            (folder, end, watched)
        })
        .collect();
    for round in 0..ROUNDS {
        for (number, (_, end, _)) in all.iter().enumerate() {
            write(end, format!("{number} says {round}\n").as_bytes());
        }
    }
    for (number, (folder, end, watched)) in all.into_iter().enumerate() {
        drop(end);
        watched.finished();
        let expected: String =
            (0..ROUNDS).flat_map(|round| [format!("{number} says {round}\n")]).collect();
        assert_eq!(told(folder.path()), format!("stdout:{expected}"));
    }
    child.kill().expect("it is ours");
    child.wait().expect("it was started");
    flood.finished();
}
