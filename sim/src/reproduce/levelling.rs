//! Static wear levelling: how far blocks lag, and what it costs, against the bounds of its paper.

use super::{Chart, Curve, Figure, LiveMeasurements, Row, Scale, Subject};
use weir_flash::{Flash, FlashDriveConfig, FlashOp, FtlConfig, Precondition, Preset, SplitMix64, Wear};
use weir_units::{Bytes, Nanos};

const BLOCKS: u32 = 128;
const PAGES: u32 = 8;

/// Blocks whose data is never written again, and how it stands to all others.
const COLD: [(u32, &str); 2] = [(120, "15:1"), (64, "1:1")];
/// Erases that a block may lag.
const GAPS: [u32; 3] = [10, 30, 100];

/// Turns, of as many erases as let each block wear by the gap, before and while the costs are counted.
const BEFORE: u64 = 5;
const COUNTED: u64 = 20;

/// A drive of which only the hot data is written.
struct Drive {
    flash: Flash,
    rng: SplitMix64,
    now: Nanos,
    cold_units: u32,
}

impl Drive {
    fn new(cold: u32, policy: Wear, gap: u32) -> Drive {
        let mut config = FlashDriveConfig::preset(Preset::FemuBbssd, false);
        let geometry = &mut config.geometry;
        (geometry.channels, geometry.ways, geometry.blocks, geometry.pages) = (1, 1, BLOCKS, PAGES);
        let others = BLOCKS - cold;
        let hot = (others / 2).min(others - 5);
        config.ftl = FtlConfig { capacity: Some(Bytes(u64::from((cold + hot) * PAGES) * 4096)), ..FtlConfig::DEFAULT };
        (config.ftl.wear.policy, config.ftl.wear.gap) = (policy, gap);
        let mut flash = Flash::new(&config, Nanos(0)).expect("a small drive of the preset");
        flash.precondition(Precondition::Sequential);
        Drive { flash, rng: SplitMix64::new(3), now: Nanos(0), cold_units: cold * PAGES }
    }

    /// Writes hot data until that many blocks were erased since the counters were reset.
    fn wear(&mut self, erases: u64) {
        while self.flash.stats().erases < erases {
            let hot = self.rng.below(self.flash.units() - self.cold_units);
            self.now = self.flash.submit(self.now, FlashOp::Write { fua: false }, self.cold_units + hot, 1);
        }
    }

    /// Erases and copies for each write, once data has moved for a while.
    fn costs(&mut self, gap: u32) -> [f64; 2] {
        self.flash.reset_stats();
        self.wear(BEFORE * turn(gap));
        self.flash.reset_stats();
        self.wear(COUNTED * turn(gap));
        let stats = self.flash.stats();
        [stats.erases, stats.gc_moves].map(|n| n as f64 / stats.host_writes as f64)
    }

    /// Erases between the most and the least worn block.
    fn lag(&self) -> f64 {
        let wear = self.flash.wear();
        f64::from(wear.max - wear.min)
    }
}

fn turn(gap: u32) -> u64 {
    u64::from(gap * BLOCKS)
}

/// C / (T (H + C) - C).
fn bound(cold: u32, gap: u32) -> f64 {
    f64::from(cold) / (turn(gap) as f64 - f64::from(cold))
}

fn erases_label(ratio: &str, gap: u32) -> String {
    format!("cold to hot {ratio}, gap {gap}: more erases")
}

fn lag_label(how: &str, turns: u64) -> String {
    format!("1:1, {how}: lag after {turns} turns")
}

/// What levelling costs beside none, in percent.
fn costs(live: &mut dyn LiveMeasurements) -> Vec<Row> {
    let mut rows = Vec::new();
    for (i, (cold, ratio)) in COLD.into_iter().enumerate() {
        for gap in GAPS {
            // For as long: what collection costs differs a little with the writes that are drawn.
            let without = Drive::new(cold, Wear::Dynamic, gap).costs(gap);
            let mut drive = Drive::new(cold, Wear::Static, gap);
            let with = drive.costs(gap);
            let [erases, copies] = [0, 1].map(|i| (with[i] / without[i] - 1.0) * 100.0);
            let most = bound(cold, gap) * 100.0;
            let most_copies = most * f64::from(PAGES) * without[0] / without[1];
            rows.push(Row::relation(
                erases_label(ratio, gap),
                erases,
                "%",
                erases > 0.0 && erases < 1.05 * most,
                format!("at most C / (T (H + C) - C) = {most:.3} %, within 5 %"),
            ));
            rows.push(Row::relation(
                format!("cold to hot {ratio}, gap {gap}: more copies"),
                copies,
                "%",
                copies > 0.0 && copies < 1.05 * most_copies,
                format!("at most C N / ((T (H + C) - C) L) = {most_copies:.2} %, within 5 %"),
            ));
            rows.push(Row::relation(
                format!("cold to hot {ratio}, gap {gap}: lag"),
                drive.lag(),
                "erases",
                drive.lag() <= f64::from(gap + 3),
                "no more than 3 over the gap",
            ));
        }
        live.progress((i + 1) as f64 / 3.0);
    }
    rows
}

const LAST: u64 = 8;

/// How far blocks lag as the drive ages.
fn lags() -> Vec<Row> {
    let gap = GAPS[2];
    let mut rows = Vec::new();
    for (how, policy) in [("dynamic", Wear::Dynamic), ("static", Wear::Static)] {
        let mut drive = Drive::new(COLD[1].0, policy, gap);
        for turns in 1..=LAST {
            drive.wear(turns * turn(gap));
            let (label, lag) = (lag_label(how, turns), drive.lag());
            rows.push(match policy {
                Wear::Static => Row::relation(
                    label,
                    lag,
                    "erases",
                    lag <= f64::from(gap + 8),
                    "no more than 8 over the gap: 64 blocks that begin at one level move one in 5 erases, and 64 others wear meanwhile",
                ),
                _ => Row::told(label, lag, "erases", "blocks of cold data are never erased"),
            });
        }
    }
    rows
}

pub(super) fn figure(live: &mut dyn LiveMeasurements) -> Figure {
    let mut rows = costs(live);
    rows.extend(lags());
    live.progress(1.0);
    let lag = |how: &str| Curve::of_rows(how, &rows, (1..=LAST).map(|turns| (turns as f64, lag_label(how, turns))));
    let ours = |ratio: &str| Curve::of_rows(ratio, &rows, GAPS.map(|gap| (f64::from(gap), erases_label(ratio, gap))));
    let most = |(cold, ratio): (u32, &str)| Curve {
        name: format!("{ratio}, bound"),
        points: GAPS.map(|gap| (f64::from(gap), bound(cold, gap) * 100.0)).to_vec(),
    };
    let charts = vec![
        Chart {
            title: "Erases between the most and the least worn block",
            axes: ("turns of 100 erases a block", "erases"),
            scales: (Scale::Linear, Scale::Linear),
            curves: vec![lag("dynamic"), lag("static")],
            marks: Vec::new(),
        },
        Chart {
            title: "Erases that static wear levelling adds",
            axes: ("wear_gap, erases", "more erases, %"),
            scales: (Scale::Log, Scale::Log),
            curves: COLD.into_iter().flat_map(|cold| [ours(cold.1), most(cold)]).collect(),
            marks: Vec::new(),
        },
    ];
    Figure {
        subject: Subject::WearLevelling,
        about: vec![
            format!(
                "Static wear levelling (wear = \"static\") against dynamic on {BLOCKS} blocks of {PAGES} pages: cold data that is never \
                 written again, and uniform random writes to the rest, of which data fills half of the blocks at most."
            ),
            "Bounds: Chang, Hsieh and Kuo, \"Endurance Enhancement of Flash-Memory Storage Systems: An Efficient Static Wear Leveling \
             Design\", DAC 2007, section 4.2, for C blocks of cold data, H others, N pages a block, L copies an erase; their T is \
             wear_gap. Table 2 has 0.946 % for 15:1 and 0.503 % for 1:1 at T = 100."
                .to_string(),
        ],
        rows,
        notes: vec![
            "The paper's deviations of erase counts are those of a trace that is not public: they are not repeated.".to_string(),
        ],
        charts,
    }
}
