//! Agents that say what cannot be understood, too much, or nothing.

use crate::for_everyone;
use crate::site::Site;
use cowork_client::types::TaskState;
use cowork_testbed::Person;

for_everyone!(
    garbage_fails_the_task_with_a_sentence,
    a_line_that_is_too_long_fails_the_task,
    what_only_the_agent_needs_may_be_long,
    an_agent_that_ends_fails_the_task,
    what_cannot_be_started_fails_the_task,
);

fn garbage_fails_the_task_with_a_sentence(person: Person) {
    let site = Site::new(person);
    let said = site.ask("say before\nraw Segmentation \u{1b}[2Jfault\nsleep 60", &[]);
    assert_eq!(said.code, 3, "{}", said.err);
    assert_eq!(said.out, "");
    assert!(said.err.contains("a line that is not JSON: `Segmentation"), "{}", said.err);
    assert!(!said.err.contains('\u{1b}'), "{}", said.err);
    let id = site.only_session();
    let first = site.task(&id, 1);
    assert_eq!(first.reason.expect("there is one").code, "garbled");
    // The next one has another process.
    site.give(&id, "answer fine");
    let second = site.over(&id, 2);
    assert_eq!((second.state, second.command != first.command), (TaskState::Done, true));
}

fn a_line_that_is_too_long_fails_the_task(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "huge assistant 5000000\nsleep 60");
    let task = site.over(&id, 1);
    assert_eq!(task.state, TaskState::Failed);
    let sentence = task.reason.expect("there is one").sentence;
    assert!(sentence.contains("4194304 are allowed"), "{sentence}");
}

fn what_only_the_agent_needs_may_be_long(person: Person) {
    let site = Site::new(person);
    let id = site.session();
    site.give(&id, "huge user 9000000\nanswer fine");
    let task = site.over(&id, 1);
    assert_eq!((task.state, task.answer.as_deref()), (TaskState::Done, Some("fine")));
    assert!(site.texts(&id, 1).iter().any(|text| text.contains("too long to be shown")));
}

fn an_agent_that_ends_fails_the_task(person: Person) {
    let site = Site::new(person);
    let said = site.ask("die 3", &[]);
    assert_eq!(said.code, 3);
    assert!(said.err.contains("with status 3: the end of the script"), "{}", said.err);
}

fn what_cannot_be_started_fails_the_task(person: Person) {
    let site = Site::new(person);
    site.agent("scripted", "#!/nowhere/at/all\n", "claude-stream-json", &[]);
    let said = site.ask("answer x", &[]);
    assert_eq!(said.code, 3, "{}", said.err);
    assert!(said.err.contains("scripted"), "{}", said.err);
    let id = site.only_session();
    assert_eq!(site.task(&id, 1).state, TaskState::Failed);
}
