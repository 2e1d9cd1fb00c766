//! What drives ask of their vfio-user clients: entries, completions, data.

use super::Door;
use super::conn::Conn;
use crate::tokens::index;
use weir_controller::{DataPointer, Owner, RingCompletion, Tag};
use weir_spec::nvme::{Cqe, Status};

impl Door {
    #[inline]
    fn conn(&mut self, owner: Owner) -> Result<&mut Conn, Status> {
        let export = self.exports.get_mut(index(owner)).and_then(Option::as_mut);
        export.and_then(|e| e.conn.as_deref_mut()).ok_or(Status::DATA_TRANSFER_ERROR)
    }

    /// Reads a submission queue entry.
    ///
    /// # Errors
    /// It is not in the client's memory.
    #[inline]
    pub fn fetch(&mut self, owner: Owner, address: u64) -> Result<[u64; 8], Status> {
        self.conn(owner)?.fetch(address)
    }

    /// Writes a completion queue entry, and notes the vector that is to be signalled.
    ///
    /// # Errors
    /// It is not in the client's memory.
    #[inline]
    pub fn post(&mut self, owner: Owner, address: u64, vector: Option<u16>, cqe: &Cqe) -> Result<(), Status> {
        if self.conn(owner)?.post(address, vector, cqe)? {
            self.dirty.push(index(owner) as u16);
        }
        Ok(())
    }

    /// A command leaves its ring.
    #[inline]
    pub fn take(&mut self, owner: Owner, qid: u16, entry: &[u64; 8], head: u32) -> Tag {
        self.conn(owner).map_or(Tag(0), |conn| conn.take(qid, entry, head))
    }

    /// The outcome of a command is known before it is complete.
    pub fn decide(&mut self, owner: Owner, tag: Tag, cqe: &Cqe) {
        if let Ok(conn) = self.conn(owner) {
            conn.decide(tag, cqe);
        }
    }

    /// As [`post`](Self::post), of a command that was [taken](Self::take).
    ///
    /// # Errors
    /// It is not in the client's memory.
    #[inline]
    pub fn complete(
        &mut self,
        owner: Owner,
        address: u64,
        vector: Option<u16>,
        cqe: &Cqe,
        taken: RingCompletion,
    ) -> Result<(), Status> {
        if self.conn(owner)?.complete(address, vector, cqe, taken)? {
            self.dirty.push(index(owner) as u16);
        }
        Ok(())
    }

    /// Notes a vector that is to be signalled.
    pub fn interrupt(&mut self, owner: Owner, vector: u16) {
        if self.conn(owner).is_ok_and(|conn| conn.due(vector)) {
            self.dirty.push(index(owner) as u16);
        }
    }

    /// Copies the host's bytes of a command.
    ///
    /// # Errors
    /// Its data pointer is wrong, or they are not in the client's memory.
    #[inline]
    pub fn read_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, into: &mut [u8]) -> Result<(), Status> {
        self.conn(owner)?.read_data(data, offset, into)
    }

    /// Copies bytes that were read to the host.
    ///
    /// # Errors
    /// The command's data pointer is wrong, or they have no place in the client's memory.
    #[inline]
    pub fn write_data(&mut self, owner: Owner, data: &DataPointer, offset: u32, from: &[u8]) -> Result<(), Status> {
        let conn = self.conn(owner)?;
        let written = conn.write_data(data, offset, from);
        if conn.asks() {
            self.soil(index(owner) as u16);
        }
        written
    }
}
