//! What Identify answers (base 2.0, 5.17; NVM command set 1.0, 4.1.5).

mod lists;

pub use lists::*;

use super::wire::{self, wire};
use zerocopy::little_endian::{U16, U32, U64};

/// Length of every Identify answer.
pub const IDENTIFY_LEN: usize = 4096;
/// NSID that means every namespace.
pub const NSID_ALL: u32 = 0xffff_ffff;

/// CNS values (base 2.0, Figure 273).
pub mod cns {
    /// Identify Namespace of an active namespace (NVM).
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespace list.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace identification descriptor list.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// NVM set list.
    pub const NVM_SETS: u8 = 0x04;
    /// Identify Namespace of an I/O command set.
    pub const CS_NAMESPACE: u8 = 0x05;
    /// Identify Controller of an I/O command set.
    pub const CS_CONTROLLER: u8 = 0x06;
    /// Active namespace list of an I/O command set.
    pub const CS_ACTIVE_NAMESPACES: u8 = 0x07;
    /// Identify Namespace, independent of the I/O command set.
    pub const CS_INDEPENDENT_NAMESPACE: u8 = 0x08;
    /// Allocated namespace list.
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    /// Identify Namespace of an allocated namespace.
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    /// Controllers that a namespace is attached to.
    pub const NAMESPACE_CONTROLLERS: u8 = 0x12;
    /// Controllers of the subsystem.
    pub const CONTROLLERS: u8 = 0x13;
    /// Namespace Granularity List.
    pub const NAMESPACE_GRANULARITY: u8 = 0x16;
    /// Endurance group list.
    pub const ENDURANCE_GROUPS: u8 = 0x19;
    /// Allocated namespace list of an I/O command set.
    pub const CS_ALLOCATED_NAMESPACES: u8 = 0x1a;
    /// Identify I/O command set combinations.
    pub const COMMAND_SETS: u8 = 0x1c;
}

/// Bits of CTRATT (base 2.1, 5.1.13.2.1).
pub mod ctratt {
    /// 128-bit host identifiers.
    pub const HOST_ID_128: u32 = 1;
    /// Endurance groups.
    pub const ENDURANCE_GROUPS: u32 = 1 << 4;
    /// Extended LBA formats.
    pub const EXTENDED_FORMATS: u32 = 1 << 15;
    /// Flexible data placement.
    pub const FDP: u32 = 1 << 19;
}

/// Bits of OACS: optional admin commands (base 2.0, Figure 275).
pub mod oacs {
    /// Security Send and Receive.
    pub const SECURITY: u16 = 1 << 0;
    /// Format NVM.
    pub const FORMAT: u16 = 1 << 1;
    /// Firmware Commit and Firmware Image Download.
    pub const FIRMWARE: u16 = 1 << 2;
    /// Namespace Management and Attachment.
    pub const NAMESPACES: u16 = 1 << 3;
    /// Device Self-test.
    pub const SELF_TEST: u16 = 1 << 4;
    /// Directives.
    pub const DIRECTIVES: u16 = 1 << 5;
    /// NVMe-MI Send and Receive.
    pub const MI: u16 = 1 << 6;
    /// Virtualization Management.
    pub const VIRTUALIZATION: u16 = 1 << 7;
    /// Doorbell Buffer Config.
    pub const DOORBELL_BUFFERS: u16 = 1 << 8;
    /// Get LBA Status.
    pub const LBA_STATUS: u16 = 1 << 9;
    /// Lockdown.
    pub const LOCKDOWN: u16 = 1 << 10;
}

/// Bits of ONCS: optional NVM commands and features (base 2.0, Figure 275).
pub mod oncs {
    /// Compare.
    pub const COMPARE: u16 = 1 << 0;
    /// Write Uncorrectable.
    pub const WRITE_UNCORRECTABLE: u16 = 1 << 1;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Save of Set Features and Select of Get Features.
    pub const SAVE_AND_SELECT: u16 = 1 << 4;
    /// Reservations.
    pub const RESERVATIONS: u16 = 1 << 5;
    /// Timestamp.
    pub const TIMESTAMP: u16 = 1 << 6;
    /// Verify.
    pub const VERIFY: u16 = 1 << 7;
    /// Copy.
    pub const COPY: u16 = 1 << 8;
    /// Copy writes as atomically as Write does (NVM 1.1, 3.3.2.2).
    pub const COPY_ATOMICITY: u16 = 1 << 9;
}

/// I/O command set identifiers (base 2.0, Figure 274).
pub mod csi {
    /// NVM command set.
    pub const NVM: u8 = 0;
    /// Zoned namespace command set.
    pub const ZNS: u8 = 2;
}

/// CNTRLTYPE (base 2.0, Figure 275).
pub mod controller_type {
    /// I/O controller.
    pub const IO: u8 = 1;
    /// Discovery controller.
    pub const DISCOVERY: u8 = 2;
}

wire! {
    /// A power state: 32 bytes (base 2.0, Figure 276).
    PowerStateDescriptor: 32 {
        /// Maximum power, in 0.01 W (or 0.0001 W with bit 0 of `flags`).
        mp: U16 = 0,
        /// Reserved.
        rsvd2: u8 = 2,
        /// Bit 0: the scale of `mp`; bit 1: no I/O is served in it (non-operational).
        flags: u8 = 3,
        /// Entry latency, µs.
        enlat: U32 = 4,
        /// Exit latency, µs.
        exlat: U32 = 8,
        /// Relative read throughput, 0 best.
        rrt: u8 = 12,
        /// Relative read latency.
        rrl: u8 = 13,
        /// Relative write throughput.
        rwt: u8 = 14,
        /// Relative write latency.
        rwl: u8 = 15,
        /// Idle power.
        idlp: U16 = 16,
        /// Scale of the idle power in 7:6.
        ips: u8 = 18,
        /// Reserved.
        rsvd19: u8 = 19,
        /// Active power.
        actp: U16 = 20,
        /// Workload of the active power in 2:0, its scale in 7:6.
        apw: u8 = 22,
        /// Reserved.
        rsvd23: [u8; 9] = 23,
    }
}

wire! {
    /// Identify Controller: 4096 bytes (base 2.0, Figure 275).
    IdentifyController: 4096 {
        /// PCI vendor ID.
        vid: U16 = 0,
        /// PCI subsystem vendor ID.
        ssvid: U16 = 2,
        /// Serial number, ASCII, padded with spaces.
        sn: [u8; 20] = 4,
        /// Model number, ASCII, padded with spaces.
        mn: [u8; 40] = 24,
        /// Firmware revision, ASCII, padded with spaces.
        fr: [u8; 8] = 64,
        /// Recommended arbitration burst, as a power of two.
        rab: u8 = 72,
        /// IEEE OUI.
        ieee: [u8; 3] = 73,
        /// Multi-path: bit 1 several controllers.
        cmic: u8 = 76,
        /// Maximum data transfer size, as a power of two of the smallest page; 0 is unlimited.
        mdts: u8 = 77,
        /// Controller identifier.
        cntlid: U16 = 78,
        /// Version, as VS.
        ver: U32 = 80,
        /// RTD3 resume latency.
        rtd3r: U32 = 84,
        /// RTD3 entry latency.
        rtd3e: U32 = 88,
        /// Optional async events supported: bit 8 namespace attributes, bit 31 discovery log change.
        oaes: U32 = 92,
        /// Attributes: bit 0 128-bit host identifier, bit 6 traffic based keep alive.
        ctratt: U32 = 96,
        /// Read recovery levels supported.
        rrls: U16 = 100,
        /// Reserved.
        rsvd102: [u8; 9] = 102,
        /// Controller type: [`controller_type`].
        cntrltype: u8 = 111,
        /// FRU globally unique identifier.
        fguid: [u8; 16] = 112,
        /// Command retry delay 1, in 100 ms.
        crdt1: U16 = 128,
        /// Command retry delay 2.
        crdt2: U16 = 130,
        /// Command retry delay 3.
        crdt3: U16 = 132,
        /// Reserved.
        rsvd134: [u8; 119] = 134,
        /// NVM subsystem report.
        nvmsr: u8 = 253,
        /// VPD write cycle information.
        vwci: u8 = 254,
        /// Management endpoint capabilities.
        mec: u8 = 255,
        /// Optional admin commands: bit 1 format, 3 namespace management, 8 doorbell buffers.
        oacs: U16 = 256,
        /// Abort command limit, 0-based.
        acl: u8 = 258,
        /// Async event request limit, 0-based.
        aerl: u8 = 259,
        /// Firmware updates: bit 0 slot 1 read only, 3:1 number of slots.
        frmw: u8 = 260,
        /// Log page attributes: bit 0 SMART per namespace, 1 effects log, 2 extended data (offset).
        lpa: u8 = 261,
        /// Error log page entries, 0-based.
        elpe: u8 = 262,
        /// Number of power states, 0-based.
        npss: u8 = 263,
        /// Admin vendor commands use the standard format.
        avscc: u8 = 264,
        /// Autonomous power state transitions.
        apsta: u8 = 265,
        /// Warning composite temperature, K.
        wctemp: U16 = 266,
        /// Critical composite temperature, K.
        cctemp: U16 = 268,
        /// Maximum time for firmware activation.
        mtfa: U16 = 270,
        /// Host memory buffer preferred size.
        hmpre: U32 = 272,
        /// Host memory buffer minimum size.
        hmmin: U32 = 276,
        /// Total NVM capacity in bytes.
        tnvmcap: [u8; 16] = 280,
        /// Unallocated NVM capacity in bytes.
        unvmcap: [u8; 16] = 296,
        /// Replay protected memory block support.
        rpmbs: U32 = 312,
        /// Extended self-test time, minutes.
        edstt: U16 = 316,
        /// Device self-test options.
        dsto: u8 = 318,
        /// Firmware update granularity, 4 KiB.
        fwug: u8 = 319,
        /// Keep alive support: granularity in 100 ms.
        kas: U16 = 320,
        /// Host controlled thermal management.
        hctma: U16 = 322,
        /// Minimum thermal management temperature.
        mntmt: U16 = 324,
        /// Maximum thermal management temperature.
        mxtmt: U16 = 326,
        /// Sanitize capabilities.
        sanicap: U32 = 328,
        /// Host memory buffer minimum descriptor entry size.
        hmminds: U32 = 332,
        /// Host memory maximum descriptors entries.
        hmmaxd: U16 = 336,
        /// NVM set identifier maximum.
        nsetidmax: U16 = 338,
        /// Endurance group identifier maximum.
        endgidmax: U16 = 340,
        /// ANA transition time, s.
        anatt: u8 = 342,
        /// ANA capabilities.
        anacap: u8 = 343,
        /// ANA group identifier maximum.
        anagrpmax: U32 = 344,
        /// Number of ANA group identifiers.
        nanagrpid: U32 = 348,
        /// Persistent event log size, 64 KiB.
        pels: U32 = 352,
        /// Domain identifier.
        domain: U16 = 356,
        /// Reserved.
        rsvd358: [u8; 10] = 358,
        /// Maximum endurance group capacity.
        megcap: [u8; 16] = 368,
        /// Reserved.
        rsvd384: [u8; 128] = 384,
        /// Submission queue entry size: minimum in 3:0, maximum in 7:4.
        sqes: u8 = 512,
        /// Completion queue entry size: minimum in 3:0, maximum in 7:4.
        cqes: u8 = 513,
        /// Maximum outstanding commands (fabrics).
        maxcmd: U16 = 514,
        /// Number of namespaces: the largest NSID.
        nn: U32 = 516,
        /// Optional NVM commands: bit 0 compare, 1 write uncorrectable, 2 DSM, 3 write zeroes, 7 verify, 8 copy.
        oncs: U16 = 520,
        /// Fused operations: bit 0 compare and write.
        fuses: U16 = 522,
        /// Format attributes.
        fna: u8 = 524,
        /// Volatile write cache: bit 0 present, 2:1 how flush treats FFFFFFFFh (11b: it flushes all).
        vwc: u8 = 525,
        /// Atomic write unit normal, 0-based blocks.
        awun: U16 = 526,
        /// Atomic write unit power fail, 0-based blocks.
        awupf: U16 = 528,
        /// I/O vendor commands use the standard format.
        icsvscc: u8 = 530,
        /// Namespace write protection capabilities.
        nwpc: u8 = 531,
        /// Atomic compare and write unit.
        acwu: U16 = 532,
        /// Copy descriptor formats.
        cdfs: U16 = 534,
        /// SGL support: bits 1:0 alignment, 16 bit bucket, 20 offset address (in-capsule), 21 transport SGL.
        sgls: U32 = 536,
        /// Maximum number of allowed namespaces.
        mnan: U32 = 540,
        /// Maximum domain namespace attachments.
        maxdna: [u8; 16] = 544,
        /// Maximum I/O controller namespace attachments.
        maxcna: U32 = 560,
        /// Reserved.
        rsvd564: [u8; 204] = 564,
        /// NQN of the subsystem, ended by zero.
        subnqn: [u8; 256] = 768,
        /// Reserved.
        rsvd1024: [u8; 768] = 1024,
        /// I/O queue command capsule size, 16 bytes (fabrics).
        ioccsz: U32 = 1792,
        /// I/O queue response capsule size, 16 bytes.
        iorcsz: U32 = 1796,
        /// In-capsule data offset, 16 bytes.
        icdoff: U16 = 1800,
        /// Fabrics controller attributes: bit 0 is set in the static model.
        fcatt: u8 = 1802,
        /// Maximum SGL data block descriptors; 0 unlimited.
        msdbd: u8 = 1803,
        /// Optional fabrics commands: bit 0 disconnect.
        ofcs: U16 = 1804,
        /// Reserved.
        rsvd1806: [u8; 242] = 1806,
        /// Power states.
        psd: [PowerStateDescriptor; 32] = 2048,
        /// Vendor specific.
        vs: [u8; 1024] = 3072,
    }
}

impl IdentifyController {
    /// SUBNQN.
    pub fn subnqn(&self) -> Option<&str> {
        wire::text(&self.subnqn)
    }
    /// SN without padding.
    pub fn serial(&self) -> &str {
        wire::text(&self.sn).unwrap_or("").trim_end()
    }
    /// MN without padding.
    pub fn model(&self) -> &str {
        wire::text(&self.mn).unwrap_or("").trim_end()
    }
}

wire! {
    /// An LBA format (NVM 1.0, Figure 98).
    LbaFormat: 4 {
        /// Metadata size.
        ms: U16 = 0,
        /// Data size as a power of two.
        lbads: u8 = 2,
        /// Relative performance, 0 best.
        rp: u8 = 3,
    }
}

wire! {
    /// Identify Namespace: 4096 bytes (NVM 1.0, Figure 97).
    IdentifyNamespace: 4096 {
        /// Size in blocks.
        nsze: U64 = 0,
        /// Capacity in blocks.
        ncap: U64 = 8,
        /// Utilization in blocks.
        nuse: U64 = 16,
        /// Features: bit 0 thin provisioning, 2 deallocated error, 4 NPWG and others valid.
        nsfeat: u8 = 24,
        /// Number of LBA formats, 0-based.
        nlbaf: u8 = 25,
        /// Formatted LBA size: index in 3:0.
        flbas: u8 = 26,
        /// Metadata capabilities.
        mc: u8 = 27,
        /// Protection capabilities.
        dpc: u8 = 28,
        /// Protection settings.
        dps: u8 = 29,
        /// Sharing: bit 0 several controllers.
        nmic: u8 = 30,
        /// Reservation capabilities.
        rescap: u8 = 31,
        /// Format progress.
        fpi: u8 = 32,
        /// Deallocate: bits 2:0 what is read (001b zeroes), 3 DEAC of write zeroes, 4 guard.
        dlfeat: u8 = 33,
        /// Atomic write unit normal, 0-based.
        nawun: U16 = 34,
        /// Atomic write unit power fail.
        nawupf: U16 = 36,
        /// Atomic compare and write unit.
        nacwu: U16 = 38,
        /// Atomic boundary size normal.
        nabsn: U16 = 40,
        /// Atomic boundary offset.
        nabo: U16 = 42,
        /// Atomic boundary size power fail.
        nabspf: U16 = 44,
        /// Optimal I/O boundary, blocks.
        noiob: U16 = 46,
        /// NVM capacity in bytes.
        nvmcap: [u8; 16] = 48,
        /// Preferred write granularity, 0-based.
        npwg: U16 = 64,
        /// Preferred write alignment, 0-based.
        npwa: U16 = 66,
        /// Preferred deallocate granularity, 0-based.
        npdg: U16 = 68,
        /// Preferred deallocate alignment, 0-based.
        npda: U16 = 70,
        /// Optimal write size, 0-based.
        nows: U16 = 72,
        /// Maximum single source range length.
        mssrl: U16 = 74,
        /// Maximum copy length.
        mcl: U32 = 76,
        /// Maximum source range count.
        msrc: u8 = 80,
        /// Reserved.
        rsvd81: [u8; 11] = 81,
        /// ANA group.
        anagrpid: U32 = 92,
        /// Reserved.
        rsvd96: [u8; 3] = 96,
        /// Attributes: bit 0 write protected.
        nsattr: u8 = 99,
        /// NVM set.
        nvmsetid: U16 = 100,
        /// Endurance group.
        endgid: U16 = 102,
        /// Globally unique identifier.
        nguid: [u8; 16] = 104,
        /// IEEE extended unique identifier.
        eui64: [u8; 8] = 120,
        /// LBA formats.
        lbaf: [LbaFormat; 64] = 128,
        /// Vendor specific.
        vs: [u8; 3712] = 384,
    }
}

impl IdentifyNvmController {
    /// The longest Write Zeroes in bytes, of blocks of so many bytes and memory pages of `page_shift` (CAP.MPSMIN): WZSL, and NLB, which
    /// counts 65536 blocks (NVM 1.0, 3.2.7).
    pub fn max_zeroes(&self, page_shift: u32, block_size: u32) -> u32 {
        let by_nlb = block_size.saturating_mul(1 << 16);
        let by_wzsl = 1u64.checked_shl(page_shift + u32::from(self.wzsl)).filter(|_| self.wzsl != 0);
        by_wzsl.and_then(|bytes| u32::try_from(bytes).ok()).map_or(by_nlb, |bytes| bytes.min(by_nlb))
    }
}

impl IdentifyNamespace {
    /// The block size in use, as a power of two; `None` for one that no drive has (below 512 B or above 1 MiB).
    pub fn block_shift(&self) -> Option<u32> {
        let index = self.flbas & 0xf | self.flbas >> 1 & 0x30;
        let shift = u32::from(self.lbaf[usize::from(index)].lbads);
        (9..=20).contains(&shift).then_some(shift)
    }
}

wire! {
    /// Identify Controller of the NVM command set, CNS 06h (NVM 1.0, Figure 102).
    IdentifyNvmController: 4096 {
        /// Verify size limit.
        vsl: u8 = 0,
        /// Write zeroes size limit, as MDTS; 0 unlimited.
        wzsl: u8 = 1,
        /// Write uncorrectable size limit.
        wusl: u8 = 2,
        /// Dataset management ranges limit.
        dmrl: u8 = 3,
        /// Dataset management range size limit, blocks.
        dmrsl: U32 = 4,
        /// Dataset management size limit, blocks.
        dmsl: U64 = 8,
        /// Reserved.
        rsvd16: [u8; 4080] = 16,
    }
}

wire! {
    /// Identify Namespace independent of the command set, CNS 08h (base 2.0, Figure 280).
    IdentifyIndependentNamespace: 4096 {
        /// Common namespace features.
        nsfeat: u8 = 0,
        /// Sharing.
        nmic: u8 = 1,
        /// Reservation capabilities.
        rescap: u8 = 2,
        /// Format progress.
        fpi: u8 = 3,
        /// ANA group.
        anagrpid: U32 = 4,
        /// Attributes.
        nsattr: u8 = 8,
        /// Reserved.
        rsvd9: u8 = 9,
        /// NVM set.
        nvmsetid: U16 = 10,
        /// Endurance group.
        endgid: U16 = 12,
        /// Status: bit 0 ready.
        nstat: u8 = 14,
        /// Reserved.
        rsvd15: [u8; 4081] = 15,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_have_a_limit_of_their_own() {
        let of = |wzsl| IdentifyNvmController { wzsl, ..IdentifyNvmController::default() };
        // No limit but NLB; pages of 2^(12 + MPSMIN); more than NLB counts; and what no drive says.
        let sizes = [(0, 12, 512), (5, 12, 512), (5, 13, 4096), (30, 12, 512), (255, 12, 4096)];
        let most = sizes.map(|(wzsl, page, block)| of(wzsl).max_zeroes(page, block));
        assert_eq!(most, [32 << 20, 128 << 10, 256 << 10, 32 << 20, 256 << 20]);
    }

    #[test]
    fn block_size_of_a_hostile_namespace() {
        let mut ns = IdentifyNamespace { flbas: 0xff, ..IdentifyNamespace::default() };
        assert_eq!(ns.block_shift(), None);
        ns.lbaf[63].lbads = 12;
        assert_eq!(ns.block_shift(), Some(12));
    }
}
