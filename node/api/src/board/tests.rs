//! Pictures from samples, step by step.

use super::changes::MOST;
use super::collector::{Collector, Sample};
use super::history::{History, Kind, MOST_SERIES, POINTS, STEP_S};
use super::*;
use serde_json::json;

/// A node of one drive and one tenant, after so many seconds and reads of 4 KiB.
fn sample(uptime_s: f64, reads: u64) -> Sample {
    let io =
        json!({"reads": reads, "writes": 0, "others": 0, "read_bytes": reads * 4096, "written_bytes": 0, "errors": 0});
    let attained = json!({"device": "ssd0", "state": "met", "since_s": 1, "periods": 1, "missed": 0, "missed_rate": 0, "missed_latency": 0,
        "last": {"commands": 1, "iops": 1, "bandwidth_bytes_per_s": 1, "p50_ns": 10, "p99_ns": 20, "p999_ns": 30, "max_ns": 40,
            "missed_rate": false, "missed_latency": false}});
    let status = json!({"node": "n1", "version": "0", "pid": 1, "state": "serving", "uptime_s": uptime_s, "api": [],
        "shards": [{"core": 0, "poll": false, "cpu_s": 0.0, "busy_pct": 40.0}], "doors": [],
        "exports": [{"device": "ssd0", "door": "nvme-tcp", "addresses": ["127.0.0.1:4420"], "class_from": "tenant", "queues": 4,
            "read_only": false, "clients": 3}],
        "devices": [{"name": "ssd0", "nqn": "n", "serial": "s", "media": "ram", "interface": "block", "capacity_bytes": 1,
            "block_size": 512, "latency_ns": 0, "slots": 4, "slots_busy": 1, "slot_bytes": 1,
            "arbitration": weir_config::Arbitration::default(), "cost": "bytes", "core": 0, "controllers": 1, "queues": 2, "io": io}],
        "tenants": [{"name": "gold", "class": "high", "urgent": false, "weight": 16, "hosts": [], "controllers": 1, "queues": 2,
            "attainment": [attained], "io": io}]});
    let status = serde_json::from_value(status).expect("a status");
    Sample {
        status,
        pools: Vec::new(),
        volumes: Vec::new(),
        store: None,
        upgrade: Default::default(),
        generation: 0,
        unix_ms: 0,
        events: Vec::new(),
    }
}

#[test]
fn rates_are_differences_and_counters_that_begin_anew_count_from_nothing() {
    let mut collector = Collector::default();
    let first = collector.apply(&sample(5.0, 1000));
    assert_eq!((first.number, first.span_s, first.devices[0].rates), (1, 0.0, DoneRates::default()));
    let second = collector.apply(&sample(7.0, 3000));
    assert_eq!((second.span_s, second.devices[0].rates.iops), (2.0, 1000.0));
    assert_eq!(second.tenants[0].rates.read_bytes_per_s, 1000.0 * 4096.0);
    assert_eq!((second.tenants[0].share_pct, second.devices[0].slots_busy_pct), (100.0, 25.0));
    assert_eq!(second.tenants[0].latency.map(|l| l.p999_ns), Some(30));
    assert_eq!((second.exports[0].of.as_str(), second.exports[0].clients), ("ssd0", 3));
    let anew = collector.apply(&sample(8.0, 10));
    assert_eq!(anew.devices[0].rates.iops, 10.0);
}

#[test]
fn an_hour_is_kept_in_steps_and_no_more() {
    let mut collector = Collector::default();
    // 100 reads a second, then nothing.
    for second in 0..=2 * POINTS as u64 * STEP_S {
        collector.apply(&sample(second as f64, 100 * second));
    }
    let found = collector.history.of(Kind::Device, "ssd0").expect("a history");
    assert_eq!((found.step_s, found.series[0].quantity.as_str()), (STEP_S, "iops"));
    assert_eq!(found.series[0].values.len(), POINTS);
    assert!(found.series[0].values.iter().all(|v| *v == Some(100.0)), "{:?}", found.series[0].values);
    let tenant = collector.history.of(Kind::Tenant, "gold").expect("a history");
    let p99 = tenant.series.iter().find(|s| s.quantity == "p99_ns").expect("latencies");
    assert_eq!(p99.values.last(), Some(&Some(20.0)));
    let overview = collector.history.overview();
    assert_eq!((overview.step_s, overview.devices[0].values.len()), (60, 60));
    assert_eq!(overview.devices[0].values[59], Some(409_600.0));
    assert_eq!((overview.exports[0].name.as_str(), overview.exports[0].values[59]), ("ssd0@nvme-tcp", Some(3.0)));
    assert_eq!(collector.history.of(Kind::Export, "ssd0@nvme-tcp").expect("clients").series[0].values[0], Some(3.0));
    assert!(collector.history.of(Kind::Tenant, "ssd0").is_none());
}

#[test]
fn what_was_not_there_is_a_gap_and_what_has_gone_is_forgotten() {
    let mut history = History::default();
    assert!(history.record(Kind::Tenant, "a", 1.0, &[5.0]));
    history.advance(40.0);
    assert!(history.record(Kind::Tenant, "a", 1.0, &[7.0]));
    history.advance(50.0);
    let values = history.of(Kind::Tenant, "a").expect("a history").series.remove(0).values;
    assert_eq!(values, [Some(5.0), None, None, None, Some(7.0)]);
    history.advance(50.0 + (POINTS as u64 * STEP_S) as f64 + 10.0);
    assert!(history.of(Kind::Tenant, "a").is_none());
}

#[test]
fn there_is_room_for_so_many_and_no_more() {
    let mut history = History::default();
    for i in 0..MOST_SERIES {
        assert!(history.record(Kind::Tenant, &i.to_string(), 1.0, &[1.0]));
    }
    assert!(!history.record(Kind::Tenant, "one more", 1.0, &[1.0]));
    assert!(history.record(Kind::Tenant, "7", 1.0, &[1.0]));
}

#[test]
fn events_and_changes_are_on_the_time_line() {
    let mut collector = Collector::default();
    let mut found = sample(1.0, 0);
    let event =
        NodeEvent { number: 7, unix_ms: 900, kind: "worker".into(), what: "serving".into(), ..NodeEvent::default() };
    (found.unix_ms, found.events) = (1000, vec![event.clone()]);
    collector.changed(950, "gold", "PATCH /v1/tenants/gold".into());
    let board = collector.apply(&found);
    assert_eq!((board.unix_ms, &board.events), (1000, &vec![event]));
    let change = BoardChange { number: 1, unix_ms: 950, subject: "gold".into(), text: "PATCH /v1/tenants/gold".into() };
    assert_eq!(board.changes, [change]);
    for i in 0..1000 {
        collector.changed(1000 + i, "x", String::new());
    }
    let changes = collector.apply(&found).changes;
    assert_eq!((changes.len(), changes[0].number), (MOST, 1002 - MOST as u64));
}

#[test]
fn lists_are_bounded() {
    let mut large = sample(1.0, 0);
    let tenant = large.status.tenants[0].clone();
    let name = |i: usize| crate::TenantStatus { name: format!("t{i}"), ..tenant.clone() };
    large.status.tenants = (0..MOST_ROWS + 5).map(name).collect();
    let board = Collector::default().apply(&large);
    assert_eq!((board.tenants.len(), board.left_out), (MOST_ROWS, 5));
}

/// A store of which so many blocks of 1 MiB have gone from `dram`.
fn with_demotion(uptime_s: f64, blocks: u64) -> Sample {
    let class = json!({"class": "dram", "bytes": 100 << 20, "used_bytes": 95 << 20, "over": true, "moved_blocks": blocks,
        "moved_bytes": blocks << 20, "hot": 7, "kept": 0, "no_next": 0, "has_writer": 0, "unsettled": 0, "no_copy": 0, "no_room": 2,
        "no_node": 0, "failed": 0, "why_failed": null});
    let store = json!({"service": 1, "store": "0", "created_ns": 0, "running_ns": 0, "durability": "power", "metadata": "m",
        "sessions": 1, "connections": 1, "handles": 0, "requests": 10, "trouble": null, "services": [], "classes": [], "namespaces": [],
        "demotion": {"high_percent": 90.0, "low_percent": 80.0, "classes": [class]}});
    let store = serde_json::from_value(store).expect("a store");
    Sample { store: Some(Ok(store)), ..sample(uptime_s, 0) }
}

#[test]
fn what_goes_to_the_next_class_has_a_rate() {
    let mut collector = Collector::default();
    let mut look = |uptime_s, blocks| {
        let store = collector.apply(&with_demotion(uptime_s, blocks)).store.expect("a store");
        let [found] = &store.demotion[..] else { panic!("{store:?}") };
        (found.blocks_per_s, found.bytes_per_s, found.counts.moved_blocks)
    };
    assert_eq!(look(5.0, 100), (0.0, 0.0, 100), "nobody knows since when");
    assert_eq!(look(7.0, 104), (2.0, 2.0 * 1_048_576.0, 104));
    assert_eq!(look(8.0, 104), (0.0, 0.0, 104));
    assert_eq!(look(10.0, 6).0, 3.0, "another process counts from nothing");
    let mut old = with_demotion(11.0, 0);
    if let Some(Ok(store)) = &mut old.store {
        store.demotion = None;
    }
    assert_eq!(collector.apply(&old).store.expect("a store").demotion, [], "a service of an older release");
}
