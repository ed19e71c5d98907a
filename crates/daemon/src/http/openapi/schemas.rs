//! The types of the API as JSON Schema.
//!
//! What is sent and what is answered differ: a field with a default may be left out of a request,
//! and is always in an answer. Where that makes two schemas of one type, the one for requests is
//! named `…Input`.

use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value};

/// Where schemas are in the document.
const PLACE: &str = "#/components/schemas/";
/// Where those for requests are until [`Schemas::finish`] has found their names.
const SENT: &str = "#/sent/";

/// Collects the schemas that operations mention.
#[derive(Debug)]
pub(super) struct Schemas {
    sent: SchemaGenerator,
    got: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings = |place: &'static str| {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path =
                    place.trim_start_matches('#').trim_end_matches('/').to_owned().into();
                settings.meta_schema = None;
            })
        };
        Self {
            sent: settings(SENT).for_deserialize().into_generator(),
            got: settings(PLACE).for_serialize().into_generator(),
        }
    }

    /// The schema of a type that clients send.
    pub(super) fn sent<T: JsonSchema>(&mut self) -> Value {
        self.sent.subschema_for::<T>().to_value()
    }

    /// The schema of a type that clients get.
    pub(super) fn got<T: JsonSchema>(&mut self) -> Value {
        self.got.subschema_for::<T>().to_value()
    }

    /// Every schema by its name. References in `paths` are made to fit.
    pub(super) fn finish(mut self, paths: &mut Value) -> Map<String, Value> {
        let mut all = self.got.take_definitions(true);
        let mut sent = self.sent.take_definitions(true);
        let mut twice = Vec::new();
        for (name, schema) in &sent {
            // What mentions another may mention one of two.
            let whole = all.get(name) == Some(schema) && !schema.to_string().contains("\"$ref\"");
            if all.contains_key(name) && !whole {
                twice.push(name.clone());
            }
        }
        let rename = |reference: &str| {
            let name = reference.strip_prefix(SENT)?;
            let input = if twice.iter().any(|known| known == name) { "Input" } else { "" };
            Some(format!("{PLACE}{name}{input}"))
        };
        refer(paths, &rename);
        for schema in sent.values_mut() {
            refer(schema, &rename);
        }
        for (name, schema) in sent {
            let input = if twice.contains(&name) { "Input" } else { "" };
            all.insert(format!("{name}{input}"), schema);
        }
        for schema in all.values_mut() {
            bound(schema);
        }
        all
    }
}

/// Says of every whole number how large it may be: a format alone binds nobody.
fn bound(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let largest: Option<u64> = match fields.get("format").and_then(Value::as_str) {
                Some("uint8") => Some(u8::MAX.into()),
                Some("uint16") => Some(u16::MAX.into()),
                Some("uint32") => Some(u32::MAX.into()),
                Some("uint64" | "uint") => Some(u64::MAX),
                _ => None,
            };
            if let Some(largest) = largest {
                fields.entry("maximum").or_insert_with(|| largest.into());
            }
            fields.values_mut().for_each(bound);
        }
        Value::Array(items) => items.iter_mut().for_each(bound),
        _ => {}
    }
}

/// Changes every reference that `rename` knows another name for.
fn refer(value: &mut Value, rename: &impl Fn(&str) -> Option<String>) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                match field {
                    Value::String(reference) if key == "$ref" => {
                        if let Some(renamed) = rename(reference) {
                            *reference = renamed;
                        }
                    }
                    field => refer(field, rename),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| refer(item, rename)),
        _ => {}
    }
}
