//! A drive's tables: controllers and queues come and go.

use crate::config::SubsystemKind;
use crate::controller::{Controller, DISCOVERY_ACTIVITY, Shutdown, Transport};
use crate::event::{ControllerHandle, Effect, Effects, SqHandle};
use crate::host::Owner;
use crate::io::starting::NO_ARRIVAL;
use crate::queues::queue::{Cq, NONE, Sq, SqState};
use crate::subsystem::Subsystem;
use crate::tenant::reserve::{Share, default_reserve, may_have_one_more};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use weir_spec::nvme::register::{Aqa, Cc, CmbMsc, Csts};
use weir_units::{Class, Nanos};

impl Subsystem {
    #[inline]
    pub(crate) fn resolve(&self, handle: ControllerHandle) -> Option<u32> {
        let ctrl = self.controllers.list.get(handle.index())?.as_ref()?;
        (ctrl.generation == handle.generation()).then_some(handle.index() as u32)
    }

    #[inline]
    pub(crate) fn resolve_queue(&self, handle: SqHandle) -> Option<u32> {
        let sq = self.queues.sqs.get(handle.index())?.as_ref()?;
        (sq.generation == handle.generation()).then_some(handle.index() as u32)
    }

    #[inline]
    pub(crate) fn ctrl(&self, c: u32) -> Option<&Controller> {
        self.controllers.list.get(c as usize)?.as_deref()
    }

    #[inline]
    pub(crate) fn ctrl_mut(&mut self, c: u32) -> Option<&mut Controller> {
        self.controllers.list.get_mut(c as usize)?.as_deref_mut()
    }

    /// A queue that is known to exist.
    #[inline]
    pub(crate) fn sq(&self, q: u32) -> &Sq {
        self.queues.sqs[q as usize].as_ref().expect("the queue exists")
    }

    #[inline]
    pub(crate) fn sq_mut(&mut self, q: u32) -> &mut Sq {
        self.queues.sqs[q as usize].as_mut().expect("the queue exists")
    }

    /// Whether a host of this tenant may have one more controller: what the other tenants may rely on stays free for them.
    pub(crate) fn has_controller_for(&self, tenant: u16) -> bool {
        let mut has = vec![0u32; self.tenants.list.len()];
        self.controllers.list.iter().flatten().for_each(|ctrl| has[usize::from(ctrl.tenant)] += 1);
        let is_own = |t: usize| t == usize::from(tenant);
        let is_there = |t: &usize| is_own(*t) || !self.tenants.list[*t].config.name.is_empty();
        let share = |t| Share { has: has[t], is_own: is_own(t) };
        let tenants = (0..self.tenants.list.len()).filter(is_there).map(share);
        let limit = u32::from(self.config.max_controllers);
        let reserve = default_reserve(limit, tenants.clone().count() as u32);
        may_have_one_more(limit, reserve, tenants)
    }

    // tidy: long because every field of a controller has its first value here.
    pub(crate) fn make_controller(
        &mut self,
        transport: Transport,
        tenant: u16,
        owner: Owner,
        host: String,
    ) -> Option<u32> {
        // FFF0h and above are reserved (base 2.0, 3.1.2).
        let limit = usize::from(self.config.max_controllers.min(0xffef));
        if self.controllers.list.len() < limit {
            self.controllers.list.push(None);
        }
        let len = self.controllers.list.len().min(limit);
        let free = (0..len).map(|i| (self.controllers.next + i) % len).find(|i| self.controllers.list[*i].is_none())?;
        self.controllers.next = (free + 1) % len.max(1);
        self.controllers.generation = self.controllers.generation.wrapping_add(1);
        let key = self.tenants.list[usize::from(tenant)].key;
        let namespaces = self.first_attachments(&host);
        let ana = self.namespaces.access.of(&host, None);
        let mut ctrl = Controller {
            generation: self.controllers.generation,
            id: free as u16 + 1,
            transport,
            tenant,
            group: self.arbiter.add_group(key, weir_arbiter::ArbiterSettings::default()),
            owner,
            host,
            hostid: [0; 16],
            wide_id: false,
            local: None,
            cc: Cc(0),
            csts: Csts(0),
            aqa: Aqa(0),
            asq: 0,
            acq: 0,
            intm: 0,
            nssro: false,
            cmbmsc: CmbMsc(0),
            shadow: None,
            sqs: Vec::new(),
            fence: 0,
            cqs: Vec::new(),
            attached: 0,
            admin: VecDeque::new(),
            admin_listed: false,
            features: self.admin.saved_features.clone(),
            timestamp: None,
            power_since: Nanos(0),
            power_before: 0,
            too_hot: false,
            ana,
            ana_changes: 0,
            endurance_event: false,
            event_context: None,
            lba_status: None,
            aer: Default::default(),
            errors: Default::default(),
            namespaces,
            changed: Vec::new(),
            changed_zones: Vec::new(),
            notices: Default::default(),
            kato: 0,
            needs_keep_alive: false,
            idle_limit: if self.config.kind == SubsystemKind::Discovery { DISCOVERY_ACTIVITY } else { Nanos::NEVER },
            expires: Nanos::NEVER,
            class_from: None,
            wish: None,
            shutdown: Shutdown::None,
            begun_goes_on: false,
            journaled: false,
            kept: Vec::new(),
            life: 0,
            taken: 0,
        };
        ctrl.sqs.push(NONE);
        ctrl.cqs.push(NONE);
        self.controllers.list[free] = Some(Box::new(ctrl));
        self.refresh_guards();
        if ana.refusal().is_some() {
            self.refresh_ana();
        }
        Some(free as u32)
    }

    /// Makes a submission queue and puts it into its controller's table.
    // tidy: long because every field of a queue has its first value here.
    pub(crate) fn make_sq(
        &mut self,
        c: u32,
        qid: u16,
        size: u32,
        owner: Owner,
        wish: Option<Class>,
        local: Class,
    ) -> u32 {
        let ctrl = self.ctrl(c).expect("the controller exists");
        let (group, tenant, front) = (ctrl.group, ctrl.tenant, ctrl.transport == Transport::Front);
        let tenant_from = self.tenants.list[usize::from(tenant)].config.class_from;
        // A front controller's door splits as it likes.
        let page_shift = 12 + ctrl.cc.mps() as u8;
        let mdts = if front { u64::MAX } else { self.config.max_transfer() };
        // Its class from the start: a class that was used once is one the arbiter keeps accounts for.
        let class = self.tenants.list[usize::from(tenant)].class(ctrl.counts(tenant_from), wish);
        let arrived = alloc::vec![NO_ARRIVAL; size as usize].into();
        let key = self.arbiter.add_queue(group, class, local);
        let q = key.index() as u32;
        if self.queues.sqs.len() <= key.index() {
            self.queues.sqs.resize_with(key.index() + 1, || None);
        }
        self.queues.generation = self.queues.generation.wrapping_add(1);
        self.queues.epoch = self.queues.epoch.wrapping_add(1);
        self.queues.sqs[key.index()] = Some(Sq {
            key,
            owner,
            controller: c,
            size,
            head: 0,
            waiting: 0,
            in_flight: 0,
            cq: NONE,
            base: 0,
            mdts,
            front,
            pending: Box::default(),
            words: Vec::new(),
            arrived,
            qid,
            tenant,
            generation: self.queues.generation,
            state: SqState::Open,
            ring: false,
            page_shift,
            paused: false,
            stuck: false,
            flow_off: false,
            starved: false,
            awaits: false,
            class,
            local,
            wish,
            holes: Vec::new(),
            deleter: None,
            seen: 0,
            event: 0,
            made: self.queues.epoch,
        });
        let ctrl = self.ctrl_mut(c).expect("the controller exists");
        let at = usize::from(qid);
        if ctrl.sqs.len() <= at {
            ctrl.sqs.resize(at + 1, NONE);
        }
        ctrl.sqs[at] = q;
        if ctrl.transport != Transport::Rings {
            ctrl.attached += 1;
        }
        if self.faults.is_some() {
            self.refresh_stuck_queue(q);
        }
        q
    }

    /// Gives a queue the class it is entitled to.
    pub(crate) fn classify(&mut self, q: u32) {
        let sq = self.sq(q);
        let tenant = &self.tenants.list[usize::from(sq.tenant)];
        let counts = self.ctrl(sq.controller).is_some_and(|ctrl| ctrl.counts(tenant.config.class_from));
        let class = tenant.class(counts, sq.wish);
        let (key, local) = (sq.key, sq.local);
        self.sq_mut(q).class = class;
        self.arbiter.set_queue_class(key, class, local);
    }

    pub(crate) fn place_cq(&mut self, mut cq: Cq) -> u32 {
        self.queues.epoch = self.queues.epoch.wrapping_add(1);
        cq.made = self.queues.epoch;
        let (c, qid) = (cq.controller, usize::from(cq.qid));
        let index = self.queues.cqs.iter().position(Option::is_none).unwrap_or(self.queues.cqs.len());
        if index == self.queues.cqs.len() {
            self.queues.cqs.push(None);
        }
        self.queues.cqs[index] = Some(cq);
        let ctrl = self.ctrl_mut(c).expect("the controller exists");
        if ctrl.cqs.len() <= qid {
            ctrl.cqs.resize(qid + 1, NONE);
        }
        ctrl.cqs[qid] = index as u32;
        index as u32
    }

    pub(crate) fn free_cqs(&mut self, c: u32) {
        self.queues.epoch = self.queues.epoch.wrapping_add(1);
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        let cqs = core::mem::replace(&mut ctrl.cqs, alloc::vec![NONE]);
        for index in cqs.into_iter().filter(|i| *i != NONE) {
            self.queues.cqs[index as usize] = None;
        }
    }

    /// Nothing of the queue is served any more, nobody waits for what is in flight.
    pub(crate) fn silence(&mut self, q: u32) {
        let sq = self.sq_mut(q);
        let (key, c, admin) = (sq.key, sq.controller, sq.qid == 0);
        let mut reserved = core::mem::take(&mut sq.in_flight);
        sq.waiting = 0;
        sq.deleter = None;
        sq.awaits = false;
        sq.holes.clear();
        let starved = core::mem::take(&mut sq.starved);
        let index = sq.cq;
        self.turn.died = true;
        self.arbiter.withdraw(key);
        self.slots.orphan(q);
        self.fetched.retain(|f| f.queue != q);
        self.resumed.retain(|(queue, _), _| *queue != q);
        if admin {
            self.forget_waiters(q);
        }
        self.faults.iter_mut().for_each(|faults| faults.forget_queue(q));
        self.slow_path.partners.retain(|p| p.queue != q);
        if let (true, Some(ctrl)) = (admin, self.ctrl_mut(c)) {
            ctrl.admin.clear();
            // Event requests hold no entry of the completion queue.
            reserved -= ctrl.aer.reset().len() as u32;
        }
        if let Some(cq) = self.queues.cq_mut(index) {
            cq.credit += reserved;
            cq.starved -= u32::from(starved);
            if cq.starved > 0 && reserved > 0 {
                self.feed(index);
            }
        }
    }

    /// Takes I/O out of the effects whose queue died in the same turn.
    #[cold]
    pub(crate) fn withdraw_dead(&mut self, now: Nanos, effects: &mut Effects) {
        let slots = &mut self.slots;
        effects.retain(|effect| match effect {
            Effect::Io(io) if slots.is_orphan(io.slot) => {
                slots.vacate(io.slot.0);
                false
            }
            _ => true,
        });
        self.turn.died = false;
        self.settle_released(now);
    }

    /// Frees a submission queue.
    pub(crate) fn free_sq(&mut self, q: u32) {
        self.silence(q);
        self.queues.epoch = self.queues.epoch.wrapping_add(1);
        let sq = self.queues.sqs[q as usize].take().expect("the queue exists");
        self.arbiter.remove_queue(sq.key);
        if let Some(cq) = self.queues.cq_mut(sq.cq) {
            cq.users -= 1;
        }
        if let Some(ctrl) = self.ctrl_mut(sq.controller) {
            if ctrl.sq(sq.qid) == q {
                ctrl.sqs[usize::from(sq.qid)] = NONE;
            }
            if !sq.ring && ctrl.transport != Transport::Rings {
                ctrl.attached -= 1;
            }
        }
        self.drained(sq.controller);
    }

    /// Whether a command is still at the media whose queue has gone: what it writes may land at any moment until it is done.
    pub fn has_orphans(&self) -> bool {
        self.has_orphans_of(self.queues_gone())
    }

    /// How many queues have gone so far.
    pub fn queues_gone(&self) -> u64 {
        self.slots.queues_gone()
    }

    /// As [`has_orphans`](Self::has_orphans), of the first so many queues that have gone.
    pub fn has_orphans_of(&self, queues_gone: u64) -> bool {
        self.slots.has_orphans(queues_gone)
    }

    /// A message queue is over; its door is told to close the connection and then disconnects it.
    pub(crate) fn condemn(&mut self, q: u32) {
        if self.sq(q).state == SqState::Condemned {
            return;
        }
        self.silence(q);
        let sq = self.sq_mut(q);
        sq.state = SqState::Condemned;
        let (handle, c, qid) = (sq.handle(), sq.controller, sq.qid);
        self.queues.to_disconnect.push_back(handle);
        if let Some(ctrl) = self.ctrl_mut(c) {
            // The queue identifier is free for a new connection.
            if qid != 0 && ctrl.sq(qid) == q {
                ctrl.sqs[usize::from(qid)] = NONE;
            }
        }
        self.drained(c);
    }

    /// Removes a controller with all its queues.
    pub(crate) fn drop_controller(&mut self, c: u32) {
        self.associate();
        self.reset_ends_self_test(self.power.counted, c);
        if let Some(ctrl) = self.ctrl_mut(c) {
            ctrl.shutdown = Shutdown::None;
        }
        for q in 0..self.queues.sqs.len() as u32 {
            if self.queues.sqs[q as usize].as_ref().is_some_and(|sq| sq.controller == c) {
                self.free_sq(q);
            }
        }
        self.free_cqs(c);
        self.forget_host(c);
        if let Some(ctrl) = self.controllers.list[c as usize].take() {
            self.admin.executed.forget(ctrl.life);
            self.arbiter.remove_group(ctrl.group);
            self.refresh_guards();
        }
        self.forget_held(c);
        self.forget_reset(c);
        self.admin.ready.retain(|r| *r != c);
        self.admin.held.retain(|r| *r != c);
    }

    /// Tells the arbiter whether a queue has a head that may be fetched.
    #[inline]
    pub(crate) fn refresh(&mut self, q: u32) {
        let sq = self.queues.sqs[q as usize].as_mut().expect("the queue exists");
        if sq.waiting == 0 || sq.state != SqState::Open || sq.paused || sq.stuck {
            return;
        }
        if sq.cq != NONE {
            let cq = self.queues.cqs[sq.cq as usize].as_mut().expect("a ring has its completion queue");
            if cq.credit == 0 {
                cq.starved += u32::from(!sq.starved);
                sq.starved = true;
                return self.arbiter.withdraw(sq.key);
            }
            cq.starved -= u32::from(sq.starved);
            sq.starved = false;
        }
        sq.awaits = false;
        self.arbiter.backlog(sq.key);
    }

    /// A completion queue has room again.
    pub(crate) fn feed(&mut self, index: u32) {
        let Some(cq) = self.queues.cq_mut(index) else { return };
        let c = cq.controller;
        cq.starved = 0;
        let Some(ctrl) = self.ctrl(c) else { return };
        for at in 1..ctrl.sqs.len() {
            let q = self.ctrl(c).map_or(NONE, |ctrl| ctrl.sqs[at]);
            if q != NONE && self.sq(q).cq == index && core::mem::take(&mut self.sq_mut(q).starved) {
                // That it waited so far was its host's doing.
                let now = self.turn.now;
                self.sq_mut(q).arrive_again(now);
                self.refresh(q);
            }
        }
    }
}
