//! Each check finds what it is for, and leaves alone what is right.

use crate::lexer::blank;
use crate::tree::Tree;
use crate::{arrows, circles, links, names, purity, size, text, tidy};

/// `file:line` and message of every finding of one check.
fn found(check: fn(&Tree) -> Vec<crate::tree::Finding>, files: &[(&str, &str)]) -> Vec<String> {
    check(&Tree::of(files)).iter().map(|f| format!("{}:{}: {}", f.path, f.line, f.message)).collect()
}

#[track_caller]
fn one(check: fn(&Tree) -> Vec<crate::tree::Finding>, files: &[(&str, &str)], starts: &str) {
    let all = found(check, files);
    assert!(all.len() == 1 && all[0].starts_with(starts), "{all:#?}");
}

#[track_caller]
fn none(check: fn(&Tree) -> Vec<crate::tree::Finding>, files: &[(&str, &str)]) {
    assert_eq!(found(check, files), Vec::<String>::new());
}

#[test]
fn the_lexer_blanks_comments_strings_and_characters() {
    for (code, left) in [
        ("a // b\nc", "a     \nc"),
        ("a /* b /* c */ d */ e", "a                   e"),
        (r#"f("x\"y", 'z', '\'', b'}', '\u{7d}')"#, "f(      ,    ,     , b   ,         )"),
        (r##"r#"a"b"# c br"q" r#fn"##, "         c       r#fn"),
        ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
        ("var\"s\"", "var   "),
    ] {
        assert_eq!(blank(code), left);
    }
}

#[test]
fn arrows_point_down() {
    let spec = ("spec/Cargo.toml", "[package]\nname = \"weir-spec\"\n");
    let node = ("node/Cargo.toml", "[package]\nname = \"weir-node\"\n\n[dependencies]\nweir-spec.workspace = true\n");
    none(
        arrows::check,
        &[spec, node, ("sim/Cargo.toml", "[package]\nname = \"sim\"\n[dependencies]\nweir-node = { path = \"x\" }\n")],
    );
    let up = ("sys/Cargo.toml", "[package]\nname = \"weir-sys\"\n[dependencies]\nweir-node.workspace = true\n");
    one(arrows::check, &[spec, node, up], "sys/Cargo.toml:4: weir-node lies above");
    let table = ("sys/Cargo.toml", "[package]\nname = \"weir-sys\"\n[dependencies.weir-node]\nworkspace = true\n");
    one(arrows::check, &[spec, node, table], "sys/Cargo.toml:3: weir-node lies above");
    let capi = "[package]\nname = \"weir-capi\"\n[dependencies]\nweir-node.workspace = true\n";
    none(arrows::check, &[spec, node, ("bindings/c/Cargo.toml", capi)]);
    let sim = ("sim/Cargo.toml", "[package]\nname = \"weir-sim\"\n");
    let above = "[package]\nname = \"weir-capi\"\n[dependencies]\nweir-sim.workspace = true\n";
    one(arrows::check, &[sim, ("bindings/c/Cargo.toml", above)], "bindings/c/Cargo.toml:4: weir-sim lies above");
    none(arrows::check, &[sim, ("bindings/python/Cargo.toml", above)]);
    let cli = "[package]\nname = \"weir-cli\"\n[dependencies]\nweir-capi.workspace = true\n";
    one(
        arrows::check,
        &[node, ("bindings/c/Cargo.toml", capi), ("cli/Cargo.toml", cli)],
        "cli/Cargo.toml:4: weir-capi lies above",
    );
}

#[test]
fn circles_are_short() {
    let root = ("spec/src/lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\npub use d::D;\n");
    let [a, b, c] = [
        ("spec/src/a.rs", "use crate::b::{B, more::{C}};\npub struct A(B);\n"),
        ("spec/src/b.rs", "pub struct B(super::c::C);\n"),
        ("spec/src/c/mod.rs", "mod deep;\npub use deep::C;\n"),
    ];
    let deep = |code| ("spec/src/c/deep.rs", code);
    let closing = "use crate::D;\npub struct C;\n";
    let d = ("spec/src/d.rs", "pub struct D;\nfn f() -> usize { size_of::<crate::a::A>() }\n");
    one(
        circles::check,
        &[root, a, b, c, deep(closing), d],
        "spec/src/a.rs:1: 4 files import one another: a, b, c::deep, d",
    );
    // One import less, one that is a comment's or a test's, and one way round.
    none(circles::check, &[root, a, b, c, deep("pub struct C;\n"), d]);
    none(
        circles::check,
        &[root, a, b, c, deep("// crate::D\npub struct C;\n#[cfg(test)]\nmod tests { use crate::D; }\n"), d],
    );
    none(circles::check, &[root, a, b, c, deep(closing), ("spec/src/d.rs", "pub struct D;\n")]);
    // Who may see something.
    let seen = ("spec/src/d.rs", "pub struct D;\npub(in crate::a) fn f() {}\n");
    none(circles::check, &[root, a, b, c, deep(closing), seen]);
    // A crate that is not on the list.
    let elsewhere =
        [("x/src/a.rs", "use crate::b::B;"), ("x/src/b.rs", "use crate::c::C;"), ("x/src/c.rs", "use crate::d::D;")];
    none(circles::check, &[elsewhere[0], elsewhere[1], elsewhere[2], ("x/src/d.rs", "use crate::a::A;")]);
}

#[test]
fn spec_and_core_use_pure_crates_only() {
    let core = "[package]\nname = \"weir-x\"\n[dependencies]\nzerocopy.workspace = true\n[dev-dependencies]\nproptest.workspace = true\n";
    none(arrows::check, &[("core/x/Cargo.toml", core)]);
    one(
        arrows::check,
        &[("core/x/Cargo.toml", "[dependencies]\ntokio = \"1\"\n")],
        "core/x/Cargo.toml:2: tokio in spec or core",
    );
}

#[test]
fn crate_roots_of_core_are_pure() {
    none(purity::check, &[("core/x/src/lib.rs", "//! X.\n#![no_std]\n#![forbid(unsafe_code)]\n")]);
    one(
        purity::check,
        &[("core/x/src/lib.rs", "// #![no_std]\n#![forbid(unsafe_code)]\n")],
        "core/x/src/lib.rs:1: wants #![no_std]",
    );
    none(purity::check, &[("core/x/src/a/lib.rs", "")]);
    one(purity::check, &[("spec/src/a.rs", "extern crate std;\n")], "spec/src/a.rs:1: extern crate std");
    none(purity::check, &[("spec/src/a.rs", "#[cfg(test)]\nextern crate std;\n")]);
}

#[test]
fn unsafe_is_for_sys() {
    let code = "// unsafe\n#![forbid(unsafe_code)]\nfn f() { \"unsafe\"; unsafe { g() } }\n";
    one(purity::check, &[("node/src/a.rs", code)], "node/src/a.rs:3: unsafe outside");
    none(purity::check, &[("sys/src/a.rs", code)]);
}

#[test]
fn long_functions_want_a_reason() {
    let long = |head: &str| format!("{head}fn f(a: [u8; 2]) {{\n{}}}\n", "    g(\"}\");\n".repeat(70));
    one(size::check, &[("node/src/a.rs", &long(""))], "node/src/a.rs:1: fn f has 72 lines");
    none(size::check, &[("node/src/a.rs", &long("// tidy: long because it is one table\n"))]);
    one(size::check, &[("node/src/a.rs", &long("// tidy: long because\n"))], "node/src/a.rs:2: fn f");
    none(
        size::check,
        &[("node/src/tests.rs", &long("")), ("tests/src/a.rs", &long("")), ("sim/tests/a.rs", &long(""))],
    );
    none(size::check, &[("node/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{}}}\n", long("")))]);
    none(
        size::check,
        &[("node/src/a.rs", &format!("trait T {{\n    fn f(&self);\n{}}}\n", "    fn g() {}\n".repeat(80)))],
    );
}

#[test]
fn long_files_want_a_reason() {
    let long = "const A: u8 = 1;\n".repeat(601);
    one(size::check, &[("node/src/a.rs", &long)], "node/src/a.rs:1: 601 lines");
    none(size::check, &[("node/src/a.rs", &format!("//! A.\n// tidy: long because it is one table\n{long}"))]);
    none(size::check, &[("node/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{long}}}\n"))]);
    none(size::check, &[("node/src/a.rs", &long[..600 * 17])]);
}

#[test]
fn text_is_clean() {
    one(text::check, &[("a.md", "a\tb\n")], "a.md:1: a tab");
    one(text::check, &[("a.md", "a\nb \n")], "a.md:2: white space");
    one(text::check, &[("weir", "#!/bin/sh\r\n")], "weir:1: white space");
    one(text::check, &[("a.md", "a")], "a.md:1: no line break");
    one(text::check, &[("a.rs", concat!("// TO", "DO: later\n"))], concat!("a.rs:1: TO", "DO"));
    none(text::check, &[("a.rs", "const TODOS: u8 = 1;\n"), ("a.bin", "\t "), (".gitignore", "\t\n")]);
}

#[test]
fn no_machine_is_named() {
    one(text::check, &[("a.md", concat!("deb http://deb.", "debian.org/debian\n"))], "a.md:1: names the registry");
    for path in
        [concat!("/wo", "rk/x"), concat!("cd /ho", "me/me"), concat!("p=\"/ro", "ot/x\""), concat!("(/wo", "rk/y)")]
    {
        one(text::check, &[("a.md", &format!("{path}\n"))], "a.md:1: a path of one machine");
    }
    none(text::check, &[("a.sh", concat!("$G/kern/ro", "ot/usr \"$G\"/ro", "ot/x ${G}/wo", "rk/\n"))]);
    let ours = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n";
    none(text::check, &[("Cargo.lock", ours)]);
    one(text::check, &[("Cargo.lock", "source = \"sparse+http://mirror/\"\n")], "Cargo.lock:1: a package from sparse");
}

#[test]
fn crates_say_what_they_are_for() {
    none(text::check, &[("a/src/lib.rs", "#![no_std]\n//! Everything about a.\n"), ("a/src/b.rs", "use x;\n")]);
    one(text::check, &[("a/src/lib.rs", "use x;\n")], "a/src/lib.rs:1: the crate's first lines");
    one(text::check, &[("a/src/main.rs", "//! placeholder\n")], "a/src/main.rs:1: the crate's first lines");
}

#[test]
fn links_resolve() {
    let target = ("docs/b.md", "# The `B` of it, in short\n\n```\n# not a heading\n```\n");
    let good = "[b](docs/b.md) [h](docs/b.md#the-b-of-it-in-short) [d](docs) `[x](nowhere)` [w](https://a.b/c)\n```\n[y](z)\n```\n";
    none(links::check, &[("README.md", good), target]);
    none(links::check, &[("docs/a.md", "[b](./b.md) [r](../README.md) [self](#a)\n# A\n"), target, ("README.md", "")]);
    one(links::check, &[("README.md", "\n[b](docs/c.md)\n"), target], "README.md:2: the link docs/c.md leads nowhere");
    one(
        links::check,
        &[("README.md", "[b](docs/b.md#not-a-heading)\n"), target],
        "README.md:1: docs/b.md has no heading",
    );
}

#[test]
fn layouts_have_no_holes() {
    let table = |rows: &str| format!("| Offset | Size | Field |\n|---|---|---|\n{rows}");
    none(links::check, &[("docs/formats.md", &table("| 0 | 4 | a |\n| 4 | 0x4 | b |\n| 8 | n | c |\n"))]);
    one(
        links::check,
        &[("docs/formats.md", &table("| 0 | 4 | a |\n| 8 | 4 | b |\n"))],
        "docs/formats.md:4: offset 8 after 4",
    );
    one(links::check, &[("docs/formats.md", &table("| x | 4 | a |\n"))], "docs/formats.md:3: 'x' is not an offset");
    none(links::check, &[("docs/formats.md", "| Version | Size |\n|---|---|\n| 9 | 4 |\n| x | y |\n")]);
}

#[test]
fn findings_name_their_check_and_come_in_order() {
    let all = tidy(&Tree::of(&[("b.md", "\t\n"), ("a.md", "[x](y)\n")]));
    let printed: Vec<String> = all.iter().map(ToString::to_string).collect();
    assert_eq!(printed, ["a.md:1: the link y leads nowhere [links]", "b.md:1: a tab [text]"]);
}

#[test]
fn a_public_name_in_three_modules_is_found_in_each() {
    let (a, b) = ("/// A step.\npub struct Step;\n", "pub enum Step<T> { A(T) }\n");
    let two = [("core/a/src/a.rs", a), ("core/b/src/b.rs", b)];
    none(names::check, &two);
    let three = [two[0], two[1], ("sys/src/c.rs", "\npub unsafe trait Step {}\n")];
    let all = found(names::check, &three);
    assert_eq!(all.len(), 3, "{all:#?}");
    assert!(all[0].starts_with("core/a/src/a.rs:2: public type Step: 2 other modules"), "{all:#?}");
    assert!(all[2].starts_with("sys/src/c.rs:2: "), "{all:#?}");
    // Not public, not of this name, an associated type, a test, and twice in one module.
    for text in [
        "pub(crate) struct Step;\n",
        "pub struct Steps;\n",
        "impl X for Y {\n    pub type Step = u8;\n}\n",
        "// pub struct Step;\n",
    ] {
        none(names::check, &[two[0], two[1], ("sys/src/c.rs", text)]);
    }
    none(names::check, &[two[0], two[1], ("sys/src/c_tests.rs", "pub struct Step;\n")]);
    none(names::check, &[two[0], ("core/b/src/b.rs", "pub struct Step;\nmod m {}\npub struct Step;\n")]);
}
