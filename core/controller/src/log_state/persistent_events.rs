//! The events of the persistent event log (base 2.0, 5.16.1.14): the newest 64 KiB of them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use weir_codec::{Damaged, Reader, Writer};
use weir_spec::nvme::log::lid;
use weir_spec::nvme::maintenance::{PersistentEventHeader, PersistentHeader, persistent};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

/// PELS: its size in 64 KiB.
pub(crate) const SIZE: u32 = 1;

/// Bytes of events, the head apart.
const BYTES_MAX: usize = ((SIZE as usize) << 16) - size_of::<PersistentHeader>();

/// What an event's data may have at the most.
const DATA_MAX: usize = 512 + 64;

/// Event types that there can be.
const KINDS: [u8; 11] = [
    persistent::SMART,
    persistent::FIRMWARE,
    persistent::TIMESTAMP,
    persistent::RESET,
    persistent::NAMESPACE,
    persistent::FORMAT_START,
    persistent::FORMAT_END,
    persistent::SANITIZE_START,
    persistent::SANITIZE_END,
    persistent::TELEMETRY,
    persistent::THERMAL,
];

/// The events.
#[derive(Clone, Debug, Default)]
pub(crate) struct PersistentEvents {
    /// Head and data of each, oldest first.
    events: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Contexts that were established.
    generation: u16,
}

impl PersistentEvents {
    /// Something of a type of [`persistent`] has happened, by that controller's doing; 0: by none's.
    pub fn note(&mut self, kind: u8, cntlid: u16, timestamp: u64, data: &[u8]) {
        debug_assert!(KINDS.contains(&kind) && data.len() <= DATA_MAX);
        let head = PersistentEventHeader {
            kind,
            revision: 1,
            header_length: 21,
            cntlid: U16::new(cntlid),
            timestamp: U64::new(timestamp),
            length: U16::new(data.len() as u16),
            ..Default::default()
        };
        self.push([head.as_bytes(), data].concat());
    }

    fn push(&mut self, event: Vec<u8>) {
        self.bytes += event.len();
        self.events.push_back(event);
        while self.bytes > BYTES_MAX {
            self.bytes -= self.events.pop_front().map_or(self.bytes, |event| event.len());
        }
    }

    /// A context is established: the page as it is now. `head` says what the drive says of itself.
    pub fn page(&mut self, head: PersistentHeader) -> Vec<u8> {
        self.generation = self.generation.wrapping_add(1);
        let length = size_of::<PersistentHeader>() + self.bytes;
        let mut head = PersistentHeader {
            lid: lid::PERSISTENT_EVENTS,
            tnev: U32::new(self.events.len() as u32),
            tll: U64::new(length as u64),
            revision: 2,
            header_length: U16::new(size_of::<PersistentHeader>() as u16 - 20),
            generation: U16::new(self.generation),
            ..head
        };
        for kind in KINDS {
            head.supported[usize::from(kind / 8)] |= 1 << (kind % 8);
        }
        // Newest first.
        head.as_bytes().iter().chain(self.events.iter().rev().flatten()).copied().collect()
    }

    /// What is remembered of them without power.
    pub fn save(&self, to: &mut Writer) {
        if !self.events.is_empty() {
            to.u16(self.generation);
            to.u16(self.events.len() as u16);
            self.events.iter().for_each(|event| to.bytes(event));
        }
    }

    /// Takes what [`save`](Self::save) has written.
    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Damaged> {
        self.generation = from.u16()?;
        for _ in 0..from.u16()? {
            let event = from.bytes()?;
            let length = event.get(22..24).and_then(|l| l.try_into().ok()).map(u16::from_le_bytes);
            if length.is_none_or(|l| usize::from(l) + size_of::<PersistentEventHeader>() != event.len()) {
                return Err(Damaged);
            }
            self.push(event.to_vec());
        }
        Ok(())
    }
}
