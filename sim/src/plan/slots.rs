//! Whether a drive's slots leave anything to arbitrate.

use super::PlanFile;
use weir_config::Mechanism;

/// Slots of a drive, and how many there should be for shares to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotsAdvice {
    /// Commands that the drive works on at once.
    pub slots: u16,
    /// Commands that the tenants have in flight together: no more, so none of them waits where it is arbitrated.
    pub in_flight: u16,
    /// What it should be: fewer than each tenant has in flight.
    pub advised: u16,
}

impl PlanFile {
    /// What is to be said of the drive's slots: where all closed loops fit into them, the flash decides who is served, whatever the
    /// shares. `None` where somebody waits, where little is asked for, or where nothing is known of the drive.
    pub fn slots_advice(&self) -> Option<SlotsAdvice> {
        let flash = self.device.flash.as_ref()?;
        if !matches!(self.device.arbitration.mechanism, Mechanism::Wrr | Mechanism::Drr) {
            return None;
        }
        let loops = self.members.iter().map(|member| &member.demand).filter(|demand| demand.rate.is_none());
        let depths: Vec<u32> = loops.map(|demand| demand.outstanding() as u32).collect();
        let (slots, shared) = (self.device.slots, flash.profile.slots().shared);
        let (in_flight, least) = (depths.iter().sum::<u32>(), depths.iter().min().copied().unwrap_or(0));
        // With fewer each has its part of a drive that is not busy.
        let is_busy = depths.len() > 1 && in_flight > u32::from(shared);
        let advised = u32::from(shared).min(least * 3 / 4).max(1) as u16;
        let fits = in_flight <= u32::from(slots) && advised < slots;
        (is_busy && fits).then_some(SlotsAdvice { slots, in_flight: in_flight as u16, advised })
    }
}
