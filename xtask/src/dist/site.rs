//! The documentation as a site: the pages of `docs/` in the order of `docs/SUMMARY.md`, with a search, made by mdBook.
//!
//! ```text
//!   docs/ ──▶ stage: pages, and the files outside of docs/ that they link to (files/) ──▶ mdbook build ──▶ html
//! ```

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use super::build::{self, output};

/// What is installed where there is none: newer ones make other pages.
const MDBOOK: &str = "0.4.52";
/// Where files outside of `docs/` are in the site.
const FILES: &str = "files";
const BOOK: &str = "\
[book]
title = \"Weir\"
description = \"NVMe drives that tenants share with guarantees\"
language = \"en\"
src = \"src\"

[output.html]
no-section-label = true
smart-punctuation = false
default-theme = \"light\"
preferred-dark-theme = \"ayu\"

[output.html.print]
enable = false
";

/// What the pages are made of besides the project's own text: what mdBook 0.4 puts into each site, by its `src/theme`.
const COPYRIGHT: &str = "\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: weir
Comment: mdBook made the pages. What else it puts beside them keeps its licence.

Files: *
Copyright: The contributors of Weir
License: Apache-2.0 or MIT

Files: html/book.js html/css/* html/toc.js html/searcher.js html/favicon.*
Copyright: Mathieu David, Michael-F-Bryan and the contributors of mdBook
License: MPL-2.0

Files: html/highlight.js
Copyright: Ivan Sagalaev and others
License: BSD-3-Clause

Files: html/clipboard.min.js html/elasticlunr.min.js html/mark.min.js
Copyright: Zeno Rocha; Oliver Nightingale and Wei Song; Julian Kuehnel
License: MIT

Files: html/FontAwesome/*
Copyright: Dave Gandy
License: OFL-1.1 and MIT

Files: html/fonts/*
Copyright: Google and Adobe
License: Apache-2.0 and OFL-1.1

License: Apache-2.0
 On Debian systems: /usr/share/common-licenses/Apache-2.0

License: MPL-2.0
 On Debian systems: /usr/share/common-licenses/MPL-2.0

License: MIT
";

/// Debian's `copyright`, with the project's MIT licence.
pub fn copyright(ours: &str) -> String {
    let line = |text: &str| if text.is_empty() { " .\n".to_string() } else { format!(" {text}\n") };
    COPYRIGHT.to_string() + &ours.lines().map(line).collect::<String>()
}

/// Makes the site in a folder inside of `scratch`, and says where it is.
///
/// # Errors
/// A page that links to nothing, or mdBook, which can be neither found nor installed.
pub fn build(root: &Path, scratch: &Path) -> Result<PathBuf, String> {
    let (book, source) = (scratch.join("book"), scratch.join("book/src"));
    stage(&root.join("docs"), root, &source)?;
    fs::write(book.join("book.toml"), BOOK).map_err(|e| format!("book.toml: {e}"))?;
    let mut command = Command::new(mdbook(root)?);
    output(command.arg("build").arg(&book).arg("--dest-dir").arg(scratch.join("html")))?;
    Ok(scratch.join("html"))
}

/// The program: of MDBOOK, of PATH where it is that version, or installed into the target folder.
fn mdbook(root: &Path) -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("MDBOOK") {
        return Ok(named.into());
    }
    let folder = build::target(root).join("tools");
    let installed = folder.join("bin/mdbook");
    let is_it = |program: &Path| {
        let version = output(Command::new(program).arg("--version"));
        version.is_ok_and(|text| text.trim() == format!("mdbook v{MDBOOK}"))
    };
    if let Some(found) = [PathBuf::from("mdbook"), installed.clone()].into_iter().find(|program| is_it(program)) {
        return Ok(found);
    }
    eprintln!("dist: installing mdbook {MDBOOK} into {} (some minutes, once)", folder.display());
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["install", "mdbook", "--version", MDBOOK, "--locked", "--root"]).arg(&folder);
    cargo.env("CARGO_TARGET_DIR", folder.join("build")).env_remove("RUSTFLAGS").current_dir(std::env::temp_dir());
    output(&mut cargo).map_err(|e| format!("mdbook cannot be installed; name one with MDBOOK=PATH: {e}"))?;
    let _ = fs::remove_dir_all(folder.join("build"));
    Ok(installed)
}

/// Copies the pages below `from` to `to`, and what they link to outside of `docs/` to [`FILES`].
fn stage(from: &Path, root: &Path, to: &Path) -> Result<(), String> {
    let at = |path: &Path| {
        let path = path.display().to_string();
        move |e: std::io::Error| format!("{path}: {e}")
    };
    fs::create_dir_all(to).map_err(at(to))?;
    for entry in fs::read_dir(from).map_err(at(from))? {
        let path = entry.map_err(at(from))?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            stage(&path, root, &target)?;
        } else if path.extension().is_some_and(|e| e == "md") {
            let page = fs::read_to_string(&path).map_err(at(&path))?;
            let inside = path.strip_prefix(root).unwrap_or(&path);
            let (text, files) = with_files_inside(inside, &page);
            fs::write(&target, text).map_err(at(&target))?;
            let depth = inside.components().count() - 2;
            let site = to.ancestors().nth(depth).unwrap_or(to);
            for file in files {
                let copy = site.join(FILES).join(&file);
                fs::create_dir_all(copy.parent().unwrap_or(site)).map_err(at(&copy))?;
                fs::copy(root.join(&file), &copy).map_err(at(&root.join(&file)))?;
            }
        } else {
            fs::copy(&path, &target).map_err(at(&path))?;
        }
    }
    Ok(())
}

/// A page whose links to files outside of `docs/` lead to their copies, and these files. `page`: its path in the repository.
fn with_files_inside(page: &Path, text: &str) -> (String, Vec<PathBuf>) {
    let (mut out, mut files, mut rest) = (String::with_capacity(text.len()), Vec::new(), text);
    let up = "../".repeat(page.components().count() - 2);
    while let Some(begin) = rest.find("](") {
        let (before, after) = rest.split_at(begin + 2);
        out += before;
        let end = after.find([')', '#', ' ', '\n']).unwrap_or(after.len());
        let target = &after[..end];
        match outside(page, target) {
            Some(file) => {
                out += &format!("{up}{FILES}/{}", file.display());
                files.push(file);
            }
            None => out += target,
        }
        rest = &after[end..];
    }
    (out + rest, files)
}

/// The path in the repository of a link's target that is not below `docs/`.
fn outside(page: &Path, target: &str) -> Option<PathBuf> {
    if target.is_empty() || target.contains(':') {
        return None;
    }
    let mut path = PathBuf::new();
    for part in page.parent()?.join(target).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            other => path.push(other),
        }
    }
    (!path.starts_with("docs")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_pages_lead_to_copies() {
        let page = "see [a](b.md), [c](../../bindings/c/x.h) and [d](https://e/f), [g](../start/h.md#i)";
        let (text, files) = with_files_inside(Path::new("docs/guides/a.md"), page);
        assert_eq!(text, page.replace("../../bindings/c/x.h", "../files/bindings/c/x.h"));
        assert_eq!(files, [PathBuf::from("bindings/c/x.h")]);
        let (text, files) = with_files_inside(Path::new("docs/a.md"), "[README](../README.md)");
        assert_eq!((text.as_str(), files), ("[README](files/README.md)", vec![PathBuf::from("README.md")]));
    }

    #[test]
    fn every_page_is_in_the_summary_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let summary = fs::read_to_string(root.join("docs/SUMMARY.md")).unwrap();
        let mut folders = vec![root.join("docs")];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
                let name = path.strip_prefix(root.join("docs")).unwrap().display().to_string();
                if path.is_dir() {
                    folders.push(path);
                } else if name.ends_with(".md") && name != "SUMMARY.md" {
                    assert_eq!(summary.matches(&format!("]({name})")).count(), 1, "{name}");
                }
            }
        }
    }

    #[test]
    fn the_pages_are_staged_with_what_they_link_to() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let to = std::env::temp_dir().join(format!("weir-site-{}", std::process::id()));
        stage(&root.join("docs"), root, &to).unwrap();
        assert!(to.join("SUMMARY.md").is_file() && to.join("guides/libweir.md").is_file());
        assert!(to.join("files/bindings/c/include/weir.h").is_file());
        fs::remove_dir_all(&to).unwrap();
    }
}
