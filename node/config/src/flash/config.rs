//! What is inside a flash drive: a profile's numbers, some of them changed by keys.

use super::detail;
use super::keys::{COUNT, Keys};
use super::levels::levels;
use super::resize::shrink;
use crate::fdp;
use crate::profile::Profile;
use crate::read::{Read, flag, integer, number, part, size, text, time};
use crate::value::Value;
use std::path::PathBuf;
use std::str::FromStr;
use weir_flash::{
    FlashDriveConfig, FlashTiming, GcMode, Geometry, Housekeeping, Mapping, Precondition, UNIT, UnknownName,
    Variability, cell_times,
};
use weir_units::{Bytes, Nanos, parse};

/// Keys that lay out a drive: with one of them given, a profile's own layout is not fitted to the capacity.
const LAYOUT: [&str; 8] =
    ["channels", "ways", "planes", "blocks", "pages", "page_size", "over_provisioning", "slc_blocks"];

/// What is inside a flash drive.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashConfig {
    /// Where the numbers come from that no key gives.
    pub profile: Profile,
    /// Follow the profile's source where it does what no drive does.
    pub quirks: bool,
    /// All numbers.
    pub config: FlashDriveConfig,
    /// What the drive went through before it starts.
    pub precondition: Precondition,
    /// Who decides in place of the drive's own policies.
    pub policy: Option<PolicyConfig>,
    /// The channels' rate in bytes a second, where it was given.
    pub channel_rate: Option<Bytes>,
    /// The host link's, where it was given.
    pub link_rate: Option<Bytes>,
    /// Its rate towards the drive, where it was given.
    pub write_link_rate: Option<Bytes>,
    /// The keys of single steps and of wires that were given; programs that do not know them can read what is printed without them.
    pub details: Vec<&'static str>,
}

/// A shared library that decides for a drive; see `weir_policy.h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyConfig {
    /// Its absolute path.
    pub library: PathBuf,
    /// What its `create` is told.
    pub arguments: String,
}

impl FlashConfig {
    /// Whether it begins in the state in which collection has come to rest.
    pub fn begins_at_rest(&self) -> bool {
        self.precondition == Precondition::Steady
    }

    /// Whether power loss may take what was written and not flushed.
    pub fn is_volatile(&self) -> bool {
        !self.config.buffer.is_durable()
    }
}

/// A profile's own numbers with the keys' in their place.
pub(super) fn with_keys(
    keys: &Keys<'_, '_>,
    profile: Profile,
    own: FlashDriveConfig,
    capacity: Option<Bytes>,
) -> FlashConfig {
    let quirks = keys.get("quirks", flag).unwrap_or(false);
    let mut config = own;
    geometry(keys, &mut config.geometry);
    if config.geometry.planes != own.geometry.planes {
        config.ftl.multi_plane = config.geometry.planes > 1;
    }
    timing(keys, &mut config, &own);
    let channel_rate = keys.get("channel_rate", rate);
    let link_rate = keys.get("link_rate", rate);
    let write_link_rate = keys.get("write_link_rate", rate);
    if let Some(rate) = channel_rate {
        config.timing.channel = config.timing.channel.at_rate(rate.0);
    }
    if let Some(rate) = link_rate {
        config.host.to_host = config.host.to_host.at_rate(rate.0);
        config.host.to_drive = config.host.to_host;
    }
    if let Some(rate) = write_link_rate {
        config.host.to_drive = config.host.to_drive.at_rate(rate.0);
    }
    let details = detail::read(keys, &mut config);
    translation(keys, &mut config);
    buffer(keys, &mut config);
    variability(keys, &mut config.variability);
    keys.put("seed", &mut config.seed, integer(0..=i64::MAX as u64));
    config.variability.seed = config.seed;
    match capacity {
        Some(capacity) if profile.scales() && !LAYOUT.into_iter().any(|key| keys.has(key)) => {
            shrink(&mut config, capacity);
            settle(&mut config);
        }
        _ => offer(keys, &mut config, &own, capacity),
    }
    let precondition = keys.get("precondition", named).unwrap_or(Precondition::Fresh);
    let policy = policy(keys);
    FlashConfig { profile, quirks, config, precondition, policy, channel_rate, link_rate, write_link_rate, details }
}

/// The path of a shared library.
pub(crate) fn library_path(value: &Value) -> Read<PathBuf> {
    let path = PathBuf::from(text(value)?);
    let fault = || format!("is the absolute path of a shared library, not {:?}", path.display().to_string());
    if path.is_absolute() { Ok(path) } else { Err(fault().into()) }
}

/// The library is not looked at: another machine may be the one that has it.
fn policy(keys: &Keys<'_, '_>) -> Option<PolicyConfig> {
    let library = keys.get("policy_library", library_path);
    let arguments = keys.get("policy_arguments", text);
    if arguments.is_some() && !keys.has("policy_library") {
        keys.fault("policy_arguments", "is for a policy_library, and there is none; leave it out");
    }
    Some(PolicyConfig { library: library?, arguments: arguments.unwrap_or_default() })
}

fn geometry(keys: &Keys<'_, '_>, geometry: &mut Geometry) {
    let Geometry { channels, ways, planes, blocks, pages, page_bytes, spare_bytes, cell, page_map } = geometry;
    let counts = [("channels", channels), ("ways", ways), ("planes", planes), ("blocks", blocks), ("pages", pages)];
    for (key, count) in counts {
        keys.count(key, count);
    }
    let bytes = |v: &Value| Ok(size(COUNT)(v)?.0 as u32);
    keys.put("page_size", page_bytes, bytes);
    // As much spare as before, for each page of another size.
    *spare_bytes = (*spare_bytes).max(*page_bytes / UNIT * 16);
    keys.put("spare_size", spare_bytes, bytes);
    keys.put("cell", cell, named);
    keys.put("page_map", page_map, named);
}

fn timing(keys: &Keys<'_, '_>, config: &mut FlashDriveConfig, own: &FlashDriveConfig) {
    let timing = &mut config.timing;
    if config.geometry.cell != own.geometry.cell {
        let times = cell_times(config.geometry.cell);
        (timing.read, timing.program, timing.erase) = (times.read, times.program, times.erase);
        timing.read_small = None;
    }
    if keys.has("read") {
        timing.read_small = None;
    }
    keys.put("gate", &mut timing.gate, named);
    keys.put("registers", &mut timing.registers, named);
    keys.put("channel_arbitration", &mut timing.arbitration, named);
    keys.put("die_order", &mut timing.order, named);
    keys.put("die_age", &mut timing.age, time(FlashTiming::LONGEST));
    keys.count("chips", &mut timing.chips);
    keys.put("join_planes", &mut timing.join_planes, flag);
    keys.put("read", &mut timing.read, levels);
    keys.put("program", &mut timing.program, levels);
    keys.put("erase", &mut timing.erase, time(FlashTiming::LONGEST));
    keys.put("cache_read", &mut timing.cache_read, flag);
    keys.put("program_suspend", &mut timing.suspend.program, |v| Ok(Some(time(FlashTiming::LONGEST)(v)?)));
    keys.put("erase_suspend", &mut timing.suspend.erase, |v| Ok(Some(time(FlashTiming::LONGEST)(v)?)));
    keys.count("suspend_limit", &mut timing.suspend.limit);
    let firmware = &mut config.host.firmware;
    keys.put("firmware", &mut firmware.core, time(FlashTiming::LONGEST));
    if let Some(read) = keys.get("firmware_read", time(FlashTiming::LONGEST)) {
        (firmware.read, firmware.read_small) = (read, read);
    }
}

fn translation(keys: &Keys<'_, '_>, config: &mut FlashDriveConfig) {
    config.ftl.fdp = fdp::read(keys.device, &config.geometry);
    let ftl = &mut config.ftl;
    keys.put("mapping", &mut ftl.mapping, named);
    keys.put("gc", &mut ftl.gc.mode, named);
    keys.put("victim", &mut ftl.gc.victim, named);
    keys.count("gc_choices", &mut ftl.gc.choices);
    keys.count("gc_start", &mut ftl.gc.start);
    keys.count("gc_hard", &mut ftl.gc.hard);
    if ftl.gc.mode == GcMode::Preemptive && !keys.has("gc_start") {
        // Between the two it goes on in pieces; at the same block every collection would be a forced one.
        ftl.gc.start = ftl.gc.start.max(ftl.gc.hard + 1);
    }
    keys.put("streams", &mut ftl.streams, |v| Ok(integer(1..=16)(v)? as u8));
    keys.put("separation", &mut ftl.separation, named);
    keys.put("wear", &mut ftl.wear.policy, named);
    keys.count("wear_gap", &mut ftl.wear.gap);
    keys.count("endurance", &mut ftl.wear.endurance);
    keys.count("erase_failures", &mut ftl.wear.failures);
    keys.count("factory_bad", &mut ftl.factory_bad);
    keys.count("slc_blocks", &mut ftl.slc.blocks);
    keys.put("fold", &mut ftl.slc.fold, named);
    keys.put("map_cache", &mut ftl.map_cache, size(0..=1 << 40));
    keys.count("log_blocks", &mut ftl.hybrid.log_blocks);
    keys.put("association", &mut ftl.hybrid.association, named);
    keys.put("unmapped_read", &mut ftl.unmapped_read, named);
    keys.put("write_zeroes", &mut ftl.write_zeroes, named);
    keys.put("plane_allocation", &mut ftl.plane_allocation, named);
    if ftl.plane_allocation.is_static() || ftl.fdp.is_some() || !matches!(ftl.mapping, Mapping::Page | Mapping::Cached)
    {
        // A profile's give way to what places pages by other rules.
        ftl.partitions = 1;
    }
    keys.count("partitions", &mut ftl.partitions);
    // Each page has its plane then.
    ftl.multi_plane &= !ftl.plane_allocation.is_static();
    keys.put("multi_plane", &mut ftl.multi_plane, flag);
    keys.put("power_cut", &mut ftl.spare, flag);
}

fn buffer(keys: &Keys<'_, '_>, config: &mut FlashDriveConfig) {
    let buffer = &mut config.buffer;
    keys.put("buffer", &mut buffer.size, size(0..=1 << 40));
    keys.put("flush", &mut buffer.flush, named);
    keys.count("buffer_high", &mut buffer.high);
    keys.count("buffer_low", &mut buffer.low);
    keys.put("buffer_timeout", &mut buffer.timeout, time(FlashTiming::LONGEST));
    keys.put("early_completion", &mut buffer.early, flag);
    keys.put("power_protected", &mut buffer.protected, flag);
    keys.put("buffer_latency", &mut buffer.latency, time(FlashTiming::LONGEST));
    keys.put("cache", &mut buffer.cache, named);
    keys.put("cache_window", &mut buffer.window, time(Nanos::from_secs(3600)));
    keys.put("cache_pending", &mut buffer.pending, size(0..=1 << 40));
    keys.put("dram_access", &mut buffer.dram.access, time(FlashTiming::LONGEST));
    keys.put("dram_timing", &mut buffer.dram.wire, detail::wire);
}

/// Good and bad chips; wrong bits where `errors` or one of their keys says so.
fn variability(keys: &Keys<'_, '_>, variability: &mut Variability) {
    keys.count("chip_spread", &mut variability.chip_spread);
    keys.count("page_spread", &mut variability.page_spread);
    keys.count("initial_cycles", &mut variability.initial_cycles);
    keys.count("wear_slowdown", &mut variability.wear_slowdown);
    housekeeping(keys, &mut variability.housekeeping);
    keys.count("bad_chips", &mut variability.bad_chips);
    keys.count("bad_chip_slowdown", &mut variability.bad_chip_slowdown);
    keys.put("bad_chip_errors", &mut variability.bad_chip_errors, number(0.0..=1e6));
    let some = ["rber", "rber_worn", "rated_cycles", "read_disturb", "retention", "retry", "retries"];
    let named = some.into_iter().find(|key| keys.has(key));
    match (keys.get("errors", flag), named) {
        (Some(false), Some(key)) => keys.fault(key, "counts only with errors = true; leave one of the two out"),
        (Some(false), None) => variability.errors = None,
        (None, None) => {}
        _ => variability.errors = Some(variability.errors.unwrap_or_default()),
    }
    let Some(errors) = &mut variability.errors else { return };
    keys.put("rber", &mut errors.rber, number(0.0..=1.0));
    keys.put("rber_worn", &mut errors.rber_worn, number(0.0..=1.0));
    keys.count("rated_cycles", &mut errors.endurance);
    keys.put("read_disturb", &mut errors.read_disturb, |v| Ok(Some(number(0.0..=1.0)(v)?)));
    keys.put("retention", &mut errors.retention, |v| Ok(Some(number(0.0..=1.0)(v)?)));
    keys.put("retry", &mut errors.retry, |v| Ok(Some(time(FlashTiming::LONGEST)(v)?)));
    keys.count("retries", &mut errors.retries);
}

/// Both keys or none; a time of 0 switches off what a profile has.
fn housekeeping(keys: &Keys<'_, '_>, housekeeping: &mut Option<Housekeeping>) {
    let own = *housekeeping;
    let (asked, every) = (
        keys.get("housekeeping", time(FlashTiming::LONGEST)),
        keys.get("housekeeping_every", time(HOUSEKEEPING_PERIOD_MAX)),
    );
    if asked == Some(Nanos(0)) {
        *housekeeping = None;
        return;
    }
    let (asked, every) = (asked.or(own.map(|h| h.time)), every.or(own.map(|h| h.every)));
    match (asked, every) {
        (Some(time), Some(every)) => *housekeeping = Some(Housekeeping { time, every }),
        (Some(_), None) => {
            keys.fault("housekeeping", "needs housekeeping_every, the period in which a die is away once")
        }
        (None, Some(_)) => keys.fault("housekeeping_every", "needs housekeeping, the time for which a die is away"),
        (None, None) => {}
    }
}

/// The longest period of housekeeping: a day.
const HOUSEKEEPING_PERIOD_MAX: Nanos = Nanos::from_secs(86_400);

/// Five times the capacity: who writes 7 means 0.07.
const OVER_PROVISIONING_MAX: f64 = 4.0;

/// How much of the flash is offered: the capacity, the over-provisioning and the blocks follow from each other.
fn offer(keys: &Keys<'_, '_>, config: &mut FlashDriveConfig, own: &FlashDriveConfig, capacity: Option<Bytes>) {
    let given = keys.get("over_provisioning", part(0.0..=OVER_PROVISIONING_MAX));
    let (blocks, changed) = (keys.has("blocks"), config.geometry != own.geometry || config.ftl.slc != own.ftl.slc);
    let g = &config.geometry;
    let block = u64::from(g.pages) * u64::from(g.page_bytes);
    // Zeroes and overflows are refused by the flash itself, with their keys.
    let rows = u64::from(g.channels).saturating_mul(g.ways.into()).saturating_mul(g.planes.into());
    let row = rows.saturating_mul(block).max(1);
    let slc = config.ftl.slc.blocks;
    if let Some(capacity) = capacity {
        config.ftl.capacity = Some(capacity);
        if blocks {
            if given.is_some() {
                keys.fault("over_provisioning", "follows from capacity and blocks; leave one of the three out");
            }
        } else {
            let wanted = capacity.0 as f64 * (1.0 + given.unwrap_or(own.ftl.over_provisioning)) / row as f64;
            let mut needed = wanted as u64 + u64::from(wanted > (wanted as u64) as f64);
            if given.is_none() {
                needed = needed.max(capacity.0.div_ceil(row) + u64::from(work_blocks(config)));
            }
            config.geometry.blocks = u32::try_from(needed).unwrap_or(u32::MAX).saturating_add(slc);
        }
    } else if given.is_some() || blocks || changed {
        let physical = u64::from(g.blocks.saturating_sub(slc)).saturating_mul(row);
        let offered = physical as f64 / (1.0 + given.unwrap_or(own.ftl.over_provisioning));
        config.ftl.capacity = Some(Bytes(offered as u64 / u64::from(UNIT) * u64::from(UNIT)));
    }
    settle(config);
}

/// The over-provisioning that blocks and capacity make.
fn settle(config: &mut FlashDriveConfig) {
    let g = &config.geometry;
    let block = u64::from(g.pages) * u64::from(g.page_bytes);
    let rows = u64::from(g.channels).saturating_mul(g.ways.into()).saturating_mul(g.planes.into());
    let row = rows.saturating_mul(block).max(1);
    let physical = u64::from(g.blocks.saturating_sub(config.ftl.slc.blocks)).saturating_mul(row);
    let offered = config.ftl.capacity.map_or(1, |c| c.0.max(1));
    config.ftl.over_provisioning = (physical as f64 / offered as f64 - 1.0).clamp(0.0, 16.0);
}

/// Blocks of a plane that the FTL needs beside the data.
fn work_blocks(config: &FlashDriveConfig) -> u32 {
    let ftl = &config.ftl;
    match ftl.mapping {
        Mapping::Hybrid => ftl.hybrid.log_blocks.saturating_add(4),
        _ => {
            let handles = ftl.fdp.map_or(0, |fdp| u32::from(fdp.handles) + fdp.persistent.count_ones());
            u32::from(ftl.streams).saturating_add(handles).saturating_add(ftl.gc.start).saturating_add(6)
        }
    }
}

fn named<T: FromStr<Err = UnknownName>>(value: &Value) -> Read<T> {
    text(value)?.parse().map_err(|e: UnknownName| e.to_string().into())
}

/// Bytes a second.
fn rate(value: &Value) -> Read<Bytes> {
    let rate = parse::bandwidth(&text(value)?).map_err(|e| e.to_string())?;
    if rate.0 == 0 || rate.0 > 1 << 40 {
        return Err(format!("{rate}/s is out of range; up to 1TiB/s is allowed").into());
    }
    Ok(rate)
}
