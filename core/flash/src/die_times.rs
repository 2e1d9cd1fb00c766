//! Dies that are not as they were: slower than the data sheet, or than they were drawn, from some time on.

use crate::array::Array;
use crate::variability::Varied;
use alloc::boxed::Box;
use weir_units::Nanos;

impl Array {
    /// Array operations of a die that begin from now on take so many thousandths of their own times, be these the data sheet's or drawn.
    pub fn set_die_times(&mut self, die: u32, thousandths: u32) {
        let shape = &self.shape;
        self.varied.get_or_insert_with(|| Box::new(Varied::none(shape))).set_die_times(die, thousandths);
    }

    /// What sensing a page once more takes, by the data sheet.
    pub fn retry_time(&self) -> Nanos {
        self.varied.as_ref().and_then(|varied| varied.retry()).unwrap_or(self.timing.read[0])
    }
}
