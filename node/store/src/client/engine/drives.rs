//! What a file's machine wants done, at drives and at the service, and what comes of it.

use super::super::connection::{boot_time, drive_time};
use super::super::error::ClientError;
use super::super::open_file::{FileContent, FileWork, OpenFile, QueuedWork};
use super::super::requests::{Purpose, Unanswered};
use super::{Engine, TRIES, UNSETTLED_PAUSE, place, ticket_of};
use crate::tier::{self, TierCommand, TierCommandId, TierDone, TierOptions};
use weir_store::file::{DriveFailure, FileEffect, FileError, FileEvent, FileOpId};
use weir_store::protocol::Request;
use weir_store::{NamespaceId, StoreError};
use weir_units::Nanos;

impl Engine {
    pub(super) fn send_for_file(&mut self, file: u64, request: Request, purpose: Purpose) {
        // What its operations wait for is late when they are.
        let sent = Unanswered::new(request, purpose.clone(), Some(file), Nanos::NEVER);
        if self.send(sent).is_err() {
            self.file_answered(file, purpose, Err(StoreError::Malformed));
        }
    }

    pub(super) fn apply(&mut self, id: u64, event: FileEvent) {
        let Some(OpenFile { content: FileContent::Mapped(io), .. }) = self.files.get_mut(&id) else { return };
        let mut effects = Vec::new();
        io.apply(boot_time(), event, &mut self.memory.of_file(id), &mut effects);
        self.carry_out(id, effects);
    }

    pub(super) fn carry_out(&mut self, id: u64, effects: Vec<FileEffect>) {
        let mut grants = Vec::new();
        for effect in effects {
            match effect {
                FileEffect::Fetch(chunk) => {
                    self.send_for_file(id, Request::Map { handle: 0, chunk }, Purpose::Fetch(chunk));
                }
                FileEffect::Grant(block) => grants.push(block),
                FileEffect::Unsettle(block) => {
                    self.send_for_file(id, Request::Unsettle { handle: 0, block }, Purpose::Unsettle(block));
                }
                FileEffect::MarkOut(block, copies) => {
                    let request = Request::MarkOut { handle: 0, block, copies };
                    self.send_for_file(id, request, Purpose::MarkOut(block));
                }
                FileEffect::Publish(size, blocks) => {
                    let request = Request::Publish { handle: 0, slot: 0, sequence: 0, size, blocks };
                    self.send_for_file(id, request, Purpose::Publish);
                }
                FileEffect::Answer(FileOpId(work), result) => self.answered_by_machine(id, work, result),
                FileEffect::Abort(ticket) => {
                    if let Some((namespace, command)) = self.tickets.get(&(id, ticket)).copied() {
                        if let Some(tier) = self.tiers.get_mut(&namespace) {
                            tier.abort(command);
                        }
                    } else if let Some(at) =
                        self.unknown.iter().position(|(file, effect)| *file == id && ticket_of(effect) == Some(ticket))
                    {
                        self.unknown.remove(at);
                        self.apply(id, FileEvent::Done(ticket, Err(DriveFailure)));
                    }
                }
                FileEffect::Read(..) | FileEffect::Write(..) | FileEffect::FlushDrive(..) => {
                    self.submit_to_drive(id, effect)
                }
            }
        }
        if !grants.is_empty() {
            self.ask_for_blocks(id, grants);
        }
    }

    pub(super) fn ask_for_blocks(&mut self, id: u64, blocks: Vec<u64>) {
        if let Some(file) = self.files.get_mut(&id) {
            file.fresh.extend(&blocks);
        }
        let request = Request::Grant { handle: 0, count: blocks.len() as u32 };
        self.send_for_file(id, request, Purpose::Grant(blocks));
    }

    pub(super) fn submit_to_drive(&mut self, id: u64, effect: FileEffect) {
        let (ticket, namespace, what) = match &effect {
            FileEffect::Read(ticket, extent, buffer) => {
                (*ticket, extent.namespace, TierCommand::Read(extent.offset.get(), place(id, extent, *buffer)))
            }
            FileEffect::Write(ticket, extent, buffer) => {
                (*ticket, extent.namespace, TierCommand::Write(extent.offset.get(), place(id, extent, *buffer)))
            }
            FileEffect::FlushDrive(ticket, namespace) => (*ticket, *namespace, TierCommand::Flush),
            _ => return,
        };
        if !self.open_tier(namespace) {
            if self.namespaces.contains_key(&namespace) {
                return self.apply(id, FileEvent::Done(ticket, Err(DriveFailure)));
            }
            self.unknown.push((id, effect));
            return self.ask_for_namespaces();
        }
        let command = TierCommandId(self.next());
        self.commands.insert(command, (id, ticket));
        self.tickets.insert((id, ticket), (namespace, command));
        if let Some(tier) = self.tiers.get_mut(&namespace) {
            tier.submit(drive_time(), command, what, &mut self.memory);
        }
    }

    pub(super) fn open_tier(&mut self, namespace: NamespaceId) -> bool {
        if self.tiers.contains_key(&namespace) {
            return true;
        }
        let Some(info) = self.namespaces.get(&namespace) else { return false };
        let options = TierOptions {
            host_nqn: self.options.host_nqn.clone(),
            timeout: self.options.drive_timeout,
            allow_files: self.options.allow_files,
            label: Some(crate::label::check(self.welcome.store, info.namespace, info.label)),
            bell: Some(self.bell.clone()),
            ..TierOptions::default()
        };
        match tier::open(&info.target, options) {
            Ok(tier) => {
                self.tiers.insert(namespace, tier);
                true
            }
            Err(e) => {
                tracing::warn!("namespace {namespace}: {e}");
                false
            }
        }
    }

    pub(super) fn ask_for_namespaces(&mut self) {
        if !std::mem::replace(&mut self.asks_for_namespaces, true) {
            let _ =
                self.requests.send(Unanswered::new(Request::Namespaces {}, Purpose::Namespaces, None, Nanos::NEVER));
        }
    }

    pub(super) fn answered_by_machine(&mut self, id: u64, work: u64, result: Result<u32, FileError>) {
        let Some(operation) = self.operations.get_mut(&work) else { return };
        let queued = QueuedWork { work, what: operation.what, deadline: operation.deadline };
        if let (FileWork::Read(..), Err(error)) = (operation.what, result) {
            // The map may be out of date, or another client may be writing just there.
            let pause = match error {
                FileError::Corrupt(_) | FileError::Unreadable(_) if operation.tries < 2 => Some(Nanos(0)),
                FileError::Unsettled(_) if operation.tries < TRIES => Some(UNSETTLED_PAUSE),
                _ => None,
            };
            if let Some(pause) = pause {
                operation.tries += 1;
                if let Some(OpenFile { content: FileContent::Mapped(io), .. }) = self.files.get_mut(&id) {
                    io.map().forget_all();
                }
                return self.again.push((boot_time().saturating_add(pause), queued, id));
            }
        }
        let is_flush = matches!(operation.what, FileWork::Flush(_));
        if let Some(file) = self.files.get_mut(&id).filter(|_| is_flush) {
            file.is_making_room = false;
            if result.is_ok() {
                file.fresh.clear();
            }
        }
        let trouble = result.is_err().then(|| self.trouble()).flatten();
        let result = result.map_err(|error| match trouble {
            Some(why) => ClientError::from(error).on(&why),
            None => ClientError::from(error),
        });
        self.end_operation(work, result);
        if is_flush {
            self.go_on_all();
        }
        if self.files.get(&id).is_some_and(|file| file.is_closed) {
            self.forget_file(id);
        }
    }

    /// Which drive does not answer, and why.
    pub(super) fn trouble(&self) -> Option<String> {
        self.tiers.values().find_map(|tier| tier.trouble())
    }

    pub(super) fn turn_drives(&mut self) -> bool {
        let mut any = false;
        let mut done: Vec<TierDone> = Vec::new();
        for tier in self.tiers.values_mut().filter(|tier| tier.pending() > 0) {
            any |= tier.poll(drive_time(), &mut self.memory, &mut done);
        }
        for TierDone { command, is_done } in done {
            let Some((file, ticket)) = self.commands.remove(&command) else { continue };
            self.tickets.remove(&(file, ticket));
            let result = if is_done { Ok(()) } else { Err(DriveFailure) };
            self.apply(file, FileEvent::Done(ticket, result));
            any = true;
        }
        any
    }

    pub(super) fn is_known(&self, effect: &FileEffect) -> bool {
        let namespace = match effect {
            FileEffect::Read(_, extent, _) | FileEffect::Write(_, extent, _) => extent.namespace,
            FileEffect::FlushDrive(_, namespace) => *namespace,
            _ => return true,
        };
        self.namespaces.contains_key(&namespace)
    }
}
