//! Sessions, their answers, and owners.

use super::finding::{Finding, FindingKind, Repair};
use super::image::Image;
use crate::ServiceId;
use crate::inode::InodeKind;
use crate::keys::{answer_key, owner_key};
use crate::kv::KvWrite;
use crate::members::HoldRecord;
use crate::records::{OwnerRecord, to_value};
use crate::space::Epoch;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

impl Image {
    pub(super) fn find_in_members(&self, findings: &mut Vec<Finding>) {
        let mut push = |kind, about, write| {
            findings.push(Finding { kind, about, repair: Repair::Writes(vec![write]) });
        };
        for session in self.sessions.keys().filter(|session| !self.holds.contains_key(session)) {
            // It has acknowledged nothing that is known.
            let write = KvWrite::Put(HoldRecord::key(*session), HoldRecord(Epoch(0)).encode());
            push(FindingKind::SessionWithoutHold, format!("session {session}"), write);
        }
        for (session, hold) in self.holds.iter().filter(|(_, hold)| hold.0 > self.epoch) {
            let write = KvWrite::Put(HoldRecord::key(*session), HoldRecord(self.epoch).encode());
            let about = format!("session {session}: epoch {} of {}", hold.0.0, self.epoch.0);
            push(FindingKind::HoldBeyondEpoch, about, write);
        }
        for (session, slot) in self.answers.keys() {
            if !self.sessions.contains_key(session) && !self.holds.contains_key(session) {
                let write = KvWrite::Delete(answer_key(*session, *slot));
                push(FindingKind::AnswerOfNone, format!("session {session}, slot {slot}"), write);
            }
        }
        for (container, owner) in &self.owners {
            let is_container = match self.inodes.get(container) {
                Some(inode) => inode.kind.is_container() && inode.kind != InodeKind::File,
                None => self.is_inode(*container),
            };
            if !is_container {
                push(FindingKind::OwnerOfNone, format!("inode {container}"), KvWrite::Delete(owner_key(*container)));
                continue;
            }
            let life = self.services.get(&owner.service).map(|service| service.incarnation);
            if owner.service != ServiceId(0) && life.is_none_or(|life| life < owner.incarnation) {
                // The term stays: it only rises.
                let nobody = OwnerRecord { service: ServiceId(0), ..*owner };
                let about = format!("container {container}: life {} of service {}", owner.incarnation, owner.service);
                push(FindingKind::OwnerUnknown, about, KvWrite::Put(owner_key(*container), to_value(&nobody)));
            }
        }
    }
}
