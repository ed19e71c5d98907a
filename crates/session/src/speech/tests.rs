//! What is said, line by line.

use super::{
    Answer, Garbled, Language, Line, Lines, MAX_ANSWER, MAX_LINE, MAX_NAME, MAX_STEPS, MAX_TEXT,
    Outcome, Progress, Question, Said, Step, Used, Words, claude, clean, decode,
};
use serde_json::{Value, json};

fn line(value: &Value) -> Line {
    Line::Whole(value.to_string().into_bytes())
}

#[track_caller]
fn said(language: Language, value: &Value) -> Vec<Said> {
    decode(language, &line(value)).unwrap()
}

fn words(text: &str) -> Words {
    Words { text: text.into(), cut: false }
}

fn step(text: &str, progress: Progress) -> Step {
    Step { text: text.into(), progress }
}

fn assistant(blocks: &Value) -> Value {
    json!({ "type": "assistant", "message": { "role": "assistant", "content": blocks },
            "parent_tool_use_id": null, "session_id": "s" })
}

#[test]
fn claude_says_what_it_does() {
    let table = [
        (
            json!({ "type": "system", "subtype": "init", "session_id": "abc", "model": "m",
                    "tools": ["Bash"], "cwd": "/" }),
            vec![Said::Began { conversation: Some("abc".into()), model: Some("m".into()) }],
        ),
        (
            assistant(&json!([{ "type": "text", "text": "Hello\u{1b}" },
                             { "type": "thinking", "thinking": "hm", "signature": "x" }])),
            vec![Said::Text(words("Hello\u{fffd}")), Said::Thought(words("hm"))],
        ),
        (
            assistant(&json!([{ "type": "tool_use", "id": "t1", "name": "Bash",
                               "input": { "command": "ls", "description": "list" } }])),
            vec![Said::Tool { call: "t1".into(), tool: "Bash".into(), gist: words("ls") }],
        ),
        (
            json!({ "type": "user", "message": { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "t1", "content": "a\nb" },
                { "type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": [
                    { "type": "text", "text": "no" }, { "type": "image", "source": {} }] } ] } }),
            vec![
                Said::Result { call: "t1".into(), gist: words("a\nb"), failed: false },
                Said::Result { call: "t2".into(), gist: words("no\n(image)"), failed: true },
            ],
        ),
        (
            json!({ "type": "user", "message": { "role": "user", "content": "go" },
                    "uuid": "u1", "isReplay": true }),
            vec![Said::Heard { message: "u1".into() }],
        ),
        (
            json!({ "type": "control_cancel_request", "request_id": "r1" }),
            vec![Said::Withdraws { question: "r1".into() }],
        ),
        (
            json!({ "type": "control_request", "request_id": "r2",
                    "request": { "subtype": "hook_callback" } }),
            vec![Said::AsksOther { question: "r2".into(), kind: "hook_callback".into() }],
        ),
    ];
    for (message, expected) in table {
        assert_eq!(said(Language::Claude, &message), expected, "{message}");
    }
}

#[test]
fn claude_plans_in_either_way() {
    let all = said(
        Language::Claude,
        &assistant(
            &json!([{ "type": "tool_use", "id": "t", "name": "TodoWrite", "input": { "todos": [
            { "content": "read\nit", "status": "completed", "activeForm": "reading" },
            { "content": "write", "status": "in_progress" },
            { "content": "test", "status": "unheard of" }, { "status": "pending" }] } }]),
        ),
    );
    let plan = vec![
        step("read it", Progress::Done),
        step("write", Progress::Active),
        step("test", Progress::Pending),
    ];
    assert_eq!(all[1..], [Said::Plan(plan)]);
    let all = said(
        Language::Claude,
        &assistant(&json!([
            { "type": "tool_use", "id": "c", "name": "TaskCreate", "input": { "subject": "read" } },
            { "type": "tool_use", "id": "d", "name": "TaskUpdate",
              "input": { "taskId": "1", "status": "completed" } },
            { "type": "tool_use", "id": "e", "name": "TaskUpdate",
              "input": { "taskId": "2", "status": "deleted" } },
            { "type": "tool_use", "id": "f", "name": "TaskUpdate", "input": { "taskId": "3" } }])),
    );
    let plans: Vec<&Said> = all.iter().filter(|one| !matches!(one, Said::Tool { .. })).collect();
    let changed =
        |name: &str, progress| Said::StepChanged { name: name.into(), text: None, progress };
    let new = Said::NewStep { call: "c".into(), step: step("read", Progress::Pending) };
    assert_eq!(plans, [&new, &changed("1", Some(Progress::Done)), &changed("2", None)]);
}

#[test]
fn claude_asks_with_everything_that_matters() {
    let input = json!({ "description": "harmless", "command": "rm -rf /\u{1b}[2K" });
    let asked = said(
        Language::Claude,
        &json!({ "type": "control_request", "request_id": "r", "request": {
            "subtype": "can_use_tool", "tool_name": "Bash", "input": input,
            "permission_suggestions": [] } }),
    );
    let [Said::Asks(Question { name, tool, about, input: kept })] = asked.as_slice() else {
        panic!("{asked:?}")
    };
    assert_eq!((name.as_str(), tool.as_str()), ("r", "Bash"));
    assert_eq!(about.text, "rm -rf /\u{fffd}[2K\ndescription: harmless");
    assert_eq!(*kept, input, "a yes sends back what was asked about");
    let allowed: Value = serde_json::from_slice(&claude::allow("r", kept)).unwrap();
    assert_eq!(allowed["response"]["response"]["updatedInput"], input);
    assert_eq!(allowed["response"]["request_id"], "r");
    let denied: Value = serde_json::from_slice(&claude::deny("r", "not now")).unwrap();
    assert_eq!(denied["response"]["response"], json!({ "behavior": "deny", "message": "not now" }));
}

#[test]
fn claude_comes_to_an_end() {
    let good = json!({ "type": "result", "subtype": "success", "is_error": false, "result": "42",
        "num_turns": 3, "total_cost_usd": 0.25, "session_id": "s", "usage": {
            "input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 30,
            "cache_creation_input_tokens": 40 } });
    let used = Used {
        input: 10,
        output: 20,
        cache_read: 30,
        cache_written: 40,
        turns: Some(3),
        cost: Some(0.25),
    };
    let answer = Answer { text: Some(words("42")), outcome: Outcome::Good, used };
    assert_eq!(said(Language::Claude, &good), [Said::Answered(answer)]);
    let table = [
        (
            json!({ "subtype": "success", "is_error": true, "result": "API Error: 500" }),
            "API Error: 500",
        ),
        (json!({ "subtype": "error_during_execution", "errors": ["a", "b"] }), "a; b"),
        (json!({ "subtype": "error_max_turns", "is_error": false }), "error_max_turns"),
    ];
    for (mut message, expected) in table {
        message["type"] = json!("result");
        let all = said(Language::Claude, &message);
        let [Said::Answered(answer)] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!(answer.outcome, Outcome::Bad);
        assert_eq!(answer.text.as_ref().map(|words| words.text.as_str()), Some(expected));
    }
}

#[test]
fn codex_says_what_it_does() {
    let item = |when: &str, item: Value| json!({ "type": format!("item.{when}"), "item": item });
    let command = json!({ "id": "i0", "type": "command_execution", "command": "ls",
                          "aggregated_output": "a\n", "exit_code": 1, "status": "failed" });
    let table = [
        (
            json!({ "type": "thread.started", "thread_id": "t" }),
            vec![Said::Began { conversation: Some("t".into()), model: None }],
        ),
        (
            item("started", command.clone()),
            vec![Said::Tool { call: "i0".into(), tool: "shell".into(), gist: words("ls") }],
        ),
        (
            item("completed", command),
            vec![Said::Result { call: "i0".into(), gist: words("a\n"), failed: true }],
        ),
        (
            item("completed", json!({ "id": "i1", "type": "agent_message", "text": "done" })),
            vec![Said::Text(words("done"))],
        ),
        (
            item(
                "updated",
                json!({ "id": "i2", "type": "todo_list", "items": [
                { "text": "one", "completed": true }, { "text": "two", "completed": false }] }),
            ),
            vec![Said::Plan(vec![step("one", Progress::Done), step("two", Progress::Pending)])],
        ),
        (
            item(
                "completed",
                json!({ "id": "i3", "type": "file_change", "status": "completed",
                                      "changes": [{ "path": "a.c", "kind": "update" }] }),
            ),
            vec![
                Said::Tool { call: "i3".into(), tool: "edit".into(), gist: words("update a.c") },
                Said::Result { call: "i3".into(), gist: words(""), failed: false },
            ],
        ),
        (
            json!({ "type": "turn.completed", "usage": {
                "input_tokens": 10, "cached_input_tokens": 4, "output_tokens": 2 } }),
            vec![Said::Answered(Answer {
                text: None,
                outcome: Outcome::Good,
                used: Used { input: 6, cache_read: 4, output: 2, ..Used::default() },
            })],
        ),
        (
            json!({ "type": "turn.failed", "error": { "message": "no quota" } }),
            vec![Said::Answered(Answer {
                text: Some(words("no quota")),
                outcome: Outcome::Bad,
                used: Used::default(),
            })],
        ),
    ];
    for (event, expected) in table {
        assert_eq!(said(Language::Codex, &event), expected, "{event}");
    }
}

#[test]
fn what_is_unknown_is_skipped_and_what_is_garbage_is_an_error() {
    for language in [Language::Claude, Language::Codex] {
        for skipped in [
            json!({ "type": "stream_event", "event": { "type": "content_block_delta" } }),
            json!({ "type": "from.the.future", "payload": [1, 2, 3] }),
            json!({ "type": "assistant" }),
            json!({ "type": "user", "message": 7 }),
            json!({ "type": "control_request" }),
            json!({ "type": "item.completed", "item": { "type": "hologram" } }),
        ] {
            assert_eq!(said(language, &skipped), [], "{skipped}");
        }
        assert_eq!(decode(language, &Line::Whole(b"  \r".to_vec())), Ok(Vec::new()));
        for garbage in
            ["Killed", "{\"type\":", "[1]", "7", "\"type\"", "{}", "{\"type\":7}", "\u{1b}c"]
        {
            let error = decode(language, &Line::Whole(garbage.into())).unwrap_err();
            assert!(!error.to_string().contains('\u{1b}'), "{error}");
        }
        let deep = "[".repeat(100_000);
        assert!(decode(language, &Line::Whole(deep.into_bytes())).is_err());
    }
}

#[test]
fn a_line_that_is_too_long_is_an_error_unless_only_the_agent_needs_it() {
    let long = |start: &str| Line::Long { start: start.into(), bytes: MAX_LINE as u64 + 1 };
    let error = decode(Language::Claude, &long("{\"type\":\"result\"")).unwrap_err();
    assert!(matches!(error, Garbled::TooLong { .. }), "{error:?}");
    let noted = decode(Language::Claude, &long("{\"type\":\"user\",\"message\"")).unwrap();
    assert!(matches!(noted.as_slice(), [Said::Note(_)]), "{noted:?}");
}

#[test]
fn whatever_is_said_is_short() {
    let long = "x".repeat(MAX_ANSWER + 1);
    let all = said(
        Language::Claude,
        &assistant(&json!([{ "type": "text", "text": long },
            { "type": "tool_use", "id": long, "name": long, "input": { "command": long } }])),
    );
    let [Said::Text(text), Said::Tool { call, tool, gist }] = all.as_slice() else { panic!() };
    assert_eq!((text.text.len(), text.cut), (MAX_TEXT, true));
    assert_eq!((call.len(), tool.len()), (MAX_NAME, MAX_NAME));
    assert!(gist.cut && gist.text.len() < MAX_TEXT);
    let todos: Vec<Value> = (0..1000).map(|_| json!({ "content": long })).collect();
    let all = said(
        Language::Claude,
        &assistant(&json!([{ "type": "tool_use", "id": "t", "name": "TodoWrite",
                           "input": { "todos": todos } }])),
    );
    assert!(all.iter().any(|one| matches!(one, Said::Plan(plan) if plan.len() == MAX_STEPS)));
    let answer = said(Language::Claude, &json!({ "type": "result", "result": long }));
    let [Said::Answered(Answer { text: Some(text), .. })] = answer.as_slice() else { panic!() };
    assert_eq!((text.text.len(), text.cut), (MAX_ANSWER, true));
}

#[test]
fn plain_text_is_said_as_it_is() {
    let mut lines = Lines::default();
    let (line, _) = lines.take(b"one \xff\n");
    assert_eq!(
        decode(Language::Plain, &line.unwrap()).unwrap(),
        [Said::Text(words("one \u{fffd}"))]
    );
    assert_eq!(clean("a\u{7}", 10).line(), "a\u{fffd}");
}

#[test]
fn what_is_said_to_claude_is_one_line() {
    for line in [
        claude::say("n", &["a\nb", "c"]),
        claude::allow("q", &json!({ "a": "\n" })),
        claude::cannot("q", "no"),
        claude::interrupt("i"),
    ] {
        assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
        assert!(serde_json::from_slice::<Value>(&line).unwrap().is_object());
    }
}
