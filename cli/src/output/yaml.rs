//! YAML 1.2 of a JSON value, in block style.

use serde_json::Value;

/// One document.
pub fn document(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(value, 0, &mut out),
        Value::Array(list) if !list.is_empty() => block(value, 0, &mut out),
        _ => {
            out.push_str(&scalar(value));
            out.push('\n');
        }
    }
    out
}

/// The lines of a map or list that is not empty, each after so many blanks; the first one's are there already where it follows a dash.
fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            start_line(indent, out);
            out.push_str(&text(key));
            out.push(':');
            // A list stands under its key, as far left as the key.
            let deeper = if value.is_array() { indent } else { indent + 2 };
            nested(value, deeper, out);
        }),
        Value::Array(list) => list.iter().for_each(|value| {
            start_line(indent, out);
            out.push('-');
            match is_block(value) && value.is_object() {
                // The first key stands behind the dash.
                true => {
                    out.push(' ');
                    block(value, indent + 2, out);
                }
                false => nested(value, indent + 2, out),
            }
        }),
        _ => {}
    }
}

fn is_block(value: &Value) -> bool {
    value.as_object().is_some_and(|map| !map.is_empty()) || value.as_array().is_some_and(|list| !list.is_empty())
}

fn start_line(indent: usize, out: &mut String) {
    if out.is_empty() || out.ends_with('\n') {
        out.extend(std::iter::repeat_n(' ', indent));
    }
}

/// What follows a key or a dash.
fn nested(value: &Value, indent: usize, out: &mut String) {
    if is_block(value) {
        out.push('\n');
        return block(value, indent, out);
    }
    out.push(' ');
    out.push_str(&scalar(value));
    out.push('\n');
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(string) => text(string),
        // null, numbers, and the empty list and map are the same in both.
        other => other.to_string(),
    }
}

/// Plain where no reader could take it for something else than text; else as JSON, which every reader of YAML 1.2 takes.
fn text(string: &str) -> String {
    let words = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let is_word = words.iter().any(|word| string.eq_ignore_ascii_case(word));
    let begins = string.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if begins && !is_word && string.chars().all(is_plain) {
        string.to_string()
    } else {
        Value::from(string).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn maps_lists_and_what_is_empty_have_their_lines() {
        let value = json!({
            "drives": [{"a": 1, "b": [2, [3]]}, "x", {"c": {"d": "e"}}],
            "list": [], "map": {}, "name": "ssd0", "none": null,
            "shares": {"gold": {"weight": 8}},
            "size": 1.5,
        });
        let expected = "\
drives:
- a: 1
  b:
  - 2
  -
    - 3
- x
- c:
    d: e
list: []
map: {}
name: ssd0
none: null
shares:
  gold:
    weight: 8
size: 1.5
";
        assert_eq!(document(&value), expected);
        assert_eq!(document(&json!([])), "[]\n");
        assert_eq!(document(&json!([{"a": 1}, {"a": 2}])), "- a: 1\n- a: 2\n");
    }

    #[test]
    fn text_that_looks_like_something_else_is_quoted() {
        for (string, expected) in [
            ("plain-1.x", "plain-1.x"),
            ("/run/weir.sock", "/run/weir.sock"),
            ("yes", "\"yes\""),
            ("NULL", "\"NULL\""),
            ("1.5", "\"1.5\""),
            ("a: b", "\"a: b\""),
            ("two\nlines", "\"two\\nlines\""),
            ("", "\"\""),
        ] {
            assert_eq!(text(string), expected);
        }
    }
}
