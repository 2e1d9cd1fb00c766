//! Who wrote what is in a program, and under which licence: a file in Debian's machine-readable format (DEP-5), from what cargo knows of
//! the crates and from the licence files that are in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A crate from outside that is linked into the program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crate {
    name: String,
    version: String,
    licence: String,
    authors: Vec<String>,
    folder: PathBuf,
}

/// A licence by its SPDX identifier, and the words by which its text is known among a crate's files.
struct Licence {
    id: &'static str,
    begins: &'static str,
    contains: &'static str,
}

const fn licence(id: &'static str, begins: &'static str, contains: &'static str) -> Licence {
    Licence { id, begins, contains }
}

/// The licences that crates come under. The text is what follows `begins` in a file that `contains` the other words too.
const LICENCES: [Licence; 9] = [
    licence("MIT", "Permission is hereby granted, free of charge", "THE SOFTWARE IS PROVIDED \"AS IS\""),
    licence("Apache-2.0 with LLVM exception", "--- LLVM Exceptions", "Sections 4(a), 4(b) and 4(d)"),
    licence("BSD-2-Clause", "Redistribution and use in source and binary", "THIS SOFTWARE IS PROVIDED"),
    licence("BSD-3-Clause", "Redistribution and use in source and binary", "Neither the name"),
    licence("0BSD", "Permission to use, copy, modify, and/or distribute", "with or without fee is hereby granted."),
    licence(
        "ISC",
        "Permission to use, copy, modify, and/or distribute",
        "copyright notice and this permission notice appear in all copies.",
    ),
    licence("Zlib", "This software is provided 'as-is'", "Altered source versions"),
    licence("Unicode-3.0", "UNICODE LICENSE V3", "Unicode"),
    licence("Unlicense", "This is free and unencumbered software", "public domain"),
];

/// What every Debian system has the text of.
const COMMON: [(&str, &str); 3] =
    [("Apache-2.0", "Apache-2.0"), ("LGPL-2.1+", "LGPL-2.1"), ("GPL-3+ with GCC-Runtime exception", "GPL-3")];

/// The crates that `package` is linked with, from `cargo metadata`: neither ours nor what only builds or tests.
///
/// # Errors
/// Metadata without that package, or a crate without a licence.
pub fn linked_crates(metadata: &Value, package: &str) -> Result<Vec<Crate>, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|p| (text(&p["id"]), p)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|n| (text(&n["id"]), n)).collect();
    let root = packages.iter().find(|(_, p)| p["name"] == package).map(|(id, _)| id.clone());
    let mut left = vec![root.ok_or_else(|| format!("cargo metadata knows no {package}"))?];
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    while let Some(id) = left.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        let linked = |dep: &&Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        left.extend(list(&nodes[&id]["deps"]).iter().filter(linked).map(|dep| text(&dep["pkg"])));
        let p = &packages[&id];
        if p["source"].is_null() {
            continue;
        }
        let manifest = PathBuf::from(text(&p["manifest_path"]));
        found.push(Crate {
            name: text(&p["name"]),
            version: text(&p["version"]),
            licence: p["license"].as_str().ok_or_else(|| format!("{id} names no licence"))?.to_owned(),
            authors: list(&p["authors"]).iter().map(text).collect(),
            folder: manifest.parent().unwrap_or(Path::new("")).to_owned(),
        });
    }
    found.sort();
    Ok(found)
}

/// An SPDX expression as DEP-5 writes it: `or`, `and`, no parentheses.
fn dep5(expression: &str) -> String {
    expression
        .replace(" / ", " or ")
        .replace('/', " or ")
        .replace(") AND ", ", and ")
        .replace(['(', ')'], "")
        .replace(" WITH LLVM-exception", " with LLVM exception")
        .replace(" OR ", " or ")
        .replace(" AND ", " and ")
}

/// The licences that a DEP-5 expression names.
fn named(expression: &str) -> impl Iterator<Item = &str> {
    expression.split(" or ").flat_map(|part| part.split(" and ")).map(|id| id.trim_end_matches(','))
}

/// The files of a crate that say something of licences, by name.
fn licence_files(folder: &Path) -> Vec<String> {
    let wanted = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        ["LICEN", "COPY", "UNLICEN"].iter().any(|part| name.contains(part))
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(wanted).collect();
    paths.sort();
    paths.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect()
}

/// The lines of copyright in a crate's licence files; else its authors; else its contributors.
fn holders(name: &str, files: &[String], authors: &[String]) -> Vec<String> {
    let is_holder = |line: &&str| {
        let rest =
            line.strip_prefix("Copyright ").or_else(|| line.strip_prefix("(C) ").or_else(|| line.strip_prefix("© ")));
        rest.is_some_and(|rest| {
            !rest.starts_with('[') && !rest.starts_with("notice") && rest.contains(char::is_alphanumeric)
        })
    };
    let mut found: Vec<String> = Vec::new();
    for line in files.iter().flat_map(|file| file.lines()).map(str::trim).filter(is_holder) {
        let line = line.trim_start_matches("Copyright ").to_owned();
        if !found.contains(&line) && !line.starts_with("owner") && !line.starts_with("License") {
            found.push(line);
        }
    }
    if found.is_empty() {
        found = authors.to_vec();
    }
    if found.is_empty() { vec![format!("The {name} developers")] } else { found }
}

/// A text as a continuation field has it.
fn continued(text: &str) -> String {
    let lines = text.trim_end().lines().map(|line| line.trim_end().replace('\t', "    "));
    lines.map(|line| if line.is_empty() { " .\n".into() } else { format!(" {line}\n") }).collect()
}

fn licence_text(id: &str, files: &BTreeMap<&Crate, Vec<String>>) -> Result<String, String> {
    if let Some((_, file)) = COMMON.iter().find(|(common, _)| *common == id) {
        return Ok(format!("On Debian systems, the text is in /usr/share/common-licenses/{file}.\n"));
    }
    let known = LICENCES.iter().find(|licence| licence.id == id);
    let known = known
        .ok_or_else(|| format!("the licence {id} is not known to xtask/src/dist/copyright.rs; add it to its table"))?;
    let texts = files.values().flatten().filter(|text| text.contains(known.contains));
    let found = texts.filter_map(|text| text.find(known.begins).map(|at| text[at..].to_owned())).next();
    let text = found.ok_or_else(|| format!("no linked crate has the text of the licence {id}"))?;
    let apache =
        "On Debian systems, the text of the Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.\n\n";
    Ok(if id.starts_with("Apache-2.0 with") { format!("{apache}{text}") } else { text })
}

/// The whole file. `ours` is the project's MIT licence; `statically` says that the C library is in the program too.
///
/// # Errors
/// A licence whose text is not found.
pub fn file(crates: &[Crate], ours: &str, statically: bool) -> Result<String, String> {
    let mut out =
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: weir\n".to_owned();
    out += "Comment: The program is linked from the sources below; each paragraph names a crate by its name and version.\n";
    let mut files: BTreeMap<&Crate, Vec<String>> = crates.iter().map(|c| (c, licence_files(&c.folder))).collect();
    let mut stanza = |path: &str, holders: &[String], licence: &str| {
        out += &format!("\nFiles: {path}\nCopyright: {}\nLicense: {licence}\n", holders.join("\n           "));
    };
    let mut ids: BTreeSet<String> = ["Apache-2.0", "MIT"].map(String::from).into();
    stanza("*", &holders("weir", &[ours.to_owned()], &[]), "Apache-2.0 or MIT");
    stanza("rust-std/*", &["The Rust Project Developers".into()], "MIT or Apache-2.0");
    if statically {
        stanza("glibc/*", &["Free Software Foundation, Inc. and others".into()], "LGPL-2.1+");
        stanza("libgcc/*", &["Free Software Foundation, Inc.".into()], "GPL-3+ with GCC-Runtime exception");
        ids.extend(["LGPL-2.1+", "GPL-3+ with GCC-Runtime exception"].map(String::from));
    }
    for (c, texts) in &files {
        let licence = dep5(&c.licence);
        ids.extend(named(&licence).map(String::from));
        stanza(&format!("{}-{}/*", c.name, c.version), &holders(&c.name, texts, &c.authors), &licence);
    }
    let own = crates.first().map(|c| Crate { folder: PathBuf::new(), ..c.clone() });
    if let Some(own) = &own {
        files.insert(own, vec![ours.to_owned()]);
    }
    for id in ids {
        out += &format!("\nLicense: {id}\n{}", continued(&licence_text(&id, &files)?));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MIT: &str = "Copyright (c) 2020 Ann\n\nPermission is hereby granted, free of charge, to\n\nTHE SOFTWARE IS PROVIDED \"AS IS\"\n";

    #[test]
    fn expressions_become_those_of_dep5() {
        assert_eq!(dep5("MIT/Apache-2.0"), "MIT or Apache-2.0");
        assert_eq!(dep5("Apache-2.0 / MIT"), "Apache-2.0 or MIT");
        assert_eq!(dep5("(MIT OR Apache-2.0) AND Unicode-3.0"), "MIT or Apache-2.0, and Unicode-3.0");
        let llvm = dep5("Apache-2.0 WITH LLVM-exception OR MIT");
        assert_eq!(named(&llvm).collect::<Vec<_>>(), ["Apache-2.0 with LLVM exception", "MIT"]);
        assert_eq!(
            named("MIT or Apache-2.0, and Unicode-3.0").collect::<Vec<_>>(),
            ["MIT", "Apache-2.0", "Unicode-3.0"]
        );
    }

    #[test]
    fn what_builds_or_tests_is_not_linked() {
        let package = |id: &str, source: Value| json!({ "id": id, "name": id, "version": "1.0.0", "source": source, "license": "MIT", "authors": [], "manifest_path": "/none/Cargo.toml" });
        let dep = |id: &str, kind: Value| json!({ "pkg": id, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [package("ours", Value::Null), package("a", json!("r")), package("b", json!("r")), package("c", json!("r"))],
            "resolve": { "nodes": [
                { "id": "ours", "deps": [dep("a", Value::Null), dep("c", json!("dev"))] },
                { "id": "a", "deps": [dep("b", json!("build"))] }, { "id": "b", "deps": [] }, { "id": "c", "deps": [] },
            ] },
        });
        let names: Vec<String> = linked_crates(&metadata, "ours").unwrap().into_iter().map(|c| c.name).collect();
        assert_eq!(names, ["a"]);
        assert!(linked_crates(&metadata, "theirs").is_err());
    }

    #[test]
    fn holders_come_from_the_licence_files() {
        assert_eq!(holders("x", &[MIT.into()], &["Bob".into()]), ["(c) 2020 Ann"]);
        let apache = "Copyright [yyyy] [name of copyright owner]\nCopyright notice that is included\n".to_owned();
        assert_eq!(holders("x", &[apache], &["Bob".into()]), ["Bob"]);
        assert_eq!(holders("x", &[], &[]), ["The x developers"]);
    }

    #[test]
    fn a_licence_without_a_text_is_an_error() {
        let c = |licence: &str| Crate {
            name: "x".into(),
            version: "1.0.0".into(),
            licence: licence.into(),
            authors: Vec::new(),
            folder: PathBuf::from("/none"),
        };
        let text = file(&[c("MIT")], MIT, false).unwrap();
        assert!(
            text.contains("\nFiles: x-1.0.0/*\n") && text.contains("\nLicense: MIT\n Permission is hereby granted"),
            "{text}"
        );
        assert!(!text.contains("LGPL"), "{text}");
        assert!(file(&[c("MIT")], MIT, true).unwrap().contains("\nLicense: LGPL-2.1+\n"));
        assert!(file(&[c("Zlib")], MIT, false).unwrap_err().contains("Zlib"));
        assert!(file(&[c("Odd-1.0")], MIT, false).unwrap_err().contains("Odd-1.0"));
    }
}
