//! What is tested, a file for each kind of client.

mod admission;
mod at_rest;
mod bench_verify;
mod bindings;
mod classes;
mod cli;
mod crash;
mod crash_aimed;
mod crash_vfio;
mod dirty_log;
mod docs;
mod every_message;
mod faults;
mod finding;
mod fio;
mod floors;
mod guest_admin;
mod guest_ana;
mod guest_crash;
mod guest_fdp;
mod guest_io;
mod guest_ns;
mod guest_open_channel;
mod guest_tcp;
mod guest_vfio;
mod guest_vhost;
mod guest_zns;
mod hostile_tcp;
mod hostile_vfio;
mod hostile_vhost;
mod journal;
mod layouts;
mod libblkio;
mod libweir;
mod lifecycle;
mod limits;
mod model_live;
mod null;
mod plan;
mod pool;
mod pool_copies;
mod power;
mod printed_lines;
mod realtime;
mod remote;
mod reproduce;
mod restart;
mod rogue;
mod rogue_connects;
mod shares;
mod spdk_preload;
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
        finding::tests(),
        docs::tests(),
        printed_lines::tests(),
        bench_verify::tests(),
        terminal::tests(),
        libweir::tests(),
        fio::tests(),
        spdk_preload::tests(),
        virtio_driver::tests(),
        vfio_client::tests(),
        vfio_messages::tests(),
        libblkio::tests(),
        null::tests(),
        hostile_tcp::tests(),
        hostile_vhost::tests(),
        dirty_log::tests(),
        hostile_vfio::tests(),
        faults::tests(),
        crash::tests(),
        crash_aimed::tests(),
        crash_vfio::tests(),
        remote::tests(),
        every_message::tests(),
        restart::tests(),
        lifecycle::tests(),
        at_rest::tests(),
        upgrade::tests(),
        upgrade_vfio::tests(),
        layouts::tests(),
        admission::tests(),
        plan::tests(),
        pool::tests(),
        pool_copies::tests(),
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
        guest_vhost::tests(),
        journal::tests(),
        guest_vfio::tests(),
        guest_crash::tests(),
        shares::tests(),
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
    .collect()
}

/// Suites whose clients say to the keeper what they say to a worker elsewhere.
const BOTH_WAYS: [&str; 4] = ["virtio_driver", "hostile_tcp", "hostile_vhost", "hostile_vfio"];

/// The same test of nodes with a keeper.
fn under_a_keeper(test: &Test) -> Option<Test> {
    BOTH_WAYS.contains(&test.suite).then_some(Test { keeper: true, ..*test })
}

/// A test of every run.
fn test(suite: &'static str, name: &'static str, run: fn(&Env) -> Outcome) -> Test {
    Test { suite, name, long: false, keeper: false, run }
}

/// A test of `--full`.
fn long(suite: &'static str, name: &'static str, run: fn(&Env) -> Outcome) -> Test {
    Test { suite, name, long: true, keeper: false, run }
}
