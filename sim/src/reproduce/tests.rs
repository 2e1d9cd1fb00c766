use super::figure::LOST_PCT;
use super::*;
use crate::accuracy::Grid;
use std::sync::OnceLock;
use weir_config::DeviceConfig;
use weir_node::replay::{Clock, replay};
use weir_units::Nanos;
use weir_workload::{Answered, Job, JobResult, Latency, Planned, Summary, Xoshiro256};

/// Time that passes by looking at it, by up to so much a look.
struct Script {
    now: Nanos,
    most: u64,
    rng: Xoshiro256,
}

impl Script {
    fn new(most: Nanos) -> Script {
        Script { now: Nanos(0), most: most.get(), rng: Xoshiro256::new(7) }
    }
}

impl Clock for Script {
    fn now(&mut self) -> Nanos {
        self.now = Nanos(self.now.get() + 1 + self.rng.below(self.most));
        self.now
    }

    fn waited_since(&mut self, _: Nanos) -> Nanos {
        Nanos(0)
    }
}

/// A machine whose every answer takes what it should and a microsecond for each other submitter.
struct Fake;

impl LiveMeasurements for Fake {
    fn latency(&mut self, submitters: u32, service: Nanos) -> Result<Seen, String> {
        let all = |ns: u64| Latency { mean: ns as f64, p50: ns, p99: ns, p999: ns, max: ns };
        let ns = service.0 + u64::from(submitters) * 200;
        Ok(Seen { raw: all(ns * 50), net: all(ns), least: service, waited_pct: 2.0 })
    }

    fn bare(&mut self, _: Nanos) -> Seen {
        Seen::default()
    }

    fn answers(&mut self, drive: &DeviceConfig, requests: &[Planned]) -> Result<Vec<Answered>, String> {
        replay(drive, &requests[..requests.len().min(2000)], &mut Script::new(Nanos(200)))
    }

    fn cost(&mut self, count: u32, work: &mut dyn FnMut(u32)) -> f64 {
        (0..count.min(100)).for_each(work);
        50.0
    }

    fn overhead(&mut self, access: AccessPattern) -> Result<Overhead, String> {
        let (submit, complete) = match access.way {
            AccessPath::Driver => (80.0, 40.0),
            AccessPath::Uring => (2_000.0 + f64::from(access.size) / 50.0, 300.0),
            AccessPath::Calls => (1_000.0, 0.0),
        };
        Ok(Overhead { submit, complete, whole: submit + complete + f64::from(access.size) / 10.0 })
    }

    fn usage(&mut self, access: AccessPattern, time: Nanos) -> Result<Usage, String> {
        let ours = access.way == AccessPath::Driver;
        let (user, system) = if ours { (time, Nanos(0)) } else { (Nanos(time.0 / 4), Nanos(time.0 / 4 * 3)) };
        Ok(Usage { ios: if ours { 1_000_000 } else { 400_000 }, time, user, system })
    }

    fn about_places(&self) -> Vec<String> {
        vec!["nowhere".into()]
    }

    fn speeds(&mut self, designs: &[Design], load: Load, rounds: usize) -> Result<Vec<Vec<f64>>, String> {
        let one = |design: &Design| match design {
            Design::Timers if load.size == 8 << 10 => 1.2e6,
            Design::Timers => 0.9e6,
            Design::Wrr => 1e6,
            Design::Drr => 0.99e6,
        };
        Ok(designs.iter().map(|d| vec![one(d); rounds]).collect())
    }

    fn is_preferred(&self) -> bool {
        false
    }

    fn shared(&mut self, _: &SharedDrive, _: &[Job], _: Span) -> Result<Vec<JobResult>, String> {
        Err("nobody prefers this clock".into())
    }

    fn is_full(&self) -> bool {
        false
    }

    fn size(&self) -> Option<u64> {
        None
    }

    fn nodes(&mut self) -> &mut dyn Nodes {
        self
    }

    fn stores(&mut self) -> &mut dyn Stores {
        self
    }

    fn progress(&mut self, part: f64) {
        assert!((0.0..=1.0 + 1e-9).contains(&part), "{part}");
    }

    fn lost_pct(&mut self) -> f64 {
        0.0
    }
}

/// As the paper's: a drive of 60 us, 10 us of way, another 7 us for a map; a stream copies once, and from 1 KiB on it is as fast as the drive.
impl Stores for Fake {
    fn measure(&mut self, drive: StoreDrive, load: &StoreLoad) -> Result<StoreSeen, String> {
        let medium = match drive {
            StoreDrive::Dram => 0.0,
            StoreDrive::Flash => 60_000.0,
            StoreDrive::Optane => 10_000.0,
        };
        let way = match load.access {
            StoreAccess::File => 9_500.0,
            StoreAccess::Raw => 9_000.0,
            StoreAccess::ColdMap => 16_000.0,
            StoreAccess::Stream | StoreAccess::Lookup => 7_000.0,
            StoreAccess::Local => 0.0,
        };
        assert!(load.operations > 0 && load.size > 0);
        let line = 4e9 * if load.access == StoreAccess::Raw { 1.0 } else { 0.98 };
        let bandwidth = if load.size < 1024 { line / 2.0 } else { line };
        let copies = if load.access == StoreAccess::Stream { 1.0 } else { 0.0 };
        let p50 = if load.access == StoreAccess::Lookup { way } else { medium + way };
        Ok(StoreSeen { p50, bandwidth, copies })
    }

    fn sort(&mut self, bytes: u64, memory_pct: u32) -> Result<StoreSort, String> {
        let elapsed = Nanos(bytes * 10 + u64::from(100 - memory_pct) * 40_000_000);
        let (processor, in_calls) = (Nanos(bytes * 9), Nanos(bytes * 2));
        Ok(StoreSort { elapsed, processor, in_calls, in_memory_pct: memory_pct.into() })
    }

    fn replay_sort(&mut self, bytes: u64, memory_pct: u32) -> Result<StoreSort, String> {
        let elapsed = Nanos(bytes);
        Ok(StoreSort { elapsed, processor: elapsed, in_calls: elapsed, in_memory_pct: memory_pct.into() })
    }

    fn leave(&mut self) {}
}

/// Volumes lose a hundredth to the raw drive, the journal a thousandth; a restart takes 20 ms, and a start three steps.
impl Nodes for Fake {
    fn has_qemu(&self) -> bool {
        true
    }

    fn run(&mut self, server: Server, _: PaperDrive, case: &Case, time: Nanos) -> Result<Vec<Summary>, String> {
        let speed = match server {
            Server::Raw => 100e3,
            Server::NoJournal => 99e3,
            Server::Volumes(_) => 98.9e3,
            Server::Qemu => 50e3,
        };
        let count = if let Server::Volumes(n) = server { n } else { 1 };
        let alone = case.metric == Metric::Latency;
        let iops = if alone { speed } else { speed / f64::from(count) };
        let mean = 1e9 / speed * f64::from(case.depth);
        assert!(time > Nanos(0));
        let latency = Latency { mean, ..Latency::default() };
        let bandwidth_bytes_per_s = iops * f64::from(case.size);
        let summary = Summary { iops, bandwidth_bytes_per_s, latency, ..Summary::default() };
        Ok(vec![summary; count as usize])
    }

    fn leave(&mut self) {}

    fn start(&mut self, program: Program, _: PaperDrive) -> Result<Start, String> {
        let ms = Nanos::from_millis;
        let first = if program == Program::Again { ms(3) } else { ms(2) };
        let drives = if let Program::ResetsDrive(reset) = program { Nanos(reset.0 + ms(4).0) } else { ms(4) };
        Ok(Start { steps: vec![("exec".into(), ms(1)), ("drives".into(), drives), ("first answer".into(), first)] })
    }

    fn gap(&mut self, node: u32, _: PaperDrive, blow: Blow) -> Result<Nanos, String> {
        Ok(Nanos::from_millis(if blow.is_kept() { 3 } else { 20 + u64::from(node) }))
    }

    fn survive(&mut self, _: PaperDrive, timeline: &Timeline) -> Result<Survived, String> {
        let count = timeline.time.0 / timeline.series.0;
        let point = |i: u64| {
            let t_s = Nanos(i * timeline.series.0).as_secs_f64();
            weir_workload::SeriesPoint { t_s, iops: 1e3, bandwidth_bytes_per_s: 4e6, p99_ns: 1_000 }
        };
        Ok(Survived { series: (1..=count).map(point).collect(), ..Survived::default() })
    }

    fn lose_drive(&mut self, _: PaperDrive, outage: &Outage) -> Result<[Survived; 2], String> {
        let (lost, back) = (outage.lost_at.as_secs_f64(), outage.back_at.as_secs_f64());
        let volume = |may_be_away: bool| {
            let point = |i: u64| {
                let t_s = Nanos(i * outage.series.0).as_secs_f64();
                let rate = if may_be_away && t_s > lost && t_s <= back { 0.0 } else { 4e6 };
                weir_workload::SeriesPoint { t_s, iops: rate / 4096.0, bandwidth_bytes_per_s: rate, p99_ns: 1_000 }
            };
            let errors = u64::from(may_be_away && outage.kind == LossKind::Removal);
            let count = outage.time.0 / outage.series.0;
            Survived { series: (1..=count).map(point).collect(), errors, ..Survived::default() }
        };
        Ok([volume(false), volume(true)])
    }
}

struct Broken;

impl Stores for Broken {
    fn measure(&mut self, _: StoreDrive, _: &StoreLoad) -> Result<StoreSeen, String> {
        Err("no clock".into())
    }

    fn sort(&mut self, _: u64, _: u32) -> Result<StoreSort, String> {
        Err("no clock".into())
    }

    fn replay_sort(&mut self, _: u64, _: u32) -> Result<StoreSort, String> {
        Err("no clock".into())
    }

    fn leave(&mut self) {}
}

impl Nodes for Broken {
    fn has_qemu(&self) -> bool {
        false
    }

    fn run(&mut self, _: Server, _: PaperDrive, _: &Case, _: Nanos) -> Result<Vec<Summary>, String> {
        Err("no clock".into())
    }

    fn leave(&mut self) {}

    fn start(&mut self, _: Program, _: PaperDrive) -> Result<Start, String> {
        Err("no clock".into())
    }

    fn gap(&mut self, _: u32, _: PaperDrive, _: Blow) -> Result<Nanos, String> {
        Err("no clock".into())
    }

    fn survive(&mut self, _: PaperDrive, _: &Timeline) -> Result<Survived, String> {
        Err("no clock".into())
    }

    fn lose_drive(&mut self, _: PaperDrive, _: &Outage) -> Result<[Survived; 2], String> {
        Err("no clock".into())
    }
}

impl LiveMeasurements for Broken {
    fn latency(&mut self, _: u32, _: Nanos) -> Result<Seen, String> {
        Err("no clock".into())
    }

    fn bare(&mut self, _: Nanos) -> Seen {
        Seen::default()
    }

    fn answers(&mut self, _: &DeviceConfig, _: &[Planned]) -> Result<Vec<Answered>, String> {
        Err("no clock".into())
    }

    fn cost(&mut self, _: u32, _: &mut dyn FnMut(u32)) -> f64 {
        f64::NAN
    }

    fn overhead(&mut self, _: AccessPattern) -> Result<Overhead, String> {
        Err("no clock".into())
    }

    fn usage(&mut self, _: AccessPattern, _: Nanos) -> Result<Usage, String> {
        Err("no clock".into())
    }

    fn about_places(&self) -> Vec<String> {
        Vec::new()
    }

    fn speeds(&mut self, _: &[Design], _: Load, _: usize) -> Result<Vec<Vec<f64>>, String> {
        Err("no clock".into())
    }

    fn is_preferred(&self) -> bool {
        false
    }

    fn shared(&mut self, _: &SharedDrive, _: &[Job], _: Span) -> Result<Vec<JobResult>, String> {
        Err("no clock".into())
    }

    fn is_full(&self) -> bool {
        false
    }

    fn size(&self) -> Option<u64> {
        None
    }

    fn nodes(&mut self) -> &mut dyn Nodes {
        self
    }

    fn stores(&mut self) -> &mut dyn Stores {
        self
    }

    fn progress(&mut self, _: f64) {}

    fn lost_pct(&mut self) -> f64 {
        0.0
    }
}

/// On the fake machine a volume loses to the raw drive, which in the paper it does not with random reads.
const MISSED: &str = "IOPS, Randread, volume over raw drive";
/// The P4800X leaves its requests in the order in which they came, where the link is the bottleneck; the measured drive does not.
const IN_ORDER: &str = "optane-p4800x, 4 KiB random reads, depth 16, p99";

/// The figure, which is made once however many tests look at it.
fn made(subject: Subject) -> Figure {
    static FIGURES: [OnceLock<Figure>; Subject::ALL.len()] = [const { OnceLock::new() }; Subject::ALL.len()];
    let at = Subject::ALL.iter().position(|s| *s == subject).unwrap();
    FIGURES[at].get_or_init(|| made_anew(subject)).clone()
}

fn made_anew(subject: Subject) -> Figure {
    let figure = subject.figure(&mut Fake).unwrap();
    let is_bad = |row: &&Row| !row.ok() && row.label != MISSED && row.label != IN_ORDER;
    let bad: Vec<String> = figure.rows.iter().filter(is_bad).map(|r| format!("{}: {}", r.label, r.ours)).collect();
    assert!(bad.is_empty(), "{subject}: {bad:#?}");
    assert!(!figure.rows.is_empty() && !figure.about.is_empty() && !figure.charts.is_empty());
    let quoted = |r: &Row| r.paper().is_none() || r.basis().contains(": \"");
    assert!(figure.rows.iter().all(|r| r.ours.is_finite() && quoted(r)));
    figure
}

fn ours(figure: &Figure, label: &str) -> f64 {
    figure.rows.iter().find(|r| r.label == label).unwrap_or_else(|| panic!("no row {label:?}")).ours
}

#[test]
fn names() {
    for subject in Subject::ALL {
        assert_eq!(subject.name().parse(), Ok(subject));
    }
    let error = "fig9".parse::<Subject>().unwrap_err();
    assert!(error.starts_with("there is no reproduction \"fig9\"; there is femu-fig2a, femu-fig2b"), "{error}");
}

#[test]
fn rows() {
    let row = |ours, bound| Row::printed("x", ours, "us", 50.0, bound, "q");
    assert!(row(50.0, PrintedBound::Below).ok() && !row(50.1, PrintedBound::Below).ok());
    assert!(row(50.0, PrintedBound::Above).ok() && !row(49.9, PrintedBound::Above).ok());
    assert!(row(55.0, PrintedBound::Within(10.0)).ok() && !row(44.9, PrintedBound::Within(10.0)).ok());
    assert_eq!(row(55.0, PrintedBound::Within(10.0)).deviation_pct(), Some(10.0));
    assert_eq!(row(55.0, PrintedBound::Within(10.0)).tolerance_pct(), Some(10.0));
    assert_eq!(row(55.0, PrintedBound::Below).tolerance_pct(), None);
    let verdict = |ours, bound| row(ours, bound).verdict();
    assert_eq!(
        [verdict(50.0, PrintedBound::Below), verdict(50.1, PrintedBound::Below)],
        [RowVerdict::Held, RowVerdict::Missed]
    );
    let told = Row::told("x", 1.0, "us", "a count");
    assert_eq!((told.verdict().name(), told.ok(), told.basis()), ("told", true, "a count".into()));
    let unclear = row(50.1, PrintedBound::Below).disturbed_if(true);
    assert_eq!((unclear.verdict().name(), unclear.ok()), ("not judged: disturbed", true));
    let stated = Row::relation("x", 1.0, "us", false, "an order");
    assert_eq!((stated.paper(), stated.deviation_pct(), stated.ok()), (None, None, false));
}

#[test]
fn fig2_holds_the_machine_to_the_printed_bounds() {
    let figure = made(Subject::FemuFig2a);
    assert_eq!(figure.rows.len(), 8);
    assert_eq!((figure.rows[5].paper(), figure.rows[6].paper()), (Some(52.0), Some(90.0)));
    assert_eq!(made(Subject::FemuFig2b).rows.len(), 17);
    for subject in [Subject::FemuFig2a, Subject::FemuFig2b] {
        let about = made(subject).about.join(" ");
        for peer in ["IDE (VSSIM", "NVMe of QEMU", "virtio", "dataplane"] {
            assert!(about.contains(peer), "{subject} does not say that {peer} is not repeated: {about}");
        }
    }
    assert!(
        figure.notes[1].contains("The machine was disturbed: the thread had no core for 2 %"),
        "{:?}",
        figure.notes
    );
    for subject in Subject::ALL.into_iter().filter(|s| s.clock() == ClockKind::Real) {
        let error = subject.figure(&mut Broken).unwrap_err();
        assert!(error.ends_with("no clock"), "{subject}: {error}");
    }
}

/// A drive that is looked at rarely has every command complete when the simulator has it, for every profile.
#[test]
fn live_as_in_virtual_time() {
    use live_against_sim::{drive, due_otherwise, in_virtual_time, plan};
    for profile in weir_config::Profile::all().map(|profile| profile.to_string()) {
        let config = drive(&profile).unwrap();
        let requests = plan(&config, 3000).unwrap();
        for most in [1, 90].map(Nanos::from_micros) {
            let answers = replay(&config, &requests, &mut Script::new(most)).unwrap();
            let simulated = in_virtual_time(&config, &requests, &answers).unwrap();
            assert_eq!(due_otherwise(&answers, &simulated), 0, "{profile}, looked at every {most} at the most");
            assert!(answers.iter().all(|a| a.arrived < a.due && a.due <= a.seen), "{profile}");
        }
    }
}

#[test]
fn live_drives_are_held_to_virtual_time() {
    let figure = made(Subject::LiveAgainstSim);
    assert_eq!(figure.rows.len(), 2 * weir_config::Profile::all().count());
    assert!(figure.ok(), "a turn of 200 ns is no difference: {:?}", figure.rows.iter().find(|row| !row.ok()));
}

#[test]
fn fig3_is_the_paper_s_timeline() {
    let figure = made(Subject::FemuFig3);
    // Read: 48 and 52.433 us. The second page is sensed while the first one crosses the channel.
    assert_eq!(ours(&figure, "read P1, double register"), 100.433);
    assert_eq!(ours(&figure, "read P2, single register"), 200.866);
    assert_eq!(ours(&figure, "read P2, double register"), 152.866);
    // Program: the second page crosses the channel during the first one's 900 us.
    assert_eq!(ours(&figure, "write P2, double register"), 1852.433);
}

#[test]
fn fig4_both_readings() {
    let figure = made(Subject::FemuFig4);
    assert_eq!(figure.rows.len(), 50);
    let slow = ours(&figure, "anywhere, two registers, 1 channels x 1 planes");
    assert!((900.0..960.0).contains(&slow), "{slow}");
    assert_eq!(figure.rows.iter().filter(|r| r.paper().is_some()).count(), 3);
}

#[test]
fn fig5_basic_is_not_advanced() {
    assert_eq!(made(Subject::FemuFig5).rows.len(), 8);
    assert_eq!(weir_flash::Preset::FemuBasic.parts(false).timing.registers, weir_flash::Registers::Single);
}

#[test]
fn fig6a_order_of_the_modes() {
    let figure = made(Subject::FemuFig6a);
    let (controller, plane) = (ours(&figure, "controller: mean of reads"), ours(&figure, "plane: mean of reads"));
    assert!(plane * 2.0 < controller, "{plane} against {controller}");
    // Dies collect one after the other: the drive does not stand still for 64 collections in a row.
    let (many, one) = (ours(&figure, "controller: p99 of reads"), ours(&figure, "plane: p99.9 of reads"));
    assert!(many < 3.0 * one, "p99 {many} us, one collection about {one} us");
}

#[test]
fn fig6b_wordcount_waits_for_collection_in_the_order_of_the_modes() {
    let figure = made(Subject::FemuFig6b);
    assert!(figure.ok(), "{:?}", figure.rows.iter().find(|row| !row.ok()));
    let shared = |mode: &str| ours(&figure, &format!("{mode}, another job writes: wordcount"));
    assert!(shared("controller") > 1.1 * shared("plane"), "{} against {}", shared("controller"), shared("plane"));
    assert!(shared("plane") >= ours(&figure, "plane: wordcount"));
}

#[test]
fn terasort_is_simulated_where_no_more_is_asked_for() {
    let figure = made(Subject::CrailTerasort);
    assert!(figure.ok() && figure.notes[0].starts_with("Simulated only"), "{:?}", figure.notes);
    assert_eq!((figure.charts[0].curves.len(), figure.rows.len()), (2, 6 * 3 + 6 + 4));
}

#[test]
fn pages_and_chips_differ_and_a_die_ages() {
    let figure = made(Subject::FemuPages);
    assert_eq!(figure.rows.iter().filter_map(Row::paper).collect::<Vec<_>>(), [48.0, 64.0, 900.0, 2400.0]);
    assert_eq!((figure.charts.len(), figure.charts[0].curves[0].points.len()), (2, 64));
    assert!(figure.rows.iter().any(|r| r.label.contains(", bad, ")), "no chip is bad");
    let figure = made(Subject::FemuAgeing);
    let new = ours(&figure, "upper pages, sensed again a read, 0 cycles");
    let old = ours(&figure, "upper pages, sensed again a read, 4500 cycles");
    assert!(new == 0.0 && old > 0.5, "{new} new, {old} old");
}

#[test]
fn levelling_keeps_to_the_bounds_of_its_paper() {
    let figure = made(Subject::WearLevelling);
    let missed: Vec<&Row> = figure.rows.iter().filter(|row| !row.ok()).collect();
    assert!(missed.is_empty(), "{missed:?}");
    let lag = |how: &str| ours(&figure, &format!("1:1, {how}: lag after 8 turns"));
    assert!(lag("dynamic") > 8.0 * lag("static"), "{} dynamic, {} static", lag("dynamic"), lag("static"));
}

#[test]
fn a_page_move_undoes_the_drop() {
    let figure = made(Subject::FemuMovePage);
    assert_eq!(figure.rows.iter().filter_map(Row::paper).collect::<Vec<_>>(), [50.0]);
    let drop = |how: &str| ours(&figure, &format!("drop under collection, {how}"));
    assert!(drop("move-page") * 4.0 < drop("host copies"));
}

#[test]
fn every_drive_is_within_a_tenth_of_its_data_sheet() {
    let figure = made(Subject::Datasheets);
    let within = |percent| figure.rows.iter().filter(|row| row.tolerance_pct() == Some(percent)).count();
    assert_eq!((within(10.0), within(25.0)), (32 + 8, 7));
    charts_are_tables(&figure);
    // Depth 1 has a shape: no two requests are alike.
    for profile in ["optane-p4800x", "p3700-800g"] {
        let ours = |name| ours(&figure, &format!("{profile}, 4 KiB random reads, depth 1, {name}, fitted"));
        assert!(ours("p99") > 1.05 * ours("p50") && ours("p99.999") > 2.0 * ours("p99"), "{profile} has no shape");
    }
    let is_judged = |row: &&Row| row.paper().is_some() && !row.label.ends_with(", fitted");
    assert!(figure.rows.iter().filter(is_judged).count() >= 8, "what was fitted is judged by what was not");
    let drives = weir_config::Profile::DRIVES.into_iter().filter(|drive| *drive != "oc-westlake");
    for drive in drives {
        assert!(figure.rows.iter().any(|row| row.label.starts_with(&format!("{drive}, "))), "{drive}");
    }
}

#[test]
fn overheads_stand_beside_the_paper_s() {
    let figure = made(Subject::QosFig1);
    let printed: Vec<f64> = figure.rows.iter().filter_map(Row::paper).collect();
    assert_eq!(printed, [629.1, 6465.9, 10.0, 260.0, 260.0, 260.0, 260.0]);
    assert_eq!(ours(&figure, "128 KiB read, disk, driver: submit and complete"), 120.0);
    assert!(figure.rows.iter().all(|r| r.tolerance_pct().is_none()), "they are of another machine");
    assert_eq!(figure.notes, ["nowhere"]);
    let figure = made(Subject::QosFig2);
    assert_eq!(ours(&figure, "4 KiB reads, io_uring: system time of its time"), 75.0);
    assert_eq!(ours(&figure, "4 KiB reads, processor time of a request over pread's"), 0.4);
}

#[test]
fn fig6_says_where_the_old_design_is_faster() {
    let figure = made(Subject::QosFig6);
    assert_eq!((ours(&figure, "sizes at which DRR keeps up"), figure.rows.len()), (8.0, 2 * 10 + 3 * 5));
    let told = "More than 5 % slower than the old design, writes: WRR at 8 KiB writes; DRR at 8 KiB writes.";
    assert_eq!(figure.notes[0], told);
}

#[test]
fn fig3_has_both_parts() {
    let figure = made(Subject::QosFig3);
    assert_eq!(figure.rows.len(), 3 + 6);
    assert_eq!(ours(&figure, "old design: high over low").round(), 1.0);
}

#[test]
fn fig7_the_model_is_within_the_paper_s_five_percent() {
    let figure = made(Subject::QosFig7);
    assert_eq!(figure.rows.len(), 11 * 5 + 2);
    assert_eq!(figure.rows.iter().filter(|r| r.paper() == Some(5.0)).count(), 22);
    let high = |rho: &str| (ours(&figure, &format!("rho_l {rho}: high's part of the drive")) * 10.0).round() / 10.0;
    assert_eq!((high("0.0"), high("1.0")), (66.7, 57.1));
    assert!(figure.notes[0].starts_with("Estimated by runs of their own: gamma = "), "{:?}", figure.notes);
    println!("{}", figure.notes[0]);
}

#[test]
fn fig8_ratios() {
    let figure = made(Subject::QosFig8);
    let ratio = |place: u32, how: &str| {
        (ours(&figure, &format!("scenario {place}, {how}: job 1 over job 2")) * 100.0).round() / 100.0
    };
    let all = |how: &str| [1, 2, 3, 4, 5].map(|place| ratio(place, how));
    assert_eq!(all("DRR"), [2.0, 1.0, 4.0, 0.25, 1.0]);
    assert_eq!(all("WRR"), [1.0, 1.0, 2.0, 0.13, 0.5]);
    assert_eq!(all("none"), [0.5, 1.0, 0.5, 0.5, 0.5]);
}

#[test]
fn crail_figures_hold_what_is_measured_to_what_is_printed() {
    let figure = made(Subject::CrailLatency);
    assert_eq!(figure.rows.len(), 3 * 3 * 3 + 3 * 3 + 3);
    assert_eq!(figure.rows.iter().filter(|r| r.paper().is_some()).count(), 2 + 3 + 2);
    assert!((ours(&figure, "960 PRO, 4 KiB, map not cached less cached, by pairs") - 6.5).abs() < 1e-9);
    assert!((ours(&figure, "DRAM faster than 960 PRO, a sector") - 69.5 / 9.5).abs() < 1e-9);
    let figure = made(Subject::CrailThroughput);
    assert_eq!(figure.rows.len(), 4 * 3);
    let figure = made(Subject::CrailStreams);
    assert_eq!(figure.rows.len(), 2 * (2 * 4 + 6) + 1);
    assert_eq!(ours(&figure, "DRAM, buffered read, 90 % of its most reached at"), 1024.0);
    assert_eq!(ours(&figure, "960 PRO, direct read, copies a byte, most of all sizes"), 0.0);
}

#[test]
fn spool_table2_has_every_case_on_everything() {
    let figure = made(Subject::SpoolTable2);
    // Five servers and the journal's cost in ten cases, and what three volumes do together; fairness of what is no latency.
    assert_eq!(figure.rows.len(), 10 * (5 + 1) + 10 + 6);
    assert_eq!(ours(&figure, "IOPS, Randread, PM963, raw drive"), 100.0);
    let mix = |name: &str| ours(&figure, &format!("IOPS, {name}, PM963, raw drive")).round();
    assert_eq!((mix("Mixread"), mix("Mixwrite")), (70.0, 30.0), "the reads and the writes of one mix");
    let cost = |case: &str| (ours(&figure, &format!("{case}, journal costs")) * 1e3).round() / 1e3;
    assert_eq!((cost("IOPS, Randread"), cost("latency, Read")), (0.101, 0.101));
    assert_eq!(ours(&figure, "latency, Write, three volumes together over one").round(), 3.0);
}

#[test]
fn spool_figures_hold_what_is_measured_to_what_is_printed() {
    let figure = made(Subject::SpoolFig15);
    assert_eq!(figure.rows.iter().filter_map(Row::paper).collect::<Vec<_>>(), [2.54]);
    assert_eq!(figure.charts.len(), 2);
    let figure = made(Subject::SpoolFig16);
    assert_eq!(figure.rows.iter().filter_map(Row::paper).collect::<Vec<_>>(), [3.0; 4]);
    let figure = made(Subject::SpoolFig17);
    assert_eq!(figure.rows.iter().filter(|r| r.paper().is_some()).count(), 16);
    let figure = made(Subject::SpoolFig5);
    assert_eq!(figure.rows.iter().filter_map(Row::paper).collect::<Vec<_>>(), [1200.0, 2500.0]);
    assert_eq!(ours(&figure, "P3600, exec to first answer"), 7.0);
    let figure = made(Subject::SpoolFig14);
    assert_eq!(ours(&figure, "restart, exec to first answer"), 8.0);
    assert!(ours(&figure, "restart that resets its drive, exec to first answer") > 1_350.0);
    assert_eq!(ours(&figure, "restart, longest wait of a client, median"), 20.0);
    let figure = made(Subject::SpoolFig19);
    assert_eq!((ours(&figure, "95 % of the nodes"), ours(&figure, "median")), (25.0, 22.0));
    // Three blows, two under a keeper and two resets, each time with failures and the longest pause; of resets also what they cost more.
    let figure = made(Subject::SpoolFig13);
    assert_eq!(figure.rows.len(), 5 + 4 + 5);
    assert_eq!(figure.charts.iter().map(|chart| chart.marks.len()).collect::<Vec<_>>(), [3, 2, 2]);
    let figure = made(Subject::SpoolFig12);
    assert!(figure.ok() && figure.rows.len() == 14);
}

#[test]
fn the_same_every_time() {
    // These take longest, by the same code.
    let long = |s: &Subject| {
        use Subject::{Datasheets, PlanCampaign, QosAccuracy, SpoolFig4, StoreScale};
        matches!(s, Datasheets | QosAccuracy | PlanCampaign | SpoolFig4 | StoreScale)
    };
    for subject in Subject::ALL.into_iter().filter(|s| s.clock() != ClockKind::Real && !long(s)) {
        assert_eq!(subject.figure(&mut Fake), subject.figure(&mut Broken), "{subject}");
    }
}

#[test]
fn a_disturbed_machine_misses_nothing_and_says_so() {
    let mut figure = made(Subject::QosFig6);
    figure.rows.push(Row::relation("the last", 1.0, "", false, "2"));
    let verdict = |figure: &Figure| figure.rows.last().unwrap().verdict();
    figure.consider(LOST_PCT);
    assert_eq!((verdict(&figure), figure.ok()), (RowVerdict::Missed, false));
    figure.consider(LOST_PCT + 1.0);
    assert_eq!((verdict(&figure), figure.ok()), (RowVerdict::Disturbed, true));
    assert_eq!(figure.rows[0].verdict(), RowVerdict::Held, "what is held all the same is held");
    assert!(
        figure
            .notes
            .last()
            .unwrap()
            .starts_with("The machine was disturbed: threads that only spin had no core for 6 %")
    );
}

/// Every text of a figure.
fn texts(figure: &Figure) -> Vec<String> {
    let rows = figure.rows.iter().flat_map(|row| [row.label.clone(), row.basis()]);
    let charts = figure.charts.iter().flat_map(|c| [c.title.to_string(), c.axes.0.to_string(), c.axes.1.to_string()]);
    let curves = figure.charts.iter().flat_map(|c| &c.curves).map(|curve| curve.name.clone());
    figure.about.iter().chain(&figure.notes).cloned().chain(rows).chain(charts).chain(curves).collect()
}

/// Heights of a chart's curve.
fn heights(figure: &Figure, chart: usize, curve: &str) -> Vec<f64> {
    let found = figure.charts[chart].curves.iter().find(|c| c.name == curve);
    let found = found.unwrap_or_else(|| panic!("{}: no curve {curve:?}", figure.subject));
    found.points.iter().map(|(_, y)| *y).collect()
}

/// Rows whose label has both texts, in their order.
fn rows_with(figure: &Figure, begin: &str, end: &str) -> Vec<f64> {
    let is = |row: &&Row| row.label.starts_with(begin) && row.label.ends_with(end);
    figure.rows.iter().filter(is).map(|row| row.ours).collect()
}

fn alike(what: &str, chart: &[f64], table: &[f64]) {
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
    assert!(!table.is_empty() && chart.len() == table.len(), "{what}: {chart:?} and {table:?}");
    assert!(chart.iter().zip(table).all(near), "{what}: {chart:?} and {table:?}");
}

/// What each chart shows, worked out from the table.
fn charts_are_tables(figure: &Figure) {
    let height = |chart: usize, curve: &str| heights(figure, chart, curve);
    let rows = |begin: &str, end: &str| rows_with(figure, begin, end);
    let name = figure.subject.name();
    match figure.subject {
        Subject::FemuFig2a => alike(name, &height(0, "Weir"), &rows("", "submitters, mean")),
        Subject::FemuFig2b => alike(name, &height(0, "p99"), &rows("", "submitters, p99")),
        Subject::FemuFig3 => alike(name, &height(0, "write, double register"), &rows("write", "double register")),
        Subject::FemuFig4 => {
            let ends = [1, 2, 4, 8, 16].map(|x| rows("anywhere", &format!(", {x} channels x 4 planes"))[0]);
            alike(name, &height(1, "4 planes a channel"), &ends);
        }
        Subject::FemuFig5 => {
            alike(
                name,
                &height(0, "basic against advanced"),
                &rows("", "16 threads on 16 planes: basic against advanced"),
            );
            let varmail = height(1, "16 threads");
            alike(name, &varmail[1..], &rows("varmail, 16T16P", ""));
        }
        Subject::FemuFig6a => quantiles_are_on_the_curves(figure),
        Subject::FemuFig6b => {
            let alone = ["controller", "channel", "plane"].map(|mode| rows(mode, &format!("{mode}: wordcount"))[0]);
            alike(name, &height(0, "alone"), &alone);
        }
        Subject::FemuPages => {
            let shares = rows("chip ", "reads sensed again");
            alike(name, &height(1, "reads sensed again"), &shares);
        }
        Subject::FemuAgeing => {
            let last = |curve: &str| height(0, curve).last().copied().unwrap();
            alike(name, &[last("upper pages, mean")], &rows("upper pages, mean read", "4500 cycles"));
        }
        Subject::WearLevelling => {
            alike(name, &height(0, "static"), &rows("1:1, static: lag", ""));
            alike(name, &height(1, "15:1"), &rows("cold to hot 15:1", "more erases"));
        }
        Subject::FemuMovePage => {
            let drop = 1.0 - height(0, "collecting, host copies")[0] / height(0, "no collection")[0];
            alike(name, &[drop * 100.0], &rows("drop under collection, host copies", ""));
        }
        Subject::QosFig1 => {
            let both: Vec<f64> =
                height(0, "driver, read").iter().zip(height(1, "driver, read")).map(|(a, b)| a + b).collect();
            alike(name, &both, &rows("", "KiB read, disk, driver: submit and complete"));
        }
        Subject::QosFig2 => {
            let of = |part: &str| height(1, &format!("driver, {part}"));
            let system = of("system").iter().zip(of("user")).map(|(s, u)| s / (s + u) * 100.0).collect::<Vec<_>>();
            alike(name, &system, &rows("", "driver: system time of its time"));
        }
        Subject::QosFig3 => alike(name, &height(0, "DRR")[8..], &rows("1 MiB reads, DRR", "")),
        Subject::QosFig6 => {
            let over = |chart, way: &str| {
                height(chart, way).iter().zip(height(chart, "old design")).map(|(a, b)| a / b).collect::<Vec<_>>()
            };
            alike(name, &over(0, "WRR"), &rows("", "writes, WRR over old design"));
            alike(name, &over(1, "DRR"), &rows("", "clients, DRR over old design"));
        }
        Subject::QosFig7 => {
            alike(name, &height(0, "measured"), &rows("rho_l", ": throughput of high"));
            alike(name, &height(1, "measured"), &rows("rho_l", ": mean latency of high"));
            let (model, got) = (height(0, "equation 2"), height(0, "measured"));
            let off: Vec<f64> = model.iter().zip(&got).map(|(model, got)| (model / got - 1.0).abs() * 100.0).collect();
            alike(name, &off, &rows("rho_l", ": equation 2 is off by"));
        }
        Subject::QosFig8 => alike(name, &height(1, "WRR"), &rows("scenario", "WRR: job 1 over job 2")),
        Subject::SpoolTable2 => {
            let over: Vec<f64> =
                rows("", ", PM963, volume").iter().zip(rows("", ", raw drive")).map(|(a, b)| a / b).collect();
            alike(name, &height(0, "volume"), &over);
        }
        Subject::SpoolFig5 => {
            let ends = height(0, "PM963");
            alike(name, &ends[ends.len() - 1..], &rows("PM963, exec to first answer", ""));
        }
        Subject::SpoolFig14 => {
            let ends = height(0, "restart");
            alike(name, &ends[ends.len() - 1..], &rows("restart, exec to first answer", ""));
            let waits = height(1, "kill and restart");
            alike(name, &waits[waits.len() - 1..], &rows("kill and restart, longest wait of a client, longest", ""));
        }
        Subject::SpoolFig15 => {
            let all = ["IOPS", "latency"].map(|metric| rows(metric, ", volume over raw drive")).concat();
            alike(name, &height(0, "volume"), &all);
        }
        Subject::SpoolFig16 => alike(name, &height(0, "3 volumes"), &rows("", "three volumes together over one")),
        Subject::SpoolFig4 => {
            let isolated: f64 = height(0, "drives isolated").iter().sum();
            assert!(figure.ok() && isolated > 300.0, "{figure:#?}");
            alike(name, &height(0, "drawn, %"), &rows("", ": drawn"));
        }
        Subject::SpoolFig17 => alike(name, &height(0, "drive in memory"), &rows("", "drive in memory, journal costs")),
        Subject::SpoolFig19 => {
            let longest = height(0, "Weir").into_iter().fold(0.0, f64::max);
            alike(name, &[longest], &rows("longest", ""));
        }
        Subject::CrailLatency => {
            alike(name, &height(0, "960 PRO, raw"), &rows("960 PRO", ", raw"));
            let faster = height(1, "960 PRO, store")[0] / height(1, "DRAM, store")[0];
            alike(name, &[faster], &rows("DRAM faster", ""));
        }
        Subject::CrailThroughput => {
            let over: Vec<f64> = height(0, "store").iter().zip(height(0, "raw")).map(|(a, b)| a / b).collect();
            alike(name, &over, &rows("", ", store over raw"));
        }
        Subject::CrailStreams => {
            let most = |curve: &str| height(0, curve).into_iter().fold(0.0, f64::max);
            assert!(most("960 PRO, buffered") > 0.0 && most("DRAM, direct") > 0.0);
            let given = |row: &&Row| row.label.starts_with("DRAM, direct read") && row.unit == "MB/s";
            let given: Vec<f64> = figure.rows.iter().filter(given).map(|row| row.ours).collect();
            alike(name, &height(0, "DRAM, direct"), &given);
        }
        // Its charts are over time, its table is not.
        Subject::StoreScale => {}
        Subject::CrailTerasort => {
            alike(name, &height(0, "simulated"), &rows("simulated, ", "% in memory")[..6]);
            alike(name, &height(0, "simulated, requests alone"), &rows("simulated, requests alone", "% in memory"));
        }
        Subject::PlanCampaign => {
            let last = |curve: &str| height(0, curve).last().copied().unwrap();
            alike(name, &[last("by the planner")], &rows("called feasible", ""));
        }
        // Over time: the rows are means of what is drawn.
        Subject::SpoolFig12 | Subject::SpoolFig13 => {
            for chart in &figure.charts {
                let end = chart.curves[0].points.last().unwrap().0;
                assert!(!chart.marks.is_empty() && chart.marks.iter().all(|mark| mark.x > 0.0 && mark.x < end));
            }
        }
        Subject::Datasheets => {
            let deviations: Vec<f64> = figure.rows.iter().filter_map(Row::deviation_pct).collect();
            let drawn: Vec<f64> = figure.charts[0].curves.iter().flat_map(|c| &c.points).map(|(_, y)| *y).collect();
            alike(name, &drawn, &deviations);
        }
        Subject::LiveAgainstSim => {
            let told: Vec<f64> = figure.charts[0]
                .curves
                .iter()
                .map(|curve| {
                    let is_its = |row: &&Row| row.label.starts_with(&format!("{}, p", curve.name));
                    let apart = figure.rows.iter().find(is_its).unwrap().ours;
                    curve.points.iter().map(|(_, y)| *y).find(|y| *y == apart).unwrap_or(f64::NAN)
                })
                .collect();
            alike(name, &told, &rows("", ", live less virtual"));
        }
        Subject::QosAccuracy => {
            let deep = height(0, "deep");
            let worst = rows("deep, ", " cases").into_iter().fold(0.0, f64::max);
            alike(name, &deep[deep.len() - 1..], &[worst]);
        }
    }
}

/// The part of the reads that the chart says are answered within the table's percentile is that percentile.
fn quantiles_are_on_the_curves(figure: &Figure) {
    for (label, part) in [("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)] {
        for curve in &figure.charts[0].curves {
            let mode = curve.name.split(' ').next().unwrap_or_default();
            let within = ours(figure, &format!("{mode}: {label} of reads"));
            // A percentile stands for its bucket, which is answered whole at the next point, and a percent is how wide buckets are.
            let answered =
                |limit: f64| curve.points.iter().filter(|(x, _)| *x <= limit).map(|(_, y)| *y).fold(0.0, f64::max);
            let (before, after) = (answered(within * 0.98), answered(within * 1.02));
            assert!(
                before <= part + 1e-9 && after >= part,
                "{}, {label}: {within} us, {before} to {after}",
                curve.name
            );
        }
    }
}

#[test]
fn every_chart_says_what_the_table_says_in_plain_texts() {
    // The planner's model and its campaign take minutes, a small one of each stands for them; the data sheets' and the store's have tests.
    use Subject::{Datasheets, PlanCampaign, QosAccuracy, StoreScale};
    let long = |s: &Subject| matches!(s, QosAccuracy | PlanCampaign | Datasheets | StoreScale);
    for subject in Subject::ALL.into_iter().filter(|s| !long(s)) {
        let figure = made(subject);
        charts_are_tables(&figure);
        for text in texts(&figure) {
            assert!(!text.contains(['\\', '\n']) && !text.contains("  "), "{subject}: {text:?}");
        }
    }
    charts_are_tables(&plan_campaign(2, &mut |_| {}).unwrap());
}

#[test]
fn the_report_is_one_well_formed_page() {
    for subject in [Subject::FemuFig2b, Subject::FemuFig3, Subject::FemuFig4, Subject::QosFig1, Subject::QosFig6] {
        let page = made(subject).html();
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        for tag in ["table", "tr", "td", "svg", "p", "figure", "body", "text"] {
            let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{subject}: <{tag}>");
        }
        assert!(!page.contains("NaN") && !page.contains("inf"), "{subject}");
        assert!(!page.contains("http"), "nothing is loaded");
    }
}

#[test]
fn qos_accuracy() {
    let grid = Grid { capacities: &[1.0], victims: &["greedy"], depths: &[3], sizes: &[4096], reads: &[100] };
    let (cases, flash) = ([6, 3, 4, 3], [2, 0, 0]);
    let extent = accuracy::CaseCounts { cases, flash, grid, drawn: 0, commands: (100_000.0, 900_000.0) };
    let figure = accuracy::figure_of(extent, &mut Fake).unwrap();
    let bad: Vec<String> = figure.rows.iter().filter(|r| !r.ok()).map(|r| format!("{}: {}", r.label, r.ours)).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let first = ours(&figure, "equation 2, drr, ρ = λ/γ: worst");
    assert!((13.0..15.0).contains(&first), "14 % by the first reading, not {first}");
    assert!(ours(&figure, "equation 2, drr, ρ of its own share: worst") < 2.0);
    charts_are_tables(&figure);
    assert!(ours(&figure, "equation 2, medium and low below their shares: worst") > 5.0);
    assert_eq!(figure.charts[1].curves[0].points.len(), 11);
}
