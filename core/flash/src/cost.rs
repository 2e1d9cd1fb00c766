//! What a command costs an arbiter that shares the drive by time.

use crate::commands::FlashOp;
use crate::config::WriteZeroes;
use crate::flash::Flash;
use crate::geometry::UNIT;
use crate::relocate::Scope;
use weir_units::Nanos;

impl Flash {
    /// Thousandths of a unit that collection will move for each unit written, as far as the drive's state says: on planes that have to
    /// collect, what the emptiest block holds over what it frees; nothing on the others.
    pub fn moved_next(&self) -> u64 {
        let block = u64::from(self.shape().units_per_block());
        let (mut moved, mut freed) = (0, 0);
        for plane in 0..self.shape().planes() {
            let valid = if self.ftl.has_to_collect(plane) { self.ftl.fewest_valid(plane) } else { 0 };
            moved += u64::from(valid);
            freed += block - u64::from(valid);
        }
        1000 * moved / freed.max(1)
    }

    /// What the flash will spend on a command, in time of its planes and channels, where each written unit makes collection
    /// move `moved` thousandths of a unit: a cost for arbiters that share the drive by what its tenants take of it.
    pub fn cost(&self, op: FlashOp, units: u32, moved: u64) -> Nanos {
        let times = &self.ftl.times;
        let page_units = u64::from(self.shape().units_per_page());
        let units = u64::from(units);
        let unit_program = times.program.0 / page_units;
        let erase = self.config.timing.erase.0 / u64::from(self.shape().units_per_block());
        let transfer = self.silicon.transfer_time(UNIT).0;
        match op {
            FlashOp::Read => Nanos(times.read.0 * units.div_ceil(page_units) + transfer * units),
            FlashOp::Flush | FlashOp::Trim => Nanos(0),
            FlashOp::WriteZeroes if self.config.ftl.write_zeroes == WriteZeroes::Unmap => Nanos(0),
            FlashOp::Write { .. } | FlashOp::WriteZeroes => {
                let copied_back = self.config.ftl.gc.mode.scope() == Scope::Plane;
                let crossed = if copied_back { 0 } else { 2 * transfer };
                let move_one = times.read.0 / page_units + crossed + unit_program + erase;
                Nanos((transfer + unit_program + erase + move_one * moved / 1000) * units)
            }
        }
    }
}
