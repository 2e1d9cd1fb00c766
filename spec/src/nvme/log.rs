//! Log pages and asynchronous events (base 2.0, 5.16 and 5.2).

use super::wire::{self, bits, wire};
use zerocopy::little_endian::{U16, U32, U64, U128};

/// LID values (base 2.0, Figure 202).
pub mod lid {
    /// Supported log pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Error information.
    pub const ERROR: u8 = 0x01;
    /// SMART / health information.
    pub const SMART: u8 = 0x02;
    /// Firmware slot information.
    pub const FIRMWARE: u8 = 0x03;
    /// Changed namespace list.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands supported and effects.
    pub const EFFECTS: u8 = 0x05;
    /// Device self-test.
    pub const SELF_TEST: u8 = 0x06;
    /// Telemetry, host-initiated.
    pub const TELEMETRY_HOST: u8 = 0x07;
    /// Telemetry, controller-initiated.
    pub const TELEMETRY_CONTROLLER: u8 = 0x08;
    /// Endurance group information.
    pub const ENDURANCE_GROUP: u8 = 0x09;
    /// Asymmetric namespace access.
    pub const ANA: u8 = 0x0c;
    /// Persistent event log.
    pub const PERSISTENT_EVENTS: u8 = 0x0d;
    /// LBA status information (NVM command set).
    pub const LBA_STATUS: u8 = 0x0e;
    /// Endurance group event aggregate.
    pub const ENDURANCE_AGGREGATE: u8 = 0x0f;
    /// Feature identifiers supported and effects.
    pub const FEATURE_EFFECTS: u8 = 0x12;
    /// NVMe-MI commands supported and effects.
    pub const MI_EFFECTS: u8 = 0x13;
    /// Command and feature lockdown.
    pub const LOCKDOWN: u8 = 0x14;
    /// FDP configurations (base 2.1).
    pub const FDP_CONFIGURATIONS: u8 = 0x20;
    /// Reclaim unit handle usage (base 2.1).
    pub const FDP_USAGE: u8 = 0x21;
    /// FDP statistics (base 2.1).
    pub const FDP_STATISTICS: u8 = 0x22;
    /// FDP events (base 2.1).
    pub const FDP_EVENTS: u8 = 0x23;
    /// Discovery.
    pub const DISCOVERY: u8 = 0x70;
    /// Reservation notification.
    pub const RESERVATION: u8 = 0x80;
    /// Sanitize status.
    pub const SANITIZE: u8 = 0x81;
}

bits! {
    /// Get Log Page, CDW10 (base 2.0, Figure 197).
    GetLogDw10: u32 {
        /// Log page identifier.
        lid, with_lid: 7, 0;
        /// Log specific field.
        lsp, with_lsp: 14, 8;
        /// Retain asynchronous event.
        rae, with_rae: 15, 15;
        /// Number of dwords, lower half, 0-based.
        numdl, with_numdl: 31, 16;
    }
}

/// The length in bytes that CDW10 and CDW11 of Get Log Page ask for.
pub const fn log_length(cdw10: u32, cdw11: u32) -> u64 {
    ((cdw10 >> 16) as u64 | (cdw11 as u64 & 0xffff) << 16) * 4 + 4
}

wire! {
    /// SMART / health information: 512 bytes (base 2.0, Figure 207).
    Smart: 512 {
        /// [`critical_warning`] bits.
        critical_warning: u8 = 0,
        /// Composite temperature, K.
        temperature: U16 = 1,
        /// Available spare, percent.
        available_spare: u8 = 3,
        /// Available spare threshold, percent.
        spare_threshold: u8 = 4,
        /// Percentage used.
        percentage_used: u8 = 5,
        /// Endurance group critical warning summary.
        endurance_warning: u8 = 6,
        /// Reserved.
        rsvd7: [u8; 25] = 7,
        /// Data units read: thousands of 512-byte units, rounded up.
        data_units_read: U128 = 32,
        /// Data units written.
        data_units_written: U128 = 48,
        /// Host read commands.
        host_reads: U128 = 64,
        /// Host write commands.
        host_writes: U128 = 80,
        /// Controller busy time, minutes.
        busy_minutes: U128 = 96,
        /// Power cycles.
        power_cycles: U128 = 112,
        /// Power on hours.
        power_on_hours: U128 = 128,
        /// Unsafe shutdowns.
        unsafe_shutdowns: U128 = 144,
        /// Media and data integrity errors.
        media_errors: U128 = 160,
        /// Number of error information log entries.
        error_entries: U128 = 176,
        /// Warning temperature time, minutes.
        warning_minutes: U32 = 192,
        /// Critical temperature time, minutes.
        critical_minutes: U32 = 196,
        /// Temperature sensors, K; 0 is absent.
        sensors: [U16; 8] = 200,
        /// Thermal management and reserved.
        rsvd216: [u8; 296] = 216,
    }
}

wire! {
    /// An error information entry: 64 bytes (base 2.0, Figure 205).
    ErrorEntry: 64 {
        /// Count of errors so far; 0 is no entry.
        error_count: U64 = 0,
        /// SQID.
        sqid: U16 = 8,
        /// CID; FFFFh where the error belongs to no command.
        cid: U16 = 10,
        /// Status field in 15:1.
        status_field: U16 = 12,
        /// Parameter error location: byte in 7:0, bit in 10:8; FFFFh unknown.
        location: U16 = 14,
        /// First LBA of the error.
        lba: U64 = 16,
        /// NSID.
        nsid: U32 = 24,
        /// Vendor specific information available.
        vendor: u8 = 28,
        /// Transport type.
        trtype: u8 = 29,
        /// Reserved.
        rsvd30: [u8; 2] = 30,
        /// Command specific information.
        command_specific: U64 = 32,
        /// Transport type specific information.
        transport_specific: U16 = 40,
        /// Reserved.
        rsvd42: [u8; 22] = 42,
    }
}

wire! {
    /// Firmware slot information: 512 bytes (base 2.0, Figure 208).
    FirmwareSlots: 512 {
        /// Active slot in 2:0, slot after the next reset in 6:4.
        afi: u8 = 0,
        /// Reserved.
        rsvd1: [u8; 7] = 1,
        /// Revision in each slot, ASCII.
        revisions: [[u8; 8]; 7] = 8,
        /// Reserved.
        rsvd64: [u8; 448] = 64,
    }
}

wire! {
    /// Commands supported and effects: 4096 bytes (base 2.0, Figure 210).
    Effects: 4096 {
        /// By admin opcode.
        admin: [U32; 256] = 0,
        /// By I/O opcode.
        io: [U32; 256] = 1024,
        /// Reserved.
        rsvd2048: [u8; 2048] = 2048,
    }
}

bits! {
    /// The effects of one command (base 2.0, Figure 211).
    Effect: u32 {
        /// Supported.
        csupp, with_csupp: 0, 0;
        /// Logical block content may change.
        lbcc, with_lbcc: 1, 1;
        /// Namespace capability may change.
        ncc, with_ncc: 2, 2;
        /// Namespace inventory may change.
        nic, with_nic: 3, 3;
        /// Controller capability may change.
        ccc, with_ccc: 4, 4;
        /// Execution restrictions.
        cse, with_cse: 18, 16;
        /// UUID selection supported.
        uss, with_uss: 19, 19;
    }
}

bits! {
    /// The effects of one feature (base 2.0, Figure 257).
    FeatureEffect: u32 {
        /// Supported.
        fsupp, with_fsupp: 0, 0;
        /// User data content may change.
        udcc, with_udcc: 1, 1;
        /// Namespace capability may change.
        ncc, with_ncc: 2, 2;
        /// Namespace inventory may change.
        nic, with_nic: 3, 3;
        /// Controller capability may change.
        ccc, with_ccc: 4, 4;
        /// UUID selection supported.
        uss, with_uss: 19, 19;
        /// Whose it is: [`scope`].
        scope, with_scope: 31, 20;
    }
}

/// Bits of the scope of a feature, or of a command.
pub mod scope {
    /// A namespace.
    pub const NAMESPACE: u32 = 1 << 0;
    /// A controller.
    pub const CONTROLLER: u32 = 1 << 1;
    /// An NVM set.
    pub const NVM_SET: u32 = 1 << 2;
    /// An endurance group.
    pub const ENDURANCE_GROUP: u32 = 1 << 3;
    /// A domain.
    pub const DOMAIN: u32 = 1 << 4;
    /// The NVM subsystem.
    pub const SUBSYSTEM: u32 = 1 << 5;
}

wire! {
    /// Feature identifiers supported and effects: 1024 bytes (base 2.0, Figure 256).
    FeatureEffects: 1024 {
        /// By FID: [`FeatureEffect`].
        features: [U32; 256] = 0,
    }
}

/// Values of [`Effect`]'s CSE (base 2.0, Figure 211).
pub mod cse {
    /// No restriction.
    pub const NONE: u32 = 0;
    /// No other command of the same namespace may run beside it.
    pub const ALONE_IN_NAMESPACE: u32 = 1;
    /// No other command of any namespace may run beside it.
    pub const ALONE: u32 = 2;
}

wire! {
    /// Sanitize status: 512 bytes (base 2.0, Figure 266).
    SanitizeStatus: 512 {
        /// Progress of the operation under way in 65536ths; FFFFh where there is none.
        sprog: U16 = 0,
        /// [`sanitize_status`] in 2:0, completed passes in 7:3, bit 8: nothing was written since (global data erased).
        sstat: U16 = 2,
        /// CDW10 of the command that began it.
        scdw10: U32 = 4,
        /// Estimated seconds of an overwrite; FFFFFFFFh unknown.
        overwrite_time: U32 = 8,
        /// Of a block erase.
        block_erase_time: U32 = 12,
        /// Of a crypto erase.
        crypto_erase_time: U32 = 16,
        /// Of an overwrite after which nothing is deallocated.
        overwrite_time_kept: U32 = 20,
        /// Of a block erase after which nothing is deallocated.
        block_erase_time_kept: U32 = 24,
        /// Of a crypto erase after which nothing is deallocated.
        crypto_erase_time_kept: U32 = 28,
        /// Reserved.
        rsvd32: [u8; 480] = 32,
    }
}

/// Bits 2:0 of SSTAT.
pub mod sanitize_status {
    /// The drive was never sanitized.
    pub const NEVER: u16 = 0;
    /// The last operation was successful.
    pub const DONE: u16 = 1;
    /// One is under way.
    pub const IN_PROGRESS: u16 = 2;
    /// The last one failed.
    pub const FAILED: u16 = 3;
    /// Successful, but deallocated although that was not wanted.
    pub const DONE_DEALLOCATED: u16 = 4;
    /// Bit 8: nothing was written since.
    pub const ERASED: u16 = 1 << 8;
}

wire! {
    /// Supported log pages: 1024 bytes (base 2.0, Figure 203).
    SupportedLogPages: 1024 {
        /// By LID: bit 0 supported, bit 1 index offset supported.
        pages: [U32; 256] = 0,
    }
}

wire! {
    /// The head of the discovery log page: 1024 bytes (base 2.0, Figure 264).
    DiscoveryHeader: 1024 {
        /// Generation counter: changes whenever the log does.
        genctr: U64 = 0,
        /// Number of records.
        numrec: U64 = 8,
        /// Record format, 0.
        recfmt: U16 = 16,
        /// Discovery log page flags: what of [`discovery_lsp`] was done.
        dlpf: u8 = 18,
        /// Reserved.
        rsvd19: u8 = 19,
        /// Total length of the page in bytes, where its entries are extended.
        tdlpl: U32 = 20,
        /// Reserved.
        rsvd24: [u8; 1000] = 24,
    }
}

/// LSP of Get Log Page for the discovery log, and DLPF of what came (base 2.1, Figures 292 to 294). Bits 18:16 of its supported
/// log pages entry say which a controller knows.
pub mod discovery_lsp {
    /// EXTDLPE: the entries are extended.
    pub const EXTENDED: u8 = 1 << 0;
    /// PLEO: only subsystems behind the port that was asked.
    pub const PORT_LOCAL: u8 = 1 << 1;
    /// ALLSUBE: also subsystems that are not meant for the host that asks.
    pub const ALL: u8 = 1 << 2;
}

wire! {
    /// A discovery log page entry: 1024 bytes (base 2.0, Figure 264).
    DiscoveryEntry: 1024 {
        /// Transport type: 3 TCP.
        trtype: u8 = 0,
        /// Address family: 1 IPv4, 2 IPv6.
        adrfam: u8 = 1,
        /// Subsystem type: [`subtype`].
        subtype: u8 = 2,
        /// Transport requirements: bits 1:0 secure channel, 2 SQ flow control may be disabled.
        treq: u8 = 3,
        /// Port identifier.
        portid: U16 = 4,
        /// Controller identifier: FFFFh in the dynamic model.
        cntlid: U16 = 6,
        /// Admin submission queue maximum size.
        asqsz: U16 = 8,
        /// Entry flags: bit 1 explicit persistent connection, bit 0 duplicate returned information.
        eflags: U16 = 10,
        /// Reserved.
        rsvd12: [u8; 20] = 12,
        /// Transport service: the TCP port, ASCII.
        trsvcid: [u8; 32] = 32,
        /// Reserved.
        rsvd64: [u8; 192] = 64,
        /// NQN of the subsystem.
        subnqn: [u8; 256] = 256,
        /// Transport address, ASCII.
        traddr: [u8; 256] = 512,
        /// Transport specific address subtype: for TCP byte 0 is 0, no security.
        tsas: [u8; 256] = 768,
    }
}

wire! {
    /// An extended discovery log page entry without its attributes: 1032 bytes (base 2.1, Figure 295).
    ExtendedDiscoveryEntry: 1032 {
        /// What every entry says.
        entry: DiscoveryEntry = 0,
        /// Total entry length in bytes, attributes included.
        tel: U32 = 1024,
        /// Number of attributes.
        numexat: U16 = 1028,
        /// Reserved.
        rsvd1030: [u8; 2] = 1030,
    }
}

wire! {
    /// The head of an extended attribute; its value follows (base 2.1, Figure 499).
    ExtendedAttribute: 4 {
        /// [`extended_attribute`] type.
        exattype: U16 = 0,
        /// Bytes of the value: a multiple of 4, not 0.
        exatlen: U16 = 2,
    }
}

/// EXATTYPE (base 2.1, Figure 499).
pub mod extended_attribute {
    /// Host identifier, 16 bytes.
    pub const HOST_ID: u16 = 1;
    /// Administrative label, 4 to 256 bytes of ASCII.
    pub const LABEL: u16 = 2;
}

/// TRTYPE (base 2.0, Figure 264).
pub mod trtype {
    /// TCP.
    pub const TCP: u8 = 3;
    /// Intra-host.
    pub const LOOP: u8 = 254;
}

/// ADRFAM.
pub mod adrfam {
    /// IPv4.
    pub const IPV4: u8 = 1;
    /// IPv6.
    pub const IPV6: u8 = 2;
}

/// SUBTYPE.
pub mod subtype {
    /// Another discovery subsystem.
    pub const REFERRAL: u8 = 1;
    /// An NVM subsystem.
    pub const NVM: u8 = 2;
    /// This discovery subsystem.
    pub const CURRENT_DISCOVERY: u8 = 3;
}

impl DiscoveryEntry {
    /// An entry for a TCP address (`traddr` without brackets), dynamic controllers, no security.
    pub fn tcp(subtype: u8, subnqn: &str, adrfam: u8, traddr: &str, port: u16) -> Self {
        let mut e = Self {
            trtype: trtype::TCP,
            adrfam,
            subtype,
            treq: TREQ_DISABLE_SQ_FLOW,
            cntlid: U16::new(0xffff),
            asqsz: U16::new(32),
            ..Self::default()
        };
        let mut digits = [0u8; 5];
        let (mut n, mut p) = (5, port);
        loop {
            n -= 1;
            digits[n] = b'0' + (p % 10) as u8;
            p /= 10;
            if p == 0 {
                break;
            }
        }
        // ASCII strings of the discovery log are padded with spaces (base 2.0, 1.4.2); Linux trims either.
        wire::set_text(&mut e.trsvcid, wire::text(&digits[n..]).unwrap_or(""), b' ');
        wire::set_text(&mut e.traddr, traddr, b' ');
        wire::set_text(&mut e.subnqn, subnqn, 0);
        e
    }
    /// SUBNQN.
    pub fn subnqn(&self) -> Option<&str> {
        wire::text(&self.subnqn)
    }
    /// TRADDR without padding.
    pub fn traddr(&self) -> Option<&str> {
        wire::text(&self.traddr).map(str::trim_end)
    }
    /// TRSVCID without padding.
    pub fn trsvcid(&self) -> Option<&str> {
        wire::text(&self.trsvcid).map(str::trim_end)
    }
}

/// TREQ bit 2: SQ flow control may be disabled.
pub const TREQ_DISABLE_SQ_FLOW: u8 = 1 << 2;

/// Critical warning bits of [`Smart`] (base 2.0, Figure 207).
pub mod critical_warning {
    /// Available spare is below its threshold.
    pub const SPARE: u8 = 1 << 0;
    /// The temperature has left its thresholds.
    pub const TEMPERATURE: u8 = 1 << 1;
    /// Reliability is degraded by media or internal errors.
    pub const RELIABILITY: u8 = 1 << 2;
    /// All media takes no more writes.
    pub const READ_ONLY: u8 = 1 << 3;
}

/// Asynchronous event types (base 2.0, Figure 146).
pub mod event_type {
    /// Error status.
    pub const ERROR: u8 = 0;
    /// SMART / health status.
    pub const SMART: u8 = 1;
    /// Notice.
    pub const NOTICE: u8 = 2;
    /// I/O command specific.
    pub const IO: u8 = 6;
}

/// What an asynchronous event says: DW0 of the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Type, 3 bits: [`event_type`].
    pub kind: u8,
    /// Information.
    pub info: u8,
    /// The log page to read.
    pub lid: u8,
}

impl AsyncEvent {
    /// Write to a doorbell that does not exist.
    pub const INVALID_DOORBELL_REGISTER: Self = Self { kind: event_type::ERROR, info: 0, lid: lid::ERROR };
    /// A doorbell value outside the queue.
    pub const INVALID_DOORBELL_VALUE: Self = Self { kind: event_type::ERROR, info: 1, lid: lid::ERROR };
    /// Persistent internal error.
    pub const PERSISTENT_INTERNAL_ERROR: Self = Self { kind: event_type::ERROR, info: 3, lid: lid::ERROR };
    /// The self-test of a reset or of the drive's own found a failure.
    pub const DIAGNOSTIC_FAILURE: Self = Self { kind: event_type::ERROR, info: 2, lid: lid::ERROR };
    /// Firmware image load error: another image runs than was to be activated.
    pub const FIRMWARE_LOAD_ERROR: Self = Self { kind: event_type::ERROR, info: 5, lid: lid::ERROR };
    /// Reliability is compromised: media errors, an internal error, media that is read-only now.
    pub const RELIABILITY: Self = Self { kind: event_type::SMART, info: 0, lid: lid::SMART };
    /// Temperature above (or below) threshold.
    pub const TEMPERATURE: Self = Self { kind: event_type::SMART, info: 1, lid: lid::SMART };
    /// Available spare below threshold.
    pub const SPARE: Self = Self { kind: event_type::SMART, info: 2, lid: lid::SMART };
    /// Firmware activation starting; cleared by reading the firmware slot information.
    pub const FIRMWARE_STARTING: Self = Self { kind: event_type::NOTICE, info: 1, lid: lid::FIRMWARE };
    /// The controller saved telemetry of its own accord.
    pub const TELEMETRY_CHANGED: Self = Self { kind: event_type::NOTICE, info: 2, lid: lid::TELEMETRY_CONTROLLER };
    /// Asymmetric namespace access changed.
    pub const ANA_CHANGE: Self = Self { kind: event_type::NOTICE, info: 3, lid: lid::ANA };
    /// LBA status information alert: blocks may be unrecoverable (NVM command set 1.0, 4.1.1).
    pub const LBA_STATUS: Self = Self { kind: event_type::NOTICE, info: 5, lid: lid::LBA_STATUS };
    /// The endurance group event aggregate log changed.
    pub const ENDURANCE_CHANGE: Self = Self { kind: event_type::NOTICE, info: 6, lid: lid::ENDURANCE_AGGREGATE };
    /// A sanitize operation has ended; its log says how.
    pub const SANITIZE_COMPLETED: Self = Self { kind: event_type::IO, info: 1, lid: lid::SANITIZE };
    /// Namespace attribute changed.
    pub const NAMESPACE_ATTRIBUTE: Self = Self { kind: event_type::NOTICE, info: 0, lid: lid::CHANGED_NAMESPACES };
    /// A reservation notification is available.
    pub const RESERVATION: Self = Self { kind: event_type::IO, info: 0, lid: lid::RESERVATION };
    /// Discovery log page changed.
    pub const DISCOVERY_CHANGE: Self = Self { kind: event_type::NOTICE, info: 0xf0, lid: lid::DISCOVERY };

    /// As DW0.
    pub const fn dw0(self) -> u32 {
        self.kind as u32 & 7 | (self.info as u32) << 8 | (self.lid as u32) << 16
    }
    /// From DW0.
    pub const fn from_dw0(dw0: u32) -> Self {
        Self { kind: dw0 as u8 & 7, info: (dw0 >> 8) as u8, lid: (dw0 >> 16) as u8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_entry_reads_back() {
        let e = DiscoveryEntry::tcp(subtype::NVM, "nqn.2026-01.io.weir:ssd0", adrfam::IPV4, "127.0.0.1", 4420);
        assert_eq!((e.traddr(), e.trsvcid()), (Some("127.0.0.1"), Some("4420")));
        assert_eq!(e.subnqn(), Some("nqn.2026-01.io.weir:ssd0"));
        let e = DiscoveryEntry::tcp(subtype::NVM, "", adrfam::IPV6, "::1", 0);
        assert_eq!((e.traddr(), e.trsvcid()), (Some("::1"), Some("0")));
    }

    #[test]
    fn lengths_do_not_overflow() {
        assert_eq!(log_length(0, 0), 4);
        assert_eq!(log_length(0x03ff_0002, 0), 4096);
        assert_eq!(log_length(u32::MAX, u32::MAX), 1 << 34);
    }

    #[test]
    fn events() {
        assert_eq!(AsyncEvent::DISCOVERY_CHANGE.dw0(), 0x0070_f002);
        assert_eq!(AsyncEvent::from_dw0(0x0070_f002), AsyncEvent::DISCOVERY_CHANGE);
        assert_eq!(AsyncEvent::LBA_STATUS.dw0(), 0x000e_0502);
    }
}
