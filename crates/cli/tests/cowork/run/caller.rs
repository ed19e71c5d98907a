//! What a caller brings along without thinking of it: a mask, limits, open files, odd names.

use crate::support::{Ran, cowork, finish, for_everyone, run, wait};
use cowork_testbed::{Folder, Person, programs};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

for_everyone!(
    a_mask_for_new_files_is_kept,
    a_low_limit_of_open_files,
    other_low_limits,
    open_files_stay_outside,
    open_files_stay_with_the_caller,
    signals_start_as_usual,
    long_commands_and_environments,
    names_that_are_not_text,
    many_grants,
    grants_inside_grants,
    a_folder_that_is_gone,
    a_full_disk_is_not_a_success,
);

/// Runs a shell that starts `cowork` as `$COWORK`.
fn shell(person: Person, here: &Folder, script: &str) -> Ran {
    let mut command = person.command("/bin/bash");
    command.env("COWORK", programs().join("cowork"));
    command.current_dir(here.path()).args(["-c", script]);
    finish(command, Vec::new())
}

fn a_mask_for_new_files_is_kept(person: Person) {
    for (mask, mode) in [("0022", 0o644), ("0002", 0o664), ("0027", 0o640), ("0077", 0o600)] {
        let work = Folder::new(person, "work");
        let script = format!("umask {mask}; $COWORK run -- sh -c 'umask; cd mnt/*work; touch new'");
        assert_eq!(shell(person, &work, &script).good(), format!("{mask}\n"));
        let made = std::fs::metadata(work.path().join("new")).expect("it was made");
        assert_eq!(made.permissions().mode() & 0o777, mode);
    }
}

fn a_low_limit_of_open_files(person: Person) {
    let work = Folder::new(person, "work");
    for limit in [64, 256, 1024] {
        // A daemon would start with these limits, and keep them for others.
        let run = "$COWORK run --no-daemon";
        let script = format!("ulimit -n {limit}; {run} -- sh -c 'ulimit -n; echo fine'");
        let said = shell(person, &work, &script);
        let text = said.good();
        let (most, rest) = text.split_once('\n').expect("two lines");
        assert_eq!(rest, "fine\n");
        // Root may raise its own limits; nobody else may.
        let within = most.parse::<u32>().is_ok_and(|most| most <= limit);
        assert!(person == Person::Root || within, "{most}");
    }
}

fn other_low_limits(person: Person) {
    let work = Folder::new(person, "work");
    for limit in
        ["ulimit -c 0", "ulimit -s 1024", "ulimit -v 8000000", "ulimit -l 0", "ulimit -f 1000"]
    {
        let said = shell(person, &work, &format!("{limit}; $COWORK run --no-daemon -- echo fine"));
        assert_eq!(said.good(), "fine\n", "{limit}");
    }
}

fn open_files_stay_outside(person: Person) {
    let work = Folder::new(person, "work");
    work.write("secret", "hidden");
    // With a daemon, and with the caller's own child as the keeper.
    for way in ["", "--no-daemon"] {
        let run = format!("$COWORK run {way} --no-grants");
        let script = format!("exec 5<secret 7<>secret 63<.; {run} -- ls /proc/self/fd | cat");
        // The fourth is the folder that `ls` lists.
        assert_eq!(shell(person, &work, &script).good(), "0\n1\n2\n3\n", "{way}");
    }
}

/// Nor does what is outside hold on to them: a pipe of the caller's ends when the caller says so.
fn open_files_stay_with_the_caller(person: Person) {
    for way in ["", "--no-daemon"] {
        let work = Folder::new(person, "work");
        let secret = work.write("secret", "hidden");
        let mut command = person.command("/bin/bash");
        command.env("COWORK", programs().join("cowork")).current_dir(work.path());
        let script = format!("exec 5<secret; exec $COWORK run {way} --no-grants -- cat");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("bash is there");
        let mut input = child.stdin.take().expect("it is a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        input.write_all(b"up\n").expect("it listens");
        let mut line = String::new();
        output.read_line(&mut line).expect("it answers");
        let holders = holders(&secret);
        drop(input);
        assert_eq!((line.as_str(), wait(&mut child)), ("up\n", 0), "{way}");
        assert_eq!(holders, [child.id()], "{way}");
    }
}

/// The processes that have a file open.
fn holders(file: &Path) -> Vec<u32> {
    let names = |folder: &str| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let holds = |pid: &u32| {
        let handles = names(&format!("/proc/{pid}/fd"));
        handles.iter().any(|handle| std::fs::read_link(handle).is_ok_and(|path| path == file))
    };
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse().ok();
    names("/proc").iter().filter_map(number).filter(holds).collect()
}

fn signals_start_as_usual(person: Person) {
    let work = Folder::new(person, "work");
    let inside = "sed -n 's/^Sig\\(Blk\\|Ign\\):\\t//p' /proc/self/status";
    let masks = |before: &str| -> Vec<u64> {
        let said = shell(person, &work, &format!("{before} $COWORK run -- {inside}"));
        // Signals 32 and 33 belong to the C library, which ignores them in what it spawns.
        let usual = |line: &str| u64::from_str_radix(line, 16).map(|mask| mask & 0x7FFF_FFFF);
        said.good().lines().map(|line| usual(line).expect("a number")).collect()
    };
    assert_eq!(masks(""), [0, 0]);
    // What `nohup` and the like ignore is not passed on to the command, which starts afresh.
    assert_eq!(masks("trap '' HUP;"), [0, 0]);
}

fn long_commands_and_environments(person: Person) {
    let work = Folder::new(person, "work");
    let words: Vec<String> = (0..50_000).map(|number| number.to_string()).collect();
    let mut arguments = vec!["run", "--", "printf", "%s\\n"];
    arguments.extend(words.iter().map(String::as_str));
    let said = run(person, work.path(), &arguments);
    assert!(said.good().lines().eq(words.iter().map(String::as_str)));
    let long = "x".repeat(100_000);
    let variable = format!("LONG={long}");
    let arguments =
        ["run", "--env", &variable, "--", "sh", "-c", "echo $LONG; echo $1", "sh", &long];
    let said = run(person, work.path(), &arguments);
    assert!(said.good() == format!("{long}\n{long}\n"));
}

fn names_that_are_not_text(person: Person) {
    let work = Folder::new(person, "work");
    let odd = OsStr::from_bytes(b"caf\xe9 \xff");
    work.write("x", "");
    let folder = work.path().join(odd);
    std::fs::create_dir(&folder).expect("the folder is ours");
    std::os::unix::fs::chown(&folder, Some(person.uid()), Some(person.uid())).expect("we are root");
    let mut command = cowork(person, work.path(), &["run", "--grant"]);
    command.arg(&folder).args(["--env"]).arg(OsStr::from_bytes(b"ODD=\xfe"));
    command.args([
        "--",
        "sh",
        "-c",
        "ls mnt; cd mnt/caf*; printf '%s%s' \"$1\" \"$ODD\" > file",
        "sh",
    ]);
    command.arg(odd);
    let said = finish(command, Vec::new());
    assert_eq!(said.good(), "caf- -\noutputs\nskills\nuploads\n");
    let kept = std::fs::read(folder.join("file")).expect("it was written");
    assert_eq!(kept, b"caf\xe9 \xff\xfe");
}

fn many_grants(person: Person) {
    let work = Folder::new(person, "work");
    let mut arguments = vec!["run".to_owned()];
    for number in 0..60 {
        let path = work.write(&format!("{number}/file"), format!("{number}\n"));
        let folder = path.parent().expect("it has one").display().to_string();
        arguments.extend(["--grant".into(), format!("{folder}=n{number}")]);
    }
    arguments.extend(
        ["--", "sh", "-c", "cat mnt/n*/file | sort -n | tail -1; ls mnt | wc -l"]
            .map(str::to_owned),
    );
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert_eq!(run(person, work.path(), &arguments).good(), "59\n63\n");
}

fn grants_inside_grants(person: Person) {
    let work = Folder::new(person, "work");
    work.write("sub/file", "");
    let inside =
        "touch mnt/outer/sub/a && echo writable; touch mnt/inner/b 2>/dev/null || echo not";
    let grants = ["run", "--grant", ".=outer", "--grant", "sub:ro=inner", "--", "sh", "-c", inside];
    assert_eq!(run(person, work.path(), &grants).good(), "writable\nnot\n");
    assert_eq!((work.read("sub/a").is_some(), work.read("sub/b")), (true, None));
}

fn a_folder_that_is_gone(person: Person) {
    let work = Folder::new(person, "work");
    let said = shell(person, &work, "mkdir gone; cd gone; rmdir ../gone; $COWORK run -- true");
    let expected =
        "cowork: there is no folder `./`\n  hint: check the path, or make the folder first\n";
    assert_eq!((said.code, said.text(), said.err.as_str()), (125, "", expected));
}

/// Output that could not be written is not taken for written.
fn a_full_disk_is_not_a_success(person: Person) {
    let work = Folder::new(person, "work");
    let said = shell(person, &work, "$COWORK run -- echo lost > /dev/full");
    assert!(said.code != 0 && said.err.contains("No space left on device"), "{said:?}");
}
