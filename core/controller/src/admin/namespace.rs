//! Namespace management and attachment (base 2.0, 5.22, 5.23 and 8.11), and what Identify says of them.

use super::{Admin, AdminOutcome};
use crate::controller::Transport;
use crate::data_pointer::check_pointer;
use crate::host::Host;
use crate::namespace::attachment::NamespaceRecord;
use crate::namespace::metadata::{Format, extended_formats, formats, lba_format};
use crate::namespace::namespace_job::Task;
use crate::namespace::{NSID_MAX, Namespace};
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_spec::nvme::Status;
use weir_spec::nvme::identify::{IdentifyController, IdentifyNamespace, NSID_ALL, csi, ctratt};
use weir_spec::nvme::log::AsyncEvent;
use weir_spec::nvme::namespace::{
    CTRATT_GRANULARITY, FNA_CRYPTO, Granularity, GranularityList, HostSoftwareFields, NWPC_ALL, attachment,
    checked_controller_list, format_progress, management, write_protect,
};
use weir_spec::nvme::protection::{DPC_ALL, IdentifyNvmNamespace, MC_EXTENDED, MC_SEPARATE, ProtectionSettings};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros};

/// Bytes of a controller list.
const LIST: usize = 4096;

const INVALID: Status = Status::INVALID_FIELD.dnr();

impl Subsystem {
    /// Namespace Management (base 2.0, 5.23): creates one, or deletes one or all.
    pub(super) fn namespace_management<H: Host>(&mut self, admin: &Admin, host: &mut H) -> AdminOutcome {
        let done = match admin.sqe.cdw10.get() & 0xf {
            management::CREATE => self.create_namespace(admin, host),
            management::DELETE => self.delete_namespaces(admin),
            _ => Err(INVALID),
        };
        done.unwrap_or_else(AdminOutcome::status)
    }

    fn create_namespace<H: Host>(&mut self, admin: &Admin, host: &mut H) -> Result<AdminOutcome, Status> {
        match (admin.sqe.cdw11.get() >> 24) as u8 {
            csi::NVM => {}
            csi::ZNS => return Err(Status::COMMAND_SET_NOT_SUPPORTED.dnr()),
            _ => return Err(Status::INVALID_COMMAND_SET.dnr()),
        }
        let mut bytes = [0; size_of::<HostSoftwareFields>()];
        check_pointer(&admin.data, bytes.len() as u64)?;
        host.read_data(admin.owner, &admin.data, 0, &mut bytes)?;
        let fields = HostSoftwareFields::read_from_bytes(&bytes).map_err(|_| Status::INTERNAL_ERROR)?;
        let (format, shift) = self.asked_format(&fields)?;
        if !self.knows_format(admin.c, &format) {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.dnr());
        }
        // No bit of a storage tag can be masked: a host says nothing, or all.
        let mask = format.storage_mask();
        if fields.lbstm.get() != 0 && fields.lbstm.get() & mask != mask {
            return Err(INVALID);
        }
        self.check_groups(&fields)?;
        let (size, capacity) = (fields.nsze.get(), fields.ncap.get());
        if size != capacity {
            return Err(if capacity > size { INVALID } else { Status::THIN_PROVISIONING_NOT_SUPPORTED.dnr() });
        }
        let wanted = size.checked_mul(1 << shift).filter(|b| *b > 0);
        let allocator = self.namespaces.allocator.as_mut().ok_or(Status::INVALID_OPCODE.dnr())?;
        let nn = (self.namespaces.list.len() as u32).min(NSID_MAX);
        let free = |nsid: &u32| allocator.list(*nsid).is_empty();
        let nsid = (1..=nn).find(free).ok_or(Status::NAMESPACE_ID_UNAVAILABLE.dnr())?;
        let bytes = match wanted {
            Some(bytes) => bytes,
            None if size == 0 => return Err(INVALID),
            None => u64::MAX,
        };
        let Some(extents) = allocator.allocate(nsid, bytes) else {
            // How much it would need (base 2.0, Figure 97).
            return Ok(AdminOutcome::Refused(Status::NAMESPACE_INSUFFICIENT_CAPACITY.dnr(), bytes));
        };
        let record = NamespaceRecord { bytes, private: fields.nmic & 1 == 0, everyone: false, hosts: Vec::new() };
        self.namespaces.records.insert(nsid, record);
        let task = Task::Create { format, shift };
        self.start_namespace_job(task, &[nsid], extents, (admin, u64::from(nsid)));
        Ok(AdminOutcome::Parked)
    }

    /// The LBA format and the protection information that a host asks for.
    fn asked_format(&self, fields: &HostSoftwareFields) -> Result<(Format, u32), Status> {
        let index = usize::from(fields.flbas & 0xf | fields.flbas >> 1 & 0x30);
        let settings = ProtectionSettings(fields.dps);
        let extended = fields.flbas >> 4 & 1 == 1;
        self.format_of(index, extended, settings.kind(), settings.first() == 1)
    }

    /// An LBA format, if the drive has it and it can hold what is asked for.
    ///
    /// # Errors
    /// Invalid Format.
    pub(crate) fn format_of(
        &self,
        index: usize,
        extended: bool,
        kind: u8,
        first: bool,
    ) -> Result<(Format, u32), Status> {
        let invalid = Status::INVALID_FORMAT.dnr();
        let management = self.config.management.as_ref().ok_or(invalid)?;
        let layout = formats(management).nth(index).ok_or(invalid)?;
        let format = Format::new(index, layout, (kind, first), extended).ok_or(invalid)?;
        Ok((format, layout.shift.into()))
    }

    /// The groups, sets and placement handles that a namespace is to belong to.
    fn check_groups(&self, fields: &HostSoftwareFields) -> Result<(), Status> {
        let group = fields.endgid.get();
        if group != 0 && group != self.endurance_group() || fields.nvmsetid.get() != 0 {
            return Err(INVALID);
        }
        if ![0, self.ana_group()].contains(&fields.anagrpid.get()) {
            return Err(Status::ANA_GROUP_ID_INVALID.dnr());
        }
        // A drive's namespaces have all of its placement handles, in order.
        let handles = self.placement.as_ref().map_or(0, |p| u16::from(p.handles));
        let count = fields.nphndls.get();
        let in_order = fields.phndls.iter().zip(0..count).all(|(handle, n)| handle.get() == n);
        if count != 0 && (count != handles || !in_order) {
            return Err(Status::INVALID_PLACEMENT_HANDLE_LIST.dnr());
        }
        Ok(())
    }

    fn delete_namespaces(&mut self, admin: &Admin) -> Result<AdminOutcome, Status> {
        let nsids = self.chosen(admin.sqe.nsid.get())?;
        for nsid in &nsids {
            if self.namespaces.is_busy(*nsid) {
                return Err(Status::FORMAT_IN_PROGRESS);
            }
            self.check_unprotected(*nsid)?;
            self.check_unreserved(admin.c, *nsid)?;
        }
        self.start_namespace_job(Task::Delete, &nsids, Vec::new(), (admin, 0));
        Ok(AdminOutcome::Parked)
    }

    /// The allocated namespaces of an NSID that may be all.
    fn chosen(&self, nsid: u32) -> Result<Vec<u32>, Status> {
        if nsid == NSID_ALL {
            return Ok(self.namespaces.nsids().collect());
        }
        self.namespaces.active(nsid).map(|_| alloc::vec![nsid])
    }

    pub(super) fn check_unprotected(&self, nsid: u32) -> Result<(), Status> {
        let ns = self.namespaces.list.get(nsid.wrapping_sub(1) as usize).and_then(Option::as_ref);
        match ns.filter(|ns| u32::from(ns.protect) != write_protect::NONE) {
            Some(_) => Err(Status::NAMESPACE_WRITE_PROTECTED.dnr()),
            None => Ok(()),
        }
    }

    /// Namespace Attachment (base 2.0, 5.22): all controllers of the list, or none.
    pub(super) fn namespace_attachment<H: Host>(&mut self, admin: &Admin, host: &mut H) -> AdminOutcome {
        let mut list = [0; LIST];
        let read = check_pointer(&admin.data, LIST as u64)
            .and_then(|()| host.read_data(admin.owner, &admin.data, 0, &mut list));
        let done = read.and_then(|()| self.change_attachments(admin, &list));
        AdminOutcome::status(done.err().unwrap_or(Status::SUCCESS))
    }

    fn change_attachments(&mut self, admin: &Admin, list: &[u8]) -> Result<(), Status> {
        let nsid = admin.sqe.nsid.get();
        self.namespaces.active(nsid)?;
        self.check_unreserved(admin.c, nsid)?;
        if self.namespaces.is_busy(nsid) {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        let invalid = Status::CONTROLLER_LIST_INVALID.dnr();
        let ids = checked_controller_list(list).ok_or(invalid)?;
        let place = |id: u16| self.controllers.list.iter().position(|c| c.as_ref().is_some_and(|c| c.id == id));
        let controllers: Vec<u32> = ids.map(|id| place(id).map(|c| c as u32)).collect::<Option<_>>().ok_or(invalid)?;
        let attached = |c: &u32| self.is_attached(*c, nsid);
        let attach = match admin.sqe.cdw10.get() & 0xf {
            attachment::ATTACH => {
                if controllers.iter().any(attached) {
                    return Err(Status::NAMESPACE_ALREADY_ATTACHED.dnr());
                }
                let private = self.namespaces.records.get(&nsid).is_some_and(|record| record.private);
                if private && (controllers.len() > 1 || self.attached_to(nsid).next().is_some()) {
                    return Err(Status::NAMESPACE_IS_PRIVATE.dnr());
                }
                true
            }
            attachment::DETACH => {
                if !controllers.iter().all(attached) {
                    return Err(Status::NAMESPACE_NOT_ATTACHED.dnr());
                }
                false
            }
            _ => return Err(INVALID),
        };
        for c in controllers {
            self.attach_namespace(c, nsid, attach);
            self.note_event_of(c, AsyncEvent::NAMESPACE_ATTRIBUTE, nsid);
        }
        self.relaid_now();
        Ok(())
    }

    /// NMIC of a namespace: whether several controllers may have it attached.
    pub(super) fn nmic(&self, nsid: u32) -> u8 {
        let private = self.namespaces.records.get(&nsid).is_some_and(|record| record.private);
        u8::from(self.shared() && !private)
    }

    /// What Identify Controller says of namespace management.
    pub(super) fn identify_management(&self, id: &mut IdentifyController) {
        let Some(allocator) = &self.namespaces.allocator else { return };
        id.ctratt |= U32::new(CTRATT_GRANULARITY);
        if self.config.management.as_ref().is_some_and(|management| management.metadata) {
            id.ctratt |= U32::new(ctratt::EXTENDED_FORMATS);
        }
        id.tnvmcap = u128::from(allocator.capacity()).to_le_bytes();
        id.unvmcap = u128::from(allocator.free()).to_le_bytes();
        id.fna = FNA_CRYPTO;
        id.nwpc = NWPC_ALL;
    }

    /// What Identify Namespace says of LBA formats.
    pub(super) fn format_page(&self, c: u32, nsid: u32, ns: &Namespace, id: &mut IdentifyNamespace) {
        let Some(allocator) = &self.namespaces.allocator else { return };
        self.formats_page(c, id);
        id.flbas = ns.format.flbas();
        id.dps = ns.format.dps();
        id.fpi = self.format_progress(nsid);
        id.nsattr = u8::from(ns.protect != 0);
        id.nvmcap = u128::from(allocator.allocated(nsid)).to_le_bytes();
    }

    fn formats_page(&self, c: u32, id: &mut IdentifyNamespace) {
        let Some(management) = &self.config.management else { return };
        let mut count = 0;
        for (to, format) in id.lbaf.iter_mut().zip(formats(management)) {
            *to = lba_format(format);
            count += 1;
        }
        id.nlbaf = count - 1;
        if management.metadata {
            // Over fabrics there are extended blocks only (base 2.0, 4.2).
            let fabrics = self.ctrl(c).is_some_and(|ctrl| ctrl.transport == Transport::Fabrics);
            id.mc = if fabrics { MC_EXTENDED } else { MC_EXTENDED | MC_SEPARATE };
            id.dpc = DPC_ALL;
        }
    }

    /// What the NVM command set's Identify Namespace says of LBA formats, and of the one that a namespace has.
    pub(super) fn extended_formats_page(&self, format: Option<&Format>) -> IdentifyNvmNamespace {
        let management = self.config.management.as_ref();
        let mut page = management.map_or_else(IdentifyNvmNamespace::default, extended_formats);
        page.lbstm = U64::new(format.map_or(0, Format::storage_mask));
        page
    }

    /// What all namespaces have in common (base 2.0, 5.17.2.1: NSID FFFFFFFFh).
    pub(super) fn common_page(&self, c: u32) -> IdentifyNamespace {
        let mut id = IdentifyNamespace::new_zeroed();
        self.formats_page(c, &mut id);
        id.nmic = u8::from(self.shared());
        id.dlfeat = self.deallocation();
        id.fpi = format_progress(0);
        id
    }

    /// FPI of a namespace.
    pub(super) fn format_progress(&self, nsid: u32) -> u8 {
        match self.namespaces.allocator.is_some() {
            true => format_progress(self.left_to_format(nsid)),
            false => 0,
        }
    }

    /// Namespace Granularity List (CNS 16h): one for all LBA formats.
    pub(super) fn list_granularities(&self, page: &mut [u8]) -> Result<(), Status> {
        let allocator = self.namespaces.allocator.as_ref().ok_or(INVALID)?;
        let mut list = GranularityList::new_zeroed();
        let granule = U64::new(allocator.granule());
        list.granularities[0] = Granularity { nszegran: granule, ncapgran: granule };
        super::identify::put(page, &list)
    }
}
