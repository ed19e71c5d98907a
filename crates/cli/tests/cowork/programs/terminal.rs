//! Programs that need a terminal get one of the session's own, and the caller's is left as it was.

use super::tty::Tty;
use crate::support::{for_everyone, inside, lines, need, until};
use cowork_testbed::{Folder, Person};
use rustix::process::Signal;

for_everyone!(
    the_terminal_is_the_sessions_own,
    the_size_of_the_window_follows,
    job_control,
    control_c_interrupts_the_command_alone,
    settings_are_restored,
    late_answers_of_a_terminal_reach_nobody,
    where_nothing_was_asked_nobody_waits,
    vim_on_a_screen,
    less_on_a_screen,
    output_alone_can_be_a_terminal,
    input_alone_can_be_a_terminal,
    what_is_typed_is_not_output,
    much_output_on_a_screen,
    a_large_paste,
    control_z_without_a_shell_is_ignored,
    in_the_background_of_a_shell,
    a_terminal_that_goes_away,
    what_cannot_be_brought_back_is_said_at_once,
);

/// Bash as a person has it, without the decorations that would have to be read around.
const BASH: [&str; 5] = ["run", "--", "bash", "--norc", "--noprofile"];

fn bash(person: Person, work: &Folder) -> Tty {
    let mut tty = Tty::start(person, work.path(), &BASH);
    tty.see("$ ");
    tty.press("bind 'set enable-bracketed-paste off'; PS1='ready''> '\r");
    tty.see("ready> ");
    tty
}

/// Waits until a program runs in the session: what is typed to a shell that is about to start one
/// belongs to neither.
#[track_caller]
fn runs(work: &Folder, name: &str) {
    until("the program runs", || inside(work.path()).iter().any(|found| found.name() == name));
}

fn the_terminal_is_the_sessions_own(person: Person) {
    need("ps", "procps");
    let work = Folder::new(person, "work");
    let mut tty = bash(person, &work);
    tty.press("tty; test -t 0 -a -t 1 -a -t 2 && echo 'all' three; echo $TERM\r");
    let said = tty.see("all three");
    let name = said.lines().find(|line| line.starts_with("/dev/pts/")).expect(&said);
    let number: u32 = name.trim_start_matches("/dev/pts/").trim_end().parse().expect(name);
    // A terminal of the host has a number that is not the first of a session's own.
    assert_eq!(number, 0);
    tty.see("xterm");
    tty.press("ls /dev/pts | tr '\\n' ,; ps -o tty= -p $$; stat -c %U /dev/pts/0\r");
    tty.see("0,ptmx,");
    tty.see("pts/0");
    tty.see("cowork");
    tty.press("exit 5\r");
    assert_eq!(tty.end(), 5);
}

fn the_size_of_the_window_follows(person: Person) {
    let work = Folder::new(person, "work");
    let mut tty = bash(person, &work);
    tty.press("stty size\r");
    tty.see("31 97");
    tty.press("trap 'stty size' WINCH; echo 'tr'ap set\r");
    tty.see("trap set");
    tty.resize(47, 131);
    tty.press("sleep 0.5; echo 'af'ter\r");
    let said = tty.see("after");
    assert!(said.contains("47 131"), "the shell is told of the new size: {said:?}");
    tty.press("stty size; echo $LINES $COLUMNS\r");
    tty.see("47 131");
    tty.press("exit\r");
    assert_eq!(tty.end(), 0);
}

fn job_control(person: Person) {
    let work = Folder::new(person, "work");
    let mut tty = bash(person, &work);
    tty.press("sleep 100\r");
    tty.see("sleep 100");
    runs(&work, "sleep");
    tty.press("\u{1a}");
    tty.see("Stopped");
    tty.see("ready> ");
    tty.press("jobs\r");
    tty.see("[1]+  Stopped");
    tty.see("ready> ");
    tty.press("bg\r");
    tty.see("sleep 100 &");
    tty.see("ready> ");
    tty.press("jobs\r");
    tty.see("Running");
    tty.see("ready> ");
    tty.press("fg\r");
    tty.see("sleep 100");
    // The shell names the job before it hands the terminal over; only then does Ctrl-C reach it.
    std::thread::sleep(std::time::Duration::from_millis(500));
    tty.press("\u{3}");
    tty.see("ready> ");
    tty.press("echo \"status $?\"; jobs; echo 'no'ne\r");
    let said = tty.see("none");
    assert!(said.contains("status 130") && !said.contains("[1]"), "{said:?}");
    tty.press("exit\r");
    assert_eq!(tty.end(), 0);
}

fn control_c_interrupts_the_command_alone(person: Person) {
    let work = Folder::new(person, "work");
    let mut tty = bash(person, &work);
    for _ in 0..3 {
        tty.press("cat\r");
        runs(&work, "cat");
        tty.press("typed\r");
        tty.see("typed\r\ntyped");
        tty.press("\u{3}");
        tty.see("ready> ");
    }
    tty.press("cd mnt/*work; cat > file\r");
    runs(&work, "cat");
    tty.press("kept\r\u{4}");
    tty.see("ready> ");
    tty.press("echo 'still' here; exit 9\r");
    tty.see("still here");
    assert_eq!(tty.end(), 9);
    assert_eq!(work.read("file").as_deref(), Some("kept\n"));
    // Without a shell in between it ends the command, and the code says how.
    let mut tty =
        Tty::start(person, work.path(), &["run", "--", "sh", "-c", "echo begun; exec sleep 100"]);
    tty.see("begun");
    tty.press("\u{3}");
    assert_eq!(tty.end(), 130);
}

fn settings_are_restored(person: Person) {
    let work = Folder::new(person, "work");
    let inside = "stty raw -echo; stty -a | head -1; echo begun; sleep 0.2; exit 4";
    let mut tty = Tty::start(person, work.path(), &["run", "--", "sh", "-c", inside]);
    let before = tty.settings();
    tty.see("begun");
    assert_ne!(tty.settings(), before, "while it runs every key goes to the session");
    assert_eq!(tty.end(), 4);
    assert_eq!(tty.settings(), before);
    // Also when it is asked to end, and when there is no such command.
    let mut tty =
        Tty::start(person, work.path(), &["run", "--", "sh", "-c", "echo begun; exec sleep 100"]);
    tty.see("begun");
    tty.signal(Signal::TERM);
    assert_eq!(tty.end(), 128 + 15);
    assert_eq!(tty.settings(), before);
    let mut tty = Tty::start(person, work.path(), &["run", "--", "no-such-command"]);
    assert_eq!(tty.end(), 127);
    assert_eq!(tty.settings(), before);
    let lines: Vec<&str> = tty.seen().lines().collect();
    assert_eq!(
        lines.first().copied(),
        Some("cowork: there is no command `no-such-command` in the session")
    );
}

/// A terminal types its answers like a person; the one to a command that has ended would be read by
/// the shell.
fn late_answers_of_a_terminal_reach_nobody(person: Person) {
    let work = Folder::new(person, "work");
    let made = crate::support::run(person, work.path(), &["new"]);
    let id = made.text().trim().to_owned();
    let inside = r"sleep 0.3; printf '\033[6nasked'";
    let slowly = format!("sleep 1; {inside}");
    let begun = ["exec", "--detach", &id, "--", "sh", "-c", &slowly];
    let shell = format!("{inside}; exit\r");
    let ways: [&[&str]; 5] = [
        &["run", "--no-daemon", "--", "sh", "-c", inside],
        &["run", "--", "sh", "-c", inside],
        &["exec", &id, "--", "sh", "-c", inside],
        &["attach", &id],
        &["shell", &id],
    ];
    for words in ways {
        if let ["attach", ..] = words {
            let begun = crate::support::run(person, work.path(), &begun);
            assert_eq!(begun.code, 0, "{}", begun.err);
        }
        let mut tty = Tty::start(person, work.path(), words);
        let before = tty.settings();
        if let ["shell", ..] = words {
            tty.see("$ ");
            tty.press(&shell);
        }
        tty.see("\u{1b}[6nasked");
        // As long as the way there and back takes.
        tty.see("\u{1b}[c");
        std::thread::sleep(std::time::Duration::from_millis(100));
        tty.press("\u{1b}[7;31R\u{1b}[?62;22c");
        assert_eq!(tty.end(), 0, "{words:?}: {}", tty.seen());
        assert_eq!(tty.settings(), before, "{words:?}");
        assert_eq!(tty.left_over(), "", "{words:?}");
    }
    // Where the input is no terminal the answer would come all the same.
    let script = r"echo x | $COWORK run -- printf '\033[6nasked'";
    let mut tty = in_a_shell(person, &work, script);
    tty.see("\u{1b}[c");
    tty.press("\u{1b}[7;31R\u{1b}[?62;22c");
    assert_eq!(tty.end(), 0, "{}", tty.seen());
    assert_eq!(tty.left_over(), "");
    // A terminal that does not say what it is is waited for a moment.
    let mut tty = Tty::start(person, work.path(), &["run", "--", "printf", r"\033[6nasked"]);
    tty.see("\u{1b}[c");
    tty.press("\u{1b}[7;31R");
    assert_eq!(tty.end(), 0, "{}", tty.seen());
    assert_eq!(tty.left_over(), "");
    let gone = crate::support::run(person, work.path(), &["rm", &id]);
    assert_eq!(gone.code, 0, "{}", gone.err);
}

fn where_nothing_was_asked_nobody_waits(person: Person) {
    let work = Folder::new(person, "work");
    let colours = r"\033[1;31mred\033[0m\n";
    let mut tty = Tty::start(person, work.path(), &["run", "--", "printf", colours]);
    assert_eq!(tty.end(), 0, "{}", tty.seen());
    assert_eq!(tty.seen(), "\u{1b}[1;31mred\u{1b}[0m\r\n");
}

fn vim_on_a_screen(person: Person) {
    need("vim", "vim");
    let work = Folder::new(person, "work");
    work.write("text", "first\n");
    let name = work.path().file_name().and_then(|name| name.to_str()).expect("it is text");
    let file = format!("mnt/{name}/text");
    let mut tty = Tty::start(person, work.path(), &["run", "--", "vim", "-u", "NONE", "-n", &file]);
    tty.see("first");
    tty.see("\u{1b}[?25h");
    tty.press("osecond\u{1b}:wq\r");
    assert_eq!(tty.end(), 0, "{:?}", tty.seen());
    assert_eq!(work.read("text").as_deref(), Some("first\nsecond\n"));
}

fn less_on_a_screen(person: Person) {
    need("less", "less");
    let work = Folder::new(person, "work");
    let lines: Vec<String> = (1..=500).map(|number| format!("line {number}.")).collect();
    work.write("text", lines.join("\n"));
    let name = work.path().file_name().and_then(|name| name.to_str()).expect("it is text");
    let file = format!("mnt/{name}/text");
    let mut tty = Tty::start(person, work.path(), &["run", "--", "less", &file]);
    // The window has 31 rows, the last of them for less itself.
    tty.see("line 30.");
    assert!(!tty.seen().contains("line 31."), "{:?}", tty.seen());
    tty.press(" ");
    tty.see("line 60.");
    tty.press("G");
    tty.see("line 500.");
    tty.press("q");
    assert_eq!(tty.end(), 0);
}

fn output_alone_can_be_a_terminal(person: Person) {
    let work = Folder::new(person, "work");
    let inside = "test -t 0 || echo no input; test -t 1 && echo screen; exit 6";
    let mut tty = in_a_shell(person, &work, &format!("echo x | $COWORK run -- sh -c '{inside}'"));
    tty.see("no input\r\nscreen\r\n");
    assert_eq!(tty.end(), 6);
}

/// The programs around it share the terminal, so its lines must still end as they did.
fn input_alone_can_be_a_terminal(person: Person) {
    let work = Folder::new(person, "work");
    let inside = "test -t 1 || echo no screen; read -r line; echo \"got $line\"";
    let mut tty = in_a_shell(person, &work, &format!("$COWORK run -- sh -c '{inside}' | cat"));
    tty.see("no screen");
    tty.press("typed\r");
    tty.see("got typed");
    assert_eq!(tty.end(), 0);
    assert!(tty.seen().contains("no screen\r\n"), "lines end as usual: {:?}", tty.seen());
    assert!(tty.seen().contains("got typed\r\n"), "lines end as usual: {:?}", tty.seen());
}

/// The terminal shows what is typed; nobody else gets it.
fn what_is_typed_is_not_output(person: Person) {
    let work = Folder::new(person, "work");
    let inside = "read -r line; echo \"got $line\"";
    let script = format!("echo begun; $COWORK run -- sh -c '{inside}' 2>/dev/null > out");
    let mut tty = in_a_shell(person, &work, &script);
    tty.see("begun");
    runs(&work, "sh");
    tty.press("typed\r");
    assert_eq!(tty.end(), 0);
    assert_eq!(work.read("out").as_deref(), Some("got typed\n"));
}

fn much_output_on_a_screen(person: Person) {
    let work = Folder::new(person, "work");
    let mut tty = Tty::start(person, work.path(), &["run", "--", "sh", "-c", "seq 50000; exit 3"]);
    assert_eq!(tty.end(), 3);
    let expected = lines(1..=50_000, "\r\n");
    assert_eq!(tty.seen().len(), expected.len());
    assert!(tty.seen() == expected, "nothing is lost or out of order");
}

fn a_large_paste(person: Person) {
    let work = Folder::new(person, "work");
    let inside = "stty -echo; echo ready; cat > mnt/*/copy; echo read";
    let name = work.path().file_name().and_then(|name| name.to_str()).expect("it is text");
    let inside = inside.replace("mnt/*/", &format!("mnt/{name}/"));
    let mut tty = Tty::start(person, work.path(), &["run", "--", "sh", "-c", &inside]);
    tty.see("ready");
    runs(&work, "cat");
    let text = lines(0..=4000, " of many lines of text\n");
    tty.press(&text.replace('\n', "\r"));
    tty.press("\u{4}");
    tty.see("read");
    assert_eq!(tty.end(), 0);
    assert!(work.read("copy").is_some_and(|copy| copy == text), "every line arrived");
}

/// There is nobody who could continue it.
fn control_z_without_a_shell_is_ignored(person: Person) {
    let work = Folder::new(person, "work");
    let inside = "echo begun; exec sleep 100";
    let mut tty = Tty::start(person, work.path(), &["run", "--", "sh", "-c", inside]);
    tty.see("begun");
    runs(&work, "sleep");
    tty.press("\u{1a}\u{3}");
    assert_eq!(tty.end(), 130);
}

/// A job that does not read from the terminal runs in the background, as any other does.
fn in_the_background_of_a_shell(person: Person) {
    let work = Folder::new(person, "work");
    let name = work.path().file_name().and_then(|name| name.to_str()).expect("it is text");
    let inside = format!("echo done > mnt/{name}/done");
    let script =
        format!("set -m; $COWORK run -- sh -c '{inside}' & sleep 3; jobs; kill -9 %1; true");
    let mut tty = in_a_shell(person, &work, &script);
    assert_eq!(tty.end(), 0);
    assert_eq!(work.read("done").as_deref(), Some("done\n"), "it was stopped: {:?}", tty.seen());
}

fn a_terminal_that_goes_away(person: Person) {
    let work = Folder::new(person, "work");
    let mut tty = bash(person, &work);
    tty.press("sleep 1000\r");
    runs(&work, "sleep");
    let found = inside(work.path());
    tty.hang_up();
    until("nothing of it runs", || !found.iter().any(crate::support::Process::exists));
}

/// A shell on a terminal that runs a script with `cowork` as `$COWORK`.
fn in_a_shell(person: Person, work: &Folder, script: &str) -> Tty {
    let cowork = cowork_testbed::programs().join("cowork");
    let script = script.replace("$COWORK", &cowork.display().to_string());
    Tty::start_program(person, work.path(), &["/bin/bash", "-c", &script].map(AsRef::as_ref))
}

fn what_cannot_be_brought_back_is_said_at_once(person: Person) {
    let work = Folder::new(person, "work");
    let beside = Folder::new(person, "beside");
    let policy = beside.write("policy.toml", "[files]\ncaps = { file = \"64K\" }\n");
    let policy = policy.to_str().expect("test folders are text");
    work.write("large", "x".repeat(100_000));
    work.write("small", "small\n");
    let grant = format!("{}=work", work.path().display());
    let options = ["run", "--policy", policy, "--grant", &grant, "--", "sh", "-c"];
    let run = |line| Tty::start(person, work.path(), &[&options[..], &[line]].concat());
    let line = "cd mnt/work; echo changed > large; echo changed > small; echo new > new";
    let mut tty = run(line);
    assert_eq!(tty.end(), 0, "{}", tty.seen());
    let said = tty.seen().split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "3 files changed; 1 of them cannot be brought back: it was too large to be \
                    kept; see `cowork changes ";
    assert!(said.contains(expected) && said.contains("take the others back with"), "{said}");
    // What can be brought back is promised as before.
    let line = "echo again > mnt/work/small";
    let mut tty = run(line);
    assert_eq!(tty.end(), 0, "{}", tty.seen());
    let said = tty.seen().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("1 file changed; see `cowork changes "), "{said}");
    assert!(said.contains("take them back with"), "{said}");
    // In a session that stays it is said after each command that lost something, and no other.
    work.write("large", "x".repeat(100_000));
    let run_here = |arguments: &[&str]| crate::support::run(person, work.path(), arguments);
    let made = run_here(&["new", "--policy", policy, "--grant", &grant]);
    let id = made.text().trim().to_owned();
    let exec = |line| {
        let words = ["exec", &id, "--", "sh", "-c", line];
        let mut tty = Tty::start(person, work.path(), &words);
        assert_eq!(tty.end(), 0, "{}", tty.seen());
        tty.seen().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let said = exec("cd mnt/work; echo changed > large; echo changed > small");
    let expected = "1 of 2 changes cannot be taken back: it was too large to be kept; see `cowork \
                    changes ";
    assert!(said.contains(expected), "{said}");
    let said = exec("cd mnt/work; echo again > large; echo again > small");
    assert!(!said.contains("taken back"), "{said}");
    let gone = run_here(&["rm", &id]);
    assert_eq!(gone.code, 0, "{}", gone.err);
}
