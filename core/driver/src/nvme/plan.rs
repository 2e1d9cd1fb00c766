//! What a host wants of a controller, and where in memory it puts things.

use super::PAGE;
use alloc::vec::Vec;
use core::ops::Range;
use weir_spec::nvme::Sqe;
use weir_spec::nvme::feature::Arbitration;
use weir_units::Class;

/// An I/O queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlan {
    /// Requests that may be in flight; the rings have one entry more.
    pub depth: u32,
    /// QPRIO of its submission queue (base 2.0, 5.5); counts only where CC.AMS is not round robin.
    pub priority: Class,
}

/// What is wanted. Addresses follow from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerPlan {
    /// The first address; page-aligned.
    pub base: u64,
    /// CC.AMS ([`weir_spec::nvme::register::ams`]).
    pub ams: u32,
    /// Set Features 01h after the bring-up, if given.
    pub arbitration: Option<Arbitration>,
    /// Vendor feature C1h after the bring-up, if given: bytes a round of high, medium and low.
    pub quanta: Option<[u32; 3]>,
    /// Shadow doorbells, where the controller has them (base 2.0, 5.8): one that is emulated is told of new commands by memory.
    pub shadow_doorbells: bool,
    /// Completion queues raise an interrupt, each by the vector of its own number (base 2.0, 5.4: IEN, IV).
    pub interrupts: bool,
    /// The namespace.
    pub nsid: u32,
    /// I/O queue pairs, numbered from 1.
    pub queues: Vec<QueuePlan>,
    /// Bytes of each request's buffer.
    pub buffer: u32,
}

/// Entries of the admin rings.
pub(crate) const ADMIN_ENTRIES: u32 = 32;

const fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE) * PAGE
}

/// Addresses of one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueLayout {
    pub sq: u64,
    pub cq: u64,
    pub ranges: u64,
    pub lists: u64,
    pub buffers: u64,
    /// Bytes from one buffer to the next.
    pub stride: u64,
    pub end: u64,
}

impl ControllerPlan {
    /// One queue pair of `depth` on namespace 1, round robin.
    pub fn new(base: u64, depth: u32, buffer: u32) -> Self {
        let queues = alloc::vec![QueuePlan { depth, priority: Class::Medium }];
        ControllerPlan {
            base,
            ams: 0,
            arbitration: None,
            quanta: None,
            shadow_doorbells: false,
            interrupts: false,
            nsid: 1,
            queues,
            buffer,
        }
    }

    pub(crate) fn admin_sq(&self) -> u64 {
        self.base
    }

    pub(crate) fn admin_cq(&self) -> u64 {
        self.base + PAGE
    }

    /// The record of the admin queue: behind its submission ring, in the same page.
    pub(crate) fn record(&self) -> u64 {
        self.base + u64::from(ADMIN_ENTRIES) * size_of::<Sqe>() as u64
    }

    pub(crate) fn page(&self) -> u64 {
        self.base + 2 * PAGE
    }

    /// The page of shadow doorbells; that of event indexes follows it.
    pub(crate) fn shadow(&self) -> u64 {
        self.base + 3 * PAGE
    }

    /// Both pages, which all queues use.
    pub fn shadow_pages(&self) -> Range<u64> {
        self.shadow()..self.first()
    }

    /// Where the first queue lies.
    fn first(&self) -> u64 {
        self.base + if self.shadow_doorbells { 5 } else { 3 } * PAGE
    }

    /// Addresses of the queue at that place, counted from 0.
    pub(crate) fn queue(&self, index: usize) -> QueueLayout {
        let mut sq = self.first();
        let mut layout = self.queue_at(sq, QueuePlan { depth: 0, priority: Class::Medium });
        for queue in self.queues.iter().take(index + 1) {
            layout = self.queue_at(sq, *queue);
            sq = layout.end;
        }
        layout
    }

    fn queue_at(&self, sq: u64, queue: QueuePlan) -> QueueLayout {
        let depth = u64::from(queue.depth);
        let entries = depth + 1;
        let cq = sq + pages(entries * 64);
        let ranges = cq + pages(entries * 16);
        let lists = ranges + pages(depth * 16);
        let stride = pages(u64::from(self.buffer));
        // A buffer of up to two pages needs no list.
        let list = if stride > 2 * PAGE { PAGE } else { 0 };
        let buffers = lists + depth * list;
        QueueLayout { sq, cq, ranges, lists, buffers, stride, end: buffers + depth * stride }
    }

    /// Bytes of memory from the base on that it takes, zero at first.
    pub fn memory(&self) -> u64 {
        let end = match self.queues.len() {
            0 => self.first(),
            n => self.queue(n - 1).end,
        };
        end - self.base
    }
}

const _: () = assert!(ADMIN_ENTRIES as u64 * 64 + 64 <= PAGE, "the admin rings have a page each, one with the record");
const _: () = assert!(ADMIN_ENTRIES.is_power_of_two(), "counts wrap at a multiple of it");
