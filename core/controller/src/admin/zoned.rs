//! What Identify and the log pages say of zones (ZNS 1.1, 4.1).

use super::identify::put;
use crate::namespace::Namespace;
use crate::subsystem::Subsystem;
use alloc::boxed::Box;
use weir_flash::Zones;
use weir_spec::nvme::identify::csi;
use weir_spec::nvme::log::{Effect, Effects};
use weir_spec::nvme::register::css;
use weir_spec::nvme::zns::{
    CHANGED_ZONES_MAX, ChangedZones, IdentifyZonedNamespace, ZRWA_EXPLICIT_FLUSH, ZonedOpcode, ozcs,
};
use weir_spec::nvme::{IoOpcode, Status};
use zerocopy::FromZeros;
use zerocopy::little_endian::{U16, U32, U64};

/// A limit as a 0-based field; 0 stands for none.
fn limit(count: u32) -> U32 {
    U32::new(count.wrapping_sub(1))
}

impl Subsystem {
    /// Whether a controller has an I/O command set enabled.
    pub(super) fn has_set(&self, c: u32, set: u8) -> bool {
        let all = self.ctrl(c).is_some_and(|ctrl| ctrl.cc.css() == css::ALL);
        set == csi::NVM || set == csi::ZNS && all
    }

    /// Whether a namespace is there for a controller: its command set is enabled.
    pub(super) fn sees(&self, c: u32, ns: &Namespace) -> bool {
        self.has_set(c, ns.set())
    }

    /// The active namespace of an NSID, as a controller sees it: attached, and its command set is enabled.
    pub(super) fn visible(&self, c: u32, nsid: u32) -> Result<&Namespace, Status> {
        self.namespaces.active(nsid).and_then(|ns| {
            if self.is_attached(c, nsid) && self.sees(c, ns) { Ok(ns) } else { Err(Status::INVALID_FIELD.dnr()) }
        })
    }

    /// The zones of a namespace of this drive.
    pub(super) fn zones_of(&self, ns: &Namespace) -> Option<&Zones> {
        let at = self.namespaces.list.iter().position(|other| other.as_ref().is_some_and(|o| core::ptr::eq(o, ns)))?;
        self.zones(at as u32 + 1)
    }

    /// Identify Namespace of the command set.
    pub(super) fn identify_zones(&self, c: u32, nsid: u32, page: &mut [u8]) -> Result<(), Status> {
        let ns = self.visible(c, nsid)?;
        let config = *self.zones_of(ns).ok_or(Status::INVALID_FIELD.dnr())?.config();
        let mut id = IdentifyZonedNamespace::new_zeroed();
        id.ozcs = U16::new(if config.read_across { ozcs::READ_ACROSS } else { 0 });
        id.mar = limit(config.max_active);
        id.mor = limit(config.open_limit());
        if let Some(zrwa) = config.zrwa {
            id.ozcs |= U16::new(ozcs::ZRWA);
            id.numzrwa = U32::new(zrwa.areas);
            id.zrwafg = U16::new(zrwa.granularity as u16);
            id.zrwasz = U16::new(zrwa.size as u16);
            id.zrwacap = ZRWA_EXPLICIT_FLUSH;
        }
        id.lbafe[0].zsze = U64::new(config.size.into());
        id.lbafe[0].zdes = config.extension;
        put(page, &id)
    }

    /// The changed zones of a namespace, as a controller's host does not know them yet.
    pub(super) fn changed_zones(&self, c: u32, nsid: u32) -> Option<Box<ChangedZones>> {
        self.zones(nsid)?;
        let zones = || self.ctrl(c).into_iter().flat_map(|ctrl| &ctrl.changed_zones).filter(move |(ns, _)| *ns == nsid);
        let mut page = Box::new(ChangedZones::default());
        let count = zones().count();
        if count > CHANGED_ZONES_MAX {
            page.count = U16::new(u16::MAX);
            return Some(page);
        }
        page.count = U16::new(count as u16);
        for (to, (_, start)) in page.zslba.iter_mut().zip(zones()) {
            *to = U64::new(*start);
        }
        Some(page)
    }

    /// Adds the command set's own commands to those of the NVM command set.
    pub(super) fn zoned_effects(&self, page: &mut Effects) {
        let supported = Effect(0).with_csupp(1);
        let changes = supported.with_lbcc(1);
        // A zone has no unreadable blocks.
        page.io[usize::from(IoOpcode::WRITE_UNCORRECTABLE.0)] = U32::ZERO;
        page.io[usize::from(ZonedOpcode::ZONE_MANAGEMENT_RECEIVE.0)] = U32::new(supported.0);
        page.io[usize::from(ZonedOpcode::ZONE_MANAGEMENT_SEND.0)] = U32::new(changes.0);
        page.io[usize::from(ZonedOpcode::ZONE_APPEND.0)] = U32::new(changes.0);
    }
}
