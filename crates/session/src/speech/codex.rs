//! The JSON lines of `codex exec --json`.

use super::{
    Answer, Garbled, Line, MAX_ANSWER, MAX_STEP, MAX_STEPS, MAX_TEXT, Outcome, Progress, Said,
    Step, Used, clean, name, number, object, text,
};
use serde_json::Value;

/// Decodes one line.
pub fn decode(line: &Line) -> Result<Vec<Said>, Garbled> {
    if let Line::Long { start, bytes } = line
        && start.starts_with(br#"{"type":"item."#)
    {
        let note = format!("what a tool returned is too long to be shown: {bytes} bytes");
        return Ok(vec![Said::Note(clean(&note, MAX_TEXT))]);
    }
    let Some(event) = object(line)? else { return Ok(Vec::new()) };
    Ok(match text(&event, "type").unwrap_or_default() {
        "thread.started" => {
            vec![Said::Began { conversation: name(&event, "thread_id"), model: None }]
        }
        "item.started" => item(&event, When::Started),
        "item.updated" => item(&event, When::Updated),
        "item.completed" => item(&event, When::Completed),
        "turn.completed" => {
            vec![Said::Answered(Answer { text: None, outcome: Outcome::Good, used: used(&event) })]
        }
        "turn.failed" => {
            let why = event.get("error").and_then(|error| text(error, "message"));
            vec![bad(why.unwrap_or("the turn failed"), used(&event))]
        }
        "error" => {
            // It may be tried again; what comes of that is told.
            let why = text(&event, "message").unwrap_or("the agent reports an error");
            vec![Said::Note(clean(why, MAX_TEXT))]
        }
        _ => Vec::new(),
    })
}

/// When something is told about an item.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Started,
    Updated,
    Completed,
}

fn bad(why: &str, used: Used) -> Said {
    let text = Some(clean(why, MAX_ANSWER));
    Said::Answered(Answer { text, outcome: Outcome::Bad, used })
}

fn used(event: &Value) -> Used {
    let usage = event.get("usage");
    let cached = number(usage, "cached_input_tokens");
    Used {
        input: number(usage, "input_tokens").saturating_sub(cached),
        output: number(usage, "output_tokens"),
        cache_read: cached,
        ..Used::default()
    }
}

fn item(event: &Value, when: When) -> Vec<Said> {
    let Some(item) = event.get("item") else { return Vec::new() };
    let kind = text(item, "type").or_else(|| text(item, "item_type")).unwrap_or_default();
    let words = |field| text(item, field).map(|text| clean(text, MAX_TEXT));
    match (kind, when) {
        ("todo_list", _) => vec![Said::Plan(plan(item))],
        ("agent_message" | "assistant_message", When::Completed) => {
            words("text").map(Said::Text).into_iter().collect()
        }
        ("reasoning", When::Completed) => words("text").map(Said::Thought).into_iter().collect(),
        ("error", When::Completed) => words("message").map(Said::Note).into_iter().collect(),
        ("command_execution" | "file_change" | "mcp_tool_call" | "web_search", When::Started) => {
            started(item, kind).into_iter().collect()
        }
        ("command_execution" | "mcp_tool_call", When::Completed) => {
            completed(item).into_iter().collect()
        }
        // These are told at their end only.
        ("file_change" | "web_search", When::Completed) => {
            started(item, kind).into_iter().chain(completed(item)).collect()
        }
        _ => Vec::new(),
    }
}

fn started(item: &Value, kind: &str) -> Option<Said> {
    let (tool, about) = match kind {
        "command_execution" => ("shell".to_owned(), text(item, "command")?.to_owned()),
        "file_change" => ("edit".to_owned(), changed(item)),
        "web_search" => ("search".to_owned(), text(item, "query").unwrap_or_default().to_owned()),
        _ => {
            let tool = name(item, "tool")?;
            let server = name(item, "server").unwrap_or_default();
            let about = item.get("arguments").map(ToString::to_string).unwrap_or_default();
            (format!("{server}/{tool}"), about)
        }
    };
    Some(Said::Tool { call: name(item, "id")?, tool, gist: clean(&about, MAX_TEXT) })
}

fn changed(item: &Value) -> String {
    let changes = item.get("changes").and_then(Value::as_array).map(Vec::as_slice);
    let line = |change: &Value| {
        Some(format!("{} {}", text(change, "kind").unwrap_or("change"), text(change, "path")?))
    };
    let lines = changes.unwrap_or_default().iter().take(MAX_STEPS).filter_map(line);
    lines.collect::<Vec<_>>().join("\n")
}

fn completed(item: &Value) -> Option<Said> {
    let output = text(item, "aggregated_output").unwrap_or_default();
    let code = item.get("exit_code").and_then(Value::as_i64);
    let failed = code.is_some_and(|code| code != 0)
        || matches!(text(item, "status"), Some("failed" | "declined"));
    Some(Said::Result { call: name(item, "id")?, gist: clean(output, MAX_TEXT), failed })
}

fn plan(item: &Value) -> Vec<Step> {
    let items = item.get("items").and_then(Value::as_array).map(Vec::as_slice);
    let step = |step: &Value| {
        let done = step.get("completed").and_then(Value::as_bool).unwrap_or(false);
        let text = clean(text(step, "text")?, MAX_STEP).line();
        Some(Step { text, progress: if done { Progress::Done } else { Progress::Pending } })
    };
    items.unwrap_or_default().iter().take(MAX_STEPS).filter_map(step).collect()
}
