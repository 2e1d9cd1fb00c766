//! Flexible data placement (base 2.1, 8.1.10) on an inside that keeps handles apart: which handle a write goes through, I/O
//! management, and the events that hosts asked for. The handles themselves are [`weir_flash::Fdp`]'s.
//!
//! Every namespace has all reclaim unit handles: placement handle n is reclaim unit handle n. All namespaces are in endurance
//! group 1, whose data placement is always enabled.

use crate::queues::command::{Command, flag};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use weir_flash::Fdp;
use weir_spec::nvme::fdp::{self, EVENTS_MAX, Event, event_type};

/// The one endurance group.
pub(crate) const GROUP: u16 = 1;
/// Event types that this drive knows; bit n of a filter is the nth.
pub(crate) const EVENTS: [u8; 4] = [
    event_type::NOT_FULLY_WRITTEN,
    event_type::INVALID_PLACEMENT_IDENTIFIER,
    event_type::MEDIA_REALLOCATED,
    event_type::IMPLICITLY_MODIFIED,
];

/// What the controller adds to the inside's handles.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    /// Upper bits of a placement identifier that name the group.
    pub rgif: u8,
    pub groups: u16,
    pub handles: u8,
    /// By handle: events that are noted.
    pub filters: Vec<u8>,
    /// The newest events, oldest first.
    pub host_events: VecDeque<Event>,
    pub controller_events: VecDeque<Event>,
}

impl Placement {
    pub fn new(fdp: &Fdp) -> Self {
        let config = fdp.config();
        Self {
            rgif: (u16::BITS - config.groups.saturating_sub(1).leading_zeros()) as u8,
            groups: config.groups,
            handles: config.handles,
            filters: vec![0; config.handles.into()],
            host_events: VecDeque::new(),
            controller_events: VecDeque::new(),
        }
    }

    /// Placement identifiers that one command may name.
    pub fn identifiers(&self) -> u32 {
        u32::from(self.groups) * u32::from(self.handles)
    }

    /// Group and handle of a placement identifier.
    pub fn placed(&self, pid: u16) -> Option<(u16, u8)> {
        let (group, handle) = fdp::placed(self.rgif, pid);
        let known = group < self.groups && handle < self.handles.into();
        known.then_some((group, handle as u8))
    }

    /// The handle's placement identifier in a group.
    pub fn identifier(&self, group: u16, handle: u8) -> u16 {
        fdp::placement_identifier(self.rgif, group, handle.into())
    }

    /// Whether events of that type are noted for a handle; for data of several handles, whether they are for any.
    pub fn wants(&self, kind: u8, handle: Option<u8>) -> bool {
        let bit = EVENTS.iter().position(|e| *e == kind).map_or(0, |i| 1 << i);
        match handle {
            Some(handle) => self.filters.get(usize::from(handle)).is_some_and(|f| f & bit != 0),
            None => self.filters.iter().any(|f| f & bit != 0),
        }
    }

    pub fn note(&mut self, event: Event) {
        let log = if event.kind < 0x80 { &mut self.host_events } else { &mut self.controller_events };
        if log.len() == EVENTS_MAX {
            log.pop_front();
        }
        log.push_back(event);
    }
}

/// A write's directive: its placement identifier, where it has one.
pub(crate) fn identifier(command: &Command) -> Option<u16> {
    command.is(flag::PLACED).then_some((command.blocks >> 16) as u16)
}
