//! The session's lease, deadlines, what is due, and the end.

use super::event::{ClientFailure, ClientFault, ClientMemory, OpenFileId, Outcome, WorkId};
use super::machine::{ClientMachine, Doing, LOOK, Out, Stage};
use super::open_file::OpenFile;
use super::requests::{Purpose, Unanswered};
use crate::file::FileEvent;
use crate::members::{HolderEffect, HolderEvent};
use crate::mutant::Mutant;
use crate::protocol::Request;
use crate::space::Epoch;
use alloc::vec::Vec;
use weir_units::Nanos;

impl ClientMachine {
    pub(super) fn room_deadline(&self) -> Nanos {
        self.clock.saturating_add(self.setup.room_timeout)
    }

    /// The lease, what is tried again, and deadlines.
    pub(super) fn tick<M: ClientMemory>(&mut self, out: &mut Out<'_, M>) {
        for sent in self.requests.take_due(out.now) {
            self.send(sent, out);
        }
        self.start_again(out.now);
        if self.over.is_none() {
            self.renew(out);
        }
        if out.now < self.look_at {
            return;
        }
        self.look_at = out.now.saturating_add(LOOK);
        self.end_late(out);
        self.files.values_mut().for_each(|file| file.is_room_vain = false);
        self.room_came();
        let busy = self.files.iter().filter(|(_, file)| file.io().is_some_and(|io| io.pending() > 0));
        let busy: Vec<OpenFileId> = busy.map(|(id, _)| *id).collect();
        busy.into_iter().for_each(|id| self.run(id, FileEvent::Tick));
    }

    /// Reads that have waited go to the head of their files' queues.
    fn start_again(&mut self, now: Nanos) {
        if now < self.again_at {
            return;
        }
        self.again_at = Nanos::NEVER;
        let mut ready: Vec<(OpenFileId, WorkId)> = Vec::new();
        for (id, file) in self.files.iter_mut().filter(|(_, file)| !file.again.is_empty()) {
            let (due, later): (Vec<_>, Vec<_>) =
                core::mem::take(&mut file.again).into_iter().partition(|(at, _)| *at <= now);
            self.again_at = later.iter().map(|(at, _)| *at).fold(self.again_at, Nanos::min);
            file.again = later;
            ready.extend(due.into_iter().map(|(_, work)| (*id, work)));
        }
        for (id, work) in ready {
            self.set_stage(work, Stage::Queued);
            if let Some(file) = self.files.get_mut(&id) {
                file.queue.push_front(work);
            }
            self.touched.insert(id);
        }
    }

    /// What is late is over, unless a drive may have its memory: that is over when the drive is done.
    fn end_late<M: ClientMemory>(&mut self, out: &mut Out<'_, M>) {
        let late = self.works.iter().filter(|(_, work)| work.deadline <= out.now && work.stage != Stage::Running);
        let late: Vec<(WorkId, Doing, Stage)> = late.map(|(id, work)| (*id, work.doing, work.stage)).collect();
        for (work, doing, stage) in late {
            let why = self.late(doing);
            match doing {
                Doing::Ask => {
                    self.works.remove(&work);
                    self.finish(work, Outcome::Answer(Err(why)), out);
                }
                Doing::Open(_) => {
                    self.works.remove(&work);
                    self.finish(work, Outcome::Opened(Err(why)), out);
                }
                Doing::File(id, _) => {
                    self.take_out(id, work);
                    self.end(work, Err(why), out);
                    if stage == Stage::Away {
                        self.late_in_sequence(id);
                    }
                }
            }
        }
    }

    /// The error of what was not done in time.
    fn late(&self, doing: Doing) -> ClientFailure {
        let trouble = self.requests.trouble.as_ref();
        match (doing, trouble) {
            (_, Some(why)) => ClientFault::Unreachable(why.clone()).into(),
            (Doing::File(..), None) => ClientFailure { fault: ClientFault::Deadline, drive: self.drives.trouble() },
            (Doing::Ask | Doing::Open(_), None) => ClientFault::Deadline.into(),
        }
    }

    /// Renews the lease, when it is time for that. What was let go of is acknowledged with it.
    fn renew<M: ClientMemory>(&mut self, out: &mut Out<'_, M>) {
        let held = self.oldest_held();
        self.hold(HolderEvent::Tick(held), out);
    }

    /// The epoch of the oldest map that is held, or under which something is in flight.
    pub(super) fn oldest_held(&mut self) -> Option<Epoch> {
        let oldest = self.files.values().filter_map(OpenFile::oldest).min();
        match self.drives.is_in_doubt() {
            // Nothing newer is acknowledged while a drive may still carry out a write that was given up.
            true => Some(oldest.map_or(self.safe, |oldest| oldest.min(self.safe))),
            false => {
                let epoch = self.holder.epoch();
                self.safe = oldest.map_or(epoch, |oldest: Epoch| oldest.min(epoch));
                oldest
            }
        }
    }

    pub(super) fn hold<M: ClientMemory>(&mut self, event: HolderEvent, out: &mut Out<'_, M>) {
        let mut effects = Vec::new();
        let before = self.holder.until();
        self.holder.apply(out.now, event, &mut effects);
        for effect in effects {
            match effect {
                HolderEffect::Renew(id, _, epoch) => {
                    let sent = Unanswered::new(Request::Renew { epoch }, Purpose::Renewal(id), None);
                    self.requests.send(sent, out.effects);
                }
                HolderEffect::Forget(epoch) => self.tell_all(&FileEvent::Forget(epoch)),
                HolderEffect::Stop(_) => return self.stop(ClientFault::SessionOver.into(), out),
            }
        }
        let until = self.holder.until();
        if until > before {
            self.tell_all(&FileEvent::Lease(until));
        }
    }

    pub(super) fn tell_all(&mut self, event: &FileEvent) {
        let files: Vec<OpenFileId> = self.files.keys().copied().collect();
        files.into_iter().for_each(|id| self.run(id, event.clone()));
    }

    /// The session is over: everything stops at once, and everything fails; what drives have, when they are done.
    pub(super) fn stop<M: ClientMemory>(&mut self, why: ClientFailure, out: &mut Out<'_, M>) {
        if self.over.is_some() {
            return;
        }
        self.over = Some(why.clone());
        match self.planted.is(Mutant::StopAtTicks) {
            true => {}
            false => self.tell_all(&FileEvent::LeaseOver),
        }
        for sent in self.requests.take_all() {
            self.over_with(sent, Err(why.clone()), out);
        }
        let files: Vec<OpenFileId> = self.files.keys().copied().collect();
        for id in files {
            let waiting = self.files.get_mut(&id).map(|file| core::mem::take(&mut file.waiting));
            waiting.into_iter().flatten().for_each(|sent| self.over_with(sent, Err(why.clone()), out));
            self.fail_queue(id, &why, out);
            self.touched.insert(id);
        }
    }

    pub(super) fn bye<M: ClientMemory>(&mut self, out: &mut Out<'_, M>) {
        if self.may_say_bye() {
            self.requests.send(Unanswered::new(Request::Bye {}, Purpose::Nothing, None), out.effects);
        }
    }
}
