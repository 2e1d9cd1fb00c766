//! The configuration: any text is refused with faults that name their lines, or means the same when it is printed and read
//! again. Any query of a bench target is refused or gives a device within its limits.

use std::path::Path;
use weir_config::{Config, ConfigError, DeviceConfig};

/// Words that get past the first checks.
pub const DICTIONARY: &[&[u8]] = &[
    b"[node]\n",
    b"[[device]]\n",
    b"[[tenant]]\n",
    b"[[export]]\n",
    b"[door.nvme-tcp]\n",
    b"name = \"a\"\n",
    b"capacity = \"1GiB\"\n",
    b"latency = \"80us\"\n",
    b"slots = 16\n",
    b"arbitration = \"wrr\"\n",
    b"weights = { high = 1 }\n",
    b"quanta = \"4KiB:8KiB:1MiB\"\n",
    b"burst = 4\n",
    b"class = \"high\"\n",
    b"urgent = true\n",
    b"hosts = [\"nqn.a\", \"*\"]\n",
    b"device = \"a\"\n",
    b"tenant = \"a\"\n",
    b"door = \"nvme-tcp\"\n",
    b"door = \"vhost-user:s\"\n",
    b"door = \"vfio-user:t\"\ndoorbells = \"trap\"\n",
    b"class_from = \"peer\"\n",
    b"media = \"file:x\"\n",
    b"listen = \"127.0.0.1:0\"\n",
    b"api = \"unix:s\"\n",
    b"&slots=",
    b"%41",
    b"\"\"\"",
];

/// The built-in default, and a query.
pub fn seeds() -> Vec<Vec<u8>> {
    let query = "\u{1}latency=80us&slots=16&arbitration=drr&quanta=128KiB:64KiB:32KiB";
    vec![format!("\0{}", Config::builtin_toml(Path::new("/run/weir"))).into_bytes(), query.as_bytes().to_vec()]
}

/// The first byte says which: even a file, odd a query.
pub fn config(data: &[u8]) {
    let Some((&which, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    if which % 2 == 0 { file(text) } else { query(text) }
}

fn file(text: &str) {
    let base = Path::new("/base");
    match Config::parse(text, "f", base) {
        Err(error) => readable(&error, text.matches('\n').count() + 1),
        Ok(config) => {
            consistent(&config);
            let printed = config.to_toml();
            let again = Config::parse(&printed, "printed", base).unwrap_or_else(|e| panic!("{e}\n{printed}"));
            assert_eq!(again, config, "{printed}");
        }
    }
}

/// What the node relies on without asking again.
fn consistent(config: &Config) {
    assert!(!config.devices.is_empty() && !config.tenants.is_empty());
    assert!(!config.exports.is_empty() || !config.pools.is_empty() || !config.node.default_exports);
    assert!(!config.node.cores.is_empty() && !config.node.api.is_empty() && !config.nvme_tcp.listen.is_empty());
    config.devices.iter().for_each(device_limits);
    for export in &config.exports {
        let device = &config.devices[export.device];
        assert!((1..=device.queues).contains(&export.queues));
        if let Some((_, tenant)) = export.door.socket() {
            assert!(tenant < config.tenants.len());
        }
    }
    for (i, tenant) in config.tenants.iter().enumerate() {
        assert!((1..=256).contains(&tenant.weight));
        assert!(tenant.urgent || tenant.class != weir_units::Class::Urgent);
        assert!(config.tenants[..i].iter().all(|other| other.name != tenant.name));
    }
    assert!(config.tenants.iter().filter(|t| t.any_host).count() <= 1);
}

fn device_limits(device: &DeviceConfig) {
    assert!(matches!(device.block_size, 512 | 4096));
    assert!(device.capacity.is_none_or(|c| c.get() > 0 && c.get() % u64::from(device.block_size) == 0));
    assert!((1..=4096).contains(&device.slots) && (1..=1024).contains(&device.queues));
    assert!((2..=4096).contains(&device.queue_depth));
    assert!((1..=20).contains(&device.serial.len()) && (1..=223).contains(&device.nqn.len()));
    let a = device.arbitration;
    assert!([a.weights.high, a.weights.medium, a.weights.low].iter().all(|w| (1..=256).contains(w)));
    assert!([a.quanta.high, a.quanta.medium, a.quanta.low].iter().all(|q| (4096..=1 << 30).contains(q)));
    assert!(a.burst.is_none_or(|log2| log2 <= 6));
}

fn query(text: &str) {
    let (kind, query) = text.split_once('?').unwrap_or(("ram", text));
    match DeviceConfig::from_query(kind, query) {
        Ok(device) => device_limits(&device),
        Err(error) => readable(&error, 0),
    }
}

/// One line a fault, of a length that can be read, on a line that exists.
fn readable(error: &ConfigError, lines: usize) {
    assert!(!error.problems().is_empty());
    for problem in error.problems() {
        assert!(problem.line as usize <= lines.max(1), "{problem:?}");
        assert!(!problem.what.is_empty() && problem.what.chars().count() <= 400, "{problem:?}");
        assert!(!problem.to_string().chars().any(char::is_control), "{problem:?}");
    }
}
