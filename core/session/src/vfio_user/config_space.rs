//! Configuration space: what can be read, which bits can be written, and what a write means.
//!
//! ```text
//!   00h header   40h power management   50h PCI Express   90h MSI-X   100h device serial number
//! ```

use super::{BAR0, DeviceShape, PENDING, TABLE};
use alloc::boxed::Box;
use weir_spec::pci::{
    CLASS_NVME, CONFIG_SPACE, Command, EXTENDED, bar, capability, express, extended, header, msix, power, status,
};

/// Vendor and device of the function. PCI-SIG has given Weir no number; nobody has this one.
pub const VENDOR_ID: u16 = 0x5745;
/// See [`VENDOR_ID`].
pub const DEVICE_ID: u16 = 0x0001;

const POWER: usize = 0x40;
const EXPRESS: usize = 0x50;
const MSIX: usize = 0x90;

const _: () = assert!(POWER + power::LEN <= EXPRESS && EXPRESS + express::LEN <= MSIX && MSIX + msix::LEN <= EXTENDED);

/// What a write to configuration space set off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// A function level reset was asked for.
    pub reset: bool,
    /// Message control of MSI-X was written.
    pub msix: bool,
}

#[derive(Debug)]
pub(super) struct ConfigSpace {
    bytes: Box<[u8]>,
    /// Bits that a write changes.
    writable: Box<[u8]>,
    /// What it is after a reset.
    initial: Box<[u8]>,
}

impl ConfigSpace {
    pub fn new(shape: &DeviceShape) -> Self {
        let zeroes = || alloc::vec![0u8; CONFIG_SPACE].into_boxed_slice();
        let mut space = Self { bytes: zeroes(), writable: zeroes(), initial: zeroes() };
        space.put16(header::VENDOR, VENDOR_ID, 0);
        space.put16(header::DEVICE, DEVICE_ID, 0);
        let command = Command(0).with_memory(1).with_master(1).with_parity(1).with_serr(1).with_intx_disable(1);
        space.put16(header::COMMAND, 0, command.0);
        space.put16(header::STATUS, status::CAPABILITIES, 0);
        space.put32(header::REVISION, CLASS_NVME << 8 | 1, 0);
        space.writable[header::CACHE_LINE] = 0xff;
        space.put_bar(0, BAR0);
        if shape.buffer != 0 {
            space.put_bar(2, shape.buffer.next_power_of_two().max(4096));
        }
        space.put16(header::SUBSYSTEM_VENDOR, VENDOR_ID, 0);
        space.put16(header::SUBSYSTEM, DEVICE_ID, 0);
        space.bytes[header::CAPABILITIES] = POWER as u8;
        space.writable[header::INTERRUPT_LINE] = 0xff;
        space.put_power();
        space.put_express();
        space.put_msix(shape.vectors);
        space.put_serial(shape.serial);
        space.initial = space.bytes.clone();
        space
    }

    fn put16(&mut self, at: usize, value: u16, writable: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 2].copy_from_slice(&writable.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32, writable: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self.writable[at..at + 4].copy_from_slice(&writable.to_le_bytes());
    }

    /// A 64-bit memory BAR; it answers all ones with its size because the bits below that cannot be written.
    fn put_bar(&mut self, index: usize, len: u64) {
        let at = header::BARS + index * 4;
        let mask = !(len - 1);
        self.put32(at, bar::MEMORY_64, mask as u32 & !bar::FLAGS);
        self.put32(at + 4, 0, (mask >> 32) as u32);
    }

    fn put_power(&mut self) {
        self.put16(POWER, u16::from(capability::POWER) | (EXPRESS as u16) << 8, 0);
        self.put16(POWER + power::PMC, power::VERSION, 0);
        self.put16(POWER + power::PMCSR, power::NO_SOFT_RESET, power::STATE);
    }

    fn put_express(&mut self) {
        let at = |register: usize| EXPRESS + register;
        self.put16(EXPRESS, u16::from(capability::EXPRESS) | (MSIX as u16) << 8, 0);
        self.put16(at(express::CAPABILITIES), express::VERSION_2_ENDPOINT, 0);
        self.put32(at(express::DEVICE_CAPABILITIES), express::ROLE_BASED_ERRORS | express::FLR, 0);
        self.put16(at(express::DEVICE_CONTROL), express::DEVICE_CONTROL_RESET, 0x7fff);
        // The link is as that of the drives of its time: 4 lanes at 8 GT/s.
        let link = express::link(3, 4);
        self.put32(at(express::LINK_CAPABILITIES), link, 0);
        self.put16(at(express::LINK_CONTROL), 0, 0x0fc3);
        self.put16(at(express::LINK_STATUS), link as u16, 0);
        self.put32(at(express::DEVICE_CAPABILITIES_2), 0, 0);
        self.put16(at(express::DEVICE_CONTROL_2), 0, 0);
        self.put32(at(express::LINK_CAPABILITIES_2), 0b0111 << 1, 0);
        self.put16(at(express::LINK_CONTROL_2), 3, 0);
    }

    fn put_msix(&mut self, vectors: u16) {
        self.put16(MSIX, capability::MSIX.into(), 0);
        let control = msix::Control(0).with_size(vectors.max(1) - 1);
        self.put16(MSIX + msix::CONTROL, control.0, msix::Control(0).with_function_mask(1).with_enable(1).0);
        self.put32(MSIX + msix::TABLE, TABLE as u32, 0);
        self.put32(MSIX + msix::PENDING, PENDING as u32, 0);
    }

    fn put_serial(&mut self, serial: u64) {
        self.put32(EXTENDED, extended::header(extended::SERIAL_NUMBER, 1, 0), 0);
        self.put32(EXTENDED + 4, serial as u32, 0);
        self.put32(EXTENDED + 8, (serial >> 32) as u32, 0);
    }

    fn get16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Reads; the range is inside.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.bytes[offset..offset + into.len()]);
    }

    /// Writes; the range is inside. Bits that cannot be written stay.
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Written {
        let touches = |at: usize, len: usize| offset < at + len && offset + from.len() > at;
        let byte = |at: usize| if touches(at, 1) { from[at - offset] } else { 0 };
        // Bit 15 of device control is never stored: it reads as 0.
        let control = EXPRESS + express::DEVICE_CONTROL;
        let reset = byte(control + 1) & (express::INITIATE_FLR >> 8) as u8 != 0;
        for (i, new) in from.iter().enumerate() {
            let (old, writable) = (self.bytes[offset + i], self.writable[offset + i]);
            self.bytes[offset + i] = old & !writable | new & writable;
        }
        Written { reset, msix: touches(MSIX + msix::CONTROL, 2) }
    }

    /// As it is read.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes over what another one had where it can be written.
    pub fn read_saved(&mut self, bytes: &[u8]) {
        for ((byte, saved), writable) in self.bytes.iter_mut().zip(bytes).zip(&self.writable) {
            *byte = *byte & !writable | saved & writable;
        }
    }

    /// As at power-on.
    pub fn reset(&mut self) {
        self.bytes.copy_from_slice(&self.initial);
    }

    /// In D3hot memory does not answer.
    pub fn is_asleep(&self) -> bool {
        self.get16(POWER + power::PMCSR) & power::STATE == power::D3HOT
    }

    /// Message control of MSI-X.
    pub fn msix_control(&self) -> msix::Control {
        msix::Control(self.get16(MSIX + msix::CONTROL))
    }
}
