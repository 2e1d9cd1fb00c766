//! What `weir fs bench replay` is asked.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  WEIR_STORE_RECORD=/tmp/calls weir fs put -r results /runs   a program of the store records what it asks
  weir fs bench replay /tmp/calls                             the same again without the program, as fast as it goes
  weir fs bench replay /tmp/calls --speed 1                   with the time that the program took for itself
  weir fs bench replay a.csv b.csv.zst --verify               of several processes; what is read is compared

Files that the record reads and does not write are made first, as long as they were. The names that it makes must not be there: replay on a new
store, or remove them first. What the replay has made stays. Exit status 1 where a call that succeeded fails, or --verify finds a wrong byte.")]
pub struct ReplayArgs {
    /// Records of the processes of one run, or folders of them
    #[arg(required = true, value_name = "RECORD")]
    pub records: Vec<PathBuf>,
    /// How fast the programs think: 1 as they did, 2 twice as fast, 0 not at all
    #[arg(long, value_name = "FACTOR", default_value_t = 0.0, value_parser = speed)]
    pub speed: f64,
    /// Compare the bytes that are read with those that were written
    #[arg(long)]
    pub verify: bool,
    /// What the bytes of files are made from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Classes of new files, best first [default: those of the path's policy, or of the store]
    #[arg(short, long, value_name = "CLASS", value_delimiter = ',')]
    pub class: Vec<String>,
    /// Print the table as CSV
    #[arg(long)]
    pub csv: bool,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && (0.0..=1e6).contains(&factor) => Ok(factor),
        _ => Err("write a number from 0 to 1000000".into()),
    }
}
