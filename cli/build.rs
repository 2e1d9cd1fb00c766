//! Which commit the program is of, for `weir --version`: WEIR_COMMIT where a package says so, else what git says here.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=WEIR_COMMIT");
    let said = std::env::var("WEIR_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = said.or_else(|| git(&["rev-parse", "--short=12", "HEAD"])).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=WEIR_COMMIT={commit}");
    // HEAD names a branch, whose file is another one after each commit; a file that is not there would build this each time.
    let files = ["HEAD", "packed-refs"].map(String::from).into_iter();
    let branch = git(&["symbolic-ref", "-q", "HEAD"]);
    for file in files.chain(branch).filter_map(|name| git(&["rev-parse", "--git-path", &name])) {
        if std::path::Path::new(&file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
}

/// What git says of this checkout, whoever owns it; nothing where it is none.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(["-c", "safe.directory=*"]).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
