//! Power is cut at any time, and an oracle that knows what was acknowledged and flushed when judges what is left.

use crate::model::{FlashModel, configs, ops};
use crate::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;
use weir_units::Nanos;

/// A change of a unit: its version (0: trimmed), and from when on it must survive.
#[derive(Clone, Copy, Debug)]
struct Change {
    version: u64,
    durable: Nanos,
}

/// By unit, all changes since it was last certain, oldest first.
struct Oracle {
    history: Vec<Vec<Change>>,
}

impl Oracle {
    fn new(model: &FlashModel, units: u32) -> Self {
        let first = |lpn: u32| vec![Change { version: model.newest[lpn as usize], durable: Nanos(0) }];
        Oracle { history: (0..units).map(first).collect() }
    }

    fn changed(&mut self, lpn: u32, version: u64, durable: Nanos) {
        self.history[lpn as usize].push(Change { version, durable });
    }

    /// All that was written so far survives from `at` on.
    fn flushed(&mut self, at: Nanos) {
        for change in self.history.iter_mut().flatten() {
            change.durable = change.durable.min(at);
        }
    }

    /// Judges what a cut at `now` has left, and goes on from it.
    fn judge(&mut self, now: Nanos, model: &mut FlashModel, flash: &Flash, loss: &PowerLoss) {
        for lpn in 0..flash.units() {
            let left = model.version_in_flash(flash, lpn);
            let history = &mut self.history[lpn as usize];
            let certain = history.iter().rposition(|c| c.durable <= now).unwrap_or(0);
            let at = history.iter().rposition(|c| c.version == left);
            let Some(at) = at else { panic!("{lpn} has version {left}, which it never had: {history:?}") };
            assert!(at >= certain, "{lpn} lost what had to survive {now}: has {left} of {history:?}");
            let undone = history[at + 1..].iter().filter(|c| c.version > 0).count() as u32;
            let said = loss.lost.iter().find(|l| l.lpn == lpn).map_or(0, |l| l.writes);
            assert_eq!(said, undone, "writes of {lpn} that are said to be lost, and {history:?} with {left}");
            *history = vec![Change { version: left, durable: Nanos(0) }];
            model.newest[lpn as usize] = left;
        }
    }
}

proptest! {
    #[test]
    fn power_loss_spares_what_was_flushed(
        config in configs(),
        steady in any::<bool>(),
        ops in proptest::collection::vec((ops(), 0..24u32), 1..300),
    ) {
        let mut flash = Flash::new(&config, Nanos(0)).unwrap();
        flash.precondition(if steady { Precondition::Steady } else { Precondition::Fresh });
        let mut model = FlashModel::adopt(&mut flash);
        let mut oracle = Oracle::new(&model, flash.units());
        let mut now = Nanos(0);
        let volatile = config.buffer.size.0 > 0 && config.buffer.early && !config.buffer.protected;
        for (seed, ((op, at, _, gap), cut)) in ops.into_iter().enumerate() {
            let lpn = (u64::from(at) * u64::from(flash.units()) / 1_000_000) as u32;
            now = now.saturating_add(Nanos(u64::from(gap) / 8));
            if flash.is_read_only() {
                break;
            }
            // What has waited too long leaves before the command: the model has to see the one before the other.
            model.submit(&mut flash, now, FlashOp::Read, 0, 0);
            let done = model.submit(&mut flash, now, op, lpn, 1);
            if flash.stats().refused > 0 {
                break;
            }
            let zeroes = op == FlashOp::WriteZeroes && config.ftl.write_zeroes == WriteZeroes::Program;
            match op {
                FlashOp::Read => {}
                FlashOp::Flush => oracle.flushed(done),
                FlashOp::Write { fua } => {
                    let durable = if fua || !volatile { done } else { Nanos::NEVER };
                    oracle.changed(lpn, model.newest[lpn as usize], durable);
                }
                FlashOp::WriteZeroes if zeroes => {
                    oracle.changed(lpn, model.newest[lpn as usize], if volatile { Nanos::NEVER } else { done });
                }
                FlashOp::Trim | FlashOp::WriteZeroes => oracle.changed(lpn, 0, done),
            }
            if cut == 0 {
                let Some(loss) = flash.power_cut(now, seed as u64) else { panic!("no spare area") };
                model.play(&mut flash);
                oracle.judge(now, &mut model, &flash, &loss);
                model.check(&flash);
            }
        }
    }
}

/// A command that was never acknowledged may be there or not, but a flush in between keeps what came before.
#[test]
fn a_write_that_nothing_flushed_is_lost() {
    let mut config = crate::model::small(crate::model::geometry(2, 1, 16, 8, 2), 1.0);
    config.buffer = BufferConfig { size: weir_units::Bytes(64 << 10), ..BufferConfig::NONE };
    let mut flash = Flash::new(&config, Nanos(0)).unwrap();
    let write = FlashOp::Write { fua: false };
    flash.submit(Nanos(0), write, 0, 1);
    let flushed = flash.submit(Nanos(1), FlashOp::Flush, 0, 0);
    assert!(flushed > Nanos(200_000), "a program takes that long");
    flash.submit(flushed, write, 0, 1);
    flash.submit(flushed, write, 5, 1);
    flash.submit(flushed, write, 5, 1);
    let Some(loss) = flash.power_cut(flushed, 1) else { panic!("no spare area") };
    // The two units fill a page, which is under way: both, one or none is lost.
    assert!(loss.lost.iter().all(|l| (l.lpn == 0 && l.writes == 1) || (l.lpn == 5 && l.writes <= 2)), "{loss:?}");
    assert!(flash.is_mapped(0));
    flash.check();
    config.ftl.spare = false;
    assert_eq!(Flash::new(&config, Nanos(0)).unwrap().power_cut(Nanos(0), 1), None);
}
