//! Through which handle a write goes, I/O management (base 2.1, 7.3 and 7.4), and the events of both.

use crate::event::Op;
use crate::host::Host;
use crate::io::placement::{EVENTS, identifier};
use crate::io::starting::Starting;
use crate::namespace::Namespace;
use crate::queues::command::Command;
use crate::subsystem::Subsystem;
use alloc::vec;
use alloc::vec::Vec;
use weir_flash::{FdpEvent, FdpEventKind, Flash, UNIT};
use weir_spec::nvme::fdp::{Event, Reallocated, StatusDescriptor, StatusHeader, event_flag, event_type};
use weir_spec::nvme::{IoOpcode, Status};
use weir_units::Nanos;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

impl Subsystem {
    /// The inside with placement handles.
    pub(crate) fn flash(&self) -> Option<&Flash> {
        self.timing.0.as_ref()?.placement()
    }

    fn flash_mut(&mut self) -> Option<&mut Flash> {
        self.slots.quiet_until = Nanos(0);
        self.timing.0.as_mut()?.placement_mut()
    }

    /// The hint for the inside: through which handle a command writes.
    #[inline]
    pub(crate) fn placement_of(&mut self, now: Nanos, queue: u32, command: &Command, op: Op) -> u8 {
        match op {
            Op::Write | Op::WriteZeroes { .. } if self.placement.is_some() => self.place(now, queue, command),
            _ => 0,
        }
    }

    #[cold]
    fn place(&mut self, now: Nanos, queue: u32, command: &Command) -> u8 {
        let Some(placement) = &self.placement else { return 0 };
        let named = identifier(command).map(|pid| (pid, placement.placed(pid)));
        let own = self.tenants.list[usize::from(self.sq(queue).tenant)].config.placement;
        let target = match named {
            Some((_, Some((group, handle)))) => Some((Some(group), handle)),
            Some((pid, None)) => {
                self.note_invalid(now, command.nsid, pid);
                None
            }
            None => own.map(|handle| (None, handle)),
        };
        let fdp = self.flash().and_then(Flash::fdp);
        match (fdp, target) {
            (Some(fdp), Some((group, handle))) => fdp.hint(group, handle),
            _ => 0,
        }
    }

    /// Invalid Placement Identifier: the data goes through placement handle 0.
    fn note_invalid(&mut self, now: Nanos, nsid: u32, pid: u16) {
        let timestamp = U64::new(self.timestamp(now));
        let Some(placement) = self.placement.as_mut().filter(|p| p.wants(EVENTS[1], Some(0))) else { return };
        placement.note(Event {
            kind: EVENTS[1],
            flags: event_flag::PLACEMENT_IDENTIFIER | event_flag::NAMESPACE,
            pid: U16::new(pid),
            timestamp,
            nsid: U32::new(nsid),
            ..Event::default()
        });
    }

    /// Takes the inside's events over, as far as somebody wants them. `nsid`: whose command they are of.
    pub(crate) fn collect_events(&mut self, nsid: Option<u32>) {
        while let Some(event) = self.flash_mut().and_then(Flash::take_fdp_event) {
            let made = self.event(&event, nsid);
            if let Some(placement) = self.placement.as_mut().filter(|p| p.wants(made.kind, event.handle)) {
                placement.note(made);
            }
        }
    }

    fn event(&self, event: &FdpEvent, nsid: Option<u32>) -> Event {
        let mut made = Event { timestamp: U64::new(self.timestamp(event.at)), ..Event::default() };
        if let (Some(placement), Some(handle)) = (&self.placement, event.handle) {
            made.flags |= event_flag::PLACEMENT_IDENTIFIER | event_flag::LOCATION;
            (made.rgid, made.ruhid) = (U16::new(event.group), handle);
            made.pid = U16::new(placement.identifier(event.group, handle));
        }
        let mut nsid = nsid;
        made.kind = match event.kind {
            FdpEventKind::NotFullyWritten { .. } => event_type::NOT_FULLY_WRITTEN,
            FdpEventKind::Implicit => event_type::IMPLICITLY_MODIFIED,
            FdpEventKind::Reallocated { lpn, units } => {
                if let Some((owner, lba, shift)) = self.block_at(u64::from(lpn) * u64::from(UNIT)) {
                    nsid = Some(owner);
                    let blocks = (u64::from(units) * u64::from(UNIT)) >> shift;
                    let nlbam = U16::new(u16::try_from(blocks).unwrap_or(u16::MAX));
                    let moved = Reallocated { flags: 1, nlbam, lba: U64::new(lba), ..Default::default() };
                    made.specific.copy_from_slice(moved.as_bytes());
                }
                event_type::MEDIA_REALLOCATED
            }
        };
        if let Some(nsid) = nsid {
            made.flags |= event_flag::NAMESPACE;
            made.nsid = U32::new(nsid);
        }
        made
    }

    /// The namespace, block and block size (as a power of two) at an offset of the media.
    fn block_at(&self, offset: u64) -> Option<(u32, u64, u32)> {
        let holds = |ns: &Namespace| offset >= ns.start && offset - ns.start < ns.blocks << ns.shift;
        let mut numbered = (1u32..).zip(&self.namespaces.list).filter_map(|(nsid, ns)| Some((nsid, (*ns)?)));
        let (nsid, ns) = numbered.find(|(_, ns)| holds(ns))?;
        Some((nsid, (offset - ns.start) >> ns.shift, ns.shift))
    }

    /// I/O Management Receive and Send (base 2.1, 7.3 and 7.4). What they say was checked when the command was planned.
    #[cold]
    pub(crate) fn start_management<H: Host>(&mut self, now: Nanos, starting: &Starting, host: &mut H) {
        let Starting { queue, ref command, ref plan, .. } = *starting;
        let done = if self.placement.is_none() {
            Err(Status::INVALID_OPCODE.dnr())
        } else if plan.transfer == 0 {
            Ok(())
        } else if IoOpcode(command.opcode) == IoOpcode::IO_MANAGEMENT_RECEIVE {
            self.report_handles(starting, host)
        } else {
            self.update_handles(now, starting, host)
        };
        match done {
            Ok(()) => self.finish(queue, command.cid, command.tag, Status::SUCCESS, 0, host),
            Err(status) => self.refuse(queue, command, status, host),
        }
    }

    /// Reclaim unit handle status.
    fn report_handles<H: Host>(&mut self, starting: &Starting, host: &mut H) -> Result<(), Status> {
        let Starting { queue, ref command, ref plan, data, .. } = *starting;
        let ns = *self.namespaces.active(command.nsid)?;
        let (Some(placement), Some(flash)) = (&self.placement, self.flash()) else {
            return Err(Status::INTERNAL_ERROR);
        };
        let header = StatusHeader { nruhsd: U16::new(placement.identifiers() as u16), ..Default::default() };
        let mut page = header.as_bytes().to_vec();
        for handle in 0..placement.handles {
            for group in 0..placement.groups {
                let blocks = (u64::from(flash.available(group, handle)) * u64::from(UNIT)) >> ns.shift;
                let descriptor = StatusDescriptor {
                    pid: U16::new(placement.identifier(group, handle)),
                    ruhid: U16::new(handle.into()),
                    ruamw: U64::new(blocks),
                    ..Default::default()
                };
                page.extend_from_slice(descriptor.as_bytes());
            }
        }
        page.truncate(plan.transfer as usize);
        let (owner, mut at) = (self.sq(queue).owner, page.len() as u32);
        host.write_data(owner, &data, 0, &page)?;
        // What is asked for beyond the last one reads as zeroes.
        while at < plan.transfer {
            let zeroes = [0; 512];
            let n = (plan.transfer - at).min(zeroes.len() as u32);
            host.write_data(owner, &data, at, &zeroes[..n as usize])?;
            at += n;
        }
        Ok(())
    }

    /// Reclaim unit handle update: all of the identifiers, or none.
    fn update_handles<H: Host>(&mut self, now: Nanos, starting: &Starting, host: &mut H) -> Result<(), Status> {
        let Starting { queue, ref command, ref plan, data, .. } = *starting;
        let invalid = Status::INVALID_FIELD.dnr();
        let Some(placement) = &self.placement else { return Err(Status::INTERNAL_ERROR) };
        if plan.transfer > placement.identifiers() * 2 {
            return Err(invalid);
        }
        let mut list = vec![0; plan.transfer as usize];
        host.read_data(self.sq(queue).owner, &data, 0, &mut list)?;
        let pids = list.chunks_exact(2).map(|pid| placement.placed(u16::from_le_bytes([pid[0], pid[1]])));
        let targets: Vec<(u16, u8)> = pids.collect::<Option<_>>().ok_or(invalid)?;
        self.collect_events(None);
        for (group, handle) in targets {
            self.flash_mut().and_then(|flash| flash.update_handle(now, group, handle));
        }
        self.collect_events(Some(command.nsid));
        Ok(())
    }
}
