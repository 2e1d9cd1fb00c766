//! What the arbiter in front of a drive costs: the machine alone, and `weir bench` with and without it.

use crate::figure::{Report, Series};
use crate::rig::Rig;
use crate::{BenchError, Setup, client};
use weir_arbiter::{ArbiterSettings, Mechanism};
use weir_driver::host_arbiter::{ArbitratedClient, HostArbiter, HostArbiterConfig};
use weir_driver::{Io, IoKind};
use weir_units::Class;

/// Requests of one measurement of the machine alone.
const COMMANDS: u64 = 3_000_000;
/// Slots of the front, of the drive, and requests of all clients together.
const SLOTS: u32 = 128;

/// Measures.
///
/// # Errors
/// `weir` is not there or fails.
pub fn measure(setup: &Setup) -> Result<Report, BenchError> {
    let c = setup.client_core;
    let method = vec![
        format!(
            "front: submit -> arbiter -> take -> done in this process on core {c}, 4 KiB reads, drr, {SLOTS} slots, 256 in flight or"
        ),
        "waiting; one client, and 12 of three tenants in three classes; the drive's own machine (core) beside it"
            .to_string(),
        format!(
            "whole: weir bench local:null, 64 requests of each of two jobs, on core {c}, {} s; with it requests go through",
            setup.seconds()
        ),
        "the host API: its lock, its clock and one more copy of the data as well".to_string(),
        format!("{} rounds in turn; medians [lowest - highest]", setup.rounds),
    ];
    weir_sys::sched::pin(c)?;
    let mut front: [Series; 2] = Default::default();
    let mut machine: [Series; 2] = Default::default();
    let mut whole: [Series; 2] = Default::default();
    let target = format!("local:null?arbitration=none&slots={SLOTS}");
    let jobs = ["--job", "name=a,class=high,qd=64", "--job", "name=b,class=low,qd=64"];
    for _ in 0..setup.rounds {
        for (i, (tenants, queues)) in [(1, 1), (3, 4)].into_iter().enumerate() {
            front[i].push(Clients::new(tenants, queues).measure(COMMANDS));
            machine[i].push(Rig::new(Mechanism::Drr, tenants, queues)?.measure(COMMANDS));
        }
        whole[0].push(client::run(setup, &target, &jobs)?.iops);
        let slots = SLOTS.to_string();
        let with = [&jobs[..], &["--arbitrate", "drr", "--slots", &slots]].concat();
        whole[1].push(client::run(setup, &target, &with)?.iops);
    }
    let mut report = Report::new("front", method);
    for (i, clients) in ["1 client", "12 clients"].into_iter().enumerate() {
        report.figure(format!("front, {clients}"), "ns", &front[i]);
        report.figure(format!("drive's machine, {clients}"), "ns", &machine[i]);
        report.figure(format!("front / machine, {clients}"), "x", &front[i].over(&machine[i]));
    }
    report.figure("whole, without", "IOPS", &whole[0]);
    report.figure("whole, arbitrated in front", "IOPS", &whole[1]);
    report.figure("whole, in front / without", "x", &whole[1].over(&whole[0]));
    Ok(report)
}

/// Clients that always have more waiting than there are slots.
struct Clients {
    front: HostArbiter,
    clients: Vec<ArbitratedClient>,
    taken: Vec<Io>,
}

impl Clients {
    fn new(tenants: usize, queues: u32) -> Self {
        let config = HostArbiterConfig { slots: SLOTS, ..HostArbiterConfig::new(ArbiterSettings::new(Mechanism::Drr)) };
        let mut front = HostArbiter::new(config);
        let mut clients = Vec::new();
        let depth = 2 * SLOTS / (tenants as u32 * queues);
        for i in 0..tenants {
            let tenant = front.add_tenant(1);
            for _ in 0..queues {
                let client = front.add_client(tenant, Class::WEIGHTED[i % 3], depth);
                for slot in 0..depth {
                    let io = Io { kind: IoKind::Read, offset: 0, len: 4096, slot };
                    front.submit(client, io).unwrap_or_else(|e| unreachable!("an empty slot is refused: {e}"));
                }
                clients.push(client);
            }
        }
        Clients { front, clients, taken: Vec::with_capacity(2 * SLOTS as usize) }
    }

    /// Nanoseconds a request: every poll takes what is granted, ends it and asks for the same again.
    fn measure(&mut self, commands: u64) -> f64 {
        let start = weir_sys::reactor::now();
        let mut done = 0;
        while done < commands {
            for client in &self.clients {
                self.front.take(*client, &mut self.taken);
                done += self.taken.len() as u64;
                for io in self.taken.drain(..) {
                    self.front.done(*client, io.slot);
                    let again = self.front.submit(*client, io);
                    again.unwrap_or_else(|e| unreachable!("a free slot is refused: {e}"));
                }
            }
        }
        weir_sys::reactor::now().saturating_sub(start).get() as f64 / done as f64
    }
}
