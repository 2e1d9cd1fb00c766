//! The program: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir_bench::main()
}
