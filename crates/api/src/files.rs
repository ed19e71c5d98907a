//! Changes to granted folders: what is allowed, what is asked, what was done, and how it is undone.
//!
//! Three readers: the broker of a session gets rules and puts questions; the clerk, a process that
//! the keeper sends to look at what was recorded, gets an [`Order`] and leaves a [`Report`]; the
//! daemon gives the one and reads the other.

use crate::{Text, plan};
use serde::{Deserialize, Serialize};

/// What a session may do in a folder whose changes are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// Names with a rule of their own. Of several that match, the strictest counts.
    pub names: Vec<NameRule>,
    /// Endings of names that are refused, in lower case, without the dot.
    pub blocked: Vec<String>,
    /// Whether files that begin like a program of another system are refused too.
    pub blocked_contents: bool,
    /// When to ask before going on.
    pub guards: Guards,
    /// How much is saved.
    pub caps: Caps,
    /// How much the folder may grow.
    pub quota: Quota,
}

/// A rule about names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRule {
    /// Which names: components with `*`, `?` and `**`, matched at any depth unless it starts with `/`.
    pub pattern: String,
    /// What happens.
    pub policy: NamePolicy,
    /// Why, in one sentence for a person.
    pub reason: String,
}

/// What happens to a change of a protected name. Later ones are stricter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NamePolicy {
    /// Nothing.
    #[default]
    Allow,
    /// It is marked among the changes.
    Flag,
    /// The user is asked.
    Ask,
    /// It is refused.
    Deny,
}

/// When the user is asked before a command goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guards {
    /// After so many files that were there before were removed or overwritten in one set.
    pub removals: Option<u32>,
    /// After this part of the folder's files, in percent.
    pub share: Option<u8>,
}

/// How much is saved of what is about to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caps {
    /// Largest file that is copied, in bytes. What can be kept without copying has no limit.
    pub file: u64,
    /// Most bytes that are copied for one session.
    pub session: u64,
    /// What happens beyond.
    pub beyond: Beyond,
}

/// What happens when something cannot be saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Beyond {
    /// It is done, and marked as what cannot be undone.
    #[default]
    Mark,
    /// The user is asked first.
    Ask,
}

impl Default for Caps {
    fn default() -> Self {
        Self { file: 64 << 20, session: 1 << 30, beyond: Beyond::Mark }
    }
}

/// How much a session may add to a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Bytes.
    pub bytes: Option<u64>,
    /// Files, folders and links.
    pub files: Option<u64>,
}

/// From the keeper to a broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToBroker {
    /// A folder whose changes go through the broker. Beside it come a handle on the folder that
    /// allows writing, then, if `trash`, one on a folder of the same mount for what is removed, then
    /// what the session has in common with others that may change it.
    Folder(Box<BrokeredFolder>),
    /// The folder is taken away, or becomes read-only.
    Remove {
        /// Its name.
        name: String,
    },
    /// Other rules for a folder.
    Rules {
        /// Its name.
        name: String,
        /// From now on.
        rules: Rules,
    },
    /// The user's answer to a question.
    Answer {
        /// Which.
        ask: u64,
        /// Whether it may go on.
        allowed: bool,
    },
    /// From now on changes belong to new sets.
    Boundary,
    /// Close the sets whose processes are gone, and say so.
    Settle {
        /// Comes back.
        number: u64,
    },
}

/// A folder, as a broker is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokeredFolder {
    /// Its name below the folder of grants.
    pub name: String,
    /// Where it lies on the host.
    pub path: Text,
    /// Where it is in the session.
    pub at: Text,
    /// Which folder it is.
    pub folder: plan::Identity,
    /// The path of the folder from the root of the mount that the handle is on, without a slash at
    /// its start; empty when it is that root.
    pub below: Text,
    /// Whether a handle on a folder for what is removed comes along.
    pub trash: bool,
    /// Mounts inside the folder, by their path below it. They stay read-only.
    pub submounts: Vec<Text>,
    /// Who owns files on disk that the broker sees as its own: user and group.
    pub owner: Option<(u32, u32)>,
    /// What is allowed.
    pub rules: Rules,
}

/// From a broker to the keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromBroker {
    /// Somebody waits for the user.
    Ask(Ask),
    /// Nobody waits for this answer any more.
    Withdrawn {
        /// Which question.
        ask: u64,
    },
    /// Something was refused by a rule.
    Refused(Refusal),
    /// The sets whose processes are gone are closed.
    Settled {
        /// As it was sent.
        number: u64,
    },
    /// More was refused by rules than is told one by one.
    RefusedMore {
        /// How often, since it was last told.
        count: u64,
    },
}

/// A question for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Its number.
    pub ask: u64,
    /// The granted folder.
    pub grant: String,
    /// The name it is about, below the folder.
    pub path: Text,
    /// What is about to be done: `write`, `remove`, `rename`, …
    pub operation: String,
    /// Why it is asked.
    pub reason: String,
    /// The program that waits, as it calls itself.
    pub process: String,
}

/// A change that a rule refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The granted folder.
    pub grant: String,
    /// The name it is about, below the folder.
    pub path: Text,
    /// What was to be done.
    pub operation: String,
    /// Why it was refused.
    pub reason: String,
    /// The program, as it calls itself.
    pub process: String,
}

/// Work for the clerk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The folder in which the changes of a session are recorded.
    pub store: Kept,
    /// What is to be done.
    pub work: Work,
    /// Rules of the user's about names, by which changes are marked beside those that always hold.
    pub names: Vec<NameRule>,
    /// Which types are refused in its folders, where those are not the usual ones.
    pub types: Vec<Types>,
}

/// Which types of files are refused in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Types {
    /// The grant's name.
    pub grant: String,
    /// Endings of names.
    pub blocked: Vec<String>,
    /// Whether such files are known by their contents too.
    pub contents: bool,
}

/// A folder of the host that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Where, free of symbolic links.
    pub path: Text,
    /// Which.
    pub folder: plan::Identity,
}

/// What a clerk does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// List the sets.
    Sets,
    /// Say what changed, as one difference between before and now.
    Changes(Selection),
    /// Show the differences of contents.
    Differences {
        /// Of what.
        selection: Selection,
        /// Longest answer, in bytes.
        most: u64,
    },
    /// Bring back what was before.
    Undo {
        /// What of it.
        selection: Selection,
        /// What to do where the user has changed something since.
        choice: Choice,
        /// Whether it is only tried.
        rehearsal: bool,
    },
    /// Undo the last undo that was not redone.
    Redo {
        /// What to do where the user has changed something since.
        choice: Choice,
        /// Whether it is only tried.
        rehearsal: bool,
    },
    /// Carry staged changes over into the folder.
    Apply {
        /// What of them.
        paths: Vec<Place>,
        /// What to do where the user has changed something since.
        choice: Choice,
        /// Whether it is only tried.
        rehearsal: bool,
    },
    /// List what was done, in order, for the audit.
    Mutations {
        /// After the record with this number.
        after: u64,
        /// Most that are listed.
        most: u32,
        /// Files of refused types are looked for that sets left which were closed after this record.
        looked: u64,
    },
    /// Say which programs made changes.
    Programs {
        /// Those that made one after the record with this number.
        after: u64,
        /// Of which names it is said who changed them; of none without it.
        selection: Option<Selection>,
    },
}

/// Which changes are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Of which sets.
    pub sets: Sets,
    /// Of which names, and everything below them; all if there are none.
    pub paths: Vec<Place>,
}

/// Which sets are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sets {
    /// All that are not undone.
    #[default]
    All,
    /// The last one that is not undone.
    Last,
    /// These.
    Numbers(Vec<u32>),
}

/// A name below a granted folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The grant's name.
    pub grant: String,
    /// The path below it; empty for the folder itself.
    pub path: Text,
}

/// What to do where the user has changed something since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Choice {
    /// Do nothing at all, and say where.
    #[default]
    Refuse,
    /// Leave what the user has now.
    Ours,
    /// Bring back what was, and keep what the user has now among the changes of the undo.
    Theirs,
    /// Bring back what was, and keep what the user has now beside it under another name.
    Both,
}

/// What a clerk leaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// All sets, the oldest first.
    Sets(Vec<SetInfo>),
    /// What changed.
    Changes {
        /// The sets that were looked at.
        sets: Vec<SetInfo>,
        /// By grant and path.
        changes: Vec<Change>,
    },
    /// Differences of contents.
    Differences(Vec<Difference>),
    /// What an undo, redo or apply did, or would do.
    Restored(Restored),
    /// What was done.
    Mutations {
        /// In order.
        mutations: Vec<Mutation>,
        /// How many more there are.
        left: u64,
        /// Files of refused types that closed sets left.
        typed: Vec<Typed>,
        /// How many more of them there are.
        more_typed: u64,
        /// The last record that closed a set; 0 if none did since.
        looked: u64,
    },
    /// It could not be done.
    Failed {
        /// Why, for a person.
        sentence: String,
        /// What to do about it.
        hint: String,
    },
    /// Who made the changes.
    Programs {
        /// The programs, in the order in which they were seen.
        programs: Vec<Program>,
        /// Names that changed, and by which programs, in order: their places in the list.
        changed: Vec<(Place, Vec<u32>)>,
    },
}

/// A program that made changes: a process, from when it was seen with these words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The set that its changes belong to.
    pub set: u32,
    /// The process, by its id in the session.
    pub process: u32,
    /// The record from which on the process was this program.
    pub since: u64,
    /// Its arguments, as far as they are kept.
    pub argv: Vec<Text>,
}

/// A set of changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetInfo {
    /// Its number in the session, from 1.
    pub set: u32,
    /// What it comes from.
    pub kind: SetKind,
    /// The first process of the command, by its id in the session; 0 if there is none.
    pub root: u32,
    /// Its arguments.
    pub argv: Vec<Text>,
    /// When the first change was made, in nanoseconds since 1970.
    pub began: u64,
    /// When the last one was.
    pub last: u64,
    /// How many records it has.
    pub records: u64,
    /// The set that undid it, if one did and was not undone itself.
    pub undone_by: Option<u32>,
    /// Folders that it touched, by the grant's name and the path on the host.
    pub folders: Vec<(String, Text)>,
}

/// What a set comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetKind {
    /// A command of the session and what it started.
    #[default]
    Command,
    /// An undo of these sets.
    Undo(Vec<u32>),
    /// Staged changes that were applied.
    Apply,
}

/// One name that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Where it is now, or was.
    pub at: Place,
    /// What became of it.
    pub kind: ChangeKind,
    /// What it is.
    pub file: FileKind,
    /// Its size before, of files.
    pub before: Option<u64>,
    /// Its size now.
    pub after: Option<u64>,
    /// In which sets it changed; 0 stands for what is staged and not applied.
    pub sets: Vec<u32>,
    /// What a person should know.
    pub marks: Vec<Mark>,
}

/// What became of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Its contents are others.
    Modified,
    /// It is gone.
    Deleted,
    /// It had another name.
    Renamed {
        /// The path below the same folder.
        from: Text,
        /// Whether its contents are others too.
        modified: bool,
    },
    /// Only its mode, owner, times or attributes are others.
    Attributes,
}

/// What a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// What a person should know about a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mark {
    /// It cannot be undone; why.
    NotUndoable(String),
    /// The host may execute it; why.
    RunsHere(String),
    /// Its name is protected; why.
    Protected(String),
    /// The user has changed it since.
    Conflict,
    /// It is of a type that is refused, which was not seen before it was written; why.
    RefusedType(String),
}

/// The difference of one name's contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The change.
    pub change: Change,
    /// In unified form, of text.
    pub text: Option<String>,
    /// What is said instead of it.
    pub note: Option<String>,
}

/// What an undo, redo or apply did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// The set that it made, by which it can be undone itself.
    pub set: Option<u32>,
    /// What it brought back: path, and in which way.
    pub done: Vec<(Place, String)>,
    /// Where the user has changed something since, and what was done about it.
    pub conflicts: Vec<Conflict>,
    /// What could not be brought back, and why.
    pub lost: Vec<(Place, String)>,
}

/// Something that the user has changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// Where.
    pub at: Place,
    /// What is there now.
    pub now: String,
    /// What would be brought back.
    pub before: String,
    /// What was done.
    pub outcome: String,
}

/// A file of a refused type that a set left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Typed {
    /// Which set.
    pub set: u32,
    /// Where it is.
    pub at: Place,
    /// What it is.
    pub why: String,
}

/// One change as it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mutation {
    /// The number of its record.
    pub seq: u64,
    /// When, in nanoseconds since 1970.
    pub time: u64,
    /// The set it belongs to.
    pub set: u32,
    /// The process, by its id in the session.
    pub process: u32,
    /// What was done: `create`, `write`, `remove`, `rename`, `attributes`, …
    pub operation: String,
    /// To what.
    pub at: Place,
    /// The other name, of a rename.
    pub to: Option<Text>,
    /// Why it cannot be undone, if it cannot.
    pub lost: Option<String>,
}

/// The trash of a session on another mount than its store, as the store remembers it: the folder
/// `.Trash-UID/cowork/STORE` at the top of that mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Away {
    /// The top of the mount, on the host.
    pub top: Text,
    /// Which folder that is.
    pub top_folder: plan::Identity,
    /// The name of the store.
    pub store: String,
    /// Which folder the trash is.
    pub folder: plan::Identity,
}
