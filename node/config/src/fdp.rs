//! `[device.fdp]`: the placement handles of a flash drive.

use super::read::{Read, Section, integer, one_or_list, size, text};
use super::value::Value;
use std::fmt;
use weir_flash::{ConfigError, FdpConfig, Geometry, Isolation, UnknownName};
use weir_units::Bytes;

/// Keys, and what the flash's own messages call them.
const KEYS: [(&str, &str); 4] = [
    ("reclaim_groups", "ftl.fdp.groups"),
    ("handles", "ftl.fdp.handles"),
    ("isolation", "ftl.fdp.persistent"),
    ("reclaim_unit", "ftl.fdp.blocks"),
];

/// Reads the table of a device whose flash is laid out like that.
pub(super) fn read(device: &Section<'_>, geometry: &Geometry) -> Option<FdpConfig> {
    let (line, entries) = device.table("fdp")?;
    let section = device.inner(device.key("fdp"), line, entries);
    let default = FdpConfig::DEFAULT;
    let groups = section.or("reclaim_groups", default.groups.into(), integer(1..=FdpConfig::MAX_STREAMS.into())) as u16;
    let handles = section.or("handles", default.handles.into(), integer(1..=FdpConfig::MAX_HANDLES.into())) as u8;
    let isolation = section.get("isolation", one_or_list(isolation)).unwrap_or_else(|| vec![Isolation::Initial]);
    let mut fdp = FdpConfig { groups, handles, ..default };
    match isolation[..] {
        [all] => fdp = fdp.with_isolation(all),
        _ if isolation.len() == usize::from(handles) => {
            let kept = isolation.iter().enumerate().filter(|(_, i)| **i == Isolation::Persistent);
            fdp.persistent = kept.fold(0, |bits, (h, _)| bits | 1 << h);
        }
        _ => section.fault(
            "isolation",
            format!("has {} words for {handles} handles; one for all, or one each", isolation.len()),
        ),
    }
    if let Some(unit) = section.get("reclaim_unit", size(1..=1 << 56)) {
        let superblock = superblock(&fdp, geometry);
        if superblock > 0 && unit.0 % superblock == 0 {
            fdp.blocks = u32::try_from(unit.0 / superblock).unwrap_or(u32::MAX);
        } else {
            let what =
                format!("{unit} is no multiple of {}, a block of each plane of a reclaim group", Bytes(superblock));
            section.fault("reclaim_unit", what);
        }
    }
    section.finish();
    Some(fdp)
}

/// Bytes of one block of each plane of a group.
fn superblock(fdp: &FdpConfig, geometry: &Geometry) -> u64 {
    let Geometry { channels, ways, planes, pages, page_bytes, .. } = *geometry;
    let all = [ways, planes, pages, page_bytes].iter().fold(u64::from(channels), |n, m| n.saturating_mul((*m).into()));
    all / u64::from(fdp.groups.max(1))
}

fn isolation(value: &Value) -> Read<Isolation> {
    text(value)?.parse().map_err(|e: UnknownName| e.to_string().into())
}

/// Notes a fault that the flash found in one of our keys, under our name for it.
pub(super) fn refuse(device: &Section<'_>, error: &ConfigError) -> bool {
    let (what, Some((line, entries))) = (error.to_string(), device.table("fdp")) else { return false };
    let section = device.inner(device.key("fdp"), line, entries);
    let Some((key, theirs)) = KEYS.iter().find(|(_, theirs)| what.starts_with(theirs)) else { return false };
    let what = KEYS.iter().fold(what[theirs.len()..].trim_start().to_string(), |w, (key, t)| w.replace(t, key));
    match section.has(key) {
        true => section.fault(key, what),
        false => device.fault("fdp", format!("{key} {what}")),
    }
    true
}

/// As the configuration writes it, below its heading.
pub(super) struct Printed<'a>(pub &'a FdpConfig, pub &'a Geometry);

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Printed(fdp, geometry) = self;
        let words: Vec<String> = (0..fdp.handles).map(|h| format!("\"{}\"", fdp.isolation(h))).collect();
        let words =
            if words.iter().all(|w| *w == words[0]) { words[0].clone() } else { format!("[{}]", words.join(", ")) };
        writeln!(f, "reclaim_groups = {}\nhandles = {}\nisolation = {words}", fdp.groups, fdp.handles)?;
        let unit = superblock(fdp, geometry).saturating_mul(fdp.blocks.into());
        writeln!(f, "reclaim_unit = \"{}\"", Bytes(unit))
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use std::path::Path;
    use weir_flash::{FdpConfig, Isolation};

    fn parse(text: &str) -> Result<Config, String> {
        let text = format!("[[device]]\nkind = \"flash\"\n{text}\n");
        Config::parse(&text, "weir.toml", Path::new("/")).map_err(|e| e.to_string())
    }

    #[test]
    fn handles_are_read_and_printed() {
        for (text, wanted) in [
            ("[device.fdp]", FdpConfig::DEFAULT),
            // 64 dies of one plane with blocks of 1 MiB.
            (
                "[device.fdp]\nreclaim_groups = 4\nhandles = 3\nreclaim_unit = \"32MiB\"\nisolation = \"persistent\"",
                FdpConfig { groups: 4, handles: 3, persistent: 0b111, blocks: 2 },
            ),
            (
                "[device.fdp]\nhandles = 2\nisolation = [\"initial\", \"persistent\"]",
                FdpConfig { groups: 1, handles: 2, persistent: 0b10, blocks: 1 },
            ),
            ("capacity = \"1GiB\"\n[device.fdp]\nhandles = 32", FdpConfig { handles: 32, ..FdpConfig::DEFAULT }),
        ] {
            let config = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            let flash = config.devices[0].flash.as_ref().expect("flash");
            assert_eq!(flash.config.ftl.fdp, Some(wanted), "{text}");
            let printed = config.to_toml();
            let again =
                Config::parse(&printed, "again", Path::new("/")).unwrap_or_else(|e| panic!("{text}: {e}\n{printed}"));
            assert_eq!(again, config, "{text}");
        }
        assert_eq!(parse("").unwrap().devices[0].flash.as_ref().unwrap().config.ftl.fdp, None);
        assert_eq!(FdpConfig::DEFAULT.isolation(0), Isolation::Initial);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (text, says) in [
            ("[device.fdp]\nhandels = 2", "4: device.ssd0.fdp.handels: unknown key; did you mean handles?"),
            ("[device.fdp]\nhandles = 33", "4: device.ssd0.fdp.handles: 33 is out of range"),
            ("[device.fdp]\nreclaim_groups = 3", "4: device.ssd0.fdp.reclaim_groups: is 3; the drive's 64 dies"),
            ("[device.fdp]\nreclaim_groups = 64", "4: device.ssd0.fdp.reclaim_groups: and handles are 64 and 8"),
            (
                "[device.fdp]\nreclaim_unit = \"65MiB\"",
                "4: device.ssd0.fdp.reclaim_unit: 65MiB is no multiple of 64MiB",
            ),
            ("[device.fdp]\nreclaim_unit = \"64GiB\"", "4: device.ssd0.fdp.reclaim_unit: is 1024; from 1 to"),
            ("[device.fdp]\nisolation = \"none\"", "4: device.ssd0.fdp.isolation: \"none\" is no isolation"),
            (
                "[device.fdp]\nisolation = [\"initial\", \"persistent\"]",
                "4: device.ssd0.fdp.isolation: has 2 words for 8 handles",
            ),
            ("streams = 2\n[device.fdp]", "3: device.ssd0.streams: is given; placement handles say already"),
            ("mapping = \"hybrid\"\n[device.fdp]", "3: device.ssd0.mapping: is \"hybrid\"; placement handles need"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.starts_with("weir.toml:") && error.contains(says), "{text}: {error}");
        }
        let ram =
            Config::parse("[[device]]\n[device.fdp]\nhandles = 2\n", "weir.toml", Path::new("/")).expect_err("ram");
        assert!(ram.to_string().contains("device.ssd0.fdp: only a flash drive has placement handles"), "{ram}");
    }

    #[test]
    fn a_tenant_names_its_handle() {
        let config = parse("[device.fdp]\n[[tenant]]\nname = \"a\"\nplacement = 3\nhosts = \"*\"").unwrap();
        assert_eq!(config.tenants[0].placement, Some(3));
        assert_eq!(Config::parse(&config.to_toml(), "again", Path::new("/")).unwrap(), config);
        let error = parse("[[tenant]]\nname = \"a\"\nplacement = 32\n").unwrap_err();
        assert!(error.contains("placement: 32 is out of range"), "{error}");
    }
}
