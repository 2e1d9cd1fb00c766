//! Controller registers (base 2.0, 3.1.3) and, over fabrics, properties (base 2.0, 3.1.4): offsets and typed fields.

use super::wire::bits;

/// CAP: controller capabilities, 8 bytes.
pub const CAP: u32 = 0x00;
/// VS: version, 4 bytes.
pub const VS: u32 = 0x08;
/// INTMS: interrupt mask set, 4 bytes.
pub const INTMS: u32 = 0x0c;
/// INTMC: interrupt mask clear, 4 bytes.
pub const INTMC: u32 = 0x10;
/// CC: controller configuration, 4 bytes.
pub const CC: u32 = 0x14;
/// CSTS: controller status, 4 bytes.
pub const CSTS: u32 = 0x1c;
/// NSSR: NVM subsystem reset, 4 bytes.
pub const NSSR: u32 = 0x20;
/// AQA: admin queue attributes, 4 bytes.
pub const AQA: u32 = 0x24;
/// ASQ: admin submission queue base address, 8 bytes.
pub const ASQ: u32 = 0x28;
/// ACQ: admin completion queue base address, 8 bytes.
pub const ACQ: u32 = 0x30;
/// CMBLOC: controller memory buffer location, 4 bytes.
pub const CMBLOC: u32 = 0x38;
/// CMBSZ: controller memory buffer size, 4 bytes.
pub const CMBSZ: u32 = 0x3c;
/// BPINFO: boot partition information, 4 bytes.
pub const BPINFO: u32 = 0x40;
/// BPRSEL: boot partition read select, 4 bytes.
pub const BPRSEL: u32 = 0x44;
/// BPMBL: boot partition memory buffer location, 8 bytes.
pub const BPMBL: u32 = 0x48;
/// CMBMSC: controller memory buffer memory space control, 8 bytes.
pub const CMBMSC: u32 = 0x50;
/// CMBSTS: controller memory buffer status, 4 bytes.
pub const CMBSTS: u32 = 0x58;
/// CRTO: controller ready timeouts, 4 bytes.
pub const CRTO: u32 = 0x68;
/// The first doorbell; there are two for each queue identifier, `4 << CAP.DSTRD` bytes apart.
pub const DOORBELLS: u32 = 0x1000;

/// What resets the subsystem when it is written to NSSR: "NVMe" (base 2.0, 3.1.3.7).
pub const NSSR_RESET: u32 = 0x4e56_4d65;

/// VS of version 2.0.
pub const VERSION_2_0: u32 = 0x0002_0000;

bits! {
    /// Controller Capabilities (base 2.0, Figure 36).
    Cap: u64 {
        /// Maximum queue entries supported, 0-based.
        mqes, with_mqes: 15, 0;
        /// Contiguous queues required.
        cqr, with_cqr: 16, 16;
        /// Arbitration mechanisms supported beside round robin: [`ams_supported`].
        ams, with_ams: 18, 17;
        /// Worst-case time to become ready, in 500 ms.
        to, with_to: 31, 24;
        /// Doorbell stride: 4 << DSTRD bytes.
        dstrd, with_dstrd: 35, 32;
        /// NVM subsystem reset supported.
        nssrs, with_nssrs: 36, 36;
        /// Command sets supported: bit 0 NVM, bit 6 one or more I/O command sets, bit 7 none.
        css, with_css: 44, 37;
        /// Boot partitions supported.
        bps, with_bps: 45, 45;
        /// Minimum memory page size: 2^(12 + MPSMIN).
        mpsmin, with_mpsmin: 51, 48;
        /// Maximum memory page size: 2^(12 + MPSMAX).
        mpsmax, with_mpsmax: 55, 52;
        /// Persistent memory region supported.
        pmrs, with_pmrs: 56, 56;
        /// Controller memory buffer supported.
        cmbs, with_cmbs: 57, 57;
        /// NVM subsystem shutdown supported.
        nsss, with_nsss: 58, 58;
        /// Controller ready modes supported: bit 0 ready with media, bit 1 ready independent of media.
        crms, with_crms: 60, 59;
    }
}

/// Bits of CAP.CSS.
pub mod css_supported {
    /// The NVM command set.
    pub const NVM: u64 = 1;
    /// One or more I/O command sets, told by Identify.
    pub const ALL: u64 = 1 << 6;
}

/// Values of CC.CSS.
pub mod css {
    /// The NVM command set.
    pub const NVM: u32 = 0;
    /// All supported I/O command sets.
    pub const ALL: u32 = 0b110;
}

/// Bits of CAP.AMS.
pub mod ams_supported {
    /// Weighted round robin with urgent priority class.
    pub const WRR: u64 = 1;
    /// Vendor specific (Weir: deficit round robin).
    pub const VENDOR: u64 = 2;
}

/// Values of CC.AMS.
pub mod ams {
    /// Round robin.
    pub const RR: u32 = 0;
    /// Weighted round robin with urgent priority class.
    pub const WRR: u32 = 1;
    /// Vendor specific (Weir: deficit round robin).
    pub const VENDOR: u32 = 7;
}

bits! {
    /// Controller Configuration (base 2.0, Figure 46).
    Cc: u32 {
        /// Enable.
        en, with_en: 0, 0;
        /// I/O command set selected: 000b NVM, 110b all supported, 111b admin only.
        css, with_css: 6, 4;
        /// Memory page size: 2^(12 + MPS).
        mps, with_mps: 10, 7;
        /// Arbitration mechanism selected: [`ams`].
        ams, with_ams: 13, 11;
        /// Shutdown notification: 01b normal, 10b abrupt.
        shn, with_shn: 15, 14;
        /// I/O submission queue entry size, as a power of two.
        iosqes, with_iosqes: 19, 16;
        /// I/O completion queue entry size, as a power of two.
        iocqes, with_iocqes: 23, 20;
        /// Controller ready independent of media enable.
        crime, with_crime: 24, 24;
    }
}

bits! {
    /// Controller Status (base 2.0, Figure 47).
    Csts: u32 {
        /// Ready.
        rdy, with_rdy: 0, 0;
        /// Controller fatal status.
        cfs, with_cfs: 1, 1;
        /// Shutdown status: 00b normal operation, 01b shutdown processing, 10b shutdown complete.
        shst, with_shst: 3, 2;
        /// NVM subsystem reset occurred.
        nssro, with_nssro: 4, 4;
        /// Processing paused.
        pp, with_pp: 5, 5;
    }
}

/// Values of CSTS.SHST.
pub mod shst {
    /// Normal operation.
    pub const NORMAL: u32 = 0;
    /// Shutdown processing occurring.
    pub const PROCESSING: u32 = 1;
    /// Shutdown processing complete.
    pub const COMPLETE: u32 = 2;
}

bits! {
    /// Admin Queue Attributes (base 2.0, Figure 49).
    Aqa: u32 {
        /// Admin submission queue size, 0-based.
        asqs, with_asqs: 11, 0;
        /// Admin completion queue size, 0-based.
        acqs, with_acqs: 27, 16;
    }
}

bits! {
    /// Controller Memory Buffer Location (base 2.0, Figure 51).
    CmbLoc: u32 {
        /// The base address register that holds the buffer.
        bir, with_bir: 2, 0;
        /// Queues may lie partly in the buffer and partly in host memory.
        cqmms, with_cqmms: 3, 3;
        /// Queues need not be physically contiguous with each other.
        cqpds, with_cqpds: 4, 4;
        /// A command's pointers and lists may lie both in the buffer and in host memory.
        cdpmls, with_cdpmls: 5, 5;
        /// Lists in the buffer may go with commands in host memory and the other way round.
        cdpcils, with_cdpcils: 6, 6;
        /// A command's data and metadata may lie both in the buffer and in host memory.
        cdmmms, with_cdmmms: 7, 7;
        /// Queues and data have no alignment of their own.
        cqda, with_cqda: 8, 8;
        /// Offset in that register, in units of CMBSZ.SZU.
        ofst, with_ofst: 31, 12;
    }
}

bits! {
    /// Controller Memory Buffer Size (base 2.0, Figure 52).
    CmbSz: u32 {
        /// Submission queues supported.
        sqs, with_sqs: 0, 0;
        /// Completion queues supported.
        cqs, with_cqs: 1, 1;
        /// PRP and SGL lists supported.
        lists, with_lists: 2, 2;
        /// Data of commands that move it from the controller supported.
        rds, with_rds: 3, 3;
        /// Data of commands that move it to the controller supported.
        wds, with_wds: 4, 4;
        /// Unit: 4 KiB << (4 * SZU).
        szu, with_szu: 11, 8;
        /// Size in units.
        sz, with_sz: 31, 12;
    }
}

bits! {
    /// Controller Memory Buffer Memory Space Control (base 2.0, Figure 58).
    CmbMsc: u64 {
        /// Capabilities registers enabled: CMBLOC and CMBSZ read as zero before.
        cre, with_cre: 0, 0;
        /// Memory space enabled: the buffer is found at CBA.
        cmse, with_cmse: 1, 1;
        /// Controller base address, in 4 KiB.
        cba, with_cba: 63, 12;
    }
}

bits! {
    /// Controller Memory Buffer Status (base 2.0, Figure 59).
    CmbSts: u32 {
        /// Controller base address invalid.
        cbai, with_cbai: 0, 0;
    }
}

bits! {
    /// Controller Ready Timeouts (base 2.0, Figure 63), in 500 ms.
    Crto: u32 {
        /// Ready with media.
        crwmt, with_crwmt: 15, 0;
        /// Ready independent of media.
        crimt, with_crimt: 31, 16;
    }
}

/// Which doorbell an offset names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbell {
    /// Submission queue tail of this queue identifier.
    SqTail(u16),
    /// Completion queue head of this queue identifier.
    CqHead(u16),
}

/// The offset of a doorbell with CAP.DSTRD 0 (base 2.0, 3.1.3.25 of the PCIe transport 1.0).
pub const fn doorbell_offset(doorbell: Doorbell) -> u32 {
    match doorbell {
        Doorbell::SqTail(qid) => DOORBELLS + 8 * qid as u32,
        Doorbell::CqHead(qid) => DOORBELLS + 8 * qid as u32 + 4,
    }
}

/// The doorbell at an offset with CAP.DSTRD 0; `None` below the doorbells, between two, or past queue 65535.
pub const fn doorbell_at(offset: u32) -> Option<Doorbell> {
    if offset < DOORBELLS || offset % 4 != 0 {
        return None;
    }
    let index = (offset - DOORBELLS) / 4;
    if index > 0x1_ffff {
        return None;
    }
    let qid = (index / 2) as u16;
    Some(if index % 2 == 0 { Doorbell::SqTail(qid) } else { Doorbell::CqHead(qid) })
}

/// The size of the register at an offset, 4 or 8 bytes; `None` where there is none.
pub const fn size_at(offset: u32) -> Option<u8> {
    match offset {
        CAP | ASQ | ACQ | BPMBL | CMBMSC => Some(8),
        VS | INTMS | INTMC | CC | CSTS | NSSR | AQA | CMBLOC | CMBSZ | BPINFO | BPRSEL | CMBSTS | CRTO => Some(4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_overlap_and_come_back() {
        let cap = Cap(0).with_mqes(4095).with_cqr(1).with_ams(3).with_to(20).with_css(1).with_mpsmax(4);
        assert_eq!(cap.0, 0x0040_0020_1407_0fff);
        assert_eq!((cap.mqes(), cap.cqr(), cap.ams(), cap.to(), cap.css(), cap.mpsmax()), (4095, 1, 3, 20, 1, 4));
        let cc = Cc(0).with_en(1).with_ams(7).with_shn(2).with_iosqes(6).with_iocqes(4);
        assert_eq!(cc.0, 0x0046_b801);
        assert_eq!(cc.with_en(0).en(), 0);
        assert_eq!(Csts(0).with_shst(2).with_rdy(1).0, 9);
        assert_eq!(Cap(0).with_cmbs(1).with_nssrs(1).with_crms(1).0, 1 << 57 | 1 << 36 | 1 << 59);
        assert_eq!(CmbLoc(0).with_bir(2).with_cqda(1).with_ofst(3).0, 0x3102);
        assert_eq!(CmbSz(0).with_sqs(1).with_wds(1).with_sz(256).0, 0x0010_0011);
        assert_eq!(CmbMsc(0).with_cre(1).with_cmse(1).with_cba(0xfe00_0000 >> 12).0, 0xfe00_0003);
    }

    #[test]
    fn doorbells_both_ways() {
        for qid in [0, 1, 77, 65535] {
            for d in [Doorbell::SqTail(qid), Doorbell::CqHead(qid)] {
                assert_eq!(doorbell_at(doorbell_offset(d)), Some(d));
            }
        }
        for bad in [0, 0xffc, 0x1001, 0x1002, u32::MAX, u32::MAX - 3] {
            assert_eq!(doorbell_at(bad), None);
        }
    }
}
