//! The files of the repository, in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::lexer;

/// Something that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the repository's root.
    pub path: String,
    /// Its line, from 1.
    pub line: usize,
    /// What is wrong, for whoever has to mend it.
    pub message: String,
    /// The check that found it.
    pub check: &'static str,
}

impl Finding {
    /// A finding; the runner fills in the check's name.
    pub fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.into(), line, message: message.into(), check: "" }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {} [{}]", self.path, self.line, self.message, self.check)
    }
}

/// One text file.
pub struct File {
    /// From the repository's root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
    /// For Rust: the text with comments, strings and characters blanked, line by line the same length.
    pub code: String,
}

impl File {
    /// A file; Rust sources are lexed at once.
    pub fn new(path: &str, text: String) -> Self {
        let code = if path.ends_with(".rs") { lexer::blank(&text) } else { String::new() };
        Self { path: path.into(), text, code }
    }

    /// A Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// A test, by where it lies: the size rules leave it alone.
    pub fn is_test(&self) -> bool {
        let path = &self.path;
        path.starts_with("tests/")
            || path.contains("/tests/")
            || path.ends_with("/tests.rs")
            || path.ends_with("_tests.rs")
    }
}

/// All files.
pub struct Tree {
    files: BTreeMap<String, File>,
    /// Everything that exists, also what is not text.
    names: std::collections::BTreeSet<String>,
}

impl Tree {
    /// A tree of these texts.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let names = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        let files =
            files.iter().map(|(path, text)| ((*path).to_owned(), File::new(path, (*text).to_owned()))).collect();
        Self { files, names }
    }

    /// Reads what git tracks or would track below `root`.
    pub fn read(root: &Path) -> Result<Self, String> {
        let out = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|e| format!("git: {e}"))?;
        if !out.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&out.stderr).trim()));
        }
        let mut tree = Self { files: BTreeMap::new(), names: std::collections::BTreeSet::new() };
        for path in String::from_utf8_lossy(&out.stdout).split('\0').filter(|p| !p.is_empty()) {
            // A file that is deleted but still tracked, or not text, has no lines to check.
            let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
            tree.names.insert(path.to_owned());
            if let Ok(text) = String::from_utf8(bytes) {
                tree.files.insert(path.to_owned(), File::new(path, text));
            }
        }
        Ok(tree)
    }

    /// Every text file, by path.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &File> {
        self.files.values()
    }

    /// One file.
    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    /// Whether there is a file or a folder of that name.
    pub fn exists(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.names.contains(path)
            || self.names.range(folder.clone()..).next().is_some_and(|n| n.starts_with(&folder))
    }
}
