//! `media` of a `[[device]]`: where bytes live.

use super::read::{Section, quoted, text, word};
use super::target::{Target, pci};
use std::fmt;
use std::path::{Path, PathBuf};

/// Where bytes live.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MediaConfig {
    /// Nowhere: writes vanish.
    Null,
    /// A sparse arena in memory.
    Ram,
    /// A file, by O_DIRECT.
    File(PathBuf),
    /// A block device.
    Block(PathBuf),
    /// Another NVMe drive: a bench target (`nvme-tcp://…`).
    Nvme(String),
}

impl MediaConfig {
    /// The word before the colon.
    pub const fn kind(&self) -> &'static str {
        match self {
            MediaConfig::Null => "null",
            MediaConfig::Ram => "ram",
            MediaConfig::File(_) => "file",
            MediaConfig::Block(_) => "block",
            MediaConfig::Nvme(_) => "nvme",
        }
    }
}

/// As the configuration writes it.
impl fmt::Display for MediaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MediaConfig::Null | MediaConfig::Ram => f.write_str(self.kind()),
            MediaConfig::File(path) | MediaConfig::Block(path) => write!(f, "{}:{}", self.kind(), path.display()),
            MediaConfig::Nvme(target) => write!(f, "nvme:{target}"),
        }
    }
}

/// What `media` and `kind` say together.
pub(super) fn read(section: &Section<'_>, base: &Path) -> MediaConfig {
    let media = section.get("media", |v| Ok(parse(&text(v)?, base)?));
    let kind =
        section.get("kind", |v| word(&[("ram", "ram"), ("file", "file"), ("null", "null"), ("flash", "flash")])(v));
    match (kind, media) {
        (Some("file"), None) => {
            if !section.has("media") {
                section.fault("kind", "a file drive needs its file; write media = \"file:PATH\"");
            }
            MediaConfig::Ram
        }
        (Some("null"), None) => MediaConfig::Null,
        (_, None) => MediaConfig::Ram,
        // Flash is what is inside; its bytes may lie anywhere.
        (Some("flash"), Some(media)) => media,
        (Some(kind), Some(media)) if kind != media.kind() => {
            let what = format!("\"{kind}\" does not fit media = \"{media}\"; leave kind out");
            section.fault("kind", what);
            media
        }
        (_, Some(media)) => media,
    }
}

/// A drive of another process. Sockets are found from the file's folder on, like other paths.
fn remote(target: &str, base: &Path) -> Result<MediaConfig, String> {
    let needs = || {
        "nvme: needs a target like nvme:nvme-tcp://HOST:PORT/NQN?ns=1, nvme:vfio-user:PATH?ns=1 or \
         nvme:pci:0000:01:00.0?ns=1"
            .to_string()
    };
    match target.split_once(':') {
        Some(("nvme-tcp", _)) if target.starts_with("nvme-tcp://") => Ok(MediaConfig::Nvme(target.to_string())),
        Some(("pci", place)) => match pci(place) {
            Ok(_) => Ok(MediaConfig::Nvme(target.to_string())),
            Err(why) => Err(format!("{}: {why}", needs())),
        },
        Some((door @ ("vfio-user" | "vhost-user"), place)) if !place.contains('\0') => {
            let (path, query) = place.split_once('?').map_or((place, None), |(path, query)| (path, Some(query)));
            let query = query.map_or_else(String::new, |q| format!("?{q}"));
            let target = format!("{door}:{}{query}", super::resolve(base, path).display());
            let known = !path.is_empty() && target.parse::<Target>().is_ok();
            if known { Ok(MediaConfig::Nvme(target)) } else { Err(needs()) }
        }
        _ => Err(needs()),
    }
}

/// `ram`, `null`, `file:PATH`, `block:PATH`, `nvme:TARGET`; `pci:ADDRESS` is `nvme:pci:ADDRESS`.
pub(super) fn parse(text: &str, base: &Path) -> Result<MediaConfig, String> {
    let (kind, place) = text.split_once(':').map_or((text, None), |(kind, place)| (kind, Some(place)));
    let path = |place: &str| match place {
        "" => Err(format!("{kind}: needs a path; write {kind}:PATH")),
        place if place.contains('\0') => Err(format!("{} is no path", quoted(place))),
        place => Ok(super::resolve(base, place)),
    };
    match (kind, place) {
        ("ram", None) => Ok(MediaConfig::Ram),
        ("null", None) => Ok(MediaConfig::Null),
        ("file", place) => path(place.unwrap_or_default()).map(MediaConfig::File),
        ("block", place) => path(place.unwrap_or_default()).map(MediaConfig::Block),
        ("pci", Some(_)) => remote(text, base),
        ("nvme", target) => remote(target.unwrap_or_default(), base),
        _ => Err(format!(
            "{} is no medium; there is ram, null, file:PATH, block:PATH, pci:ADDRESS and nvme:TARGET",
            quoted(text)
        )),
    }
}
