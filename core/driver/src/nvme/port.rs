//! How the machines here reach a controller.

use weir_spec::nvme::Cqe;
use weir_spec::nvme::register::Doorbell;

/// Registers, doorbells and the memory that host and controller share. Everything answers at once; a link that is gone
/// reads as all ones, as PCIe does.
pub trait Port {
    /// Reads a register of `size` bytes (4 or 8).
    fn register(&mut self, offset: u32, size: u8) -> u64;
    /// Writes a register of `size` bytes.
    fn set_register(&mut self, offset: u32, value: u64, size: u8);
    /// Rings a doorbell; what was written to memory before is visible to the controller then.
    fn doorbell(&mut self, doorbell: Doorbell, value: u32);
    /// Stores a shadow doorbell, and then loads its event index, a page behind it; what was written to memory before is visible to who sees
    /// the value. By default the register is to be written for each value as well.
    fn shadow_doorbell(&mut self, address: u64, value: u32) -> u32 {
        self.write(address, &value.to_le_bytes());
        value.wrapping_sub(1)
    }
    /// Reads memory.
    fn read(&mut self, address: u64, into: &mut [u8]);
    /// Writes memory.
    fn write(&mut self, address: u64, bytes: &[u8]);
    /// Writes a submission queue entry ([`Sqe::words`](weir_spec::nvme::Sqe::words)).
    fn put(&mut self, address: u64, entry: &[u64; 8]);
    /// A completion queue entry, if its phase tag is `phase`; the tag is read before the rest.
    fn take(&mut self, address: u64, phase: bool) -> Option<Cqe>;
}
