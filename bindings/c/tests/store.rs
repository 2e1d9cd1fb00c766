//! The files of a store from C: the test program `store.c`, run against a metadata service and drives in this process, once more under
//! valgrind; and the structures' layout and the flags, as C and as Rust see them.

mod common;

use common::{compile, here, run, valgrind};
use std::mem::offset_of;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir::store::abi::{self, EntryOut, FileOpts, Stat, StoreCompletion, StoreOpts};
use weir_config::{StoreAddress, StoreDurability, StoreMeta};
use weir_store::protocol::Donation;
use weir_store::{ClassName, InodeKind, Location};
use weir_store_node::client::{Client, ClientOptions, Operator as _};
use weir_store_node::service::{ServiceHandle, ServiceOptions, start};

/// A metadata service with two drives, which are files.
struct Service {
    folder: PathBuf,
    handle: Option<ServiceHandle>,
}

impl Service {
    fn start() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("weir-c-store-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let options = ServiceOptions {
            meta: StoreMeta::Redb(folder.join("meta.redb")),
            durability: StoreDurability::Process,
            listen: vec![StoreAddress::Unix(folder.join("s"))],
            classes: vec!["dram".into()],
            block: 64 << 10,
            lease: Duration::from_secs(60),
            repair_after: None,
            tiering: weir_store::Tiering::default(),
            allow_files: true,
        };
        let service = Self { handle: Some(start(options).unwrap()), folder };
        let options = ClientOptions { allow_files: true, ..ClientOptions::default() };
        let client = Client::connect(&service.address(), options).unwrap();
        for sector in [512, 4096] {
            let path = service.folder.join(sector.to_string());
            std::fs::File::create(&path).and_then(|file| file.set_len(256 << 20)).unwrap();
            let target = format!("file:{}?sector={sector}", path.display());
            let class = ClassName::new("dram").unwrap();
            client.donate(Donation { target, class, location: Location::default(), overwrite: false }).unwrap();
        }
        service
    }

    fn address(&self) -> String {
        format!("unix:{}", self.folder.join("s").display())
    }

    /// The same behind one at which nobody answers.
    fn addresses(&self) -> String {
        format!("unix:{},{}", self.folder.join("nobody").display(), self.address())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.stop();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn every_call_of_a_store_holds() {
    let (service, program) = (Service::start(), compile("tests/store.c", "store"));
    let output = run(Command::new(&program).args([&service.addresses(), "dram"]));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "everything holds\n");
    std::fs::remove_dir_all(program.parent().unwrap()).unwrap();
}

/// The library fills memory of the program from threads of its own, after the call has returned.
#[test]
fn valgrind_finds_nothing_in_the_calls_of_a_store() {
    let (service, program) = (Service::start(), compile("tests/store.c", "store-valgrind"));
    assert_eq!(valgrind(&program, &[&service.address(), "dram"]), "everything holds\n");
    std::fs::remove_dir_all(program.parent().unwrap()).unwrap();
}

#[test]
fn c_and_rust_agree_on_every_layout_of_a_store() {
    let program = compile("tests/store.c", "store-layout");
    let output = run(Command::new(&program).arg("--layout"));
    macro_rules! layout {
        ($($name:literal $t:ty { $($field:ident),* })*) => {
            vec![$((concat!($name).to_owned(), size_of::<$t>()), $((concat!($name, ".", stringify!($field)).to_owned(), offset_of!($t, $field))),*),*]
        };
    }
    let ours = layout! {
        "weir_store_opts_t" StoreOpts { name, location, hostnqn, deadline_ms, drive_timeout_ms, flags, reserved }
        "weir_file_opts_t" FileOpts { classes, location, copies, block, mode, uid, gid, reserved }
        "weir_stat_t" Stat { inode, bytes, created_ns, modified_ns, kind, mode, uid, gid, copies, block, classes }
        "weir_entry_t" EntryOut { inode, bytes, modified_ns, kind, mode, name }
        "weir_store_completion_t" StoreCompletion { user, result, reason }
    };
    let ours: String = ours.iter().map(|(name, at)| format!("{name} {at}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&output.stdout), ours);
    std::fs::remove_dir_all(program.parent().unwrap()).unwrap();
}

#[test]
fn header_and_library_agree_on_the_flags_of_a_store() {
    let header = std::fs::read_to_string(here("include/weir_store.h")).unwrap();
    let value = |name: &str| -> u32 {
        let line = header.lines().find_map(|l| l.strip_prefix("#define ")?.strip_prefix(name)?.strip_prefix(' '));
        let text = line.unwrap_or_else(|| panic!("{name} is not defined"));
        let text = text.split("/*").next().unwrap_or_default().trim().trim_end_matches('u');
        text.parse().unwrap_or_else(|_| panic!("{name} is {text}"))
    };
    for (name, flag) in [
        ("WEIR_STORE_ALLOW_FILES", abi::ALLOW_FILES),
        ("WEIR_FILE_WRITE", abi::WRITE),
        ("WEIR_FILE_CREATE", abi::CREATE),
        ("WEIR_FILE_EXCLUSIVE", abi::EXCLUSIVE),
        ("WEIR_FILE_TRUNCATE", abi::TRUNCATE),
        ("WEIR_PARENTS", abi::PARENTS),
        ("WEIR_RECURSIVE", abi::RECURSIVE),
        ("WEIR_REPLACE", abi::REPLACE),
        ("WEIR_NO_FOLLOW", abi::NO_FOLLOW),
    ] {
        assert_eq!(value(name), flag, "{name}");
    }
    for (name, kind) in [
        ("FILE", InodeKind::File),
        ("DIRECTORY", InodeKind::Directory),
        ("SYMLINK", InodeKind::Symlink),
        ("MULTIFILE", InodeKind::Multifile),
        ("TABLE", InodeKind::Table),
    ] {
        assert_eq!(value(&format!("WEIR_KIND_{name}")), u32::from(kind as u8), "{name}");
    }
}
