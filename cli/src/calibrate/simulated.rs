//! Load tests in virtual time.

use super::{Tests, Trouble};
use std::path::Path;
use weir_config::{Document, Profile};
use weir_sim::Scenario;
use weir_units::Nanos;
use weir_workload::{Job, Summary};

/// A drive as `local:` names it, in the simulator.
pub struct Simulated {
    document: Document,
}

impl Simulated {
    /// Tests of `time` each after a ramp, on a fresh drive each.
    ///
    /// # Errors
    /// A drive that the simulator does not have.
    pub fn new(target: &str, kind: &str, query: &str, (ramp, time): (Nanos, Nanos), seed: u64) -> Result<Self, String> {
        let mut document = Document::parse("", target, Path::new("")).map_err(|e| e.to_string())?;
        let pair = |text: &str| text.split_once('=').map(|(key, value)| (key.to_string(), value.to_string()));
        let mut keys: Vec<(String, String)> = query.split('&').filter_map(pair).collect();
        let what = if matches!(kind, "ram" | "null" | "flash") { "kind" } else { "profile" };
        if what == "profile" && Profile::named(kind).is_none() && !kind.ends_with(".toml") {
            return Err(format!("{kind} cannot be simulated; there is ram, null, flash, and the profiles"));
        }
        keys.push((what.to_string(), kind.to_string()));
        document.push("device", &keys);
        for (key, value) in [("time", time.to_string()), ("ramp", ramp.to_string()), ("seed", seed.to_string())] {
            document.set(key, &value)?;
        }
        Ok(Simulated { document })
    }
}

impl Tests for Simulated {
    fn test(&mut self, job: Job) -> Result<Summary, Trouble> {
        let mut document = self.document.clone();
        let keys = [
            ("rw", job.pattern.to_string()),
            ("bs", job.sizes.to_string()),
            ("qd", job.depth.to_string()),
            ("jobs", job.copies.to_string()),
        ];
        document.push("job", &keys.map(|(key, value)| (key.to_string(), value)));
        let scenario = Scenario::read(&document).map_err(|e| Trouble::Failed(e.to_string()))?;
        scenario.load_test().map_err(|e| Trouble::Failed(e.to_string()))
    }

    fn in_real_time(&self) -> bool {
        false
    }
}
