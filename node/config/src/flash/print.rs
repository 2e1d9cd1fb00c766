//! `[device.flash]` and a profile's file as TOML again.

use super::config::FlashConfig;
use super::detail;
use super::levels::written;
use crate::toml_text::{string, strings};
use std::fmt::Write;
use weir_flash::{BufferConfig, Errors, FlashDriveConfig};

/// `[device.flash]`.
pub(crate) fn write(out: &mut String, flash: &FlashConfig) -> std::fmt::Result {
    let t = &flash.config.timing;
    writeln!(out, "\n[device.flash]\nquirks = {}\nseed = {}", flash.quirks, flash.config.seed)?;
    writeln!(out, "precondition = {}", string(flash.precondition))?;
    if let Some(policy) = &flash.policy {
        writeln!(out, "policy_library = {}", string(policy.library.display()))?;
        writeln!(out, "policy_arguments = {}", string(&policy.arguments))?;
    }
    // Without the key the profile has it, with the time of small reads beside it.
    write_layout(out, &flash.config, t.read_small.is_none() || flash.details.contains(&"read_small"))?;
    let rates = [
        ("channel_rate", flash.channel_rate),
        ("link_rate", flash.link_rate),
        ("write_link_rate", flash.write_link_rate),
    ];
    for (key, rate) in rates {
        if let Some(rate) = rate {
            writeln!(out, "{key} = {}", string(format_args!("{rate}/s")))?;
        }
    }
    let firmware = &flash.config.host.firmware;
    let one = firmware.read == firmware.read_small || flash.details.contains(&"firmware_read_small");
    write_rest(out, &flash.config, one)?;
    for (key, value) in detail::printed(&flash.config) {
        if flash.details.contains(&key) {
            writeln!(out, "{key} = {value}")?;
        }
    }
    Ok(())
}

/// A drive as the file of a profile: every number, in keys.
pub(super) fn profile_file(drive: &str, source: &str, config: &FlashDriveConfig) -> String {
    let mut out = String::new();
    write_profile(&mut out, drive, source, config).expect("writing to a String does not fail");
    out
}

fn write_profile(out: &mut String, drive: &str, source: &str, config: &FlashDriveConfig) -> std::fmt::Result {
    writeln!(out, "drive = {}\nsource = {}", string(drive), string(source))?;
    writeln!(out, "capacity = {}\n", string(config.ftl.capacity.unwrap_or_default().0))?;
    write_layout(out, config, true)?;
    write_rest(out, config, true)?;
    for (key, value) in detail::printed(config) {
        writeln!(out, "{key} = {value}")?;
    }
    Ok(())
}

/// Layout and array times; `read` says whether its key is one of them.
fn write_layout(out: &mut String, config: &FlashDriveConfig, read: bool) -> std::fmt::Result {
    let FlashDriveConfig { geometry: g, timing: t, .. } = config;
    writeln!(out, "channels = {}\nways = {}\nplanes = {}\nblocks = {}", g.channels, g.ways, g.planes, g.blocks)?;
    writeln!(out, "pages = {}\npage_size = {}\nspare_size = {}", g.pages, g.page_bytes, g.spare_bytes)?;
    writeln!(out, "cell = {}\npage_map = {}", string(g.cell), string(g.page_map))?;
    writeln!(out, "gate = {}\nregisters = {}", string(t.gate), string(t.registers))?;
    writeln!(out, "channel_arbitration = {}\ndie_order = {}", string(t.arbitration), string(t.order))?;
    writeln!(out, "die_age = {}\nchips = {}\njoin_planes = {}", string(t.age), t.chips, t.join_planes)?;
    if read {
        writeln!(out, "read = {}", strings(written(&t.read)))?;
    }
    writeln!(out, "program = {}\nerase = {}", strings(written(&t.program)), string(t.erase))
}

/// Everything else that has a key; `firmware_read` says whether that is one of them.
fn write_rest(out: &mut String, config: &FlashDriveConfig, firmware_read: bool) -> std::fmt::Result {
    let FlashDriveConfig { timing: t, variability: v, host: h, ftl: f, buffer: b, .. } = config;
    for (key, time) in [("program_suspend", t.suspend.program), ("erase_suspend", t.suspend.erase)] {
        if let Some(time) = time {
            writeln!(out, "{key} = {}", string(time))?;
        }
    }
    writeln!(out, "cache_read = {}\nsuspend_limit = {}", t.cache_read, t.suspend.limit)?;
    if firmware_read {
        writeln!(out, "firmware_read = {}", string(h.firmware.read))?;
    }
    writeln!(out, "firmware = {}\nmapping = {}", string(h.firmware.core), string(f.mapping))?;
    writeln!(out, "gc = {}\nvictim = {}\ngc_choices = {}", string(f.gc.mode), string(f.gc.victim), f.gc.choices)?;
    writeln!(out, "gc_start = {}\ngc_hard = {}\nstreams = {}", f.gc.start, f.gc.hard, f.streams)?;
    writeln!(out, "separation = {}\nwear = {}", string(f.separation), string(f.wear.policy))?;
    writeln!(out, "wear_gap = {}\nendurance = {}", f.wear.gap, f.wear.endurance)?;
    writeln!(out, "erase_failures = {}\nfactory_bad = {}", f.wear.failures, f.factory_bad)?;
    writeln!(out, "slc_blocks = {}\nfold = {}\nmap_cache = {}", f.slc.blocks, string(f.slc.fold), string(f.map_cache))?;
    writeln!(out, "log_blocks = {}\nassociation = {}", f.hybrid.log_blocks, string(f.hybrid.association))?;
    writeln!(out, "unmapped_read = {}\nwrite_zeroes = {}", string(f.unmapped_read), string(f.write_zeroes))?;
    writeln!(out, "plane_allocation = {}\npartitions = {}", string(f.plane_allocation), f.partitions)?;
    writeln!(out, "multi_plane = {}\nbuffer = {}\nflush = {}", f.multi_plane, string(b.size), string(b.flush))?;
    writeln!(out, "buffer_high = {}\nbuffer_low = {}", b.high, b.low)?;
    writeln!(out, "buffer_timeout = {}\nbuffer_latency = {}", string(b.timeout), string(b.latency))?;
    if (b.cache, b.dram) != (BufferConfig::NONE.cache, BufferConfig::NONE.dram) {
        writeln!(out, "cache = {}\ncache_window = {}", string(b.cache), string(b.window))?;
        writeln!(out, "cache_pending = {}\ndram_access = {}", string(b.pending), string(b.dram.access))?;
        writeln!(out, "dram_timing = {}", string(b.dram.wire))?;
    }
    writeln!(out, "early_completion = {}\npower_protected = {}\npower_cut = {}", b.early, b.protected, f.spare)?;
    writeln!(out, "chip_spread = {}\npage_spread = {}", v.chip_spread, v.page_spread)?;
    writeln!(out, "initial_cycles = {}\nbad_chips = {}", v.initial_cycles, v.bad_chips)?;
    writeln!(out, "bad_chip_slowdown = {}\nbad_chip_errors = {:?}", v.bad_chip_slowdown, v.bad_chip_errors)?;
    writeln!(out, "wear_slowdown = {}", v.wear_slowdown)?;
    if let Some(h) = v.housekeeping {
        writeln!(out, "housekeeping = {}\nhousekeeping_every = {}", string(h.time), string(h.every))?;
    }
    write_errors(out, v.errors.as_ref())
}

fn write_errors(out: &mut String, errors: Option<&Errors>) -> std::fmt::Result {
    writeln!(out, "errors = {}", errors.is_some())?;
    let Some(e) = errors else { return Ok(()) };
    writeln!(out, "rber = {:?}\nrber_worn = {:?}\nrated_cycles = {}", e.rber, e.rber_worn, e.endurance)?;
    for (key, rate) in [("read_disturb", e.read_disturb), ("retention", e.retention)] {
        if let Some(rate) = rate {
            writeln!(out, "{key} = {rate:?}")?;
        }
    }
    if let Some(retry) = e.retry {
        writeln!(out, "retry = {}", string(retry))?;
    }
    writeln!(out, "retries = {}", e.retries)
}
