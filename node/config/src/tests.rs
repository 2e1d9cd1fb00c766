//! Every message of the configuration, with its file, line and key; defaults; and that what is printed is read back.

use super::*;
use proptest::prelude::*;
use weir_store::{ClassName, PathPattern, PathPolicy, Tiering, Watermarks};
use weir_units::{Bytes, Ceiling, Class, Floor, Nanos, Rates, Sla};

fn base() -> &'static Path {
    Path::new("/etc/weir")
}

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, "weir.toml", base()).map_err(|e| e.to_string())
}

#[track_caller]
fn good(text: &str) -> Config {
    parse(text).unwrap_or_else(|e| panic!("{text}\n{e}"))
}

/// Each text with the whole message.
#[track_caller]
fn refused(cases: &[(&str, &str)]) {
    for (text, message) in cases {
        assert_eq!(parse(text).err().as_deref(), Some(*message), "\n--- for:\n{text}\n");
    }
}

#[test]
fn an_empty_file_serves_a_ram_drive_to_everybody() {
    let c = good("");
    assert_eq!(c.node.name, "n1");
    assert_eq!(c.node.api, [Address::Unix("/etc/weir/weir.sock".into())]);
    assert_eq!((c.node.cores.as_slice(), c.node.poll, c.node.journal), ([0].as_slice(), false, true));
    assert_eq!(c.devices.len(), 1);
    let d = &c.devices[0];
    assert_eq!((d.name.as_str(), &d.media, d.capacity), ("ssd0", &MediaConfig::Ram, Some(Bytes(Bytes::GIB))));
    assert_eq!((d.block_size, d.latency, d.slots, d.slot_bytes), (512, Nanos(0), 64, Bytes(4 * Bytes::MIB)));
    assert_eq!((d.arbitration, d.cost, d.class_from), (Arbitration::default(), Cost::Bytes, ClassFrom::Tenant));
    assert_eq!((d.queues, d.queue_depth, d.nqn.as_str()), (64, 1024, "nqn.2026-11.io.weir:n1:ssd0"));
    assert_eq!(d.serial.len(), 20);
    assert_eq!((c.tenants.len(), c.tenants[0].class, c.tenants[0].any_host), (1, Class::Medium, true));
    let export = ExportConfig {
        device: 0,
        door: DoorConfig::NvmeTcp,
        class_from: ClassFrom::Tenant,
        queues: 64,
        read_only: false,
    };
    assert_eq!((c.exports, c.nvme_tcp), (vec![export], NvmeTcpConfig::default()));
}

#[test]
fn the_builtin_default_is_gold_silver_and_bronze() {
    let c = Config::builtin(Path::new("/run/weir")).unwrap();
    let tenants: Vec<_> = c.tenants.iter().map(|t| (t.name.as_str(), t.class, t.any_host)).collect();
    assert_eq!(tenants, [("gold", Class::High, false), ("silver", Class::Medium, false), ("bronze", Class::Low, true)]);
    assert_eq!(c.tenants[0].hosts, ["nqn.2026-11.io.weir:host:gold"]);
    let doors: Vec<String> = c.exports.iter().map(|e| e.door.to_string()).collect();
    let sockets = ["gold", "silver", "bronze"].map(|t| format!("vhost-user:/run/weir/{t}.sock"));
    assert_eq!(doors[0], "nvme-tcp");
    assert_eq!(doors[1..], sockets);
    assert_eq!(c.devices[0].capacity, Some(Bytes(Bytes::GIB)));
    assert_eq!(c.devices[0].arbitration, Arbitration::default());
    assert_eq!(c.nvme_tcp.listen, ["127.0.0.1:4420".parse().unwrap()]);
    assert_eq!(c.node.api, [Address::Unix("/run/weir/weir.sock".into())]);
    // A folder's name may need quoting, and may be too long for a socket.
    let odd = Config::builtin(Path::new("/tmp/a \"b\" \\ é")).unwrap();
    assert_eq!(odd.node.api, [Address::Unix("/tmp/a \"b\" \\ é/weir.sock".into())]);
    let long = format!("/{}", "x".repeat(120));
    let error = Config::builtin(Path::new(&long)).unwrap_err();
    assert_eq!(error.problems().len(), 4);
    assert!(error.to_string().starts_with("(built-in default):5: node.api: /xxxx"), "{error}");
}

/// The example of the design, less what is a later release's.
#[test]
fn the_example_is_read() {
    let c = good(
        r#"
        [node]
        name = "n7"
        api = ["unix:weir.sock", "127.0.0.1:9400"]
        cores = [0, 3]
        poll = true
        journal = false

        [[device]]
        name = "fast"
        kind = "ram"
        capacity = "8GiB"
        latency = "80us"
        slots = 16
        slot_bytes = "1MiB"
        arbitration = "wrr"
        weights = { high = 40, low = 4 }
        burst = 8
        cost = "commands"
        class_from = "peer"
        queues = 8
        queue_depth = 4096
        block_size = 4096
        nqn = "nqn.2026-11.example:fast"
        serial = "S-1"

        [[device]]
        name = "big"
        media = "file:data/big.img"
        quanta = "256KiB:64KiB:32KiB"

        [[tenant]]
        name = "gold"
        class = "high"
        urgent = true
        weight = 3
        hosts = ["nqn.2014-08.org.nvmexpress:uuid:1", "*"]

        [[tenant]]
        name = "rest"

        [[export]]
        device = "fast"
        door = "vhost-user:sockets/gold.sock"
        tenant = "gold"
        queues = 4
        read_only = true

        [[export]]
        device = "fast"
        door = "nvme-tcp"
        class_from = "cattr"

        [[export]]
        device = "big"
        door = "vhost-user:/run/big.sock"
        tenant = "rest"

        [door.nvme-tcp]
        listen = ["127.0.0.1:4420", "[::1]:0"]
        in_capsule = "16KiB"
        header_digest = false
        data_digest = false
        tenant_buffer = "64MiB"
        connections = 8
        tenant_connections = 6
        tenant_reserve = 2
        host_connections = 5
        unconnected = 20
        address_unconnected = 10
        keep_alive = "always"
        "#,
    );
    assert_eq!((c.node.cores.as_slice(), c.node.poll), ([0, 3].as_slice(), true));
    assert_eq!(c.node.api[1], Address::Tcp("127.0.0.1:9400".parse().unwrap()));
    let fast = &c.devices[0];
    assert_eq!((fast.latency, fast.slots, fast.slot_bytes), (Nanos(80_000), 16, Bytes(Bytes::MIB)));
    assert_eq!(fast.arbitration.mechanism, Mechanism::Wrr);
    assert_eq!(fast.arbitration.weights, Shares { high: 40, medium: 16, low: 4 });
    assert_eq!((fast.arbitration.burst, fast.cost, fast.queue_depth), (Some(3), Cost::Commands, 4096));
    assert_eq!((fast.nqn.as_str(), fast.serial.as_str()), ("nqn.2026-11.example:fast", "S-1"));
    let big = &c.devices[1];
    assert_eq!((&big.media, big.capacity), (&MediaConfig::File("/etc/weir/data/big.img".into()), None));
    assert_eq!(big.arbitration.quanta, Shares { high: 256 << 10, medium: 64 << 10, low: 32 << 10 });
    assert_eq!((c.tenants[0].ceiling(), c.tenants[1].ceiling()), (Class::Urgent, Class::Medium));
    assert_eq!((c.tenants[0].hosts.len(), c.tenants[0].any_host), (1, true));
    let gold = DoorConfig::VhostUser { path: "/etc/weir/sockets/gold.sock".into(), tenant: 0 };
    assert_eq!((&c.exports[0].door, c.exports[0].queues, c.exports[0].read_only), (&gold, 4, true));
    assert_eq!(
        c.exports.iter().map(|e| e.class_from).collect::<Vec<_>>(),
        [ClassFrom::Peer, ClassFrom::Cattr, ClassFrom::Tenant]
    );
    assert_eq!(c.exports[2].queues, 16);
    assert_eq!((c.nvme_tcp.listen.len(), c.nvme_tcp.in_capsule, c.nvme_tcp.connections), (2, Bytes(16384), 8));
    assert_eq!((c.nvme_tcp.tenant_connections, c.nvme_tcp.tenant_reserve), (Some(6), Some(2)));
    assert_eq!((c.nvme_tcp.host_connections, c.nvme_tcp.keep_alive), (Some(5), KeepAlive::Always));
    assert_eq!((c.nvme_tcp.unconnected, c.nvme_tcp.address_unconnected), (20, 10));
    assert_eq!((c.nvme_tcp.header_digest, c.nvme_tcp.data_digest), (false, false));
    assert_eq!(c.nvme_tcp.tenant_buffer, Bytes(64 * Bytes::MIB));
}

#[test]
fn what_is_no_toml() {
    let error = parse("[node]\nname = \"a\nslots 3\n").unwrap_err();
    assert!(error.lines().all(|l| l.starts_with("weir.toml:") && l.contains(": not TOML: ")), "{error}");
    assert!(error.starts_with("weir.toml:2: "), "{error}");
    let error = parse("[node]\nname = \"a\"\nname = \"b\"").unwrap_err();
    assert_eq!(error, "weir.toml:3: not TOML: duplicate key");
}

#[test]
fn unknown_keys_name_the_nearest() {
    refused(&[
        ("[nod]\nname = \"x\"", "weir.toml:1: nod: unknown key; did you mean node?"),
        (
            "[node]\nnmae = \"x\"",
            "weir.toml:2: node.nmae: unknown key; there is admission, api, cores, default_exports, faults, journal, keeper, name, on_failure, on_failure_timeout, poll, standby",
        ),
        (
            "[node]\non_failure = \"page-me\"",
            "weir.toml:2: node.on_failure: \"page-me\" is no absolute path; write a program's whole path, and its arguments behind it: [\"/usr/local/bin/page-me\", \"storage\"]",
        ),
        ("[node]\non_failure = []", "weir.toml:2: node.on_failure: no program; leave the key out to run nothing"),
        (
            "[node]\non_failure_timeout = \"0s\"",
            "weir.toml:2: node.on_failure_timeout: 0 lets nothing run; write a time, like \"30s\"",
        ),
        ("[node]\ncoress = [0]", "weir.toml:2: node.coress: unknown key; did you mean cores?"),
        (
            "\n[[device]]\nname = \"a\"\ncapacty = \"1GiB\"",
            "weir.toml:4: device.a.capacty: unknown key; did you mean capacity?",
        ),
        ("[[tenant]]\nname = \"t\"\n\nhost = []", "weir.toml:4: tenant.t.host: unknown key; did you mean hosts?"),
        (
            "[[export]]\ndoor = \"nvme-tcp\"\nreadonly = true",
            "weir.toml:3: export#1.readonly: unknown key; did you mean read_only?",
        ),
        ("[door.nvme_tcp]", "weir.toml:1: door.nvme_tcp: unknown key; did you mean nvme-tcp?"),
        (
            "[door.nvme-tcp]\nport = 1",
            "weir.toml:2: door.nvme-tcp.port: unknown key; there is address_unconnected, connections, data_digest, header_digest, host_connections, in_capsule, inaccessible, keep_alive, listen, non_optimized, tenant_buffer, tenant_connections, tenant_reserve, unconnected",
        ),
        (
            "[door.nvme-tcp]\nconnections = 8\nhost_connections = 9",
            "weir.toml:3: door.nvme-tcp.host_connections: 9 is more than connections, 8; lower it, or raise connections",
        ),
        (
            "[[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"b\"\n[door.nvme-tcp]\ntenant_reserve = 600",
            "weir.toml:6: door.nvme-tcp.tenant_reserve: 1200 for 2 tenants is more than connections, 1024; lower it, or raise connections",
        ),
        (
            "[door.nvme-tcp]\naddress_unconnected = 600",
            "weir.toml:2: door.nvme-tcp.address_unconnected: 600 is more than unconnected, 512; lower it, or raise unconnected",
        ),
        (
            "\"a\\nb\" = 1",
            "weir.toml:1: a\\nb: unknown key; there is api, device, door, export, fault, node, pool, store, tenant, volume",
        ),
    ]);
}

#[test]
fn pools_and_volumes() {
    let text = "[[tenant]]\nname = \"gold\"\n[[device]]\nname = \"a\"\n[[device]]\nname = \"b\"\n\
                [[volume]]\nname = \"v\"\nsize = \"512MiB\"\nexport = [\"nvme-tcp\", \"vhost-user:v.sock\"]\n";
    let config = good(text);
    assert_eq!((config.pools[0].name.as_str(), &config.pools[0].devices[..]), ("pool0", &[0, 1][..]));
    assert_eq!((config.volumes[0].tenant, config.volumes[0].pool, config.volumes[0].exports.len()), (0, 0, 2));
    assert_eq!(config.volumes[0].exports[1].to_string(), "vhost-user:/etc/weir/v.sock");
    assert_eq!(config.exports, [], "a pool's drives are not exported by themselves");
    assert_eq!(good(&config.to_toml()).volumes, config.volumes);
    let one = good(&(text.to_owned() + "[[export]]\ndevice = \"a\"\ndoor = \"nvme-tcp\"\n"));
    assert_eq!((&one.pools[0].devices[..], one.exports.len()), (&[1][..], 1));
    refused(&[
        (
            "[[volume]]\nname = \"v\"",
            "weir.toml:1: volume.v.size: missing; say how large the volume is: size = \"1GiB\"",
        ),
        (
            "[[volume]]\nname = \"../v\"\nsize = 1",
            "weir.toml:2: volume#1.name: \"../v\" is no name: a name begins with a letter or a digit and goes on with these, \
             '.', '_' or '-'",
        ),
        (
            "[[volume]]\nname = \"v\"\nsize = 1\nexport = \"pigeon\"",
            "weir.toml:4: volume.v.export: \"pigeon\" is no door; there is nvme-tcp, vhost-user:PATH and vfio-user:PATH",
        ),
        (
            "[[pool]]\nname = \"p\"\ndrives = \"x\"",
            "weir.toml:3: pool.p.drives: there is no device \"x\"; there is ssd0\n\
             weir.toml:3: pool.p.drives: a pool has at least one drive that is not exported by itself; name it",
        ),
        (
            "[[pool]]\nname = \"p\"\ndrives = \"ssd0\"\n[[export]]\ndoor = \"nvme-tcp\"",
            "weir.toml:3: pool.p.drives: \"ssd0\" is exported by line 4; a pool's drive holds volumes: export these",
        ),
        (
            "[[device]]\n[[volume]]\nname = \"v\"\nsize = 1\nexport = \"vfio-user:x\"\n\
             [[volume]]\nname = \"w\"\nsize = 1\nexport = \"vhost-user:x\"",
            "weir.toml:6: volume.w.export: /etc/weir/x is taken by volume v; choose another path",
        ),
        (
            "[[volume]]\nname = \"ssd0\"\nsize = 1",
            "weir.toml:1: volume.ssd0.name: a device has this name; choose another one",
        ),
    ]);
}

#[test]
fn a_store_and_its_drives() {
    assert_eq!(good("").store, None);
    let c = good("[store]");
    assert_eq!(
        c.store,
        Some(StoreConfig {
            meta: StoreMeta::Redb("/etc/weir/store.redb".into()),
            listen: vec![StoreAddress::Tcp("127.0.0.1:4430".parse().unwrap())],
            durability: StoreDurability::Process,
            block: Bytes(Bytes::MIB),
            classes: vec!["dram".into(), "flash".into()],
            repair_after: Some(Nanos::from_secs(600)),
            tiering: Tiering::default(),
            donate: Vec::new(),
        })
    );
    let text = "[[device]]\nname = \"ram0\"\n[[device]]\nname = \"big\"\nmedia = \"file:b.img\"\ncapacity = \"1GiB\"\n\
                [store]\nmeta = \"memory:\"\nlisten = [\"unix:s.sock\", \"10.0.0.1:4430\"]\nblock = \"4MiB\"\n\
                classes = [\"dram\", \"optane\", \"flash\"]\n\
                [[store.donate]]\ndevice = \"ram0\"\nclass = \"dram\"\n\
                [[store.donate]]\ntarget = \"nvme-tcp://10.0.0.2:4420/nqn.x?ns=2\"\nclass = \"flash\"\nlocation = \"hall1/rack2\"\n";
    let c = good(text);
    let store = c.store.clone().unwrap();
    assert_eq!((&store.meta, store.block, store.classes.len()), (&StoreMeta::Memory, Bytes(4 << 20), 3));
    assert_eq!(store.listen[0], StoreAddress::Unix("/etc/weir/s.sock".into()));
    let etcd = good("[store]\nmeta = \"etcd:http://a:2379/,http://[::1]:2380/x/y\"\n");
    let endpoints = vec!["http://a:2379".into(), "http://[::1]:2380".into()];
    let meta = EtcdMeta { endpoints, prefix: "x/y".into(), access: EtcdAccess::default() };
    let store_of = |c: &Config| c.store.clone().unwrap();
    assert_eq!(store_of(&etcd).durability, StoreDurability::Power, "as etcd answers");
    assert_eq!((store_of(&etcd).meta, good(&etcd.to_toml())), (StoreMeta::Etcd(meta), etcd));
    assert!(
        matches!(store_of(&good("[store]\nmeta = \"etcd:http://a:2379\"\n")).meta, StoreMeta::Etcd(m) if m.prefix == "weir")
    );
    let secure = good(
        "[store]\nmeta = \"etcd:https://a:2379/x\"\n\
         etcd = { ca = \"ca.pem\", cert = \"/c.pem\", key = \"c.key\", user = \"weir\", password_file = \"p\" }\n",
    );
    let access = EtcdAccess {
        ca: Some("/etc/weir/ca.pem".into()),
        identity: Some(PemPair { cert: "/c.pem".into(), key: "/etc/weir/c.key".into() }),
        user: Some(EtcdUser { name: "weir".into(), password_file: "/etc/weir/p".into() }),
    };
    assert!(matches!(&store_of(&secure).meta, StoreMeta::Etcd(meta) if meta.access == access), "{secure:?}");
    assert_eq!(good(&secure.to_toml()), secure);
    let local = good("[store]\nmeta = \"etcd:http://[::1]:2379\"\netcd = { user = \"u\", password_file = \"p\" }\n");
    assert_eq!(good(&local.to_toml()), local, "a password to this machine needs no TLS");
    assert_eq!(store.donate[0].drive, DonatedDrive::Device(0));
    assert_eq!(store.donate[1].drive, DonatedDrive::Target("nvme-tcp://10.0.0.2:4420/nqn.x?ns=2".into()));
    assert_eq!((store.donate[1].class.as_str(), store.donate[1].location.as_str()), ("flash", "hall1/rack2"));
    assert_eq!(good(&c.to_toml()), c);
}

#[test]
fn what_a_store_cannot_be() {
    refused(&[
        ("store = 1", "weir.toml:1: store: a number where a table is wanted; write [store]"),
        ("[store]\nblok = 1", "weir.toml:2: store.blok: unknown key; did you mean block?"),
        (
            "[store]\nmeta = \"etcd:127.0.0.1:2379\"",
            "weir.toml:2: store.meta: \"127.0.0.1:2379\" is no member of an etcd; write etcd:http://HOST:PORT,http://HOST:PORT/PREFIX, with TLS etcd:https://",
        ),
        (
            "[store]\nmeta = \"etcd:https://a:2379,http://b:2379\"",
            "weir.toml:2: store.meta: https://a:2379 and http://b:2379: one member has TLS and another has none; write https:// for all",
        ),
        (
            "[store]\nmeta = \"etcd:http://a:2379,http://a:2379\"",
            "weir.toml:2: store.meta: http://a:2379 is listed twice; keep one",
        ),
        (
            "[store]\nmeta = \"etcd:http://a:2379/x,http://b:2379/y\"",
            "weir.toml:2: store.meta: \"x\" and \"y\" are two prefixes; a store has one",
        ),
        (
            "[store]\nmeta = \"etcd:http://a:2379/x y\"",
            "weir.toml:2: store.meta: \"x y\" is no prefix; use letters, digits, '/', '.', '-' and '_'",
        ),
        (
            "[store]\nmeta = \"etcd:http://a:2379\"\ndurability = \"process\"",
            "weir.toml:3: store.durability: \"process\" does not go with etcd, which has every commit on its medium; leave it out, or write \"power\"",
        ),
        (
            "[store]\nmeta = \"etcd:http://a:2379\"\netcd = { ca = \"ca.pem\" }",
            "weir.toml:3: store.etcd.ca: http://a:2379 is reached without TLS; write https://a:2379 for it",
        ),
        (
            "[store]\nmeta = \"etcd:http://127.0.0.1:2379,http://10.0.0.1:2379\"\netcd = { user = \"u\", password_file = \"p\" }",
            "weir.toml:3: store.etcd.user: http://10.0.0.1:2379 is not loopback, and the network would see the password; write https://10.0.0.1:2379 for it",
        ),
        (
            "[store]\nmeta = \"etcd:https://a:2379\"\netcd = { cert = \"c\" }",
            "weir.toml:3: store.etcd.key: missing; write the path of the certificate's private key, in PEM",
        ),
        (
            "[store]\nmeta = \"etcd:https://a:2379\"\netcd = { user = \"u\" }",
            "weir.toml:3: store.etcd.password_file: missing; write the path of the file with the user's password",
        ),
        (
            "[store]\nmeta = \"etcd:https://a:2379\"\netcd = { user = \"u\", password = \"secret\", password_file = \"p\" }",
            "weir.toml:3: store.etcd.password: unknown key; there is ca, cert, key, password_file, user",
        ),
        (
            "[store]\netcd = { ca = \"ca.pem\" }",
            "weir.toml:2: store.etcd: the metadata are not in etcd; leave it out, or write meta = \"etcd:https://HOST:PORT\"",
        ),
        (
            "[store]\nmeta = \"redb:\"",
            "weir.toml:2: store.meta: redb: needs a file; write redb:/var/lib/weir/store.redb",
        ),
        (
            "[store]\nmeta = \"sqlite:x\"",
            "weir.toml:2: store.meta: \"sqlite:x\" is no place for metadata; there is redb:PATH, etcd:http://HOST:PORT and memory:",
        ),
        (
            "[store]\nmeta = \"memory:x\"",
            "weir.toml:2: store.meta: \"memory:x\" is no place for metadata; there is redb:PATH, etcd:http://HOST:PORT and memory:",
        ),
        (
            "[store]\nmeta = \"memory:\"\ndurability = \"power\"",
            "weir.toml:3: store.durability: \"power\" does not go with meta = \"memory:\", which outlives nothing; write redb:PATH",
        ),
        (
            "[store]\nrepair_after = \"10ms\"",
            "weir.toml:2: store.repair_after: 10ms is too short; at least 1s is needed, or \"none\"",
        ),
        (
            "[store]\ndurability = \"never\"",
            "weir.toml:2: store.durability: \"never\" is unknown; \"process\" or \"power\" is allowed",
        ),
        (
            "[store]\nlisten = \"here:4430\"",
            "weir.toml:2: store.listen: \"here:4430\" is not an address like 127.0.0.1:4430 or unix:store.sock (no host names)",
        ),
        (
            "[store]\nlisten = []",
            "weir.toml:2: store.listen: no address; leave the key out for the default 127.0.0.1:4430",
        ),
        (
            "[store]\nlisten = [\"1.1.1.1:1\", \"1.1.1.1:1\"]",
            "weir.toml:2: store.listen: 1.1.1.1:1 is listed twice; keep one",
        ),
        (
            "[store]\nlisten = \"127.0.0.1:4420\"",
            "weir.toml:2: store.listen: 127.0.0.1:4420 is taken by door.nvme-tcp.listen; choose another address",
        ),
        (
            "[store]\nlisten = \"unix:weir.sock\"",
            "weir.toml:2: store.listen: unix:/etc/weir/weir.sock is taken by the API; choose another address",
        ),
        (
            "[store]\nblock = \"100KiB\"",
            "weir.toml:2: store.block: 100KiB is no power of two; 64KiB, 1MiB and 4MiB are usual",
        ),
        ("[store]\nblock = 4096", "weir.toml:2: store.block: 4KiB is out of range; 64KiB to 4MiB is allowed"),
        (
            "[store]\nclasses = [\"DRAM\"]",
            "weir.toml:2: store.classes: \"DRAM\" is no class; use 1 to 64 small letters, digits, '-' and '_', like \"dram\"",
        ),
        ("[store]\nclasses = [\"a\", \"a\"]", "weir.toml:2: store.classes: \"a\" is listed twice; keep one"),
        ("[store]\nclasses = []", "weir.toml:2: store.classes: no class; leave the key out for the default"),
        (
            "[store]\nhigh_watermark = \"70%\"",
            "weir.toml:2: store.high_watermark: low_watermark is 80% and high_watermark 70%; the low one is less",
        ),
        (
            "[store]\nhigh_watermark = \"50%\"\nlow_watermark = \"50%\"",
            "weir.toml:3: store.low_watermark: low_watermark is 50% and high_watermark 50%; the low one is less",
        ),
        (
            "[store]\nhigh_watermark = 0.9",
            "weir.toml:2: store.high_watermark: a number with a fraction where a string is wanted; write a percentage like \"90%\"",
        ),
        (
            "[store]\nlow_watermark = \"0%\"",
            "weir.toml:2: store.low_watermark: \"0%\" is no percentage from \"1%\" to \"100%\"",
        ),
    ]);
}

#[test]
fn policies_of_a_store() {
    let text = "[store]\nhigh_watermark = \"70%\"\nlow_watermark = \"60%\"\n\
                [[store.policy]]\npath = \"/tmp/**\"\nclasses = [\"dram\", \"flash\"]\ncopies = 2\ndemote_after = \"10min\"\n\
                [[store.policy]]\npath = \"/*/?.log\"\nclasses = \"flash\"\ndemote_after = \"none\"\n";
    let tiering = good(text).store.unwrap().tiering;
    let policy = |path, classes: &[&str], copies, after: Option<u64>| PathPolicy {
        path: PathPattern::new(path).unwrap(),
        classes: classes.iter().map(|name| ClassName::new(name).unwrap()).collect(),
        copies,
        demote_after: after.map(Nanos::from_secs),
    };
    let policies = vec![policy("/tmp/**", &["dram", "flash"], 2, Some(600)), policy("/*/?.log", &["flash"], 1, None)];
    assert_eq!(tiering, Tiering { policies, watermarks: Watermarks::of_percent(70, 60) });
    let policy = |keys: &str| format!("[store]\n[[store.policy]]\n{keys}");
    refused(&[
        (&policy(""), "weir.toml:2: store.policy#1.path: missing; write which files are meant, like \"/tmp/**\""),
        (
            &policy("path = \"tmp/**\""),
            "weir.toml:3: store.policy#1.path: \"tmp/**\": a pattern is over whole paths; write one like \"/tmp/**\"",
        ),
        (
            &policy("path = \"/a**\""),
            "weir.toml:3: store.policy#1.path: \"/a**\": ** stands between two / by itself; within a name write *",
        ),
        (
            &policy("path = \"/[ab]\""),
            "weir.toml:3: store.policy#1.path: \"/[ab]\": '[' has no meaning here; there is *, ? and **",
        ),
        (
            &policy("path = \"/a\"\nclasses = [\"dram\", \"tape\"]"),
            "weir.toml:4: store.policy#1.classes: there is no class \"tape\"; classes of [store] has dram, flash",
        ),
        (
            &policy("path = \"/a\"\ncopies = 5"),
            "weir.toml:4: store.policy#1.copies: 5 is out of range; 1 to 4 is allowed",
        ),
        (
            &policy("path = \"/a\"\ndemote_after = \"10ms\""),
            "weir.toml:4: store.policy#1.demote_after: 10ms is too short; at least 1s is needed, or \"none\"",
        ),
        (
            &policy("path = \"/a\"\nclasses = [\"flash\"]\ndemote_after = \"1min\""),
            "weir.toml:5: store.policy#1.demote_after: there is one class, and none that blocks could go to; name a second one in \
             classes, or leave it out",
        ),
        (
            &policy("path = \"/a\"\ndemote = \"1min\""),
            "weir.toml:4: store.policy#1.demote: unknown key; there is classes, copies, demote_after, path",
        ),
    ]);
}

#[test]
fn what_a_store_cannot_fill() {
    let donate = |keys: &str| format!("[store]\n[[store.donate]]\n{keys}");
    refused(&[
        (
            &donate(""),
            "weir.toml:2: store.donate#1.device: missing; write device = \"NAME\" for a drive of this node, or target = \
             \"nvme-tcp://HOST:PORT/NQN?ns=1\"\n\
             weir.toml:2: store.donate#1.class: missing; write one of the store's classes",
        ),
        (
            &donate("device = \"ssd0\"\nclass = \"optane\""),
            "weir.toml:4: store.donate#1.class: there is no class \"optane\"; classes of [store] has dram, flash",
        ),
        (
            &donate("device = \"x\"\nclass = \"dram\""),
            "weir.toml:3: store.donate#1.device: there is no device \"x\"; there is ssd0",
        ),
        (
            &donate("device = \"ssd0\"\ntarget = \"nvme-tcp://h:1/n\"\nclass = \"dram\""),
            "weir.toml:4: store.donate#1.target: device says which drive it is already; keep one of the two",
        ),
        (
            &donate("target = \"vfio-user:/x\"\nclass = \"dram\""),
            "weir.toml:3: store.donate#1.target: \"vfio-user:/x\" is not a namespace like nvme-tcp://10.0.0.2:4420/NQN?ns=1",
        ),
        (
            &donate("device = \"ssd0\"\nclass = \"dram\"\nlocation = \"a//b\""),
            "weir.toml:5: store.donate#1.location: \"a//b\" is no location; write its parts from the widest on, like \"hall1/rack2\"",
        ),
        (
            &(donate("device = \"ssd0\"\nclass = \"dram\"\n")
                + "[[store.donate]]\ndevice = \"ssd0\"\nclass = \"dram\""),
            "weir.toml:6: store.donate#2.device: \"ssd0\" is taken by line 3; a drive is donated once",
        ),
        (
            &(donate("device = \"ssd0\"\nclass = \"dram\"\n") + "[[device]]\nkind = \"null\""),
            "weir.toml:3: store.donate#1.device: \"ssd0\" keeps no bytes; the store needs a drive that does",
        ),
        (
            &(donate("device = \"ssd0\"\nclass = \"dram\"\n") + "[[device]]\ncapacity = \"64MiB\""),
            "weir.toml:3: store.donate#1.device: \"ssd0\" has 64MiB; the store takes drives of 65MiB or more",
        ),
        (
            &(donate("device = \"ssd0\"\nclass = \"dram\"\n") + "[[pool]]"),
            "weir.toml:3: store.donate#1.device: \"ssd0\" is a drive of pool \"pool0\"; the store takes whole drives",
        ),
        (
            &(donate("device = \"ssd0\"\nclass = \"dram\"\n") + "[[export]]\ndoor = \"vhost-user:x\""),
            "weir.toml:3: store.donate#1.device: \"ssd0\" is not exported by nvme-tcp, which is how the store's clients reach it; \
             add an [[export]] of it",
        ),
        (
            &(donate("device = \"ssd0\"\nclass = \"dram\"\n") + "[[export]]\ndoor = \"nvme-tcp\"\nread_only = true"),
            "weir.toml:3: store.donate#1.device: \"ssd0\" is exported read-only; the store writes to its drives",
        ),
        (
            &(donate("device = \"ssd0\"\nclass = \"dram\"\n") + "[door.nvme-tcp]\nlisten = \"0.0.0.0:4420\""),
            "weir.toml:3: store.donate#1.device: \"ssd0\" has no address that clients could be told: name one in listen of \
             [door.nvme-tcp] beside 0.0.0.0 or [::]",
        ),
    ]);
}

#[test]
fn exports_that_nobody_wrote() {
    let two = "[[device]]\nname = \"a\"\n[[device]]\nname = \"b\"\n";
    let export = "[[export]]\ndevice = \"b\"\ndoor = \"nvme-tcp\"\n";
    let pool = "[[pool]]\ndrives = [\"a\"]\n";
    let none: [usize; 0] = [];
    let exported = |text: &str| good(text).exports.iter().map(|e| e.device).collect::<Vec<_>>();
    assert_eq!(exported(two), [0, 1]);
    assert_eq!(exported(&format!("{two}{export}")), [1]);
    assert_eq!(exported(&format!("{two}{pool}")), none, "what is not in the pool yet may join");
    assert_eq!(exported(&format!("{two}{pool}{export}")), [1]);
    let off = "[node]\ndefault_exports = false\n";
    assert_eq!(exported(&format!("{off}{two}")), none);
    assert_eq!(exported(&format!("{off}{two}{export}")), [1]);
    // Exports that were all ended are not there in the next worker either.
    for text in [two, &format!("{two}{pool}{export}"), &format!("{two}{export}")] {
        let mut config = good(text);
        config.exports.clear();
        assert_eq!(good(&config.to_toml()).exports, [], "{text}");
    }
}

#[test]
fn what_comes_later_is_refused_not_ignored() {
    refused(&[(
        "[[device]]\ncost = \"device-time\"",
        "weir.toml:2: device.ssd0.cost: device-time is what flash spends on a command, and this drive has none inside; \
             give it a profile, or use bytes or commands",
    )]);
}

#[test]
fn a_library_says_what_commands_cost() {
    let text = "[[device]]\ncost = \"commands\"\ncost_library = \"/opt/cost.so\"\ncost_arguments = \"2\"\n";
    let config = good(text);
    let wanted = Some(PolicyConfig { library: "/opt/cost.so".into(), arguments: "2".into() });
    assert_eq!((config.devices[0].cost, &config.devices[0].cost_policy), (Cost::Commands, &wanted));
    assert_eq!(good(&config.to_toml()).devices, config.devices);
    assert_eq!(good("[[device]]\ncost_library = \"/c.so\"").devices[0].cost_policy.as_ref().unwrap().arguments, "");
    refused(&[
        (
            "[[device]]\ncost_library = \"cost.so\"",
            "weir.toml:2: device.ssd0.cost_library: is the absolute path of a shared library, not \"cost.so\"",
        ),
        (
            "[[device]]\ncost_arguments = \"2\"",
            "weir.toml:2: device.ssd0.cost_arguments: is for a cost_library, and there is none; leave it out",
        ),
    ]);
}

#[test]
fn a_pcie_drive_on_a_socket() {
    let text = "[[tenant]]\nname = \"gold\"\n[[device]]\nkind = \"null\"\nqueues = 8\n\
                [[export]]\ndoor = \"vfio-user:x.sock\"\ndoorbells = \"trap\"\nclass_from = \"qprio\"\nqueues = 4\n";
    let config = good(text);
    let export = &config.exports[0];
    let door = DoorConfig::VfioUser { path: "/etc/weir/x.sock".into(), tenant: 0, doorbells: Doorbells::Trap };
    assert_eq!((&export.door, export.class_from, export.queues), (&door, ClassFrom::Qprio, 4));
    assert_eq!(good(&config.to_toml()).exports, config.exports);
    assert_eq!(
        good(&text.replace("doorbells = \"trap\"\n", "")).exports[0].door.to_string(),
        "vfio-user:/etc/weir/x.sock"
    );
    refused(&[
        (
            "[[export]]\ndoor = \"vfio-user\"",
            "weir.toml:2: export#1.door: vfio-user needs a socket; write vfio-user:PATH",
        ),
        (
            "[[export]]\ndoor = \"vfio-user:x\"\nread_only = true",
            "weir.toml:3: export#1.read_only: a drive is not exported read-only; its host has Namespace Write Protection \
             (nvme set-feature -f 0x84)",
        ),
        (
            "[[export]]\ndoor = \"nvme-tcp\"\ndoorbells = \"auto\"",
            "weir.toml:3: export#1.doorbells: only a vfio-user drive has doorbells of its own; leave it out",
        ),
        (
            "[[export]]\ndoor = \"vfio-user:x\"\nclass_from = \"cattr\"",
            "weir.toml:3: export#1.class_from: \"cattr\" means nothing at this door; \"tenant\", \"qprio\" or \"peer\" is allowed",
        ),
        (
            "[[export]]\ndoor = \"vfio-user:x\"\n[[export]]\ndoor = \"vhost-user:x\"",
            "weir.toml:4: export#2.door: this socket is taken by line 1; choose another path",
        ),
    ]);
}

#[test]
fn promises_of_tenants() {
    let tenant = |keys: &str| format!("[[tenant]]\nname = \"t\"\n{keys}");
    let config = good(&tenant(
        "floor = { bandwidth = \"500MB/s\", iops = 100, catch_up = \"20ms\" }\n\
         ceiling = { iops = \"200k\", burst = 1000, bandwidth = \"1GiB/s\", burst_bytes = \"1MiB\" }\n\
         sla = { p50 = \"80us\", p99 = \"2ms\", iops = 100 }",
    ));
    let t = &config.tenants[0];
    let floor = Rates { iops: Some(100), bandwidth: Some(Bytes(500_000_000)) };
    assert_eq!(t.floor, Floor { rates: floor, catch_up: Nanos::from_millis(20) });
    let most = Rates { iops: Some(200_000), bandwidth: Some(Bytes(Bytes::GIB)) };
    assert_eq!(t.ceiling, Ceiling { rates: most, burst: Some(1000), burst_bytes: Some(Bytes(Bytes::MIB)) });
    let rates = Rates { iops: Some(100), bandwidth: None };
    let (p50, p99) = (Some(Nanos::from_micros(80)), Some(Nanos::from_millis(2)));
    assert_eq!(t.sla, Sla { rates, p50, p99, p999: None });
    assert_eq!(good(&config.to_toml()).tenants, config.tenants);
    assert_eq!(floors(&[t.clone(), t.clone()]), floor.sum(floor));

    let wrong = |keys: &str, what: &str| refused(&[(tenant(keys).as_str(), what)]);
    wrong("floor = {}", "weir.toml:3: tenant.t.floor: says no rate; write iops, bandwidth or both");
    wrong("ceiling = { burst = 3 }", "weir.toml:3: tenant.t.ceiling: says no rate; write iops, bandwidth or both");
    wrong("sla = {}", "weir.toml:3: tenant.t.sla: says nothing; write iops, bandwidth, p50, p99 or p999");
    wrong("floor = { iops = 0 }", "weir.toml:3: tenant.t.floor.iops: 0 is out of range; 1 to 1000000000 is allowed");
    wrong(
        "floor = { bandwith = \"1MB/s\" }",
        "weir.toml:3: tenant.t.floor: says no rate; write iops, bandwidth or both\n\
         weir.toml:3: tenant.t.floor.bandwith: unknown key; did you mean bandwidth?",
    );
    wrong(
        "floor = { bandwidth = \"1MB\" }",
        "weir.toml:3: tenant.t.floor.bandwidth: \"1MB\" is not a bandwidth like 500MB/s or 1GiB/s",
    );
    wrong(
        "floor = { iops = 5, catch_up = \"1us\" }",
        "weir.toml:3: tenant.t.floor.catch_up: 1us is too short; at least 1ms is needed",
    );
    wrong(
        "ceiling = { bandwidth = \"1MB/s\", burst = 3 }",
        "weir.toml:3: tenant.t.ceiling.burst: counts commands, and the ceiling says no iops; write iops, or burst_bytes",
    );
    wrong(
        "floor = { iops = 300 }\nceiling = { iops = 200 }",
        "weir.toml:3: tenant.t.floor: iops = 300 is more than the ceiling allows (200); lower it, or raise the ceiling",
    );
    wrong(
        "sla = { p50 = \"2ms\", p99 = \"1ms\" }",
        "weir.toml:3: tenant.t.sla.p99: is below p50, which is never above it; raise it",
    );
    wrong("floor = 3", "weir.toml:3: tenant.t.floor: a number where a table is wanted; write [tenant.t.floor]");
}

#[test]
fn wrong_types() {
    refused(&[
        ("node = 1", "weir.toml:1: node: a number where a table is wanted; write [node]"),
        ("[[node]]", "weir.toml:1: node: a list where a table is wanted; write [node]"),
        ("[device]", "weir.toml:1: device: a table where a list of tables is wanted; write [[device]]"),
        ("device = [1]", "weir.toml:1: device: a number where a table is wanted; write [[device]]"),
        ("[door]\nnvme-tcp = 1", "weir.toml:2: door.nvme-tcp: a number where a table is wanted; write [door.nvme-tcp]"),
        ("[node]\nname = 1", "weir.toml:2: node.name: a number where a string is wanted"),
        ("[node]\npoll = \"yes\"", "weir.toml:2: node.poll: \"yes\" where true or false is wanted"),
        ("[node]\ncores = 1.5", "weir.toml:2: node.cores: a number with a fraction where a number is wanted"),
        ("[node]\ncores = \"0\"", "weir.toml:2: node.cores: \"0\" where a number is wanted"),
        ("[[device]]\nslots = \"64\"", "weir.toml:2: device.ssd0.slots: \"64\" where a number is wanted"),
        ("[[device]]\nlatency = 80", "weir.toml:2: device.ssd0.latency: 80 where a time like \"80us\" is wanted"),
        (
            "[[device]]\ncapacity = 2020-01-01",
            "weir.toml:2: device.ssd0.capacity: a date where a size like \"4KiB\" is wanted",
        ),
        (
            "[[device]]\nweights = 3",
            "weir.toml:2: device.ssd0.weights: a number where a table like { high = …, medium = …, low = … } is wanted",
        ),
        (
            "[[device]]\nburst = \"8\"",
            "weir.toml:2: device.ssd0.burst: \"8\" where 1, 2, 4, 8, 16, 32, 64 or \"none\" is wanted",
        ),
    ]);
}

#[test]
fn wrong_units_and_ranges() {
    refused(&[
        (
            "[[device]]\ncapacity = \"1Gib\"",
            "weir.toml:2: device.ssd0.capacity: \"1Gib\" is not a size like 4KiB (1024-based), 10GB (1000-based) or 4096",
        ),
        (
            "[[device]]\ncapacity = \"80us\"",
            "weir.toml:2: device.ssd0.capacity: \"80us\" is not a size like 4KiB (1024-based), 10GB (1000-based) or 4096",
        ),
        ("[[device]]\nlatency = \"80\"", "weir.toml:2: device.ssd0.latency: \"80\" is not a time like 80us, 2ms, 10s"),
        ("[[device]]\nlatency = \"1min\"", "weir.toml:2: device.ssd0.latency: 60s is too long; at most 10s is allowed"),
        ("[[device]]\ncapacity = -1", "weir.toml:2: device.ssd0.capacity: -1 is below zero"),
        (
            "[[device]]\ncapacity = 0",
            "weir.toml:2: device.ssd0.capacity: 0B is out of range; 64KiB to 65536TiB is allowed",
        ),
        (
            "[[device]]\ncapacity = 1000001",
            "weir.toml:2: device.ssd0.capacity: 1000001B is not a multiple of the block size, 512 bytes",
        ),
        ("[[device]]\nslots = 0", "weir.toml:2: device.ssd0.slots: 0 is out of range; 1 to 4096 is allowed"),
        ("[[device]]\nslots = -4", "weir.toml:2: device.ssd0.slots: -4 is out of range; 1 to 4096 is allowed"),
        (
            "[[device]]\nslots = 99999999999999999999",
            "weir.toml:2: device.ssd0.slots: a number is out of range; 1 to 4096 is allowed",
        ),
        (
            "[[device]]\nread_zeroes = true",
            "weir.toml:2: device.ssd0.read_zeroes: only a drive with media = \"null\" may leave open what a read gives, and this is ram",
        ),
        (
            "[[device]]\nmedia = \"null\"\ncapacity = \"1MiB\"\nread_zeroes = \"yes\"",
            "weir.toml:4: device.ssd0.read_zeroes: \"yes\" where true or false is wanted",
        ),
        (
            "[[device]]\n[[pool]]\nname = \"p\"\ndrives = [\"ssd0\"]\n[[volume]]\nname = \"v\"\nsize = \"1MiB\"\nmax_controllers = 0",
            "weir.toml:8: volume.v.max_controllers: 0 is out of range; 1 to 65519 is allowed",
        ),
        (
            "[[device]]\n[[pool]]\nname = \"p\"\ndrives = [\"ssd0\"]\n[[volume]]\nname = \"v\"\nsize = \"1MiB\"\nmax_controllers = 65520",
            "weir.toml:8: volume.v.max_controllers: 65520 is out of range; 1 to 65519 is allowed",
        ),
        (
            "[[device]]\nfast_io_fail_tmo = \"5s\"",
            "weir.toml:2: device.ssd0.fast_io_fail_tmo: only a drive with media = \"nvme:nvme-tcp://…\", \"nvme:vfio-user:…\" or \"pci:…\" is connected to, and this is ram",
        ),
        (
            "[[device]]\nmedia = \"nvme:vfio-user:/a.sock\"\nkeep_alive_tmo = \"5s\"",
            "weir.toml:3: device.ssd0.keep_alive_tmo: only a drive with media = \"nvme:nvme-tcp://…\" is connected to, and this is nvme:vfio-user:/a.sock",
        ),
        (
            "[[device]]\nmedia = \"nvme:nvme-tcp://h:1/nqn.x\"\nfast_io_fail_tmo = \"5s\"",
            "weir.toml:3: device.ssd0.fast_io_fail_tmo: fast_io_fail_tmo, 5s, is less than keep_alive_tmo, 15s, after which a silent target is seen to have gone; make fast_io_fail_tmo at least 15s, or 0 to have commands fail at once, or keep_alive_tmo smaller",
        ),
        (
            "[[device]]\nmedia = \"nvme:nvme-tcp://h:1/nqn.x\"\nkeep_alive_tmo = \"90s\"",
            "weir.toml:3: device.ssd0.keep_alive_tmo: fast_io_fail_tmo, 60s, is less than keep_alive_tmo, 90s, after which a silent target is seen to have gone; make fast_io_fail_tmo at least 90s, or 0 to have commands fail at once, or keep_alive_tmo smaller",
        ),
        (
            "[[device]]\nmedia = \"nvme:nvme-tcp://h:1/nqn.x\"\nreconnect = \"5s\"\nkeep_alive_tmo = \"10s\"",
            "weir.toml:4: device.ssd0.keep_alive_tmo: fast_io_fail_tmo, 5s, is less than keep_alive_tmo, 10s, after which a silent target is seen to have gone; make fast_io_fail_tmo at least 10s, or 0 to have commands fail at once, or keep_alive_tmo smaller",
        ),
        (
            "[[device]]\nmedia = \"nvme:nvme-tcp://h:1/nqn.x\"\nkeep_alive_tmo = \"100ms\"",
            "weir.toml:3: device.ssd0.keep_alive_tmo: 100ms is out of range; 1s to 3600s is allowed",
        ),
        ("[[device]]\ncmb = \"3MiB\"", "weir.toml:2: device.ssd0.cmb: 3MiB is no power of two, as 4MiB is"),
        ("[[device]]\ncmb = \"2GiB\"", "weir.toml:2: device.ssd0.cmb: 2GiB is out of range; 4KiB to 1GiB is allowed"),
        (
            "[[device]]\nslot_bytes = \"4KiB\"",
            "weir.toml:2: device.ssd0.slot_bytes: 4KiB is out of range; 128KiB to 1GiB is allowed",
        ),
        (
            "[[device]]\nblock_size = 1024",
            "weir.toml:2: device.ssd0.block_size: 1KiB is no block size; 512 or 4096 is allowed",
        ),
        ("[[device]]\nqueues = 1025", "weir.toml:2: device.ssd0.queues: 1025 is out of range; 1 to 1024 is allowed"),
        (
            "[[device]]\nqueue_depth = 1",
            "weir.toml:2: device.ssd0.queue_depth: 1 is out of range; 2 to 4096 is allowed",
        ),
        (
            "[[device]]\narbitration = \"fair\"",
            "weir.toml:2: device.ssd0.arbitration: \"fair\" is unknown; \"none\", \"rr\", \"wrr\" or \"drr\" is allowed",
        ),
        (
            "[[device]]\nweights = { high = 0 }",
            "weir.toml:2: device.ssd0.weights: high: 0 is out of range; 1 to 256 is allowed",
        ),
        (
            "[[device]]\nweights = { urgent = 9 }",
            "weir.toml:2: device.ssd0.weights: unknown class \"urgent\"; there is high, medium, low",
        ),
        (
            "[[device]]\nweights = \"1:2\"",
            "weir.toml:2: device.ssd0.weights: \"1:2\" is not three values like 32:16:8 (high:medium:low)",
        ),
        (
            "[[device]]\nname = \"d\"\n[device.quanta]\nhigh = \"1MiB\"\nlow = \"1KiB\"",
            "weir.toml:5: device.d.quanta: low: 1KiB is out of range; 4KiB to 1GiB is allowed",
        ),
        (
            "[[device]]\nburst = 3",
            "weir.toml:2: device.ssd0.burst: 3 is no power of two; 1, 2, 4, 8, 16, 32, 64 or \"none\" is allowed",
        ),
        (
            "[[device]]\nserial = \"a b\"",
            "weir.toml:2: device.ssd0.serial: \"a b\" is no serial number; use 1 to 20 printable ASCII characters",
        ),
        (
            "[[device]]\nnqn = \"iqn.x\"",
            "weir.toml:2: device.ssd0.nqn: \"iqn.x\" is not an NQN like nqn.2014-08.org.nvmexpress:uuid:… (at most 223 bytes, no blanks)",
        ),
        (
            "[[tenant]]\nname = \"t\"\nweight = 257",
            "weir.toml:3: tenant.t.weight: 257 is out of range; 1 to 256 is allowed",
        ),
        (
            "[[tenant]]\nname = \"t\"\nhosts = [\n  \"nqn.a\",\n  \"b\",\n]",
            "weir.toml:5: tenant.t.hosts: \"b\" is not an NQN like nqn.2014-08.org.nvmexpress:uuid:… (at most 223 bytes, no blanks)",
        ),
        ("[node]\ncores = []", "weir.toml:2: node.cores: no core; write at least one, like [0]"),
        ("[node]\ncores = [1, 1]", "weir.toml:2: node.cores: core 1 is listed twice; keep one"),
        (
            "[node]\nname = \"a/b\"",
            "weir.toml:2: node.name: \"a/b\" is no name; use 1 to 32 letters, digits, '-', '_' and '.', a letter or digit first",
        ),
        (
            "[door.nvme-tcp]\nin_capsule = 100",
            "weir.toml:2: door.nvme-tcp.in_capsule: 100B is not a multiple of 16 bytes",
        ),
    ]);
}

#[test]
fn addresses_and_media() {
    let long = format!("[node]\napi = \"unix:/{}\"", "p".repeat(107));
    let long_message = format!(
        "weir.toml:2: node.api: /{} has 108 bytes, a socket's path at most 107; choose a shorter one",
        "p".repeat(107)
    );
    refused(&[
        (
            "[node]\napi = \"localhost\"",
            "weir.toml:2: node.api: \"localhost\" is not an address like unix:weir.sock or 127.0.0.1:9400",
        ),
        (
            "[node]\napi = [\"unix:a\",\n\"0.0.0.0:9400\"]",
            "weir.toml:3: node.api: 0.0.0.0:9400 is not loopback; write tls = { cert = …, key = … } and tokens below [api] for that, or use 127.0.0.1 or [::1]",
        ),
        (
            "[node]\napi = \"0.0.0.0:9400\"\n[api]\ntls = { cert = \"c\", key = \"k\" }",
            "weir.toml:2: node.api: 0.0.0.0:9400 is not loopback; write tokens below [api] for that, or use 127.0.0.1 or [::1]",
        ),
        (
            "[api]\ntls = { cert = \"c\" }",
            "weir.toml:2: api.tls.key: missing; write the path of the private key, in PEM",
        ),
        ("[node]\napi = []", "weir.toml:2: node.api: no address; leave the key out for the default unix:weir.sock"),
        ("[node]\napi = [\"unix:a\", \"unix:a\"]", "weir.toml:2: node.api: unix:/etc/weir/a is listed twice; keep one"),
        ("[node]\napi = \"unix:\"", "weir.toml:2: node.api: \"\" is no path of a socket"),
        (&long, &long_message),
        (
            "[door.nvme-tcp]\nlisten = \"localhost:4420\"",
            "weir.toml:2: door.nvme-tcp.listen: \"localhost:4420\" is not an address like 127.0.0.1:4420 or [::1]:4420 (no host names)",
        ),
        (
            "[door.nvme-tcp]\nlisten = \"127.0.0.1:1\"\ninaccessible = \"127.0.0.1:2\"",
            "weir.toml:3: door.nvme-tcp.inaccessible: the door does not listen at 127.0.0.1:2; write it as in listen",
        ),
        (
            "[door.nvme-tcp]\nlisten = \"127.0.0.1:0\"\nnon_optimized = \"127.0.0.1:0\"",
            "weir.toml:3: door.nvme-tcp.non_optimized: 127.0.0.1:0 is a port that is not known yet; give it a number",
        ),
        (
            "[door.nvme-tcp]\nlisten = \"[::]:1\"\nnon_optimized = \"[::]:1\"\ninaccessible = [\"[::]:1\"]",
            "weir.toml:4: door.nvme-tcp.inaccessible: [::]:1 is in non_optimized as well; keep one",
        ),
        (
            "[door.nvme-tcp]\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:1\"]",
            "weir.toml:2: door.nvme-tcp.listen: 127.0.0.1:1 is listed twice; keep one",
        ),
        (
            "[[device]]\nmedia = \"tape\"",
            "weir.toml:2: device.ssd0.media: \"tape\" is no medium; there is ram, null, file:PATH, block:PATH, pci:ADDRESS and nvme:TARGET",
        ),
        ("[[device]]\nmedia = \"file:\"", "weir.toml:2: device.ssd0.media: file: needs a path; write file:PATH"),
        ("[[device]]\nmedia = \"block\"", "weir.toml:2: device.ssd0.media: block: needs a path; write block:PATH"),
        (
            "[[device]]\nmedia = \"nvme:x\"",
            "weir.toml:2: device.ssd0.media: nvme: needs a target like nvme:nvme-tcp://HOST:PORT/NQN?ns=1, \
             nvme:vfio-user:PATH?ns=1 or nvme:pci:0000:01:00.0?ns=1",
        ),
        (
            "[[device]]\nmedia = \"pci:nvme0\"",
            "weir.toml:2: device.ssd0.media: nvme: needs a target like nvme:nvme-tcp://HOST:PORT/NQN?ns=1, \
             nvme:vfio-user:PATH?ns=1 or nvme:pci:0000:01:00.0?ns=1: no PCI address after pci:",
        ),
        (
            "[[device]]\nmedia = \"pci:0000:01:00.0?interrupts=maybe\"",
            "weir.toml:2: device.ssd0.media: nvme: needs a target like nvme:nvme-tcp://HOST:PORT/NQN?ns=1, \
             nvme:vfio-user:PATH?ns=1 or nvme:pci:0000:01:00.0?ns=1: interrupts is on or off",
        ),
        (
            "[[device]]\nkind = \"file\"",
            "weir.toml:2: device.ssd0.kind: a file drive needs its file; write media = \"file:PATH\"",
        ),
        (
            "[[device]]\nkind = \"ram\"\nmedia = \"null\"",
            "weir.toml:2: device.ssd0.kind: \"ram\" does not fit media = \"null\"; leave kind out",
        ),
    ]);
    let media = |text: &str| good(&format!("[[device]]\n{text}")).devices[0].media.clone();
    assert_eq!(media("kind = \"null\""), MediaConfig::Null);
    assert_eq!(media("media = \"null\""), MediaConfig::Null);
    assert_eq!(media("media = \"block:/dev/sdx\""), MediaConfig::Block("/dev/sdx".into()));
    let remote = "nvme-tcp://10.0.0.2:4420/nqn.x?ns=1";
    assert_eq!(media(&format!("media = \"nvme:{remote}\"")), MediaConfig::Nvme(remote.into()));
    for text in
        ["media = \"pci:0000:01:00.0?ns=2\"", "media = \"nvme:pci:0000:01:00.0?ns=2\"\nfast_io_fail_tmo = \"5s\""]
    {
        assert_eq!(media(text), MediaConfig::Nvme("pci:0000:01:00.0?ns=2".into()), "{text}");
    }
    // As programs before `fast_io_fail_tmo` hand it over: the keep alive fits it, as far as it can.
    for (reconnect, millis, alive) in [("200ms", 200, 1), ("5s", 5000, 5), ("40s", 40_000, 15), ("0", 0, 15)] {
        let old = format!("[[device]]\nmedia = \"nvme:{remote}\"\nreconnect = \"{reconnect}\"");
        let old = &good(&old).devices[0];
        assert_eq!((old.fast_io_fail_tmo, old.keep_alive_tmo), (Nanos::from_millis(millis), Nanos::from_secs(alive)));
    }
    let socket = media("media = \"nvme:vfio-user:a.sock?ns=2\"");
    assert!(
        matches!(&socket, MediaConfig::Nvme(t) if t.starts_with("vfio-user:/") && t.ends_with("/a.sock?ns=2")),
        "{socket:?}"
    );
}

#[test]
fn names_used_twice() {
    refused(&[
        (
            "[[device]]\nname = \"a\"\n[[device]]\nname = \"a\"\n[[export]]\ndevice=\"a\"\ndoor=\"nvme-tcp\"",
            "weir.toml:3: device.a.name: \"a\" is taken by line 1; every device needs a name of its own",
        ),
        (
            "[[device]]\nnqn = \"nqn.a\"\n[[device]]\nnqn = \"nqn.a\"",
            "weir.toml:4: device.ssd1.nqn: \"nqn.a\" is taken by line 2; every device needs an NQN of its own",
        ),
        (
            "[[device]]\nserial = \"s\"\n[[device]]\nserial = \"s\"",
            "weir.toml:4: device.ssd1.serial: \"s\" is taken by line 2; every device needs a serial number of its own",
        ),
        (
            "[[device]]\nmedia = \"file:x\"\n[[device]]\nmedia = \"file:/etc/weir/x\"",
            "weir.toml:3: device.ssd1.media: \"file:/etc/weir/x\" is taken by line 1; two drives on one medium destroy each other's data",
        ),
        (
            "[[tenant]]\nname = \"t\"\n[[tenant]]\nname = \"t\"",
            "weir.toml:4: tenant.t.name: \"t\" is taken by line 2; every tenant needs a name of its own",
        ),
        (
            "[[tenant]]\nname = \"t\"\nhosts = \"nqn.h\"\n[[tenant]]\nname = \"u\"\nhosts = [\"nqn.h\"]",
            "weir.toml:6: tenant.u.hosts: \"nqn.h\" is taken by line 3; a host belongs to one tenant",
        ),
        (
            "[[tenant]]\nname = \"t\"\nhosts = \"*\"\n[[tenant]]\nname = \"u\"\nhosts = \"*\"",
            "weir.toml:6: tenant.u.hosts: \"*\" is taken by line 3; a host belongs to one tenant",
        ),
        ("[[tenant]]", "weir.toml:1: tenant#1.name: missing; give the tenant a name"),
        (
            "[[tenant]]\nname = \"t\"\nclass = \"urgent\"",
            "weir.toml:3: tenant.t.class: urgent goes before everybody else; write urgent = true as well to allow it",
        ),
    ]);
}

#[test]
fn exports_that_do_not_fit() {
    let two = "device = [{ name = \"a\" }, { name = \"b\" }]\ntenant = [{ name = \"t\" }, { name = \"u\" }]\n";
    let cases = [
        (
            "[[export]]\ndevice = \"a\"",
            "weir.toml:3: export#1.door: missing; write door = \"nvme-tcp\", \"vhost-user:PATH\" or \"vfio-user:PATH\"",
        ),
        (
            "[[export]]\ndevice = \"a\"\ndoor = \"iscsi\"",
            "weir.toml:5: export#1.door: \"iscsi\" is no door; there is nvme-tcp, vhost-user:PATH and vfio-user:PATH",
        ),
        (
            "[[export]]\ndevice = \"a\"\ndoor = \"vhost-user\"",
            "weir.toml:5: export#1.door: vhost-user needs a socket; write vhost-user:PATH",
        ),
        (
            "[[export]]\ndoor = \"nvme-tcp\"",
            "weir.toml:3: export#1.device: missing, and there are several; write one of a, b",
        ),
        (
            "[[export]]\ndevice = \"c\"\ndoor = \"nvme-tcp\"",
            "weir.toml:4: export#1.device: there is no device \"c\"; there is a, b",
        ),
        (
            "[[export]]\ndevice = \"a\"\ndoor = \"vhost-user:s\"",
            "weir.toml:3: export#1.tenant: missing, and there are several; write one of t, u",
        ),
        (
            "[[export]]\ndevice = \"a\"\ndoor = \"vhost-user:s\"\ntenant = \"x\"",
            "weir.toml:6: export#1.tenant: there is no tenant \"x\"; there is t, u",
        ),
        (
            "[[export]]\ndevice = \"a\"\ndoor = \"nvme-tcp\"\ntenant = \"t\"",
            "weir.toml:6: export#1.tenant: an NVMe/TCP host is known by its NQN; leave this out and list the NQN in hosts of a [[tenant]]",
        ),
        (
            "[[export]]\ndevice = \"a\"\ndoor = \"nvme-tcp\"\nclass_from = \"qprio\"",
            "weir.toml:6: export#1.class_from: \"qprio\" means nothing at this door; \"tenant\" or \"cattr\" is allowed",
        ),
        (
            "[[export]]\ndevice = \"a\"\ndoor = \"vhost-user:s\"\ntenant = \"t\"\nclass_from = \"cattr\"",
            "weir.toml:7: export#1.class_from: \"cattr\" means nothing at this door; \"tenant\" or \"peer\" is allowed",
        ),
        (
            "[[export]]\ndevice = \"a\"\ndoor = \"nvme-tcp\"\nqueues = 65",
            "weir.toml:6: export#1.queues: 65 is more than the device's queues, 64",
        ),
        (
            "[[export]]\ndevice = \"a\"\ndoor = \"nvme-tcp\"\n[[export]]\ndevice = \"a\"\ndoor = \"nvme-tcp\"",
            "weir.toml:8: export#2.door: line 3 exports this device by nvme-tcp already; leave one out",
        ),
        (
            "[[export]]\ndevice = \"a\"\ndoor = \"vhost-user:s\"\ntenant = \"t\"\n[[export]]\ndevice = \"b\"\ndoor = \"vhost-user:s\"\ntenant = \"u\"",
            "weir.toml:9: export#2.door: this socket is taken by line 3; choose another path",
        ),
        (
            "[[export]]\ndevice = \"a\"\ndoor = \"vhost-user:weir.sock\"\ntenant = \"t\"",
            "weir.toml:5: export#1.door: this socket is taken by the API; choose another path",
        ),
    ];
    for (text, message) in cases {
        refused(&[(&format!("{two}{text}"), message)]);
    }
}

#[test]
fn all_faults_are_told_by_line() {
    refused(&[(
        "[node]\nzebra = 1\ncores = 9999\n[[device]]\nslots = 0\nlatency = \"x\"\n[[tenant]]\nname = \"\"",
        "weir.toml:2: node.zebra: unknown key; there is admission, api, cores, default_exports, faults, journal, keeper, name, on_failure, on_failure_timeout, poll, standby\n\
         weir.toml:3: node.cores: 9999 is out of range; 0 to 4095 is allowed\n\
         weir.toml:5: device.ssd0.slots: 0 is out of range; 1 to 4096 is allowed\n\
         weir.toml:6: device.ssd0.latency: \"x\" is not a time like 80us, 2ms, 10s\n\
         weir.toml:8: tenant#1.name: \"\" is no name; use 1 to 32 letters, digits, '-', '_' and '.', a letter or digit first",
    )]);
}

#[test]
fn messages_stay_one_readable_line() {
    for text in ["[node]\nname = \"a\\nb\\u0007\"", "[[device]]\ncapacity = \"1\\n2\""] {
        let error = parse(text).unwrap_err();
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(!error.chars().any(char::is_control), "{error:?}");
    }
    let error = parse(&format!("[[device]]\ncapacity = \"{}\"", "9".repeat(5000))).unwrap_err();
    assert!(error.len() < 600, "{error}");
}

#[test]
fn a_file_is_found_and_its_folder_is_the_base() {
    let dir = std::env::temp_dir().join(format!("weir-config-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("w.toml");
    std::fs::write(&file, "[node]\napi = \"unix:a.sock\"").unwrap();
    assert_eq!(Config::load(&file, None).unwrap().node.api, [Address::Unix(dir.join("a.sock"))]);
    let missing = dir.join("none.toml");
    let error = Config::load(&missing, None).unwrap_err().to_string();
    let wanted = format!("{}: cannot be read: ", missing.display());
    assert!(error.starts_with(&wanted) && error.ends_with("; name a TOML file"), "{error}");
    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    assert!(Config::load(&file, None).unwrap_err().to_string().contains("cannot be read: "));
    std::fs::write(&file, " ".repeat((super::document::MAX_FILE + 1) as usize)).unwrap();
    assert!(Config::load(&file, None).unwrap_err().to_string().ends_with("a configuration has at most 1048576"));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn bench_targets_take_the_keys_of_a_device() {
    let d = DeviceConfig::from_query(
        "ram",
        "latency=80us&slots=16&arbitration=wrr&weights=4:2:1&burst=none&quanta=64KiB:8KiB:4KiB",
    )
    .unwrap();
    assert_eq!((d.media, d.latency, d.slots), (MediaConfig::Ram, Nanos(80_000), 16));
    assert_eq!((d.arbitration.mechanism, d.arbitration.burst), (Mechanism::Wrr, None));
    assert_eq!(d.arbitration.weights, Shares { high: 4, medium: 2, low: 1 });
    assert_eq!(d.arbitration.quanta, Shares { high: 65536, medium: 8192, low: 4096 });
    assert_eq!(DeviceConfig::from_query("null", "").unwrap().media, MediaConfig::Null);
    let file = DeviceConfig::from_query("file:a.img", "capacity=1MiB").unwrap();
    assert_eq!((file.media, file.capacity), (MediaConfig::File("a.img".into()), Some(Bytes(Bytes::MIB))));
    assert_eq!(DeviceConfig::from_query("ram", "capacity=%36%34KiB&burst=4").unwrap().arbitration.burst, Some(2));
    for (kind, query, message) in [
        ("ram", "latency=80", "latency: \"80\" is not a time like 80us, 2ms, 10s"),
        ("ram", "slot=3", "slot: unknown key; did you mean slots?"),
        ("ram", "slots", "\"slots\" is not key=value"),
        ("ram", "slots=3&slots=4", "slots is given twice; keep one"),
        (
            "ram",
            "slots=%zz",
            "\"%zz\" has a % that is not followed by two hexadecimal digits of UTF-8 text; for a % itself write %25",
        ),
        ("960pro", "over_provisioning=7%", "over_provisioning: \"7%\" where a part is wanted; write 0.07"),
        ("ram", "slots=x", "slots: \"x\" where a number is wanted"),
        (
            "ram",
            "name=x",
            "name: unknown key; there is arbitration, block_size, burst, capacity, class_from, cost, cost_arguments, cost_library, latency, max_capacity, nqn, profile, quanta, queue_depth, queues, read_zeroes, serial, slot_bytes, slots, weights",
        ),
        (
            "p37oo",
            "",
            "\"p37oo\" is nothing to measure; there is ram, null, file:PATH, block:PATH, flash, or a profile: p3700, p3700-800g, p3600, pm963, 960pro, optane-p4800x, oc-westlake, femu-basic, femu-oc, femu-bbssd, nvmevirt-970pro, nvmevirt-zn540, mqsim-default, or a file like ./my.toml",
        ),
        (
            "ream:x",
            "",
            "\"ream:x\" is no medium; there is ram, null, file:PATH, block:PATH, pci:ADDRESS and nvme:TARGET",
        ),
        ("", "", "\"\" is no local device"),
        ("nvme:nvme-tcp://x", "", "\"nvme:nvme-tcp://x\" is not local; give it to bench as the target"),
    ] {
        let error = DeviceConfig::from_query(kind, query).unwrap_err().to_string();
        assert_eq!(error, message, "{kind}?{query}");
    }
}

#[test]
fn the_same_nqn_has_the_same_serial() {
    let serial = |text: &str| good(text).devices[0].serial.clone();
    assert_eq!(serial(""), serial("[[device]]\nname = \"ssd0\""));
    assert_ne!(serial(""), serial("[node]\nname = \"n2\""));
}

#[test]
fn the_arbiter_gets_the_same_numbers() {
    let text = "[[device]]\narbitration = \"wrr\"\nweights = \"3:2:1\"\nburst = 4";
    let settings: weir_arbiter::ArbiterSettings = good(text).devices[0].arbitration.into();
    assert_eq!(settings.mechanism, weir_arbiter::Mechanism::Wrr);
    assert_eq!((settings.weights.high, settings.weights.medium, settings.weights.low), (3, 2, 1));
    assert_eq!(settings.burst, weir_arbiter::Burst::Log2(2));
    let default: weir_arbiter::ArbiterSettings = good("").devices[0].arbitration.into();
    assert_eq!(default, weir_arbiter::ArbiterSettings::new(weir_arbiter::Mechanism::Drr));
}

#[test]
fn a_runtime_folder_of_somebody_else_is_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = std::env::temp_dir().join(format!("weir-runtime-{}", std::process::id()));
    create_runtime_dir(&dir).unwrap();
    create_runtime_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = create_runtime_dir(&dir).unwrap_err().to_string();
    assert!(error.ends_with("is not a folder that only this user may write to; remove it"), "{error}");
    std::fs::remove_dir(&dir).unwrap();
    symlink("/", &dir).unwrap();
    assert!(create_runtime_dir(&dir).is_err());
    std::fs::remove_file(&dir).unwrap();
}

prop_compose! {
    fn any_device(index: usize)(
        media in prop_oneof![
            Just(MediaConfig::Ram), Just(MediaConfig::Null),
            "[ -~é]{1,20}".prop_map(move |p| MediaConfig::File(format!("/d/{index}{p}").into())),
            "[a-z]{1,9}".prop_map(move |p| MediaConfig::Block(format!("/dev/{index}{p}").into())),
            Just(MediaConfig::Nvme(format!("nvme-tcp://h:{index}/nqn.x"))),
        ],
        capacity in proptest::option::of(128_u64..1 << 40),
        large in any::<bool>(),
        (latency, slots, slot_bytes) in (0_u64..=10_000_000_000, 1_u16..=4096, 131_072_u64..=1 << 30),
        (mechanism, cost, class_from) in (0_usize..4, 0_usize..2, 0_usize..4),
        weights in [1_u16..=256, 1..=256, 1..=256],
        burst in proptest::option::of(0_u8..=6),
        quanta in [4096_u32..=1 << 30, 4096..=1 << 30, 4096..=1 << 30],
        (queues, queue_depth, cmb) in (1_u16..=1024, 2_u16..=4096, proptest::option::of(12_u32..=30)),
    ) -> DeviceConfig {
        let block_size = if large { 4096 } else { 512 };
        let always = matches!(media, MediaConfig::Ram | MediaConfig::Null).then_some(1 << 20);
        DeviceConfig {
            name: format!("dev{index}"),
            fast_io_fail_tmo: Nanos(if matches!(media, MediaConfig::Nvme(_)) { 15_000_000_000 + latency } else { 60_000_000_000 }),
            keep_alive_tmo: Nanos(if matches!(media, MediaConfig::Nvme(_)) { 1_000_000_000 + latency } else { 15_000_000_000 }),
            read_zeroes: media == MediaConfig::Null && slots % 2 == 0,
            media,
            capacity: capacity.or(always).map(|n| Bytes(n * u64::from(block_size))),
            max_capacity: capacity.filter(|n| n % 2 == 0).map(|n| Bytes(n * 2 * u64::from(block_size))),
            block_size,
            latency: Nanos(latency),
            flash: None,
            slots,
            slot_bytes: Bytes(slot_bytes),
            arbitration: Arbitration {
                mechanism: Mechanism::WORDS[mechanism].1,
                weights: Shares { high: weights[0], medium: weights[1], low: weights[2] },
                burst,
                quanta: Shares { high: quanta[0], medium: quanta[1], low: quanta[2] },
            },
            cost: Cost::WORDS[cost].1,
            cost_policy: (slots % 3 == 0).then(|| PolicyConfig {
                library: "/usr/lib/cost.so".into(),
                arguments: if slots % 2 == 0 { String::new() } else { "a \"b\" \\".into() },
            }),
            class_from: ClassFrom::WORDS[class_from].1,
            queues,
            queue_depth,
            max_controllers: queue_depth * 15,
            cmb: cmb.map(|bits| Bytes(1 << bits)),
            nqn: format!("nqn.dev{index}"),
            serial: format!("S{index}"),
            zoned: None,
            open_channel: None,
            calibration: None,
        }
    }
}

/// Rates from a number.
fn rates(n: u16) -> Rates {
    let bandwidth = (n % 3 != 0).then(|| Bytes(u64::from(n) * if n % 2 == 0 { 1_000_000 } else { 1 << 20 }));
    Rates { iops: (n % 2 == 0 && n > 0).then_some(u64::from(n)), bandwidth }
}

/// Closed loops, open ones of both kinds, or none.
fn any_demand(index: usize, weight: u16) -> Option<weir_plan::Demand> {
    let job = match (index + usize::from(weight)) % 4 {
        0 => return None,
        1 => format!("rw=randrw:{},bs=4KiB:50/8KiB:50,qd={weight}", weight % 101),
        2 => format!("rw=read,qd=1024,rate={weight},arrival=poisson"),
        _ => format!("rw=trim,qd=1024,jobs={weight},rate={weight}KB/s"),
    };
    Some(weir_plan::Demand::of(&weir_workload::Job::parse(&job, &weir_workload::Job::default()).unwrap()))
}

prop_compose! {
    fn any_tenant(index: usize)(
        class in 0_usize..4, urgent in any::<bool>(), weight in 1_u16..=256,
        hosts in proptest::collection::vec("[!-~]{1,9}", 0..3),
    ) -> TenantConfig {
        let class = Class::ALL[class];
        let hosts = hosts.iter().enumerate().map(|(i, h)| format!("nqn.{index}.{i}.{h}")).collect();
        TenantConfig { name: format!("t{index}"), class, urgent: urgent || class == Class::Urgent, weight, placement: (weight % 3 == 0).then_some(weight as u8 % 32), floor: Floor::new(rates(weight)), ceiling: Ceiling { burst: (weight % 5 == 0 && rates(weight).iops.is_some()).then_some(7), ..Ceiling::new(rates(weight)) }, sla: Sla { rates: rates(weight / 2), p99: (weight % 7 == 0).then_some(Nanos::from_micros(90)), ..Sla::default() }, demand: any_demand(index, weight), hosts, any_host: index == 0 }
    }
}

prop_compose! {
    fn any_store()(
        (memory, power) in (any::<bool>(), any::<bool>()),
        (port, log2) in (any::<u16>(), 16_u32..=22),
        targets in proptest::collection::vec("[a-z:.]{1,9}", 0..3),
        location in "|[a-z ]{1,5}(/[a-z\"]{1,5}){0,2}",
    ) -> StoreConfig {
        let donated = |(i, name): (usize, &String)| Donated {
            drive: DonatedDrive::Target(format!("nvme-tcp://10.0.0.{i}:4420/nqn.{name}?ns={}", i + 1)),
            class: if power { "flash" } else { "a-1_b" }.into(),
            location: location.clone(),
        };
        StoreConfig {
            meta: if memory && !power { StoreMeta::Memory } else { StoreMeta::Redb("/s/a \"b\".redb".into()) },
            listen: vec![StoreAddress::Unix("/s/store.sock".into()), StoreAddress::Tcp(([10, 0, 0, 1], port).into())],
            durability: if power { StoreDurability::Power } else { StoreDurability::Process },
            block: Bytes(1 << log2),
            classes: vec!["flash".into(), "a-1_b".into()],
            repair_after: (!power).then_some(Nanos::from_secs(u64::from(port) + 1)),
            tiering: Tiering {
                policies: targets.iter().map(|name| PathPolicy {
                    path: PathPattern::new(&format!("/p{name}/**")).unwrap(),
                    classes: (!memory).then(|| ClassName::new("flash").unwrap()).into_iter().collect(),
                    copies: 1 + u8::from(power),
                    demote_after: memory.then_some(Nanos::from_secs(u64::from(port) + 1)),
                }).collect(),
                watermarks: Watermarks::of_percent(2 + (port % 99) as u8, 1),
            },
            donate: targets.iter().enumerate().map(donated).collect(),
        }
    }
}

prop_compose! {
    fn any_config()(
        devices in (any_device(0), any_device(1)),
        tenants in (any_tenant(0), any_tenant(1)),
        cores in proptest::collection::btree_set(0_usize..4096, 1..4),
        (poll, read_only, peer, tenant, queues) in (any::<bool>(), any::<bool>(), any::<bool>(), 0_usize..2, 1_u16..=1024),
        port in any::<u16>(),
        in_capsule in 0_u64..=65536,
        store in proptest::option::of(any_store()),
    ) -> Config {
        let queues = queues.min(devices.0.queues).min(devices.1.queues);
        let class_from = if peer { ClassFrom::Peer } else { ClassFrom::Tenant };
        let door = DoorConfig::VhostUser { path: "/s/a \"b\".sock".into(), tenant };
        Config {
            node: NodeConfig {
                name: "n".into(),
                api: vec![Address::Unix("/s/api.sock".into()), Address::Tcp(([127, 0, 0, 1], port).into())],
                cores: cores.into_iter().collect(),
                poll,
                admission: if poll { Admission::Enforce } else { Admission::Warn },
                journal: !poll,
                keeper: poll || peer,
                standby: peer,
                default_exports: poll != peer,
                faults: peer,
                on_failure: if peer { vec!["/bin/p \"age\"".into(), "-x".into()] } else { Vec::new() },
                on_failure_timeout: Nanos::from_secs(if peer { 7 } else { 30 }),
            },
            api: ApiConfig {
                tokens: if peer { vec![ApiToken { role: ApiRole::Operate, file: "/s/a \"b\".token".into() }] } else { Vec::new() },
                tls: poll.then(|| ApiTls { cert: "/s/c \"d\".pem".into(), key: "/s/k.pem".into() }),
            },
            devices: vec![devices.0, devices.1],
            tenants: vec![tenants.0, tenants.1],
            exports: vec![
                ExportConfig { device: 1, door, class_from, queues, read_only },
                ExportConfig { device: 0, door: DoorConfig::NvmeTcp, class_from: ClassFrom::Cattr, queues, read_only },
            ],
            pools: Vec::new(),
            faults: if peer { rules() } else { Vec::new() },
            volumes: Vec::new(),
            store,
            nvme_tcp: NvmeTcpConfig {
                listen: vec![([0, 0, 0, 0], port).into()],
                non_optimized: if poll && port > 0 { vec![([0, 0, 0, 0], port).into()] } else { Vec::new() },
                inaccessible: Vec::new(),
                in_capsule: Bytes(in_capsule * 16),
                header_digest: poll,
                data_digest: peer,
                tenant_buffer: Bytes(Bytes::MIB),
                connections: 16384,
                tenant_connections: poll.then_some(port.max(1) % 16384 + 1),
                tenant_reserve: peer.then_some(port % 8193),
                host_connections: (poll != peer).then_some(port % 16384 + 1),
                unconnected: port % 16384 + 1,
                address_unconnected: port % 16384 / 2 + 1,
                keep_alive: KeepAlive::WORDS[usize::from(port % 3)].1,
            },
        }
    }
}

proptest! {
    #[test]
    fn what_is_printed_is_read_back(config in any_config()) {
        let text = config.to_toml();
        prop_assert_eq!(Config::parse(&text, "printed", base()).map_err(|e| format!("{e}\n{text}")), Ok(config));
    }

    #[test]
    fn no_text_is_too_odd(text in "(\\[\\[?(node|device|tenant|export|door)\\]?\\]\n|[a-z_]{1,10} = [-0-9\"a-z\\[\\]{}., ]{0,12}\n){0,8}") {
        if let Err(error) = Config::parse(&text, "f", base()) {
            prop_assert!(!error.problems().is_empty());
        }
    }
}

#[test]
fn a_file_is_checked_against_the_machine() {
    let dir = std::env::temp_dir().join(format!("weir-config-machine-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("a.img"), vec![0; 8 << 20]).unwrap();
    std::fs::hard_link(dir.join("a.img"), dir.join("hard.img")).unwrap();
    std::os::unix::fs::symlink("a.img", dir.join("soft.img")).unwrap();
    let file = dir.join("weir.toml");
    let load = |text: &str| {
        std::fs::write(&file, text).unwrap();
        Config::load(&file, None).map_err(|e| e.to_string().replace(&dir.display().to_string(), "D"))
    };
    let error = load("[node]\ncores = [4095]\n").unwrap_err();
    assert!(
        error.starts_with("D/weir.toml:2: node.cores: this process cannot run on core 4095; use some of "),
        "{error}"
    );
    let two =
        |other: &str| load(&format!("[[device]]\nmedia = \"file:a.img\"\n[[device]]\nmedia = \"file:{other}\"\n"));
    for other in ["hard.img", "soft.img", "./a.img"] {
        let wanted = format!(
            "D/weir.toml:3: device.ssd1.media: \"file:D/{other}\" is the medium of line 1 by another path; two drives on one \
             medium destroy each other's data"
        );
        assert_eq!(two(other).unwrap_err(), wanted);
    }
    assert!(two("a.img").unwrap_err().contains("is taken by line 1; two drives on one medium"));
    assert_eq!(two("b.img").map(|c| c.devices.len()), Ok(2));
    // A file without capacity has the size that it has: 8 MiB, of which 2 are metadata.
    let volume = |size: &str| {
        load(&format!("[[device]]\nmedia = \"file:a.img\"\n[[volume]]\nname = \"v\"\nsize = \"{size}\"\n"))
    };
    assert_eq!(volume("6MiB").map(|c| c.volumes.len()), Ok(1));
    let wanted = "D/weir.toml:5: volume.v.size: 7MiB is more than pool \"pool0\" has for volumes, 6MiB; make it smaller, or \
                  give the pool more drives";
    assert_eq!(volume("7MiB").unwrap_err(), wanted);
    // Of a pool that is there the opening says what is wrong: a drive may be missing.
    let image = std::fs::File::options().write(true).open(dir.join("a.img")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, &weir_pool::MAGIC, weir_pool::STRIPE as u64).unwrap();
    assert_eq!(volume("7MiB").map(|c| c.volumes.len()), Ok(1));
    // The API is where the file says, else where the environment does.
    let elsewhere = || Some(Address::Unix("/e.sock".into()));
    std::fs::write(&file, "").unwrap();
    assert_eq!(Config::load(&file, elsewhere()).unwrap().node.api, [Address::Unix("/e.sock".into())]);
    std::fs::write(&file, "[node]\nname = \"n2\"\n").unwrap();
    assert_eq!(Config::load(&file, elsewhere()).unwrap().node.api, [Address::Unix("/e.sock".into())]);
    std::fs::write(&file, "[node]\napi = \"unix:own.sock\"\n").unwrap();
    assert_eq!(Config::load(&file, elsewhere()).unwrap().node.api, [Address::Unix(dir.join("own.sock"))]);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_volume_fits_the_drives_that_its_pool_may_have() {
    let of = |size: &str, more: &str| {
        let text = format!(
            "[[device]]\nname = \"a\"\n[[device]]\nname = \"b\"\n[[pool]]\nname = \"p\"\ndrives = [\"a\"]\n{more}\
                            [[volume]]\nname = \"v\"\npool = \"p\"\nsize = \"{size}\"\n"
        );
        parse(&text).map(|_| ())
    };
    assert_eq!(of("1022MiB", ""), Ok(()));
    // Drive b may have joined while the node ran.
    assert_eq!(of("2044MiB", ""), Ok(()));
    assert!(
        of("2045MiB", "")
            .unwrap_err()
            .contains("volume.v.size: 2045MiB is more than pool \"p\" has for volumes, 2044MiB")
    );
    let another = "[[volume]]\nname = \"w\"\npool = \"p\"\nsize = \"1000MiB\"\n";
    assert_eq!(of("1044MiB", another), Ok(()));
    assert!(of("1045MiB", another).unwrap_err().contains(
        "volume.v.size: with 1000MiB for the volumes before it that is 2045MiB, and pool \"p\" has 2044MiB for volumes; make some smaller, or \
         give the pool more drives"
    ));
    let other = "[[pool]]\nname = \"q\"\ndrives = [\"b\"]\n";
    assert!(of("1023MiB", other).unwrap_err().contains("1023MiB is more than pool \"p\" has for volumes, 1022MiB"));
}

/// One rule of each kind of value.
fn rules() -> Vec<FaultConfig> {
    let texts =
        ["status code=2/81h dnr=true lba=8-15 op=read,write probability=0.25 count=3", "smart spare=5 over=10s"];
    let rule = |text: &str| weir_fault::FaultRule::parse(text).expect("a rule");
    texts.iter().enumerate().map(|(device, text)| FaultConfig { device, rule: rule(text) }).collect()
}

#[test]
fn rules_of_failures_are_read_by_their_keys() {
    let config = good(
        "[node]\nfaults = true\n[[device]]\nname = \"a\"\n[[device]]\nname = \"b\"\n[[fault]]\ndevice = \"b\"\neffect = \"status\"\n\
         code = \"2/81h\"\nlba = 8\nop = [\"read\", \"write\"]\nprobability = 0.5\ncount = 3\ndnr = true\n",
    );
    let text = "status code=2/81h dnr=true lba=8 op=write,read probability=0.5 count=3";
    let rule = weir_fault::FaultRule::parse(text).expect("a rule");
    assert_eq!(config.faults, [FaultConfig { device: 1, rule }]);
}

#[test]
fn rules_that_are_none_name_file_line_and_key() {
    let node = "[node]\nfaults = true\n";
    for (text, says) in [
        (
            "[[fault]]\neffect = \"hang\"\n",
            "t:1: fault#1: failures can be injected only where [node] says faults = true",
        ),
        ("[node]\nfaults = true\n[[fault]]\neffect = \"melt\"\n", "t:4: fault#1.effect: there is no \"melt\""),
        ("[node]\nfaults = true\n[[fault]]\nlba = 3\n", "t:3: fault#1.effect: missing"),
        (
            "[node]\nfaults = true\n[[fault]]\neffect = \"hang\"\nlba = \"9-8\"\n",
            "t:5: fault#1.lba: \"9-8\" ends before",
        ),
        ("[node]\nfaults = true\n[[fault]]\neffect = \"hang\"\nmelt = 1\n", "t:5: fault#1.melt: unknown key"),
        (
            "[node]\nfaults = true\n[[fault]]\neffect = \"hang\"\ndevice = \"x\"\n",
            "t:5: fault#1.device: there is no device \"x\"; there is ssd0",
        ),
        (
            "[node]\nfaults = true\n[[device]]\n[[device]]\n[[fault]]\neffect = \"hang\"\n",
            "t:5: fault#1.device: missing, and there are several; write one of ssd0, ssd1",
        ),
    ] {
        let error = Config::parse(text, "t", Path::new("/")).expect_err(text).to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    assert!(good(node).node.faults && !good("").node.faults);
}
