//! Bytes as a column has them: those that a column could not have are `%` and two hexadecimal digits.

use std::fmt::Write;

/// Whether a byte stands for itself. `@` begins an inode.
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'%' | b',' | b'#' | b'"' | b'@')
}

pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match is_plain(*byte) {
            true => text.push(char::from(*byte)),
            // A string takes everything.
            false => drop(write!(text, "%{byte:02x}")),
        }
    }
    text
}

pub fn decode(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("\"{text}\": % without two hexadecimal digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = behind.split_at_checked(2).ok_or_else(wrong)?;
        let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(wrong)?);
        rest = behind;
    }
    Ok(bytes)
}
