//! How a namespace is divided into zones.

use core::fmt;

/// Zones of one size, all of the same capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneConfig {
    /// How many.
    pub zones: u32,
    /// From the beginning of one to the beginning of the next, in blocks.
    pub size: u32,
    /// What can be written of it, in blocks; at most `size`.
    pub capacity: u32,
    /// Zones that may be open at once; 0: any number.
    pub max_open: u32,
    /// Zones that may be open or closed at once; 0: any number.
    pub max_active: u32,
    /// Zone random write areas; `None`: there are none.
    pub zrwa: Option<Zrwa>,
    /// Reads may cross from one zone into the next.
    pub read_across: bool,
    /// Size of the zones' descriptor extensions, in 64 bytes; 0: there are none.
    pub extension: u8,
}

/// Zone random write areas: the blocks behind the write pointer that may be written in any order, and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zrwa {
    /// Size of one, in blocks; a multiple of the granularity.
    pub size: u32,
    /// Blocks that are committed together.
    pub granularity: u32,
    /// How many zones may have one at once.
    pub areas: u32,
}

/// Why zones are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneConfigError {
    /// No zones, or zones without blocks.
    Empty,
    /// More can be written than a zone is long.
    Capacity {
        /// Blocks that can be written.
        capacity: u32,
        /// Blocks of a zone.
        size: u32,
    },
    /// More zones may be open than active.
    Limits {
        /// Open.
        open: u32,
        /// Active.
        active: u32,
    },
    /// A limit that no zone could be written under.
    NoZrwa,
    /// The random write area is no multiple of its granularity, or larger than half of what can be written.
    Zrwa {
        /// Blocks of an area.
        size: u32,
        /// Blocks that are committed together.
        granularity: u32,
    },
}

impl fmt::Display for ZoneConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is no zone, or a zone has no block that can be written"),
            Self::Capacity { capacity, size } => {
                write!(f, "a zone's capacity of {capacity} blocks is more than its size of {size}")
            }
            Self::Limits { open, active } => {
                write!(f, "{open} open zones but only {active} active ones: an open zone is active, raise max_active")
            }
            Self::NoZrwa => f.write_str("zone random write areas need at least one area and a granularity of a block"),
            Self::Zrwa { size, granularity } => write!(
                f,
                "a zone random write area of {size} blocks must be a multiple of its granularity ({granularity} blocks) and \
                 at most half of a zone's capacity"
            ),
        }
    }
}

impl core::error::Error for ZoneConfigError {}

impl ZoneConfig {
    /// Checks the numbers.
    ///
    /// # Errors
    /// Says which do not go together.
    pub fn validate(&self) -> Result<(), ZoneConfigError> {
        let ZoneConfig { zones, size, capacity, max_open, max_active, zrwa, .. } = *self;
        if zones == 0 || capacity == 0 {
            return Err(ZoneConfigError::Empty);
        }
        if capacity > size {
            return Err(ZoneConfigError::Capacity { capacity, size });
        }
        if max_active != 0 && max_open > max_active {
            return Err(ZoneConfigError::Limits { open: max_open, active: max_active });
        }
        match zrwa {
            Some(Zrwa { areas: 0, .. } | Zrwa { granularity: 0, .. } | Zrwa { size: 0, .. }) => {
                Err(ZoneConfigError::NoZrwa)
            }
            Some(Zrwa { size, granularity, .. }) if size % granularity != 0 || size > capacity / 2 => {
                Err(ZoneConfigError::Zrwa { size, granularity })
            }
            _ => Ok(()),
        }
    }

    /// Blocks of all zones.
    pub fn blocks(&self) -> u64 {
        u64::from(self.zones) * u64::from(self.size)
    }

    /// Bytes of all descriptor extensions.
    pub fn extension_bytes(&self) -> u64 {
        u64::from(self.zones) * u64::from(self.extension) * 64
    }

    /// Zones that may be open at once: `max_open`, bounded by `max_active`; 0: any number.
    pub fn open_limit(&self) -> u32 {
        if self.max_open == 0 { self.max_active } else { self.max_open }
    }
}
