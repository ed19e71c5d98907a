//! Agents that speak otherwise.

use crate::for_everyone;
use crate::site::Site;
use cowork_client::types::{Task, TaskState};
use cowork_testbed::Person;
use serde_json::json;

for_everyone!(plain_text_is_the_answer, codex_tells_in_lines_of_its_own);

/// Writes its last argument, as a program that knows nothing of tasks.
const PLAIN: &str = "#!/bin/sh\nfor word; do :; done\necho working >&2\n\
                     printf '%s\\n' \"$word\" | tail -n 1\npwd\nexit ${CODE:-0}\n";

/// Does what `codex exec --json` would, with the prompt on its standard input.
const CODEX: &str = r#"#!/usr/bin/python3
import json, sys
prompt = sys.stdin.read()
def put(**event):
    print(json.dumps(event), flush=True)
put(type="thread.started", thread_id="thread-1")
put(type="turn.started")
put(type="item.started", item={"id": "i1", "type": "command_execution", "command": "ls", "status": "in_progress"})
put(type="item.completed", item={"id": "i1", "type": "command_execution", "command": "ls",
    "aggregated_output": "here.txt\n", "exit_code": 0, "status": "completed"})
put(type="item.completed", item={"id": "i2", "type": "todo_list", "items": [{"text": "look", "completed": True}]})
put(type="item.completed", item={"id": "i3", "type": "agent_message",
    "text": prompt.splitlines()[-1] + " " + " ".join(sys.argv[1:])})
if "fail" in prompt.splitlines()[-1]:
    put(type="turn.failed", error={"message": "no quota"})
    sys.exit(1)
put(type="turn.completed", usage={"input_tokens": 10, "cached_input_tokens": 4, "output_tokens": 2})
"#;

fn plain_text_is_the_answer(person: Person) {
    let site = Site::new(person);
    site.agent("plain", PLAIN, "plain", &["run"]);
    let said = site.say(&["ask", "--agent", "plain", "--", "-- the last line"]);
    let id = site.only_session();
    assert_eq!(said.good(), format!("-- the last line\n/sessions/{id}/mnt/desk\n"));
    let refused = site.say(&["ask", "--agent", "plain", "--model", "m", "x"]);
    assert!(refused.code == 1 && refused.err.contains("which model"), "{}", refused.err);
    site.agent("plain", &PLAIN.replace("${CODE:-0}", "9"), "plain", &["run"]);
    let said = site.say(&["ask", "--agent", "plain", "x"]);
    assert_eq!(said.code, 3);
    assert!(said.err.contains("status 9: working"), "{}", said.err);
}

fn codex_tells_in_lines_of_its_own(person: Person) {
    let site = Site::new(person);
    site.agent("codexlike", CODEX, "codex-exec-json", &["exec", "--json"]);
    let said = site.say(&["ask", "--agent", "codexlike", "--model", "m1", "hello"]);
    assert!(said.err.contains("> shell: ls\n"), "{}", said.err);
    assert_eq!(said.good(), "hello exec --json --model m1 -\n");
    let id = site.only_session();
    let first = site.task(&id, 1);
    assert_eq!(first.conversation.as_deref(), Some("thread-1"));
    assert_eq!((first.usage.input_tokens, first.usage.cache_read_tokens), (6, 4));
    let said = site.say(&["ask", "--agent", "codexlike", "again"]).good();
    assert_eq!(said, "again exec --json resume thread-1 -\n", "the conversation goes on");
    let said = site.say(&["ask", "--agent", "codexlike", "fail"]);
    assert!(said.code == 3 && said.err.contains("no quota"), "{}", said.err);
    site.agent("slow", "#!/bin/sh\nsleep 60\n", "codex-exec-json", &[]);
    let body = json!({ "prompt": "x", "agent": "slow" });
    let task: Task = site.post(&format!("/v1/sessions/{id}/tasks"), &body).expect("it is taken");
    let path = format!("/v1/sessions/{id}/tasks/{}", task.number);
    site.until(|| (site.task(&id, task.number).state == TaskState::Running).then_some(()));
    site.until(|| site.task(&id, task.number).command);
    let deaf = site.post::<Task>(&format!("{path}/steer"), &json!({ "prompt": "x" }));
    let problem = deaf.expect_err("it does not listen");
    assert_eq!(problem.problem().map(|problem| problem.code.as_str()), Some("not-steerable"));
    let task: Task = site.post(&format!("{path}/cancel"), &json!({})).expect("it can be cancelled");
    assert_eq!(task.state, TaskState::Cancelled);
}
