//! The driver finds what is there, finds it again, and makes it small.

use std::path::Path;
use std::process::Command;

use weir_fuzz::engine::{self, Limits, Progress};
use weir_fuzz::mutate::Mutator;
use weir_fuzz::{CANARY, TARGETS, Target};

fn limits(from: u64, steps: u64) -> Limits {
    Limits { from, steps, time: None }
}

fn driver(args: &[&str]) -> (i32, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_weir-fuzz")).args(args).output().expect("the driver starts");
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.code().expect("not killed"), text)
}

fn temporary(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("weir-fuzz-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary folder");
    dir
}

#[test]
fn the_planted_bug_is_found_from_any_seed_and_found_again_from_its_step() {
    for seed in 0..20 {
        let mutator = Mutator::new(&CANARY, Vec::new());
        let first = engine::run(&CANARY, &mutator, seed, limits(0, 200_000), &Progress::default());
        let finding = first.finding.unwrap_or_else(|| panic!("seed {seed} does not find the canary"));
        let again = engine::run(&CANARY, &mutator, seed, limits(finding.step, 1), &Progress::default());
        assert_eq!(again.finding.expect("the same step fails").input, finding.input);
        assert!(finding.shrunk.len() <= 11, "magic, version, length: {:02x?}", finding.shrunk);
        assert!(engine::attempt(CANARY.run, &finding.shrunk).is_err());
    }
}

#[test]
fn inputs_depend_on_seed_target_and_step_alone() {
    let other = Target { name: "other", ..CANARY };
    let (a, b) = (Mutator::new(&CANARY, Vec::new()), Mutator::new(&other, Vec::new()));
    let inputs = |m: &Mutator, seed| (1..200).map(|s| m.input(seed, s)).collect::<Vec<_>>();
    assert_eq!(inputs(&a, 7), inputs(&a, 7));
    assert_ne!(inputs(&a, 7), inputs(&a, 8));
    assert_ne!(inputs(&a, 7), inputs(&b, 7));
    assert!(inputs(&a, 7).iter().all(|i| i.len() <= CANARY.max_len));
}

#[test]
fn the_corpus_runs_first_and_untouched() {
    let dir = temporary("corpus");
    std::fs::create_dir_all(dir.join("canary")).expect("a folder");
    std::fs::write(dir.join("canary/b"), b"second").expect("a file");
    std::fs::write(dir.join("canary/a"), b"first").expect("a file");
    let mutator = Mutator::new(&CANARY, engine::corpus(&dir, "canary").expect("readable"));
    assert_eq!(mutator.input(1, 0), (CANARY.seeds)()[0]);
    assert_eq!(mutator.input(1, 1), b"first");
    assert_eq!(mutator.input(1, 2), b"second");
    assert!(engine::corpus(&dir, "absent").expect("no folder is no corpus").is_empty());
    std::fs::remove_dir_all(dir).expect("removable");
}

#[test]
fn a_finding_is_printed_saved_and_replayed() {
    let dir = temporary("crashes");
    let crashes = dir.to_str().expect("utf-8");
    let (code, text) = driver(&["--target", "canary", "--seed", "0x5", "--steps", "200000", "--crashes", crashes]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("canary: FAILED at step") && text.contains("--seed 0x5 --from"), "{text}");
    let saved = std::fs::read_dir(&dir).expect("readable").next().expect("one file").expect("readable").path();
    let (code, text) = driver(&["--target", "canary", "--replay", saved.to_str().expect("utf-8")]);
    assert_ne!(code, 0);
    assert!(text.contains("canary.rs"), "the panic shows: {text}");
    std::fs::remove_dir_all(dir).expect("removable");
}

#[test]
fn a_full_run_reports_every_target_and_the_canary() {
    let dir = temporary("full");
    let (code, text) = driver(&["--steps", "20", "--seed", "1", "--crashes", dir.to_str().expect("utf-8")]);
    let last = text.lines().last().unwrap_or_default();
    assert!(last.starts_with("fuzz: seed 0x1; steps: ") && last.contains("canary found at "), "{text}");
    for target in TARGETS {
        assert!(last.contains(&format!("{} ", target.name)), "{} is missing: {last}", target.name);
    }
    assert!(code == 0 || text.contains("FAILED"), "{text}");
    std::fs::remove_dir_all(dir).expect("removable");
}

#[test]
fn usage_errors_say_what_is_wrong() {
    for (args, says) in [
        (&["--target", "nobody"][..], "no target is called 'nobody'"),
        (&["--steps", "many"], "'many' is not a number"),
        (&["--steps"], "--steps wants a value"),
        (&["--fast"], "unknown argument '--fast'"),
    ] {
        let (code, text) = driver(args);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn names_are_unique_and_fit_for_files() {
    let mut names: Vec<_> = TARGETS.iter().chain([&CANARY]).map(|t| t.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|w| w[0] != w[1]), "{names:?}");
    assert!(names.iter().all(|n| n.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')));
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs").exists());
}
