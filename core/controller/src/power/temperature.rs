//! The temperature of a drive as its hosts hear of it, and the power state that a controller is in.

use crate::controller::Controller;
use crate::power::{POWER_STATES, SENSORS, thermal};
use crate::subsystem::Subsystem;
use weir_spec::nvme::feature::{async_config, transition_idle_ms, transition_state};
use weir_spec::nvme::log::{AsyncEvent, critical_warning};
use weir_spec::nvme::maintenance::persistent;
use weir_units::Nanos;

/// How often the temperature is looked at while a host wants to hear of it.
pub(crate) const LOOK: Nanos = Nanos::from_secs(5);

/// Critical warnings that are looked for while somebody wants to hear of them.
pub(crate) const WATCHED: u32 = async_config::TEMPERATURE | critical_warning::SPARE as u32;

impl Subsystem {
    fn bytes_moved(&self) -> u64 {
        let work = self.total_work();
        work.read_bytes + work.write_bytes
    }

    /// The composite temperature, K.
    pub(crate) fn temperature(&self, now: Nanos) -> u16 {
        self.drifted_temperature(now, self.power.thermal.kelvin(now, self.bytes_moved()))
    }

    /// The readings of the sensors: of the controller and of the media, K.
    pub(crate) fn sensors(&self, now: Nanos) -> [u16; SENSORS - 1] {
        let composite = self.temperature(now);
        [composite, composite - (composite - self.power.thermal.ambient.min(composite)) / 2]
    }

    /// Notes the temperature.
    pub(crate) fn look_at_temperature(&mut self, now: Nanos) {
        let bytes = self.bytes_moved();
        self.power.thermal.look(now, bytes);
    }

    /// The temperature that the drive has at rest, in K, from now on: its surroundings have changed, or its cooling has. At first it is
    /// 313 K.
    pub fn set_ambient(&mut self, now: Nanos, kelvin: u16) {
        self.look_at_temperature(now);
        self.power.thermal.ambient = kelvin;
        self.arm_thermal(now);
    }

    /// Whether the temperature has left the thresholds that a controller's host set.
    pub(crate) fn temperature_alarm(&self, now: Nanos, c: u32) -> bool {
        let [first, second] = self.sensors(now);
        let readings = [self.temperature(now), first, second];
        self.ctrl(c).is_some_and(|ctrl| {
            let f = &ctrl.features;
            let thresholds = f.temperature_over.iter().zip(&f.temperature_under);
            // A threshold of a sensor that was never set is no threshold.
            readings.iter().zip(thresholds).any(|(t, (over, under))| *over != 0 && t >= over || t <= under)
        })
    }

    /// Has the drive woken where a host wants to hear of the temperature or of the spare.
    pub(crate) fn arm_thermal(&mut self, now: Nanos) {
        let wants = |ctrl: &Controller| ctrl.ready() && ctrl.features.async_config & WATCHED != 0;
        let wanted = self.controllers.list.iter().flatten().any(|ctrl| wants(ctrl));
        self.power.next_look = if wanted { now.saturating_add(LOOK) } else { Nanos::NEVER };
        self.admin.next_expiry = self.admin.next_expiry.min(self.power.next_look);
    }

    /// Looks at the temperature if it is time to; hosts that want to know are told when it leaves their thresholds.
    pub(crate) fn watch_temperature(&mut self, now: Nanos) {
        if self.power.next_look > now {
            return;
        }
        self.look_at_temperature(now);
        self.watch_spare();
        for c in 0..self.controllers.list.len() as u32 {
            let alarm = self.temperature_alarm(now, c);
            let Some(ctrl) = self.ctrl_mut(c) else { continue };
            let before = core::mem::replace(&mut ctrl.too_hot, alarm);
            if alarm && !before {
                ctrl.aer.raise(AsyncEvent::TEMPERATURE, ctrl.features.async_config);
                self.list_admin(c);
                self.associate();
                let over = self.temperature(now).saturating_sub(thermal::WARNING).min(255) as u8;
                self.record(now, Some(c), persistent::THERMAL, &[over, 0]);
            }
        }
        self.arm_thermal(now);
    }

    /// The power state of a controller: what its host set, or what it has gone to of its own accord (APST), or come back from.
    pub(crate) fn power_state(&self, ctrl: &Controller, now: Nanos) -> u8 {
        let f = &ctrl.features;
        let quiet = if self.power.busy_since.is_some() { now } else { self.power.idle_since.max(ctrl.power_since) };
        let mut state = f.power.ps() as u8;
        if !POWER_STATES[usize::from(state)].operational && quiet > ctrl.power_since {
            // A command has woken it (base 2.0, 8.15.1).
            state = ctrl.power_before;
        }
        let mut idle = now.saturating_sub(quiet).0 / 1_000_000;
        for _ in 0..POWER_STATES.len() {
            let entry = f.transitions[usize::from(state)];
            let after = u64::from(transition_idle_ms(entry));
            if !f.autonomous || after == 0 || idle < after {
                break;
            }
            (state, idle) = (transition_state(entry), idle - after);
        }
        state
    }
}
