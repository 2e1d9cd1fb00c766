//! The API's description in OpenAPI 3.1, served at `/openapi.json`: made from the routes ([`super::routes`]) and from the types of what
//! they take and answer, whose docstrings are its texts.

use super::answer::PROBLEM;
use super::routes::{Operation, QueryParameter, operations};
use super::types::ErrorBody;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

/// The schema of a type.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// That of `T`, by reference where it is a type of the API's own.
pub(super) fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// What hosts read, and what they write: a key with a default is always in an answer, and never has to be in a request.
struct Schemas {
    answers: SchemaGenerator,
    requests: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = || SchemaSettings::draft2020_12().with(|s| s.definitions_path = "/components/schemas".into());
        Self { answers: settings().for_serialize().into_generator(), requests: settings().into_generator() }
    }

    /// All that were referred to, by name.
    fn components(mut self) -> Map<String, Value> {
        let mut all = self.requests.take_definitions(true);
        for (name, mut schema) in self.answers.take_definitions(true) {
            never_null(&mut schema);
            let other = all.insert(name, schema.clone());
            debug_assert!(other.is_none_or(|other| other == schema), "one name, two schemas");
        }
        all
    }
}

/// The document.
pub fn document() -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for operation in operations() {
        let item = paths.entry(operation.path).or_insert_with(|| item(operation.path));
        item[operation.method] = describe(&operation, &mut schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Control of a running node. Every answer that is not 2xx is an Error, a problem of RFC 9457. Beside those of an operation there are: 403, by a port, for what a web page of another origin may have caused; 413 and 415 for a body that is too large or no JSON; 500 for what the node's log explains.",
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "paths": paths,
        "components": { "schemas": schemas.components() },
    })
}

/// What all operations of a path share: its parameters.
fn item(path: &str) -> Value {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
    let parameters: Vec<Value> = names.map(parameter).collect();
    if parameters.is_empty() { json!({}) } else { json!({ "parameters": parameters }) }
}

fn describe(operation: &Operation, schemas: &mut Schemas) -> Value {
    let (kind, answer) = operation.answer;
    let content = |kind: &str, schema: Schema| json!({ kind: { "schema": schema } });
    let mut responses = Map::new();
    let mut success = content(kind, answer(&mut schemas.answers));
    if operation.is_stream {
        success["text/event-stream"] = json!({ "schema": { "type": "string" } });
    }
    responses.insert(operation.success.to_string(), json!({ "description": operation.summary, "content": success }));
    for (code, why) in &operation.refusals {
        let error = content(PROBLEM, schema_of::<ErrorBody>(&mut schemas.answers));
        responses.insert(code.to_string(), json!({ "description": why, "content": error }));
    }
    let mut described = json!({ "operationId": operation.id, "summary": operation.summary, "responses": responses });
    let query = |of: &QueryParameter| {
        let number = json!({ "type": "integer", "minimum": 0 });
        json!({ "name": of.name, "in": "query", "required": false, "description": of.description, "schema": number })
    };
    if !operation.query.is_empty() {
        described["parameters"] = operation.query.iter().map(query).collect();
    }
    if let Some(body) = operation.body {
        let content = content("application/json", body(&mut schemas.requests));
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    described
}

/// An answer leaves out what it has not: only a key that is always there may be null.
fn never_null(schema: &mut Value) {
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (key, property) in properties {
        never_null(property);
        if required.iter().any(|name| name == key) {
            continue;
        }
        if let Some(types) = property.get_mut("type").and_then(Value::as_array_mut) {
            types.retain(|kind| kind != "null");
            if let [only] = &types[..] {
                property["type"] = only.clone();
            }
        }
        if let Some(ways) = property.get_mut("anyOf").and_then(Value::as_array_mut) {
            ways.retain(|way| way["type"] != "null");
            if let [Value::Object(only)] = &ways[..] {
                let only = only.clone();
                let map = property.as_object_mut().expect("a property is an object");
                map.remove("anyOf");
                map.extend(only);
            }
        }
    }
}
