//! From a file and its changes to what runs.

use super::SimArgs;
use crate::failure::CommandFailure;
use std::path::{Path, PathBuf};
use weir_config::Document;
use weir_sim::Scenario;
use weir_sim::import::{Emulator, Imported, import};

/// More runs than this are a mistake.
const MAX_RUNS: usize = 10_000;

/// One run of a sweep.
#[derive(Debug)]
pub struct Combination {
    /// Keys and values that `--set` chose.
    pub set: Vec<(String, String)>,
    /// One for each drive.
    pub scenarios: Vec<Scenario>,
}

/// `device.gc=plane jobs[0].qd=4`.
pub fn shown(set: &[(String, String)]) -> String {
    set.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// Every combination of the values of all `--set`, the last one varying fastest; all of them are read and checked.
pub fn combinations(args: &SimArgs) -> Result<Vec<Combination>, CommandFailure> {
    let mut base = document(args)?;
    for trace in &args.trace {
        base.push("job", &trace_keys(trace)?);
    }
    for (key, value) in [("seed", args.seed.map(|s| s.to_string())), ("series", args.series.clone())] {
        if let Some(value) = value {
            base.set(key, &value).map_err(|e| CommandFailure::usage(format_args!("--{key} {value}: {e}")))?;
        }
    }
    let mut sets: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for set in &args.set {
        let (key, values) = parse(set)?;
        sets = sets.iter().flat_map(|set| values.iter().map(|value| with(set, &key, value))).collect();
        if sets.len() > MAX_RUNS {
            return Err(CommandFailure::usage(format_args!(
                "--set {set}: more than {MAX_RUNS} runs; set fewer values"
            )));
        }
    }
    sets.into_iter().map(|set| combine(&base, set)).collect()
}

/// The file, or what another emulator's files make.
fn document(args: &SimArgs) -> Result<Document, CommandFailure> {
    if let Some(file) = &args.file {
        return Ok(Document::load(file)?);
    }
    let (imported, name) = imported(args)?;
    for left in &imported.left_out {
        eprintln!("weir: sim: not taken over: {left}");
    }
    Ok(Document::parse(&imported.toml, &format!("{name} (--print-config)"), Path::new(""))?)
}

/// What another emulator's files make, and the name of the first.
pub fn imported(args: &SimArgs) -> Result<(Imported, String), CommandFailure> {
    let [emulator, files @ ..] = args.from.as_slice() else {
        return Err(CommandFailure::usage("sim: --from needs an emulator and its file"));
    };
    let emulator: Emulator = emulator.parse().map_err(|e| CommandFailure::usage(format_args!("sim: --from: {e}")))?;
    let paths: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let imported = import(emulator, &paths).map_err(|e| CommandFailure::new(format_args!("sim: --from: {e}")))?;
    Ok((imported, files.first().cloned().unwrap_or_default()))
}

fn with(set: &[(String, String)], key: &str, value: &str) -> Vec<(String, String)> {
    set.iter().cloned().chain([(key.to_string(), value.to_string())]).collect()
}

fn parse(set: &str) -> Result<(String, Vec<String>), CommandFailure> {
    let usage = |what: &str| CommandFailure::usage(format_args!("--set {set}: {what}"));
    let (key, values) = set.split_once('=').ok_or_else(|| usage("is not KEY=VALUE; write --set device.slots=16,64"))?;
    let values: Vec<String> = values.split(',').map(|v| v.trim().to_string()).collect();
    if values.iter().any(String::is_empty) {
        return Err(usage("has a value that is empty"));
    }
    Ok((key.trim().to_string(), values))
}

fn combine(base: &Document, set: Vec<(String, String)>) -> Result<Combination, CommandFailure> {
    let mut document = base.clone();
    for (key, value) in &set {
        document.set(key, value).map_err(|e| CommandFailure::usage(format_args!("--set {key}={value}: {e}")))?;
    }
    match Scenario::read_all(&document) {
        Ok(scenarios) => Ok(Combination { set, scenarios }),
        Err(error) if set.is_empty() || Scenario::read_all(base).is_err() => Err(error.into()),
        // The file alone is right: what was set is wrong.
        Err(error) => Err(CommandFailure::usage(format_args!("--set {}: {error}", shown(&set)))),
    }
}

/// `FILE,KEY=VALUE,…` as the keys of a `[[job]]`.
fn trace_keys(trace: &str) -> Result<Vec<(String, String)>, CommandFailure> {
    let usage = |what: String| CommandFailure::usage(format_args!("--trace {trace}: {what}"));
    let mut parts = trace.split(',');
    let file = parts.next().unwrap_or_default();
    // Relative to where the user is, not to the simulation's file.
    let path = std::path::absolute(file).map_err(|e| usage(e.to_string()))?;
    let path = path.to_str().ok_or_else(|| usage("the path is not UTF-8".to_string()))?;
    let mut keys = vec![("trace".to_string(), path.to_string())];
    for pair in parts {
        let (key, value) = pair.split_once('=').ok_or_else(|| usage(format!("\"{pair}\" is not KEY=VALUE")))?;
        if keys.iter().any(|(k, _)| k == key) {
            return Err(usage(format!("{key} is given twice")));
        }
        keys.push((key.to_string(), value.to_string()));
    }
    Ok(keys)
}
