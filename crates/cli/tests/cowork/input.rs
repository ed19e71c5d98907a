//! What bad input is told: a sentence that says what is wrong, what to do about it, and the code.

use crate::support::{Ran, cowork, finish, for_everyone, listing, need, traces};
use cowork_testbed::{Folder, Person, programs};
use std::path::Path;

for_everyone!(
    folders_that_cannot_be_granted,
    two_folders_of_one_name,
    homes_and_outputs_that_cannot_be,
    grants_that_cannot_be_read,
    names_that_cannot_be_used,
    homes_behind_links_are_still_homes,
    options_that_mean_nothing,
    a_misspelt_option_is_not_a_command,
    limits_that_are_no_numbers,
    limits_that_are_too_small,
    limits_beyond_the_host,
    too_little_scratch,
    commands_that_cannot_be_run,
    environments_and_folders_that_are_not_there,
    nothing_to_do,
);

/// A person's folders, with a home that only the test uses.
struct Place {
    person: Person,
    home: Folder,
    work: Folder,
}

impl Place {
    fn new(person: Person) -> Self {
        let home = Folder::new(person, "place");
        // The daemon's folder is there from the start.
        cowork(person, home.path(), &["ls"]).output().expect("the program is there");
        home.write("project/file", "text\n");
        let work = Folder::new(person, "work");
        work.write("plain", "text\n");
        work.write("deep/outputs/x", "");
        work.write("deep/twin/x", "");
        work.write("twin/x", "");
        Self { person, home, work }
    }

    /// Runs `cowork` in the work folder; `{home}` and `{work}` stand for the folders.
    fn run(&self, arguments: &[&str]) -> Ran {
        let arguments: Vec<String> = arguments.iter().map(|word| self.fill(word)).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut command = cowork(self.person, self.work.path(), &arguments);
        command.env("HOME", self.home.path());
        finish(command, Vec::new())
    }

    fn fill(&self, text: &str) -> String {
        let show = |path: &Path| path.to_str().expect("test folders are text").to_owned();
        let runtime = self.person.home().join(".run");
        let text = text.replace("{state}", &show(&self.person.state()));
        let text = text.replace("{runtime}", &show(&runtime));
        text.replace("{home}", &show(self.home.path())).replace("{work}", &show(self.work.path()))
    }

    /// Checks what is said and what is returned, and that nothing else happened.
    #[track_caller]
    fn check(&self, arguments: &[&str], code: i32, err: &str) {
        let before = (listing(self.work.path()), listing(self.home.path()));
        let said = self.run(arguments);
        let expected = self.fill(err);
        assert_eq!(said.err, expected, "{arguments:?}");
        assert_eq!((said.code, said.text()), (code, ""), "{arguments:?}");
        assert_eq!((listing(self.work.path()), listing(self.home.path())), before);
    }

    /// Checks one `--grant`.
    #[track_caller]
    fn check_grant(&self, grant: &str, err: &str) {
        self.check(&["run", "--grant", grant, "--", "true"], 125, err);
    }
}

fn folders_that_cannot_be_granted(person: Person) {
    let place = Place::new(person);
    for (grant, err) in [
        (
            "{work}/missing",
            "cowork: there is no folder `{work}/missing`\n  \
             hint: check the path, or make the folder first\n",
        ),
        (
            "missing",
            "cowork: there is no folder `missing`\n  hint: check the path, or make the folder first\n",
        ),
        ("plain", "cowork: `plain` is not a folder\n  hint: grant the folder that contains it\n"),
        (
            "/",
            "cowork: `/` is the whole machine\n  \
             hint: grant a folder inside it, or mean it with `--force`\n",
        ),
        (
            "{home}",
            "cowork: `{home}` is your home, with every key and password in it\n  \
             hint: grant a folder inside it, or mean it with `--force`\n",
        ),
        (
            "~",
            "cowork: `{home}` is your home, with every key and password in it\n  \
             hint: grant a folder inside it, or mean it with `--force`\n",
        ),
        (
            "{home}/project/..",
            "cowork: `{home}` is your home, with every key and password in it\n  \
             hint: grant a folder inside it, or mean it with `--force`\n",
        ),
        (
            "/var/tmp",
            "cowork: `/var/tmp` contains your home, with every key and password in it\n  \
             hint: grant a folder inside it, or mean it with `--force`\n",
        ),
        (
            "{state}",
            "cowork: `{state}` holds cowork's own state: the record of all sessions\n  \
             hint: grant a folder inside it, or mean it with `--force`\n",
        ),
        (
            "{state}/audit",
            "cowork: `{state}/audit` holds cowork's own state: the record of all \
             sessions\n  hint: grant a folder inside it, or mean it with `--force`\n",
        ),
        (
            "{state}/sessions",
            "cowork: `{state}/sessions` holds cowork's own state: the record of \
             all sessions\n  hint: grant a folder inside it, or mean it with `--force`\n",
        ),
        (
            "{runtime}",
            "cowork: `{runtime}` gives access to `{runtime}`: the socket of cowork's daemon\n  \
             hint: grant a folder inside it, or mean it with `--force`\n",
        ),
        (
            "deep/outputs",
            "cowork: the folder cannot be named after itself: grant name `outputs` is taken by the \
             session's own folder\n  hint: give it a name: `--grant {work}/deep/outputs=name`\n",
        ),
        (
            "{work}/\u{1b}[31mred",
            "cowork: there is no folder `{work}/\\u{1b}[31mred`\n  \
             hint: check the path, or make the folder first\n",
        ),
    ] {
        place.check_grant(grant, err);
    }
}

fn two_folders_of_one_name(person: Person) {
    let place = Place::new(person);
    for (first, second, err) in [
        (
            "twin",
            "deep/twin",
            "cowork: two folders would be named `twin`: `{work}/twin` and `{work}/deep/twin`\n  \
             hint: name one of them: `--grant {work}/deep/twin=other`\n",
        ),
        (
            "twin=same",
            "deep:ro=same",
            "cowork: two folders would be named `same`: `{work}/twin` and `{work}/deep`\n  \
             hint: name one of them: `--grant {work}/deep=other`\n",
        ),
    ] {
        place.check(&["run", "--grant", first, "--grant", second, "--", "true"], 125, err);
    }
}

/// The same rules hold for folders that are not granted but named otherwise.
fn homes_and_outputs_that_cannot_be(person: Person) {
    let place = Place::new(person);
    for option in ["--outputs", "--home"] {
        place.check(
            &["run", option, "{home}", "--", "true"],
            125,
            "cowork: `{home}` is your home, with every key and password in it\n  \
             hint: grant a folder inside it, or mean it with `--force`\n",
        );
    }
    place.check(
        &["run", "--outputs", "missing", "--", "true"],
        125,
        "cowork: there is no folder `missing`\n  hint: check the path, or make the folder first\n",
    );
    place.check(
        &["run", "--home", "missing/home", "--", "true"],
        125,
        "cowork: cannot make the folder `missing/home` for the home\n  \
         because: No such file or directory (os error 2)\n",
    );
    match person {
        Person::Root => place.check(
            &["run", "--home", "deep", "--", "true"],
            125,
            "cowork: `{work}/deep` is not empty and belongs to user 0: as root, a session's home \
             is stored as nobody\n  hint: name an empty folder, or one that a session had as its \
             home\n",
        ),
        Person::User => {
            let other = Folder::new(Person::Root, "closed");
            let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
            std::fs::set_permissions(other.path(), closed).expect("tests run as root");
            let path = other.path().to_str().expect("test folders are text");
            let err = format!(
                "cowork: cannot open the folder `{path}/inner`\n  because: Permission denied (os \
                 error 13)\n  hint: grant a folder that you can open\n"
            );
            place.check_grant(&format!("{path}/inner"), &err);
        }
    }
}

fn grants_that_cannot_be_read(person: Person) {
    let place = Place::new(person);
    let modes = "use `ro` (read only), `rw` (read and write), `direct` (write without undo) or \
                 `staged` (changes wait until they are applied); end the folder with `/` if the \
                 `:` is part of its name";
    let whole = "write `PATH[:ro|rw|direct|staged][=name]`";
    for (grant, sentence, hint) in [
        (".:rx", "grant `.:rx` has an unknown access mode `rx`", modes),
        (".:RO=name", "grant `.:RO=name` has an unknown access mode `RO`", modes),
        (".:\u{1b}[m", "grant `.:\\u{1b}[m` has an unknown access mode `\\u{1b}[m`", modes),
        (".:", "grant `.:` has no access mode after `:`", modes),
        ("", "grant `` names no folder", whole),
        ("=name", "grant `=name` names no folder", whole),
        (":ro", "grant `:ro` names no folder", whole),
        (
            ".=",
            "grant `.=` has no name after `=`",
            "give one; end the folder with `/` if the `=` is part of its name",
        ),
        (
            ".=name:ro",
            "grant `.=name:ro` has its access mode after the name",
            "write `PATH:ro=name`; end the folder with `/` if the `=` is part of its name",
        ),
        (
            ".=-x",
            "grant `.=-x` has a name that cannot be used: grant name `-x` starts with `-`",
            "give it another: `PATH=name`; end the folder with `/` if the `=` is part of its name",
        ),
    ] {
        place.check_grant(grant, &format!("cowork: {sentence}\n  hint: {hint}\n"));
    }
    // Of a verb that runs no command the code is the one for a wrong command line.
    place.check(
        &["grant", "some-session", ".:rx"],
        2,
        &format!("cowork: grant `.:rx` has an unknown access mode `rx`\n  hint: {modes}\n"),
    );
}

/// A name that cannot be used is refused with the reason.
fn names_that_cannot_be_used(person: Person) {
    let place = Place::new(person);
    for (grant, reason) in [
        (".=outputs", "is taken by the session's own folder"),
        (".=uploads", "is taken by the session's own folder"),
        (".=skills", "is taken by the session's own folder"),
        (".=-x", "starts with `-`"),
        (".=.x", "starts with `.`"),
        (".=", "has no name after"),
    ] {
        let said = place.run(&["run", "--grant", grant, "--", "true"]);
        assert_eq!((said.code, said.text()), (125, ""), "{grant}");
        assert!(said.err.contains(reason), "`{grant}` is refused without a reason: {}", said.err);
    }
}

/// A home is what its links lead to, whichever way the granted folder is named.
fn homes_behind_links_are_still_homes(person: Person) {
    let place = Place::new(person);
    let links = Folder::new(person, "links");
    let link = links.path().join("home");
    std::os::unix::fs::symlink(place.home.path(), &link).expect("the folder is ours");
    let real = place.home.path().to_str().expect("test folders are text");
    for (grant, reason) in [
        (real.to_owned(), "is your home"),
        ("/var/tmp".to_owned(), "contains your home"),
        (format!("{}", person.state().display()), "holds cowork's own state"),
        (format!("{}/sessions", person.state().display()), "holds cowork's own state"),
        (links.path().display().to_string(), "contains your home"),
    ] {
        let arguments = ["run", "--grant", &grant, "--", "true"];
        let mut command = cowork(person, place.work.path(), &arguments);
        command.env("HOME", &link);
        let said = finish(command, Vec::new());
        assert!(said.code == 125 && said.err.contains(reason), "{grant} was granted: {said:?}");
    }
    // A home far from its link is contained by the folder that it really lies in.
    let far = Folder::new(person, "far");
    far.write("house/.ssh/id", "");
    let link = links.path().join("far");
    std::os::unix::fs::symlink(far.path().join("house"), &link).expect("the folder is ours");
    let grant = far.path().to_str().expect("test folders are text");
    let mut command = cowork(person, place.work.path(), &["run", "--grant", grant, "--", "true"]);
    command.env("HOME", &link);
    let said = finish(command, Vec::new());
    let refused = said.code == 125 && said.err.contains("contains your home");
    assert!(refused, "{grant} was granted: {said:?}");
}

/// Root can open what is other people's.
#[test]
fn homes_of_other_people_are_homes_to_root() {
    need("unshare", "util-linux");
    let (place, other) = (Place::new(Person::Root), Folder::new(Person::User, "other"));
    let key = other.write(".ssh/id_secret", "somebody's key");
    other.write("project/file", "text\n");
    let home = other.path().to_str().expect("test folders are text");
    let users = format!("root:x:0:0::/root:/bin/sh\nada:x:54321:54321::{home}:/bin/sh\n");
    let users = place.work.write("users", users);
    let grant = |folder: &str, options: &[&str], line: &str| {
        let mut command = Person::Root.command("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command.arg("mount --bind \"$1\" /etc/passwd && shift && exec \"$@\"").arg("sh");
        command.arg(&users).arg(programs().join("cowork"));
        command.args(["run", "--no-daemon", "--grant", &format!("{folder}:ro=other")]);
        command.args(options).args(["--", "sh", "-c", line]);
        command.current_dir(place.work.path()).env("HOME", place.home.path());
        finish(command, Vec::new())
    };
    for (folder, reason) in [
        (home.to_owned(), "is somebody's home, with every key and password in it"),
        (format!("{home}/.ssh"), "SSH keys"),
        ("/home".to_owned(), "is where people's homes are"),
    ] {
        let said = grant(&folder, &[], "true");
        assert!(said.code == 125 && said.err.contains(reason), "{folder} was granted: {said:?}");
    }
    assert_eq!(grant(&format!("{home}/project"), &[], "cat mnt/other/file").good(), "text\n");
    let forced = grant(&format!("{home}/.ssh"), &["--force"], "cat mnt/other/id_secret");
    assert_eq!(forced.done(), std::fs::read_to_string(key).expect("it is there"));
}

fn options_that_mean_nothing(person: Person) {
    let place = Place::new(person);
    let more = "\n\nFor more information, try '--help'.\n";
    for (arguments, err) in [
        (
            &["run", "--profile", "loose", "--", "true"][..],
            "error: invalid value 'loose' for '--profile <PROFILE>': `loose` is not a profile; \
             the profiles are `strict` and `nested`",
        ),
        (
            &["run", "--id", "Bad", "--", "true"],
            "error: invalid value 'Bad' for '--id <ID>': session id `Bad` contains `B`: it is \
             made of lower-case letters, digits and `-`",
        ),
        (
            &["run", "--id", "x", "--", "true"],
            "error: invalid value 'x' for '--id <ID>': session id is 1 bytes long: it has 3 to 63",
        ),
        (
            &["run", "--id", "../../etc", "--", "true"],
            "error: invalid value '../../etc' for '--id <ID>': session id `../../etc` contains \
             `.`: it is made of lower-case letters, digits and `-`",
        ),
        (
            &["run", "--id", "a--b", "--", "true"],
            "error: invalid value 'a--b' for '--id <ID>': session id `a--b` has a `-` that does \
             not join two words",
        ),
        (
            &["run", "--no-grants", "--grant", ".", "--", "true"],
            "error: the argument '--no-grants' cannot be used with '--grant <GRANT>'\n\n\
             Usage: cowork run --no-grants <COMMAND>...",
        ),
        (
            &["explain", "--nothing"],
            "error: unexpected argument '--nothing' found\n\nUsage: cowork explain [OPTIONS]",
        ),
        (
            &["doctor", "now"],
            "error: unexpected argument 'now' found\n\nUsage: cowork doctor [OPTIONS]",
        ),
        (&["frob"], "error: unrecognized subcommand 'frob'\n\nUsage: cowork <COMMAND>"),
    ] {
        // What `run` says must not be taken for what the command says.
        let code = if arguments.first() == Some(&"run") { 125 } else { 2 };
        place.check(arguments, code, &format!("{err}{more}"));
    }
}

/// Words before the command that look like options are options, and wrong ones are said to be.
fn a_misspelt_option_is_not_a_command(person: Person) {
    let place = Place::new(person);
    for option in ["--grnt", "--no-grant", "-x"] {
        let said = place.run(&["run", option, "true"]);
        let told = said.err.contains(&format!("unexpected argument '{option}'"));
        assert!(said.code == 125 && told, "`{option}` was taken for a command: {said:?}");
    }
    // After `--` it is a command, whatever it looks like.
    let said = place.run(&["run", "--", "--grnt"]);
    assert_eq!(said.code, 127, "{said:?}");
}

fn limits_that_are_no_numbers(person: Person) {
    let place = Place::new(person);
    for (option, value, err) in [
        (
            "--memory <BYTES>",
            "1.5X",
            "size `1.5X` is not a whole number: write a smaller unit, e.g. `1536M` for 1.5G",
        ),
        (
            "--memory <BYTES>",
            "much",
            "`much` is not a size: write a whole number and K, M, G or T, e.g. `512M`",
        ),
        ("--memory <BYTES>", "99999999999T", "size `99999999999T` is too large"),
        ("--cpus <NUMBER>", "0", "the number of CPUs is zero"),
        ("--cpus <NUMBER>", "two", "`two` is not a number of CPUs: write e.g. `2` or `0.5`"),
        ("--open-files <NUMBER>", "many", "invalid digit found in string"),
        (
            "--timeout <TIME>",
            "3x",
            "`3x` is not a span of time: write a whole number and ms, s, m, h or d, e.g. `90s`",
        ),
    ] {
        let err = format!(
            "error: invalid value '{value}' for '{option}': {err}\n\n\
             For more information, try '--help'.\n"
        );
        let option = option.split(' ').next().expect("it has a name");
        place.check(&["run", option, value, "--", "true"], 125, &err);
    }
}

fn limits_that_are_too_small(person: Person) {
    let place = Place::new(person);
    for (option, value, err) in [
        ("--memory", "0", "limit `memory` is 0: a shell needs at least 16M"),
        ("--memory", "1M", "limit `memory` is 1M: a shell needs at least 16M"),
        ("--processes", "0", "limit `processes` is 0: a session with one command needs at least 2"),
        ("--open-files", "2", "limit `open_files` is 2: a POSIX program needs at least 20"),
        ("--timeout", "0", "limit `wall` is zero"),
    ] {
        let err = format!("cowork: {err}\n  hint: see `cowork run --help` for the limits\n");
        place.check(&["run", option, value, "--", "true"], 125, &err);
    }
}

/// More than the host has; how much that is differs from host to host.
fn limits_beyond_the_host(person: Person) {
    let place = Place::new(person);
    let hint = "\n  hint: see `cowork run --help` for the limits\n";
    for (option, value, start) in [
        ("--memory", "999T", "cowork: limit `memory` is 999T: the host has "),
        ("--cpus", "5000", "cowork: limit `cpus` is 5000: the host has "),
        ("--processes", "99999999", "cowork: limit `processes` is 99999999: the host has "),
    ] {
        let said = place.run(&["run", option, value, "--", "true"]);
        assert_eq!((said.code, said.text()), (125, ""));
        assert!(said.err.starts_with(start) && said.err.ends_with(hint), "{}", said.err);
    }
}

/// Too little space is said to be too little, not found out half-way.
fn too_little_scratch(person: Person) {
    let place = Place::new(person);
    let said = place.run(&["run", "--scratch", "1", "--", "true"]);
    let told = said.err.starts_with("cowork: limit `scratch` is 1: ");
    assert!(said.code == 125 && told, "{said:?}");
}

fn commands_that_cannot_be_run(person: Person) {
    let place = Place::new(person);
    place.work.write("script", "#!/no/such/interpreter\n");
    place.work.write("rubbish", "\u{0}\u{1}\u{2}");
    for name in ["script", "rubbish"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(place.work.path().join(name), mode).expect("tests run as root");
    }
    let who = match person {
        Person::Root => "root",
        Person::User => "user",
    };
    let id = format!("refused-{who}{}", std::process::id());
    let none = |name: &str| {
        format!(
            "cowork: there is no command `{name}` in the session\n  hint: commands come from the \
             host's /usr; grant the folder it is in and name it by its path\n"
        )
    };
    let denied = |name: &str| {
        format!(
            "cowork: the command `{name}` cannot be executed\n  \
             because: Permission denied (os error 13)\n  hint: make it executable (`chmod +x`), \
             or name the program that runs it: `sh FILE`\n"
        )
    };
    let no_interpreter = |name: &str, interpreter: &str| {
        format!(
            "cowork: `{name}` is run by `{interpreter}`, which is not in the session\n  hint: \
             programs of a session are those of the host's /usr: name one to run it, e.g. \
             `sh FILE`\n"
        )
    };
    for (command, code, err) in [
        ("no-such-command", 127, none("no-such-command")),
        ("./nothing", 127, none("./nothing")),
        ("/home/somebody/tool", 127, none("/home/somebody/tool")),
        ("mnt/work/script", 126, no_interpreter("mnt/work/script", "/no/such/interpreter")),
        ("mnt/work/plain", 126, denied("mnt/work/plain")),
        ("./mnt", 126, denied("./mnt")),
        ("/etc/passwd", 126, denied("/etc/passwd")),
    ] {
        let words = ["--id", &id, "--grant", ".=work", "--", command];
        place.check(&[&["run"], &words[..]].concat(), code, &err);
        assert_eq!(traces(&id), Vec::<String>::new());
        place.check(&[&["run", "--no-daemon"], &words[..]].concat(), code, &err);
        assert_eq!(traces(&id), Vec::<String>::new());
    }
    place.check(
        &["run", "--", ""],
        125,
        "cowork: the command was refused: there is no program to start\n",
    );
}

fn environments_and_folders_that_are_not_there(person: Person) {
    let place = Place::new(person);
    let hint = "  hint: name a folder of the session, e.g. `--cd mnt/NAME`\n";
    for (folder, shown, cause) in [
        ("nowhere", "/sessions/quiet-euler/nowhere", "No such file or directory (os error 2)"),
        ("{work}", "{work}", "No such file or directory (os error 2)"),
        ("/etc/passwd", "/etc/passwd", "Not a directory (os error 20)"),
    ] {
        let err =
            format!("cowork: the command cannot start in `{shown}`\n  because: {cause}\n{hint}");
        place.check(&["run", "--id", "quiet-euler", "--cd", folder, "--", "true"], 125, &err);
    }
    place.check(
        &["run", "--env", "NOT_THERE", "--", "true"],
        125,
        "cowork: there is no variable `NOT_THERE` to pass\n  \
         hint: set it first, or give its value: `--env NAME=VALUE`\n",
    );
    place.check(
        &["run", "--env", "=value", "--", "true"],
        125,
        "cowork: a variable needs a name before the `=`\n  hint: write `--env NAME=VALUE`\n",
    );
}

fn nothing_to_do(person: Person) {
    let place = Place::new(person);
    place.check(
        &["run"],
        125,
        "error: the following required arguments were not provided:\n  <COMMAND>...\n\n\
         Usage: cowork run <COMMAND>...\n\nFor more information, try '--help'.\n",
    );
    let said = place.run(&[]);
    assert_eq!((said.code, said.text()), (2, ""));
    assert!(said.err.contains("Usage: cowork <COMMAND>"), "{}", said.err);
}
