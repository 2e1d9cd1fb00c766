//! Namespaces, and what a command does on one.

pub(crate) mod access;
mod attach;
pub(crate) mod attachment;
pub(crate) mod metadata;
pub(crate) mod namespace_job;
pub(crate) mod ns_allocator;
pub(crate) mod table;
pub(crate) mod unreadable;

use crate::config::NamespaceConfig;
use crate::namespace::metadata::Format;
use crate::vendor::VendorOpcode;
use alloc::vec::Vec;
use weir_spec::nvme::Status;
use weir_spec::nvme::identify::csi;
use weir_spec::nvme::protection::GuardSize;

/// Largest NSID.
pub(crate) const NSID_MAX: u32 = 1024;
/// Namespaces of a drive whose hosts make some (NN, MNAN).
pub(crate) const MANAGED: usize = 256;

/// Bits of [`Namespace::why`]. Reasons come and go one by one.
pub(crate) mod why {
    /// It has zones.
    pub const ZONES: u16 = 1;
    /// A vendor's commands claim reads and writes.
    pub const VENDOR: u16 = 1 << 1;
    /// A controller does not reach it well enough (ANA).
    pub const ANA: u16 = 1 << 7;
    /// Its I/O commands are refused for now.
    pub const BARRED: u16 = 1 << 2;
    /// Not everybody may do everything with it, or its blocks are not simply where they seem: see `slow_path/restricted_namespace.rs`.
    pub const GUARDED: u16 = 1 << 3;
    /// Somebody holds a reservation.
    pub const RESERVED: u16 = 1 << 4;
    /// Some of its blocks cannot be read.
    pub const UNREADABLE: u16 = 1 << 5;
    /// A pair of commands holds some of its blocks, or waits for them.
    pub const LOCKED: u16 = 1 << 6;
    /// Some rule says what becomes of its commands (`fault`).
    pub const FAULTS: u16 = 1 << 8;
}

/// A namespace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Namespace {
    /// Size in blocks.
    pub blocks: u64,
    /// Where it begins on the media, in bytes.
    pub start: u64,
    /// Block size, as a power of two.
    pub shift: u32,
    /// It is of the ZNS command set.
    pub zoned: bool,
    /// Bytes of its zones' descriptor extensions.
    pub extension: u32,
    /// A vendor's commands that it has.
    pub vendor: Option<&'static [VendorOpcode]>,
    /// Its zones want to hear of flushes.
    pub volatile: bool,
    /// Why its reads and writes take the slow path, a bit for each reason ([`why`]); 0: they are not.
    pub why: u16,
    /// Every I/O command but a flush is refused with this.
    pub barred: Option<Status>,
    /// Its LBA format beside the block size.
    pub format: Format,
    /// It lies in several pieces: [`Subsystem::pieces`](crate::Subsystem::pieces) knows where.
    pub fragmented: bool,
    /// State of its write protection (base 2.0, 8.12).
    pub protect: u8,
    pub uuid: [u8; 16],
}

impl Namespace {
    /// Of no blocks.
    pub const fn empty() -> Self {
        let format = Format {
            index: 0,
            metadata: 0,
            extended: false,
            kind: 0,
            first: false,
            guard: GuardSize::Bits16,
            storage_bits: 0,
        };
        Self {
            blocks: 0,
            start: 0,
            shift: 9,
            zoned: false,
            extension: 0,
            vendor: None,
            volatile: false,
            why: 0,
            barred: None,
            format,
            fragmented: false,
            protect: 0,
            uuid: [0; 16],
        }
    }

    pub fn new(config: &NamespaceConfig) -> Option<Self> {
        let NamespaceConfig { start, size, block_size, uuid, .. } = *config;
        let valid = matches!(block_size, 512 | 4096) && (size | start) % u64::from(block_size) == 0;
        let shift = block_size.trailing_zeros();
        let placed = Self { blocks: size >> shift, start, shift, uuid, ..Self::empty() };
        (valid && start.checked_add(size).is_some()).then_some(placed)
    }

    /// Whether its reads and writes take the slow path.
    #[inline]
    pub const fn is_slow(&self) -> bool {
        self.why != 0
    }

    /// CSI of its command set.
    pub fn set(&self) -> u8 {
        if self.zoned { csi::ZNS } else { csi::NVM }
    }

    /// The media offset of a range, if it lies inside. Nothing here overflows.
    #[inline]
    pub fn locate(&self, slba: u64, blocks: u64) -> Option<u64> {
        let end = slba.checked_add(blocks)?;
        (end <= self.blocks).then(|| self.start + (slba << self.shift))
    }
}

/// By NSID − 1.
pub(crate) type Namespaces = Vec<Option<Namespace>>;

/// The namespace of an NSID that must be active (base 2.0, 3.2.1.5): 0, the broadcast value and what is above NN are
/// invalid, what is below and absent is inactive.
#[inline]
pub(crate) fn active(namespaces: &Namespaces, nsid: u32) -> Result<&Namespace, Status> {
    match namespaces.get(nsid.wrapping_sub(1) as usize) {
        Some(Some(ns)) => Ok(ns),
        Some(None) => Err(Status::INVALID_FIELD.dnr()),
        None => Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr()),
    }
}
