//! What an agent is told at the start of each task: which place is for what, now.
//!
//! Grants change between tasks, and a conversation remembers the old ones.

use crate::session::Doc;
use crate::session::doc::Phase;
use cowork_client::types::{Access, Otherwise, WantedNetwork};
use std::fmt::Write as _;

/// Most folders and hosts that are named.
const MAX_NAMED: usize = 40;
/// How folders of agents' programs begin, which are of no interest to them.
const PROGRAMS: &str = "agent-";

/// The places of a session, one in each line.
pub(super) fn hints(doc: &Doc, cwd: &str, attachments: &[String]) -> String {
    let home = doc.folder();
    let mut text = String::from("<places>\nWhere things are now, whatever was said before:\n");
    let mut line = |line: std::fmt::Arguments<'_>| cowork_sys::ignore(writeln!(text, "{line}"));
    line(format_args!("- current folder: {cwd}"));
    line(format_args!("- scratch: {home} and /tmp, private to you"));
    let granted = doc
        .grants
        .iter()
        .filter(|kept| kept.phase == Phase::Granted && !kept.grant.name.starts_with(PROGRAMS));
    let mut granted = granted.peekable();
    if granted.peek().is_none() {
        line(format_args!("- folders of the user: none"));
    }
    for (index, kept) in granted.enumerate().take(MAX_NAMED) {
        let access = match kept.grant.access {
            Access::Read => "read only",
            Access::Write => "you may change it",
            Access::Direct => "you may change it, and nothing of that can be undone",
            Access::Staged => "you may change it; the user decides later what becomes of that",
        };
        let role = if index == 0 { "workspace" } else { "folder of the user" };
        line(format_args!("- {role}: {} ({access})", kept.grant.at));
    }
    line(format_args!("- uploads: {home}/mnt/uploads, files the user gave you, read only"));
    for attachment in attachments {
        line(format_args!("- attached to this task: {home}/mnt/uploads/{attachment}"));
    }
    line(format_args!("- outputs: {home}/mnt/outputs, put what the user shall get here"));
    line(format_args!("- network: {}", network(doc.spec.network.as_ref())));
    text.push_str("</places>");
    text
}

fn network(wanted: Option<&WantedNetwork>) -> String {
    let Some(wanted) = wanted else { return "none".to_owned() };
    let hosts = wanted.rules.iter().map(|rule| {
        let action = match rule.action {
            cowork_client::types::RuleAction::Deny => "not ",
            _ => "",
        };
        format!("{action}{}", rule.host)
    });
    let presets = wanted.presets.iter().map(|preset| format!("the hosts of {preset}"));
    let named: Vec<String> = hosts.chain(presets).take(MAX_NAMED).collect();
    let named = if named.is_empty() { "no host by itself".to_owned() } else { named.join(", ") };
    let rest = match wanted.otherwise {
        Otherwise::Ask if !wanted.headless => "the user is asked about others",
        Otherwise::Ask | Otherwise::Deny => "others are refused",
    };
    format!("{named}; {rest}")
}
