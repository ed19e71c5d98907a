//! A process that is aimed at: on the host, or in a session of its own.

use crate::raw::{self, at};
use crate::runner::{Place, session};
use crate::scene::{CANARY, Lost, Outcome, Scene};
use crate::stage::{KIT, Stage};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, ChildStdout, Stdio};

/// What a victim says at its end that could still write to the granted folder.
pub(crate) const STILL_WRITES: &str = "STILL-WRITES";
/// Before how readily the kernel would end the victim, as it says at its end.
pub(crate) const SCORE: &str = "OOM-SCORE ";
/// The variable with the victim's secret.
const SECRET: &str = "VICTIM_SECRET";

/// A running victim.
#[derive(Debug)]
pub(crate) struct Victim {
    /// Its number, as the host counts.
    pub pid: u32,
    /// Where the canary lies in its memory.
    pub memory: String,
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Victim {
    /// Starts one and waits until it can be attacked.
    pub(crate) fn start(stage: &Stage, place: Place<'_>, token: &str) -> Result<Self, Lost> {
        let mut command = match place {
            Place::Bare => stage.person.command(stage.path("outside/victim-program")),
            Place::Session(profile, _) => {
                session(stage, profile, &["--env".to_owned(), format!("{SECRET}={CANARY}")])
            }
        };
        command.env(SECRET, CANARY).current_dir(stage.path(""));
        command.args(["attack", "victim", &format!("token={token}"), &format!("for={token}")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or_else(|| Lost::new("the victim has no output"))?;
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let memory = line.trim().strip_prefix("READY ").unwrap_or_default().to_owned();
        if memory.is_empty() {
            return Err(Lost::new(format!("the victim did not start in {KIT}: {line}")));
        }
        let pid = match place {
            Place::Bare => child.id(),
            Place::Session(..) => find(&format!("for={token}"))
                .ok_or_else(|| Lost::new("the victim is not in the host's list"))?,
        };
        Ok(Self { pid, memory, child, output })
    }

    /// Ends it and returns what it said.
    pub(crate) fn finish(mut self) -> String {
        let mut said = String::new();
        drop(self.child.stdin.take());
        cowork_sys::ignore(self.output.read_to_string(&mut said));
        cowork_sys::ignore(self.child.wait());
        said
    }
}

/// The host's number of the process with this word among its arguments and no `cowork` before it.
fn find(word: &str) -> Option<u32> {
    processes()
        .into_iter()
        .find(|(_, line)| line.starts_with(KIT) && line.contains(word))
        .map(|found| found.0)
}

/// The processes that can be seen, with their arguments.
pub(crate) fn processes() -> Vec<(u32, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let line = |pid: u32| {
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&bytes).replace('\0', " ")))
    };
    numbers.filter_map(line).collect()
}

/// The victim itself: owns things that only it should own, and says when it is signalled. It ends
/// with its input.
pub(crate) fn be(scene: &Scene) -> Outcome {
    let token = scene.token()?;
    let name = format!("victim-{token}");
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    let shared = UnixListener::bind(scene.in_yard("victim")?)?;
    for listener in [listener, shared] {
        std::thread::spawn(move || {
            while let Ok((mut connection, _)) = listener.accept() {
                cowork_sys::ignore(connection.write_all(CANARY.as_bytes()));
            }
        });
    }
    let files = [format!("/tmp/{name}"), format!("/dev/shm/{name}")];
    for file in &files {
        std::fs::write(file, CANARY)?;
    }
    answer_signals()?;
    let secret = CANARY.to_owned();
    let mut output = std::io::stdout();
    writeln!(output, "READY {}", at(secret.as_str()))?;
    output.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let score = std::fs::read_to_string("/proc/self/oom_score_adj")?;
    writeln!(output, "{SCORE}{}", score.trim())?;
    let work = scene.in_yard("work")?;
    if std::fs::write(&work, CANARY).and_then(|()| std::fs::remove_file(&work)).is_ok() {
        writeln!(output, "{STILL_WRITES}")?;
        output.flush()?;
    }
    for file in files.into_iter().chain([scene.in_yard("victim")?]) {
        std::fs::remove_file(file)?;
    }
    Err(Lost::new("nothing more happened"))
}

extern "C" fn signalled(_: libc::c_int) {
    let text = "SIGNALLED\n";
    cowork_sys::ignore(raw::call(libc::SYS_write, &[1, at(text), text.len()]));
}

fn answer_signals() -> Result<(), Lost> {
    let handler = signalled as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler makes one system call and returns.
    let before = unsafe { libc::signal(libc::SIGUSR1, handler) };
    if before == libc::SIG_ERR { Err(Lost::from(std::io::Error::last_os_error())) } else { Ok(()) }
}
