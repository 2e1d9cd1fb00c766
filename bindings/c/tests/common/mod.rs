//! What the tests of C programs share: they are compiled with all warnings as errors, against the library that is tested.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FLAGS: [&str; 7] = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g"];

pub fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where cargo puts `libweir.so` for a test: beside it.
pub fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().with_file_name("libweir.so");
    assert!(library.is_file(), "{} was not built", library.display());
    library
}

pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    output
}

/// Compiles a program against the library that is tested; it finds it by a link of the soname's name in its own folder.
pub fn compile(source: &str, name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (program, link) = (folder.join(name), folder.join("libweir.so.0"));
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(library(), &link).unwrap();
    let mut cc = Command::new("cc");
    cc.args(FLAGS).arg("-I").arg(here("include")).arg(here(source)).arg(&link);
    run(cc.args(["-pthread", "-Wl,-rpath,$ORIGIN", "-o"]).arg(&program));
    program
}

/// Runs a program with every access to memory checked, that of the library to the program's as well.
pub fn valgrind(program: &Path, arguments: &[&str]) -> String {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite", "--quiet"]);
    valgrind.arg(format!("--suppressions={}", here("tests/valgrind.supp").display()));
    let output = valgrind.arg(program).args(arguments).output();
    let output = output.expect("valgrind is missing; run: apt-get install -y valgrind");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}
