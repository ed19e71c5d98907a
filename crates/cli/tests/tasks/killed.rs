//! A daemon that is killed in the middle of a task: the next one goes on, and nothing is lost.

use crate::for_everyone;
use crate::site::Site;
use cowork_client::types::TaskState;
use cowork_testbed::Person;
use std::time::Duration;

for_everyone!(
    a_task_goes_on_with_the_next_daemon,
    a_question_outlives_the_daemon,
    an_agent_that_ended_meanwhile_is_heard_to_the_end,
    an_agent_between_tasks_is_kept,
);

fn a_task_goes_on_with_the_next_daemon(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "say ready\ntick 150\nanswer all");
    site.give(&id, "self");
    site.said(&id, 1, "ready");
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(400));
        site.kill();
        site.start();
    }
    let task = site.over(&id, 1);
    assert_eq!((task.state, task.answer.as_deref()), (TaskState::Done, Some("all")));
    let mut expected: Vec<String> = vec!["say ready\ntick 150\nanswer all".into(), "ready".into()];
    expected.extend((0..150).map(|number| format!("tick {number}")));
    assert_eq!(site.texts(&id, 1), expected, "nothing is lost, and nothing comes twice");
    let told: Vec<String> = site
        .events("task.message")
        .iter()
        .filter(|event| event.data["task"] == 1)
        .map(|event| event.data["message"]["text"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(told, expected);
    let second = site.over(&id, 2);
    assert_eq!((second.state, second.command), (TaskState::Done, task.command));
    for kind in ["task.started", "task.ended"] {
        assert_eq!(site.records(kind).len(), 2, "{kind}");
    }
    let verified = site.say(&["audit", "verify"]);
    assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
}

fn a_question_outlives_the_daemon(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "may echo yes > made.txt\nanswer done");
    let request = site.pending()["id"].to_string();
    site.kill();
    site.start();
    assert_eq!(site.task(&id, 1).state, TaskState::Asking);
    assert_eq!(site.pending()["id"].to_string(), request, "it is the same question");
    site.say(&["decide", &request, "allow"]).good();
    assert_eq!(site.over(&id, 1).answer.as_deref(), Some("done"));
    assert_eq!(site.read("made.txt").as_deref(), Some("yes\n"));
}

fn an_agent_that_ended_meanwhile_is_heard_to_the_end(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "say ready\nsleep 0.5\nsay last words\ndie 7");
    site.said(&id, 1, "ready");
    site.kill();
    std::thread::sleep(Duration::from_secs(1));
    site.start();
    let task = site.over(&id, 1);
    assert_eq!(task.state, TaskState::Failed);
    let reason = task.reason.expect("there is one");
    assert!(reason.sentence.contains("status 7: the end of the script"), "{}", reason.sentence);
    assert!(site.texts(&id, 1).contains(&"last words".to_owned()));
}

fn an_agent_between_tasks_is_kept(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "self");
    let first = site.over(&id, 1);
    site.kill();
    site.start();
    site.give(&id, "self");
    let second = site.over(&id, 2);
    assert_eq!(first.command, second.command, "it is the same process");
    assert_eq!(second.usage.cost_usd, Some(0.25));
}
