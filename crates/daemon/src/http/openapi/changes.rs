//! Operations on changes of granted folders.

use super::operation::Operation;
use super::schemas::Schemas;
use super::sessions::KEEPER;
use cowork_client::types::{
    Apply, Changes, Difference, Discard, Discarded, History, NewProtectedName, ProtectedName, Redo,
    Restored, Undo,
};
use serde_json::{Value, json};

/// What is recorded of a session is looked for.
const FOUND: &[&str] = &["no-store", "no-changes", "bad-path", "not-done"];

pub(super) fn operations(s: &mut Schemas) -> Vec<Operation> {
    let all = look(s).into_iter().chain(restore(s)).chain(protect(s));
    all.map(|operation| operation.tag("changes")).collect()
}

fn path() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 4095 })
}

fn number() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX })
}

/// Which changes are wanted.
fn chosen(operation: Operation) -> Operation {
    operation
        .query("set", "Only this set; without it all that are not undone", &number())
        .query("path", "Only this path of the host or of the session, and what is below", &path())
        .refuses(&[KEEPER, FOUND])
}

fn look(s: &mut Schemas) -> Vec<Operation> {
    vec![
        chosen(Operation::new("GET /v1/sessions/{id}/changes", "listChanges", "What changed"))
            .about(
                "As one difference between before and now. A session that was removed is found by \
                 its id as long as its changes are kept.",
            )
            .query("command", "Only what this command did", &number())
            .gives::<Changes>(200, "Sets, and every name that is not as it was", s),
        chosen(Operation::new(
            "GET /v1/sessions/{id}/diff",
            "showDifferences",
            "How contents differ from before",
        ))
        .gives::<Vec<Difference>>(
            200,
            "Unified differences of text, a word about the rest",
            s,
        ),
        Operation::new("GET /v1/history", "history", "Which sessions changed something")
            .about("Also those that were removed, as long as their changes are kept.")
            .query("path", "Only what is about this path of the host", &path())
            .gives::<History>(200, "Sessions and their sets, the newest session first", s)
            .refuses(&[KEEPER, &["bad-path"]]),
    ]
}

fn restore(s: &mut Schemas) -> Vec<Operation> {
    vec![
        Operation::new("POST /v1/sessions/{id}/undo", "undo", "Bring back what was before")
            .about(
                "What the user has changed since is not overwritten: without a choice nothing is \
                 done, and the problem `conflict` says where. An undo is a set itself, and can be \
                 undone. The session stands still meanwhile.",
            )
            .may_take::<Undo>(s)
            .gives::<Restored>(200, "What was brought back", s)
            .refuses(&[KEEPER, FOUND, &["bad-sets", "conflict", "nothing-to-undo"]]),
        Operation::new("POST /v1/sessions/{id}/redo", "redo", "Undo the last undo")
            .may_take::<Redo>(s)
            .gives::<Restored>(200, "What was brought back", s)
            .refuses(&[KEEPER, FOUND, &["conflict", "nothing-to-redo"]]),
        Operation::new(
            "POST /v1/sessions/{id}/apply",
            "applyChanges",
            "Carry staged changes over into their folders",
        )
        .may_take::<Apply>(s)
        .gives::<Restored>(200, "What was carried over", s)
        .refuses(&[KEEPER, FOUND, &["conflict", "not-staged", "nothing-to-apply"]]),
        Operation::new(
            "POST /v1/sessions/{id}/discard",
            "discardChanges",
            "Throw staged changes away",
        )
        .about("Of whole folders. Processes that hold on to such a folder are killed.")
        .may_take::<Discard>(s)
        .gives::<Discarded>(200, "The folders that are as they were", s)
        .refuses(&[
            KEEPER,
            FOUND,
            &[
                "not-staged",
                "nothing-to-apply",
                "no-grant",
                "folder-changed",
                "folder-refused",
                "no-door",
                "bad-limit",
                "bad-rule",
            ],
        ]),
        Operation::new(
            "POST /v1/sessions/{id}/boundary",
            "boundary",
            "Let later changes belong to new sets",
        )
        .gives_nothing(204, "What is changed from now on is undone by itself")
        .refuses(&[KEEPER, &["not-live", "no-door"]]),
    ]
}

fn protect(s: &mut Schemas) -> Vec<Operation> {
    let pattern = json!({ "type": "string", "minLength": 1, "maxLength": 1024 });
    let grant = json!({ "type": "string", "minLength": 1, "maxLength": 64 });
    vec![
        Operation::new(
            "GET /v1/sessions/{id}/protected",
            "listProtected",
            "Names whose changes are marked, asked about or refused",
        )
        .gives::<Vec<ProtectedName>>(200, "Every rule with its reason, the user's first", s)
        .refuses(&[&["host", "unrecorded"]]),
        Operation::new("POST /v1/sessions/{id}/protected", "protect", "Make a rule for names")
            .about("In force at once. A rule with the same pattern is replaced, also a usual one.")
            .takes::<NewProtectedName>(s)
            .gives::<ProtectedName>(201, "The rule", s)
            .refuses(&[
                KEEPER,
                &["bad-rule", "bad-limit", "no-grant", "too-many", "ended", "no-door"],
            ]),
        Operation::new(
            "DELETE /v1/sessions/{id}/protected",
            "unprotect",
            "Take a rule for names back",
        )
        .required_query("pattern", "The rule's pattern", &pattern)
        .query("grant", "Only the rule about this granted folder", &grant)
        .gives_nothing(204, "It is gone")
        .refuses(&[
            KEEPER,
            &["no-rule", "bad-rule", "bad-limit", "no-grant", "too-many", "no-door"],
        ]),
    ]
}
