//! `weir bench`.

use crate::failure::Failure;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The drive
    pub target: String,
}

/// Measures.
pub fn run(args: Args, _json: bool) -> Result<(), Failure> {
    Err(Failure::new(format_args!("bench {}: not linked into this build", args.target)))
}
