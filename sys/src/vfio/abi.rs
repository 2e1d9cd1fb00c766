//! `<linux/vfio.h>`: requests of VFIO and their structures, in the machine's byte order.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Requests, `_IO(';', 100 + n)`: none has its size in its number.
pub(super) mod request {
    pub const GET_API_VERSION: u64 = 0x3b64;
    pub const CHECK_EXTENSION: u64 = 0x3b65;
    pub const SET_IOMMU: u64 = 0x3b66;
    pub const GROUP_GET_STATUS: u64 = 0x3b67;
    pub const GROUP_SET_CONTAINER: u64 = 0x3b68;
    pub const GROUP_GET_DEVICE_FD: u64 = 0x3b6a;
    pub const DEVICE_GET_REGION_INFO: u64 = 0x3b6c;
    pub const DEVICE_SET_IRQS: u64 = 0x3b6e;
    pub const IOMMU_MAP_DMA: u64 = 0x3b71;
}

/// VFIO_API_VERSION.
pub(super) const API_VERSION: i32 = 0;
/// VFIO_TYPE1v2_IOMMU.
pub(super) const TYPE1_V2: i32 = 3;

/// Regions and interrupts of a PCI device (`VFIO_PCI_*_INDEX`).
pub(super) mod pci {
    pub const BAR0: u32 = 0;
    pub const CONFIG: u32 = 7;
    /// MSI-X vectors.
    pub const MSIX: u32 = 2;
    /// The kernel wants the device back.
    pub const REQUEST: u32 = 4;
}

/// `struct vfio_group_status`.
#[repr(C)]
#[derive(Default)]
pub(super) struct GroupStatus {
    pub argsz: u32,
    /// Bit 0: viable, no other driver has a device of the group.
    pub flags: u32,
}

/// `struct vfio_region_info` without capabilities.
#[repr(C)]
#[derive(Default)]
pub(super) struct RegionInfo {
    pub argsz: u32,
    /// Bit 0 read, bit 1 write, bit 2 mmap.
    pub flags: u32,
    pub index: u32,
    pub cap_offset: u32,
    pub size: u64,
    pub offset: u64,
}

impl RegionInfo {
    pub const MMAP: u32 = 1 << 2;
}

/// `struct vfio_irq_set`; what follows it depends on the flags.
#[repr(C)]
#[derive(Default)]
pub(super) struct IrqSet {
    pub argsz: u32,
    pub flags: u32,
    pub index: u32,
    pub start: u32,
    pub count: u32,
}

impl IrqSet {
    pub const NO_DATA: u32 = 1;
    pub const EVENTFD: u32 = 1 << 2;
    pub const TRIGGER: u32 = 1 << 5;
}

/// `struct vfio_iommu_type1_dma_map`.
#[repr(C)]
#[derive(Default)]
pub(super) struct DmaMap {
    pub argsz: u32,
    /// Bit 0: the device reads, bit 1: it writes.
    pub flags: u32,
    pub vaddr: u64,
    pub iova: u64,
    pub size: u64,
}

impl DmaMap {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
}

const _: () = assert!(size_of::<GroupStatus>() == 8);
const _: () = assert!(size_of::<RegionInfo>() == 32);
const _: () = assert!(size_of::<IrqSet>() == 20);
const _: () = assert!(size_of::<DmaMap>() == 32);

/// A request whose argument is a number.
pub(super) fn with_number(fd: BorrowedFd, request: u64, number: i32) -> io::Result<i32> {
    // SAFETY: the argument is a number, so the kernel follows no pointer of ours.
    result(unsafe { libc::ioctl(fd.as_raw_fd(), request as _, libc::c_long::from(number)) })
}

/// A request whose argument is a structure of that request.
///
/// # Safety
/// `T` is the structure that `<linux/vfio.h>` names for the request, with `argsz` (where it has one) at most its size, and an address in it
/// is one that the kernel may use as the request says.
pub(super) unsafe fn with<T>(fd: BorrowedFd, request: u64, argument: &mut T) -> io::Result<i32> {
    // SAFETY: the pointer is valid for the structure's size; the rest is the caller's.
    result(unsafe { libc::ioctl(fd.as_raw_fd(), request as _, std::ptr::from_mut(argument)) })
}

/// The device of a group by its name.
pub(super) fn device(group: BorrowedFd, name: &std::ffi::CStr) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads the string, which ends with a zero.
    let fd = result(unsafe { libc::ioctl(group.as_raw_fd(), request::GROUP_GET_DEVICE_FD as _, name.as_ptr()) })?;
    // SAFETY: a new descriptor that is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn result(returned: libc::c_int) -> io::Result<i32> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}
