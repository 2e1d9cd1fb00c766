//! The file that `./test --full` writes and goes on from (`.ci/results.sh`), with steps that are made up.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a script of bash that has the functions of `.ci/results.sh`, `$F` being the file of a run of source `$1`.
struct Runs {
    folder: PathBuf,
}

impl Runs {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("weir-results-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self { folder }
    }

    fn run(&self, source: &str, script: &str) -> String {
        let ci = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/results.sh");
        let begin = "set -u; . \"$0\"; F=full.txt; results_begin \"$F\" \"$1\" c0ffee 7 'rustc, cores'";
        let mut bash = Command::new("bash");
        bash.arg("-c").arg(format!("{begin}\n{script}")).arg(ci).arg(source).current_dir(&self.folder);
        let output = bash.output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn file(&self) -> String {
        std::fs::read_to_string(self.folder.join("full.txt")).unwrap()
    }

    /// The lines of steps, each cut behind its source.
    fn lines(&self) -> Vec<String> {
        let text = self.file();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|line| {
                let words: Vec<&str> = line.split(" commit ").next().unwrap_or("").split_whitespace().collect();
                words.join(" ") + if line.ends_with(" OLDER") { " OLDER" } else { "" }
            })
            .collect()
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

const SUITES: &str = "record_suites <<'END' >/dev/null\n\
    cli::help ok (0.1 s)\n\
    suite cli: 13 passed, 0 failed, 1 skipped, 0 measured again in 12 s\n\
    suite floors: 5 passed, 1 failed, 0 skipped, 2 measured again in 40 s\n\
    END\n";

#[test]
fn each_step_is_there_as_soon_as_it_has_ended() {
    let runs = Runs::new("ends");
    runs.run("aaaa", "record format 1 0 0 0 5\nresults_state 'NOT TO ITS END: step \"unit\" was begun'");
    assert_eq!(runs.lines(), ["format 1 passed 0 failed 0 skipped 0 measured again 5 s source aaaa"]);
    assert!(runs.file().contains("# state: NOT TO ITS END: step \"unit\" was begun\n"), "{}", runs.file());
    assert!(runs.file().contains("# last run: source aaaa, commit c0ffee, seed 7\n# rustc, cores\n"));
    assert!(runs.file().contains(" s  source aaaa commit c0ffee seed 7 20"), "{}", runs.file());
}

#[test]
fn a_result_takes_the_place_of_the_one_before() {
    let runs = Runs::new("place");
    runs.run("aaaa", "record fuzz 1 0 0 0 50 'arbiter 2304' 'pcie 12'\nrecord unit 7 2 0 0 100");
    runs.run("bbbb", "record fuzz 1 0 0 0 60 'arbiter 9'");
    let unit = "unit 7 passed 2 failed 0 skipped 0 measured again 100 s source aaaa OLDER";
    assert_eq!(runs.lines(), ["fuzz 1 passed 0 failed 0 skipped 0 measured again 60 s source bbbb", "arbiter 9", unit]);
    runs.run("aaaa", "results_drop fuzz");
    assert_eq!(runs.lines(), [unit.trim_end_matches(" OLDER")]);
}

#[test]
fn a_suite_is_recorded_while_the_others_run() {
    let runs = Runs::new("suites");
    runs.run("aaaa", SUITES);
    assert_eq!(
        runs.lines(),
        [
            "end to end: cli 13 passed 0 failed 1 skipped 0 measured again 12 s source aaaa",
            "end to end: floors 5 passed 1 failed 0 skipped 2 measured again 40 s source aaaa",
        ]
    );
    assert_eq!(runs.run("aaaa", "results_steps 'end to end: ' passed_here; results_counts"), "cli\n18 1 1 2 0\n");
}

#[test]
fn what_has_passed_is_told_from_what_has_not() {
    let runs = Runs::new("passed");
    runs.run("aaaa", "record unit 1 0 0 0 9\nrecord 'long unit' 1 3 0 0 9\nrecord fuzz 10 0 0 0 9");
    let told = "for step in unit 'long unit' fuzz tidy; do for how in ever here before; do\n\
                if passed_$how \"$step\"; then printf 1; else printf 0; fi\n\
                done; printf ' '; done; results_counts";
    assert_eq!(runs.run("aaaa", told), "110 000 110 000 12 3 0 0 0\n");
    assert_eq!(runs.run("bbbb", told), "101 000 101 000 0 0 0 0 3\n");
    // What is not committed is another thing every time.
    runs.run("uncommitted", "record unit 1 0 0 0 9");
    assert!(runs.run("uncommitted", told).starts_with("100 000 "));
}
