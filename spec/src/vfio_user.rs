//! The vfio-user protocol, version 0.1 (QEMU `docs/interop/vfio-user.rst`, libvfio-user `docs/vfio-user.rst`; structures of
//! `<linux/vfio.h>`): messages between a client (the virtual machine monitor) and a server (the device). Descriptors travel
//! beside them (SCM_RIGHTS). Integers are in the machine's byte order, which on the machines Weir runs on is little endian.
//!
//! Every message begins with a [`Header`], whose size counts the header itself. What is named `argsz` is in a request the most
//! that the reply's payload may have, in a reply what the whole payload has or would have.

mod version;

pub use version::{Capabilities, VersionError};

use crate::nvme::opcode::codes;
use crate::nvme::wire::wire;
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32, U64};

/// Major version of the protocol.
pub const MAJOR: u16 = 0;
/// Minor version of the protocol.
pub const MINOR: u16 = 1;

codes! {
    /// A message.
    Command: u16 {
        VERSION = 1,
        DMA_MAP = 2,
        DMA_UNMAP = 3,
        DEVICE_GET_INFO = 4,
        DEVICE_GET_REGION_INFO = 5,
        DEVICE_GET_REGION_IO_FDS = 6,
        DEVICE_GET_IRQ_INFO = 7,
        DEVICE_SET_IRQS = 8,
        REGION_READ = 9,
        REGION_WRITE = 10,
        /// Server to client.
        DMA_READ = 11,
        /// Server to client.
        DMA_WRITE = 12,
        DEVICE_RESET = 13,
        REGION_WRITE_MULTI = 15,
        DEVICE_FEATURE = 16,
        MIG_DATA_READ = 17,
        MIG_DATA_WRITE = 18,
    }
}

wire! {
    /// The 16 bytes before every message.
    Header: 16 {
        /// Chosen by the sender of a command, echoed in its reply.
        id: U16 = 0,
        /// [`Command`].
        command: U16 = 2,
        /// Bytes of the message, this header included.
        size: U32 = 4,
        /// [`Header::REPLY`], [`Header::NO_REPLY`], [`Header::ERROR`].
        flags: U32 = 8,
        /// In a reply with [`Header::ERROR`]: the error number.
        error: U32 = 12,
    }
}

impl Header {
    /// Its length.
    pub const LEN: usize = size_of::<Self>();
    /// Bits 3:0 of the flags: what the message is.
    pub const TYPE: u32 = 0xf;
    /// Type: a reply. (A command is type 0.)
    pub const REPLY: u32 = 1;
    /// No reply is wanted.
    pub const NO_REPLY: u32 = 1 << 4;
    /// The command failed; the reply has no payload.
    pub const ERROR: u32 = 1 << 5;

    /// A command with `payload` bytes behind it.
    pub fn command(id: u16, command: Command, payload: usize) -> Self {
        Self {
            id: U16::new(id),
            command: U16::new(command.0),
            size: U32::new((Self::LEN + payload) as u32),
            ..Self::default()
        }
    }
    /// The reply to `request`, with `payload` bytes behind it.
    pub fn reply(request: &Self, payload: usize) -> Self {
        let size = U32::new((Self::LEN + payload) as u32);
        Self { size, flags: U32::new(Self::REPLY), error: U32::new(0), ..*request }
    }
    /// The reply that says why `request` failed.
    pub fn error(request: &Self, errno: u32) -> Self {
        Self { flags: U32::new(Self::REPLY | Self::ERROR), error: U32::new(errno), ..Self::reply(request, 0) }
    }
    /// Bits 3:0 of the flags.
    pub const fn kind(&self) -> u32 {
        self.flags.get() & Self::TYPE
    }
    /// Whether the sender wants no reply.
    pub const fn no_reply(&self) -> bool {
        self.flags.get() & Self::NO_REPLY != 0
    }
    /// In a reply: whether the command failed.
    pub const fn failed(&self) -> bool {
        self.flags.get() & Self::ERROR != 0
    }
}

/// Error numbers that replies carry (Linux).
pub mod errno {
    /// No such device, region or interrupt.
    pub const ENOENT: u32 = 2;
    /// More than the server can hold.
    pub const E2BIG: u32 = 7;
    /// Out of memory.
    pub const ENOMEM: u32 = 12;
    /// Permission denied.
    pub const EACCES: u32 = 13;
    /// Already mapped.
    pub const EEXIST: u32 = 17;
    /// Malformed, or out of range.
    pub const EINVAL: u32 = 22;
    /// No room for another one.
    pub const ENOSPC: u32 = 28;
    /// Not a command that the server has.
    pub const ENOTSUP: u32 = 95;
}

wire! {
    /// What begins VERSION and its reply; [`Capabilities`] as a JSON text with a NUL behind it follow.
    Version: 4 {
        /// [`MAJOR`].
        major: U16 = 0,
        /// [`MINOR`].
        minor: U16 = 2,
    }
}

wire! {
    /// DMA_MAP; with a descriptor where the server may map the region. The reply has no payload.
    DmaMap: 32 {
        /// The length of this structure.
        argsz: U32 = 0,
        /// [`DmaMap::READ`], [`DmaMap::WRITE`].
        flags: U32 = 4,
        /// Where the region begins in the descriptor's file.
        offset: U64 = 8,
        /// Its DMA address.
        address: U64 = 16,
        /// Its length in bytes.
        size: U64 = 24,
    }
}

impl DmaMap {
    /// The device may read it.
    pub const READ: u32 = 1 << 0;
    /// The device may write it.
    pub const WRITE: u32 = 1 << 1;
}

wire! {
    /// DMA_UNMAP, and its reply.
    DmaUnmap: 24 {
        /// The length of this structure.
        argsz: U32 = 0,
        /// [`DmaUnmap::DIRTY_BITMAP`], [`DmaUnmap::ALL`].
        flags: U32 = 4,
        /// DMA address of a region.
        address: U64 = 8,
        /// Its length in bytes.
        size: U64 = 16,
    }
}

impl DmaUnmap {
    /// The dirty bitmap is wanted (VFIO_DMA_UNMAP_FLAG_GET_DIRTY_BITMAP).
    pub const DIRTY_BITMAP: u32 = 1 << 0;
    /// Every region; address and size are 0 (VFIO_DMA_UNMAP_FLAG_ALL).
    pub const ALL: u32 = 1 << 1;
}

wire! {
    /// DEVICE_GET_INFO and its reply.
    DeviceInfo: 16 {
        /// See the module.
        argsz: U32 = 0,
        /// [`DeviceInfo::RESET`], [`DeviceInfo::PCI`].
        flags: U32 = 4,
        /// Number of regions.
        regions: U32 = 8,
        /// Number of kinds of interrupts.
        irqs: U32 = 12,
    }
}

impl DeviceInfo {
    /// DEVICE_RESET works.
    pub const RESET: u32 = 1 << 0;
    /// A PCI device.
    pub const PCI: u32 = 1 << 1;
}

/// Region indices of a PCI device (`VFIO_PCI_*_REGION_INDEX`).
pub mod region {
    /// BAR 0; the others follow.
    pub const BAR0: u32 = 0;
    /// BAR 2.
    pub const BAR2: u32 = 2;
    /// BAR 5.
    pub const BAR5: u32 = 5;
    /// Expansion ROM.
    pub const ROM: u32 = 6;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// VGA ranges.
    pub const VGA: u32 = 8;
    /// How many there are.
    pub const COUNT: u32 = 9;
}

/// Interrupt indices of a PCI device (`VFIO_PCI_*_IRQ_INDEX`).
pub mod irq {
    /// The interrupt pin.
    pub const INTX: u32 = 0;
    /// MSI.
    pub const MSI: u32 = 1;
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// Errors of the device.
    pub const ERR: u32 = 3;
    /// The server wants the device given back.
    pub const REQ: u32 = 4;
    /// How many there are.
    pub const COUNT: u32 = 5;
}

wire! {
    /// DEVICE_GET_REGION_INFO and its reply; capabilities follow at `cap_offset`.
    RegionInfo: 32 {
        /// See the module.
        argsz: U32 = 0,
        /// [`RegionInfo::READ`] and others.
        flags: U32 = 4,
        /// Which: [`region`].
        index: U32 = 8,
        /// Where the first capability is in this structure and what follows; 0 for none.
        cap_offset: U32 = 12,
        /// Length of the region in bytes; 0 where there is none.
        size: U64 = 16,
        /// Where the region begins in the descriptor that comes with the reply.
        offset: U64 = 24,
    }
}

impl RegionInfo {
    /// It can be read.
    pub const READ: u32 = 1 << 0;
    /// It can be written.
    pub const WRITE: u32 = 1 << 1;
    /// It can be mapped: a descriptor comes with the reply.
    pub const MMAP: u32 = 1 << 2;
    /// Capabilities follow.
    pub const CAPS: u32 = 1 << 3;
}

wire! {
    /// The capability that says what parts of a region can be mapped; `areas` times [`SparseArea`] follow.
    SparseMmap: 16 {
        /// [`SparseMmap::ID`].
        id: U16 = 0,
        /// [`SparseMmap::VERSION`].
        version: U16 = 2,
        /// Offset of the next capability from the beginning of [`RegionInfo`], or 0.
        next: U32 = 4,
        /// Number of areas.
        areas: U32 = 8,
        /// Zero.
        reserved: U32 = 12,
    }
}

impl SparseMmap {
    /// VFIO_REGION_INFO_CAP_SPARSE_MMAP.
    pub const ID: u16 = 1;
    /// The structure's version.
    pub const VERSION: u16 = 1;
}

wire! {
    /// A part of a region that can be mapped.
    SparseArea: 16 {
        /// Where it begins in the region.
        offset: U64 = 0,
        /// Its length in bytes.
        size: U64 = 8,
    }
}

/// The areas of a region that can be mapped, from the payload of DEVICE_GET_REGION_INFO's reply; none where there is no such
/// capability. `None` where the payload contradicts itself.
pub fn sparse_areas(payload: &[u8]) -> Option<&[SparseArea]> {
    let (info, _) = RegionInfo::read_from_prefix(payload).ok()?;
    let mut at = if info.flags.get() & RegionInfo::CAPS != 0 { info.cap_offset.get() as usize } else { 0 };
    let mut before = 0;
    while at != 0 {
        // Offsets ascend, or the list would never end.
        if at <= before {
            return None;
        }
        let (cap, rest) = SparseMmap::read_from_prefix(payload.get(at..)?).ok()?;
        if cap.id.get() == SparseMmap::ID {
            return <[SparseArea]>::ref_from_prefix_with_elems(rest, cap.areas.get() as usize).ok().map(|(a, _)| a);
        }
        (before, at) = (at, cap.next.get() as usize);
    }
    Some(&[])
}

wire! {
    /// DEVICE_GET_REGION_IO_FDS and what begins its reply.
    RegionIoFds: 16 {
        /// See the module.
        argsz: U32 = 0,
        /// Zero.
        flags: U32 = 4,
        /// Which region.
        index: U32 = 8,
        /// Number of parts that have a descriptor.
        count: U32 = 12,
    }
}

wire! {
    /// DEVICE_GET_IRQ_INFO and its reply.
    IrqInfo: 16 {
        /// See the module.
        argsz: U32 = 0,
        /// [`IrqInfo::EVENTFD`] and others.
        flags: U32 = 4,
        /// Which: [`irq`].
        index: U32 = 8,
        /// How many interrupts of that kind.
        count: U32 = 12,
    }
}

impl IrqInfo {
    /// Signalled by eventfd.
    pub const EVENTFD: u32 = 1 << 0;
    /// Can be masked and unmasked.
    pub const MASKABLE: u32 = 1 << 1;
    /// Masks itself when it fires.
    pub const AUTOMASKED: u32 = 1 << 2;
    /// Interrupts are set up as a whole.
    pub const NORESIZE: u32 = 1 << 3;
}

wire! {
    /// DEVICE_SET_IRQS, with `count` bytes behind it (DATA_BOOL) or descriptors beside it (DATA_EVENTFD). No payload in the
    /// reply.
    IrqSet: 20 {
        /// The length of this structure and the bytes behind it.
        argsz: U32 = 0,
        /// One of `DATA_*` and one of `ACTION_*`.
        flags: U32 = 4,
        /// Which: [`irq`].
        index: U32 = 8,
        /// The first interrupt.
        start: U32 = 12,
        /// How many; 0 with start 0 and [`IrqSet::DATA_NONE`]: all of them are switched off.
        count: U32 = 16,
    }
}

impl IrqSet {
    /// No data: all that are named.
    pub const DATA_NONE: u32 = 1 << 0;
    /// A byte each: those that are not 0.
    pub const DATA_BOOL: u32 = 1 << 1;
    /// A descriptor each; none at all takes them away.
    pub const DATA_EVENTFD: u32 = 1 << 2;
    /// The three of them.
    pub const DATA: u32 = 0b111;
    /// Mask.
    pub const ACTION_MASK: u32 = 1 << 3;
    /// Unmask.
    pub const ACTION_UNMASK: u32 = 1 << 4;
    /// Fire, or with descriptors: what is signalled when one fires.
    pub const ACTION_TRIGGER: u32 = 1 << 5;
    /// The three of them.
    pub const ACTION: u32 = 0b111 << 3;
}

wire! {
    /// REGION_READ and REGION_WRITE, and what begins their replies. A write's bytes follow it, and so do a read's in its reply.
    RegionAccess: 16 {
        /// Where in the region.
        offset: U64 = 0,
        /// Which: [`region`].
        region: U32 = 8,
        /// Bytes.
        count: U32 = 12,
    }
}

wire! {
    /// DMA_READ and DMA_WRITE, and what begins their replies. A write's bytes follow it, and so do a read's in its reply.
    DmaAccess: 16 {
        /// DMA address.
        address: U64 = 0,
        /// Bytes.
        count: U64 = 8,
    }
}

wire! {
    /// What begins REGION_WRITE_MULTI; that many [`SmallWrite`] follow. Its reply has it alone.
    WriteMulti: 8 {
        /// Number of writes.
        count: U64 = 0,
    }
}

wire! {
    /// One write of REGION_WRITE_MULTI.
    SmallWrite: 24 {
        /// Where in the region.
        offset: U64 = 0,
        /// Which: [`region`].
        region: U32 = 8,
        /// Bytes, 8 at most.
        count: U32 = 12,
        /// They, the first ones.
        data: [u8; 8] = 16,
    }
}

/// The writes of REGION_WRITE_MULTI; `None` when count and length do not agree.
pub fn small_writes(payload: &[u8]) -> Option<&[SmallWrite]> {
    let (head, rest) = WriteMulti::read_from_prefix(payload).ok()?;
    let count = usize::try_from(head.count.get()).ok()?;
    let writes = <[SmallWrite]>::ref_from_bytes(rest).ok()?;
    (writes.len() == count).then_some(writes)
}

wire! {
    /// What begins DEVICE_FEATURE.
    DeviceFeature: 8 {
        /// See the module.
        argsz: U32 = 0,
        /// Which feature, and what to do with it.
        flags: U32 = 4,
    }
}

#[cfg(test)]
mod tests;
