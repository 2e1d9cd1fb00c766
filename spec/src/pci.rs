//! PCI configuration space as an NVMe drive has it: PCI Local Bus 3.0 (type 0 header), PCI Power Management 1.2, PCI Express
//! Base 4.0 (capability structure, extended capabilities), MSI-X (PCI Local Bus 3.0, 6.8.2), and what the NVMe over PCIe
//! Transport 1.0 asks of them (2.1).

use crate::nvme::wire::bits;
use core::fmt;
use core::str::FromStr;

/// Bytes of the configuration space of a PCI Express function.
pub const CONFIG_SPACE: usize = 4096;
/// Where extended capabilities begin.
pub const EXTENDED: usize = 256;

/// Offsets in the type 0 header (PCI 3.0, 6.1).
pub mod header {
    /// Vendor ID, 2 bytes.
    pub const VENDOR: usize = 0x00;
    /// Device ID, 2 bytes.
    pub const DEVICE: usize = 0x02;
    /// Command, 2 bytes: [`super::Command`].
    pub const COMMAND: usize = 0x04;
    /// Status, 2 bytes: [`super::status`].
    pub const STATUS: usize = 0x06;
    /// Revision ID, 1 byte.
    pub const REVISION: usize = 0x08;
    /// Class code, 3 bytes: programming interface, subclass, base class.
    pub const CLASS: usize = 0x09;
    /// Cache line size, 1 byte, read-write and without effect.
    pub const CACHE_LINE: usize = 0x0c;
    /// Header type, 1 byte.
    pub const HEADER_TYPE: usize = 0x0e;
    /// Base address registers, 6 × 4 bytes.
    pub const BARS: usize = 0x10;
    /// Subsystem vendor ID, 2 bytes.
    pub const SUBSYSTEM_VENDOR: usize = 0x2c;
    /// Subsystem ID, 2 bytes.
    pub const SUBSYSTEM: usize = 0x2e;
    /// Expansion ROM base address, 4 bytes.
    pub const ROM: usize = 0x30;
    /// The first capability's offset, 1 byte.
    pub const CAPABILITIES: usize = 0x34;
    /// Interrupt line, 1 byte, read-write and without effect.
    pub const INTERRUPT_LINE: usize = 0x3c;
    /// Interrupt pin, 1 byte: 0 none.
    pub const INTERRUPT_PIN: usize = 0x3d;
    /// Its length.
    pub const LEN: usize = 0x40;
}

/// Class code of an NVMe I/O controller (NVMe over PCIe 1.0, 2.1.4): mass storage, non-volatile memory, NVM Express.
pub const CLASS_NVME: u32 = 0x01_08_02;

/// Bits of the status register.
pub mod status {
    /// There is a list of capabilities.
    pub const CAPABILITIES: u16 = 1 << 4;
}

bits! {
    /// Command register (PCI 3.0, 6.2.2; PCIe 4.0, 7.5.1.1.3).
    Command: u16 {
        /// I/O space enable.
        io, with_io: 0, 0;
        /// Memory space enable.
        memory, with_memory: 1, 1;
        /// Bus master enable.
        master, with_master: 2, 2;
        /// Parity error response.
        parity, with_parity: 6, 6;
        /// SERR# enable.
        serr, with_serr: 8, 8;
        /// Interrupt disable.
        intx_disable, with_intx_disable: 10, 10;
    }
}

/// Base address registers (PCI 3.0, 6.2.5).
pub mod bar {
    /// Bits 2:1 = 10b: a memory BAR of 64 bits.
    pub const MEMORY_64: u32 = 0b100;
    /// Bits that are no address in a memory BAR.
    pub const FLAGS: u32 = 0xf;
}

/// Capability identifiers (PCI Code and ID Assignment 1.11, 2).
pub mod capability {
    /// Power management.
    pub const POWER: u8 = 0x01;
    /// PCI Express.
    pub const EXPRESS: u8 = 0x10;
    /// MSI-X.
    pub const MSIX: u8 = 0x11;
}

/// The power management capability (Power Management 1.2, 3.2).
pub mod power {
    /// Its length.
    pub const LEN: usize = 8;
    /// PMC: capabilities, 2 bytes.
    pub const PMC: usize = 2;
    /// PMCSR: control and status, 2 bytes.
    pub const PMCSR: usize = 4;
    /// PMC: version 1.2 of the specification.
    pub const VERSION: u16 = 3;
    /// PMCSR bits 1:0: the state.
    pub const STATE: u16 = 3;
    /// PMCSR bits 1:0 = 11b: D3hot.
    pub const D3HOT: u16 = 3;
    /// PMCSR bit 3: D3hot to D0 keeps the function's state.
    pub const NO_SOFT_RESET: u16 = 1 << 3;
}

/// The PCI Express capability, version 2 (PCIe 4.0, 7.5.3).
pub mod express {
    /// Its length.
    pub const LEN: usize = 0x3c;
    /// PCI Express capabilities register, 2 bytes.
    pub const CAPABILITIES: usize = 0x02;
    /// Device capabilities, 4 bytes.
    pub const DEVICE_CAPABILITIES: usize = 0x04;
    /// Device control, 2 bytes.
    pub const DEVICE_CONTROL: usize = 0x08;
    /// Link capabilities, 4 bytes.
    pub const LINK_CAPABILITIES: usize = 0x0c;
    /// Link control, 2 bytes.
    pub const LINK_CONTROL: usize = 0x10;
    /// Link status, 2 bytes.
    pub const LINK_STATUS: usize = 0x12;
    /// Device capabilities 2, 4 bytes.
    pub const DEVICE_CAPABILITIES_2: usize = 0x24;
    /// Device control 2, 2 bytes.
    pub const DEVICE_CONTROL_2: usize = 0x28;
    /// Link capabilities 2, 4 bytes.
    pub const LINK_CAPABILITIES_2: usize = 0x2c;
    /// Link control 2, 2 bytes.
    pub const LINK_CONTROL_2: usize = 0x30;
    /// Capabilities register: version 2, device type 0000b (endpoint).
    pub const VERSION_2_ENDPOINT: u16 = 2;
    /// Device capabilities: role-based error reporting, which every function has.
    pub const ROLE_BASED_ERRORS: u32 = 1 << 15;
    /// Device capabilities: function level reset.
    pub const FLR: u32 = 1 << 28;
    /// Device control: start a function level reset; reads as 0.
    pub const INITIATE_FLR: u16 = 1 << 15;
    /// Device control: relaxed ordering and no snoop enabled, payload of 512 bytes at a read: what stands there after a reset.
    pub const DEVICE_CONTROL_RESET: u16 = 1 << 4 | 1 << 11 | 0b010 << 12;
    /// A link's speed (bits 3:0; 3 is 8 GT/s) and width (bits 9:4).
    pub const fn link(speed: u32, lanes: u32) -> u32 {
        speed | lanes << 4
    }
}

/// The MSI-X capability and its structures in memory (PCI 3.0, 6.8.2).
pub mod msix {
    use super::bits;

    /// Length of the capability.
    pub const LEN: usize = 12;
    /// Message control, 2 bytes: [`Control`].
    pub const CONTROL: usize = 2;
    /// Table offset, with the BAR in bits 2:0, 4 bytes.
    pub const TABLE: usize = 4;
    /// Pending bit array offset, with the BAR in bits 2:0, 4 bytes.
    pub const PENDING: usize = 8;
    /// Bytes of a table entry: message address, message data, vector control.
    pub const ENTRY: usize = 16;
    /// Vector control in an entry, 4 bytes.
    pub const VECTOR_CONTROL: usize = 12;
    /// Vector control: the vector is masked. Set after a reset.
    pub const MASKED: u32 = 1;
    /// Most vectors of a function.
    pub const MAX_VECTORS: u16 = 2048;

    bits! {
        /// Message control (PCI 3.0, 6.8.2.3).
        Control: u16 {
            /// Table size, 0-based.
            size, with_size: 10, 0;
            /// All vectors are masked.
            function_mask, with_function_mask: 14, 14;
            /// MSI-X is enabled.
            enable, with_enable: 15, 15;
        }
    }
}

/// Extended capabilities (PCIe 4.0, 7.6.3): a header of 4 bytes, then their registers.
pub mod extended {
    /// Device serial number (PCIe 4.0, 7.9.3).
    pub const SERIAL_NUMBER: u16 = 0x0003;
    /// Length of the device serial number capability.
    pub const SERIAL_NUMBER_LEN: usize = 12;

    /// The header: identifier, version, offset of the next one or 0.
    pub const fn header(id: u16, version: u8, next: u16) -> u32 {
        id as u32 | (version as u32) << 16 | (next as u32) << 20
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_have_their_bits_where_the_standard_has_them() {
        assert_eq!(Command(0).with_memory(1).with_master(1).with_intx_disable(1).0, 0x0406);
        assert_eq!(msix::Control(0).with_size(2047).with_enable(1).0, 0x87ff);
        assert_eq!(msix::Control(0x4000).function_mask(), 1);
        // A link of 4 lanes at 8 GT/s, as lspci prints "8GT/s, Width x4".
        assert_eq!(express::link(3, 4), 0x43);
        assert_eq!(extended::header(extended::SERIAL_NUMBER, 1, 0), 0x0001_0003);
        assert_eq!(CLASS_NVME.to_le_bytes(), [0x02, 0x08, 0x01, 0x00]);
    }
}
/// Where a PCI function is: domain, bus, device and function, written `0000:01:00.0` as Linux does, or `01:00.0` in domain 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain (segment group).
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

/// Text that is no [`PciAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPciAddress;

impl fmt::Display for NoPciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no PCI address; one is like 0000:01:00.0")
    }
}

impl core::error::Error for NoPciAddress {}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for PciAddress {
    type Err = NoPciAddress;

    fn from_str(text: &str) -> Result<Self, NoPciAddress> {
        let (domain, rest) = match text.matches(':').count() {
            1 => ("0", text),
            2 => text.split_once(':').ok_or(NoPciAddress)?,
            _ => return Err(NoPciAddress),
        };
        let (bus, rest) = rest.split_once(':').ok_or(NoPciAddress)?;
        let (device, function) = rest.split_once('.').ok_or(NoPciAddress)?;
        let hex = |digits: &str, most_digits: usize, most: u32| {
            let fits = (1..=most_digits).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            u32::from_str_radix(digits, 16).ok().filter(|n| fits && *n <= most).ok_or(NoPciAddress)
        };
        Ok(PciAddress {
            domain: hex(domain, 8, u32::MAX)?,
            bus: hex(bus, 2, 0xff)? as u8,
            device: hex(device, 2, 31)? as u8,
            function: hex(function, 1, 7)? as u8,
        })
    }
}

#[cfg(test)]
mod address_tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn addresses_are_read_as_linux_writes_them() {
        let address = PciAddress { domain: 0, bus: 0x3b, device: 0x1f, function: 7 };
        assert_eq!("0000:3b:1f.7".parse(), Ok(address));
        assert_eq!("3b:1f.7".parse(), Ok(address));
        assert_eq!(address.to_string(), "0000:3b:1f.7");
        let of_vmd = PciAddress { domain: 0x10000, bus: 1, device: 0, function: 0 };
        assert_eq!("10000:01:00.0".parse(), Ok(of_vmd));
        assert_eq!(of_vmd.to_string(), "10000:01:00.0");
        for bad in [
            "",
            "01",
            "01:00",
            "0000:01:00",
            "01:20.0",
            "01:00.8",
            "01:+1.0",
            "x:01:00.0",
            "0:0:0:0.0",
            "01:00.",
            "001:00.0",
        ] {
            assert_eq!(bad.parse::<PciAddress>(), Err(NoPciAddress), "{bad}");
        }
    }
}
