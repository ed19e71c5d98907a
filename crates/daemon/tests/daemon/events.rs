//! Events: each once and in order, however often the connection breaks, and the same by polling.

use crate::for_everyone;
use crate::look::{Chance, until};
use crate::site::Site;
use cowork_client::http::{Method, Request};
use cowork_client::types::Event;
use cowork_testbed::{Folder, Person};
use serde_json::{Value, json};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

for_everyone!(
    no_event_is_lost_or_doubled_when_connections_break,
    streams_can_be_narrowed_and_equal_polling,
    a_client_that_resumes_by_itself_misses_nothing,
    events_are_cloud_events_where_that_is_wanted,
    what_is_no_longer_kept_is_a_gap_in_lists_and_streams,
);

/// Whole events in a text; a part of one at the end is left out.
fn whole(text: &[u8]) -> Vec<(u64, Event)> {
    let text = String::from_utf8_lossy(text);
    let end = text.rfind("\n\n").map_or(0, |end| end + 2);
    let mut found = Vec::new();
    let (text, _) = text.split_at(end);
    for block in text.split("\n\n").filter(|block| block.contains("data:")) {
        let field = |name: &str| {
            block.lines().find_map(|line| line.strip_prefix(name)).expect("every field is there")
        };
        let event: Event = serde_json::from_str(field("data: ")).expect("it is an event");
        assert_eq!(field("event: "), event.kind);
        found.push((field("id: ").parse().expect("it is a number"), event));
    }
    found
}

/// Reads from one connection until so many bytes have come, the connection ends, or `last` was seen.
fn read_some(site: &Site, target: &str, after: u64, most: usize, last: Option<u64>) -> Vec<Event> {
    let request = Request::get(target)
        .with("Accept", "text/event-stream")
        .with("Last-Event-ID", &after.to_string());
    let Ok(client) = cowork_client::http::Client::connect(&site.socket()) else {
        return Vec::new();
    };
    let Ok(mut answer) = client.open(&request, None) else { return Vec::new() };
    let mut text = Vec::new();
    let mut piece = [0; 1000];
    while text.len() < most {
        let room = piece.len().min(most - text.len());
        match answer.read(&mut piece[..room]) {
            Ok(0) | Err(_) => break,
            Ok(read) => text.extend(&piece[..read]),
        }
        if last.is_some_and(|last| whole(&text).last().is_some_and(|(id, _)| *id >= last)) {
            break;
        }
    }
    let found = whole(&text);
    assert!(found.iter().all(|(id, event)| *id == event.id));
    found.into_iter().map(|(_, event)| event).collect()
}

fn no_event_is_lost_or_doubled_when_connections_break(person: Person) {
    let site = Site::new(person);
    let folder = Folder::new(person, "folder");
    let mut chance = Chance::new();
    let (over, heard) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut seen: Vec<Event> = Vec::new();
    let mut breaks = 0;
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut kills = Chance::new();
            for round in 0..12 {
                let room = site.plain_room();
                let number = room.sh("echo x");
                drop(room.ended(number));
                room.grant(folder.path(), "ro");
                room.revoke(&crate::room::name_of(folder.path()));
                room.remove();
                if round % 4 == 3 {
                    kills.sleep(20_000);
                    site.kill();
                    site.start();
                }
            }
            over.store(true, Ordering::Relaxed);
            // Whoever still reads waits for something to happen.
            let room = site.plain_room();
            while !heard.load(Ordering::Relaxed) {
                drop(room.run("true"));
            }
        });
        while !over.load(Ordering::Relaxed) {
            assert!(!busy.is_finished() || over.load(Ordering::Relaxed), "it broke off");
            let after = seen.last().map_or(0, |event| event.id);
            let most = usize::try_from(chance.below(6000)).expect("it is small");
            seen.extend(read_some(&site, "/v1/events", after, most, Some(after + 20)));
            breaks += 1;
        }
        heard.store(true, Ordering::Relaxed);
    });
    let polled = site.events(&[]);
    let last = polled.last().expect("something happened").id;
    while seen.last().is_none_or(|event| event.id < last) {
        let after = seen.last().map_or(0, |event| event.id);
        seen.extend(read_some(&site, "/v1/events", after, 5000, Some(last)));
    }
    seen.retain(|event| event.id <= last);
    println!("{} events, {breaks} broken connections", seen.len());
    assert!(breaks >= 5, "it was broken off {breaks} times only");
    let ids: Vec<u64> = seen.iter().map(|event| event.id).collect();
    assert_eq!(ids, (1..=last).collect::<Vec<u64>>());
    assert_eq!(seen, polled);
    // What is recorded is told: the audit's records are all among the events, in order.
    let told: Vec<&str> = seen.iter().map(|event| event.kind.as_str()).collect();
    let mut rest = told.iter();
    for record in site.records(&[]).iter().filter(|record| record.seq <= 50) {
        assert!(rest.any(|kind| **kind == record.kind), "{record:?} was not told");
    }
    site.verify();
}

/// Whether an event is wanted.
type Fits<'f> = &'f dyn Fn(&Event) -> bool;

fn streams_can_be_narrowed_and_equal_polling(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let (one, two) = (site.plain_room(), site.plain_room());
    for room in [one, two, one] {
        drop(room.run("echo x"));
    }
    let all = site.events(&[]);
    let last = all.last().expect("something happened").id;
    let filters: [(&str, Fits<'_>); 3] = [
        (&format!("session={}", one.id()), &|event| event.session.as_deref() == Some(one.id())),
        ("type=command.ended", &|event| event.kind == "command.ended"),
        (&format!("session={}&type=command.ended", two.id()), &|event| {
            event.kind == "command.ended" && event.session.as_deref() == Some(two.id())
        }),
    ];
    for (filter, fits) in filters {
        let expected: Vec<Event> = all.iter().filter(|event| fits(event)).cloned().collect();
        assert!(!expected.is_empty(), "{filter}");
        let pairs: Vec<(&str, &str)> =
            filter.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let polled: Vec<Event> =
            site.events(&pairs).into_iter().filter(|event| event.id <= last).collect();
        assert_eq!(polled, expected, "{filter}");
        let until = expected.last().map(|event| event.id);
        let streamed = read_some(&site, &format!("/v1/events?{filter}"), 0, 1_000_000, until);
        assert_eq!(streamed, expected, "{filter}");
    }
    // Only what comes from now on.
    let page = site.get("/v1/events?after=end");
    assert_eq!(page["items"], json!([]));
    let after = page["next"].as_str().expect("there is a place to go on from").to_owned();
    drop(one.run("echo y"));
    let page = site.get(format!("/v1/events?after={after}&type=command.started"));
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1));
    for bad in ["after=x", "after=-1", "limit=0", "limit=x", "sesion=a"] {
        assert_eq!(
            site.refused(Method::Get, format!("/v1/events?{bad}"), None).status,
            400,
            "{bad}"
        );
    }
    // A place in the future waits there.
    assert_eq!(site.get("/v1/events?after=999999")["items"], json!([]));
}

fn a_client_that_resumes_by_itself_misses_nothing(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let room = site.plain_room();
    let events = site.client().events("/v1/events", Some(0));
    let reader = std::thread::spawn(move || {
        let mut seen = Vec::new();
        for event in events {
            let event = event.expect("it goes on");
            let last = event.kind == "session.removed";
            seen.push(event);
            if last {
                break;
            }
        }
        seen
    });
    for _ in 0..2 {
        drop(room.run("echo x"));
        site.kill();
        drop(std::thread::available_parallelism());
        site.start();
    }
    drop(room.run("echo y"));
    room.remove();
    until("the last event has come", || reader.is_finished());
    let seen = reader.join().expect("it ended well");
    let last = seen.last().expect("it saw some").id;
    let polled: Vec<Event> =
        site.events(&[]).into_iter().filter(|event| event.id <= last).collect();
    assert_eq!(seen, polled);
}

/// The event that a cloud event stands for.
fn plain(event: &Value) -> Event {
    assert_eq!(event["specversion"], "1.0");
    assert_eq!(event["datacontenttype"], "application/json");
    assert_eq!(event["id"], event["seq"].to_string());
    let source = event["source"].as_str().expect("there is a source");
    let session = source.strip_prefix("/sessions/").map(ToOwned::to_owned);
    assert!(session.is_some() || source == "/daemon", "{event}");
    serde_json::from_value(json!({
        "id": event["seq"], "time": event["time"], "type": event["type"],
        "session": session, "data": event["data"],
    }))
    .expect("it is one of ours")
}

fn events_are_cloud_events_where_that_is_wanted(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let folder = Folder::new(person, "folder");
    let room = site.plain_room();
    drop(room.run("echo x"));
    room.grant(folder.path(), "ro");
    let page = site.get("/v1/events?format=cloudevents&limit=1000");
    let items = page["items"].as_array().expect("it is a list").clone();
    let next = page["next"].as_str().expect("there is a place to go on from").to_owned();
    let last: u64 = next.parse().expect("it is a number");
    let mut known = site.events(&[]);
    known.retain(|event| event.id <= last);
    assert_eq!(items.iter().map(plain).collect::<Vec<_>>(), known);
    let of = |kind: &str| items.iter().find(|event| event["type"] == kind).expect("it happened");
    let name = crate::room::name_of(folder.path());
    assert_eq!(of("command.ended")["subject"], "commands/1");
    assert_eq!(of("grant.added")["subject"], format!("grants/{name}"));
    assert_eq!(of("daemon.started")["source"], "/daemon");
    assert_eq!(of("daemon.started").get("subject"), None);
    // The same as a stream, which is resumed in the same way.
    let request = Request::get("/v1/events?format=cloudevents")
        .with("Accept", "text/event-stream")
        .with("Last-Event-ID", "2");
    let mut answer = site.client().open(&request, None).expect("it streams");
    let (mut text, mut piece) = (String::new(), [0; 1000]);
    while !text.contains(&format!("id: {last}\n")) || !text.ends_with("\n\n") {
        let read = answer.read(&mut piece).expect("it goes on");
        text += &String::from_utf8_lossy(&piece[..read]);
    }
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let streamed: Vec<Value> =
        lines.map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let most = items.len() - 2;
    assert_eq!(streamed[..most], items[2..]);
    let refused = site.refused(Method::Get, "/v1/events?format=xml", None);
    assert_eq!(refused.status, 400);
}

fn what_is_no_longer_kept_is_a_gap_in_lists_and_streams(person: Person) {
    const KEPT: u64 = 20;
    let site = Site::with_file(person, "COWORK_EVENTS", KEPT.to_string().into());
    let room = site.plain_room();
    // A client that has seen the first two.
    let mut seen = site.client().events("/v1/events", Some(2));
    let third = seen.next().expect("it goes on").expect("it is an event");
    assert_eq!((third.id, third.kind == "gap"), (3, false), "{third:?}");
    let page = site.get("/v1/events?after=2&limit=5");
    assert_eq!(page.get("gap"), None, "nothing is missing: {page}");
    for _ in 0..20 {
        assert_eq!(room.run("true").code, 0);
    }
    let page = site.get("/v1/events?after=2&limit=5");
    let first = page["items"][0]["id"].as_u64().expect("there are some");
    assert!(first > 3, "old ones are forgotten: {page}");
    assert_eq!(page["gap"], json!({ "from": 3, "to": first - 1 }), "{page}");
    // Also where only some are wanted, and in both formats.
    let other = site.get("/v1/events?after=2&type=nothing&format=cloudevents");
    assert_eq!(other["gap"]["from"], json!(3), "{other}");
    // Whoever has seen nothing yet takes what there is, and whoever is there misses nothing.
    for after in [0, first - 1, first] {
        let page = site.get(format!("/v1/events?after={after}"));
        assert_eq!(page.get("gap"), None, "{after}: {page}");
    }
    let all = site.events(&[]);
    let numbers: Vec<u64> = all.iter().map(|event| event.id).collect();
    let last = *numbers.last().expect("there are some");
    assert!(numbers.iter().copied().eq(numbers[0]..=last), "{numbers:?}");
    assert!(numbers.len() as u64 <= 2 * KEPT, "{numbers:?}");
    // A stream that begins there says the same, and goes on with the first that is kept.
    let mut stream = site.client().events("/v1/events", Some(2));
    let gap = stream.next().expect("it goes on").expect("it is an event");
    assert_eq!((gap.kind.as_str(), &gap.data["from"]), ("gap", &json!(3)), "{gap:?}");
    let next = stream.next().expect("it goes on").expect("it is an event");
    assert_eq!((gap.id + 1, &gap.data["to"]), (next.id, &json!(gap.id)), "{gap:?} {next:?}");
    // Another daemon keeps to the same.
    site.kill();
    site.start();
    let page = site.get("/v1/events?after=2&limit=5");
    assert_eq!(page["gap"]["from"], json!(3), "{page}");
    site.verify();
}
