//! End to end with real clients: `weir-tests [--filter TEXT]… [--without SUITE]… [--lanes N] [--list] [--full]`.
//!
//! Starts nodes of the release binary (`$WEIR_BIN`, else `target/release/weir`) in temporary folders on free ports and drives
//! them by clients that know nothing of this project: a Linux guest under QEMU, QEMU's block layer through libblkio,
//! the crates `virtio-driver` and `vfio_user`, and hand-made hostile ones. Only processes that it started are ended, by their id.
//!
//! ```text
//! runner ──▶ a process for each test
//! suites/* (what is tested) ──▶ node (a `weir up`), guest (a Linux), bench (a `weir bench`), raw/* (bytes by hand)
//!                                          └────────────── process (start, watch, end) ──────────────┘
//! ```
//!
//! Tests that measure run alone, the others beside each other in `--lanes` (with 1: all of them alone, in the order of `--list`). Each
//! prints its name, its result and what it measured.
//! Exit status 0: all passed; 1: some failed; 2: usage.

mod aimed;
mod bench;
mod bios;
mod browser;
mod guest;
mod harness;
mod http;
mod markdown;
mod node;
mod page;
mod process;
mod proxy;
mod qmp;
mod raw;
mod relay;
#[cfg(test)]
mod results;
mod runner;
mod stepped;
mod suites;
mod systemd;
mod tracee;
mod vfio;

use std::io::Write;
use std::process::ExitCode;

use harness::Selection;

fn main() -> ExitCode {
    let selection = match Selection::parse(std::env::args().skip(1)) {
        Ok(selection) => selection,
        Err(message) => {
            eprintln!("weir-tests: {message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let tests = suites::all();
    if selection.list {
        let mut list = String::new();
        for test in tests.iter().filter(|t| selection.wants(t)) {
            list += &test.full_name();
            list += if test.long { " (--full)\n" } else { "\n" };
        }
        // Whoever reads may have seen enough, as `head` has.
        let _ = std::io::stdout().write_all(list.as_bytes());
        return ExitCode::SUCCESS;
    }
    match &selection.one {
        Some(one) => runner::run_one(&tests, one, selection.full),
        None => runner::run(&tests, &selection),
    }
}

const USAGE: &str = "usage: weir-tests [--filter TEXT]... [--without SUITE]... [--lanes N] [--list] [--full]";
