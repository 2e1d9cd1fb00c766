//! Flash by its keys: what follows from what, what is printed, what is refused.

use super::*;
use crate::DeviceConfig;
use std::path::Path;
use weir_flash::{BufferConfig, Cache, CellType, Flash, GcMode, Mapping, Registers, Victim, cell_times};
use weir_units::Nanos;

fn parse(device: &str) -> Result<crate::Config, String> {
    crate::Config::parse(device, "weir.toml", Path::new("/")).map_err(|e| e.to_string())
}

fn device(text: &str) -> DeviceConfig {
    parse(text).unwrap_or_else(|e| panic!("{text}\n{e}")).devices.remove(0)
}

fn flash(text: &str) -> FlashConfig {
    device(text).flash.expect("a flash drive")
}

#[test]
fn a_drive_is_flash_by_its_kind_its_profile_or_its_table() {
    for text in ["kind = \"flash\"", "profile = \"femu-bbssd\"", "[device.flash]"] {
        let found = flash(&format!("[[device]]\n{text}\n"));
        let mut wanted = FlashDriveConfig::preset(Preset::FemuBbssd, false);
        wanted.ftl.over_provisioning = found.config.ftl.over_provisioning;
        wanted.variability.seed = 1;
        assert_eq!(found.config, wanted, "{text}");
        assert!((found.config.ftl.over_provisioning - 1.0 / 3.0).abs() < 1e-9, "12 of 16 GiB");
    }
    let mqsim = flash("[[device]]\nprofile = \"mqsim-default\"\nquirks = true\n");
    assert_eq!(mqsim.config.timing, FlashDriveConfig::preset(Preset::MqsimDefault, true).timing);
    let query = DeviceConfig::from_query("femu-oc", "gc=channel&registers=single").unwrap();
    let config = query.flash.unwrap().config;
    assert_eq!((config.ftl.gc.mode, config.timing.registers), (GcMode::Channel, Registers::Single));
    assert!(DeviceConfig::from_query("flash", "capacity=1GiB").unwrap().flash.is_some());
    assert!(device("").flash.is_none());
}

#[test]
fn preemptive_collection_has_room_to_go_on_in_pieces() {
    for (keys, thresholds) in [
        ("", (1, 1)),
        ("gc = \"preemptive\"", (2, 1)),
        ("gc = \"preemptive\"\ngc_hard = 2", (3, 2)),
        ("gc = \"preemptive\"\ngc_start = 1", (1, 1)),
    ] {
        let gc = flash(&format!("[[device]]\nkind = \"flash\"\n{keys}\n")).config.ftl.gc;
        assert_eq!((gc.start, gc.hard), thresholds, "{keys}");
    }
}

#[test]
fn keys_stand_in_the_table_or_in_the_device() {
    let table = "[[device]]\n[device.flash]\ncell = \"mlc\"\nvictim = \"d-choice\"\nread = [\"50us\", \"60us\"]\nbuffer = \"1MiB\"\n";
    let inside = flash(table);
    let flat = flash(&table.replace("[device.flash]\n", "kind = \"flash\"\n"));
    assert_eq!(inside, flat);
    let c = &inside.config;
    assert_eq!((c.geometry.cell, c.ftl.gc.victim, c.buffer.size), (CellType::Mlc, Victim::DChoice, Bytes(1 << 20)));
    assert_eq!(c.timing.read[..3], [50_000, 60_000, 60_000].map(Nanos), "the last one goes for the others");
    assert_eq!(c.timing.program, cell_times(CellType::Mlc).program, "another cell has its own times");
}

#[test]
fn capacity_over_provisioning_and_blocks_follow_from_each_other() {
    let of = |text: &str| {
        let device = device(&format!("[[device]]\nkind = \"flash\"\n{text}\n"));
        let config = device.flash.expect("flash").config;
        let units = Flash::new(&config, Nanos(0)).unwrap_or_else(|e| panic!("{text}: {e}")).units();
        assert_eq!(device.capacity, Some(Bytes(u64::from(units) * 4096)), "{text}");
        (units, config.geometry.blocks, (config.ftl.over_provisioning * 1000.0) as u32)
    };
    // 64 planes with blocks of 1 MiB.
    assert_eq!(of("capacity = \"8GiB\""), (2 << 20, 137, 70));
    assert_eq!(of("capacity = \"8GiB\"\nover_provisioning = 0.28"), (2 << 20, 164, 281));
    let work = 7 + FlashDriveConfig::preset(Preset::FemuBbssd, false).ftl.gc.start;
    assert_eq!(of("capacity = \"1GiB\"").1, 16 + work, "the FTL needs room in a small drive as well");
    assert_eq!(of("capacity = \"8GiB\"\nblocks = 256"), (2 << 20, 256, 1000));
    assert_eq!(of("blocks = 214\nover_provisioning = 0.07"), (200 * 64 * 256, 214, 70));
    assert_eq!(of("channels = 16"), ((2.0 * 256.0 * 64.0 * 256.0 / 1.07) as u32, 256, 70));
    assert_eq!(of("capacity = \"8GiB\"\nslc_blocks = 8").1, 145, "pseudo-SLC blocks come on top");
}

#[test]
fn what_is_printed_is_read_back() {
    for text in [
        "kind = \"flash\"",
        "profile = \"nvmevirt-970pro\"\ncapacity = \"16GiB\"",
        "profile = \"mqsim-default\"\nquirks = true\nchannel_rate = \"400MB/s\"\nlink_rate = \"2GB/s\"",
        "profile = \"femu-oc\"\nmapping = \"cached\"\nread = \"33us\"\nprogram = [\"1us\", \"2us\", \"3us\"]\nseed = 9",
        "profile = \"nvmevirt-zn540\"\nerase_suspend = \"1us\"\nprecondition = \"steady\"\nover_provisioning = 0.5",
        "profile = \"p3700\"\ncapacity = \"8GiB\"",
        "kind = \"flash\"\nerrors = true\nbad_chips = 50\nbad_chip_slowdown = 300\nbad_chip_errors = 2.5",
        "kind = \"flash\"\nread_disturb = 1e-8\nretention = 1e-5\nretry = \"30us\"\nretries = 3\nrated_cycles = 1000\nrber = 0",
        "profile = \"optane-p4800x\"\ncapacity = \"1GiB\"\nwrite_link_rate = \"1GB/s\"\nfirmware_read = \"3us\"",
        "kind = \"flash\"\ncapacity = \"2GiB\"\ncell = \"qlc\"\npage_size = \"16KiB\"\nstreams = 3\nseparation = \"frequency\"",
    ] {
        let config = parse(&format!("[[device]]\n{text}\n")).unwrap_or_else(|e| panic!("{text}: {e}"));
        let printed = config.to_toml();
        assert_eq!(parse(&printed).unwrap_or_else(|e| panic!("{text}: {e}\n{printed}")), config, "{text}");
    }
}

/// A rate changes how fast a model's wires are, not how it counts on them: its own rate changes nothing.
#[test]
fn a_rate_leaves_packets_and_rounding() {
    for (model, keys) in [
        ("\"nvmevirt-970pro\"", "channel_rate = \"800MiB/s\"\nlink_rate = \"3360MiB/s\""),
        ("\"mqsim-default\"\nquirks = true", "channel_rate = \"333MB/s\"\nlink_rate = \"1600MB/s\""),
    ] {
        let wires = |keys: &str| {
            let config = parse(&format!("[[device]]\nprofile = {model}\n{keys}\n")).unwrap();
            let flash = config.devices[0].flash.as_ref().unwrap().config;
            (flash.timing.channel, flash.host.to_host, flash.host.to_drive)
        };
        assert_eq!(wires(keys), wires(""), "{model}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    for (text, says) in [
        (
            "profile = \"p9999\"",
            "2: device.ssd0.profile: \"p9999\" is no profile; there is p3700, p3700-800g, p3600, pm963",
        ),
        ("gc = \"plane\"", "2: device.ssd0.gc: only a flash drive has this; write kind = \"flash\" as well"),
        (
            "kind = \"flash\"\ngc = \"none\"",
            "3: device.ssd0.gc: \"none\" is no garbage collection mode; known: controller",
        ),
        ("kind = \"flash\"\nlatency = \"1us\"", "3: device.ssd0.latency: the flash decides how long commands take"),
        ("kind = \"flash\"\nmax_capacity = \"20GiB\"", "3: device.ssd0.max_capacity: flash does not grow"),
        ("kind = \"flash\"\nchannels = 0", "3: device.ssd0.channels: is 0; it must be at least 1"),
        (
            "kind = \"flash\"\nchannels = 4000000000\nways = 4000000000",
            "device.ssd0.ways: = 4000000000 makes the drive larger",
        ),
        ("kind = \"flash\"\npage_size = 5000", "3: device.ssd0.page_size: is 5000; it must be a multiple of 4096"),
        ("kind = \"flash\"\ngc_hard = 9", "3: device.ssd0.gc_hard: is 9; from 1 to gc_start ("),
        ("kind = \"flash\"\nread = \"40\"", "3: device.ssd0.read: \"40\" is not a time"),
        ("kind = \"flash\"\nread = []", "3: device.ssd0.read: 0 times where 1 to 5 are wanted"),
        ("kind = \"flash\"\nchannel_rate = \"800MB\"", "3: device.ssd0.channel_rate: \"800MB\" is not"),
        ("kind = \"flash\"\nchip_spread = 1000", "3: device.ssd0.chip_spread: must be at most 999"),
        (
            "kind = \"flash\"\nerrors = false\nretention = 0.1",
            "4: device.ssd0.retention: counts only with errors = true; leave one of the two out",
        ),
        ("kind = \"flash\"\nrated_cycles = 0", "3: device.ssd0.rated_cycles: must be at least 1"),
        ("kind = \"flash\"\nrber = 2", "3: device.ssd0.rber: 2 is out of range; 0 to 1 is allowed"),
        (
            "kind = \"flash\"\nover_provisioning = 20",
            "3: device.ssd0.over_provisioning: 20 is 2000 %; a part from 0 to 4 is allowed, 0.07 for 7 %",
        ),
        ("kind = \"flash\"\nover_provisioning = 7", "over_provisioning: 7 is 700 %; a part from 0 to 4 is allowed"),
        (
            "kind = \"flash\"\nover_provisioning = \"7%\"",
            "over_provisioning: \"7%\" where a part is wanted; write 0.07",
        ),
        ("kind = \"flash\"\nvictm = \"fifo\"", "3: device.ssd0.victm: unknown key; did you mean victim?"),
        (
            "kind = \"flash\"\ncapacity = \"8GiB\"\nblocks = 140\nover_provisioning = 0.07",
            "5: device.ssd0.over_provisioning: follows from capacity and blocks",
        ),
        (
            "kind = \"flash\"\ncapacity = \"8GiB\"\nblocks = 130",
            "device.ssd0.capacity: leaves 2.0 blocks of each plane",
        ),
        ("[device.flash]\nchanels = 4", "3: device.ssd0.flash.chanels: unknown key; did you mean channels?"),
        ("gc = \"plane\"\n[device.flash]\ngc = \"channel\"", "2: device.ssd0.gc: stands in [device.flash] as well"),
        (
            "kind = \"flash\"\nmapping = \"hybrid\"\nbuffer = \"1MiB\"",
            "4: device.ssd0.buffer: is not 0; the hybrid mapping",
        ),
    ] {
        let error = parse(&format!("[[device]]\n{text}\n")).expect_err(text);
        assert!(error.starts_with("weir.toml:") && error.contains(says), "{text}: {error}");
    }
    assert_eq!(flash("[[device]]\nkind = \"flash\"\nmapping = \"hybrid\"\n").config.ftl.mapping, Mapping::Hybrid);
}

#[test]
fn a_profile_of_one_s_own() {
    let folder = std::env::temp_dir().join(format!("weir-profile-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |text: &str| std::fs::write(folder.join("my.toml"), text).unwrap();
    let read = |device: &str| {
        let text = format!("[[device]]\n{device}\n");
        crate::Config::parse(&text, "weir.toml", &folder).map_err(|e| e.to_string())
    };
    let builtin = Profile::named("p3600").unwrap().text().unwrap();
    write(builtin);
    let own = read("profile = \"./my.toml\"\ncapacity = \"4GiB\"").unwrap().devices[0].flash.clone().unwrap();
    let theirs = read("profile = \"p3600\"\ncapacity = \"4GiB\"").unwrap().devices[0].flash.clone().unwrap();
    assert_eq!(own.config, theirs.config, "the same numbers from a file");
    for (from, to, says) in [
        ("333MB/s", "333", "my.toml:31: channel_rate: \"333\" is not a bandwidth like 500MB/s or 1GiB/s"),
        ("3800us", "3800", "my.toml:30: erase: \"3800\" is not a time"),
        ("channels =", "chanels =", "my.toml:18: chanels: unknown key; did you mean channels?"),
        ("cell =", "cel =", "my.toml:1: cell: missing; a profile has to say it"),
        ("ways = 7", "ways = 0", "my.toml:19: ways: is 0; it must be at least 1"),
        ("# The flash.", "[[", "my.toml:17: not TOML"),
    ] {
        write(&builtin.replace(from, to));
        let error = read("profile = \"my.toml\"").unwrap_err();
        assert!(error.contains(says), "{from}: {error}");
    }
    let none = read("profile = \"./none.toml\"").unwrap_err();
    assert!(
        none.starts_with("weir.toml:2: device.ssd0.profile: ") && none.contains("none.toml: cannot be read"),
        "{none}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn every_profile_is_the_same_drive_as_its_file() {
    let folder = std::env::temp_dir().join(format!("weir-profile-files-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for profile in Profile::all() {
        for quirks in [false, true] {
            let named = flash(&format!("[[device]]\nprofile = \"{profile}\"\nquirks = {quirks}\n")).config;
            let file = folder.join(format!("{profile}-{quirks}.toml"));
            std::fs::write(&file, profile.file(quirks).unwrap().as_ref()).unwrap();
            let read = flash(&format!("[[device]]\nprofile = \"{}\"\n", file.display())).config;
            assert_eq!(read, named, "{profile}, quirks = {quirks}:\n{}", profile.file(quirks).unwrap());
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn keys_of_single_steps_are_read_and_printed() {
    let text = "[[device]]\nkind = \"flash\"\n[device.flash]\nread = \"50us\"\nread_small = \"40us\"\nread_command = \"290ns\"\n\
                program_command_plane = \"816ns\"\nstatus_poll = \"1us\"\nsense_size = \"32KiB\"\nburst_size = \"16KiB\"\n\
                firmware_read = \"3us\"\nfirmware_read_small = \"2us\"\nfirmware_small_size = 4096\npropagation = \"7ns\"\n\
                channel_timing = \"6ns per 2B in 2B cut 1B\"\nlink_timing = \"1ns per 1B packet 128B+28B lanes 4\"\n\
                write_link_timing = \"2ns per 1B\"\nbuffer = \"16MiB\"\ncache = \"write-read\"\ncache_pending = \"2MiB\"\n\
                cache_window = \"2s\"\ndram_access = \"26ns\"\ndram_timing = \"10ns per 2B\"\n";
    let parsed = parse(text).unwrap();
    let config = parsed.devices[0].flash.as_ref().unwrap().config;
    assert_eq!(config.timing.read_small, Some([Nanos(40_000); 5]));
    assert_eq!((config.timing.overheads.read, config.timing.overheads.program_plane), (Nanos(290), Nanos(816)));
    assert_eq!((config.timing.sense_bytes, config.timing.burst_bytes), (32768, 16384));
    let firmware = config.host.firmware;
    assert_eq!((firmware.read, firmware.read_small, firmware.small_bytes), (Nanos(3_000), Nanos(2_000), 4096));
    assert_eq!((config.timing.channel.time(8192), config.host.to_host.time(4096)), (Nanos(24_576), Nanos(1_248)));
    assert_eq!(config.host.to_drive.time(4096), Nanos(8_192));
    let BufferConfig { cache, window, pending, dram, .. } = config.buffer;
    assert_eq!((cache, window, pending), (Cache::Both, Nanos::from_secs(2), Bytes(2 << 20)));
    assert_eq!((dram.access, dram.wire.time(4096)), (Nanos(26), Nanos(20_480)));
    let printed = parsed.to_toml();
    assert_eq!(parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}")), parsed, "{printed}");
    // A program that does not know them reads what is printed where none is used.
    let plain = parse("[[device]]\nprofile = \"mqsim-default\"\n").unwrap().to_toml();
    assert!(!plain.contains("_timing") && !plain.contains("read_command") && !plain.contains("\ncache = "), "{plain}");
    for (keys, says) in [
        (
            "channel_timing = \"fast\"",
            "weir.toml:4: device.ssd0.flash.channel_timing: \"fast\" is no wire; write \"6ns per 2B\"",
        ),
        (
            "channel_timing = \"0ns\"\nchannel_rate = \"1GB/s\"",
            "channel_rate: channel_timing says it already; keep one",
        ),
    ] {
        let error = parse(&format!("[[device]]\nkind = \"flash\"\n[device.flash]\n{keys}\n")).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}
