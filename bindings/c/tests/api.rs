//! libweir from C: the test program `api.c` and the example, compiled with all warnings as errors and run against drives in
//! their own process, once more under valgrind; and the structures' layout, as C and as Rust see it.

mod common;

use common::{compile, here, run, valgrind};
use std::mem::offset_of;
use std::process::Command;
use weir::abi::{Completion, ErrorOut, Info, Opts, QueueInfo, QueueOpts};

#[test]
fn the_c_program_holds_on_drives_in_this_process() {
    let program = compile("tests/api.c", "api");
    for url in ["local:ram?capacity=64MiB", "local:ram?capacity=64MiB&latency=20us&slots=4&block_size=512"] {
        run(Command::new(&program).arg(url));
    }
    let file = program.with_file_name("drive.img");
    run(Command::new(&program).arg(format!("local:file:{}?capacity=64MiB", file.display())));
    std::fs::remove_dir_all(program.parent().unwrap()).unwrap();
}

/// What C code does with the library's memory, and the library with C's: every access is checked.
#[test]
fn valgrind_finds_nothing() {
    let program = compile("tests/api.c", "api-valgrind");
    valgrind(&program, &["local:ram?capacity=16MiB"]);
    std::fs::remove_dir_all(program.parent().unwrap()).unwrap();
}

#[test]
fn the_example_says_what_it_did() {
    let program = compile("examples/mixed.c", "mixed");
    let output = run(Command::new(&program).args(["local:ram?capacity=64MiB", "0.2", "8", "8192"]));
    let text = String::from_utf8_lossy(&output.stdout);
    for part in ["local, 67108864 bytes in blocks of", " of 8192 bytes at depth 8 in ", "failed: 0"] {
        assert!(text.contains(part), "{text}");
    }
    let wrong = Command::new(&program).args(["local:ram", "0.1", "8", "100"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("100 bytes are no request"));
    let none = Command::new(&program).arg("local:nosuch").output().unwrap();
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("nosuch"));
    std::fs::remove_dir_all(program.parent().unwrap()).unwrap();
}

#[test]
fn c_and_rust_agree_on_every_layout() {
    let program = compile("tests/api.c", "api-layout");
    let output = run(Command::new(&program).arg("--layout"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    macro_rules! layout {
        ($($name:literal $t:ty { $($field:ident),* })*) => {
            vec![$((concat!($name).to_owned(), size_of::<$t>()), $((concat!($name, ".", stringify!($field)).to_owned(), offset_of!($t, $field))),*),*]
        };
    }
    let ours = layout! {
        "weir_error_t" ErrorOut { message }
        "weir_opts_t" Opts { hostnqn, queues, depth, max_io, keep_alive_ms, flags, reserved }
        "weir_queue_opts_t" QueueOpts { io_class, reserved }
        "weir_info_t" Info { capacity, block_size, nsid, queues, transport }
        "weir_queue_info_t" QueueInfo { depth, max_io, io_class, in_flight, buffers }
        "weir_completion_t" Completion { user, result, status }
    };
    let ours: String = ours.iter().map(|(name, at)| format!("{name} {at}\n")).collect();
    assert_eq!(said, ours);
    std::fs::remove_dir_all(program.parent().unwrap()).unwrap();
}

fn asked(number: u32) -> Option<weir_units::Class> {
    match weir::target::class_from_number(number).unwrap() {
        weir_node::host::QueueClass::Fixed(class) => Some(class),
        _ => None,
    }
}

/// Constants that stand in the header and in the library.
#[test]
fn header_and_library_agree_on_the_numbers() {
    use weir::error::Code;
    let header = std::fs::read_to_string(here("include/weir.h")).unwrap();
    let value = |name: &str| -> i64 {
        let line = header.lines().find_map(|l| l.strip_prefix("#define ")?.strip_prefix(name)?.strip_prefix(' '));
        let text =
            line.unwrap_or_else(|| panic!("{name} is not defined")).split("/*").next().unwrap_or_default().trim();
        text.trim_matches(['(', ')', 'u']).parse().unwrap_or_else(|_| panic!("{name} is {text}"))
    };
    assert_eq!(value("WEIR_ABI_VERSION"), i64::from(weir::abi::ABI_VERSION));
    for (name, code) in [
        ("WEIR_OK", Code::Ok),
        ("WEIR_EUSAGE", Code::Usage),
        ("WEIR_ERANGE", Code::Range),
        ("WEIR_EAGAIN", Code::Again),
        ("WEIR_EBUSY", Code::Busy),
        ("WEIR_ENOMEM", Code::NoMemory),
        ("WEIR_EUNREACHABLE", Code::Unreachable),
        ("WEIR_EREFUSED", Code::Refused),
        ("WEIR_ECLOSED", Code::Closed),
        ("WEIR_EPROTOCOL", Code::Protocol),
        ("WEIR_ETIMEOUT", Code::Timeout),
        ("WEIR_EIO", Code::Io),
        ("WEIR_EINTERNAL", Code::Internal),
    ] {
        assert_eq!(value(name), code as i64, "{name}");
    }
    for (i, name) in ["TENANT", "URGENT", "HIGH", "MEDIUM", "LOW"].iter().enumerate() {
        let number = i as u32 + 1;
        assert_eq!(value(&format!("WEIR_CLASS_{name}")), i64::from(number));
        assert_eq!(weir::target::class_number(asked(number)), number);
    }
    for (name, flag) in [
        ("WEIR_HEADER_DIGEST", weir::abi::HEADER_DIGEST),
        ("WEIR_DATA_DIGEST", weir::abi::DATA_DIGEST),
        ("WEIR_PACKED_RING", weir::abi::PACKED_RING),
    ] {
        assert_eq!(value(name), i64::from(flag), "{name}");
    }
}
