//! Keys of `[device.flash]` for the single steps of a model: command cycles, firmware, and wires with their rounding. Profiles have them from
//! their source; a configuration that repeats another emulator writes them.

use super::keys::{COUNT, Keys};
use super::levels::{levels, written};
use crate::read::{Read, size, text, time};
use crate::toml_text::{string, strings};
use crate::value::Value;
use weir_flash::{FlashDriveConfig, FlashTiming, Wire};
use weir_units::Nanos;

/// Where a value of a configuration stands.
type Place<T> = fn(&mut FlashDriveConfig) -> &mut T;

/// Keys with one time.
const TIMES: [(&str, Place<Nanos>); 12] = [
    ("cache_busy", |c| &mut c.timing.cache_busy),
    ("read_command", |c| &mut c.timing.overheads.read),
    ("read_command_plane", |c| &mut c.timing.overheads.read_plane),
    ("program_command", |c| &mut c.timing.overheads.program),
    ("program_command_plane", |c| &mut c.timing.overheads.program_plane),
    ("erase_command", |c| &mut c.timing.overheads.erase),
    ("status_poll", |c| &mut c.timing.overheads.status),
    ("firmware_read_small", |c| &mut c.host.firmware.read_small),
    ("firmware_write", |c| &mut c.host.firmware.write),
    ("firmware_write_unit", |c| &mut c.host.firmware.write_unit),
    ("firmware_other", |c| &mut c.host.firmware.other),
    ("propagation", |c| &mut c.host.propagation),
];

/// Keys with a number of bytes.
const SIZES: [(&str, Place<u32>); 3] = [
    ("sense_size", |c| &mut c.timing.sense_bytes),
    ("burst_size", |c| &mut c.timing.burst_bytes),
    ("firmware_small_size", |c| &mut c.host.firmware.small_bytes),
];

/// Keys with a wire, and the keys with its rate alone.
const WIRES: [(&str, &str, Place<Wire>); 3] = [
    ("channel_timing", "channel_rate", |c| &mut c.timing.channel),
    ("link_timing", "link_rate", |c| &mut c.host.to_host),
    ("write_link_timing", "write_link_rate", |c| &mut c.host.to_drive),
];

/// How long bytes take.
pub(super) fn wire(value: &Value) -> Read<Wire> {
    text(value)?.parse::<Wire>().map_err(|e| e.to_string().into())
}

/// Reads them: those that were given.
pub(super) fn read(keys: &Keys<'_, '_>, config: &mut FlashDriveConfig) -> Vec<&'static str> {
    let mut given = Vec::new();
    if let Some(read) = keys.get("read_small", levels) {
        config.timing.read_small = Some(read);
        given.push("read_small");
    }
    for (key, place) in TIMES {
        if let Some(value) = keys.get(key, time(FlashTiming::LONGEST)) {
            *place(config) = value;
            given.push(key);
        }
    }
    for (key, place) in SIZES {
        if let Some(value) = keys.get(key, size(COUNT)) {
            *place(config) = value.0 as u32;
            given.push(key);
        }
    }
    for (key, rate, place) in WIRES {
        let Some(wire) = keys.get(key, wire) else { continue };
        if keys.has(rate) {
            keys.fault(rate, format_args!("{key} says it already; keep one"));
        }
        *place(config) = wire;
        given.push(key);
        if key == "link_timing" && !keys.has("write_link_rate") {
            config.host.to_drive = wire;
        }
    }
    given
}

/// Every key, with what it says of a configuration.
pub(super) fn printed(config: &FlashDriveConfig) -> Vec<(&'static str, String)> {
    let mut config = *config;
    let small = config.timing.read_small.map(|read| ("read_small", strings(written(&read))));
    let times = TIMES.map(|(key, place)| (key, string(*place(&mut config))));
    let sizes = SIZES.map(|(key, place)| (key, place(&mut config).to_string()));
    let wires = WIRES.map(|(key, _, place)| (key, string(*place(&mut config))));
    small.into_iter().chain(times).chain(sizes).chain(wires).collect()
}
