//! Claude Code's stream of JSON lines: `--input-format stream-json --output-format stream-json`.

use super::{
    Answer, Garbled, Line, MAX_ANSWER, MAX_STEP, MAX_STEPS, MAX_TEXT, Outcome, Progress, Question,
    Said, Step, Used, clean, gist, name, number, object, text, whole,
};
use serde_json::{Value, json};

/// The tools that make a plan, and change it.
const PLAN: &str = "TodoWrite";
const NEW_STEP: &str = "TaskCreate";
const CHANGE_STEP: &str = "TaskUpdate";

/// Decodes one line.
pub fn decode(line: &Line) -> Result<Vec<Said>, Garbled> {
    if let Line::Long { start, bytes } = line
        && start.starts_with(br#"{"type":"user""#)
    {
        // What a tool gave to the agent; only the agent needs it.
        let note = format!("what a tool returned is too long to be shown: {bytes} bytes");
        return Ok(vec![Said::Note(clean(&note, MAX_TEXT))]);
    }
    let Some(message) = object(line)? else { return Ok(Vec::new()) };
    Ok(match text(&message, "type").unwrap_or_default() {
        "system" if text(&message, "subtype") == Some("init") => vec![Said::Began {
            conversation: name(&message, "session_id"),
            model: name(&message, "model"),
        }],
        "assistant" => assistant(&message),
        "user" => user(&message),
        "control_request" => asked(&message).into_iter().collect(),
        "control_cancel_request" => {
            let question = name(&message, "request_id");
            question.map(|question| Said::Withdraws { question }).into_iter().collect()
        }
        "result" => vec![Said::Answered(result(&message))],
        _ => Vec::new(),
    })
}

/// The blocks of a message.
fn blocks(message: &Value) -> &[Value] {
    let content = message.get("message").and_then(|message| message.get("content"));
    content.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Who speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speaker {
    /// The agent.
    Agent,
    /// An agent that the agent has started.
    Helper,
}

fn assistant(message: &Value) -> Vec<Said> {
    let speaker = match text(message, "parent_tool_use_id") {
        Some(_) => Speaker::Helper,
        None => Speaker::Agent,
    };
    let said = |text: &str| match speaker {
        Speaker::Agent => Said::Text(clean(text, MAX_TEXT)),
        Speaker::Helper => Said::Thought(clean(text, MAX_TEXT)),
    };
    let mut all = Vec::new();
    for block in blocks(message) {
        match text(block, "type").unwrap_or_default() {
            "text" => all.extend(text(block, "text").filter(|text| !text.is_empty()).map(said)),
            "thinking" => {
                let thought = text(block, "thinking").filter(|thought| !thought.is_empty());
                all.extend(thought.map(|thought| Said::Thought(clean(thought, MAX_TEXT))));
            }
            "tool_use" => all.extend(tool(block, speaker)),
            _ => {}
        }
    }
    all
}

fn tool(block: &Value, speaker: Speaker) -> Vec<Said> {
    let (Some(call), Some(tool)) = (name(block, "id"), name(block, "name")) else {
        return Vec::new();
    };
    let input = block.get("input").unwrap_or(&Value::Null);
    let planned = match tool.as_str() {
        // A plan of a helper is not the plan.
        _ if speaker == Speaker::Helper => None,
        PLAN => plan(input).map(Said::Plan),
        NEW_STEP => text(input, "subject").map(|subject| {
            let step = Step { text: clean(subject, MAX_STEP).line(), progress: Progress::Pending };
            Said::NewStep { call: call.clone(), step }
        }),
        CHANGE_STEP => step_changed(input),
        _ => None,
    };
    let used = Said::Tool { call, tool, gist: gist(input) };
    std::iter::once(used).chain(planned).collect()
}

fn plan(input: &Value) -> Option<Vec<Step>> {
    let steps = input.get("todos")?.as_array()?.iter().take(MAX_STEPS);
    let step = |step: &Value| {
        let text = clean(text(step, "content")?, MAX_STEP).line();
        let progress = progress(super::text(step, "status")).unwrap_or(Progress::Pending);
        Some(Step { text, progress })
    };
    Some(steps.filter_map(step).collect())
}

fn step_changed(input: &Value) -> Option<Said> {
    let named = name(input, "taskId")?;
    let subject = text(input, "subject").map(|subject| clean(subject, MAX_STEP).line());
    let status = text(input, "status");
    if status.is_none() && subject.is_none() {
        return None;
    }
    let progress = if status == Some("deleted") { None } else { progress(status) };
    if status.is_some_and(|status| status != "deleted") && progress.is_none() {
        return None;
    }
    Some(Said::StepChanged { name: named, text: subject, progress })
}

fn progress(status: Option<&str>) -> Option<Progress> {
    match status? {
        "pending" => Some(Progress::Pending),
        "in_progress" => Some(Progress::Active),
        "completed" => Some(Progress::Done),
        _ => None,
    }
}

fn user(message: &Value) -> Vec<Said> {
    if message.get("isReplay").and_then(Value::as_bool) == Some(true) {
        let heard = name(message, "uuid").map(|message| Said::Heard { message });
        return heard.into_iter().collect();
    }
    let result = |block: &Value| {
        if text(block, "type") != Some("tool_result") {
            return None;
        }
        Some(Said::Result {
            call: name(block, "tool_use_id")?,
            gist: clean(&returned(block.get("content")), MAX_TEXT),
            failed: block.get("is_error").and_then(Value::as_bool).unwrap_or(false),
        })
    };
    blocks(message).iter().filter_map(result).collect()
}

/// What a tool returned, as far as it is text.
fn returned(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let part = |block: &Value| match text(block, "type") {
                Some("text") => text(block, "text").map(ToOwned::to_owned),
                Some(kind) => Some(format!("({kind})")),
                None => None,
            };
            let mut all = String::new();
            for part in blocks.iter().filter_map(part) {
                if all.len() > MAX_TEXT {
                    break;
                }
                if !all.is_empty() {
                    all.push('\n');
                }
                all.push_str(&part);
            }
            all
        }
        _ => String::new(),
    }
}

fn asked(message: &Value) -> Option<Said> {
    let question = name(message, "request_id")?;
    let request = message.get("request")?;
    let kind = name(request, "subtype").unwrap_or_default();
    match (kind.as_str(), name(request, "tool_name")) {
        ("can_use_tool", Some(tool)) => {
            let input = request.get("input").cloned().unwrap_or_else(|| json!({}));
            Some(Said::Asks(Question { name: question, tool, about: whole(&input), input }))
        }
        _ => Some(Said::AsksOther { question, kind }),
    }
}

fn result(message: &Value) -> Answer {
    let bad = message.get("is_error").and_then(Value::as_bool) == Some(true)
        || text(message, "subtype").is_some_and(|subtype| subtype != "success");
    let said = text(message, "result").filter(|said| !said.is_empty()).map(ToOwned::to_owned);
    let errors = message.get("errors").and_then(Value::as_array).map(|errors| {
        let errors: Vec<&str> = errors.iter().filter_map(Value::as_str).take(10).collect();
        errors.join("; ")
    });
    let why = errors
        .filter(|errors| bad && !errors.is_empty())
        .or_else(|| name(message, "subtype").filter(|_| bad));
    let usage = message.get("usage");
    Answer {
        text: said.or(why).map(|said| clean(&said, MAX_ANSWER)),
        outcome: if bad { Outcome::Bad } else { Outcome::Good },
        used: Used {
            input: number(usage, "input_tokens"),
            output: number(usage, "output_tokens"),
            cache_read: number(usage, "cache_read_input_tokens"),
            cache_written: number(usage, "cache_creation_input_tokens"),
            turns: message.get("num_turns").and_then(Value::as_u64),
            cost: message.get("total_cost_usd").and_then(Value::as_f64).filter(|cost| *cost >= 0.0),
        },
    }
}

/// A message of the user's, with a name of ours for it.
pub fn say(name: &str, parts: &[&str]) -> Vec<u8> {
    let blocks: Vec<Value> =
        parts.iter().map(|part| json!({ "type": "text", "text": part })).collect();
    line(&json!({
        "type": "user",
        "message": { "role": "user", "content": blocks },
        "parent_tool_use_id": null,
        "session_id": "",
        "uuid": name,
    }))
}

/// Yes to a question: the tool is used with what was told.
pub fn allow(question: &str, input: &Value) -> Vec<u8> {
    respond(question, &json!({ "behavior": "allow", "updatedInput": input }))
}

/// No to a question, and why.
pub fn deny(question: &str, why: &str) -> Vec<u8> {
    respond(question, &json!({ "behavior": "deny", "message": why }))
}

fn respond(question: &str, response: &Value) -> Vec<u8> {
    line(&json!({
        "type": "control_response",
        "response": { "subtype": "success", "request_id": question, "response": response },
    }))
}

/// A question that cannot be answered.
pub fn cannot(question: &str, why: &str) -> Vec<u8> {
    line(&json!({
        "type": "control_response",
        "response": { "subtype": "error", "request_id": question, "error": why },
    }))
}

/// Stop what you do, and say so.
pub fn interrupt(name: &str) -> Vec<u8> {
    line(&json!({
        "type": "control_request", "request_id": name, "request": { "subtype": "interrupt" },
    }))
}

fn line(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}
