//! The port to the other side: where entries are fetched, completions go, and a command's bytes are.

use weir_spec::nvme::entry::SglDescriptor;
use weir_spec::nvme::{Cqe, Sqe, Status};

/// Whose queue it is: opaque to the controller, chosen by the door, given back in every call and effect. The door's
/// kind sits in the top four bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner(pub u32);

/// A message-model command's place in its door's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tag(pub u32);

/// Where the host's bytes of a command are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// The door knows.
    Tag(Tag),
    /// Host memory by physical region pages (base 2.0, 4.1.1).
    Prp {
        /// PRP entry 1.
        prp1: u64,
        /// PRP entry 2.
        prp2: u64,
    },
    /// Host memory by a scatter gather list (base 2.0, 4.1.2).
    Sgl(SglDescriptor),
}

/// What the controller asks of the side that the commands come from. Everything answers at once; an error is the
/// status that the command then fails with (a failed `fetch` or `post` is fatal for the controller).
pub trait Host {
    /// Ring queues: reads a submission queue entry, each byte once.
    fn fetch(&mut self, owner: Owner, address: u64) -> Result<Sqe, Status>;
    /// Ring queues: writes a completion queue entry, the dword with the phase tag last and released, then signals the
    /// interrupt vector if there is one.
    fn post(&mut self, owner: Owner, address: u64, vector: Option<u16>, cqe: &Cqe) -> Result<(), Status>;
    /// Message queues: the command is complete. Called exactly once for every tag, unless its queue dies first.
    fn respond(&mut self, owner: Owner, tag: Tag, cqe: &Cqe);
    /// Host → drive: bytes `offset..offset + into.len()` of the command's data.
    fn read_data(&mut self, owner: Owner, data: &Data, offset: u32, into: &mut [u8]) -> Result<(), Status>;
    /// Drive → host.
    fn write_data(&mut self, owner: Owner, data: &Data, offset: u32, from: &[u8]) -> Result<(), Status>;
    /// Drive → host, `len` bytes from a medium that has none (null): zeroes, unless the host's buffer is the caller's own
    /// memory and may keep what it holds.
    fn write_nothing(&mut self, owner: Owner, data: &Data, len: u32) -> Result<(), Status> {
        const ZEROES: [u8; 4096] = [0; 4096];
        let mut at = 0;
        while at < len {
            let part = (len - at).min(ZEROES.len() as u32);
            self.write_data(owner, data, at, &ZEROES[..part as usize])?;
            at += part;
        }
        Ok(())
    }
}
