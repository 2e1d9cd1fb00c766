//! Metadata and end-to-end data protection (NVM command set 1.0, 5.2 and 5.3): what commands and namespaces say of it, and the
//! protection information of a block, with guards of 16 and 64 bits.

use super::wire::{bits, wire};
use zerocopy::big_endian::{U16 as BeU16, U32 as BeU32, U64 as BeU64};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

bits! {
    /// CDW12 of read, write, compare, verify and write zeroes as far as it is about protection information (NVM 1.0, 3.2.1).
    ProtectionDw12: u32 {
        /// STC: the storage tag is checked.
        check_storage, with_check_storage: 24, 24;
        /// PRCHK: the reference tag is checked.
        check_reference, with_check_reference: 26, 26;
        /// PRCHK: the application tag is checked.
        check_application, with_check_application: 27, 27;
        /// PRCHK: the guard is checked.
        check_guard, with_check_guard: 28, 28;
        /// PRACT: protection information is inserted and stripped by the controller.
        pract, with_pract: 29, 29;
    }
}

bits! {
    /// CDW15 of the same commands: LBAT or ELBAT, and its mask.
    ProtectionDw15: u32 {
        /// Logical block application tag.
        tag, with_tag: 15, 0;
        /// Its mask: bits that are 0 are not checked.
        mask, with_mask: 31, 16;
    }
}

bits! {
    /// DPS of Identify Namespace (NVM 1.0, Figure 97).
    ProtectionSettings: u8 {
        /// Protection information type 1 to 3; 0: it is off.
        kind, with_kind: 2, 0;
        /// It lies in the first bytes of the metadata, not in the last.
        first, with_first: 3, 3;
    }
}

/// MC of Identify Namespace: metadata can be transferred as part of an extended block.
pub const MC_EXTENDED: u8 = 1;
/// MC: metadata can be transferred in a buffer of its own.
pub const MC_SEPARATE: u8 = 1 << 1;
/// DPC: types 1, 2 and 3, in the first and in the last bytes of the metadata.
pub const DPC_ALL: u8 = 0x1f;
/// FLBAS: metadata is transferred as part of an extended block.
pub const FLBAS_EXTENDED: u8 = 1 << 4;

wire! {
    /// Protection information with a 16-bit guard (NVM 1.0, 5.2.1.1). It is big endian.
    Tuple: 8 {
        /// CRC of the block, and of the metadata before it.
        guard: BeU16 = 0,
        /// Application tag.
        application: BeU16 = 2,
        /// Reference tag.
        reference: BeU32 = 4,
    }
}

wire! {
    /// Protection information with a 64-bit guard (NVM 1.0, 5.2.1.3). It is big endian.
    Tuple64: 16 {
        /// CRC of the block, and of the metadata before it.
        guard: BeU64 = 0,
        /// Application tag.
        application: BeU16 = 8,
        /// Storage and reference space.
        space: [u8; 6] = 10,
    }
}

/// Protection information of a block, whatever the size of its guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// CRC of the block, and of the metadata before it.
    pub guard: u64,
    /// Application tag.
    pub application: u16,
    /// Storage and reference space: the storage tag, if there is one, in the upper bits, the reference tag in the lower.
    pub space: u64,
}

/// The protection information format of an LBA format (NVM 1.0, 5.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuardSize {
    /// CRC-16 T10 DIF, in [`Tuple`].
    #[default]
    Bits16,
    /// The NVM Express 64-bit CRC, in [`Tuple64`]. Its blocks have 4 KiB or more.
    Bits64,
}

impl GuardSize {
    /// PIF of an extended LBA format.
    pub const fn pif(self) -> u32 {
        match self {
            GuardSize::Bits16 => 0,
            GuardSize::Bits64 => 2,
        }
    }
    /// Bytes of the protection information.
    pub const fn bytes(self) -> usize {
        match self {
            GuardSize::Bits16 => size_of::<Tuple>(),
            GuardSize::Bits64 => size_of::<Tuple64>(),
        }
    }
    /// Bits of the storage and reference space.
    pub const fn space_bits(self) -> u32 {
        match self {
            GuardSize::Bits16 => 32,
            GuardSize::Bits64 => 48,
        }
    }
    /// The guard of a block, and of the metadata before its protection information.
    pub fn guard(self, data: &[u8], before: &[u8]) -> u64 {
        match self {
            GuardSize::Bits16 => guard(guard(0, data), before).into(),
            GuardSize::Bits64 => guard64(guard64(0, data), before),
        }
    }
    /// Reads what begins `bytes`.
    pub fn read(self, bytes: &[u8]) -> Protection {
        match self {
            GuardSize::Bits16 => {
                let tuple = Tuple::read_from_prefix(bytes).map_or_else(|_| Tuple::default(), |(tuple, _)| tuple);
                let (guard, application) = (tuple.guard.get().into(), tuple.application.get());
                Protection { guard, application, space: tuple.reference.get().into() }
            }
            GuardSize::Bits64 => {
                let tuple = Tuple64::read_from_prefix(bytes).map_or_else(|_| Tuple64::default(), |(tuple, _)| tuple);
                let space = tuple.space.iter().fold(0, |space, b| space << 8 | u64::from(*b));
                Protection { guard: tuple.guard.get(), application: tuple.application.get(), space }
            }
        }
    }
    /// Writes [`bytes`](Self::bytes) of `into`, which has as many or more. What is too large is cut.
    pub fn write(self, protection: &Protection, into: &mut [u8]) {
        let Protection { guard, application, space } = *protection;
        match self {
            GuardSize::Bits16 => {
                let (guard, reference) = ((guard as u16).into(), (space as u32).into());
                let tuple = Tuple { guard, application: application.into(), reference };
                into[..self.bytes()].copy_from_slice(tuple.as_bytes());
            }
            GuardSize::Bits64 => {
                let [_, _, space @ ..] = space.to_be_bytes();
                let tuple = Tuple64 { guard: guard.into(), application: application.into(), space };
                into[..self.bytes()].copy_from_slice(tuple.as_bytes());
            }
        }
    }
}

bits! {
    /// ELBAF: an extended LBA format (NVM 1.0, Figure 101).
    ExtendedLbaFormat: u32 {
        /// STS: bits of the storage tag.
        storage_bits, with_storage_bits: 6, 0;
        /// PIF: [`GuardSize::pif`].
        pif, with_pif: 8, 7;
    }
}

/// PIC: Copy has the bit Storage Tag Check Read.
pub const PIC_STORAGE_CHECK_READ: u8 = 1 << 2;
/// PIFA: no bit of a storage tag can be masked (NVM 1.1, Figure 118).
pub const PIFA_NO_MASKING: u8 = 2;

wire! {
    /// The NVM command set's Identify Namespace, CNS 05h: 4096 bytes (NVM 1.0, Figure 100).
    IdentifyNvmNamespace: 4096 {
        /// LBSTM: bits of the storage tag that are compared.
        lbstm: U64 = 0,
        /// PIC: protection information capabilities.
        pic: u8 = 8,
        /// PIFA: protection information format attribute.
        pifa: u8 = 9,
        /// Reserved.
        rsvd10: [u8; 2] = 10,
        /// [`ExtendedLbaFormat`] of each LBA format.
        elbaf: [U32; 64] = 12,
        /// Reserved.
        rsvd268: [u8; 3828] = 268,
    }
}

/// The guard's polynomial, T10 DIF: x^16 + x^15 + x^11 + x^9 + x^8 + x^7 + x^5 + x^4 + x^2 + x + 1.
const POLYNOMIAL: u16 = 0x8bb7;

/// By eight bytes at once: `TABLES[k][b]` is the CRC of byte `b` with `k` zero bytes behind it.
const TABLES: [[u16; 256]; 8] = {
    let mut tables = [[0u16; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { crc << 1 ^ POLYNOMIAL } else { crc << 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[k - 1][byte];
            tables[k][byte] = before << 8 ^ tables[0][(before >> 8) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
};

/// CRC-16 T10 DIF of `bytes`, going on from `crc` (0 at the start).
pub fn guard(crc: u16, bytes: &[u8]) -> u16 {
    let (mut crc, mut eights) = (crc, bytes.chunks_exact(8));
    for b in &mut eights {
        let first = crc ^ u16::from_be_bytes([b[0], b[1]]);
        crc = TABLES[7][usize::from(first >> 8)]
            ^ TABLES[6][usize::from(first & 0xff)]
            ^ TABLES[5][usize::from(b[2])]
            ^ TABLES[4][usize::from(b[3])]
            ^ TABLES[3][usize::from(b[4])]
            ^ TABLES[2][usize::from(b[5])]
            ^ TABLES[1][usize::from(b[6])]
            ^ TABLES[0][usize::from(b[7])];
    }
    eights.remainder().iter().fold(crc, |crc, b| crc << 8 ^ TABLES[0][usize::from((crc >> 8) as u8 ^ b)])
}

/// The polynomial of the NVM Express 64-bit CRC, AD93D235_94C93659h, reflected.
const POLYNOMIAL_64: u64 = 0x9a6c_9329_ac4b_c9b5;

/// By eight bytes at once: `TABLES_64[k][b]` is the CRC of byte `b` with `k` zero bytes behind it.
const TABLES_64: [[u64; 256]; 8] = {
    let mut tables = [[0u64; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u64, 0);
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ POLYNOMIAL_64 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[k - 1][byte];
            tables[k][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
};

/// The NVM Express 64-bit CRC of `bytes` (NVM 1.0, 5.2.1.3), going on from `crc` (0 at the start).
pub fn guard64(crc: u64, bytes: &[u8]) -> u64 {
    let (mut crc, mut eights) = (!crc, bytes.chunks_exact(8));
    for b in &mut eights {
        let first = (crc ^ u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])).to_le_bytes();
        crc = (0..8).fold(0, |crc, i| crc ^ TABLES_64[7 - i][usize::from(first[i])]);
    }
    !eights.remainder().iter().fold(crc, |crc, b| crc >> 8 ^ TABLES_64[0][usize::from(crc as u8 ^ b)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// A bit at a time.
    fn slow(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0, |crc, b| {
            (0..8).fold(crc ^ u16::from(*b) << 8, |c, _| if c & 0x8000 != 0 { c << 1 ^ POLYNOMIAL } else { c << 1 })
        })
    }

    #[test]
    fn guards_are_those_of_the_standard() {
        // The check value that the catalogues of CRCs give for CRC-16/T10-DIF.
        assert_eq!(guard(0, b"123456789"), 0xd0db);
        assert_eq!(guard(0, &[0; 4096]), 0);
        let bytes: vec::Vec<u8> = (0..4113u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for len in [0, 1, 7, 8, 9, 512, 520, 4096, 4113] {
            assert_eq!(guard(0, &bytes[..len]), slow(&bytes[..len]), "{len} bytes");
            assert_eq!(guard(guard(0, &bytes[..len / 3]), &bytes[len / 3..len]), slow(&bytes[..len]), "in two parts");
        }
    }

    #[test]
    fn a_tuple_is_big_endian() {
        let tuple = Tuple { guard: 0x1234.into(), application: 0x5678.into(), reference: 0x9abc_def0.into() };
        assert_eq!(tuple.as_bytes(), [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0]);
    }

    /// A bit at a time.
    fn slow64(bytes: &[u8]) -> u64 {
        !bytes.iter().fold(u64::MAX, |crc, b| {
            (0..8).fold(crc ^ u64::from(*b), |c, _| if c & 1 != 0 { c >> 1 ^ POLYNOMIAL_64 } else { c >> 1 })
        })
    }

    #[test]
    fn guards_of_64_bits_are_those_of_the_standard() {
        // The check value that the catalogues of CRCs give for CRC-64/NVME.
        assert_eq!(guard64(0, b"123456789"), 0xae8b_1486_0a79_9888);
        // NVM 1.0, Figure "64b CRC Test Cases for 4 KiB Logical Block with no Metadata".
        let up: vec::Vec<u8> = (0..4096).map(|i| i as u8).collect();
        let down: vec::Vec<u8> = up.iter().map(|b| !b).collect();
        for (block, crc) in [
            (&vec![0; 4096], 0x6482_d367_eb22_b64e),
            (&vec![0xff; 4096], 0xc0dd_ba73_02ec_a3ac),
            (&up, 0x3e72_9f5f_6750_449c),
            (&down, 0x9a2d_f64b_8e9e_517e),
        ] {
            assert_eq!(guard64(0, block), crc);
        }
        let bytes: vec::Vec<u8> = (0..4113u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for len in [0, 1, 7, 8, 9, 512, 520, 4096, 4113] {
            assert_eq!(guard64(0, &bytes[..len]), slow64(&bytes[..len]), "{len} bytes");
            assert_eq!(
                guard64(guard64(0, &bytes[..len / 3]), &bytes[len / 3..len]),
                slow64(&bytes[..len]),
                "in two parts"
            );
        }
    }

    #[test]
    fn information_of_both_sizes_is_big_endian() {
        let of = |size: GuardSize, space| {
            let (guard, mut bytes) = (0x0123_4567_89ab_cdef, [0xee; 18]);
            size.write(&Protection { guard, application: 0x5678, space }, &mut bytes);
            (size.read(&bytes), bytes)
        };
        let (back, bytes) = of(GuardSize::Bits16, 0x9abc_def0);
        assert_eq!(bytes[..9], [0xcd, 0xef, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0xee]);
        assert_eq!(back, Protection { guard: 0xcdef, application: 0x5678, space: 0x9abc_def0 });
        let (back, bytes) = of(GuardSize::Bits64, 0x1122_3344_5566);
        assert_eq!(bytes[..8], [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        assert_eq!(bytes[8..17], [0x56, 0x78, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0xee]);
        assert_eq!(back, Protection { guard: 0x0123_4567_89ab_cdef, application: 0x5678, space: 0x1122_3344_5566 });
        // PIF 10b, STS 18 (NVM 1.0, Figure 101).
        assert_eq!(ExtendedLbaFormat(0).with_pif(GuardSize::Bits64.pif()).with_storage_bits(18).0, 0x112);
    }

    #[test]
    fn fields_are_where_the_standard_has_them() {
        let dw12 = ProtectionDw12(0x3c00_0000);
        assert_eq!((dw12.pract(), dw12.check_guard(), dw12.check_application(), dw12.check_reference()), (1, 1, 1, 1));
        assert_eq!(ProtectionDw12(0x1000_0000).check_guard(), 1);
        let dw15 = ProtectionDw15(0xff00_1234);
        assert_eq!((dw15.tag(), dw15.mask()), (0x1234, 0xff00));
        assert_eq!(ProtectionSettings(0b1010), ProtectionSettings(0).with_kind(2).with_first(1));
    }
}
