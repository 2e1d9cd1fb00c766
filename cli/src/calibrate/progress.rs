//! Where a calibration is, for who watches.

use std::io::IsTerminal;
use weir_units::Bytes;

/// Lines on standard error; none where nobody watches, but for notes.
pub struct CalibrateProgress {
    watched: bool,
    points: usize,
    begun: usize,
    name: String,
}

impl CalibrateProgress {
    /// For so many sizes and mixes.
    pub fn new(points: usize) -> CalibrateProgress {
        CalibrateProgress { watched: std::io::stderr().is_terminal(), points, begun: 0, name: String::new() }
    }

    /// The next size and mix.
    pub fn begin(&mut self, bytes: u32, reads: u8) {
        self.begun += 1;
        self.name = format!("{} of {}: {}, {reads} % reads", self.begun, self.points, Bytes(bytes.into()));
    }

    /// The next test.
    pub fn at(&self, depth: u32) {
        if self.watched {
            eprint!("\r\x1b[K{}, qd {depth}", self.name);
        }
    }

    /// What the user should know.
    pub fn note(&self, text: &str) {
        let clear = if self.watched { "\r\x1b[K" } else { "" };
        eprintln!("{clear}{text}");
    }

    /// Nothing more to come.
    pub fn finish(&self) {
        if self.watched {
            eprint!("\r\x1b[K");
        }
    }
}
