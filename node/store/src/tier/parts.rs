//! Commands as a queue takes them: parts of at most its longest transfer.

use super::{MemoryPlace, TierCommand, TierCommandId, TierDone};
use std::collections::{BTreeMap, VecDeque};
use weir_driver::IoKind;

/// A part of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub command: TierCommandId,
    pub kind: IoKind,
    /// First byte of the namespace.
    pub offset: u64,
    /// Its memory; a flush has none.
    pub place: Option<MemoryPlace>,
}

impl Part {
    pub fn len(&self) -> u32 {
        self.place.map_or(0, |place| place.len)
    }
}

/// A command under way.
#[derive(Clone, Debug)]
struct Progress {
    left: usize,
    is_done: bool,
    /// Parts of a write that were carried out over the connection that there is.
    written: Vec<Part>,
}

/// Commands under way, and their parts that are not sent.
#[derive(Debug, Default)]
pub(super) struct Commands {
    under_way: BTreeMap<TierCommandId, Progress>,
    pub waiting: VecDeque<Part>,
    over: Vec<TierDone>,
}

impl Commands {
    /// A command comes. One part until it is known how long a transfer may be.
    pub fn add(&mut self, command: TierCommandId, what: TierCommand) {
        let (kind, offset, place) = match what {
            TierCommand::Read(offset, place) => (IoKind::Read, offset, Some(place)),
            TierCommand::Write(offset, place) => (IoKind::Write, offset, Some(place)),
            TierCommand::Flush => (IoKind::Flush, 0, None),
        };
        self.under_way.insert(command, Progress { left: 1, is_done: true, written: Vec::new() });
        self.waiting.push_back(Part { command, kind, offset, place });
    }

    /// A command comes that asks for nothing to be done.
    pub fn add_done(&mut self, command: TierCommandId) {
        self.over.push(TierDone { command, is_done: true });
    }

    /// Whether any is over since [`take_over`](Self::take_over).
    pub fn has_over(&self) -> bool {
        !self.over.is_empty()
    }

    /// The next part, of at most so many bytes.
    pub fn next(&mut self, most: u32) -> Option<Part> {
        let first = self.waiting.pop_front()?;
        let Some(place) = first.place.filter(|place| place.len > most) else { return Some(first) };
        let rest =
            Part { offset: first.offset + u64::from(most), place: Some(place.part(most, place.len - most)), ..first };
        self.waiting.push_front(rest);
        if let Some(progress) = self.under_way.get_mut(&first.command) {
            progress.left += 1;
        }
        Some(Part { place: Some(place.part(0, most)), ..first })
    }

    /// A part is over, and its command with the last one.
    pub fn end(&mut self, command: TierCommandId, is_done: bool) {
        let Some(progress) = self.under_way.get_mut(&command) else { return };
        progress.left -= 1;
        progress.is_done &= is_done;
        if progress.left == 0 {
            self.over.push(TierDone { command, is_done: progress.is_done });
            self.under_way.remove(&command);
        }
    }

    /// A part was carried out, or not.
    pub fn end_part(&mut self, part: Part, is_done: bool) {
        self.end(part.command, is_done);
        if let Some(progress) = self.under_way.get_mut(&part.command).filter(|_| part.kind == IoKind::Write) {
            progress.written.push(part);
        }
    }

    /// The connection is lost: parts of writes that are not over are to be carried out again.
    pub fn send_again(&mut self) {
        for progress in self.under_way.values_mut() {
            progress.left += progress.written.len();
            self.waiting.extend(progress.written.drain(..));
        }
    }

    /// A command is over, whatever is left of it.
    pub fn give_up(&mut self, command: TierCommandId) {
        self.waiting.retain(|part| part.command != command);
        if self.under_way.remove(&command).is_some() {
            self.over.push(TierDone { command, is_done: false });
        }
    }

    /// All that waits fails.
    pub fn fail_waiting(&mut self) {
        for part in std::mem::take(&mut self.waiting) {
            self.end(part.command, false);
        }
    }

    /// What is over since the last call.
    pub fn take_over(&mut self, done: &mut Vec<TierDone>) {
        done.append(&mut self.over);
    }

    pub fn len(&self) -> usize {
        self.under_way.len() + self.over.len()
    }
}
