//! What the daemon holds in memory: nothing of what commands write, whoever does not read it.

use crate::for_everyone;
use crate::line::Line;
use crate::look::until;
use crate::room::Room;
use crate::site::Site;
use cowork_client::http::Request;
use cowork_client::stream::ChannelId;
use cowork_testbed::Person;
use serde_json::json;
use std::time::Duration;

for_everyone!(output_is_never_in_memory);

/// How much the first command writes.
const WRITTEN: u64 = 1 << 30;
/// How much each of the others writes: more than is kept.
const MORE: u64 = 400 << 20;
/// Most that the daemon may grow by meanwhile.
const GROWTH: u64 = 48 << 20;

/// The most memory that the daemon has had.
fn most(site: &Site) -> u64 {
    let pid = site.info().expect("it answers").pid;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("the kernel tells");
    number.parse::<u64>().expect("it is a number") << 10
}

/// How much of a command's output has come, once no more comes.
fn settled(room: Room<'_>, number: u32) -> u64 {
    let total = || {
        let command = room.command(number);
        command.output + command.dropped
    };
    let mut before = total();
    until("it waits for its reader", || {
        std::thread::sleep(Duration::from_millis(500));
        let now = total();
        std::mem::replace(&mut before, now) == now && now > 0
    });
    before
}

fn output_is_never_in_memory(person: Person) {
    let site = Site::with(person, &["--pool", "0"]);
    let room = site.plain_room();
    let writing = |bytes: u64| json!({ "shell": format!("head -c {bytes} /dev/zero") });
    // As much as it ever needs for a reader of each kind.
    let mut line = Line::start(room, &json!({ "shell": "head -c 1000000 /dev/zero" }));
    assert_eq!(line.hear_all().out.len(), 1_000_000);
    drop(room.output(1, &[]));
    let before = most(&site);
    // Somebody is attached and does not read, and somebody else follows another command and does not
    // read: both commands wait.
    let mut stalled = Line::start(room, &writing(WRITTEN));
    let number = room.start(&writing(MORE));
    let target = room.at(&format!("/commands/{number}/output?follow=true"));
    let follower = site.client().open(&Request::get(target), None).expect("it can be read");
    for (number, all) in [(2, WRITTEN), (number, MORE)] {
        let written = settled(room, number);
        assert!(written < all, "it waits for its reader: {written}");
    }
    // With nobody there the oldest goes.
    let number = room.start(&writing(MORE));
    assert_eq!(room.ended(number).code, Some(0));
    let command = room.command(number);
    assert_eq!(command.output + command.dropped, MORE);
    assert!(command.dropped > 0, "{command:?}");
    let grown = most(&site).saturating_sub(before);
    assert!(grown < GROWTH, "{} MiB with stalled readers", grown >> 20);
    // Whoever was attached gets every byte.
    let mut heard = 0;
    while let Some((channel, bytes)) = stalled.frame().expect("it goes on") {
        if channel == ChannelId::Stdout {
            heard += bytes.len() as u64;
        }
    }
    assert_eq!(heard, WRITTEN);
    // A follower that leaves holds nothing up.
    drop(follower);
    assert_eq!(room.ended(3).code, Some(0));
    let grown = most(&site).saturating_sub(before);
    assert!(grown < GROWTH, "{} MiB in all", grown >> 20);
    site.verify();
}
