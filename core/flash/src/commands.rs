//! Commands in, completion times out.

use crate::config::WriteZeroes;
use crate::flash::Flash;
use crate::geometry::UNIT;
use crate::host::HostOp;
use crate::scheduler::When;
use weir_units::Nanos;

/// What the host asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlashOp {
    /// Read.
    Read,
    /// Write; with `fua` it is complete when it survives power loss.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Deallocate: the units have no contents any more.
    Trim,
    /// Everything written so far survives power loss.
    Flush,
    /// The units read as zeroes.
    WriteZeroes,
}

impl Flash {
    /// A command that arrives at `now`; when it is complete. `units` from `lpn` on; those beyond the capacity are left
    /// out, the controller has refused them.
    ///
    /// Of a drive whose channels are booked ([`Arbitration::Booked`](crate::Arbitration::Booked)). Of others it is not known in advance when
    /// that is ([`Nanos::NEVER`] then): [`Flash::begin`].
    #[inline]
    pub fn submit(&mut self, now: Nanos, op: FlashOp, lpn: u32, units: u32) -> Nanos {
        self.submit_hinted(now, op, lpn, units, 0)
    }

    /// The same with what the host said about the data's life (an FDP placement handle, a directive's stream).
    #[inline]
    pub fn submit_hinted(&mut self, now: Nanos, op: FlashOp, lpn: u32, units: u32, hint: u8) -> Nanos {
        self.begin(now, When::at(now), op, lpn, units, hint).known().unwrap_or(Nanos::NEVER)
    }

    /// A command that arrives at `now` and needs what is at hand at `after`, see [`Flash::modify`]; when it is complete, which may not be
    /// known yet: [`Flash::tell`]. Goes on to `now` first, if that was not done.
    #[inline]
    pub fn begin(&mut self, now: Nanos, after: When, op: FlashOp, lpn: u32, units: u32, hint: u8) -> When {
        let lpn = lpn.min(self.logical);
        let end = lpn + units.min(self.logical - lpn);
        let bytes = (end - lpn).saturating_mul(UNIT);
        if self.silicon.is_scheduled() {
            self.advance(now);
        }
        let known = after.known().unwrap_or(now);
        if self.buffer.is_some() {
            self.expire(known);
        }
        if let Some(memory) = &mut self.memory {
            memory.now = now;
        }
        // Collection that blocks the controller blocks its buffer too.
        let now = known.max(self.silicon.locked_until());
        let (host_op, bytes) = match op {
            FlashOp::Read => (HostOp::Read, bytes),
            FlashOp::Write { .. } => (HostOp::Write, bytes),
            _ => (HostOp::Other, 0),
        };
        let fetched = When::at(self.host.fetch(now, host_op, bytes));
        let begin = if after.known().is_some() { fetched } else { self.silicon.later_of(fetched, after) };
        match op {
            FlashOp::Read if self.memory.is_some() => self.read_cached(begin, lpn, end),
            FlashOp::Read => self.read(begin, lpn, end, true),
            FlashOp::Write { fua } => self.write(begin, lpn, end, fua, hint),
            _ => self.begin_other(begin, op, lpn, end, hint),
        }
    }

    #[cold]
    fn begin_other(&mut self, from: When, op: FlashOp, lpn: u32, end: u32, hint: u8) -> When {
        match op {
            FlashOp::Flush => self.flush(from),
            FlashOp::WriteZeroes if self.config.ftl.write_zeroes == WriteZeroes::Program => {
                self.write(from, lpn, end, false, hint)
            }
            _ => self.trim(from, lpn, end),
        }
    }
}
