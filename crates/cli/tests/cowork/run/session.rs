//! The session that a command finds itself in.

use crate::support::{Ran, cowork, finish, for_everyone, listing, need, owner, run, script};
use cowork_testbed::{Folder, Person, SECRET};
use std::collections::BTreeSet;
use std::path::Path;

for_everyone!(
    the_first_example,
    the_current_folder_is_granted_and_nothing_else,
    grants_have_modes_and_names,
    options_end_at_the_command,
    the_environment_is_a_list,
    whose_computer_it_is,
    a_home_can_be_kept,
    outputs_can_be_kept,
    profiles_differ,
    commands_start_where_they_are_told,
    debuggers_must_be_asked_for,
    limits_hold,
);

fn name_of(folder: &Path) -> &str {
    folder.file_name().and_then(|name| name.to_str()).expect("test folders are text")
}

fn the_first_example(person: Person) {
    let work = Folder::new(person, "work");
    let program = "import os; print(os.getcwd(), os.listdir(\"mnt\"))";
    let said = run(person, work.path(), &["run", "--", "python3", "-c", program]);
    let (folder, names) = said.good().trim_end().split_once(' ').expect("two things");
    let id = folder.strip_prefix("/sessions/").expect(folder);
    assert!(id.split('-').count() == 2 && id.bytes().all(|b| b == b'-' || b.is_ascii_lowercase()));
    let names: BTreeSet<&str> =
        names.trim_matches(['[', ']']).split(", ").map(|name| name.trim_matches('\'')).collect();
    assert_eq!(
        names,
        BTreeSet::from([".cowork", name_of(work.path()), "outputs", "skills", "uploads"])
    );
    assert_eq!(listing(work.path()), BTreeSet::new());
}

fn the_current_folder_is_granted_and_nothing_else(person: Person) {
    let work = Folder::new(person, "work");
    work.write("mine", "seen");
    let home = person.home();
    let secret = home.join(".ssh/id_secret");
    let inside = format!(
        "cat mnt/{}/mine; cat {} 2>&1; ls {} 2>&1; ls -A /home /opt /var/tmp 2>&1; true",
        name_of(work.path()),
        secret.display(),
        home.display()
    );
    let said = run(person, work.path(), &["run", "--", "sh", "-c", &inside]);
    let text = said.good();
    assert!(text.starts_with("seen"), "{text}");
    assert!(!text.contains(SECRET), "{text}");
    assert_eq!(text.matches("No such file or directory").count(), 4, "{text}");
    // It can be declined.
    let said = run(person, work.path(), &["run", "--no-grants", "--", "ls", "mnt"]);
    assert_eq!(said.good(), "outputs\nskills\nuploads\n");
    let said = run(person, Path::new("/"), &["run", "--no-grants", "--", "ls", "mnt"]);
    assert_eq!(said.good(), "outputs\nskills\nuploads\n");
}

fn grants_have_modes_and_names(person: Person) {
    let (work, other) = (Folder::new(person, "work"), Folder::new(person, "other"));
    let odd = other.write("x=1:2/file", "odd");
    work.write("old", "old");
    let odd = odd.parent().expect("it has one").to_str().expect("test folders are text");
    let here = work.path().to_str().expect("test folders are text");
    let grants = [
        "--grant".to_owned(),
        format!("{here}:ro=reading"),
        "--grant".to_owned(),
        format!("{here}=writing"),
        "--grant".to_owned(),
        format!("{odd}/:rw=odd name"),
        "--grant".to_owned(),
        format!("{}:ro", other.path().display()),
    ];
    let mut arguments = vec!["run"];
    arguments.extend(grants.iter().map(String::as_str));
    let inside = "ls mnt; cat mnt/reading/old; \
                  echo x > mnt/reading/new || echo no; rm mnt/reading/old || echo no; \
                  chmod 777 mnt/reading || echo no; ln mnt/reading/old mnt/reading/two || echo no; \
                  echo new > mnt/writing/new; cat mnt/reading/new; \
                  cat 'mnt/odd name/file'; echo changed > 'mnt/odd name/file'; \
                  mkdir mnt/fresh || echo no";
    arguments.extend(["--", "sh", "-c", inside]);
    let said = run(person, other.path(), &arguments);
    let names = format!(
        "{}\nodd name\noutputs\nreading\nskills\nuploads\nwriting\n",
        name_of(other.path())
    );
    assert_eq!(
        (said.code, said.text()),
        (0, format!("{names}oldno\nno\nno\nno\nnew\noddno\n").as_str()),
        "{}",
        said.err
    );
    assert_eq!(said.err.matches("Read-only file system").count(), 5, "{}", said.err);
    assert_eq!(listing(work.path()), BTreeSet::from(["new".into(), "old".into()]));
    assert_eq!(other.read("x=1:2/file").as_deref(), Some("changed\n"));
    assert_eq!(owner(&work.path().join("new")), (person.uid(), person.uid()));
}

fn options_end_at_the_command(person: Person) {
    let work = Folder::new(person, "work");
    assert_eq!(run(person, work.path(), &["run", "ls", "-d", "/"]).good(), "/\n");
    let said = run(person, work.path(), &["run", "--", "env", "--help"]);
    assert!(said.good().starts_with("Usage: env "), "{}", said.text());
    let said = run(person, work.path(), &["run", "env", "--help"]);
    assert!(said.good().starts_with("Usage: env "), "{}", said.text());
    let said = run(person, work.path(), &["run", "echo", "--grant", "/", "--", "-v", ""]);
    assert_eq!(said.good(), "--grant / -- -v \n");
    let said = run(person, work.path(), &["run", "--", "echo", "--", "--profile=x"]);
    assert_eq!(said.good(), "-- --profile=x\n");
}

fn the_environment_is_a_list(person: Person) {
    let work = Folder::new(person, "work");
    let mut command = cowork(
        person,
        work.path(),
        &[
            "run",
            "--id",
            "plain-bell",
            "--env",
            "PASSED",
            "--env",
            "GIVEN=a=b",
            "--env",
            "EMPTY=",
            "--env",
            "USER=me",
            "--",
            "env",
        ],
    );
    command
        .env("API_TOKEN", "secret")
        .env("PASSED", "by name")
        .env("LC_TIME", "C")
        .env("NO_COLOR", "1");
    command.env("SSH_AUTH_SOCK", "/tmp/agent").env("LD_PRELOAD", "").env("PYTHONPATH", "/x");
    let said = finish(command, Vec::new());
    let seen: BTreeSet<&str> = said.good().lines().collect();
    let home = "/sessions/plain-bell";
    let expected = [
        "COWORK_MNT=/sessions/plain-bell/mnt".to_owned(),
        format!("COWORK_HOME={home}"),
        format!("COWORK_OUTPUTS={home}/mnt/outputs"),
        "COWORK_REQUESTS=/run/cowork.sock".to_owned(),
        "COWORK_SCRATCH=/tmp".to_owned(),
        "COWORK_SESSION=plain-bell".to_owned(),
        format!("COWORK_SKILLS={home}/mnt/skills"),
        format!("COWORK_UPLOADS={home}/mnt/uploads"),
        format!("COWORK_WORKSPACE={home}/mnt/{}", name_of(work.path())),
        "EMPTY=".to_owned(),
        "GIVEN=a=b".to_owned(),
        format!("HOME={home}"),
        "LANG=C.UTF-8".to_owned(),
        "LC_TIME=C".to_owned(),
        "LOGNAME=cowork".to_owned(),
        "NO_COLOR=1".to_owned(),
        "PASSED=by name".to_owned(),
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        format!("PWD={home}"),
        "SHELL=/bin/bash".to_owned(),
        "TERM=xterm".to_owned(),
        "TMPDIR=/tmp".to_owned(),
        "USER=me".to_owned(),
    ];
    assert_eq!(seen, expected.iter().map(String::as_str).collect());
}

fn whose_computer_it_is(person: Person) {
    need("hostname", "hostname");
    let work = Folder::new(person, "work");
    let inside = "id -u; id -g; id -un; id -G; hostname; pwd; echo ~; cat /etc/hostname; \
                  getent hosts known-turing | tr -s ' '; stat -c '%u %a' .; umask; \
                  test $$ -lt 4 -a $PPID -eq 1 && echo first; \
                  cat /proc/self/status | grep -E '^(CapEff|NoNewPrivs)' | tr '\\t' ' '; \
                  find /proc/[0-9]* -maxdepth 0 2>/dev/null | wc -l | { read n; test $n -lt 8 && echo few; }";
    let said = run(person, work.path(), &["run", "--id", "known-turing", "--", "sh", "-c", inside]);
    let expected = "1000\n1000\ncowork\n1000\nknown-turing\n/sessions/known-turing\n\
                    /sessions/known-turing\nknown-turing\n127.0.0.1 localhost known-turing\n1000 700\n0022\n\
                    first\nCapEff: 0000000000000000\nNoNewPrivs: 1\nfew\n";
    assert_eq!(said.good(), expected);
}

fn a_home_can_be_kept(person: Person) {
    let (work, home) = (Folder::new(person, "work"), Folder::new(person, "kept"));
    let kept = home.path().join("new");
    let kept = kept.to_str().expect("test folders are text");
    let keep = |inside: &str| -> Ran {
        run(person, work.path(), &["run", "--home", kept, "--", "sh", "-c", inside])
    };
    assert_eq!(keep("echo first > ~/note; mkdir -p .cache/x").good(), "");
    assert_eq!(home.read("new/note").as_deref(), Some("first\n"));
    // Root's sessions have ids of their own that change, so their homes are stored as nobody.
    let stored = match person {
        Person::Root => 65_534,
        Person::User => person.uid(),
    };
    assert_eq!(owner(&home.path().join("new/note")), (stored, stored));
    assert_eq!(keep("cat ~/note; ls -A").good(), "first\n.cache\nCOWORK.md\nmnt\nnote\n");
    // Without it, nothing of a home stays.
    let inside = "cat ~/note 2>/dev/null || echo nothing; echo x > ~/note";
    for _ in 0..2 {
        let said = run(person, work.path(), &["run", "--", "sh", "-c", inside]);
        assert_eq!(said.good(), "nothing\n");
    }
}

fn outputs_can_be_kept(person: Person) {
    let (work, outputs) = (Folder::new(person, "work"), Folder::new(person, "deliverables"));
    let inside = "echo report > mnt/outputs/report";
    let keep = outputs.path().to_str().expect("test folders are text");
    let said = run(person, work.path(), &["run", "--outputs", keep, "--", "sh", "-c", inside]);
    assert_eq!(said.good(), "");
    assert_eq!(outputs.read("report").as_deref(), Some("report\n"));
    assert_eq!(owner(&outputs.path().join("report")), (person.uid(), person.uid()));
    // What is lost is said, whatever the command's end; and only if there is something.
    let note = "cowork: what the command left in mnt/outputs was discarded: \
                keep it with `--outputs FOLDER`\n";
    for (inside, code, err) in [
        ("echo report > $COWORK_OUTPUTS/report", 0, note),
        ("echo report > $COWORK_OUTPUTS/report; exit 3", 3, note),
        ("echo report > $COWORK_OUTPUTS/.hidden; kill -9 $$", 137, note),
        ("true", 0, ""),
    ] {
        let said = run(person, work.path(), &["run", "--", "sh", "-c", inside]);
        assert_eq!((said.code, said.err.as_str()), (code, err), "{inside}");
    }
    // What is handed to a session cannot be changed by it.
    let inside = "touch mnt/uploads/x; touch mnt/skills/x; touch mnt/x";
    let said = run(person, work.path(), &["run", "--", "sh", "-c", inside]);
    assert_eq!(said.err.matches("Read-only file system").count(), 3, "{}", said.err);
}

fn profiles_differ(person: Person) {
    need("unshare", "util-linux");
    let work = Folder::new(person, "work");
    let inside = "unshare --user --map-root-user --mount --pid --fork sh -c \
                  'mount -t tmpfs none /tmp && id -u && echo $$'";
    let said = script(person, work.path(), &["--profile", "nested"], inside);
    assert_eq!(said.good(), "0\n1\n");
    for profile in [&[][..], &["--profile", "strict"]] {
        let said = script(person, work.path(), profile, inside);
        assert_eq!((said.code, said.text()), (1, ""), "{}", said.err);
        assert_eq!(said.err, "unshare: unshare failed: Operation not permitted\n");
    }
}

fn commands_start_where_they_are_told(person: Person) {
    let work = Folder::new(person, "work");
    work.write("sub/file", "");
    let name = name_of(work.path());
    let home = "/sessions/tidy-noether";
    for (folder, expected) in [
        (format!("mnt/{name}/sub"), format!("{home}/mnt/{name}/sub\n")),
        ("/usr/bin".to_owned(), "/usr/bin\n".to_owned()),
        ("/tmp".to_owned(), "/tmp\n".to_owned()),
        (".".to_owned(), format!("{home}\n")),
    ] {
        let arguments = ["run", "--id", "tidy-noether", "--cd", &folder, "--", "/bin/pwd"];
        assert_eq!(run(person, work.path(), &arguments).good(), expected);
    }
    let below = work.path().join("sub");
    let grant = work.path().to_str().expect("test folders are text");
    for more in [&[][..], &["--no-daemon"]] {
        let here = ["run", "--id", "tidy-noether", "--grant", grant, "--here"];
        let said = run(person, &below, &[&here, more, &["--", "/bin/pwd"]].concat());
        assert_eq!(said.good(), format!("{home}/mnt/{name}/sub\n"));
        let said = run(person, Path::new("/"), &[&here, more, &["--", "/bin/pwd"]].concat());
        assert_eq!(said.code, 125, "{}", said.err);
        assert_eq!(
            said.err,
            "cowork: the session does not see the current folder\n  hint: grant it, or leave \
             `--here` out\n"
        );
    }
}

fn debuggers_must_be_asked_for(person: Person) {
    let work = Folder::new(person, "work");
    // PTRACE_TRACEME is request 0.
    let inside = "import ctypes; print(ctypes.CDLL(None).ptrace(0, 0, 0, 0))";
    let command = ["--", "python3", "-c", inside];
    let said = run(person, work.path(), &[&["run"], &command[..]].concat());
    assert_eq!(said.good(), "-1\n");
    let said = run(person, work.path(), &[&["run", "--debugger"], &command[..]].concat());
    assert_eq!(said.good(), "0\n");
}

fn limits_hold(person: Person) {
    let work = Folder::new(person, "work");
    let limited = |options: &[&str], inside: &str| -> Ran {
        let command = ["--", "/usr/bin/python3", "-c", inside];
        run(person, work.path(), &[&["run"], options, &command].concat())
    };
    let processes = "import os, time\n\
                     made = 0\n\
                     try:\n\
                     \x20 while made < 100:\n\
                     \x20   if os.fork() == 0: time.sleep(100)\n\
                     \x20   made += 1\n\
                     except BlockingIOError: pass\n\
                     print(made < 20, flush=True)";
    assert_eq!(limited(&["--processes", "20"], processes).good(), "True\n");
    let files = "import os\n\
                 try:\n\
                 \x20 for n in range(100): os.dup(0)\n\
                 except OSError as e: print(e.errno, n < 30)";
    assert_eq!(limited(&["--open-files", "30"], files).good(), "24 True\n");
    let scratch = "import os\n\
                   try: open('/tmp/big', 'wb').write(b'x' * (50 << 20))\n\
                   except OSError as e: print(e.errno)";
    assert_eq!(limited(&["--scratch", "20M"], scratch).good(), "28\n");
    // Where no cgroup counts memory, a named limit needs consent, and each process has it.
    let memory = "try: len(bytearray(300 << 20)); print('had it')\nexcept MemoryError: print('no')";
    let said = limited(&["--memory", "100M", "--best-effort"], memory);
    let refused = (said.code, said.text()) == (0, "no\n") || said.code == 137;
    assert!(refused, "{said:?}");
    let strict = limited(&["--memory", "100M"], memory);
    match person {
        Person::Root => assert_eq!((strict.code, strict.text()), (said.code, said.text())),
        Person::User => {
            let expected = "cowork: the limit on memory cannot be enforced here (RLIMIT_DATA of \
                            each process)\n  hint: \
                            accept what the host can do with `--best-effort`, or run where cgroups \
                            are delegated (see `cowork doctor`)\n";
            assert_eq!((strict.code, strict.err.as_str()), (125, expected));
        }
    }
}
