//! I/O on a medium that answers at once.

use crate::transfer;
use weir_controller::{Data, Host, Io, Op};
use weir_spec::nvme::Status;
use weir_sys::media::Store;

/// One I/O on a medium that answers at once.
#[inline]
pub(super) fn serve<H: Host>(store: &mut Store, io: &Io, host: &mut H) -> Status {
    let result = match io.op {
        Op::Read if store.is_nothing() => host.write_nothing(io.owner, &io.data, io.skip, io.len),
        Op::Read => store.read(io.offset, io.len, |at, bytes| host.write_data(io.owner, &io.data, io.skip + at, bytes)),
        Op::Write => store.write(io.offset, io.len, |at, bytes| io.read_data(host, at, bytes)),
        Op::Verify => store.read(io.offset, io.len, |_, _| Ok(())),
        Op::Compare => store.read(io.offset, io.len, |at, bytes| transfer::compare(io, at, bytes, host)),
        Op::WriteZeroes { deallocate: false } => store.zero(io.offset, io.len),
        Op::WriteZeroes { deallocate: true } | Op::Deallocate => store.deallocate(io.offset, io.len),
        Op::Flush => Ok(()),
        Op::Copy => copy(store, io),
    };
    result.err().unwrap_or(Status::SUCCESS)
}

/// Bytes of the media to another place of it.
#[cold]
fn copy(store: &mut Store, io: &Io) -> Result<(), Status> {
    let Data::Media(from) = io.data.get() else { return Err(Status::INTERNAL_ERROR) };
    let mut bytes = vec![0; io.len as usize];
    store.read(from, io.len, |at, part| {
        bytes[at as usize..][..part.len()].copy_from_slice(part);
        Ok(())
    })?;
    store.write(io.offset, io.len, |at, part| {
        part.copy_from_slice(&bytes[at as usize..][..part.len()]);
        Ok(())
    })
}
