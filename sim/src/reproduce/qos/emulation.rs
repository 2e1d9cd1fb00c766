//! Figure 6: how fast the emulation is, over the size of requests and over the number of clients, against the old design.

use crate::reproduce::{Chart, Curve, Figure, Live, Row, Scale, Subject, fig2::median};

/// Requests that a client has outstanding.
pub(super) const DEPTH: u32 = 128;
/// Bytes of requests.
pub(super) const SIZES: [u32; 9] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// So often everything is measured, in turn; medians are told.
pub(super) const ROUNDS: usize = 5;
const CLIENTS: [u32; 5] = [1, 2, 4, 8, 16];
pub(super) const OURS: &str = "ours";

/// A way to choose whom to serve, with everything else the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// A timer for each submission queue, and a thread that empties the queues: [`QueueTimers`](super::QueueTimers).
    Timers,
    /// Weighted round robin.
    Wrr,
    /// Deficit round robin.
    Drr,
}

impl Design {
    pub(super) fn name(self) -> &'static str {
        match self {
            Design::Timers => "old design",
            Design::Wrr => "WRR",
            Design::Drr => "DRR",
        }
    }
}

/// What is asked of it: random requests, 128 outstanding a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// A queue pair each.
    pub clients: u32,
    /// Bytes of a request.
    pub size: u32,
    /// Writes, or else reads.
    pub write: bool,
}

impl Load {
    /// Requests that a client has outstanding.
    pub const DEPTH: u32 = DEPTH;
}

const BETTER: &str =
    "\"In general, the WRR and DRR schemes show better or similar performance than the default emulator\"";
const ALWAYS: &str =
    "\"For our emulator, the throughput is always higher than the default\", with a slight decrease at 8 and 16";
/// Ours may be slower by so much anywhere before a row fails: the paper itself has sizes and clients at which it is.
const SLOWER: f64 = 0.75;

/// The middle of the rounds.
pub(super) fn middle(rounds: &[f64]) -> f64 {
    median(rounds.to_vec())
}

/// Whether the new is as fast as the old, within what two measurements of one thing differ by.
pub(super) fn fastest(new: f64, old: f64) -> bool {
    new >= 0.95 * old
}

/// What was measured along one axis: x, and requests a second by design.
struct Sweep {
    label: Vec<String>,
    x: Vec<f64>,
    speeds: Vec<[f64; 3]>,
}

const DESIGNS: [Design; 3] = [Design::Timers, Design::Wrr, Design::Drr];

fn sweep(live: &mut dyn Live, loads: &[(String, f64, Load)], progress: (f64, f64)) -> Result<Sweep, String> {
    let mut sweep = Sweep { label: Vec::new(), x: Vec::new(), speeds: Vec::new() };
    for (at, (label, x, load)) in loads.iter().enumerate() {
        let speeds = live.speeds(&DESIGNS, *load, ROUNDS)?;
        let [old, wrr, drr] = &speeds[..] else { return Err("a design was not measured".into()) };
        sweep.label.push(label.clone());
        sweep.x.push(*x);
        sweep.speeds.push([middle(old), middle(wrr), middle(drr)]);
        live.progress(progress.0 + (progress.1 - progress.0) * (at + 1) as f64 / loads.len() as f64);
    }
    Ok(sweep)
}

impl Sweep {
    fn rows(&self, what: &str, quote: &str) -> Vec<Row> {
        let mut rows = Vec::new();
        for (way, design) in DESIGNS.into_iter().enumerate().skip(1) {
            let ratios: Vec<f64> = self.speeds.iter().map(|s| s[way] / s[0]).collect();
            for (label, ratio) in self.label.iter().zip(&ratios) {
                let text = format!("nowhere below {SLOWER} of the old design");
                let label = format!("{label}, {} over old design", design.name());
                rows.push(Row::relation(label, *ratio, "", *ratio >= SLOWER, text));
            }
            let count = ratios.iter().filter(|ratio| fastest(**ratio, 1.0)).count();
            let text = format!("at most of the {}, as fast as the old design within 5 %: {quote}", ratios.len());
            let label = format!("{what} at which {} keeps up", design.name());
            rows.push(Row::relation(label, count as f64, "", 2 * count > ratios.len(), text));
        }
        rows
    }

    fn note(&self, what: &str) -> Option<String> {
        let slow = |way: usize| -> Vec<&str> {
            self.label.iter().zip(&self.speeds).filter(|(_, s)| !fastest(s[way], s[0])).map(|(l, _)| &l[..]).collect()
        };
        let told = |way: usize| {
            let slow = slow(way);
            (!slow.is_empty()).then(|| format!("{} at {}", DESIGNS[way].name(), slow.join("; ")))
        };
        let all: Vec<String> = [1, 2].into_iter().filter_map(told).collect();
        (!all.is_empty()).then(|| format!("More than 5 % slower than the old design, {what}: {}.", all.join("; ")))
    }

    fn chart(&self, title: &'static str, axes: (&'static str, &'static str), scale: impl Fn(f64, f64) -> f64) -> Chart {
        let curve = |(way, design): (usize, Design)| Curve {
            name: design.name().into(),
            points: self.x.iter().zip(&self.speeds).map(|(x, s)| (*x, scale(*x, s[way]))).collect(),
        };
        let curves = DESIGNS.into_iter().enumerate().map(curve).collect();
        Chart { title, axes, scales: (Scale::Log, Scale::Linear), curves }
    }
}

pub(in crate::reproduce) fn figure(live: &mut dyn Live) -> Result<Figure, String> {
    let write = |size| (format!("{} KiB writes", size / 1024), f64::from(size), Load { clients: 1, size, write: true });
    let read = |clients| (format!("{clients} clients"), f64::from(clients), Load { clients, size: 4096, write: false });
    let sizes = sweep(live, &SIZES.map(write), (0.0, 0.6))?;
    let clients = sweep(live, &CLIENTS.map(read), (0.6, 1.0))?;
    let mut rows = sizes.rows("sizes", BETTER);
    rows.extend(clients.rows("numbers of clients", ALWAYS));
    let drr: Vec<f64> = clients.speeds.iter().map(|s| s[2] / s[1]).collect();
    let mut notes: Vec<String> = [sizes.note("writes"), clients.note("reads")].into_iter().flatten().collect();
    notes.push(format!(
        "DRR over WRR, 1 to 16 clients: {}. The paper has DRR below WRR everywhere, because it needs more rounds.",
        drr.iter().map(|r| format!("{r:.2}")).collect::<Vec<_>>().join(", ")
    ));
    let mut about = vec![format!(
        "In real time, on a drive in memory: random writes over their size by one client, and 4 KiB random reads by 1 to 16 clients, \
         {DEPTH} outstanding each; medians of {ROUNDS} rounds of all designs in turn. One thread runs the drive and polls all \
         clients, where the paper has a thread for each and one for the controller: so this is what a core gives, and no scaling \
         over cores. A second is one in which that thread had a core."
    )];
    about.extend(about_designs());
    Ok(Figure {
        subject: Subject::QosFig6,
        about,
        rows,
        notes,
        charts: vec![
            sizes.chart("Random writes over the size of requests", ("bytes of a request", "GB/s"), |x, s| x * s / 1e9),
            clients.chart("4 KiB random reads over clients", ("clients", "million requests a second"), |_, s| s / 1e6),
        ],
    })
}

pub(super) fn about_designs() -> Vec<String> {
    vec![
        "The old design chooses as QEMU's device did (text of II.B): a doorbell sets its queue's timer 500 ns ahead; when it is \
         over, the one thread takes up to 64 commands from that queue, and sets it again if there are more. Controller, driver and \
         media are ours in all designs, and the drive empties what it is handed (arbitration = \"none\"), so only the choice differs."
            .into(),
    ]
}
