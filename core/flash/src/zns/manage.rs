//! Zone management (ZNS 1.1, 3.4.3): one zone, or all that an action applies to.

use super::zones::{Zone, ZoneAction, ZoneError, ZoneState, Zones};

/// Which zones an action is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The one with this number.
    One(u32),
    /// All in a state that the action applies to.
    All,
}

impl ZoneAction {
    /// Whether `All` selects a zone in this state (ZNS 1.1, 3.4.3.1).
    pub const fn selects(self, state: ZoneState) -> bool {
        match self {
            ZoneAction::Open => matches!(state, ZoneState::Closed),
            ZoneAction::Close => state.is_open(),
            ZoneAction::Finish => state.is_active(),
            ZoneAction::Reset => state.is_active() || matches!(state, ZoneState::Full),
            ZoneAction::Offline => matches!(state, ZoneState::ReadOnly),
        }
    }

    /// Whether a zone in this state takes it: it gets there, or is there already.
    const fn permits(self, state: ZoneState) -> bool {
        match (self, state) {
            (ZoneAction::Offline, ZoneState::ReadOnly | ZoneState::Offline) => true,
            (ZoneAction::Offline, _) | (_, ZoneState::ReadOnly | ZoneState::Offline) => false,
            (ZoneAction::Open, state) => matches!(state, ZoneState::Empty) || state.is_active(),
            (ZoneAction::Close, state) => state.is_active(),
            (ZoneAction::Finish | ZoneAction::Reset, _) => true,
        }
    }
}

impl Zones {
    /// Whether the zones would take the action now; `Ok(false)`: there is nothing to do.
    ///
    /// # Errors
    /// Those of [`manage`](Self::manage), as far as states decide: limits are not looked at.
    pub fn allows(&self, action: ZoneAction, zones: Selection) -> Result<bool, ZoneError> {
        match zones {
            Selection::All => Ok(self.zones.iter().any(|z| action.selects(z.state))),
            Selection::One(zone) => {
                let state = self.zones.get(zone as usize).ok_or(ZoneError::OutOfRange)?.state;
                if !action.permits(state) {
                    return Err(ZoneError::InvalidTransition);
                }
                Ok(state != action.target())
            }
        }
    }

    /// Carries an action out; `changed` is told each zone that is about to change, as it was before. A zone that is full already is durably
    /// full when its host has finished it: it does not come back with room after a loss of power.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn manage(
        &mut self,
        action: ZoneAction,
        zones: Selection,
        mut changed: impl FnMut(u32, Zone),
    ) -> Result<(), ZoneError> {
        if !self.allows(action, zones)? {
            if let (ZoneAction::Finish, Selection::One(zone)) = (action, zones) {
                self.finished(zone);
            }
            return Ok(());
        }
        match zones {
            Selection::One(zone) => self.manage_one(action, zone, &mut changed),
            Selection::All => {
                let selected = |z: &&Zone| action.selects(z.state);
                let more = self.zones.iter().filter(selected).count() as u64;
                let limit = self.config.open_limit();
                if action == ZoneAction::Open && limit != 0 && u64::from(self.open) + more > u64::from(limit) {
                    return Err(ZoneError::TooManyOpen);
                }
                for zone in 0..self.config.zones {
                    if action.selects(self.zones[zone as usize].state) {
                        self.manage_one(action, zone, &mut changed)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn manage_one(
        &mut self,
        action: ZoneAction,
        zone: u32,
        changed: &mut impl FnMut(u32, Zone),
    ) -> Result<(), ZoneError> {
        let before = self.zones[zone as usize];
        match action {
            ZoneAction::Open => self.open_for(zone, ZoneState::ExplicitlyOpened)?,
            _ => self.set(zone, action.target()),
        }
        let capacity = self.config.capacity;
        let z = &mut self.zones[zone as usize];
        match action {
            ZoneAction::Finish => {
                z.wp = capacity;
                self.finished(zone);
            }
            ZoneAction::Reset => z.wp = 0,
            _ => {}
        }
        changed(zone, before);
        Ok(())
    }

    /// Opens a zone with a random write area. One that has its area already keeps it.
    ///
    /// # Errors
    /// There are no such areas, all are taken, the write pointer is not aligned for one, or those of opening a zone. Nothing
    /// has changed then.
    pub fn open_with_zrwa(&mut self, zone: u32) -> Result<(), ZoneError> {
        let Some(area) = self.config.zrwa else { return Err(ZoneError::InvalidOperation) };
        self.allows(ZoneAction::Open, Selection::One(zone))?;
        let Zone { wp, zrwa, .. } = self.zones[zone as usize];
        if !zrwa && (wp % area.granularity != 0 || self.areas >= area.areas) {
            return Err(ZoneError::NoZrwa);
        }
        self.open_for(zone, ZoneState::ExplicitlyOpened)?;
        self.zones[zone as usize].zrwa = true;
        self.areas += u32::from(!zrwa);
        self.keep(zone);
        Ok(())
    }

    /// The host sets the descriptor extension of an empty zone, which is closed from then on (ZNS 1.1, 3.4.3.1.6).
    ///
    /// # Errors
    /// There are no extensions, the zone is not empty, or as many zones are active as may be. Nothing has changed then.
    pub fn set_extension(&mut self, zone: u32) -> Result<(), ZoneError> {
        let state = self.zones.get(zone as usize).ok_or(ZoneError::OutOfRange)?.state;
        if self.config.extension == 0 {
            return Err(ZoneError::InvalidField);
        }
        if state != ZoneState::Empty {
            return Err(ZoneError::InvalidTransition);
        }
        self.room_for_active()?;
        self.set(zone, ZoneState::Closed);
        self.zones[zone as usize].extended = true;
        self.keep(zone);
        Ok(())
    }

    /// The drive takes a zone out of service: read only, or offline. What it held open is given back.
    ///
    /// # Errors
    /// There is no such zone, or it is offline and would come back.
    pub fn degrade(&mut self, zone: u32, offline: bool) -> Result<(), ZoneError> {
        let state = self.zones.get(zone as usize).ok_or(ZoneError::OutOfRange)?.state;
        let to = if offline { ZoneState::Offline } else { ZoneState::ReadOnly };
        if state == ZoneState::Offline && !offline {
            return Err(ZoneError::InvalidTransition);
        }
        self.set(zone, to);
        Ok(())
    }
}

impl ZoneAction {
    /// The state that it leads to.
    const fn target(self) -> ZoneState {
        match self {
            ZoneAction::Open => ZoneState::ExplicitlyOpened,
            ZoneAction::Close => ZoneState::Closed,
            ZoneAction::Finish => ZoneState::Full,
            ZoneAction::Reset => ZoneState::Empty,
            ZoneAction::Offline => ZoneState::Offline,
        }
    }
}
