//! How long it takes to change a session that runs: grant, revoke, pause, resume, end.

use crate::book::Book;
use crate::engine::{self, Engine, Room};
use crate::options::Options;
use crate::plain::Small;
use crate::site::Site;
use crate::stopped::Stopped;
use cowork_policy::Access;
use cowork_policy::plan::GrantRequest;

pub(crate) const GRANT: &str = "grant";
/// The way to the keeper and back, which is in every other number.
pub(crate) const ROUND: &str = "question that the keeper refuses";
/// What is left to do for a session that was made in advance.
pub(crate) const FURNISHED: &str = "session made in advance: its folder";
pub(crate) const REVOKE: &str = "revoke";
pub(crate) const REVOKE_HELD: &str = "revoke, 4 holders killed";
pub(crate) const PAUSE: &str = "pause of 20 processes";
pub(crate) const RESUME: &str = "resume of 20 processes";
pub(crate) const TEARDOWN: &str = "end with 20 processes";
/// What of that is the kernel's, whoever asks for it.
const KERNEL: &str = "end of 20 processes in bare namespaces";

/// The ways to hold on to a folder: a working directory, an open folder, an open file, a mapping.
const HOLDS: [&str; 4] = ["directory", "folder", "file", "mapping"];

pub(crate) fn measure(site: &Site, options: &Options, book: &mut Book) -> Result<(), Stopped> {
    let mut engine = Engine::start(&site.programs)?;
    let other = engine::grant_of(&site.other(), Access::Read)?;
    let project = engine::project(site)?;
    let (room, _) = engine.create(std::slice::from_ref(&project))?;
    let mut kernel = match site.need_built() {
        Ok(()) => Some(Small::start(&site.project().join("crowd"), &[])?),
        Err(_) => None,
    };
    for round in 0..options.effort.pick(5, 100) {
        // Several, because these are the shortest times of all. The first grant of a session makes
        // the map of user ids that the others use again.
        for turn in 0..4 {
            book.took(ROUND, engine.ask_for_nothing()?);
            let granted = engine.grant(&room, &other)?;
            let (revoked, took) = engine.revoke(&room, &other.name)?;
            if !revoked.killed.is_empty() {
                return Err(Stopped::new("a folder that nobody used was said to be held"));
            }
            let name = if round == 0 && turn == 0 { "grant, first of a session" } else { GRANT };
            book.took(name, granted);
            book.took(REVOKE, took);
        }
        let (ready, _) = engine.create(&[])?;
        book.took(FURNISHED, engine.grant(&ready, &project)?);
        engine.destroy(ready)?;
        match site.need_built() {
            Ok(()) => {
                revoke_held(&mut engine, &project, &other, book)?;
                twenty(&mut engine, &project, book)?;
                if let Some(kernel) = &mut kernel {
                    book.took(KERNEL, kernel.time(b'1')?);
                }
            }
            Err(stopped) => {
                for name in [REVOKE_HELD, PAUSE, RESUME, TEARDOWN, KERNEL] {
                    book.absent(name, &stopped.to_string());
                }
            }
        }
    }
    engine.destroy(room)?;
    Ok(())
}

fn revoke_held(
    engine: &mut Engine,
    project: &GrantRequest,
    other: &GrantRequest,
    book: &mut Book,
) -> Result<(), Stopped> {
    let (mut room, _) = engine.create(std::slice::from_ref(project))?;
    engine.grant(&room, other)?;
    let folder = room.inside(other.name.as_str());
    for how in HOLDS {
        hold(&mut room, how, &folder)?;
    }
    let (revoked, took) = engine.revoke(&room, &other.name)?;
    if revoked.killed.len() != HOLDS.len() {
        let killed = revoked.killed.len();
        return Err(Stopped::new(format!("{killed} of {} holders were killed", HOLDS.len())));
    }
    book.took(REVOKE_HELD, took);
    engine.destroy(room)?;
    Ok(())
}

fn twenty(engine: &mut Engine, project: &GrantRequest, book: &mut Book) -> Result<(), Stopped> {
    let (mut room, _) = engine.create(std::slice::from_ref(project))?;
    for _ in 0..20 {
        hold(&mut room, "nothing", "/")?;
    }
    book.took(PAUSE, engine.freeze(&room)?);
    book.took(RESUME, engine.thaw(&room)?);
    book.took(TEARDOWN, engine.destroy(room)?);
    Ok(())
}

fn hold(room: &mut Room, how: &str, folder: &str) -> Result<(), Stopped> {
    room.stay(&["./holder", how, folder], "held")
}
