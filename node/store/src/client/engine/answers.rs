//! The service's answers, the session's lease, deadlines, and files that a service has forgotten.

use super::super::connection::{boot_time, drive_time};
use super::super::error::{ClientError, ClientErrorKind};
use super::super::open_file::OpenFile;
use super::super::requests::{Purpose, Unanswered, accepted, file_error, is_passing};
use super::{Engine, LOOK, Outcome, UNSETTLED_PAUSE, ticket_of};
use weir_store::StoreError;
use weir_store::file::{DriveFailure, FileError, FileEvent, NewBlock};
use weir_store::members::{HolderEffect, HolderEvent};
use weir_store::protocol::{Answer, Request};
use weir_units::Nanos;

impl Engine {
    pub(super) fn turn_requests(&mut self) -> bool {
        let mut answered = Vec::new();
        let any = self.requests.poll(boot_time(), &mut answered);
        for (sent, answer) in answered {
            self.answered(sent, answer);
        }
        if self.requests.is_over {
            self.stop();
        }
        any
    }

    pub(super) fn answered(&mut self, sent: Unanswered, answer: Answer) {
        let now = boot_time();
        if let Answer::Failed { error, .. } = &answer {
            if *error == StoreError::NotOpen && sent.file.is_some() && !matches!(sent.request, Request::Close { .. }) {
                return self.reopen(sent);
            }
            if is_passing(*error) && !matches!(sent.purpose, Purpose::Renewal(_)) {
                if *error == StoreError::Ahead {
                    let full = self.files.iter().filter(|(_, file)| !file.fresh.is_empty() && file.pending() == 0);
                    let full: Vec<u64> = full.map(|(id, _)| *id).collect();
                    full.into_iter().for_each(|id| self.make_room(id));
                }
                return self.requests.retry(now, sent);
            }
        }
        self.requests.end_slot(&sent);
        let file = sent.file;
        match sent.purpose {
            Purpose::Caller(work) => self.finish(work, Outcome::Answer(accepted(answer))),
            Purpose::Renewal(id) => match answer {
                Answer::Renewed { epoch } => self.hold(HolderEvent::Renewed(id, epoch)),
                Answer::Failed { error: StoreError::SessionGone, .. } => self.hold(HolderEvent::Refused),
                _ => {}
            },
            Purpose::InlineFlush(id, work) => self.inline_flushed(id, work, accepted(answer).map(|_| 0)),
            Purpose::Reopen => self.reopened(file, answer),
            Purpose::Namespaces => {
                self.asks_for_namespaces = false;
                if let Answer::Namespaces { namespaces } = answer {
                    self.set_namespaces(namespaces);
                }
                for (file, effect) in std::mem::take(&mut self.unknown) {
                    match ticket_of(&effect) {
                        Some(ticket) if !self.is_known(&effect) => {
                            self.apply(file, FileEvent::Done(ticket, Err(DriveFailure)));
                        }
                        _ => self.submit_to_drive(file, effect),
                    }
                }
            }
            Purpose::Nothing => {}
            purpose => {
                let answer = match answer {
                    Answer::Failed { error, .. } => Err(error),
                    answer => Ok(answer),
                };
                if let Some(file) = file {
                    self.file_answered(file, purpose, answer);
                }
            }
        }
    }

    /// What a file's machine has asked for is there.
    pub(super) fn file_answered(&mut self, id: u64, purpose: Purpose, answer: Result<Answer, StoreError>) {
        let unexpected = FileError::Metadata;
        let done = |answer: Result<Answer, StoreError>| answer.map(|_| ()).map_err(file_error);
        match purpose {
            Purpose::Fetch(chunk) => {
                let result = match answer {
                    Ok(Answer::Chunk { chunk, epoch }) if self.holder.accepts(epoch) => Ok((chunk, epoch)),
                    // It was read before all were asked to let go of such maps.
                    Ok(Answer::Chunk { .. }) => {
                        return self.send_for_file(id, Request::Map { handle: 0, chunk }, Purpose::Fetch(chunk));
                    }
                    Ok(_) => Err(unexpected),
                    Err(error) => Err(file_error(error)),
                };
                self.apply(id, FileEvent::Chunk(chunk, result));
            }
            Purpose::Grant(wanted) => {
                let granted: Result<Vec<NewBlock>, FileError> = match answer {
                    Ok(Answer::Granted { blocks }) => Ok(blocks),
                    Ok(_) => Err(unexpected),
                    Err(error) => Err(file_error(error)),
                };
                match granted {
                    Ok(blocks) if !blocks.is_empty() => {
                        let rest = wanted.get(blocks.len()..).unwrap_or_default().to_vec();
                        for (number, block) in wanted.into_iter().zip(blocks) {
                            self.apply(id, FileEvent::Granted(number, Ok(block)));
                        }
                        if !rest.is_empty() {
                            self.ask_for_blocks(id, rest);
                        }
                    }
                    other => {
                        let error = other.err().unwrap_or(unexpected);
                        for number in wanted {
                            if let Some(file) = self.files.get_mut(&id) {
                                file.fresh.remove(&number);
                            }
                            self.apply(id, FileEvent::Granted(number, Err(error)));
                        }
                    }
                }
            }
            Purpose::Unsettle(block) => self.apply(id, FileEvent::Unsettled(block, done(answer))),
            Purpose::MarkOut(block) => self.apply(id, FileEvent::MarkedOut(block, done(answer))),
            Purpose::Publish => self.apply(id, FileEvent::Published(done(answer))),
            _ => {}
        }
    }

    /// The service has forgotten the handle: it was started again.
    pub(super) fn reopen(&mut self, sent: Unanswered) {
        let Some(id) = sent.file else { return };
        let Some(file) = self.files.get_mut(&id) else { return self.requests.end_slot(&sent) };
        let named = match &sent.request {
            Request::Map { handle, .. }
            | Request::Grant { handle, .. }
            | Request::Unsettle { handle, .. }
            | Request::MarkOut { handle, .. }
            | Request::Publish { handle, .. } => Some(*handle),
            _ => None,
        };
        if file.handle.is_some() && file.handle == named {
            file.handle = None;
            let request = Request::Open { at: file.at, write: file.writes };
            let _ = self.requests.send(Unanswered::new(request, Purpose::Reopen, Some(id), Nanos::NEVER));
        }
        let mut sent = sent;
        let known = self.files.get(&id).and_then(|file| file.handle);
        if let (Some(known), Some(handle)) = (known, sent.handle()) {
            *handle = known;
        }
        self.requests.retry(boot_time(), sent);
    }

    pub(super) fn reopened(&mut self, file: Option<u64>, answer: Answer) {
        let Some(id) = file else { return };
        match answer {
            Answer::Opened { handle, .. } => {
                if let Some(file) = self.files.get_mut(&id) {
                    file.handle = Some(handle);
                }
                self.requests.rename_handles(id, handle);
            }
            Answer::Failed { error, .. } => {
                for sent in self.requests.take_of_file(id) {
                    self.requests.end_slot(&sent);
                    match sent.purpose {
                        Purpose::Caller(work) => self.finish(work, Outcome::Answer(Err(error.into()))),
                        purpose => self.file_answered(id, purpose, Err(error)),
                    }
                }
            }
            _ => {}
        }
    }

    pub(super) fn hold(&mut self, event: HolderEvent) {
        let mut effects = Vec::new();
        let before = self.holder.until();
        self.holder.apply(boot_time(), event, &mut effects);
        for effect in effects {
            match effect {
                HolderEffect::Renew(id, _, epoch) => {
                    let request = Request::Renew { epoch };
                    let deadline = self.holder.until();
                    let _ = self.requests.send(Unanswered::new(request, Purpose::Renewal(id), None, deadline));
                }
                HolderEffect::Forget(epoch) => {
                    self.welcome.epoch = self.welcome.epoch.max(epoch);
                    let files: Vec<u64> = self.files.keys().copied().collect();
                    files.into_iter().for_each(|id| self.apply(id, FileEvent::Forget(epoch)));
                }
                HolderEffect::Stop(_) => {
                    self.requests.is_over = true;
                    self.stop();
                }
            }
        }
        let until = self.holder.until();
        if until > before {
            let files: Vec<u64> = self.files.keys().copied().collect();
            files.into_iter().for_each(|id| self.apply(id, FileEvent::Lease(until)));
        }
    }

    /// The session is over: everything fails.
    pub(super) fn stop(&mut self) {
        let over = || ClientError::new(ClientErrorKind::SessionOver);
        for sent in self.requests.fail_all() {
            match sent.purpose {
                Purpose::Caller(work) => self.finish(work, Outcome::Answer(Err(over()))),
                Purpose::InlineFlush(id, work) => self.inline_flushed(id, work, Err(over())),
                purpose => {
                    if let Some(file) = sent.file {
                        self.file_answered(file, purpose, Err(StoreError::SessionGone));
                    }
                }
            }
        }
        let files: Vec<u64> = self.files.keys().copied().collect();
        files.iter().for_each(|id| self.apply(*id, FileEvent::Tick));
        self.go_on_all();
    }

    /// Deadlines, the lease, and what is tried again.
    pub(super) fn look(&mut self, now: Nanos) {
        let ready: Vec<usize> = (0..self.again.len()).rev().filter(|at| self.again[*at].0 <= now).collect();
        for at in ready {
            let (_, queued, file) = self.again.swap_remove(at);
            if queued.deadline <= now {
                self.end_operation(queued.work, Err(FileError::Deadline.into()));
            } else if !self.start(file, queued) {
                self.again.push((now.saturating_add(UNSETTLED_PAUSE), queued, file));
            }
        }
        if now < self.look_at {
            return;
        }
        self.look_at = now.saturating_add(LOOK);
        for purpose in self.requests.late(now) {
            match purpose {
                Purpose::Caller(work) => self.finish(work, Outcome::Answer(Err(self.late()))),
                Purpose::InlineFlush(_, work) => self.end_operation(work, Err(self.late())),
                _ => {}
            }
        }
        let mut late = Vec::new();
        for file in self.files.values_mut() {
            file.queue.retain(|queued| {
                queued.deadline > now || {
                    late.push(queued.work);
                    false
                }
            });
        }
        late.into_iter().for_each(|work| self.end_operation(work, Err(FileError::Deadline.into())));
        let files: Vec<u64> = self.files.iter().filter(|(_, file)| file.pending() > 0).map(|(id, _)| *id).collect();
        files.into_iter().for_each(|id| self.apply(id, FileEvent::Tick));
        let in_doubt = self.tiers.values().any(|tier| tier.may_still_write(drive_time()));
        let oldest = self.files.values().filter_map(OpenFile::oldest).min();
        // Nothing newer is acknowledged while a drive may still carry out a write that was given up.
        let held = if in_doubt { Some(oldest.unwrap_or_default().min(self.acknowledged)) } else { oldest };
        if !in_doubt {
            self.acknowledged = self.welcome.epoch;
        }
        self.hold(HolderEvent::Tick(held));
        if self.holder.holds(now) {
            self.tiers.values_mut().for_each(|tier| tier.attend(drive_time()));
        }
    }

    /// The error of what was not answered in time.
    pub(super) fn late(&self) -> ClientError {
        let why = self.requests.trouble.as_ref();
        ClientError::new(match why {
            Some(why) => ClientErrorKind::Unreachable(format!("the metadata service does not answer: {why}")),
            None => ClientErrorKind::Deadline,
        })
    }
}
