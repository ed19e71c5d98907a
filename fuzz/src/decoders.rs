//! Messages: a packet is one message or none, and what was understood can be said again.

use crate::Reached;
use cowork_api::files::{
    Ask, BrokeredFolder, FromBroker, NamePolicy, NameRule, Refusal as Refused, Rules, ToBroker,
};
use cowork_api::guest::{
    Began, Begin, Ending, Execute, FromInit, Probe, Refusal, Stdio, ToInit, Usage, Whom,
};
use cowork_api::keeper::{
    Call, Certainty, EndReason, Enforced, Fact, Failure, FailureCode, Grade, LayerState, LimitKind,
    LimitState, Message, Reply, Request, Revoked, Status, Strength,
};
use cowork_api::plan::{Access, Grant, Identity, Layer, Right, SessionPlan, Wall};
use cowork_api::seed::{Beside, FromSeed, Furnishing, Groups, Ids, ToSeed};
use cowork_api::starter::{FromStarter, ToStarter};
use cowork_api::{decode, encode};
use cowork_policy::plan::{
    GrantRequest, Home, HostSystem, SessionRequest, Strictness, TopEntry, compile,
};
use cowork_policy::seccomp::{Debugging, Profile};
use cowork_policy::{Bytes, GrantName, HostPath, HostSize, Limits, SessionId};
use std::fmt::Debug;

/// Messages between init and its two peers.
pub fn guest(input: &[u8]) -> Reached {
    let commands = one::<ToInit>(input).and(one::<FromInit>(input));
    commands.and(one::<Begin>(input)).and(one::<Began>(input))
}

/// Messages between a client and its keeper.
pub fn keeper(input: &[u8]) -> Reached {
    one::<Call>(input).and(one::<Message>(input))
}

/// Messages between a keeper and the broker of a session.
pub fn broker(input: &[u8]) -> Reached {
    one::<ToBroker>(input).and(one::<FromBroker>(input))
}

/// Messages between a keeper and the processes that it makes others by.
pub fn seed(input: &[u8]) -> Reached {
    let seed = one::<ToSeed>(input).and(one::<FromSeed>(input));
    let starter = one::<ToStarter>(input).and(one::<FromStarter>(input));
    seed.and(one::<Furnishing>(input)).and(starter)
}

fn one<T>(packet: &[u8]) -> Reached
where
    T: Debug + PartialEq + serde::Serialize + serde::de::DeserializeOwned,
{
    let message = decode::<T>(packet);
    if let Ok(message) = &message {
        let again = encode(message);
        assert!(again.len() <= packet.len(), "{message:?} grows when it is said again");
        assert_eq!(decode::<T>(&again).as_ref(), Ok(message));
    }
    Reached::by(&message)
}

pub(crate) fn guest_seeds() -> Vec<Vec<u8>> {
    let execute = Execute {
        command: 3,
        arguments: vec![b"python3".to_vec(), b"-c".to_vec()],
        environment: vec![b"PATH=/usr/bin".to_vec()],
        folder: b"/sessions/zealous-gauss".to_vec(),
        stdio: [Stdio::Null, Stdio::Passed(0), Stdio::Passed(1)],
        terminal: true,
        umask: cowork_api::guest::Umask(0o022),
    };
    let begin = Begin {
        walls: vec![Wall { beneath: b"/usr".to_vec(), right: Right::Read }],
        guard: vec![6, 0, 0, 0, 0, 0, 255, 127],
        door: vec![6, 0, 0, 0, 0, 0, 255, 127],
        processes: Some(4096),
        open_files: 1024,
        data_bytes: Some(1 << 32),
        canary: b"/.sealed".to_vec(),
    };
    let ready = Began::Locked {
        landlock_abi: 7,
        canary: Probe::Refused,
        forbidden_call: Probe::Untested,
        killable: true,
        scopes: Probe::Passed,
    };
    let ended = FromInit::Ended {
        command: 3,
        ending: Ending::Signal(9),
        usage: Usage { user_us: 1, system_us: 2, peak_kib: 3, read: 4, written: 5 },
    };
    let refused = FromInit::Refused {
        command: 3,
        why: Refusal::Failed { step: "start".to_owned(), errno: 13 },
    };
    vec![
        encode(&ToInit::Ping { nonce: u64::MAX }),
        encode(&ToInit::Execute(execute)),
        encode(&ToInit::Signal { command: 3, signal: 15, whom: Whom::Foreground }),
        encode(&ToInit::OpenTerminal { nonce: 1 }),
        encode(&ToInit::Count { nonce: 1, folder: b"mnt".to_vec() }),
        encode(&begin),
        encode(&ready),
        encode(&Began::Failed { step: "mount".to_owned(), errno: 1 }),
        encode(&FromInit::Started { command: 3, pid: 7 }),
        encode(&refused),
        encode(&ended),
        encode(&FromInit::Terminal { nonce: 1, errno: -1 }),
        encode(&FromInit::Counted { nonce: 1, entries: Some(2) }),
    ]
}

pub(crate) fn keeper_seeds() -> Vec<Vec<u8>> {
    let session = || "zealous-gauss".to_owned();
    let requests = [
        Request::Create(Box::new(plan())),
        Request::Attach { session: session() },
        Request::Grant { session: session(), grant: grant() },
        Request::Revoke { session: session(), name: "site".to_owned() },
        Request::Freeze { session: session() },
        Request::Destroy { session: session() },
        Request::Survey,
    ];
    let status = Status {
        session: session(),
        init: 12,
        enforcement: vec![Enforced {
            layer: Layer::PidNamespace,
            state: LayerState::InForce,
            observed: "its own".to_owned(),
        }],
        limits: vec![LimitState {
            limit: LimitKind::Memory,
            strength: Strength::Enforced,
            value: "4G".to_owned(),
            means: "cgroup".to_owned(),
        }],
        grants: vec!["site".to_owned()],
        submounts: vec![b"/data/inner".to_vec()],
        frozen: false,
    };
    let fact = Fact {
        name: "landlock".to_owned(),
        value: "7".to_owned(),
        grade: Grade::Reduced,
        consequence: String::new(),
        fix: String::new(),
    };
    let failure = Failure {
        code: FailureCode::FolderChanged,
        sentence: "gone".to_owned(),
        errno: 2,
        hint: String::new(),
    };
    let revoked = Revoked { killed: vec![(7, "vim".to_owned())], certainty: Certainty::Scan };
    let results = [
        Ok(Reply::Done),
        Ok(Reply::Session(status)),
        Ok(Reply::Granted { submounts: vec![b"/mnt".to_vec()] }),
        Ok(Reply::Revoked(revoked)),
        Ok(Reply::Surveyed(vec![fact])),
        Err(failure),
    ];
    let calls = requests.map(|request| encode(&Call { number: 7, request }));
    let answers = results.map(|result| encode(&Message::Answer { number: 7, result }));
    let mut seeds = [&calls[..], &answers[..]].concat();
    let reason = EndReason::TimeOver;
    seeds.push(encode(&Message::SessionEnded { session: session(), reason }));
    seeds.push(encode(&Message::BrokerRestarted { session: session() }));
    seeds
}

pub(crate) fn broker_seeds() -> Vec<Vec<u8>> {
    let text = || "made up".to_owned();
    let rule = NameRule { pattern: "*.key".to_owned(), policy: NamePolicy::Deny, reason: text() };
    let rules =
        || Rules { names: vec![rule.clone()], blocked: vec!["exe".to_owned()], ..Rules::default() };
    let folder = BrokeredFolder {
        name: "site".to_owned(),
        path: b"/home/ada/site".to_vec(),
        at: b"/sessions/zealous-gauss/mnt/site".to_vec(),
        folder: Identity { device: 1, inode: 2 },
        below: b"ada/site".to_vec(),
        trash: true,
        submounts: vec![b"inner".to_vec()],
        owner: Some((1000, 1000)),
        rules: rules(),
    };
    let ask = Ask {
        ask: 1,
        grant: "site".to_owned(),
        path: b"a.key".to_vec(),
        operation: "write".to_owned(),
        reason: text(),
        process: "vim".to_owned(),
    };
    let refusal = Refused {
        grant: "site".to_owned(),
        path: b"a.key".to_vec(),
        operation: "write".to_owned(),
        reason: text(),
        process: "vim".to_owned(),
    };
    let told = [
        ToBroker::Folder(Box::new(folder)),
        ToBroker::Remove { name: "site".to_owned() },
        ToBroker::Rules { name: "site".to_owned(), rules: rules() },
        ToBroker::Answer { ask: 1, allowed: true },
        ToBroker::Boundary,
        ToBroker::Settle { number: 1 },
    ];
    let said = [
        FromBroker::Ask(ask),
        FromBroker::Withdrawn { ask: 1 },
        FromBroker::Refused(refusal),
        FromBroker::Settled { number: 1 },
        FromBroker::RefusedMore { count: 1 },
    ];
    [told.map(|message| encode(&message)).to_vec(), said.map(|message| encode(&message)).to_vec()]
        .concat()
}

pub(crate) fn seed_seeds() -> Vec<Vec<u8>> {
    let ids = Ids { inside: (1000, 1000), outside: (0, 0), groups: Groups::Dropped };
    let sow = ToSeed::Sow {
        ids,
        birthplace: Beside::There,
        network: Beside::Absent,
        cradle: Beside::There,
    };
    let SessionPlan { id, own, profile, .. } = plan();
    let furnishing = Furnishing { id, own, scratch: 1 << 20, profile, outlook: None };
    vec![
        encode(&sow),
        encode(&ToSeed::Move),
        encode(&FromSeed::Born { pid: 7 }),
        encode(&FromSeed::Failed { errno: 1 }),
        encode(&furnishing),
        encode(&ToStarter::Start),
        encode(&ToStarter::End { pid: 7 }),
        encode(&FromStarter::Started { pid: 7 }),
        encode(&FromStarter::Failed { errno: 1 }),
    ]
}

fn grant() -> Grant {
    Grant {
        name: "site".to_owned(),
        path: b"/home/ada/site".to_vec(),
        folder: Identity { device: 1, inode: 2 },
        access: Access::Write,
        writing: Some(cowork_api::plan::Writing::default()),
    }
}

/// A plan with every kind of step that policy makes.
fn plan() -> SessionPlan {
    let folder = |path| HostPath::new(path).expect("it is a path");
    let size = HostSize {
        cpus: 2,
        memory: Bytes::new(1 << 33),
        max_processes: 30_000,
        max_open_files: 65_536,
    };
    let path = folder("/home/ada/site");
    let request = SessionRequest {
        id: SessionId::from_entropy(0),
        profile: Profile::Strict,
        debugging: Debugging::Allowed,
        grants: vec![GrantRequest {
            name: GrantName::from_path(&path).expect("it has a name"),
            path,
            folder: Identity { device: 1, inode: 2 },
            access: cowork_policy::Access::Write,
            writing: cowork_api::plan::Writing::default(),
        }],
        limits: Limits::scaled_to(&size),
        strictness: Strictness::Enforce,
        home: Home::Folder(folder("/home/ada/home")),
    };
    let top = vec![("usr", TopEntry::Folder), ("bin", TopEntry::Link(b"usr/bin".to_vec()))];
    compile(&request, &HostSystem { top, etc: vec!["ssl/certs".to_owned()] })
}
