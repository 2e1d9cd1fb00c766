//! Zone Management Receive (ZNS 1.1, 3.4.2): what the zones are like.

use super::status;
use crate::host::{DataPointer, Host};
use crate::queues::command::{Command, receive};
use crate::subsystem::Subsystem;
use alloc::vec;
use weir_flash::{Zone, ZoneState as State, Zones};
use weir_spec::nvme::Status;
use weir_spec::nvme::zns::{ReportHeader, SEQUENTIAL_WRITE_REQUIRED, ZoneDescriptor, ZoneState, attribute, reports};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

impl Subsystem {
    /// Sends the report that a command asks for to its host.
    pub(super) fn report_zones<H: Host>(
        &mut self,
        queue: u32,
        command: &Command,
        data: &DataPointer,
        host: &mut H,
    ) -> Result<(), Status> {
        self.zones_enabled(queue)?;
        let space = self.space(command.nsid)?;
        let zones = self.zoned[space].zones();
        let each = size_of::<ZoneDescriptor>();
        let plain = receive::is_plain(command.blocks);
        let each = if plain { each } else { each + usize::from(zones.config().extension) * 64 };
        let (first, _) = zones.locate(command.slba).map_err(status)?;
        let (filter, partial) = receive::filter(command.blocks);
        let owner = self.sq(queue).owner;
        let length = receive::bytes(command.blocks);
        let invalid = Status::INVALID_FIELD.dnr();
        let room = length.checked_sub(size_of::<ReportHeader>() as u32).ok_or(invalid)?;
        let room = u64::from(room) / each as u64;
        reports(filter, ZoneState::EMPTY).ok_or(invalid)?;
        let listed = |zone: &(u32, Zone)| reports(filter, ZoneState(zone.1.state as u8)) == Some(true);
        let all = || (first..).zip(zones.iter().skip(first as usize)).filter(listed);
        let matching = all().count() as u64;
        let said = if partial { matching.min(room) } else { matching };
        let header = ReportHeader { zones: U64::new(said), ..Default::default() };
        host.write_data(owner, data, 0, header.as_bytes())?;
        let mut descriptors = all().take(room as usize).map(|(i, zone)| (i, descriptor(zones, i, &zone)));
        // What is asked for beyond the last zone reads as zeroes.
        let mut at = size_of::<ReportHeader>() as u32;
        let mut page = vec![0u8; if plain { 4096 } else { each * (4096 / each).max(1) }];
        while at < length {
            page.fill(0);
            for (to, (zone, descriptor)) in page.chunks_exact_mut(each).zip(&mut descriptors) {
                let (head, tail) = to.split_at_mut(size_of::<ZoneDescriptor>());
                head.copy_from_slice(descriptor.as_bytes());
                if descriptor.za & attribute::EXTENSION_VALID != 0 && !plain {
                    tail.copy_from_slice(zones.extension(zone));
                }
            }
            let n = (length - at).min(page.len() as u32);
            host.write_data(owner, data, at, &page[..n as usize])?;
            at += n;
        }
        Ok(())
    }
}

fn descriptor(zones: &Zones, index: u32, zone: &Zone) -> ZoneDescriptor {
    let start = zones.start(index);
    // A zone that takes no more writes has no write pointer.
    let valid = !matches!(zone.state, State::Full | State::ReadOnly | State::Offline);
    ZoneDescriptor {
        zt: SEQUENTIAL_WRITE_REQUIRED,
        za: if zone.zrwa { attribute::ZRWA_VALID } else { 0 }
            | if zone.extended { attribute::EXTENSION_VALID } else { 0 },
        zcap: U64::new(zones.config().capacity.into()),
        zslba: U64::new(start),
        wp: U64::new(if valid { start + u64::from(zone.wp) } else { u64::MAX }),
        ..Default::default()
    }
    .with_state(ZoneState(zone.state as u8))
}
