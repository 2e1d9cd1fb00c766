//! What the keeper says to the operator.

use super::running::how;
use super::{Process, Renewal};
use crate::events::{self, EventLevel, NodeEvent, kind};
use crate::notice::notice;
use std::os::fd::OwnedFd;
use weir_keeper::Notice;
use weir_sys::keeper_channel::PASSING;

impl Process {
    /// Says it, and does what follows from it.
    pub(super) fn say(&mut self, what: Notice) {
        let text = self.text(what);
        notice(&text);
        self.note_event(what, &text);
        if matches!(what, Notice::Failed(_)) {
            self.failed = Some(text);
            // Nobody comes for it any more: hosts are to know.
            self.held.retain(|name, _| !name.starts_with(PASSING));
            self.workers.values_mut().for_each(|worker| worker.told = false);
        }
        if self.progress.noticed(what, self.now()) {
            if what == Notice::Upgraded {
                self.renewal = Renewal::wanted(self.now());
            }
            self.tell_progress();
        }
    }

    /// What happens while no worker serves is an event as well; the next worker finds it.
    fn note_event(&self, what: Notice, text: &str) {
        let (word, level) = match what {
            Notice::Restarting(_) => ("restarting", EventLevel::Error),
            Notice::Pausing { .. } => ("pausing", EventLevel::Error),
            Notice::Failed(_) => ("failed", EventLevel::Error),
            // A worker serves, and hears of an upgrade; or the node ends.
            Notice::Hung(_)
            | Notice::Standby { .. }
            | Notice::Probation
            | Notice::Upgraded
            | Notice::Kept(_)
            | Notice::Back(_) => return,
        };
        let ring = self.held.get(events::NAME).and_then(|fds| fds.first()).map(OwnedFd::try_clone);
        let event = NodeEvent::new(kind::WORKER, word, level, text.to_owned());
        let added = ring.map(|fd| events::add_to_ring(fd?, event));
        if let Some(Err(e)) = added {
            tracing::warn!("no event is left of it: {e}");
        }
    }

    fn text(&self, notice: Notice) -> String {
        let keeper = std::process::id();
        match notice {
            Notice::Restarting(end) => format!("the worker {}; the next one takes over", how(end)),
            Notice::Pausing { deaths, pause } => {
                format!("the worker died {deaths} times in a row; the next one starts in {pause}")
            }
            Notice::Failed(end) => format!(
                "the worker {} again and again: no more are started. What drives in memory hold is safe as long as process {keeper} \
                 lives: look at its messages, remove the cause, and try again by kill -HUP {keeper}",
                how(end),
            ),
            Notice::Hung(end) => format!("the worker {}: the node ends", how(end)),
            Notice::Standby { end, pause: Some(pause) } => {
                format!("the standby {}; the next one starts in {pause}", how(end))
            }
            Notice::Standby { end, pause: None } => {
                format!(
                    "the standby {} before it was ready: there is none until the next worker has taken over",
                    how(end)
                )
            }
            Notice::Probation => "the new program serves, on probation".into(),
            Notice::Upgraded => "the new program serves".into(),
            Notice::Kept(why) => {
                format!("the upgrade is refused, the program before it serves: {}", self.progress.reason(why))
            }
            Notice::Back(why) => {
                format!("the upgrade is taken back, the program before it serves again: {}", self.progress.reason(why))
            }
        }
    }
}
