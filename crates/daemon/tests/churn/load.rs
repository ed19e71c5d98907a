//! Clients who do everything at random.

use crate::client::{Answer, Caller};
use crate::look::PATIENCE;
use crate::remains;
use crate::settle;
use crate::site::lock;
use crate::typist::Typist;
use crate::work::Work;
use crate::world::{Dice, Held, Known, World};
use cowork_client::http::Method;
use cowork_client::types::{Command, CommandState};
use cowork_testbed::Person;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// How many clients there are on the socket.
const CLIENTS: u64 = 3;
/// The one who has the program for it.
const TYPIST: u64 = 90;

/// A command whose start was acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(crate) known: Arc<Known>,
    pub(crate) number: u32,
    pub(crate) work: Work,
}

impl Started {
    pub(crate) fn at(&self) -> String {
        self.known.at(&format!("/commands/{}", self.number))
    }
}

/// How many sessions there are at most.
pub(crate) const MOST: usize = 100;
/// How many live at once at the peak, at least.
const PEAK: usize = 95;

/// A hundred sessions at once in the hands of three clients on the socket and one who has the program.
pub(crate) fn churn(person: Person) {
    let world = World::new(person, MOST);
    fill(&world);
    let world = world.with_all_its_time();
    let started = run(&world, || Typist::new(&world, TYPIST).run());
    world.demand_peak(PEAK);
    settle::settle(&world, &started);
    remains::check(&world);
}

/// Makes as many sessions as there are to be, by several clients.
fn fill(world: &World) {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            scope.spawn(move || {
                // Names of their own beside those of later.
                let mut client = Churner::new(world, 10 + number);
                while lock(&world.made).len() < world.most && begun.elapsed() < PATIENCE {
                    client.create();
                }
            });
        }
    });
    world.see_peak();
    println!("{} sessions were made in {:?}", lock(&world.made).len(), begun.elapsed());
}

/// Runs the clients, and something besides them, until the time is over; what they started and did
/// not look at.
pub(crate) fn run(world: &World, besides: impl FnOnce() + Send) -> Vec<Started> {
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || Churner::new(world, number).run()))
            .collect();
        let besides = scope.spawn(besides);
        scope.spawn(|| world.watch_peak());
        let mut left = Vec::new();
        for client in clients {
            left.extend(client.join().expect("a client never fails"));
        }
        besides.join().expect("nor does what is besides them");
        left
    })
}

struct Churner<'w> {
    world: &'w World,
    caller: Caller<'w>,
    dice: Dice,
    number: u64,
    counter: u64,
    started: Vec<Started>,
}

impl<'w> Churner<'w> {
    fn new(world: &'w World, number: u64) -> Self {
        let (caller, dice) = (Caller::new(world), Dice::new(world.seed, number));
        Self { world, caller, dice, number, counter: 0, started: Vec::new() }
    }

    fn run(mut self) -> Vec<Started> {
        while self.world.goes_on() {
            let there = lock(&self.world.sessions).len();
            let few = there < self.world.most * 9 / 10;
            if there < self.world.most && self.dice.below(100) < if few { 40 } else { 5 } {
                self.create();
                continue;
            }
            let Some(known) = self.dice.pick(&lock(&self.world.sessions)).cloned() else {
                continue;
            };
            match self.dice.below(100) {
                0..=34 => self.execute(&known),
                35..=54 => self.look(),
                55..=66 => self.grant(&known),
                67..=74 => self.revoke(&known),
                75..=81 => self.there_and_back(&known, "pause", "resume"),
                82..=86 => self.there_and_back(&known, "stop", "start"),
                87..=89 => self.tell(&known, "cancel"),
                90..=94 => self.cancel(),
                _ => self.remove(&known),
            }
        }
        self.started
    }

    fn create(&mut self) {
        self.counter += 1;
        let mut body = json!({ "labels": { "churn": "yes" } });
        if self.dice.below(2) == 0 {
            let id = format!("{}-{}-{}", self.world.prefix(), self.number, self.counter);
            body["id"] = Value::String(id);
        }
        // Some have a way out, which can die too.
        if self.world.faulty && self.dice.below(3) == 0 {
            body["network"] = json!({ "rules": [{ "host": "a.example" }] });
        }
        let mut grants = std::collections::BTreeMap::new();
        if self.dice.below(3) == 0 {
            let folder = self.choose_folder();
            let path = self.world.folders[folder].path();
            body["grants"] = json!([{ "path": path, "access": "ro", "name": "first" }]);
            grants.insert("first".to_owned(), (folder, Held::Given));
        }
        if let Answer::Done(session) = self.caller.post("create", "/v1/sessions", &body) {
            let id = session["id"].as_str().expect("it has one").to_owned();
            lock(&self.world.made).push(id.clone());
            let known = Known { id, grants: grants.into(), leaving: AtomicBool::new(false) };
            lock(&self.world.sessions).push(Arc::new(known));
        }
    }

    fn choose_folder(&mut self) -> usize {
        let folders = u64::try_from(self.world.folders.len()).expect("few");
        usize::try_from(self.dice.below(folders)).expect("few")
    }

    fn execute(&mut self, known: &Arc<Known>) {
        let work = Work::choose(self.dice.below(10));
        let body = json!({ "shell": work.line() });
        if let Answer::Done(command) = self.caller.post("exec", known.at("/commands"), &body) {
            let command: Command = serde_json::from_value(command).expect("it is one");
            self.started.push(Started { known: Arc::clone(known), number: command.number, work });
        }
    }

    /// Looks at a command that was started, and at what it wrote if it has ended.
    fn look(&mut self) {
        let Some(index) = self.any_started() else { return };
        if examine(&mut self.caller, &self.started[index]) {
            self.started.swap_remove(index);
        }
    }

    fn any_started(&mut self) -> Option<usize> {
        let length = u64::try_from(self.started.len()).ok().filter(|length| *length > 0)?;
        usize::try_from(self.dice.below(length)).ok()
    }

    fn cancel(&mut self) {
        let Some(index) = self.any_started() else { return };
        let target = format!("{}/cancel", self.started[index].at());
        self.caller.post("cancel command", target, &json!({ "grace": "100ms" }));
    }

    fn grant(&mut self, known: &Known) {
        self.counter += 1;
        let folder = self.choose_folder();
        let name = format!("g{}-{}", self.number, self.counter);
        let access = if self.dice.below(2) == 0 { "ro" } else { "rw" };
        let path = self.world.folders[folder].path();
        let body = json!({ "path": path, "access": access, "name": name });
        match self.caller.post("grant", known.at("/grants"), &body) {
            Answer::Done(_) => known.note(&name, folder, Held::Given),
            Answer::Refused(problem) if problem.status < 500 => {
                known.note(&name, folder, Held::Revoked);
            }
            Answer::Refused(_) | Answer::Lost => known.note(&name, folder, Held::Unknown),
        }
    }

    fn revoke(&mut self, known: &Known) {
        let given: Vec<(String, usize)> = {
            let mut grants = lock(&known.grants);
            let given = grants.iter_mut().filter(|(_, (_, held))| *held == Held::Given);
            let chosen = given.take(1).map(|(name, entry)| {
                entry.1 = Held::Unknown;
                (name.clone(), entry.0)
            });
            chosen.collect()
        };
        for (name, folder) in given {
            let target = known.at(&format!("/grants/{name}"));
            match self.caller.ask("revoke", Method::Delete, target, None) {
                Answer::Done(_) => known.note(&name, folder, Held::Revoked),
                Answer::Refused(problem) if problem.code == "no-grant" => {
                    if !self.world.faulty {
                        let id = &known.id;
                        self.world.complain(format!("{id}: `{name}` is gone by itself"));
                    }
                }
                Answer::Refused(problem) if problem.status < 500 => {
                    known.note(&name, folder, Held::Given);
                }
                Answer::Refused(_) | Answer::Lost => {}
            }
        }
    }

    fn there_and_back(&mut self, known: &Known, there: &str, back: &str) {
        self.tell(known, there);
        self.execute_in_passing(known);
        if self.dice.below(5) > 0 {
            self.tell(known, back);
        }
    }

    /// A command that is refused or forgotten.
    fn execute_in_passing(&mut self, known: &Known) {
        self.caller.post("exec in passing", known.at("/commands"), &json!({ "shell": "true" }));
    }

    fn tell(&mut self, known: &Known, verb: &str) {
        let body = if verb == "cancel" { json!({ "grace": "100ms" }) } else { json!({}) };
        self.caller.post(verb, known.at(&format!("/{verb}")), &body);
    }

    fn remove(&mut self, known: &Arc<Known>) {
        {
            let mut sessions = lock(&self.world.sessions);
            let Some(index) = sessions.iter().position(|one| Arc::ptr_eq(one, known)) else {
                return;
            };
            sessions.swap_remove(index);
            known.leaving.store(true, Ordering::SeqCst);
        }
        remove(&mut self.caller, &known.id);
    }
}

/// Removes a session; with faults, as often as it takes.
pub(crate) fn remove(caller: &mut Caller<'_>, id: &str) {
    for _ in 0..50 {
        let target = format!("/v1/sessions/{id}");
        match caller.ask("delete", Method::Delete, target, None) {
            Answer::Done(_) => return,
            Answer::Refused(problem) if problem.status == 404 && caller.world.faulty => return,
            Answer::Refused(problem) if !caller.world.faulty => {
                caller.world.complain(format!("{id} is not removed: {problem:?}"));
                return;
            }
            Answer::Refused(_) | Answer::Lost => {
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    }
    caller.world.complain(format!("{id} cannot be removed"));
}

/// Looks at a command; whether there is nothing more to see of it.
pub(crate) fn examine(caller: &mut Caller<'_>, started: &Started) -> bool {
    let command: Command = match caller.get("command", started.at()) {
        Answer::Done(command) => serde_json::from_value(command).expect("it is one"),
        Answer::Refused(_) if started.known.is_leaving() => return true,
        Answer::Refused(problem) if problem.status == 404 => {
            caller.world.complain(format!("{} is unknown: {problem:?}", started.at()));
            return true;
        }
        Answer::Refused(_) | Answer::Lost => return false,
    };
    match command.state {
        CommandState::Starting | CommandState::Running | CommandState::Paused => return false,
        CommandState::Refused => {
            caller.world.complain(format!("acknowledged and refused: {command:?}"));
            return true;
        }
        CommandState::Exited | CommandState::Interrupted => {}
    }
    let out = caller.output(&started.at(), "stdout");
    let err = caller.output(&started.at(), "stderr");
    if started.known.is_leaving() {
        return true;
    }
    let (Some(out), Some(err)) = (out, err) else {
        if !caller.world.faulty {
            caller.world.complain(format!("{} has no output", started.at()));
        }
        return false;
    };
    let why = command.reason.as_ref().map_or("by itself", |reason| &reason.code);
    caller.world.tell(&format!("ended: {:?} {why}", command.state));
    if why == "sandbox-lost" && !caller.world.faulty {
        caller.world.complain(format!("a sandbox was lost: {command:?}"));
    }
    if let Err(sentence) = started.work.judge(&command, &[out, err]) {
        caller.world.complain(format!("{:?}: {sentence}: {command:?}", started.work));
    }
    true
}
