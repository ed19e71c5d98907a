//! After the end: nothing is left, and the record is whole.

use crate::look::{groups_of, names, processes, until};
use crate::site::lock;
use crate::world::World;
use cowork_audit::{Filter, Record};
use cowork_session::catalogue::Catalogue;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What stays in the runtime folder.
const STAYS: [&str; 4] = ["coworkd.lock", "coworkd.log", "keeper.log", "said"];

/// What stays in the state folder. What belongs to a folder or a file of these is looked at by itself.
const KEPT: [&str; 6] = ["audit", "changes", "sessions", "state.db", "state.db.lock", "trash"];
/// What else may: locks, and what is written down for all sessions.
const MAY_STAY: [&str; 1] = ["coworkd.lock"];

/// Lets the daemon leave, and looks for what it left.
pub(crate) fn check(world: &World) {
    let keeper = world.site.keeper();
    world.site.leave();
    let state = world.site.state().to_path_buf();
    let name = state.file_name().expect("it has one").to_string_lossy().into_owned();
    for mark in [world.prefix(), format!("/{name}")] {
        let left = marked(&mark);
        if !left.is_empty() {
            world.complain(format!("processes are left that carry `{mark}`: {left:?}"));
        }
    }
    if let Some(keeper) = keeper {
        // It answers before it leaves.
        until("the keeper is gone", || !keeper.exists());
        let groups = groups_of(&keeper);
        if !groups.is_empty() {
            world.complain(format!("control groups are left: {groups:?}"));
        }
    }
    let kept = names(&state.join("sessions"));
    if !kept.is_empty() {
        world.complain(format!("folders of sessions are left: {kept:?}"));
    }
    let strange: Vec<String> = names(world.site.runtime())
        .into_iter()
        .filter(|name| !STAYS.contains(&name.as_str()))
        .collect();
    if !strange.is_empty() {
        world.complain(format!("files of the daemon are left: {strange:?}"));
    }
    check_state(world, &state);
    check_record(world, &state.join("audit"));
    world.judge();
}

/// Looks for what is in the state folder and belongs to nothing: what was thrown away, stores of
/// changes that nobody knows of, or that were about to be removed, and anything else.
fn check_state(world: &World, state: &Path) {
    let thrown = names(&state.join("trash"));
    if !thrown.is_empty() {
        world.complain(format!("what was thrown away is still there: {thrown:?}"));
    }
    let known = |name: &String| KEPT.contains(&name.as_str()) || MAY_STAY.contains(&name.as_str());
    let strange: Vec<String> = names(state).into_iter().filter(|name| !known(name)).collect();
    if !strange.is_empty() {
        world.complain(format!("there is more in the state folder: {strange:?}"));
    }
    let catalogue = state.join("state.db");
    let made = lock(&world.made);
    for name in names(&state.join("changes")) {
        let entry = Catalogue::peek(&catalogue, &format!("changes/{name}"));
        let entry = entry.expect("the catalogue can be read");
        let entry = entry.map(|text| serde_json::from_str::<Value>(&text).expect("it is JSON"));
        let whole = entry.as_ref().is_some_and(|entry| {
            let session = entry["session"].as_str().unwrap_or_default();
            entry["removing"] == false && (world.faulty || made.iter().any(|id| id == session))
        });
        if !whole {
            world.complain(format!("the store of changes {name} belongs to nobody: {entry:?}"));
        }
    }
}

/// Whether a process has ended and its parent, which is not ours, has not buried it yet.
fn is_dead(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Processes other than this one that carry a mark: in their environment, their arguments, their
/// control groups, or what is mounted for them.
fn marked(mark: &str) -> Vec<String> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let mut found = Vec::new();
    for pid in processes().into_iter().filter(|pid| *pid != own && !is_dead(*pid)) {
        for what in ["environ", "cmdline", "cgroup", "mountinfo"] {
            let bytes = std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
            if String::from_utf8_lossy(&bytes).contains(mark) {
                found.push(format!("{pid} ({what})"));
            }
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    found.extend(mounts.lines().filter(|line| line.contains(mark)).map(str::to_owned));
    found
}

/// Checks that the audit is whole, and says what happened.
fn check_record(world: &World, folder: &Path) {
    let verified = cowork_audit::verify(folder, None).expect("it can be read");
    if !verified.problems.is_empty() {
        world.complain(format!("the audit is broken: {:?}", verified.problems));
    }
    let records = cowork_audit::read(folder, &Filter::default()).expect("it can be read");
    let of = |kind: &str| -> Vec<String> {
        let records = records.iter().filter(|record| record.kind == kind);
        records.filter_map(|record| record.session.clone()).collect()
    };
    let created = of("session.created");
    let ids: BTreeSet<&String> = created.iter().collect();
    let removed = of("session.removed");
    let made = lock(&world.made);
    println!("{} records, {} sessions", records.len(), created.len());
    if ids.len() != created.len() || (!world.faulty && created.len() != made.len()) {
        world.complain(format!("{} records of {} sessions", created.len(), made.len()));
    }
    for id in made.iter().filter(|id| !ids.contains(id) || !removed.contains(id)) {
        world.complain(format!("the record of {id} is not complete"));
    }
    let failed = of("session.failed");
    for id in ids.iter().filter(|id| !removed.contains(id) && !failed.contains(id)) {
        world.complain(format!("the record does not say what became of {id}"));
    }
    for (command, balance) in commands(&records) {
        if balance != (1, 1) {
            world.complain(format!("command {command:?} was started and ended {balance:?} times"));
        }
    }
}

/// How often each command was started and ended.
fn commands(records: &[Record]) -> BTreeMap<(String, String), (u32, u32)> {
    let mut all: BTreeMap<(String, String), (u32, u32)> = BTreeMap::new();
    for record in records {
        let command = record.data["command"].to_string();
        let key = (record.session.clone().unwrap_or_default(), command);
        match record.kind.as_str() {
            "command.started" => all.entry(key).or_default().0 += 1,
            "command.ended" => all.entry(key).or_default().1 += 1,
            _ => {}
        }
    }
    all
}
