//! What lies between the host and the flash: firmware and the link.
//!
//! ```text
//! fetch:    command ──> firmware core (one after the other) ──> latency of the operation ──> link, for a write's data
//! deliver:  data ready in the drive ──> link ──> host
//! ```

use crate::calendar::Calendar;
use crate::geometry::UNIT;
use crate::wire::Wire;
use weir_units::Nanos;

/// What a command asks for, as far as firmware and link care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOp {
    /// Data goes to the host.
    Read,
    /// Data comes from the host.
    Write,
    /// No data crosses the link: trim, flush, write zeroes.
    Other,
}

/// What the firmware takes for a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Firmware {
    /// Occupies the one core: a ceiling of 1 s / `core` commands (FEMU: fw_cpu_ns).
    pub core: Nanos,
    /// Latency of a read.
    pub read: Nanos,
    /// Latency of a read of at most `small_bytes`.
    pub read_small: Nanos,
    /// What counts as small.
    pub small_bytes: u32,
    /// Latency of a write, whatever its size.
    pub write: Nanos,
    /// Latency of a write for each 4 KiB, rounded up: its way into the buffer.
    pub write_unit: Nanos,
    /// Latency of any other command.
    pub other: Nanos,
}

/// Firmware and link of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostTiming {
    /// The firmware.
    pub firmware: Firmware,
    /// The link from drive to host.
    pub to_host: Wire,
    /// The link from host to drive.
    pub to_drive: Wire,
    /// How long a byte is on its way, either way.
    pub propagation: Nanos,
}

impl HostTiming {
    /// Takes no time at all.
    pub const INSTANT: HostTiming = HostTiming {
        firmware: Firmware {
            core: Nanos(0),
            read: Nanos(0),
            read_small: Nanos(0),
            small_bytes: 0,
            write: Nanos(0),
            write_unit: Nanos(0),
            other: Nanos(0),
        },
        to_host: Wire::INSTANT,
        to_drive: Wire::INSTANT,
        propagation: Nanos(0),
    };

    /// The same link both ways, no firmware time.
    pub const fn link(wire: Wire) -> HostTiming {
        HostTiming { to_host: wire, to_drive: wire, ..HostTiming::INSTANT }
    }
}

/// Firmware and link as resources that are booked.
#[derive(Clone, Debug)]
pub struct Host {
    timing: HostTiming,
    /// The core has done all commands so far.
    core_free: u64,
    /// When the last command came.
    now: Nanos,
    to_host: Calendar,
    to_drive: Calendar,
    /// Of 4 KiB, both ways: the usual size needs no division.
    unit_to_host: u64,
    unit_to_drive: u64,
}

impl Host {
    /// Idle. Links remember more bookings than channels: completions of all dies lie ahead on one wire.
    pub fn new(timing: &HostTiming) -> Host {
        let calendar = |wire: &Wire| Calendar::new(4 * Calendar::INTERVALS, wire.time(UNIT));
        Host {
            timing: *timing,
            core_free: 0,
            now: Nanos(0),
            to_host: calendar(&timing.to_host),
            to_drive: calendar(&timing.to_drive),
            unit_to_host: timing.to_host.time(UNIT).0,
            unit_to_drive: timing.to_drive.time(UNIT).0,
        }
    }

    /// A command comes at `now`: when the flash may begin on it, a write's `bytes` being in the drive.
    #[inline]
    pub fn fetch(&mut self, now: Nanos, op: HostOp, bytes: u32) -> Nanos {
        self.now = now;
        let firmware = &self.timing.firmware;
        self.core_free = self.core_free.max(now.0) + firmware.core.0;
        let decoded = if firmware.core.0 == 0 { now.0 } else { self.core_free };
        match op {
            HostOp::Other => Nanos(decoded + firmware.other.0),
            HostOp::Read if bytes <= firmware.small_bytes => Nanos(decoded + firmware.read_small.0),
            HostOp::Read => Nanos(decoded + firmware.read.0),
            HostOp::Write => {
                let units = u64::from(bytes.div_ceil(UNIT));
                let ready = Nanos(decoded + firmware.write.0 + units * firmware.write_unit.0);
                let length = if bytes == UNIT { self.unit_to_drive } else { self.timing.to_drive.time(bytes).0 };
                let start = self.to_drive.book(now, ready, Nanos(length));
                Nanos(start.0 + length + self.timing.propagation.0)
            }
        }
    }

    /// `bytes` of data are in the drive at `ready`: when the host has them.
    #[inline]
    pub fn deliver(&mut self, ready: Nanos, bytes: u32) -> Nanos {
        let length = if bytes == UNIT { self.unit_to_host } else { self.timing.to_host.time(bytes).0 };
        let start = self.to_host.book(self.now, ready, Nanos(length));
        Nanos(start.0 + length + self.timing.propagation.0)
    }

    /// The same for data that came off the flash channel in pieces of `piece` bytes, `apart` one after the other, the last
    /// one at `ready`: each piece crosses the link while the next one crosses the channel (NVMeVirt, ssd.c:362-454).
    pub fn deliver_pieces(&mut self, ready: Nanos, bytes: u32, piece: u32, apart: Nanos) -> Nanos {
        let pieces = bytes.div_ceil(piece.max(1)).max(1);
        let mut end = ready;
        for i in 0..pieces {
            let before = Nanos(apart.0.saturating_mul(u64::from(pieces - 1 - i)));
            let some = if i + 1 == pieces { bytes - i * piece } else { piece };
            end = end.max(self.deliver(ready.saturating_sub(before), some));
        }
        end
    }

    /// For how long the link was taken up to `now`: to the host, to the drive.
    pub fn busy_until(&self, now: Nanos) -> (Nanos, Nanos) {
        (self.to_host.busy_until(now), self.to_drive.busy_until(now))
    }
}
