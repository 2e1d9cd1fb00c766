//! What goes between shards where a volume's drive, or a pool's, is another one's.

use super::Drives;
use crate::device::volumes::Volumes;
use crate::pool::drive_queue::{Guest, PartTime, Sent, ShardMessage};
use crate::pool::parts::{Bytes, Part, Whose, guest_owner};
use std::collections::BTreeSet;
use weir_controller::{BlockRequest, Host, Op, Tag};
use weir_spec::nvme::Status;
use weir_units::Nanos;

impl Drives {
    /// A queue at a drive for somebody of another shard: the guest's number, and how many commands fit into it.
    ///
    /// # Errors
    /// The drive has no room for its controller.
    pub fn add_guest(
        &mut self,
        home: u32,
        drive: u32,
        (tenant, host): (u16, String),
        now: Nanos,
    ) -> Result<(u32, u32), String> {
        let guests = &self.volumes.guests;
        let number = guests.iter().position(Option::is_none).unwrap_or(guests.len()) as u32;
        let (controller, queue, depth) = self.attach_queue(drive, guest_owner(number), tenant, &host, now)?;
        let guest = Some(Guest { home, drive, tenant, host, controller, queue: Some(queue) });
        let Volumes { guests, neighbours, .. } = &mut self.volumes;
        neighbours.insert(home);
        match guests.get_mut(number as usize) {
            Some(place) => *place = guest,
            None => guests.push(guest),
        }
        Ok((number, depth))
    }

    /// A guest goes; nobody hears what becomes of its commands.
    pub fn remove_guest(&mut self, number: u32, now: Nanos) {
        let Some(guest) = self.volumes.guests.get_mut(number as usize).and_then(Option::take) else { return };
        self.get(guest.drive).detach(now, guest.controller);
        self.volumes.parts.forget(|whose| matches!(whose, Whose::Guest { guest, .. } if *guest == number));
    }

    /// Sends a command to the shard that has its drive, with the bytes that it takes.
    pub(super) fn post<H: Host>(
        &mut self,
        (shard, guest): (u32, u32),
        (request, time): (BlockRequest, PartTime),
        tag: Tag,
        doors: &mut H,
    ) {
        let Volumes { parts, fronts, outbox, leaves, .. } = &mut self.volumes;
        let returns = parts.is_fronts(tag);
        if *leaves && returns {
            return parts.hold_back(tag);
        }
        let takes = matches!(request.op, Op::Write | Op::Compare);
        let bytes = if takes { parts.load(tag, request.len, doors, fronts) } else { Ok(Vec::new()) };
        match (bytes, parts.ticket(tag)) {
            (Ok(bytes), Some(ticket)) => {
                outbox.put(shard, ShardMessage::Command { guest, ticket, request, time, returns, bytes })
            }
            (Err(status), _) => parts.answer(tag, status),
            (_, None) => {}
        }
    }

    /// What another shard has sent.
    pub fn deliver<H: Host>(&mut self, now: Nanos, (from, messages): (u32, Vec<ShardMessage>), doors: &mut H) {
        for message in messages {
            match message {
                ShardMessage::Command { guest: number, ticket, request, time, returns, bytes } => {
                    let guest = self.volumes.guests.get(number as usize).and_then(Option::as_ref);
                    let Some((home, drive, queue)) = guest.map(|g| (g.home, g.drive, g.queue)) else { continue };
                    let Some(queue) = queue else {
                        let status = Status::INTERNAL_PATH_ERROR;
                        self.volumes.outbox.put(home, ShardMessage::Outcome { ticket, status, bytes: Vec::new() });
                        continue;
                    };
                    let gives = request.op == Op::Read;
                    let bytes = if gives { vec![0; request.len as usize] } else { bytes };
                    let whose = Whose::Guest { guest: number, ticket, gives, returns };
                    let tag = self.volumes.parts.insert(Part { whose, bytes: Bytes::Own(bytes) });
                    self.volumes.send.push(Sent::Here(drive, time.event(queue, request, tag)));
                }
                ShardMessage::Outcome { ticket, status, bytes } => {
                    let Volumes { parts, fronts, .. } = &mut self.volumes;
                    parts.unload(ticket, (status, bytes), doors, fronts);
                }
                ShardMessage::TakenBack { ticket, due } => self.volumes.parts.take_back(ticket, due),
                ShardMessage::Note { pool, front, number, request } => {
                    self.take_note(from, (pool, front), number, request)
                }
                ShardMessage::Noted { front, number, result, placed } => {
                    self.volumes.notes.say(front, number, (result, placed));
                }
                ShardMessage::Gone(guest) => self.remove_guest(guest, now),
                ShardMessage::Loss(guest) => self.volumes.lose_at(from, guest),
            }
        }
    }

    /// Messages for another shard.
    #[inline]
    pub fn take_messages(&mut self) -> Option<(u32, Vec<ShardMessage>)> {
        self.volumes.outbox.take()
    }

    /// Shards that may have sent commands here, or have some from here.
    pub fn neighbours(&self) -> &BTreeSet<u32> {
        &self.volumes.neighbours
    }
}
