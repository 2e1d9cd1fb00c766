//! A zoned drive: [`Zones`] decides what is accepted, [`Stripe`] where it lies, [`Array`] and [`Host`] when it is done.
//!
//! Writes go to a power-protected buffer; a page of every plane of a die is programmed as soon as the zone's data fills it. A
//! flush therefore waits for nothing. With `early` a write is complete when it is in the buffer, otherwise when the programs
//! that it filled are done. A reset erases the blocks that were written, a finish programs what is left of the last page.
//! After a loss of power the pages that are not full are in the buffer again, and nothing is under way.

use super::config::{ZoneConfig, ZoneConfigError};
use super::manage::Selection;
use super::stripe::{Stripe, StripeError};
use super::zones::{ZoneAction, ZoneError, ZoneState, Zones};
use crate::array::Array;
use crate::cells::Cells;
use crate::geometry::{Geometry, GeometryError, Shape, UNIT};
use crate::host::{Host, HostOp, HostTiming};
use crate::preset::PresetParts;
use crate::region::{RegionError, RegionImage, RegionLoss, RegionSize};
use crate::timing::{FlashTiming, TimingError};
use crate::variability::{Variability, VariabilityError};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use weir_units::rng::SplitMix64;
use weir_units::{Bytes, Nanos};

/// Where writes are kept until their page is programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZonedBuffer {
    /// One for all zones; 0: as much as is needed.
    Shared(Bytes),
    /// One for each zone (NVMeVirt's ZN540: ten one-shot pages); 0: as much as is needed.
    PerZone(Bytes),
}

/// What a zoned drive is made with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZonedConfig {
    /// The zones, in blocks.
    pub zones: ZoneConfig,
    /// Bytes of a block, as a power of two.
    pub block_shift: u32,
    /// How the flash is laid out.
    pub geometry: Geometry,
    /// What its steps take.
    pub timing: FlashTiming,
    /// Firmware and link.
    pub host: HostTiming,
    /// How chips differ.
    pub variability: Variability,
    /// Dies that a zone is spread over; 0: all.
    pub dies: u32,
    /// Where writes are kept.
    pub buffer: ZonedBuffer,
    /// A write is complete when it is in the buffer.
    pub early: bool,
}

impl ZonedConfig {
    /// Those zones on a preset's flash, spread over all its dies.
    pub fn of(parts: &PresetParts, zones: ZoneConfig, block_shift: u32) -> Self {
        Self {
            zones,
            block_shift,
            geometry: parts.geometry,
            timing: parts.timing,
            host: parts.host,
            variability: parts.variability,
            dies: 0,
            buffer: ZonedBuffer::Shared(parts.buffer),
            early: parts.early_completion,
        }
    }
}

/// Why a zoned drive is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ZonedError {
    /// Its zones.
    Zones(ZoneConfigError),
    /// Its flash.
    Geometry(GeometryError),
    /// Its times.
    Timing(TimingError),
    /// Its chips.
    Variability(VariabilityError),
    /// Where its zones lie.
    Stripe(StripeError),
    /// A zone of more bytes than 4 KiB units can be counted.
    ZoneTooLarge,
}

impl fmt::Display for ZonedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zones(e) => e.fmt(f),
            Self::Geometry(e) => e.fmt(f),
            Self::Timing(e) => e.fmt(f),
            Self::Variability(e) => e.fmt(f),
            Self::Stripe(e) => e.fmt(f),
            Self::ZoneTooLarge => f.write_str("a zone can have 4 TiB at most"),
        }
    }
}

impl core::error::Error for ZonedError {}

/// An accepted write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its zone.
    pub zone: u32,
    /// Its first block.
    pub start: u64,
    /// The zone's write pointer behind it, in blocks from the zone's beginning.
    pub wp: u32,
    /// When it is complete.
    pub done: Nanos,
}

/// What the drive has in its buffer of one zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fill {
    /// 4 KiB units that are programmed, or being programmed.
    programmed: u32,
    /// Bytes up to the write pointer.
    written: u64,
}

/// A zoned drive.
#[derive(Clone, Debug)]
pub struct ZonedFlash {
    config: ZonedConfig,
    shape: Shape,
    zones: Zones,
    /// By block: erases.
    wear: Cells<u32>,
    stripe: Stripe,
    array: Array,
    host: Host,
    fill: Vec<Fill>,
    /// Programs under way, as their ends and bytes, oldest first: one list, or one a zone.
    under_way: Vec<VecDeque<(Nanos, u32)>>,
    /// Bytes in the buffer: one sum, or one a zone.
    buffered: Vec<u64>,
    limit: u64,
    per_zone: bool,
    early: bool,
    block_shift: u32,
    programs: u64,
    erases: u64,
}

impl ZonedFlash {
    /// Everything empty and idle.
    ///
    /// # Errors
    /// Says which numbers do not go together.
    pub fn new(config: &ZonedConfig) -> Result<ZonedFlash, ZonedError> {
        let zones = Zones::new(config.zones).map_err(ZonedError::Zones)?;
        let shape = config.geometry.shape().map_err(ZonedError::Geometry)?;
        config.timing.validate().map_err(ZonedError::Timing)?;
        config.variability.validate().map_err(ZonedError::Variability)?;
        let bytes = u64::from(config.zones.capacity) << config.block_shift;
        let units = u32::try_from(bytes.div_ceil(UNIT.into())).ok().filter(|u| *u <= MOST_UNITS);
        let units = units.ok_or(ZonedError::ZoneTooLarge)?;
        let stripe = Stripe::new(&shape, config.zones.zones, units, config.dies).map_err(ZonedError::Stripe)?;
        let (per_zone, limit) = match config.buffer {
            ZonedBuffer::Shared(bytes) => (false, bytes.0),
            ZonedBuffer::PerZone(bytes) => (true, bytes.0),
        };
        let buffers = if per_zone { config.zones.zones as usize } else { 1 };
        Ok(ZonedFlash {
            fill: vec![Fill::default(); config.zones.zones as usize],
            under_way: vec![VecDeque::new(); buffers],
            buffered: vec![0; buffers],
            // A buffer that holds no program unit would never fill one.
            limit: if limit == 0 { u64::MAX } else { limit.max(u64::from(stripe.program_units() * UNIT)) },
            per_zone,
            early: config.early,
            block_shift: config.block_shift,
            array: Array::new(&shape, &config.timing.booked(), &config.variability),
            host: Host::new(&config.host),
            wear: Cells::Own(vec![0; shape.blocks() as usize]),
            config: *config,
            shape,
            zones,
            stripe,
            programs: 0,
            erases: 0,
        })
    }

    /// The zones.
    pub fn zones(&self) -> &Zones {
        &self.zones
    }

    /// The zones, for what their host does not do: see [`Zones::landed`].
    pub fn zones_mut(&mut self) -> &mut Zones {
        &mut self.zones
    }

    /// The flash, to look at.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// Erases of each block of the flash since it was made.
    pub fn wear(&self) -> &[u32] {
        &self.wear
    }

    /// Programs and erases so far.
    pub fn work(&self) -> (u64, u64) {
        (self.programs, self.erases)
    }

    /// Reads; answers when the host has the data.
    ///
    /// # Errors
    /// Those of [`Zones::read`].
    pub fn read(&mut self, now: Nanos, start: u64, blocks: u32) -> Result<Nanos, ZoneError> {
        self.zones.read(start, blocks)?;
        let (mut block, end) = (start, start + u64::from(blocks));
        let begun = self.host.fetch(now, HostOp::Read, self.bytes(blocks));
        let mut done = begun;
        while block < end {
            let (zone, at) = self.zones.locate(block)?;
            let size = u64::from(self.zones.config().size);
            let part = (end - block).min(size - u64::from(at)) as u32;
            done = done.max(self.read_zone(begun, zone, self.bytes_long(at), self.bytes_long(at + part)));
            block += u64::from(part);
        }
        Ok(done)
    }

    /// Bytes `from..to` of a zone: page by page from the flash, what is in the buffer from there.
    fn read_zone(&mut self, begun: Nanos, zone: u32, from: u64, to: u64) -> Nanos {
        let page = u64::from(self.stripe.page_bytes());
        let Fill { programmed, written } = self.fill[zone as usize];
        let programmed = u64::from(programmed) * u64::from(UNIT);
        let capacity = self.bytes_long(self.zones.config().capacity);
        let (mut at, mut done) = (from, begun);
        while at < to {
            let next = ((at / page + 1) * page).min(to);
            let buffered = at >= programmed && at < written;
            // Blocks behind the capacity lie nowhere.
            let ready = if buffered || at >= capacity {
                begun
            } else {
                let (place, _) = self.stripe.place(zone, (at / u64::from(UNIT)) as u32);
                self.array.read(begun, place, (next - at) as u32)
            };
            done = done.max(self.host.deliver(ready, (next - at) as u32));
            at = next;
        }
        done
    }

    /// Writes at the write pointer, or anywhere in a zone random write area.
    ///
    /// # Errors
    /// Those of [`Zones::write`].
    pub fn write(&mut self, now: Nanos, start: u64, blocks: u32) -> Result<Placed, ZoneError> {
        let (zone, before, after) = self.zones.write(start, blocks)?;
        let arrived = self.host.fetch(now, HostOp::Write, self.bytes(blocks));
        let done = if before == after { arrived } else { self.fill(arrived, zone, after) };
        Ok(Placed { zone, start, wp: after, done })
    }

    /// Appends to the zone that begins at `start`.
    ///
    /// # Errors
    /// Those of [`Zones::append`].
    pub fn append(&mut self, now: Nanos, start: u64, blocks: u32) -> Result<Placed, ZoneError> {
        let (zone, start, after) = self.zones.append(start, blocks)?;
        let arrived = self.host.fetch(now, HostOp::Write, self.bytes(blocks));
        Ok(Placed { zone, start, wp: after, done: self.fill(arrived, zone, after) })
    }

    /// Commits a zone random write area up to the block `last`.
    ///
    /// # Errors
    /// Those of [`Zones::flush_zrwa`].
    pub fn flush_zrwa(&mut self, now: Nanos, last: u64) -> Result<Nanos, ZoneError> {
        let (zone, _, after) = self.zones.flush_zrwa(last)?;
        let begun = self.host.fetch(now, HostOp::Other, 0);
        Ok(self.fill(begun, zone, after))
    }

    /// The write pointer of a zone is at `wp` now: pages that are full are programmed. When the write is complete.
    fn fill(&mut self, arrived: Nanos, zone: u32, wp: u32) -> Nanos {
        let unit = u64::from(self.stripe.program_units() * UNIT);
        let target = self.bytes_long(wp);
        let full = wp == self.zones.config().capacity;
        let (mut admitted, mut done) = (arrived, arrived);
        loop {
            let Fill { programmed, written } = self.fill[zone as usize];
            let boundary = u64::from(programmed) * u64::from(UNIT) + unit;
            let next = boundary.min(target);
            admitted = self.admit(zone, admitted, next - written);
            self.fill[zone as usize].written = next;
            // The last page of a zone may stay partly empty.
            if next == boundary || full && next == target && next > boundary - unit {
                done = done.max(self.program(admitted, zone));
            }
            if next == target {
                break;
            }
        }
        if self.early { admitted } else { done.max(admitted) }
    }

    /// Room in the buffer for so many bytes: at once, or when programs have made it.
    fn admit(&mut self, zone: u32, at: Nanos, bytes: u64) -> Nanos {
        let i = if self.per_zone { zone as usize } else { 0 };
        let mut at = at;
        while let Some(&(end, freed)) = self.under_way[i].front() {
            if end > at && self.buffered[i] + bytes <= self.limit {
                break;
            }
            at = at.max(end);
            self.buffered[i] -= u64::from(freed);
            self.under_way[i].pop_front();
        }
        self.buffered[i] += bytes;
        at
    }

    /// Programs the next page of each plane of a die; its end.
    fn program(&mut self, now: Nanos, zone: u32) -> Nanos {
        let i = if self.per_zone { zone as usize } else { 0 };
        let units = self.stripe.program_units();
        let Fill { programmed, written } = self.fill[zone as usize];
        let (place, _) = self.stripe.place(zone, programmed);
        let page = self.stripe.page_bytes();
        let done = self.array.program_planes(now, place, units * UNIT / page, page).done;
        let held = written - u64::from(programmed) * u64::from(UNIT);
        self.fill[zone as usize].programmed = programmed + units;
        self.under_way[i].push_back((done, held as u32));
        self.programs += 1;
        done
    }

    /// Zone management; answers when it is complete.
    ///
    /// # Errors
    /// Those of [`Zones::manage`].
    pub fn manage(&mut self, now: Nanos, action: ZoneAction, zones: Selection) -> Result<Nanos, ZoneError> {
        let mut changed = Vec::new();
        self.zones.manage(action, zones, |zone, _| changed.push(zone))?;
        let begun = self.host.fetch(now, HostOp::Other, 0);
        let each = |this: &mut Self, zone| match action {
            ZoneAction::Reset => this.erase(begun, zone),
            ZoneAction::Finish => this.pad(begun, zone),
            _ => begun,
        };
        Ok(changed.into_iter().fold(begun, |done, zone| done.max(each(self, zone))))
    }

    /// Opens a zone with a random write area.
    ///
    /// # Errors
    /// Those of [`Zones::open_with_zrwa`].
    pub fn open_with_zrwa(&mut self, now: Nanos, zone: u32) -> Result<Nanos, ZoneError> {
        self.zones.open_with_zrwa(zone)?;
        Ok(self.host.fetch(now, HostOp::Other, 0))
    }

    /// Sets a zone's descriptor extension.
    ///
    /// # Errors
    /// Those of [`Zones::set_extension`].
    pub fn set_extension(&mut self, now: Nanos, zone: u32) -> Result<Nanos, ZoneError> {
        self.zones.set_extension(zone)?;
        Ok(self.host.fetch(now, HostOp::Other, 0))
    }

    /// Takes a zone out of service.
    ///
    /// # Errors
    /// Those of [`Zones::degrade`].
    pub fn degrade(&mut self, zone: u32, offline: bool) -> Result<(), ZoneError> {
        self.zones.degrade(zone, offline)
    }

    /// A command that only firmware works on: flush (the buffer is power-protected), report.
    pub fn other(&mut self, now: Nanos) -> Nanos {
        self.host.fetch(now, HostOp::Other, 0)
    }

    /// What of it survives: see [`RegionImage`].
    pub fn image_size(&self) -> RegionSize {
        RegionSize { wear: self.wear.len() as u64, ..self.zones.image_size() }
    }

    /// Goes on from what another drive of the same zones and flash has left at `image`, or from nothing: all zeroes.
    ///
    /// # Errors
    /// The image is of another size, or has more active zones than there may be.
    pub fn adopt(&mut self, image: RegionImage) -> Result<(), RegionError> {
        let (found, wanted) = (image.size(), self.image_size());
        if found != wanted {
            return Err(RegionError::Size { found, wanted });
        }
        self.wear = Cells::Lent(image.wear);
        self.zones.adopt(image.words, image.extensions)?;
        self.restart();
        Ok(())
    }

    /// The power goes at `now` and comes back: see [`Zones::power_on`]. Pages that are programmed by then keep their data.
    pub fn power_cut(&mut self, now: Nanos, rng: &mut SplitMix64) -> RegionLoss {
        let under_way = |list: &VecDeque<(Nanos, u32)>| {
            list.iter().filter(|(end, _)| *end > now).map(|(_, bytes)| u64::from(*bytes)).sum::<u64>()
        };
        let open: Vec<u64> = self.under_way.iter().map(under_way).collect();
        let (fill, per_zone, shift) = (&self.fill, self.per_zone, self.block_shift);
        let programmed = |zone: u32| {
            let bytes = u64::from(fill[zone as usize].programmed) * u64::from(UNIT);
            (bytes.saturating_sub(open[if per_zone { zone as usize } else { 0 }]) >> shift) as u32
        };
        let loss = self.zones.power_on(Some(rng), programmed);
        self.restart();
        loss
    }

    /// Idle, with what the zones hold.
    fn restart(&mut self) {
        self.array = Array::new(&self.shape, &self.config.timing.booked(), &self.config.variability);
        self.array.set_wear(&self.wear);
        self.host = Host::new(&self.config.host);
        self.under_way.iter_mut().for_each(VecDeque::clear);
        self.buffered.fill(0);
        let unit = self.stripe.program_units();
        for zone in 0..self.fill.len() {
            let written = self.bytes_long(self.zones.kept(zone as u32).end);
            let units = written.div_ceil(UNIT.into()) as u32;
            let full = self.zones.get(zone as u32).is_some_and(|z| z.state == ZoneState::Full);
            let whole = (written / u64::from(unit * UNIT)) as u32 * unit;
            let programmed = if full { units.next_multiple_of(unit) } else { whole };
            self.fill[zone] = Fill { programmed, written };
            let held = written.saturating_sub(u64::from(programmed) * u64::from(UNIT));
            self.buffered[if self.per_zone { zone } else { 0 }] += held;
        }
    }

    /// What a zone had in the buffer is of no use any more.
    fn drop_held(&mut self, zone: u32) {
        let i = if self.per_zone { zone as usize } else { 0 };
        let Fill { programmed, written } = self.fill[zone as usize];
        self.buffered[i] -= written.saturating_sub(u64::from(programmed) * u64::from(UNIT));
    }

    fn erase(&mut self, begun: Nanos, zone: u32) -> Nanos {
        self.drop_held(zone);
        let Fill { programmed, .. } = core::mem::take(&mut self.fill[zone as usize]);
        let (mut done, mut erases) = (begun, 0);
        let (array, wear, shape) = (&mut self.array, &mut self.wear, self.shape);
        self.stripe.blocks_of(zone, programmed, |plane, block| {
            erases += 1;
            let erased = &mut wear[shape.block_index(plane, block) as usize];
            *erased = erased.saturating_add(1);
            done = done.max(array.erase(begun, plane, block));
        });
        self.erases += erases;
        done
    }

    fn pad(&mut self, begun: Nanos, zone: u32) -> Nanos {
        let Fill { programmed, written } = self.fill[zone as usize];
        if written <= u64::from(programmed) * u64::from(UNIT) {
            return begun;
        }
        self.program(begun, zone)
    }

    fn bytes_long(&self, blocks: u32) -> u64 {
        u64::from(blocks) << self.block_shift
    }

    /// Of one command: bounded by its 16-bit length.
    fn bytes(&self, blocks: u32) -> u32 {
        self.bytes_long(blocks).min(u32::MAX.into()) as u32
    }

    /// States the invariants.
    pub fn check(&self) {
        self.zones.check();
        self.array.check();
        let unit = u64::from(UNIT);
        let mut buffered = vec![0u64; self.buffered.len()];
        for (zone, fill) in self.fill.iter().enumerate() {
            let i = if self.per_zone { zone } else { 0 };
            buffered[i] += fill.written.saturating_sub(u64::from(fill.programmed) * unit);
            let wp = self.zones.get(zone as u32).map_or(0, |z| z.wp);
            assert!(fill.written <= self.bytes_long(wp), "zone {zone}: {fill:?} of {wp} blocks");
        }
        for (i, list) in self.under_way.iter().enumerate() {
            buffered[i] += list.iter().map(|(_, bytes)| u64::from(*bytes)).sum::<u64>();
        }
        assert_eq!(buffered, self.buffered, "what is in the buffer is counted");
    }
}

/// 4 TiB a zone: places are computed in 32 bits, a program further.
const MOST_UNITS: u32 = 1 << 30;

impl Shape {
    /// Zones of `units` 4 KiB units that fit, each spread over `dies` dies (0: all).
    pub fn zones_that_fit(&self, units: u32, dies: u32) -> u32 {
        match Stripe::new(self, u32::MAX, units, dies) {
            Err(StripeError::TooSmall { fit, .. }) => fit,
            _ => 0,
        }
    }
}
