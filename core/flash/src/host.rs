//! What lies between the host and the flash: firmware and the link.
//!
//! ```text
//! fetch:    command ──> firmware core (one after the other) ──> latency of the operation ──> link, for a write's data
//! deliver:  data ready in the drive ──> link ──> host
//! ```

use crate::calendar::Calendar;
use crate::credits::CreditRing;
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
    /// 4 KiB, where links are calendars: nothing else goes the short way.
    usual: u32,
    /// The links, where their time is given out by credits.
    rings: Rings,
}

#[derive(Clone, Debug)]
struct Rings {
    to_host: Option<CreditRing>,
    to_drive: Option<CreditRing>,
    /// Both directions take from the first: they are the same wire (NVMeVirt, ssd.c: one model of the link).
    shared: bool,
}

impl Rings {
    fn of(timing: &HostTiming) -> Rings {
        let (to_host, to_drive) = (CreditRing::new(&timing.to_host), CreditRing::new(&timing.to_drive));
        Rings { shared: to_host.is_some() && timing.to_host == timing.to_drive, to_host, to_drive }
    }

    fn towards_drive(&mut self) -> Option<&mut CreditRing> {
        if self.shared { self.to_host.as_mut() } else { self.to_drive.as_mut() }
    }
}

impl Host {
    /// Idle. Links remember more bookings than channels: completions of all dies lie ahead on one wire.
    pub fn new(timing: &HostTiming) -> Host {
        let calendar = |wire: &Wire| Calendar::new(4 * Calendar::INTERVALS, wire.time(UNIT));
        let rings = Rings::of(timing);
        Host {
            timing: *timing,
            core_free: 0,
            now: Nanos(0),
            to_host: calendar(&timing.to_host),
            to_drive: calendar(&timing.to_drive),
            unit_to_host: timing.to_host.time(UNIT).0,
            unit_to_drive: timing.to_drive.time(UNIT).0,
            usual: if rings.to_host.is_none() && rings.to_drive.is_none() { UNIT } else { u32::MAX },
            rings,
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
                if bytes != self.usual {
                    return self.receive(now, ready, bytes);
                }
                let start = self.to_drive.book(now, ready, Nanos(self.unit_to_drive));
                Nanos(start.0 + self.unit_to_drive + self.timing.propagation.0)
            }
        }
    }

    /// `bytes` of data are in the drive at `ready`: when the host has them.
    #[inline]
    pub fn deliver(&mut self, ready: Nanos, bytes: u32) -> Nanos {
        if bytes != self.usual {
            return self.send(ready, bytes);
        }
        let start = self.to_host.book(self.now, ready, Nanos(self.unit_to_host));
        Nanos(start.0 + self.unit_to_host + self.timing.propagation.0)
    }

    /// The same for any size, and by credits.
    fn send(&mut self, ready: Nanos, bytes: u32) -> Nanos {
        let over = match &mut self.rings.to_host {
            Some(ring) => ring.book(self.now, ready, bytes).0,
            None => {
                let length = self.timing.to_host.time(bytes);
                self.to_host.book(self.now, ready, length).0 + length.0
            }
        };
        Nanos(over + self.timing.propagation.0)
    }

    /// A write's data of any size crosses the link from `ready` on, or by credits: when it is in the drive.
    fn receive(&mut self, now: Nanos, ready: Nanos, bytes: u32) -> Nanos {
        let over = match self.rings.towards_drive() {
            Some(ring) => ring.book(now, ready, bytes).0,
            None => {
                let length = self.timing.to_drive.time(bytes);
                self.to_drive.book(now, ready, length).0 + length.0
            }
        };
        Nanos(over + self.timing.propagation.0)
    }

    /// Pieces of `piece` bytes that are in the drive at those times: when the host has all of them, which are `bytes`.
    pub(crate) fn deliver_each(&mut self, ready: &[Nanos], bytes: u32, piece: u32) -> Nanos {
        let (mut rest, mut end) = (bytes, Nanos(0));
        for ready in ready {
            let some = rest.min(piece);
            end = end.max(self.deliver(*ready, some));
            rest -= some;
        }
        end
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
        let to_host = self.rings.to_host.as_ref().map_or(self.to_host.busy_until(now), |ring| ring.busy_until(now));
        let to_drive = self.rings.to_drive.as_ref().map_or(self.to_drive.busy_until(now), |ring| ring.busy_until(now));
        (to_host, to_drive)
    }
}
