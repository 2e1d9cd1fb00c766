//! What a run prints: a table for people, JSON for programs.

use crate::output::Table;
use serde::Serialize;
use weir_api::FlashStatus;
use weir_sim::PowerCutOutcome;
use weir_workload::{JobResult, Latency, SeriesPoint, Summary};

/// A drive's own figures, where they are known.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeviceReport {
    /// Slots.
    pub slots: u32,
    /// Commands that read.
    pub reads: u64,
    /// Commands that wrote.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// What its flash did, where it has one.
    #[serde(flatten)]
    pub flash: Option<FlashStatus>,
    /// It began in the state in which collection has come to rest (`precondition = "steady"`).
    #[serde(skip)]
    pub is_steady: bool,
}

impl DeviceReport {
    /// That its write amplification is not one that lasts.
    pub fn few_collections(&self) -> Option<String> {
        few_collections(self.flash.as_ref()?).filter(|_| !self.is_steady)
    }
}

/// Two lines for people, and one for each placement handle.
pub fn flash_text(flash: &FlashStatus) -> String {
    let busy = |parts: &[f64]| {
        let (mean, max) =
            (parts.iter().sum::<f64>() / parts.len().max(1) as f64, parts.iter().copied().fold(0.0, f64::max));
        format!("{:.1} % busy (most {:.1} %)", mean * 100.0, max * 100.0)
    };
    let mut text = format!(
        "flash: write amplification {:.2}, over-provisioning {:.1} %, {} erases, {} victims, {} units moved\n\
         flash: dies {}, channels {}\n",
        flash.write_amplification,
        flash.over_provisioning * 100.0,
        flash.erases,
        flash.gc.victims,
        flash.gc.moved_units,
        busy(&flash.utilisation.dies),
        busy(&flash.utilisation.channels)
    );
    for (i, h) in flash.handles.iter().enumerate() {
        let (written, moved, units) = (h.written_units, h.moved_units, h.reclaim_units);
        text += &format!("flash: handle {i}: {written} units written, {moved} moved, {units} reclaim units\n");
    }
    text
}

/// Fewer victims than this for each die say little of a drive that collects for good.
const VICTIMS_A_DIE: usize = 4;

/// That a drive which was written has not collected enough for its write amplification to be one that lasts.
fn few_collections(flash: &FlashStatus) -> Option<String> {
    let (victims, dies) = (flash.gc.victims, flash.utilisation.dies.len());
    if flash.page_programs == 0 || victims >= (dies * VICTIMS_A_DIE) as u64 {
        return None;
    }
    Some(format!(
        "too few collections ({victims} victims on {dies} dies): the write amplification is not that of a steady state; run for longer, \
         or from precondition = \"steady\""
    ))
}

/// A thread that measures and has no core for more of its time than this measures what else runs on the machine, in percent.
pub const DISTURBED_PCT: f64 = 5.0;

/// That it had none.
fn waited_text(pct: f64) -> Option<String> {
    let text =
        || format!("waited {pct:.0} % of the time for a core: the figures show what else runs on this machine\n");
    (pct > DISTURBED_PCT).then(text)
}

/// What a simulation was.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// Everything random came from it.
    pub seed: u64,
    /// Virtual time.
    pub time_s: f64,
    /// Requests answered, uncounted ones included.
    pub requests: u64,
    /// Stands for every answer, its time and its place in the order.
    pub digest: String,
    /// What each power cut did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub power_cuts: Vec<PowerCutReport>,
}

/// A power cut of a simulation.
#[derive(Clone, Debug, Serialize)]
pub struct PowerCutReport {
    /// When, from the end of the ramp on.
    pub at_s: f64,
    /// Commands on their way that were never answered.
    pub unanswered: u64,
    /// Units of 4 KiB whose newest writes are gone, and those writes.
    pub lost_units: u64,
    pub lost_writes: u64,
    /// Pages read to find the map again.
    pub pages_read: u64,
    /// How long the drive was down.
    pub rebuild_s: f64,
}

impl From<PowerCutOutcome> for PowerCutReport {
    fn from(cut: PowerCutOutcome) -> Self {
        let PowerCutOutcome { at, unanswered, lost_units, lost_writes, pages_read, rebuild } = cut;
        let (at_s, rebuild_s) = (at.as_secs_f64(), rebuild.as_secs_f64());
        PowerCutReport { at_s, unanswered, lost_units, lost_writes, pages_read, rebuild_s }
    }
}

impl PowerCutReport {
    fn text(&self) -> String {
        format!(
            "power cut at {} s: {} commands unanswered, {} writes of {} units lost, {} pages read in {:.1} ms\n",
            self.at_s,
            self.unanswered,
            self.lost_writes,
            self.lost_units,
            self.pages_read,
            self.rebuild_s * 1e3
        )
    }
}

/// A run's result.
#[derive(Clone, Debug)]
pub struct Report {
    /// In the order of the command line or the file.
    pub jobs: Vec<JobResult>,
    /// By tenant, where jobs share them.
    pub tenants: Vec<JobResult>,
    /// All of them together.
    pub total: JobResult,
    /// The drive, where it is in this process.
    pub device: Option<DeviceReport>,
    /// Of a simulation.
    pub run: Option<RunReport>,
    /// For how much of its time the thread that measured had no core, in percent; of a run in real time.
    pub waited_pct: Option<f64>,
}

#[derive(Serialize)]
struct ReportJson {
    jobs: Vec<JobJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tenants: Vec<JobJson>,
    total: JobJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<DeviceReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<RunReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_for_core_pct: Option<f64>,
}

#[derive(Serialize)]
struct JobJson {
    name: String,
    class: Option<&'static str>,
    iops: f64,
    bandwidth_bytes_per_s: f64,
    latency_ns: LatencyJson,
    errors: u64,
    /// Of the errors: what was read was not what had been written.
    wrong_data: u64,
    /// Of a real run without a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_gap_ns: Option<u64>,
    series: Vec<PointJson>,
    /// Of a trace: its reads, to which deallocations and flushes count, and its writes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kinds: Vec<JobJson>,
}

/// Percentiles, in nanoseconds.
#[derive(Serialize)]
pub struct LatencyJson {
    mean: f64,
    p50: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

#[derive(Serialize)]
struct PointJson {
    t_s: f64,
    iops: f64,
    bandwidth_bytes_per_s: f64,
    p99_ns: u64,
}

impl From<Latency> for LatencyJson {
    fn from(Latency { mean, p50, p99, p999, max }: Latency) -> Self {
        LatencyJson { mean, p50, p99, p999, max }
    }
}

impl From<&JobResult> for JobJson {
    fn from(job: &JobResult) -> Self {
        let Summary { iops, bandwidth_bytes_per_s, latency, errors, wrong_data, longest_gap, .. } = job.summary;
        let point = |p: &SeriesPoint| PointJson {
            t_s: p.t_s,
            iops: p.iops,
            bandwidth_bytes_per_s: p.bandwidth_bytes_per_s,
            p99_ns: p.p99_ns,
        };
        JobJson {
            name: job.name.clone(),
            class: job.class.map(|c| c.name()),
            iops,
            bandwidth_bytes_per_s,
            latency_ns: latency.into(),
            errors,
            wrong_data,
            longest_gap_ns: longest_gap.map(|gap| gap.0),
            series: job.series.iter().map(point).collect(),
            kinds: job.kinds.iter().map(JobJson::from).collect(),
        }
    }
}

impl Report {
    /// The JSON of `weir bench` and `weir sim`.
    pub fn json(&self) -> impl Serialize + use<> {
        ReportJson {
            jobs: self.jobs.iter().map(JobJson::from).collect(),
            tenants: self.tenants.iter().map(JobJson::from).collect(),
            total: JobJson::from(&self.total),
            device: self.device.clone(),
            run: self.run.clone(),
            waited_for_core_pct: self.waited_pct,
        }
    }

    /// The table, and a second one for a series.
    pub fn text(&self) -> String {
        let headings = ["JOB", "CLASS", ">IOPS", ">MB/s", ">MEAN", ">P50", ">P99", ">P99.9", ">MAX", ">ERRORS"];
        let mut table = Table::new(&headings);
        for job in &self.jobs {
            table.row(row(job));
            job.kinds.iter().for_each(|kind| table.row(row_of_kind(job, kind)));
        }
        for tenant in &self.tenants {
            table.row(std::iter::once(format!("= {}", tenant.name)).chain(row(tenant).into_iter().skip(1)));
        }
        if self.jobs.len() > 1 {
            table.row(row(&self.total));
        }
        let mut out = String::new();
        if self.jobs.iter().any(|j| !j.series.is_empty()) {
            out = self.series();
            out.push('\n');
        }
        out += &table.render();
        if let Some(flash) = self.device.as_ref().and_then(|d| d.flash.as_ref()) {
            out += &flash_text(flash);
        }
        if let Some(note) = self.device.as_ref().and_then(DeviceReport::few_collections) {
            out += &format!("flash: {note}\n");
        }
        for cut in self.run.iter().flat_map(|r| &r.power_cuts) {
            out += &cut.text();
        }
        out += &self.waited_pct.and_then(waited_text).unwrap_or_default();
        out
    }

    fn series(&self) -> String {
        let mut headings = vec![">T".to_string()];
        for job in &self.jobs {
            headings.extend([format!(">{} IOPS", job.name), ">MB/s".to_string(), ">P99".to_string()]);
        }
        let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
        for (i, point) in self.total.series.iter().enumerate() {
            let cells = self.jobs.iter().flat_map(|job| match job.series.get(i) {
                Some(p) => [count(p.iops), megabytes(p.bandwidth_bytes_per_s), time(p.p99_ns as f64)],
                None => Default::default(),
            });
            table.row(std::iter::once(format!("{}s", point.t_s)).chain(cells));
        }
        table.render()
    }
}

/// The cells of a job's reads or writes: its name alone, and no errors, which are not told apart.
fn row_of_kind(job: &JobResult, kind: &JobResult) -> Vec<String> {
    let mut cells = row(kind);
    cells[0] = format!("  {}", kind.name[job.name.len()..].trim_start());
    cells[9] = String::new();
    cells
}

/// A job's cells under the table's headings.
pub fn row(job: &JobResult) -> Vec<String> {
    let s = &job.summary;
    let l = &s.latency;
    vec![
        job.name.clone(),
        job.class.map_or("-", |c| c.name()).to_string(),
        count(s.iops),
        megabytes(s.bandwidth_bytes_per_s),
        time(l.mean),
        time(l.p50 as f64),
        time(l.p99 as f64),
        time(l.p999 as f64),
        time(l.max as f64),
        s.errors.to_string(),
    ]
}

/// Bytes as MB.
pub fn megabytes(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e6)
}

/// `12.3M`, `45.6k`, `789`.
pub fn count(n: f64) -> String {
    match n {
        n if n >= 1e6 => format!("{:.2}M", n / 1e6),
        n if n >= 1e4 => format!("{:.1}k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

/// `850ns`, `12.3us`, `4.56ms`, `1.20s`.
pub fn time(ns: f64) -> String {
    match ns {
        n if n >= 1e9 => format!("{:.2}s", n / 1e9),
        n if n >= 1e6 => format!("{:.2}ms", n / 1e6),
        n if n >= 1e4 => format!("{:.1}us", n / 1e3),
        n if n >= 1e3 => format!("{:.2}us", n / 1e3),
        n => format!("{n:.0}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::{Class, Nanos};

    fn result(name: &str) -> JobResult {
        let latency = Latency { mean: 10_500.0, p50: 900, p99: 12_000, p999: 3_000_000, max: 2_000_000_000 };
        let summary = Summary {
            iops: 1_234_567.0,
            bandwidth_bytes_per_s: 5e9,
            latency,
            errors: 2,
            longest_gap: Some(Nanos(9)),
            ..Summary::default()
        };
        let point = SeriesPoint { t_s: 1.0, iops: 9.0, bandwidth_bytes_per_s: 4096.0, p99_ns: 7 };
        JobResult {
            name: name.to_string(),
            class: Some(Class::High),
            summary,
            series: vec![point],
            distribution: Vec::new(),
            kinds: Vec::new(),
        }
    }

    fn report(waited_pct: Option<f64>) -> Report {
        let jobs = vec![result("gold")];
        Report { jobs, tenants: Vec::new(), total: result("total"), device: None, run: None, waited_pct }
    }

    #[test]
    fn reads_and_writes_of_a_trace_have_lines_of_their_own() {
        let mut trace = result("db");
        trace.kinds = vec![result("db reads"), result("db writes")];
        let report = Report { jobs: vec![trace], ..report(None) };
        let text = report.text();
        assert!(text.contains("\ndb ") && text.contains("\n  reads ") && text.contains("\n  writes "), "{text}");
        let json = serde_json::to_value(report.json()).unwrap();
        assert_eq!(json["jobs"][0]["kinds"][1]["name"], "db writes");
        assert!(json["total"]["kinds"].is_null(), "{json}");
    }

    #[test]
    fn a_run_without_a_core_says_so() {
        let said = "waited 62 % of the time for a core: the figures show what else runs on this machine\n";
        assert!(report(Some(62.1)).text().ends_with(said));
        for quiet in [None, Some(0.0), Some(5.0)] {
            assert!(!report(quiet).text().contains("for a core"), "{quiet:?}");
        }
        let json = |waited| serde_json::to_value(report(waited).json()).unwrap();
        assert_eq!(json(Some(0.5))["waited_for_core_pct"], 0.5);
        assert!(json(None)["waited_for_core_pct"].is_null());
    }

    #[test]
    fn the_documented_keys() {
        let report = report(None);
        let json = serde_json::to_value(report.json()).unwrap();
        let job = &json["jobs"][0];
        assert_eq!(job["name"], "gold");
        assert_eq!(job["class"], "high");
        assert_eq!(job["iops"], 1_234_567.0);
        assert_eq!(job["bandwidth_bytes_per_s"], 5e9);
        let keys = |v: &serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
        assert_eq!(
            keys(job),
            "bandwidth_bytes_per_s class errors iops latency_ns longest_gap_ns name series wrong_data"
        );
        assert_eq!(keys(&job["latency_ns"]), "max mean p50 p99 p999");
        assert_eq!(keys(&job["series"][0]), "bandwidth_bytes_per_s iops p99_ns t_s");
        assert_eq!(keys(&json), "jobs total");
        assert_eq!(keys(&json["total"]), keys(job));
    }

    #[test]
    fn tables() {
        let report = Report {
            jobs: vec![result("gold"), result("b")],
            tenants: Vec::new(),
            total: result("total"),
            device: None,
            run: None,
            waited_pct: None,
        };
        let text = report.text();
        assert!(text.contains("gold   high   1.23M  5000.0  10.5us  900ns  12.0us  3.00ms  2.00s       2"), "{text}");
        assert!(text.starts_with(" T  gold IOPS"), "{text}");
        assert!(text.lines().last().unwrap().starts_with("total"), "{text}");
    }

    #[test]
    fn a_run_of_too_few_collections_says_so() {
        let mut flash = FlashStatus { page_programs: 100, ..FlashStatus::default() };
        flash.utilisation.dies = vec![0.5; 8];
        let text = |flash: &FlashStatus, is_steady| {
            let device = DeviceReport { flash: Some(flash.clone()), is_steady, ..DeviceReport::default() };
            Report { device: Some(device), ..report(None) }.text()
        };
        flash.gc.victims = 31;
        let few = text(&flash, false);
        assert!(
            few.contains("\nflash: too few collections (31 victims on 8 dies): the write amplification is not"),
            "{few}"
        );
        assert!(!text(&flash, true).contains("too few"), "it began in the state that the advice names");
        flash.gc.victims = 32;
        assert!(!text(&flash, false).contains("too few"));
        (flash.gc.victims, flash.page_programs) = (0, 0);
        assert!(!text(&flash, false).contains("too few"), "nothing was written");
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!([count(12.0), count(45_600.0), count(2e6)], ["12", "45.6k", "2.00M"]);
        assert_eq!([time(5.0), time(1234.0), time(4.5e6)], ["5ns", "1.23us", "4.50ms"]);
    }
}
