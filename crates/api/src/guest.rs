//! Messages of a session's init.
//!
//! Init has two sockets. On the first the keeper tells it how to lock itself down, once, and it
//! answers that it is ready. On the second clients start commands. Init treats every message on
//! either as untrusted; the keeper treats every answer as hostile.

use crate::{Text, plan};
use serde::{Deserialize, Serialize};

/// From the keeper, first thing after init was executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// What Landlock allows; empty for no file rules.
    pub walls: Vec<plan::Wall>,
    /// The filter of system calls, as raw instructions of 8 bytes.
    pub guard: Vec<u8>,
    /// The filter whose verdicts go to the broker, likewise.
    pub door: Vec<u8>,
    /// Largest number of processes, counted in the session's user namespace, where no cgroup counts
    /// them.
    pub processes: Option<u32>,
    /// Largest number of open files of a process.
    pub open_files: u32,
    /// Largest data segment of a process, in bytes, where no cgroup limits memory.
    pub data_bytes: Option<u64>,
    /// A file that only Landlock forbids to read; init tries it.
    pub canary: Text,
}

/// From init to the keeper: locked down, with what init itself saw. The listener of the door
/// travels beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Began {
    /// Everything asked was done, and nothing is known of Landlock's scopes.
    Ready {
        /// The ABI of the Landlock rules in force, 0 for none.
        landlock_abi: u32,
        /// Whether the canary was refused.
        canary: Probe,
        /// Whether a forbidden call was refused by the filter.
        forbidden_call: Probe,
        /// Whether only fatal signals interrupt a call that the broker has received.
        killable: bool,
    },
    /// A step failed; init ends.
    Failed {
        /// What was being done.
        step: String,
        /// What the kernel said.
        errno: i32,
    },
    /// Everything asked was done.
    Locked {
        /// The ABI of the Landlock rules in force, 0 for none.
        landlock_abi: u32,
        /// Whether the canary was refused.
        canary: Probe,
        /// Whether a forbidden call was refused by the filter.
        forbidden_call: Probe,
        /// Whether only fatal signals interrupt a call that the broker has received.
        killable: bool,
        /// Whether an abstract socket from before the walls was refused.
        scopes: Probe,
    },
}

/// The outcome of a self-test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Probe {
    /// The forbidden thing was refused.
    Refused,
    /// The forbidden thing succeeded.
    Passed,
    /// The test does not apply.
    Untested,
}

/// From a client to init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToInit {
    /// Are you there?
    Ping {
        /// Comes back in the answer.
        nonce: u64,
    },
    /// Start a command. Standard input, output and error travel beside it, unless they are asked
    /// to be the null device.
    Execute(Execute),
    /// Send a signal to a command's process group, or to its first process alone.
    Signal {
        /// The command, by the number given when it was started.
        command: u32,
        /// The signal's number.
        signal: i32,
        /// Who gets it.
        whom: Whom,
    },
    /// Open a terminal; its controlling side comes back.
    OpenTerminal {
        /// Comes back in the answer.
        nonce: u64,
    },
    /// List a folder of the session, for a client that wants to know what was left in it.
    Count {
        /// Comes back in the answer.
        nonce: u64,
        /// The folder, in the session.
        folder: Text,
    },
    /// Which commands run, and which have ended without that being acknowledged.
    Report {
        /// Comes back in the answer.
        nonce: u64,
    },
    /// The end of a command was heard and recorded: it may be forgotten.
    Acknowledge {
        /// Which.
        command: u32,
    },
    /// Send a signal to every process of the session but PID 1.
    SignalAll {
        /// The signal's number.
        signal: i32,
    },
}

/// A command to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execute {
    /// Names the command in later messages; chosen by the client, not in use.
    pub command: u32,
    /// The arguments; the first is the program, looked up along `PATH` if it has no slash.
    pub arguments: Vec<Text>,
    /// The environment, `NAME=value` each.
    pub environment: Vec<Text>,
    /// The folder it starts in, in the session.
    pub folder: Text,
    /// Standard input, output and error.
    pub stdio: [Stdio; 3],
    /// Whether standard input is the command's controlling terminal.
    pub terminal: bool,
    /// Permission bits that its new files do not get.
    pub umask: Umask,
}

/// Permission bits that new files do not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Umask(pub u32);

impl Default for Umask {
    /// Others may read, only the owner may write.
    fn default() -> Self {
        Self(0o022)
    }
}

/// Where one of a command's standard streams comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdio {
    /// The session's own null device.
    #[default]
    Null,
    /// The descriptor with this position beside the message.
    Passed(u8),
}

/// Who gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whom {
    /// The command's first process.
    Leader,
    /// Every process of the command's first group.
    Group,
    /// The group that the command's terminal has in the foreground, else the first group.
    Foreground,
    /// Every process that the command started, directly or not, as far as it can be followed:
    /// descendants, and whoever shares a process session with one. Repeated until no new one is
    /// found, so that with a signal that stops or kills none is missed.
    Tree,
}

/// From init to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromInit {
    /// The answer to a ping.
    Pong {
        /// As sent.
        nonce: u64,
    },
    /// A command runs.
    Started {
        /// Which.
        command: u32,
        /// Its process id in the session.
        pid: i32,
    },
    /// A command could not be started.
    Refused {
        /// Which.
        command: u32,
        /// Why.
        why: Refusal,
    },
    /// A command has ended.
    Ended {
        /// Which.
        command: u32,
        /// How.
        ending: Ending,
        /// What it used.
        usage: Usage,
    },
    /// A terminal; its controlling side travels beside this, or the errno tells why not.
    Terminal {
        /// As sent.
        nonce: u64,
        /// 0, or what the kernel said.
        errno: i32,
    },
    /// How many entries a folder has.
    Counted {
        /// As sent.
        nonce: u64,
        /// The number; `None` when it cannot be listed.
        entries: Option<u64>,
    },
    /// The answer to a report.
    Report {
        /// As sent.
        nonce: u64,
        /// Commands that run, each with its process id in the session.
        running: Vec<(u32, i32)>,
        /// Commands that have ended and were not acknowledged.
        ended: Vec<(u32, Ending, Usage)>,
    },
}

/// Why a command could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The request contradicts itself; the text says how.
    Malformed(String),
    /// No program of that name.
    NotFound,
    /// The program cannot be executed.
    NotExecutable {
        /// What the kernel said.
        errno: i32,
    },
    /// The folder it should start in cannot be entered.
    Folder {
        /// What the kernel said.
        errno: i32,
    },
    /// Anything else.
    Failed {
        /// What was being done.
        step: String,
        /// What the kernel said.
        errno: i32,
    },
    /// The file is there, and the program that it names to be run by is not.
    NoInterpreter {
        /// That program's path.
        interpreter: Text,
    },
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It returned this status.
    Status(u8),
    /// This signal ended it.
    Signal(u8),
}

/// What a command used, with the children it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU microseconds in user mode.
    pub user_us: u64,
    /// CPU microseconds in the kernel.
    pub system_us: u64,
    /// Largest resident size of any of its processes, in KiB.
    pub peak_kib: u64,
    /// Bytes read from storage.
    pub read: u64,
    /// Bytes written to storage.
    pub written: u64,
}
