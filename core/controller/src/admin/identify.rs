//! Identify (base 2.0, 5.17; NVM 1.0, 4.1.5).

use super::ana::{GROUP, GROUP_NAMED, TRANSITION};
use super::{Admin, AdminOutcome};
use crate::admin::async_events;
use crate::config::SubsystemKind;
use crate::controller::{Controller, KAS, Transport};
use crate::host::Host;
use crate::log_state::error_log::ERROR_ENTRIES;
use crate::log_state::persistent_events::SIZE;
use crate::maintenance::{firmware, sanitize};
use crate::namespace::Namespace;
use crate::power::{self, thermal};
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_spec::nvme::controller_class::{ControllerClass, MAGIC, VERSION, wishes};
use weir_spec::nvme::feature::async_config;
use weir_spec::nvme::identify::{
    IDENTIFY_LEN, IdentifyController, IdentifyIndependentNamespace, IdentifyNamespace, NSID_ALL, NamespaceDescriptor,
    cns, controller_type, csi, ctratt, nidt, put_namespace_descriptor,
};
use weir_spec::nvme::maintenance::{ana, self_test};
use weir_spec::nvme::wire::set_text;
use weir_spec::nvme::zns::{IdentifyZonedController, NOTICES};
use weir_spec::nvme::{Status, register};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

/// Abort command limit, 0-based.
const ACL: u8 = 3;
/// Log page attributes: effects log, extended data, telemetry, persistent events, supported pages and feature effects.
const LPA: u8 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5;
/// SGLs over fabrics: supported, in-capsule offsets, transport data blocks.
const SGLS: u32 = 1 | 1 << 20 | 1 << 21;
/// SGLS over PCIe (base 2.0, Figure 275): bytes of any alignment, bit buckets, lists longer than what is transferred.
const SGLS_RINGS: u32 = 1 | 1 << 16 | 1 << 18;
/// VWC: flush with FFFFFFFFh flushes all.
const FLUSH_ALL: u8 = 0b11 << 1;

impl Subsystem {
    /// Identify.
    pub(crate) fn identify<H: Host>(&mut self, admin: &Admin, host: &mut H) -> AdminOutcome {
        let mut page = core::mem::take(&mut self.admin.scratch);
        page.fill(0);
        let built = self.build_identify(admin, &mut page);
        let sent = built.and_then(|()| admin.answer(host, 0, &page));
        self.admin.scratch = page;
        AdminOutcome::status(sent.err().unwrap_or(Status::SUCCESS))
    }

    fn build_identify(&self, admin: &Admin, page: &mut [u8]) -> Result<(), Status> {
        let sqe = &admin.sqe;
        let (which, from) = (sqe.cdw10.get() as u8, (sqe.cdw10.get() >> 16) as u16);
        let (nsid, set) = (sqe.nsid.get(), (sqe.cdw11.get() >> 24) as u8);
        let invalid = Status::INVALID_FIELD.dnr();
        if which == cns::CONTROLLER {
            return self.identify_controller(admin.c, page);
        }
        if self.config.kind == SubsystemKind::Discovery {
            return Err(invalid);
        }
        match which {
            cns::NAMESPACE | cns::ALLOCATED_NAMESPACE => self.identify_namespace(admin.c, nsid, which, page),
            cns::ACTIVE_NAMESPACES | cns::ALLOCATED_NAMESPACES => {
                self.list_namespaces(admin.c, (which, nsid), None, page)
            }
            cns::CS_ACTIVE_NAMESPACES | cns::CS_ALLOCATED_NAMESPACES if self.has_set(admin.c, set) => {
                self.list_namespaces(admin.c, (which, nsid), Some(set), page)
            }
            cns::CS_NAMESPACE if set == csi::ZNS => self.identify_zones(admin.c, nsid, page),
            cns::CS_CONTROLLER if set == csi::ZNS && self.has_set(admin.c, set) => {
                // Appends are as long as other writes.
                put(page, &IdentifyZonedController::default())
            }
            cns::NAMESPACE_DESCRIPTORS => self.describe_namespace(admin.c, nsid, page),
            cns::CS_NAMESPACE if set == csi::NVM && nsid == NSID_ALL && self.namespaces.allocator.is_some() => {
                put(page, &self.extended_formats_page(None))
            }
            cns::CS_NAMESPACE if set == csi::NVM => {
                let ns = self.visible(admin.c, nsid)?;
                put(page, &self.extended_formats_page(Some(&ns.format)))
            }
            cns::CS_CONTROLLER if set == csi::NVM => put(page, &self.nvm_limits()),
            cns::CS_INDEPENDENT_NAMESPACE => {
                let ns = self.visible(admin.c, nsid)?;
                let (nmic, endgid) = (self.nmic(nsid), U16::new(self.endurance_group()));
                let (fpi, nsattr) = (self.format_progress(nsid), u8::from(ns.protect != 0));
                put(
                    page,
                    &IdentifyIndependentNamespace {
                        nmic,
                        fpi,
                        nsattr,
                        nstat: 1,
                        endgid,
                        anagrpid: U32::new(self.ana_group()),
                        rescap: crate::reservation::RESCAP,
                        ..Default::default()
                    },
                )
            }
            cns::NAMESPACE_CONTROLLERS => {
                self.namespaces.active(nsid)?;
                self.list_controllers(from, Some(nsid), page)
            }
            cns::ENDURANCE_GROUPS => self.list_endurance_groups(sqe.cdw11.get() as u16, page),
            cns::CONTROLLERS => self.list_controllers(from, None, page),
            cns::NAMESPACE_GRANULARITY => self.list_granularities(page),
            cns::COMMAND_SETS => {
                // One combination: all that there are.
                page[0] = 1 << csi::NVM | if self.zoned.is_empty() { 0 } else { 1 << csi::ZNS };
                Ok(())
            }
            _ => Err(invalid),
        }
    }

    /// DLFEAT: write zeroes may deallocate, and what a deallocated block reads as, where that is known.
    pub(super) fn deallocation(&self) -> u8 {
        1 << 3 | u8::from(self.config.reads_zeroes)
    }

    /// Whether several controllers can see the namespaces.
    pub(super) fn shared(&self) -> bool {
        self.config.max_controllers > 1
    }

    /// ANAGRPID of the namespaces; 0 where no access is asymmetric.
    pub(super) fn ana_group(&self) -> u32 {
        if self.shared() { GROUP } else { 0 }
    }

    fn identify_controller(&self, c: u32, page: &mut [u8]) -> Result<(), Status> {
        let ctrl = self.ctrl(c).ok_or(Status::INTERNAL_ERROR)?;
        let config = &self.config;
        let mut id = IdentifyController::new_zeroed();
        set_text(&mut id.sn, &self.shown_serial(c), b' ');
        set_text(&mut id.mn, &config.model, b' ');
        id.fr = self.maintenance.firmware.running();
        set_text(&mut id.subnqn, &config.subnqn, 0);
        if config.faults {
            // In 100 ms.
            (id.crdt1, id.crdt2, id.crdt3) = (U16::new(1), U16::new(10), U16::new(50));
        }
        id.cmic = u8::from(self.shared()) << 1;
        id.mdts = config.mdts;
        id.cntlid = U16::new(ctrl.id);
        id.ver = U32::new(register::VERSION_2_0);
        id.ctratt = U32::new(ctratt::HOST_ID_128);
        id.aerl = async_events::LIMIT as u8 - 1;
        id.elpe = ERROR_ENTRIES as u8 - 1;
        id.lpa = LPA;
        id.kas = U16::new(KAS);
        id.maxcmd = U16::new(config.max_queue_entries.min(0xffff) as u16);
        if ctrl.transport == Transport::Rings {
            id.sgls = U32::new(SGLS_RINGS);
        }
        if ctrl.transport == Transport::Fabrics {
            id.sgls = U32::new(SGLS);
            id.ioccsz = U32::new((64 + config.in_capsule) / 16);
            id.iorcsz = U32::new(1);
            id.msdbd = 1;
            // Disconnect of single I/O queues.
            id.ofcs = U16::new(1);
        }
        if config.kind == SubsystemKind::Discovery {
            id.cntrltype = controller_type::DISCOVERY;
            id.oaes = U32::new(async_config::DISCOVERY);
            return put(page, &id);
        }
        id.cntrltype = controller_type::IO;
        let shared = if self.shared() { async_config::ANA } else { 0 };
        let notices = async_config::NAMESPACE
            | async_config::FIRMWARE
            | async_config::ENDURANCE
            | async_config::LBA_STATUS
            | shared;
        id.oaes = U32::new(notices | if self.zoned.is_empty() { 0 } else { NOTICES });
        id.acl = ACL;
        self.describe_upkeep(&mut id);
        let capacity: u128 = self.namespaces.list.iter().flatten().map(|ns| u128::from(ns.blocks) << ns.shift).sum();
        id.tnvmcap = capacity.to_le_bytes();
        self.identify_management(&mut id);
        id.sqes = 0x66;
        id.cqes = 0x44;
        id.nn = U32::new(self.namespaces.list.len() as u32);
        id.mnan = id.nn;
        id.oacs = U16::new(self.optional_admin(ctrl));
        id.oncs = U16::new(self.optional_io(ctrl));
        id.vwc = FLUSH_ALL | u8::from(config.volatile_write_cache);
        self.identify_placement(&mut id);
        self.describe_controller_io(&mut id);
        let class = self.class_of_controller(ctrl);
        id.vs[..class.as_bytes().len()].copy_from_slice(class.as_bytes());
        put(page, &id)
    }

    /// What a host cannot know else: in which class its operator has put it.
    fn class_of_controller(&self, ctrl: &Controller) -> ControllerClass {
        let tenant = &self.tenants.list[usize::from(ctrl.tenant)].config;
        let counts = if ctrl.counts(tenant.class_from) { wishes::COUNT } else { 0 };
        let urgent = if tenant.urgent { wishes::URGENT } else { 0 };
        ControllerClass {
            magic: MAGIC,
            version: VERSION,
            class: tenant.class.bits(),
            wishes: counts | urgent,
            rsvd7: 0,
        }
    }

    /// Firmware, self-test, persistent events, ANA, temperature, sanitize and power states.
    fn describe_upkeep(&self, id: &mut IdentifyController) {
        id.frmw = firmware::FRMW;
        id.fwug = firmware::GRANULARITY;
        id.mtfa = U16::new(1);
        id.edstt = U16::new(self.extended_test_minutes());
        id.dsto = self_test::ONE_AT_A_TIME;
        id.pels = U32::new(SIZE);
        if self.shared() {
            id.cmic |= ana::CMIC;
            let named = if self.namespaces.allocator.is_some() { GROUP_NAMED } else { 0 };
            (id.anatt, id.anacap) = (TRANSITION, ana::CAPABILITIES | named);
            (id.anagrpmax, id.nanagrpid) = (U32::new(GROUP), U32::new(GROUP));
        }
        id.wctemp = U16::new(thermal::WARNING);
        id.cctemp = U16::new(thermal::CRITICAL);
        id.hctma = U16::new(1);
        id.mntmt = U16::new(thermal::LEAST);
        id.mxtmt = U16::new(thermal::MOST);
        id.sanicap = U32::new(if self.can_sanitize() { sanitize::CAPABILITIES } else { 0 });
        let states = power::descriptors();
        id.psd[..states.len()].copy_from_slice(&states);
        id.npss = states.len() as u8 - 1;
        id.apsta = 1;
    }

    /// An inactive namespace is answered with zeroes (base 2.0, 5.17.2.1).
    fn identify_namespace(&self, c: u32, nsid: u32, which: u8, page: &mut [u8]) -> Result<(), Status> {
        if nsid == NSID_ALL && which == cns::NAMESPACE && self.namespaces.allocator.is_some() {
            return put(page, &self.common_page(c));
        }
        let seen = which == cns::ALLOCATED_NAMESPACE || self.is_attached(c, nsid);
        match self.namespaces.list.get(nsid.wrapping_sub(1) as usize) {
            Some(Some(ns)) if seen && self.sees(c, ns) => put(page, &self.namespace_page(c, nsid, ns)),
            Some(_) => Ok(()),
            None => Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr()),
        }
    }

    fn namespace_page(&self, c: u32, nsid: u32, ns: &Namespace) -> IdentifyNamespace {
        let mut id = IdentifyNamespace::new_zeroed();
        let blocks = U64::new(ns.blocks);
        (id.nsze, id.ncap, id.nuse) = (blocks, blocks, blocks);
        id.lbaf[0].lbads = ns.shift as u8;
        id.nmic = self.nmic(nsid);
        id.dlfeat = self.deallocation();
        id.nvmcap = (u128::from(ns.blocks) << ns.shift).to_le_bytes();
        // Preferred granularities of 4 KiB, 0-based in blocks (NSFEAT bit 4).
        let page = U16::new((4096 >> ns.shift) - 1);
        id.nsfeat = 1 << 4;
        (id.npwg, id.npwa, id.npdg, id.npda, id.nows) = (page, page, page, page, page);
        id.nguid = self.shown_uuid(c, nsid, ns.uuid);
        id.endgid = U16::new(self.endurance_group());
        self.format_page(c, nsid, ns, &mut id);
        self.describe_namespace_io(ns, &mut id);
        id.anagrpid = U32::new(self.ana_group());
        if let Some(zones) = self.zones_of(ns) {
            let config = zones.config();
            id.ncap = U64::new(u64::from(config.zones) * u64::from(config.capacity));
            id.nuse = id.ncap;
        }
        id
    }

    fn list_namespaces(
        &self,
        c: u32,
        (which, after): (u8, u32),
        set: Option<u8>,
        page: &mut [u8],
    ) -> Result<(), Status> {
        if after >= NSID_ALL - 1 {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
        }
        let listed = |ns: &Namespace| self.sees(c, ns) && set.is_none_or(|set| set == ns.set());
        let allocated = matches!(which, cns::ALLOCATED_NAMESPACES | cns::CS_ALLOCATED_NAMESPACES);
        let numbered = (1u32..).zip(&self.namespaces.list).filter(|(_, ns)| ns.as_ref().is_some_and(listed));
        let seen = numbered.map(|(nsid, _)| nsid).filter(|nsid| allocated || self.is_attached(c, *nsid));
        let nsids = seen.filter(|nsid| *nsid > after);
        for (to, nsid) in page.chunks_exact_mut(4).zip(nsids) {
            to.copy_from_slice(&nsid.to_le_bytes());
        }
        Ok(())
    }

    fn describe_namespace(&self, c: u32, nsid: u32, page: &mut [u8]) -> Result<(), Status> {
        let ns = self.visible(c, nsid)?;
        let set = [ns.set()];
        let uuid = self.shown_uuid(c, nsid, ns.uuid);
        let all = [(nidt::UUID, &uuid[..]), (nidt::NGUID, &uuid[..]), (nidt::CSI, &set[..])];
        let mut at = 0;
        for (kind, id) in all {
            at = put_namespace_descriptor(page, at, NamespaceDescriptor { kind, id }).ok_or(Status::INTERNAL_ERROR)?;
        }
        Ok(())
    }

    /// The controllers of the subsystem, or those that a namespace is attached to.
    fn list_controllers(&self, from: u16, nsid: Option<u32>, page: &mut [u8]) -> Result<(), Status> {
        let listed = self
            .controllers
            .list
            .iter()
            .flatten()
            .filter(|c| nsid.is_none_or(|nsid| c.namespaces.has(nsid) && !self.hides_namespace(nsid)));
        let ids: Vec<u16> = listed.map(|c| c.id).filter(|id| *id >= from).take(2047).collect();
        page[..2].copy_from_slice(&(ids.len() as u16).to_le_bytes());
        for (to, id) in page[2..].chunks_exact_mut(2).zip(&ids) {
            to.copy_from_slice(&id.to_le_bytes());
        }
        Ok(())
    }
}

pub(super) fn put<T: IntoBytes + zerocopy::Immutable>(page: &mut [u8], value: &T) -> Result<(), Status> {
    const { assert!(size_of::<T>() == IDENTIFY_LEN) };
    page.copy_from_slice(value.as_bytes());
    Ok(())
}
