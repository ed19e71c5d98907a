//! Questions of agents whether they may use a tool: requests that the user decides.

use super::desk::Desk;
use super::kept::{Kept, KeptQuestion, News, Written};
use super::turn::Turn;
use crate::book::now;
use crate::daemon::Daemon;
use crate::session::{Session, document_of_request, plain};
use crate::trouble::Trouble;
use cowork_client::types::{Access, Approvals, Decide, Decision, Request, RequestState};
use cowork_session::catalogue::CatalogueError;
use cowork_session::speech::{Question, claude, clean};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Arc;

/// What such a request is called.
pub(crate) const KIND: &str = "tool";
/// Most questions of a task that wait for an answer.
const MAX_PENDING: usize = 16;
/// Most questions of one task.
const MAX_ASKED: u32 = 1000;
/// Longest text of a request, in bytes.
const MAX_TEXT: usize = 2000;

/// What is answered without asking the user.
struct Verdict {
    decision: Decision,
    /// Why, for the record.
    by: &'static str,
    /// Why, for the agent.
    why: &'static str,
}

impl Turn<'_> {
    /// The agent asks whether it may use a tool.
    pub(super) fn ask(&mut self, question: &Question, news: &mut News) {
        self.kept.asked = self.kept.asked.saturating_add(1);
        if let Some(verdict) = self.verdict(question) {
            self.answer_at_once(question, &verdict, news);
            return;
        }
        let daemon = Arc::clone(&self.desk().daemon);
        let held = KeptQuestion {
            name: question.name.clone(),
            request: 0,
            tool: question.tool.clone(),
            input: question.input.clone(),
        };
        let request = request(&self.kept, question);
        match daemon.ask_tool(&mut self.kept, request, held, news) {
            Ok(()) => *news = News::default(),
            Err(trouble) => {
                // What cannot be recorded is refused.
                self.reply(claude::deny(&question.name, &trouble.sentence));
            }
        }
    }

    fn verdict(&self, question: &Question) -> Option<Verdict> {
        let no = |by, why| Some(Verdict { decision: Decision::RejectOnce, by, why });
        let yes = |by| Some(Verdict { decision: Decision::AllowOnce, by, why: "" });
        match self.kept.task.approvals {
            Approvals::Auto => return yes("auto"),
            Approvals::Deny => {
                return no("deny", "the user allows no tool that has to be asked for");
            }
            Approvals::Ask => {}
        }
        let desk = self.desk();
        match desk.daemon.standing_tool(&desk.session, &question.tool, &question.input) {
            Some(true) => return yes("standing"),
            Some(false) => return no("standing", "the user has said no to this for good"),
            None => {}
        }
        if self.kept.questions.len() >= MAX_PENDING || self.kept.asked > MAX_ASKED {
            return no("too-many", "too many questions were asked already");
        }
        None
    }

    fn answer_at_once(&mut self, question: &Question, verdict: &Verdict, news: &mut News) {
        let allowed = verdict.decision == Decision::AllowOnce;
        let answer = if allowed {
            claude::allow(&question.name, &question.input)
        } else {
            claude::deny(&question.name, verdict.why)
        };
        self.reply(answer);
        let kind = if allowed { "task.allowed" } else { "task.denied" };
        let data = json!({
            "task": self.kept.task.number, "tool": question.tool,
            "about": clean(&question.about.text, MAX_TEXT).text, "by": verdict.by,
        });
        let daemon = Arc::clone(&self.desk().daemon);
        let recorded = daemon.record_task(kind, &data, &self.kept, &std::mem::take(news));
        if recorded.is_err() && allowed {
            self.kept.replies.pop();
            self.reply(claude::deny(&question.name, "it cannot be recorded"));
        }
    }

    /// The agent no longer wants to know.
    pub(super) fn withdraw(&mut self, question: &str, news: &mut News) {
        let gone = self.kept.questions.iter().position(|known| known.name == question);
        let Some(gone) = gone else { return };
        let question = self.kept.questions.remove(gone);
        self.desk().daemon.expire_tool(question.request);
        self.kept.count_questions(news);
    }

    /// Takes the user's answers; whether there were any.
    pub(super) fn take_answers(&mut self, news: &mut News) -> bool {
        let daemon = Arc::clone(&self.desk().daemon);
        let mut answers = Vec::new();
        self.kept.questions.retain(|question| {
            let decided = daemon.request(question.request);
            let answer = match decided {
                Ok(request) => match request.state {
                    RequestState::Pending => return true,
                    RequestState::Allowed => claude::allow(&question.name, &question.input),
                    RequestState::Rejected => {
                        let why = request.note.as_deref().filter(|note| !note.is_empty());
                        claude::deny(&question.name, why.unwrap_or("the user said no"))
                    }
                    RequestState::Expired => claude::deny(&question.name, "nobody answered"),
                },
                Err(_) => claude::deny(&question.name, "nobody answered"),
            };
            answers.push(answer);
            false
        });
        let any = !answers.is_empty();
        for answer in answers {
            self.reply(answer);
        }
        if any {
            self.kept.count_questions(news);
        }
        any
    }
}

impl Desk {
    /// Nobody waits for the answers any more.
    pub(super) fn expire_questions(&self, kept: &mut Kept) {
        for question in std::mem::take(&mut kept.questions) {
            self.daemon.expire_tool(question.request);
        }
        kept.task.requests.clear();
    }
}

impl Daemon {
    /// Puts a question to the user: recorded, and written down with the task, in one step.
    fn ask_tool(
        &self,
        kept: &mut Kept,
        request: Request,
        mut question: KeptQuestion,
        news: &News,
    ) -> Result<(), Trouble> {
        let session = kept.task.session.clone();
        let id = self.book.catalogue.number_request()?;
        let request = Request { id, ..request };
        let data = json!({
            "request": id, "kind": KIND, "wanted": request.wanted, "reason": request.reason,
            "task": kept.task.number,
        });
        let text = document_of_request(&request)?;
        let mut changed = kept.clone();
        let mut told = news.clone();
        self.book.record_with("request.created", Some(&session), &data, |catalogue| {
            catalogue.add_request(id, &session, &text)?;
            question.request = id;
            changed.questions.push(question);
            changed.count_questions(&mut told);
            told.events.push(("request.pending", json!({ "request": request })));
            // What cannot be written down is not asked.
            let written =
                Written::of(&changed, &told).map_err(|_text| CatalogueError::NoRequest { id })?;
            written.put(catalogue, &changed)?;
            told.add_to(catalogue, &session)
        })?;
        *kept = changed;
        Ok(())
    }

    /// The user answers about a tool.
    pub(crate) fn decide_tool(
        self: &Arc<Self>,
        session: &Arc<Session>,
        mut request: Request,
        decide: &Decide,
    ) -> Result<Request, Trouble> {
        let state = match decide.decision {
            Decision::AllowOnce | Decision::AllowSession | Decision::AllowAlways => {
                RequestState::Allowed
            }
            Decision::RejectOnce | Decision::RejectAlways => RequestState::Rejected,
        };
        self.remember_tool(session, &request, decide.decision)?;
        request.decision = Some(decide.decision);
        request.note = decide.note.as_deref().map(plain);
        let request = self.close_request(request, state)?;
        self.attend(session);
        Ok(request)
    }

    /// What the user said for good about the same use of the same tool.
    fn standing_tool(&self, session: &Session, tool: &str, input: &Value) -> Option<bool> {
        let scope = scope(session);
        [scope.as_str(), "*"].into_iter().find_map(|scope| {
            let kept = self.book.catalogue.get(&key(scope, tool, input)).ok()??;
            Some(kept == "allow")
        })
    }

    fn remember_tool(
        &self,
        session: &Session,
        request: &Request,
        decision: Decision,
    ) -> Result<(), Trouble> {
        let scope = match decision {
            Decision::AllowOnce | Decision::RejectOnce => return Ok(()),
            Decision::AllowSession => scope(session),
            Decision::AllowAlways | Decision::RejectAlways => "*".to_owned(),
        };
        let known = self.kept_tasks(session)?;
        let mut questions = known.iter().flat_map(|kept| &kept.questions);
        let Some(question) = questions.find(|question| question.request == request.id) else {
            return Ok(());
        };
        let value = if decision == Decision::RejectAlways { "deny" } else { "allow" };
        let key = key(&scope, &question.tool, &question.input);
        Ok(self.book.catalogue.set(&key, value)?)
    }

    fn expire_tool(&self, id: u64) {
        if let Ok(mut request) = self.request(id)
            && request.state == RequestState::Pending
        {
            request.note = Some("withdrawn: nothing waits for it any more".into());
            drop(self.close_request(request, RequestState::Expired));
        }
    }
}

/// A session by its name and its birth.
fn scope(session: &Session) -> String {
    format!("{}@{}", session.id, session.doc().created)
}

/// The name under which an answer about a use of a tool is kept.
fn key(scope: &str, tool: &str, input: &Value) -> String {
    let mut print = String::new();
    for byte in digest(&SHA256, input.to_string().as_bytes()).as_ref() {
        cowork_sys::ignore(write!(print, "{byte:02x}"));
    }
    format!("tool/{scope}/{tool}/{print}")
}

fn request(kept: &Kept, question: &Question) -> Request {
    let cut = if question.about.cut { " (cut: there is more)" } else { "" };
    let wanted = format!("{}: {}{cut}", question.tool, question.about.text);
    Request {
        id: 0,
        session: kept.task.session.clone(),
        asker: None,
        kind: KIND.into(),
        wanted: clean(&plain(&wanted), MAX_TEXT).text,
        reason: format!("task {} of {}", kept.task.number, kept.task.agent),
        access: Access::Read,
        state: RequestState::Pending,
        created: now(),
        decided: None,
        decision: None,
        note: None,
        grant: None,
    }
}
