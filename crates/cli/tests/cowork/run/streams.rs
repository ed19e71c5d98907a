//! The command's streams: pipes, files, nothing, and a great deal.

use crate::support::{cowork, finish, for_everyone, lines, run, wait};
use cowork_testbed::{Folder, Person, programs};
use std::fs::File;
use std::process::Stdio;

for_everyone!(
    each_stream_is_its_own,
    streams_are_opened_again_by_name,
    a_hundred_megabytes_through_pipes,
    a_hundred_megabytes_through_files,
    the_null_device_and_no_stream_at_all,
    a_reader_that_has_seen_enough,
    output_of_what_is_left_running_is_complete,
    files_cannot_be_opened_again,
    folders_are_refused,
    sockets_are_copied,
);

/// Bytes that repeat in no period that a buffer could have.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // xorshift64 (Marsaglia, "Xorshift RNGs").
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

const MUCH: usize = 100_000_000;

fn each_stream_is_its_own(person: Person) {
    let work = Folder::new(person, "work");
    let inside = "cat; echo out; echo err >&2; test -p /dev/stdin && echo pipe";
    let said =
        finish(cowork(person, work.path(), &["run", "--", "sh", "-c", inside]), b"in\n".into());
    assert_eq!((said.code, said.text(), said.err.as_str()), (0, "in\nout\npipe\n", "err\n"));
}

/// With the daemon and without; each only in the direction that it has.
fn streams_are_opened_again_by_name(person: Person) {
    let work = Folder::new(person, "work");
    let inside =
        "cat /dev/stdin > /dev/stdout && echo err > /dev/stderr && echo all | tee /dev/stderr";
    for how in [&["run"][..], &["run", "--no-daemon"]] {
        let arguments = [how, &["--", "sh", "-c", inside]].concat();
        let said = finish(cowork(person, work.path(), &arguments), b"in\n".into());
        let expected = (0, "in\nall\n", "err\nall\n");
        assert_eq!((said.code, said.text(), said.err.as_str()), expected, "{how:?}");
    }
}

fn a_hundred_megabytes_through_pipes(person: Person) {
    let work = Folder::new(person, "work");
    let much = noise(MUCH);
    let said = finish(cowork(person, work.path(), &["run", "--", "cat"]), much.clone());
    assert_eq!((said.code, said.err.as_str(), said.out.len()), (0, "", MUCH));
    assert!(said.out == much, "the bytes are the same");
}

fn a_hundred_megabytes_through_files(person: Person) {
    let work = Folder::new(person, "work");
    let much = noise(MUCH);
    let from = work.write("from", &much);
    let to = work.write("to", "");
    let mut command = cowork(person, work.path(), &["run", "--no-grants", "--", "cat"]);
    command.stdin(File::open(from).expect("it was written"));
    command.stdout(File::options().write(true).open(&to).expect("it was written"));
    command.stderr(Stdio::null());
    assert_eq!(wait(&mut command.spawn().expect("the program is there")), 0);
    assert!(std::fs::read(&to).expect("it was written") == much, "the bytes are the same");
    // Appending appends.
    let mut command = cowork(person, work.path(), &["run", "--no-grants", "--", "echo", "more"]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command.stdout(File::options().append(true).open(&to).expect("it was written"));
    assert_eq!(wait(&mut command.spawn().expect("the program is there")), 0);
    let bytes = std::fs::read(&to).expect("it was written");
    assert!(bytes.len() == MUCH + 5 && bytes.ends_with(b"more\n"));
}

fn the_null_device_and_no_stream_at_all(person: Person) {
    let work = Folder::new(person, "work");
    let cowork = programs().join("cowork");
    let name = work.path().file_name().and_then(|name| name.to_str()).expect("it is text");
    let note = format!("mnt/{name}/note");
    let inside =
        format!("cat > {note}; echo out; echo err >&2; readlink /proc/self/fd/0 >> {note}; exit 5");
    for streams in ["</dev/null >/dev/null 2>/dev/null", "<&- >&- 2>&-", "<&-", ">&-", "2>&-"] {
        let outer = format!("{} run -- sh -c '{inside}' {streams}", cowork.display());
        let mut command = person.command("/bin/sh");
        command.current_dir(work.path()).args(["-c", &outer]);
        let said = finish(command, b"typed\n".into());
        let input = if streams.contains('<') { "/dev/null\n" } else { "typed\n" };
        let kept = work.read("note").expect("it was written");
        assert!(kept.starts_with(input), "{streams}: {kept}");
        let silent = |mark: &str| streams.split(' ').any(|stream| stream.starts_with(mark));
        let expected = if silent(">") { "" } else { "out\n" };
        assert_eq!((said.code, said.text()), (5, expected), "{streams}");
        let expected = if silent("2>") { "" } else { "err\n" };
        assert_eq!(said.err, expected, "{streams}");
    }
}

fn a_reader_that_has_seen_enough(person: Person) {
    let work = Folder::new(person, "work");
    let outer = format!("{} run -- yes | head -2", programs().join("cowork").display());
    let mut command = person.command("/bin/bash");
    command.current_dir(work.path()).args(["-c", &format!("{outer}; echo ${{PIPESTATUS[0]}}")]);
    // `yes` is ended by SIGPIPE, as it would be outside.
    assert_eq!(finish(command, Vec::new()).good(), "y\ny\n141\n");
}

fn output_of_what_is_left_running_is_complete(person: Person) {
    let work = Folder::new(person, "work");
    let inside = "(seq 20000; touch said; exec sleep 1000) & \
                  while [ ! -e said ]; do sleep 0.01; done; echo end";
    let expected = lines(1..=20_000, "\n");
    let expected = format!("{expected}end\n");
    let said = run(person, work.path(), &["run", "--", "sh", "-c", inside]);
    assert_eq!((said.good().len(), said.text() == expected), (expected.len(), true));
    let to = work.write("to", "");
    let mut command = cowork(person, work.path(), &["run", "--", "sh", "-c", inside]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command.stdout(File::options().write(true).open(&to).expect("it was written"));
    assert_eq!(wait(&mut command.spawn().expect("the program is there")), 0);
    assert!(work.read("to").is_some_and(|text| text == expected));
}

/// A file behind a stream could be opened again with other rights, so the session never has it.
fn files_cannot_be_opened_again(person: Person) {
    let work = Folder::new(person, "work");
    let from = work.write("from", "kept\n");
    let to = work.write("to", "");
    let inside = "cat; echo x > /proc/self/fd/0; readlink /proc/self/fd/0 /proc/self/fd/1";
    let mut command =
        cowork(person, work.path(), &["run", "--no-grants", "--", "sh", "-c", inside]);
    command.stdin(File::open(from).expect("it was written")).stderr(Stdio::null());
    command.stdout(File::options().write(true).open(to).expect("it was written"));
    wait(&mut command.spawn().expect("the program is there"));
    assert_eq!(work.read("from").as_deref(), Some("kept\n"));
    let said = work.read("to").expect("it was written");
    let links: Vec<&str> = said.lines().skip(1).collect();
    assert!(links.len() == 2 && links.iter().all(|link| link.starts_with("pipe:")), "{said}");
}

fn folders_are_refused(person: Person) {
    let work = Folder::new(person, "work");
    let mut command = person.command("/bin/sh");
    let outer = format!("{} run -- true < .", programs().join("cowork").display());
    command.current_dir(work.path()).args(["-c", &outer]);
    let said = finish(command, Vec::new());
    let expected = "cowork: standard input is a folder, which would be a way out\n  \
                    hint: give the command a file or a pipe there, and grant the folder instead\n";
    assert_eq!((said.code, said.text(), said.err.as_str()), (125, "", expected));
}

fn sockets_are_copied(person: Person) {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let work = Folder::new(person, "work");
    let (mut near, far) = UnixStream::pair().expect("the host has sockets");
    let inside = "cat; readlink /proc/self/fd/0 | cut -d: -f1";
    let mut command = cowork(person, work.path(), &["run", "--", "sh", "-c", inside]);
    let output = far.try_clone().expect("descriptors are left");
    command.stdin(std::os::fd::OwnedFd::from(far)).stdout(std::os::fd::OwnedFd::from(output));
    let mut child = command.stderr(Stdio::null()).spawn().expect("the program is there");
    drop(command);
    near.write_all(b"through\n").expect("somebody listens");
    near.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut said = String::new();
    near.read_to_string(&mut said).expect("it is text");
    assert_eq!((wait(&mut child), said.as_str()), (0, "through\npipe\n"));
}
