//! Dies that are not as they were: slower than the data sheet, or than they were drawn, from some time on.

use crate::array::Array;
use crate::variability::{DieWork, Varied};
use alloc::boxed::Box;
use weir_units::Nanos;

impl Array {
    /// Array operations of a die that begin from now on take so many thousandths of their own times, be these the data sheet's or drawn.
    pub fn set_die_times(&mut self, die: u32, thousandths: u32) {
        let shape = &self.shape;
        self.varied.get_or_insert_with(|| Box::new(Varied::none(shape))).set_die_times(die, thousandths);
    }

    /// What the array of each die has done; empty while every die takes the data sheet's times, and counted from then on.
    pub fn die_work(&self) -> &[DieWork] {
        self.varied.as_ref().map_or(&[], |varied| varied.work())
    }

    /// A data sheet's time on the chip of this plane, for an operation that begins.
    pub(crate) fn begin_on_chip(&mut self, plane: u32, time: Nanos) -> Nanos {
        let taken = self.on_chip(plane, time);
        if let Some(varied) = self.varied.as_mut().filter(|_| taken.0 > 0) {
            varied.count(self.shape.die_of(plane), taken, taken);
        }
        taken
    }

    /// What sensing a page once more takes, by the data sheet.
    pub fn retry_time(&self) -> Nanos {
        self.varied.as_ref().and_then(|varied| varied.retry()).unwrap_or(self.timing.read[0])
    }
}
