//! Operations on tasks.

use super::operation::Operation;
use super::schemas::Schemas;
use super::sessions::KEEPER;
use cowork_client::types::{NewTask, Page, Steer, Task, TaskMessage};
use serde_json::json;

/// A task is looked up.
const TASK: &[&str] = &["no-task", "unrecorded", "host"];
/// A task that is not over is looked up.
const OPEN: &[&str] = &["no-task", "task-over", "task-waiting", "unrecorded", "host"];
/// The session must be able to run commands.
const ABLE: &[&str] =
    &["not-live", "paused", "creating", "ended", "no-sandbox", "no-answer", "command-ended"];

pub(super) fn operations(s: &mut Schemas) -> Vec<Operation> {
    let mut all = vec![create(s)];
    all.extend(look(s));
    all.extend(control(s));
    all.into_iter().map(|operation| operation.tag("tasks")).collect()
}

fn create(s: &mut Schemas) -> Operation {
    let made = json!({ "id": "$request.path.id", "number": "$response.body#/number" });
    let next = ["showTask", "listMessages", "steerTask", "pauseTask", "resumeTask", "cancelTask"];
    let create = Operation::new("POST /v1/sessions/{id}/tasks", "createTask", "Give a task");
    let create = next.iter().fold(create, |create, next| create.leads_to(next, &made));
    create
        .about(
            "The tasks of a session are done one after the other, in one conversation where the \
             agent can. Events `task.state`, `task.message`, `task.tool`, `task.plan` and \
             `task.usage` tell what happens; questions of the agent are requests of kind `tool`.",
        )
        .takes::<NewTask>(s)
        .gives::<Task>(201, "The task, which waits for its turn", s)
        .refuses(&[&[
            "bad-model",
            "bad-prompt",
            "creating",
            "ended",
            "host",
            "lives-once",
            "no-agent",
            "no-attachment",
            "no-tasks",
            "not-live",
            "paused",
            "too-many",
            "unrecorded",
        ]])
}

fn look(s: &mut Schemas) -> Vec<Operation> {
    let number = json!({ "type": "string", "pattern": "^[0-9]{1,18}$" });
    vec![
        Operation::new("GET /v1/sessions/{id}/tasks", "listTasks", "Tasks of a session")
            .part()
            .gives::<Page<Task>>(200, "A part of the list, by number", s)
            .refuses(&[&["unrecorded"]]),
        Operation::new("GET /v1/sessions/{id}/tasks/{number}", "showTask", "A task")
            .query(
                "so_far",
                "Whether the summary of a task that is not over is made now: what it has changed, \
                 reached, been refused and asked so far",
                &json!({ "type": "boolean", "default": false }),
            )
            .gives::<Task>(200, "The task", s)
            .refuses(&[TASK]),
        Operation::new(
            "GET /v1/sessions/{id}/tasks/{number}/messages",
            "listMessages",
            "What was said and done in a task",
        )
        .about("The oldest are forgotten when there are more than 4000.")
        .query("after", "The number of the last message that is known", &number)
        .part()
        .gives::<Page<TaskMessage>>(200, "A part of the list, by number", s)
        .refuses(&[TASK]),
    ]
}

fn control(s: &mut Schemas) -> Vec<Operation> {
    vec![
        Operation::new(
            "POST /v1/sessions/{id}/tasks/{number}/steer",
            "steerTask",
            "Say something to the agent while it works",
        )
        .takes::<Steer>(s)
        .gives::<Task>(200, "The task", s)
        .refuses(&[OPEN, &["bad-prompt", "not-steerable"]]),
        Operation::new(
            "POST /v1/sessions/{id}/tasks/{number}/pause",
            "pauseTask",
            "Let the agent stand still",
        )
        .gives::<Task>(200, "The task", s)
        .refuses(&[OPEN, ABLE]),
        Operation::new(
            "POST /v1/sessions/{id}/tasks/{number}/resume",
            "resumeTask",
            "Let the agent go on",
        )
        .gives::<Task>(200, "The task", s)
        .refuses(&[OPEN, ABLE, &["not-paused"]]),
        Operation::new(
            "POST /v1/sessions/{id}/tasks/{number}/cancel",
            "cancelTask",
            "Call a task off",
        )
        .about(
            "Answers when it is over. The agent is kept for the next task if it stops by itself.",
        )
        .gives::<Task>(200, "The task, which is over", s)
        .refuses(&[OPEN, KEEPER]),
    ]
}
