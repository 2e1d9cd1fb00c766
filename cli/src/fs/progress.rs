//! The line that moves while bytes are copied, where it takes longer than one wants to wait without it.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// What is done sooner has none.
const AFTER: Duration = Duration::from_secs(2);

/// About the file that is being copied; nothing where nobody watches.
pub struct CopyProgress {
    watched: bool,
    begun: Instant,
    bar: Option<ProgressBar>,
    name: String,
    length: Option<u64>,
    done: u64,
}

impl CopyProgress {
    pub fn new() -> Self {
        let watched = std::io::stderr().is_terminal();
        CopyProgress { watched, begun: Instant::now(), bar: None, name: String::new(), length: None, done: 0 }
    }

    /// Nothing is shown: the bytes themselves go to the terminal.
    pub fn hidden() -> Self {
        CopyProgress { watched: false, ..CopyProgress::new() }
    }

    /// The next file; `None`: its length is not known, as of the standard input.
    pub fn file(&mut self, name: String, length: Option<u64>) {
        (self.name, self.length, self.done) = (name, length, 0);
        self.show();
    }

    /// So many more bytes of it.
    pub fn bytes(&mut self, count: u64) {
        self.done += count;
        self.show();
    }

    /// The line goes.
    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn show(&mut self) {
        if !self.watched || self.begun.elapsed() < AFTER {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(0);
            // The template is a constant and was tried.
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        if bar.message() != self.name {
            bar.set_message(self.name.clone());
            bar.reset_eta();
        }
        bar.set_length(self.length.unwrap_or(self.done));
        bar.set_position(self.done);
    }
}
