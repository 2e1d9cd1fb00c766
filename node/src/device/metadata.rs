//! I/O on blocks with metadata.

use super::backend::Backend;
use super::{Device, Executor};
use crate::kernel_io::KernelIo;
use crate::metadata_store::{Beside, Both};
use weir_controller::{Host, Io, Op, Owner, SlotId};
use weir_spec::nvme::Status;
use weir_sys::reactor::Reactor;

impl Executor<'_> {
    /// An I/O on blocks with metadata; `false` where there is none to be moved.
    #[cold]
    pub(super) fn carry_out_whole<H: Host>(&mut self, io: &Io, host: &mut H, reactor: &mut Reactor) -> bool {
        if io.owner == Owner(u32::MAX) {
            // The drive's own: whatever it writes, the metadata there is that of deallocated blocks.
            let changes = !matches!(io.op, Op::Read | Op::Compare | Op::Verify | Op::Flush);
            if let (true, Err(status)) = (changes, self.beside.erase(io.offset, io.len)) {
                self.complete(io.slot, status, host);
                return true;
            }
            return false;
        }
        let Some(both) = self.both(io.slot) else { return false };
        let status = match &mut *self.backend {
            Backend::Store(store) => Some(self.beside.serve(store, io, &both, host)),
            Backend::KernelIo(direct) => {
                let made = make_beside(self.beside, direct);
                made.err().or_else(|| direct.start_whole((*io, both), self.beside, self.machine, host, reactor))
            }
            Backend::Remote(_) | Backend::Volume(_) => Some(Status::INTERNAL_ERROR),
        };
        if let Some(status) = status {
            self.forget(io, status);
            self.complete(io.slot, status, host);
        }
        true
    }

    fn both(&self, slot: SlotId) -> Option<Both> {
        let (target, source) = (self.machine.metadata_of(slot).copied(), self.machine.source_of(slot).copied());
        Some(Both { metadata: target.or(source)?, source, target })
    }

    /// I/O on blocks with metadata of a file that waited for others of the same blocks.
    #[cold]
    pub(super) fn go_on_whole<H: Host>(&mut self, host: &mut H, reactor: &mut Reactor) {
        loop {
            let Backend::KernelIo(direct) = &mut *self.backend else { return };
            let Some((io, status)) = direct.next_whole(self.beside, self.machine, host, reactor) else { return };
            if let Some(status) = status {
                self.forget(&io, status);
                self.deadlines.complete_when_due((self.now, io.slot, status), self.machine, host, self.none);
            }
        }
    }
}

/// A file's metadata has a file, which becomes durable with it.
fn make_beside(beside: &mut Beside, direct: &mut KernelIo) -> Result<(), Status> {
    if !beside.is_made() {
        beside.make()?;
        beside.file().into_iter().for_each(|file| direct.sync_beside(file));
    }
    Ok(())
}

impl Device {
    /// Where namespaces have metadata, there is a file for it before the drive remembers that they have.
    pub(super) fn prepare_metadata(&mut self) {
        if let (true, Backend::KernelIo(direct)) = (self.machine.has_metadata(), &mut self.backend) {
            // A failure is the first command's as well, and said there.
            let _ = make_beside(&mut self.beside, direct);
        }
    }
}
