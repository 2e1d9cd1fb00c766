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
        for rule in rules {
            let added = self.machine_mut().add_fault(now, rule.clone());
            added.map_err(|why| OpenError::Fault(format!("fault \"{rule}\": {why}")))?;
        }
        Ok(self)
    }
}
