//! What clients ask, and what is done about it.

use crate::keeper::cgroup::Frozen;
use crate::keeper::create::Maker;
use crate::keeper::errand::{Asker, Work};
use crate::keeper::serve::{Answer, Keeper, Stay, malformed};
use crate::keeper::{Session, change, grant, measure, revoke, survey};
use crate::kernel::path_of;
use cowork_api::files::{Rules, ToBroker};
use cowork_api::keeper::{
    Call, Certainty, EndReason, Fact, Failure, FailureCode, Reply, Request, Revoked,
};
use cowork_api::plan::{Grant, Limits, SessionPlan};
use rustix::fd::{AsFd, OwnedFd};
use std::path::Path;

impl Keeper {
    fn survey(&mut self, state: Option<&Path>) -> Vec<Fact> {
        survey::survey(&mut self.grounds, &self.cgroups, &self.proof, state)
    }

    /// Carries out a call of a client that is gone, if it is about what it left here. Nobody would
    /// hear what came of anything else.
    pub(super) fn carry_out_last(&mut self, call: Call, handles: Vec<OwnedFd>) {
        if matches!(
            call.request,
            Request::Deposit { .. } | Request::Release { .. } | Request::EndEgress { .. }
        ) {
            let nobody = u32::MAX;
            drop(self.carry_out(nobody, call, handles));
        }
    }

    /// Carries out a call of a client. `None` when it is answered later, or not at all.
    pub(super) fn carry_out(
        &mut self,
        client: u32,
        call: Call,
        handles: Vec<OwnedFd>,
    ) -> Option<Result<Answer, Failure>> {
        match call.request {
            Request::Deposit { session, command } => {
                if let Ok(session) = self.sessions.find(&session) {
                    session.deposits.keep(command, handles);
                }
                None
            }
            Request::Release { session, command } => {
                if let Ok(session) = self.sessions.find(&session) {
                    session.deposits.release(command);
                }
                None
            }
            Request::AnswerAsk { session, ask, allowed } => {
                if let Ok(session) = self.sessions.find(&session) {
                    session.tell_broker(&ToBroker::Answer { ask, allowed }, &[]);
                }
                None
            }
            Request::Settle { session } => match self.sessions.find(&session) {
                Ok(session) => {
                    let asker = Asker { client, call: call.number };
                    session.settle(asker).then(|| Ok((Reply::Done, Vec::new())))
                }
                Err(failure) => Some(Err(failure)),
            },
            Request::Boundary { session } => match self.sessions.find(&session) {
                Ok(session) => {
                    let asker = Asker { client, call: call.number };
                    session.boundary(asker).then(|| Ok((Reply::Done, Vec::new())))
                }
                Err(failure) => Some(Err(failure)),
            },
            Request::RemoveHome { path, folder } => {
                let asker = Asker { client, call: call.number };
                self.send_on_errand(asker, Work::Remove { path, folder }).err().map(Err)
            }
            Request::Clerk { session, order } => {
                let asker = Asker { client, call: call.number };
                self.send_on_errand(asker, Work::Clerk { session, order }).err().map(Err)
            }
            Request::Weigh { folders, most } => {
                let asker = Asker { client, call: call.number };
                self.send_on_errand(asker, Work::Weigh { folders, most }).err().map(Err)
            }
            Request::StartEgress => {
                let asker = Asker { client, call: call.number };
                self.start_egress(asker, handles).err().map(Err)
            }
            Request::EndEgress { pid } => {
                self.end_egress(pid);
                None
            }
            request => Some(self.answer_to(request)),
        }
    }

    fn answer_to(&mut self, request: Request) -> Result<Answer, Failure> {
        let reply = match request {
            Request::Create(plan) => return self.create(&plan),
            Request::Attach { session } => {
                let session = self.sessions.find(&session)?;
                return Ok((Reply::Session(session.status()), session.sockets()));
            }
            Request::Withdraw { session, command } => return self.withdraw(&session, command),
            Request::Grant { session, grant } => self.grant(&session, &grant)?,
            Request::Revoke { session, name } => {
                let number = self.sessions.number(&session)?;
                let grounds = self.grounds.as_ref().map_err(Failure::clone)?;
                let session = self.sessions.find(&session)?;
                let revoked = revoke::revoke(&self.proof, grounds, session, &name)?;
                self.end_if_revoked(number, &revoked);
                Reply::Revoked(revoked)
            }
            Request::Regrant { session, grant } => self.regrant(&session, &grant)?,
            Request::Freeze { session } => self.set_frozen(&session, Frozen::Yes)?,
            Request::Thaw { session } => self.set_frozen(&session, Frozen::No)?,
            Request::Destroy { session } => {
                let number = self.sessions.number(&session)?;
                self.finish(number);
                Reply::Done
            }
            Request::Status { session } => Reply::Session(self.sessions.find(&session)?.status()),
            Request::Survey => Reply::Surveyed(self.survey(None)),
            Request::SurveyFor { state } => Reply::Surveyed(self.survey(Some(path_of(&state)))),
            Request::Sessions => {
                Reply::Sessions(self.sessions.iter().map(Session::status).collect())
            }
            Request::SetLimits { session, limits } => self.set_limits(&session, limits)?,
            Request::Measure { session } => {
                Reply::Measured(measure::measure(self.sessions.find(&session)?))
            }
            Request::MeasureCommand { session, pid } => {
                Reply::Measured(measure::measure_command(self.sessions.find(&session)?, pid))
            }
            Request::Hits { session } => Reply::Hits(self.sessions.find(&session)?.group.hits()),
            Request::Find { session, name, pid } => {
                let found = measure::find(self.sessions.find(&session)?, name.as_deref(), pid);
                Reply::Found(found)
            }
            Request::Owner { session, socket } => {
                Reply::Owner(measure::owner(self.sessions.find(&session)?, socket))
            }
            Request::Listen { session, sockets } => {
                let session = self.sessions.find(&session)?;
                let handles = session.network.listen(&self.proof, session.pid, &sockets)?;
                return Ok((Reply::Listening(sockets), handles));
            }
            Request::Sockets { session } => {
                let (sockets, handles) = self.sessions.find(&session)?.network.copies()?;
                return Ok((Reply::Listening(sockets), handles));
            }
            Request::Leave => {
                self.end_all();
                // The seed goes as well: nobody is born any more.
                self.nursery = None;
                self.stay = Stay::Leaving;
                Reply::Done
            }
            Request::SetRules { session, grant, rules } => {
                self.set_rules(&session, grant, rules)?
            }
            Request::Boundary { .. }
            | Request::AnswerAsk { .. }
            | Request::Settle { .. }
            | Request::Clerk { .. }
            | Request::Deposit { .. }
            | Request::Release { .. }
            | Request::RemoveHome { .. }
            | Request::Weigh { .. }
            | Request::StartEgress
            | Request::EndEgress { .. } => {
                return Err(malformed("it is not answered here"));
            }
        };
        Ok((reply, Vec::new()))
    }

    fn create(&mut self, plan: &SessionPlan) -> Result<Answer, Failure> {
        if self.sessions.has(&plan.id) {
            return Err(Failure {
                code: FailureCode::SessionExists,
                sentence: format!("there is a session `{}` already", plan.id),
                errno: 0,
                hint: String::new(),
            });
        }
        if plan.id.parse::<cowork_policy::SessionId>().is_err() {
            return Err(malformed("the session's id is not one"));
        }
        if self.errands.remove_home_of(plan) {
            return Err(Failure {
                code: FailureCode::FolderRefused,
                sentence: "the folder of the session's home is being removed".into(),
                errno: 0,
                hint: "wait until it is gone".into(),
            });
        }
        let session = self.maker()?.make(plan)?;
        let (status, sockets) = (session.status(), session.sockets());
        self.adopt(session)?;
        Ok((Reply::Session(status), sockets))
    }

    /// What the making of sessions needs.
    pub(super) fn maker(&mut self) -> Result<Maker<'_>, Failure> {
        let grounds = self.grounds.as_mut().map_err(|failure| failure.clone())?;
        let nursery = self.nursery.as_mut().ok_or_else(|| malformed("no program for PID 1"))?;
        Ok(Maker {
            proof: &self.proof,
            grounds,
            templates: &mut self.templates,
            filters: &mut self.filters,
            networks: &mut self.networks,
            cgroups: &self.cgroups,
            pool: &self.pool,
            own: &self.own,
            nursery,
            keeper: self.own_process.as_fd(),
        })
    }

    fn withdraw(&mut self, session: &str, command: u32) -> Result<Answer, Failure> {
        let copies = self.sessions.find(session)?.deposits.copies(command);
        let copies = copies.ok_or_else(|| Failure {
            code: FailureCode::NoDeposit,
            sentence: format!("no descriptors are kept for command {command} of `{session}`"),
            errno: 0,
            hint: String::new(),
        })?;
        let number = u32::try_from(copies.len()).unwrap_or(u32::MAX);
        Ok((Reply::Withdrawn(number), copies))
    }

    fn grant(&mut self, session: &str, wanted: &Grant) -> Result<Reply, Failure> {
        let grounds = self.grounds.as_mut().map_err(|failure| failure.clone())?;
        let session = self.sessions.find(session)?;
        let prepared = grant::prepare(&self.proof, grounds, session, wanted)?;
        let submounts = grant::attach(session, prepared)?;
        Ok(Reply::Granted { submounts })
    }

    fn regrant(&mut self, session: &str, wanted: &Grant) -> Result<Reply, Failure> {
        let number = self.sessions.number(session)?;
        let grounds = self.grounds.as_mut().map_err(|failure| failure.clone())?;
        let session = self.sessions.find(session)?;
        let (revoked, submounts) = revoke::regrant(&self.proof, grounds, session, wanted)?;
        self.end_if_revoked(number, &revoked);
        Ok(Reply::Regranted { revoked, submounts })
    }

    fn end_if_revoked(&mut self, number: u32, revoked: &Revoked) {
        if revoked.certainty == Certainty::SessionEnded {
            self.end(number, EndReason::Revocation);
        }
    }

    fn set_frozen(&mut self, session: &str, frozen: Frozen) -> Result<Reply, Failure> {
        let session = self.sessions.find(session)?;
        session.broker.leave_frozen();
        let result = session.set_frozen(frozen);
        result.map_err(|failed| failed.into_failure(FailureCode::StepFailed))?;
        Ok(Reply::Done)
    }

    fn set_rules(&mut self, session: &str, grant: String, rules: Rules) -> Result<Reply, Failure> {
        let session = self.sessions.find(session)?;
        let door = session.doors.open.iter_mut().find(|door| door.name() == grant);
        let door = door.ok_or_else(|| Failure {
            code: FailureCode::NoGrant,
            sentence: format!("`{grant}` is no folder whose changes are recorded"),
            errno: 0,
            hint: String::new(),
        })?;
        door.set_rules(rules.clone());
        session.tell_broker(&ToBroker::Rules { name: grant, rules }, &[]);
        Ok(Reply::Done)
    }

    fn set_limits(&mut self, session: &str, limits: Limits) -> Result<Reply, Failure> {
        let number = self.sessions.number(session)?;
        let deadline = change::change(self.sessions.find(session)?, limits)?;
        self.sessions.set_deadline(number, deadline);
        Ok(Reply::Done)
    }
}
