//! Metadata and end-to-end data protection (NVM command set 1.0, 5.2 and 5.3): what commands and namespaces say of it, and the
//! protection information of a block with 16-bit guards.

use super::wire::{bits, wire};
use zerocopy::big_endian::{U16 as BeU16, U32 as BeU32};

bits! {
    /// CDW12 of read, write, compare, verify and write zeroes as far as it is about protection information (NVM 1.0, 3.2.1).
    ProtectionDw12: u32 {
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

/// Bytes of a [`Tuple`].
pub const TUPLE: usize = size_of::<Tuple>();

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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use zerocopy::IntoBytes;

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
