//! Zoned namespaces: the ZNS command set (NVM Express Zoned Namespace Command Set 1.1). CSI 02h.

use super::log::{AsyncEvent, event_type};
use super::opcode::codes;
use super::wire::{bits, wire};
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32, U64};

codes! {
    /// The opcodes that the command set adds to the NVM command set's (ZNS 1.1, 3).
    ZonedOpcode: u8 {
        ZONE_MANAGEMENT_SEND = 0x79,
        ZONE_MANAGEMENT_RECEIVE = 0x7a,
        ZONE_APPEND = 0x7d,
    }
}

codes! {
    /// ZSA of Zone Management Send (ZNS 1.1, 3.4.3).
    SendAction: u8 {
        CLOSE = 0x01,
        FINISH = 0x02,
        OPEN = 0x03,
        RESET = 0x04,
        OFFLINE = 0x05,
        SET_DESCRIPTOR_EXTENSION = 0x10,
        FLUSH_ZRWA = 0x11,
    }
}

codes! {
    /// ZRA of Zone Management Receive (ZNS 1.1, 3.4.2).
    ReceiveAction: u8 {
        REPORT = 0x00,
        EXTENDED_REPORT = 0x01,
    }
}

codes! {
    /// ZS of a zone descriptor: the state of a zone (ZNS 1.1, 2.1.1.2). Values it does not define are reserved.
    ZoneState: u8 {
        EMPTY = 0x1,
        IMPLICITLY_OPENED = 0x2,
        EXPLICITLY_OPENED = 0x3,
        CLOSED = 0x4,
        READ_ONLY = 0xd,
        FULL = 0xe,
        OFFLINE = 0xf,
    }
}

bits! {
    /// CDW13 of Zone Management Send (ZNS 1.1, 3.4.3).
    SendDw13: u32 {
        /// Zone send action: [`SendAction`].
        zsa, with_zsa: 7, 0;
        /// Select all: SLBA is ignored.
        all, with_all: 8, 8;
        /// Zone send action specific option. Open: allocate a zone random write area.
        zsaso, with_zsaso: 9, 9;
    }
}

bits! {
    /// CDW13 of Zone Management Receive (ZNS 1.1, 3.4.2).
    ReceiveDw13: u32 {
        /// Zone receive action: [`ReceiveAction`].
        zra, with_zra: 7, 0;
        /// Zone receive action specific field: which zones a report lists, see [`reports`].
        zrasf, with_zrasf: 15, 8;
        /// Partial report: the count is that of the descriptors transferred, not of all that match.
        partial, with_partial: 16, 16;
    }
}

/// Whether a report with this ZRASF lists a zone in that state; `None` for a ZRASF that is reserved (ZNS 1.1, 3.4.2.2).
pub const fn reports(zrasf: u8, state: ZoneState) -> Option<bool> {
    let wanted = match zrasf {
        0 => return Some(true),
        1 => ZoneState::EMPTY,
        2 => ZoneState::IMPLICITLY_OPENED,
        3 => ZoneState::EXPLICITLY_OPENED,
        4 => ZoneState::CLOSED,
        5 => ZoneState::FULL,
        6 => ZoneState::READ_ONLY,
        7 => ZoneState::OFFLINE,
        _ => return None,
    };
    Some(wanted.0 == state.0)
}

/// Sequential write required: the only zone type (ZNS 1.1, 2.1.1).
pub const SEQUENTIAL_WRITE_REQUIRED: u8 = 2;

/// Bits of ZA, a zone's attributes (ZNS 1.1, 3.4.2.2.3).
pub mod attribute {
    /// The controller has finished it.
    pub const FINISHED_BY_CONTROLLER: u8 = 1;
    /// The host should finish it.
    pub const FINISH_RECOMMENDED: u8 = 1 << 1;
    /// The host should reset it.
    pub const RESET_RECOMMENDED: u8 = 1 << 2;
    /// It has a zone random write area.
    pub const ZRWA_VALID: u8 = 1 << 3;
    /// Its descriptor extension is valid.
    pub const EXTENSION_VALID: u8 = 1 << 7;
}

wire! {
    /// The head of a report: 64 bytes, descriptors follow (ZNS 1.1, 3.4.2.2.1).
    ReportHeader: 64 {
        /// How many zones match, or, with a partial report, follow.
        zones: U64 = 0,
        /// Reserved.
        rsvd8: [u8; 56] = 8,
    }
}

wire! {
    /// A zone descriptor: 64 bytes (ZNS 1.1, 3.4.2.2.3).
    ZoneDescriptor: 64 {
        /// Zone type in bits 3:0.
        zt: u8 = 0,
        /// Zone state in bits 7:4.
        zs: u8 = 1,
        /// [`attribute`] bits.
        za: u8 = 2,
        /// Zone attributes information.
        zai: u8 = 3,
        /// Reserved.
        rsvd4: [u8; 4] = 4,
        /// Capacity in blocks.
        zcap: U64 = 8,
        /// First block.
        zslba: U64 = 16,
        /// Write pointer; of no meaning in a zone that is full, read only or offline.
        wp: U64 = 24,
        /// Reserved.
        rsvd32: [u8; 32] = 32,
    }
}

impl ZoneDescriptor {
    /// Its state.
    pub const fn state(&self) -> ZoneState {
        ZoneState(self.zs >> 4)
    }
    /// With that state.
    pub const fn with_state(self, state: ZoneState) -> Self {
        Self { zs: state.0 << 4 | self.zs & 0xf, ..self }
    }
    /// Its type.
    pub const fn zone_type(&self) -> u8 {
        self.zt & 0xf
    }
}

/// A report taken apart: how many zones it says there are, and the descriptors that it holds. `extension` is the size of the
/// descriptor extensions of an extended report, in bytes; 0 for a report without them.
pub fn report(bytes: &[u8], extension: usize) -> Option<(u64, impl Iterator<Item = ZoneDescriptor> + '_)> {
    let (header, rest) = ReportHeader::read_from_prefix(bytes).ok()?;
    let zones = header.zones.get();
    let descriptors = rest.chunks_exact(size_of::<ZoneDescriptor>().saturating_add(extension));
    let descriptors = descriptors.filter_map(|d| ZoneDescriptor::read_from_prefix(d).ok().map(|(d, _)| d));
    Some((zones, descriptors.take(usize::try_from(zones).unwrap_or(usize::MAX))))
}

wire! {
    /// An LBA format's extension (ZNS 1.1, 4.1.5.1).
    LbaFormatExtension: 16 {
        /// Zone size in blocks.
        zsze: U64 = 0,
        /// Zone descriptor extension size, in 64 bytes.
        zdes: u8 = 8,
        /// Reserved.
        rsvd9: [u8; 7] = 9,
    }
}

wire! {
    /// Identify Namespace of the command set, CNS 05h with CSI 02h: 4096 bytes (ZNS 1.1, 4.1.5.1).
    IdentifyZonedNamespace: 4096 {
        /// Zone operation characteristics: bit 0 variable capacity, 1 active excursions.
        zoc: U16 = 0,
        /// Optional command support: [`ozcs`].
        ozcs: U16 = 2,
        /// Maximum active resources, 0-based; FFFFFFFFh no limit.
        mar: U32 = 4,
        /// Maximum open resources, 0-based; FFFFFFFFh no limit.
        mor: U32 = 8,
        /// Reset recommended limit, s.
        rrl: U32 = 12,
        /// Finish recommended limit, s.
        frl: U32 = 16,
        /// Reset recommended limits 1 to 3, s.
        rrls: [U32; 3] = 20,
        /// Finish recommended limits 1 to 3, s.
        frls: [U32; 3] = 32,
        /// Zone random write areas that there can be at once.
        numzrwa: U32 = 44,
        /// Flush granularity of a zone random write area, blocks.
        zrwafg: U16 = 48,
        /// Size of a zone random write area, blocks.
        zrwasz: U16 = 50,
        /// Capabilities of zone random write areas: bit 0 explicit flush.
        zrwacap: u8 = 52,
        /// Reserved.
        rsvd53: [u8; 2763] = 53,
        /// Extensions of the LBA formats.
        lbafe: [LbaFormatExtension; 64] = 2816,
        /// Vendor specific.
        vs: [u8; 256] = 3840,
    }
}

/// Bits of OZCS.
pub mod ozcs {
    /// Reads may cross zone boundaries.
    pub const READ_ACROSS: u16 = 1;
    /// Zone random write areas are supported.
    pub const ZRWA: u16 = 1 << 1;
}

/// ZRWACAP bit 0: zone random write areas are flushed explicitly as well.
pub const ZRWA_EXPLICIT_FLUSH: u8 = 1;

wire! {
    /// Identify Controller of the command set, CNS 06h with CSI 02h: 4096 bytes (ZNS 1.1, 4.1.5.2).
    IdentifyZonedController: 4096 {
        /// Zone append size limit, as a power of two of the smallest page; 0: MDTS.
        zasl: u8 = 0,
        /// Reserved.
        rsvd1: [u8; 4095] = 1,
    }
}

/// LID of the changed zone list.
pub const CHANGED_ZONES: u8 = 0xbf;

/// Zones that a [`ChangedZones`] names at the most.
pub const CHANGED_ZONES_MAX: usize = 511;

wire! {
    /// Changed zone list log page: 4096 bytes (ZNS 1.1, 4.1.4.1).
    ChangedZones: 4096 {
        /// How many follow; FFFFh: more than fit.
        count: U16 = 0,
        /// Reserved.
        rsvd2: [u8; 6] = 2,
        /// First blocks of the zones, ascending.
        zslba: [U64; 511] = 8,
    }
}

impl ChangedZones {
    /// The zones it names, by their first block; none when there are more than fit.
    pub fn zones(&self) -> impl Iterator<Item = u64> + '_ {
        let count = usize::from(self.count.get());
        self.zslba.iter().take(if count > CHANGED_ZONES_MAX { 0 } else { count }).map(|z| z.get())
    }
    /// More zones have changed than it can name.
    pub fn is_overflown(&self) -> bool {
        self.count.get() == u16::MAX
    }
}

/// Bit of Asynchronous Event Configuration (0Bh) and OAES: zone descriptor changed notices.
pub const NOTICES: u32 = 1 << 27;

impl AsyncEvent {
    /// A zone's descriptor was changed by the controller (ZNS 1.1, 4.1.2). DW1 of the completion is the NSID.
    pub const ZONE_DESCRIPTOR_CHANGED: Self = Self { kind: event_type::NOTICE, info: 0xef, lid: CHANGED_ZONES };
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn reports_end_where_their_bytes_or_their_count_do() {
        let mut bytes = [0u8; 64 * 4 + 17];
        bytes[0] = 2;
        for (i, chunk) in bytes[64..].chunks_exact_mut(64).enumerate() {
            let d = ZoneDescriptor { zslba: U64::new(i as u64), ..Default::default() };
            chunk.copy_from_slice(d.with_state(ZoneState::FULL).as_bytes());
        }
        let zslbas = |bytes: &[u8], extension| {
            report(bytes, extension).map(|(n, zones)| (n, zones.map(|z| z.zslba.get()).sum::<u64>()))
        };
        assert_eq!(zslbas(&bytes, 0), Some((2, 1)));
        assert_eq!(zslbas(&bytes, 64), Some((2, 0)), "every second chunk is an extension");
        bytes[0] = 200;
        assert_eq!(zslbas(&bytes, 0), Some((200, 3)));
        assert!(zslbas(&bytes[..63], 0).is_none());
        assert_eq!(report(&bytes, usize::MAX).map(|(_, zones)| zones.count()), Some(0));
    }

    #[test]
    fn a_state_and_its_filter() {
        for state in 0..16 {
            let d = ZoneDescriptor::default().with_state(ZoneState(state));
            assert_eq!((d.state().0, d.zone_type()), (state, 0));
            assert_eq!(reports(0, d.state()), Some(true));
            assert_eq!(reports(8, d.state()), None);
            assert_eq!(
                (1..8).filter(|f| reports(*f, d.state()) == Some(true)).count() as u8,
                u8::from(d.state().name().is_some())
            );
        }
        assert_eq!(AsyncEvent::ZONE_DESCRIPTOR_CHANGED.dw0(), 0x00bf_ef02);
    }

    #[test]
    fn changed_zones_that_do_not_fit() {
        let mut log = ChangedZones { count: U16::new(2), ..Default::default() };
        log.zslba[1] = U64::new(9);
        assert!(log.zones().eq([0, 9]) && !log.is_overflown());
        for hostile in [512, u16::MAX] {
            log.count = U16::new(hostile);
            assert_eq!(log.zones().count(), 0);
        }
        assert!(log.is_overflown());
    }
}
