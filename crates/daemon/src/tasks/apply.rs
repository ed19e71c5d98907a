//! What an agent said, as changes of its task.

use super::kept::{Draft, Kept, KeptStep, News};
use cowork_client::types::{PlanState, PlanStep, TaskMessageKind, TaskProtocol, TaskUsage};
use cowork_session::speech::{
    Answer, Language, MAX_ANSWER, MAX_STEPS, Outcome, Progress, Question, Said, Step, Used, Words,
};

/// Most uses of tools that have no result yet.
const MAX_CALLS: usize = 256;

/// What is to be done about what an agent said.
#[derive(Debug, PartialEq)]
pub(super) enum Matter {
    /// Nothing more.
    Nothing,
    /// It asks whether it may use a tool.
    Asks(Question),
    /// It no longer wants to know.
    Withdraws(String),
    /// It asks something that nobody here knows.
    AsksOther { question: String, kind: String },
    /// It has answered, and knows all that was said to it.
    Answered(Outcome),
    /// It has answered before it took up everything that was said to it.
    AnsweredEarly,
}

/// Applies one thing that was said.
pub(super) fn apply(kept: &mut Kept, news: &mut News, said: Said) -> Matter {
    match said {
        Said::Began { conversation, model } => {
            kept.task.conversation = conversation.or_else(|| kept.task.conversation.take());
            kept.task.model = model.or_else(|| kept.task.model.take());
        }
        Said::Heard { message } => {
            kept.hears = true;
            kept.unheard.retain(|unheard| *unheard != message);
        }
        Said::Text(words) => {
            if kept.protocol != Some(TaskProtocol::ClaudeStreamJson) {
                answer_so_far(kept, &words);
            }
            kept.say(news, TaskMessageKind::Text, words);
        }
        Said::Thought(words) => kept.say(news, TaskMessageKind::Thought, words),
        Said::Note(words) => kept.say(news, TaskMessageKind::Note, words),
        Said::Tool { call, tool, gist } => use_tool(kept, news, call, tool, gist),
        Said::Result { call, gist, failed } => {
            name_step(kept, &call, &gist.text);
            let tool = kept.calls.remove(&call);
            kept.failed_tools += u64::from(failed);
            let draft = Draft { words: gist, tool, call: Some(call), failed };
            kept.say(news, TaskMessageKind::Result, draft);
        }
        Said::Plan(steps) => {
            kept.steps.clear();
            kept.task.plan = steps.into_iter().map(shown).collect();
            kept.tell_plan(news);
        }
        Said::NewStep { call, step } => new_step(kept, news, call, step),
        Said::StepChanged { name, text, progress } => {
            change_step(kept, news, &name, text, progress);
        }
        Said::Asks(question) => return Matter::Asks(question),
        Said::Withdraws { question } => return Matter::Withdraws(question),
        Said::AsksOther { question, kind } => return Matter::AsksOther { question, kind },
        Said::Answered(answer) => return answered(kept, news, answer),
    }
    Matter::Nothing
}

fn use_tool(kept: &mut Kept, news: &mut News, call: String, tool: String, gist: Words) {
    kept.tools += 1;
    if kept.calls.len() < MAX_CALLS {
        kept.calls.insert(call.clone(), tool.clone());
    }
    let draft = Draft { words: gist, tool: Some(tool), call: Some(call), failed: false };
    kept.say(news, TaskMessageKind::Tool, draft);
}

/// What is said to the user is the answer, in languages that have no other: all of plain text, the
/// last of messages.
fn answer_so_far(kept: &mut Kept, words: &Words) {
    let plain = kept.protocol == Some(TaskProtocol::Plain);
    match &mut kept.task.answer {
        Some(answer) if plain => {
            if answer.len() + words.text.len() < MAX_ANSWER {
                answer.push('\n');
                answer.push_str(&words.text);
            }
        }
        answer => *answer = Some(words.text.clone()),
    }
}

fn answered(kept: &mut Kept, news: &mut News, answer: Answer) -> Matter {
    kept.task.answer = answer.text.map(|words| words.text).or_else(|| kept.task.answer.take());
    add_usage(kept, answer.used);
    kept.tell_usage(news);
    let all_heard = !kept.hears || kept.unheard.is_empty();
    if answer.outcome == Outcome::Good && !all_heard && !kept.cancelling {
        return Matter::AnsweredEarly;
    }
    Matter::Answered(answer.outcome)
}

fn add_usage(kept: &mut Kept, used: Used) {
    let before = kept.task.usage;
    let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    };
    // Told since the program was started, which may have done earlier tasks.
    let cost = used.cost.map(|total| {
        let more = if total >= kept.cost { total - kept.cost } else { total };
        kept.cost = total;
        more
    });
    kept.task.usage = TaskUsage {
        input_tokens: before.input_tokens.saturating_add(used.input),
        output_tokens: before.output_tokens.saturating_add(used.output),
        cache_read_tokens: before.cache_read_tokens.saturating_add(used.cache_read),
        cache_written_tokens: before.cache_written_tokens.saturating_add(used.cache_written),
        turns: sum(before.turns, used.turns),
        cost_usd: match (before.cost_usd, cost) {
            (Some(before), Some(more)) => Some(before + more),
            (before, more) => before.or(more),
        },
    };
}

fn shown(step: Step) -> PlanStep {
    PlanStep { text: step.text, state: state_of(step.progress) }
}

fn state_of(progress: Progress) -> PlanState {
    match progress {
        Progress::Pending => PlanState::Pending,
        Progress::Active => PlanState::Active,
        Progress::Done => PlanState::Done,
    }
}

fn new_step(kept: &mut Kept, news: &mut News, call: String, step: Step) {
    // A plan that was told as a whole is another one.
    if kept.steps.len() != kept.task.plan.len() {
        kept.steps.clear();
        kept.task.plan.clear();
    }
    if kept.steps.len() < MAX_STEPS {
        kept.steps.push(KeptStep { call, name: None });
        kept.task.plan.push(shown(step));
        kept.tell_plan(news);
    }
}

/// The result of what made a step tells the step's name: `Task #3 created …`.
fn name_step(kept: &mut Kept, call: &str, result: &str) {
    let Some(step) = kept.steps.iter_mut().find(|step| step.call == call) else { return };
    let digits = result.split_once('#').map(|(_, rest)| rest).unwrap_or_default();
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    step.name = (!digits.is_empty()).then_some(digits);
}

fn change_step(
    kept: &mut Kept,
    news: &mut News,
    name: &str,
    text: Option<String>,
    progress: Option<Progress>,
) {
    let index = kept.steps.iter().position(|step| step.name.as_deref() == Some(name));
    let Some(index) = index else { return };
    match (kept.task.plan.get_mut(index), text, progress) {
        (Some(step), Some(text), None) => step.text = text,
        (Some(step), text, Some(progress)) => {
            step.state = state_of(progress);
            step.text = text.unwrap_or_else(|| step.text.clone());
        }
        (Some(_), None, None) => {
            kept.steps.remove(index);
            kept.task.plan.remove(index);
        }
        (None, _, _) => return,
    }
    kept.tell_plan(news);
}

/// The language that goes with a protocol.
pub(super) fn language(protocol: TaskProtocol) -> Language {
    match protocol {
        TaskProtocol::ClaudeStreamJson => Language::Claude,
        TaskProtocol::CodexExecJson => Language::Codex,
        TaskProtocol::Plain => Language::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::{Matter, apply};
    use crate::tasks::kept::{Kept, News};
    use cowork_client::types::{
        Approvals, PlanState, Task, TaskMessageKind, TaskProtocol, TaskState, TaskUsage,
    };
    use cowork_session::speech::{Answer, Outcome, Progress, Said, Step, Used, Words, clean};

    fn kept(protocol: TaskProtocol) -> Kept {
        let mut kept = Kept::new(Task {
            number: 1,
            session: "s".into(),
            agent: "a".into(),
            model: None,
            approvals: Approvals::Ask,
            prompt: "p".into(),
            attachments: Vec::new(),
            state: TaskState::Running,
            reason: None,
            created: String::new(),
            started: None,
            ended: None,
            command: None,
            conversation: None,
            requests: Vec::new(),
            plan: Vec::new(),
            messages: 0,
            answer: None,
            usage: TaskUsage::default(),
            summary: None,
        });
        kept.protocol = Some(protocol);
        kept
    }

    fn words(text: &str) -> Words {
        clean(text, 1000)
    }

    fn answer(text: Option<&str>, cost: f64) -> Said {
        Said::Answered(Answer {
            text: text.map(words),
            outcome: Outcome::Good,
            used: Used { input: 1, output: 2, cost: Some(cost), ..Used::default() },
        })
    }

    #[test]
    fn cost_is_counted_from_the_last_answer_of_the_program() {
        let mut task = kept(TaskProtocol::ClaudeStreamJson);
        task.cost = 1.0;
        let mut news = News::default();
        assert_eq!(
            apply(&mut task, &mut news, answer(Some("a"), 1.5)),
            Matter::Answered(Outcome::Good)
        );
        assert_eq!(task.task.usage.cost_usd, Some(0.5));
        apply(&mut task, &mut news, answer(Some("b"), 2.0));
        assert_eq!((task.task.usage.cost_usd, task.task.usage.input_tokens), (Some(1.0), 2));
        assert_eq!(task.task.answer.as_deref(), Some("b"));
    }

    #[test]
    fn an_answer_before_all_was_heard_is_not_the_last_one() {
        let mut task = kept(TaskProtocol::ClaudeStreamJson);
        let mut news = News::default();
        task.unheard = vec!["one".into()];
        // One that does not say what it hears is believed to have heard.
        assert_eq!(apply(&mut task, &mut news, answer(None, 0.0)), Matter::Answered(Outcome::Good));
        apply(&mut task, &mut news, Said::Heard { message: "one".into() });
        task.unheard.push("two".into());
        assert_eq!(apply(&mut task, &mut news, answer(None, 0.0)), Matter::AnsweredEarly);
        apply(&mut task, &mut news, Said::Heard { message: "two".into() });
        assert_eq!(apply(&mut task, &mut news, answer(None, 0.0)), Matter::Answered(Outcome::Good));
    }

    #[test]
    fn a_plan_is_made_as_a_whole_or_step_by_step() {
        let mut task = kept(TaskProtocol::ClaudeStreamJson);
        let mut news = News::default();
        let step = |text: &str| Step { text: text.into(), progress: Progress::Pending };
        apply(&mut task, &mut news, Said::Plan(vec![step("old")]));
        for call in ["c1", "c2"] {
            apply(&mut task, &mut news, Said::NewStep { call: call.into(), step: step(call) });
        }
        let gist = words("Task #7 created successfully: c2");
        apply(&mut task, &mut news, Said::Result { call: "c2".into(), gist, failed: false });
        let changed =
            |name: &str, progress| Said::StepChanged { name: name.into(), text: None, progress };
        apply(&mut task, &mut news, changed("7", Some(Progress::Active)));
        apply(&mut task, &mut news, changed("9", Some(Progress::Done)));
        let plan: Vec<_> = task.task.plan.iter().map(|s| (s.text.as_str(), s.state)).collect();
        assert_eq!(plan, [("c1", PlanState::Pending), ("c2", PlanState::Active)]);
        apply(&mut task, &mut news, changed("7", None));
        assert_eq!(task.task.plan.len(), 1);
    }

    #[test]
    fn the_answer_of_plain_text_is_all_of_it() {
        for (protocol, expected) in
            [(TaskProtocol::Plain, "a\nb"), (TaskProtocol::CodexExecJson, "b")]
        {
            let mut task = kept(protocol);
            let mut news = News::default();
            for text in ["a", "b"] {
                apply(&mut task, &mut news, Said::Text(words(text)));
            }
            assert_eq!(task.task.answer.as_deref(), Some(expected));
            assert_eq!(news.messages.len(), 2);
            assert!(news.messages.iter().all(|one| one.kind == TaskMessageKind::Text));
        }
    }
}
