//! Rules of failures that the configuration has for a drive.

use super::{Device, OpenError};
use weir_fault::FaultRule;
use weir_units::Nanos;

impl Device {
    /// With these rules, from `now` on.
    ///
    /// # Errors
    /// Names the rule, its key and what to do.
    pub fn with_faults<'a>(
        mut self,
        rules: impl Iterator<Item = &'a FaultRule>,
        now: Nanos,
    ) -> Result<Device, OpenError> {
        match self.add_faults(rules, now).into_iter().next() {
            Some((_, why)) => Err(OpenError::Fault(why)),
            None => Ok(self),
        }
    }

    /// Adds rules, from `now` on; those that do not fit the drive are left out: which of them, and why.
    pub fn add_faults<'a>(&mut self, rules: impl Iterator<Item = &'a FaultRule>, now: Nanos) -> Vec<(usize, String)> {
        let machine = self.machine_mut();
        let refused = rules.enumerate().filter_map(|(at, rule)| {
            let why = machine.add_fault(now, rule.clone()).err()?;
            Some((at, format!("fault \"{rule}\": {why}")))
        });
        refused.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MachineConfig;
    use weir_config::DeviceConfig;

    fn device() -> Device {
        let config = DeviceConfig::from_query("ram", "capacity=1MiB").unwrap_or_else(|e| panic!("{e}"));
        Device::open(&config, MachineConfig::new("nqn.2026-01.test.weir:ssd0"), Nanos(0)).unwrap()
    }

    fn rules() -> [FaultRule; 3] {
        let rule = |lba: &str| FaultRule::from_pairs([("effect", "media-error"), ("lba", lba)].into_iter()).unwrap();
        [rule("0-7"), rule("100000-100007"), rule("8-15")]
    }

    /// A fresh start is refused; a drive that is taken over keeps what fits, as where it was made smaller since.
    #[test]
    fn a_rule_that_does_not_fit_ends_a_fresh_start_only() {
        let rules = rules();
        let refused = device().with_faults(rules.iter(), Nanos(0)).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(refused.contains("100000"), "{refused}");
        let mut taken_over = device();
        let left_out = taken_over.add_faults(rules.iter(), Nanos(0));
        assert_eq!(left_out.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1]);
        assert!(left_out[0].1.contains("100000"), "{left_out:?}");
        let kept: Vec<FaultRule> =
            taken_over.machine_mut().faults().iter().map(|planned| planned.rule.clone()).collect();
        assert_eq!(kept, [rules[0].clone(), rules[2].clone()]);
    }
}
