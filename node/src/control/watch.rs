//! What becomes an event although nobody says so: a promise that is missed, a rule of failures that applies for the first time. A thread looks
//! once a second, and only where there are promises or rules.

use super::NodeControl;
use crate::events::{EventLevel, NodeEvent, kind};
use crate::snapshot::FaultSnapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use weir_units::Nanos;

const EVERY: Duration = Duration::from_secs(1);
/// A promise that was missed counts as kept when it has been for so long: one that changes each second is one event.
const KEPT_FOR: Nanos = Nanos::from_secs(30);

/// How one promise is kept at a look.
#[derive(Clone, Copy, Debug)]
struct PromiseLook {
    is_met: bool,
    /// For how long it has been what it is.
    since: Nanos,
}

/// A change that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PromiseChange {
    Missed,
    Kept,
}

/// What was told already.
#[derive(Debug, Default)]
struct Told {
    /// Promises that are missed: tenant, and drive.
    missed: BTreeSet<(String, String)>,
    /// Rules that have applied, by drive.
    fired: BTreeMap<String, BTreeSet<u32>>,
}

impl Told {
    fn promise(&mut self, tenant: &str, device: &str, look: PromiseLook) -> Option<PromiseChange> {
        let of = (tenant.to_owned(), device.to_owned());
        match (look.is_met, self.missed.contains(&of)) {
            (false, false) => {
                self.missed.insert(of);
                Some(PromiseChange::Missed)
            }
            (true, true) if look.since >= KEPT_FOR => {
                self.missed.remove(&of);
                Some(PromiseChange::Kept)
            }
            _ => None,
        }
    }

    /// Rules of a drive that have applied since the last look for the first time.
    fn fired<'a>(&mut self, device: &str, rules: &'a [FaultSnapshot]) -> Vec<&'a FaultSnapshot> {
        let known = self.fired.entry(device.to_owned()).or_default();
        rules.iter().filter(|rule| rule.applied > 0 && known.insert(rule.id)).collect()
    }
}

impl NodeControl {
    /// Looks from now on, until the control is dropped or the shards have ended.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn watch(self: &Arc<Self>) -> std::io::Result<()> {
        let (control, mut told) = (Arc::downgrade(self), Told::default());
        if self.keep.generation() > 0 {
            // What has applied before this process has been told by the one before.
            self.look_at_rules(&mut told);
        }
        let watch = move || {
            loop {
                std::thread::sleep(EVERY);
                let Some(control) = control.upgrade() else { return };
                control.look_at_promises(&mut told);
                control.look_at_rules(&mut told).into_iter().for_each(|event| _ = control.events.add(event));
            }
        };
        std::thread::Builder::new().name("weir-watch".into()).spawn(watch)?;
        Ok(())
    }

    fn look_at_promises(&self, told: &mut Told) {
        let config = self.config();
        let is_promised = |t: &weir_config::TenantConfig| t.sla != Default::default() || t.floor != Default::default();
        if !config.tenants.iter().any(is_promised) {
            return;
        }
        for tenant in self.tenants().unwrap_or_default() {
            for (device, attained, now) in &tenant.attained {
                let Some(is_met) = attained.met() else { continue };
                let look = PromiseLook { is_met, since: now.saturating_sub(attained.since) };
                let Some(change) = told.promise(&tenant.name, device, look) else { continue };
                let (what, level, text) = match change {
                    PromiseChange::Missed => {
                        let text = format!(
                            "what was promised to {} on {device} is missed; weir top shows who takes what",
                            tenant.name
                        );
                        ("missed", EventLevel::Warning, text)
                    }
                    PromiseChange::Kept => {
                        let seconds = look.since.as_secs_f64();
                        let text = format!(
                            "what was promised to {} on {device} has been kept for {seconds:.0} s",
                            tenant.name
                        );
                        ("kept", EventLevel::Info, text)
                    }
                };
                let event = NodeEvent::new(kind::PROMISE, what, level, text);
                let (tenant, device) = (Some(tenant.name.clone()), Some(device.clone()));
                self.events.add(NodeEvent { tenant, device, ..event });
            }
        }
    }

    /// Rules that have applied since the last look.
    fn look_at_rules(&self, told: &mut Told) -> Vec<NodeEvent> {
        let config = self.config();
        let with_rules: BTreeSet<usize> = config.faults.iter().map(|fault| fault.device).collect();
        let mut events = Vec::new();
        for device in with_rules.into_iter().filter_map(|at| config.devices.get(at)) {
            let rules = self.faults(&device.name).unwrap_or_default();
            for FaultSnapshot { id, rule, .. } in told.fired(&device.name, &rules) {
                let text = format!("rule {id} of {} has applied: {rule}", device.name);
                let event = NodeEvent::new(kind::FAULT_RULE, "applied", EventLevel::Info, text);
                events.push(NodeEvent { device: Some(device.name.clone()), ..event });
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_fault::FaultRule;

    #[test]
    fn a_promise_that_changes_each_second_is_one_event() {
        let mut told = Told::default();
        let mut look =
            |is_met, since| told.promise("gold", "ssd0", PromiseLook { is_met, since: Nanos::from_secs(since) });
        assert_eq!(look(true, 100), None);
        assert_eq!(look(false, 0), Some(PromiseChange::Missed));
        for _ in 0..10 {
            assert_eq!((look(true, 1), look(false, 0)), (None, None));
        }
        assert_eq!((look(true, 29), look(true, 30), look(true, 31)), (None, Some(PromiseChange::Kept), None));
        assert_eq!(look(false, 0), Some(PromiseChange::Missed));
    }

    #[test]
    fn a_rule_is_told_when_it_applies_first() {
        let rule = FaultRule::from_pairs([("effect", "media-error")].into_iter()).unwrap();
        let at = |id, applied| FaultSnapshot { id, rule: rule.clone(), matched: 5, applied, is_active: true };
        let mut told = Told::default();
        let mut fired = |rules: &[FaultSnapshot]| told.fired("ssd0", rules).iter().map(|r| r.id).collect::<Vec<_>>();
        assert_eq!(fired(&[at(1, 0), at(2, 1)]), [2]);
        assert_eq!(fired(&[at(1, 3), at(2, 4)]), [1]);
        assert!(fired(&[at(1, 3), at(2, 4)]).is_empty());
        assert_eq!(told.fired("ssd1", &[at(1, 1)]).len(), 1, "numbers are each drive's own");
    }
}
