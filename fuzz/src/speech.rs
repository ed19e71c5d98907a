//! What agents say: lines of JSON, and text, that a session wrote.

use crate::Reached;
use cowork_session::speech::{
    Language, Lines, MAX_ANSWER, MAX_NAME, MAX_STEP, MAX_STEPS, MAX_TEXT, Said, Words, decode,
};

/// The first byte says which language the rest is in, and where it is torn into two pieces.
pub fn speech(input: &[u8]) -> Reached {
    let [kind, rest @ ..] = input else { return Reached::NOTHING };
    let language = match kind % 3 {
        0 => Language::Claude,
        1 => Language::Codex,
        _ => Language::Plain,
    };
    let mut lines = Lines::default();
    let (one, other) = rest.split_at(usize::from(kind / 3).min(rest.len()));
    let mut found = Vec::new();
    for mut piece in [one, other] {
        while !piece.is_empty() {
            let (line, taken) = lines.take(piece);
            assert!((1..=piece.len()).contains(&taken));
            piece = &piece[taken..];
            found.extend(line);
        }
    }
    found.extend(lines.rest());
    let ends = rest.iter().filter(|byte| **byte == b'\n').count();
    assert!((ends..=ends + 1).contains(&found.len()), "lines are neither lost nor made");
    let mut reached = Reached::NOTHING;
    for line in &found {
        let said = decode(language, line);
        match &said {
            Ok(said) => said.iter().for_each(check),
            Err(garbled) => check_text(&garbled.to_string(), 1000),
        }
        reached = reached.and(Reached::by(&said));
    }
    reached
}

fn check(said: &Said) {
    match said {
        Said::Began { conversation, model } => {
            conversation.iter().chain(model).for_each(|name| check_name(name));
        }
        Said::Heard { message: name } | Said::Withdraws { question: name } => check_name(name),
        Said::Text(words) | Said::Thought(words) | Said::Note(words) => {
            check_words(words, MAX_TEXT)
        }
        Said::Tool { call, tool, gist } => {
            // The name of a tool may be two names.
            assert!(tool.len() <= 2 * MAX_NAME + 1);
            check_name(call);
            check_words(gist, MAX_TEXT);
        }
        Said::Result { call, gist, .. } => {
            check_name(call);
            check_words(gist, MAX_TEXT);
        }
        Said::Plan(steps) => {
            assert!(steps.len() <= MAX_STEPS);
            steps.iter().for_each(|step| check_text(&step.text, MAX_STEP));
        }
        Said::NewStep { call, step } => {
            check_name(call);
            check_text(&step.text, MAX_STEP);
        }
        Said::StepChanged { name, text, .. } => {
            check_name(name);
            text.iter().for_each(|text| check_text(text, MAX_STEP));
        }
        Said::Asks(question) => {
            check_name(&question.name);
            check_name(&question.tool);
            check_words(&question.about, MAX_TEXT);
        }
        Said::AsksOther { question, kind } => {
            check_name(question);
            check_name(kind);
        }
        Said::Answered(answer) => {
            answer.text.iter().for_each(|words| check_words(words, MAX_ANSWER));
            assert!(answer.used.cost.is_none_or(|cost| cost >= 0.0));
        }
    }
}

fn check_name(name: &str) {
    check_text(name, MAX_NAME);
    assert!(!name.contains(['\n', '\t']), "{name:?}");
}

fn check_words(words: &Words, most: usize) {
    check_text(&words.text, most);
}

fn check_text(text: &str, most: usize) {
    assert!(text.len() <= most, "{} bytes", text.len());
    assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let claude = [
        r#"{"type":"system","subtype":"init","session_id":"s","model":"m"}"#,
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"hello"},{"type":"thinking","thinking":"hm"},{"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls"}}]}}"#,
        r#"{"type":"assistant","parent_tool_use_id":"p","message":{"content":[{"type":"tool_use","id":"t","name":"TodoWrite","input":{"todos":[{"content":"a","status":"in_progress"}]}}]}}"#,
        r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"TaskCreate","input":{"subject":"a"}},{"type":"tool_use","id":"u","name":"TaskUpdate","input":{"taskId":"1","status":"completed"}}]}}"#,
        r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x"}],"is_error":true}]}}"#,
        r#"{"type":"user","message":{"content":"x"},"uuid":"u","isReplay":true}"#,
        r#"{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls","timeout":5}}}"#,
        r#"{"type":"control_cancel_request","request_id":"r"}"#,
        r#"{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["e"],"num_turns":1,"total_cost_usd":0.5,"usage":{"input_tokens":1}}"#,
    ];
    let codex = [
        r#"{"type":"thread.started","thread_id":"t"}"#,
        r#"{"type":"item.started","item":{"id":"i","type":"command_execution","command":"ls"}}"#,
        r#"{"type":"item.completed","item":{"id":"i","type":"command_execution","command":"ls","aggregated_output":"x","exit_code":1}}"#,
        r#"{"type":"item.completed","item":{"id":"i","type":"file_change","changes":[{"path":"a","kind":"add"}]}}"#,
        r#"{"type":"item.completed","item":{"id":"i","type":"mcp_tool_call","server":"s","tool":"t"}}"#,
        r#"{"type":"item.updated","item":{"id":"i","type":"todo_list","items":[{"text":"a","completed":true}]}}"#,
        r#"{"type":"turn.completed","usage":{"input_tokens":3,"cached_input_tokens":1}}"#,
        r#"{"type":"turn.failed","error":{"message":"m"}}"#,
    ];
    let seed = |kind: u8, text: &str| [&[kind], text.as_bytes(), b"\n"].concat();
    let mut seeds: Vec<Vec<u8>> = claude.iter().map(|text| seed(0, text)).collect();
    seeds.extend(codex.iter().map(|text| seed(31, text)));
    seeds.push(seed(2, "one\r\ntwo\u{1b}[0m"));
    seeds
}
