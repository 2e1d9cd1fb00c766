//! A storage node's namespace: bytes, and associations of clients. A client that keeps none alive for [`KEEP_ALIVE`] has none.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use weir_units::Nanos;

/// An association ends when nothing was heard of its client for so long.
pub const KEEP_ALIVE: Nanos = Nanos::from_millis(300);

/// What a drive has is kept in pages of that size.
const PAGE: usize = 4096;

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Drive {
    /// What was written; anything else has something that nobody may read.
    pages: BTreeMap<u64, Box<[u8]>>,
    /// Associations by client's life: their numbers, and when each was last heard of.
    associations: BTreeMap<u64, (u64, Nanos)>,
    last: u64,
    /// It does not answer until then.
    pub down_until: Nanos,
}

/// Bytes that nobody has written.
fn former(place: u64) -> u8 {
    (place / 512) as u8 | 1
}

impl Drive {
    /// A keep-alive, or the beginning of an association: its number.
    pub fn hear(&mut self, client: u64, now: Nanos) -> u64 {
        let number = match self.associations.get(&client) {
            Some((number, _)) if self.is_associated(client, *number, now) => *number,
            _ => {
                self.last += 1;
                self.last
            }
        };
        self.associations.insert(client, (number, now));
        number
    }

    /// Until when an association lives if nothing more is heard of the client.
    pub fn lives_until(&self, client: u64, number: u64) -> Option<Nanos> {
        let (_, at) = self.associations.get(&client).filter(|(known, _)| *known == number)?;
        Some(at.saturating_add(KEEP_ALIVE))
    }

    /// Whether a client has that association still.
    pub fn is_associated(&self, client: u64, number: u64, now: Nanos) -> bool {
        self.lives_until(client, number).is_some_and(|until| now < until)
    }

    /// The association ends, from the client's side.
    pub fn leave(&mut self, client: u64) {
        self.associations.remove(&client);
    }

    /// The process is started again: its content is as it was.
    pub fn restart(&mut self) {
        self.associations.clear();
    }

    fn page(&mut self, number: u64) -> &mut [u8] {
        self.pages
            .entry(number)
            .or_insert_with(|| (0..PAGE as u64).map(|at| former(number * PAGE as u64 + at)).collect())
    }

    /// Writes bytes.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let place = offset + at as u64;
            let within = (place % PAGE as u64) as usize;
            let len = (PAGE - within).min(bytes.len() - at);
            self.page(place / PAGE as u64)[within..within + len].copy_from_slice(&bytes[at..at + len]);
            at += len;
        }
    }

    /// Reads bytes.
    pub fn read(&mut self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let place = offset + bytes.len() as u64;
            let within = (place % PAGE as u64) as usize;
            let part = (PAGE - within).min(len - bytes.len());
            bytes.extend_from_slice(&self.page(place / PAGE as u64)[within..within + part]);
        }
        bytes
    }
}
