//! Granting and revoking folders while a session runs, and paths in both views.

use super::{on, session, target};
use crate::arguments::{Grant, PathOf, Revoke};
use crate::daemon;
use crate::failure::{Failure, note};
use crate::request::{self, Consent};
use crate::show::{self, progress, units};
use cowork_client::http::{Client, Method, Request};
use cowork_client::types::{self, GrantChange, NewGrant, Raw, Regranted, Revoked, Translated};
use cowork_client::uri::{self, Query};
use cowork_policy::files::Settings;
use cowork_policy::{GrantName, HostPath, Span, plan};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Longest time after which a grant ends by itself: ten years.
const LONGEST: Duration = Duration::from_hours(3650 * 24);

/// `cowork grant`: a new folder, or another access for one that is granted.
pub(crate) fn grant(options: &Grant) -> Result<ExitCode, Failure> {
    let consent = if options.force { Consent::Forced } else { Consent::None };
    let access = request::access(options.folder.access());
    let path = request::folder(options.folder.path(), access, consent)?;
    let name = match options.folder.name() {
        Some(name) => name.as_str().to_owned(),
        None => named_after(&path)?,
    };
    let new = NewGrant {
        path: request::raw(&path),
        access,
        name: Some(name),
        force: options.force,
        direct: request::direct(&options.writes),
        writes: request::writes(&options.writes, &Settings::default()),
        expires: options.span.map(moment_in).transpose()?,
    };
    if !new.direct.is_empty() {
        request::need_recorded(std::iter::once(options.folder.access()))?;
    }
    let mut client = daemon::connect()?;
    let (id, known) = on(&mut client, &options.session, |client, id| {
        client.get::<Vec<types::Grant>>(target(id, "/grants"))
    })?;
    let known = known.iter().find(|known| Some(&known.name) == new.name.as_ref());
    let known = known.filter(|known| known.path == new.path);
    if let Some(known) = known {
        keeps_direct(&id, known, &new)?;
    }
    match known {
        Some(known) if is_same(known, &new) => {
            note(&format!("session {id} has that folder already"));
            told(options, known)
        }
        Some(known) => change(&mut client, &id, known, options, &new),
        None => {
            let grant: types::Grant = progress::during("granting the folder", || {
                client.send(Method::Post, target(&id, "/grants"), &new)
            })?;
            told(options, &grant)
        }
    }
}

/// Refuses other folders without a record for a folder that is granted already: they are mounts that
/// are made with it.
fn keeps_direct(id: &str, known: &types::Grant, new: &NewGrant) -> Result<(), Failure> {
    let Some(other) = new.direct.iter().find(|below| !known.direct.contains(below)) else {
        return Ok(());
    };
    let sentence = format!(
        "`{}` is granted already, without `--direct {}`: which folders in it are written without a \
         record is settled when it is granted",
        show::raw(&known.path),
        show::raw(other)
    );
    let hint = format!("`cowork revoke {id} {}` first, and grant it again", known.name);
    Err(Failure::input(sentence, hint))
}

/// Whether nothing is to be changed.
fn is_same(known: &types::Grant, new: &NewGrant) -> bool {
    known.access == new.access && new.writes.is_empty() && new.expires.is_none()
}

/// The moment after a span, as the API has it.
fn moment_in(span: Span) -> Result<String, Failure> {
    let moment = SystemTime::now().checked_add(span.duration());
    let moment = moment.filter(|_| span.duration() <= LONGEST).ok_or_else(|| {
        let sentence = format!("a folder is not granted for `{span}`");
        Failure::input(sentence, "say at most 3650d, or leave it out".to_owned())
    })?;
    Ok(humantime::format_rfc3339_millis(moment).to_string())
}

fn named_after(path: &std::path::Path) -> Result<String, Failure> {
    let unusable = |error: String| {
        let hint = format!("give it a name: `{}=name`", path.display());
        Failure::input(format!("the folder cannot be named after itself: {error}"), hint)
    };
    let path = HostPath::new(path).map_err(|error| unusable(error.to_string()))?;
    let name = GrantName::from_path(&path).map_err(|error| unusable(error.to_string()))?;
    Ok(name.as_str().to_owned())
}

fn change(
    client: &mut Client,
    id: &str,
    known: &types::Grant,
    options: &Grant,
    new: &NewGrant,
) -> Result<ExitCode, Failure> {
    let below = format!("/grants/{}", uri::segment(&known.name));
    let writes = Some(new.writes.clone()).filter(|writes| !writes.is_empty());
    let expires = new.expires.clone();
    let access = GrantChange { access: new.access, writes, expires };
    let changed: Regranted = progress::during("changing the grant", || {
        client.send(Method::Patch, target(id, &below), &access)
    })?;
    if options.output.json {
        return show::json(&changed);
    }
    for line in killed(&changed.revoked) {
        note(&line);
    }
    told(options, &changed.grant)
}

/// Says where the folder appears.
fn told(options: &Grant, grant: &types::Grant) -> Result<ExitCode, Failure> {
    if options.output.json {
        return show::json(grant);
    }
    for submount in &grant.submounts {
        let submount = submount.lossy();
        note(&format!("`{submount}` is mounted inside the granted folder and comes along"));
    }
    show::print(format!("{}\n", show::neutral::line(&grant.at)))
}

/// `cowork revoke`.
pub(crate) fn revoke(options: &Revoke) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let below = format!("/grants/{}", uri::segment(&options.name));
    let (_, revoked) = progress::during("revoking the grant", || {
        on(&mut client, &options.session, |client, id| {
            client.json::<Revoked>(&Request::new(Method::Delete, target(id, &below)))
        })
    })?;
    if options.output.json {
        return show::json(&revoked);
    }
    let mut lines = killed(&revoked);
    lines.push(match revoked.certainty.as_str() {
        "kernel" => "the folder is gone from the session: the kernel says so".to_owned(),
        "scan" => {
            "the folder is gone from the session: no process was found that holds on to it".into()
        }
        "session ended" => {
            "the session was ended: something in it held on to the folder out of reach".into()
        }
        "not running" => "the session does not run; it starts without the folder".into(),
        other => format!("the folder is gone from the session ({other})"),
    });
    show::print(lines.into_iter().map(|line| show::neutral::line(&line) + "\n").collect::<String>())
}

/// What a revocation killed, one sentence each.
fn killed(revoked: &Revoked) -> Vec<String> {
    let mut lines = Vec::new();
    if !revoked.killed.is_empty() {
        let count = units::count(revoked.killed.len(), "process", "processes");
        lines.push(format!("{count} held on to the folder and had to be killed:"));
    }
    for process in &revoked.killed {
        let inside = process.inside.map(|pid| format!(", {pid} in the session"));
        let inside = inside.unwrap_or_default();
        lines.push(format!("  {} (process {}{inside})", process.name, process.pid));
    }
    lines
}

/// `cowork path`.
pub(crate) fn path(options: &PathOf) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let (id, _) = session(&mut client, &options.session)?;
    let folder = format!("{}/{id}", plan::SESSIONS);
    let inside = options.inside || options.path.starts_with(&folder);
    let query = Query::new(target(&id, "/path"));
    let query = if inside {
        query.with("session", options.path.as_os_str().as_bytes())
    } else {
        let home = cowork_client::places::home();
        let path = request::expand(&options.path, home.as_deref());
        let path = std::path::absolute(&path).map_err(|error| {
            let sentence = format!("`{}` is no path", options.path.display());
            Failure::input(sentence, "").with_cause(error.to_string())
        })?;
        query.with("host", path.as_os_str().as_bytes())
    };
    let translated: Translated = client.get(query)?;
    if options.output.json {
        return show::json(&translated);
    }
    let other = if inside { &translated.host } else { &translated.session };
    let mut bytes = Raw::bytes(other).unwrap_or_default();
    bytes.push(b'\n');
    show::print(bytes)
}
