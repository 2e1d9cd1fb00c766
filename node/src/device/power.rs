//! The power of a drive goes and comes back.
//!
//! ```text
//!  power_cut ──► controllers are gone ──► what the media works on ends ──► bytes are put back, the map is found again ──► up
//! ```
//! Until it is up again the drive does nothing; commands of hosts that have reconnected wait.

use super::backend::Backend;
use super::inside::{chunks_of, flash_of};
use super::power_state::{Down, PowerCut, PowerReply};
use super::{Device, Executor};
use crate::power_cut_undo::{self, Undo};
use weir_controller::{Event, Host, Io, Op, Owner, ZoneLoss};
use weir_flash::{PowerLoss, UNIT};
use weir_spec::nvme::Status;
use weir_sys::media::Store;
use weir_sys::reactor::{IoBuf, Reactor};
use weir_units::Nanos;

impl Device {
    /// Cuts the power at `now` and brings it back; `reply` hears what that did when the media is as the cut has left it.
    pub fn power_cut<H: Host>(&mut self, now: Nanos, reply: PowerReply, host: &mut H, reactor: &mut Reactor) {
        if let Err(why) = self.can_lose_power() {
            let _ = reply.send(Err(why));
            return;
        }
        if let Some(chunks) = chunks_of(&mut self.machine) {
            chunks.power_off();
        }
        self.machine.power_cut();
        // Doors hear of their connections; nothing else is left to serve.
        for _ in 0..=self.machine.slot_limit() {
            self.machine.apply(now, Event::Run, host, &mut self.effects);
            if self.effects.is_empty() {
                break;
            }
            self.execute(now, host, reactor, Nanos::NEVER);
        }
        self.down =
            Some(Down { reply: Some(reply), seed: now.0 ^ self.machine.power_history().0, until: Nanos::NEVER });
        self.power_back(now);
    }

    fn can_lose_power(&mut self) -> Result<(), String> {
        if self.down.is_some() {
            return Err("it is without power already".into());
        }
        if self.machine.has_metadata() {
            return Err("blocks with metadata cannot lose power in this release; format without".into());
        }
        let keeps = self.undo.is_some();
        let Some(flash) = flash_of(&mut self.machine) else { return Ok(()) };
        let config = flash.flash().config();
        if config.ftl.spare && (keeps || config.buffer.is_durable()) {
            return Ok(());
        }
        Err("its flash does not keep what that needs; write power_cut = true in its [device.flash] (a volatile \
             buffer cannot be cut where the media is another NVMe drive)"
            .into())
    }

    /// Goes on towards being up; whether it is.
    pub(super) fn power_back(&mut self, now: Nanos) -> bool {
        let Some(down) = &mut self.down else { return true };
        if down.reply.is_some() {
            if self.backend.in_flight() > 0 {
                return false;
            }
            let (reply, seed) = (down.reply.take(), down.seed);
            let answer = self.put_back(now, seed);
            let takes = answer.as_ref().map_or(Nanos(0), |cut| cut.rebuild);
            if let Some(down) = &mut self.down {
                down.until = now.saturating_add(takes);
            }
            reply.into_iter().for_each(|reply| drop(reply.send(answer.clone())));
        }
        let up = self.down.as_ref().is_none_or(|down| down.until <= now);
        if up {
            self.down = None;
            self.dirty = true;
        }
        up
    }

    /// The media and the flash as the cut leaves them.
    fn put_back(&mut self, now: Nanos, seed: u64) -> Result<PowerCut, String> {
        if let (Some(flash), Some(undo)) = (flash_of(&mut self.machine), &mut self.undo) {
            undo.flushed(flash.flushed(now));
        }
        let loss = flash_of(&mut self.machine).and_then(|flash| flash.power_cut(now, seed)).unwrap_or_default();
        let mut undo = self.undo.take();
        let regions = self.regions_back(now, seed);
        let restored = regions.and_then(|lost| self.restore(undo.as_ref(), &loss).map(|()| lost));
        undo.iter_mut().for_each(Undo::clear);
        self.undo = undo;
        let of_zones = restored.map_err(|status| format!("the media could not be put back: {status}"))?;
        if let Some(state) = &mut self.state {
            state.note_power_cut();
        }
        let (power_cycles, unsafe_shutdowns) = self.machine.power_history();
        // What is gone of a zone was written once.
        let of_zones = of_zones.div_ceil(UNIT.into());
        Ok(PowerCut {
            lost_units: loss.lost.len() as u64 + of_zones,
            lost_writes: loss.lost.iter().map(|l| u64::from(l.writes)).sum::<u64>() + of_zones,
            pages_read: loss.pages_read,
            rebuild: loss.takes,
            power_cycles,
            unsafe_shutdowns,
        })
    }

    fn restore(&mut self, undo: Option<&Undo>, loss: &PowerLoss) -> Result<(), Status> {
        // A unit that the media never saw has nothing to put back.
        for (unit, old) in loss.lost.iter().filter_map(|l| Some((l.lpn, undo?.oldest(l.lpn)?))) {
            self.backend.put_back(u64::from(unit) * u64::from(UNIT), old)?;
        }
        match &mut self.backend {
            Backend::KernelIo(direct) => direct.sync().map_err(|_| Status::WRITE_FAULT),
            _ => Ok(()),
        }
    }

    /// The power is back: zones and chunks are what has survived, and bytes that have not are zeroes.
    pub(super) fn regions_back(&mut self, now: Nanos, seed: u64) -> Result<u64, Status> {
        let ZoneLoss { lost, mut gone } = self.machine.zones_power_on(now, seed);
        if let Some(chunks) = chunks_of(&mut self.machine) {
            gone.extend(chunks.power_on());
        }
        self.backend.zero(&gone)?;
        Ok(lost)
    }
}

impl Executor<'_> {
    /// Before a command is carried out: keeps what a power cut would put back. True where that has to be read first, and
    /// the command is started when it is there.
    #[cold]
    pub(super) fn remember(&mut self, io: &Io, reactor: &mut Reactor) -> bool {
        // Blocks with metadata cannot lose power.
        let metadata = self.machine.has_metadata();
        let Some(flash) = flash_of(self.machine) else { return false };
        if io.op == Op::Flush && io.owner == Owner(u32::MAX) {
            // The drive's own, at a shutdown: the flash has not heard of it.
            flash.flush(self.now);
        }
        let begun = flash.flushes();
        let Some(undo) = self.undo.as_mut().filter(|_| !metadata) else { return false };
        let writes = match io.op {
            Op::Write | Op::Copy => !io.fua,
            Op::WriteZeroes { .. } => undo.zeroes_are_data && !io.fua,
            _ => false,
        };
        let range = power_cut_undo::units(io.offset, io.len);
        if !writes || !range.clone().any(|unit| undo.wants(begun, unit)) {
            return false;
        }
        if undo.is_full() {
            undo.sweep(&flash.flash().at_risk(self.now));
        }
        match self.backend {
            Backend::Store(store) => {
                range.for_each(|unit| keep(store, undo, begun, unit));
                false
            }
            Backend::KernelIo(direct) => direct.save(*io, reactor),
            Backend::Remote(_) | Backend::Volume(_) => false,
        }
    }

    /// What was to be kept before a command was read: now it is begun.
    #[cold]
    pub(super) fn start_saved<H: Host>(&mut self, io: &Io, bytes: IoBuf, host: &mut H, reactor: &mut Reactor) {
        let begun = flash_of(self.machine).map_or(0, |flash| flash.flushes());
        if let Some(undo) = self.undo {
            for (unit, old) in power_cut_undo::units(io.offset, io.len).zip(bytes.chunks_exact(UNIT as usize)) {
                undo.keep(begun, unit, old);
            }
        }
        let Backend::KernelIo(direct) = &mut *self.backend else { return };
        direct.recycle(Some(bytes));
        if let Some(status) = direct.start(*io, self.machine, host, reactor) {
            self.forget(io, status);
            self.complete(io.slot, status, host);
        }
    }

    /// After a command was carried out: what a power cut cannot take any more is forgotten.
    #[inline]
    pub(super) fn forget(&mut self, io: &Io, status: Status) {
        if self.undo.is_some() && status.is_success() {
            self.forget_kept(io);
        }
    }

    #[cold]
    fn forget_kept(&mut self, io: &Io) {
        let flushed = flash_of(self.machine).map_or(0, |flash| flash.flushed(self.now));
        let Some(undo) = self.undo else { return };
        match io.op {
            Op::Flush => undo.flushed(flushed),
            Op::Write | Op::Copy if io.fua => undo.settle(power_cut_undo::units(io.offset, io.len)),
            Op::WriteZeroes { .. } if undo.zeroes_are_data && !io.fua => {}
            Op::WriteZeroes { .. } | Op::Deallocate => undo.zeroed(io.offset, io.len),
            Op::Write | Op::Read | Op::Compare | Op::Verify | Op::Copy => {}
        }
    }
}

fn keep(store: &Store, undo: &mut Undo, begun: u64, unit: u32) {
    if !undo.wants(begun, unit) {
        return;
    }
    let mut bytes = [0; UNIT as usize];
    let read = store.read(u64::from(unit) * u64::from(UNIT), UNIT, |at, chunk| {
        bytes[at as usize..][..chunk.len()].copy_from_slice(chunk);
        Ok(())
    });
    if read.is_ok() {
        undo.keep(begun, unit, &bytes);
    }
}
