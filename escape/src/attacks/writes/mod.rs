//! A folder whose changes go through the broker: names that a rule refuses, files beside the folder,
//! and races against whoever judges.
//!
//! Every run has a ground of its own in the writable folder, put there by the host, with canaries
//! under names that the session's rules refuse. Winning is a change of a canary, or of any name
//! that is refused, as the host sees it afterwards. Bare, nobody judges, and every attack wins.

mod crowds;
mod ground;
mod handles;
mod mounts;
mod names;
mod races;
mod trials;
mod types;

use crate::attack::{Attack, layer};
use crate::scene::{Lost, Outcome, Scene, YARD};

pub(crate) use crowds::TABLE as CROWDS;
pub(crate) use handles::TABLE as HANDLES;
pub(crate) use mounts::TABLE as MOUNTS;
pub(crate) use names::TABLE as NAMES;
pub(crate) use races::TABLE as RACES;
pub(crate) use types::TABLE as TYPES;

const CLASS: &str = "writes";

/// How the broker and what stands behind it refuse.
const WALL: &[(&str, &str)] = &[
    ("EACCES", layer::BROKER),
    ("EROFS", layer::READ_ONLY),
    ("EXDEV", layer::TWO_MOUNTS),
    ("EBADF", "the descriptor is for reading"),
    ("EPERM", layer::FILTER),
    ("ENOSYS", layer::FILTER),
    ("ENOENT", layer::MOUNTS),
    ("EOPNOTSUPP", layer::FILTER),
    ("EBUSY", "one listener only"),
    ("EIO", "the kernel: the mapping is for reading"),
    ("EINVAL", "the descriptor is for reading"),
    ("SIGSYS", layer::FILTER),
    ("the child ended with status 0x1f", layer::FILTER),
    ("0 wins", layer::BROKER),
];

/// An attack on the ground of its run.
const fn attack(name: &'static str, act: fn(&Scene) -> Outcome) -> Attack {
    Attack::new(CLASS, name, act, WALL)
        .refusing(&["protected/**", "*.git/hooks/!*.sample"])
        .prepared(ground::prepare)
        .judged(ground::changed)
}

/// A path on the ground of this run.
fn on(scene: &Scene, name: &str) -> Result<String, Lost> {
    Ok(format!("{YARD}/ground-{}/{name}", scene.token()?))
}

/// Writes the run's token over a file that is there.
fn put(scene: &Scene, path: &str) -> Outcome {
    use std::io::Write;
    let mut file = std::fs::File::options().write(true).open(path)?;
    file.write_all(scene.token()?.as_bytes())?;
    Ok("written".into())
}

/// Makes a file with the run's token, and the folders it is in.
fn make(scene: &Scene, path: &str) -> Outcome {
    if let Some(parent) = std::path::Path::new(path).parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, scene.token()?)?;
    Ok("made".into())
}
