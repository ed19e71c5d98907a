//! What cowork says about itself: help, manual, completions, the plan, the host.

use crate::support::{finish, for_everyone, need, run};
use cowork_testbed::{Folder, Person};

for_everyone!(
    help_names_the_essentials,
    completions_know_the_verbs,
    the_manual_is_troff,
    every_other_verb_has_json,
    the_plan_is_explained_step_by_step,
    every_system_call_has_a_reason,
    what_is_in_force_is_observed,
    doctor_looks_at_the_host,
);

const VERBS: [&str; 58] = [
    "run",
    "new",
    "ls",
    "status",
    "exec",
    "shell",
    "logs",
    "attach",
    "grant",
    "revoke",
    "changes",
    "diff",
    "undo",
    "redo",
    "history",
    "apply",
    "discard",
    "protect",
    "allow",
    "deny",
    "net",
    "secret",
    "publish",
    "unpublish",
    "requests",
    "decide",
    "cp",
    "path",
    "pause",
    "resume",
    "cancel",
    "stop",
    "start",
    "rm",
    "set",
    "usage",
    "audit",
    "events",
    "init",
    "delete",
    "explain",
    "doctor",
    "claude",
    "codex",
    "gemini",
    "opencode",
    "agent",
    "agents",
    "ask",
    "tasks",
    "task",
    "mcp",
    "srt",
    "policy",
    "daemon",
    "completions",
    "man",
    "help",
];

#[track_caller]
fn contains_all(text: &str, wanted: &[&str]) {
    let missing: Vec<_> = wanted.iter().filter(|part| !text.contains(**part)).collect();
    assert!(missing.is_empty(), "{missing:?} is not in:\n{text}");
}

fn help_names_the_essentials(person: Person) {
    let here = Folder::new(person, "work");
    let help = run(person, here.path(), &["--help"]);
    contains_all(
        help.good(),
        &["a computer of its own", "Usage: cowork <COMMAND>", "Examples:", "cowork run -- "],
    );
    for verb in VERBS {
        let line = help.text().lines().find(|line| line.trim_start().starts_with(verb));
        let described = line.is_some_and(|line| line.split_whitespace().count() > 2);
        assert!(described, "{verb}: {}", help.text());
        let own = run(person, here.path(), &[verb, "--help"]);
        contains_all(own.good(), &[&format!("Usage: cowork {verb}")]);
    }
    let help = run(person, here.path(), &["run", "--help"]);
    let options = [
        "--grant",
        "PATH[:ro|rw|direct|staged][=NAME]",
        "--no-grants",
        "--profile",
        "strict",
        "nested",
        "--debugger",
        "--home",
        "--outputs",
        "--allow",
        "--deny",
        "--ask",
        "--net",
        "--preset",
        "--secret",
        "--memory",
        "--cpus",
        "--processes",
        "--open-files",
        "--scratch",
        "--timeout",
        "--best-effort",
        "--id",
        "--env",
        "--cd",
        "--verbose",
        "128+n",
        "124",
        "125",
        "126",
        "127",
        "/sessions/<id>",
        "mnt/<name>",
        "mnt/outputs",
    ];
    contains_all(help.good(), &options);
    let version = run(person, here.path(), &["--version"]);
    assert_eq!(version.good(), format!("cowork {}\n", env!("CARGO_PKG_VERSION")));
}

/// Verbs that have no `--json`: they hand the terminal or the streams over to another program, or
/// what they write is a text of another kind.
const WITHOUT_JSON: [&str; 14] = [
    "shell",
    "claude",
    "codex",
    "gemini",
    "opencode",
    "agent",
    "srt",
    "mcp",
    "net har",
    "audit export",
    "policy import",
    "completions",
    "man",
    "help",
];

fn every_other_verb_has_json(person: Person) {
    let here = Folder::new(person, "work");
    let manual = run(person, here.path(), &["man"]);
    let titles = manual.good().lines().filter_map(|line| line.strip_prefix(".TH cowork-"));
    let names = titles.filter_map(|title| title.split_whitespace().next());
    let names: Vec<String> = names.map(|name| name.replace('-', " ")).collect();
    let readme = include_str!("../../../../README.md");
    for name in &names {
        let below = format!("{name} ");
        // Those above others say nothing of their own, unless they do something without them.
        let above = names.iter().any(|other| other.starts_with(&below));
        let words: Vec<&str> = name.split(' ').chain(["--help"]).collect();
        let help = run(person, here.path(), &words);
        // Other options may speak of it.
        let has = help.good().lines().any(|line| line.trim_start().starts_with("--json"));
        if WITHOUT_JSON.contains(&name.as_str()) {
            assert!(!has, "{name} has it");
            assert!(readme.contains(&format!("`{name}`")), "README does not name `{name}`");
        } else {
            assert!(has || above, "{name} has no --json");
        }
    }
    for name in WITHOUT_JSON {
        assert!(names.iter().any(|known| known == name), "there is no verb `{name}`");
    }
}

fn completions_know_the_verbs(person: Person) {
    let here = Folder::new(person, "work");
    for shell in ["bash", "zsh", "fish"] {
        let script = run(person, here.path(), &["completions", shell]);
        contains_all(script.good(), &VERBS);
        contains_all(script.text(), &["grant", "profile", "timeout"]);
    }
    // Bash itself completes with it.
    let script = run(person, here.path(), &["completions", "bash"]);
    here.write("complete.bash", script.good());
    let mut bash = person.command("/bin/bash");
    let ask = "source complete.bash; COMP_WORDS=(cowork exp); COMP_CWORD=1; \
               _cowork cowork exp cowork; echo ${COMPREPLY[@]}";
    bash.current_dir(here.path()).args(["--norc", "-c", ask]);
    assert_eq!(finish(bash, Vec::new()).good(), "explain\n");
}

fn the_manual_is_troff(person: Person) {
    need("groff", "groff-base");
    let here = Folder::new(person, "work");
    let manual = run(person, here.path(), &["man"]);
    let titles: Vec<&str> = manual.good().lines().filter(|line| line.starts_with(".TH ")).collect();
    let title = |words: &[&str]| format!(".TH cowork-{} ", words.join("-"));
    let wanted = VERBS.iter().map(|verb| title(&[verb]));
    let nested = [
        ["audit", "verify"],
        ["audit", "export"],
        ["secret", "set"],
        ["secret", "rm"],
        ["protect", "add"],
        ["net", "rules"],
        ["task", "steer"],
        ["policy", "import"],
    ];
    for wanted in wanted.chain(nested.iter().map(|words| title(words))) {
        let found = titles.iter().filter(|title| title.starts_with(&wanted)).count();
        assert_eq!(found, 1, "{wanted}: {titles:?}");
    }
    assert!(!titles.iter().any(|title| title.contains("-help-")), "{titles:?}");
    let mut groff = person.command("/usr/bin/groff");
    groff.args(["-man", "-ww", "-Tascii", "-P-cbou"]);
    let page = finish(groff, manual.out.clone());
    contains_all(page.good(), &["NAME", "SYNOPSIS", "cowork-run", "--grant", "exit status"]);
}

fn the_plan_is_explained_step_by_step(person: Person) {
    let here = Folder::new(person, "work");
    let path = here.path().display();
    let name = here.path().file_name().and_then(|name| name.to_str()).expect("it is text");
    let said = run(
        person,
        here.path(),
        &["explain", "--id", "lucid-kepler", "--grant", ".", "--grant", ".:ro=again"],
    );
    let (plan, force) = said.good().split_once("\nIn force").expect("two parts");
    let mut lines = plan.lines();
    let title = lines.next().unwrap_or_default().to_lowercase();
    assert_eq!(title, "plan of session lucid-kepler (profile strict)");
    for (number, line) in (1..).zip(lines) {
        assert!(line.trim_start().starts_with(&format!("{number}. ")), "{line}");
    }
    contains_all(
        plan,
        &[
            &format!(
                "grant {path} as /sessions/lucid-kepler/mnt/{name} (read and write, by way of the broker;"
            ),
            &format!("grant {path} as /sessions/lucid-kepler/mnt/again (read only)"),
            "namespaces of its own",
            "show /usr of the host as /usr, read only",
            "give up every capability",
            "by Landlock allow beneath /sessions",
            "filter system calls: ",
            "hand connections to UNIX sockets in folders, and changes of files by name, to the broker",
        ],
    );
    assert!(force.lines().count() > 15, "{force}");
    let said = run(person, here.path(), &["explain", "--profile", "nested", "--no-grants"]);
    assert!(!said.good().contains("grant /"), "{}", said.text());
    contains_all(said.text(), &["(profile nested)"]);
}

fn every_system_call_has_a_reason(person: Person) {
    let here = Folder::new(person, "work");
    let said = run(person, here.path(), &["explain", "--syscalls"]);
    let (_, rest) = said.good().split_once("\nSystem calls refused").expect("the list is there");
    let (list, _) = rest.split_once("\nIn force").expect("the list ends");
    let rules: Vec<(&str, &str)> = list
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .collect();
    assert!(rules.len() > 80, "{list}");
    for (call, reason) in &rules {
        let reason = reason.trim();
        let sentence = reason.split(' ').count() > 3 && reason.ends_with('.');
        assert!(sentence, "`{call}` has no reason: {reason:?}");
    }
    for call in ["ptrace", "mount", "bpf", "io_uring_setup", "unshare", "connect"] {
        assert!(rules.iter().any(|(rule, _)| *rule == call), "{call}");
    }
}

fn what_is_in_force_is_observed(person: Person) {
    let here = Folder::new(person, "work");
    let said = run(person, here.path(), &["explain"]);
    let (_, force) = said.good().split_once("\nIn force").expect("two parts");
    let state = |name: &str| {
        let line = force.lines().find_map(|line| line.trim_start().strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} is not in {force}")).trim_start().to_owned()
    };
    for layer in [
        "user namespace",
        "mount namespace",
        "pid namespace",
        "network namespace",
        "ipc namespace",
        "host name namespace",
        "cgroup namespace",
        "no capabilities",
        "no new privileges",
        "filter of system calls",
        "broker for sockets in folders",
        "Landlock: files",
        "Landlock: signals, abstract sockets",
        "PID 1 sealed",
    ] {
        assert!(state(layer).starts_with("in force"), "{layer}: {}", state(layer));
    }
    let own = state("user id of its own");
    match person {
        Person::Root => assert!(own.starts_with("in force  runs as user 19"), "{own}"),
        Person::User => {
            assert!(own.starts_with(&format!("left out  runs as user {}", person.uid())), "{own}");
        }
    }
    for limit in ["processes", "memory", "cpus", "scratch"] {
        assert!(state(&format!("limit on {limit}")).split_whitespace().count() >= 2);
    }
    // `run` says the same of a session that runs something, if asked.
    let said = run(person, here.path(), &["run", "--verbose", "--id", "frank-curie", "--", "true"]);
    assert_eq!((said.code, said.text()), (0, ""));
    assert!(said.err.starts_with("cowork: session frank-curie\n"), "{}", said.err);
    contains_all(&said.err, &["filter of system calls             in force"]);
}

fn doctor_looks_at_the_host(person: Person) {
    let here = Folder::new(person, "work");
    let said = run(person, here.path(), &["doctor"]);
    let facts = [
        "kernel",
        "identity",
        "namespaces",
        "Landlock",
        "seccomp",
        "recorded changes",
        "memory limit",
        "scratch",
        "open files",
        "keyrings",
        "nested sandboxes",
    ];
    contains_all(said.good(), &facts);
    assert!(!said.text().contains("BLOCKING"), "{}", said.text());
    let identity = match person {
        Person::Root => "root mode".to_owned(),
        Person::User => format!("user mode (uid {})", person.uid()),
    };
    contains_all(said.text(), &[&identity]);
    let json = run(person, here.path(), &["doctor", "--json"]);
    json.good();
    let mut check = person.command("/usr/bin/python3");
    let program = "import json, sys\n\
                   facts = json.load(sys.stdin)\n\
                   for fact in facts:\n\
                   \x20   assert list(fact) == ['name', 'value', 'grade', 'consequence', 'fix'], fact\n\
                   \x20   assert fact['grade'] in ('good', 'reduced', 'BLOCKING'), fact\n\
                   \x20   print(fact['name'])\n";
    check.args(["-c", program]);
    let names = finish(check, json.out.clone());
    let names: Vec<&str> = names.good().lines().collect();
    for fact in facts {
        assert!(names.contains(&fact), "{fact} is not among {names:?}");
    }
    // Everything that is less than good says how to get it.
    let missing = said.text().matches("reduced ").count();
    assert_eq!(said.text().matches(" fix: ").count(), missing, "{}", said.text());
}
