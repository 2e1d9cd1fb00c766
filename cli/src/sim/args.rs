//! The options of `weir sim`.

use std::path::PathBuf;

/// What to simulate.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  weir sim exp.toml
  weir sim exp.toml --json --series 100ms
  weir sim exp.toml --set device.arbitration=rr,wrr,drr --plot exp.html
  weir sim exp.toml --trace usr_0.csv,fit=wrap --trace db.iolog,tenant=gold,timing=fast,qd=32
  weir sim exp.toml --set device.slots=16,64 --set 'jobs[0].qd=1,4,16' --csv
  weir sim ssd.toml --set device.gc=channel,plane --set precondition=steady --set ramp=1s
  weir sim --from mqsim ssdconfig.xml workload.xml
  weir sim --from femu run-blackbox.sh --print-config > exp.toml
  weir sim --from nvmevirt ssd_config.h SAMSUNG_970PRO --set job.rw=randread --set job.qd=16

  where exp.toml is
    [[device]]
    capacity = \"8GiB\"
    latency = \"80us\"
    [[job]]
    rw = \"randread\"
    qd = 16
  and in ssd.toml kind = \"flash\" stands for the latency.

A trace is a fio iolog (version 2 or 3), blkparse's text, an MSR Cambridge CSV or a CSV with a header; its keys are those
of [[job]]: tenant, format, stream, timing, speed, fit, span, qd, start, region. docs/guides/simulate.md has every key.

Keys of --set: seed, time, device.slots, tenant.gold.class, jobs[0].qd (the first job), job.gold.qd (the one of that name),
job.qd (all of them). Several values, or several --set, make a run for each combination.

Of several [[device]] each is simulated by itself, with the jobs that name it (device = \"NAME\").")]
pub struct SimArgs {
    /// The simulation: TOML with [[device]], [[tenant]] and [[job]]
    #[arg(value_name = "FILE", required_unless_present = "from")]
    pub file: Option<PathBuf>,
    /// Read another emulator's files instead: `mqsim` ssdconfig.xml and a workload's XML, `femu` a run script (or the options themselves:
    /// nchs=8,...), `nvmevirt` ssd_config.h and the name of its BASE_SSD. What is not taken over is listed with its reason
    #[arg(long, num_args = 2..=3, value_names = ["EMULATOR", "FILE", "WORKLOAD"], conflicts_with = "file")]
    pub from: Vec<String>,
    /// Print the configuration that those files make, and simulate nothing
    #[arg(long, requires = "from")]
    pub print_config: bool,
    /// Replay a trace beside the jobs of the file (repeatable)
    #[arg(long, value_name = "FILE[,KEY=VALUE]...")]
    pub trace: Vec<String>,
    /// Change a key of the file; several values make several runs (repeatable)
    #[arg(long, value_name = "KEY=VALUE[,VALUE]...")]
    pub set: Vec<String>,
    /// Print one line of comma-separated values a run
    #[arg(long)]
    pub csv: bool,
    /// Draw it: throughput and latency over time and by percentile, or of several runs what was varied; FILE.svg, or FILE.html with a table
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Another seed than the file's
    #[arg(long)]
    pub seed: Option<u64>,
    /// Also report every interval of this length
    #[arg(long, value_name = "INTERVAL")]
    pub series: Option<String>,
}
