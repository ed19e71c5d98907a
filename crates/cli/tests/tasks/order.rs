//! Several tasks of a session: one after the other, by one agent, in one conversation.

use crate::for_everyone;
use crate::site::Site;
use cowork_client::types::{ChangeKind, Changes, Task, TaskState};
use cowork_testbed::Person;
use serde_json::json;

for_everyone!(
    tasks_are_done_in_order_without_a_restart,
    a_conversation_goes_on_with_another_process,
    a_task_waits_for_its_session,
    too_many_tasks_are_refused,
    a_session_that_is_stopped_interrupts_its_task,
);

fn said(site: &Site, id: &str, number: u32, start: &str) -> String {
    let texts = site.texts(id, number);
    let found = texts.into_iter().find(|text| text.starts_with(start));
    found.expect("it was said")
}

fn tasks_are_done_in_order_without_a_restart(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "self\nwrite one.txt 1\nsleep 0.3");
    site.give(&id, "self\nwrite two.txt 2\nrun rm one.txt");
    let (one, two) = (site.over(&id, 1), site.over(&id, 2));
    assert_eq!((one.state, two.state), (TaskState::Done, TaskState::Done));
    assert!(one.ended <= two.started, "{:?} {:?}", one.ended, two.started);
    let pid = |text: &str| text.split(" turn ").next().map(ToOwned::to_owned);
    let (first, second) = (said(&site, &id, 1, "pid"), said(&site, &id, 2, "pid"));
    assert_eq!(pid(&first), pid(&second), "it is the same process");
    assert!(first.contains("turn 1 resumed None") && second.contains("turn 2"), "{second}");
    assert_eq!((one.command, one.conversation), (two.command, two.conversation));
    // What it cost is told since its start; each task has its own part.
    assert_eq!((one.usage.cost_usd, two.usage.cost_usd), (Some(0.25), Some(0.25)));
    let changed = |task: Option<cowork_client::types::TaskSummary>| -> Vec<(String, ChangeKind)> {
        let changes = task.expect("it is over").changes;
        changes.iter().map(|change| (change.path.lossy(), change.kind)).collect()
    };
    assert_eq!(changed(one.summary), [("one.txt".into(), ChangeKind::Added)]);
    let mut second = changed(two.summary);
    second.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(
        second,
        [("one.txt".into(), ChangeKind::Deleted), ("two.txt".into(), ChangeKind::Added)]
    );
    // The sets of one agent say for which task it worked, also when the session is gone.
    let tasks = || -> Vec<Option<u32>> {
        let told = site.say(&["changes", &id, "--json"]).good();
        let told: Changes = serde_json::from_str(&told).expect("it is JSON");
        assert!(told.sets.iter().all(|set| set.command == two.command), "{told:?}");
        let mut tasks: Vec<Option<u32>> = told.sets.iter().map(|set| set.task).collect();
        tasks.dedup();
        tasks
    };
    assert_eq!(tasks(), [Some(1), Some(2)]);
    let shown = site.say(&["history"]).good();
    assert!(
        shown.contains("  task 1, command ") && shown.contains("  task 2, command "),
        "{shown}"
    );
    site.say(&["rm", &id]).good();
    assert_eq!(tasks(), [Some(1), Some(2)]);
}

fn a_conversation_goes_on_with_another_process(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "self");
    let first = site.over(&id, 1);
    let command = first.command.expect("it ran").to_string();
    site.say(&["cancel", &id, &command]).good();
    site.give(&id, "self");
    let second = site.over(&id, 2);
    assert_eq!(second.state, TaskState::Done, "{:?}", second.reason);
    assert_ne!(first.command, second.command);
    let conversation = first.conversation.expect("it has a name");
    let text = said(&site, &id, 2, "pid");
    assert!(text.contains(&format!("turn 1 resumed {conversation}")), "{text}");
    // Another model needs another process; the conversation is the same.
    let body = json!({ "prompt": "self", "agent": "scripted", "model": "other-2" });
    let _third: Task = site.post(&format!("/v1/sessions/{id}/tasks"), &body).expect("it is taken");
    let third = site.over(&id, 3);
    assert_eq!((third.model.as_deref(), third.conversation), (Some("other-2"), Some(conversation)));
}

fn a_task_waits_for_its_session(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.say(&["pause", &id]).good();
    site.give(&id, "answer late");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(site.task(&id, 1).state, TaskState::Waiting);
    let early = site.say(&["task", "steer", &id, "1", "--say", "x"]);
    assert!(early.code == 1 && early.err.contains("has not begun"), "{}", early.err);
    site.say(&["resume", &id]).good();
    assert_eq!(site.over(&id, 1).answer.as_deref(), Some("late"));
}

fn too_many_tasks_are_refused(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.say(&["pause", &id]).good();
    for _ in 0..32 {
        site.give(&id, "answer x");
    }
    let path = format!("/v1/sessions/{id}/tasks");
    let code = |body: &serde_json::Value| {
        let refused = site.post::<Task>(&path, body).expect_err("it is refused");
        refused.problem().map(|problem| problem.code.clone()).unwrap_or_default()
    };
    assert_eq!(code(&json!({ "prompt": "x", "agent": "scripted" })), "too-many");
    let other = site.session();
    let path = format!("/v1/sessions/{other}/tasks");
    let code = |body: &serde_json::Value| {
        let refused = site.post::<Task>(&path, body).expect_err("it is refused");
        refused.problem().map(|problem| problem.code.clone()).unwrap_or_default()
    };
    assert_eq!(code(&json!({ "prompt": " ", "agent": "scripted" })), "bad-prompt");
    assert_eq!(code(&json!({ "prompt": "x".repeat(140_000), "agent": "scripted" })), "bad-prompt");
    assert_eq!(code(&json!({ "prompt": "x", "agent": "nobody" })), "no-agent");
}

fn a_session_that_is_stopped_interrupts_its_task(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "say ready\nsleep 60");
    site.give(&id, "self\nanswer later");
    site.said(&id, 1, "ready");
    site.say(&["stop", &id]).good();
    let task = site.over(&id, 1);
    assert_eq!(task.state, TaskState::Interrupted);
    assert_eq!(task.reason.expect("there is one").code, "stopped");
    assert_eq!(site.task(&id, 2).state, TaskState::Waiting);
    site.say(&["start", &id]).good();
    assert_eq!(site.over(&id, 2).answer.as_deref(), Some("later"));
}
