//! The connection, the service's answers, and files that a service has forgotten.

use super::checks;
use super::event::{
    ClientEffect, ClientFailure, ClientFault, ClientMemory, MemoryId, OpenFileId, OpenedFile, Outcome, WorkId,
};
use super::machine::{ClientMachine, Doing, Out};
use super::open_file::Handle;
use super::requests::{Purpose, Unanswered, is_passing};
use crate::error::StoreError;
use crate::file::{FileEffect, FileError, FileEvent, NewBlock};
use crate::members::HolderEvent;
use crate::mutant::Mutant;
use crate::protocol::{Answer, Request, RequestNumber, SessionWish, VERSION_GRANT_SHORT, WelcomeInfo};
use crate::space::Epoch;
use crate::tree::InodePath;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The service knows no such handle.
pub(super) fn is_not_open(result: &Result<Answer, ClientFailure>) -> bool {
    matches!(result, Err(ClientFailure { fault: ClientFault::Store(StoreError::NotOpen, _), .. }))
}

impl ClientMachine {
    pub(super) fn connected<M: ClientMemory>(&mut self, welcome: &WelcomeInfo, out: &mut Out<'_, M>) {
        if self.over.is_some() {
            return;
        }
        let is_same = welcome.store == self.welcome.store && welcome.session == Some(self.session);
        let wrong = match checks::welcome(welcome) {
            Ok(()) if !is_same => Err("a session of another store, or another one, goes on".into()),
            result => result,
        };
        match wrong {
            Ok(()) => {
                self.welcome.version = welcome.version;
                self.requests.connected(welcome.version, out.effects);
                self.ask_for_namespaces(out);
            }
            Err(what) => self.stop(ClientFault::Protocol(what).into(), out),
        }
    }

    pub(super) fn disconnected<M: ClientMemory>(&mut self, why: String, out: &mut Out<'_, M>) {
        (self.requests.is_connected, self.requests.trouble) = (false, Some(why));
        if self.over.is_none() {
            let wish = SessionWish::Resume(self.session, self.welcome.token);
            out.effects.push(ClientEffect::Connect(wish));
        }
    }

    /// Sends a request, with the file's handle as it is at present.
    pub(super) fn send<M: ClientMemory>(&mut self, mut sent: Unanswered, out: &mut Out<'_, M>) {
        if let Some(over) = self.over.clone() {
            return self.lost(sent, over, out);
        }
        let file = sent.file.and_then(|file| self.files.get_mut(&file));
        if let (Some(file), Some(handle)) = (file, sent.handle()) {
            match &file.handle {
                Handle::Open(known) => *handle = *known,
                Handle::Reopening => return file.waiting.push(sent),
                Handle::Lost(why) => {
                    let why = why.clone();
                    return self.lost(sent, why, out);
                }
            }
        }
        self.requests.send(sent, out.effects);
    }

    /// A request came to nothing, for the file cannot be opened again, or the session is over.
    pub(super) fn lost<M: ClientMemory>(&mut self, sent: Unanswered, why: ClientFailure, out: &mut Out<'_, M>) {
        self.requests.end_slot(&sent, out.effects);
        self.over_with(sent, Err(why), out);
    }

    pub(super) fn too_long<M: ClientMemory>(&mut self, number: RequestNumber, out: &mut Out<'_, M>) {
        let Some(sent) = self.requests.take(number) else { return };
        self.requests.end_slot(&sent, out.effects);
        self.over_with(sent, Err(ClientFault::TooLong.into()), out);
    }

    pub(super) fn answer<M: ClientMemory>(&mut self, number: RequestNumber, answer: Answer, out: &mut Out<'_, M>) {
        let Some(sent) = self.requests.take(number) else { return };
        let is_grant = matches!(sent.purpose, Purpose::Grant(..));
        let is_full = |error: &StoreError| {
            matches!(error, StoreError::Freeing(_) | StoreError::NoSpace | StoreError::TooFewNodes(_))
        };
        let is_waiting = matches!(&answer, Answer::Failed { error, .. } if is_full(error));
        if let (true, Some(file)) = (is_grant && !is_waiting, sent.file.and_then(|file| self.files.get_mut(&file))) {
            file.waits_for_room = false;
        }
        if let Answer::Failed { error, .. } = &answer {
            if is_grant && is_waiting {
                return self.no_room(sent, *error, answer, out);
            }
            let is_close = matches!(sent.request, Request::Close { .. });
            if *error == StoreError::NotOpen && sent.file.is_some() && !is_close && names_handle(&sent.request) {
                return self.reopen(sent, out);
            }
            if is_passing(*error) && !matches!(sent.purpose, Purpose::Renewal(_)) {
                if *error == StoreError::Ahead {
                    self.make_room_in_quiet_files();
                }
                return self.requests.retry(out.now, sent);
            }
        }
        if let (Some(file), true) = (sent.file.and_then(|file| self.files.get_mut(&file)), names_handle(&sent.request))
        {
            file.reopens = 0;
        }
        let is_gone = matches!(answer, Answer::Failed { error: StoreError::SessionGone, .. });
        self.requests.end_slot(&sent, out.effects);
        let result = match answer {
            Answer::Failed { error: StoreError::SessionGone, .. } => Err(ClientFault::SessionOver.into()),
            Answer::Failed { error, detail } => Err(ClientFault::Store(error, detail).into()),
            answer => Ok(answer),
        };
        self.over_with(sent, result, out);
        // The session is over for everything, not only for what was asked.
        if is_gone && !self.planted.is(Mutant::GoneOnlyForOne) {
            self.stop(ClientFault::SessionOver.into(), out);
        }
    }

    /// There are no such blocks for a file: a write that needs less than a whole one asks for that, and what will be free is waited for.
    fn no_room<M: ClientMemory>(&mut self, sent: Unanswered, error: StoreError, answer: Answer, out: &mut Out<'_, M>) {
        let (Purpose::Grant(memory, wanted), Some(id)) = (sent.purpose.clone(), sent.file) else { return };
        let asked = match sent.request {
            Request::GrantShort { bytes, .. } => Some(bytes),
            _ => None,
        };
        let mut rest = Vec::new();
        for block in wanted {
            match self.shorter(id, memory, block, asked) {
                Some(bytes) => self.ask_for_short(id, memory, (block, bytes), out),
                None => rest.push(block),
            }
        }
        if rest.is_empty() {
            return;
        }
        let request = Request::Grant { handle: 0, count: u32::try_from(rest.len()).unwrap_or(u32::MAX) };
        let sent = Unanswered::new(request, Purpose::Grant(memory, rest), Some(id));
        match error {
            StoreError::Freeing(epoch) => self.wait_for_room(sent, Epoch(epoch), out),
            // What this session itself gives back is not free yet.
            _ if !self.unneeded.is_empty() => self.wait_for_room(sent, Epoch::default(), out),
            _ => {
                let Answer::Failed { error, detail } = answer else { return };
                self.over_with(sent, Err(ClientFault::Store(error, detail).into()), out);
            }
        }
    }

    /// Asks for a block that has so many bytes.
    pub(super) fn ask_for_short<M: ClientMemory>(
        &mut self,
        file: OpenFileId,
        memory: MemoryId,
        (block, bytes): (u64, u32),
        out: &mut Out<'_, M>,
    ) {
        let request = Request::GrantShort { handle: 0, bytes };
        self.send(Unanswered::new(request, Purpose::Grant(memory, alloc::vec![block]), Some(file)), out);
    }

    /// How much a block may have for which there is no room, where so much was asked for, or a whole one: less than that, and what it needs.
    pub(super) fn shorter(&self, id: OpenFileId, memory: MemoryId, block: u64, asked: Option<u32>) -> Option<u32> {
        let file = self.files.get(&id).filter(|file| file.memory == memory)?;
        let needs = file.io()?.needs(block)?;
        let asked = asked.unwrap_or(file.block);
        let has_kind = self.welcome.version >= VERSION_GRANT_SHORT;
        [needs.good, needs.least].into_iter().find(|bytes| has_kind && *bytes < asked)
    }

    /// There will be blocks for a file: they are asked for again until its operation is over by its deadline.
    fn wait_for_room<M: ClientMemory>(&mut self, sent: Unanswered, epoch: Epoch, out: &mut Out<'_, M>) {
        if let Some(file) = sent.file.and_then(|file| self.files.get_mut(&file)) {
            file.waits_for_room = true;
        }
        self.requests.retry_freeing(out.now, sent);
        let oldest = self.oldest_held();
        self.hold(HolderEvent::Hurry(oldest, epoch), out);
    }

    /// A request is over, for good.
    pub(super) fn over_with<M: ClientMemory>(
        &mut self,
        sent: Unanswered,
        result: Result<Answer, ClientFailure>,
        out: &mut Out<'_, M>,
    ) {
        if let Ok(Answer::Namespaces { namespaces }) = &result {
            self.set_namespaces(namespaces, out);
        }
        match (sent.purpose, sent.file) {
            (Purpose::Ask(work), _) => {
                if self.works.remove(&work).is_some() {
                    self.finish(work, Outcome::Answer(result), out);
                }
            }
            (Purpose::Open(work), _) => self.opened(work, &sent.request, result, out),
            (Purpose::Close(at), _) => {
                if is_not_open(&result) {
                    self.release_writer(at, out);
                }
            }
            (Purpose::Renewal(id), _) => {
                if let Ok(Answer::Renewed { epoch }) = result {
                    self.hold(HolderEvent::Renewed(id, epoch), out);
                }
            }
            (Purpose::Return, _) => self.returned(&sent.request, result.as_ref().err(), out),
            (Purpose::Namespaces, _) => {
                self.asks_for_namespaces = false;
                // The drives that were asked about are known, or are not.
                if result.is_err() {
                    self.set_namespaces(&self.namespaces.values().cloned().collect::<Vec<_>>(), out);
                }
            }
            (Purpose::InlineFlush(work), Some(file)) => self.inline_flushed(file, work, result.map(drop), out),
            (Purpose::Step, Some(file)) => self.step_answered(file, result, out),
            (Purpose::Reopen, Some(file)) => self.reopened(file, result, out),
            (Purpose::Nothing, _) | (_, None) => {}
            (Purpose::Publish(memory), Some(file)) => self.publish_answered(file, memory, &sent.request, result),
            (purpose, Some(file)) => self.file_answered(file, (purpose, &sent.request), result, out),
        }
    }

    /// Sends what an open file's machine asks of the service.
    pub(super) fn ask_for_file<M: ClientMemory>(
        &mut self,
        file: OpenFileId,
        memory: MemoryId,
        effect: FileEffect,
        out: &mut Out<'_, M>,
    ) {
        let (request, purpose) = match effect {
            FileEffect::Fetch(chunk) => (Request::Map { handle: 0, chunk }, Purpose::Fetch(memory, chunk)),
            FileEffect::Unsettle(block) => (Request::Unsettle { handle: 0, block }, Purpose::Unsettle(memory, block)),
            FileEffect::MarkOut(block, copies) => {
                (Request::MarkOut { handle: 0, block, copies }, Purpose::MarkOut(memory, block))
            }
            FileEffect::Publish(size, blocks) => {
                (Request::Publish { handle: 0, slot: 0, sequence: 0, size, blocks }, Purpose::Publish(memory))
            }
            _ => return,
        };
        self.send(Unanswered::new(request, purpose, Some(file)), out);
    }

    pub(super) fn ask_for_blocks<M: ClientMemory>(
        &mut self,
        file: OpenFileId,
        memory: MemoryId,
        blocks: Vec<u64>,
        out: &mut Out<'_, M>,
    ) {
        let request = Request::Grant { handle: 0, count: u32::try_from(blocks.len()).unwrap_or(u32::MAX) };
        self.send(Unanswered::new(request, Purpose::Grant(memory, blocks), Some(file)), out);
    }

    /// What a file's machine has asked for is there.
    fn file_answered<M: ClientMemory>(
        &mut self,
        id: OpenFileId,
        (purpose, request): (Purpose, &Request),
        result: Result<Answer, ClientFailure>,
        out: &mut Out<'_, M>,
    ) {
        let (memory, event) = match purpose {
            Purpose::Fetch(memory, chunk) => {
                let Some(event) = self.chunk_came(id, memory, chunk, result, out) else { return };
                (memory, event)
            }
            Purpose::Grant(memory, wanted) => return self.blocks_came(id, memory, (wanted, request), result, out),
            Purpose::Unsettle(memory, block) => (memory, FileEvent::Unsettled(block, self.done(id, result))),
            Purpose::MarkOut(memory, block) => (memory, FileEvent::MarkedOut(block, self.done(id, result))),
            _ => return,
        };
        self.inbox.push_back((id, memory, event));
    }

    /// A publish is over. Of one that was refused the blocks are the session's still, also where the file is closed.
    fn publish_answered(
        &mut self,
        id: OpenFileId,
        memory: MemoryId,
        request: &Request,
        result: Result<Answer, ClientFailure>,
    ) {
        let file = self.files.get(&id).filter(|file| file.memory == memory);
        // One that is not opened again may have been carried out by the service of before.
        let is_lost = file.is_some_and(|file| matches!(file.handle, Handle::Lost(_)));
        let is_refused = !is_lost && matches!(result, Err(ClientFailure { fault: ClientFault::Store(..), .. }));
        if let (None, true, Request::Publish { blocks, .. }) = (file, is_refused, request) {
            return self.unneeded.extend(blocks.iter().flat_map(|(_, block)| block.copies.iter().copied()));
        }
        let event = match (self.done(id, result), is_refused) {
            (Err(error), true) => FileEvent::NotPublished(error),
            (result, _) => FileEvent::Published(result),
        };
        self.inbox.push_back((id, memory, event));
    }

    /// Blocks went back, or were refused as a whole where one of them was published after all: then each goes by itself.
    fn returned<M: ClientMemory>(&mut self, request: &Request, failure: Option<&ClientFailure>, out: &mut Out<'_, M>) {
        let is_refused = failure.is_some_and(|f| matches!(f.fault, ClientFault::Store(StoreError::NotGranted, _)));
        let Request::Return { extents } = request else { return };
        if !is_refused || extents.len() < 2 || self.over.is_some() {
            return;
        }
        for extent in extents {
            let request = Request::Return { extents: alloc::vec![*extent] };
            self.requests.send(Unanswered::new(request, Purpose::Return, None), out.effects);
        }
    }

    /// A failure as a file's machine knows it.
    fn file_error(&mut self, id: OpenFileId, failure: ClientFailure) -> FileError {
        match failure.fault {
            ClientFault::SessionOver => FileError::LeaseOver,
            ClientFault::Store(StoreError::NoSpace, _) => FileError::NoSpace,
            ClientFault::Store(StoreError::TooFewNodes(placed), _) => FileError::TooFewNodes(placed),
            fault => {
                if let Some(file) = self.files.get_mut(&id) {
                    file.violation.get_or_insert(format!("{fault}"));
                }
                FileError::Metadata
            }
        }
    }

    fn done(&mut self, id: OpenFileId, result: Result<Answer, ClientFailure>) -> Result<(), FileError> {
        match result {
            Ok(Answer::Done {} | Answer::Changed { .. }) => Ok(()),
            Ok(other) => Err(self.violated(id, other_answer(&other))),
            Err(failure) => Err(self.file_error(id, failure)),
        }
    }

    /// The service has said what cannot be.
    fn violated(&mut self, id: OpenFileId, what: String) -> FileError {
        if let Some(file) = self.files.get_mut(&id) {
            file.violation = Some(what);
        }
        FileError::BadMap
    }

    fn chunk_came<M: ClientMemory>(
        &mut self,
        id: OpenFileId,
        memory: MemoryId,
        number: u32,
        result: Result<Answer, ClientFailure>,
        out: &mut Out<'_, M>,
    ) -> Option<FileEvent> {
        let result = match result {
            // It was read before all were asked to let go of such maps.
            Ok(Answer::Chunk { epoch, .. }) if !self.holder.accepts(epoch) => {
                if self.files.get(&id).is_some_and(|file| file.memory == memory) && self.over.is_none() {
                    let request = Request::Map { handle: 0, chunk: number };
                    let sent = Unanswered::new(request, Purpose::Fetch(memory, number), Some(id));
                    self.requests.retry(out.now, sent);
                    return None;
                }
                Err(FileError::LeaseOver)
            }
            Ok(Answer::Chunk { chunk, epoch }) => match checks::chunk(&chunk, &self.namespaces) {
                Ok(()) => Ok((chunk, epoch)),
                Err(what) => Err(self.violated(id, what)),
            },
            Ok(other) => Err(self.violated(id, other_answer(&other))),
            Err(failure) => Err(self.file_error(id, failure)),
        };
        Some(FileEvent::Chunk(number, result))
    }

    fn blocks_came<M: ClientMemory>(
        &mut self,
        id: OpenFileId,
        memory: MemoryId,
        (wanted, request): (Vec<u64>, &Request),
        result: Result<Answer, ClientFailure>,
        out: &mut Out<'_, M>,
    ) {
        let file = self.files.get(&id).filter(|file| file.memory == memory);
        let (is_there, block) = (file.is_some(), file.map_or(0, |file| file.block));
        let block = match request {
            Request::GrantShort { bytes, .. } => *bytes,
            _ => block,
        };
        let blocks = match result {
            Ok(Answer::Granted { blocks }) if !is_there => return self.give_back(blocks),
            Ok(Answer::Granted { blocks }) => match checks::granted(&blocks, wanted.len(), block, &self.namespaces) {
                Ok(()) => Ok(blocks),
                Err(what) => {
                    self.give_back(blocks);
                    Err(self.violated(id, what))
                }
            },
            Ok(other) => Err(self.violated(id, other_answer(&other))),
            Err(failure) => Err(self.file_error(id, failure)),
        };
        match blocks {
            Ok(blocks) => {
                let rest = wanted.get(blocks.len()..).unwrap_or_default().to_vec();
                let events = wanted.into_iter().zip(blocks).map(|(block, new)| FileEvent::Granted(block, Ok(new)));
                self.inbox.extend(events.map(|event| (id, memory, event)));
                if !rest.is_empty() {
                    self.ask_for_blocks(id, memory, rest, out);
                }
            }
            Err(error) => {
                let events = wanted.into_iter().map(|block| FileEvent::Granted(block, Err(error)));
                self.inbox.extend(events.map(|event| (id, memory, event)));
            }
        }
    }

    /// A service that was started again knows no handles, and the session has the file still to write: it is opened, and closed again.
    pub(super) fn release_writer<M>(&mut self, at: InodePath, out: &mut Out<'_, M>) {
        if self.over.is_none() && !self.planted.is(Mutant::WriterKept) {
            let nobody = self.number();
            let open = Unanswered::new(Request::Open { at, write: true }, Purpose::Open(nobody), None);
            self.requests.send(open, out.effects);
        }
    }

    /// Blocks that nobody waits for any more.
    fn give_back(&mut self, blocks: Vec<NewBlock>) {
        if !self.planted.is(Mutant::GrantsKept) {
            self.unneeded.extend(blocks.into_iter().flat_map(|new| new.copies));
        }
    }

    /// A file was opened, for a caller that may have gone: it is closed again then.
    fn opened<M: ClientMemory>(
        &mut self,
        work: WorkId,
        request: &Request,
        result: Result<Answer, ClientFailure>,
        out: &mut Out<'_, M>,
    ) {
        let writes = !matches!(request, Request::Open { write: false, .. });
        let close = |handle, at| {
            let purpose = if writes { Purpose::Close(at) } else { Purpose::Nothing };
            Unanswered::new(Request::Close { handle }, purpose, None)
        };
        let result = match result {
            Ok(Answer::Opened { handle, at, inode }) if writes && !self.planted.is(Mutant::TwoWriters) => {
                let open = self.files.iter().find(|(_, file)| file.writes && file.at.inode == at.inode);
                match open.map(|(id, file)| (*id, file.is_ending())) {
                    None => Ok(Answer::Opened { handle, at, inode }),
                    // One file has one writer: each has a map of its own, and knows nothing of what the other writes.
                    Some((id, is_ending)) => {
                        self.one_too_many(id, Answer::Opened { handle, at, inode }, out);
                        if is_ending && self.works.contains_key(&work) {
                            let again = Unanswered::new(request.clone(), Purpose::Open(work), None);
                            return self.requests.retry(out.now, again);
                        }
                        Err(ClientFault::Store(
                            StoreError::Busy,
                            format!("inode {} is open here for writing", at.inode),
                        )
                        .into())
                    }
                }
            }
            result => result,
        };
        let asked = self.works.remove(&work).map(|work| work.doing);
        let result = match (result, asked) {
            (Ok(Answer::Opened { handle, at, .. }), None) => {
                if !self.planted.is(Mutant::OpenedKept) {
                    self.requests.send(close(handle, at), out.effects);
                }
                return;
            }
            (_, None) => return,
            (Ok(Answer::Opened { handle, at, inode }), Some(Doing::Open(which))) => {
                let wrong = match which.filter(|which| which.inode != at.inode) {
                    Some(which) => Err(format!("inode {} is opened, where {} was asked for", at.inode, which.inode)),
                    None => checks::file(&inode, self.welcome.inline_max),
                };
                match wrong {
                    Ok(()) => {
                        let writes = !matches!(request, Request::Open { write: false, .. });
                        let file = self.add_file(handle, at, &inode, writes);
                        Ok(OpenedFile { file, at, inode })
                    }
                    Err(what) => {
                        self.requests.send(close(handle, at), out.effects);
                        Err(ClientFault::Protocol(what).into())
                    }
                }
            }
            (Ok(other), Some(_)) => Err(ClientFault::Protocol(other_answer(&other)).into()),
            (Err(failure), Some(_)) => Err(failure),
        };
        self.finish(work, Outcome::Opened(result), out);
    }
}

/// What an answer to something else is, in words.
pub(super) fn other_answer(answer: &Answer) -> String {
    format!("a message of kind {}, which is no answer to what was asked", answer.kind())
}

fn names_handle(request: &Request) -> bool {
    matches!(
        request,
        Request::Map { .. }
            | Request::Grant { .. }
            | Request::GrantShort { .. }
            | Request::Unsettle { .. }
            | Request::MarkOut { .. }
            | Request::Publish { .. }
    )
}
