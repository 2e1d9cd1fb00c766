//! Which commands a drive has: one table, from which the dispatch, the effects log (05h), OACS and ONCS, what is served during a
//! sanitize operation and what can be locked down are taken.

use super::Admin;
use crate::config::SubsystemKind;
use crate::controller::{Controller, Transport};
use crate::subsystem::Subsystem;
use crate::vendor::VendorQueue;
use alloc::boxed::Box;
use weir_spec::nvme::identify::{csi, oacs, oncs};
use weir_spec::nvme::log::{Effect, Effects, cse};
use weir_spec::nvme::{AdminOpcode, IoOpcode, Status};
use zerocopy::little_endian::U32;

/// A command of a drive.
pub(super) struct CommandEntry<Opcode> {
    pub opcode: Opcode,
    /// Whether a controller has it.
    pub has: fn(&Subsystem, &Controller) -> bool,
    /// What it can change, without CSUPP.
    pub effects: Effect,
    /// Its bit of OACS or ONCS; 0 where it has none.
    pub bit: u16,
    /// It is served while the drive is being sanitized (base 2.0, Figure 268).
    pub sanitizing: bool,
    /// Lockdown can prohibit it.
    pub lockable: bool,
}

const NOTHING: Effect = Effect(0);
const CHANGES_BLOCKS: Effect = Effect(0).with_lbcc(1);

const fn always(_: &Subsystem, _: &Controller) -> bool {
    true
}
fn of_io(drive: &Subsystem, _: &Controller) -> bool {
    drive.config.kind == SubsystemKind::Io
}
fn of_rings(drive: &Subsystem, ctrl: &Controller) -> bool {
    drive.config.kind == SubsystemKind::Io && ctrl.transport == Transport::Rings
}
fn of_management(drive: &Subsystem, _: &Controller) -> bool {
    drive.is_managed()
}
fn of_placement(drive: &Subsystem, _: &Controller) -> bool {
    drive.placement.is_some()
}

const fn plain<Opcode>(opcode: Opcode, has: fn(&Subsystem, &Controller) -> bool) -> CommandEntry<Opcode> {
    CommandEntry { opcode, has, effects: NOTHING, bit: 0, sanitizing: true, lockable: false }
}

/// A command of upkeep: not beside a sanitize operation, and Lockdown can prohibit it.
const fn apart<Opcode>(opcode: Opcode, bit: u16) -> CommandEntry<Opcode> {
    CommandEntry { opcode, has: of_io, effects: NOTHING, bit, sanitizing: false, lockable: true }
}

/// Admin commands, by opcode.
pub(super) const ADMIN: &[CommandEntry<AdminOpcode>] = &[
    plain(AdminOpcode::DELETE_IO_SQ, of_rings),
    plain(AdminOpcode::CREATE_IO_SQ, of_rings),
    plain(AdminOpcode::GET_LOG_PAGE, always),
    plain(AdminOpcode::DELETE_IO_CQ, of_rings),
    plain(AdminOpcode::CREATE_IO_CQ, of_rings),
    plain(AdminOpcode::IDENTIFY, always),
    plain(AdminOpcode::ABORT, of_io),
    CommandEntry { lockable: true, ..plain(AdminOpcode::SET_FEATURES, always) },
    plain(AdminOpcode::GET_FEATURES, always),
    plain(AdminOpcode::ASYNC_EVENT_REQUEST, always),
    apart(AdminOpcode::FIRMWARE_COMMIT, oacs::FIRMWARE),
    apart(AdminOpcode::FIRMWARE_DOWNLOAD, oacs::FIRMWARE),
    apart(AdminOpcode::DEVICE_SELF_TEST, oacs::SELF_TEST),
    plain(AdminOpcode::KEEP_ALIVE, always),
    CommandEntry {
        effects: NOTHING.with_ncc(1).with_nic(1).with_cse(cse::ALONE),
        bit: oacs::NAMESPACES,
        sanitizing: false,
        lockable: true,
        ..plain(AdminOpcode::NAMESPACE_MANAGEMENT, of_management)
    },
    CommandEntry {
        effects: NOTHING.with_nic(1),
        bit: oacs::NAMESPACES,
        sanitizing: false,
        lockable: true,
        ..plain(AdminOpcode::NAMESPACE_ATTACHMENT, of_management)
    },
    CommandEntry { bit: oacs::DIRECTIVES, sanitizing: false, ..plain(AdminOpcode::DIRECTIVE_SEND, of_io) },
    CommandEntry { bit: oacs::DIRECTIVES, sanitizing: false, ..plain(AdminOpcode::DIRECTIVE_RECEIVE, of_io) },
    CommandEntry { lockable: false, ..apart(AdminOpcode::LOCKDOWN, oacs::LOCKDOWN) },
    CommandEntry {
        effects: CHANGES_BLOCKS.with_ncc(1).with_cse(cse::ALONE_IN_NAMESPACE),
        bit: oacs::FORMAT,
        sanitizing: false,
        lockable: true,
        ..plain(AdminOpcode::FORMAT_NVM, of_management)
    },
    CommandEntry { bit: oacs::DOORBELL_BUFFERS, ..plain(AdminOpcode::DOORBELL_BUFFER_CONFIG, of_rings) },
    CommandEntry {
        opcode: AdminOpcode::SANITIZE,
        has: |drive, ctrl| of_io(drive, ctrl) && drive.can_sanitize(),
        // No admin command of any namespace runs beside it.
        effects: CHANGES_BLOCKS.with_cse(cse::ALONE),
        bit: 0,
        sanitizing: true,
        lockable: true,
    },
    apart(AdminOpcode::GET_LBA_STATUS, oacs::LBA_STATUS),
];

/// Commands of the NVM command set, by opcode. They are served in `namespace::plan` and behind it.
pub(super) const IO: &[CommandEntry<IoOpcode>] = &[
    plain(IoOpcode::FLUSH, always),
    CommandEntry { effects: CHANGES_BLOCKS, ..plain(IoOpcode::WRITE, always) },
    plain(IoOpcode::READ, always),
    CommandEntry {
        effects: CHANGES_BLOCKS,
        bit: oncs::WRITE_UNCORRECTABLE,
        ..plain(IoOpcode::WRITE_UNCORRECTABLE, always)
    },
    CommandEntry { bit: oncs::COMPARE, ..plain(IoOpcode::COMPARE, always) },
    CommandEntry { effects: CHANGES_BLOCKS, bit: oncs::WRITE_ZEROES, ..plain(IoOpcode::WRITE_ZEROES, always) },
    CommandEntry {
        effects: CHANGES_BLOCKS,
        bit: oncs::DATASET_MANAGEMENT,
        ..plain(IoOpcode::DATASET_MANAGEMENT, always)
    },
    CommandEntry { bit: oncs::VERIFY, ..plain(IoOpcode::VERIFY, always) },
    CommandEntry { bit: oncs::RESERVATIONS, ..plain(IoOpcode::RESERVATION_REGISTER, always) },
    CommandEntry { bit: oncs::RESERVATIONS, ..plain(IoOpcode::RESERVATION_REPORT, always) },
    CommandEntry { bit: oncs::RESERVATIONS, ..plain(IoOpcode::RESERVATION_ACQUIRE, always) },
    plain(IoOpcode::IO_MANAGEMENT_RECEIVE, of_placement),
    CommandEntry { bit: oncs::RESERVATIONS, ..plain(IoOpcode::RESERVATION_RELEASE, always) },
    CommandEntry { effects: CHANGES_BLOCKS, bit: oncs::COPY, ..plain(IoOpcode::COPY, always) },
    plain(IoOpcode::IO_MANAGEMENT_SEND, of_placement),
];

impl Subsystem {
    /// Whether a controller has an admin command, and may serve it now.
    pub(super) fn admits(&self, admin: &Admin, ctrl: &Controller) -> Result<(), Status> {
        let opcode = AdminOpcode(admin.sqe.opcode);
        let entry = ADMIN.iter().find(|e| e.opcode == opcode && (e.has)(self, ctrl));
        let vendor = self
            .vendor()
            .is_some_and(|set| set.commands().iter().any(|c| c.queue == VendorQueue::Admin && c.opcode == opcode.0));
        let known = entry.is_some() || vendor && self.config.kind == SubsystemKind::Io;
        if !known {
            return Err(Status::INVALID_OPCODE.dnr());
        }
        self.admits_lockdown(admin)?;
        self.admits_beside_sanitize(admin, entry.is_some_and(|e| e.sanitizing))
    }

    /// OACS.
    pub(super) fn optional_admin(&self, ctrl: &Controller) -> u16 {
        ADMIN.iter().filter(|e| (e.has)(self, ctrl)).fold(0, |bits, e| bits | e.bit)
    }

    /// ONCS. Select in Get Features, Save in Set Features, the timestamp and how atomic a copy is are no command's.
    pub(super) fn optional_io(&self, ctrl: &Controller) -> u16 {
        IO.iter()
            .filter(|e| (e.has)(self, ctrl))
            .fold(oncs::SAVE_AND_SELECT | oncs::TIMESTAMP | oncs::COPY_ATOMICITY, |bits, e| bits | e.bit)
    }

    /// Commands Supported and Effects (base 2.0, 5.16.1.6).
    pub(super) fn effects(&self, ctrl: &Controller, set: u8) -> Box<Effects> {
        let mut page = Box::new(Effects::default());
        for e in ADMIN.iter().filter(|e| (e.has)(self, ctrl)) {
            page.admin[usize::from(e.opcode.0)] = U32::new(e.effects.with_csupp(1).0);
        }
        for e in IO.iter().filter(|e| (e.has)(self, ctrl)) {
            page.io[usize::from(e.opcode.0)] = U32::new(e.effects.with_csupp(1).0);
        }
        if set == csi::ZNS {
            self.zoned_effects(&mut page);
        }
        for command in self.vendor().map_or(&[][..], |set| set.commands()) {
            let effect = U32::new(NOTHING.with_csupp(1).with_lbcc(command.changes.into()).0);
            match command.queue {
                VendorQueue::Admin => page.admin[usize::from(command.opcode)] = effect,
                VendorQueue::Io => page.io[usize::from(command.opcode)] = effect,
            }
        }
        page
    }
}
