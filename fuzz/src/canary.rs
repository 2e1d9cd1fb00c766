//! A decoder with a planted bug, typical of its kind: a length field is checked against the wrong limit.
//!
//! It takes the right magic (the dictionary has it), a version, and a length that passes the check but lies outside the
//! input to reach the bug: a driver that only throws random bytes does not get there in bounded steps.

/// What the decoder recognises.
pub const DICTIONARY: &[&[u8]] = &[b"CANARY", &[0x01, 0x00]];

/// One well-formed message: magic, version 1, two bytes of payload.
pub fn seeds() -> Vec<Vec<u8>> {
    vec![b"CANARY\x01\x00\x02\x00hi".to_vec()]
}

/// Decodes a message; panics on the planted bug.
pub fn parse(data: &[u8]) {
    let Some(rest) = data.strip_prefix(b"CANARY") else { return };
    let [version_lo, version_hi, len_lo, len_hi, payload @ ..] = rest else { return };
    if u16::from_le_bytes([*version_lo, *version_hi]) != 1 {
        return;
    }
    let len = usize::from(u16::from_le_bytes([*len_lo, *len_hi]));
    // The bug: the limit of the format instead of what has arrived.
    if len > 0x1000 {
        return;
    }
    std::hint::black_box(&payload[..len]);
}
