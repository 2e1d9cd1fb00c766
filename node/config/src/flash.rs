//! `[device.flash]`: what is inside a flash drive.
//!
//! A profile gives every number, keys change some of them. Keys may stand in `[[device]]` itself as well, where a bench
//! target's query and `--set device.gc=plane` have them.

use super::error::ConfigError;
use super::fdp;
use super::profile::{self, Profile, Slots};
use super::read::{Placed, Read, Section, flag, integer, number, one_or_list, size, text, time};
use super::types::FlashConfig;
use super::value::Value;
use std::path::Path;
use std::str::FromStr;
use weir_flash::{
    FlashDriveConfig, FlashTiming, GcMode, Geometry, Housekeeping, Levels, Mapping, Precondition, Preset, UNIT,
    UnknownName, Variability, cell_times,
};
use weir_units::{Bytes, Nanos, parse};

/// The drive of `kind = "flash"` where no profile is named.
const DEFAULT: Profile = Profile::Model(Preset::FemuBbssd);
const COUNT: std::ops::RangeInclusive<u64> = 0..=u32::MAX as u64;

/// Every key, and what the flash's own messages call it.
const KEYS: [(&str, &str); 105] = [
    ("quirks", ""),
    ("seed", "seed"),
    ("precondition", ""),
    ("channels", "geometry.channels"),
    ("ways", "geometry.ways"),
    ("planes", "geometry.planes"),
    ("blocks", "geometry.blocks"),
    ("pages", "geometry.pages"),
    ("page_size", "geometry.page_bytes"),
    ("spare_size", "geometry.spare_bytes"),
    ("cell", "geometry.cell"),
    ("page_map", "geometry.page_map"),
    ("gate", "timing.gate"),
    ("registers", "timing.registers"),
    ("channel_arbitration", "timing.arbitration"),
    ("die_order", "timing.order"),
    ("die_age", "timing.age"),
    ("chips", "timing.chips"),
    ("join_planes", "timing.join_planes"),
    ("read", "timing.read"),
    ("program", "timing.program"),
    ("erase", "timing.erase"),
    ("channel_rate", "timing.channel"),
    ("cache_read", "timing.cache_read"),
    ("program_suspend", "timing.suspend.program"),
    ("erase_suspend", "timing.suspend.erase"),
    ("suspend_limit", "timing.suspend.limit"),
    ("firmware", "host.firmware.core"),
    ("firmware_read", "host.firmware.read"),
    ("link_rate", "host.link"),
    ("write_link_rate", "host.to_drive"),
    ("mapping", "ftl.mapping"),
    ("over_provisioning", "ftl.over_provisioning"),
    ("gc", "ftl.gc.mode"),
    ("victim", "ftl.gc.victim"),
    ("gc_choices", "ftl.gc.choices"),
    ("gc_start", "ftl.gc.start"),
    ("gc_hard", "ftl.gc.hard"),
    ("streams", "ftl.streams"),
    ("separation", "ftl.separation"),
    ("wear", "ftl.wear.policy"),
    ("wear_gap", "ftl.wear.gap"),
    ("endurance", "ftl.wear.endurance"),
    ("erase_failures", "ftl.wear.failures"),
    ("factory_bad", "ftl.factory_bad"),
    ("slc_blocks", "ftl.slc.blocks"),
    ("fold", "ftl.slc.fold"),
    ("map_cache", "ftl.map_cache"),
    ("log_blocks", "ftl.hybrid.log_blocks"),
    ("association", "ftl.hybrid.association"),
    ("unmapped_read", "ftl.unmapped_read"),
    ("write_zeroes", "ftl.write_zeroes"),
    ("multi_plane", "ftl.multi_plane"),
    ("plane_allocation", "ftl.plane_allocation"),
    ("partitions", "ftl.partitions"),
    ("buffer", "buffer.size"),
    ("flush", "buffer.flush"),
    ("buffer_high", "buffer.high"),
    ("buffer_low", "buffer.low"),
    ("buffer_timeout", "buffer.timeout"),
    ("early_completion", "buffer.early"),
    ("power_protected", "buffer.protected"),
    ("buffer_latency", "buffer.latency"),
    ("cache", "buffer.cache"),
    ("cache_window", "buffer.window"),
    ("cache_pending", "buffer.pending"),
    ("dram_access", "buffer.dram.access"),
    ("dram_timing", "buffer.dram.wire"),
    ("power_cut", "ftl.spare"),
    ("chip_spread", "variability.chip_spread"),
    ("page_spread", "variability.page_spread"),
    ("initial_cycles", "variability.initial_cycles"),
    ("wear_slowdown", "variability.wear_slowdown"),
    ("housekeeping", "variability.housekeeping"),
    ("housekeeping_every", "variability.housekeeping_every"),
    ("bad_chips", "variability.bad_chips"),
    ("bad_chip_slowdown", "variability.bad_chip_slowdown"),
    ("bad_chip_errors", "variability.bad_chip_errors"),
    ("errors", ""),
    ("rber", "variability.errors.rber"),
    ("rber_worn", "variability.errors.rber_worn"),
    ("rated_cycles", "variability.errors.endurance"),
    ("read_disturb", "variability.errors.read_disturb"),
    ("retention", "variability.errors.retention"),
    ("retry", "variability.errors.retry"),
    ("retries", "variability.errors.retries"),
    ("read_small", "timing.read_small"),
    ("sense_size", "timing.sense_bytes"),
    ("burst_size", "timing.burst_bytes"),
    ("cache_busy", "timing.cache_busy"),
    ("read_command", "timing.overheads.read"),
    ("read_command_plane", "timing.overheads.read_plane"),
    ("program_command", "timing.overheads.program"),
    ("program_command_plane", "timing.overheads.program_plane"),
    ("erase_command", "timing.overheads.erase"),
    ("status_poll", "timing.overheads.status"),
    ("firmware_read_small", "host.firmware.read_small"),
    ("firmware_small_size", "host.firmware.small_bytes"),
    ("firmware_write", "host.firmware.write"),
    ("firmware_write_unit", "host.firmware.write_unit"),
    ("firmware_other", "host.firmware.other"),
    ("propagation", "host.propagation"),
    ("channel_timing", "timing.channel"),
    ("link_timing", "host.to_host"),
    ("write_link_timing", "host.to_drive"),
];

/// The flash's keys, in `[device.flash]` or else in `[[device]]`.
struct Keys<'s, 'a> {
    device: &'s Section<'a>,
    flash: Option<Section<'a>>,
}

impl Keys<'_, '_> {
    fn section(&self, key: &'static str) -> &Section<'_> {
        match &self.flash {
            Some(flash) if flash.has(key) => flash,
            _ => self.device,
        }
    }

    fn placed<T>(&self, key: &'static str, read: impl FnOnce(&Value) -> Read<T>) -> Option<Placed<T>> {
        self.section(key).placed(key, read)
    }

    fn get<T>(&self, key: &'static str, read: impl FnOnce(&Value) -> Read<T>) -> Option<T> {
        self.placed(key, read).map(|placed| placed.value)
    }

    fn put<T>(&self, key: &'static str, into: &mut T, read: impl FnOnce(&Value) -> Read<T>) {
        if let Some(value) = self.get(key, read) {
            *into = value;
        }
    }

    fn count(&self, key: &'static str, into: &mut u32) {
        self.put(key, into, |v| Ok(integer(COUNT)(v)? as u32));
    }

    fn has(&self, key: &'static str) -> bool {
        self.section(key).has(key)
    }

    fn fault(&self, key: &'static str, what: impl std::fmt::Display) {
        self.section(key).fault(key, what);
    }
}

/// What a profile has to say; the rest has defaults.
const REQUIRED: [&str; 10] =
    ["capacity", "channels", "ways", "planes", "pages", "page_size", "cell", "read", "program", "erase"];

/// Keys that lay out a drive: with one of them given, a profile's own layout is not fitted to the capacity.
const LAYOUT: [&str; 8] =
    ["channels", "ways", "planes", "blocks", "pages", "page_size", "over_provisioning", "slc_blocks"];

/// Reads a profile's file: a drive that says everything about itself.
pub(super) fn profile(root: &Section<'_>) -> FlashDriveConfig {
    for key in REQUIRED.into_iter().filter(|key| !root.has(key)) {
        root.fault(key, "missing; a profile has to say it");
    }
    if !root.has("channel_rate") && !root.has("channel_timing") {
        root.fault("channel_rate", "missing; a profile has to say it");
    }
    let capacity = root.get("capacity", size(u64::from(UNIT)..=1 << 56));
    // What it is, for lists.
    for key in ["drive", "source"] {
        root.get(key, text);
    }
    Slots::read(root);
    let keys = Keys { device: root, flash: None };
    // What it does not say is as in the paper's OpenChannel drive, with the usual translation layer and buffer.
    let base = FlashDriveConfig {
        ftl: weir_flash::FtlConfig::DEFAULT,
        buffer: weir_flash::BufferConfig::NONE,
        ..FlashDriveConfig::preset(Preset::FemuOc, false)
    };
    let read = keys_of(&keys, DEFAULT, base, capacity);
    root.finish();
    if root.sink().is_clean() {
        if let Err(error) = read.config.validate() {
            refuse(&keys, &error);
        }
    }
    read.config
}

/// The profile and its numbers.
fn base(section: &Section<'_>, base: &Path, quirks: bool) -> Option<(Profile, FlashDriveConfig)> {
    let profile = section.get("profile", |v| Ok(Profile::parse(&text(v)?, base)?))?;
    match profile.config(quirks) {
        Ok(config) => Some((profile, config)),
        Err(ConfigError(problems)) => {
            // In the profile's own file, or about it.
            let (inside, about): (Vec<_>, Vec<_>) = problems.into_iter().partition(|problem| problem.line > 0);
            about.into_iter().for_each(|problem| section.fault("profile", problem));
            section.sink().adopt(inside);
            None
        }
    }
}

/// Reads `profile`, `kind = "flash"` and the flash's keys; `None` for a drive that is none. `capacity` is `[[device]]`'s,
/// `folder` where a profile's file is looked for.
pub(super) fn read(
    section: &Section<'_>,
    is_flash: bool,
    capacity: Option<Bytes>,
    folder: &Path,
) -> Option<FlashConfig> {
    let table = section.table("flash").map(|(line, keys)| section.inner(section.key("flash"), line, keys));
    for (key, _) in KEYS {
        section.unoffer(key);
    }
    if section.line() == 0 {
        // A query has no tables.
        section.unoffer("flash");
    }
    if !(is_flash || section.has("profile") || table.is_some()) {
        for (key, _) in KEYS.into_iter().filter(|(key, _)| section.has(key)) {
            section.fault(key, "only a flash drive has this; write kind = \"flash\" as well");
        }
        return None;
    }
    let keys = Keys { device: section, flash: table };
    for (key, _) in KEYS.into_iter().filter(|(key, _)| section.has(key)) {
        if keys.flash.as_ref().is_some_and(|flash| flash.has(key)) {
            section.fault(key, "stands in [device.flash] as well; keep one");
        }
    }
    let quirks = keys.get("quirks", flag).unwrap_or(false);
    let default = || FlashDriveConfig::preset(Preset::FemuBbssd, quirks);
    let (profile, base) = base(section, folder, quirks).unwrap_or_else(|| (DEFAULT, default()));
    let flash = keys_of(&keys, profile, base, capacity);
    if let Some(table) = &keys.flash {
        table.finish();
    }
    // Without a translation layer only the flash itself has to be right: `open_channel` checks that.
    if section.sink().is_clean() && !section.has("open_channel") {
        if let Err(error) = flash.config.validate() {
            refuse(&keys, &error);
        }
    }
    Some(flash)
}

/// Notes a fault that the flash found, under our name of its key.
fn refuse(keys: &Keys<'_, '_>, error: &weir_flash::ConfigError) {
    if fdp::refuse(keys.device, error) {
        return;
    }
    let what = error.to_string();
    let theirs = what.split([' ', ',']).next().unwrap_or_default();
    // The capacity is the device's, and follows from what else was given.
    let whose = ["over_provisioning", "capacity", "blocks"].into_iter().find(|key| keys.has(key)).unwrap_or("flash");
    let key = match KEYS.iter().find(|(_, t)| !t.is_empty() && *t == theirs) {
        Some((key, _)) => key,
        None if theirs == "ftl.capacity" => whose,
        None => "flash",
    };
    let what = KEYS.iter().filter(|(_, t)| t.contains('.')).fold(what.clone(), |what, (key, t)| what.replace(t, key));
    let what = what.strip_prefix(theirs).or_else(|| what.strip_prefix(key)).unwrap_or(&what);
    keys.fault(key, what.trim_start());
}

fn keys_of(keys: &Keys<'_, '_>, profile: Profile, own: FlashDriveConfig, capacity: Option<Bytes>) -> FlashConfig {
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
            profile::shrink(&mut config, capacity);
            settle(&mut config);
        }
        _ => offer(keys, &mut config, &own, capacity),
    }
    let precondition = keys.get("precondition", named).unwrap_or(Precondition::Fresh);
    FlashConfig { profile, quirks, config, precondition, channel_rate, link_rate, write_link_rate, details }
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

/// How much of the flash is offered: the capacity, the over-provisioning and the blocks follow from each other.
fn offer(keys: &Keys<'_, '_>, config: &mut FlashDriveConfig, own: &FlashDriveConfig, capacity: Option<Bytes>) {
    let given = keys.get("over_provisioning", number(0.0..=16.0));
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

/// One time for all pages, or one for each level of a cell, the last for those that remain.
fn levels(value: &Value) -> Read<Levels> {
    let times = one_or_list(time(FlashTiming::LONGEST))(value)?;
    let (Some(last), 1..=5) = (times.last(), times.len()) else {
        return Err(format!("{} times where 1 to 5 are wanted", times.len()).into());
    };
    Ok(std::array::from_fn(|level| times.get(level).copied().unwrap_or(*last)))
}

/// Bytes a second.
fn rate(value: &Value) -> Read<Bytes> {
    let rate = parse::bandwidth(&text(value)?).map_err(|e| e.to_string())?;
    if rate.0 == 0 || rate.0 > 1 << 40 {
        return Err(format!("{rate}/s is out of range; up to 1TiB/s is allowed").into());
    }
    Ok(rate)
}

/// The levels as they are written.
pub(super) fn written(levels: &Levels) -> Vec<Nanos> {
    let same = levels.iter().rev().take_while(|l| **l == levels[4]).count();
    levels[..levels.len() + 1 - same].to_vec()
}

#[path = "flash_detail.rs"]
pub(super) mod detail;

#[cfg(test)]
#[path = "flash_tests.rs"]
mod tests;
