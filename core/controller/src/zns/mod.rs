//! Namespaces of the ZNS command set (ZNS 1.1): what the zones of [`weir_flash`] accept, in the controller's terms.
//!
//! A write moves its zone's write pointer when it starts, in the order in which commands leave their queues; its bytes move
//! when its time has come. A reset waits until no write of its zones is in flight, so that none lands in the zone's next life;
//! while it runs, writes and management of these zones are refused with Command Interrupted, which a host tries again. A write
//! or a reset that the media fails leaves the zone read only, and hosts that want to know are told.

use crate::config::ZonedNamespace;
use crate::error::ManagementError;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use weir_flash::{Placed, Selection, ZoneAction, ZoneError, ZonedFlash, Zones};
use weir_spec::nvme::Status;
use weir_units::Nanos;

mod io;
mod power_loss;
mod report;

/// What decides about zones, and when they are done.
#[derive(Clone, Debug)]
pub(crate) enum Engine {
    /// Takes no time of its own.
    Plain(Zones),
    Flash(Box<ZonedFlash>),
}

/// The zones of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub nsid: u32,
    pub engine: Engine,
    /// Writes in flight in each zone; [`LOCKED`] while a reset of it is under way.
    busy: Vec<u32>,
    /// How often the power was cut: writes of an earlier life do not land.
    life: u32,
    /// Slots of resets that wait for writes in flight.
    held: Vec<u32>,
}

/// Bit of [`Space::busy`].
const LOCKED: u32 = 1 << 31;

/// What a command on a zoned namespace owes when its slot is given back.
#[derive(Clone, Debug)]
pub(crate) enum ZonedOp {
    Write {
        space: usize,
        zone: u32,
        /// The zone's write pointer behind it.
        wp: u32,
        /// It is to be as safe as if it had been flushed.
        durable: bool,
        /// See [`Space::life`].
        life: u32,
        /// DW0 and DW1 of the completion: where an append went.
        result: u64,
    },
    Reset {
        space: usize,
        zones: Vec<u32>,
    },
}

impl Space {
    pub fn new(config: &ZonedNamespace) -> Result<Self, ManagementError> {
        let engine = match &config.flash {
            Some(flash) => ZonedFlash::new(flash)
                .map(|flash| Engine::Flash(Box::new(flash)))
                .map_err(|_| ManagementError::Zones)?,
            None => Engine::Plain(Zones::new(config.zones).map_err(|_| ManagementError::Zones)?),
        };
        let busy = vec![0; config.zones.zones as usize];
        let mut space = Space { nsid: config.nsid, engine, busy, life: 0, held: Vec::new() };
        if config.volatile {
            space.zones_mut().set_volatile();
        }
        // The flash is made for these zones.
        if *space.zones().config() == config.zones { Ok(space) } else { Err(ManagementError::Zones) }
    }

    pub fn zones(&self) -> &Zones {
        match &self.engine {
            Engine::Plain(zones) => zones,
            Engine::Flash(flash) => flash.zones(),
        }
    }

    pub fn zones_mut(&mut self) -> &mut Zones {
        match &mut self.engine {
            Engine::Plain(zones) => zones,
            Engine::Flash(flash) => flash.zones_mut(),
        }
    }

    fn locked(&self, zones: Selection) -> Result<(), Status> {
        let locked = |busy: &u32| busy & LOCKED != 0;
        let any = match zones {
            Selection::One(zone) => self.busy.get(zone as usize).is_some_and(locked),
            Selection::All => self.busy.iter().any(locked),
        };
        if any { Err(Status::COMMAND_INTERRUPTED) } else { Ok(()) }
    }

    fn locked_at(&self, block: u64) -> Result<(), Status> {
        let (zone, _) = self.zones().locate(block).map_err(status)?;
        self.locked(Selection::One(zone))
    }

    pub fn check(&self) {
        match &self.engine {
            Engine::Plain(zones) => zones.check(),
            Engine::Flash(flash) => flash.check(),
        }
    }

    /// Writes in flight in each zone, and whether it is being reset.
    pub fn busy(&self) -> impl Iterator<Item = (u32, bool)> + '_ {
        self.busy.iter().map(|busy| (busy & !LOCKED, busy & LOCKED != 0))
    }

    pub fn held(&self) -> &[u32] {
        &self.held
    }
}

impl Engine {
    fn read(&mut self, now: Nanos, start: u64, blocks: u32) -> Result<Nanos, ZoneError> {
        match self {
            Engine::Plain(zones) => zones.read(start, blocks).map(|()| now),
            Engine::Flash(flash) => flash.read(now, start, blocks),
        }
    }

    fn write(&mut self, now: Nanos, start: u64, blocks: u32) -> Result<Placed, ZoneError> {
        match self {
            Engine::Plain(zones) => {
                zones.write(start, blocks).map(|(zone, _, wp)| Placed { zone, start, wp, done: now })
            }
            Engine::Flash(flash) => flash.write(now, start, blocks),
        }
    }

    fn append(&mut self, now: Nanos, start: u64, blocks: u32) -> Result<Placed, ZoneError> {
        match self {
            Engine::Plain(zones) => {
                zones.append(start, blocks).map(|(zone, start, wp)| Placed { zone, start, wp, done: now })
            }
            Engine::Flash(flash) => flash.append(now, start, blocks),
        }
    }

    pub fn manage(&mut self, now: Nanos, action: ZoneAction, zones: Selection) -> Result<Nanos, ZoneError> {
        match self {
            Engine::Plain(plain) => plain.manage(action, zones, |_, _| {}).map(|()| now),
            Engine::Flash(flash) => flash.manage(now, action, zones),
        }
    }

    fn open_with_zrwa(&mut self, now: Nanos, zone: u32) -> Result<Nanos, ZoneError> {
        match self {
            Engine::Plain(zones) => zones.open_with_zrwa(zone).map(|()| now),
            Engine::Flash(flash) => flash.open_with_zrwa(now, zone),
        }
    }

    fn set_extension(&mut self, now: Nanos, zone: u32) -> Result<Nanos, ZoneError> {
        match self {
            Engine::Plain(zones) => zones.set_extension(zone).map(|()| now),
            Engine::Flash(flash) => flash.set_extension(now, zone),
        }
    }

    fn flush_zrwa(&mut self, now: Nanos, last: u64) -> Result<Nanos, ZoneError> {
        match self {
            Engine::Plain(zones) => zones.flush_zrwa(last).map(|_| now),
            Engine::Flash(flash) => flash.flush_zrwa(now, last),
        }
    }

    pub fn degrade(&mut self, zone: u32, offline: bool) -> Result<(), ZoneError> {
        match self {
            Engine::Plain(zones) => zones.degrade(zone, offline),
            Engine::Flash(flash) => flash.degrade(zone, offline),
        }
    }
}

/// A zone's refusal in the standard's codes (ZNS 1.1, 1.8 and the commands).
fn status(error: ZoneError) -> Status {
    let status = match error {
        ZoneError::OutOfRange => Status::LBA_OUT_OF_RANGE,
        ZoneError::InvalidField => Status::INVALID_FIELD,
        ZoneError::Boundary => Status::ZONE_BOUNDARY_ERROR,
        ZoneError::Full => Status::ZONE_IS_FULL,
        ZoneError::ReadOnly => Status::ZONE_IS_READ_ONLY,
        ZoneError::Offline => Status::ZONE_IS_OFFLINE,
        ZoneError::InvalidWrite => Status::ZONE_INVALID_WRITE,
        ZoneError::TooManyActive => Status::TOO_MANY_ACTIVE_ZONES,
        ZoneError::TooManyOpen => Status::TOO_MANY_OPEN_ZONES,
        ZoneError::InvalidTransition => Status::INVALID_ZONE_STATE_TRANSITION,
        ZoneError::InvalidOperation => Status::INVALID_ZONE_OPERATION,
        ZoneError::NoZrwa => Status::ZRWA_RESOURCES_UNAVAILABLE,
    };
    status.dnr()
}

/// What a power cut took from zones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneLoss {
    /// Bytes of writes that had completed.
    pub lost: u64,
    /// Where the media has to read as zeroes from now on: offset and bytes.
    pub gone: Vec<(u64, u64)>,
}
