//! How well drives keep their modelled times, in words.

use crate::output::Table;
use crate::report::flash_text;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_api::{Bucket, DeviceStats, DeviceStatus, Quantiles, Timing, TimingState};

/// The longest bar of the histogram.
const BAR: u64 = 40;

/// The cell of a table.
pub fn cell(timing: Option<&Timing>) -> String {
    match timing {
        None => "-".to_string(),
        Some(t) => match t.state {
            TimingState::OnTime => "on time".to_string(),
            TimingState::Late => format!("{} late", percent(t.net_late_pct)),
            TimingState::Overloaded => format!("{} late (overloaded)", percent(t.net_late_pct)),
            TimingState::Starved => format!("{} late (starved)", percent(t.late_pct)),
        },
    }
}

/// A line below the table for a drive that does not keep its times.
pub fn complaint(device: &DeviceStatus) -> Option<String> {
    let timing = device.timing.as_ref()?;
    let (state, core) = (in_words(timing, SystemTime::now()), device.core);
    let name = &device.name;
    match timing.state {
        TimingState::OnTime => None,
        TimingState::Late => Some(format!(
            "LATE {name}: {state}, though core {core} is not full: commands are due together, or the reactor sleeps\n"
        )),
        TimingState::Overloaded => Some(format!(
            "OVERLOADED {name}: {state}: core {core} cannot keep the modelled times; see weir device stats {name}\n"
        )),
        TimingState::Starved => {
            Some(format!("STARVED {name}: {state}: other threads take core {core}; give the node a core of its own\n"))
        }
    }
}

/// "overloaded since 05:13:22 UTC (34 s), 61 % late".
fn in_words(timing: &Timing, now: SystemTime) -> String {
    let (word, late) = match timing.state {
        TimingState::OnTime => ("on time", None),
        TimingState::Late => ("late", Some(timing.net_late_pct)),
        TimingState::Overloaded => ("overloaded", Some(timing.net_late_pct)),
        TimingState::Starved => ("starved", Some(timing.late_pct)),
    };
    let now = now.duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
    let begun = (now - timing.state_s).max(0.0) as u64 % 86_400;
    let clock = format!("{:02}:{:02}:{:02} UTC", begun / 3600, begun / 60 % 60, begun % 60);
    let since = format!("{word} since {clock} ({:.0} s)", timing.state_s);
    late.map_or(since.clone(), |late| format!("{since}, {} late", percent(late)))
}

/// The whole of `weir device stats`.
pub fn describe(stats: &DeviceStats) -> String {
    describe_at(stats, SystemTime::now())
}

fn describe_at(stats: &DeviceStats, now: SystemTime) -> String {
    let flash = stats.flash.as_ref().map(|flash| format!("\n{}", flash_text(flash)));
    times(stats, now) + &flash.unwrap_or_default()
}

fn times(stats: &DeviceStats, now: SystemTime) -> String {
    let poll = if stats.poll { ", polling" } else { "" };
    let wait = stats.core_wait_s.map_or("core wait unknown".to_string(), |s| format!("waited {s:.3} s for it"));
    let core = format!("core {}{poll}, {} busy, {wait}", stats.core, percent(stats.core_busy_pct));
    let (Some(timing), Some(error)) = (&stats.timing, &stats.completion_error) else {
        let why = "nothing measured yet: no command that has a modelled time (latency) has completed";
        return format!("{}  {why}\n{core}\n", stats.device);
    };
    let mut out = format!("{}  {}\n{core}\n", stats.device, in_words(timing, now));
    out += &format!("{} completions in {:.1} s", timing.completions, error.measured_s);
    if timing.overloads > 0 {
        out += &format!(", overloaded {} times for {:.1} s in all", timing.overloads, timing.overloaded_s);
    }
    out += "\n\n";
    let mut table = Table::new(&["LATE BY", ">MEAN", ">P50", ">P99", ">P99.9", ">MAX", ">OVER 5us", ">OVER 20us"]);
    let share = |n: u64| percent(100.0 * n as f64 / timing.completions.max(1) as f64);
    let mut row = |name: &str, q: &Quantiles, over: [u64; 2]| {
        let mean = time(q.mean as u64);
        let [p50, p99, p999, max] = [q.p50, q.p99, q.p999, q.max].map(time);
        table.row([name.to_string(), mean, p50, p99, p999, max, share(over[0]), share(over[1])]);
    };
    row("raw", &error.raw_ns, [timing.over_5us, timing.over_20us]);
    row("net", &error.net_ns, [timing.net_over_5us, timing.net_over_20us]);
    out + &table.render() + "\n" + &histogram(&error.buckets)
}

fn histogram(buckets: &[Bucket]) -> String {
    let mut table = Table::new(&[">FROM", ">TO", ">RAW", ">NET", "NET"]);
    let most = buckets.iter().map(|b| b.net).max().unwrap_or(0).max(1);
    for b in buckets {
        let bar = "#".repeat((b.net * BAR).div_ceil(most) as usize);
        let to = b.to_ns.map_or("-".to_string(), time);
        table.row([time(b.from_ns), to, b.raw.to_string(), b.net.to_string(), bar]);
    }
    table.render()
}

/// To three digits.
fn time(ns: u64) -> String {
    let mut value = ns as f64;
    for unit in ["ns", "us", "ms"] {
        if value < 999.5 {
            let digits = if unit == "ns" || value >= 99.95 { 0 } else { 1 };
            return format!("{value:.digits$}{unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.1}s")
}

fn percent(value: f64) -> String {
    let digits = if value == 0.0 || value >= 9.95 { 0 } else { 1 };
    if value > 0.0 && value < 0.05 { "<0.1%".to_string() } else { format!("{value:.digits$}%") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weir_api::CompletionError;

    fn stats() -> DeviceStats {
        let raw_ns = Quantiles { mean: 900.4, p50: 310, p99: 12_300, p999: 2_000_000, max: 3_200_000_000 };
        let net_ns = Quantiles { mean: 400.0, p50: 300, p99: 4_100, p999: 9_990, max: 12_000 };
        let bucket = |from_ns, to_ns, raw, net| Bucket { from_ns, to_ns, raw, net };
        DeviceStats {
            device: "ssd0".into(),
            core: 1,
            poll: true,
            core_busy_pct: 97.4,
            core_wait_s: Some(0.5),
            timing: Some(Timing {
                state: TimingState::Overloaded,
                state_s: 34.0,
                late_pct: 62.0,
                net_late_pct: 61.0,
                completions: 1000,
                over_5us: 20,
                over_20us: 5,
                net_over_5us: 8,
                net_over_20us: 0,
                overloads: 2,
                overloaded_s: 40.0,
            }),
            completion_error: Some(CompletionError {
                measured_s: 60.0,
                raw_ns,
                net_ns,
                buckets: vec![
                    bucket(0, Some(250), 900, 920),
                    bucket(5_000, Some(10_000), 95, 80),
                    bucket(10_000_000, None, 5, 0),
                ],
            }),
            flash: None,
        }
    }

    #[test]
    fn one_screen() {
        let now = UNIX_EPOCH + Duration::from_secs(86_400 * 3 + 5 * 3600 + 14 * 60 + 2);
        let wanted = format!(
            "\
ssd0  overloaded since 05:13:28 UTC (34 s), 61% late
core 1, polling, 97% busy, waited 0.500 s for it
1000 completions in 60.0 s, overloaded 2 times for 40.0 s in all

LATE BY   MEAN    P50     P99   P99.9     MAX  OVER 5us  OVER 20us
raw      900ns  310ns  12.3us   2.0ms    3.2s      2.0%       0.5%
net      400ns  300ns   4.1us  10.0us  12.0us      0.8%         0%

  FROM      TO  RAW  NET  NET
   0ns   250ns  900  920  {}
 5.0us  10.0us   95   80  ####
10.0ms       -    5    0
",
            "#".repeat(40)
        );
        assert_eq!(describe_at(&stats(), now), wanted);
        let mut flash = stats();
        flash.flash = Some(weir_api::FlashStatus { write_amplification: 1.25, erases: 3, ..Default::default() });
        let text = describe_at(&flash, now);
        assert!(text.contains("\n\nflash: write amplification 1.25, over-provisioning 0.0 %, 3 erases"), "{text}");
        let mut none = stats();
        (none.timing, none.completion_error, none.core_wait_s, none.poll) = (None, None, None, false);
        assert_eq!(
            describe_at(&none, now),
            "ssd0  nothing measured yet: no command that has a modelled time (latency) has completed\n\
             core 1, 97% busy, core wait unknown\n"
        );
    }

    #[test]
    fn cells() {
        let mut timing = stats().timing.unwrap();
        assert_eq!((cell(None), cell(Some(&timing))), ("-".into(), "61% late (overloaded)".into()));
        timing.state = TimingState::Late;
        assert_eq!(cell(Some(&timing)), "61% late");
        timing.state = TimingState::Starved;
        assert_eq!(cell(Some(&timing)), "62% late (starved)");
        timing.state = TimingState::OnTime;
        assert_eq!(cell(Some(&timing)), "on time");
        assert_eq!([0.0, 0.01, 0.5, 9.94, 12.3].map(percent), ["0%", "<0.1%", "0.5%", "9.9%", "12%"]);
    }
}
