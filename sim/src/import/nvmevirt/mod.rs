//! NVMeVirt's `ssd_config.h` (names and meanings as in NVMeVirt 61c90f77), for one of its SSDs.

mod macros;

use super::draft::{Draft, quoted, times};
use super::text::{Given, ImportError, Text};
use macros::Macros;
use weir_flash::Wire;

/// The longest single step that a flash model takes, in nanoseconds.
const STEP_NANOS_MAX: u64 = 10_000_000_000;

/// What has no counterpart, and why.
const LEFT: [(&str, &str); 16] = [
    ("ZONE_SIZE", "zoned drives are not simulated; see docs/guides/zones.md"),
    ("DIES_PER_ZONE", "zoned drives are not simulated; see docs/guides/zones.md"),
    ("ZONE_WB_SIZE", "one buffer serves the whole drive"),
    ("MAX_ZRWA_ZONES", "zoned drives are not simulated; see docs/guides/zones.md"),
    ("MDTS", "the drive's own limit counts"),
    ("NR_NAMESPACES", "one namespace"),
    ("NS_CAPACITY_0", "the layout says how large the drive is"),
    ("NS_CAPACITY_1", "one namespace"),
    ("NS_SSD_TYPE_0", "one namespace of blocks"),
    ("NS_SSD_TYPE_1", "one namespace"),
    ("WRITE_UNIT_SIZE", "pages are programmed whole"),
    ("FLASH_PAGE_SIZE", "a page is what is programmed at once"),
    ("FW_CH_XFER_LATENCY", "is part of channel_timing"),
    ("LBA_BITS", "see block_size"),
    ("LBA_SIZE", "see block_size"),
    ("BLK_SIZE", "BLKS_PER_PLN counts"),
];

/// The SSDs of its header: the profile that each goes on from.
const BASES: [(&str, &str); 3] =
    [("SAMSUNG_970PRO", "nvmevirt-970pro"), ("WD_ZN540", "nvmevirt-zn540"), ("ZNS_PROTOTYPE", "nvmevirt-zn540")];

/// Reads a header for the SSD of that name, or for the only one that it defines something for.
pub(super) fn read(text: &Text, base: Option<&str>) -> Result<Draft, ImportError> {
    let known = || BASES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let profile = match base {
        Some(name) => {
            let found = BASES.iter().find(|(base, _)| *base == name);
            let what =
                || text.fault(0, format_args!("\"{name}\" is no SSD with flash of NVMeVirt; there is {}", known()));
            found.ok_or_else(what)?.1
        }
        None => BASES[0].1,
    };
    let given: Vec<(&str, &str)> = base.map(|name| ("BASE_SSD", name)).into_iter().collect();
    let macros = Macros::read(text, &given)?;
    if base.is_none() && macros.get("BASE_SSD").is_none() && macros.get("NAND_CHANNELS").is_none() {
        let what = format!("BASE_SSD is not defined; name the SSD behind the file: one of {}", known());
        return Err(text.fault(0, what));
    }
    let mut header = Header { text, macros, asked: vec!["BASE_SSD"] };
    let mut draft = Draft::new(profile);
    let row = layout(&mut header, &mut draft)?;
    array(&mut header, &mut draft, row.page)?;
    host(&mut header, &mut draft, &row)?;
    header.leave_rest(&mut draft);
    Ok(draft)
}

struct Header<'t> {
    text: &'t Text,
    macros: Macros<'t>,
    asked: Vec<&'static str>,
}

impl Header<'_> {
    fn optional(&mut self, name: &'static str, least: f64, most: f64) -> Result<Option<f64>, ImportError> {
        self.asked.push(name);
        let Some(value) = self.macros.number(name)? else { return Ok(None) };
        if (least..=most).contains(&value) {
            return Ok(Some(value));
        }
        let line = self.macros.get(name).map_or(0, |given| given.line);
        Err(self.text.fault(line, format_args!("{name} is {value}; {least} to {most} is allowed")))
    }

    fn number(&mut self, name: &'static str, least: u64, most: u64) -> Result<u64, ImportError> {
        let value = self.optional(name, least as f64, most as f64)?;
        let missing = || self.text.fault(0, format_args!("{name} is not defined for this SSD"));
        value.map(|value| value as u64).ok_or_else(missing)
    }

    fn leave_rest(self, draft: &mut Draft) {
        for (name, why) in LEFT {
            match self.macros.get(name) {
                Some(given) if !self.asked.contains(&name) => draft.leave(self.text, name, given, why),
                _ => {}
            }
        }
        let own = |name: &str| LEFT.iter().any(|(left, _)| *left == name) || self.asked.contains(&name);
        let of_flash = ["NAND_", "FW_", "PCIE_", "ONESHOT_", "PLNS_", "LUNS_", "BLKS_", "GLOBAL_", "MAX_CH_", "OP_"];
        let unknown: Vec<(&str, &Given)> = self
            .macros
            .names()
            .filter(|(name, given)| {
                given.line > 0 && of_flash.iter().any(|start| name.starts_with(start)) && !own(name)
            })
            .collect();
        for (name, given) in unknown {
            draft.leave(self.text, name, given, "NVMeVirt 61c90f77 has no such setting");
        }
    }
}

struct Row {
    page: u64,
    dies: u64,
}

fn layout(h: &mut Header<'_>, draft: &mut Draft) -> Result<Row, ImportError> {
    let channels = h.number("NAND_CHANNELS", 1, 4096)?;
    let ways = h.number("LUNS_PER_NAND_CH", 1, 4096)?;
    let planes = h.number("PLNS_PER_LUN", 1, 4096)?;
    let page = h.number("ONESHOT_PAGE_SIZE", 4096, 1 << 30)?;
    let blocks = h.number("BLKS_PER_PLN", 0, u64::from(u32::MAX))?;
    let dies = channels * ways * planes;
    let mut keys = vec![("channels", channels), ("ways", ways), ("planes", planes), ("page_size", page)];
    if blocks > 0 {
        keys.push(("blocks", blocks));
    }
    draft.flash.extend(keys.into_iter().map(|(key, value)| (key, value.to_string())));
    let cell = h.number("CELL_MODE", 0, 4)?;
    let cell = ["slc", "slc", "mlc", "tlc", "qlc"][cell as usize];
    draft.flash.push(("cell", quoted(cell)));
    if let Some(part) = h.optional("OP_AREA_PERCENT", 0.0, 10.0)?.filter(|part| *part > 0.0) {
        draft.flash.push(("over_provisioning", format!("{part:?}")));
    }
    Ok(Row { page, dies })
}

fn array(h: &mut Header<'_>, draft: &mut Draft, page: u64) -> Result<(), ImportError> {
    for (key, names) in [
        ("read", ["NAND_READ_LATENCY_LSB", "NAND_READ_LATENCY_MSB", "NAND_READ_LATENCY_CSB"]),
        ("read_small", ["NAND_4KB_READ_LATENCY_LSB", "NAND_4KB_READ_LATENCY_MSB", "NAND_4KB_READ_LATENCY_CSB"]),
    ] {
        let mut levels = Vec::new();
        for name in names {
            levels.push(h.number(name, 0, STEP_NANOS_MAX)?);
        }
        // A level of 0 is not used.
        levels.retain(|level| *level > 0);
        if levels.is_empty() {
            levels.push(0);
        }
        draft.flash.push((key, times(&levels)));
    }
    let program = h.number("NAND_PROG_LATENCY", 0, STEP_NANOS_MAX)?;
    draft.flash.push(("program", times(&[program])));
    let erase = h.number("NAND_ERASE_LATENCY", 0, STEP_NANOS_MAX)?;
    draft.flash.push(("erase", quoted(format_args!("{erase}ns"))));
    let rate = h.number("NAND_CHANNEL_BANDWIDTH", 1, 1 << 20)?;
    let piece = h.number("MAX_CH_XFER_SIZE", 0, 1 << 30)?;
    // The firmware's share of a transfer of 4 KiB, for each 128 bytes.
    let extra = h.optional("FW_CH_XFER_LATENCY", 0.0, 1e9)?.unwrap_or(0.0) as u64 * 128 / 4096;
    draft.flash.push(("channel_timing", quoted(Wire::mib_units(rate, extra))));
    draft.flash.push(("burst_size", piece.to_string()));
    // A page of a read is what the array senses at once.
    let sensed = h.number("FLASH_PAGE_SIZE", 512, 1 << 30)?;
    draft.flash.push(("sense_size", if sensed < page { sensed } else { 0 }.to_string()));
    Ok(())
}

fn host(h: &mut Header<'_>, draft: &mut Draft, row: &Row) -> Result<(), ImportError> {
    let rate = h.number("PCIE_BANDWIDTH", 1, 1 << 20)?;
    draft.flash.push(("link_timing", quoted(Wire::mib_units(rate, 0))));
    for (key, name) in [
        ("firmware_read", "FW_READ_LATENCY"),
        ("firmware_read_small", "FW_4KB_READ_LATENCY"),
        ("firmware_write", "FW_WBUF_LATENCY0"),
        ("firmware_write_unit", "FW_WBUF_LATENCY1"),
    ] {
        let nanos = h.number(name, 0, STEP_NANOS_MAX)?;
        draft.flash.push((key, quoted(format_args!("{nanos}ns"))));
    }
    // 4 KiB for each partition (conv_ftl.c).
    let partitions = h.optional("SSD_PARTITIONS", 1.0, 1024.0)?.unwrap_or(1.0) as u64;
    draft.flash.push(("partitions", partitions.to_string()));
    draft.flash.push(("firmware_small_size", (4096 * partitions).to_string()));
    let shared = h.number("GLOBAL_WB_SIZE", 0, 1 << 40)?;
    let own = h.optional("ZONE_WB_SIZE", 0.0, 1e12)?.unwrap_or(0.0) as u64;
    let least = row.page.saturating_mul(row.dies.min(2));
    let buffer = if shared > 0 { shared } else { own.max(least) };
    draft.flash.push(("buffer", quoted(buffer / 4096 * 4096)));
    let early = h.number("WRITE_EARLY_COMPLETION", 0, 1)?;
    draft.flash.push(("early_completion", (early == 1).to_string()));
    Ok(())
}
