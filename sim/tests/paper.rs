//! The five synthetic scenarios of "QoS for NVMe" (papers/000, section V-D and Figure 8(b)): two jobs, back to back at
//! depth 128 each, weights 32:16:8 or quanta 128:64:32 KiB. The paper's claim is about the ratio of their bandwidths.

mod common;

use common::{config, moved, world};
use weir_arbiter::Mechanism;
use weir_units::Nanos;

struct Scenario {
    what: &'static str,
    jobs: [&'static str; 2],
    /// Bandwidth of the first to the second.
    drr: f64,
    wrr: f64,
}

const SCENARIOS: [Scenario; 5] = [
    Scenario {
        what: "high 4 KiB, medium 8 KiB",
        jobs: ["name=a,class=high,bs=4KiB,qd=128", "name=b,class=medium,bs=8KiB,qd=128"],
        drr: 2.0,
        wrr: 1.0,
    },
    Scenario {
        what: "high 4 KiB, high 4 KiB",
        jobs: ["name=a,class=high,bs=4KiB,qd=128", "name=b,class=high,bs=4KiB,qd=128"],
        drr: 1.0,
        wrr: 1.0,
    },
    Scenario {
        what: "high 4 KiB, low 8 KiB",
        jobs: ["name=a,class=high,bs=4KiB,qd=128", "name=b,class=low,bs=8KiB,qd=128"],
        drr: 4.0,
        wrr: 2.0,
    },
    Scenario {
        what: "low 4 KiB, high 8 KiB",
        jobs: ["name=a,class=low,bs=4KiB,qd=128", "name=b,class=high,bs=8KiB,qd=128"],
        drr: 0.25,
        wrr: 0.125,
    },
    Scenario {
        what: "high 4+8 KiB, high 8+16 KiB",
        jobs: ["name=a,class=high,bs=4KiB:50/8KiB:50,qd=128", "name=b,class=high,bs=8KiB:50/16KiB:50,qd=128"],
        drr: 1.0,
        wrr: 0.5,
    },
];

fn ratio(scenario: &Scenario, mechanism: Mechanism) -> f64 {
    let mut world = world(config(mechanism), &scenario.jobs, 1);
    let got = moved(&mut world, 2, Nanos::from_millis(50), Nanos::from_millis(1550));
    got[0] / got[1]
}

fn written(ratio: f64) -> String {
    if ratio >= 1.0 { format!("{ratio:.4}:1") } else { format!("1:{:.4}", 1.0 / ratio) }
}

#[test]
fn the_papers_five_scenarios() {
    println!("{:<30}{:>10}{:>12}{:>10}{:>12}{:>12}", "", "drr wants", "gets", "wrr wants", "gets", "none gets");
    let mut wrong = Vec::new();
    for (n, s) in SCENARIOS.iter().enumerate() {
        let drr = ratio(s, Mechanism::Drr);
        let wrr = ratio(s, Mechanism::Wrr);
        let none = ratio(s, Mechanism::None);
        let name = format!("{} {}", n + 1, s.what);
        let [drr_wants, wrr_wants] =
            [s.drr, s.wrr].map(|r| if r >= 1.0 { format!("{r}:1") } else { format!("1:{}", 1.0 / r) });
        println!(
            "{name:<30}{drr_wants:>10}{:>12}{wrr_wants:>10}{:>12}{:>12}",
            written(drr),
            written(wrr),
            written(none)
        );
        for (mechanism, got, want) in [("drr", drr, s.drr), ("wrr", wrr, s.wrr)] {
            if (got / want - 1.0).abs() > 0.005 {
                wrong.push(format!("{name}: {mechanism} {got:.4} instead of {want}"));
            }
        }
    }
    assert!(wrong.is_empty(), "more than 0.5 % off:\n{}", wrong.join("\n"));
}
