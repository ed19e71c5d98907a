//! Answers questions for names, out of the table alone.
//!
//! Nothing is ever forwarded: a question cannot carry anything out. A name that rules allow, or that
//! the user could be asked about, has an address; any other does not exist. Kinds of records other
//! than addresses are empty, so that programs do not look for another way (`HTTPS`, `SVCB`).

use crate::house::House;
use crate::names::{Addresses, is_synthetic};
use crate::refused_names::RefusedNames;
use cowork_api::egress::{Decision, Source, Target, Via, What};
use cowork_policy::egress::{HostName, Outcome, Place};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, PTR};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How long an answer may be kept, in seconds.
const TTL: u32 = 10;
/// Longest question over UDP that is read.
const MAX_QUESTION: usize = 4096;
/// Most questions at once; what comes beyond is refused unread.
const MAX_QUESTIONS: f64 = 20_000.0;
/// How many more may be asked with each second.
const QUESTIONS_A_SECOND: f64 = 2_500.0;
/// Most connections for questions at a time.
const MAX_CONNECTIONS: usize = 64;
/// Longest that a connection may be silent.
const SILENCE: Duration = Duration::from_secs(10);

/// What answers questions.
#[derive(Debug)]
pub(crate) struct Answerer {
    house: Arc<House>,
    pace: Mutex<Pace>,
    refused: Mutex<RefusedNames>,
}

/// How many questions may still be asked.
#[derive(Debug)]
struct Pace {
    since: Instant,
    left: f64,
}

/// What is known about a name.
enum Known {
    /// It has these addresses.
    At(Addresses),
    /// It does not exist for the session.
    No,
    /// It could exist, but there is no address left.
    NoRoom,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Answerer {
    pub(crate) fn new(house: Arc<House>) -> Arc<Self> {
        let pace = Mutex::new(Pace { since: Instant::now(), left: MAX_QUESTIONS });
        Arc::new(Self { house, pace, refused: Mutex::default() })
    }

    /// Answers over UDP until the socket fails.
    pub(crate) async fn udp(self: Arc<Self>, socket: UdpSocket) {
        let mut question = vec![0; MAX_QUESTION];
        loop {
            let Ok((length, from)) = socket.recv_from(&mut question).await else {
                // An answer to somebody who is gone comes back as an error of the socket.
                tokio::task::yield_now().await;
                continue;
            };
            if let Some(answer) = question.get(..length).and_then(|bytes| self.answer(bytes)) {
                // Whoever asked may be gone.
                cowork_sys::ignore(socket.send_to(&answer, from).await);
            }
        }
    }

    /// Answers over TCP.
    pub(crate) async fn tcp(self: Arc<Self>, listener: TcpListener) {
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            let (stream, _) = crate::capture::accept(&listener).await;
            let answerer = Arc::clone(&self);
            tokio::spawn(async move {
                // A connection that breaks concerns nobody else.
                cowork_sys::ignore(answerer.converse(stream).await);
                drop(permit);
            });
        }
    }

    async fn converse(&self, mut stream: TcpStream) -> std::io::Result<()> {
        loop {
            let length = timeout(SILENCE, stream.read_u16()).await??;
            if usize::from(length) > MAX_QUESTION {
                return Ok(());
            }
            let mut question = vec![0; length.into()];
            timeout(SILENCE, stream.read_exact(&mut question)).await??;
            let Some(answer) = self.answer(&question) else { return Ok(()) };
            let length = u16::try_from(answer.len()).unwrap_or_default();
            let mut whole = length.to_be_bytes().to_vec();
            whole.extend_from_slice(&answer);
            timeout(SILENCE, stream.write_all(&whole)).await??;
        }
    }

    /// The answer to a question; none to what is not even the head of one.
    fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let [i0, i1, flags, ..] = *bytes else { return None };
        let id = u16::from_be_bytes([i0, i1]);
        // An answer is not answered: two could talk to each other for ever.
        if bytes.len() < 12 || flags & 0x80 != 0 {
            return None;
        }
        let plain = |code| Message::error_msg(id, OpCode::Query, code).to_vec().ok();
        if !self.keeps_pace() {
            return plain(ResponseCode::Refused);
        }
        let Ok(question) = Message::from_vec(bytes) else { return plain(ResponseCode::FormErr) };
        let mut answer = Message::response(id, question.metadata.op_code);
        answer.metadata.recursion_desired = question.metadata.recursion_desired;
        answer.metadata.recursion_available = true;
        answer.metadata.message_type = MessageType::Response;
        if let Some(asked) = &question.edns {
            let mut edns = Edns::new();
            edns.set_max_payload(1232).set_dnssec_ok(asked.flags().dnssec_ok);
            answer.edns = Some(edns);
        }
        answer.metadata.response_code = match question.queries.as_slice() {
            _ if question.metadata.op_code != OpCode::Query => ResponseCode::NotImp,
            [query] => {
                answer.queries.push(query.clone());
                self.resolve(query, &mut answer)
            }
            _ => ResponseCode::FormErr,
        };
        answer.to_vec().ok().or_else(|| plain(ResponseCode::FormErr))
    }

    fn keeps_pace(&self) -> bool {
        let mut pace = lock(&self.pace);
        let now = Instant::now();
        let more = now.duration_since(pace.since).as_secs_f64() * QUESTIONS_A_SECOND;
        let left = (pace.left + more).min(MAX_QUESTIONS);
        let keeps = left >= 1.0;
        *pace = Pace { since: now, left: if keeps { left - 1.0 } else { left } };
        keeps
    }

    fn resolve(&self, query: &Query, answer: &mut Message) -> ResponseCode {
        if query.query_class() != DNSClass::IN {
            return ResponseCode::Refused;
        }
        if let Ok(network) = query.name().parse_arpa_name() {
            return self.reverse(query, network.addr(), answer);
        }
        let known = if query.name().is_localhost() {
            Known::At(Addresses { v4: Ipv4Addr::LOCALHOST, v6: Ipv6Addr::LOCALHOST })
        } else {
            match text(query.name()).and_then(|text| text.parse::<HostName>().ok()) {
                Some(name) => self.know(name.as_str()),
                None => Known::No,
            }
        };
        match known {
            Known::At(addresses) => {
                let data = match query.query_type() {
                    RecordType::A => Some(RData::A(A(addresses.v4))),
                    RecordType::AAAA => Some(RData::AAAA(AAAA(addresses.v6))),
                    _ => None,
                };
                let record = data.map(|data| Record::from_rdata(query.name().clone(), TTL, data));
                answer.answers.extend(record);
                ResponseCode::NoError
            }
            Known::No => ResponseCode::NXDomain,
            Known::NoRoom => ResponseCode::ServFail,
        }
    }

    fn reverse(&self, query: &Query, address: IpAddr, answer: &mut Message) -> ResponseCode {
        let name = match address {
            address if address.is_loopback() => Some("localhost".into()),
            address if is_synthetic(address) => self.house.names.name(address),
            _ => None,
        };
        let Some(name) = name.and_then(|name| Name::from_ascii(format!("{name}.")).ok()) else {
            return ResponseCode::NXDomain;
        };
        if query.query_type() == RecordType::PTR {
            let data = RData::PTR(PTR(name));
            answer.answers.push(Record::from_rdata(query.name().clone(), TTL, data));
        }
        ResponseCode::NoError
    }

    /// Whether a name exists for the session, and where.
    fn know(&self, name: &str) -> Known {
        let Ok(place) = name.parse::<Place>() else { return Known::No };
        let rules = self.house.office.rules();
        if !rules.knows(&place) {
            let verdict = rules.connection(&place, 443);
            let code = match verdict.outcome {
                Outcome::Deny => "denied-by-rule",
                _ => "no-rule",
            };
            let rule = verdict.rule.map(|rule| rule.name.clone());
            self.refuse(name, code, rule, rules.generation());
            return Known::No;
        }
        if let Ok(addresses) = self.house.names.addresses(name) {
            return Known::At(addresses);
        }
        self.refuse(name, "names-exhausted", None, rules.generation());
        Known::NoRoom
    }

    /// Records that a name was refused, unless it was recorded a moment ago.
    fn refuse(&self, name: &str, code: &'static str, rule: Option<String>, generation: u64) {
        let mut refused = lock(&self.refused);
        let missed = refused.missed(Instant::now());
        let fresh = refused.is_worth_a_record(name, Instant::now());
        drop(refused);
        let target = Target { host: name.into(), via: Via::Dns, ..Target::default() };
        if missed > 0 {
            let sentence = format!("{missed} more questions for names were refused");
            let target = Target { via: Via::Dns, ..Target::default() };
            let what = What::Noticed { target, code: "many-names".into(), sentence };
            self.house.office.record(0, 0, what);
        }
        if fresh {
            let source = Source::Policy;
            let decision =
                Decision { allowed: false, code: code.into(), rule, generation, source, held: 0 };
            let what = What::Decided { target, decision, credentials: Vec::new() };
            self.house.office.record(0, 0, what);
        }
    }
}

/// A name as text, if it can be told apart from others: no part of it has a dot in it.
fn text(name: &Name) -> Option<String> {
    let mut text = String::new();
    for label in name {
        if label.contains(&b'.') {
            return None;
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.push_str(std::str::from_utf8(label).ok()?);
    }
    Some(text)
}
