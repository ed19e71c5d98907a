//! `cowork protect`: names whose changes are marked, asked about or refused.

use super::{on, target};
use crate::arguments::{Protect, ProtectAdd, ProtectList, ProtectRemove, ProtectVerb};
use crate::daemon;
use crate::failure::{Failure, note};
use crate::show;
use crate::show::table::{Cell, Colour, Table, Tone};
use cowork_api::files::NamePolicy as Wire;
use cowork_client::http::{Method, Request};
use cowork_client::types::{NamePolicy, NewProtectedName, ProtectedName, RuleOrigin};
use cowork_client::uri::Query;
use cowork_policy::files;
use serde_json::json;
use std::process::ExitCode;

/// `cowork protect`.
pub(crate) fn protect(options: &Protect) -> Result<ExitCode, Failure> {
    match &options.verb {
        ProtectVerb::List(options) => list(options),
        ProtectVerb::Add(options) => add(options),
        ProtectVerb::Remove(options) => remove(options),
    }
}

fn list(options: &ProtectList) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    let (_, rules) = on(&mut client, &options.session, |client, id| {
        client.get::<Vec<ProtectedName>>(target(id, "/protected"))
    })?;
    if options.output.json {
        return show::json(&rules);
    }
    show::print(table(&rules, Colour::of_stdout()))
}

fn table(rules: &[ProtectedName], colour: Colour) -> String {
    let mut table = Table::new(["POLICY", "PATTERN", "GRANT", "FROM", "REASON"]);
    for rule in rules {
        let (policy, tone) = said(rule.policy);
        let origin = match rule.origin {
            RuleOrigin::Default => "default",
            RuleOrigin::Session => "you",
            RuleOrigin::Always => "you, always",
        };
        table.row([
            Cell::new(policy, tone),
            (&rule.pattern).into(),
            rule.grant.as_deref().unwrap_or("all").into(),
            origin.into(),
            (&rule.reason).into(),
        ]);
    }
    table.render(colour)
}

fn said(policy: NamePolicy) -> (&'static str, Tone) {
    match policy {
        NamePolicy::Allow => ("allow", Tone::Good),
        NamePolicy::Flag => ("flag", Tone::Plain),
        NamePolicy::Ask => ("ask", Tone::Warning),
        NamePolicy::Deny => ("deny", Tone::Bad),
    }
}

fn add(options: &ProtectAdd) -> Result<ExitCode, Failure> {
    let (policy, wire) = match (options.deny, options.flag, options.allow) {
        (true, ..) => (NamePolicy::Deny, Wire::Deny),
        (false, true, _) => (NamePolicy::Flag, Wire::Flag),
        (false, false, true) => (NamePolicy::Allow, Wire::Allow),
        (false, false, false) => (NamePolicy::Ask, Wire::Ask),
    };
    let new = NewProtectedName {
        pattern: options.pattern.clone(),
        policy,
        reason: options.reason.clone(),
        grant: options.grant.clone(),
    };
    let mut client = daemon::connect()?;
    let (_, rule) = on(&mut client, &options.session, |client, id| {
        client.send::<ProtectedName>(Method::Post, target(id, "/protected"), &new)
    })?;
    let mut usual = files::default_rules();
    let own = files::name_rule(&options.pattern, wire, options.reason.as_deref());
    if let Ok(own) = own
        && files::add(&mut usual, own.clone()).is_ok()
        && let Some(stricter) = files::overruled(&usual, &own)
    {
        let pattern = &stricter.pattern;
        note(&format!("the stricter rule for `{pattern}` still counts: allow that one as well"));
    }
    if options.output.json {
        return show::json(&rule);
    }
    show::print(table(&[rule], Colour::of_stdout()))
}

fn remove(options: &ProtectRemove) -> Result<ExitCode, Failure> {
    let mut client = daemon::connect()?;
    on(&mut client, &options.session, |client, id| {
        let query = Query::new(target(id, "/protected"))
            .with("pattern", &options.pattern)
            .with_some("grant", options.grant.as_ref());
        client.call(&Request::new(Method::Delete, query))
    })?;
    if options.output.json {
        return show::json(&json!({ "removed": options.pattern }));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::{Colour, NamePolicy, ProtectedName, RuleOrigin, table};

    #[test]
    fn a_rule_is_shown_with_its_reason() {
        let rule = ProtectedName {
            pattern: ".envrc".into(),
            policy: NamePolicy::Ask,
            reason: "direnv runs it".into(),
            grant: None,
            origin: RuleOrigin::Default,
        };
        assert_eq!(
            table(&[rule], Colour::Off),
            "POLICY  PATTERN  GRANT  FROM     REASON\nask     .envrc   all    default  direnv runs it\n"
        );
    }
}
