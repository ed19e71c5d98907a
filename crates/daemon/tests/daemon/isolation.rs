//! One session and another: neither sees, signals or reads the other. And what each of them uses.

use crate::for_everyone;
use crate::look::until;
use crate::room::{Room, typed};
use crate::site::Site;
use cowork_client::types::Usage;
use cowork_testbed::Person;
use serde_json::json;

for_everyone!(sessions_do_not_reach_each_other, what_a_session_uses_is_told);

fn sessions_do_not_reach_each_other(person: Person) {
    let site = Site::new(person);
    let (one, two) = (site.plain_room(), site.plain_room());
    let secret = "the secret of one session";
    let listen = "import socket, time\n\
                  a = socket.socket(socket.AF_UNIX); a.bind('\\0abstract-name'); a.listen()\n\
                  f = socket.socket(socket.AF_UNIX); f.bind('/tmp/file.sock'); f.listen()\n\
                  t = socket.socket(); t.bind(('127.0.0.1', 4711)); t.listen()\n\
                  print('listens', flush=True)\ntime.sleep(1000)";
    let server = one.start(&json!({ "argv": ["/usr/bin/python3", "-c", listen] }));
    one.until_says(server, "listens");
    let keep =
        format!("echo '{secret}' | tee ~/secret /tmp/secret /dev/shm/secret mnt/outputs/secret");
    assert_eq!(one.run(&keep).code, 0);
    let victim = one.sh("exec -a a-victim sleep 1000");
    let host_pid = until_victim(&site, one);
    // It sees none of the other's processes, files, sockets or names.
    let look = format!(
        "cat /sessions/{id}/secret /tmp/secret /dev/shm/secret mnt/outputs/secret {state}/sessions/{id}/home/secret; \
         ls /sessions; ls /proc | grep -c '^[0-9]'; cat /proc/*/cmdline | tr '\\0' ' '",
        id = one.id(),
        state = site.state().display(),
    );
    let seen = two.run(&look);
    let text = String::from_utf8_lossy(&seen.out).into_owned();
    assert!(!text.contains(secret) && !text.contains("a-victim"), "{text}");
    assert!(text.starts_with(&format!("{}\n", two.id())), "{text}");
    let connect = "import socket\n\
                   for make, name in [(lambda: socket.socket(socket.AF_UNIX), '\\0abstract-name'),\n\
                                      (lambda: socket.socket(socket.AF_UNIX), '/tmp/file.sock'),\n\
                                      (lambda: socket.socket(), ('127.0.0.1', 4711))]:\n    \
                       try: make().connect(name); print('CONNECTED', name)\n    \
                       except OSError as error: print('refused', error.errno)\n";
    let run = |room: Room<'_>| {
        room.finish(room.start(&json!({ "argv": ["/usr/bin/python3", "-c", connect] }))).text()
    };
    assert_eq!(run(one).matches("CONNECTED").count(), 3, "the attack works where it may");
    assert_eq!(run(two).matches("refused").count(), 3);
    // It cannot signal by any number: not by the host's, not by that inside.
    let kill =
        format!("kill -9 {host_pid} 1 -1; kill -9 {}", one.command(victim).pid.expect("it runs"));
    drop(two.finish(two.sh(&kill)));
    assert!(one.command(victim).code.is_none(), "it lives");
    assert_eq!(two.run("echo alive").text(), "alive\n");
    assert_eq!(one.tell_command(victim, "cancel", &json!({})).signal, Some(15));
    // A home that stays on disk is not the next session's, nor is one with the same id.
    let id = one.id().to_owned();
    one.remove();
    let again = site.room(&json!({ "id": id }));
    let text = again.run("ls -A ~ | grep -v -e mnt -e COWORK.md; true").text();
    assert_eq!(text, "");
    if person == Person::Root {
        use std::os::unix::fs::MetadataExt;
        let home = |room: Room<'_>| {
            let path = site.state().join("sessions").join(room.id()).join("home");
            std::fs::metadata(path).expect("it is there")
        };
        assert_eq!(home(two).mode() & 0o077, 0);
    }
}

/// The host's number of the process that a session was told to start.
fn until_victim(site: &Site, room: Room<'_>) -> i32 {
    let mut pid = 0;
    until("the victim runs", || {
        let usage: Usage = typed(site.get(room.at("/usage")));
        let found = usage.listed.iter().find(|process| process.name == "sleep");
        pid = found.map_or(0, |process| process.pid);
        pid > 0
    });
    pid
}

fn what_a_session_uses_is_told(person: Person) {
    let site = Site::new(person);
    let (room, idle) = (site.plain_room(), site.plain_room());
    let usage = |room: Room<'_>| -> Usage { typed(site.get(room.at("/usage"))) };
    let before = usage(room);
    let busy = "import os, time\nb = bytearray(80_000_000)\nopen('file', 'wb').write(os.urandom(6_000_000))\n\
                open('/tmp/file', 'wb').write(bytes(3_000_000))\nend = time.process_time() + 0.3\n\
                while time.process_time() < end: pass\nprint('done', flush=True)\ntime.sleep(1000)";
    let number = room.start(&json!({ "argv": ["/usr/bin/python3", "-c", busy] }));
    room.until_says(number, "done");
    let after = usage(room);
    assert!(after.cpu_us >= before.cpu_us + 250_000, "{before:?} {after:?}");
    assert!(after.memory >= before.memory + 70_000_000, "{before:?} {after:?}");
    assert!(after.memory_peak >= after.memory, "{after:?}");
    assert!(after.disk >= 6_000_000 && after.disk < 60_000_000, "{after:?}");
    assert!(after.scratch >= 3_000_000, "{after:?}");
    assert!(after.wall_ms > before.wall_ms, "{after:?}");
    assert!(after.processes > before.processes, "{before:?} {after:?}");
    let listed = after.listed.iter().find(|process| process.name.starts_with("python3"));
    let listed = listed.expect("it is listed");
    assert_eq!(listed.inside, room.command(number).pid);
    room.tell_command(number, "cancel", &json!({}));
    let later = usage(room);
    assert!(later.memory < after.memory && later.memory_peak >= 70_000_000, "{later:?}");
    assert!(later.cpu_us >= after.cpu_us, "what has ended is counted: {later:?}");
    let other = usage(idle);
    assert!(other.disk < 1_000_000 && other.cpu_us < 200_000, "{other:?}");
    let history: Vec<Usage> = typed(site.get(room.at("/usage/history?limit=1000"))["items"].take());
    assert!(history.len() >= 3, "{history:?}");
    assert!(history.is_sorted_by(|one, next| one.time <= next.time));
    room.tell("stop");
    assert_eq!(usage(room).processes, 0);
    assert!(usage(room).disk >= 6_000_000);
}
