//! Conditions that hold for a while: what the drive does when one begins, while it holds, and when it ends.

use crate::controller::Transport;
use crate::fault::state::{Faults, HeldCondition, HeldReset};
use crate::host::{Host, Nobody};
use crate::namespace::why;
use crate::queues::queue::SqState;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_fault::{FaultEffect, PlannedFault, SmartDrift};
use weir_spec::nvme::log::{AsyncEvent, critical_warning};
use weir_units::Nanos;

/// How often drifting values are looked at for events.
const DRIFT_LOOK: Nanos = Nanos::from_secs(1);

/// What a planned condition is about.
fn held(planned: &PlannedFault) -> HeldCondition {
    let target = &planned.rule.target;
    HeldCondition {
        id: planned.id,
        effect: planned.rule.effect.clone(),
        tenant: planned.tenant(),
        nsid: target.nsid,
        queue: target.queue,
        channel: target.place.channel,
        die: target.place.die,
        since: planned.begins().unwrap_or_default(),
        drifted: 0,
    }
}

/// A value that is reached evenly: from `start` to `end` in the part of `over` that has passed.
fn drifted(start: u64, end: u64, passed: Nanos, over: Nanos) -> u64 {
    if passed >= over {
        return end;
    }
    let part = |n: u64| (u128::from(n) * u128::from(passed.0) / u128::from(over.0)) as u64;
    if end >= start { start + part(end - start) } else { start - part(start - end) }
}

impl Subsystem {
    /// Takes up what the rules have changed: commands that go on, conditions that begin or end.
    pub(crate) fn run_faults<H: Host>(&mut self, now: Nanos, host: &mut H) {
        if self.faults.is_none() {
            return;
        }
        self.count_delays(now);
        self.end_orphans(host);
        self.mark_faulty_namespaces();
        let Some(faults) = &mut self.faults else { return };
        if faults.next > now && !faults.changed {
            return;
        }
        faults.changed = false;
        faults.resets.retain(|reset| reset.until > now);
        self.change_conditions(now);
        self.release_commands(now, host);
        self.release_admin(now, host);
        self.drift(now);
        self.arm_faults();
        if self.faults.as_ref().is_some_and(|faults| faults.is_idle()) {
            self.faults = None;
        }
    }

    /// When rules change something by themselves next.
    pub(crate) fn faults_due(&self) -> Nanos {
        self.faults.as_ref().map_or(Nanos::NEVER, |faults| faults.next)
    }

    /// Has the drive woken when the rules need it.
    pub(super) fn arm_faults(&mut self) {
        let now = self.turn.now;
        let Some(faults) = &mut self.faults else { return };
        faults.next = faults.next_due(now);
        if faults.drifts(now) {
            faults.next = faults.next.min(now.saturating_add(DRIFT_LOOK));
        }
        self.admin.next_expiry = self.admin.next_expiry.min(faults.next);
    }

    /// Every namespace's commands take the slow path while some rule sees them.
    pub(super) fn mark_faulty_namespaces(&mut self) {
        let sees = self.faults.as_ref().is_some_and(|faults| faults.plan.sees_io());
        for ns in self.namespaces.list.iter_mut().flatten() {
            ns.why = if sees { ns.why | why::FAULTS } else { ns.why & !why::FAULTS };
        }
    }

    fn change_conditions(&mut self, now: Nanos) {
        let Some(faults) = &mut self.faults else { return };
        let wanted: Vec<HeldCondition> = faults.plan.conditions(now).map(held).collect();
        let has = |list: &[HeldCondition], id: u32| list.iter().any(|c| c.id == id);
        let (stay, ended): (Vec<_>, Vec<_>) =
            core::mem::take(&mut faults.conditions).into_iter().partition(|c| has(&wanted, c.id));
        let begun: Vec<HeldCondition> = wanted.into_iter().filter(|c| !has(&stay, c.id)).collect();
        faults.conditions = stay;
        faults.condition_changes += (ended.len() + begun.len()) as u64;
        let before = core::mem::take(&mut faults.begun_before);
        ended.iter().for_each(|condition| self.end_condition(now, condition));
        for mut condition in begun {
            let warned = self.critical_warning();
            let Some(faults) = &mut self.faults else { return };
            let resumed = before.iter().find(|resumed| resumed.id == condition.id);
            condition.drifted = resumed.map_or(0, |resumed| resumed.drifted);
            let at = faults.conditions.partition_point(|c| c.id < condition.id);
            faults.conditions.insert(at, condition.clone());
            match resumed {
                Some(_) => self.resume_condition(now, &condition),
                None => self.begin_condition(now, &condition, warned),
            }
        }
        self.refresh_stuck();
    }

    /// `warned`: SMART's critical warning without it.
    fn begin_condition(&mut self, now: Nanos, condition: &HeldCondition, warned: u8) {
        match &condition.effect {
            FaultEffect::ControllerFatal => self.fail_controllers(condition.tenant),
            FaultEffect::LinkLoss | FaultEffect::Removal { .. } => self.lose_link(now, condition.tenant),
            FaultEffect::ReadOnly if warned & critical_warning::READ_ONLY == 0 => self.tell_read_only(),
            FaultEffect::NamespaceResized { blocks } => self.show_blocks(condition.nsid, *blocks),
            FaultEffect::NamespaceIdentity => self.tell_namespace(condition.nsid),
            FaultEffect::NamespaceGone => self.tell_namespace(condition.nsid),
            FaultEffect::SlowDie { thousandths } => self.set_dies(condition, *thousandths),
            FaultEffect::Smart(_) => self.power.next_look = self.power.next_look.min(now),
            _ => {}
        }
    }

    /// A condition that had begun in a process before this one: what lies in this process's memory alone is made again, and no host is told twice.
    fn resume_condition(&mut self, now: Nanos, condition: &HeldCondition) {
        match &condition.effect {
            FaultEffect::NamespaceResized { blocks } => {
                let Some((nsid, _)) = self.faulty_namespace(condition.nsid) else { return };
                let Some(own) = self.own_blocks(nsid) else { return };
                self.namespaces.get_mut(nsid).into_iter().for_each(|ns| ns.blocks = own.min(*blocks));
                self.refresh_guard(nsid);
            }
            FaultEffect::NamespaceIdentity | FaultEffect::NamespaceGone => {
                if let Some((nsid, _)) = self.faulty_namespace(condition.nsid) {
                    self.refresh_guard(nsid);
                }
            }
            FaultEffect::SlowDie { thousandths } => self.set_dies(condition, *thousandths),
            FaultEffect::Smart(_) => self.power.next_look = self.power.next_look.min(now),
            _ => {}
        }
    }

    fn end_condition(&mut self, now: Nanos, condition: &HeldCondition) {
        match &condition.effect {
            FaultEffect::ResetFails | FaultEffect::SlowReset(_) => {
                let faults = self.faults.iter_mut();
                faults.for_each(|faults| faults.resets.retain(|reset| reset.rule != condition.id));
            }
            FaultEffect::NamespaceResized { .. } => self.show_blocks(condition.nsid, u64::MAX),
            FaultEffect::NamespaceIdentity | FaultEffect::NamespaceGone => self.tell_namespace(condition.nsid),
            FaultEffect::SlowDie { .. } => self.set_dies(condition, 1000),
            FaultEffect::Smart(_) => self.power.next_look = self.power.next_look.min(now),
            _ => {}
        }
    }

    fn controllers_of(&self, tenant: Option<u16>) -> Vec<u32> {
        let is = |c: &u32| self.ctrl(*c).is_some_and(|ctrl| tenant.is_none_or(|t| t == ctrl.tenant));
        (0..self.controllers.list.len() as u32).filter(is).collect()
    }

    /// NVMe controllers say CSTS.CFS; a virtio device has nothing to say it by.
    fn fail_controllers(&mut self, tenant: Option<u16>) {
        for c in self.controllers_of(tenant) {
            if self.ctrl(c).is_some_and(|ctrl| ctrl.transport != Transport::Front) {
                self.fatal(c);
            }
        }
    }

    /// Connections are closed, and PCIe functions are as after a link that was down: what was in flight is gone, registers have their first values.
    fn lose_link(&mut self, now: Nanos, tenant: Option<u16>) {
        for c in self.controllers_of(tenant) {
            match self.ctrl(c).map(|ctrl| ctrl.transport) {
                Some(Transport::Fabrics) => self.fatal(c),
                Some(Transport::Rings) => self.reset_controller(now, c, &mut Nobody),
                _ => {}
            }
        }
    }

    /// SMART's critical warning: the drive's own, and what rules make of it.
    pub(crate) fn critical_warning(&self) -> u8 {
        let read_only = |faults: &Faults| faults.conditions.iter().any(|c| c.effect == FaultEffect::ReadOnly);
        let rules = self.faults.as_ref().is_some_and(|faults| read_only(faults));
        self.health.warning | if rules { critical_warning::READ_ONLY } else { 0 }
    }

    /// Hosts that want to know that the media is read only are told.
    fn tell_read_only(&mut self) {
        self.note_event(AsyncEvent::RELIABILITY, None);
        self.note_endurance_warning();
    }

    /// A namespace's size in blocks, as it was made or formatted.
    pub(crate) fn own_blocks(&self, nsid: u32) -> Option<u64> {
        let ns = self.namespaces.active(nsid).ok()?;
        let bytes = match self.namespaces.allocator {
            Some(_) => self.namespaces.records.get(&nsid)?.bytes,
            None => self.config.namespaces.iter().find(|config| config.nsid == nsid)?.size,
        };
        Some(bytes >> ns.shift)
    }

    /// Shows so many blocks of a namespace, or as many as it has. Nothing of that is written down: the next process begins with the rule anew.
    fn show_blocks(&mut self, nsid: Option<u32>, blocks: u64) {
        let Some((nsid, _)) = self.faulty_namespace(nsid) else { return };
        let Some(own) = self.own_blocks(nsid) else { return };
        self.namespaces.get_mut(nsid).into_iter().for_each(|ns| ns.blocks = own.min(blocks));
        self.tell_namespace(Some(nsid));
    }

    /// Identify shows a namespace in another way, see [`Subsystem::shown_uuid`] and [`Subsystem::hides_namespace`]: hosts are told.
    fn tell_namespace(&mut self, nsid: Option<u32>) {
        let Some((nsid, _)) = self.faulty_namespace(nsid) else { return };
        self.refresh_guard(nsid);
        self.note_event(AsyncEvent::NAMESPACE_ATTRIBUTE, Some(nsid));
    }

    /// Whether a rule lets no controller have a namespace, whatever is attached.
    pub(crate) fn hides_namespace(&self, nsid: u32) -> bool {
        let mut conditions = self.faults.iter().flat_map(|faults| &faults.conditions);
        let is = |named: Option<u32>| self.faulty_namespace(named).is_some_and(|(n, _)| n == nsid);
        conditions.any(|c| c.effect == FaultEffect::NamespaceGone && is(c.nsid))
    }

    /// The namespace of a rule that is about one: the one that it names, or the only one.
    fn faulty_namespace(&self, nsid: Option<u32>) -> Option<(u32, crate::namespace::Namespace)> {
        let nsid = nsid.or_else(|| self.namespaces.nsids().next())?;
        Some((nsid, *self.namespaces.active(nsid).ok()?))
    }

    fn set_dies(&mut self, condition: &HeldCondition, thousandths: u32) {
        self.slots.quiet_until = Nanos(0);
        let Some(inside) = &mut self.timing.0 else { return };
        let Some(shape) = inside.flash_shape() else { return };
        let is = |die: &u32| {
            condition.die.is_none_or(|wanted| wanted == *die)
                && condition.channel.is_none_or(|channel| *die % shape.channels == channel)
        };
        (0..shape.dies).filter(is).for_each(|die| inside.set_die_times(die, thousandths));
    }

    /// Which queues are fetched from: those that a condition holds are not.
    fn refresh_stuck(&mut self) {
        for q in 0..self.queues.sqs.len() as u32 {
            if self.queues.sqs[q as usize].is_some() {
                self.refresh_stuck_queue(q);
            }
        }
    }

    /// The same of one queue.
    pub(crate) fn refresh_stuck_queue(&mut self, q: u32) {
        let sq = self.sq(q);
        let (qid, tenant, key, front) = (sq.qid, sq.tenant, sq.key, sq.front);
        if qid == 0 || sq.state != SqState::Open {
            return;
        }
        // A virtio queue has no link that could be lost: its requests wait until the drive is back.
        let stuck = |faults: &Faults| faults.is_stuck(tenant, qid) || front && faults.is_absent(tenant);
        let stuck = self.faults.as_ref().is_some_and(|faults| stuck(faults));
        if core::mem::replace(&mut self.sq_mut(q).stuck, stuck) == stuck {
            return;
        }
        if stuck { self.arbiter.withdraw(key) } else { self.refresh(q) }
    }

    /// CC.EN of a controller has changed: whether CSTS.RDY follows.
    pub(crate) fn delay_ready(&mut self, now: Nanos, c: u32, enabled: bool) {
        let tenant = self.ctrl(c).map_or(0, |ctrl| ctrl.tenant);
        let Some(faults) = &mut self.faults else { return };
        faults.resets.retain(|reset| reset.controller != c);
        let until = |condition: &HeldCondition| match condition.effect {
            FaultEffect::ResetFails => Some(Nanos::NEVER),
            FaultEffect::SlowReset(time) if enabled => Some(now.saturating_add(time)),
            _ => None,
        };
        let mut about = faults.conditions.iter().filter(|condition| condition.tenant.is_none_or(|t| t == tenant));
        let reset = about.find_map(|about| Some(HeldReset { controller: c, rule: about.id, until: until(about)? }));
        faults.resets.extend(reset);
        self.arm_faults();
    }

    /// A function level reset, or the end of a controller: nothing holds its registers any more.
    pub(crate) fn forget_reset(&mut self, c: u32) {
        self.faults.iter_mut().for_each(|faults| faults.resets.retain(|reset| reset.controller != c));
    }

    /// Whether CSTS.RDY of a controller is still what it was before CC.EN changed.
    pub(crate) fn is_resetting(&self, c: u32) -> bool {
        let now = self.turn.now;
        self.faults.as_ref().is_some_and(|f| f.resets.iter().any(|r| r.controller == c && now < r.until))
    }

    /// Whether a controller cannot be reached: its registers read as ones, its host cannot connect.
    #[inline]
    pub(crate) fn is_absent(&self, tenant: u16) -> bool {
        self.faults.as_ref().is_some_and(|faults| faults.is_absent(tenant))
    }

    /// Whether it is another drive that was put back, for a controller.
    fn is_another(&self, c: u32) -> bool {
        let tenant = self.ctrl(c).map_or(0, |ctrl| ctrl.tenant);
        let rules = self.faults.iter().flat_map(|faults| faults.plan.rules());
        let mut rules = rules.filter(|p| p.tenant().is_none_or(|t| t == tenant));
        let now = self.turn.now;
        rules.any(|p| p.rule.effect == FaultEffect::Removal { other: true } && p.begins().is_some_and(|at| at <= now))
    }

    /// UUID and NGUID of a namespace, as Identify shows them to a controller.
    pub(crate) fn shown_uuid(&self, c: u32, nsid: u32, mut uuid: [u8; 16]) -> [u8; 16] {
        let conditions = self.faults.iter().flat_map(|faults| &faults.conditions);
        let mut named = conditions.filter(|c| c.effect == FaultEffect::NamespaceIdentity);
        if named.any(|c| c.nsid.is_none_or(|n| n == nsid)) {
            uuid[15] ^= 0x5a;
        }
        if self.is_another(c) {
            uuid[14] ^= 0xa5;
        }
        uuid
    }

    /// The serial number, as Identify shows it to a controller.
    pub(crate) fn shown_serial(&self, c: u32) -> alloc::string::String {
        let mut serial = self.config.serial.clone();
        if self.is_another(c) {
            let last = serial.pop();
            serial.push(if last == Some('X') { 'Y' } else { 'X' });
        }
        serial
    }

    /// What SMART is made to say, as far as it has drifted; the values without rules are handed in.
    pub(crate) fn drifted_smart(&self, now: Nanos, spare: u8, wear: u8) -> (u8, u8) {
        let Some((drift, passed)) = self.smart_drift(now) else { return (spare, wear) };
        let to = |from: u8, end: Option<u8>| {
            end.map_or(from, |end| drifted(from.into(), end.into(), passed, drift.over) as u8)
        };
        (to(spare, drift.spare).min(spare), to(wear, drift.wear).max(wear))
    }

    /// The composite temperature in K, as far as it has drifted.
    pub(crate) fn drifted_temperature(&self, now: Nanos, kelvin: u16) -> u16 {
        match self.smart_drift(now) {
            Some((SmartDrift { temperature: Some(end), over, .. }, passed)) => {
                drifted(kelvin.into(), end.into(), passed, over) as u16
            }
            _ => kelvin,
        }
    }

    fn smart_drift(&self, now: Nanos) -> Option<(SmartDrift, Nanos)> {
        self.faults.as_ref()?.conditions.iter().find_map(|c| match c.effect {
            FaultEffect::Smart(drift) => Some((drift, now.saturating_sub(c.since))),
            _ => None,
        })
    }

    /// Media errors that have come meanwhile are counted, and hosts are told of what has crossed a threshold.
    fn drift(&mut self, now: Nanos) {
        let Some((drift, passed)) = self.smart_drift(now) else { return };
        let errors = drifted(0, drift.media_errors.unwrap_or(0), passed, drift.over);
        let conditions = self.faults.iter_mut().flat_map(|faults| &mut faults.conditions);
        let mut came = 0;
        for condition in conditions.filter(|c| matches!(c.effect, FaultEffect::Smart(_))) {
            let more = errors.saturating_sub(condition.drifted);
            self.health.media_errors += more;
            condition.drifted = errors;
            came += more;
        }
        if let Some(faults) = self.faults.as_mut().filter(|_| came > 0) {
            faults.condition_changes += 1;
        }
        self.watch_spare();
        self.power.next_look = self.power.next_look.min(now);
        self.watch_temperature(now);
    }
}

impl Faults {
    /// Whether some value is on its way.
    fn drifts(&self, now: Nanos) -> bool {
        let is_under_way = |c: &HeldCondition| match c.effect {
            FaultEffect::Smart(drift) => now.saturating_sub(c.since) < drift.over,
            _ => false,
        };
        self.conditions.iter().any(is_under_way)
    }

    /// Whether nothing of the rules is left.
    fn is_idle(&self) -> bool {
        self.plan.is_empty()
            && self.held.is_empty()
            && self.admin.is_empty()
            && self.spoiled.is_empty()
            && self.conditions.is_empty()
    }
}
