//! Namespace management, attachment, formatting and write protection (base 2.0, 5.14, 5.22, 5.23, 8.11 and 8.12).

use super::wire::{bits, wire};
use zerocopy::little_endian::{U16, U32, U64};

/// FNA bit 2: cryptographic erase is a part of Format NVM.
pub const FNA_CRYPTO: u8 = 1 << 2;
/// CTRATT bit 7: Namespace Granularity.
pub const CTRATT_GRANULARITY: u32 = 1 << 7;

/// SEL of Namespace Management (base 2.0, Figure 258).
pub mod management {
    /// Create.
    pub const CREATE: u32 = 0;
    /// Delete.
    pub const DELETE: u32 = 1;
}

/// SEL of Namespace Attachment (base 2.0, Figure 253).
pub mod attachment {
    /// Attach.
    pub const ATTACH: u32 = 0;
    /// Detach.
    pub const DETACH: u32 = 1;
}

/// Placement handles that one namespace can be created with (base 2.1, Figure 395).
pub const PLACEMENT_HANDLES: usize = 128;

wire! {
    /// What a host says of a namespace that it creates (base 2.0, Figure 259 and NVM 1.0, 4.1.6; placement handles base 2.1,
    /// Figure 395).
    HostSoftwareFields: 4096 {
        /// Size in blocks.
        nsze: U64 = 0,
        /// Capacity in blocks.
        ncap: U64 = 8,
        /// Reserved.
        rsvd16: [u8; 10] = 16,
        /// LBA format: index in 3:0 and 6:5, extended blocks in 4.
        flbas: u8 = 26,
        /// Reserved.
        rsvd27: [u8; 2] = 27,
        /// Protection settings.
        dps: u8 = 29,
        /// Sharing.
        nmic: u8 = 30,
        /// Reserved.
        rsvd31: [u8; 61] = 31,
        /// ANA group; 0: the drive chooses.
        anagrpid: U32 = 92,
        /// Reserved.
        rsvd96: [u8; 4] = 96,
        /// NVM set; 0: the drive chooses.
        nvmsetid: U16 = 100,
        /// Endurance group; 0: the drive chooses.
        endgid: U16 = 102,
        /// Reserved.
        rsvd104: [u8; 280] = 104,
        /// Logical block storage tag mask.
        lbstm: U64 = 384,
        /// Number of placement handles.
        nphndls: U16 = 392,
        /// Reserved.
        rsvd394: [u8; 118] = 394,
        /// Reclaim unit handle identifiers of the placement handles.
        phndls: [U16; PLACEMENT_HANDLES] = 512,
        /// Reserved, then vendor specific.
        rsvd768: [u8; 3328] = 768,
    }
}

bits! {
    /// CDW10 of Format NVM (base 2.0, Figure 330).
    FormatDw10: u32 {
        /// LBA format, lower bits.
        lbafl, with_lbafl: 3, 0;
        /// Metadata is transferred as part of an extended block.
        mset, with_mset: 4, 4;
        /// Protection information type; 0: none.
        pi, with_pi: 7, 5;
        /// It lies in the first bytes of the metadata.
        pil, with_pil: 8, 8;
        /// Secure erase: [`secure_erase`].
        ses, with_ses: 11, 9;
        /// LBA format, upper bits.
        lbafu, with_lbafu: 13, 12;
    }
}

impl FormatDw10 {
    /// The index of the LBA format.
    pub const fn format(self) -> usize {
        (self.lbafl() | self.lbafu() << 4) as usize
    }
}

/// SES of Format NVM.
pub mod secure_erase {
    /// None was asked for.
    pub const NONE: u32 = 0;
    /// User data erase.
    pub const USER_DATA: u32 = 1;
    /// Cryptographic erase.
    pub const CRYPTO: u32 = 2;
}

/// FPI of Identify Namespace (NVM 1.0, Figure 97): the indicator is supported, and so many percent are still to be formatted.
pub const fn format_progress(percent: u8) -> u8 {
    1 << 7 | percent & 0x7f
}

bits! {
    /// CDW11 and value of the feature Namespace Write Protection Config, 84h (base 2.0, Figure 354).
    WriteProtect: u32 {
        /// State: [`write_protect`].
        state, with_state: 2, 0;
    }
}

/// States of the write protection of a namespace (base 2.0, 8.12).
pub mod write_protect {
    /// None.
    pub const NONE: u32 = 0;
    /// Write protected.
    pub const PROTECTED: u32 = 1;
    /// Until the next power cycle.
    pub const UNTIL_POWER_CYCLE: u32 = 2;
    /// For good.
    pub const PERMANENT: u32 = 3;
}

/// NWPC of Identify Controller: no protection and write protection, until the next power cycle, and for good.
pub const NWPC_ALL: u8 = 0b111;
/// NSATTR of Identify Namespace: currently write protected.
pub const NSATTR_PROTECTED: u8 = 1;

wire! {
    /// A namespace granularity (base 2.0, Figure 290).
    Granularity: 16 {
        /// Sizes that are a multiple of so many bytes waste none.
        nszegran: U64 = 0,
        /// The same of capacities.
        ncapgran: U64 = 8,
    }
}

wire! {
    /// Namespace Granularity List, CNS 16h (base 2.0, Figure 289).
    GranularityList: 4096 {
        /// Bit 0: descriptor n belongs to LBA format n; else the first belongs to all.
        attributes: U32 = 0,
        /// Descriptors, 0-based.
        nod: u8 = 4,
        /// Reserved.
        rsvd5: [u8; 27] = 5,
        /// Descriptors.
        granularities: [Granularity; 16] = 32,
        /// Reserved.
        rsvd288: [u8; 3808] = 288,
    }
}

/// Most controllers that a list names.
pub const CONTROLLERS_MAX: usize = 2047;

/// The controller list that a host sends (base 2.0, 4.4.1): `None` where its count is too large or 0, or an identifier stands
/// in it twice. They may come in any order, as nvme-cli sends them.
pub fn checked_controller_list(list: &[u8]) -> Option<impl Iterator<Item = u16> + '_> {
    let count = usize::from(u16::from_le_bytes([*list.first()?, *list.get(1)?]));
    let ids = || super::identify::controller_list(list);
    let mut seen = [0u64; 1024];
    let unique = ids().all(|id| {
        let (word, bit) = (&mut seen[usize::from(id / 64)], 1 << (id % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    });
    ((1..=CONTROLLERS_MAX).contains(&count) && ids().count() == count && unique).then(ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_format_as_nvme_cli_sends_it() {
        // nvme format --lbaf=3 --ms=1 --pi=1 --pil=1 --ses=2
        let dw10 = FormatDw10(0x533);
        assert_eq!((dw10.format(), dw10.mset(), dw10.pi(), dw10.pil(), dw10.ses()), (3, 1, 1, 1, 2));
        assert_eq!(FormatDw10(0x3002).format(), 0x32);
        assert_eq!((format_progress(0), format_progress(37)), (0x80, 0xa5));
    }

    #[test]
    fn lists_of_controllers_are_checked() {
        let ids = |list: &[u8]| checked_controller_list(list).map(Iterator::collect::<Vec<u16>>);
        assert_eq!(ids(&[2, 0, 1, 0, 5, 0, 9, 0]), Some(alloc::vec![1, 5]));
        assert_eq!(ids(&[3, 0, 5, 0, 0xff, 0xff, 1, 0]), Some(alloc::vec![5, 0xffff, 1]));
        for wrong in
            [&[0, 0, 1, 0][..], &[3, 0, 5, 0, 1, 0, 5, 0], &[2, 0, 5, 0, 5, 0], &[3, 0, 1, 0, 2, 0], &[0, 8], &[1]]
        {
            assert_eq!(ids(wrong), None, "{wrong:?}");
        }
    }
}
