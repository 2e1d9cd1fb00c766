//! What the door of a ring controller asks: which queues there are, so that it knows whose doorbells to look at; and what it
//! says: the class that the process at the other end wishes for.

use crate::admin::lba_status::list_len;
use crate::config::ClassFrom;
use crate::data_pointer::Direction;
use crate::event::ControllerHandle;
use crate::host::{Data, DataPointer};
use crate::io::plan::range_len;
use crate::queues::command::data_pointer;
use crate::queues::queue::NONE;
use crate::subsystem::Subsystem;
use weir_spec::nvme::nvm::CopyDw12;
use weir_spec::nvme::zns::ZonedOpcode;
use weir_spec::nvme::{AdminOpcode, IoOpcode};
use weir_units::Class;

impl Subsystem {
    /// A number that changes whenever a queue of this drive is made or goes, and how many queue identifiers of the controller
    /// may have queues, from 0 on: 0 while it is not enabled.
    #[inline]
    pub fn ring_queues(&self, controller: ControllerHandle) -> (u32, u16) {
        let ctrl = self.resolve(controller).and_then(|c| self.ctrl(c)).filter(|ctrl| ctrl.sq(0) != NONE);
        (self.queues.epoch, ctrl.map_or(0, |ctrl| ctrl.sqs.len().max(ctrl.cqs.len()) as u16))
    }

    /// Whether a controller has a submission and a completion queue of this identifier.
    pub fn ring_queue(&self, controller: ControllerHandle, qid: u16) -> (bool, bool) {
        let ctrl = self.resolve(controller).and_then(|c| self.ctrl(c));
        ctrl.map_or((false, false), |ctrl| (ctrl.sq(qid) != NONE, ctrl.cq(qid) != NONE))
    }

    /// Where a ring controller's submission queue lies, how many entries it has, and its tail as far as it is known.
    pub fn ring_place(&self, controller: ControllerHandle, qid: u16) -> Option<(u64, u32, u32)> {
        let q = self.ctrl(self.resolve(controller)?)?.sq(qid);
        (q != NONE && self.sq(q).ring).then(|| (self.sq(q).base, self.sq(q).size, self.sq(q).tail()))
    }

    /// Where a command's bytes are that is about to be fetched from such a queue, and which way they go, as far as its entry says.
    /// `None`: it moves none, or is refused. For doors that have to get hold of them first; where an admin command does not say how
    /// many there are, it is taken for a page, or what is left of the first one.
    pub fn announced(
        &self,
        controller: ControllerHandle,
        qid: u16,
        entry: &[u64; 8],
    ) -> Option<(DataPointer, Direction)> {
        let ctrl = self.ctrl(self.resolve(controller)?)?;
        let opcode = entry[0] as u8;
        if qid == 0 && matches!(AdminOpcode(opcode), AdminOpcode::CREATE_IO_SQ | AdminOpcode::CREATE_IO_CQ) {
            // Their pointer is the queue.
            return None;
        }
        // Bits 1:0 of an opcode say which way (base 2.0, Figure 88).
        let direction = match opcode & 3 {
            1 => Direction::FromHost,
            2 => Direction::ToHost,
            _ => return None,
        };
        let page_shift = (12 + ctrl.cc.mps()) as u8;
        let data = data_pointer(entry, page_shift)?;
        let len = match qid {
            0 => admin_len(opcode, entry),
            _ => self.io_len(opcode, entry),
        };
        let len = match (len, data.get()) {
            (Some(len), _) => len,
            (None, Data::Prp { prp1, prp2: 0 }) => 4096.min((1 << page_shift) - (prp1 & ((1 << page_shift) - 1))),
            (None, _) => 4096,
        };
        (len <= self.config.max_transfer().min(u32::MAX.into())).then(|| (data.of(len as u32), direction))
    }

    /// Bytes that an I/O command moves.
    fn io_len(&self, opcode: u8, entry: &[u64; 8]) -> Option<u64> {
        let (cdw10, cdw11, cdw12) = (entry[5] & 0xffff_ffff, entry[5] >> 32, entry[6] & 0xffff_ffff);
        let blocks = matches!(IoOpcode(opcode), IoOpcode::READ | IoOpcode::WRITE | IoOpcode::COMPARE);
        if blocks || opcode == ZonedOpcode::ZONE_APPEND.0 {
            let ns = self.namespaces.active((entry[0] >> 32) as u32).ok()?;
            let beside = if ns.format.extended { u64::from(ns.format.metadata) } else { 0 };
            return Some(((cdw12 & 0xffff) + 1) * ((1 << ns.shift) + beside));
        }
        if opcode == ZonedOpcode::ZONE_MANAGEMENT_RECEIVE.0 {
            return Some((cdw12 + 1) * 4);
        }
        match IoOpcode(opcode) {
            IoOpcode::DATASET_MANAGEMENT => Some(((cdw10 & 0xff) + 1) * 16),
            IoOpcode::COPY => {
                let dw12 = CopyDw12(cdw12 as u32);
                Some((u64::from(dw12.nr()) + 1) * u64::from(range_len(dw12)))
            }
            IoOpcode::RESERVATION_REPORT => Some((cdw10 + 1) * 4),
            IoOpcode::IO_MANAGEMENT_RECEIVE => Some((cdw11 + 1) * 4),
            _ => None,
        }
    }

    /// The wish of the process at the other end changed: its I/O queues follow, those that there are and those to come (counts
    /// with `class_from = "peer"`).
    pub fn set_controller_wish(&mut self, controller: ControllerHandle, wish: Option<Class>) {
        let Some(ctrl) = self.resolve(controller).and_then(|c| self.ctrl_mut(c)) else { return };
        ctrl.wish = wish;
        if ctrl.class_from != Some(ClassFrom::Peer) {
            return;
        }
        for q in ctrl.sqs.iter().skip(1).copied().filter(|q| *q != NONE).collect::<alloc::vec::Vec<_>>() {
            self.sq_mut(q).wish = wish;
            self.classify(q);
        }
    }
}

/// Bytes that an admin command moves, where its entry says so.
fn admin_len(opcode: u8, entry: &[u64; 8]) -> Option<u64> {
    let (cdw10, cdw11) = (entry[5] & 0xffff_ffff, entry[5] >> 32);
    match AdminOpcode(opcode) {
        AdminOpcode::GET_LOG_PAGE => Some(((cdw10 >> 16 | (cdw11 & 0xffff) << 16) + 1) * 4),
        AdminOpcode::FIRMWARE_DOWNLOAD | AdminOpcode::DIRECTIVE_SEND | AdminOpcode::DIRECTIVE_RECEIVE => {
            Some((cdw10 + 1) * 4)
        }
        AdminOpcode::GET_LBA_STATUS => Some(list_len(entry[6] as u32)),
        _ => None,
    }
}
