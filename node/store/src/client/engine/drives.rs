//! The drives of a client: opened when the machine says so, polled when there is reason to.

use super::super::connection::{boot_time, drive_time};
use super::Engine;
use crate::tier::{self, MemoryPlace, Tier, TierCommand, TierCommandId, TierDone, TierOptions};
use weir_store::client::{ClientEvent, CommandId, DriveCommand, DriveId, MemoryId};
use weir_store::file::DriveFailure;
use weir_store::protocol::NamespaceInfo;
use weir_units::Nanos;

/// How often a drive is looked at that may still carry out a write, or that gets no keep-alives any more.
const LOOK: Nanos = Nanos::from_millis(20);

/// A drive, and what the machine was told of it.
#[derive(Debug)]
pub(super) struct OpenTier {
    pub tier: Box<dyn Tier>,
    is_in_doubt: bool,
    trouble: Option<String>,
    /// The connection that it had last.
    connection: u64,
}

impl Engine {
    /// How a namespace is opened.
    pub fn tier_options(&self, info: &NamespaceInfo) -> TierOptions {
        TierOptions {
            host_nqn: self.options.host_nqn.clone(),
            timeout: self.options.drive_timeout,
            allow_files: self.options.allow_files,
            label: Some(crate::label::check(self.machine.welcome().store, info.namespace, info.label)),
            ..TierOptions::default()
        }
    }

    pub(super) fn open_tier(&mut self, drive: DriveId, info: &NamespaceInfo) -> Result<(), String> {
        let options = TierOptions { bell: Some(self.bell.clone()), ..self.tier_options(info) };
        let tier = tier::open(&info.target, options).map_err(|e| e.to_string())?;
        self.tiers.insert(drive, OpenTier { tier, is_in_doubt: false, trouble: None, connection: 0 });
        Ok(())
    }

    pub(super) fn close_tier(&mut self, drive: DriveId) {
        self.tiers.remove(&drive);
        self.registered.remove(&drive.0);
    }

    pub(super) fn submit(&mut self, drive: DriveId, command: CommandId, memory: MemoryId, what: DriveCommand) {
        let place = |len, buffer| MemoryPlace { file: memory.0, buffer, len };
        let what = match what {
            DriveCommand::Read(at, len, buffer) => TierCommand::Read(at, place(len, buffer)),
            DriveCommand::Write(at, len, buffer) => TierCommand::Write(at, place(len, buffer)),
            DriveCommand::Flush => TierCommand::Flush,
        };
        if let Some(open) = self.tiers.get_mut(&drive) {
            open.tier.submit(drive_time(), TierCommandId(command.0), what, &mut self.memory);
        }
    }

    /// Lets commands leave that were submitted since the last turn.
    pub(super) fn send_to_drives(&mut self) {
        for open in self.tiers.values_mut() {
            open.tier.send(&mut self.memory);
        }
    }

    pub(super) fn abort(&mut self, drive: DriveId, command: CommandId) {
        if let Some(open) = self.tiers.get_mut(&drive) {
            open.tier.abort(TierCommandId(command.0));
        }
    }

    /// Drives that have something, or want something, are polled; what they are in doubt about is told before what is over.
    pub(super) fn turn_drives(&mut self) -> bool {
        let (now, holds) = (drive_time(), self.machine.holds(boot_time()));
        let (mut events, mut done) = (Vec::new(), Vec::new());
        // What a drive has sent unasked is an answer to a keep-alive, or the end of its connection.
        for (id, open) in &mut self.tiers {
            let is_due = holds && open.tier.due() <= now;
            if is_due {
                open.tier.attend(now);
            }
            let has_come = self.ready.remove(&id.0);
            let is_polled = is_due || has_come || open.tier.pending() > 0;
            if !is_polled && !open.is_in_doubt {
                continue;
            }
            if is_polled {
                open.tier.poll(now, &mut self.memory, &mut done);
            }
            let before = std::mem::replace(&mut open.connection, open.tier.connection());
            if before > 0 && before != open.connection && open.tier.has_volatile_cache() {
                events.push(ClientEvent::Reconnected(*id));
            }
            let (is_in_doubt, trouble) = (open.tier.may_still_write(drive_time()), open.tier.trouble());
            if is_in_doubt != open.is_in_doubt {
                open.is_in_doubt = is_in_doubt;
                events.push(ClientEvent::Doubt(*id, is_in_doubt));
            }
            if trouble != open.trouble {
                open.trouble.clone_from(&trouble);
                events.push(ClientEvent::Trouble(*id, trouble));
            }
        }
        let done = done.into_iter().map(|TierDone { command, is_done }| {
            ClientEvent::Done(CommandId(command.0), if is_done { Ok(()) } else { Err(DriveFailure) })
        });
        events.extend(done);
        let any = !events.is_empty();
        events.into_iter().for_each(|event| self.give(event));
        any
    }

    /// When a drive is to be polled at the latest, of [`drive_time`].
    pub(super) fn drives_due(&self) -> Nanos {
        let (now, holds) = (drive_time(), self.machine.holds(boot_time()));
        let due = |open: &OpenTier| match (holds, open.tier.pending() > 0 || open.is_in_doubt) {
            (true, true) => open.tier.due().min(now.saturating_add(LOOK)),
            (true, false) => open.tier.due(),
            // It gets no keep-alive: when that is due says nothing.
            (false, true) => now.saturating_add(LOOK),
            (false, false) => Nanos::NEVER,
        };
        self.tiers.values().map(due).min().unwrap_or(Nanos::NEVER)
    }
}
