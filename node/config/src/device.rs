//! `[[device]]`, and the device part of a bench target.

use super::arbitration::{self, Arbitration, ClassFrom, Cost};
use super::calibration::{self, CalibrationFile};
use super::flash::{self, FlashConfig, PolicyConfig, library_path};
use super::media::{self, MediaConfig};
use super::names::{element_name, nqn};
use super::open_channel::{self, OpenChannelKeys};
use super::profile::Profile;
use super::read::{Placed, Read, Section, Sink, flag, integer, quoted, size, text, time, word};
use super::slots::{COMMANDS, Slots};
use super::value::{Entry, Value};
use super::zoned::{self, Zoned};
use std::path::Path;
use weir_units::{Bytes, Nanos};

/// Longest fixed service time: hosts give up on a command after 30 s.
const MAX_LATENCY: Nanos = Nanos::from_secs(10);
/// How long commands wait for a target that has gone: as long as it takes to restart a machine, and at most.
const FAST_IO_FAIL: Nanos = Nanos::from_secs(60);
const MAX_FAST_IO_FAIL: Nanos = Nanos::from_secs(86_400);
/// After so long a silent target is taken to have gone: the default, the least and the most.
const KEEP_ALIVE: Nanos = Nanos::from_secs(15);
const KEEP_ALIVE_LIMITS: (Nanos, Nanos) = (Nanos::from_secs(1), Nanos::from_secs(3600));
const CAPACITY: std::ops::RangeInclusive<u64> = 64 * Bytes::KIB..=1 << 56;
const DEFAULT_CAPACITY: Bytes = Bytes(Bytes::GIB);

/// One drive.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceConfig {
    /// Its name in the API and in NQNs.
    pub name: String,
    /// Where the bytes are.
    pub media: MediaConfig,
    /// How long commands of a drive on an NVMe/TCP or vfio-user target wait while that is gone; 0: they fail at once.
    pub fast_io_fail_tmo: Nanos,
    /// Keep alive timeout at an NVMe/TCP target.
    pub keep_alive_tmo: Nanos,
    /// A read of null media gives zeroes wherever it goes to, where it leaves memory of a guest as it is else.
    pub read_zeroes: bool,
    /// `None`: as large as the medium is (a file, a block device, another drive).
    pub capacity: Option<Bytes>,
    /// The most that it can be grown to while it runs; `None`: its capacity.
    pub max_capacity: Option<Bytes>,
    /// Logical block: 512 or 4096.
    pub block_size: u32,
    /// Fixed service time of a command; 0: as fast as the medium.
    pub latency: Nanos,
    /// What is inside a flash drive, which decides how long commands take.
    pub flash: Option<FlashConfig>,
    /// Commands that the drive works on at once.
    pub slots: u16,
    /// Bytes that the drive works on at once.
    pub slot_bytes: Bytes,
    /// Who is next.
    pub arbitration: Arbitration,
    /// What a command counts for in `drr`.
    pub cost: Cost,
    /// A library that decides it instead.
    pub cost_policy: Option<PolicyConfig>,
    /// Who decides a queue's class, where the export does not say.
    pub class_from: ClassFrom,
    /// I/O queues of one controller at most.
    pub queues: u16,
    /// Entries of one queue at most (CAP.MQES + 1).
    pub queue_depth: u16,
    /// Controllers at once, over all its exports.
    pub max_controllers: u16,
    /// Controller memory buffer of each of its PCIe controllers, a power of two; `None`: it has none.
    pub cmb: Option<Bytes>,
    /// NVMe qualified name of the subsystem.
    pub nqn: String,
    /// Serial number, 1 to 20 printable ASCII characters.
    pub serial: String,
    /// Its namespace is zoned.
    pub zoned: Option<Zoned>,
    /// Its namespace is its flash, by physical addresses.
    pub open_channel: Option<OpenChannelKeys>,
    /// What it was measured to do, for admission.
    pub calibration: Option<CalibrationFile>,
}

impl DeviceConfig {
    /// How hosts see it: `block`, `zoned` or `open-channel`.
    pub fn interface(&self) -> &'static str {
        match (&self.zoned, &self.open_channel) {
            (Some(_), _) => "zoned",
            (None, Some(_)) => "open-channel",
            (None, None) => "block",
        }
    }

    /// Whose flash it has the times of, where it has flash.
    pub fn profile(&self) -> Option<String> {
        let zones = self.zoned.as_ref().and_then(|zoned| zoned.flash);
        self.flash.as_ref().map(|f| f.profile.to_string()).or_else(|| zones.map(|preset| preset.to_string()))
    }

    /// The same drive, of so many bytes at the most: a larger flash drive's dies, channels, times and write amplification stay, as in
    /// [`resized`](super::flash::resized). One that cannot be made smaller is left as it is.
    #[must_use]
    pub fn at_most(&self, capacity: Bytes) -> DeviceConfig {
        let mut small = self.clone();
        let Some(own) = small.flash.as_mut() else { return small };
        let whole = own.config.ftl.capacity;
        if self.zoned.is_some() || self.open_channel.is_some() || whole.is_none_or(|whole| whole.0 <= capacity.0) {
            return small;
        }
        flash::shrink(&mut own.config, capacity);
        if own.config.validate().is_err() {
            return self.clone();
        }
        small.capacity = own.config.ftl.capacity;
        small
    }
}

/// A device and the places of what has to be unique.
pub(super) struct DeviceRead {
    pub(super) device: DeviceConfig,
    pub(super) line: u32,
    pub(super) path: String,
    pub(super) nqn: Option<Placed<String>>,
    pub(super) serial: Option<Placed<String>>,
    /// `slots` where several tenants share the drive, unless the configuration or a calibration says how many there are.
    pub(super) shared_slots: Option<u16>,
}

pub(super) fn read_all(root: &Section<'_>, base: &Path, node: &str) -> Vec<DeviceRead> {
    let read_one = |(i, (line, entries))| {
        let name = format!("ssd{i}");
        read(&root.inner(format!("device.{name}"), line, entries), base, node, name)
    };
    root.tables("device").into_iter().enumerate().map(read_one).collect()
}

fn read(section: &Section<'_>, base: &Path, node: &str, default_name: String) -> DeviceRead {
    let name = element_name(section, "device").map_or(default_name, |n| n.value);
    let media = media::read(section, base);
    let mut read = rest(section, &name, node, (media, base), is_flash(section));
    read.device.calibration = calibration::of_device(section, base);
    as_measured(section, &mut read);
    section.finish();
    read
}

/// A calibration is of a drive that works on so many commands at once, and of no other.
fn as_measured(section: &Section<'_>, read: &mut DeviceRead) {
    let Some(file) = &read.device.calibration else { return };
    let Some(measured) = file.calibration.slots else { return };
    let slots = read.device.slots;
    if section.has("slots") && slots != measured {
        let path = file.path.display();
        let what =
            format!("{slots}, but {path} was measured with {measured}; write slots = {measured}, or calibrate again");
        section.fault("slots", what);
    }
    read.device.slots = measured;
    read.shared_slots = None;
}

/// The same keys, without those that a bench target has no use for.
pub(super) fn from_query(sink: &Sink, kind: &str, entries: &[Entry]) -> Option<DeviceConfig> {
    let mut entries = entries.to_vec();
    let media = match kind {
        "flash" => Ok(MediaConfig::Ram),
        _ if Profile::named(kind).is_some() || (Profile::is_path(kind) && !kind.contains(':')) => {
            // A profile's name or file says what `profile` says.
            entries.push(Entry { key: "profile".into(), line: 0, value: Value::Bare(kind.into()) });
            Ok(MediaConfig::Ram)
        }
        "nvme" | "" => Err(format!("{} is no local device", quoted(kind))),
        _ if kind.starts_with("nvme:") => Err(format!("{} is not local; give it to bench as the target", quoted(kind))),
        _ => media::parse(kind, Path::new("")).map_err(|what| match kind.contains(':') {
            true => what,
            false => format!(
                "{} is nothing to measure; there is ram, null, file:PATH, block:PATH, flash, or a profile: {}, or a file \
                 like ./my.toml",
                quoted(kind),
                Profile::known()
            ),
        }),
    };
    let media = media.map_err(|what| sink.note(0, "", what)).ok()?;
    let section = Section::new(sink, "", 0, &entries);
    let read = rest(&section, "bench", "local", (media, Path::new("")), kind == "flash");
    // A query holds no tables, and a load generator writes anywhere.
    section.unoffer("max_controllers");
    section.unoffer("fast_io_fail_tmo");
    section.unoffer("keep_alive_tmo");
    section.unoffer("cmb");
    section.unoffer("zoned");
    section.unoffer("fdp");
    section.unoffer("open_channel");
    section.finish();
    Some(read.device)
}

fn rest(
    section: &Section<'_>,
    name: &str,
    node: &str,
    (media, base): (MediaConfig, &Path),
    is_flash: bool,
) -> DeviceRead {
    let placed_nqn = section.placed("nqn", nqn);
    let nqn = placed_nqn.as_ref().map_or_else(|| format!("nqn.2026-11.io.weir:{node}:{name}"), |p| p.value.clone());
    let placed_serial = section.placed("serial", serial);
    let serial = placed_serial.as_ref().map_or_else(|| serial_of(&nqn), |p| p.value.clone());
    let block_size = section.or("block_size", 512, block_size);
    let given = section.get("capacity", whole_blocks(block_size));
    let flash = flash::read(section, is_flash, given, base);
    let own = flash.as_ref().map_or(Slots::DEFAULT, |f| f.profile.slots());
    let slots = section.get("slots", integer(COMMANDS)).map(|n| n as u16);
    let (fast_io_fail_tmo, keep_alive_tmo) = link_timeouts(section, &media);
    let device = DeviceConfig {
        name: name.to_string(),
        fast_io_fail_tmo,
        keep_alive_tmo,
        read_zeroes: read_zeroes(section, &media),
        capacity: capacity(&media, given, flash.as_ref()),
        max_capacity: section.get("max_capacity", whole_blocks(block_size)),
        media,
        block_size,
        latency: section.or("latency", Nanos(0), time(MAX_LATENCY)),
        flash,
        slots: slots.unwrap_or(own.alone),
        slot_bytes: section.or("slot_bytes", Bytes(4 * Bytes::MIB), size(128 * Bytes::KIB..=Bytes::GIB)),
        arbitration: arbitration::read(section),
        cost: section.or("cost", Cost::Bytes, word(Cost::WORDS)),
        cost_policy: cost_policy(section),
        class_from: section.or("class_from", ClassFrom::Tenant, word(ClassFrom::WORDS)),
        queues: section.or("queues", 64, integer(1..=1024)) as u16,
        queue_depth: section.or("queue_depth", 1024, integer(2..=4096)) as u16,
        max_controllers: section.or("max_controllers", 1024, integer(1..=0xffef)) as u16,
        cmb: section.get("cmb", memory_buffer),
        nqn,
        serial,
        zoned: None,
        open_channel: None,
        calibration: None,
    };
    let zoned = zoned::read(section, device.capacity, block_size);
    if zoned.is_some() && device.max_capacity.is_some() {
        section.fault("max_capacity", "a zoned drive keeps its size; leave it out");
    }
    if zoned.is_some() && matches!(device.media, MediaConfig::Block(_) | MediaConfig::Nvme(_)) {
        section
            .fault("zoned", "the state of zones is kept beside a file or not at all: media is ram, null or file:PATH");
    }
    let device = DeviceConfig { zoned, ..device };
    let device = DeviceConfig { open_channel: open_channel::read(section, &device), ..device };
    check_flash(section, &device);
    if let (Some(capacity), Some(most)) = (device.capacity, device.max_capacity) {
        if most < capacity {
            section.fault("max_capacity", format!("{most} is less than the capacity, {capacity}"));
        }
    }
    let shared_slots = slots.is_none().then_some(own.shared);
    let (line, path) = (section.line(), section.path());
    DeviceRead { device, line, path, nqn: placed_nqn, serial: placed_serial, shared_slots }
}

/// `cost_library` and `cost_arguments`. The library is not looked at: another machine may be the one that has it.
fn cost_policy(section: &Section<'_>) -> Option<PolicyConfig> {
    let (library, arguments) = (section.get("cost_library", library_path), section.get("cost_arguments", text));
    if arguments.is_some() && !section.has("cost_library") {
        section.fault("cost_arguments", "is for a cost_library, and there is none; leave it out");
    }
    Some(PolicyConfig { library: library?, arguments: arguments.unwrap_or_default() })
}

/// `fast_io_fail_tmo` and `keep_alive_tmo`, by the names that Linux's hosts have for them.
fn link_timeouts(section: &Section<'_>, media: &MediaConfig) -> (Nanos, Nanos) {
    let is_at = |kinds: &[&str]| matches!(media, MediaConfig::Nvme(target) if kinds.iter().any(|kind| target.starts_with(kind)));
    let only = |key, is_there: bool, whose: &str| {
        if !is_there && section.has(key) {
            section.fault(key, format!("only a drive with media = {whose} is connected to, and this is {media}"));
        }
    };
    let is_tcp = is_at(&["nvme-tcp:"]);
    only(
        "fast_io_fail_tmo",
        is_at(&["nvme-tcp:", "vfio-user:", "pci:"]),
        "\"nvme:nvme-tcp://…\", \"nvme:vfio-user:…\" or \"pci:…\"",
    );
    only("keep_alive_tmo", is_tcp, "\"nvme:nvme-tcp://…\"");
    // What a program before this one hands over names it so.
    let default = section.or("reconnect", FAST_IO_FAIL, time(MAX_FAST_IO_FAIL));
    section.unoffer("reconnect");
    let fails = section.or("fast_io_fail_tmo", default, time(MAX_FAST_IO_FAIL));
    let alive = section.or("keep_alive_tmo", KEEP_ALIVE, keep_alive);
    if !is_tcp || fails == Nanos(0) || fails >= alive {
        return (fails, alive);
    }
    let given = ["fast_io_fail_tmo", "keep_alive_tmo"].into_iter().find(|key| section.has(key));
    // A drive that has only the old key was good for the program before, and goes on with what fits.
    let Some(key) = given else { return (fails, fails.max(KEEP_ALIVE_LIMITS.0)) };
    let what = format!(
        "fast_io_fail_tmo, {fails}, is less than keep_alive_tmo, {alive}, after which a silent target is seen to have gone; make \
         fast_io_fail_tmo at least {alive}, or 0 to have commands fail at once, or keep_alive_tmo smaller"
    );
    section.fault(key, what);
    (fails, alive)
}

fn keep_alive(value: &Value) -> Read<Nanos> {
    let (least, most) = KEEP_ALIVE_LIMITS;
    let found = time(most)(value)?;
    match found < least {
        true => Err(format!("{found} is out of range; {least} to {most} is allowed").into()),
        false => Ok(found),
    }
}

fn read_zeroes(section: &Section<'_>, media: &MediaConfig) -> bool {
    if *media != MediaConfig::Null && section.has("read_zeroes") {
        section.fault(
            "read_zeroes",
            format!("only a drive with media = \"null\" may leave open what a read gives, and this is {media}"),
        );
    }
    section.or("read_zeroes", false, flag)
}

fn capacity(media: &MediaConfig, given: Option<Bytes>, flash: Option<&FlashConfig>) -> Option<Bytes> {
    match media {
        _ if flash.is_some() => flash.and_then(|f| f.config.ftl.capacity),
        MediaConfig::Ram | MediaConfig::Null => given.or(Some(DEFAULT_CAPACITY)),
        MediaConfig::File(_) | MediaConfig::Block(_) | MediaConfig::Nvme(_) => given,
    }
}

/// `kind = "flash"`.
fn is_flash(section: &Section<'_>) -> bool {
    section.has("kind") && section.peek("kind", |v| Ok(text(v)? == "flash")) == Some(true)
}

/// What a flash drive cannot have beside its flash, and others not without.
fn check_flash(section: &Section<'_>, device: &DeviceConfig) {
    if device.flash.is_none() {
        if section.table("fdp").is_some() {
            section.fault("fdp", "only a flash drive has placement handles; write kind = \"flash\" as well");
        }
        if device.cost == Cost::DeviceTime {
            let what = "device-time is what flash spends on a command, and this drive has none inside; give it a profile, or use \
                        bytes or commands";
            section.fault("cost", what);
        }
        return;
    }
    if section.has("latency") {
        section.fault("latency", "the flash decides how long commands take; leave it out");
    }
    if section.has("max_capacity") {
        section.fault("max_capacity", "flash does not grow; leave it out");
    }
    if device.zoned.is_some() {
        section.fault("zoned", "this drive translates by itself; name the zones' own flash as zoned.flash");
    }
}

fn whole_blocks(block_size: u32) -> impl Fn(&Value) -> Read<Bytes> {
    move |v| {
        let bytes = size(CAPACITY)(v)?;
        match bytes.0 % u64::from(block_size) {
            0 => Ok(bytes),
            _ => Err(format!("{bytes} is not a multiple of the block size, {block_size} bytes").into()),
        }
    }
}

/// What a base address register can show.
fn memory_buffer(value: &Value) -> Read<Bytes> {
    let bytes = size(4 * Bytes::KIB..=Bytes::GIB)(value)?;
    match bytes.0.is_power_of_two() {
        true => Ok(bytes),
        false => Err(format!("{bytes} is no power of two, as 4MiB is").into()),
    }
}

fn block_size(value: &Value) -> Read<u32> {
    let bytes = size(0..=u64::MAX)(value)?;
    match bytes.0 {
        512 => Ok(512),
        4096 => Ok(4096),
        _ => Err(format!("{bytes} is no block size; 512 or 4096 is allowed").into()),
    }
}

fn serial(value: &Value) -> Read<String> {
    let text = text(value)?;
    if text.is_empty() || text.len() > 20 || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!("{} is no serial number; use 1 to 20 printable ASCII characters", quoted(&text)).into());
    }
    Ok(text)
}

/// The same NQN has the same serial number at every start: `WEIR` and 64 bits of FNV-1a.
fn serial_of(nqn: &str) -> String {
    let hash =
        nqn.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("WEIR{hash:016X}")
}

/// The drive of a node whose configuration has none.
pub(super) fn default_device(node: &str) -> DeviceConfig {
    let sink = Sink::new("");
    rest(&Section::new(&sink, "", 0, &[]), "ssd0", node, (MediaConfig::Ram, Path::new("")), false).device
}
