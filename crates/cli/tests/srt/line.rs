//! The command line, the settings file, the environment and what is returned.

use crate::desk::{Desk, files};
use crate::for_everyone;
use cowork_testbed::{Person, Said};
use serde_json::json;

for_everyone!(
    the_status_of_the_command_is_returned,
    words_are_arguments_and_a_line_is_a_line,
    options_behind_the_command_belong_to_it,
    words_of_srts_own_are_no_commands,
    settings_that_cannot_be_in_force_run_nothing,
    the_default_settings_are_in_the_home,
    keys_that_nobody_knows_are_told,
    variables_are_passed_on,
    standard_streams_are_passed_on,
    what_is_done_is_said_on_request,
);

fn the_status_of_the_command_is_returned(person: Person) {
    let desk = Desk::new(person, "status");
    for (arguments, code) in [
        (&["true"][..], 0),
        (&["false"], 1),
        (&["-c", "exit 7"], 7),
        (&["-c", "kill -TERM $$"], 143),
        (&["-c", "kill -KILL $$"], 137),
        (&["no-such-program"], 127),
        (&["/etc/passwd"], 126),
        (&[], 1),
        (&["-c", ""], 1),
        (&["--no-such-option", "true"], 1),
        (&["--control-fd", "1", "true"], 1),
        (&["--control-fd", "77", "true"], 1),
    ] {
        let ran = desk.run(arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
    }
    let version = desk.run(&["-V"]).good();
    assert!(version.starts_with("0.0."), "{version}");
}

fn words_are_arguments_and_a_line_is_a_line(person: Person) {
    let desk = Desk::new(person, "words");
    let ran = desk.run(&["printf", "%s|", "a b", "$HOME", "it's", "", "!x", "*", ";", "a\\b"]);
    assert_eq!(ran.good(), "a b|$HOME|it's||!x|*|;|a\\b|");
    assert_eq!(desk.run(&["-c", "echo $((1+1)) && echo b | tr b c"]).good(), "2\nc\n");
    assert_eq!(desk.run(&["-c", "echo ${BASH_VERSION:+bash}"]).good(), "bash\n");
    assert_eq!(desk.run(&["--", "echo", "-c"]).good(), "-c\n");
}

/// With srt these are read as its own.
fn options_behind_the_command_belong_to_it(person: Person) {
    let desk = Desk::new(person, "options");
    assert_eq!(desk.run(&["python3", "-c", "print(1)"]).good(), "1\n");
    let ran = desk.run(&["ls", "-d", "/"]);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("/\n", ""));
    let ran =
        desk.run(&["printf", "%s|", "-s", "x", "--settings", "-V", "--control-fd", "9", "--"]);
    assert_eq!(ran.good(), "-s|x|--settings|-V|--control-fd|9|--|");
}

fn words_of_srts_own_are_no_commands(person: Person) {
    let desk = Desk::new(person, "own");
    for words in [&["proxy"][..], &["proxy", "--listen", "127.0.0.1:0"], &["windows-install"]] {
        let ran = desk.run(words);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{words:?}: {ran:?}");
        let sentence = format!("`srt {}` is not supported: ", words[0]);
        assert!(ran.err.contains(&sentence), "{words:?}: {ran:?}");
    }
    let help = desk.run(&["help"]).good();
    assert!(help.contains("--control-fd") && help.contains("cowork srt [OPTIONS]"), "{help}");
    // Commands of these names can be run.
    assert_eq!(desk.run(&["-c", "proxy() { echo ran; }; proxy"]).good(), "ran\n");
    assert_eq!(desk.run(&["-c", "help exit | head -c 4"]).good(), "exit");
}

fn settings_that_cannot_be_in_force_run_nothing(person: Person) {
    let desk = Desk::new(person, "refused");
    let missing = format!("{}-not-there", desk.text("{}"));
    let ran = desk.run(&["-s", &missing, "-c", "echo ran"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
    assert!(ran.err.contains("does not exist. Refusing to run with the built-in defaults"));
    let mut disabled = files(&[], &["."], &[]);
    disabled["filesystem"]["disabled"] = true.into();
    let mut proxied = files(&[], &["."], &[]);
    proxied["network"]["httpProxyPort"] = 8080.into();
    let mut sockets = files(&[], &["."], &[]);
    sockets["network"]["allowAllUnixSockets"] = true.into();
    let mut globbed = files(&[], &["."], &["a**b"]);
    globbed["network"]["strictAllowlist"] = true.into();
    let texts = [
        (String::new(), "is empty"),
        (" \n".to_owned(), "is empty"),
        ("{".to_owned(), "it is no JSON"),
        ("{}".to_owned(), "network: it is required; filesystem: it is required"),
        (
            json!({"network": {"allowedDomains": ["*.com"], "deniedDomains": []},
            "filesystem": {"denyRead": [], "allowWrite": [], "denyWrite": []}})
            .to_string(),
            "network.allowedDomains.0: ",
        ),
        (disabled.to_string(), "filesystem.disabled: cowork cannot honour it"),
        (proxied.to_string(), "network.httpProxyPort: cowork cannot honour it"),
        (sockets.to_string(), "network.allowAllUnixSockets: cowork cannot honour it"),
        (globbed.to_string(), "filesystem.denyWrite.0: `**` stands"),
    ];
    for (text, part) in texts {
        let ran = desk.run(&["-s", &desk.text(&text), "-c", "echo ran"]);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{text}: {ran:?}");
        assert!(ran.err.contains(part), "{text}: {}", ran.err);
    }
}

fn the_default_settings_are_in_the_home(person: Person) {
    let desk = Desk::new(person, "default");
    let home = desk.elsewhere("home/.srt-settings.json", &files(&[], &["."], &[]).to_string());
    let home = std::path::Path::new(&home).parent().expect("it lies in a folder");
    let run = |script: &str| {
        let mut command = desk.srt(&["-c", script]);
        Said::of(&command.env("HOME", home).output().expect("it runs"))
    };
    assert_eq!(run("echo x > new && echo $HOME").good(), format!("{}\n", home.display()));
    assert_eq!(desk.folder.read("new").as_deref(), Some("x\n"));
    std::fs::write(home.join(".srt-settings.json"), "").expect("it is ours");
    let ran = run("echo ran");
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
    assert!(ran.err.contains("is empty"), "{ran:?}");
}

fn keys_that_nobody_knows_are_told(person: Person) {
    let desk = Desk::new(person, "unknown");
    let mut settings = files(&[], &["."], &[]);
    settings["filesystem"]["allowExecute"] = json!(["/usr"]);
    settings["allowPty"] = true.into();
    settings["mandatoryDenySearchDepth"] = 2.into();
    let ran = desk.script(&settings, "echo ran");
    assert_eq!((ran.code, ran.out.as_str()), (0, "ran\n"), "{ran:?}");
    assert!(ran.err.contains("`filesystem.allowExecute`"), "{ran:?}");
    assert!(!ran.err.contains("allowPty") && !ran.err.contains("Depth"), "{ran:?}");
}

fn variables_are_passed_on(person: Person) {
    let desk = Desk::new(person, "variables");
    let mut settings = files(&[], &["."], &[]);
    settings["git"] = json!({ "safeDirectories": ["/repo"] });
    let path = desk.settings(&settings);
    let script = "echo \"$MINE|$PATH|$SANDBOX_RUNTIME|$HTTP_PROXY|$PWD\"; \
                  git config --get-all safe.directory";
    let mut command = desk.srt(&["-s", &path, "-c", script]);
    command.env("MINE", "a b").env("PATH", "/usr/bin:/bin:/opt/mine");
    command.env("HTTP_PROXY", "http://user:pass@proxy:1");
    let ran = Said::of(&command.output().expect("it runs"));
    let first = format!("a b|/usr/bin:/bin:/opt/mine|1||{}\n", desk.here().display());
    assert_eq!(ran.good(), format!("{first}/repo\n/repo/*\n"));
}

fn standard_streams_are_passed_on(person: Person) {
    let desk = Desk::new(person, "streams");
    let mut command = desk.srt(&["-c", "tr a b; echo oops >&2"]);
    let pipes = command.stdin(std::process::Stdio::piped());
    let mut child = pipes
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut input = child.stdin.take().expect("it is piped");
    std::io::Write::write_all(&mut input, b"banana").expect("it reads");
    drop(input);
    let ran = Said::of(&child.wait_with_output().expect("it ends"));
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "bbnbnb", "oops\n"));
}

fn what_is_done_is_said_on_request(person: Person) {
    let desk = Desk::new(person, "debug");
    let path = desk.settings(&files(&[], &["."], &[]));
    let ran = desk.run(&["-d", "-s", &path, "true"]);
    assert!(ran.err.contains(&format!("[SandboxDebug] Settings: {path}")), "{ran:?}");
    assert_eq!(desk.run(&["-s", &path, "true"]).err, "");
}
