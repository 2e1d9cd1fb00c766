//! `zoned = { ... }` of a `[[device]]`: its namespace is made of zones.

use super::read::{Read, Section, flag, integer, size, text};
use super::value::Value;
use std::fmt;
use weir_controller::{ZoneConfig, ZonedConfig, ZonedNamespace, Zrwa};
use weir_flash::{Preset, RegionKeys, ZonedBuffer, ZonedFlash};
use weir_units::Bytes;

/// Zone sizes: what hosts and 32-bit block counts can take.
const ZONE: std::ops::RangeInclusive<u64> = 64 * Bytes::KIB..=Bytes::GIB << 10;
const DEFAULT_ZONE: Bytes = Bytes(64 * Bytes::MIB);
/// Zones of a drive: descriptors are kept for each.
const MOST_ZONES: u64 = 1 << 20;

/// A zoned namespace, as it was configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zoned {
    /// From the beginning of one zone to that of the next.
    pub zone_size: Bytes,
    /// What can be written of a zone.
    pub zone_capacity: Bytes,
    /// Zones open at once; 0: any number.
    pub max_open: u32,
    /// Zones open or closed at once; 0: any number.
    pub max_active: u32,
    /// Size of a zone random write area; `None`: there are none.
    pub zrwa: Option<Bytes>,
    /// What is committed of one together.
    pub zrwa_granularity: Bytes,
    /// Zones that may have one at once.
    pub zrwa_areas: u32,
    /// A power cut takes nothing from completed writes.
    pub protected: bool,
    /// Reads may cross zone boundaries.
    pub read_across: bool,
    /// Bytes of a zone's descriptor extension; 0: there are none.
    pub extension: u16,
    /// The flash whose times it has; `None`: the drive's `latency`.
    pub flash: Option<Preset>,
    /// Dies that a zone is spread over; 0: all.
    pub dies: u32,
}

/// As the configuration writes it.
impl fmt::Display for Zoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Zoned { zone_size, zone_capacity, max_open, max_active, .. } = self;
        write!(f, "{{ zone_size = \"{zone_size}\", zone_capacity = \"{zone_capacity}\", max_open = {max_open}")?;
        write!(f, ", max_active = {max_active}")?;
        if let Some(zrwa) = self.zrwa {
            let Zoned { zrwa_granularity, zrwa_areas, .. } = self;
            write!(f, ", zrwa = \"{zrwa}\", zrwa_granularity = \"{zrwa_granularity}\", zrwa_areas = {zrwa_areas}")?;
        }
        if let Some(flash) = self.flash {
            write!(f, ", flash = \"{flash}\", dies = {}", self.dies)?;
        }
        if self.extension > 0 {
            write!(f, ", descriptor_extension = {}", self.extension)?;
        }
        write!(f, ", power_protected = {}, read_across = {} }}", self.protected, self.read_across)
    }
}

/// Reads the key of a device, and checks that its zones fill it.
pub(super) fn read(device: &Section<'_>, capacity: Option<Bytes>, block_size: u32) -> Option<Zoned> {
    let (line, entries) = device.table("zoned")?;
    let section = device.inner(device.key("zoned"), line, entries);
    let bytes = |range| move |v: &Value| whole(size(range)(v)?, block_size);
    let zone_size = section.or("zone_size", DEFAULT_ZONE, bytes(ZONE));
    let max_active = section.or("max_active", 0, integer(0..=MOST_ZONES)) as u32;
    let max_open = section.or("max_open", 0, integer(0..=MOST_ZONES)) as u32;
    let areas = if max_active == 0 { 16 } else { max_active };
    let zoned = Zoned {
        zone_size,
        zone_capacity: section.or("zone_capacity", zone_size, bytes(4 * Bytes::KIB..=*ZONE.end())),
        max_open,
        max_active,
        zrwa: section.get("zrwa", bytes(4 * Bytes::KIB..=32 * Bytes::MIB)),
        zrwa_granularity: section.or("zrwa_granularity", Bytes(4 * Bytes::KIB), bytes(512..=32 * Bytes::MIB)),
        zrwa_areas: section.or("zrwa_areas", areas.into(), integer(1..=MOST_ZONES)) as u32,
        protected: section.or("power_protected", true, flag),
        read_across: section.or("read_across", false, flag),
        extension: section.or("descriptor_extension", 0, extension),
        flash: section.get("flash", preset),
        dies: section.or("dies", 0, integer(0..=65536)) as u32,
    };
    section.finish();
    let capacity = capacity.unwrap_or(zoned.zone_size);
    if let Err(what) = zoned.namespace(1, capacity.0, block_size) {
        device.fault("zoned", what);
    }
    Some(zoned)
}

fn whole(bytes: Bytes, block_size: u32) -> Read<Bytes> {
    match bytes.0 % u64::from(block_size) {
        0 => Ok(bytes),
        _ => Err(format!("{bytes} is not a multiple of the block size, {block_size} bytes").into()),
    }
}

fn extension(value: &Value) -> Read<u16> {
    let bytes = integer(0..=255 * 64)(value)?;
    match bytes % 64 {
        0 => Ok(bytes as u16),
        _ => Err(format!("{bytes} is no multiple of 64 bytes").into()),
    }
}

fn preset(value: &Value) -> Read<Preset> {
    text(value)?.parse().map_err(|e: weir_flash::UnknownName| e.to_string().into())
}

impl Zoned {
    /// The zones of a namespace of `capacity` bytes, on flash that is large enough for them.
    ///
    /// # Errors
    /// Says what does not go together, and what to change.
    pub fn namespace(&self, nsid: u32, capacity: u64, block_size: u32) -> Result<ZonedNamespace, String> {
        let (zone, block) = (self.zone_size.0, u64::from(block_size));
        if capacity % zone != 0 || capacity == 0 {
            let up = Bytes(capacity.next_multiple_of(zone));
            return Err(format!(
                "the drive's capacity of {} is no multiple of zone_size, {}; make it {up}",
                Bytes(capacity),
                self.zone_size
            ));
        }
        let count = capacity / zone;
        if count > MOST_ZONES {
            return Err(format!("{count} zones; at most {MOST_ZONES} are supported, make zone_size larger"));
        }
        let blocks = |bytes: Bytes| u32::try_from(bytes.0 / block).unwrap_or(u32::MAX);
        let area = |size: Bytes| Zrwa {
            size: blocks(size),
            granularity: blocks(self.zrwa_granularity),
            areas: self.zrwa_areas,
        };
        let zones = ZoneConfig {
            zones: count as u32,
            size: blocks(self.zone_size),
            capacity: blocks(self.zone_capacity),
            max_open: self.max_open,
            max_active: self.max_active,
            zrwa: self.zrwa.map(area),
            read_across: self.read_across,
            extension: (self.extension / 64) as u8,
        };
        zones.validate().map_err(|e| e.to_string())?;
        if zones.zrwa.is_some_and(|a| a.size > u32::from(u16::MAX)) {
            return Err(format!("zrwa has more than 65535 blocks of {block_size} bytes; make it smaller"));
        }
        let flash = self.flash.map(|preset| self.flash_of(preset, zones, block_size.trailing_zeros()));
        if let Some(flash) = &flash {
            ZonedFlash::new(flash).map_err(|e| e.to_string())?;
        }
        Ok(ZonedNamespace { nsid, zones, flash, volatile: !self.protected })
    }

    /// What the state of such a namespace depends on.
    pub fn keys(ns: &ZonedNamespace, block_size: u32) -> RegionKeys {
        let ZoneConfig { zones, size, capacity, extension, .. } = ns.zones;
        let bytes = |blocks: u32| u64::from(blocks) * u64::from(block_size);
        let mut keys = [0; weir_flash::REGION_KEYS.len()];
        keys[1] = block_size.into();
        keys[2] = u64::from(zones) * bytes(size);
        (keys[3], keys[4], keys[5]) = (bytes(size), bytes(capacity), u64::from(extension) * 64);
        if let Some(ZonedConfig { geometry: g, dies, .. }) = &ns.flash {
            let flash = [*dies, g.channels, g.ways, g.planes, g.blocks, g.pages, g.page_bytes];
            keys[6..13].copy_from_slice(&flash.map(u64::from));
        }
        keys
    }

    /// The preset's flash with as many blocks as the zones need.
    fn flash_of(&self, preset: Preset, zones: ZoneConfig, block_shift: u32) -> ZonedConfig {
        let parts = preset.parts(false);
        let mut flash = ZonedConfig::of(&parts, zones, block_shift);
        if preset == Preset::NvmevirtZn540 {
            // Ten one-shot pages a zone.
            flash.buffer = ZonedBuffer::PerZone(parts.buffer);
        }
        flash.dies = self.dies;
        let geometry = &mut flash.geometry;
        let all = geometry.channels * geometry.ways;
        let dies = if self.dies == 0 { all } else { self.dies.min(all) };
        let lane = u64::from(geometry.pages) * u64::from(geometry.page_bytes);
        let each = self.zone_capacity.0.div_ceil(lane * u64::from(dies * geometry.planes));
        let rows = u64::from(zones.zones).div_ceil(u64::from((all / dies).max(1)));
        geometry.blocks = u32::try_from(each * rows).unwrap_or(u32::MAX);
        flash
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use std::path::Path;

    fn parse(device: &str) -> Result<Config, String> {
        let text = format!("[[device]]\nname = \"z\"\n{device}\n");
        Config::parse(&text, "weir.toml", Path::new("/etc/weir")).map_err(|e| e.to_string())
    }

    #[test]
    fn a_zoned_drive_is_read_and_printed() {
        let all = "block_size = 4096\ncapacity = \"1GiB\"\nzoned = { zone_size = \"32MiB\", zone_capacity = \"28MiB\", max_open = 4, \
                   max_active = 6, zrwa = \"64KiB\", zrwa_granularity = \"16KiB\", zrwa_areas = 2, read_across = true, descriptor_extension = 128, \
                   flash = \"nvmevirt-zn540\", dies = 8 }";
        for (device, zones, flash) in [(all, 32, true), ("zoned = {}", 16, false)] {
            let config = parse(device).unwrap();
            let zoned = config.devices[0].zoned.unwrap();
            let capacity = zoned.zone_size.0 * zones;
            let block_size = config.devices[0].block_size;
            let namespace = zoned.namespace(1, capacity, block_size).unwrap();
            assert_eq!((u64::from(namespace.zones.zones), namespace.flash.is_some()), (zones, flash));
            assert_eq!(namespace.zones.blocks() * u64::from(block_size), capacity);
            let again = Config::parse(&config.to_toml(), "again", Path::new("/etc/weir")).unwrap();
            assert_eq!(again, config);
        }
        let zoned = parse(all).unwrap().devices[0].zoned.unwrap();
        let flash = zoned.namespace(1, 1 << 30, 4096).unwrap().flash.unwrap();
        assert_eq!(
            (flash.dies, flash.geometry.blocks),
            (8, 8),
            "32 zones in 4 groups of 8 dies, a block of each a zone"
        );
    }

    #[test]
    fn every_preset_takes_zones() {
        for preset in Preset::ALL {
            for dies in [0, 1] {
                let text = format!(
                    "capacity = \"4GiB\"\nzoned = {{ zone_size = \"256MiB\", flash = \"{preset}\", dies = {dies} }}"
                );
                assert!(parse(&text).is_ok(), "{preset}: {:?}", parse(&text));
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let cases = [
            ("zoned = 1", "device.z.zoned: a number where a table is wanted"),
            ("zoned = { zonesize = \"1MiB\" }", "device.z.zoned.zonesize: unknown key; did you mean zone_size?"),
            ("zoned = { zone_size = \"1KiB\" }", "device.z.zoned.zone_size"),
            ("zoned = { zone_size = \"100MiB\" }", "no multiple of zone_size, 100MiB; make it 1100MiB"),
            ("zoned = { zone_capacity = \"128MiB\" }", "more than its size"),
            ("zoned = { max_open = 4, max_active = 2 }", "raise max_active"),
            ("zoned = { zrwa = \"8KiB\", zrwa_granularity = \"12KiB\" }", "multiple of its granularity"),
            (
                "block_size = 4096\nzoned = { zrwa_granularity = \"512\", zrwa = \"64KiB\" }",
                "not a multiple of the block size",
            ),
            ("zoned = { zrwa = \"32MiB\", zrwa_granularity = \"32MiB\" }", "more than 65535 blocks"),
            ("zoned = { descriptor_extension = 100 }", "100 is no multiple of 64 bytes"),
            ("zoned = { flash = \"zn540\" }", "is no flash preset; known: femu-basic"),
            ("zoned = { flash = \"nvmevirt-zn540\", dies = 7 }", "7 dies a zone"),
            ("media = \"block:/dev/x\"\nzoned = {}", "media is ram, null or file:PATH"),
            ("capacity = \"1GiB\"\nmax_capacity = \"2GiB\"\nzoned = {}", "a zoned drive keeps its size"),
            ("zoned = {}\n[[export]]\ndoor = \"vhost-user:x.sock\"", "reached by nvme-tcp only"),
        ];
        for (device, says) in cases {
            let error = parse(device).unwrap_err();
            assert!(error.contains(says) && error.lines().count() == 1, "{device}\n{error}\nwanted: {says}");
        }
    }
}
