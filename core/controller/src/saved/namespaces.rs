//! What a drive remembers of its namespaces without power: section 16 of [`crate::saved::nonvolatile`].
//!
//! Nothing is written while the namespaces are those of the configuration, which is free to change then.

use crate::namespace::NSID_MAX;
use crate::namespace::attachment::NamespaceRecord;
use crate::namespace::ns_allocator::Allocator;
use crate::saved::section::Section;
use crate::subsystem::Subsystem;
use alloc::string::String;
use alloc::vec::Vec;
use weir_codec::{Damaged, Reader, Writer};
use weir_spec::nvme::namespace::write_protect;

pub(crate) const SECTION: Section = Section { id: 16, version: 1, save, restore };

/// Bits of a namespace's flags.
const PRIVATE: u8 = 1;
const EVERYONE: u8 = 1 << 1;
const EXTENDED: u8 = 1 << 2;
const FIRST: u8 = 1 << 3;

fn save(drive: &Subsystem, to: &mut Writer) {
    let Some(allocator) = drive.namespaces.allocator.as_ref().filter(|_| drive.namespaces.changed) else { return };
    to.u64(allocator.capacity());
    to.u64(allocator.granule());
    to.u64(drive.namespaces.created);
    let whole: Vec<u32> = drive.namespaces.nsids().collect();
    to.u32(whole.len() as u32);
    for nsid in whole {
        let (Some(ns), Some(record)) = (drive.namespaces.list[nsid as usize - 1], drive.namespaces.records.get(&nsid))
        else {
            continue;
        };
        let bit = |yes: bool, bit: u8| if yes { bit } else { 0 };
        to.u32(nsid);
        to.u64(record.bytes);
        to.array(&ns.uuid);
        to.u8(ns.format.index);
        to.u8(ns.format.kind);
        to.u8(bit(record.private, PRIVATE)
            | bit(record.everyone, EVERYONE)
            | bit(ns.format.extended, EXTENDED)
            | bit(ns.format.first, FIRST));
        // What holds until the next power cycle ends with this one.
        let lasts = u32::from(ns.protect) != write_protect::UNTIL_POWER_CYCLE;
        to.u8(if lasts { ns.protect } else { write_protect::NONE as u8 });
        to.u32(record.hosts.len() as u32);
        record.hosts.iter().for_each(|host| to.bytes(host.as_bytes()));
        let granules = allocator.list(nsid);
        to.u32(granules.len() as u32);
        granules.iter().for_each(|g| to.u32(*g));
    }
}

fn restore(drive: &mut Subsystem, from: &mut Reader<'_>, _version: u16) -> Result<(), Damaged> {
    let (capacity, granule, creations) = (from.u64()?, from.u64()?, from.u64()?);
    let mut allocator =
        drive.namespaces.allocator.as_ref().map(|allocator| Allocator::new(allocator.capacity())).ok_or(Damaged)?;
    if (allocator.capacity(), allocator.granule()) != (capacity, granule) {
        return Err(Damaged);
    }
    drive.namespaces.records.clear();
    drive.namespaces.list.iter_mut().for_each(|ns| *ns = None);
    let mut placed = Vec::new();
    for _ in 0..from.u32()? {
        let (nsid, bytes, uuid) = (from.u32()?, from.u64()?, from.array::<16>()?);
        let (index, kind, flags, protect) = (from.u8()?, from.u8()?, from.u8()?, from.u8()?);
        let mut hosts = Vec::new();
        for _ in 0..from.u32()? {
            hosts.push(String::from(core::str::from_utf8(from.bytes()?).map_err(|_| Damaged)?));
        }
        let mut granules = Vec::new();
        for _ in 0..from.u32()? {
            granules.push(from.u32()?);
        }
        let known = (1..=NSID_MAX.min(drive.namespaces.list.len() as u32)).contains(&nsid);
        if !known
            || u32::from(protect) > write_protect::PERMANENT
            || granules.is_empty()
            || !allocator.claim(nsid, &granules)
        {
            return Err(Damaged);
        }
        let (extended, first) = (flags & EXTENDED != 0, flags & FIRST != 0);
        let (format, shift) = drive.format_of(index.into(), extended, kind, first).map_err(|_| Damaged)?;
        if bytes > allocator.allocated(nsid) || format.extended != extended || format.first != first {
            return Err(Damaged);
        }
        let (private, everyone) = (flags & PRIVATE != 0, flags & EVERYONE != 0);
        drive.namespaces.records.insert(nsid, NamespaceRecord { bytes, private, everyone, hosts });
        placed.push((nsid, format, shift, uuid, protect));
    }
    drive.namespaces.allocator = Some(allocator.into());
    (drive.namespaces.created, drive.namespaces.changed) = (creations, true);
    for (nsid, format, shift, uuid, protect) in placed {
        let mut ns = drive.namespaces.laid_out(nsid, format, shift, uuid).ok_or(Damaged)?;
        ns.protect = protect;
        drive.namespaces.list[nsid as usize - 1] = Some(ns);
        drive.refresh_guard(nsid);
    }
    Ok(())
}
