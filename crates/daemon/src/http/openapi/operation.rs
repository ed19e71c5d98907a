//! One operation of the API, as the document describes it.

use super::problems;
use super::schemas::Schemas;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

/// What every operation can answer.
const ALWAYS: [&str; 3] = ["no-token", "foreign-host", "foreign-origin"];
/// With something in the path that a client chose.
const NAMED: [&str; 2] = ["malformed", "no-route"];
/// With a query or headers that are read.
const ASKED: [&str; 1] = ["malformed"];
/// With a JSON body.
const JSON: [&str; 3] = ["malformed", "too-large", "not-json"];
/// With an idempotency key.
const KEY: [&str; 7] = [
    "malformed",
    "too-large",
    "key-reused",
    "in-progress",
    "outcome-unknown",
    "host",
    "unrecorded",
];

/// What the daemon does for one method on one path.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    fields: Map<String, Value>,
    parameters: Vec<Value>,
    responses: Map<String, Value>,
    links: Map<String, Value>,
    problems: Vec<&'static str>,
}

impl Operation {
    /// Named by `method path`; `id` is what clients in other languages call it.
    pub(super) fn new(name: &'static str, id: &str, summary: &str) -> Self {
        let (method, path) = name.split_once(' ').unwrap_or(("GET", name));
        let mut operation = Self {
            method,
            path,
            fields: Map::new(),
            parameters: Vec::new(),
            responses: Map::new(),
            links: Map::new(),
            problems: ALWAYS.to_vec(),
        };
        operation.fields.insert("operationId".into(), id.into());
        operation.fields.insert("summary".into(), summary.into());
        operation.name_parts();
        if method == "POST" {
            let key = json!({ "$ref": "#/components/parameters/IdempotencyKey" });
            operation.parameters.push(key);
            operation.problems.extend(KEY);
        }
        operation
    }

    /// Describes the parts of the path that a client chooses.
    fn name_parts(&mut self) {
        let parts = self.path.split('/').filter_map(|part| part.strip_prefix('{'));
        for name in parts.filter_map(|part| part.strip_suffix('}')) {
            let (description, schema) = part(self.path, name);
            let parameter = json!({
                "name": name, "in": "path", "required": true,
                "description": description, "schema": schema,
            });
            self.parameters.push(parameter);
            self.problems.extend(NAMED);
            if name == "id" {
                self.problems.push("no-session");
            }
        }
    }

    /// Says more than the summary.
    pub(super) fn about(mut self, description: &str) -> Self {
        self.fields.insert("description".into(), description.into());
        self
    }

    /// The group it belongs to.
    pub(super) fn tag(mut self, tag: &str) -> Self {
        self.fields.insert("tags".into(), json!([tag]));
        self
    }

    /// A parameter of the query.
    pub(super) fn query(self, name: &str, description: &str, schema: &Value) -> Self {
        self.parameter("query", name, description, schema)
    }

    /// A parameter of the query that must be there.
    pub(super) fn required_query(self, name: &str, description: &str, schema: &Value) -> Self {
        let mut operation = self.parameter("query", name, description, schema);
        if let Some(parameter) = operation.parameters.last_mut().and_then(Value::as_object_mut) {
            parameter.insert("required".into(), true.into());
        }
        operation
    }

    /// A header that is read.
    pub(super) fn header(self, name: &str, description: &str, schema: &Value) -> Self {
        self.parameter("header", name, description, schema)
    }

    fn parameter(mut self, place: &str, name: &str, description: &str, schema: &Value) -> Self {
        let parameter = json!({
            "name": name, "in": place, "description": description, "schema": schema,
        });
        self.parameters.push(parameter);
        self.problems.extend(ASKED);
        self
    }

    /// Which part of a list is wanted.
    pub(super) fn part(self) -> Self {
        let cursor = json!({ "type": "string", "pattern": "^[0-9]{1,18}$" });
        self.part_from(&cursor)
    }

    /// Which part of a list is wanted, with cursors of another kind.
    pub(super) fn part_from(self, cursor: &Value) -> Self {
        let limit = json!({
            "type": "integer", "minimum": 1, "maximum": super::super::extract::MAX_PART,
            "default": super::super::extract::PART,
        });
        self.query("cursor", "Where the part starts: `next` of the part before", cursor).query(
            "limit",
            "Most items in the part",
            &limit,
        )
    }

    /// A JSON body that must be there.
    pub(super) fn takes<T: JsonSchema>(self, schemas: &mut Schemas) -> Self {
        let content = json!({ "application/json": { "schema": schemas.sent::<T>() } });
        self.json_body(json!({ "required": true, "content": content }))
    }

    /// A JSON body that may be left out: every field has a default.
    pub(super) fn may_take<T: JsonSchema>(self, schemas: &mut Schemas) -> Self {
        let content = json!({ "application/json": { "schema": schemas.sent::<T>() } });
        self.json_body(json!({ "required": false, "content": content }))
    }

    fn json_body(mut self, body: Value) -> Self {
        self.fields.insert("requestBody".into(), body);
        self.problems.extend(JSON);
        self
    }

    /// A body of bytes.
    pub(super) fn takes_bytes(mut self, description: &str) -> Self {
        let content = json!({ "application/octet-stream": {} });
        let body = json!({ "required": false, "description": description, "content": content });
        self.fields.insert("requestBody".into(), body);
        self.problems.extend(ASKED);
        self
    }

    /// An answer with a JSON body.
    pub(super) fn gives<T: JsonSchema>(
        self,
        status: u16,
        description: &str,
        schemas: &mut Schemas,
    ) -> Self {
        let content = json!({ "application/json": { "schema": schemas.got::<T>() } });
        self.answers(status, json!({ "description": description, "content": content }))
    }

    /// An answer without a body.
    pub(super) fn gives_nothing(self, status: u16, description: &str) -> Self {
        self.answers(status, json!({ "description": description }))
    }

    /// An answer, as the document says it.
    pub(super) fn answers(mut self, status: u16, response: Value) -> Self {
        self.responses.insert(status.to_string(), response);
        self
    }

    /// Another operation on what this one makes, and where its parameters come from.
    pub(super) fn leads_to(mut self, operation: &str, parameters: &Value) -> Self {
        let link = json!({ "operationId": operation, "parameters": parameters });
        self.links.insert(operation.into(), link);
        self
    }

    /// Codes of problems that it can answer with, beside those that follow from its form.
    pub(super) fn refuses(mut self, codes: &[&[&'static str]]) -> Self {
        self.problems.extend(codes.iter().copied().flatten());
        self
    }

    /// The codes of its problems.
    #[cfg(test)]
    pub(super) fn problems(&self) -> &[&'static str] {
        &self.problems
    }

    /// The operation object of the document.
    pub(super) fn into_value(mut self) -> Value {
        if !self.links.is_empty() {
            let made = self.responses.get_mut("201").and_then(Value::as_object_mut);
            if let Some(made) = made {
                made.insert("links".into(), self.links.into());
            }
        }
        self.responses.extend(problems::responses(&self.problems));
        if !self.parameters.is_empty() {
            self.fields.insert("parameters".into(), self.parameters.into());
        }
        self.fields.insert("responses".into(), self.responses.into());
        self.fields.into()
    }
}

/// What stands for a part of a path.
fn part(path: &str, name: &str) -> (&'static str, Value) {
    let requests = path.contains("/requests");
    match name {
        "id" => (
            "The session's id",
            json!({
                "type": "string", "minLength": 3, "maxLength": 63,
                "pattern": "^[a-z][a-z0-9]*(-[a-z0-9]+)*$", "example": "zealous-ramanujan",
            }),
        ),
        "number" if requests => (
            "The request's number",
            json!({ "type": "integer", "minimum": 1, "maximum": 9_007_199_254_740_991_u64 }),
        ),
        "number" if path.contains("/tasks") => (
            "The task's number in the session",
            json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX }),
        ),
        "number" => (
            "The command's number in the session",
            json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX }),
        ),
        "root" => (
            "Which folder of the session: `outputs`, `uploads`, `skills`, or the name of a grant",
            json!({ "type": "string", "minLength": 1, "maxLength": 64 }),
        ),
        "path" => (
            "The path below that folder, without `..`. A `/` in it may be written as it is or as \
             `%2F`; bytes that are not UTF-8 are percent-encoded",
            json!({ "type": "string", "minLength": 1, "maxLength": 4095 }),
        ),
        "outside" => (
            "The port at the host's loopback",
            json!({ "type": "integer", "minimum": 1, "maximum": u16::MAX }),
        ),
        "name" if path.starts_with("/v1/secrets") => (
            "The secret's name",
            json!({
                "type": "string", "minLength": 1, "maxLength": 64,
                "pattern": "^[A-Za-z0-9._-]+$",
            }),
        ),
        "name" if path.starts_with("/v1/sessions/{id}/agents") => (
            "The agent's name",
            json!({
                "type": "string", "minLength": 1, "maxLength": 32,
                "pattern": "^[a-z][a-z0-9]*(-[a-z0-9]+)*$", "example": "claude",
            }),
        ),
        "name" if path.starts_with("/v1/rules") => (
            "The rule's name, as it is listed",
            json!({ "type": "string", "minLength": 1, "maxLength": 400 }),
        ),
        _ => (
            "The name of the granted folder in the session",
            json!({ "type": "string", "minLength": 1, "maxLength": 64 }),
        ),
    }
}
