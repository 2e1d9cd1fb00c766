//! `weir reproduce` by the real clock: what the papers' figures say of this machine. The ones in virtual time are tests of `sim`.
//!
//! Every row is judged. What a machine that is busy with something else gets wrong is measured again, and the majority counts.

use std::time::Duration;

use serde_json::Value;

use super::{long, test};
use crate::harness::{Env, Outcome, Test, ensure};
use crate::process;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "reproduce";
    vec![
        test(S, "software_overhead", |env| made(env, &["qos-fig1"], 7, &OVERHEAD)),
        test(S, "user_and_system_time", |env| made(env, &["qos-fig2"], 0, &PROCESSOR_TIME)),
        test(S, "speed_of_the_emulation", |env| made(env, &["qos-fig6"], 0, &SPEED)),
        test(S, "five_scenarios_live", |env| made(env, &["qos-fig8", "--live"], 0, &[])),
        long(S, "live_drives_against_virtual_time", |env| made(env, &["live-against-sim"], 0, &LIVE)),
        long(S, "ten_cases_on_volumes", |env| made(env, &["spool-table2"], 14, &SHORT_RUNS)),
        test(S, "a_drive_that_goes_and_comes_back", |env| made(env, &["spool-fig12"], 0, &[])),
        long(S, "restarted_stopped_and_killed", |env| made(env, &["spool-fig13"], 0, &[])),
        test(S, "the_steps_of_a_start", the_steps_of_a_start),
        test(S, "what_a_restart_takes", |env| made(env, &["spool-fig14"], 4, &[])),
        test(S, "restarts_of_many_nodes", |env| made(env, &["spool-fig19"], 1, &[])),
        test(S, "a_store_by_size_and_drive", |env| made(env, &["crail-latency"], 7, &LOOPBACK)),
        test(S, "a_store_and_its_drives_alone", |env| made(env, &["crail-throughput"], 0, &STORE_OVER_RAW)),
        test(S, "streams_of_a_store", |env| made(env, &["crail-streams"], 4, &STREAMS)),
        test(S, "a_report_has_a_folder_of_its_own", a_folder_of_its_own),
        long(S, "a_volume_and_the_raw_drive", |env| made(env, &["spool-fig15"], 0, &RAW_DRIVE)),
        long(S, "three_volumes_of_a_drive", |env| made(env, &["spool-fig16"], 4, &[])),
        long(S, "what_the_journal_costs", |env| made(env, &["spool-fig17"], 16, &IN_MEMORY)),
        long(S, "a_device_without_arbitration", |env| made(env, &["qos-fig3"], 0, &["sizes at which"])),
        long(S, "live_drives_against_virtual_time_at_length", |env| {
            made(env, &["live-against-sim", "--full"], 0, &LIVE)
        }),
        long(S, "the_model_live", |env| made(env, &["qos-fig7", "--live"], 22, &[])),
    ]
}

/// What a drive does by a real clock is begun when its thread looks, after that of virtual time: on a machine that is quiet enough to
/// judge, most commands are due at another time.
const LIVE: [&str; 2] = ["commands due at another time", "live less virtual"];

/// Claims of the papers, as they word them, that docs/guides/reproduce.md says this program misses, or that some machines miss and others do not: by
/// a part of their labels.
const OVERHEAD: [&str; 2] = ["io_uring over driver", "complete, over that of 4 KiB"];
const PROCESSOR_TIME: [&str; 1] = ["processor time of a request over"];
const SPEED: [&str; 4] = ["WRR over old design", "DRR over old design", "DRR over WRR", "sizes at which"];
/// Of runs of 60 ms: the figures 16 and 17 judge the same at length.
const SHORT_RUNS: [&str; 2] = ["together over one", "least of three over most"];
const RAW_DRIVE: [&str; 1] = ["volume over raw drive"];
/// What RDMA does in less time than the loopback, as docs/guides/reproduce.md says.
const LOOPBACK: [&str; 4] =
    ["512 B, store", "faster than 960 PRO", "less the drive by itself", "map not cached less cached"];
/// A file of a store is slower than its drive alone, as docs/guides/reproduce.md says.
const STORE_OVER_RAW: [&str; 1] = ["store over raw"];
/// Short reads come through the buffer of the headers.
const STREAMS: [&str; 2] = ["copies a byte", "90 % of its most"];
const IN_MEMORY: [&str; 1] = ["drive in memory, journal costs"];

/// What a run left, and its report; at least so many rows have a number of the paper.
fn report(env: &Env, args: &[&str], printed: usize) -> Result<Value, String> {
    let out = env.folder()?;
    let folder = out.display().to_string();
    let name = args[0];
    let all: Vec<&str> = [&["reproduce"], args, &["--json", "--out", &folder]].concat();
    let ended = process::run(&out, &env.weir, &all, Duration::from_secs(900))?;
    ensure(matches!(ended.status.code(), Some(0 | 1)), || ended.describe())?;
    let report: Value = serde_json::from_str(&ended.stdout).map_err(|e| format!("{e}: {}", ended.describe()))?;
    let rows = report["rows"].as_array().ok_or("no rows")?;
    let count = rows.iter().filter(|row| row["paper"].is_number()).count();
    ensure(count >= printed, || format!("{count} rows have a number of the paper: {report}"))?;
    let page = std::fs::read_to_string(out.join(format!("{name}.html"))).map_err(|e| e.to_string())?;
    ensure(page.contains("<svg") && !page.contains("NaN"), || format!("{name}.html has no chart"))?;
    for row in rows {
        let known = ["held", "missed", "told", DISTURBED].map(Value::from).contains(&row["verdict"]);
        ensure(known && row["ours"].is_number(), || format!("no verdict, or no number: {row}"))?;
        ensure((row["verdict"] == "missed") != (row["ok"] == true), || format!("ok is not the verdict's: {row}"))?;
    }
    let bad = rows.iter().any(|row| row["verdict"] == "missed");
    ensure(bad != (report["ok"] == true) && bad != ended.status.success(), || {
        format!("the verdict is not that of the rows: {}", ended.describe())
    })?;
    Ok(report)
}

const DISTURBED: &str = "not judged: disturbed";

/// Runs it, and judges every row: none may be missed, except those of which a part of the label is in `missed`; at least so many have a
/// number of the paper. Where the machine was too busy to judge, the test says nothing.
fn made(env: &Env, args: &[&str], printed: usize, missed: &[&str]) -> Outcome {
    let mut disturbed = 0;
    env.majority(|| {
        let report = report(env, args, printed)?;
        let rows = report["rows"].as_array().ok_or("no rows")?;
        let with = |verdict: &str| rows.iter().filter(|row| row["verdict"] == verdict).collect::<Vec<_>>();
        let label = |row: &Value| row["label"].as_str().unwrap_or_default().to_owned();
        let is_known = |row: &&Value| missed.iter().any(|part| label(row).contains(part));
        let (known, bad): (Vec<&Value>, Vec<&Value>) = with("missed").into_iter().partition(is_known);
        disturbed = with(DISTURBED).len();
        println!(
            "    {} rows held, {} told, {disturbed} not judged, {} missed as is known, {} missed",
            with("held").len(),
            with("told").len(),
            known.len(),
            bad.len()
        );
        let text = |row: &&Value| format!("{}: {}", label(row), row["ours"]);
        ensure(bad.is_empty(), || bad.iter().map(text).collect::<Vec<_>>().join("; "))?;
        Ok(with("held").len() + known.len())
    })
    .map(|judged| {
        if judged == 0 && disturbed > 0 {
            env.skip(format!("{}: the machine was disturbed, and no row could be judged", args[0]));
        }
    })
}

/// Each step that the node tells is a row with its time, and together they are the whole start.
fn the_steps_of_a_start(env: &Env) -> Outcome {
    made(env, &["spool-fig5"], 2, &[])?;
    let report = report(env, &["spool-fig5"], 2)?;
    let rows = report["rows"].as_array().ok_or("no rows")?;
    let ms = |label: &str| {
        let row = rows.iter().find(|row| row["label"] == label);
        row.and_then(|row| row["ours"].as_f64()).ok_or_else(|| format!("no step {label}: {report}"))
    };
    for step in ["exec", "configuration", "shards", "drives", "doors", "pools and hosts", "API", "first answer"] {
        let took = ms(&format!("PM963, {step}"))?;
        ensure(took > 0.0, || format!("step {step} took {took} ms"))?;
    }
    let steps = rows.iter().filter(|row| row["label"].as_str().is_some_and(|label| label.starts_with("PM963, ")));
    let whole = ms("PM963, exec to first answer")?;
    let sum: f64 = steps.filter_map(|row| row["ours"].as_f64()).sum::<f64>() - whole;
    ensure((sum / whole - 1.0).abs() < 1e-6, || format!("the steps are {sum:.2} ms of {whole:.2}"))
}

/// Nothing is written where the user stands but one folder.
fn a_folder_of_its_own(env: &Env) -> Outcome {
    let here = env.folder()?;
    process::run(&here, &env.weir, ["reproduce", "femu-fig3"], Duration::from_secs(60))?.success("weir reproduce")?;
    let list = |dir: &std::path::Path| -> Result<Vec<String>, String> {
        let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let mut names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        // What the command says is kept there by this test.
        names.retain(|name| name != "weir.out" && name != "weir.err");
        names.sort();
        Ok(names)
    };
    let (top, inside) = (list(&here)?, list(&here.join("weir-reproduce"))?);
    ensure(top == ["weir-reproduce"] && inside == ["femu-fig3.html", "femu-fig3.json"], || {
        format!("{top:?}, {inside:?}")
    })
}
