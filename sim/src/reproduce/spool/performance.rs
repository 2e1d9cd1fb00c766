//! Table 2 and figures 15, 16 and 17: its ten cases on a raw drive, a volume, a volume without journal, three volumes.

use super::{CASES, Case, MACHINE, Metric, PaperDrive, Server};
use crate::reproduce::numbers::median;
use crate::reproduce::pairs::Interval;
use crate::reproduce::{Chart, Curve, Figure, LiveMeasurements, PrintedBound, Row, Scale, Subject};
use weir_units::Nanos;
use weir_workload::Summary;

const LATENCY: &str = "Compared with Spool-NoJ, Spool increases the average data access latency no more than 3%.";
const IOPS: &str = "Meanwhile, Spool reduces the IOPS by less than 0.76% compared with Spool-NoJ.";
const SIMILAR: &str = "the SSD device achieves similar IOPS when the SSD is used by a single VM and three VMs";
const THREE: &str =
    "The data access latency of the benchmarks when the SSD is shared by three VMs is three times that of case 1.";
const LONGER: &str =
    "all the I/O virtualization systems result in longer data access latency compared with the native access";
const VIRTIO: &str = "the IOPS of Randread with Spool is 2.54x higher than Virtio and even slightly better than the native bare \
                      metal.";

/// The case that the text of figure 15 is about.
const RANDREAD: &str = "IOPS, Randread";

/// What two alike may differ by.
const ALIKE: f64 = 0.15;
const LITTLE: &str = "at most 1.15 (not in the paper)";

/// So wide, in percent, the interval of what the journal costs may be before more pairs are measured than the least, a group at a time, up to
/// so many: a machine that does other things as well needs more of them. Only the width decides, never where the interval lies.
const WIDE: f64 = 1.0;
const LEAST: usize = 4 * GROUP;
const MOST: usize = 20 * GROUP;

/// So many pairs two nodes serve, and then two others: what two processes of one program may differ by for all of their lives is not
/// the journal's.
const GROUP: usize = 8;

/// Runs of nothing before it is given up.
const ATTEMPTS: u32 = 5;

/// How thoroughly.
#[derive(Clone, Copy)]
struct Effort {
    /// Of a run.
    time: Nanos,
    /// Pairs with and without journal.
    pairs: usize,
    /// Rounds of what is no pair.
    rounds: usize,
    full: bool,
}

impl Effort {
    fn of(live: &dyn LiveMeasurements) -> Effort {
        match live.is_full() {
            // In shorter ones writes are told that only a drive's buffer takes: who was idle before is a fifth faster for 0.1 s.
            true => Effort { time: Nanos::from_millis(250), pairs: LEAST, rounds: 5, full: true },
            // With fewer than six pairs there is no interval.
            false => Effort { time: Nanos::from_millis(60), pairs: 6, rounds: 3, full: false },
        }
    }

    fn about(self) -> String {
        format!(
            "Medians of runs of {}, {} with and without journal in turn{}, {} of the others; everything on one drive has its tenant of \
             the same class.{}",
            self.time,
            self.pairs,
            if self.full {
                format!(
                    ", up to {MOST}, {GROUP} of each two nodes, until the interval of their difference is at most {WIDE} % wide"
                )
            } else {
                String::new()
            },
            self.rounds,
            if self.full {
                ""
            } else {
                " --full takes some minutes, and its intervals are narrow enough to judge what the journal costs."
            }
        )
    }
}

/// Everything that one server gave in one case: by round, then by volume.
struct Found {
    server: Server,
    rounds: Vec<Vec<Summary>>,
}

impl Found {
    /// The metric by round: rates of several volumes add up, and so do latencies, as the paper adds them.
    fn values(&self, case: &Case) -> Vec<f64> {
        self.rounds.iter().map(|volumes| volumes.iter().map(|s| case.of(s)).sum()).collect()
    }

    fn median(&self, case: &Case) -> f64 {
        median(self.values(case))
    }

    /// The least that a volume got over the most, median of the rounds.
    fn fairness(&self, case: &Case) -> f64 {
        let one = |volumes: &Vec<Summary>| {
            let got: Vec<f64> = volumes.iter().map(|s| case.of(s)).collect();
            got.iter().copied().fold(f64::INFINITY, f64::min) / got.iter().copied().fold(0.0, f64::max)
        };
        median(self.rounds.iter().map(one).collect())
    }
}

/// All servers in turn, every other round in the opposite order.
fn measured(
    live: &mut dyn LiveMeasurements,
    servers: &[Server],
    drive: PaperDrive,
    case: &Case,
    effort: Effort,
) -> Result<Vec<Found>, String> {
    let mut found: Vec<Found> = servers.iter().map(|s| Found { server: *s, rounds: Vec::new() }).collect();
    let paired = |server: Server| servers.contains(&Server::NoJournal) && is_pair(server);
    let (mut round, mut pairs) = (0, effort.pairs);
    while round < pairs.max(effort.rounds) {
        let order: Vec<usize> = match round % 2 {
            0 => (0..servers.len()).collect(),
            _ => (0..servers.len()).rev().collect(),
        };
        for at in order {
            let wanted = if paired(servers[at]) { pairs } else { effort.rounds };
            if round < wanted {
                let run = answered(live, servers[at], drive, case, effort.time);
                found[at].rounds.push(run.map_err(|e| format!("{}, {}: {e}", case.name, servers[at].name()))?);
            }
        }
        round += 1;
        let is_wide = |found: &[Found]| journal(found, case).is_some_and(|i| i.high - i.low > WIDE);
        if effort.full && round % GROUP == 0 {
            live.nodes().leave();
            if round == pairs && pairs < MOST && is_wide(&found) {
                pairs += GROUP;
            }
        }
    }
    Ok(found)
}

/// A run in which every volume was served; on a machine that is busy with something else a short one may not be.
fn answered(
    live: &mut dyn LiveMeasurements,
    server: Server,
    drive: PaperDrive,
    case: &Case,
    time: Nanos,
) -> Result<Vec<Summary>, String> {
    for _ in 0..ATTEMPTS {
        let run = live.nodes().run(server, drive, case, time)?;
        if run.iter().all(|summary| summary.iops > 0.0) {
            return Ok(run);
        }
    }
    Err(format!("no request was answered in {time}, {ATTEMPTS} times"))
}

fn is_pair(server: Server) -> bool {
    matches!(server, Server::Volumes(1) | Server::NoJournal)
}

fn by(found: &[Found], server: Server) -> Option<&Found> {
    found.iter().find(|f| f.server == server)
}

/// What the journal costs, in percent of what there is without it: a positive number is a loss.
fn journal(found: &[Found], case: &Case) -> Option<Interval> {
    let (with, without) = (by(found, Server::Volumes(1))?, by(found, Server::NoJournal)?);
    let pairs = with.values(case).into_iter().zip(without.values(case));
    // Of the logarithms: of two alike of which each is faster in turn, the losses are not about 0, because a fifth less is made good
    // by a quarter more.
    let logs: Vec<f64> = pairs.map(|(with, without)| (with / without).ln()).collect();
    let Interval { middle, low, high } = Interval::of(&logs);
    let loss = |log: f64| case.loss(log.exp(), 1.0) * 100.0;
    let (one, other) = (loss(low), loss(high));
    Some(Interval { middle: loss(middle), low: one.min(other), high: one.max(other) })
}

/// Held to the paper's number by the whole interval; one that has the number inside says nothing.
fn journal_row(label: String, case: &Case, interval: Interval) -> Row {
    let (value, quote) = if case.metric == Metric::Latency { (3.0, LATENCY) } else { (0.76, IOPS) };
    let holds = interval.high <= value;
    let text = "all of the 95 % interval of the paired difference is at most that";
    Row::beside(label, interval.middle, "%", value, quote, holds, text).disturbed_if(!holds && interval.low <= value)
}

/// What is only told: a run in which a request fails is no run.
fn told(found: &Found, case: &Case, drive: PaperDrive) -> Row {
    let label = format!("{}, {}, {}", case.name, drive.name(), found.server.name());
    Row::told(label, found.median(case), case.unit(), "no request failed")
}

/// One server over another one.
fn over(label: &str, case: &Case, found: &Found, other: &Found) -> (String, f64) {
    (format!("{}, {label}", case.name), found.median(case) / other.median(case))
}

fn interval_note(drive: PaperDrive, case: &Case, interval: Interval) -> String {
    format!("{}, {}: {:+.2} % [{:+.2}, {:+.2}]", drive.name(), case.name, interval.middle, interval.low, interval.high)
}

fn chart(title: &'static str, y: &'static str, curves: Vec<Curve>) -> Chart {
    Chart {
        title,
        axes: ("case, in the order of the table", y),
        scales: (Scale::Linear, Scale::Linear),
        curves,
        marks: Vec::new(),
    }
}

/// A curve over the cases, of their rows.
fn curve(name: impl Into<String>, rows: &[Row], labels: impl IntoIterator<Item = String>) -> Curve {
    Curve::of_rows(name, rows, labels.into_iter().enumerate().map(|(i, label)| ((i + 1) as f64, label)))
}

/// Each server over the first one, case by case, by the rows of [`told`].
fn over_first(all: &[(Case, Vec<Found>)], drive: PaperDrive, rows: &[Row]) -> Vec<Curve> {
    let Some((_, first)) = all.first() else { return Vec::new() };
    let of =
        |at: usize| curve(first[at].server.name(), rows, all.iter().map(|(case, f)| told(&f[at], case, drive).label));
    let over = |at: usize| {
        let Curve { name, points } = of(at);
        let points = points.iter().zip(of(0).points).map(|((x, ours), (_, first))| (*x, ours / first)).collect();
        Curve { name, points }
    };
    (1..first.len()).map(over).collect()
}

fn run(
    live: &mut dyn LiveMeasurements,
    servers: &[Server],
    drive: PaperDrive,
    cases: &[Case],
    (from, to): (f64, f64),
) -> Result<Vec<(Case, Vec<Found>)>, String> {
    let effort = Effort::of(live);
    let mut all = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        all.push((*case, measured(live, servers, drive, case, effort)?));
        live.progress(from + (to - from) * (at + 1) as f64 / cases.len() as f64);
    }
    live.nodes().leave();
    Ok(all)
}

fn of(metrics: &[Metric]) -> Vec<Case> {
    CASES.into_iter().filter(|c| metrics.contains(&c.metric)).collect()
}

/// Rows on how several volumes share a drive.
fn shared_rows(all: &[(Case, Vec<Found>)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (case, found) in all {
        let (Some(one), Some(three)) = (by(found, Server::Volumes(1)), by(found, Server::Volumes(3))) else { continue };
        let (label, ratio) = over("three volumes together over one", case, three, one);
        rows.push(match case.metric {
            Metric::Latency => Row::printed(label, ratio, "", 3.0, PrintedBound::Within(25.0), THREE),
            _ => {
                let text = format!("what one gets within {} %: \"{SIMILAR}\"", ALIKE * 100.0);
                Row::relation(label, ratio, "", (ratio - 1.0).abs() <= ALIKE, text)
            }
        });
        if case.metric != Metric::Latency {
            let fair = three.fairness(case);
            let label = format!("{}, least of three over most", case.name);
            let text = format!("alike ask and get alike: at least {}", 1.0 - ALIKE);
            rows.push(Row::relation(label, fair, "", fair >= 1.0 - ALIKE, text));
        }
    }
    rows
}

fn peer(live: &mut dyn LiveMeasurements) -> (bool, Option<String>) {
    let there = live.nodes().has_qemu();
    let note =
        "qemu-storage-daemon is not installed here (apt: qemu-utils or qemu-system-common), so its rows are missing.";
    (there, (!there).then(|| note.into()))
}

/// Table 2: the ten cases on everything there is.
pub(crate) fn table2(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let (qemu, missing) = peer(live);
    let mut servers = vec![Server::Raw, Server::Volumes(1), Server::NoJournal, Server::Volumes(3)];
    servers.extend(qemu.then_some(Server::Qemu));
    let effort = Effort::of(live);
    let all = run(live, &servers, PaperDrive::Pm963, &CASES, (0.0, 1.0))?;
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for (case, found) in &all {
        rows.extend(found.iter().map(|f| told(f, case, PaperDrive::Pm963)));
        if let Some(interval) = journal(found, case) {
            rows.push(journal_row(format!("{}, journal costs", case.name), case, interval));
            notes.push(interval_note(PaperDrive::Pm963, case, interval));
        }
    }
    rows.extend(shared_rows(&all));
    let charts = vec![chart("Over the raw drive", "ratio", over_first(&all, PaperDrive::Pm963, &rows))];
    let mut all_notes = vec![format!(
        "What the journal costs, pair by pair (Hodges and Lehmann's estimate), with its 95 % interval by signed ranks: {}.",
        notes.join("; ")
    )];
    all_notes.extend(missing);
    Ok(Figure {
        subject: Subject::SpoolTable2,
        about: vec![
            MACHINE.into(),
            effort.about(),
            "Table 2 is a list of cases, without results: the numbers in the column of the paper are what section 7.6 and figure 16's \
             text say of them. A mix of 70 % reads is run whole; Mixread tells its reads and Mixwrite its writes. \
             qemu-storage-daemon exports a file in memory, without a drive's times, so it stands beside and is compared with nothing."
                .into(),
        ],
        rows,
        notes: all_notes,
        charts,
    })
}

/// Figure 15: one volume.
pub(crate) fn fig15(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let (qemu, missing) = peer(live);
    let cases = of(&[Metric::Iops, Metric::Latency]);
    let effort = Effort::of(live);
    let modelled = run(live, &[Server::Raw, Server::Volumes(1)], PaperDrive::Pm963, &cases, (0.0, 0.7))?;
    let mut rows = Vec::new();
    for (case, found) in &modelled {
        rows.extend(found.iter().map(|f| told(f, case, PaperDrive::Pm963)));
        let (label, ratio) = over("volume over raw drive", case, &found[1], &found[0]);
        rows.push(match case.metric {
            Metric::Latency => Row::relation(label, ratio, "", ratio > 1.0, format!("longer: \"{LONGER}\"")),
            _ if case.name == RANDREAD => Row::relation(label, ratio, "", ratio > 1.0, format!("more: \"{VIRTIO}\"")),
            _ => {
                let text = format!("at least {} of the raw drive's (not in the paper)", 1.0 - ALIKE);
                Row::relation(label, ratio, "", ratio >= 1.0 - ALIKE, text)
            }
        });
        if case.metric == Metric::Latency {
            let (label, text) = (over("volume over raw drive, no more than", case, &found[1], &found[0]).0, LITTLE);
            rows.push(Row::relation(label, ratio, "", ratio <= 1.0 + ALIKE, text));
        }
    }
    let mut charts = vec![chart("Volume over the raw drive", "ratio", over_first(&modelled, PaperDrive::Pm963, &rows))];
    if qemu {
        let memory = run(live, &[Server::Qemu, Server::Volumes(1)], PaperDrive::Ram, &cases, (0.7, 1.0))?;
        for (case, found) in &memory {
            rows.extend(found.iter().map(|f| told(f, case, PaperDrive::Ram)));
            if case.name != RANDREAD {
                continue;
            }
            let ratio = found[1].median(case) / found[0].median(case);
            let text = "more than qemu-storage-daemon, whose block layer and I/O thread are Virtio's in the paper";
            let label = "IOPS, Randread, volume in memory over qemu-storage-daemon".to_string();
            rows.push(Row::beside(label, ratio, "", 2.54, VIRTIO, ratio > 1.0, text));
        }
        charts.push(chart("In memory, over qemu-storage-daemon", "ratio", over_first(&memory, PaperDrive::Ram, &rows)));
    }
    Ok(Figure {
        subject: Subject::SpoolFig15,
        about: vec![
            MACHINE.into(),
            effort.about(),
            "SPDK's vhost targets, the paper's other contestants, are not here. Virtio's place has qemu-storage-daemon with a file in \
             memory, against a volume on a drive in memory: no guest, and both served from one core."
                .into(),
        ],
        rows,
        notes: missing.into_iter().collect(),
        charts,
    })
}

/// Figure 16: three volumes of one drive.
pub(crate) fn fig16(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let effort = Effort::of(live);
    let cases = of(&[Metric::Iops, Metric::Latency]);
    let all = run(live, &[Server::Volumes(1), Server::Volumes(3)], PaperDrive::Pm963, &cases, (0.0, 1.0))?;
    let mut rows: Vec<Row> =
        all.iter().flat_map(|(case, found)| found.iter().map(|f| told(f, case, PaperDrive::Pm963))).collect();
    rows.extend(shared_rows(&all));
    let charts = vec![chart("Three volumes together over one", "ratio", over_first(&all, PaperDrive::Pm963, &rows))];
    Ok(Figure {
        subject: Subject::SpoolFig16,
        about: vec![
            MACHINE.into(),
            effort.about(),
            "As in the paper, rates and latencies of three volumes are added up. One thread drives all three, where the paper has three \
             guests. The comparison with SPDK (13 %, 54 to 55 %) is not made: SPDK is not here."
                .into(),
        ],
        rows,
        notes: Vec::new(),
        charts,
    })
}

/// Figure 17: with and without journal.
pub(crate) fn fig17(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let effort = Effort::of(live);
    let cases = of(&[Metric::Iops, Metric::Latency]);
    let (mut rows, mut curves, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for (drive, span) in [(PaperDrive::Pm963, (0.0, 0.5)), (PaperDrive::Ram, (0.5, 1.0))] {
        let all = run(live, &[Server::Volumes(1), Server::NoJournal], drive, &cases, span)?;
        let mut labels = Vec::new();
        for (case, found) in &all {
            rows.extend(found.iter().map(|f| told(f, case, drive)));
            let interval = journal(found, case).ok_or("a contestant is missing")?;
            labels.push(format!("{}, {}, journal costs", case.name, drive.name()));
            rows.extend(labels.last().map(|label| journal_row(label.clone(), case, interval)));
            notes.push(interval_note(drive, case, interval));
        }
        curves.push(curve(drive.name(), &rows, labels));
    }
    Ok(Figure {
        subject: Subject::SpoolFig17,
        about: vec![
            MACHINE.into(),
            effort.about(),
            "A drive in memory answers at once, so that nothing hides what the journal takes; on the modelled drive most of a request's \
             time is the drive's, as in the paper."
                .into(),
        ],
        rows,
        notes: vec![format!("What the journal costs, pair by pair (Hodges and Lehmann's estimate), with its 95 % interval by signed ranks: {}.", notes.join("; "))],
        charts: vec![chart("What the journal costs", "percent", curves)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::RowVerdict;

    fn found(server: Server, iops: &[&[f64]]) -> Found {
        let one = |iops: &f64| Summary { iops: *iops, ..Summary::default() };
        Found { server, rounds: iops.iter().map(|volumes| volumes.iter().map(one).collect()).collect() }
    }

    #[test]
    fn a_loss_is_what_is_missing_or_longer() {
        let (iops, latency) = (CASES[2], CASES[6]);
        assert!((iops.loss(99.0, 100.0) - 0.01).abs() < 1e-12 && (latency.loss(101.0, 100.0) - 0.01).abs() < 1e-12);
        let f = [found(Server::Volumes(1), &[&[99.0], &[98.0]]), found(Server::NoJournal, &[&[100.0], &[100.0]])];
        let interval = journal(&f, &iops).unwrap();
        assert!((interval.middle - 1.5).abs() < 1e-2 && interval.high > 2.0, "{interval:?}");
        let judged = |case, low, middle, high| journal_row("x".into(), case, Interval { middle, low, high }).verdict();
        assert_eq!(judged(&iops, 0.1, 0.3, 0.7), RowVerdict::Held);
        assert_eq!(judged(&iops, 0.1, 0.3, 0.8), RowVerdict::Disturbed, "the paper's 0.76 % lies in the interval");
        assert_eq!(judged(&iops, 60.0, 78.0, 90.0), RowVerdict::Missed);
        assert_eq!(judged(&latency, 0.1, 1.0, 2.9), RowVerdict::Held);
        assert_eq!(judged(&latency, 3.1, 4.0, 5.0), RowVerdict::Missed);
        assert_eq!(judged(&latency, f64::NEG_INFINITY, 78.0, f64::INFINITY), RowVerdict::Disturbed);
    }

    #[test]
    fn who_is_as_often_faster_as_slower_loses_nothing() {
        let rounds = |first: f64, second: f64| -> Vec<Vec<f64>> {
            (0..16).map(|i| vec![if i % 2 == 0 { first } else { second }]).collect()
        };
        let of = |server, rounds: &[Vec<f64>]| found(server, &rounds.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let f = [of(Server::Volumes(1), &rounds(330.0, 420.0)), of(Server::NoJournal, &rounds(420.0, 330.0))];
        let interval = journal(&f, &CASES[5]).unwrap();
        assert!(interval.middle.abs() < 1e-9 && interval.low < 0.0 && interval.high > 0.0, "{interval:?}");
    }

    #[test]
    fn three_volumes_add_up_and_are_alike() {
        let all = |three: &[f64]| {
            let found = vec![found(Server::Volumes(1), &[&[300.0]]), found(Server::Volumes(3), &[three])];
            shared_rows(&[(CASES[2], found)]).iter().map(|r| ((r.ours * 1e6).round() / 1e6, r.ok())).collect::<Vec<_>>()
        };
        assert_eq!(all(&[100.0, 100.0, 100.0]), [(1.0, true), (1.0, true)]);
        assert_eq!(all(&[200.0, 50.0, 50.0]), [(1.0, true), (0.25, false)]);
    }
}
