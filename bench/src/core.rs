//! Arbiter, controller and driver in one thread: what a command costs before any byte has gone anywhere.

use crate::figure::{Report, Series, Target};
use crate::rig::Rig;
use crate::{BenchError, Setup, client};
use weir_arbiter::Mechanism;

/// Commands of one measurement of the machine alone; about a third of a second.
const COMMANDS: u64 = 6_000_000;

const MECHANISMS: [(Mechanism, &str); 4] =
    [(Mechanism::None, "none"), (Mechanism::Rr, "rr"), (Mechanism::Wrr, "wrr"), (Mechanism::Drr, "drr")];

/// Measures the machine alone, and `weir bench local:null`.
///
/// # Errors
/// `weir` is not there or fails.
pub fn measure(setup: &Setup) -> Result<Report, BenchError> {
    let c = setup.client_core;
    let method = vec![
        format!(
            "machine: submission ring -> arbiter -> slot -> effect -> completion ring in this process on core {c}, reads,"
        ),
        "128 in flight, 128 slots; one queue of one tenant, and 12 queues of three tenants in three classes; includes"
            .to_string(),
        "writing the 64-byte entry and reading the completion; nothing is copied".to_string(),
        format!(
            "whole: weir bench local:null --qd 128 on core {c}, {} s: generator, driver, machine, driver,",
            setup.seconds()
        ),
        "histogram; the null medium moves no bytes".to_string(),
        format!("{} rounds in turn; medians [lowest - highest]", setup.rounds),
    ];
    weir_sys::sched::pin(c)?;
    let mut one: [Series; 4] = Default::default();
    let mut many: [Series; 4] = Default::default();
    let mut reads: [Series; 4] = Default::default();
    let mut writes: [Series; 4] = Default::default();
    for _ in 0..setup.rounds {
        for (i, (mechanism, name)) in MECHANISMS.into_iter().enumerate() {
            one[i].push(Rig::new(mechanism, 1, 1)?.measure(COMMANDS));
            many[i].push(Rig::new(mechanism, 3, 4)?.measure(COMMANDS));
            let target = format!("local:null?arbitration={name}&slots=128");
            reads[i].push(client::run(setup, &target, &["--qd", "128"])?.iops);
            writes[i].push(client::run(setup, &target, &["--qd", "128", "--rw", "randwrite"])?.iops);
        }
    }
    let mut report = Report::new("core", method);
    for (i, (_, name)) in MECHANISMS.iter().enumerate() {
        report.judged(format!("machine, {name}, 1 queue"), "ns", &one[i], Target::AtMost(60.0));
    }
    for (i, (_, name)) in MECHANISMS.iter().enumerate() {
        report.judged(format!("machine, {name}, 12 queues"), "ns", &many[i], Target::AtMost(60.0));
    }
    report.figure("machine, drr / rr, 12 queues", "x", &many[3].over(&many[1]));
    report.figure("machine, wrr / rr, 12 queues", "x", &many[2].over(&many[1]));
    for (i, (_, name)) in MECHANISMS.iter().enumerate() {
        report.figure(format!("whole, {name}, reads"), "IOPS", &reads[i]);
        report.judged(format!("whole, {name}, writes"), "IOPS", &writes[i], Target::AtLeast(10e6));
    }
    Ok(report)
}
