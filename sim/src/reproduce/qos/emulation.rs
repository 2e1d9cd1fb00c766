//! Figure 6: how fast the emulation is, over the size of requests and over the number of clients, against the old design.

use super::designs::{DEPTH, Design, Load, ROUNDS, SIZES, about_designs, fastest, middle};
use crate::reproduce::{Chart, Curve, Figure, LiveMeasurements, Row, Scale, Subject};

const CLIENTS: [u32; 5] = [1, 2, 4, 8, 16];
const BETTER: &str =
    "\"In general, the WRR and DRR schemes show better or similar performance than the default emulator\"";
const SLIGHTLY: &str = "\"for 8k and 16k sizes, the overheads [...] lead to slightly lower performance than QEMU\"";
const ALWAYS: &str = "\"For our emulator, the throughput is always higher than the default\"";
const LOWER: &str = "\"DRR throughput is lower than WRR for all cases\"";
/// Where the paper itself is slower, by bytes of a write.
const SLOWER: [u32; 2] = [8 << 10, 16 << 10];

/// What was measured along one axis: x, and requests a second by design.
struct Sweep {
    label: Vec<String>,
    x: Vec<f64>,
    speeds: Vec<[f64; 3]>,
}

const DESIGNS: [Design; 3] = [Design::Timers, Design::Wrr, Design::Drr];

fn sweep(
    live: &mut dyn LiveMeasurements,
    loads: &[(String, f64, Load)],
    progress: (f64, f64),
) -> Result<Sweep, String> {
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
    /// A design over the old one, everywhere.
    fn ratios(&self, way: usize) -> impl Iterator<Item = (String, f64, f64)> {
        let label = move |text: &String| format!("{text}, {} over old design", DESIGNS[way].name());
        let all = self.label.iter().zip(&self.x).zip(&self.speeds);
        all.map(move |((text, x), speeds)| (label(text), *x, speeds[way] / speeds[0]))
    }

    /// Writes over their size: in general better or similar.
    fn sizes(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for way in [1, 2] {
            for (label, size, ratio) in self.ratios(way) {
                let text = format!("at least 0.95: {BETTER}");
                rows.push(match SLOWER.map(f64::from).contains(&size) {
                    true => Row::told(label, ratio, "", format!("the paper's is slower here: {SLIGHTLY}")),
                    false => Row::relation(label, ratio, "", fastest(ratio, 1.0), text),
                });
            }
            let count = self.ratios(way).filter(|(_, _, ratio)| fastest(*ratio, 1.0)).count();
            let text = format!("at most of the {}, better, or similar within 5 %: {BETTER}", self.x.len());
            let label = format!("sizes at which {} keeps up", DESIGNS[way].name());
            rows.push(Row::relation(label, count as f64, "", 2 * count > self.x.len(), text));
        }
        rows
    }

    /// Reads over the number of clients: always higher, and DRR below WRR.
    fn clients(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for way in [1, 2] {
            let one =
                |(label, _, ratio)| Row::relation(label, ratio, "", ratio > 1.0, format!("more than 1: {ALWAYS}"));
            rows.extend(self.ratios(way).map(one));
        }
        for (text, speeds) in self.label.iter().zip(&self.speeds) {
            let ratio = speeds[2] / speeds[1];
            let label = format!("{text}, DRR over WRR");
            rows.push(Row::relation(label, ratio, "", ratio < 1.0, format!("less than 1: {LOWER}")));
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
        Chart { title, axes, scales: (Scale::Log, Scale::Linear), curves, marks: Vec::new() }
    }
}

pub(crate) fn figure(live: &mut dyn LiveMeasurements) -> Result<Figure, String> {
    let write = |size| (format!("{} KiB writes", size / 1024), f64::from(size), Load { clients: 1, size, write: true });
    let read = |clients| (format!("{clients} clients"), f64::from(clients), Load { clients, size: 4096, write: false });
    let sizes = sweep(live, &SIZES.map(write), (0.0, 0.6))?;
    let clients = sweep(live, &CLIENTS.map(read), (0.6, 1.0))?;
    let mut rows = sizes.sizes();
    rows.extend(clients.clients());
    let notes = [sizes.note("writes"), clients.note("reads")].into_iter().flatten().collect();
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
