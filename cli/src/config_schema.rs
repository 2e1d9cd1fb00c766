//! A JSON Schema of weir.toml, made from the tables of docs/reference/configuration.md: its keys, defaults and what they mean. Editors
//! complete and explain keys by it; which values fit is what `weir config --check` says. (A test of weir-config holds that the page has every
//! key and no other.)

use serde_json::{Map, Value, json};

const PAGE: &str = include_str!("../../docs/reference/configuration.md");

/// A section of the page, by the beginning of its heading, and where its keys are in a file: names of tables, `[]` behind lists.
const SECTIONS: [(&str, &[&str]); 15] = [
    ("`[node]`", &["node"]),
    ("`[api]`", &["api"]),
    ("`[[device]]`", &["device[]"]),
    ("Zones: `zoned`", &["device[]", "zoned"]),
    ("Open-Channel: `open_channel`", &["device[]", "open_channel"]),
    ("`[device.flash]`", &["device[]", "flash"]),
    ("`[device.fdp]`", &["device[]", "fdp"]),
    ("`[[tenant]]`", &["tenant[]"]),
    ("`[[export]]`", &["export[]"]),
    ("`[[pool]]`", &["pool[]"]),
    ("`[[volume]]`", &["volume[]"]),
    ("`[door.nvme-tcp]`", &["door", "nvme-tcp"]),
    ("`[store]`", &["store"]),
    ("`[[store.donate]]`", &["store", "donate[]"]),
    ("`[[store.policy]]`", &["store", "policy[]"]),
];

/// The whole schema.
pub fn schema() -> Value {
    let mut root = table();
    for part in PAGE.split("\n## ").skip(1) {
        let Some((_, path)) = SECTIONS.iter().find(|(heading, _)| part.starts_with(heading)) else { continue };
        let properties = at(&mut root, path);
        for (key, value) in part.lines().flat_map(keys) {
            // A table that has a section of its own is described there.
            properties.entry(key).or_insert(value);
        }
    }
    // Their keys are those of a rule (docs/reference/faults.md), which depend on each other.
    at(&mut root, &[]).insert("fault".into(), json!({ "type": "array", "items": { "type": "object" } }));
    root["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    root["title"] = "weir.toml".into();
    root
}

fn table() -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": {} })
}

/// The properties of the table at a path, which is made where it is not there.
fn at<'a>(root: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut place = root;
    for name in path {
        let (name, is_list) = name.strip_suffix("[]").map_or((*name, false), |name| (name, true));
        let properties = properties(place);
        let made = properties.entry(name).or_insert(Value::Null);
        if made.get("properties").is_none() && made.get("items").is_none() {
            // What its own row says stays.
            let description = made.get("description").cloned();
            *made = if is_list { json!({ "type": "array", "items": table() }) } else { table() };
            description.into_iter().for_each(|text| made["description"] = text);
        }
        place = if is_list { &mut made["items"] } else { made };
    }
    properties(place)
}

fn properties(table: &mut Value) -> &mut Map<String, Value> {
    table["properties"].as_object_mut().expect("every table is made with properties")
}

/// The keys of a row `| key | default | meaning |`, each with what it is; several have one meaning.
fn keys(line: &str) -> Vec<(String, Value)> {
    let Some(row) = line.strip_prefix("| `") else { return Vec::new() };
    let row = format!("`{row}");
    let cells: Vec<&str> = row.trim_end().trim_end_matches('|').split(" | ").collect();
    let [keys, default, meaning @ ..] = cells.as_slice() else { return Vec::new() };
    let mut value = json!({ "description": plain(&meaning.join(" | ")) });
    if let Some(default) = default.strip_prefix('`').and_then(|d| d.strip_suffix('`')) {
        if let Ok(default) = serde_json::from_str::<Value>(default) {
            if default.is_boolean() {
                value["type"] = "boolean".into();
            }
            value["default"] = default;
        }
    }
    keys.split('`').skip(1).step_by(2).map(|key| (key.to_owned(), value.clone())).collect()
}

/// Text without its links and marks.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.trim();
    while let Some((before, link)) = rest.split_once('[') {
        out.push_str(before);
        match link.split_once("](").and_then(|(name, after)| Some((name, after.split_once(')')?.1))) {
            Some((name, after)) => {
                out.push_str(name);
                rest = after;
            }
            None => {
                out.push('[');
                rest = link;
            }
        }
    }
    out.push_str(rest);
    out.replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of keys in a file that the schema does not have.
    fn unknown(schema: &Value, file: &Value, path: &str) -> Vec<String> {
        let Some(table) = file.as_object() else { return Vec::new() };
        let Some(properties) = schema.get("properties") else { return Vec::new() };
        let one = |(key, value): (&String, &Value)| {
            let here = format!("{path}.{key}");
            match (properties.get(key), value) {
                (None, _) => vec![here],
                (Some(known), Value::Array(list)) => {
                    list.iter().flat_map(|value| unknown(&known["items"], value, &here)).collect()
                }
                (Some(known), value) => unknown(known, value, &here),
            }
        };
        table.iter().flat_map(one).collect()
    }

    fn file(text: &str) -> Value {
        serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap()
    }

    #[test]
    fn every_key_of_the_examples_is_in_it() {
        let schema = schema();
        let example = PAGE.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
        let builtin = weir_config::Config::builtin_toml(std::path::Path::new("/run/weir"));
        for text in [example, &builtin] {
            let unknown = unknown(&schema, &file(text), "");
            // Written here as tables whose keys have no table of their own on the page.
            assert!(unknown.is_empty(), "{unknown:?}");
        }
        let wrong = file("[node]\ncoress = 1\n[[device]]\nflash = { gcc = 1 }\n[door.nvme-tcp]\nlisten = []\n");
        assert_eq!(unknown(&schema, &wrong, ""), [".device.flash.gcc", ".node.coress"]);
    }

    #[test]
    fn keys_are_explained() {
        let schema = schema();
        let device = &schema["properties"]["device"]["items"]["properties"];
        assert_eq!(device["block_size"]["default"], 512);
        assert_eq!(schema["properties"]["node"]["properties"]["poll"]["type"], "boolean");
        let media = device["media"]["description"].as_str().unwrap();
        assert!(
            media.starts_with("where the bytes are: ram") && !media.contains('`') && !media.contains("]("),
            "{media}"
        );
        assert!(device["max_active"].is_null(), "of a zoned device");
        assert_eq!(device["zoned"]["properties"]["max_active"]["default"], 0);
        assert!(schema["properties"]["store"]["properties"]["donate"]["items"]["properties"]["class"].is_object());
    }
}
