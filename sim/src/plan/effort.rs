//! How much is simulated for a plan, and how far that has come.

/// How much is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// As much as two cores simulate in a few seconds.
    Brief,
    /// As long as it takes: longer simulations, and every ratio of shares before a plan is called infeasible.
    Full,
}

/// How far a plan has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PlanProgress {
    /// The drive is measured before anything is planned with it.
    Measuring {
        /// Load tests that are done.
        done: usize,
        /// Of so many.
        of: usize,
    },
    /// Shares are simulated.
    Simulating {
        /// Simulations that are done.
        runs: u32,
    },
}
