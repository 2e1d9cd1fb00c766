//! What is tested, a file for each kind of client.

mod admission;
mod api_tls;
mod at_rest;
mod bench_verify;
mod bindings;
mod classes;
mod cli;
mod crash;
mod crash_aimed;
mod crash_vfio;
mod dashboard;
mod dirty_log;
mod docs;
mod events;
mod every_message;
mod fault_rules;
mod faults;
mod finding;
mod fio;
mod floors;
mod foreign_drives;
mod guest_admin;
mod guest_ana;
mod guest_crash;
mod guest_fdp;
mod guest_io;
mod guest_ns;
mod guest_open_channel;
mod guest_pci;
mod guest_tcp;
mod guest_vfio;
mod guest_vhost;
mod guest_zns;
mod hadoop;
mod health;
mod hostile_tcp;
mod hostile_vfio;
mod hostile_vhost;
mod images;
mod journal;
mod layouts;
mod libblkio;
mod libweir;
mod lifecycle;
mod limits;
mod metrics;
mod model_live;
mod mount;
mod null;
mod packages;
mod plan;
mod policy_library;
mod pool;
mod pool_copies;
mod pool_loss;
mod pool_mirror;
mod pool_online;
mod power;
mod printed_lines;
mod python;
mod realtime;
mod remote;
mod remote_restarts;
mod reproduce;
mod restart;
mod rogue;
mod rogue_connects;
mod shares;
mod snapshots;
mod spark;
mod spdk_preload;
mod store;
mod store_api;
mod store_bench;
mod store_campaign;
mod store_drain;
mod store_etcd;
mod store_etcd_access;
mod store_loss;
mod store_policy;
mod store_scale;
mod store_services;
mod terminal;
mod upgrade;
mod upgrade_vfio;
mod vfio_client;
mod vfio_messages;
mod virtio_driver;

use crate::harness::{Env, Outcome, Test};

/// Every test, in the order in which they run: quick ones first, measuring ones last.
pub fn all() -> Vec<Test> {
    [
        cli::tests(),
        api_tls::tests(),
        metrics::tests(),
        finding::tests(),
        docs::tests(),
        printed_lines::tests(),
        bench_verify::tests(),
        terminal::tests(),
        libweir::tests(),
        packages::tests(),
        python::tests(),
        fio::tests(),
        spdk_preload::tests(),
        store::tests(),
        store_bench::tests(),
        store_api::tests(),
        store_drain::tests(),
        store_loss::tests(),
        store_policy::tests(),
        store_scale::tests(),
        store_etcd::tests(),
        store_etcd_access::tests(),
        store_services::tests(),
        store_campaign::tests(),
        mount::tests(),
        hadoop::tests(),
        virtio_driver::tests(),
        vfio_client::tests(),
        vfio_messages::tests(),
        libblkio::tests(),
        null::tests(),
        hostile_tcp::tests(),
        hostile_vhost::tests(),
        dashboard::tests(),
        dirty_log::tests(),
        hostile_vfio::tests(),
        faults::tests(),
        fault_rules::tests(),
        health::tests(),
        events::tests(),
        crash::tests(),
        crash_aimed::tests(),
        crash_vfio::tests(),
        remote::tests(),
        remote_restarts::tests(),
        every_message::tests(),
        restart::tests(),
        lifecycle::tests(),
        at_rest::tests(),
        upgrade::tests(),
        upgrade_vfio::tests(),
        layouts::tests(),
        admission::tests(),
        plan::tests(),
        policy_library::tests(),
        pool::tests(),
        pool_copies::tests(),
        pool_loss::tests(),
        pool_mirror::tests(),
        pool_online::tests(),
        classes::tests(),
        guest_tcp::tests(),
        guest_zns::tests(),
        guest_fdp::tests(),
        guest_admin::tests(),
        guest_ana::tests(),
        guest_ns::tests(),
        guest_io::tests(),
        power::tests(),
        guest_open_channel::tests(),
        guest_pci::tests(),
        foreign_drives::tests(),
        guest_vhost::tests(),
        journal::tests(),
        guest_vfio::tests(),
        guest_crash::tests(),
        shares::tests(),
        snapshots::tests(),
        spark::tests(),
        images::tests(),
        rogue::tests(),
        rogue_connects::tests(),
        limits::tests(),
        model_live::tests(),
        realtime::tests(),
        floors::tests(),
        reproduce::tests(),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .into_iter()
    .flat_map(|test| [under_a_keeper(&test), Some(test)].into_iter().flatten())
    .map(|test| Test { measures: measures(&test), ..test })
    .collect()
}

/// Suites that measure time or shares.
const MEASURING: [&str; 10] =
    ["admission", "classes", "floors", "limits", "model_live", "realtime", "reproduce", "restart", "rogue", "shares"];

/// Tests of other suites that do, by the beginnings of their names.
const MEASURING_TESTS: [&str; 13] = [
    // A rate.
    "bench_verify::many_jobs",
    // A node's processor time.
    "cli::idle_node_uses_no_cpu",
    // Kills have to find requests in flight on a drive that is slow to start.
    "crash::a_drive_that_collects_notices_no_kill",
    // A guest's memory that changes as fast as it is sent leaves its processor little.
    "guest_vhost::migrates",
    // Load tests of a drive.
    "docs::docs/guides/calibrate.md",
    "docs::docs/guides/shares.md",
    // Shares.
    "pool::shares_are_the_drive's",
    "upgrade_vfio::queues_keep_their_class",
    "vfio_client::deficit_round_robin",
    "vfio_client::weighted_round_robin",
    // How long an upgrade takes, with and without commands under way.
    "upgrade::what_is_begun",
    "upgrade_vfio::what_is_begun",
    // Latencies.
    "vfio_client::first_command_after_a_pause",
];

fn measures(test: &Test) -> bool {
    let name = test.full_name();
    MEASURING.contains(&test.suite) || MEASURING_TESTS.iter().any(|begins| name.starts_with(begins))
}

/// Suites whose clients say to the keeper what they say to a worker elsewhere.
const BOTH_WAYS: [&str; 4] = ["virtio_driver", "hostile_tcp", "hostile_vhost", "hostile_vfio"];

/// The same test of nodes with a keeper.
fn under_a_keeper(test: &Test) -> Option<Test> {
    BOTH_WAYS.contains(&test.suite).then_some(Test { keeper: true, ..*test })
}

/// A test of every run.
fn test(suite: &'static str, name: &'static str, run: fn(&Env) -> Outcome) -> Test {
    Test { suite, name, long: false, keeper: false, measures: false, run }
}

/// A test of `--full`.
fn long(suite: &'static str, name: &'static str, run: fn(&Env) -> Outcome) -> Test {
    Test { suite, name, long: true, keeper: false, measures: false, run }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_different() {
        let mut names: Vec<String> = all().iter().map(Test::full_name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn what_measures_is_there() {
        let all = all();
        for suite in MEASURING {
            assert!(all.iter().any(|test| test.suite == suite), "{suite}");
        }
        for begins in MEASURING_TESTS {
            assert!(all.iter().any(|test| test.full_name().starts_with(begins)), "{begins}");
        }
    }
}
