//! What the operator asks and changes while the drive runs.

use crate::config::{ClassFrom, DiscoveryRecord, SubsystemConfig};
use crate::error::ManagementError;
use crate::event::{ControllerHandle, Io};
use crate::io::placement::Placement;
use crate::io::timing::{Operation, OwnTiming, TimingModel};
use crate::namespace::{Namespace, why};
use crate::queues::queue::{NONE, Sq};
use crate::stats::{ControllerInfo, DriveStats, QueueInfo, TenantStats, Work};
use crate::subsystem::Subsystem;
use crate::tenant::latency::Latencies;
use crate::zns::Space;
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_arbiter::ArbiterSettings;
use weir_flash::{Flash, When, Zones};
use weir_spec::nvme::log::{AsyncEvent, critical_warning};
use weir_spec::nvme::zns::CHANGED_ZONES_MAX;
use weir_units::{Class, Nanos};

/// SMART's available spare threshold, in percent.
pub(crate) const SPARE_THRESHOLD: u8 = 10;

/// Changed namespaces a list can hold (base 2.0, 5.16.1.5).
const CHANGED_MAX: usize = 1024;

impl Subsystem {
    /// The configuration as it is now.
    pub fn config(&self) -> &SubsystemConfig {
        &self.config
    }

    /// The tenant's place by name.
    pub fn tenant_by_name(&self, name: &str) -> Option<u16> {
        self.tenants.list.iter().position(|t| t.config.name == name).map(|i| i as u16)
    }

    /// The tenant that a host belongs to: the one that names it, else the first with `*`.
    pub fn tenant_of_host(&self, hostnqn: &str) -> Option<u16> {
        crate::tenant::tenant_of(&self.tenants.list, hostnqn)
    }

    /// Changes the drive's arbitration while it runs; a round under way is adjusted.
    pub fn set_arbitration(&mut self, settings: ArbiterSettings) -> Result<(), ManagementError> {
        let (w, q) = (settings.weights, settings.quanta);
        let weights = [w.high, w.medium, w.low].iter().all(|w| (1..=256).contains(w));
        if !weights || [q.high, q.medium, q.low].contains(&0) {
            return Err(ManagementError::Range);
        }
        self.config.arbitration = settings;
        self.arbiter.configure(settings);
        self.turn.more = true;
        Ok(())
    }

    /// Changes the fixed service time of commands fetched from now on.
    pub fn set_latency(&mut self, latency: Nanos) {
        self.config.latency = latency;
    }

    /// Gives the drive an inside that decides when commands fetched from now on are complete, instead of the fixed latency.
    pub fn set_service(&mut self, service: Box<dyn TimingModel>) {
        self.placement = service.placement().and_then(Flash::fdp).map(|fdp| Box::new(Placement::new(fdp)));
        self.timing = OwnTiming(Some(service));
        self.slots.quiet_until = Nanos(0);
    }

    /// Takes the drive's inside away; commands fetched from now on take the fixed latency.
    pub fn take_service(&mut self) -> Option<Box<dyn TimingModel>> {
        self.placement = None;
        self.slots.quiet_until = Nanos(0);
        self.timing.0.take()
    }

    /// The drive's inside, if it was given one.
    pub fn service(&self) -> Option<&dyn TimingModel> {
        self.timing.0.as_deref()
    }

    /// The same, to change it.
    pub fn service_mut(&mut self) -> Option<&mut dyn TimingModel> {
        self.slots.quiet_until = Nanos(0);
        self.timing.0.as_deref_mut()
    }

    /// Whether commands take no time: their effects are due as they are fetched.
    #[inline]
    pub(crate) fn is_instant(&self) -> bool {
        self.config.latency.0 == 0 && self.timing.0.is_none()
    }

    /// When an operation that begins now is complete.
    #[inline]
    pub(crate) fn complete_at(&mut self, now: Nanos, operation: Operation) -> When {
        match &mut self.timing.0 {
            None => When::at(now.saturating_add(self.config.latency)),
            Some(service) => {
                self.slots.quiet_until = Nanos(0);
                let when = service.begin(now, operation);
                when.known().map_or(when, |at| When::at(at.max(now)))
            }
        }
    }

    /// The later of two such times.
    pub(crate) fn later_of(&mut self, a: When, b: When) -> When {
        self.slots.quiet_until = Nanos(0);
        match (a.known(), b.known(), &mut self.timing.0) {
            (None, _, Some(service)) | (_, None, Some(service)) => service.later_of(a, b),
            (a, b, _) => When::at(a.max(b).unwrap_or_default()),
        }
    }

    /// Emits `io` at `due`, as [`Slots::delay`](crate::io::slots::Slots::delay) does.
    #[inline]
    pub(crate) fn delay(&mut self, id: u32, io: Io, due: When) {
        match due.known() {
            Some(due) => self.slots.delay(self.turn.now, id, io, due),
            None => self.wait_to_be_told(id, Some(io), due),
        }
    }

    /// Completes a command that has no I/O at `due`.
    pub(crate) fn delay_done(&mut self, id: u32, due: When) {
        match due.known() {
            Some(due) => self.slots.delay_done(id, due),
            None => self.wait_to_be_told(id, None, due),
        }
    }

    #[cold]
    fn wait_to_be_told(&mut self, id: u32, io: Option<Io>, due: When) {
        self.slots.pend(id, io);
        self.slots.quiet_until = Nanos(0);
        if let Some(service) = &mut self.timing.0 {
            service.tell(due, id.into());
        }
    }

    /// Hears from the drive's inside which commands are complete, and when.
    #[inline]
    pub(crate) fn hear_service(&mut self, now: Nanos) {
        if self.slots.pending > 0 && self.slots.quiet_until <= now {
            self.hear_from_service(now);
        }
    }

    #[cold]
    fn hear_from_service(&mut self, now: Nanos) {
        let next = self.next_of_service();
        if next > now {
            self.slots.quiet_until = next;
            return;
        }
        self.slots.quiet_until = Nanos(0);
        let Some(service) = &mut self.timing.0 else { return };
        while let Some((slot, due)) = service.told(now) {
            self.slots.known(slot as u32, due);
        }
    }

    /// Lets the drive's inside go on by itself for as long as nothing else happens: to before the drive's own next deadline, and before
    /// `until`, up to which the executor has nothing for it. Every answer is the same, with fewer [`Tick`](crate::Event::Tick)s before it.
    #[inline]
    pub fn run_ahead(&mut self, until: Nanos) {
        if self.slots.pending > 0 {
            self.run_inside(until);
        }
    }

    #[cold]
    fn run_inside(&mut self, until: Nanos) {
        self.slots.quiet_until = Nanos(0);
        while self.slots.pending > 0 {
            let until = until.min(self.own_deadline());
            let told = self.timing.0.as_mut().and_then(|service| service.told_before(until));
            let Some((slot, due)) = told else {
                self.slots.quiet_until = self.next_of_service();
                return;
            };
            self.slots.known(slot as u32, due);
        }
    }

    /// Changes a tenant's class, its permission for urgent and its weight; its queues follow at once.
    pub fn set_tenant(&mut self, tenant: u16, class: Class, urgent: bool, weight: u16) -> Result<(), ManagementError> {
        if weight == 0 {
            return Err(ManagementError::Range);
        }
        let t = self.tenants.list.get_mut(usize::from(tenant)).ok_or(ManagementError::NoTenant)?;
        (t.config.class, t.config.urgent, t.config.weight) = (class, urgent, weight);
        let key = t.key;
        self.config.tenants[usize::from(tenant)] = t.config.clone();
        self.arbiter.set_tenant(key, weight);
        self.classify_tenant(tenant);
        Ok(())
    }

    /// Changes who may wish for a class among a tenant's queues.
    pub fn set_class_from(&mut self, tenant: u16, from: ClassFrom) -> Result<(), ManagementError> {
        let t = self.tenants.list.get_mut(usize::from(tenant)).ok_or(ManagementError::NoTenant)?;
        t.config.class_from = from;
        self.config.tenants[usize::from(tenant)].class_from = from;
        self.classify_tenant(tenant);
        Ok(())
    }

    /// Changes who may wish for a class among one controller's queues, whatever the tenant's `class_from` says: a drive can be
    /// reached by several doors. `None` is the tenant's again.
    pub fn set_controller_class_from(
        &mut self,
        controller: ControllerHandle,
        from: Option<ClassFrom>,
    ) -> Result<(), ManagementError> {
        let c = self.resolve(controller).ok_or(ManagementError::NoController)?;
        let ctrl = self.ctrl_mut(c).ok_or(ManagementError::NoController)?;
        ctrl.class_from = from;
        let queues: Vec<u32> = ctrl.sqs.iter().skip(1).copied().filter(|q| *q != NONE).collect();
        queues.into_iter().for_each(|q| self.classify(q));
        Ok(())
    }

    fn classify_tenant(&mut self, tenant: u16) {
        for q in 0..self.queues.sqs.len() {
            if self.queues.sqs[q].as_ref().is_some_and(|sq| sq.tenant == tenant) {
                self.classify(q as u32);
            }
        }
    }

    /// A namespace is another one from now on, whose UUID and NGUID these bytes are. Hosts are notified at the next `Run`.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn renew_namespace(&mut self, nsid: u32, uuid: [u8; 16]) -> Result<(), ManagementError> {
        let ns = self.namespaces.get_mut(nsid).ok_or(ManagementError::NoNamespace)?;
        ns.uuid = uuid;
        self.config.namespaces.iter_mut().filter(|ns| ns.nsid == nsid).for_each(|ns| ns.uuid = uuid);
        self.note_event(AsyncEvent::NAMESPACE_ATTRIBUTE, Some(nsid));
        Ok(())
    }

    /// Changes a namespace's size in bytes. Hosts are notified at the next `Run`.
    pub fn resize_namespace(&mut self, nsid: u32, size: u64) -> Result<(), ManagementError> {
        if self.namespaces.allocator.is_some() {
            return self.resize_managed(nsid, size);
        }
        let config =
            self.config.namespaces.iter_mut().find(|ns| ns.nsid == nsid).ok_or(ManagementError::NoNamespace)?;
        if self.zoned.iter().any(|s| s.nsid == nsid) {
            return Err(ManagementError::Zones);
        }
        let held =
            self.namespaces.list.get(nsid as usize - 1).copied().flatten().ok_or(ManagementError::NoNamespace)?;
        if held.why & (why::ZONES | why::VENDOR) != 0 {
            return Err(ManagementError::Fixed);
        }
        let resized = Namespace::new(&crate::config::NamespaceConfig { size, ..config.clone() });
        let resized = Namespace {
            vendor: held.vendor,
            why: held.why,
            barred: held.barred,
            ..resized.ok_or(ManagementError::Namespace)?
        };
        config.size = size;
        self.namespaces.list[nsid as usize - 1] = Some(resized);
        self.note_event(AsyncEvent::NAMESPACE_ATTRIBUTE, Some(nsid));
        Ok(())
    }

    /// The same where namespaces share the drive. What a smaller one does not show stays its own.
    fn resize_managed(&mut self, nsid: u32, size: u64) -> Result<(), ManagementError> {
        let ns = self.namespaces.get_mut(nsid).map(|ns| *ns).ok_or(ManagementError::NoNamespace)?;
        if size == 0 || size % (1 << ns.shift) != 0 {
            return Err(ManagementError::Namespace);
        }
        if ns.vendor.is_some() || self.namespaces.is_busy(nsid) {
            return Err(ManagementError::Fixed);
        }
        let allocator = self.namespaces.allocator.as_mut().ok_or(ManagementError::NoNamespace)?;
        let held = allocator.allocated(nsid);
        if size > held {
            allocator.allocate(nsid, size - held).ok_or(ManagementError::NoRoom)?;
        }
        let fragmented = allocator.extents(nsid).len() > 1;
        if let Some(record) = self.namespaces.records.get_mut(&nsid) {
            record.bytes = size;
        }
        if let Some(ns) = self.namespaces.get_mut(nsid) {
            (ns.blocks, ns.fragmented) = (size >> ns.shift, fragmented);
        }
        self.refresh_guard(nsid);
        self.note_event(AsyncEvent::NAMESPACE_ATTRIBUTE, Some(nsid));
        Ok(())
    }

    /// Bytes and block size of a namespace.
    pub fn namespace(&self, nsid: u32) -> Option<(u64, u32)> {
        let ns = self.namespaces.list.get(nsid.wrapping_sub(1) as usize)?.as_ref()?;
        Some((ns.blocks << ns.shift, 1 << ns.shift))
    }

    /// Where a namespace that lies in one piece begins on the medium, in bytes.
    pub fn start_of(&self, nsid: u32) -> Option<u64> {
        let ns = self.namespaces.list.get(nsid.wrapping_sub(1) as usize)?.as_ref()?;
        (!ns.fragmented).then_some(ns.start)
    }

    /// Whether hosts create, format and delete namespaces.
    pub fn is_managed(&self) -> bool {
        self.namespaces.allocator.is_some()
    }

    /// Whether a namespace has metadata, or had some since the drive was started: the executor asks for it then.
    #[inline]
    pub fn has_metadata(&self) -> bool {
        self.namespaces.any_metadata
    }

    /// The zones of a namespace; `None` where it has none.
    pub fn zones(&self, nsid: u32) -> Option<&Zones> {
        self.zoned.iter().find(|s| s.nsid == nsid).map(Space::zones)
    }

    /// Takes a zone out of service, as a drive does whose flash is worn out: read only, or offline. Hosts that want to know
    /// are told at the next `Run`.
    ///
    /// # Errors
    /// There is no such zone, or it is offline and would come back.
    pub fn degrade_zone(&mut self, nsid: u32, zone: u32, offline: bool) -> Result<(), ManagementError> {
        let space = self.zoned.iter_mut().find(|s| s.nsid == nsid).ok_or(ManagementError::NoNamespace)?;
        space.engine.degrade(zone, offline).map_err(|_| ManagementError::Zones)?;
        self.note_zone(nsid, zone);
        Ok(())
    }

    /// A zone's descriptor has changed without a host's doing.
    pub(crate) fn note_zone(&mut self, nsid: u32, zone: u32) {
        let Some(start) = self.zones(nsid).map(|zones| zones.start(zone)) else { return };
        for ctrl in self.controllers.list.iter_mut().flatten() {
            let list = &mut ctrl.changed_zones;
            let known = list.iter().filter(|(ns, _)| *ns == nsid).count();
            // One more than a log page holds says that it does not hold them.
            if known <= CHANGED_ZONES_MAX {
                if let Err(at) = list.binary_search(&(nsid, start)) {
                    list.insert(at, (nsid, start));
                }
            }
        }
        self.note_event(AsyncEvent::ZONE_DESCRIPTOR_CHANGED, None);
    }

    /// Replaces the discovery log; persistent discovery controllers are notified at the next `Run`.
    pub fn set_discovery(&mut self, records: Vec<DiscoveryRecord>) {
        if self.discovery.records != records {
            self.discovery.records = records;
            self.discovery_changed();
        }
    }

    /// More records for the discovery log; as [`set_discovery`](Self::set_discovery), without a look at those that are there.
    pub fn add_discovery(&mut self, records: Vec<DiscoveryRecord>) {
        if !records.is_empty() {
            self.discovery.records.extend(records);
            self.discovery_changed();
        }
    }

    /// The discovery log without the records of a subsystem.
    pub fn remove_discovery(&mut self, subnqn: &str) {
        let before = self.discovery.records.len();
        self.discovery.records.retain(|r| r.entry.subnqn() != Some(subnqn));
        if self.discovery.records.len() != before {
            self.discovery_changed();
        }
    }

    fn discovery_changed(&mut self) {
        self.discovery.generation += 1;
        self.note_event(AsyncEvent::DISCOVERY_CHANGE, None);
    }

    /// How often the drive was powered on, this time included, and how often it lost power without being shut down: SMART
    /// tells.
    pub fn set_power_history(&mut self, cycles: u64, unsafe_shutdowns: u64) {
        (self.power.cycles, self.power.unsafe_shutdowns) = (cycles, unsafe_shutdowns);
    }

    /// What [`set_power_history`](Self::set_power_history) has set, and what has happened since.
    pub fn power_history(&self) -> (u64, u64) {
        (self.power.cycles, self.power.unsafe_shutdowns)
    }

    /// The power has gone, and is back: controllers are gone with their queues, commands die silently, and doors
    /// are asked to close their connections. Ring controllers show CSTS.CFS until they are reset. What the media has lost
    /// is the executor's affair, which also waits for `Done` of what it was given before.
    pub fn power_cut(&mut self) {
        self.power.cycles += 1;
        self.power.unsafe_shutdowns += 1;
        self.cut_zones();
        for c in 0..self.controllers.list.len() as u32 {
            if self.ctrl(c).is_some() {
                self.fatal(c);
            }
        }
        self.reservations_without_power();
        self.turn.more = true;
    }

    /// The media has failed for good: SMART warns from now on, and hosts that want to know are notified at the next `Run`.
    /// `read_only`: it takes no more writes.
    pub fn note_media_fault(&mut self, read_only: bool) {
        let warning = critical_warning::RELIABILITY | if read_only { critical_warning::READ_ONLY } else { 0 };
        if self.health.warning | warning != self.health.warning {
            self.health.warning |= warning;
            self.note_event(AsyncEvent::RELIABILITY, None);
            self.note_endurance_warning();
            self.save_telemetry(self.power.counted, "the media has failed");
        }
    }

    /// The media serves again after [`note_media_fault`](Self::note_media_fault): SMART no longer warns of that.
    pub fn note_media_restored(&mut self) {
        self.health.warning &= !critical_warning::RELIABILITY;
    }

    /// SMART's available spare is no more than this from now on, in percent: whatever the flash itself has.
    pub fn set_spare(&mut self, percent: u8) {
        self.health.spare_limit = percent.min(100);
        self.watch_spare();
    }

    /// SMART's available spare, in percent.
    pub(crate) fn available_spare(&self) -> u8 {
        let own = self.timing.0.as_ref().map_or(100, |inside| inside.available_spare()).min(self.health.spare_limit);
        self.drifted_smart(self.turn.now, own, 0).0
    }

    /// Hosts that want to know are told when the spare falls below its threshold.
    pub(crate) fn watch_spare(&mut self) {
        let low = self.available_spare() < SPARE_THRESHOLD;
        if low && self.health.warning & critical_warning::SPARE == 0 {
            self.health.warning |= critical_warning::SPARE;
            self.note_event(AsyncEvent::SPARE, None);
            self.note_endurance_warning();
        } else if !low {
            self.health.warning &= !critical_warning::SPARE;
        }
    }

    /// Hosts that asked for events of the endurance group are told that it has one.
    pub(crate) fn note_endurance_warning(&mut self) {
        let warning = self.critical_warning();
        for ctrl in self.controllers.list.iter_mut().flatten() {
            ctrl.endurance_event |= ctrl.features.endurance_events & warning != 0;
        }
        if self.controllers.list.iter().flatten().any(|ctrl| ctrl.endurance_event) {
            self.note_event(AsyncEvent::ENDURANCE_CHANGE, None);
        }
    }

    /// An event for every controller; reported when the drive next runs.
    pub(crate) fn note_event(&mut self, event: AsyncEvent, nsid: Option<u32>) {
        for c in 0..self.controllers.list.len() as u32 {
            self.note_event_at(c, event, nsid);
        }
    }

    /// An event for one controller, about a namespace.
    pub(crate) fn note_event_of(&mut self, c: u32, event: AsyncEvent, nsid: u32) {
        self.note_event_at(c, event, Some(nsid));
    }

    pub(crate) fn note_event_at(&mut self, c: u32, event: AsyncEvent, nsid: Option<u32>) {
        self.associate();
        let Some(ctrl) = self.ctrl_mut(c) else { return };
        if let Some(nsid) = nsid {
            note_changed(&mut ctrl.changed, nsid);
        }
        ctrl.aer.raise(event, ctrl.features.async_config);
        if ctrl.aer.reportable().is_some() {
            self.list_admin(c);
        }
        self.turn.more = true;
    }

    /// What was done so far.
    pub fn stats(&self) -> DriveStats {
        let tenants: Vec<TenantStats> = (0..self.tenants.list.len() as u16).map(|t| self.tenant_stats(t)).collect();
        DriveStats {
            work: self.total_work(),
            slots_used: self.slots.used,
            slots: self.slots.limit,
            bytes_in_flight: self.slots.bytes,
            admin: self.admin.served,
            tenants,
        }
    }

    /// How long the commands of every tenant took, in the order of the configuration.
    pub fn latencies(&self) -> Vec<Latencies> {
        self.tenants.list.iter().map(|t| t.latencies).collect()
    }

    /// Whether no command is being executed, and no admin command is kept until the drive has done its work.
    pub fn is_at_rest(&self) -> bool {
        let is_held = |faults: &crate::fault::state::Faults| !faults.held.is_empty() || !faults.admin.is_empty();
        self.slots.used == 0
            && self.faults.as_ref().is_none_or(|faults| !is_held(faults))
            && self.namespaces.jobs.iter().all(|job| job.waiter.is_none())
    }

    /// Bytes in flight, as [`DriveStats`] has them.
    #[inline]
    pub fn bytes_in_flight(&self) -> u64 {
        self.slots.bytes
    }

    /// What all tenants' commands came to.
    pub fn total_work(&self) -> Work {
        let mut sum = Work::default();
        for w in self.tenants.list.iter().map(|t| &t.work) {
            sum.reads += w.reads;
            sum.writes += w.writes;
            sum.others += w.others;
            sum.read_bytes += w.read_bytes;
            sum.write_bytes += w.write_bytes;
            sum.errors += w.errors;
        }
        sum
    }

    fn io_queues(&self) -> impl Iterator<Item = &Sq> {
        self.queues.sqs.iter().flatten().filter(|sq| sq.qid != 0)
    }

    fn tenant_stats(&self, tenant: u16) -> TenantStats {
        let t = &self.tenants.list[usize::from(tenant)];
        let queues = || self.io_queues().filter(|sq| sq.tenant == tenant);
        TenantStats {
            name: t.config.name.clone(),
            class: t.config.class,
            weight: t.config.weight,
            floor: t.config.floor,
            ceiling: t.config.ceiling,
            sla: t.config.sla,
            held: self.arbiter.is_held(t.key),
            work: t.work,
            controllers: self.controllers.list.iter().flatten().filter(|c| c.tenant == tenant).count() as u32,
            queues: queues().count() as u32,
            backlog: queues().map(|sq| u64::from(sq.waiting)).sum(),
            in_flight: queues().map(|sq| sq.in_flight).sum(),
        }
    }

    /// All controllers.
    pub fn controllers(&self) -> Vec<ControllerInfo> {
        let queues = |sqs: &[u32]| {
            let live = sqs.iter().skip(1).filter(|q| **q != NONE).map(|q| self.sq(*q));
            live.map(|sq| QueueInfo {
                qid: sq.qid,
                size: sq.size,
                class: sq.class,
                backlog: sq.waiting,
                in_flight: sq.in_flight,
            })
            .collect()
        };
        let info = |ctrl: &crate::controller::Controller| ControllerInfo {
            id: ctrl.id,
            host: ctrl.host.clone(),
            tenant: ctrl.tenant,
            ready: ctrl.ready(),
            ana: ctrl.ana,
            queues: queues(&ctrl.sqs),
        };
        self.controllers.list.iter().flatten().map(|c| info(c)).collect()
    }
}

/// Adds to a changed namespace list, ascending; more than fit become FFFFFFFFh alone.
fn note_changed(list: &mut Vec<u32>, nsid: u32) {
    if list.first() == Some(&u32::MAX) {
        return;
    }
    if let Err(at) = list.binary_search(&nsid) {
        list.insert(at, nsid);
    }
    if list.len() > CHANGED_MAX {
        list.clear();
        list.push(u32::MAX);
    }
}
