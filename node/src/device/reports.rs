//! What a drive tells of its media, and of the way to them.

use super::Device;
use super::backend::Backend;
use crate::events::EventLog;
use crate::remote::RemoteStatus;
use weir_units::Nanos;

impl Device {
    /// What has broken its media, in words.
    pub fn fault(&self) -> Option<String> {
        match &self.backend {
            Backend::Store(_) | Backend::Volume(_) => None,
            Backend::KernelIo(direct) => direct.fault().map(ToString::to_string),
            Backend::Remote(remote) => remote.fault().map(ToString::to_string),
        }
    }

    /// How the way to its media is, where that is another drive.
    pub fn link(&self, now: Nanos) -> Option<RemoteStatus> {
        match &self.backend {
            Backend::Remote(remote) => Some(remote.status(now)),
            Backend::Store(_) | Backend::KernelIo(_) | Backend::Volume(_) => None,
        }
    }

    /// Events of the drive, called `name`, go there from now on.
    pub fn report_to(&mut self, events: &EventLog, name: &str) {
        if let Backend::Remote(remote) = &mut self.backend {
            remote.report_to(events);
        }
        self.speed.report_to(events, name);
    }
}
