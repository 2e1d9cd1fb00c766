//! NVMe drives on the PCI bus of this machine, as sysfs shows them, and which driver has each: the kernel's, or vfio-pci, through which a
//! program has a drive to itself.
//!
//! ```text
//!   PciBus ── drives, drive ──► PciDrive { driver, IOMMU group, namespaces, what uses it }
//!      └───── bind, unbind ───► driver_override, unbind, drivers_probe: each written through Attributes
//! ```
//! Linux ABI: `Documentation/ABI/testing/sysfs-bus-pci`. A drive that something uses is never taken from its driver.

mod holders;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use weir_spec::pci::{CLASS_NVME, PciAddress};

/// The driver through which programs use devices.
pub const VFIO_DRIVER: &str = "vfio-pci";

/// Writes attributes of sysfs.
pub trait Attributes {
    /// Writes an attribute whole.
    ///
    /// # Errors
    /// What the kernel says.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;
}

/// Those of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Sysfs;

impl Attributes for Sysfs {
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        // Never made where it is missing: it would be a plain file of that name.
        let mut file = std::fs::File::options().write(true).open(path)?;
        io::Write::write_all(&mut file, text.as_bytes())
    }
}

/// The PCI bus of a machine.
#[derive(Debug)]
pub struct PciBus<A = Sysfs> {
    /// `/sys`.
    sys: PathBuf,
    /// `/proc`.
    proc: PathBuf,
    /// `/dev`.
    dev: PathBuf,
    attributes: A,
}

/// An NVMe drive on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciDrive {
    /// Where it is.
    pub address: PciAddress,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// The driver that has it: `nvme`, `vfio-pci`.
    pub driver: Option<String>,
    /// Its IOMMU group; none where no IOMMU is on.
    pub iommu_group: Option<u32>,
    /// Block devices of its namespaces, as `nvme0n1`, while the kernel's driver has it.
    pub namespaces: Vec<String>,
    /// What uses one of them: a mount, swap, or a device on top.
    pub used_by: Option<String>,
}

/// Why a drive cannot be bound or unbound.
#[derive(Debug)]
pub enum PciError {
    /// There is no such function.
    Missing(PciAddress),
    /// It is no NVMe drive; its class code.
    NotNvme(PciAddress, u32),
    /// No IOMMU is on.
    NoIommu(PciAddress),
    /// Something uses a namespace of it.
    InUse(PciAddress, String),
    /// The kernel has no vfio-pci.
    NoVfio(PciAddress),
    /// Another device of its IOMMU group has a driver of the kernel's: that device, its driver.
    SharedGroup {
        /// The drive.
        address: PciAddress,
        /// The IOMMU group.
        group: u32,
        /// The other device.
        other: String,
        /// Its driver.
        driver: String,
    },
    /// A program has it open.
    Open(PciAddress, u32),
    /// Another driver than vfio-pci has it, or none: there is nothing to give back.
    NotBound(PciAddress, Option<String>),
    /// An attribute cannot be read or written.
    Attribute(PathBuf, io::Error),
    /// The kernel took the words and did not do it; the driver that it has instead.
    NotDone(PciAddress, &'static str, Option<String>),
}

impl fmt::Display for PciError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(a) => {
                write!(f, "{a}: there is no such PCI device; weir device ls --pci lists the NVMe drives")
            }
            Self::NotNvme(a, class) => {
                write!(f, "{a}: it is no NVMe drive (class {class:06x}); weir device ls --pci lists the NVMe drives")
            }
            Self::NoIommu(a) => write!(
                f,
                "{a}: this machine has no IOMMU switched on, so a drive could write to any memory; switch it on in the firmware \
                 (VT-d, AMD-Vi), and on Intel start Linux with intel_iommu=on"
            ),
            Self::InUse(a, what) => write!(f, "{a}: the drive is in use: {what}; end that first"),
            Self::NoVfio(a) => write!(f, "{a}: the kernel has no vfio-pci driver; run modprobe vfio-pci"),
            Self::SharedGroup { address, group, other, driver } => write!(
                f,
                "{address}: {other}, which the driver {driver} has, is in the same IOMMU group {group}, so the two can only be handed \
                 over together; use another slot for the drive, or unbind {other} as well"
            ),
            Self::Open(a, group) => {
                write!(f, "{a}: a program uses the drive (/dev/vfio/{group} is open); end the program first")
            }
            Self::NotBound(a, Some(driver)) => write!(f, "{a}: the driver {driver} has the drive, not {VFIO_DRIVER}"),
            Self::NotBound(a, None) => {
                write!(f, "{a}: no driver has the drive; echo {a} > /sys/bus/pci/drivers_probe has Linux look for one")
            }
            Self::Attribute(path, e) if e.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "{}: {e}; run the command as root", path.display())
            }
            Self::Attribute(path, e) => write!(f, "{}: {e}", path.display()),
            Self::NotDone(a, wanted, driver) => {
                let has = driver.as_deref().map_or("no driver".to_string(), |d| format!("the driver {d}"));
                write!(f, "{a}: {wanted} did not take the drive, {has} has it; the kernel's log (dmesg) says why")
            }
        }
    }
}

impl std::error::Error for PciError {}

impl PciBus {
    /// That of this machine.
    pub fn of_machine() -> Self {
        PciBus { sys: "/sys".into(), proc: "/proc".into(), dev: "/dev".into(), attributes: Sysfs }
    }
}

impl<A: Attributes> PciBus<A> {
    /// The NVMe drives, by address.
    ///
    /// # Errors
    /// sysfs cannot be read. A machine without a PCI bus has no drives.
    pub fn drives(&self) -> Result<Vec<PciDrive>, PciError> {
        let folder = self.sys.join("bus/pci/devices");
        let mut drives = Vec::new();
        for name in names(&folder)? {
            let Ok(address) = name.parse::<PciAddress>() else { continue };
            match self.drive(address) {
                Ok(drive) => drives.push(drive),
                // It may be unplugged while the list is read.
                Err(PciError::NotNvme(..) | PciError::Missing(_)) => {}
                Err(e) => return Err(e),
            }
        }
        drives.sort_by_key(|d| d.address);
        Ok(drives)
    }

    /// The drive at an address.
    ///
    /// # Errors
    /// There is none, it is no NVMe drive, or sysfs cannot be read.
    pub fn drive(&self, address: PciAddress) -> Result<PciDrive, PciError> {
        let folder = self.folder(address);
        if !folder.exists() {
            return Err(PciError::Missing(address));
        }
        let class = number(&folder.join("class"))?;
        if class != CLASS_NVME {
            return Err(PciError::NotNvme(address, class));
        }
        let namespaces = self.namespaces(address)?;
        Ok(PciDrive {
            address,
            vendor: number(&folder.join("vendor"))? as u16,
            device: number(&folder.join("device"))? as u16,
            driver: link_name(&folder.join("driver")),
            iommu_group: self.group(address),
            used_by: holders::used_by(&self.sys, &self.proc, &namespaces),
            namespaces,
        })
    }

    /// Gives a drive to vfio-pci; true if it had another driver before.
    ///
    /// # Errors
    /// Nothing was changed, or what was changed is undone as far as the kernel lets it be.
    pub fn bind(&self, address: PciAddress) -> Result<bool, PciError> {
        let drive = self.drive(address)?;
        let group = drive.iommu_group.ok_or(PciError::NoIommu(address))?;
        if drive.driver.as_deref() == Some(VFIO_DRIVER) {
            return Ok(false);
        }
        if let Some(what) = drive.used_by {
            return Err(PciError::InUse(address, what));
        }
        if !self.sys.join("bus/pci/drivers").join(VFIO_DRIVER).exists() {
            return Err(PciError::NoVfio(address));
        }
        self.group_is_free(address, group)?;
        let done = self.change_driver(address, VFIO_DRIVER).and_then(|()| match self.driver(address) {
            Some(driver) if driver == VFIO_DRIVER => Ok(()),
            other => Err(PciError::NotDone(address, VFIO_DRIVER, other)),
        });
        done.map(|()| true).inspect_err(|_| {
            // The first error is the one to tell.
            let _ = self.change_driver(address, "");
        })
    }

    /// Gives a drive back to the kernel: whichever driver it chooses has it then.
    ///
    /// # Errors
    /// vfio-pci does not have it, a program has it open, or the kernel refuses.
    pub fn unbind(&self, address: PciAddress) -> Result<Option<String>, PciError> {
        let drive = self.drive(address)?;
        if drive.driver.as_deref() != Some(VFIO_DRIVER) {
            return Err(PciError::NotBound(address, drive.driver));
        }
        if let Some(group) = drive.iommu_group.filter(|group| self.is_open(*group)) {
            return Err(PciError::Open(address, group));
        }
        self.change_driver(address, "")?;
        Ok(self.driver(address))
    }

    /// The file of a group in `/dev/vfio`.
    pub fn group_file(&self, group: u32) -> PathBuf {
        self.dev.join("vfio").join(group.to_string())
    }

    /// A group's file can be opened once at a time; the kernel would wait for that program.
    fn is_open(&self, group: u32) -> bool {
        let opened = std::fs::File::options().read(true).write(true).open(self.group_file(group));
        opened.is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
    }

    /// Has the kernel choose among drivers of that name; "" means all that know the device.
    fn change_driver(&self, address: PciAddress, only: &str) -> Result<(), PciError> {
        let folder = self.folder(address);
        // A newline alone takes the override away.
        self.write(&folder.join("driver_override"), &format!("{only}\n"))?;
        if folder.join("driver").exists() {
            self.write(&folder.join("driver/unbind"), &address.to_string())?;
        }
        self.write(&self.sys.join("bus/pci/drivers_probe"), &address.to_string())
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), PciError> {
        self.attributes.write(path, text).map_err(|e| PciError::Attribute(path.to_path_buf(), e))
    }

    fn folder(&self, address: PciAddress) -> PathBuf {
        self.sys.join("bus/pci/devices").join(address.to_string())
    }

    fn driver(&self, address: PciAddress) -> Option<String> {
        link_name(&self.folder(address).join("driver"))
    }

    fn group(&self, address: PciAddress) -> Option<u32> {
        link_name(&self.folder(address).join("iommu_group"))?.parse().ok()
    }

    /// Bridges and devices without a driver do no harm (Documentation/driver-api/vfio.rst).
    fn group_is_free(&self, address: PciAddress, group: u32) -> Result<(), PciError> {
        let folder = self.sys.join("kernel/iommu_groups").join(group.to_string()).join("devices");
        for other in names(&folder)?.into_iter().filter(|name| *name != address.to_string()) {
            match link_name(&folder.join(&other).join("driver")) {
                Some(driver) if ![VFIO_DRIVER, "pcieport", "pci-stub"].contains(&driver.as_str()) => {
                    return Err(PciError::SharedGroup { address, group, other, driver });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Below the device: `nvme/nvme0/nvme0n1`; behind native multipath the controller has only `nvme0c0n1`, and the disk `nvme0n1` is elsewhere.
    fn namespaces(&self, address: PciAddress) -> Result<Vec<String>, PciError> {
        let controllers = self.folder(address).join("nvme");
        let mut found = Vec::new();
        for controller in names(&controllers)? {
            found.extend(names(&controllers.join(controller))?.into_iter().filter_map(|name| disk(&name)));
        }
        found.sort();
        found.dedup();
        Ok(found)
    }
}

/// `nvme0n1` of `nvme0n1` or `nvme0c0n1`; none of another name.
fn disk(name: &str) -> Option<String> {
    let rest = name.strip_prefix("nvme")?;
    let (head, namespace) = rest.split_once('n')?;
    let subsystem = head.split_once('c').map_or(head, |(subsystem, _)| subsystem);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(subsystem) && is_number(namespace)).then(|| format!("nvme{subsystem}n{namespace}"))
}

/// What is in a folder; nothing where there is none.
fn names(folder: &Path) -> Result<Vec<String>, PciError> {
    let failed = |e| PciError::Attribute(folder.to_path_buf(), e);
    match std::fs::read_dir(folder) {
        Ok(entries) => {
            entries.map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned()).map_err(failed)).collect()
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(failed(e)),
    }
}

/// The last part of what a link leads to.
fn link_name(path: &Path) -> Option<String> {
    Some(std::fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// A number as sysfs writes it: `0x010802`.
fn number(path: &Path) -> Result<u32, PciError> {
    let failed = |e| PciError::Attribute(path.to_path_buf(), e);
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let digits = text.trim().trim_start_matches("0x");
    u32::from_str_radix(digits, 16).map_err(|_| failed(io::Error::other(format!("{:?} is no number", text.trim()))))
}
