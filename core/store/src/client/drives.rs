//! Drives: opened when a command comes, opened anew when their namespace is another one, closed when the session is over.

use super::checks::{self, Namespaces};
use super::event::{ClientEffect, ClientMemory, CommandId, DriveCommand, DriveId, MemoryId, OpenFileId, drive_name};
use super::machine::{ClientMachine, Out};
use super::requests::{Purpose, Unanswered};
use crate::extent::Extent;
use crate::file::{DriveFailure, DriveTicket, FileEffect, FileEvent};
use crate::id::NamespaceId;
use crate::protocol::{NamespaceInfo, NamespaceState, Request};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Between questions which namespaces there are, where drives fail.
const ASK_AGAIN: Nanos = Nanos::from_millis(500);

/// A namespace that is open.
#[derive(Clone, Debug)]
struct Drive {
    id: DriveId,
    /// As it was opened.
    info: NamespaceInfo,
    /// It may still carry out a write that was given up.
    is_in_doubt: bool,
    /// Its namespace is another one: what it has was given up, and when that is over it is closed.
    is_closing: bool,
    trouble: Option<String>,
}

/// Whose a command is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub namespace: NamespaceId,
    pub file: OpenFileId,
    pub memory: MemoryId,
    pub ticket: DriveTicket,
}

/// All drives, and what is under way at them. A ticket is one of an open file's machine: together with its memory's number it is used once.
#[derive(Debug, Default)]
pub(super) struct Drives {
    open: BTreeMap<NamespaceId, Drive>,
    commands: BTreeMap<CommandId, Command>,
    tickets: BTreeMap<(MemoryId, DriveTicket), CommandId>,
    /// Commands of namespaces that are not known yet, or whose drive is being closed.
    waiting: Vec<(Command, DriveCommand)>,
    /// Why the last one that could not be opened could not.
    not_opened: Option<String>,
}

impl Drives {
    pub fn has_commands(&self) -> bool {
        !self.commands.is_empty() || !self.waiting.is_empty()
    }

    /// Whether any may still carry out a write that was given up.
    pub fn is_in_doubt(&self) -> bool {
        self.open.values().any(|drive| drive.is_in_doubt)
    }

    /// Whether that of an extent may.
    pub fn has_doubt_about(&self, extent: &Extent) -> bool {
        self.open.get(&extent.namespace).is_some_and(|drive| drive.is_in_doubt)
    }

    fn by_id(&mut self, id: DriveId) -> Option<(&NamespaceId, &mut Drive)> {
        self.open.iter_mut().find(|(_, drive)| drive.id == id)
    }

    /// The namespace of the drive.
    pub fn set_trouble(&mut self, id: DriveId, why: Option<String>) -> Option<NamespaceId> {
        let (namespace, drive) = self.by_id(id)?;
        drive.trouble = why;
        Some(*namespace)
    }

    /// Whether something is wrong with the drive of a namespace; `None` if it is not open.
    pub fn trouble_of(&self, namespace: NamespaceId) -> Option<bool> {
        self.open.get(&namespace).map(|drive| drive.trouble.is_some())
    }

    /// What is under way at drives.
    pub fn commands(&self) -> impl Iterator<Item = (&CommandId, &Command)> {
        self.commands.iter()
    }

    /// Which drive does not answer, and why.
    pub fn trouble(&self) -> Option<String> {
        let open = self.open.values().find_map(|drive| drive.trouble.clone());
        open.or_else(|| self.not_opened.clone())
    }

    /// Panics unless commands and tickets are those of each other, and each is at a drive.
    pub fn check(&self, known: &Namespaces) {
        assert_eq!(self.commands.len(), self.tickets.len(), "a command has a ticket");
        for (id, command) in &self.commands {
            assert_eq!(self.tickets.get(&(command.memory, command.ticket)), Some(id), "a ticket is used once");
            assert!(self.open.contains_key(&command.namespace), "{id:?} is at a drive");
        }
        for (command, _) in &self.waiting {
            let is_closing = self.open.get(&command.namespace).is_some_and(|drive| drive.is_closing);
            assert!(is_closing || !known.contains_key(&command.namespace), "{command:?} waits for something");
        }
    }
}

impl ClientMachine {
    /// A command of an open file's machine.
    pub(super) fn drive_command<M: ClientMemory>(
        &mut self,
        file: OpenFileId,
        memory: MemoryId,
        effect: FileEffect,
        out: &mut Out<'_, M>,
    ) {
        let of = |extent: &Extent| (extent.offset.get(), u32::try_from(extent.length.get()).unwrap_or(u32::MAX));
        let (ticket, namespace, command) = match effect {
            FileEffect::Read(ticket, extent, to) => {
                let (at, len) = of(&extent);
                (ticket, extent.namespace, DriveCommand::Read(at, len, to))
            }
            FileEffect::Write(ticket, extent, from) => {
                let (at, len) = of(&extent);
                (ticket, extent.namespace, DriveCommand::Write(at, len, from))
            }
            FileEffect::FlushDrive(ticket, namespace) => (ticket, namespace, DriveCommand::Flush),
            _ => return,
        };
        let whose = Command { namespace, file, memory, ticket };
        self.submit(whose, command, out);
    }

    fn fail_command(&mut self, command: &Command) {
        self.inbox.push_back((command.file, command.memory, FileEvent::Done(command.ticket, Err(DriveFailure))));
    }

    fn submit<M: ClientMemory>(&mut self, whose: Command, command: DriveCommand, out: &mut Out<'_, M>) {
        if let Some(what) = outside(whose.namespace, &command, &self.namespaces) {
            if let Some(file) = self.files.get_mut(&whose.file) {
                file.violation = Some(what);
            }
            return self.fail_command(&whose);
        }
        if self.goes_elsewhere(&whose, &command) {
            self.ask_for_namespaces_again(out);
            return self.fail_command(&whose);
        }
        let drive = match (self.drives.open.get(&whose.namespace), self.namespaces.get(&whose.namespace)) {
            (Some(drive), _) if !drive.is_closing => drive.id,
            (Some(_), _) => return self.drives.waiting.push((whose, command)),
            (None, None) => {
                self.drives.waiting.push((whose, command));
                return self.ask_for_namespaces(out);
            }
            (None, Some(info)) if info.state == NamespaceState::Lost => {
                self.drives.not_opened =
                    Some(format!("{}: its content is gone", drive_name(whose.namespace, Some(info))));
                self.ask_for_namespaces_again(out);
                return self.fail_command(&whose);
            }
            (None, Some(info)) => {
                let info = info.clone();
                let id = DriveId(self.next());
                out.effects.push(ClientEffect::OpenDrive(id, Box::new(info.clone())));
                let drive = Drive { id, info, is_in_doubt: false, is_closing: false, trouble: None };
                self.drives.open.insert(whose.namespace, drive);
                id
            }
        };
        let id = CommandId(self.next());
        self.drives.commands.insert(id, whose);
        self.drives.tickets.insert((whose.memory, whose.ticket), id);
        out.effects.push(ClientEffect::Submit(drive, id, whose.memory, command));
    }

    /// A command is not wanted any more.
    pub(super) fn abort<M: ClientMemory>(
        &mut self,
        file: OpenFileId,
        memory: MemoryId,
        ticket: DriveTicket,
        out: &mut Out<'_, M>,
    ) {
        let is_it = |command: &Command| (command.file, command.memory, command.ticket) == (file, memory, ticket);
        if let Some(at) = self.drives.waiting.iter().position(|(command, _)| is_it(command)) {
            let (command, _) = self.drives.waiting.remove(at);
            return self.fail_command(&command);
        }
        let Some(id) = self.drives.tickets.get(&(memory, ticket)) else { return };
        let drive = self.drives.commands.get(id).and_then(|command| self.drives.open.get(&command.namespace));
        if let Some(drive) = drive {
            out.effects.push(ClientEffect::Abort(drive.id, *id));
        }
    }

    /// A command is over. It counts if the lease holds now that its completion is taken: the file's machine looks.
    pub(super) fn drive_done<M: ClientMemory>(
        &mut self,
        id: CommandId,
        result: Result<(), DriveFailure>,
        out: &mut Out<'_, M>,
    ) {
        let Some(command) = self.drives.commands.remove(&id) else { return };
        self.drives.tickets.remove(&(command.memory, command.ticket));
        if result.is_err() {
            self.ask_for_namespaces_again(out);
        }
        self.inbox.push_back((command.file, command.memory, FileEvent::Done(command.ticket, result)));
    }

    pub(super) fn drive_reconnected(&mut self, id: DriveId) {
        if let Some((namespace, _)) = self.drives.by_id(id) {
            let event = FileEvent::Reconnected(*namespace);
            self.tell_all(&event);
        }
    }

    pub(super) fn drive_not_opened<M: ClientMemory>(&mut self, id: DriveId, why: String, out: &mut Out<'_, M>) {
        let Some(namespace) = self.drives.by_id(id).map(|(namespace, _)| *namespace) else { return };
        let info = self.drives.open.remove(&namespace).map(|drive| drive.info);
        self.drives.not_opened = Some(format!("{}: {why}", drive_name(namespace, info.as_ref())));
        let lost: Vec<CommandId> = self.of_namespace(namespace);
        for id in lost {
            let Some(command) = self.drives.commands.remove(&id) else { continue };
            self.drives.tickets.remove(&(command.memory, command.ticket));
            self.fail_command(&command);
        }
        self.ask_for_namespaces_again(out);
        self.submit_waiting(out);
    }

    fn of_namespace(&self, namespace: NamespaceId) -> Vec<CommandId> {
        let of = self.drives.commands.iter().filter(|(_, command)| command.namespace == namespace);
        of.map(|(id, _)| *id).collect()
    }

    pub(super) fn drive_doubt<M: ClientMemory>(&mut self, id: DriveId, is_in_doubt: bool, _: &mut Out<'_, M>) {
        if let Some((_, drive)) = self.drives.by_id(id) {
            drive.is_in_doubt = is_in_doubt;
        }
        if !self.drives.is_in_doubt() {
            let waiting = self.files.iter().filter(|(_, file)| file.is_forgotten).map(|(id, _)| *id);
            self.touched.extend(waiting);
        }
    }

    pub(super) fn ask_for_namespaces<M: ClientMemory>(&mut self, out: &mut Out<'_, M>) {
        if self.over.is_none() && !core::mem::replace(&mut self.asks_for_namespaces, true) {
            self.ask_again_at = out.now.saturating_add(ASK_AGAIN);
            let sent = Unanswered::new(Request::Namespaces {}, Purpose::Namespaces, None);
            self.requests.send(sent, out.effects);
        }
    }

    /// A drive fails: its namespace may be somewhere else. Not asked all the time.
    fn ask_for_namespaces_again<M: ClientMemory>(&mut self, out: &mut Out<'_, M>) {
        if out.now >= self.ask_again_at {
            self.ask_for_namespaces(out);
        }
    }

    /// What namespaces there are. Drives whose namespace is another one now, or is lost, are closed.
    pub(super) fn set_namespaces<M: ClientMemory>(&mut self, namespaces: &[NamespaceInfo], out: &mut Out<'_, M>) {
        let good = namespaces.iter().filter(|info| checks::namespace(info).is_ok());
        self.namespaces = good.map(|info| (info.namespace, info.clone())).collect();
        if let Some(what) = namespaces.iter().find_map(|info| checks::namespace(info).err()) {
            self.drives.not_opened = Some(what);
        }
        let is_other = |drive: &Drive, info: Option<&NamespaceInfo>| {
            let same = |info: &NamespaceInfo| {
                (&info.target, info.label, info.sector, info.bytes)
                    == (&drive.info.target, drive.info.label, drive.info.sector, drive.info.bytes)
            };
            !info.is_some_and(|info| same(info) && info.state != NamespaceState::Lost)
        };
        let mut gone = Vec::new();
        for (namespace, drive) in &mut self.drives.open {
            if !drive.is_closing && is_other(drive, self.namespaces.get(namespace)) {
                drive.is_closing = true;
                gone.push((*namespace, drive.id));
            }
        }
        for (namespace, drive) in gone {
            let commands = self.of_namespace(namespace);
            out.effects.extend(commands.into_iter().map(|id| ClientEffect::Abort(drive, id)));
        }
        self.submit_waiting(out);
        self.fail_unknown();
    }

    /// Commands of namespaces that the service does not have either.
    fn fail_unknown(&mut self) {
        let waiting = core::mem::take(&mut self.drives.waiting);
        let is_known = |command: &Command| {
            self.namespaces.contains_key(&command.namespace) || self.drives.open.contains_key(&command.namespace)
        };
        let (kept, failed): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(command, _)| is_known(command));
        self.drives.waiting = kept;
        for (command, _) in failed {
            self.drives.not_opened = Some(format!("the store has no {}", drive_name(command.namespace, None)));
            self.fail_command(&command);
        }
    }

    fn submit_waiting<M: ClientMemory>(&mut self, out: &mut Out<'_, M>) {
        for (whose, command) in core::mem::take(&mut self.drives.waiting) {
            let is_unknown = !self.namespaces.contains_key(&whose.namespace);
            if is_unknown && !self.drives.open.contains_key(&whose.namespace) {
                self.drives.waiting.push((whose, command));
            } else {
                self.submit(whose, command, out);
            }
        }
    }

    /// Ends associations that have nothing and are not needed, or may not be. Whether there was any.
    pub(super) fn close_drives<M: ClientMemory>(&mut self, out: &mut Out<'_, M>) -> bool {
        let is_over = self.over.is_some();
        let mut closed = false;
        self.drives.open.retain(|namespace, drive| {
            let goes = (is_over || drive.is_closing) && !drive.is_in_doubt;
            let goes = goes && !self.drives.commands.values().any(|command| command.namespace == *namespace);
            if goes {
                out.effects.push(ClientEffect::CloseDrive(drive.id));
                closed = true;
            }
            !goes
        });
        if closed {
            self.submit_waiting(out);
            self.fail_unknown();
        }
        closed
    }

    /// Gives back what is not needed, if no drive may still write there. Whether there was any.
    pub(super) fn return_unneeded<M: ClientMemory>(&mut self, out: &mut Out<'_, M>) -> bool {
        if self.over.is_some() {
            self.unneeded.clear();
        }
        if self.unneeded.is_empty() {
            return false;
        }
        let all = core::mem::take(&mut self.unneeded);
        let (kept, free): (Vec<Extent>, Vec<Extent>) =
            all.into_iter().partition(|extent| self.drives.has_doubt_about(extent));
        self.unneeded = kept;
        for extents in free.chunks(RETURN_MOST) {
            let request = Request::Return { extents: extents.to_vec() };
            self.requests.send(Unanswered::new(request, Purpose::Return, None), out.effects);
        }
        if !free.is_empty() {
            self.room_came();
        }
        !free.is_empty()
    }
}

/// Extents of one [`Request::Return`].
const RETURN_MOST: usize = 8;

/// What is wrong with the place of a command.
fn outside(namespace: NamespaceId, command: &DriveCommand, known: &Namespaces) -> Option<String> {
    let (DriveCommand::Read(at, len, _) | DriveCommand::Write(at, len, _)) = command else { return None };
    let info = known.get(&namespace)?;
    let is_in = at.checked_add((*len).into()).is_some_and(|end| end <= info.bytes);
    (!is_in)
        .then(|| format!("{len} bytes at {at}, where there are {}: {}", info.bytes, drive_name(namespace, Some(info))))
}
