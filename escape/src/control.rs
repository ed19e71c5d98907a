//! Races without the wall: the same sessions, of programs whose own mounts of `rw` folders can be
//! written to (the feature `no-wall-for-control` of `cowork-sandbox`). The broker decides as ever; what
//! wins there, and not in sessions as they are shipped, is stopped by the read-only mount.

use crate::attack::Attack;
use crate::report::{Row, Verdict, name_of};
use crate::runner;
use crate::scene::Lost;
use crate::stage::Stage;
use crate::ways::Way;
use cowork_testbed::{Folder, Person};
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

/// What this program is told to be, to make the races without the wall.
pub(crate) const WORD: &str = "without-wall";
/// Between the parts of a line that the one process says to the other.
const SEPARATOR: char = '\u{1f}';

/// Tries of races, and what came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tries {
    made: u64,
    wins: u64,
    /// Stopped by the read-only mount alone.
    mount: u64,
}

impl Tries {
    /// As a race says it, anywhere in a text.
    fn said_in(text: &str) -> Self {
        let number = |after: &str| {
            let (start, _) = text.split_once(after)?;
            let digits = start.rsplit(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse().ok()
        };
        let (wins, tries) = (number(" wins in "), number(" tries, "));
        let mount = number(" stopped by the mount");
        let read = |value: Option<u64>| value.unwrap_or_default();
        Self { made: read(tries), wins: read(wins), mount: read(mount) }
    }

    fn add(&mut self, other: Self) {
        self.made += other.made;
        self.wins += other.wins;
        self.mount += other.mount;
    }
}

impl fmt::Display for Tries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { made, wins, mount } = self;
        write!(f, "{wins} wins in {made} tries, {mount} stopped by the read-only mount alone")
    }
}

/// Whether tries of an attack are counted.
fn is_race(attack: &str) -> bool {
    attack.starts_with("race.")
}

/// In a process that has programs without the wall: makes every race and says what came of it.
pub(crate) fn serve(only: &str, tries: Option<u64>) -> Result<(), Lost> {
    let made = std::thread::scope(|scope| {
        let threads = Person::ALL.map(|person| scope.spawn(move || races_of(person, only, tries)));
        threads.map(|thread| thread.join().unwrap_or_else(|_| Err(Lost::new("a thread panicked"))))
    });
    for lines in made {
        lines?.iter().for_each(|line| println!("{line}"));
    }
    Ok(())
}

fn races_of(person: Person, only: &str, tries: Option<u64>) -> Result<Vec<String>, Lost> {
    let stage = Stage::new(person, tries)?;
    let wanted = |attack: &&Attack| is_race(attack.name) && attack.name.contains(only);
    let said = Attack::all().filter(wanted).map(|attack| {
        let verdict = runner::confined(&stage, attack, ("strict", Way::Daemon));
        let separator = SEPARATOR;
        format!("{}{separator}{}{separator}{}", attack.name, name_of(person), verdict.text())
    });
    Ok(said.collect())
}

/// The programs of a folder, and beside them those that it lacks.
fn completed(programs: &Path) -> Result<Folder, Lost> {
    let folder = Folder::new(Person::Root, "without-wall");
    for entry in std::fs::read_dir(cowork_testbed::programs())?.flatten() {
        let own = programs.join(entry.file_name());
        let from = if own.is_file() { own } else { entry.path() };
        std::fs::copy(from, folder.path().join(entry.file_name()))?;
    }
    if !programs.join("cowork-keeper").is_file() {
        return Err(Lost::new(format!("there is no keeper in {}", programs.display())));
    }
    Ok(folder)
}

/// Makes the races of these rows once more, with the programs in a folder that have no wall, and
/// shows what came of them beside what came of them in sessions and on the bare host.
pub(crate) fn compare(
    rows: &[Row],
    programs: &Path,
    (only, tries): (&str, Option<u64>),
) -> Result<(), Lost> {
    let programs = completed(programs)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args([WORD, "--only", only]).env("COWORK_PROGRAMS", programs.path());
    if let Some(tries) = tries {
        command.args(["--tries", &tries.to_string()]);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(Lost::new(format!("no races without the wall: {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut inside, mut bare, mut without) =
        (Tries::default(), Tries::default(), Tries::default());
    println!("\nwithout the wall");
    for line in text.lines() {
        let mut parts = line.splitn(3, SEPARATOR);
        let (Some(name), Some(person), Some(said)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let tries = Tries::said_in(said);
        // One that says nothing of tries could not be made.
        println!(
            "{name:<44} {person:<4} {}",
            if tries.made > 0 { tries.to_string() } else { said.to_owned() }
        );
        without.add(tries);
    }
    for row in rows.iter().filter(|row| is_race(&row.attack)) {
        let text = row.verdict.text();
        let (said, beside) = text.split_once("; bare: ").unwrap_or((text, ""));
        if !matches!(row.verdict, Verdict::Vacuous(_)) {
            inside.add(Tries::said_in(said));
        }
        bare.add(Tries::said_in(beside));
    }
    println!("\nin sessions: {inside}\nwithout the wall: {without}\non the bare host: {bare}");
    match without.wins {
        0 => Err(Lost::new("nothing wins without the wall: the control proves nothing")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::Tries;

    #[test]
    fn what_a_race_says_is_read_wherever_it_says_it() {
        let tries = Tries { made: 40, wins: 3, mount: 7 };
        for text in [
            "3 wins in 40 tries, 7 stopped by the mount alone",
            "broker (3 wins in 40 tries, 7 stopped by the mount alone)",
            "`a b` changed; 3 wins in 40 tries, 7 stopped by the mount alone",
        ] {
            assert_eq!(Tries::said_in(text), tries, "{text}");
        }
        assert_eq!(Tries::said_in("cannot be set up: it is in the way"), Tries::default());
        assert_eq!(tries.to_string(), "3 wins in 40 tries, 7 stopped by the read-only mount alone");
    }
}
