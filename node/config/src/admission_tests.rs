use super::*;
use crate::{Calibration, CalibrationFile};
use std::path::Path;
use weir_plan::calibrate::{LoadCurve, Test};
use weir_workload::{ByKind, Latency, PARTS, Quantiles};

/// 200,000 IOPS of 4 KiB, 80 us each, 16 at once: `kind = "ram"` with that latency and so many slots, as it is measured.
fn calibration() -> Calibration {
    let test = |depth: u32, reads: u8| {
        let iops = f64::from(depth.min(16)) / 80e-6;
        let mean = f64::from(depth) / iops * 1e9;
        let whole = mean as u64;
        let all = Quantiles { mean, at: [whole; PARTS.len()] };
        let kinds = ByKind { reads: (reads > 0).then_some(all), writes: (reads < 100).then_some(all) };
        Test { depth, iops, latency: Latency { mean, p50: whole, p99: whole, p999: whole, max: whole }, kinds }
    };
    let tests = |reads| [1, 2, 4, 8, 16, 32].map(|depth| test(depth, reads)).to_vec();
    let point = |size, reads| LoadCurve::new(size, reads, tests(reads)).unwrap();
    let points = [4096, 16384].map(|size| [100, 50, 0].map(|reads| point(size, reads))).concat();
    Calibration { weir: String::new(), target: String::new(), date: String::new(), slots: None, points }
}

/// A node with a calibrated drive; `tenants` are the tables' keys.
fn config(tenants: &[&str]) -> Config {
    let mut text = "[[device]]\nlatency = \"80us\"\nslots = 16\n".to_string();
    for (i, keys) in tenants.iter().enumerate() {
        text += &format!("[[tenant]]\nname = \"t{i}\"\nhosts = [\"nqn.t{i}\"]\n{keys}\n");
    }
    let mut config = Config::parse(&text, "t", Path::new("/")).unwrap_or_else(|e| panic!("{e}\n{text}"));
    config.devices[0].calibration = Some(CalibrationFile { path: "c.toml".into(), calibration: calibration() });
    config
}

fn keys(config: &Config) -> Vec<(String, &'static str)> {
    of_config(config).into_iter().map(|b| (b.tenant, b.key)).collect()
}

const HIGH: &str = "class = \"high\"";

#[test]
fn rates_that_the_share_gives_are_admitted_and_others_refused() {
    // DRR 128:64:32 KiB, all asking: high has 4/7 of 200,000.
    let with = |sla: &str| config(&[&format!("{HIGH}\nsla = {{ {sla} }}"), "class = \"medium\"", "class = \"low\""]);
    assert_eq!(keys(&with("iops = 100000")), []);
    let refused = of_config(&with("iops = 125000"));
    assert_eq!((refused.len(), refused[0].key), (1, "sla.iops"));
    let text = refused[0].to_string();
    assert!(text.starts_with("tenant t0 on ssd0: its SLA, 125000 IOPS, cannot be kept: 11"), "{text}");
    assert!(text.ends_with("% too little"), "{text}");
    assert_eq!(keys(&with("bandwidth = \"390MB/s\"")), []);
}

#[test]
fn a_neighbour_that_says_what_it_asks_for_takes_no_more() {
    let own = format!("{HIGH}\nsla = {{ iops = 150000 }}");
    let greedy = config(&[&own, HIGH]);
    let modest = config(&[&own, &format!("{HIGH}\ndemand = {{ rate = \"20k\" }}")]);
    let capped = config(&[&own, &format!("{HIGH}\nceiling = {{ iops = 20000 }}")]);
    assert_eq!(keys(&greedy), [("t0".to_string(), "sla.iops")]);
    assert_eq!((keys(&modest), keys(&capped)), (vec![], vec![]));
}

#[test]
fn floors_hold_nine_tenths_at_the_most() {
    let floor = |iops: u32| format!("floor = {{ iops = {iops} }}");
    assert_eq!(keys(&config(&[&floor(100_000), &floor(79_000)])), []);
    let over = config(&[&floor(100_000), &floor(85_000)]);
    assert_eq!(keys(&over), [("t1".to_string(), "floor")]);
    let text = of_config(&over)[0].to_string();
    assert!(text.contains("42.5 %") && text.contains("92.5 %") && text.contains("90 % is the most"), "{text}");
}

#[test]
fn an_overload_waits_for_ever() {
    let asks = "class = \"low\"\ndemand = { rate = \"100k\" }\nsla = { p99 = \"1s\" }";
    let refused = of_config(&config(&[asks, HIGH]));
    assert_eq!(refused.len(), 1);
    assert!(
        refused[0].to_string().ends_with("it asks for more than its share, and waits ever longer"),
        "{}",
        refused[0]
    );
    assert!(refused[0].by.is_infinite());
}

#[test]
fn who_cannot_reach_the_drive_takes_nothing_of_it() {
    let own = format!("{HIGH}\nsla = {{ iops = 150000 }}");
    let mut alone = config(&[&own, HIGH]);
    assert_eq!(keys(&alone).len(), 1);
    alone.tenants[1].hosts.clear();
    assert_eq!((reach(&alone, 0), keys(&alone)), (vec![0], vec![]));
}

#[test]
fn without_a_calibration_nothing_is_known() {
    let mut blind = config(&["sla = { iops = 1000000 }"]);
    assert_eq!((keys(&blind).len(), unknown(&blind).count()), (1, 0));
    (blind.devices[0].calibration, blind.devices[0].latency) = (None, Nanos(0));
    assert_eq!((keys(&blind).len(), unknown(&blind).collect::<Vec<_>>()), (0, vec!["ssd0"]));
    assert_eq!(unknown(&config(&[HIGH])).count(), 0, "nobody is promised anything");
}

#[test]
fn what_was_broken_before_does_not_forbid_a_change() {
    let broken = config(&[&format!("{HIGH}\nsla = {{ iops = 150000 }}"), HIGH]);
    let (before, after) = (of_config(&broken), of_config(&broken));
    assert_eq!(new(&before, &after).count(), 0);
    assert_eq!(new(&[], &after).count(), 1);
    let worse = config(&[&format!("{HIGH}\nsla = {{ iops = 150000 }}"), HIGH, HIGH]);
    assert_eq!(new(&before, &of_config(&worse)).count(), 1, "it breaks more now");
    assert_eq!(new(&of_config(&worse), &before).count(), 0);
}

#[test]
fn a_latency_alone_forbids_what_the_slots_cannot_do() {
    let with = |device: &str, tenants: [&str; 2]| {
        let one = |(name, keys)| format!("[[tenant]]\nname = \"{name}\"\nhosts = [\"nqn.{name}\"]\n{keys}\n");
        let text =
            format!("[[device]]\n{device}\n{}", ["a", "b"].into_iter().zip(tenants).map(one).collect::<String>());
        Config::parse(&text, "t", Path::new("/")).unwrap_or_else(|e| panic!("{e}\n{text}"))
    };
    let slow = "latency = \"20ms\"\nslots = 1";
    let said =
        |device: &str, tenants| of_config(&with(device, tenants)).iter().map(Breach::to_string).collect::<Vec<_>>();
    assert_eq!(said(slow, ["floor = { iops = 50 }", ""]), [""; 0], "50 a second are what it does");
    assert_eq!(
        said(slow, ["floor = { iops = 100 }", ""]),
        [
            "tenant a on ssd0: its floor, 100 IOPS, cannot be kept: with 1 slots and a latency of 20ms the drive does 50 at the most"
        ]
    );
    let both = said(slow, ["floor = { iops = 40 }", "floor = { iops = 30 }"]);
    assert!(
        both.len() == 1 && both[0].contains("its floor, 30 IOPS (70 with the floors before it), cannot"),
        "{both:?}"
    );
    let sla = said(slow, ["sla = { iops = 60 }", ""]);
    assert!(sla.len() == 1 && sla[0].contains("its SLA, 60 IOPS, cannot be kept"), "{sla:?}");
    assert_eq!(
        said("slots = 1", ["floor = { iops = 100000000 }", ""]),
        [""; 0],
        "nothing is known of a drive without a latency"
    );
}
