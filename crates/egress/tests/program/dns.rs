//! Questions for names.

use crate::for_everyone;
use crate::session::{LOOPBACK, PATIENCE, Session, allow_name, reach, rule, rules};
use cowork_api::egress::{Action, Host, Otherwise, Ports, Rules, ToEgress};
use cowork_testbed::Person;
use hickory_proto::op::{Edns, Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use std::io::{Read, Write};
use std::net::{IpAddr, UdpSocket};
use std::str::FromStr;
use std::time::{Duration, Instant};

for_everyone!(
    a_name_that_rules_know_has_an_address_that_stands_for_it,
    a_name_that_rules_do_not_know_does_not_exist_and_leaves_a_record,
    other_kinds_are_empty_and_other_questions_are_refused,
    edns_is_answered_in_kind,
    nonsense_is_answered_as_such_or_not_at_all,
    tcp_is_answered_too,
    names_appear_and_vanish_with_the_rules,
    when_no_address_is_left_names_that_have_one_keep_it,
);

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_str(name).unwrap(), kind));
    message
}

impl Session {
    fn ask(&self, question: &Message) -> Message {
        let answer = self.ask_bytes(&question.to_vec().unwrap()).unwrap();
        let answer = Message::from_vec(&answer).unwrap();
        assert_eq!(answer.metadata.id, question.metadata.id);
        answer
    }

    fn ask_bytes(&self, question: &[u8]) -> Option<Vec<u8>> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket.send_to(question, self.dns).unwrap();
        let mut answer = vec![0; 4096];
        let length = socket.recv(&mut answer).ok()?;
        answer.truncate(length);
        Some(answer)
    }
}

/// The address that stands for a name.
pub(crate) fn address(session: &Session, name: &str, kind: RecordType) -> Option<IpAddr> {
    match session.ask(&question(name, kind)).answers.first()?.data {
        RData::A(address) => Some(address.0.into()),
        RData::AAAA(address) => Some(address.0.into()),
        _ => None,
    }
}

fn a_name_that_rules_know_has_an_address_that_stands_for_it(person: Person) {
    let session = Session::start_as(
        person,
        rules([
            allow_name("example.com"),
            rule(Action::Allow, Host::Below("example.org".into()), Ports::Web),
            rule(Action::Allow, Host::Loopback, Ports::All),
        ]),
    );
    let v4 = address(&session, "example.com.", RecordType::A).unwrap();
    assert!(
        matches!(v4, IpAddr::V4(v4) if v4.octets()[..2] == [198, 18] || v4.octets()[..2] == [198, 19])
    );
    let v6 = address(&session, "example.com.", RecordType::AAAA).unwrap();
    assert!(v6.to_string().starts_with("fd63:6f77:6f72:6b00:"), "{v6}");
    assert_eq!(address(&session, "EXAMPLE.com.", RecordType::A), Some(v4));
    assert!(address(&session, "a.example.org.", RecordType::A).is_some());
    assert!(address(&session, &format!("{LOOPBACK}."), RecordType::A).is_some());
    assert_eq!(address(&session, "localhost.", RecordType::A), Some([127, 0, 0, 1].into()));
    assert_eq!(address(&session, "localhost.", RecordType::AAAA), Some("::1".parse().unwrap()));

    let reverse = session.ask(&question(&Name::from(v4).to_string(), RecordType::PTR));
    let RData::PTR(name) = &reverse.answers[0].data else { panic!("{reverse:?}") };
    assert_eq!(name.0.to_string(), "example.com.");
}

fn a_name_that_rules_do_not_know_does_not_exist_and_leaves_a_record(person: Person) {
    let denied = Action::Deny { reason: String::new() };
    let session = Session::start_as(
        person,
        rules([
            rule(Action::Allow, Host::Domain("example.org".into()), Ports::Web),
            rule(denied, Host::Name("bad.example.org".into()), Ports::All),
        ]),
    );
    for name in ["example.com.", "org.", "notexample.org.", "a.b..c".trim_end_matches("..c")] {
        let answer = session.ask(&question(name, RecordType::A));
        assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain, "{name}");
        assert!(answer.answers.is_empty());
    }
    for _ in 0..20 {
        session.ask(&question("again.example.com.", RecordType::A));
    }
    assert_eq!(session.decided("example.com").code, "no-rule");
    session.decided("again.example.com");
    let again =
        |record: &cowork_api::egress::Record| format!("{record:?}").contains("again.example.com");
    assert_eq!(session.records().into_iter().filter(again).count(), 1);
}

fn other_kinds_are_empty_and_other_questions_are_refused(person: Person) {
    let session = Session::start_as(person, rules([allow_name("example.com")]));
    for kind in
        [RecordType::TXT, RecordType::MX, RecordType::HTTPS, RecordType::SRV, RecordType::ANY]
    {
        let answer = session.ask(&question("example.com.", kind));
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError, "{kind}");
        assert!(answer.answers.is_empty(), "{kind}");
    }
    let mut update = question("example.com.", RecordType::A);
    update.metadata.op_code = OpCode::Update;
    assert_eq!(session.ask(&update).metadata.response_code, ResponseCode::NotImp);
    let mut two = question("example.com.", RecordType::A);
    two.add_query(two.queries[0].clone());
    assert_eq!(session.ask(&two).metadata.response_code, ResponseCode::FormErr);
}

fn edns_is_answered_in_kind(person: Person) {
    let session = Session::start_as(person, rules([allow_name("example.com")]));
    let mut asked = question("example.com.", RecordType::A);
    assert!(session.ask(&asked).edns.is_none());
    let mut edns = Edns::new();
    edns.set_max_payload(4096);
    asked.edns = Some(edns);
    assert!(session.ask(&asked).edns.is_some());
}

fn nonsense_is_answered_as_such_or_not_at_all(person: Person) {
    let session = Session::start_as(person, rules([allow_name("example.com")]));
    let mut broken = question("example.com.", RecordType::A).to_vec().unwrap();
    broken.truncate(20);
    let answer = Message::from_vec(&session.ask_bytes(&broken).unwrap()).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::FormErr);
    assert_eq!(session.ask_bytes(b"short"), None);
    let mut answer = question("example.com.", RecordType::A).to_vec().unwrap();
    answer[2] |= 0x80;
    assert_eq!(session.ask_bytes(&answer), None);
    // A part with a dot in it is not two parts.
    let mut dotted = question("aexample.com.", RecordType::A).to_vec().unwrap();
    dotted[12..26].copy_from_slice(b"\x08examp.le\x03com\0");
    let answer = Message::from_vec(&session.ask_bytes(&dotted).unwrap()).unwrap();
    assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
    assert!(address(&session, "example.com.", RecordType::A).is_some());
}

fn tcp_is_answered_too(person: Person) {
    let session = Session::start_as(person, rules([allow_name("example.com")]));
    let mut stream = reach(session.dns_tcp);
    for _ in 0..3 {
        let asked = question("example.com.", RecordType::A).to_vec().unwrap();
        stream.write_all(&u16::try_from(asked.len()).unwrap().to_be_bytes()).unwrap();
        stream.write_all(&asked).unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(Message::from_vec(&answer).unwrap().answers.len(), 1);
    }
}

fn names_appear_and_vanish_with_the_rules(person: Person) {
    let session = Session::start_as(person, rules([]));
    assert_eq!(address(&session, "example.com.", RecordType::A), None);
    session.send(&ToEgress::Rules(Box::new(rules([allow_name("example.com")]))));
    let deadline = Instant::now() + PATIENCE;
    while address(&session, "example.com.", RecordType::A).is_none() {
        assert!(Instant::now() < deadline);
    }
}

/// Asks over one connection of TCP, several questions at a time: the code of each answer.
fn ask_all(stream: &mut std::net::TcpStream, names: &[String]) -> Vec<u16> {
    let mut asked = Vec::new();
    for name in names {
        let question = question(name, RecordType::A).to_vec().unwrap();
        asked.extend(u16::try_from(question.len()).unwrap().to_be_bytes());
        asked.extend(question);
    }
    stream.write_all(&asked).unwrap();
    let code = |_: &String| {
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut answer).unwrap();
        u16::from(answer[3] & 15)
    };
    names.iter().map(code).collect()
}

const ANSWERED: u16 = 0;
const NO_ROOM: u16 = 2;
const REFUSED: u16 = 5;

fn asking() -> Rules {
    Rules { generation: 1, otherwise: Otherwise::Ask, rules: Vec::new() }
}

/// For one person: of two floods at a time each is half as large, and neither may be too much.
#[test]
fn a_flood_is_refused_and_passes() {
    let session = std::sync::Arc::new(Session::start(asking()));
    let flooders: Vec<_> = (0..4)
        .map(|_| {
            let session = std::sync::Arc::clone(&session);
            std::thread::spawn(move || {
                let mut stream = reach(session.dns_tcp);
                let names = vec!["again.example.".to_owned(); 100];
                let deadline = Instant::now() + PATIENCE;
                let mut answered = 0;
                while Instant::now() < deadline {
                    let codes = ask_all(&mut stream, &names);
                    assert!(codes.iter().all(|code| [ANSWERED, REFUSED].contains(code)));
                    answered += codes.iter().filter(|code| **code == ANSWERED).count();
                    if codes.contains(&REFUSED) {
                        return answered;
                    }
                }
                panic!("nothing was refused of what came after {answered} answers");
            })
        })
        .collect();
    let answered: usize = flooders.into_iter().map(|flooder| flooder.join().unwrap()).sum();
    assert!(answered > 0);
    assert!(session.memory() < 64 * 1024 * 1024, "{}", session.memory());
    // In the next second there is an answer again, over either way.
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(ask_all(&mut reach(session.dns_tcp), &["later.example.".into()]), [ANSWERED]);
    assert!(address(&session, "later.example.", RecordType::A).is_some());
}

fn when_no_address_is_left_names_that_have_one_keep_it(person: Person) {
    let session = Session::start_as(person, asking());
    let first = address(&session, "n1.example.", RecordType::A).unwrap();
    let mut stream = reach(session.dns_tcp);
    let (mut number, mut answered, mut full) = (2_u32, 1, 0);
    let deadline = Instant::now() + Duration::from_mins(3);
    while full == 0 {
        assert!(Instant::now() < deadline, "{answered} names have an address");
        let names: Vec<String> =
            (0..100).map(|more| format!("n{}.example.", number + more)).collect();
        let codes = ask_all(&mut stream, &names);
        let count = |wanted: u16| codes.iter().filter(|code| **code == wanted).count();
        (answered, full) = (answered + count(ANSWERED), full + count(NO_ROOM));
        assert_eq!(count(ANSWERED) + count(NO_ROOM) + count(REFUSED), names.len());
        number += 100;
        if count(REFUSED) > 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    assert_eq!(answered, cowork_egress::names::MAX_NAMES);
    assert!(session.memory() < 64 * 1024 * 1024, "{}", session.memory());
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(address(&session, "n1.example.", RecordType::A), Some(first));
    assert_eq!(ask_all(&mut stream, &["one.more.example.".into()]), [NO_ROOM]);
    let exhausted =
        |record: &cowork_api::egress::Record| format!("{record:?}").contains("\"names-exhausted\"");
    assert!(session.records().iter().any(exhausted));
    // Whoever names a host to the proxy needs no address for it.
    let port = crate::session::echo();
    session.send(&ToEgress::Rules(Box::new(rules([crate::session::allow_loopback(port)]))));
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut stream = reach(session.http);
        write!(stream, "CONNECT {LOOPBACK}:{port} HTTP/1.1\r\n\r\n").unwrap();
        if crate::session::head(&mut stream).starts_with("HTTP/1.1 200 ") {
            break;
        }
        assert!(Instant::now() < deadline);
    }
}
