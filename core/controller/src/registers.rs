//! Registers and properties; enable, disable, shutdown (base 2.0, 3.1.3, 3.5 and 3.6).
//!
//! ```text
//!  disabled ──CC.EN 0→1──▶ ready ──CC.SHN──▶ draining ──▶ flushing ──▶ shut down
//!     ▲                      │ (bad CC)──▶ fatal            │             │
//!     └──────CC.EN 1→0───────┴─────────────┴────────────────┴─────────────┘
//! ```

use crate::controller::{Shutdown, Transport};
use crate::event::{Io, Op, SlotId};
use crate::host::{DataPointer, Host, Owner, Tag};
use crate::queue::{Cq, NONE};
use crate::subsystem::Subsystem;
use weir_spec::nvme::Status;
use weir_spec::nvme::identify::NSID_ALL;
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::register::{
    self, Cap, Cc, Csts, Doorbell, ams, ams_supported, css, css_supported, doorbell_at, shst,
};
use weir_units::{Class, Nanos};

/// CAP.TO: 10 s.
const READY_TIMEOUT: u64 = 20;
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
            .with_css(css_supported::NVM | if self.zoned.is_empty() { 0 } else { css_supported::ALL })
            .with_mpsmax(MPSMAX.into())
    }

    /// Reads a register of `size` bytes; halves of 8-byte registers can be read. What is not there reads as zero.
    pub(crate) fn read_register(&self, c: u32, offset: u32, size: u8) -> u64 {
        let Some(ctrl) = self.ctrl(c) else { return 0 };
        let whole = |offset: u32| -> u64 {
            match offset {
                register::CAP => self.cap().0,
                register::VS => register::VERSION_2_0.into(),
                register::INTMS | register::INTMC => ctrl.intm.into(),
                register::CC => ctrl.cc.0.into(),
                register::CSTS => ctrl.csts.0.into(),
                register::AQA => ctrl.aqa.0.into(),
                register::ASQ => ctrl.asq,
                register::ACQ => ctrl.acq,
                _ => 0,
            }
        };
        match (register::size_at(offset), register::size_at(offset.wrapping_sub(4))) {
            (Some(8), _) if size == 8 => whole(offset),
            (Some(_), _) => whole(offset) & 0xffff_ffff,
            (None, Some(8)) => whole(offset - 4) >> 32,
            _ => 0,
        }
    }

    /// Writes a register or a doorbell; what is read-only or not there stays as it is.
    pub(crate) fn write_register<H: Host>(
        &mut self,
        now: Nanos,
        c: u32,
        (offset, value, size): (u32, u64, u8),
        host: &mut H,
    ) {
        match doorbell_at(offset) {
            Some(Doorbell::SqTail(qid)) => return self.ring_tail(c, qid, value as u32, host),
            Some(Doorbell::CqHead(qid)) => return self.ring_head(c, qid, value as u32, host),
            None => {}
        }
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        let low = |old: u64| if size == 8 { value } else { old & !0xffff_ffff | value & 0xffff_ffff };
        let high = |old: u64| old & 0xffff_ffff | value << 32;
        match offset {
            register::CC => self.write_cc(now, c, Cc(value as u32), host),
            register::INTMS => ctrl.intm |= value as u32,
            register::INTMC => ctrl.intm &= !(value as u32),
            // The admin queue's registers are fixed while the controller is enabled, and read back then.
            _ if ctrl.cc.en() == 1 => {}
            register::AQA => ctrl.aqa.0 = value as u32 & 0x0fff_0fff,
            register::ASQ => ctrl.asq = low(ctrl.asq) & !0xfff,
            register::ACQ => ctrl.acq = low(ctrl.acq) & !0xfff,
            o if o == register::ASQ + 4 => ctrl.asq = high(ctrl.asq),
            o if o == register::ACQ + 4 => ctrl.acq = high(ctrl.acq),
            _ => {}
        }
    }

    /// A write to CC: enable or disable, then shut down.
    pub(crate) fn write_cc<H: Host>(&mut self, now: Nanos, c: u32, new: Cc, host: &mut H) {
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        let old = ctrl.cc;
        match (old.en(), new.en()) {
            (0, 1) => {
                ctrl.cc = new;
                self.enable(now, c);
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
    fn enable(&mut self, now: Nanos, c: u32) {
        let (saved, max) = (self.saved.clone(), self.config.max_queue_entries);
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
        let (group, settings) = (ctrl.group, ctrl.arbitration());
        self.arbiter.set_group(group, settings);
        if rings {
            self.make_admin_rings(c);
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
        self.cqs[cq as usize].as_mut().expect("just made").users = 1;
    }

    /// CC.EN 1 → 0: what is in flight is dropped without completions, I/O queues are gone, events forgotten.
    /// AQA, ASQ and ACQ keep their values.
    fn disable<H: Host>(&mut self, now: Nanos, c: u32, host: &mut H) {
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        ctrl.csts = Csts(0);
        ctrl.shutdown = Shutdown::None;
        ctrl.wait_for_host(now);
        let (fabrics, admin) = (ctrl.transport == Transport::Fabrics, ctrl.sq(0));
        ctrl.changed.clear();
        ctrl.changed_zones.clear();
        ctrl.notices = Default::default();
        self.drop_io_queues(c);
        self.forget_host(c);
        if fabrics {
            // The admin queue lives on, and so do the capsules that its host sent: they are answered.
            let requests = self.ctrl_mut(c).map(|ctrl| ctrl.aer.reset()).unwrap_or_default();
            for w in requests {
                self.finish(admin, w.cid, w.tag, Status::ABORT_REQUESTED, 0, host);
            }
        } else if admin != NONE {
            self.free_sq(admin);
            self.free_cqs(c);
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
    fn shut_down(&mut self, now: Nanos, c: u32) {
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
        let q = ctrl.sq(qid);
        if q == NONE || !self.sq(q).ring {
            return self.raise(c, AsyncEvent::INVALID_DOORBELL_REGISTER, host);
        }
        let clock = self.clock;
        let sq = self.sq_mut(q);
        let waiting = if tail >= sq.head { tail.wrapping_sub(sq.head) } else { tail + sq.size - sq.head };
        if tail >= sq.size || waiting < sq.waiting {
            return self.raise(c, AsyncEvent::INVALID_DOORBELL_VALUE, host);
        }
        let before = core::mem::replace(&mut sq.waiting, waiting);
        if !sq.arrived.is_empty() {
            for n in before..waiting {
                let at = sq.nth(n) as usize;
                sq.arrived[at] = clock;
            }
        }
        if qid == 0 {
            self.list_admin(c);
        } else {
            self.refresh(q);
        }
    }

    /// A completion queue's head doorbell.
    #[inline]
    pub(crate) fn ring_head<H: Host>(&mut self, c: u32, qid: u16, head: u32, host: &mut H) {
        let Some(ctrl) = self.ctrl(c) else { return };
        if !ctrl.ready() {
            return;
        }
        let index = ctrl.cq(qid);
        let Some(Some(cq)) = self.cqs.get_mut(index as usize) else {
            return self.raise(c, AsyncEvent::INVALID_DOORBELL_REGISTER, host);
        };
        if !cq.consume(head) {
            return self.raise(c, AsyncEvent::INVALID_DOORBELL_VALUE, host);
        }
        if cq.starved > 0 {
            self.feed(index);
        }
        if qid == 0 {
            self.report_events(c, host);
            self.list_admin(c);
        }
    }
}
