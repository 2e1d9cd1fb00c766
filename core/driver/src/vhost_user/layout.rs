//! Where a queue's parts lie in the memory that it shares with the device.

use super::negotiate::Negotiated;
use weir_spec::virtqueue::{feature, split};

/// Ring addresses of a queue, in guest addresses (which are the front end's own here).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAddresses {
    /// Descriptor table, or packed ring.
    pub descriptors: u64,
    /// Available ring, or the driver's event structure.
    pub driver: u64,
    /// Used ring, or the device's event structure.
    pub device: u64,
}

/// The plan of one queue's memory, the same for all queues of a device.
///
/// ```text
///   descriptors │ driver area │ device area │ a line per slot │ an indirect table per slot │ a buffer per slot
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLayout {
    /// Requests in flight.
    pub depth: u32,
    /// Bytes of a buffer.
    pub max_io: u32,
    /// Entries of the ring.
    pub size: u16,
    /// Whether the ring is packed.
    pub packed: bool,
    /// Whether EVENT_IDX was negotiated.
    pub event_idx: bool,
    /// Whether requests take one ring entry and a table instead of three entries.
    pub indirect: bool,
    driver: u64,
    device: u64,
    lines: u64,
    tables: u64,
    buffers: u64,
    bytes: u64,
}

/// Bytes of a slot's line: header at 0, range segment at 16, status at 32.
pub(super) const LINE: u64 = 64;
/// Offset of the range segment in a slot's line.
pub(super) const RANGE: u64 = 16;
/// Offset of the status in a slot's line.
pub(super) const STATUS: u64 = 32;
/// Bytes of a slot's indirect table: three descriptors, padded to a line.
pub(super) const TABLE: u64 = 64;
/// Descriptors of a request: header, data, status.
pub(super) const PER_REQUEST: u16 = 3;

impl QueueLayout {
    /// Most requests in flight in a queue.
    pub const MAX_DEPTH: u32 = 4096 / PER_REQUEST as u32;

    /// The plan for that many requests of that length; `depth` is 1 to [`QueueLayout::MAX_DEPTH`].
    pub fn new(depth: u32, max_io: u32, negotiated: &Negotiated) -> Self {
        let has = |bit| negotiated.features & bit != 0;
        let depth = depth.clamp(1, Self::MAX_DEPTH);
        let (packed, event_idx) = (has(feature::RING_PACKED), has(feature::EVENT_IDX));
        let indirect = has(feature::INDIRECT_DESC);
        let entries = if indirect { depth } else { depth * u32::from(PER_REQUEST) };
        let size = entries.next_power_of_two().max(2) as u16;
        let mut end = 0;
        let mut place = |len: usize, align: u64| {
            let at = u64::next_multiple_of(end, align);
            end = at + len as u64;
            at
        };
        place(split::table_bytes(size), 64);
        // Each on lines of its own: one side writes what the other reads.
        let driver = place(if packed { 4 } else { split::avail_bytes(size, true) }, 128);
        let device = place(if packed { 4 } else { split::used_bytes(size, true) }, 128);
        let lines = place(depth as usize * LINE as usize, 128);
        let tables = place(if indirect { depth as usize * TABLE as usize } else { 0 }, 128);
        let buffers = place(depth as usize * max_io as usize, 4096);
        let bytes = end;
        Self { depth, max_io, size, packed, event_idx, indirect, driver, device, lines, tables, buffers, bytes }
    }

    /// Bytes of memory it takes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes before the buffers: what the queue itself accesses.
    pub(super) fn head_bytes(&self) -> u64 {
        self.buffers
    }

    /// The rings of a queue whose memory begins at `base`.
    pub fn addresses(&self, base: u64) -> QueueAddresses {
        QueueAddresses { descriptors: base, driver: base + self.driver, device: base + self.device }
    }

    /// Offset of a slot's line.
    pub(super) fn line(&self, slot: u32) -> u64 {
        self.lines + u64::from(slot) * LINE
    }

    /// Offset of a slot's indirect table.
    pub(super) fn table(&self, slot: u32) -> u64 {
        self.tables + u64::from(slot) * TABLE
    }

    /// Offset of a slot's buffer.
    pub fn buffer(&self, slot: u32) -> u64 {
        self.buffers + u64::from(slot) * u64::from(self.max_io)
    }
}
