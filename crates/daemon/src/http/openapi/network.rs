//! Operations on the network of sessions, and on secrets.

use super::operation::Operation;
use super::schemas::Schemas;
use super::sessions::KEEPER;
use crate::network::MAX_URL;
use cowork_client::types::{
    NamedRule, Network, NetworkChange, NetworkExplanation, NewSecret, Page, Preset, Publish,
    PublishedPort, Secret, Traffic,
};
use serde_json::json;

/// Rules are read and made ready.
pub(super) const RULES: &[&str] =
    &["bad-rule", "no-preset", "no-secret", "network-unenforceable", "too-many"];
/// The egress process is asked.
pub(super) const EGRESS: &[&str] = &["no-egress", "socket-refused", "no-space"];

pub(super) fn operations(s: &mut Schemas) -> Vec<Operation> {
    let mut all: Vec<Operation> =
        network(s).into_iter().map(|operation| operation.tag("network")).collect();
    all.extend(ports(s).into_iter().map(|operation| operation.tag("network")));
    all.extend(rules(s).into_iter().map(|operation| operation.tag("network")));
    all.extend(secrets(s).into_iter().map(|operation| operation.tag("secrets")));
    all
}

fn network(s: &mut Schemas) -> Vec<Operation> {
    let url = json!({ "type": "string", "minLength": 1, "maxLength": MAX_URL });
    let method = json!({ "type": "string", "minLength": 1, "maxLength": 32, "default": "GET" });
    let har = json!({
        "description": "HAR 1.2, with the last requests",
        "content": { "application/json": { "schema": {
            "type": "object", "required": ["log"], "properties": { "log": { "type": "object" } },
        } } },
    });
    vec![
        Operation::new("GET /v1/sessions/{id}/network", "showNetwork", "What it may reach")
            .gives::<Network>(200, "Its rules, and its way out", s)
            .refuses(&[RULES, &["host", "unrecorded"]]),
        Operation::new(
            "PATCH /v1/sessions/{id}/network",
            "changeNetwork",
            "Change what a session may reach",
        )
        .about(
            "In a session that runs it is in force at once; what was let through before ends under \
             the rules it began with.",
        )
        .may_take::<NetworkChange>(s)
        .gives::<Network>(200, "The network as it is now", s)
        .refuses(&[KEEPER, RULES, EGRESS, &["ended", "no-rule"]]),
        Operation::new(
            "GET /v1/sessions/{id}/network/traffic",
            "traffic",
            "What a session reaches, and what it was refused",
        )
        .gives::<Traffic>(
            200,
            "Refusals first, then what flows now, then hosts by bytes",
            s,
        ),
        Operation::new(
            "GET /v1/sessions/{id}/network/explain",
            "explainNetwork",
            "Whether something would pass, and by which rule",
        )
        .about("Nothing is looked up or connected to: the rules alone are asked.")
        .required_query("url", "What would be reached: a URL, or `host:port`", &url)
        .query("method", "The method of the request", &method)
        .gives::<NetworkExplanation>(200, "What would become of it", s)
        .refuses(&[RULES, &["bad-url", "host", "unrecorded"]]),
        Operation::new(
            "GET /v1/sessions/{id}/network/har",
            "networkHar",
            "What a session reached, as a file for other tools",
        )
        .about("Without bodies, queries and the values of headers, which are not recorded.")
        .answers(200, har)
        .refuses(&[&["host"]]),
    ]
}

fn ports(s: &mut Schemas) -> Vec<Operation> {
    let made = json!({ "id": "$request.path.id", "outside": "$response.body#/outside" });
    vec![
        Operation::new(
            "POST /v1/sessions/{id}/network/ports",
            "publishPort",
            "Make a port of the session reachable at the host's loopback",
        )
        .takes::<Publish>(s)
        .gives::<PublishedPort>(201, "The published port", s)
        .leads_to("unpublishPort", &made)
        .refuses(&[KEEPER, RULES, EGRESS, &["not-live", "port-taken"]]),
        Operation::new(
            "DELETE /v1/sessions/{id}/network/ports/{outside}",
            "unpublishPort",
            "Let go of a published port",
        )
        .about("What flows through it ends.")
        .gives_nothing(204, "It is closed")
        .refuses(&[&["no-port", "no-egress", "unrecorded"]]),
    ]
}

fn rules(s: &mut Schemas) -> Vec<Operation> {
    vec![
        Operation::new("GET /v1/presets", "listPresets", "Lists of hosts that belong together")
            .gives::<Vec<Preset>>(200, "Every preset", s),
        Operation::new("GET /v1/rules", "listRules", "Rules for every session with a network")
            .about("They come of answers that the user gave for always.")
            .part_from(&json!({ "type": "string" }))
            .gives::<Page<NamedRule>>(200, "A part of the list, by name", s)
            .refuses(&[&["unrecorded"]]),
        Operation::new("DELETE /v1/rules/{name}", "removeRule", "Take such a rule away")
            .gives_nothing(204, "It is gone, for every session")
            .refuses(&[&["no-rule", "host", "unrecorded"]]),
    ]
}

fn secrets(s: &mut Schemas) -> Vec<Operation> {
    vec![
        Operation::new("GET /v1/secrets", "listSecrets", "Secrets, without their values")
            .part_from(&json!({ "type": "string" }))
            .gives::<Page<Secret>>(200, "A part of the list, by name", s)
            .refuses(&[&["host"]]),
        Operation::new("PUT /v1/secrets/{name}", "setSecret", "Keep a secret")
            .about(
                "Sessions that use it use the new value from now on. They never see it: they know \
                 a placeholder, which is replaced on the way out.",
            )
            .takes::<NewSecret>(s)
            .gives::<Secret>(200, "The secret, without its value", s)
            .refuses(&[&["bad-secret", "bad-rule", "too-many", "host", "no-space", "unrecorded"]]),
        Operation::new("DELETE /v1/secrets/{name}", "removeSecret", "Forget a secret")
            .about("What sessions reached with it they reach no more.")
            .gives_nothing(204, "It is gone")
            .refuses(&[&["no-secret", "host", "no-space", "unrecorded"]]),
    ]
}
