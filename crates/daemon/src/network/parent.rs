//! The proxy between the host and the world that one session goes through.
//!
//! Invariant: it is written down with the session, so it has no password. One with a password is the
//! daemon's own, and known to nobody else.

use crate::proxy;
use crate::session::Doc;
use crate::trouble::Trouble;
use cowork_api::egress::{Action, Host, Parent, Rule};
use cowork_client::types::WantedNetwork;

/// The proxy of a session's own, if it has one.
pub(super) fn of(doc: &Doc) -> Result<Option<Parent>, Trouble> {
    doc.spec.network.as_ref().map_or(Ok(None), wanted)
}

/// The proxy that a network asks for, or what is wrong with it.
pub(super) fn wanted(network: &WantedNetwork) -> Result<Option<Parent>, Trouble> {
    let Some(parent) = &network.parent else { return Ok(None) };
    if parent.url.contains('@') {
        let sentence = "the parent proxy of a session has no password";
        return Err(Trouble::refused("bad-rule", sentence)
            .with_hint("start the daemon with COWORK_PARENT_PROXY for one that needs it"));
    }
    let parsed = proxy::parent(&parent.url, &parent.except);
    parsed.map(Some).map_err(|sentence| Trouble::refused("bad-rule", sentence))
}

/// Refuses denials of addresses behind a proxy: they are about names that lead there as well, and where
/// a name leads is known to the proxy alone.
pub(super) fn check(rules: &[Rule], parent: Option<&Parent>) -> Result<(), Trouble> {
    let never_used = |parent: &&Parent| parent.except.iter().any(|except| except == "*");
    let Some(parent) = parent.filter(|parent| !never_used(parent)) else { return Ok(()) };
    let denies = |rule: &&Rule| {
        matches!((&rule.action, &rule.host), (Action::Deny { .. }, Host::Network(_)))
            && rule.http.is_empty()
    };
    let Some(rule) = rules.iter().find(denies) else { return Ok(()) };
    let sentence = format!(
        "`{}` cannot be enforced behind the parent proxy {}:{}, which looks names up itself",
        rule.name, parent.host, parent.port
    );
    Err(Trouble::refused("network-unenforceable", sentence)
        .with_hint("deny names, or have the proxy refuse these addresses"))
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::network::parse::parse;
    use crate::proxy::parent;
    use cowork_client::types::{NetworkRule, RuleAction};

    #[test]
    fn addresses_are_denied_where_names_are_looked_up_here() {
        let rule = |action, host: &str, methods: &[&str]| {
            let methods = methods.iter().map(ToString::to_string).collect();
            let rule = NetworkRule { action, host: host.into(), methods, ..NetworkRule::default() };
            [parse(&rule, None).unwrap()]
        };
        let deny = rule(RuleAction::Deny, "10.0.0.0/8", &[]);
        let behind = parent("http://proxy.example:3128", "corp.example").unwrap();
        let refused = check(&deny, Some(&behind)).unwrap_err();
        assert_eq!(refused.code, "network-unenforceable");
        let sentence = "`deny 10.0.0.0/8` cannot be enforced behind the parent proxy \
                        proxy.example:3128, which looks names up itself";
        assert_eq!(refused.sentence, sentence);
        check(&deny, None).unwrap();
        check(&deny, Some(&parent("http://proxy.example:3128", "*").unwrap())).unwrap();
        for fine in [
            rule(RuleAction::Allow, "10.0.0.0/8", &[]),
            rule(RuleAction::Deny, "a.example", &[]),
            // It is about requests that name an address, and no others.
            rule(RuleAction::Deny, "10.0.0.0/8", &["POST"]),
        ] {
            check(&fine, Some(&behind)).unwrap();
        }
    }
}
