//! `weir plan` as somebody runs it who sells slices of a drive: the examples that ship, one more tenant, and a node that keeps to it.

use std::time::Duration;

use serde_json::Value;

use super::bindings::root;
use super::test;
use crate::bench::number;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::process::{self, Finished};

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "plan";
    vec![
        test(S, "the_examples_fit_and_do_not", the_examples_fit_and_do_not),
        test(S, "what_is_wrong_is_named", what_is_wrong_is_named),
    ]
}

/// An example beside the documentation.
fn example(env: &Env, name: &str) -> String {
    root(env).join("docs/examples").join(name).with_extension("plan.toml").display().to_string()
}

fn plan(env: &Env, args: &[&str]) -> Result<Finished, String> {
    let all: Vec<&str> = ["plan"].iter().chain(args).copied().collect();
    process::run(&env.folder()?, &env.weir, all, Duration::from_secs(120))
}

fn answer(env: &Env, args: &[&str], status: i32) -> Result<Value, String> {
    let ended = plan(env, &[args, &["--json"]].concat())?;
    ensure(ended.status.code() == Some(status), || ended.describe())?;
    serde_json::from_str(&ended.stdout).context(|| ended.describe())
}

fn the_examples_fit_and_do_not(env: &Env) -> Outcome {
    let [three, four, newcomer] = ["three-tenants", "one-too-many", "newcomer"].map(|name| example(env, name));
    let fits = answer(env, &[&three], 0)?;
    ensure(fits["feasible"] == true && fits["reason"].is_null(), || fits.to_string())?;
    let tenants = fits["tenants"].as_array().ok_or("no tenants")?;
    ensure(tenants.len() == 3, || fits.to_string())?;
    for tenant in tenants {
        ensure(tenant["sla_met"] == true, || tenant.to_string())?;
        // Each figure comes with its error against the simulation.
        let (predicted, simulated) = (number(&tenant["predicted"], "iops")?, number(&tenant["simulated"], "iops")?);
        ensure((predicted / simulated - 1.0).abs() < 0.02, || tenant.to_string())?;
        let error = number(&tenant["error_pct"], "bandwidth")?;
        ensure((error - (predicted / simulated - 1.0) * 100.0).abs() < 0.2, || tenant.to_string())?;
    }
    // As people read it, the same.
    let table = plan(env, &[&three])?;
    let text = table.success("weir plan")?;
    ensure(["gold", "silver", "bronze"].iter().all(|name| text.contains(name)), || text.clone())?;
    let one_more = answer(env, &[&three, "--add", &newcomer], 0)?;
    ensure(one_more["feasible"] == true && one_more["tenants"].as_array().is_some_and(|t| t.len() == 4), || {
        one_more.to_string()
    })?;
    let misses = answer(env, &[&four], 1)?;
    ensure(misses["feasible"] == false, || misses.to_string())?;
    let reason = misses["reason"].as_str().unwrap_or_default();
    ensure(reason.contains("IOPS") || reason.contains("MB/s") || reason.contains("p99"), || misses.to_string())?;
    let of: Vec<&Value> =
        misses["tenants"].as_array().into_iter().flatten().filter(|t| t["sla_met"] == false).collect();
    ensure(!of.is_empty(), || misses.to_string())?;
    // Twice the same: seeds are the file's.
    let again = answer(env, &[&three], 0)?;
    ensure(again == fits, || format!("{again} after {fits}"))
}

fn what_is_wrong_is_named(env: &Env) -> Outcome {
    let dir = env.folder()?;
    let file = dir.join("wrong.plan.toml");
    let path = file.display().to_string();
    for (text, said) in [
        ("[[device]]\nlatency = \"80\"\n", "wrong.plan.toml:2: "),
        (
            "[[device]]\nkind = \"null\"\nlatency = \"80us\"\n[[tenant]]\nname = \"a\"\nsla = { p99 = \"2ms\" }\n",
            "demand",
        ),
        ("calibration = \"nowhere.toml\"\n", "nowhere.toml"),
        ("[[tenant]]\nname = \"a\"\ndemand = { qd = 1 }\n", "device: missing"),
    ] {
        std::fs::write(&file, text).context(|| path.clone())?;
        let ended = plan(env, &[&path])?;
        ensure(ended.status.code() == Some(1) && ended.stderr.contains(said), || {
            format!("{text}: {}", ended.describe())
        })?;
        ensure(ended.stdout.is_empty(), || ended.describe())?;
    }
    let missing = plan(env, &["missing.plan.toml"])?;
    ensure(missing.status.code() == Some(1) && missing.stderr.contains("missing.plan.toml"), || missing.describe())?;
    let usage = plan(env, &[])?;
    ensure(usage.status.code() == Some(2), || usage.describe())
}
