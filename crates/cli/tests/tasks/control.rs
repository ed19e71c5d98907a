//! Steering, pausing, resuming and cancelling.

use crate::for_everyone;
use crate::site::{Site, came_of};
use cowork_client::types::{Page, Task, TaskMessageKind, TaskState};
use cowork_testbed::Person;
use serde_json::json;
use std::time::Duration;

for_everyone!(
    an_agent_hears_what_is_said_while_it_works,
    what_is_said_too_late_is_still_done,
    a_paused_task_stands_still,
    a_cancelled_task_leaves_its_agent_for_the_next,
    an_agent_that_does_not_stop_is_ended,
    ask_returns_what_became_of_the_task,
);

/// 4 for a task that was called off, 5 for one whose session was stopped; 0 and 3 by themselves.
fn ask_returns_what_became_of_the_task(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    let ask = |number: u32, end: &dyn Fn()| {
        let child = site.ask_beside("say ready\nsleep 60", &["--session", &id]);
        site.until(|| {
            let tasks: Page<Task> = site.get(format!("/v1/sessions/{id}/tasks")).ok()?;
            tasks.items.iter().any(|task| task.number == number).then_some(())
        });
        site.said(&id, number, "ready");
        end();
        came_of(child)
    };
    let cancelled = ask(1, &|| drop(site.say(&["task", "cancel", &id]).good()));
    assert_eq!(cancelled.code, 4, "{cancelled:?}");
    assert!(cancelled.err.contains("task 1 of session"), "{cancelled:?}");
    assert!(cancelled.err.contains(": cancelled"), "{cancelled:?}");
    let interrupted = ask(2, &|| drop(site.say(&["stop", &id]).good()));
    assert_eq!(interrupted.code, 5, "{interrupted:?}");
    assert!(interrupted.err.contains(": interrupted"), "{interrupted:?}");
    // Nothing that is no answer is on standard output.
    assert_eq!((cancelled.out.as_str(), interrupted.out.as_str()), ("", ""));
    site.say(&["start", &id]).good();
    assert_eq!(site.ask("die 3", &["--session", &id]).code, 3);
    assert_eq!(site.ask("answer yes", &["--session", &id]).good(), "yes\n");
}

fn an_agent_hears_what_is_said_while_it_works(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "say ready\nhear\nanswer done");
    site.said(&id, 1, "ready");
    site.say(&["task", "steer", &id, "1", "--say", "say turn left"]).good();
    let task = site.over(&id, 1);
    assert_eq!(task.answer.as_deref(), Some("done"));
    let messages = site.messages(&id, 1);
    let said: Vec<(TaskMessageKind, &str)> =
        messages.iter().map(|message| (message.kind, message.text.as_str())).collect();
    let expected = [
        (TaskMessageKind::User, "say ready\nhear\nanswer done"),
        (TaskMessageKind::Text, "ready"),
        (TaskMessageKind::User, "say turn left"),
        (TaskMessageKind::Text, "heard: say turn left"),
    ];
    assert_eq!(said, expected);
    assert_eq!(site.records("task.steered").len(), 1);
    let over = site.say(&["task", "steer", &id, "1", "--say", "x"]);
    assert!(over.code == 1 && over.err.contains("is over"), "{}", over.err);
}

fn what_is_said_too_late_is_still_done(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "say ready\nsleep 1\nanswer first");
    site.said(&id, 1, "ready");
    // It does not listen: it takes this up after it has answered.
    site.say(&["task", "steer", &id, "--say", "say second\nanswer last"]).good();
    let task = site.over(&id, 1);
    assert_eq!((task.state, task.answer.as_deref()), (TaskState::Done, Some("last")));
    assert_eq!(task.usage.cost_usd, Some(0.5), "both turns are counted");
    assert!(site.texts(&id, 1).contains(&"second".to_owned()));
}

fn a_paused_task_stands_still(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    let waiting = site.say(&["task", "pause", &id]);
    assert!(waiting.err.contains("has no task"), "{}", waiting.err);
    site.give(&id, "say ready\ntick 100");
    site.said(&id, 1, "ready");
    let paused: Task =
        serde_json::from_str(&site.say(&["task", "pause", &id, "--json"]).good()).expect("JSON");
    assert_eq!(paused.state, TaskState::Paused);
    std::thread::sleep(Duration::from_millis(300));
    let before = site.task(&id, 1).messages;
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(site.task(&id, 1).messages, before, "nothing is said meanwhile");
    assert_eq!(site.task(&id, 1).state, TaskState::Paused);
    site.say(&["task", "resume", &id, "1"]).good();
    let task = site.over(&id, 1);
    assert_eq!(task.state, TaskState::Done);
    assert_eq!(site.texts(&id, 1).len(), 102);
    let kinds = ["task.paused", "task.resumed"];
    assert!(kinds.iter().all(|kind| site.records(kind).len() == 1));
}

fn a_cancelled_task_leaves_its_agent_for_the_next(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "self\nsleep 60");
    site.give(&id, "self");
    site.give(&id, "self");
    let third: Task =
        site.post(&format!("/v1/sessions/{id}/tasks/3/cancel"), &json!({})).expect("it waits");
    assert_eq!((third.state, third.started), (TaskState::Cancelled, None));
    site.until(|| (site.task(&id, 1).messages > 1).then_some(()));
    let first: Task =
        serde_json::from_str(&site.say(&["task", "cancel", &id, "1", "--json"]).good())
            .expect("JSON");
    assert_eq!(first.state, TaskState::Cancelled);
    assert_eq!(site.over(&id, 2).state, TaskState::Done);
    let (one, two) = (site.task(&id, 1).command, site.task(&id, 2).command);
    assert!(one.is_some() && one == two, "the same agent goes on");
    assert_eq!(site.records("task.cancelled").len(), 1);
    assert_eq!(site.records("task.ended").len(), 3);
}

fn an_agent_that_does_not_stop_is_ended(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "say ready\nrun sleep 60");
    site.said(&id, 1, "ready");
    let task: Task = site
        .post(&format!("/v1/sessions/{id}/tasks/1/cancel"), &json!({}))
        .expect("it can be cancelled");
    assert_eq!(task.state, TaskState::Cancelled);
    site.give(&id, "self");
    assert_eq!(site.over(&id, 2).state, TaskState::Done);
    assert_ne!(site.task(&id, 2).command, task.command, "another one was started");
}
