//! What clients do: each has some tasks, and each task makes, writes, reads, deletes and renames files of a few names, one thing after another.

use super::history::{BLOCK, ReadOf, UNIT, WriteNumber, Writer};
use super::names::{NameCall, Named, PathNumber, Told};
use super::world::World;
use crate::client::{ClientEvent, ClientFault, FileWork, OpenFileId, OpenedFile, Outcome, WorkId};
use crate::file::FileError;
use crate::location::Location;
use crate::protocol::{Answer, Request};
use crate::tree::{EntryPath, InodePath, NameChange, NewInode};
use crate::{EntryName, InodeId, InodeKind, StoreError};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weir_units::Nanos;

/// Names that there are.
const PATHS: u8 = 4;
/// The largest sectors of a drive, in bytes.
const SECTOR: u64 = 4096;
/// A file is not larger.
const LARGEST: u64 = 4 * BLOCK;

/// An open file of a task's.
#[derive(Clone, Copy, Debug)]
struct Open {
    file: OpenFileId,
    inode: InodeId,
    /// As whom it is written, and when its opening was sent.
    writer: Option<Writer>,
    opened: u64,
    /// Steps that are left.
    steps: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    #[default]
    Idle,
    Waits,
    Open(Open),
}

/// A task of a client's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Task {
    stage: Stage,
    /// Operations that are under way.
    under_way: u32,
    /// The path that the auditor is at.
    path: PathNumber,
}

/// What a work is.
#[derive(Clone, Copy, Debug)]
enum Doing {
    Make(u64, PathNumber),
    Look(u64, PathNumber),
    OpenToRead(u64),
    Change(u64, NameCall),
    Write(InodeId, Writer, WriteNumber),
    Read(ReadOf, u64),
    Flush(InodeId, Writer, Option<WriteNumber>),
    Close(InodeId, Option<Writer>),
}

/// See the [module](self).
#[derive(Debug, Default)]
pub struct Script {
    pub tasks: Vec<Task>,
    works: BTreeMap<WorkId, (usize, Doing)>,
    /// As whom files were written last that were left unpublished: a flush that makes room may be under way.
    left: BTreeMap<InodeId, Writer>,
}

impl Script {
    pub fn new(tasks: usize) -> Self {
        Self { tasks: alloc::vec![Task::default(); tasks], works: BTreeMap::new(), left: BTreeMap::new() }
    }
}

fn entry(path: PathNumber) -> EntryPath {
    EntryPath { container: InodeId::ROOT, name: name(path) }
}

fn name(path: PathNumber) -> EntryName {
    EntryName::new(&[b'a' + path]).expect("a name")
}

fn how(fault: &ClientFault) -> String {
    match fault {
        ClientFault::Store(error, _) => format!("{error:?}"),
        ClientFault::File(FileError::Unsettled(_)) => "Unsettled".into(),
        ClientFault::File(error) => format!("{error:?}").split('(').next().unwrap_or_default().into(),
        ClientFault::Unreachable(_) => "Unreachable".into(),
        ClientFault::Protocol(what) => format!("PROTOCOL {what}"),
        other => format!("{other:?}"),
    }
}

/// Whether such a failure says that client and service contradict each other, which no fault explains but a power cut: what was published may be gone
/// then.
fn is_contradiction(fault: &ClientFault) -> bool {
    match fault {
        ClientFault::Store(error, _) => {
            matches!(error, StoreError::NotGranted | StoreError::Malformed | StoreError::Damaged)
        }
        ClientFault::File(error) => matches!(
            error,
            FileError::BadMap
                | FileError::Corrupt(_)
                | FileError::Replaced(_)
                | FileError::BlockSize(_)
                | FileError::Metadata
        ),
        ClientFault::Protocol(_) => true,
        _ => false,
    }
}

/// Whether such a failure says for sure that nothing was changed. Not found may be what was made, and deleted before it was opened.
fn is_sure(fault: &ClientFault) -> bool {
    matches!(fault, ClientFault::Store(StoreError::Busy | StoreError::NoSpace | StoreError::TooFewNodes(_), _))
}

impl World {
    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n as u32).into()
    }

    /// Some moment from now by the client's clock.
    fn deadline(&mut self, client: usize) -> Nanos {
        let time = Nanos::from_millis(300 + self.below(2700));
        let time = if self.is_auditor(client) { Nanos::from_secs(15) } else { time };
        self.clients[client].clock.read(self.now).saturating_add(time)
    }

    fn begin(&mut self, client: usize, task: usize, doing: Doing, event: impl FnOnce(WorkId, Nanos) -> ClientEvent) {
        let deadline = self.deadline(client);
        let process = &mut self.clients[client];
        let Some(machine) = &mut process.machine else { return };
        let work = machine.number();
        if let Doing::Read(_, len) = doing {
            process.memory.callers.insert(work, alloc::vec![0xa5; len as usize]);
        }
        process.script.works.insert(work, (task, doing));
        process.script.tasks[task].under_way += 1;
        self.give(client, event(work, deadline));
    }

    /// A task's turn.
    pub fn turn(&mut self, client: usize, task: usize) {
        match self.clients[client].script.tasks[task].stage {
            Stage::Idle => self.choose(client, task),
            Stage::Waits => {}
            Stage::Open(open) => self.use_file(client, task, open),
        }
    }

    fn choose(&mut self, client: usize, task: usize) {
        if self.is_auditor(client) {
            return self.audit(client, task);
        }
        if self.is_quiet() {
            return;
        }
        self.clients[client].script.tasks[task].stage = Stage::Waits;
        let (path, moment) = (self.below(PATHS.into()) as PathNumber, self.moment());
        match self.below(20) {
            0..8 => {
                let new = NewInode {
                    kind: InodeKind::File,
                    mode: 0o644,
                    uid: 0,
                    gid: 0,
                    target: Vec::new(),
                    classes: Vec::new(),
                    location: Location::default(),
                    copies: 1 + self.below(2) as u8,
                    block: 0,
                };
                let (slot, sequence, entry) = (0, 0, entry(path));
                let request = Request::OpenNew { slot, sequence, entry, new, content: Vec::new(), exclusive: false };
                self.begin(client, task, Doing::Make(moment, path), |work, at| ClientEvent::Open(work, request, at));
            }
            8..17 => self.look(client, task, path),
            17..19 => {
                let call = NameCall::Delete(path);
                let change = NameChange::Delete { entry: entry(path), recursive: false };
                self.change(client, task, moment, call, change);
            }
            _ => {
                let to = (path + 1) % PATHS;
                let change = NameChange::Rename { from: entry(path), to: entry(to), replace: true };
                self.change(client, task, moment, NameCall::Rename(path, to), change);
            }
        }
    }

    fn look(&mut self, client: usize, task: usize, path: PathNumber) {
        let moment = self.moment();
        let request = Request::Resolve { from: InodeId::ROOT, names: alloc::vec![name(path)], follow: false };
        self.begin(client, task, Doing::Look(moment, path), |work, at| ClientEvent::Ask(work, request, at));
    }

    fn change(&mut self, client: usize, task: usize, moment: u64, call: NameCall, change: NameChange) {
        let request = Request::Change { slot: 0, sequence: 0, change };
        self.begin(client, task, Doing::Change(moment, call), |work, at| ClientEvent::Ask(work, request, at));
    }

    /// The auditor reads one path after another.
    fn audit(&mut self, client: usize, task: usize) {
        let state = &mut self.clients[client].script.tasks[task];
        let path = state.path;
        state.path += 1;
        if path == PATHS {
            self.audited = true;
            return;
        }
        state.stage = Stage::Waits;
        self.look(client, task, path);
    }

    fn use_file(&mut self, client: usize, task: usize, mut open: Open) {
        let under_way = self.clients[client].script.tasks[task].under_way;
        if open.steps == 0 || (self.is_quiet() && !self.is_auditor(client)) {
            if under_way > 0 {
                return;
            }
            return self.leave_file(client, task, open);
        }
        open.steps -= 1;
        self.clients[client].script.tasks[task].stage = Stage::Open(open);
        let size = self.clients[client].machine.as_ref().and_then(|machine| machine.size(open.file)).unwrap_or(0);
        let Some(writer) = open.writer else {
            return self.read(client, task, &open, size);
        };
        match self.below(10) {
            0..5 if self.below(3) == 0 => self.write_sectors(client, task, &open, writer),
            0..5 => {
                for _ in 0..=self.below(3) {
                    self.write(client, task, &open, writer);
                }
            }
            5..7 => self.read(client, task, &open, size),
            // What is under way may be published with it or not: nobody could say.
            _ if under_way > 0 => {}
            7..9 => self.publish(client, task, &open, writer, None),
            _ => {
                let to = self.below(LARGEST / UNIT) * UNIT;
                let to = if self.below(2) == 0 { to.min(size) } else { to };
                self.publish(client, task, &open, writer, Some(to));
            }
        }
        if self.clients[client].script.tasks[task].under_way == 0 {
            self.schedule_script(client, task);
        }
    }

    fn write(&mut self, client: usize, task: usize, open: &Open, writer: Writer) {
        let size = self.clients[client].machine.as_ref().and_then(|machine| machine.size(open.file)).unwrap_or(0);
        let offset = match self.below(4) {
            0 => size,
            1 => self.below(LARGEST / UNIT) * UNIT,
            _ => self.below(size / UNIT + 1) * UNIT,
        };
        let units = if self.below(10) == 0 { 1 + self.below(400) } else { 1 + self.below(20) };
        let offset = offset.min(LARGEST - UNIT);
        let len = (units * UNIT).min(LARGEST - offset);
        self.write_at(client, task, open, writer, (offset, len));
    }

    /// Writes of whole sectors in one block, one after the other without waiting: some of bytes that another one of them has as well.
    fn write_sectors(&mut self, client: usize, task: usize, open: &Open, writer: Writer) {
        let first = self.below(LARGEST / BLOCK) * BLOCK;
        for _ in 0..2 + self.below(4) {
            let from = self.below(BLOCK / SECTOR);
            let sectors = 1 + self.below((BLOCK / SECTOR - from).min(4));
            self.write_at(client, task, open, writer, (first + from * SECTOR, sectors * SECTOR));
        }
    }

    fn write_at(&mut self, client: usize, task: usize, open: &Open, writer: Writer, (offset, len): (u64, u64)) {
        let moment = self.moment();
        let (number, bytes) = self.history.write(open.inode, writer, offset, len, moment);
        let doing = Doing::Write(open.inode, writer, number);
        let file = open.file;
        let Some(machine) = &mut self.clients[client].machine else { return };
        // The memory is there before the write is.
        let work = machine.number();
        let deadline = self.deadline(client);
        let process = &mut self.clients[client];
        process.memory.callers.insert(work, bytes);
        process.script.works.insert(work, (task, doing));
        process.script.tasks[task].under_way += 1;
        self.give(client, ClientEvent::Begin(work, file, FileWork::Write(offset, len as u32), deadline));
    }

    fn read(&mut self, client: usize, task: usize, open: &Open, size: u64) {
        let (offset, len) = match self.is_auditor(client) {
            true => (0, LARGEST),
            false => (self.below(size / UNIT + 1) * UNIT, (1 + self.below(200)) * UNIT),
        };
        let begun = self.moment();
        let (inode, writer, opened) = (open.inode, open.writer, open.opened);
        let read = ReadOf { inode, writer, opened, begun, ended: 0, offset };
        let file = open.file;
        self.begin(client, task, Doing::Read(read, len), |work, at| {
            ClientEvent::Begin(work, file, FileWork::Read(offset, len as u32), at)
        });
    }

    fn publish(&mut self, client: usize, task: usize, open: &Open, writer: Writer, to: Option<u64>) {
        let moment = self.moment();
        let size = self.clients[client].machine.as_ref().and_then(|machine| machine.size(open.file)).unwrap_or(0);
        let zeroes = to.map(|to| self.history.truncate(open.inode, writer, to, moment));
        let moment = self.moment();
        if to.is_some() {
            // It publishes what was written first.
            self.history.flush(open.inode, writer, size, moment);
        }
        self.history.flush(open.inode, writer, to.unwrap_or(size), moment);
        let (file, what) = (open.file, to.map_or(FileWork::Flush, FileWork::Truncate));
        let doing = Doing::Flush(open.inode, writer, zeroes);
        self.begin(client, task, doing, |work, at| ClientEvent::Begin(work, file, what, at));
    }

    /// A client publishes a size. It does that unasked too, as before a block takes the place of a shorter one: what it has written is offered then.
    pub fn publishes(&mut self, client: usize, handle: u64, bytes: u64) {
        let process = &self.clients[client];
        let Some(inode) = process.handles.get(&handle).copied() else { return };
        let is_asked = |doing: &Doing| matches!(doing, Doing::Flush(of, ..) | Doing::Close(of, _) if *of == inode);
        if process.script.works.values().any(|(_, doing)| is_asked(doing)) {
            return;
        }
        let writer = process.script.tasks.iter().find_map(|task| match task.stage {
            Stage::Open(Open { inode: of, writer, .. }) if of == inode => writer,
            _ => None,
        });
        if let Some(writer) = writer.or_else(|| process.script.left.get(&inode).copied()) {
            let moment = self.moment();
            self.history.flush(inode, writer, bytes, moment);
        }
    }

    fn leave_file(&mut self, client: usize, task: usize, open: Open) {
        let file = open.file;
        self.clients[client].script.tasks[task].stage = Stage::Waits;
        match open.writer {
            // Now and then nobody publishes.
            Some(writer) if self.below(4) > 0 => {
                let size = self.clients[client].machine.as_ref().and_then(|machine| machine.size(file)).unwrap_or(0);
                let moment = self.moment();
                self.history.flush(open.inode, writer, size, moment);
                let doing = Doing::Close(open.inode, Some(writer));
                self.begin(client, task, doing, |work, at| ClientEvent::Begin(work, file, FileWork::Close, at));
            }
            writer => {
                if let Some(writer) = writer {
                    self.history.lose(open.inode, writer);
                    self.clients[client].script.left.insert(open.inode, writer);
                }
                self.give(client, ClientEvent::Forget(file));
                self.clients[client].script.tasks[task].stage = Stage::Idle;
                self.schedule_script(client, task);
            }
        }
    }

    /// All that a client has open for writing is lost.
    pub fn lose_writers(&mut self, client: usize) {
        let works = core::mem::take(&mut self.clients[client].script.works);
        for (_, doing) in works.into_values() {
            let (begin, call) = match doing {
                Doing::Make(begin, path) => (begin, NameCall::Make(path)),
                Doing::Change(begin, call) => (begin, call),
                _ => continue,
            };
            self.names.push(Named { begin, end: u64::MAX, call, told: Told::Unknown });
        }
        let tasks: Vec<Task> = self.clients[client].script.tasks.clone();
        for task in tasks {
            if let Stage::Open(Open { inode, writer: Some(writer), .. }) = task.stage {
                self.history.lose(inode, writer);
            }
        }
    }

    /// A work has come to its end.
    // tidy: long because every kind of work has an arm here, and each its own way to be told.
    pub fn finished(&mut self, client: usize, work: WorkId, outcome: Outcome) {
        let memory = self.clients[client].memory.callers.remove(&work);
        let Some((task, doing)) = self.clients[client].script.works.remove(&work) else { return };
        self.clients[client].script.tasks[task].under_way -= 1;
        let moment = self.moment();
        let (what, told) = match (doing, outcome) {
            (Doing::Look(begin, path), Outcome::Answer(result)) => {
                ("look", self.looked(client, task, begin, path, result.map_err(|e| e.fault)))
            }
            (Doing::Change(begin, call), Outcome::Answer(result)) => {
                self.clients[client].script.tasks[task].stage = Stage::Idle;
                let (told, end, how) = match result.map_err(|failure| failure.fault) {
                    Ok(Answer::Changed { changed }) => (Told::Inode(changed.inode), moment, "done".into()),
                    Ok(Answer::Failed { error: StoreError::NotFound, .. })
                    | Err(ClientFault::Store(StoreError::NotFound, _)) => (Told::Nothing, moment, "NotFound".into()),
                    Ok(other) => (Told::Unknown, u64::MAX, format!("{other:?}")),
                    Err(fault) => (Told::Unknown, u64::MAX, how(&fault)),
                };
                self.names.push(Named { begin, end, call, told });
                (if matches!(call, NameCall::Delete(_)) { "delete" } else { "rename" }, how)
            }
            (Doing::Make(begin, path), Outcome::Opened(result)) => {
                let how = match result.map_err(|failure| failure.fault) {
                    Ok(opened) => {
                        let told = Told::Inode(opened.at.inode);
                        self.names.push(Named { begin, end: moment, call: NameCall::Make(path), told });
                        self.opened(client, task, begin, &opened, true);
                        "done".into()
                    }
                    Err(fault) => {
                        if !is_sure(&fault) {
                            let call = NameCall::Make(path);
                            self.names.push(Named { begin, end: u64::MAX, call, told: Told::Unknown });
                        }
                        self.clients[client].script.tasks[task].stage = Stage::Idle;
                        how(&fault)
                    }
                };
                ("make", how)
            }
            (Doing::OpenToRead(begin), Outcome::Opened(result)) => {
                let how = match result.map_err(|failure| failure.fault) {
                    Ok(opened) => {
                        self.opened(client, task, begin, &opened, false);
                        "done".into()
                    }
                    Err(fault) => {
                        self.clients[client].script.tasks[task].stage = Stage::Idle;
                        self.audit_fails(client, &fault);
                        how(&fault)
                    }
                };
                ("open", how)
            }
            (Doing::Write(inode, writer, number), Outcome::Io(result)) => {
                self.history.written(inode, number, result.is_ok());
                ("write", self.ended(client, task, Some((inode, writer)), result.map_err(|e| e.fault)))
            }
            (Doing::Read(read, _), Outcome::Io(result)) => {
                let result = result.map_err(|failure| failure.fault);
                if let Ok(len) = &result {
                    let bytes = memory.unwrap_or_default();
                    let read = ReadOf { ended: moment, ..read };
                    if let Err(why) = self.history.read(read, &bytes[..*len as usize]) {
                        self.wrong = Some(format!("client {client}: {why}"));
                    }
                }
                if self.is_auditor(client) {
                    self.totals.files_read += 1;
                    match &result {
                        Err(ClientFault::File(FileError::Unsettled(_))) => self.totals.unsettled += 1,
                        Err(fault) => self.audit_fails(client, fault),
                        Ok(_) => {}
                    }
                }
                ("read", self.ended(client, task, None, result))
            }
            (Doing::Flush(inode, writer, zeroes), Outcome::Io(result)) => {
                let result = result.map_err(|failure| failure.fault);
                if let Some(number) = zeroes {
                    self.history.written(inode, number, result.is_ok());
                }
                if result.is_ok() {
                    self.history.flushed(inode, writer, moment);
                }
                let what = if zeroes.is_some() { "truncate" } else { "flush" };
                (what, self.ended(client, task, Some((inode, writer)), result))
            }
            (Doing::Close(inode, writer), Outcome::Io(result)) => {
                self.clients[client].script.tasks[task].stage = Stage::Idle;
                if let Some(writer) = writer {
                    match result.is_ok() {
                        true => self.history.flushed(inode, writer, moment),
                        false => self.history.lose(inode, writer),
                    }
                }
                ("close", self.ended(client, task, None, result.map_err(|failure| failure.fault)))
            }
            (doing, outcome) => {
                self.wrong = Some(format!("client {client}: {doing:?} has come to {outcome:?}"));
                return;
            }
        };
        if told.starts_with("PROTOCOL") {
            self.wrong = Some(format!("client {client}: {what}: {told}"));
        }
        let is_over = told == how(&ClientFault::SessionOver);
        self.totals.operation(what, told);
        match is_over {
            true => self.begin_anew(client),
            false => self.schedule_script(client, task),
        }
    }

    fn looked(
        &mut self,
        client: usize,
        task: usize,
        begin: u64,
        path: PathNumber,
        result: Result<Answer, ClientFault>,
    ) -> String {
        let end = self.moment();
        let call = NameCall::Look(path);
        match result {
            Ok(Answer::Found { at, .. }) => {
                self.names.push(Named { begin, end, call, told: Told::Inode(at.inode) });
                self.open_to_read(client, task, at);
                "done".into()
            }
            Ok(Answer::Failed { error: StoreError::NotFound, .. })
            | Err(ClientFault::Store(StoreError::NotFound, _)) => {
                self.names.push(Named { begin, end, call, told: Told::Nothing });
                self.clients[client].script.tasks[task].stage = Stage::Idle;
                "NotFound".into()
            }
            Ok(other) => {
                self.wrong = Some(format!("{other:?}"));
                String::new()
            }
            Err(fault) => {
                self.clients[client].script.tasks[task].stage = Stage::Idle;
                self.audit_fails(client, &fault);
                how(&fault)
            }
        }
    }

    fn open_to_read(&mut self, client: usize, task: usize, at: InodePath) {
        let moment = self.moment();
        let request = Request::Open { at, write: false };
        self.begin(client, task, Doing::OpenToRead(moment), |work, deadline| {
            ClientEvent::Open(work, request, deadline)
        });
    }

    fn opened(&mut self, client: usize, task: usize, opened: u64, file: &OpenedFile, writes: bool) {
        let (ended, inode) = (self.moment(), file.at.inode);
        let size = self.clients[client].machine.as_ref().and_then(|machine| machine.size(file.file)).unwrap_or(0);
        if let Err(why) = self.history.check_size(inode, opened, ended, size) {
            self.wrong = Some(format!("client {client}: {why}"));
        }
        let writer = writes.then_some(ended);
        let steps = if self.is_auditor(client) { 1 } else { 1 + self.below(8) as u32 };
        let open = Open { file: file.file, inode, writer, opened, steps };
        self.clients[client].script.tasks[task].stage = Stage::Open(open);
    }

    /// An operation of an open file has ended. After a failure of a writer nobody can say what becomes of what it has not published.
    fn ended(
        &mut self,
        client: usize,
        task: usize,
        writer: Option<(InodeId, Writer)>,
        result: Result<u32, ClientFault>,
    ) -> String {
        let Err(fault) = result else { return "done".into() };
        if is_contradiction(&fault) && !self.had_power_cut {
            self.wrong = Some(format!("client {client}: an operation of a file has failed: {}", how(&fault)));
        }
        if let Some((inode, writer)) = writer {
            self.history.lose(inode, writer);
            if let Stage::Open(open) = &mut self.clients[client].script.tasks[task].stage {
                open.steps = 0;
            }
        }
        how(&fault)
    }

    /// In the end nothing fails.
    fn audit_fails(&mut self, client: usize, fault: &ClientFault) {
        if self.is_auditor(client) {
            self.wrong =
                Some(format!("in the end, at path {}: {}", self.clients[client].script.tasks[0].path - 1, how(fault)));
        }
    }
}
