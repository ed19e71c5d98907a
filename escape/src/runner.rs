//! Runs an attack bare and in a session, and says what came of it.

use crate::attack::{Attack, Company, Control, Found, Judge, Launch, Permitted, Reach, Target};
use crate::raw::{self, flags, signed};
use crate::report::Verdict;
use crate::scene::Lost;
use crate::stage::{KIT, Shot, Stage};
use crate::victim::Victim;
use crate::ways::{Made, Way};
use cowork_testbed::Person;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::thread::CapabilitySet;
use std::collections::VecDeque;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longest time of one attack; beyond it the process is killed and the attack has said nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where terminals say that their cursor is.
pub(crate) const CURSOR: &str = "\x1b[7;31R";
/// How much longer a race may take whose tries are counted.
const RACE: Duration = Duration::from_mins(1);

/// Where an attack runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// On the host, without any session.
    Bare,
    /// In a session of this profile, which came to be in this way.
    Session(&'static str, Way<'a>),
}

/// What came of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Came {
    Won(String),
    Lost(String),
    /// The attack did not report; the text is what was seen of its end.
    Silent(String),
}

/// Who won on the bare host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Winner {
    /// The person who makes the session.
    Person,
    /// The super-user, and the person would not have.
    OnlyRoot,
}

/// Who won bare, and what was seen.
pub(crate) type Bare = (Winner, String);

/// Runs an attack bare: who won, else why it proves nothing.
pub(crate) fn control(stage: &Stage, attack: &Attack) -> Result<Bare, Verdict> {
    match shoot(stage, attack, Place::Bare) {
        Ok(Came::Won(seen)) if attack.control == Control::Root && stage.person == Person::User => {
            let weaker = Attack { control: Control::Person, ..*attack };
            let weaker = shoot(stage, &weaker, Place::Bare);
            let won = matches!(weaker, Ok(Came::Won(_)));
            Ok((if won { Winner::Person } else { Winner::OnlyRoot }, seen))
        }
        Ok(Came::Won(seen)) => Ok((Winner::Person, seen)),
        Ok(came) => {
            let (Came::Won(seen) | Came::Lost(seen) | Came::Silent(seen)) = &came;
            Err(match (&came, attack.found) {
                (Came::Lost(_), Found::OnSomeHosts(why)) => {
                    Verdict::NotRun(format!("{why}: {seen}"))
                }
                _ => Verdict::Vacuous(format!("does not win on the bare host: {seen}")),
            })
        }
        Err(lost) => Err(Verdict::Vacuous(format!("cannot be set up: {lost}"))),
    }
}

/// Runs an attack in a session.
pub(crate) fn confined(
    stage: &Stage,
    attack: &Attack,
    (profile, way): (&'static str, Way<'_>),
) -> Verdict {
    let outcome = match shoot(stage, attack, Place::Session(profile, way)) {
        Ok(outcome) => outcome,
        Err(lost) => return Verdict::Vacuous(format!("cannot be set up: {lost}")),
    };
    match (outcome, attack.permitted) {
        (Came::Won(seen), Permitted::Required) => {
            Verdict::ByDesign(format!("must work, and does: {seen}"))
        }
        (Came::Lost(seen) | Came::Silent(seen), Permitted::Required) => {
            Verdict::Vacuous(format!("must work in a session: {seen}"))
        }
        (Came::Won(_), Permitted::Everywhere(reason)) => Verdict::ByDesign(reason.to_owned()),
        (Came::Won(_), Permitted::Nested(reason)) if profile == "nested" => {
            Verdict::ByDesign(reason.to_owned())
        }
        (Came::Won(_), Permitted::Approximate(reason)) if stage.person == Person::User => {
            Verdict::ByDesign(reason.to_owned())
        }
        (Came::Won(_), Permitted::WithoutResources(reason)) if !has_resources(stage.person) => {
            Verdict::ByDesign(reason.to_owned())
        }
        (Came::Won(seen), _) => Verdict::Escaped(seen),
        (Came::Lost(seen), _) => match attack.layer(&seen, profile) {
            Some(layer) => Verdict::Contained(format!("{layer} ({seen})")),
            None => Verdict::Unexpected(format!("for another reason than expected: {seen}")),
        },
        (Came::Silent(seen), _) => match attack.layer(&seen, profile) {
            Some(layer) => Verdict::Contained(format!("{layer} ({seen})")),
            None => Verdict::Unexpected(format!("said nothing in the session: {seen}")),
        },
    }
}

/// Whether who makes sessions has `CAP_SYS_RESOURCE`, which a supervisor may keep from root.
fn has_resources(person: Person) -> bool {
    let sets = rustix::thread::capabilities(None);
    let own = sets.is_ok_and(|it| it.effective.contains(CapabilitySet::SYS_RESOURCE));
    person == Person::Root && own
}

fn shoot(stage: &Stage, attack: &Attack, place: Place<'_>) -> Result<Came, Lost> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let token = format!("token{}x{number}x", std::process::id());
    let mut words = stage.words(&token);
    if attack.reach == Reach::Town {
        let town = stage.town()?;
        words.extend(town.words());
        town.hush();
    }
    if let Some(prepare) = attack.prepare {
        prepare(stage, &token)?;
    }
    let victim = match (attack.target, place) {
        (Target::None, _) => None,
        (Target::First, Place::Session(..)) => {
            words.push("pid=1".into());
            None
        }
        (Target::Neighbour, Place::Session(..)) => Some(Victim::start(stage, place, &token)?),
        (Target::First | Target::HostProcess | Target::Neighbour, _) => {
            Some(Victim::start(stage, Place::Bare, &token)?)
        }
    };
    if let Some(victim) = &victim {
        words.extend([format!("pid={}", victim.pid), format!("memory={}", victim.memory)]);
    }
    let partner = match attack.company {
        Company::Partner => Some(Partner::start(stage, attack, (place, &words))?),
        Company::Alone => None,
    };
    let made = match place {
        Place::Session(profile, _) if !attack.refused.is_empty() || attack.afterwards.is_some() => {
            Some(Made::new(stage, attack, profile)?)
        }
        Place::Session(..) | Place::Bare => None,
    };
    let mut command = match &made {
        Some(made) => made.command(stage),
        None => command(stage, attack, place)?,
    };
    command.args(["attack", attack.name]).args(words);
    if matches!(place, Place::Session(..)) {
        command.arg("inside=yes");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Launch::With(change) = attack.launch {
        change(stage, &mut command);
    }
    let mut most = Crowd::of(attack, &token);
    let patience = PATIENCE + stage.tries.map_or(Duration::ZERO, |_| RACE);
    let (said, typed) = match attack.launch {
        Launch::Terminal => on_terminal(&mut command)?,
        Launch::Plain | Launch::With(_) => {
            (on_pipes(&mut command, &mut most, patience)?, String::new())
        }
    };
    let victim = victim.map(Victim::finish).unwrap_or_default();
    let afterwards = match (&made, attack.afterwards) {
        (Some(made), Some(look)) => Some(look(stage, &token, &made.id)?),
        _ => None,
    };
    drop((made, partner));
    let (Came::Won(text) | Came::Lost(text) | Came::Silent(text)) = &said;
    let claimed = matches!(said, Came::Won(_));
    let (most, said_text) = (most.most, text.clone());
    let shot = Shot { token, victim, typed, most, claimed, afterwards, said: said_text };
    let came = judge(stage, attack, &shot, said);
    stage.kept.lock().map_err(|_poisoned| Lost::new("another thread failed"))?.clear();
    Ok(came)
}

fn judge(stage: &Stage, attack: &Attack, shot: &Shot, said: Came) -> Came {
    match (attack.judge, said) {
        (Judge::Attack, said) => said,
        (Judge::Host(look), said) => match (look(stage, shot), said) {
            (Some(seen), _) => Came::Won(seen),
            // The host knows better than an attack that believes it won.
            (None, Came::Won(seen) | Came::Lost(seen)) => Came::Lost(seen),
            (None, silent @ Came::Silent(_)) => silent,
        },
    }
}

fn command(stage: &Stage, attack: &Attack, place: Place<'_>) -> Result<Command, Lost> {
    let mut command = match place {
        Place::Bare if attack.reach == Reach::Town => {
            stage.town()?.bare(controller(stage, attack), &stage.path(""))
        }
        Place::Session(profile, _) if attack.reach == Reach::Town => {
            stage.town()?.exec(profile, &grants(stage, profile))?
        }
        Place::Bare => controller(stage, attack).command(stage.path(KIT)),
        Place::Session(_, Way::Staying(staying, _)) => staying.command(),
        Place::Session(profile, way) => {
            let mut options = folders(stage, attack);
            options.extend(attack.options.iter().map(|option| (*option).to_owned()));
            if attack.reach == Reach::OnePort {
                options.extend(["--allow".to_owned(), format!("host:{}", stage.allowed)]);
            }
            if matches!(way, Way::Alone) {
                options.push("--no-daemon".to_owned());
            }
            match attack.installed {
                Some(folder) => {
                    let program = stage.person.command(stage.path(folder).join("cowork"));
                    session_of(program, stage, profile, &options)
                }
                None => session(stage, profile, &options),
            }
        }
    };
    command.current_dir(stage.path(""));
    Ok(command)
}

/// The options that name folders of the stand.
pub(crate) fn folders(stage: &Stage, attack: &Attack) -> Vec<String> {
    let folders = attack.folders.iter();
    let folders = folders
        .map(|(option, name)| [(*option).to_owned(), stage.path(name).display().to_string()]);
    folders.flatten().collect()
}

/// Who makes an attack bare.
fn controller(stage: &Stage, attack: &Attack) -> Person {
    if attack.control == Control::Root { Person::Root } else { stage.person }
}

/// `cowork run` up to the attack's own arguments.
pub(crate) fn session(stage: &Stage, profile: &str, options: &[String]) -> Command {
    session_of(stage.person.cowork(), stage, profile, options)
}

fn session_of(mut command: Command, stage: &Stage, profile: &str, options: &[String]) -> Command {
    command.args(["run", "--profile", profile]).args(options);
    if stage.person == Person::User {
        command.arg("--best-effort");
    }
    command.args(grants(stage, profile)).arg("--").arg(KIT).current_dir(stage.path(""));
    command
}

/// The granted folders. In profile `nested` changes cannot be judged.
pub(crate) fn grants(stage: &Stage, profile: &str) -> Vec<String> {
    let writable = if profile == "nested" { "direct" } else { "rw" };
    let grants = [("kit", "ro"), ("yard", writable), ("locked", "ro")].map(|(name, access)| {
        let path = stage.path("mnt").join(name);
        ["--grant".to_owned(), format!("{}:{access}={name}", path.display())]
    });
    grants.into_iter().flatten().collect()
}

/// The same attack with the word `partner`, in a session of its own, or bare. Killed at the end.
struct Partner {
    child: Child,
    /// Removed after the process has ended.
    _made: Option<Made>,
}

impl Partner {
    fn start(
        stage: &Stage,
        attack: &Attack,
        (place, words): (Place<'_>, &[String]),
    ) -> Result<Self, Lost> {
        let made = match place {
            Place::Session(profile, _) => Some(Made::new(stage, attack, profile)?),
            Place::Bare => None,
        };
        let mut command = match &made {
            Some(made) => made.command(stage),
            None => command(stage, attack, place)?,
        };
        command.args(["attack", attack.name]).args(words).arg("partner=yes");
        let null = Stdio::null;
        let child = command.stdin(null()).stdout(null()).stderr(null()).spawn()?;
        Ok(Self { child, _made: made })
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        cowork_sys::ignore(self.child.kill());
        cowork_sys::ignore(self.child.wait());
    }
}

/// How many processes of an attack there are at once, as the host sees it.
struct Crowd {
    /// The word among their arguments; nothing is counted without it.
    word: Option<String>,
    looked: Instant,
    most: usize,
}

impl Crowd {
    /// Floods are counted: they are the attacks with limits.
    fn of(attack: &Attack, token: &str) -> Self {
        let word = (!attack.options.is_empty()).then(|| format!("token={token} "));
        Self { word, looked: Instant::now(), most: 0 }
    }

    fn look(&mut self) {
        let Some(word) = &self.word else { return };
        if self.looked.elapsed() > Duration::from_millis(30) {
            let all = crate::victim::processes().into_iter();
            let own = all.filter(|(_, line)| line.contains(word) && !line.contains("--grant"));
            self.most = self.most.max(own.count());
            self.looked = Instant::now();
        }
    }
}

fn on_pipes(command: &mut Command, crowd: &mut Crowd, patience: Duration) -> Result<Came, Lost> {
    let mut child = command.spawn()?;
    let output = collect(child.stdout.take());
    let errors = collect(child.stderr.take());
    let status = wait(&mut child, crowd, patience)?;
    // A process that outlives the attack may hold the pipes: what is there by then counts.
    let output = output.recv_timeout(Duration::from_secs(2)).unwrap_or_default();
    let errors = errors.recv_timeout(Duration::from_secs(2)).unwrap_or_default();
    Ok(understand(status, &output, &errors))
}

fn collect(stream: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            cowork_sys::ignore(stream.read_to_end(&mut bytes));
        }
        send.send(String::from_utf8_lossy(&bytes).into_owned())
    });
    receive
}

fn wait(
    child: &mut Child,
    crowd: &mut Crowd,
    patience: Duration,
) -> Result<Option<ExitStatus>, Lost> {
    let begin = Instant::now();
    while begin.elapsed() < patience {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        crowd.look();
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

fn understand(status: Option<ExitStatus>, output: &str, errors: &str) -> Came {
    for line in output.lines() {
        let line = line.trim();
        if let Some((_, seen)) = line.split_once("WON ") {
            return Came::Won(seen.to_owned());
        }
        if let Some((_, seen)) = line.split_once("LOST ") {
            return Came::Lost(seen.to_owned());
        }
    }
    let errors = errors.lines().take(2).collect::<Vec<_>>().join(" ");
    Came::Silent(match status {
        None => format!("no end after {} seconds", PATIENCE.as_secs()),
        Some(status) => match status.code() {
            Some(159) => "SIGSYS".to_owned(),
            Some(code) => format!("exit {code}: {errors}"),
            None => format!("{status}: {errors}"),
        },
    })
}

/// Runs the program as the leader of a terminal of its own. Returns also what could be read from
/// the terminal afterwards, as the next program on it would.
fn on_terminal(command: &mut Command) -> Result<(Came, String), Lost> {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let open = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let slave = ioctl_tiocgptpeer(&master, open)?;
    rustix::fs::fchmod(&slave, rustix::fs::Mode::from_raw_mode(0o666))?;
    let copy = || slave.try_clone().map(Stdio::from);
    command.stdin(copy()?).stdout(copy()?).stderr(copy()?);
    let lead = || {
        raw::call(libc::SYS_setsid, &[])?;
        raw::call(libc::SYS_ioctl, &[0, libc::TIOCSCTTY as usize, 0]).map(drop)
    };
    // SAFETY: two system calls, which a fork may make.
    unsafe { command.pre_exec(lead) };
    let mut child = command.spawn()?;
    set_nonblocking(&master)?;
    let mut shown = Vec::new();
    let mut emulator = Emulator::default();
    let begin = Instant::now();
    let status = loop {
        read_into(&master, &mut shown);
        emulator.answer(&master, &shown);
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if begin.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    read_into(&master, &mut shown);
    while emulator.answer(&master, &shown) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let shown = String::from_utf8_lossy(&shown).into_owned();
    let typed = waiting_input(&slave)?;
    Ok((understand(status, &shown, &shown), typed))
}

/// Answers as a terminal does, and as late as one that is far away.
#[derive(Default)]
struct Emulator {
    /// How much of what was shown has been looked at.
    looked: usize,
    due: VecDeque<(Instant, &'static [u8])>,
}

impl Emulator {
    /// Questions that every terminal answers, and where the cursor is said to be, and what it is.
    const ANSWERS: [(&'static [u8], &'static [u8]); 2] =
        [(b"\x1b[6n", CURSOR.as_bytes()), (b"\x1b[c", b"\x1b[?62;22c")];
    const DISTANCE: Duration = Duration::from_millis(150);

    /// Gives the answers that are due, and says whether there are more.
    fn answer(&mut self, master: &OwnedFd, shown: &[u8]) -> bool {
        while let Some(rest) = shown.get(self.looked..).filter(|rest| !rest.is_empty()) {
            let asked = Self::ANSWERS.iter().find(|(question, _)| rest.starts_with(question));
            if let Some((_, answer)) = asked {
                self.due.push_back((Instant::now() + Self::DISTANCE, answer));
            } else if Self::ANSWERS.iter().any(|(question, _)| question.starts_with(rest)) {
                // The rest of a question is still to come.
                break;
            }
            self.looked += asked.map_or(1, |(question, _)| question.len());
        }
        let now = Instant::now();
        while let Some((_, answer)) = self.due.front().filter(|(when, _)| *when <= now) {
            cowork_sys::ignore(rustix::io::write(master, answer));
            self.due.pop_front();
        }
        !self.due.is_empty()
    }
}

/// What the next reader of the terminal would get.
fn waiting_input(slave: &OwnedFd) -> Result<String, Lost> {
    let mut settings = rustix::termios::tcgetattr(slave)?;
    settings.make_raw();
    rustix::termios::tcsetattr(slave, rustix::termios::OptionalActions::Now, &settings)?;
    set_nonblocking(slave)?;
    let mut typed = Vec::new();
    read_into(slave, &mut typed);
    Ok(String::from_utf8_lossy(&typed).into_owned())
}

fn set_nonblocking(handle: &OwnedFd) -> Result<(), Lost> {
    let number = signed(handle.as_raw_fd());
    raw::call(libc::SYS_fcntl, &[number, flags(libc::F_SETFL), flags(libc::O_NONBLOCK)])?;
    Ok(())
}

fn read_into(handle: &OwnedFd, bytes: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = rustix::io::read(handle.as_fd(), &mut buffer) {
        bytes.extend_from_slice(buffer.get(..length).unwrap_or_default());
    }
}
