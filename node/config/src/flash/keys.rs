//! The keys of `[device.flash]`, and what the flash's own messages call them.

use crate::fdp;
use crate::read::{Placed, Read, Section, integer};
use crate::value::Value;

pub(super) const COUNT: std::ops::RangeInclusive<u64> = 0..=u32::MAX as u64;

/// Every key, and what the flash's own messages call it.
pub(super) const KEYS: [(&str, &str); 107] = [
    ("quirks", ""),
    ("seed", "seed"),
    ("precondition", ""),
    ("policy_library", ""),
    ("policy_arguments", ""),
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
pub(super) struct Keys<'s, 'a> {
    pub(super) device: &'s Section<'a>,
    pub(super) flash: Option<Section<'a>>,
}

impl Keys<'_, '_> {
    fn section(&self, key: &'static str) -> &Section<'_> {
        match &self.flash {
            Some(flash) if flash.has(key) => flash,
            _ => self.device,
        }
    }

    pub(super) fn placed<T>(&self, key: &'static str, read: impl FnOnce(&Value) -> Read<T>) -> Option<Placed<T>> {
        self.section(key).placed(key, read)
    }

    pub(super) fn get<T>(&self, key: &'static str, read: impl FnOnce(&Value) -> Read<T>) -> Option<T> {
        self.placed(key, read).map(|placed| placed.value)
    }

    pub(super) fn put<T>(&self, key: &'static str, into: &mut T, read: impl FnOnce(&Value) -> Read<T>) {
        if let Some(value) = self.get(key, read) {
            *into = value;
        }
    }

    pub(super) fn count(&self, key: &'static str, into: &mut u32) {
        self.put(key, into, |v| Ok(integer(COUNT)(v)? as u32));
    }

    pub(super) fn has(&self, key: &'static str) -> bool {
        self.section(key).has(key)
    }

    pub(super) fn fault(&self, key: &'static str, what: impl std::fmt::Display) {
        self.section(key).fault(key, what);
    }
}

/// Notes a fault that the flash found, under our name of its key.
pub(super) fn refuse(keys: &Keys<'_, '_>, error: &weir_flash::ConfigError) {
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
