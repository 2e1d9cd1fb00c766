//! Handles that the service does not know any more, and those that are one too many.

use super::answers::other_answer;
use super::event::{ClientFailure, ClientFault, ClientMemory, OpenFileId};
use super::machine::{ClientMachine, Out};
use super::open_file::{Handle, OpenFile, Sequence, Step};
use super::requests::{Purpose, Unanswered};
use crate::error::StoreError;
use crate::protocol::{Answer, Request};
use crate::tree::InodePath;
use alloc::format;
use alloc::string::String;

/// How often a file is opened again without anything coming of it.
const REOPENS_MAX: u32 = 100;

impl ClientMachine {
    /// A file that is open here for writing was opened once more. A service that was started again knows none of the handles of before: if the new one
    /// were closed, nobody would have the file to write, and what was written to it would be taken for that of a lost writer. So the file goes on under
    /// the new one, and that of before is closed.
    pub(super) fn one_too_many<M: ClientMemory>(&mut self, id: OpenFileId, opened: Answer, out: &mut Out<'_, M>) {
        let (Some(file), Answer::Opened { handle, at, .. }) = (self.files.get_mut(&id), &opened) else { return };
        let (surplus, at) = match &mut file.handle {
            Handle::Reopening => return self.reopened(id, Ok(opened), out),
            // What closes it has been sent.
            Handle::Open(_) if matches!(file.sequence, Some(Sequence { step: Step::Close, .. })) => (*handle, *at),
            Handle::Open(before) => (core::mem::replace(before, *handle), *at),
            Handle::Lost(_) => (*handle, *at),
        };
        self.close_surplus(surplus, at, out);
    }

    fn close_surplus<M>(&mut self, handle: u64, at: InodePath, out: &mut Out<'_, M>) {
        self.requests.send(Unanswered::new(Request::Close { handle }, Purpose::Close(at), None), out.effects);
    }

    /// The service has forgotten the handle: it was started again.
    pub(super) fn reopen<M: ClientMemory>(&mut self, mut sent: Unanswered, out: &mut Out<'_, M>) {
        let Some((id, file)) = sent.file.and_then(|id| Some((id, self.files.get_mut(&id)?))) else {
            return self.requests.end_slot(&sent, out.effects);
        };
        let named = sent.handle().map(|handle| *handle);
        if matches!(file.sequence, Some(Sequence { step: Step::Close, .. })) {
            // It is being closed: whoever asks something of it still has no use for the answer.
            let failure = ClientFault::Store(StoreError::NotOpen, String::new()).into();
            return self.lost(sent, failure, out);
        }
        match &file.handle {
            Handle::Open(known) if Some(*known) == named => {
                file.handle = Handle::Reopening;
                file.reopens += 1;
                let (at, write) = (file.at, file.writes);
                file.waiting.push(sent);
                if file.reopens > REOPENS_MAX {
                    let what = format!("inode {} is opened, and never open, {REOPENS_MAX} times", at.inode);
                    return self.reopened(id, Err(ClientFault::Protocol(what).into()), out);
                }
                let reopen = Unanswered::new(Request::Open { at, write }, Purpose::Reopen, Some(id));
                self.requests.retry(out.now, reopen);
            }
            _ => self.send(sent, out),
        }
    }

    pub(super) fn reopened<M: ClientMemory>(
        &mut self,
        id: OpenFileId,
        result: Result<Answer, ClientFailure>,
        out: &mut Out<'_, M>,
    ) {
        let Some(file) = self.files.get_mut(&id) else {
            // It was closed meanwhile: this opening is one too many.
            if let Ok(Answer::Opened { handle, at, .. }) = result {
                self.close_surplus(handle, at, out);
            }
            return;
        };
        if let (Handle::Open(known), Ok(Answer::Opened { handle, at, .. })) = (&file.handle, &result) {
            // Another opening was faster.
            if known != handle {
                self.close_surplus(*handle, *at, out);
            }
            return;
        }
        let handle = match result {
            Ok(Answer::Opened { handle, at, inode }) if at.inode == file.at.inode && inode.block == file.block => {
                Handle::Open(handle)
            }
            Ok(Answer::Opened { at, .. }) => Handle::Lost(
                ClientFault::Protocol(format!("inode {} is another file than it was, or another is opened", at.inode))
                    .into(),
            ),
            Ok(other) => Handle::Lost(ClientFault::Protocol(other_answer(&other)).into()),
            Err(failure) => Handle::Lost(failure),
        };
        file.handle = handle;
        let waiting = core::mem::take(&mut file.waiting);
        self.touched.insert(id);
        waiting.into_iter().for_each(|sent| self.send(sent, out));
        if let Some(OpenFile { handle: Handle::Lost(why), .. }) = self.files.get(&id) {
            let why = why.clone();
            self.fail_queue(id, &why, out);
        }
    }
}
