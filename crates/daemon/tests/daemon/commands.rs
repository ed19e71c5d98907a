//! Commands: started, refused, followed to their end.

use crate::for_everyone;
use crate::look::until;
use crate::room::{Room, typed};
use crate::site::Site;
use cowork_client::http::Method;
use cowork_client::types::{Command, CommandState, Page, Raw, State};
use cowork_testbed::{Folder, Person};
use serde_json::{Value, json};

for_everyone!(
    commands_end_as_they_want,
    what_cannot_be_started_is_refused,
    a_command_gets_what_it_was_given,
    several_run_at_once,
    what_a_command_used_is_told,
    a_background_process_outlives_its_command,
    commands_are_listed_in_parts,
);

fn commands_end_as_they_want(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    for code in [0, 1, 2, 42, 127, 254, 255] {
        let ended = room.run(&format!("exit {code}")).command;
        assert_eq!(
            (ended.code, ended.signal, ended.state),
            (Some(code), None, CommandState::Exited)
        );
        assert!(ended.ended.is_some() && ended.reason.is_none(), "{ended:?}");
    }
    for signal in [1, 2, 6, 9, 15] {
        let ended = room.run(&format!("kill -{signal} $$; sleep 10")).command;
        assert_eq!((ended.code, ended.signal), (Some(128 + signal), Some(signal)));
    }
    // The same from outside, to the leader, to its group, to all of it.
    for whom in ["leader", "group", "tree"] {
        let number = room.start(&json!({ "argv": ["sleep", "1000"] }));
        room.tell_command(number, "signal", &json!({ "signal": 12, "whom": whom }));
        assert_eq!(room.ended(number).signal, Some(12), "{whom}");
    }
    // To the leader alone: a child of the same group does not get it.
    let number = room.sh("trap 'echo told' USR1; \
                          (trap 'echo child; exit' USR1; echo ready; while :; do sleep 0.05; done) & \
                          while :; do sleep 0.05; done");
    room.until_says(number, "ready");
    room.tell_command(number, "signal", &json!({ "signal": 10, "whom": "leader" }));
    room.until_says(number, "told");
    assert!(!String::from_utf8_lossy(&room.output(number, &[])).contains("child"));
    room.tell_command(number, "signal", &json!({ "signal": 10, "whom": "group" }));
    room.until_says(number, "child");
    for signal in [0, -1, 65, 1000] {
        let target = room.at(&format!("/commands/{number}/signal"));
        let problem = site.refused(Method::Post, target, Some(&json!({ "signal": signal })));
        assert_eq!((problem.status, problem.code.as_str()), (422, "bad-signal"));
    }
    room.tell_command(number, "signal", &json!({ "signal": 9, "whom": "tree" }));
    room.ended(number);
    for verb in ["signal", "cancel", "pause", "resume"] {
        let body = if verb == "signal" { json!({ "signal": 9 }) } else { json!({}) };
        let target = room.at(&format!("/commands/{number}/{verb}"));
        let problem = site.refused(Method::Post, target, Some(&body));
        assert_eq!((problem.status, problem.code.as_str()), (409, "command-ended"), "{verb}");
    }
    until("the session is at rest", || room.state() == State::Ready);
    // What was sent is recorded, and nothing that was refused.
    let sent = site.records(&[("session", room.id()), ("type", "command.signalled")]);
    let sent: Vec<Value> = sent.into_iter().map(|record| record.data).collect();
    let first = number - 3;
    let expected = [
        (first, 12, "leader"),
        (first + 1, 12, "group"),
        (first + 2, 12, "tree"),
        (number, 10, "leader"),
        (number, 10, "group"),
        (number, 9, "tree"),
    ];
    let expected = expected.map(
        |(command, signal, whom)| json!({ "command": command, "signal": signal, "whom": whom }),
    );
    assert_eq!(sent, expected);
    site.verify();
}

fn what_cannot_be_started_is_refused(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    assert_eq!(room.run("echo '#!/nowhere/sh' > broken; chmod +x broken; echo x > plain").code, 0);
    let table: Vec<(Value, u16, &str)> = vec![
        (json!({ "argv": ["no-such-program"] }), 422, "not-found"),
        (json!({ "argv": ["/no/such/program"] }), 422, "not-found"),
        (json!({ "argv": [""] }), 422, "bad-command"),
        (json!({ "argv": ["./plain"] }), 422, "not-executable"),
        (json!({ "argv": ["/tmp"] }), 422, "not-executable"),
        (json!({ "argv": ["true"], "cwd": "/no/such/folder" }), 422, "bad-cwd"),
        (json!({ "argv": ["true"], "cwd": "plain" }), 422, "bad-cwd"),
        (json!({ "argv": [] }), 422, "bad-command"),
        (json!({}), 422, "bad-command"),
        (json!({ "argv": ["true"], "shell": "true" }), 422, "bad-command"),
        (json!({ "argv": ["a\u{0}b"] }), 422, "bad-command"),
        (json!({ "shell": "a\u{0}b" }), 422, "bad-command"),
        (json!({ "argv": [{ "base64": "!" }] }), 400, "malformed"),
        (json!({ "argv": ["true"], "env": { "A=B": "c" } }), 422, "bad-variable"),
        (json!({ "argv": ["true"], "env": { "": "c" } }), 422, "bad-variable"),
        (json!({ "argv": ["true"], "timeout": "soon" }), 422, "bad-timeout"),
        (json!({ "argv": ["true"], "streams": { "stdin": "stdout" } }), 422, "bad-streams"),
        (json!({ "argv": ["true"], "stream": {} }), 400, "malformed"),
    ];
    site.check_refusals(&room.at("/commands"), &table);
    let broken =
        site.ask(Method::Post, room.at("/commands"), Some(&json!({ "argv": ["./broken"] })));
    assert!(broken.is_err(), "{broken:?}");
    let huge = "x".repeat(3_000_000);
    let body = json!({ "argv": ["echo", huge] });
    let problem = site.refused(Method::Post, room.at("/commands"), Some(&body));
    assert!((400..500).contains(&problem.status), "{problem:?}");
    for number in ["0", "999", "-1", "x"] {
        let problem = site.refused(Method::Get, room.at(&format!("/commands/{number}")), None);
        assert_eq!((problem.status, problem.code.as_str()), (404, "no-command"), "{number}");
    }
    // Those that came as far as the session are on record, with their reason.
    let refused: Vec<Command> = site
        .client()
        .list(&cowork_client::uri::Query::new(room.at("/commands")))
        .expect("they can be listed");
    let refused = refused.into_iter().filter(|command| command.state == CommandState::Refused);
    let codes: Vec<String> = refused.filter_map(|command| Some(command.reason?.code)).collect();
    assert!(codes.iter().filter(|code| *code == "not-found").count() >= 2, "{codes:?}");
    assert_eq!(room.state(), State::Ready);
    assert_eq!(room.run("echo fine").text(), "fine\n");
    site.verify();
}

fn a_command_gets_what_it_was_given(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    // Words and values that are not UTF-8.
    let odd = Raw::new(b"\xff\xfe/\n".to_vec());
    let body = json!({
        "argv": ["/usr/bin/python3", "-c",
                 "import os, sys; sys.stdout.buffer.write(b'|'.join([os.fsencode(sys.argv[1]), \
                  os.environb[b'ODD'], os.getcwdb()]))", odd],
        "env": { "ODD": odd, "HOME": "/elsewhere" },
        "cwd": "mnt/outputs",
    });
    let ran = room.finish(room.start(&body));
    let expected =
        [b"\xff\xfe/\n|\xff\xfe/\n|/sessions/".as_slice(), room.id().as_bytes(), b"/mnt/outputs"];
    assert_eq!(ran.out, expected.concat());
    assert_eq!(ran.command.argv.last(), Some(&odd));
    // The mask of permissions.
    let body = json!({ "shell": "umask; touch a; stat -c %a a", "umask": 0o027 });
    assert_eq!(room.finish(room.start(&body)).text(), "0027\n640\n");
    // Standard error where standard output goes, and standard input from nowhere.
    let body = json!({ "shell": "echo a; echo b >&2; cat", "streams": { "stderr": "stdout" } });
    let ran = room.finish(room.start(&body));
    assert_eq!((ran.text().as_str(), ran.err.as_slice()), ("a\nb\n", &b""[..]));
    let target = room.at(&format!("/commands/{}/stdin", ran.command.number));
    let problem = site.refused(Method::Post, target, Some(&json!("x")));
    assert_eq!(problem.status, 409);
    // Nothing of the daemon's is there: no descriptor, no variable, no capability.
    let ran = room.run("ls /proc/self/fd | tr '\\n' ' '; env | grep -c COWORK_STATE; grep CapEff /proc/self/status");
    let text = String::from_utf8_lossy(&ran.out).into_owned();
    assert!(text.starts_with("0 1 2 3 0\n"), "{text}");
    assert!(text.contains("CapEff:\t0000000000000000"), "{text}");
}

fn several_run_at_once(person: Person) {
    let site = Site::new(person);
    let work = Folder::new(person, "work");
    let (one, two) = (site.plain_room(), site.plain_room());
    one.grant(work.path(), "ro");
    let name = crate::room::name_of(work.path());
    let line = |index: u32| {
        format!(
            "echo started {index}; until [ -e mnt/{name}/go ]; do sleep 0.02; done; echo ended {index}"
        )
    };
    let numbers: Vec<u32> = (0..20).map(|index| one.sh(&line(index))).collect();
    // A second task in another session starts at once, whatever the first is at.
    assert_eq!(two.run("echo other").text(), "other\n");
    let running: Vec<u32> = one.show().running.iter().map(|command| command.number).collect();
    assert_eq!(running, numbers);
    assert_eq!(one.state(), State::Running);
    work.write("go", "");
    for (index, number) in (0u32..).zip(&numbers) {
        assert_eq!(one.finish(*number).text(), format!("started {index}\nended {index}\n"));
    }
    until("the session is at rest", || one.state() == State::Ready);
}

fn what_a_command_used_is_told(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let burn = "import time\nb = bytearray(100_000_000)\nend = time.process_time() + 0.4\n\
                while time.process_time() < end: pass";
    let number = room.start(&json!({ "argv": ["/usr/bin/python3", "-c", burn] }));
    let used = room.ended(number).usage.expect("it is known");
    let cpu = used.user_us + used.system_us;
    assert!((350_000..30_000_000).contains(&cpu), "{used:?}");
    assert!((90_000..1_000_000).contains(&used.peak_kib), "{used:?}");
    assert!((350..120_000).contains(&used.wall_ms), "{used:?}");
    // What its children used is in it.
    let number = room.sh(&format!("/usr/bin/python3 -c '{burn}'; true"));
    let used = room.ended(number).usage.expect("it is known");
    assert!(used.user_us + used.system_us >= 350_000, "{used:?}");
    let idle = room.run("sleep 0.5").command.usage.expect("it is known");
    assert!(idle.user_us + idle.system_us < 300_000 && idle.wall_ms >= 490, "{idle:?}");
}

fn a_background_process_outlives_its_command(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let line = "(setsid bash -c 'while :; do echo x >> count; sleep 0.02; done' >/dev/null 2>&1 &)";
    assert_eq!(room.run(line).code, 0);
    let count = |room: Room<'_>| -> u64 {
        room.run("touch count; wc -l < count").text().trim().parse().expect("it is a number")
    };
    let before = count(room);
    until("it goes on", || count(room) > before + 5);
    // Its output is followed as long as somebody holds it.
    let line = "(setsid bash -c 'sleep 0.3; echo late' &); echo early";
    let ran = room.run(line);
    assert!(ran.out.starts_with(b"early\n"));
    until("what it says later is kept", || {
        room.output(ran.command.number, &[]) == b"early\nlate\n"
    });
    room.tell("cancel");
    let after = count(room);
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(count(room), after, "it is cancelled with its session");
}

fn commands_are_listed_in_parts(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    for index in 0..7 {
        drop(room.run(&format!("echo {index}")));
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page: Page<Command> = typed(site.get(room.at(&format!("/commands?limit=3{cursor}"))));
        assert!(page.items.len() <= 3);
        seen.extend(page.items.into_iter().map(|command| command.number));
        match page.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, (1..=7).collect::<Vec<u32>>());
    assert_eq!(room.show().commands, 7);
    for bad in ["limit=0", "limit=1001", "limit=x", "cursor=x"] {
        let problem = site.refused(Method::Get, room.at(&format!("/commands?{bad}")), None);
        assert_eq!(problem.status, 400, "{bad}");
    }
}
