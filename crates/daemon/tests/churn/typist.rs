//! A client who has nothing but the program `cowork`, and does everything at random with it.

use crate::client::Caller;
use crate::load::remove;
use crate::site::lock;
use crate::work::Work;
use crate::world::{Dice, Held, Known, World, canary};
use cowork_testbed::programs;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest time that any call of the program may take, however busy the machine is.
const LONGEST: Duration = Duration::from_mins(1);

pub(crate) struct Typist<'w> {
    world: &'w World,
    dice: Dice,
    number: u64,
    counter: u64,
}

impl<'w> Typist<'w> {
    pub(crate) fn new(world: &'w World, number: u64) -> Self {
        Self { world, dice: Dice::new(world.seed, number), number, counter: 0 }
    }

    pub(crate) fn run(mut self) {
        while self.world.goes_on() {
            // Nobody else touches what it has made: what it is told of that is exact.
            let Some(known) = self.make() else { continue };
            let folder = self.grant(&known);
            self.execute(&known);
            self.say("pause", &known, &[]);
            self.say("resume", &known, &[]);
            if let Some(folder) = folder {
                self.read(&known, folder);
                self.revoke(&known, folder);
            }
            self.execute_elsewhere();
            if self.counter.is_multiple_of(3) {
                // Some are left for everybody, who may do anything with them.
                lock(&self.world.sessions).push(known);
                self.make_room();
            } else {
                self.say("rm", &known, &[]);
            }
        }
    }

    fn make(&mut self) -> Option<Arc<Known>> {
        self.counter += 1;
        let id = format!("{}-{}-{}", self.world.prefix(), self.number, self.counter);
        let said = self.call(&["new", "--id", &id]);
        if !said.status.success() {
            self.complain("new", &said);
            return None;
        }
        self.world.tell("cowork new: done");
        lock(&self.world.made).push(id.clone());
        Some(Arc::new(Known { id, grants: Mutex::default(), leaving: AtomicBool::new(false) }))
    }

    /// Grants a folder; which one.
    fn grant(&mut self, known: &Known) -> Option<usize> {
        let folder = usize::from(self.dice.below(2) == 0);
        let access = if self.dice.below(2) == 0 { "ro" } else { "rw" };
        let path = self.world.folders[folder].path().display();
        self.say("grant", known, &[&format!("{path}:{access}=typed")])?;
        known.note("typed", folder, Held::Given);
        Some(folder)
    }

    fn read(&self, known: &Known, folder: usize) {
        let said = self.say("exec", known, &["--", "cat", "mnt/typed/canary"]);
        self.compare(said, &[canary(folder), String::new()]);
    }

    fn revoke(&self, known: &Known, folder: usize) {
        if self.say("revoke", known, &["typed"]).is_none() {
            return known.note("typed", folder, Held::Unknown);
        }
        known.note("typed", folder, Held::Revoked);
        let said = self.say("exec", known, &["--", "sh", "-c", "test -e mnt/typed || echo gone"]);
        self.compare(said, &["gone\n".to_owned(), String::new()]);
    }

    /// Runs something whose streams are known to the byte.
    fn execute(&mut self, known: &Known) {
        let work = Work::choose(self.dice.below(10));
        let said = self.say("exec", known, &["--", "bash", "-c", work.line()]);
        self.compare(said, &work.streams());
    }

    /// Runs something in a session that others stop or remove meanwhile.
    fn execute_elsewhere(&mut self) {
        let Some(known) = self.dice.pick(&lock(&self.world.sessions)).cloned() else { return };
        let said = self.call(&["exec", &known.id, "--", "printf", "there"]);
        if said.status.success() && said.stdout != b"there" {
            self.complain("exec elsewhere", &said);
        }
        self.world.tell(&format!("cowork exec elsewhere: {:?}", said.status.code()));
    }

    /// As many sessions as there are to be: one of everybody's goes.
    fn make_room(&self) {
        let gone = {
            let mut sessions = lock(&self.world.sessions);
            if sessions.len() <= self.world.most {
                return;
            }
            let gone = sessions.swap_remove(0);
            gone.leaving.store(true, Ordering::SeqCst);
            gone
        };
        remove(&mut Caller::new(self.world), &gone.id);
    }

    /// Does something with a session of its own.
    fn say(&self, verb: &str, known: &Known, more: &[&str]) -> Option<Output> {
        let words: Vec<&str> = [verb, &known.id].into_iter().chain(more.iter().copied()).collect();
        let said = self.call(&words);
        if !said.status.success() {
            self.complain(verb, &said);
            return None;
        }
        self.world.tell(&format!("cowork {verb}: done"));
        Some(said)
    }

    fn compare(&self, said: Option<Output>, wanted: &[String; 2]) {
        let Some(said) = said else { return };
        if said.stdout != wanted[0].as_bytes() || said.stderr != wanted[1].as_bytes() {
            self.complain("exec", &said);
        }
    }

    fn call(&self, words: &[&str]) -> Output {
        let begun = Instant::now();
        let mut command = self.world.site.person.command(programs().join("cowork"));
        command.env("COWORK_RUNTIME_DIR", self.world.site.runtime());
        command.env("COWORK_STATE_DIR", self.world.site.state());
        command.args(words).stdin(Stdio::null()).current_dir("/");
        let said = command.output().expect("the program is there");
        if begun.elapsed() > LONGEST {
            self.world.complain(format!("{words:?} took {:?}", begun.elapsed()));
        }
        said
    }

    fn complain(&self, what: &str, said: &Output) {
        let short =
            |bytes: &[u8]| String::from_utf8_lossy(bytes.get(..300).unwrap_or(bytes)).into_owned();
        let (out, err) = (short(&said.stdout), short(&said.stderr));
        self.world.complain(format!("cowork {what}: {}: {out:?} {err:?}", said.status));
    }
}
