//! The rules of a folder whose changes are recorded: those that every session has, those that the
//! user made, and limits. They are put together whenever they are needed.

use super::kept::StandingRule;
use super::store::is_recorded;
use super::{show, wanted};
use crate::daemon::Daemon;
use crate::session::doc::{self, Doc, KeptGrant};
use crate::session::{Session, has_sandbox};
use crate::trouble::Trouble;
use cowork_api::files::{NameRule, Rules};
use cowork_api::keeper::Request;
use cowork_api::plan::Writing;
use cowork_client::types::{Grant, NamePolicy, PlaceName};
use cowork_policy::files;
use cowork_policy::plan::GrantRequest;
use std::sync::Arc;

/// Where the catalogue keeps the rules that stand for folders in all sessions.
const STANDING: &str = "changes.standing";
/// Most rules that stand for folders in all sessions.
const MAX_STANDING: usize = 1000;

/// A rule as the keeper is told it.
pub(super) fn rule(
    pattern: &str,
    policy: NamePolicy,
    reason: Option<&str>,
) -> Result<NameRule, Trouble> {
    let made = files::name_rule(pattern, show::policy(policy), reason);
    made.map_err(|error| {
        Trouble::refused("bad-rule", error.to_string()).with_hint("e.g. `.github/workflows/**`")
    })
}

/// A rule of a place in the host's tree, as the keeper is told it.
fn place_rule(name: &PlaceName) -> Result<NameRule, Trouble> {
    rule(&name.pattern, name.policy, name.reason.as_deref())
}

/// Refuses a rule of a place in the host's tree that is not written as it should be.
pub(crate) fn check_name(name: &PlaceName) -> Result<(), Trouble> {
    place_rule(name).map(drop)
}

impl Daemon {
    /// What a session may do in one of its folders.
    pub(super) fn rules_for(&self, doc: &Doc, grant: &Grant) -> Result<Rules, Trouble> {
        let mut rules = files::default_rules();
        if let Some(names) = doc.spec.view.as_ref().and_then(|view| view.names(&grant.name)) {
            rules.names = names.iter().map(place_rule).collect::<Result<_, _>>()?;
        }
        let standing = self.standing_names()?.into_iter();
        let standing = standing.filter(|rule| rule.folder == grant.path);
        let standing = standing.map(|it| (it.pattern, it.policy, it.reason));
        let own = doc.changes.rules.iter();
        let own = own.filter(|rule| rule.grant.as_ref().is_none_or(|name| *name == grant.name));
        let own = own.cloned().map(|it| (it.pattern, it.policy, it.reason));
        for (pattern, policy, reason) in standing.chain(own) {
            let rule = rule(&pattern, policy, Some(&reason))?;
            files::add(&mut rules, rule)
                .map_err(|error| Trouble::refused("bad-rule", error.to_string()))?;
        }
        wanted::apply(&mut rules, &doc.spec.writes)?;
        wanted::apply(&mut rules, &grant.writes)?;
        self.places.protect_programs(&doc::path(&grant.path)?, &mut rules);
        Ok(rules)
    }

    /// How the changes of a granted folder are recorded.
    fn writing(&self, doc: &Doc, grant: &Grant) -> Result<Writing, Trouble> {
        if !is_recorded(grant.access) {
            return Ok(Writing::default());
        }
        let store = match &doc.changes.store {
            Some(name) => self.kept_store(name)?,
            None => None,
        };
        let rules = self.rules_for(doc, grant)?;
        Ok(Writing { store, rules, direct: wanted::subfolders(&grant.direct)? })
    }

    /// A grant as policy wants it.
    pub(crate) fn grant_request(
        &self,
        doc: &Doc,
        kept: &KeptGrant,
    ) -> Result<GrantRequest, Trouble> {
        kept.request(self.writing(doc, &kept.grant)?)
    }

    /// Puts the rules of a session's folders in force, of one or of all.
    pub(crate) async fn renew_writes(
        self: &Arc<Self>,
        session: &Session,
        only: Option<&str>,
    ) -> Result<(), Trouble> {
        let doc = session.doc();
        if !has_sandbox(doc.state) {
            return Ok(());
        }
        let grants = doc.grants.iter().map(|kept| &kept.grant);
        let meant = |grant: &&Grant| {
            grant.access == cowork_client::types::Access::Write
                && only.is_none_or(|only| grant.name == only)
        };
        for grant in grants.filter(meant) {
            let rules = self.rules_for(&doc, grant)?;
            let (session, grant) = (session.id.clone(), grant.name.clone());
            self.engine.call(Request::SetRules { session, grant, rules }).await?;
        }
        Ok(())
    }

    /// Rules that stand for folders in all sessions.
    pub(super) fn standing_names(&self) -> Result<Vec<StandingRule>, Trouble> {
        let text = self.book.catalogue.get(STANDING)?;
        let Some(text) = text else { return Ok(Vec::new()) };
        serde_json::from_str(&text)
            .map_err(|error| Trouble::host("the standing rules cannot be read", error))
    }

    /// Changes the rules that stand for folders in all sessions.
    pub(super) fn set_standing_names(&self, rules: &[StandingRule]) -> Result<(), Trouble> {
        if rules.len() > MAX_STANDING {
            let sentence = format!("there are {MAX_STANDING} standing rules about names already");
            return Err(Trouble::conflict("too-many", sentence));
        }
        let text = serde_json::to_string(rules)
            .map_err(|error| Trouble::host("cannot write down the standing rules", error))?;
        Ok(self.book.catalogue.set(STANDING, &text)?)
    }
}
