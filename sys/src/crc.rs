//! CRC32C (Castagnoli), as NVMe/TCP header and data digests use it (NVMe/TCP 1.0, 3.3.1.1; RFC 3720, 12.1 and B.4).

/// The CRC32C of `bytes`, as it goes into a digest field (little-endian on the wire).
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// Continues a CRC32C: `crc32c_append(crc32c(a), b)` is the CRC32C of `a` followed by `b`.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, bytes)
}

/// The digest of the NVMe/TCP machines, by the processor's instruction where it has one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crc32c;

impl weir_spec::nvme::tcp::Digest for Crc32c {
    #[inline]
    fn append(crc: u32, bytes: &[u8]) -> u32 {
        crc32c_append(crc, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, bit by bit: reflected polynomial 0x1EDC6F41.
    fn model(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |crc, &b| {
            (0..8).fold(crc ^ u32::from(b), |c, _| if c & 1 == 1 { c >> 1 ^ 0x82f6_3b78 } else { c >> 1 })
        })
    }

    /// RFC 3720, B.4; the RFC prints the bytes in the order of the wire.
    #[test]
    fn vectors_of_rfc_3720() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        let mut read10 = [0u8; 48];
        for (at, value) in
            [(0, 0x01), (1, 0xc0), (16, 0x14), (22, 0x04), (27, 0x14), (31, 0x18), (32, 0x28), (40, 0x02)]
        {
            read10[at] = value;
        }
        let vectors: [(&[u8], [u8; 4]); 5] = [
            (&[0; 32], [0xaa, 0x36, 0x91, 0x8a]),
            (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (&ascending, [0x4e, 0x79, 0xdd, 0x46]),
            (&descending, [0x5c, 0xdb, 0x3f, 0x11]),
            (&read10, [0x56, 0x3a, 0x96, 0xd9]),
        ];
        for (bytes, wire) in vectors {
            assert_eq!(crc32c(bytes).to_le_bytes(), wire, "{bytes:02x?}");
        }
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    proptest! {
        #[test]
        fn append_is_concatenation(a in prop::collection::vec(any::<u8>(), 0..3000), cut in 0usize..3000) {
            let cut = cut.min(a.len());
            prop_assert_eq!(crc32c(&a), model(&a));
            prop_assert_eq!(crc32c_append(crc32c(&a[..cut]), &a[cut..]), crc32c(&a));
        }
    }
}
