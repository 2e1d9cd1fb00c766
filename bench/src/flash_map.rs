//! What a page map costs that outlives its process: the flash model in virtual time, spare areas in shared memory as a keeper holds them,
//! the map in the process's own memory and in shared memory with notes of the step under way.

use crate::figure::{Report, Series, Target};
use crate::flash::{DEPTH, Loop, config, weir};
use crate::{BenchError, Setup, failed};
use weir_arbiter::Mechanism;
use weir_flash::{Flash, Precondition};
use weir_sys::media::FlashState;
use weir_units::Nanos;

/// (capacity in GiB, over-provisioning in hundredths).
const DRIVES: [(u64, u64); 2] = [(8, 7), (256, 7)];

/// A drive in the steady state, its map in shared memory or not.
fn drive(name: &str, gib: u64, spare: u64, shared: bool) -> Result<(Flash, FlashState), BenchError> {
    let config = config(gib, spare);
    let (mut state, mut image, _) = FlashState::in_memory(name, &config).map_err(|e| failed(name, e))?;
    if shared {
        state.lend_map(&mut image, None, &config).map_err(|e| failed(name, e))?;
    }
    let mut flash = Flash::create(&config, Nanos(0), image).map_err(|e| failed(name, e))?;
    flash.set_prefetch(weir_sys::prefetch::prefetch);
    if !shared {
        weir_sys::prefetch::on_huge_pages(flash.page_map());
    }
    flash.precondition(Precondition::Steady);
    Ok((flash, state))
}

/// Measures every drive in turn, round after round.
///
/// # Errors
/// A configuration is refused, or there is no memory.
pub fn measure(setup: &Setup) -> Result<Report, BenchError> {
    let method = vec![
        format!("in this process on core {}: random 4 KiB, {DEPTH} in flight, as `flash` but for the memory:", setup.client_core),
        "spare areas in shared memory, the map in the process's own memory, and in shared memory with notes of the step under way;".into(),
        format!("{} rounds in turn; medians [lowest - highest]", setup.rounds),
    ];
    weir_sys::sched::pin(setup.client_core)?;
    let mut report = Report::new("flash map", method);
    for (gib, spare) in DRIVES {
        let (mut own, _own_state) = drive("own", gib, spare, false)?;
        let (mut shared, _shared_state) = drive("shared", gib, spare, true)?;
        // The thread that assembles huge pages has had its time.
        std::thread::sleep(std::time::Duration::from_secs(2));
        for (what, writes) in [("random writes", true), ("half reads", false)] {
            let mut loops = [Loop::new(Mechanism::Drr), Loop::new(Mechanism::Drr)];
            loops.iter_mut().for_each(|workload| workload.writes = writes);
            let (mut before, mut after) = (Series::default(), Series::default());
            for _ in 0..setup.rounds {
                before.push(weir(&mut own, &mut loops[0], setup.seconds()).0);
                after.push(weir(&mut shared, &mut loops[1], setup.seconds()).0);
            }
            let name = format!("{gib} GiB, {spare} %, {what}");
            report.figure(format!("{name}: map of its own"), "/s", &before);
            report.figure(format!("{name}: map in shared memory"), "/s", &after);
            report.judged(format!("{name}: shared / own"), "x", &after.over(&before), Target::AtLeast(0.9));
        }
    }
    Ok(report)
}
