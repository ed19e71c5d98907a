//! The socket inside a session, in the hands of somebody who means harm: heads and bodies that are
//! made up, connections that say nothing, and the daemon that goes on.

use crate::for_everyone;
use crate::look::until;
use crate::room::Room;
use crate::site::Site;
use cowork_testbed::Person;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

for_everyone!(made_up_requests_from_inside_harm_nobody);

/// Sends what is on standard input, a list of requests, each on a connection of its own; prints the
/// status of each, or how the connection ended.
const SEND: &str = r#"
import json, os, random, socket

def connect():
    one = socket.socket(socket.AF_UNIX)
    one.connect(os.environ['COWORK_REQUESTS'])
    one.settimeout(20)
    return one

def send(name, data, half=True):
    one = connect()
    answer = b''
    try:
        one.sendall(data)
        if half:
            one.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    try:
        while len(answer) < 1 << 20:
            piece = one.recv(65536)
            if not piece:
                break
            answer += piece
    except socket.timeout:
        answer = b'HTTP/1.1 TIMEOUT'
    except OSError:
        pass
    one.close()
    words = answer.split(None, 2)
    print(json.dumps({'name': name, 'status': words[1].decode() if len(words) > 1 else 'closed',
                      'leaks': b'/var/tmp' in answer or b'panick' in answer}), flush=True)

def post(body, path=b'/v1/ask', kind=b'application/json', length=None):
    length = len(body) if length is None else length
    return b'POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %s\r\n\r\n%s' % (
        path, kind, str(length).encode(), body)

def get(path, more=b''):
    return b'GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n' % (path, more)

wish = {'wanted': 'w', 'reason': 'r'}
def wishing(**more):
    return json.dumps({**wish, **more}).encode()

chance = random.Random(7)
chunked = b'POST /v1/ask HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n'
cases = {
    'nothing': b'', 'one byte': b'G', 'a line': b'x' * (1 << 20),
    'no version': b'GET /\r\n\r\n', 'another protocol': b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    'a bare feed': b'GET / HTTP/1.1\n\n', 'a zero in the head': b'GET /\0 HTTP/1.1\r\n\r\n',
    'folded': b'GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n',
    'many heads': get(b'/v1/folders', b''.join(b'H%d: x\r\n' % i for i in range(10000))),
    'a long head': get(b'/v1/folders', b'H: ' + b'x' * (1 << 20) + b'\r\n'),
    'a long target': get(b'/v1/ask/' + b'1' * (1 << 17)),
    'no name of a head': get(b'/v1/folders', b': x\r\n'),
    'bytes in a head': get(b'/v1/folders', b'H: \xff\xfe\x80\r\n'),
    'two lengths': b'POST /v1/ask HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n{}  ',
    'length and chunks': chunked + b'Content-Length: 2\r\n\r\n0\r\n\r\n',
    'less than nothing': post(b'{}', length=-1), 'too long a length': post(b'{}', length=1 << 70),
    'more than comes': post(b'{}', length=1 << 40), 'a word for a length': post(b'{}', length='x'),
    'bad chunk': chunked + b'\r\nzz\r\n{}\r\n0\r\n\r\n',
    'huge chunk': chunked + b'\r\nffffffffffffffff\r\n{}', 'no last chunk': chunked + b'\r\n2\r\n{}\r\n',
    'chunks without end': chunked + b'\r\n' + (b'8000\r\n' + b'x' * 0x8000 + b'\r\n') * 100,
    'a body too long': post(b'{"wanted":"' + b'x' * (4 << 20) + b'"}'),
    'expects': post(wishing(access='no')).replace(b'Host: x', b'Host: x\r\nExpect: 100-continue'),
    'an upgrade': get(b'/v1/folders', b'Connection: Upgrade\r\nUpgrade: websocket\r\n'),
    'connect': b'CONNECT host:80 HTTP/1.1\r\n\r\n', 'options': b'OPTIONS * HTTP/1.1\r\n\r\n',
    'absolute': get(b'http://127.0.0.1/v1/sessions'), 'a method': b'\x80\x81 / HTTP/1.1\r\n\r\n',
    'deep': post(b'[' * 60000), 'deep objects': post(b'{"a":' * 10000), 'not text': post(b'\xff\xfe{}'),
    'half a pair': post(b'{"wanted":"\\ud800","reason":"r"}'), 'a list': post(b'[]'), 'null': post(b'null'),
    'no json': post(b'x=1', kind=b'application/x-www-form-urlencoded'), 'empty': post(b''),
    'below zero': post(wishing(wait=-1)), 'a large number': post(b'{"wanted":"w","reason":"r","wait":1e999}'),
    'beyond': post(b'{"wanted":"w","reason":"r","wait":18446744073709551616}'),
    'a field': post(wishing(path='/etc')), 'an access': post(wishing(access='rwx')),
    'blank': post(wishing(wanted=' \n')), 'long': post(wishing(reason='r' * 3000)),
    'twice': post(b'{"wanted":"a","wanted":"b","reason":"r"}'), 'a number': post(wishing(wanted=7)),
    'up': get(b'/v1/ask/../../v1/sessions'), 'hidden up': get(b'/v1/ask/%2e%2e%2fsessions'),
    'zero': get(b'/v1/ask/%00'), 'no text': get(b'/v1/ask/%ff'), 'half a byte': get(b'/v1/ask/%2'),
    'none': get(b'/v1/ask/0'), 'minus': get(b'/v1/ask/-1'), 'beyond all': get(b'/v1/ask/18446744073709551616'),
    'largest': get(b'/v1/ask/18446744073709551615'), 'a query': get(b'/v1/ask/1?' + b'&' * 5000),
    'sessions': get(b'/v1/sessions'), 'info': get(b'/v1/info'), 'audit': get(b'/v1/audit'),
    'leave': post(b'', path=b'/v1/shutdown'), 'decide': post(b'{"decision":"allow_once"}', path=b'/v1/requests/1/decide'),
    'delete': b'DELETE /v1/folders HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n',
    'many in a row': get(b'/v1/ask/1').replace(b'Connection: close\r\n', b'') * 300,
}
for name, data in cases.items():
    send(name, data)
for i in range(100):
    send('noise', chance.randbytes(chance.randrange(1, 5000)))
for i in range(100):
    good = bytearray(post(wishing(access='no')) if i % 2 else get(b'/v1/ask/1'))
    for _ in range(chance.randrange(1, 4)):
        good[chance.randrange(len(good))] = chance.randrange(256)
    send('a wrong byte', bytes(good))
held = [connect() for _ in range(28)]
for number, one in enumerate(held):
    one.sendall((b'', b'GET /v1/fol', post(b'{"wan', length=100), b'\r\n')[number % 4])
print(json.dumps({'name': 'held', 'status': '0', 'leaks': False}), flush=True)
os.read(0, 1)
for one in held:
    one.close()
"#;

/// What the program said, line by line.
fn said(room: Room<'_>, number: u32) -> Vec<Value> {
    let text = String::from_utf8_lossy(&room.output(number, &[("stream", "stdout")])).into_owned();
    let whole = text.rfind('\n').map_or("", |end| text.split_at(end).0);
    whole.lines().map(|line| serde_json::from_str(line).expect("it is a line of ours")).collect()
}

fn made_up_requests_from_inside_harm_nobody(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let (room, other) = (site.plain_room(), site.plain_room());
    let number = room.start(&json!({
        "argv": ["/usr/bin/python3", "-c", SEND], "streams": { "stdin": "pipe" },
    }));
    until("everything was sent, and some is held", || {
        let over = room.command(number).ended.is_some();
        assert!(!over, "{}", String::from_utf8_lossy(&room.output(number, &[])));
        said(room, number).iter().any(|one| one["name"] == "held")
    });
    // As many connections as there may be of one session say nothing; nobody else waits for them.
    let begun = Instant::now();
    site.info().expect("the daemon answers");
    let asking = "curl -s --unix-socket $COWORK_REQUESTS http://cowork/v1/folders";
    assert!(other.run(asking).text().contains(other.id()));
    assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());
    let close = room.at(&format!("/commands/{number}/stdin?close=true"));
    site.ask(cowork_client::http::Method::Post, close, None).expect("its input can be ended");
    assert_eq!(room.finish(number).code, 0);
    let answers = said(room, number);
    assert!(answers.len() > 250, "{}", answers.len());
    for answer in &answers {
        let status = answer["status"].as_str().expect("it has one");
        let refused = status == "closed" || status.starts_with('4');
        // What is well-formed and asks for what is there; a wrong byte may change nothing.
        let harmless =
            ["held", "a wrong byte", "an upgrade", "many in a row", "bytes in a head", "expects"]
                .contains(&answer["name"].as_str().expect("it has one"));
        assert!(refused || (harmless && !status.starts_with('5')), "{answer}");
        assert_eq!(answer["leaks"], json!(false), "{answer}");
    }
    // Nothing was asked of the user by any of it, and something can be.
    assert_eq!(room.show().pending, 0);
    let wish = "curl -s --unix-socket $COWORK_REQUESTS http://cowork/v1/ask \
                --json '{\"wanted\":\"w\",\"reason\":\"r\"}'";
    let asked: Value = serde_json::from_str(&room.run(wish).text()).expect("it is an answer");
    assert_eq!(asked["state"], "pending", "{asked}");
    assert_eq!(room.show().pending, 1);
    site.verify();
}
