//! Commands that take the slow path: those of namespaces with a reason for it ([`why`]), and those that are
//! rare.
//!
//! ```text
//!  start ─▶ start_slow ─▶ admitted? ─┬─▶ a pair, a reservation's command, I/O management
//!                                     ├─▶ a vendor's set, zones: their own paths
//!                                     └─▶ start_restricted: readable? nobody before it? ─▶ slot ─▶ (its time) ─▶ Effect::Io ─▶ done
//!                                           (with metadata or in several extents: start_pieces, an Effect::Io for each)
//! ```

pub(crate) mod review;
mod waiting;
use crate::event::{Io, Op, SlotId};
use crate::host::Host;
use crate::io::plan::{COPY_FORMATS, COPY_RANGES_MAX, copy_limits};
use crate::io::slow_path::waits::{BlockRange, For};
use crate::io::starting::Starting;
use crate::io::timing::Operation;
use crate::io::work::RemainingWork;
use crate::namespace::{Namespace, why};
use crate::queues::command::{Command, flag};
use crate::queues::queue::NONE;
use crate::reservation::RESCAP;
use crate::reservation::state::Group;
use crate::subsystem::Subsystem;
use crate::vendor::FIRST_OPCODE;
use weir_spec::nvme::identify::{IdentifyController, IdentifyNamespace, IdentifyNvmController, NSID_ALL};
use weir_spec::nvme::zns::ZonedOpcode;
use weir_spec::nvme::{IoOpcode, Status};
use weir_units::Nanos;
use zerocopy::little_endian::{U16, U32};

pub(crate) mod compound;
pub(crate) mod copy;
pub(crate) mod fused;
pub(crate) mod restricted_namespace;
pub(crate) mod state;
pub(crate) mod waits;

impl Subsystem {
    /// Starts a command of the slow path. The caller has seen that it fits.
    #[cold]
    pub(crate) fn start_slow<H: Host>(&mut self, now: Nanos, starting: &Starting, host: &mut H) {
        if self.faults.is_some() {
            return self.start_under_faults(now, starting, host);
        }
        self.start_as_planned(now, starting, host);
    }

    /// The same of a command that no rule holds up.
    pub(crate) fn start_as_planned<H: Host>(&mut self, now: Nanos, starting: &Starting, host: &mut H) {
        let Starting { queue, ref command, .. } = *starting;
        if command.is(flag::FUSED) {
            return self.start_pair(now, starting, host);
        }
        if let Err(status) = self.admit(queue, command) {
            return self.refuse(queue, command, status, host);
        }
        match IoOpcode(command.opcode) {
            IoOpcode::IO_MANAGEMENT_RECEIVE | IoOpcode::IO_MANAGEMENT_SEND => {
                return self.start_management(now, starting, host);
            }
            IoOpcode::RESERVATION_REGISTER
            | IoOpcode::RESERVATION_REPORT
            | IoOpcode::RESERVATION_ACQUIRE
            | IoOpcode::RESERVATION_RELEASE => return self.start_reservation(starting, host),
            IoOpcode::FLUSH => {
                self.flush_zones(command.nsid);
                return self.start_restricted(now, starting, host);
            }
            _ => {}
        }
        let why = match self.namespaces.active(command.nsid) {
            Ok(ns) => ns.why,
            Err(status) => return self.refuse(queue, command, status, host),
        };
        if command.opcode >= FIRST_OPCODE || why & why::VENDOR != 0 {
            self.start_vendor(now, starting, host);
        } else if command.opcode == IoOpcode::COPY.0 {
            self.start_copy(now, starting, host);
        } else if why & why::ZONES != 0 {
            self.start_zoned(now, starting, host);
        } else {
            self.start_restricted(now, starting, host);
        }
    }

    /// Whether a command may run on its namespace as things are.
    pub(crate) fn admit(&self, queue: u32, command: &Command) -> Result<(), Status> {
        if command.nsid != NSID_ALL {
            let ns = self.namespaces.active(command.nsid)?;
            self.is_there_for(queue, ns, command)?;
            if let (false, Some(status)) = (command.opcode == IoOpcode::FLUSH.0, ns.barred) {
                return Err(status);
            }
        }
        if let Some(status) = self.ana_refusal(queue) {
            return Err(status);
        }
        let c = self.sq(queue).controller;
        match group(command.opcode).and_then(|group| self.reservation_conflict(c, command.nsid, group)) {
            Some(status) => Err(status),
            None => Ok(()),
        }
    }

    /// Whether one of these blocks cannot be read.
    pub(crate) fn is_unreadable(&self, extent: &BlockRange) -> bool {
        self.slow_path.unreadable.get(&extent.nsid).is_some_and(|u| u.overlaps(extent.first, extent.end))
    }

    /// A command of the NVM command set on a namespace with blocks that somebody holds or that cannot be read, and Verify and Write
    /// Uncorrectable anywhere.
    fn start_restricted<H: Host>(&mut self, now: Nanos, starting: &Starting, host: &mut H) {
        let Starting { queue, ref command, ref plan, data, .. } = *starting;
        let command = &command.unplaced();
        let extent = BlockRange::of(command);
        let reads = matches!(plan.op, Op::Read | Op::Compare | Op::Verify);
        let changes = !reads && command.opcode != IoOpcode::FLUSH.0;
        if reads && self.is_unreadable(&extent) {
            return self.refuse(queue, command, Status::UNRECOVERED_READ_ERROR, host);
        }
        if changes && self.is_locked(&extent, usize::MAX) {
            return self.wait(starting, None, For::Pairs(extent));
        }
        if reads && self.is_held_alone(&extent, usize::MAX) {
            return self.wait(starting, None, For::Copies(extent));
        }
        if command.opcode == IoOpcode::WRITE_UNCORRECTABLE.0 {
            return self.mark_unreadable(now, starting, &extent, host);
        }
        let ns = self.namespaces.active(command.nsid).ok().copied();
        if let Some(ns) = ns.filter(|ns| ns.why & why::GUARDED != 0 && plan.op != Op::Flush) {
            // A list of ranges to deallocate makes nothing readable here: only what is written is (NVM 1.0, 3.2.6).
            let listed = plan.op == Op::Deallocate && !command.is(flag::RANGE);
            return match self.start_pieces(now, &ns, starting, host) {
                Ok(Some(id)) if changes && !listed && self.slow_path.unreadable.contains_key(&command.nsid) => {
                    self.heals_when_done(id, command, &extent, (plan.offset, plan.len));
                }
                Ok(_) => {}
                Err(status) => self.refuse(queue, command, status, host),
            };
        }
        let Some((ranges, (offset, len))) = self.first_piece((queue, command, plan), &data, host) else { return };
        let owner = self.sq(queue).owner;
        let id = self.occupy_for(starting);
        self.slots.slots[id as usize].ranges = ranges;
        if changes && self.slow_path.unreadable.contains_key(&command.nsid) {
            self.heals_when_done(id, command, &extent, (offset, len));
        }
        let (op, nsid, fua) = (plan.op, command.nsid, command.is(flag::FUA));
        let io = Io { slot: SlotId(id), owner, data, op, nsid, offset, len, fua, skip: 0 };
        if self.is_instant() {
            return self.slots.make_ready(id, io);
        }
        let due = self.complete_command_at(now, starting, Operation { op, offset, len, fua, placement: 0 });
        self.delay(id, io, due);
    }

    /// When the command in this slot has succeeded, its blocks can be read.
    fn heals_when_done(&mut self, id: u32, command: &Command, extent: &BlockRange, piece: (u64, u32)) {
        let index = match self.slots.slots[id as usize].ranges {
            NONE => self.slots.take_work().0,
            index => index,
        };
        self.slots.slots[id as usize].ranges = index;
        let heals = match self.namespaces.active(command.nsid) {
            Ok(ns) if command.opcode == IoOpcode::DATASET_MANAGEMENT.0 && !command.is(flag::RANGE) => {
                // The first piece was taken out of the list already.
                let all = self.slots.work(index).all().chain([(piece.0, piece.1.into())]);
                all.map(|(o, l)| ((o - ns.start) >> ns.shift, (o + l - ns.start) >> ns.shift)).collect()
            }
            _ => alloc::vec![(extent.first, extent.end)],
        };
        self.slots.work(index).steps = Some(RemainingWork { heals, ..RemainingWork::default() });
    }

    /// Write Uncorrectable (NVM 1.0, 3.2.6).
    fn mark_unreadable<H: Host>(&mut self, now: Nanos, starting: &Starting, extent: &BlockRange, host: &mut H) {
        let Starting { queue, ref command, .. } = *starting;
        let unreadable = self.slow_path.unreadable.entry(extent.nsid).or_default();
        let before = unreadable.blocks();
        let marked = unreadable.insert(extent.first, extent.end).map(|()| unreadable.blocks() > before);
        self.review(extent.nsid);
        match marked {
            Err(_) => return self.refuse(queue, command, Status::CAPACITY_EXCEEDED.dnr(), host),
            Ok(true) => self.note_unrecoverable(extent.nsid),
            Ok(false) => {}
        }
        let due = now.saturating_add(self.config.latency);
        if due <= now {
            return self.finish(queue, command.cid, command.tag, Status::SUCCESS, 0, host);
        }
        let id = self.occupy_for(starting);
        self.slots.delay_done(id, due);
    }
}

impl Subsystem {
    /// Limits of the NVM command set (NVM 1.0, 4.1.5.4): Verify moves nothing to the host, and reads no more at once than a read
    /// does. Nothing else is limited.
    pub(crate) fn nvm_limits(&self) -> IdentifyNvmController {
        IdentifyNvmController { vsl: self.config.mdts, ..Default::default() }
    }

    /// What a controller says of pairs, atomic writes and copies.
    pub(crate) fn describe_controller_io(&self, id: &mut IdentifyController) {
        id.fuses = U16::new(1);
        // In blocks of the largest size that there is.
        let largest = |bytes| U16::new(blocks_0(bytes, 12));
        (id.awun, id.acwu) = (largest(self.atomic_bytes()), largest(self.pair_bytes()));
        id.cdfs = U16::new(COPY_FORMATS);
    }

    /// What a namespace says of atomic writes, copies and reservations.
    pub(crate) fn describe_namespace_io(&self, ns: &Namespace, id: &mut IdentifyNamespace) {
        // NAWUN and the others are its own (NSFEAT bit 1).
        id.nsfeat |= 1 << 1;
        let blocks = |bytes| U16::new(blocks_0(bytes, ns.shift));
        (id.nawun, id.nacwu) = (blocks(self.atomic_bytes()), blocks(self.pair_bytes()));
        let (longest, most) = copy_limits(ns.shift);
        (id.mssrl, id.mcl, id.msrc) = (U16::new(longest), U32::new(most), COPY_RANGES_MAX as u8 - 1);
        id.rescap = RESCAP;
    }
}

/// Bytes as a 0-based number of blocks.
fn blocks_0(bytes: u64, shift: u32) -> u16 {
    u16::try_from((bytes >> shift).max(1) - 1).unwrap_or(u16::MAX)
}

/// What an I/O command does to a namespace, as far as reservations go; `None`: they do not ask.
fn group(opcode: u8) -> Option<Group> {
    match IoOpcode(opcode) {
        IoOpcode::READ | IoOpcode::COMPARE | IoOpcode::VERIFY | IoOpcode::IO_MANAGEMENT_RECEIVE => Some(Group::Read),
        IoOpcode::RESERVATION_REGISTER
        | IoOpcode::RESERVATION_REPORT
        | IoOpcode::RESERVATION_ACQUIRE
        | IoOpcode::RESERVATION_RELEASE => None,
        _ if ZonedOpcode(opcode) == ZonedOpcode::ZONE_MANAGEMENT_RECEIVE => Some(Group::Read),
        _ => Some(Group::Write),
    }
}
