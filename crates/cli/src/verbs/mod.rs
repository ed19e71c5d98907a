//! The verbs that ask the daemon, one module per family, and how they name sessions.

pub(crate) mod agents;
pub(crate) mod ask;
pub(crate) mod audit;
pub(crate) mod changes;
pub(crate) mod commands;
pub(crate) mod copy;
pub(crate) mod default;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod grants;
pub(crate) mod history;
pub(crate) mod logs;
pub(crate) mod mcp;
pub(crate) mod net;
pub(crate) mod policy_import;
pub(crate) mod ports;
pub(crate) mod protect;
pub(crate) mod requests;
pub(crate) mod rules;
pub(crate) mod run;
pub(crate) mod secrets;
pub(crate) mod sessions;
pub(crate) mod status;
pub(crate) mod tasks;
pub(crate) mod undo;
pub(crate) mod usage;

use crate::arguments::DEFAULT;
use crate::failure::Failure;
use cowork_client::http::{Client, HttpError};
use cowork_client::types::Session;
use cowork_client::uri::{self, Query};

/// The target of something below a session; `below` is escaped already.
pub(crate) fn target(id: &str, below: &str) -> String {
    format!("/v1/sessions/{}{below}", uri::segment(id))
}

/// Asks something about the session that the user names: by its id, or by a start that no other
/// session has. The id comes back with the answer.
pub(crate) fn on<T>(
    client: &mut Client,
    name: &str,
    mut ask: impl FnMut(&mut Client, &str) -> Result<T, HttpError>,
) -> Result<(String, T), Failure> {
    let missing = match ask(client, name) {
        Ok(answer) => return Ok((name.to_owned(), answer)),
        Err(HttpError::Problem(problem)) if problem.status == 404 => problem,
        Err(error) => return Err(error.into()),
    };
    // Whatever is missing, it is missing in a session that is there.
    let known = ids(client)?;
    if known.iter().any(|id| id == name) {
        return Err((*missing).into());
    }
    let id = only(name, &known)?;
    let answer = ask(client, &id)?;
    Ok((id, answer))
}

/// The id of the session that the user names.
pub(crate) fn id(client: &mut Client, name: &str) -> Result<String, Failure> {
    let (id, _session) = session(client, name)?;
    Ok(id)
}

/// The id of the session that the user names, or the name itself if no session has it.
pub(crate) fn known_or(client: &mut Client, name: &str) -> Result<String, Failure> {
    let known = ids(client)?;
    let exact = known.iter().any(|id| id == name);
    Ok(if exact { name.to_owned() } else { only(name, &known).unwrap_or_else(|_| name.into()) })
}

/// The session that the user names.
pub(crate) fn session(client: &mut Client, name: &str) -> Result<(String, Session), Failure> {
    on(client, name, |client, id| client.get(target(id, "")))
}

fn ids(client: &mut Client) -> Result<Vec<String>, HttpError> {
    let sessions: Vec<Session> = client.list(&Query::new("/v1/sessions"))?;
    Ok(sessions.into_iter().map(|session| session.id).collect())
}

/// The only one of `known` that starts with `name`.
fn only(name: &str, known: &[String]) -> Result<String, Failure> {
    let fits: Vec<&str> =
        known.iter().filter(|id| id.starts_with(name)).map(String::as_str).collect();
    match fits.as_slice() {
        [id] if !name.is_empty() => Ok((*id).to_owned()),
        [] if name == DEFAULT => {
            Err(Failure::input("there is no session `default`", "run `cowork init` first"))
        }
        [] => Err(Failure::input(
            format!("there is no session `{name}`"),
            "list them with `cowork ls`",
        )),
        several => Err(Failure::input(
            format!("`{name}` could be any of {}", several.join(", ")),
            "write more of the id",
        )),
    }
}

/// The session and the command that were named. A number alone is a command of the default
/// session.
pub(crate) fn named(session: Option<&str>, number: Option<u32>) -> (String, Option<u32>) {
    match (session, number) {
        (None, number) => (DEFAULT.to_owned(), number),
        (Some(session), None) => match session.parse() {
            Ok(number) => (DEFAULT.to_owned(), Some(number)),
            Err(_) => (session.to_owned(), None),
        },
        (Some(session), number) => (session.to_owned(), number),
    }
}

#[cfg(test)]
mod tests {
    use super::{named, only, target};

    #[test]
    fn a_start_must_be_unique() {
        let known = ["able-bohr", "able-curie", "bold-dirac"].map(str::to_owned);
        assert_eq!(only("bold", &known).ok().as_deref(), Some("bold-dirac"));
        assert!(format!("{:?}", only("able", &known)).contains("able-bohr, able-curie"));
        assert!(format!("{:?}", only("zeal", &known)).contains("there is no session `zeal`"));
        assert!(format!("{:?}", only("default", &known)).contains("cowork init"));
        assert!(only("", &known).is_err());
    }

    #[test]
    fn a_number_alone_is_a_command() {
        assert_eq!(named(None, None), ("default".into(), None));
        assert_eq!(named(Some("7"), None), ("default".into(), Some(7)));
        assert_eq!(named(Some("able-bohr"), None), ("able-bohr".into(), None));
        assert_eq!(named(Some("123"), Some(2)), ("123".into(), Some(2)));
    }

    #[test]
    fn no_name_reaches_another_resource() {
        assert_eq!(target("../info", "/stop"), "/v1/sessions/..%2Finfo/stop");
    }
}
