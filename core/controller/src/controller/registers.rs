//! Registers and properties; enable, disable, shutdown (base 2.0, 3.1.3, 3.5 and 3.6).
//!
//! ```text
//!  disabled ──CC.EN 0→1──▶ ready ──CC.SHN──▶ draining ──▶ flushing ──▶ shut down
//!     ▲                      │ (bad CC)──▶ fatal            │             │
//!     └──────CC.EN 1→0───────┴─────────────┴────────────────┴─────────────┘
//! ```

use crate::controller::{Shutdown, Transport};
use crate::event::{ControllerHandle, Io, Op, SlotId};
use crate::host::{DataPointer, Host, Nobody, Owner, Tag};
use crate::queues::queue::{Cq, NONE};
use crate::subsystem::Subsystem;
use weir_spec::nvme::Status;
use weir_spec::nvme::identify::NSID_ALL;
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::register::{
    self, Aqa, Cap, Cc, CmbMsc, Crto, Csts, Doorbell, ams, ams_supported, css, css_supported, doorbell_at, shst,
};
use weir_units::{Class, Nanos};

/// CAP.TO: 10 s.
const READY_TIMEOUT: u64 = 20;
/// CAP.CRMS: ready with media; CRTO.CRWMT says when.
const READY_WITH_MEDIA: u64 = 1;
/// CAP.MPSMAX: 64 KiB.
const MPSMAX: u32 = 4;

impl Subsystem {
    /// CAP of every controller of this drive.
    pub(crate) fn cap(&self) -> Cap {
        Cap(0)
            .with_mqes(u64::from(self.config.max_queue_entries) - 1)
            .with_cqr(1)
            .with_ams(ams_supported::WRR | ams_supported::VENDOR)
            .with_to(READY_TIMEOUT)
            .with_crms(READY_WITH_MEDIA)
            .with_css(css_supported::NVM | if self.zoned.is_empty() { 0 } else { css_supported::ALL })
            .with_mpsmax(MPSMAX.into())
    }

    /// Reads up to 8 bytes of the registers, at any offset; what is not there reads as zero. A host that reads across
    /// registers, or parts of one, gets their bytes, although the standard leaves that open (base 2.0, 3.1.3).
    pub(crate) fn read_register(&self, c: u32, offset: u32, size: u8) -> u64 {
        let size = u32::from(size.min(8));
        if size == 0 {
            return 0;
        }
        if self.ctrl(c).is_some_and(|ctrl| self.is_absent(ctrl.tenant)) {
            // As a read that no device answers.
            return u64::MAX >> (64 - size * 8);
        }
        if size == 4 && offset % 4 == 0 {
            return self.read_dword(c, offset).into();
        }
        let (first, last) = (offset & !3, offset.saturating_add(size - 1));
        let mut bytes = 0u128;
        for at in (0..3u32).map(|i| first.saturating_add(i * 4)).filter(|at| *at <= last) {
            bytes |= u128::from(self.read_dword(c, at)) << ((at - first) * 8);
        }
        (bytes >> ((offset & 3) * 8)) as u64 & (u64::MAX >> (64 - size * 8))
    }

    /// Four bytes of the registers at a multiple of 4.
    fn read_dword(&self, c: u32, offset: u32) -> u32 {
        let Some(ctrl) = self.ctrl(c) else { return 0 };
        let rings = ctrl.transport == Transport::Rings;
        let half = |whole: u64, at: u32| (whole >> ((offset - at) * 8)) as u32;
        match offset {
            0..=0x07 => {
                let cmbs = u64::from(self.config.cmb > 0);
                half(if rings { self.cap().with_nssrs(1).with_cmbs(cmbs).0 } else { self.cap().0 }, register::CAP)
            }
            register::VS => register::VERSION_2_0,
            register::INTMS | register::INTMC => ctrl.intm,
            register::CC => ctrl.cc.0,
            register::CSTS => {
                let csts = ctrl.csts.with_nssro(ctrl.nssro.into());
                match self.slots.has_orphans(ctrl.fence) {
                    _ if self.is_resetting(c) => csts.with_rdy(1 - ctrl.cc.en()).0,
                    true => csts.with_rdy(0).0,
                    false => csts.0,
                }
            }
            register::AQA => ctrl.aqa.0,
            0x28..=0x2f => half(ctrl.asq, register::ASQ),
            0x30..=0x37 => half(ctrl.acq, register::ACQ),
            register::CMBLOC if rings => self.cmb_location(ctrl.cmbmsc).0,
            register::CMBSZ if rings => self.cmb_size(ctrl.cmbmsc).0,
            0x50..=0x57 if rings => half(ctrl.cmbmsc.0, register::CMBMSC),
            register::CMBSTS if rings => self.cmb_status(ctrl.cmbmsc).0,
            register::CRTO => Crto(0).with_crwmt(READY_TIMEOUT as u32).0,
            _ => 0,
        }
    }

    /// Writes a register or a doorbell; what is read-only or not there stays as it is, and so does what is written in parts.
    pub(crate) fn write_register<H: Host>(
        &mut self,
        now: Nanos,
        c: u32,
        (offset, value, size): (u32, u64, u8),
        host: &mut H,
    ) {
        if size != 4 && size != 8 {
            return;
        }
        match doorbell_at(offset) {
            Some(Doorbell::SqTail(qid)) => return self.ring_tail(c, qid, value as u32, host),
            Some(Doorbell::CqHead(qid)) => return self.ring_head(c, qid, value as u32, host),
            None => {}
        }
        if self.ctrl(c).is_none_or(|ctrl| self.is_absent(ctrl.tenant)) {
            return;
        }
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        match offset {
            register::CC => self.write_cc(now, c, Cc(value as u32), host),
            register::INTMS => {
                let mask = ctrl.intm | value as u32;
                self.set_mask(c, mask, host);
            }
            register::INTMC => {
                let mask = ctrl.intm & !(value as u32);
                self.set_mask(c, mask, host);
            }
            // Written with 1 it is cleared; the other fields are read only.
            register::CSTS => ctrl.nssro &= Csts(value as u32).nssro() == 0,
            register::NSSR if value as u32 == register::NSSR_RESET => self.reset_subsystem(now, c, host),
            _ if self.write_memory_space(c, (offset, value, size)) => {}
            _ => self.write_admin_registers(c, (offset, value, size)),
        }
    }

    /// AQA, ASQ and ACQ: fixed while the controller is enabled, and read back then.
    fn write_admin_registers(&mut self, c: u32, (offset, value, size): (u32, u64, u8)) {
        let Some(ctrl) = self.ctrl_mut(c).filter(|ctrl| ctrl.cc.en() == 0) else { return };
        match offset {
            register::AQA => ctrl.aqa.0 = value as u32 & 0x0fff_0fff,
            0x28..=0x2f => ctrl.asq = merged(ctrl.asq, (offset, value, size), register::ASQ) & !0xfff,
            0x30..=0x37 => ctrl.acq = merged(ctrl.acq, (offset, value, size), register::ACQ) & !0xfff,
            _ => {}
        }
    }

    /// CMBMSC, whether the controller is enabled or not; whether it was that.
    fn write_memory_space(&mut self, c: u32, (offset, value, size): (u32, u64, u8)) -> bool {
        let cmb = self.config.cmb > 0;
        let Some(ctrl) = self.ctrl_mut(c).filter(|ctrl| cmb && ctrl.transport == Transport::Rings) else {
            return false;
        };
        if !(0x50..=0x57).contains(&offset) {
            return false;
        }
        let written = CmbMsc(merged(ctrl.cmbmsc.0, (offset, value, size), register::CMBMSC));
        ctrl.cmbmsc = CmbMsc(0).with_cre(written.cre()).with_cmse(written.cmse()).with_cba(written.cba());
        true
    }

    /// NVM subsystem reset (base 2.0, 3.7.1): every controller over PCIe or a network is reset, what it has in flight is dropped. On
    /// a drive that several tenants share, those of the tenant whose host asks: to the others it is another subsystem's affair.
    fn reset_subsystem<H: Host>(&mut self, now: Nanos, c: u32, host: &mut H) {
        let Some(tenant) = self.ctrl(c).filter(|ctrl| ctrl.transport == Transport::Rings).map(|ctrl| ctrl.tenant)
        else {
            return;
        };
        for other in 0..self.controllers.list.len() as u32 {
            let Some(ctrl) = self.ctrl(other).filter(|ctrl| ctrl.tenant == tenant) else { continue };
            match ctrl.transport {
                Transport::Rings => {
                    self.reset_controller(now, other, host);
                    if let Some(ctrl) = self.ctrl_mut(other) {
                        ctrl.nssro = true;
                    }
                }
                Transport::Fabrics => {
                    let admin = ctrl.sq(0);
                    self.drop_io_queues(other);
                    if admin != NONE {
                        self.condemn(admin);
                    }
                }
                Transport::Front => {}
            }
        }
    }

    /// Function level reset, the reset of the PCI device, or its host has gone: every register has its first value again, what is
    /// in flight is dropped without completions. Who it belongs to and what its queues may wish for stays.
    pub fn reset_function(&mut self, now: Nanos, controller: ControllerHandle) {
        let Some(c) = self.resolve(controller) else { return };
        if self.ctrl(c).is_some_and(|ctrl| ctrl.transport == Transport::Rings) {
            // A ring controller's host is told nothing.
            self.reset_controller(now, c, &mut Nobody);
            self.turn.more = true;
        }
    }

    /// A controller level reset that spares no register (base 2.0, 3.7.2).
    pub(crate) fn reset_controller<H: Host>(&mut self, now: Nanos, c: u32, host: &mut H) {
        self.disable(now, c, host);
        self.forget_reset(c);
        if let Some(ctrl) = self.ctrl_mut(c) {
            (ctrl.cc, ctrl.aqa, ctrl.asq, ctrl.acq) = (Cc(0), Aqa(0), 0, 0);
            (ctrl.cmbmsc, ctrl.nssro) = (CmbMsc(0), false);
        }
    }

    /// A write to CC: enable or disable, then shut down.
    pub(crate) fn write_cc<H: Host>(&mut self, now: Nanos, c: u32, new: Cc, host: &mut H) {
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        let old = ctrl.cc;
        match (old.en(), new.en()) {
            (0, 1) => {
                ctrl.cc = new;
                self.enable(now, c, host);
            }
            (1, 0) => {
                ctrl.cc = new;
                self.disable(now, c, host);
            }
            // AMS, CSS and MPS are changed only while the controller is disabled.
            (1, 1) => ctrl.cc = old.with_shn(new.shn()).with_iosqes(new.iosqes()).with_iocqes(new.iocqes()),
            _ => ctrl.cc = new,
        }
        if new.shn() != 0 {
            self.shut_down(now, c);
        }
        self.arm_expiry(c);
    }

    /// CC.EN 0 → 1. What the host selects and cannot have ends in CSTS.CFS, not in a hang.
    fn enable<H: Host>(&mut self, now: Nanos, c: u32, host: &mut H) {
        let (saved, max) = (self.admin.saved_features.clone(), self.config.max_queue_entries);
        let all = !self.zoned.is_empty();
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        let (cc, rings) = (ctrl.cc, ctrl.transport == Transport::Rings);
        ctrl.shutdown = Shutdown::None;
        ctrl.features = saved;
        let sizes = [(cc.iosqes(), 6), (cc.iocqes(), 4)];
        let good = (cc.css() == css::NVM || all && cc.css() == css::ALL)
            && cc.mps() <= MPSMAX
            && matches!(cc.ams(), ams::RR | ams::WRR | ams::VENDOR)
            // Some drivers enable first and set the entry sizes later.
            && sizes.iter().all(|(is, want)| is == want || *is == 0)
            && (!rings || ctrl.aqa.asqs() > 0 && ctrl.aqa.acqs() > 0 && ctrl.aqa.asqs().max(ctrl.aqa.acqs()) < max);
        if !good {
            ctrl.csts = Csts(0).with_cfs(1);
            ctrl.wait_for_host(now);
            return;
        }
        ctrl.csts = Csts(0).with_rdy(1);
        ctrl.keep_alive(now);
        self.delay_ready(now, c, true);
        let fence = self.slots.queues_gone();
        if let Some(ctrl) = self.ctrl_mut(c) {
            ctrl.fence = fence;
        }
        self.activate_firmware();
        self.record_reset(now, c);
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        let (group, settings) = (ctrl.group, ctrl.arbitration());
        self.arbiter.set_group(group, settings);
        if rings {
            self.make_admin_rings(c);
            self.gate(c, host);
        }
    }

    fn make_admin_rings(&mut self, c: u32) {
        let Some(ctrl) = self.ctrl(c) else { return };
        let (asq, acq, owner) = (ctrl.asq, ctrl.acq, ctrl.owner);
        let (sq_size, cq_size) = (ctrl.aqa.asqs() + 1, ctrl.aqa.acqs() + 1);
        let cq = self.place_cq(Cq::new(c, 0, acq, cq_size, Some(0)));
        let sq = self.make_sq(c, 0, sq_size, owner, None, Class::Medium);
        let queue = self.sq_mut(sq);
        (queue.ring, queue.base, queue.cq) = (true, asq, cq);
        self.queues.cqs[cq as usize].as_mut().expect("just made").users = 1;
    }

    /// CC.EN 1 → 0: what is in flight is dropped without completions, I/O queues are gone, events forgotten.
    /// AQA, ASQ and ACQ keep their values.
    fn disable<H: Host>(&mut self, now: Nanos, c: u32, host: &mut H) {
        self.delay_ready(now, c, false);
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        ctrl.csts = Csts(0);
        ctrl.shutdown = Shutdown::None;
        (ctrl.shadow, ctrl.intm) = (None, 0);
        ctrl.wait_for_host(now);
        let (fabrics, admin) = (ctrl.transport == Transport::Fabrics, ctrl.sq(0));
        ctrl.changed.clear();
        ctrl.changed_zones.clear();
        ctrl.notices = Default::default();
        (ctrl.event_context, ctrl.lba_status) = (None, None);
        self.forget_held(c);
        self.reset_ends_self_test(now, c);
        self.drop_io_queues(c);
        self.forget_host(c);
        if fabrics {
            // The admin queue lives on, and so do the capsules that its host sent: they are answered.
            let requests = self.ctrl_mut(c).map(|ctrl| ctrl.aer.reset()).unwrap_or_default();
            for w in requests {
                self.finish(admin, w.cid, w.tag, Status::ABORT_REQUESTED, 0, host);
            }
        } else {
            self.begin_again(c);
            if admin != NONE {
                self.free_sq(admin);
                self.free_cqs(c);
            }
        }
    }

    /// Frees (rings) or condemns (messages) every I/O queue of a controller.
    pub(crate) fn drop_io_queues(&mut self, c: u32) {
        let Some(ctrl) = self.ctrl(c) else { return };
        for qid in 1..ctrl.sqs.len() as u16 {
            let q = self.ctrl(c).map_or(NONE, |ctrl| ctrl.sq(qid));
            if q == NONE {
                continue;
            }
            if self.sq(q).ring { self.free_sq(q) } else { self.condemn(q) }
        }
    }

    /// CC.SHN: nothing more is fetched, what is in flight ends, the media is flushed, then CSTS.SHST says complete.
    pub(crate) fn shut_down(&mut self, now: Nanos, c: u32) {
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        if ctrl.shutdown != Shutdown::None || ctrl.csts.cfs() == 1 {
            return;
        }
        ctrl.shutdown = Shutdown::Draining;
        ctrl.csts = ctrl.csts.with_shst(shst::PROCESSING);
        ctrl.wait_for_host(now);
        for at in 1..ctrl.sqs.len() {
            let q = self.ctrl(c).map_or(NONE, |ctrl| ctrl.sqs[at]);
            if q != NONE {
                self.sq_mut(q).paused = true;
                let key = self.sq(q).key;
                self.arbiter.withdraw(key);
            }
        }
        self.drained(c);
    }

    /// Goes on with a shutdown when nothing of the controller is in flight any more.
    pub(crate) fn drained(&mut self, c: u32) {
        let Some(ctrl) = self.ctrl(c) else { return };
        let idle = |q: &u32| *q == NONE || self.sq(*q).in_flight == 0;
        if ctrl.shutdown != Shutdown::Draining || !ctrl.sqs.iter().skip(1).all(idle) {
            return;
        }
        let slot = self.slots.occupy_internal(c);
        if let Some(ctrl) = self.ctrl_mut(c) {
            ctrl.shutdown = Shutdown::Flushing(slot);
        }
        let (owner, data) = (Owner(u32::MAX), DataPointer::tag(Tag(u32::MAX)));
        let io = Io {
            slot: SlotId(slot),
            owner,
            data,
            op: Op::Flush,
            nsid: NSID_ALL,
            offset: 0,
            len: 0,
            fua: false,
            skip: 0,
        };
        self.slots.make_ready(slot, io);
    }

    /// The flush of a shutdown is done. A media that cannot flush is fatal: the host must not believe its data safe.
    pub(crate) fn flushed(&mut self, c: u32, slot: u32, status: Status) {
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        if ctrl.shutdown != Shutdown::Flushing(slot) {
            return;
        }
        ctrl.shutdown = Shutdown::Complete;
        ctrl.csts = if status.is_success() { ctrl.csts.with_shst(shst::COMPLETE) } else { ctrl.csts.with_cfs(1) };
    }

    /// The controller cannot go on: CSTS.CFS, nothing more is served. Connections are closed.
    pub(crate) fn fatal(&mut self, c: u32) {
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        ctrl.csts = ctrl.csts.with_cfs(1);
        ctrl.expires = Nanos::NEVER;
        ctrl.shutdown = Shutdown::None;
        for at in 0..ctrl.sqs.len() {
            let q = self.ctrl(c).map_or(NONE, |ctrl| ctrl.sqs[at]);
            if q == NONE {
                continue;
            }
            if self.sq(q).ring {
                self.silence(q);
                self.sq_mut(q).paused = true;
            } else {
                self.condemn(q);
            }
        }
    }

    /// A submission queue's tail doorbell.
    #[inline]
    pub(crate) fn ring_tail<H: Host>(&mut self, c: u32, qid: u16, tail: u32, host: &mut H) {
        let Some(ctrl) = self.ctrl(c) else { return };
        if !ctrl.ready() {
            return;
        }
        let (q, shadow) = (ctrl.sq(qid), ctrl.shadow.is_some());
        if q == NONE || !self.sq(q).ring {
            return self.raise(c, AsyncEvent::INVALID_DOORBELL_REGISTER, host);
        }
        // The shadow has the value: the register's may be older by now.
        if shadow && self.is_shadowed(c, qid) {
            return;
        }
        if let Err(event) = self.take_tail(c, qid, tail) {
            self.raise(c, event, host);
        }
    }

    /// A new tail of a submission queue; the event if it cannot be.
    #[inline]
    pub(crate) fn take_tail(&mut self, c: u32, qid: u16, tail: u32) -> Result<(), AsyncEvent> {
        let Some(ctrl) = self.ctrl(c) else { return Ok(()) };
        let q = ctrl.sq(qid);
        if q == NONE || !ctrl.ready() {
            return Ok(());
        }
        let clock = self.turn.now;
        let sq = self.sq_mut(q);
        let waiting = if tail >= sq.head { tail.wrapping_sub(sq.head) } else { tail + sq.size - sq.head };
        if tail >= sq.size || waiting < sq.waiting {
            return Err(AsyncEvent::INVALID_DOORBELL_VALUE);
        }
        let before = core::mem::replace(&mut sq.waiting, waiting);
        for n in before..waiting {
            let at = sq.nth(n) as usize;
            sq.arrived[at] = clock;
        }
        if qid == 0 {
            self.list_admin(c);
        } else {
            self.refresh(q);
        }
        Ok(())
    }

    /// A completion queue's head doorbell.
    #[inline]
    pub(crate) fn ring_head<H: Host>(&mut self, c: u32, qid: u16, head: u32, host: &mut H) {
        let Some(ctrl) = self.ctrl(c) else { return };
        if !ctrl.ready() {
            return;
        }
        let (index, shadow) = (ctrl.cq(qid), ctrl.shadow.is_some());
        if index == NONE {
            return self.raise(c, AsyncEvent::INVALID_DOORBELL_REGISTER, host);
        }
        if shadow && self.is_shadowed(c, qid) {
            return;
        }
        if let Err(event) = self.take_head(c, qid, head) {
            return self.raise(c, event, host);
        }
        if qid == 0 {
            self.report_events(c, host);
            self.list_admin(c);
        }
    }

    /// A new head of a completion queue; the event if it cannot be.
    #[inline]
    pub(crate) fn take_head(&mut self, c: u32, qid: u16, head: u32) -> Result<(), AsyncEvent> {
        let Some(ctrl) = self.ctrl(c).filter(|ctrl| ctrl.ready()) else { return Ok(()) };
        let index = ctrl.cq(qid);
        let Some(cq) = self.queues.cq_mut(index) else { return Ok(()) };
        if !cq.consume(head) {
            return Err(AsyncEvent::INVALID_DOORBELL_VALUE);
        }
        if cq.starved > 0 {
            self.feed(index);
        }
        Ok(())
    }
}

/// A register of 8 bytes at `at`, written as a whole or one half of it.
fn merged(old: u64, (offset, value, size): (u32, u64, u8), at: u32) -> u64 {
    match (offset - at, size) {
        (0, 8) => value,
        (0, _) => old & !0xffff_ffff | value & 0xffff_ffff,
        (4, _) => old & 0xffff_ffff | value << 32,
        _ => old,
    }
}
