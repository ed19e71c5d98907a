//! What the clients share: the daemon, the sessions they were told of, and what they were answered.

use crate::site::{Site, lock};
use cowork_client::http::Client;
use cowork_client::types::{Problem, Session};
use cowork_client::uri::Query;
use cowork_testbed::{Folder, Person};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long the load lasts by default.
const SECONDS: u64 = 18;
/// How many folders are granted again and again.
const FOLDERS: usize = 5;

/// Answers that contradict nobody: what was asked does not fit what another client did meanwhile.
const CONFLICTS: [(u16, &str); 13] = [
    (404, "no-session"),
    (404, "no-command"),
    (404, "no-grant"),
    (409, "live"),
    (409, "not-live"),
    (409, "paused"),
    (409, "not-paused"),
    (409, "creating"),
    (409, "ended"),
    (409, "no-sandbox"),
    (409, "command-ended"),
    (409, "no-answer"),
    (409, "no-deposit"),
];

/// How sure it is that a folder is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// It was asked for or asked back, and nobody answered yet.
    Unknown,
    /// That it is granted was acknowledged.
    Given,
    /// That it is revoked was acknowledged.
    Revoked,
}

/// A session whose creation was acknowledged.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) id: String,
    /// By name: the folder's number, and what is known.
    pub(crate) grants: Mutex<BTreeMap<String, (usize, Held)>>,
    /// Set before its removal is asked for.
    pub(crate) leaving: AtomicBool,
}

impl Known {
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    /// The target of something of this session.
    pub(crate) fn at(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{rest}", self.id)
    }

    /// Notes what is known of a grant.
    pub(crate) fn note(&self, name: &str, folder: usize, held: Held) {
        lock(&self.grants).insert(name.to_owned(), (folder, held));
    }
}

/// Everything that the clients share.
pub(crate) struct World {
    pub(crate) site: Site,
    pub(crate) folders: Vec<Folder>,
    /// Whether programs are killed meanwhile.
    pub(crate) faulty: bool,
    /// How long the load lasts.
    lasts: Duration,
    /// How many sessions there are at most.
    pub(crate) most: usize,
    pub(crate) until: Instant,
    /// Where every client's choices start.
    pub(crate) seed: u64,
    pub(crate) sessions: Mutex<Vec<Arc<Known>>>,
    /// Ids whose creation was acknowledged.
    pub(crate) made: Mutex<Vec<String>>,
    /// How many sandboxes there were at once at the peak.
    peak: AtomicUsize,
    answers: Mutex<BTreeMap<String, usize>>,
    wrong: Mutex<Vec<String>>,
}

impl World {
    pub(crate) fn new(person: Person, most: usize) -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let seconds = number("COWORK_CHURN_SECONDS").unwrap_or(SECONDS);
        let most = number("COWORK_CHURN_SESSIONS")
            .and_then(|most| usize::try_from(most).ok())
            .unwrap_or(most);
        let seed = number("COWORK_CHURN_SEED").unwrap_or_else(random);
        println!("{seconds} seconds, {most} sessions as {person:?}, seed {seed}");
        let folders = (0..FOLDERS).map(|number| {
            let folder = Folder::new(person, &format!("shared{number}"));
            folder.write("canary", canary(number));
            folder
        });
        Self {
            folders: folders.collect(),
            site: Site::with(person, &["--stay"]),
            faulty: false,
            lasts: Duration::from_secs(seconds),
            most,
            until: Instant::now() + Duration::from_secs(seconds),
            seed,
            sessions: Mutex::default(),
            made: Mutex::default(),
            peak: AtomicUsize::new(0),
            answers: Mutex::default(),
            wrong: Mutex::default(),
        }
    }

    /// The same, where programs are killed.
    pub(crate) fn with_faults(self) -> Self {
        Self { faulty: true, ..self }
    }

    /// The same, with all of its time to come.
    pub(crate) fn with_all_its_time(self) -> Self {
        Self { until: Instant::now() + self.lasts, ..self }
    }

    pub(crate) fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }

    /// What every explicit id starts with: nobody else on this host uses it.
    pub(crate) fn prefix(&self) -> String {
        format!("churn-{}-{:x}", std::process::id(), self.seed & 0xffff)
    }

    /// Counts sandboxes until the time is over.
    pub(crate) fn watch_peak(&self) {
        while self.goes_on() {
            self.see_peak();
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// Counts sandboxes once.
    pub(crate) fn see_peak(&self) {
        // With faults there may be nobody to ask.
        let sessions = Client::connect(&self.site.socket())
            .and_then(|mut client| client.list::<Session>(&Query::new("/v1/sessions")));
        let sessions = sessions.unwrap_or_default();
        let live = sessions.iter().filter(|session| session.sandbox.is_some()).count();
        self.peak.fetch_max(live, Ordering::Relaxed);
    }

    /// Fails if there were not so many sandboxes at once that it was a load.
    #[track_caller]
    pub(crate) fn demand_peak(&self, least: usize) {
        let peak = self.peak.load(Ordering::Relaxed);
        println!("{peak} sessions lived at once");
        assert!(peak >= least.min(self.most * 19 / 20), "{peak} sessions are no load");
    }

    /// Counts an answer, and remembers one that must not be.
    pub(crate) fn count(&self, what: &str, problem: Option<&Problem>) {
        let Some(problem) = problem else {
            *lock(&self.answers).entry(format!("{what}: done")).or_default() += 1;
            return;
        };
        let Problem { status, code, .. } = problem;
        *lock(&self.answers).entry(format!("{what}: {status} {code}")).or_default() += 1;
        let expected = CONFLICTS.contains(&(*status, code.as_str()));
        let host = self.faulty && *status == 503;
        if !expected && !host {
            self.complain(format!("{what} was answered with {problem:?}"));
        }
    }

    /// Counts something that is neither.
    pub(crate) fn tell(&self, what: &str) {
        *lock(&self.answers).entry(what.to_owned()).or_default() += 1;
    }

    /// Something is not as it must be.
    pub(crate) fn complain(&self, sentence: String) {
        eprintln!("WRONG: {sentence}");
        lock(&self.wrong).push(sentence);
    }

    /// Fails if anything was not as it must be.
    #[track_caller]
    pub(crate) fn judge(&self) {
        for (answer, times) in lock(&self.answers).iter() {
            println!("{times:6} {answer}");
        }
        let wrong = lock(&self.wrong);
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    }
}

/// What lies in a shared folder.
pub(crate) fn canary(number: usize) -> String {
    format!("canary {number}\n")
}

fn random() -> u64 {
    let mut seed = [0; 8];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
        .expect("the kernel has random numbers");
    u64::from_ne_bytes(seed)
}

/// Choices that follow from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64, who: u64) -> Self {
        Self(seed.wrapping_add(who.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1)
    }

    /// The next number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    /// One of several, if there is any.
    pub(crate) fn pick<'s, T>(&mut self, all: &'s [T]) -> Option<&'s T> {
        let length = u64::try_from(all.len()).ok().filter(|length| *length > 0)?;
        all.get(usize::try_from(self.below(length)).ok()?)
    }
}
