//! Questions of agents: put to the user, answered, and remembered.

use crate::for_everyone;
use crate::site::{Site, came_of};
use cowork_client::types::{Task, TaskState};
use cowork_testbed::Person;
use serde_json::{Value, json};
use std::io::Write;

for_everyone!(
    a_question_waits_for_an_answer,
    a_person_at_a_terminal_is_asked_there,
    a_no_is_told_with_its_reason,
    everything_can_be_answered_beforehand,
    an_answer_for_the_session_is_not_asked_again,
    what_nobody_waits_for_is_withdrawn,
);

fn a_question_waits_for_an_answer(person: Person) {
    let site = Site::new(person);
    let child = site.ask_beside("may echo yes > made.txt\nanswer done", &[]);
    let request = site.pending();
    assert_eq!(request["kind"], "tool");
    let wanted = request["wanted"].as_str().expect("it is text");
    assert!(wanted.starts_with("Bash: echo yes > made.txt"), "{wanted}");
    let id = site.only_session();
    assert_eq!(site.task(&id, 1).state, TaskState::Asking);
    assert_eq!(site.task(&id, 1).requests, [request["id"].as_u64().expect("a number")]);
    assert_eq!(site.read("made.txt"), None);
    let listed = site.say(&["requests"]).good();
    assert!(listed.contains("use") && listed.contains("made.txt"), "{listed}");
    site.say(&["decide", &request["id"].to_string(), "allow"]).good();
    let said = came_of(child);
    assert!(said.err.contains("waits for your answer (tool)"), "{}", said.err);
    assert!(said.err.contains("asked    allowed: Bash"), "{}", said.err);
    assert_eq!(said.good(), "done\n");
    assert_eq!(site.read("made.txt").as_deref(), Some("yes\n"));
    assert_eq!(site.records("request.created").len(), 1);
    assert_eq!(site.records("request.decided").len(), 1);
    let states: Vec<Value> =
        site.events("task.state").into_iter().map(|event| event.data["to"].clone()).collect();
    assert_eq!(states, ["running", "asking", "running", "done"]);
}

fn a_person_at_a_terminal_is_asked_there(person: Person) {
    let site = Site::new(person);
    let mut child = site.ask_on_terminal(
        "may echo one >> made.txt\nmay echo two >> made.txt\nmay echo two >> made.txt\n\
         may echo three >> made.txt\nanswer done",
    );
    let mut typed = child.stdin.take().expect("it is piped");
    let mut answered = Vec::new();
    // What is no answer is asked again; one for the session stands for the next of its kind.
    for lines in ["maybe\ny\n", "s\n", "n\n"] {
        let request = site.until(|| {
            let next = site.pending()["id"].to_string();
            (!answered.contains(&next)).then_some(next)
        });
        typed.write_all(lines.as_bytes()).expect("it reads");
        answered.push(request);
    }
    let said = came_of(child);
    drop(typed);
    assert_eq!(said.out.matches("? tool: Bash: echo").count(), 3, "{}", said.out);
    assert_eq!(said.out.matches("yes for this [s]ession").count(), 4, "{}", said.out);
    assert!(said.out.contains("done\r\n"), "{}", said.out);
    assert_eq!(said.code, 0, "{}", said.out);
    assert_eq!(site.read("made.txt").as_deref(), Some("one\ntwo\ntwo\n"));
    assert_eq!(site.records("request.decided").len(), 3);
}

fn a_no_is_told_with_its_reason(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "may echo yes > made.txt");
    let request = site.pending()["id"].to_string();
    site.say(&["decide", &request, "reject", "--note", "not today"]).good();
    let task = site.over(&id, 1);
    assert_eq!(task.state, TaskState::Done);
    assert!(site.texts(&id, 1).contains(&"refused: not today".to_owned()));
    assert_eq!(site.read("made.txt"), None);
    assert_eq!(task.summary.expect("it is over").failed_tools, 1);
    let again = site.say(&["decide", &request, "allow"]);
    assert!(again.code != 0 && again.err.contains("answered already"), "{}", again.err);
}

fn everything_can_be_answered_beforehand(person: Person) {
    let site = Site::new(person);
    let said = site.ask("may echo yes > made.txt", &["--yes"]);
    assert_eq!(said.good(), "ok\n");
    assert_eq!(site.read("made.txt").as_deref(), Some("yes\n"));
    assert_eq!(site.records("task.allowed").len(), 1);
    site.ask("may echo no > made.txt\nother", &["--no"]).good();
    assert_eq!(site.read("made.txt").as_deref(), Some("yes\n"));
    let denied = site.records("task.denied");
    assert_eq!((denied.len(), &denied[0].data["by"]), (1, &json!("deny")));
    let id = site.only_session();
    let said = site.texts(&id, 2).join("\n");
    assert!(said.contains("`mcp_message` is not known here"), "{said}");
    assert_eq!(site.records("request.created").len(), 0);
}

fn an_answer_for_the_session_is_not_asked_again(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "may echo one\nmay echo one\nmay echo two");
    let first = site.pending();
    site.say(&["decide", &first["id"].to_string(), "allow", "--session"]).good();
    let second = site.until(|| {
        let next = site.pending();
        (next["id"] != first["id"]).then_some(next)
    });
    let wanted = second["wanted"].as_str().expect("it is text");
    assert!(wanted.contains("echo two"), "the same was not asked again: {wanted}");
    site.say(&["decide", &second["id"].to_string(), "reject"]).good();
    site.over(&id, 1);
    assert_eq!(site.records("task.allowed").len(), 1);
    assert!(site.texts(&id, 1).contains(&"refused: the user said no".to_owned()));
}

fn what_nobody_waits_for_is_withdrawn(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "may echo one");
    let request = site.pending()["id"].to_string();
    let task: Task = site
        .post(&format!("/v1/sessions/{id}/tasks/1/cancel"), &json!({}))
        .expect("it can be cancelled");
    assert_eq!(task.state, TaskState::Cancelled);
    let known: Value = site.get(format!("/v1/requests/{request}")).expect("it is there");
    assert_eq!(known["state"], "expired");
    assert!(task.requests.is_empty());
}
