//! A folder whose path is swapped with a decoy's while it is granted.

use crate::engine::room::{Attacked, Room, Talk, grant_of};
use crate::engine::{Came, Ground};
use crate::report::Verdict;
use cowork_api::keeper::{Certainty, FailureCode};
use cowork_api::plan::Grant;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the folder is granted while the path is swapped.
const CYCLES: u32 = 10_000;
/// Longest that the naive way may take to lose.
const CONTROL: Duration = Duration::from_secs(20);

const MEANT: &str = "the folder that was meant";
const DECOY: &str = "the canary of the decoy";

/// Reads the file in the folder that each line names, and holds on to nothing.
const READER: &str = "
import sys
for line in sys.stdin:
    try:
        with open(sys.argv[1] + '/' + line.strip() + '/which') as file:
            seen = file.read()
        print(seen, flush=True)
    except OSError as error:
        print('nothing:', error, flush=True)
";

/// Two folders of the same shape, at paths that differ in one component.
struct Swap {
    ground: Ground,
}

impl Swap {
    fn set() -> Result<Self, String> {
        let ground = Ground::new("swap")?;
        ground.write("here/project/which", MEANT)?;
        ground.write("decoy/project/which", DECOY)?;
        Ok(Self { ground })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.ground.0.join(name)
    }

    /// What the user names.
    fn path(&self) -> PathBuf {
        self.at("here/project")
    }

    /// Swaps until it is told to stop, by two means in turn; leaves everything in its place.
    fn keep_swapping(&self, stop: &AtomicBool) {
        let exchange = |one: &Path, other: &Path| {
            cowork_sys::ignore(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE));
        };
        let (here, decoy, away) = (self.at("here"), self.at("decoy"), self.at("away"));
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..16 {
                // A component on the way, then the folder itself.
                exchange(&here, &decoy);
                exchange(&here, &decoy);
                exchange(&here.join("project"), &decoy.join("project"));
                exchange(&here.join("project"), &decoy.join("project"));
            }
            // A link in place of the component.
            cowork_sys::ignore(std::fs::rename(&here, &away));
            cowork_sys::ignore(std::os::unix::fs::symlink("decoy", &here));
            cowork_sys::ignore(std::fs::remove_file(&here));
            cowork_sys::ignore(std::fs::rename(&away, &here));
        }
    }
}

pub(super) fn attack(scene: &Attacked) -> Came {
    let verdict = judge(scene).unwrap_or_else(Verdict::Vacuous);
    ("path-swapped-during-grants".to_owned(), verdict)
}

fn judge(scene: &Attacked) -> Result<Verdict, String> {
    let swap = Swap::set()?;
    let named = grant_of(&swap.path())?;
    let mut attacked = Watched::make(scene)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| swap.keep_swapping(&stop));
        let verdict = match naive(&swap, &named) {
            None => Ok(Verdict::Vacuous("the naive way did not lose the race either".into())),
            Some(lost_after) => fight(&named, scene, &mut attacked, lost_after),
        };
        stop.store(true, Ordering::Relaxed);
        verdict
    })
}

/// A session with somebody in it who tells what is granted.
struct Watched {
    reader: Talk,
    room: Room,
    /// Folders that it was granted and that were not taken away.
    held: u32,
}

impl Watched {
    fn make(scene: &Attacked) -> Result<Self, String> {
        let mut room = scene.room()?;
        let at = room.grants();
        let reader = room.start(&["/usr/bin/python3", "-u", "-c", READER, &at])?;
        Ok(Self { reader, room, held: 0 })
    }

    /// Takes the folder away. Where that ends the session, it is done only now and then, and a new
    /// session follows.
    fn tidy(&mut self, scene: &Attacked, name: &str) -> Result<(), String> {
        /// Folders that a session collects where taking one away ends it.
        const COLLECTED: u32 = 64;
        self.held += 1;
        if scene.profile == "nested" && self.held < COLLECTED {
            return Ok(());
        }
        match self.room.revoke(name)?.certainty {
            Certainty::SessionEnded => *self = Self::make(scene)?,
            Certainty::Kernel | Certainty::Scan => self.held = 0,
        }
        Ok(())
    }
}

fn fight(
    named: &Grant,
    scene: &Attacked,
    watched: &mut Watched,
    lost_after: u32,
) -> Result<Verdict, String> {
    let (mut right, mut changed) = (0, 0);
    for cycle in 0..CYCLES {
        let name = format!("project-{cycle}");
        match watched.room.grant(Grant { name: name.clone(), ..named.clone() })? {
            Ok(()) => {}
            Err(failure) if failure.code == FailureCode::FolderChanged => {
                changed += 1;
                continue;
            }
            Err(failure) => {
                return Err(format!("cycle {cycle} failed otherwise: {}", failure.sentence));
            }
        }
        watched.reader.say(&name);
        let seen = watched.reader.line().unwrap_or_default();
        if seen.contains(DECOY) {
            return Ok(Verdict::Escaped(format!("the decoy was granted in cycle {cycle}")));
        }
        if seen != MEANT {
            return Err(format!("cycle {cycle} showed neither folder: {seen}"));
        }
        right += 1;
        watched.tidy(scene, &name)?;
    }
    if right == 0 || changed == 0 {
        return Err(format!("no race was run: {right} granted, {changed} refused"));
    }
    Ok(Verdict::Contained(format!(
        "the handle's identity: {right} grants of the right folder, {changed} refused; the naive \
         way lost after {lost_after} tries"
    )))
}

/// Looks at the path and then uses it, as if nothing could happen in between. Says after how many
/// tries that got the decoy.
fn naive(swap: &Swap, meant: &Grant) -> Option<u32> {
    let deadline = Instant::now() + CONTROL;
    let path = swap.path();
    let mut tries = 0;
    while Instant::now() < deadline {
        tries += 1;
        let Ok(seen) = std::fs::metadata(&path) else { continue };
        if seen.dev() != meant.folder.device || seen.ino() != meant.folder.inode {
            continue;
        }
        if std::fs::read_to_string(path.join("which")).is_ok_and(|text| text == DECOY) {
            return Some(tries);
        }
    }
    None
}
