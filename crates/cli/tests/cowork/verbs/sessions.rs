//! `new`, `ls`, `status`, `set`, `stop`, `start`, `rm`: sessions that stay.

use super::{Desk, asleep, id, is_there, text};
use crate::support::{for_everyone, until};
use cowork_testbed::{Folder, Person};

for_everyone!(
    sessions_are_listed_and_shown,
    sessions_are_named_by_their_start,
    labels_find_sessions,
    a_session_that_is_stopped_keeps_its_home,
    nothing_stays_of_a_session_that_is_removed,
    outputs_stay_if_they_are_meant_to,
    all_of_several_are_removed_or_none,
);

fn sessions_are_listed_and_shown(person: Person) {
    let desk = Desk::new(person);
    let id = &id("listed", person);
    desk.make(id, &["--label", "team=red"]);
    let table = desk.good(&["ls"]);
    let mut lines = table.lines();
    assert_eq!(
        lines.next().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")),
        Some("ID STATE AGE GRANTS COMMANDS LABELS".to_owned())
    );
    let line = lines.find(|line| line.starts_with(id.as_str())).expect("it is listed");
    let [_, state, _, grants, commands, labels] =
        line.split_whitespace().collect::<Vec<_>>().try_into().expect("it has six columns");
    assert_eq!((state, grants, commands, labels), ("ready", "work", "0", "team=red"));

    let status = desk.json(&["status", "--json", id]);
    assert_eq!(text(&status["id"]), *id);
    assert_eq!(text(&status["folder"]), format!("/sessions/{id}"));
    let grant = &status["grants"][0];
    assert_eq!(text(&grant["path"]), desk.path());
    assert_eq!(text(&grant["at"]), format!("/sessions/{id}/mnt/work"));
    assert_eq!(text(&grant["access"]), "rw");
    let pid = status["sandbox"]["pid"].as_u64().expect("it has a process");
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    assert_eq!(name.ok().as_deref(), Some("cowork-init\n"), "the sandbox runs on the host");
    let listed = desk.json(&["ls", "--json"]);
    let listed = listed.as_array().expect("it is a list");
    assert!(listed.iter().any(|one| one["id"] == status["id"]), "{listed:?}");

    let shown = desk.good(&["status", id]);
    assert!(shown.starts_with(&format!("{id}  ready\n")), "{shown}");
    for part in ["tier        native, profile strict", "layers in force", "labels      team=red"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let sentence = format!(
        "cowork: there is a session `{id}` already\n  hint: choose another id, or remove that \
         one\n"
    );
    desk.refused(&["new", "--id", id], 1, &sentence);

    let made = desk.good(&["new"]);
    let made = made.trim_end();
    desk.sessions.borrow_mut().push(made.to_owned());
    assert!(made.split('-').count() >= 2, "an id is made of words: {made}");
    assert_eq!(desk.json(&["status", "--json", made])["grants"], serde_json::json!([]));
}

fn sessions_are_named_by_their_start(person: Person) {
    let desk = Desk::new(person);
    desk.make("twofold-bohr", &[]);
    desk.make("twofold-curie", &[]);
    assert!(desk.good(&["status", "twofold-b"]).starts_with("twofold-bohr "));
    assert_eq!(desk.good(&["exec", "twofold-c", "--", "hostname"]), "twofold-curie\n");
    let several = "cowork: `twofold` could be any of twofold-bohr, twofold-curie\n  hint: write \
                   more of the id\n";
    desk.refused(&["status", "twofold"], 1, several);
    desk.refused(&["exec", "twofold", "--", "true"], 125, several);
    let none = "cowork: there is no session `nowhere`\n  hint: list them with `cowork ls`\n";
    for verb in ["status", "stop", "start", "pause", "resume", "cancel", "rm", "usage", "logs"] {
        desk.refused(&[verb, "nowhere"], 1, none);
    }
    desk.refused(&["grant", "nowhere", "."], 1, none);
    desk.refused(&["revoke", "nowhere", "x"], 1, none);
    desk.refused(&["set", "nowhere", "--processes", "9"], 1, none);
    desk.refused(&["path", "nowhere", "."], 1, none);
    desk.refused(&["requests", "nowhere"], 1, none);
    desk.refused(&["cp", "nowhere:outputs/x", "."], 1, none);
    for verb in ["exec", "shell", "attach"] {
        let arguments = [verb, "nowhere", "--", "true"];
        let arguments = if verb == "exec" { &arguments[..] } else { &arguments[..2] };
        desk.refused(arguments, 125, none);
    }
}

fn labels_find_sessions(person: Person) {
    let desk = Desk::new(person);
    let (one, two) = (&id("labelone", person), &id("labeltwo", person));
    desk.make(one, &["--label", "colour=teal", "--label", "size=big"]);
    desk.make(two, &["--label", "colour=teal"]);
    let find = |options: &[&str]| desk.good(&[&["ls", "--quiet"], options].concat());
    assert_eq!(find(&["--label", "colour=teal"]), format!("{one}\n{two}\n"));
    assert_eq!(find(&["--label", "colour=teal", "--label", "size=big"]), format!("{one}\n"));
    assert_eq!(find(&["--label", "colour=none"]), "");
    assert_eq!(desk.good(&["set", one, "--unlabel", "colour", "--label", "size=small"]), "");
    assert_eq!(find(&["--label", "colour=teal"]), format!("{two}\n"));
    assert_eq!(find(&["--label", "size=small"]), format!("{one}\n"));
    assert_eq!(desk.good(&["stop", two]), "");
    assert_eq!(find(&["--label", "colour=teal", "--state", "stopped"]), format!("{two}\n"));
    assert_eq!(find(&["--label", "colour=teal", "--state", "ready"]), "");
    let nothing = "cowork: there is nothing to change\n  hint: see `cowork set --help` for what \
                   can be changed\n";
    desk.refused(&["set", one], 1, nothing);
}

fn a_session_that_is_stopped_keeps_its_home(person: Person) {
    let desk = Desk::new(person);
    let id = &id("turned", person);
    desk.make(id, &[]);
    desk.sh(id, "echo kept > file; echo gone > /tmp/file; sleep 1000 > /dev/null 2>&1 &").good();
    let before = asleep(&desk, "1000");
    assert_eq!(desk.good(&["stop", id]), "");
    assert!(!before.iter().any(crate::support::Process::exists), "its processes have ended");
    assert_eq!(desk.state(id), "stopped");
    let sentence = "cowork: the session is stopped\n  hint: start it with `cowork start`\n";
    desk.refused(&["exec", id, "--", "true"], 125, sentence);
    assert_eq!(desk.good(&["start", id]), "");
    let seen = desk.sh(id, "cat file; ls /tmp; ls mnt/work; touch mnt/work/again");
    assert_eq!(seen.good(), "kept\n");
    assert!(desk.work.read("again").is_some(), "the grant is back");
    desk.refused(&["start", id], 1, "cowork: the session is ready already\n");
}

fn nothing_stays_of_a_session_that_is_removed(person: Person) {
    let desk = Desk::new(person);
    let id = &id("removed", person);
    desk.make(id, &[]);
    desk.sh(id, "echo x > file; echo y > mnt/outputs/y; sleep 1000 > /dev/null 2>&1 &").good();
    let found = asleep(&desk, "1000");
    let place = person.state().join("sessions").join(id);
    assert!(is_there(place.join("outputs/y")));
    let told =
        "cowork: 1 file of mnt/outputs removed with the session: `--keep-outputs` keeps them\n";
    let ran = desk.say(&["rm", id]);
    assert_eq!((ran.code, ran.text(), ran.err.as_str()), (0, "", told));
    assert!(!found.iter().any(crate::support::Process::exists), "its processes have ended");
    until("its folder is gone", || !is_there(&place));
    assert!(!desk.ids().contains(id));
    let sentence =
        format!("cowork: there is no session `{id}`\n  hint: list them with `cowork ls`\n");
    desk.refused(&["rm", id], 1, &sentence);
    // The record outlives the session.
    assert!(desk.good(&["audit", id, "--type", "session.removed"]).contains(id.as_str()));
}

fn outputs_stay_if_they_are_meant_to(person: Person) {
    let desk = Desk::new(person);
    let id = &id("delivers", person);
    desk.make(id, &[]);
    desk.sh(id, "echo secret > file; echo report > mnt/outputs/report").good();
    let outputs = text(&desk.json(&["status", "--json", id])["outputs"]);
    let ran = desk.say(&["rm", "--keep-outputs", id]);
    let told = format!("cowork: 1 file of mnt/outputs kept in `{outputs}`\n");
    assert_eq!((ran.code, ran.text(), ran.err.as_str()), (0, "", told.as_str()));
    let report = std::fs::read_to_string(format!("{outputs}/report"));
    assert_eq!(report.ok().as_deref(), Some("report\n"));
    let place = person.state().join("sessions").join(id);
    let left = ["outputs", "outputs/report", "session.json"].map(str::to_owned);
    assert_eq!(crate::support::listing(&place), left.into(), "and what session they are of");

    let folder = Folder::new(person, "delivered");
    let id = &super::id("elsewhere", person);
    let path = folder.path().to_str().expect("test folders are text");
    desk.make(id, &["--outputs", path]);
    desk.sh(id, "echo report > mnt/outputs/report").good();
    assert_eq!(desk.good(&["rm", id]), "");
    assert_eq!(folder.read("report").as_deref(), Some("report\n"), "it is the user's own folder");
}

fn all_of_several_are_removed_or_none(person: Person) {
    let desk = Desk::new(person);
    let (one, two) = (&id("manyone", person), &id("manytwo", person));
    desk.make(one, &[]);
    desk.make(two, &[]);
    let none = "cowork: there is no session `nowhere`\n  hint: list them with `cowork ls`\n";
    desk.refused(&["rm", one, "nowhere", two], 1, none);
    assert!(desk.ids().contains(one) && desk.ids().contains(two));
    let removed = desk.json(&["rm", "--json", one, two]);
    assert_eq!(removed, serde_json::json!({ "removed": [one, two] }));
    assert!(!desk.ids().contains(one) && !desk.ids().contains(two));
}
