//! A slow, obvious zoned namespace: every rule of [`Zones`](super::Zones) by looking at all zones, for tests.

use super::config::ZoneConfig;
use super::manage::Selection;
use super::zones::{Zone, ZoneAction, ZoneError, ZoneState, Zones};
use alloc::vec;
use alloc::vec::Vec;

/// What can happen to a zoned namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneOp {
    /// A write: first block, blocks.
    Write(u64, u32),
    /// An append: first block of the zone, blocks.
    Append(u64, u32),
    /// A read: first block, blocks.
    Read(u64, u32),
    /// Zone management of one zone, or all.
    Manage(ZoneAction, Selection),
    /// Opened with a random write area.
    OpenZrwa(u32),
    /// A random write area committed up to this block.
    FlushZrwa(u64),
    /// Its descriptor extension set.
    Extend(u32),
    /// Read only, or offline, by the drive.
    Degrade(u32, bool),
}

/// Carries a step out on the machine; an append answers where it went.
pub fn apply(zones: &mut Zones, step: ZoneOp) -> Result<u64, ZoneError> {
    match step {
        ZoneOp::Write(start, blocks) => zones.write(start, blocks).map(|_| start),
        ZoneOp::Append(start, blocks) => zones.append(start, blocks).map(|(_, at, _)| at),
        ZoneOp::Read(start, blocks) => zones.read(start, blocks).map(|()| 0),
        ZoneOp::Manage(action, which) => zones.manage(action, which, |_, _| {}).map(|()| 0),
        ZoneOp::OpenZrwa(zone) => zones.open_with_zrwa(zone).map(|()| 0),
        ZoneOp::FlushZrwa(last) => zones.flush_zrwa(last).map(|_| 0),
        ZoneOp::Extend(zone) => zones.set_extension(zone).map(|()| 0),
        ZoneOp::Degrade(zone, offline) => zones.degrade(zone, offline).map(|()| 0),
    }
}

/// The oracle. It is copied before each step, and a step that fails is forgotten.
#[derive(Clone, Debug)]
pub struct ZonesModel {
    config: ZoneConfig,
    /// Each zone, and when it was opened implicitly.
    pub zones: Vec<(Zone, u64)>,
    clock: u64,
}

impl ZonesModel {
    /// All empty.
    pub fn new(config: ZoneConfig) -> Self {
        let empty = Zone { state: ZoneState::Empty, wp: 0, zrwa: false, extended: false };
        Self { config, zones: vec![(empty, 0); config.zones as usize], clock: 0 }
    }

    /// The same step.
    pub fn apply(&mut self, step: ZoneOp) -> Result<u64, ZoneError> {
        let mut next = self.clone();
        let answer = next.step(step)?;
        *self = next;
        Ok(answer)
    }

    fn step(&mut self, step: ZoneOp) -> Result<u64, ZoneError> {
        self.clock += 1;
        match step {
            ZoneOp::Write(start, blocks) => self.write(start, blocks, false),
            ZoneOp::Append(start, blocks) => self.write(start, blocks, true),
            ZoneOp::Read(start, blocks) => self.read(start, blocks),
            ZoneOp::Manage(action, Selection::One(zone)) => self.manage(zone, action).map(|()| 0),
            ZoneOp::Manage(action, Selection::All) => self.manage_all(action),
            ZoneOp::OpenZrwa(zone) => self.open_zrwa(zone),
            ZoneOp::FlushZrwa(last) => self.flush(last),
            ZoneOp::Extend(zone) => self.extend(zone),
            ZoneOp::Degrade(zone, offline) => {
                let z = self.zone(zone)?;
                if z.state == ZoneState::Offline && !offline {
                    return Err(ZoneError::InvalidTransition);
                }
                self.become_state(zone, if offline { ZoneState::Offline } else { ZoneState::ReadOnly });
                Ok(0)
            }
        }
    }

    fn zone(&self, zone: u32) -> Result<Zone, ZoneError> {
        self.zones.get(zone as usize).map(|z| z.0).ok_or(ZoneError::OutOfRange)
    }

    fn at(&self, block: u64) -> Result<(u32, u32), ZoneError> {
        let zone = block / u64::from(self.config.size);
        if zone >= u64::from(self.config.zones) {
            return Err(ZoneError::OutOfRange);
        }
        Ok((zone as u32, (block % u64::from(self.config.size)) as u32))
    }

    fn count(&self, is: impl Fn(&Zone) -> bool) -> u32 {
        self.zones.iter().filter(|(z, _)| is(z)).count() as u32
    }

    fn become_state(&mut self, zone: u32, state: ZoneState) {
        let (z, opened) = &mut self.zones[zone as usize];
        if state == ZoneState::ImplicitlyOpened && z.state != state {
            *opened = self.clock;
        }
        z.state = state;
        z.zrwa &= state.is_active();
        z.extended &= state != ZoneState::Empty && state != ZoneState::Offline;
    }

    fn open(&mut self, zone: u32, state: ZoneState) -> Result<(), ZoneError> {
        let now = self.zone(zone)?.state;
        if now.is_open() {
            if state == ZoneState::ExplicitlyOpened {
                self.become_state(zone, state);
            }
            return Ok(());
        }
        let (active, open) = (self.count(|z| z.state.is_active()), self.count(|z| z.state.is_open()));
        if now == ZoneState::Empty && self.config.max_active != 0 && active == self.config.max_active {
            return Err(ZoneError::TooManyActive);
        }
        let limit = if self.config.max_open == 0 { self.config.max_active } else { self.config.max_open };
        if limit != 0 && open == limit {
            let implicit =
                (0..self.config.zones).filter(|i| self.zones[*i as usize].0.state == ZoneState::ImplicitlyOpened);
            let oldest = implicit.min_by_key(|i| self.zones[*i as usize].1).ok_or(ZoneError::TooManyOpen)?;
            self.become_state(oldest, ZoneState::Closed);
        }
        self.become_state(zone, state);
        Ok(())
    }

    fn write(&mut self, start: u64, blocks: u32, append: bool) -> Result<u64, ZoneError> {
        let (zone, mut at) = self.at(start)?;
        let z = self.zone(zone)?;
        if append {
            if at != 0 {
                return Err(ZoneError::InvalidField);
            }
            if z.zrwa {
                return Err(ZoneError::InvalidOperation);
            }
            at = z.wp;
        }
        match z.state {
            ZoneState::Full => return Err(ZoneError::Full),
            ZoneState::ReadOnly => return Err(ZoneError::ReadOnly),
            ZoneState::Offline => return Err(ZoneError::Offline),
            _ if blocks == 0 => return Err(ZoneError::InvalidField),
            _ if u64::from(at) + u64::from(blocks) > u64::from(self.config.capacity) => {
                return Err(ZoneError::Boundary);
            }
            _ => {}
        }
        let mut wp = z.wp;
        match self.config.zrwa {
            Some(area) if z.zrwa => {
                if at < wp || at + blocks > wp + 2 * area.size {
                    return Err(ZoneError::InvalidWrite);
                }
                while at + blocks > wp + area.size {
                    wp += area.granularity;
                }
            }
            _ if at != wp => return Err(ZoneError::InvalidWrite),
            _ => wp += blocks,
        }
        self.open(zone, ZoneState::ImplicitlyOpened)?;
        self.put(zone, wp.min(self.config.capacity));
        Ok(start - start % u64::from(self.config.size) + u64::from(at))
    }

    fn put(&mut self, zone: u32, wp: u32) {
        self.zones[zone as usize].0.wp = wp;
        if wp == self.config.capacity {
            self.become_state(zone, ZoneState::Full);
        }
    }

    fn read(&self, start: u64, blocks: u32) -> Result<u64, ZoneError> {
        let blocks = (0..u64::from(blocks.max(1))).map(|i| self.at(start + i).map(|(zone, _)| zone));
        let zones = blocks.collect::<Result<Vec<u32>, _>>()?;
        if zones.iter().any(|z| *z != zones[0]) && !self.config.read_across {
            return Err(ZoneError::Boundary);
        }
        let offline = zones.iter().any(|z| self.zones[*z as usize].0.state == ZoneState::Offline);
        if offline { Err(ZoneError::Offline) } else { Ok(0) }
    }

    fn manage(&mut self, zone: u32, action: ZoneAction) -> Result<(), ZoneError> {
        use ZoneState as S;
        match (action, self.zone(zone)?.state) {
            (ZoneAction::Offline, S::ReadOnly | S::Offline) => self.become_state(zone, S::Offline),
            (ZoneAction::Offline, _) | (_, S::ReadOnly | S::Offline) => return Err(ZoneError::InvalidTransition),
            (ZoneAction::Open, S::Full) | (ZoneAction::Close, S::Full | S::Empty) => {
                return Err(ZoneError::InvalidTransition);
            }
            (ZoneAction::Open, _) => self.open(zone, S::ExplicitlyOpened)?,
            (ZoneAction::Close, _) => self.become_state(zone, S::Closed),
            (ZoneAction::Finish, _) => self.put(zone, self.config.capacity),
            (ZoneAction::Reset, _) => {
                self.become_state(zone, S::Empty);
                self.zones[zone as usize].0.wp = 0;
            }
        }
        Ok(())
    }

    fn manage_all(&mut self, action: ZoneAction) -> Result<u64, ZoneError> {
        use ZoneState as S;
        let selects = |state: S| match action {
            ZoneAction::Open => state == S::Closed,
            ZoneAction::Close => state.is_open(),
            ZoneAction::Finish => state.is_active(),
            ZoneAction::Reset => state.is_active() || state == S::Full,
            ZoneAction::Offline => state == S::ReadOnly,
        };
        let zones: Vec<u32> = (0..self.config.zones).filter(|z| selects(self.zones[*z as usize].0.state)).collect();
        let limit = if self.config.max_open == 0 { self.config.max_active } else { self.config.max_open };
        let open = self.count(|z| z.state.is_open());
        if action == ZoneAction::Open && limit != 0 && open + zones.len() as u32 > limit {
            return Err(ZoneError::TooManyOpen);
        }
        zones.into_iter().try_for_each(|zone| self.manage(zone, action)).map(|()| 0)
    }

    fn open_zrwa(&mut self, zone: u32) -> Result<u64, ZoneError> {
        let area = self.config.zrwa.ok_or(ZoneError::InvalidOperation)?;
        let z = self.zone(zone)?;
        if matches!(z.state, ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline) {
            return Err(ZoneError::InvalidTransition);
        }
        if !z.zrwa && (z.wp % area.granularity != 0 || self.count(|z| z.zrwa) == area.areas) {
            return Err(ZoneError::NoZrwa);
        }
        self.open(zone, ZoneState::ExplicitlyOpened)?;
        self.zones[zone as usize].0.zrwa = true;
        Ok(0)
    }

    fn extend(&mut self, zone: u32) -> Result<u64, ZoneError> {
        let state = self.zone(zone)?.state;
        if self.config.extension == 0 {
            return Err(ZoneError::InvalidField);
        }
        if state != ZoneState::Empty {
            return Err(ZoneError::InvalidTransition);
        }
        if self.config.max_active != 0 && self.count(|z| z.state.is_active()) == self.config.max_active {
            return Err(ZoneError::TooManyActive);
        }
        self.become_state(zone, ZoneState::Closed);
        self.zones[zone as usize].0.extended = true;
        Ok(0)
    }

    fn flush(&mut self, last: u64) -> Result<u64, ZoneError> {
        let (zone, at) = self.at(last)?;
        let area = self.config.zrwa.ok_or(ZoneError::InvalidOperation)?;
        let z = self.zone(zone)?;
        if !z.zrwa {
            return Err(ZoneError::InvalidOperation);
        }
        if at < z.wp || at >= z.wp + area.size || at >= self.config.capacity {
            return Err(ZoneError::Boundary);
        }
        if (at + 1 - z.wp) % area.granularity != 0 && at + 1 != self.config.capacity {
            return Err(ZoneError::InvalidField);
        }
        self.open(zone, ZoneState::ImplicitlyOpened)?;
        self.put(zone, at + 1);
        Ok(0)
    }
}
