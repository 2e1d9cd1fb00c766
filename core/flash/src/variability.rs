//! No two chips are alike, and none stays as it was.

/// How much chips and pages differ from the data sheet's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variability {
    /// What the differences are drawn from.
    pub seed: u64,
}
