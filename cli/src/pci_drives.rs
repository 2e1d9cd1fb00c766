//! `weir device ls --pci`, `weir device bind` and `weir device unbind`: the NVMe drives of this machine, and which driver has each.

use crate::failure::CommandFailure;
use crate::output::{self, Table};
use serde::Serialize;
use weir_spec::pci::PciAddress;
use weir_sys::pci::{PciBus, PciDrive, VFIO_DRIVER};

#[derive(Serialize)]
struct Entry {
    address: String,
    /// `vendor:device`, in hexadecimal as lspci -n writes them.
    id: String,
    driver: Option<String>,
    iommu_group: Option<u32>,
    namespaces: Vec<String>,
    used_by: Option<String>,
}

impl From<PciDrive> for Entry {
    fn from(drive: PciDrive) -> Self {
        Entry {
            address: drive.address.to_string(),
            id: format!("{:04x}:{:04x}", drive.vendor, drive.device),
            driver: drive.driver,
            iommu_group: drive.iommu_group,
            namespaces: drive.namespaces,
            used_by: drive.used_by,
        }
    }
}

/// What a changed driver is told as.
#[derive(Serialize)]
struct Changed {
    address: String,
    driver: Option<String>,
    /// False: the driver had it before.
    changed: bool,
}

/// An address as the command line takes it: with `pci:` in front or without.
///
/// # Errors
/// It is none.
pub fn address(text: &str) -> Result<PciAddress, String> {
    text.strip_prefix("pci:").unwrap_or(text).parse().map_err(|e: weir_spec::pci::NoPciAddress| e.to_string())
}

/// Lists the drives.
///
/// # Errors
/// sysfs cannot be read.
pub fn list(json: bool) -> Result<(), CommandFailure> {
    let drives = PciBus::of_machine().drives().map_err(CommandFailure::new)?;
    let entries: Vec<Entry> = drives.into_iter().map(Entry::from).collect();
    if json { output::json(&entries) } else { output::text(&text(&entries)) }
}

fn text(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "this machine has no NVMe drive on its PCI bus\n".to_string();
    }
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_string());
    let mut table = Table::new(&["ADDRESS", "ID", "DRIVER", ">IOMMU GROUP", "DISKS", "USED BY"]);
    for entry in entries {
        let disks = Some(entry.namespaces.join(",")).filter(|disks| !disks.is_empty());
        table.row([
            entry.address.clone(),
            entry.id.clone(),
            or_dash(entry.driver.clone()),
            or_dash(entry.iommu_group.map(|group| group.to_string())),
            or_dash(disks),
            or_dash(entry.used_by.clone()),
        ]);
    }
    table.render()
}

/// Gives a drive to vfio-pci.
///
/// # Errors
/// It is in use, or the machine cannot.
pub fn bind(address: PciAddress, json: bool) -> Result<(), CommandFailure> {
    let changed = PciBus::of_machine().bind(address).map_err(CommandFailure::new)?;
    tell(&Changed { address: address.to_string(), driver: Some(VFIO_DRIVER.to_string()), changed }, json)
}

/// Gives a drive back to the kernel.
///
/// # Errors
/// vfio-pci does not have it, or a program uses it.
pub fn unbind(address: PciAddress, json: bool) -> Result<(), CommandFailure> {
    let driver = PciBus::of_machine().unbind(address).map_err(CommandFailure::new)?;
    tell(&Changed { address: address.to_string(), driver, changed: true }, json)
}

fn tell(changed: &Changed, json: bool) -> Result<(), CommandFailure> {
    if json {
        return output::json(changed);
    }
    let Changed { address, driver, changed } = changed;
    let text = match (driver.as_deref(), changed) {
        (Some(VFIO_DRIVER), true) => format!("{address}: {VFIO_DRIVER} has it; use it as pci:{address}\n"),
        (Some(driver), false) => format!("{address}: {driver} had it already\n"),
        (Some(driver), true) => format!("{address}: {driver} has it\n"),
        (None, _) => {
            format!("{address}: no driver has it; modprobe nvme, then echo {address} > /sys/bus/pci/drivers_probe\n")
        }
    };
    output::text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_as_an_operator_reads_them() {
        let mut drive = PciDrive {
            address: address("pci:01:00.0").unwrap(),
            vendor: 0x8086,
            device: 0x953,
            driver: Some("nvme".into()),
            iommu_group: Some(12),
            namespaces: vec!["nvme0n1".into()],
            used_by: Some("/dev/nvme0n1p1 is mounted at /srv".into()),
        };
        let mounted = Entry::from(drive.clone());
        drive.address = address("10000:01:00.0").unwrap();
        (drive.driver, drive.iommu_group, drive.used_by) = (None, None, None);
        drive.namespaces.clear();
        let expected = "\
ADDRESS        ID         DRIVER  IOMMU GROUP  DISKS    USED BY
0000:01:00.0   8086:0953  nvme             12  nvme0n1  /dev/nvme0n1p1 is mounted at /srv
10000:01:00.0  8086:0953  -                 -  -        -
";
        assert_eq!(text(&[mounted, drive.into()]), expected);
        assert!(text(&[]).contains("no NVMe drive"));
        assert!(address("nvme0").unwrap_err().contains("0000:01:00.0"));
    }
}
