//! What a controller's host has not read yet of what happened to its reservations (base 2.0, 5.16.1.27).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use weir_spec::nvme::reservation::{NotificationType, ReservationNotification};
use zerocopy::little_endian::{U32, U64};

/// Notifications that a controller keeps; the counts of those that are read tell of others.
pub(crate) const NOTICES_MAX: usize = 255;

/// What a controller's host has not read yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notices {
    count: u64,
    waiting: VecDeque<(u64, NotificationType, u32)>,
    /// By namespace: notifications that its host does not want (feature 82h).
    masks: Vec<(u32, u32)>,
}

impl Notices {
    /// Nothing waits to be read, and nothing is unwanted.
    pub fn is_plain(&self) -> bool {
        self.waiting.is_empty() && self.masks.iter().all(|(_, mask)| *mask == 0)
    }

    /// The notifications of a namespace that are not wanted.
    pub fn mask(&self, nsid: u32) -> u32 {
        self.masks.iter().find(|(ns, _)| *ns == nsid).map_or(0, |(_, mask)| *mask)
    }

    pub fn set_mask(&mut self, nsid: u32, mask: u32) {
        self.masks.retain(|(ns, _)| *ns != nsid);
        if mask != 0 {
            self.masks.push((nsid, mask));
        }
    }

    /// Whether it was wanted.
    pub fn note(&mut self, nsid: u32, what: NotificationType) -> bool {
        if self.mask(nsid) & 1 << what.0 != 0 {
            return false;
        }
        // 0 says that there is none.
        self.count = self.count.checked_add(1).unwrap_or(1);
        if self.waiting.len() == NOTICES_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back((self.count, what, nsid));
        true
    }

    /// The log page as it is now.
    pub fn page(&self) -> ReservationNotification {
        let Some((count, what, nsid)) = self.waiting.front() else { return ReservationNotification::default() };
        ReservationNotification {
            count: U64::new(*count),
            kind: what.0,
            available: (self.waiting.len() - 1) as u8,
            nsid: U32::new(*nsid),
            ..Default::default()
        }
    }

    /// The oldest was read; whether there are more.
    pub fn was_read(&mut self) -> bool {
        self.waiting.pop_front();
        !self.waiting.is_empty()
    }
}
