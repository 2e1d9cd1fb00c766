//! Profiles: flash drives by name. A drive's profile is a file of `[device.flash]` keys (`profiles/*.toml`), each with its
//! source; it says everything about the drive, and a capacity.

pub use super::flash::{About, resized};

use super::read::quoted;
use std::fmt;
use std::path::{Path, PathBuf};
use weir_flash::Preset;

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
    /// The drive of `kind = "flash"` where no profile is named.
    pub(super) const DEFAULT: Profile = Profile::Model(Preset::FemuBbssd);

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
            format!("{} is no profile; there is {}, or a file like ./my.toml", quoted(text), Profile::known())
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

    /// The file behind it; a model has none.
    pub fn text(&self) -> Option<&'static str> {
        match self {
            Profile::Drive(name) => FILES.iter().find(|(n, _)| n == name).map(|(_, text)| *text),
            _ => None,
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
