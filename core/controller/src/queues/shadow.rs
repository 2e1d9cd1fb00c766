//! Shadow doorbells (base 2.0, 5.8 and annex B.5): the host writes its tails and heads into a page of its memory, and the register
//! only if the value passes the event index that the controller has put into another page.
//!
//! ```text
//!  host:        shadow = new ──▶ fence ──▶ event index in [old, new)? ──yes──▶ register (a kick: its value is not looked at)
//!  controller:  poll: shadow changed? ──▶ serve          before it sleeps: event index ──▶ fence ──▶ shadow once more
//! ```
//! While its door polls, the controller leaves the event indexes where they are, so that a host rings once in a round of its
//! queue at the most. Only [`Subsystem::arm_shadow`] moves them up, and what the host has written until then it sees itself. The
//! admin queue rings its registers always (Linux never writes its shadow), and so do queues that the page has no room for.

use crate::host::{DataPointer, Host, Owner};
use weir_spec::nvme::Status;
use weir_spec::nvme::register::{DOORBELLS, Doorbell, doorbell_offset};

/// Where a controller's shadow doorbells are, by addresses of its host: a memory page each, indexed like the doorbells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Shadow {
    /// What the host writes.
    pub doorbells: u64,
    /// What the controller writes.
    pub event_indexes: u64,
    /// Queue identifiers below this have a place in the pages.
    pub queues: u16,
}

/// The two pages, which the host writes at any time. An index is that of the doorbell: `2 * QID`, and one more for the head of
/// a completion queue.
pub trait ShadowPages {
    /// Loads a shadow doorbell, acquiring.
    ///
    /// # Errors
    /// The page is not in host memory any more: the controller is fatal then.
    fn load(&mut self, index: u32) -> Result<u32, Status>;
    /// Stores an event index.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    fn store(&mut self, index: u32, value: u32) -> Result<(), Status>;
    /// A full fence: what was stored is visible before anything is loaded.
    fn fence(&mut self);
}

impl Shadow {
    /// Writes a value into both pages.
    pub fn put<H: Host>(&self, doorbell: Doorbell, value: u32, owner: Owner, host: &mut H) -> Result<(), Status> {
        let at = u64::from(doorbell_offset(doorbell) - DOORBELLS);
        for page in [self.doorbells, self.event_indexes] {
            host.write_data(owner, &DataPointer::prp(page + at, 0, 12, 4), 0, &value.to_le_bytes())?;
        }
        Ok(())
    }
}
