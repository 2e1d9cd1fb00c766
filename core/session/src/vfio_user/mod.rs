//! The server of vfio-user: a PCIe NVMe drive as a virtual machine monitor sees it.
//!
//! Implements the vfio-user protocol 0.1 as documented with QEMU 10.1, and of the PCI function everything that is not the NVMe
//! controller itself. Pure: the caller moves the socket's bytes, owns the descriptors, maps the memory and has the controller.
//!
//! ```text
//!   socket ──► Inbox ──Message──► VfioUserDevice::message ──Action──► the door (reply, write a register, take an eventfd, reset)
//!                                   │ owns     ▲
//!                 ┌─────────────────┼──────────┴── Port: registers to be read, the memory buffer, DMA regions to be mapped
//!                 ▼                 ▼
//!           ConfigSpace           Msix ◄── VfioUserDevice::fire(vector) when completions were posted ── Subsystem
//!      (BARs, PM, PCIe, FLR)  (table, masks, pending)
//! ```
//! BAR 0 is 64 KiB: the controller's registers, from [`DOORBELLS`] on the doorbells (which a client may map where the server
//! offers it), the MSI-X table at [`TABLE`] and the pending bits at [`PENDING`]. BAR 2 is the controller memory buffer, where the
//! drive has one; clients may map all of it.
//!
//! Interrupts: an eventfd for each MSI-X vector. A vector is masked by DEVICE_SET_IRQS, by its entry in the table once somebody
//! has written the entry's vector control (monitors that emulate the table never do), or by the function mask; what fires while
//! it is masked or has no eventfd is pending, and is signalled when that ends. There is no interrupt pin and no MSI.
//!
//! Reset (DEVICE_RESET, function level reset): configuration space, MSI-X table, masks and pending bits are as at power-on,
//! and the door resets the controller; DMA regions and eventfds stay.
//!
//! Regions without a descriptor are read and written by messages of the server's own ([`Requests`]), whose answers come among the
//! client's messages.
//!
//! Limits: [`MAX_REGIONS`] DMA regions of whole pages of 4 KiB, [`MAX_TRANSFER`] bytes a message. Left out, and refused with
//! ENOTSUP: migration and its dirty pages (DEVICE_FEATURE, MIG_DATA_*), region descriptors (DEVICE_GET_REGION_IO_FDS).

pub mod checkpoint;
mod config_space;
mod device;
mod dma;
mod inbox;
mod msix;
mod order;
mod requests;
mod saved;

#[cfg(test)]
mod saved_tests;
#[cfg(test)]
mod tests;

pub use config_space::{DEVICE_ID, VENDOR_ID};
pub use device::{Action, VfioUserDevice};
pub use dma::{DmaAccess, DmaRegion, MAX_REGIONS};
pub use inbox::{Inbox, Message, ProtocolError};
pub use msix::Msix;
pub use requests::{Answered, DmaTicket, Requests};
pub use saved::{Bell, Late, SavedClient, Unsent, VERSION as SAVED_VERSION, gathered};

use crate::memory::MapError;

/// Length of BAR 0.
pub const BAR0: u64 = 0x1_0000;
/// Where the doorbells begin in BAR 0.
pub const DOORBELLS: u64 = weir_spec::nvme::register::DOORBELLS as u64;
/// Where they end: behind those of 1024 I/O queue pairs and the admin queues, on a page.
pub const DOORBELLS_END: u64 = 0x4000;
/// Where the MSI-X table is in BAR 0.
pub const TABLE: u64 = 0x4000;
/// Where the MSI-X pending bits are in BAR 0.
pub const PENDING: u64 = 0xc000;
/// Most vectors: what fits between the two.
pub const MAX_VECTORS: u16 = ((PENDING - TABLE) / weir_spec::pci::msix::ENTRY as u64) as u16;
/// Most bytes that a client may ask to read or write with one message.
pub const MAX_TRANSFER: u32 = 64 << 10;
/// Fewest bytes that a client may take with one message. There are as many requests under way as identifiers at the most, and the bytes
/// of commands that are under way are bounded.
pub const LEAST_TRANSFER: u32 = 512;

const _: () = assert!(DOORBELLS + 8 * 1025 <= DOORBELLS_END);
const _: () = assert!(MAX_VECTORS <= weir_spec::pci::msix::MAX_VECTORS && MAX_VECTORS >= 1025);

/// A memory file of the device's that its client may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// The doorbells, at the same offsets as in BAR 0.
    Doorbells,
    /// The controller memory buffer, from its beginning.
    Buffer,
}

/// What a device shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceShape {
    /// MSI-X vectors, 1 to [`MAX_VECTORS`].
    pub vectors: u16,
    /// The client may map the doorbells.
    pub mapped_doorbells: bool,
    /// Length of the controller memory buffer, the whole of BAR 2; 0 for none.
    pub buffer: u64,
    /// Device serial number.
    pub serial: u64,
}

/// What a device reaches while it handles a message: the controller behind BAR 0 and BAR 2, and the memory that DMA goes to.
pub trait Port<F> {
    /// Reads `size` (4 or 8) bytes of a controller register at an offset in BAR 0.
    fn register(&mut self, offset: u32, size: u8) -> u64;
    /// Reads bytes of the controller memory buffer; the range is inside it.
    fn read_buffer(&mut self, offset: u64, into: &mut [u8]);
    /// Writes bytes of the controller memory buffer; the range is inside it.
    fn write_buffer(&mut self, offset: u64, from: &[u8]);
    /// Maps a DMA region; without a descriptor it is reached by messages only. It overlaps no other.
    ///
    /// # Errors
    /// What the system said; nothing is mapped then.
    fn map(&mut self, region: &DmaRegion, fd: Option<F>) -> Result<(), MapError>;
    /// Forgets a DMA region: nothing of it is accessed any more when this returns.
    fn unmap(&mut self, region: &DmaRegion);
}
