//! CRC32C (Castagnoli, reflected polynomial 82F63B78h; RFC 3720, 12.1 and B.4) by a table: for short texts, for tests, and where the
//! processor has no instruction for it.

const TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

/// The CRC32C of `bytes`; 0 for none.
pub fn crc32c(bytes: &[u8]) -> u32 {
    append(0, bytes)
}

/// Continues a CRC32C: `append(crc32c(a), b)` is the CRC32C of `a` followed by `b`.
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!crc, |c, b| c >> 8 ^ TABLE[usize::from(c as u8 ^ b)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_string() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
        assert_eq!(append(crc32c(b"1234"), b"56789"), 0xe306_9283);
    }
}
