//! Flexible data placement and what belongs to it: endurance groups, I/O management, the data placement directive (base 2.1,
//! 8.1.10, 3.2.3, 7.3, 7.4 and 8.1.8).

use super::wire::{bits, wire};
use zerocopy::little_endian::{U16, U32, U64, U128};

/// LSP of Get Log Page for the FDP events log, bit 0: host events; else controller events (base 2.1, 5.1.12.1.31).
pub const LSP_HOST_EVENTS: u8 = 1;
/// Most entries of an endurance group list.
pub const ENDURANCE_GROUPS_MAX: usize = 2047;
/// FDP events that a log holds at the most.
pub const EVENTS_MAX: usize = 63;

wire! {
    /// The head of the FDP configurations log, LID 20h: 16 bytes; descriptors follow (base 2.1, 5.1.12.1.28).
    ConfigurationsHeader: 16 {
        /// Number of configurations, 0-based.
        numfdpc: U16 = 0,
        /// Version, 0.
        ver: u8 = 2,
        /// Reserved.
        rsvd3: u8 = 3,
        /// Bytes of the log page.
        sze: U32 = 4,
        /// Reserved.
        rsvd8: [u8; 8] = 8,
    }
}

wire! {
    /// An FDP configuration: 64 bytes; one [`HandleDescriptor`] for each handle follows.
    Configuration: 64 {
        /// Bytes of this descriptor, the handles' and vendor specific ones included.
        dsze: U16 = 0,
        /// [`Attributes`].
        fdpa: u8 = 2,
        /// Vendor specific size.
        vss: u8 = 3,
        /// Number of reclaim groups.
        nrg: U32 = 4,
        /// Number of reclaim unit handles.
        nruh: U16 = 8,
        /// Placement identifiers that one command may name, 0-based.
        maxpids: U16 = 10,
        /// Number of namespaces supported.
        nns: U32 = 12,
        /// Reclaim unit nominal size, bytes.
        runs: U64 = 16,
        /// Estimated reclaim unit time limit, s; 0: not reported.
        erutl: U32 = 24,
        /// Reserved.
        rsvd28: [u8; 36] = 28,
    }
}

bits! {
    /// FDPA.
    Attributes: u8 {
        /// Reclaim group identifier format: upper bits of a placement identifier that name the group.
        rgif, with_rgif: 3, 0;
        /// There is a volatile write cache.
        fdpvwc, with_fdpvwc: 4, 4;
        /// The configuration is valid.
        fdpcv, with_fdpcv: 7, 7;
    }
}

wire! {
    /// A reclaim unit handle of a configuration: 4 bytes.
    HandleDescriptor: 4 {
        /// [`handle_type`].
        ruht: u8 = 0,
        /// Reserved.
        rsvd1: [u8; 3] = 1,
    }
}

/// RUHT.
pub mod handle_type {
    /// Initially isolated.
    pub const INITIALLY_ISOLATED: u8 = 1;
    /// Persistently isolated.
    pub const PERSISTENTLY_ISOLATED: u8 = 2;
}

wire! {
    /// The head of the reclaim unit handle usage log, LID 21h: 8 bytes; descriptors follow (base 2.1, 5.1.12.1.29).
    UsageHeader: 8 {
        /// Number of reclaim unit handles.
        nruh: U16 = 0,
        /// Reserved.
        rsvd2: [u8; 6] = 2,
    }
}

wire! {
    /// What a reclaim unit handle is used for: 8 bytes.
    UsageDescriptor: 8 {
        /// [`usage`].
        ruha: u8 = 0,
        /// Reserved.
        rsvd1: [u8; 7] = 1,
    }
}

/// RUHA.
pub mod usage {
    /// No namespace uses it.
    pub const UNUSED: u8 = 0;
    /// A namespace has it in the list that it was created with.
    pub const HOST_SPECIFIED: u8 = 1;
    /// The controller has given it to a namespace that named none.
    pub const CONTROLLER_SPECIFIED: u8 = 2;
}

wire! {
    /// FDP statistics, LID 22h: 64 bytes (base 2.1, 5.1.12.1.30).
    Statistics: 64 {
        /// HBMW: host bytes with metadata written.
        hbmw: U128 = 0,
        /// MBMW: media bytes with metadata written.
        mbmw: U128 = 16,
        /// MBE: media bytes erased.
        mbe: U128 = 32,
        /// Reserved.
        rsvd48: [u8; 16] = 48,
    }
}

wire! {
    /// The head of the FDP events log, LID 23h: 64 bytes; events follow, oldest first (base 2.1, 5.1.12.1.31).
    EventsHeader: 64 {
        /// How many follow.
        count: U32 = 0,
        /// Reserved.
        rsvd4: [u8; 60] = 4,
    }
}

wire! {
    /// An FDP event: 64 bytes.
    Event: 64 {
        /// [`event_type`].
        kind: u8 = 0,
        /// [`event_flag`].
        flags: u8 = 1,
        /// Placement identifier.
        pid: U16 = 2,
        /// Timestamp: milliseconds in the lower six bytes.
        timestamp: U64 = 4,
        /// Namespace.
        nsid: U32 = 12,
        /// Of the event's type; see [`Reallocated`].
        specific: [u8; 16] = 16,
        /// Reclaim group.
        rgid: U16 = 32,
        /// Reclaim unit handle.
        ruhid: u8 = 34,
        /// Reserved.
        rsvd35: [u8; 5] = 35,
        /// Vendor specific.
        vs: [u8; 24] = 40,
    }
}

wire! {
    /// What a media reallocated event has of its own: 16 bytes.
    Reallocated: 16 {
        /// Bit 0: the LBA is valid.
        flags: u8 = 0,
        /// Reserved.
        rsvd1: u8 = 1,
        /// Number of blocks that moved.
        nlbam: U16 = 2,
        /// The first of them.
        lba: U64 = 4,
        /// Reserved.
        rsvd12: [u8; 4] = 12,
    }
}

/// Types of FDP events (base 2.1, 8.1.10). Those below 80h are the host's doing.
pub mod event_type {
    /// A handle left a reclaim unit that was not fully written.
    pub const NOT_FULLY_WRITTEN: u8 = 0x00;
    /// A reclaim unit was not written within its time limit.
    pub const TIME_LIMIT_EXCEEDED: u8 = 0x01;
    /// A controller level reset has modified handles.
    pub const RESET_MODIFIED: u8 = 0x02;
    /// A write named a placement identifier that is none.
    pub const INVALID_PLACEMENT_IDENTIFIER: u8 = 0x03;
    /// The controller has moved data.
    pub const MEDIA_REALLOCATED: u8 = 0x80;
    /// The controller has made a handle reference another reclaim unit.
    pub const IMPLICITLY_MODIFIED: u8 = 0x81;
}

/// Flags of FDP events.
pub mod event_flag {
    /// PIV: the placement identifier is valid.
    pub const PLACEMENT_IDENTIFIER: u8 = 1;
    /// NSIDV: the namespace is valid.
    pub const NAMESPACE: u8 = 1 << 1;
    /// LV: group and handle are valid.
    pub const LOCATION: u8 = 1 << 2;
}

bits! {
    /// Flexible data placement, feature 1Dh: DW0 of Get Features, CDW12 of Set Features; CDW11 is the endurance group.
    Mode: u32 {
        /// FDPE: enabled.
        fdpe, with_fdpe: 0, 0;
        /// FDPCIDX: the configuration.
        fdpcidx, with_fdpcidx: 15, 8;
    }
}

bits! {
    /// FDP events, feature 1Eh, CDW11.
    EventsDw11: u32 {
        /// Placement handle.
        phndl, with_phndl: 15, 0;
        /// Number of event types.
        noet, with_noet: 23, 16;
    }
}

wire! {
    /// An event type that is supported: 2 bytes.
    SupportedEvent: 2 {
        /// [`event_type`].
        evt: u8 = 0,
        /// Bit 0: enabled.
        evta: u8 = 1,
    }
}

bits! {
    /// CDW10 of I/O Management Receive and Send (base 2.1, 7.3 and 7.4).
    ManagementDw10: u32 {
        /// MO: [`operation`].
        mo, with_mo: 7, 0;
        /// MOS: of an update, the number of placement identifiers, 0-based.
        mos, with_mos: 31, 16;
    }
}

/// Management operations.
pub mod operation {
    /// No action.
    pub const NONE: u8 = 0;
    /// Receive: reclaim unit handle status.
    pub const STATUS: u8 = 1;
    /// Send: reclaim unit handle update.
    pub const UPDATE: u8 = 1;
}

wire! {
    /// The head of a reclaim unit handle status: 16 bytes; descriptors follow.
    StatusHeader: 16 {
        /// Reserved.
        rsvd0: [u8; 14] = 0,
        /// How many follow.
        nruhsd: U16 = 14,
    }
}

wire! {
    /// The status of a handle in a group: 32 bytes.
    StatusDescriptor: 32 {
        /// Placement identifier.
        pid: U16 = 0,
        /// Reclaim unit handle.
        ruhid: U16 = 2,
        /// Estimated active reclaim unit time remaining, s; 0: not reported.
        earutr: U32 = 4,
        /// RUAMW: blocks that its reclaim unit still takes.
        ruamw: U64 = 8,
        /// Reserved.
        rsvd16: [u8; 16] = 16,
    }
}

wire! {
    /// Endurance group information, LID 09h: 512 bytes (base 2.1, 5.1.12.1.10).
    EnduranceGroup: 512 {
        /// Critical warning.
        critical_warning: u8 = 0,
        /// Features: bit 0: the group has rotational media.
        features: u8 = 1,
        /// Reserved.
        rsvd2: u8 = 2,
        /// Available spare, percent.
        available_spare: u8 = 3,
        /// Its threshold, percent.
        spare_threshold: u8 = 4,
        /// Percentage used.
        percentage_used: u8 = 5,
        /// Domain.
        did: U16 = 6,
        /// Reserved.
        rsvd8: [u8; 24] = 8,
        /// Endurance estimate, 10^9 bytes.
        estimate: U128 = 32,
        /// Data units read, 10^9 bytes.
        read: U128 = 48,
        /// Data units written.
        written: U128 = 64,
        /// Media units written.
        media_written: U128 = 80,
        /// Host read commands.
        host_reads: U128 = 96,
        /// Host write commands.
        host_writes: U128 = 112,
        /// Media and data integrity errors.
        media_errors: U128 = 128,
        /// Number of error information log entries.
        error_entries: U128 = 144,
        /// Total capacity, bytes.
        capacity: U128 = 160,
        /// Unallocated capacity, bytes.
        unallocated: U128 = 176,
        /// Reserved.
        rsvd192: [u8; 320] = 192,
    }
}

bits! {
    /// CDW11 of Directive Receive and Directive Send (base 2.1, 5.1.6 and 5.1.7).
    DirectiveDw11: u32 {
        /// DOPER: the operation.
        doper, with_doper: 7, 0;
        /// DTYPE: [`directive`].
        dtype, with_dtype: 15, 8;
        /// DSPEC.
        dspec, with_dspec: 31, 16;
    }
}

/// Directive types (base 2.1, 8.1.8).
pub mod directive {
    /// Identify.
    pub const IDENTIFY: u8 = 0;
    /// Streams.
    pub const STREAMS: u8 = 1;
    /// Data placement.
    pub const DATA_PLACEMENT: u8 = 2;
    /// Operation of Identify: return parameters (receive), enable directive (send).
    pub const IDENTIFY_PARAMETERS: u8 = 1;
}

wire! {
    /// What Directive Receive answers to identify: 4096 bytes. A bit for each directive type.
    DirectiveParameters: 4096 {
        /// Supported.
        supported: [u8; 32] = 0,
        /// Enabled.
        enabled: [u8; 32] = 32,
        /// Stays as it is at a controller level reset.
        persistent: [u8; 32] = 64,
        /// Reserved.
        rsvd96: [u8; 4000] = 96,
    }
}

/// A placement identifier: the group in its `rgif` upper bits, the placement handle in the others.
pub const fn placement_identifier(rgif: u8, group: u16, handle: u16) -> u16 {
    if rgif == 0 { handle } else { group << (16 - rgif as u32 % 16) | handle }
}

/// Group and placement handle of a placement identifier.
pub const fn placed(rgif: u8, pid: u16) -> (u16, u16) {
    let bits = 16 - rgif as u32 % 16;
    if rgif == 0 { (0, pid) } else { (pid >> bits, pid & (u16::MAX >> (16 - bits))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn identifiers() {
        assert_eq!((placement_identifier(0, 0, 7), placement_identifier(3, 5, 7)), (7, 0xa007));
        for rgif in 0..16 {
            for pid in [0, 1, 7, 0x1fff, 0x2000, 0x8001, 0xffff] {
                let (group, handle) = placed(rgif, pid);
                assert_eq!(placement_identifier(rgif, group, handle), pid);
                assert!(u32::from(group) < 1 << rgif && u32::from(handle) < 1 << (16 - rgif));
            }
        }
    }

    /// As other implementations of the standard lay them out (nvme-cli, QEMU).
    #[test]
    fn golden_bytes() {
        let configuration = Configuration {
            dsze: U16::new(96),
            fdpa: Attributes(0).with_fdpcv(1).with_rgif(2).0,
            nrg: U32::new(4),
            nruh: U16::new(8),
            maxpids: U16::new(31),
            nns: U32::new(1),
            runs: U64::new(0x0600_0000),
            ..Default::default()
        };
        let bytes = configuration.as_bytes();
        assert_eq!(bytes[..16], [96, 0, 0x82, 0, 4, 0, 0, 0, 8, 0, 31, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[16..28], [0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0]);
        let event = Event {
            kind: event_type::MEDIA_REALLOCATED,
            flags: 7,
            pid: U16::new(0x102),
            timestamp: U64::new(0x0605_0403_0201),
            nsid: U32::new(1),
            rgid: U16::new(3),
            ruhid: 9,
            ..Default::default()
        };
        let bytes = event.as_bytes();
        assert_eq!(bytes[..16], [0x80, 7, 2, 1, 1, 2, 3, 4, 5, 6, 0, 0, 1, 0, 0, 0]);
        assert_eq!((&bytes[32..36], bytes.len()), (&[3, 0, 9, 0][..], 64));
        let moved = Reallocated { flags: 1, nlbam: U16::new(8), lba: U64::new(0x1234), ..Default::default() };
        assert_eq!(moved.as_bytes(), [1, 0, 8, 0, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let status = StatusDescriptor {
            pid: U16::new(1),
            ruhid: U16::new(2),
            earutr: U32::new(3),
            ruamw: U64::new(4),
            ..Default::default()
        };
        assert_eq!(status.as_bytes()[..16], [1, 0, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        let head = StatusHeader { nruhsd: U16::new(5), ..Default::default() };
        assert_eq!(head.as_bytes()[14..], [5, 0]);
        assert_eq!(Mode(0).with_fdpe(1).with_fdpcidx(2).0, 0x201);
        assert_eq!(EventsDw11(0).with_phndl(0x0102).with_noet(6).0, 0x0006_0102);
        assert_eq!(ManagementDw10(0).with_mo(1).with_mos(3).0, 0x0003_0001);
        assert_eq!(DirectiveDw11(0).with_doper(1).with_dtype(2).with_dspec(3).0, 0x0003_0201);
    }
}
