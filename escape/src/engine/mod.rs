//! Attacks on grants and revocations, on the host's files that a session sees, and on the program of
//! PID 1, through the real keeper.
//!
//! The host's side is the attacker's accomplice here: it swaps folders while they are granted, and
//! writes a canary into a folder after it was taken away. Each person's attacks are made by a
//! process of that person's own, which is this program again with the word `engine`; it says what
//! came of each on one line.

mod itself;
mod revoked;
mod room;
mod shown;
mod swapped;

use crate::report::{Row, Verdict};
use cowork_testbed::{Folder, Person};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The class of these attacks in the table.
const CLASS: &str = "grants";
/// Between the parts of a line.
const SEPARATOR: char = '\t';
/// The last line of a process that came to its end.
const END: &str = "every attack was made";

/// An attack and what came of it.
type Came = (String, Verdict);

/// Makes every attack on sessions of `person` with this profile.
pub(crate) fn rows(person: Person, profile: &'static str) -> Vec<Row> {
    let row =
        |(attack, verdict)| Row { class: CLASS, attack, person, profile, way: "keeper", verdict };
    let came = match said_by_process_of(person, profile) {
        Ok(said) => read(&said),
        Err(why) => vec![("engine".to_owned(), Verdict::Vacuous(why))],
    };
    came.into_iter().map(row).collect()
}

/// What a process of the person says about the attacks it made.
fn said_by_process_of(person: Person, profile: &str) -> Result<String, String> {
    let folder = Folder::new(Person::Root, "engine");
    let program = folder.path().join("cowork-escape");
    let own = std::env::current_exe().map_err(|error| format!("no program: {error}"))?;
    std::fs::copy(own, &program).map_err(|error| format!("cannot copy the program: {error}"))?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("cannot open the copy to all: {error}"))?;
    let mut command = person.command(&program);
    command.arg("engine").arg(cowork_testbed::programs()).arg(profile).current_dir("/");
    let output = loop {
        match command.output() {
            // Another thread has just started something, which still has the copy open for writing.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            output => break output,
        }
    };
    let output = output.map_err(|error| format!("the attacker did not start: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if said.lines().last() == Some(END) {
        return Ok(said);
    }
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("the attacker ended early ({}): {said} {complaint}", output.status))
}

/// Makes every attack as whoever runs this process: `FOLDER-OF-PROGRAMS PROFILE`.
pub(crate) fn main(arguments: &[String]) {
    let [programs, profile] = arguments else {
        println!("say where the programs are, and which profile is attacked");
        return;
    };
    let scene = room::Attacked { programs: PathBuf::from(programs), profile: profile.clone() };
    let mut came = vec![swapped::attack(&scene), itself::attack(&scene)];
    came.extend(revoked::attacks(&scene));
    came.extend(shown::attacks(&scene));
    for (attack, verdict) in came {
        println!("{}", write(&attack, &verdict));
    }
    println!("{END}");
}

fn write(attack: &str, verdict: &Verdict) -> String {
    let (word, text) = match verdict {
        Verdict::Contained(text) => ("contained", text),
        Verdict::Escaped(text) => ("escaped", text),
        Verdict::Vacuous(text) => ("vacuous", text),
        Verdict::Unexpected(text) => ("unexpected", text),
        Verdict::ByDesign(text) => ("by-design", text),
        Verdict::NotRun(text) => ("not-run", text),
    };
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("{word}{SEPARATOR}{attack}{SEPARATOR}{text}")
}

fn read(said: &str) -> Vec<Came> {
    let lines = said.lines().filter(|line| *line != END);
    lines
        .filter_map(|line| {
            let mut parts = line.splitn(3, SEPARATOR);
            let (word, attack, text) = (parts.next()?, parts.next()?, parts.next()?.to_owned());
            let verdict = match word {
                "contained" => Verdict::Contained(text),
                "escaped" => Verdict::Escaped(text),
                "unexpected" => Verdict::Unexpected(text),
                "by-design" => Verdict::ByDesign(text),
                "not-run" => Verdict::NotRun(text),
                _ => Verdict::Vacuous(text),
            };
            Some((attack.to_owned(), verdict))
        })
        .collect()
}

/// A folder of this process's own user, removed at the end.
struct Ground(PathBuf);

impl Ground {
    fn new(name: &str) -> Result<Self, String> {
        let unique = format!("cowork-test-{}-engine-{name}", std::process::id());
        let path = Path::new("/var/tmp").join(unique);
        std::fs::create_dir(&path).map_err(|error| format!("no folder to attack in: {error}"))?;
        Ok(Self(path))
    }

    fn write(&self, name: &str, contents: &str) -> Result<PathBuf, String> {
        let path = self.0.join(name);
        let parent = path.parent().unwrap_or(&self.0);
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, contents))
            .map_err(|error| format!("cannot write {name}: {error}"))?;
        Ok(path)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::{END, Verdict, read, write};

    #[test]
    fn what_one_process_writes_the_other_reads() {
        for verdict in [
            Verdict::Contained("a".into()),
            Verdict::Escaped("b".into()),
            Verdict::Vacuous("c".into()),
            Verdict::Unexpected("u".into()),
            Verdict::ByDesign("d".into()),
            Verdict::NotRun("e".into()),
        ] {
            let said = format!("{}\n{END}\n", write("attack", &verdict));
            assert_eq!(read(&said), [("attack".to_owned(), verdict)]);
        }
    }
}
