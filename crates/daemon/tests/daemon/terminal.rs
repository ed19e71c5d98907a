//! Commands with a terminal of their own.

use crate::for_everyone;
use crate::line::Line;
use crate::site::Site;
use cowork_client::http::Method;
use cowork_client::stream::ToDaemon;
use cowork_client::types::Size;
use cowork_testbed::Person;
use serde_json::{Value, json};

for_everyone!(
    a_terminal_has_the_size_it_is_given,
    keys_mean_what_they_mean,
    a_shell_is_left_and_found_again,
);

fn on_a_terminal(shell: &str) -> Value {
    json!({
        "shell": shell,
        "streams": { "stdin": "terminal", "stdout": "terminal", "stderr": "terminal" },
        "size": { "columns": 101, "rows": 37 },
        "env": { "TERM": "xterm" },
    })
}

/// Says which terminal it has, and its size whenever that changes.
const WATCH: &str = "import os, signal
def say(*_):
    size = os.get_terminal_size()
    os.write(1, b'%d %d\\n' % (size.lines, size.columns))
say()
os.write(1, os.ttyname(0).encode() + b'\\n')
signal.signal(signal.SIGWINCH, say)
os.write(1, b'ready\\n')
while True:
    signal.pause()
";

fn a_terminal_has_the_size_it_is_given(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let mut body = on_a_terminal("");
    body["shell"] = Value::Null;
    body["argv"] = json!(["/usr/bin/python3", "-c", WATCH]);
    let mut line = Line::start(room, &body);
    let heard = line.hear_until("ready");
    let number = heard.started.expect("it comes first").number;
    assert!(String::from_utf8_lossy(&heard.terminal).starts_with("37 101\r\n"));
    assert!(String::from_utf8_lossy(&heard.terminal).contains("\r\n/dev/pts/"));
    line.tell(&ToDaemon::Resize(Size { columns: 80, rows: 25 }));
    drop(line.hear_until("25 80"));
    let body = json!({ "columns": 60, "rows": 20 });
    site.post(room.at(&format!("/commands/{number}/resize")), &body);
    drop(line.hear_until("20 60"));
    room.tell_command(number, "cancel", &json!({}));
    let terminal = room.output(number, &[("stream", "terminal")]);
    assert!(String::from_utf8_lossy(&terminal).contains("20 60\r\n"));
    assert_eq!(room.output(number, &[("stream", "stdout")]), b"");
    // Without a terminal there is nothing to resize, and programs know it.
    let plain = room.sh("tty; test -t 1 || echo none; sleep 1000");
    room.until_says(plain, "none");
    let target = room.at(&format!("/commands/{plain}/resize"));
    let problem = site.refused(Method::Post, target, Some(&body));
    assert_eq!((problem.status, problem.code.as_str()), (409, "no-terminal"));
}

fn keys_mean_what_they_mean(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    // Echo, and the end of input.
    let mut line = Line::start(room, &on_a_terminal("echo ready; cat; echo over"));
    drop(line.hear_until("ready"));
    line.input(b"typed\n");
    let heard = line.hear_until("typed\r\ntyped\r\n");
    assert!(heard.out.is_empty(), "{heard:?}");
    line.input(b"\x04");
    drop(line.hear_until("over"));
    assert_eq!(line.hear_all().code(), 0);
    // Interruption reaches who is in the foreground.
    let mut line = Line::start(
        room,
        &on_a_terminal("trap 'echo told; exit 9' INT; echo ready; while :; do sleep 0.05; done"),
    );
    drop(line.hear_until("ready"));
    line.input(b"\x03");
    let heard = line.hear_until("told");
    assert!(String::from_utf8_lossy(&heard.terminal).contains("^C"));
    assert_eq!(line.hear_all().code(), 9);
    // Somebody who hangs up all terminals: input is a pipe, output a terminal.
    let body = json!({
        "shell": "test -t 1 && ! test -t 0 && printf 'a\\nb\\n'; cat",
        "streams": { "stdin": "pipe", "stdout": "terminal", "stderr": "pipe" },
    });
    let mut line = Line::start(room, &body);
    line.input(b"from a pipe\n");
    line.input(b"");
    let heard = line.hear_all();
    assert_eq!(String::from_utf8_lossy(&heard.terminal), "a\nb\nfrom a pipe\n");
    assert_eq!(heard.code(), 0);
}

fn a_shell_is_left_and_found_again(person: Person) {
    let site = Site::new(person);
    let room = site.plain_room();
    let mut body = on_a_terminal("");
    body["shell"] = Value::Null;
    body["argv"] = json!(["bash", "--norc", "-i"]);
    let mut line = Line::start(room, &body);
    line.input(b"PS1='>'; value=kept\n");
    let number = line.hear_until(">").started.expect("it comes first").number;
    line.tell(&ToDaemon::Detach);
    drop(line.hear_all());
    site.kill();
    site.start();
    // Neither a client that leaves nor a daemon that dies ends it.
    let mut line = Line::attach(room, number, "end");
    line.input(b"echo [$value]\n");
    drop(line.hear_until("[kept]"));
    // Jobs are stopped and continued in it.
    line.input(b"sleep 1000\n");
    std::thread::sleep(std::time::Duration::from_millis(300));
    line.input(b"\x1a");
    drop(line.hear_until("Stopped"));
    line.input(b"kill %1; fg; echo [$((6*7))]\n");
    drop(line.hear_until("[42]"));
    line.tell(&ToDaemon::Resize(Size { columns: 44, rows: 11 }));
    line.input(b"stty size\n");
    drop(line.hear_until("11 44"));
    line.input(b"exit 3\n");
    assert_eq!(line.hear_all().code(), 3);
    site.verify();
}
