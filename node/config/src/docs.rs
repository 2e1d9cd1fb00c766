//! The documentation says what the code does: its example is read, and every key is in it with its default.

use super::Config;
use std::path::Path;

const GUIDE: &str = include_str!("../../../docs/reference/configuration.md");

fn example() -> &'static str {
    let after = GUIDE.split_once("```toml\n").expect("the guide has an example").1;
    after.split_once("```").expect("the example ends").0
}

#[test]
fn the_example_is_valid_and_has_every_key() {
    let config = Config::parse(example(), "docs/reference/configuration.md", Path::new("/etc/weir"))
        .unwrap_or_else(|e| panic!("{e}"));
    let printed = config.to_toml();
    for key in printed.lines().filter_map(|l| l.split_once(" = ")).map(|(key, _)| key) {
        assert!(example().lines().any(|l| l.starts_with(&format!("{key} = "))), "{key} is not in the example");
        assert!(GUIDE.contains(&format!("\n| `{key}` |")), "{key} is in no table");
    }
}

#[test]
fn no_table_has_a_key_that_does_not_exist() {
    let sections = [
        "[node]",
        "[api]",
        "[[device]]",
        "[device.flash]",
        "[device.fdp]",
        "[[tenant]]",
        "[[pool]]",
        "[[volume]]",
        "[[export]]",
        "[door.nvme-tcp]",
        "[store]",
        "[[store.donate]]",
        "[[store.policy]]",
    ];
    for part in GUIDE.split("\n## ").filter(|p| p.starts_with('`')) {
        let heading = sections.iter().find(|h| part.starts_with(&format!("`{h}`"))).expect("a section");
        for key in part.lines().filter_map(|l| l.strip_prefix("| `")).filter_map(|l| l.split('`').next()) {
            // A wrong type is another message than an unknown key.
            let device = if heading.starts_with("[device.") { "[[device]]\nkind = \"flash\"\n" } else { "" };
            let text = format!("{device}{heading}\n{key} = 1979-05-27\n");
            let error = Config::parse(&text, "t", Path::new("/")).expect_err("no key is a date").to_string();
            assert!(error.contains(&format!("{key}: ")) && !error.contains("unknown key"), "{heading} {key}: {error}");
        }
    }
}
