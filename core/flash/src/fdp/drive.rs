//! What a host asks of a drive's placement handles.

use super::{Fdp, FdpEvent, FdpEventKind, FdpStatistics};
use crate::flash::Flash;
use weir_units::Nanos;

impl Flash {
    /// The placement handles, where there are some.
    pub fn fdp(&self) -> Option<&Fdp> {
        self.ftl.fdp.as_deref()
    }

    /// RUAMW: 4 KiB units that the handle's reclaim unit in a group still takes, what waits in the buffer taken off. 0 where
    /// there is no such group or handle.
    pub fn available(&self, group: u16, handle: u8) -> u32 {
        let Some((fdp, at)) = self.fdp().and_then(|fdp| Some((fdp, fdp.stream(group, handle)?))) else { return 0 };
        let waiting = self.buffer.as_ref().map_or(0, |b| b.dirty_of(at as u32)) % fdp.unit;
        let left = fdp.streams[at].left;
        if waiting < left { left - waiting } else { left + fdp.unit - waiting }
    }

    /// Reclaim unit handle update (base 2.1, 7.4): what the host has written through the handle in that group goes to flash,
    /// and what it writes from now on to another reclaim unit. Nothing happens where the present one is empty. When that is
    /// done; `None` where there is no such group or handle.
    pub fn update_handle(&mut self, now: Nanos, group: u16, handle: u8) -> Option<Nanos> {
        let stream = self.fdp()?.stream(group, handle)?;
        self.destage_queue(now, stream as u32);
        let fdp = self.ftl.fdp.as_mut()?;
        let left = fdp.streams[stream].left;
        if left < fdp.unit {
            let kind = FdpEventKind::NotFullyWritten { left };
            fdp.note(FdpEvent { kind, at: now, group, handle: Some(handle) });
            self.ftl.close_stream(stream as u32);
        }
        Some(now)
    }

    /// What was written and erased since the drive was made; `None` without placement handles.
    pub fn fdp_statistics(&self) -> Option<FdpStatistics> {
        Some(self.fdp()?.statistics(&self.ftl.stats, self.shape()))
    }

    /// The oldest event that nobody has asked for yet.
    pub fn take_fdp_event(&mut self) -> Option<FdpEvent> {
        self.ftl.fdp.as_mut()?.events.pop_front()
    }

    /// Counters are about to begin at zero: the statistics go on.
    pub(crate) fn carry_statistics(&mut self) {
        let shape = self.ftl.map.shape;
        if let Some(fdp) = &mut self.ftl.fdp {
            fdp.carry(&self.ftl.stats, &shape);
        }
    }

    /// The unit in `slot` of the buffer is written again through another handle: it is to be taken in anew.
    pub(crate) fn changes_stream(&mut self, slot: u32, lpn: u32, hint: u8) -> bool {
        if self.ftl.fdp.is_none() {
            return false;
        }
        let queue = self.queue(lpn, hint);
        let Some(buffer) = self.buffer.as_mut().filter(|b| b.queue_of(slot) != queue) else { return false };
        buffer.kill(slot);
        self.ftl.map.take_back(&[lpn]);
        true
    }
}
