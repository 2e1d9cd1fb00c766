//! Profiles: flash drives by name. A drive's profile is a file of `[device.flash]` keys (`profiles/*.toml`), each with its
//! source; it says everything about the drive, and a capacity.

use super::device::COMMANDS;
use super::document::Document;
use super::error::ConfigError;
use super::flash;
use super::print::profile_file;
use super::read::{Section, integer, text};
use super::types::DeviceConfig;
use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use weir_flash::{FlashDriveConfig, GcMode, Mapping, Preset};
use weir_units::{Bytes, Nanos};

/// Where the numbers of a flash drive come from that no key gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// A published model.
    Model(Preset),
    /// A drive that one can or could buy: one of [`Profile::DRIVES`].
    Drive(&'static str),
    /// A file of one's own.
    File(PathBuf),
}

/// How many commands a drive works on at once (`slots`), where its configuration does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Where one tenant has it: no fewer than it takes to keep the drive busy.
    pub alone: u16,
    /// Where several tenants share it: fewer than a busy tenant has in flight, so that its commands wait where they are arbitrated.
    pub shared: u16,
}

impl Slots {
    /// Of a drive of which nothing is known.
    pub const DEFAULT: Slots = Slots { alone: 64, shared: 64 };

    /// What a profile's file says.
    pub(super) fn read(root: &Section<'_>) -> Slots {
        let number = |key| root.get(key, integer(COMMANDS)).map(|n| n as u16);
        let alone = number("slots").unwrap_or(Slots::DEFAULT.alone);
        let shared = number("shared_slots").unwrap_or(alone);
        if shared > alone {
            root.fault("shared_slots", format_args!("{shared} is more than the drive has alone, slots = {alone}"));
        }
        Slots { alone, shared }
    }
}

/// A profile in a line.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// Which.
    pub profile: Profile,
    /// The drive or the model.
    pub drive: String,
    /// Where its numbers are from.
    pub source: String,
    /// Its own capacity.
    pub capacity: Bytes,
}

/// The drives' files.
const FILES: [(&str, &str); 7] = [
    ("p3700", include_str!("../../../profiles/p3700.toml")),
    ("p3700-800g", include_str!("../../../profiles/p3700-800g.toml")),
    ("p3600", include_str!("../../../profiles/p3600.toml")),
    ("pm963", include_str!("../../../profiles/pm963.toml")),
    ("960pro", include_str!("../../../profiles/960pro.toml")),
    ("optane-p4800x", include_str!("../../../profiles/optane-p4800x.toml")),
    ("oc-westlake", include_str!("../../../profiles/oc-westlake.toml")),
];

impl Profile {
    /// The drives that have a profile.
    pub const DRIVES: [&'static str; 7] = {
        let mut names = [""; 7];
        let mut i = 0;
        while i < FILES.len() {
            names[i] = FILES[i].0;
            i += 1;
        }
        names
    };

    /// The profile of that name.
    pub fn named(name: &str) -> Option<Profile> {
        let drive = Profile::DRIVES.into_iter().find(|drive| *drive == name).map(Profile::Drive);
        drive.or_else(|| name.parse().ok().map(Profile::Model))
    }

    /// A name, or the path of a file of one's own, relative to `base`: with a slash, or an end in `.toml`.
    ///
    /// # Errors
    /// There is none of that name: what there is.
    pub(super) fn parse(text: &str, base: &Path) -> Result<Profile, String> {
        if Profile::is_path(text) {
            return Ok(Profile::File(super::resolve(base, text)));
        }
        Profile::named(text).ok_or_else(|| {
            format!(
                "{} is no profile; there is {}, or a file like ./my.toml",
                super::read::quoted(text),
                Profile::known()
            )
        })
    }

    /// Whether that can only be a file of one's own.
    pub(super) fn is_path(text: &str) -> bool {
        text.contains('/') || text.ends_with(".toml")
    }

    /// The names of all that are built in: drives, then models.
    pub fn all() -> impl Iterator<Item = Profile> {
        Profile::DRIVES.into_iter().map(Profile::Drive).chain(Preset::ALL.iter().copied().map(Profile::Model))
    }

    /// The same as text.
    pub(super) fn known() -> String {
        Profile::all().map(|profile| profile.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// What it is, and where its numbers are from.
    ///
    /// # Errors
    /// As [`Profile::config`].
    pub fn about(&self) -> Result<About, ConfigError> {
        let config = self.config(false)?;
        let (drive, source) = match self {
            Profile::Model(preset) => (preset.title().to_string(), preset.source().to_string()),
            _ => {
                let text = |root: &Section<'_>, key| root.get(key, text).unwrap_or_default();
                self.document()?.read(|root| (text(root, "drive"), text(root, "source")))?
            }
        };
        Ok(About { profile: self.clone(), drive, source, capacity: config.ftl.capacity.unwrap_or_default() })
    }

    /// It as the file of a profile: a drive's own, or one with every number of a model; `quirks` counts for models.
    ///
    /// # Errors
    /// As [`Profile::config`].
    pub fn file(&self, quirks: bool) -> Result<Cow<'static, str>, ConfigError> {
        if let Some(text) = self.text() {
            return Ok(Cow::Borrowed(text));
        }
        let About { drive, source, .. } = self.about()?;
        Ok(Cow::Owned(profile_file(&drive, &source, &self.config(quirks)?)))
    }

    /// The commands that it works on at once. A model leaves that open, and so does a file that cannot be read.
    pub fn slots(&self) -> Slots {
        match self {
            Profile::Model(_) => Slots::DEFAULT,
            _ => self.document().and_then(|document| document.read(Slots::read)).unwrap_or(Slots::DEFAULT),
        }
    }

    /// The file behind it; a model has none.
    pub fn text(&self) -> Option<&'static str> {
        match self {
            Profile::Drive(name) => FILES.iter().find(|(n, _)| n == name).map(|(_, text)| *text),
            _ => None,
        }
    }

    /// Its numbers; `quirks` counts for models, see [`Preset::parts`].
    ///
    /// # Errors
    /// The file cannot be read, or says what it should not: file, line and key.
    pub fn config(&self, quirks: bool) -> Result<FlashDriveConfig, ConfigError> {
        match self {
            Profile::Model(preset) => Ok(FlashDriveConfig::preset(*preset, quirks)),
            _ => self.document()?.read(flash::profile),
        }
    }

    fn document(&self) -> Result<Document, ConfigError> {
        match self {
            Profile::File(path) => Document::load(path),
            _ => Document::parse(self.text().unwrap_or_default(), &format!("profiles/{self}.toml"), Path::new("")),
        }
    }

    /// Whether a smaller capacity makes its blocks smaller, rather than fewer.
    pub(super) fn scales(&self) -> bool {
        !matches!(self, Profile::Model(_))
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Profile::Model(preset) => f.write_str(preset.name()),
            Profile::Drive(name) => f.write_str(name),
            Profile::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Blocks that a plane has at least where a drive is made smaller: over-provisioning and victims are counted in them.
const BLOCKS: u32 = 256;

/// Blocks of a plane that hold no data in the steady state: those kept free, the one that preemptive collection is at, and
/// half of those that are being written.
fn reserve(config: &FlashDriveConfig) -> f64 {
    let under_way = f64::from(u8::from(config.ftl.gc.mode == GcMode::Preemptive));
    f64::from(config.ftl.gc.start) + under_way + f64::from(config.ftl.streams + 1) / 2.0
}

/// Bytes of so many blocks a plane that can hold data.
fn usable(config: &FlashDriveConfig, blocks: u32) -> f64 {
    (f64::from(blocks) - reserve(config)).max(1.0) * row(config) as f64 * f64::from(config.geometry.pages)
}

/// The part of them that does.
fn share(config: &FlashDriveConfig) -> f64 {
    config.ftl.capacity.unwrap_or_default().0 as f64 / usable(config, config.geometry.blocks)
}

/// Bytes of a page of every plane.
fn row(config: &FlashDriveConfig) -> u64 {
    let g = &config.geometry;
    u64::from(g.channels) * u64::from(g.ways) * u64::from(g.planes) * u64::from(g.page_bytes)
}

/// The same drive with so many blocks of so many pages a plane.
///
/// Dies, channels, page size and times stay, so what a request waits for stays. Write amplification depends on which part of
/// the blocks that can hold data does (Desnoyers, "Analytic Models of SSD Write Performance", 2014; a block's size hardly
/// matters): that is kept, and with it the capacity follows. An erase takes so much less as a block is smaller, so that
/// erasing costs the same for each page.
pub fn resized(config: &FlashDriveConfig, blocks: u32, pages: u32) -> FlashDriveConfig {
    let mut small = *config;
    small.geometry.blocks = blocks;
    small.geometry.pages = pages;
    let erase = u128::from(config.timing.erase.0) * u128::from(pages) / u128::from(config.geometry.pages.max(1));
    small.timing.erase = Nanos(erase as u64);
    let offered = share(config) * usable(&small, blocks);
    small.ftl.capacity = Some(Bytes(offered as u64 / 4096 * 4096));
    small
}

/// Blocks of a plane, and pages of a block, that offer a capacity less than the drive's own: of the sizes that leave a plane
/// enough blocks the one that rounds them up least, because the few blocks to spare decide the write amplification.
fn fitted(config: &FlashDriveConfig, capacity: Bytes) -> (u32, u32) {
    let g = &config.geometry;
    let levels = g.cell.levels() as u32;
    // Pages of a plane that can hold data.
    let wanted = capacity.0 as f64 / share(config) / row(config) as f64;
    let most = (wanted / f64::from(BLOCKS)) as u32 / levels * levels;
    let most = most.clamp((2 * levels).min(g.pages), g.pages);
    let least = (most / 2).next_multiple_of(levels).clamp(levels.min(most), most);
    let excess = |pages: u32| {
        let blocks = wanted / f64::from(pages) + reserve(config);
        (blocks as u32 + 1, (f64::from(blocks as u32) + 1.0) / blocks)
    };
    let sizes = (least..=most).step_by(levels as usize);
    let best = sizes.min_by(|a, b| excess(*a).1.total_cmp(&excess(*b).1)).unwrap_or(most);
    (excess(best).0.min(g.blocks.max(4 * BLOCKS)), best)
}

impl DeviceConfig {
    /// The same drive, of so many bytes at the most: a larger flash drive's dies, channels, times and write amplification stay, as in
    /// [`resized`]. One that cannot be made smaller is left as it is.
    #[must_use]
    pub fn at_most(&self, capacity: Bytes) -> DeviceConfig {
        let mut small = self.clone();
        let Some(flash) = small.flash.as_mut() else { return small };
        let own = flash.config.ftl.capacity;
        if self.zoned.is_some() || self.open_channel.is_some() || own.is_none_or(|own| own.0 <= capacity.0) {
            return small;
        }
        shrink(&mut flash.config, capacity);
        if flash.config.validate().is_err() {
            return self.clone();
        }
        small.capacity = flash.config.ftl.capacity;
        small
    }
}

/// The same drive with another capacity.
pub(super) fn shrink(config: &mut FlashDriveConfig, capacity: Bytes) {
    let own = config.ftl.capacity.unwrap_or_default();
    let g = config.geometry;
    if config.ftl.mapping == Mapping::InPlace || capacity.0 >= own.0 {
        let blocks = u128::from(g.blocks) * u128::from(capacity.0);
        config.geometry.blocks = u32::try_from(blocks.div_ceil(u128::from(own.0.max(1)))).unwrap_or(u32::MAX);
    } else {
        let (blocks, pages) = fitted(config, capacity);
        *config = resized(config, blocks, pages);
    }
    config.ftl.capacity = Some(capacity);
}
