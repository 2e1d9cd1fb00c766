//! A PCI device that vfio-pci has, as a program uses it: its registers mapped, its configuration space, memory that it may access by DMA,
//! its interrupts. Linux `Documentation/driver-api/vfio.rst`; container and group, with the IOMMU's type 1 version 2.
//!
//! ```text
//!   VfioDevice::open ──► container ── memory, at the addresses that the device uses
//!                    ├── group       one program at a time
//!                    └── device ──┬─ Bar       registers, mapped; all ones once the device is gone
//!                                 ├─ configuration space: memory and bus master enable
//!                                 └─ Interrupts: MSI-X vectors and "the kernel wants it back", each an eventfd
//! ```
//! The kernel resets the device when its last descriptor is closed, so DMA of a program that died cannot go on, unless another process holds
//! them ([`VfioDevice::descriptors`]): then device and memory stay as they are, for [`VfioDevice::left`].

mod abi;
mod bar;

pub use bar::Bar;

use crate::pci::{PciBus, VFIO_DRIVER};
use crate::transport::fds;
use abi::{DmaMap, GroupStatus, IrqSet, RegionInfo, pci, request};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use weir_driver::TransportError;
use weir_spec::pci::{Command, PciAddress, header};

/// How long a group that another program has open is asked for again: that program may be on its way out.
const TURN: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(10);

/// A device of this program's alone.
#[derive(Debug)]
pub struct VfioDevice {
    address: PciAddress,
    // In the order in which they are to be closed.
    device: std::fs::File,
    container: OwnedFd,
    /// Held open: the device is this program's as long as it is.
    group: OwnedFd,
    /// Signalled when the kernel wants the device back.
    wanted_back: OwnedFd,
    config: u64,
}

impl VfioDevice {
    /// Opens the NVMe drive at an address, which vfio-pci has (`weir device bind`), and lets it use the memory that it is given.
    ///
    /// # Errors
    /// There is none, another driver has it, there is no IOMMU, no permission, or another program uses it.
    pub fn open(address: PciAddress) -> Result<Self, TransportError> {
        let bus = PciBus::of_machine();
        let drive = bus.drive(address).map_err(|e| TransportError::Unreachable(format!("pci:{e}")))?;
        let group = drive
            .iommu_group
            .ok_or_else(|| TransportError::Unreachable(format!("pci:{}", crate::pci::PciError::NoIommu(address))))?;
        if drive.driver.as_deref() != Some(VFIO_DRIVER) {
            let has =
                drive.driver.map_or("no driver has it".to_string(), |driver| format!("the driver {driver} has it"));
            let text = format!("pci:{address}: {has}, not {VFIO_DRIVER}; run weir device bind {address}");
            return Err(TransportError::Unreachable(text));
        }
        let refused = |what: &str, e: io::Error| TransportError::Refused(format!("pci:{address}: {what}: {e}"));
        let path = bus.group_file(group);
        let group = open_group(address, &path)?;
        let container = open("/dev/vfio/vfio").map_err(|e| denied(address, "/dev/vfio/vfio", &e))?;
        let version = abi::with_number(container.as_fd(), request::GET_API_VERSION, 0);
        let version = version.map_err(|e| refused("VFIO_GET_API_VERSION", e))?;
        let has_type1 = abi::with_number(container.as_fd(), request::CHECK_EXTENSION, abi::TYPE1_V2);
        if version != abi::API_VERSION || has_type1.map_err(|e| refused("VFIO_CHECK_EXTENSION", e))? == 0 {
            let text = format!("pci:{address}: the kernel's VFIO has no type 1 IOMMU; run modprobe vfio_iommu_type1");
            return Err(TransportError::Refused(text));
        }
        is_viable(address, group.as_fd())?;
        let mut fd = container.as_raw_fd();
        // SAFETY: the request reads an int, the descriptor's number.
        unsafe { abi::with(group.as_fd(), request::GROUP_SET_CONTAINER, &mut fd) }
            .map_err(|e| refused("VFIO_GROUP_SET_CONTAINER", e))?;
        abi::with_number(container.as_fd(), request::SET_IOMMU, abi::TYPE1_V2)
            .map_err(|e| refused("VFIO_SET_IOMMU", e))?;
        let name = CString::new(address.to_string()).map_err(|e| refused("its name", e.into()))?;
        let device = abi::device(group.as_fd(), &name).map_err(|e| refused("VFIO_GROUP_GET_DEVICE_FD", e))?;
        let wanted_back = fds::eventfd().map_err(|e| refused("an eventfd", e))?;
        let mut device = Self { address, device: device.into(), container, group, wanted_back, config: 0 };
        device.set_up().map_err(|e| refused("VFIO", e))?;
        Ok(device)
    }

    /// The device that another process had open, by its [`descriptors`](Self::descriptors); the memory that it may access is what it was.
    ///
    /// # Errors
    /// The kernel refuses: it is no such device, or it is gone.
    pub fn left(address: PciAddress, [device, container, group]: [OwnedFd; 3]) -> io::Result<Self> {
        let mut device =
            Self { address, device: device.into(), container, group, wanted_back: fds::eventfd()?, config: 0 };
        device.set_up()?;
        Ok(device)
    }

    /// What another process holds, so that the device outlives this one.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.device.as_fd(), self.container.as_fd(), self.group.as_fd()]
    }

    fn set_up(&mut self) -> io::Result<()> {
        self.config = self.region(pci::CONFIG)?.offset;
        let mut command = [0; 2];
        self.device.read_exact_at(&mut command, self.config + header::COMMAND as u64)?;
        let command = Command(u16::from_le_bytes(command)).with_memory(1).with_master(1).with_intx_disable(1);
        self.device.write_all_at(&command.0.to_le_bytes(), self.config + header::COMMAND as u64)?;
        // Kernels before 4.0 have no such interrupt; then a removal shows by registers that are gone.
        let _ = self.set_eventfds(pci::REQUEST, 0, &[self.wanted_back.as_fd()]);
        Ok(())
    }

    /// Where it is.
    pub fn address(&self) -> PciAddress {
        self.address
    }

    fn region(&self, index: u32) -> io::Result<RegionInfo> {
        let mut info = RegionInfo { argsz: size_of::<RegionInfo>() as u32, index, ..RegionInfo::default() };
        // SAFETY: the structure of this request.
        unsafe { abi::with(self.device.as_fd(), request::DEVICE_GET_REGION_INFO, &mut info)? };
        Ok(info)
    }

    /// Maps BAR 0, its registers and doorbells.
    ///
    /// # Errors
    /// The kernel maps it not, or refuses.
    pub fn map_bar(&self) -> io::Result<Bar> {
        let info = self.region(pci::BAR0)?;
        if info.flags & RegionInfo::MMAP == 0 || info.size == 0 {
            return Err(io::Error::other("its BAR 0 cannot be mapped"));
        }
        Bar::map(self.device.as_fd(), info.offset, info.size as usize)
    }

    /// Lets the device read and write all of a memory file, at these addresses of its own. The pages stay in memory from then on, as long
    /// as the device is open.
    ///
    /// # Errors
    /// Too little memory may be locked, or the kernel refuses.
    pub fn map_memory(&self, file: BorrowedFd, len: usize, iova: u64) -> io::Result<()> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, file, 0)? };
        let mut map = DmaMap {
            argsz: size_of::<DmaMap>() as u32,
            flags: DmaMap::READ | DmaMap::WRITE,
            vaddr: at.addr() as u64,
            iova,
            size: len as u64,
        };
        // SAFETY: the structure of this request; the device may change all of the mapping, to which there are no references.
        let mapped = unsafe { abi::with(self.container.as_fd(), request::IOMMU_MAP_DMA, &mut map) };
        // SAFETY: what was mapped above; the kernel keeps the file's pages, not this mapping of them.
        let unmapped = unsafe { rustix::mm::munmap(at, len) };
        mapped.map_err(|e| match e.raw_os_error() {
            Some(libc::ENOMEM) => io::Error::other(format!(
                "this process may not lock {len} bytes of memory for it; raise ulimit -l (LimitMEMLOCK=infinity for a service)"
            )),
            _ => e,
        })?;
        Ok(unmapped?)
    }

    /// An eventfd for each of the first `count` MSI-X vectors, signalled when the device raises it.
    ///
    /// # Errors
    /// The device has fewer vectors, or the kernel refuses.
    pub fn interrupts(&self, count: u16) -> io::Result<Vec<OwnedFd>> {
        let events = (0..count).map(|_| fds::eventfd()).collect::<io::Result<Vec<_>>>()?;
        let borrowed: Vec<BorrowedFd> = events.iter().map(AsFd::as_fd).collect();
        self.set_eventfds(pci::MSIX, 0, &borrowed)?;
        Ok(events)
    }

    /// Takes all MSI-X vectors away.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn end_interrupts(&self) -> io::Result<()> {
        let argsz = size_of::<IrqSet>() as u32;
        let mut set = IrqSet { argsz, flags: IrqSet::NO_DATA | IrqSet::TRIGGER, index: pci::MSIX, start: 0, count: 0 };
        // SAFETY: the structure of this request, with nothing behind it as its flags say.
        unsafe { abi::with(self.device.as_fd(), request::DEVICE_SET_IRQS, &mut set) }.map(drop)
    }

    fn set_eventfds(&self, index: u32, start: u32, events: &[BorrowedFd]) -> io::Result<()> {
        let head = size_of::<IrqSet>() / 4;
        let words = head + events.len();
        let mut set = vec![0u32; words];
        let count = events.len() as u32;
        set[..head].copy_from_slice(&[4 * words as u32, IrqSet::EVENTFD | IrqSet::TRIGGER, index, start, count]);
        for (word, event) in set[head..].iter_mut().zip(events) {
            *word = event.as_raw_fd() as u32;
        }
        // SAFETY: an `IrqSet` and as many descriptors behind it as its count says; `argsz` is all of it.
        unsafe { abi::with(self.device.as_fd(), request::DEVICE_SET_IRQS, &mut *set.as_mut_ptr().cast::<IrqSet>()) }
            .map(drop)
    }

    /// Whether the kernel wants the device back, as when it is pulled or unbound; it waits until all of it is closed.
    pub fn is_wanted_back(&self) -> bool {
        let mut count = [0; 8];
        // It stays signalled for whoever looks next.
        match rustix::io::read(&self.wanted_back, &mut count) {
            Ok(_) => {
                fds::signal(&self.wanted_back);
                true
            }
            Err(_) => false,
        }
    }
}

fn open(path: &str) -> io::Result<OwnedFd> {
    Ok(std::fs::File::options().read(true).write(true).open(path)?.into())
}

fn denied(address: PciAddress, path: &str, e: &io::Error) -> TransportError {
    let hint = match e.kind() {
        io::ErrorKind::PermissionDenied => format!("; run as root, or give this user the file: chown USER {path}"),
        io::ErrorKind::NotFound => "; run modprobe vfio-pci".to_string(),
        _ => String::new(),
    };
    TransportError::Unreachable(format!("pci:{address}: {path}: {e}{hint}"))
}

/// One program at a time has a group open; one that is on its way out is waited for.
fn open_group(address: PciAddress, path: &std::path::Path) -> Result<OwnedFd, TransportError> {
    let (path, begin) = (path.display().to_string(), Instant::now());
    loop {
        match open(&path) {
            Ok(group) => return Ok(group),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && begin.elapsed() < TURN => std::thread::sleep(AGAIN),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                let text =
                    format!("pci:{address}: another program uses the drive ({path} is open); end that one first");
                return Err(TransportError::Unreachable(text));
            }
            Err(e) => return Err(denied(address, &path, &e)),
        }
    }
}

fn is_viable(address: PciAddress, group: BorrowedFd) -> Result<(), TransportError> {
    let mut status = GroupStatus { argsz: size_of::<GroupStatus>() as u32, flags: 0 };
    // SAFETY: the structure of this request.
    let asked = unsafe { abi::with(group, request::GROUP_GET_STATUS, &mut status) };
    match asked {
        Ok(_) if status.flags & 1 == 1 => Ok(()),
        Ok(_) => Err(TransportError::Refused(format!(
            "pci:{address}: another device of its IOMMU group has a driver of the kernel's; weir device bind {address} says which"
        ))),
        Err(e) => Err(TransportError::Refused(format!("pci:{address}: VFIO_GROUP_GET_STATUS: {e}"))),
    }
}
