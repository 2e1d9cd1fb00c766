use super::*;
use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::symlink;

const DRIVE: &str = "0000:01:00.0";
const OTHER: &str = "0000:02:00.0";

/// A kernel that does to the links what writes ask for.
struct FakeKernel {
    sys: PathBuf,
    /// Refuses to bind to vfio-pci.
    refuses: bool,
    written: RefCell<Vec<String>>,
}

impl Attributes for FakeKernel {
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let of_sys = path.strip_prefix(&self.sys).expect("an attribute").display().to_string();
        self.written.borrow_mut().push(format!("{of_sys}={}", text.trim()));
        if path.ends_with("driver_override") {
            return fs::write(path, text);
        }
        let device = self.sys.join("bus/pci/devices").join(text.trim());
        if path.ends_with("unbind") {
            return fs::remove_file(device.join("driver"));
        }
        let wanted = fs::read_to_string(device.join("driver_override"))?;
        let driver = if wanted.trim().is_empty() { "nvme" } else { wanted.trim() };
        match self.refuses && driver == VFIO_DRIVER {
            true => Ok(()),
            false => symlink(self.sys.join("bus/pci/drivers").join(driver), device.join("driver")),
        }
    }
}

/// A machine with an NVMe drive in IOMMU group 7, whose namespace is nvme0n1 with one partition, and a network card.
struct Machine {
    root: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Machine {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("weir-pci-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let machine = Machine { root };
        machine.device(DRIVE, "0x010802", "nvme", 7);
        machine.device(OTHER, "0x020000", "e1000e", 8);
        machine.put("sys/bus/pci/drivers/vfio-pci/new_id", "");
        machine.put("sys/bus/pci/devices/0000:01:00.0/nvme/nvme0/nvme0n1/size", "1");
        machine.put("sys/bus/pci/devices/0000:01:00.0/nvme/nvme0/ng0n1/dev", "1:1");
        machine.put("sys/class/block/nvme0n1/dev", "259:0\n");
        machine.put("sys/class/block/nvme0n1/nvme0n1p1/partition", "1\n");
        machine.put("sys/class/block/nvme0n1p1/dev", "259:1\n");
        machine.put("proc/self/mountinfo", "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n");
        machine.put("proc/swaps", "Filename Type Size Used Priority\n");
        machine
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn link(&self, path: &str, to: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        symlink(self.root.join(to), path).expect("a link");
    }

    fn device(&self, address: &str, class: &str, driver: &str, group: u32) {
        let at = format!("sys/bus/pci/devices/{address}");
        for (name, text) in
            [("class", class), ("vendor", "0x1b36"), ("device", "0x0010"), ("driver_override", "(null)")]
        {
            self.put(&format!("{at}/{name}"), &format!("{text}\n"));
        }
        self.put(&format!("sys/bus/pci/drivers/{driver}/bind"), "");
        self.link(&format!("{at}/driver"), &format!("sys/bus/pci/drivers/{driver}"));
        self.link(&format!("{at}/iommu_group"), &format!("sys/kernel/iommu_groups/{group}"));
        self.link(&format!("sys/kernel/iommu_groups/{group}/devices/{address}"), &at);
    }

    fn bus(&self) -> PciBus<FakeKernel> {
        let sys = self.root.join("sys");
        let attributes = FakeKernel { sys: sys.clone(), refuses: false, written: RefCell::default() };
        PciBus { sys, proc: self.root.join("proc"), dev: self.root.join("dev"), attributes }
    }
}

fn address() -> PciAddress {
    DRIVE.parse().expect("an address")
}

/// Why it cannot be bound; nothing was written.
fn refused(machine: &Machine) -> String {
    let bus = machine.bus();
    let text = bus.bind(address()).expect_err("it is refused").to_string();
    assert_eq!(*bus.attributes.written.borrow(), [""; 0]);
    text
}

#[test]
fn drives_are_listed_with_their_driver_group_and_disks() {
    let machine = Machine::new("list");
    let drives = machine.bus().drives().unwrap();
    let expected = PciDrive {
        address: address(),
        vendor: 0x1b36,
        device: 0x10,
        driver: Some("nvme".into()),
        iommu_group: Some(7),
        namespaces: vec!["nvme0n1".into()],
        used_by: None,
    };
    assert_eq!(drives, [expected]);
}

#[test]
fn a_machine_without_a_bus_has_no_drives() {
    let nowhere = PathBuf::from("/nowhere/at/all");
    let bus = PciBus { sys: nowhere.clone(), proc: nowhere.clone(), dev: nowhere, attributes: Sysfs };
    assert_eq!(bus.drives().unwrap(), []);
}

#[test]
fn the_disk_of_a_path_is_found() {
    assert_eq!(disk("nvme0n1").as_deref(), Some("nvme0n1"));
    assert_eq!(disk("nvme2c13n4").as_deref(), Some("nvme2n4"));
    for other in ["ng0n1", "nvme0", "hwmon1", "nvme0n1p1", "nvmexn1"] {
        assert_eq!(disk(other), None, "{other}");
    }
}

#[test]
fn a_drive_is_bound_and_given_back() {
    let machine = Machine::new("bind");
    let bus = machine.bus();
    assert!(bus.bind(address()).unwrap());
    assert_eq!(bus.drive(address()).unwrap().driver.as_deref(), Some(VFIO_DRIVER));
    let at = "bus/pci/devices/0000:01:00.0";
    let expected = [
        format!("{at}/driver_override=vfio-pci"),
        format!("{at}/driver/unbind={DRIVE}"),
        format!("bus/pci/drivers_probe={DRIVE}"),
    ];
    assert_eq!(*bus.attributes.written.borrow(), expected);
    assert!(!bus.bind(address()).unwrap(), "it is bound already");
    assert_eq!(bus.attributes.written.borrow().len(), 3);
    assert_eq!(bus.unbind(address()).unwrap().as_deref(), Some("nvme"));
    assert_eq!(bus.attributes.written.borrow()[3], format!("{at}/driver_override="));
    let text = bus.unbind(address()).unwrap_err().to_string();
    assert!(text.contains("the driver nvme has the drive"), "{text}");
}

#[test]
fn a_bind_that_the_kernel_refuses_is_undone() {
    let machine = Machine::new("refuses");
    let mut bus = machine.bus();
    bus.attributes.refuses = true;
    let text = bus.bind(address()).unwrap_err().to_string();
    assert!(text.contains("vfio-pci did not take the drive, no driver has it"), "{text}");
    assert_eq!(bus.drive(address()).unwrap().driver.as_deref(), Some("nvme"));
}

#[test]
fn a_drive_in_use_is_not_taken_away() {
    let machine = Machine::new("mounted");
    machine.put("proc/self/mountinfo", "30 22 259:1 / /srv/my\\040data rw - xfs /dev/nvme0n1p1 rw\n");
    assert_eq!(
        refused(&machine),
        "0000:01:00.0: the drive is in use: /dev/nvme0n1p1 is mounted at /srv/my data; end that first"
    );
    // A file system that has a number of its own.
    machine.put("proc/self/mountinfo", "30 22 0:41 / /srv rw - btrfs /dev/nvme0n1 rw\n");
    assert!(refused(&machine).contains("/dev/nvme0n1 is mounted at /srv"));
    machine.put("proc/self/mountinfo", "");
    machine.put("proc/swaps", "Filename Type\n/dev/nvme0n1p1 partition 1 0 -2\n");
    assert!(refused(&machine).contains("/dev/nvme0n1p1 is swap"));
    machine.put("proc/swaps", "Filename Type\n");
    machine.put("sys/class/block/nvme0n1p1/holders/dm-3/dev", "1");
    assert!(refused(&machine).contains("/dev/dm-3 is on top of /dev/nvme0n1p1"));
}

#[test]
fn what_the_machine_lacks_is_said() {
    let machine = Machine::new("lacks");
    let bus = machine.bus();
    let missing = "0000:09:00.0".parse().unwrap();
    assert!(bus.bind(missing).unwrap_err().to_string().contains("there is no such PCI device"));
    let card = OTHER.parse().unwrap();
    assert!(bus.bind(card).unwrap_err().to_string().contains("no NVMe drive (class 020000)"));
    fs::remove_dir_all(machine.root.join("sys/bus/pci/drivers/vfio-pci")).unwrap();
    assert!(refused(&machine).contains("modprobe vfio-pci"));
    fs::remove_file(machine.root.join("sys/bus/pci/devices/0000:01:00.0/iommu_group")).unwrap();
    assert!(refused(&machine).contains("intel_iommu=on"));
}

#[test]
fn a_group_that_is_shared_is_not_taken_apart() {
    let machine = Machine::new("group");
    machine.device("0000:01:00.1", "0x020000", "e1000e", 7);
    let text = refused(&machine);
    assert!(text.contains("0000:01:00.1, which the driver e1000e has, is in the same IOMMU group 7"), "{text}");
    let harmless = Machine::new("bridge");
    harmless.device("0000:00:1c.0", "0x060400", "pcieport", 7);
    assert!(harmless.bus().bind(address()).unwrap());
}

#[test]
fn a_missing_attribute_is_not_made() {
    let path = std::env::temp_dir().join(format!("weir-no-attribute-{}", std::process::id()));
    assert_eq!(Sysfs.write(&path, "x").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(!path.exists());
    let denied = PciError::Attribute(path, io::ErrorKind::PermissionDenied.into()).to_string();
    assert!(denied.ends_with("run the command as root"), "{denied}");
}
