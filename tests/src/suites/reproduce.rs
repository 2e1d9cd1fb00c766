//! `weir reproduce` by the real clock: what the papers' figures say of this machine. The ones in virtual time are tests of `sim`.
//!
//! Rows are relations, and what a machine that is busy with something else gets wrong is asked again.

use std::time::Duration;

use serde_json::Value;

use super::{long, test};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::process;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "reproduce";
    vec![
        test(S, "software_overhead", |env| made(env, &["qos-fig1"], 7)),
        test(S, "user_and_system_time", |env| made(env, &["qos-fig2"], 0)),
        test(S, "speed_of_the_emulation", |env| made(env, &["qos-fig6"], 0)),
        test(S, "five_scenarios_live", |env| made(env, &["qos-fig8", "--live"], 0)),
        long(S, "a_device_without_arbitration", |env| made(env, &["qos-fig3"], 0)),
        long(S, "the_model_live", |env| made(env, &["qos-fig7", "--live"], 22)),
    ]
}

/// Before a disturbed machine is believed.
const ATTEMPTS: u32 = 4;

/// Runs it until every row is as it should be; at least so many rows have a number of the paper.
fn made(env: &Env, args: &[&str], printed: usize) -> Outcome {
    let out = env.folder()?;
    let folder = out.display().to_string();
    let name = args[0];
    let all: Vec<&str> = [&["reproduce"], args, &["--json", "--out", &folder]].concat();
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let ended = process::run(&out, &env.weir, &all, Duration::from_secs(120))?;
        ensure(matches!(ended.status.code(), Some(0 | 1)), || ended.describe())?;
        let report: Value = serde_json::from_str(&ended.stdout).map_err(|e| format!("{e}: {}", ended.describe()))?;
        let rows = report["rows"].as_array().ok_or("no rows")?;
        let count = rows.iter().filter(|row| row["paper"].is_number()).count();
        ensure(count >= printed, || format!("{count} rows have a number of the paper: {report}"))?;
        let page = std::fs::read_to_string(out.join(format!("{name}.html"))).map_err(|e| e.to_string())?;
        ensure(page.contains("<svg") && !page.contains("NaN"), || format!("{name}.html has no chart"))?;
        let bad: Vec<String> = rows
            .iter()
            .filter(|row| row["ok"] != true)
            .map(|row| format!("{}: {}", row["label"], row["ours"]))
            .collect();
        ensure(bad.is_empty() == (report["ok"] == true) && bad.is_empty() == ended.status.success(), || {
            format!("the verdict is not that of the rows: {}", ended.describe())
        })?;
        if bad.is_empty() {
            println!("    {} rows hold", rows.len());
            return Ok(());
        }
        last = bad.join("; ");
        println!("    asked again: {last}");
    }
    Err(last)
}
