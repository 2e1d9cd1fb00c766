//! Connections whose queues have gone while the media has commands of theirs. A socket is closed when those are over, so that a host which
//! waits for its end knows that nothing of it is written after that (`crate::fence`). Until then it counts as a queue of its host.

use super::limits::Admitted;
use crate::device::Drives;
use std::net::{Shutdown, TcpStream};

/// See the [module](self).
#[derive(Default)]
pub(super) struct Closing(Vec<Waiting>);

struct Waiting {
    stream: TcpStream,
    drive: u32,
    /// How many queues of the drive had gone by then, its own included.
    queues_gone: u64,
    _admitted: Option<Admitted>,
}

impl Closing {
    /// Closes a connection to a drive whose queue has gone: at once, if the media has nothing whose queue has gone.
    pub(super) fn close(&mut self, stream: TcpStream, drive: u32, admitted: Option<Admitted>, drives: &Drives) {
        let machine = drives.machine(drive);
        if machine.has_orphans() {
            let queues_gone = machine.queues_gone();
            self.0.push(Waiting { stream, drive, queues_gone, _admitted: admitted });
        } else {
            end(&stream);
        }
    }

    /// Closes those whose commands are over.
    #[inline]
    pub(super) fn look(&mut self, drives: &Drives) {
        if !self.0.is_empty() {
            self.close_finished(drives);
        }
    }

    #[cold]
    fn close_finished(&mut self, drives: &Drives) {
        self.0.retain(|one| {
            let waits = drives.machine(one.drive).has_orphans_of(one.queues_gone);
            if !waits {
                end(&one.stream);
            }
            waits
        });
    }
}

/// The keeper may have another descriptor of it, which would keep its host from seeing the end.
fn end(stream: &TcpStream) {
    // It fails where the host has gone first.
    let _ = stream.shutdown(Shutdown::Both);
}
