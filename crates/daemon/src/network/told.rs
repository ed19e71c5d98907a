//! What a session is told about its network.

use crate::daemon::Daemon;
use crate::session::Doc;
use cowork_client::types::{NetworkRule, Otherwise, RuleAction};
use std::fmt::Write as _;

/// Most hosts that are told one by one.
const MAX_TOLD: usize = 100;

impl Daemon {
    /// What a session is told about its network, in Markdown.
    pub(crate) fn network_text(&self, doc: &Doc) -> String {
        let mut text = String::from("\n# The network\n\n");
        let Some(wanted) = &doc.spec.network else {
            text.push_str("There is none: every connection to the outside fails at once.\n");
            return text;
        };
        let secrets = self.secret_rules(doc).unwrap_or_default();
        let standing = self.standing().unwrap_or_default();
        let secrets = secrets.iter().map(|(_, rule)| rule);
        let rules: Vec<&NetworkRule> =
            wanted.rules.iter().chain(secrets).chain(&standing).collect();
        text.push_str("You reach these hosts, by name, with any program, and no others:\n\n");
        for rule in rules.iter().take(MAX_TOLD) {
            cowork_sys::ignore(writeln!(text, "- {}", line(rule)));
        }
        for preset in &wanted.presets {
            cowork_sys::ignore(writeln!(text, "- the hosts of `{preset}`"));
        }
        if rules.len() > MAX_TOLD {
            text.push_str("- and more\n");
        }
        if rules.is_empty() && wanted.presets.is_empty() {
            text.push_str("- none so far\n");
        }
        text.push_str(match wanted.otherwise {
            Otherwise::Ask if !wanted.headless => {
                "\nFor any other host the user is asked while your request waits, up to a minute. \
                 Ask for what you need once, and wait.\n"
            }
            Otherwise::Ask | Otherwise::Deny => {
                "\nAny other host is refused at once. Trying again changes nothing.\n"
            }
        });
        text.push_str(
            "\nA refused request is answered with status 403, a header `x-cowork-deny` with a \
             stable word for the reason, and JSON that says why and what to do. A refused \
             connection ends at once, and a name that is not allowed does not exist. UDP is \
             refused. The host's own services are at `host.cowork.internal`, where they are \
             allowed.\n",
        );
        if !doc.network.placeholders.is_empty() {
            text.push_str(
                "\nYour credentials are placeholders. They have the shape of the real ones, which \
                 take their place on the way to their hosts; elsewhere they are worth nothing. Use \
                 them as they are:\n\n",
            );
            let known = self.secrets.known_to(&doc.id).unwrap_or_default();
            for (name, placeholder) in &doc.network.placeholders {
                let variable = known.get(name).and_then(|kept| kept.variable.clone());
                let told = match variable {
                    Some(variable) => format!("- `{name}`: in `{variable}`"),
                    None => format!("- `{name}`: `{placeholder}`"),
                };
                cowork_sys::ignore(writeln!(text, "{told}"));
            }
        }
        text
    }
}

/// A rule in a line.
fn line(rule: &NetworkRule) -> String {
    let mut line = match rule.action {
        RuleAction::Allow => format!("`{}`", rule.host),
        RuleAction::Ask => format!("`{}`: the user is asked", rule.host),
        RuleAction::Deny => format!("not `{}`", rule.host),
    };
    if let (RuleAction::Deny, Some(reason)) = (rule.action, &rule.reason) {
        cowork_sys::ignore(write!(line, ": {reason}"));
    }
    if !rule.methods.is_empty() {
        cowork_sys::ignore(write!(line, ", {} only", rule.methods.join(", ")));
    }
    if !rule.paths.is_empty() {
        cowork_sys::ignore(write!(line, ", below `{}`", rule.paths.join("`, `")));
    }
    if let Some(secret) = &rule.secret {
        cowork_sys::ignore(write!(line, ", with the credential `{secret}`"));
    }
    line
}
