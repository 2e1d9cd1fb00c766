//! `open_channel = { ... }` of a flash drive: its namespace is the flash itself, by physical addresses.

use super::device::DeviceConfig;
use super::flash::FlashConfig;
use super::media::MediaConfig;
use super::read::{Section, flag, integer};
use std::fmt;
use weir_flash::{OpenChannel, OpenChannelConfig};

/// Chunks of a drive: the log has an entry for each.
const MOST_CHUNKS: u64 = 1 << 22;

/// A namespace of physical addresses, as it was configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenChannelKeys {
    /// Chunks open at once (MAXOC); 0: any number.
    pub max_open: u32,
    /// Chunks of a die open at once (MAXOCPU); 0: any number.
    pub max_open_per_die: u32,
    /// Blocks to write behind one before it can be read (MW_CUNITS); `None`: as the pairing of its pages asks for.
    pub mw_cunits: Option<u32>,
    /// A free chunk can be reset.
    pub multiple_reset: bool,
    /// An open chunk can be reset.
    pub early_reset: bool,
}

/// As the configuration writes it.
impl fmt::Display for OpenChannelKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ max_open = {}, max_open_per_die = {}", self.max_open, self.max_open_per_die)?;
        if let Some(mw_cunits) = self.mw_cunits {
            write!(f, ", mw_cunits = {mw_cunits}")?;
        }
        write!(f, ", multiple_reset = {}, early_reset = {} }}", self.multiple_reset, self.early_reset)
    }
}

impl OpenChannelKeys {
    /// The drive on that flash.
    pub fn on(&self, flash: &FlashConfig) -> OpenChannelConfig {
        let weir_flash::FlashDriveConfig { geometry, timing, variability, host, ftl, seed, .. } = flash.config;
        OpenChannelConfig {
            geometry,
            timing,
            host,
            variability,
            mw_cunits: self.mw_cunits,
            max_open: self.max_open,
            max_open_unit: self.max_open_per_die,
            multiple_reset: self.multiple_reset,
            early_reset: self.early_reset,
            endurance: ftl.wear.endurance,
            factory_bad: ftl.factory_bad,
            seed,
        }
    }
}

/// Reads the key of a device, and checks that the rest goes with it.
pub(super) fn read(section: &Section<'_>, device: &DeviceConfig) -> Option<OpenChannelKeys> {
    let (line, entries) = section.table("open_channel")?;
    let table = section.inner(section.key("open_channel"), line, entries);
    let count = |key| table.or(key, 0, integer(0..=u64::from(u32::MAX))) as u32;
    let keys = OpenChannelKeys {
        max_open: count("max_open"),
        max_open_per_die: count("max_open_per_die"),
        mw_cunits: table.get("mw_cunits", integer(0..=u64::from(u32::MAX))).map(|n| n as u32),
        multiple_reset: table.or("multiple_reset", false, flag),
        early_reset: table.or("early_reset", true, flag),
    };
    table.finish();
    let wrong = |what: &str| section.fault("open_channel", what);
    let Some(flash) = &device.flash else {
        wrong("only flash has physical addresses; write kind = \"flash\" as well");
        return None;
    };
    if device.block_size != 4096 {
        wrong("its logical blocks have 4096 bytes; write block_size = 4096");
    }
    if matches!(device.media, MediaConfig::Block(_) | MediaConfig::Nvme(_)) {
        wrong("the state of chunks is kept beside a file or not at all: media is ram, null or file:PATH");
    }
    if device.zoned.is_some() {
        wrong("this drive is zoned; keep one of the two");
    }
    if section.sink().is_clean() {
        match OpenChannel::new(&keys.on(flash)) {
            Err(e) => wrong(&e.to_string()),
            Ok(drive) if u64::from(drive.format().chunks()) > MOST_CHUNKS => {
                let what = "chunks; at most 4194304 are supported, lower blocks or raise pages";
                wrong(&format!("{} {what}", drive.format().chunks()));
            }
            Ok(_) => {}
        }
    }
    Some(keys)
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use std::path::Path;

    fn parse(device: &str) -> Result<Config, String> {
        let text = format!("[[device]]\nname = \"w\"\n{device}\n");
        Config::parse(&text, "weir.toml", Path::new("/etc/weir")).map_err(|e| e.to_string())
    }

    #[test]
    fn a_white_box_is_read_and_printed() {
        let all = "kind = \"flash\"\nprofile = \"femu-oc\"\nblock_size = 4096\nopen_channel = { max_open = 32, max_open_per_die = 4, \
                   mw_cunits = 24, multiple_reset = true, early_reset = false }\n[device.flash]\nblocks = 8\nendurance = 3000";
        let short = "kind = \"flash\"\nprofile = \"femu-oc\"\nblock_size = 4096\n[device.open_channel]\n";
        for (text, mw_cunits) in [(all, 24), (short, 64)] {
            let config = parse(text).unwrap();
            let device = &config.devices[0];
            let drive = device.open_channel.unwrap().on(device.flash.as_ref().unwrap());
            let (chunks, _) = drive.chunks().unwrap();
            assert_eq!((chunks.groups, chunks.ws_min, chunks.mw_cunits), (16, 4, mw_cunits));
            let again = Config::parse(&config.to_toml(), "again", Path::new("/etc/weir")).unwrap();
            assert_eq!(again, config);
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let flash = "kind = \"flash\"\nblock_size = 4096\n";
        let cases = [
            ("open_channel = {}".to_string(), "only flash has physical addresses"),
            ("kind = \"flash\"\nopen_channel = {}".into(), "write block_size = 4096"),
            (format!("{flash}open_channel = true"), "true or false where a table is wanted"),
            (format!("{flash}open_channel = {{ maxoc = 1 }}"), "unknown key"),
            (format!("{flash}media = \"block:/dev/x\"\nopen_channel = {{}}"), "media is ram, null or file:PATH"),
            (format!("{flash}open_channel = {{ mw_cunits = 100000 }}"), "must be less than a chunk"),
            (format!("{flash}planes = 65\nopen_channel = {{}}"), "lower geometry.planes"),
            (
                format!("{flash}open_channel = {{}}\n[[export]]\ndoor = \"vhost-user:x.sock\""),
                "is reached by nvme-tcp only",
            ),
        ];
        for (device, says) in cases {
            let error = parse(&device).unwrap_err();
            assert!(error.contains(says), "{device}\n{error}\nwanted: {says}");
        }
    }
}
