//! What clients ask, and what becomes of it.

use super::about::About;
use super::event::{ConnectionId, ServiceEffect};
use super::machine::{REQUESTS_MAX, Service};
use super::resolve::{ResolveStep, Resolving};
use super::state::{KvOwner, OwnRead, Pending, SpaceOwner, What, Work};
use crate::class::ClassId;
use crate::error::StoreError;
use crate::id::{InodeId, SessionId};
use crate::inode::{Content, Inode, InodeKind};
use crate::keys::session_key;
use crate::kv::{KvRequest, KvUnavailable};
use crate::members::{SessionError, SessionRequest, SessionRequestId, SessionsEvent};
use crate::protocol::{
    Answer, CLIENT_NAME_MAX, ClassStatus, PROTOCOL_MAGIC, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, RESOLVE_NAMES_MAX,
    Request, RequestNumber, SessionInfo, SessionWish, StatusInfo, WelcomeInfo,
};
use crate::records::{COPIES_MAX, SessionRecord, SessionToken};
use crate::space::{BLOCK_MAX, BLOCK_MIN, Epoch, GRAIN, SpaceRequest};
use crate::tree::{
    ChangeKey, FileChange, InodePath, NameAnswer, NameChange, NameQuery, NameReply, NameRequest, NewInode,
};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Slots from here on are the service's own; clients use those before.
const OWN_SLOTS: u16 = 1 << 15;

/// Where the service's life lies in the sequences of its own slots.
const LIFE_SHIFT: u32 = 40;

/// Sessions at the most.
const SESSIONS_MAX: usize = 1 << 16;

/// Classes that a file may name at the most.
const CLASSES_MAX: usize = 16;

/// Blocks of a [`Request::Grant`] at the most: as many as a session may have ahead.
const GRANT_MAX: u32 = 256;

impl Service {
    pub(super) fn message(
        &mut self,
        connection: ConnectionId,
        number: RequestNumber,
        request: Request,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let Some(found) = self.connections.get(&connection) else { return };
        let (greeted, greets) = (found.greeted, found.greets.is_some());
        let (session, under_way) = (found.session, found.requests.len());
        let mut refuse = |error, detail: &str| {
            let answer = Answer::Failed { error, detail: detail.into() };
            effects.push(ServiceEffect::Send(connection, number, answer));
        };
        if under_way >= REQUESTS_MAX {
            return refuse(StoreError::Overloaded, "so many requests of one connection");
        }
        if let Request::Hello { magic, version, .. } = &request {
            if greeted || greets || *magic != PROTOCOL_MAGIC {
                return effects.push(ServiceEffect::Close(connection));
            }
            if !(PROTOCOL_VERSION_MIN..=PROTOCOL_VERSION).contains(version) {
                let wanted = alloc::format!("version {version} was asked for");
                refuse(StoreError::Version(PROTOCOL_VERSION), &wanted);
                return effects.push(ServiceEffect::Close(connection));
            }
        } else if !greeted {
            return effects.push(ServiceEffect::Close(connection));
        }
        if self.stands_by() {
            return self.refer(connection, number, &request, effects);
        }
        if !self.is_ready() && !matches!(request, Request::Status {}) {
            return refuse(StoreError::Unavailable, "the service is starting");
        }
        let id = self.next();
        if let Some(found) = self.connections.get_mut(&connection) {
            found.requests.insert(id);
            if let Request::Hello { version, .. } = request {
                (found.greets, found.version) = (Some(id), version);
            }
        }
        let what = What::Own;
        let about =
            About::of(&request, session, |handle| self.handle(session, handle).ok().map(|found| found.at.inode));
        self.pending
            .insert(id, Pending { connection, number, session, is_session_over: false, slot: None, what, about });
        if let Err(error) = self.begin(id, connection, session, request, effects) {
            self.fail(id, error, "", effects);
        }
    }

    pub(super) fn wait_for(&mut self, id: u64, what: What) {
        if let Some(pending) = self.pending.get_mut(&id) {
            pending.what = what;
        }
    }

    fn begin(
        &mut self,
        id: u64,
        connection: ConnectionId,
        session: Option<SessionId>,
        request: Request,
        effects: &mut Vec<ServiceEffect>,
    ) -> Result<(), StoreError> {
        match request {
            Request::Hello { client, session: wish, .. } => self.hello(id, connection, (client, wish), effects)?,
            Request::Renew { epoch } => self.renew(id, session.ok_or(StoreError::NoSession)?, epoch),
            Request::Bye {} => {
                let session = session.ok_or(StoreError::NoSession)?;
                self.wait_for(id, What::Closing(session));
                self.ask_sessions(id, SessionRequest::Close(session));
            }
            Request::Resolve { from, names, follow } => {
                if names.len() > RESOLVE_NAMES_MAX {
                    return Err(StoreError::Malformed);
                }
                let mut resolving = Resolving::new(from, names, follow);
                let step = resolving.ask();
                self.resolve(id, resolving, step, effects);
            }
            Request::Stat { at } if self.handles.is_open(at.inode) => {
                self.query(id, What::Stat(at), NameQuery::File(at));
            }
            Request::Stat { at } => self.query(id, What::Stat(at), NameQuery::Stat(at)),
            Request::List { container, after, most } => {
                self.query(id, What::List, NameQuery::List { container, after, most: most as usize });
            }
            Request::Change { slot, sequence, change } => {
                let key = client_key(session, slot, sequence)?;
                if matches!(change, NameChange::File(_)) {
                    return Err(StoreError::Malformed);
                }
                let change = self.of_open_file(change);
                self.make(id, key, change, What::Change, effects)?;
            }
            Request::Open { .. }
            | Request::OpenNew { .. }
            | Request::Close { .. }
            | Request::Map { .. }
            | Request::Grant { .. }
            | Request::GrantShort { .. }
            | Request::Unsettle { .. }
            | Request::MarkOut { .. }
            | Request::Publish { .. }
            | Request::Return { .. } => {
                self.begin_file(id, session.ok_or(StoreError::NoSession)?, request, effects)?;
            }
            Request::Namespaces {}
            | Request::Status {}
            | Request::Sessions {}
            | Request::Services {}
            | Request::Movement {}
            | Request::Tiering {} => self.tell(id, &request, effects),
            Request::Donate { donation } => self.donate(id, donation, effects)?,
            Request::Drain { namespace, drains } => self.drain(id, namespace, drains, effects)?,
            Request::Remove { namespace } => self.remove(id, namespace, effects)?,
        }
        Ok(())
    }

    /// What an operator asks for, as it is.
    fn tell(&mut self, id: u64, request: &Request, effects: &mut Vec<ServiceEffect>) {
        let answer = match request {
            Request::Namespaces {} => Answer::Namespaces { namespaces: self.namespace_infos() },
            Request::Status {} => Answer::Status { status: Box::new(self.status()) },
            Request::Sessions {} => Answer::Sessions { sessions: self.session_infos() },
            Request::Services {} => Answer::Services { services: self.service_infos() },
            Request::Movement {} => Answer::Movement { namespaces: self.movement_infos() },
            Request::Tiering {} => Answer::Tiering { tiering: Box::new(self.tiering_info()) },
            _ => return,
        };
        self.answer(id, answer, effects);
    }

    /// So many blocks, whole ones or of so many bytes.
    fn begin_grant(
        &mut self,
        id: u64,
        session: SessionId,
        handle: u64,
        (count, bytes): (u32, Option<u32>),
        effects: &mut Vec<ServiceEffect>,
    ) -> Result<(), StoreError> {
        let handle = self.writer(Some(session), handle)?.clone();
        let bytes = bytes.unwrap_or(handle.block);
        if count == 0 || bytes == 0 || u64::from(bytes) % GRAIN != 0 || bytes > handle.block {
            return Err(StoreError::Malformed);
        }
        if !self.is_granted_again(id, session, effects) {
            self.grant(id, session, &handle, (count, bytes), effects);
        }
        Ok(())
    }

    fn begin_file(
        &mut self,
        id: u64,
        session: SessionId,
        request: Request,
        effects: &mut Vec<ServiceEffect>,
    ) -> Result<(), StoreError> {
        let mine = Some(session);
        match request {
            Request::Open { at, write: false } => self.query(id, What::Open(at, false), NameQuery::File(at)),
            Request::Open { write: true, .. } | Request::OpenNew { .. } if !self.gives_out() => {
                let more = self.held_back("files are opened for writing");
                self.fail(id, StoreError::Unavailable, more, effects);
            }
            Request::Open { at, write: true } => {
                self.opening.insert((session, id), false);
                self.own_change(id, session, What::OpenWriter(at), FileChange::OpenWriter(at))?;
            }
            Request::OpenNew { slot, sequence, entry, new, content, exclusive } => {
                let key = client_key(mine, slot, sequence)?;
                self.opening.insert((session, id), false);
                let then = What::OpenNew(entry.container);
                let change = NameChange::File(FileChange::OpenNew { entry, new, bytes: content, exclusive });
                self.make(id, key, change, then, effects)?;
            }
            Request::Close { handle } => {
                self.close_file(id, session, handle, effects)?;
            }
            Request::Map { handle, chunk } => {
                let file = self.handle(mine, handle)?.at.inode;
                self.read_chunk(id, file, chunk, effects);
            }
            Request::Grant { handle, count } => {
                self.begin_grant(id, session, handle, (count.min(GRANT_MAX), None), effects)?;
            }
            Request::GrantShort { handle, bytes } => {
                self.begin_grant(id, session, handle, (1, Some(bytes)), effects)?;
            }
            Request::Unsettle { handle, block } => {
                let at = self.writer(mine, handle)?.at;
                self.own_change(id, session, What::Unsettle, FileChange::Unsettle(at, block))?;
            }
            Request::MarkOut { handle, block, copies } => {
                let at = self.writer(mine, handle)?.at;
                self.own_change(id, session, What::Step, FileChange::MarkOut(at, block, copies))?;
            }
            Request::Publish { handle, slot, sequence, size, blocks } => {
                let at = self.writer(mine, handle)?.at;
                let key = client_key(mine, slot, sequence)?;
                self.wait_for(id, What::Change);
                let change = FileChange::Publish(at, size, blocks);
                self.ask_tree(id, NameRequest::Change(key, NameChange::File(change)));
            }
            Request::Return { extents } => {
                self.ask_space(SpaceOwner::Request(id), SpaceRequest::Return { session, extents });
            }
            _ => return Err(StoreError::Malformed),
        }
        Ok(())
    }

    pub(super) fn query(&mut self, id: u64, what: What, query: NameQuery) {
        self.wait_for(id, what);
        self.ask_tree(id, NameRequest::Query(query));
    }

    fn ask_sessions(&mut self, id: u64, request: SessionRequest) {
        self.push(Work::Sessions(SessionsEvent::Request(SessionRequestId(id), request)));
    }

    /// A change that has no slot of the client's: one of the service's own makes sure that it is made once.
    pub(super) fn own_change(
        &mut self,
        id: u64,
        session: SessionId,
        what: What,
        change: FileChange,
    ) -> Result<(), StoreError> {
        // A request's second change has the slot of its first.
        let had = self.pending.get(&id).and_then(|pending| pending.slot);
        let free = had.or_else(|| (OWN_SLOTS..u16::MAX).find(|slot| !self.slots.contains(&(session, *slot))));
        let slot = free.ok_or(StoreError::Overloaded)?;
        // It rises also over the lives of the service, whatever the calendar does.
        let life = self.tree.incarnation().ok_or(StoreError::Unavailable)?;
        self.sequence = (life.get() << LIFE_SHIFT).max(self.sequence + 1);
        self.slots.insert((session, slot));
        let key = ChangeKey { session, slot, sequence: self.sequence };
        if let Some(pending) = self.pending.get_mut(&id) {
            (pending.slot, pending.what) = (Some(slot), what);
        }
        self.ask_tree(id, NameRequest::Change(key, NameChange::File(change)));
        Ok(())
    }

    /// A change as it can be made: sizes and numbers are within their limits.
    pub(super) fn checked(&self, change: NameChange) -> Result<NameChange, StoreError> {
        Ok(match change {
            NameChange::Create(entry, new) => NameChange::Create(entry, self.checked_new(new)?),
            NameChange::SetAttributes(_, ref set) => {
                set.classes.iter().try_for_each(|classes| self.checked_classes(classes))?;
                change
            }
            NameChange::File(FileChange::OpenNew { entry, new, bytes, exclusive }) => {
                let new = self.checked_new(new)?;
                NameChange::File(FileChange::OpenNew { entry, new, bytes, exclusive })
            }
            NameChange::File(FileChange::OfOpen(at, change)) => {
                NameChange::File(FileChange::OfOpen(at, Box::new(self.checked(*change)?)))
            }
            other => other,
        })
    }

    /// A change of a file that is open: it is made also if the file has lost its name.
    fn of_open_file(&self, change: NameChange) -> NameChange {
        let at = match &change {
            NameChange::SetAttributes(at, _) | NameChange::SetExtended(at, ..) | NameChange::WriteInline(at, _) => *at,
            _ => return change,
        };
        match self.handles.is_open(at.inode) {
            true => NameChange::File(FileChange::OfOpen(at, Box::new(change))),
            false => change,
        }
    }

    fn checked_classes(&self, classes: &[ClassId]) -> Result<(), StoreError> {
        let is_known = |class: &ClassId| usize::from(class.0) < self.classes.names.len();
        match classes.len() <= CLASSES_MAX && classes.iter().all(is_known) {
            true => Ok(()),
            false => Err(StoreError::NoClass),
        }
    }

    fn checked_new(&self, new: NewInode) -> Result<NewInode, StoreError> {
        self.checked_classes(&new.classes)?;
        let block = if new.block == 0 { self.settings.block } else { new.block };
        let is_sane = block.is_power_of_two() && (BLOCK_MIN..=BLOCK_MAX).contains(&u64::from(block));
        if !is_sane || usize::from(new.copies) > COPIES_MAX {
            return Err(StoreError::Malformed);
        }
        Ok(NewInode { block, copies: new.copies.max(1), ..new })
    }

    fn hello(
        &mut self,
        id: u64,
        connection: ConnectionId,
        (client, wish): (String, SessionWish),
        effects: &mut Vec<ServiceEffect>,
    ) -> Result<(), StoreError> {
        if client.len() > CLIENT_NAME_MAX {
            return Err(StoreError::Malformed);
        }
        match wish {
            SessionWish::None => self.welcome(id, None, self.sessions.epoch(), effects),
            SessionWish::New if self.sessions.count() >= SESSIONS_MAX => return Err(StoreError::Overloaded),
            SessionWish::New => {
                let session = self.session_number(effects).ok_or(StoreError::Unavailable)?;
                let token = self.connections.get(&connection).map(|found| found.token).unwrap_or_default();
                self.wait_for(id, What::Opening(session, token));
                self.ask_sessions(id, SessionRequest::Open(session, client, token));
            }
            SessionWish::Resume(session, token) => {
                let read = OwnRead::Resume(id, session, token);
                self.ask_kv(KvOwner::own(read), KvRequest::Get(session_key(session)), effects);
            }
        }
        Ok(())
    }

    pub(super) fn resumed(
        &mut self,
        id: u64,
        (session, token): (SessionId, SessionToken),
        record: Result<Option<SessionRecord>, KvUnavailable>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        // What one of before was granted last may be lost: it may not go on, whatever is left of it.
        let may_go_on = !self.settings.may_have_lost || Some(session) >= self.first_session;
        match record {
            Ok(Some(record)) if record.token == token && may_go_on => {
                self.leave_connections(id, session, effects);
                self.welcome(id, Some((session, token)), self.sessions.epoch(), effects);
            }
            // Whether there is one is told to its client alone.
            Ok(_) => self.fail(id, StoreError::SessionGone, "", effects),
            Err(KvUnavailable) => self.fail(id, StoreError::Unavailable, "", effects),
        }
    }

    /// A session goes on over another connection: what comes late over those that it had is nobody's.
    fn leave_connections(&mut self, id: u64, session: SessionId, effects: &mut Vec<ServiceEffect>) {
        let greets = self.pending.get(&id).map(|pending| pending.connection);
        let others = self
            .connections
            .iter_mut()
            .filter(|(other, found)| found.session == Some(session) && Some(**other) != greets);
        for (other, found) in others {
            found.session = None;
            effects.push(ServiceEffect::Close(*other));
        }
    }

    fn welcome(
        &mut self,
        id: u64,
        session: Option<(SessionId, SessionToken)>,
        epoch: Epoch,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let (session, token) = session.map_or((None, [0; 16]), |(session, token)| (Some(session), token));
        let connection = self.pending.get(&id).and_then(|pending| self.connections.get_mut(&pending.connection));
        let mut version = PROTOCOL_VERSION;
        if let Some(connection) = connection {
            (connection.greeted, connection.session) = (true, session);
            version = connection.version;
        }
        let welcome = WelcomeInfo {
            version,
            service: self.settings.service,
            store: self.store.id,
            session,
            token,
            lease: self.settings.timing.lease(),
            drift_ppm: self.settings.drift_ppm,
            epoch,
            inline_max: self.settings.inline_max,
            block: self.settings.block,
            classes: self.classes.names.clone(),
        };
        self.answer(id, Answer::Welcome { welcome }, effects);
    }

    fn renew(&mut self, id: u64, session: SessionId, epoch: Epoch) {
        self.wait_for(id, What::Renewing);
        // An epoch that is not there yet is not acknowledged.
        let epoch = epoch.min(self.sessions.epoch());
        self.ask_sessions(id, SessionRequest::Renew(session, epoch));
    }

    pub(super) fn session_answered(
        &mut self,
        id: u64,
        result: Result<Epoch, SessionError>,
        effects: &mut Vec<ServiceEffect>,
    ) {
        let Some(what) = self.pending.get(&id).map(|pending| pending.what.clone()) else { return };
        match (what, result) {
            (What::Opening(session, token), Ok(epoch)) => self.welcome(id, Some((session, token)), epoch, effects),
            (What::Renewing, Ok(epoch)) => self.answer(id, Answer::Renewed { epoch }, effects),
            (What::Closing(session), Ok(_)) => {
                self.session_over(session);
                self.answer(id, Answer::Done {}, effects);
            }
            // Its number was taken, perhaps by the same attempt: the next one has another.
            (What::Opening(..), Err(_)) => self.fail(id, StoreError::Unavailable, "", effects),
            (_, Err(SessionError::Gone)) => self.fail(id, StoreError::SessionGone, "", effects),
            (_, _) => self.fail(id, StoreError::Unavailable, "", effects),
        }
    }

    fn resolve(&mut self, id: u64, resolving: Resolving, step: ResolveStep, effects: &mut Vec<ServiceEffect>) {
        match step {
            ResolveStep::Ask(query) => self.query(id, What::Resolve(resolving), query),
            ResolveStep::Found(reply, at) => match reply {
                NameReply::Found(_, Some(inode)) | NameReply::Inode(_, inode) => {
                    self.answer(id, Answer::Found { at, inode }, effects);
                }
                _ => self.fail(id, StoreError::Damaged, "", effects),
            },
            ResolveStep::Fail(error) => {
                self.wait_for(id, What::Resolve(resolving));
                self.fail(id, error, "", effects);
            }
        }
    }

    /// The tree has answered what a request had asked it.
    pub(super) fn tree_answered(&mut self, id: u64, answer: NameAnswer, effects: &mut Vec<ServiceEffect>) {
        self.learn_of_change(id, &answer);
        let Some(what) = self.pending.get(&id).map(|pending| pending.what.clone()) else { return };
        if let What::Naming(naming) = what {
            return self.named(id, *naming, answer, effects);
        }
        let reply = match answer {
            Ok(reply) => reply,
            Err(error) => {
                return self.fail(id, error, "", effects);
            }
        };
        match (what, reply) {
            (What::Resolve(mut resolving), reply) => {
                let step = resolving.found(reply);
                self.resolve(id, resolving, step, effects);
            }
            (What::Change | What::Container(_), NameReply::Changed(changed)) => {
                self.answer(id, Answer::Changed { changed }, effects)
            }
            (What::Step, NameReply::Changed(_)) => self.answer(id, Answer::Done {}, effects),
            (What::Unsettle, NameReply::Changed(_)) => self.done_when_durable(id, effects),
            (What::Stat(at), NameReply::Inode(_, inode)) => {
                let at = InodePath { inode: at.inode, parent: place(at, &inode) };
                self.answer(id, Answer::Found { at, inode }, effects);
            }
            (What::List, NameReply::Page { version, mut entries, is_last }) => {
                entries.iter_mut().filter_map(|entry| entry.inode.as_mut()).for_each(|inode| shorten(inode));
                self.answer(id, Answer::Page { version, entries, is_last }, effects);
            }
            (What::Open(at, writes), NameReply::Inode(_, inode)) => self.opened(id, at, inode, writes, effects),
            (What::OpenWriter(at), NameReply::Changed(_)) => self.query(id, What::Open(at, true), NameQuery::File(at)),
            (What::OpenNew(parent), NameReply::Changed(changed)) => {
                let at = InodePath { inode: changed.inode, parent };
                self.query(id, What::Open(at, true), NameQuery::File(at));
            }
            _ => self.fail(id, StoreError::Damaged, "", effects),
        }
    }

    fn status(&self) -> StatusInfo {
        let classes = self.classes.names.iter().enumerate().map(|(number, name)| {
            let (bytes, free) = self.class_use(number);
            ClassStatus { name: name.clone(), bytes, free }
        });
        StatusInfo {
            service: self.settings.service,
            store: self.store.id,
            created: self.store.created,
            running: self.clock.now.saturating_sub(self.began),
            durability: self.settings.durability.clone(),
            metadata: self.settings.metadata.clone(),
            sessions: self.session_infos().len() as u64,
            connections: self.connections.len() as u64,
            handles: self.handles.len() as u64,
            requests: self.answered,
            classes: classes.collect(),
            trouble: self.trouble.clone().or_else(|| self.recovery.trouble()).or_else(|| self.lacking.trouble()),
        }
    }

    fn session_infos(&self) -> Vec<SessionInfo> {
        let info = |(session, client): (SessionId, String)| SessionInfo {
            session,
            client,
            is_connected: self.connections.values().any(|connection| connection.session == Some(session)),
            handles: self.handles.count(session) as u64,
            granted: self.space.granted_to(session),
        };
        self.sessions.known().map(info).collect()
    }
}

/// The container that an inode is in.
fn place(at: InodePath, inode: &Inode) -> InodeId {
    if inode.kind.is_container() { at.inode } else { inode.parent }
}

/// An inode as it is listed: without what may be long.
fn shorten(inode: &mut Inode) {
    inode.attributes.clear();
    match &mut inode.content {
        Content::Inline(bytes) | Content::Target(bytes) => bytes.clear(),
        Content::Names | Content::Mapped => {}
    }
    debug_assert!(inode.kind != InodeKind::Directory, "containers are listed without their inodes");
}

fn client_key(session: Option<SessionId>, slot: u16, sequence: u64) -> Result<ChangeKey, StoreError> {
    let session = session.ok_or(StoreError::NoSession)?;
    match slot < OWN_SLOTS && sequence > 0 {
        true => Ok(ChangeKey { session, slot, sequence }),
        false => Err(StoreError::Malformed),
    }
}
