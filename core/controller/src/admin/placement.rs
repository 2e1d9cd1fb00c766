//! What Identify, the log pages, the features and the directives say of data placement.

use super::{Admin, AdminOutcome};
use crate::config::SubsystemKind;
use crate::data_pointer::check_pointer;
use crate::host::Host;
use crate::io::placement::{EVENTS, GROUP, Placement};
use crate::operator::SPARE_THRESHOLD;
use crate::subsystem::Subsystem;
use alloc::vec::Vec;
use weir_flash::{Flash, Isolation, UNIT};
use weir_spec::nvme::Status;
use weir_spec::nvme::fdp::{
    Attributes, Configuration, ConfigurationsHeader, DirectiveDw11, DirectiveParameters, EnduranceGroup, EventsDw11,
    EventsHeader, HandleDescriptor, LSP_HOST_EVENTS, Mode, Statistics, SupportedEvent, UsageDescriptor, UsageHeader,
    directive, handle_type, usage,
};
use weir_spec::nvme::identify::{IdentifyController, NSID_ALL, ctratt};
use weir_spec::nvme::log::{GetLogDw10, lid};
use weir_units::Nanos;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64, U128};

const INVALID: Status = Status::INVALID_FIELD.dnr();
/// The log pages of data placement.
pub(super) const PAGES: [u8; 4] = [lid::FDP_CONFIGURATIONS, lid::FDP_USAGE, lid::FDP_STATISTICS, lid::FDP_EVENTS];

impl Subsystem {
    /// ENDGID of the namespaces; 0 where there are no endurance groups.
    pub(super) fn endurance_group(&self) -> u16 {
        if self.config.kind == SubsystemKind::Io { GROUP } else { 0 }
    }

    /// What Identify Controller says of it.
    pub(super) fn identify_placement(&self, id: &mut IdentifyController) {
        id.ctratt |= U32::new(ctratt::ENDURANCE_GROUPS | if self.placement.is_some() { ctratt::FDP } else { 0 });
        id.endgidmax = U16::new(GROUP);
    }

    /// Endurance group list from an identifier on.
    pub(super) fn list_endurance_groups(&self, from: u16, page: &mut [u8]) -> Result<(), Status> {
        let group = Some(self.endurance_group()).filter(|g| *g != 0).ok_or(INVALID)?;
        if from <= group {
            page[..4].copy_from_slice(&[1, 0, group as u8, 0]);
        }
        Ok(())
    }

    /// A log page of the endurance group; `None` for other pages.
    pub(super) fn placement_log(&self, admin: &Admin, lid: u8) -> Option<Result<Vec<u8>, Status>> {
        if !PAGES.contains(&lid) {
            return None;
        }
        let (placement, flash) = (self.placement.as_ref()?, self.flash()?);
        if let Err(status) = self.endurance_group_of((admin.sqe.cdw11.get() >> 16) as u16) {
            return Some(Err(status));
        }
        Some(Ok(match lid {
            lid::FDP_CONFIGURATIONS => self.configurations(placement, flash),
            lid::FDP_USAGE => {
                let header = UsageHeader { nruh: U16::new(placement.handles.into()), ..Default::default() };
                let each = UsageDescriptor { ruha: usage::CONTROLLER_SPECIFIED, ..Default::default() };
                let each = each.as_bytes().repeat(placement.handles.into());
                [header.as_bytes(), &each].concat()
            }
            lid::FDP_STATISTICS => {
                let counted = flash.fdp_statistics().unwrap_or_default();
                let wide = |n: u64| U128::new(n.into());
                let (hbmw, mbmw) = (wide(counted.host_written), wide(counted.media_written));
                Statistics { hbmw, mbmw, mbe: wide(counted.media_erased), ..Default::default() }.as_bytes().to_vec()
            }
            _ => {
                let host = GetLogDw10(admin.sqe.cdw10.get()).lsp() as u8 & LSP_HOST_EVENTS != 0;
                let events = if host { &placement.host_events } else { &placement.controller_events };
                let header = EventsHeader { count: U32::new(events.len() as u32), ..Default::default() };
                let events = events.iter().flat_map(|e| e.as_bytes()).copied();
                header.as_bytes().iter().copied().chain(events).collect()
            }
        }))
    }

    fn configurations(&self, placement: &Placement, flash: &Flash) -> Vec<u8> {
        let Some(fdp) = flash.fdp() else { return Vec::new() };
        let size = size_of::<Configuration>() + size_of::<HandleDescriptor>() * usize::from(placement.handles);
        let header = ConfigurationsHeader {
            sze: U32::new((size_of::<ConfigurationsHeader>() + size) as u32),
            ..Default::default()
        };
        let volatile = u8::from(self.config.volatile_write_cache);
        let configuration = Configuration {
            dsze: U16::new(size as u16),
            fdpa: Attributes(0).with_rgif(placement.rgif).with_fdpvwc(volatile).with_fdpcv(1).0,
            nrg: U32::new(placement.groups.into()),
            nruh: U16::new(placement.handles.into()),
            maxpids: U16::new(placement.identifiers() as u16 - 1),
            nns: U32::new(self.namespaces.list.iter().flatten().count() as u32),
            runs: U64::new(u64::from(fdp.reclaim_unit()) * u64::from(UNIT)),
            ..Default::default()
        };
        let mut page = [header.as_bytes(), configuration.as_bytes()].concat();
        for handle in 0..placement.handles {
            let ruht = match fdp.config().isolation(handle) {
                Isolation::Initial => handle_type::INITIALLY_ISOLATED,
                Isolation::Persistent => handle_type::PERSISTENTLY_ISOLATED,
            };
            page.extend_from_slice(HandleDescriptor { ruht, ..Default::default() }.as_bytes());
        }
        page
    }

    /// Whether an endurance group is the one that there is.
    pub(super) fn endurance_group_of(&self, group: u16) -> Result<(), Status> {
        if group == GROUP { Ok(()) } else { Err(INVALID) }
    }

    /// Endurance group information. What the flash was written is told where there is one.
    pub(super) fn endurance(&self, now: Nanos) -> EnduranceGroup {
        let life = self.lifetime(now);
        let work = life.work;
        let inside = self.timing.0.as_deref();
        let media_written = inside.and_then(|inside| inside.media_written()).unwrap_or(work.write_bytes);
        let billions = |bytes: u64| U128::new(u128::from(bytes.div_ceil(1_000_000_000)));
        let count = |n: u64| U128::new(n.into());
        let capacity: u64 = self.namespaces.list.iter().flatten().map(|ns| ns.blocks << ns.shift).sum();
        EnduranceGroup {
            critical_warning: self.critical_warning(),
            available_spare: self.available_spare(),
            spare_threshold: SPARE_THRESHOLD,
            read: billions(work.read_bytes),
            written: billions(work.write_bytes),
            media_written: billions(media_written),
            percentage_used: inside.map_or(0, |inside| inside.percentage_used()),
            host_reads: count(work.reads),
            host_writes: count(work.writes),
            media_errors: count(life.media_errors),
            error_entries: count(life.errors),
            capacity: count(capacity),
            ..Default::default()
        }
    }

    /// Get Features 1Dh: the mode of an endurance group.
    pub(super) fn placement_mode(&self, cdw11: u32) -> Result<u32, Status> {
        if cdw11 & 0xffff == GROUP.into() { Ok(Mode(0).with_fdpe(1).0) } else { Err(INVALID) }
    }

    /// Set Features 1Dh: an endurance group with namespaces keeps its mode (base 2.1, 5.1.25.1.20).
    pub(super) fn set_placement_mode(&self, admin: &Admin) -> Result<u32, Status> {
        self.placement_mode(admin.sqe.cdw11.get())?;
        Err(Status::COMMAND_SEQUENCE_ERROR.dnr())
    }

    /// The reclaim unit handle that features 1Eh is about, and how many event types.
    fn events_of(&self, admin: &Admin) -> Result<(&Placement, u8, usize), Status> {
        self.namespaces.active(admin.sqe.nsid.get())?;
        let dw11 = EventsDw11(admin.sqe.cdw11.get());
        let placement = self.placement.as_ref().ok_or(INVALID)?;
        let handle = u8::try_from(dw11.phndl()).ok().filter(|h| *h < placement.handles).ok_or(INVALID)?;
        Ok((placement, handle, dw11.noet() as usize))
    }

    /// Get Features 1Eh: the event types that there are, and which are enabled for a placement handle.
    pub(super) fn placement_events<H: Host>(&self, admin: &Admin, current: bool, host: &mut H) -> Result<u32, Status> {
        let (placement, handle, count) = self.events_of(admin)?;
        let filter = if current { placement.filters[usize::from(handle)] } else { 0 };
        let events = EVENTS.iter().enumerate().map(|(i, evt)| SupportedEvent { evt: *evt, evta: filter >> i & 1 });
        let mut list: Vec<u8> = events.flat_map(|e| [e.evt, e.evta]).collect();
        list.resize(count * size_of::<SupportedEvent>(), 0);
        admin.answer(host, 0, &list)?;
        Ok(EVENTS.len() as u32)
    }

    /// Set Features 1Eh: enables or disables event types for a placement handle.
    pub(super) fn set_placement_events<H: Host>(&mut self, admin: &Admin, host: &mut H) -> Result<u32, Status> {
        let (_, handle, count) = self.events_of(admin)?;
        let enable = admin.sqe.cdw12.get() & 1 == 1;
        let mut list = [0; 255];
        check_pointer(&admin.data, count as u64)?;
        host.read_data(admin.owner, &admin.data, 0, &mut list[..count])?;
        let bit = |event: &u8| EVENTS.iter().position(|e| e == event).map(|i| 1u8 << i);
        let bits = list[..count].iter().map(bit).try_fold(0, |bits, bit| Some(bits | bit?)).ok_or(INVALID)?;
        // What happened before is noted as it was asked for then.
        self.collect_events(None);
        if let Some(filter) = self.placement.as_mut().and_then(|p| p.filters.get_mut(usize::from(handle))) {
            *filter = if enable { *filter | bits } else { *filter & !bits };
        }
        Ok(0)
    }

    /// Directive Receive (base 2.1, 5.1.6): which directives there are. Data placement is enabled as long as its endurance group
    /// has it, whatever hosts do.
    pub(super) fn directive_receive<H: Host>(&self, admin: &Admin, host: &mut H) -> AdminOutcome {
        let dw11 = DirectiveDw11(admin.sqe.cdw11.get());
        if let Err(status) = self.directive_namespace(admin) {
            return AdminOutcome::status(status);
        }
        if (dw11.dtype() as u8, dw11.doper() as u8) != (directive::IDENTIFY, directive::IDENTIFY_PARAMETERS) {
            return AdminOutcome::status(INVALID);
        }
        let placement = if self.placement.is_some() { 1 << directive::DATA_PLACEMENT } else { 0 };
        let all = 1 << directive::IDENTIFY | placement;
        let mut page = DirectiveParameters::default();
        (page.supported[0], page.enabled[0], page.persistent[0]) = (all, all, placement);
        let length = (u64::from(admin.sqe.cdw10.get()) + 1) * 4;
        let length = length.min(size_of::<DirectiveParameters>() as u64) as usize;
        let sent = admin.answer(host, 0, &page.as_bytes()[..length]);
        AdminOutcome::status(sent.err().unwrap_or(Status::SUCCESS))
    }

    /// Directive Send (base 2.1, 5.1.7): what is enabled can be enabled, and nothing else is possible.
    pub(super) fn directive_send(&self, admin: &Admin) -> AdminOutcome {
        let dw11 = DirectiveDw11(admin.sqe.cdw11.get());
        if let Err(status) = self.directive_namespace(admin) {
            return AdminOutcome::status(status);
        }
        let enable = (dw11.dtype() as u8, dw11.doper() as u8) == (directive::IDENTIFY, directive::IDENTIFY_PARAMETERS);
        let (what, on) = ((admin.sqe.cdw12.get() >> 8) as u8, admin.sqe.cdw12.get() & 1 == 1);
        let allowed = enable && on && what == directive::DATA_PLACEMENT && self.placement.is_some();
        AdminOutcome::status(if allowed { Status::SUCCESS } else { INVALID })
    }

    fn directive_namespace(&self, admin: &Admin) -> Result<(), Status> {
        match admin.sqe.nsid.get() {
            NSID_ALL => Err(INVALID),
            nsid => self.namespaces.active(nsid).map(|_| ()),
        }
    }
}
