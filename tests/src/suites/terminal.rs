//! What commands that take long show on a terminal meanwhile, and what is in the tables and lines that they print.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::test;
use crate::harness::{Context, Env, Outcome, Test, ensure};
use crate::node::{Setup, text, with_node};
use crate::process::run;

/// The tests of this suite.
pub fn tests() -> Vec<Test> {
    const S: &str = "terminal";
    vec![
        test(S, "a_plan_says_that_the_drive_is_measured", plan),
        test(S, "a_reproduction_says_how_far_it_is", reproduction),
        test(S, "a_bench_says_that_the_drive_is_opened", bench),
        test(S, "tables_fit_the_terminal", tables),
        test(S, "csv_has_the_series", csv_series),
        test(S, "a_sweep_has_write_amplification", sweep),
    ]
}

/// Runs the binary with a terminal as its output; everything that the terminal was sent.
fn on_terminal(env: &Env, args: &[&str]) -> Result<String, String> {
    let words: Vec<String> = std::iter::once(text(&env.weir)).chain(args.iter().map(|a| (*a).to_owned())).collect();
    let line = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let args = ["--quiet", "--return", "--command", &line, "/dev/null"];
    run(&env.folder()?, Path::new("script"), args, Duration::from_secs(120))?.success(&line)
}

/// A drive's row on 80 columns, on 200, and with all columns on 80.
fn tables(env: &Env) -> Outcome {
    with_node(env, &Setup::default(), |node| {
        let on = |columns: u32, more: &str| {
            let api = text(&node.api());
            let line = format!("stty cols {columns}; '{}' --api '{api}' device ls {more}", text(&env.weir));
            let args = ["--quiet", "--return", "--command", &line, "/dev/null"];
            run(&env.folder()?, Path::new("script"), args, Duration::from_secs(60))?.success(&line)
        };
        let (narrow, wide, all) = (on(80, "")?, on(200, "")?, on(80, "-o wide")?);
        ensure(narrow.lines().all(|line| line.trim_end().chars().count() <= 80), || narrow.clone())?;
        ensure(narrow.contains("ARBITRATION") && !narrow.contains("NQN"), || narrow.clone())?;
        ensure(wide.contains("NQN") && wide == all, || format!("{wide}{all}"))
    })
}

fn file(env: &Env, contents: &str) -> Result<PathBuf, String> {
    let path = env.folder()?.join("file.toml");
    std::fs::write(&path, contents).context(|| path.display().to_string())?;
    Ok(path)
}

fn plan(env: &Env) -> Outcome {
    let file = file(
        env,
        "[[device]]\nprofile = \"p3700\"\ncapacity = \"4GiB\"\n[[tenant]]\nname = \"gold\"\nclass = \"high\"\n\
         demand = { rw = \"randread\", bs = \"4KiB\", qd = 16 }\nsla = { iops = 10000 }\n",
    )?;
    let shown = on_terminal(env, &["plan", &text(&file)])?;
    ensure(shown.contains("measuring the drive: load test 1 of "), || format!("nothing is said of it: {shown:?}"))
}

fn reproduction(env: &Env) -> Outcome {
    let out = text(&env.folder()?);
    let shown = on_terminal(env, &["reproduce", "femu-move-page", "--out", &out])?;
    let parts = ["femu-move-page", " % "];
    ensure(parts.iter().all(|part| shown.contains(part)) && shown.contains("\u{1b}["), || {
        format!("no line moves: {shown:?}")
    })?;
    let line =
        shown.split('\r').find(|line| line.contains(" % ") && !line.contains(" 0 % ") && !line.contains(" 100 % "));
    ensure(line.is_some(), || format!("the line does not move: {shown:?}"))
}

fn bench(env: &Env) -> Outcome {
    let target = "local:p3700?capacity=64GiB&precondition=steady";
    let shown = on_terminal(env, &["bench", target, "--time", "600ms"])?;
    let at = |part: &str| shown.find(part).ok_or_else(|| format!("{part:?} is not shown: {shown:?}"));
    ensure(at("opening, for ")? < at(" MB/s")?, || format!("the time ran while the drive was opened: {shown:?}"))
}

/// A flash drive that is written for a moment.
const FLASH: &str = "time = \"200ms\"\n[[device]]\nkind = \"flash\"\ncapacity = \"1GiB\"\n[[job]]\nname = \"a\"\nrw = \"randwrite\"\nqd = 4\n";

fn csv_series(env: &Env) -> Outcome {
    let file = file(env, FLASH)?;
    let args = ["sim", &text(&file), "--csv", "--series", "50ms"];
    let printed = run(&env.folder()?, &env.weir, args, Duration::from_secs(60))?.success("weir sim")?;
    let lines: Vec<Vec<&str>> = printed.lines().map(|line| line.split(',').collect()).collect();
    let column = lines[0].iter().position(|name| *name == "t_s").ok_or_else(|| format!("no t_s: {printed}"))?;
    let times: Vec<&str> = lines[1..].iter().map(|line| line[column]).collect();
    ensure(times == ["", "0.05", "0.1", "0.15", "0.2"], || format!("{times:?}: {printed}"))?;
    let iops = lines[0].iter().position(|name| *name == "iops").ok_or("no iops")?;
    let filled = lines[1..].iter().all(|line| line[iops].parse::<f64>().is_ok_and(|n| n > 0.0));
    ensure(filled, || printed.clone())
}

fn sweep(env: &Env) -> Outcome {
    let file = file(env, FLASH)?;
    let args = ["sim", &text(&file), "--set", "jobs[0].qd=1,4"];
    let table = run(&env.folder()?, &env.weir, args, Duration::from_secs(60))?.success("weir sim")?;
    let heading = table.lines().next().unwrap_or_default();
    ensure(heading.ends_with("WA"), || format!("no write amplification: {table}"))?;
    ensure(table.matches("1.00*").count() == 2 && table.contains("WA*: too few collections in 2 runs"), || {
        table.clone()
    })?;
    let single = run(&env.folder()?, &env.weir, ["sim", &text(&file)], Duration::from_secs(60))?.success("weir sim")?;
    ensure(single.contains("flash: too few collections (0 victims on "), || single)
}
