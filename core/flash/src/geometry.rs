//! How a drive's flash is laid out, and the arithmetic of its addresses.
//!
//! ```text
//! drive ─ channel ─ way (one die) ─ plane ─ block ─ page ─ 4 KiB unit
//! die   = way * channels + channel          consecutive dies stripe over the channels
//! plane = die * planes a die + plane        drive-wide
//! block = plane * blocks a plane + block    drive-wide
//! unit  = block * units a block + offset    drive-wide; offset = page * units a page + part
//! ```

use crate::cell::{CellType, PageMap};
use core::fmt;
use weir_units::Bytes;

/// Bytes of a mapping unit: what the page map knows where to find.
pub const UNIT: u32 = 4096;

/// A logical mapping unit of 4 KiB: a logical page number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Lpn(pub u32);

/// A physical 4 KiB unit, numbered as the module's drawing says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Unit(pub u32);

/// A flash page: plane drive-wide, block within the plane, page within the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageAddress {
    /// Plane, drive-wide.
    pub plane: u32,
    /// Block of the plane.
    pub block: u32,
    /// Page of the block.
    pub page: u32,
}

/// A drive's flash as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Channels of the drive.
    pub channels: u32,
    /// Dies on a channel.
    pub ways: u32,
    /// Planes of a die.
    pub planes: u32,
    /// Blocks of a plane.
    pub blocks: u32,
    /// Pages of a block.
    pub pages: u32,
    /// Data bytes of a page; what one program writes. A multiple of 4 KiB.
    pub page_bytes: u32,
    /// Spare bytes of a page, beside the data: they hold the logical page numbers, and never cross the channel.
    pub spare_bytes: u32,
    /// Bits a cell.
    pub cell: CellType,
    /// Which page lies on which level.
    pub page_map: PageMap,
}

/// Why a geometry is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryError {
    /// A count is zero.
    Zero {
        /// The field of [`Geometry`].
        field: &'static str,
    },
    /// The page holds no whole number of mapping units.
    NotUnits {
        /// What was given, in bytes.
        page_bytes: u32,
    },
    /// With this field multiplied in, the drive has more 4 KiB units than 32 bits count.
    TooLarge {
        /// The field of [`Geometry`] at which the product overflows.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// A block has so many pages or units that a 16-bit count of valid ones cannot hold them.
    BlockTooLarge {
        /// Units of a block.
        units: u64,
    },
    /// The spare area cannot hold the logical page number of each unit of its page.
    SpareTooSmall {
        /// What was given, in bytes.
        spare_bytes: u32,
        /// What is needed, in bytes.
        needed: u32,
    },
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero { field } => write!(f, "geometry.{field} is 0; it must be at least 1"),
            Self::NotUnits { page_bytes } => {
                write!(f, "geometry.page_bytes is {page_bytes}; it must be a multiple of {UNIT} (the mapping unit)")
            }
            Self::TooLarge { field, value } => write!(
                f,
                "geometry.{field} = {value} makes the drive larger than {} (2^32 - 1 units of 4 KiB); lower it or the \
                 fields before it",
                Bytes((u64::from(u32::MAX) + 1) * u64::from(UNIT))
            ),
            Self::BlockTooLarge { units } => write!(
                f,
                "geometry.pages * geometry.page_bytes is {units} units of 4 KiB a block; at most {} are supported",
                Shape::MAX_BLOCK_UNITS
            ),
            Self::SpareTooSmall { spare_bytes, needed } => write!(
                f,
                "geometry.spare_bytes is {spare_bytes}; a page of this size needs at least {needed} (8 bytes a 4 KiB unit \
                 for its logical page number and sequence)"
            ),
        }
    }
}

impl core::error::Error for GeometryError {}

impl Geometry {
    /// Checks the numbers and derives the counts.
    ///
    /// # Errors
    /// Names the field that is zero, no multiple of 4 KiB, or makes the drive larger than 2^32 - 1 units (16 TiB).
    pub fn shape(&self) -> Result<Shape, GeometryError> {
        let counts = [
            ("channels", self.channels),
            ("ways", self.ways),
            ("planes", self.planes),
            ("blocks", self.blocks),
            ("pages", self.pages),
        ];
        let zero = counts.iter().find(|(_, n)| *n == 0).map(|(field, _)| *field);
        if let Some(field) = zero.or((self.page_bytes == 0).then_some("page_bytes")) {
            return Err(GeometryError::Zero { field });
        }
        if self.page_bytes % UNIT != 0 {
            return Err(GeometryError::NotUnits { page_bytes: self.page_bytes });
        }
        let units_per_page = self.page_bytes / UNIT;
        let units = u64::from(self.pages) * u64::from(units_per_page);
        if units > u64::from(Shape::MAX_BLOCK_UNITS) {
            return Err(GeometryError::BlockTooLarge { units });
        }
        let needed = units_per_page * Shape::SPARE_PER_UNIT;
        if self.spare_bytes < needed {
            return Err(GeometryError::SpareTooSmall { spare_bytes: self.spare_bytes, needed });
        }
        let mut product: u32 = 1;
        for (field, value) in counts.into_iter().chain([("page_bytes", units_per_page)]) {
            let value_as_written = if field == "page_bytes" { self.page_bytes } else { value };
            product = product.checked_mul(value).ok_or(GeometryError::TooLarge { field, value: value_as_written })?;
        }
        Ok(Shape::derive(*self, units_per_page, product))
    }
}

/// A geometry that has been checked, and what follows from it. Nothing here overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    geometry: Geometry,
    dies: u32,
    planes: u32,
    blocks: u32,
    units: u32,
    units_per_page: u32,
    units_per_block: u32,
    by_units_per_block: Divisor,
    by_units_per_page: Divisor,
    by_blocks: Divisor,
    by_planes: Divisor,
    by_channels: Divisor,
}

impl Shape {
    /// The most units of a block: valid counts are 16 bits.
    pub const MAX_BLOCK_UNITS: u32 = u16::MAX as u32;
    /// Spare bytes that each unit of a page needs: its logical page number and a sequence number.
    pub const SPARE_PER_UNIT: u32 = 8;

    fn derive(geometry: Geometry, units_per_page: u32, units: u32) -> Shape {
        let dies = geometry.channels * geometry.ways;
        let planes = dies * geometry.planes;
        let units_per_block = geometry.pages * units_per_page;
        Shape {
            geometry,
            dies,
            planes,
            blocks: planes * geometry.blocks,
            units,
            units_per_page,
            units_per_block,
            by_units_per_block: Divisor::new(units_per_block),
            by_units_per_page: Divisor::new(units_per_page),
            by_blocks: Divisor::new(geometry.blocks),
            by_planes: Divisor::new(geometry.planes),
            by_channels: Divisor::new(geometry.channels),
        }
    }

    /// The geometry as configured.
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    /// Channels of the drive.
    pub const fn channels(&self) -> u32 {
        self.geometry.channels
    }
    /// Dies of the drive.
    pub const fn dies(&self) -> u32 {
        self.dies
    }
    /// Planes of the drive.
    pub const fn planes(&self) -> u32 {
        self.planes
    }
    /// Planes of a die.
    pub const fn planes_per_die(&self) -> u32 {
        self.geometry.planes
    }
    /// Blocks of the drive.
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }
    /// Blocks of a plane.
    pub const fn blocks_per_plane(&self) -> u32 {
        self.geometry.blocks
    }
    /// Pages of a block.
    pub const fn pages_per_block(&self) -> u32 {
        self.geometry.pages
    }
    /// Data bytes of a page.
    pub const fn page_bytes(&self) -> u32 {
        self.geometry.page_bytes
    }
    /// 4 KiB units of the drive, over-provisioning included.
    pub const fn units(&self) -> u32 {
        self.units
    }
    /// 4 KiB units of a page.
    pub const fn units_per_page(&self) -> u32 {
        self.units_per_page
    }
    /// 4 KiB units of a block.
    pub const fn units_per_block(&self) -> u32 {
        self.units_per_block
    }
    /// 4 KiB units of a plane.
    pub const fn units_per_plane(&self) -> u32 {
        self.units_per_block * self.geometry.blocks
    }
    /// Data bytes of the drive, over-provisioning included.
    pub const fn bytes(&self) -> Bytes {
        Bytes(self.units as u64 * UNIT as u64)
    }

    /// The drive-wide plane `plane` of the die at `channel` and `way`.
    pub const fn plane(&self, channel: u32, way: u32, plane: u32) -> u32 {
        (way * self.geometry.channels + channel) * self.geometry.planes + plane
    }
    /// The die of a drive-wide plane.
    pub const fn die_of(&self, plane: u32) -> u32 {
        self.by_planes.div(plane)
    }
    /// The channel of a drive-wide plane.
    pub const fn channel_of(&self, plane: u32) -> u32 {
        self.by_channels.rem(self.die_of(plane))
    }
    /// The drive-wide number of a block.
    pub const fn block_index(&self, plane: u32, block: u32) -> u32 {
        plane * self.geometry.blocks + block
    }
    /// The drive-wide block of a unit, and the unit's offset in it.
    pub const fn block_of(&self, unit: Unit) -> (u32, u32) {
        self.by_units_per_block.div_rem(unit.0)
    }
    /// The plane of a drive-wide block, and the block's number in the plane.
    pub const fn plane_of_block(&self, block: u32) -> (u32, u32) {
        self.by_blocks.div_rem(block)
    }
    /// The page of a unit's offset in its block.
    pub const fn page_of(&self, offset: u32) -> u32 {
        self.by_units_per_page.div(offset)
    }
    /// The page that holds a unit.
    pub const fn place(&self, unit: Unit) -> PageAddress {
        let (index, offset) = self.block_of(unit);
        let (plane, block) = self.plane_of_block(index);
        PageAddress { plane, block, page: self.page_of(offset) }
    }
    /// Part `part` (from 0) of a page, as a unit.
    pub const fn unit(&self, at: PageAddress, part: u32) -> Unit {
        Unit(self.block_index(at.plane, at.block) * self.units_per_block + at.page * self.units_per_page + part)
    }
}

/// A 32-bit divisor that does not vary: one multiplication instead of a division (Lemire, Kaser and Kurz, "Faster
/// remainder by direct computation", 2019: exact for every 32-bit dividend).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divisor {
    divisor: u32,
    /// ceil(2^64 / divisor); 0 stands for 2^64, that is for divisor 1.
    reciprocal: u64,
}

impl Divisor {
    /// A divisor of at least 1; 0 is taken as 1.
    pub const fn new(divisor: u32) -> Divisor {
        let divisor = if divisor == 0 { 1 } else { divisor };
        Divisor { divisor, reciprocal: (u64::MAX / divisor as u64).wrapping_add(1) }
    }
    /// The divisor.
    pub const fn get(self) -> u32 {
        self.divisor
    }
    /// The quotient.
    #[inline]
    pub const fn div(self, n: u32) -> u32 {
        if self.reciprocal == 0 { n } else { ((self.reciprocal as u128 * n as u128) >> 64) as u32 }
    }
    /// The remainder.
    #[inline]
    pub const fn rem(self, n: u32) -> u32 {
        self.div_rem(n).1
    }
    /// Quotient and remainder.
    #[inline]
    pub const fn div_rem(self, n: u32) -> (u32, u32) {
        let quotient = self.div(n);
        (quotient, n - quotient * self.divisor)
    }
}
