//! Rules about names that a user looks at, makes and takes back.

use super::kept::KeptRule;
use super::{rules, show};
use crate::daemon::Daemon;
use crate::session::{Session, plain};
use crate::trouble::Trouble;
use cowork_api::files::Rules;
use cowork_client::types::{
    Access, NamePolicy, NewProtectedName, PlaceName, ProtectedName, RuleOrigin,
};
use cowork_policy::files;
use cowork_session::life::{Misfit, State};
use serde_json::json;
use std::sync::Arc;

/// Most rules about names that a session has.
const MAX_RULES: usize = 200;

impl Daemon {
    /// Every rule about names in a session, those of the user first.
    pub(crate) fn protected(&self, session: &Session) -> Result<Vec<ProtectedName>, Trouble> {
        let doc = session.doc();
        let own = doc.changes.rules.iter().map(|rule| ProtectedName {
            pattern: rule.pattern.clone(),
            policy: rule.policy,
            reason: rule.reason.clone(),
            grant: rule.grant.clone(),
            origin: RuleOrigin::Session,
        });
        let mut all: Vec<ProtectedName> = own.collect();
        for standing in self.standing_names()? {
            let granted = doc.grants.iter().filter(|kept| kept.grant.path == standing.folder);
            all.extend(granted.map(|kept| ProtectedName {
                pattern: standing.pattern.clone(),
                policy: standing.policy,
                reason: standing.reason.clone(),
                grant: Some(kept.grant.name.clone()),
                origin: RuleOrigin::Always,
            }));
        }
        for kept in doc.grants.iter().filter(|kept| kept.grant.access == Access::Write) {
            let mut rules = Rules::default();
            let folder = crate::session::doc::path(&kept.grant.path)?;
            self.places.protect_programs(&folder, &mut rules);
            all.extend(rules.names.into_iter().map(|rule| ProtectedName {
                pattern: rule.pattern,
                policy: show::shown_policy(rule.policy),
                reason: rule.reason,
                grant: Some(kept.grant.name.clone()),
                origin: RuleOrigin::Default,
            }));
        }
        let replaced = |pattern: &str| {
            doc.changes.rules.iter().any(|rule| rule.grant.is_none() && rule.pattern == pattern)
        };
        let usual = files::default_rules().names.into_iter();
        let usual = usual.filter(|rule| !replaced(&rule.pattern)).map(|rule| ProtectedName {
            pattern: rule.pattern,
            policy: show::shown_policy(rule.policy),
            reason: rule.reason,
            grant: None,
            origin: RuleOrigin::Default,
        });
        all.extend(usual);
        Ok(all)
    }

    /// Adds a rule about names; in force at once. One with the same pattern is replaced.
    pub(crate) async fn protect(
        self: &Arc<Self>,
        session: &Arc<Session>,
        new: &NewProtectedName,
    ) -> Result<ProtectedName, Trouble> {
        let _turn = session.turn.lock().await;
        self.add_name_rule(session, new).await
    }

    /// The turn is held by the caller, or nothing else changes the rules.
    pub(super) async fn add_name_rule(
        self: &Arc<Self>,
        session: &Arc<Session>,
        new: &NewProtectedName,
    ) -> Result<ProtectedName, Trouble> {
        let doc = session.doc();
        if doc.state == State::Ended {
            return Err(Misfit::Ended.into());
        }
        if let Some(name) = &new.grant
            && !doc.grants.iter().any(|kept| kept.grant.name == *name)
        {
            let sentence = format!("the session has no granted folder `{}`", name.escape_debug());
            return Err(Trouble::missing("no-grant", sentence));
        }
        let (reason, grant) = (new.reason.as_deref(), new.grant.as_deref());
        let kept = kept(&new.pattern, new.policy, reason, grant)?;
        let same = |known: &KeptRule| known.pattern == kept.pattern && known.grant == kept.grant;
        let replaces = doc.changes.rules.iter().any(same);
        if !replaces && doc.changes.rules.len() >= MAX_RULES {
            let sentence = format!("a session has at most {MAX_RULES} rules about names");
            return Err(Trouble::conflict("too-many", sentence)
                .with_hint("remove one with `cowork protect remove`"));
        }
        let data = json!({
            "pattern": kept.pattern, "policy": kept.policy, "grant": kept.grant,
            "reason": kept.reason,
        });
        self.book.record("files.protected", Some(&session.id), &data)?;
        session.change(&self.book, |doc| {
            doc.changes.rules.retain(|known| !same(known));
            doc.changes.rules.push(kept.clone());
        })?;
        self.renew_writes(session, kept.grant.as_deref()).await?;
        Ok(ProtectedName {
            pattern: kept.pattern,
            policy: kept.policy,
            reason: kept.reason,
            grant: kept.grant,
            origin: RuleOrigin::Session,
        })
    }

    /// Takes a rule about names back that the user made.
    pub(crate) async fn unprotect(
        self: &Arc<Self>,
        session: &Arc<Session>,
        pattern: &str,
        grant: Option<&str>,
    ) -> Result<(), Trouble> {
        let _turn = session.turn.lock().await;
        let doc = session.doc();
        let meant = |rule: &KeptRule| {
            rule.pattern == pattern && grant.is_none_or(|name| rule.grant.as_deref() == Some(name))
        };
        let folders: Vec<_> = doc
            .grants
            .iter()
            .filter(|kept| grant.is_none_or(|name| kept.grant.name == name))
            .map(|kept| &kept.grant.path)
            .collect();
        let mut standing = self.standing_names()?;
        let before = standing.len();
        standing.retain(|rule| rule.pattern != pattern || !folders.contains(&&rule.folder));
        let stands = standing.len() < before;
        if !stands && !doc.changes.rules.iter().any(meant) {
            return Err(no_rule(pattern));
        }
        let data = json!({ "pattern": pattern, "grant": grant });
        self.book.record("files.unprotected", Some(&session.id), &data)?;
        if stands {
            self.set_standing_names(&standing)?;
        }
        session.change(&self.book, |doc| doc.changes.rules.retain(|rule| !meant(rule)))?;
        self.renew_writes(session, None).await
    }
}

/// The rules that a session is asked for with; of two with the same pattern the later one counts.
pub(crate) fn wanted_rules(wanted: &[PlaceName]) -> Result<Vec<KeptRule>, Trouble> {
    if wanted.len() > MAX_RULES {
        let sentence = format!("a session has at most {MAX_RULES} rules about names");
        return Err(Trouble::refused("bad-rule", sentence));
    }
    let mut rules: Vec<KeptRule> = Vec::new();
    for new in wanted {
        let kept = kept(&new.pattern, new.policy, new.reason.as_deref(), None)?;
        rules.retain(|known| known.pattern != kept.pattern);
        rules.push(kept);
    }
    Ok(rules)
}

fn kept(
    pattern: &str,
    policy: NamePolicy,
    reason: Option<&str>,
    grant: Option<&str>,
) -> Result<KeptRule, Trouble> {
    let rule = rules::rule(pattern, policy, reason.map(plain).as_deref())?;
    let grant = grant.map(str::to_owned);
    Ok(KeptRule { pattern: rule.pattern, policy, reason: rule.reason, grant })
}

fn no_rule(pattern: &str) -> Trouble {
    let usual = files::default_rules().names.iter().any(|rule| rule.pattern == pattern);
    let sentence = format!("you made no rule for `{}` here", pattern.escape_debug());
    Trouble::missing("no-rule", sentence).with_hint(if usual {
        "every session has this one: allow it with `cowork protect add ID PATTERN --allow`"
    } else {
        "see `cowork protect list`"
    })
}
