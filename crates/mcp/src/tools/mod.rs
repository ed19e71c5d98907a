//! The tools: what each is called, what it teaches, what it takes, what it answers, and what it
//! does to the world.
//!
//! Names and codes are stable. What a tool says of itself (that it only reads, that it can destroy)
//! is what it does.

mod changes;
mod commands;
mod files;
mod folders;
mod list;
mod search;
mod sessions;
mod write;

use crate::call::Call;
use crate::refusal::Refusal;
use rmcp::handler::server::common::{schema_for_input, schema_for_output};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::{Arc, LazyLock};

/// Longest text of a result, in bytes; every tool has its own limits below this one.
const MAX_TEXT: usize = 256 * 1024;

/// What a tool answers.
trait Answer: Serialize + JsonSchema + 'static {
    /// The answer for a model to read; as JSON where nothing reads better.
    fn text(&self) -> Option<String> {
        None
    }
}

/// What a tool does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It looks.
    Reads,
    /// It adds, and takes nothing away.
    Adds,
    /// It may take something away or replace it.
    Destroys,
    /// The same, but doing it twice is doing it once.
    Replaces,
}

/// Whether a tool has to do with anything beyond the session and the user's folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum World {
    Closed,
    Open,
}

/// What a tool says of itself.
struct About {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    effect: Effect,
    world: World,
}

type Run = Box<dyn Fn(&Call, JsonObject) -> Result<CallToolResult, Refusal> + Send + Sync>;

/// A tool, and what carries it out.
pub(crate) struct Entry {
    pub(crate) tool: Tool,
    run: Run,
}

impl Entry {
    fn new<A: DeserializeOwned + JsonSchema + 'static, O: Answer>(
        about: &About,
        run: fn(&Call, &A) -> Result<O, Refusal>,
    ) -> Self {
        let reads = about.effect == Effect::Reads;
        let destroys = matches!(about.effect, Effect::Destroys | Effect::Replaces);
        let idempotent = matches!(about.effect, Effect::Reads | Effect::Replaces);
        let annotations = ToolAnnotations::with_title(about.title)
            .read_only(reads)
            .destructive(destroys)
            .idempotent(idempotent)
            .open_world(about.world == World::Open);
        // Arguments are objects, so there is always a schema.
        let input = standard(schema_for_input::<A>().unwrap_or_default());
        let tool = Tool::new(about.name, about.description, input)
            .with_title(about.title)
            .with_raw_output_schema(standard(schema_for_output::<O>()))
            .with_annotations(annotations);
        let run: Run = Box::new(move |call, arguments| {
            let arguments: A =
                serde_json::from_value(Value::Object(arguments)).map_err(|error| {
                    let sentence = format!("the arguments cannot be understood: {error}");
                    Refusal::new("bad-arguments", sentence).with_hint("see the tool's input schema")
                })?;
            result(&run(call, &arguments)?)
        });
        Self { tool, run }
    }

    /// Carries the tool out.
    pub(crate) fn run(&self, call: &Call, arguments: JsonObject) -> CallToolResult {
        (self.run)(call, arguments).unwrap_or_else(Refusal::into_result)
    }
}

/// A schema without formats that JSON Schema does not know: clients warn of them, or refuse the
/// tool.
fn standard(schema: Arc<JsonObject>) -> Arc<JsonObject> {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let number = |format: &Value| {
                    format.as_str().is_some_and(|format| format.starts_with("uint"))
                };
                if fields.get("format").is_some_and(number) {
                    fields.remove("format");
                }
                fields.values_mut().for_each(walk);
            }
            Value::Array(items) => items.iter_mut().for_each(walk),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut fields = Arc::unwrap_or_clone(schema);
    fields.values_mut().for_each(walk);
    Arc::new(fields)
}

fn result<O: Answer>(answer: &O) -> Result<CallToolResult, Refusal> {
    let failed = |error: serde_json::Error| Refusal::new("failed", error.to_string());
    let value = serde_json::to_value(answer).map_err(failed)?;
    let text = answer.text().unwrap_or_else(|| value.to_string());
    if text.len() > MAX_TEXT {
        return Err(
            Refusal::new("too-large", "the answer is too long").with_hint("ask for less at a time")
        );
    }
    let mut result = CallToolResult::structured(value);
    result.content = vec![ContentBlock::text(text)];
    Ok(result)
}

/// Every tool.
pub(crate) fn all() -> &'static [Entry] {
    static ALL: LazyLock<Vec<Entry>> = LazyLock::new(|| {
        let families = [
            sessions::tools(),
            commands::tools(),
            files::tools(),
            list::tools(),
            write::tools(),
            search::tools(),
            folders::tools(),
            changes::tools(),
        ];
        families.into_iter().flatten().collect()
    });
    &ALL
}

/// The tool of a name.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    all().iter().find(|entry| entry.tool.name == name)
}

#[cfg(test)]
mod tests {
    use super::all;

    #[test]
    fn tools_say_what_they_take_and_answer() {
        for entry in all() {
            let tool = &entry.tool;
            let input = serde_json::to_string(&tool.input_schema).expect("it is JSON");
            let output = serde_json::to_string(&tool.output_schema).expect("it is JSON");
            assert!(input.contains(r#""additionalProperties":false"#), "{}", tool.name);
            assert!(!input.contains(r#""format":"uint"#), "{}: {input}", tool.name);
            assert!(!output.contains(r#""format":"uint"#), "{}: {output}", tool.name);
            let described = tool.description.as_ref().is_some_and(|text| text.len() > 60);
            assert!(described, "{}", tool.name);
        }
    }
}
