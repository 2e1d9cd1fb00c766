//! Fuzz targets, their registry, and a driver for them on the stable compiler.
//!
//! A target is a plain `fn(&[u8])` that must return for every input: a decoder, or a state machine that takes its events
//! from the bytes and calls its own `check` after each. It panics when something is wrong, and only then.
//! [`TARGETS`] lists them all, so that any fuzzer can link them; `cargo run -p weir-fuzz` runs them without one:
//!
//! ```text
//! corpus + seed + step ──▶ mutate::Mutator ──▶ engine::attempt ──▶ panic? ──▶ engine::shrink ──▶ crashes/<target>-…
//! ```
//!
//! An ordinary build has no feedback from coverage: the mutator relies on what a target knows about its input, seeds (well-formed
//! inputs to start from) and a dictionary (bytes that mean something), and on the corpus. The input of a step depends on nothing but the seed,
//! the target, the corpus and the step, so a failure is found again at once by `--seed S --target T --from STEP --steps 1`.
//! The corpus comes from a build that counts ([`grow`]): inputs that went where no other did, as few and as short as will do.
//! One target, [`CANARY`], has a planted bug. A run in which it is not found fails: a driver that finds nothing proves nothing.

pub mod arbiter;
pub mod canary;
pub mod config;
pub mod controller;
pub mod engine;
pub mod grow;
pub mod import;
pub mod link;
pub mod metadata;
pub mod mutate;
pub mod nvme_tcp;
pub mod pcie;
pub mod saved;
pub mod spec_nvme;
pub mod vfio_user;
pub mod vhost_user;

use std::sync::atomic::{AtomicU64, Ordering};

/// One entry point that takes bytes from nowhere good.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name on the command line, in crash files and in `corpus/`.
    pub name: &'static str,
    /// Runs one input; a panic is a finding.
    pub run: fn(&[u8]),
    /// Well-formed inputs to start from, besides the files in `corpus/<name>/`.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Byte strings that mean something to the target; the mutator puts them in.
    pub dictionary: &'static [&'static [u8]],
    /// Longest input worth trying.
    pub max_len: usize,
}

/// How often targets have checked their invariants, after an event each, in this process.
pub static CHECKS: AtomicU64 = AtomicU64::new(0);

/// A target has checked its invariants so many times: once an input, added up.
fn checked(times: u64) {
    CHECKS.fetch_add(times, Ordering::Relaxed);
}

fn no_seeds() -> Vec<Vec<u8>> {
    Vec::new()
}

const fn target(name: &'static str, run: fn(&[u8]), max_len: usize) -> Target {
    Target { name, run, seeds: no_seeds, dictionary: &[], max_len }
}

/// Every target that must survive.
pub const TARGETS: &[Target] = &[
    Target { seeds: arbiter::seeds, ..target("arbiter", arbiter::arbiter, 512) },
    Target { seeds: nvme_tcp::pdu_seeds, ..target("nvme_tcp_pdu", nvme_tcp::nvme_tcp_pdu, 256) },
    Target { seeds: nvme_tcp::target_seeds, ..target("nvme_tcp_target", nvme_tcp::nvme_tcp_target, 1024) },
    Target { seeds: nvme_tcp::initiator_seeds, ..target("nvme_tcp_initiator", nvme_tcp::nvme_tcp_initiator, 1024) },
    Target { seeds: link::recovery_seeds, ..target("link_recovery", link::link_recovery, 512) },
    Target { seeds: link::watch_seeds, ..target("namespace_watch", link::namespace_watch, 1024) },
    Target { seeds: controller::seeds, ..target("controller", controller::controller, 2048) },
    Target { seeds: pcie::seeds, ..target("pcie", pcie::pcie, 320) },
    Target { seeds: config::seeds, dictionary: config::DICTIONARY, ..target("config", config::config, 4096) },
    Target { seeds: import::seeds, dictionary: import::DICTIONARY, ..target("import", import::import, 6000) },
    Target { seeds: vhost_user::message_seeds, ..target("vhost_user_messages", vhost_user::vhost_user_messages, 2048) },
    Target { seeds: vhost_user::split_seeds, ..target("virtqueue_split", vhost_user::virtqueue_split, 6000) },
    Target { seeds: vhost_user::inflight_split_seeds, ..target("inflight_split", vhost_user::inflight_split, 7600) },
    Target { seeds: vhost_user::inflight_packed_seeds, ..target("inflight_packed", vhost_user::inflight_packed, 7600) },
    Target { seeds: vhost_user::packed_seeds, ..target("virtqueue_packed", vhost_user::virtqueue_packed, 6000) },
    Target { seeds: vfio_user::seeds, ..target("vfio_user_messages", vfio_user::vfio_user_messages, 2048) },
    Target { seeds: saved::keeper_seeds, ..target("saved_keeper", saved::keeper, 1024) },
    Target { seeds: saved::connection_seeds, ..target("saved_connection", saved::connection, 2048) },
    Target { seeds: saved::association_seeds, ..target("saved_associations", saved::associations, 1024) },
    Target { seeds: saved::begun_seeds, ..target("saved_begun", saved::begun, 512) },
    Target { seeds: metadata::frame_seeds, ..target("meta_frames", metadata::meta_frames, 2048) },
    Target { seeds: metadata::service_seeds, ..target("meta_service", metadata::meta_service, 512) },
    target("spec_nvme", spec_nvme::spec_nvme, 4200),
];

/// The target that must not survive: it proves that the driver finds bugs.
pub const CANARY: Target =
    Target { seeds: canary::seeds, dictionary: canary::DICTIONARY, ..target("canary", canary::parse, 256) };
