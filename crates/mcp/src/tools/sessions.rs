//! Making, listing and ending sessions.

use super::{About, Answer, Effect, Entry, World};
use crate::call::{Call, LABEL, MADE, target};
use crate::refusal::Refusal;
use crate::spot::top;
use crate::text::harmless;
use cowork_client::http::{Method, Request};
use cowork_client::types::{Access, Otherwise, Session, State};
use cowork_client::uri::Query;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most sessions in one answer.
const MAX_SESSIONS: usize = 100;

pub(super) fn tools() -> Vec<Entry> {
    let create = About {
        name: "create_session",
        title: "Make a session",
        description: "Makes a session: an isolated Linux computer on the user's machine, with a \
            shell and the user's installed programs, that sees nothing of the user's files but the \
            folders listed in the answer. Those were chosen by the user; ask for more with \
            request_cowork_directory. Commands start in the session's own folder; put what the \
            user is to get into mnt/outputs. It has no network unless the user has set one up, or \
            `network` is `ask`: then the user is asked about every host. Its files stay until \
            end_session.",
        effect: Effect::Adds,
        world: World::Closed,
    };
    let list = About {
        name: "list_sessions",
        title: "List sessions",
        description: "Lists the sessions that can be used here, with their folders as commands \
            see them, what may be done with each (`ro` read; `rw` write, recorded and undoable; \
            `direct` write; `staged` write, but only the user applies it), and how many requests \
            wait for the user's answer.",
        effect: Effect::Reads,
        world: World::Closed,
    };
    let end = About {
        name: "end_session",
        title: "End a session",
        description: "Ends a session that was made here: its processes, its home and everything \
            in it are gone. Folders of the user's stay as they are, and what the session changed \
            in them can still be undone by the user. Deliverables in mnt/outputs are kept unless \
            `discard_outputs` is true.",
        effect: Effect::Replaces,
        world: World::Closed,
    };
    vec![
        Entry::new(&create, self::create),
        Entry::new(&list, self::list),
        Entry::new(&end, self::end),
    ]
}

/// What a session may reach.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Reach {
    /// What the user has set up; without that, nothing.
    Default,
    /// The same, and the user is asked about every other host.
    Ask,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Create {
    /// A name for the session, e.g. `tidy-invoices`: lower-case words joined by `-`. Made up
    /// without it.
    #[serde(default)]
    #[schemars(length(min = 3, max = 63), regex(pattern = "^[a-z][a-z0-9]*(-[a-z0-9]+)*$"))]
    session: Option<String>,
    /// What it may reach over the network.
    #[serde(default)]
    network: Option<Reach>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct End {
    /// The id of the session; it may be left out if exactly one was made over this connection.
    #[serde(default)]
    session: Option<String>,
    /// Whether what is in mnt/outputs goes too.
    #[serde(default)]
    discard_outputs: bool,
}

/// A folder of the user's in a session.
#[derive(Debug, Serialize, JsonSchema)]
struct Folder {
    /// Its name.
    name: String,
    /// Where the session sees it.
    path: String,
    /// What may be done with it: `ro`, `rw`, `direct` or `staged`.
    access: Access,
}

/// A session.
#[derive(Debug, Serialize, JsonSchema)]
struct Brief {
    /// Its id: give it to the other tools as `session`.
    session: String,
    /// `ready`, `running`, `paused`, `stopped`, `creating`, `failed` or `ended`. One that is
    /// stopped is started by the next command.
    state: State,
    /// The folder that commands start in.
    folder: String,
    /// Folders of the user's.
    folders: Vec<Folder>,
    /// Where deliverables go.
    outputs: String,
    /// What it may reach: `none`, `rules` (hosts that the user has allowed) or `ask`.
    #[schemars(extend("enum" = ["none", "rules", "ask"]))]
    network: &'static str,
    /// How many requests wait for the user's answer.
    pending_requests: u32,
}

impl Answer for Brief {}

impl From<&Session> for Brief {
    fn from(session: &Session) -> Self {
        let top = top(session);
        let folder = |grant: &cowork_client::types::Grant| Folder {
            name: harmless(&grant.name),
            path: harmless(&grant.at),
            access: grant.access,
        };
        Self {
            session: session.id.clone(),
            state: session.state,
            folder: session.folder.clone(),
            folders: session.grants.iter().map(folder).collect(),
            outputs: format!("{top}/outputs"),
            network: match session.network.map(|network| network.otherwise) {
                None => "none",
                Some(Otherwise::Deny) => "rules",
                Some(Otherwise::Ask) => "ask",
            },
            pending_requests: session.pending,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Sessions {
    /// The sessions.
    sessions: Vec<Brief>,
    /// Whether there are more than are listed.
    more: bool,
}

impl Answer for Sessions {}

#[derive(Debug, Serialize, JsonSchema)]
struct Ended {
    /// The session that is gone.
    ended: String,
    /// Where its deliverables are on the user's machine, if they were kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs_on_host: Option<String>,
}

impl Answer for Ended {}

fn create(call: &Call, wanted: &Create) -> Result<Brief, Refusal> {
    let mut new = call.office().template.clone();
    if let Some(name) = &wanted.session {
        if !is_name(name) {
            return Err(Refusal::new("bad-arguments", "`session` is not a name for a session")
                .with_hint(
                    "3 to 63 characters: lower-case words joined by `-`, e.g. tidy-invoices",
                ));
        }
        new.id = Some(name.clone());
    }
    new.labels.insert(LABEL.to_owned(), MADE.to_owned());
    if let Some(Reach::Ask) = wanted.network {
        new.network.get_or_insert_default().otherwise = Otherwise::Ask;
    }
    call.tell("making the session");
    let session: Session = call.client()?.send(Method::Post, "/v1/sessions", &new)?;
    call.office().add(&session.id);
    Ok(Brief::from(&session))
}

/// Whether a text can be the id of a session.
fn is_name(text: &str) -> bool {
    let word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    (3..=63).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.split('-').all(word)
}

fn list(call: &Call, _nothing: &Nothing) -> Result<Sessions, Refusal> {
    let mut all: Vec<Session> = call.client()?.list(&Query::new("/v1/sessions"))?;
    all.retain(|session| call.reaches(session));
    let more = all.len() > MAX_SESSIONS;
    Ok(Sessions { sessions: all.iter().take(MAX_SESSIONS).map(Brief::from).collect(), more })
}

fn end(call: &Call, wanted: &End) -> Result<Ended, Refusal> {
    let mut client = call.client()?;
    let session = call.session(&mut client, wanted.session.as_deref())?;
    if session.labels.get(LABEL).is_none_or(|value| value != MADE) {
        return Err(Refusal::new(
            "not-ours",
            "the session belongs to the user: it was not made here",
        )
        .with_hint("the user ends it with `cowork rm`"));
    }
    let keep = (!wanted.discard_outputs).then_some("keep");
    let remove = Query::new(target(&session.id, "")).with_some("outputs", keep);
    client.call(&Request::new(Method::Delete, remove))?;
    call.office().forget(&session.id);
    let outputs = session.outputs.filter(|_| keep.is_some());
    Ok(Ended {
        ended: session.id,
        outputs_on_host: outputs.map(|outputs| harmless(&outputs.lossy())),
    })
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn names_are_words() {
        for good in ["abc", "tidy-invoices", "a1-2b"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "ab", "Abc", "a--b", "-abc", "abc-", "1ab", "a b c", "a/../b"] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
