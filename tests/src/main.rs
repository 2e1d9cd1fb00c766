//! End to end with real clients: `weir-tests [--filter TEXT]… [--list] [--full]`.
//!
//! Starts nodes of the release binary (`$WEIR_BIN`, else `target/release/weir`) in temporary folders on free ports and drives
//! them by clients that know nothing of this project: a Linux guest under QEMU, QEMU's block layer through libblkio,
//! the crates `virtio-driver` and `vfio_user`, and hand-made hostile ones. Only processes that it started are ended, by their id.
//!
//! ```text
//! suites/* (what is tested) ──▶ node (a `weir up`), guest (a Linux), bench (a `weir bench`), raw/* (bytes by hand)
//!                                          └────────────── process (start, watch, end) ──────────────┘
//! ```
//!
//! Tests run one after the other, because many of them measure. Each prints its name, its result and what it measured.
//! Exit status 0: all passed; 1: some failed; 2: usage.

mod aimed;
mod bench;
mod bios;
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
mod stepped;
mod suites;
mod systemd;
mod tracee;
mod vfio;

use std::process::ExitCode;

use harness::{Env, Selection};

fn main() -> ExitCode {
    let selection = match Selection::parse(std::env::args().skip(1)) {
        Ok(selection) => selection,
        Err(message) => {
            eprintln!("weir-tests: {message}\nusage: weir-tests [--filter TEXT]... [--list] [--full]");
            return ExitCode::from(2);
        }
    };
    let tests = suites::all();
    if selection.list {
        for test in tests.iter().filter(|t| selection.wants(t)) {
            println!("{}{}", test.full_name(), if test.long { " (--full)" } else { "" });
        }
        return ExitCode::SUCCESS;
    }
    match Env::new(selection.full) {
        Ok(env) => harness::run(&env, &tests, &selection),
        Err(message) => {
            eprintln!("weir-tests: {message}");
            ExitCode::FAILURE
        }
    }
}
