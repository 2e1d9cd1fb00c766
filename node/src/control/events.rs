//! Events of the node as a whole.

use super::NodeControl;
use crate::events::{EventLevel, EventLog, NodeEvent, kind, on_failure};
use crate::snapshot::LostDrive;
use crate::upgrade::{UpgradeState, UpgradeStatus};

impl NodeControl {
    /// What has happened.
    pub fn event_log(&self) -> &EventLog {
        &self.events
    }

    /// Has the operator's command run for failures of drives from now on, where the configuration names one.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn serve_on_failure(&self) -> std::io::Result<()> {
        let node = &self.config().node;
        on_failure::watch(&self.events, &node.on_failure, node.on_failure_timeout, &node.name)
    }

    /// The process serves: that is an event, and so is what its pools lack.
    pub fn note_serving(&self) {
        let (generation, pid) = (self.keep.generation(), std::process::id());
        let text = match generation {
            0 => format!("process {pid} serves"),
            before => format!("process {pid} serves, after {before} before it"),
        };
        self.events.add(NodeEvent::new(kind::WORKER, "serving", EventLevel::Info, text));
        // An upgrade that was taken back has ended before this process could hear of it; a process after this one hears of it as well.
        let is_told = |event: &NodeEvent| {
            self.events.after(0).iter().any(|told| (&told.what, &told.text) == (&event.what, &event.text))
        };
        let ended = upgrade_event(&UpgradeStatus::default(), &self.upgrade_status());
        ended.into_iter().filter(|event| !is_told(event)).for_each(|event| _ = self.events.add(event));
        for pool in self.pools().unwrap_or_default() {
            pool.lost.iter().for_each(|lost| self.note_degraded(&pool.name, lost));
        }
    }

    /// A pool serves without a drive.
    pub(super) fn note_degraded(&self, pool: &str, lost: &LostDrive) {
        let LostDrive { number, name, size, .. } = lost;
        let text = format!(
            "pool {pool} is degraded: drive {name} (number {number}, {size}) is lost; bring it back, or give its place to another one: weir pool \
             replace {number} NEW"
        );
        self.note_pool("degraded", EventLevel::Error, pool, name, text);
    }

    /// A drive has taken the place of a lost one.
    pub(super) fn note_replaced(&self, pool: &str, lost: &str, device: &str) {
        let text = format!(
            "pool {pool}: drive {device} has taken the place of {lost}; what volumes had there fails until they are emptied"
        );
        self.note_pool("replaced", EventLevel::Warning, pool, device, text);
    }

    /// A lost drive takes part again.
    pub(super) fn note_back(&self, pool: &str, device: &str) {
        let text = format!(
            "pool {pool}: drive {device} is back and takes part again; what it has missed of second copies is rebuilt"
        );
        tracing::info!("{text}");
        self.note_pool("back", EventLevel::Warning, pool, device, text);
    }

    /// A lost drive is there again, and cannot take part.
    pub(super) fn note_not_back(&self, pool: &str, device: &str, why: &str) {
        let text = format!("pool {pool}: drive {device} is there again and stays lost: {why}");
        self.note_pool("refused", EventLevel::Error, pool, device, text);
    }

    fn note_pool(&self, what: &str, level: EventLevel, pool: &str, device: &str, text: String) {
        let event = NodeEvent::new(kind::POOL, what, level, text);
        self.events.add(NodeEvent { pool: Some(pool.into()), device: Some(device.into()), ..event });
    }

    /// An upgrade has gone on.
    pub(super) fn note_upgrade(&self, before: &UpgradeStatus, now: &UpgradeStatus) {
        if let Some(event) = upgrade_event(before, now) {
            self.events.add(event);
        }
    }
}

/// Of its steps only the beginning and the end are events.
fn upgrade_event(before: &UpgradeStatus, now: &UpgradeStatus) -> Option<NodeEvent> {
    let UpgradeStatus { number, state, binary, reason, .. } = now;
    if (before.number, before.state) == (*number, *state) {
        return None;
    }
    let because = reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let (what, level, text) = match state {
        UpgradeState::Preparing => ("preparing", EventLevel::Info, format!("upgrade {number} to {binary} begins")),
        UpgradeState::Probation => {
            ("probation", EventLevel::Info, format!("upgrade {number}: {binary} serves, on probation"))
        }
        UpgradeState::Upgraded => ("upgraded", EventLevel::Info, format!("upgrade {number}: {binary} serves")),
        UpgradeState::Refused => {
            ("refused", EventLevel::Warning, format!("upgrade {number} to {binary} is refused{because}"))
        }
        UpgradeState::RolledBack => {
            ("rolled-back", EventLevel::Error, format!("upgrade {number} to {binary} is taken back{because}"))
        }
        UpgradeState::None | UpgradeState::HandingOver | UpgradeState::TakingOver | UpgradeState::Renewing => {
            return None;
        }
    };
    Some(NodeEvent::new(kind::UPGRADE, what, level, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_told_once_a_step() {
        let at = |state, reason: Option<&str>| UpgradeStatus {
            number: 2,
            state,
            binary: "/w".into(),
            reason: reason.map(Into::into),
            ..UpgradeStatus::default()
        };
        use UpgradeState::*;
        let steps = [None, Preparing, HandingOver, TakingOver, Probation, Renewing, Upgraded, Upgraded];
        let told = |pair: &[UpgradeState]| upgrade_event(&at(pair[0], Option::None), &at(pair[1], Option::None));
        let words: Vec<String> = steps.windows(2).filter_map(told).map(|event| event.what).collect();
        assert_eq!(words, ["preparing", "probation", "upgraded"]);
        let back = upgrade_event(&at(Probation, Option::None), &at(RolledBack, Some("it crashed"))).unwrap();
        assert_eq!((back.level, back.text.as_str()), (EventLevel::Error, "upgrade 2 to /w is taken back: it crashed"));
    }
}
